//! The three problems, each with and without a farm.

use super::{Options, Problem};
use std::hint::black_box;
use std::time::Instant;
use thalweg_base::{XorShift64Star, mix64};
use thalweg_exec::{Divide, Divided, ExecError, divide_and_conquer};

/// Up to this many numbers are sorted without being divided into tasks.
pub const SORT_ALONE: usize = 4096;
/// Fibonacci numbers up to this index are computed without being divided into tasks.
pub const FIBONACCI_ALONE: u32 = 20;
/// Rows of the product per task.
const TASK_ROWS: usize = 8;
/// Up to this many numbers are sorted by insertion.
const INSERT: usize = 24;

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solved {
    pub(super) elapsed_s: f64,
    /// Equal for runs with the same result.
    pub(super) answer: u64,
    pub(super) tasks: u64,
}

/// Solves a problem; without a farm if `workers` is 0.
pub(super) fn solve(problem: Problem, options: &Options, workers: usize) -> Result<Solved, ExecError> {
    match problem {
        Problem::MatrixProduct => product(options, workers),
        Problem::Quicksort => sort(options, workers),
        Problem::Fibonacci => sequence(options.fibonacci, workers),
    }
}

/// The farm's time and tasks, or those of `alone`.
fn timed<D: Divide>(
    work: &D,
    tasks: Vec<D::Task>,
    workers: usize,
    alone: impl FnOnce(Vec<D::Task>) -> D::Scratch,
) -> Result<(f64, Vec<D::Scratch>, u64), ExecError> {
    if workers == 0 {
        let start = Instant::now();
        let scratch = black_box(alone(tasks));
        return Ok((start.elapsed().as_secs_f64(), vec![scratch], 0));
    }
    let Divided { elapsed, scratches, tasks, .. } = divide_and_conquer(work, tasks, workers)?;
    Ok((elapsed.as_secs_f64(), scratches, tasks.iter().sum()))
}

struct Product {
    rows: usize,
    left: Vec<f32>,
    /// Stored by column, so that both matrices are read in order.
    right: Vec<f32>,
}

impl Product {
    fn compute(&self, first: usize, out: &mut [f32]) {
        for (row, out) in (first..).zip(out.chunks_mut(self.rows)) {
            let left = &self.left[row * self.rows..][..self.rows];
            for (right, cell) in self.right.chunks(self.rows).zip(out) {
                *cell = left.iter().zip(right).map(|(a, b)| a * b).sum();
            }
        }
    }
}

/// The index of the first row and the rows of the product to fill in.
struct Rows<'m>(usize, &'m mut [f32]);

/// [`Product`] with tasks that borrow the rows they fill.
struct ProductOf<'m>(&'m Product, std::marker::PhantomData<fn() -> &'m mut [f32]>);

impl<'m> Divide for ProductOf<'m> {
    type Task = Rows<'m>;
    type Scratch = ();

    fn work(&self, Rows(first, out): Rows<'m>, _: &mut Vec<Rows<'m>>, (): &mut ()) {
        self.0.compute(first, out);
    }
}

fn product(options: &Options, workers: usize) -> Result<Solved, ExecError> {
    let rows = options.matrix_rows.max(1);
    let mut rng = XorShift64Star::new(options.seed);
    // Small integers, whose sums are exact in any order.
    let mut matrix = || (0..rows * rows).map(|_| rng.below(16) as f32).collect::<Vec<f32>>();
    let (left, right) = (matrix(), matrix());
    let problem = Product { rows, left, right };
    let mut out = vec![0.0f32; rows * rows];
    let tasks = out.chunks_mut(TASK_ROWS * rows).enumerate().map(|(nth, rows)| Rows(nth * TASK_ROWS, rows));
    let tasks: Vec<Rows<'_>> = tasks.collect();
    let work = ProductOf(&problem, std::marker::PhantomData);
    let (elapsed_s, _, tasks) = timed(&work, tasks, workers, |tasks| {
        tasks.into_iter().for_each(|Rows(at, out)| problem.compute(at, out))
    })?;
    let answer = out.iter().fold(0, |sum, value| mix64(sum ^ u64::from(value.to_bits())));
    Ok(Solved { elapsed_s, answer, tasks })
}

struct Sort<'n>(std::marker::PhantomData<fn() -> &'n mut [u32]>);

