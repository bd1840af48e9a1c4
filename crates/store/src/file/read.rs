//! Reads flow files: the footer when a file is opened, then columns of row groups on demand.
//!
//! An open file stays readable after it is removed, so it is a snapshot. Reads are positioned, so several
//! threads may share a file. Columns are found by name; one that an older file lacks is NULL. Files of two
//! versions before are read as well, those of others are refused.

use std::fs::File;
use std::io::{self, Cursor as IoCursor};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;

use super::decode::{Decoder, Form, PageFault, dictionary};
use super::pages::Fault;
use super::source::{Object, Source};
use super::{
    FOOTER_KEY, FORMAT_KEY, REPLACES_KEY, ROLLUP_KEY, ROW_GROUP_ROWS_MAX, RollupFacts, SUMS_KEY, VERSION,
    VERSION_OF_NANOSECONDS, VERSION_OF_WHOLE_COLUMNS, checksum,
};
use crate::block::{Block, Column, Dictionary, Spare};
use crate::error::StoreError;
use crate::object::ObjectStore;
use crate::schema::{UNIT_NS, column_of};
use thalweg_flow::fields::{Field, Kind};

/// A file with a valid footer of ours.
#[derive(Debug)]
pub(crate) struct FlowFile {
    pub(crate) path: PathBuf,
    source: Source,
    pub(crate) size: u64,
    metadata: ParquetMetaData,
    columns: Columns,
    /// Names of the files in the same folder that this one replaces.
    pub(crate) replaces: Vec<String>,
    /// What it sums, if it is a rollup.
    pub(crate) rollup: Option<RollupFacts>,
    pub(crate) row_groups: Vec<RowGroup>,
    /// Checksums of the columns of row groups: two of each, or one in older versions.
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

/// Where a file has its columns.
#[derive(Debug)]
struct Columns {
    /// The column of each field, and that of what a time has below its unit.
    places: Vec<(Option<usize>, Option<usize>)>,
    /// Nanoseconds of the unit of times.
    unit_ns: u64,
    /// The file is of the present version.
    is_current: bool,
}

impl FlowFile {
    /// Opens a file and checks its footer.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::io("open", path))?;
        let size = file.metadata().map_err(StoreError::io("look at", path))?.len();
        Self::of(path, Source::Disk(file), size)
    }

    /// The same for an object of this size. It is read when it is needed, so it may be gone by then.
    pub(crate) fn open_object(
        store: &Arc<dyn ObjectStore>,
        key: &str,
        size: u64,
    ) -> Result<Self, StoreError> {
        let path = Path::new(store.name()).join(key);
        Self::of(&path, Source::Object(Object::new(store, key, size)), size)
    }

    fn of(path: &Path, source: Source, size: u64) -> Result<Self, StoreError> {
        let unreadable = |what: String| StoreError::Unreadable { path: path.to_path_buf(), what };
        let metadata = source.footer().map_err(|error| match error {
            ParquetError::External(error) => match error.downcast::<io::Error>() {
                Ok(error) => StoreError::io("read", path)(*error),
                Err(error) => unreadable(format!("not a whole Parquet file: {error}")),
            },
            error => unreadable(format!("not a whole Parquet file: {error}")),
        })?;
        let columns = Columns::of(&metadata).map_err(|what| unreadable(what.to_owned()))?;
        let count = metadata.file_metadata().schema_descr().num_columns();
        let row_group = |group| row_group(group, &columns, count, size);
        let row_groups = metadata.row_groups().iter().map(row_group).collect();
        let row_groups: Vec<RowGroup> =
            Result::map_err(row_groups, |what: Fault| unreadable(what.to_owned()))?;
        let sums = sums(&metadata, count).map_err(|what| unreadable(what.to_owned()))?;
        let replaces = key_value(&metadata, REPLACES_KEY).unwrap_or("");
        let replaces = replaces.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let rollup = key_value(&metadata, ROLLUP_KEY).map(|text| {
            RollupFacts::parse(text).ok_or_else(|| unreadable("a rollup of another version".to_owned()))
        });
        let (path, rollup) = (path.to_path_buf(), rollup.transpose()?);
        Ok(Self { path, source, size, metadata, columns, replaces, rollup, row_groups, sums })
    }

