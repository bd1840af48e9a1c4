//! Headers of one family from those of the other (RFC 7915), without state: the caller knows the addresses.
//!
//! Checksums are updated by what changes (RFC 1624), so a truncated capture is translated as far as its bytes go. ICMP
//! errors are written anew with the packet that they quote. An error is made shorter by what RFC 4884 appends to the
//! quoted packet, because its length field counts in other units.

use super::super::rewrite::update;
use std::net::Ipv6Addr;
use thalweg_base::DropReason;
use thalweg_wire::checksum::{ChecksumDelta, fold, pseudo_sum, sum};
use thalweg_wire::icmp::{self, IcmpRepr, v4, v6};
use thalweg_wire::ip_protocol::{AUTHENTICATION, FRAGMENT, ICMP, ICMPV6, ROUTING, TCP, UDP};
use thalweg_wire::ipv4::{self, DONT_FRAGMENT, Ipv4Repr, MORE_FRAGMENTS, OFFSET_MASK};
use thalweg_wire::ipv6::{self, Extensions, FragmentRepr, Ipv6Repr, Ipv6View};

/// The longest packet with an IPv6 header that every link takes (RFC 8200 5).
const IPV6_MTU_MIN: u16 = 1280;
/// The bytes that an IPv6 header has more than an IPv4 header.
const LONGER: u16 = 20;
/// The longest translated IPv4 packet that routers may fragment (RFC 7915 5.1).
const FRAGMENTABLE_MAX: usize = 1260;
/// The longest header written: with a fragment header.
pub(super) const HEAD_MAX: usize = ipv6::HEADER_BYTES + FragmentRepr::BYTES;

/// Addresses of a packet, source and destination, in both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) ipv4: [u32; 2],
    pub(super) ipv6: [u128; 2],
}

/// What is read of an IPv6 header and the extension headers behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv6Head {
    pub(super) ends: [u128; 2],
    traffic_class: u8,
    hop_limit: u8,
    pub(super) protocol: u8,
    /// Where the transport header, or a fragment's payload, begins.
    pub(super) transport_at: usize,
    total: usize,
    /// Offset and flag as an IPv4 header has them, and of the identification the lower half: the upper one has no room
    /// there (RFC 7915 5.1.1).
    fragment: Option<(u16, u16)>,
}

impl Ipv6Head {
    /// Reads the headers of a packet that is as long as its header says, and may be cut behind its headers.
    pub(super) fn read(l3: &[u8]) -> Result<Self, DropReason> {
        let view = Ipv6View::new(l3).map_err(|_| DropReason::IpHeaderLength)?;
        let (total, mut fragment) = (view.total_len(), None);
        let mut extensions = Extensions::new(l3, total, view.next_header());
        for extension in extensions.by_ref() {
            match (extension.kind, l3.get(extension.at..).and_then(<[u8]>::first_chunk::<8>)) {
                (FRAGMENT, Some(&[.., a, b])) => {
                    let field = extension.fragment_field;
                    let more = if field & 1 == 0 { 0 } else { MORE_FRAGMENTS };
                    fragment = Some((field >> 3 | more, u16::from_be_bytes([a, b])));
                }
                // Segments are left, or the addresses are signed.
                (ROUTING, Some([_, _, _, 1..=u8::MAX, ..])) | (AUTHENTICATION, _) => {
                    return Err(DropReason::Nat64Packet);
                }
                (_, Some(_)) => {}
                (_, None) => return Err(DropReason::Ipv6Extension),
            }
        }
        if !extensions.is_complete() {
            return Err(DropReason::Ipv6Extension);
        }
        Ok(Self {
            ends: [view.source(), view.destination()].map(u128::from),
            traffic_class: view.traffic_class(),
            hop_limit: view.hop_limit(),
            protocol: extensions.protocol(),
            transport_at: extensions.at(),
            total,
            fragment,
        })
    }

    /// Bytes from the transport header on.
    pub(super) fn transport_len(&self) -> usize {
        self.total.saturating_sub(self.transport_at)
    }

    /// Whether it is a part of a datagram.
    pub(super) fn is_part(&self) -> bool {
        self.fragment.is_some_and(|(field, _)| field != 0)
    }

    /// The IPv4 header that takes the place of all (RFC 7915 5.1). `identification` is for a packet that has none, and
    /// routers may fragment it if `longest`, the length of the longest packet with this header, is small.
    pub(super) fn to_ipv4(
        self,
        [source, destination]: [u32; 2],
        identification: u16,
        longest: usize,
    ) -> Result<[u8; ipv4::HEADER_BYTES], DropReason> {
        let payload = self.transport_len();
        let total = ipv4::HEADER_BYTES + payload;
        let protocol = if self.protocol == ICMPV6 { ICMP } else { self.protocol };
        let fixed = if longest > FRAGMENTABLE_MAX { DONT_FRAGMENT } else { 0 };
        let (flags, identification) = self.fragment.unwrap_or((fixed, identification));
        u16::try_from(total).map_err(|_| DropReason::Nat64Packet)?;
        let header = Ipv4Repr {
            traffic_class: self.traffic_class,
            identification,
            flags_and_offset: flags,
            ttl: self.hop_limit,
            ..Ipv4Repr::new(source.into(), destination.into(), protocol, payload)
        };
        Ok(header.encode())
    }
}

