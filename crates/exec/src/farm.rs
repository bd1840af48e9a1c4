//! The farm, after ffProbe's readers and workers: R readers label and split jobs, and W workers each process the
//! shards they own. A matrix of rings joins them.
//!
//! Readers (module `readers`) run the stages before the plan's first split stage. Then they split the job by the
//! owner of each packet's shard group, and worker `w` gets its part from reader `r` over ring `(r, w)`. Each worker
//! owns neighboring groups. It merges its R rings by sequence, which is simple because sequence `n` is always in
//! ring `n` modulo R, and runs on its part the sharded stages and the `Batches` stages that follow.
//!
//! Parts then go to the sink as they come, or with `ordered` to the completion unit, which waits for all parts of a
//! job. The completion unit also runs the stages behind the workers' that need the whole job (`Whole`, `Ordered`),
//! one job at a time; a plan with such stages is always delivered in order.
//!
//! A job that crosses shards is not split. Worker 0 gets it, and all others get a fence. Worker 0 waits until every
//! other worker stands at the fence, which means that all earlier work is done; then it runs the job alone and
//! releases them.
//!
//! A plan without `PerShard` stages offers nothing to split by. Then the workers share the last row of `Batches`
//! stages, whole jobs are dealt to them in turn, and delivery is always in order, since any worker may have a
//! flow's packets.
//!
//! **No deadlock.** Take the lowest sequence not delivered (unordered: not done). All lower ones have left every
//! ring and every hand, and a ring that was emptied has woken its reader. So its reader can take it, its tickets
//! have come, its rings have room at their heads, its workers find it there, and the completion unit's window
//! includes it. At a fence, too, workers wait only for lower sequences.
//!
//! **In flight** are at most R jobs in readers' hands, `R * ring_jobs` in the rings of the slowest worker, one in
//! each worker's hands and `reorder_jobs` in the completion unit.

use crate::completion::Completion;
use crate::intake::Intake;
use crate::options::ModelOptions;
use crate::plan::{Plan, Scope, Sink, StageSpec};
use crate::readers::Readers;
use crate::ring::{Receiver, Sender, ring};
use crate::stop::{Fragile, Stopped};
use crate::threads::{self, Member};
use crate::turn::Turn;
use crate::worker::{Done, Place, Shared, Step, Worker};
use std::ops::Range;

enum Message<J> {
    /// The receiver's part of a job.
    Part(J),
    /// A whole job, for worker 0 when all others stand at the fence.
    Whole(J),
    /// Worker 0 has the whole job of this sequence.
    Fence,
}

/// The stages of readers (`head`), of workers (`body`), and of the completion unit (`tail`).
struct Layout {
    head: Vec<Step>,
    body: Vec<Step>,
    tail: Vec<Step>,
    /// Jobs are split by shard; otherwise dealt whole.
    split: bool,
}

impl Layout {
    fn of(stages: &[StageSpec], first_split: usize) -> Self {
        let scope = |stage: usize| stages[stage].scope;
        let first_sharded = (0..stages.len()).find(|&stage| scope(stage) == Scope::PerShard);
        let body = match first_sharded {
            Some(first) => {
                let end = (first..stages.len())
                    .find(|&stage| !matches!(scope(stage), Scope::PerShard | Scope::Batches))
                    .unwrap_or(stages.len());
                // Parts may run nothing but `Batches` stages here: a plan that names an earlier split stage gets a
                // later one.
                let start = (first_split.min(first)..first)
                    .rfind(|&stage| scope(stage) != Scope::Batches)
                    .map_or(first_split.min(first), |stage| stage + 1);
                start..end
            }
            None => {
                let end = (0..stages.len())
                    .rfind(|&stage| scope(stage) == Scope::Batches)
                    .map_or(stages.len(), |last| last + 1);
                let start = (0..end).rfind(|&stage| scope(stage) != Scope::Batches).map_or(0, |s| s + 1);
                start..end
            }
        };
        Self {
            head: Step::list(stages, 0..body.start),
            tail: Step::list(stages, body.end..stages.len()),
            body: Step::list(stages, body),
            split: first_sharded.is_some(),
        }
    }
}

enum Outlet<'a, J> {
    Ordered(Box<Completion<'a, J>>),
    AsTheyCome(Fragile<&'a mut (dyn Sink<J> + 'a)>),
}

