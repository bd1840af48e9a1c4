//! Packets for tests, benchmarks and fuzzing: IPv4 packets with correct checksums, a stand-in for the stages before
//! NAT, and a check that recomputes checksums.

use super::config::{
    AddressPair, BlockAllocation, NatConfig, NatProtocol, PortForward, PortSelection, SubscriberConfig,
};
use super::events::{Happening, NatLogging};
use super::label::Labeler;
use super::rewrite::{addresses, get_u16};
use super::stage::NatStage;
use std::net::{Ipv4Addr, SocketAddrV4};
use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, Packet, PacketFlags, mix64};
use thalweg_wire::checksum::{finish, fold, pseudo_ipv4, sum};
use thalweg_wire::icmp::IcmpRepr;
use thalweg_wire::ip_protocol::{ICMP, TCP, UDP};
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::testing;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
/// The inside port of test configurations.
pub const INSIDE: u16 = 1;
/// The outside port of test configurations.
pub const OUTSIDE: u16 = 0;

/// A configuration with one inside port, 192.168.0.0/16 behind it, and this many public addresses from 198.51.100.1
/// on.
pub fn config(public_addresses: u8) -> NatConfig {
    NatConfig {
        outside_port: OUTSIDE,
        inside_ports: vec![INSIDE],
        public_addresses: (1..=public_addresses).map(|n| [198, 51, 100, n].into()).collect(),
        untranslated: [([192, 168, 0, 0].into(), 16u8)]
            .iter()
            .filter_map(|&(network, length)| Some((0, ipnet::Ipv4Net::new(network, length).ok()?)))
            .collect(),
        ..NatConfig::default()
    }
}

/// An IPv4 packet around a transport segment. `fragment` is the flags and offset word.
pub fn ipv4(source: u32, destination: u32, protocol: u8, fragment: u16, segment: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        identification: 0x1234,
        flags_and_offset: fragment,
        ..Ipv4Repr::new(source.into(), destination.into(), protocol, segment.len())
    };
    testing::ipv4(header, segment)
}

fn between(from: SocketAddrV4, to: SocketAddrV4, protocol: u8, segment: &[u8]) -> Vec<u8> {
    ipv4((*from.ip()).into(), (*to.ip()).into(), protocol, 0, segment)
}

/// A UDP packet.
pub fn udp(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    between(from, to, UDP, &testing::udp_segment(from.into(), to.into(), payload))
}

/// A TCP packet with these flags.
pub fn tcp(from: SocketAddrV4, to: SocketAddrV4, flags: u8) -> Vec<u8> {
    tcp_numbered(from, to, flags, [0; 2])
}

/// The same, with its sequence and acknowledgement numbers.
pub fn tcp_numbered(from: SocketAddrV4, to: SocketAddrV4, flags: u8, numbers: [u32; 2]) -> Vec<u8> {
    between(from, to, TCP, &testing::tcp_segment(from.into(), to.into(), flags, numbers, &[]))
}

/// An ICMP message.
pub fn icmp(source: u32, destination: u32, kind: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let header = IcmpRepr { kind, code: 0, rest }.encode(body, 0);
    ipv4(source, destination, ICMP, 0, &[&header[..], body].concat())
}

/// An ICMP echo request (8) or reply (0).
pub fn echo(source: u32, destination: u32, kind: u8, identifier: u16) -> Vec<u8> {
    let id = identifier.to_be_bytes();
    icmp(source, destination, kind, [id[0], id[1], 0, 1], b"echo")
}

/// A packet of the given protocol between two endpoints; the source's port is the identifier for ICMP.
pub fn any(protocol: NatProtocol, from: SocketAddrV4, to: SocketAddrV4, flags: u8) -> Vec<u8> {
    match protocol {
        NatProtocol::Tcp => tcp(from, to, flags),
        NatProtocol::Udp => udp(from, to, b"data"),
        NatProtocol::Icmp => echo((*from.ip()).into(), (*to.ip()).into(), 8, from.port()),
    }
}

