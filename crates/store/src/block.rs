//! Records as columns: a row group in memory, on which every query works.
//!
//! Records that are in no file yet become blocks too, so filters and sums exist only once.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use thalweg_base::IpPrefix;
use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{Access, Differing, Field, unknown_record};

use crate::error::StoreError;
use unsorted::Unsorted;

mod order;
mod unsorted;

/// Records that become columns at a time: few enough to stay in the second-level cache while each column is
/// built.
const TURN_RECORDS: usize = 1024;

/// A code or a row as an index.
pub(crate) fn at(number: u32) -> usize {
    number as usize
}

/// The lower half of a number: a code or a row that is kept with something else.
pub(crate) fn low(both: u64) -> u32 {
    both as u32
}

/// A count as a code or a row, of which a row group has few millions.
pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The values of one column, row by row.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    Number(Vec<u32>),
    Wide(Vec<u64>),
    Address(Addresses),
}

impl Column {
    /// A column of unknown values.
    pub(crate) fn absent(field: Field, rows: usize) -> Self {
        Self::repeated(Value::absent(field), rows)
    }

    /// A column with the same value in all rows.
    pub(crate) fn repeated(value: Value, rows: usize) -> Self {
        match value {
            Value::Wide(value) => Self::Wide(vec![value; rows]),
            Value::Number(value) => Self::Number(vec![value; rows]),
            Value::Address(value) => {
                Self::Address(Addresses { codes: vec![0; rows], distinct: Distinct::Parsed(vec![value]) })
            }
        }
    }

    /// Leaves the values at these places, which are ascending.
    fn pick(&mut self, places: &[u32]) {
        fn each<T: Copy>(values: &mut Vec<T>, places: &[u32]) {
            for (row, place) in places.iter().enumerate() {
                values[row] = values[at(*place)];
            }
            values.truncate(places.len());
        }
        match self {
            Self::Number(values) => each(values, places),
            Self::Wide(values) => each(values, places),
            Self::Address(addresses) => {
                each(&mut addresses.codes, places);
                addresses.compact();
            }
        }
    }
}

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u32),
    Wide(u64),
    Address(Option<IpAddr>),
}

impl Value {
    fn of(field: Field, record: &FlowRecord) -> Self {
        match field.row().access {
            Access::Wide(get, _) => Self::Wide(get(record)),
            Access::Number(get, _) => Self::Number(get(record)),
            Access::Address(get, _) => Self::Address(get(record)),
            // No column has one.
            Access::Text(_) => Self::absent(field),
        }
    }

    /// The value for unknown.
    pub(crate) fn absent(field: Field) -> Self {
        let absent = field.row().absent.unwrap_or(0);
        match field.row().access {
            Access::Wide(..) => Self::Wide(absent),
            Access::Number(..) | Access::Text(_) => Self::Number(absent as u32),
            Access::Address(..) => Self::Address(None),
        }
    }
}

/// Vectors that are no longer needed: getting new memory from the system takes longer than filling it, and giving it
/// back interrupts the other threads.
#[derive(Default)]
pub(crate) struct Spare {
    bytes: Vec<Vec<u8>>,
    flags: Vec<Vec<bool>>,
    numbers: Vec<Vec<u32>>,
    wide: Vec<Vec<u64>>,
    signed: Vec<Vec<i64>>,
}

/// The most vectors that are kept.
const SPARE_MAX: usize = 12;

impl Spare {
    /// An empty vector with room for so many.
    pub(crate) fn numbers(&mut self, room: usize) -> Vec<u32> {
        let mut values = self.numbers.pop().unwrap_or_default();
        values.reserve(room);
        values
    }

    pub(crate) fn wide(&mut self, room: usize) -> Vec<u64> {
        let mut values = self.wide.pop().unwrap_or_default();
        values.reserve(room);
        values
    }

    pub(crate) fn signed(&mut self, room: usize) -> Vec<i64> {
        let mut values = self.signed.pop().unwrap_or_default();
        values.reserve(room);
        values
    }

