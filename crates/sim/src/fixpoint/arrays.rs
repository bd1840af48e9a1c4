//! The graph in the order in which the solver reads it.
//!
//! A *rank* numbers the nodes so that each comes after its providers. One pass by rank then settles all
//! routes from providers: when the pass visits a node, its providers are done.

use crate::topology::{AsGraph, GraphError, Relation};

/// A graph prepared for [`Solver`](super::Solver).
#[derive(Clone, Debug)]
pub struct Engine {
    /// The node of each rank. Nodes are in the order of AS numbers, so comparing nodes compares these.
    pub(super) nodes: Vec<u32>,
    pub(super) ranks: Vec<u32>,
    pub(super) providers: Neighbors,
    pub(super) peers: Neighbors,
}

/// The neighbors of one relation of each rank, ascending by AS number.
#[derive(Clone, Debug)]
pub(super) struct Neighbors {
    offsets: Vec<u32>,
    ranks: Vec<u32>,
}

impl Neighbors {
    fn new(graph: &AsGraph, relation: Relation, nodes: &[u32], ranks: &[u32]) -> Self {
        let mut all = Self { offsets: vec![0], ranks: Vec::new() };
        for node in nodes {
            let neighbors = graph.neighbors(*node as usize, relation);
            all.ranks.extend(neighbors.iter().map(|neighbor| ranks[*neighbor as usize]));
            all.offsets.push(all.ranks.len() as u32);
        }
        all
    }

    pub(super) fn of(&self, rank: usize) -> &[u32] {
        &self.ranks[self.offsets[rank] as usize..self.offsets[rank + 1] as usize]
    }
}

impl Engine {
    /// Prepares a graph. Fails if providers form a circle, because such a graph need not have a stable state.
    pub fn new(graph: &AsGraph) -> Result<Self, GraphError> {
        let nodes = graph.providers_first()?;
        let mut ranks = vec![0; nodes.len()];
        for (rank, node) in nodes.iter().enumerate() {
            ranks[*node as usize] = rank as u32;
        }
        let providers = Neighbors::new(graph, Relation::Provider, &nodes, &ranks);
        let peers = Neighbors::new(graph, Relation::Peer, &nodes, &ranks);
        Ok(Self { nodes, ranks, providers, peers })
    }

    /// The number of ASes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no AS.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether rank `high` is a provider of rank `low`.
    pub(super) fn is_provider(&self, low: u32, high: u32) -> bool {
        let node = |rank: u32| self.nodes[rank as usize];
        let providers = self.providers.of(low as usize);
        providers.binary_search_by_key(&node(high), |provider| node(*provider)).is_ok()
    }
}
