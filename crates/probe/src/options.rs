//! Options of a probe, and its errors.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_base::{CHUNK_PACKETS_DEFAULT, ChunkBuilder, Name};
use thalweg_dataplane::queens::Boards;
use thalweg_exec::{ExecError, ModelKind, THREADS_MAX, TOKENS_DEFAULT};
use thalweg_flow::parse::ParseOptions;
use thalweg_flow::{ExporterId, MeterError, MeterOptions, PacketSampling};
use thalweg_ports::collector::{CollectorError, SflowAddress, TlsOptions};
use thalweg_ports::live::{LiveError, wall_ns};
use thalweg_ports::s3::S3Error;
use thalweg_ports::webhook::WebhookError;
use thalweg_ports::{InputError, InputSpec, Issue};
use thalweg_store::{Retention, StoreError, WriterOptions};

use crate::alarm_rules::{AlarmError, AlarmOptions};
use crate::archive::open_archive;
use crate::enrich::{EnrichError, EnrichFiles};
use crate::feed::open_feed;

/// The default for files.
pub(crate) const CHUNK_PACKETS: usize = CHUNK_PACKETS_DEFAULT;

/// The input of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Captures and text traces.
    Files(FileInput),
    Live(LiveInput),
}

/// Files with fewer bytes than this are metered in less time than further threads save.
const SMALL_BYTES: u64 = 32 << 20;

/// Captures and text traces as input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInput {
    /// In order: `PATH` or `PORT=PATH`; `-` is standard input.
    pub inputs: Vec<PathBuf>,
    /// The number of passes, at least 1.
    pub loops: u32,
    /// Packets per second; `None` is as fast as possible.
    pub rate_pps: Option<u64>,
    /// Read everything into memory before the clock starts.
    pub preload: bool,
    /// How packets are distributed over pipelines.
    pub deal: Deal,
    /// Stop at the first malformed line or damaged capture.
    pub strict: bool,
}

impl FileInput {
    /// These inputs once, as fast as possible.
    pub fn new(inputs: Vec<PathBuf>) -> Self {
        Self { inputs, loops: 1, rate_pps: None, preload: false, deal: Deal::Hash, strict: false }
    }

    /// Whether the files are too small for several threads to pay off. Nobody knows how much comes from a pipe.
    pub fn is_small(&self) -> bool {
        let bytes_of = |input: &PathBuf| {
            let bytes = InputSpec::parse(&input.to_string_lossy()).bytes();
            bytes.map_or(u64::MAX, |bytes| bytes.saturating_mul(self.loops.into()))
        };
        self.inputs.iter().map(bytes_of).fold(0, u64::saturating_add) < SMALL_BYTES
    }
}

/// Interfaces as input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveInput {
    pub interfaces: Vec<String>,
    /// How packets are captured.
    pub driver: LiveDriver,
    /// Packets of an interface that can wait, 64 to 65,536; `None` leaves it to the driver.
    pub ring: Option<u32>,
    /// Stop after this time.
    pub seconds: Option<u32>,
    /// Stop after about this many packets.
    pub packets: Option<u64>,
}

/// How packets of an interface are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveDriver {
    /// AF_PACKET: copies, in addition to the host's own stack.
    #[default]
    AfPacket,
    /// AF_XDP: the host does not receive them.
    AfXdp,
}

/// How packets of files are distributed over pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deal {
    /// By a symmetric hash of addresses, as NICs do with RSS.
    #[default]
    Hash,
    /// Each pipeline has its own file.
    Files,
}

/// How the work is spread over threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of pipelines, each with its own capture queue, meter and threads. At least 1.
    pub pipelines: usize,
    /// The model that runs each pipeline.
    pub model: ModelKind,
    /// Worker threads per pipeline, at least 1.
    pub workers: usize,
    /// Reader threads per pipeline in the farm model, at least 1.
    pub readers: usize,
    /// Chunks in flight per pipeline in the tokens model, at least 1.
    pub tokens: usize,
    /// Cores for the threads, in order; empty leaves placement to the kernel.
    pub pin_cores: Vec<usize>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            pipelines: 1,
            model: ModelKind::RunToCompletion,
            workers: 1,
            readers: 1,
            tokens: TOKENS_DEFAULT,
            pin_cores: Vec::new(),
        }
    }
}

