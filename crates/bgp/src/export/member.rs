//! A neighbor's place in the log of its group: what goes into its socket next.
//!
//! [`Member::gather`] collects references to whole messages, [`Member::advance`] takes away what the socket took,
//! which may end inside a message. What was gathered is always written to its end, whatever happens to the log
//! meanwhile: so a message is never cut, and a dump begins between messages.
//!
//! A dump goes before the log: the log's place stays where it was when the dump began, so that everything that
//! changed since the RIB was read comes (again) after it. Changes are announcements of whole routes or
//! withdrawals, so repeating older ones ends in the right state.
//!
//! Memory: a member holds on to at most [`GATHER_BYTES_MAX`] bytes and one block.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use thalweg_wire::bgp::MessageKind;

use super::dump::DumpKind;
use super::log::{Block, Found, GroupLog, Lag};
use crate::peer::PeerId;

/// The most that is gathered at once; more would only keep blocks from being dropped.
pub const GATHER_BYTES_MAX: usize = 256 << 10;

/// The most pieces that are gathered at once: what one `writev` takes (IOV_MAX).
pub const SLICES_MAX: usize = 1024;

/// How a member is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has everything.
    UpToDate,
    /// There is something to write, or to look at.
    Pending,
    /// It fell behind (or its dump did): it needs the dump that [`Member::needs`] names.
    Lagging,
}

/// One session in its update group; lives with what writes to the session's socket.
pub struct Member {
    peer: PeerId,
    log: Cursor,
    dump: Option<(Cursor, DumpKind)>,
    needs: Option<DumpKind>,
    gathered: VecDeque<Piece>,
    /// UPDATEs of pieces that were written.
    updates_written: u64,
}

/// What is still to be written when a member leaves for another group.
pub(super) struct Gathered(VecDeque<Piece>);

/// Bytes of a block that go out.
struct Piece {
    block: Arc<Block>,
    start: u32,
    end: u32,
    /// UPDATEs that end in it.
    updates: u32,
}

struct Cursor {
    log: Arc<GroupLog>,
    place: u64,
    held: VecDeque<Arc<Block>>,
    /// Place in the first held block: its next segment and where that begins.
    segment: usize,
    start: u32,
    /// UPDATEs of the segment before `start`.
    updates: u32,
}

impl Member {
    /// A follower from now on. Use [`super::UpdateGroup::join`].
    pub(super) fn new(peer: PeerId, log: Arc<GroupLog>) -> Self {
        log.follow(peer);
        Self {
            peer,
            log: Cursor::at_end(log),
            dump: None,
            needs: None,
            gathered: VecDeque::new(),
            updates_written: 0,
        }
    }

    /// Whose place this is.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// A dump goes out before the log goes on. A dump that was going on is given up for it.
    pub(super) fn attach(&mut self, log: Arc<GroupLog>, kind: DumpKind) {
        if let Some((old, _)) = self.dump.take() {
            old.log.unfollow(self.peer);
        }
        log.follow(self.peer);
        self.dump = Some((Cursor::at_end(log), kind));
        self.needs = None;
    }

    /// What it has, for another group: up to which versions everything, whether perhaps by an old view, and the
    /// dump that was under way or needed.
    pub(super) fn has(&self) -> (Lag, Option<DumpKind>) {
        let mut lag = self.log.log.has(self.peer, self.log.place);
        let dump = self.dump.as_ref().map(|(_, kind)| kind).or(self.needs.as_ref()).cloned();
        if let Some(since) = dump.as_ref().and_then(DumpKind::since) {
            lag.since = since;
        }
        lag.by_old_view |= matches!(dump, Some(DumpKind::Replace { .. }));
        (lag, dump)
    }

    /// What was gathered and not yet written goes out by the other group's member, so that no message is cut.
    pub(super) fn hand_over(&mut self) -> Gathered {
        Gathered(std::mem::take(&mut self.gathered))
    }

    /// Goes on where a member of another group stopped, with this dump first.
    pub(super) fn migrate_state(&mut self, gathered: Gathered, needs: DumpKind) {
        self.gathered = gathered.0;
        self.hold_floor(&needs);
        self.needs = Some(needs);
    }

    /// The log goes on from its end: what came before is in the dump.
    pub(super) fn skip_to_end(&mut self) {
        let log = self.log.log.clone();
        log.follow(self.peer);
        self.log = Cursor::at_end(log);
    }

    /// Looks for more to write, unless something gathered is left; how many bytes are ready then.
    pub fn gather(&mut self, bytes_max: usize) -> usize {
        let bytes_max = bytes_max.clamp(1, GATHER_BYTES_MAX);
        if self.gathered.is_empty() && self.needs.is_none() {
            if let Some((cursor, _)) = &mut self.dump {
                let found = cursor.gather(self.peer, bytes_max, &mut self.gathered);
                if matches!(found, Found::Closed | Found::Lagging)
                    && let Some((cursor, kind)) = self.dump.take()
                {
                    cursor.log.unfollow(self.peer);
                    if matches!(found, Found::Lagging) {
                        let kind = kind.again();
                        self.hold_floor(&kind);
                        self.needs = Some(kind);
                    }
                }
            }
            if self.dump.is_none() && self.needs.is_none() && self.gathered.is_empty() {
                let found = self.log.gather(self.peer, bytes_max, &mut self.gathered);
                if matches!(found, Found::Lagging) {
                    self.needs = self.lagging();
                }
            }
        }
        self.gathered.iter().map(Piece::length).sum()
    }

