//! The forwarding tables of a live router.
//!
//! ```text
//! number        meaning
//! 0             no route
//! 1..=targets   targets of configured routes: the router itself, one or several gateways, a network, a discard
//! ..            one neighbor each, assigned as neighbors are resolved (at most NEIGHBORS_MAX), and targets of routes
//!               that a reload adds
//! ..0x7fff      next hops of BGP routes, assigned by the outlet
//! ```
//!
//! A connected network leads to a *glean*: its packets leave the fast path as `neighbor-unresolved`, the host
//! thread resolves the neighbor, and from then on a host route in front of the network leads to it. Gateways are
//! looked up by address whenever the next hops are published, so a neighbor that appears, moves or goes changes
//! every route through it at once, configured or BGP.
//!
//! A path whose port is down or whose neighbor is unknown carries no packets while its route has another: an equal
//! path, a route with a higher metric, or the backup of BGP's best path (`neighbors.rs`, and the text of
//! [`crate::fib`]). The switch is one write for each number, however many prefixes have it. Without another path,
//! packets leave as `transmit-failed` (the port is down) or `neighbor-unresolved`. The network of a port that is
//! down is not in the table at all (`networks.rs`).

mod neighbors;
mod networks;
mod others;
mod reload;

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use thalweg_base::{DropReason, IpPrefix, Prefix};
use thalweg_dataplane::lpm::{NEXT_HOP_MAX, NextHopId};
use thalweg_dataplane::route::{NextHops, Router};
use thalweg_wire::MacAddr;

use crate::BuildError;
use crate::fib::{BaseRoutes, DEFAULTS, FibTables, HopNumber, Install, RouteInstaller, Way};
use thalweg_config::RouterConfig;

pub use neighbors::PortLink;
use neighbors::{Group, Path};
pub use others::{OtherWay, OtherWays};
pub use reload::{RouteChange, RouteCounts, RouteDifference};

use neighbors::Neighbors;
use networks::Networks;
use others::Others;

/// The most neighbors that can have a host route.
pub const NEIGHBORS_MAX: u16 = 8192;

/// The most gateways remembered as silent.
const SILENT_MAX: usize = 2048;

/// Numbers reserved for targets that a reload adds.
const TARGETS_RESERVED: u16 = 2048;

/// The look-up tables, and the ports, neighbors and routes from which they are made.
#[derive(Debug)]
pub struct LiveTables {
    tables: FibTables,
    neighbors: Arc<Mutex<Neighbors>>,
    /// Indexed by number, starting at 1.
    groups: Vec<Group>,
    /// Numbers of the configuration's targets, in its order.
    targets: Vec<NextHopId>,
    /// The number of network and broadcast addresses, which no host has.
    nobody: NextHopId,
    /// Groups with a path to a neighbor, except the neighbor's own group.
    users: HashMap<(u16, IpAddr), Vec<NextHopId>>,
    hosts: HashMap<(u16, IpAddr), NextHopId>,
    /// Configured routes to single addresses, and the neighbors' host routes.
    configured_hosts: HashMap<IpAddr, NextHopId>,
    neighbor_hosts: HashMap<IpAddr, NextHopId>,
    /// Those of configured routes that are a virtual router's at present.
    virtual_hosts: HashSet<IpAddr>,
    /// Routes of other programs.
    others: Others,
    networks: Networks,
    free: Vec<NextHopId>,
    last: NextHopId,
    /// Grows when a neighbor comes, goes or changes its MAC address.
    neighbor_changes: u64,
    /// Grows when a path dies or comes back.
    life_changes: u64,
}

