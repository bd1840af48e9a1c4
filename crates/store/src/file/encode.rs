//! Encodes a column of a row group to pages: the opposite of `decode`.
//!
//! The Parquet library's column writers are not used, because they look every value up in a hash table of their own,
//! texts too, though a block knows the codes of its addresses and words. The library writes the headers of pages and
//! the footer.
//!
//! - Texts have a dictionary, that of addresses in their order: neighbors have the same beginning, so it compresses.
//!   The dictionary alone is compressed, since codes hardly shrink.
//! - A column with a single value is a dictionary of that, and one run.
//! - Numbers have a dictionary or are differences to the number before, whichever is smaller; times and bytes are
//!   always differences.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parquet::basic::{Compression, Encoding, PageType, Type as PhysicalType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use thalweg_flow::fields::{Field, Kind};
use thalweg_wire::MacAddr;

use crate::block::{Addresses, Column, Spare, Value, at, low, number};
use crate::schema::{FileColumn, UNIT_NS};

/// Rows of a page: small enough to decode in the first-level cache, large enough to make headers negligible.
const PAGE_ROWS: usize = 65_536;
/// A dictionary stays uncompressed unless compression shrinks it below this share: a reader need not decompress it.
const COMPRESSED_SHARE_MAX: f64 = 0.85;
/// The most numbers between the smallest and the largest whose codes are in an array.
const DIRECT_MAX: u64 = 1 << 17;
const BITS: usize = 64;
/// Differences in a block, and in each of its parts, which have a width of their own.
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// An encoded column.
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) closed: ColumnCloseResult,
}

/// The values of a column that are not NULL.
enum Values {
    Differences(Vec<i64>),
    Coded { codes: Vec<u32>, dictionary: Vec<u8>, count: usize },
}

/// A column as pages have it.
struct Plain {
    present: Present,
    values: Values,
    statistics: Statistics,
}

/// Which rows of a column have a value.
enum Present {
    /// All, as they must.
    Must,
    /// All of those that need not.
    All,
    /// None of so many.
    None(usize),
    Some(Vec<bool>),
}

impl Present {
    /// What a count of those without a value says; a list is made only if they are mixed.
    fn of<T: Copy + PartialEq>(values: &[T], absent: Option<T>) -> Self {
        let Some(absent) = absent else { return Self::Must };
        match values.iter().filter(|value| **value == absent).count() {
            0 => Self::All,
            count if count == values.len() => Self::None(count),
            _ => Self::Some(values.iter().map(|value| *value != absent).collect()),
        }
    }

    fn nulls(&self) -> Option<u64> {
        Some(match self {
            Self::Must | Self::All => 0,
            Self::None(rows) => *rows as u64,
            Self::Some(present) => present.iter().filter(|present| !**present).count() as u64,
        })
    }

    /// How many of these rows have a value.
    fn count(&self, rows: &Range<usize>) -> usize {
        match self {
            Self::Must | Self::All => rows.len(),
            Self::None(_) => 0,
            Self::Some(present) => present[rows.clone()].iter().filter(|present| **present).count(),
        }
    }
}

/// What a block says of a column.
pub(super) enum Given<'a> {
    Each(&'a Column),
    /// All rows have this value.
    All(Value),
}

/// Encodes a column of a block.
pub(super) fn encode(
    column: &FileColumn,
    descriptor: ColumnDescPtr,
    rows: usize,
    given: &Given<'_>,
    spare: &mut Spare,
) -> Result<Chunk, ParquetError> {
    let plain = match given {
        Given::Each(values) => plain_of(column, &descriptor, values, spare),
        Given::All(value) if *value == Value::absent(column.field) && column.field.is_nullable() => {
            let none = Present::None(rows);
            match descriptor.physical_type() {
                PhysicalType::BYTE_ARRAY => Texts::default().plain(none, Vec::new()),
                physical => numbers((none, Vec::new()), physical, false, spare),
            }
        }
        // Of a single value, all rows have the only code.
        Given::All(value) => plain_of(column, &descriptor, &Column::repeated(*value, 1), spare),
    };
    let chunk = pages(descriptor, rows, &plain);
    match plain.values {
        Values::Coded { codes, .. } => spare.keep_numbers(codes),
        Values::Differences(values) => spare.keep_signed(values),
    }
    chunk
}

