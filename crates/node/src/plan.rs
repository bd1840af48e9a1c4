//! The router as a plan: the packet stages in order, with the scope of the state each touches.
//!
//! | stage | scope | when |
//! |---|---|---|
//! | `parse` | one chunk | if asked for: find the packets of chunks that their source has only cut off |
//! | `ingress` | any batch | always: validate, sample for sFlow, check sources, access lists, IPv6 prefixes, routing rules, classify, label with shards |
//! | `arrival` | in order | if a class has a policer, or NAT or the firewall needs the ports of fragments |
//! | `order` | one chunk | if packets of some class overtake others: sort into order of service |
//! | `nat` | per shard | if configured |
//! | `route` | any batch | always: look-up, TTL, MAC addresses, segment sizes of TCP, access lists |
//! | `firewall` | per shard | if configured: connections between zones |
//! | `egress` | any batch | always: IPv6 prefixes, the counters |
//! | `flows` | per shard | if configured: metering by flow, dropped packets included |
//! | `work-*` | any batch | with synthetic work: after bandwidth management, NAT, routing and output |
//!
//! Helpers are not a stage: a chunk with a packet that concerns one crosses the two stages with connections, which read
//! it then (`thalweg_dataplane::helpers`).
//!
//! Source checks and access lists are not stages of their own: they share the scope of the stage they run in, and
//! find the headers in the first-level cache. Incoming lists run before everything that packets could exhaust
//! (policers, NAT sessions); outgoing lists run after the look-up that chooses the egress port. A reload replaces
//! all of them as one snapshot while packets pass.
//!
//! Stages without work are left out, so that those over batches are adjacent and a batch passes all of them while
//! it is in the first-level cache.
//!
//! State with order lives in mutexes. The scopes keep them free of contention, so they cost one uncontended lock
//! per chunk and stage.

mod firewall;
mod flows;
mod nat_events;
mod next_plan;
mod rules;
mod samples;
mod trace;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{BATCH_PACKETS, Batch, Chunk, DropReason, NO_SHARD, Packet, PacketFlags};
use thalweg_dataplane::account::Account;
use thalweg_dataplane::acl::{AclCells, AclCounts, AclSet, RuleCount};
use thalweg_dataplane::classify::Classifier;
use thalweg_dataplane::firewall::state_hash;
use thalweg_dataplane::fragments::{FragmentCounts, FragmentTracker};
use thalweg_dataplane::helpers::Helpers;
use thalweg_dataplane::ingress::{Addresses, Ingress};
use thalweg_dataplane::mss::MssClamp;
use thalweg_dataplane::nat::{Labeler, NatCounters, NatProtocol, shard_group};
use thalweg_dataplane::police::{ColorCounts, Police};
use thalweg_dataplane::prefix_translation::PrefixTranslation;
use thalweg_dataplane::queens::{self, Boards};
use thalweg_dataplane::reverse_path::{ReversePath, SourceCheck};
use thalweg_dataplane::route::Router;
use thalweg_dataplane::schedule::Scheduler;
use thalweg_exec::{GROUPS_PER_WORKER, Locks, Plan, Scope, StageSpec};
use thalweg_flow::export::NatEvent;
use thalweg_flow::{FlowRecord, PacketSamplers};

use nat_events::NatLog;
use samples::WorkerSamples;

pub use firewall::{Firewall, FirewallStage};
pub use flows::{Flows, RecordOutlet};
pub use next_plan::{Migrated, NextPlan};
pub use rules::{CountedRule, WayRules};
pub use trace::{Traced, TracedNat, TracedStage};

/// NAT with shards that several threads share.
pub type NatStage = thalweg_dataplane::nat::NatStage<Locks>;

/// A flow meter with shards that several threads share.
pub type Meter = thalweg_flow::Meter<Locks>;

/// Shards of a router without NAT, where they only spread flows over a farm's workers.
const SHARDS_WITHOUT_NAT: u16 = 64;

