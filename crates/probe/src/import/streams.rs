//! Extracts IPFIX messages from TCP segments of a capture.
//!
//! Each direction of a connection is handled separately: bytes are put in order, early ones wait, repeated
//! ones are skipped. A connection is abandoned until it restarts if its bytes are not messages (another
//! protocol, TLS), or if the capture lacks a part.
//!
//! The number of connections and the bytes of each are limited; the connection that was idle longest is
//! evicted.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use thalweg_base::Aged;
use thalweg_wire::netflow::decode::stream_message_bytes;
use thalweg_wire::tcp::{FIN, RST, SYN};

/// The most connections that are followed.
const CONNECTIONS_MAX: usize = 1024;
/// The most early bytes of one connection that wait for missing ones.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// Source and destination of a segment.
pub(super) type Way = (SocketAddr, SocketAddr);

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) sequence: u32,
    pub(super) flags: u8,
    pub(super) payload: &'a [u8],
    /// Bytes of payload on the wire.
    pub(super) bytes: usize,
}

/// The result of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It belongs to a stream that is followed.
    Taken,
    /// The stream does not consist of messages.
    NotMessages,
    /// A part of the stream is missing; it was abandoned here.
    GivenUp,
    Ended,
}

enum Connection {
    Followed(Followed),
    /// Ignored until it restarts.
    GivenUp,
}

struct Followed {
    next: u32,
    /// Begins with the start of a message.
    bytes: Vec<u8>,
    ahead: BTreeMap<u32, Vec<u8>>,
    ahead_bytes: usize,
    /// The sequence number behind the last byte, once a FIN has named it.
    ends_at: Option<u32>,
}

/// All connections of a capture.
pub(super) struct Streams {
    connections: Aged<Way, Connection>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { connections: Aged::new(CONNECTIONS_MAX, usize::MAX) }
    }
}

impl Streams {
    /// Takes a segment; calls `message` for each message that is now complete.
    pub(super) fn take(
        &mut self,
        way: Way,
        segment: &Segment<'_>,
        mut message: impl FnMut(&[u8]),
    ) -> Outcome {
        if segment.flags & RST != 0 {
            self.connections.remove(&way);
            return Outcome::Ended;
        }
        let is_new = segment.flags & SYN != 0;
        if is_new || self.connections.renew(&way).is_none() {
            if !is_new && (segment.bytes == 0 || stream_message_bytes(segment.payload).is_err()) {
                return Outcome::NotMessages;
            }
            let next = segment.sequence.wrapping_add(u32::from(is_new));
            let (bytes, ahead) = (Vec::new(), BTreeMap::new());
            let followed = Followed { next, bytes, ahead, ahead_bytes: 0, ends_at: None };
            self.connections.insert(way, Connection::Followed(followed), 0);
        }
        let Some(connection) = self.connections.renew(&way) else { return Outcome::NotMessages };
        let Connection::Followed(followed) = connection else { return Outcome::NotMessages };
        let sequence = segment.sequence.wrapping_add(u32::from(is_new));
        let is_fin = segment.flags & FIN != 0;
        if is_fin {
            followed.ends_at = u32::try_from(segment.bytes).ok().map(|bytes| sequence.wrapping_add(bytes));
        }
        let outcome = followed.take(sequence, segment, &mut message);
        match outcome {
            Outcome::GivenUp | Outcome::NotMessages => *connection = Connection::GivenUp,
            // Either all bytes have come, or those that are missing are not in the capture.
            Outcome::Taken if followed.is_whole() || is_fin && followed.ahead.is_empty() => {
                self.connections.remove(&way);
                return Outcome::Ended;
            }
            Outcome::Taken | Outcome::Ended => {}
        }
        outcome
    }
}

impl Followed {
    fn is_whole(&self) -> bool {
        self.ends_at == Some(self.next)
    }

    fn take(&mut self, sequence: u32, segment: &Segment<'_>, message: &mut dyn FnMut(&[u8])) -> Outcome {
        if segment.payload.len() < segment.bytes {
            // The capture has only its beginning.
            return Outcome::GivenUp;
        }
        // A sequence number in the nearer half of the space ahead is early.
        let distance = sequence.wrapping_sub(self.next).cast_signed();
        if distance > 0 {
            // A retransmission may be shorter than what is known already.
            let known = self.ahead.get(&sequence).map_or(0, Vec::len);
            if segment.payload.len() > known {
                self.ahead_bytes += segment.payload.len() - known;
                if self.ahead_bytes > AHEAD_BYTES_MAX {
                    return Outcome::GivenUp;
                }
                self.ahead.insert(sequence, segment.payload.to_vec());
            }
            return Outcome::Taken;
        }
        self.append(segment.payload, distance.unsigned_abs() as usize);
        while let Some((sequence, payload)) = self.next_ahead() {
            let overlap = self.next.wrapping_sub(sequence) as usize;
            self.append(&payload, overlap);
        }
        self.cut(message)
    }

    /// The early segment that continues or overlaps the bytes.
    fn next_ahead(&mut self) -> Option<(u32, Vec<u8>)> {
        let next = self.next;
        let is_due = |sequence: &&u32| sequence.wrapping_sub(next).cast_signed() <= 0;
        let sequence = *self.ahead.keys().find(is_due)?;
        let payload = self.ahead.remove(&sequence)?;
        self.ahead_bytes -= payload.len();
        Some((sequence, payload))
    }