/// Collectors, and how to export to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportTargets {
    /// `ipfix://HOST:PORT`, `ipfix+tcp://`, `ipfix+tls://`, `v9://`, `v5://`, `kafka://HOST:PORT/TOPIC`,
    /// `clickhouse://HOST:PORT/TABLE`, `clickhouse+tls://`; `sflow://HOST:PORT` gets samples.
    pub addresses: Vec<String>,
    /// Send each flow's records to one collector, by hash; otherwise send all records to each.
    pub balance: bool,
    /// The observation domain of the first collector; the others have the following numbers.
    pub observation_domain: u32,
    /// Stores records while a connection-oriented collector is down.
    pub spool: Option<Spool>,
    pub tls: TlsOptions,
    /// The most datagrams per second to each; collectors lose what exceeds their receive buffers.
    pub datagrams_per_s_max: Option<u32>,
    /// Send each datagram with its own call, without segmentation by the kernel (`UDP_SEGMENT`).
    pub one_by_one: bool,
    pub sflow: SflowOptions,
}

impl ExportTargets {
    /// The same without the collectors that get no records: those of sFlow.
    pub(crate) fn of_records(&self) -> Self {
        let gets_records = |address: &&String| !SflowAddress::is_meant_by(address);
        Self { addresses: self.addresses.iter().filter(gets_records).cloned().collect(), ..self.clone() }
    }
}

/// What sFlow's collectors get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SflowOptions {
    /// The probe's; a router's plan has its own.
    pub sampling: PacketSampling,
    /// The address by which collectors know the agent; by default that from which the first one is reached.
    pub agent: Option<IpAddr>,
    /// Counters of interfaces are sent each time; `None` is never. Files have none.
    pub counters: Option<Duration>,
}

impl SflowOptions {
    /// A day.
    pub const COUNTERS_S_MAX: u32 = 86_400;

    /// The interval of this many seconds; none is never.
    pub fn every_s(seconds: u32) -> Option<Duration> {
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }
}

/// A disk queue for records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// A folder, in which each collector has its own.
    pub folder: PathBuf,
    /// The limit for all files in it.
    pub bytes_max: u64,
}

/// What to measure, how, and where to send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    pub input: Input,
    pub shape: Shape,
    /// 1 to 65535; by default 1600 for files and 256 for interfaces.
    pub chunk_packets: Option<usize>,
    pub parsing: ParseOptions,
    /// With several pipelines, each meter has its part of the flows.
    pub meter: MeterOptions,
    /// Synthetic work for each packet, standing for a closer look than this probe takes.
    pub work: Option<Boards>,
    pub export: ExportTargets,
    /// The name of this probe in records; by default that of the host, and none for files.
    pub exporter: Option<String>,
    /// A file for JSON lines; `-` is standard output.
    pub json: Option<PathBuf>,
    /// A file for comma-separated values; `-` is standard output.
    pub csv: Option<PathBuf>,
    /// The folder of a dataset to add records to.
    pub store: Option<PathBuf>,
    pub keep: KeepOptions,
    /// What records learn about their addresses.
    pub enrich: EnrichFiles,
    pub alarms: AlarmOptions,
}

/// What becomes of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepOptions {
    pub retention: Retention,
    /// Keep an Iceberg table of the dataset.
    pub iceberg: bool,
    /// Where complete hours go, as [`crate::open_archive`] takes it.
    pub archive: Option<String>,
    /// Where all records go, as [`crate::open_feed`] takes it.
    pub feed: Option<String>,
    /// For brokers with TLS.
    pub feed_tls: TlsOptions,
}

impl KeepOptions {
    /// The options of a writer; messages of the feed have community IDs by choice.
    pub fn writer(&self, with_community_id: bool) -> Result<WriterOptions, ProbeError> {
        let feed = self.feed.as_deref().map(|to| open_feed(to, &self.feed_tls, with_community_id));
        Ok(WriterOptions {
            retention: self.retention,
            iceberg: self.iceberg,
            archive: self.archive.as_deref().map(open_archive).transpose()?,
            feed: feed.transpose().map_err(ProbeError::Collector)?,
            ..WriterOptions::new(wall_ns)
        })
    }
}

impl ProbeOptions {
    /// The defaults for this input.
    pub fn new(input: Input) -> Self {
        Self {
            input,
            shape: Shape::default(),
            chunk_packets: None,
            parsing: ParseOptions::default(),
            meter: MeterOptions::default(),
            work: None,
            export: ExportTargets::default(),
            exporter: None,
            json: None,
            csv: None,
            store: None,
            keep: KeepOptions::default(),
            enrich: EnrichFiles::default(),
            alarms: AlarmOptions::default(),
        }
    }

