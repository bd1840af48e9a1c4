//! What each unit does over time: figures 2 and 3 of the article on execution models (seed document 004), which show how
//! packets pass processors under run to completion and under pipelining.
//!
//! The article's figures are drawn by hand; these are recorded. A plan around the router's notes, in each thread's own
//! scratch, which stage the thread ran on which chunk and when. Models and stages are the shipped ones. Each note costs
//! two readings of the clock, so the lengths do not measure speed.

use serde::Serialize;
use std::ops::Range;
use std::time::Instant;
use thalweg_base::Chunk;
use thalweg_exec::{ExecError, ModelOptions, Plan, Sink, Source, StageSpec};

use crate::plot::Work;
use crate::stats::distinct;

/// A stage that a unit ran on a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Place in [`TimeLine::units`].
    pub unit: usize,
    /// Place in [`TimeLine::stages`].
    pub stage: usize,
    pub chunk: u64,
    /// Since the run began.
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// A run, as its units saw it.
#[derive(Clone, Debug, Serialize)]
pub struct TimeLine {
    pub model: String,
    pub workers: usize,
    pub chunk_packets: usize,
    /// Synthetic work, as on the command line.
    pub work: String,
    /// Names of threads that ran stages.
    pub units: Vec<String>,
    /// Names of stages.
    pub stages: Vec<String>,
    /// In order of time. Drawn, and too many for a file of results.
    #[serde(skip)]
    pub spans: Vec<Span>,
    /// The units that a chunk met, on average.
    pub units_per_chunk: f64,
}

impl TimeLine {
    /// The time line as a plot.
    pub fn drawing(&self) -> crate::plot::TimeLine {
        let begin = self.spans.first().map_or(0, |span| span.begin_ns);
        let work = |span: &Span| Work {
            unit: span.unit,
            what: span.chunk as usize, // a few
            begin_ns: span.begin_ns - begin,
            end_ns: span.end_ns - begin,
            words: format!("chunk {}, {}", span.chunk, self.stages[span.stage]),
        };
        crate::plot::TimeLine {
            title: format!("{}: chunks by unit over time", self.model),
            units: self.units.clone(),
            work: self.spans.iter().map(work).collect(),
        }
    }
}

/// Runs chunks under a model; returns the units and what they ran, in order of time. Chunks by which a model measures its
/// stages are left out.
pub(super) fn record<P: Plan<Job = Chunk>>(
    plan: &P,
    chunks: Vec<Chunk>,
    options: &ModelOptions,
) -> Result<(Vec<String>, Vec<Span>), ExecError> {
    let noted = Noted { plan, began: Instant::now() };
    let report = thalweg_exec::run(&noted, &mut Chunks(chunks.into_iter()), &mut Nowhere, options)?;
    let (mut units, mut spans) = (Vec::new(), Vec::new());
    for (thread, scratch) in report.threads.iter().zip(report.scratches) {
        if thread.role == "calibration" || scratch.spans.is_empty() {
            continue;
        }
        let unit = units.len();
        units.push(format!("{} {}", thread.role, thread.index));
        spans.extend(scratch.spans.into_iter().map(|span| Span { unit, ..span }));
    }
    spans.sort_by_key(|span| (span.begin_ns, span.unit));
    Ok((units, spans))
}

/// The units that a chunk met, on average.
pub(super) fn units_per_chunk(spans: &[Span]) -> f64 {
    let met = distinct(spans.iter().map(|span| (span.chunk, span.unit))).len();
    let chunks = distinct(spans.iter().map(|span| span.chunk)).len();
    met as f64 / chunks.max(1) as f64
}

/// A plan that notes what is run.
struct Noted<'p, P> {
    plan: &'p P,
    began: Instant,
}

struct Scratch<S> {
    inner: S,
    spans: Vec<Span>,
}

impl<P: Plan<Job = Chunk>> Noted<'_, P> {
    fn note(
        &self,
        stage: usize,
        job: &mut Chunk,
        scratch: &mut Scratch<P::Scratch>,
        work: impl FnOnce(&mut Chunk, &mut P::Scratch),
    ) {
        let now_ns = || self.began.elapsed().as_nanos() as u64; // hundreds of years
        let (chunk, begin_ns) = (job.sequence, now_ns());
        work(job, &mut scratch.inner);
        let end_ns = now_ns();
        match scratch.spans.last_mut() {
            // The next batch, or the next shards, of the same chunk.
            Some(last) if (last.stage, last.chunk) == (stage, chunk) => last.end_ns = end_ns,
            _ => scratch.spans.push(Span { unit: 0, stage, chunk, begin_ns, end_ns }),
        }
    }
}

impl<P: Plan<Job = Chunk>> Plan for Noted<'_, P> {
    type Job = Chunk;
    type Scratch = Scratch<P::Scratch>;

    fn stages(&self) -> &[StageSpec] {
        self.plan.stages()
    }

    fn shard_groups(&self) -> usize {
        self.plan.shard_groups()
    }

    fn scratch(&self) -> Self::Scratch {
        Scratch { inner: self.plan.scratch(), spans: Vec::new() }
    }

    fn sequence(&self, job: &Chunk) -> u64 {
        self.plan.sequence(job)
    }

    fn admit(&self, job: &mut Chunk, now_ns: u64) {
        self.plan.admit(job, now_ns);
    }

    fn batches(&self, stage: usize, job: &Chunk) -> usize {
        self.plan.batches(stage, job)
    }

    fn run_batch(
        &self,
        stage: usize,
        job: &mut Chunk,
        batch: usize,
        now_ns: u64,
        scratch: &mut Self::Scratch,
    ) {
        self.note(stage, job, scratch, |job, inner| self.plan.run_batch(stage, job, batch, now_ns, inner));
    }

    fn run_whole(&self, stage: usize, job: &mut Chunk, scratch: &mut Self::Scratch) {
        self.note(stage, job, scratch, |job, inner| self.plan.run_whole(stage, job, inner));
    }

    fn run_shards(&self, stage: usize, job: &mut Chunk, groups: Range<usize>, scratch: &mut Self::Scratch) {
        self.note(stage, job, scratch, |job, inner| self.plan.run_shards(stage, job, groups, inner));
    }

    fn crosses(&self, stage: usize, job: &Chunk) -> bool {
        self.plan.crosses(stage, job)
    }

    fn run_crossing(&self, stage: usize, job: &mut Chunk, scratch: &mut Self::Scratch) {
        self.note(stage, job, scratch, |job, inner| self.plan.run_crossing(stage, job, inner));
    }

    fn first_split_stage(&self) -> usize {
        self.plan.first_split_stage()
    }

    fn split(&self, job: Chunk, owners: &[usize], parts: usize) -> Vec<Chunk> {
        self.plan.split(job, owners, parts)
    }

    fn merge(&self, parts: Vec<Chunk>) -> Chunk {
        self.plan.merge(parts)
    }
}

struct Chunks(std::vec::IntoIter<Chunk>);

impl Source<Chunk> for Chunks {
    fn next(&mut self) -> Option<Chunk> {
        self.0.next()
    }
}

struct Nowhere;

impl Sink<Chunk> for Nowhere {
    fn accept(&mut self, _: Chunk) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_once_for_each_chunk() {
        let span = |unit, stage, chunk| Span { unit, stage, chunk, begin_ns: 0, end_ns: 1 };
        let spans = [span(0, 0, 0), span(0, 1, 0), span(0, 0, 1), span(1, 1, 1)];
        assert_eq!((units_per_chunk(&spans), units_per_chunk(&[])), (1.5, 0.0));
    }
}