fn plain_of(column: &FileColumn, descriptor: &ColumnDescPtr, values: &Column, spare: &mut Spare) -> Plain {
    let row = column.field.row();
    let physical = descriptor.physical_type();
    let is_nullable = descriptor.max_def_level() > 0;
    let absent = row.absent.filter(|_| is_nullable);
    match values {
        Column::Wide(values) if row.kind == Kind::Mac => {
            let text = |number: u64| MacAddr::from_u64(number).to_string().into_bytes();
            words(values, absent, text)
        }
        Column::Wide(values) => {
            let is_spread = !column.is_rest && row.kind == Kind::Time
                || matches!(column.field, Field::Bytes | Field::ReverseBytes);
            let room = spare.signed(values.len());
            let split = match column.is_rest {
                true => split(values, absent, |value| (value % UNIT_NS) as i64, room),
                false if row.kind == Kind::Time => {
                    split(values, absent, |value| (value / UNIT_NS) as i64, room)
                }
                false => split(values, absent, |value| value as i64, room),
            };
            numbers(split, physical, is_spread, spare)
        }
        Column::Number(values) => {
            let absent = absent.map(|absent| absent as u32);
            match row.kind {
                Kind::Word(vocabulary) => {
                    words(values, absent, |code| vocabulary.text(code).into_owned().into_bytes())
                }
                _ => {
                    let split = split(values, absent, i64::from, spare.signed(values.len()));
                    numbers(split, physical, false, spare)
                }
            }
        }
        Column::Address(values) => addresses(values, is_nullable, spare),
    }
}

/// Which rows have a value, and the values, in this memory.
fn split<T: Copy + PartialEq, V>(
    values: &[T],
    absent: Option<T>,
    convert: impl Fn(T) -> V,
    mut known: Vec<V>,
) -> (Present, Vec<V>) {
    let present = Present::of(values, absent);
    match present {
        Present::None(_) => {}
        Present::Must | Present::All => known.extend(values.iter().map(|value| convert(*value))),
        Present::Some(_) => {
            let some = values.iter().filter(|value| Some(**value) != absent);
            known.extend(some.map(|value| convert(*value)));
        }
    }
    (present, known)
}

fn numbers(
    (present, values): (Present, Vec<i64>),
    physical: PhysicalType,
    is_spread: bool,
    spare: &mut Spare,
) -> Plain {
    let nulls = present.nulls();
    let bounds = values.first().map(|first| {
        values.iter().fold((*first, *first), |(min, max), value| (min.min(*value), max.max(*value)))
    });
    let is_wide = physical == PhysicalType::INT64;
    let statistics = if is_wide {
        let (min, max) = bounds.unzip();
        Statistics::int64(min, max, None, nulls, false)
    } else {
        let (min, max) = bounds.map(|(min, max)| (narrow(min), narrow(max))).unzip();
        Statistics::int32(min, max, None, nulls, false)
    };
    let coded = bounds.and_then(|bounds| coded_numbers(&values, bounds, is_wide, is_spread, spare));
    let values = match coded {
        Some(coded) => {
            spare.keep_signed(values);
            coded
        }
        None => Values::Differences(values),
    };
    Plain { present, values, statistics }
}

/// Codes of numbers, if that is smaller than their differences.
fn coded_numbers(
    values: &[i64],
    bounds: (i64, i64),
    is_wide: bool,
    is_spread: bool,
    spare: &mut Spare,
) -> Option<Values> {
    let range = bounds.1.wrapping_sub(bounds.0) as u64;
    if range > 0 && is_spread {
        return None;
    }
    let mut distinct: Vec<i64> = Vec::new();
    let mut codes = spare.numbers(values.len());
    if range == 0 {
        distinct.push(bounds.0);
        codes.resize(values.len(), 0);
    } else if !give_codes(values, (bounds.0, range), &mut distinct, &mut codes, spare) {
        spare.keep_numbers(codes);
        return None;
    }
    let bits_of_difference = (bits(range) + 1).min(BITS);
    let bytes_of_value = if is_wide { 8 } else { 4 };
    let coded = distinct.len() * bytes_of_value + values.len() * width_of(distinct.len()) / 8;
    if range > 0 && coded > values.len() * bits_of_difference / 8 {
        spare.keep_numbers(codes);
        return None;
    }
    let dictionary = distinct.iter().flat_map(|value| value.to_le_bytes().into_iter().take(bytes_of_value));
    Some(Values::Coded { codes, dictionary: dictionary.collect(), count: distinct.len() })
}

