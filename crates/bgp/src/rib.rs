//! The routing table: the routes of every neighbor (Adj-RIB-In, after import policy) and the best paths (Loc-RIB);
//! for neighbors whose configuration wants it, their routes before policy too (`received`).
//!
//! ```text
//!                         ┌─ FamilyRoutes<u32>    Table: prefix -> entry      PathStore: the paths of a prefix
//! RouteBatch ─> RibShard ─┤                       (16 or 32 B + 5.9 B)        side by side (20 B each)
//!                         └─ FamilyRoutes<u128>   Decision: ranks             Damper: routes that flap
//!                                   └─> Changes
//! ```
//!
//! Routes are split by prefix into [`SHARDS`](crate::route::SHARDS) shards. One core at a time owns a [`RibShard`],
//! which knows nothing of the others. [`RibShard::apply`] stores its share of a neighbor's routes and adds to a
//! [`Changes`] what that changed: the best path of a prefix and, for add-path, the first `depth` ranks. The same
//! routes give the same best paths, whatever their order and batches; see [`decision`].
//!
//! # Changes
//!
//! The caller passes in the same `Changes` until it wants to forward them. A prefix is in them at most once, with
//! what was reported before and what holds now. (The two are equal if the prefix went and came back.) Changes are
//! in order of version; [`is_newer`] compares versions, which wrap.
//!
//! # Work in slices
//!
//! Operations on many prefixes ([`RibShard::withdraw`], [`RibShard::scan`], ...) take a [`ScanCursor`] and a budget
//! of prefixes, and return whether they are done; 4096 prefixes take less than a millisecond. The table may change
//! between two calls: a prefix that is present throughout is visited exactly once. A sweep cannot tell a neighbor's
//! new routes from its old ones. So finish [`Withdrawal::All`] before the neighbor's next session delivers routes.
//! For a graceful restart, mark the neighbor's routes first ([`RibShard::mark_stale`]); [`Withdrawal::Stale`] then
//! spares those that it repeated.
//!
//! # Bounds
//!
//! | what | bound | beyond it |
//! |---|---|---|
//! | prefixes of a family in a shard | 2^24 - 2 | refused, [`RibCounters::prefixes_refused`] |
//! | paths of a prefix | 65,535 | refused, [`RibCounters::paths_refused`] |
//! | withdrawn prefixes kept for readers | as many as prefixes, at least 4096 | the oldest go, [`RibShard::complete_since`] |
//! | routes before policy, of a neighbor and family | 2^17 | refused, [`RibCounters::received_refused`] |
//! | routes with a record of flaps | [`DampingConfig::records_max`] | not damped, [`RibCounters::damping_untracked`] |
//!
//! Missing: multipath. Withdrawing a neighbor's routes visits every prefix of the shard, since no list of a
//! neighbor's prefixes exists.

mod counts;
pub mod damping;
pub mod decision;
mod family;
mod next_hops;
mod paths;
mod received;
mod table;
pub mod testing;
mod versions;
mod view;

use std::ops::Range;
use std::sync::Arc;

use thalweg_base::Prefix;
use thalweg_wire::bgp::Family;

use crate::peer::{Millis, PeerId, PeerTable};
use crate::route::{Changes, RouteAddress, RouteBatch};

pub use damping::DampingConfig;
pub use decision::{DecisionConfig, Step};
pub use family::FamilyRoutes;
pub use next_hops::NextHopView;
pub use versions::{VERSION_AGE_MAX, is_newer};
pub use view::{Explained, PathView, ScanCursor, ScannedRoute, Verdict};

use counts::Work;
use decision::{Candidate, Decision};
use family::Context;
use received::Received;

/// The most deadlines that one [`RibShard::handle_timer`] handles.
const TIMER_BUDGET: usize = 1024;

