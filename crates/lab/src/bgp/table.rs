//! Generates a table as neighbors announce it: prefixes in groups that share attributes, with a path per neighbor
//! and group.
//!
//! Its shape follows public tables in what decides the work of an UPDATE: 45 % of attribute sets have one prefix,
//! 20 % two, the rest up to 60 (4.6 on average); paths have two to six hops, 15 % of the AS numbers need four
//! bytes; 80 % of sets carry one to eight communities, 15 % large ones, 20 % a MED.
//!
//! Everything follows from the seed, and a group's attributes from seed, group and neighbor alone: they are
//! computed again when the outcome is checked, and not kept.

use super::message::{NextHops, Stream, path_hash, put_attribute};
use crate::workload::prefixes;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use thalweg_base::{IpPrefix, Prefix, XorShift64Star, mix64};
use thalweg_wire::bgp::attribute;

/// How many prefixes go into one UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// All that share attributes: 1 to 60.
    Real,
    /// One, as in the small packets of Wu et al.
    Small,
    /// 500, as in the large packets of Wu et al.
    Large,
}

impl Packing {
    fn per_update(self) -> usize {
        match self {
            Packing::Real => usize::MAX,
            Packing::Small => 1,
            Packing::Large => 500,
        }
    }
}

/// The length of the paths that a neighbor announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Two to six hops.
    Any,
    /// For each group, one neighbor drawn at random has the shortest path.
    OneBest,
    Base,
    Longer,
    Shorter,
}

/// Addresses and ASes of the neighbors.
#[derive(Clone, Copy, Debug)]
pub struct Neighbors {
    pub count: usize,
    /// The first neighbor's address; the others' follow.
    pub address: Ipv4Addr,
    /// The first neighbor's AS; the others' follow.
    pub as_number: u32,
}

impl Neighbors {
    /// The address of a neighbor, counted from 0.
    pub fn address_of(&self, neighbor: usize) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.address).wrapping_add(neighbor as u32))
    }

    /// The AS of a neighbor, counted from 0.
    pub fn as_of(&self, neighbor: usize) -> u32 {
        self.as_number.wrapping_add(neighbor as u32)
    }

    /// The next hops that a neighbor announces: its address, and for IPv6 the same within 2001:db8::/32.
    pub fn hops_of(&self, neighbor: usize) -> NextHops {
        let v4 = self.address_of(neighbor);
        let [a, b, c, d] = v4.octets().map(u16::from);
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, a << 8 | b, c << 8 | d);
        NextHops { v4, v6 }
    }
}

/// A generated table.
#[derive(Clone, Debug)]
pub struct Table {
    prefixes: Vec<IpPrefix>,
    groups: Vec<Range<usize>>,
    packing: Packing,
    neighbors: Neighbors,
    seed: u64,
}

impl Table {
    /// A table of `count` IPv4 prefixes.
    pub fn made(count: usize, packing: Packing, neighbors: Neighbors, seed: u64) -> Table {
        let made = prefixes::v4(count, seed);
        Table::of(
            made.into_iter().map(|net| Prefix::<u32>::from(net).into()).collect(),
            packing,
            neighbors,
            seed,
        )
    }

    /// A table of these prefixes, all of one family.
    pub fn of(prefixes: Vec<IpPrefix>, packing: Packing, neighbors: Neighbors, seed: u64) -> Table {
        let mut rng = generator(seed, 1, 0, 0);
        let mut groups = Vec::new();
        let mut at = 0;
        while at < prefixes.len() {
            let size = if packing == Packing::Large { 500 } else { group_size(&mut rng) };
            let end = (at + size).min(prefixes.len());
            groups.push(at..end);
            at = end;
        }
        Table { prefixes, groups, packing, neighbors, seed }
    }

    /// All prefixes of the table.
    pub fn prefixes(&self) -> &[IpPrefix] {
        &self.prefixes
    }

    /// The neighbors that announce the table.
    pub fn neighbors(&self) -> Neighbors {
        self.neighbors
    }

    /// The announcements of `neighbor`, in a group order of its own. If `shared`, it announces every group;
    /// otherwise each group has one neighbor.
    pub fn announce(&self, neighbor: usize, kind: PathKind, shared: bool) -> Stream {
        let mut stream = Stream::default();
        for group in self.order(neighbor, shared) {
            let attributes = self.attributes(group, neighbor, &self.path(group, neighbor, kind));
            let prefixes = &self.prefixes[self.groups[group].clone()];
            stream.announce(
                &attributes,
                self.neighbors.hops_of(neighbor),
                prefixes,
                self.packing.per_update(),
            );
        }
        stream
    }