/// Numbers distinct values in order of appearance; gives up if they are too many for a dictionary to pay.
fn give_codes(
    values: &[i64],
    (min, range): (i64, u64),
    distinct: &mut Vec<i64>,
    codes: &mut Vec<u32>,
    spare: &mut Spare,
) -> bool {
    let distinct_max = values.len() / 4 + 1;
    let mut direct = spare.numbers(0);
    direct.resize(if range < DIRECT_MAX { index(range) + 1 } else { 0 }, u32::MAX);
    let mut hashed: HashMap<i64, u32, RandomState> = HashMap::default();
    for value in values {
        let code = match direct.get_mut(index(value.wrapping_sub(min) as u64)) {
            Some(code) => code,
            None => hashed.entry(*value).or_insert(u32::MAX),
        };
        if *code == u32::MAX {
            if distinct.len() >= distinct_max {
                break;
            }
            *code = number(distinct.len());
            distinct.push(*value);
        }
        codes.push(*code);
    }
    spare.keep_numbers(direct);
    codes.len() == values.len()
}

/// The texts of a dictionary.
#[derive(Default)]
struct Texts {
    dictionary: Vec<u8>,
    count: usize,
    /// Where the least and the greatest are.
    bounds: Option<(Range<usize>, Range<usize>)>,
}

impl Texts {
    fn push(&mut self, text: &[u8]) {
        self.dictionary.extend_from_slice(&number(text.len()).to_le_bytes());
        let here = self.dictionary.len()..self.dictionary.len() + text.len();
        self.dictionary.extend_from_slice(text);
        let (least, greatest) = self.bounds.get_or_insert_with(|| (here.clone(), here.clone()));
        if *text < self.dictionary[least.clone()] {
            *least = here;
        } else if *text > self.dictionary[greatest.clone()] {
            *greatest = here;
        }
        self.count += 1;
    }

    fn plain(self, present: Present, codes: Vec<u32>) -> Plain {
        let bound = |range: Range<usize>| ByteArray::from(self.dictionary[range].to_vec());
        let (min, max) = self.bounds.map(|(min, max)| (bound(min), bound(max))).unzip();
        let statistics = Statistics::byte_array(min, max, None, present.nulls(), false);
        let values = Values::Coded { codes, dictionary: self.dictionary, count: self.count };
        Plain { present, values, statistics }
    }
}

/// Texts of numbers: each distinct one is formatted once.
fn words<T: Copy + Eq + Hash>(values: &[T], absent: Option<T>, format: impl Fn(T) -> Vec<u8>) -> Plain {
    let mut known: HashMap<T, u32, RandomState> = HashMap::default();
    let (present, values) = split(values, absent, |value| value, Vec::new());
    let mut texts = Texts::default();
    let mut codes = Vec::with_capacity(values.len());
    let mut last = None;
    for value in values {
        // A word is often that of the row before.
        let code = match last {
            Some((before, code)) if before == value => code,
            _ => *known.entry(value).or_insert_with(|| {
                texts.push(&format(value));
                number(texts.count - 1)
            }),
        };
        last = Some((value, code));
        codes.push(code);
    }
    texts.plain(present, codes)
}

