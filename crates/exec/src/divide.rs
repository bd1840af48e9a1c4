//! A farm with feedback, for divide and conquer.
//!
//! Workers take tasks from one stack. A worker either does a task or divides it; then it continues with the last
//! part and puts the others on the stack, for idle workers. The run ends when the stack is empty and no worker has
//! a task.
//!
//! **Bounds.** A worker takes the newest task first and so goes deep before it goes wide: the stack holds at most
//! the tasks that the run began with, plus, for each worker, the parts of one task at each depth. **No deadlock:**
//! no worker waits for room, and each part put on the stack, and the end of the run, wakes workers that wait for a
//! task.

use crate::options::THREADS_MAX;
use crate::report::ExecError;
use crate::worker::panic_message;
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// Work that can be divided.
pub trait Divide: Sync {
    type Task: Send;
    /// A worker's own state; the caller merges all of them after the run.
    type Scratch: Default + Send;

    /// Does a task, or divides it: pushes the parts on `parts`, which is empty at the call.
    fn work(&self, task: Self::Task, parts: &mut Vec<Self::Task>, scratch: &mut Self::Scratch);
}

/// The result of [`divide_and_conquer`].
#[derive(Debug)]
pub struct Divided<S> {
    /// From the first worker's start to the last one's end.
    pub elapsed: Duration,
    /// One for each worker.
    pub scratches: Vec<S>,
    /// Tasks that each worker took up, divided ones included.
    pub tasks: Vec<u64>,
    /// The most tasks that ever waited.
    pub stack_high_water: usize,
}

/// Runs tasks, and all parts that they are divided into, on `workers` threads.
///
/// # Errors
///
/// Fails if `workers` is zero or too large, if a thread cannot be started, or if a task panics; then the other
/// workers stop too.
pub fn divide_and_conquer<D: Divide>(
    work: &D,
    tasks: Vec<D::Task>,
    workers: usize,
) -> Result<Divided<D::Scratch>, ExecError> {
    if !(1..=THREADS_MAX).contains(&workers) {
        return Err(ExecError::Workers(workers));
    }
    let farm = Farm { work, waiting: Mutex::new(Waiting::of(tasks)), changed: Condvar::new() };
    let start = Instant::now();
    let done: Vec<(D::Scratch, u64)> = thread::scope(|scope| {
        let mut handles = Vec::with_capacity(workers);
        for index in 0..workers {
            let farm = &farm;
            let builder = thread::Builder::new().name(format!("worker-{index}"));
            match builder.spawn_scoped(scope, move || farm.worker(index)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    farm.give_up(ExecError::Spawn(error));
                    break;
                }
            }
        }
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    let elapsed = start.elapsed();
    let waiting = farm.waiting.into_inner();
    if let Some(error) = waiting.error {
        return Err(error);
    }
    let (scratches, tasks) = done.into_iter().unzip();
    Ok(Divided { elapsed, scratches, tasks, stack_high_water: waiting.high_water })
}

struct Farm<'w, D: Divide> {
    work: &'w D,
    waiting: Mutex<Waiting<D::Task>>,
    changed: Condvar,
}

struct Waiting<T> {
    stack: Vec<T>,
    /// Workers that have a task, which they may still divide.
    at_work: usize,
    high_water: usize,
    error: Option<ExecError>,
}

impl<T> Waiting<T> {
    fn of(stack: Vec<T>) -> Self {
        Self { high_water: stack.len(), stack, at_work: 0, error: None }
    }
}

