//! Differences between two states of the table: best paths, and what neighbors would be sent.
//!
//! For a neighbor, only prefixes whose ranked paths differ are compared; all of them if its export view differs.
//! The same code compares two configurations, and one configuration before and after a failure.

use std::ops::AddAssign;

use serde::Serialize;
use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::attrs::flag;
use thalweg_bgp::peer::{PeerId, Role};
use thalweg_bgp::rib::{RibAddress, RibShard, ScanCursor, ScannedRoute};
use thalweg_bgp::route::{Changes, Chosen, RouteAddress};

use super::shadow::{Shadow, Side};

/// How a prefix changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It has lost its last path.
    Lost,
    /// It had no path before.
    New,
    /// Its best path is another neighbor's.
    Moved,
    /// Its best path has the same neighbor and other attributes.
    Attributes,
    /// It is newly sent to a provider, a peer or a route server that must not get it.
    Leak,
}

/// Numbers of prefixes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Prefixes {
    /// Prefixes with a best path before.
    pub before: u64,
    /// Prefixes with a best path after.
    pub after: u64,
    /// Prefixes with another neighbor's path.
    pub moved: u64,
    /// Prefixes with the same neighbor and other attributes.
    pub attributes: u64,
    /// Prefixes without any path after.
    pub lost: u64,
    /// Prefixes without any path before.
    pub new: u64,
}

/// Differences in the routes that a neighbor would be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exports {
    /// Routes not sent before.
    pub more: u64,
    /// Routes no longer sent.
    pub less: u64,
    /// Routes sent with other attributes.
    pub changed: u64,
    /// New leaks, as defined in RFC 9234.
    pub leaks: u64,
    /// Leaks that end.
    pub leaks_ended: u64,
}

impl Exports {
    /// Whether nothing differs.
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

/// Neighbors that share a group before and after.
struct Pair {
    groups: [Option<usize>; 2],
    members: Vec<PeerId>,
    /// Whether the views are equal, so that equal paths are sent equally.
    same_view: bool,
}

/// A route sent to a member.
struct Sent {
    member: usize,
    fingerprint: u64,
    leak: bool,
}

/// Receives each prefix that differs, with its best paths' neighbors before and after.
pub(super) type Tell<'a> = &'a mut dyn FnMut(Kind, IpPrefix, [Option<PeerId>; 2]);

/// Counts differences.
pub(super) struct Comparison<'r> {
    pub(super) prefixes: Prefixes,
    /// Indexed by neighbor.
    pub(super) exports: Vec<Exports>,
    relations: &'r [Option<Role>],
    pairs: Vec<Pair>,
    /// Neighbors whose own properties changed, which matters for their routes; indexed by neighbor.
    differ: Vec<bool>,
    sent: [Vec<Sent>; 2],
    paths: [Vec<Chosen>; 2],
}

impl<'r> Comparison<'r> {
    /// Compares two configurations. `relations` has the role of each neighbor.
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

    /// Compares one configuration before and after a neighbor's failure.
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

    /// Counts a failure's changes in a shard. `side` serves as both sides.
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

    /// Counts the change of a best path.
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

    /// Computes what the members of a pair are sent on one side.
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

    /// Counts the differences in what members of a pair are sent.
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

/// Splits off the leading routes, which are the member's.
fn own<'s>(sent: &mut &'s [Sent], member: usize) -> &'s [Sent] {
    let count = sent.iter().take_while(|each| each.member == member).count();
    let (own, rest) = sent.split_at(count);
    *sent = rest;
    own
}

/// The difference between the routes of a prefix that a member is sent.
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

/// Whether a neighbor may be sent only customers' routes and its routes are for customers only.
fn is_upward(relations: &[Option<Role>], place: PeerId) -> bool {
    matches!(
        relations.get(place.index()).copied().flatten(),
        Some(Role::Provider | Role::Peer | Role::RouteServer)
    )
}

/// Whether the paths are equal, apart from their path numbers.
fn same(was: &[Chosen], is: &[Chosen]) -> bool {
    was.len() == is.len()
        && was.iter().zip(is).all(|(was, is)| (was.peer, &was.attrs) == (is.peer, &is.attrs))
}
