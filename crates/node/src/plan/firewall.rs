//! The firewall as the plan uses it: the table of states, which reloads keep, and the rules, which they replace.

use parking_lot::Mutex;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use thalweg_base::{Chunk, DropReason, NO_PORT, NO_SHARD, Packet, PacketFlags};
use thalweg_config::FirewallConfig as Settings;
use thalweg_dataplane::acl::{AclCounts, AclError, RuleCount};
use thalweg_dataplane::firewall::{FirewallCounters, FirewallRules};
use thalweg_exec::Locks;
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};

use super::RouterPlan;
use super::rules::RuleTally;

/// The firewall with shards that several threads share.
pub type FirewallStage = thalweg_dataplane::firewall::FirewallStage<Locks>;

/// The firewall as the plan uses it.
#[derive(Debug)]
pub struct Firewall {
    /// The states; threads that list them share them.
    pub stage: Arc<FirewallStage>,
    pub rules: FirewallRules,
    /// The counters of workers and of the router's own packets.
    tally: RuleTally,
    /// Those of the router's own packets.
    own: Mutex<AclCounts>,
}

impl Firewall {
    /// A firewall with a table of its own, all memory allocated. `shards` are the plan's.
    pub fn new(config: &Settings, shards: u16, secret: u64) -> Result<Self, AclError> {
        let stage = Arc::new(FirewallStage::new(&config.firewall, shards, secret));
        Self::with_stage(config, stage, 0)
    }

    fn with_stage(config: &Settings, stage: Arc<FirewallStage>, generation: u16) -> Result<Self, AclError> {
        let rules = FirewallRules::compile(&config.firewall, generation)?;
        let tally = RuleTally::default();
        let own = Mutex::new(tally.with(rules.counts()));
        Ok(Self { stage, rules, tally, own })
    }

    /// Takes addresses of the router that are NAT's too, and the VRFs of ports.
    pub(crate) fn within(self, public: Vec<Ipv4Addr>, vrfs: Vec<u16>) -> Self {
        Self { rules: self.rules.with_public(public).with_vrfs(vrfs), ..self }
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
            self.tally.go_on_from(old.rule_counts());
        }
        if Arc::ptr_eq(&self.stage, &old.stage) {
            self.stage.set_behavior(&config.firewall);
            return 0;
        }
        self.stage.migrate_from(&old.stage)
    }

    pub(super) fn counts_of_worker(&self) -> AclCounts {
        self.tally.with(self.rules.counts())
    }

    /// Packets and bytes by rule, and last those that the policy decided about, since the rules last changed. May be
    /// called while packets pass.
    pub fn rule_counts(&self) -> Vec<RuleCount> {
        self.tally.sum(self.rules.counts())
    }
}

impl RouterPlan {
    /// Whether a packet left the fast path as the router's own do, and the firewall has rules about these.
    pub(super) fn is_for_judged_router(&self, packet: &Packet) -> bool {
        let is_asked = self.firewall.as_ref().is_some_and(|firewall| firewall.rules.names_router());
        is_asked && matches!(packet.drop_reason(), Some(DropReason::Local | DropReason::NatNoMapping))
    }

