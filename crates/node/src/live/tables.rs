//! The forwarding tables of a live router.
//!
//! ```text
//! number        what it stands for
//! 0             no route
//! 1..=targets   targets of configured routes: the router itself, a gateway or several, a network, a discard
//! ..            a neighbour each, given out as neighbours are resolved (at most NEIGHBOURS_MAX), and targets of routes
//!               that a reload brings
//! ..0x7fff      next hops of BGP routes, given out by the outlet
//! ```
//!
//! A network that is connected leads to a *glean*: its packets leave the fast path as `neighbour-unresolved`, somebody
//! resolves the neighbour, and from then on a host route in front of the network leads to it. What a gateway stands
//! for is looked up by its address whenever a table of next hops is published, so a neighbour that appears, moves or
//! goes turns every route that leads to it at once, whether it is configured or comes from BGP.
//!
//! A port that is down takes its neighbours out of the tables; their packets then leave as `transmit-failed`.

mod reload;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use thalweg_base::{DropReason, IpPrefix, Prefix};
use thalweg_dataplane::lpm::{NEXT_HOP_MAX, NextHopId};
use thalweg_dataplane::route::{Adjacency, NextHops, Router};

use super::others::Others;
use crate::BuildError;
use crate::config::{MacAddress, RouteTarget, RouterConfig};
use crate::fib::{BaseRoutes, DEFAULTS, FibTables, HopNumber, Install, RouteInstaller, Way};

pub use reload::{RouteChange, RouteCounts, RouteDifference};

/// Neighbours that have a host route at most.
pub const NEIGHBOURS_MAX: u16 = 8192;

/// Numbers kept for targets of routes that another configuration brings.
const TARGETS_RESERVED: u16 = 2048;

/// What sending needs to know of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLink {
    /// The port's own MAC address.
    pub mac: MacAddress,
    /// Largest IP packet that may leave.
    pub mtu: u32,
    /// Where frames to stations that are not known go.
    pub default_mac: Option<MacAddress>,
    /// Whether anything can be sent.
    pub is_up: bool,
}

/// One way of a configured route or of a neighbour's host route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// To a neighbour.
    Neighbour { port: u16, address: IpAddr },
    /// To whoever has the destination's address.
    Glean { port: u16 },
    /// To the router itself, which has the address on this port.
    Local { port: u16 },
    /// Nowhere.
    Drop(DropReason),
}

/// What is known of ports and stations; shared with the tables, which ask when they publish.
#[derive(Debug)]
struct Stations {
    ports: Vec<PortLink>,
    macs: HashMap<(u16, IpAddr), MacAddress>,
}

/// The tables and what they are made of.
#[derive(Debug)]
pub struct LiveTables {
    tables: FibTables,
    stations: Arc<Mutex<Stations>>,
    /// By number, from 1.
    groups: Vec<Vec<Path>>,
    /// Numbers of the configuration's targets, in its order.
    targets: Vec<NextHopId>,
    /// The number of addresses that are no host's.
    nobody: NextHopId,
    /// Groups with a path to a neighbour, but for the neighbour's own.
    users: HashMap<(u16, IpAddr), Vec<NextHopId>>,
    hosts: HashMap<(u16, IpAddr), NextHopId>,
    /// Configured routes to a single address, and those of stations that have one.
    configured_hosts: HashMap<IpAddr, NextHopId>,
    station_hosts: HashMap<IpAddr, NextHopId>,
    /// Routes of other programs.
    pub(super) others: Others,
    free: Vec<NextHopId>,
    last: NextHopId,
    /// Grows with every neighbour that comes, goes or has another MAC address.
    neighbour_changes: u64,
}

