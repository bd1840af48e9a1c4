//! The most recent attribute fields of a neighbor, with what was decided about them.
//!
//! The cache is direct-mapped by a hash of the bytes: a slot holds one field, and a new one replaces it. A hit
//! compares all bytes, so the hash affects only speed. A slot is valid for one configuration and one policy; when
//! either changes, the cache must be cleared. A neighbor costs at most [`CACHE_SLOTS`] times [`KEY_BYTES_MAX`]
//! bytes, and usually about 3 kB.
//!
//! Many a neighbor never repeats a field. After [`FRUITLESS_MAX`] fields without a hit, a slot keeps only the hash of
//! a new field, and the field itself when it comes a second time. So what never repeats is neither copied nor kept.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use thalweg_wire::bgp::{Attributes, Family, NextHop, Update, attribute};

use super::judge::Judged;

/// Attribute fields that a neighbor's cache holds.
pub const CACHE_SLOTS: usize = 16;

/// Four times as many fields as the cache holds.
const FRUITLESS_MAX: usize = 4 * CACHE_SLOTS;

/// Longer fields are not cached.
const KEY_BYTES_MAX: usize = 512;

/// The longest tail of a key.
const TAIL_BYTES_MAX: usize = 33;

/// Marks a key whose next hop is among the attributes. No next hop has this length.
const NEXT_HOP_WITHIN: u8 = 0x3f;

/// Everything that the decision depends on: the attributes without their prefixes, the next hop and the family.
pub(super) struct Key<'a> {
    /// Parts of the message, in order.
    parts: [&'a [u8]; 3],
    tail: Tail,
    hash: u64,
}

/// The end of a key: the next hop if it is not among the attributes, then its length and the family, so that
/// different keys never end alike.
struct Tail {
    bytes: [u8; TAIL_BYTES_MAX],
    length: usize,
}

impl<'a> Key<'a> {
    /// The key of an UPDATE's routes of one family; `field` is the attribute field.
    #[inline]
    pub(super) fn new(field: &'a [u8], update: &Update<'_>, next_hop: NextHop, family: Family) -> Self {
        let plain = update.mp_reach.is_none()
            && update.mp_unreach.is_none()
            && update.foreign_reach.is_none()
            && update.foreign_unreach.is_none();
        let (parts, tail) = match plain {
            true => ([field, &[], &[]], Tail::new(None, family)),
            false => (without_prefixes(field), Tail::new(Some(next_hop), family)),
        };
        let mut hasher = FixedState::with_seed(0).build_hasher();
        hasher.write(parts[0]);
        if !plain {
            hasher.write(parts[1]);
            hasher.write(parts[2]);
            hasher.write(tail.bytes());
        }
        Self { parts, tail, hash: hasher.finish() }
    }

    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() + self.tail.length
    }

    #[inline]
    fn is(&self, stored: &[u8]) -> bool {
        let mut rest = stored;
        for part in [self.parts[0], self.parts[1], self.parts[2], self.tail.bytes()] {
            // Most parts are empty. Comparing two empty ones took 90 ns (Zen with AVX-512, glibc 2.36): most likely
            // a masked load from a null address, whose fault the processor suppresses slowly.
            if part.is_empty() {
                continue;
            }
            match rest.split_at_checked(part.len()) {
                Some((first, after)) if first == part => rest = after,
                _ => return false,
            }
        }
        rest.is_empty()
    }
}

