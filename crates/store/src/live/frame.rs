//! The protocol of the live view: a query line, then frames.
//!
//! ```text
//! question   "thalweg live 1 view FROM_NS TO_NS\n" or "thalweg live 1 follow\n"
//! frame      kind 1 | length 4, little-endian | that many bytes
//! ```
//!
//! Records are consecutive images ([`thalweg_flow::export::image`]).

use std::io::{self, Read, Write};

use thalweg_flow::export::{read_image, write_image};
use thalweg_flow::{Counters, FlowRecord};

/// The beginning of a query: the protocol and its version.
pub(super) const GREETING: &str = "thalweg live 1";
/// The most bytes of a query.
pub(super) const QUESTION_MAX: u64 = 256;
/// The target size of a sent frame; the last record may exceed it.
const FRAME_BYTES: usize = 128 << 10;
/// The most bytes of a received frame.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// In the last frame of an answer: the cache was not accessible.
pub(super) const CACHE_BUSY: u8 = 2;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records of the flow cache.
    Cached = 1,
    Pending,
    /// Notes of flows that arrived meanwhile: hash of the key, first and last nanosecond, eight bytes each.
    Noted,
    /// Names of files relative to the dataset, one per line.
    Files,
    /// The end of an answer: the number of records between cache and writer; whether there is a cache and
    /// whether it is complete (0, 1, or [`CACHE_BUSY`]).
    End,
    /// New records as they arrive.
    Followed,
    /// How many records a follower has missed since the last frame.
    Missed,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Cached, Self::Pending, Self::Noted, Self::Files, Self::End, Self::Followed, Self::Missed];
}

pub(super) struct Sender<W> {
    to: W,
    bytes: Vec<u8>,
}

impl<W: Write> Sender<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, bytes: Vec::with_capacity(FRAME_BYTES + 4096) }
    }

    pub(super) fn send(&mut self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut head = [kind as u8, 0, 0, 0, 0];
        head[1..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.to.write_all(&head)?;
        self.to.write_all(bytes)?;
        self.to.flush()
    }

    /// Sends items, as many per frame as fit.
    pub(super) fn send_all<T>(
        &mut self,
        kind: Kind,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(T, &mut Vec<u8>),
    ) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        for item in items {
            write(item, &mut bytes);
            if bytes.len() >= FRAME_BYTES {
                self.send(kind, &bytes)?;
                bytes.clear();
            }
        }
        if !bytes.is_empty() {
            self.send(kind, &bytes)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn send_records<'a>(
        &mut self,
        kind: Kind,
        records: impl IntoIterator<Item = &'a FlowRecord>,
    ) -> io::Result<()> {
        self.send_all(kind, records, write_image)
    }
}

/// Reads a frame into `bytes`.
pub(super) fn receive(from: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<Kind> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    let kind = Kind::ALL
        .into_iter()
        .find(|known| *known as u8 == kind)
        .ok_or_else(|| bad("a frame of no known kind"))?;
    if length > FRAME_BYTES_MAX {
        return Err(bad("a frame that is too long"));
    }
    bytes.resize(length, 0);
    from.read_exact(bytes)?;
    Ok(kind)
}

/// Calls `take` for each record of a frame.
pub(super) fn records(mut bytes: &[u8], mut take: impl FnMut(FlowRecord)) -> io::Result<()> {
    while !bytes.is_empty() {
        let (record, rest) = read_image(bytes).map_err(|error| bad(&error.to_string()))?;
        take(record);
        bytes = rest;
    }
    Ok(())
}

/// The received data is invalid.
pub(super) fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The key and time span of a flow that arrived in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Note {
    key_hash: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Note {
    const BYTES: usize = 24;

    /// The note of a record. Client and server compute the same.
    pub(crate) fn of(record: &FlowRecord) -> Self {
        use std::hash::BuildHasher;
        // The hash must be the same in every process, unlike those of tables. An attacker who constructs keys
        // with equal hashes can only hide his own flows from a view while it is answered.
        let hasher = foldhash::quality::FixedState::with_seed(0x7468_616c_7765_6720);
        let key_hash = hasher.hash_one(record.key);
        let Counters { first_ns, last_ns, .. } = record.counters;
        Self { key_hash, first_ns, last_ns }
    }

    /// Whether this note's record contains everything that `shown` contains.
    fn covers(&self, shown: &Self) -> bool {
        self.key_hash == shown.key_hash && self.first_ns <= shown.first_ns && self.last_ns >= shown.last_ns
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        for value in [self.key_hash, self.first_ns, self.last_ns] {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(super) fn read_all(bytes: &[u8], notes: &mut Vec<Self>) -> io::Result<()> {
        let (all, rest) = bytes.as_chunks::<{ Self::BYTES }>();
        if !rest.is_empty() {
            return Err(bad("a part of a note"));
        }
        notes.extend(all.iter().map(|bytes| {
            let (words, _) = bytes.as_chunks::<8>();
            let word = |place: usize| words.get(place).map_or(0, |word| u64::from_le_bytes(*word));
            Self { key_hash: word(0), first_ns: word(1), last_ns: word(2) }
        }));
        Ok(())
    }
}

/// Sorted notes for look-ups.
pub(super) struct Notes(Vec<Note>);

impl Notes {
    pub(super) fn new(mut notes: Vec<Note>) -> Self {
        notes.sort_unstable();
        Self(notes)
    }

    /// Whether a flow that the cache showed arrived in a record meanwhile.
    pub(super) fn has(&self, shown: &FlowRecord) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let shown = Note::of(shown);
        let start = self.0.partition_point(|note| note.key_hash < shown.key_hash);
        self.0[start..]
            .iter()
            .take_while(|note| note.key_hash == shown.key_hash)
            .any(|note| note.covers(&shown))
    }
}
