//! Conditions on a report, for pipelines: `lost>0,leak>0,bytes-lost>=1%`.

use std::fmt;
use std::str::FromStr;

use super::report::{Change, Report};

/// A number in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Lost,
    New,
    Moved,
    Attributes,
    More,
    Less,
    Resent,
    Leak,
    Added,
    Removed,
    Down,
    BytesMoved,
    BytesLost,
    FailLost,
    FailMoved,
    FailLeak,
    FailBytesLost,
}

use Measure as M;

/// Names of measures.
const MEASURES: [(&str, Measure); 17] = [
    ("lost", M::Lost),
    ("new", M::New),
    ("moved", M::Moved),
    ("attributes", M::Attributes),
    ("more", M::More),
    ("less", M::Less),
    ("resent", M::Resent),
    ("leak", M::Leak),
    ("added", M::Added),
    ("removed", M::Removed),
    ("down", M::Down),
    ("bytes-moved", M::BytesMoved),
    ("bytes-lost", M::BytesLost),
    ("fail-lost", M::FailLost),
    ("fail-moved", M::FailMoved),
    ("fail-leak", M::FailLeak),
    ("fail-bytes-lost", M::FailBytesLost),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
    Differs,
}

/// Longer operators first, because they begin with shorter ones.
const OPERATORS: [(&str, Operator); 6] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("!=", Operator::Differs),
    (">", Operator::Above),
    ("<", Operator::Below),
    ("=", Operator::Equal),
];

/// What a condition needs besides the two configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub flows: bool,
    pub failures: bool,
}

/// Why a condition cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It has no comparison.
    #[error("{text}: expected a comparison such as lost>0, with one of > >= < <= = !=")]
    NoOperator {
        /// The faulty text.
        text: String,
    },
    /// No measure has this name.
    #[error("a report has no counter {name}; expected one of {}", names())]
    UnknownMeasure {
        /// The unknown name.
        name: String,
    },
    #[error("{text}: expected a number{}", if *.of_bytes { " of bytes, or a percentage such as 5%" } else { "" })]
    NoNumber {
        /// The text in place of the number.
        text: String,
        /// Whether a percentage would be valid too.
        of_bytes: bool,
    },
}

/// A condition on a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    measure: Measure,
    operator: Operator,
    limit: f64,
    percent: bool,
    text: String,
}

/// A condition that holds, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub condition: String,
    pub value: f64,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} holds: it is {}", self.condition, (self.value * 100.0).round() / 100.0)
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let text = text.trim();
        let found = OPERATORS.iter().find_map(|(sign, operator)| Some((text.split_once(sign)?, *operator)));
        let ((name, number), operator) =
            found.ok_or_else(|| ConditionError::NoOperator { text: text.to_owned() })?;
        let name = name.trim();
        let measure = MEASURES.iter().find(|each| each.0 == name).map(|each| each.1);
        let measure = measure.ok_or_else(|| ConditionError::UnknownMeasure { name: name.to_owned() })?;
        let of_bytes = measure.needs().flows;
        let number = number.trim();
        let share = number.strip_suffix('%').filter(|_| of_bytes);
        let limit = share.unwrap_or(number).parse::<f64>().ok().filter(|limit| limit.is_finite());
        let limit = limit.ok_or_else(|| ConditionError::NoNumber { text: number.to_owned(), of_bytes })?;
        Ok(Self { measure, operator, limit, percent: share.is_some(), text: text.to_owned() })
    }
}

impl Measure {
    fn needs(self) -> Needs {
        Needs {
            flows: matches!(self, M::BytesMoved | M::BytesLost | M::FailBytesLost),
            failures: matches!(self, M::FailLost | M::FailMoved | M::FailLeak | M::FailBytesLost),
        }
    }

    fn of(self, report: &Report) -> u64 {
        let traffic = report.traffic.as_ref();
        // For failures, the worst one under the new configuration counts.
        let failures = report.failures.iter().filter_map(|failure| failure.counts.after);
        let changes =
            |change: Change| report.neighbors.iter().filter(|each| each.change == change).count() as u64;
        match self {
            M::Lost => report.prefixes.lost,
            M::New => report.prefixes.new,
            M::Moved => report.prefixes.moved,
            M::Attributes => report.prefixes.attributes,
            M::More => report.exports_total.more,
            M::Less => report.exports_total.less,
            M::Resent => report.exports_total.changed,
            M::Leak => report.exports_total.leaks,
            M::Added => changes(Change::Added),
            M::Removed => changes(Change::Removed),
            M::Down => report.down.iter().filter(|down| down.why.after.is_some()).count() as u64,
            M::BytesMoved => traffic.map_or(0, |traffic| traffic.moved),
            M::BytesLost => traffic.map_or(0, |traffic| traffic.lost),
            M::FailLost => failures.map(|counts| counts.lost).max().unwrap_or(0),
            M::FailMoved => failures.map(|counts| counts.moved).max().unwrap_or(0),
            M::FailLeak => failures.map(|counts| counts.leaks).max().unwrap_or(0),
            M::FailBytesLost => failures.map(|counts| counts.bytes_lost).max().unwrap_or(0),
        }
    }
}

impl Condition {
    /// Reads conditions separated by commas.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, ConditionError> {
        text.split(',').map(str::parse).collect()
    }

    /// What the report must contain for this condition.
    pub fn needs(&self) -> Needs {
        self.measure.needs()
    }

    /// The condition and its value, if it holds.
    pub fn check(&self, report: &Report) -> Option<Held> {
        let count = self.measure.of(report) as f64;
        let all = report.traffic.as_ref().map_or(0, |traffic| traffic.bytes) as f64;
        let value = match self.percent {
            true if all == 0.0 => 0.0,
            true => 100.0 * count / all,
            false => count,
        };
        let holds = match self.operator {
            Operator::Above => value > self.limit,
            Operator::AtLeast => value >= self.limit,
            Operator::Below => value < self.limit,
            Operator::AtMost => value <= self.limit,
            Operator::Equal => value == self.limit,
            Operator::Differs => value != self.limit,
        };
        holds.then(|| Held { condition: self.text.clone(), value })
    }
}

fn names() -> String {
    MEASURES.map(|each| each.0).join(", ")
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
