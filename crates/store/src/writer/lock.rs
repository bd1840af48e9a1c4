//! The right to write a dataset: a lock on a file in its folder. The file names the writer; it is empty if
//! the last writer ended cleanly.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// Engines that read a folder of Parquet files skip names that begin with a dot.
const LOCK_FILE: &str = ".writer.lock";
/// The most bytes of a lock file that are read.
const TEXT_MAX: u64 = 1024;

/// The held lock.
#[derive(Debug)]
pub(super) struct Lock {
    root: PathBuf,
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Takes the lock of the dataset in this folder, which is created if necessary; returns the last owner's
    /// text in the file.
    pub(super) fn take(root: &Path) -> Result<(Self, String), StoreError> {
        fs::create_dir_all(root).map_err(StoreError::io("create the dataset", root))?;
        let path = root.join(LOCK_FILE);
        let (file, left) = open(root, &path)?;
        Ok((Self { root: root.to_path_buf(), path, file }, left))
    }

    /// Writes the owner into the file. On a full disk the last owner's text stays there: it is written over, and cut only
    /// afterwards.
    pub(super) fn sign(&mut self, owner: &str) -> Result<(), StoreError> {
        let (file, text) = (&mut self.file, format!("{owner}\n"));
        let written = file.rewind().and_then(|()| file.write_all(text.as_bytes()));
        let signed = written.and_then(|()| file.set_len(text.len() as u64)).and_then(|()| file.sync_all());
        signed.map_err(StoreError::io("write", &self.path))
    }

    /// Whether the locked file is still the one in the folder, which may have been removed.
    pub(super) fn is_in_place(&self) -> bool {
        let numbers = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::metadata(&self.path).map(numbers);
        there.is_ok_and(|there| self.file.metadata().map(numbers).is_ok_and(|held| held == there))
    }

    /// Takes the lock again in a folder that was removed or replaced.
    pub(super) fn take_again(&mut self, owner: &str) -> Result<(), StoreError> {
        let (mut lock, _) = Self::take(&self.root)?;
        lock.sign(owner)?;
        *self = lock;
        Ok(())
    }

    /// Releases the lock. `is_clean` means that nothing was lost.
    pub(super) fn release(&mut self, is_clean: bool) -> Result<(), StoreError> {
        let emptied = match is_clean {
            true => self.file.set_len(0).and_then(|()| self.file.sync_all()),
            false => Ok(()),
        };
        // Closing the file is not enough: a child process between fork and exec has it open too.
        let unlocked = self.file.unlock();
        emptied.map_err(StoreError::io("write", &self.path))?;
        unlocked.map_err(StoreError::io("unlock", &self.path))
    }
}

/// Opens and locks a lock file; returns it with its text.
fn open(root: &Path, path: &Path) -> Result<(File, String), StoreError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(StoreError::io("open", path))?;
    let mut left = Vec::new();
    let locked = file.try_lock();
    Read::by_ref(&mut file).take(TEXT_MAX).read_to_end(&mut left).map_err(StoreError::io("read", path))?;
    let left = String::from_utf8_lossy(&left).trim().to_owned();
    match locked {
        Ok(()) => Ok((file, left)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path: root.to_path_buf(), owner: left }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", path)(error)),
    }
}
