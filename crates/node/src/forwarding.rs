//! Best routes on their way to the forwarding table: on a thread of their own, behind a bounded queue.
//!
//! ```text
//! export queue ──RouteReader──> Inbox (at most QUEUE_CHANGES_MAX) ──> thread: Outlet ──> FIB or kernel
//!                          │ full: the shard is marked             ^
//!                          └──────── rescan of the shard ──────────┘
//! ```
//!
//! An export queue never waits for a table. When the inbox is full, further changes of a shard are dropped and the
//! shard is marked. Once its queued changes are processed, the mark is cleared and the whole shard is scanned: each
//! best route is installed, and prefixes that the shard lacks are removed. Changes after the mark was cleared are
//! queued again, so the latest change of each prefix always takes effect.
//!
//! Bounded: changes in the queue ([`QUEUE_CHANGES_MAX`], about 20 MB and the attribute sets they hold). Counted:
//! changes dropped, and rescans.

mod ground;
mod tables;

use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::peer::PeerTable;
use thalweg_bgp::rib::{RibAddress, ScanCursor};
use thalweg_bgp::route::{Change, Changes, Further, SHARDS, SharedChanges, shard_of};

use crate::control::{AnswerError, FibRouteView, FibView, ForwardingView, VrfView};
use crate::fib::{Outlet, RouteInstaller};
use crate::speaker::{RouteReader, Speaker};

pub use tables::{ConfiguredRoutes, ForwardingTables, TablesRead, vrf_named};

/// Changed prefixes that wait at most: a quarter of a full table, so that a table that arrives at once is mostly
/// installed from the queue and never held twice.
pub const QUEUE_CHANGES_MAX: usize = 1 << 18;

/// Changes that are put in order together at most. The more wait, the more of them fall into the same piece of the table,
/// which is then written once. They are installed in parts ([`crate::fib::PIECE_CHANGES`]), between which others have
/// their turn.
const BATCH_CHANGES_MAX: usize = 1 << 15;

/// Unresolved next hops shown.
const UNRESOLVED_SHOWN: usize = 16;

/// Answers questions about where a running router's best routes go.
pub trait Forwarding: Send + Sync {
    /// The counters and the unresolved next hops.
    fn status(&self) -> ForwardingView;

    /// What happens to packets of a VRF (without a name: of the main table) for an address, or for a prefix as far as
    /// no longer one covers it.
    fn lookup(&self, vrf: Option<&str>, destination: IpPrefix) -> Result<FibView, AnswerError>;

    /// At most `most` routes of a VRF's table after `after`, ordered by family, address and length. An error if the
    /// table is not this program's.
    fn routes(
        &self,
        vrf: Option<&str>,
        after: Option<IpPrefix>,
        most: usize,
    ) -> Result<Vec<FibRouteView>, AnswerError>;

    /// All tables of routes.
    fn vrfs(&self) -> Result<Vec<VrfView>, AnswerError>;
}

/// The next step of the installing thread.
#[derive(Debug)]
pub enum Task {
    /// Install changes, in this order.
    Changes(Vec<SharedChanges>),
    /// Rescan a shard whose changes were dropped: see [`rescan`].
    Rescan(usize),
    /// The underlay changed, or parts of it died or came back.
    Ground,
    /// Nothing came before the timeout.
    Idle,
    /// The inbox is closed.
    Closed,
}

/// Counters of an inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxCounters {
    /// Changes that wait.
    pub waiting: u64,
    pub dropped: u64,
    /// Rescans handed out.
    pub rescans: u64,
}

/// The queue between shards and the installing thread.
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<State>,
    ready: Condvar,
    changes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<SharedChanges>,
    /// Number of queue entries of each shard.
    queued: [u32; SHARDS],
    /// Shards whose changes were dropped.
    marked: [bool; SHARDS],
    is_closed: bool,
    /// The underlay changed since the last [`Task::Ground`].
    ground: bool,
    counters: InboxCounters,
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new(QUEUE_CHANGES_MAX)
    }
}

impl Inbox {
    /// An inbox for at most `changes_max` waiting changes.
    pub fn new(changes_max: usize) -> Self {
        Self { state: Mutex::default(), ready: Condvar::new(), changes_max }
    }

    /// The sending side, for the speaker.
    pub fn reader(self: &Arc<Self>) -> Box<dyn RouteReader> {
        Box::new(Reader(self.clone()))
    }

