//! Which files of an hour an archive gets and has: lines of a file in the hour's folder, which is replaced as a whole.
//!
//! A damaged one says nothing: then all files of its hour stay, joined with no others, until they were sent again. The store
//! says that it has them, so nothing is lost or there twice. Other hours go on.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::dataset::{self, name_of};
use crate::error::StoreError;

/// The file with an hour's marks.
pub(super) const MARKS: &str = ".archive";
const FROZEN: &str = "frozen";
const ARCHIVED: &str = "archived";

/// Which files of an hour were given to the archive, and which are there.
#[derive(Debug, Default)]
pub(crate) struct Marks(pub(super) BTreeMap<String, bool>);

impl Marks {
    /// Those of this folder, none if there are none. Fails in words if they cannot be read.
    pub(super) fn read(partition: &Path) -> Result<Self, String> {
        let text = match fs::read_to_string(partition.join(MARKS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read.map_err(|error| error.to_string())?,
        };
        let mark = |line: &str| {
            let (word, name) = line.split_once(' ')?;
            [(FROZEN, false), (ARCHIVED, true)]
                .iter()
                .find(|(mark, _)| *mark == word)
                .map(|(_, is)| (name.to_owned(), *is))
        };
        let marks: Option<BTreeMap<String, bool>> = text.lines().map(mark).collect();
        // The last line may have been cut short.
        let marks = marks.filter(|_| text.ends_with('\n'));
        marks.map(Self).ok_or_else(|| "it is damaged".to_owned())
    }

    /// For an hour of which nobody knows what is archived: nothing is, and all of its files may be given to the archive.
    pub(super) fn of_unknown(partition: &Path) -> Result<Self, StoreError> {
        let files = dataset::published(partition)?;
        Ok(Self(files.iter().map(|file| (name_of(file).to_owned(), false)).collect()))
    }

    /// Whether a file was or is given to the archive: it must stay what it is.
    pub(crate) fn is_frozen(&self, path: &Path) -> bool {
        self.0.contains_key(name_of(path))
    }

    /// Whether a file is there.
    pub(crate) fn is_archived(&self, path: &Path) -> bool {
        self.0.get(name_of(path)).copied().unwrap_or(false)
    }

    pub(super) fn save(&self, partition: &Path) -> Result<(), StoreError> {
        if self.0.is_empty() {
            Self::forget(partition);
            return Ok(());
        }
        let word = |is_archived: bool| if is_archived { ARCHIVED } else { FROZEN };
        let text: String = self.0.iter().map(|(name, is)| format!("{} {name}\n", word(*is))).collect();
        dataset::replace(partition, MARKS, &text)
    }

    /// Removes the marks of an hour without files.
    pub(crate) fn forget(partition: &Path) {
        // Marks that stay are of no file.
        let _ = fs::remove_file(partition.join(MARKS));
    }
}
