//! Decodes the pages of a column into a vector: dictionaries, unknown values, and the types of all versions.
//!
//! A query that wants few rows gets only those: pages without any are passed over, and of dictionary codes the others
//! are not unpacked.

use bytes::Bytes;
use parquet::basic::{Encoding, Type as PhysicalType};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use thalweg_flow::fields::{Kind, Vocabulary};
use thalweg_wire::MacAddr;

use super::pages::{self, Cursor, Fault};
use crate::block::{Addresses, Column, Dictionary, Distinct, Spare, at, number};

pub(super) enum PageFault {
    Ours(Fault),
    Theirs(ParquetError),
}

impl From<Fault> for PageFault {
    fn from(fault: Fault) -> Self {
        Self::Ours(fault)
    }
}

/// What a decoder has to know about a column.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) kind: Kind,
    pub(super) chunk: &'a ColumnChunkMetaData,
    /// The value that replaces NULL.
    pub(super) absent: u64,
    /// Rows of the row group.
    pub(super) rows: usize,
}

impl Form<'_> {
    fn has_wide_values(&self) -> bool {
        matches!(self.kind, Kind::Time | Kind::Wide | Kind::Mac)
    }

    fn has_wide_numbers(&self) -> bool {
        self.chunk.column_type() == PhysicalType::INT64
    }

    fn is_nullable(&self) -> bool {
        self.chunk.column_descr().max_def_level() > 0
    }
}

/// Decodes the pages of one column into a vector.
pub(super) struct Decoder<'a> {
    form: Form<'a>,
    /// The wanted rows that are not read yet, ascending; `None` for all.
    places: Option<&'a [u32]>,
    /// Rows of the pages so far.
    row: usize,
    numbers: Vec<u32>,
    wide: Vec<u64>,
    address_codes: Vec<u32>,
    dictionary: Option<Dictionary>,
    /// For the current page: which rows have a value. Empty if all have.
    present: Vec<bool>,
    /// For the current page: places in the dictionary.
    codes: Vec<u32>,
    spare: &'a mut Spare,
}

impl<'a> Decoder<'a> {
    /// For these rows, of a column whose dictionary may have been read already.
    pub(super) fn new(
        form: Form<'a>,
        places: Option<&'a [u32]>,
        dictionary: Option<Dictionary>,
        spare: &'a mut Spare,
    ) -> Self {
        let wanted = places.map_or(form.rows, <[u32]>::len);
        let (is_wide, is_address) = (form.has_wide_values(), form.kind == Kind::Address);
        Self {
            form,
            places,
            row: 0,
            numbers: if is_wide || is_address { Vec::new() } else { spare.numbers(wanted) },
            wide: if is_wide { spare.wide(wanted) } else { Vec::new() },
            address_codes: if is_address { spare.numbers(wanted) } else { Vec::new() },
            dictionary,
            present: Vec::new(),
            codes: spare.numbers(0),
            spare,
        }
    }

    pub(super) fn run(mut self, mut reader: impl PageReader) -> Result<Column, PageFault> {
        let wanted = self.places.map_or(self.form.rows, <[u32]>::len);
        while let Some(next) = reader.peek_next_page().map_err(PageFault::Theirs)? {
            let rows = next.num_rows.or(next.num_levels).unwrap_or(usize::MAX);
            let passes = if next.is_dict { self.dictionary.is_some() } else { !self.wants_any(rows) };
            if passes {
                reader.skip_next_page().map_err(PageFault::Theirs)?;
                self.row += if next.is_dict { 0 } else { rows };
            } else if let Some(page) = reader.get_next_page().map_err(PageFault::Theirs)? {
                self.take(page)?;
            }
        }
        if self.row != self.form.rows || self.done() != wanted {
            return Err("too few values".into());
        }
        self.spare.keep_numbers(self.codes);
        Ok(match (self.form.kind, self.dictionary) {
            _ if self.form.has_wide_values() => Column::Wide(self.wide),
            (Kind::Address, dictionary) => {
                let distinct = match dictionary {
                    Some(Dictionary::Addresses(distinct)) => distinct,
                    _ => Distinct::default(),
                };
                let mut addresses = Addresses { codes: self.address_codes, distinct };
                if self.places.is_some() {
                    addresses.compact();
                }
                Column::Address(addresses)
            }
            _ => Column::Number(self.numbers),
        })
    }

    /// Whether any of the next rows is wanted.
    fn wants_any(&self, rows: usize) -> bool {
        let end = self.row.saturating_add(rows);
        end > self.form.rows
            || self.places.is_none_or(|places| places.first().is_some_and(|place| at(*place) < end))
    }