/// The parameters of a shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    pub shard: usize,
    /// How many of the [`SHARDS`](crate::route::SHARDS) parts of all prefixes are its own: one of them, or all if one
    /// thread owns the whole table.
    pub parts: usize,
    /// Secret, so that others cannot choose prefixes that collide in the table.
    pub seed: u64,
    /// The ranks to report: 1 for the best path only, at most 255.
    pub depth: usize,
    pub decision: DecisionConfig,
    /// `None` disables damping.
    pub damping: Option<DampingConfig>,
    /// The first change has the next version. Versions wrap, so any value works.
    pub first_version: u32,
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            shard: 0,
            parts: 1,
            seed: 0,
            depth: 1,
            decision: DecisionConfig::default(),
            damping: None,
            first_version: 0,
        }
    }
}

/// The content and history of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RibCounters {
    /// Prefixes with at least one path, by family.
    pub prefixes: [usize; 2],
    /// By family.
    pub paths: [usize; 2],
    /// Withdrawn prefixes that are kept for readers.
    pub tombstones: [usize; 2],
    /// Without attribute sets.
    pub bytes: usize,
    /// New paths.
    pub announced: u64,
    /// Announcements that changed a path's attributes.
    pub replaced: u64,
    /// Announcements that changed nothing.
    pub repeated: u64,
    pub withdrawn: u64,
    /// Withdrawals of unknown paths.
    pub unknown_withdrawn: u64,
    /// Reported differences, including those that were merged into earlier ones.
    pub changes: u64,
    /// Routes refused because the table was full.
    pub prefixes_refused: u64,
    /// Routes refused because the prefix had too many paths.
    pub paths_refused: u64,
    /// Routes with a record of flaps.
    pub damping_records: usize,
    /// Flaps without a record because all were in use.
    pub damping_untracked: u64,
    /// Routes before policy, by family, and their memory without attribute sets.
    pub received_paths: [usize; 2],
    pub received_bytes: usize,
    /// Routes before policy that were not kept for lack of room.
    pub received_refused: u64,
}

/// The routes of a neighbor that [`RibShard::withdraw`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// All routes: the session ended.
    All(PeerId),
    /// The routes that are still stale.
    Stale(PeerId),
    /// The routes that were stale already: the session is lost and the neighbor restarts gracefully (RFC 4724
    /// section 4.2 keeps none over a second loss). The others become stale.
    Retain(PeerId),
}

impl Withdrawal {
    fn peer(self) -> PeerId {
        let (Self::All(peer) | Self::Stale(peer) | Self::Retain(peer)) = self;
        peer
    }

    /// Does to a prefix what it says.
    fn apply<A: RouteAddress>(
        self,
        routes: &mut FamilyRoutes<A>,
        number: u32,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let flags = if matches!(self, Self::All(_)) { 0 } else { paths::STALE };
        routes.withdraw_matching(number, self.peer(), flags, context, changes);
        if matches!(self, Self::Retain(_)) && routes.has_paths(number) {
            routes.mark_stale(number, self.peer());
        }
    }
}

/// The routes of one shard; see the [module](self).
pub struct RibShard {
    config: ShardConfig,
    next_hops: Arc<NextHopView>,
    /// Families without selection so far (RFC 4724 section 4.1).
    deferred: [bool; 2],
    /// By family; see [`Self::set_tombstone_floor`].
    floors: [Option<u32>; 2],
    /// `None` before the first route: most routers have routes of one family, and a simulated one may have none.
    v4: Option<Box<FamilyRoutes<u32>>>,
    v6: Option<Box<FamilyRoutes<u128>>>,
    /// Few routers keep such routes.
    received: Option<Box<Received>>,
    received_refused: u64,
}

/// Runs `$body` with `$context` for the family's routes, which exist from then on.
macro_rules! with_family {
    ($self:ident, $which:expr, $peers:expr, |$routes:ident, $context:ident| $body:expr) => {{
        let mut context = Context {
            decision: Decision {
                config: $self.config.decision,
                peers: $peers,
                next_hops: &$self.next_hops,
                deferred: $self.deferred[$which.index()],
            },
            depth: $self.config.depth,
            parts: $self.parts(),
            expected: 0,
        };
        let $context = &mut context;
        let floor = $self.floors[$which.index()];
        match $which {
            Family::Ipv4 => {
                let $routes = $self.v4.get_or_insert_with(|| FamilyRoutes::new(&$self.config, floor));
                $body
            }
            Family::Ipv6 => {
                let $routes = $self.v6.get_or_insert_with(|| FamilyRoutes::new(&$self.config, floor));
                $body
            }
        }
    }};
}

