//! The functional pipeline, after the IXP1200: every thread has its own stages, and jobs move from thread to thread
//! over bounded rings.
//!
//! A pipeline is as fast as its slowest group of stages, so the cuts matter. One thread runs the first few jobs and
//! measures the processor time of each stage, which excludes time that the source waits for input or other
//! processes have the core. Then the contiguous partition is chosen whose largest group is smallest. Reading counts
//! with the first stage, delivering with the last. A stage is never cut; with more workers than stages there are as
//! many threads as stages.
//!
//! **Replicated.** On the IXP several threads have the code of a stage. So in the model `replicated` a group has
//! copies, each a thread, and the cuts and the copies are chosen together: the largest cost by copy is as small as
//! possible. There are at least two groups, or it would be run-to-completion. Jobs are dealt to copies in turn: copy
//! `c` of `k` takes every k-th job, and between two groups each pair of copies has a ring. A copy therefore knows from
//! which ring the next job comes, and reading them in turn restores the order. Source, sink and stages with state have
//! turns, as in `run_to_completion`.
//!
//! **No deadlock.** Each copy handles its jobs in sequence order. Take the lowest job not delivered: a turn has come
//! when all lower jobs have passed; a ring is full of lower jobs only; and the thread before it has nothing lower to
//! do. So some thread can go on with it.
//!
//! **In flight** are at most `workers` jobs in hands; of the jobs in rings, each thread has `ring_jobs` before it, or
//! one from each copy of the group before if those are more.

use crate::intake::Intake;
use crate::options::{ModelKind, ModelOptions};
use crate::plan::{Plan, Scope, Sink};
use crate::ring::{Receiver, Sender, ring};
use crate::run_to_completion::{run_step, with_turns};
use crate::stop::{Fragile, Stopped};
use crate::threads::{self, Member};
use crate::turn::Turn;
use crate::worker::{Done, Place, Shared, Step, Worker};
use std::ops::Range;
use std::time::Duration;

/// Jobs to measure stages with.
const CALIBRATION_JOBS: usize = 7;

/// Jobs before those, which fill caches and tables.
const WARM_UP_JOBS: usize = 1;

/// Stages that follow one another, and how many threads run them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    stages: Range<usize>,
    copies: usize,
}

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
    let groups = if options.kind == ModelKind::Replicated {
        let cannot_share = |stage: usize| stages[stage].scope == Scope::Ordered;
        replicate(&costs, &(0..stages.len()).map(cannot_share).collect::<Vec<_>>(), options.workers)
    } else {
        let single = |stages| Group { stages, copies: 1 };
        partition(&costs, options.workers).into_iter().map(single).collect()
    };
    if !ended && shared.control.check().is_ok() {
        done.extend(run_groups(shared, options.ring_jobs, intake, sink, &groups));
    }
    let of_threads = groups.iter().flat_map(|group| std::iter::repeat_n(group.stages.clone(), group.copies));
    (done, of_threads.collect())
}

/// Where a thread's jobs come from.
enum Input<J> {
    Source,
    /// A ring from each copy of the group before.
    Rings(Vec<Receiver<J>>),
}

/// Runs the threads of all groups, joined by rings. Jobs are counted from 0 here.
fn run_groups<P: Plan>(
    shared: &Shared<'_, P>,
    ring_jobs: usize,
    intake: &Intake<'_, P::Job>,
    sink: &mut dyn Sink<P::Job>,
    groups: &[Group],
) -> Vec<Done<P::Scratch>> {
    let all_stages = shared.plan.stages();
    let steps_of = |group: &Group| with_turns(Step::list(all_stages, group.stages.clone()), shared.groups);
    let steps: Vec<Vec<(Step, Vec<Turn>)>> = groups.iter().map(steps_of).collect();
    let (reading, delivering, sink) = (&Turn::default(), &Turn::default(), &Fragile::new(sink));
    let mut members = Vec::new();
    let mut inputs: Vec<Input<P::Job>> = (0..groups[0].copies).map(|_| Input::Source).collect();
    for (at, (group, steps)) in groups.iter().zip(&steps).enumerate() {
        let (outputs, next) =
            joined(group.copies, groups.get(at + 1).map_or(0, |next| next.copies), ring_jobs);
        let mut outputs = outputs.into_iter();
        let copies = group.copies;
        for (copy, mut input) in std::mem::replace(&mut inputs, next).into_iter().enumerate() {
            let mut output = outputs.next().unwrap_or_default();
            members.push(Member::new("worker", members.len(), move |worker: &mut Worker<'_, P>| {
                for number in (copy..).step_by(copies) {
                    let sequence = number as u64;
                    let Some(mut job) = next_job(worker, &mut input, number, reading, intake)? else { break };
                    for (step, turns) in steps {
                        match copies {
                            1 => worker.run_step(step, &mut job),
                            _ => run_step(worker, step, turns, sequence, &mut job)?,
                        }
                    }
                    let receivers = output.len();
                    if receivers > 0 {
                        worker.send(&mut output[number % receivers], job)?;
                    } else {
                        worker.wait(delivering, sequence)?;
                        let mut sink = worker.enter(sink)?;
                        worker.at(Place::Sink, |_, _| sink.accept(job));
                        drop(sink);
                        delivering.set(sequence + 1);
                    }
                }
                Ok(())
            }));
        }
    }
    threads::run(shared, members)
}

/// The next job of a copy, which has this number; `None` at the end.
fn next_job<P: Plan>(
    worker: &mut Worker<'_, P>,
    input: &mut Input<P::Job>,
    number: usize,
    reading: &Turn,
    intake: &Intake<'_, P::Job>,
) -> Result<Option<P::Job>, Stopped> {
    match input {
        Input::Source => {
            worker.wait(reading, number as u64)?;
            let job = intake.take(worker)?;
            reading.set(number as u64 + 1);
            Ok(job.map(|(_, job)| job))
        }
        Input::Rings(rings) => {
            let senders = rings.len();
            let job = worker.receive(&mut rings[number % senders])?;
            worker.jobs += u64::from(job.is_some());
            Ok(job)
        }
    }
}

