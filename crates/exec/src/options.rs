//! The execution model of a run, and the sizes of its threads and queues.

use crate::rank::Priority;
use std::fmt;
use std::str::FromStr;

/// The most threads of one kind in a run: a typing error must not start a million.
pub const THREADS_MAX: usize = 1024;

/// The most tokens in a run.
pub const TOKENS_MAX: usize = 65_536;

/// The number of tokens that the publication of this model used, on a machine of 24 cores.
pub const TOKENS_DEFAULT: usize = 24;

/// The ways to spread a plan over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// One thread runs every stage on every job.
    Serial,
    /// Every worker takes a job through all stages.
    RunToCompletion,
    /// Every worker has its own stages; jobs pass from worker to worker.
    Pipeline,
    /// A pipeline whose slow stages have several workers.
    Replicated,
    /// Up to N jobs are in flight; any free worker takes the next runnable stage of any of them.
    Tokens,
    /// Readers split jobs by shard; every worker has its own shards.
    Farm,
    /// Jobs pass all workers in a line; every worker has its own shards.
    Chain,
}

impl ModelKind {
    /// All models, serial first.
    pub const ALL: [ModelKind; 7] = [
        ModelKind::Serial,
        ModelKind::RunToCompletion,
        ModelKind::Pipeline,
        ModelKind::Replicated,
        ModelKind::Tokens,
        ModelKind::Farm,
        ModelKind::Chain,
    ];

    /// All models, each with its name and its help text on the command line.
    pub const CHOICES: [(&'static str, &'static str, ModelKind); Self::ALL.len()] = {
        let mut choices = [("", "", Self::Serial); Self::ALL.len()];
        let mut n = 0;
        while n < choices.len() {
            let row = Self::ALL[n].row();
            choices[n] = (row.name, row.help, Self::ALL[n]);
            n += 1;
        }
        choices
    };

    /// All facts about a model: the one place that names, describes and sizes it.
    const fn row(self) -> Row {
        match self {
            Self::Serial => Row {
                name: "serial",
                help: "One thread runs every stage: the reference",
                jobs: |_, _| 1,
                groups: |_| 1,
            },
            Self::RunToCompletion => Row {
                name: "run-to-completion",
                help: "Each worker takes a chunk through all stages",
                jobs: |workers, _| 3 * workers,
                groups: following,
            },
            Self::Pipeline => Row {
                name: "pipeline",
                help: "Each worker owns a stage or a group of stages",
                jobs: |workers, _| 5 * workers,
                groups: |_| 1,
            },
            Self::Replicated => Row {
                name: "replicated",
                help: "A pipeline whose slow stages have several workers each",
                jobs: |workers, _| 5 * workers,
                groups: following,
            },
            Self::Tokens => Row {
                name: "tokens",
                help: "N chunks in flight; any free worker takes the next stage of any",
                jobs: |_, tokens| tokens,
                groups: following,
            },
            Self::Farm => Row {
                name: "farm",
                help: "Readers spread packets by shard; each worker owns some shards",
                jobs: |workers, _| 6 * workers,
                groups: |workers| workers,
            },
            Self::Chain => Row {
                name: "chain",
                help: "Chunks pass all workers in a line; each handles the packets of its own shards",
                jobs: |workers, _| 6 * workers,
                groups: |workers| workers,
            },
        }
    }

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Jobs between source and sink that keep all threads busy: with fewer, threads wait for one another.
    pub fn jobs_in_flight(self, workers: usize, tokens: usize) -> usize {
        (self.row().jobs)(workers, tokens)
    }

    /// Groups of shards that keep `workers` threads busy if a plan consists of little but sharded work.
    pub fn shard_groups(self, workers: usize) -> usize {
        (self.row().groups)(workers)
    }

    /// Whether readers split jobs, so that each worker gets only the packets of its own shards.
    pub fn splits_jobs(self) -> bool {
        self == Self::Farm
    }

    /// Whether dedicated threads read, besides the workers.
    pub fn has_readers(self) -> bool {
        matches!(self, Self::Farm | Self::Chain)
    }

    /// Whether each worker carries jobs through all stages, so that it may have its own source (see
    /// [`crate::run_lanes`]).
    pub fn has_lanes(self) -> bool {
        self == Self::RunToCompletion
    }
}

/// Groups of shards per worker. Workers follow one another through the groups, so there must be more groups than
/// workers; but each group costs a turn and a pass over the job.
pub const GROUPS_PER_WORKER: usize = 2;

fn following(workers: usize) -> usize {
    if workers > 1 { workers * GROUPS_PER_WORKER } else { 1 }
}

struct Row {
    name: &'static str,
    help: &'static str,
    /// From workers and tokens.
    jobs: fn(usize, usize) -> usize,
    /// From workers.
    groups: fn(usize) -> usize,
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| UnknownModel(text.to_owned()))
    }
}

/// The name of no execution model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no execution model is called {:?}; expected one of {}", .0, ModelKind::ALL.map(ModelKind::name).join(", "))]
pub struct UnknownModel(pub String);

/// How to run a plan. Results do not depend on these options; only their order may (see `ordered`).
#[derive(Clone, Debug)]
pub struct ModelOptions {
    pub kind: ModelKind,
    /// Threads that run stages, 1 to [`THREADS_MAX`]. `serial` always uses one, `pipeline` never more than there are
    /// stages, and `replicated` none that would not help.
    pub workers: usize,
    /// Farm and chain only: threads that read, besides the workers, 1 to [`THREADS_MAX`].
    pub readers: usize,
    /// Tokens only: jobs in flight at most, 1 to [`TOKENS_MAX`].
    pub tokens: usize,
    /// Farm only: deliver whole jobs in sequence order. Otherwise parts are delivered as they are done, in
    /// order per shard group. The other models always deliver in sequence order.
    pub ordered: bool,
    /// Cores to pin threads to: thread `i` to `pin_cores[i % len]`, the farm's readers after its workers. `None`
    /// leaves placement to the kernel.
    pub pin_cores: Option<Vec<usize>>,
    pub priority: Priority,
    /// Jobs that each ring between two threads holds, at least 1.
    pub ring_jobs: usize,
    /// Finished jobs that may wait for an earlier one, at least 1; when they are as many, workers wait.
    pub reorder_jobs: usize,
}

/// The cores of a run's threads, and their priority.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placement<'a> {
    /// As [`ModelOptions::pin_cores`].
    pub pin_cores: Option<&'a [usize]>,
    /// As [`ModelOptions::priority`].
    pub priority: Priority,
}

impl<'a> From<Option<&'a [usize]>> for Placement<'a> {
    fn from(pin_cores: Option<&'a [usize]>) -> Self {
        Self { pin_cores, priority: Priority::Normal }
    }
}

impl ModelOptions {
    /// The part of the options that places threads.
    pub fn placement(&self) -> Placement<'_> {
        Placement { pin_cores: self.pin_cores.as_deref(), priority: self.priority }
    }

    /// Default options for a model and a number of workers.
    pub fn new(kind: ModelKind, workers: usize) -> Self {
        Self {
            kind,
            workers,
            readers: 1,
            tokens: TOKENS_DEFAULT,
            ordered: false,
            pin_cores: None,
            priority: Priority::Normal,
            ring_jobs: 4,
            reorder_jobs: (2 * workers).clamp(4, 64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in ModelKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "threads".parse::<ModelKind>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no execution model is called \"threads\"; expected one of serial, run-to-completion, \
             pipeline, replicated, tokens, farm, chain"
        );
    }
}
