//! Lists the latest records.

use thalweg_flow::FlowRecord;

use super::{Query, Scanned, scan, tasks};
use crate::block::number;
use crate::dataset::View;
use crate::error::StoreError;
use crate::rows::{Rows, Task};
use thalweg_flow::fields::Field;

/// The order of a list: by end, then by the other fields that differ.
pub(super) fn order(record: &FlowRecord) -> impl Ord + use<> {
    (record.counters.last_ns, record.counters.first_ns, record.key, record.counters.bytes, record.end_reason)
}

/// The latest `count` records of a query by the end of the flow, in ascending order.
pub fn list(view: &View, query: &Query, count: usize) -> Result<(Vec<FlowRecord>, Scanned), StoreError> {
    if count == 0 {
        return Ok((Vec::new(), Scanned::default()));
    }
    // The latest first, so that threads soon know what is too early.
    let mut tasks = tasks(view);
    tasks.sort_by_key(|task| std::cmp::Reverse(latest(task)));
    let (parts, scanned) = scan(view, query, tasks, Vec::new, |found: &mut Vec<FlowRecord>, rows| {
        if found.len() >= count
            && found.first().is_some_and(|first| first.counters.last_ns > latest(rows.task))
        {
            return Ok(());
        }
        let new = latest_rows(rows, count)?;
        found.extend(new);
        found.sort_by_cached_key(order);
        found.drain(..found.len().saturating_sub(count));
        Ok(())
    })?;
    let mut found: Vec<FlowRecord> = parts.into_iter().flatten().collect();
    found.sort_by_cached_key(order);
    found.drain(..found.len().saturating_sub(count));
    Ok((found, scanned))
}

/// The latest end of a flow in a row group. Batches are unordered and come first.
fn latest(task: &Task) -> u64 {
    match task {
        Task::Group(file, number) => file.row_groups[*number].to_ns,
        Task::Batch(_) => u64::MAX,
    }
}

/// The latest `count` selected rows, and all that end at the same time as the earliest of them.
fn latest_rows(rows: &mut Rows<'_>, count: usize) -> Result<Vec<FlowRecord>, StoreError> {
    rows.need(&[Field::FlowEnd])?;
    let ends = rows.block().wide(Field::FlowEnd)?;
    let selected = rows.selected.as_deref();
    let mut places: Vec<usize> =
        (0..rows.len()).filter(|row| selected.is_none_or(|selected| selected[*row])).collect();
    if places.len() > count {
        let place = places.len() - count;
        places.select_nth_unstable_by_key(place, |row| ends[*row]);
        let least = ends[places[place]];
        places.retain(|row| ends[*row] >= least);
    }
    if let Task::Batch(batch) = rows.task {
        return Ok(places.into_iter().map(|row| batch.records[rows.place(row)]).collect());
    }
    places.sort_unstable();
    rows.pick(places.into_iter().map(number).collect());
    rows.need(Field::STORED)?;
    (0..rows.len()).map(|row| rows.block().record(row)).collect()
}
