//! The files that a configuration names.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Files and folders that a configuration names: all that a router has to reach in the file system for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Files that are read.
    pub read: BTreeSet<PathBuf>,
    /// Folders in which files or sockets are made. Some may not exist yet.
    pub written: BTreeSet<PathBuf>,
}
