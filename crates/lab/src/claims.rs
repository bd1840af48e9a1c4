//! Judges the papers' claims by an experiment's results.
//!
//! Claims are data (`claims.toml`, whose head has the grammar). A claim selects rows of the results and compares
//! one number of each with bounds. [`Verdict::NotRun`] means that no row was selected: the experiment was not run
//! that way, or this machine cannot. If a selected row lacks the number, the file is wrong, and the verdict says
//! so.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_text::Table;
use thalweg_text::units::Unit;

use crate::stats::Summary;

static FILE: LazyLock<File> = LazyLock::new(|| {
    toml::from_str(include_str!("../claims.toml"))
        .unwrap_or_else(|error| unreachable!("claims.toml: {error}"))
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "step")]
    steps: Vec<Step>,
    #[serde(rename = "claim")]
    claims: Vec<Claim>,
    series: Vec<Series>,
}

/// A statement of a paper that a run can confirm.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Names the paper, the place and the subject.
    pub id: String,
    pub paper: String,
    /// The place in the paper.
    place: String,
    pub statement: String,
    /// The paper's value, as printed.
    pub said: String,
    pub run: Option<String>,
    /// The experiment whose results decide.
    pub experiment: Option<String>,
    part: Option<String>,
    /// What a decision lacks, if no experiment can decide.
    needs: Option<String>,
    /// The fewest cores for a meaningful run.
    cores: Option<usize>,
    at: Option<String>,
    #[serde(default, rename = "where")]
    rows: BTreeMap<String, Value>,
    value: Option<String>,
    over: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    same: Vec<String>,
    /// How the rows of other programs differ from those that are judged. Rows without a `subject` are not shown.
    rivals: Option<BTreeMap<String, Value>>,
    above: Option<f64>,
    below: Option<f64>,
}

/// An experiment that a paper's claims need.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub paper: String,
    /// Its name for `thalweg lab`.
    pub experiment: String,
    pub arguments: Vec<String>,
    /// More arguments if other programs are not wanted.
    #[serde(default)]
    pub without_rivals: Vec<String>,
    /// Whether it creates network namespaces.
    #[serde(default)]
    pub root: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    id: String,
    rows: BTreeMap<String, Vec<f64>>,
}

thalweg_base::words! {
    /// The result of judging a claim.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        /// Every value is within the bounds.
        Reproduced => "reproduced",
        /// A value is outside the bounds.
        Differs => "differs",
        /// There is no value.
        NotRun => "not run",
    }
}

/// A claim with its verdict.
#[derive(Debug, Serialize)]
pub struct Judged {
    pub id: &'static str,
    /// The values that decided; over several passes, their medians.
    pub here: Vec<f64>,
    /// The smallest and the largest of each value over several passes.
    pub ranges: Vec<(f64, f64)>,
    /// The same of other programs, measured beside; over several passes, medians.
    pub rivals: BTreeMap<String, f64>,
    pub verdict: Verdict,
    #[serde(skip)]
    claim: &'static Claim,
}

/// All claims of all papers, from `claims.toml`.
pub fn all() -> &'static [Claim] {
    &FILE.claims
}

/// The experiments that the claims need, from `claims.toml`.
pub fn steps() -> &'static [Step] {
    &FILE.steps
}

/// A paper's numbers; panics if the file has no such series.
pub fn series(id: &str) -> &'static BTreeMap<String, Vec<f64>> {
    let found = FILE.series.iter().find(|series| series.id == id);
    found.map_or_else(|| unreachable!("claims.toml has no series {id}"), |series| &series.rows)
}

/// Judges the claims about an experiment by its results. Claims about parts that were not run are left out.
pub fn judge(experiment: &str, results: &Value) -> Vec<Judged> {
    let of_it = all().iter().filter(|claim| claim.experiment.as_deref() == Some(experiment));
    of_it.filter(|claim| claim.was_run(results)).map(|claim| claim.judge(results)).collect()
}

/// The table of an experiment's claims, judged by its results.
pub(crate) fn judged(experiment: &str, results: &impl Serialize) -> Option<Table> {
    table(&judge(experiment, &serde_json::to_value(results).unwrap_or_default()))
}

/// The claims as a table; `None` without any.
pub fn table(judged: &[Judged]) -> Option<Table> {
    if judged.is_empty() {
        return None;
    }
    let mut table = Table::of("What the papers say, and what was found here", judged)
        .words("where", |judged| judged.claim.source())
        .words("claim", |judged| judged.claim.statement.clone())
        .words("paper", |judged| judged.claim.said.clone())
        .words("here", |judged| range(&judged.here).unwrap_or_else(|| "–".to_owned()))
        .words("verdict", Judged::said);
    if judged.iter().any(|judged| !judged.rivals.is_empty()) {
        table = table.words("rivals here", Judged::beside);
    }
    if judged.iter().any(|judged| !judged.ranges.is_empty()) {
        table = table.words("over all passes", Judged::spread);
    }
    Some(table.table())
}

