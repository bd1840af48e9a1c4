//! The functional pipeline, after the IXP1200: every thread has its own stages, and jobs move from thread to thread
//! over bounded rings. The rings keep the order, and no two threads ever run the same stage.
//!
//! A pipeline is as fast as its slowest group of stages, so the cuts matter. One thread runs the first few jobs and
//! measures the processor time of each stage, which excludes time that the source waits for input or other
//! processes have the core. Then the contiguous partition is chosen whose largest group is smallest. Reading counts
//! with the first stage, delivering with the last. A stage is never cut; with more workers than stages there are as
//! many threads as stages.
//!
//! **No deadlock.** The threads form a line. Each waits only for the thread before it to produce or the thread
//! after it to consume, and the last one never waits to hand on.
//!
//! **In flight** are at most `threads` jobs in hands and `(threads - 1) * ring_jobs` in rings.

use crate::intake::Intake;
use crate::options::ModelOptions;
use crate::plan::{Plan, Sink};
use crate::ring::ring;
use crate::stop::Stopped;
use crate::threads::{self, Member};
use crate::worker::{Done, Place, Shared, Step, Worker};
use std::ops::Range;
use std::time::Duration;

/// Jobs to measure stages with.
const CALIBRATION_JOBS: usize = 7;

/// Jobs before those, which fill caches and tables.
const WARM_UP_JOBS: usize = 1;

/// Runs the model. Also returns the stages of each thread.
pub(crate) fn run<P: Plan>(
    shared: &Shared<'_, P>,
    options: &ModelOptions,
    intake: &Intake<'_, P::Job>,
    sink: &mut dyn Sink<P::Job>,
) -> (Vec<Done<P::Scratch>>, Vec<Range<usize>>) {
    let stages = shared.plan.stages();
    let mut costs = vec![0; stages.len()];
    let mut ended = false;
    let calibration = {
        let (costs, ended, sink) = (&mut costs, &mut ended, &mut *sink);
        Member::new("calibration", 0, move |worker| {
            *ended = calibrate(worker, intake, sink, costs)?;
            Ok(())
        })
    };
    let mut done = threads::run(shared, vec![calibration]);
    let grouping = partition(&costs, options.workers);
    if !ended && shared.control.check().is_ok() {
        done.extend(threads::run(shared, line(shared, options, intake, sink, &grouping)));
    }
    (done, grouping)
}

/// The threads of the pipeline, joined by rings.
fn line<'s, P: Plan>(
    shared: &'s Shared<'_, P>,
    options: &ModelOptions,
    intake: &'s Intake<'_, P::Job>,
    sink: &'s mut dyn Sink<P::Job>,
    grouping: &[Range<usize>],
) -> Vec<Member<'s, P>> {
    let mut members = Vec::with_capacity(grouping.len());
    let mut sink = Some(sink);
    let mut input = None;
    for (index, stages) in grouping.iter().enumerate() {
        let steps = Step::list(shared.plan.stages(), stages.clone());
        let (mut output, next_input) = if index + 1 < grouping.len() {
            let (sender, receiver) = ring(options.ring_jobs);
            (Some(sender), Some(receiver))
        } else {
            (None, None)
        };
        let mut from = std::mem::replace(&mut input, next_input);
        let mut to_sink = if output.is_none() { sink.take() } else { None };
        members.push(Member::new("worker", index, move |worker: &mut Worker<'_, P>| {
            loop {
                let job = match &mut from {
                    None => intake.take(worker)?.map(|(_, job)| job),
                    Some(ring) => {
                        let job = worker.receive(ring)?;
                        worker.jobs += u64::from(job.is_some());
                        job
                    }
                };
                let Some(mut job) = job else { return Ok(()) };
                for step in &steps {
                    worker.run_step(step, &mut job);
                }
                match (&mut output, &mut to_sink) {
                    (Some(ring), _) => worker.send(ring, job)?,
                    (None, Some(sink)) => worker.at(Place::Sink, |_, _| sink.accept(job)),
                    (None, None) => {}
                }
            }
        }));
    }
    members
}

