//! Selects the best path: RFC 4271 section 9.1, with RFC 4456 section 9 and RFC 5065 section 5.3.
//!
//! The first of these steps in which two paths differ decides:
//!
//! | step | preferred | from |
//! |---|---|---|
//! | weight | higher | set by policy, local to this router |
//! | LOCAL_PREF | higher | RFC 4271 9.1.1 |
//! | locally originated | yes | |
//! | length of AS_PATH | shorter; a set counts 1, confederation segments 0 | 9.1.2.2 a |
//! | ORIGIN | IGP, EGP, INCOMPLETE | b |
//! | MED | lower, among paths of the same neighboring AS (see below) | c |
//! | kind of neighbor | external over internal and confederation | d |
//! | metric to the next hop | lower | e |
//! | router identifier | lower; ORIGINATOR_ID, if present, instead of the neighbor's | f, RFC 4456 |
//! | CLUSTER_LIST | shorter | RFC 4456 |
//! | address of the neighbor | lower | g |
//! | path identifier | lower | RFC 7911 leaves it open |
//! | index of the neighbor | lower; only for two neighbors with one address | |
//!
//! There is no step for age: the best path depends on which paths exist, not on the order of their arrival.
//!
//! **MED** is compared only among paths of one neighboring AS. Comparing paths pair by pair as they arrive would
//! make the result depend on the order (A before B by MED, B before C, C before A). Here it is *deterministic*:
//! among the paths that are equal up to ORIGIN, those with a higher MED than another of the same neighboring AS
//! drop out; the steps after MED choose among the rest. The second rank is the best without the first, and so on.
//! So the ranks are a function of the set of paths, and a total order of it, although no pairwise order gives it.
//! The first sequence of an AS_PATH outside confederation segments names the neighboring AS; paths that began in
//! our own AS are one group. Paths that began in another member of our confederation are never compared by MED
//! unless configured.
//!
//! **Not every change ranks all paths.** Let `pre` be the steps before MED. A new path that is worse than the best
//! in `pre` changes nothing; one that is better is the best. If they are equal in `pre` and have the same
//! neighboring AS, the new path must beat the best by MED and the later steps; otherwise nothing changes. If it
//! beats the best by the later steps alone as well, it is the best, since the others lost to the old best by those.
//! If it has another neighboring AS, it must beat the best by the steps after MED. In all other cases, and when the
//! best itself goes, all paths are ranked again. [`Decision::challenge`] and [`Decision::departure_keeps`] are
//! these arguments in code; tests compare them with the definition.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::next_hops::NextHopView;
use super::paths::{BlockMut, PathMeta};
use crate::attrs::{AttrRef, Attrs, flag};
use crate::peer::{PeerId, PeerKind, PeerTable};

/// The configurable parts of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionConfig {
    /// Compares MED among all paths, whatever their neighboring AS.
    pub always_compare_med: bool,
    /// A path without MED loses to all with one; otherwise it counts as 0.
    pub med_missing_as_worst: bool,
    /// Compares MED among paths that began in other members of our confederation.
    pub compare_med_in_confederation: bool,
}

/// Up to this many paths, MED is compared pair by pair. Beyond, a table of the lowest MEDs comes first, so that a
/// prefix with thousands of paths does not take millions of comparisons.
const PAIRWISE_MAX: usize = 32;

thalweg_base::words! {
    /// A step of the decision, named for how a path loses in it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Step {
        Weight => "lower weight",
        LocalPref => "lower local preference",
        LocallyOriginated => "not originated here",
        PathLength => "longer AS path",
        Origin => "worse origin",
        Med => "higher MED from the same neighboring AS",
        External => "not from an external neighbor",
        IgpMetric => "next hop farther away",
        RouterId => "higher router identifier",
        ClusterList => "longer cluster list",
        PeerAddress => "higher neighbor address",
        PathId => "higher path identifier",
        PeerPlace => "neighbor configured later",
    }
}

/// A path as the decision sees it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub attrs: &'a Attrs,
    pub peer: PeerId,
    pub path_id: u32,
}

/// The steps after MED, in order; less is better. Field names are those of [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct After {
    internal: bool,
    metric: u32,
    router_id: u32,
    clusters: u32,
    address: IpAddr,
    path_id: u32,
    place: u16,
}

/// The result of comparing a new path with the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    BestStays,
    NewWins,
    /// All paths must be ranked.
    Undecided,
}

/// What decisions depend on besides the paths.
#[derive(Clone, Copy)]
pub struct Decision<'a> {
    pub config: DecisionConfig,
    pub peers: &'a PeerTable,
    pub next_hops: &'a NextHopView,
    /// Selects nothing yet (RFC 4724 section 4.1).
    pub deferred: bool,
}

/// The AS whose paths are compared by MED; `None` if the path is compared with no other.
type MedGroup = Option<u32>;

