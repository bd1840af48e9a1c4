//! Another configuration, as far as it concerns the router as a host.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;
use thalweg_dataplane::icmp::IcmpError;
use thalweg_dataplane::nat::NatStage;

use super::Host;

/// What the host does differently from now on.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostChange {
    /// Ports whose addresses, or what they advertise, are different.
    pub(crate) ports: Vec<PortChange>,
    /// Stations that are configured no longer.
    pub(crate) forgotten: Vec<(u16, IpAddr)>,
    /// Stations whose address is configured.
    pub(crate) stations: Vec<(u16, IpAddr, [u8; 6])>,
    /// NAT's outside port.
    pub(crate) outside: Option<u16>,
    /// What hosts are told that get no session.
    pub(crate) refusal: Option<IcmpError>,
    /// The class of what the router sends itself.
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

impl Host {
    /// Changes what it does; `nat` are NAT's sessions of now. Neighbours that are neighbours still stay resolved.
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
            if self.neighbours.port(port).is_some() {
                self.neighbours.set_port(port, Some(identity), now_ns);
            }
        }
        self.configure_stations(change.stations);
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
            self.neighbours.lookup(*port, *address).is_none()
                && self.link(*port).is_some_and(|link| link.is_up && link.default_mac.is_none())
        };
        self.wanted.iter().filter(unresolved).copied().collect()
    }
}