    /// The withdrawals of everything that [`Table::announce`] announces.
    pub fn withdraw(&self, neighbor: usize, shared: bool) -> Stream {
        let order = self.order(neighbor, shared);
        let prefixes: Vec<IpPrefix> =
            order.into_iter().flat_map(|g| self.prefixes[self.groups[g].clone()].iter().copied()).collect();
        let mut stream = Stream::default();
        stream.withdraw(&prefixes, self.packing.per_update());
        stream
    }

    /// For each prefix, the hash of the path that should win when all neighbors have announced. `of` names the
    /// neighbor if it is always the same one.
    pub fn expected(
        &self,
        kind: PathKind,
        shared: bool,
        of: Option<usize>,
    ) -> impl Iterator<Item = (IpPrefix, u64)> {
        self.groups.iter().enumerate().flat_map(move |(group, range)| {
            let neighbor = match (of, shared) {
                (Some(neighbor), _) => neighbor,
                (None, true) => self.best_of(group),
                (None, false) => self.owner_of(group),
            };
            let hash = path_hash(self.path(group, neighbor, kind).into_iter());
            self.prefixes[range.clone()].iter().map(move |prefix| (*prefix, hash))
        })
    }

    fn owner_of(&self, group: usize) -> usize {
        group % self.neighbors.count.max(1)
    }

    fn best_of(&self, group: usize) -> usize {
        (key(self.seed, 4, group, 0) % self.neighbors.count.max(1) as u64) as usize
    }

    fn order(&self, neighbor: usize, shared: bool) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.groups.len()).filter(|g| shared || self.owner_of(*g) == neighbor).collect();
        crate::stats::shuffle(&mut order, &mut generator(self.seed, 6, neighbor, 0));
        order
    }

    fn path(&self, group: usize, neighbor: usize, kind: PathKind) -> Vec<u32> {
        const ANY: [usize; 12] = [2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 6];
        // First what all neighbors share, then what is this neighbor's.
        let mut common = generator(self.seed, 3, group, 0);
        let origin = as_number(&mut common);
        let (best, base) = (2 + common.below(2) as usize, 3 + common.below(3) as usize);
        let mut own = generator(self.seed, 2, group, neighbor << 3 | kind as usize);
        let hops = match kind {
            PathKind::Any => ANY[own.below(12) as usize],
            PathKind::OneBest if self.best_of(group) == neighbor => best,
            PathKind::OneBest => best + 1 + own.below(6 - best as u32) as usize,
            PathKind::Base => base,
            PathKind::Longer => base + 1 + own.below(2) as usize,
            PathKind::Shorter => 2,
        };
        let mut path = vec![self.neighbors.as_of(neighbor)];
        path.extend((2..hops).map(|_| as_number(&mut own)));
        path.push(origin);
        path
    }

    /// Attributes in order of their codes, without NEXT_HOP.
    fn attributes(&self, group: usize, neighbor: usize, path: &[u32]) -> Vec<u8> {
        let mut rng = generator(self.seed, 5, group, neighbor << 3 | path.len());
        let mut percent = |share: u32| rng.below(100) < share;
        let (igp, med, aggregated, tagged, large) =
            (percent(92), percent(20), percent(5), percent(80), percent(15));
        let (transitive, optional) = (attribute::FLAG_TRANSITIVE, attribute::FLAG_OPTIONAL);
        let mut out = Vec::with_capacity(160);
        put_attribute(&mut out, transitive, attribute::ORIGIN, &[if igp { 0 } else { 2 }]);
        let mut value = vec![2, path.len() as u8];
        path.iter().for_each(|n| value.extend_from_slice(&n.to_be_bytes()));
        put_attribute(&mut out, transitive, attribute::AS_PATH, &value);
        if med {
            put_attribute(&mut out, optional, attribute::MED, &rng.below(200).to_be_bytes());
        }
        if aggregated {
            value.clear();
            value.extend_from_slice(&path[path.len() - 1].to_be_bytes());
            value.extend_from_slice(&(0x5000_0000 | rng.below(0x00ff_ffff)).to_be_bytes());
            put_attribute(&mut out, optional | transitive, attribute::AGGREGATOR, &value);
        }
        if tagged {
            value.clear();
            for _ in 0..1 + rng.below(8) {
                let community = (1000 + rng.below(60_000)) << 16 | rng.below(10_000);
                value.extend_from_slice(&community.to_be_bytes());
            }
            put_attribute(&mut out, optional | transitive, attribute::COMMUNITIES, &value);
        }
        if large {
            value.clear();
            for _ in 0..3 * (1 + rng.below(3)) {
                value.extend_from_slice(&(1000 + rng.below(300_000)).to_be_bytes());
            }
            put_attribute(&mut out, optional | transitive, attribute::LARGE_COMMUNITIES, &value);
        }
        out
    }
}