    /// The paths of the files that this one replaces.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = PathBuf> {
        self.replaces.iter().map(|name| self.path.with_file_name(name))
    }

    /// Whether its times are in microseconds, as in all versions but the oldest.
    pub(crate) fn has_microseconds(&self) -> bool {
        self.columns.unit_ns == UNIT_NS
    }

    /// What the footer says.
    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    pub(crate) fn rows(&self) -> u64 {
        self.row_groups.iter().map(|group| group.rows as u64).sum()
    }

    /// Smallest and largest end of a flow. Of a rollup, that of its records.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        if let Some(rollup) = &self.rollup {
            return Some(rollup.span_ns);
        }
        let from = self.row_groups.iter().map(|group| group.from_ns).min()?;
        let to = self.row_groups.iter().map(|group| group.to_ns).max()?;
        Some((from, to))
    }

    /// Smallest and largest value of a numeric column in a row group; `None` if unknown or if any value is
    /// NULL.
    pub(crate) fn bounds(&self, row_group: usize, id: Field) -> Option<(u64, u64)> {
        self.columns.bounds(self.metadata.row_groups().get(row_group)?, id)
    }

    /// Whether a column of a row group is entirely NULL.
    pub(crate) fn is_absent(&self, row_group: usize, id: Field) -> bool {
        let Some(group) = self.metadata.row_groups().get(row_group) else { return false };
        // An older file may lack the column.
        let Some(place) = self.columns.places[id.index()].0 else { return true };
        group.column(place).statistics().and_then(Statistics::null_count_opt) == Some(group.num_rows() as u64)
    }

    /// Offset and length of a row group's column in the file, or of the rest of its times.
    #[cfg(test)]
    pub(crate) fn place(&self, row_group: usize, id: Field, is_rest: bool) -> Option<(u64, u64)> {
        let (whole, rest) = self.columns.places[id.index()];
        let place = if is_rest { rest } else { whole };
        place.map(|place| self.metadata.row_groups()[row_group].column(place).byte_range())
    }

    /// Smallest and largest text of a column of addresses in a row group; `None` if unknown.
    pub(crate) fn text_bounds(&self, row_group: usize, id: Field) -> Option<(&[u8], &[u8])> {
        let place = self.columns.places[id.index()].0.filter(|_| self.has_dictionary_sums())?;
        match self.metadata.row_groups().get(row_group)?.column(place).statistics()? {
            Statistics::ByteArray(of) if of.min_is_exact() && of.max_is_exact() => {
                Some((of.min_opt()?.data(), of.max_opt()?.data()))
            }
            _ => None,
        }
    }

    /// Loads columns of a row group that the block does not have yet.
    pub(crate) fn load(&self, row_group: usize, ids: &[Field], block: &mut Block) -> Result<(), StoreError> {
        for id in ids {
            if !block.has(*id) {
                let column = self.column(row_group, *id, None, None, &mut Spare::default())?;
                block.insert(*id, column);
            }
        }
        Ok(())
    }

    /// A column of a row group, or these rows of it, ascending. What [`Self::dictionary`] gave need not be read again.
    pub(crate) fn column(
        &self,
        row_group: usize,
        id: Field,
        places: Option<&[u32]>,
        dictionary: Option<Dictionary>,
        spare: &mut Spare,
    ) -> Result<Column, StoreError> {
        let row = id.row();
        let group = &self.metadata.row_groups()[row_group];
        let (Some(place), rest) = self.columns.places[id.index()] else {
            return Ok(Column::absent(id, places.map_or(self.row_groups[row_group].rows, <[u32]>::len)));
        };
        let form = self.form(row_group, place, id);
        let mut column = self.decode((row_group, place), form, places, dictionary, spare)?;
        if row.kind == Kind::Time
            && let Column::Wide(times) = &mut column
        {
            let known = |time: &&mut u64| row.absent != Some(**time);
            let unit = self.columns.unit_ns;
            times.iter_mut().filter(known).for_each(|time| *time = time.saturating_mul(unit));
            // Most captures and all routers of others know no nanoseconds.
            let rest = rest.filter(|rest| !is_zero(group.column(*rest)));
            if let Some(rest) = rest {
                let form = Form { kind: Kind::Number(16), chunk: group.column(rest), absent: 0, ..form };
                if let Column::Number(rests) = self.decode((row_group, rest), form, places, None, spare)? {
                    let times = times.iter_mut().zip(rests);
                    let times = times.filter(|(time, _)| row.absent != Some(**time));
                    times.for_each(|(time, rest)| *time = time.saturating_add(rest.into()));
                }
            }
        }
        Ok(column)
    }

    /// The distinct values of a column without NULL, by code; `None` if the file cannot tell without reading all.
    pub(crate) fn dictionary(&self, row_group: usize, id: Field) -> Result<Option<Dictionary>, StoreError> {
        let Some(place) = self.columns.places[id.index()].0 else { return Ok(None) };
        let form = self.form(row_group, place, id);
        let length = dictionary_length(form.chunk);
        if length == 0 || !self.has_dictionary_sums() || !is_all_coded(form.chunk) {
            return Ok(None);
        }
        let (start, _) = form.chunk.byte_range();
        let bytes = self.bytes(start, length, Vec::new())?;
        if self.sums[row_group].get(2 * place) != Some(&checksum::sum(&bytes)) {
            return Err(self.unreadable(form.chunk, WRONG_SUM));
        }
        let chunk_bytes = Arc::new(ColumnBytes { start, bytes: bytes.into() });
        let page = SerializedPageReader::new(chunk_bytes, form.chunk, form.rows, None)
            .and_then(|mut pages| pages.get_next_page())
            .map_err(|error| self.unreadable(form.chunk, &error.to_string()))?;
        let Some(Page::DictionaryPage { buf, num_values, .. }) = page else { return Ok(None) };
        dictionary(form, &buf, num_values as usize)
            .map(Some)
            .map_err(|what| self.unreadable(form.chunk, what))
    }

    fn form(&self, row_group: usize, place: usize, id: Field) -> Form<'_> {
        let group = &self.metadata.row_groups()[row_group];
        let (kind, absent) = (id.row().kind, id.row().absent.unwrap_or(0));
        Form { kind, chunk: group.column(place), absent, rows: group.num_rows() as usize }
    }

    /// Whether dictionaries have checksums of their own.
    fn has_dictionary_sums(&self) -> bool {
        self.columns.is_current
    }

    fn unreadable(&self, chunk: &ColumnChunkMetaData, what: &str) -> StoreError {
        let what = format!("column {}: {what}", chunk.column_descr().name());
        StoreError::Unreadable { path: self.path.clone(), what }
    }

    fn bytes(&self, start: u64, length: usize, spare: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        self.source.bytes(start, length, spare).map_err(StoreError::io("read", &self.path))
    }

    /// Reads and decodes the column at this place of the file.
    fn decode(
        &self,
        (row_group, place): (usize, usize),
        form: Form<'_>,
        places: Option<&[u32]>,
        dictionary: Option<Dictionary>,
        spare: &mut Spare,
    ) -> Result<Column, StoreError> {
        let (start, length) = form.chunk.byte_range();
        let bytes = self.bytes(start, length as usize, spare.bytes())?;
        let sums = &self.sums[row_group];
        let is_whole = if self.has_dictionary_sums() {
            let (of_dictionary, rest) = bytes.split_at(dictionary_length(form.chunk).min(bytes.len()));
            sums.get(2 * place + 1) == Some(&checksum::sum(rest))
                && (dictionary.is_some() || sums.get(2 * place) == Some(&checksum::sum(of_dictionary)))
        } else {
            sums.get(place) == Some(&checksum::sum(&bytes))
        };
        if !is_whole {
            return Err(self.unreadable(form.chunk, WRONG_SUM));
        }
        let chunk_bytes = Arc::new(ColumnBytes { start, bytes: bytes.into() });
        let decoded = SerializedPageReader::new(Arc::clone(&chunk_bytes), form.chunk, form.rows, None)
            .map(|pages| Decoder::new(form, places, dictionary, spare).run(pages));
        // A dictionary that is not compressed may still be in use.
        if let Some(chunk) = Arc::into_inner(chunk_bytes).filter(|chunk| chunk.bytes.is_unique()) {
            spare.keep_bytes(chunk.bytes.into());
        }
        match decoded {
            Ok(Ok(column)) => Ok(column),
            Ok(Err(PageFault::Ours(what))) => Err(self.unreadable(form.chunk, what)),
            Ok(Err(PageFault::Theirs(error))) | Err(error) => {
                Err(self.unreadable(form.chunk, &error.to_string()))
            }
        }
    }
}

