//! Traffic by the neighbor through which it leaves.

use std::collections::{BTreeMap, HashMap};

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::PeerId;

use super::mapping::Mapping;
use super::report::{Move, Traffic};

/// Bytes by the neighbor before and after.
pub(super) type Moves = BTreeMap<[Option<PeerId>; 2], u64>;

/// Traffic by prefix and by neighbors.
#[derive(Default)]
pub(super) struct TrafficSums {
    bytes: u64,
    moves: Moves,
    /// By the matching prefix under each configuration.
    by_prefix: [HashMap<IpPrefix, u64>; 2],
}

impl TrafficSums {
    /// Adds bytes to an address with these matching prefixes and neighbors.
    pub(super) fn add(&mut self, ways: [Option<(IpPrefix, PeerId)>; 2], bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        for (way, by_prefix) in ways.iter().zip(&mut self.by_prefix) {
            if let Some((prefix, _)) = way {
                *by_prefix.entry(*prefix).or_default() += bytes;
            }
        }
        *self.moves.entry(ways.map(|way| way.map(|(_, peer)| peer))).or_default() += bytes;
    }

    pub(super) fn by_prefix(&self, at: usize) -> &HashMap<IpPrefix, u64> {
        &self.by_prefix[at]
    }

    pub(super) fn report(&self, mapping: &Mapping) -> Traffic {
        let (moved, lost) = split(&self.moves);
        Traffic { bytes: self.bytes, moved, lost, moves: moves(&self.moves, mapping) }
    }
}

/// Bytes that move to another neighbor, and bytes that lose their route.
pub(super) fn split(moves: &Moves) -> (u64, u64) {
    let sum = |wanted: fn(&[Option<PeerId>; 2]) -> bool| {
        moves.iter().filter(|(ways, _)| wanted(ways)).map(|(_, bytes)| bytes).sum()
    };
    (
        sum(|[from, to]| from.is_some() && to.is_some() && from != to),
        sum(|[from, to]| from.is_some() && to.is_none()),
    )
}

/// Bytes that take another path, the largest first.
pub(super) fn moves(moves: &Moves, mapping: &Mapping) -> Vec<Move> {
    let name = |place: Option<PeerId>| place.map(|place| mapping.name(place));
    let others = moves.iter().filter(|([from, to], bytes)| from != to && **bytes > 0);
    let mut moves: Vec<Move> =
        others.map(|([from, to], bytes)| Move { from: name(*from), to: name(*to), bytes: *bytes }).collect();
    moves.sort_by_key(|each| std::cmp::Reverse(each.bytes));
    moves
}