impl LiveTables {
    /// The tables of a configuration. Errors if they cannot hold its routes.
    pub fn new(config: &RouterConfig) -> Result<Self, BuildError> {
        let limit = usize::from(NEXT_HOP_MAX - NEIGHBOURS_MAX - TARGETS_RESERVED) / 2;
        if config.routing.targets.len() >= limit {
            return Err(BuildError::TooManyNextHops { limit });
        }
        let ports = config.ports.iter().map(|port| PortLink {
            mac: port.mac,
            mtu: port.mtu.into(),
            default_mac: port.default_mac,
            is_up: true,
        });
        let stations = Stations { ports: ports.collect(), macs: HashMap::new() };
        let mut groups: Vec<Vec<Path>> = config.routing.targets.iter().map(paths_of).collect();
        let nobody = (groups.len() + 1) as NextHopId;
        groups.push(vec![Path::Drop(DropReason::NotUnicast)]);
        let id = |target: &u32| (target + 1) as NextHopId;
        let v4 = config.routing.v4.iter().filter_map(|(net, target)| Some((prefix_of_v4(net)?, id(target))));
        let v6 = config.routing.v6.iter().filter_map(|(net, target)| {
            Some((Prefix::new(u128::from(net.network()), net.prefix_len()).ok()?, id(target)))
        });
        let mut v4: Vec<(Prefix<u32>, NextHopId)> = v4.collect();
        let taken: std::collections::HashSet<_> = v4.iter().map(|(prefix, _)| *prefix).collect();
        let empty = unused_addresses(config).filter(|prefix| !taken.contains(prefix));
        v4.extend(empty.map(|prefix| (prefix, nobody)));
        let stations = Arc::new(Mutex::new(stations));
        let adjacencies = groups.iter().map(|paths| lock(&stations).group(paths)).collect();
        let v6: Vec<(Prefix<u128>, NextHopId)> = v6.collect();
        let single4 = v4.iter().map(|(prefix, number)| (IpPrefix::V4(*prefix), *number));
        let single6 = v6.iter().map(|(prefix, number)| (IpPrefix::V6(*prefix), *number));
        let single = single4.chain(single6).map(|(prefix, number)| (prefix, prefix.address(), number));
        let configured_hosts = single
            .filter(|(prefix, address, _)| *prefix == host(*address))
            .map(|(_, address, number)| (address, number))
            .collect();
        let reserved = NEIGHBOURS_MAX + TARGETS_RESERVED;
        let base = BaseRoutes { v4, v6, groups: adjacencies, reserved };
        let of = Arc::clone(&stations);
        let tables = FibTables::new(base, Box::new(move |way| lock(&of).way(way)))
            .map_err(|error| BuildError::Routes(error.to_string()))?;
        let last = groups.len() as NextHopId + reserved;
        let mut live = Self {
            tables,
            stations,
            targets: (1..nobody).collect(),
            nobody,
            users: users_of(&groups),
            groups,
            hosts: HashMap::new(),
            configured_hosts,
            station_hosts: HashMap::new(),
            others: Others::default(),
            free: Vec::new(),
            last,
            neighbour_changes: 0,
        };
        for neighbour in &config.neighbours {
            live.resolved(neighbour.port, neighbour.address, neighbour.mac);
        }
        Ok(live)
    }

    /// The first number that an outlet may give away.
    pub fn first_hop(&self) -> HopNumber {
        self.last + DEFAULTS as HopNumber + 1
    }

    /// The routing stage that reads these tables.
    pub fn router(&self) -> Router {
        Router {
            fib4: Arc::clone(self.tables.fib4()),
            fib6: Arc::clone(self.tables.fib6()),
            next_hops: self.tables.next_hops().clone(),
        }
    }

    /// The tables themselves.
    pub fn fib(&self) -> &FibTables {
        &self.tables
    }

    /// A neighbour's MAC address is known, or is another one. `false` if there are too many neighbours: its packets
    /// then leave the fast path as before.
    pub fn resolved(&mut self, port: u16, address: IpAddr, mac: MacAddress) -> bool {
        self.set_neighbours(&[((port, address), Some(mac))]) == 0
    }

    /// A neighbour does not answer any more.
    pub fn lost(&mut self, port: u16, address: IpAddr) {
        self.set_neighbours(&[((port, address), None)]);
    }

