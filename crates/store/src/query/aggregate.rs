//! Sums of packets, bytes and records by key.
//!
//! Addresses are numbered, each distinct address of a row group once; a row has a code in the row group's
//! dictionary. Threads have the numbers in common, so that their sums can be joined by number.
//!
//! - A single address: sums are indexed by code within a row group and added to the address's number at its
//!   end. So the hash table of addresses is used once per distinct address, and a row costs one access to a
//!   small array.
//! - A single key of few bits: sums are indexed by value.
//! - Any other grouping is packed into a key of 64 or 128 bits, which a hash table ([`super::table`]) looks
//!   up for every row. Keys of all threads are joined by parts ([`super::parts`]).

use std::borrow::Cow;

use super::parts::{self, Parted};
use super::table::{Entry, Packed, RUN, Seed};
use super::{Key, KeyValue, Query, Scanned, Sums, scan, tasks};
use crate::block::{AddressNumbers, Addresses, Column, CommonNumbers, at};
use crate::dataset::View;
use crate::error::StoreError;
use crate::filter::sum;
use crate::rows::Rows;
use crate::schema::RECORDS;
use thalweg_base::Name;
use thalweg_flow::fields::Field;

/// The keys and time steps of a grouping.
#[derive(Clone, Copy)]
pub(super) struct Grouping<'a> {
    pub(super) keys: &'a [Key],
    /// Beginning and length of the steps, in nanoseconds.
    pub(super) steps: Option<(u64, u64)>,
}

/// The most bits of a single key whose sums are in an array.
const DIRECT_BITS_MAX: u32 = 17;
/// Rows of few values add to sums of several sets in turn: an addition need not wait for that of the row before, which is
/// often to the same value.
const LANES: usize = 4;
/// Values up to this are few.
const LANES_CODES_MAX: u32 = 1 << 9;
/// Rows whose keys are packed at a time: few enough for the keys to stay in a near cache.
const PACKED_ROWS: usize = 4096;

impl Grouping<'_> {
    fn bits(&self) -> u32 {
        self.keys.iter().map(Key::bits).sum::<u32>() + if self.steps.is_some() { 32 } else { 0 }
    }

    /// Whether the value indexes the group, without the hash table.
    fn is_direct(&self) -> bool {
        match (self.keys, self.steps) {
            ([key], None) => key.is_address() || key.bits() <= DIRECT_BITS_MAX,
            _ => false,
        }
    }
}

/// The sums of a query.
pub(super) struct Summed<'a> {
    grouping: Grouping<'a>,
    entries: Entries,
    addresses: AddressNumbers,
    /// All records of the query.
    pub(super) total: Sums,
    /// Records that are in no file.
    pub(super) live: Sums,
    /// Records of keys for which there was no room.
    pub(super) rest: Sums,
}

/// Groups in lists with disjoint keys.
enum Entries {
    Narrow(Vec<Vec<Entry<u64>>>),
    Wide(Vec<Vec<Entry<u128>>>),
}

impl Summed<'_> {
    pub(super) fn len(&self) -> usize {
        match &self.entries {
            Entries::Narrow(lists) => lists.iter().map(Vec::len).sum(),
            Entries::Wide(lists) => lists.iter().map(Vec::len).sum(),
        }
    }

    /// Calls `show` with the packed key and the sums of every group.
    pub(super) fn each(&self, mut show: impl FnMut(u128, Sums)) {
        match &self.entries {
            Entries::Narrow(lists) => {
                lists.iter().flatten().for_each(|entry| show(entry.key.into(), entry.sums))
            }
            Entries::Wide(lists) => lists.iter().flatten().for_each(|entry| show(entry.key, entry.sums)),
        }
    }

    /// The time step of a packed key, and the rest of the key.
    pub(super) fn step(&self, packed: u128) -> (u32, u128) {
        let bits: u32 = self.grouping.keys.iter().map(Key::bits).sum();
        // Steps are only combined with keys of at most 96 bits.
        ((packed >> bits) as u32, packed & ((1 << bits) - 1))
    }

    /// The values in a packed key.
    pub(super) fn values(&self, mut packed: u128) -> Vec<KeyValue> {
        let mut values = Vec::with_capacity(self.grouping.keys.len());
        for key in self.grouping.keys.iter().rev() {
            let number = (packed & ((1 << key.bits()) - 1)) as u32;
            packed >>= key.bits();
            values.push(if key.is_address() {
                let address = self.addresses.distinct.get(number as usize).copied().flatten();
                address.map_or(KeyValue::Unknown, KeyValue::Address)
            } else {
                key.value(number)
            });
        }
        values.reverse();
        values
    }
}