/// NAT as the plan uses it.
#[derive(Debug)]
pub struct Nat {
    /// Finds the shard of a packet.
    pub labeler: Labeler,
    /// The shards; threads that list sessions share them.
    pub stage: Arc<NatStage>,
    /// Its outside ports, in its order.
    pub outsides: Box<[Outside]>,
}

/// An outside port of NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    pub port: u16,
    /// The target that leads out of it, if there are several outside ports and the configuration has such a route: the
    /// way of answers to what came by port forwards.
    pub gateway: Option<u32>,
}

/// Source checks, access lists, limits of TCP's segments and translation of IPv6 prefixes. Every worker reads them; a
/// reload replaces them as a whole.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    pub reverse_path: ReversePath,
    pub acls: AclSet,
    pub mss: MssClamp,
    pub prefixes: PrefixTranslation,
}

impl Filters {
    /// Whether incoming packets are neither filtered nor changed.
    fn are_idle(&self) -> bool {
        self.reverse_path.is_idle() && !self.acls.has_inbound() && self.prefixes.is_idle()
    }
}

/// The parts of a plan, built from a configuration.
pub struct RouterParts {
    pub ingress: Ingress,
    pub filters: Filters,
    pub classifier: Classifier,
    pub police: Police,
    /// The order of service.
    pub scheduler: Scheduler,
    pub nat: Option<Nat>,
    pub way_rules: WayRules,
    pub firewall: Option<Firewall>,
    /// NAT's public addresses that are also the router's own.
    pub router_addresses: Vec<Ipv4Addr>,
    /// The sources that may create NAT sessions; `None` admits all.
    pub session_sources: Option<Arc<SourceCheck>>,
    pub router: Router,
    /// Number of configured ports.
    pub ports: usize,
    /// Number of configured classes.
    pub classes: usize,
    /// Boards of the synthetic work, if any.
    pub work_queens: Option<Boards>,
    /// Key of NAT's hashes; the plans that follow use the same one.
    pub hash_seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Parse,
    Ingress,
    Arrival,
    Order,
    Nat,
    Route,
    Firewall,
    Egress,
    Flows,
    /// Synthetic work on this many boards.
    Work(usize),
}

/// Packets that matched rules of access lists.
#[derive(Debug, Default)]
struct RuleCounts {
    /// The counters of every worker so far.
    workers: Vec<Arc<AclCells>>,
    /// By list, the counts of the plan before this one, if the list is unchanged.
    before: HashMap<usize, Vec<RuleCount>>,
}

/// State that must see packets in order of arrival.
#[derive(Debug)]
struct Arrival {
    police: Police,
    fragments: FragmentTracker,
}

/// One worker's own state.
#[derive(Debug)]
pub struct Scratch {
    pub account: Account,
    pub acl: AclCounts,
    /// Packets by routing rule.
    ways: AclCounts,
    /// Packets by rule of the firewall.
    pub firewall: AclCounts,
    /// Sum of all synthetic results, so that the compiler cannot remove the work.
    pub queens_sum: u64,
    members: Vec<(u16, u16)>,
    /// Flows that have ended.
    records: Vec<FlowRecord>,
    nat_events: Vec<NatEvent>,
    samples: Option<WorkerSamples>,
    /// The target of sorting a chunk's descriptors, which then takes the place of the chunk's own.
    spare: Vec<Packet>,
}

/// A router that an execution model can run.
pub struct RouterPlan {
    specs: Vec<StageSpec>,
    stages: Vec<Stage>,
    ingress: Ingress,
    filters: Filters,
    rule_counts: Mutex<RuleCounts>,
    classifier: Classifier,
    arrival: Mutex<Arrival>,
    scheduler: Scheduler,
    nat: Option<Nat>,
    way_rules: WayRules,
    firewall: Option<Firewall>,
    router_addresses: Vec<Ipv4Addr>,
    session_sources: Option<Arc<SourceCheck>>,
    nat_log: Option<NatLog>,
    router: Router,
    flows: Option<Flows>,
    samples: Option<PacketSamplers>,
    ports: usize,
    classes: usize,
    work_queens: Option<Boards>,
    hash_seed: u64,
    shards: u16,
    groups: usize,
    clock_ns: AtomicU64,
}

