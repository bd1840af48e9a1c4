//! Packets of random conversations across the router.

use super::*;
use thalweg_wire::icmp::IcmpRepr;
use thalweg_wire::ipv4::Ipv4Repr;

/// A packet of a random conversation across the router, sometimes malformed, fragmented or a hairpin.
pub(super) fn packet(rng: &mut XorShift64Star) -> Vec<u8> {
    let inside = [10, rng.below(2) as u8, [0, 130][rng.below(2) as usize], rng.below(40) as u8 + 10];
    let outside = [198, 51, 100, rng.below(200) as u8 + 20];
    let public = [203, 0, 113, 2];
    let (src, dst) = match rng.below(12) {
        0..6 => (inside, outside),
        6..9 => (outside, public),
        9 | 10 => (inside, public),
        _ => (inside, [10, rng.below(2) as u8, 0, 77]),
    };
    match rng.below(20) {
        0 => return packet_ipv6(rng),
        1 => return packet_to_ipv4(rng),
        _ => {}
    }
    let protocol = [6u8, 17, 17, 1][rng.below(4) as usize];
    let port = |rng: &mut XorShift64Star| match rng.below(4) {
        0 => 80,
        1 => 8080,
        _ => 2000 + rng.below(600) as u16,
    };
    let (sport, dport) = (port(rng), port(rng));
    let payload = vec![rng.below(256) as u8; 8 * rng.below(20) as usize];
    let (from, to) = (SocketAddr::from((src, sport)), SocketAddr::from((dst, dport)));
    let l4 = match protocol {
        6 => {
            let flags = [0x02, 0x10, 0x10, 0x18, 0x11, 0x04][rng.below(6) as usize];
            testing::tcp_segment(from, to, flags, [0; 2], &payload)
        }
        17 => testing::udp_segment(from, to, &payload),
        _ => {
            let kind = [8, 0][rng.below(2) as usize];
            let header = IcmpRepr { kind, code: 0, rest: [(sport >> 8) as u8, sport as u8, 0, 1] };
            testing::icmp_message(from.ip(), to.ip(), header, &payload)
        }
    };
    let mut header = Ipv4Repr::new(src.into(), dst.into(), protocol, l4.len());
    header.identification = rng.below(4) as u16;
    header.traffic_class = [0, 46 << 2, 10 << 2][rng.below(3) as usize];
    header.ttl = if rng.below(30) == 0 { 1 } else { 64 };
    if rng.below(15) == 0 {
        // A first or a later fragment; identifications repeat, so they meet.
        header.flags_and_offset = if rng.below(2) == 0 { 0x2000 } else { 2 };
    }
    let mut ip = testing::ipv4(header, &l4);
    if rng.below(40) == 0 {
        let at = rng.below(ip.len() as u32) as usize;
        ip[at] ^= 1 << rng.below(8);
    }
    ip
}

fn packet_ipv6(rng: &mut XorShift64Star) -> Vec<u8> {
    let mut host = |net: u16| Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, rng.below(50) as u16 + 2);
    let (source, destination) = (host(1), host(7));
    let port = 0x3000 + rng.below(256) as u16;
    testing::udp((source, port), (destination, 0x3001), &[1, 2, 3, 4, 5, 6, 7, 8])
}

/// A packet of an IPv6 host to an IPv4 host, or to the public endpoint of another inside host.
fn packet_to_ipv4(rng: &mut XorShift64Star) -> Vec<u8> {
    let source = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, rng.below(50) as u16 + 2);
    let payload = [1, 2, 3, 4, 5, 6, 7, 8];
    let [high, low] = [[0xc633, 0x6414 + rng.below(200) as u16], [0xcb00, 0x7102]][rng.below(4) as usize / 3];
    let destination = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, high, low);
    let ports = [2301 + rng.below(299) as u16, 2000 + rng.below(600) as u16];
    let [high, low] = ports[0].to_be_bytes();
    match rng.below(4) {
        0 => testing::tcp((source, ports[0]), (destination, 80), 0x02, &payload),
        1 => testing::icmp(source, destination, 128, [high, low, 0, 1], &payload),
        2 => {
            let quote = testing::udp((destination, ports[1]), (source, ports[0]), &payload);
            testing::icmp(source, destination, 1, [0; 4], &quote)
        }
        _ => testing::udp((source, ports[0]), (destination, ports[1]), &payload),
    }
}
