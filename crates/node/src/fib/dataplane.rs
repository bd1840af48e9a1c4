//! The data plane's look-up tables as a place for routes.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::{Address, DropReason, IpPrefix, Prefix};
use thalweg_dataplane::lpm::{
    BinaryTrie, Fib4, Fib4Writer, Fib6, Fib6Writer, Lpm, LpmError, NextHopId, Table, Writer,
};
use thalweg_dataplane::route::{Adjacency, NextHops, SharedNextHops};

use super::hops::{HopNumber, Way};
use super::{Install, RouteInstaller};

/// Routes that are there without BGP and win over BGP's of the same prefix: connected networks, addresses,
/// neighbours, configured routes.
#[derive(Clone, Debug, Default)]
pub struct BaseRoutes {
    /// IPv4 prefixes and the number of their group.
    pub v4: Vec<(Prefix<u32>, NextHopId)>,
    /// IPv6 prefixes and the number of their group.
    pub v6: Vec<(Prefix<u128>, NextHopId)>,
    /// The groups; the first has number 1.
    pub groups: Vec<Vec<Adjacency>>,
    /// Numbers kept for groups that come later.
    pub reserved: u16,
}

impl BaseRoutes {
    /// The first number that an outlet may give to its hops.
    pub fn first_hop(&self) -> HopNumber {
        (self.groups.len() + usize::from(self.reserved) + 1).min(usize::from(HopNumber::MAX)) as HopNumber
    }
}

/// Turns a neighbour on a link into what the data plane writes before a packet.
pub type AdjacencyOf = Box<dyn Fn(Way) -> Adjacency + Send>;

/// The data plane's tables, written by an outlet.
pub struct FibTables {
    v4: Family<Fib4Writer, u32>,
    v6: Family<Fib6Writer, u128>,
    base_groups: Vec<Vec<Adjacency>>,
    adjacency_of: AdjacencyOf,
    /// By hop number, from the first after the base groups.
    ways: Vec<Option<Way>>,
    next_hops: SharedNextHops,
    stale: bool,
    refused: u64,
}

struct Family<W, A> {
    writer: W,
    base: HashMap<Prefix<A>, NextHopId>,
    /// What the outlet wanted where a base route is in front of it: no more than there are base routes.
    hidden: HashMap<Prefix<A>, HopNumber>,
}

impl FibTables {
    /// Tables with the base routes. An outlet that writes them begins its hop numbers with
    /// [`BaseRoutes::first_hop`].
    pub fn new(base: BaseRoutes, adjacency_of: AdjacencyOf) -> Result<Self, LpmError> {
        let v4 = Family {
            writer: Fib4Writer::from_routes(base.v4.iter().copied())?,
            base: base.v4.into_iter().collect(),
            hidden: HashMap::new(),
        };
        let v6 = Family {
            writer: Fib6Writer::from_routes(base.v6.iter().copied())?,
            base: base.v6.into_iter().collect(),
            hidden: HashMap::new(),
        };
        let mut base_groups = base.groups;
        base_groups.resize(base_groups.len() + usize::from(base.reserved), Vec::new());
        let mut tables = Self {
            v4,
            v6,
            base_groups,
            adjacency_of,
            ways: Vec::new(),
            next_hops: SharedNextHops::default(),
            stale: true,
            refused: 0,
        };
        tables.finish();
        Ok(tables)
    }

    /// The IPv4 table, for readers.
    pub fn fib4(&self) -> &Arc<Fib4> {
        self.v4.writer.table()
    }

    /// The IPv6 table, for readers.
    pub fn fib6(&self) -> &Arc<Fib6> {
        self.v6.writer.table()
    }

    /// What the numbers in the tables mean, for readers.
    pub fn next_hops(&self) -> &SharedNextHops {
        &self.next_hops
    }

    /// Says what a base group's number means from now on; nothing happens if the number is not one of theirs.
    pub fn set_base_group(&mut self, number: NextHopId, paths: Vec<Adjacency>) {
        let slot = usize::from(number).checked_sub(1).and_then(|index| self.base_groups.get_mut(index));
        if let Some(group) = slot {
            *group = paths;
            self.stale = true;
        }
    }

    /// Puts a base route in, or takes it out: what the outlet has for the prefix is in force again then. Whether the
    /// table had room.
    pub fn set_base_route(&mut self, prefix: IpPrefix, number: Option<NextHopId>) -> bool {
        self.publish_hops();
        let done = match prefix {
            IpPrefix::V4(prefix) => self.v4.set_base(prefix, number),
            IpPrefix::V6(prefix) => self.v6.set_base(prefix, number),
        };
        self.refused += u64::from(!done);
        done
    }

