//! Packets between the families for fuzzing.

use super::super::config::{Nat64Config, NatConfig};
use super::super::label::Labeler;
use super::super::rewrite::get_u16;
use super::super::stage::NatStage;
use super::super::testing::{INSIDE, OUTSIDE, SECOND_NS, config, label};
use super::Nat64Prefix;
use crate::fragments::FragmentTracker;
use crate::ingress::Ingress;
use crate::ip_packet::{IpPacket, transport_checksum_holds};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_base::{ChunkBuilder, LinkType, PacketFlags};
use thalweg_wire::checksum::{fold, sum};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use thalweg_wire::testing as build;

const SHARDS: u16 = 2;
const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Runs fuzzer input against a NAT with IPv6 hosts inside: packets made by recipe, any bytes behind headers that lead
/// through it, and errors about what came out. Panics if a packet with right checksums leaves with wrong ones, or if a
/// host remains without a session.
pub fn fuzz_one(mut data: &[u8]) {
    let Some(prefix) = "2001:db8:64::/96".parse().ok().and_then(Nat64Prefix::new) else { return };
    let nat64 = Some(Nat64Config { prefix, mtu_bytes: 1500 });
    let config = NatConfig { nat64, shards: SHARDS, sessions_max: 8, port_range: 5000..=5063, ..config(1) };
    let (Ok(labeler), Ok(nat)) = (Labeler::new(&config), NatStage::<thalweg_base::OneThread>::new(&config))
    else {
        panic!("the configuration is valid: {:?}", config.validate());
    };
    let ingress = Ingress { drop_martians: true, ..Ingress::default() };
    let (mut fragments, mut last, mut now_ns) = (FragmentTracker::default(), Vec::new(), 0);
    while let Some((step, rest)) = data.split_first_chunk::<4>() {
        let (bytes, rest) = rest.split_at(rest.len().min(step[3].into()));
        data = rest;
        now_ns += u64::from(step[1]) * SECOND_NS;
        let (port_in, frame) = packet(&prefix, step, bytes, &last);
        let Ok(len) = u32::try_from(frame.len()) else { return };
        let mut builder = ChunkBuilder::with_capacity(frame.len() + ChunkBuilder::HEADROOM);
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..].copy_from_slice(&frame);
        builder.push(at, frame.len(), len, now_ns, LinkType::RawIp, port_in, 0);
        let mut chunk = builder.finish(0, 1, now_ns);
        ingress.process(&mut chunk.batch(0));
        fragments.process(&mut chunk, true);
        label(&labeler, &mut chunk, SHARDS);
        nat.run_groups(&mut chunk, 0..1, 1);
        nat.run_crossing(&mut chunk, &mut |_, _, _| ());
        let mut batch = chunk.batch(0);
        let (packet, l3) = batch.packet_and_l3(0);
        if packet.is_alive() && packet.flags.has(PacketFlags::TRANSLATED) {
            let l3 = &l3[..l3.len().min(crate::records::place(packet.ip_len))];
            assert!(sums_up(&frame) != Some(true) || sums_up(l3) != Some(false), "{frame:02x?}: {l3:02x?}");
            last = l3.to_vec();
        }
    }
    nat.advance(now_ns + 100_000 * SECOND_NS);
    assert_eq!(nat.counters().nat64_hosts, 0);
}

/// Whether checksums hold; `None` if a packet's cannot be verified.
fn sums_up(l3: &[u8]) -> Option<bool> {
    let packet = IpPacket::parse(l3).filter(|packet| packet.complete && !packet.fragment)?;
    let transport = packet.transport();
    let holds = match (packet.protocol, packet.is_ipv6()) {
        (UDP, false) if get_u16(transport, 6) == Some(0) => true,
        (ICMP, false) => fold(sum(transport, 0)) == 0xffff,
        (TCP | UDP, _) | (ICMPV6, true) => transport_checksum_holds(&packet),
        _ => return None,
    };
    Some(holds && packet.header_checksum_holds())
}

/// The packet of a step, and where it arrives. `last` is what came out before.
fn packet(prefix: &Nat64Prefix, step: &[u8; 4], bytes: &[u8], last: &[u8]) -> (u16, Vec<u8>) {
    let [recipe, _, choice, _] = *step;
    let host = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, u16::from(choice & 3));
    let server = Ipv4Addr::new(203, 0, 113, choice >> 4 & 3);
    let remote = if recipe & 8 == 0 { server } else { PUBLIC };
    let mapped = Ipv6Addr::from(prefix.embed(remote.into()));
    let port = 5000 + u16::from(choice >> 2 & 3);
    let protocol = [TCP, UDP, ICMP, ICMPV6, 0, 43, 44, choice][usize::from(recipe >> 4 & 7)];
    let kind = recipe >> 4;
    match recipe & 7 {
        0 => (INSIDE, build::ip(host, mapped, protocol, bytes)),
        1 => (INSIDE, build::udp((host, port), (mapped, 5000), bytes)),
        2 => (INSIDE, build::tcp((host, port), (mapped, 5000), kind, bytes)),
        3 => (INSIDE, build::icmp(host, mapped, 128 + (kind & 1), [19, 136, 0, 1], bytes)),
        4 => (OUTSIDE, build::ip(server, PUBLIC, protocol, bytes)),
        5 => (OUTSIDE, build::udp((server, 5000), (PUBLIC, port), bytes)),
        6 => match IpPacket::parse(last).map(|packet| (packet.source, packet.destination)) {
            Some((IpAddr::V4(from), IpAddr::V4(_))) => {
                (OUTSIDE, build::icmp(server, from, [3, 11, 12, 4][usize::from(kind & 3)], [choice; 4], last))
            }
            Some((IpAddr::V6(from), IpAddr::V6(_))) => {
                (INSIDE, build::icmp(host, from, 1 + (kind & 3), [choice; 4], last))
            }
            _ => (OUTSIDE, bytes.to_vec()),
        },
        _ => {
            let mut damaged = last.to_vec();
            if let Some(byte) = damaged.get_mut(usize::from(choice)) {
                *byte ^= kind | 1;
            }
            (u16::from(recipe >> 7), damaged)
        }
    }
}
