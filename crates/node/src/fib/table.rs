//! The hop of each prefix: one hash table per family, with 8 or 32 bytes per entry.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use thalweg_base::Prefix;
use thalweg_bgp::route::{RouteAddress, prefix_hash};

/// The number of a next hop in the tables; never 0.
pub type HopNumber = u16;

/// Capacity for this many entries is always kept; more is given back after prefixes have gone.
const ROOM_KEPT: usize = 4096;

/// Packed, because a separate `Prefix` and number would take half as much again.
#[derive(Clone, Copy, Debug)]
struct Packed<A> {
    address: A,
    length: u8,
    /// A predecessor saved it, and nobody has repeated it.
    is_saved: bool,
    hop: HopNumber,
}

const _: () = assert!(size_of::<Packed<u32>>() == 8 && size_of::<Packed<u128>>() == 32);

impl<A: RouteAddress> Packed<A> {
    fn prefix(&self) -> Option<Prefix<A>> {
        Prefix::new(self.address, self.length).ok()
    }

    fn is(&self, prefix: Prefix<A>) -> bool {
        self.address == prefix.address() && self.length == prefix.length()
    }
}

fn hash<A: RouteAddress>(entry: &Packed<A>) -> u64 {
    entry.prefix().map_or(0, prefix_hash)
}

/// The hops of one family's prefixes.
#[derive(Debug)]
pub(super) struct PrefixTable<A> {
    entries: HashTable<Packed<A>>,
    /// Number of prefixes of each length, to skip lengths without any.
    lengths: [u32; 129],
    /// Number of saved ones.
    saved: usize,
}

impl<A> Default for PrefixTable<A> {
    fn default() -> Self {
        Self { entries: HashTable::new(), lengths: [0; 129], saved: 0 }
    }
}

impl<A: RouteAddress> PrefixTable<A> {
    /// Sets or (`None`) removes the hop of a prefix; returns the former one.
    pub(super) fn set(&mut self, prefix: Prefix<A>, hop: Option<HopNumber>) -> Option<HopNumber> {
        self.put(prefix, hop, false)
    }

    /// Sets the hop of a prefix as a predecessor saved it; returns the former one.
    pub(super) fn set_saved(&mut self, prefix: Prefix<A>, hop: Option<HopNumber>) -> Option<HopNumber> {
        self.put(prefix, hop, true)
    }

    fn put(&mut self, prefix: Prefix<A>, hop: Option<HopNumber>, is_saved: bool) -> Option<HopNumber> {
        self.saved += usize::from(is_saved && hop.is_some());
        let entry = self.entries.entry(prefix_hash(prefix), |each| each.is(prefix), hash);
        match (entry, hop) {
            (Entry::Occupied(mut entry), Some(hop)) => {
                let entry = entry.get_mut();
                self.saved -= usize::from(std::mem::replace(&mut entry.is_saved, is_saved));
                Some(std::mem::replace(&mut entry.hop, hop))
            }
            (Entry::Occupied(entry), None) => {
                let (removed, _) = entry.remove();
                self.saved -= usize::from(removed.is_saved);
                self.lengths[usize::from(prefix.length())] -= 1;
                let (used, room) = (self.entries.len(), self.entries.capacity());
                if room > ROOM_KEPT && room > 8 * used {
                    self.entries.shrink_to(2 * used, hash);
                }
                Some(removed.hop)
            }
            (Entry::Vacant(entry), Some(hop)) => {
                entry.insert(Packed { address: prefix.address(), length: prefix.length(), is_saved, hop });
                self.lengths[usize::from(prefix.length())] += 1;
                None
            }
            (Entry::Vacant(_), None) => None,
        }
    }

    /// The length and hop of the longest match whose hop `accept` admits.
    pub(super) fn longest(&self, address: A, accept: impl Fn(HopNumber) -> bool) -> Option<(u8, HopNumber)> {
        (0..=A::BITS).rev().filter(|length| self.lengths[usize::from(*length)] > 0).find_map(|length| {
            let prefix = Prefix::new(address, length).ok()?;
            let entry = self.entries.find(prefix_hash(prefix), |each| each.is(prefix))?;
            accept(entry.hop).then_some((length, entry.hop))
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix<A>, HopNumber)> + '_ {
        self.entries.iter().filter_map(|entry| Some((entry.prefix()?, entry.hop)))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Prefixes that a predecessor saved, and nobody has repeated.
    pub(super) fn saved(&self) -> usize {
        self.saved
    }
}

/// The tables of both families.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) v4: PrefixTable<u32>,
    pub(super) v6: PrefixTable<u128>,
}

/// Selects the table of a family.
pub(super) trait Both<A> {
    fn of_mut(&mut self) -> &mut PrefixTable<A>;
}

impl Both<u32> for Tables {
    fn of_mut(&mut self) -> &mut PrefixTable<u32> {
        &mut self.v4
    }
}

impl Both<u128> for Tables {
    fn of_mut(&mut self) -> &mut PrefixTable<u128> {
        &mut self.v6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back() {
        let mut table = PrefixTable::<u32>::default();
        let prefix = |n: u32| Prefix::new(n << 8, 24).expect("24 is a length");
        (0..300_000).for_each(|n| _ = table.set(prefix(n), Some(1)));
        assert!(table.entries.capacity() >= 300_000);
        for n in 0..300_000 {
            assert_eq!(table.set(prefix(n), None), Some(1));
            assert!(n < 200_000 || table.entries.capacity() <= 2 * ROOM_KEPT.max(8 * table.len()), "{n}");
        }
    }
}
