//! One neighbor: its session, its connections, and what waits to be written to it.
//!
//! One lock guards all that changes, and a thread holds it for one turn of work. The atomics beside it say whether
//! a turn is worthwhile, so that no thread takes the lock in vain.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use thalweg_base::uninterrupted;
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::export::{DumpKind, GATHER_BYTES_MAX, Member, SLICES_MAX};
use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::session::config::{KeepRejected, RemoteAs};
use thalweg_bgp::session::import::Judge;
use thalweg_bgp::session::{Connection, Importer, Negotiated, NeighborConfig, Session};
use thalweg_wire::bgp::Family;

use super::export_queue::GroupSlot;
use super::log;
use super::network::ByteStream;

/// Bytes read from a socket in one turn. With the remainder of the turn before, the longest message fits.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Bytes written to one neighbor before others have their turn.
const WRITE_TURN_BYTES: usize = 4 << 20;

/// A connection of a session.
pub(super) struct Link {
    pub(super) stream: Box<dyn ByteStream>,
    /// A non-blocking connect whose result is not known yet.
    pub(super) connecting: bool,
    pub(super) registered: bool,
    /// The socket accepts no more bytes for now.
    pub(super) full: bool,
    /// The beginning of an incomplete message, or bytes read but not processed yet.
    pub(super) unread: Vec<u8>,
    /// The session's own messages; they go before those of its group.
    control: Vec<u8>,
    control_written: usize,
}

impl Link {
    pub(super) fn new(stream: Box<dyn ByteStream>, connecting: bool) -> Self {
        Self {
            stream,
            connecting,
            registered: false,
            full: false,
            unread: Vec::new(),
            control: Vec::new(),
            control_written: 0,
        }
    }
}

/// The sending side of an established session.
pub(super) struct Sending {
    pub(super) connection: Connection,
    pub(super) group: Arc<GroupSlot>,
    pub(super) member: Member,
    /// Dumps that the neighbor is to get, in order: at most one of the whole table and a refresh for each family.
    pub(super) wants: VecDeque<DumpKind>,
    /// It changes to another group as soon as its gathered bytes are written.
    pub(super) moves: bool,
}

impl Sending {
    pub(super) fn want(&mut self, kind: DumpKind) {
        if !self.wants.contains(&kind) {
            self.wants.push_back(kind);
        }
        self.group.wants.store(true, Ordering::Release);
    }

    /// The dump to begin now. None while one is under way, because a new dump would replace it.
    pub(super) fn next_dump(&mut self) -> Option<DumpKind> {
        if self.member.has_dump() {
            return None;
        }
        self.wants.pop_front().or_else(|| self.member.needs())
    }

    fn has_next_dump(&self) -> bool {
        !self.member.has_dump() && (!self.wants.is_empty() || self.member.needs().is_some())
    }
}

/// How many routes of a neighbor the shards have, by family. Shards and the session share the count: the shard that
/// applies the routes notices a passed limit, without waiting for the neighbor's next message.
#[derive(Default)]
pub(super) struct PathCounts {
    paths: [AtomicI64; 2],
    /// As it sent them, if they are kept like that; no limit counts these.
    received: [AtomicI64; 2],
    /// Some are missing there: the neighbor sent more than are kept, or they were not kept from the beginning.
    received_in_part: AtomicBool,
    /// How many routes the neighbor is sent, by family, as of the last count; negative: not counted.
    sent: [AtomicI64; 2],
    /// Counts at which the session must act: its warning threshold, and the first count above the limit.
    watched: [[AtomicI64; 2]; 2],
    reached: AtomicBool,
}

/// What the slot's lock guards.
pub(super) struct PeerState {
    pub(super) session: Session,
    pub(super) config: Arc<NeighborConfig>,
    /// Made when the neighbor first sends something or gets a policy. It is in memory of its own, as are `links` and
    /// `sending`: a neighbor that is not there takes little.
    pub(super) importer: Option<Box<Importer>>,
    pub(super) links: [Option<Box<Link>>; 2],
    pub(super) negotiated: Option<Arc<Negotiated>>,
    pub(super) sending: Option<Box<Sending>>,
    pub(super) written_bytes: u64,
    /// Created for an address in a dynamic range; removed with its session.
    pub(super) dynamic: bool,
}

/// A changed import.
pub(super) struct NewImport {
    pub(super) judge: Arc<Judge>,
    /// The time of arrival of routes that differ from before, as if the neighbor had repeated them.
    pub(super) received_s: u32,
}