/// Values as text: a range if there are several.
pub(crate) fn range(values: &[f64]) -> Option<String> {
    let (least, most) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
    let text = |value| Unit::Count.format(value);
    Some(if values.len() > 1 { format!("{} to {}", text(least), text(most)) } else { text(least) })
}

impl Judged {
    /// The range over all passes, if there were several.
    fn spread(&self) -> String {
        let ends: Vec<f64> = self.ranges.iter().flat_map(|(least, most)| [*least, *most]).collect();
        range(&ends).unwrap_or_else(|| "–".to_owned())
    }

    fn beside(&self) -> String {
        let each = self.rivals.iter().map(|(name, value)| format!("{name} {}", Unit::Count.format(*value)));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Which bound a value is beyond, if one is.
    fn beyond(&self) -> Option<String> {
        let text = |bound| Unit::Count.format(bound);
        let low = self.claim.above.filter(|least| self.here.iter().any(|value| value < least));
        let high = self.claim.below.filter(|most| self.here.iter().any(|value| value > most));
        match (low, high) {
            (Some(low), Some(high)) => Some(format!("below {} and above {}", text(low), text(high))),
            (Some(low), None) => Some(format!("below {}", text(low))),
            (None, high) => high.map(|high| format!("above {}", text(high))),
        }
    }

    fn said(&self) -> String {
        if let Some(beyond) = self.beyond() {
            return format!("{} ({beyond})", self.verdict);
        }
        match (&self.verdict, &self.claim.needs) {
            (Verdict::NotRun, Some(needs)) => format!("not run (needs {needs})"),
            (Verdict::NotRun, None) if self.claim.cores.is_some_and(|cores| cores > cores_here()) => {
                format!("not run (needs {} cores)", self.claim.cores.unwrap_or_default())
            }
            (verdict, _) => verdict.to_string(),
        }
    }
}

impl Claim {
    /// The paper and the place in it.
    pub fn source(&self) -> String {
        format!("{}, {}", self.paper, self.place)
    }

    fn row_list<'a>(&self, results: &'a Value) -> &'a [Value] {
        let rows = self.at.as_deref().and_then(|at| at_path(results, at));
        rows.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn was_run(&self, results: &Value) -> bool {
        match &self.part {
            None => !self.row_list(results).is_empty(),
            Some(part) => self
                .row_list(results)
                .iter()
                .any(|row| at_path(row, "cell.part") == Some(&part.as_str().into())),
        }
    }

    /// Judges the claim by an experiment's results.
    pub fn judge(&'static self, results: &Value) -> Judged {
        let rows = self.row_list(results);
        let is_possible = self.cores.is_none_or(|cores| cores <= cores_here());
        let chosen = rows.iter().filter(|row| is_possible && has_all(row, &self.rows));
        let here: Vec<f64> = chosen.filter_map(|row| self.value_of(row, rows, &self.rows)).collect();
        self.judge_values(here, Vec::new(), self.rivals_of(rows))
    }

    /// The same value of other programs, by name.
    fn rivals_of(&self, rows: &[Value]) -> BTreeMap<String, f64> {
        let Some(rivals) = &self.rivals else { return BTreeMap::new() };
        let mut wanted = self.rows.clone();
        wanted.extend(rivals.clone());
        let theirs = rows.iter().filter(|row| has_all(row, &wanted));
        let named = theirs.filter_map(|row| {
            Some((row.get("subject")?.as_str()?.to_owned(), self.value_of(row, rows, &wanted)?))
        });
        named.collect()
    }

    fn judge_values(
        &'static self,
        here: Vec<f64>,
        ranges: Vec<(f64, f64)>,
        rivals: BTreeMap<String, f64>,
    ) -> Judged {
        let is_within = |value: &f64| {
            self.above.is_none_or(|least| *value >= least) && self.below.is_none_or(|most| *value <= most)
        };
        let verdict = match here.iter().all(is_within) {
            _ if here.is_empty() => Verdict::NotRun,
            true => Verdict::Reproduced,
            false => Verdict::Differs,
        };
        Judged { id: &self.id, here, ranges, rivals, verdict, claim: self }
    }

