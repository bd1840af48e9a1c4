//! Sums of packets, octets and records by key.
//!
//! A key is packed into 128 bits; addresses are numbered first, each distinct one of a row group once. With a single key
//! whose values have codes (an address, a port, a protocol) the way from a row to its sums is two array look-ups, and the
//! hash table is asked once for each code of a row group. With several keys it is asked for every row.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::{Key, KeyValue, Metric, Query, Rows, Scanned, scan, tasks};
use crate::block::{AddressNumbers, Column};
use crate::dataset::View;
use crate::error::StoreError;
use crate::filter::sum;
use crate::schema::ColumnId;

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Packets, of both directions.
    pub packets: u64,
    /// Octets, of both directions.
    pub octets: u64,
    /// Records.
    pub flows: u64,
}

impl Sums {
    /// The one by which is ranked.
    pub fn of(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Packets => self.packets,
            Metric::Octets => self.octets,
            Metric::Flows => self.flows,
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: Sums) {
        self.packets = self.packets.saturating_add(other.packets);
        self.octets = self.octets.saturating_add(other.octets);
        self.flows += other.flows;
    }
}

/// By what is grouped: keys, and steps of time.
#[derive(Clone, Copy)]
pub(super) struct Grouping<'a> {
    pub(super) keys: &'a [Key],
    /// Beginning and length of the steps, nanoseconds.
    pub(super) steps: Option<(u64, u64)>,
}

/// Codes of a single key that are remembered in an array.
const DIRECT_BITS_MAX: u32 = 17;
const UNSET: u32 = u32::MAX;
/// The group of keys for which there was no room.
const REST: u32 = 0;

/// Sums of one thread, or of all.
pub(super) struct Groups<'a> {
    grouping: Grouping<'a>,
    keys_max: usize,
    ids: HashMap<u128, u32, RandomState>,
    packed: Vec<u128>,
    sums: Vec<Sums>,
    addresses: AddressNumbers,
    pub(super) total: Sums,
    /// Group by value, of a single key that is an address (by its number) or of few bits.
    direct: Vec<u32>,
}

/// Sums up a query by key.
pub(super) fn aggregate<'a>(
    view: &View,
    query: &Query,
    grouping: Grouping<'a>,
) -> Result<(Groups<'a>, Scanned), StoreError> {
    let bits =
        grouping.keys.iter().map(Key::bits).sum::<u32>() + if grouping.steps.is_some() { 32 } else { 0 };
    if bits > 128 {
        return Err(StoreError::Query("too many keys at once; five are possible".to_owned()));
    }
    let make = || Groups::new(grouping, query.keys_max);
    let (parts, scanned) = scan(view, query, tasks(view), make, |groups, rows| groups.add(rows))?;
    let mut parts = parts.into_iter();
    let mut all = parts.next().unwrap_or_else(make);
    for part in parts {
        all.join(&part);
    }
    Ok((all, scanned))
}

impl<'a> Groups<'a> {
    fn new(grouping: Grouping<'a>, keys_max: usize) -> Self {
        Self {
            grouping,
            keys_max,
            ids: HashMap::default(),
            packed: vec![0],
            sums: vec![Sums::default()],
            addresses: AddressNumbers::default(),
            total: Sums::default(),
            direct: Vec::new(),
        }
    }

    /// Sums of keys for which there was no room.
    pub(super) fn rest(&self) -> Sums {
        self.sums[REST as usize]
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.sums.len() - 1
    }

