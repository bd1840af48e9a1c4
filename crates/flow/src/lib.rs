//! Flow metering: what passes, counted by flow. Pure: no socket, no thread, no clock.
//!
//! ```text
//! packets --> key --> cache (per shard) --> FlowRecord --> exporter --> messages
//!                     timeouts, eviction                \-> store
//! ```
//!
//! Map of the crate:
//! - [`application`]: which application a flow belongs to.
//! - [`parse`]: from frame to the facts of a packet that a flow's key is made of.
//! - [`export`]: records become messages of NetFlow and IPFIX.
//! - [`import`]: received NetFlow and IPFIX messages into flow records.
//! - [`record`]: what is known of a flow when it ends or is reported, shared by everything that takes records.
//! - [`fields`]: names, types and values of a record's fields, for all formats; [`lines`]: JSON and CSV.
//! - [`Meter`]: which packets are counted, their keys, shards and fragments; the totals. Its cache, index and timing wheel
//!   are not seen from outside.

pub mod application;
mod cache;
pub mod export;
pub mod fields;
pub mod import;
mod key;
pub mod lines;
mod memory;
mod meter;
pub mod parse;
pub mod record;
mod sampling;
#[doc(hidden)]
pub mod testing;
mod wheel;

pub use memory::prefer_huge_pages;
pub use meter::options::{Bytes, KeyFields, MeterError, MeterOptions};
pub use meter::totals::{Amount, MeterTotals};
pub use meter::{Meter, RecordSink};
pub use record::{
    Counters, Drops, EndReason, FlowKey, FlowRecord, NO_AS, NO_INTERFACE, SAMPLING_UNKNOWN, Translation,
    icmp_type_and_code, interface_of_port,
};
pub use sampling::Sampling;
