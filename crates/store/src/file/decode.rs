//! Decodes the pages of a column into a vector: dictionaries, unknown values, and the types of both versions.

use std::net::{IpAddr, Ipv4Addr};

use parquet::basic::{Encoding, Type as PhysicalType};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use thalweg_flow::fields::{Kind, Vocabulary};
use thalweg_wire::MacAddr;

use super::pages::{self, Cursor, Fault};
use crate::block::{Addresses, Column};

pub(super) enum PageFault {
    Ours(Fault),
    Theirs(ParquetError),
}

impl From<Fault> for PageFault {
    fn from(fault: Fault) -> Self {
        Self::Ours(fault)
    }
}

/// Decodes the pages of one column into a vector.
pub(super) struct Decoder {
    kind: Kind,
    nullable: bool,
    /// Numbers have eight bytes in the file.
    is_wide: bool,
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
    pub(super) fn new(kind: Kind, chunk: &ColumnChunkMetaData, absent: u64, rows: usize) -> Self {
        Self {
            kind,
            nullable: chunk.column_descr().max_def_level() > 0,
            is_wide: chunk.column_type() == PhysicalType::INT64,
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

    pub(super) fn run(mut self, mut reader: impl PageReader) -> Result<Column, PageFault> {
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
            Kind::Number(_) if self.is_wide => {
                pages::plain_wide(bytes, count, &mut self.wide_dictionary)?;
                let narrow = |value: u64| u32::try_from(value).map_err(|_| "a number of more than 32 bits");
                let narrowed: Result<Vec<u32>, Fault> = self.wide_dictionary.drain(..).map(narrow).collect();
                self.number_dictionary = narrowed?;
                Ok(())
            }
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
                    (Encoding::PLAIN, Kind::Number(_)) if !self.is_wide => {
                        pages::plain_numbers(bytes, values, out)?
                    }
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