pub(super) fn aggregate<'a>(
    view: &View,
    query: &Query,
    grouping: Grouping<'a>,
) -> Result<(Summed<'a>, Scanned), StoreError> {
    let forgotten = Name::forgotten();
    let summed = match grouping.bits() {
        ..=64 => aggregate_packed(view, query, grouping, Entries::Narrow),
        65..=128 => aggregate_packed(view, query, grouping, Entries::Wide),
        _ => Err(StoreError::Query("too many keys; at most five can be combined".to_owned())),
    }?;
    // A name that went and came again has two numbers, and two sums.
    if Name::forgotten() != forgotten && grouping.keys.iter().any(Key::is_passing_name) {
        let most = Name::PASSING_MAX;
        return Err(StoreError::Query(format!("more than {most} names; ask for a shorter time")));
    }
    Ok(summed)
}

fn aggregate_packed<'a, K: Packed>(
    view: &View,
    query: &Query,
    grouping: Grouping<'a>,
    wrap: fn(Vec<Vec<Entry<K>>>) -> Entries,
) -> Result<(Summed<'a>, Scanned), StoreError> {
    let seed = Seed::random();
    let numbers = CommonNumbers::default();
    let make = || Groups::<K>::new(grouping, seed, query.keys_max, &numbers);
    let (mut threads, scanned) = scan(view, query, tasks(view), make, |groups, rows| groups.add(rows))?;
    threads.iter_mut().for_each(Groups::add_values);
    let [mut total, mut live, mut rest] = [Sums::default(); 3];
    let mut direct = Vec::new();
    let mut parted = Vec::new();
    for thread in threads {
        total.add(thread.total);
        live.add(thread.live);
        rest.add(thread.rest);
        rest.add(thread.parted.rest);
        add_each(&mut direct, thread.direct);
        parted.push(thread.parted);
    }
    let lists = if grouping.is_direct() { vec![entries(&direct)] } else { parts::join(seed, parted) };
    let (entries, addresses) = (wrap(lists), numbers.into_inner());
    Ok((Summed { grouping, entries, addresses, total, live, rest }, scanned))
}

/// Adds sums to those of the same numbers.
fn add_each(all: &mut Vec<Sums>, mut sums: Vec<Sums>) {
    if all.len() < sums.len() {
        std::mem::swap(all, &mut sums);
    }
    all.iter_mut().zip(sums).for_each(|(all, sums)| all.add(sums));
}

/// The numbers that have sums, as keys.
fn entries<K: Packed>(direct: &[Sums]) -> Vec<Entry<K>> {
    let known = (0..).zip(direct).filter(|(_, sums)| sums.flows > 0);
    known.map(|(number, sums)| Entry { key: K::default().with(number, 0), sums: *sums }).collect()
}

/// The sums of one thread.
struct Groups<'a, K> {
    grouping: Grouping<'a>,
    numbers: &'a CommonNumbers,
    keys_max: usize,
    total: Sums,
    live: Sums,
    /// Sums by packed key.
    parted: Parted<K>,
    /// Sums by value, for a single key that is an address (by its number) or has few bits.
    direct: Vec<Sums>,
    /// How many values these are.
    direct_keys: usize,
    /// Records of values for which there was no room.
    rest: Sums,
    /// For the current row group: sums by code.
    by_code: Vec<Sums>,
    /// Sums by the value of a single key of few bits, as several sets (see [`LANES`]).
    by_value: Vec<Sums>,
    /// For the current rows.
    packed: PackedRows<K>,
}

