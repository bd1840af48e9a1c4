//! Classification: finds the class of service of a packet.
//!
//! A class is a list of matches; a packet belongs to the first class, in configured order, that has a match which
//! holds in all its parts. Packets without a match go to the default class.
//!
//! A text trace names the application. In a capture it is inferred, only if some match asks for it: by well-known
//! port, else a UDP packet between two high ports with the fixed part of an RTP header (RFC 3550 5.1: version 2, a
//! payload type in use) counts as RTP or RTCP. That is a guess from the first bytes of each single packet.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use thalweg_base::{Batch, Packet, PacketFlags};
use thalweg_wire::application::by_port;
use thalweg_wire::ip_protocol;

/// The conditions on a packet; empty parts match anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Any of these code points.
    pub dscp: Vec<u8>,
    /// Any of these application codes.
    pub applications: Vec<u8>,
    /// Any of these transport protocols.
    pub protocols: Vec<u8>,
    /// Any of these source ports.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// Any of these destination ports.
    pub destination_ports: Vec<RangeInclusive<u16>>,
    /// Source in any of these networks.
    pub sources: Vec<IpNet>,
    /// Destination in any of these networks.
    pub destinations: Vec<IpNet>,
    /// Arrived on any of these ports.
    pub ports_in: Vec<u16>,
}

/// A match in the form that the hot path reads: code point and application are decided for all rules at once; the
/// rest is behind a pointer that most rules do not have.
#[derive(Clone, Debug)]
struct Rule {
    more: Option<Box<Match>>,
    class: u8,
}

/// Up to 64 rules as bits: which of them admit a code point, which an application. The first bit of both is the
/// first rule that can hold, found without a branch per rule.
#[derive(Clone, Debug)]
struct RuleSet {
    rules: Vec<Rule>,
    by_dscp: [u64; 64],
    by_application: [u64; 256],
}

const RULES_PER_SET: usize = 64;

/// The classification stage. It has no state.
#[derive(Clone, Debug)]
pub struct Classifier {
    sets: Vec<RuleSet>,
    default_class: u8,
    infer_applications: bool,
}

impl Classifier {
    /// Takes matches in order of precedence, each with its class.
    pub fn new(matches: impl IntoIterator<Item = (Match, u8)>, default_class: u8) -> Self {
        let rules: Vec<(Match, u8)> = matches.into_iter().collect();
        let infer_applications = rules.iter().any(|(m, _)| !m.applications.is_empty());
        let sets = rules.chunks(RULES_PER_SET).map(RuleSet::new).collect();
        Self { sets, default_class, infer_applications }
    }

    /// The class of all packets, if there are no matches.
    pub fn only_class(&self) -> Option<u8> {
        self.sets.is_empty().then_some(self.default_class)
    }

    /// Sets the class of every live packet of the batch; if there is only one class, also of dropped ones.
    pub fn process(&self, batch: &mut Batch<'_>) {
        if let Some(class) = self.only_class() {
            for packet in batch.packets_mut() {
                packet.class = class;
            }
            return;
        }
        for i in 0..batch.len() {
            let (packet, l3) = batch.packet_and_l3(i);
            if packet.is_alive() {
                if self.infer_applications && packet.application == 0 {
                    packet.application = self.infer(packet, l3);
                }
                packet.class = self.class_of(packet, l3);
            }
        }
    }

    #[inline(always)]
    fn class_of(&self, packet: &Packet, l3: &[u8]) -> u8 {
        self.sets.iter().find_map(|set| set.class_of(packet, l3)).unwrap_or(self.default_class)
    }

    #[inline]
    fn infer(&self, packet: &Packet, l3: &[u8]) -> u8 {
        match packet.protocol {
            ip_protocol::TCP | ip_protocol::UDP if packet.flags.has(PacketFlags::HAS_PORTS) => {
                let known = known_port(packet.protocol, packet.dst_port);
                let known = if known == 0 { known_port(packet.protocol, packet.src_port) } else { known };
                if known == 0 && packet.protocol == ip_protocol::UDP { rtp_like(packet, l3) } else { known }
            }
            ip_protocol::ICMP | ip_protocol::ICMPV6 => ICMP,
            _ => 0,
        }
    }
}

