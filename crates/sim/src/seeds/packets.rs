//! The packet side: a router with NAT, classes, access lists and a flow cache, and the packets that arrive at
//! it.
//!
//! Every chunk passes the shipped plan under the serial model and later under another one, which must give
//! the same answer. `judge.rs` checks every packet that leaves, and the sessions after every chunk.

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
pub use plan::{
    Act, ClassSetup, Deny, FlowSetup, Item, Kind, NatSetup, Piece, Plan, PlanFault, Protocol, Setup, Step,
};
pub(super) use shrink::STEPS;
