//! Which frames may go before others that wait in the same ring, so that a ping does not wait behind bulk.
//!
//! ```text
//! ring    | A | A | A | B | A | C | A | A | . | .        what has arrived, oldest first
//! seen      A   A   A   -   A   -   A   A                held, by flow; `-` has gone before the others
//!           ^ next                          ^ next to look at
//! ```
//!
//! A ring with more frames than a chunk took is looked through, each frame once. A frame may pass if no frame of its
//! flow is held before it, so the frames of a flow keep their order. Of each flow [`PER_FLOW_MAX`] pass at a time; the
//! next one is held, and so are all behind it. So bulk, which is behind itself, does not pass. Flows are told apart by
//! a hash: two flows with the same one are taken for one, which keeps more order than is needed.
//!
//! Fragments stay where they are, and so do later packets between the same addresses by the same protocol: what they
//! belong to shows only in the first of them.
//!
//! Pure: no ring, no clock, and no bytes make it panic.

use std::collections::VecDeque;

use thalweg_wire::ethernet::{self, HEADER_BYTES as ETHERNET};
use thalweg_wire::{EtherType, ip_protocol, ipv4, ipv6};

/// The most frames that pass in one call.
const PASS_MAX: usize = 64;
/// The most of them of one flow.
const PER_FLOW_MAX: usize = 8;
/// The most frames that one call looks at.
pub(super) const LOOK_MAX: usize = 1024;
/// A power of two; two flows in a ring seldom share one of these.
const BUCKETS: u16 = 1024;
/// Those of whole packets, and those of fragments.
const ALL_BUCKETS: usize = 2048;

/// How many frames may pass in a call that takes `limit`: the oldest ones must get on, even if each frame is of another
/// flow.
pub(super) fn limit_of(limit: usize) -> usize {
    (limit / 4).min(PASS_MAX)
}

/// Frames at the start of a ring.
#[derive(Debug)]
pub(super) struct Passing {
    seen: VecDeque<Seen>,
    /// How many held frames each bucket has; whole packets first, then fragments.
    held: Box<[u16; ALL_BUCKETS]>,
    /// The buckets of frames that have passed in this call.
    passed: Vec<u16>,
}

/// A frame that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It has gone before the others.
    Passed,
    /// It waits for its turn.
    Held(u16),
}

/// What a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    bucket: u16,
    /// The bucket of fragments between the same addresses.
    fragments: u16,
    is_fragment: bool,
}

impl Default for Passing {
    fn default() -> Self {
        Self { seen: VecDeque::new(), held: Box::new([0; ALL_BUCKETS]), passed: Vec::new() }
    }
}

impl Passing {
    /// A call begins to look at frames.
    pub(super) fn begin(&mut self) {
        self.passed.clear();
    }

    /// How many frames from the next one on were looked at.
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether a frame of this flow may go before all that were looked at. The first of a ring is before the others
    /// anyway.
    pub(super) fn may_pass(&self, flow: Flow) -> bool {
        let is_held = |bucket: u16| self.held[usize::from(bucket) % ALL_BUCKETS] > 0;
        let is_bulk = || self.passed.iter().filter(|bucket| **bucket == flow.bucket).count() >= PER_FLOW_MAX;
        let is_free = !flow.is_fragment && !is_held(flow.bucket) && !is_held(flow.fragments);
        is_free && !self.seen.is_empty() && !is_bulk()
    }

    /// Notes that the frame behind those looked at waits for its turn.
    pub(super) fn hold(&mut self, flow: Flow) {
        let bucket = if flow.is_fragment { flow.fragments } else { flow.bucket };
        self.held[usize::from(bucket) % ALL_BUCKETS] += 1;
        self.seen.push_back(Seen::Held(bucket));
    }

    /// Notes that the frame behind those looked at has gone before them.
    pub(super) fn pass(&mut self, flow: Flow) {
        self.seen.push_back(Seen::Passed);
        self.passed.push(flow.bucket);
    }

    /// Whether the next frame has gone before.
    pub(super) fn next_has_passed(&self) -> bool {
        self.seen.front() == Some(&Seen::Passed)
    }

