//! A table of VRPs that never changes.
//!
//! ```text
//! entries   address  AS  parent  length  max     in order of address, then length: 16 B (IPv4), 32 B (IPv6)
//! samples   the address of every 64th entry      in the cache, whatever the table's size
//! ```
//!
//! In this order every VRP comes behind those whose prefix covers its own, so the last entry that is not behind a
//! prefix is covered by the same VRPs as the prefix, or is below them. From there, `parent` leads to the next VRP of
//! the same or of a covering prefix: all VRPs that cover a prefix are a chain. A look-up is two binary searches, one
//! in the samples and one in about 64 entries, and a walk along the chain, which is short.
//!
//! A change merges sorted lists, on the thread that talks to the cache.

use thalweg_base::{Address, IpPrefix, Prefix};

use super::Validity;

/// Entries from one sample to the next.
const SAMPLE: usize = 64;

/// No entry.
const NONE: u32 = u32::MAX;

/// A validated ROA payload: the AS may originate the prefix and what is inside it, down to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vrp {
    pub prefix: IpPrefix,
    /// At least the prefix's own length, at most the family's bits.
    pub max_length: u8,
    /// 0: nobody may (RFC 6483).
    pub asn: u32,
}

/// VRPs in any order.
#[derive(Clone, Debug, Default)]
pub struct VrpList {
    v4: Vec<Entry<u32>>,
    v6: Vec<Entry<u128>>,
}

/// VRPs in order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VrpTable {
    v4: Ordered<u32>,
    v6: Ordered<u128>,
}

/// Why a difference does not fit a table (RFC 8210 section 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeFault {
    #[error("{0} VRPs withdrawn that were not announced")]
    UnknownWithdrawn(usize),
    #[error("{0} VRPs announced twice")]
    Duplicate(usize),
}

#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    address: A,
    asn: u32,
    /// Set in tables only.
    parent: u32,
    length: u8,
    max_length: u8,
}

impl<A: Address> Entry<A> {
    fn key(&self) -> (A, u8, u8, u32) {
        (self.address, self.length, self.max_length, self.asn)
    }

    fn covers(&self, prefix: Prefix<A>) -> bool {
        self.length <= prefix.length() && prefix.address().truncate(self.length) == self.address
    }
}

impl<A: Address> PartialEq for Entry<A> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<A: Address> Eq for Entry<A> {}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ordered<A: Address> {
    entries: Box<[Entry<A>]>,
    samples: Box<[A]>,
}

impl<A: Address> Default for Ordered<A> {
    fn default() -> Self {
        Self { entries: Box::default(), samples: Box::default() }
    }
}

impl VrpList {
    /// Adds a VRP; one that is impossible is as if it were not there.
    pub fn push(&mut self, vrp: Vrp) {
        let Vrp { prefix, max_length, asn } = vrp;
        let length = prefix.length();
        match prefix {
            IpPrefix::V4(prefix) if (length..=32).contains(&max_length) => {
                self.v4.push(Entry { address: prefix.address(), asn, parent: NONE, length, max_length });
            }
            IpPrefix::V6(prefix) if (length..=128).contains(&max_length) => {
                self.v6.push(Entry { address: prefix.address(), asn, parent: NONE, length, max_length });
            }
            IpPrefix::V4(_) | IpPrefix::V6(_) => {}
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In order, each once.
    pub fn into_table(self) -> VrpTable {
        VrpTable { v4: Ordered::from_any(self.v4), v6: Ordered::from_any(self.v6) }
    }
}

impl FromIterator<Vrp> for VrpList {
    fn from_iter<I: IntoIterator<Item = Vrp>>(vrps: I) -> Self {
        let mut list = Self::default();
        vrps.into_iter().for_each(|vrp| list.push(vrp));
        list
    }
}

impl VrpTable {
    /// The number of VRPs of each family.
    pub fn counts(&self) -> [usize; 2] {
        [self.v4.entries.len(), self.v6.entries.len()]
    }

    /// The number of all VRPs.
    pub fn len(&self) -> usize {
        self.counts().iter().sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    /// RFC 6811 section 2.1; `None` is the origin of a path that ends with a set.
    pub fn validity(&self, prefix: IpPrefix, origin: Option<u32>) -> Validity {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.validity(prefix, origin),
            IpPrefix::V6(prefix) => self.v6.validity(prefix, origin),
        }
    }

    /// Whether some VRP covers the prefix.
    pub fn covers(&self, prefix: IpPrefix) -> bool {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.covering(prefix).next().is_some(),
            IpPrefix::V6(prefix) => self.v6.covering(prefix).next().is_some(),
        }
    }

    /// The VRPs that cover a prefix, the most specific first.
    pub fn covering(&self, prefix: IpPrefix) -> Vec<Vrp> {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.covering(prefix).filter_map(vrp).collect(),
            IpPrefix::V6(prefix) => self.v6.covering(prefix).filter_map(vrp).collect(),
        }
    }