impl Tail {
    #[inline]
    fn new(next_hop: Option<NextHop>, family: Family) -> Self {
        let mut tail = Self { bytes: [0; TAIL_BYTES_MAX], length: 0 };
        match next_hop {
            None => {}
            Some(NextHop::V4(address)) => tail.push(&address.octets()),
            Some(NextHop::V6 { global, link_local }) => {
                tail.push(&global.octets());
                if let Some(address) = link_local {
                    tail.push(&address.octets());
                }
            }
        }
        let length = if next_hop.is_some() { tail.length as u8 } else { NEXT_HOP_WITHIN };
        tail.push(&[length << 1 | family as u8]);
        tail
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// The attributes before, between and after those that carry prefixes, of which there are at most two.
fn without_prefixes(field: &[u8]) -> [&[u8]; 3] {
    let mut parts: [&[u8]; 3] = [&[]; 3];
    let (mut part, mut start, mut at) = (0, 0, 0);
    for each in Attributes::new(field) {
        let end = at + each.whole.len();
        if matches!(each.code, attribute::MP_REACH_NLRI | attribute::MP_UNREACH_NLRI) && part < 2 {
            parts[part] = field.get(start..at).unwrap_or(&[]);
            (part, start) = (part + 1, end);
        }
        at = end;
    }
    parts[part] = field.get(start..).unwrap_or(&[]);
    parts
}

/// The cache of one neighbor.
#[derive(Default)]
pub(super) struct Cache {
    /// Empty until the first entry, then [`CACHE_SLOTS`].
    slots: Vec<Slot>,
    /// Fields since the last hit.
    fruitless: usize,
}

#[derive(Default)]
struct Slot {
    hash: u64,
    key: Vec<u8>,
    judged: Option<Judged>,
}

impl Cache {
    /// The decision about these attributes, if it is still in the cache.
    #[inline]
    pub(super) fn get(&mut self, key: &Key<'_>) -> Option<&Judged> {
        let slot = self.slots.get(place(key))?;
        let judged = slot.judged.as_ref().filter(|_| slot.hash == key.hash && key.is(&slot.key))?;
        self.fruitless = 0;
        Some(judged)
    }

    /// Stores a decision that was not found. A long key is not stored.
    pub(super) fn put(&mut self, key: &Key<'_>, judged: Judged) {
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(CACHE_SLOTS, Slot::default);
        }
        let Some(slot) = self.slots.get_mut(place(key)) else { return };
        self.fruitless = self.fruitless.saturating_add(1);
        if self.fruitless > FRUITLESS_MAX && slot.hash != key.hash {
            *slot = Slot { hash: key.hash, ..Slot::default() };
            return;
        }
        slot.hash = key.hash;
        slot.key.clear();
        for part in key.parts {
            slot.key.extend_from_slice(part);
        }
        slot.key.extend_from_slice(key.tail.bytes());
        slot.judged = Some(judged);
    }

    /// Empties the cache and frees its memory.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[inline]
fn place(key: &Key<'_>) -> usize {
    (key.hash >> 32) as usize % CACHE_SLOTS
}

#[cfg(test)]
mod tests {
    use super::super::Rejection;
    use super::*;

    #[test]
    fn what_never_repeats_is_not_kept_and_what_does_again_is_found() {
        let mut cache = Cache::default();
        let fields: Vec<[u8; 8]> = (0..4 * FRUITLESS_MAX).map(usize::to_be_bytes).collect();
        let key = |at: usize| {
            let tail = Tail::new(None, Family::Ipv4);
            let mut hasher = FixedState::with_seed(0).build_hasher();
            hasher.write(&fields[at]);
            Key { parts: [&fields[at], &[], &[]], tail, hash: hasher.finish() }
        };
        let look = |at: usize, cache: &mut Cache| {
            let is_there = cache.get(&key(at)).is_some();
            if !is_there {
                cache.put(&key(at), Judged { received: None, outcome: Err(Rejection::Policy.into()) });
            }
            is_there
        };
        let kept = |cache: &Cache| cache.slots.iter().filter(|slot| slot.judged.is_some()).count();
        assert!(!look(0, &mut cache) && look(0, &mut cache), "at first, the second time is a hit");
        assert!((1..fields.len()).all(|at| !look(at, &mut cache)));
        assert_eq!((kept(&cache), cache.slots.iter().map(|slot| slot.key.capacity()).sum::<usize>()), (0, 0));
        assert_eq!([0; 3].map(|at| look(at, &mut cache)), [false, false, true]);
        assert_eq!([1; 2].map(|at| look(at, &mut cache)), [false, true], "a hit makes it keep fields again");
    }

    #[test]
    fn attributes_without_those_that_carry_prefixes() {
        let (origin, reach, med, unreach) =
            ([0x40, 1, 1, 0], [0x80, 14, 2, 9, 9], [0x80, 4, 1, 7], [0x80, 15, 1, 5]);
        let field = [&origin[..], &reach, &med, &unreach].concat();
        assert_eq!(without_prefixes(&field), [&origin[..], &med, &[]]);
        let field = [&unreach[..], &reach, &origin].concat();
        assert_eq!(without_prefixes(&field), [&[][..], &[], &origin]);
        assert_eq!(without_prefixes(&origin), [&origin[..], &[], &[]]);
    }

    #[test]
    fn no_two_tails_are_alike() {
        let (global, link_local) = ("2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap());
        let hops = [
            None,
            Some(NextHop::V4([192, 0, 2, 1].into())),
            Some(NextHop::V6 { global, link_local: None }),
            Some(NextHop::V6 { global, link_local: Some(link_local) }),
        ];
        let mut last = Vec::new();
        for (hop, family) in hops.into_iter().flat_map(|hop| Family::ALL.map(|family| (hop, family))) {
            let tail = Tail::new(hop, family);
            assert!(tail.length <= TAIL_BYTES_MAX);
            last.push(*tail.bytes().last().unwrap());
        }
        let count = last.len();
        last.sort_unstable();
        last.dedup();
        assert_eq!(last.len(), count, "the last byte tells them apart");
    }
}
