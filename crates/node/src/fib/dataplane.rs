//! A route installer that writes the data plane's look-up tables.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::{Address, DropReason, IpPrefix, Prefix};
use thalweg_dataplane::lpm::{
    BinaryTrie, Fib4, Fib4Writer, Fib6, Fib6Writer, Lpm, LpmError, NextHopId, Table, Writer,
};
use thalweg_dataplane::route::{Adjacency, NextHops, SharedNextHops};
use thalweg_dataplane::vrf::{VRFS_MAX, table_of};

use thalweg_config::VrfIndex;

use super::hops::Way;
use super::table::HopNumber;
use super::{Install, RouteInstaller};

/// The paths behind a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSet {
    /// The paths that packets take.
    pub active: Vec<Adjacency>,
    /// Dead paths. Reverse path checks still accept packets from them.
    pub standby: Vec<Adjacency>,
}

impl From<Vec<Adjacency>> for PathSet {
    fn from(active: Vec<Adjacency>) -> Self {
        Self { active, standby: Vec::new() }
    }
}

/// A prefix and the table that has a route to it.
pub type Place = (VrfIndex, IpPrefix);

/// Routes of the main table from other sources than BGP, which win over BGP's for the same prefix: connected networks,
/// addresses, neighbors, configured routes.
#[derive(Clone, Debug, Default)]
pub struct BaseRoutes {
    /// IPv4 prefixes with the number of their group.
    pub v4: Vec<(Prefix<u32>, NextHopId)>,
    /// IPv6 prefixes with the number of their group.
    pub v6: Vec<(Prefix<u128>, NextHopId)>,
    /// The groups; the first has number 1.
    pub groups: Vec<PathSet>,
    /// Numbers reserved for later groups.
    pub reserved: u16,
}

impl BaseRoutes {
    /// The first hop number that an outlet may use.
    pub fn first_hop(&self) -> HopNumber {
        let before = self.groups.len() + usize::from(self.reserved) + DEFAULTS;
        (before + 1).min(usize::from(HopNumber::MAX)) as HopNumber
    }
}

/// Families, each with a default route.
const FAMILIES: usize = 2;

/// Numbers reserved for default routes, one for each table and family. A default route always has a number of its
/// own, by which a reverse path check that disregards default routes recognizes it.
pub const DEFAULTS: usize = FAMILIES * VRFS_MAX;

/// Turns a neighbor on a link into the bytes that the data plane writes before a packet.
pub type AdjacencyOf = Box<dyn Fn(Way) -> Adjacency + Send>;

/// The data plane's tables. An outlet writes the main one.
pub struct FibTables {
    /// By VRF; the main table is the first.
    tables: Vec<Families>,
    /// The last [`DEFAULTS`] are the slots of the default routes.
    base_groups: Vec<PathSet>,
    /// The plain numbers of the default routes' targets, by table and family.
    defaults: Vec<Option<NextHopId>>,
    adjacency_of: AdjacencyOf,
    /// The way and the backup of each hop number, starting after the base groups.
    ways: Vec<Option<(Way, Option<Way>)>>,
    /// The numbers that lead a way or have it as a backup.
    numbers: HashMap<Way, Vec<HopNumber>>,
    /// Ways that packets take only if there is no other.
    avoided: HashSet<Way>,
    /// The meanings of all numbers; `next_hops` publishes a copy to readers.
    hops: NextHops,
    next_hops: SharedNextHops,
    stale: bool,
    refused: u64,
    changes: u64,
    route_changes: u64,
}

/// Both families of a table.
struct Families {
    v4: Family<Fib4Writer, u32>,
    v6: Family<Fib6Writer, u128>,
}

struct Family<W, A> {
    writer: W,
    base: HashMap<Prefix<A>, NextHopId>,
    /// The outlet's hops for prefixes that a base route covers up: at most as many as there are base routes.
    hidden: HashMap<Prefix<A>, HopNumber>,
    /// The default route's number in the table.
    default_number: NextHopId,
    /// The targets of the default route; the base route wins.
    default_base: Option<NextHopId>,
    default_outlet: Option<HopNumber>,
}