/// The values that ranking reads repeatedly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    before: u128,
    group: MedGroup,
    med: u32,
    at: usize,
}

impl<'a> Decision<'a> {
    /// Whether a path with these attributes takes part.
    #[inline]
    pub(super) fn admits(&self, attrs: &Attrs) -> bool {
        !self.deferred && self.next_hops.metric(attrs).is_some()
    }

    /// The steps before MED as one number; less is better.
    #[inline]
    fn before(&self, path: Candidate<'_>) -> u128 {
        let attrs = path.attrs;
        u128::from(!attrs.weight) << 96
            | u128::from(!attrs.local_pref) << 64
            | u128::from(path.peer != PeerId::LOCAL) << 32
            | u128::from(attrs.path_length) << 8
            | attrs.origin as u128
    }

    /// MED as it is compared; less is better.
    #[inline]
    fn med(&self, attrs: &Attrs) -> u32 {
        if self.config.med_missing_as_worst && !attrs.has(flag::MED) { u32::MAX } else { attrs.med }
    }

    #[inline]
    fn group(&self, attrs: &Attrs) -> MedGroup {
        if self.config.always_compare_med {
            return Some(0);
        }
        let confederation = attrs.neighbor_as == 0 && attrs.has(flag::CONFEDERATION);
        (!confederation || self.config.compare_med_in_confederation).then_some(attrs.neighbor_as)
    }

    fn comparable(&self, a: &Attrs, b: &Attrs) -> bool {
        let group = self.group(a);
        group.is_some() && group == self.group(b)
    }

    fn after(&self, path: Candidate<'_>) -> After {
        let attrs = path.attrs;
        let peer = self.peers.get(path.peer);
        let (internal, router_id, address) = match peer {
            Some(peer) => (peer.kind != PeerKind::External, peer.router_id, peer.address),
            // Our own routes come last, and so would those of an unknown neighbor, which does not happen.
            None => (true, Ipv4Addr::BROADCAST, IpAddr::V4(Ipv4Addr::BROADCAST)),
        };
        let (router_id, clusters) = match attrs.has(flag::REFLECTED) {
            true => (attrs.originator_id().unwrap_or(router_id), attrs.cluster_list().count() as u32),
            false => (router_id, 0),
        };
        After {
            internal,
            metric: self.next_hops.metric(attrs).unwrap_or(u32::MAX),
            router_id: router_id.into(),
            clusters,
            address,
            path_id: path.path_id,
            place: path.peer.0,
        }
    }

    /// Compares a new path with the current best.
    #[inline]
    pub fn challenge(&self, best: Candidate<'_>, new: Candidate<'_>) -> Comparison {
        match self.before(new).cmp(&self.before(best)) {
            Ordering::Greater => return Comparison::BestStays,
            Ordering::Less => return Comparison::NewWins,
            Ordering::Equal => {}
        }
        let comparable = self.comparable(best.attrs, new.attrs);
        let by_med = match comparable {
            true => self.med(new.attrs).cmp(&self.med(best.attrs)),
            false => Ordering::Equal,
        };
        let by_rest = self.after(new).cmp(&self.after(best));
        if by_med.then(by_rest).is_gt() {
            Comparison::BestStays
        } else if self.config.always_compare_med || comparable && by_rest.is_lt() {
            Comparison::NewWins
        } else {
            Comparison::Undecided
        }
    }

    /// Whether the best path stays the best if another one goes.
    #[inline]
    pub fn departure_keeps(&self, best: Candidate<'_>, gone: Candidate<'_>) -> bool {
        self.before(gone) > self.before(best) || self.comparable(best.attrs, gone.attrs)
    }

    /// Whether `other` can come or go without affecting the first ranks, the last of which is `last`.
    #[inline]
    pub fn is_below(&self, last: Candidate<'_>, other: Candidate<'_>) -> bool {
        self.before(other) > self.before(last)
    }

    /// Whether a best path stays the best if its attributes change to `new`.
    #[inline]
    pub fn replacement_keeps(&self, path: Candidate<'_>, new: &Attrs) -> bool {
        let old = path.attrs;
        let (was, is) = (self.before(path), self.before(Candidate { attrs: new, ..path }));
        is < was || is == was && self.is_same_after(old, new)
    }

    /// Whether a path keeps its rank if its attributes change to `new`.
    pub fn is_same_order(&self, path: Candidate<'_>, new: &Attrs) -> bool {
        self.before(path) == self.before(Candidate { attrs: new, ..path })
            && self.is_same_after(path.attrs, new)
    }

    /// Whether two sets of one neighbor are equal in all steps from MED on.
    fn is_same_after(&self, old: &Attrs, new: &Attrs) -> bool {
        self.group(old) == self.group(new)
            && self.med(old) == self.med(new)
            && !(old.has(flag::REFLECTED) || new.has(flag::REFLECTED))
            && self.next_hops.metric(old) == self.next_hops.metric(new)
    }

