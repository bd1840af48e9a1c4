//! The interface to the outside: reads and writes packets, routes and records. Formats are in `thalweg-wire`;
//! I/O, threads and reports of damaged files are here.
//!
//! - Files: [`FileSource`] reads text traces and captures into chunks; [`PortCaptures`] writes a capture per
//!   egress port, [`TraceOutput`] a text trace; [`MrtReader`] and [`MrtWriter`] do the same for routes and
//!   BGP messages.
//! - [`live`]: packets on interfaces, through AF_XDP, AF_PACKET, TAP and DPDK.
//! - [`tcp`]: BGP's connections. [`kernel`]: the kernel's routes and neighbors.
//! - [`collector`]: receivers of flow records, Kafka and ClickHouse among them. [`exporters`]: senders of flow records.
//! - [`webhook`]: texts to a web server. [`ask`]: questions to one. [`snmp`]: what exporters call their interfaces.
//! - [`s3`]: objects in a bucket.
//!
//! Nothing here depends on stages, models, BGP sessions or the configuration.

#[cfg(target_os = "linux")]
pub mod ask;
#[cfg(target_os = "linux")]
pub mod collector;
#[cfg(target_os = "linux")]
pub mod exporters;
#[cfg(target_os = "linux")]
mod http;
mod input;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod live;
mod mrt;
mod names;
#[cfg(all(test, target_os = "linux"))]
#[path = "../tests/common/mod.rs"]
mod namespace;
mod output;
#[cfg(target_os = "linux")]
pub mod s3;
mod slab_pool;
#[cfg(target_os = "linux")]
pub mod snmp;
#[cfg(target_os = "linux")]
mod socket_option;
#[cfg(target_os = "linux")]
pub mod tcp;
#[cfg(target_os = "linux")]
pub mod webhook;

pub use input::{
    FileSource, ISSUES_KEPT, InputError, InputOptions, InputReport, InputSpec, Issue, Place, Progress,
    decompressed,
};
pub use mrt::{
    MrtError, MrtItem, MrtProblem, MrtReader, MrtWriteError, MrtWriter, MrtWriterOptions, RECORD_BYTES_MAX,
};
pub use names::PortNames;
pub use output::{OutputError, OutputTotals, PacketOut, PortCaptures, TraceOutput};
pub use slab_pool::SlabPool;
