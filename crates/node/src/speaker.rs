//! The BGP speaker: sessions, shards of the RIB and update groups put together.
//!
//! Each part is a pure core of `thalweg-bgp` behind its own lock; the speaker decides only the order in which they
//! are called. It has no thread: a [scheduling](thalweg_exec::control_plane) calls the functions of
//! [`ControlPlane`]. All four schedulings call the same functions, so all four give the same answer.
//!
//! ```text
//! PeerSlot: Session, Importer, links ── Work ──> ShardSlot x16: RibShard ── Changes ──> ExportQueue: UpdateGroups, readers
//!     ^                                                                                    │
//!     └──────────────────── Member: position in the group's log <──────────────────────────┘
//! ```
//!
//! The lock order is slot, list of groups, export queue, group, shard. The table of neighbors, the inboxes of
//! export queues and shards and the list of notices are leaves, locked for one copy or change. The view of next
//! hops comes before all of them: a thread that replaces it holds its lock while it queues work at the shards.
//!
//! If a bug panics while a session's bytes are processed, only that session ends, as if it had lost its connection,
//! and the log says so.

mod advertised;
mod best_path;
mod counts;
mod direct;
mod drive;
mod export_queue;
mod groups;
mod log;
mod look;
mod memory;
mod network;
mod observer;
mod origins;
mod parting;
mod peer_counts;
mod places;
mod profile;
mod progress;
mod query;
mod read;
mod received;
mod reimport;
mod reload;
mod rest;
mod restart;
mod restart_progress;
mod scan;
mod shards;
mod slot;

use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use thalweg_base::{Address, Prefix};
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::export::ExportLimits;
use thalweg_bgp::peer::{Millis, PeerId, PeerTable};
use thalweg_bgp::rib::{NextHopView, ShardConfig};
use thalweg_bgp::route::{Changes, RouteBatchBuilder, SHARDS, shard_of};
use thalweg_exec::control_plane::{ControlPlane, Exported, Notice, Reading, Registry, Share, Token, Wakers};

use thalweg_wire::bgp::{Family, cease};

use thalweg_config::BgpConfig;

pub use best_path::BestPathTo;
pub use export_queue::RouteReader;
pub(crate) use groups::view_of;
pub use memory::release_memory;
pub use network::{ByteStream, Incoming, Network};
pub use observer::SessionObserver;
pub(crate) use origins::ViewOrigins;
pub use query::SessionFacts;
pub(crate) use query::explained;
pub(crate) use reload::origination;
pub use reload::{BgpReloadError, PreparedBgp};
pub use restart_progress::{Restart, RestartNeighbor};
pub use scan::StaticSource;
pub use shards::Work;

use export_queue::{ExportQueue, GroupSlot};
use memory::GiveBack;
use observer::Observers;
use parting::{Partings, Whose};
use profile::{Function, Profile};
use restart_progress::RestartProgress;
use shards::{ShardFacts, ShardSlot};
use slot::PeerSlot;

/// Interval at which shards learn which tombstones nobody needs any more, in milliseconds.
const TOMBSTONE_FLOOR_MS: u64 = 500;

/// Interval at which we ask the kernel for segments that it dropped because of their signature, in milliseconds.
const SIGNATURES_LOOK_MS: u64 = 5000;

