//! Ingress: finds the IP packet inside the frame, decides whether a router may forward it at all, and records what
//! later stages need.
//!
//! RFC 1812 5.2.2 lists the checks for IPv4 (length, checksum, version, header length, total length, in that
//! order); 5.3.7 and RFC 6890 define the martians. RFC 8200 defines the IPv6 header chain; RFC 1858 is why a first
//! fragment must hold the whole fixed part of the transport header.
//!
//! Fragments: only the first fragment has ports. All fragments of a datagram, the first included, are hashed
//! without ports, so that they take one path. NAT, which needs the ports of later ones, gets them from the fragment
//! tracker.
//!
//! A packet that the capture cut short (`wire_len` larger than the bytes at hand) is not malformed: its lengths are
//! checked against the wire.
//!
//! Broadcast and multicast destinations are recognized before the source is checked, regardless of `drop_martians`:
//! they are for the hosts of the link and for the router itself, and never forwarded or translated. A host without
//! an address (0.0.0.0, `::`) may send to them; DHCP begins that way.
//!
//! A unicast packet in a frame to a broadcast or multicast MAC address is not forwarded either (RFC 1812 5.3.4). A
//! DHCP server's answer must reach the router itself although its destination, the offered address, is not the
//! router's yet. It counts as local before it is routed, if its frame is addressed to the client that it names, or
//! to all on the link, as some servers send it (RFC 2131 4.1 requires the broadcast IP address then, too).
//!
//! VLAN tags (IEEE 802.1Q) are followed. On a port with sub-interfaces the tag selects one of them. On ports that
//! exist only in captures tags mean nothing, and up to two are skipped. See [`crate::vlan`].
//!
//! Missing: IPv4 options are passed through unexamined; tunnels are not decapsulated.

use crate::vlan::VlanTable;
use ipnet::IpNet;
use std::hint::select_unpredictable;
use std::net::Ipv4Addr;
use thalweg_base::{
    Batch, DropReason, LinkType, NO_PORT, Packet, PacketFlags, UNKNOWN_PORT, mix64, symmetric_flow_hash,
};
use thalweg_wire::ipv6::Extensions;
use thalweg_wire::{EtherType, ip_protocol};

/// Guesses the ingress port of a packet without one: the port whose network contains the source address, else the
/// port toward the rest of the world.
#[derive(Clone, Debug, Default)]
pub struct PortGuess {
    v4: Vec<(u32, u32, u16)>,
    v6: Vec<(u128, u128, u16)>,
    fallback: Option<u16>,
}

impl PortGuess {
    /// Takes the connected networks of each port, and the port for all other sources.
    pub fn new(connected: impl IntoIterator<Item = (IpNet, u16)>, fallback: Option<u16>) -> Self {
        let mut guess = Self { fallback, ..Self::default() };
        for (net, port) in connected {
            match net {
                IpNet::V4(n) => guess.v4.push((n.network().into(), n.netmask().into(), port)),
                IpNet::V6(n) => guess.v6.push((n.network().into(), n.netmask().into(), port)),
            }
        }
        // Longest last: the last match wins, so nested networks resolve as in routing.
        guess.v4.sort_by_key(|&(_, mask, _)| mask);
        guess.v6.sort_by_key(|&(_, mask, _)| mask);
        guess
    }

    // Both versions scan every network: there are few, and which one matches cannot be predicted.

    #[inline(always)]
    fn port_for_v4(&self, source: u32) -> Option<u16> {
        let step = |found, &(net, mask, port): &(u32, u32, u16)| {
            if source & mask == net { Some(port) } else { found }
        };
        self.v4.iter().fold(self.fallback, step)
    }

    #[inline(always)]
    fn port_for_v6(&self, source: u128) -> Option<u16> {
        let step = |found, &(net, mask, port): &(u128, u128, u16)| {
            if source & mask == net { Some(port) } else { found }
        };
        self.v6.iter().fold(self.fallback, step)
    }
}

