//! Solves the same scenario for many origins, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Engine, Scenario, Solver, Summary};

/// The number of origins that a thread takes at once.
const TAKEN: usize = 64;

/// The summary for each origin, which replaces the scenario's first one. `progress` receives the number of
/// solved origins.
pub fn sweep(
    engine: &Engine,
    scenario: &Scenario,
    origins: &[usize],
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Summary> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let work = || {
        let mut solver = Solver::new(engine);
        let mut scenario = scenario.clone();
        if scenario.origins.is_empty() {
            scenario.origins.push(0);
        }
        let mut answers = Vec::new();
        loop {
            let from = next.fetch_add(TAKEN, Ordering::Relaxed);
            let Some(taken) =
                origins.get(from..origins.len().min(from + TAKEN)).filter(|taken| !taken.is_empty())
            else {
                return answers;
            };
            for (at, origin) in taken.iter().enumerate() {
                scenario.origins[0] = *origin;
                solver.solve(&scenario);
                answers.push((from + at, solver.summary()));
            }
            progress(done.fetch_add(taken.len(), Ordering::Relaxed) + taken.len());
        }
    };
    let mut all = vec![Summary::default(); origins.len()];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(answers) => answers.into_iter().for_each(|(at, summary)| all[at] = summary),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    all
}