/// A BGP speaker: all of a router's BGP state. Each part has its own lock.
pub struct Speaker {
    config: RwLock<Arc<BgpConfig>>,
    interner: Arc<Interner>,
    /// The interner came with the options; its owner sweeps it.
    shares_interner: bool,
    network: Box<dyn Network>,
    slots: RwLock<Vec<Arc<PeerSlot>>>,
    by_address: Mutex<HashMap<IpAddr, PeerId>>,
    /// Addresses of neighbors that a prepared reload adds.
    reserved: Mutex<HashSet<IpAddr>>,
    peers: RwLock<Arc<PeerTable>>,
    shards: Vec<ShardSlot>,
    shard_facts: Arc<ShardFacts>,
    export_queues: OnceLock<Vec<ExportQueue>>,
    groups: Mutex<Vec<Arc<GroupSlot>>>,
    /// The latest known state of next hops.
    next_hops: Mutex<Arc<NextHopView>>,
    /// Moved into the first export queue when the scheduling starts.
    readers: Mutex<Vec<Box<dyn RouteReader>>>,
    observers: Observers,
    notices: Mutex<VecDeque<Notice>>,
    wakers: OnceLock<Wakers>,
    now_ms: AtomicU64,
    /// No slot has a timer that expires earlier, as far as anyone noted.
    timers_from_ms: AtomicU64,
    /// When shards next learn which tombstones nobody needs.
    floors_due_ms: AtomicU64,
    /// Ranks that update groups need.
    depth: AtomicUsize,
    /// Dumps have appended to a log, so members have something to write.
    grew: AtomicBool,
    strangers: log::Strangers,
    partings: Partings,
    signatures: Mutex<log::Signatures>,
    /// When we next ask the kernel about signatures.
    signatures_due_ms: AtomicU64,
    seed: u64,
    limits: ExportLimits,
    scheduling: String,
    profile: Profile,
    /// Threads that have received a [`SpeakerWorker`].
    threads: AtomicUsize,
    give_back: Mutex<GiveBack>,
    restart: Arc<RestartProgress>,
    origins: origins::Origins,
    /// Sessions came up or went down since the last query.
    sessions_changed: AtomicBool,
    /// Held for a whole reload.
    reloading: Mutex<()>,
}

/// Buffers that one thread reuses for all its work, also if it works for several speakers.
#[derive(Default)]
pub struct SpeakerWorker {
    /// Unprocessed bytes of the connection being read: the remainder of the turn before, and what arrived.
    buffer: Vec<u8>,
    /// The target of reads; its length is the most that one read takes.
    arrived: Vec<u8>,
    builder: RouteBatchBuilder,
}

/// What a speaker needs besides its configuration.
pub struct SpeakerOptions {
    /// The source of connections.
    pub network: Box<dyn Network>,
    /// Receivers of best-route changes.
    pub readers: Vec<Box<dyn RouteReader>>,
    /// Receives what neighbors send.
    pub observer: Option<Arc<dyn SessionObserver>>,
    /// Seeds hashes against collisions that an attacker chooses, and timer jitter.
    pub seed: u64,
    /// How much is kept for neighbors that read slowly.
    pub limits: ExportLimits,
    /// The name that `show bgp rib` prints.
    pub scheduling: String,
    /// Measure the time spent in each function.
    pub profile_functions: bool,
    /// The daemon has restarted, and its neighbors may have kept its routes (RFC 4724).
    pub restart: Option<Restart>,
    /// The table of attribute sets, if several speakers share one. Its owner then sweeps it and gives memory back.
    pub interner: Option<Arc<Interner>>,
    /// The table is one piece, because one thread runs the speaker. For a table of a thousand prefixes, sixteen pieces
    /// are sixteen times as many lines of memory to look at.
    pub one_shard: bool,
}

impl SpeakerOptions {
    /// For a speaker that nobody listens to and that begins without routes.
    pub fn new(network: impl Network + 'static, seed: u64) -> Self {
        Self {
            network: Box::new(network),
            readers: Vec::new(),
            observer: None,
            seed,
            limits: ExportLimits::default(),
            scheduling: String::new(),
            profile_functions: false,
            restart: None,
            interner: None,
            one_shard: false,
        }
    }
}

