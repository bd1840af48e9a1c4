//! The second engine: where routes end up in a graph of the whole Internet, without sessions, messages and time.
//!
//! Every AS prefers routes of its customers to those of its peers, and those to its providers'; then the shortest path; then
//! the neighbor with the lowest AS number. It announces its own and its customers' routes to all, others to its customers
//! only. Gao and Rexford showed (2001) that one stable state follows, whatever the order of messages; it is found in three
//! sweeps: customers' routes go up, cross one link between peers, then go down. A sweep visits each link once.
//!
//! It shares no code with the router's decision process, which it is the oracle of.

mod naive;
mod sweep;

pub use sweep::{Engine, Routes};

/// How an AS came by its route. The order is that of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It announces the prefix itself.
    Own,
    /// From a customer.
    Customer,
    /// From a peer.
    Peer,
    /// From a provider.
    Provider,
    /// It has none.
    Unreached,
}

/// Who announces a prefix, and who does not believe it.
#[derive(Clone, Debug, Default)]
pub struct Announcement {
    /// The AS that the prefix belongs to, as a node.
    pub origin: usize,
    /// Another one that announces the same prefix.
    pub hijacker: Option<usize>,
    /// One that announces what it has from a provider or peer to all its neighbors. It keeps the route that it had before:
    /// what its leak does to its own route is not followed, because then there need not be one stable state.
    pub leaker: Option<usize>,
    /// Who drops routes of the wrong origin (ROV), by node; shorter: nobody after the end.
    pub validates_origin: Vec<bool>,
    /// Who drops routes that a customer or peer was not allowed to pass on (ASPA), by node. Every AS has registered
    /// its providers.
    pub validates_path: Vec<bool>,
}

impl Announcement {
    /// An announcement by its origin alone.
    pub fn of(origin: usize) -> Self {
        Self { origin, ..Self::default() }
    }
}
