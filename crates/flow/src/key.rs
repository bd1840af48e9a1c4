//! Flow keys as the cache stores them, and the per-packet facts that are counted.
//!
//! A key is 3 words (IPv4) or 6 (IPv6), so that comparing and hashing take a handful of instructions:
//!
//! ```text
//! IPv4  src:32 dst:32 | src_port:16 dst_port:16 protocol:8 traffic_class:8 ingress:16 | tags
//! IPv6  src:128 | dst:128 | the same two words
//! tags  application:8 looks:4 name_looks:3 waits:1 named:1 0:3 vrf:7 has_label:1 label:20 vlan:16
//! ```
//!
//! The application and the number of packets that were searched for it ([`LOOKS_MAX`]) are not part of the
//! key, nor is what was searched for its names ([`Key::note_names`]); they use spare bits. The VRF, plus one, is 0 unless
//! there are several ([`PortVrfs`]). In a meter of biflows the lower endpoint comes first, and the owner of the key
//! remembers whether the endpoints were exchanged.

use crate::meter::options::{Bytes, KeyFields, MeterOptions};
use crate::parse::{mpls_label_of, vlan_of};
use crate::record::{FlowKey, Translation, interface_of_port, is_icmp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_base::{DropReason, LinkType, NO_PORT, Origin, Packet, PacketFlags};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use thalweg_wire::tcp::PSH;

/// Positions of fields in the word of ports and in the word of tags.
const SRC_PORT: u32 = 48;
const DST_PORT: u32 = 32;
const PROTOCOL: u32 = 24;
const TRAFFIC_CLASS: u32 = 16;
const LABEL: u32 = 16;
const HAS_LABEL: u64 = 1 << 36;
const VRF: u32 = 37;
const VRF_MASK: u64 = 0x7f << VRF;
const APPLICATION: u32 = 56;
const LOOKS: u32 = 52;
const LOOKS_MASK: u64 = 0xf << LOOKS;
const NAME_LOOKS: u32 = 49;
const NAME_LOOKS_MASK: u64 = 7 << NAME_LOOKS;
const WAITS: u64 = 1 << 48;
const NAMED: u64 = 1 << 47;
/// Bits of the tags that are not part of the key.
const NOTES_MASK: u64 = 0xff << APPLICATION | LOOKS_MASK | NAME_LOOKS_MASK | WAITS | NAMED;
/// How many packets after the first may still identify the application, counting both directions: a TCP
/// handshake, both sides' first data, and some more. Later ones do not count: among many packets some look
/// like anything.
const LOOKS_MAX: u64 = 6;

/// How many payloads of a flow are searched for names, in both directions together.
pub(crate) const NAME_LOOKS_MAX: u8 = 4;

/// What a flow has noted of the search for its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameNotes {
    /// The next payload is the first, or the last, to be looked at.
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
    /// A message waits for its rest.
    pub(crate) waits: bool,
}

/// What a flow has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look at another payload.
    Look,
    /// The same, for the rest of a message.
    Wait,
    /// Nothing: it has its name, or will not get one.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key<const WORDS: usize>(pub(crate) [u64; WORDS]);

pub(crate) type Key4 = Key<3>;
pub(crate) type Key6 = Key<6>;

/// The VRF of each port by number, in a router that has several; other ports have the first. Empty if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortVrfs<'a>(pub &'a [u16]);

impl PortVrfs<'_> {
    /// The VRF in which a packet arrived, if there are several.
    #[inline(always)]
    pub(crate) fn of(self, packet: &Packet) -> Option<u16> {
        let of_port = || self.0.get(usize::from(packet.port_in)).copied().unwrap_or(0);
        (!self.0.is_empty()).then(of_port)
    }
}

