//! Answers: row groups and batches of records are dealt out to threads; each thread sums up what it gets, and the sums are
//! joined at the end.
//!
//! A query reads only the columns that it and its filter name, and skips row groups that the time window or the filter rule
//! out by the statistics in the footer.

mod aggregate;
mod graph;
mod key;
mod list;
mod table;
mod top;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_flow::SAMPLING_UNKNOWN;

use crate::block::Block;
use crate::dataset::{Batch, Skipped, View, Window};
use crate::error::StoreError;
use crate::file::FlowFile;
use crate::filter::Filter;
use thalweg_flow::fields::Field;

pub use aggregate::Sums;
pub use graph::{Graph, Series, graph};
pub use key::{Key, KeyValue};
pub use list::list;
pub use top::{Top, TopRow, top};

/// By what records are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Packets, of both directions.
    Packets,
    /// Bytes, of both directions.
    Bytes,
    /// Records. A flow that was reported several times counts as often.
    Flows,
}

/// Which records, and how hard to work.
#[derive(Clone, Debug)]
pub struct Query {
    /// Ends of the flows.
    pub window: Window,
    /// Which of them.
    pub filter: Filter,
    /// Threads, at least one.
    pub threads: usize,
    /// Distinct keys that are remembered by a thread; records of further ones are summed up together.
    pub keys_max: usize,
    /// Counters as they were counted. Else those of sampled traffic are multiplied by the record's sampling interval.
    pub raw: bool,
}

impl Query {
    /// All records of a window that pass a filter, with as many threads as there are cores.
    pub fn new(window: Window, filter: Filter) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { window, filter, threads, keys_max: 8 << 20, raw: false }
    }
}

/// What a query had to do, and what it could not read.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// Files of the window.
    pub files: u64,
    /// Row groups read.
    pub row_groups_read: u64,
    /// Row groups ruled out by their statistics.
    pub row_groups_pruned: u64,
    /// Records looked at.
    pub records: u64,
    /// Records among them that wait to be written.
    pub pending_records: u64,
    /// Flows among them that are in a cache.
    pub cached_records: u64,
    /// Files that were left out, in whole or in part.
    pub skipped: Skipped,
    /// Some records are of sampled traffic.
    pub sampled: bool,
    /// Records whose exporter did not say how it samples: their counters are taken as they are.
    pub sampling_unknown: u64,
}

impl Scanned {
    fn join(&mut self, other: Scanned) {
        self.row_groups_read += other.row_groups_read;
        self.row_groups_pruned += other.row_groups_pruned;
        self.records += other.records;
        self.pending_records += other.pending_records;
        self.cached_records += other.cached_records;
        self.skipped.join(other.skipped);
        self.sampled |= other.sampled;
        self.sampling_unknown += other.sampling_unknown;
    }
}

/// A piece of work.
#[derive(Clone)]
enum Task {
    Group(Arc<FlowFile>, usize),
    Batch(Batch),
}

/// Rows of a row group or a batch; columns are loaded as they are needed.
pub(crate) struct Rows<'a> {
    task: &'a Task,
    block: Block,
    /// Counters are not multiplied.
    raw: bool,
    /// Which rows a query is about; `None` is all.
    selected: Option<Vec<bool>>,
}

impl<'a> Rows<'a> {
    fn new(task: &'a Task, raw: bool) -> Self {
        let rows = match task {
            Task::Group(file, number) => file.row_groups[*number].rows,
            Task::Batch(batch) => batch.records.len(),
        };
        Self { task, block: Block::new(rows), raw, selected: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.block.rows
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Loads columns.
    pub(crate) fn need(&mut self, ids: &[Field]) -> Result<(), StoreError> {
        match self.task {
            Task::Group(file, number) => file.load(*number, ids, &mut self.block),
            Task::Batch(batch) => {
                let missing: Vec<Field> = ids.iter().copied().filter(|id| !self.block.has(*id)).collect();
                self.block.take(Block::of_columns(&missing, batch.records.iter()));
                Ok(())
            }
        }
    }

    /// Whether they are in no file.
    fn is_live(&self) -> bool {
        matches!(self.task, Task::Batch(_))
    }

    /// Whether a column is known to be NULL throughout, without loading it.
    fn is_absent(&self, id: Field) -> bool {
        matches!(self.task, Task::Group(file, number) if file.is_absent(*number, id))
    }

    /// Finds the rows of a query; `false` if there are none.
    fn select(&mut self, query: &Query) -> Result<bool, StoreError> {
        let inside = match self.task {
            Task::Group(file, number) => {
                let group = file.row_groups[*number];
                query.window.covers(group.from_ns, group.to_ns)
            }
            Task::Batch(_) => query.window == Window::ALL,
        };
        if !inside {
            self.need(&[Field::FlowEnd])?;
            let ends = self.block.wide(Field::FlowEnd)?;
            let selected: Vec<bool> = ends.iter().map(|end| query.window.contains(*end)).collect();
            if !selected.contains(&true) {
                return Ok(false);
            }
            self.selected = Some(selected);
        }
        if !query.filter.is_any() {
            let mut matches = query.filter.expression.evaluate(self)?;
            if let Some(selected) = &self.selected {
                matches.iter_mut().zip(selected).for_each(|(row, inside)| *row &= inside);
            }
            if !matches.contains(&true) {
                return Ok(false);
            }
            self.selected = Some(matches);
        }
        Ok(true)
    }

    /// Whether any row may be of sampled traffic.
    fn may_be_sampled(&self) -> bool {
        match self.task {
            Task::Group(file, number) => file.bounds(*number, Field::SamplingInterval) != Some((1, 1)),
            Task::Batch(batch) => batch.records.iter().any(|record| record.sampling_interval != 1),
        }
    }

    /// Loads the sampling intervals by which counters are to be multiplied, if any of them is not 1.
    pub(crate) fn need_scale(&mut self) -> Result<(), StoreError> {
        if self.raw || !self.may_be_sampled() { Ok(()) } else { self.need(&[Field::SamplingInterval]) }
    }

    /// Values of a counter, multiplied by the sampling intervals if [`Self::need_scale`] found any.
    pub(crate) fn scaled<'v>(&self, counters: Cow<'v, [u64]>) -> Result<Cow<'v, [u64]>, StoreError> {
        if self.raw || !self.block.has(Field::SamplingInterval) {
            return Ok(counters);
        }
        let intervals = self.block.numbers(Field::SamplingInterval)?;
        let mut counters = counters.into_owned();
        let rows = counters.iter_mut().zip(intervals);
        rows.for_each(|(counter, interval)| *counter = counter.saturating_mul(u64::from(*interval).max(1)));
        Ok(counters.into())
    }

