//! Puts the stages' decisions into words.

use std::net::{IpAddr, SocketAddr};

use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType};
use thalweg_dataplane::ip_packet::IpPacket;
use thalweg_dataplane::nat::Trial;
use thalweg_dataplane::police::{Color, ColorAction};
use thalweg_dataplane::reverse_path::ReversePathMode;
use thalweg_text::units::{counted, exact_bit_rate};
use thalweg_wire::ethernet::EthernetRepr;
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, UDP};
use thalweg_wire::{EtherType, MacAddr, icmp, ndp};

use super::{PacketSpec, SpecError, Surroundings, TraceStep, TraceView};
use crate::egress::{egress_config, has_queues};
use crate::plan::{RouterPlan, Traced, TracedStage};
use thalweg_config::{PortConfig, PortIndex, RouteTarget, RouterConfig};

/// Traces a described packet through a plan, and says what each stage does and why. `config` is the plan's
/// configuration. Errors if there is no such port.
pub fn explain(
    config: &RouterConfig,
    plan: &RouterPlan,
    around: &dyn Surroundings,
    spec: &PacketSpec,
    now_ns: u64,
) -> Result<TraceView, SpecError> {
    let port = port_of(config, spec)?;
    let mut chunk = chunk_of(config, spec, port, now_ns);
    let traced = plan.trace(&mut chunk, now_ns);
    let explanation = Explanation { config, around, spec, traced: &traced, steps: Vec::new() };
    Ok(explanation.write(&chunk, port))
}

/// The port with this name or this interface.
fn port_of(config: &RouterConfig, spec: &PacketSpec) -> Result<PortIndex, SpecError> {
    let interface = |port: &thalweg_config::PortConfig| {
        port.interface.as_ref().is_some_and(|interface| interface.name == spec.port)
    };
    let by_name = config.ports.iter().position(|port| port.name == spec.port && !port.is_vacant());
    let place = by_name.or_else(|| config.ports.iter().position(interface));
    place.and_then(|place| PortIndex::try_from(place).ok()).ok_or_else(|| {
        let ports = config.ports.iter().filter(|port| !port.is_vacant());
        let names: Vec<_> = ports.map(|port| port.name.as_str()).collect();
        SpecError {
            what: "the packet",
            text: spec.to_string(),
            column: 1,
            found: spec.port.clone(),
            expected: format!("a port: {}", names.join(", ")),
        }
    })
}

/// The packet as its port's driver would deliver it: in an Ethernet frame, with a sub-interface's tag.
fn chunk_of(config: &RouterConfig, spec: &PacketSpec, port: PortIndex, now_ns: u64) -> Chunk {
    let packet = spec.to_packet();
    let port_config = &config.ports[usize::from(port)];
    let header = EthernetRepr {
        destination: port_config.mac,
        source: MacAddr([2, 0, 0, 0, 0, 1]),
        ether_type: EtherType::of_packet(&packet),
    };
    let sub = port_config.sub_interface;
    let port_in = sub.map_or(port, |sub| sub.parent);
    let frame = [header.encode_tagged(sub.map(|sub| sub.vlan)), packet].concat();
    let mut builder = ChunkBuilder::with_capacity(frame.len() + 2 * ChunkBuilder::HEADROOM);
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + frame.len()].copy_from_slice(&frame);
    builder.push(at, frame.len(), frame.len() as u32, now_ns, LinkType::Ethernet, port_in, 0);
    builder.finish(0, 1, now_ns)
}

struct Explanation<'e> {
    config: &'e RouterConfig,
    around: &'e dyn Surroundings,
    spec: &'e PacketSpec,
    traced: &'e Traced,
    steps: Vec<TraceStep>,
}

