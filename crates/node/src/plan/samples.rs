//! Samples of packets for sFlow. They are taken where packets arrive, of bytes that no stage has changed yet, and
//! travel with their chunk to where the fate of their packets is known.
//!
//! What happens behind the plan is not known: a full egress queue, a neighbor that does not answer.

use std::ops::Range;
use std::sync::Arc;

use thalweg_base::{Batch, Chunk, DropReason, Packet, PacketFate, PacketSample};
use thalweg_flow::parse::addresses_of;
use thalweg_flow::{PacketSampler, PacketSamplers, PacketSampling};

use super::{RecordOutlet, RouterPlan, Scratch};

/// A worker's samples.
pub(super) struct WorkerSamples {
    sampler: PacketSampler,
    outlet: Arc<dyn RecordOutlet>,
    /// Those whose fate is known.
    ready: Vec<PacketSample>,
}

impl std::fmt::Debug for WorkerSamples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sampler.fmt(f)
    }
}

impl WorkerSamples {
    /// Samples packets whose headers have just been read.
    fn take(&mut self, batch: &mut Batch<'_>, samples: &mut Vec<PacketSample>) {
        let mut take = |sample| samples.push(sample);
        batch.frames().for_each(|(packet, frame)| self.sampler.pass(packet, frame, &mut take));
    }

    /// Passes on the samples of the packets at these places, whose fate is decided.
    fn tell(&mut self, chunk: &mut Chunk, places: Range<usize>) {
        let mut samples = std::mem::take(&mut chunk.samples);
        // Merging the parts of a chunk has mixed them.
        samples.sort_by_key(|sample| sample.index);
        for place in places {
            let packet = &chunk.packets()[place];
            let first = samples.partition_point(|sample| sample.index < packet.index);
            let of_packet = samples[first..].iter_mut().take_while(|sample| sample.index == packet.index);
            of_packet.for_each(|sample| sample.fate = Some(fate_of(packet, chunk.frame(place))));
        }
        self.ready.extend(samples.extract_if(.., |sample| sample.fate.is_some()));
        chunk.samples = samples;
        if !self.ready.is_empty() {
            self.outlet.take_samples(&mut self.ready);
        }
    }
}

impl Drop for WorkerSamples {
    fn drop(&mut self) {
        // The workers of the next plan begin anew.
        self.sampler.take_pools().for_each(|(port, packets)| self.outlet.add_to_pool(port, packets));
    }
}

impl RouterPlan {
    /// The same plan with packets sampled, which needs metering: the samples go to its outlet. `secret` keeps senders
    /// from knowing which packets are seen.
    #[must_use]
    pub fn with_samples(mut self, sampling: Option<PacketSampling>, secret: u64) -> Self {
        self.samples = sampling.map(|sampling| PacketSamplers::new(sampling, secret));
        self
    }

    /// The samples of another worker.
    pub(super) fn worker_samples(&self) -> Option<WorkerSamples> {
        let (samplers, flows) = (self.samples.as_ref()?, self.flows.as_ref()?);
        Some(WorkerSamples {
            sampler: samplers.another(),
            outlet: Arc::clone(&flows.outlet),
            ready: Vec::new(),
        })
    }
}

impl Scratch {
    pub(super) fn take_samples(&mut self, batch: &mut Batch<'_>, samples: &mut Vec<PacketSample>) {
        if let Some(own) = &mut self.samples {
            own.take(batch, samples);
        }
    }

    pub(super) fn tell_samples(&mut self, chunk: &mut Chunk, places: Range<usize>) {
        if let Some(own) = self.samples.as_mut().filter(|_| !chunk.samples.is_empty()) {
            own.tell(chunk, places);
        }
    }
}

fn fate_of(packet: &Packet, frame: &[u8]) -> PacketFate {
    let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
    match packet.drop_reason() {
        Some(DropReason::MtuExceeded) if !may_be_cut(packet, l3) => {
            PacketFate::Dropped(DropReason::MtuExceeded)
        }
        Some(reason) if !packet.is_leaving() => PacketFate::Dropped(reason),
        _ => {
            let (port_out, next_hop) = (packet.port_out, packet.next_hop);
            PacketFate::Leaves { port_out, next_hop, addresses: addresses_of(packet, frame) }
        }
    }
}

/// Whether the host thread will cut the packet: IPv4 without DF.
fn may_be_cut(packet: &Packet, l3: &[u8]) -> bool {
    !packet.is_ipv6() && l3.get(6).is_some_and(|flags| flags & 0x40 == 0)
}