/// Keys and counters of the selected rows among some.
#[derive(Default)]
struct PackedRows<K> {
    keys: Vec<K>,
    packets: Vec<u64>,
    bytes: Vec<u64>,
}

/// The counters of a block's rows.
struct Amounts<'a> {
    packets: Cow<'a, [u64]>,
    bytes: Cow<'a, [u64]>,
    /// How many records each row of a rollup has.
    records: Option<&'a [u32]>,
}

impl Amounts<'_> {
    /// Those of some rows.
    fn of(&self, range: std::ops::Range<usize>) -> Amounts<'_> {
        Amounts {
            packets: self.packets[range.clone()].into(),
            bytes: self.bytes[range.clone()].into(),
            records: self.records.map(|records| &records[range]),
        }
    }

    /// Adds every row to the sum of its code. The sums exceed the near caches, so those of a run are all
    /// prefetched before the first addition.
    fn add_by_code(&self, codes: &[u32], sums: &mut [Sums]) {
        let amounts = self.packets.chunks(RUN).zip(self.bytes.chunks(RUN));
        for (codes, (packets, bytes)) in codes.chunks(RUN).zip(amounts) {
            std::hint::black_box(codes.iter().fold(0, |all, code| all | sums[*code as usize].flows));
            for (code, (packets, bytes)) in codes.iter().zip(packets.iter().zip(bytes)) {
                sums[*code as usize].add(Sums { packets: *packets, bytes: *bytes, flows: 1 });
            }
        }
    }

    /// The sum of the selected rows.
    fn total(&self, selected: Option<&[bool]>) -> Sums {
        if selected.is_none() && self.records.is_none() {
            let (packets, bytes) = (sum_of(&self.packets), sum_of(&self.bytes));
            return Sums { packets, bytes, flows: self.packets.len() as u64 };
        }
        let mut total = Sums::default();
        self.for_each(&self.packets, selected, |_, amount| total.add(amount));
        total
    }

    /// Calls `take` for every selected row.
    #[inline]
    fn for_each<T: Copy>(&self, values: &[T], selected: Option<&[bool]>, mut take: impl FnMut(T, Sums)) {
        if let Some(records) = self.records {
            let rows = values.iter().zip(records).zip(self.packets.iter().zip(&*self.bytes)).enumerate();
            for (row, ((value, records), (packets, bytes))) in rows {
                if selected.is_none_or(|selected| selected[row]) {
                    take(*value, Sums { packets: *packets, bytes: *bytes, flows: u64::from(*records) });
                }
            }
            return;
        }
        let amounts = self.packets.iter().zip(&*self.bytes);
        let rows = values.iter().zip(amounts.map(|(packets, bytes)| Sums {
            packets: *packets,
            bytes: *bytes,
            flows: 1,
        }));
        match selected {
            None => rows.for_each(|(value, amount)| take(*value, amount)),
            Some(selected) => {
                let rows = rows.zip(selected).filter(|(_, selected)| **selected);
                rows.for_each(|((value, amount), _)| take(*value, amount));
            }
        }
    }
}

/// The sum, at most the largest number. Without a check for each value, several are added at once.
fn sum_of(values: &[u64]) -> u64 {
    let (sum, bits) =
        values.iter().fold((0, 0), |(sum, bits), value| (u64::wrapping_add(sum, *value), bits | value));
    let least_zeros = usize::BITS - values.len().leading_zeros();
    match u64::leading_zeros(bits) >= least_zeros {
        true => sum,
        false => values.iter().fold(0, |sum, value| u64::saturating_add(sum, *value)),
    }
}

/// Both directions of a counter, multiplied by the sampling interval.
fn both_ways<'a>(
    rows: &'a Rows<'_>,
    forward: Field,
    reverse: Option<Field>,
) -> Result<Cow<'a, [u64]>, StoreError> {
    let forward = rows.block().wide(forward)?;
    let Some(reverse) = reverse else { return rows.scaled(forward.into()) };
    let both = forward.iter().zip(rows.block().wide(reverse)?);
    rows.scaled(both.map(|(forward, reverse)| sum(*forward, *reverse)).collect())
}

