//! Tenants with the same addresses behind one outside port of the main table: what helpers announce, IPv6 hosts, blocks of
//! ports, fragments. The reference is NAT of one network in which the hosts have different addresses: those of VRF `n` are
//! in 192.168.n.0/24 and 2001:db8:n::/64. To the outside both must look the same, to the byte.

use super::nat64::{config as with_nat64, mapped, validated};
use super::*;
use crate::fragments::FragmentTracker;
use crate::helpers::{Helper, pptp};
use crate::nat::{BlockInfo, Filtering, NatCounters, SubscriberConfig};
use crate::vrf::table_of;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use thalweg_wire::ip_protocol::{FRAGMENT, GRE, ICMP, ICMPV6, TCP, UDP};
use thalweg_wire::ipv4::MORE_FRAGMENTS;
use thalweg_wire::testing as build;

pub(super) const RED: u16 = 1;
pub(super) const BLUE: u16 = 2;
/// The inside ports of red and blue.
pub(super) const INSIDES: [u16; 2] = [2, 3];
const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// An inside host, in the reference if `is_apart`.
fn inside(vrf: u16, n: u8, port: u16, is_apart: bool) -> SocketAddr {
    let network = if is_apart { u8::try_from(vrf).unwrap() } else { 0 };
    SocketAddr::new([192, 168, network, n].into(), port)
}

pub(super) fn inside6(vrf: u16, n: u16, port: u16, is_apart: bool) -> SocketAddr {
    let network = if is_apart { vrf } else { 0 };
    SocketAddr::new(Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, n).into(), port)
}

fn outside(n: u8, port: u16) -> SocketAddr {
    remote(n, port).into()
}

/// The reference's configuration. Blue has a server at port 21 of the public address.
pub(super) fn reference(has_blocks: bool, filtering: Filtering) -> NatConfig {
    let forward = forward(NatProtocol::Tcp, 21, at([192, 168, 2, 7], 21));
    let blocks =
        SubscriberConfig { block_size: 16, ports_max: 32, hold_s: 60, ..SubscriberConfig::default() };
    NatConfig {
        // The shard of a block follows from its subscriber's address, which differs.
        shards: if has_blocks { 1 } else { 4 },
        port_range: 4096..=if has_blocks { 4223 } else { 8191 },
        subscribers: has_blocks.then_some(blocks),
        forwards: if has_blocks { Vec::new() } else { vec![forward] },
        helpers: Helper::ALL.into_iter().collect(),
        filtering,
        ..with_nat64(1)
    }
}

pub(super) fn ours(reference: &NatConfig) -> NatConfig {
    let here = |forward: &PortForward| PortForward {
        inside_address: [192, 168, 0, 7].into(),
        vrf: BLUE,
        ..*forward
    };
    NatConfig {
        inside_ports: INSIDES.to_vec(),
        vrfs: vec![0, 0, RED, BLUE],
        untranslated: [RED, BLUE].map(|vrf| (vrf, "192.168.0.0/16".parse().unwrap())).to_vec(),
        forwards: reference.forwards.iter().map(here).collect(),
        ..reference.clone()
    }
}

/// A NAT with the stages before it.
pub(super) struct Edge {
    pub(super) router: Router,
    fragments: RefCell<FragmentTracker>,
    vrfs: Vec<u16>,
}

impl Edge {
    pub(super) fn new(config: &NatConfig) -> Self {
        Self { router: Router::new(config), fragments: RefCell::default(), vrfs: config.vrfs.clone() }
    }

