//! The largest keys of a query.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::aggregate::{Grouping, Summed, aggregate};
use super::{Key, KeyValue, Metric, Query, Scanned, Sums};
use crate::dataset::View;
use crate::error::StoreError;

/// How many candidates accumulate before small ones are removed.
const CANDIDATES_MIN: usize = 4096;

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// In the order of the query's keys.
    pub key: Vec<KeyValue>,
    pub sums: Sums,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Top {
    /// The largest keys, largest first; of equal ones the smaller key comes first.
    pub rows: Vec<TopRow>,
    /// All records of the query. With a key of either end (`host`), rows add up to more than that.
    pub total: Sums,
    /// Records that are in no file yet.
    pub live: Sums,
    /// The number of distinct keys.
    pub keys: u64,
    /// Records of keys beyond the limit. If it is not zero, rows may be incomplete.
    pub rest: Sums,
    pub scanned: Scanned,
}

/// Sums up the records of a query by key and returns the `count` largest. Without keys there are only totals.
pub fn top(view: &View, query: &Query, keys: &[Key], by: Metric, count: usize) -> Result<Top, StoreError> {
    let (summed, scanned) = aggregate(view, query, Grouping { keys, steps: None })?;
    // The `count` largest sums seen so far; anything smaller than their minimum is out.
    let mut largest: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut candidates: Vec<(u128, Sums)> = Vec::new();
    let mut look_through_at = CANDIDATES_MIN;
    summed.each(|packed, sums| {
        let value = sums.of(by);
        let least = if largest.len() < count { 0 } else { largest.peek().map_or(u64::MAX, |least| least.0) };
        if value < least {
            return;
        }
        if value > least || largest.len() < count {
            largest.push(Reverse(value));
            if largest.len() > count {
                largest.pop();
            }
        }
        candidates.push((packed, sums));
        // Of candidates equal to the smallest the key decides, so they all stay.
        if candidates.len() >= look_through_at {
            let least = largest.peek().map_or(0, |least| least.0);
            candidates.retain(|(_, sums)| sums.of(by) >= least);
            look_through_at = 2 * candidates.len() + CANDIDATES_MIN;
        }
    });
    let least = largest.peek().map_or(u64::MAX, |least| least.0);
    candidates.retain(|(_, sums)| sums.of(by) >= least);
    let mut rows: Vec<TopRow> =
        candidates.into_iter().map(|(packed, sums)| TopRow { key: summed.values(packed), sums }).collect();
    rows.sort_by(|a, b| b.sums.of(by).cmp(&a.sums.of(by)).then_with(|| a.key.cmp(&b.key)));
    rows.truncate(count);
    let (keys, Summed { total, live, rest, .. }) = (summed.len() as u64, summed);
    Ok(Top { rows, total, live, keys, rest, scanned })
}
