//! The data plane's look-up tables as a place for routes.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::{Address, DropReason, IpPrefix, Prefix};
use thalweg_dataplane::lpm::{
    BinaryTrie, Fib4, Fib4Writer, Fib6, Fib6Writer, Lpm, LpmError, NextHopId, Table, Writer,
};
use thalweg_dataplane::route::{Adjacency, NextHops};

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
}

impl BaseRoutes {
    /// The first number that an outlet may give to its hops.
    pub fn first_hop(&self) -> HopNumber {
        (self.groups.len() + 1).min(usize::from(HopNumber::MAX)) as HopNumber
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
    /// By hop number, from the first.
    adjacencies: Vec<Adjacency>,
    next_hops: Arc<NextHops>,
    stale: bool,
    refused: u64,
}

struct Family<W, A> {
    writer: W,
    base: HashMap<Prefix<A>, NextHopId>,
}

impl FibTables {
    /// Tables with the base routes. An outlet that writes them begins its hop numbers with
    /// [`BaseRoutes::first_hop`].
    pub fn new(base: BaseRoutes, adjacency_of: AdjacencyOf) -> Result<Self, LpmError> {
        let v4 = Family {
            writer: Fib4Writer::from_routes(base.v4.iter().copied())?,
            base: base.v4.into_iter().collect(),
        };
        let v6 = Family {
            writer: Fib6Writer::from_routes(base.v6.iter().copied())?,
            base: base.v6.into_iter().collect(),
        };
        let mut tables = Self {
            v4,
            v6,
            base_groups: base.groups,
            adjacency_of,
            adjacencies: Vec::new(),
            next_hops: Arc::default(),
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

    /// What the numbers in the tables mean, as of the last finished batch. Readers that hold an older one must not
    /// look up in the tables any more.
    pub fn next_hops(&self) -> &Arc<NextHops> {
        &self.next_hops
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

/// Installs items and says how many the table refused.
fn install<T: Table>(family: &mut Family<Writer<T>, T::Address>, items: &[Install<T::Address>]) -> u64 {
    let mut refused = 0;
    for item in items {
        if !family.base.is_empty() && family.base.contains_key(&item.prefix) {
            continue;
        }
        let done = match item.hop {
            Some(hop) if family.writer.routes().get(item.prefix) == Some(hop) => Ok(None),
            Some(hop) => family.writer.insert(item.prefix, hop),
            None => family.writer.withdraw(item.prefix),
        };
        refused += u64::from(done.is_err());
    }
    refused
}

impl RouteInstaller for FibTables {
    fn moves_prefixes(&self) -> bool {
        true
    }

    fn set_hop(&mut self, hop: HopNumber, way: Way) {
        let Some(index) = usize::from(hop).checked_sub(self.base_groups.len() + 1) else { return };
        if self.adjacencies.len() <= index {
            self.adjacencies.resize(index + 1, Adjacency::Drop(DropReason::NoRoute));
        }
        self.adjacencies[index] = match way {
            Way::Discard => Adjacency::Drop(DropReason::Blackhole),
            neighbor => (self.adjacency_of)(neighbor),
        };
        self.stale = true;
    }

    fn install_v4(&mut self, items: &[Install<u32>]) {
        self.publish_hops();
        self.refused += install(&mut self.v4, items);
    }

    fn install_v6(&mut self, items: &[Install<u128>]) {
        self.publish_hops();
        self.refused += install(&mut self.v6, items);
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
        for adjacency in &self.adjacencies {
            hops.add(std::slice::from_ref(adjacency));
        }
        self.next_hops = Arc::new(hops);
    }
}
