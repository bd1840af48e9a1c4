//! One direction of a TCP stream in which some text is replaced by text of another length.
//!
//! A replacement belongs to a place of the stream, not to a segment: once it is known, every segment that covers the
//! place, or a part of it, carries the same bytes of it, however the stream is cut and whatever is sent again.
//!
//! ```text
//!  stream as sent:      . . . [ old text ] . . . .
//!  as it is received:   . . . [ new, longer text ] . . . .      byte k of the old text is byte k of the new one,
//!                                                               as far as both go; their ends are each other's
//! ```
//!
//! The last [`EDITS_MAX`] replacements are remembered. Only their numbers matter for what is sent after them; a segment
//! that repeats what came before them would be numbered wrongly, but by then more than that many commands have been
//! answered.

use crate::records::place;
use std::ops::Range;

/// Replacements that are remembered of one direction.
pub(crate) const EDITS_MAX: usize = 8;

/// A replacement.
#[derive(Clone, Debug)]
struct Edit {
    /// The sequence number of the old text, as sent.
    at: u32,
    old: u32,
    text: Box<[u8]>,
    /// What is added to numbers before it.
    before: u32,
}

impl Edit {
    fn new_len(&self) -> u32 {
        u32::try_from(self.text.len()).unwrap_or(u32::MAX)
    }

    /// What is added to numbers behind it.
    fn behind(&self) -> u32 {
        self.before.wrapping_add(self.new_len()).wrapping_sub(self.old)
    }
}

/// How far `number` is behind `from`, modulo 2^32; `None` if it is before.
fn behind(number: u32, from: u32) -> Option<u32> {
    let distance = number.wrapping_sub(from);
    (distance < 1 << 31).then_some(distance)
}

/// One direction of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    /// Where a line begins: behind the last byte of a segment that ended one.
    line_at: Option<u32>,
    edits: Vec<Edit>,
}

/// What is in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Nothing that matters.
    Plain,
    /// This part of it is replaced.
    Replace(Range<usize>, String),
}

/// The lines that bytes contain as a whole, without their ends.
pub(crate) fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.map(move |(end, _)| {
        let line = start..if end > start && bytes[end - 1] == b'\r' { end - 1 } else { end };
        start = end + 1;
        line
    })
}

impl Way {
    /// A stream that begins with a SYN of this number.
    pub(crate) fn begun(syn: u32) -> Self {
        Self { line_at: Some(syn.wrapping_add(1)), edits: Vec::new() }
    }

    /// Whether nothing is lost with it but the place of the next line.
    pub(crate) fn is_plain(&self) -> bool {
        self.edits.is_empty()
    }