/// Stands in for the stages before NAT: checks the IPv4 header and fills in the descriptor.
pub fn describe(packet: &mut Packet, l3: &[u8]) {
    packet.l3_offset = 0;
    packet.flow_hash = mix64(u64::from(packet.index)) as u32;
    let header = usize::from(l3.first().map_or(0, |b| b & 15)) * 4;
    if header < 20 || l3.len() < header || l3[0] >> 4 != 4 {
        return packet.drop_for(DropReason::IpHeaderLength);
    }
    let total = get_u16(l3, 2).unwrap_or(0);
    if usize::from(total) < header || u32::from(total) > packet.wire_len {
        return packet.drop_for(DropReason::IpTotalLength);
    }
    if finish(sum(&l3[..header], 0)) != 0 {
        return packet.drop_for(DropReason::IpChecksum);
    }
    packet.ip_len = u32::from(total);
    packet.l4_offset = header as u16;
    packet.protocol = l3[9];
    let fragment = get_u16(l3, 6).unwrap_or(0);
    if fragment & 0x3fff != 0 {
        packet.flags.set(PacketFlags::FRAGMENT);
    }
    if fragment & 0x1fff != 0 {
        return packet.flags.set(PacketFlags::LATER_FRAGMENT);
    }
    let segment = &l3[header..l3.len().min(usize::from(total).max(header))];
    let ports = match packet.protocol {
        6 | 17 => get_u16(segment, 0).zip(get_u16(segment, 2)),
        1 if matches!(segment.first(), Some(0 | 8)) => get_u16(segment, 4).map(|id| (id, id)),
        1 if segment.len() >= 8 => return,
        1 => None,
        _ => return,
    };
    match ports {
        Some((source, destination)) => {
            (packet.src_port, packet.dst_port) = (source, destination);
            packet.flags.set(PacketFlags::HAS_PORTS);
        }
        None => packet.drop_for(DropReason::TransportTruncated),
    }
}

/// A chunk of these packets (port in, bytes, length on the wire), described.
pub fn chunk(packets: &[(u16, &[u8], u32)], now_ns: u64) -> Chunk {
    let bytes: usize = packets.iter().map(|p| p.1.len() + ChunkBuilder::HEADROOM).sum();
    let mut builder = ChunkBuilder::with_capacity(bytes);
    for &(port_in, frame, wire_len) in packets {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
        builder.push(at, frame.len(), wire_len, now_ns, LinkType::RawIp, port_in, 0);
    }
    let mut chunk = builder.finish(0, 1, now_ns);
    let (mut batch, _) = chunk.whole();
    for i in 0..batch.len() {
        let (packet, l3) = batch.packet_and_l3(i);
        describe(packet, l3);
    }
    chunk
}

/// Labels a chunk, and gives packets that NAT does not touch a shard too.
pub fn label(labeler: &Labeler, chunk: &mut Chunk, shards: u16) {
    let (mut batch, _) = chunk.whole();
    let mut crosses = false;
    for i in 0..batch.len() {
        let (packet, l3) = batch.packet_and_l3(i);
        labeler.label(packet, l3);
        if packet.shard == thalweg_base::NO_SHARD {
            packet.shard = packet.flow_hash as u16 % shards;
        }
        crosses |= packet.crossing_shard != thalweg_base::NO_SHARD;
    }
    chunk.crosses_shards = crosses;
    labeler.make_room(chunk);
}