    /// What was learned of neighbours, in order: their MAC addresses, or that they are lost. All of it is published at
    /// once, which costs as much as for one. How many found no room (see [`Self::resolved`]).
    pub fn set_neighbours(&mut self, news: &[((u16, IpAddr), Option<MacAddress>)]) -> usize {
        let (mut routes, mut freed, mut without_room) = (Vec::new(), Vec::new(), 0);
        for &(neighbour, mac) in news {
            let (port, address) = neighbour;
            let before = match mac {
                Some(mac) => self.lock().macs.insert(neighbour, mac),
                None => self.lock().macs.remove(&neighbour),
            };
            match (mac, self.hosts.get(&neighbour).copied()) {
                (Some(_), Some(number)) => self.renew_group(number),
                (Some(_), None) => match self.number_of_station() {
                    Some(number) => {
                        self.set_group(number, vec![Path::Neighbour { port, address }]);
                        self.hosts.insert(neighbour, number);
                        self.station_hosts.insert(address, number);
                        routes.push(address);
                    }
                    None => without_room += 1,
                },
                (None, Some(number)) => {
                    self.hosts.remove(&neighbour);
                    if self.station_hosts.get(&address) == Some(&number) {
                        self.station_hosts.remove(&address);
                        routes.push(address);
                    }
                    // Not given away before its prefix is gone.
                    freed.push(number);
                }
                (None, None) => {}
            }
            if before != mac {
                self.neighbour_changes += 1;
                for number in self.users.get(&neighbour).cloned().unwrap_or_default() {
                    self.renew_group(number);
                }
                self.tables.renew_way(Way::Neighbor { address, link: port.into() });
            }
        }
        for address in routes {
            without_room += usize::from(!self.settle(address));
        }
        self.tables.finish();
        self.free.extend(freed);
        without_room
    }

    /// Neighbours whose MAC addresses are known, in no order.
    pub fn neighbours(&self) -> Vec<((u16, IpAddr), MacAddress)> {
        self.lock().macs.iter().map(|(neighbour, mac)| (*neighbour, *mac)).collect()
    }

    /// Another number than before says that [`Self::neighbours`] are different.
    pub fn neighbour_changes(&self) -> u64 {
        self.neighbour_changes
    }

    /// A port changed.
    pub fn set_port(&mut self, port: u16, link: PortLink) {
        let changed = self.lock().set_port(port, link);
        if changed {
            self.renew_groups();
        }
    }

    /// Grows with every change of what becomes of packets, but for those of BGP's routes.
    pub fn changes(&self) -> u64 {
        self.tables.changes()
    }

    /// Grows with every change of BGP's routes.
    pub fn route_changes(&self) -> u64 {
        self.tables.route_changes()
    }

    /// What is known of a port.
    pub fn port(&self, port: u16) -> Option<PortLink> {
        self.lock().ports.get(usize::from(port)).copied()
    }

    /// Which neighbour a packet waits for that met this number.
    pub fn next_of(&self, number: u32, flow_hash: u32, destination: IpAddr) -> Option<(u16, IpAddr)> {
        let number = self.tables.plain(u16::try_from(number).ok()?);
        if let Some(Way::Neighbor { address, link }) = self.tables.way(number) {
            return Some((u16::try_from(link).ok()?, address));
        }
        let group = self.groups.get(usize::from(number.checked_sub(1)?))?;
        match group.get(NextHops::member_of(group.len(), flow_hash))? {
            Path::Neighbour { port, address } => Some((*port, *address)),
            Path::Glean { port } => Some((*port, destination)),
            Path::Local { .. } | Path::Drop(_) => None,
        }
    }

    /// Where packets may go that meet this number: port, neighbour (none where it is the destination itself, which is
    /// not said), and the neighbour's MAC address if it is known.
    pub fn ways_of(
        &self,
        number: HopNumber,
        destination: Option<IpAddr>,
    ) -> Vec<(u16, Option<IpAddr>, Option<MacAddress>)> {
        let way = |port: u16, address: Option<IpAddr>| {
            let mac = address.and_then(|address| self.lock().macs.get(&(port, address)).copied());
            (port, address, mac)
        };
        if let Some(Way::Neighbor { address, link }) = self.tables.way(number) {
            return u16::try_from(link).map(|port| way(port, Some(address))).into_iter().collect();
        }
        let group = number.checked_sub(1).and_then(|index| self.groups.get(usize::from(index)));
        let path = |path: &Path| match path {
            Path::Neighbour { port, address } => Some(way(*port, Some(*address))),
            Path::Glean { port } => Some(way(*port, destination)),
            Path::Local { port } => Some((*port, None, None)),
            Path::Drop(_) => None,
        };
        group.into_iter().flatten().filter_map(path).collect()
    }