/// The ingress stage. It has no state and may run on any batch.
#[derive(Clone, Debug, Default)]
pub struct Ingress {
    /// Whether packets with addresses that must not be forwarded are dropped, as RFC 1812 requires.
    pub drop_martians: bool,
    /// The guess for packets without a port.
    pub port_guess: PortGuess,
    pub vlans: VlanTable,
    pub broadcasts: BroadcastSet,
}

/// Packets between the prefetch of a frame and its use.
const AHEAD: usize = 8;
/// Bytes of an Ethernet header without tags.
const ETHERNET: usize = 14;
/// What is read of a usual packet: up to the length field of a TCP header.
const USUAL_BYTES: usize = 34;

/// The addresses of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub source: u32,
    pub destination: u32,
}

/// The broadcast addresses of connected IPv4 networks.
#[derive(Clone, Debug)]
pub struct BroadcastSet {
    /// Whether some broadcast address ends in this byte: one load per packet instead of a search.
    maybe: [bool; 256],
    /// Sorted.
    addresses: Vec<u32>,
}

impl BroadcastSet {
    /// A set of these addresses.
    pub fn new(addresses: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let mut addresses: Vec<u32> = addresses.into_iter().map(u32::from).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut maybe = [false; 256];
        for address in &addresses {
            maybe[usize::from(*address as u8)] = true;
        }
        Self { maybe, addresses }
    }

    fn contains(&self, address: u32) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }
}

impl Default for BroadcastSet {
    fn default() -> Self {
        Self { maybe: [false; 256], addresses: Vec::new() }
    }
}

impl Ingress {
    /// Validates every packet of the batch. Returns whether any is a fragment.
    pub fn process(&self, batch: &mut Batch<'_>) -> bool {
        self.process_and(batch, |_, _, _| (), |_, _| ())
    }

    /// The same with two callbacks, of which each packet reaches one with its frame: `usual` if it passed and is of
    /// the usual kind, while what is known of it is in registers; else `other`, dropped packets too.
    #[inline(always)]
    pub fn process_and(
        &self,
        batch: &mut Batch<'_>,
        mut usual: impl FnMut(&mut Packet, &[u8], Addresses),
        mut other: impl FnMut(&mut Packet, &[u8]),
    ) -> bool {
        let mut fragments = false;
        for i in 0..batch.len() {
            batch.prefetch_frame(i + AHEAD);
            let (packet, frame) = batch.packet_and_frame(i);
            if packet.is_alive() {
                if let Some(addresses) = self.validate_usual(packet, frame) {
                    usual(packet, frame, addresses);
                    continue;
                }
                fragments |= self.validate_any(packet, frame);
            }
            other(packet, frame);
        }
        fragments
    }

    /// Validates a packet of the usual kind: IPv4 without options, complete, behind an Ethernet header or none,
    /// with TCP or UDP, not a fragment. Returns `None`, without any change, if the packet is of another kind or
    /// faulty: then [`Self::validate_any`] decides. For usual packets both give the same result.
    ///
    /// All checks are computed without branches, so only one branch is left, which is well predicted.
    #[inline(always)]
    fn validate_usual(&self, packet: &mut Packet, frame: &[u8]) -> Option<Addresses> {
        // The group bit as a number: 0 if the frame is for one neighbor. Offsets of two kinds of links, each a constant.
        match packet.link {
            LinkType::Ethernet => {
                let start = frame.first_chunk::<{ ETHERNET + USUAL_BYTES }>()?;
                if start[12..ETHERNET] != EtherType::IPV4.to_be_bytes() {
                    return None;
                }
                self.validate_header::<ETHERNET>(
                    packet,
                    frame,
                    start[ETHERNET..].first_chunk()?,
                    u32::from(start[0] & 1),
                )
            }
            LinkType::RawIp => self.validate_header::<0>(packet, frame, frame.first_chunk()?, 0),
            _ => None,
        }
    }

