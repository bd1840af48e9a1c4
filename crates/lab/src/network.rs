//! `lab network`: simulated networks, by real sessions or by the second engine.
//!
//! [`sessions`] runs the shipped router in every AS of a graph, from a cold start through a load, and records what
//! chosen ASes receive. [`fixpoint`] computes the stable state on the graph of the whole Internet. Both take the
//! graph from a file of relationships or make one.

pub mod answers;
pub mod fixpoint;
pub mod interior;
mod packets;
pub mod processing;
pub mod render;
pub mod sessions;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use thalweg_sim::SimError;
use thalweg_sim::topology::{
    AsGraph, GraphError, Growth, Relation, TopologyError, grown, internet, read_brite, read_caida,
};

/// Why an experiment with a network has no results.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A file or folder cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    /// A file is not a graph.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The graph is inconsistent.
    #[error("the graph: {0}")]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// The network oscillates and cannot converge.
    #[error("oscillating: {0}")]
    Oscillating(String),
    /// The network did not converge in the time given.
    #[error("the network did not converge; {0} sessions are down")]
    Restless(usize),
    /// A requested AS is not in the graph.
    #[error("AS {asn} is not in the graph: it has {of} ASes, among them {few}")]
    NoSuchAs {
        asn: u32,
        of: usize,
        /// A few of the graph's ASes.
        few: String,
    },
}

/// Where the graph comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphSource {
    /// Generated to resemble the Internet, with this many ASes.
    Internet(usize),
    Grown(usize, Growth),
    /// CAIDA's AS relationships.
    Caida(PathBuf),
    /// A file of BRITE.
    Brite(PathBuf),
}

impl GraphSource {
    /// Reads or generates the graph, and describes it.
    pub fn graph(&self, seed: u64) -> Result<(AsGraph, GraphFacts), NetworkError> {
        let begun = Instant::now();
        let mut siblings = 0;
        let graph = match self {
            Self::Internet(ases) => internet(*ases, seed)?,
            Self::Grown(ases, growth) => grown(*growth, *ases, seed)?,
            Self::Caida(path) => {
                let file = read_caida(path)?;
                siblings = file.siblings;
                file.graph
            }
            Self::Brite(path) => read_brite(path)?,
        };
        let facts = GraphFacts::of(&graph, self.describe(), siblings, begun.elapsed().as_secs_f64());
        Ok((graph, facts))
    }

    /// In words.
    fn describe(&self) -> String {
        match self {
            Self::Internet(ases) => format!("{ases} ASes like the Internet"),
            Self::Grown(ases, Growth::Preferential { links }) => {
                format!("{ases} ASes, {links} links each to those with many")
            }
            Self::Grown(ases, Growth::Waxman { links, .. }) => {
                format!("{ases} ASes, {links} links each to those nearby")
            }
            Self::Grown(ases, Growth::Glp { links, .. }) => {
                format!("{ases} ASes, {links} links at a time (GLP)")
            }
            Self::Caida(path) | Self::Brite(path) => path.display().to_string(),
        }
    }
}

/// A graph's description.
#[derive(Clone, Debug, Serialize)]
pub struct GraphFacts {
    /// Where it comes from.
    pub source: String,
    pub ases: usize,
    pub links: usize,
    /// Links that are peerings; the rest is transit.
    pub peerings: usize,
    /// Links between siblings, counted as peerings.
    pub siblings: usize,
    /// Neighbors of an AS on average.
    pub mean_degree: f64,
    /// ASes by their number of neighbors.
    pub degrees: Vec<(usize, usize)>,
    /// Seconds to read or make it.
    pub load_s: f64,
}

impl GraphFacts {
    fn of(graph: &AsGraph, source: String, siblings: usize, load_s: f64) -> Self {
        let mut degrees = BTreeMap::new();
        for node in 0..graph.len() {
            *degrees.entry(graph.degree(node)).or_default() += 1;
        }
        let peers: usize = (0..graph.len()).map(|node| graph.neighbors(node, Relation::Peer).len()).sum();
        Self {
            source,
            ases: graph.len(),
            links: graph.links(),
            peerings: peers / 2,
            siblings,
            mean_degree: 2.0 * graph.links() as f64 / graph.len().max(1) as f64,
            degrees: degrees.into_iter().collect(),
            load_s,
        }
    }
}

/// The node of an AS.
fn node(graph: &AsGraph, asn: u32) -> Result<usize, NetworkError> {
    let few =
        || (0..graph.len().min(3)).map(|node| graph.asn(node).to_string()).collect::<Vec<_>>().join(", ");
    graph.node(asn).ok_or_else(|| NetworkError::NoSuchAs { asn, of: graph.len(), few: few() })
}
