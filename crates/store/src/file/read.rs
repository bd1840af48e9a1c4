//! Reads flow files: the footer when a file is opened, then columns of row groups on demand.
//!
//! An open file stays readable after it is removed, so it is a snapshot. Reads are positioned, so several
//! threads may share a file. A column that an older file lacks is NULL; files of another version are refused.

use std::fs::File;
use std::io::{self, Cursor as IoCursor};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;

use super::pages::{self, Cursor, Fault};
use super::{FOOTER_KEY, FORMAT_KEY, REPLACES_KEY, ROW_GROUP_ROWS_MAX, SUMS_KEY, VERSION, checksum};
use crate::block::{Addresses, Block, Column};
use crate::error::StoreError;
use crate::schema::SCHEMA;
use thalweg_flow::fields::{Field, Kind, Vocabulary};
use thalweg_wire::MacAddr;

/// A file with a valid footer of ours.
#[derive(Debug)]
pub(crate) struct FlowFile {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) size: u64,
    metadata: ParquetMetaData,
    /// Names of the files in the same folder that this one replaces.
    pub(crate) replaces: Vec<String>,
    pub(crate) row_groups: Vec<RowGroup>,
    /// Checksums of the columns of row groups.
    sums: Vec<Vec<u64>>,
}

/// A row group according to the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowGroup {
    pub(crate) rows: usize,
    /// Smallest and largest end of a flow, in nanoseconds since the epoch.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl FlowFile {
    /// Opens a file and checks its footer.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::io("open", path))?;
        let size = file.metadata().map_err(StoreError::io("look at", path))?.len();
        let unreadable = |what: String| StoreError::Unreadable { path: path.to_path_buf(), what };
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .map_err(|error| unreadable(format!("not a whole Parquet file: {error}")))?;
        check_origin(&metadata).map_err(|what| unreadable(what.to_owned()))?;
        let columns = metadata.file_metadata().schema_descr().num_columns();
        let row_groups = metadata.row_groups().iter().map(|group| row_group(group, columns, size)).collect();
        let row_groups: Vec<RowGroup> =
            Result::map_err(row_groups, |what: Fault| unreadable(what.to_owned()))?;
        let sums = sums(&metadata, columns).map_err(|what| unreadable(what.to_owned()))?;
        let replaces = key_value(&metadata, REPLACES_KEY).unwrap_or("");
        let replaces = replaces.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(Self { path: path.to_path_buf(), file, size, metadata, replaces, row_groups, sums })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.row_groups.iter().map(|group| group.rows as u64).sum()
    }

    /// Smallest and largest end of a flow.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let from = self.row_groups.iter().map(|group| group.from_ns).min()?;
        let to = self.row_groups.iter().map(|group| group.to_ns).max()?;
        Some((from, to))
    }

    /// Smallest and largest value of a numeric column in a row group; `None` if unknown or if any value is
    /// NULL.
    pub(crate) fn bounds(&self, row_group: usize, id: Field) -> Option<(u64, u64)> {
        let column = self.metadata.row_groups().get(row_group)?.columns().get(id.index())?;
        let statistics = column.statistics()?;
        let has_nulls = column.column_descr().max_def_level() > 0 && statistics.null_count_opt() != Some(0);
        if has_nulls {
            return None;
        }
        match statistics {
            Statistics::Int32(of) => Some((*of.min_opt()? as u32 as u64, *of.max_opt()? as u32 as u64)),
            Statistics::Int64(of) => Some((*of.min_opt()? as u64, *of.max_opt()? as u64)),
            _ => None,
        }
    }

    /// Whether a column of a row group is entirely NULL.
    pub(crate) fn is_absent(&self, row_group: usize, id: Field) -> bool {
        let Some(group) = self.metadata.row_groups().get(row_group) else { return false };
        // An older file may lack the column.
        let Some(column) = group.columns().get(id.index()) else { return true };
        column.statistics().and_then(Statistics::null_count_opt) == Some(group.num_rows() as u64)
    }

    /// Offset and length of a row group's column in the file.
    #[cfg(test)]
    pub(crate) fn place(&self, row_group: usize, id: Field) -> (u64, u64) {
        self.metadata.row_groups()[row_group].column(id.index()).byte_range()
    }

    /// Loads columns of a row group that the block does not have yet.
    pub(crate) fn load(&self, row_group: usize, ids: &[Field], block: &mut Block) -> Result<(), StoreError> {
        for id in ids {
            if !block.has(*id) {
                let column = self.column(row_group, *id)?;
                block.insert(*id, column);
            }
        }
        Ok(())
    }

    pub(crate) fn column(&self, row_group: usize, id: Field) -> Result<Column, StoreError> {
        let unreadable = |what: String| StoreError::Unreadable { path: self.path.clone(), what };
        let group = &self.metadata.row_groups()[row_group];
        let rows = group.num_rows() as usize;
        let Some(chunk) = group.columns().get(id.index()) else { return Ok(Column::absent(id, rows)) };
        let nullable = chunk.column_descr().max_def_level() > 0;
        let (start, length) = chunk.byte_range();
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, start).map_err(StoreError::io("read", &self.path))?;
        let expected = self.sums.get(row_group).and_then(|sums| sums.get(id.index()));
        if expected != Some(&checksum::sum(&bytes)) {
            return Err(unreadable(format!("column {}: its checksum is wrong", id.name())));
        }
        let chunk_bytes = Arc::new(ColumnBytes { start, bytes: bytes.into() });
        let decoded = SerializedPageReader::new(chunk_bytes, chunk, rows, None).map(|pages| {
            Decoder::new(id.row().kind, nullable, id.row().absent.unwrap_or(0), rows).run(pages)
        });
        match decoded {
            Ok(Ok(column)) => Ok(column),
            Ok(Err(PageFault::Ours(what))) => Err(unreadable(format!("column {}: {what}", id.name()))),
            Ok(Err(PageFault::Theirs(error))) | Err(error) => {
                Err(unreadable(format!("column {}: {error}", id.name())))
            }
        }
    }
}