impl FibTables {
    /// A main table with the base routes. An outlet that writes it must start its hop numbers at
    /// [`BaseRoutes::first_hop`].
    pub fn new(base: BaseRoutes, adjacency_of: AdjacencyOf) -> Result<Self, LpmError> {
        let mut base_groups = base.groups;
        base_groups.resize(base_groups.len() + usize::from(base.reserved) + DEFAULTS, PathSet::default());
        let first_default = first_default_of(&base_groups);
        let mut tables = Self {
            tables: vec![Families::new(base.v4, base.v6, first_default)?],
            hops: NextHops::new(),
            base_groups,
            defaults: vec![None; FAMILIES],
            adjacency_of,
            ways: Vec::new(),
            numbers: HashMap::new(),
            avoided: HashSet::new(),
            next_hops: SharedNextHops::default(),
            stale: true,
            refused: 0,
            changes: 0,
            route_changes: 0,
        };
        for number in 1..=tables.base_groups.len() as NextHopId {
            let nothing = [Adjacency::Drop(DropReason::NoRoute)];
            match number >= first_default {
                true => tables.hops.add_default(&nothing),
                false => tables.hops.add(&nothing),
            };
            tables.write_number(number);
        }
        tables.point_defaults();
        tables.finish();
        Ok(tables)
    }

    /// Makes empty tables, so that there are at least `count`.
    pub fn grow(&mut self, count: usize) -> Result<(), LpmError> {
        while self.tables.len() < count.min(VRFS_MAX) {
            let Some(last) = self.tables.last() else { return Ok(()) };
            let first = last.v6.default_number + 1;
            self.tables.push(Families::new(Vec::new(), Vec::new(), first)?);
            self.defaults.extend([None; FAMILIES]);
        }
        Ok(())
    }

    /// Translates the number of a default route to the number of its target; returns others unchanged.
    pub fn plain(&self, number: HopNumber) -> HopNumber {
        let of = number.checked_sub(first_default_of(&self.base_groups));
        let target = of.and_then(|of| self.defaults.get(usize::from(of)));
        target.map_or(number, |target| target.unwrap_or(0))
    }

    /// Makes the default routes' numbers mean what their present targets mean.
    fn point_defaults(&mut self) {
        let now = self.tables.iter().flat_map(|table| [table.v4.default_hop(), table.v6.default_hop()]);
        let now: Vec<_> = now.collect();
        let before = std::mem::replace(&mut self.defaults, now.clone());
        for (number, (before, now)) in (first_default_of(&self.base_groups)..).zip(before.iter().zip(now)) {
            if *before != now {
                let paths = now.map_or(PathSet::default(), |of| self.paths(of));
                self.set_meaning(number, &paths);
                self.stale = true;
            }
        }
    }

    /// The paths of a number, by base group or way.
    fn paths(&self, number: NextHopId) -> PathSet {
        match usize::from(number).checked_sub(1).and_then(|index| self.base_groups.get(index)) {
            Some(group) => group.clone(),
            None => match self.way(number) {
                Some(way) => PathSet::from(vec![self.adjacency(way)]),
                None => PathSet::default(),
            },
        }
    }

    fn adjacency(&self, way: Way) -> Adjacency {
        match way {
            Way::Discard => Adjacency::Drop(DropReason::Blackhole),
            neighbor => (self.adjacency_of)(neighbor),
        }
    }

    /// Whether a way works now: its neighbor is resolved, its link is up, and nobody advises against it.
    fn is_usable(&self, way: Way) -> bool {
        let leads_on =
            matches!(way, Way::Discard) || matches!(self.adjacency(way), Adjacency::Forward { .. });
        leads_on && !self.avoided.contains(&way)
    }

    fn set_meaning(&mut self, number: NextHopId, paths: &PathSet) {
        let nothing = [Adjacency::Drop(DropReason::NoRoute)];
        let active = if paths.active.is_empty() { &nothing[..] } else { &paths.active };
        self.hops.set(number, active, &paths.standby);
    }

