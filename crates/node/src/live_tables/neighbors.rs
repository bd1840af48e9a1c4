//! The state of ports and neighbors, and the paths of a route that are usable with it.
//!
//! A route has *tiers* of ways, the preferred one first: several tiers where one prefix has routes of several metrics.
//! Packets take the ways of the first tier that has a usable one, all usable ones of it by flow. A way is usable when
//! its port is up and its neighbor is known; what leads to a network or nowhere needs no neighbor. Where no way at all is
//! usable, the first tier with a port that is up decides, so that its neighbors are asked for when packets come.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use thalweg_base::DropReason;
use thalweg_dataplane::route::Adjacency;
use thalweg_wire::MacAddr;

use crate::fib::{PathSet, Way};
use thalweg_config::RouteTarget;

/// What sending needs to know of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLink {
    /// The port's own MAC address.
    pub mac: MacAddr,
    /// Largest IP packet that may leave.
    pub mtu: u32,
    /// Where frames to neighbors that are not known go.
    pub default_mac: Option<MacAddr>,
    /// Whether anything can be sent.
    pub is_up: bool,
}

/// One way of a configured route or of a neighbor's host route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live_tables) enum Path {
    /// To a neighbor.
    Neighbor { port: u16, address: IpAddr },
    /// To the host that has the destination's address.
    Glean { port: u16 },
    /// To the router itself, which has the address on this port.
    Local { port: u16 },
    /// Nowhere.
    Drop(DropReason),
}

impl Path {
    fn port(self) -> Option<u16> {
        match self {
            Path::Neighbor { port, .. } | Path::Glean { port } | Path::Local { port } => Some(port),
            Path::Drop(_) => None,
        }
    }
}

/// The ways of a route, in tiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::live_tables) struct Group(pub(in crate::live_tables) Vec<Vec<Path>>);

impl Group {
    /// A group of one tier.
    pub(in crate::live_tables) fn of(paths: Vec<Path>) -> Self {
        Self(vec![paths])
    }

    /// What a target of the configuration comes to.
    pub(in crate::live_tables) fn of_target(target: &RouteTarget) -> Self {
        Self(target.tiers().iter().map(paths_of).collect())
    }

    /// All ways of all tiers.
    pub(in crate::live_tables) fn paths(&self) -> impl Iterator<Item = Path> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Its neighbors.
    pub(in crate::live_tables) fn neighbors(&self) -> impl Iterator<Item = (u16, IpAddr)> + '_ {
        self.paths().filter_map(|path| match path {
            Path::Neighbor { port, address } => Some((port, address)),
            _ => None,
        })
    }
}

/// What is known of ports and neighbors; shared with the tables, which ask when they publish.
#[derive(Debug)]
pub(super) struct Neighbors {
    pub(super) ports: Vec<PortLink>,
    pub(super) macs: HashMap<(u16, IpAddr), MacAddr>,
    /// Neighbors that were asked for and do not answer.
    pub(super) silent: HashSet<(u16, IpAddr)>,
}

impl Neighbors {
    /// Notes what a port is like from now on, a new one too; whether that is something else.
    pub(super) fn set_port(&mut self, port: u16, link: PortLink) -> bool {
        let place = usize::from(port);
        if self.ports.len() <= place {
            self.ports.resize(place + 1, PortLink::default());
        }
        let before = std::mem::replace(&mut self.ports[place], link);
        if before.is_up != link.is_up {
            // A neighbor that was silent there is asked anew.
            self.silent.retain(|(of, _)| *of != port);
        }
        before != link
    }

    /// The ways that packets take now, in order of the group, and those of the same tier that they do not.
    pub(super) fn in_use(&self, group: &Group) -> (Vec<Path>, Vec<Path>) {
        let split = |is_good: &dyn Fn(&Path) -> bool| {
            let parts =
                group.0.iter().map(|tier| tier.iter().partition::<Vec<Path>, _>(|path| is_good(path)));
            parts.into_iter().find(|(good, _)| !good.is_empty())
        };
        let any = split(&|path| self.is_usable(*path)).or_else(|| split(&|path| self.has_link(*path)));
        any.unwrap_or_else(|| (group.0.first().cloned().unwrap_or_default(), Vec::new()))
    }