    /// Notes what selected rows say of their sampling.
    fn note_sampling(&mut self, scanned: &mut Scanned) -> Result<(), StoreError> {
        if !self.may_be_sampled() {
            return Ok(());
        }
        self.need(&[Field::SamplingInterval])?;
        let intervals = self.block.numbers(Field::SamplingInterval)?.iter();
        let is_selected = |row: usize| self.selected.as_ref().is_none_or(|selected| selected[row]);
        for (_, interval) in intervals.enumerate().filter(|(row, _)| is_selected(*row)) {
            scanned.sampled |= *interval > 1;
            scanned.sampling_unknown += u64::from(*interval == SAMPLING_UNKNOWN);
        }
        Ok(())
    }
}

/// Lets threads, each with a state of its own, see the rows of a query. `visit` changes its state only once it has all
/// columns it needs, so that a damaged row group leaves no half of itself behind.
fn scan<S: Send>(
    view: &View,
    query: &Query,
    mut tasks: Vec<Task>,
    make: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, &mut Rows<'_>) -> Result<(), StoreError> + Sync,
) -> Result<(Vec<S>, Scanned), StoreError> {
    let mut scanned =
        Scanned { files: view.files.len() as u64, skipped: view.skipped.clone(), ..Scanned::default() };
    let all = tasks.len();
    tasks.retain(|task| match task {
        Task::Group(file, number) => {
            let group = file.row_groups[*number];
            query.window.touches(group.from_ns, group.to_ns)
                && query.filter.expression.may_match(&|id| file.bounds(*number, id))
        }
        Task::Batch(_) => true,
    });
    scanned.row_groups_pruned = (all - tasks.len()) as u64;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut state = make();
        let mut scanned = Scanned::default();
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut rows = Rows::new(task, query.raw);
            let result = rows.select(query).and_then(|any| {
                if any {
                    rows.note_sampling(&mut scanned)?;
                    visit(&mut state, &mut rows)
                } else {
                    Ok(())
                }
            });
            scanned.records += rows.len() as u64;
            match (result, task) {
                (Ok(()), Task::Group(..)) => scanned.row_groups_read += 1,
                (Ok(()), Task::Batch(batch)) => {
                    let count = match batch.is_cached {
                        true => &mut scanned.cached_records,
                        false => &mut scanned.pending_records,
                    };
                    *count += batch.records.len() as u64;
                }
                (Err(StoreError::Unreadable { path, what }), _) => scanned.skipped.add(path, what),
                (Err(error), _) => return Err(error),
            }
        }
        Ok((state, scanned))
    };
    let threads = query.threads.clamp(1, tasks.len().max(1));
    let results: Vec<Result<(S, Scanned), StoreError>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut results = vec![work()];
        results.extend(others.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(StoreError::Query("a thread of the query failed".into())))
        }));
        results
    });
    let mut states = Vec::with_capacity(threads);
    for result in results {
        let (state, part) = result?;
        states.push(state);
        scanned.join(part);
    }
    Ok((states, scanned))
}

/// All row groups and batches of a view.
fn tasks(view: &View) -> Vec<Task> {
    let groups = view
        .files
        .iter()
        .flat_map(|file| (0..file.row_groups.len()).map(move |number| Task::Group(file.clone(), number)));
    groups.chain(view.batches.iter().cloned().map(Task::Batch)).collect()
}

#[cfg(test)]
mod tests;