    /// Where a number's route comes from: `connected` (networks, the router's own addresses, neighbours), `configured`,
    /// `kernel` or `bgp`.
    pub fn source_of(&self, number: HopNumber) -> &'static str {
        if self.tables.way(number).is_some() {
            return "bgp";
        }
        if self.others.has(number) {
            return "kernel";
        }
        if number == self.nobody {
            return "connected";
        }
        let index = number.checked_sub(1).map(usize::from);
        match index.and_then(|index| self.groups.get(index)?.first()) {
            Some(Path::Glean { .. } | Path::Local { .. }) => "connected",
            Some(Path::Neighbour { port, address })
                if self.hosts.get(&(*port, *address)) == Some(&number) =>
            {
                "connected"
            }
            _ => "configured",
        }
    }

    /// How packets end that meet this number of a configured route.
    pub fn ending_of(&self, number: HopNumber) -> &'static str {
        let group = number.checked_sub(1).and_then(|index| self.groups.get(usize::from(index)));
        match group.and_then(|paths| paths.first()) {
            Some(Path::Drop(reason)) => reason.name(),
            Some(Path::Local { .. }) => DropReason::Local.name(),
            Some(Path::Neighbour { .. } | Path::Glean { .. }) => "forward",
            None => DropReason::NoRoute.name(),
        }
    }

    /// Gateways of routes, which are worth being resolved before a packet wants them.
    pub fn gateways(&self) -> Vec<(u16, IpAddr)> {
        let configured = self.users.keys().copied();
        let learned = self.tables.ways().filter_map(|way| match way {
            Way::Neighbor { address, link } => Some((u16::try_from(link).ok()?, address)),
            Way::Discard => None,
        });
        let mut all: Vec<_> = configured.chain(learned).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A number for a neighbour, if there are not too many of them.
    fn number_of_station(&mut self) -> Option<NextHopId> {
        if self.hosts.len() < usize::from(NEIGHBOURS_MAX) { self.number() } else { None }
    }

    fn number(&mut self) -> Option<NextHopId> {
        let fresh = self.groups.len() as NextHopId + 1;
        self.free.pop().or_else(|| (fresh <= self.last).then_some(fresh))
    }

    fn set_group(&mut self, number: NextHopId, paths: Vec<Path>) {
        let index = usize::from(number) - 1;
        if self.groups.len() <= index {
            self.groups.resize(index + 1, Vec::new());
        }
        self.groups[index] = paths;
        self.renew_group(number);
    }

    /// Looks up again what a number means.
    fn renew_group(&mut self, number: NextHopId) {
        let Some(paths) = self.groups.get(usize::from(number) - 1) else { return };
        let group = lock(&self.stations).group(paths);
        self.tables.set_base_group(number, group);
    }

    /// A number for a route of others.
    pub(super) fn take_number(&mut self, paths: Vec<Path>) -> Option<NextHopId> {
        let number = self.number()?;
        for path in &paths {
            if let Path::Neighbour { port, address } = path {
                self.users.entry((*port, *address)).or_default().push(number);
            }
        }
        self.set_group(number, paths);
        Some(number)
    }

    /// Gives back a number that nothing leads to any more.
    pub(super) fn give_back(&mut self, number: NextHopId) {
        let index = usize::from(number) - 1;
        for path in self.groups.get_mut(index).map(std::mem::take).unwrap_or_default() {
            if let Path::Neighbour { port, address } = path
                && let Some(numbers) = self.users.get_mut(&(port, address))
            {
                numbers.retain(|each| *each != number);
                if numbers.is_empty() {
                    self.users.remove(&(port, address));
                }
            }
        }
        self.free.push(number);
    }

    pub(super) fn base_route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        self.tables.base_route(prefix)
    }

    pub(super) fn set_base(&mut self, prefix: IpPrefix, number: Option<NextHopId>) -> bool {
        self.tables.set_base_route(prefix, number)
    }

    pub(super) fn publish(&mut self) {
        self.tables.finish();
    }

    /// Looks up again what every number means.
    fn renew_groups(&mut self) {
        let stations = lock(&self.stations);
        let groups: Vec<_> = self.groups.iter().map(|paths| stations.group(paths)).collect();
        drop(stations);
        for (number, group) in (1..).zip(groups) {
            self.tables.set_base_group(number, group);
        }
        self.tables.renew();
    }

    fn lock(&self) -> MutexGuard<'_, Stations> {
        lock(&self.stations)
    }
}

