//! The flow probe: packets from files or interfaces through the meter, and records to where they are wanted.
//!
//! ```text
//!            ┌─ pipeline: model (parse, fragments, meter) ─┐ records
//! sources ───┤     ...                                     ├────────> bounded queue ──> delivery ──> lines of JSON, CSV
//!   (deal)   └─ pipeline: model (parse, fragments, meter) ─┘
//! ```
//!
//! This is where the parts meet: `ports` reads, `flow` meters, `exec` runs it; none of them knows of the others.
//!
//! **Shapes.** A pipeline is a meter of its own and a model that runs it. One pipeline with a farm of R readers and W workers
//! is what ffProbe calls RR+WW; several pipelines each have a capture queue, filled as a network card fills its receive
//! queues (`deal`). No pipeline waits for another, and no state is shared but the queue to the delivery.
//!
//! **Conservation.** Every packet is in exactly one record, still in a cache, or dropped with a reason; bytes likewise. It
//! is checked at the end of every run ([`summary`]).
//!
//! **Bounds.** Slabs between reader and workers, batches of records between workers and delivery, flows in the cache.

mod account;
mod cached;
mod deal;
mod deliver;
mod import;
mod inputs;
mod interfaces;
mod live;
mod notices;
mod options;
mod outbox;
mod packed;
mod pipelines;
mod plan;
mod protobuf;
mod router_delivery;
mod run;
mod source;
pub mod summary;
mod usage;

pub use cached::ShowMeters;
pub use deliver::{AskInterfaces, AskMeters, Completion};
pub use import::{ExporterSummary, ImportOptions, ImportSource, ImportSummary, import};
pub use interfaces::{Interfaces, PortInterface};
pub use options::{
    Deal, ExportTargets, FileInput, Input, LiveDriver, LiveInput, ProbeError, ProbeOptions, ProbeProgress,
    Shape, Spool,
};
pub use router_delivery::{RouterDelivery, RouterDeliveryOptions, RouterWay};
pub use run::probe;
pub use summary::{CaptureSummary, InputIssues, OutletStatus, OutletSummary, ProbeSummary};
pub use thalweg_exec::ModelKind;
pub use thalweg_ports::collector::TlsOptions;