    /// Judges the claim by several passes of an experiment: the medians of its values decide. Passes with fewer
    /// values than the last one count as not run.
    pub(crate) fn judge_passes(&'static self, passes: &[&Value]) -> Judged {
        let mut rivals: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut found = Vec::new();
        for judged in passes.iter().map(|results| self.judge(results)) {
            judged.rivals.into_iter().for_each(|(name, value)| rivals.entry(name).or_default().push(value));
            found.push(judged.here);
        }
        let rivals = rivals.into_iter().filter_map(|(name, of)| Some((name, Summary::of(&of)?.median)));
        let values = found.iter().rev().map(Vec::len).find(|count| *count > 0).unwrap_or_default();
        let of = |at: usize| {
            let whole = found.iter().filter(|here| here.len() == values);
            Summary::of(&whole.filter_map(|here| here.get(at).copied()).collect::<Vec<_>>())
        };
        let summaries: Vec<Summary> = (0..values).filter_map(of).collect();
        let ranges =
            summaries.iter().filter(|summary| summary.count > 1).map(|summary| (summary.min, summary.max));
        let medians = summaries.iter().map(|summary| summary.median).collect();
        self.judge_values(medians, ranges.collect(), rivals.collect())
    }

    /// The row's value, divided by another row's if the claim is about a ratio. The row is one of the `chosen`.
    fn value_of(&self, row: &Value, rows: &[Value], chosen: &BTreeMap<String, Value>) -> Option<f64> {
        let path = self.value.as_deref()?;
        let value = number(row, path)?;
        let Some(over) = &self.over else { return Some(value) };
        let mut wanted = chosen.clone();
        wanted.extend(over.clone());
        let other = rows.iter().find(|other| {
            has_all(other, &wanted) && self.same.iter().all(|path| at_path(other, path) == at_path(row, path))
        })?;
        let base = number(other, path)?;
        (base > 0.0).then(|| value / base)
    }
}

fn cores_here() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The value at a dotted path.
fn at_path<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

fn number(row: &Value, path: &str) -> Option<f64> {
    at_path(row, path)?.as_f64().filter(|value| value.is_finite())
}