/// Texts of addresses, in their order.
fn addresses(addresses: &Addresses, is_nullable: bool, spare: &mut Spare) -> Plain {
    let (mut v4, mut v6): (Vec<u64>, Vec<(u128, u32)>) = (spare.wide(addresses.distinct.len()), Vec::new());
    for (code, address) in (0u32..).zip(addresses.distinct.iter()) {
        match address {
            Some(IpAddr::V4(address)) => v4.push(u64::from(u32::from(address)) << 32 | u64::from(code)),
            Some(IpAddr::V6(address)) => v6.push((address.into(), code)),
            None => {}
        }
    }
    v4.sort_unstable();
    v6.sort_unstable();
    const NONE: u32 = u32::MAX;
    let mut places = spare.numbers(0);
    places.resize(addresses.distinct.len(), NONE);
    let mut texts = Texts::default();
    for both in &v4 {
        places[at(low(*both))] = number(texts.count);
        let (text, length) = ipv4_text(low(both >> 32).to_be_bytes());
        texts.push(&text[..length]);
    }
    spare.keep_wide(v4);
    for (address, code) in v6 {
        places[at(code)] = number(texts.count);
        texts.push(Ipv6Addr::from(address).to_string().as_bytes());
    }
    let mut placed = spare.numbers(addresses.codes.len());
    placed.extend(addresses.codes.iter().map(|code| places[at(*code)]));
    spare.keep_numbers(places);
    let present = Present::of(&placed, is_nullable.then_some(NONE));
    match present {
        Present::Some(_) => placed.retain(|code| *code != NONE),
        Present::None(_) => placed.clear(),
        Present::Must | Present::All => {}
    }
    texts.plain(present, placed)
}

/// The text of an address, and its length.
fn ipv4_text(bytes: [u8; 4]) -> ([u8; 15], usize) {
    let (mut text, mut length) = ([0; 15], 0);
    let mut put = |character: u8| {
        text[length] = character;
        length += 1;
    };
    for (place, byte) in bytes.into_iter().enumerate() {
        if place > 0 {
            put(b'.');
        }
        if byte >= 100 {
            put(b'0' + byte / 100);
        }
        if byte >= 10 {
            put(b'0' + byte / 10 % 10);
        }
        put(b'0' + byte % 10);
    }
    (text, length)
}