    /// Asks the access lists whether a hairpin may go from its sender to its inside host: the list of the ingress
    /// port, which saw a public address, and those of the ports that lead to the host, which will see an inside
    /// address.
    pub(super) fn judge_hairpin(
        &self,
        packet: &mut Packet,
        l3: &[u8],
        inside: SocketAddrV4,
        counts: &mut AclCounts,
    ) {
        let acls = &self.filters.acls;
        if acls.is_idle() {
            return;
        }
        // NAT has led the packet to the host's VRF, if there are several.
        let (hop, _) = self.router.way_of(packet, (*inside.ip()).into());
        let next_hops = self.router.next_hops.load();
        let leaves_by = |port| next_hops.leads_out_of(hop, port);
        acls.judge_as(packet, l3, inside, leaves_by, counts);
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::path::Path;
    use thalweg_base::{ChunkBuilder, LinkType};
    use thalweg_config::RouterConfig;
    use thalweg_exec::{ModelKind, ModelOptions, Sink, Source};
    use thalweg_wire::testing;

    const CONFIG: &str = r#"
[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/24"]
default_mac = "02:00:00:00:ff:01"

[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["10.0.0.1/16"]
default_mac = "02:00:00:00:ff:02"

[[routes]]
prefix = "0.0.0.0/0"
via = "203.0.113.1"

[nat]
outside = "wan"
inside = ["lan"]
addresses = ["203.0.113.2"]

[firewall]
outside = "wan"

[firewall.zones]
wan = "wan"
lan = "lan"
"#;
    const NOW_NS: u64 = 1_700_000_000_000_000_000;

    struct Once(Option<Chunk>);

    impl Source<Chunk> for Once {
        fn next(&mut self) -> Option<Chunk> {
            self.0.take()
        }
    }

    #[derive(Default)]
    struct Left(Vec<Vec<u8>>);

    impl Sink<Chunk> for Left {
        fn accept(&mut self, chunk: Chunk) {
            for (i, packet) in chunk.packets().iter().enumerate() {
                assert_eq!(packet.drop_reason(), None);
                self.0.push(chunk.egress_frame(i)[14..].to_vec());
            }
        }
    }

    /// Packets through the plan; returns what left.
    fn pass(plan: &RouterPlan, port: u16, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut builder = ChunkBuilder::with_capacity(packets.len() * 256);
        for packet in packets {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + packet.len()].copy_from_slice(packet);
            builder.push(at, packet.len(), packet.len() as u32, NOW_NS, LinkType::RawIp, port, 0);
        }
        let (mut source, mut sink) = (Once(Some(builder.finish(0, 1, NOW_NS))), Left::default());
        let options = ModelOptions::new(ModelKind::Serial, 1);
        thalweg_exec::run(plan, &mut source, &mut sink, &options).expect("the model runs");
        sink.0
    }

    /// NAT finds the session, and the session names the firewall's state.
    #[test]
    fn a_translated_packet_is_looked_up_once() {
        let config = RouterConfig::from_text("test.toml", CONFIG, Path::new("")).expect("a configuration");
        let plan = RouterPlan::from_config(&config, None).expect("a plan");
        let look_ups = || plan.firewall().expect("a firewall").stage.look_ups();
        let host = |n: u8| SocketAddr::from(([10, 0, 0, 10 + n], 4000));
        let server = |last: u8| SocketAddr::from(([198, 51, 100, last], 53));
        let asking =
            |last: u8| (0..50).map(|n| testing::udp(host(n), server(last), b"ask")).collect::<Vec<_>>();
        let answers = |asked: &[Vec<u8>], last: u8| -> Vec<Vec<u8>> {
            let port = |packet: &Vec<u8>| u16::from_be_bytes([packet[20], packet[21]]);
            let public = asked.iter().map(|packet| SocketAddr::from(([203, 0, 113, 2], port(packet))));
            public.map(|public| testing::udp(server(last), public, b"answer")).collect()
        };
        let (lan, wan) = (1, 0);
        let first = pass(&plan, lan, &asking(7));
        assert_eq!(look_ups(), 50, "each first packet is sought");
        for _ in 0..3 {
            assert_eq!(pass(&plan, wan, &answers(&first, 7)).len(), 50);
            assert_eq!(pass(&plan, lan, &asking(7)).len(), 50);
        }
        assert_eq!(look_ups(), 50, "no other is");
        // A session names one of its connections: the others are sought, and it stays with its own.
        let second = pass(&plan, lan, &asking(8));
        pass(&plan, wan, &answers(&second, 8));
        assert_eq!(look_ups(), 150);
        pass(&plan, wan, &answers(&first, 7));
        assert_eq!(look_ups(), 150);
        // It names another when that one is over.
        let stage = &plan.firewall().expect("a firewall").stage;
        let is_first =
            |state: &thalweg_dataplane::firewall::StateInfo| state.other.0 == u128::from(0xc633_6407_u32);
        assert_eq!(stage.end_states(NOW_NS, is_first), 50);
        pass(&plan, wan, &answers(&second, 8));
        assert_eq!(look_ups(), 200);
        pass(&plan, wan, &answers(&second, 8));
        assert_eq!(look_ups(), 200);
    }
}
