//! Chooses the next experiment and estimates the remaining time.
//!
//! Without a time limit, each experiment runs once, in the papers' order. With one there are passes: each pass
//! runs all experiments once, in a new order, as long as time is left. So an experiment's repetitions spread over
//! the whole time, and a disturbance of some minutes affects all experiments alike. An experiment that would
//! exceed the limit, judging by its last run, is not started.

use thalweg_base::XorShift64Star;

use crate::stats::shuffle;

/// An experiment to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The index of its step.
    pub step: usize,
    /// Counts from 1.
    pub pass: usize,
}

/// The remaining experiments.
pub struct Agenda {
    /// The time limit for all experiments together, in seconds.
    limit_s: Option<f64>,
    steps: Vec<StepState>,
    order: Vec<usize>,
    next: usize,
    pass: usize,
    /// Whether an experiment of this pass has been started.
    has_begun: bool,
    rng: XorShift64Star,
}

#[derive(Clone, Copy, Default)]
struct StepState {
    took_s: Option<f64>,
    retired: bool,
}

impl Agenda {
    /// An agenda for `steps` steps: each once, or in repeated passes within the limit.
    pub fn new(steps: usize, limit_s: Option<f64>, seed: u64) -> Self {
        Self {
            limit_s,
            steps: vec![StepState::default(); steps],
            order: (0..steps).collect(),
            next: 0,
            pass: 1,
            has_begun: false,
            rng: XorShift64Star::new(seed),
        }
    }

    /// The next experiment after `elapsed_s` seconds; `None` if none remains or would end in time.
    pub fn next(&mut self, elapsed_s: f64) -> Option<Task> {
        loop {
            while let Some(step) = self.order.get(self.next).copied() {
                self.next += 1;
                if self.fits(step, elapsed_s) {
                    self.has_begun = true;
                    return Some(Task { step, pass: self.pass });
                }
            }
            if self.limit_s.is_none() || !std::mem::take(&mut self.has_begun) {
                return None;
            }
            shuffle(&mut self.order, &mut self.rng);
            (self.next, self.pass) = (0, self.pass + 1);
        }
    }

    fn fits(&self, step: usize, elapsed_s: f64) -> bool {
        let state = self.steps[step];
        // The first run of an experiment has no estimate, so the first pass tries each.
        let ends_s = elapsed_s + state.took_s.unwrap_or_default();
        !state.retired && self.limit_s.is_none_or(|limit_s| ends_s < limit_s)
    }

    /// Records that a step ended with results after this time.
    pub fn took(&mut self, step: usize, seconds: f64) {
        self.steps[step].took_s = Some(seconds);
    }

    /// Removes a step that has no results and will have none.
    pub fn retire(&mut self, step: usize) {
        self.steps[step].retired = true;
    }

    /// The remaining seconds: the rest of the limit; without a limit, an estimate from the experiments done so
    /// far. `None` before the first is done.
    pub fn left_s(&self, elapsed_s: f64) -> Option<f64> {
        if let Some(limit_s) = self.limit_s {
            return Some((limit_s - elapsed_s).max(0.0));
        }
        let known: Vec<f64> = self.steps.iter().filter_map(|step| step.took_s).collect();
        if known.is_empty() {
            return None;
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        // The current experiment has not ended yet.
        let to_go = self.steps.len() + 1 - self.next;
        Some(mean * to_go as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs an agenda whose steps take these times; returns the tasks, and when the last one ended.
    fn play(mut agenda: Agenda, takes_s: &[f64]) -> (Vec<Task>, f64) {
        let (mut tasks, mut now_s) = (Vec::new(), 0.0);
        while let Some(task) = agenda.next(now_s) {
            now_s += takes_s[task.step];
            agenda.took(task.step, takes_s[task.step]);
            tasks.push(task);
        }
        (tasks, now_s)
    }

    #[test]
    fn without_a_limit_each_step_comes_once() {
        let (tasks, _) = play(Agenda::new(3, None, 1), &[1e6, 1.0, 1.0]);
        assert_eq!(tasks, [0, 1, 2].map(|step| Task { step, pass: 1 }));
    }

    #[test]
    fn a_limit_is_filled_with_passes_and_not_exceeded() {
        let (takes_s, counts) = ([10.0, 1.0, 4.0], |tasks: &[Task]| {
            [0, 1, 2].map(|step| tasks.iter().filter(|task| task.step == step).count())
        });
        let (few, ends_s) = play(Agenda::new(3, Some(50.0), 7), &takes_s);
        assert!(ends_s <= 50.0 && ends_s > 45.0, "{ends_s}");
        let (many, _) = play(Agenda::new(3, Some(500.0), 7), &takes_s);
        for (few, many) in counts(&few).into_iter().zip(counts(&many)) {
            assert!(few >= 3 && many > 3 * few, "{few}, then {many}: longer is more of each");
        }
        // Each pass has each step once, in a new order.
        let of_pass =
            |pass| many.iter().filter(|task| task.pass == pass).map(|task| task.step).collect::<Vec<_>>();
        let orders: Vec<Vec<usize>> = (1..20).map(of_pass).collect();
        assert!(orders.iter().all(|order| order.len() == 3), "{orders:?}");
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
        // If one step would take too long, a shorter one is chosen.
        let (last, _) = play(Agenda::new(2, Some(25.0), 1), &[10.0, 2.0]);
        assert_eq!(last.iter().filter(|task| task.step == 0).count(), 2);
        assert!(last.iter().filter(|task| task.step == 1).count() >= 2);
    }

    #[test]
    fn what_failed_does_not_come_again() {
        let mut agenda = Agenda::new(2, Some(100.0), 1);
        assert_eq!(agenda.next(0.0), Some(Task { step: 0, pass: 1 }));
        agenda.retire(0);
        let rest: Vec<usize> =
            (1..10).filter_map(|second| agenda.next(f64::from(second))).map(|t| t.step).collect();
        assert_eq!(rest, [1; 9]);
        agenda.retire(1);
        assert_eq!(agenda.next(20.0), None);
    }

    #[test]
    fn the_time_to_go_follows_from_what_was_run() {
        let mut agenda = Agenda::new(4, None, 1);
        assert_eq!((agenda.next(0.0).map(|t| t.step), agenda.left_s(0.0)), (Some(0), None));
        agenda.took(0, 10.0);
        agenda.next(10.0);
        assert_eq!(agenda.left_s(10.0), Some(30.0), "the one under way and two more");
        agenda.took(1, 20.0);
        agenda.next(30.0);
        assert_eq!(agenda.left_s(30.0), Some(30.0));
        assert_eq!(Agenda::new(4, Some(3600.0), 1).left_s(600.0), Some(3000.0));
    }
}
