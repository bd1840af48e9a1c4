//! Finds the next record in a file with a torn one, after a full disk, a killed process, or two concurrent
//! writers. The length field of a torn record leads into the middle of another.
//!
//! A position is *plausible* as the beginning of a record if its header has a known type and subtype, a
//! possible length, and a time within [`TIME_S`] of the previous record, and if the position behind the
//! record is plausible too or the end of the file. The search examines each position, beginning behind the
//! start of the torn record.

use thalweg_wire::mrt::{HEADER_BYTES, RECORD_BYTES_MAX, RecordType};

use super::MrtReader;

/// Records of one file are in order of time, and most collectors' files cover less than a day.
const TIME_S: u32 = 86_400;

/// The header of a possible record.
#[derive(Clone, Copy)]
struct Header {
    time_s: u32,
    kind: RecordType,
    /// Bytes of the record, including the header.
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

/// The result of searching the buffer.
enum Look {
    /// A plausible record begins at this offset.
    At(usize),
    /// There is none before this offset; from there on, more bytes are needed.
    Unknown(usize),
    None,
}

impl MrtReader {
    /// Whether the record in the buffer is torn: no record follows it, and a plausible one begins within it.
    /// Returns the offset of that one.
    pub(super) fn torn(&mut self, length: usize) -> Option<usize> {
        let time_s = Header::read(self.buffered())?.time_s;
        self.await_bytes(length + HEADER_BYTES);
        let rest = self.buffered().get(length..)?;
        // Fewer bytes than a header are the end of a truncated file, which is reported next.
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

    /// Advances to the next plausible record, and returns how many bytes were skipped. `None` if there is
    /// none; then nothing was skipped.
    pub(super) fn resync(&mut self) -> Option<u64> {
        let (from, mut skip) = (self.offset, 1);
        loop {
            match self.look(skip, self.last_time_s) {
                Look::At(at) => {
                    self.pass(at);
                    return Some(self.offset - from);
                }
                Look::Unknown(at) if !self.ended => {
                    // Earlier bytes are no longer needed: the buffer holds at most one record.
                    self.pass(at);
                    skip = 0;
                    self.fill();
                }
                Look::Unknown(_) | Look::None => return None,
            }
        }
    }

    pub(super) fn pass(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
    }

    /// Searches the buffer for a plausible record.
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
