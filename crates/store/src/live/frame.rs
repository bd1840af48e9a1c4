//! What goes over the socket: a line that asks, then frames.
//!
//! ```text
//! question   "thalweg live 1 view FROM_NS TO_NS\n" or "thalweg live 1 follow\n"
//! frame      kind 1 | length 4, little-endian | so many bytes
//! ```
//!
//! Records are images ([`thalweg_flow::export::image`]), one after another.

use std::io::{self, Read, Write};

use thalweg_flow::export::{read_image, write_image};
use thalweg_flow::{Counters, FlowRecord};

/// What a question begins with: the protocol and its version.
pub(super) const GREETING: &str = "thalweg live 1";
/// Bytes of a question.
pub(super) const QUESTION_MAX: u64 = 256;
/// Bytes of a frame that is sent; the last record may go beyond it.
const FRAME_BYTES: usize = 128 << 10;
/// Bytes of a frame that is taken.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// In the end of an answer: the cache could not be looked at.
pub(super) const CACHE_BUSY: u8 = 2;

/// What a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records of the flow cache.
    Cached = 1,
    /// Records that are pending.
    Pending,
    /// Notes of flows that came in meanwhile: hash of the key, first and last nanosecond, eight bytes each.
    Noted,
    /// Names of files, relative to the dataset, one a line.
    Files,
    /// The end of an answer: how many records are on their way still; whether there is a cache, and whether it is whole (0, 1,
    /// or [`CACHE_BUSY`]).
    End,
    /// Records as they come in.
    Followed,
    /// How many records somebody who follows has missed since the last frame.
    Missed,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Cached, Self::Pending, Self::Noted, Self::Files, Self::End, Self::Followed, Self::Missed];
}

/// Writes frames.
pub(super) struct Sender<W> {
    to: W,
    bytes: Vec<u8>,
}

impl<W: Write> Sender<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, bytes: Vec::with_capacity(FRAME_BYTES + 4096) }
    }

    /// Sends a frame.
    pub(super) fn send(&mut self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut head = [kind as u8, 0, 0, 0, 0];
        head[1..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.to.write_all(&head)?;
        self.to.write_all(bytes)?;
        self.to.flush()
    }

    /// Sends items, as many to a frame as there is room for.
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

    /// Sends records.
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

/// Shows the records in a frame.
pub(super) fn records(mut bytes: &[u8], mut take: impl FnMut(FlowRecord)) -> io::Result<()> {
    while !bytes.is_empty() {
        let (record, rest) = read_image(bytes).map_err(|error| bad(&error.to_string()))?;
        take(record);
        bytes = rest;
    }
    Ok(())
}

/// What is received makes no sense.
pub(super) fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A flow that came in with a record: which, and from when to when the record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Note {
    key_hash: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Note {
    const BYTES: usize = 24;

    /// The note of a record. Both sides make the same.
    pub(crate) fn of(record: &FlowRecord) -> Self {
        use std::hash::BuildHasher;
        // The same in every process, which the seeds of tables are not. An attacker who forges keys of the same hash can make flows
        // of his own vanish from a view for as long as it takes to answer.
        let hasher = foldhash::quality::FixedState::with_seed(0x7468_616c_7765_6720);
        let key_hash = hasher.hash_one(record.key);
        let Counters { first_ns, last_ns, .. } = record.counters;
        Self { key_hash, first_ns, last_ns }
    }

    /// Whether a record of the same flow, of which this note is, says all that `shown` says.
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

/// Notes to look into.
pub(super) struct Notes(Vec<Note>);

impl Notes {
    pub(super) fn new(mut notes: Vec<Note>) -> Self {
        notes.sort_unstable();
        Self(notes)
    }

    /// Whether a flow that the cache showed came in with a record meanwhile.
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
