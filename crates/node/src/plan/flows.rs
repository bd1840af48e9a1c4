//! Flow metering in the router: a stage behind all others, that sees what became of packets.
//!
//! The meter has the shards of the plan, so NAT's where there is NAT: both directions of a translated flow are one
//! shard's. A flow's key is what packets were when they arrived; what NAT made of them is beside it. Packets that were
//! dropped are metered too, unless they could not be read.

use std::ops::Range;
use std::sync::Arc;

use super::Meter;
use thalweg_base::{Batch, Chunk, PacketFlags};
use thalweg_dataplane::ingress::flow_hash_of_fragment;
use thalweg_exec::{Scope, StageSpec};
use thalweg_flow::application::{Labeling, by_ports, look};
use thalweg_flow::export::NatEvent;
use thalweg_flow::{EndReason, FlowRecord, MeterError, MeterOptions, MeterTotals, Sampling};

use super::{RouterPlan, Stage, is_for_nat};

/// Where records go. Called by any worker, which must not be held up.
pub trait RecordOutlet: Send + Sync {
    /// Takes all records out of the list.
    fn take(&self, records: &mut Vec<FlowRecord>);

    /// Takes all events of NAT out of the list; `dropped` more had no room where they happened.
    fn take_nat_events(&self, events: &mut Vec<NatEvent>, dropped: u64);

    /// Holds nothing back any longer. Called some times a second, and at the end.
    fn flush(&self);
}

/// Flow metering as the plan needs it.
#[derive(Clone)]
pub struct Flows {
    /// Has the shards of the plan.
    pub meter: Arc<Meter>,
    /// Who gets records.
    pub outlet: Arc<dyn RecordOutlet>,
    options: MeterOptions,
    /// The totals of meters before this one, which are empty.
    retired: MeterTotals,
}

impl Flows {
    /// Reports what is over by this clock, in shards that see no packets too.
    pub fn advance(&self, clock_ns: u64) {
        self.each_shard(|shard, records| {
            self.meter.advance(shard, clock_ns, &mut |record| records.push(*record));
        });
    }

    /// Reports everything and forgets it. No packet is to be on its way.
    pub fn flush(&self) {
        self.each_shard(|shard, records| {
            self.meter.flush(shard, EndReason::ForcedEnd, &mut |record| records.push(*record));
        });
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

    /// The totals, those of meters that other configurations had too.
    pub fn totals(&self) -> MeterTotals {
        let mut totals = self.meter.totals();
        totals.add(&self.retired);
        totals
    }

    /// Asks payloads which application they are of, if that is wanted. An answer that the classes of service had from ports
    /// alone is none: ports are asked again when the record is delivered.
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
        groups: Range<usize>,
        group_count: usize,
        records: &mut Vec<FlowRecord>,
    ) {
        self.meter.observe(chunk, groups, group_count, &mut |record| records.push(*record));
        if !records.is_empty() {
            self.outlet.take(records);
        }
    }

    /// Finds the flows of fragments that no NAT has to do with: their shard is that of the flow's whole packets.
    pub(super) fn label_fragments(&self, chunk: &mut Chunk, shards: u16) {
        self.meter.resolve_fragments_and(chunk, |_, _| ());
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
    /// The same with metering. `secret` keys what strangers must not foresee.
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
        self.add_flows(Flows { meter, outlet, options, retired: MeterTotals::default() });
        Ok(self)
    }

    /// Metering, if there is any.
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

    /// Goes on with the flows of the plan before this one if they are told apart and timed as before; else those that
    /// there are end.
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