impl Speaker {
    /// Builds a speaker. Nothing happens before a scheduling runs it.
    pub fn new(config: Arc<BgpConfig>, options: SpeakerOptions) -> io::Result<Self> {
        let count = if options.one_shard { 1 } else { SHARDS };
        let shard = |shard| ShardConfig {
            shard,
            parts: SHARDS / count,
            seed: options.seed,
            depth: 1,
            decision: config.decision,
            damping: config.damping,
            first_version: 0,
        };
        let (shards, shard_facts) = shards::all(count, shard);
        let speaker = Self {
            shards,
            shard_facts,
            shares_interner: options.interner.is_some(),
            interner: options.interner.unwrap_or_else(|| Arc::new(Interner::new(options.seed))),
            network: options.network,
            slots: RwLock::default(),
            by_address: Mutex::default(),
            reserved: Mutex::default(),
            peers: RwLock::default(),
            export_queues: OnceLock::new(),
            groups: Mutex::default(),
            next_hops: Mutex::default(),
            readers: Mutex::new(options.readers),
            observers: Observers::new(options.observer),
            notices: Mutex::default(),
            wakers: OnceLock::new(),
            now_ms: AtomicU64::new(0),
            timers_from_ms: AtomicU64::new(0),
            floors_due_ms: AtomicU64::new(0),
            depth: AtomicUsize::new(1),
            grew: AtomicBool::new(false),
            strangers: log::Strangers::default(),
            partings: Partings::default(),
            signatures: Mutex::default(),
            signatures_due_ms: AtomicU64::new(0),
            seed: options.seed,
            limits: options.limits,
            scheduling: options.scheduling,
            profile: Profile::new(options.profile_functions),
            threads: AtomicUsize::new(0),
            restart: Arc::new(RestartProgress::new(
                options.restart.map(|restart| restart_progress::awaited(restart, &config)),
            )),
            give_back: Mutex::default(),
            origins: origins::Origins::default(),
            sessions_changed: AtomicBool::new(false),
            reloading: Mutex::new(()),
            config: RwLock::new(config.clone()),
        };
        if speaker.restart.is_active() {
            let deferred = speaker.restart.deferred();
            for (family, shard) in
                Family::ALL.iter().flat_map(|family| speaker.shards.iter().map(move |s| (family, s)))
            {
                shard.rib().set_deferred(*family, deferred[family.index()]);
            }
        }
        for neighbor in &config.neighbors {
            speaker.add_neighbor(neighbor.clone(), false, Millis(0))?;
        }
        Ok(speaker)
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<BgpConfig> {
        self.config.read().clone()
    }

    /// Threads that have worked for the speaker so far. A scheduling may start fewer than it was asked for.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// The parts of all prefixes that a shard has.
    fn parts(&self, shard: usize) -> Range<usize> {
        let each = SHARDS / self.shards.len();
        shard * each..(shard + 1) * each
    }

    /// The shard that owns a prefix.
    fn shard_of<A: Address>(&self, prefix: Prefix<A>) -> usize {
        shard_of(prefix) * self.shards.len() / SHARDS
    }

    fn slot(&self, session: usize) -> Option<Arc<PeerSlot>> {
        self.slots.read().get(session).cloned()
    }

    fn slots_in_use(&self) -> Vec<Arc<PeerSlot>> {
        let slots = self.slots.read();
        slots.iter().filter(|slot| !slot.is_free()).cloned().collect()
    }

    fn peers(&self) -> Arc<PeerTable> {
        self.peers.read().clone()
    }

    fn change_peers(&self, change: impl FnOnce(&mut PeerTable)) {
        let mut peers = self.peers.write();
        let mut table = PeerTable::clone(&peers);
        change(&mut table);
        *peers = Arc::new(table);
    }

    fn export_queues(&self) -> &[ExportQueue] {
        self.export_queues.get().map_or(&[], Vec::as_slice)
    }

    fn notice(&self, notice: Notice) {
        self.notices.lock().push_back(notice);
        self.wake();
    }

    /// Wakes all sleeping threads of the scheduling.
    pub fn wake(&self) {
        if let Some(wakers) = self.wakers.get() {
            wakers.wake_all();
        }
    }

    /// Appends the changes of a shard to every export queue.
    fn deliver(&self, changes: Changes) {
        let changes = Arc::new(changes);
        for queue in self.export_queues() {
            queue.push(changes.clone());
        }
    }

    /// The neighbor at an address: a configured one, or a new one if a dynamic range covers the address.
    fn neighbor_at(&self, address: IpAddr, now: Millis) -> Result<Arc<PeerSlot>, Stranger> {
        let known = self.by_address.lock().get(&address).copied();
        if let Some(slot) = known.and_then(|id| self.slot(id.index())) {
            return Ok(slot);
        }
        let config = self.config();
        let ranges = config.groups.iter().filter_map(|group| group.dynamic.as_ref());
        let range = ranges.into_iter().find(|range| range.contains(address));
        let range = range.ok_or(Stranger::Unknown)?;
        let group = range.template.group.clone();
        let in_use = self.slots_in_use();
        let members = in_use.iter().filter(|slot| {
            let state = self.look(slot);
            state.dynamic && state.config.group == group
        });
        if members.count() >= range.max {
            return Err(Stranger::OneTooMany { group: group.unwrap_or_default(), max: range.max });
        }
        Ok(self.add_neighbor(Arc::new(range.neighbor(address)), true, now)?)
    }
}

/// Why a connection is from no neighbor.
#[derive(Debug, thiserror::Error)]
enum Stranger {
    #[error("no neighbor is configured at this address")]
    Unknown,
    #[error("group {group} has its {max} dynamic neighbors (`dynamic_max`)")]
    OneTooMany { group: Arc<str>, max: usize },
    #[error(transparent)]
    Refused(#[from] io::Error),
}

impl ControlPlane for Speaker {
    type Worker = SpeakerWorker;
    type Batch = Work;

