//! The firewall as the plan uses it: the table of states, which reloads keep, and the rules, which they replace.

use parking_lot::Mutex;
use std::net::Ipv4Addr;
use std::sync::Arc;
use thalweg_base::{Chunk, DropReason, NO_PORT, NO_SHARD, Packet, PacketFlags};
use thalweg_config::FirewallConfig as Settings;
use thalweg_dataplane::acl::{AclCells, AclCounts, AclError, RuleCount};
use thalweg_dataplane::firewall::{FirewallCounters, FirewallRules};
use thalweg_exec::Locks;
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};

use super::RouterPlan;

/// The firewall with shards that several threads share.
pub type FirewallStage = thalweg_dataplane::firewall::FirewallStage<Locks>;

/// The firewall as the plan uses it.
#[derive(Debug)]
pub struct Firewall {
    /// The states; threads that list them share them.
    pub stage: Arc<FirewallStage>,
    pub rules: FirewallRules,
    /// The counters of every worker so far, and of the router's own packets.
    workers: Mutex<Vec<Arc<AclCells>>>,
    /// Those of the router's own packets.
    own: Mutex<AclCounts>,
    /// The counts of the plan before this one, if the rules are unchanged.
    before: Vec<RuleCount>,
}

impl Firewall {
    /// A firewall with a table of its own, all memory allocated. `shards` are the plan's.
    pub fn new(config: &Settings, shards: u16, secret: u64) -> Result<Self, AclError> {
        let stage = Arc::new(FirewallStage::new(&config.firewall, shards, secret));
        Self::with_stage(config, stage, 0)
    }

    fn with_stage(config: &Settings, stage: Arc<FirewallStage>, generation: u16) -> Result<Self, AclError> {
        let rules = FirewallRules::compile(&config.firewall, generation)?;
        let own = rules.counts();
        let workers = Mutex::new(vec![own.shared()]);
        Ok(Self { stage, rules, workers, own: Mutex::new(own), before: Vec::new() })
    }

    /// Takes addresses of the router that are NAT's too.
    pub(crate) fn with_public(self, public: Vec<Ipv4Addr>) -> Self {
        Self { rules: self.rules.with_public(public), ..self }
    }

    /// The firewall of the next plan: with this one's table if that fits, and with another generation of rules if
    /// they differ.
    pub(crate) fn successor(
        &self,
        before: &Settings,
        config: &Settings,
        shards: u16,
        secret: u64,
    ) -> Result<Self, AclError> {
        let is_same = before.firewall.decides_like(&config.firewall);
        let generation = self.rules.generation().wrapping_add(u16::from(!is_same));
        if self.stage.fits(&config.firewall, shards) {
            return Self::with_stage(config, Arc::clone(&self.stage), generation);
        }
        let stage = Arc::new(FirewallStage::new(&config.firewall, shards, secret));
        Self::with_stage(config, stage, generation)
    }

    /// Takes over a former plan's states and counts. No packet may be in that plan. Returns how many connections found
    /// no room.
    pub(super) fn take_over(&mut self, config: &Settings, old: &Self) -> u64 {
        if old.rules.generation() == self.rules.generation() {
            self.before = old.rule_counts();
        }
        if Arc::ptr_eq(&self.stage, &old.stage) {
            self.stage.set_behavior(&config.firewall);
            return 0;
        }
        self.stage.migrate_from(&old.stage)
    }

    pub(super) fn counts_of_worker(&self) -> AclCounts {
        let counts = self.rules.counts();
        self.workers.lock().push(counts.shared());
        counts
    }

    /// Packets and bytes by rule, and last those that the policy decided about, since the rules last changed. May be
    /// called while packets pass.
    pub fn rule_counts(&self) -> Vec<RuleCount> {
        let mut all = self.rules.counts();
        self.workers.lock().iter().for_each(|cells| all.merge(cells));
        let mut counts = all.all();
        for (rule, before) in counts.iter_mut().zip(&self.before) {
            rule.packets += before.packets;
            rule.bytes += before.bytes;
        }
        counts
    }
}

impl RouterPlan {
    /// The firewall, if configured.
    pub fn firewall(&self) -> Option<&Firewall> {
        self.firewall.as_ref()
    }

    /// The firewall's counters, after connections that have expired by the packet clock were removed. Do not call it
    /// while a model runs.
    pub fn firewall_counters(&self) -> Option<FirewallCounters> {
        let firewall = self.firewall.as_ref()?;
        firewall.stage.advance(self.clock_ns.load(std::sync::atomic::Ordering::Relaxed));
        Some(firewall.stage.counters())
    }

    /// Decides about packets that programs of the router send by the ports that they are on, if rules are about these.
    /// Returns for each packet why it may not leave; nothing if none was judged.
    pub fn judge_own(&self, chunk: &mut Chunk) -> Vec<Option<DropReason>> {
        let Some(firewall) = self.firewall.as_ref().filter(|firewall| firewall.rules.names_router()) else {
            return Vec::new();
        };
        let (counts, now_ns) = (firewall.own.lock(), chunk.clock_ns);
        let (mut batch, _) = chunk.whole();
        let mut refused = vec![None; batch.len()];
        self.ingress.process(&mut batch);
        for (i, refused) in refused.iter_mut().enumerate() {
            let (packet, l3) = batch.packet_and_l3(i);
            // What goes to all on the link is not judged, nor are ICMP messages other than echo, and later fragments.
            let has_ports = packet.flags.has(PacketFlags::HAS_PORTS);
            if !packet.is_alive() || !has_ports && matches!(packet.protocol, TCP | UDP | ICMP | ICMPV6) {
                continue;
            }
            let shard = self.shard_of_answer(packet, l3);
            packet.port_out = std::mem::replace(&mut packet.port_in, NO_PORT);
            firewall.stage.judge_own(&firewall.rules, (packet, l3), shard, &counts, now_ns);
            packet.port_in = packet.port_out;
            *refused = packet.drop_reason();
        }
        refused
    }

    /// The shard in which the answer to a packet of the router's own will look for its connection: the one by which the
    /// answer will be labeled.
    fn shard_of_answer(&self, packet: &mut Packet, l3: &[u8]) -> u16 {
        if let (Some(nat), false, Some(header)) = (&self.nat, packet.is_ipv6(), l3.first_chunk::<20>()) {
            let mut answer = *header;
            answer[12..16].copy_from_slice(&header[16..20]);
            answer[16..20].copy_from_slice(&header[12..16]);
            std::mem::swap(&mut packet.src_port, &mut packet.dst_port);
            nat.labeler.label(packet, &answer);
            std::mem::swap(&mut packet.src_port, &mut packet.dst_port);
        }
        match packet.shard {
            NO_SHARD => self.shard_of_state(packet, l3),
            shard => shard.min(packet.crossing_shard),
        }
    }
}