fn key_value<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// Whether the file is ours and of this version. It may lack the last columns.
fn check_origin(metadata: &ParquetMetaData) -> Result<(), Fault> {
    match key_value(metadata, FORMAT_KEY) {
        None => return Err("a Parquet file, but not of flow records"),
        Some(VERSION) => {}
        Some(_) => return Err("flow records in the format of another version"),
    }
    let Some((_, ours)) = &*SCHEMA else { return Err("the schema is impossible") };
    let theirs = metadata.file_metadata().schema_descr();
    if theirs.num_columns() > Field::STORED.len() {
        return Err("flow records with columns of a later version");
    }
    let same = theirs.num_columns() > Field::IcmpCode.index()
        && Field::STORED.iter().zip(theirs.columns()).all(|(field, theirs)| {
            let ours = ours.column(field.index());
            theirs.name() == ours.name()
                && theirs.physical_type() == ours.physical_type()
                && theirs.max_def_level() == ours.max_def_level()
                && theirs.max_rep_level() == 0
        });
    if same { Ok(()) } else { Err("columns other than those of flow records") }
}

/// Checks the footer's checksum; returns the checksums of columns.
fn sums(metadata: &ParquetMetaData, columns: usize) -> Result<Vec<Vec<u64>>, Fault> {
    let text = key_value(metadata, SUMS_KEY).unwrap_or("");
    let replaces = key_value(metadata, REPLACES_KEY).unwrap_or("");
    let groups = metadata.row_groups();
    let footer = checksum::sum_of_footer(groups, &[replaces, text]);
    if key_value(metadata, FOOTER_KEY) != Some(format!("{footer:016x}").as_str()) {
        return Err("the checksum of its footer is wrong");
    }
    checksum::read_sums(text, groups.len(), columns)
}