impl LiveTables {
    /// Builds the tables of a configuration. Errors if they cannot hold its routes.
    pub fn new(config: &RouterConfig) -> Result<Self, BuildError> {
        let limit = usize::from(NEXT_HOP_MAX - NEIGHBORS_MAX - TARGETS_RESERVED) / 2;
        if config.routing.targets.len() >= limit {
            return Err(BuildError::TooManyNextHops { limit });
        }
        let ports = config.ports.iter().map(|port| PortLink {
            mac: port.mac,
            mtu: port.mtu.into(),
            default_mac: port.default_mac,
            far_end: None,
            is_up: true,
        });
        let (macs, silent, failed) = (HashMap::new(), HashSet::new(), HashSet::new());
        let neighbors = Neighbors { ports: ports.collect(), macs, silent, failed };
        let mut groups: Vec<Group> = config.routing.targets.iter().map(Group::of_target).collect();
        let nobody = (groups.len() + 1) as NextHopId;
        groups.push(Group::of(vec![Path::Drop(DropReason::NotUnicast)]));
        let id = |target: &u32| (target + 1) as NextHopId;
        let v4 = config.routing.v4.iter().filter_map(|(net, target)| Some((prefix_of_v4(net)?, id(target))));
        let v6 = config.routing.v6.iter().filter_map(|(net, target)| {
            Some((Prefix::new(u128::from(net.network()), net.prefix_len()).ok()?, id(target)))
        });
        let mut v4: Vec<(Prefix<u32>, NextHopId)> = v4.collect();
        let taken: std::collections::HashSet<_> = v4.iter().map(|(prefix, _)| *prefix).collect();
        let empty = unused_addresses(config).filter(|prefix| !taken.contains(prefix));
        v4.extend(empty.map(|prefix| (prefix, nobody)));
        let neighbors = Arc::new(Mutex::new(neighbors));
        let adjacencies = groups.iter().map(|group| neighbors.lock().group(group)).collect();
        let v6: Vec<(Prefix<u128>, NextHopId)> = v6.collect();
        let all4 = v4.iter().map(|(prefix, number)| (IpPrefix::V4(*prefix), *number));
        let all6 = v6.iter().map(|(prefix, number)| (IpPrefix::V6(*prefix), *number));
        let all = all4.chain(all6);
        let networks = Networks::among(all.clone(), |number| groups.get(usize::from(number) - 1));
        let single = all.map(|(prefix, number)| (prefix, prefix.address(), number));
        let configured_hosts = single
            .filter(|(prefix, address, _)| *prefix == IpPrefix::host(*address))
            .map(|(_, address, number)| (address, number))
            .collect();
        let reserved = NEIGHBORS_MAX + TARGETS_RESERVED;
        let base = BaseRoutes { v4, v6, groups: adjacencies, reserved };
        let of = Arc::clone(&neighbors);
        let mut tables = FibTables::new(base, Box::new(move |way| of.lock().way(way)))
            .map_err(|error| BuildError::Routes(error.to_string()))?;
        (0u16..).zip(&config.ports).for_each(|(index, port)| tables.set_mtu(index, port.mtu.into()));
        tables.finish();
        let last = groups.len() as NextHopId + reserved;
        let mut live = Self {
            tables,
            neighbors,
            targets: (1..nobody).collect(),
            nobody,
            users: users_of(&groups),
            groups,
            hosts: HashMap::new(),
            configured_hosts,
            neighbor_hosts: HashMap::new(),
            virtual_hosts: HashSet::new(),
            others: Others::default(),
            networks,
            free: Vec::new(),
            last,
            neighbor_changes: 0,
            life_changes: 0,
        };
        for neighbor in &config.neighbors {
            live.resolved(neighbor.port, neighbor.address, neighbor.mac);
        }
        Ok(live)
    }

    /// The first number that an outlet may use.
    pub fn first_hop(&self) -> HopNumber {
        self.last + DEFAULTS as HopNumber + 1
    }

    /// The routing stage that reads these tables.
    pub fn router(&self) -> Router {
        Router {
            targets: self.targets.as_slice().into(),
            fib4: Arc::clone(self.tables.fib4()),
            fib6: Arc::clone(self.tables.fib6()),
            next_hops: self.tables.next_hops().clone(),
        }
    }

    /// The look-up tables, to read routes from.
    pub fn fib(&self) -> &FibTables {
        &self.tables
    }

    /// Sets a neighbor's MAC address. Returns `false` if there are too many neighbors: its packets then still leave
    /// the fast path.
    pub fn resolved(&mut self, port: u16, address: IpAddr, mac: MacAddr) -> bool {
        self.set_neighbors(&[((port, address), Some(mac))]) == 0
    }

    /// Removes a neighbor that stopped answering.
    pub fn lost(&mut self, port: u16, address: IpAddr) {
        self.set_neighbors(&[((port, address), None)]);
    }

