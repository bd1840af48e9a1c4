//! How a router is run, apart from its configuration.

use std::path::PathBuf;

use thalweg_exec::ModelKind;
use thalweg_exec::control_plane::SchedulingKind;

/// What the command line says about a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The configuration's file, which a reload reads again.
    pub config: PathBuf,
    /// How BGP's work is spread over threads; without it the configuration decides.
    pub scheduling: Option<SchedulingKind>,
    /// Threads of that scheduling; without them the configuration decides, or the number of cores.
    pub threads: Option<usize>,
    /// How packets are spread over cores.
    pub model: ModelKind,
    /// Threads that work on packets; without it the configuration decides.
    pub workers: Option<usize>,
    /// The control socket; without it the configuration decides.
    pub socket: Option<PathBuf>,
    /// This start is a graceful restart, although no predecessor left a note.
    pub restarting: bool,
    /// Measures the time spent in each function of BGP.
    pub profile_functions: bool,
}

/// Not a secret, but nothing a stranger can guess from outside.
pub(crate) fn seed_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
