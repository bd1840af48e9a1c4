//! The rules, compiled: for each pair of zones and each state of packets an access list of the rules about them, found
//! without testing the others. Equal lists are compiled once.
//!
//! A pair of zones that no rule is about and whose connections the policy permits both ways within one zone is not
//! tracked at all: its packets pass without a look-up.

use super::config::{FirewallConfig, PacketState, ROUTER, Zone};
use super::flow::is_neighbor_discovery;
use crate::acl::{AclBindings, AclCounts, AclError, AclSet, Action, RuleLists};
use crate::helpers::Helpers;
use crate::rate_limit::Rate;
use std::net::{Ipv4Addr, SocketAddrV4};
use thalweg_base::{DropReason, Packet};

/// No rule is about these packets.
const NO_LIST: u16 = u16::MAX;

/// The rules between two zones.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// By state of packets.
    lists: [u16; PacketState::ALL.len()],
    permits: bool,
    /// Packets that belong to no connection pass unless a rule denies them: a zone's hosts may talk past this router,
    /// and its own errors and answers go back like this. Nor are the router's own protected by default.
    permits_invalid: bool,
    is_tracked: bool,
}

impl Pair {
    #[inline(always)]
    fn list(&self, state: PacketState) -> u16 {
        self.lists[state as usize]
    }
}

/// Pairs, lists and rules have numbers of 16 bits: there are fewer.
#[inline(always)]
fn number_of(place: usize) -> u16 {
    place as u16
}

/// All rules between all zones. They never change: a reload compiles others.
#[derive(Clone, Debug)]
pub struct FirewallRules {
    /// By port.
    zones: Box<[Zone]>,
    /// The number of zones, with the router itself, which is the last, if rules name it.
    zone_count: usize,
    names_router: bool,
    /// Addresses of the router that are NAT's too: NAT drops packets for the router that arrive there.
    public: Vec<Ipv4Addr>,
    /// By port; empty if there are no VRFs.
    vrfs: Box<[u16]>,
    pairs: Box<[Pair]>,
    lists: AclSet,
    /// Which rules are in them.
    members: RuleLists,
    limits: Box<[Option<Rate>]>,
    logs: Box<[bool]>,
    helpers: Helpers,
    /// Distinguishes these rules from those before.
    generation: u16,
}

/// What rules say about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The deciding rule; one past the last for the policy.
    pub rule: u16,
    pub action: Action,
    /// No rule matched: the policy decides.
    pub is_policy: bool,
}

impl FirewallRules {
    /// Compiles the rules of a configuration. States remember the generation of the rules that admitted them.
    pub fn compile(config: &FirewallConfig, generation: u16) -> Result<Self, AclError> {
        let names_router = config.names_router();
        let last = config.zones.iter().copied().max().unwrap_or(0);
        let zones: Vec<Zone> = (0..=last).chain(names_router.then_some(ROUTER)).collect();
        let zone_count = zones.len();
        let mut members = RuleLists::default();
        let mut pairs = Vec::with_capacity(zone_count * zone_count);
        for (from, to) in zones.iter().flat_map(|from| zones.iter().map(move |to| (*from, *to))) {
            let mut list_of = |state: PacketState| {
                let rules = (0u16..).zip(&config.rules).filter(|(_, rule)| rule.is_about(state, from, to));
                members.list(rules.map(|(number, _)| number).collect()).unwrap_or(NO_LIST)
            };
            let lists = PacketState::ALL.map(&mut list_of);
            let permits = config.permits(from, to);
            let is_tracked = from != to || !permits || lists.iter().any(|list| *list != NO_LIST);
            let permits_invalid = from == to || from == ROUTER || to == ROUTER;
            pairs.push(Pair { lists, permits, permits_invalid, is_tracked });
        }
        let rule = |number: usize| config.rules[number].rule.clone();
        let lists = members.compile(rule, Action::Deny, &AclBindings::default(), generation.into())?;
        Ok(Self {
            zones: config.zones.clone().into(),
            zone_count,
            names_router,
            public: Vec::new(),
            vrfs: Box::default(),
            pairs: pairs.into(),
            lists,
            members,
            limits: config.rules.iter().map(|rule| rule.limit).collect(),
            logs: config.rules.iter().map(|rule| rule.logs).collect(),
            helpers: config.helpers,
            generation,
        })
    }

    /// Takes addresses of the router that are NAT's too.
    pub fn with_public(self, public: Vec<Ipv4Addr>) -> Self {
        Self { public, ..self }
    }

    /// Takes the VRFs of ports, if there are any.
    pub fn with_vrfs(self, vrfs: Vec<u16>) -> Self {
        Self { vrfs: vrfs.into(), ..self }
    }

    /// The VRFs of ports, the main one included, a bit each.
    pub(super) fn vrf_bits(&self) -> u64 {
        let bit = |vrf: &u16| 1u64.checked_shl((*vrf).into()).unwrap_or(0);
        self.vrfs.iter().map(bit).fold(1, |bits, bit| bits | bit)
    }