    /// Applies news of neighbors in order: a MAC address, or `None` for a lost neighbor. All are published at once,
    /// at the cost of one. Returns how many found no room (see [`Self::resolved`]).
    pub fn set_neighbors(&mut self, news: &[((u16, IpAddr), Option<MacAddr>)]) -> usize {
        let (mut routes, mut freed, mut without_room) = (Vec::new(), Vec::new(), 0);
        for &(neighbor, mac) in news {
            let (port, address) = neighbor;
            let before = match mac {
                Some(mac) => self.neighbors.lock().macs.insert(neighbor, mac),
                None => self.neighbors.lock().macs.remove(&neighbor),
            };
            self.note_silent(neighbor, mac.is_none());
            match (mac, self.hosts.get(&neighbor).copied()) {
                (Some(_), Some(number)) => self.renew_group(number),
                (Some(_), None) => match self.number_of_neighbor() {
                    Some(number) => {
                        self.set_group(number, Group::of(vec![Path::Neighbor { port, address }]));
                        self.hosts.insert(neighbor, number);
                        self.neighbor_hosts.insert(address, number);
                        routes.push(address);
                    }
                    None => without_room += 1,
                },
                (None, Some(number)) => {
                    self.hosts.remove(&neighbor);
                    if self.neighbor_hosts.get(&address) == Some(&number) {
                        self.neighbor_hosts.remove(&address);
                        routes.push(address);
                    }
                    // The number stays in use until its prefix is gone.
                    freed.push(number);
                }
                (None, None) => {}
            }
            if before != mac {
                self.neighbor_changes += 1;
                for number in self.users.get(&neighbor).cloned().unwrap_or_default() {
                    self.renew_group(number);
                }
                self.tables.renew_way(Way::Neighbor { address, link: port.into() });
            }
        }
        for address in routes {
            without_room += usize::from(!self.update_host_route(address));
        }
        self.tables.finish();
        self.free.extend(freed);
        without_room
    }

    /// Notes whether a neighbor is silent.
    fn note_silent(&mut self, neighbor: (u16, IpAddr), is_silent: bool) {
        let differs = match is_silent {
            // Other neighbors are not probed again, and nothing depends on them.
            true => {
                let may = self.is_gateway(neighbor) && self.neighbors.lock().silent.len() < SILENT_MAX;
                may && self.neighbors.lock().silent.insert(neighbor)
            }
            false => self.neighbors.lock().silent.remove(&neighbor),
        };
        self.life_changes += u64::from(differs);
    }

    /// Sets whether a gateway fails its health check.
    pub fn set_check(&mut self, neighbor: (u16, IpAddr), has_failed: bool) {
        let changed = {
            let failed = &mut self.neighbors.lock().failed;
            if has_failed { failed.insert(neighbor) } else { failed.remove(&neighbor) }
        };
        if !changed {
            return;
        }
        self.life_changes += 1;
        for number in self.users.get(&neighbor).cloned().unwrap_or_default() {
            self.renew_group(number);
        }
        let (port, address) = neighbor;
        self.tables.avoid(Way::Neighbor { address, link: port.into() }, has_failed);
        self.tables.finish();
    }

    /// Sets whether an address of a virtual router leads to this router, which has the port. The router's own
    /// addresses always do.
    pub fn set_virtual(&mut self, port: u16, address: IpAddr, is_ours: bool) {
        let local = Group::of(vec![Path::Local { port }]);
        let mut numbers = (1..).zip(&self.groups).filter(|(_, group)| **group == local);
        let Some((number, _)) = numbers.next() else { return };
        match (self.configured_hosts.get(&address), is_ours) {
            (None, true) => _ = self.configured_hosts.insert(address, number),
            (Some(known), false) if self.virtual_hosts.contains(&address) && *known == number => {
                self.configured_hosts.remove(&address);
            }
            _ => return,
        }
        if is_ours {
            self.virtual_hosts.insert(address);
        } else {
            self.virtual_hosts.remove(&address);
        }
        self.update_host_route(address);
        self.tables.finish();
    }

    fn is_gateway(&self, (port, address): (u16, IpAddr)) -> bool {
        let way = Way::Neighbor { address, link: port.into() };
        self.users.contains_key(&(port, address)) || self.tables.leads(way)
    }

    /// Changes whenever [`Self::is_dead`] may answer differently.
    pub fn life_changes(&self) -> u64 {
        self.life_changes
    }

    /// Whether a path is known to be dead: its link is down, or its neighbor was probed and does not answer.
    pub fn is_dead(&self, port: u16, neighbor: Option<IpAddr>) -> bool {
        self.neighbors.lock().is_dead(port, neighbor)
    }