impl<'a, K: Packed> Groups<'a, K> {
    fn new(grouping: Grouping<'a>, seed: Seed, keys_max: usize, numbers: &'a CommonNumbers) -> Self {
        Self {
            grouping,
            numbers,
            keys_max,
            total: Sums::default(),
            live: Sums::default(),
            parted: Parted::new(seed, keys_max),
            direct: Vec::new(),
            direct_keys: 0,
            rest: Sums::default(),
            by_code: Vec::new(),
            by_value: Vec::new(),
            packed: PackedRows::default(),
        }
    }

    fn add(&mut self, rows: &mut Rows<'_>) -> Result<(), StoreError> {
        let keys = self.grouping.keys;
        let mut needed = vec![Field::Packets, Field::Bytes];
        let reverse = !rows.is_absent(Field::ReversePackets);
        if reverse {
            needed.extend([Field::ReversePackets, Field::ReverseBytes]);
        }
        if self.grouping.steps.is_some() {
            needed.push(Field::FlowEnd);
        }
        needed.extend(keys.iter().flat_map(|key| [Some(key.source), key.destination]).flatten());
        if rows.is_rollup() {
            needed.push(RECORDS);
        }
        rows.need(&needed)?;
        rows.need_scale()?;
        let amounts = Amounts {
            records: if rows.is_rollup() { Some(rows.block().numbers(RECORDS)?) } else { None },
            packets: both_ways(rows, Field::Packets, reverse.then_some(Field::ReversePackets))?,
            bytes: both_ways(rows, Field::Bytes, reverse.then_some(Field::ReverseBytes))?,
        };
        let selected = rows.selected.as_deref();
        let total = amounts.total(selected);
        let sources: Vec<Field> = keys.iter().map(|key| key.source).collect();
        let either = keys.iter().any(|key| key.destination.is_some());
        // With a single key for one end, addresses are numbered only when a selected row has them.
        let is_lazy = self.grouping.is_direct() && !either;
        let numbers = if is_lazy { Vec::new() } else { self.numbers(rows, &sources)? };
        self.add_side(rows, (&sources, &numbers), &amounts, selected)?;
        if either {
            // A record counts for each of its ends, but once if both are the same.
            let sides: Vec<Field> = keys.iter().map(|key| key.destination.unwrap_or(key.source)).collect();
            let other_numbers = self.numbers(rows, &sides)?;
            let differ = differing(rows, (&sources, &numbers), (&sides, &other_numbers), selected)?;
            self.add_side(rows, (&sides, &other_numbers), &amounts, Some(&differ))?;
        }
        self.total.add(total);
        if rows.is_live() {
            self.live.add(total);
        }
        Ok(())
    }

    /// Numbers of the addresses in columns, by code; empty for other columns.
    fn numbers(&self, rows: &Rows<'_>, columns: &[Field]) -> Result<Vec<Vec<u32>>, StoreError> {
        let of = |id: &Field| match rows.block().column(*id)? {
            Column::Address(addresses) => Ok(self.numbers.numbers(addresses.distinct.iter())),
            Column::Number(_) => Ok(Vec::new()),
            Column::Wide(_) => Err(no_key(*id)),
        };
        columns.iter().map(of).collect()
    }

    fn add_side(
        &mut self,
        rows: &Rows<'_>,
        (columns, numbers): (&[Field], &[Vec<u32>]),
        amounts: &Amounts<'_>,
        selected: Option<&[bool]>,
    ) -> Result<(), StoreError> {
        if columns.is_empty() && self.grouping.steps.is_none() {
            return Ok(());
        }
        if let ([id], true) = (columns, self.grouping.is_direct()) {
            match rows.block().column(*id)? {
                Column::Address(addresses) => {
                    let numbers = numbers.first().map(Vec::as_slice);
                    self.add_addresses(addresses, numbers, amounts, selected);
                }
                Column::Number(values) => {
                    // A damaged file may have larger values than the type allows.
                    let mask: u32 = (1 << self.grouping.keys[0].bits()) - 1;
                    let codes = mask as usize + 1;
                    let lanes = if mask < LANES_CODES_MAX { LANES } else { 1 };
                    let sums = &mut self.by_value;
                    sums.resize(codes * lanes, Sums::default());
                    let mut lane = 0;
                    amounts.for_each(values, selected, |value, amount| {
                        lane = (lane + codes) & (codes * lanes - 1);
                        sums[lane + (value & mask) as usize].add(amount);
                    });
                }
                Column::Wide(_) => return Err(no_key(*id)),
            }
            return Ok(());
        }
        self.add_packed(rows, (columns, numbers), amounts, selected)
    }

