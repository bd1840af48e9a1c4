//! Makes a plan that fails as small as it can be and still fail in the same way.

use std::ops::Range;

use super::trial::{Verdict, Violation};

/// A plan that was shrunk.
#[derive(Clone, Debug)]
pub struct Shrunk<P> {
    /// The smallest plan found.
    pub plan: P,
    /// How it fails.
    pub violation: Violation,
    /// Plans that were tried.
    pub tried: usize,
}

/// Plans that have a little less than one has, what takes most away first.
pub(super) type Step<P> = fn(&P) -> Vec<P>;

/// Shrinks a plan that fails; `None` if it does not. At most so many plans are tried.
pub(super) fn shrink<P: Clone>(
    plan: &P,
    tries: usize,
    steps: &[Step<P>],
    run: impl Fn(&P) -> Verdict,
) -> Option<Shrunk<P>> {
    let Verdict::Broken(violation) = run(plan) else { return None };
    let mut smallest = Shrunk { plan: plan.clone(), violation, tried: 1 };
    // Each step makes others possible; when none helps any more it is done.
    while steps.iter().any(|step| smallest.take_first_that_fails(step, tries, &run)) {}
    Some(smallest)
}

impl<P> Shrunk<P> {
    /// Takes smaller plans for as long as one fails in the same way; whether there was any.
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

/// The same with a change.
pub(super) fn changed<P: Clone>(plan: &P, change: impl FnOnce(&mut P)) -> P {
    let mut plan = plan.clone();
    change(&mut plan);
    plan
}

/// Ranges of so many things: halves, quarters, ... one each.
pub(super) fn parts(count: usize) -> impl Iterator<Item = Range<usize>> {
    let halved = |size: &usize| (*size > 1).then(|| size.div_ceil(2));
    let sizes = std::iter::successors(Some(count.div_ceil(2)).filter(|size| *size > 0), halved);
    sizes.flat_map(move |size| (0..count).step_by(size).map(move |first| first..(first + size).min(count)))
}