    /// Neighbors that were probed and do not answer, and gateways that fail their health check.
    pub fn silent(&self) -> Vec<(u16, IpAddr)> {
        let neighbors = self.neighbors.lock();
        neighbors.silent.union(&neighbors.failed).copied().collect()
    }

    /// Neighbors with a known MAC address, in no order.
    pub fn neighbors(&self) -> Vec<((u16, IpAddr), MacAddr)> {
        self.neighbors.lock().macs.iter().map(|(neighbor, mac)| (*neighbor, *mac)).collect()
    }

    /// Changes whenever [`Self::neighbors`] changes.
    pub fn neighbor_changes(&self) -> u64 {
        self.neighbor_changes
    }

    /// Updates or adds a port. A removed port is one that stays down.
    pub fn set_port(&mut self, port: u16, link: PortLink) {
        let changed = self.neighbors.lock().set_port(port, link);
        if changed {
            self.life_changes += 1;
            self.tables.set_mtu(port, link.mtu);
            self.renew_groups();
            self.update_networks();
        }
    }

    /// A version that grows with every change to forwarding except those of BGP's routes.
    pub fn changes(&self) -> u64 {
        self.tables.changes()
    }

    /// A version that grows with every change of BGP's routes.
    pub fn route_changes(&self) -> u64 {
        self.tables.route_changes()
    }

    /// The link of a port; `None` for an unknown port.
    pub fn port(&self, port: u16) -> Option<PortLink> {
        self.neighbors.lock().ports.get(usize::from(port)).copied()
    }

    /// The neighbor for which a packet waits that matched this number.
    pub fn next_of(&self, number: u32, flow_hash: u32, destination: IpAddr) -> Option<(u16, IpAddr)> {
        let number = self.tables.plain(u16::try_from(number).ok()?);
        if let Some(Way::Neighbor { address, link }) = self.tables.way(number) {
            return Some((u16::try_from(link).ok()?, address));
        }
        let (paths, _) = self.neighbors.lock().in_use(self.groups.get(usize::from(number.checked_sub(1)?))?);
        match *paths.get(NextHops::member_of(paths.len(), flow_hash))? {
            Path::Neighbor { port, address } => Some((port, address)),
            Path::Glean { port } => Some((port, destination)),
            Path::Local { .. } | Path::Drop(_) => None,
        }
    }

    /// The paths of packets that match this number: port, neighbor (`None` if it is the unknown destination
    /// itself), and the neighbor's MAC address if known.
    pub fn ways_of(
        &self,
        number: HopNumber,
        destination: Option<IpAddr>,
    ) -> Vec<(u16, Option<IpAddr>, Option<MacAddr>)> {
        let way = |port: u16, address: Option<IpAddr>| {
            let mac = address.and_then(|address| self.neighbors.lock().macs.get(&(port, address)).copied());
            (port, address, mac)
        };
        if let Some(Way::Neighbor { address, link }) = self.tables.way(number) {
            return u16::try_from(link).map(|port| way(port, Some(address))).into_iter().collect();
        }
        let group = number.checked_sub(1).and_then(|index| self.groups.get(usize::from(index)));
        let paths = group.map(|group| self.neighbors.lock().in_use(group).0).unwrap_or_default();
        let path = |path: Path| match path {
            Path::Neighbor { port, address } => Some(way(port, Some(address))),
            Path::Glean { port } => Some(way(port, destination)),
            Path::Local { port } => Some((port, None, None)),
            Path::Drop(_) => None,
        };
        paths.into_iter().filter_map(path).collect()
    }