fn row_group(group: &RowGroupMetaData, columns: usize, file_size: u64) -> Result<RowGroup, Fault> {
    if group.num_rows() < 0 || group.num_rows() > ROW_GROUP_ROWS_MAX {
        return Err("a row group of an impossible size");
    }
    if group.num_columns() != columns {
        return Err("a row group with columns missing");
    }
    for column in group.columns() {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let fits = u64::try_from(start)
            .ok()
            .zip(u64::try_from(column.compressed_size()).ok())
            .and_then(|(start, length)| start.checked_add(length))
            .is_some_and(|end| end <= file_size);
        if !fits {
            return Err("a column that does not fit into the file");
        }
    }
    match group.column(Field::FlowEnd.index()).statistics() {
        Some(Statistics::Int64(times)) => match (times.min_opt(), times.max_opt()) {
            (Some(from), Some(to)) => {
                Ok(RowGroup { rows: group.num_rows() as usize, from_ns: *from as u64, to_ns: *to as u64 })
            }
            _ => Err("a row group without times"),
        },
        _ => Err("a row group without times"),
    }
}

/// A column's bytes, addressed by their position in the file.
struct ColumnBytes {
    start: u64,
    bytes: Bytes,
}

impl ColumnBytes {
    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let offset = start.checked_sub(self.start).map(|offset| offset as usize);
        match offset.filter(|offset| *offset <= self.bytes.len()) {
            Some(offset) => Ok(self.bytes.slice(offset..)),
            None => Err(ParquetError::EOF("a page outside its column".to_owned())),
        }
    }
}

impl Length for ColumnBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for ColumnBytes {
    type T = IoCursor<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(IoCursor::new(self.from(start)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let bytes = self.from(start)?;
        if length > bytes.len() {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(ParquetError::External(Box::new(short)));
        }
        Ok(bytes.slice(..length))
    }
}

enum PageFault {
    Ours(Fault),
    Theirs(ParquetError),
}

impl From<Fault> for PageFault {
    fn from(fault: Fault) -> Self {
        Self::Ours(fault)
    }
}

/// Decodes the pages of one column into a vector.
struct Decoder {
    kind: Kind,
    nullable: bool,
    /// The value that replaces NULL.
    absent: u64,
    rows: usize,
    numbers: Vec<u32>,
    wide: Vec<u64>,
    addresses: Addresses,
    /// Dictionary of numbers and words.
    number_dictionary: Vec<u32>,
    wide_dictionary: Vec<u64>,
    /// For the current page: which rows have a value. Empty if all have.
    present: Vec<bool>,
    /// For the current page: places in the dictionary.
    codes: Vec<u32>,
    /// The code of NULL among addresses.
    null_code: Option<u32>,
}

impl Decoder {
    fn new(kind: Kind, nullable: bool, absent: u64, rows: usize) -> Self {
        Self {
            kind,
            nullable,
            absent,
            rows,
            numbers: Vec::new(),
            wide: Vec::new(),
            addresses: Addresses::default(),
            number_dictionary: Vec::new(),
            wide_dictionary: Vec::new(),
            present: Vec::new(),
            codes: Vec::new(),
            null_code: None,
        }
    }