    #[inline(always)]
    fn validate_header<const L3: usize>(
        &self,
        packet: &mut Packet,
        frame: &[u8],
        header: &[u8; USUAL_BYTES],
        group: u32,
    ) -> Option<Addresses> {
        // The header as words, first byte lowest; after them the ports, and a UDP header's length.
        let ([first, fragment, ttl_protocol, src, dst, ports, more, ..], _) = header.as_chunks::<4>() else {
            return None;
        };
        let [first, fragment, ttl_protocol, src, dst] =
            [first, fragment, ttl_protocol, src, dst].map(|word| u32::from_le_bytes(*word));
        let (ports, more) = (u32::from_be_bytes(*ports), u32::from_be_bytes(*more));
        let total_len = i64::from(((first >> 16) as u16).swap_bytes());
        let protocol = (ttl_protocol >> 8) as u8;
        let tcp = protocol == ip_protocol::TCP;
        let (least, claimed) =
            select_unpredictable(tcp, (20, i64::from(header[32] >> 4) * 4), (8, i64::from(more >> 16)));
        // A term of `short` is negative if something is too short; a term of `odd` is nonzero if something is
        // unusual.
        let short = (claimed - least)
            | (total_len - 20 - claimed)
            | ((frame.len() - L3) as i64 - total_len)
            | (i64::from(ttl_protocol & 0xff) - 1);
        let odd = (first & 0xff ^ 0x45) | (fragment >> 16 & 0xff3f) | group;
        let transport = tcp | (protocol == ip_protocol::UDP);
        let addresses = USUAL_ADDRESS[usize::from(src as u8)] & USUAL_ADDRESS[usize::from(dst as u8)];
        let may_be_for_all = self.broadcasts.maybe[usize::from((dst >> 24) as u8)];
        let forwardable = addresses & (src != dst) & !may_be_for_all & (ports != DHCP_TO_CLIENT);
        let sum = [first, fragment, ttl_protocol, src, dst].map(u64::from).into_iter().sum::<u64>();
        if (short < 0) | (odd != 0) | !transport | !forwardable | !is_all_ones(sum) {
            return None;
        }
        let (src, dst) = (src.swap_bytes(), dst.swap_bytes());
        if packet.port_in >= UNKNOWN_PORT {
            packet.port_in = self.guess_port_v4(packet.port_in, src)?;
        }
        packet.l3_offset = L3 as u16;
        packet.l4_offset = L3 as u16 + 20;
        packet.ip_len = total_len as u32;
        packet.protocol = protocol;
        packet.traffic_class = (first >> 8) as u8;
        packet.flags.set(PacketFlags::HAS_PORTS);
        let (src_port, dst_port) = ((ports >> 16) as u16, ports as u16);
        packet.src_port = src_port;
        packet.dst_port = dst_port;
        packet.flow_hash = symmetric_flow_hash(
            u64::from(src) << 16 | u64::from(src_port),
            u64::from(dst) << 16 | u64::from(dst_port),
            protocol,
        );
        Some(Addresses { source: src, destination: dst })
    }

    /// Guesses the port of a packet without one. A separate function, because live packets never need it.
    #[inline(never)]
    fn guess_port_v4(&self, known: u16, source: u32) -> Option<u16> {
        if known == NO_PORT { self.port_guess.port_for_v4(source) } else { None }
            .filter(|port| *port != UNKNOWN_PORT)
    }

    /// Validates a packet of any kind, and drops it if it is faulty. Returns whether it is a fragment.
    fn validate_any(&self, packet: &mut Packet, frame: &[u8]) -> bool {
        match self.validate(packet, frame) {
            Ok(()) => packet.flags.has(PacketFlags::FRAGMENT),
            Err(reason) => {
                packet.drop_for(reason);
                false
            }
        }
    }

