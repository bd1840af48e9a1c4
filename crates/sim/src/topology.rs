//! Graphs of autonomous systems: who is linked to whom, and who pays.

mod caida;
mod graph;
mod made;

pub use caida::{ReadError, read_as_relationships};
pub use graph::{AsGraph, GraphBuilder, GraphError, Neighbor, Relation};
pub use made::{internet, preferential};
