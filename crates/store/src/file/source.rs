//! Where the bytes of a flow file are: on disk, or in a store of objects, which is asked for ranges.

use std::fs::File;
use std::io::{self, Cursor};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

use crate::object::ObjectStore;

/// The end of an object that is read first: it has the footer, unless the file is large.
const TAIL_BYTES: u64 = 128 << 10;

/// An open file.
#[derive(Debug)]
pub(super) enum Source {
    Disk(File),
    Object(Arc<dyn ObjectStore>, String),
}

impl Source {
    /// A part of it; `bytes` may become that.
    pub(super) fn bytes(&self, start: u64, length: usize, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk(file) => {
                bytes.resize(length, 0);
                file.read_exact_at(&mut bytes, start).map(|()| bytes)
            }
            Self::Object(store, key) => store.read(key, start..start.saturating_add(length as u64)),
        }
    }

    /// What the footer says.
    pub(super) fn footer(&self, size: u64) -> ParquetResult<ParquetMetaData> {
        if let Self::Disk(file) = self {
            return ParquetMetaDataReader::new().parse_and_finish(file);
        }
        let start = size.saturating_sub(TAIL_BYTES);
        let length = usize::try_from(size - start).unwrap_or(usize::MAX);
        let tail = self.bytes(start, length, Vec::new()).map_err(outside)?;
        ParquetMetaDataReader::new().parse_and_finish(&Tail { source: self, size, start, tail: tail.into() })
    }
}

fn outside(error: io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// An object whose end is in memory.
struct Tail<'a> {
    source: &'a Source,
    size: u64,
    start: u64,
    tail: Bytes,
}

impl Length for Tail<'_> {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Tail<'_> {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let length = self.size.saturating_sub(start);
        self.get_bytes(start, usize::try_from(length).unwrap_or(usize::MAX)).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let Some(at) = start.checked_sub(self.start) else {
            return self.source.bytes(start, length, Vec::new()).map(Bytes::from).map_err(outside);
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match at.checked_add(length).filter(|end| *end <= self.tail.len()) {
            Some(end) => Ok(self.tail.slice(at..end)),
            None => Err(ParquetError::EOF("bytes behind the end".to_owned())),
        }
    }
}
