//! Cells measured by a replay with its input in memory, in this process: tables are built once, everything that remembers
//! packets is new for each run.
//!
//! What a run counts must be the same in every run with the same chunk size and as many packets; if it is not, there is no
//! report but an error.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use thalweg_base::Chunk;
use thalweg_exec::{ModelOptions, Plan};
use thalweg_node::plan::RouterPlan;
use thalweg_replay::summary::{ClassSummary, NatSummary, PortSummary};
use thalweg_replay::{ModelKind, Prepared, ReplayError, ReplayOptions, ReplaySummary, UnknownWork, Work};

use crate::models::around::Digest;
use crate::models::concurrency::Sampler;
use crate::models::coprocessor::{self, CoprocessorResult};
use crate::models::{Cell, CellRun, HotSpot, RunOptions, SERIAL, TimeLine, hot_spots, time_line};
use crate::stages::clock::Calibration;

/// Chunks of a time line: those by which a pipeline measures its stages, and as many as a drawing can show.
const TIME_LINE_CHUNKS: usize = 8 + 12;
/// Packets of a run with a coprocessor: few, because its service takes long, but some chunks for each worker.
const COPROCESSOR_PACKETS: usize = 3_200;
const COPROCESSOR_CHUNKS_PER_WORKER: usize = 4;

/// Why a run does not count.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It failed.
    #[error(transparent)]
    Replay(ReplayError),
    /// The model stopped because of a bug.
    #[error(transparent)]
    Model(thalweg_exec::ExecError),
    /// It lost or invented packets: a mistake in this program.
    #[error("{} packets in, but {} out and {} dropped", .0.packets_in, .0.packets_out, .0.dropped_total())]
    Conservation(Box<ReplaySummary>),
    /// It gave another answer than a run before: a mistake in this program.
    #[error("the result differs from that of earlier runs: {difference}")]
    Answer {
        /// What differs, and how.
        difference: String,
    },
}

/// Everything that does not change from run to run, and the answers so far.
pub struct Runs<'a> {
    prepared: &'a Prepared<'a>,
    base: ReplayOptions,
    /// Packets of a run, without synthetic work and with.
    packets: [u64; 2],
    /// Packets of one time through the input.
    once: u64,
    answers: HashMap<(usize, u64), Answer>,
}

impl<'a> Runs<'a> {
    /// Runs of so many `packets` without synthetic work and with, of an input that has `once` packets.
    pub fn new(prepared: &'a Prepared<'a>, base: ReplayOptions, packets: [u64; 2], once: u64) -> Self {
        Self { prepared, base, packets, once, answers: HashMap::new() }
    }

    fn options(&self, cell: &Cell) -> Result<ReplayOptions, RunError> {
        self.options_for(cell, |work| self.packets[usize::from(work != Work::None)])
    }

    /// The options of a run with as many packets as `packets` says for its work.
    fn options_for(&self, cell: &Cell, packets: impl FnOnce(Work) -> u64) -> Result<ReplayOptions, RunError> {
        let refused = |what: String| RunError::Replay(ReplayError::Options(what));
        let model = ModelKind::ALL.into_iter().find(|model| model.name() == cell.model);
        let model = model.ok_or_else(|| refused(format!("no model {}", cell.model)))?;
        let work: Work = cell.work.parse().map_err(|unknown: UnknownWork| refused(unknown.to_string()))?;
        let packets = packets(work);
        Ok(ReplayOptions {
            model,
            workers: cell.workers,
            chunk_packets: cell.chunk_packets,
            work,
            packets_max: Some(packets),
            loops: u32::try_from(packets.div_ceil(self.once)).unwrap_or(u32::MAX),
            ..self.base.clone()
        })
    }

    /// Runs a cell.
    pub fn measure(&mut self, cell: &Cell) -> Result<CellRun, RunError> {
        let options = self.options(cell)?;
        let sampler = Sampler::default();
        let summary = self.prepared.replay(&options, &sampler).map_err(RunError::Replay)?;
        if !summary.is_conserved() {
            return Err(RunError::Conservation(Box::new(summary)));
        }
        self.compare(cell, &summary)?;
        Ok(CellRun {
            packets: summary.packets_in,
            elapsed_s: summary.elapsed_s,
            cpu_s: summary.cpu_s,
            residence_p50_ns: summary.latency.latency_ns_p50 as f64,
            residence_p99_ns: summary.latency.latency_ns_p99 as f64,
            // Runs share this process, so its memory says nothing about one of them.
            max_rss_bytes: 0,
            samples: sampler.samples(),
        })
    }

    /// Where a serial run spends its time.
    pub fn hot_spots(&self, work: &str, chunk_packets: usize) -> Result<Vec<HotSpot>, RunError> {
        let options = self.options(&Cell {
            model: SERIAL.to_owned(),
            workers: 1,
            chunk_packets,
            work: work.to_owned(),
        })?;
        let (plan, chunks) = self.prepared.router_and_input(&options).map_err(RunError::Replay)?;
        Ok(hot_spots::measure(work, &plan, chunks, Calibration::measure().reading_ticks))
    }

    /// Records what each unit does over time, in a run of a few chunks.
    pub fn time_line(&self, cell: &Cell) -> Result<TimeLine, RunError> {
        let packets = (cell.chunk_packets * TIME_LINE_CHUNKS) as u64;
        let (plan, chunks, model) = self.prepare(cell, packets)?;
        let stages = plan.stages().iter().map(|stage| stage.name.clone()).collect();
        let (units, spans) = time_line::record(&plan, chunks, &model).map_err(RunError::Model)?;
        Ok(TimeLine {
            model: cell.model.clone(),
            workers: cell.workers,
            chunk_packets: cell.chunk_packets,
            work: cell.work.clone(),
            units_per_chunk: time_line::units_per_chunk(&spans),
            units,
            stages,
            spans,
        })
    }

