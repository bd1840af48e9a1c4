//! Options and errors of a replay.

use std::fmt;
use std::path::PathBuf;

use thalweg_base::CHUNK_PACKETS_DEFAULT;
use thalweg_dataplane::queens::{Boards, UnknownBoards};
use thalweg_exec::{ModelKind, TOKENS_DEFAULT};
use thalweg_wire::trace::FieldOrder;

/// Synthetic computation after each stage, which simulates work that this router does not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    #[default]
    None,
    /// Count the solutions of the queens problem on boards of these sizes, once per packet and stage.
    Queens(Boards),
}

impl Work {
    /// The boards, if there is any work.
    pub fn boards(self) -> Option<Boards> {
        match self {
            Work::None => None,
            Work::Queens(boards) => Some(boards),
        }
    }
}

/// A text is not a kind of work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownWork {
    /// Neither of the two kinds.
    #[error("{0:?}: expected `none` or `queens:N`, such as queens:8")]
    Kind(String),
    /// Invalid boards.
    #[error(transparent)]
    Boards(#[from] UnknownBoards),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::None => f.write_str("none"),
            Work::Queens(n) => write!(f, "queens:{n}"),
        }
    }
}

impl std::str::FromStr for Work {
    type Err = UnknownWork;

    fn from_str(text: &str) -> Result<Self, UnknownWork> {
        if text == "none" {
            return Ok(Work::None);
        }
        match text.strip_prefix("queens:") {
            Some(boards) => Ok(Work::Queens(boards.parse()?)),
            None => Err(UnknownWork::Kind(text.to_owned())),
        }
    }
}

/// What is written of the packets that leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    None,
    /// One nanosecond pcap file per egress port in this folder.
    Captures(PathBuf),
    /// One text trace, `trace.txt`, in this folder.
    Trace(PathBuf),
}

/// What to replay and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// In order; `-` is standard input.
    pub inputs: Vec<PathBuf>,
    pub model: ModelKind,
    /// At least 1.
    pub workers: usize,
    /// Reader threads of the farm model, at least 1.
    pub readers: usize,
    /// Chunks in flight in the tokens model, at least 1.
    pub tokens: usize,
    /// 1 to 65535.
    pub chunk_packets: usize,
    /// Keep the serial run's total order in the output.
    pub ordered: bool,
    pub work: Work,
    pub output: Output,
    /// Read all input into memory before the clock starts.
    pub preload: bool,
    /// Stop at the first malformed line or damaged capture.
    pub strict: bool,
    pub field_order: FieldOrder,
    /// Cores for the workers, in order; empty leaves placement to the kernel.
    pub pin_cores: Vec<usize>,
    /// The number of passes over the input, at least 1.
    pub loops: u32,
    /// Take no more chunks once this many packets have been read.
    pub packets_max: Option<u64>,
    /// The seed of everything random.
    pub seed: u64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            model: ModelKind::RunToCompletion,
            workers: 1,
            readers: 1,
            tokens: TOKENS_DEFAULT,
            chunk_packets: CHUNK_PACKETS_DEFAULT,
            ordered: false,
            work: Work::None,
            output: Output::None,
            preload: false,
            strict: false,
            field_order: FieldOrder::default(),
            pin_cores: Vec::new(),
            loops: 1,
            packets_max: None,
            seed: 0,
        }
    }
}

/// Receives the progress of a replay, at most a few times per second.
pub trait ReplayProgress: Send + Sync {
    /// `packets` were read so far; `fraction` is that of the input's bytes, if their number is known.
    fn advanced(&self, packets: u64, fraction: Option<f64>);

    /// The measured part begins or has ended: the model, without what precedes and follows it.
    fn measuring(&self, _begins: bool) {}
}

/// Ignores everything.
impl ReplayProgress for () {
    fn advanced(&self, _packets: u64, _fraction: Option<f64>) {}
}

/// Why a replay did not finish.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("cannot read {path}: {source}")]
    Input {
        /// The file.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The input has an issue, with `--strict`.
    #[error("{}, {}: {} (--strict stops here)", .0.file, .0.place, .0.message)]
    Strict(crate::summary::InputIssue),
    #[error("cannot write {path}: {source}")]
    Output {
        /// The file or folder.
        path: PathBuf,
        source: std::io::Error,
    },
    /// Options that contradict each other.
    #[error("{0}")]
    Options(String),
    /// With `preload`: [`InputError::LargerThanMemory`](thalweg_ports::InputError::LargerThanMemory).
    #[error(transparent)]
    Memory(thalweg_ports::InputError),
    /// The model stopped because of a bug.
    #[error("the run stopped: {0}")]
    Model(thalweg_exec::ExecError),
}
