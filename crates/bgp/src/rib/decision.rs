//! Which path is best: RFC 4271 section 9.1, with RFC 4456 section 9 and RFC 5065 section 5.3.
//!
//! A path is preferred for the first of these in which two differ:
//!
//! | step | preferred | from |
//! |---|---|---|
//! | weight | higher | set by policy, known to this router only |
//! | LOCAL_PREF | higher | RFC 4271 9.1.1 |
//! | locally originated | yes | |
//! | length of AS_PATH | shorter; a set counts 1, confederation segments nothing | 9.1.2.2 a |
//! | ORIGIN | IGP, EGP, INCOMPLETE | b |
//! | MED | lower, among paths of the same neighboring AS (see below) | c |
//! | kind of neighbor | external over internal and confederation | d |
//! | metric to the next hop | lower | e |
//! | router identifier | lower; ORIGINATOR_ID, where there is one, instead of the neighbor's | f, RFC 4456 |
//! | CLUSTER_LIST | shorter | RFC 4456 |
//! | address of the neighbor | lower | g |
//! | path identifier | lower | RFC 7911 leaves it open |
//! | place of the neighbor | lower; only for two neighbors with one address | |
//!
//! There is no step for age: what is best depends on what is there and not on the order in which it came.
//!
//! **MED** is compared only among paths of one neighboring AS. Comparing path by path, as they come, would make
//! the result depend on the order (A before B by MED, B before C, C before A). Here it is *deterministic*: of all
//! paths that are equal up to ORIGIN, those go that have a higher MED than another of the same neighboring AS;
//! the steps after MED choose among the rest. The second rank is the best without the first, and so on. So
//! the ranks are a function of the set of paths, and a total order of it, although no order of pairs
//! exists that would give it. The first sequence of an AS_PATH outside confederation segments names the
//! neighboring AS; paths that began in our own AS are one group. Those that began in another member of our
//! confederation are never compared by MED unless configured.
//!
//! **Not every change asks for all paths.** Write `pre` for the steps before MED. A new path that is worse than
//! the best in `pre` leaves the best alone; one that is better is the best. If they are equal in `pre` and
//! it has the same neighboring AS, it must beat the best by MED and what follows, and if not, nothing changes; if it
//! does, and also by what follows alone, it is the best, since the others lost to the old best by that. If it has
//! another neighboring AS, it must beat the best by what follows MED. In all other cases (and when the best itself
//! goes) all paths are ranked anew. [`Decision::challenge`] and [`Decision::departure_keeps`] are these arguments in code;
//! tests compare them with the definition.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::next_hops::NextHopView;
use super::paths::{BlockMut, PathMeta};
use crate::attrs::{AttrRef, Attrs, flag};
use crate::peer::{PeerId, PeerKind, PeerTable};

/// What can be chosen about decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionConfig {
    /// MED is compared among all paths, whatever their neighboring AS.
    pub always_compare_med: bool,
    /// A path without MED is worse than all with one; otherwise it counts as 0.
    pub med_missing_as_worst: bool,
    /// MED is compared among paths that began in other members of our confederation.
    pub compare_med_in_confederation: bool,
}

/// Up to so many paths, each is compared by MED with each; above, a table of the lowest MEDs is made first, so
/// that a prefix with thousands of paths does not take millions of comparisons.
const PAIRWISE_MAX: usize = 32;

thalweg_base::words! {
    /// A step of the decision.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Step {
        /// Lower weight.
        Weight => "lower weight",
        /// Lower LOCAL_PREF.
        LocalPref => "lower local preference",
        /// Not originated by this router.
        LocallyOriginated => "not originated here",
        /// Longer AS_PATH.
        PathLength => "longer AS path",
        /// Worse ORIGIN.
        Origin => "worse origin",
        /// Higher MED among paths of the same neighboring AS.
        Med => "higher MED from the same neighboring AS",
        /// Not from an external neighbor.
        External => "not from an external neighbor",
        /// Next hop farther away.
        IgpMetric => "next hop farther away",
        /// Higher router identifier.
        RouterId => "higher router identifier",
        /// Longer CLUSTER_LIST.
        ClusterList => "longer cluster list",
        /// Higher address of the neighbor.
        PeerAddress => "higher neighbor address",
        /// Higher path identifier.
        PathId => "higher path identifier",
        /// Later place of the neighbor in the configuration.
        PeerPlace => "neighbor configured later",
    }
}

/// A path that may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its attributes.
    pub attrs: &'a Attrs,
    /// Who sent it.
    pub peer: PeerId,
    /// The neighbor's identifier of it.
    pub path_id: u32,
}

/// The steps after MED, in their order; less is better. The fields' names are those of [`Step`].
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

/// How a new path compares with the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    BestStays,
    /// The new one is the best.
    NewWins,
    /// All paths have to be compared.
    Undecided,
}

/// What decisions depend on besides the paths themselves.
#[derive(Clone, Copy)]
pub struct Decision<'a> {
    /// What was chosen.
    pub config: DecisionConfig,
    /// Neighbors.
    pub peers: &'a PeerTable,
    pub next_hops: &'a NextHopView,
    /// Nothing is selected yet (RFC 4724 section 4.1).
    pub deferred: bool,
}

/// The paths of one AS, as far as MED is concerned; `None`: of no AS with others.
type MedGroup = Option<u32>;

/// What ranking looks at again and again.
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
            // Routes of our own, and (which does not happen) of a neighbor nobody knows, come last.
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

    /// How a path that comes stands against the best one there is.
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

    /// Whether the best stays the best if another path goes.
    #[inline]
    pub fn departure_keeps(&self, best: Candidate<'_>, gone: Candidate<'_>) -> bool {
        self.before(gone) > self.before(best) || self.comparable(best.attrs, gone.attrs)
    }

    /// Whether a path that is not among the first ranks, the last of which `last` has, leaves all of them alone,
    /// whether it comes or goes.
    #[inline]
    pub fn is_below(&self, last: Candidate<'_>, other: Candidate<'_>) -> bool {
        self.before(other) > self.before(last)
    }

    /// Whether a best path stays the best when its attributes change from `old` to `new`.
    #[inline]
    pub fn replacement_keeps(&self, path: Candidate<'_>, new: &Attrs) -> bool {
        let old = path.attrs;
        let (was, is) = (self.before(path), self.before(Candidate { attrs: new, ..path }));
        is < was || is == was && self.is_same_after(old, new)
    }

    /// Whether a path keeps its place among the others when its attributes change from its own to `new`.
    pub fn is_same_order(&self, path: Candidate<'_>, new: &Attrs) -> bool {
        self.before(path) == self.before(Candidate { attrs: new, ..path })
            && self.is_same_after(path.attrs, new)
    }

    /// Whether two sets of one neighbor are the same to all steps from MED on.
    fn is_same_after(&self, old: &Attrs, new: &Attrs) -> bool {
        self.group(old) == self.group(new)
            && self.med(old) == self.med(new)
            && !(old.has(flag::REFLECTED) || new.has(flag::REFLECTED))
            && self.next_hops.metric(old) == self.next_hops.metric(new)
    }

    /// Puts the first `depth` ranks of the paths in front, in order; how many there are (at most 255).
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

    /// The place of the best among `keys`, of which there is at least one.
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

/// The path of a block's row.
#[inline]
pub(super) fn candidate<'a>(meta: &PathMeta, attrs: &'a Option<AttrRef>) -> Option<Candidate<'a>> {
    attrs.as_deref().map(|attrs| Candidate { attrs, peer: meta.peer, path_id: meta.path_id })
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
