//! The side of packets: a router with translation, classes, access lists and a flow cache, and what arrives at it.
//!
//! Every chunk passes the shipped plan under the serial model and, later, under another one that must give the same
//! answer. `judge.rs` looks at every packet when it leaves, and at sessions after every chunk.

mod draw;
mod expect;
mod frames;
mod judge;
mod life;
mod meter;
mod plan;
mod shrink;
mod text;

pub use life::run;
pub use plan::{Act, ClassSetup, Deny, FlowSetup, Item, Kind, NatSetup, Piece, Plan, Protocol, Setup, Step};
pub(super) use shrink::STEPS;