    /// Moves the first `depth` ranks to the front, in order, and returns their number (at most 255).
    pub(super) fn rank(&self, block: &mut BlockMut<'_>, depth: usize, keys: &mut Vec<Key>) -> u8 {
        let depth = depth.min(usize::from(u8::MAX));
        if let ([only], 1..) = (&*block.meta, depth) {
            return u8::from(only.is_eligible());
        }
        keys.clear();
        for (at, (meta, attrs)) in block.meta.iter().zip(&*block.attrs).enumerate() {
            if let Some(path) = candidate(meta, attrs).filter(|_| meta.is_eligible()) {
                let (group, med) = (self.group(path.attrs), self.med(path.attrs));
                keys.push(Key { before: self.before(path), group, med, at });
            }
        }
        let ranks = keys.len().min(depth);
        for rank in 0..ranks {
            let chosen = rank + self.best_of(&keys[rank..], block);
            keys.swap(rank, chosen);
            let at = keys[rank].at;
            block.swap(rank, at);
            for key in &mut keys[rank..] {
                if key.at == rank {
                    key.at = at;
                }
            }
        }
        ranks as u8
    }

    /// The index of the best among `keys`, which is not empty.
    fn best_of(&self, keys: &[Key], block: &BlockMut<'_>) -> usize {
        let Some(before) = keys.iter().map(|key| key.before).min() else { return 0 };
        let lowest_meds = (keys.len() > PAIRWISE_MAX).then(|| lowest_meds(keys, before));
        let is_beaten = |key: &Key| match (&lowest_meds, key.group) {
            (_, None) => false,
            (Some(lowest), Some(group)) => lowest.get(&group).is_some_and(|lowest| *lowest < key.med),
            (None, group) => {
                keys.iter().any(|other| other.before == before && other.group == group && other.med < key.med)
            }
        };
        let mut left = keys.iter().enumerate().filter(|(_, key)| key.before == before && !is_beaten(key));
        let Some(first) = left.next() else { return 0 };
        let Some(second) = left.next() else { return first.0 };
        let after =
            |key: &Key| candidate(&block.meta[key.at], &block.attrs[key.at]).map(|path| self.after(path));
        let best = [first, second].into_iter().chain(left).min_by_key(|(_, key)| after(key));
        best.map_or(0, |(place, _)| place)
    }

    /// Why `loser` loses among `all` eligible paths: the step, and the path that won it.
    pub(super) fn why<'c>(
        &self,
        best: Candidate<'c>,
        loser: Candidate<'_>,
        all: &[Candidate<'c>],
    ) -> (Step, PeerId, u32) {
        let lost = |step, to: Candidate<'_>| (step, to.peer, to.path_id);
        let (b, l) = (best.attrs, loser.attrs);
        if self.before(best) != self.before(loser) {
            let step = if b.weight != l.weight {
                Step::Weight
            } else if b.local_pref != l.local_pref {
                Step::LocalPref
            } else if (best.peer == PeerId::LOCAL) != (loser.peer == PeerId::LOCAL) {
                Step::LocallyOriginated
            } else if b.path_length != l.path_length {
                Step::PathLength
            } else {
                Step::Origin
            };
            return lost(step, best);
        }
        let by_med = all.iter().filter(|other| {
            self.before(**other) == self.before(loser)
                && self.comparable(other.attrs, l)
                && self.med(other.attrs) < self.med(l)
        });
        if let Some(other) = by_med.min_by_key(|other| (self.med(other.attrs), self.after(**other))) {
            return lost(Step::Med, *other);
        }
        let (b, l) = (self.after(best), self.after(loser));
        let steps = [
            (b.internal != l.internal, Step::External),
            (b.metric != l.metric, Step::IgpMetric),
            (b.router_id != l.router_id, Step::RouterId),
            (b.clusters != l.clusters, Step::ClusterList),
            (b.address != l.address, Step::PeerAddress),
            (b.path_id != l.path_id, Step::PathId),
        ];
        let step = steps.iter().find(|(differs, _)| *differs).map_or(Step::PeerPlace, |(_, step)| *step);
        lost(step, best)
    }
}

/// The lowest MED of each neighboring AS among the paths that are best before MED.
fn lowest_meds(keys: &[Key], before: u128) -> HashMap<u32, u32> {
    let mut lowest = HashMap::new();
    for key in keys.iter().filter(|key| key.before == before) {
        if let Some(group) = key.group {
            lowest.entry(group).and_modify(|med: &mut u32| *med = key.med.min(*med)).or_insert(key.med);
        }
    }
    lowest
}

#[inline]
pub(super) fn candidate<'a>(meta: &PathMeta, attrs: &'a Option<AttrRef>) -> Option<Candidate<'a>> {
    attrs.as_deref().map(|attrs| Candidate { attrs, peer: meta.peer, path_id: meta.path_id })
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