/// What is read of an IPv4 header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv4Head {
    pub(super) ends: [u32; 2],
    traffic_class: u8,
    ttl: u8,
    pub(super) protocol: u8,
    pub(super) transport_at: usize,
    pub(super) total: usize,
    flags: u16,
    identification: u16,
}

impl Ipv4Head {
    /// Reads the header of a packet that may be cut behind it. Options are passed over, except a source route that has
    /// not ended (RFC 7915 4.1).
    pub(super) fn read(l3: &[u8]) -> Result<Self, DropReason> {
        let view = ipv4::Ipv4View::new(l3).map_err(|_| DropReason::IpHeaderLength)?;
        if has_source_route(view.options()) {
            return Err(DropReason::Nat64Packet);
        }
        Ok(Self {
            ends: [view.source(), view.destination()].map(u32::from),
            traffic_class: view.traffic_class(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            transport_at: view.header_len(),
            total: view.total_len(),
            flags: view.flags_and_offset(),
            identification: view.identification(),
        })
    }

    pub(super) fn is_part(&self) -> bool {
        self.flags & (OFFSET_MASK | MORE_FRAGMENTS) != 0
    }

    pub(super) fn is_later_part(&self) -> bool {
        self.flags & OFFSET_MASK != 0
    }

    /// The IPv6 header that takes its place, and its length (RFC 7915 4.1). A packet that its sender lets routers
    /// fragment, and that is too long for this MTU, gets a fragment header for that.
    pub(super) fn to_ipv6(
        self,
        [source, destination]: [u128; 2],
        mtu_bytes: usize,
    ) -> ([u8; HEAD_MAX], usize) {
        let payload = self.total.saturating_sub(self.transport_at);
        let may_be_cut = self.flags & DONT_FRAGMENT == 0 && ipv6::HEADER_BYTES + payload > mtu_bytes;
        let protocol = if self.protocol == ICMP { ICMPV6 } else { self.protocol };
        let (next_header, extra) =
            if self.is_part() || may_be_cut { (FRAGMENT, FragmentRepr::BYTES) } else { (protocol, 0) };
        let header = Ipv6Repr {
            traffic_class: self.traffic_class,
            hop_limit: self.ttl,
            ..Ipv6Repr::new(source.into(), destination.into(), next_header, payload + extra)
        };
        let field = (self.flags & OFFSET_MASK) << 3 | u16::from(self.flags & MORE_FRAGMENTS != 0);
        let fragment =
            FragmentRepr { next_header: protocol, field, identification: self.identification.into() };
        let mut bytes = [0; HEAD_MAX];
        bytes[..ipv6::HEADER_BYTES].copy_from_slice(&header.encode());
        bytes[ipv6::HEADER_BYTES..].copy_from_slice(&fragment.encode());
        (bytes, ipv6::HEADER_BYTES + extra)
    }
}

/// Whether options have a source route with addresses left (RFC 791 3.1).
fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    while let [kind, rest @ ..] = options {
        options = match (*kind, rest) {
            (END, _) => return false,
            (NO_OPERATION, _) => rest,
            (LOOSE | STRICT, [length, pointer, ..]) if pointer <= length => return true,
            (_, [length @ 2..=u8::MAX, ..]) => options.get(usize::from(*length)..).unwrap_or_default(),
            _ => return false,
        };
    }
    false
}

/// The family that a packet is translated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    Ipv4,
    Ipv6,
}

