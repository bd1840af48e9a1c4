//! Test frames: IPv4 and UDP as in appendix C of RFC 2544, with a stamp by which the receiver recognizes them.
//!
//! ```text
//! byte  0  6  12 14          34         42     44        48     50         58
//!      +--+--+--+-----------+----------+------+---------+------+----------+-----------+
//!      |Ethernet|IPv4, DF   |UDP to 7  |magic |sequence |trial |sent, ns  |zeros      |
//!      +--------+-----------+----------+------+---------+------+----------+-----------+
//! ```
//!
//! The smallest frame, 64 bytes with its check sequence and 60 without, has just room for the stamp. Sizes are
//! those on the wire, as in the RFC: they include the check sequence, although no program sees its bytes.
//!
//! A generator that built whole frames would measure itself. So what depends on the flow (addresses, ports, sums)
//! is computed in advance, and writing a frame changes 34 bytes of a buffer that was laid out once. Checksums are
//! right in every frame: the router must not drop it for the wrong reason, nor skip work on it.

use crate::workload::frames::Endpoint;
use thalweg_wire::ethernet::{EthernetRepr, EthernetView, HEADER_BYTES as ETHERNET};
use thalweg_wire::ip_protocol::UDP;
use thalweg_wire::ipv4::{self, Ipv4Repr, Ipv4View};
use thalweg_wire::udp::{self, UdpRepr, UdpView};
use thalweg_wire::{EtherType, MacAddr, checksum};

/// The sizes of RFC 2544 section 9.1 for Ethernet, including the check sequence.
pub const FRAME_SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// Bytes of the check sequence.
pub const CHECK_SEQUENCE: usize = 4;
/// The smallest and the largest valid size.
const SMALLEST: usize = 64;
const LARGEST: usize = 9216;

/// The TTL as sent; a router decrements it.
pub const TTL: u8 = 64;
/// The destination port of appendix C.2.6.4: echo.
pub const PORT_ECHO: u16 = 7;

/// The offset of the stamp, which the receiver's filter needs.
pub const STAMP_AT: usize = 42;
/// The offset of the stamp's sequence number.
pub const SEQUENCE_AT: usize = STAMP_AT + 2;
/// The first bytes of a stamp.
pub const MAGIC: u16 = 0x7a1e;
const STAMP: usize = 16;

/// A size that no frame can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes: expected {SMALLEST} to {LARGEST}, check sequence included")]
pub struct FrameSizeError(pub usize);

/// A frame size, including the check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameSize(usize);

impl FrameSize {
    /// The smallest that Ethernet allows.
    pub const SMALLEST: Self = Self(SMALLEST);

    /// Fails for a size that no frame can have.
    pub fn new(bytes: usize) -> Result<Self, FrameSizeError> {
        if (SMALLEST..=LARGEST).contains(&bytes) { Ok(Self(bytes)) } else { Err(FrameSizeError(bytes)) }
    }

    /// Bytes on the wire, including the check sequence.
    pub fn wire_bytes(self) -> usize {
        self.0
    }

    /// Bytes that a program sends and receives.
    pub fn bytes(self) -> usize {
        self.0 - CHECK_SEQUENCE
    }

    /// Bytes of the frame's IP packet.
    pub fn packet_bytes(self) -> usize {
        self.bytes() - ETHERNET
    }
}

/// What identifies a test frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The frame's number in its trial, from 0; wraps after 2^32.
    pub sequence: u32,
    /// The frame's trial: a late frame must not count in the next one.
    pub trial: u16,
    /// When it was sent, in nanoseconds since 1970.
    pub sent_ns: u64,
}

/// The stamp of a frame, if it has one.
pub fn stamp_of(frame: &[u8]) -> Option<Stamp> {
    let stamp: &[u8; STAMP] = frame.get(STAMP_AT..)?.first_chunk()?;
    let [m0, m1, s0, s1, s2, s3, t0, t1, time @ ..] = *stamp;
    (u16::from_be_bytes([m0, m1]) == MAGIC).then_some(Stamp {
        sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        trial: u16::from_be_bytes([t0, t1]),
        sent_ns: u64::from_be_bytes(time),
    })
}

/// The parts of a frame that depend on the flow.
#[derive(Clone, Copy, Debug)]
struct Prepared {
    /// Both addresses and both ports, which are adjacent.
    ends: [u8; 12],
    header_checksum: u16,
    /// The sum of pseudo header and datagram without the stamp's variable words.
    datagram_sum: u32,
}

/// Makes frames of one size, for each flow in turn.
#[derive(Clone, Debug)]
pub struct FrameMaker {
    size: FrameSize,
    template: Vec<u8>,
    flows: Vec<Prepared>,
    next: usize,
}

