//! Questions about stored flow records.

use std::path::Path;

use serde_json::{Value, json};
use thalweg_config::quantity;
use thalweg_flow::fields::Field;
use thalweg_flow::lines::LineFormat;
use thalweg_store::live::Writing;
use thalweg_store::query::{Key, Lines, Metric, Query, graph, list, reversed, top};
use thalweg_store::{Dataset, Filter, Needs, Step, StoreError, View, Window};
use thalweg_text::calendar::{SECOND_NS, parse_time};

use crate::answer::{Gone, Outlet};
use crate::problem::{Problem, ProblemKind};
use crate::routes::Call;

/// How far after the current time the window of `last` ends: continuing flows have packets between now and the answer.
const AHEAD_NS: u64 = 60 * SECOND_NS;
/// The most distinct keys of a question: some ten megabytes.
const KEYS_MAX: usize = 1 << 18;
const TOP: (u64, u64) = (10, 1_000);
const LIST: (u64, u64) = (100, 10_000);
const GRAPH: (u64, u64) = (5, 100);

const METRICS: [(&str, Metric); 3] =
    [("bytes", Metric::Bytes), ("packets", Metric::Packets), ("flows", Metric::Flows)];

/// What is asked about flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowsKind {
    Top,
    List,
    Graph,
    Stats,
}

/// A question whose parameters are right.
pub(crate) struct Question {
    kind: FlowsKind,
    query: Query,
    keys: Vec<Key>,
    by: Metric,
    count: usize,
    step_ns: Option<u64>,
    deduplicates: bool,
    /// Sums by minutes and hours may answer.
    rollups: bool,
    /// A graph of the other direction, too.
    both: bool,
}

impl Question {
    pub(crate) fn new(call: &Call, kind: FlowsKind, now_ns: u64) -> Result<Self, Problem> {
        let text = call.text("filter").unwrap_or_default();
        let filter = Filter::parse(text).map_err(|error| Problem::bad(error.shown_in(text)))?;
        let names = call.text("key").into_iter().flat_map(|keys| keys.split(','));
        let keys: Result<Vec<Key>, StoreError> = names.map(str::parse).collect();
        let keys = keys.map_err(|error| Problem::bad(error.to_string()))?;
        if kind == FlowsKind::Top && keys.is_empty() {
            return Err(Problem::bad(format!("key is missing: one or some of {}", Key::names())));
        }
        let by = call.text("by").unwrap_or("bytes");
        let by = METRICS.iter().find(|(name, _)| *name == by).map(|(_, metric)| *metric);
        let (default, most) = match kind {
            FlowsKind::Top => TOP,
            FlowsKind::List => LIST,
            FlowsKind::Graph => GRAPH,
            FlowsKind::Stats => (1, 1),
        };
        let count = call.number("n").unwrap_or(default);
        if !(1..=most).contains(&count) {
            return Err(Problem::bad(format!("n: expected 1 to {most}")));
        }
        Ok(Self {
            kind,
            query: Query {
                threads: 1,
                keys_max: KEYS_MAX,
                raw: call.flag("raw"),
                ..Query::new(window(call, now_ns)?, filter)
            },
            keys,
            by: by.ok_or_else(|| Problem::bad("by: expected bytes, packets or flows"))?,
            count: usize::try_from(count).unwrap_or(usize::MAX),
            step_ns: call.text("step").map(|text| span("step", text)).transpose()?,
            deduplicates: call.flag("dedup"),
            rollups: !call.flag("no_rollups"),
            both: call.flag("both"),
        })
    }

    /// Answers from the dataset in a folder: the body of a thread.
    pub(crate) fn answer(&self, folder: &Path, mut outlet: Outlet) {
        let result = self.ask(folder, &mut outlet);
        outlet.end(result);
    }

