//! The largest talkers, of whatever kind.

use super::aggregate::{Grouping, aggregate};
use super::{Key, KeyValue, Metric, Query, Scanned, Sums};
use crate::dataset::View;
use crate::error::StoreError;

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// The values of the keys, in the order in which they were asked for.
    pub key: Vec<KeyValue>,
    /// What records with them add up to.
    pub sums: Sums,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Top {
    /// The largest, the very largest first. Of equal ones the smaller key is first.
    pub rows: Vec<TopRow>,
    /// All records of the query. With a key that means either end (`host`), rows add up to more than that.
    pub total: Sums,
    /// Distinct keys.
    pub keys: u64,
    /// What belongs to keys beyond the number that is remembered. If it is not zero, a row may lack some of its sums.
    pub rest: Sums,
    /// What was done for it.
    pub scanned: Scanned,
}

/// Sums up the records of a query by key and returns the `count` largest. With no keys there are only totals.
pub fn top(view: &View, query: &Query, keys: &[Key], by: Metric, count: usize) -> Result<Top, StoreError> {
    let (groups, scanned) = aggregate(view, query, Grouping { keys, steps: None })?;
    let mut ranked: Vec<(u64, u32)> = groups.iter().map(|(group, sums)| (sums.of(by), group)).collect();
    let mut largest = Vec::new();
    if count > 0 && !ranked.is_empty() {
        let place = count.min(ranked.len()) - 1;
        ranked.select_nth_unstable_by(place, |a, b| b.0.cmp(&a.0));
        // Of those that are as large as the last one, the key decides.
        let least = ranked[place].0;
        largest = ranked.into_iter().filter(|(value, _)| *value >= least).collect();
    }
    let mut rows: Vec<TopRow> = largest
        .into_iter()
        .map(|(_, group)| TopRow { key: groups.key(group).1, sums: groups.sums(group) })
        .collect();
    rows.sort_by(|a, b| b.sums.of(by).cmp(&a.sums.of(by)).then_with(|| a.key.cmp(&b.key)));
    rows.truncate(count);
    Ok(Top { rows, total: groups.total, keys: groups.len() as u64, rest: groups.rest(), scanned })
}
