//! NAT64 (RFC 6146): IPv6 hosts inside reach IPv4 hosts outside, by the sessions of NAT44.
//!
//! ```text
//!   from inside:  IPv6 packet --> IPv4 packet from the host's number --> NAT44: source becomes public
//!   from outside: NAT44: destination becomes the number --> IPv6 packet to the host
//! ```
//!
//! Each shard gives an IPv6 host that has sessions a *number*, which has the form of an IPv4 address (`hosts.rs`). So
//! sessions, public ports, timers, limits, filters, events and hairpins are NAT44's, and know nothing of IPv6. A keyed
//! hash of the host's address is its *home*: labels find a session's shard by it, and the number is the home or, if
//! another host of the shard has that, one behind it.
//!
//! `translate.rs` writes the headers (RFC 7915), `prefix.rs` the addresses (RFC 6052). A packet that NAT refuses is IPv6
//! again, so the host is told what happened by ICMPv6. A packet that dies later is translated back like any other: the
//! router's ICMP error about it goes to its public address, and through NAT to the host.
//!
//! | RFC | here |
//! |---|---|
//! | 6146 3.5 sessions for TCP, UDP, ICMP echo | yes; packets of other protocols are dropped as `nat-protocol` |
//! | 6146 3.4 fragments | translated one by one; later ones as NAT44's, by the ports of their first |
//! | 7915 4.5 UDP without a checksum | it is computed; a fragment without one is dropped as `nat64-packet` |
//! | 7915 4.1 IPv4 packets that may be cut | get a fragment header if they exceed the MTU of the inside ports |
//! | 7915 4.2, 5.2 ICMP errors | both ways with the quoted packet; MTUs are adjusted by the header sizes |
//! | 6791 source of errors | the session's public address; toward IPv6 a public address, if the prefix may not stand for the router's |
//!
//! A frame that merges segments is translated once. Then all its segments may be fragmented by IPv4 routers, or none, as
//! its longest; RFC 7915 decides packet by packet.
//!
//! Missing: static mappings for IPv6 hosts, hosts of one-to-one pairs, helpers (RFC 6384), RFC 4884 extensions of errors
//! (left out), source routes back to the sender of an error (RFC 7915 4.1 wants one).

mod hosts;
mod prefix;
pub(super) mod testing;
mod translate;

pub use prefix::Nat64Prefix;

pub(super) use hosts::{Hosts6, is_number};

use super::config::{Nat64Config, NatProtocol};
use super::endpoint::{End, Inside};
use super::rewrite;
use super::shard::{NatShard, at_hand};
use std::net::IpAddr;
use thalweg_base::{Batch, Chunk, ChunkBuilder, DropReason, Packet, PacketFlags};
use thalweg_wire::icmp::{self, v6};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use thalweg_wire::ipv4;
use translate::{Ends, Ipv4Head, Ipv6Head, Toward};

/// The most bytes that a packet grows by: an ICMP error by two headers, one with a fragment header.
const GROWTH_MAX: usize = 2 * 20 + 8;

/// Makes room in a chunk for the packets that may become IPv6.
pub(super) fn make_room(chunk: &mut Chunk) {
    let may_grow = |packet: &&Packet| packet.flags.has(PacketFlags::NAT_IN) && packet.is_alive();
    let room = |packet: &Packet| {
        ChunkBuilder::HEADROOM + usize::from(packet.l3_offset) + packet.l3_captured_len() + GROWTH_MAX
    };
    let bytes: usize = chunk.packets().iter().filter(may_grow).map(room).sum();
    chunk.make_room(bytes);
}

/// What decides where the session of an IPv6 packet from inside is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outward {
    pub(super) host: u128,
    pub(super) protocol: NatProtocol,
    pub(super) port: u16,
    /// The IPv4 endpoint: of an error, the one that sent the packet that it quotes.
    pub(super) remote: u32,
    pub(super) remote_port: u16,
}

