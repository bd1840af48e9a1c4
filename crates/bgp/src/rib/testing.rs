//! The RIB shard against a simple model, driven by any bytes: what property tests and the fuzzer run.
//!
//! The bytes are a recipe: announcements, withdrawals, ends of sessions, stale sweeps, other next hops, other depths,
//! in slices of any size, by seven sources over a few prefixes of both families. The model keeps a list of paths for each
//! prefix and ranks by the definition. Compared are:
//!
//! - a *mirror* that knows nothing but the [`Changes`], at every time they are taken: each old side must be what it
//!   has, and afterwards it must be what the model says;
//! - what the shard shows of each prefix, numbers and flags of paths included;
//! - a *late reader* that stops listening at some version, and later catches up by a scan of what is newer.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_base::{Prefix, XorShift64Star};
use thalweg_wire::bgp::{Family, Origin, attribute};

use super::decision::DecisionConfig;
use super::{
    DampingConfig, NextHopView, RibAddress, RibShard, ScanCursor, ShardConfig, Withdrawal, is_newer,
};
use crate::attrs::{AttrRef, Attrs, AttrsBuilder, Interner, NextHop, SegmentKind, flag};
use crate::peer::{PeerId, PeerInfo, PeerKind, PeerTable};
use crate::route::{Changes, Chosen, RouteBatchBuilder, WITHDRAWN, shard_of};

/// Sources of routes: the last is this router itself.
const PEERS: usize = 7;
const PREFIXES: usize = 24;
const SETS: usize = 64;
const SHARD: usize = 5;

/// Neighbors of all kinds, two of them in one AS, two with one address.
pub fn peers() -> PeerTable {
    let mut table = PeerTable::default();
    let kinds = [
        (PeerKind::External, 64500, 1),
        (PeerKind::External, 64500, 2),
        (PeerKind::External, 64501, 3),
        (PeerKind::Internal, 65000, 4),
        (PeerKind::InternalClient, 65000, 4),
        (PeerKind::Confederation, 65001, 6),
    ];
    for (index, (kind, remote_as, address)) in kinds.into_iter().enumerate() {
        table.insert(Arc::new(PeerInfo {
            id: PeerId(index as u16),
            name: format!("peer{index}").into(),
            address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, address)),
            local_address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)),
            remote_as,
            local_as: 65000,
            kind,
            router_id: Ipv4Addr::new(10, 0, 0, 7 - (index as u8) / 2),
            role: None,
            route_server_client: false,
        }));
    }
    table
}

fn peer(number: usize) -> PeerId {
    if number == PEERS - 1 { PeerId::LOCAL } else { PeerId(number as u16) }
}

/// Attribute sets that differ in everything decisions look at, and often in one thing only.
pub fn attribute_sets(interner: &Interner, count: usize) -> Vec<AttrRef> {
    let mut rng = XorShift64Star::new(3);
    let mut builder = AttrsBuilder::default();
    (0..count).filter_map(|_| random_set(&mut rng, &mut builder, interner)).collect()
}

fn random_set(rng: &mut XorShift64Star, builder: &mut AttrsBuilder, interner: &Interner) -> Option<AttrRef> {
    builder.clear();
    let mut one_in = |n: u32| rng.below(n) == 0;
    builder.weight = u32::from(one_in(12));
    builder.local_pref = one_in(8).then_some(200);
    builder.origin = if one_in(6) { Origin::Incomplete } else { Origin::Igp };
    builder.med = [None, Some(0), Some(10), Some(20)][rng.below(4) as usize];
    builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 1 + rng.below(3) as u8));
    let neighbor = [64500, 64500, 64501, 64502][rng.below(4) as usize];
    match rng.below(8) {
        0 => {}
        1 => builder.prepend(65001, 1, SegmentKind::ConfederationSequence).ok()?,
        2 => {
            builder.prepend(neighbor, 1, SegmentKind::Sequence).ok()?;
            builder.prepend(65001, 1, SegmentKind::ConfederationSequence).ok()?;
        }
        3 => builder.prepend(neighbor, 2, SegmentKind::Sequence).ok()?,
        _ => builder.prepend(neighbor, 1, SegmentKind::Sequence).ok()?,
    }
    if rng.below(5) == 0 {
        let optional = attribute::FLAG_OPTIONAL;
        builder.set(optional, attribute::ORIGINATOR_ID, &[10, 0, 0, 1 + rng.below(8) as u8]).ok()?;
        let clusters = [1u8; 12];
        builder.set(optional, attribute::CLUSTER_LIST, &clusters[..4 * rng.below(4) as usize]).ok()?;
    }
    if rng.below(3) == 0 {
        builder.set_communities(&[rng.below(4)]).ok()?;
    }
    Some(interner.intern(builder))
}