    fn add_addresses(
        &mut self,
        addresses: &Addresses,
        numbers: Option<&[u32]>,
        amounts: &Amounts<'_>,
        selected: Option<&[bool]>,
    ) {
        self.by_code.clear();
        self.by_code.resize(addresses.distinct.len(), Sums::default());
        let sums = &mut self.by_code;
        match selected {
            None if amounts.records.is_none() => amounts.add_by_code(&addresses.codes, sums),
            _ => {
                amounts.for_each(&addresses.codes, selected, |code, amount| sums[code as usize].add(amount));
            }
        }
        let codes = (0..).zip(&self.by_code).filter(|(_, sums)| sums.flows > 0);
        match numbers {
            Some(numbers) => {
                let values: Vec<u32> = codes.map(|(code, _)| numbers[at(code)]).collect();
                self.add_codes(&values);
            }
            None => {
                let values = self.numbers.numbers(codes.map(|(code, _)| addresses.distinct.get(code)));
                self.add_codes(&values);
            }
        }
    }

    /// Adds the sums by value, when all rows have been added.
    fn add_values(&mut self) {
        let Some(codes) = self.grouping.keys.first().map(|key| 1 << key.bits()) else { return };
        let mut sets = self.by_value.chunks(codes);
        self.by_code = sets.next().map_or(Vec::new(), <[Sums]>::to_vec);
        for set in sets {
            self.by_code.iter_mut().zip(set).for_each(|(sum, other)| sum.add(*other));
        }
        let codes = (0..).zip(&self.by_code).filter(|(_, sums)| sums.flows > 0);
        let values: Vec<u32> = codes.map(|(code, _)| code).collect();
        self.add_codes(&values);
    }

    /// Adds the sums by code that are not zero to those of these values.
    fn add_codes(&mut self, values: &[u32]) {
        let largest = values.iter().copied().max().map_or(0, at);
        if largest >= self.direct.len() {
            self.direct.resize(largest + 1, Sums::default());
        }
        let mut sums = self.by_code.iter().filter(|sums| sums.flows > 0);
        for values in values.chunks(RUN) {
            // Prefetches all sums of the run before the first addition.
            std::hint::black_box(values.iter().fold(0, |all, value| all | self.direct[at(*value)].flows));
            for (value, sums) in values.iter().zip(&mut sums) {
                let sum = &mut self.direct[at(*value)];
                if sum.flows > 0 {
                    sum.add(*sums);
                } else if self.direct_keys < self.keys_max {
                    self.direct_keys += 1;
                    *sum = *sums;
                } else {
                    self.rest.add(*sums);
                }
            }
        }
    }

