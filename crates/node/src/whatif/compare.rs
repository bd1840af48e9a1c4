//! Differences between two states of the table: best paths, and what neighbors would be sent.
//!
//! Only prefixes whose ranked paths differ are looked at for a neighbor, and all of them where the neighbor's export
//! view differs. The same code compares two configurations, and one configuration before and after a failure.

use std::ops::AddAssign;

use serde::Serialize;
use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::attrs::flag;
use thalweg_bgp::peer::{PeerId, Role};
use thalweg_bgp::rib::{RibAddress, RibShard, ScanCursor, ScannedRoute};
use thalweg_bgp::route::{Changes, Chosen, RouteAddress};

use super::shadow::{Shadow, Side};

/// What became of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It has no path any more.
    Lost,
    /// It had none before.
    New,
    /// Its best path is another neighbor's.
    Moved,
    /// Its best path is of the same neighbor, with other attributes.
    Attributes,
    /// It is sent to a provider, a peer or a route server that must not have it, and was not before.
    Leak,
}

/// How many prefixes of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Prefixes {
    /// With a best path before.
    pub before: u64,
    /// With a best path after.
    pub after: u64,
    /// By another neighbor than before.
    pub moved: u64,
    /// By the same neighbor, with other attributes.
    pub attributes: u64,
    /// Without any path after.
    pub lost: u64,
    /// Without any path before.
    pub new: u64,
}

/// Routes that a neighbor would be sent otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exports {
    /// Not sent before.
    pub more: u64,
    /// Not sent any more.
    pub less: u64,
    /// Sent with other attributes.
    pub changed: u64,
    /// Leaks, in the sense of RFC 9234, that were none before.
    pub leaks: u64,
    /// Leaks that end.
    pub leaks_ended: u64,
}

impl Exports {
    /// Whether anything is sent otherwise.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Exports {
    fn add_assign(&mut self, other: Self) {
        self.more += other.more;
        self.less += other.less;
        self.changed += other.changed;
        self.leaks += other.leaks;
        self.leaks_ended += other.leaks_ended;
    }
}

/// Neighbors that are sent the same before, and the same after.
struct Pair {
    groups: [Option<usize>; 2],
    members: Vec<PeerId>,
    /// By one view, so that equal paths are sent equally.
    same_view: bool,
}

/// A route that a member is sent.
struct Sent {
    member: usize,
    fingerprint: u64,
    leak: bool,
}

/// Receives each prefix that differs: its best paths before and after.
pub(super) type Tell<'a> = &'a mut dyn FnMut(Kind, IpPrefix, [Option<PeerId>; 2]);

/// Counts differences.
pub(super) struct Comparison<'r> {
    pub(super) prefixes: Prefixes,
    /// By place.
    pub(super) exports: Vec<Exports>,
    relations: &'r [Option<Role>],
    pairs: Vec<Pair>,
    /// Neighbors that mean something else to routes of them than before, by place.
    differ: Vec<bool>,
    sent: [Vec<Sent>; 2],
    paths: [Vec<Chosen>; 2],
}

impl<'r> Comparison<'r> {
    /// Of two configurations. `relations` says what each neighbor is to us, by place.
    pub(super) fn of(old: &Shadow, new: &Shadow, relations: &'r [Option<Role>]) -> Self {
        let mut comparison = Self::empty(relations);
        for place in (0..relations.len()).map(|index| PeerId(index as u16)) {
            let groups = [old.group_of(place), new.group_of(place)];
            comparison.differ.push(old.peers.get(place) != new.peers.get(place));
            let view =
                |shadow: &Shadow, at: Option<usize>| at.map(|at| shadow.groups[at].preview.view().clone());
            let same_view = view(old, groups[0]) == view(new, groups[1]);
            comparison.add(place, groups, same_view);
        }
        comparison
    }

    /// Of one configuration before and after a neighbor's failure.
    pub(super) fn of_failure(shadow: &Shadow, failed: PeerId, relations: &'r [Option<Role>]) -> Self {
        let mut comparison = Self::empty(relations);
        comparison.differ.resize(relations.len(), false);
        for place in (0..relations.len()).map(|index| PeerId(index as u16)).filter(|place| *place != failed) {
            let group = shadow.group_of(place);
            comparison.add(place, [group, group], true);
        }
        comparison
    }

    fn empty(relations: &'r [Option<Role>]) -> Self {
        Self {
            prefixes: Prefixes::default(),
            exports: vec![Exports::default(); relations.len()],
            relations,
            pairs: Vec::new(),
            differ: Vec::new(),
            sent: Default::default(),
            paths: Default::default(),
        }
    }

