//! Traffic over time, in all or by key.

use std::collections::HashMap;

use super::aggregate::{Grouping, aggregate};
use super::{Key, KeyValue, Metric, Query, Scanned, Sums};
use crate::dataset::{View, Window};
use crate::error::StoreError;

/// Steps of a graph, at most.
const STEPS_MAX: u64 = 100_000;

/// One line of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The values of the keys; none for all other records together.
    pub key: Option<Vec<KeyValue>>,
    /// The whole of it.
    pub total: Sums,
    /// What belongs to each step.
    pub steps: Vec<Sums>,
}

/// Traffic by steps of time. A record belongs to the step in which its last packet came.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Beginning of the first step, nanoseconds since the epoch.
    pub from_ns: u64,
    /// Length of a step, nanoseconds.
    pub step_ns: u64,
    /// The largest keys, the largest first, then all others, if there are any.
    pub series: Vec<Series>,
    /// All records.
    pub total: Sums,
    /// What was done for it.
    pub scanned: Scanned,
}

/// Sums up the records of a query by steps of `step_ns` and, if there are keys, by the `count` largest of these.
pub fn graph(
    view: &View,
    query: &Query,
    keys: &[Key],
    by: Metric,
    count: usize,
    step_ns: u64,
) -> Result<Graph, StoreError> {
    let Some(window) = extent(view, query.window) else { return Ok(Graph { step_ns, ..Graph::default() }) };
    let step_ns = step_ns.max(1);
    let from_ns = window.from_ns / step_ns * step_ns;
    let steps = (window.to_ns - from_ns).div_ceil(step_ns);
    if steps > STEPS_MAX {
        return Err(StoreError::Query(format!("{steps} steps are too many: ask for longer ones")));
    }
    let (groups, scanned) = aggregate(view, query, Grouping { keys, steps: Some((from_ns, step_ns)) })?;
    let mut by_key: HashMap<Vec<KeyValue>, Series> = HashMap::new();
    for (group, sums) in groups.iter() {
        let (step, key) = groups.key(group);
        let series = by_key.entry(key.clone()).or_insert_with(|| empty(Some(key), steps));
        series.total.add(sums);
        if let Some(place) = series.steps.get_mut(step as usize) {
            place.add(sums);
        }
    }
    let mut series: Vec<Series> = by_key.into_values().collect();
    series.sort_by(|a, b| b.total.of(by).cmp(&a.total.of(by)).then_with(|| a.key.cmp(&b.key)));
    let mut others = empty(None, steps);
    for small in series.drain(count.max(1).min(series.len())..) {
        others.total.add(small.total);
        others.steps.iter_mut().zip(small.steps).for_each(|(all, one)| all.add(one));
    }
    others.total.add(groups.rest());
    if others.total.flows > 0 {
        series.push(others);
    }
    Ok(Graph { from_ns, step_ns, series, total: groups.total, scanned })
}

fn empty(key: Option<Vec<KeyValue>>, steps: u64) -> Series {
    Series { key, total: Sums::default(), steps: vec![Sums::default(); steps as usize] }
}

/// The part of a window in which there are records.
fn extent(view: &View, window: Window) -> Option<Window> {
    let files = view.files.iter().filter_map(|file| file.span());
    let batches = view.batches.iter().flat_map(|batch| batch.iter());
    let batches = batches.map(|record| (record.counters.last_ns, record.counters.last_ns));
    let (from, to) = files.chain(batches).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let part = Window { from_ns: from.max(window.from_ns), to_ns: to.saturating_add(1).min(window.to_ns) };
    (part.from_ns < part.to_ns).then_some(part)
}