/// Rewrites type and checksum of a transport header, `length` bytes long with its payload. ICMP other than echo has no
/// such translation.
pub(super) fn change_transport(
    segment: &mut [u8],
    protocol: u8,
    toward: Toward,
    ends: &Ends,
    length: usize,
) -> Result<(), DropReason> {
    let mut delta = ChecksumDelta::default();
    let mut replace = |old: u32, new: u32| match toward {
        Toward::Ipv4 => delta.replace_u32(new, old),
        Toward::Ipv6 => delta.replace_u32(old, new),
    };
    for address in ends.ipv6 {
        address
            .to_be_bytes()
            .as_chunks::<4>()
            .0
            .iter()
            .for_each(|word| replace(0, u32::from_be_bytes(*word)));
    }
    let is_icmp = matches!(protocol, ICMP | ICMPV6);
    if is_icmp {
        // ICMP has no pseudo header, ICMPv6 has one.
        replace(0, u32::try_from(length).unwrap_or(0));
        replace(0, u32::from(ICMPV6));
        let echoes = [(v4::ECHO_REQUEST, v6::ECHO_REQUEST), (v4::ECHO_REPLY, v6::ECHO_REPLY)];
        let [kind, code, ..] = segment else { return Err(DropReason::NatIcmp) };
        let found = echoes.into_iter().find(|(old, new)| match toward {
            Toward::Ipv4 => *kind == *new,
            Toward::Ipv6 => *kind == *old,
        });
        let (old, new) = found.ok_or(DropReason::NatIcmp)?;
        let word = |kind: u8| u32::from(kind) << 8 | u32::from(*code);
        replace(word(old), word(new));
        *kind = if toward == Toward::Ipv4 { old } else { new };
    } else {
        ends.ipv4.iter().for_each(|address| replace(*address, 0));
    }
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return Ok(()),
    };
    update(segment, at, delta, protocol == UDP, &mut ChecksumDelta::default());
    Ok(())
}