    /// Updates the meaning of a number, and of a default route with that target.
    fn write_number(&mut self, number: NextHopId) {
        let paths = self.paths(number);
        while self.hops.len() <= usize::from(number) {
            if self.hops.add(&[Adjacency::Drop(DropReason::NoRoute)]).is_none() {
                return;
            }
        }
        self.set_meaning(number, &paths);
        let defaults = (first_default_of(&self.base_groups)..).zip(&self.defaults);
        let with_it: Vec<_> = defaults.filter(|(_, of)| **of == Some(number)).map(|(at, _)| at).collect();
        with_it.into_iter().for_each(|default| self.set_meaning(default, &paths));
        self.stale = true;
    }

    /// The main table of IPv4, for readers.
    pub fn fib4(&self) -> &Arc<Fib4> {
        self.tables[0].v4.writer.table()
    }

    /// The main table of IPv6, for readers.
    pub fn fib6(&self) -> &Arc<Fib6> {
        self.tables[0].v6.writer.table()
    }

    /// All tables, the main one first, for readers.
    pub fn all(&self) -> impl ExactSizeIterator<Item = (Arc<Fib4>, Arc<Fib6>)> + '_ {
        self.tables.iter().map(|of| (Arc::clone(of.v4.writer.table()), Arc::clone(of.v6.writer.table())))
    }

    fn table(&self, vrf: VrfIndex) -> Option<&Families> {
        self.tables.get(usize::from(vrf))
    }

    /// The meanings of the numbers in the tables, for readers.
    pub fn next_hops(&self) -> &SharedNextHops {
        &self.next_hops
    }

    /// Replaces the paths of a base group; other numbers are ignored.
    pub fn set_base_group(&mut self, number: NextHopId, paths: PathSet) {
        let slot = usize::from(number).checked_sub(1).and_then(|index| self.base_groups.get_mut(index));
        if let Some(group) = slot {
            *group = paths;
            self.write_number(number);
        }
    }

    /// Sets or removes a base route of a table; after a removal the outlet's route is in force again. Returns whether
    /// the table had room.
    pub fn set_base_route(&mut self, (vrf, prefix): Place, number: Option<NextHopId>) -> bool {
        self.changes += 1;
        let vrf = usize::from(vrf);
        if prefix.length() == 0 {
            match (prefix, self.tables.get_mut(vrf)) {
                (IpPrefix::V4(_), Some(table)) => table.v4.default_base = number,
                (IpPrefix::V6(_), Some(table)) => table.v6.default_base = number,
                (_, None) => {}
            }
            self.point_defaults();
        }
        self.publish_hops();
        let done = match (prefix, self.tables.get_mut(vrf)) {
            (IpPrefix::V4(prefix), Some(table)) => table.v4.set_base(prefix, number),
            (IpPrefix::V6(prefix), Some(table)) => table.v6.set_base(prefix, number),
            (_, None) => false,
        };
        self.refused += u64::from(!done);
        done
    }

    /// The number of a base route; `None` if the prefix has none.
    pub fn base_route(&self, (vrf, prefix): Place) -> Option<NextHopId> {
        match prefix {
            IpPrefix::V4(prefix) => self.table(vrf)?.v4.base_route(prefix),
            IpPrefix::V6(prefix) => self.table(vrf)?.v6.base_route(prefix),
        }
    }

    /// Where an outlet's number leads now: by its backup while the first way is dead. `None` for other numbers.
    pub fn way(&self, number: HopNumber) -> Option<Way> {
        let index = usize::from(number).checked_sub(self.base_groups.len() + 1)?;
        let (way, backup) = (*self.ways.get(index)?)?;
        let backup = backup.filter(|backup| !self.is_usable(way) && self.is_usable(*backup));
        Some(backup.unwrap_or(way))
    }

    /// All ways of the outlet's numbers, backups included.
    pub fn ways(&self) -> impl Iterator<Item = Way> + '_ {
        self.ways.iter().flatten().flat_map(|(way, backup)| std::iter::once(*way).chain(*backup))
    }

    /// Whether some number leads this way or has it as a backup.
    pub fn leads(&self, way: Way) -> bool {
        self.numbers.contains_key(&way)
    }

    /// A version that grows with every change except those of the outlet's routes.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A version that grows with every change of the outlet's routes: with a full table, all the time.
    pub fn route_changes(&self) -> u64 {
        self.route_changes
    }

    /// Recomputes the adjacencies of all outlet numbers and publishes them.
    pub fn renew(&mut self) {
        for number in (self.base_groups.len() + 1..).take(self.ways.len()) {
            self.write_number(number as HopNumber);
        }
        self.publish_hops();
    }

    /// Recomputes the adjacencies of the numbers with this way. The next prefix or
    /// [`Self::finish`](RouteInstaller::finish) publishes them.
    pub fn renew_way(&mut self, way: Way) {
        for number in self.numbers.get(&way).cloned().unwrap_or_default() {
            self.write_number(number);
        }
    }

    /// Sets whether packets leave a way as soon as there is a backup that works. Published as
    /// [`renew_way`](Self::renew_way) does.
    pub fn avoid(&mut self, way: Way, is_avoided: bool) {
        if is_avoided {
            self.avoided.insert(way);
        } else {
            self.avoided.remove(&way);
        }
        self.renew_way(way);
    }

    /// Routes in a table, base routes included, by family.
    pub fn routes(&self, vrf: VrfIndex) -> [usize; 2] {
        self.table(vrf).map_or([0; 2], |of| [of.v4.writer.routes().len(), of.v6.writer.routes().len()])
    }

    /// At most `most` routes of a table after `after`, each with its number: IPv4 first, then by address and length.
    pub fn routes_after(
        &self,
        vrf: VrfIndex,
        after: Option<IpPrefix>,
        most: usize,
    ) -> Vec<(IpPrefix, HopNumber)> {
        fn of<A: Address>(
            routes: &BinaryTrie<A>,
            after: Option<Prefix<A>>,
            most: usize,
        ) -> impl Iterator<Item = (IpPrefix, NextHopId)>
        where
            IpPrefix: From<Prefix<A>>,
        {
            routes.after(after, most).into_iter().map(|(prefix, number)| (IpPrefix::from(prefix), number))
        }
        let Some(Families { v4, v6 }) = self.table(vrf) else { return Vec::new() };
        let mut found: Vec<_> = match after {
            None => of(v4.writer.routes(), None, most).collect(),
            Some(IpPrefix::V4(prefix)) => of(v4.writer.routes(), Some(prefix), most).collect(),
            Some(IpPrefix::V6(_)) => Vec::new(),
        };
        let after = match after {
            Some(IpPrefix::V6(prefix)) => Some(prefix),
            _ => None,
        };
        found.extend(of(v6.writer.routes(), after, most - found.len()));
        found.into_iter().map(|(prefix, number)| (prefix, self.plain(number))).collect()
    }

    /// What a packet to the address would match in the table of its port: the number and the prefix, and whose they
    /// are, which is another VRF if that one's route leaks.
    pub fn lookup(&self, vrf: VrfIndex, address: IpAddr) -> (HopNumber, Option<IpPrefix>, VrfIndex) {
        let (number, prefix) = self.lookup_in(vrf, address);
        match table_of(number) {
            None => (number, prefix, vrf),
            Some(other) => match self.lookup_in(other, address) {
                (number, prefix) if table_of(number).is_none() => (number, prefix, other),
                _ => (0, None, other),
            },
        }
    }

    fn lookup_in(&self, vrf: VrfIndex, address: IpAddr) -> (HopNumber, Option<IpPrefix>) {
        fn longest<A: Address>(routes: &BinaryTrie<A>, address: A) -> Option<Prefix<A>> {
            let prefixes = (0..=A::BITS).rev().filter_map(|length| Prefix::new(address, length).ok());
            prefixes.into_iter().find(|prefix| routes.get(*prefix).is_some())
        }
        let Some(Families { v4, v6 }) = self.table(vrf) else { return (0, None) };
        match address {
            IpAddr::V4(address) => {
                let address = u32::from(address);
                let prefix = longest(v4.writer.routes(), address);
                (self.plain(v4.writer.table().lookup(address)), prefix.map(IpPrefix::from))
            }
            IpAddr::V6(address) => {
                let address = u128::from(address);
                let prefix = longest(v6.writer.routes(), address);
                (self.plain(v6.writer.table().lookup(address)), prefix.map(IpPrefix::from))
            }
        }
    }

    /// The longest prefix of a table that covers all of another, and its number.
    pub fn covering(&self, vrf: VrfIndex, prefix: IpPrefix) -> Option<(HopNumber, IpPrefix)> {
        fn longest<A: Address>(routes: &BinaryTrie<A>, prefix: Prefix<A>) -> Option<(NextHopId, Prefix<A>)> {
            let shorter =
                (0..=prefix.length()).rev().filter_map(|length| Prefix::new(prefix.address(), length).ok());
            shorter.into_iter().find_map(|prefix| Some((routes.get(prefix)?, prefix)))
        }
        let Families { v4, v6 } = self.table(vrf)?;
        let (number, prefix) = match prefix {
            IpPrefix::V4(prefix) => {
                longest(v4.writer.routes(), prefix).map(|(n, p)| (n, IpPrefix::from(p)))?
            }
            IpPrefix::V6(prefix) => {
                longest(v6.writer.routes(), prefix).map(|(n, p)| (n, IpPrefix::from(p)))?
            }
        };
        Some((self.plain(number), prefix))
    }

    /// Changes for which the tables had no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes of the tables and of the writers' own copies.
    pub fn memory_bytes(&self) -> usize {
        self.tables.iter().map(|of| of.v4.writer.memory_bytes() + of.v6.writer.memory_bytes()).sum()
    }
}