/// A value of each family's routes; `$none` before the first.
macro_rules! of_families {
    ($self:ident, $none:expr, |$routes:ident| $body:expr) => {
        [
            $self.v4.as_deref().map_or($none, |$routes| $body),
            $self.v6.as_deref().map_or($none, |$routes| $body),
        ]
    };
}

/// An address of a family that shards hold.
pub trait RibAddress: RouteAddress {
    #[doc(hidden)]
    fn routes(shard: &RibShard) -> Option<&FamilyRoutes<Self>>;

    #[doc(hidden)]
    fn received(shard: &RibShard) -> Option<&FamilyRoutes<Self>>;
}

impl RibAddress for u32 {
    #[inline]
    fn routes(shard: &RibShard) -> Option<&FamilyRoutes<Self>> {
        shard.v4.as_deref()
    }

    #[inline]
    fn received(shard: &RibShard) -> Option<&FamilyRoutes<Self>> {
        shard.received.as_ref().map(|received| &*received.v4)
    }
}

impl RibAddress for u128 {
    #[inline]
    fn routes(shard: &RibShard) -> Option<&FamilyRoutes<Self>> {
        shard.v6.as_deref()
    }

    #[inline]
    fn received(shard: &RibShard) -> Option<&FamilyRoutes<Self>> {
        shard.received.as_ref().map(|received| &*received.v6)
    }
}

impl RibShard {
    /// Creates an empty shard.
    pub fn new(config: ShardConfig) -> Self {
        let depth = config.depth.clamp(1, usize::from(u8::MAX));
        Self {
            config: ShardConfig { depth, ..config },
            next_hops: Arc::default(),
            deferred: [false; 2],
            floors: [None; 2],
            v4: None,
            v6: None,
            received: None,
            received_refused: 0,
        }
    }

    /// The parts of all prefixes that are its own.
    fn parts(&self) -> Range<usize> {
        self.config.shard * self.config.parts..(self.config.shard + 1) * self.config.parts
    }

    /// Whether the family has had a route.
    fn has_had(&self, family: Family) -> bool {
        [self.v4.is_some(), self.v6.is_some()][family.index()]
    }

    /// Applies this shard's items of a neighbor's batch.
    pub fn apply(&mut self, batch: &RouteBatch, peers: &PeerTable, changes: &mut Changes) {
        self.open(changes);
        let parts = self.parts();
        for family in Family::ALL.into_iter().filter(|family| batch.has(*family, parts.clone())) {
            with_family!(self, family, peers, |routes, context| routes.apply(batch, context, changes));
        }
        self.close(changes);
        if let Some(batch) = &batch.received {
            let received = self.received.get_or_insert_with(|| Box::new(Received::new(&self.config, parts)));
            self.received_refused += received.apply(batch);
        }
    }

    /// Withdraws routes of a neighbor. Visits `budget` prefixes from the cursor on; returns whether all are done.
    pub fn withdraw(
        &mut self,
        which: Withdrawal,
        family: Family,
        cursor: &mut ScanCursor,
        budget: usize,
        peers: &PeerTable,
        changes: &mut Changes,
    ) -> bool {
        let peer = which.peer();
        self.open(changes);
        let done = self.peer_paths(peer, family) == 0
            || with_family!(self, family, peers, |routes, context| {
                routes.walk(cursor, budget, |routes, number| which.apply(routes, number, context, changes))
            });
        self.close(changes);
        done || self.peer_paths(peer, family) == 0
    }