/// The facts that are counted for a packet: one cache line, because the meter keeps several blocks of them in
/// flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The key; an IPv4 key uses the first three words.
    pub(crate) words: [u64; 6],
    pub(crate) arrival_ns: u64,
    pub(crate) bytes: u32,
    pub(crate) ipv6: bool,
    /// The key has the endpoints exchanged.
    pub(crate) backward: bool,
    pub(crate) tcp_flags: u8,
    pub(crate) ttl: u8,
}

const _: () = assert!(size_of::<Facts>() == 64);

/// What the router did with a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) bytes: u32,
    pub(crate) drop: Option<DropReason>,
    pub(crate) egress: u16,
    pub(crate) translated: Option<Origin>,
}

impl Outcome {
    /// The outcome of a packet that was parsed on arrival. `origin` is the packet before NAT.
    pub(crate) fn of(packet: &Packet, frame: &[u8], origin: Option<&Origin>, bytes: u32) -> Self {
        let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
        let is_known = origin.is_some_and(Origin::is_known) && !packet.is_ipv6();
        let is_translated = is_known && packet.flags.has(PacketFlags::TRANSLATED);
        Self {
            bytes,
            drop: packet.drop_reason(),
            egress: packet.port_out,
            translated: if is_translated { translated(packet, l3) } else { None },
        }
    }
}

impl Facts {
    pub(crate) const NONE: Self =
        Self { words: [0; 6], arrival_ns: 0, bytes: 0, ipv6: false, backward: false, tcp_flags: 0, ttl: 0 };

    #[inline(always)]
    pub(crate) fn key4(&self) -> Key4 {
        Key([self.words[0], self.words[1], self.words[2]])
    }

    #[inline(always)]
    pub(crate) fn key6(&self) -> Key6 {
        Key(self.words)
    }

    /// Puts the VRF of arrival into the key.
    #[inline(always)]
    pub(crate) fn set_vrf(&mut self, vrf: Option<u16>) {
        if let Some(vrf) = vrf {
            let tags = if self.ipv6 { 5 } else { 2 };
            self.words[tags] |= (u64::from(vrf) + 1) << VRF & VRF_MASK;
        }
    }
}

/// How packets' keys are made.
#[derive(Clone, Debug)]
pub(crate) struct KeyRules {
    /// Bits of the word of ports that are kept; the others come from `unknown`.
    kept: u64,
    unknown: u64,
    fields: KeyFields,
    biflow: bool,
    count: Bytes,
}

/// The bits that distinguish flows, and the secret of the hash.
#[derive(Clone, Debug)]
pub(crate) struct Matching {
    ports: u64,
    secret: [u64; 6],
}

impl KeyRules {
    pub(crate) fn new(options: &MeterOptions) -> Self {
        let key = options.key;
        let mut unknown = 0u64;
        unknown |= if key.ports { 0 } else { 0xffff_ffff << DST_PORT };
        unknown |= if key.traffic_class { 0 } else { 0xff << TRAFFIC_CLASS };
        unknown |= if key.ingress { 0 } else { 0xffff };
        let no_port = if key.ingress { 0 } else { u64::from(NO_PORT) };
        Self { kept: !unknown, unknown: no_port, fields: key, biflow: options.biflow, count: options.count }
    }

    /// The packet's bytes by the configured way of counting.
    #[inline(always)]
    pub(crate) fn bytes_of(&self, packet: &Packet) -> u32 {
        match self.count {
            Bytes::Ip if packet.ip_len > 0 => packet.ip_len,
            _ => packet.wire_len,
        }
    }

    /// The bytes of all packets that the frame merges.
    #[inline(always)]
    pub(crate) fn wire_bytes_of(&self, packet: &Packet) -> u64 {
        match self.count {
            Bytes::Ip if packet.ip_len > 0 => packet.wire_ip_bytes(),
            _ => u64::from(packet.wire_len),
        }
    }