    fn worker(&self) -> SpeakerWorker {
        self.threads.fetch_add(1, Ordering::Relaxed);
        SpeakerWorker::default()
    }

    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn begin(&self, export_queues: usize, wakers: Wakers) {
        let export_queues: Vec<ExportQueue> = (0..export_queues).map(|_| ExportQueue::default()).collect();
        if let Some(first) = export_queues.first() {
            first.work().readers = std::mem::take(&mut *self.readers.lock());
        }
        // A speaker runs once; a second scheduling would find the export queues of the first.
        let _ = self.export_queues.set(export_queues);
        let _ = self.wakers.set(wakers);
        self.originate();
    }

    fn attach_listeners(&self, registry: &Registry, token: Token) -> io::Result<()> {
        self.network.register_listeners(registry, token)
    }

    fn attach(&self, session: usize, registry: &Registry, token: Token) -> io::Result<()> {
        let Some(slot) = self.slot(session) else { return Ok(()) };
        for link in self.look(&slot).links.iter_mut().flatten() {
            if !std::mem::replace(&mut link.registered, true) {
                link.stream.register(registry, token)?;
            }
        }
        Ok(())
    }

    fn accept(&self, _: &mut SpeakerWorker, now_ms: u64) {
        let now = self.at(now_ms);
        self.profile.time(Function::Housekeeping, || self.accept_all(now));
    }

    fn ready(&self, session: usize, readable: bool, writable: bool) {
        if let Some(slot) = self.slot(session) {
            slot.note_ready(readable, writable);
        }
    }

    fn read(&self, worker: &mut SpeakerWorker, session: usize, now_ms: u64) -> Reading<Work> {
        match self.slot(session) {
            Some(slot) => self.read_slot(worker, &slot, self.at(now_ms)),
            None => Reading { batch: None, more: false },
        }
    }

    fn touches(&self, work: &Work, shard: usize) -> bool {
        work.touches(self.parts(shard))
    }

    fn apply(&self, _: &mut SpeakerWorker, shard: usize, work: &Work, now_ms: u64) {
        self.profile.time(Function::TableUpdate, || {
            self.shards[shard].apply(shard, work, || self.peers(), |changes| self.deliver(changes));
        });
        self.profile.reached_shard(&work.pending);
        if let Some(slot) = work.slot.as_ref().filter(|slot| slot.paths.take_reached()) {
            self.look_at_limits(slot, self.at(now_ms));
        }
    }

