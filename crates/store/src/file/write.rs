//! Writes flow files: blocks become row groups of a temporary file, which is complete on disk before it gets
//! its name.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::hash::Hash;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};

use super::{FOOTER_KEY, FORMAT_KEY, REPLACES_KEY, SUMS_KEY, VERSION, checksum};
use crate::block::{Addresses, Block, Column};
use crate::error::StoreError;
use crate::schema::{COLUMNS, SCHEMA, UNIT_NS, writer_properties};
use thalweg_flow::fields::{Field, Kind};
use thalweg_wire::MacAddr;

/// A file that is being written.
pub(crate) struct FileWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    /// Names of the files that it will replace, separated by commas.
    replaces: String,
    /// Checksums of the columns of row groups.
    sums: Vec<Vec<u64>>,
}

impl FileWriter {
    /// Begins a file that will replace the named ones in the same folder.
    pub(crate) fn create(path: &Path, replaces: &[String]) -> Result<Self, StoreError> {
        // Written data is read again for the checksums.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let file = file.map_err(StoreError::io("create", path))?;
        let replaces = replaces.join(",");
        let mut pairs = vec![KeyValue::new(FORMAT_KEY.to_owned(), VERSION.to_owned())];
        if !replaces.is_empty() {
            pairs.push(KeyValue::new(REPLACES_KEY.to_owned(), replaces.clone()));
        }
        let properties = writer_properties().set_key_value_metadata(Some(pairs)).build();
        let Some(root) = &*SCHEMA else {
            return Err(StoreError::Encoding("the schema is impossible".to_owned()));
        };
        let writer = SerializedFileWriter::new(file, root.clone(), Arc::new(properties))
            .map_err(|error| failed(path, error))?;
        Ok(Self { path: path.to_path_buf(), writer, replaces, sums: Vec::new() })
    }

    pub(crate) fn append(&mut self, block: &Block) -> Result<(), StoreError> {
        self.append_columns(block).map_err(|error| match error {
            WriteError::Parquet(error) => failed(&self.path, error),
            WriteError::Store(error) => error,
        })?;
        self.sum_last_group().map_err(StoreError::io("write", &self.path))
    }

    /// Computes the checksums of the last row group from the bytes in the file.
    fn sum_last_group(&mut self) -> std::io::Result<()> {
        self.writer.flush()?;
        let Some(group) = self.writer.flushed_row_groups().last() else { return Ok(()) };
        let mut sums = Vec::with_capacity(group.num_columns());
        let mut bytes = Vec::new();
        for column in group.columns() {
            let (start, length) = column.byte_range();
            bytes.resize(length as usize, 0);
            self.writer.inner().read_exact_at(&mut bytes, start)?;
            sums.push(checksum::sum(&bytes));
        }
        self.sums.push(sums);
        Ok(())
    }

