//! Answers as JSON, for programs and for the HTTP API.

use serde_json::{Map, Value, json};
use thalweg_text::calendar::{SECOND_NS, format_time};

use super::{Graph, Key, KeyValue, Scanned, Sums, Top};
use crate::dataset::{RollupSummary, Skipped, Summary};
use crate::live::Writing;

impl Top {
    /// The answer with the names of its keys.
    pub fn to_json(&self, keys: &[Key], writing: &[Writing]) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut object = by_key(keys, &row.key);
            object.extend(row.sums.members());
            Value::Object(object)
        });
        json!({
            "rows": rows.collect::<Vec<Value>>(),
            "total": self.total.to_json(),
            "live": live(self.live, writing),
            "keys": self.keys,
            "rest": self.rest.to_json(),
            "scanned": self.scanned.to_json(),
        })
    }
}

impl Graph {
    /// The answer with the names of its keys.
    pub fn to_json(&self, keys: &[Key], writing: &[Writing]) -> Value {
        let series = self.series.iter().map(|series| {
            json!({
                "key": series.key.as_ref().map(|values| by_key(keys, values)),
                "total": series.total.to_json(),
                "steps": series.steps.iter().map(|sums| sums.to_json()).collect::<Vec<Value>>(),
            })
        });
        json!({
            "from": format_time(self.from_ns),
            "step_s": self.step_ns as f64 / SECOND_NS as f64,
            "incomplete_steps": self.steps().zip(0..).filter(|(step, _)| !step.1).map(|(_, n)| n).collect::<Vec<u64>>(),
            "series": series.collect::<Vec<Value>>(),
            "total": self.total.to_json(),
            "live": live(self.live, writing),
            "scanned": self.scanned.to_json(),
        })
    }
}

impl Sums {
    fn members(self) -> impl Iterator<Item = (String, Value)> {
        let members = [("packets", self.packets), ("bytes", self.bytes), ("flows", self.flows)];
        members.into_iter().map(|(name, number)| (name.to_owned(), number.into()))
    }

    /// Each sum by its name.
    pub fn to_json(self) -> Value {
        Value::Object(self.members().collect())
    }
}

impl Scanned {
    /// The work of a query by its names.
    pub fn to_json(&self) -> Value {
        json!({
            "files": self.files,
            "row_groups_read": self.row_groups_read,
            "row_groups_pruned": self.row_groups_pruned,
            "records": self.records,
            "pending_records": self.pending_records,
            "cached_records": self.cached_records,
            "sampled": self.sampled,
            "sampling_unknown": self.sampling_unknown,
            "rollup_step_s": self.rolled.step_s,
            "hours_coarse": self.rolled.hours_coarse,
            "hours_missing": self.rolled.hours_missing,
            "skipped": self.skipped.to_json(),
        })
    }
}

impl Summary {
    /// The contents of a dataset by their names.
    pub fn to_json(&self) -> Value {
        let span = self.span_ns.map(|(from, to)| [format_time(from), format_time(to)]);
        json!({
            "partitions": self.partitions,
            "files": self.files,
            "row_groups": self.row_groups,
            "records": self.records,
            "bytes": self.bytes,
            "pending_records": self.pending_records,
            "cached_records": self.cached_records,
            "from": span.as_ref().map(|span| &span[0]),
            "to": span.as_ref().map(|span| &span[1]),
            "rollups": self.rollups.iter().map(|rollup| rollup.to_json()).collect::<Vec<Value>>(),
            "skipped": self.skipped.to_json(),
        })
    }
}

impl RollupSummary {
    fn to_json(self) -> Value {
        let (from, to) = self.span_ns;
        json!({
            "step_s": self.step_s,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.bytes,
            "from": format_time(from),
            "to": format_time(to),
        })
    }
}

impl Skipped {
    /// The number of files, and some of them by name.
    pub fn to_json(&self) -> Value {
        let named = self.named.iter().map(|(path, what)| json!({ "file": path, "reason": what }));
        json!({ "count": self.count, "named": named.collect::<Vec<Value>>() })
    }
}

fn by_key(keys: &[Key], values: &[KeyValue]) -> Map<String, Value> {
    let values = values.iter().map(|value| match value {
        KeyValue::Number(number) => json!(number),
        KeyValue::Unknown => Value::Null,
        named => json!(named.to_string()),
    });
    keys.iter().map(|key| key.name.replace('-', "_")).zip(values).collect()
}

/// How much of an answer is not on disk yet, and what the writers reported.
fn live(live: Sums, writing: &[Writing]) -> Value {
    let mut value = live.to_json();
    let (mut name, mut facts) = ("nobody", Vec::new());
    for writer in writing {
        match writer {
            Writing::Silent(why) => (name, value["reason"]) = ("silent", json!(why)),
            Writing::Answered(told) => {
                facts.push(told);
                name = if name == "nobody" { "answered" } else { name };
            }
        }
    }
    value["writer"] = json!(name);
    value["cache_left_out"] = json!(facts.iter().any(|facts| facts.cache_left_out));
    value["cache_busy"] = json!(facts.iter().any(|facts| facts.cache_busy));
    value["records_on_the_way"] = json!(facts.iter().map(|facts| facts.on_the_way).sum::<u64>());
    value
}