impl RouterPlan {
    /// Lists the stages that these parts need.
    pub fn new(parts: RouterParts) -> Self {
        let shards = shards_with(parts.nat.as_ref());
        let arrival = !parts.police.is_idle() || parts.nat.is_some() || parts.firewall.is_some();
        let mut rows = vec![("ingress", Stage::Ingress, Scope::Batches)];
        if arrival {
            rows.push(("arrival", Stage::Arrival, Scope::Ordered));
        }
        if !parts.scheduler.keeps_arrival_order() {
            rows.push(("order", Stage::Order, Scope::Whole));
        }
        let work = |rows: &mut Vec<_>, nth, name| {
            if parts.work_queens.is_some() {
                rows.push((name, Stage::Work(nth), Scope::Batches));
            }
        };
        work(&mut rows, 0, "work-bandwidth");
        if parts.nat.is_some() {
            rows.push(("nat", Stage::Nat, Scope::PerShard));
        }
        work(&mut rows, 1, "work-nat");
        rows.push(("route", Stage::Route, Scope::Batches));
        if parts.firewall.is_some() {
            rows.push(("firewall", Stage::Firewall, Scope::PerShard));
        }
        work(&mut rows, 2, "work-route");
        work(&mut rows, 3, "work-output");
        rows.push(("egress", Stage::Egress, Scope::Batches));
        Self {
            specs: rows
                .iter()
                .map(|(name, _, scope)| StageSpec { name: (*name).into(), scope: *scope })
                .collect(),
            stages: rows.iter().map(|r| r.1).collect(),
            ingress: parts.ingress,
            filters: parts.filters,
            rule_counts: Mutex::default(),
            classifier: parts.classifier,
            arrival: Mutex::new(Arrival { police: parts.police, fragments: FragmentTracker::default() }),
            scheduler: parts.scheduler,
            nat: parts.nat,
            way_rules: parts.way_rules,
            firewall: parts.firewall,
            router_addresses: parts.router_addresses,
            session_sources: parts.session_sources,
            nat_log: None,
            router: parts.router,
            flows: None,
            samples: None,
            ports: parts.ports,
            classes: parts.classes,
            work_queens: parts.work_queens,
            hash_seed: parts.hash_seed,
            shards,
            groups: 1,
            clock_ns: AtomicU64::new(0),
        }
    }

    /// NAT's public addresses that a port has too: programs on the router have sockets there.
    pub fn router_addresses(&self) -> &[Ipv4Addr] {
        &self.router_addresses
    }

    /// Has NAT ask this plan's configuration which sources may create sessions.
    pub(crate) fn check_sources_of_sessions(&self) {
        if let Some(nat) = &self.nat {
            nat.stage.set_sources(self.session_sources.clone());
        }
    }

    /// Divides the shards into groups for this many workers. Results do not depend on it: a group is only what a
    /// worker takes at a time.
    pub fn for_workers(mut self, workers: usize) -> Self {
        self.groups = workers.saturating_mul(GROUPS_PER_WORKER).clamp(1, usize::from(self.shards));
        self
    }

    /// Has a first stage [parse](Chunk::parse) chunks.
    #[must_use]
    pub fn with_parsing(mut self) -> Self {
        self.stages.insert(0, Stage::Parse);
        self.specs.insert(0, StageSpec { name: "parse".to_owned(), scope: Scope::Whole });
        self
    }

    /// Whether frames that merge several packets of a flow may stay whole: no part of this plan treats packets of
    /// one such frame differently. Policers may drop some of them, sampling and payloads of flows concern single
    /// packets, rules may ask for PSH, and the firewall follows each segment.
    pub fn takes_merged(&self) -> bool {
        let is_unpoliced = self.arrival.lock().police.is_idle();
        is_unpoliced
            && self.firewall.is_none()
            && self.flows.as_ref().is_none_or(Flows::takes_merged)
            && !self.filters.acls.asks_for_push()
    }