impl RuleSet {
    fn new(matches: &[(Match, u8)]) -> Self {
        let mut set = Self { rules: Vec::new(), by_dscp: [0; 64], by_application: [0; 256] };
        for (bit, (spec, class)) in matches.iter().enumerate() {
            let admits =
                |codes: &[u8], code: usize| codes.is_empty() || codes.iter().any(|&c| usize::from(c) == code);
            for (code, rules) in set.by_dscp.iter_mut().enumerate() {
                *rules |= u64::from(admits(&spec.dscp, code)) << bit;
            }
            for (code, rules) in set.by_application.iter_mut().enumerate() {
                *rules |= u64::from(admits(&spec.applications, code)) << bit;
            }
            let more = spec.looks_further().then(|| Box::new(spec.clone()));
            set.rules.push(Rule { more, class: *class });
        }
        set
    }

    #[inline(always)]
    fn class_of(&self, packet: &Packet, l3: &[u8]) -> Option<u8> {
        let dscp = self.by_dscp[usize::from(packet.traffic_class >> 2)];
        let mut candidates = dscp & self.by_application[usize::from(packet.application)];
        while candidates != 0 {
            let rule = &self.rules[candidates.trailing_zeros() as usize];
            if rule.more.as_ref().is_none_or(|m| m.holds(packet, l3)) {
                return Some(rule.class);
            }
            candidates &= candidates - 1;
        }
        None
    }
}

const RTP: u8 = 1;
const RTCP: u8 = 2;
const ICMP: u8 = 11;

/// The code of the application with this well-known port, or 0.
#[inline]
fn known_port(transport: u8, port: u16) -> u8 {
    by_port(transport, port).map_or(0, |a| a.code)
}

/// The code of RTP or RTCP if a UDP packet between high ports looks like one, or 0.
fn rtp_like(packet: &Packet, l3: &[u8]) -> u8 {
    if packet.src_port < 1024 || packet.dst_port < 1024 || packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        return 0;
    }
    let payload = usize::from(packet.l4_offset - packet.l3_offset) + 8;
    let enough = packet.ip_len as usize >= payload + 12;
    match l3.get(payload..payload + 2) {
        Some(&[first, second]) if enough && first >> 6 == 2 => match second {
            200..=204 => RTCP,
            _ if matches!(second & 0x7f, 0..=34 | 96..=127) => RTP,
            _ => 0,
        },
        _ => 0,
    }
}

impl Match {
    /// Whether it has other conditions than code points and applications.
    fn looks_further(&self) -> bool {
        let ports = self.source_ports.len() + self.destination_ports.len() + self.ports_in.len();
        ports + self.protocols.len() + self.sources.len() + self.destinations.len() > 0
    }

    fn holds(&self, packet: &Packet, l3: &[u8]) -> bool {
        let among = |ports: &[RangeInclusive<u16>], port: u16| {
            ports.is_empty()
                || packet.flags.has(PacketFlags::HAS_PORTS) && ports.iter().any(|r| r.contains(&port))
        };
        let within = |nets: &[IpNet], source: bool| {
            nets.is_empty()
                || address(packet, l3, source).is_some_and(|a| nets.iter().any(|n| n.contains(&a)))
        };
        (self.protocols.is_empty() || self.protocols.contains(&packet.protocol))
            && among(&self.source_ports, packet.src_port)
            && among(&self.destination_ports, packet.dst_port)
            && (self.ports_in.is_empty() || self.ports_in.contains(&packet.port_in))
            && within(&self.sources, true)
            && within(&self.destinations, false)
    }
}

/// The source or destination address of a validated packet.
pub(crate) fn address(packet: &Packet, l3: &[u8], source: bool) -> Option<IpAddr> {
    if packet.is_ipv6() {
        let at = if source { 8 } else { 24 };
        let bytes: [u8; 16] = l3.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    } else {
        let at = if source { 12 } else { 16 };
        let bytes: [u8; 4] = l3.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(bytes)))
    }
}

#[cfg(test)]
mod tests;
