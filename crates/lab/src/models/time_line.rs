//! What each unit does over time: figures 2 and 3 of the article on execution models (seed document 004), which show how
//! packets pass processors under run to completion and under pipelining.
//!
//! The article's figures are drawn by hand; these are recorded: each thread notes which stage it ran on which chunk, and
//! when. Each note costs two readings of the clock, so the lengths do not measure speed.

use serde::Serialize;
use std::time::Instant;
use thalweg_base::Chunk;
use thalweg_exec::{ExecError, ModelOptions, Plan};

use super::around::{self, Beside, Digest};
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
            what: usize::try_from(span.chunk).unwrap_or(usize::MAX),
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
    let clock = Clock { began: Instant::now() };
    let report = around::run(plan, &clock, chunks, &mut Digest::default(), options)?;
    let (mut units, mut spans) = (Vec::new(), Vec::new());
    for (thread, scratch) in report.threads.iter().zip(report.scratches) {
        if thread.role == "calibration" || scratch.notes.is_empty() {
            continue;
        }
        let unit = units.len();
        units.push(format!("{} {}", thread.role, thread.index));
        spans.extend(scratch.notes.into_iter().map(|span| Span { unit, ..span }));
    }
    spans.sort_by_key(|span| (span.begin_ns, span.unit));
    Ok((units, spans))
}

/// Notes what is run when; the unit is known at the end.
struct Clock {
    began: Instant,
}

impl Beside for Clock {
    type Notes = Vec<Span>;

    fn stage(
        &self,
        stage: usize,
        chunk: &mut Chunk,
        _: usize,
        notes: &mut Vec<Span>,
        work: impl FnOnce(&mut Chunk),
    ) {
        let now_ns = || self.began.elapsed().as_nanos() as u64; // hundreds of years
        let (sequence, begin_ns) = (chunk.sequence, now_ns());
        work(chunk);
        let end_ns = now_ns();
        match notes.last_mut() {
            // The next batch, or the next shards, of the same chunk.
            Some(last) if (last.stage, last.chunk) == (stage, sequence) => last.end_ns = end_ns,
            _ => notes.push(Span { unit: 0, stage, chunk: sequence, begin_ns, end_ns }),
        }
    }
}

/// The units that a chunk met, on average.
pub(super) fn units_per_chunk(spans: &[Span]) -> f64 {
    let met = distinct(spans.iter().map(|span| (span.chunk, span.unit))).len();
    let chunks = distinct(spans.iter().map(|span| span.chunk)).len();
    met as f64 / chunks.max(1) as f64
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
