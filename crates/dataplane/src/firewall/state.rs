//! The state of one connection: TCP, UDP, an ICMP echo, or whatever two hosts exchange in another protocol.
//!
//! ```text
//!  no TCP:  Open --other end--> Answered
//!
//!  TCP:     SynSent --SYN--> SynAnswered --ACK--> Established --FIN--> FinLow | FinHigh --FIN--> Closing
//!              |                  |                    |                                           |
//!              +---- RST, proven -+-----> Aborted <----+                            a SYN begins another
//!                                                      +-- RST that may be forged --> Reset
//! ```
//!
//! A RST is proven if it names exactly the number that its receiver expects (RFC 5961 section 3.2), in an answer to a
//! SYN if it acknowledges that SYN. Any other RST may be forged: it shortens the connection's life to four minutes
//! (RFC 7857 section 2.2), or is invalid if windows are checked. After it, the end that began the connection can
//! restore it.
//!
//! With windows checked, a segment must begin at or before the right edge that its receiver has offered, and end no
//! further back than a window before what the receiver has acknowledged. Connections that were picked up without
//! their SYN are not checked, because the scale of their windows is unknown.
//!
//! Memory: one cache line per state, 64 bytes.

use super::config::Zone;
use super::flow::{FlowKey, IPV6, KEY_MARKS, UPPER_ASKS, in_vrf, out_of_vrf, transport};
use thalweg_base::{Packet, PacketFlags};
use thalweg_wire::ip_protocol::TCP;
use thalweg_wire::standby::StateEntry;
use thalweg_wire::tcp::{ACK, FIN, FLAGS_AT, HEADER_BYTES, RST, SYN, URG};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Not TCP: nobody has answered yet.
    Open,
    /// Not TCP: packets have gone both ways.
    Answered,
    SynSent,
    SynAnswered,
    Established,
    /// The lower endpoint has sent FIN.
    FinLow,
    /// The upper endpoint has sent FIN.
    FinHigh,
    /// Both have sent FIN.
    Closing,
    /// A possibly forged RST came.
    Reset,
    /// The connection was certainly refused or reset.
    Aborted,
}

impl Phase {
    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Open => "open",
            Phase::Answered => "answered",
            Phase::SynSent => "syn-sent",
            Phase::SynAnswered => "syn-answered",
            Phase::Established => "established",
            Phase::FinLow | Phase::FinHigh => "fin",
            Phase::Closing => "closing",
            Phase::Reset => "reset",
            Phase::Aborted => "aborted",
        }
    }

    /// Whether nobody has answered yet.
    pub(crate) fn is_half_open(self) -> bool {
        matches!(self, Phase::Open | Phase::SynSent)
    }

    const ALL: [Self; 10] = {
        use Phase::*;
        [Open, Answered, SynSent, SynAnswered, Established, FinLow, FinHigh, Closing, Reset, Aborted]
    };
}

/// The origin is the upper endpoint.
const ORIGIN_UPPER: u8 = 4;
/// The lower endpoint has offered a window; shifted by one for the upper one.
const OFFERED: u8 = 8;
/// TCP: the first packet seen was not a SYN.
const PICKED_UP: u8 = 32;
/// The record has a state.
const LIVE: u8 = 64;
/// Another connection has announced it.
const RELATED: u8 = 128;

/// No window scale.
const UNSCALED: u8 = 15;
/// The largest scale (RFC 7323 section 2.3).
const SCALE_MAX: u8 = 14;

/// A state's memory layout: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct State {
    addresses: [u128; 2],
    ports: [u16; 2],
    /// Last second of its life.
    pub(crate) expires_s: u32,
    /// TCP, by endpoint: the number that it expects next, as it last said.
    acknowledged: [u32; 2],
    /// TCP, by endpoint: the right edge of the window that it offers; before it offers one, the number after the
    /// SYN that it was sent.
    edges: [u32; 2],
    /// The version of the rules that admitted it.
    pub(crate) generation: u16,
    /// The rule that admitted it.
    pub(crate) rule: u16,
    protocol: u8,
    pub(crate) phase: Phase,
    /// TCP: both endpoints' window scales, four bits each.
    scales: u8,
    marks: u8,
}

