//! Reads MRT files record by record, and writes them in rotation. `thalweg_wire::mrt` has the format.
//!
//! ```text
//! file -> (decompress, its own thread, a few blocks ahead) -> buffer -> frame -> decode -> one record at a time
//! ```
//!
//! # Promises
//! - **Constant memory.** The buffer holds one record, at most [`RECORD_BYTES_MAX`], and what was read with
//!   it; the table of peers is stored separately (at most 65,535 of them).
//! - **Records stay where they were read.** The reader returns views of its buffer.
//! - **Damage is reported, not hidden.** The error for a malformed record has file, number, offset and what
//!   was expected; its length gives the position of the next record. If the length is wrong (the record was
//!   torn while it was written), reading continues at the next plausible record (`resync`), and skipped bytes
//!   are reported and counted. If there is none, or a compressed stream ends early, everything before is
//!   delivered, then the error, then nothing. Offsets count in the uncompressed stream, records from 1.
//! - Compression (gzip, bzip2, Zstandard) is recognized by content.
//!
//! A written file gets its final name when it is complete; see [`MrtWriter`].

mod resync;
mod rotate;

#[cfg(test)]
mod tests;

use crate::input::{ReadAhead, decompressed};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use thalweg_base::uninterrupted;
use thalweg_wire::mrt::{
    Content, Decoder, Fault, HEADER_BYTES, PeerIndex, Record, RecordType, TooLong, frame,
};

pub use rotate::{MrtWriteError, MrtWriter, MrtWriterOptions};
pub use thalweg_wire::mrt::RECORD_BYTES_MAX;

/// Bytes requested from the source at once.
const READ_BYTES: usize = 256 * 1024;

/// An error in a file or one of its records.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {}{problem}", place(*.record, *.offset))]
pub struct MrtError {
    /// The file as named by the caller.
    pub file: String,
    /// The number of the record, from 1; 0 if the file could not be opened.
    pub record: u64,
    /// Where the record begins in the uncompressed stream.
    pub offset: u64,
    #[source]
    pub problem: MrtProblem,
}

/// Kinds of [`MrtError`].
#[derive(Debug, thiserror::Error)]
pub enum MrtProblem {
    #[error(transparent)]
    Open(io::Error),
    /// The file does not begin with a record of a registered type.
    #[error("expected MRT, whose records begin with time and type, found type {}/{}", .0.kind, .0.subtype)]
    NotMrt(RecordType),
    /// A record is malformed; the next one follows.
    #[error("{0}: {1}")]
    Record(RecordType, #[source] Fault),
    /// The record was torn; the next plausible one follows.
    #[error("damaged record: its length leads to no other record; skipped {skipped} bytes")]
    Torn {
        /// Bytes passed over.
        skipped: u64,
    },
    /// A record is implausibly long, and no other follows it.
    #[error(transparent)]
    TooLong(TooLong),
    /// The file ends inside a record.
    #[error("expected {wanted} bytes of record, found the end of the file after {left}")]
    CutOff {
        /// Bytes of the record (or its header).
        wanted: usize,
        /// Bytes that exist.
        left: usize,
    },
    /// Reading failed, or a compressed stream is damaged or ends early.
    #[error("expected a record, but reading failed after {left} bytes of it: {error}")]
    Read {
        #[source]
        error: io::Error,
        /// Bytes of a record that had been read.
        left: usize,
    },
}

impl MrtError {
    /// Whether records may follow.
    pub fn is_last(&self) -> bool {
        !matches!(self.problem, MrtProblem::Record(..) | MrtProblem::Torn { .. })
    }
}

/// Empty if no record was reached.
fn place(record: u64, offset: u64) -> String {
    if record == 0 { String::new() } else { format!("record {record} at byte {offset}: ") }
}

/// A record with its position.
#[derive(Debug)]
pub struct MrtItem<'a> {
    /// From 1.
    pub number: u64,
    /// Where it begins in the uncompressed stream.
    pub offset: u64,
    pub record: Record<'a>,
    pub content: Content<'a>,
}

/// Reads a file record by record.
pub struct MrtReader {
    name: String,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The unread bytes are at `start..filled`.
    start: usize,
    filled: usize,
    /// Position of `start` in the uncompressed stream.
    offset: u64,
    records: u64,
    /// Time of the last readable record.
    last_time_s: Option<u32>,
    decoder: Decoder,
    /// The source is exhausted.
    ended: bool,
    failure: Option<io::Error>,
}

impl MrtReader {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Self, MrtError> {
        let (name, source): (_, io::Result<Box<dyn Read + Send>>) = if path.as_os_str() == "-" {
            ("standard input".to_owned(), Ok(Box::new(io::stdin())))
        } else {
            let open = || {
                let file = File::open(path)?;
                if file.metadata()?.is_dir() {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                Ok(Box::new(file) as Box<dyn Read + Send>)
            };
            (path.display().to_string(), open())
        };
        match source {
            Ok(source) => Self::new(&name, source),
            Err(error) => Err(open_error(&name, error)),
        }
    }

    /// Reads from any source; messages use `name`.
    pub fn new(name: &str, source: impl Read + Send + 'static) -> Result<Self, MrtError> {
        let (compressed, source) = decompressed(source).map_err(|error| open_error(name, error))?;
        let source = if compressed {
            ReadAhead::spawn(source).map_err(|error| open_error(name, error))?
        } else {
            source
        };
        Ok(Self {
            name: name.to_owned(),
            source,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            offset: 0,
            records: 0,
            last_time_s: None,
            decoder: Decoder::new(),
            ended: false,
            failure: None,
        })
    }

