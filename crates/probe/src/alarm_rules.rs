//! Rules for alarms: checked, and what they take of a flow.

use std::sync::Arc;

use thalweg_flow::alarm::{Alarm, AlarmRule, Baseline, Measure, WebhookTarget};
use thalweg_flow::{FlowRecord, INTERVAL_NS};
use thalweg_store::query::{Key, RawValue};
use thalweg_store::{Filter, FilterError};
use thalweg_text::calendar::format_time;

/// The most rules: each costs every flow of every second.
const RULES_MAX: usize = 64;
/// The key of rules about all traffic together.
const ALL: &str = "all";

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlarmError {
    #[error("alarm `{name}`: `{key}` is not a key; expected `all` or one of {expected}", expected = Key::names())]
    Key { name: String, key: String },
    #[error("alarm `{name}`: {error}")]
    Filter { name: String, error: FilterError },
    #[error("two alarms are named `{0}`")]
    Twice(String),
    #[error("{0} alarms: expected at most {RULES_MAX}")]
    TooMany(usize),
}

/// Rules, and where events go besides notices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlarmOptions {
    pub rules: Vec<AlarmRule>,
    pub webhook: Option<WebhookTarget>,
}

/// A rule, ready for use.
pub(crate) struct Rule {
    pub(crate) name: String,
    /// `None` is all traffic.
    pub(crate) key: Option<Key>,
    pub(crate) filter: Filter,
    pub(crate) measure: Measure,
    pub(crate) above: u64,
    pub(crate) below: u64,
    pub(crate) baseline: Option<Baseline>,
    pub(crate) window_s: u32,
    pub(crate) for_s: u32,
    pub(crate) clear_s: u32,
    pub(crate) silence_s: u32,
}

impl Rule {
    fn new(rule: &AlarmRule) -> Result<Self, AlarmError> {
        let name = rule.name.clone();
        let key = match rule.key.as_str() {
            ALL => None,
            key => {
                Some(key.parse().map_err(|_| AlarmError::Key { name: name.clone(), key: key.to_owned() })?)
            }
        };
        let filter = Filter::parse(&rule.filter);
        let filter = filter.map_err(|error| AlarmError::Filter { name: name.clone(), error })?;
        let AlarmRule { measure, above, below, baseline, for_s, clear_s, silence_s, .. } = *rule;
        let window_s = rule.window_s.max(1);
        Ok(Self { name, key, filter, measure, above, below, baseline, window_s, for_s, clear_s, silence_s })
    }

    pub(crate) fn all(rules: &[AlarmRule]) -> Result<Arc<[Self]>, AlarmError> {
        if rules.len() > RULES_MAX {
            return Err(AlarmError::TooMany(rules.len()));
        }
        let mut all: Vec<Self> = Vec::new();
        for rule in rules {
            if all.iter().any(|known| known.name == rule.name) {
                return Err(AlarmError::Twice(rule.name.clone()));
            }
            all.push(Self::new(rule)?);
        }
        Ok(all.into())
    }

    pub(crate) fn each_key(&self, flow: &FlowRecord, take: impl FnMut(RawValue)) {
        match &self.key {
            Some(key) => key.values(flow).for_each(take),
            None => std::iter::once(RawValue::Number(0)).for_each(take),
        }
    }

    /// A window's sum as the measure has it.
    pub(crate) fn measured(&self, sum: u64) -> u64 {
        if self.measure.is_distinct() { sum } else { sum / u64::from(self.window_s) }
    }

    pub(crate) fn alarm(&self, value: RawValue, since_second: u64, peak: u64) -> Alarm {
        Alarm {
            rule: self.name.clone(),
            key: self.key.as_ref().map_or(ALL, |key| key.name).to_owned(),
            of: self.key.as_ref().map_or_else(|| ALL.to_owned(), |key| key.shown(value).to_string()),
            measure: self.measure.name().to_owned(),
            since: format_time(since_second.saturating_mul(INTERVAL_NS)),
            peak,
        }
    }
}
