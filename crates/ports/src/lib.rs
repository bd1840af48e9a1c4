//! The outside of the house: what packets come from and go to.
//!
//! For now these are files. [`FileSource`] reads text traces and captures into chunks, [`PortCaptures`]
//! writes one capture per egress port, [`TraceOutput`] a text trace. Formats themselves are the business
//! of `thalweg-wire`; here are reads, writes, threads, and what to say when a file is damaged.

mod input;
mod names;
mod output;

pub use input::{
    ChunkReceiver, FileSource, ISSUES_KEPT, InputError, InputOptions, InputReport, InputSpec, Issue, Place,
    Progress, decompressed,
};
pub use names::PortNames;
pub use output::{OutputError, OutputTotals, PacketOut, PortCaptures, TraceOutput};
