//! Another configuration, as far as it concerns the router as a host.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;
use thalweg_dataplane::icmp::IcmpError;
use thalweg_dataplane::neighbor::PortIdentity;
use thalweg_node::live_tables::PortLink;
use thalweg_node::plan::NatStage;
use thalweg_wire::MacAddr;

use super::Host;
use crate::mirror::Mirrors;

/// What the host does differently from now on.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostChange {
    /// Ports whose addresses, or what they advertise, are different.
    pub(crate) ports: Vec<PortChange>,
    /// StaticNeighbors that are configured no longer.
    pub(crate) forgotten: Vec<(u16, IpAddr)>,
    /// StaticNeighbors whose address is configured.
    pub(crate) static_neighbors: Vec<(u16, IpAddr, MacAddr)>,
    /// NAT's outside port.
    pub(crate) outside: Option<u16>,
    /// What hosts are told that get no session.
    pub(crate) refusal: Option<IcmpError>,
    /// The class of the router's own packets.
    pub(crate) class: u8,
}

/// A port as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortChange {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpNet>,
    /// Those that its mirror is given: the others have come from there.
    pub(crate) mirrored: Vec<IpNet>,
    /// Those that NAT gives out.
    pub(crate) translated: Vec<Ipv4Addr>,
    /// Whether hosts are told that a router is here.
    pub(crate) advertises: bool,
}

/// Ports that come and go, for the host.
#[derive(Default)]
pub(crate) struct HostPorts {
    /// These are gone, and what was known of their links.
    pub(crate) gone: Vec<u16>,
    /// These are there, and whether they are up.
    pub(crate) new: Vec<(u16, PortIdentity, bool)>,
    /// The mirrors of these are gone.
    pub(crate) without_mirror: Vec<u16>,
    /// New mirrors.
    pub(crate) mirrors: Mirrors,
}

impl Host {
    /// Ports come and go.
    pub(crate) fn change_ports(&mut self, change: HostPorts) {
        let now_ns = self.clock.now_ns();
        let comes_back = |port: u16| change.new.iter().any(|(new, ..)| *new == port);
        for port in change.gone {
            if let Some(identity) = self.identities.get_mut(usize::from(port)) {
                *identity = nobody();
            }
            self.vacant.insert(port);
            self.neighbors.set_port(port, None, now_ns);
            // The reload says what the link of a port is that is opened anew; it may have said so before this thread gets here.
            if !comes_back(port) {
                self.tables.set_port(port, PortLink::default());
            }
        }
        for port in change.without_mirror {
            self.mirrors.remove(port);
        }
        self.mirrors.extend(change.mirrors);
        for (port, identity, is_up) in change.new {
            let place = usize::from(port);
            if self.identities.len() <= place {
                self.identities.resize(place + 1, nobody());
            }
            self.identities[place] = identity.clone();
            self.vacant.remove(&port);
            if is_up {
                self.neighbors.set_port(port, Some(identity), now_ns);
            }
        }
        self.work_off(now_ns);
    }

    /// Changes what it does; `nat` are NAT's sessions of now. Neighbors that are neighbors still stay resolved.
    pub(crate) fn change(&mut self, change: HostChange, nat: Option<Arc<NatStage>>) {
        let now_ns = self.clock.now_ns();
        for (port, address) in change.forgotten {
            self.forget_configured(port, address);
        }
        for PortChange { port, addresses, mirrored, translated, advertises } in change.ports {
            let Some(identity) = self.identities.get_mut(usize::from(port)) else { continue };
            self.mirrors.set_addresses(port, mirrored);
            identity.addresses = addresses.iter().map(|net| (net.addr(), net.prefix_len())).collect();
            (identity.router_advertisements, identity.translated) = (advertises, translated);
            let identity = identity.clone();
            // A port that is down hears of it when it comes up.
            if self.neighbors.port(port).is_some() {
                self.neighbors.set_port(port, Some(identity), now_ns);
            }
        }
        self.configure_neighbors(change.static_neighbors);
        (self.outside, self.class) = (change.outside, change.class);
        (self.nat, self.refusal) = (nat, change.refusal);
        self.look_at_gateways(now_ns);
        self.work_off(now_ns);
    }

    /// Asks for the gateways that routes lead to by now, and says which of them do not answer yet.
    pub(crate) fn unresolved_gateways(&mut self) -> Vec<(u16, IpAddr)> {
        let now_ns = self.clock.now_ns();
        self.look_at_gateways(now_ns);
        self.work_off(now_ns);
        let unresolved = |(port, address): &&(u16, IpAddr)| {
            self.neighbors.lookup(*port, *address).is_none()
                && self.tables.read().port(*port).is_some_and(|link| link.is_up && link.default_mac.is_none())
        };
        self.wanted.iter().filter(unresolved).copied().collect()
    }
}

/// Who the router is where it has no port.
fn nobody() -> PortIdentity {
    PortIdentity::new(MacAddr::ZERO, Vec::new(), 0)
}