    pub(super) fn group(&self, group: &Group) -> PathSet {
        let (active, standby) = self.in_use(group);
        // A way that is dead still says by which port its neighbor's packets come in.
        let glean = |path: Path| path.port().map(|port| Adjacency::Glean { port });
        PathSet {
            active: active.into_iter().map(|path| self.path(path)).collect(),
            standby: standby.into_iter().filter_map(glean).collect(),
        }
    }

    pub(super) fn has_link(&self, path: Path) -> bool {
        path.port().is_none_or(|port| self.ports.get(usize::from(port)).is_some_and(|link| link.is_up))
    }

    /// Whether packets get anywhere by a way now.
    pub(super) fn is_usable(&self, path: Path) -> bool {
        match path {
            Path::Neighbor { .. } => matches!(self.path(path), Adjacency::Forward { .. }),
            Path::Glean { .. } => self.has_link(path),
            Path::Local { .. } | Path::Drop(_) => true,
        }
    }

    /// Whether a way is known to lead nowhere: its link is down, or its neighbor was asked for and is silent. Not so a
    /// neighbor that was not asked for yet.
    pub(super) fn is_dead(&self, port: u16, neighbor: Option<IpAddr>) -> bool {
        let is_silent = neighbor.is_some_and(|address| {
            let has_mac = self.ports.get(usize::from(port)).is_some_and(|link| link.default_mac.is_some());
            self.silent.contains(&(port, address)) && !has_mac
        });
        is_silent || !self.has_link(Path::Glean { port })
    }

    fn path(&self, path: Path) -> Adjacency {
        match path {
            Path::Drop(reason) => Adjacency::Drop(reason),
            Path::Local { port } => Adjacency::Local { port },
            Path::Glean { port } => self.frame(port, None),
            Path::Neighbor { port, address } => self.frame(port, self.macs.get(&(port, address)).copied()),
        }
    }

    pub(super) fn way(&self, way: Way) -> Adjacency {
        match way {
            Way::Discard => Adjacency::Drop(DropReason::Blackhole),
            Way::Neighbor { address, link } => match u16::try_from(link) {
                Ok(port) => self.path(Path::Neighbor { port, address }),
                Err(_) => Adjacency::Drop(DropReason::NoRoute),
            },
        }
    }

    fn frame(&self, port: u16, mac: Option<MacAddr>) -> Adjacency {
        let Some(link) = self.ports.get(usize::from(port)) else {
            return Adjacency::Drop(DropReason::NoRoute);
        };
        match mac.or(link.default_mac) {
            _ if !link.is_up => Adjacency::Drop(DropReason::TransmitFailed),
            None => Adjacency::Glean { port },
            Some(destination_mac) => {
                Adjacency::Forward { port, destination_mac, source_mac: link.mac, mtu_bytes: link.mtu }
            }
        }
    }
}

fn paths_of(target: &RouteTarget) -> Vec<Path> {
    match target {
        RouteTarget::Local(port) => vec![Path::Local { port: *port }],
        RouteTarget::Blackhole => vec![Path::Drop(DropReason::Blackhole)],
        RouteTarget::Unreachable => vec![Path::Drop(DropReason::Unreachable)],
        RouteTarget::Forward(hops) => {
            let path = |hop: &thalweg_config::NextHop| match hop.gateway {
                Some(address) => Path::Neighbor { port: hop.port, address },
                None => Path::Glean { port: hop.port },
            };
            hops.iter().map(path).collect()
        }
        RouteTarget::Ranked(tiers) => tiers.iter().flat_map(paths_of).collect(),
    }
}
