//! The plan of a probe: its stages, with the scope of their state.
//!
//! | stage | scope | task |
//! |---|---|---|
//! | `parse` | any batch | finds and reads the IP packet; labels it with hash and shard of its flow; samples for sFlow |
//! | `fragments` | in order | gives later fragments the ports of their first, if there are any; learns names from DNS, if names are looked for |
//! | `meter` | per shard | counts packets in their flows, emits records of flows that ended or are due |
//!
//! The sink then frees the packets. Each worker sends records through its own sender.
//!
//! Every model runs each group of shards for every chunk, even if the group has no packets in it. So flows
//! end by the clock of the same chunk everywhere, and records are the same under all models.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::Meter;
use thalweg_base::{Chunk, PacketFlags};
use thalweg_dataplane::queens::{self, Boards};
use thalweg_exec::{ModelKind, Plan, Scope, Sink, StageSpec};
use thalweg_flow::application::{Labeling, look};
use thalweg_flow::parse::{ParseOptions, parse};

use crate::record_queue::{RecordQueue, RecordSender};
use crate::sflow::{Sampler, Samplers};

/// The stages, in order.
const STAGES: [(&str, Scope); 3] =
    [("parse", Scope::Batches), ("fragments", Scope::Ordered), ("meter", Scope::PerShard)];

/// When records are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handing {
    /// How long to wait for room; `None` waits forever.
    pub(crate) timeout: Option<Duration>,
    /// After every chunk while few batches wait, instead of when a batch is full.
    pub(crate) at_once: bool,
}

/// A worker's private state.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Packets that it has parsed.
    pub(crate) packets: u64,
    /// Their bytes on the wire.
    pub(crate) frame_bytes: u64,
    /// Solutions that its synthetic work found.
    pub(crate) queens_sum: u64,
    pub(crate) sender: RecordSender,
    /// Samples packets for sFlow, if it is sent.
    sampler: Option<Sampler>,
    members: Vec<(u16, u16)>,
}

/// The meter of one pipeline, ready to be run by a model.
pub(crate) struct ProbePlan {
    stages: Vec<StageSpec>,
    meter: Arc<Meter>,
    parsing: ParseOptions,
    /// Whether payloads identify applications.
    looks: bool,
    work: Option<Boards>,
    groups: usize,
    /// Workers process the groups of a chunk separately, so lists of packets by group pay off.
    by_group: bool,
    way: RecordQueue,
    handing: Handing,
    samplers: Option<Samplers>,
}

impl ProbePlan {
    /// A plan around a meter, divided for a model with this many workers. The results of metering do not
    /// depend on their number.
    pub(crate) fn new(
        meter: Arc<Meter>,
        parsing: ParseOptions,
        (kind, workers): (ModelKind, usize),
        way: RecordQueue,
        handing: Handing,
    ) -> Self {
        Self {
            stages: STAGES.map(|(name, scope)| StageSpec { name: name.to_owned(), scope }).to_vec(),
            groups: kind.shard_groups(workers).clamp(1, meter.shard_count()),
            by_group: !kind.splits_jobs(),
            meter,
            parsing,
            looks: false,
            work: None,
            way,
            handing,
            samplers: None,
        }
    }

    /// A copy that identifies applications by payload if requested.
    pub(crate) fn with_labeling(self, labeling: Labeling) -> Self {
        Self { looks: labeling == Labeling::Payload, ..self }
    }

    /// The same with synthetic work for each packet, where it is metered.
    pub(crate) fn with_work(self, work: Option<Boards>) -> Self {
        Self { work, ..self }
    }

    /// The same with packets sampled for sFlow.
    pub(crate) fn with_samples(self, samplers: Option<Samplers>) -> Self {
        Self { samplers, ..self }
    }

    fn parse(&self, chunk: &mut Chunk, k: usize, scratch: &mut Scratch) {
        let mut batch = chunk.batch(k);
        let (mut flags, mut bytes) = (0, 0);
        for (packet, frame) in batch.frames() {
            bytes += u64::from(packet.wire_len);
            parse(packet, frame, &self.parsing);
            self.meter.label(packet, frame);
            flags |= packet.flags.0;
        }
        if self.looks {
            batch.frames().for_each(|(packet, frame)| look(packet, frame));
        }
        if let Some(sampler) = &mut scratch.sampler {
            batch.frames().for_each(|(packet, frame)| sampler.pass(packet, frame));
        }
        scratch.packets += batch.len() as u64;
        scratch.frame_bytes += bytes;
        chunk.has_fragments |= flags & PacketFlags::FRAGMENT != 0;
    }