    /// Notes that the next frame has left the ring.
    pub(super) fn leaves(&mut self) {
        if let Some(Seen::Held(bucket)) = self.seen.pop_front() {
            let count = &mut self.held[usize::from(bucket) % ALL_BUCKETS];
            *count = count.saturating_sub(1);
        }
    }

    /// Forgets everything: the ring is another one.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Flow {
    /// The flow of an Ethernet frame, or of its first bytes: those of its headers decide.
    pub(super) fn of(frame: &[u8]) -> Self {
        let of_ip = match ethernet::payload_of(frame) {
            Some((EtherType::IPV4, packet)) => Self::of_ipv4(packet),
            Some((EtherType::IPV6, packet)) => Self::of_ipv6(packet),
            _ => None,
        };
        // Whatever it is, it keeps its order between the two addresses.
        of_ip.unwrap_or_else(|| Self::new(mix(0, frame.get(..ETHERNET).unwrap_or(frame)), None, false))
    }

    fn of_ipv4(packet: &[u8]) -> Option<Self> {
        let header: &[u8; ipv4::HEADER_BYTES] = packet.first_chunk()?;
        let addresses = mix(u64::from(header[9]), &header[12..20]);
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & !ipv4::DONT_FRAGMENT != 0;
        let ports = packet.get(usize::from(header[0] & 0xf) * 4..).and_then(|rest| rest.first_chunk());
        Some(Self::new(addresses, ports.filter(|_| ip_protocol::has_ports(header[9])), is_fragment))
    }

    fn of_ipv6(packet: &[u8]) -> Option<Self> {
        let header: &[u8; ipv6::HEADER_BYTES] = packet.first_chunk()?;
        let next = header[6];
        let ports = packet[ipv6::HEADER_BYTES..].first_chunk().filter(|_| ip_protocol::has_ports(next));
        // What follows other extension headers is of one flow: the protocol is theirs.
        let is_fragment = next == ip_protocol::FRAGMENT;
        let of = if is_fragment { packet.get(ipv6::HEADER_BYTES).copied().unwrap_or(0) } else { next };
        Some(Self::new(mix(u64::from(of), &header[8..40]), ports, is_fragment))
    }

    fn new(addresses: u64, ports: Option<&[u8; 4]>, is_fragment: bool) -> Self {
        let whole = ports.map_or(addresses, |ports| mix(addresses, ports));
        // The middle bits of a product depend on most bits of its factors.
        let bucket = |hash: u64| {
            let [.., high, low, _, _, _] = hash.to_be_bytes();
            u16::from_be_bytes([high, low]) % BUCKETS
        };
        Self { bucket: bucket(whole), fragments: BUCKETS + bucket(addresses), is_fragment }
    }
}

