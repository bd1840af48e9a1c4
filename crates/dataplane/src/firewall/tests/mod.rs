mod cases;
mod reference;
mod standby;
mod tenants;

use super::*;
use crate::acl::{AclCounts, Action, Rule};
use crate::fragments::FragmentTracker;
use crate::helpers::{Helper, Helpers};
use crate::ingress::Ingress;
use crate::test_support::{Frame, chunk};
use std::net::{IpAddr, SocketAddr};
use thalweg_base::{Chunk, DropReason, OneThread};
use thalweg_wire::testing;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
pub(super) const LAN: Zone = 1;
pub(super) const WAN: Zone = 2;
pub(super) const DMZ: Zone = 3;
/// The shards of every test.
const SHARDS: u16 = 4;

pub(super) use thalweg_wire::tcp::{ACK, FIN, RST, SYN};
pub(super) const SYN_ACK: u8 = SYN | ACK;
pub(super) const FIN_ACK: u8 = FIN | ACK;

/// Ports 0 to 3 are in the zones lan, wan, dmz and none.
pub(super) fn config() -> FirewallConfig {
    FirewallConfig {
        zones: vec![LAN, WAN, DMZ],
        outside: vec![WAN],
        policy: Policy::OutgoingOnly,
        rules: Vec::new(),
        states_max: 4096,
        half_open_max: None,
        checks_windows: false,
        picks_up: true,
        timeouts: StateTimeouts::DEFAULT,
        helpers: Helpers::default(),
    }
}

pub(super) fn rule(action: Action, from: &[Zone], to: &[Zone]) -> ZoneRule {
    ZoneRule {
        rule: Rule::all(action),
        from: from.to_vec(),
        to: to.to_vec(),
        states: Vec::new(),
        limit: None,
        logs: false,
    }
}

/// The port where an address is: 10/8 and 2001:db8:1::/48 in the lan, 172.16/12 and 2001:db8:2::/48 in the dmz, all
/// others in the wan.
pub(super) fn port_of(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(address) if address.octets()[0] == 10 => 0,
        IpAddr::V4(address) if address.octets()[0] == 172 => 2,
        IpAddr::V6(address) if address.segments()[2] == 1 => 0,
        IpAddr::V6(address) if address.segments()[2] == 2 => 2,
        _ => 1,
    }
}

pub(super) fn addresses_of(packet: &[u8]) -> (IpAddr, IpAddr) {
    let packet = crate::ip_packet::IpPacket::parse(packet).expect("a packet");
    (packet.source, packet.destination)
}

/// A firewall with its rules and the stages before it.
pub(super) struct Site {
    pub(super) stage: FirewallStage<OneThread>,
    pub(super) rules: FirewallRules,
    pub(super) counts: AclCounts,
    fragments: FragmentTracker,
    pub(super) now_ns: u64,
}

impl Site {
    pub(super) fn new(config: &FirewallConfig) -> Self {
        let rules = FirewallRules::compile(config, 0).expect("rules");
        Self {
            stage: FirewallStage::new(config, SHARDS, 7),
            counts: rules.counts(),
            rules,
            fragments: FragmentTracker::default(),
            now_ns: 1000 * SECOND_NS,
        }
    }

    /// Another configuration, as a reload brings it.
    pub(super) fn reload(&mut self, config: &FirewallConfig) {
        assert!(self.stage.fits(config, SHARDS));
        self.stage.set_behavior(config);
        self.rules = FirewallRules::compile(config, self.rules.generation() + 1).expect("rules");
        self.counts = self.rules.counts();
    }

    pub(super) fn wait_s(&mut self, seconds: u64) {
        self.now_ns += seconds * SECOND_NS;
    }

    /// A chunk of packets as it comes to the firewall.
    pub(super) fn arrive(&mut self, packets: Vec<Vec<u8>>) -> Chunk {
        let ways = packets.iter().map(|packet| {
            let (source, destination) = addresses_of(packet);
            (port_of(source), port_of(destination))
        });
        let ways: Vec<_> = ways.collect();
        self.arrive_by(packets.into_iter().zip(ways).collect())
    }

