//! Helpers for all tests of the binary: the repository's root, and running the binary there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the binary in the repository's root.
pub(crate) fn thalweg(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("the binary runs")
}