/// A path of the model.
#[derive(Clone, Debug)]
pub struct ModelPath {
    /// Who sent it.
    pub peer: PeerId,
    /// The neighbor's identifier.
    pub path_id: u32,
    /// Its number.
    pub local_id: u16,
    /// Its attributes.
    pub attrs: AttrRef,
    /// Marked stale.
    pub stale: bool,
}

impl ModelPath {
    fn chosen(&self) -> Chosen {
        Chosen { attrs: self.attrs.clone(), peer: self.peer, local_id: self.local_id }
    }
}

/// The decision as its definition says, without any shortcut.
pub struct Definition<'a> {
    /// What is chosen.
    pub config: DecisionConfig,
    /// Neighbors.
    pub peers: &'a PeerTable,
    pub next_hops: &'a NextHopView,
}

impl Definition<'_> {
    fn med(&self, attrs: &Attrs) -> u64 {
        match attrs.med() {
            Some(med) => u64::from(med),
            None if self.config.med_missing_as_worst => u64::from(u32::MAX),
            None => 0,
        }
    }

    /// Which paths this one is compared with by MED; its own number if with none.
    fn group(&self, path: &ModelPath, number: usize) -> (u8, u64) {
        let inside = path.attrs.neighbor_as == 0 && path.attrs.has(flag::CONFEDERATION);
        if self.config.always_compare_med {
            (0, 0)
        } else if inside && !self.config.compare_med_in_confederation {
            (1, number as u64)
        } else {
            (2, u64::from(path.attrs.neighbor_as))
        }
    }

    /// All steps in order, as one comparable thing; with or without MED.
    fn steps(&self, path: &ModelPath, with_med: bool) -> impl Ord + use<> {
        let attrs = &path.attrs;
        let local = path.peer == PeerId::LOCAL;
        let info = self.peers.get(path.peer);
        let metric = self.next_hops.metric(attrs);
        let router_id = info.map_or(Ipv4Addr::BROADCAST, |info| info.router_id);
        let first = (
            Reverse(attrs.weight),
            Reverse(attrs.local_pref),
            Reverse(local),
            attrs.path_length,
            attrs.origin,
            if with_med { self.med(attrs) } else { 0 },
        );
        let last = (
            Reverse(info.is_some_and(|info| info.kind == PeerKind::External)),
            metric,
            attrs.originator_id().unwrap_or(router_id),
            attrs.cluster_list().count(),
            info.map_or(IpAddr::V4(Ipv4Addr::BROADCAST), |info| info.address),
            path.path_id,
            path.peer,
        );
        (first, last)
    }

    /// The best: the best of the best of each neighboring AS.
    pub fn best(&self, paths: &[ModelPath]) -> Option<usize> {
        let mut groups: BTreeMap<(u8, u64), Vec<usize>> = BTreeMap::new();
        for (number, path) in paths.iter().enumerate() {
            groups.entry(self.group(path, number)).or_default().push(number);
        }
        let winners = groups
            .values()
            .filter_map(|group| group.iter().copied().min_by_key(|number| self.steps(&paths[*number], true)));
        let with_med = self.config.always_compare_med;
        winners.min_by_key(|number| self.steps(&paths[*number], with_med))
    }

    /// The first ranks.
    pub fn ranks(&self, paths: &[ModelPath], depth: usize) -> Vec<Chosen> {
        let mut left = paths.to_vec();
        let mut ranks = Vec::new();
        while let Some(best) = self.best(&left).filter(|_| ranks.len() < depth) {
            ranks.push(left.swap_remove(best).chosen());
        }
        ranks
    }
}

/// What readers of changes know of one family.
type Mirror<A> = BTreeMap<Prefix<A>, Vec<Chosen>>;

/// One family of the model.
struct ModelFamily<A> {
    pool: Vec<Prefix<A>>,
    paths: BTreeMap<Prefix<A>, Vec<ModelPath>>,
    mirror: Mirror<A>,
    late: Option<(u32, Mirror<A>)>,
}

impl<A: RibAddress> ModelFamily<A> {
    fn new(base: u128, step: u128, length: u8) -> Self {
        let numbers = (0..).map(|n| Prefix::new(A::from_u128(base + n * step), length));
        let pool = numbers.filter_map(Result::ok).filter(|prefix| shard_of(*prefix) == SHARD).take(PREFIXES);
        Self { pool: pool.collect(), paths: BTreeMap::new(), mirror: BTreeMap::new(), late: None }
    }