/// Whether a row has all these values. `false` also matches a missing value.
fn has_all(row: &Value, wanted: &BTreeMap<String, Value>) -> bool {
    let is =
        |found: &Value, wanted: &Value| found == wanted || (*wanted == Value::Bool(false) && found.is_null());
    wanted.iter().all(|(path, wanted)| {
        let found = at_path(row, path).unwrap_or(&Value::Null);
        match wanted {
            Value::Array(any) => any.iter().any(|wanted| is(found, wanted)),
            wanted => is(found, wanted),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(scheduling: &str, cores: u64, load: &str, elapsed: f64, speed_up: f64) -> Value {
        let per_core = if scheduling == "dynamic" { json!(1) } else { Value::Null };
        json!({
            "cell": { "part": if load.starts_with("in") { "speed-up" } else { "mixes" }, "scheduling": scheduling,
                "cores": cores, "threads_per_core": per_core, "load": load },
            "elapsed_s": { "median": elapsed }, "speed_up": speed_up,
        })
    }

    fn verdict(judged: &[Judged], id: &str) -> Option<(Verdict, Vec<f64>)> {
        judged.iter().find(|judged| judged.id == id).map(|judged| (judged.verdict, judged.here.clone()))
    }

    #[test]
    fn the_file_is_sound() {
        let mut ids: Vec<&str> = all().iter().map(|claim| claim.id.as_str()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "every claim has an id of its own");
        for claim in all() {
            let is_measured = claim.experiment.is_some();
            assert!(claim.id.starts_with(&claim.paper), "{}", claim.id);
            assert_eq!(is_measured, claim.at.is_some() && claim.value.is_some(), "{}", claim.id);
            assert_eq!(is_measured, claim.above.or(claim.below).is_some(), "{}", claim.id);
            assert_eq!(is_measured, claim.run.is_some(), "{}", claim.id);
            assert!(is_measured || claim.needs.is_some(), "{}", claim.id);
            let is_its = |step: &&Step| {
                Some(&step.experiment) == claim.experiment.as_ref() && step.paper == claim.paper
            };
            assert_eq!(steps().iter().filter(is_its).count(), usize::from(is_measured), "{}", claim.id);
            assert!(claim.part.as_deref().is_none_or(|part| claim.rows["cell.part"] == part), "{}", claim.id);
        }
        assert_eq!(series("003/table-4.2")["header_read"], [4176.6, 397.7, 10.5]);
        assert_eq!(series("003/table-2.1").len(), 8);
    }

    #[test]
    fn rivals_stand_beside_and_a_missed_bound_is_named() {
        let row = |subject: Option<&str>, ns: f64| json!({ "subject": subject, "mtu": 1500, "message_bytes": 1, "half_round_trip_p50_ns": { "median": ns } });
        let rows = |thalweg| json!({ "applications": [row(None, 10.0), row(Some("thalweg"), thalweg), row(Some("linux"), 13.0)] });
        let of = |thalweg| {
            let judged = judge("forwarding", &rows(thalweg));
            judged.into_iter().find(|judged| judged.id == "004/fig-4/latency").expect("its claim")
        };
        let slow = of(20.0);
        assert_eq!((slow.here.as_slice(), slow.verdict), ([2.0].as_slice(), Verdict::Differs));
        assert_eq!(slow.rivals, BTreeMap::from([("linux".to_owned(), 1.3)]));
        assert_eq!((slow.said().as_str(), slow.beside().as_str()), ("differs (above 1.41)", "linux 1.30"));
        assert_eq!(of(12.0).said(), "reproduced");
        // Over several passes, the median.
        let claim = all().iter().find(|claim| claim.id == "004/fig-4/latency").expect("it is there");
        let passes = [rows(20.0), rows(12.0), rows(14.0)];
        let judged = claim.judge_passes(&passes.iter().collect::<Vec<_>>());
        assert_eq!((judged.here[0], judged.rivals["linux"]), (1.4, 1.3));
    }

    #[test]
    fn verdicts_follow_from_the_numbers() {
        let results = |per_peer_16: f64, dynamic_16: f64, worst: f64| {
            json!({ "cells": [
                cell("serial", 1, "in memory", 8.0, 1.0),
                cell("per-peer", 1, "in memory", 9.0, 8.0 / 9.0),
                cell("per-peer", 16, "in memory", 1.0, per_peer_16),
                cell("dynamic", 16, "in memory", 1.0, dynamic_16),
                cell("per-peer", 2, "best", 2.0, 1.0),
                cell("per-peer", 2, "worst", worst, 1.0),
            ] })
        };
        let good = judge("bgp", &results(6.0, 6.3, 4.0));
        assert_eq!(verdict(&good, "003/fig-4.3/16"), Some((Verdict::Reproduced, vec![6.0])));
        assert_eq!(verdict(&good, "003/fig-4.3/1"), Some((Verdict::Reproduced, vec![8.0 / 9.0])));
        assert_eq!(verdict(&good, "003/fig-4.9"), Some((Verdict::Reproduced, vec![6.3 / 6.0])));
        assert_eq!(verdict(&good, "003/fig-4.7/per-peer"), Some((Verdict::Reproduced, vec![2.0])));
        // The claim's part was run, but not the serial cell.
        assert_eq!(verdict(&good, "003/fig-4.7/serial"), Some((Verdict::NotRun, vec![])));
        assert_eq!(verdict(&good, "003/fig-4.8/4x"), None, "a part that was not run is not there");
        let bad = judge("bgp", &results(5.0, 9.0, 1.8));
        for id in ["003/fig-4.3/16", "003/fig-4.9", "003/fig-4.7/per-peer"] {
            assert_eq!(verdict(&bad, id).map(|(verdict, _)| verdict), Some(Verdict::Differs), "{id}");
        }
        let text = table(&bad).expect("claims").to_string();
        assert!(text.contains("over 5.5") && text.contains("differs") && text.contains("5.00"), "{text}");
        assert!(judge("bgp", &json!({})).is_empty() && table(&[]).is_none());
    }

    /// Threads that share cores measure the machine, not the claim.
    #[test]
    fn a_claim_that_needs_more_cores_is_not_judged() {
        let row = |shape: &str, speed_up: f64| json!({ "configuration": shape, "from": "memory", "part": "table", "subject": "thalweg", "speed_up": speed_up });
        let results = json!({ "cells": [row("1R+1W", 1.7), row("2x(1R+1W)", 2.7)] });
        let judged = judge("probe", &results);
        let of = |id: &str| verdict(&judged, id).expect("judged").0;
        let needs = |cores| if cores_here() >= cores { Verdict::Reproduced } else { Verdict::NotRun };
        assert_eq!(of("001/table/1R+1W"), needs(2));
        assert_eq!(of("001/table/2x(1R+1W)"), needs(4));
        let text = table(&judged).expect("claims").to_string();
        assert!(cores_here() >= 4 || text.contains("not run (needs 4 cores)"), "{text}");
    }

    #[test]
    fn what_a_small_machine_cannot_say_is_not_run() {
        let small = json!({ "cells": [cell("per-peer", 2, "in memory", 1.0, 1.5)] });
        let judged = judge("bgp", &small);
        assert_eq!(verdict(&judged, "003/fig-4.3/16"), Some((Verdict::NotRun, vec![])));
        assert!(table(&judged).expect("claims").to_string().contains("not run (needs 16 cores)"));
    }
}