    /// What comes out, and the VRF in which it is looked up if it goes inside.
    pub(super) fn send(&self, port_in: u16, bytes: &[u8]) -> (Outcome, Option<u16>) {
        let mut chunk = validated(port_in, bytes, self.router.now_ns);
        assert_eq!(chunk.packets()[0].drop_reason(), None, "{bytes:02x?}");
        let vrf_of = |port: u16| self.vrfs.get(usize::from(port)).copied().unwrap_or(0);
        self.fragments.borrow_mut().process(&mut chunk, true, vrf_of);
        self.router.run(&mut chunk);
        let led_to = table_of(chunk.packets()[0].next_hop);
        let (mut batch, _) = chunk.whole();
        let (packet, l3) = batch.packet_and_l3(0);
        match packet.drop_reason() {
            Some(reason) => (Err(reason), None),
            None => (Ok(l3[..packet.ip_len as usize].to_vec()), led_to),
        }
    }

    fn blocks(&self) -> Vec<BlockInfo> {
        let (mut all, mut next) = (Vec::new(), Some(Cursor::default()));
        while let Some(from) = next {
            next = self.router.nat.blocks(from, |_| true, &mut all);
        }
        all
    }
}

/// Where the destination is inside, in the reference.
fn vrf_of_destination(bytes: &[u8]) -> Option<u16> {
    let network = match bytes[0] >> 4 {
        4 if bytes[16..18] == [192, 168] => u16::from(bytes[18]),
        6 if bytes[24..28] == [0x20, 1, 0xd, 0xb8] => u16::from_be_bytes([bytes[28], bytes[29]]),
        _ => return None,
    };
    Some(network)
}

/// A packet as the reference has it: inside hosts in the network of their VRF, also where a message names them. Checksums
/// are left out; they differ with addresses, and have been checked.
fn as_apart(bytes: &[u8], from: u16, to: u16) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let mut at_header = usize::from(all[0] & 15) * 4;
    let mut protocol = all[9];
    if all[0] >> 4 == 6 {
        for (at, vrf) in [(8, from), (24, to)] {
            if all[at..at + 6] == [0x20, 1, 0xd, 0xb8, 0, 0] {
                all[at + 4..at + 6].copy_from_slice(&vrf.to_be_bytes());
            }
        }
        (at_header, protocol) = if all[6] == FRAGMENT { (48, all[40]) } else { (40, all[6]) };
    } else {
        all[10..12].fill(0);
        for (at, vrf) in [(12, from), (16, to)] {
            if all[at..at + 3] == [192, 168, 0] {
                all[at + 2] = u8::try_from(vrf).unwrap();
            }
        }
    }
    let is_later = all[0] >> 4 == 4 && (u16::from_be_bytes([all[6], all[7]]) & 0x1fff) != 0;
    let checksum = match protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return all,
    };
    if !is_later {
        all[at_header + checksum..at_header + checksum + 2].fill(0);
    }
    for separator in [".", ","] {
        let here = ["192", "168", "0", ""].join(separator).into_bytes();
        let place = here.len() - 2;
        let digit = b'0' + u8::try_from(to.max(from)).unwrap();
        for at in at_header..all.len().saturating_sub(here.len()) {
            if all[at..].starts_with(&here) {
                all[at + place] = digit;
            }
        }
    }
    all
}

/// NAT of tenants, and the reference.
struct Tenants {
    ours: Edge,
    theirs: Edge,
}

/// From a VRF inside, or from the outside.
type Way = Option<u16>;

impl Tenants {
    fn new(config: &NatConfig) -> Self {
        Self { ours: Edge::new(&ours(config)), theirs: Edge::new(config) }
    }

    fn wait_s(&mut self, seconds: u64) {
        self.ours.router.wait_s(seconds);
        self.theirs.router.wait_s(seconds);
    }