    /// Works for the packets of these groups. Which worker has them is the model's affair, the work is not.
    fn work(&self, chunk: &Chunk, groups: &Range<usize>) -> u64 {
        let Some(boards) = self.work else { return 0 };
        let of_them = |shard| groups.contains(&usize::from(self.meter.group_of(shard, self.groups)));
        let packets = chunk.packets().iter().filter(|packet| of_them(packet.shard));
        let who = |flow_hash: u32, index: u32| u64::from(flow_hash) << 32 | u64::from(index);
        packets
            .map(|packet| queens::solutions(boards.of(0, who(packet.flow_hash, packet.index.into()))))
            .sum()
    }

    /// Lists the packets of each group, including those of no flow: the totals of their shard count them.
    fn index(&self, chunk: &mut Chunk, members: &mut Vec<(u16, u16)>) {
        members.clear();
        let packets = (0..).zip(chunk.packets());
        members
            .extend(packets.map(|(place, packet)| (place, self.meter.group_of(packet.shard, self.groups))));
        chunk.shard_index.build(self.groups, members);
    }
}

impl Plan for ProbePlan {
    type Job = Chunk;
    type Scratch = Scratch;

    fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    fn shard_groups(&self) -> usize {
        self.groups
    }

    fn scratch(&self) -> Scratch {
        let sender = self.way.sender(self.handing.timeout);
        Scratch {
            packets: 0,
            frame_bytes: 0,
            queens_sum: 0,
            sender,
            sampler: self.samplers.as_ref().map(Samplers::sampler),
            members: Vec::new(),
        }
    }

    fn sequence(&self, job: &Chunk) -> u64 {
        job.sequence
    }

    fn admit(&self, _job: &mut Chunk, _now_ns: u64) {}

    fn batches(&self, _stage: usize, job: &Chunk) -> usize {
        job.batch_count()
    }

    fn run_batch(&self, _stage: usize, job: &mut Chunk, batch: usize, _now_ns: u64, scratch: &mut Scratch) {
        self.parse(job, batch, scratch);
    }

    fn run_whole(&self, _stage: usize, job: &mut Chunk, _scratch: &mut Scratch) {
        if job.has_fragments {
            self.meter.resolve_fragments(job);
        }
        self.meter.learn_names(job);
    }

    fn run_shards(&self, _stage: usize, job: &mut Chunk, groups: Range<usize>, scratch: &mut Scratch) {
        if self.by_group && groups.len() < self.groups && job.shard_index.groups() != self.groups {
            self.index(job, &mut scratch.members);
        }
        scratch.queens_sum += self.work(job, &groups);
        let sender = &mut scratch.sender;
        self.meter.observe(job, groups, self.groups, &mut |record| sender.put(record));
        if self.handing.at_once {
            sender.send_soon();
        }
    }

    fn crosses(&self, _stage: usize, _job: &Chunk) -> bool {
        false
    }

    fn run_crossing(&self, _stage: usize, _job: &mut Chunk, _scratch: &mut Scratch) {}

    fn split(&self, job: Chunk, owners: &[usize], parts: usize) -> Vec<Chunk> {
        job.split(parts, |packet| owners[usize::from(self.meter.group_of(packet.shard, self.groups))])
    }

    fn merge(&self, parts: Vec<Chunk>) -> Chunk {
        Chunk::merge(parts)
    }
}

/// Frees every packet: its chunk's memory returns to the reader.
pub(crate) struct Free;

impl Sink<Chunk> for Free {
    fn accept(&mut self, _chunk: Chunk) {}
}

/// For preloaded input: keeps the bytes, so that freeing them is not part of the run. Descriptors are freed,
/// so that a farm finds memory for its parts.
#[derive(Default)]
pub(crate) struct Keep(Vec<Chunk>);

impl Sink<Chunk> for Keep {
    fn accept(&mut self, mut chunk: Chunk) {
        chunk.forget_packets();
        self.0.push(chunk);
    }
}