    fn ask(&self, folder: &Path, outlet: &mut Outlet) -> Result<(), Problem> {
        let dataset = Dataset::open(folder).map_err(failed)?;
        if !dataset.is_one().map_err(failed)? {
            return Err(Problem::new(ProblemKind::Absent, "there are no flow records yet"));
        }
        let step = match self.kind {
            FlowsKind::Graph if !self.deduplicates => Step::Of(self.step_ns),
            FlowsKind::Top if !self.deduplicates => Step::None,
            _ => Step::Records,
        };
        let rollups = self.rollups && self.kind != FlowsKind::Stats;
        let needs = Needs { query: &self.query, keys: &self.keys, step, live: true, rollups };
        let (view, writing) = dataset.view_for(&needs).map_err(failed)?;
        let query = match self.deduplicates {
            true => &self.query.clone().deduplicated(&view).map_err(failed)?,
            false => &self.query,
        };
        // Who is gone needs no answer.
        let _: Result<(), Gone> = match self.kind {
            FlowsKind::List => self.list(&view, query, outlet)?,
            FlowsKind::Top => outlet.write(self.top(&view, query, &writing)?.to_string()),
            FlowsKind::Graph => outlet.write(self.graph(&view, query, &writing)?.to_string()),
            FlowsKind::Stats => {
                let mut summary = view.summary();
                dataset.add_rollups(&mut summary).map_err(failed)?;
                outlet.write(summary.to_json().to_string())
            }
        };
        Ok(())
    }

    fn top(&self, view: &View, query: &Query, writing: &[Writing]) -> Result<Value, Problem> {
        let answer = top(view, query, &self.keys, self.by, self.count).map_err(failed)?;
        Ok(answer.to_json(&self.keys, writing))
    }

    fn graph(&self, view: &View, query: &Query, writing: &[Writing]) -> Result<Value, Problem> {
        let (keys, lines) = (&self.keys, Lines::Largest(self.count));
        let answer = graph(view, query, keys, self.by, lines, self.step_ns).map_err(failed)?;
        let mut document = answer.to_json(keys, writing);
        if self.both {
            let below = reversed(view, query, keys, self.by, &answer).map_err(failed)?;
            document["below"] = below.to_json(keys, writing);
        }
        Ok(document)
    }

    fn list(&self, view: &View, query: &Query, outlet: &mut Outlet) -> Result<Result<(), Gone>, Problem> {
        let (records, _) = list(view, query, self.count).map_err(failed)?;
        let mut separator = "{\"items\":[";
        let mut line = Vec::new();
        for record in &records {
            line.clear();
            LineFormat::Json.write(record, Field::of_lines(false), &mut line);
            if let Err(gone) = outlet.write(separator).and_then(|()| outlet.write(line.trim_ascii_end())) {
                return Ok(Err(gone));
            }
            separator = ",";
        }
        let begin = if records.is_empty() { separator } else { "" };
        Ok(outlet.write(format!("{begin}],\"cursor\":null}}")))
    }
}

/// The words of questions, for completion.
pub(crate) fn words() -> Value {
    let keys: Vec<&str> = Key::ALL.iter().map(|key| key.name).collect();
    json!({ "keys": keys, "metrics": METRICS.map(|(name, _)| name), "tests": Filter::WORDS })
}

fn window(call: &Call, now_ns: u64) -> Result<Window, Problem> {
    let moment = |name: &str| {
        let text = call.text(name);
        text.map(|text| {
            let expected = "expected a time in UTC, such as 2026-11-22T05:30:00Z, or seconds since the epoch";
            parse_time(text).ok_or_else(|| Problem::bad(format!("{name}: {expected}")))
        })
        .transpose()
    };
    let (from, to) = (moment("from")?, moment("to")?);
    let window = match call.text("last") {
        None => Window { from_ns: from.unwrap_or(0), to_ns: to.unwrap_or(u64::MAX) },
        Some(_) if from.or(to).is_some() => return Err(Problem::bad("last excludes from and to")),
        Some(text) => {
            let from_ns = now_ns.saturating_sub(span("last", text)?);
            Window { from_ns, to_ns: now_ns.saturating_add(AHEAD_NS) }
        }
    };
    if window.from_ns < window.to_ns { Ok(window) } else { Err(Problem::bad("from must be before to")) }
}

fn span(name: &str, text: &str) -> Result<u64, Problem> {
    let seconds =
        quantity::seconds(text).map_err(|expected| Problem::bad(format!("{name}: expected {expected}")))?;
    seconds
        .checked_mul(SECOND_NS)
        .ok_or_else(|| Problem::bad(format!("{name}: expected less than 584 years")))
}

fn failed(error: StoreError) -> Problem {
    match error {
        StoreError::Query(what) => Problem::bad(what),
        other => Problem::failed(other),
    }
}