impl fmt::Debug for FibTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FibTables").field("routes", &self.routes(0)).finish_non_exhaustive()
    }
}

/// The number of the main table's first default route.
fn first_default_of(base_groups: &[PathSet]) -> NextHopId {
    (base_groups.len() + 1 - DEFAULTS) as NextHopId
}

impl Families {
    /// A table with these routes. Its default routes have the number `default` and the one that follows.
    fn new(
        v4: Vec<(Prefix<u32>, NextHopId)>,
        v6: Vec<(Prefix<u128>, NextHopId)>,
        default: NextHopId,
    ) -> Result<Self, LpmError> {
        let v4 = Family::new(v4, default, Fib4Writer::from_routes)?;
        Ok(Self { v4, v6: Family::new(v6, default + 1, Fib6Writer::from_routes)? })
    }
}

impl<T: Table> Family<Writer<T>, T::Address>
where
    T::Address: Address,
{
    fn new(
        mut routes: Vec<(Prefix<T::Address>, NextHopId)>,
        default_number: NextHopId,
        writer: impl FnOnce(Vec<(Prefix<T::Address>, NextHopId)>) -> Result<Writer<T>, LpmError>,
    ) -> Result<Self, LpmError> {
        let mut default_base = None;
        for (_, number) in routes.iter_mut().filter(|(prefix, _)| prefix.length() == 0) {
            default_base = Some(*number);
            *number = default_as(*number, default_number);
        }
        let base = routes.iter().copied().filter(|(prefix, _)| prefix.length() > 0).collect();
        let (hidden, writer) = (HashMap::new(), writer(routes)?);
        Ok(Self { writer, base, hidden, default_number, default_base, default_outlet: None })
    }

    /// The number that the default route's target has.
    fn default_hop(&self) -> Option<NextHopId> {
        self.default_base.or(self.default_outlet)
    }

    /// Records the target of a default route among these.
    fn aim_default(&mut self, items: &[Install<T::Address>]) {
        if let Some(item) = items.iter().rfind(|item| item.prefix.length() == 0) {
            self.default_outlet = item.hop;
        }
    }

    /// Installs items; returns how many the table refused.
    fn install(&mut self, items: &[Install<T::Address>]) -> u64 {
        let mut refused = 0;
        let mut changes = Vec::with_capacity(items.len());
        for item in items {
            if item.prefix.length() == 0 {
                refused += u64::from(!self.set_default(item.prefix));
                continue;
            }
            if !self.base.is_empty() && self.base.contains_key(&item.prefix) {
                match item.hop {
                    Some(hop) => self.hidden.insert(item.prefix, hop),
                    None => self.hidden.remove(&item.prefix),
                };
                continue;
            }
            changes.push((item.prefix, item.hop));
        }
        refused + self.writer.apply(&changes)
    }

    fn base_route(&self, prefix: Prefix<T::Address>) -> Option<NextHopId> {
        if prefix.length() == 0 { self.default_base } else { self.base.get(&prefix).copied() }
    }

    /// Installs or removes the default route according to its recorded targets.
    fn set_default(&mut self, everything: Prefix<T::Address>) -> bool {
        let number = self.default_hop().map(|of| default_as(of, self.default_number));
        self.set(everything, number)
    }

    fn set_base(&mut self, prefix: Prefix<T::Address>, number: Option<NextHopId>) -> bool {
        if prefix.length() == 0 {
            return self.set_default(prefix);
        }
        let outlets = self.writer.routes().get(prefix);
        match number {
            Some(number) => {
                if let (None, Some(hop)) = (self.base.insert(prefix, number), outlets) {
                    self.hidden.insert(prefix, hop);
                }
                self.set(prefix, Some(number))
            }
            None if self.base.remove(&prefix).is_some() => {
                let hidden = self.hidden.remove(&prefix);
                self.set(prefix, hidden)
            }
            None => true,
        }
    }

    /// Returns whether the table had room.
    fn set(&mut self, prefix: Prefix<T::Address>, number: Option<NextHopId>) -> bool {
        self.writer.apply(&[(prefix, number)]) == 0
    }
}

