//! A graph of autonomous systems in flat arrays: 8 bytes a link and direction.
//!
//! Nodes are numbered in the order of their AS numbers, so that the lowest number is the lowest AS. A node's neighbors
//! stand together, providers first, then peers, then customers, each in order.

use std::collections::BTreeMap;

/// What a neighbor is to an AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// It is paid for transit.
    Provider,
    /// Both exchange their customers' routes.
    Peer,
    /// It pays for transit.
    Customer,
}

impl Relation {
    /// What the AS is to that neighbor.
    pub fn reversed(self) -> Self {
        match self {
            Self::Provider => Self::Customer,
            Self::Peer => Self::Peer,
            Self::Customer => Self::Provider,
        }
    }
}

/// A neighbor in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Its number in the graph.
    pub node: u32,
    /// What it is to the AS.
    pub relation: Relation,
}

/// What is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An AS is its own neighbor.
    #[error("AS {0} has a link to itself")]
    Itself(u32),
    /// Two ASes are linked twice, each time as something else.
    #[error("AS {0} and AS {1} are linked twice, as {2:?} and as {3:?}")]
    Contradiction(u32, u32, Relation, Relation),
    /// Customers of customers that are their own provider: no policy can make sense of it.
    #[error("each of these is a customer of the next, and the last of the first: AS {}", cycle_text(.0))]
    ProviderCycle(Vec<u32>),
    /// There are more ASes than numbers for them.
    #[error("{0} ASes are too many: at most 4 million")]
    TooMany(usize),
}

fn cycle_text(cycle: &[u32]) -> String {
    cycle.iter().map(u32::to_string).collect::<Vec<_>>().join(", AS ")
}

/// Collects links.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    /// By both AS numbers, the lower one first: what the second is to the first.
    links: BTreeMap<(u32, u32), Relation>,
}

impl GraphBuilder {
    /// Adds a link: `b` is `relation` to `a`. The same again changes nothing.
    pub fn link(&mut self, a: u32, b: u32, relation: Relation) -> Result<(), GraphError> {
        if a == b {
            return Err(GraphError::Itself(a));
        }
        let (key, relation) = if a < b { ((a, b), relation) } else { ((b, a), relation.reversed()) };
        match *self.links.entry(key).or_insert(relation) {
            known if known == relation => Ok(()),
            known => Err(GraphError::Contradiction(key.0, key.1, known, relation)),
        }
    }

    /// Whether two ASes are linked.
    pub fn is_linked(&self, a: u32, b: u32) -> bool {
        self.links.contains_key(&(a.min(b), a.max(b)))
    }

    /// The graph. Provider cycles are refused.
    pub fn build(&self) -> Result<AsGraph, GraphError> {
        const NODES_MAX: usize = 4_000_000;
        let mut asns: Vec<u32> = self.links.keys().flat_map(|(a, b)| [*a, *b]).collect();
        asns.sort_unstable();
        asns.dedup();
        if asns.len() > NODES_MAX {
            return Err(GraphError::TooMany(asns.len()));
        }
        let number = |asn: &u32| asns.binary_search(asn).unwrap_or_default() as u32;
        let mut all = Vec::with_capacity(2 * self.links.len());
        for ((a, b), relation) in &self.links {
            let (a, b) = (number(a), number(b));
            all.push((a, *relation, b));
            all.push((b, relation.reversed(), a));
        }
        all.sort_unstable();
        let mut starts = vec![[0; 3]; asns.len() + 1];
        let mut at = 0;
        for (node, start) in starts.iter_mut().enumerate() {
            for (slot, relation) in
                [Relation::Provider, Relation::Peer, Relation::Customer].into_iter().enumerate()
            {
                start[slot] = at as u32;
                while all.get(at).is_some_and(|link| link.0 as usize == node && link.1 == relation) {
                    at += 1;
                }
            }
        }
        let graph = AsGraph { asns, starts, neighbors: all.into_iter().map(|link| link.2).collect() };
        match graph.provider_cycle() {
            Some(cycle) => Err(GraphError::ProviderCycle(cycle)),
            None => Ok(graph),
        }
    }
}

/// A graph of autonomous systems without provider cycles.
#[derive(Clone, Debug)]
pub struct AsGraph {
    asns: Vec<u32>,
    /// Where the providers, peers and customers of each node begin.
    starts: Vec<[u32; 3]>,
    neighbors: Vec<u32>,
}

impl AsGraph {
    /// How many ASes there are.
    pub fn len(&self) -> usize {
        self.asns.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.asns.is_empty()
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.neighbors.len() / 2
    }