    pub(crate) fn keep_signed(&mut self, mut values: Vec<i64>) {
        if self.signed.len() < SPARE_MAX {
            values.clear();
            self.signed.push(values);
        }
    }

    /// A vector for the bytes of a column, with any content.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        self.bytes.pop().unwrap_or_default()
    }

    pub(crate) fn keep_bytes(&mut self, bytes: Vec<u8>) {
        if self.bytes.len() < SPARE_MAX {
            self.bytes.push(bytes);
        }
    }

    /// So many flags that are not set.
    pub(crate) fn flags(&mut self, rows: usize) -> Vec<bool> {
        let mut flags = self.flags.pop().unwrap_or_default();
        flags.resize(rows, false);
        flags
    }

    pub(crate) fn keep_flags(&mut self, mut flags: Vec<bool>) {
        if self.flags.len() < SPARE_MAX {
            flags.clear();
            self.flags.push(flags);
        }
    }

    pub(crate) fn keep_numbers(&mut self, mut values: Vec<u32>) {
        if self.numbers.len() < SPARE_MAX {
            values.clear();
            self.numbers.push(values);
        }
    }

    pub(crate) fn keep_wide(&mut self, mut values: Vec<u64>) {
        if self.wide.len() < SPARE_MAX {
            values.clear();
            self.wide.push(values);
        }
    }

    /// Keeps the vectors of a block.
    pub(crate) fn keep(&mut self, block: Block) {
        for column in block.columns.into_iter().flatten() {
            match column {
                Column::Number(values) => self.keep_numbers(values),
                Column::Wide(values) => self.keep_wide(values),
                Column::Address(addresses) => self.keep_numbers(addresses.codes),
            }
        }
    }
}

/// Addresses with a dictionary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    /// For each row, an index into `distinct`.
    pub(crate) codes: Vec<u32>,
    pub(crate) distinct: Distinct,
}

impl Addresses {
    pub(crate) fn get(&self, row: usize) -> Option<IpAddr> {
        self.distinct.get(*self.codes.get(row)?)
    }

    /// Leaves addresses out that no row has, if they are most.
    pub(crate) fn compact(&mut self) {
        if self.codes.len() >= self.distinct.len() / 2 {
            return;
        }
        let mut used = self.codes.clone();
        used.sort_unstable();
        used.dedup();
        // Every code is among the used ones.
        self.codes.iter_mut().for_each(|code| *code = number(used.binary_search(code).unwrap_or(0)));
        self.distinct = Distinct::Parsed(used.iter().map(|code| self.distinct.get(*code)).collect());
    }
}

/// The distinct addresses of a column by code; `None` is NULL.
#[derive(Clone, Debug)]
pub(crate) enum Distinct {
    Parsed(Vec<Option<IpAddr>>),
    /// As a file has them. A query is often about few, so only these are parsed.
    Texts {
        texts: Bytes,
        /// Where each text is.
        spans: Vec<(u32, u32)>,
    },
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Parsed(Vec::new())
    }
}

