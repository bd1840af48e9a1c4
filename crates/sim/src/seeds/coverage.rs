//! Counts what trials exercised: faults, features, log messages, counters, and the steps that decided between
//! routes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Metadata, Subscriber};

/// The number of trials that exercised each item, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    /// Each item and the number of trials that exercised it.
    pub fn items(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, trials)| (name.as_str(), *trials))
    }

    /// The number of trials that exercised this item.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds the counts of other trials.
    pub fn add(&mut self, other: &Self) {
        for (name, trials) in &other.0 {
            *self.0.entry(name.clone()).or_default() += trials;
        }
    }

    /// Marks the item as exercised by this trial.
    pub(super) fn meet(&mut self, kind: &str, name: &str) {
        self.0.insert(format!("{kind}: {name}"), 1);
    }

    /// Marks all counters that are not zero.
    pub(super) fn meet_counters(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.meet_counters(&path, field);
                }
            }
            Value::Number(number) if number.as_u64() != Some(0) => self.meet("counter", path),
            _ => {}
        }
    }

    /// Marks a log line, without the parts that vary.
    pub(super) fn meet_line(&mut self, line: &str) {
        // Numbers, and received bytes in hexadecimal.
        let varies = |word: &str| word.contains(|c: char| c.is_ascii_digit()) || word.contains("ffffffffff");
        let word = |word: &str| match varies(word) {
            true => "#".to_owned(),
            false => word.to_owned(),
        };
        // The negotiated parameters differ from line to line.
        let line = line.split_once("up: ").filter(|(before, _)| before.is_empty()).map_or(line, |_| "up");
        self.meet("log", &line.split_whitespace().map(word).collect::<Vec<_>>().join(" "));
    }
}

/// A line that a router logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) neighbor: String,
    pub(super) text: String,
}

thread_local! {
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Takes the lines logged on this thread since the last call.
pub(super) fn take_lines() -> Vec<Line> {
    LINES.with_borrow_mut(std::mem::take)
}

/// Calls `body` and keeps its log for [`take_lines`] only.
pub(super) fn listening<T>(body: impl FnOnce() -> T) -> T {
    // Two, because `tracing` asks a single one about a place that logs only if it is the default of the thread that
    // comes there first: after another thread had come there, the place would be silent for all.
    static LISTENERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [Listener, Listener].map(Dispatch::new));
    tracing::dispatcher::with_default(&LISTENERS[0], body)
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("thalweg")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line { neighbor: String::new(), text: String::new() };
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.push(line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            "neighbor" => self.neighbor = format!("{value:?}").trim_matches('"').to_owned(),
            _ => {}
        }
    }
}