    /// Sends a packet through both. Returns what came out of ours, and the VRF to which it leads.
    fn send(&self, way: Way, packet: impl Fn(bool) -> Vec<u8>) -> Result<(Vec<u8>, Option<u16>), DropReason> {
        let port_in = |insides: [u16; 2]| way.map_or(OUTSIDE, |vrf| insides[usize::from(vrf - 1)]);
        let sent = packet(false);
        let (out, led_to) = self.ours.send(port_in(INSIDES), &sent);
        let (expected, _) = self.theirs.send(port_in([INSIDE; 2]), &packet(true));
        let reason = |outcome: &Outcome| outcome.as_ref().err().copied();
        assert_eq!(reason(&out), reason(&expected), "{way:?} {sent:02x?}");
        let (out, expected) = (out?, expected?);
        let is_fragment = out[0] >> 4 == 4 && out[6] & 0x3f | out[7] != 0;
        if out[0] >> 4 == 4 && !is_fragment {
            checksums(&out).unwrap();
        }
        let to = vrf_of_destination(&expected);
        assert_eq!(led_to, to, "{way:?} {sent:02x?}");
        let from = way.unwrap_or(0);
        assert_eq!(
            as_apart(&out, from, to.unwrap_or(0)),
            as_apart(&expected, from, to.unwrap_or(0)),
            "{way:?} {sent:02x?}"
        );
        let names_inside = out.windows(8).any(|bytes| matches!(bytes, b"192.168." | b"192,168,"));
        if to.is_none() && !names_inside {
            assert_eq!(out, expected, "the outside sees no difference");
        }
        Ok((out, to))
    }

    /// Both have the same sessions, blocks and counters, and of ours every host is in its VRF.
    fn finish(&self) -> NatCounters {
        let network = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u16::from(ip.octets()[2]),
            IpAddr::V6(ip) => ip.segments()[2],
        };
        let moved = |ip: IpAddr, vrf: u16| match ip {
            IpAddr::V4(ip) => {
                let [a, b, _, d] = ip.octets();
                IpAddr::from([a, b, u8::try_from(vrf).unwrap(), d])
            }
            IpAddr::V6(ip) => inside6(vrf, ip.segments()[7], 0, true).ip(),
        };
        let apart = |session: SessionInfo| {
            assert_eq!(network(session.inside.ip()), 0);
            let inside = SocketAddr::new(moved(session.inside.ip(), session.vrf), session.inside.port());
            format!("{:?}", SessionInfo { inside, vrf: 0, ..session })
        };
        let ours: BTreeSet<_> = self.ours.router.sessions().into_iter().map(apart).collect();
        let theirs = self.theirs.router.sessions();
        assert_eq!(ours, theirs.iter().map(|session| format!("{session:?}")).collect());
        let apart = |block: BlockInfo| {
            let inside = moved(block.inside, block.vrf);
            format!("{:?}", BlockInfo { inside, vrf: 0, ..block })
        };
        let ours: BTreeSet<_> = self.ours.blocks().into_iter().map(apart).collect();
        assert_eq!(ours, self.theirs.blocks().iter().map(|block| format!("{block:?}")).collect());
        let [ours, theirs] = [&self.ours, &self.theirs].map(|edge| edge.router.nat.counters());
        // One IPv6 address is one number for both tenants.
        let but_hosts = |counters: NatCounters| NatCounters { nat64_hosts: 0, ..counters };
        assert_eq!(but_hosts(ours), but_hosts(theirs));
        ours
    }
}

fn gre(from: IpAddr, to: IpAddr, call: u16) -> Vec<u8> {
    let [high, low] = call.to_be_bytes();
    build::ip(from, to, GRE, &[0x30, 0x81, 0x88, 0x0b, 0, 4, high, low, 0, 0, 0, 1, 1, 2, 3, 4])
}

fn segment(from: SocketAddr, to: SocketAddr, flags: u8, numbers: [u32; 2], data: &[u8]) -> Vec<u8> {
    build::ip(from.ip(), to.ip(), TCP, &build::tcp_segment(from, to, flags, numbers, data))
}