    /// The AS number of a node.
    pub fn asn(&self, node: usize) -> u32 {
        self.asns[node]
    }

    /// The node of an AS number.
    pub fn node(&self, asn: u32) -> Option<usize> {
        self.asns.binary_search(&asn).ok()
    }

    /// The neighbors that are something to a node, by number.
    pub fn those(&self, node: usize, relation: Relation) -> &[u32] {
        let [providers, peers, customers] = self.starts[node];
        let end = self.starts[node + 1][0];
        let (from, to) = match relation {
            Relation::Provider => (providers, peers),
            Relation::Peer => (peers, customers),
            Relation::Customer => (customers, end),
        };
        &self.neighbors[from as usize..to as usize]
    }

    /// All neighbors of a node.
    pub fn neighbors(&self, node: usize) -> impl Iterator<Item = Neighbor> + '_ {
        [Relation::Provider, Relation::Peer, Relation::Customer].into_iter().flat_map(move |relation| {
            self.those(node, relation).iter().map(move |node| Neighbor { node: *node, relation })
        })
    }

    /// How many neighbors a node has.
    pub fn degree(&self, node: usize) -> usize {
        (self.starts[node + 1][0] - self.starts[node][0]) as usize
    }

    /// The AS numbers of a circle of customers and providers, if there is one.
    fn provider_cycle(&self) -> Option<Vec<u32>> {
        // Take away those without customers until none is left.
        let mut customers: Vec<usize> =
            (0..self.len()).map(|node| self.those(node, Relation::Customer).len()).collect();
        let mut free: Vec<usize> = (0..self.len()).filter(|node| customers[*node] == 0).collect();
        let mut left = self.len();
        while let Some(node) = free.pop() {
            left -= 1;
            for &provider in self.those(node, Relation::Provider) {
                customers[provider as usize] -= 1;
                if customers[provider as usize] == 0 {
                    free.push(provider as usize);
                }
            }
        }
        if left == 0 {
            return None;
        }
        // Each that is left has a customer that is left: down that way, somebody comes twice.
        let mut way: Vec<usize> = (0..self.len()).find(|node| customers[*node] > 0).into_iter().collect();
        loop {
            let last = *way.last()?;
            let next =
                self.those(last, Relation::Customer).iter().find(|node| customers[**node as usize] > 0);
            let next = *next? as usize;
            if let Some(first) = way.iter().position(|node| *node == next) {
                return Some(way[first..].iter().rev().map(|node| self.asn(*node)).collect());
            }
            way.push(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(links: &[(u32, u32, Relation)]) -> Result<AsGraph, GraphError> {
        let mut builder = GraphBuilder::default();
        links.iter().try_for_each(|(a, b, relation)| builder.link(*a, *b, *relation))?;
        builder.build()
    }

    #[test]
    fn neighbors_stand_by_relation_and_number() {
        use Relation::{Customer, Peer, Provider};
        let graph =
            graph(&[(30, 10, Provider), (30, 20, Peer), (30, 50, Customer), (40, 30, Provider)]).unwrap();
        assert_eq!((graph.len(), graph.links()), (5, 4));
        let node = graph.node(30).unwrap();
        let asns = |relation| {
            graph.those(node, relation).iter().map(|node| graph.asn(*node as usize)).collect::<Vec<_>>()
        };
        assert_eq!((asns(Provider), asns(Peer), asns(Customer)), (vec![10], vec![20], vec![40, 50]));
        assert_eq!(
            graph.neighbors(graph.node(50).unwrap()).collect::<Vec<_>>(),
            [Neighbor { node: node as u32, relation: Provider }]
        );
        assert_eq!(graph.degree(node), 4);
        assert_eq!(graph.node(31), None);
    }

    #[test]
    fn contradictions_are_named() {
        use Relation::{Customer, Peer, Provider};
        assert_eq!(graph(&[(1, 1, Peer)]).unwrap_err(), GraphError::Itself(1));
        assert!(graph(&[(1, 2, Peer), (2, 1, Peer)]).is_ok());
        let twice = graph(&[(1, 2, Provider), (2, 1, Provider)]).unwrap_err();
        assert_eq!(twice, GraphError::Contradiction(1, 2, Provider, Customer));
        let cycle =
            graph(&[(1, 2, Provider), (2, 3, Provider), (3, 1, Provider), (3, 4, Provider)]).unwrap_err();
        let GraphError::ProviderCycle(mut asns) = cycle else { panic!("{cycle}") };
        // It may begin anywhere.
        while asns[0] != 1 {
            asns.rotate_left(1);
        }
        assert_eq!(asns, [1, 2, 3]);
    }
}