    /// The facts of the `nth` of the merged packets whose facts together are `whole`.
    pub(crate) fn of_segment(&self, packet: &Packet, nth: u32, whole: &Facts) -> Facts {
        let is_last = nth + 1 == packet.wire_packets();
        let tcp_flags = if is_last { whole.tcp_flags } else { whole.tcp_flags & !PSH };
        let of_frame = match self.count {
            Bytes::Ip => 0,
            Bytes::Frame => u32::from(packet.l3_offset),
        };
        Facts { tcp_flags, bytes: of_frame + packet.wire_ip_len_of(nth), ..*whole }
    }

    /// Reads the facts of this packet into `facts`, or says why it belongs to no flow. `origin` is the packet
    /// before NAT; the key is made from it.
    #[inline(always)]
    pub(crate) fn read(
        &self,
        packet: &Packet,
        frame: &[u8],
        origin: Option<&Origin>,
        facts: &mut Facts,
    ) -> Result<(), DropReason> {
        if self.read_usual(packet, frame, facts) {
            Ok(())
        } else {
            self.read_any(packet, frame, origin, facts)
        }
    }

    /// [`Self::read`] for most packets: a live one of TCP or UDP in IPv4, whole, without options, right behind an
    /// Ethernet header, and not translated. Returns `false` for any other; [`Self::read_any`] gives the same facts.
    ///
    /// It makes all checks and branches once, on their combined result, and needs half of the instructions.
    #[inline(always)]
    pub(crate) fn read_usual(&self, packet: &Packet, frame: &[u8], facts: &mut Facts) -> bool {
        let Some(header) = frame.first_chunk::<48>() else { return false };
        let is_tcp = packet.protocol == TCP;
        let is_plain = (packet.flags.0 == PacketFlags::HAS_PORTS) & packet.is_alive() & (packet.ip_len > 0);
        let is_bare =
            (packet.link == LinkType::Ethernet) & (packet.l3_offset == 14) & (packet.l4_offset == 34);
        if !(is_plain & is_bare & (is_tcp | (packet.protocol == UDP))) {
            return false;
        }
        let word = self.word(packet, (packet.src_port, packet.dst_port), packet.protocol);
        facts.words[0] = be64(header, 26);
        facts.words[1] = word;
        facts.words[2] = u64::from(packet.application) << APPLICATION;
        facts.arrival_ns = packet.arrival_ns;
        facts.bytes = self.bytes_of(packet);
        (facts.ipv6, facts.backward) = (false, false);
        facts.tcp_flags = if is_tcp { header[47] } else { 0 };
        facts.ttl = header[22];
        if self.biflow {
            facts.backward = self.exchange4(&mut facts.words, packet.protocol);
        }
        true
    }

    /// The key's word of ports.
    #[inline(always)]
    fn word(&self, packet: &Packet, (src_port, dst_port): (u16, u16), protocol: u8) -> u64 {
        let word = u64::from(src_port) << SRC_PORT
            | u64::from(dst_port) << DST_PORT
            | u64::from(protocol) << PROTOCOL
            | u64::from(packet.traffic_class) << TRAFFIC_CLASS
            | u64::from(packet.port_in);
        word & self.kept | self.unknown
    }