    fn add_packed(
        &mut self,
        rows: &Rows<'_>,
        (columns, numbers): (&[Field], &[Vec<u32>]),
        amounts: &Amounts<'_>,
        selected: Option<&[bool]>,
    ) -> Result<(), StoreError> {
        let block = rows.block();
        for start in (0..rows.len()).step_by(PACKED_ROWS) {
            let range = start..(start + PACKED_ROWS).min(rows.len());
            let PackedRows { keys, packets, bytes } = &mut self.packed;
            keys.clear();
            match self.grouping.steps {
                Some((from, step)) => {
                    let ends = block.wide(Field::FlowEnd)?[range.clone()].iter();
                    let steps = ends.map(|end| (end.saturating_sub(from) / step.max(1)).min(u32::MAX.into()));
                    keys.extend(steps.map(|step| K::default().with(step, 0)));
                }
                None => keys.resize(range.len(), K::default()),
            }
            for ((key, id), numbers) in self.grouping.keys.iter().zip(columns).zip(numbers) {
                let bits = key.bits();
                let mask = u64::MAX >> (64 - bits);
                match block.column(*id)? {
                    Column::Address(addresses) => {
                        let codes = &addresses.codes[range.clone()];
                        for (key, code) in keys.iter_mut().zip(codes) {
                            *key = key.with(numbers[*code as usize].into(), bits);
                        }
                    }
                    Column::Number(values) => {
                        for (key, value) in keys.iter_mut().zip(&values[range.clone()]) {
                            *key = key.with(u64::from(*value) & mask, bits);
                        }
                    }
                    Column::Wide(_) => return Err(no_key(*id)),
                }
            }
            if amounts.records.is_some() {
                let amounts = amounts.of(range.clone());
                let selected = selected.map(|selected| &selected[range]);
                let parted = &mut self.parted;
                amounts.for_each(keys, selected, |key, sums| parted.add(key, sums));
                continue;
            }
            let (all_packets, all_bytes) = (&amounts.packets[range.clone()], &amounts.bytes[range.clone()]);
            let Some(selected) = selected else {
                self.parted.add_rows(keys, all_packets, all_bytes);
                continue;
            };
            let selected = &selected[range];
            choose(all_packets, selected, packets);
            choose(all_bytes, selected, bytes);
            let mut flags = selected.iter();
            keys.retain(|_| flags.next().copied().unwrap_or(false));
            self.parted.add_rows(keys, packets, bytes);
        }
        Ok(())
    }
}

/// The selected values.
fn choose(values: &[u64], selected: &[bool], chosen: &mut Vec<u64>) {
    chosen.clear();
    chosen.extend(values.iter().zip(selected).filter(|(_, selected)| **selected).map(|(value, _)| *value));
}

/// The error for a column that cannot be a key.
fn no_key(id: Field) -> StoreError {
    StoreError::Query(format!("`{}` is no key", id.name()))
}

/// The selected rows whose two ends differ in one of the columns. Numbers are those of the addresses, by
/// code.
fn differing(
    rows: &Rows<'_>,
    (columns, numbers): (&[Field], &[Vec<u32>]),
    (others, other_numbers): (&[Field], &[Vec<u32>]),
    selected: Option<&[bool]>,
) -> Result<Vec<bool>, StoreError> {
    let block = rows.block();
    let mut differ = vec![false; rows.len()];
    let ends = columns.iter().zip(others).zip(numbers.iter().zip(other_numbers));
    for ((id, other), (numbers, other_numbers)) in ends.filter(|((id, other), _)| id != other) {
        match (block.column(*id)?, block.column(*other)?) {
            (Column::Address(here), Column::Address(there)) => {
                for (row, (here, there)) in differ.iter_mut().zip(here.codes.iter().zip(&there.codes)) {
                    *row |= numbers[*here as usize] != other_numbers[*there as usize];
                }
            }
            (Column::Number(here), Column::Number(there)) => {
                differ
                    .iter_mut()
                    .zip(here.iter().zip(there))
                    .for_each(|(row, (here, there))| *row |= here != there);
            }
            _ => return Err(no_key(*id)),
        }
    }
    if let Some(selected) = selected {
        differ.iter_mut().zip(selected).for_each(|(row, selected)| *row &= selected);
    }
    Ok(differ)
}

#[cfg(test)]
mod tests {
    use super::sum_of;

    #[test]
    fn a_sum_stays_at_the_largest_number() {
        assert_eq!((sum_of(&[]), sum_of(&[5]), sum_of(&[1, 2, 3])), (0, 5, 6));
        assert_eq!(sum_of(&[u64::MAX / 2, u64::MAX / 2, 1]), u64::MAX);
        assert_eq!(sum_of(&[u64::MAX / 2, u64::MAX / 2, 2]), u64::MAX);
        assert_eq!(sum_of(&[1 << 63, 1 << 63, 1 << 63]), u64::MAX);
        assert_eq!(sum_of(&[1 << 62; 3]), 3 << 62);
    }
}
