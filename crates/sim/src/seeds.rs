//! Random networks and routers, and the invariants that must hold whatever happens.
//!
//! A seed draws a plan for each side: for [BGP](bgp), a small network with faults and changes; for [packets],
//! a router with its packets and with reloads between them. A [`Trial`] runs a plan and checks the
//! invariants. A few lines that share nothing with the router derive the expected result from the plan alone.
//! A failing plan is shrunk while it still fails in the same way, and kept as a file. [`Case`] is a plan of
//! either side.

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
