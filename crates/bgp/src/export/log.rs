//! The log of a group: encoded messages that each member reads at its own pace.
//!
//! ```text
//!   base                                            base + len
//!    | block | block | block | block |  <- push        position "end"
//!    followers:  2       0       1       |  at_end: 7
//! ```
//!
//! Blocks are immutable once pushed. Each counts the followers whose place it is. Leading blocks with no follower
//! at or before them are dropped at once, so with readers that keep up the log is empty. When it holds more than
//! `bytes_max`, the front is dropped anyway and its followers are *lagging*: the log remembers up to which versions
//! of each shard they had everything. From there they catch up.
//!
//! Memory: `bytes_max`, one block, and what a member may hold ([`super::member`]).

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::audience::Audience;
use crate::peer::PeerId;
use crate::route::SHARDS;

/// The version of each shard, by family.
pub type Versions = [[u32; SHARDS]; 2];

/// Whether version `a` is later than `b`. Versions wrap; two that are compared are less than 2^31 changes apart.
#[inline]
pub fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// The earlier of both versions for each shard.
pub fn earliest(a: &Versions, b: &Versions) -> Versions {
    let mut result = *a;
    for (row, other) in result.iter_mut().zip(b) {
        for (version, &other) in row.iter_mut().zip(other) {
            if is_later(*version, other) {
                *version = other;
            }
        }
    }
    result
}

/// A run of whole messages with one audience.
#[derive(Clone, Debug)]
pub struct Segment {
    pub updates: u32,
    /// The end offset in the block; a segment begins where the previous one ends.
    pub end: u32,
    pub audience: Audience,
}

/// Encoded messages, immutable.
#[derive(Debug)]
pub struct Block {
    pub(super) bytes: Box<[u8]>,
    pub(super) segments: Box<[Segment]>,
    /// The versions up to which everything is in this block and those before it.
    pub(super) versions: Arc<Versions>,
}

impl Block {
    /// The encoded messages.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The segments, each with its audience.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Bytes of memory that the block takes.
    pub fn memory_bytes(&self) -> usize {
        const OVERHEAD: usize = 96;
        self.bytes.len() + self.segments.len() * size_of::<Segment>() + size_of::<Self>() + OVERHEAD
    }
}

/// The totals of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    pub blocks: u64,
    pub bytes: u64,
    /// How often a member fell behind the oldest block.
    pub lagging: u64,
    pub bytes_held: usize,
    pub bytes_held_max: usize,
}

/// The place of a follower.
#[derive(Clone, Debug)]
enum Place {
    /// Before the block with this number.
    At(u64),
    /// Behind the oldest block: it has everything up to these versions.
    Lagging(Arc<Versions>),
}

struct Kept {
    block: Arc<Block>,
    followers: u32,
}

struct Inner {
    blocks: VecDeque<Kept>,
    base: u64,
    at_end: u32,
    closed: bool,
    versions: Arc<Versions>,
    base_versions: Arc<Versions>,
    followers: HashMap<PeerId, Place, FixedState>,
    counters: LogCounters,
}

/// The end of a closed log: no block has this number.
const CLOSED: u64 = u64::MAX;

/// The log of a group or of a dump. Its lock is held to hand over references, never while bytes are copied.
pub struct GroupLog {
    bytes_max: usize,
    /// The number of the next block, or [`CLOSED`]: members look here whether there is something to read, which is
    /// seldom so, without the lock.
    end: AtomicU64,
    inner: Mutex<Inner>,
}

/// The result of reading the log.
pub(super) enum Found {
    /// Blocks from its place on were added, with this many bytes left after them.
    Blocks,
    Nothing,
    /// The follower has read everything, and nothing will follow.
    Closed,
    /// The blocks it needs are gone, or it is no follower.
    Lagging,
}

