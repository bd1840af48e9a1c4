//! The flow probe: packets from files or interfaces through the meter, and records to their receivers.
//!
//! ```text
//!            ┌─ pipeline: model (parse, fragments, meter) ─┐ records
//! sources ───┤     ...                                     ├────────> bounded queue ──> delivery ──> lines, store, collectors
//!   (deal)   └─ pipeline: model (parse, fragments, meter) ─┘
//! ```
//!
//! `ports` reads packets, `flow` meters, `exec` runs the stages, `store` keeps records; they do not know each
//! other and are combined here. A pipeline is a meter and the model that runs it; pipelines share only the
//! queue to the delivery. Every packet is in exactly one record, still in a cache, or dropped with a reason,
//! and every run checks that ([`summary`]). Slabs, batches of records and flows are bounded. `import` reads
//! the records of other exporters; `enrich` adds what files say about addresses.
//! `sflow` samples packets, and counters of interfaces, for collectors that want no flows.
//! `alarms` judges what flows count while they go on. The probe does not know the router: `thalweg-node` has its own stage for
//! the meter, and only the delivery is shared.

mod account;
mod alarm_rules;
mod alarms;
mod archive;
mod cached;
mod deal;
mod deliver;
mod enrich;
mod feed;
mod import;
mod inputs;
mod interfaces;
mod live;
mod notices;
mod options;
mod packed;
mod pipelines;
mod plan;
mod protobuf;
mod record_queue;
mod router_delivery;
mod row_binary;
mod run;
mod sflow;
mod source;
pub mod summary;
mod usage;

pub use alarm_rules::{AlarmError, AlarmOptions};
pub use archive::open_archive;
pub use cached::ShowMeters;
pub use deliver::{AskInterfaces, AskMeters, Completion};
pub use enrich::{EnrichError, EnrichFiles, Enrichment};
pub use feed::open_feed;
pub use import::{
    ExporterNames, ExporterSummary, ImportOptions, ImportSource, ImportSummary, NamesError, SnmpOptions,
    SourceTextError, import,
};
pub use interfaces::{Interfaces, PortInterface};
pub use options::{
    Deal, ExportTargets, FileInput, Input, KeepOptions, LiveDriver, LiveInput, OptionsError, ProbeError,
    ProbeOptions, ProbeProgress, SflowOptions, Shape, Spool,
};
pub use router_delivery::{RouterDelivery, RouterDeliveryOptions, RouterWay};
pub use run::probe;
pub use sflow::{CompleteSample, PortCount, ReadCounters, SampledWay, kernel_counters};
pub use summary::{CaptureSummary, InputIssues, OutletStatus, OutletSummary, ProbeSummary};
pub use thalweg_exec::ModelKind;
pub use thalweg_ports::collector::TlsOptions;

/// A flow meter whose shards several threads share.
pub type Meter = thalweg_flow::Meter<thalweg_exec::Locks>;
