//! A neighbor's place: its session, its connections, and what waits to be written to it.
//!
//! Everything that changes is behind one lock, which the thread that works for the neighbor holds for one turn. The
//! atomics beside it say whether a turn is worth while, so that nobody takes the lock in vain.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use thalweg_bgp::export::{DumpKind, GATHER_BYTES_MAX, Member, SLICES_MAX};
use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::session::{Connection, Importer, Negotiated, NeighborConfig, Session};
use thalweg_wire::bgp::Family;

use super::export_queue::GroupSlot;
use super::network::ByteStream;
use super::{lock, log};

/// Bytes taken from a socket in one turn. With what was left of the turn before, the longest message fits.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Bytes written to one neighbor before others have their turn.
const WRITE_TURN_BYTES: usize = 4 << 20;

/// A connection of a session.
pub(super) struct Link {
    pub(super) stream: Box<dyn ByteStream>,
    /// We began to connect and do not know yet.
    pub(super) connecting: bool,
    pub(super) registered: bool,
    /// The socket has taken all it can.
    pub(super) full: bool,
    /// The beginning of a message whose rest has not come, or what was read and is not processed yet.
    pub(super) unread: Vec<u8>,
    /// Messages of the session, before those of its group.
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

/// A session that is up, as far as sending goes.
pub(super) struct Sending {
    pub(super) connection: Connection,
    pub(super) group: Arc<GroupSlot>,
    pub(super) member: Member,
    /// Dumps it is to get, one after the other: at most one for a whole table and a refresh of each family.
    pub(super) wants: VecDeque<DumpKind>,
    /// It is to go to another group as soon as what was gathered for it is written.
    pub(super) moves: bool,
}

impl Sending {
    /// Notes a dump that it is to get.
    pub(super) fn want(&mut self, kind: DumpKind) {
        if !self.wants.contains(&kind) {
            self.wants.push_back(kind);
        }
        self.group.wants.store(true, Ordering::Release);
    }

    /// The dump to begin now: none while one is under way, which would be given up for it.
    pub(super) fn next_dump(&mut self) -> Option<DumpKind> {
        if self.member.has_dump() {
            return None;
        }
        self.wants.pop_front().or_else(|| self.member.needs())
    }

    /// Whether [`Self::next_dump`] has one.
    fn has_next_dump(&self) -> bool {
        !self.member.has_dump() && (!self.wants.is_empty() || self.member.needs().is_some())
    }
}

/// How many routes of a neighbor the shards have, by family. The count belongs to no thread: a session learns that
/// its neighbor is past a limit from the shard that applied the routes, not from the next thing the neighbor says.
#[derive(Default)]
pub(super) struct PathCounts {
    paths: [AtomicI64; 2],
    /// Counts at which the session has to look: where it warns, and the first one above the limit.
    watched: [[AtomicI64; 2]; 2],
    reached: AtomicBool,
}

/// What the lock guards.
pub(super) struct PeerState {
    pub(super) paths: Arc<PathCounts>,
    pub(super) session: Session,
    pub(super) config: Arc<NeighborConfig>,
    pub(super) importer: Importer,
    pub(super) links: [Option<Link>; 2],
    pub(super) negotiated: Option<Arc<Negotiated>>,
    pub(super) sending: Option<Sending>,
    pub(super) written_bytes: u64,
    /// Made for an address that a dynamic range covers; goes when the session goes.
    pub(super) dynamic: bool,
}

/// A neighbor's place.
pub(super) struct PeerSlot {
    pub(super) id: PeerId,
    state: Mutex<PeerState>,
    readable: AtomicBool,
    writable: AtomicBool,
    want_write: AtomicBool,
    /// When its timers want to run.
    pub(super) deadline_ms: AtomicU64,
    /// Raised when a session ends; see `shards`.
    pub(super) epoch: AtomicU32,
    /// Withdrawals of a session's end that have not been finished.
    withdrawals: AtomicU32,
    /// Routes of it in the RIB.
    pub(super) paths: Arc<PathCounts>,
    /// Nobody uses the place.
    pub(super) free: AtomicBool,
}

impl PeerSlot {
    pub(super) fn new(id: PeerId, state: PeerState) -> Self {
        let paths = state.paths.clone();
        Self {
            id,
            state: Mutex::new(state),
            readable: AtomicBool::new(false),
            writable: AtomicBool::new(false),
            want_write: AtomicBool::new(false),
            deadline_ms: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            withdrawals: AtomicU32::new(0),
            paths,
            free: AtomicBool::new(false),
        }
    }

