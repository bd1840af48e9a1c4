//! How a router is run, apart from its configuration.

use std::path::PathBuf;

use thalweg_exec::ModelKind;
use thalweg_exec::control_plane::SchedulingKind;

/// The command line's options for a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The configuration file, which a reload reads again.
    pub config: PathBuf,
    /// How BGP's work is spread over threads; the default is the configuration's.
    pub scheduling: Option<SchedulingKind>,
    /// Threads of that scheduling; the default is the configuration's, or the number of cores.
    pub threads: Option<usize>,
    pub model: ModelKind,
    /// Threads that work on packets; without it the configuration decides.
    pub workers: Option<usize>,
    /// The control socket; the default is the configuration's.
    pub socket: Option<PathBuf>,
    /// Treat this start as a graceful restart even without a predecessor's note.
    pub restarting: bool,
    /// Measure the time spent in each function of BGP.
    pub profile_functions: bool,
}

/// A number that is not secret, but that outsiders cannot guess.
pub(crate) fn seed_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
