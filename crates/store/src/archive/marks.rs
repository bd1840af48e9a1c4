//! Which files of an hour an archive gets and has: lines of a file in the hour's folder, which is replaced as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::dataset::{self, name_of};
use crate::error::StoreError;

/// The file with an hour's marks.
const MARKS: &str = ".archive";
const FROZEN: &str = "frozen";
const ARCHIVED: &str = "archived";

/// Which files of an hour were given to the archive, and which are there.
#[derive(Debug, Default)]
pub(crate) struct Marks(pub(super) BTreeMap<String, bool>);

impl Marks {
    /// Those of this folder; none if there are none.
    pub(crate) fn of(partition: &Path) -> Result<Self, StoreError> {
        let path = partition.join(MARKS);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read.map_err(StoreError::io("read", &path))?,
        };
        let mark = |line: &str| {
            let (word, name) = line.split_once(' ')?;
            [(FROZEN, false), (ARCHIVED, true)]
                .iter()
                .find(|(mark, _)| *mark == word)
                .map(|(_, is)| (name.to_owned(), *is))
        };
        let marks: Option<BTreeMap<String, bool>> = text.lines().map(mark).collect();
        marks.map(Self).ok_or_else(|| StoreError::Unreadable {
            path,
            what: "it does not say what is archived: put back what it was, or remove the hour's folder"
                .to_owned(),
        })
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
        let word = |is_archived: bool| if is_archived { ARCHIVED } else { FROZEN };
        let text: String = self.0.iter().map(|(name, is)| format!("{} {name}\n", word(*is))).collect();
        let mut new = dataset::Temporary::of(partition.join(MARKS));
        let mut file = fs::File::create(new.path()).map_err(StoreError::io("create", new.path()))?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(StoreError::io("write", new.path()))?;
        new.publish()?;
        dataset::sync_folder(partition)
    }

    /// Removes the marks of an hour without files.
    pub(crate) fn forget(partition: &Path) {
        // Marks that stay are of no file.
        let _ = fs::remove_file(partition.join(MARKS));
    }
}
