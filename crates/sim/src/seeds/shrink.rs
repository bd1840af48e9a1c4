//! Reduces a failing plan as far as it still fails in the same way.

use std::ops::Range;

use super::trial::{Verdict, Violation};

/// The result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk<P> {
    pub plan: P,
    pub violation: Violation,
    /// The number of plans tried.
    pub tried: usize,
}

/// Derives slightly smaller plans from a plan; those that remove most come first.
pub(super) type Step<P> = fn(&P) -> Vec<P>;

/// Shrinks a plan; `None` if it does not fail. Tries at most `tries` plans.
pub(super) fn shrink<P: Clone>(
    plan: &P,
    tries: usize,
    steps: &[Step<P>],
    run: impl Fn(&P) -> Verdict,
) -> Option<Shrunk<P>> {
    let Verdict::Broken(violation) = run(plan) else { return None };
    let mut smallest = Shrunk { plan: plan.clone(), violation, tried: 1 };
    // Each step may enable others, so all are repeated until none helps.
    while steps.iter().any(|step| smallest.take_first_that_fails(step, tries, &run)) {}
    Some(smallest)
}

impl<P> Shrunk<P> {
    /// Takes smaller plans while one fails in the same way; returns whether there was any.
    fn take_first_that_fails(&mut self, step: &Step<P>, tries: usize, run: &impl Fn(&P) -> Verdict) -> bool {
        let mut any = false;
        'again: loop {
            for plan in step(&self.plan) {
                if self.tried >= tries {
                    return false;
                }
                self.tried += 1;
                if let Verdict::Broken(violation) = run(&plan)
                    && violation.invariant == self.violation.invariant
                {
                    (self.plan, self.violation, any) = (plan, violation, true);
                    continue 'again;
                }
            }
            return any;
        }
    }
}

/// A changed copy.
pub(super) fn changed<P: Clone>(plan: &P, change: impl FnOnce(&mut P)) -> P {
    let mut plan = plan.clone();
    change(&mut plan);
    plan
}

/// Ranges of `count` items: halves, quarters, and so on down to single items.
pub(super) fn parts(count: usize) -> impl Iterator<Item = Range<usize>> {
    let halved = |size: &usize| (*size > 1).then(|| size.div_ceil(2));
    let sizes = std::iter::successors(Some(count.div_ceil(2)).filter(|size| *size > 0), halved);
    sizes.flat_map(move |size| (0..count).step_by(size).map(move |first| first..(first + size).min(count)))
}