    /// The same, of packets with their ports of arrival and departure.
    fn arrive_by(&mut self, packets: Vec<(Vec<u8>, (u16, u16))>) -> Chunk {
        let ways: Vec<_> = packets.iter().map(|(_, way)| *way).collect();
        let frame = |(packet, (from, _))| Frame::raw(packet).at(self.now_ns).on_port(from);
        let mut chunk = chunk(packets.into_iter().map(frame).collect());
        let ingress = Ingress { drop_martians: true, ..Ingress::default() };
        ingress.process(&mut chunk.whole().0);
        self.fragments.process(&mut chunk, true, |_| 0);
        let mut batch = chunk.whole().0;
        for (i, (_, port_out)) in ways.into_iter().enumerate() {
            let (packet, l3) = batch.packet_and_l3(i);
            assert_eq!(packet.drop_reason(), None, "the stages before drop nothing");
            packet.shard = state_hash(packet, l3) as u16 & (SHARDS - 1);
            packet.port_out = port_out;
        }
        chunk
    }

    /// The fate of packets that come together.
    pub(super) fn judge(&mut self, packets: Vec<Vec<u8>>) -> Vec<Option<DropReason>> {
        let chunk = self.arrive(packets);
        self.decide(chunk)
    }

    /// The fate of a packet on its way from port to port.
    pub(super) fn between(&mut self, way: (u16, u16), packet: Vec<u8>) -> Option<DropReason> {
        let chunk = self.arrive_by(vec![(packet, way)]);
        self.decide(chunk)[0]
    }

    fn decide(&mut self, mut chunk: Chunk) -> Vec<Option<DropReason>> {
        self.stage.run_groups(&self.rules, &mut chunk, 0..1, 1, &self.counts);
        chunk.packets().iter().map(thalweg_base::Packet::drop_reason).collect()
    }

    /// The fate of one packet.
    pub(super) fn one(&mut self, packet: Vec<u8>) -> Option<DropReason> {
        self.judge(vec![packet])[0]
    }

    /// The fate of one packet that the look-up has found to be for the router itself.
    pub(super) fn for_router(&mut self, packet: Vec<u8>) -> Option<DropReason> {
        let mut chunk = self.arrive(vec![packet]);
        let packet = &mut chunk.packets_mut()[0];
        packet.next_hop = 1;
        packet.drop_for(DropReason::Local);
        self.stage.run_groups(&self.rules, &mut chunk, 0..1, 1, &self.counts);
        chunk.packets()[0].drop_reason()
    }

    /// Why the router may not send a packet.
    pub(super) fn by_router(&mut self, packet: Vec<u8>) -> Option<DropReason> {
        let mut chunk = self.arrive(vec![packet]);
        let mut batch = chunk.whole().0;
        let (packet, l3) = batch.packet_and_l3(0);
        let shard = packet.shard;
        self.stage.judge_own(&self.rules, (packet, l3), shard, &self.counts, self.now_ns);
        packet.drop_reason()
    }

    /// Whether one packet passes.
    pub(super) fn passes(&mut self, packet: Vec<u8>) -> bool {
        self.one(packet).is_none()
    }
}

pub(super) fn at(text: &str) -> SocketAddr {
    text.parse().expect("an endpoint")
}

pub(super) fn udp(from: &str, to: &str) -> Vec<u8> {
    testing::udp(at(from), at(to), b"data")
}

/// A TCP segment with numbers and a window of 256 bytes.
pub(super) fn tcp(from: &str, to: &str, flags: u8, numbers: [u32; 2]) -> Vec<u8> {
    let (from, to) = (at(from), at(to));
    testing::ip(from.ip(), to.ip(), 6, &testing::tcp_segment(from, to, flags, numbers, b""))
}

/// An ICMP echo of an identifier.
pub(super) fn echo(from: &str, to: &str, is_request: bool, id: u16) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().expect("an address"), to.parse().expect("an address"));
    let kind = match (from.is_ipv6(), is_request) {
        (false, true) => 8,
        (false, false) => 0,
        (true, true) => 128,
        (true, false) => 129,
    };
    let [a, b] = id.to_be_bytes();
    testing::icmp(from, to, kind, [a, b, 0, 1], b"data")
}

/// An ICMP error (unreachable) from an address about a packet, to its sender.
pub(super) fn error(from: &str, about: &[u8]) -> Vec<u8> {
    let from: IpAddr = from.parse().expect("an address");
    let kind = if from.is_ipv6() { 1 } else { 3 };
    testing::icmp(from, addresses_of(about).0, kind, [0; 4], about)
}