    fn validate(&self, packet: &mut Packet, frame: &[u8]) -> Result<(), DropReason> {
        let (l3_offset, version) = self.link_layer(packet, frame)?;
        packet.l3_offset = l3_offset as u16;
        let l3 = frame.get(l3_offset..).ok_or(DropReason::FrameTooShort)?;
        let wire_l3_len = (packet.wire_len as usize).max(frame.len()) - l3_offset;
        if version == 4 {
            self.validate_ipv4(packet, l3, wire_l3_len)?;
        } else {
            self.validate_ipv6(packet, l3, wire_l3_len)?;
        }
        // All other destinations are unicast.
        match (went_to_group(packet.link, frame), dhcp_client(packet, frame)) {
            (true, Some(_)) => Err(DropReason::NotUnicast),
            (true, None) => Err(DropReason::LinkBroadcast),
            // Answers to clients beyond the router come in frames to the router that name another MAC address.
            (false, Some(client)) if frame.get(..6) == Some(client) => Err(DropReason::Local),
            (false, _) => Ok(()),
        }
    }

    #[inline(always)]
    fn validate_ipv4(&self, packet: &mut Packet, l3: &[u8], wire_len: usize) -> Result<(), DropReason> {
        let header: &[u8; 20] = l3.first_chunk().ok_or(DropReason::IpHeaderLength)?;
        if header[0] >> 4 != 4 {
            return Err(DropReason::IpVersion);
        }
        let header_len = usize::from(header[0] & 15) * 4;
        if header_len < 20 || header_len > l3.len() {
            return Err(DropReason::IpHeaderLength);
        }
        let total_len = usize::from(be16(header, 2));
        if total_len < header_len || total_len > wire_len {
            return Err(DropReason::IpTotalLength);
        }
        if !ipv4_checksum_holds(header, &l3[20..header_len]) {
            return Err(DropReason::IpChecksum);
        }
        let src = be32(header, 12);
        let dst = be32(header, 16);
        if is_group_v4(dst) || self.broadcasts.contains(dst) {
            return Err(self.not_unicast(ipv4_may_send_to_all(src)));
        }
        if self.drop_martians {
            ipv4_forwardable(src, dst)?;
        }
        if header[8] == 0 {
            return Err(DropReason::TtlExpired);
        }
        packet.ip_len = total_len as u32;
        packet.l4_offset = packet.l3_offset + header_len as u16;
        packet.protocol = header[9];
        packet.traffic_class = header[1];
        let fragment = be16(header, 6) & 0x3fff;
        if fragment != 0 {
            packet.flags.set(PacketFlags::FRAGMENT);
            if fragment & 0x1fff != 0 {
                packet.flags.set(PacketFlags::LATER_FRAGMENT);
            }
        }
        transport(packet, &l3[header_len..], total_len - header_len)?;
        self.resolve_port(packet, |guess| guess.port_for_v4(src))?;
        packet.flow_hash = flow_hash(packet, u64::from(src), u64::from(dst));
        Ok(())
    }

    fn validate_ipv6(&self, packet: &mut Packet, l3: &[u8], wire_len: usize) -> Result<(), DropReason> {
        let header: &[u8; 40] = l3.first_chunk().ok_or(DropReason::IpHeaderLength)?;
        if header[0] >> 4 != 6 {
            return Err(DropReason::IpVersion);
        }
        let total_len = 40 + usize::from(be16(header, 4));
        if total_len > wire_len {
            return Err(DropReason::IpTotalLength);
        }
        let src = be128(header, 8);
        let dst = be128(header, 24);
        if dst >> 120 == 0xff {
            return Err(self.not_unicast(src >> 120 != 0xff && (src == 0 || !is_never_v6(src))));
        }
        if self.drop_martians {
            ipv6_forwardable(src, dst)?;
        }
        if header[7] == 0 {
            return Err(DropReason::TtlExpired);
        }
        packet.flags.set(PacketFlags::IPV6);
        packet.ip_len = total_len as u32;
        packet.traffic_class = (header[0] << 4) | (header[1] >> 4);
        let l4 = ipv6_chain(packet, header[6], l3, total_len)?;
        packet.l4_offset = packet.l3_offset + l4 as u16;
        transport(packet, l3.get(l4..).unwrap_or_default(), total_len - l4)?;
        self.resolve_port(packet, |guess| guess.port_for_v6(src))?;
        packet.flow_hash = flow_hash_of_ipv6(packet, src, dst);
        Ok(())
    }