/// A neighbor's entry in the table of neighbors.
pub(super) struct PeerSlot {
    pub(super) id: PeerId,
    state: Mutex<PeerState>,
    readable: AtomicBool,
    writable: AtomicBool,
    want_write: AtomicBool,
    /// The earliest deadline of the session's timers.
    pub(super) deadline_ms: AtomicU64,
    /// Raised when a session ends; see `shards`.
    pub(super) epoch: AtomicU32,
    /// Raised when import changes; see `shards`.
    pub(super) policy: AtomicU32,
    /// What judges kept routes since import changed in the session.
    pub(super) new_import: Mutex<Option<Arc<NewImport>>>,
    /// Its routes are to be asked for: their validity may lead to another result.
    pub(super) ask_again: AtomicBool,
    /// When it was last asked for that reason, or 0.
    pub(super) asked_ms: AtomicU64,
    /// Routes judged again because their validity changed.
    pub(super) revalidated: AtomicU64,
    /// Shards that have not finished withdrawing the routes of an ended session.
    withdrawals: AtomicU32,
    pub(super) paths: PathCounts,
    /// The entry is unused.
    pub(super) free: AtomicBool,
}

impl PeerSlot {
    pub(super) fn new(id: PeerId, state: PeerState) -> Self {
        let paths = PathCounts::new(&state.config);
        Self {
            id,
            state: Mutex::new(state),
            readable: AtomicBool::new(false),
            writable: AtomicBool::new(false),
            want_write: AtomicBool::new(false),
            deadline_ms: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            policy: AtomicU32::new(0),
            new_import: Mutex::default(),
            ask_again: AtomicBool::new(false),
            asked_ms: AtomicU64::new(0),
            revalidated: AtomicU64::new(0),
            withdrawals: AtomicU32::new(0),
            paths,
            free: AtomicBool::new(false),
        }
    }

    /// Locks the state for a turn, after which the caller calls [`Self::write`]. `Speaker::look` locks it for others.
    pub(super) fn lock(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock()
    }

    pub(super) fn note_ready(&self, readable: bool, writable: bool) {
        if readable {
            self.readable.store(true, Ordering::Release);
        }
        if writable {
            self.writable.store(true, Ordering::Release);
        }
    }

    /// Whether there may be something to read. Clears the flag: only [`Self::note_ready`] sets it again.
    pub(super) fn take_readable(&self) -> bool {
        self.readable.swap(false, Ordering::AcqRel)
    }

    /// Reports the route counts to the session.
    pub(super) fn note_prefix_counts(&self, state: &mut PeerState, now: Millis) {
        for family in Family::ALL {
            state.session.note_prefix_count(family, self.paths.get(family), now);
        }
    }

    /// Has the neighbor asked for its routes again, if validity matters and not all of them are kept.
    pub(super) fn ask_unless_kept(&self) {
        let import = self.new_import.lock();
        let judge = import.as_ref().map(|import| &import.judge);
        if judge.is_some_and(|judge| judge.keeps() != KeepRejected::All && judge.depends_on_validity()) {
            self.ask_again.store(true, Ordering::Release);
        }
    }

    pub(super) fn take_config(&self, state: &mut PeerState, config: &Arc<NeighborConfig>) {
        state.config = config.clone();
        self.paths.watch(config);
        state.session.set_config(config.clone());
        if let Some(importer) = state.importer.as_mut().filter(|_| state.negotiated.is_some()) {
            importer.set_config(config);
        }
    }

    pub(super) fn is_free(&self) -> bool {
        self.free.load(Ordering::Acquire)
    }

    pub(super) fn withdrawals_begin(&self, count: usize) {
        self.withdrawals.fetch_add(count as u32, Ordering::AcqRel);
    }

    pub(super) fn withdrawal_finished(&self) {
        self.withdrawals.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether routes of an ended session are still being withdrawn. A new session waits until they are gone.
    pub(super) fn is_withdrawing(&self) -> bool {
        self.withdrawals.load(Ordering::Acquire) > 0
    }

    /// Whether a write was requested that found the state locked.
    pub(super) fn wants_write(&self) -> bool {
        self.want_write.load(Ordering::Acquire)
    }

    /// Requests a write, and performs it unless another thread holds the lock: then that thread performs it.
    /// Returns whether the group has to act: the member wants a dump, or a dump waited for it.
    pub(super) fn write(&self, now: Millis) -> bool {
        let mut group_wanted = false;
        self.want_write.store(true, Ordering::Release);
        while self.want_write.load(Ordering::Acquire) {
            let Some(mut state) = self.state.try_lock() else { return group_wanted };
            while self.want_write.swap(false, Ordering::AcqRel) {
                if self.writable.swap(false, Ordering::AcqRel) {
                    state.links.iter_mut().flatten().for_each(|link| link.full = false);
                }
                group_wanted |= state.write(now);
            }
            self.deadline_ms.store(state.next_deadline_ms(), Ordering::Release);
        }
        group_wanted
    }
}

impl PathCounts {
    fn new(config: &NeighborConfig) -> Self {
        let counts = Self::default();
        counts.set_sent(None);
        counts.watch(config);
        counts
    }

