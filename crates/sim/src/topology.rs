//! Graphs of ASes: read from files or made.

mod brite;
mod caida;
mod graph;
mod grown;
mod internet;
mod relate;
mod zoo;

pub use brite::read_brite;
pub use caida::{CaidaFile, read_caida, write_caida};
pub use graph::{AsGraph, GraphBuilder, GraphError, LATENCY_DEFAULT_US, Place, Relation};
pub use grown::{Growth, grown};
pub use internet::internet;
pub use zoo::{ZooLink, ZooNetwork, ZooRouter, read_zoo};

use std::path::PathBuf;

/// Why a topology file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The file cannot be opened or read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A line is wrong.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The graph as a whole is wrong.
    #[error("{}: {error}", path.display())]
    Graph {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: GraphError,
    },
}