    /// Packets by color of each class that has a policer.
    pub fn color_counts(&self) -> Vec<Option<ColorCounts>> {
        self.arrival.lock().police.counts()
    }

    /// The fragment tracker's counters.
    pub fn fragment_counts(&self) -> FragmentCounts {
        self.arrival.lock().fragments.counts()
    }

    /// NAT's counters, if configured, after sessions that have expired by the packet clock were removed from every
    /// shard, idle ones too. Do not call it while a model runs.
    pub fn nat_counters(&self) -> Option<NatCounters> {
        let nat = self.nat.as_ref()?;
        nat.stage.advance(self.clock_ns.load(Ordering::Relaxed));
        Some(nat.stage.counters())
    }

    /// The NAT stage, if configured: to list sessions, and to end expired ones while no packet comes.
    pub fn nat_stage(&self) -> Option<Arc<NatStage>> {
        self.nat.as_ref().map(|nat| Arc::clone(&nat.stage))
    }

    /// The sum of all workers' accounts.
    pub fn merged_account<'a>(&self, scratches: impl Iterator<Item = &'a Scratch>) -> Account {
        let mut all = Account::new(self.ports, self.classes);
        scratches.for_each(|s| all.merge(&s.account));
        all
    }

    /// The source checks and access lists in force.
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    fn group_of(&self, shard: u16) -> u16 {
        shard_group(usize::from(shard), self.groups, usize::from(self.shards)) as u16
    }

    /// Whether the ports of later fragments matter.
    fn needs_fragments(&self) -> bool {
        self.nat.is_some() || self.firewall.is_some()
    }

    /// Whether those of IPv6 do.
    fn needs_ipv6_fragments(&self) -> bool {
        self.firewall.is_some() || self.nat.as_ref().is_some_and(|nat| nat.labeler.translates_ipv6())
    }

    /// Polices a chunk and finds the ports of later fragments. With NAT or the firewall those get their shards only
    /// here, because the shard follows from the ports.
    fn arrive(&self, chunk: &mut Chunk) {
        self.clock_ns.fetch_max(chunk.clock_ns, Ordering::Relaxed);
        let mut arrival = self.arrival.lock();
        if !arrival.police.is_idle() {
            arrival.police.process(chunk);
        }
        if chunk.has_fragments && self.needs_fragments() {
            let vrf_of = |port| self.router.vrf_of(port);
            arrival.fragments.process(chunk, self.needs_ipv6_fragments(), vrf_of);
            drop(arrival);
            let is_later = |packet: &Packet| packet.flags.has(PacketFlags::LATER_FRAGMENT);
            chunk.crosses_shards |= self.label_batch(&mut chunk.whole().0, is_later);
            if self.firewall.is_some() {
                // The firewall will not take them. They wait for their first as they came, before NAT.
                let is_orphan = |packet: &&mut Packet| {
                    is_later(packet) && is_for_nat(packet) && !packet.flags.has(PacketFlags::HAS_PORTS)
                };
                let orphans = chunk.packets_mut().iter_mut().filter(is_orphan);
                orphans
                    .filter(|packet| NatProtocol::from_ip(packet.protocol).is_some())
                    .for_each(|packet| packet.drop_for(DropReason::FragmentWithoutFirst));
            }
        }
        if let Some(nat) = &self.nat {
            nat.labeler.make_room(chunk);
        }
        if let Some(flows) = &self.flows {
            if chunk.has_fragments {
                flows.label_fragments(chunk, self.shards, self.port_vrfs());
            }
            flows.meter.learn_names(chunk);
        }
    }

    /// Validates, filters, classifies and labels a batch: everything that a packet's own bytes decide.
    ///
    /// Without filters, the rest happens in the validation loop, while descriptor and header are in registers.
    fn ingress(&self, chunk: &mut Chunk, k: usize, scratch: &mut Scratch) {
        let mut samples = std::mem::take(&mut chunk.samples);
        let mut batch = chunk.batch(k);
        let filters = &self.filters;
        let is_plain = filters.are_idle() && !self.chooses_ways() && self.helpers().is_empty();
        let only_class = self.classifier.only_class().filter(|_| is_plain);
        let (fragments, crosses) = match (only_class, &self.nat) {
            (Some(class), None) => (self.ingress_only(class, &mut batch), false),
            (Some(class), Some(nat)) => self.ingress_for_nat(class, nat, &mut batch),
            (None, _) => {
                let fragments = self.ingress.process(&mut batch);
                // What follows may change packets.
                scratch.take_samples(&mut batch, &mut samples);
                filters.reverse_path.process(&self.router, &mut batch);
                filters.acls.process_in(&mut batch, &mut scratch.acl);
                filters.prefixes.process_in(&mut batch);
                self.choose_ways(&mut batch, &scratch.ways);
                self.classifier.process(&mut batch);
                (fragments, self.label_batch(&mut batch, |p| !p.flags.has(PacketFlags::LATER_FRAGMENT)))
            }
        };
        if only_class.is_some() {
            scratch.take_samples(&mut batch, &mut samples);
        }
        if let Some(flows) = &self.flows {
            flows.look(&mut batch);
            // Dropped packets are metered too, by the worker that meters their flow.
            let dead = batch.packets_mut().iter_mut().filter(|packet| packet.shard == NO_SHARD);
            dead.for_each(|packet| packet.shard = self.shard_of_flow(packet));
        }
        chunk.samples = samples;
        chunk.has_fragments |= fragments;
        chunk.crosses_shards |= crosses;
    }

    // Two loops instead of one with a branch: the smaller keeps everything it needs in registers. A usual packet has
    // ports and is no fragment, so its flow hash is that of its state.

    fn ingress_only(&self, class: u8, batch: &mut Batch<'_>) -> bool {
        let usual = |packet: &mut Packet, _: &[u8], addresses: Addresses| {
            packet.class = class;
            packet.shard = self.shard_of_flow(packet);
            self.router.fib4.prefetch(addresses.destination);
        };
        self.ingress.process_and(batch, usual, |packet, frame| {
            packet.class = class;
            if packet.is_alive() {
                let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
                packet.shard = self.shard_of_state(packet, l3);
            }
        })
    }

    fn ingress_for_nat(&self, class: u8, nat: &Nat, batch: &mut Batch<'_>) -> (bool, bool) {
        let (mut usual_cross, mut others_cross) = (false, false);
        let usual = |packet: &mut Packet, frame: &[u8], addresses: Addresses| {
            packet.class = class;
            nat.labeler.label_usual(packet, frame, addresses);
            if packet.shard == NO_SHARD {
                packet.shard = self.shard_of_flow(packet);
            }
            usual_cross |= packet.crossing_shard != NO_SHARD;
        };
        let fragments = self.ingress.process_and(batch, usual, |packet, frame| {
            packet.class = class;
            if packet.is_alive() & !packet.flags.has(PacketFlags::LATER_FRAGMENT) {
                let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
                others_cross |= self.label_for_nat::<false>(nat, packet, l3);
            }
        });
        (fragments, usual_cross | others_cross)
    }

    fn route(&self, chunk: &mut Chunk, k: usize, scratch: &mut Scratch) {
        let mut batch = chunk.batch(k);
        self.find_ways(&mut batch);
        self.filters.mss.process(&mut batch, &self.router.next_hops);
        self.filters.acls.process_out(&mut batch, &mut scratch.acl);
    }

    /// Whether something else than the look-up may choose a packet's way.
    #[inline(always)]
    fn chooses_ways(&self) -> bool {
        !self.way_rules.are_none() || self.nat.as_ref().is_some_and(|nat| nat.labeler.asks_for_way())
    }

    fn find_ways(&self, batch: &mut Batch<'_>) {
        match self.chooses_ways() {
            true => self.router.process_chosen(batch),
            false => self.router.process(batch),
        }
    }

    /// Gives live packets their shards; with NAT only those that `which` admits, because a later fragment's shard
    /// is known only with its ports. Returns whether some packet needs two shards.
    fn label_batch(&self, batch: &mut Batch<'_>, which: impl Fn(&Packet) -> bool) -> bool {
        let mut crosses = false;
        for i in 0..batch.len() {
            let (packet, l3) = batch.packet_and_l3(i);
            match &self.nat {
                Some(nat) if packet.is_alive() && which(packet) => {
                    crosses |= match self.chooses_ways() {
                        true => self.label_for_nat::<true>(nat, packet, l3),
                        false => self.label_for_nat::<false>(nat, packet, l3),
                    };
                }
                None if packet.is_alive() => {
                    packet.shard = self.shard_of_state(packet, l3);
                    crosses |= self.has_cross(packet);
                }
                _ => {}
            }
        }
        crosses
    }

    /// Gives a packet the shard of its NAT state, else one that spreads it. Returns whether it needs two shards.
    #[inline(always)]
    fn label_for_nat<const CHOOSES: bool>(&self, nat: &Nat, packet: &mut Packet, l3: &[u8]) -> bool {
        if CHOOSES {
            let choose =
                |packet: &mut Packet, destination, home| self.outside_of(nat, packet, destination, home);
            nat.labeler.label_toward(packet, l3, choose);
        } else {
            nat.labeler.label(packet, l3);
        }
        if CHOOSES && packet.flags.has(PacketFlags::NAT_IN) {
            // The way is that of the destination which NAT will find.
            packet.next_hop = 0;
        }
        if packet.shard == NO_SHARD {
            packet.shard = self.shard_of_state(packet, l3);
            self.has_cross(packet);
        }
        packet.crossing_shard != NO_SHARD
    }

    /// The helpers of the firewall, which read what NAT does not translate.
    fn helpers(&self) -> Helpers {
        self.firewall.as_ref().map(|firewall| firewall.rules.helpers()).unwrap_or_default()
    }

    /// Has a packet that NAT does not translate cross, if it concerns a helper; whether it does.
    fn has_cross(&self, packet: &mut Packet) -> bool {
        let crosses = self.helpers().concerning(packet).is_some();
        if crosses {
            packet.crossing_shard = packet.shard;
        }
        crosses
    }

    /// The place of the outside port by which a packet from inside leaves; `None` if it leaves by another port, or has
    /// no way. The packet then keeps this way, so that it leaves where its public address is known. Answers to what came
    /// by a port forward go back by the forward's port, the `home` of their sender.
    fn outside_of(
        &self,
        nat: &Nat,
        packet: &mut Packet,
        destination: u32,
        home: Option<usize>,
    ) -> Option<usize> {
        if let Some(outside) = home.and_then(|home| nat.outsides.get(home)) {
            packet.next_hop = self.router.number_of(outside.gateway);
            return home;
        }
        let (hop, port) = self.router.way_of(packet, destination);
        let place = nat.outsides.iter().position(|outside| outside.port == port)?;
        packet.next_hop = hop;
        Some(place)
    }

    /// The shard of a packet that NAT does not translate: that of its connection, if there is a firewall.
    #[inline(always)]
    fn shard_of_state(&self, packet: &Packet, l3: &[u8]) -> u16 {
        let usual =
            packet.flags.0 & (PacketFlags::HAS_PORTS | PacketFlags::FRAGMENT) == PacketFlags::HAS_PORTS;
        let is_its_own = usual | self.firewall.is_none();
        self.shard_of(if is_its_own { packet.flow_hash } else { state_hash(packet, l3) })
    }

    /// Spreads packets that no shard has state for. The number of shards is a power of two.
    #[inline(always)]
    fn shard_of_flow(&self, packet: &Packet) -> u16 {
        self.shard_of(packet.flow_hash)
    }

    #[inline(always)]
    fn shard_of(&self, hash: u32) -> u16 {
        hash as u16 & (self.shards - 1)
    }

    /// Sorts a chunk into order of service.
    fn order(&self, chunk: &mut Chunk, scratch: &mut Scratch) {
        self.scheduler.process(chunk, &mut scratch.spare);
        scratch.account.count_dropped(&chunk.packets()[chunk.live_len()..]);
        scratch.tell_samples(chunk, chunk.live_len()..chunk.packets().len());
    }

    /// Lists the packets of each group that concern the stage, for models that run group by group. Other models
    /// walk the chunk once and need no lists.
    fn index_shards(&self, stage: usize, chunk: &mut Chunk, members: &mut Vec<(u16, u16)>) {
        members.clear();
        let of_stage = self.stages[stage];
        // The meter counts dropped packets too.
        let count = if of_stage == Stage::Flows { chunk.packets().len() } else { chunk.live_len() };
        let packets = (0u16..).zip(&chunk.packets()[..count]);
        let with_state = packets.filter(|(_, packet)| match of_stage {
            Stage::Flows => true,
            Stage::Firewall => packet.is_leaving() || self.is_for_judged_router(packet),
            _ => is_for_nat(packet),
        });
        members.extend(with_state.map(|(place, p)| (place, self.group_of(p.shard))));
        chunk.shard_index.build(self.groups, members);
        chunk.indexed_stage = Some(stage);
    }

    fn work(&self, stage: usize, chunk: &mut Chunk, batch: usize, scratch: &mut Scratch) {
        let Some(boards) = self.work_queens else { return };
        for packet in chunk.batch(batch).packets() {
            if packet.is_alive() {
                let who = u64::from(packet.flow_hash) << 16 | u64::from(packet.index);
                scratch.queens_sum += queens::solutions(boards.of(stage, who));
            }
        }
    }
}

