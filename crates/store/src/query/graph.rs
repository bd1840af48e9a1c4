//! Traffic over time, in total or by key.

use std::collections::HashMap;

use super::aggregate::{Grouping, aggregate};
use super::{Key, KeyValue, Metric, Query, Scanned, Sums};
use crate::dataset::{View, Window};
use crate::error::StoreError;
use thalweg_text::calendar::SECOND_NS;

/// The most steps of a graph.
const STEPS_MAX: u64 = 100_000;

/// One line of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The values of the keys; `None` for all other records together.
    pub key: Option<Vec<KeyValue>>,
    pub total: Sums,
    /// The sums of each step.
    pub steps: Vec<Sums>,
}

/// Which values of the keys get a line.
#[derive(Clone, Copy, Debug)]
pub enum Lines<'a> {
    /// As many of the largest.
    Largest(usize),
    /// These, in this order.
    These(&'a [Vec<KeyValue>]),
}

/// Traffic by time steps. A record belongs to the step of its last packet.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Beginning of the first step, in nanoseconds since the epoch.
    pub from_ns: u64,
    pub step_ns: u64,
    /// The part of the window with records: its beginning, and the nanosecond after its end. A step that is
    /// only partly inside has smaller sums.
    pub covered: (u64, u64),
    /// The largest keys, largest first, then all others together, if any.
    pub series: Vec<Series>,
    pub total: Sums,
    /// Records that are in no file yet.
    pub live: Sums,
    pub scanned: Scanned,
}

impl Graph {
    /// The beginnings of the steps, each with whether records exist for all of it; the first and last step
    /// are usually partial.
    pub fn steps(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let count = self.series.iter().map(|series| series.steps.len()).max().unwrap_or(0) as u64;
        (0..count).map(|step| {
            let from_ns = self.from_ns.saturating_add(step.saturating_mul(self.step_ns));
            let to_ns = from_ns.saturating_add(self.step_ns);
            (from_ns, from_ns >= self.covered.0 && to_ns <= self.covered.1)
        })
    }
}

/// The approximate number of steps of a graph without a given step length.
const STEPS: u64 = 30;
/// Readable step lengths, in seconds.
const STEP_LENGTHS_S: [u64; 14] =
    [1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800];

impl View {
    /// A readable length that divides what the window has into about thirty steps.
    pub fn readable_step_ns(&self, window: Window) -> u64 {
        let (from, to) = self.summary().span_ns.unwrap_or((0, 0));
        let (from, to) = (from.max(window.from_ns), to.min(window.to_ns));
        let wanted = to.saturating_sub(from) / SECOND_NS / STEPS;
        let fitting = STEP_LENGTHS_S.into_iter().find(|length| *length >= wanted);
        fitting.unwrap_or(wanted) * SECOND_NS
    }
}

/// Sums up the records of a query by steps of `step_ns` and, if there are keys, by some of their values.
pub fn graph(
    view: &View,
    query: &Query,
    keys: &[Key],
    by: Metric,
    lines: Lines<'_>,
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
    // Only the largest keys get steps, since there may be millions of others.
    let mut totals: HashMap<u128, Sums> = HashMap::new();
    summed.each(|packed, sums| totals.entry(summed.step(packed).1).or_default().add(sums));
    let named = match lines {
        Lines::Largest(count) => largest(&totals, |packed| summed.values(packed), by, count.max(1)),
        Lines::These(values) => {
            let mut of_values: Vec<_> =
                totals.keys().map(|packed| (*packed, summed.values(*packed))).collect();
            let place = |key: &Vec<KeyValue>| values.iter().position(|value| value == key);
            of_values.retain(|(_, key)| place(key).is_some());
            of_values.sort_by_key(|(_, key)| place(key));
            of_values
        }
    };
    let places: HashMap<u128, usize> = named.iter().map(|(packed, _)| *packed).zip(0..).collect();
    let mut series: Vec<Series> = named.into_iter().map(|(_, key)| empty(Some(key), steps)).collect();
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

/// The `count` largest keys, largest first.
fn largest(
    totals: &HashMap<u128, Sums>,
    values: impl Fn(u128) -> Vec<KeyValue>,
    by: Metric,
    count: usize,
) -> Vec<(u128, Vec<KeyValue>)> {
    let mut largest: Vec<(u128, u64)> = totals.iter().map(|(key, sums)| (*key, sums.of(by))).collect();
    if largest.len() > count {
        largest.select_nth_unstable_by(count - 1, |a, b| b.1.cmp(&a.1));
        let least = largest[count - 1].1;
        largest.retain(|(_, value)| *value >= least);
    }
    let mut named: Vec<_> =
        largest.into_iter().map(|(packed, value)| (value, packed, values(packed))).collect();
    named.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.2.cmp(&b.2)));
    named.truncate(count);
    named.into_iter().map(|(_, packed, values)| (packed, values)).collect()
}

fn empty(key: Option<Vec<KeyValue>>, steps: u64) -> Series {
    Series { key, total: Sums::default(), steps: vec![Sums::default(); steps as usize] }
}

/// The part of a window with records.
fn extent(view: &View, window: Window) -> Option<Window> {
    let files = view.files.iter().filter_map(|file| file.span());
    let batches = view.batches.iter().flat_map(|batch| batch.records.iter());
    let batches = batches.map(|record| (record.counters.last_ns, record.counters.last_ns));
    let (from, to) = files.chain(batches).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let part = Window { from_ns: from.max(window.from_ns), to_ns: to.saturating_add(1).min(window.to_ns) };
    (part.from_ns < part.to_ns).then_some(part)
}
