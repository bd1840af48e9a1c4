//! Flow metering: what passes, counted by flow. Pure: no socket, no thread, no clock.
//!
//! ```text
//! packets --> key --> cache (per shard) --> FlowRecord --> exporter --> messages
//!                     timeouts, eviction                \-> store
//! ```
//!
//! Map of the crate:
//! - [`import`]: received NetFlow and IPFIX messages into flow records.
//! - [`record`]: what is known of a flow when it ends or is reported, shared by everything that takes records.

pub mod import;
pub mod record;

pub use record::{Counters, Drops, EndReason, FlowKey, FlowRecord, NO_AS, Translation};
