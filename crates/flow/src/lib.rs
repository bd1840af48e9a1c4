//! Flow metering, pure: packets to flow records to messages, without a socket, thread or clock.
//!
//! ```text
//! packets --> key --> cache (per shard) --> FlowRecord --> exporter --> messages
//!                     timeouts, eviction                \-> store
//! ```
//!
//! - [`parse`]: reads the facts of a flow's key from a frame. [`application`]: a flow's application, by ports
//!   or payload.
//! - [`NameOptions`]: names in first payloads, of servers and in DNS.
//! - [`Meter`]: keys, shards, fragments, sampling, totals; its cache, index and timing wheel are private.
//! - [`PacketSampler`]: how one packet in so many begins, for sFlow.
//! - [`Watch`]: what flows count while they go on. [`alarm`]: rules about it.
//! - [`record`]: a flow's data, for everything that takes records. [`fields`]: names, types and values of a
//!   record's fields, for all formats. [`lines`]: JSON and CSV.
//! - [`export`]: records to NetFlow and IPFIX. [`import`]: received messages to records.
//!
//! Collectors, files and threads are in `thalweg-ports`, `thalweg-store` and `thalweg-probe`. The meter's
//! shards are in cells (`thalweg_base::Exclusion`); the threads' crate chooses locks for them.

pub mod alarm;
pub mod application;
mod cache;
mod community_id;
pub mod export;
pub mod fields;
pub mod import;
mod key;
pub mod lines;
mod memory;
mod meter;
mod names;
mod packet_sampler;
pub mod parse;
pub mod record;
mod sampling;
#[doc(hidden)]
pub mod testing;
mod watch;
mod wheel;

pub use key::PortVrfs;
pub use meter::options::{Bytes, KeyFields, MeterError, MeterOptions, NameOptions};
pub use meter::totals::{Amount, MeterTotals, NameCounts};
pub use meter::{Meter, RecordSink};
pub use packet_sampler::{PacketSampler, PacketSamplers, PacketSampling, SampleLoss};
pub use record::{
    Counters, Details, Direction, Drops, EndReason, Event, ExporterId, FlowKey, FlowNames, FlowRecord,
    InterfaceName, NO_AS, NO_INTERFACE, Place, SAMPLING_UNKNOWN, Translation, icmp_type_and_code,
    interface_of_port,
};
pub use sampling::Sampling;
pub use watch::{INTERVAL_NS, Watch};