impl FrameMaker {
    /// Frames from `source` to `destination` (the router's port), for each flow in turn. Without flows there is a
    /// single one with unspecified endpoints.
    pub fn new(
        size: FrameSize,
        source: MacAddr,
        destination: MacAddr,
        flows: &[(Endpoint, Endpoint)],
    ) -> Self {
        let nowhere = Endpoint { address: 0, port: 0 };
        let none = [(nowhere, nowhere)];
        let flows = if flows.is_empty() { &none[..] } else { flows };
        let mut payload = vec![0; size.bytes() - STAMP_AT];
        payload[..2].copy_from_slice(&MAGIC.to_be_bytes());
        let ethernet = EthernetRepr { destination, source, ether_type: EtherType::IPV4 }.encode();
        let (ip, udp) = headers(nowhere, nowhere, &payload);
        let template = [&ethernet[..], &ip, &udp, &payload].concat();
        let flows = flows.iter().map(|flow| Prepared::new(*flow, &payload)).collect();
        Self { size, template, flows, next: 0 }
    }

    /// The size of all its frames.
    pub fn size(&self) -> FrameSize {
        self.size
    }

    /// The number of flows, at least one.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Starts again with the first flow.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    /// Lays out a buffer of [`FrameSize::bytes`] bytes; needed once per buffer.
    pub fn lay_out(&self, frame: &mut [u8]) {
        let len = frame.len().min(self.template.len());
        frame[..len].copy_from_slice(&self.template[..len]);
    }

    /// Writes the next flow's frame into a laid-out buffer.
    #[inline]
    pub fn write(&mut self, frame: &mut [u8], stamp: Stamp) {
        let flow = self.flows[self.next];
        self.next = if self.next + 1 == self.flows.len() { 0 } else { self.next + 1 };
        let Some(head) = frame.first_chunk_mut::<{ STAMP_AT + STAMP }>() else { return };
        head[24..26].copy_from_slice(&flow.header_checksum.to_be_bytes());
        head[26..38].copy_from_slice(&flow.ends);
        head[44..48].copy_from_slice(&stamp.sequence.to_be_bytes());
        head[48..50].copy_from_slice(&stamp.trial.to_be_bytes());
        head[50..58].copy_from_slice(&stamp.sent_ns.to_be_bytes());
        let words = |n: u64| (n >> 48) + (n >> 32 & 0xffff) + (n >> 16 & 0xffff) + (n & 0xffff);
        let sum = words(stamp.sent_ns) as u32
            + words(stamp.sequence.into()) as u32
            + u32::from(stamp.trial)
            + flow.datagram_sum;
        head[40..42].copy_from_slice(&udp_checksum(sum).to_be_bytes());
    }
}

/// A UDP checksum from its sum. In RFC 768, zero means no checksum.
fn udp_checksum(sum: u32) -> u16 {
    match checksum::finish(sum) {
        0 => 0xffff,
        sum => sum,
    }
}

fn headers(
    from: Endpoint,
    to: Endpoint,
    payload: &[u8],
) -> ([u8; ipv4::HEADER_BYTES], [u8; udp::HEADER_BYTES]) {
    let length = udp::HEADER_BYTES + payload.len();
    let ip = Ipv4Repr {
        ttl: TTL,
        flags_and_offset: ipv4::DONT_FRAGMENT,
        ..Ipv4Repr::new(from.address.into(), to.address.into(), UDP, length)
    };
    let udp = UdpRepr { source_port: from.port, destination_port: to.port };
    let pseudo = checksum::pseudo_ipv4(from.address, to.address, UDP, length as u16);
    (ip.encode(), udp.encode(payload, pseudo))
}

impl Prepared {
    fn new((from, to): (Endpoint, Endpoint), payload: &[u8]) -> Self {
        let (ip, udp) = headers(from, to, payload);
        let mut ends = [0; 12];
        ends[..8].copy_from_slice(&ip[12..]);
        ends[8..].copy_from_slice(&udp[..4]);
        Self {
            ends,
            header_checksum: u16::from_be_bytes([ip[10], ip[11]]),
            datagram_sum: u32::from(!u16::from_be_bytes([udp[6], udp[7]])),
        }
    }
}

