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
    /// What of the window there are records for: its beginning, and the nanosecond after its end. A step that is not wholly
    /// inside has less than it would have.
    pub covered: (u64, u64),
    /// The largest keys, the largest first, then all others, if there are any.
    pub series: Vec<Series>,
    /// All records.
    pub total: Sums,
    /// Those of them that are in no file yet.
    pub live: Sums,
    /// What was done for it.
    pub scanned: Scanned,
}

impl Graph {
    /// The beginnings of the steps, and whether there are records for the whole of each: of the first and the last, as a rule,
    /// only for a part.
    pub fn steps(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let count = self.series.iter().map(|series| series.steps.len()).max().unwrap_or(0) as u64;
        (0..count).map(|step| {
            let from_ns = self.from_ns.saturating_add(step.saturating_mul(self.step_ns));
            let to_ns = from_ns.saturating_add(self.step_ns);
            (from_ns, from_ns >= self.covered.0 && to_ns <= self.covered.1)
        })
    }
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
        return Err(StoreError::Query(format!("{steps} steps are too many: choose a longer --step")));
    }
    let (summed, scanned) = aggregate(view, query, Grouping { keys, steps: Some((from_ns, step_ns)) })?;
    // Steps are laid out for the largest keys alone: there may be millions of others.
    let mut totals: HashMap<u128, Sums> = HashMap::new();
    summed.each(|packed, sums| totals.entry(summed.step(packed).1).or_default().add(sums));
    let count = count.max(1);
    let mut largest: Vec<(u128, u64)> = totals.iter().map(|(key, sums)| (*key, sums.of(by))).collect();
    if largest.len() > count {
        largest.select_nth_unstable_by(count - 1, |a, b| b.1.cmp(&a.1));
        let least = largest[count - 1].1;
        largest.retain(|(_, value)| *value >= least);
    }
    let mut named: Vec<(u128, Vec<KeyValue>, u64)> =
        largest.into_iter().map(|(packed, value)| (packed, summed.values(packed), value)).collect();
    named.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(&b.1)));
    named.truncate(count);
    let places: HashMap<u128, usize> = named.iter().map(|(packed, ..)| *packed).zip(0..).collect();
    let mut series: Vec<Series> = named.into_iter().map(|(_, key, _)| empty(Some(key), steps)).collect();
    let mut others = empty(None, steps);
    summed.each(|packed, sums| {
        let (step, key) = summed.step(packed);
        let line = match places.get(&key) {
            Some(place) => &mut series[*place],
            None => &mut others,
        };
        line.total.add(sums);
        if let Some(place) = line.steps.get_mut(step as usize) {
            place.add(sums);
        }
    });
    others.total.add(summed.rest);
    if others.total.flows > 0 {
        series.push(others);
    }
    let covered = (window.from_ns, window.to_ns);
    Ok(Graph { from_ns, step_ns, covered, series, total: summed.total, live: summed.live, scanned })
}

fn empty(key: Option<Vec<KeyValue>>, steps: u64) -> Series {
    Series { key, total: Sums::default(), steps: vec![Sums::default(); steps as usize] }
}

/// The part of a window in which there are records.
fn extent(view: &View, window: Window) -> Option<Window> {
    let files = view.files.iter().filter_map(|file| file.span());
    let batches = view.batches.iter().flat_map(|batch| batch.records.iter());
    let batches = batches.map(|record| (record.counters.last_ns, record.counters.last_ns));
    let (from, to) = files.chain(batches).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let part = Window { from_ns: from.max(window.from_ns), to_ns: to.saturating_add(1).min(window.to_ns) };
    (part.from_ns < part.to_ns).then_some(part)
}
