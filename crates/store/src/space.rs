//! Free space on a dataset's file system.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;

use crate::error::StoreError;

/// The default reserve: this fraction of the file system, but at most this many bytes.
const RESERVE_PART: u64 = 20;
const RESERVE_BYTES_MAX: u64 = 1_000_000_000;

/// Bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) total: u64,
    /// Available to unprivileged programs.
    pub(crate) free: u64,
    pub(crate) is_read_only: bool,
}

impl Space {
    /// The file system of this path; `None` if the system does not say.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let facts = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        let is_read_only = facts.f_flag.contains(StatVfsMountFlags::RDONLY);
        Some(Self { total: bytes(facts.f_blocks), free: bytes(facts.f_bavail), is_read_only })
    }

    /// The configured number of bytes to keep free, or the default.
    pub(crate) fn reserve(self, configured: Option<u64>) -> u64 {
        configured.unwrap_or_else(|| (self.total / RESERVE_PART).min(RESERVE_BYTES_MAX))
    }
}

/// Fails if less than the reserve is free, or the file system is read-only.
pub(crate) fn check(root: &Path, configured: Option<u64>) -> Result<(), StoreError> {
    let Some(space) = Space::of(root) else { return Ok(()) };
    if space.is_read_only {
        return Err(StoreError::io("write to", root)(rustix::io::Errno::ROFS.into()));
    }
    let reserve = space.reserve(configured);
    match space.free < reserve {
        true => Err(StoreError::Reserve { path: root.to_path_buf(), free: space.free, reserve }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_part_of_small_disks_and_a_gigabyte_of_large_ones() {
        let of = |total| Space { total, free: 0, is_read_only: false };
        assert_eq!(of(8_000_000).reserve(None), 400_000);
        assert_eq!(of(4_000_000_000_000).reserve(None), 1_000_000_000);
        assert_eq!(of(4_000_000_000_000).reserve(Some(7)), 7);
    }

    #[test]
    fn less_than_the_reserve_is_told_with_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(check(folder.path(), Some(0)).is_ok());
        let error = check(folder.path(), Some(u64::MAX)).expect_err("nobody has so much");
        assert!(error.is_full());
        let said = error.to_string();
        assert!(said.contains("is free on the file system") && said.contains("keep_free"), "{said}");
    }
}