/// Which checksum is wrong, or what is missing.
#[derive(Debug, thiserror::Error)]
pub enum WrongChecksum {
    #[error("{0} of {1:02x?}")]
    Wrong(&'static str, Vec<u8>),
    #[error("{0}")]
    Short(&'static str),
}

impl From<&'static str> for WrongChecksum {
    fn from(what: &'static str) -> Self {
        Self::Short(what)
    }
}

/// Verifies all checksums of a complete IPv4 packet, including those of a quoted packet as far as it is quoted; the
/// error says which is wrong.
pub fn checksums(l3: &[u8]) -> Result<(), WrongChecksum> {
    let wrong = |what| Err(WrongChecksum::Wrong(what, l3.to_vec()));
    let header = usize::from(l3.first().ok_or("empty")? & 15) * 4;
    let total = usize::from(get_u16(l3, 2).ok_or("short")?);
    let (source, destination) = addresses(l3).ok_or("short")?;
    if finish(sum(l3.get(..header).ok_or("short header")?, 0)) != 0 {
        return wrong("IP header");
    }
    if get_u16(l3, 6).ok_or("short")? & 0x3fff != 0 || l3.len() < total {
        return Ok(()); // the transport checksum cannot be verified
    }
    let segment = l3.get(header..total).ok_or("length")?;
    let checksum_at = [(1, 2), (6, 16), (17, 6)].into_iter().find(|&(protocol, _)| protocol == l3[9]);
    if checksum_at.is_some_and(|(_, at)| segment.len() < at + 2) {
        return wrong("room for the checksum");
    }
    match l3[9] {
        protocol @ (6 | 17) => {
            let absent = protocol == 17 && get_u16(segment, 6) == Some(0);
            let pseudo = pseudo_ipv4(source, destination, protocol, segment.len() as u16);
            if !absent && fold(sum(segment, pseudo)) != 0xffff {
                return wrong("transport");
            }
        }
        1 => {
            if fold(sum(segment, 0)) != 0xffff {
                return wrong("ICMP");
            }
            if matches!(segment.first(), Some(3 | 4 | 11 | 12)) {
                return checksums(segment.get(8..).ok_or("no quote")?);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Runs fuzzer input against a small NAT: packets made by recipe, answers and ICMP errors derived from its output,
/// damaged copies, raw bytes. Panics if an invariant breaks: a packet with correct checksums leaves with wrong
/// ones, or the counters or events of sessions do not add up.
pub fn fuzz_one(data: &[u8]) {
    let Some((&choices, mut data)) = data.split_first() else { return };
    let mut config = config(2);
    config.shards = 1 << (choices & 3);
    (config.sessions_max, config.port_range) = (16, 5300..=5555);
    config.inbound_refresh = choices & 4 != 0;
    if choices & 8 != 0 {
        config.port_selection = PortSelection::Hash;
        let pair = AddressPair {
            vrf: 0,
            inside: Ipv4Addr::new(192, 168, 0, 3).into(),
            public: Ipv4Addr::new(198, 51, 100, 3).into(),
            outside: 0,
        };
        config.one_to_one = vec![pair];
    }
    if choices & 16 != 0 {
        config.filtering = super::Filtering::AddressDependent;
    }
    if choices & 32 != 0 {
        let inside = ipnet::Ipv4Net::new([192, 168, 0, 0].into(), 30).ok();
        config.subscribers = Some(SubscriberConfig {
            allocation: match inside {
                Some(inside) if choices & 64 != 0 => BlockAllocation::Deterministic(vec![inside]),
                _ => BlockAllocation::Dynamic,
            },
            block_size: 16,
            ports_max: 3,
            sessions_max: 5,
            hold_s: 9,
        });
    }
    config.forwards = vec![PortForward {
        protocol: NatProtocol::Udp,
        public_address: 1,
        public_port: 53,
        inside_address: [192, 168, 0, 1].into(),
        vrf: 0,
        inside_port: 5353,
        count: 1,
    }];
    let (Ok(labeler), Ok(nat)) = (Labeler::new(&config), NatStage::new(&config)) else {
        panic!("the configuration is valid: {:?}", config.validate());
    };
    if choices & 128 != 0 {
        nat.set_logging(Some(NatLogging::Bindings));
    }
    let mut told = 0;
    let mut last = Vec::new();
    let mut now_ns = 0;
    while let Some((step, rest)) = data.split_first_chunk::<6>() {
        let raw_len = if step[0] & 7 == 7 { usize::from(step[5]).min(rest.len()) } else { 0 };
        let (raw, rest) = rest.split_at(raw_len);
        data = rest;
        now_ns += u64::from(step[1] >> 2) * 8 * SECOND_NS;
        let frame = fuzz_packet(step, raw, &last);
        let port_in = u16::from(step[1] & 1);
        let wire_len = frame.len() as u32 + u32::from(step[0] >> 3 & 1) * 40;
        let mut chunk = chunk(&[(port_in, &frame, wire_len)], now_ns);
        if step[0] & 0xf0 == 0xf0 && chunk.packets()[0].is_alive() {
            // Descriptors that no stage would make: no invariants hold then, but nothing may panic.
            let packet = &mut chunk.packets_mut()[0];
            packet.l4_offset = u16::from(step[4]);
            packet.ip_len = u32::from(step[5]) * 2;
            packet.flags.set(step[3] & !(PacketFlags::NAT_IN | PacketFlags::NAT_OUT | PacketFlags::IPV6));
            packet.protocol = [1, 6, 17, step[2]][usize::from(step[2] & 3)];
            fuzz_run(&labeler, &nat, &mut chunk, config.shards);
            continue;
        }
        let valid = checksums(&frame).is_ok();
        fuzz_run(&labeler, &nat, &mut chunk, config.shards);
        if valid && chunk.packets()[0].is_alive() {
            if let Err(wrong) = checksums(chunk.frame(0)) {
                panic!("wrong checksum: {wrong}, was {frame:02x?}");
            }
            last = chunk.frame(0).to_vec();
        }
        let counters = nat.counters();
        assert_eq!(counters.sessions_active, counters.sessions_created - counters.sessions_expired);
        nat.hand_out_events(&mut |event| match event.what {
            Happening::Session { created: true, .. } => told += 1,
            Happening::Session { created: false, .. } => told -= 1,
            _ => {}
        });
        assert!(choices & 128 == 0 || told == counters.sessions_active as i64);
    }
}

fn fuzz_run(labeler: &Labeler, nat: &NatStage, chunk: &mut Chunk, shards: u16) {
    label(labeler, chunk, shards);
    nat.run_groups(chunk, 0..1, 1);
    nat.run_crossing(chunk, &mut |_, _, _| ());
}

/// The packet of a fuzzing step. `last` is the last packet that came out.
fn fuzz_packet(step: &[u8; 6], raw: &[u8], last: &[u8]) -> Vec<u8> {
    let inside = SocketAddrV4::new([192, 168, 0, step[2] & 3].into(), 5352 + u16::from(step[3] & 3));
    let public =
        SocketAddrV4::new([198, 51, 100, 1 + (step[2] >> 2) % 3].into(), u16::from(step[4] & 63) + 5340);
    let outside = SocketAddrV4::new([203, 0, 113, step[4] & 7].into(), 80);
    let protocol = NatProtocol::from_code(step[3] >> 2 & 3);
    let to = if step[3] & 16 == 0 { outside } else { public };
    let turned = |quote: &[u8]| {
        addresses(quote).map_or_else(Vec::new, |(source, destination)| {
            icmp(destination, source, [3, 11, 12, 5][usize::from(step[3] >> 6)], [0; 4], quote)
        })
    };
    match step[0] & 7 {
        0 | 1 => any(protocol, inside, to, step[5]),
        2 => any(protocol, outside, public, step[5]),
        3 => turned(&last[..last.len().min(20 + usize::from(step[5] & 63))]),
        4 => turned(&any(protocol, inside, to, step[5])),
        5 => turned(&any(protocol, public, outside, step[5])),
        6 => {
            let mut damaged = last.to_vec();
            if let Some(byte) = damaged.get_mut(usize::from(step[5])) {
                *byte ^= step[4];
            }
            damaged
        }
        _ => raw.to_vec(),
    }
}