    fn add(&mut self, place: PeerId, groups: [Option<usize>; 2], same_view: bool) {
        if groups == [None, None] {
            return;
        }
        match self.pairs.iter_mut().find(|pair| pair.groups == groups) {
            Some(pair) => pair.members.push(place),
            None => self.pairs.push(Pair { groups, members: vec![place], same_view }),
        }
    }

    /// Compares all prefixes of two tables.
    pub(super) fn run(&mut self, old: &mut Shadow, new: &mut Shadow, tell: Tell<'_>) {
        let (old_shards, old_groups, old_peers) = old.parts();
        let (new_shards, new_groups, new_peers) = new.parts();
        let mut sides = [(old_groups, old_peers), (new_groups, new_peers)];
        for (old, new) in old_shards.iter().zip(new_shards) {
            self.shard::<u32>(old, new, &mut sides, tell);
            self.shard::<u128>(old, new, &mut sides, tell);
        }
    }

    fn shard<A: RibAddress>(
        &mut self,
        old: &RibShard,
        new: &RibShard,
        sides: &mut [Side<'_>; 2],
        tell: Tell<'_>,
    ) {
        fn take<A: RibAddress>(route: Option<&ScannedRoute<'_, A>>, paths: &mut Vec<Chosen>) {
            paths.clear();
            paths.extend(route.into_iter().flat_map(|route| route.ranked().map(|path| path.chosen())));
        }
        let [mut was, mut is] = std::mem::take(&mut self.paths);
        let mut visit = |route: ScannedRoute<'_, A>| {
            take(Some(&route), &mut was);
            if !was.is_empty() {
                take(new.lookup(route.prefix).as_ref(), &mut is);
                self.prefix(route.prefix, [&was, &is], sides, tell);
            }
        };
        let mut cursor = ScanCursor::START;
        while !old.scan::<A>(&mut cursor, usize::MAX, &mut visit) {}
        let mut visit = |route: ScannedRoute<'_, A>| {
            if old.lookup(route.prefix).is_none_or(|was| was.best().is_none()) {
                take(Some(&route), &mut is);
                self.prefix(route.prefix, [&[], &is], sides, tell);
            }
        };
        let mut cursor = ScanCursor::START;
        while !new.scan::<A>(&mut cursor, usize::MAX, &mut visit) {}
        self.paths = [was, is];
    }

    /// Counts what a failure changed in a shard. `side` is both sides.
    pub(super) fn changes(&mut self, changes: &Changes, side: &mut Side<'_>, tell: Tell<'_>) {
        self.changes_in::<u32>(changes, side, tell);
        self.changes_in::<u128>(changes, side, tell);
    }

    fn changes_in<A: RouteAddress>(&mut self, changes: &Changes, side: &mut Side<'_>, tell: Tell<'_>) {
        let [mut was, mut is] = std::mem::take(&mut self.paths);
        for change in A::changes(changes) {
            let further = change.further.as_deref();
            was.clear();
            was.extend(change.old.iter().chain(further.into_iter().flat_map(|each| &each.old)).cloned());
            is.clear();
            is.extend(change.new.iter().chain(further.into_iter().flat_map(|each| &each.new)).cloned());
            let prefix = A::to_ip_prefix(change.prefix);
            self.best(prefix, [&was, &is], tell);
            for at in 0..self.pairs.len() {
                self.send_one::<A>(at, 0, change.prefix, &was, side);
                self.send_one::<A>(at, 1, change.prefix, &is, side);
                self.tally(at, prefix, [&was, &is], tell);
            }
        }
        self.paths = [was, is];
    }

    fn prefix<A: RouteAddress>(
        &mut self,
        prefix: Prefix<A>,
        paths: [&[Chosen]; 2],
        sides: &mut [Side<'_>; 2],
        tell: Tell<'_>,
    ) {
        let ip_prefix = A::to_ip_prefix(prefix);
        self.best(ip_prefix, paths, tell);
        let same_paths = same(paths[0], paths[1]) && !paths[0].iter().any(|path| self.differs(path.peer));
        for at in 0..self.pairs.len() {
            if same_paths && self.pairs[at].same_view {
                continue;
            }
            for (which, side) in sides.iter_mut().enumerate() {
                self.send_one::<A>(at, which, prefix, paths[which], side);
            }
            self.tally(at, ip_prefix, paths, tell);
        }
    }

    fn differs(&self, peer: PeerId) -> bool {
        self.differ.get(peer.index()).copied().unwrap_or(false)
    }

    /// Counts what became of the best path.
    fn best(&mut self, prefix: IpPrefix, [was, is]: [&[Chosen]; 2], tell: Tell<'_>) {
        let (was, is) = (was.first(), is.first());
        self.prefixes.before += u64::from(was.is_some());
        self.prefixes.after += u64::from(is.is_some());
        let (kind, count) = match (was, is) {
            (None, None) => return,
            (Some(_), None) => (Kind::Lost, &mut self.prefixes.lost),
            (None, Some(_)) => (Kind::New, &mut self.prefixes.new),
            (Some(was), Some(is)) if was.peer != is.peer => (Kind::Moved, &mut self.prefixes.moved),
            (Some(was), Some(is)) if was.attrs != is.attrs => {
                (Kind::Attributes, &mut self.prefixes.attributes)
            }
            (Some(_), Some(_)) => return,
        };
        *count += 1;
        tell(kind, prefix, [was.map(|path| path.peer), is.map(|path| path.peer)]);
    }

    /// What the members of a pair are sent on one side.
    fn send_one<A: RouteAddress>(
        &mut self,
        at: usize,
        which: usize,
        prefix: Prefix<A>,
        paths: &[Chosen],
        (groups, peers): &mut Side<'_>,
    ) {
        let (pair, out) = (&self.pairs[at], &mut self.sent[which]);
        out.clear();
        let Some(group) = pair.groups[which].and_then(|group| groups.get_mut(group)) else { return };
        if paths.is_empty() {
            return;
        }
        let outgoing = group.preview.outgoing(prefix, paths, peers).to_vec();
        for (member, place) in pair.members.iter().enumerate() {
            for route in outgoing.iter().filter(|route| group.preview.goes_to(route, *place)) {
                let leak = is_upward(self.relations, *place)
                    && (is_upward(self.relations, route.source) || route.attrs.has(flag::ONLY_TO_CUSTOMER));
                out.push(Sent { member, fingerprint: route.fingerprint, leak });
            }
        }
    }

    /// Counts what members of a pair are sent otherwise.
    fn tally(&mut self, at: usize, prefix: IpPrefix, paths: [&[Chosen]; 2], tell: Tell<'_>) {
        let [was, is] = &self.sent;
        let (mut was, mut is, mut leaks) = (was.as_slice(), is.as_slice(), false);
        while let Some(member) = was.first().into_iter().chain(is.first()).map(|sent| sent.member).min() {
            let (of_was, of_is) = (own(&mut was, member), own(&mut is, member));
            let difference = difference(of_was, of_is);
            leaks |= difference.leaks > 0;
            self.exports[self.pairs[at].members[member].index()] += difference;
        }
        if leaks {
            tell(Kind::Leak, prefix, paths.map(|paths| paths.first().map(|path| path.peer)));
        }
    }
}

