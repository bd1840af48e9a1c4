//! Flow metering in the router: a stage after all others, which sees the fate of packets.
//!
//! The meter has the shards of the plan, hence NAT's if there is NAT: both directions of a translated flow are in
//! one shard. A flow's key is its packets at arrival, and their VRF; the translation is recorded beside it. Dropped packets are
//! metered too, unless they were unreadable.

use std::ops::Range;
use std::sync::Arc;

use super::Meter;
use thalweg_base::{Batch, Chunk, PacketFlags, PacketSample};
use thalweg_dataplane::ingress::flow_hash_of_fragment;
use thalweg_exec::{Scope, StageSpec};
use thalweg_flow::application::{Labeling, by_ports, look};
use thalweg_flow::export::NatEvent;
use thalweg_flow::{EndReason, FlowRecord, MeterError, MeterOptions, MeterTotals, PortVrfs, Sampling, Watch};

use super::{RouterPlan, Stage, is_for_nat};

/// The receiver of records. Workers call it, so it must not block.
pub trait RecordOutlet: Send + Sync {
    /// Takes all records out of the list.
    fn take(&self, records: &mut Vec<FlowRecord>);

    /// Takes all NAT events out of the list; `dropped` more were lost for want of room before.
    fn take_nat_events(&self, events: &mut Vec<NatEvent>, dropped: u64);

    /// Takes all samples of packets out of the list.
    fn take_samples(&self, samples: &mut Vec<PacketSample>) {
        samples.clear();
    }

    /// Adds packets to the pool of a port that no sample tells.
    fn add_to_pool(&self, _port: u16, _packets: u32) {}

    /// A watcher for a shard of the meter, if there are rules for alarms.
    fn watcher(&self) -> Option<Box<dyn Watch>> {
        None
    }

    /// Passes on everything held back. Called a few times a second, and at the end.
    fn flush(&self);
}

/// Flow metering as the plan uses it.
#[derive(Clone)]
pub struct Flows {
    /// Has the shards of the plan.
    pub meter: Arc<Meter>,
    pub outlet: Arc<dyn RecordOutlet>,
    options: MeterOptions,
    /// The totals of earlier meters, which are empty now.
    retired: MeterTotals,
}

impl Flows {
    /// Reports flows that have ended by this clock, in idle shards too.
    pub fn advance(&self, clock_ns: u64) {
        self.each_shard(|shard, records| {
            self.meter.advance(shard, clock_ns, &mut |record| records.push(*record));
        });
    }

    /// Reports all flows and forgets them. No packet may be in the plan.
    pub fn flush(&self) {
        self.each_shard(|shard, records| {
            self.meter.flush(shard, EndReason::ForcedEnd, &mut |record| records.push(*record));
        });
    }

    /// Whether merged packets are metered as the same packets one by one would be.
    pub(super) fn takes_merged(&self) -> bool {
        self.options.sampling.interval() == 1 && self.options.labeling != Labeling::Payload
    }

    fn each_shard(&self, act: impl Fn(usize, &mut Vec<FlowRecord>)) {
        let mut records = Vec::new();
        for shard in 0..self.meter.shard_count() {
            act(shard, &mut records);
            if !records.is_empty() {
                self.outlet.take(&mut records);
            }
        }
        self.outlet.flush();
    }

    /// The totals, including those of earlier configurations' meters.
    pub fn totals(&self) -> MeterTotals {
        let mut totals = self.meter.totals();
        totals.add(&self.retired);
        totals
    }

    /// Finds applications from payloads, if configured. Classification by ports alone is not recorded: the record's
    /// delivery looks at ports again.
    pub(super) fn look(&self, batch: &mut Batch<'_>) {
        if self.options.labeling != Labeling::Payload {
            return;
        }
        for (packet, frame) in batch.frames() {
            let known = packet.application;
            if known != 0 && by_ports(packet.protocol, packet.src_port, packet.dst_port) == Some(known) {
                packet.application = 0;
            }
            look(packet, frame);
        }
    }

    /// Meters the packets of some groups.
    pub(super) fn observe(
        &self,
        chunk: &mut Chunk,
        (groups, group_count): (Range<usize>, usize),
        vrfs: PortVrfs<'_>,
        records: &mut Vec<FlowRecord>,
    ) {
        self.meter.observe_in(vrfs, chunk, groups, group_count, &mut |record| records.push(*record));
        if !records.is_empty() {
            self.outlet.take(records);
        }
    }

    /// Finds the flows of fragments that NAT does not touch: their shard is that of the flow's whole packets.
    pub(super) fn label_fragments(&self, chunk: &mut Chunk, shards: u16, vrfs: PortVrfs<'_>) {
        self.meter.resolve_fragments_in(vrfs, chunk, |_, _| ());
        let mut batch = chunk.whole().0;
        for i in 0..batch.len() {
            let (packet, l3) = batch.packet_and_l3(i);
            if packet.is_alive() && packet.flags.has(PacketFlags::FRAGMENT) && !is_for_nat(packet) {
                packet.shard = flow_hash_of_fragment(packet, l3) as u16 & (shards - 1);
            }
        }
    }
}

impl RouterPlan {
    /// The same plan with metering. `secret` keys hashes against attackers.
    pub fn with_flows(
        mut self,
        options: &MeterOptions,
        secret: u64,
        outlet: Arc<dyn RecordOutlet>,
    ) -> Result<Self, MeterError> {
        let sampling = match options.sampling {
            Sampling::Random { interval, .. } => Sampling::Random { interval, seed: secret },
            other => other,
        };
        let options = MeterOptions {
            shards: self.shards,
            fates: true,
            sampling,
            hash_key: [secret, thalweg_base::mix64(secret)],
            ..options.clone()
        };
        let meter = Arc::new(Meter::new(&options)?);
        meter.watch(|| outlet.watcher());
        self.add_flows(Flows { meter, outlet, options, retired: MeterTotals::default() });
        Ok(self)
    }

    /// Where the meter tells the flows of VRFs apart.
    pub(super) fn port_vrfs(&self) -> PortVrfs<'_> {
        PortVrfs(self.router.vrfs.as_ref().map_or(&[], |vrfs| vrfs.of_ports()))
    }

    /// The metering, if configured.
    pub fn flows(&self) -> Option<&Flows> {
        self.flows.as_ref()
    }

    fn add_flows(&mut self, flows: Flows) {
        if !self.stages.contains(&Stage::Arrival) {
            self.stages.insert(1, Stage::Arrival);
            self.specs.insert(1, StageSpec { name: "arrival".to_owned(), scope: Scope::Ordered });
        }
        self.stages.push(Stage::Flows);
        self.specs.push(StageSpec { name: "flows".to_owned(), scope: Scope::PerShard });
        self.flows = Some(flows);
    }

    /// Keeps the earlier plan's flows if the meter's options are unchanged; otherwise those flows end.
    pub(super) fn migrate_flows(&mut self, before: &Self) {
        let Some(old) = &before.flows else { return };
        match &mut self.flows {
            Some(new) if new.options == old.options => {
                (new.meter, new.retired) = (Arc::clone(&old.meter), old.retired);
            }
            Some(new) => {
                old.flush();
                new.retired = old.totals();
                new.retired.memory_bytes = 0;
            }
            None => old.flush(),
        }
    }
}