/// Checks a frame that passed a router: it must be as sent, with one hop less to live and correct sums. Translation
/// may have changed its source. Returns what is wrong, if anything.
pub fn fault_of(frame: &[u8], size: FrameSize) -> Option<&'static str> {
    if frame.len() != size.bytes() {
        return Some("another length");
    }
    let ethernet = EthernetView::new(frame).ok().filter(|view| view.ether_type() == EtherType::IPV4);
    let ip = ethernet.and_then(|view| Ipv4View::new(view.payload()).ok());
    let Some(ip) = ip.filter(|ip| ip.options().is_empty() && ip.protocol() == UDP) else {
        return Some("no IPv4 and UDP");
    };
    if ip.ttl() != TTL - 1 {
        return Some("time to live not lowered by one");
    }
    if !ip.checksum_holds() {
        return Some("wrong header checksum");
    }
    let pseudo = checksum::pseudo_sum(ip.source().into(), ip.destination().into(), UDP, ip.payload().len());
    // In RFC 768, zero means no checksum; a translator may leave it only if it was so.
    match UdpView::new(ip.payload()) {
        Ok(udp) if !udp.checksum_holds(pseudo) => Some("wrong UDP checksum"),
        Ok(udp) if udp.payload().len() + STAMP_AT != frame.len() => Some("another length"),
        Ok(udp) if udp.payload()[STAMP..].iter().any(|byte| *byte != 0) => Some("another payload"),
        Ok(_) => None,
        Err(_) => Some("no IPv4 and UDP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::frames::ends_of;
    use proptest::prelude::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn end(address: u32, port: u16) -> Endpoint {
        Endpoint { address, port }
    }

    proptest! {
        #[test]
        fn another_parser_finds_what_was_written(
            size in prop_oneof![prop::sample::select(FRAME_SIZES.to_vec()), 64usize..9217],
            flows in prop::collection::vec((any::<u32>(), any::<u16>(), any::<u32>(), any::<u16>()), 1..5),
            stamps in prop::collection::vec((any::<u32>(), any::<u16>(), any::<u64>()), 1..12),
        ) {
            let size = FrameSize::new(size).unwrap();
            let flows: Vec<_> = flows.into_iter().map(|(a, p, b, q)| (end(a, p), end(b, q))).collect();
            let mut maker = FrameMaker::new(size, A, B, &flows);
            let mut frame = vec![0xee; size.bytes()];
            maker.lay_out(&mut frame);
            for (i, (sequence, trial, sent_ns)) in stamps.into_iter().enumerate() {
                let stamp = Stamp { sequence, trial, sent_ns };
                maker.write(&mut frame, stamp);
                let (from, to) = flows[i % flows.len()];
                let parsed = etherparse::PacketHeaders::from_ethernet_slice(&frame).unwrap();
                let Some(etherparse::NetHeaders::Ipv4(ip, _)) = parsed.net else { panic!("IPv4") };
                let Some(etherparse::TransportHeader::Udp(udp)) = parsed.transport else { panic!("UDP") };
                prop_assert_eq!(ip.source, from.address.to_be_bytes());
                prop_assert_eq!(ip.destination, to.address.to_be_bytes());
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                prop_assert_eq!(usize::from(ip.total_len), size.packet_bytes());
                prop_assert_eq!((udp.source_port, udp.destination_port), (from.port, to.port));
                let payload = parsed.payload.slice();
                let sum = udp.calc_checksum_ipv4(&ip, payload).unwrap();
                prop_assert_eq!(udp.checksum, if sum == 0 { 0xffff } else { sum });
                prop_assert_eq!(stamp_of(&frame), Some(stamp));
                prop_assert_eq!(ends_of(&frame), Some((from, to)));
                prop_assert_eq!(ends_of(&frame[..37]), None);
            }
        }

        #[test]
        fn what_is_no_test_frame_has_no_stamp(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let known = bytes.get(42..58).is_some() && bytes[42..44] == MAGIC.to_be_bytes();
            prop_assert_eq!(stamp_of(&bytes).is_some(), known);
            fault_of(&bytes, FrameSize::new(64).unwrap());
        }
    }

    #[test]
    fn a_router_must_lower_the_time_to_live_and_nothing_else() {
        let size = FrameSize::new(128).unwrap();
        let mut maker = FrameMaker::new(size, A, B, &[(end(0xc612_0002, 1024), end(0xc613_8001, 7))]);
        let mut sent = vec![0; size.bytes()];
        maker.lay_out(&mut sent);
        maker.write(&mut sent, Stamp { sequence: 5, trial: 1, sent_ns: 99 });
        assert_eq!(fault_of(&sent, size), Some("time to live not lowered by one"));
        let mut routed = sent.clone();
        routed[22] -= 1;
        assert_eq!(fault_of(&routed, size), Some("wrong header checksum"));
        let mut header = routed[14..34].to_vec();
        header[10..12].fill(0);
        let checksum = checksum::finish(checksum::sum(&header, 0));
        routed[24..26].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(fault_of(&routed, size), None);
        assert_eq!(fault_of(&routed[..100], size), Some("another length"));
        routed[100] = 1;
        assert_eq!(fault_of(&routed, size), Some("wrong UDP checksum"));
        routed[102] = 0xff;
        routed[103] = 0xff;
        routed[100] = 0;
        assert_eq!(fault_of(&routed, size), Some("another payload"));
    }

    #[test]
    fn sizes_that_no_frame_has_are_refused() {
        assert_eq!(FrameSize::new(63), Err(FrameSizeError(63)));
        assert_eq!(FrameSize::new(9217), Err(FrameSizeError(9217)));
        assert_eq!(FrameSize::new(1518).map(FrameSize::packet_bytes), Ok(1500));
    }
}
