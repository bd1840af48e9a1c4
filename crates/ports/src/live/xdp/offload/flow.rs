//! A flow as the XDP program sees it, and what is done to its packets.

/// Octets of a key.
pub(super) const KEY_OCTETS: u32 = 16;
/// Octets of a value.
pub(super) const VALUE_OCTETS: u32 = 56;

/// Where things are in a value.
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
}

/// Addresses, ports, protocol and DS field of a packet, as the program finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey([u8; KEY_OCTETS as usize]);

/// Octets of a frame that say what its flow is and what would be rewritten.
const HEAD_OCTETS: usize = 42;

impl FlowKey {
    /// The flow of an Ethernet frame whose later packets could be forwarded by the kernel: IPv4 with TCP or UDP, without
    /// options, fragments, SYN, FIN or RST, with a time to live of at least 2 and right header checksum and lengths.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD_OCTETS] = frame.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let shortest = match head[23] {
            6 => 40,
            17 => 28,
            _ => return None,
        };
        let length = usize::from(word(16));
        let is_plain = word(12) == 0x0800 && head[14] == 0x45 && word(20) & 0xbfff == 0 && head[22] >= 2;
        let is_whole = length >= shortest && frame.len() >= 14 + length;
        let changes_connection = head[23] == 6 && frame.get(47).is_none_or(|flags| flags & 7 != 0);
        if !is_plain || !is_whole || changes_connection {
            return None;
        }
        let sum: u32 = (14..34).step_by(2).map(|at| u32::from(word(at))).sum();
        if thalweg_wire::checksum::fold(sum) != 0xffff {
            return None;
        }
        let mut key = [0; KEY_OCTETS as usize];
        key[..12].copy_from_slice(&head[26..38]);
        (key[12], key[13]) = (head[23], head[15]);
        Some(Self(key))
    }

    pub(super) fn octets(&self) -> &[u8] {
        &self.0
    }

    /// A number for small tables.
    pub fn hash(&self) -> u32 {
        let word =
            |at: usize| u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]]);
        let mixed = (0..4).fold(0x9e37_79b9_u32, |mixed, i| (mixed ^ word(4 * i)).wrapping_mul(0x85eb_ca6b));
        mixed ^ mixed >> 15
    }
}

/// Where a flow leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Number of the router's port.
    pub port: u16,
    /// Number of its interface.
    pub interface: u32,
    /// Longest IP packet that fits.
    pub mtu: u32,
}

/// What is done to a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAction {
    egress: Egress,
    ethernet: [u8; 12],
    /// Addresses and ports.
    ends: [u8; 12],
    translated: bool,
    header_delta: u32,
    transport_delta: u32,
}

impl FlowAction {
    /// What was done to a packet of the flow, given the frame's beginning that went out for it; `None` where the program
    /// could not do the same.
    pub fn between(key: &FlowKey, after: &[u8], egress: Egress) -> Option<Self> {
        let after: &[u8; HEAD_OCTETS] = after.first_chunk()?;
        let is_same_kind = after[12..15] == [8, 0, 0x45] && [after[23], after[15]] == [key.0[12], key.0[13]];
        if !is_same_kind {
            return None;
        }
        let mut ends = [0; 12];
        ends.copy_from_slice(&after[26..38]);
        let before = &key.0[..12];
        let mut ethernet = [0; 12];
        ethernet.copy_from_slice(&after[..12]);
        // One less to live: the word of time to live and protocol gets smaller by 1 in its first octet.
        let ttl = difference(&[2, 0], &[1, 0]);
        Some(Self {
            egress,
            ethernet,
            ends,
            translated: *before != ends,
            header_delta: ttl + difference(&before[..8], &ends[..8]),
            transport_delta: difference(before, &ends),
        })
    }

    pub(super) fn value(&self, generation: u32, until_epoch: u32) -> [u8; VALUE_OCTETS as usize] {
        let mut value = [0; VALUE_OCTETS as usize];
        let mut put = |at: i16, octets: &[u8]| {
            let at = at as usize;
            value[at..at + octets.len()].copy_from_slice(octets);
        };
        for (at, word) in [
            (offset::GENERATION, generation),
            (offset::UNTIL_EPOCH, until_epoch),
            (offset::INTERFACE, self.egress.interface),
            (offset::PORT, self.egress.port.into()),
            (offset::MTU, self.egress.mtu),
            (offset::TRANSLATED, self.translated.into()),
            (offset::HEADER_DELTA, self.header_delta),
            (offset::TRANSPORT_DELTA, self.transport_delta),
        ] {
            put(at, &word.to_ne_bytes());
        }
        put(offset::ETHERNET, &self.ethernet);
        put(offset::SOURCE, &self.ends);
        value
    }
}

/// By how much a one's complement sum in the machine's order changes (RFC 1624), unfolded.
fn difference(before: &[u8], after: &[u8]) -> u32 {
    let words = |octets: &[u8]| -> Vec<u32> {
        octets.chunks_exact(2).map(|word| u16::from_ne_bytes([word[0], word[1]]).into()).collect()
    };
    words(before)
        .iter()
        .zip(words(after))
        .filter(|(old, new)| *old != new)
        .map(|(old, new)| (!old & 0xffff) + new)
        .sum()
}