const _: () = assert!(size_of::<State>() == 64);

/// What a segment means for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Belongs,
    /// It does not belong to the connection.
    Invalid,
    /// It begins another connection: this one is over.
    Begins,
}

impl State {
    /// A record without a state.
    pub(crate) const EMPTY: State = State {
        addresses: [0; 2],
        ports: [0; 2],
        expires_s: 0,
        acknowledged: [0; 2],
        edges: [0; 2],
        generation: 0,
        rule: 0,
        protocol: 0,
        phase: Phase::Open,
        scales: 0,
        marks: 0,
    };

    /// A new state, begun by the endpoint at `origin`.
    pub(crate) fn new(key: &FlowKey, origin: usize, segment: Option<&Segment>) -> Self {
        let mut state = State {
            addresses: key.addresses,
            ports: key.ports,
            protocol: key.protocol,
            marks: key.marks | LIVE | if origin == 0 { 0 } else { ORIGIN_UPPER },
            ..Self::EMPTY
        };
        if let Some(segment) = segment {
            let is_syn = segment.has(SYN);
            state.phase = if is_syn { Phase::SynSent } else { Phase::Established };
            state.marks |= if is_syn { 0 } else { PICKED_UP };
            state.note(origin, segment);
        }
        state
    }

    /// What another router gets of it: its windows mean nothing there once they have moved on.
    pub(crate) fn copy(&self, zones: (Zone, Zone)) -> StateEntry {
        let is_ipv6 = self.marks & IPV6 != 0;
        let ends = self.addresses.map(|address| if is_ipv6 { (address, 0) } else { out_of_vrf(address) });
        StateEntry {
            protocol: self.protocol,
            phase: self.phase as u8,
            is_ipv6,
            second_asks: self.marks & UPPER_ASKS != 0,
            second_began: self.marks & ORIGIN_UPPER != 0,
            zones,
            rule: self.rule,
            ports: self.ports,
            vrfs: ends.map(|(_, vrf)| vrf),
            addresses: ends.map(|(address, _)| address),
        }
    }

    /// A state from a copy; `None` if it makes no sense. A TCP connection counts as picked up.
    pub(crate) fn copied(copy: &StateEntry) -> Option<Self> {
        let phase = *Phase::ALL.get(usize::from(copy.phase))?;
        let is_tcp = copy.protocol == TCP;
        let is_of_tcp = !matches!(phase, Phase::Open | Phase::Answered);
        let addresses = [0, 1].map(|end| in_vrf(copy.addresses[end], copy.vrfs[end].into()));
        let ends = [0, 1].map(|end| (addresses[end], copy.ports[end]));
        let mark = |is_set: bool, mark: u8| if is_set { mark } else { 0 };
        let state = State {
            addresses,
            ports: copy.ports,
            protocol: copy.protocol,
            phase,
            rule: copy.rule,
            marks: LIVE
                | mark(is_tcp, PICKED_UP)
                | mark(copy.is_ipv6, IPV6)
                | mark(copy.second_asks, UPPER_ASKS)
                | mark(copy.second_began, ORIGIN_UPPER),
            ..Self::EMPTY
        };
        (is_tcp == is_of_tcp && ends[0] <= ends[1]).then_some(state)
    }

    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        self.marks & LIVE != 0
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> FlowKey {
        FlowKey {
            addresses: self.addresses,
            ports: self.ports,
            protocol: self.protocol,
            marks: self.marks & KEY_MARKS,
        }
    }

    /// Says that another connection has announced it.
    pub(crate) fn set_related(&mut self) {
        self.marks |= RELATED;
    }

    pub(crate) fn is_related(&self) -> bool {
        self.marks & RELATED != 0
    }

    /// The endpoint that began the connection.
    #[inline(always)]
    pub(crate) fn origin(&self) -> usize {
        usize::from(self.marks & ORIGIN_UPPER != 0)
    }

    /// Handles a packet that is not TCP.
    #[inline(always)]
    pub(crate) fn receive(&mut self, from: usize) {
        if from != self.origin() && self.phase == Phase::Open {
            self.phase = Phase::Answered;
        }
    }