    /// The drop reason of a broadcast or multicast packet; `may_send` says whether its source may send one.
    fn not_unicast(&self, may_send: bool) -> DropReason {
        if may_send || !self.drop_martians { DropReason::NotUnicast } else { DropReason::MartianSource }
    }

    #[inline(always)]
    fn resolve_port(
        &self,
        packet: &mut Packet,
        guess: impl Fn(&PortGuess) -> Option<u16>,
    ) -> Result<(), DropReason> {
        if packet.port_in == NO_PORT {
            packet.port_in = guess(&self.port_guess).unwrap_or(UNKNOWN_PORT);
        }
        if packet.port_in == UNKNOWN_PORT { Err(DropReason::UnknownPort) } else { Ok(()) }
    }

    /// The offset of the IP header, and the version that the link layer announces.
    #[inline(always)]
    fn link_layer(&self, packet: &mut Packet, frame: &[u8]) -> Result<(usize, u8), DropReason> {
        match packet.link {
            LinkType::Ethernet => {
                let header: &[u8; 14] = frame.first_chunk().ok_or(DropReason::FrameTooShort)?;
                match EtherType(be16(header, 12)) {
                    EtherType::IPV4 => Ok((14, 4)),
                    ether_type => self.ethernet_beyond(packet, ether_type, frame, 14),
                }
            }
            LinkType::RawIp => match frame.first().map(|b| b >> 4) {
                Some(4) => Ok((0, 4)),
                Some(6) => Ok((0, 6)),
                Some(_) => Err(DropReason::IpVersion),
                None => Err(DropReason::FrameTooShort),
            },
            LinkType::LinuxCooked => {
                let header: &[u8; 16] = frame.first_chunk().ok_or(DropReason::FrameTooShort)?;
                self.ethernet_beyond(packet, EtherType(be16(header, 14)), frame, 16)
            }
            LinkType::LinuxCooked2 => {
                let header: &[u8; 20] = frame.first_chunk().ok_or(DropReason::FrameTooShort)?;
                self.ethernet_beyond(packet, EtherType(be16(header, 0)), frame, 20)
            }
            LinkType::BsdLoopback => {
                // The family is in the byte order of the capturing machine; all values fit one byte.
                let family: &[u8; 4] = frame.first_chunk().ok_or(DropReason::FrameTooShort)?;
                match family[0] | family[3] {
                    2 => Ok((4, 4)),
                    24 | 28 | 30 => Ok((4, 6)),
                    _ => Err(DropReason::NotIp),
                }
            }
            // Links of captures and flow records, which are never a router's ports.
            LinkType::Ppp
            | LinkType::CiscoHdlc
            | LinkType::FrameRelay
            | LinkType::Fddi
            | LinkType::Ieee80211
            | LinkType::Radiotap
            | LinkType::NetfilterLog
            | LinkType::Unsupported => Err(DropReason::UnsupportedLink),
        }
    }

    /// Follows VLAN tags from the type field at the end of a link-layer header. Sets `l3_offset` for frames other
    /// than IP too, for the host (ARP).
    fn ethernet_beyond(
        &self,
        packet: &mut Packet,
        mut ether_type: EtherType,
        frame: &[u8],
        mut offset: usize,
    ) -> Result<(usize, u8), DropReason> {
        for _ in 0..3 {
            match ether_type {
                EtherType::IPV4 => return Ok((offset, 4)),
                EtherType::IPV6 => return Ok((offset, 6)),
                EtherType::VLAN | EtherType::QINQ | EtherType::QINQ_OLD => {
                    let tag = frame.get(offset..offset + 4).ok_or(DropReason::FrameTooShort)?;
                    packet.port_in = self.vlans.port_behind(packet.port_in, be16_at(tag, 0))?;
                    ether_type = EtherType(be16_at(tag, 2));
                    offset += 4;
                }
                _ => {
                    packet.l3_offset = offset as u16;
                    return Err(DropReason::NotIp);
                }
            }
        }
        Err(DropReason::VlanDepth)
    }
}

