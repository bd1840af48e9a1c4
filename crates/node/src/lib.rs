//! One router: from its configuration to the plan that an execution model runs, and its control plane.
//!
//! - `build`: from a configuration to look-up tables, next hops, shards and classes.
//! - [`plan`]: the stages in order, with the scope of each; the next plan of a reload. [`egress`]: the queues of
//!   each port.
//! - [`live_tables`]: tables that change while packets pass.
//! - [`speaker`]: BGP's sessions, shards and update groups put together. [`seed`], [`mrt`]: routes from and to MRT.
//! - [`received`]: routes as a running router's neighbors sent them, before import.
//! - [`whatif`]: which best paths and exports another configuration would change.
//! - [`fib`], [`forwarding`]: best routes to the data plane's tables or the kernel's, on a thread behind a bounded
//!   queue.
//! - [`control`]: requests of the control socket and their answers, as plain data.
//! - [`capture`], [`trace`]: which packets a capture takes, and what the stages would do with a described packet.
//!   `words` parses both descriptions.
//!
//! Nothing here opens an interface or a file. `thalweg-replay` and `thalweg-live` bring packets; `thalweg-daemon`
//! opens the sockets and follows the kernel.

mod build;
pub mod capture;
pub mod control;
pub mod egress;
pub mod fib;
pub mod forwarding;
pub mod live_tables;
pub mod mrt;
mod mrt_update;
pub mod plan;
mod process_facts;
pub mod received;
pub mod seed;
pub mod speaker;
pub mod trace;
pub mod whatif;
mod words;

pub use build::{BuildError, Routes, egress_tags, sub_interfaces};
pub use process_facts::ProcessFacts;
