//! The outside of the house: what packets come from and go to.
//!
//! Files: [`FileSource`] reads text traces and captures into chunks, [`PortCaptures`] writes one capture per
//! egress port, [`TraceOutput`] a text trace; [`MrtReader`] and [`MrtWriter`] do the same for routes and BGP
//! messages. Formats themselves are the business
//! of `thalweg-wire`; here are reads, writes, threads, and what to say when a file is damaged.
//!
//! The network, on Linux: [`live`] for packets on interfaces, [`tcp`] for BGP's connections, [`kernel`] for the
//! kernel's routing tables, [`collector`] for those that take flow records, [`exporters`] for those that send them.

#[cfg(target_os = "linux")]
pub mod collector;
#[cfg(target_os = "linux")]
pub mod exporters;
mod input;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod live;
mod mrt;
mod names;
mod output;
#[cfg(target_os = "linux")]
mod socket_option;
#[cfg(target_os = "linux")]
pub mod tcp;

pub use input::{
    ChunkReceiver, FileSource, ISSUES_KEPT, InputError, InputOptions, InputReport, InputSpec, Issue, Place,
    Progress, decompressed,
};
pub use mrt::{
    MrtError, MrtItem, MrtProblem, MrtReader, MrtWriteError, MrtWriter, MrtWriterOptions, RECORD_BYTES_MAX,
};
pub use names::PortNames;
pub use output::{OutputError, OutputTotals, PacketOut, PortCaptures, TraceOutput};
