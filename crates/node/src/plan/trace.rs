//! Traces one packet through all stages without changing their state, and reports what each decides.
//!
//! The packet passes the same stages as other packets. Stages with state use a copy of it.

use thalweg_base::{Batch, Chunk, DropReason, Packet, PacketFlags};
use thalweg_dataplane::acl::{AclCounts, AclSet};
use thalweg_dataplane::firewall::PacketState;
use thalweg_dataplane::nat::Trial;
use thalweg_dataplane::police::{Color, ColorCounts};
use thalweg_dataplane::reverse_path::ReversePathMode;

use super::RouterPlan;

/// The stages' decisions about a packet, up to the stage that drops it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// The source check, if the ingress port has one.
    pub reverse_path: Option<ReversePathMode>,
    /// The ingress access list and the index of the matching rule; one past the last is the default.
    pub acl_in: Option<(usize, usize)>,
    /// The routing rule that chose its way.
    pub rule: Option<usize>,
    pub class: Option<u8>,
    /// The color that the class's policer gives it.
    pub color: Option<Color>,
    /// The translation, if NAT handles it.
    pub nat: Option<TracedNat>,
    /// The number of its route.
    pub next_hop: Option<u32>,
    /// Selects among equal paths.
    pub flow_hash: u32,
    /// The egress access list and the index of the matching rule.
    pub acl_out: Option<(usize, usize)>,
    /// What the packet is to the firewall, if that sees it, and the index of the deciding rule: one past the last for
    /// the policy, none if a limit decided.
    pub firewall: Option<(PacketState, Option<u16>)>,
    /// The egress port.
    pub port_out: Option<u16>,
    /// The stage that drops it, and the reason.
    pub dropped: Option<(TracedStage, DropReason)>,
    /// Offset of the IP header in the frame.
    pub l3_offset: u16,
    /// Whether an access list's refusal is reported to the sender.
    pub is_rejected: bool,
}

/// The steps that examine a packet, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedStage {
    Ingress,
    /// The check of its source.
    ReversePath,
    /// The ingress access list.
    AclIn,
    /// Its class's policer.
    Policer,
    /// NAT's labeling, which decides whether and where it is translated.
    Label,
    Nat,
    /// The look-up.
    Route,
    /// The egress access list.
    AclOut,
    Firewall,
}

/// NAT's handling of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedNat {
    /// Whether it comes from inside.
    pub outbound: bool,
    /// The effect on sessions.
    pub trial: Trial,
}

impl RouterPlan {
    /// Takes the only packet of a chunk through all stages at `now_ns`. The frame then has the bytes that would be
    /// sent. Nothing is counted or remembered.
    pub fn trace(&self, chunk: &mut Chunk, now_ns: u64) -> Traced {
        let mut traced = Traced::default();
        self.trace_ingress(chunk, &mut traced);
        self.trace_arrival(chunk, &mut traced);
        self.trace_nat(chunk, now_ns, &mut traced);
        self.trace_route(chunk, &mut traced);
        self.trace_firewall(chunk, now_ns, &mut traced);
        self.filters.prefixes.process_out(&mut chunk.batch(0));
        traced.replaces(TracedStage::Route, chunk.packets().first());
        if let Some(packet) = chunk.packets().first() {
            traced.l3_offset = packet.l3_offset;
            traced.is_rejected = packet.flags.has(PacketFlags::REJECT);
        }
        traced
    }

    fn trace_ingress(&self, chunk: &mut Chunk, traced: &mut Traced) {
        let filters = self.filters();
        let mut batch = chunk.batch(0);
        self.ingress.process(&mut batch);
        if !traced.passes(TracedStage::Ingress, &batch) {
            return;
        }
        let port_in = batch.packets()[0].port_in;
        traced.flow_hash = batch.packets()[0].flow_hash;
        traced.reverse_path = Some(filters.reverse_path.mode(port_in)).filter(|mode| mode.asks_packets());
        filters.reverse_path.process(&self.router, &mut batch);
        if !traced.passes(TracedStage::ReversePath, &batch) {
            return;
        }
        let mut counts = AclCounts::new(&filters.acls);
        filters.acls.process_in(&mut batch, &mut counts);
        traced.acl_in = met(&filters.acls, &counts);
        if !traced.passes(TracedStage::AclIn, &batch) {
            return;
        }
        filters.prefixes.process_in(&mut batch);
        if !traced.passes(TracedStage::Label, &batch) {
            return;
        }
        traced.rule = self.trace_rule(&mut batch);
        self.classifier.process(&mut batch);
        traced.class = Some(batch.packets()[0].class);
        self.label_batch(&mut batch, |packet| !packet.flags.has(PacketFlags::LATER_FRAGMENT));
        traced.passes(TracedStage::Label, &batch);
    }

