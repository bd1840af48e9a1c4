//! Counts the traffic of connections: it recognizes BGP messages in the stream, wherever the stream is cut.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The length of a step of time series.
pub const STEP_US: u64 = 10_000;

const HEADER_BYTES: usize = 19;
const UPDATE: u8 = 2;

/// Counts of what a router sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) updates: u64,
    pub(crate) bytes: u64,
    /// Over all bytes with their times and connections.
    digest: u64,
    /// UPDATEs by step, in order.
    steps: Vec<(u64, u64)>,
}

impl Sent {
    /// Adds the UPDATEs by step since the last call to a network's.
    pub(crate) fn drain_steps(&mut self, all: &mut BTreeMap<u64, u64>) {
        for (step, updates) in std::mem::take(&mut self.steps) {
            *all.entry(step).or_default() += updates;
        }
    }

    fn count(&mut self, now_us: u64, updates: u64) {
        self.updates += updates;
        let step = now_us / STEP_US;
        match self.steps.last_mut() {
            Some((last, count)) if *last == step => *count += updates,
            _ if updates > 0 => self.steps.push((step, updates)),
            _ => {}
        }
    }

    pub(crate) fn digest(&mut self, now_us: u64, connection: (u32, u32), bytes: &[u8]) {
        let at = now_us.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(connection.0) << 32
            ^ u64::from(connection.1);
        self.digest = xxh3_64_with_seed(bytes, self.digest ^ at);
    }

    pub(crate) fn digest_so_far(&self) -> u64 {
        self.digest
    }
}

/// The counts of both directions of a connection.
#[derive(Default)]
pub(crate) struct Meter {
    sent: Framing,
    received: Framing,
}

impl Meter {
    /// Counts written bytes; returns whether any of them belongs to an UPDATE.
    pub(crate) fn sent(&mut self, now_us: u64, bytes: &[u8], sent: &mut Sent) -> bool {
        sent.bytes += bytes.len() as u64;
        let (begun, touched) = self.sent.feed(bytes);
        sent.count(now_us, begun);
        touched
    }

    /// What arrived ends before a message does.
    pub(crate) fn is_within_a_message(&self) -> bool {
        self.received.seen > 0
    }

    /// Returns how many UPDATEs begin in the received bytes, and whether any byte belongs to one.
    pub(crate) fn received(&mut self, bytes: &[u8]) -> (u64, bool) {
        self.received.feed(bytes)
    }
}

/// The position of a direction within a message.
#[derive(Default)]
struct Framing {
    /// Length and type as far as received.
    header: [u8; 3],
    /// The received bytes of the header.
    seen: usize,
    /// The bytes of the message that are still to come after the header.
    left: usize,
}

impl Framing {
    /// Returns how many UPDATEs begin here, and whether any byte belongs to one.
    fn feed(&mut self, mut bytes: &[u8]) -> (u64, bool) {
        let (mut begun, mut touched) = (0, false);
        while let [first, rest @ ..] = bytes {
            // Messages are mostly whole.
            if self.seen == 0
                && let Some(header) = bytes.first_chunk::<HEADER_BYTES>()
            {
                self.header = [header[16], header[17], header[18]];
                (self.seen, bytes) = (HEADER_BYTES, &bytes[HEADER_BYTES..]);
                begun += u64::from(self.end_header());
            } else if self.seen < HEADER_BYTES {
                // Length and type follow the marker, which is not checked.
                if self.seen >= HEADER_BYTES - 3 {
                    self.header[self.seen + 3 - HEADER_BYTES] = *first;
                }
                self.seen += 1;
                bytes = rest;
                if self.seen == HEADER_BYTES {
                    begun += u64::from(self.end_header());
                }
            } else {
                let taken = self.left.min(bytes.len());
                touched |= taken > 0 && self.header[2] == UPDATE;
                self.left -= taken;
                bytes = &bytes[taken..];
            }
            if self.seen == HEADER_BYTES && self.left == 0 {
                self.seen = 0;
            }
        }
        (begun, touched || begun > 0)
    }

    /// The header is complete; returns whether it is an UPDATE's.
    fn end_header(&mut self) -> bool {
        let length = usize::from(u16::from_be_bytes([self.header[0], self.header[1]]));
        self.left = length.saturating_sub(HEADER_BYTES);
        self.header[2] == UPDATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: usize) -> Vec<u8> {
        let mut bytes = vec![0xff; 16];
        bytes.extend(((HEADER_BYTES + body) as u16).to_be_bytes());
        bytes.push(kind);
        bytes.resize(HEADER_BYTES + body, 7);
        bytes
    }

    #[test]
    fn updates_are_counted_wherever_the_stream_is_cut() {
        let stream = [message(4, 0), message(2, 40), message(2, 4), message(4, 0), message(3, 2)].concat();
        for piece in 1..stream.len() {
            let mut framing = Framing::default();
            let begun: u64 = stream.chunks(piece).map(|bytes| framing.feed(bytes).0).sum();
            assert_eq!(begun, 2, "pieces of {piece}");
        }
        let mut framing = Framing::default();
        assert_eq!(framing.feed(&message(4, 0)), (0, false));
        let update = message(2, 40);
        assert_eq!(framing.feed(&update[..30]), (1, true));
        assert_eq!(framing.feed(&update[30..]), (0, true));
        assert_eq!(framing.feed(&message(4, 0)), (0, false));
    }

    #[test]
    fn a_digest_depends_on_bytes_times_and_connections() {
        let of = |now_us, connection, bytes: &[u8]| {
            let mut sent = Sent::default();
            sent.digest(now_us, connection, bytes);
            sent.digest_so_far()
        };
        let one = of(5, (1, 2), b"abc");
        assert_eq!(one, of(5, (1, 2), b"abc"));
        for other in [of(6, (1, 2), b"abc"), of(5, (2, 1), b"abc"), of(5, (1, 2), b"abd")] {
            assert_ne!(one, other);
        }
    }
}