    /// This probe in records: it did not see the packets of files itself.
    pub(crate) fn exporter(&self) -> ExporterId {
        match (&self.exporter, &self.input) {
            (None, Input::Files(_)) => ExporterId::default(),
            (name, _) => this_exporter(name.as_deref(), self.export.observation_domain),
        }
    }

    /// Whether the input is in memory before the clock starts.
    pub(crate) fn preloads(&self) -> bool {
        matches!(&self.input, Input::Files(files) if files.preload)
    }
}

/// A meter of this program as exporter: with this name, or that of the host.
pub(crate) fn this_exporter(name: Option<&str>, domain: u32) -> ExporterId {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.map_or_else(host, str::to_owned);
    ExporterId { address: None, domain: Some(domain), name: Name::of(name.trim()) }
}

/// Receives the progress of a probe, at most a few times per second.
pub trait ProbeProgress: Send + Sync {
    /// `packets` were read so far; `fraction` is that of the input's bytes, if their number is known.
    fn advanced(&self, packets: u64, fraction: Option<f64>);

    /// A problem that the operator should look into, at any time.
    fn notice(&self, _text: &str) {}

    /// A normal event, at any time.
    fn note(&self, _text: &str) {}
}

/// Ignores everything.
impl ProbeProgress for () {
    fn advanced(&self, _packets: u64, _fraction: Option<f64>) {}
}

/// Why a probe did not finish.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("{}", unread(.0))]
    Input(#[from] InputError),
    #[error(transparent)]
    Interface(LiveError),
    #[error(transparent)]
    Collector(CollectorError),
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Archive(#[from] S3Error),
    #[error(transparent)]
    Enrich(#[from] EnrichError),
    #[error(transparent)]
    Alarm(#[from] AlarmError),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error("cannot write {path}: {source}")]
    Output {
        /// The file, or a description of the output.
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Meter(#[from] MeterError),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The model stopped because of a bug.
    #[error("the run stopped: {0}")]
    Model(#[from] ExecError),
}

/// Why options are invalid or contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("no interface to capture from")]
    NoInterface,
    #[error("interface {0} is named twice")]
    InterfaceTwice(String),
    #[error(
        "sFlow needs an address for the probe, and no collector can be reached now: name one with --sflow-agent"
    )]
    NoSflowAgent,
    #[error("no input: expected a capture, `-` for standard input, or --interface")]
    NoInput,
    /// Each pipeline must have its own input, and their numbers differ.
    #[error("{inputs} inputs for {pipelines} pipelines: expected one for each")]
    InputsForPipelines {
        /// Files.
        inputs: usize,
        pipelines: usize,
    },
    #[error("standard input (`-`) can be read only once")]
    StandardInputTwice,
    #[error("standard output can be JSON or CSV, not both")]
    StandardOutputTwice,
    #[error("{0} pipelines: expected 1 to {max}", max = THREADS_MAX)]
    Pipelines(usize),
    #[error("the serial model has one worker, not {0}")]
    SerialWorkers(usize),
    #[error("chunks of {0} packets: expected 1 to {max}", max = ChunkBuilder::PACKETS_MAX)]
    Chunk(usize),
    /// An interface has too few receive queues.
    #[error(
        "{interface} has {queues} receive queues for {wanted} pipelines or workers: give it more (ethtool -L), or use \
         --driver af-packet"
    )]
    Queues {
        /// Its name.
        interface: String,
        queues: usize,
        wanted: usize,
    },
}

impl ProbeError {
    /// Whether the request was invalid, rather than its execution failed.
    pub fn is_usage(&self) -> bool {
        let of_input = |error: &InputError| matches!(error, InputError::NoSuchPort { .. });
        match self {
            Self::Options(_) | Self::Alarm(_) | Self::Webhook(WebhookError::Address(_)) => true,
            Self::Collector(error) => {
                matches!(error, CollectorError::Address { .. } | CollectorError::NotBuilt { .. })
            }
            Self::Meter(error) => !matches!(error, MeterError::OutOfMemory { .. }),
            Self::Input(error) => of_input(error),
            _ => false,
        }
    }

    /// The first issue of the input, with `strict`.
    pub fn issue(&self) -> Option<&Issue> {
        match self {
            Self::Input(InputError::Strict(issue)) => Some(issue),
            _ => None,
        }
    }
}

/// Formats an input error. With `--strict` it may be an issue in the middle of the input.
fn unread(error: &InputError) -> String {
    match error {
        InputError::Strict(issue) => format!("{issue} (--strict stops here)"),
        error => format!("cannot read {error}"),
    }
}
