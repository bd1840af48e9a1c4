//! For tests: collectors of other projects, and the place of real data (captures, tables, messages) that is too large
//! for the repository.
//!
//! The data is in `data/` of the folder that `THALWEG_SHARED` names, else of `../shared` beside the repository. A
//! test that misses it says so, past the test runner's capture, and goes without; `.ci/run` lists those lines.

pub mod collectors;
mod datagrams;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use datagrams::{Datagram, datagrams};

/// The path of a file or folder of test data, if it is here. `path` is relative to the data's root.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("THALWEG_SHARED").map_or_else(beside, PathBuf::from);
    find(&root, path).map_err(|why| skipped(&why)).ok()
}

fn find(root: &Path, path: &str) -> Result<PathBuf, String> {
    let path = root.join("data").join(path);
    let missing = |error| format!("{}: {error}; set THALWEG_SHARED", path.display());
    std::fs::canonicalize(&path).map_err(missing)
}

/// Says that a comparison is left out, and why, where the test runner cannot swallow it.
pub fn skipped(why: &str) {
    // Nothing can be done if even this fails.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Pauses between two questions to a program. The first are short, as most answers are there soon; then they grow, as each question
/// starts programs, and many tests that wait would keep each other from what they wait for.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(Duration::from_millis(20))
    }
}

impl Pauses {
    /// The longest.
    const MAX: Duration = Duration::from_millis(200);

    /// The next pause.
    pub fn pause(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 3 / 2).min(Self::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn what_is_not_there_is_named() {
        let why = super::find(Path::new("no/such"), "pcap").expect_err("nothing is there");
        assert!(why.starts_with("no/such/data/pcap: ") && why.ends_with("; set THALWEG_SHARED"), "{why}");
    }
}