    /// All groups, by number, with their sums.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Sums)> + '_ {
        (1..).zip(self.sums[1..].iter().copied())
    }

    /// The sums of a group.
    pub(super) fn sums(&self, group: u32) -> Sums {
        self.sums[group as usize]
    }

    /// The step of time of a group, and the values of its keys.
    pub(super) fn key(&self, group: u32) -> (u32, Vec<KeyValue>) {
        let mut packed = self.packed[group as usize];
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
        (packed as u32, values)
    }

    fn group(&mut self, packed: u128) -> u32 {
        if let Some(group) = self.ids.get(&packed) {
            return *group;
        }
        let group = self.new_group(packed);
        if group != REST {
            self.ids.insert(packed, group);
        }
        group
    }

    fn new_group(&mut self, packed: u128) -> u32 {
        if self.len() >= self.keys_max {
            return REST;
        }
        self.packed.push(packed);
        self.sums.push(Sums::default());
        (self.sums.len() - 1) as u32
    }

    /// The group of a value of a single key that is found by the value, or by the address's number.
    fn direct_group(&mut self, value: u32) -> u32 {
        let place = value as usize;
        if place >= self.direct.len() {
            self.direct.resize(place + 1, UNSET);
        }
        if self.direct[place] == UNSET {
            self.direct[place] = self.new_group(value.into());
        }
        self.direct[place]
    }

    /// Whether the group is found by the value, without the hash table.
    fn is_direct(&self) -> bool {
        match (self.grouping.keys, self.grouping.steps) {
            ([key], None) => key.is_address() || key.bits() <= DIRECT_BITS_MAX,
            _ => false,
        }
    }

    /// Adds the selected rows.
    fn add(&mut self, rows: &mut Rows<'_>) -> Result<(), StoreError> {
        let keys = self.grouping.keys;
        let mut needed = vec![ColumnId::Packets, ColumnId::Octets];
        let reverse = !rows.is_absent(ColumnId::ReversePackets);
        if reverse {
            needed.extend([ColumnId::ReversePackets, ColumnId::ReverseOctets]);
        }
        if self.grouping.steps.is_some() {
            needed.push(ColumnId::FlowEnd);
        }
        needed.extend(keys.iter().flat_map(|key| [Some(key.source), key.destination]).flatten());
        rows.need(&needed)?;
        let block = rows.block();
        let packets = block.wide(ColumnId::Packets)?.iter().copied();
        let octets = block.wide(ColumnId::Octets)?.iter().copied();
        let forward = packets.zip(octets);
        let amounts: Vec<Sums> = if reverse {
            let packets = block.wide(ColumnId::ReversePackets)?.iter().copied();
            let back = packets.zip(block.wide(ColumnId::ReverseOctets)?.iter().copied());
            let both =
                forward.zip(back).map(|(forward, back)| (sum(forward.0, back.0), sum(forward.1, back.1)));
            both.map(|(packets, octets)| Sums { packets, octets, flows: 1 }).collect()
        } else {
            forward.map(|(packets, octets)| Sums { packets, octets, flows: 1 }).collect()
        };
        let selected = rows.selected.as_deref();
        match selected {
            None => amounts.iter().for_each(|amount| self.total.add(*amount)),
            Some(selected) => {
                let of_interest = amounts.iter().zip(selected).filter(|(_, selected)| **selected);
                of_interest.for_each(|(amount, _)| self.total.add(*amount));
            }
        }
        let sources: Vec<ColumnId> = keys.iter().map(|key| key.source).collect();
        self.add_side(rows, &sources, &amounts, selected)?;
        if keys.iter().any(|key| key.destination.is_some()) {
            // A record counts once for each of its ends, and once if both are the same.
            let sides: Vec<ColumnId> = keys.iter().map(|key| key.destination.unwrap_or(key.source)).collect();
            let selected = differing(rows, keys, selected)?;
            self.add_side(rows, &sides, &amounts, Some(&selected))?;
        }
        Ok(())
    }

    fn add_side(
        &mut self,
        rows: &Rows<'_>,
        columns: &[ColumnId],
        amounts: &[Sums],
        selected: Option<&[bool]>,
    ) -> Result<(), StoreError> {
        if columns.is_empty() && self.grouping.steps.is_none() {
            return Ok(());
        }
        if let ([id], true) = (columns, self.is_direct()) {
            match rows.block().column(*id)? {
                Column::Address(addresses) => {
                    let mut groups = vec![UNSET; addresses.distinct.len()];
                    for_each(&addresses.codes, amounts, selected, |code, amount| {
                        let mut group = groups[code as usize];
                        if group == UNSET {
                            let number = self.addresses.number(addresses.distinct[code as usize]);
                            group = self.direct_group(number);
                            groups[code as usize] = group;
                        }
                        self.sums[group as usize].add(amount);
                    });
                }
                Column::Number(values) => {
                    // A damaged file may have larger values than its type has.
                    let mask = (1 << self.grouping.keys[0].bits()) - 1;
                    for_each(values, amounts, selected, |value, amount| {
                        let group = self.direct_group(value & mask);
                        self.sums[group as usize].add(amount);
                    });
                }
                Column::Wide(_) => return Err(StoreError::Query("a key that is none".to_owned())),
            }
            return Ok(());
        }
        let packed = self.pack(rows, columns)?;
        for_each(&packed, amounts, selected, |packed, amount| {
            let group = self.group(packed);
            self.sums[group as usize].add(amount);
        });
        Ok(())
    }

    /// The packed key of every row.
    fn pack(&mut self, rows: &Rows<'_>, columns: &[ColumnId]) -> Result<Vec<u128>, StoreError> {
        let block = rows.block();
        let mut packed = match self.grouping.steps {
            Some((from, step)) => {
                let ends = block.wide(ColumnId::FlowEnd)?.iter();
                ends.map(|end| (end.saturating_sub(from) / step.max(1)).min(u32::MAX.into()).into()).collect()
            }
            None => vec![0u128; rows.len()],
        };
        for (key, id) in self.grouping.keys.iter().zip(columns) {
            let bits = key.bits();
            match block.column(*id)? {
                Column::Address(addresses) => {
                    let ids: Vec<u32> =
                        addresses.distinct.iter().map(|address| self.addresses.number(*address)).collect();
                    let codes = addresses.codes.iter();
                    packed.iter_mut().zip(codes).for_each(|(packed, code)| {
                        *packed = *packed << bits | u128::from(ids[*code as usize]);
                    });
                }
                Column::Number(values) => {
                    let mask = (1u128 << bits) - 1;
                    packed.iter_mut().zip(values).for_each(|(packed, value)| {
                        *packed = *packed << bits | u128::from(*value) & mask;
                    });
                }
                Column::Wide(_) => return Err(StoreError::Query(format!("`{}` is no key", key.name))),
            }
        }
        Ok(packed)
    }

    /// Adds the sums of another thread.
    fn join(&mut self, other: &Groups<'_>) {
        self.total.add(other.total);
        self.sums[REST as usize].add(other.rest());
        let numbers = other.addresses.distinct.iter().map(|address| self.addresses.number(*address));
        let numbers: Vec<u32> = numbers.collect();
        let direct = self.is_direct();
        for (group, sums) in other.iter() {
            let packed = self.translate(other.packed[group as usize], &numbers);
            let group = if direct { self.direct_group(packed as u32) } else { self.group(packed) };
            self.sums[group as usize].add(sums);
        }
    }

    /// A packed key of another thread, with this one's numbers of addresses.
    fn translate(&self, packed: u128, ids: &[u32]) -> u128 {
        let mut shift = 0;
        let mut translated = packed;
        for key in self.grouping.keys.iter().rev() {
            if key.is_address() {
                let mask = u128::from(u32::MAX) << shift;
                let theirs = (packed & mask) >> shift;
                let ours = ids.get(theirs as usize).copied().unwrap_or(0);
                translated = translated & !mask | u128::from(ours) << shift;
            }
            shift += key.bits();
        }
        translated
    }
}