struct Farm<'a, J> {
    workers: usize,
    split: bool,
    body: Vec<Step>,
    /// The worker of each shard group.
    owners: Vec<usize>,
    /// Arrivals of workers at fences, counted over all fences.
    arrivals: Turn,
    /// The number of fences opened.
    released: Turn,
    outlet: Outlet<'a, J>,
}

impl<J: Send> Farm<'_, J> {
    fn dispatch<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
        sequence: u64,
        job: J,
        rings: &mut [Sender<Message<J>>],
    ) -> Result<(), Stopped> {
        if !self.split {
            return worker.send(&mut rings[Readers::of(sequence, self.workers)], Message::Whole(job));
        }
        let crosses =
            self.body.iter().any(|step| matches!(*step, Step::PerShard(s) if worker.crosses(s, &job)));
        if crosses || self.workers == 1 {
            worker.send(&mut rings[0], Message::Whole(job))?;
            return rings[1..].iter_mut().try_for_each(|ring| worker.send(ring, Message::Fence));
        }
        let parts = worker.at(Place::Split, |plan, _| {
            let parts = plan.split(job, &self.owners, self.workers);
            assert_eq!(parts.len(), self.workers, "the plan split a job into too few or too many parts");
            parts
        });
        rings.iter_mut().zip(parts).try_for_each(|(ring, part)| worker.send(ring, Message::Part(part)))
    }

    fn work<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
        index: usize,
        rings: &mut [Receiver<Message<J>>],
    ) -> Result<(), Stopped> {
        let (first, step) = if self.split { (0, 1) } else { (index as u64, self.workers) };
        let groups = owned_groups(&self.owners, index);
        let mut fences = 0;
        for sequence in (first..).step_by(step) {
            let Some(message) = worker.receive(&mut rings[Readers::of(sequence, rings.len())])? else {
                break;
            };
            match message {
                Message::Part(mut part) => {
                    worker.jobs += 1;
                    self.run_part(worker, &mut part, &groups);
                    self.bring(worker, sequence, index, self.workers, part)?;
                }
                Message::Whole(job) if !self.split => {
                    worker.jobs += 1;
                    self.run_alone(worker, sequence, job, || ())?;
                }
                Message::Whole(job) => {
                    worker.jobs += 1;
                    fences += 1;
                    worker.wait(&self.arrivals, fences * (self.workers as u64 - 1))?;
                    self.run_alone(worker, sequence, job, || self.released.set(fences))?;
                }
                Message::Fence => {
                    fences += 1;
                    self.arrivals.increment();
                    worker.wait(&self.released, fences)?;
                }
            }
        }
        Ok(())
    }

    fn run_part<P: Plan<Job = J>>(&self, worker: &mut Worker<'_, P>, part: &mut J, groups: &Range<usize>) {
        for step in &self.body {
            match *step {
                Step::PerShard(stage) if !groups.is_empty() => {
                    worker.run_shards(stage, part, groups.clone());
                }
                Step::PerShard(_) => {}
                _ => worker.run_step(step, part),
            }
        }
    }

    /// Runs a whole job and delivers it. `release` frees the other workers as soon as order allows.
    fn run_alone<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
        sequence: u64,
        mut job: J,
        release: impl FnOnce(),
    ) -> Result<(), Stopped> {
        for step in &self.body {
            worker.run_step(step, &mut job);
        }
        match self.outlet {
            Outlet::Ordered(_) => {
                release();
                self.bring(worker, sequence, 0, 1, job)
            }
            // Later parts of the same groups must not overtake this job on its way to the sink.
            Outlet::AsTheyCome(_) => {
                self.bring(worker, sequence, 0, 1, job)?;
                release();
                Ok(())
            }
        }
    }

    fn bring<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
        sequence: u64,
        part: usize,
        parts: usize,
        job: J,
    ) -> Result<(), Stopped> {
        match &self.outlet {
            Outlet::Ordered(completion) => completion.put_part(sequence, part, parts, job, worker),
            Outlet::AsTheyCome(sink) => {
                let mut sink = worker.enter(sink)?;
                worker.at(Place::Sink, |_, _| sink.accept(job));
                Ok(())
            }
        }
    }
}

/// The worker of each group. Each worker gets neighboring groups, and as equal a number of them as possible.
pub(crate) fn owners(groups: usize, workers: usize) -> Vec<usize> {
    (0..groups).map(|group| group * workers / groups).collect()
}

