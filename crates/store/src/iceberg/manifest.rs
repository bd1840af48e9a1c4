//! Manifests and lists of them: what files a table has, and what is known of each.
//!
//! Iceberg's specification, "Manifests" and "Manifest Lists" of version 2. A manifest has the files of one hour, or of one
//! day, of one writer; its name says which. Fields that may be left out are: NaN counts, equality and sort order ids, keys.

use std::sync::LazyLock;

use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;
use serde_json::{Value, json};

use super::avro::{Decoder, Encoder, Fault};
use super::metadata::{HOUR_FIELD, HOUR_FIELD_ID, Ids};
use crate::file::FlowFile;

/// Whether a manifest's entry is of an earlier snapshot, or was added or deleted in that of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Existing = 0,
    Added = 1,
    Deleted = 2,
}

/// A file of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) status: Status,
    /// The snapshot that added the file, or deleted it.
    pub(super) snapshot: i64,
    /// The sequence number of the snapshot that added it.
    pub(super) sequence: i64,
    pub(super) file: DataFile,
}

/// What engines know of a file before they open it. Numbers of columns are those of the table's schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DataFile {
    pub(super) path: String,
    /// Hours since the epoch.
    pub(super) hour: i64,
    pub(super) records: i64,
    pub(super) bytes: i64,
    column_bytes: Vec<(i64, i64)>,
    values: Vec<(i64, i64)>,
    nulls: Vec<(i64, i64)>,
    pub(super) smallest: Vec<(i64, Vec<u8>)>,
    pub(super) largest: Vec<(i64, Vec<u8>)>,
    /// Offsets of row groups.
    pub(super) splits: Vec<i64>,
}

/// A manifest in the list of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) path: String,
    pub(super) length: i64,
    pub(super) sequence: i64,
    pub(super) sequence_min: i64,
    pub(super) snapshot: i64,
    /// Added, existing, deleted.
    pub(super) files: [i64; 3],
    pub(super) records: [i64; 3],
    /// The first and the last.
    pub(super) hours: [i64; 2],
}

impl Manifest {
    /// Of a manifest that the snapshot of this number has made.
    pub(super) fn of(path: &str, entries: &[Entry], length: i64, commit: i64) -> Self {
        let live = entries.iter().filter(|entry| entry.status != Status::Deleted);
        let sequence_min = live.map(|entry| entry.sequence).min().unwrap_or(commit);
        let sums = [Status::Added, Status::Existing, Status::Deleted].map(|status| {
            let those = entries.iter().filter(|entry| entry.status == status);
            those.fold((0, 0), |(files, records), entry| (files + 1, records + entry.file.records))
        });
        let hours = || entries.iter().map(|entry| entry.file.hour);
        let hours = [hours().min().unwrap_or(0), hours().max().unwrap_or(0)];
        let (files, records) = (sums.map(|(files, _)| files), sums.map(|(_, records)| records));
        Self {
            path: path.to_owned(),
            length,
            sequence: commit,
            sequence_min,
            snapshot: commit,
            files,
            records,
            hours,
        }
    }
}

fn field(id: i64, name: &str, kind: impl Into<Value>) -> Value {
    json!({"field-id": id, "name": name, "type": kind.into()})
}

fn optional(id: i64, name: &str, kind: impl Into<Value>) -> Value {
    json!({"field-id": id, "name": name, "type": ["null", kind.into()], "default": null})
}

/// Avro has no maps with numbers as keys.
fn map(key: i64, value: i64, kind: &str) -> Value {
    let fields = [field(key, "key", "int"), field(value, "value", kind)];
    let item = json!({"type": "record", "name": format!("k{key}_v{value}"), "fields": fields});
    json!({"type": "array", "logicalType": "map", "items": item})
}

static ENTRY_SCHEMA: LazyLock<String> = LazyLock::new(|| {
    let partition =
        json!({"type": "record", "name": "r102", "fields": [optional(HOUR_FIELD_ID, HOUR_FIELD, "int")]});
    let file = json!({"type": "record", "name": "r2", "fields": [
        field(134, "content", "int"),
        field(100, "file_path", "string"),
        field(101, "file_format", "string"),
        field(102, "partition", partition),
        field(103, "record_count", "long"),
        field(104, "file_size_in_bytes", "long"),
        optional(108, "column_sizes", map(117, 118, "long")),
        optional(109, "value_counts", map(119, 120, "long")),
        optional(110, "null_value_counts", map(121, 122, "long")),
        optional(125, "lower_bounds", map(126, 127, "bytes")),
        optional(128, "upper_bounds", map(129, 130, "bytes")),
        optional(132, "split_offsets", json!({"type": "array", "items": "long", "element-id": 133})),
    ]});
    let entry = json!({"type": "record", "name": "manifest_entry", "fields": [
        field(0, "status", "int"),
        optional(1, "snapshot_id", "long"),
        optional(3, "sequence_number", "long"),
        optional(4, "file_sequence_number", "long"),
        field(2, "data_file", file),
    ]});
    entry.to_string()
});

