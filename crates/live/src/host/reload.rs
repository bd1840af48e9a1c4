//! Changes the host thread's part of the configuration.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use thalweg_config::RouterConfig;
use thalweg_dataplane::gateway_check::CheckConfig;
use thalweg_dataplane::icmp::IcmpError;
use thalweg_dataplane::neighbor::PortIdentity;
use thalweg_node::live_tables::PortLink;
use thalweg_node::plan::NatStage;
use thalweg_wire::MacAddr;

use super::Host;
use crate::firewall_watch::FirewallWatch;
use crate::mirror::Mirrors;

/// What changes for the host thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostChange {
    /// Ports whose addresses, or what they advertise, changed.
    pub(crate) ports: Vec<PortChange>,
    /// Static neighbors no longer configured.
    pub(crate) forgotten: Vec<(u16, IpAddr)>,
    /// Static neighbors that are new or have another MAC address.
    pub(crate) static_neighbors: Vec<(u16, IpAddr, MacAddr)>,
    /// All health checks of gateways.
    pub(crate) checks: Vec<CheckConfig>,
    pub(crate) nat_ports: Option<NatPorts>,
    /// The ICMP error for hosts that NAT refuses a session.
    pub(crate) refusal: Option<IcmpError>,
    /// The traffic class of the router's own packets.
    pub(crate) class: u8,
}

/// A port on each side of NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NatPorts {
    pub(crate) outside: u16,
    pub(crate) inside: u16,
}

impl NatPorts {
    /// The first ones of a configuration.
    pub(crate) fn of(config: &RouterConfig) -> Option<Self> {
        let nat = config.nat.as_ref()?;
        Some(Self { outside: nat.outside_port, inside: *nat.inside_ports.first()? })
    }
}

/// A port's new addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortChange {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpNet>,
    /// Addresses that the router sets on the port's mirror; programs set the others there.
    pub(crate) mirrored: Vec<IpNet>,
    /// Addresses that NAT uses on the port.
    pub(crate) translated: Vec<Ipv4Net>,
    /// Whether IPv6 neighbors are told that this is a router.
    pub(crate) advertises: bool,
}

/// Ports that the host thread gains and loses.
#[derive(Default)]
pub(crate) struct HostPorts {
    /// Removed ports.
    pub(crate) gone: Vec<u16>,
    /// Added ports, and whether they are up.
    pub(crate) new: Vec<(u16, PortIdentity, bool)>,
    /// Ports whose mirrors are removed.
    pub(crate) without_mirror: Vec<u16>,
    /// Added mirrors.
    pub(crate) mirrors: Mirrors,
}

impl Host {
    pub(crate) fn change_ports(&mut self, change: HostPorts) {
        let now_ns = self.parts.clock.now_ns();
        let comes_back = |port: u16| change.new.iter().any(|(new, ..)| *new == port);
        for port in change.gone {
            if let Some(identity) = self.parts.identities.get_mut(usize::from(port)) {
                *identity = nobody();
            }
            self.vacant.insert(port);
            self.neighbors.set_port(port, None, now_ns);
            // The reload reports the link of a port that is opened again, possibly before this thread gets here.
            if !comes_back(port) {
                self.parts.tables.set_port(port, PortLink::default());
            }
        }
        for port in change.without_mirror {
            self.parts.mirrors.remove(port);
        }
        self.parts.mirrors.extend(change.mirrors);
        for (port, identity, is_up) in change.new {
            let place = usize::from(port);
            if self.parts.identities.len() <= place {
                self.parts.identities.resize(place + 1, nobody());
            }
            self.parts.identities[place] = identity.clone();
            self.vacant.remove(&port);
            if is_up {
                self.neighbors.set_port(port, Some(identity), now_ns);
            }
        }
        self.work_off(now_ns);
    }

    /// Applies a change; `nat` has the sessions of the new plan, `firewall` its connections. Resolved neighbors stay resolved if they still are
    /// neighbors.
    pub(crate) fn change(
        &mut self,
        change: HostChange,
        nat: Option<Arc<NatStage>>,
        firewall: Option<FirewallWatch>,
    ) {
        let now_ns = self.parts.clock.now_ns();
        for (port, address) in change.forgotten {
            self.forget_configured(port, address);
        }
        for PortChange { port, addresses, mirrored, translated, advertises } in change.ports {
            let Some(identity) = self.parts.identities.get_mut(usize::from(port)) else { continue };
            self.parts.mirrors.set_addresses(port, mirrored);
            identity.addresses = addresses.iter().map(|net| (net.addr(), net.prefix_len())).collect();
            (identity.router_advertisements, identity.translated) = (advertises, translated);
            let identity = identity.clone();
            // A port that is down gets its identity when it comes up.
            if self.neighbors.port(port).is_some() {
                self.neighbors.set_port(port, Some(identity), now_ns);
            }
        }
        self.configure_neighbors(change.static_neighbors);
        self.configure_checks(&change.checks);
        (self.parts.nat_ports, self.parts.class) = (change.nat_ports, change.class);
        (self.parts.nat, self.parts.refusal) = (nat, change.refusal);
        self.parts.firewall = firewall;
        self.look_at_gateways(now_ns);
        self.work_off(now_ns);
    }

    /// Starts to resolve the gateways of all routes, and returns those that have not answered yet.
    pub(crate) fn unresolved_gateways(&mut self) -> Vec<(u16, IpAddr)> {
        let now_ns = self.parts.clock.now_ns();
        self.look_at_gateways(now_ns);
        self.work_off(now_ns);
        let unresolved = |(port, address): &&(u16, IpAddr)| {
            self.neighbors.lookup(*port, *address).is_none()
                && self
                    .parts
                    .tables
                    .read()
                    .port(*port)
                    .is_some_and(|link| link.is_up && link.default_mac.is_none())
        };
        self.wanted.iter().filter(unresolved).copied().collect()
    }
}

/// The identity of a number without a port.
fn nobody() -> PortIdentity {
    PortIdentity::new(MacAddr::ZERO, Vec::new(), 0)
}
