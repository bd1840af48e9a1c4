//! Which hop each prefix has: a hash table per family, 8 and 32 bytes an entry.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use thalweg_base::Prefix;
use thalweg_bgp::route::{RouteAddress, prefix_hash};

/// The number of a next hop in the tables; never 0.
pub type HopNumber = u16;

/// Room for so many entries is kept however few there are; more is given back when prefixes have gone.
const ROOM_KEPT: usize = 4096;

/// An entry, packed: a `Prefix` and a number apart would take half as much again.
#[derive(Clone, Copy, Debug)]
struct Packed<A> {
    address: A,
    length: u8,
    hop: HopNumber,
}

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
    /// Prefixes by length, to look only for lengths there are.
    lengths: [u32; 129],
}

impl<A> Default for PrefixTable<A> {
    fn default() -> Self {
        Self { entries: HashTable::new(), lengths: [0; 129] }
    }
}

impl<A: RouteAddress> PrefixTable<A> {
    /// Sets or (`None`) removes the hop of a prefix; the one it had.
    pub(super) fn set(&mut self, prefix: Prefix<A>, hop: Option<HopNumber>) -> Option<HopNumber> {
        let entry = self.entries.entry(prefix_hash(prefix), |each| each.is(prefix), hash);
        match (entry, hop) {
            (Entry::Occupied(mut entry), Some(hop)) => Some(std::mem::replace(&mut entry.get_mut().hop, hop)),
            (Entry::Occupied(entry), None) => {
                let (removed, _) = entry.remove();
                self.lengths[usize::from(prefix.length())] -= 1;
                let (used, room) = (self.entries.len(), self.entries.capacity());
                if room > ROOM_KEPT && room > 8 * used {
                    self.entries.shrink_to(2 * used, hash);
                }
                Some(removed.hop)
            }
            (Entry::Vacant(entry), Some(hop)) => {
                entry.insert(Packed { address: prefix.address(), length: prefix.length(), hop });
                self.lengths[usize::from(prefix.length())] += 1;
                None
            }
            (Entry::Vacant(_), None) => None,
        }
    }

    /// The longest prefix that has the address, of those whose hop is acceptable: its length and hop.
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
}

/// Both families'.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) v4: PrefixTable<u32>,
    pub(super) v6: PrefixTable<u128>,
}

/// The table of a family.
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