impl GroupLog {
    /// Creates a log that holds at most this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let versions = Arc::new(Versions::default());
        Self {
            bytes_max,
            end: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                blocks: VecDeque::new(),
                base: 0,
                at_end: 0,
                closed: false,
                base_versions: versions.clone(),
                versions,
                followers: HashMap::with_hasher(FixedState::default()),
                counters: LogCounters::default(),
            }),
        }
    }

    /// The totals so far and the memory held.
    pub fn counters(&self) -> LogCounters {
        self.inner.lock().counters
    }

    /// The versions up to which everything is or was in the log.
    pub fn versions(&self) -> Arc<Versions> {
        self.inner.lock().versions.clone()
    }

    /// The earliest versions that a follower may have to catch up from: shards keep tombstones that are later.
    /// `None` without followers.
    pub fn floor(&self) -> Option<Versions> {
        let inner = self.inner.lock();
        let mut floor: Option<Versions> = None;
        if inner.followers.is_empty() {
            return None;
        }
        for place in inner.followers.values() {
            if let Place::Lagging(since) = place {
                floor = Some(floor.map_or(**since, |floor| earliest(&floor, since)));
            }
        }
        Some(floor.map_or(*inner.base_versions, |floor| earliest(&floor, &inner.base_versions)))
    }

    /// The bytes that can be pushed before followers fall behind.
    pub fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.inner.lock().counters.bytes_held)
    }

    /// Whether some follower has read everything.
    pub(super) fn someone_waits(&self) -> bool {
        self.inner.lock().at_end > 0
    }

    pub(super) fn follower_count(&self) -> usize {
        self.inner.lock().followers.len()
    }

    /// Adds a follower at the end, or moves it there.
    pub(super) fn follow(&self, peer: PeerId) {
        let mut inner = self.inner.lock();
        inner.leave(peer);
        let end = inner.end();
        inner.at_end += 1;
        inner.followers.insert(peer, Place::At(end));
        inner.trim();
    }

    pub(super) fn unfollow(&self, peer: PeerId) {
        let mut inner = self.inner.lock();
        inner.leave(peer);
        inner.trim();
    }

    /// Adds a block and drops old ones if necessary. Blocks that no follower will read are not kept.
    pub(super) fn push(&self, block: Block) {
        let mut inner = self.inner.lock();
        let bytes = block.memory_bytes();
        inner.counters.blocks += 1;
        inner.counters.bytes += block.bytes.len() as u64;
        inner.counters.bytes_held += bytes;
        inner.versions = block.versions.clone();
        let followers = std::mem::take(&mut inner.at_end);
        inner.blocks.push_back(Kept { block: Arc::new(block), followers });
        self.end.store(inner.end(), Ordering::Release);
        inner.trim();
        while inner.counters.bytes_held > self.bytes_max && !inner.blocks.is_empty() {
            inner.drop_front();
            inner.trim();
        }
        inner.counters.bytes_held_max = inner.counters.bytes_held_max.max(inner.counters.bytes_held);
    }

    /// Records that everything up to these versions is in the log, although they had nothing to send.
    pub(super) fn pass(&self, versions: Arc<Versions>) {
        let mut inner = self.inner.lock();
        inner.versions = versions;
        inner.trim();
    }

    pub(super) fn close(&self) {
        self.inner.lock().closed = true;
        self.end.store(CLOSED, Ordering::Release);
    }

    /// The versions up to which the follower has everything; `None` unless it is lagging.
    pub(super) fn lag(&self, peer: PeerId) -> Option<Arc<Versions>> {
        match self.inner.lock().followers.get(&peer)? {
            Place::At(_) => None,
            Place::Lagging(since) => Some(since.clone()),
        }
    }

    /// The versions up to which a follower has everything that has read everything before block `place`.
    pub(super) fn has(&self, peer: PeerId, place: u64) -> Arc<Versions> {
        let inner = self.inner.lock();
        if let Some(Place::Lagging(since)) = inner.followers.get(&peer) {
            return since.clone();
        }
        match place.checked_sub(inner.base) {
            None | Some(0) if !inner.blocks.is_empty() => inner.base_versions.clone(),
            Some(more @ 1..) => match inner.blocks.get(more as usize - 1) {
                Some(kept) if place < inner.end() => kept.block.versions.clone(),
                _ => inner.versions.clone(),
            },
            _ => inner.versions.clone(),
        }
    }

    /// Records that the follower has everything up to these versions only, whatever it read.
    pub(super) fn fall_behind(&self, peer: PeerId, since: Arc<Versions>) {
        let mut inner = self.inner.lock();
        inner.leave(peer);
        inner.followers.insert(peer, Place::Lagging(since));
        inner.counters.lagging += 1;
        inner.trim();
    }

    /// Reads for a follower that has read everything before block `place`. Adds the blocks from there on to `held`
    /// until they have at least `bytes_max` bytes of messages.
    pub(super) fn read(
        &self,
        peer: PeerId,
        place: u64,
        held: &mut VecDeque<Arc<Block>>,
        bytes_max: usize,
    ) -> Found {
        let mut inner = self.inner.lock();
        let Some(Place::At(known)) = inner.followers.get_mut(&peer) else { return Found::Lagging };
        let before = *known;
        if place > before {
            *known = place;
            inner.count_at(before, -1);
            inner.count_at(place, 1);
            inner.trim();
        }
        let first = (place + held.len() as u64).saturating_sub(inner.base) as usize;
        let mut bytes = held.iter().map(|block| block.bytes.len()).sum::<usize>();
        for kept in inner.blocks.iter().skip(first) {
            if bytes >= bytes_max {
                break;
            }
            bytes += kept.block.bytes.len();
            held.push_back(kept.block.clone());
        }
        match (held.is_empty(), inner.closed) {
            (false, _) => Found::Blocks,
            (true, false) => Found::Nothing,
            (true, true) => Found::Closed,
        }
    }

    /// Whether nothing follows the blocks before `place` so far, and something may still.
    pub(super) fn ends_at(&self, place: u64) -> bool {
        self.end.load(Ordering::Acquire) == place
    }

    /// The number that the next pushed block will have.
    pub(super) fn end(&self) -> u64 {
        self.inner.lock().end()
    }
}

impl Inner {
    fn end(&self) -> u64 {
        self.base + self.blocks.len() as u64
    }

    fn count_at(&mut self, place: u64, by: i32) {
        match self.blocks.get_mut(place.saturating_sub(self.base) as usize) {
            Some(kept) => kept.followers = kept.followers.saturating_add_signed(by),
            None => self.at_end = self.at_end.saturating_add_signed(by),
        }
    }

    fn leave(&mut self, peer: PeerId) {
        if let Some(Place::At(place)) = self.followers.remove(&peer) {
            self.count_at(place, -1);
        }
    }

    /// Drops the blocks that no follower will read.
    fn trim(&mut self) {
        while self.blocks.front().is_some_and(|kept| kept.followers == 0) {
            self.pop();
        }
        if self.blocks.is_empty() {
            self.base_versions = self.versions.clone();
        }
    }

    /// Drops the oldest block; its followers become lagging.
    fn drop_front(&mut self) {
        let (base, since) = (self.base, self.base_versions.clone());
        for place in self.followers.values_mut() {
            if matches!(place, Place::At(at) if *at == base) {
                *place = Place::Lagging(since.clone());
                self.counters.lagging += 1;
            }
        }
        self.pop();
    }

    fn pop(&mut self) {
        if let Some(kept) = self.blocks.pop_front() {
            self.base += 1;
            self.counters.bytes_held -= kept.block.memory_bytes();
            self.base_versions = kept.block.versions.clone();
        }
    }
}