impl Plan for RouterPlan {
    type Job = Chunk;
    type Scratch = Scratch;

    fn stages(&self) -> &[StageSpec] {
        &self.specs
    }

    fn shard_groups(&self) -> usize {
        self.groups
    }

    fn scratch(&self) -> Scratch {
        let acl = AclCounts::new(&self.filters.acls);
        self.rule_counts.lock().workers.push(acl.shared());
        let firewall = self.firewall.as_ref().map_or_else(AclCounts::default, Firewall::counts_of_worker);
        Scratch {
            account: Account::new(self.ports, self.classes),
            acl,
            ways: self.way_rules.counts_of_worker(),
            firewall,
            queens_sum: 0,
            members: Vec::new(),
            records: Vec::new(),
            nat_events: Vec::new(),
            samples: self.worker_samples(),
            spare: Vec::new(),
        }
    }

    fn sequence(&self, job: &Chunk) -> u64 {
        job.sequence
    }

    fn admit(&self, job: &mut Chunk, now_ns: u64) {
        job.admitted_ns = now_ns;
    }

    fn batches(&self, _stage: usize, job: &Chunk) -> usize {
        job.batch_count()
    }

    fn run_batch(&self, stage: usize, job: &mut Chunk, batch: usize, now_ns: u64, scratch: &mut Scratch) {
        match self.stages[stage] {
            Stage::Ingress => self.ingress(job, batch, scratch),
            Stage::Route => self.route(job, batch, scratch),
            Stage::Work(nth) => self.work(nth, job, batch, scratch),
            Stage::Egress => {
                let residence_ns = now_ns.saturating_sub(job.admitted_ns);
                let first = batch * BATCH_PACKETS;
                let mut batch = job.batch(batch);
                self.filters.prefixes.process_out(&mut batch);
                scratch.account.count(&batch, residence_ns);
                let places = first..first + batch.len();
                scratch.tell_samples(job, places);
            }
            other => unreachable!("{other:?} is not a stage over batches"),
        }
    }