    /// The next task; waits at most `timeout` for one.
    pub fn next(&self, timeout: Duration) -> Task {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return Task::Closed;
            }
            if let Some(task) = state.take() {
                return task;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Task::Idle;
            }
            self.ready.wait_for(&mut state, left);
        }
    }

    /// Notes a change of links, neighbors or others' routes; it becomes the next task.
    pub fn note_ground(&self) {
        self.state.lock().ground = true;
        self.ready.notify_one();
    }

    /// Makes every [`Self::next`] return [`Task::Closed`].
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.ready.notify_all();
    }

    /// The counters now.
    pub fn counters(&self) -> InboxCounters {
        self.state.lock().counters
    }

    fn push(&self, changes: &SharedChanges) {
        let count = (changes.v4.len() + changes.v6.len()) as u64;
        let mut state = self.state.lock();
        let shard = changes.shard % SHARDS;
        if state.marked[shard] {
            state.counters.dropped += count;
            return;
        }
        if state.counters.waiting + count > self.changes_max as u64 {
            state.marked[shard] = true;
            state.counters.dropped += count;
        } else {
            state.counters.waiting += count;
            state.queued[shard] += 1;
            state.queue.push_back(changes.clone());
        }
        drop(state);
        self.ready.notify_one();
    }
}

impl State {
    fn take(&mut self) -> Option<Task> {
        if std::mem::take(&mut self.ground) {
            return Some(Task::Ground);
        }
        // Changes queued before the mark must not come after the rescan.
        let rescan = (0..SHARDS).find(|shard| self.marked[*shard] && self.queued[*shard] == 0);
        if let Some(shard) = rescan {
            self.marked[shard] = false;
            self.counters.rescans += 1;
            return Some(Task::Rescan(shard));
        }
        let (mut batch, mut count) = (Vec::new(), 0);
        while let Some(next) = self.queue.front() {
            count += next.v4.len() + next.v6.len();
            if count > BATCH_CHANGES_MAX && !batch.is_empty() {
                break;
            }
            batch.extend(self.queue.pop_front());
        }
        for changes in &batch {
            self.queued[changes.shard % SHARDS] -= 1;
            self.counters.waiting -= (changes.v4.len() + changes.v6.len()) as u64;
        }
        (!batch.is_empty()).then_some(Task::Changes(batch))
    }
}

struct Reader(Arc<Inbox>);

impl RouteReader for Reader {
    fn handle_changes(&mut self, changes: &SharedChanges, _: &PeerTable) {
        self.0.push(changes);
    }

    fn flush(&mut self) {}
}

/// Brings the installed routes of one shard in line with the RIB, a slice at a time.
pub fn rescan(speaker: &Speaker, shard: usize, outlet: &mut Outlet, installer: &mut dyn RouteInstaller) {
    let v4 = rescan_family::<u32>(speaker, shard, outlet, installer);
    let v6 = rescan_family::<u128>(speaker, shard, outlet, installer);
    outlet.retain(
        |prefix| shard_of(prefix) != shard || v4.contains(&prefix),
        |prefix| shard_of(prefix) != shard || v6.contains(&prefix),
        installer,
    );
}

/// Installs the shard's routes of a family and returns their prefixes.
fn rescan_family<A: RibAddress>(
    speaker: &Speaker,
    shard: usize,
    outlet: &mut Outlet,
    installer: &mut dyn RouteInstaller,
) -> HashSet<Prefix<A>> {
    let (mut seen, mut cursor) = (HashSet::new(), ScanCursor::START);
    loop {
        let mut changes = Changes { shard, ..Changes::default() };
        let list = A::changes_mut(&mut changes);
        let done = speaker.scan_shard::<A>(shard, &mut cursor, &mut |route| {
            let Some(best) = route.best() else { return };
            seen.insert(route.prefix);
            let new: Vec<_> = route.ranked().skip(1).map(|path| path.chosen()).collect();
            let further = (!new.is_empty()).then(|| Box::new(Further { old: Vec::new(), new }));
            list.push(Change { prefix: route.prefix, old: None, new: Some(best.chosen()), further });
        });
        outlet.handle_changes(&changes, installer);
        if done {
            return seen;
        }
    }
}

/// The view of an outlet and its inbox.
pub fn view_of(install: &str, outlet: &Outlet, inbox: InboxCounters) -> ForwardingView {
    let counters = outlet.counters();
    let unresolved = outlet.unresolved().take(UNRESOLVED_SHOWN);
    ForwardingView {
        install: install.to_owned(),
        prefixes: counters.prefixes.into(),
        unresolved_prefixes: counters.unresolved_prefixes,
        saved_prefixes: counters.saved_prefixes,
        discarding_prefixes: counters.discarding_prefixes,
        protected_prefixes: counters.protected_prefixes,
        hops: counters.hops,
        changes: counters.changes,
        installs: counters.installs,
        resolutions: counters.resolutions,
        without_number: counters.without_number,
        waiting: inbox.waiting,
        dropped: inbox.dropped,
        rescans: inbox.rescans,
        unresolved: unresolved
            .map(|(address, why, prefixes)| format!("{address}: {why} ({prefixes} prefixes)"))
            .collect(),
        kernel: None,
        table_bytes: None,
        kernel_sync: None,
    }
}

#[cfg(test)]
mod tests;