    /// Shows the lines of a segment that were not seen before, and remembers what is to be replaced. Returns the bytes of
    /// lines that cannot be shown: the first, if it is not known to begin here, and the last, if it goes on.
    pub(crate) fn read<'p>(
        &mut self,
        sequence: u32,
        payload: &'p [u8],
        mut read: impl FnMut(&[u8]) -> Reading,
    ) -> [&'p [u8]; 2] {
        let number = |at: usize| sequence.wrapping_add(u32::try_from(at).unwrap_or(0));
        let mut torn: [&[u8]; 2] = [&[]; 2];
        let mut end = 0;
        for line in whole_lines(payload) {
            end = payload.len().min(line.end + 1 + usize::from(payload.get(line.end) == Some(&b'\r')));
            let is_begun = line.start > 0 || self.line_at == Some(sequence);
            if self
                .edits
                .last()
                .is_some_and(|last| behind(number(line.start), last.at.wrapping_add(last.old)).is_none())
            {
                // It was read before, or something behind it was.
            } else if !is_begun {
                torn[0] = &payload[line];
            } else if let Reading::Replace(part, text) = read(&payload[line.clone()]) {
                self.replace(number(line.start + part.start), part.len(), text);
            }
        }
        if end < payload.len() {
            torn[1] = &payload[end..];
        } else if end > 0 && self.line_at.is_none_or(|at| behind(number(end), at).is_some()) {
            self.line_at = Some(number(end));
        }
        torn
    }

    fn replace(&mut self, at: u32, old: usize, text: String) {
        let before = self.edits.last().map_or(0, Edit::behind);
        if self.edits.len() == EDITS_MAX {
            self.edits.remove(0);
        }
        let old = u32::try_from(old).unwrap_or(0);
        self.edits.push(Edit { at, old, text: text.into_bytes().into(), before });
    }

    /// The number that the receiver has for a byte of this number.
    pub(crate) fn after(&self, number: u32) -> u32 {
        for edit in self.edits.iter().rev() {
            let Some(within) = behind(number, edit.at) else { continue };
            let added = if within >= edit.old { edit.behind() } else { edit.before };
            let cut = if within < edit.old { within - within.min(edit.new_len()) } else { 0 };
            return number.wrapping_add(added).wrapping_sub(cut);
        }
        number.wrapping_add(self.edits.first().map_or(0, |edit| edit.before))
    }

    /// The number that the sender has for what the receiver calls this. Of a text that came in part, its last byte counts
    /// as missing.
    pub(crate) fn before(&self, number: u32) -> u32 {
        for edit in self.edits.iter().rev() {
            let Some(within) = behind(number, edit.at.wrapping_add(edit.before)) else { continue };
            return match within >= edit.new_len() {
                true => number.wrapping_sub(edit.behind()),
                false => edit.at.wrapping_add(within.min(edit.old.saturating_sub(1))),
            };
        }
        number.wrapping_sub(self.edits.first().map_or(0, |edit| edit.before))
    }

    /// The bytes that the receiver gets for a segment's; `None` if they are the same.
    pub(crate) fn payload(&self, sequence: u32, payload: &[u8]) -> Option<Vec<u8>> {
        let length = u32::try_from(payload.len()).ok()?;
        let end = sequence.wrapping_add(length);
        let touches = |edit: &&Edit| {
            behind(edit.at.wrapping_add(edit.old), sequence).is_some_and(|ahead| ahead > 0)
                && behind(end, edit.at).is_some_and(|ahead| ahead > 0)
        };
        let mut new = Vec::new();
        let mut done = sequence;
        let copy = |new: &mut Vec<u8>, from: u32, to: u32| {
            let at = |number: u32| place(number.wrapping_sub(sequence));
            new.extend_from_slice(payload.get(at(from)..at(to)).unwrap_or_default());
        };
        for edit in self.edits.iter().filter(touches) {
            let start = behind(edit.at, done).map_or(done, |_| edit.at);
            let edit_end = edit.at.wrapping_add(edit.old);
            let stop = behind(edit_end, end).map_or(edit_end, |_| end);
            copy(&mut new, done, start);
            let from = start.wrapping_sub(edit.at).min(edit.new_len());
            let to = match stop == edit_end {
                true => edit.new_len(),
                false => stop.wrapping_sub(edit.at).min(edit.new_len()),
            };
            new.extend_from_slice(edit.text.get(place(from)..place(to)).unwrap_or_default());
            done = stop;
        }
        copy(&mut new, done, end);
        (new != payload).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reference: the whole stream at once, line by line.
    fn rewritten(stream: &str) -> String {
        stream
            .split_inclusive("\r\n")
            .map(|line| replaced(line.trim_end()).map_or(line.to_owned(), |new| new + "\r\n"))
            .collect()
    }

    /// Numbers become words of another length.
    fn replaced(line: &str) -> Option<String> {
        let number = line.strip_prefix("N ")?;
        Some(format!("N {}", "x".repeat(number.parse().ok()?)))
    }

    fn read(line: &[u8]) -> Reading {
        let text = String::from_utf8(line.to_vec()).unwrap();
        match replaced(&text) {
            Some(new) => Reading::Replace(2..text.len(), new[2..].to_owned()),
            None => Reading::Plain,
        }
    }

    fn line() -> impl Strategy<Value = String> {
        prop_oneof!["[a-m ]{0,9}", (0u8..12).prop_map(|n| format!("N {n}")), Just("N 007".to_owned())]
    }

    proptest! {
        /// Lines in segments of any number of them, some sent again in other pieces or out of order once they were seen:
        /// the receiver puts together what the reference makes of the whole stream, and acknowledgments come back to numbers
        /// that the sender has.
        #[test]
        fn any_split_gives_the_stream_of_the_reference(
            lines in prop::collection::vec(line(), 1..EDITS_MAX),
            cuts in prop::collection::vec(any::<bool>(), EDITS_MAX),
            again in prop::collection::vec((0usize..80, 0usize..80), 0..12),
            first: u32,
        ) {
            let stream: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let expected = rewritten(&stream);
            let mut way = Way::begun(first.wrapping_sub(1));
            let mut received = vec![None; expected.len()];
            let number = |at: usize| first.wrapping_add(at as u32);
            let mut send = |way: &mut Way, from: usize, to: usize| {
                let payload = &stream.as_bytes()[from..to];
                way.read(number(from), payload, read);
                let new = way.payload(number(from), payload).unwrap_or(payload.to_vec());
                let at = way.after(number(from)).wrapping_sub(first) as usize;
                assert_eq!(way.after(number(to)).wrapping_sub(first) as usize, at + new.len());
                for (place, byte) in (at..).zip(new) {
                    let before = received[place].replace(byte);
                    assert!(before.is_none_or(|before| before == byte), "sent again, and other bytes");
                }
            };
            let (mut start, mut end) = (0, 0);
            for (line, is_cut) in lines.iter().zip(cuts) {
                end += line.len() + 2;
                if is_cut || end == stream.len() {
                    send(&mut way, start, end);
                    start = end;
                    // Anything that was sent may come again.
                    for (from, length) in &again {
                        let from = from % end;
                        send(&mut way, from, (from + 1 + length).min(end));
                    }
                }
            }
            let received: Vec<u8> = received.into_iter().map(|byte| byte.unwrap()).collect();
            prop_assert_eq!(String::from_utf8(received).unwrap(), expected.clone());
            for at in 0..=stream.len() {
                prop_assert!(way.before(way.after(number(at))).wrapping_sub(first) as usize <= stream.len());
            }
            prop_assert_eq!(way.before(number(expected.len())), number(stream.len()));
            for at in 0..expected.len() {
                // What is not acknowledged is sent again from there.
                let asked = way.before(number(at));
                prop_assert!(way.after(asked).wrapping_sub(first) as usize <= at);
            }
        }
    }

    #[test]
    fn a_line_in_two_segments_passes_as_it_is_and_is_reported() {
        let mut way = Way::begun(99);
        let torn = way.read(100, b"USER x\r\nN 1", read);
        assert_eq!(torn, [&b""[..], b"N 1"]);
        let torn = way.read(111, b"0\r\nN 3\r\n", read);
        assert_eq!(torn, [&b"0"[..], b""]);
        assert_eq!(way.payload(111, b"0\r\nN 3\r\n").unwrap(), b"0\r\nN xxx\r\n");
        assert_eq!(way.after(119), 121);
    }

    #[test]
    fn a_stream_that_was_there_before_is_read_from_its_next_line_on() {
        let mut way = Way::default();
        assert_eq!(way.read(7, b"N 3\r\n", read)[0], b"N 3");
        way.read(12, b"N 3\r\n", read);
        assert_eq!((way.after(12), way.after(17)), (12, 19));
    }
}
