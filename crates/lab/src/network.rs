//! `lab network`: simulated networks, by real sessions or by the second engine.
//!
//! [`sessions`] runs the shipped router in every AS of a graph, from a cold start through a load, and records what chosen
//! ASes hear. [`fixpoint`] asks the graph of the whole Internet where routes end up. Both take the graph from a file of
//! relationships or make one.

pub mod fixpoint;
pub mod render;
pub mod sessions;

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use thalweg_sim::SimError;
use thalweg_sim::topology::{
    AsGraph, GraphError, ReadError, Relation, internet, preferential, read_as_relationships,
};

/// Why an experiment with a network came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A file or folder.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of relationships.
    #[error("{path}: {source}", path = path.display())]
    Relationships {
        /// Which.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// A graph cannot be made.
    #[error("the graph: {0}")]
    Graph(#[from] GraphError),
    /// The simulation.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// An AS is asked for that is not there.
    #[error("AS {asn} is not in the graph: it has {of} ASes, among them {few}")]
    NoSuchAs {
        /// Its number.
        asn: u32,
        /// How many there are.
        of: usize,
        /// Some of them.
        few: String,
    },
}

/// Where the graph comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphSource {
    /// Made like the Internet.
    Internet(usize),
    /// Grown by preference, with so many links for each new AS.
    Preferential(usize, usize),
    /// Read from a file of relationships.
    Relationships(PathBuf),
}

impl GraphSource {
    /// The graph.
    pub fn graph(&self, seed: u64) -> Result<AsGraph, NetworkError> {
        match self {
            Self::Internet(ases) => Ok(internet(*ases, seed)?),
            Self::Preferential(ases, links) => Ok(preferential(*ases, *links, seed)?),
            Self::Relationships(path) => {
                let file =
                    File::open(path).map_err(|source| NetworkError::File { path: path.clone(), source })?;
                let (_, input) = thalweg_ports::decompressed(file)
                    .map_err(|source| NetworkError::File { path: path.clone(), source })?;
                read_as_relationships(BufReader::new(input))
                    .map_err(|source| NetworkError::Relationships { path: path.clone(), source })
            }
        }
    }

    /// In words.
    pub fn describe(&self) -> String {
        match self {
            Self::Internet(ases) => format!("{ases} ASes, made like the Internet (Elmokashfi et al.)"),
            Self::Preferential(ases, links) => format!("{ases} ASes, each linked to {links} before it"),
            Self::Relationships(path) => format!("AS relationships of {}", path.display()),
        }
    }
}

/// What a graph is like.
#[derive(Clone, Debug, Serialize)]
pub struct GraphFacts {
    /// Where it comes from.
    pub source: String,
    /// How many ASes there are.
    pub ases: usize,
    /// How many links between them.
    pub links: usize,
    /// Of these, between peers.
    pub peer_links: usize,
    /// Neighbors of an AS on average.
    pub mean_degree: f64,
    /// ASes by their number of neighbors.
    pub degrees: Vec<(usize, usize)>,
}

impl GraphFacts {
    fn of(graph: &AsGraph, source: &GraphSource) -> Self {
        let mut degrees = std::collections::BTreeMap::new();
        for node in 0..graph.len() {
            *degrees.entry(graph.degree(node)).or_default() += 1;
        }
        let peers: usize = (0..graph.len()).map(|node| graph.those(node, Relation::Peer).len()).sum();
        Self {
            source: source.describe(),
            ases: graph.len(),
            links: graph.links(),
            peer_links: peers / 2,
            mean_degree: 2.0 * graph.links() as f64 / graph.len().max(1) as f64,
            degrees: degrees.into_iter().collect(),
        }
    }
}

/// The node of an AS.
fn node(graph: &AsGraph, asn: u32) -> Result<usize, NetworkError> {
    let few =
        || (0..graph.len().min(3)).map(|node| graph.asn(node).to_string()).collect::<Vec<_>>().join(", ");
    graph.node(asn).ok_or_else(|| NetworkError::NoSuchAs { asn, of: graph.len(), few: few() })
}

/// Writes the relationships of a graph, as they are read.
fn write_relationships(graph: &AsGraph, path: &Path) -> Result<(), NetworkError> {
    let mut text = String::from("# provider|customer|-1, peer|peer|0\n");
    for node in 0..graph.len() {
        for neighbor in graph.neighbors(node) {
            let (a, b) = (graph.asn(node), graph.asn(neighbor.node as usize));
            match neighbor.relation {
                Relation::Customer => text += &format!("{a}|{b}|-1\n"),
                Relation::Peer if a < b => text += &format!("{a}|{b}|0\n"),
                Relation::Peer | Relation::Provider => {}
            }
        }
    }
    let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| NetworkError::File { path: path.to_path_buf(), source })
}