fn group_size(rng: &mut XorShift64Star) -> usize {
    let size = match rng.below(100) {
        0..45 => 1,
        45..65 => 2,
        65..80 => 3 + rng.below(3),
        80..95 => 6 + rng.below(7),
        _ => 13 + rng.below(48),
    };
    size as usize
}

/// An AS number that may occur in a path: not reserved, not AS_TRANS, and not the laboratory's.
fn as_number(rng: &mut XorShift64Star) -> u32 {
    if rng.below(100) < 15 {
        return 131_072 + rng.below(270_000);
    }
    1000 + rng.below(22_000)
}

fn key(seed: u64, what: u64, a: usize, b: usize) -> u64 {
    mix64(mix64(mix64(mix64(seed) ^ what) ^ a as u64) ^ b as u64)
}

fn generator(seed: u64, what: u64, a: usize, b: usize) -> XorShift64Star {
    XorShift64Star::new(key(seed, what, a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const NEIGHBORS: Neighbors =
        Neighbors { count: 5, address: Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 };

    fn heard(stream: &Stream) -> HashMap<IpPrefix, Vec<u32>> {
        let mut routes = HashMap::new();
        let mut rest = &stream.bytes[..];
        while let Some((_, body, length)) = super::super::message::frame(rest, 4096).unwrap() {
            super::super::message::read_update(body, |said| match said {
                super::super::message::Said::Announced(p, path) => {
                    routes.insert(p, path.numbers().collect());
                }
                super::super::message::Said::Withdrawn(p) => {
                    routes.insert(p, vec![]);
                }
            })
            .unwrap();
            rest = &rest[length..];
        }
        routes
    }

    #[test]
    fn the_expected_path_is_the_shortest_and_only_one_has_it() {
        let table = Table::made(3000, Packing::Real, NEIGHBORS, 7);
        let all: Vec<_> = (0..5).map(|n| heard(&table.announce(n, PathKind::OneBest, true))).collect();
        let expected: HashMap<_, _> = table.expected(PathKind::OneBest, true, None).collect();
        assert_eq!(expected.len(), 3000);
        let mut winners = HashSet::new();
        for (prefix, hash) in &expected {
            let mut paths: Vec<(usize, &Vec<u32>)> =
                all.iter().enumerate().map(|(n, r)| (n, &r[prefix])).collect();
            paths.sort_by_key(|(_, path)| path.len());
            assert!(paths[0].1.len() < paths[1].1.len());
            assert_eq!(path_hash(paths[0].1.iter().copied()), *hash);
            winners.insert(paths[0].0);
        }
        assert_eq!(winners.len(), 5, "everybody wins somewhere");
    }

    #[test]
    fn without_sharing_each_prefix_has_one_neighbor() {
        let table = Table::made(2000, Packing::Small, NEIGHBORS, 7);
        let streams: Vec<_> = (0..5).map(|n| table.announce(n, PathKind::Any, false)).collect();
        assert_eq!(streams.iter().map(|s| s.prefixes).sum::<u64>(), 2000);
        assert_eq!(streams.iter().map(Stream::messages).sum::<usize>(), 2000, "one prefix per UPDATE");
        let expected: HashMap<_, _> = table.expected(PathKind::Any, false, None).collect();
        for (n, stream) in streams.iter().enumerate() {
            for (prefix, path) in heard(stream) {
                assert_eq!(path[0], 64_600 + n as u32);
                assert_eq!(path_hash(path.into_iter()), expected[&prefix]);
            }
            assert_eq!(heard(&table.withdraw(n, false)).len() as u64, stream.prefixes);
        }
    }

    #[test]
    fn longer_and_shorter_are_so() {
        let table = Table::made(1000, Packing::Large, NEIGHBORS, 3);
        let base = heard(&table.announce(0, PathKind::Base, true));
        let longer = heard(&table.announce(1, PathKind::Longer, true));
        let shorter = heard(&table.announce(1, PathKind::Shorter, true));
        for (prefix, path) in &base {
            assert!(longer[prefix].len() > path.len() && shorter[prefix].len() < path.len());
        }
        assert_eq!(table.announce(0, PathKind::Base, true).messages(), 2);
    }

    #[test]
    fn a_seed_gives_the_same_bytes() {
        let make =
            |seed| Table::made(500, Packing::Real, NEIGHBORS, seed).announce(2, PathKind::Any, true).bytes;
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }
}