    fn append_columns(&mut self, block: &Block) -> Result<(), WriteError> {
        let mut group = self.writer.next_row_group()?;
        for column in &*COLUMNS {
            let Some(mut writer) = group.next_column()? else {
                return Err(WriteError::Store(StoreError::Encoding("a column is missing".to_owned())));
            };
            match column.is_rest {
                false => write_column(&mut writer, column.field, block.column(column.field)?)?,
                true => write_rest(&mut writer, column.field, block.wide(column.field)?)?,
            }
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the footer and syncs the file.
    pub(crate) fn finish(mut self) -> Result<(), StoreError> {
        let sums = checksum::write_sums(&self.sums);
        let groups = self.writer.flushed_row_groups();
        let footer = checksum::sum_of_footer(groups, &[VERSION, &self.replaces, &sums]);
        for (key, value) in [(SUMS_KEY, sums), (FOOTER_KEY, format!("{footer:016x}"))] {
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let path = self.path;
        let file = self.writer.into_inner().map_err(|error| failed(&path, error))?;
        file.sync_all().map_err(StoreError::io("sync", &path))
    }
}

/// A write error of the Parquet library usually wraps an error of the system.
fn failed(path: &Path, error: ParquetError) -> StoreError {
    let source = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => *source,
            Err(other) => std::io::Error::other(other),
        },
        other => std::io::Error::other(other),
    };
    StoreError::Io { doing: "write", path: path.to_path_buf(), source }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum WriteError {
    Parquet(#[from] ParquetError),
    Store(#[from] StoreError),
}

fn write_column(
    writer: &mut SerializedColumnWriter<'_>,
    id: Field,
    column: &Column,
) -> Result<(), ParquetError> {
    let row = id.row();
    match column {
        Column::Wide(values) if row.kind == Kind::Mac => {
            let text = |number: &u64| MacAddr::from_u64(*number).to_string().into_bytes();
            let (levels, present) = words(values, row.absent, text);
            writer.typed::<ByteArrayType>().write_batch(&present, levels.as_deref(), None)?;
        }
        Column::Wide(values) => {
            let unit = if row.kind == Kind::Time { UNIT_NS } else { 1 };
            let (levels, present) = split(values, row.absent, |value| (value / unit) as i64);
            writer.typed::<Int64Type>().write_batch(&present, levels.as_deref(), None)?;
        }
        Column::Number(values) => match row.kind {
            Kind::Word(vocabulary) => {
                let text = |code: &u32| vocabulary.text(*code).into_owned().into_bytes();
                let (levels, present) = words(values, row.absent.map(|absent| absent as u32), text);
                writer.typed::<ByteArrayType>().write_batch(&present, levels.as_deref(), None)?;
            }
            Kind::Number(32) => {
                let absent = row.absent.map(|absent| absent as u32);
                let (levels, present) = split(values, absent, i64::from);
                writer.typed::<Int64Type>().write_batch(&present, levels.as_deref(), None)?;
            }
            _ => {
                let absent = row.absent.map(|absent| absent as u32);
                let (levels, present) = split(values, absent, |value| value as i32);
                writer.typed::<Int32Type>().write_batch(&present, levels.as_deref(), None)?;
            }
        },
        Column::Address(addresses) => {
            let (levels, present) = texts(addresses, id.is_nullable());
            writer.typed::<ByteArrayType>().write_batch(&present, levels.as_deref(), None)?;
        }
    }
    Ok(())
}

/// What times have below their unit.
fn write_rest(writer: &mut SerializedColumnWriter<'_>, id: Field, times: &[u64]) -> Result<(), ParquetError> {
    let rest = |time: u64| i32::try_from(time % UNIT_NS).unwrap_or(0);
    let (levels, present) = split(times, id.row().absent, rest);
    writer.typed::<Int32Type>().write_batch(&present, levels.as_deref(), None)?;
    Ok(())
}

/// Definition levels, if the column has any, and the values that are not NULL.
fn split<T: Copy + PartialEq, V>(
    values: &[T],
    absent: Option<T>,
    mut convert: impl FnMut(T) -> V,
) -> (Option<Vec<i16>>, Vec<V>) {
    match absent {
        None => (None, values.iter().map(|value| convert(*value)).collect()),
        Some(absent) => (
            Some(values.iter().map(|value| i16::from(*value != absent)).collect()),
            values.iter().filter(|value| **value != absent).map(|value| convert(*value)).collect(),
        ),
    }
}

/// Texts of codes: each distinct one is formatted once and shared.
fn words<C: Copy + Eq + Hash>(
    values: &[C],
    absent: Option<C>,
    format: impl Fn(&C) -> Vec<u8>,
) -> (Option<Vec<i16>>, Vec<ByteArray>) {
    let mut texts: HashMap<C, ByteArray, RandomState> = HashMap::default();
    let (mut last, mut text) = (None, ByteArray::new());
    split(values, absent, |code| {
        // A word is often that of the row before.
        if last != Some(code) {
            let new = || ByteArray::from(format(&code));
            (last, text) = (Some(code), texts.entry(code).or_insert_with(new).clone());
        }
        text.clone()
    })
}

/// Texts of addresses: each distinct one is formatted once and shared.
fn texts(addresses: &Addresses, nullable: bool) -> (Option<Vec<i16>>, Vec<ByteArray>) {
    let mut text = String::new();
    let ends: Vec<usize> = addresses
        .distinct
        .iter()
        .map(|address| {
            match address {
                Some(IpAddr::V4(address)) => push_ipv4(&mut text, address.octets()),
                // Writing to a string cannot fail.
                Some(address) => drop(write!(text, "{address}")),
                None => {}
            }
            text.len()
        })
        .collect();
    let all = Bytes::from(text.into_bytes());
    let distinct: Vec<ByteArray> = (0..ends.len())
        .map(|code| {
            let start = if code == 0 { 0 } else { ends[code - 1] };
            ByteArray::from(all.slice(start..ends[code]))
        })
        .collect();
    let is_known = |code: &u32| addresses.distinct[*code as usize].is_some();
    let levels = nullable.then(|| addresses.codes.iter().map(|code| i16::from(is_known(code))).collect());
    let known = addresses.codes.iter().filter(|code| is_known(code));
    (levels, known.map(|code| distinct[*code as usize].clone()).collect())
}

fn push_ipv4(text: &mut String, bytes: [u8; 4]) {
    for (place, byte) in bytes.into_iter().enumerate() {
        if place > 0 {
            text.push('.');
        }
        if byte >= 100 {
            text.push((b'0' + byte / 100) as char);
        }
        if byte >= 10 {
            text.push((b'0' + byte / 10 % 10) as char);
        }
        text.push((b'0' + byte % 10) as char);
    }
}