/// The first ones, which are the member's.
fn own<'s>(sent: &mut &'s [Sent], member: usize) -> &'s [Sent] {
    let count = sent.iter().take_while(|each| each.member == member).count();
    let (own, rest) = sent.split_at(count);
    *sent = rest;
    own
}

/// What differs between the routes of a prefix that a member is sent.
fn difference(was: &[Sent], is: &[Sent]) -> Exports {
    let mut left: Vec<u64> = was.iter().map(|sent| sent.fingerprint).collect();
    let mut added = 0;
    for sent in is {
        match left.iter().position(|fingerprint| *fingerprint == sent.fingerprint) {
            Some(at) => drop(left.swap_remove(at)),
            None => added += 1,
        }
    }
    let removed = left.len() as u64;
    let changed = removed.min(added);
    let leaks = |sent: &[Sent]| sent.iter().filter(|each| each.leak).count() as u64;
    let (leaked, leaks) = (leaks(was), leaks(is));
    Exports {
        more: added - changed,
        less: removed - changed,
        changed,
        leaks: leaks.saturating_sub(leaked),
        leaks_ended: leaked.saturating_sub(leaks),
    }
}

/// Whether a neighbor may be sent customers' routes only, and what comes from it is for customers only.
fn is_upward(relations: &[Option<Role>], place: PeerId) -> bool {
    matches!(
        relations.get(place.index()).copied().flatten(),
        Some(Role::Provider | Role::Peer | Role::RouteServer)
    )
}

/// Whether the paths are the same, whatever number each has.
fn same(was: &[Chosen], is: &[Chosen]) -> bool {
    was.len() == is.len()
        && was.iter().zip(is).all(|(was, is)| (was.peer, &was.attrs) == (is.peer, &is.attrs))
}