    fn run(mut self, mut reader: impl PageReader) -> Result<Column, PageFault> {
        match self.kind {
            Kind::Time | Kind::Wide | Kind::Mac => self.wide.reserve(self.rows),
            Kind::Number(_) | Kind::Word(_) | Kind::Text => self.numbers.reserve(self.rows),
            Kind::Address => self.addresses.codes.reserve(self.rows),
        }
        while let Some(page) = reader.get_next_page().map_err(PageFault::Theirs)? {
            match page {
                Page::DictionaryPage { buf, num_values, .. } => self.dictionary(&buf, num_values as usize)?,
                Page::DataPage { buf, num_values, encoding, .. } => {
                    let mut cursor = Cursor::new(&buf);
                    let rows = num_values as usize;
                    let values = if self.nullable {
                        let length = cursor.length()?;
                        let levels = cursor.take(length)?;
                        self.levels(levels, rows)?
                    } else {
                        rows
                    };
                    self.page(cursor.rest(), rows, values, encoding)?;
                }
                Page::DataPageV2 {
                    buf,
                    num_values,
                    num_nulls,
                    encoding,
                    def_levels_byte_len,
                    rep_levels_byte_len,
                    ..
                } => {
                    let mut cursor = Cursor::new(&buf);
                    let rows = num_values as usize;
                    cursor.take(rep_levels_byte_len as usize)?;
                    let levels = cursor.take(def_levels_byte_len as usize)?;
                    let values = if self.nullable { self.levels(levels, rows)? } else { rows };
                    if rows.checked_sub(num_nulls as usize) != Some(values) {
                        return Err("a page that counts its NULLs wrong".into());
                    }
                    self.page(cursor.rest(), rows, values, encoding)?;
                }
            }
        }
        let (rows, column) = match self.kind {
            Kind::Time | Kind::Wide | Kind::Mac => (self.wide.len(), Column::Wide(self.wide)),
            Kind::Number(_) | Kind::Word(_) | Kind::Text => {
                (self.numbers.len(), Column::Number(self.numbers))
            }
            Kind::Address => (self.addresses.codes.len(), Column::Address(self.addresses)),
        };
        if rows == self.rows { Ok(column) } else { Err("too few values".into()) }
    }

    fn done(&self) -> usize {
        match self.kind {
            Kind::Time | Kind::Wide | Kind::Mac => self.wide.len(),
            Kind::Number(_) | Kind::Word(_) | Kind::Text => self.numbers.len(),
            Kind::Address => self.addresses.codes.len(),
        }
    }

    /// Reads which rows have a value; returns their number.
    fn levels(&mut self, bytes: &[u8], rows: usize) -> Result<usize, Fault> {
        if rows > self.rows {
            return Err("more values than rows");
        }
        self.codes.clear();
        pages::runs(bytes, 1, rows, &mut self.codes)?;
        self.present.clear();
        self.present.extend(self.codes.iter().map(|level| *level == 1));
        Ok(self.present.iter().filter(|present| **present).count())
    }

    fn dictionary(&mut self, bytes: &[u8], count: usize) -> Result<(), Fault> {
        if count > self.rows {
            return Err("a dictionary larger than its column");
        }
        match self.kind {
            Kind::Time | Kind::Wide => pages::plain_wide(bytes, count, &mut self.wide_dictionary),
            Kind::Number(_) | Kind::Text => pages::plain_numbers(bytes, count, &mut self.number_dictionary),
            Kind::Word(vocabulary) => pages::plain_texts(bytes, count, |text| {
                let text = std::str::from_utf8(text).map_err(|_| "a word that is not UTF-8")?;
                let code = match vocabulary.code(text) {
                    Some(code) => code,
                    None if vocabulary == Vocabulary::Name => {
                        return Err("more names than this process can hold");
                    }
                    // A word of a later version counts as unknown.
                    None => self.absent as u32,
                };
                self.number_dictionary.push(code);
                Ok(())
            }),
            Kind::Mac => pages::plain_texts(bytes, count, |text| {
                let text = std::str::from_utf8(text).ok();
                let address = text.and_then(|text| text.parse::<MacAddr>().ok());
                self.wide_dictionary.push(address.ok_or("a text that is not a MAC address")?.to_u64());
                Ok(())
            }),
            Kind::Address => pages::plain_texts(bytes, count, |text| {
                let address = parse_address(text).ok_or("a text that is not an address")?;
                self.addresses.distinct.push(Some(address));
                Ok(())
            }),
        }
    }

