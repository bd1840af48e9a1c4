//! A flow as the XDP program sees it, and the action on its packets.

use thalweg_wire::ethernet::EthernetView;
use thalweg_wire::{EtherType, ip_protocol, tcp, udp};

/// Bytes of a key: addresses, ports, protocol, DS field.
pub(super) const KEY_V4_BYTES: u32 = 16;
/// Bytes of a key: addresses, ports, next header (in the machine's order), version and DS field.
pub(super) const KEY_V6_BYTES: u32 = 40;
pub(super) const VALUE_V4_BYTES: u32 = 64;
/// The first part of the other, without the fields that NAT changes.
pub(super) const VALUE_V6_BYTES: u32 = offset::SOURCE as u32;

/// Offsets in a value.
pub(super) mod offset {
    pub(in super::super) const GENERATION: i16 = 0;
    pub(in super::super) const UNTIL_EPOCH: i16 = 4;
    pub(in super::super) const INTERFACE: i16 = 8;
    pub(in super::super) const PORT: i16 = 12;
    pub(in super::super) const MTU: i16 = 16;
    pub(in super::super) const ETHERNET: i16 = 20;
    pub(in super::super) const SOURCE: i16 = 32;
    pub(in super::super) const DESTINATION: i16 = 36;
    pub(in super::super) const SOURCE_PORT: i16 = 40;
    pub(in super::super) const DESTINATION_PORT: i16 = 42;
    pub(in super::super) const TRANSLATED: i16 = 44;
    pub(in super::super) const HEADER_DELTA: i16 = 48;
    pub(in super::super) const TRANSPORT_DELTA: i16 = 52;
    // The parts of the one before.
    pub(in super::super) const ADDRESSES_DELTA: i16 = 56;
    pub(in super::super) const PORTS_DELTA: i16 = 60;
}

/// Addresses, ports, protocol and DS field of a packet, in the program's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowKey {
    V4([u8; KEY_V4_BYTES as usize]),
    V6([u8; KEY_V6_BYTES as usize]),
}

/// The first bytes of a frame, which hold its flow and all fields that may be rewritten.
const HEAD_V4_BYTES: usize = 42;
const HEAD_V6_BYTES: usize = 62;

impl FlowKey {
    /// The flow of an Ethernet frame, if the kernel could forward its later packets: IPv4 or IPv6 with TCP or UDP,
    /// without options, extension headers, fragments, SYN, FIN or RST, with a time to live of at least 2 and right
    /// header checksum and lengths.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        match EthernetView::new(frame).ok()?.ether_type() {
            EtherType::IPV4 => Self::of_v4(frame),
            EtherType::IPV6 => Self::of_v6(frame),
            _ => None,
        }
    }

    fn of_v4(frame: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD_V4_BYTES] = frame.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let length = usize::from(word(16));
        let is_plain = head[14] == 0x45 && word(20) & 0xbfff == 0 && head[22] >= 2;
        if !is_plain || !is_whole(frame, 34, head[23], length) {
            return None;
        }
        let sum: u32 = (14..34).step_by(2).map(|at| u32::from(word(at))).sum();
        if thalweg_wire::checksum::fold(sum) != 0xffff {
            return None;
        }
        let mut key = [0; KEY_V4_BYTES as usize];
        key[..12].copy_from_slice(&head[26..38]);
        (key[12], key[13]) = (head[23], head[15]);
        Some(Self::V4(key))
    }

    fn of_v6(frame: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD_V6_BYTES] = frame.first_chunk()?;
        let length = 40 + usize::from(u16::from_be_bytes([head[18], head[19]]));
        let is_plain = head[14] >> 4 == 6 && head[21] >= 2;
        (is_plain && is_whole(frame, 54, head[20], length)).then(|| Self::V6(key_v6(head)))
    }

    /// A hash for small tables.
    pub fn hash(&self) -> u32 {
        let mix = |bytes: &[u8]| {
            let words =
                bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
            words.fold(0x9e37_79b9_u32, |mixed, word| (mixed ^ word).wrapping_mul(0x85eb_ca6b))
        };
        let mixed = match self {
            Self::V4(bytes) => mix(bytes),
            Self::V6(bytes) => mix(bytes),
        };
        // So far low bits depend on low bits alone.
        let mixed = (mixed ^ mixed >> 16).wrapping_mul(0xc2b2_ae35);
        mixed ^ mixed >> 13
    }
}

/// Whether the frame holds the whole IP packet of this length, with TCP or UDP, and the packet does not open or
/// close a connection. The transport header begins at `begins`.
fn is_whole(frame: &[u8], begins: usize, protocol: u8, length: usize) -> bool {
    let header = match protocol {
        ip_protocol::TCP => tcp::HEADER_BYTES,
        ip_protocol::UDP => udp::HEADER_BYTES,
        _ => return false,
    };
    let changes_connection =
        protocol == ip_protocol::TCP && frame.get(begins + tcp::FLAGS_AT).is_none_or(|flags| flags & 7 != 0);
    14 + length >= begins + header && frame.len() >= 14 + length && !changes_connection
}