static MANIFEST_SCHEMA: LazyLock<String> = LazyLock::new(|| {
    let summary = json!({"type": "record", "name": "r508", "fields": [
        field(509, "contains_null", "boolean"),
        optional(518, "contains_nan", "boolean"),
        optional(510, "lower_bound", "bytes"),
        optional(511, "upper_bound", "bytes"),
    ]});
    let manifest = json!({"type": "record", "name": "manifest_file", "fields": [
        field(500, "manifest_path", "string"),
        field(501, "manifest_length", "long"),
        field(502, "partition_spec_id", "int"),
        field(517, "content", "int"),
        field(515, "sequence_number", "long"),
        field(516, "min_sequence_number", "long"),
        field(503, "added_snapshot_id", "long"),
        field(504, "added_files_count", "int"),
        field(505, "existing_files_count", "int"),
        field(506, "deleted_files_count", "int"),
        field(512, "added_rows_count", "long"),
        field(513, "existing_rows_count", "long"),
        field(514, "deleted_rows_count", "long"),
        optional(507, "partitions", json!({"type": "array", "items": summary, "element-id": 508})),
    ]});
    manifest.to_string()
});

/// A manifest's bytes; the header repeats the schema and the partitions of the table.
pub(super) fn write_entries(entries: &[Entry], header: &[(&str, String)]) -> Vec<u8> {
    Encoder::file(&ENTRY_SCHEMA, header, entries, |out, entry: &Entry| {
        // A new file has the sequence number of its manifest, which is known only when the snapshot is committed.
        let sequence = (entry.status != Status::Added).then_some(entry.sequence);
        out.number(entry.status as i64);
        out.optional(Some(entry.snapshot), Encoder::number);
        out.optional(sequence, Encoder::number);
        out.optional(sequence, Encoder::number);
        entry.file.put(out);
    })
}

/// The files of a manifest that were not deleted. `sequence` is the manifest's.
pub(super) fn read_entries(bytes: &[u8], sequence: i64) -> Result<Vec<Entry>, Fault> {
    let mut entries = Decoder::file(bytes, &ENTRY_SCHEMA, |from| {
        let status = match from.number()? {
            0 => Status::Existing,
            1 => Status::Added,
            2 => Status::Deleted,
            _ => return Err("an entry with an unknown status"),
        };
        let snapshot = from.optional(Decoder::number)?.ok_or("an entry without a snapshot")?;
        let own = from.optional(Decoder::number)?;
        from.optional(Decoder::number)?;
        Ok(Entry { status, snapshot, sequence: own.unwrap_or(sequence), file: DataFile::take(from)? })
    })?;
    entries.retain(|entry| entry.status != Status::Deleted);
    Ok(entries)
}

/// The bytes of a snapshot's list.
pub(super) fn write_list(manifests: &[Manifest], header: &[(&str, String)]) -> Vec<u8> {
    Encoder::file(&MANIFEST_SCHEMA, header, manifests, |out, manifest: &Manifest| {
        out.bytes(manifest.path.as_bytes());
        // The partition spec, of which there is one, and the kind of content: data.
        let numbers = [manifest.length, 0, 0, manifest.sequence, manifest.sequence_min, manifest.snapshot];
        numbers.into_iter().chain(manifest.files).chain(manifest.records).for_each(|value| out.number(value));
        let bounds = manifest.hours.map(hour_bytes);
        out.optional(Some(()), |out, ()| {
            out.list(&[()], |out, ()| {
                out.boolean(false);
                out.optional(Some(false), Encoder::boolean);
                bounds
                    .into_iter()
                    .for_each(|bound| out.optional(Some(bound), |out, bound| out.bytes(&bound)));
            });
        });
    })
}

/// The manifests of a snapshot.
pub(super) fn read_list(bytes: &[u8]) -> Result<Vec<Manifest>, Fault> {
    Decoder::file(bytes, &MANIFEST_SCHEMA, |from| {
        let path = from.text()?.to_owned();
        let mut numbers = [0; 12];
        for number in &mut numbers {
            *number = from.number()?;
        }
        let [length, _, _, sequence, sequence_min, snapshot, files @ .., a, b, c] = numbers;
        let hours = from.optional(|from| {
            from.list(|from| {
                from.boolean()?;
                from.optional(Decoder::boolean)?;
                let mut bound = || -> Result<i64, Fault> {
                    let bytes = from.optional(Decoder::bytes)?.and_then(|bytes| bytes.try_into().ok());
                    Ok(i64::from(i32::from_le_bytes(bytes.ok_or("a manifest without an hour")?)))
                };
                Ok([bound()?, bound()?])
            })
        })?;
        let hours = *hours.unwrap_or_default().first().ok_or("a manifest without an hour")?;
        Ok(Manifest { path, length, sequence, sequence_min, snapshot, files, records: [a, b, c], hours })
    })
}

/// An hour as Iceberg writes a bound: a number of 32 bits.
fn hour_bytes(hour: i64) -> [u8; 4] {
    i32::try_from(hour).unwrap_or(i32::MAX).to_le_bytes()
}