    fn announce(&mut self, prefix: Prefix<A>, peer: PeerId, path_id: u32, attrs: &AttrRef) {
        let paths = self.paths.entry(prefix).or_default();
        match paths.iter_mut().find(|path| path.peer == peer && path.path_id == path_id) {
            Some(path) => (path.attrs, path.stale) = (attrs.clone(), false),
            None => {
                let mut local_id = 1;
                while paths.iter().any(|path| path.local_id == local_id) {
                    local_id += 1;
                }
                paths.push(ModelPath { peer, path_id, local_id, attrs: attrs.clone(), stale: false });
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(Prefix<A>, &ModelPath) -> bool) {
        for (prefix, paths) in &mut self.paths {
            paths.retain(|path| keep(*prefix, path));
        }
    }

    fn mark_stale(&mut self, peer: PeerId) {
        self.paths.values_mut().flatten().filter(|path| path.peer == peer).for_each(|path| path.stale = true);
    }

    /// Applies changes to the mirror, which must agree with their old sides.
    fn mirror(&mut self, changes: &Changes) {
        let list = A::changes(changes);
        let mut seen = std::collections::BTreeSet::new();
        for change in list {
            assert!(seen.insert(change.prefix), "{} changes twice", change.prefix);
            let further = change.further.as_deref();
            let side = |first: &Option<Chosen>, rest: Option<&Vec<Chosen>>| {
                first.iter().cloned().chain(rest.into_iter().flatten().cloned()).collect::<Vec<_>>()
            };
            let old = side(&change.old, further.map(|further| &further.old));
            let new = side(&change.new, further.map(|further| &further.new));
            assert_eq!(
                self.mirror.get(&change.prefix).cloned().unwrap_or_default(),
                old,
                "{}",
                change.prefix
            );
            if new.is_empty() {
                self.mirror.remove(&change.prefix);
            } else {
                self.mirror.insert(change.prefix, new);
            }
        }
        let index = A::FAMILY.index();
        let span = changes.last_version[index].wrapping_sub(changes.first_version[index]).wrapping_add(1);
        assert!(list.is_empty() || span as usize == list.len(), "{span} versions");
    }

    /// Everything the shard and its readers say must be what the model says.
    fn check(&self, shard: &RibShard, definition: &Definition<'_>) {
        let mut paths_in_all = 0;
        for prefix in &self.pool {
            let paths = self.paths.get(prefix).map_or(&[][..], |paths| paths);
            let route = shard.lookup(*prefix);
            paths_in_all += paths.len();
            assert_eq!(route.map_or(0, |route| route.paths().len()), paths.len());
            let Some(route) = route else {
                assert!(!self.mirror.contains_key(prefix));
                continue;
            };
            let mut eligible = Vec::new();
            for view in route.paths() {
                let same = |path: &&ModelPath| path.peer == view.peer && path.path_id == view.path_id;
                let Some(path) = paths.iter().find(same) else { panic!("{prefix}: {view:?}") };
                assert_eq!((&path.attrs, path.local_id), (view.attrs, view.local_id));
                assert_eq!(
                    (path.stale, definition.next_hops.metric(&path.attrs).is_none()),
                    (view.stale, view.unreachable)
                );
                if view.is_eligible() {
                    eligible.push(path.clone());
                }
            }
            let ranks = definition.ranks(&eligible, shard.depth());
            assert_eq!(self.mirror.get(prefix).cloned().unwrap_or_default(), ranks, "{prefix}");
            assert_eq!(route.ranked().map(|path| path.chosen()).collect::<Vec<_>>(), ranks, "{prefix}");
            let explained = shard.explain(*prefix, definition.peers);
            let bests = explained.iter().filter(|each| each.verdict == super::Verdict::Best).count();
            assert_eq!(bests, usize::from(!ranks.is_empty()));
        }
        assert_eq!(shard.counters().paths[A::FAMILY.index()], paths_in_all);
    }

    fn begin_late(&mut self, shard: &mut RibShard) {
        let version = shard.version(A::FAMILY);
        shard.set_tombstone_floor(A::FAMILY, Some(version));
        self.late = Some((version, self.mirror.clone()));
    }

    /// The late reader catches up by a scan, in slices.
    fn catch_up(&mut self, shard: &mut RibShard, budget: usize) {
        let Some((version, mut known)) = self.late.take() else { return };
        let mut cursor = ScanCursor::START;
        let mut visit = |route: super::ScannedRoute<'_, A>| {
            if is_newer(route.version, version) {
                let ranks: Vec<_> = route.ranked().map(|path| path.chosen()).collect();
                if ranks.is_empty() {
                    known.remove(&route.prefix);
                } else {
                    known.insert(route.prefix, ranks);
                }
            }
        };
        while !shard.scan(&mut cursor, budget, &mut visit) {}
        assert_eq!(known, self.mirror);
        shard.set_tombstone_floor(A::FAMILY, None);
    }
}

/// Bytes as choices; zero when they are used up.
struct Recipe<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl Recipe<'_> {
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.bytes.next().copied().unwrap_or(0)) % limit
    }

    fn is_empty(&self) -> bool {
        self.bytes.len() == 0
    }
}

