//! Errors of a dataset.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_flow::export::Amount;

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing} {path}: {source}{}", self.advice().map(|advice| format!(": {advice}")).unwrap_or_default())]
    Io {
        /// The failed action, as in "open".
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file is damaged, or not one of this dataset's.
    #[error("{path}: {what}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        what: String,
    },
    /// Records could not be encoded in the file format.
    #[error("cannot encode flow records: {0}")]
    Encoding(String),
    #[error(
        "{path}: another process writes this dataset{}",
        if .owner.is_empty() { String::new() } else { format!(" ({owner})") }
    )]
    Busy {
        path: PathBuf,
        /// That process's text in the lock file.
        owner: String,
    },
    /// Less space is free on the file system than the reserve.
    #[error(
        "{path}: only {} is free on the file system, and {} stays free (keep_free): free some space, or set \
         keep or keep_bytes so that the oldest records are removed",
        megabytes(*.free),
        megabytes(*.reserve)
    )]
    Reserve {
        /// The dataset.
        path: PathBuf,
        free: u64,
        reserve: u64,
    },
    /// Records could not be written before the writer ended.
    #[error("{} flow records ({} packets) are lost: {why}", .amount.records, .amount.packets)]
    Lost {
        amount: Amount,
        /// Why they could not be written.
        why: String,
    },
    /// Files kept disappearing while they were read: another program removes them.
    #[error("{0}: files keep disappearing while they are read")]
    Moving(PathBuf),
    /// The query is invalid.
    #[error("{0}")]
    Query(String),
    /// Another program's answer is not what was asked for.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// Another program did not answer.
    #[error("{0}")]
    Asked(String),
    #[error("the dataset's writer has stopped")]
    Closed,
}

impl StoreError {
    /// Adds the failed action and the path to an I/O error.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { doing, path, source }
    }

    /// Whether there is no space: the disk is full, a quota is exhausted, or the reserve is reached.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Reserve { .. } => true,
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            _ => false,
        }
    }

    /// Whether the disk takes nothing now and may do so later: it is full or read-only.
    pub fn may_pass(&self) -> bool {
        let is_read_only =
            matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem);
        self.is_full() || is_read_only
    }

    /// Whether a file is damaged or gone.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. }) || self.is_gone()
    }

    /// Advice to the operator, if there is any.
    fn advice(&self) -> Option<&'static str> {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let Self::Io { source, .. } = self else { return None };
        match source.kind() {
            StorageFull => {
                Some("remove something, or set keep or keep_bytes so that the oldest records are removed")
            }
            QuotaExceeded => {
                Some("raise the quota, or set keep_bytes below it so that the oldest records are removed")
            }
            ReadOnlyFilesystem => {
                Some("mount it read-write; a file system that had an error turns read-only (see dmesg)")
            }
            PermissionDenied => Some("let the user that this program runs as write there"),
            _ => None,
        }
    }

    /// Whether an archive has another object of this name.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Whether a file is gone that existed a moment ago.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A size for display.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_records_from_disk_is_told_with_what_to_do() {
        let cases = [
            (rustix::io::Errno::NOSPC, true, "keep_bytes"),
            (rustix::io::Errno::DQUOT, true, "quota"),
            (rustix::io::Errno::ROFS, false, "read-write"),
            (rustix::io::Errno::ACCESS, false, "let the user"),
        ];
        for (errno, is_full, advice) in cases {
            let error = StoreError::io("create", Path::new("/flows/x"))(errno.into());
            let said = error.to_string();
            assert_eq!(error.is_full(), is_full, "{said}");
            assert!(said.starts_with("cannot create /flows/x: ") && said.contains(advice), "{said}");
        }
    }
}