fn mix(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(seed ^ 0x9e37_79b9_7f4a_7c15, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let product = u128::from(hash ^ u64::from_le_bytes(word)) * 0xd6e8_feb8_6659_fd93;
        (product >> 64) as u64 ^ product as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_wire::ip_protocol::{ICMP, TCP, UDP};
    use thalweg_wire::ipv4::Ipv4Repr;
    use thalweg_wire::testing;

    /// A packet between hosts and ports given by small numbers; `part` makes it a fragment, 0 the first.
    fn packet(v6: bool, host: u8, port: u8, protocol: u8, part: Option<u8>) -> Vec<u8> {
        let transport = [0, port, 0, 53, 0, 8, 0, 0];
        let (from, to) = ([10, 0, 0, host], [10, 0, 1, 1]);
        let packet = if v6 {
            let address = |last: u8| std::net::IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]);
            let (next, content) = match part {
                None => (protocol, transport.to_vec()),
                Some(part) => {
                    let header = [protocol, 0, 0, (part * 8) | 1, 0, 0, 0, 1];
                    (ip_protocol::FRAGMENT, [&header[..], &transport].concat())
                }
            };
            testing::ip(address(host), address(0), next, &content)
        } else {
            let header = Ipv4Repr::new(from.into(), to.into(), protocol, transport.len());
            let mut packet = testing::ipv4(header, &transport);
            if let Some(part) = part {
                packet[6..8].copy_from_slice(&(ipv4::MORE_FRAGMENTS | u16::from(part)).to_be_bytes());
            }
            packet
        };
        testing::frame(&packet)
    }

    /// Empties a ring as a driver does, a chunk at a time.
    fn drained(ring: &[Vec<u8>], arriving: usize, limit: usize) -> Vec<usize> {
        let mut passing = Passing::default();
        let (mut next, mut order) = (0, Vec::new());
        let mut there = 0;
        while next < ring.len() {
            there = (there + arriving).min(ring.len());
            let end = order.len() + limit;
            passing.begin();
            while next + passing.len() < there && order.len() < end - limit + limit_of(limit) {
                let at = next + passing.len();
                let flow = Flow::of(&ring[at]);
                if passing.may_pass(flow) {
                    passing.pass(flow);
                    order.push(at);
                } else {
                    passing.hold(flow);
                }
            }
            while next < there {
                let has_passed = passing.next_has_passed();
                if !has_passed && order.len() == end {
                    break;
                }
                passing.leaves();
                if !has_passed {
                    order.push(next);
                }
                next += 1;
            }
        }
        assert!(passing.held.iter().all(|count| *count == 0), "nothing is left to hold others");
        order
    }

    proptest! {
        #[test]
        fn each_frame_goes_once_and_flows_keep_their_order(
            kinds in prop::collection::vec((any::<bool>(), 0..3_u8, 0..3_u8, 0..3_usize, 0..12_u8), 1..400),
            arriving in 1..80_usize,
            limit in 1..40_usize,
        ) {
            let ring: Vec<Vec<u8>> = kinds
                .iter()
                .map(|&(v6, host, port, protocol, part)| {
                    packet(v6, host, port, [TCP, UDP, ICMP][protocol], (part < 3).then_some(part))
                })
                .collect();
            let order = drained(&ring, arriving, limit);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..ring.len()).collect::<Vec<_>>());
            let mut place = vec![0; ring.len()];
            order.iter().enumerate().for_each(|(nth, at)| place[*at] = nth);
            for (first, a) in kinds.iter().enumerate() {
                for (second, b) in kinds.iter().enumerate().skip(first + 1) {
                    let same_hosts = (a.0, a.1, a.3) == (b.0, b.1, b.3);
                    // Whose ports a fragment has is not known, so nothing of its hosts' may pass it.
                    let same_flow = same_hosts && (a.4 < 3 || (a.2 == b.2 && b.4 >= 3));
                    if same_flow {
                        prop_assert!(place[first] < place[second], "{:?} passed {:?}", b, a);
                    }
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(frame in prop::collection::vec(any::<u8>(), 0..120)) {
            let mut passing = Passing::default();
            passing.hold(Flow::of(&frame));
            prop_assert!(!passing.may_pass(Flow::of(&frame)));
            passing.leaves();
            passing.leaves();
        }
    }

    #[test]
    fn a_ping_goes_before_bulk_and_bulk_gets_on() {
        let (bulk, ping) = (packet(false, 1, 1, TCP, None), packet(false, 1, 0, ICMP, None));
        let mut ring = vec![bulk; 500];
        ring.push(ping);
        let order = drained(&ring, 501, 100);
        assert_eq!(order[..3], [500, 0, 1]);
        // Another flow that is behind itself passes with a few, and what is thin passes both.
        let more = vec![packet(false, 2, 2, TCP, None); 500];
        let order = drained(&[&ring[..500], &more, &ring[500..]].concat(), 1001, 100);
        assert_eq!(order[..9], [500, 501, 502, 503, 504, 505, 506, 507, 1000]);
        assert_eq!(order[9], 0);
        // Each of another flow: a quarter of a chunk passes, and the oldest goes with the same chunk.
        let others: Vec<Vec<u8>> = (0..=255).map(|port| packet(true, 1, port, UDP, None)).collect();
        let order = drained(&[ring, others].concat(), 1000, 100);
        let oldest = order.iter().position(|at| *at == 1).expect("all have gone");
        assert!(oldest <= 100, "{oldest}");
    }
}