impl Distinct {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Parsed(addresses) => addresses.len(),
            Self::Texts { spans, .. } => spans.len(),
        }
    }

    pub(crate) fn get(&self, code: u32) -> Option<IpAddr> {
        match self {
            Self::Parsed(addresses) => addresses.get(at(code)).copied().flatten(),
            Self::Texts { texts, spans } => {
                let (from, to) = *spans.get(at(code))?;
                parse_address(texts.get(at(from)..at(to))?)
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<IpAddr>> {
        (0..number(self.len())).map(|code| self.get(code))
    }

    /// The code of NULL.
    pub(crate) fn null(&mut self) -> u32 {
        let next = number(self.len());
        match self {
            Self::Parsed(addresses) => match addresses.last() {
                Some(None) => return next - 1,
                _ => addresses.push(None),
            },
            Self::Texts { spans, .. } => match spans.last() {
                Some((0, 0)) => return next - 1,
                _ => spans.push((0, 0)),
            },
        }
        next
    }

    /// Whether each one is in this prefix. A single address is compared as text.
    pub(crate) fn within(&self, prefix: &IpPrefix) -> Vec<bool> {
        match self {
            Self::Texts { texts, spans } if is_host(prefix) => {
                let wanted = prefix.address().to_string();
                let is_it = |(from, to): &(u32, u32)| {
                    at(to - from) == wanted.len() && texts.get(at(*from)..at(*to)) == Some(wanted.as_bytes())
                };
                spans.iter().map(is_it).collect()
            }
            _ => self.iter().map(|address| address.is_some_and(|address| prefix.contains(address))).collect(),
        }
    }
}

/// Whether a prefix is a single address.
pub(crate) fn is_host(prefix: &IpPrefix) -> bool {
    IpPrefix::host(prefix.address()) == *prefix
}

/// An address as the writer formats it; no text is none. IPv4 comes first because it is far more frequent.
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

/// The dictionary of a column, without its rows.
#[derive(Clone, Debug)]
pub(crate) enum Dictionary {
    /// Of numbers, or codes of words.
    Numbers(Vec<u32>),
    Wide(Vec<u64>),
    Addresses(Distinct),
}

/// Numbers addresses from 0, in order of appearance. IPv4 has its own table with entries of eight bytes: a
/// dataset has hundreds of thousands of addresses, and the table's size decides the cost of a look-up.
#[derive(Default)]
pub(crate) struct AddressNumbers {
    v4: HashMap<u32, u32, RandomState>,
    v6: HashMap<u128, u32, RandomState>,
    none: Option<u32>,
    /// The last address but none, and its number.
    last: Option<(IpAddr, u32)>,
    pub(crate) distinct: Vec<Option<IpAddr>>,
}

impl AddressNumbers {
    /// The number of a known address.
    fn known(&self, address: Option<IpAddr>) -> Option<u32> {
        match address {
            Some(IpAddr::V4(address)) => self.v4.get(&u32::from(address)).copied(),
            Some(IpAddr::V6(address)) => self.v6.get(&u128::from(address)).copied(),
            None => self.none,
        }
    }

    /// The number of an address, new or known.
    pub(crate) fn number(&mut self, address: Option<IpAddr>) -> u32 {
        // Next hops and exporters are often those of the record before.
        if let (Some(address), Some((last, number))) = (address, self.last)
            && address == last
        {
            return number;
        }
        let next = number(self.distinct.len());
        let number = match address {
            Some(IpAddr::V4(address)) => *self.v4.entry(address.into()).or_insert(next),
            Some(IpAddr::V6(address)) => *self.v6.entry(address.into()).or_insert(next),
            None => *self.none.get_or_insert(next),
        };
        self.last = address.map(|address| (address, number)).or(self.last);
        if number == next {
            self.distinct.push(address);
        }
        number
    }
}

/// Addresses that are looked up together: few enough to stay in the near cache.
const ADDRESSES_AT_ONCE: usize = 1024;

/// Numbers of addresses that the threads of a query have in common.
#[derive(Default)]
pub(crate) struct CommonNumbers(RwLock<AddressNumbers>);

impl CommonNumbers {
    /// The number of each of these addresses.
    pub(crate) fn numbers(&self, mut addresses: impl Iterator<Item = Option<IpAddr>>) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(addresses.size_hint().0);
        let mut some = Vec::with_capacity(ADDRESSES_AT_ONCE);
        let mut unknown = Vec::new();
        loop {
            // Parsed in between, look-ups would not overlap.
            some.clear();
            some.extend(addresses.by_ref().take(ADDRESSES_AT_ONCE));
            if some.is_empty() {
                return numbers;
            }
            let known = self.0.read();
            for address in &some {
                // After the first row groups, most are known.
                let number = known.known(*address).unwrap_or_else(|| {
                    unknown.push((numbers.len(), *address));
                    0
                });
                numbers.push(number);
            }
            drop(known);
            if !unknown.is_empty() {
                let mut all = self.0.write();
                unknown.drain(..).for_each(|(place, address)| numbers[place] = all.number(address));
            }
        }
    }

    pub(crate) fn into_inner(self) -> AddressNumbers {
        self.0.into_inner()
    }
}

/// Some rows with their loaded columns.
pub(crate) struct Block {
    pub(crate) rows: usize,
    columns: Vec<Option<Column>>,
    /// Columns that are left out because all rows have the same value.
    repeated: Vec<(Field, Value)>,
}

impl Block {
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows, columns: Field::STORED.iter().map(|_| None).collect(), repeated: Vec::new() }
    }

    /// A block for a file: all columns, but those with the same value in all rows are not made. Vectors that are not needed
    /// any more come from `spare`.
    pub(crate) fn of<'a>(records: impl ExactSizeIterator<Item = &'a FlowRecord>, spare: &mut Spare) -> Self {
        let mut block = Self::new(records.len());
        for builder in Builder::all(Field::STORED, records, spare) {
            let id = builder.id;
            match builder.only_value() {
                Some(value) => block.repeated.push((id, value)),
                None => block.insert(id, builder.finish(spare)),
            }
        }
        block
    }

    pub(crate) fn of_columns<'a>(
        ids: &[Field],
        records: impl ExactSizeIterator<Item = &'a FlowRecord>,
    ) -> Self {
        let mut block = Self::new(records.len());
        let mut spare = Spare::default();
        for builder in Builder::all(ids, records, &mut spare) {
            block.insert(builder.id, builder.finish(&mut spare));
        }
        block
    }

    /// Brings the rows in the order of the flows' ends; those that end at the same time stay in order.
    pub(crate) fn sort_by_end(&mut self, spare: &mut Spare) -> Result<(), StoreError> {
        if let Some(order) = order::ascending(self.wide(Field::FlowEnd)?, spare) {
            self.columns.iter_mut().flatten().for_each(|column| column.rearrange(&order, spare));
            spare.keep_numbers(order);
        }
        Ok(())
    }

    /// The value that all rows have of a column that is left out for that.
    pub(crate) fn repeated(&self, id: Field) -> Option<Value> {
        self.repeated.iter().find(|(field, _)| *field == id).map(|(_, value)| *value)
    }

    pub(crate) fn insert(&mut self, id: Field, column: Column) {
        self.columns[id.index()] = Some(column);
    }

    /// Takes over the columns of another block of the same rows.
    pub(crate) fn take(&mut self, other: Block) {
        for (ours, theirs) in self.columns.iter_mut().zip(other.columns) {
            if theirs.is_some() {
                *ours = theirs;
            }
        }
    }

    /// Leaves only these rows.
    pub(crate) fn pick(&mut self, rows: &[u32]) {
        self.rows = rows.len();
        self.columns.iter_mut().flatten().for_each(|column| column.pick(rows));
    }

    pub(crate) fn has(&self, id: Field) -> bool {
        self.columns[id.index()].is_some()
    }

    /// A loaded column.
    pub(crate) fn column(&self, id: Field) -> Result<&Column, StoreError> {
        self.columns[id.index()].as_ref().ok_or_else(|| misused(id))
    }

    /// A loaded column of numbers or words.
    pub(crate) fn numbers(&self, id: Field) -> Result<&[u32], StoreError> {
        match self.column(id)? {
            Column::Number(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A loaded column of times or wide numbers.
    pub(crate) fn wide(&self, id: Field) -> Result<&[u64], StoreError> {
        match self.column(id)? {
            Column::Wide(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A loaded column of addresses.
    pub(crate) fn addresses(&self, id: Field) -> Result<&Addresses, StoreError> {
        match self.column(id)? {
            Column::Address(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A row as a record. All columns must be loaded.
    pub(crate) fn record(&self, row: usize) -> Result<FlowRecord, StoreError> {
        self.record_of(row, Field::STORED)
    }

    /// A row with these fields of a record.
    pub(crate) fn record_of(&self, row: usize, fields: &[Field]) -> Result<FlowRecord, StoreError> {
        let mut record = unknown_record();
        for field in fields {
            let absent = field.row().absent;
            match field.row().access {
                Access::Wide(_, set) => {
                    let value = self.wide(*field)?[row];
                    if absent != Some(value) {
                        set(&mut record, value);
                    }
                }
                Access::Number(_, set) => {
                    let value = self.numbers(*field)?[row];
                    if absent != Some(value.into()) {
                        set(&mut record, value);
                    }
                }
                Access::Address(_, set) => match self.addresses(*field)?.get(row) {
                    Some(address) => set(&mut record, address),
                    None if absent.is_some() => {}
                    None => return Err(StoreError::Encoding("a flow without addresses".into())),
                },
                // No column has one.
                Access::Text(_) => {}
            }
        }
        Ok(record)
    }
}

fn misused(id: Field) -> StoreError {
    StoreError::Encoding(format!("column {} is not loaded as it is used", id.name()))
}

/// A column under construction.
struct Builder {
    id: Field,
    rows: usize,
    values: Values,
    /// The value of the last rows, which are not in the column yet, and their number.
    last: Option<(Value, usize)>,
}

/// The values of a column under construction.
enum Values {
    None,
    Number(Vec<u32>),
    Wide(Vec<u64>),
    Address(Unsorted),
}

impl Builder {
    /// All records in columns under construction.
    fn all<'a>(
        ids: &[Field],
        mut records: impl ExactSizeIterator<Item = &'a FlowRecord>,
        spare: &mut Spare,
    ) -> Vec<Self> {
        let rows = records.len();
        let mut builders: Vec<Self> =
            ids.iter().map(|id| Self { id: *id, rows, values: Values::None, last: None }).collect();
        let mut turn: Vec<&FlowRecord> = Vec::with_capacity(TURN_RECORDS);
        loop {
            turn.clear();
            turn.extend(records.by_ref().take(TURN_RECORDS));
            let Some(first) = turn.first() else { return builders };
            let differing = Differing::among(turn.iter().copied());
            for builder in &mut builders {
                match differing.has(builder.id) {
                    true => builder.extend(&turn, spare),
                    false => builder.repeat(Value::of(builder.id, first), turn.len(), spare),
                }
            }
        }
    }

    /// The value of all rows, if they have the same.
    fn only_value(&self) -> Option<Value> {
        self.last.filter(|(_, rows)| *rows == self.rows).map(|(value, _)| value)
    }

    /// Adds rows with the same value.
    fn repeat(&mut self, value: Value, rows: usize, spare: &mut Spare) {
        match &mut self.last {
            Some((last, count)) if *last == value => *count += rows,
            _ => {
                self.fill(spare);
                self.last = Some((value, rows));
            }
        }
    }

    /// Adds the rows that are not in the column yet.
    fn fill(&mut self, spare: &mut Spare) {
        let Some((value, rows)) = self.last.take() else { return };
        self.begin(spare);
        match (&mut self.values, value) {
            (Values::Wide(values), Value::Wide(value)) => values.resize(values.len() + rows, value),
            (Values::Number(values), Value::Number(value)) => values.resize(values.len() + rows, value),
            (Values::Address(values), Value::Address(value)) => {
                values.extend(std::iter::repeat_n(value, rows));
            }
            // Value and column have the kind of the same access function.
            _ => unreachable!("a column is made for its values"),
        }
    }

    /// Makes room for all rows, unless there is some.
    fn begin(&mut self, spare: &mut Spare) {
        if matches!(self.values, Values::None) {
            self.values = match self.id.row().access {
                Access::Wide(..) => Values::Wide(spare.wide(self.rows)),
                Access::Number(..) | Access::Text(_) => Values::Number(spare.numbers(self.rows)),
                Access::Address(..) => Values::Address(Unsorted::new(spare.wide(self.rows))),
            };
        }
    }

    fn finish(mut self, spare: &mut Spare) -> Column {
        self.fill(spare);
        self.begin(spare);
        match self.values {
            Values::Wide(values) => Column::Wide(values),
            Values::Number(values) => Column::Number(values),
            Values::Address(values) => Column::Address(values.sorted(spare)),
            Values::None => Column::absent(self.id, 0),
        }
    }

    fn extend(&mut self, records: &[&FlowRecord], spare: &mut Spare) {
        self.fill(spare);
        self.begin(spare);
        match (&mut self.values, self.id.row().access) {
            (Values::Wide(values), Access::Wide(get, _)) => {
                values.extend(records.iter().map(|record| get(record)));
            }
            (Values::Number(values), Access::Number(get, _)) => {
                values.extend(records.iter().map(|record| get(record)));
            }
            (Values::Address(values), Access::Address(get, _)) => {
                values.extend(records.iter().map(|record| get(record)));
            }
            // As above.
            _ => unreachable!("a column is made for its values"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Chance, any_record, likely_record};

    /// Records that differ in no part of a field have the same value of it.
    #[test]
    fn a_field_of_a_part_that_records_have_in_common_is_the_same() {
        let mut chance = Chance::new(41);
        let (mut same, mut asked) = (0, 0);
        for round in 0..3000 {
            let one = likely_record(&mut chance);
            let any = any_record(&mut chance);
            // A field of another record in each round, so that each part is now the same and now another.
            let field = Field::STORED[round % Field::STORED.len()];
            let mut other = one;
            match (field.row().access, Value::of(field, &any)) {
                (Access::Wide(_, set), Value::Wide(value)) => set(&mut other, value),
                (Access::Number(_, set), Value::Number(value)) => set(&mut other, value),
                (Access::Address(_, set), Value::Address(Some(value))) => set(&mut other, value),
                _ => {}
            }
            for two in [[one, other], [one, any]] {
                let differing = Differing::among(&two);
                for field in Field::STORED.iter().filter(|field| !differing.has(**field)) {
                    assert_eq!(Value::of(*field, &two[0]), Value::of(*field, &two[1]), "{}", field.name());
                    same += 1;
                }
                asked += Field::STORED.iter().filter(|field| differing.has(**field)).count();
            }
        }
        assert!(same > 10_000 && asked > 10_000);
    }

    /// Values that come, go and come again between turns are in their rows.
    #[test]
    fn columns_are_those_of_each_record_alone() {
        let mut chance = Chance::new(42);
        let mut records: Vec<FlowRecord> =
            (0..5 * TURN_RECORDS).map(|_| likely_record(&mut chance)).collect();
        let made = Block::of(records.iter(), &mut Spare::default());
        let left_out = |field| made.repeated(field);
        assert_eq!(left_out(Field::NatSrc), Some(Value::Address(None)));
        assert_eq!(left_out(Field::ServerName), Some(Value::Number(0)));
        assert_eq!(left_out(Field::Src), None);
        assert!(made.column(Field::NatSrc).is_err(), "a query must not take it for loaded");
        for place in [TURN_RECORDS + 5, TURN_RECORDS + 6, 3 * TURN_RECORDS] {
            records[place] = any_record(&mut chance);
        }
        let block = Block::of_columns(Field::STORED, records.iter());
        for (row, record) in records.iter().enumerate() {
            assert_eq!(block.record(row).unwrap(), *record);
        }
    }

    /// Threads that meet the same addresses in another order give them the same numbers.
    #[test]
    fn numbers_of_threads_are_the_same() {
        let of = |number: u32| match number % 3 {
            0 => Some(IpAddr::from(number.to_be_bytes())),
            1 => Some(IpAddr::from(std::net::Ipv6Addr::from(u128::from(number) << 90))),
            _ => None,
        };
        let addresses: Vec<Option<IpAddr>> = (0..5000).map(of).collect();
        let common = CommonNumbers::default();
        let [there, back] = std::thread::scope(|scope| {
            let there = scope.spawn(|| common.numbers(addresses.iter().copied()));
            let back = common.numbers(addresses.iter().rev().copied());
            [there.join().unwrap(), back]
        });
        assert!(there.iter().eq(back.iter().rev()));
        let distinct = common.into_inner().distinct;
        assert!(addresses.iter().zip(there).all(|(address, number)| distinct[at(number)] == *address));
    }
}