    /// Where an outlet's number leads; `None` for other numbers.
    pub fn way(&self, number: HopNumber) -> Option<Way> {
        let index = usize::from(number).checked_sub(self.base_groups.len() + 1)?;
        *self.ways.get(index)?
    }

    /// Where the outlet's numbers lead.
    pub fn ways(&self) -> impl Iterator<Item = Way> + '_ {
        self.ways.iter().flatten().copied()
    }

    /// Asks again how packets leave that go these ways.
    pub fn renew(&mut self) {
        self.stale = true;
        self.publish_hops();
    }

    /// Routes the tables hold, base routes included, by family.
    pub fn routes(&self) -> [usize; 2] {
        [self.v4.writer.routes().len(), self.v6.writer.routes().len()]
    }

    /// What a packet to the address would meet: the number the table gives, and the prefix it stands for.
    pub fn lookup(&self, address: IpAddr) -> (HopNumber, Option<IpPrefix>) {
        fn longest<A: Address>(routes: &BinaryTrie<A>, address: A) -> Option<Prefix<A>> {
            let prefixes = (0..=A::BITS).rev().filter_map(|length| Prefix::new(address, length).ok());
            prefixes.into_iter().find(|prefix| routes.get(*prefix).is_some())
        }
        match address {
            IpAddr::V4(address) => {
                let address = u32::from(address);
                let prefix = longest(self.v4.writer.routes(), address);
                (self.fib4().lookup(address), prefix.map(IpPrefix::from))
            }
            IpAddr::V6(address) => {
                let address = u128::from(address);
                let prefix = longest(self.v6.writer.routes(), address);
                (self.fib6().lookup(address), prefix.map(IpPrefix::from))
            }
        }
    }

    /// Changes that the tables had no room for.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes of the tables and of what the writer keeps beside them.
    pub fn memory_bytes(&self) -> usize {
        self.v4.writer.memory_bytes() + self.v6.writer.memory_bytes()
    }
}

impl fmt::Debug for FibTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FibTables").field("routes", &self.routes()).finish_non_exhaustive()
    }
}

impl<T: Table> Family<Writer<T>, T::Address>
where
    T::Address: Address,
{
    /// Installs items and says how many the table refused.
    fn install(&mut self, items: &[Install<T::Address>]) -> u64 {
        let mut refused = 0;
        for item in items {
            if !self.base.is_empty() && self.base.contains_key(&item.prefix) {
                match item.hop {
                    Some(hop) => self.hidden.insert(item.prefix, hop),
                    None => self.hidden.remove(&item.prefix),
                };
                continue;
            }
            refused += u64::from(!self.set(item.prefix, item.hop));
        }
        refused
    }

    fn set_base(&mut self, prefix: Prefix<T::Address>, number: Option<NextHopId>) -> bool {
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

    /// Whether the table had room.
    fn set(&mut self, prefix: Prefix<T::Address>, number: Option<NextHopId>) -> bool {
        let done = match number {
            Some(number) if self.writer.routes().get(prefix) == Some(number) => Ok(None),
            Some(number) => self.writer.insert(prefix, number),
            None => self.writer.withdraw(prefix),
        };
        done.is_ok()
    }
}

impl RouteInstaller for FibTables {
    fn moves_prefixes(&self) -> bool {
        true
    }

    fn set_hop(&mut self, hop: HopNumber, way: Way) {
        let Some(index) = usize::from(hop).checked_sub(self.base_groups.len() + 1) else { return };
        if self.ways.len() <= index {
            self.ways.resize(index + 1, None);
        }
        self.ways[index] = Some(way);
        self.stale = true;
    }

    fn install_v4(&mut self, items: &[Install<u32>]) {
        self.publish_hops();
        self.refused += self.v4.install(items);
    }

    fn install_v6(&mut self, items: &[Install<u128>]) {
        self.publish_hops();
        self.refused += self.v6.install(items);
    }

    fn finish(&mut self) {
        self.publish_hops();
    }
}

impl FibTables {
    /// New meanings come before the prefixes that use them.
    fn publish_hops(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut hops = NextHops::new();
        for group in &self.base_groups {
            if hops.add(group).is_none() {
                hops.add(&[Adjacency::Drop(DropReason::NoRoute)]);
            }
        }
        for way in &self.ways {
            hops.add(&[match way {
                Some(Way::Discard) => Adjacency::Drop(DropReason::Blackhole),
                Some(neighbor) => (self.adjacency_of)(*neighbor),
                None => Adjacency::Drop(DropReason::NoRoute),
            }]);
        }
        self.next_hops.publish(hops);
    }
}