const WRONG_SUM: &str = "its checksum is wrong";

/// Bytes of a column's dictionary, with which it begins; 0 if it has none.
pub(super) fn dictionary_length(chunk: &ColumnChunkMetaData) -> usize {
    let length =
        chunk.dictionary_page_offset().map_or(0, |start| chunk.data_page_offset().saturating_sub(start));
    usize::try_from(length).unwrap_or(0)
}

/// Whether all values are in the dictionary: no page has others.
fn is_all_coded(chunk: &ColumnChunkMetaData) -> bool {
    !chunk.encodings().any(|encoding| encoding == Encoding::DELTA_BINARY_PACKED)
}

/// Whether all known values of a column are zero.
fn is_zero(column: &ColumnChunkMetaData) -> bool {
    match column.statistics() {
        Some(Statistics::Int32(of)) => {
            of.min_opt() == Some(&0) && of.max_opt() == Some(&0)
                || of.null_count_opt() == u64::try_from(column.num_values()).ok()
        }
        _ => false,
    }
}

fn key_value<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

impl Columns {
    /// Where the file has its columns, if it is ours and of a version that is read.
    fn of(metadata: &ParquetMetaData) -> Result<Self, Fault> {
        let (unit_ns, is_current) = match key_value(metadata, FORMAT_KEY) {
            None => return Err("a Parquet file, but not of flow records"),
            Some(VERSION) => (UNIT_NS, true),
            Some(VERSION_OF_WHOLE_COLUMNS) => (UNIT_NS, false),
            Some(VERSION_OF_NANOSECONDS) => (1, false),
            Some(_) => return Err("flow records in the format of another version"),
        };
        const OTHER: Fault = "columns other than those of flow records";
        let mut places = vec![(None, None); Field::STORED.len()];
        for (number, theirs) in metadata.file_metadata().schema_descr().columns().iter().enumerate() {
            let ours =
                column_of(theirs.name(), number).ok_or("flow records with columns of a later version")?;
            let (whole, rest) = &mut places[ours.field.index()];
            let place = if ours.is_rest { rest } else { whole };
            if !ours.fits(theirs) || place.replace(number).is_some() {
                return Err(OTHER);
            }
        }
        // Every version had these.
        if places[..=Field::IcmpCode.index()].iter().any(|(whole, _)| whole.is_none()) {
            return Err(OTHER);
        }
        Ok(Self { places, unit_ns, is_current })
    }