    /// The source of a number's route: `connected` (networks, the router's own addresses, neighbors), `configured`,
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
        match index.and_then(|index| self.groups.get(index)?.paths().next()) {
            Some(Path::Glean { .. } | Path::Local { .. }) => "connected",
            Some(Path::Neighbor { port, address }) if self.hosts.get(&(port, address)) == Some(&number) => {
                "connected"
            }
            _ => "configured",
        }
    }

    /// What happens to packets that match this number of a configured route.
    pub fn ending_of(&self, number: HopNumber) -> &'static str {
        let group = number.checked_sub(1).and_then(|index| self.groups.get(usize::from(index)));
        match group.and_then(|group| self.neighbors.lock().in_use(group).0.into_iter().next()) {
            Some(Path::Drop(reason)) => reason.name(),
            Some(Path::Local { .. }) => DropReason::Local.name(),
            Some(Path::Neighbor { .. } | Path::Glean { .. }) => "forward",
            None => DropReason::NoRoute.name(),
        }
    }

    /// Gateways to resolve before a packet needs them, silent ones included. BGP avoids paths through silent
    /// gateways, so no packet would ever find out that they are back.
    pub fn gateways(&self) -> Vec<(u16, IpAddr)> {
        let configured = self.users.keys().copied();
        let learned = self.tables.ways().filter_map(|way| match way {
            Way::Neighbor { address, link } => Some((u16::try_from(link).ok()?, address)),
            Way::Discard => None,
        });
        let mut all: Vec<_> = configured.chain(learned).chain(self.silent()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A number for a neighbor, if there are not too many of them.
    fn number_of_neighbor(&mut self) -> Option<NextHopId> {
        if self.hosts.len() < usize::from(NEIGHBORS_MAX) { self.number() } else { None }
    }

    fn number(&mut self) -> Option<NextHopId> {
        let fresh = self.groups.len() as NextHopId + 1;
        self.free.pop().or_else(|| (fresh <= self.last).then_some(fresh))
    }

    fn set_group(&mut self, number: NextHopId, group: Group) {
        let index = usize::from(number) - 1;
        if self.groups.len() <= index {
            self.groups.resize(index + 1, Group::default());
        }
        self.groups[index] = group;
        self.renew_group(number);
    }

    /// Publishes the group's present paths under its number.
    fn renew_group(&mut self, number: NextHopId) {
        let Some(group) = self.groups.get(usize::from(number) - 1) else { return };
        let paths = self.neighbors.lock().group(group);
        self.tables.set_base_group(number, paths);
    }

    /// Takes a number for a group of paths.
    fn take_number(&mut self, group: Group) -> Option<NextHopId> {
        let number = self.number()?;
        for neighbor in group.neighbors() {
            self.users.entry(neighbor).or_default().push(number);
        }
        self.set_group(number, group);
        Some(number)
    }

    /// Gives back a number that no route uses.
    fn give_back(&mut self, number: NextHopId) {
        let index = usize::from(number) - 1;
        let group = self.groups.get_mut(index).map(std::mem::take).unwrap_or_default();
        for neighbor in group.neighbors() {
            let Some(numbers) = self.users.get_mut(&neighbor) else { continue };
            numbers.retain(|each| *each != number);
            if numbers.is_empty() {
                self.users.remove(&neighbor);
            }
        }
        self.free.push(number);
    }

    fn base_route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        self.tables.base_route(prefix)
    }

    fn set_base(&mut self, prefix: IpPrefix, number: Option<NextHopId>) -> bool {
        self.tables.set_base_route(prefix, number)
    }

    fn publish(&mut self) {
        self.tables.finish();
    }

    /// Publishes the present paths of all groups.
    fn renew_groups(&mut self) {
        let neighbors = self.neighbors.lock();
        let groups: Vec<_> = self.groups.iter().map(|group| neighbors.group(group)).collect();
        drop(neighbors);
        for (number, group) in (1..).zip(groups) {
            self.tables.set_base_group(number, group);
        }
        self.tables.renew();
    }
}

impl RouteInstaller for LiveTables {
    fn moves_prefixes(&self) -> bool {
        self.tables.moves_prefixes()
    }

    fn set_hop(&mut self, hop: HopNumber, way: Way, backup: Option<Way>) {
        self.tables.set_hop(hop, way, backup);
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

fn prefix_of_v4(net: &ipnet::Ipv4Net) -> Option<Prefix<u32>> {
    Prefix::new(u32::from(net.network()), net.prefix_len()).ok()
}

/// Network and broadcast addresses of connected IPv4 networks, which no host has (RFC 2644; RFC 3021: a /31 has
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

/// The groups with a path to each neighbor.
fn users_of(groups: &[Group]) -> HashMap<(u16, IpAddr), Vec<NextHopId>> {
    let mut users: HashMap<_, Vec<NextHopId>> = HashMap::new();
    for (number, group) in (1..).zip(groups) {
        for neighbor in group.neighbors() {
            users.entry(neighbor).or_default().push(number);
        }
    }
    users
}

#[cfg(test)]
mod tests;