    fn append(&mut self, payload: &[u8], known: usize) {
        let fresh = payload.get(known..).unwrap_or_default();
        self.bytes.extend_from_slice(fresh);
        self.next = self.next.wrapping_add(fresh.len() as u32);
    }

    /// Takes complete messages from the beginning.
    fn cut(&mut self, message: &mut dyn FnMut(&[u8])) -> Outcome {
        let mut at = 0;
        let outcome = loop {
            match stream_message_bytes(&self.bytes[at..]) {
                Err(_) => break Outcome::NotMessages,
                Ok(Some(length)) if at + length <= self.bytes.len() => {
                    message(&self.bytes[at..at + length]);
                    at += length;
                }
                Ok(_) => break Outcome::Taken,
            }
        };
        self.bytes.drain(..at);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    fn way() -> Way {
        (([192, 0, 2, 1], 40_000).into(), ([192, 0, 2, 2], 4739).into())
    }

    fn segment(sequence: u32, flags: u8, payload: &[u8]) -> Segment<'_> {
        Segment { sequence, flags, payload, bytes: payload.len() }
    }

    fn message(n: u8, bytes: usize) -> Vec<u8> {
        let mut message = vec![n; bytes];
        message[..4].copy_from_slice(&[0, 10, (bytes >> 8) as u8, bytes as u8]);
        message
    }

    #[test]
    fn any_cutting_repeating_and_swapping_gives_the_messages() {
        let mut rng = XorShift64Star::new(7);
        for round in 0..300 {
            let messages: Vec<Vec<u8>> = (0..20).map(|n| message(n, 16 + rng.below(3000) as usize)).collect();
            let all = messages.concat();
            let start = if round % 2 == 0 { u32::MAX - 5000 } else { rng.below(u32::MAX) };
            let mut segments = Vec::new();
            let mut at = 0;
            while at < all.len() {
                let end = (at + 1 + rng.below(1400) as usize).min(all.len());
                // Sometimes what came before comes with it.
                let from = if rng.below(5) == 0 { at - at.min(rng.below(600) as usize) } else { at };
                segments.push((from, end));
                if rng.below(6) == 0 {
                    segments.push((from, end));
                }
                at = end;
            }
            for _ in 0..segments.len() / 4 {
                let n = rng.below(segments.len() as u32 - 1) as usize;
                segments.swap(n, n + 1);
            }
            let (mut streams, mut found) = (Streams::default(), Vec::new());
            streams.take(way(), &segment(start.wrapping_sub(1), SYN, &[]), |_| ());
            for &(from, end) in &segments {
                let sequence = start.wrapping_add(from as u32);
                let taken =
                    streams.take(way(), &segment(sequence, 16, &all[from..end]), |m| found.push(m.to_vec()));
                assert_eq!(taken, Outcome::Taken);
            }
            assert!(found == messages, "round {round}");
        }
    }

    #[test]
    fn early_segments_are_kept_whole_and_end_the_connection_when_the_gap_is_filled() {
        let (first, second) = (message(1, 40), message(2, 60));
        let (mut streams, mut found) = (Streams::default(), Vec::new());
        let mut take = |sequence, flags, payload: &[u8]| {
            streams.take(way(), &segment(sequence, flags, payload), |message| found.push(message.to_vec()))
        };
        assert_eq!(take(0, SYN, &[]), Outcome::Taken);
        assert_eq!(take(41, 16 | FIN, &second), Outcome::Taken, "its bytes wait for those before them");
        assert_eq!(take(41, 16, &second[..10]), Outcome::Taken, "a retransmission with fewer bytes");
        assert_eq!(take(1, 16, &first), Outcome::Ended);
        assert_eq!(found, [first, second]);
    }

    #[test]
    fn what_is_no_stream_of_messages_is_left_alone() {
        let mut streams = Streams::default();
        let nothing = |_: &[u8]| panic!("no message");
        assert_eq!(streams.take(way(), &segment(1, 24, b"GET / HTTP/1.1"), nothing), Outcome::NotMessages);
        assert_eq!(streams.take(way(), &segment(0, SYN, &[]), nothing), Outcome::Taken);
        assert_eq!(streams.take(way(), &segment(1, 24, &[22, 3, 1, 2]), nothing), Outcome::NotMessages);
        assert_eq!(streams.take(way(), &segment(5, 24, &message(1, 20)), nothing), Outcome::NotMessages);
        // In the middle, where a message begins.
        let (other, mut found) = ((way().1, way().0), 0);
        assert_eq!(streams.take(other, &segment(900, 24, &message(1, 20)), |_| found += 1), Outcome::Taken);
        let cut = Segment { bytes: 100, ..segment(920, 24, &[0, 10]) };
        assert_eq!(streams.take(other, &cut, |_| found += 1), Outcome::GivenUp);
        assert_eq!(found, 1);
        assert_eq!(streams.take(other, &segment(0, RST, &[]), |_| found += 1), Outcome::Ended);
    }
}