    /// [`Self::read`] for packets of any kind.
    #[inline(never)]
    pub(crate) fn read_any(
        &self,
        packet: &Packet,
        frame: &[u8],
        origin: Option<&Origin>,
        facts: &mut Facts,
    ) -> Result<(), DropReason> {
        if packet.ip_len == 0 || (!packet.is_alive() && is_unreadable(packet)) {
            return Err(reason(packet));
        }
        let Some(l3) = frame.get(usize::from(packet.l3_offset)..) else { return Err(reason(packet)) };
        let origin = origin.filter(|origin| packet.flags.has(PacketFlags::TRANSLATED) && origin.is_known());
        // NAT made an IPv6 packet of an IPv4 packet.
        let was_ipv4 = packet.is_ipv6() && origin.is_some();
        let protocol = match packet.protocol {
            ICMPV6 if was_ipv4 => ICMP,
            protocol => protocol,
        };
        let ports = match origin {
            Some(origin) if !is_icmp(packet.protocol) => (origin.src_port, origin.dst_port),
            _ => ports(packet, frame),
        };
        let word = self.word(packet, ports, protocol);
        let tags = self.tags(packet, frame);
        facts.backward = false;
        facts.ipv6 = packet.is_ipv6() && !was_ipv4;
        if facts.ipv6 {
            let Some(header) = l3.first_chunk::<40>() else { return Err(reason(packet)) };
            facts.ttl = header[7];
            let [src_high, src_low, dst_high, dst_low] = [8, 16, 24, 32].map(|at| be64(header, at));
            facts.words = [src_high, src_low, dst_high, dst_low, word, tags];
            if self.biflow {
                facts.backward = self.exchange6(&mut facts.words, packet.protocol);
            }
        } else {
            let Some(header) = l3.first_chunk::<20>() else { return Err(reason(packet)) };
            facts.ttl = header[if was_ipv4 { 7 } else { 8 }];
            let addresses = origin.map_or_else(|| be64(header, 12), addresses_of);
            facts.words[..3].copy_from_slice(&[addresses, word, tags]);
            if self.biflow {
                facts.backward = self.exchange4(&mut facts.words, protocol);
            }
        }
        facts.arrival_ns = packet.arrival_ns;
        facts.bytes = self.bytes_of(packet);
        facts.tcp_flags = tcp_flags(packet, frame);
        Ok(())
    }

    #[inline(always)]
    fn tags(&self, packet: &Packet, frame: &[u8]) -> u64 {
        let mut tags = u64::from(packet.application) << APPLICATION;
        if self.fields.vlan {
            tags |= u64::from(vlan_of(frame, packet));
        }
        if let (true, Some(label)) = (self.fields.mpls, mpls_label_of(frame, packet)) {
            tags |= HAS_LABEL | u64::from(label) << LABEL;
        }
        tags
    }

    /// Puts the lower endpoint first and returns whether that exchanged them.
    fn exchange4(&self, words: &mut [u64; 6], protocol: u8) -> bool {
        let (src, dst) = (words[0] >> 32, words[0] & 0xffff_ffff);
        let (src_port, dst_port) = directed_ports(words[1], protocol);
        let exchange = (src, src_port) > (dst, dst_port);
        if exchange {
            words[0] = words[0].rotate_left(32);
            words[1] = exchange_ports(words[1], protocol);
        }
        exchange
    }

    fn exchange6(&self, words: &mut [u64; 6], protocol: u8) -> bool {
        let [src_high, src_low, dst_high, dst_low, word, _] = *words;
        let (src_port, dst_port) = directed_ports(word, protocol);
        let exchange = (src_high, src_low, src_port) > (dst_high, dst_low, dst_port);
        if exchange {
            words[..4].copy_from_slice(&[dst_high, dst_low, src_high, src_low]);
            words[4] = exchange_ports(word, protocol);
        }
        exchange
    }
}

/// Ports as far as they belong to an endpoint; ICMP's type and code belong to neither.
#[inline(always)]
fn directed_ports(word: u64, protocol: u8) -> (u16, u16) {
    if is_icmp(protocol) { (0, 0) } else { ((word >> SRC_PORT) as u16, (word >> DST_PORT) as u16) }
}

#[inline(always)]
fn exchange_ports(word: u64, protocol: u8) -> u64 {
    if is_icmp(protocol) {
        return word;
    }
    let (src, dst) = (word >> SRC_PORT & 0xffff, word >> DST_PORT & 0xffff);
    word & 0xffff_ffff | dst << SRC_PORT | src << DST_PORT
}

/// Whether the packet was unreadable, so that it belongs to no flow. A packet that was dropped for another
/// reason belongs to its flow if validation read its addresses.
#[cold]
fn is_unreadable(packet: &Packet) -> bool {
    use DropReason::*;
    matches!(
        packet.drop_reason(),
        Some(
            UnsupportedLink
                | FrameTooShort
                | NotIp
                | VlanDepth
                | IpVersion
                | IpHeaderLength
                | IpTotalLength
                | Ipv6Extension
                | TransportTruncated
        )
    )
}

