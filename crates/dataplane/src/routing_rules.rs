//! Routing rules: a packet's way by more than its destination, which is what other systems call policy routing.
//!
//! Rules are an ordered list, matched like those of access lists, of what arrives; the first that matches decides. It
//! names a target of the configuration, whose number the packet carries to the routing stage instead of a look-up. A
//! target may also lead to the routes themselves: an exception, or what is left when all gateways of a rule are dead.
//! Tiers of paths decide about that (`live_tables` of the node), so packets pay nothing for it. The number of a target
//! that is a VRF stands for its table.
//!
//! Rules stand before NAT: they see the inside source, and the public destination of what comes from outside. NAT takes
//! the choice away from packets whose destination it changes.

use crate::acl::{AclBindings, AclCounts, AclError, AclSet, Action, Rule, RuleLists};
use crate::route::Router;
use crate::vrf::table_of;
use thalweg_base::{Batch, Packet};

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingRule {
    /// Ports of arrival; any if empty.
    pub from: Vec<u16>,
    /// What it matches; its action means nothing.
    pub rule: Rule,
    /// The configuration's target to which packets go.
    pub target: u32,
}

/// All rules, compiled.
#[derive(Clone, Debug, Default)]
pub struct RoutingRules {
    lists: RuleLists,
    set: AclSet,
    targets: Box<[u32]>,
}

impl RoutingRules {
    /// Compiles the rules of a router with this many ports.
    pub fn compile(rules: &[RoutingRule], ports: u16) -> Result<Self, AclError> {
        let mut lists = RuleLists::default();
        let about = |port: u16| {
            let is_about = move |rule: &RoutingRule| rule.from.is_empty() || rule.from.contains(&port);
            (0u16..).zip(rules).filter(move |(_, rule)| is_about(rule)).map(|(number, _)| number)
        };
        let inbound = (0..ports).map(|port| lists.list(about(port).collect())).collect();
        let bindings = AclBindings { inbound, outbound: Vec::new() };
        let set = lists.compile(|number| rules[number].rule.clone(), Action::Permit, &bindings, 0)?;
        Ok(Self { lists, set, targets: rules.iter().map(|rule| rule.target).collect() })
    }

    /// Whether there is no rule.
    pub fn are_none(&self) -> bool {
        self.targets.is_empty()
    }

    /// One worker's counters, by rule.
    pub fn counts(&self) -> AclCounts {
        AclCounts::of_version(0, self.targets.len())
    }