    fn run_whole(&self, stage: usize, job: &mut Chunk, scratch: &mut Scratch) {
        match self.stages[stage] {
            Stage::Parse => job.parse(),
            Stage::Arrival => self.arrive(job),
            Stage::Order => self.order(job, scratch),
            other => unreachable!("{other:?} is not a stage over whole chunks"),
        }
    }

    fn run_shards(&self, stage: usize, job: &mut Chunk, groups: Range<usize>, scratch: &mut Scratch) {
        if groups.len() < self.groups && job.indexed_stage != Some(stage) {
            self.index_shards(stage, job, &mut scratch.members);
        }
        match (self.stages[stage], &self.nat, &self.flows) {
            (Stage::Nat, Some(nat), flows) => {
                if (flows.is_some() || self.firewall.is_some()) && job.origins.is_empty() {
                    job.keep_origins(has_origin);
                }
                match &self.nat_log {
                    None => nat.stage.run_groups(job, groups, self.groups),
                    Some(log) => {
                        log.run_groups(&nat.stage, job, groups, self.groups, &mut scratch.nat_events);
                    }
                }
            }
            (Stage::Firewall, ..) => {
                if let Some(firewall) = &self.firewall {
                    let mut name = |shard, session, state| {
                        if let Some(nat) = &self.nat {
                            nat.stage.name_state(shard, session, state);
                        }
                    };
                    let (rules, counts) = (&firewall.rules, &scratch.firewall);
                    firewall.stage.run_groups_and_name(rules, job, groups, self.groups, counts, &mut name);
                }
            }
            (Stage::Flows, _, Some(flows)) => {
                flows.observe(job, (groups, self.groups), self.port_vrfs(), &mut scratch.records);
            }
            (other, ..) => unreachable!("{other:?} is not a stage with shards"),
        }
    }

