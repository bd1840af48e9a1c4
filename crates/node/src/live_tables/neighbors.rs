//! The state of ports and neighbors, and the paths of a route that it leaves usable.
//!
//! A route has *tiers* of paths, preferred first: several if the prefix has routes of several metrics. Packets use
//! the first tier that has a usable path, spread by flow over all its usable paths. A path is usable when its port
//! is up and its neighbor is known; a path to a network or a discard needs no neighbor. If no path is usable, the
//! first tier with a port that is up decides, so that packets trigger the resolution of its neighbors.
//!
//! A gateway that fails its health check is like one that is not known, except that packets still go there if no path
//! is usable: the check may be wrong, and there is nothing to lose.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use thalweg_base::DropReason;
use thalweg_dataplane::route::Adjacency;
use thalweg_wire::MacAddr;

use crate::fib::{PathSet, Way};
use thalweg_config::RouteTarget;

/// A port's properties for sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLink {
    pub mac: MacAddr,
    /// The largest IP packet that may leave.
    pub mtu: u32,
    /// The destination of frames to unresolved neighbors.
    pub default_mac: Option<MacAddr>,
    /// The destination of all frames, if the port has no link layer.
    pub far_end: Option<MacAddr>,
    /// Whether the port can send.
    pub is_up: bool,
}

impl PortLink {
    /// The destination of frames to a neighbor, given the MAC address that is known of it.
    pub fn destination(&self, known: Option<MacAddr>) -> Option<MacAddr> {
        self.far_end.or(known).or(self.default_mac)
    }
}

/// One path of a configured route or of a neighbor's host route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live_tables) enum Path {
    /// To a neighbor.
    Neighbor { port: u16, address: IpAddr },
    /// To the host that has the destination address.
    Glean { port: u16 },
    /// To the router itself, which has the address on this port.
    Local { port: u16 },
    /// To a drop.
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

/// The paths of a route, in tiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::live_tables) struct Group(pub(in crate::live_tables) Vec<Vec<Path>>);

impl Group {
    /// A group of one tier.
    pub(in crate::live_tables) fn of(paths: Vec<Path>) -> Self {
        Self(vec![paths])
    }

    /// The group of a configured target.
    pub(in crate::live_tables) fn of_target(target: &RouteTarget) -> Self {
        Self(target.tiers().iter().map(paths_of).collect())
    }

    pub(in crate::live_tables) fn paths(&self) -> impl Iterator<Item = Path> + '_ {
        self.0.iter().flatten().copied()
    }

    pub(in crate::live_tables) fn neighbors(&self) -> impl Iterator<Item = (u16, IpAddr)> + '_ {
        self.paths().filter_map(|path| match path {
            Path::Neighbor { port, address } => Some((port, address)),
            _ => None,
        })
    }
}

/// The state of ports and neighbors. The tables share it and read it when they publish.
#[derive(Debug)]
pub(super) struct Neighbors {
    pub(super) ports: Vec<PortLink>,
    pub(super) macs: HashMap<(u16, IpAddr), MacAddr>,
    /// Neighbors that were probed and do not answer.
    pub(super) silent: HashSet<(u16, IpAddr)>,
    /// Gateways that fail their health check.
    pub(super) failed: HashSet<(u16, IpAddr)>,
}

impl Neighbors {
    /// Sets the state of an old or new port; returns whether it changed.
    pub(super) fn set_port(&mut self, port: u16, link: PortLink) -> bool {
        let place = usize::from(port);
        if self.ports.len() <= place {
            self.ports.resize(place + 1, PortLink::default());
        }
        let before = std::mem::replace(&mut self.ports[place], link);
        if before.is_up != link.is_up {
            // Silent neighbors on the port are probed again.
            self.silent.retain(|(of, _)| *of != port);
        }
        before != link
    }

    /// The paths that packets now take, in order of the group, and the rest of the same tier.
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
        // A dead path still says which port its neighbor's packets arrive on. So does one whose check fails: answers
        // to the check arrive there, and would not pass a reverse path check otherwise.
        let glean = |path: Path| path.port().map(|port| Adjacency::Glean { port });
        let checked = group.paths().filter(|path| self.fails_check(*path) && !standby.contains(path));
        let standby: Vec<_> = standby.iter().copied().chain(checked).collect();
        PathSet {
            active: active.into_iter().map(|path| self.path(path)).collect(),
            standby: standby.into_iter().filter_map(glean).collect(),
        }
    }

    fn fails_check(&self, path: Path) -> bool {
        matches!(path, Path::Neighbor { port, address } if self.failed.contains(&(port, address)))
    }

    pub(super) fn has_link(&self, path: Path) -> bool {
        path.port().is_none_or(|port| self.ports.get(usize::from(port)).is_some_and(|link| link.is_up))
    }

    /// Whether packets can use a path now.
    pub(super) fn is_usable(&self, path: Path) -> bool {
        match path {
            Path::Neighbor { .. } => {
                matches!(self.path(path), Adjacency::Forward { .. }) && !self.fails_check(path)
            }
            Path::Glean { .. } => self.has_link(path),
            Path::Local { .. } | Path::Drop(_) => true,
        }
    }

    /// Whether a path is known to be dead: its link is down, or its neighbor was probed and is silent, or fails its
    /// health check. A neighbor that was not probed yet is not dead.
    pub(super) fn is_dead(&self, port: u16, neighbor: Option<IpAddr>) -> bool {
        let is_silent = neighbor.is_some_and(|address| {
            let has_mac =
                self.ports.get(usize::from(port)).is_some_and(|link| link.destination(None).is_some());
            self.silent.contains(&(port, address)) && !has_mac || self.failed.contains(&(port, address))
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
        match link.destination(mac) {
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
        RouteTarget::Routes => vec![Path::Drop(DropReason::NoRoute)],
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
