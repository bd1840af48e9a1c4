//! One router: from its configuration to the plan that an execution model runs.
//!
//! - `build`: from a configuration to look-up tables, next hops, shards and classes.
//! - [`egress`]: from classes and rates to the queues of each port.
//! - [`fib`]: from best routes to what forwards packets, the data plane's tables or the kernel's.
//! - [`forwarding`]: keeping it so, on a thread of its own behind a bounded queue.
//! - [`live`]: tables that change while packets pass.
//! - [`mrt`], [`seed`]: routes to and from the records of MRT files.
//! - [`capture`]: which packets a capture wants.
//! - [`trace`]: what the stages would do with a packet that somebody describes.
//! - [`plan`]: the stages in order, with the scope of the state each touches.
//!
//! Where packets come from and go to is somebody else's business: nothing here opens a file.

mod build;
pub mod capture;
pub mod control;
pub mod egress;
pub mod fib;
pub mod forwarding;
pub mod live;
pub mod mrt;
pub mod plan;
pub mod seed;
pub mod speaker;
pub mod trace;
mod words;

pub use build::{BuildError, Routes, egress_tags, sub_interfaces};