    /// What was gathered and not yet written, in order; at most [`SLICES_MAX`] pieces.
    pub fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        self.gathered.iter().map(|piece| IoSlice::new(piece.bytes()))
    }

    /// The socket took this many of the gathered bytes.
    pub fn advance(&mut self, written: usize) {
        let mut rest = written;
        while let Some(piece) = self.gathered.front_mut() {
            if rest < piece.length() {
                piece.start += rest as u32;
                return;
            }
            rest -= piece.length();
            self.updates_written += u64::from(piece.updates);
            self.gathered.pop_front();
        }
    }

    /// UPDATEs written since this was last asked.
    pub fn take_updates_written(&mut self) -> u64 {
        std::mem::take(&mut self.updates_written)
    }

    /// Whether the socket took only a part of a message; nothing else may be written to it now.
    pub fn inside_message(&self) -> bool {
        let Some(piece) = self.gathered.front() else { return false };
        let segments = piece.block.segments().iter().map(|segment| segment.end);
        let mut start = segments.take_while(|&end| end <= piece.start).last().unwrap_or(0);
        while start < piece.start {
            start += message_length(piece.block.bytes(), start as usize) as u32;
        }
        start != piece.start
    }

    /// Whether something was gathered that is not written yet.
    pub fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// How it is doing.
    pub fn state(&self) -> MemberState {
        if self.needs.is_some() {
            return MemberState::Lagging;
        }
        if self.gathered.is_empty() && self.dump.is_none() && self.log.is_at_end() {
            return match self.lagging() {
                Some(_) => MemberState::Lagging,
                None => MemberState::UpToDate,
            };
        }
        MemberState::Pending
    }

    /// Which dump it needs, if it is lagging. While a dump is under way it needs no other: if it fell behind in the
    /// log meanwhile, that is said when the dump is over.
    pub fn needs(&self) -> Option<DumpKind> {
        if self.dump.is_some() {
            return None;
        }
        self.needs.clone().or_else(|| self.lagging())
    }

    fn lagging(&self) -> Option<DumpKind> {
        let lag = self.log.log.lag(self.peer)?;
        Some(match lag.by_old_view {
            true => DumpKind::replace_all(lag.since),
            false => DumpKind::CatchUp { since: lag.since },
        })
    }

    /// Whether a dump is under way to it.
    pub fn has_dump(&self) -> bool {
        self.dump.is_some()
    }

    /// While it waits for the dump to begin again, shards keep the tombstones it needs.
    fn hold_floor(&self, kind: &DumpKind) {
        if let Some(since) = kind.since() {
            self.log.log.fall_behind(self.peer, since);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some((cursor, _)) = &self.dump {
            cursor.log.unfollow(self.peer);
        }
        self.log.log.unfollow(self.peer);
    }
}

impl Piece {
    fn length(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn bytes(&self) -> &[u8] {
        self.block.bytes().get(self.start as usize..self.end as usize).unwrap_or(&[])
    }
}

/// Length of the message that begins there; at least a header's, so that a walk always gets on.
fn message_length(bytes: &[u8], at: usize) -> usize {
    let field = bytes.get(at + 16..at + 18).unwrap_or(&[0, 0]);
    usize::from(u16::from_be_bytes([field[0], field[1]])).max(19)
}

impl Cursor {
    fn at_end(log: Arc<GroupLog>) -> Self {
        let place = log.end();
        Self { log, place, held: VecDeque::new(), segment: 0, start: 0, updates: 0 }
    }

    fn is_at_end(&self) -> bool {
        self.held.is_empty() && self.place == self.log.end()
    }

    /// Collects what is for this peer, about `bytes_max` bytes of it.
    fn gather(&mut self, peer: PeerId, bytes_max: usize, out: &mut VecDeque<Piece>) -> Found {
        let mut bytes = 0;
        loop {
            let found = self.log.read(peer, self.place, &mut self.held, bytes_max);
            if !matches!(found, Found::Blocks) {
                self.held.clear();
                (self.segment, self.start, self.updates) = (0, 0, 0);
                return if out.is_empty() { found } else { Found::Blocks };
            }
            while let Some(block) = self.held.front() {
                while let Some(segment) = block.segments().get(self.segment) {
                    if bytes >= bytes_max || out.len() >= SLICES_MAX {
                        return Found::Blocks;
                    }
                    let (start, end) = (self.start, segment.end);
                    if segment.audience.includes(peer) {
                        // A long segment goes out in parts that end with a message.
                        let (end, part) = part_end(block.bytes(), start, end, bytes_max - bytes);
                        bytes += (end - start) as usize;
                        let whole = end == segment.end;
                        let updates = if whole { segment.updates - self.updates } else { part };
                        out.push_back(Piece { block: block.clone(), start, end, updates });
                        (self.start, self.updates) = (end, self.updates + updates);
                        if !whole {
                            return Found::Blocks;
                        }
                    }
                    (self.start, self.updates) = (end, 0);
                    self.segment += 1;
                }
                self.held.pop_front();
                self.place += 1;
                (self.segment, self.start, self.updates) = (0, 0, 0);
            }
        }
    }
}

/// The end of the last message that begins within `bytes_max` of `start`; where that is not `end`, how many UPDATEs
/// come before it.
fn part_end(bytes: &[u8], start: u32, end: u32, bytes_max: usize) -> (u32, u32) {
    if (end - start) as usize <= bytes_max {
        return (end, 0);
    }
    let (mut at, mut updates) = (start as usize, 0);
    while at < end as usize && at - (start as usize) < bytes_max {
        updates += u32::from(bytes.get(at + 18) == Some(&(MessageKind::Update as u8)));
        at += message_length(bytes, at);
    }
    ((at as u32).min(end), updates)
}