    /// Policers, and ports of later fragments.
    fn trace_arrival(&self, chunk: &mut Chunk, traced: &mut Traced) {
        if traced.dropped.is_some() {
            return;
        }
        let is_later = |packet: &Packet| packet.flags.has(PacketFlags::LATER_FRAGMENT);
        let (mut police, fragments) = {
            let arrival = self.arrival.lock();
            let is_needed = self.needs_fragments() && chunk.packets().iter().any(is_later);
            (arrival.police.clone(), is_needed.then(|| arrival.fragments.clone()))
        };
        let before = police.counts();
        police.process(chunk);
        let of = traced.class.map(usize::from).and_then(|class| Some((before.get(class)?, class)));
        if let Some((Some(before), class)) = of {
            traced.color = police.counts()[class].and_then(|after| color(*before, after));
        }
        if !traced.passes(TracedStage::Policer, &chunk.batch(0)) {
            return;
        }
        if let Some(mut fragments) = fragments {
            fragments.process(chunk, self.needs_ipv6_fragments());
        }
        let (mut batch, _) = chunk.whole();
        self.label_batch(&mut batch, is_later);
        traced.passes(TracedStage::Label, &batch);
    }

    fn trace_nat(&self, chunk: &mut Chunk, now_ns: u64, traced: &mut Traced) {
        let Some(nat) = self.nat.as_ref().filter(|_| traced.dropped.is_none()) else { return };
        if self.firewall.is_some() {
            chunk.keep_origins(super::has_origin);
        }
        nat.labeler.make_room(chunk);
        let mut batch = chunk.batch(0);
        if batch.is_empty() {
            return;
        }
        let outbound = batch.packets()[0].flags.has(PacketFlags::NAT_OUT);
        let mut counts = AclCounts::new(&self.filters().acls);
        let trial = nat.stage.try_packet(&mut batch, 0, now_ns, &mut |packet, l3, inside| {
            self.judge_hairpin(packet, l3, inside, &mut counts);
        });
        traced.nat = trial.map(|trial| TracedNat { outbound, trial });
        traced.passes(TracedStage::Nat, &batch);
    }

    fn trace_route(&self, chunk: &mut Chunk, traced: &mut Traced) {
        if traced.dropped.is_some() {
            return;
        }
        let filters = self.filters();
        let mut batch = chunk.batch(0);
        self.find_ways(&mut batch);
        traced.next_hop = batch.packets().first().map(|packet| packet.next_hop.into());
        traced.passes(TracedStage::Route, &batch);
        let Some(packet) = batch.packets().first().filter(|packet| packet.is_leaving()) else { return };
        traced.port_out = Some(packet.port_out);
        let mut counts = AclCounts::new(&filters.acls);
        filters.acls.process_out(&mut batch, &mut counts);
        traced.acl_out = met(&filters.acls, &counts);
        traced.replaces(TracedStage::AclOut, batch.packets().first());
    }

    fn trace_firewall(&self, chunk: &mut Chunk, now_ns: u64, traced: &mut Traced) {
        let Some(firewall) = &self.firewall else { return };
        traced.firewall =
            firewall.stage.try_packet(&firewall.rules, chunk, now_ns).map(|(rule, state)| (state, rule));
        traced.replaces(TracedStage::Firewall, chunk.packets().first());
    }
}

impl Traced {
    /// Whether the packet is alive after a stage; records the stage that drops it.
    fn passes(&mut self, stage: TracedStage, batch: &Batch<'_>) -> bool {
        let reason = batch.packets().first().and_then(Packet::drop_reason);
        if let (Some(reason), None) = (reason, self.dropped) {
            self.dropped = Some((stage, reason));
        }
        self.dropped.is_none() && !batch.is_empty()
    }

    /// Records the stage if it drops the packet, which may have been waiting for its neighbor or to be cut.
    fn replaces(&mut self, stage: TracedStage, packet: Option<&Packet>) {
        let now = packet.and_then(Packet::drop_reason);
        if let Some(reason) = now.filter(|_| now != self.dropped.map(|(_, before)| before)) {
            self.dropped = Some((stage, reason));
        }
    }
}

/// The list and rule that the packet matched, found in counters that were zero before.
fn met(acls: &AclSet, counts: &AclCounts) -> Option<(usize, usize)> {
    (0..)
        .map_while(|list| Some(acls.counts_of(list, counts)).filter(|rules| !rules.is_empty()))
        .enumerate()
        .find_map(|(list, rules)| Some((list, rules.iter().position(|rule| rule.packets > 0)?)))
}

/// The color whose count has grown.
fn color(before: ColorCounts, after: ColorCounts) -> Option<Color> {
    [
        (Color::Green, before.green, after.green),
        (Color::Yellow, before.yellow, after.yellow),
        (Color::Red, before.red, after.red),
    ]
    .into_iter()
    .find_map(|(color, before, after)| (after > before).then_some(color))
}