    /// The name of the file in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The latest table of peers.
    pub fn peers(&self) -> Option<&PeerIndex> {
        self.decoder.peers()
    }

    /// The next record, or its error; `None` at the end and after an error that is the last.
    #[allow(clippy::should_implement_trait)] // The item borrows from the reader.
    pub fn next(&mut self) -> Option<Result<MrtItem<'_>, MrtError>> {
        let length = match self.await_record() {
            Ok(length) => length?,
            Err(problem) => return Some(Err(self.astray(problem))),
        };
        if let Some(skipped) = self.torn(length) {
            let error = self.torn_error(skipped as u64);
            self.pass(skipped);
            return Some(Err(error));
        }
        let (start, offset) = (self.start, self.offset);
        self.pass(length);
        self.records += 1;
        let number = self.records;
        // Framed again: this shows the borrow checker that nothing is read in between.
        let bytes = self.buffer.get(start..self.filled).unwrap_or_default();
        let Ok(Some((record, _))) = frame(bytes) else { return None };
        if record.kind.kind_name().is_some() {
            self.last_time_s = Some(record.time_s);
        }
        match self.decoder.decode(&record) {
            Ok(content) => Some(Ok(MrtItem { number, offset, record, content })),
            Err(fault) => {
                let problem = if number == 1 && record.kind.kind_name().is_none() {
                    self.ended = true;
                    self.start = self.filled;
                    MrtProblem::NotMrt(record.kind)
                } else {
                    MrtProblem::Record(record.kind, fault)
                };
                Some(Err(MrtError { file: self.name.clone(), record: number, offset, problem }))
            }
        }
    }

    /// Reads until the buffer begins with a whole record; returns its length.
    fn await_record(&mut self) -> Result<Option<usize>, MrtProblem> {
        loop {
            let bytes = self.buffer.get(self.start..self.filled).unwrap_or_default();
            match frame(bytes) {
                Ok(Some((_, length))) => return Ok(Some(length)),
                Ok(None) if !self.ended => self.fill(),
                Ok(None) => {
                    let left = bytes.len();
                    let wanted = wanted(bytes);
                    return match self.failure.take() {
                        Some(error) => Err(MrtProblem::Read { error, left }),
                        None if left == 0 => Ok(None),
                        None => Err(MrtProblem::CutOff { wanted, left }),
                    };
                }
                Err(error) if self.records == 0 && error.kind.kind_name().is_none() => {
                    return Err(MrtProblem::NotMrt(error.kind));
                }
                Err(error) => return Err(MrtProblem::TooLong(error)),
            }
        }
    }

    /// Bytes that were read but not returned yet.
    fn buffered(&self) -> &[u8] {
        self.buffer.get(self.start..self.filled).unwrap_or_default()
    }

    /// Reads until the buffer has this many bytes, or the source ends.
    fn await_bytes(&mut self, count: usize) {
        while self.filled - self.start < count && !self.ended {
            self.fill();
        }
    }

    /// Handles bytes that are not a record: continues at the next one, or returns the final error.
    fn astray(&mut self, problem: MrtProblem) -> MrtError {
        if matches!(problem, MrtProblem::TooLong(_) | MrtProblem::CutOff { .. }) {
            let offset = self.offset;
            if let Some(skipped) = self.resync() {
                return MrtError { offset, ..self.torn_error(skipped) };
            }
            return MrtError { offset, ..self.last_error(problem) };
        }
        self.last_error(problem)
    }

    /// The error for a torn record, which counts as one record.
    fn torn_error(&mut self, skipped: u64) -> MrtError {
        self.records += 1;
        let problem = MrtProblem::Torn { skipped };
        MrtError { file: self.name.clone(), record: self.records, offset: self.offset, problem }
    }

    /// Reads once. The unread bytes move to the front of the buffer, which grows only for a record that does
    /// not fit, and never beyond the longest record.
    fn fill(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.filled + READ_BYTES {
            self.buffer.resize(self.filled + READ_BYTES, 0);
        }
        let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
        match uninterrupted(|| self.source.read(room)) {
            Ok(0) => self.ended = true,
            Ok(n) => self.filled += n,
            Err(error) => {
                self.failure = Some(error);
                self.ended = true;
            }
        }
    }

    /// An error after which nothing follows.
    fn last_error(&mut self, problem: MrtProblem) -> MrtError {
        self.ended = true;
        self.start = self.filled;
        MrtError { file: self.name.clone(), record: self.records + 1, offset: self.offset, problem }
    }
}

impl fmt::Debug for MrtReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MrtReader")
            .field("name", &self.name)
            .field("records", &self.records)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// The length of the first record in `bytes`, by its length field.
fn wanted(bytes: &[u8]) -> usize {
    let length = bytes.get(8..HEADER_BYTES).and_then(|field| field.first_chunk::<4>());
    HEADER_BYTES + length.map_or(0, |field| u32::from_be_bytes(*field) as usize)
}

fn open_error(name: &str, error: io::Error) -> MrtError {
    MrtError { file: name.to_owned(), record: 0, offset: 0, problem: MrtProblem::Open(error) }
}