    fn take(&mut self, page: Page) -> Result<(), Fault> {
        let nullable = self.form.is_nullable();
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                self.dictionary = Some(dictionary(self.form, &buf, num_values as usize)?);
                Ok(())
            }
            Page::DataPage { buf, num_values, encoding, .. } => {
                let mut cursor = Cursor::new(&buf);
                let rows = num_values as usize;
                let values = if nullable {
                    let length = cursor.length()?;
                    let levels = cursor.take(length)?;
                    self.levels(levels, rows)?
                } else {
                    rows
                };
                self.page(cursor.rest(), rows, values, encoding)
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
                let values = if nullable { self.levels(levels, rows)? } else { rows };
                if rows.checked_sub(num_nulls as usize) != Some(values) {
                    return Err("a page that counts its NULLs wrong");
                }
                self.page(cursor.rest(), rows, values, encoding)
            }
        }
    }

    fn done(&self) -> usize {
        match self.form.kind {
            _ if self.form.has_wide_values() => self.wide.len(),
            Kind::Address => self.address_codes.len(),
            _ => self.numbers.len(),
        }
    }

    /// Reads which rows have a value; returns their number.
    fn levels(&mut self, bytes: &[u8], rows: usize) -> Result<usize, Fault> {
        if rows > self.form.rows {
            return Err("more values than rows");
        }
        self.codes.clear();
        pages::runs(bytes, 1, rows, &mut self.codes)?;
        self.present.clear();
        self.present.extend(self.codes.iter().map(|level| *level == 1));
        Ok(self.present.iter().filter(|present| **present).count())
    }

    /// Appends the wanted rows of a page of `rows` rows, of which `values` have a value.
    fn page(&mut self, bytes: &[u8], rows: usize, values: usize, encoding: Encoding) -> Result<(), Fault> {
        if rows > self.form.rows - self.row {
            return Err("more values than rows");
        }
        let first = self.row;
        self.row += rows;
        let places = self.places.map(|places| {
            let (here, later) = places.split_at(places.partition_point(|place| at(*place) < self.row));
            self.places = Some(later);
            here
        });
        let start = self.done();
        let all = values == rows;
        let page =
            Codes { bytes, encoding, values, places: places.filter(|_| all).map(|places| (places, first)) };
        let absent = self.form.absent;
        // Codes are read where they are wanted; of other values, all are read, and then the wanted ones kept.
        let mut whole = !all;
        match self.form.kind {
            _ if self.form.has_wide_values() => {
                let out = &mut self.wide;
                match (encoding, &self.dictionary) {
                    _ if values == 0 => {}
                    (Encoding::PLAIN, _) if self.form.kind != Kind::Mac => {
                        whole = true;
                        pages::plain_wide(bytes, values, out)?;
                    }
                    (Encoding::DELTA_BINARY_PACKED, _) => {
                        whole = true;
                        pages::deltas(bytes, values, out)?;
                    }
                    (_, Some(Dictionary::Wide(of))) => page.values(of, &mut self.codes, out)?,
                    _ => return Err(NO_DICTIONARY),
                }
                if !all {
                    spread(out, start, &self.present, absent)?;
                }
                keep(out, start, places.filter(|_| whole), first);
            }
            Kind::Address => {
                let none = || Dictionary::Addresses(Distinct::default());
                let Dictionary::Addresses(distinct) = self.dictionary.get_or_insert_with(none) else {
                    return Err(NO_DICTIONARY);
                };
                let codes = &mut self.address_codes;
                if values > 0 {
                    page.codes(codes)?;
                    within(&codes[start..], distinct.len())?;
                }
                if !all {
                    spread(codes, start, &self.present, distinct.null())?;
                }
                keep(codes, start, places.filter(|_| whole), first);
            }
            _ => {
                let out = &mut self.numbers;
                match (encoding, &self.dictionary) {
                    _ if values == 0 => {}
                    (Encoding::PLAIN, _)
                        if matches!(self.form.kind, Kind::Number(_)) && !self.form.has_wide_numbers() =>
                    {
                        whole = true;
                        pages::plain_numbers(bytes, values, out)?;
                    }
                    (Encoding::DELTA_BINARY_PACKED, _) => {
                        whole = true;
                        self.wide.clear();
                        pages::deltas(bytes, values, &mut self.wide)?;
                        for value in self.wide.drain(..) {
                            out.push(u32::try_from(value).map_err(|_| LARGE)?);
                        }
                    }
                    (_, Some(Dictionary::Numbers(of))) => page.values(of, &mut self.codes, out)?,
                    _ => return Err(NO_DICTIONARY),
                }
                if !all {
                    spread(out, start, &self.present, absent as u32)?;
                }
                keep(out, start, places.filter(|_| whole), first);
            }
        }
        Ok(())
    }
}

