//! The chain, after ffProbe as its authors built it: R readers label packets, and each job passes all W workers,
//! one after the other. A worker handles the packets of its own shards and hands the job on; the last one gives it
//! to the sink.
//!
//! No job is split or merged, and the rings keep the order. The price: every worker touches every job, so a job
//! passes through as many caches as there are workers.
//!
//! Readers run the stages before the plan's first `PerShard` stage, with tickets where those have state. Workers
//! run the unbroken row of `PerShard` stages that follows, each on its own groups. The last worker also runs the
//! rest. So a plan with much work behind its sharded stages is as fast as its last worker, and readers run all of a
//! plan that has no `PerShard` stage.
//!
//! A job that crosses shards reaches the last worker untouched: by then all jobs before it have passed every
//! worker. The first worker lets no job follow until that one is done.
//!
//! **No deadlock.** Take the lowest sequence that is not delivered. All lower ones have left every ring, so its
//! reader can take it, its tickets have come, and each worker finds it at the head of its ring. The first worker
//! waits only for jobs that it has handed on.
//!
//! **In flight** are at most R jobs in readers' hands, one in each worker's, and `(R + W - 1) * ring_jobs` in
//! rings.

use crate::farm::{owned_groups, owners};
use crate::intake::Intake;
use crate::options::ModelOptions;
use crate::plan::{Plan, Scope, Sink, StageSpec};
use crate::readers::Readers;
use crate::ring::{Receiver, Sender, ring};
use crate::stop::Stopped;
use crate::threads::{self, Member};
use crate::turn::Turn;
use crate::worker::{Done, Place, Shared, Step, Worker};
use std::ops::Range;

struct Message<J> {
    job: J,
    /// The job crosses shards: the last worker runs all of it.
    crosses: bool,
}

struct Chain {
    readers: Readers,
    body: Vec<usize>,
    tail: Vec<Step>,
    /// The number of crossing jobs that are done.
    crossed: Turn,
}

/// A worker's end of its rings.
struct Link<'s, J> {
    groups: Range<usize>,
    /// The first worker has one ring from each reader, the others one ring from the worker before.
    inputs: Vec<Receiver<Message<J>>>,
    to: Next<'s, J>,
    /// Crossing jobs that this worker has seen.
    crossed: u64,
}

enum Next<'s, J> {
    Worker(Sender<Message<J>>),
    Sink(&'s mut dyn Sink<J>),
}

/// The stages of the readers, of all workers, and of the last worker.
fn layout(stages: &[StageSpec]) -> (Range<usize>, Range<usize>, Range<usize>) {
    let sharded = |stage: &usize| stages[*stage].scope == Scope::PerShard;
    let first = (0..stages.len()).find(sharded).unwrap_or(stages.len());
    let end = (first..stages.len()).find(|stage| !sharded(stage)).unwrap_or(stages.len());
    (0..first, first..end, end..stages.len())
}

impl Chain {
    fn read<P: Plan>(
        &self,
        worker: &mut Worker<'_, P>,
        reader: usize,
        intake: &Intake<'_, P::Job>,
        ring: &mut Sender<Message<P::Job>>,
    ) -> Result<(), Stopped> {
        self.readers.read(worker, reader, intake, |worker, _, job| {
            let crosses = self.body.iter().any(|&stage| worker.crosses(stage, &job));
            worker.send(ring, Message { job, crosses })
        })
    }

    fn work<P: Plan>(&self, worker: &mut Worker<'_, P>, link: &mut Link<'_, P::Job>) -> Result<(), Stopped> {
        for sequence in 0.. {
            let from = Readers::of(sequence, link.inputs.len());
            let Some(Message { mut job, crosses }) = worker.receive(&mut link.inputs[from])? else { break };
            worker.jobs += 1;
            link.crossed += u64::from(crosses);
            if !crosses && !link.groups.is_empty() {
                for &stage in &self.body {
                    worker.run_shards(stage, &mut job, link.groups.clone());
                }
            }
            match &mut link.to {
                Next::Worker(ring) => {
                    worker.send(ring, Message { job, crosses })?;
                    if crosses {
                        worker.wait(&self.crossed, link.crossed)?;
                    }
                }
                Next::Sink(sink) => {
                    if crosses {
                        self.body.iter().for_each(|&stage| worker.run_step(&Step::PerShard(stage), &mut job));
                        self.crossed.set(link.crossed);
                    }
                    self.tail.iter().for_each(|step| worker.run_step(step, &mut job));
                    worker.at(Place::Sink, |_, _| sink.accept(job));
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn run<P: Plan>(
    shared: &Shared<'_, P>,
    options: &ModelOptions,
    intake: &Intake<'_, P::Job>,
    sink: &mut dyn Sink<P::Job>,
) -> Vec<Done<P::Scratch>> {
    let stages = shared.plan.stages();
    let (head, body, tail) = layout(stages);
    let chain = Chain {
        readers: Readers::new(shared, options.readers, Step::list(stages, head)),
        body: body.collect(),
        tail: Step::list(stages, tail),
        crossed: Turn::default(),
    };
    let chain = &chain;
    let (outputs, mut inputs): (Vec<_>, Vec<_>) =
        (0..options.readers).map(|_| ring(options.ring_jobs)).unzip();
    let owners = owners(shared.groups, options.workers);
    let mut sink = Some(sink);
    let mut members = Vec::with_capacity(options.workers + options.readers);
    for index in 0..options.workers {
        let (to, next_inputs) = if index + 1 < options.workers {
            let (sender, receiver) = ring(options.ring_jobs);
            (Next::Worker(sender), vec![receiver])
        } else {
            let Some(sink) = sink.take() else { break };
            (Next::Sink(sink), Vec::new())
        };
        let inputs = std::mem::replace(&mut inputs, next_inputs);
        let mut link = Link { groups: owned_groups(&owners, index), inputs, to, crossed: 0 };
        members.push(Member::new("worker", index, move |worker: &mut Worker<'_, P>| {
            chain.work(worker, &mut link)
        }));
    }
    members.extend(outputs.into_iter().enumerate().map(|(reader, mut ring)| {
        Member::new("reader", reader, move |worker: &mut Worker<'_, P>| {
            chain.read(worker, reader, intake, &mut ring)
        })
    }));
    threads::run(shared, members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_the_first_row_of_sharded_stages() {
        use Scope::{Batches as B, Ordered as O, PerShard as S};
        let layout = |scopes: &[Scope]| {
            let stages: Vec<_> =
                scopes.iter().map(|&scope| StageSpec { name: String::new(), scope }).collect();
            layout(&stages)
        };
        assert_eq!(layout(&[B, O, S, S, B, S]), (0..2, 2..4, 4..6));
        assert_eq!(layout(&[S]), (0..0, 0..1, 1..1));
        assert_eq!(layout(&[B, O]), (0..2, 2..2, 2..2));
    }
}
