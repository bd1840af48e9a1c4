//! Options of a probe, and its errors.

use std::io;
use std::path::PathBuf;

use thalweg_base::CHUNK_PACKETS_DEFAULT;
use thalweg_base::ChunkBuilder;
use thalweg_dataplane::queens::Boards;
use thalweg_exec::{ExecError, ModelKind, THREADS_MAX, TOKENS_DEFAULT};
use thalweg_flow::parse::ParseOptions;
use thalweg_flow::{MeterError, MeterOptions};
use thalweg_ports::collector::{CollectorError, TlsOptions};
use thalweg_ports::live::LiveError;
use thalweg_ports::{InputError, Issue};
use thalweg_store::{Retention, StoreError};

/// Packets of files in a chunk.
pub(crate) const CHUNK_PACKETS: usize = CHUNK_PACKETS_DEFAULT;

/// Where packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Captures and text traces.
    Files(FileInput),
    /// Interfaces.
    Live(LiveInput),
}

/// Captures and text traces as input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInput {
    /// Inputs in order: `PATH` or `PORT=PATH`; `-` is standard input.
    pub inputs: Vec<PathBuf>,
    /// How many times to go through them, at least 1.
    pub loops: u32,
    /// Packets a second, if not as many as possible.
    pub rate_pps: Option<u64>,
    /// Read everything into memory before the clock starts.
    pub preload: bool,
    /// How several pipelines come by their packets.
    pub deal: Deal,
    /// Stop at the first bad line or damaged capture.
    pub strict: bool,
}

impl FileInput {
    /// These inputs once, as fast as possible.
    pub fn new(inputs: Vec<PathBuf>) -> Self {
        Self { inputs, loops: 1, rate_pps: None, preload: false, deal: Deal::Hash, strict: false }
    }
}

/// Interfaces as input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveInput {
    /// Their names.
    pub interfaces: Vec<String>,
    /// How packets are captured.
    pub driver: LiveDriver,
    /// End after so long.
    pub seconds: Option<u32>,
    /// End after about so many packets.
    pub packets: Option<u64>,
}

/// How packets of an interface are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveDriver {
    /// AF_PACKET: copies, beside the host's own stack.
    #[default]
    AfPacket,
    /// AF_XDP: the host gets nothing of them.
    AfXdp,
}

/// How several pipelines come by the packets of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deal {
    /// By a symmetric hash of addresses, as a network card fills its receive queues.
    #[default]
    Hash,
    /// Each pipeline has a file of its own.
    Files,
}

/// How the work is spread over threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Pipelines: each has a capture queue, a meter and threads of its own. At least 1.
    pub pipelines: usize,
    /// The model that runs each of them.
    pub model: ModelKind,
    /// Worker threads of each, at least 1.
    pub workers: usize,
    /// Reader threads of each, with the farm; at least 1.
    pub readers: usize,
    /// Chunks in flight in each, with tokens; at least 1.
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

/// Collectors, and how they are spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportTargets {
    /// Where they are: `ipfix://HOST:PORT`, `ipfix+tcp://`, `ipfix+tls://`, `v9://`, `v5://`, `kafka://HOST:PORT/TOPIC`.
    pub addresses: Vec<String>,
    /// Each flow's records go to one of them, by its hash; else all records go to each.
    pub balance: bool,
    /// The observation domain of the first; the next ones have the numbers that follow.
    pub observation_domain: u32,
    /// Where records wait while a collector that is connected to is down.
    pub spool: Option<Spool>,
    /// Authorities that TLS trusts.
    pub tls: TlsOptions,
    /// Datagrams a second to each at most: collectors lose what their receive buffers do not hold.
    pub datagrams_per_s_max: Option<u32>,
    /// Each datagram has a call of its own, and the kernel cuts none (`UDP_SEGMENT`).
    pub one_by_one: bool,
}

/// Where records wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// A folder, in which each collector has its own.
    pub folder: PathBuf,
    /// Bytes that all files in it may have.
    pub bytes_max: u64,
}

/// What to measure, how, and where to send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Where packets come from.
    pub input: Input,
    /// How the work is spread.
    pub shape: Shape,
    /// Packets a chunk, 1 to 65535; if not given, 1600 of files, 256 of interfaces.
    pub chunk_packets: Option<usize>,
    /// What is read of packets.
    pub parsing: ParseOptions,
    /// The meter; with several pipelines each has its part of the flows.
    pub meter: MeterOptions,
    /// Synthetic work for each packet, standing for a closer look than this probe takes.
    pub work: Option<Boards>,
    /// Collectors to send records to.
    pub export: ExportTargets,
    /// A file to write records to, a line of JSON each; `-` is standard output.
    pub json: Option<PathBuf>,
    /// The same as comma-separated values.
    pub csv: Option<PathBuf>,
    /// The folder of a dataset to add records to.
    pub store: Option<PathBuf>,
    /// What of the dataset is kept.
    pub retention: Retention,
}