/// Reads the values of a dictionary.
pub(super) fn dictionary(form: Form<'_>, bytes: &Bytes, count: usize) -> Result<Dictionary, Fault> {
    if count > form.rows {
        return Err("a dictionary larger than its column");
    }
    let mut numbers = Vec::new();
    let mut wide = Vec::new();
    match form.kind {
        Kind::Time | Kind::Wide => pages::plain_wide(bytes, count, &mut wide)?,
        Kind::Number(_) if form.has_wide_numbers() => {
            pages::plain_wide(bytes, count, &mut wide)?;
            let narrow = |value: u64| u32::try_from(value).map_err(|_| LARGE);
            numbers = wide.drain(..).map(narrow).collect::<Result<_, Fault>>()?;
        }
        Kind::Number(_) | Kind::Text => pages::plain_numbers(bytes, count, &mut numbers)?,
        Kind::Word(vocabulary) => pages::plain_texts(bytes, count, |text, _| {
            let text = std::str::from_utf8(text).map_err(|_| "a word that is not UTF-8")?;
            let code = match vocabulary.code(text) {
                Some(code) => code,
                None if vocabulary == Vocabulary::Name => {
                    return Err("more names than this process can hold");
                }
                // A word of a later version counts as unknown.
                None => form.absent as u32,
            };
            numbers.push(code);
            Ok(())
        })?,
        Kind::Mac => pages::plain_texts(bytes, count, |text, _| {
            let text = std::str::from_utf8(text).ok();
            let address = text.and_then(|text| text.parse::<MacAddr>().ok());
            wide.push(address.ok_or("a text that is not a MAC address")?.to_u64());
            Ok(())
        })?,
        Kind::Address => {
            let mut spans = Vec::with_capacity(count);
            pages::plain_texts(bytes, count, |text, from| {
                spans.push((number(from), number(from + text.len())));
                Ok(())
            })?;
            return Ok(Dictionary::Addresses(Distinct::Texts { texts: bytes.clone(), spans }));
        }
    }
    Ok(if form.has_wide_values() { Dictionary::Wide(wide) } else { Dictionary::Numbers(numbers) })
}

/// Dictionary codes of a page.
struct Codes<'a> {
    bytes: &'a [u8],
    encoding: Encoding,
    values: usize,
    /// The wanted rows, and the first of the page.
    places: Option<(&'a [u32], usize)>,
}

impl Codes<'_> {
    /// Appends the wanted codes.
    fn codes(&self, out: &mut Vec<u32>) -> Result<(), Fault> {
        #[allow(deprecated)]
        let (Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) = self.encoding else {
            return Err("an encoding that this dataset does not use");
        };
        let (width, bytes) = self.bytes.split_first().ok_or("a page without indices")?;
        match self.places {
            None => pages::runs(bytes, u32::from(*width), self.values, out),
            Some((places, first)) => {
                let places = places.iter().map(|place| at(*place) - first);
                pages::runs_at(bytes, u32::from(*width), self.values, places, out)
            }
        }
    }

    /// Appends the wanted values.
    fn values<T: Copy>(&self, dictionary: &[T], codes: &mut Vec<u32>, out: &mut Vec<T>) -> Result<(), Fault> {
        codes.clear();
        self.codes(codes)?;
        within(codes, dictionary.len())?;
        out.extend(codes.iter().map(|code| dictionary[at(*code)]));
        Ok(())
    }
}

/// Of the values of a page, which were appended at `start`, leaves those of the wanted rows.
fn keep<T: Copy>(out: &mut Vec<T>, start: usize, places: Option<&[u32]>, first: usize) {
    let Some(places) = places else { return };
    for (row, place) in places.iter().enumerate() {
        out[start + row] = out[start + at(*place) - first];
    }
    out.truncate(start + places.len());
}

const LARGE: Fault = "a number of more than 32 bits";
const NO_DICTIONARY: Fault = "a page without its dictionary";
const BEYOND: Fault = "an index beyond its dictionary";

/// Checks that all codes have a place in the dictionary. One pass over all is cheaper than a check for each.
fn within(codes: &[u32], places: usize) -> Result<(), Fault> {
    let largest = codes.iter().copied().fold(0, u32::max);
    if codes.is_empty() || at(largest) < places { Ok(()) } else { Err(BEYOND) }
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
