//! Where the bytes of a flow file are: on disk, or in a store of objects, which is asked for ranges.
//!
//! A request costs money and a round trip, and small columns lie beside each other. So objects are read by whole blocks, and
//! the blocks that were read last are kept: an object of up to 128 KB takes one request with its footer, or two if many
//! footers were read in between.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Cursor};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

use crate::object::ObjectStore;

/// The end of an object that is read first: it has the footer, unless the file is large.
const TAIL_BYTES: u64 = 128 << 10;
/// What is read at once of an object, from a multiple of this on. More than that is read as it is asked for.
const BLOCK_BYTES: u64 = 64 << 10;
/// The most bytes that are kept, for all objects together, and the most pieces.
const KEPT_BYTES: u64 = 64 << 20;
const KEPT_PIECES: usize = 1024;

/// The parts of objects that were read last, the latest behind.
static KEPT: Mutex<VecDeque<Piece>> = Mutex::new(VecDeque::new());
/// The number of the next object.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A part of an object in memory.
struct Piece {
    object: u64,
    start: u64,
    bytes: Bytes,
}

/// An open file.
#[derive(Debug)]
pub(super) enum Source {
    Disk(File),
    Object(Object),
}

/// An open object.
#[derive(Debug)]
pub(super) struct Object {
    store: Arc<dyn ObjectStore>,
    key: String,
    size: u64,
    number: u64,
}

impl Object {
    pub(super) fn new(store: &Arc<dyn ObjectStore>, key: &str, size: u64) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { store: Arc::clone(store), key: key.to_owned(), size, number }
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        if let Some(bytes) = self.kept(&range) {
            return Ok(bytes);
        }
        if range.end - range.start > BLOCK_BYTES {
            return self.store.read(&self.key, range).map(Bytes::from);
        }
        let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end.next_multiple_of(BLOCK_BYTES).min(self.size);
        let block = Bytes::from(self.store.read(&self.key, start..end.max(range.end))?);
        self.keep(start, block.clone());
        part_of(start, &block, &range).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn kept(&self, range: &Range<u64>) -> Option<Bytes> {
        let pieces = KEPT.lock();
        let mut own = pieces.iter().rev().filter(|piece| piece.object == self.number);
        own.find_map(|piece| part_of(piece.start, &piece.bytes, range))
    }

    fn keep(&self, start: u64, bytes: Bytes) {
        let mut pieces = KEPT.lock();
        pieces.push_back(Piece { object: self.number, start, bytes });
        let mut kept: u64 = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
        while (kept > KEPT_BYTES || pieces.len() > KEPT_PIECES)
            && let Some(oldest) = pieces.pop_front()
        {
            kept -= oldest.bytes.len() as u64;
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        KEPT.lock().retain(|piece| piece.object != self.number);
    }
}

/// This range of an object, if it is in these bytes of it.
fn part_of(start: u64, bytes: &Bytes, range: &Range<u64>) -> Option<Bytes> {
    let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
    let to = usize::try_from(range.end.checked_sub(start)?).ok()?;
    (from <= to && to <= bytes.len()).then(|| bytes.slice(from..to))
}

impl Source {
    /// A part of it; `bytes` may become that.
    pub(super) fn bytes(&self, start: u64, length: usize, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk(file) => {
                bytes.resize(length, 0);
                file.read_exact_at(&mut bytes, start).map(|()| bytes)
            }
            Self::Object(object) => object.read(start..start.saturating_add(length as u64)).map(Vec::from),
        }
    }

    /// What the footer says.
    pub(super) fn footer(&self) -> ParquetResult<ParquetMetaData> {
        let object = match self {
            Self::Disk(file) => return ParquetMetaDataReader::new().parse_and_finish(file),
            Self::Object(object) => object,
        };
        let start = object.size.saturating_sub(TAIL_BYTES);
        let tail = object.store.read(&object.key, start..object.size).map_err(outside)?;
        object.keep(start, tail.into());
        ParquetMetaDataReader::new().parse_and_finish(object)
    }
}

fn outside(error: io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl Length for Object {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Object {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        self.read(start..self.size.max(start)).map(Cursor::new).map_err(outside)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let end = start.saturating_add(length as u64);
        if end > self.size {
            return Err(ParquetError::EOF("bytes behind the end".to_owned()));
        }
        self.read(start..end).map_err(outside)
    }
}
