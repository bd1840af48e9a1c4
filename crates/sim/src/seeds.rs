//! Networks and routers that chance makes, and what must be true of them whatever happened.
//!
//! A seed draws a plan of each side: of [BGP](bgp), a small network with faults and changes; of [packets], a router
//! with the packets it gets and reloads between them. A [`Trial`] plays a plan and holds what happens to invariants. What is
//! expected follows from the plan alone, by a few lines that share nothing with the router. A plan that fails is
//! shrunk to one that still fails in the same way, and kept as a file. [`Case`] is a plan of either side.

pub mod bgp;
mod case;
mod coverage;
pub mod packets;
mod shrink;
mod trial;

pub use case::{Case, PlanError, Side};
pub use coverage::Coverage;
pub use shrink::Shrunk;
pub use trial::{Moment, Trial, Verdict, Violation, Voice};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