/// Calls `take` for every selected row.
#[inline]
fn for_each<T: Copy>(
    values: &[T],
    amounts: &[Sums],
    selected: Option<&[bool]>,
    mut take: impl FnMut(T, Sums),
) {
    match selected {
        None => values.iter().zip(amounts).for_each(|(value, amount)| take(*value, *amount)),
        Some(selected) => {
            for ((value, amount), selected) in values.iter().zip(amounts).zip(selected) {
                if *selected {
                    take(*value, *amount);
                }
            }
        }
    }
}

/// The selected rows whose two ends differ in one of the keys that mean either end.
fn differing(rows: &Rows<'_>, keys: &[Key], selected: Option<&[bool]>) -> Result<Vec<bool>, StoreError> {
    let block = rows.block();
    let mut differ = vec![false; rows.len()];
    for key in keys {
        let Some(destination) = key.destination else { continue };
        match (block.column(key.source)?, block.column(destination)?) {
            (Column::Address(source), Column::Address(destination)) => {
                let mut numbers = AddressNumbers::default();
                source.distinct.iter().for_each(|address| {
                    numbers.number(*address);
                });
                let codes =
                    destination.distinct.iter().map(|address| numbers.find(*address).unwrap_or(UNSET));
                let codes: Vec<u32> = codes.collect();
                let both = source.codes.iter().zip(&destination.codes);
                differ.iter_mut().zip(both).for_each(|(row, (source, destination))| {
                    *row |= *source != codes[*destination as usize];
                });
            }
            (Column::Number(source), Column::Number(destination)) => {
                let both = source.iter().zip(destination);
                differ
                    .iter_mut()
                    .zip(both)
                    .for_each(|(row, (source, destination))| *row |= source != destination);
            }
            _ => return Err(StoreError::Query(format!("`{}` is no key", key.name))),
        }
    }
    if let Some(selected) = selected {
        differ.iter_mut().zip(selected).for_each(|(row, selected)| *row &= selected);
    }
    Ok(differ)
}