    fn crosses(&self, stage: usize, job: &Chunk) -> bool {
        job.crosses_shards && matches!(self.stages[stage], Stage::Nat | Stage::Firewall)
    }

    fn run_crossing(&self, stage: usize, job: &mut Chunk, scratch: &mut Scratch) {
        if let (Stage::Firewall, Some(firewall)) = (self.stages[stage], &self.firewall) {
            firewall.stage.run_crossing(&firewall.rules, job, &scratch.firewall);
        } else if let Some(nat) = &self.nat {
            nat.stage.run_crossing(job, &mut |packet, l3, inside| {
                self.judge_hairpin(packet, l3, inside, &mut scratch.acl);
            });
        }
    }

    fn first_split_stage(&self) -> usize {
        // The stages before it find, label and sort packets.
        let comes_before =
            |s: &Stage| matches!(s, Stage::Parse | Stage::Ingress | Stage::Arrival | Stage::Order);
        self.stages.iter().take_while(|stage| comes_before(stage)).count()
    }

    fn split(&self, job: Chunk, owners: &[usize], parts: usize) -> Vec<Chunk> {
        job.split(parts, |p| match p.shard {
            NO_SHARD => 0,
            shard => owners[usize::from(self.group_of(shard))],
        })
    }

    fn merge(&self, parts: Vec<Chunk>) -> Chunk {
        Chunk::merge(parts)
    }
}

/// The number of shards of a plan with this NAT.
pub(crate) fn shards_with(nat: Option<&Nat>) -> u16 {
    nat.map_or(SHARDS_WITHOUT_NAT, |nat| nat.stage.shard_count() as u16)
}

/// Whether NAT translates this packet from addresses that an [`Origin`](thalweg_base::Origin) has room for. Later stages
/// know the flow of another by its public endpoint.
fn has_origin(packet: &Packet) -> bool {
    is_for_nat(packet) && !packet.is_ipv6()
}

/// Whether NAT translates this packet.
fn is_for_nat(packet: &Packet) -> bool {
    packet.is_alive() && packet.flags.0 & (PacketFlags::NAT_OUT | PacketFlags::NAT_IN) != 0
}
