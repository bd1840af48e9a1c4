//! The BGP side: small networks of routers with sessions.
//!
//! A trial begins calm. Rounds of faults follow; at the end of each round all faults are repaired and the
//! network must converge.

mod draw;
mod inside;
mod invariants;
mod life;
mod oracle;
mod plan;
mod shrink;
mod text;

pub use life::run;
pub use plan::{End, Event, Fault, Features, LinkPlan, Plan, PlanFault, Relationship, RouterPlan};
pub(super) use shrink::STEPS;