    /// [`Self::withdraw`] for routes before policy.
    pub fn withdraw_received(
        &mut self,
        which: Withdrawal,
        family: Family,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> bool {
        let Some(received) = &mut self.received else { return true };
        let done = received.withdraw(which, family, cursor, budget);
        if received.paths() == [0; 2] {
            self.received = None;
        }
        done
    }

    /// Marks the routes of a neighbor before policy as stale, all at once.
    pub fn mark_received_stale(&mut self, peer: PeerId, family: Family) {
        if let Some(received) = &mut self.received {
            received.mark_stale(peer, family);
        }
    }

    /// Marks the routes of a neighbor as stale: it restarts (RFC 4724), or is about to repeat them (RFC 7313).
    pub fn mark_stale(
        &mut self,
        peer: PeerId,
        family: Family,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> bool {
        if self.peer_paths(peer, family) == 0 {
            return true;
        }
        match (family, &mut self.v4, &mut self.v6) {
            (Family::Ipv4, Some(routes), _) => {
                routes.walk(cursor, budget, |routes, number| routes.mark_stale(number, peer))
            }
            (Family::Ipv6, _, Some(routes)) => {
                routes.walk(cursor, budget, |routes, number| routes.mark_stale(number, peer))
            }
            _ => true,
        }
    }

    /// Sets how many ranks to report. After an increase, [`Self::reevaluate`] reports them; until then a prefix
    /// shows more ranks only if it changes.
    pub fn set_depth(&mut self, depth: usize) {
        self.config.depth = depth.clamp(1, usize::from(u8::MAX));
    }

    /// The number of ranks that are reported.
    pub fn depth(&self) -> usize {
        self.config.depth
    }

    /// Replaces the costs of next hops. [`Self::reevaluate`] then repeats the decisions.
    pub fn set_next_hops(&mut self, next_hops: Arc<NextHopView>) {
        self.next_hops = next_hops;
    }

    /// Defers selection in a family, or ends the deferral (RFC 4724 section 4.1). During it, routes are kept, none
    /// is best, and nothing is reported. Defer before the first routes; after the end, [`Self::reevaluate`]
    /// selects.
    pub fn set_deferred(&mut self, family: Family, deferred: bool) {
        self.deferred[family.index()] = deferred;
    }

    /// Repeats decisions from the cursor on, after [`Self::set_next_hops`], [`Self::set_depth`] or the end of
    /// [`Self::set_deferred`].
    pub fn reevaluate(
        &mut self,
        family: Family,
        cursor: &mut ScanCursor,
        budget: usize,
        peers: &PeerTable,
        changes: &mut Changes,
    ) -> bool {
        self.open(changes);
        let done = !self.has_had(family)
            || with_family!(self, family, peers, |routes, context| {
                routes.walk(cursor, budget, |routes, number| routes.reevaluate(number, context, changes))
            });
        self.close(changes);
        done
    }

    /// Visits `budget` prefixes from the cursor on, in no order; returns whether all are done. Withdrawn prefixes
    /// that are kept for readers appear without paths.
    pub fn scan<A: RibAddress>(
        &self,
        cursor: &mut ScanCursor,
        budget: usize,
        visit: &mut dyn FnMut(ScannedRoute<'_, A>),
    ) -> bool {
        A::routes(self).is_none_or(|routes| routes.scan(cursor, budget, self.config.depth, visit))
    }

    /// [`Self::scan`] for routes before policy. None of them is ranked.
    pub fn scan_received<A: RibAddress>(
        &self,
        cursor: &mut ScanCursor,
        budget: usize,
        visit: &mut dyn FnMut(ScannedRoute<'_, A>),
    ) -> bool {
        A::received(self).is_none_or(|routes| routes.scan(cursor, budget, 0, visit))
    }

    /// Where a scan continues behind a prefix that has paths.
    pub fn behind<A: RibAddress>(&self, prefix: Prefix<A>) -> Option<ScanCursor> {
        A::routes(self)?.find(prefix).map(|number| ScanCursor { next: number + 1 })
    }

    /// Returns a prefix and its paths, if it has any.
    pub fn lookup<A: RibAddress>(&self, prefix: Prefix<A>) -> Option<ScannedRoute<'_, A>> {
        let routes = A::routes(self)?;
        routes.route(routes.find(prefix)?, self.config.depth)
    }

    /// Returns the longest prefix of this shard that has a best path and contains the address. Other shards may
    /// have a longer one.
    pub fn longest_match<A: RibAddress>(&self, address: A) -> Option<ScannedRoute<'_, A>> {
        let routes = A::routes(self)?;
        routes.route(routes.longest_match(address)?, self.config.depth)
    }

    /// Explains for each path of a prefix why it is or is not the best.
    pub fn explain<A: RibAddress>(&self, prefix: Prefix<A>, peers: &PeerTable) -> Vec<Explained<'_>> {
        let Some(route) = self.lookup(prefix) else { return Vec::new() };
        let deferred = self.deferred[A::FAMILY.index()];
        let decision = Decision { config: self.config.decision, peers, next_hops: &self.next_hops, deferred };
        fn as_candidate<'a>(path: &PathView<'a>) -> Candidate<'a> {
            Candidate { attrs: path.attrs, peer: path.peer, path_id: path.path_id }
        }
        let eligible: Vec<_> =
            route.paths().filter(PathView::is_eligible).map(|path| as_candidate(&path)).collect();
        let best = route.best();
        route
            .paths()
            .map(|path| {
                let verdict = match &best {
                    _ if path.damped => Verdict::Damped,
                    _ if deferred => Verdict::Deferred,
                    _ if path.unreachable => Verdict::Unreachable,
                    Some(best) if path.rank != Some(0) => {
                        let (step, winner, winner_path_id) =
                            decision.why(as_candidate(best), as_candidate(&path), &eligible);
                        Verdict::LostAt { step, winner, winner_path_id }
                    }
                    _ => Verdict::Best,
                };
                Explained { metric: self.next_hops.metric(path.attrs), path, verdict }
            })
            .collect()
    }

    /// Reuses damped routes that are due. Call it at [`Self::next_deadline`], repeatedly while that is in the past.
    pub fn handle_timer(&mut self, now: Millis, peers: &PeerTable, changes: &mut Changes) {
        self.open(changes);
        for family in Family::ALL {
            if !self.has_had(family) {
                continue;
            }
            let mut budget = TIMER_BUDGET;
            with_family!(self, family, peers, |routes, context| {
                while let Some(key) =
                    routes.damper.as_mut().and_then(|damper| damper.poll_reusable(now.seconds(), &mut budget))
                {
                    routes.readmit(key, context, changes);
                }
            });
        }
        self.close(changes);
    }

    /// When [`Self::handle_timer`] must be called next.
    pub fn next_deadline(&self) -> Option<Millis> {
        let next = of_families!(self, None, |routes| routes.damper.as_ref()?.next_deadline_s());
        next.into_iter().flatten().min().map(|seconds| Millis::default().plus_s(seconds.into()))
    }

    /// Forgets the flaps of a neighbor's routes, before another neighbor gets its index.
    pub fn forget_peer(&mut self, peer: PeerId) {
        if let Some(damper) = self.v4.as_mut().and_then(|routes| routes.damper.as_mut()) {
            damper.forget_peer(peer);
        }
        if let Some(damper) = self.v6.as_mut().and_then(|routes| routes.damper.as_mut()) {
            damper.forget_peer(peer);
        }
    }

    /// Whether withdrawn prefixes are kept for readers.
    pub fn has_tombstones(&self) -> bool {
        of_families!(self, 0, |routes| routes.tombstones()) != [0; 2]
    }

    /// The version of the last change of a family.
    pub fn version(&self, family: Family) -> u32 {
        of_families!(self, self.config.first_version, |routes| routes.version())[family.index()]
    }

    /// Keeps prefixes that are withdrawn after this version in scans, for a reader that has seen everything up to
    /// it; `None` if there is no such reader.
    pub fn set_tombstone_floor(&mut self, family: Family, floor: Option<u32>) {
        self.floors[family.index()] = floor;
        match (family, &mut self.v4, &mut self.v6) {
            (Family::Ipv4, Some(routes), _) => routes.set_floor(floor),
            (Family::Ipv6, _, Some(routes)) => routes.set_floor(floor),
            _ => {}
        }
    }

    /// Drops some withdrawn prefixes that no reader needs. [`Self::apply`] does so too, but no call follows the
    /// last withdrawal.
    pub fn bury(&mut self) {
        self.v4.iter_mut().for_each(|routes| routes.bury_idle());
        self.v6.iter_mut().for_each(|routes| routes.bury_idle());
        if let Some(received) = &mut self.received {
            received.v4.bury_idle();
            received.v6.bury_idle();
        }
    }

    /// If withdrawn prefixes were dropped although a reader needed them: the version up to which they are gone. A
    /// reader that has not seen it must start over.
    pub fn complete_since(&self, family: Family) -> Option<u32> {
        of_families!(self, None, |routes| routes.complete_since())[family.index()]
    }

    /// The number of paths of a neighbor.
    pub fn peer_paths(&self, peer: PeerId, family: Family) -> usize {
        of_families!(self, 0, |routes| routes.counts.get(peer))[family.index()]
    }

    /// The number of routes of a neighbor before policy.
    pub fn peer_received(&self, peer: PeerId, family: Family) -> usize {
        self.received.as_ref().map_or(0, |received| received.peer_paths(peer, family))
    }

    /// Routes before policy that were not kept for lack of room.
    pub fn received_refused(&self) -> u64 {
        self.received_refused
    }

    /// The current content and the totals since the start.
    pub fn counters(&self) -> RibCounters {
        let dampers = of_families!(self, None, |routes| routes
            .damper
            .as_ref()
            .map(|damper| (damper.len(), damper.untracked())));
        let dampers = || dampers.into_iter().flatten();
        let bytes = of_families!(self, 0, |routes| size_of_val(routes) + routes.bytes());
        let work = of_families!(self, Work::default(), |routes| routes.work);
        let total = |of: fn(&Work) -> u64| work.iter().map(of).sum();
        let received = self.received.as_deref();
        RibCounters {
            prefixes: of_families!(self, 0, |routes| routes.prefixes()),
            paths: of_families!(self, 0, |routes| routes.path_count()),
            tombstones: of_families!(self, 0, |routes| routes.tombstones()),
            bytes: size_of::<Self>() + bytes.iter().sum::<usize>(),
            announced: total(|work| work.announced),
            replaced: total(|work| work.replaced),
            repeated: total(|work| work.repeated),
            withdrawn: total(|work| work.withdrawn),
            unknown_withdrawn: total(|work| work.unknown_withdrawn),
            changes: total(|work| work.changes),
            prefixes_refused: total(|work| work.prefixes_refused),
            paths_refused: total(|work| work.paths_refused),
            damping_records: dampers().map(|(records, _)| records).sum(),
            damping_untracked: dampers().map(|(_, untracked)| untracked).sum(),
            received_paths: received.map_or([0; 2], Received::paths),
            received_bytes: received.map_or(0, Received::bytes),
            received_refused: self.received_refused,
        }
    }

    fn open(&mut self, changes: &mut Changes) {
        changes.shard = self.config.shard;
        let first = self.config.first_version;
        match &mut self.v4 {
            Some(routes) => routes.open(changes),
            None => changes.first_version[Family::Ipv4.index()] = first.wrapping_add(1),
        }
        match &mut self.v6 {
            Some(routes) => routes.open(changes),
            None => changes.first_version[Family::Ipv6.index()] = first.wrapping_add(1),
        }
    }

    fn close(&mut self, changes: &mut Changes) {
        changes.last_version = Family::ALL.map(|family| self.version(family));
    }
}

#[cfg(test)]
mod received_tests;
#[cfg(test)]
mod tests;