/// Whether the checksum over a header of 20 bytes and its options holds. Native byte order is fine: a sum of 16-bit
/// words that is all ones in one byte order is so in the other (RFC 1071 2.B).
#[inline(always)]
fn ipv4_checksum_holds(header: &[u8; 20], options: &[u8]) -> bool {
    let word = |at: usize| {
        u64::from(u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
    };
    let mut sum = word(0) + word(4) + word(8) + word(12) + word(16);
    if !options.is_empty() {
        for word in options.chunks_exact(4) {
            sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum == 0xffff
}

/// Whether an unfolded sum of 16-bit words, in any byte order, folds to all ones: it must be divisible by 65,535
/// and not zero, which the sum of a header with a version never is. A multiple of 65,535 gives a small result when
/// multiplied by the inverse (Granlund and Montgomery, 1994, section 9).
#[inline(always)]
fn is_all_ones(sum: u64) -> bool {
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    const _: () = assert!(INVERSE.wrapping_mul(0xffff) == 1);
    sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

/// For each first byte, whether all its addresses may be source and destination of a forwarded packet. 169 contains
/// the link-local addresses, so it is not usual.
const USUAL_ADDRESS: [bool; 256] = {
    let mut usual = [false; 256];
    let mut top = 1;
    while top < 224 {
        usual[top] = top != 127 && top != 169;
        top += 1;
    }
    usual
};

/// Whether the link layer delivered the frame to a group.
fn went_to_group(link: LinkType, frame: &[u8]) -> bool {
    // In cooked captures: to all, to a group (packet(7), PACKET_BROADCAST and PACKET_MULTICAST).
    let is_group_type = |kind: Option<&u8>| matches!(kind, Some(1 | 2));
    match link {
        LinkType::Ethernet => frame.first().is_some_and(|byte| byte & 1 != 0),
        LinkType::LinuxCooked => is_group_type(frame.get(1)),
        LinkType::LinuxCooked2 => is_group_type(frame.get(10)),
        _ => false,
    }
}

/// The ports of a DHCP server's answer, as the first word of a UDP header.
const DHCP_TO_CLIENT: u32 = 67 << 16 | 68;
/// Offsets in a DHCP message (RFC 2131 2): operation, length of link-layer addresses, the client's address.
const DHCP_OP: usize = 0;
const DHCP_HLEN: usize = 2;
const DHCP_CHADDR: usize = 28;
const DHCP_REPLY: u8 = 2;

/// The MAC address of the client that a DHCP server answers; `None` for other packets.
fn dhcp_client<'a>(packet: &Packet, frame: &'a [u8]) -> Option<&'a [u8]> {
    let ports = u32::from(packet.src_port) << 16 | u32::from(packet.dst_port);
    if ports != DHCP_TO_CLIENT || packet.protocol != ip_protocol::UDP || packet.link != LinkType::Ethernet {
        return None;
    }
    let message = frame.get(usize::from(packet.l4_offset) + 8..)?;
    let client = message.get(DHCP_CHADDR..DHCP_CHADDR + 6)?;
    (message[DHCP_OP] == DHCP_REPLY && message[DHCP_HLEN] == 6).then_some(client)
}

/// Multicast and limited broadcast.
fn is_group_v4(dst: u32) -> bool {
    dst >> 28 == 0xe || dst == u32::MAX
}

/// Whether a broadcast or multicast packet may have this source: a host's address, or 0.0.0.0.
fn ipv4_may_send_to_all(src: u32) -> bool {
    let top = src >> 24;
    src == 0 || (top != 0 && top != 127 && top < 224)
}

/// Rejects unicast packets with addresses that must not be forwarded (RFC 1812 5.3.7, RFC 6890).
fn ipv4_forwardable(src: u32, dst: u32) -> Result<(), DropReason> {
    let src_top = src >> 24;
    let dst_top = dst >> 24;
    if src_top == 0 || src_top == 127 || src_top >= 224 || src == dst {
        return Err(DropReason::MartianSource);
    }
    if dst_top == 0 || dst_top == 127 || dst_top >= 240 {
        return Err(DropReason::MartianDestination);
    }
    if src >> 16 == 0xa9fe || dst >> 16 == 0xa9fe {
        return Err(DropReason::LinkLocal);
    }
    Ok(())
}

/// ::/96 contains the unspecified address, loopback and the obsolete IPv4-compatible addresses; ::ffff:0:0/96 never
/// occurs on the wire.
fn is_never_v6(address: u128) -> bool {
    address >> 32 == 0 || address >> 32 == 0xffff
}

/// The IPv6 version of [`ipv4_forwardable`].
fn ipv6_forwardable(src: u128, dst: u128) -> Result<(), DropReason> {
    if is_never_v6(src) || src >> 120 == 0xff || src == dst {
        return Err(DropReason::MartianSource);
    }
    if is_never_v6(dst) {
        return Err(DropReason::MartianDestination);
    }
    if src >> 118 == 0x3fa || dst >> 118 == 0x3fa {
        return Err(DropReason::LinkLocal);
    }
    Ok(())
}

/// Walks the extension headers and sets protocol and fragment flags. Returns the offset of the transport header
/// from the start of the IP header.
fn ipv6_chain(packet: &mut Packet, first: u8, l3: &[u8], total_len: usize) -> Result<usize, DropReason> {
    let mut extensions = Extensions::new(l3, total_len, first);
    for extension in extensions.by_ref() {
        if extension.is_fragment() {
            packet.flags.set(PacketFlags::FRAGMENT);
        }
        if extension.is_later_fragment() {
            packet.flags.set(PacketFlags::LATER_FRAGMENT);
        }
    }
    packet.protocol = extensions.protocol();
    if extensions.is_complete() { Ok(extensions.at()) } else { Err(DropReason::Ipv6Extension) }
}

/// Reads ports (or the identifier of an ICMP echo). `len` is the transport length according to the IP header;
/// `bytes` may hold less if the capture was cut, or more if the frame was padded.
///
/// TCP and UDP alternate at random in real traffic, so the common case computes both lengths and selects one: a
/// mispredicted branch would cost more.
#[inline(always)]
fn transport(packet: &mut Packet, bytes: &[u8], len: usize) -> Result<(), DropReason> {
    let tcp = packet.protocol == ip_protocol::TCP;
    let ports = tcp | (packet.protocol == ip_protocol::UDP);
    let plain = ports & !packet.flags.has(PacketFlags::FRAGMENT);
    let (true, Some(start)) = (plain, bytes.first_chunk::<14>()) else {
        return transport_carefully(packet, bytes, len);
    };
    let tcp_len = usize::from(start[12] >> 4) * 4;
    let udp_len = usize::from(be16(start, 4));
    let (least, claimed) = select_unpredictable(tcp, (20, tcp_len), (8, udp_len));
    if (claimed < least) | (claimed > len) {
        return Err(DropReason::TransportTruncated);
    }
    packet.src_port = be16(start, 0);
    packet.dst_port = be16(start, 2);
    packet.flags.set(PacketFlags::HAS_PORTS);
    Ok(())
}

/// The same for fragments, ICMP, other protocols and truncated packets.
fn transport_carefully(packet: &mut Packet, bytes: &[u8], len: usize) -> Result<(), DropReason> {
    if packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        return Ok(());
    }
    let bytes = &bytes[..bytes.len().min(len)];
    let least = match packet.protocol {
        ip_protocol::TCP => 20,
        ip_protocol::UDP | ip_protocol::ICMP | ip_protocol::ICMPV6 => 8,
        _ => return Ok(()),
    };
    let (true, Some(start)) = (len >= least, bytes.first_chunk::<8>()) else {
        return Err(DropReason::TransportTruncated);
    };
    let whole = !packet.flags.has(PacketFlags::FRAGMENT);
    let claimed = match packet.protocol {
        // A TCP header that the capture cut before its length field is not malformed.
        ip_protocol::TCP => bytes.get(12).map_or(least, |byte| usize::from(byte >> 4) * 4),
        ip_protocol::UDP => usize::from(be16(start, 4)),
        icmp => {
            let echo: &[u8] = if icmp == ip_protocol::ICMP { &[0, 8] } else { &[128, 129] };
            if echo.contains(&start[0]) {
                packet.src_port = be16(start, 4);
                packet.dst_port = packet.src_port;
                packet.flags.set(PacketFlags::HAS_PORTS);
            }
            return Ok(());
        }
    };
    if claimed < least || whole && claimed > len {
        return Err(DropReason::TransportTruncated);
    }
    packet.src_port = be16(start, 0);
    packet.dst_port = be16(start, 2);
    packet.flags.set(PacketFlags::HAS_PORTS);
    Ok(())
}

#[inline(always)]
fn flow_hash(packet: &Packet, src: u64, dst: u64) -> u32 {
    let with_ports =
        packet.flags.0 & (PacketFlags::HAS_PORTS | PacketFlags::FRAGMENT) == PacketFlags::HAS_PORTS;
    let (a, b) = if with_ports {
        (src << 16 | u64::from(packet.src_port), dst << 16 | u64::from(packet.dst_port))
    } else {
        (src << 16, dst << 16)
    };
    symmetric_flow_hash(a, b, packet.protocol)
}

/// The flow hash of an IPv6 packet between these addresses, as validation computes it.
pub(crate) fn flow_hash_of_ipv6(packet: &Packet, source: u128, destination: u128) -> u32 {
    flow_hash(packet, fold128(source), fold128(destination))
}

/// The flow hash of a fragment whose ports are known: that of the flow's whole packets. A fragment's own hash is
/// without ports, so that all fragments of a datagram take one path.
pub fn flow_hash_of_fragment(packet: &Packet, l3: &[u8]) -> u32 {
    let address = |at: usize, bytes: usize| {
        l3.get(at..at + bytes)
            .unwrap_or_default()
            .iter()
            .fold(0, |address, byte| address << 8 | u128::from(*byte))
    };
    let (src, dst) =
        if packet.is_ipv6() { (address(8, 16), address(24, 16)) } else { (address(12, 4), address(16, 4)) };
    let has_ports = packet.flags.has(PacketFlags::HAS_PORTS);
    let (src_port, dst_port) = if has_ports { (packet.src_port, packet.dst_port) } else { (0, 0) };
    flow_hash_between((src, src_port), (dst, dst_port), packet.is_ipv6(), packet.protocol)
}

/// The flow hash of whole packets between two endpoints; the ports of protocols without ports are 0.
pub(crate) fn flow_hash_between(a: (u128, u16), b: (u128, u16), is_ipv6: bool, protocol: u8) -> u32 {
    let endpoint = |(address, port): (u128, u16)| {
        let folded = if is_ipv6 { fold128(address) } else { address as u64 };
        folded << 16 | u64::from(port)
    };
    symmetric_flow_hash(endpoint(a), endpoint(b), protocol)
}

fn fold128(address: u128) -> u64 {
    mix64((address >> 64) as u64 ^ (address as u64).rotate_left(17))
}

#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The address at offset `at` of an IPv6 header.
pub(crate) fn be128(header: &[u8; 40], at: usize) -> u128 {
    header[at..at + 16].iter().fold(0, |a, &b| a << 8 | u128::from(b))
}

#[cfg(test)]
mod tests;