/// Shard, model and readers.
struct World {
    shard: RibShard,
    peers: PeerTable,
    sets: Vec<AttrRef>,
    config: DecisionConfig,
    next_hops: NextHopView,
    changes: Changes,
    v4: ModelFamily<u32>,
    v6: ModelFamily<u128>,
    now_s: u32,
}

/// Runs a recipe. Panics if shard and model disagree.
pub fn fuzz_one(bytes: &[u8]) {
    let mut recipe = Recipe { bytes: bytes.iter() };
    let mut world = World::new(recipe.below(64));
    while !recipe.is_empty() {
        world.step(&mut recipe);
    }
    world.take_and_check();
}

impl World {
    fn new(options: usize) -> Self {
        let config = DecisionConfig {
            always_compare_med: options & 1 != 0,
            med_missing_as_worst: options & 2 != 0,
            compare_med_in_confederation: options & 4 != 0,
        };
        let damping = (options & 8 != 0).then_some(DampingConfig { records_max: 20, ..Default::default() });
        let depth = if options & 16 != 0 { 3 } else { 1 };
        // Half of the runs meet the wrap of versions at once.
        let first_version = if options & 32 != 0 { u32::MAX - 20 } else { 7 };
        let interner = Interner::new(1);
        Self {
            shard: RibShard::new(ShardConfig {
                shard: SHARD,
                parts: 1,
                seed: 4,
                depth,
                decision: config,
                damping,
                first_version,
            }),
            peers: peers(),
            sets: attribute_sets(&interner, SETS),
            config,
            next_hops: NextHopView::default(),
            changes: Changes::default(),
            v4: ModelFamily::new(0x0a00_0000, 0x100, 24),
            v6: ModelFamily::new(0x2001_0db8 << 96, 1 << 80, 48),
            now_s: 0,
        }
    }

    fn step(&mut self, recipe: &mut Recipe<'_>) {
        match recipe.below(16) {
            0..=7 => self.batch(recipe),
            8 => self.withdraw_peer(recipe, false),
            9 => self.mark_stale(recipe),
            10 => self.withdraw_peer(recipe, true),
            11 => self.change_depth(recipe),
            12 => self.change_next_hops(recipe),
            13 => self.pass_time(recipe),
            14 => self.late_reader(recipe),
            _ => self.take_and_check(),
        }
    }

    fn batch(&mut self, recipe: &mut Recipe<'_>) {
        let mut builder = RouteBatchBuilder::default();
        let from = peer(recipe.below(PEERS));
        for _ in 0..recipe.below(24) {
            let prefix = recipe.below(2 * PREFIXES);
            let what = recipe.below(256);
            let (path_id, withdraw) = ((what % 4 / 3) as u32, what.is_multiple_of(5));
            let attrs = &self.sets[what / 4 % self.sets.len()];
            let index = if withdraw { WITHDRAWN } else { builder.push_attrs(attrs.clone()) };
            if prefix < PREFIXES {
                let prefix = self.v4.pool[prefix];
                builder.push_v4(prefix, path_id, index);
                let keep =
                    |at, path: &ModelPath| at != prefix || path.peer != from || path.path_id != path_id;
                if withdraw { self.v4.retain(keep) } else { self.v4.announce(prefix, from, path_id, attrs) }
            } else {
                let prefix = self.v6.pool[prefix - PREFIXES];
                builder.push_v6(prefix, path_id, index);
                let keep =
                    |at, path: &ModelPath| at != prefix || path.peer != from || path.path_id != path_id;
                if withdraw { self.v6.retain(keep) } else { self.v6.announce(prefix, from, path_id, attrs) }
            }
        }
        let batch = builder.finish(from, self.now_s);
        self.shard.apply(&batch, &self.peers, &mut self.changes);
    }

