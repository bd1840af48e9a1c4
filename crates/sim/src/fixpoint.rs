//! The routes of the whole Internet without sessions: the stable state, one prefix at a time.
//!
//! Each AS follows the rules of Gao and Rexford ("Stable Internet Routing without Global Coordination",
//! 2001). It prefers routes of customers to those of peers, and those to routes of providers. It tells
//! customers every route, but peers and providers only its own and those of customers. Of several routes of
//! one class it takes the shortest, and of several shortest ones that of the neighbor with the lowest AS
//! number. If no AS is its own indirect provider, there is exactly one state in which no AS wants another
//! route, and [`Solver::solve`] finds it.
//!
//! A [`Scenario`] has one origin or several (all but the first hijack the prefix), perhaps an AS that leaks
//! (it tells all neighbors the route that it got from a peer or provider), and ASes that check origins (ROV)
//! or paths (ASPA).
//!
//! This module shares no code with `thalweg-bgp`, because tests compare the two.

mod arrays;
mod guard;
#[cfg(test)]
mod naive;
mod solver;
mod state;
mod sweep;

pub use arrays::Engine;
pub use solver::{Class, Route, Solver, Summary};
pub use sweep::sweep;

use crate::chance::Random;
use crate::topology::AsGraph;

/// The origins, the leak and the ASes that validate. ASes are node numbers of the graph.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The first is legitimate; the others hijack its prefix.
    pub origins: Vec<usize>,
    /// The AS that tells all neighbors a route that it should tell customers only.
    pub leaker: Option<usize>,
    /// ASes that drop routes of a wrong origin (RFC 6811).
    pub rov: Deployment,
    /// ASes that publish their providers, and drop paths that contradict what others publish (ASPA).
    pub aspa: Deployment,
}

impl Scenario {
    /// One AS announces its own prefix, and nothing else happens.
    pub fn announced_by(origin: usize) -> Self {
        Self { origins: vec![origin], ..Self::default() }
    }
}

/// The ASes that take part in a scheme.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment(Vec<bool>);

impl Deployment {
    /// Each AS takes part with probability `share`. With the same seed, a larger share includes all ASes of a
    /// smaller one.
    pub fn share(graph: &AsGraph, share: f64, seed: u64) -> Self {
        let takes_part = |node| Random::of(seed, u64::from(graph.asn(node))).happens(share);
        if share > 0.0 { Self((0..graph.len()).map(takes_part).collect()) } else { Self::default() }
    }

    /// Exactly these nodes take part.
    pub fn nodes(nodes: impl IntoIterator<Item = usize>) -> Self {
        let mut all = Vec::new();
        for node in nodes {
            if all.len() <= node {
                all.resize(node + 1, false);
            }
            all[node] = true;
        }
        Self(all)
    }

    /// Whether a node takes part.
    pub fn has(&self, node: usize) -> bool {
        self.0.get(node).copied().unwrap_or(false)
    }

    /// Whether no node takes part.
    pub fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }
}