/// The groups of one worker.
pub(crate) fn owned_groups(owners: &[usize], worker: usize) -> Range<usize> {
    owners.partition_point(|&owner| owner < worker)..owners.partition_point(|&owner| owner <= worker)
}

/// Runs the model. Also returns the most jobs that ever waited for an earlier one.
pub(crate) fn run<P: Plan>(
    shared: &Shared<'_, P>,
    options: &ModelOptions,
    intake: &Intake<'_, P::Job>,
    sink: &mut dyn Sink<P::Job>,
) -> (Vec<Done<P::Scratch>>, usize) {
    let Layout { head, body, tail, split } =
        Layout::of(shared.plan.stages(), shared.plan.first_split_stage());
    let (workers, readers) = (options.workers, options.readers);
    let outlet = if options.ordered || !split || !tail.is_empty() {
        Outlet::Ordered(Box::new(Completion::new(sink, options.reorder_jobs, tail)))
    } else {
        Outlet::AsTheyCome(Fragile::new(sink))
    };
    let farm = Farm {
        workers,
        split,
        body,
        owners: owners(shared.groups, workers),
        arrivals: Turn::default(),
        released: Turn::default(),
        outlet,
    };
    let (farm, head) = (&farm, &Readers::new(shared, readers, head));
    let mut ends: Vec<Vec<Receiver<Message<P::Job>>>> = (0..workers).map(|_| Vec::new()).collect();
    let mut reading = Vec::with_capacity(readers);
    for reader in 0..readers {
        let mut senders = Vec::with_capacity(workers);
        for receivers in &mut ends {
            let (sender, receiver) = ring(options.ring_jobs);
            senders.push(sender);
            receivers.push(receiver);
        }
        reading.push(Member::new("reader", reader, move |worker: &mut Worker<'_, P>| {
            head.read(worker, reader, intake, |worker, sequence, job| {
                farm.dispatch(worker, sequence, job, &mut senders)
            })
        }));
    }
    let mut members: Vec<_> = ends
        .into_iter()
        .enumerate()
        .map(|(index, mut rings)| {
            Member::new("worker", index, move |worker: &mut Worker<'_, P>| {
                farm.work(worker, index, &mut rings)
            })
        })
        .collect();
    members.extend(reading);
    let done = threads::run(shared, members);
    let high_water = match &farm.outlet {
        Outlet::Ordered(completion) => completion.high_water(),
        Outlet::AsTheyCome(_) => 0,
    };
    (done, high_water)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_one_owner_and_shares_are_even() {
        for groups in 1..20 {
            for workers in 1..12 {
                let owners = owners(groups, workers);
                let ranges: Vec<_> = (0..workers).map(|w| owned_groups(&owners, w)).collect();
                assert!(ranges.iter().cloned().flatten().eq(0..groups));
                let sizes = ranges.iter().map(Range::len);
                assert!(sizes.clone().max().unwrap_or(0) - sizes.min().unwrap_or(0) <= 1);
            }
        }
    }

    #[test]
    fn stages_are_laid_out_around_the_shards() {
        use Scope::{Batches as B, Ordered as O, PerShard as S, Whole as W};
        let split_at = |scopes: &[Scope], first_split: usize| {
            let stages: Vec<_> =
                scopes.iter().map(|&scope| StageSpec { name: String::new(), scope }).collect();
            let Layout { head, body, tail, split } = Layout::of(&stages, first_split);
            (head.len(), body.len(), tail.len(), split)
        };
        let layout = |scopes: &[Scope]| split_at(scopes, scopes.len());
        assert_eq!(layout(&[B, O, W, S, B, B, S]), (3, 3, 0, true));
        assert_eq!(layout(&[S, B, O, S, B]), (0, 2, 3, true));
        assert_eq!(layout(&[B, B]), (0, 1, 0, false));
        assert_eq!(layout(&[O, B, W, B, B, O]), (3, 1, 1, false));
        assert_eq!(layout(&[O, W]), (2, 0, 0, false));
        assert_eq!(layout(&[]), (0, 0, 0, false));
        // The workers' part begins where the plan says, but never with a stage that needs the whole job.
        assert_eq!(split_at(&[B, O, W, B, B, S, B], 3), (3, 3, 0, true));
        assert_eq!(split_at(&[B, O, W, B, B, S, B], 4), (4, 3, 0, true));
        assert_eq!(split_at(&[B, O, W, B, B, S, B], 1), (3, 3, 0, true));
    }
}