fn pages(descriptor: ColumnDescPtr, rows: usize, plain: &Plain) -> Result<Chunk, ParquetError> {
    let mut sink = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut sink);
    let (mut codec, mut saved) = (Compression::UNCOMPRESSED, 0);
    let mut stats = Vec::new();
    let mut data_page_offset = 0;
    let encoding = match &plain.values {
        Values::Coded { dictionary, count, .. } if *count > 0 => {
            let small = compressed(dictionary);
            if small.is_some() {
                codec = Compression::SNAPPY;
            }
            let buf = small.unwrap_or_else(|| dictionary.clone());
            saved = dictionary.len() - buf.len();
            let page = Page::DictionaryPage {
                buf: buf.into(),
                num_values: number(*count),
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            data_page_offset =
                writer.write_page(CompressedPage::new(page, dictionary.len()))?.bytes_written as i64;
            stats.push(stat(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
            Encoding::RLE_DICTIONARY
        }
        Values::Differences(values) if !values.is_empty() => Encoding::DELTA_BINARY_PACKED,
        // No page has a value.
        _ => Encoding::PLAIN,
    };
    let mut done = 0;
    for first in (0..rows).step_by(PAGE_ROWS) {
        let range = first..(first + PAGE_ROWS).min(rows);
        let mut buf = Vec::new();
        let count = plain.present.count(&range);
        match &plain.present {
            Present::Must => {}
            Present::Some(present) if count > 0 && count < range.len() => {
                let levels = present[range.clone()].iter().map(|present| u32::from(*present));
                hybrid(&levels.collect::<Vec<_>>(), 1, &mut buf);
            }
            _ => run(u32::from(count > 0), range.len(), 1, &mut buf),
        }
        let levels = buf.len();
        match &plain.values {
            Values::Coded { codes, count: distinct, .. } if *distinct > 0 => {
                let width = width_of(*distinct);
                buf.push(byte(width));
                match distinct {
                    1 if count > 0 => run(0, count, width, &mut buf),
                    _ => hybrid(&codes[done..done + count], width, &mut buf),
                }
            }
            Values::Differences(values) if !values.is_empty() => {
                differences(&values[done..done + count], &mut buf);
            }
            _ => {}
        }
        done += count;
        let length = buf.len();
        let page = Page::DataPageV2 {
            buf: buf.into(),
            num_values: number(range.len()),
            encoding,
            num_nulls: number(range.len() - count),
            num_rows: number(range.len()),
            def_levels_byte_len: number(levels),
            rep_levels_byte_len: 0,
            is_compressed: false,
            statistics: None,
        };
        writer.write_page(CompressedPage::new(page, length))?;
    }
    stats.push(stat(PageType::DATA_PAGE_V2, encoding, narrow(rows.div_ceil(PAGE_ROWS) as i64)));
    let bytes = Bytes::from(sink.into_inner()?);
    let mut encodings = vec![Encoding::RLE, encoding];
    encodings.extend((encoding == Encoding::RLE_DICTIONARY).then_some(Encoding::PLAIN));
    let metadata = ColumnChunkMetaData::builder(descriptor)
        .set_compression(codec)
        .set_encodings(encodings)
        .set_page_encoding_stats(stats)
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size((bytes.len() + saved) as i64)
        .set_num_values(rows as i64)
        .set_data_page_offset(data_page_offset)
        .set_dictionary_page_offset((encoding == Encoding::RLE_DICTIONARY).then_some(0))
        .set_statistics(plain.statistics.clone())
        .build()?;
    let closed = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok(Chunk { bytes, closed })
}

fn stat(page_type: PageType, encoding: Encoding, count: i32) -> PageEncodingStats {
    PageEncodingStats { page_type, encoding, count }
}

/// The dictionary compressed, if that pays.
fn compressed(dictionary: &[u8]) -> Option<Vec<u8>> {
    let small = snap::raw::Encoder::new().compress_vec(dictionary).ok()?;
    (small.len() as f64 <= dictionary.len() as f64 * COMPRESSED_SHARE_MAX).then_some(small)
}

/// Bits of a code of so many; one at least, because some readers want it.
fn width_of(distinct: usize) -> usize {
    bits(distinct.saturating_sub(1) as u64).max(1)
}

/// Bits that a number needs.
fn bits(value: u64) -> usize {
    BITS - at(value.leading_zeros())
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A bound of a column of 32 bits.
fn narrow(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn byte(width: usize) -> u8 {
    u8::try_from(width).unwrap_or(u8::MAX)
}

/// Appends values of this width as runs and bit-packed groups of eight.
fn hybrid(values: &[u32], width: usize, out: &mut Vec<u8>) {
    // A shorter run is smaller packed.
    let worthwhile = 16.max(96 / width);
    let mut packed = 0;
    let mut at = 0;
    // A worthwhile run has a group of eight in any case.
    while let Some(group) = values.get(at..at + 8) {
        let value = group[0];
        if group.iter().any(|other| *other != value) {
            at += 8;
            continue;
        }
        let is_same = |other: &&u32| **other == value;
        let start = at - values[packed..at].iter().rev().take_while(is_same).count();
        let length = at - start + values[at..].iter().take_while(is_same).count();
        // Groups before a run must be whole.
        let fill = (start - packed).next_multiple_of(8) - (start - packed);
        if length >= fill + worthwhile {
            pack_groups(&values[packed..start + fill], width, out);
            run(value, length - fill, width, out);
            packed = start + length;
        }
        at = (start + length).next_multiple_of(8);
    }
    pack_groups(&values[packed..], width, out);
}

/// Appends a run of equal values.
fn run(value: u32, length: usize, width: usize, out: &mut Vec<u8>) {
    varint((length as u64) << 1, out);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8)]);
}

/// Appends bit-packed groups; the last one may be filled with zeros.
fn pack_groups(values: &[u32], width: usize, out: &mut Vec<u8>) {
    if !values.is_empty() {
        let groups = values.len().div_ceil(8);
        varint((groups as u64) << 1 | 1, out);
        let end = out.len() + groups * width;
        pack(values.iter().map(|value| u64::from(*value)), width, out);
        out.resize(end, 0);
    }
}

/// Appends DELTA_BINARY_PACKED.
fn differences(values: &[i64], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint((BLOCK / MINIBLOCK) as u64, out);
    varint(values.len() as u64, out);
    zigzag(values.first().copied().unwrap_or(0), out);
    let mut deltas = [0i64; BLOCK];
    let mut place = 1;
    while place < values.len() {
        let count = BLOCK.min(values.len() - place);
        let deltas = &mut deltas[..count];
        for (delta, two) in deltas.iter_mut().zip(values[place - 1..].windows(2)) {
            *delta = two[1].wrapping_sub(two[0]);
        }
        let least = deltas.iter().copied().min().unwrap_or(0);
        zigzag(least, out);
        let above = |delta: &i64| delta.wrapping_sub(least) as u64;
        let width = |part: &[i64]| bits(part.iter().map(above).fold(0, |a, b| a | b));
        let widths = out.len();
        out.resize(widths + BLOCK / MINIBLOCK, 0);
        for (part_number, part) in deltas.chunks(MINIBLOCK).enumerate() {
            let width = width(part);
            out[widths + part_number] = byte(width);
            let end = out.len() + MINIBLOCK / 8 * width;
            pack(part.iter().map(above), width, out);
            out.resize(end, 0);
        }
        place += count;
    }
}

/// Appends values of this width bit by bit, the least significant first.
fn pack(values: impl Iterator<Item = u64>, width: usize, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut filled) = (0u64, 0usize);
    for value in values {
        word |= value << filled;
        filled += width;
        if filled >= BITS {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= BITS;
            word = if filled == 0 { 0 } else { value >> (width - filled) };
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8)]);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A signed number of seven bits a byte, the lowest first.
pub(crate) fn zigzag(value: i64, out: &mut Vec<u8>) {
    varint((value << 1 ^ value >> 63) as u64, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::pages;
    use crate::schema::{COLUMNS, SCHEMA};
    use parquet::schema::types::SchemaDescriptor;
    use thalweg_base::XorShift64Star;

    #[test]
    fn runs_and_packed_groups_come_back() {
        let mut chance = XorShift64Star::new(31);
        for round in 0..400 {
            let width = 1 + round % 32;
            let mask = u32::MAX >> (32 - width);
            let mut values = Vec::new();
            for _ in 0..chance.below(12) {
                let value = chance.next_u64() as u32 & mask;
                match chance.below(2) {
                    0 => values.resize(values.len() + chance.below(300) as usize, value),
                    _ => values.extend((0..chance.below(70)).map(|_| chance.next_u64() as u32 & mask)),
                }
            }
            let (mut bytes, mut read) = (Vec::new(), Vec::new());
            hybrid(&values, width, &mut bytes);
            pages::runs(&bytes, width as u32, values.len(), &mut read).unwrap();
            assert_eq!(read, values, "{width} bits");
        }
    }

    /// A column that is not made is written as one that has the same value in all rows, absent or not.
    #[test]
    fn a_column_that_is_left_out_is_written_as_one_with_each_value() {
        let schema = SchemaDescriptor::new(SCHEMA.clone().unwrap());
        for rows in [1, 1000, PAGE_ROWS + 1] {
            for (column, descriptor) in COLUMNS.iter().zip(schema.columns()) {
                let some = match Value::absent(column.field) {
                    Value::Address(_) => Value::Address(Some(Ipv6Addr::LOCALHOST.into())),
                    Value::Number(_) => Value::Number(1),
                    Value::Wide(_) => Value::Wide(1_700_000_000_000_000_001),
                };
                for value in [Some(some), column.field.is_nullable().then(|| Value::absent(column.field))] {
                    let Some(value) = value else { continue };
                    let each = Column::repeated(value, rows);
                    let encoded = |given| {
                        encode(column, descriptor.clone(), rows, &given, &mut Spare::default()).unwrap()
                    };
                    let (made, left_out) = (encoded(Given::Each(&each)), encoded(Given::All(value)));
                    assert_eq!(left_out.bytes, made.bytes, "{}", column.name);
                    assert_eq!(left_out.closed.metadata, made.closed.metadata, "{}", column.name);
                }
            }
        }
    }

    #[test]
    fn differences_come_back() {
        let mut chance = XorShift64Star::new(32);
        for round in 0..400 {
            let shift = round % 64;
            let mut values: Vec<i64> =
                (0..1 + chance.below(600)).map(|_| chance.next_u64() as i64 >> shift).collect();
            values.extend([i64::MAX, i64::MIN, 0].iter().take(round % 4));
            let (mut bytes, mut read) = (Vec::new(), Vec::new());
            differences(&values, &mut bytes);
            pages::deltas(&bytes, values.len(), &mut read).unwrap();
            assert_eq!(read, values.iter().map(|value| *value as u64).collect::<Vec<_>>(), "{shift}");
        }
    }
}
