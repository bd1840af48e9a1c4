//! Networks that chance makes, and what must be true of them whatever happened.
//!
//! A seed draws a [`Plan`]: a small network, features of its routers, faults and changes with their times. A
//! [`trial`](run) plays it (calm, faults, all mended, at rest) and holds the routers to invariants. What is expected
//! follows from the plan alone, by a few lines that share nothing with the router (`oracle`). A plan that fails is
//! [shrunk](shrink) to one that still fails in the same way, and kept as a file.

mod coverage;
mod draw;
mod invariants;
mod life;
mod oracle;
mod plan;
mod shrink;
mod text;
mod verdict;

pub use coverage::Coverage;
pub use life::{Moment, Trial, Voice, run};
pub use plan::{End, Event, Fault, Features, LinkPlan, Plan, PlanError, Relationship, RouterPlan};
pub use shrink::{Shrunk, shrink};
pub use verdict::{Verdict, Violation};
