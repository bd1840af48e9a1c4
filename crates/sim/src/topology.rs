//! Graphs of ASes, read from files or generated.

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

use std::path::{Path, PathBuf};

/// Why a topology file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    #[error("{}: {error}", path.display())]
    File {
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    #[error("{}:{line}: {message}", path.display())]
    Line {
        path: PathBuf,
        /// From 1.
        line: usize,
        message: String,
    },
    /// The graph as a whole is invalid.
    #[error("{}: {error}", path.display())]
    Graph { path: PathBuf, error: GraphError },
}

impl TopologyError {
    fn read(path: &Path) -> Result<String, Self> {
        std::fs::read_to_string(path).map_err(|error| Self::File { path: path.to_owned(), error })
    }

    fn at(path: &Path, line: usize, fault: impl ToString) -> Self {
        Self::Line { path: path.to_owned(), line, message: fault.to_string() }
    }
}
