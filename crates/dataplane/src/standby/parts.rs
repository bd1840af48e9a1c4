//! Parts of a shard, and their digests: how two routers find out cheaply which entries differ.

use std::collections::BTreeMap;
use std::net::IpAddr;
use thalweg_base::mix64;
use thalweg_wire::standby::{Entry, PART_BITS_MAX, Part, ShardId};

use super::Tables;
use crate::records::place;

/// Entries of a part, on average at most: then one seldom needs two messages.
const ENTRIES: u64 = 8;

/// The bits that give so many entries their parts.
pub(super) fn bits_for(entries: u64) -> u8 {
    let parts = entries.div_ceil(ENTRIES).next_power_of_two();
    u8::try_from(parts.trailing_zeros()).map_or(PART_BITS_MAX, |bits| bits.min(PART_BITS_MAX))
}

/// What identifies an entry, as one number.
fn key_hash(entry: &Entry, secret: u64) -> u64 {
    match entry {
        Entry::Session(session) => {
            let (inside, port) = session.inside;
            let inside = match inside {
                IpAddr::V4(inside) => u64::from(u32::from(inside)),
                IpAddr::V6(inside) => fold(inside.into(), secret),
            };
            let kind = u64::from(session.protocol) << 48 | u64::from(session.vrf) << 56;
            mix64(inside ^ u64::from(port) << 32 ^ kind ^ secret)
        }
        Entry::State(state) => {
            let [a, b] = state.addresses.map(|address| fold(address, secret));
            let [c, d] = state.ports.map(u64::from);
            let [e, f] = state.vrfs.map(u64::from);
            let kind = u64::from(state.protocol) | e << 8 | f << 32;
            mix64(a.wrapping_add(b.rotate_left(32)) ^ c << 48 ^ d << 16 ^ kind)
        }
    }
}

/// All of an entry, as one number.
fn digest(entry: &Entry, secret: u64) -> u64 {
    let rest = match entry {
        Entry::Session(session) => {
            let state = u64::from(session.state) << 8 | u64::from(session.is_several);
            mix64(end(session.public) ^ state << 48) ^ end(session.remote).rotate_left(16)
        }
        Entry::State(state) => {
            let (from, to) = state.zones;
            let marks = [state.is_ipv6, state.second_asks, state.second_began].map(u8::from);
            let bytes = [state.phase, from, to, marks[0], marks[1], marks[2], 0, 0];
            u64::from_be_bytes(bytes) ^ u64::from(state.rule)
        }
    };
    mix64(key_hash(entry, secret) ^ mix64(rest ^ secret.rotate_left(32)))
}

fn end((address, port): (u32, u16)) -> u64 {
    u64::from(port) << 32 | u64::from(address)
}

fn fold(address: u128, secret: u64) -> u64 {
    let [a, b, c, d, e, f, g, h, low @ ..] = address.to_be_bytes();
    mix64(mix64(u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ secret) ^ u64::from_be_bytes(low))
}

/// Whether two entries of a table are versions of one.
pub(super) fn is_same(a: &Entry, b: &Entry) -> bool {
    match (a, b) {
        (Entry::Session(a), Entry::Session(b)) => {
            (a.protocol, a.vrf, a.inside) == (b.protocol, b.vrf, b.inside)
        }
        (Entry::State(a), Entry::State(b)) => {
            (a.protocol, a.vrfs, a.addresses, a.ports, a.is_ipv6, a.second_asks)
                == (b.protocol, b.vrfs, b.addresses, b.ports, b.is_ipv6, b.second_asks)
        }
        _ => false,
    }
}

/// Divides a shard into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) of: ShardId,
    pub(super) bits: u8,
    pub(super) secret: u64,
}

impl Division {
    /// The number of parts.
    pub(super) fn count(&self) -> u32 {
        1 << self.bits
    }

    pub(super) fn part(&self, number: u32) -> Part {
        Part { of: self.of, bits: self.bits, number }
    }

    /// The number of an entry's part.
    pub(super) fn number(&self, entry: &Entry) -> u32 {
        let low = key_hash(entry, self.secret) & u64::from(u32::MAX);
        u32::try_from(low).unwrap_or(0) & (self.count() - 1)
    }

    /// The same shard in twice as many parts.
    pub(super) fn finer(&self) -> Self {
        Self { bits: self.bits + 1, ..*self }
    }

    /// The digest of each part. With `renews` all entries live on.
    pub(super) fn digests(&self, tables: &Tables<'_>, renews: bool) -> Vec<u64> {
        let mut sums = Sums::new(*self);
        let mut next = Some(0);
        while let Some(from) = next {
            next = sums.add_slice(tables, from, renews);
        }
        sums.digests
    }

    /// The entries of some parts.
    pub(super) fn entries(
        &self,
        tables: &Tables<'_>,
        parts: impl IntoIterator<Item = u32>,
    ) -> BTreeMap<u32, Vec<Entry>> {
        let mut all: BTreeMap<u32, Vec<Entry>> = parts.into_iter().map(|part| (part, Vec::new())).collect();
        let (Some(shards), mut next) = (tables.of(self.of.table), Some(0)) else { return all };
        while let Some(from) = next {
            next = shards.walk(self.of.shard, from, false, tables.now_ns, &mut |entry| {
                if let Some(part) = all.get_mut(&self.number(&entry)) {
                    part.push(entry);
                }
            });
        }
        all
    }
}

/// Digests of a shard's parts that are being computed, a slice at a time.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    pub(super) division: Division,
    pub(super) digests: Vec<u64>,
}

impl Sums {
    pub(super) fn new(division: Division) -> Self {
        Self { division, digests: (0..division.count()).map(|_| 0).collect() }
    }

    /// Adds a slice of the shard; returns where the next one begins, if there is one.
    pub(super) fn add_slice(&mut self, tables: &Tables<'_>, from: usize, renews: bool) -> Option<usize> {
        let Self { division, digests } = self;
        let Division { of, secret, .. } = *division;
        tables.of(of.table)?.walk(of.shard, from, renews, tables.now_ns, &mut |entry| {
            let part = place(division.number(&entry));
            digests[part] = digests[part].wrapping_add(digest(&entry, secret));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_small_and_bounded() {
        let bits = [0, 1, 8, 9, 16, 17, 1 << 23, u64::MAX / 2].map(bits_for);
        assert_eq!(bits, [0, 0, 0, 1, 1, 2, 20, PART_BITS_MAX]);
    }
}
