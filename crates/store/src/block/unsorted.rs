//! The addresses of a column that has no dictionary yet.
//!
//! Addresses are sorted by digits, with their rows. So the dictionary needs no hash table, whose memory is read at random:
//! a new address is one that differs from its neighbor.

use std::net::{IpAddr, Ipv6Addr};

use super::order::sort;
use super::{Addresses, Distinct, Spare, at, low, number};

/// Addresses in the order of rows.
pub(super) struct Unsorted {
    rows: u32,
    /// IPv4 addresses, each with its row in the lower half.
    v4: Vec<u64>,
    v6: Vec<(u128, u32)>,
    /// Rows without an address.
    none: Vec<u32>,
}

impl Unsorted {
    /// With this memory, which is empty.
    pub(super) fn new(v4: Vec<u64>) -> Self {
        Self { rows: 0, v4, v6: Vec::new(), none: Vec::new() }
    }

    pub(super) fn extend(&mut self, addresses: impl Iterator<Item = Option<IpAddr>>) {
        for address in addresses {
            match address {
                Some(IpAddr::V4(address)) => {
                    self.v4.push(u64::from(u32::from(address)) << 32 | u64::from(self.rows))
                }
                Some(IpAddr::V6(address)) => self.v6.push((address.into(), self.rows)),
                None => self.none.push(self.rows),
            }
            self.rows += 1;
        }
    }

    /// With a dictionary in the order of addresses, IPv4 first; NULL is at the end.
    pub(super) fn sorted(self, spare: &mut Spare) -> Addresses {
        let Self { rows, mut v4, mut v6, none } = self;
        let mut codes = spare.numbers(at(rows));
        codes.resize(at(rows), 0);
        let mut distinct = Vec::new();
        let room = spare.wide(v4.len());
        let room = sort(&mut v4, room, 32..64);
        let mut before = None;
        for both in &v4 {
            let address = low(both >> 32);
            if before != Some(address) {
                before = Some(address);
                distinct.push(Some(IpAddr::from(address.to_be_bytes())));
            }
            codes[at(low(*both))] = number(distinct.len() - 1);
        }
        spare.keep_wide(v4);
        spare.keep_wide(room);
        v6.sort_unstable();
        let mut before = None;
        for (address, row) in v6 {
            if before != Some(address) {
                before = Some(address);
                distinct.push(Some(IpAddr::V6(Ipv6Addr::from(address))));
            }
            codes[at(row)] = number(distinct.len() - 1);
        }
        if !none.is_empty() {
            distinct.push(None);
            none.iter().for_each(|row| codes[at(*row)] = number(distinct.len() - 1));
        }
        Addresses { codes, distinct: Distinct::Parsed(distinct) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Chance;

    /// Few and many addresses of both families, of one network and of all, and rows without.
    #[test]
    fn each_row_has_its_address_and_the_dictionary_is_in_order() {
        let mut chance = Chance::new(61);
        for (rows, bits) in [(0, 32), (1, 32), (1000, 4), (10_000, 8), (20_000, 20), (50_000, 32)] {
            let addresses: Vec<Option<IpAddr>> = (0..rows)
                .map(|_| {
                    let low = (chance.next_u64() as u32) >> (32 - bits);
                    match chance.below(9) {
                        0 => None,
                        1 => Some(Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(low)).into()),
                        _ => Some(IpAddr::from((0x0a00_0000 ^ low).to_be_bytes())),
                    }
                })
                .collect();
            let mut unsorted = Unsorted::new(Vec::new());
            unsorted.extend(addresses.iter().copied());
            let sorted = unsorted.sorted(&mut Spare::default());
            assert!((0..rows).all(|row| sorted.get(row) == addresses[row]), "{rows} rows");
            let distinct: Vec<IpAddr> = sorted.distinct.iter().flatten().collect();
            assert!(distinct.windows(2).all(|two| two[0] < two[1]));
            let has_none = addresses.contains(&None);
            assert_eq!(sorted.distinct.len(), distinct.len() + usize::from(has_none));
        }
    }
}
