//! Which folders an archive was sent from, where several of both are asked as one: writers of two datasets may have given
//! the same name to files, and these may even have the same size.
//!
//! Each writer's folder has the names of the archives that it was ever sent to, as lines of `.archive`. A folder and an
//! archive that are in no pair, a copy of either perhaps, are taken for each other's.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dataset;
use crate::error::StoreError;
use crate::object::ObjectStore;

/// The file with the names, in a writer's folder.
const NAMES: &str = ".archive";

fn names_of(part: &Path) -> String {
    // Without it, a folder is taken for one that was never sent.
    fs::read_to_string(part.join(NAMES)).unwrap_or_default()
}

/// Notes that this folder is sent there, before anything is.
pub(super) fn note(part: &Path, name: &str) -> Result<(), StoreError> {
    let mut names = names_of(part);
    if names.lines().any(|known| known == name) {
        return Ok(());
    }
    names = names.lines().chain([name]).map(|name| format!("{name}\n")).collect();
    dataset::replace(part, NAMES, &names)
}

/// The pairs of a question.
pub(crate) struct Pairs {
    /// A writer's folder, and an archive that it was sent to.
    known: HashSet<(PathBuf, String)>,
    /// Those in no pair.
    parts: HashSet<PathBuf>,
    archives: HashSet<String>,
}

impl Pairs {
    pub(super) fn of(parts: &[PathBuf], archives: &[Arc<dyn ObjectStore>]) -> Self {
        let mut pairs = Self {
            known: HashSet::new(),
            parts: parts.iter().cloned().collect(),
            archives: archives.iter().map(|store| store.name().to_owned()).collect(),
        };
        for part in parts {
            // A further writer's folder goes where the others of its dataset go.
            let all = [names_of(part), names_of(dataset::home(part))].concat();
            for name in all.lines().filter(|name| archives.iter().any(|store| store.name() == *name)) {
                pairs.known.insert((part.clone(), name.to_owned()));
                pairs.parts.remove(part);
                pairs.archives.remove(name);
            }
        }
        pairs
    }

    /// Whether files of this folder may be in this archive.
    pub(super) fn has(&self, part: &Path, archive: &str) -> bool {
        self.known.contains(&(part.to_path_buf(), archive.to_owned()))
            || self.parts.contains(part) && self.archives.contains(archive)
    }
}