    /// Handles a TCP segment from an endpoint.
    pub(crate) fn receive_segment(&mut self, from: usize, segment: &Segment, checks_windows: bool) -> Fate {
        if !segment.is_sound() {
            return Fate::Invalid;
        }
        let (is_origin, syn, ack) = (from == self.origin(), segment.has(SYN), segment.has(ACK));
        if segment.has(RST) {
            return self.receive_reset(from, segment, checks_windows);
        }
        match self.phase {
            Phase::Closing | Phase::Reset | Phase::Aborted if syn && !ack => return Fate::Begins,
            // Nobody has answered, so there is nothing to acknowledge.
            Phase::SynSent if is_origin && !syn => return Fate::Invalid,
            // An ACK alone: the other end still has an old connection, which the origin will reset.
            Phase::SynSent if !is_origin && syn => self.phase = Phase::SynAnswered,
            Phase::SynAnswered if is_origin && ack && !syn => self.phase = Phase::Established,
            Phase::Reset if is_origin && ack => self.phase = Phase::Established,
            _ => {}
        }
        let is_open = matches!(self.phase, Phase::Established | Phase::FinLow | Phase::FinHigh);
        if checks_windows && is_open && !self.is_in_window(from, segment) {
            return Fate::Invalid;
        }
        let of_fin = [Phase::FinLow, Phase::FinHigh];
        if segment.has(FIN) {
            self.phase = match self.phase {
                Phase::Established | Phase::SynAnswered => of_fin[from],
                phase if phase == of_fin[1 - from] => Phase::Closing,
                phase => phase,
            };
        }
        // In an open connection a SYN is answered with an ACK and changes nothing (RFC 5961 section 4.2). What the
        // other end says of an old connection is not about this one.
        let is_of_another = syn && is_open || self.phase == Phase::SynSent && !is_origin;
        if !is_of_another {
            self.note(from, segment);
        }
        Fate::Belongs
    }

    fn receive_reset(&mut self, from: usize, segment: &Segment, checks_windows: bool) -> Fate {
        let receiver = 1 - from;
        let is_proven = match (segment.numbers, self.phase) {
            (None, _) => false,
            (Some(numbers), Phase::SynSent) if from != self.origin() => {
                segment.has(ACK) && numbers.acknowledged == self.edges[from]
            }
            (Some(_), Phase::SynSent) => true,
            (Some(numbers), _) => {
                self.has_offered(receiver) && numbers.sequence == self.acknowledged[receiver]
            }
        };
        match self.phase {
            _ if is_proven => self.phase = Phase::Aborted,
            _ if checks_windows && self.marks & PICKED_UP == 0 => return Fate::Invalid,
            Phase::Established | Phase::FinLow | Phase::FinHigh => self.phase = Phase::Reset,
            _ => {}
        }
        Fate::Belongs
    }

    #[inline(always)]
    fn has_offered(&self, end: usize) -> bool {
        self.marks & OFFERED << end != 0
    }

    fn is_in_window(&self, from: usize, segment: &Segment) -> bool {
        let receiver = 1 - from;
        let Some(numbers) = segment.numbers else { return true };
        if self.marks & PICKED_UP != 0 || !self.has_offered(receiver) {
            return true;
        }
        let (acknowledged, edge) = (self.acknowledged[receiver], self.edges[receiver]);
        let back = edge.wrapping_sub(acknowledged).max(u32::from(u16::MAX));
        let end = numbers.sequence.wrapping_add(segment.length);
        !is_after(numbers.sequence, edge) && !is_after(acknowledged.wrapping_sub(back), end)
    }