    /// The state, for one turn. The caller calls [`Self::write`] after letting go of it.
    pub(super) fn lock(&self) -> MutexGuard<'_, PeerState> {
        lock(&self.state)
    }

    pub(super) fn note_ready(&self, readable: bool, writable: bool) {
        if readable {
            self.readable.store(true, Ordering::Release);
        }
        if writable {
            self.writable.store(true, Ordering::Release);
        }
    }

    /// Whether there may be something to read; asked once, then it has to become readable again or
    /// [`Self::note_ready`] has to be called.
    pub(super) fn take_readable(&self) -> bool {
        self.readable.swap(false, Ordering::AcqRel)
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

    /// Whether routes of an ended session are still being withdrawn. A new session waits for it.
    pub(super) fn is_withdrawing(&self) -> bool {
        self.withdrawals.load(Ordering::Acquire) > 0
    }

    /// Asks for a write, and does it unless another thread is at it: then that one does. Whether the group has
    /// something to do for it: a dump that it wants, or that waited for it.
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
    /// Counts from zero, watched for what the configuration says.
    pub(super) fn new(config: &NeighborConfig) -> Self {
        let counts = Self::default();
        counts.watch(config);
        counts
    }

    /// Watches for other limits.
    fn watch(&self, config: &NeighborConfig) {
        for (watched, limit) in self.watched.iter().zip(config.max_prefixes) {
            let at =
                limit.map_or([i64::MAX; 2], |limit| [limit.warns_at().into(), i64::from(limit.limit) + 1]);
            watched.iter().zip(at).for_each(|(watched, at)| watched.store(at, Ordering::Release));
        }
    }

    /// How many there are.
    pub(super) fn get(&self, family: Family) -> u32 {
        let count = self.paths[family.index()].load(Ordering::Acquire);
        u32::try_from(count.max(0)).unwrap_or(u32::MAX)
    }

    /// Notes how many of them a shard has, and had.
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

    /// Whether a count has come to where the session has to look; asked once. Shards add at the same time: the one
    /// whose routes pass the mark says so, and the next query sees a count that is past it.
    pub(super) fn take_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire) && self.reached.swap(false, Ordering::AcqRel)
    }
}

impl PeerState {
    /// Has the session look at how many routes there are.
    pub(super) fn note_prefix_counts(&mut self, now: Millis) {
        for family in Family::ALL {
            self.session.note_prefix_count(family, self.paths.get(family), now);
        }
    }

    pub(super) fn take_config(&mut self, config: &Arc<NeighborConfig>) {
        self.config = config.clone();
        self.paths.watch(config);
        self.session.set_config(config.clone());
        if self.negotiated.is_some() {
            self.importer.set_config(config);
        }
    }

    pub(super) fn next_deadline_ms(&self) -> u64 {
        self.session.next_deadline().map_or(u64::MAX, |deadline| deadline.0)
    }

    /// What is to be written before the connection goes: the NOTIFICATION and what comes before it. Nothing, if the
    /// neighbor is in the middle of a message.
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

    /// Writes what the sockets take; whether the group has something to do for it.
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
                // Reading will say the same, and with it the session learns of it.
                Err(_) => link.full = true,
            }
        }
        let Some(sending) = &self.sending else { return false };
        let Sending { group, member, wants, moves, .. } = sending;
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
    /// Writes messages of the session and of its group until there is nothing more, the socket is full, or the
    /// turn is over. A message that was begun is always finished before anything else.
    fn write(&mut self, mut member: Option<&mut Member>, moves: bool) -> io::Result<usize> {
        let mut total = 0;
        while !self.full && total < WRITE_TURN_BYTES {
            let within = member.as_ref().is_some_and(|member| member.inside_message());
            let ready = match &mut member {
                // What was gathered is written to its end even then: a move begins where the member stands.
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
            let written = match self.stream.write_vectored(&slices) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.full = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
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
            // A short write of a non-blocking socket means that it is full; the next one would only say so.
            self.full = written < asked;
        }
        Ok(total)
    }
}