    /// Runs cells with a coprocessor of each service time, in rounds as [`super::run`] does. All must give the same
    /// answer.
    pub fn coprocessor(
        &self,
        cells: &[Cell],
        services_ns: &[u64],
        options: &RunOptions,
    ) -> Result<Vec<CoprocessorResult>, RunError> {
        let with_service = |service: &u64| cells.iter().map(|cell| (cell, *service)).collect::<Vec<_>>();
        let cells: Vec<(&Cell, u64)> = services_ns.iter().flat_map(with_service).collect();
        let mut measured = vec![Vec::new(); cells.len()];
        let mut answer: Option<Digest> = None;
        let once = cells.iter().map(|(cell, _)| cell.chunk_packets * cell.workers).max().unwrap_or(0);
        let packets = COPROCESSOR_PACKETS.max(once * COPROCESSOR_CHUNKS_PER_WORKER) as u64;
        options.rounds(cells.len(), |turn| {
            let (cell, service_ns) = cells[turn.at];
            let (plan, chunks, model) = self.prepare(cell, packets)?;
            let run = coprocessor::run(&plan, chunks, Duration::from_nanos(service_ns), &model)
                .map_err(RunError::Model)?;
            let before = *answer.get_or_insert(run.digest);
            if before != run.digest {
                let difference =
                    format!("{cell}, coprocessor: packets were {before:?} and are {:?}", run.digest);
                return Err(RunError::Answer { difference });
            }
            if turn.counts {
                measured[turn.at].push(run);
            }
            Ok(())
        })?;
        let results = cells.iter().zip(&measured);
        let mut results: Vec<CoprocessorResult> = results
            .filter_map(|((cell, service_ns), runs)| CoprocessorResult::of(cell, *service_ns, runs))
            .collect();
        coprocessor::compare(&mut results);
        Ok(results)
    }

    /// The router and the input of a run of so many packets, and its model.
    fn prepare(&self, cell: &Cell, packets: u64) -> Result<(RouterPlan, Vec<Chunk>, ModelOptions), RunError> {
        let options = self.options_for(cell, |_| packets)?;
        let (plan, chunks) = self.prepared.router_and_input(&options).map_err(RunError::Replay)?;
        let ReplayOptions { tokens, readers, workers, model, .. } = options;
        Ok((
            plan.for_workers(workers),
            chunks,
            ModelOptions { tokens, readers, ..ModelOptions::new(model, workers) },
        ))
    }

    fn compare(&mut self, cell: &Cell, summary: &ReplaySummary) -> Result<(), RunError> {
        let answer = Answer::of(summary);
        let before =
            self.answers.entry((cell.chunk_packets, summary.packets_in)).or_insert_with(|| answer.clone());
        match before.difference(&answer) {
            None => Ok(()),
            Some(difference) => Err(RunError::Answer { difference }),
        }
    }
}

/// What must not depend on model, workers or work: everything counted but time.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    packets_out: u64,
    bytes_out: u64,
    dropped: BTreeMap<String, u64>,
    ports: Vec<(String, PortSummary)>,
    classes: Vec<(String, ClassSummary)>,
    nat: Option<NatSummary>,
}

impl Answer {
    fn of(summary: &ReplaySummary) -> Self {
        let timeless = |(name, class): (&str, &ClassSummary)| {
            (name.to_owned(), ClassSummary { latency: Default::default(), ..class.clone() })
        };
        Answer {
            packets_out: summary.packets_out,
            bytes_out: summary.bytes_out,
            dropped: summary.dropped.clone(),
            ports: summary.ports.0.clone(),
            classes: summary.classes.iter().map(timeless).collect(),
            nat: summary.nat,
        }
    }

    /// The first part in which the two differ.
    fn difference(&self, other: &Answer) -> Option<String> {
        let differs = |what: &str, before: &dyn fmt::Debug, now: &dyn fmt::Debug| {
            Some(format!("{what} were {before:?} and are {now:?}"))
        };
        match () {
            () if self.dropped != other.dropped => differs("drops", &self.dropped, &other.dropped),
            () if self.packets_out != other.packets_out => {
                differs("packets out", &self.packets_out, &other.packets_out)
            }
            () if self.bytes_out != other.bytes_out => {
                differs("bytes out", &self.bytes_out, &other.bytes_out)
            }
            () if self.classes != other.classes => differs("classes", &self.classes, &other.classes),
            () if self.ports != other.ports => differs("ports", &self.ports, &other.ports),
            () if self.nat != other.nat => differs("NAT counters", &self.nat, &other.nat),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_differ_in_counts_but_not_in_time() {
        let class = ClassSummary { packets: 7, ..Default::default() };
        let mut summary = ReplaySummary {
            packets_in: 10,
            packets_out: 7,
            dropped: BTreeMap::from([("no-route".to_owned(), 3)]),
            classes: [("default".to_owned(), class)].into_iter().collect(),
            ..Default::default()
        };
        let answer = Answer::of(&summary);
        summary.elapsed_s = 3.0;
        summary.classes.0[0].1.latency.latency_ns_p50 = 99;
        assert_eq!(answer.difference(&Answer::of(&summary)), None);
        summary.dropped = BTreeMap::from([("blackhole".to_owned(), 3)]);
        let difference = answer.difference(&Answer::of(&summary)).expect("drops differ");
        assert!(difference.contains("no-route") && difference.contains("blackhole"), "{difference}");
        summary.dropped = answer.dropped.clone();
        summary.classes.0[0].1.bytes = 1;
        assert!(answer.difference(&Answer::of(&summary)).is_some_and(|d| d.starts_with("classes")));
    }
}