    fn export(&self, _: &mut SpeakerWorker, queue: usize, now: bool, now_ms: u64) -> Exported {
        let queue = self.export_queues().get(queue);
        let mut exported = queue.map_or_else(Exported::default, |queue| {
            self.profile.time(Function::Export, || queue.export(|| self.peers(), now, now_ms))
        });
        exported.grew |= self.grew.swap(false, Ordering::AcqRel);
        exported
    }

    fn write(&self, _: &mut SpeakerWorker, session: usize, now_ms: u64) {
        if let Some(slot) = self.slot(session) {
            self.write_slot(&slot, self.at(now_ms));
        }
    }

    fn write_share(&self, _: &mut SpeakerWorker, share: Share, now_ms: u64) {
        let now = self.at(now_ms);
        for slot in self.slots_in_use().iter().filter(|slot| share.has(slot.id.index())) {
            self.write_slot(slot, now);
        }
    }

    fn tick(&self, _: &mut SpeakerWorker, share: Share, now_ms: u64) -> u64 {
        let now = self.at(now_ms);
        let (due, mut next) = self.profile.time(Function::Housekeeping, || self.run_timers(share, now));
        for slot in &due {
            // A write can bring a deadline nearer: that of a neighbor that does not read.
            self.write_slot(slot, now);
            next = next.min(slot.deadline_ms.load(Ordering::Acquire));
        }
        next.max(now_ms + 1)
    }

    fn background_work(&self, _: &mut SpeakerWorker, share: Share, now_ms: u64) -> bool {
        let more = self.shard_background_work(share);
        let now = self.at(now_ms);
        if share.index == 0 {
            self.restart_step(now);
        }
        self.dump_background_work(share) || more
    }

    fn poll_notice(&self) -> Option<Notice> {
        self.notices.lock().pop_front()
    }
}

impl Speaker {
    fn at(&self, now_ms: u64) -> Millis {
        self.now_ms.fetch_max(now_ms, Ordering::Relaxed);
        Millis(now_ms)
    }

    /// Ends or warns a session whose prefix count reached a limit when a shard applied its routes. Waiting for the
    /// neighbor's next message could take for ever. The caller holds no lock.
    fn look_at_limits(&self, slot: &Arc<PeerSlot>, now: Millis) {
        {
            let mut state = slot.lock();
            slot.note_prefix_counts(&mut state, now);
            self.drive_alone(slot, &mut state, now);
        }
        self.write_slot(slot, now);
    }

    /// Accepts all waiting connections.
    fn accept_all(&self, now: Millis) {
        loop {
            match self.network.accept() {
                Ok(Some(incoming)) => self.place_connection(incoming, now),
                Ok(None) => return,
                // Connections that still wait bring no further event, so `run_timers` tries again.
                Err(error) => return self.strangers.accept_failed(error, now),
            }
        }
    }

    /// Gives a connection to its neighbor, or refuses it.
    fn place_connection(&self, mut incoming: Incoming, now: Millis) {
        let remote = incoming.remote;
        loop {
            match self.neighbor_at(remote.ip().to_canonical(), now) {
                Ok(slot) => match self.incoming(&slot, incoming, now) {
                    None => return,
                    Some(unplaced) => incoming = unplaced,
                },
                Err(why) => {
                    let words = parting::cease(cease::CONNECTION_REJECTED);
                    self.partings.part(incoming.stream, words, Whose::Stranger, now);
                    return self.strangers.refused(remote, why, now);
                }
            }
        }
    }