/// Runs the first jobs on one thread and adds up each stage's processor time in nanoseconds. Returns true if the
/// source ended meanwhile.
fn calibrate<P: Plan>(
    worker: &mut Worker<'_, P>,
    intake: &Intake<'_, P::Job>,
    sink: &mut dyn Sink<P::Job>,
    costs: &mut [u64],
) -> Result<bool, Stopped> {
    let stages = worker.shared.plan.stages();
    let steps = Step::list(stages, 0..stages.len());
    for round in 0..WARM_UP_JOBS + CALIBRATION_JOBS {
        if round == WARM_UP_JOBS {
            costs.fill(0);
        }
        let mut lap = Lap { last: worker.shared.cpu_time() };
        let Some((_, mut job)) = intake.take(worker)? else { return Ok(true) };
        if let Some(first) = costs.first_mut() {
            *first += lap.ns(worker.shared.cpu_time());
        }
        for step in &steps {
            match *step {
                Step::Batches(ref row) => {
                    let shared = worker.shared;
                    worker.run_batches_observed(row.clone(), &mut job, |stage| {
                        costs[stage] += lap.ns(shared.cpu_time());
                    });
                }
                Step::Whole(stage) | Step::Ordered(stage) | Step::PerShard(stage) => {
                    worker.run_step(step, &mut job);
                    costs[stage] += lap.ns(worker.shared.cpu_time());
                }
            }
        }
        worker.at(Place::Sink, |_, _| sink.accept(job));
        if let Some(last) = costs.last_mut() {
            *last += lap.ns(worker.shared.cpu_time());
        }
    }
    Ok(false)
}

struct Lap {
    last: Duration,
}

impl Lap {
    fn ns(&mut self, now: Duration) -> u64 {
        let lap = now.saturating_sub(self.last);
        self.last = now;
        u64::try_from(lap.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Cuts the stages into at most `threads` contiguous groups, none empty, and makes the largest sum of costs as
/// small as possible. Without stages there is one empty group. Time O(stages^2 * threads).
fn partition(costs: &[u64], threads: usize) -> Vec<Range<usize>> {
    let count = costs.len();
    if count == 0 {
        return std::iter::once(0..0).collect();
    }
    let threads = threads.clamp(1, count);
    let sums: Vec<u64> = std::iter::once(0)
        .chain(costs.iter().scan(0u64, |sum, cost| {
            *sum = sum.saturating_add(*cost);
            Some(*sum)
        }))
        .collect();
    // best[k][n]: cut the first n stages into k + 1 groups; the cost of the largest group, and where the last one
    // starts.
    let mut best: Vec<Vec<(u64, usize)>> = vec![sums.iter().map(|&sum| (sum, 0)).collect()];
    for k in 1..threads {
        let row = (0..=count)
            .map(|n| {
                (k..n)
                    .map(|start| (best[k - 1][start].0.max(sums[n] - sums[start]), start))
                    .min()
                    .unwrap_or((u64::MAX, 0))
            })
            .collect();
        best.push(row);
    }
    let mut groups = Vec::with_capacity(threads);
    let mut end = count;
    for k in (0..threads).rev() {
        let start = best[k][end].1;
        groups.push(start..end);
        end = start;
    }
    groups.reverse();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cost of the largest group in the best cut, by trying every cut.
    fn brute(costs: &[u64], threads: usize) -> u64 {
        if threads == 1 {
            return costs.iter().sum();
        }
        (1..=costs.len() + 1 - threads)
            .map(|first| costs[..first].iter().sum::<u64>().max(brute(&costs[first..], threads - 1)))
            .min()
            .unwrap_or(u64::MAX)
    }

    proptest! {
        #[test]
        fn partition_is_the_best_there_is(
            costs in prop::collection::vec(0u64..1000, 1..9),
            threads in 1usize..12,
        ) {
            let groups = partition(&costs, threads);
            prop_assert_eq!(groups.len(), threads.min(costs.len()));
            prop_assert!(groups.iter().all(|group| !group.is_empty()));
            prop_assert!(groups.iter().cloned().flatten().eq(0..costs.len()));
            let largest = groups.iter().map(|group| costs[group.clone()].iter().sum::<u64>()).max();
            prop_assert_eq!(largest, Some(brute(&costs, threads.min(costs.len()))));
        }
    }

    #[test]
    fn no_stages_make_one_empty_group() {
        assert_eq!(partition(&[], 3), vec![0..0]);
    }
}
