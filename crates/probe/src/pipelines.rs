//! Runs pipelines in parallel: each is a plan, run by a model on its sources.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use thalweg_base::Chunk;
use thalweg_exec::{ExecError, Lane, ModelOptions, RunReport, Sink, Source};

use crate::deal::deal;
use crate::plan::{Free, Keep, ProbePlan, Scratch};
use crate::source::Captures;
use crate::{ProbeError, Shape};

/// The input of a pipeline: one source, or one per worker.
type Sources<'a> = Vec<Box<dyn Source<Chunk> + 'a>>;

/// Plans, and how to run them.
pub(crate) struct Pipelines<'a> {
    pub(crate) plans: &'a [ProbePlan],
    pub(crate) shape: &'a Shape,
    /// Keep chunks until the end of the run.
    pub(crate) keep: bool,
    /// Set when a pipeline fails, so that the others end.
    pub(crate) stop: &'a AtomicBool,
}

impl Pipelines<'_> {
    /// Runs the pipelines on these captures: one for all, or one for each.
    pub(crate) fn run_captures(
        &self,
        captures: &mut [Captures],
    ) -> Result<Vec<RunReport<Scratch>>, ProbeError> {
        match captures {
            [only] if self.plans.len() > 1 => thread::scope(|scope| {
                let (queues, dealer) = deal(scope, only, self.plans.len()).map_err(ProbeError::Thread)?;
                let sources = queues.into_iter().map(|queue| -> Sources<'_> { vec![Box::new(queue)] });
                let reports = self.run(sources.collect());
                // It ends with its input, or when a failed pipeline closed its queue.
                dealer.join().map_err(|_| died("the dealer"))?;
                reports
            }),
            each => self.run(each.iter_mut().map(|one| -> Sources<'_> { vec![Box::new(one)] }).collect()),
        }
    }

    /// Runs each pipeline on its sources until all of them have ended.
    pub(crate) fn run(&self, sources: Vec<Sources<'_>>) -> Result<Vec<RunReport<Scratch>>, ProbeError> {
        thread::scope(|scope| {
            let mut handles = Vec::with_capacity(sources.len());
            for (number, sources) in sources.into_iter().enumerate() {
                let pipeline = thread::Builder::new().name(format!("pipeline-{number}"));
                let handle = pipeline.spawn_scoped(scope, move || self.run_one(number, sources));
                handles.push(handle.map_err(|error| {
                    self.stop.store(true, Ordering::Relaxed);
                    ProbeError::Thread(error)
                })?);
            }
            // Wait for all of them, even if the first one failed.
            let reports: Vec<_> = handles
                .into_iter()
                .map(|handle| match handle.join() {
                    Ok(report) => report.map_err(ProbeError::Model),
                    Err(_) => Err(died("a pipeline")),
                })
                .collect();
            reports.into_iter().collect()
        })
    }

    /// Owns its sources: dropping them tells their feeder when the pipeline ends early.
    fn run_one(&self, number: usize, mut sources: Sources<'_>) -> Result<RunReport<Scratch>, ExecError> {
        let mut sinks: Vec<Box<dyn Sink<Chunk>>> = (0..sources.len()).map(|_| self.sink()).collect();
        let (plan, model) = (&self.plans[number], self.model_options(number));
        let give_up = || self.stop.store(true, Ordering::Relaxed);
        let report = match (sources.as_mut_slice(), sinks.as_mut_slice()) {
            ([source], [sink]) => thalweg_exec::run(plan, source.as_mut(), sink.as_mut(), &model),
            (sources, sinks) => {
                let lanes = sources.iter_mut().zip(sinks);
                let lanes = lanes.map(|(source, sink)| Lane { source: source.as_mut(), sink: sink.as_mut() });
                thalweg_exec::run_lanes(plan, lanes.collect(), model.pin_cores.as_deref(), &give_up)
            }
        };
        if report.is_err() {
            give_up();
        }
        report
    }

    fn sink(&self) -> Box<dyn Sink<Chunk>> {
        if self.keep { Box::new(Keep::default()) } else { Box::new(Free) }
    }

    fn model_options(&self, pipeline: usize) -> ModelOptions {
        let Shape { model: kind, workers, readers, tokens, pin_cores, .. } = self.shape;
        let mut model = ModelOptions::new(*kind, *workers);
        model.readers = *readers;
        model.tokens = *tokens;
        if !pin_cores.is_empty() {
            let readers = if kind.has_readers() { *readers } else { 0 };
            let mut cores = pin_cores.clone();
            cores.rotate_left(pipeline * (workers + readers) % pin_cores.len());
            model.pin_cores = Some(cores);
        }
        model
    }
}

/// The error for a thread that panicked.
pub(crate) fn died(who: &str) -> ProbeError {
    ProbeError::Thread(std::io::Error::other(format!("{who} panicked")))
}