fn key_v6(head: &[u8; HEAD_V6_BYTES]) -> [u8; KEY_V6_BYTES as usize] {
    let mut key = [0; KEY_V6_BYTES as usize];
    key[..36].copy_from_slice(&head[22..58]);
    key[36..38].copy_from_slice(&u16::from(head[20]).to_ne_bytes());
    key[38..].copy_from_slice(&[head[14], head[15] & 0xf0]);
    key
}

/// The egress of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Number of the router's port.
    pub port: u16,
    /// Number of its interface.
    pub interface: u32,
    /// The largest IP packet that fits.
    pub mtu: u32,
}

/// The changes to a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAction {
    egress: Egress,
    ethernet: [u8; 12],
    /// Addresses and ports.
    ends: [u8; 12],
    translated: bool,
    addresses_delta: u32,
    ports_delta: u32,
}

/// What the fall of the time to live does to the header's sum: in the word of time to live and protocol it is the first
/// byte.
fn ttl_delta() -> u32 {
    difference(&[2, 0], &[1, 0])
}

impl FlowAction {
    /// The action that turns a packet of the flow into the frame `after`, of which only the beginning is needed;
    /// `None` if the program cannot do the same.
    pub fn between(key: &FlowKey, after: &[u8], egress: Egress) -> Option<Self> {
        match key {
            FlowKey::V4(key) => Self::between_v4(key, after.first_chunk()?, egress),
            FlowKey::V6(key) => Self::between_v6(key, after.first_chunk()?, egress),
        }
    }

    fn between_v4(
        key: &[u8; KEY_V4_BYTES as usize],
        after: &[u8; HEAD_V4_BYTES],
        egress: Egress,
    ) -> Option<Self> {
        let is_same_kind = after[12..15] == [8, 0, 0x45] && [after[23], after[15]] == [key[12], key[13]];
        if !is_same_kind {
            return None;
        }
        let mut ends = [0; 12];
        ends.copy_from_slice(&after[26..38]);
        let before = &key[..12];
        Some(Self {
            egress,
            ethernet: ethernet(after),
            ends,
            translated: *before != ends,
            addresses_delta: difference(&before[..8], &ends[..8]),
            ports_delta: difference(&before[8..], &ends[8..]),
        })
    }

    fn between_v6(
        key: &[u8; KEY_V6_BYTES as usize],
        after: &[u8; HEAD_V6_BYTES],
        egress: Egress,
    ) -> Option<Self> {
        // Only the hop limit may have changed.
        let is_same = after[12..14] == EtherType::IPV6.to_be_bytes() && key_v6(after) == *key;
        is_same.then(|| Self {
            egress,
            ethernet: ethernet(after),
            ends: [0; 12],
            translated: false,
            addresses_delta: 0,
            ports_delta: 0,
        })
    }

    /// The value for IPv4, whose beginning is the value for IPv6.
    pub(super) fn value(&self, generation: u32, until_epoch: u32) -> [u8; VALUE_V4_BYTES as usize] {
        let mut value = [0; VALUE_V4_BYTES as usize];
        let mut put = |at: i16, bytes: &[u8]| {
            let at = at as usize;
            value[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for (at, word) in [
            (offset::GENERATION, generation),
            (offset::UNTIL_EPOCH, until_epoch),
            (offset::INTERFACE, self.egress.interface),
            (offset::PORT, self.egress.port.into()),
            (offset::MTU, self.egress.mtu),
            (offset::TRANSLATED, self.translated.into()),
            (offset::HEADER_DELTA, ttl_delta() + self.addresses_delta),
            (offset::TRANSPORT_DELTA, self.addresses_delta + self.ports_delta),
            (offset::ADDRESSES_DELTA, self.addresses_delta),
            (offset::PORTS_DELTA, self.ports_delta),
        ] {
            put(at, &word.to_ne_bytes());
        }
        put(offset::ETHERNET, &self.ethernet);
        put(offset::SOURCE, &self.ends);
        value
    }
}

/// The destination and source address of the link.
fn ethernet(frame: &[u8]) -> [u8; 12] {
    std::array::from_fn(|at| frame[at])
}

/// The change of a one's complement sum in the machine's byte order (RFC 1624), unfolded.
fn difference(before: &[u8], after: &[u8]) -> u32 {
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks_exact(2).map(|word| u16::from_ne_bytes([word[0], word[1]]).into()).collect()
    };
    words(before)
        .iter()
        .zip(words(after))
        .filter(|(old, new)| *old != new)
        .map(|(old, new)| (!old & 0xffff) + new)
        .sum()
}