#[cold]
fn reason(packet: &Packet) -> DropReason {
    packet.drop_reason().unwrap_or(DropReason::NotIp)
}

/// The packet's ports as keys store them: type and code for ICMP.
#[inline(always)]
pub(crate) fn ports(packet: &Packet, frame: &[u8]) -> (u16, u16) {
    if is_icmp(packet.protocol) && !packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        let at = usize::from(packet.l4_offset);
        let code = frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        (0, code)
    } else if packet.flags.has(PacketFlags::HAS_PORTS) {
        (packet.src_port, packet.dst_port)
    } else {
        (0, 0)
    }
}

#[inline(always)]
fn tcp_flags(packet: &Packet, frame: &[u8]) -> u8 {
    if packet.protocol == TCP && !packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        frame.get(usize::from(packet.l4_offset) + 13).copied().unwrap_or(0)
    } else {
        0
    }
}

/// Both addresses before NAT, in header order.
fn addresses_of(origin: &Origin) -> u64 {
    u64::from(u32::from_be_bytes(origin.src)) << 32 | u64::from(u32::from_be_bytes(origin.dst))
}

#[inline]
fn translated(packet: &Packet, l3: &[u8]) -> Option<Origin> {
    let (src, dst) = (*l3.get(12..16)?.first_chunk()?, *l3.get(16..20)?.first_chunk()?);
    Some(Origin { src, dst, src_port: packet.src_port, dst_port: packet.dst_port })
}

pub(crate) fn translation(origin: &Origin) -> Translation {
    let (src, dst) = (Ipv4Addr::from(origin.src).into(), Ipv4Addr::from(origin.dst).into());
    Translation { src, dst, src_port: origin.src_port, dst_port: origin.dst_port }
}

