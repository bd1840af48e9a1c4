//! Where tests find real data: captures, tables, messages that are too large to be part of the repository.
//!
//! The data lies in `data/` of the folder that `THALWEG_SHARED` names, else of `../shared` beside the
//! repository. A test that misses it says so, past the test runner's capture, and goes without; `.ci/run`
//! lists those lines.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The path of a file or folder of test data, if it is here. `path` is relative to the data's root.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("THALWEG_SHARED").map_or_else(beside, PathBuf::from);
    let path = root.join("data").join(path);
    match std::fs::canonicalize(&path) {
        Ok(path) => Some(path),
        Err(error) => {
            skipped(&format!("{}: {error}; set THALWEG_SHARED", path.display()));
            None
        }
    }
}

/// Says that a comparison is left out, and why, where the test runner cannot swallow it.
pub fn skipped(why: &str) {
    // Nothing can be done if even this fails.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_not_there_is_none() {
        assert_eq!(super::shared("no/such/file"), None);
    }
}