impl DataFile {
    /// What is to be known of a file of this hour.
    pub(super) fn of(file: &FlowFile, path: String, hour: i64, ids: &Ids) -> Self {
        let metadata = file.metadata();
        let mut of =
            Self { path, hour, records: file.rows() as i64, bytes: file.size as i64, ..Self::default() };
        of.splits = metadata.row_groups().iter().filter_map(|group| group.file_offset()).collect();
        if of.splits.len() != metadata.num_row_groups() {
            of.splits.clear();
        }
        for (place, column) in metadata.file_metadata().schema_descr().columns().iter().enumerate() {
            if let Some(id) = ids.get(column.name()) {
                of.sum_column(metadata, place, *id);
            }
        }
        of
    }

    /// Sums a column of all row groups.
    fn sum_column(&mut self, metadata: &ParquetMetaData, place: usize, id: i64) {
        let chunks = || metadata.row_groups().iter().map(|group| group.column(place));
        self.column_bytes.push((id, chunks().map(|chunk| chunk.compressed_size()).sum()));
        self.values.push((id, chunks().map(|chunk| chunk.num_values()).sum()));
        let nulls = |chunk: Option<&Statistics>| chunk.and_then(Statistics::null_count_opt);
        let all: Option<u64> = chunks().map(|chunk| nulls(chunk.statistics())).sum();
        self.nulls.extend(all.map(|all| (id, all as i64)));
        // A row group of nothing but NULL has no bounds; any other one without makes those of the others useless.
        let known: Option<Vec<Bounds>> = chunks()
            .filter(|chunk| nulls(chunk.statistics()) != u64::try_from(chunk.num_values()).ok())
            .map(|chunk| chunk.statistics().and_then(bounds))
            .collect();
        let joined = known.and_then(|known| known.into_iter().reduce(Bounds::joined));
        if let Some(Bounds { smallest, largest, .. }) = joined {
            self.smallest.push((id, smallest));
            self.largest.push((id, largest));
        }
    }

    fn put(&self, out: &mut Encoder) {
        out.number(0);
        out.bytes(self.path.as_bytes());
        out.bytes(b"PARQUET");
        out.optional(Some(self.hour), Encoder::number);
        out.number(self.records);
        out.number(self.bytes);
        for counts in [&self.column_bytes, &self.values, &self.nulls] {
            out.optional(Some(counts), |out, counts| {
                out.list(counts, |out, (id, count)| {
                    out.number(*id);
                    out.number(*count);
                });
            });
        }
        for bounds in [&self.smallest, &self.largest] {
            out.optional(Some(bounds), |out, bounds| {
                out.list(bounds, |out, (id, bound)| {
                    out.number(*id);
                    out.bytes(bound);
                });
            });
        }
        let splits = Some(&self.splits).filter(|splits| !splits.is_empty());
        out.optional(splits, |out, splits| out.list(splits, |out, offset| out.number(*offset)));
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, Fault> {
        from.number()?;
        let path = from.text()?.to_owned();
        from.bytes()?;
        let hour = from.optional(Decoder::number)?.ok_or("a file without an hour")?;
        let (records, bytes) = (from.number()?, from.number()?);
        let mut counts = || {
            let counts = from.optional(|from| from.list(|from| Ok((from.number()?, from.number()?))));
            counts.map(Option::unwrap_or_default)
        };
        let (column_bytes, values, nulls) = (counts()?, counts()?, counts()?);
        let mut bounds = || {
            let bounds = from.optional(|from| from.list(|from| Ok((from.number()?, from.bytes()?.to_vec()))));
            bounds.map(Option::unwrap_or_default)
        };
        let (smallest, largest) = (bounds()?, bounds()?);
        let splits = from.optional(|from| from.list(Decoder::number))?.unwrap_or_default();
        Ok(Self { path, hour, records, bytes, column_bytes, values, nulls, smallest, largest, splits })
    }
}

/// The smallest and the largest value of a column, as Iceberg writes them: little-endian numbers, UTF-8.
struct Bounds {
    smallest: Vec<u8>,
    largest: Vec<u8>,
    is_number: bool,
}

/// The bounds of a column of a row group.
fn bounds(statistics: &Statistics) -> Option<Bounds> {
    let is_number = matches!(statistics, Statistics::Int32(_) | Statistics::Int64(_));
    let of = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let (smallest, largest) = (of(statistics.min_bytes_opt())?, of(statistics.max_bytes_opt())?);
    Some(Bounds { smallest, largest, is_number })
}

impl Bounds {
    fn joined(self, other: Self) -> Self {
        let is_number = self.is_number;
        let is_less = |one: &[u8], other: &[u8]| match is_number {
            true => number(one) < number(other),
            false => one < other,
        };
        let smallest = if is_less(&other.smallest, &self.smallest) { other.smallest } else { self.smallest };
        let largest = if is_less(&self.largest, &other.largest) { other.largest } else { self.largest };
        Self { smallest, largest, is_number }
    }
}

/// A little-endian number of 32 or 64 bits.
fn number(bytes: &[u8]) -> i64 {
    match bytes.len() {
        4 => i64::from(i32::from_le_bytes(bytes.try_into().unwrap_or_default())),
        _ => i64::from_le_bytes(bytes.try_into().unwrap_or_default()),
    }
}
