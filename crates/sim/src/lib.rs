//! The Internet in a process: routers that run the shipped BGP code on simulated links and virtual time.
//!
//! A [`Network`] has [`Link`]s and routers, each with a real speaker: sessions, policies, tables and encoded
//! UPDATEs. Sockets, clocks and threads are simulated. Everything follows from a seed, so a run can be
//! repeated exactly, in another process and with another number of threads.

mod chance;
pub mod churn;
mod error;
pub mod fixpoint;
pub mod gadgets;
pub mod interior;
mod labor;
mod link;
mod meter;
mod network;
pub mod oscillation;
mod pages;
pub mod policy;
pub mod prefixes;
mod record;
mod router;
mod scenario;
pub mod seeds;
mod site;
mod state;
pub mod topology;
pub mod watch;
mod windows;

pub use chance::Random;
pub use error::SimError;
pub use labor::{Costs, Timed};
pub use link::{Link, LinkState};
pub use meter::STEP_US;
pub use network::{Clock, Network, NetworkOptions, Quiet, Start, Traffic};
pub use pages::restart_with_huge_pages;
pub use record::{EPOCH_S, Heard, Recorder, dump_table};
pub use router::Interleaving;
pub use scenario::{Scenario, Simulation};