    fn watch(&self, config: &NeighborConfig) {
        for (watched, limit) in self.watched.iter().zip(config.max_prefixes) {
            let at =
                limit.map_or([i64::MAX; 2], |limit| [limit.warns_at().into(), i64::from(limit.limit) + 1]);
            watched.iter().zip(at).for_each(|(watched, at)| watched.store(at, Ordering::Release));
        }
    }

    pub(super) fn get(&self, family: Family) -> u32 {
        let count = self.paths[family.index()].load(Ordering::Acquire);
        u32::try_from(count.max(0)).unwrap_or(u32::MAX)
    }

    /// The number of routes kept as the neighbor sent them.
    pub(super) fn received(&self, family: Family) -> u64 {
        let count = self.received[family.index()].load(Ordering::Acquire);
        u64::try_from(count).unwrap_or(0)
    }

    /// Adjusts the count of routes as they were sent.
    pub(super) fn count_received(&self, family: Family, before: usize, after: usize) {
        if before != after {
            self.received[family.index()].fetch_add(after as i64 - before as i64, Ordering::AcqRel);
        }
    }

    /// Notes that a route was not kept for lack of room.
    pub(super) fn note_received_refused(&self) {
        self.received_in_part.store(true, Ordering::Release);
    }

    /// Sets whether all routes of the session that begins will be kept, or that some of those now are not.
    pub(super) fn set_received_whole(&self, whole: bool) {
        self.received_in_part.store(!whole, Ordering::Release);
    }

    /// Whether all that the neighbor has sent is kept.
    pub(super) fn is_received_whole(&self) -> bool {
        !self.received_in_part.load(Ordering::Acquire)
    }

    /// The routes that the neighbor is sent, by family, as of the last count in its session.
    pub(super) fn sent(&self) -> Option<[u64; 2]> {
        let [ipv4, ipv6] = self.sent.each_ref().map(|count| u64::try_from(count.load(Ordering::Relaxed)));
        Some([ipv4.ok()?, ipv6.ok()?])
    }

    /// Sets what [`Self::sent`] returns.
    pub(super) fn set_sent(&self, counts: Option<[u64; 2]>) {
        for (family, sent) in self.sent.iter().enumerate() {
            let count = counts.and_then(|counts| i64::try_from(counts[family]).ok());
            sent.store(count.unwrap_or(-1), Ordering::Relaxed);
        }
    }

    /// Adjusts the count by the routes that one shard gained or lost.
    pub(super) fn count(&self, family: Family, before: usize, after: usize) {
        if before == after {
            return;
        }
        let more = after as i64 - before as i64;
        let was = self.paths[family.index()].fetch_add(more, Ordering::AcqRel);
        let passed = |at: &AtomicI64| (was + 1..=was + more).contains(&at.load(Ordering::Acquire));
        if self.watched[family.index()].iter().any(passed) {
            self.reached.store(true, Ordering::Release);
        }
    }

    /// Whether a count has passed a watched one since the last call. Shards add concurrently: the shard whose
    /// routes pass the mark sets the flag, and the count that is read after it is past the mark.
    pub(super) fn take_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire) && self.reached.swap(false, Ordering::AcqRel)
    }
}

impl PeerState {
    /// The session, and the importer for its routes.
    pub(super) fn receiving(&mut self, interner: &Arc<Interner>) -> (&mut Session, &mut Importer) {
        let importer = self.importer.get_or_insert_with(|| Box::new(Importer::new(interner.clone())));
        (&mut self.session, importer)
    }