impl RouteInstaller for LiveTables {
    fn moves_prefixes(&self) -> bool {
        self.tables.moves_prefixes()
    }

    fn set_hop(&mut self, hop: HopNumber, way: Way) {
        self.tables.set_hop(hop, way);
    }

    fn install_v4(&mut self, items: &[Install<u32>]) {
        self.tables.install_v4(items);
    }

    fn install_v6(&mut self, items: &[Install<u128>]) {
        self.tables.install_v6(items);
    }

    fn finish(&mut self) {
        self.tables.finish();
    }
}

impl Stations {
    fn set_port(&mut self, port: u16, link: PortLink) -> bool {
        match self.ports.get_mut(usize::from(port)) {
            Some(slot) => std::mem::replace(slot, link) != link,
            None => false,
        }
    }

    fn group(&self, paths: &[Path]) -> Vec<Adjacency> {
        paths.iter().map(|path| self.path(*path)).collect()
    }

    fn path(&self, path: Path) -> Adjacency {
        match path {
            Path::Drop(reason) => Adjacency::Drop(reason),
            Path::Local { port } => Adjacency::Local { port },
            Path::Glean { port } => self.frame(port, None),
            Path::Neighbour { port, address } => self.frame(port, self.macs.get(&(port, address)).copied()),
        }
    }

    fn way(&self, way: Way) -> Adjacency {
        match way {
            Way::Discard => Adjacency::Drop(DropReason::Blackhole),
            Way::Neighbor { address, link } => match u16::try_from(link) {
                Ok(port) => self.path(Path::Neighbour { port, address }),
                Err(_) => Adjacency::Drop(DropReason::NoRoute),
            },
        }
    }

    fn frame(&self, port: u16, mac: Option<MacAddress>) -> Adjacency {
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
            let path = |hop: &crate::config::NextHop| match hop.gateway {
                Some(address) => Path::Neighbour { port: hop.port, address },
                None => Path::Glean { port: hop.port },
            };
            hops.iter().map(path).collect()
        }
    }
}

fn prefix_of_v4(net: &ipnet::Ipv4Net) -> Option<Prefix<u32>> {
    Prefix::new(u32::from(net.network()), net.prefix_len()).ok()
}

/// Network and broadcast addresses of connected IPv4 networks, which are no host's (RFC 2644; RFC 3021: a /31 has
/// neither).
fn unused_addresses(config: &RouterConfig) -> impl Iterator<Item = Prefix<u32>> + '_ {
    config.ports.iter().flat_map(|port| &port.addresses).flat_map(|net| {
        let ends = match net {
            IpNet::V4(net) if net.prefix_len() <= 30 => vec![net.network(), net.broadcast()],
            _ => Vec::new(),
        };
        ends.into_iter().filter_map(|address| Prefix::new(u32::from(address), 32).ok())
    })
}

/// Which groups have a path to a neighbour.
fn users_of(groups: &[Vec<Path>]) -> HashMap<(u16, IpAddr), Vec<NextHopId>> {
    let mut users: HashMap<_, Vec<NextHopId>> = HashMap::new();
    for (number, paths) in (1..).zip(groups) {
        for path in paths {
            if let Path::Neighbour { port, address } = path {
                users.entry((*port, *address)).or_default().push(number);
            }
        }
    }
    users
}

/// A host route's prefix.
fn host(address: IpAddr) -> IpPrefix {
    match address {
        IpAddr::V4(address) => Prefix::new(u32::from(address), 32).map(IpPrefix::V4),
        IpAddr::V6(address) => Prefix::new(u128::from(address), 128).map(IpPrefix::V6),
    }
    .unwrap_or_else(|_| unreachable!("the length of all bits fits"))
}

fn lock(stations: &Mutex<Stations>) -> MutexGuard<'_, Stations> {
    stations.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
