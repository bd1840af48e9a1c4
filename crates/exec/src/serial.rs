//! The serial model: one thread takes each job through all stages. All other models must give its answer.

use crate::intake::Intake;
use crate::plan::{Plan, Sink};
use crate::threads::{self, Member};
use crate::worker::{Done, Place, Shared, Step};

pub(crate) fn run<P: Plan>(
    shared: &Shared<'_, P>,
    intake: &Intake<'_, P::Job>,
    sink: &mut dyn Sink<P::Job>,
) -> Vec<Done<P::Scratch>> {
    let stages = shared.plan.stages();
    let steps = Step::list(stages, 0..stages.len());
    let member = Member::new("worker", 0, move |worker| {
        while let Some((_, mut job)) = intake.take(worker)? {
            for step in &steps {
                worker.run_step(step, &mut job);
            }
            worker.at(Place::Sink, |_, _| sink.accept(job));
        }
        Ok(())
    });
    threads::run(shared, vec![member])
}