    /// Remembers what a segment says about numbers and windows.
    fn note(&mut self, from: usize, segment: &Segment) {
        let Some(numbers) = segment.numbers else { return };
        if segment.has(SYN) {
            let scale = segment.scale.map_or(UNSCALED, |scale| scale.min(SCALE_MAX));
            self.scales = self.scales & !(15 << (4 * from)) | scale << (4 * from);
            if !self.has_offered(1 - from) {
                self.edges[1 - from] = numbers.sequence.wrapping_add(1);
            }
        }
        if !segment.has(ACK) {
            return;
        }
        let scale = if segment.has(SYN) { 0 } else { self.scale(from) };
        let edge = numbers.acknowledged.wrapping_add(u32::from(numbers.window) << scale);
        let is_first = !self.has_offered(from);
        if is_first || is_after(numbers.acknowledged, self.acknowledged[from]) {
            self.acknowledged[from] = numbers.acknowledged;
        }
        if is_first || is_after(edge, self.edges[from]) {
            self.edges[from] = edge;
        }
        self.marks |= OFFERED << from;
    }

    /// The scale of an endpoint's windows: none unless both have offered to scale.
    fn scale(&self, end: usize) -> u8 {
        let [low, high] = [self.scales & 15, self.scales >> 4];
        if low == UNSCALED || high == UNSCALED { 0 } else { [low, high][end] }
    }
}

/// Whether a sequence number comes after another.
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// What the firewall reads of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    flags: u8,
    /// The room that it takes in the sequence: its data, SYN and FIN.
    length: u32,
    /// The window scale that a SYN offers.
    scale: Option<u8>,
    /// `None` if the header is not at hand.
    numbers: Option<Numbers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    sequence: u32,
    acknowledged: u32,
    window: u16,
}

impl Segment {
    /// Assumed of a segment whose header is not at hand.
    const UNKNOWN: Self = Self { flags: ACK, length: 0, scale: None, numbers: None };

    pub(crate) fn of(packet: &Packet, l3: &[u8]) -> Self {
        if packet.flags.has(PacketFlags::LATER_FRAGMENT) {
            return Self::UNKNOWN;
        }
        let Some(segment) = transport(packet, l3) else { return Self::UNKNOWN };
        let Some(header) = segment.first_chunk::<HEADER_BYTES>() else { return Self::UNKNOWN };
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let flags = header[FLAGS_AT];
        let header_len = header[12] >> 4 << 2;
        let before = u32::from(packet.l4_offset - packet.l3_offset) + u32::from(header_len);
        let data = packet.ip_len.saturating_sub(before);
        let counts = |flag: u8| u32::from(flags & flag != 0);
        let options = segment.get(HEADER_BYTES..usize::from(header_len)).filter(|_| flags & SYN != 0);
        Self {
            flags,
            length: data + counts(SYN) + counts(FIN),
            scale: options.and_then(window_scale),
            numbers: Some(Numbers {
                sequence: word(4),
                acknowledged: word(8),
                window: u16::from_be_bytes([header[14], header[15]]),
            }),
        }
    }

    #[inline(always)]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether a stack could have sent these flags. PSH and ECN's flags may be anywhere.
    pub(crate) fn is_sound(&self) -> bool {
        const SYN_URG: u8 = SYN | URG;
        const SYN_ACK: u8 = SYN | ACK;
        const RST_ACK: u8 = RST | ACK;
        const FIN_ACK: u8 = FIN | ACK;
        const FIN_ACK_URG: u8 = FIN | ACK | URG;
        const ACK_URG: u8 = ACK | URG;
        matches!(
            self.flags & (FIN | SYN | RST | ACK | URG),
            SYN | SYN_URG | SYN_ACK | RST | RST_ACK | FIN_ACK | FIN_ACK_URG | ACK | ACK_URG
        )
    }

    /// Whether it can begin a connection: a SYN, or, where the firewall picks up connections, a plain
    /// acknowledgment with its header.
    pub(crate) fn can_begin(&self, picks_up: bool) -> bool {
        let kind = self.flags & (FIN | SYN | RST | ACK);
        self.is_sound() && (kind == SYN || picks_up && kind == ACK && self.numbers.is_some())
    }
}

/// The shift of the window scale option (RFC 7323 section 2.2).
fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match *options {
            [0, ..] | [] | [_] => return None,
            [1, ref rest @ ..] => options = rest,
            [3, 3, shift, ..] => return Some(shift),
            [_, length, ..] => options = options.get(usize::from(length).max(2)..)?,
        }
    }
}