    /// Withdraws all or the stale routes of a source, slice by slice, with other sources' batches between.
    fn withdraw_peer(&mut self, recipe: &mut Recipe<'_>, stale: bool) {
        let from = peer(recipe.below(PEERS));
        let budget = 1 + recipe.below(12);
        let keep = |path: &ModelPath| path.peer != from || stale && !path.stale;
        for family in Family::ALL {
            let mut cursor = ScanCursor::START;
            loop {
                let (peers, changes) = (&self.peers, &mut self.changes);
                let which = if stale { Withdrawal::Stale(from) } else { Withdrawal::All(from) };
                if self.shard.withdraw(which, family, &mut cursor, budget, peers, changes) {
                    break;
                }
            }
        }
        self.v4.retain(|_, path| keep(path));
        self.v6.retain(|_, path| keep(path));
        if !stale {
            assert_eq!(
                self.shard.peer_paths(from, Family::Ipv4) + self.shard.peer_paths(from, Family::Ipv6),
                0
            );
        }
    }

    fn mark_stale(&mut self, recipe: &mut Recipe<'_>) {
        let from = peer(recipe.below(PEERS));
        for family in Family::ALL {
            let mut cursor = ScanCursor::START;
            while !self.shard.mark_stale(from, family, &mut cursor, 5) {}
        }
        self.v4.mark_stale(from);
        self.v6.mark_stale(from);
    }

    /// Decides anew, slice by slice; batches may come between.
    fn reevaluate(&mut self, recipe: &mut Recipe<'_>) {
        let budget = 1 + recipe.below(12);
        for family in Family::ALL {
            let mut cursor = ScanCursor::START;
            while !self.shard.reevaluate(family, &mut cursor, budget, &self.peers, &mut self.changes) {
                if recipe.below(4) == 1 {
                    self.batch(recipe);
                }
            }
        }
    }

    fn change_depth(&mut self, recipe: &mut Recipe<'_>) {
        self.take_and_check();
        let depth = 1 + recipe.below(4);
        self.shard.set_depth(depth);
        self.v4.mirror.values_mut().for_each(|ranks| ranks.truncate(depth));
        self.v6.mirror.values_mut().for_each(|ranks| ranks.truncate(depth));
        // Readers that want another depth start over, as groups do.
        (self.v4.late, self.v6.late) = (None, None);
        // In between, batches may come.
        if recipe.below(2) == 0 {
            self.batch(recipe);
        }
        self.reevaluate(recipe);
    }

    fn change_next_hops(&mut self, recipe: &mut Recipe<'_>) {
        let hosts = (1..4).filter_map(|host| {
            let metric = [Some(0), Some(5), None, Some(0)][recipe.below(4)];
            Some((Prefix::new(u32::from(Ipv4Addr::new(192, 0, 2, host)), 32).ok()?.into(), metric))
        });
        let view = NextHopView::new(hosts.collect::<Vec<_>>());
        self.next_hops = view.clone();
        self.shard.set_next_hops(Arc::new(view));
        if recipe.below(2) == 0 {
            self.batch(recipe);
        }
        self.reevaluate(recipe);
    }

    fn pass_time(&mut self, recipe: &mut Recipe<'_>) {
        self.now_s += 60 * recipe.below(40) as u32;
        let now = crate::peer::Millis::default().plus_s(self.now_s.into());
        while self.shard.next_deadline().is_some_and(|at| at <= now) {
            self.shard.handle_timer(now, &self.peers, &mut self.changes);
        }
    }

    fn late_reader(&mut self, recipe: &mut Recipe<'_>) {
        self.take_and_check();
        if self.v4.late.is_some() {
            let budget = 1 + recipe.below(12);
            self.v4.catch_up(&mut self.shard, budget);
            self.v6.catch_up(&mut self.shard, budget);
        } else {
            self.v4.begin_late(&mut self.shard);
            self.v6.begin_late(&mut self.shard);
        }
    }

    fn take_and_check(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.v4.mirror(&changes);
        self.v6.mirror(&changes);
        let definition = Definition { config: self.config, peers: &self.peers, next_hops: &self.next_hops };
        self.v4.check(&self.shard, &definition);
        self.v6.check(&self.shard, &definition);
        // The next changes are another list: also where nothing changes, as a caller does.
        self.shard.apply(
            &RouteBatchBuilder::default().finish(peer(0), self.now_s),
            &self.peers,
            &mut self.changes,
        );
    }
}