/// The number that a default route with this target has in its table. One that leaks is none of the table's own.
fn default_as(target: NextHopId, default_number: NextHopId) -> NextHopId {
    if table_of(target).is_some() { target } else { default_number }
}

impl RouteInstaller for FibTables {
    fn moves_prefixes(&self) -> bool {
        true
    }

    fn set_hop(&mut self, hop: HopNumber, way: Way, backup: Option<Way>) {
        let Some(index) = usize::from(hop).checked_sub(self.base_groups.len() + 1) else { return };
        if self.ways.len() <= index {
            self.ways.resize(index + 1, None);
        }
        let before = self.ways[index].replace((way, backup));
        for before in before.into_iter().flat_map(|(way, backup)| std::iter::once(way).chain(backup)) {
            let Some(numbers) = self.numbers.get_mut(&before) else { continue };
            numbers.retain(|number| *number != hop);
            if numbers.is_empty() {
                self.numbers.remove(&before);
            }
        }
        for way in std::iter::once(way).chain(backup) {
            self.numbers.entry(way).or_default().push(hop);
        }
        self.write_number(hop);
    }

    fn install_v4(&mut self, items: &[Install<u32>]) {
        self.route_changes += 1;
        self.tables[0].v4.aim_default(items);
        self.point_defaults();
        self.publish_hops();
        self.refused += self.tables[0].v4.install(items);
    }

    fn install_v6(&mut self, items: &[Install<u128>]) {
        self.route_changes += 1;
        self.tables[0].v6.aim_default(items);
        self.point_defaults();
        self.publish_hops();
        self.refused += self.tables[0].v6.install(items);
    }

    fn finish(&mut self) {
        self.publish_hops();
    }
}

impl FibTables {
    /// Sets the MTU of a port; [`Self::renew`] or [`Self::finish`] publishes it.
    pub fn set_mtu(&mut self, port: u16, mtu_bytes: u32) {
        self.hops.set_mtu(port, mtu_bytes);
        self.stale = true;
    }

    /// Must run before prefixes that use new meanings are written.
    fn publish_hops(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.changes += 1;
        self.next_hops.publish(self.hops.clone());
    }
}
