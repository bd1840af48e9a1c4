//! Queries: row groups and batches of records are distributed over threads; each thread sums up its share,
//! and the sums are joined at the end.
//!
//! A query reads only the columns that it and its filter name, and skips row groups that the statistics in
//! the footer exclude by time or filter.

mod aggregate;
mod answer;
pub mod clickhouse;
mod dedup;
mod graph;
mod key;
mod list;
mod parts;
pub mod received;
mod sums;
mod table;
mod top;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_flow::SAMPLING_UNKNOWN;

use crate::block::Spare;
use crate::dataset::{Rolled, Skipped, View, Window};
use crate::error::StoreError;
use crate::filter::Filter;
use crate::rows::{Rows, Task};
use thalweg_flow::fields::Field;

pub use dedup::Dedup;
pub(crate) use graph::readable_step_ns;
pub use graph::{Graph, Lines, Series, graph, reversed};
pub use key::{Key, KeyValue, RawValue};
pub use list::list;
pub use sums::Sums;
pub use top::{Top, TopRow, top};

/// The value by which results are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Packets of both directions.
    Packets,
    /// Bytes of both directions.
    Bytes,
    /// Records. A flow that was reported several times counts several times.
    Flows,
}

/// The records of a query, and its resources.
#[derive(Clone, Debug)]
pub struct Query {
    /// By the ends of flows.
    pub window: Window,
    pub filter: Filter,
    /// At least one.
    pub threads: usize,
    /// So many distinct keys a thread remembers in any case, and twice as many at most; records of further keys are
    /// summed together.
    pub keys_max: usize,
    /// Do not multiply counters by the record's sampling interval.
    pub raw: bool,
    /// Which records of a flow count that several exporters metered; see [`Query::deduplicated`].
    pub dedup: Option<Arc<Dedup>>,
}

impl Query {
    /// All records of a window that pass a filter, with one thread per core.
    pub fn new(window: Window, filter: Filter) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { window, filter, threads, keys_max: 8 << 20, raw: false, dedup: None }
    }
}

/// The work of a query, and what it could not read.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// Files of the window.
    pub files: u64,
    pub row_groups_read: u64,
    /// Row groups excluded by their statistics.
    pub row_groups_pruned: u64,
    /// Records examined; of rollups, rows.
    pub records: u64,
    /// Examined records that wait to be written.
    pub pending_records: u64,
    /// Examined flows of a cache.
    pub cached_records: u64,
    /// Files that were skipped, wholly or in part.
    pub skipped: Skipped,
    /// Some records are of sampled traffic.
    pub sampled: bool,
    /// Records whose exporter did not describe its sampling: their counters are not multiplied.
    pub sampling_unknown: u64,
    /// Which part rollups have in the answer.
    pub rolled: Rolled,
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

/// Selects the rows of a query; returns `false` if there are none. Events are no traffic, so they are left out unless
/// the filter names them.
fn select(rows: &mut Rows<'_>, query: &Query) -> Result<bool, StoreError> {
    let inside = match rows.task {
        Task::Group(file, number) => {
            let group = file.row_groups[*number];
            query.window.covers(group.from_ns, group.to_ns)
        }
        Task::Batch(_) => query.window == Window::ALL,
    };
    if !inside {
        rows.need(&[Field::FlowEnd])?;
        let ends = rows.block().wide(Field::FlowEnd)?;
        let inside = ends.iter().map(|end| query.window.contains(*end)).collect();
        if !rows.narrow(inside) {
            return Ok(false);
        }
    }
    if !query.filter.names(Field::EventWord) && !rows.is_absent(Field::EventWord) {
        rows.need(&[Field::EventWord])?;
        let flows = rows.block().numbers(Field::EventWord)?.iter().map(|event| *event == 0).collect();
        if !rows.narrow(flows) {
            return Ok(false);
        }
    }
    for condition in query.filter.expression.conditions() {
        let matches = condition.evaluate(rows)?;
        if !rows.narrow(matches) {
            return Ok(false);
        }
    }
    match &query.dedup {
        Some(dedup) => {
            let keeps = dedup.keeps(rows)?;
            Ok(rows.narrow(keeps))
        }
        None => Ok(true),
    }
}

/// Notes the sampling of selected rows.
fn note_sampling(rows: &mut Rows<'_>, scanned: &mut Scanned) -> Result<(), StoreError> {
    if !rows.may_be_sampled() {
        return Ok(());
    }
    rows.need(&[Field::SamplingInterval])?;
    let intervals = rows.block().numbers(Field::SamplingInterval)?.iter();
    let is_selected = |row: usize| rows.selected.as_ref().is_none_or(|selected| selected[row]);
    for (_, interval) in intervals.enumerate().filter(|(row, _)| is_selected(*row)) {
        scanned.sampled |= *interval > 1;
        scanned.sampling_unknown += u64::from(*interval == SAMPLING_UNKNOWN);
    }
    Ok(())
}

/// Visits the rows of a query on several threads, each with its own state. `visit` changes its state only
/// when it has all columns it needs, so a damaged row group is never counted in part.
fn scan<S: Send>(
    view: &View,
    query: &Query,
    mut tasks: Vec<Task>,
    make: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, &mut Rows<'_>) -> Result<(), StoreError> + Sync,
) -> Result<(Vec<S>, Scanned), StoreError> {
    let mut scanned = Scanned {
        files: view.files.len() as u64,
        skipped: view.skipped.clone(),
        rolled: view.rolled,
        ..Scanned::default()
    };
    let all = tasks.len();
    tasks.retain(|task| match task {
        Task::Group(file, number) => {
            let group = file.row_groups[*number];
            query.window.touches(group.from_ns, group.to_ns)
                && query.filter.expression.may_match(file, *number)
        }
        Task::Batch(_) => true,
    });
    scanned.row_groups_pruned = (all - tasks.len()) as u64;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut state = make();
        let mut scanned = Scanned::default();
        let mut spare = Spare::default();
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut rows = Rows::new(task, query.raw, &mut spare);
            scanned.records += rows.len() as u64;
            let result = select(&mut rows, query).and_then(|any| {
                if any {
                    note_sampling(&mut rows, &mut scanned)?;
                    visit(&mut state, &mut rows)
                } else {
                    Ok(())
                }
            });
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

fn tasks(view: &View) -> Vec<Task> {
    let groups = view
        .files
        .iter()
        .flat_map(|file| (0..file.row_groups.len()).map(move |number| Task::Group(file.clone(), number)));
    groups.chain(view.batches.iter().cloned().map(Task::Batch)).collect()
}

#[cfg(test)]
mod tests;
