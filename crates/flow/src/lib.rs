//! Flow metering: what passes, counted by flow. Pure: no socket, no thread, no clock.
//!
//! ```text
//! packets --> key --> cache (per shard) --> FlowRecord --> exporter --> messages
//!                     timeouts, eviction                \-> store
//! ```
//!
//! Map of the crate:
//! - [`export`]: records become messages of NetFlow and IPFIX.
//! - [`record`]: what is known of a flow when it ends or is reported, shared by everything that takes records.

pub mod export;
pub mod record;

pub use record::{Counters, Drops, EndReason, FlowKey, FlowRecord, NO_AS, Translation};