    /// Runs the timers of a share. Returns the slots that may now have something to write, and the next deadline.
    fn run_timers(&self, share: Share, now: Millis) -> (Vec<Arc<PeerSlot>>, u64) {
        let mut next = now.0 + TOMBSTONE_FLOOR_MS;
        if share.index == 0 && now.0 >= self.floors_due_ms.load(Ordering::Relaxed) {
            self.floors_due_ms.store(next, Ordering::Relaxed);
            self.update_tombstone_floors();
            self.partings.look(now);
            if self.strangers.log_pending(now) {
                self.accept_all(now);
            }
            self.look_at_signatures(now);
            self.give_back();
            self.restart_upkeep();
        }
        if share.index == 0 {
            next = next.min(self.restart_step(now));
        }
        let mut due = Vec::new();
        for slot in self.slots_in_use().into_iter().filter(|slot| share.has(slot.id.index())) {
            // Routes that were judged again may have passed a limit.
            let reached = slot.paths.take_reached();
            let is_due = reached || slot.deadline_ms.load(Ordering::Acquire) <= now.0;
            if is_due {
                let mut state = slot.lock();
                slot.note_prefix_counts(&mut state, now);
                // A busy machine may not have reported yet that a connection was refused; without this check it
                // would time out here.
                self.check_connecting(&slot, &mut state, now);
                state.session.handle_timer(now);
                self.drive_alone(&slot, &mut state, now);
            }
            next = next.min(slot.deadline_ms.load(Ordering::Acquire));
            if is_due {
                due.push(slot);
            }
        }
        for queue in self.export_queues().iter().skip(share.index).step_by(share.of) {
            next = next.min(queue.delayed_until_ms().unwrap_or(u64::MAX));
        }
        (due, next.min(self.damping_timers(share, now)))
    }

    /// Asks the kernel, every [`SIGNATURES_LOOK_MS`], which segments it dropped because of a signature.
    fn look_at_signatures(&self, now: Millis) {
        if now.0 < self.signatures_due_ms.load(Ordering::Relaxed) {
            return;
        }
        self.signatures_due_ms.store(now.0 + SIGNATURES_LOOK_MS, Ordering::Relaxed);
        let Some(faults) = self.network.signature_faults() else { return };
        self.signatures.lock().look(faults, now, || {
            let slots = self.slots_in_use();
            let waiting = slots.iter().filter_map(|slot| {
                let state = self.look(slot);
                let waits = state.config.transport.password.is_some() && state.negotiated.is_none();
                waits.then(|| state.config.name.to_string())
            });
            waiting.collect()
        });
    }

    /// Writes what waits for the neighbor, and regroups it or wakes its group if that is due.
    fn write_slot(&self, slot: &Arc<PeerSlot>, now: Millis) {
        loop {
            let group_wanted = self.profile.time(Function::Write, || slot.write(now));
            self.note_deadline(slot);
            if !group_wanted {
                return;
            }
            let mut state = slot.lock();
            if state.sending.as_ref().is_some_and(|sending| sending.moves) {
                self.regroup(slot, &mut state);
            }
            drop(state);
            self.wake();
            if !slot.wants_write() {
                return;
            }
        }
    }

    /// Reuses suppressed routes that were quiet long enough; returns the next deadline.
    fn damping_timers(&self, share: Share, now: Millis) -> u64 {
        if self.config().damping.is_none() {
            return u64::MAX;
        }
        let mut next = u64::MAX;
        for (index, shard) in self.shards.iter().enumerate().filter(|(index, _)| share.has(*index)) {
            let deadline = shard.handle_timer(
                index,
                now,
                || self.peers(),
                |changes| {
                    self.deliver(changes);
                    self.wake();
                },
            );
            next = next.min(deadline.map_or(u64::MAX, |deadline| deadline.0));
        }
        next
    }

    fn shard_background_work(&self, share: Share) -> bool {
        let mut more = false;
        // This runs after every step of other work, and there is nearly always nothing to do.
        if !self.shard_facts.has_work() {
            return more;
        }
        for (index, shard) in self.shards.iter().enumerate().filter(|(index, _)| share.has(*index)) {
            if shard.has_work() {
                let deliver = |changes| {
                    self.deliver(changes);
                    self.wake();
                };
                more |=
                    self.profile.time(Function::TableUpdate, || shard.slice(index, || self.peers(), deliver));
            }
        }
        more
    }
}