impl<D: Divide> Farm<'_, D> {
    fn worker(&self, index: usize) -> (D::Scratch, u64) {
        let (mut scratch, mut parts, mut tasks) = (D::Scratch::default(), Vec::new(), 0);
        while let Some(task) = self.take() {
            let mut next = Some(task);
            while let Some(task) = next.take() {
                tasks += 1;
                let work = AssertUnwindSafe(|| self.work.work(task, &mut parts, &mut scratch));
                if let Err(panic) = catch_unwind(work) {
                    let (at, message) = ("a task".to_owned(), panic_message(&*panic));
                    self.give_up(ExecError::Panicked { role: "worker", index, at, message });
                    return (scratch, tasks);
                }
                next = parts.pop();
                self.put_back(&mut parts);
            }
            self.rest();
        }
        (scratch, tasks)
    }

    /// The newest task; `None` when no more can come.
    fn take(&self) -> Option<D::Task> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.error.is_some() {
                return None;
            }
            if let Some(task) = waiting.stack.pop() {
                waiting.at_work += 1;
                return Some(task);
            }
            if waiting.at_work == 0 {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    fn put_back(&self, parts: &mut Vec<D::Task>) {
        if parts.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        for part in parts.drain(..) {
            waiting.stack.push(part);
            self.changed.notify_one();
        }
        waiting.high_water = waiting.high_water.max(waiting.stack.len());
    }

    /// Notes that the worker has finished its task.
    fn rest(&self) {
        let mut waiting = self.waiting.lock();
        waiting.at_work -= 1;
        if waiting.at_work == 0 {
            self.changed.notify_all();
        }
    }

    fn give_up(&self, error: ExecError) {
        self.waiting.lock().error.get_or_insert(error);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Adds up the numbers of a range, which is halved until it is short.
    struct Sum {
        /// Tasks that must be in work at the same time before any of them continues.
        together: usize,
        met: AtomicUsize,
    }

    impl Divide for Sum {
        type Task = std::ops::Range<u64>;
        type Scratch = u64;

        fn work(&self, task: Self::Task, parts: &mut Vec<Self::Task>, scratch: &mut u64) {
            assert!(task.end < 1 << 40, "too far");
            if task.end - task.start > 10 {
                let middle = task.start.midpoint(task.end);
                parts.extend([task.start..middle, middle..task.end]);
                return;
            }
            self.met.fetch_add(1, Ordering::SeqCst);
            while self.met.load(Ordering::SeqCst) < self.together {
                thread::yield_now();
            }
            *scratch += task.sum::<u64>();
        }
    }

    fn sum(together: usize) -> Sum {
        Sum { together, met: AtomicUsize::new(0) }
    }

    #[test]
    fn the_sum_is_the_same_with_any_number_of_workers() {
        let mut all_tasks = Vec::new();
        for workers in [1, 2, 3, 8] {
            let done = divide_and_conquer(&sum(0), vec![0..5000, 5000..5001, 7000..9000], workers).unwrap();
            let expected = (0..5001).sum::<u64>() + (7000..9000).sum::<u64>();
            assert_eq!(done.scratches.iter().sum::<u64>(), expected);
            assert_eq!((done.scratches.len(), done.tasks.len()), (workers, workers));
            assert!(done.stack_high_water <= 3 + workers * 10, "{}", done.stack_high_water);
            all_tasks.push(done.tasks.iter().sum::<u64>());
        }
        all_tasks.dedup();
        assert_eq!(all_tasks.len(), 1, "however many workers, the same tasks");
    }

    /// Feedback lets others help with one task: its first parts wait for each other.
    #[test]
    fn parts_of_one_task_are_worked_on_at_the_same_time() {
        let done = divide_and_conquer(&sum(4), std::iter::once(0..1000).collect(), 4).unwrap();
        assert!(done.tasks.iter().all(|tasks| *tasks > 0), "{:?}", done.tasks);
    }

    #[test]
    fn nothing_to_do_and_what_goes_wrong() {
        let none = divide_and_conquer(&sum(0), Vec::new(), 3).unwrap();
        assert_eq!(none.tasks, [0, 0, 0]);
        let error = divide_and_conquer(&sum(0), vec![0..100, 0..1 << 41, 5..9], 3).unwrap_err();
        assert!(error.to_string().contains("panicked in a task: too far"), "{error}");
        let error = divide_and_conquer(&sum(0), Vec::new(), 0).unwrap_err();
        assert!(matches!(error, ExecError::Workers(0)));
    }
}
