//! A neighbor's place in the log of its group, which decides what its socket gets next.
//!
//! [`Member::gather`] collects references to whole messages; [`Member::advance`] removes what the socket took,
//! which may end inside a message. Gathered messages are always written to their end, whatever happens to the log.
//! So no message is cut, and a dump begins between messages.
//!
//! A dump precedes the log: the place in the log stays where it was when the dump began, so everything that has
//! changed since the RIB was read follows, or is repeated, after the dump. Changes are announcements of whole
//! routes or withdrawals, so repeating older ones ends in the right state.
//!
//! Memory: a member holds at most [`GATHER_BYTES_MAX`] bytes and one block.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use thalweg_wire::bgp::MessageKind;

use super::dump::DumpKind;
use super::log::{Block, Found, GroupLog, Versions};
use crate::peer::PeerId;

/// The most that is gathered at once; more would only keep blocks from being dropped.
pub const GATHER_BYTES_MAX: usize = 256 << 10;

/// The most pieces that are gathered at once: the limit of `writev` (IOV_MAX).
pub const SLICES_MAX: usize = 1024;

/// No place: the member needs a dump, whatever it has read.
const LAGGING: u64 = u64::MAX;

/// The progress of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    UpToDate,
    /// There is something to write or to check.
    Pending,
    /// It, or its dump, fell behind: it needs the dump that [`Member::needs`] names.
    Lagging,
}

/// A session's membership in its update group; lives with the writer of the session's socket.
pub struct Member {
    peer: PeerId,
    log: Cursor,
    dump: Option<(Cursor, DumpKind)>,
    needs: Option<DumpKind>,
    gathered: VecDeque<Piece>,
    /// UPDATEs in pieces that were written.
    updates_written: u64,
}

/// What is still to be written when a member leaves for another group.
pub(super) struct Gathered(VecDeque<Piece>);

/// Bytes of a block to write.
struct Piece {
    block: Arc<Block>,
    start: u32,
    end: u32,
    /// The number of UPDATEs that end in the piece.
    updates: u32,
}

struct Cursor {
    log: Arc<GroupLog>,
    place: u64,
    /// The place that the log knows, or [`LAGGING`].
    told: u64,
    held: VecDeque<Arc<Block>>,
    /// The position in the first held block: the next segment and where it begins.
    segment: usize,
    start: u32,
    /// UPDATEs of the segment before `start`.
    updates: u32,
}

impl Member {
    /// Makes a follower at the end of the log. Use [`super::UpdateGroup::join`].
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

    /// The neighbor of this member.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Starts a dump that precedes the log. It replaces a dump in progress.
    pub(super) fn attach(&mut self, log: Arc<GroupLog>, kind: DumpKind) {
        if let Some((old, _)) = self.dump.take() {
            old.log.unfollow(self.peer);
        }
        log.follow(self.peer);
        self.dump = Some((Cursor::at_end(log), kind));
        self.needs = None;
    }

    /// What the member has, for another group: the versions, and the dump that was in progress or needed.
    pub(super) fn has(&self) -> (Arc<Versions>, Option<DumpKind>) {
        let dump = self.dump.as_ref().map(|(_, kind)| kind).or(self.needs.as_ref()).cloned();
        let since = dump.as_ref().and_then(DumpKind::since);
        (since.unwrap_or_else(|| self.log.log.has(self.peer, self.log.place)), dump)
    }

    /// Takes what was gathered and not written; the other group's member writes it, so that no message is cut.
    pub(super) fn hand_over(&mut self) -> Gathered {
        Gathered(std::mem::take(&mut self.gathered))
    }

    /// Continues where a member of another group stopped, with this dump first.
    pub(super) fn migrate_state(&mut self, gathered: Gathered, needs: DumpKind) {
        self.gathered = gathered.0;
        self.hold_floor(&needs);
        self.needs = Some(needs);
    }

    /// Moves to the end of the log: the dump contains what came before.
    pub(super) fn skip_to_end(&mut self) {
        let log = self.log.log.clone();
        log.follow(self.peer);
        self.log = Cursor::at_end(log);
    }

    /// Gathers more unless something gathered is left; returns how many bytes are ready.
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

    /// The gathered and unwritten bytes, in order; at most [`SLICES_MAX`] pieces.
    pub fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        self.gathered.iter().map(|piece| IoSlice::new(piece.bytes()))
    }

    /// Removes the gathered bytes that the socket took.
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

    /// UPDATEs written since the last call.
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

    /// Whether gathered bytes are not written yet.
    pub fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// The member's progress through its dump or log.
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

    /// The dump that it needs, if it is lagging. While a dump is in progress it needs no other; if it meanwhile
    /// falls behind in the log, it reports that after the dump.
    pub fn needs(&self) -> Option<DumpKind> {
        if self.dump.is_some() {
            return None;
        }
        self.needs.clone().or_else(|| self.lagging())
    }

    fn lagging(&self) -> Option<DumpKind> {
        if self.log.is_told_all() {
            return None;
        }
        self.log.log.lag(self.peer).map(|since| DumpKind::CatchUp { since })
    }

    /// Whether a dump is in progress for the member.
    pub fn has_dump(&self) -> bool {
        self.dump.is_some()
    }

    /// Makes shards keep the tombstones that the member needs while it waits for the dump to begin again.
    fn hold_floor(&mut self, kind: &DumpKind) {
        if let Some(since) = kind.since() {
            self.log.log.fall_behind(self.peer, since);
            // It is lagging wherever it has read to.
            self.log.told = LAGGING;
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

/// The length of the message at `at`, at least a header's, so that a walk always advances.
fn message_length(bytes: &[u8], at: usize) -> usize {
    let field = bytes.get(at + 16..at + 18).unwrap_or(&[0, 0]);
    usize::from(u16::from_be_bytes([field[0], field[1]])).max(19)
}

impl Cursor {
    fn at_end(log: Arc<GroupLog>) -> Self {
        let place = log.end();
        Self { log, place, told: place, held: VecDeque::new(), segment: 0, start: 0, updates: 0 }
    }

    /// Whether everything in the log was read and the log knows, which needs no lock to see. Then it is not lagging.
    fn is_told_all(&self) -> bool {
        self.held.is_empty() && self.told == self.place && self.log.ends_at(self.place)
    }

    fn is_at_end(&self) -> bool {
        self.held.is_empty() && self.place == self.log.end()
    }

    /// Collects about `bytes_max` bytes for this peer.
    fn gather(&mut self, peer: PeerId, bytes_max: usize, out: &mut VecDeque<Piece>) -> Found {
        let mut bytes = 0;
        if self.is_told_all() {
            return Found::Nothing;
        }
        loop {
            let found = self.log.read(peer, self.place, &mut self.held, bytes_max);
            if !matches!(found, Found::Lagging) {
                self.told = self.place;
            }
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
                        // A long segment is written in parts that end with a message.
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

/// The end of the last message that begins within `bytes_max` of `start`; if that is not `end`, also the number of
/// UPDATEs before it.
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