    /// All VRPs in order.
    pub fn iter(&self) -> impl Iterator<Item = Vrp> {
        let v4 = self.v4.entries.iter().filter_map(vrp);
        v4.chain(self.v6.entries.iter().filter_map(vrp))
    }

    /// The table after a difference. A VRP that is in both lists is in the result.
    pub fn changed(&self, announced: VrpList, withdrawn: VrpList) -> Result<Self, ChangeFault> {
        let v4 = self.v4.changed(announced.v4, withdrawn.v4)?;
        Ok(Self { v4, v6: self.v6.changed(announced.v6, withdrawn.v6)? })
    }

    /// The VRPs that are in one of two tables only. The validity of a prefix that none of these covers is the same
    /// under both.
    pub fn difference(&self, other: &Self) -> Self {
        let either = |in_one: bool, in_other: bool| in_one != in_other;
        Self {
            v4: Ordered::new(merge(&self.v4.entries, &other.v4.entries, either)),
            v6: Ordered::new(merge(&self.v6.entries, &other.v6.entries, either)),
        }
    }
}

fn vrp<A: Address + Into<Bits>>(entry: &Entry<A>) -> Option<Vrp> {
    let prefix = match entry.address.into() {
        Bits::V4(address) => Prefix::new(address, entry.length).ok()?.into(),
        Bits::V6(address) => Prefix::new(address, entry.length).ok()?.into(),
    };
    Some(Vrp { prefix, max_length: entry.max_length, asn: entry.asn })
}

/// An address of either family.
enum Bits {
    V4(u32),
    V6(u128),
}

impl From<u32> for Bits {
    fn from(address: u32) -> Self {
        Self::V4(address)
    }
}

impl From<u128> for Bits {
    fn from(address: u128) -> Self {
        Self::V6(address)
    }
}

/// Entries of two ordered lists, in order, each once: those that `keep` wants, told in which of the lists they are.
fn merge<A: Address>(
    one: &[Entry<A>],
    other: &[Entry<A>],
    keep: impl Fn(bool, bool) -> bool,
) -> Vec<Entry<A>> {
    let (mut at, mut at_other) = (0, 0);
    let mut merged = Vec::new();
    loop {
        let (entry, both) = match (one.get(at), other.get(at_other)) {
            (Some(a), Some(b)) if a.key() == b.key() => (a, (true, true)),
            (Some(a), Some(b)) if a.key() < b.key() => (a, (true, false)),
            (_, Some(b)) => (b, (false, true)),
            (Some(a), None) => (a, (true, false)),
            (None, None) => return merged,
        };
        at += usize::from(both.0);
        at_other += usize::from(both.1);
        if keep(both.0, both.1) {
            merged.push(*entry);
        }
    }
}

/// The index that a number stands for.
#[inline]
fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn sorted<A: Address>(mut entries: Vec<Entry<A>>) -> Vec<Entry<A>> {
    entries.sort_unstable_by_key(Entry::key);
    entries
}