#[inline(always)]
fn be64(header: &[u8], at: usize) -> u64 {
    header[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Multiplies and folds the halves of the product: each factor scrambles every bit of the other.
#[inline(always)]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Matching {
    pub(crate) fn new(options: &MeterOptions) -> Self {
        // The reverse direction arrives on another port, and perhaps with another class.
        let undirected: u64 = if options.biflow { 0xff << TRAFFIC_CLASS | 0xffff } else { 0 };
        Self { ports: !undirected, secret: secret(options.hash_key) }
    }
}

/// Expands the configured secret.
pub(crate) fn secret(key: [u64; 2]) -> [u64; 6] {
    let mut state = key[0];
    std::array::from_fn(|_| {
        state = thalweg_base::mix64(state.wrapping_add(key[1]).wrapping_add(0x9e37_79b9_7f4a_7c15));
        state
    })
}

impl<const WORDS: usize> Key<WORDS> {
    const PORTS: usize = WORDS - 2;
    const TAGS: usize = WORDS - 1;

    /// Whether both are keys of the same flow.
    #[inline(always)]
    pub(crate) fn matches(&self, other: &Self, matching: &Matching) -> bool {
        let mut difference = 0;
        for word in 0..Self::PORTS {
            difference |= self.0[word] ^ other.0[word];
        }
        difference |= (self.0[Self::PORTS] ^ other.0[Self::PORTS]) & matching.ports;
        difference |= (self.0[Self::TAGS] ^ other.0[Self::TAGS]) & !NOTES_MASK;
        difference == 0
    }

    /// A hash that is unpredictable without the secret: folded products in the manner of wyhash (Wang Yi).
    /// Different keys collide about as often as random numbers, and the secret decides which ones.
    #[inline(always)]
    pub(crate) fn hash(&self, matching: &Matching) -> u64 {
        let [a, b, c, d, e, f] = matching.secret;
        let ports = self.0[Self::PORTS] & matching.ports;
        let tags = self.0[Self::TAGS] & !NOTES_MASK;
        if WORDS == 3 {
            fold(fold(self.0[0] ^ a, ports ^ b) ^ c, tags ^ d)
        } else {
            let src = fold(self.0[0] ^ a, self.0[1] ^ b);
            let dst = fold(self.0[2] ^ c, self.0[WORDS - 3] ^ d);
            fold(src ^ ports ^ e, dst.rotate_left(29) ^ tags ^ f)
        }
    }

    /// The VRF of arrival, if there are several.
    pub(crate) fn vrf(&self) -> Option<u32> {
        u32::try_from((self.0[Self::TAGS] & VRF_MASK) >> VRF).ok()?.checked_sub(1)
    }

    pub(crate) fn application(&self) -> u8 {
        (self.0[Self::TAGS] >> APPLICATION) as u8
    }

    /// Notes the packet's application if none is known yet and the flow is young.
    #[inline(always)]
    pub(crate) fn note_application(&mut self, other: &Self) {
        let tags = &mut self.0[Self::TAGS];
        // Below this value, no application is known and some looks are left.
        if *tags & NOTES_MASK < LOOKS_MAX << LOOKS {
            *tags = (*tags + (1 << LOOKS)) | other.0[Self::TAGS] & NOTES_MASK;
        }
    }

    /// Whether payloads are still searched for the flow's names.
    #[inline(always)]
    pub(crate) fn wants_names(&self) -> bool {
        (self.0[Self::TAGS] & NAME_LOOKS_MASK) >> NAME_LOOKS < u64::from(NAME_LOOKS_MAX)
    }

    /// Whether the flow has names.
    pub(crate) fn is_named(&self) -> bool {
        self.0[Self::TAGS] & NAMED != 0
    }

    /// What is noted of the search for names.
    pub(crate) fn name_notes(&self) -> NameNotes {
        let looks = (self.0[Self::TAGS] & NAME_LOOKS_MASK) >> NAME_LOOKS;
        NameNotes {
            is_first: looks == 0,
            is_last: looks + 1 >= u64::from(NAME_LOOKS_MAX),
            waits: self.0[Self::TAGS] & WAITS != 0,
        }
    }

    /// Notes what came of searching a payload.
    pub(crate) fn note_names(&mut self, next: Next, is_named: bool) {
        let tags = &mut self.0[Self::TAGS];
        *tags = match next {
            Next::Look => (*tags + (1 << NAME_LOOKS)) & !WAITS,
            Next::Wait => (*tags + (1 << NAME_LOOKS)) | WAITS,
            Next::Done => (*tags | NAME_LOOKS_MASK) & !WAITS,
        };
        if is_named {
            *tags |= NAMED;
        }
    }

    /// The key for records; `backward` undoes the exchange of endpoints.
    pub(crate) fn flow_key(&self, backward: bool) -> FlowKey {
        let (ports, tags) = (self.0[Self::PORTS], self.0[Self::TAGS]);
        let (src, dst): (IpAddr, IpAddr) = if WORDS == 3 {
            (Ipv4Addr::from((self.0[0] >> 32) as u32).into(), Ipv4Addr::from(self.0[0] as u32).into())
        } else {
            let address = |high: u64, low: u64| Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
            (address(self.0[0], self.0[1]).into(), address(self.0[2], self.0[WORDS - 3]).into())
        };
        let key = FlowKey {
            src,
            dst,
            src_port: (ports >> SRC_PORT) as u16,
            dst_port: (ports >> DST_PORT) as u16,
            protocol: (ports >> PROTOCOL) as u8,
            traffic_class: (ports >> TRAFFIC_CLASS) as u8,
            ingress: interface_of_port(ports as u16),
            vlan: tags as u16,
            mpls_label: (tags & HAS_LABEL != 0).then_some((tags >> LABEL) as u32 & 0xf_ffff),
        };
        if backward { key.reversed() } else { key }
    }
}