impl ProbeOptions {
    /// The usual for these inputs.
    pub fn new(input: Input) -> Self {
        Self {
            input,
            shape: Shape::default(),
            chunk_packets: None,
            parsing: ParseOptions::default(),
            meter: MeterOptions::default(),
            work: None,
            export: ExportTargets::default(),
            json: None,
            csv: None,
            store: None,
            retention: Retention::default(),
        }
    }

    /// Whether the input is in memory before the clock starts.
    pub(crate) fn preloads(&self) -> bool {
        matches!(&self.input, Input::Files(files) if files.preload)
    }
}

/// Told how far the probe has come, a few times a second at most.
pub trait ProbeProgress: Send + Sync {
    /// `packets` taken on so far; `fraction` of the input's bytes, where its size is known.
    fn advanced(&self, packets: u64, fraction: Option<f64>);

    /// Something that somebody should look into, at any time.
    fn notice(&self, _text: &str) {}

    /// Something that happened as it was configured to, at any time.
    fn note(&self, _text: &str) {}
}

/// Hears nothing.
impl ProbeProgress for () {
    fn advanced(&self, _packets: u64, _fraction: Option<f64>) {}
}

/// Why a probe did not finish.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// An input cannot be opened or read.
    #[error("{}", unread(.0))]
    Input(#[from] InputError),
    /// An interface cannot be opened.
    #[error(transparent)]
    Interface(LiveError),
    /// A collector is not available.
    #[error(transparent)]
    Collector(CollectorError),
    /// A dataset cannot be written.
    #[error(transparent)]
    Store(StoreError),
    /// An output cannot be written.
    #[error("cannot write {path}: {source}")]
    Output {
        /// The file, or what else it is.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Options that do not fit together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A meter that cannot be.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The model stopped: a fault of this program.
    #[error("the run stopped: {0}")]
    Model(#[from] ExecError),
}

/// Options that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No interface and no file.
    #[error("no interface to capture from")]
    NoInterface,
    /// One interface, two times.
    #[error("interface {0} is named twice")]
    InterfaceTwice(String),
    /// Nothing to read.
    #[error("no input: expected a capture, `-` for standard input, or --interface")]
    NoInput,
    /// Inputs are dealt out, and there are more or fewer than pipelines.
    #[error("{inputs} inputs for {pipelines} pipelines: expected one for each")]
    InputsForPipelines {
        /// Files.
        inputs: usize,
        /// Who would read them.
        pipelines: usize,
    },
    /// Standard input is read more than once.
    #[error("standard input (`-`) can be read only once")]
    StandardInputTwice,
    /// Standard output is written twice.
    #[error("standard output can be JSON or CSV, not both")]
    StandardOutputTwice,
    /// More pipelines than there can be, or none.
    #[error("{0} pipelines: expected 1 to {max}", max = THREADS_MAX)]
    Pipelines(usize),
    /// More than one worker, where there is one.
    #[error("the serial model has one worker, not {0}")]
    SerialWorkers(usize),
    /// More packets than a chunk holds, or none.
    #[error("chunks of {0} packets: expected 1 to {max}", max = ChunkBuilder::PACKETS_MAX)]
    Chunk(usize),
    /// An interface has fewer queues than are wanted.
    #[error(
        "{interface} has {queues} receive queues for {wanted} pipelines or workers: give it more (ethtool -L), or use \
         --driver af-packet"
    )]
    Queues {
        /// Its name.
        interface: String,
        /// What it has.
        queues: usize,
        wanted: usize,
    },
}

impl ProbeError {
    /// Whether what was asked for is wrong, rather than what came of it.
    pub fn is_usage(&self) -> bool {
        let of_input = |error: &InputError| matches!(error, InputError::NoSuchPort { .. });
        match self {
            Self::Options(_) => true,
            Self::Collector(error) => {
                matches!(error, CollectorError::Address { .. } | CollectorError::NotBuilt { .. })
            }
            Self::Meter(error) => !matches!(error, MeterError::OutOfMemory { .. }),
            Self::Input(error) => of_input(error),
            _ => false,
        }
    }

    /// What is wrong with the input, if it is that and `strict`.
    pub fn issue(&self) -> Option<&Issue> {
        match self {
            Self::Input(InputError::Strict(issue)) => Some(issue),
            _ => None,
        }
    }
}

/// What could not be read, and why. With `--strict` that is an issue, and not the input's last.
fn unread(error: &InputError) -> String {
    match error {
        InputError::Strict(issue) => format!("{issue} (--strict stops here)"),
        error => format!("cannot read {error}"),
    }
}