    /// Appends a page of `rows` rows, of which `values` have a value.
    fn page(&mut self, bytes: &[u8], rows: usize, values: usize, encoding: Encoding) -> Result<(), Fault> {
        if rows > self.rows - self.done() {
            return Err("more values than rows");
        }
        let all = values == rows;
        let start = self.done();
        match self.kind {
            Kind::Time | Kind::Wide | Kind::Mac => {
                let out = &mut self.wide;
                match encoding {
                    _ if values == 0 => {}
                    Encoding::PLAIN if self.kind != Kind::Mac => pages::plain_wide(bytes, values, out)?,
                    Encoding::DELTA_BINARY_PACKED => pages::deltas(bytes, values, out)?,
                    _ => indexed(bytes, encoding, values, (&self.wide_dictionary, &mut self.codes), out)?,
                }
                if !all {
                    spread(out, start, &self.present, self.absent)?;
                }
            }
            Kind::Number(_) | Kind::Word(_) | Kind::Text => {
                let out = &mut self.numbers;
                match (encoding, self.kind) {
                    _ if values == 0 => {}
                    (Encoding::PLAIN, Kind::Number(_)) => pages::plain_numbers(bytes, values, out)?,
                    _ => indexed(bytes, encoding, values, (&self.number_dictionary, &mut self.codes), out)?,
                }
                if !all {
                    spread(out, start, &self.present, self.absent as u32)?;
                }
            }
            Kind::Address => {
                if values > 0 {
                    let width = index_width(bytes, encoding)?;
                    pages::runs(&bytes[1..], width, values, &mut self.addresses.codes)?;
                    within(&self.addresses.codes[start..], self.addresses.distinct.len())?;
                }
                if !all {
                    let distinct = &mut self.addresses.distinct;
                    let null = *self.null_code.get_or_insert_with(|| {
                        distinct.push(None);
                        (distinct.len() - 1) as u32
                    });
                    spread(&mut self.addresses.codes, start, &self.present, null)?;
                }
            }
        }
        Ok(())
    }
}

const BEYOND: Fault = "an index beyond its dictionary";

/// Bits of a dictionary index.
fn index_width(bytes: &[u8], encoding: Encoding) -> Result<u32, Fault> {
    #[allow(deprecated)]
    match encoding {
        Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
            bytes.first().map(|width| u32::from(*width)).ok_or("a page without indices")
        }
        _ => Err("an encoding that this dataset does not use"),
    }
}

fn indexed<T: Copy>(
    bytes: &[u8],
    encoding: Encoding,
    count: usize,
    (dictionary, codes): (&[T], &mut Vec<u32>),
    out: &mut Vec<T>,
) -> Result<(), Fault> {
    let width = index_width(bytes, encoding)?;
    codes.clear();
    pages::runs(&bytes[1..], width, count, codes)?;
    within(codes, dictionary.len())?;
    out.extend(codes.iter().map(|code| dictionary[*code as usize]));
    Ok(())
}

/// Checks that all codes have a place in the dictionary. One pass over all is cheaper than a check for each.
fn within(codes: &[u32], places: usize) -> Result<(), Fault> {
    match codes.iter().max() {
        Some(largest) if *largest as usize >= places => Err(BEYOND),
        _ => Ok(()),
    }
}

/// Moves values that were appended at `start` to the rows that have one, and fills the other rows.
fn spread<T: Copy>(out: &mut Vec<T>, start: usize, present: &[bool], absent: T) -> Result<(), Fault> {
    let mut value = out.len();
    out.resize(start + present.len(), absent);
    for row in (0..present.len()).rev() {
        let item = if present[row] {
            value = value.checked_sub(1).filter(|value| *value >= start).ok_or("too few values")?;
            out[value]
        } else {
            absent
        };
        out[start + row] = item;
    }
    Ok(())
}

/// An address as the writer formats it. IPv4 comes first because it is far more frequent.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    parse_ipv4(text).map(IpAddr::V4).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
}

fn parse_ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut bytes = [0u8; 4];
    let mut place = 0;
    let mut value = 0u32;
    let mut digits = 0;
    for &byte in text {
        match byte {
            b'0'..=b'9' if digits < 3 => {
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && place < 3 => {
                bytes[place] = u8::try_from(value).ok()?;
                (place, value, digits) = (place + 1, 0, 0);
            }
            _ => return None,
        }
    }
    if place != 3 || digits == 0 {
        return None;
    }
    bytes[3] = u8::try_from(value).ok()?;
    Some(Ipv4Addr::from(bytes))
}
