//! Finding the way again in a file with a torn record: a disk that was full, a process that died, two that wrote at once.
//! Lengths then lead into the middle of something else.
//!
//! A place is *plausible* as the beginning of a record if its header has a type and subtype that are known, a length that
//! a record can have and a time within [`TIME_S`] of the record before, and if what follows it is plausible too, or is
//! the end of the file. Bytes are looked at one by one from behind the beginning of what cannot be right.

use thalweg_wire::mrt::{HEADER_BYTES, RECORD_BYTES_MAX, RecordType};

use super::MrtReader;

/// Records of one file follow each other in time: a day is more than any of them covers at most collectors.
const TIME_S: u32 = 86_400;

/// The header of what may be a record.
#[derive(Clone, Copy)]
struct Header {
    time_s: u32,
    kind: RecordType,
    /// Bytes of the record, header and all.
    length: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f, g, h, i, j, k, l] = bytes.first_chunk::<HEADER_BYTES>()?;
        Some(Self {
            time_s: u32::from_be_bytes([a, b, c, d]),
            kind: RecordType { kind: u16::from_be_bytes([e, f]), subtype: u16::from_be_bytes([g, h]) },
            length: HEADER_BYTES + u32::from_be_bytes([i, j, k, l]) as usize,
        })
    }

    fn is_possible(self, after_s: Option<u32>) -> bool {
        self.kind.subtype_name().is_some()
            && self.length <= HEADER_BYTES + RECORD_BYTES_MAX
            && after_s.is_none_or(|after| after.abs_diff(self.time_s) <= TIME_S)
    }
}

/// What a look at the buffer showed.
enum Look {
    /// A plausible record begins so many bytes on.
    At(usize),
    /// There is none before; from there on it cannot be said yet.
    Unknown(usize),
    None,
}

impl MrtReader {
    /// Whether the record in the buffer is torn, so that another one begins within it: what follows it is no record, and
    /// within it there is one. How many bytes on that begins.
    pub(super) fn torn(&mut self, length: usize) -> Option<usize> {
        let time_s = Header::read(self.buffered())?.time_s;
        self.await_bytes(length + HEADER_BYTES);
        let rest = self.buffered().get(length..)?;
        // Fewer bytes than a header are the end of a file that was cut off, which is said next.
        if Header::read(rest).is_none_or(|next| next.is_possible(Some(time_s))) {
            return None;
        }
        let mut from = 1;
        loop {
            match self.look(from, Some(time_s)) {
                Look::At(at) if at < length => return Some(at),
                Look::Unknown(at) if at < length && !self.ended => {
                    from = at;
                    self.fill();
                }
                Look::At(_) | Look::Unknown(_) | Look::None => return None,
            }
        }
    }

    /// Goes on to the next plausible record behind the place where none can begin; how many bytes on it is. `None`: there
    /// is none, and nothing has been passed over.
    pub(super) fn resync(&mut self) -> Option<u64> {
        let (from, mut skip) = (self.offset, 1);
        loop {
            match self.look(skip, self.last_time_s) {
                Look::At(at) => {
                    self.pass(at);
                    return Some(self.offset - from);
                }
                Look::Unknown(at) if !self.ended => {
                    // What is behind is not needed any more: the buffer holds one record at most.
                    self.pass(at);
                    skip = 0;
                    self.fill();
                }
                Look::Unknown(_) | Look::None => return None,
            }
        }
    }

    /// Takes bytes for read.
    pub(super) fn pass(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
    }

    /// Looks for a plausible record in the buffer.
    fn look(&self, from: usize, after_s: Option<u32>) -> Look {
        let bytes = self.buffered();
        for at in from..bytes.len() {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(header) = Header::read(rest) else {
                return if self.ended { Look::None } else { Look::Unknown(at) };
            };
            if !header.is_possible(after_s) {
                continue;
            }
            match rest.get(header.length..).map(|next| (next.is_empty(), Header::read(next))) {
                Some((_, Some(next))) if next.is_possible(Some(header.time_s)) => return Look::At(at),
                Some((true, None)) if self.ended => return Look::At(at),
                Some((_, None)) | None if !self.ended => return Look::Unknown(at),
                _ => {}
            }
        }
        if self.ended { Look::None } else { Look::Unknown(bytes.len()) }
    }
}
