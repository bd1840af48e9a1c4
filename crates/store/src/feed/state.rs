//! Where a feed is: lines of a file in the folder of a writer, which is replaced as a whole.

use std::fs;
use std::io;
use std::path::Path;

use crate::dataset::{self, file_id};
use crate::error::StoreError;
use crate::file::FlowFile;

/// The name of the file.
pub(super) const STATE: &str = ".feed";
/// Its first line.
const MARK: &str = "thalweg feed 1";

/// Where a feed is, as `DIR/.feed` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fed {
    /// The place.
    pub(super) to: String,
    /// The name by which the place knows this writer.
    pub(super) writer: String,
    /// The number of the first file that was written since the feed began.
    pub(super) first: u64,
    /// Files up to this number were sent.
    pub(crate) sent: u64,
}

impl Fed {
    /// Begins a feed to a place; files from this number on are written during it.
    pub(super) fn begin(root: &Path, to: &str, first: u64) -> Result<Self, StoreError> {
        let fed = Self { to: to.to_owned(), writer: new_name()?, first, sent: 0 };
        fed.save(root)?;
        Ok(fed)
    }

    /// What the folder of a writer says, and why that cannot be read; `None` if it has no feed.
    pub(crate) fn read(root: &Path) -> Result<Option<Self>, String> {
        let text = match fs::read_to_string(root.join(STATE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| error.to_string())?,
        };
        let damaged =
            || "it is damaged: nobody knows what was sent; remove it to send everything again".to_owned();
        Self::parse(&text).map(Some).ok_or_else(damaged)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let rest = value("thalweg")?;
        (MARK.strip_prefix("thalweg ") == Some(rest)).then_some(())?;
        let (to, writer) = (value("to")?.to_owned(), value("writer")?.to_owned());
        let (first, sent) = (value("first")?.parse().ok()?, value("sent")?.parse().ok()?);
        Some(Self { to, writer, first, sent })
    }

    pub(super) fn save(&self, root: &Path) -> Result<(), StoreError> {
        let Self { to, writer, first, sent } = self;
        dataset::replace(
            root,
            STATE,
            &format!("{MARK}\nto {to}\nwriter {writer}\nfirst {first}\nsent {sent}\n"),
        )
    }

    /// Whether the records of a file with this number were sent; if that does not say it, whether it replaces others must.
    pub(super) fn has<E>(&self, id: u64, replaces: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        Ok(id <= self.sent || (id >= self.first && replaces()?))
    }

    /// The number of a file whose records were not sent. Fails if it must be opened for that and cannot be.
    pub(super) fn lacks(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        let replaces = || FlowFile::open(path).map(|file| !file.replaces.is_empty());
        match file_id(path) {
            Some(id) => Ok((!self.has(id, replaces)?).then_some(id)),
            // It is another program's.
            None => Ok(None),
        }
    }
}

/// A name that no other writer has, wherever it runs.
fn new_name() -> Result<String, StoreError> {
    let path = Path::new("/proc/sys/kernel/random/uuid");
    let text = fs::read_to_string(path).map_err(StoreError::io("read", path))?;
    Ok(format!("thalweg-{}", text.trim()))
}