impl<A: Address> Ordered<A> {
    fn from_any(entries: Vec<Entry<A>>) -> Self {
        let mut entries = sorted(entries);
        entries.dedup();
        Self::new(entries)
    }

    /// `entries` are in order, each once.
    fn new(mut entries: Vec<Entry<A>>) -> Self {
        // The last number means "none", and more VRPs than that fit into no memory that a cache is given.
        entries.truncate(place(NONE));
        if let Some(first) = entries.first_mut() {
            // What it had in another table.
            first.parent = NONE;
        }
        for at in 1..entries.len() {
            let (before, rest) = entries.split_at_mut(at);
            let Some(entry) = rest.first_mut() else { break };
            let Ok(prefix) = Prefix::new(entry.address, entry.length) else { continue };
            let mut parent = u32::try_from(at - 1).unwrap_or(NONE);
            while let Some(above) = before.get(place(parent)) {
                if above.covers(prefix) {
                    break;
                }
                parent = above.parent;
            }
            entry.parent = parent;
        }
        let samples = entries.iter().step_by(SAMPLE).map(|entry| entry.address).collect();
        Self { entries: entries.into(), samples }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.samples)
    }

    fn changed(&self, announced: Vec<Entry<A>>, withdrawn: Vec<Entry<A>>) -> Result<Self, ChangeFault> {
        let (announced, withdrawn) = (sorted(announced), sorted(withdrawn));
        let mut new = merge(&self.entries, &withdrawn, |old, gone| old && !gone);
        let unknown = (new.len() + withdrawn.len()).saturating_sub(self.entries.len());
        if unknown > 0 {
            return Err(ChangeFault::UnknownWithdrawn(unknown));
        }
        let before = new.len() + announced.len();
        if !announced.is_empty() {
            new = merge(&new, &announced, |_, _| true);
            let twice = before - new.len() + announced.windows(2).filter(|two| two[0] == two[1]).count();
            if twice > 0 {
                return Err(ChangeFault::Duplicate(twice));
            }
        }
        Ok(Self::new(new))
    }

    /// The entries that cover a prefix, the most specific first.
    #[inline]
    fn covering(&self, prefix: Prefix<A>) -> impl Iterator<Item = &Entry<A>> {
        let (address, length) = (prefix.address(), prefix.length());
        let first = self.samples.partition_point(|sample| *sample < address).saturating_sub(1) * SAMPLE;
        let end = self.samples.partition_point(|sample| *sample <= address) * SAMPLE;
        let near = self.entries.get(first..end.min(self.entries.len())).unwrap_or(&[]);
        let behind = first + near.partition_point(|entry| (entry.address, entry.length) <= (address, length));
        let mut next = behind.checked_sub(1).and_then(|last| self.entries.get(last));
        std::iter::from_fn(move || {
            loop {
                let entry = next?;
                next = self.entries.get(place(entry.parent));
                if entry.covers(prefix) {
                    return Some(entry);
                }
            }
        })
    }

    #[inline]
    fn validity(&self, prefix: Prefix<A>, origin: Option<u32>) -> Validity {
        let mut validity = Validity::NotFound;
        for entry in self.covering(prefix) {
            // AS 0 is nobody's origin (RFC 7607).
            if Some(entry.asn) == origin && entry.asn != 0 && prefix.length() <= entry.max_length {
                return Validity::Valid;
            }
            validity = Validity::Invalid;
        }
        validity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// VRPs and routes that often meet: few bits, few ASes.
    fn any_vrp() -> impl Strategy<Value = Vrp> {
        (any::<(bool, u8)>(), 0u8..=8, 0u8..=4, 0u32..4).prop_map(|((is_v4, bits), length, more, asn)| Vrp {
            prefix: prefix(is_v4, bits, length),
            max_length: length + more,
            asn,
        })
    }

    fn prefix(is_v4: bool, bits: u8, length: u8) -> IpPrefix {
        match is_v4 {
            true => Prefix::new(u32::from(bits) << 24, length).unwrap().into(),
            false => Prefix::new(u128::from(bits) << 120, length).unwrap().into(),
        }
    }

    /// RFC 6811 word by word.
    fn slow(vrps: &[Vrp], prefix: IpPrefix, origin: Option<u32>) -> Validity {
        let covering: Vec<&Vrp> = vrps.iter().filter(|vrp| vrp.prefix.covers(prefix)).collect();
        let matched = covering
            .iter()
            .any(|vrp| prefix.length() <= vrp.max_length && vrp.asn != 0 && Some(vrp.asn) == origin);
        match (covering.is_empty(), matched) {
            (true, _) => Validity::NotFound,
            (_, true) => Validity::Valid,
            (_, false) => Validity::Invalid,
        }
    }

    fn table(vrps: &[Vrp]) -> VrpTable {
        vrps.iter().copied().collect::<VrpList>().into_table()
    }

    proptest! {
        #[test]
        fn the_table_says_what_the_rfc_says(
            vrps in proptest::collection::vec(any_vrp(), 0..300),
            routes in proptest::collection::vec((any::<(bool, u8)>(), 0u8..=12, proptest::option::of(0u32..5)), 50),
        ) {
            let table = table(&vrps);
            for ((is_v4, bits), length, origin) in routes {
                let route = prefix(is_v4, bits, length);
                prop_assert_eq!(table.validity(route, origin), slow(&vrps, route, origin), "{} {:?}", route, origin);
                let mut covering: Vec<Vrp> = vrps.iter().filter(|vrp| vrp.prefix.covers(route)).copied().collect();
                covering.sort_unstable();
                covering.dedup();
                let mut found = table.covering(route);
                prop_assert!(found.is_sorted_by_key(|vrp| std::cmp::Reverse(vrp.prefix.length())));
                found.sort_unstable();
                prop_assert_eq!(found, covering);
            }
        }

        /// A difference leads to the same table as all of it at once; what it names is all that can change.
        #[test]
        fn a_difference_is_as_good_as_everything(
            before in proptest::collection::vec(any_vrp(), 0..100),
            after in proptest::collection::vec(any_vrp(), 0..100),
            bits: u8, length in 0u8..=12,
        ) {
            let (old, new) = (table(&before), table(&after));
            let only = |one: &VrpTable, other: &VrpTable| -> VrpList {
                let other: Vec<Vrp> = other.iter().collect();
                one.iter().filter(|vrp| !other.contains(vrp)).collect()
            };
            let (announced, withdrawn) = (only(&new, &old), only(&old, &new));
            let difference = old.difference(&new);
            prop_assert_eq!(difference.len(), announced.len() + withdrawn.len());
            prop_assert_eq!(old.changed(announced, withdrawn), Ok(new.clone()));
            let route = prefix(true, bits, length);
            if !difference.covers(route) {
                for origin in [None, Some(1), Some(2)] {
                    prop_assert_eq!(old.validity(route, origin), new.validity(route, origin));
                }
            }
        }
    }

    #[test]
    fn a_difference_that_does_not_fit_is_refused() {
        let vrp = |text: &str, asn| Vrp { prefix: text.parse().unwrap(), max_length: 24, asn };
        let (a, b) = (vrp("192.0.2.0/24", 1), vrp("198.51.100.0/24", 2));
        let list = |vrps: &[Vrp]| vrps.iter().copied().collect::<VrpList>();
        let old = table(&[a]);
        assert_eq!(old.changed(list(&[]), list(&[b])), Err(ChangeFault::UnknownWithdrawn(1)));
        assert_eq!(old.changed(list(&[a]), list(&[])), Err(ChangeFault::Duplicate(1)));
        assert_eq!(old.changed(list(&[b, b]), list(&[])), Err(ChangeFault::Duplicate(1)));
        assert_eq!(old.changed(list(&[a]), list(&[a])), Ok(old.clone()));
    }

    #[test]
    fn a_vrp_is_small() {
        assert_eq!((size_of::<Entry<u32>>(), size_of::<Entry<u128>>()), (16, 32));
    }
}
