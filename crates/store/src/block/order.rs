//! The order of rows: sorting by digits, and columns in another order.
//!
//! Records become columns in the order in which they came, because then their memory is read in sequence; rows are sorted
//! as columns, of which one fits into the second-level cache.

use std::ops::Range;

use super::{Column, Spare, at, low, number};

/// Bits of a digit.
const DIGIT: u32 = 11;
const PLACES: usize = 1 << DIGIT;
/// Fewer numbers are sorted by comparing them.
const DIGITS_PAY: usize = 4096;

/// Sorts by these bits, in room for as many numbers, which it returns. Numbers with the same bits stay in order if the
/// lower bits are ascending.
pub(super) fn sort(values: &mut Vec<u64>, mut room: Vec<u64>, by: Range<u32>) -> Vec<u64> {
    if values.len() < DIGITS_PAY {
        values.sort_unstable();
        return room;
    }
    let shifts: Vec<u32> = by.step_by(at(DIGIT)).collect();
    let digit = |value: u64, shift: u32| at(low(value >> shift)) % PLACES;
    let mut counts = vec![[0u32; PLACES]; shifts.len()];
    for value in &*values {
        for (counts, shift) in counts.iter_mut().zip(&shifts) {
            counts[digit(*value, *shift)] += 1;
        }
    }
    room.resize(values.len(), 0);
    for (counts, shift) in counts.iter_mut().zip(shifts) {
        // Hosts of one network have the same upper digits.
        if values.first().is_some_and(|first| at(counts[digit(*first, shift)]) == values.len()) {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        for value in &*values {
            let place = &mut counts[digit(*value, shift)];
            room[at(*place)] = *value;
            *place += 1;
        }
        std::mem::swap(values, &mut room);
    }
    room
}

/// The rows in ascending order of these values; rows with the same value stay in order. `None` if they are in order.
pub(super) fn ascending(values: &[u64], spare: &mut Spare) -> Option<Vec<u32>> {
    if values.is_sorted() {
        return None;
    }
    let mut order = spare.numbers(values.len());
    let (least, greatest) = values
        .iter()
        .fold((u64::MAX, 0), |(least, greatest), value| (least.min(*value), greatest.max(*value)));
    let row_bits = u64::BITS - (values.len() as u64).leading_zeros();
    let value_bits = u64::BITS - (greatest - least).leading_zeros();
    if row_bits + value_bits > u64::BITS {
        order.extend(0..number(values.len()));
        order.sort_by_key(|row| values[at(*row)]);
        return Some(order);
    }
    let mut keys = spare.wide(values.len());
    keys.extend((0u64..).zip(values).map(|(row, value)| (value - least) << row_bits | row));
    let room = spare.wide(values.len());
    let room = sort(&mut keys, room, row_bits..row_bits + value_bits);
    order.extend(keys.iter().map(|key| low(key & ((1 << row_bits) - 1))));
    spare.keep_wide(keys);
    spare.keep_wide(room);
    Some(order)
}

impl Column {
    /// Brings the rows in this order.
    pub(super) fn rearrange(&mut self, order: &[u32], spare: &mut Spare) {
        match self {
            Self::Number(values) => rearrange_numbers(values, order, spare),
            Self::Address(addresses) => rearrange_numbers(&mut addresses.codes, order, spare),
            Self::Wide(values) => {
                let mut moved = spare.wide(values.len());
                moved.extend(order.iter().map(|row| values[at(*row)]));
                spare.keep_wide(std::mem::replace(values, moved));
            }
        }
    }
}

fn rearrange_numbers(values: &mut Vec<u32>, order: &[u32], spare: &mut Spare) {
    let mut moved = spare.numbers(values.len());
    moved.extend(order.iter().map(|row| values[at(*row)]));
    spare.keep_numbers(std::mem::replace(values, moved));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Chance;

    /// Few and many values, from a narrow range and from all, in order and not.
    #[test]
    fn rows_come_in_ascending_order_and_equal_ones_stay() {
        let mut chance = Chance::new(62);
        for rows in [0, 1, 100, DIGITS_PAY, 5 * DIGITS_PAY] {
            for bits in [1, 9, 33, 64] {
                let values: Vec<u64> = (0..rows).map(|_| chance.next_u64() >> (64 - bits)).collect();
                let mut wanted: Vec<u32> = (0..number(rows)).collect();
                wanted.sort_by_key(|row| values[at(*row)]);
                let mut spare = Spare::default();
                let order = ascending(&values, &mut spare);
                assert_eq!(order.is_none(), values.is_sorted());
                let order = order.unwrap_or_else(|| (0..number(rows)).collect());
                assert_eq!(order, wanted, "{rows} rows of {bits} bits");
                let mut column = Column::Wide(values.clone());
                column.rearrange(&order, &mut spare);
                assert!(matches!(column, Column::Wide(moved) if moved.is_sorted()));
            }
        }
    }
}