impl Explanation<'_> {
    fn write(mut self, chunk: &Chunk, port: PortIndex) -> TraceView {
        let (frame, offset) = (chunk.frame(0), usize::from(self.traced.l3_offset));
        let packet = IpPacket::parse(frame.get(offset..).unwrap_or_default());
        let destination = packet.map_or(self.spec.destination, |packet| packet.destination);
        self.ingress(port);
        self.filters_in(port);
        self.routing_rule();
        self.class();
        let descriptor = &chunk.packets()[0];
        let source = packet.map_or(self.spec.source, |packet| packet.source);
        self.nat(
            SocketAddr::new(source, descriptor.src_port),
            SocketAddr::new(destination, descriptor.dst_port),
        );
        let neighbor = self.route(destination);
        self.filters_out();
        self.firewall();
        self.queue(descriptor.class);
        let (outcome, summary) = self.end(frame.len(), neighbor);
        let reason = self.traced.dropped.map(|(_, reason)| reason.name().to_owned());
        TraceView { packet: self.spec.to_string(), steps: self.steps, outcome, reason, summary }
    }

    fn step(&mut self, stage: &str, verdict: &str, why: impl Into<String>) {
        self.steps.push(TraceStep { stage: stage.to_owned(), verdict: verdict.to_owned(), why: why.into() });
    }

    /// Why this stage drops the packet, if it does.
    fn drops(&self, stage: TracedStage) -> Option<DropReason> {
        self.traced.dropped.filter(|(at, _)| *at == stage).map(|(_, reason)| reason)
    }

    /// Adds a step for a stage that drops or passes.
    fn pass_or_drop(
        &mut self,
        name: &str,
        stage: TracedStage,
        why: impl FnOnce(Option<DropReason>) -> String,
    ) {
        let dropped = self.drops(stage);
        let verdict = dropped.map_or("pass".to_owned(), |reason| format!("drop: {}", reason.name()));
        let why = why(dropped);
        self.step(name, &verdict, why);
    }

    fn port_name(&self, port: PortIndex) -> String {
        self.config.ports.get(usize::from(port)).map_or_else(|| "?".to_owned(), |port| port.name.clone())
    }

    fn ingress(&mut self, port: PortIndex) {
        let name = self.port_name(port);
        self.pass_or_drop("ingress", TracedStage::Ingress, |dropped| match dropped {
            Some(reason) => reason.meaning().to_owned(),
            None => format!("arrives on {name}; its headers and addresses are valid"),
        });
    }

    fn filters_in(&mut self, port: PortIndex) {
        if let Some(mode) = self.traced.reverse_path {
            let (name, source) = (self.port_name(port), self.spec.source);
            let prefix = self.around.prefix(source);
            self.pass_or_drop("source", TracedStage::ReversePath, |dropped| {
                let found = match (&prefix, mode, dropped) {
                    (None, _, _) => format!("there is no route to {source}"),
                    (Some(prefix), ReversePathMode::Strict, None) => {
                        format!("the route to {source} ({prefix}) leaves by {name}")
                    }
                    (Some(prefix), ReversePathMode::Strict, Some(_)) => {
                        format!("the route to {source} ({prefix}) does not leave by {name}")
                    }
                    (Some(prefix), _, None) => format!("there is a route to {source} ({prefix})"),
                    (Some(prefix), _, Some(_)) => {
                        format!("the route to {source} ({prefix}) is a default route or leads nowhere")
                    }
                };
                format!("urpf {mode}: {found}")
            });
        }
        if let Some((list, rule)) = self.traced.acl_in {
            let why = self.rule(list, rule);
            self.pass_or_drop("access list in", TracedStage::AclIn, |_| why);
        }
    }

    fn routing_rule(&mut self) {
        let routing = &self.config.routing;
        let Some(place) = self.traced.rule else { return };
        let (Some(rule), Some(name)) = (routing.rules.get(place), routing.rule_names.get(place)) else {
            return;
        };
        let target = routing.target_of(rule.target).map(RouteTarget::preferred);
        let verdict = if target == Some(&RouteTarget::Routes) { "as the routes say" } else { "chooses" };
        self.step("routing rule", verdict, format!("rule {name}"));
    }

    fn filters_out(&mut self) {
        if let Some((list, rule)) = self.traced.acl_out {
            let why = self.rule(list, rule);
            self.pass_or_drop("access list out", TracedStage::AclOut, |_| why);
        }
    }

    fn firewall(&mut self) {
        let (Some(config), Some((state, rule))) = (&self.config.firewall, self.traced.firewall) else {
            return;
        };
        let decides = match rule {
            Some(rule) if usize::from(rule) < config.rule_names.len() => {
                format!("rule {}", config.rule_name(rule))
            }
            Some(_) => format!("no rule matches, policy {}", config.firewall.policy),
            None => "a limit is reached, or the table is full".to_owned(),
        };
        self.pass_or_drop("firewall", TracedStage::Firewall, |_| format!("{state}: {decides}"));
    }

    fn rule(&self, list: usize, rule: usize) -> String {
        let Some(acl) = self.config.acls.get(list) else { return String::new() };
        match (acl.list.rules.get(rule), acl.rule_names.get(rule)) {
            (Some(rule), Some(name)) => format!("list {}, rule {name}: {}", acl.name, rule.action.name()),
            _ => format!("list {}, no rule matches, default: {}", acl.name, acl.list.default.name()),
        }
    }

    fn class(&mut self) {
        let Some(class) = self.traced.class else { return };
        let Some(config) = self.config.qos.classes.get(usize::from(class)) else { return };
        self.step("class", &config.name, config.service.to_string());
        let Some(color) = self.traced.color else { return };
        let (name, what) = match color {
            Color::Green => ("green", "within the committed rate".to_owned()),
            Color::Yellow => {
                let marked = match config.policer.map(|policer| policer.yellow) {
                    Some(ColorAction::Remark(dscp)) => format!("; gets DSCP {dscp}"),
                    _ => String::new(),
                };
                ("yellow", format!("above the committed rate{marked}"))
            }
            Color::Red => match config.policer.map(|policer| policer.red) {
                Some(ColorAction::Remark(dscp)) => ("red", format!("above both rates; gets DSCP {dscp}")),
                _ => ("red", "above both rates".to_owned()),
            },
        };
        self.pass_or_drop("policer", TracedStage::Policer, |_| format!("{name}: {what}"));
    }

    fn nat(&mut self, source: SocketAddr, destination: SocketAddr) {
        if self.config.nat.is_none() || self.traced.class.is_none() {
            return;
        }
        if let Some(reason) = self.drops(TracedStage::Label) {
            return self.step("nat", &format!("drop: {}", reason.name()), reason.meaning());
        }
        if self.drops(TracedStage::Policer).is_some() {
            return;
        }
        let Some(nat) = self.traced.nat else {
            return self.step(
                "nat",
                "pass",
                "not translated: it neither goes from an inside port to the outside nor to a public address, or is an exception",
            );
        };
        if let Some(reason) = self.drops(TracedStage::Nat) {
            return self.step("nat", &format!("drop: {}", reason.name()), reason.meaning());
        }
        let session = match nat.trial {
            Trial { makes_session: true, .. } => "new session",
            Trial { is_one_to_one: true, .. } => "one to one",
            _ => "existing session",
        };
        let (from, to) = (self.spec.source, self.spec.destination);
        match (nat.outbound, nat.trial.is_hairpin) {
            _ if from.is_ipv6() != source.is_ipv6() => {
                let after = format!("{source} -> {destination}");
                self.step("nat", "translate", format!("{session}: {from} -> {to} becomes {after}"));
            }
            (true, true) => {
                self.step(
                    "nat",
                    "translate",
                    format!("{session}, hairpin: source {from} becomes {source}, destination {to} becomes {destination}"),
                );
            }
            (true, false) => {
                self.step("nat", "translate", format!("{session}: source {from} becomes {source}"))
            }
            (false, _) => {
                self.step("nat", "translate", format!("{session}: destination {to} becomes {destination}"));
            }
        }
    }

    /// Adds the look-up and the next neighbor; returns the neighbor's MAC address, if known.
    fn route(&mut self, destination: IpAddr) -> Option<String> {
        let number = self.traced.next_hop?;
        let prefix = self.around.prefix(destination).unwrap_or_else(|| "no prefix".to_owned());
        let next = self.around.next_of(number, self.traced.flow_hash, destination);
        let way = match next {
            Some((port, address)) if address == destination => {
                format!("{prefix}: {destination} is on the link of {}", self.port_name(port))
            }
            Some((port, address)) => {
                format!("{prefix}, via {address} on {}", self.port_name(port))
            }
            None => prefix.clone(),
        };
        self.pass_or_drop("route", TracedStage::Route, |dropped| match dropped {
            Some(DropReason::NeighborUnresolved) => way,
            Some(reason) => format!("{way}: {}", reason.meaning()),
            None => way,
        });
        let (port, address) = next?;
        let neighbor = self.around.neighbor(port, address);
        let known = neighbor.as_ref().and_then(|neighbor| neighbor.mac);
        let link = self.around.link(port);
        let mac = link.map_or(known, |link| link.destination(known));
        let state = neighbor.map_or("unknown".to_owned(), |neighbor| neighbor.state);
        let mac = mac.map(|mac| mac.to_string());
        let why = match &mac {
            Some(mac) => format!("{address} on {} has {mac}", self.port_name(port)),
            None => {
                let by = if address.is_ipv4() { "ARP" } else { "Neighbor Discovery" };
                format!(
                    "{address} on {} is not resolved: the router asks for it by {by}",
                    self.port_name(port)
                )
            }
        };
        self.step("neighbor", &state, why);
        if let Some(link) = link {
            let verdict = if self.spec.length > link.mtu as usize { "too large" } else { "fits" };
            self.step("mtu", verdict, format!("{} bytes, the port's MTU is {}", self.spec.length, link.mtu));
        }
        mac
    }

    fn queue(&mut self, class: u8) {
        let Some(port) = self.traced.port_out.filter(|_| self.traced.dropped.is_none()) else { return };
        // Sub-interfaces share their parent's queues.
        let parent = self.config.ports.get(usize::from(port)).and_then(|port| port.sub_interface);
        let port = parent.map_or(port, |sub| sub.parent);
        let name = self.port_name(port);
        if !has_queues(self.config, port) {
            return self.step(
                "queue",
                "none",
                format!("{name} has no queues: frames go to its driver at once"),
            );
        }
        let queues = egress_config(self.config, port);
        let Some(queue) = queues.classes.get(usize::from(class)) else { return };
        let rate = |bps: Option<u64>| bps.map_or("no rate limit".to_owned(), exact_bit_rate);
        let waiting = self
            .around
            .waiting(port, class)
            .map_or(String::new(), |waiting| format!("; {} waiting", counted(waiting, "packet")));
        let why = format!(
            "{name}: {}; class {}: {}, at most {}{waiting}",
            rate(queues.rate_bps),
            queue.name,
            rate(queue.rate_bps),
            counted(queue.limit_packets as u64, "packet")
        );
        self.step("queue", &queue.name, why);
    }

    fn end(&self, bytes: usize, neighbor: Option<String>) -> (String, String) {
        let Some((_, reason)) = self.traced.dropped else {
            let port = self.traced.port_out.map_or(String::new(), |port| self.port_name(port));
            let to = neighbor.map_or(String::new(), |mac| format!(" to {mac}"));
            let ttl = self.spec.ttl.saturating_sub(1);
            return ("sent".to_owned(), format!("sent by {port}{to}, {bytes} bytes, TTL {ttl}"));
        };
        let (outcome, what) = self.afterwards(reason);
        (outcome.to_owned(), format!("{}: {what}", reason.name()))
    }

    /// What the host side does with a packet that the stages do not forward.
    fn afterwards(&self, reason: DropReason) -> (&'static str, String) {
        use DropReason as R;
        let is_v4 = self.spec.source.is_ipv4();
        let (outcome, what) = match reason {
            R::Local => return self.to_router(),
            R::NatNoMapping if self.is_own(self.spec.destination) => return self.to_router(),
            R::NotUnicast | R::LinkLocal if self.is_neighbor_discovery() => {
                ("host", "taken by the router's Neighbor Discovery")
            }
            R::NotUnicast | R::LinkLocal => match self.mirror() {
                Some(mirror) => return ("host", format!("handed to the mirror {mirror}")),
                None => ("dropped", "the port has no mirror that could take it"),
            },
            R::NeighborUnresolved => (
                "waits",
                "held until the neighbor answers; if it does not, the sender is told: host unreachable",
            ),
            R::TtlExpired => ("dropped", "the sender is told: time exceeded"),
            R::NoRoute | R::Unreachable => ("dropped", "the sender is told: unreachable"),
            R::MtuExceeded if is_v4 && !self.spec.dont_fragment => {
                ("sent", "cut into fragments, which are sent")
            }
            R::MtuExceeded if is_v4 => ("dropped", "the sender is told the MTU: fragmentation needed"),
            R::MtuExceeded => ("dropped", "the sender is told the MTU: packet too big"),
            R::AclDenied | R::FirewallDenied if self.traced.is_rejected => {
                ("dropped", "the sender is told: administratively prohibited")
            }
            _ => ("dropped", "the sender is told nothing"),
        };
        (outcome, what.to_owned())
    }

    /// What happens to a packet for the router itself.
    fn to_router(&self) -> (&'static str, String) {
        if let Some(mirror) = self.mirror() {
            return ("host", format!("for the router itself: handed to the mirror {mirror}"));
        }
        let what = match (self.spec.protocol, self.spec.icmp) {
            (ICMP, Some((icmp::v4::ECHO_REQUEST, _))) | (ICMPV6, Some((icmp::v6::ECHO_REQUEST, _))) => {
                "answered with an echo reply"
            }
            (UDP, _) => "the port has no mirror, so the sender is told: port unreachable",
            _ => "the port has no mirror, so nothing takes it and the sender is told nothing",
        };
        ("host", format!("for the router itself: {what}"))
    }

    /// The mirror of the ingress port.
    fn mirror(&self) -> Option<&str> {
        let is_it = |port: &&PortConfig| {
            port.name == self.spec.port
                || port.interface.as_ref().is_some_and(|interface| interface.name == self.spec.port)
        };
        self.config.ports.iter().find(is_it)?.interface.as_ref()?.mirror.as_deref()
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.config.ports.iter().flat_map(|port| &port.addresses).any(|net| net.addr() == address)
    }

    fn is_neighbor_discovery(&self) -> bool {
        self.spec.protocol == ICMPV6
            && self
                .spec
                .icmp
                .is_some_and(|(kind, _)| (ndp::ROUTER_SOLICITATION..=ndp::REDIRECT).contains(&kind))
    }
}

#[cfg(test)]
mod tests;