impl Outward {
    /// Of a packet; `None` if it goes to no IPv4 host, and an error if it may not.
    pub(super) fn of(prefix: &Nat64Prefix, packet: &Packet, l3: &[u8]) -> Option<Result<Self, DropReason>> {
        let header = l3.first_chunk::<40>()?;
        let [source, destination] = [8, 24].map(|at| crate::ingress::be128(header, at));
        let remote = prefix.extract(destination)?;
        // A source with the prefix would come back here (RFC 6146 3.5, 5.2).
        if prefix.forbids(remote) || prefix.extract(source).is_some() {
            return Some(Err(DropReason::Nat64Address));
        }
        let Some(protocol) = protocol_of(packet.protocol) else { return Some(Err(DropReason::NatProtocol)) };
        if packet.flags.has(PacketFlags::HAS_PORTS) {
            let (port, remote_port) = (packet.src_port, packet.dst_port);
            return Some(Ok(Self { host: source, protocol, port, remote, remote_port }));
        }
        if packet.flags.has(PacketFlags::LATER_FRAGMENT) {
            return Some(Err(DropReason::FragmentWithoutFirst));
        }
        let l3 = &l3[..l3.len().min(crate::records::place(packet.ip_len))];
        let quoted = quoted(l3).filter(|quoted| quoted.ends[0] == destination);
        let of_quoted = |quoted: Quoted| Self {
            host: quoted.ends[1],
            protocol: quoted.protocol,
            port: quoted.ports[1],
            remote,
            remote_port: quoted.ports[0],
        };
        Some(quoted.map(of_quoted).ok_or(DropReason::NatIcmp))
    }
}

fn protocol_of(number: u8) -> Option<NatProtocol> {
    match number {
        TCP => Some(NatProtocol::Tcp),
        UDP => Some(NatProtocol::Udp),
        ICMPV6 => Some(NatProtocol::Icmp),
        _ => None,
    }
}

/// What an ICMPv6 error quotes.
struct Quoted {
    ends: [u128; 2],
    protocol: NatProtocol,
    /// For ICMP echo, twice the identifier.
    ports: [u16; 2],
}

/// The packet that an ICMPv6 error quotes; `None` if it is no error, or about no session.
fn quoted(l3: &[u8]) -> Option<Quoted> {
    let message = l3.get(Ipv6Head::read(l3).ok()?.transport_at..)?;
    (*message.first()? < 128).then_some(())?;
    let quote = message.get(icmp::HEADER_BYTES..)?;
    let head = Ipv6Head::read(quote).ok()?;
    let protocol = protocol_of(head.protocol)?;
    let segment = quote.get(head.transport_at..)?;
    let is_echo = matches!(segment.first()?, &(v6::ECHO_REQUEST | v6::ECHO_REPLY));
    let [source, destination] = match protocol {
        NatProtocol::Icmp if is_echo => [4, 4],
        NatProtocol::Icmp => return None,
        _ => [0, 2],
    };
    let port = |at: usize| rewrite::get_u16(segment, at);
    Some(Quoted { ends: head.ends, protocol, ports: [port(source)?, port(destination)?] })
}

/// An IPv6 packet before it became IPv4.
pub(super) struct Before {
    number: u32,
    l3_offset: u16,
    l4_offset: u16,
    ip_len: u32,
    protocol: u8,
    /// The bytes that changed, and where they begin.
    changed: Changed,
    changed_at: usize,
}

/// Bytes that NAT64 changes in place.
enum Changed {
    /// An IPv4 header's worth, and the beginning of the transport header.
    Headers([u8; CHANGED_MAX], usize),
    All(Vec<u8>),
}

const CHANGED_MAX: usize = 40;

impl Before {
    fn of(packet: &Packet, number: u32, changed: Changed, changed_at: usize) -> Self {
        let (l3_offset, l4_offset) = (packet.l3_offset, packet.l4_offset);
        let (ip_len, protocol) = (packet.ip_len, packet.protocol);
        Self { number, l3_offset, l4_offset, ip_len, protocol, changed, changed_at }
    }