fn invite(phone: SocketAddr, rtp: u16) -> String {
    let (ip, end) = (phone.ip(), phone);
    let body =
        format!("v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio {rtp} RTP/AVP 0\r\n");
    format!(
        "INVITE sip:bob@203.0.113.5 SIP/2.0\r\nVia: SIP/2.0/UDP {end};branch=z9hG4bK7\r\n\
         Contact: <sip:alice@{end}>\r\nCSeq: 1 INVITE\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A conversation of both tenants with the outside, drawn step by step.
struct Talk {
    tenants: Tenants,
    /// What the client of each tenant has said to its server, and the public ends of it and of its phone.
    said: [u32; 2],
    controls: [Option<SocketAddr>; 2],
    phones: [Option<SocketAddr>; 2],
    datagrams: u16,
}

const CONTROL: u16 = 5000;

impl Talk {
    fn new(config: &NatConfig) -> Self {
        let (said, none) = ([100; 2], [None; 2]);
        Self { tenants: Tenants::new(config), said, controls: none, phones: none, datagrams: 0 }
    }

    fn step(&mut self, [kind, who, whom, port, more]: [u8; 5]) {
        let vrf = 1 + u16::from(who & 1);
        let place = usize::from(vrf - 1);
        let near = u16::from(port & 7);
        let public = |port: u16| SocketAddr::new(PUBLIC.into(), port);
        match kind % 12 {
            0 | 1 => self.announce(vrf, near, whom),
            // Somebody tries what may have been announced, or the server what a tenant did.
            2 => {
                let from = outside(if whom & 1 == 0 { 1 } else { whom }, 20);
                let packet = segment(from, public(5000 + near), SYN, [1, 0], b"");
                let _ = self.tenants.send(None, |_| packet.clone());
            }
            3 => {
                let packet = |is_apart| {
                    segment(inside(vrf, 2, 5000 + near, is_apart), outside(1, 20), SYN_ACK, [7, 2], b"")
                };
                let _ = self.tenants.send(Some(vrf), packet);
            }
            4 => {
                let phone = |is_apart| inside(vrf, 3, 5060, is_apart);
                let text = |is_apart| invite(phone(is_apart), 6000 + 2 * near);
                let packet =
                    |is_apart| build::udp(phone(is_apart), outside(5, 5060), text(is_apart).as_bytes());
                if let Ok((out, _)) = self.tenants.send(Some(vrf), packet) {
                    self.phones[place] = Some(source(&out).into());
                }
            }
            5 => {
                let Some(phone) = self.phones[place] else { return };
                let answer = format!(
                    "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP {phone};branch=z9hG4bK7\r\nCSeq: 1 INVITE\r\n\r\n"
                );
                let _ = self.tenants.send(None, |_| build::udp(outside(5, 5060), phone, answer.as_bytes()));
            }
            6 => {
                let rtp = public(6000 + 2 * near + u16::from(whom & 1));
                let _ = self.tenants.send(None, |_| build::udp(outside(8, 4000), rtp, b"media"));
            }
            7 => self.call(vrf, u16::from(whom & 1)),
            8 => {
                let peer = outside(6, 0).ip();
                let _ = match more & 1 {
                    0 => self
                        .tenants
                        .send(Some(vrf), |is_apart| gre(inside(vrf, 4, 0, is_apart).ip(), peer, near)),
                    _ => self.tenants.send(None, |_| gre(peer, PUBLIC.into(), 77 + near)),
                };
            }
            9 => self.datagram(vrf, near, more),
            10 => self.ipv6(vrf, near, more),
            _ => self.tenants.wait_s(u64::from(more & 63)),
        }
    }

    /// A client says where it takes a data connection: at its own address, or at another's, which is not believed.
    fn announce(&mut self, vrf: u16, near: u16, whom: u8) {
        let place = usize::from(vrf - 1);
        let (client, server) = (|is_apart| inside(vrf, 2, CONTROL, is_apart), outside(1, 21));
        if self.controls[place].is_none() {
            let syn = |is_apart| segment(client(is_apart), server, SYN, [99, 0], b"");
            let Ok((out, _)) = self.tenants.send(Some(vrf), syn) else { return };
            let public = SocketAddr::from(source(&out));
            self.controls[place] = Some(public);
            let _ = self.tenants.send(None, |_| segment(server, public, SYN_ACK, [499, 100], b""));
        }
        let port = 5000 + near;
        let line = |is_apart| {
            let own = inside(vrf, if whom & 7 == 0 { 3 } else { 2 }, port, is_apart).ip().to_string();
            match whom & 8 {
                0 => format!("PORT {},{},{}\r\n", own.replace('.', ","), port >> 8, port & 255),
                _ => format!("EPRT |1|{own}|{port}|\r\n"),
            }
        };
        let numbers = [self.said[place], 500];
        let packet = |is_apart| segment(client(is_apart), server, ACK, numbers, line(is_apart).as_bytes());
        if self.tenants.send(Some(vrf), packet).is_ok() {
            self.said[place] += u32::try_from(line(false).len()).unwrap();
        }
        let Some(public) = self.controls[place] else { return };
        let _ = self.tenants.send(None, |_| segment(server, public, ACK, [500, numbers[0]], b""));
    }

    /// Both tenants call one peer by the same number.
    fn call(&mut self, vrf: u16, n: u16) {
        let (from, peer) = (|is_apart| inside(vrf, 4, 5001 + n, is_apart), outside(6, 1723));
        let syn = |is_apart| segment(from(is_apart), peer, SYN, [0, 0], b"");
        let request = pptp::message(7, &[77 + n]);
        if self.tenants.send(Some(vrf), syn).is_err() {
            return;
        }
        let request = |is_apart| segment(from(is_apart), peer, ACK, [1, 1], &request);
        let Ok((out, _)) = self.tenants.send(Some(vrf), request) else { return };
        let call = u16::from_be_bytes([out[52], out[53]]);
        let reply = pptp::message(8, &[vrf, call]);
        let public = SocketAddr::from(source(&out));
        let _ = self.tenants.send(None, |_| segment(peer, public, ACK, [1, 33], &reply));
    }

    /// A datagram in two pieces, sometimes without its first. Both tenants' have the same identifiers.
    fn datagram(&mut self, vrf: u16, near: u16, more: u8) {
        self.datagrams += u16::from(more & 1);
        let id = (self.datagrams / 2).to_be_bytes();
        let pieces = |from: SocketAddr, to: SocketAddr| {
            let whole = build::udp(from, to, &[7; 24]);
            let first = build::with_ipv4_field(whole, 6, &MORE_FRAGMENTS.to_be_bytes());
            let rest = build::with_ipv4_field(build::ip(from.ip(), to.ip(), UDP, &[7; 8]), 6, &[0, 4]);
            [first, rest].map(|piece| build::with_ipv4_field(piece, 4, &id))
        };
        let out = |is_apart| pieces(inside(vrf, 2, 5000 + near, is_apart), outside(1, 53));
        let back = pieces(outside(1, 53), SocketAddr::new(PUBLIC.into(), 5000 + near));
        for (n, back) in back.iter().enumerate().skip(usize::from(more & 2 != 0)) {
            let _ = match more & 4 {
                0 => self.tenants.send(Some(vrf), |is_apart| out(is_apart)[n].clone()),
                _ => self.tenants.send(None, |_| back.clone()),
            };
        }
    }

    /// IPv6 hosts with one address in both VRFs.
    fn ipv6(&mut self, vrf: u16, near: u16, more: u8) {
        let host = |is_apart| inside6(vrf, 7 + u16::from(more & 1), 5000 + near, is_apart);
        let server = SocketAddr::new(mapped([203, 0, 113, 1].into()).into(), 53);
        let public = SocketAddr::new(PUBLIC.into(), 5000 + near);
        let out = |is_apart: bool| match more >> 1 & 3 {
            0 => build::tcp(host(is_apart), server, SYN, b""),
            1 => build::icmp(host(is_apart).ip(), server.ip(), 128, [0x13, 0x88, 0, 9], b"?"),
            _ => build::udp(host(is_apart), server, b"?"),
        };
        let back = match more >> 1 & 3 {
            0 => build::tcp(outside(1, 53), public, SYN_ACK, b""),
            1 => build::icmp(outside(1, 53).ip(), public.ip(), 0, [0x13, 0x88, 0, 9], b"?"),
            _ => build::udp(outside(1, 53), public, b"!"),
        };
        let _ = match more & 8 {
            0 => self.tenants.send(Some(vrf), out),
            _ => self.tenants.send(None, |_| back.clone()),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tenants_talk_as_hosts_of_one_network_do(
        steps in prop::collection::vec(any::<[u8; 5]>(), 1..150),
        has_blocks: bool,
        filtering in prop::sample::select(Filtering::ALL.to_vec()),
    ) {
        let mut talk = Talk::new(&reference(has_blocks, filtering));
        steps.into_iter().for_each(|step| talk.step(step));
        talk.tenants.finish();
    }
}

/// Everything happens, and most of it succeeds: what was drawn above is no talk of refusals.
#[test]
fn each_tenant_gets_what_it_announced_and_no_more() {
    for has_blocks in [false, true] {
        let mut talk = Talk::new(&reference(has_blocks, Filtering::EndpointIndependent));
        let mut chance = thalweg_base::XorShift64Star::new(3);
        for _ in 0..3000 {
            let [step @ .., _, _, _] = chance.next_u64().to_be_bytes();
            talk.step(step);
        }
        let counters = talk.tenants.finish();
        let least = counters.helped.min(counters.help_refused).min(counters.translated_in);
        assert!(least > 20 && counters.calls_active > 0, "{counters:?}");
        let taken: BTreeSet<u16> = talk.tenants.ours.router.sessions().iter().map(|one| one.vrf).collect();
        assert_eq!(taken, [RED, BLUE].into());
        if has_blocks {
            let blocks = talk.tenants.ours.blocks();
            let of = |vrf: u16| blocks.iter().filter(|block| block.vrf == vrf).count();
            assert!(of(RED) > 0 && of(BLUE) > 0, "{blocks:?}");
        }
    }
}

/// Red's client reaches blue's server by its public address. Messages between inside hosts are not helped: none is
/// announced, as in one network.
#[test]
fn a_tenant_reaches_the_other_by_its_public_address_alone() {
    let tenants = Tenants::new(&reference(false, Filtering::EndpointIndependent));
    let public = SocketAddr::new(PUBLIC.into(), 21);
    let client = |is_apart| inside(RED, 2, CONTROL, is_apart);
    let syn = |is_apart| segment(client(is_apart), public, SYN, [99, 0], b"");
    let (out, to) = tenants.send(Some(RED), syn).unwrap();
    assert_eq!((to, destination(&out)), (Some(BLUE), host(7, 21)));
    let visitor = SocketAddr::from(source(&out));
    let reply = |is_apart| segment(inside(BLUE, 7, 21, is_apart), visitor, SYN_ACK, [499, 100], b"");
    assert_eq!(tenants.send(Some(BLUE), reply).unwrap().1, Some(RED));
    let port = segment(client(false), public, ACK, [100, 500], b"PORT 192,168,0,2,19,139\r\n");
    let (out, _) = tenants.ours.send(INSIDES[0], &port);
    assert!(out.unwrap().ends_with(b"PORT 192,168,0,2,19,139\r\n"));
    let data = SocketAddr::new(PUBLIC.into(), 5003);
    let syn = |is_apart| segment(inside(BLUE, 7, 20, is_apart), data, SYN, [1, 0], b"");
    assert_eq!(tenants.send(Some(BLUE), syn), Err(DropReason::NatNoMapping));
    assert_eq!(tenants.ours.router.nat.counters().helped, 0);
}