    /// Chooses the way of a batch's live packets that a rule matches.
    pub fn process(&self, router: &Router, batch: &mut Batch<'_>, counts: &AclCounts) {
        let next_hops = router.next_hops.load();
        self.set.find_in(batch, |packet: &mut Packet, list, place| {
            let Some(rule) = self.lists.rule(list, place).filter(|_| packet.is_alive()) else { return };
            counts.count_packet(rule.into(), packet);
            let number = router.number_of(self.targets.get(usize::from(rule)).copied());
            let is_nowhere = table_of(number).is_none() && next_hops.leads_nowhere(number, packet.flow_hash);
            packet.next_hop = if is_nowhere { 0 } else { number };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Facts;
    use crate::ingress::Ingress;
    use crate::lpm::{Fib4Writer, Fib6Writer};
    use crate::route::{Adjacency, NextHops};
    use crate::test_support::{Frame, chunk, udp4, udp6, with_ipv4_field};
    use ipnet::{IpNet, Ipv4Net, Ipv6Net};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::sync::Arc;
    use thalweg_base::DropReason;
    use thalweg_wire::MacAddr;

    const NETS: [&str; 6] =
        ["10.0.0.0/8", "10.1.0.0/31", "198.51.100.4/30", "2001:db8::/32", "0.0.0.0/0", "::/0"];

    /// Targets 0 and 1 lead out of ports, target 2 to the routes.
    fn router() -> Router {
        let to = |port| Adjacency::Forward {
            port,
            destination_mac: MacAddr([2; 6]),
            source_mac: MacAddr([4; 6]),
            mtu_bytes: 1500,
        };
        let mut hops = NextHops::new();
        let paths = [to(7), to(8), Adjacency::Drop(DropReason::NoRoute), to(9)];
        let numbers: Vec<u16> = paths.iter().map(|path| hops.add(&[*path]).unwrap()).collect();
        let default = numbers[3];
        Router {
            targets: numbers.into(),
            fib4: Arc::clone(Fib4Writer::from_routes([(Ipv4Net::default(), default)]).unwrap().table()),
            fib6: Arc::clone(Fib6Writer::from_routes([(Ipv6Net::default(), default)]).unwrap().table()),
            vrfs: None,
            next_hops: hops.into(),
        }
    }

    fn rules() -> impl Strategy<Value = Vec<RoutingRule>> {
        let nets = || vec(proptest::sample::select(&NETS[..]), 0..3);
        let (ports, from) = (vec(0u16..6, 0..2), vec(0u16..3, 0..3));
        let rule = (nets(), nets(), ports, proptest::option::of(0u8..3), from, 0u32..3);
        let made = rule.prop_map(|(sources, destinations, ports, dscp, from, target)| {
            let nets = |nets: Vec<&str>| nets.iter().map(|net| net.parse::<IpNet>().unwrap()).collect();
            let mut rule = Rule::all(Action::Permit);
            (rule.sources, rule.destinations) = (nets(sources), nets(destinations));
            rule.destination_ports = ports.iter().map(|port| *port..=*port + 1).collect();
            rule.dscp = dscp.into_iter().collect();
            RoutingRule { from, rule, target }
        });
        vec(made, 0..12)
    }

    /// Source, destination, port, DSCP, family and port of arrival of a packet.
    type Drawn = (u8, u8, u16, u8, bool, u16);

    fn frame((source, to, port, dscp, is_ipv6, port_in): Drawn) -> Frame {
        let bytes = if is_ipv6 {
            let at = |net: u8, host: u8| {
                let mut address = [0x20, 1, 0xd, 0xb8 + net / 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                address[15] = host + 1;
                address
            };
            let mut bytes = udp6(at(source, source), at(0, to + 16), 9, port, b"");
            bytes[0] |= dscp >> 2;
            bytes[1] |= dscp << 6;
            bytes
        } else {
            let bytes = udp4([10, source / 2, 0, source], [198, 51, 100, to], 9, port, b"");
            with_ipv4_field(bytes, 1, &[dscp << 2])
        };
        Frame::raw(bytes).on_port(port_in)
    }

    proptest! {
        /// Compiled rules and the routing stage, against rules that are tested one by one.
        #[test]
        fn the_first_rule_that_matches_chooses(
            rules in rules(),
            drawn in vec((0u8..4, 0u8..8, 0u16..8, 0u8..3, any::<bool>(), 0u16..4), 1..80),
        ) {
            let (router, compiled) = (router(), RoutingRules::compile(&rules, 3).unwrap());
            let (counts, mut expected_counts) = (compiled.counts(), std::vec::from_elem(0, rules.len()));
            let mut chunk = chunk(drawn.into_iter().map(frame).collect());
            let ingress = Ingress { drop_martians: true, ..Default::default() };
            ingress.process(&mut chunk.batch(0));
            let mut expected = Vec::new();
            let mut batch = chunk.batch(0);
            for i in 0..batch.len() {
                let (packet, l3) = batch.packet_and_l3(i);
                let facts = Facts::of(packet, l3).filter(|_| packet.is_alive());
                // Ports beyond those of the configuration have no rules.
                let is_about = |rule: &RoutingRule| {
                    packet.port_in < 3 && (rule.from.is_empty() || rule.from.contains(&packet.port_in))
                        && facts.is_some_and(|facts| rule.rule.holds(&facts))
                };
                let rule = rules.iter().position(is_about);
                rule.into_iter().for_each(|rule| expected_counts[rule] += 1);
                let port = match rule.map(|rule| rules[rule].target) {
                    Some(target @ (0 | 1)) => 7 + target as u16,
                    _ => 9,
                };
                expected.push(packet.drop_reason().map_or(Ok(port), Err));
            }
            compiled.process(&router, &mut batch, &counts);
            router.process_chosen(&mut batch);
            let found: Vec<_> = batch.packets().iter().map(|p| p.drop_reason().map_or(Ok(p.port_out), Err)).collect();
            prop_assert_eq!(found, expected);
            let counted: Vec<u64> = counts.all().iter().map(|count| count.packets).collect();
            prop_assert_eq!(counted, expected_counts);
        }
    }
}