/// A ring from each of the `senders` copies of a group to each of the `receivers` of the next: those of each sender,
/// and those of each receiver.
fn joined<J>(senders: usize, receivers: usize, ring_jobs: usize) -> (Vec<Vec<Sender<J>>>, Vec<Input<J>>) {
    let room = ring_jobs.div_ceil(senders).max(1);
    let mut outputs: Vec<Vec<Sender<J>>> = (0..senders).map(|_| Vec::new()).collect();
    let inputs = (0..receivers).map(|_| {
        let to_it = outputs.iter_mut().map(|output| {
            let (sender, receiver) = ring(room);
            output.push(sender);
            receiver
        });
        Input::Rings(to_it.collect())
    });
    let inputs = inputs.collect();
    (outputs, inputs)
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

/// Cuts the stages into at least two contiguous groups and gives them at most `workers` copies in all, so that the
/// largest cost by copy is as small as possible; with as few copies as that takes. Copies do not help a stage that only
/// one of them may run at a time (`alone`).
fn replicate(costs: &[u64], alone: &[bool], workers: usize) -> Vec<Group> {
    if costs.len() < 2 || workers < 2 {
        return vec![Group { stages: 0..costs.len(), copies: 1 }];
    }
    // Too little for a copy, and enough: what all stages together cost.
    let least =
        costs.iter().zip(alone).filter(|(_, alone)| **alone).map(|(cost, _)| *cost).max().unwrap_or(0);
    let mut low = least.saturating_sub(1);
    let mut high = costs.iter().fold(1u64, |sum, cost| sum.saturating_add(*cost)).max(least);
    let enough = |most: u64| {
        let groups = groups_within(costs, most);
        (groups.iter().map(|group| group.copies).sum::<usize>() <= workers).then_some(groups)
    };
    let mut best = groups_within(costs, high);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match enough(middle) {
            Some(groups) => (best, high) = (groups, middle),
            None => low = middle,
        }
    }
    best
}

/// The groups, two or more, with the fewest copies so that none costs more than `most` by copy. Time O(stages^2).
fn groups_within(costs: &[u64], most: u64) -> Vec<Group> {
    let copies = |stages: Range<usize>| {
        let cost = costs[stages].iter().fold(0u64, |sum, cost| sum.saturating_add(*cost));
        usize::try_from(cost.div_ceil(most.max(1)).max(1)).unwrap_or(usize::MAX)
    };
    let count = costs.len();
    // For the first n stages: the fewest copies, and where the last group starts.
    let mut best = vec![(0usize, 0usize)];
    for end in 1..=count {
        let starts = if end == count { 1..end } else { 0..end };
        let of = |start: usize| (best[start].0.saturating_add(copies(start..end)), start);
        best.push(starts.map(of).min().unwrap_or((usize::MAX, 0)));
    }
    let mut groups = Vec::new();
    let mut end = count;
    while end > 0 {
        let start = best[end].1;
        groups.push(Group { stages: start..end, copies: copies(start..end) });
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
        assert_eq!(replicate(&[], &[], 3), [Group { stages: 0..0, copies: 1 }]);
    }

    /// The largest cost by copy, and the copies.
    fn load(groups: &[Group], costs: &[u64]) -> (u64, usize) {
        let cost =
            |group: &Group| costs[group.stages.clone()].iter().sum::<u64>().div_ceil(group.copies as u64);
        (groups.iter().map(cost).max().unwrap_or(0), groups.iter().map(|group| group.copies).sum())
    }

    /// The smallest such cost over two groups and more, by trying all; `groups` is how many there must still be.
    fn brute_copies(costs: &[u64], workers: usize, groups: usize) -> u64 {
        if costs.is_empty() {
            return if groups == 0 { 0 } else { u64::MAX };
        }
        let ways = (1..=costs.len()).flat_map(|first| (1..=workers).map(move |copies| (first, copies)));
        ways.map(|(first, copies)| {
            let own = costs[..first].iter().sum::<u64>().div_ceil(copies as u64);
            own.max(brute_copies(&costs[first..], workers - copies, groups.saturating_sub(1)))
        })
        .min()
        .unwrap_or(u64::MAX)
    }

    proptest! {
        #[test]
        fn copies_are_where_they_help_most(
            costs in prop::collection::vec(0u64..100, 2..6),
            workers in 2usize..7,
        ) {
            let groups = replicate(&costs, &vec![false; costs.len()], workers);
            let (largest, copies) = load(&groups, &costs);
            prop_assert!(groups.len() >= 2 && copies <= workers, "{:?}", groups);
            prop_assert!(groups.iter().flat_map(|group| group.stages.clone()).eq(0..costs.len()));
            // Nothing costs nothing: one is the least.
            prop_assert_eq!(largest.max(1), brute_copies(&costs, workers, 2).max(1));
        }
    }

    #[test]
    fn a_slow_stage_gets_the_copies_unless_it_is_in_order() {
        let group = |stages, copies| Group { stages, copies };
        assert_eq!(replicate(&[10, 10, 80, 20], &[false; 4], 5), [group(0..2, 1), group(2..4, 4)]);
        let in_order = [false, false, true, false];
        assert_eq!(replicate(&[10, 10, 80, 20], &in_order, 9), [group(0..1, 1), group(1..4, 2)]);
        assert_eq!(replicate(&[10, 10], &[false; 2], 1), [group(0..2, 1)]);
    }
}