/// Computes the checksum of a UDP datagram whose sender computed none: IPv6 requires one (RFC 7915 4.5).
pub(super) fn sum_up_udp(segment: &mut [u8], [source, destination]: [u128; 2]) {
    let pseudo = pseudo_of([source, destination], UDP, segment.len());
    let checksum = match !fold(sum(segment, pseudo)) {
        0 => 0xffff,
        checksum => checksum,
    };
    if let Some(field) = segment.get_mut(6..8) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

fn pseudo_of(ends: [u128; 2], protocol: u8, length: usize) -> u32 {
    let [source, destination] = ends.map(|address| Ipv6Addr::from(address).into());
    pseudo_sum(source, destination, protocol, length)
}

/// An ICMPv6 error, from its IPv6 header on, as an ICMP error. `ends` are its addresses; `quoted` finds those of the
/// quoted packet. `None` if it is damaged, or if there is no such error for IPv4.
pub(super) fn error_to_ipv4(
    l3: &[u8],
    ends: &Ends,
    identification: u16,
    quoted: impl FnOnce([u128; 2]) -> Option<[u32; 2]>,
) -> Option<Vec<u8>> {
    let head = Ipv6Head::read(l3).ok().filter(|head| !head.is_part())?;
    let message = l3.get(head.transport_at..head.total)?;
    if fold(sum(message, pseudo_of(head.ends, ICMPV6, message.len()))) != 0xffff {
        return None;
    }
    let (&[kind, code, _, _, a, b, c, d], mut quote) = message.split_first_chunk()?;
    if matches!(kind, v6::UNREACHABLE | v6::TIME_EXCEEDED) && a != 0 {
        quote = quote.get(..usize::from(a) * 8).unwrap_or(quote);
    }
    let inner = Ipv6Head::read(quote).ok()?;
    let rest = u32::from_be_bytes([a, b, c, d]);
    let shorter = if inner.fragment.is_some() { LONGER + 8 } else { LONGER };
    let header = to_icmp(kind, code, rest, shorter)?;
    let inner_ends = Ends { ipv4: quoted(inner.ends)?, ipv6: inner.ends };
    let mut segment = quote.get(inner.transport_at..)?.to_vec();
    change_transport(&mut segment, inner.protocol, Toward::Ipv4, &inner_ends, inner.transport_len()).ok()?;
    let inner_len = ipv4::HEADER_BYTES + inner.transport_len();
    let quote = [&inner.to_ipv4(inner_ends.ipv4, 0, inner_len).ok()?[..], &segment].concat();
    let total = head.transport_at + icmp::HEADER_BYTES + quote.len();
    let outer = Ipv6Head { total, fragment: None, ..head };
    let outer = outer.to_ipv4(ends.ipv4, identification, ipv4::HEADER_BYTES + outer.transport_len()).ok()?;
    Some([&outer[..], &header.encode(&quote, 0), &quote].concat())
}

/// An ICMP error, from its IPv4 header on, as an ICMPv6 error; the rest as in [`error_to_ipv4`]. Checksums have been
/// verified.
pub(super) fn error_to_ipv6(
    l3: &[u8],
    ends: &Ends,
    quoted: impl FnOnce([u32; 2]) -> Option<[u128; 2]>,
) -> Option<Vec<u8>> {
    let head = Ipv4Head::read(l3).ok().filter(|head| !head.is_part())?;
    let message = l3.get(head.transport_at..head.total)?;
    let (&[kind, code, _, _, a, b, c, d], mut quote) = message.split_first_chunk()?;
    if matches!(kind, v4::UNREACHABLE | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM) && b != 0 {
        quote = quote.get(..usize::from(b) * 4).unwrap_or(quote);
    }
    let inner = Ipv4Head::read(quote).ok()?;
    let header = to_icmpv6(kind, code, [a, b, c, d], inner.total)?;
    let inner_ends = Ends { ipv4: inner.ends, ipv6: quoted(inner.ends)? };
    let mut segment = quote.get(inner.transport_at..)?.to_vec();
    let length = inner.total.checked_sub(inner.transport_at)?;
    change_transport(&mut segment, inner.protocol, Toward::Ipv6, &inner_ends, length).ok()?;
    let (inner_header, len) = inner.to_ipv6(inner_ends.ipv6, usize::MAX);
    let mut quote = [&inner_header[..len], &segment].concat();
    quote.truncate(usize::from(IPV6_MTU_MIN) - ipv6::HEADER_BYTES - icmp::HEADER_BYTES);
    let total = head.transport_at + icmp::HEADER_BYTES + quote.len();
    let (outer, len) = Ipv4Head { total, ..head }.to_ipv6(ends.ipv6, usize::MAX);
    let pseudo = pseudo_of(ends.ipv6, ICMPV6, icmp::HEADER_BYTES + quote.len());
    Some([&outer[..len], &header.encode(&quote, pseudo), &quote].concat())
}

/// The header of the ICMP error that stands for an ICMPv6 error (RFC 7915 5.2); `shorter` is what the packet that it is
/// about loses.
fn to_icmp(kind: u8, code: u8, rest: u32, shorter: u16) -> Option<IcmpRepr> {
    let plain = |kind, code| Some(IcmpRepr { kind, code, rest: [0; 4] });
    match (kind, code) {
        (v6::UNREACHABLE, 0 | 2 | 3) => plain(v4::UNREACHABLE, 1),
        (v6::UNREACHABLE, 1) => plain(v4::UNREACHABLE, 10),
        (v6::UNREACHABLE, 4) => plain(v4::UNREACHABLE, 3),
        (v6::PACKET_TOO_BIG, _) => {
            let [_, _, high, low] = rest.saturating_sub(shorter.into()).min(0xffff).to_be_bytes();
            Some(IcmpRepr { kind: v4::UNREACHABLE, code: 4, rest: [0, 0, high, low] })
        }
        (v6::TIME_EXCEEDED, _) => plain(v4::TIME_EXCEEDED, code),
        (v6::PARAMETER_PROBLEM, 0) => {
            let pointer = match rest {
                0 => 0,
                1 => 1,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            Some(IcmpRepr { kind: v4::PARAMETER_PROBLEM, code: 0, rest: [pointer, 0, 0, 0] })
        }
        (v6::PARAMETER_PROBLEM, 1) => plain(v4::UNREACHABLE, 2),
        _ => None,
    }
}

/// MTUs of links, for routers that do not name theirs (RFC 1191 7.1), down to the smallest of IPv6.
const PLATEAUS: [u16; 7] = [65_535, 32_000, 17_914, 8166, 4352, 2002, 1492];

/// The header of the ICMPv6 error that stands for an ICMP error (RFC 7915 4.2) about a packet of this length.
fn to_icmpv6(kind: u8, code: u8, rest: [u8; 4], length: usize) -> Option<IcmpRepr> {
    let with = |kind, code, rest: u32| Some(IcmpRepr { kind, code, rest: rest.to_be_bytes() });
    match (kind, code) {
        (v4::UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => with(v6::UNREACHABLE, 0, 0),
        // The next header is at fault.
        (v4::UNREACHABLE, 2) => with(v6::PARAMETER_PROBLEM, 1, 6),
        (v4::UNREACHABLE, 3) => with(v6::UNREACHABLE, 4, 0),
        (v4::UNREACHABLE, 4) => {
            let named = u16::from_be_bytes([rest[2], rest[3]]);
            let likely = || {
                PLATEAUS.into_iter().find(|mtu| usize::from(*mtu) < length).unwrap_or(IPV6_MTU_MIN - LONGER)
            };
            let mtu = u32::from(if named == 0 { likely() } else { named });
            with(v6::PACKET_TOO_BIG, 0, (mtu + u32::from(LONGER)).max(IPV6_MTU_MIN.into()))
        }
        (v4::UNREACHABLE, 9 | 10 | 13 | 15) => with(v6::UNREACHABLE, 1, 0),
        (v4::TIME_EXCEEDED, _) => with(v6::TIME_EXCEEDED, code, 0),
        (v4::PARAMETER_PROBLEM, 0 | 2) => {
            let pointer = match rest[0] {
                0 | 1 => rest[0].into(),
                2 | 3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            with(v6::PARAMETER_PROBLEM, 0, pointer)
        }
        _ => None,
    }
}
