//! The side of BGP: small networks of routers with sessions.
//!
//! A trial is calm first, then has rounds of faults, each of which ends with everything mended and at rest.

mod draw;
mod inside;
mod invariants;
mod life;
mod oracle;
mod plan;
mod shrink;
mod text;

pub use life::run;
pub use plan::{End, Event, Fault, Features, LinkPlan, Plan, Relationship, RouterPlan};
pub(super) use shrink::STEPS;