    /// Smallest and largest value of a numeric column in a row group.
    fn bounds(&self, group: &RowGroupMetaData, id: Field) -> Option<(u64, u64)> {
        let (place, rest) = self.places[id.index()];
        let (smallest, largest) = bounds_of(group.column(place?))?;
        if id.row().kind != Kind::Time {
            return Some((smallest, largest));
        }
        let below = rest.map_or(Some((0, 0)), |rest| bounds_of(group.column(rest)));
        let (_, most) = below.unwrap_or((0, self.unit_ns - 1));
        let whole = |time: u64| time.saturating_mul(self.unit_ns);
        Some((whole(smallest), whole(largest).saturating_add(most)))
    }
}

/// Smallest and largest value of a column; `None` if unknown or if any value is NULL.
fn bounds_of(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let statistics = column.statistics()?;
    if column.column_descr().max_def_level() > 0 && statistics.null_count_opt() != Some(0) {
        return None;
    }
    let (smallest, largest) = match statistics {
        Statistics::Int32(of) => (*of.min_opt()? as u32 as u64, *of.max_opt()? as u32 as u64),
        Statistics::Int64(of) => (*of.min_opt()? as u64, *of.max_opt()? as u64),
        _ => return None,
    };
    // Of signed numbers, a counter with all 64 bits is the smallest.
    (smallest <= largest).then_some((smallest, largest))
}

/// Checks the footer's checksum; returns the checksums of columns.
fn sums(metadata: &ParquetMetaData, columns: usize) -> Result<Vec<Vec<u64>>, Fault> {
    let text = key_value(metadata, SUMS_KEY).unwrap_or("");
    let replaces = key_value(metadata, REPLACES_KEY).unwrap_or("");
    let version = key_value(metadata, FORMAT_KEY).unwrap_or("");
    let groups = metadata.row_groups();
    let rollup = key_value(metadata, ROLLUP_KEY).unwrap_or("");
    let texts = [version, replaces, text, rollup];
    let texts = &texts[..texts.len() - usize::from(rollup.is_empty())];
    // The first of these versions did not sum itself.
    let (texts, is_current) = (&texts[usize::from(version == VERSION_OF_NANOSECONDS)..], version == VERSION);
    let footer = checksum::sum_of_footer(groups, texts, is_current);
    if key_value(metadata, FOOTER_KEY) != Some(format!("{footer:016x}").as_str()) {
        return Err("the checksum of its footer is wrong");
    }
    checksum::read_sums(text, groups.len(), if is_current { 2 * columns } else { columns })
}

fn row_group(
    group: &RowGroupMetaData,
    columns: &Columns,
    count: usize,
    file_size: u64,
) -> Result<RowGroup, Fault> {
    if group.num_rows() < 0 || group.num_rows() > ROW_GROUP_ROWS_MAX {
        return Err("a row group of an impossible size");
    }
    if group.num_columns() != count {
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
    let (from_ns, to_ns) = columns.bounds(group, Field::FlowEnd).ok_or("a row group without times")?;
    Ok(RowGroup { rows: group.num_rows() as usize, from_ns, to_ns })
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