    fn restore(&self, batch: &mut Batch<'_>, i: usize) {
        let packet = &mut batch.packets_mut()[i];
        (packet.l3_offset, packet.l4_offset) = (self.l3_offset, self.l4_offset);
        (packet.ip_len, packet.protocol) = (self.ip_len, self.protocol);
        packet.flags.set(PacketFlags::IPV6);
        let bytes = match &self.changed {
            Changed::Headers(bytes, len) => &bytes[..*len],
            Changed::All(bytes) => bytes,
        };
        let (_, l3) = batch.packet_and_l3(i);
        if let Some(place) = l3.get_mut(self.changed_at..self.changed_at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

impl NatShard {
    /// Translates an IPv6 packet from inside, after time was advanced. Returns the record of the session.
    #[cold]
    pub(super) fn translate_ipv6(&mut self, batch: &mut Batch<'_>, i: usize) -> Option<usize> {
        let before = self.make_ipv4(batch, i)?;
        let (packet, l3) = batch.packet_and_l3(i);
        let sought = self.sought(End::Source, packet, l3);
        let session = self.translate(End::Source, packet, l3, sought);
        self.finish_ipv4(batch, i, &before);
        session
    }

    /// Makes an IPv6 packet from inside an IPv4 packet from its host's number, or drops it. Time must have been advanced.
    pub(super) fn make_ipv4(&mut self, batch: &mut Batch<'_>, i: usize) -> Option<Before> {
        let (packet, l3) = batch.packet_and_l3(i);
        let l3 = at_hand(packet, l3);
        self.write_ipv4(packet, l3).map_err(|reason| packet.drop_for(reason)).ok()
    }

    /// Ends what [`Self::make_ipv4`] began, after NAT has translated the packet or refused it.
    pub(super) fn finish_ipv4(&mut self, batch: &mut Batch<'_>, i: usize, before: &Before) {
        let packet = &batch.packets()[i];
        if packet.is_alive() {
            self.counters.nat64_out += u64::from(packet.wire_packets());
        } else {
            before.restore(batch, i);
        }
        self.hosts6.release(before.number);
    }

    fn write_ipv4(&mut self, packet: &mut Packet, l3: &mut [u8]) -> Result<Before, DropReason> {
        let prefix = self.layout.nat64.ok_or(DropReason::NatProtocol)?.prefix;
        let head = Ipv6Head::read(l3)?;
        let [source, destination] = head.ends;
        let remote = prefix.extract(destination).ok_or(DropReason::Nat64Address)?;
        let identification = self.identification.wrapping_add(1);
        // Of the packets that a frame merges, each gets the next.
        let packets = u16::try_from(packet.wire_packets()).unwrap_or(1);
        self.identification = self.identification.wrapping_add(packets);
        let is_error = packet.protocol == ICMPV6 && !packet.flags.has(PacketFlags::HAS_PORTS);
        if !is_error {
            let home = self.layout.home_of(source);
            let number = self.hosts6.take(home, source).ok_or(DropReason::NatTableFull)?;
            let written = write_ipv4_header(packet, l3, head, [number, remote], identification);
            if written.is_err() {
                self.hosts6.release(number);
            }
            return written;
        }
        let host = quoted(l3).ok_or(DropReason::NatIcmp)?.ends[1];
        let number = self.hosts6.number_of(host).ok_or(DropReason::NatIcmp)?;
        let ends = Ends { ipv4: [number, remote], ipv6: head.ends };
        let quoted = |[from, to]: [u128; 2]| Some([prefix.extract(from)?, (to == host).then_some(number)?]);
        let error = translate::error_to_ipv4(l3, &ends, identification, quoted);
        let error = error.ok_or(DropReason::NatIcmp)?;
        // The outer header alone is this much shorter.
        let at = head.transport_at - ipv4::HEADER_BYTES;
        let before = Before::of(packet, number, Changed::All(l3.to_vec()), 0);
        let place = l3.get_mut(at..at + error.len()).ok_or(DropReason::NatIcmp)?;
        place.copy_from_slice(&error);
        self.hosts6.hold(number);
        become_ipv4(packet, at);
        packet.ip_len = u32::try_from(error.len()).map_err(|_| DropReason::NatIcmp)?;
        Ok(before)
    }

    /// Makes a translated packet IPv6 if its destination is the number of a host.
    pub(super) fn make_ipv6(&mut self, batch: &mut Batch<'_>, i: usize) {
        let (packet, l3) = batch.packet_and_l3(i);
        let is_candidate =
            packet.is_alive() && !packet.is_ipv6() && packet.flags.has(PacketFlags::TRANSLATED);
        let (true, Some((_, destination))) = (is_candidate, rewrite::addresses(l3)) else { return };
        let Some(host) = self.hosts6.address(destination) else { return };
        match self.write_ipv6(batch, i, host) {
            Ok(()) => self.counters.nat64_in += u64::from(batch.packets()[i].wire_packets()),
            Err(reason) => batch.packets_mut()[i].drop_for(reason),
        }
    }

    fn write_ipv6(&self, batch: &mut Batch<'_>, i: usize, host: u128) -> Result<(), DropReason> {
        let Nat64Config { prefix, mtu_bytes } = self.layout.nat64.ok_or(DropReason::NatProtocol)?;
        let (packet, l3) = batch.packet_and_l3(i);
        let l3 = at_hand(packet, l3);
        let head = Ipv4Head::read(l3)?;
        let [source, number] = head.ends;
        let is_error = packet.protocol == ICMP && !packet.flags.has(PacketFlags::HAS_PORTS);
        // Routers may have addresses that do not go through; the translator speaks for them.
        let own = || self.layout.addresses.first().copied().filter(|_| is_error);
        let source = Some(source).filter(|source| !prefix.forbids(*source)).or_else(own);
        let source = source.filter(|source| !prefix.forbids(*source)).ok_or(DropReason::Nat64Address)?;
        let ends = Ends { ipv4: head.ends, ipv6: [prefix.embed(source), host] };
        if is_error {
            let quoted = |[from, to]: [u32; 2]| (from == number).then(|| [host, prefix.embed(to)]);
            let error = translate::error_to_ipv6(l3, &ends, quoted).ok_or(DropReason::NatIcmp)?;
            become_ipv6(batch, i, head.total, &error)?;
            let packet = &mut batch.packets_mut()[i];
            packet.l4_offset = packet.l3_offset + 40;
            return Ok(());
        }
        let (is_whole, length) = (l3.len() >= head.total, head.total - head.transport_at);
        let segment = l3.get_mut(head.transport_at..).unwrap_or_default();
        if head.protocol == ICMP && head.is_part() {
            return Err(DropReason::Nat64Packet);
        }
        if head.is_later_part() {
            // It has no transport header.
        } else if head.protocol == UDP && rewrite::get_u16(segment, 6) == Some(0) {
            if head.is_part() || !is_whole {
                return Err(DropReason::Nat64Packet);
            }
            translate::sum_up_udp(segment, ends.ipv6);
        } else {
            translate::change_transport(segment, head.protocol, Toward::Ipv6, &ends, length)?;
        }
        // A frame that merges segments is cut into these.
        let mtu_bytes = if packet.segment_bytes().is_some() { usize::MAX } else { mtu_bytes.into() };
        let (header, len) = head.to_ipv6(ends.ipv6, mtu_bytes);
        become_ipv6(batch, i, head.transport_at, &header[..len])?;
        let packet = &mut batch.packets_mut()[i];
        packet.l4_offset = packet.l3_offset + u16::try_from(len).unwrap_or(0);
        Ok(())
    }

    /// The IPv6 host of a session's inside address.
    pub(super) fn host_of(&self, inside: u32) -> Option<u128> {
        self.hosts6.address(inside)
    }

    /// The inside address as it is on the wire.
    pub(super) fn address_of(&self, inside: u32) -> IpAddr {
        self.hosts6.ip_of(inside)
    }

    /// What decides a session's shard: its inside address, of an IPv6 host its home.
    pub(super) fn home_of(&self, inside: Inside) -> Inside {
        let host = self.host_of(inside.address);
        Inside { address: host.map_or(inside.address, |host| self.layout.home_of(host)), ..inside }
    }
}

/// Makes a packet that is no ICMP error IPv4, between these ends.
fn write_ipv4_header(
    packet: &mut Packet,
    l3: &mut [u8],
    head: Ipv6Head,
    ends: [u32; 2],
    identification: u16,
) -> Result<Before, DropReason> {
    if packet.protocol == ICMPV6 && head.is_part() {
        // The checksums of the two families differ by the length of all fragments.
        return Err(DropReason::Nat64Packet);
    }
    let at = head.transport_at - ipv4::HEADER_BYTES;
    let longest = crate::records::place(packet.wire_ip_len_max()).saturating_sub(at);
    let header = head.to_ipv4(ends, identification, longest)?;
    let changed = l3.get(at..).unwrap_or_default();
    let changed = &changed[..changed.len().min(CHANGED_MAX)];
    let mut bytes = [0; CHANGED_MAX];
    bytes[..changed.len()].copy_from_slice(changed);
    let before = Before::of(packet, ends[0], Changed::Headers(bytes, changed.len()), at);
    if !packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        let (length, ends) = (head.transport_len(), Ends { ipv4: ends, ipv6: head.ends });
        let segment = l3.get_mut(head.transport_at..).unwrap_or_default();
        translate::change_transport(segment, packet.protocol, Toward::Ipv4, &ends, length)?;
    }
    let place = l3.get_mut(at..head.transport_at).ok_or(DropReason::Ipv6Extension)?;
    place.copy_from_slice(&header);
    become_ipv4(packet, at);
    Ok(before)
}

/// The descriptor of a packet that became IPv4, `at` bytes behind its former beginning.
fn become_ipv4(packet: &mut Packet, at: usize) {
    // Headers fit a frame's offsets.
    let shift = u16::try_from(at).unwrap_or(0);
    packet.l3_offset += shift;
    packet.ip_len = packet.ip_len.saturating_sub(shift.into());
    packet.l4_offset = packet.l3_offset + 20;
    packet.flags.0 &= !PacketFlags::IPV6;
    packet.protocol = if packet.protocol == ICMPV6 { ICMP } else { packet.protocol };
}

/// Replaces the first `old` bytes of an IPv4 packet by those of an IPv6 packet.
fn become_ipv6(batch: &mut Batch<'_>, i: usize, old: usize, new: &[u8]) -> Result<(), DropReason> {
    let ip_len = batch.packets()[i].ip_len.saturating_sub(u32::try_from(old).unwrap_or(0));
    if let Some(by) = new.len().checked_sub(old) {
        batch.grow_l3(i, by).then_some(()).ok_or(DropReason::Nat64Packet)?;
    } else {
        batch.packets_mut()[i].l3_offset += u16::try_from(old - new.len()).unwrap_or(0);
    }
    let (packet, l3) = batch.packet_and_l3(i);
    l3.get_mut(..new.len()).ok_or(DropReason::Nat64Packet)?.copy_from_slice(new);
    packet.ip_len = ip_len + u32::try_from(new.len()).unwrap_or(0);
    packet.flags.set(PacketFlags::IPV6);
    packet.protocol = if packet.protocol == ICMP { ICMPV6 } else { packet.protocol };
    Ok(())
}