    /// The VRFs of a packet's source and destination. The router's end is in that of the other.
    #[inline(always)]
    pub(crate) fn vrfs_of(&self, packet: &Packet) -> [u16; 2] {
        let of = |port: u16| self.vrfs.get(usize::from(port)).copied();
        let (from, to) = (of(packet.port_in), of(packet.port_out));
        [from.or(to).unwrap_or(0), to.or(from).unwrap_or(0)]
    }

    /// Whether a rule is about packets for the router itself, or from it.
    #[inline(always)]
    pub fn names_router(&self) -> bool {
        self.names_router
    }

    /// Protocols whose announcements the firewall reads itself.
    pub fn helpers(&self) -> Helpers {
        self.helpers
    }

    /// The version of these rules.
    pub fn generation(&self) -> u16 {
        self.generation
    }

    /// One worker's counters: by rule, and last those of the policy.
    pub fn counts(&self) -> AclCounts {
        AclCounts::of_version(self.generation.into(), self.limits.len() + 1)
    }

    /// Bytes of the compiled lists.
    pub fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }

    fn zone(&self, port: u16) -> usize {
        self.zones.get(usize::from(port)).copied().unwrap_or(0).into()
    }

    /// The number of a packet's pair of zones, if such packets are tracked.
    #[inline(always)]
    pub(crate) fn pair_of(&self, packet: &Packet) -> Option<u16> {
        let pair = self.zone(packet.port_in) * self.zone_count + self.zone(packet.port_out);
        self.pairs.get(pair).filter(|pair| pair.is_tracked).map(|_| number_of(pair))
    }

    /// The number of the pair of a packet's zone and the router, if the packet has come for the router itself and rules
    /// are about such packets. Messages of Neighbor Discovery always pass, and what came for all on the link.
    #[inline(always)]
    pub(crate) fn pair_to_router(&self, packet: &Packet, l3: &[u8]) -> Option<u16> {
        if !self.names_router {
            return None;
        }
        let is_for_it = match packet.drop_reason()? {
            // A DHCP server's answer is the router's without a route.
            DropReason::Local => packet.next_hop != 0,
            DropReason::NatNoMapping => {
                let to = l3.get(16..20).and_then(|bytes| bytes.first_chunk::<4>());
                to.is_some_and(|to| self.public.contains(&Ipv4Addr::from(*to)))
            }
            _ => false,
        };
        let is_judged = is_for_it && !is_neighbor_discovery(packet, l3);
        is_judged.then(|| number_of(self.zone(packet.port_in) * self.zone_count + self.zone_count - 1))
    }

    /// The number of the pair of the router and the zone of a port by which it sends.
    pub(crate) fn pair_from_router(&self, port: u16) -> Option<u16> {
        self.names_router.then(|| number_of((self.zone_count - 1) * self.zone_count + self.zone(port)))
    }

    /// The zones of a pair.
    pub(crate) fn zones_of(&self, pair: u16) -> (Zone, Zone) {
        let zone = |number: usize| match self.names_router && number + 1 == self.zone_count {
            true => ROUTER,
            false => Zone::try_from(number).unwrap_or(0),
        };
        (zone(usize::from(pair) / self.zone_count), zone(usize::from(pair) % self.zone_count))
    }

    /// Whether some rule is about packets in this state of a pair of zones.
    #[inline(always)]
    pub(crate) fn asks(&self, pair: u16, state: PacketState) -> bool {
        self.pairs.get(usize::from(pair)).is_some_and(|pair| pair.list(state) != NO_LIST)
    }

    /// The decision about a packet in this state. `source` is its real source, if NAT changed it.
    pub(crate) fn decide(
        &self,
        pair: u16,
        state: PacketState,
        packet: &mut Packet,
        l3: &[u8],
        source: Option<SocketAddrV4>,
    ) -> Decision {
        let policy_rule = number_of(self.limits.len());
        let Some(pair) = self.pairs.get(usize::from(pair)) else {
            return Decision { rule: policy_rule, action: Action::Deny, is_policy: true };
        };
        let list = pair.list(state);
        let found = match source {
            Some(source) => self.lists.decide_as_from(list, packet, l3, source),
            None => self.lists.decide(list, packet, l3),
        };
        let rule = found.and_then(|(rule, action)| Some((self.members.rule(list, rule?)?, action)));
        match rule {
            Some((rule, action)) => Decision { rule, action, is_policy: false },
            None => {
                let permits = match state {
                    PacketState::New => pair.permits,
                    PacketState::Established | PacketState::Related => true,
                    PacketState::Invalid => pair.permits_invalid,
                };
                let action = if permits { Action::Permit } else { Action::Deny };
                Decision { rule: policy_rule, action, is_policy: true }
            }
        }
    }

    /// The limit of a rule's connections.
    pub(crate) fn limit(&self, rule: u16) -> Option<Rate> {
        self.limits.get(usize::from(rule)).copied().flatten()
    }

    /// Whether what a rule decides is logged.
    pub(crate) fn logs(&self, rule: u16) -> bool {
        self.logs.get(usize::from(rule)).copied().unwrap_or(false)
    }

    /// The number of rules.
    pub fn rule_count(&self) -> usize {
        self.limits.len()
    }
}
