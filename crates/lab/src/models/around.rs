//! A plan around the router's, which does something beside each stage. Model and stages are the shipped ones.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use thalweg_base::{BATCH_PACKETS, Chunk};
use thalweg_exec::{Around, ExecError, ModelOptions, Piece, Plan, RunReport, Sink, Source};
use thalweg_wire::ethernet::HEADER_BYTES as ETHERNET;

/// What is done beside stages.
pub(super) trait Beside: Sync {
    /// What a thread keeps of it.
    type Notes: Send + Default;

    /// Runs `work`, which is a stage on so many of the chunk's packets.
    fn stage(
        &self,
        stage: usize,
        chunk: &mut Chunk,
        packets: usize,
        notes: &mut Self::Notes,
        work: impl FnOnce(&mut Chunk),
    );
}

struct With<'p, P, B> {
    plan: &'p P,
    beside: &'p B,
}

pub(super) struct Scratch<S, N> {
    inner: S,
    pub(super) notes: N,
}

/// A run's report, with what each thread noted.
type Ran<P, B> = Result<RunReport<Scratch<<P as Plan>::Scratch, <B as Beside>::Notes>>, ExecError>;

/// Runs chunks through a plan under a model.
pub(super) fn run<P: Plan<Job = Chunk>, B: Beside>(
    plan: &P,
    beside: &B,
    chunks: Vec<Chunk>,
    sink: &mut dyn Sink<Chunk>,
    options: &ModelOptions,
) -> Ran<P, B> {
    thalweg_exec::run(&With { plan, beside }, &mut Chunks(chunks.into_iter()), sink, options)
}

impl<P: Plan<Job = Chunk>, B: Beside> Around for With<'_, P, B> {
    type Inner = P;
    type Scratch = Scratch<P::Scratch, B::Notes>;

    fn inner(&self) -> &P {
        self.plan
    }

    fn scratch(&self) -> Self::Scratch {
        Scratch { inner: self.plan.scratch(), notes: B::Notes::default() }
    }

    fn stage(
        &self,
        stage: usize,
        piece: Piece,
        job: &mut Chunk,
        scratch: &mut Self::Scratch,
        run: impl FnOnce(&mut Chunk, &mut P::Scratch),
    ) {
        let packets = match piece {
            Piece::Batch(batch) => job.live_len().saturating_sub(batch * BATCH_PACKETS).min(BATCH_PACKETS),
            _ => job.live_len(),
        };
        let Scratch { inner, notes } = scratch;
        self.beside.stage(stage, job, packets, notes, |job| run(job, inner));
    }
}

struct Chunks(std::vec::IntoIter<Chunk>);

impl Source<Chunk> for Chunks {
    fn next(&mut self) -> Option<Chunk> {
        self.0.next()
    }
}

/// What came out of a run, whatever the order: how many packets, and a sum over each packet's fate and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) packets: u64,
    pub(super) sum: u64,
}

impl Sink<Chunk> for Digest {
    fn accept(&mut self, chunk: Chunk) {
        for (at, packet) in chunk.packets().iter().enumerate() {
            let fate = (chunk.sequence, packet.index, packet.drop_reason(), packet.port_out);
            let frame = if packet.is_alive() { chunk.egress_frame(at) } else { &[] };
            // No stage need have written the Ethernet header.
            let of_packet = (fate, frame.get(ETHERNET..));
            self.sum = self.sum.wrapping_add(FixedState::default().hash_one(of_packet));
            self.packets += 1;
        }
    }
}
