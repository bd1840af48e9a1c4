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
    /// Without records.
    pub(super) fn empty(step_ns: Option<u64>) -> Self {
        Self { step_ns: step_ns.unwrap_or(SECOND_NS), ..Self::default() }
    }

    /// The values that have lines.
    pub(super) fn named(&self) -> Vec<Vec<KeyValue>> {
        self.series.iter().filter_map(|series| series.key.clone()).collect()
    }

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

/// A readable length that divides this time into about thirty steps.
pub(crate) fn readable_step_ns(part: Window) -> u64 {
    let wanted = part.to_ns.saturating_sub(part.from_ns) / SECOND_NS / STEPS;
    let fitting = STEP_LENGTHS_S.into_iter().find(|length| *length >= wanted);
    fitting.unwrap_or(wanted) * SECOND_NS
}

/// The steps of a graph.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    /// The part of the window with records.
    window: Window,
    pub(super) from_ns: u64,
    pub(super) step_ns: u64,
    pub(super) count: u64,
}

impl Steps {
    /// Of this length, or a readable one. `None` if the window has nothing of the time with records.
    pub(super) fn new(
        span_ns: Option<(u64, u64)>,
        window: Window,
        step_ns: Option<u64>,
    ) -> Result<Option<Self>, StoreError> {
        let Some((from, to)) = span_ns else { return Ok(None) };
        let window =
            Window { from_ns: from.max(window.from_ns), to_ns: to.saturating_add(1).min(window.to_ns) };
        if window.from_ns >= window.to_ns {
            return Ok(None);
        }
        let step_ns = step_ns.unwrap_or_else(|| readable_step_ns(window)).max(1);
        let from_ns = window.from_ns / step_ns * step_ns;
        let count = (window.to_ns - from_ns).div_ceil(step_ns);
        if count > STEPS_MAX {
            return Err(StoreError::Query(format!("{count} steps are too many: choose a longer --step")));
        }
        Ok(Some(Self { window, from_ns, step_ns, count }))
    }

    /// A graph of lines without those that have no records.
    pub(super) fn graph(self, mut series: Vec<Series>, totals: (Sums, Sums), scanned: Scanned) -> Graph {
        series.retain(|series| series.total.flows > 0);
        let Self { window, from_ns, step_ns, .. } = self;
        let (covered, (total, live)) = ((window.from_ns, window.to_ns), totals);
        Graph { from_ns, step_ns, covered, series, total, live, scanned }
    }
}

/// The same graph of the other direction: source and destination, and ingress and egress, exchanged, with lines for the
/// same values.
pub fn reversed(
    view: &View,
    query: &Query,
    keys: &[Key],
    by: Metric,
    answer: &Graph,
) -> Result<Graph, StoreError> {
    let is_deduplicated = query.dedup.is_some();
    let (turned, keys) = query.turned(keys)?;
    let turned = if is_deduplicated { turned.deduplicated(view)? } else { turned };
    graph(view, &turned, &keys, by, Lines::These(&answer.named()), Some(answer.step_ns))
}

impl Query {
    /// The question about the other direction, without deduplication.
    pub(super) fn turned(&self, keys: &[Key]) -> Result<(Self, Vec<Key>), StoreError> {
        let filter = self.filter.reversed();
        let turned: Vec<Key> = keys.iter().map(|key| key.reversed()).collect();
        if filter == self.filter && turned == keys {
            let what = "the other direction is the same; name a direction in the key or the filter, such as `src` or `egress`";
            return Err(StoreError::Query(what.to_owned()));
        }
        Ok((Self { filter, dedup: None, ..self.clone() }, turned))
    }
}

/// Sums up the records of a query by steps of `step_ns`, or of a readable length, and, if there are keys, by some of their values.
pub fn graph(
    view: &View,
    query: &Query,
    keys: &[Key],
    by: Metric,
    lines: Lines<'_>,
    step_ns: Option<u64>,
) -> Result<Graph, StoreError> {
    let step_ns = step_ns.or(view.step_ns);
    let Some(steps) = Steps::new(view.summary().span_ns, query.window, step_ns)? else {
        return Ok(Graph::empty(step_ns));
    };
    let Steps { from_ns, step_ns, count, .. } = steps;
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
    let mut series: Vec<Series> = named.into_iter().map(|(_, key)| empty(Some(key), count)).collect();
    let mut others = empty(None, count);
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
    series.push(others);
    Ok(steps.graph(series, (summed.total, summed.live), scanned))
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

/// A line of zeros.
pub(super) fn empty(key: Option<Vec<KeyValue>>, steps: u64) -> Series {
    Series { key, total: Sums::default(), steps: vec![Sums::default(); steps as usize] }
}