    /// Limits how far packets go, if only OPEN has shown that a dynamic neighbor is external.
    pub(super) fn limit_hops(&mut self, negotiated: &Negotiated) {
        if self.config.certain_kind().is_some() {
            return;
        }
        let [outgoing, incoming] = &mut self.links;
        let link = match negotiated.connection {
            Connection::Outgoing => outgoing,
            Connection::Incoming => incoming,
        };
        if let Some(link) = link {
            let remote_as = RemoteAs::One(negotiated.remote_as);
            let config = NeighborConfig { remote_as, ..NeighborConfig::clone(&self.config) };
            if let Err(error) = link.stream.apply(&config) {
                log::hops_not_limited(&config.name, &error);
            }
        }
    }

    pub(super) fn next_deadline_ms(&self) -> u64 {
        self.session.next_deadline().map_or(u64::MAX, |deadline| deadline.0)
    }

    /// The bytes to write before the connection closes: the NOTIFICATION and what precedes it. Empty if a message
    /// to the neighbor is half written.
    pub(super) fn last_words(&mut self, connection: Connection) -> Vec<u8> {
        let sending = self.sending.as_ref().filter(|sending| sending.connection == connection);
        let within = sending.is_some_and(|sending| sending.member.inside_message());
        match &mut self.links[connection as usize] {
            Some(link) if !within => {
                self.session.poll_output(connection, &mut link.control);
                link.control.split_off(std::mem::take(&mut link.control_written))
            }
            _ => Vec::new(),
        }
    }

    /// Writes what the sockets take. Returns whether the group has to act.
    fn write(&mut self, now: Millis) -> bool {
        let mut progress = false;
        for connection in Connection::ALL {
            let Some(link) = &mut self.links[connection as usize] else { continue };
            if link.connecting {
                continue;
            }
            self.session.poll_output(connection, &mut link.control);
            let sending = self.sending.as_mut().filter(|sending| sending.connection == connection);
            let moves = sending.as_ref().is_some_and(|sending| sending.moves);
            match link.write(sending.map(|sending| &mut sending.member), moves) {
                Ok(written) => {
                    self.written_bytes += written as u64;
                    progress |= written > 0;
                    if written > 0 {
                        self.session.handle_written(connection, now);
                    }
                    self.session.note_pending_output(connection, link.full, now);
                    if let Some(sending) = self.sending.as_mut().filter(|each| each.connection == connection)
                    {
                        self.session.note_updates_sent(sending.member.take_updates_written());
                    }
                }
                // Reading will fail too, and the session learns of the failure there.
                Err(_) => link.full = true,
            }
        }
        let Some(sending) = &self.sending else { return false };
        let Sending { group, member, wants, moves, .. } = &**sending;
        if *moves {
            return !member.has_gathered();
        }
        if sending.has_next_dump() {
            if wants.is_empty() {
                log::lagging(&self.config.name);
            }
            group.wants.store(true, Ordering::Release);
            return true;
        }
        if progress && member.has_dump() {
            group.dumps_can_go_on.store(true, Ordering::Release);
            return true;
        }
        false
    }
}

impl Link {
    /// Writes messages of the session and of its group until none is left, the socket is full, or the turn ends. A
    /// message that was begun is finished before anything else.
    fn write(&mut self, mut member: Option<&mut Member>, moves: bool) -> io::Result<usize> {
        let mut total = 0;
        while !self.full && total < WRITE_TURN_BYTES {
            let within = member.as_ref().is_some_and(|member| member.inside_message());
            let ready = match &mut member {
                // Before a move, what was gathered is still written: the move begins at the member's position.
                Some(member) if !moves || member.has_gathered() => member.gather(GATHER_BYTES_MAX),
                _ => 0,
            };
            let control = if within { &[][..] } else { &self.control[self.control_written..] };
            if control.len() + ready == 0 {
                break;
            }
            let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(64);
            if !control.is_empty() {
                slices.push(IoSlice::new(control));
            }
            slices.extend(member.iter().flat_map(|member| member.slices()).take(SLICES_MAX - 1));
            let asked: usize = slices.iter().map(|slice| slice.len()).sum();
            let written = match uninterrupted(|| self.stream.write_vectored(&slices)) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.full = true;
                    break;
                }
                Err(error) => return Err(error),
            };
            total += written;
            let of_control = written.min(control.len());
            self.control_written += of_control;
            if self.control_written == self.control.len() {
                self.control.clear();
                self.control_written = 0;
            }
            if let Some(member) = member.as_deref_mut() {
                member.advance(written - of_control);
            }
            // A short write of a non-blocking socket means that it is full; another attempt would only confirm
            // that.
            self.full = written < asked;
        }
        Ok(total)
    }
}