impl<'n> Divide for Sort<'n> {
    type Task = &'n mut [u32];
    type Scratch = ();

    fn work(&self, numbers: Self::Task, parts: &mut Vec<Self::Task>, (): &mut ()) {
        if numbers.len() <= SORT_ALONE {
            return quicksort(numbers);
        }
        let middle = partition(numbers);
        let (smaller, rest) = numbers.split_at_mut(middle);
        // The pivot is in its final place.
        parts.extend([smaller, &mut rest[1..]]);
    }
}

fn quicksort(mut numbers: &mut [u32]) {
    while numbers.len() > INSERT {
        let middle = partition(numbers);
        let (smaller, rest) = numbers.split_at_mut(middle);
        quicksort(smaller);
        numbers = &mut rest[1..];
    }
    for at in 1..numbers.len() {
        let mut place = at;
        while place > 0 && numbers[place - 1] > numbers[place] {
            numbers.swap(place - 1, place);
            place -= 1;
        }
    }
}

/// Moves numbers smaller than a pivot before it; returns the pivot's index. Needs at least three numbers.
fn partition(numbers: &mut [u32]) -> usize {
    let last = numbers.len() - 1;
    let mut three = [0, last / 2, last];
    three.sort_unstable_by_key(|at| numbers[*at]);
    numbers.swap(three[1], last);
    let pivot = numbers[last];
    let mut place = 0;
    for at in 0..last {
        let is_smaller = numbers[at] < pivot;
        numbers.swap(place, at);
        place += usize::from(is_smaller);
    }
    numbers.swap(place, last);
    place
}

fn sort(options: &Options, workers: usize) -> Result<Solved, ExecError> {
    let mut rng = XorShift64Star::new(options.seed);
    let mut numbers: Vec<u32> = (0..options.numbers).map(|_| rng.below(u32::MAX)).collect();
    let tasks = std::iter::once(&mut numbers[..]).collect();
    let (elapsed_s, _, tasks) =
        timed(&Sort(std::marker::PhantomData), tasks, workers, |tasks: Vec<&mut [u32]>| {
            tasks.into_iter().for_each(quicksort);
        })?;
    // Unsorted numbers get an answer that no other run has.
    let answer = numbers.iter().fold(0, |sum, value| mix64(sum ^ u64::from(*value)));
    let answer = if numbers.is_sorted() { answer } else { answer ^ mix64(workers as u64 + 1) };
    Ok(Solved { elapsed_s, answer, tasks })
}

struct Sequence;

impl Divide for Sequence {
    type Task = u32;
    type Scratch = u64;

    fn work(&self, place: u32, parts: &mut Vec<u32>, sum: &mut u64) {
        if place <= FIBONACCI_ALONE {
            *sum += fibonacci(place);
        } else {
            parts.extend([place - 1, place - 2]);
        }
    }
}

/// Computed by its definition, which is the work to measure.
fn fibonacci(place: u32) -> u64 {
    if black_box(place) < 2 { place.into() } else { fibonacci(place - 1) + fibonacci(place - 2) }
}

fn sequence(place: u32, workers: usize) -> Result<Solved, ExecError> {
    let alone = |tasks: Vec<u32>| tasks.into_iter().map(fibonacci).sum();
    let (elapsed_s, sums, tasks) = timed(&Sequence, vec![place], workers, alone)?;
    Ok(Solved { elapsed_s, answer: sums.iter().sum(), tasks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let sequence_of: Vec<u64> = (0..12).map(fibonacci).collect();
        assert_eq!(sequence_of, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]);
        assert_eq!(sequence(30, 2).unwrap().answer, 832_040);
        for numbers in [vec![], vec![1], (0..500).rev().collect(), vec![7; 300], vec![3, 1, 2, 3, 1, 2, 9, 0]]
        {
            let (mut ours, mut theirs) = (numbers.clone(), numbers);
            quicksort(&mut ours);
            theirs.sort_unstable();
            assert_eq!(ours, theirs);
        }
        let mut out = vec![0.0; 4];
        // The right matrix is [[5, 6], [7, 8]], stored by column.
        let two = Product { rows: 2, left: vec![1.0, 2.0, 3.0, 4.0], right: vec![5.0, 7.0, 6.0, 8.0] };
        two.compute(0, &mut out);
        assert_eq!(out, [19.0, 22.0, 43.0, 50.0]);
    }
}
