//! Writes MRT files that rotate by time.
//!
//! ```text
//! rib.20260222.1530.mrt.gz        complete: readers may have it
//! .rib.20260222.1545.mrt.gz.part  growing
//! ```
//!
//! A file gets its name when it is complete, inside its directory, and never replaces another: a taken name
//! gets `.1`, `.2` .. appended. A killed process leaves a `.part` file, which the next one with the same name
//! overwrites. Names follow a pattern with `%Y %m %d %H %M %S %s %%` in UTC, where the time is the file's
//! first second (of the period, with a period).
//!
//! A record is never split over files. Writing blocks as long as the disk does, so the caller uses a thread
//! for it and bounds that thread's queue. After an error the file is abandoned and the next record begins a
//! new one, so a full disk costs only what could not be written.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use thalweg_wire::mrt::Civil;

/// The size of writes to the file.
const BUFFER_BYTES: usize = 64 * 1024;
/// The most names that are tried for a file whose name is taken.
const NAMES_MAX: u32 = 1000;

/// Names, rotation and compression of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MrtWriterOptions {
    /// Name of the files, with `%Y %m %d %H %M %S %s` for the time; directories are created.
    pub pattern: PathBuf,
    /// A new file begins at each multiple of this many seconds since the epoch.
    pub period_s: Option<u64>,
    pub gzip: bool,
}

/// A failed write.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {error}")]
pub struct MrtWriteError {
    pub path: PathBuf,
    /// The failed action, as in "create".
    pub action: &'static str,
    #[source]
    pub error: io::Error,
}

enum Packed {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

/// The incomplete file.
struct Growing {
    path: PathBuf,
    part: PathBuf,
    begun_s: u64,
    packed: Packed,
}

/// Writes records to rotating files. Dropped without [`finish`](Self::finish), it leaves a `.part` file.
pub struct MrtWriter {
    options: MrtWriterOptions,
    growing: Option<Growing>,
    published: Vec<PathBuf>,
}

impl MrtWriter {
    /// Makes a writer; a file begins with its first record.
    pub fn new(options: MrtWriterOptions) -> Self {
        Self { options, growing: None, published: Vec::new() }
    }

    /// Appends a whole record (or several that belong together). `now_s` is seconds since the epoch; a time
    /// that goes back begins no file.
    pub fn write(&mut self, now_s: u64, record: &[u8]) -> Result<(), MrtWriteError> {
        if self.growing.as_ref().is_some_and(|growing| self.is_over(growing, now_s)) {
            self.publish()?;
        }
        let mut growing = match self.growing.take() {
            Some(growing) => growing,
            None => self.begin(now_s)?,
        };
        growing.append(record)?;
        self.growing = Some(growing);
        Ok(())
    }

    /// Ends the file if its period has passed, even without a record to write.
    pub fn handle_time(&mut self, now_s: u64) -> Result<(), MrtWriteError> {
        if self.growing.as_ref().is_some_and(|growing| self.is_over(growing, now_s)) {
            self.publish()?;
        }
        Ok(())
    }

    /// Completes the current file, if there is one: the end of a dump.
    pub fn publish(&mut self) -> Result<(), MrtWriteError> {
        if let Some(growing) = self.growing.take() {
            self.published.push(growing.publish()?);
        }
        Ok(())
    }

    /// The files completed since the last call, oldest first.
    pub fn take_published(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.published)
    }

    /// Completes the last file and returns the files not yet taken.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, MrtWriteError> {
        self.publish()?;
        Ok(self.published)
    }

    fn is_over(&self, growing: &Growing, now_s: u64) -> bool {
        let period_s = self.options.period_s.filter(|period_s| *period_s > 0);
        period_s.is_some_and(|period_s| now_s / period_s > growing.begun_s / period_s)
    }

    fn begin(&self, now_s: u64) -> Result<Growing, MrtWriteError> {
        let begun_s = match self.options.period_s {
            Some(period_s) if period_s > 0 => now_s - now_s % period_s,
            _ => now_s,
        };
        let path = expand(&self.options.pattern, begun_s);
        let failed = |action, path: &Path, error| MrtWriteError { path: path.to_path_buf(), action, error };
        let Some(name) = path.file_name() else {
            return Err(failed("name a file by", &path, io::ErrorKind::InvalidInput.into()));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".part");
        let part = path.with_file_name(hidden);
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|error| failed("create", directory, error))?;
        }
        let file = File::create(&part).map_err(|error| failed("create", &part, error))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let packed = if self.options.gzip {
            Packed::Gzip(Box::new(GzEncoder::new(file, Compression::default())))
        } else {
            Packed::Plain(file)
        };
        Ok(Growing { path, part, begun_s, packed })
    }
}

impl fmt::Debug for MrtWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MrtWriter")
            .field("options", &self.options)
            .field("growing", &self.growing.as_ref().map(|growing| &growing.part))
            .finish_non_exhaustive()
    }
}

impl Growing {
    fn append(&mut self, bytes: &[u8]) -> Result<(), MrtWriteError> {
        let written = match &mut self.packed {
            Packed::Plain(file) => file.write_all(bytes),
            Packed::Gzip(file) => file.write_all(bytes),
        };
        written.map_err(|error| MrtWriteError { path: self.part.clone(), action: "write", error })
    }

    /// Completes the file, syncs it and gives it its name.
    fn publish(self) -> Result<PathBuf, MrtWriteError> {
        let part = self.part;
        let failed = |action, error| MrtWriteError { path: part.clone(), action, error };
        let file = match self.packed {
            Packed::Plain(file) => Ok(file),
            Packed::Gzip(file) => file.finish(),
        };
        let file = file.and_then(|file| file.into_inner().map_err(io::IntoInnerError::into_error));
        file.and_then(|file| file.sync_data()).map_err(|error| failed("write", error))?;
        for number in 0..NAMES_MAX {
            let mut name = self.path.clone().into_os_string();
            if number > 0 {
                name.push(format!(".{number}"));
            }
            // A link fails if the name is taken; a rename would not.
            match std::fs::hard_link(&part, &name) {
                Ok(()) => {
                    std::fs::remove_file(&part).map_err(|error| failed("remove", error))?;
                    return Ok(name.into());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(_) if !Path::new(&name).exists() => {
                    // A file system without hard links.
                    std::fs::rename(&part, &name).map_err(|error| failed("rename", error))?;
                    return Ok(name.into());
                }
                Err(error) => return Err(failed("link", error)),
            }
        }
        Err(failed("find a free name for", io::ErrorKind::AlreadyExists.into()))
    }
}

/// Expands the time in a pattern. Unknown letters after `%` stay.
fn expand(pattern: &Path, seconds: u64) -> PathBuf {
    let Some(pattern) = pattern.to_str() else { return pattern.to_path_buf() };
    let at = Civil::from_unix(seconds);
    let mut name = String::with_capacity(pattern.len() + 16);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            name.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => name.push_str(&format!("{:04}", at.year)),
            Some('m') => name.push_str(&format!("{:02}", at.month)),
            Some('d') => name.push_str(&format!("{:02}", at.day)),
            Some('H') => name.push_str(&format!("{:02}", at.hour)),
            Some('M') => name.push_str(&format!("{:02}", at.minute)),
            Some('S') => name.push_str(&format!("{:02}", at.second)),
            Some('s') => name.push_str(&seconds.to_string()),
            Some('%') => name.push('%'),
            Some(other) => name.extend(['%', other]),
            None => name.push('%'),
        }
    }
    name.into()
}
