//! Judges the sums of each second: which values of which rules are too large, for how long.
//!
//! ```text
//! watcher of a shard ──sums of a second──> windows of each rule ──value of each key──> state ──> event
//! ```
//!
//! A second is judged when all watchers have told it, so the answer depends neither on threads nor on their order.
//!
//! An alarm is raised when the value was above the threshold in all windows of `for`, and ends when it was below
//! `below` in all windows of `clear`. With a baseline the threshold is at least `factor` times the mean of the key's
//! earlier windows; windows above the threshold do not count in the mean, so an attack does not become usual.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use thalweg_flow::INTERVAL_NS;
use thalweg_flow::alarm::{Alarm, AlarmCounters, AlarmEvent, AlarmRuleCounters, ENDED, RAISED};
use thalweg_store::query::RawValue;
use thalweg_text::calendar::format_time;

use super::tally::Tally;
use super::watcher::{Told, tallies};
use crate::alarm_rules::Rule;

/// Seconds that wait to be told by all watchers; further ones are judged as they are.
const OPEN_MAX: usize = 64;
/// A step back of more seconds means that the clock was set.
const BACK_MAX: u64 = 10;
/// Active alarms; further ones are counted and not told.
pub(super) const ALARMS_MAX: usize = 1000;
/// Keys of a rule with a state, and with a baseline.
const KEYS_MAX: usize = 1 << 16;

/// Means are kept in parts.
const PART: u64 = 256;

/// A value that is, or was in the last window, above its threshold.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Seconds above the threshold; if it is active, below the end of the alarm.
    seconds: u32,
    /// The second in which it rose above the threshold.
    since: u64,
    active: bool,
    /// It was told that it is active.
    told: bool,
    peak: u64,
    threshold: u64,
}

/// One rule's sums and states.
struct Judged {
    window: Tally,
    states: HashMap<RawValue, State>,
    /// In parts of [`PART`].
    means: HashMap<RawValue, u64>,
    /// Until which second an alarm that is raised again is not told.
    silent: HashMap<RawValue, u64>,
}

pub(super) struct Judge {
    rules: Arc<[Rule]>,
    judged: Vec<Judged>,
    open: BTreeMap<u64, Vec<Tally>>,
    /// The next second to judge; `None` before the first.
    next: Option<u64>,
    pub(super) counters: AlarmCounters,
    pub(super) by_rule: Vec<AlarmRuleCounters>,
    /// Active alarms of all rules.
    active: usize,
    /// Not taken yet, in order.
    pub(super) events: Vec<AlarmEvent>,
}

impl Judge {
    pub(super) fn new(rules: Arc<[Rule]>) -> Self {
        let windows = tallies(&rules, KEYS_MAX / 2, KEYS_MAX / 16);
        let judged =
            |window| Judged { window, states: HashMap::new(), means: HashMap::new(), silent: HashMap::new() };
        Self {
            judged: windows.into_iter().map(judged).collect(),
            by_rule: rules
                .iter()
                .map(|rule| AlarmRuleCounters { rule: rule.name.clone(), ..AlarmRuleCounters::default() })
                .collect(),
            active: 0,
            rules,
            open: BTreeMap::new(),
            next: None,
            counters: AlarmCounters::default(),
            events: Vec::new(),
        }
    }

    /// Takes the sums of a shard.
    pub(super) fn take(&mut self, told: Told) {
        if let Some(next) = self.next {
            if told.interval.saturating_add(BACK_MAX) < next {
                // The clock was set back: what was before stays judged, and time goes on from here.
                self.next = Some(told.interval);
            } else if told.interval < next {
                self.counters.late += 1;
                return;
            }
        }
        match self.open.get_mut(&told.interval) {
            Some(known) => known.iter_mut().zip(told.tallies).for_each(|(ours, theirs)| ours.merge(theirs)),
            None => drop(self.open.insert(told.interval, told.tallies)),
        }
        while self.open.len() > OPEN_MAX
            && let Some(oldest) = self.open.keys().next().copied()
        {
            self.counters.late += 1;
            self.judge_until(oldest + 1);
        }
    }

    /// All watchers have told everything before this second.
    pub(super) fn judge_until(&mut self, until: u64) {
        while let Some((interval, tallies)) = self.open.pop_first() {
            if interval >= until {
                self.open.insert(interval, tallies);
                break;
            }
            self.pass_until(interval);
            for (judged, tally) in self.judged.iter_mut().zip(tallies) {
                judged.window.merge(tally);
            }
            self.end_second(interval);
        }
        // `until` is the end of time when all watchers are gone.
        if until != u64::MAX {
            self.pass_until(until);
        }
    }

    /// Passes seconds without traffic; all at once when nothing is going on.
    fn pass_until(&mut self, until: u64) {
        while let Some(next) = self.next.filter(|next| *next < until) {
            let is_idle = |judged: &Judged| judged.states.is_empty() && judged.window.is_empty();
            if self.judged.iter().all(is_idle) {
                self.next = Some(until);
                return;
            }
            self.end_second(next);
        }
        if self.next.is_none_or(|next| next < until) {
            self.next = Some(until);
        }
    }

    /// The end of the input: judges windows that are not full too.
    pub(super) fn finish(&mut self) {
        self.judge_until(u64::MAX);
        if let Some(next) = self.next {
            for number in 0..self.rules.len() {
                if !self.judged[number].window.is_empty() {
                    self.end_window(number, next.saturating_sub(1));
                }
            }
        }
    }

    fn end_second(&mut self, second: u64) {
        self.next = Some(second + 1);
        for number in 0..self.rules.len() {
            if (second + 1).is_multiple_of(u64::from(self.rules[number].window_s)) {
                self.end_window(number, second);
            }
        }
    }

    fn end_window(&mut self, number: usize, second: u64) {
        let rules = Arc::clone(&self.rules);
        let (rule, judged) = (&rules[number], &mut self.judged[number]);
        let window = judged.window.take();
        let missing = rule.measured(window.missing());
        let mut values = window.sums();
        values.values_mut().for_each(|value| *value = rule.measured(*value));
        // What was above the threshold or usual, and is not there any more, is 0.
        for key in judged.states.keys().chain(judged.means.keys()) {
            values.entry(*key).or_default();
        }
        let mut values: Vec<(RawValue, u64)> = values.into_iter().collect();
        values.sort_unstable();
        for (key, value) in values {
            let threshold = judged.threshold(rule, key);
            self.counters.uncertain +=
                u64::from(value <= threshold && value.saturating_add(missing) > threshold);
            let is_above = value > threshold;
            if let Some(baseline) = rule.baseline
                && !is_above
                && !judged.states.get(&key).is_some_and(|state| state.active)
            {
                judged.learn(key, value, (rule.window_s, baseline.window_s));
            }
            if let Some(change) = judged.step(rule, (key, value, threshold), second, self.active) {
                let counted = &mut self.by_rule[number];
                match change {
                    Change::Raised => {
                        counted.raised += 1;
                        counted.active += 1;
                        self.active += 1;
                    }
                    Change::Ended => {
                        counted.ended += 1;
                        counted.active -= 1;
                        self.active -= 1;
                    }
                    Change::Refused => self.counters.refused += 1,
                }
                let Some(event) = judged.event(rule, key, value, second, change) else { continue };
                self.events.push(event);
            }
        }
        judged.silent.retain(|_, until| *until > second);
    }

    /// The alarms that are active, by rule and value.
    pub(super) fn active(&self) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        for (rule, judged) in self.rules.iter().zip(&self.judged) {
            let mut active: Vec<_> = judged.states.iter().filter(|(_, state)| state.active).collect();
            active.sort_unstable_by_key(|(key, _)| **key);
            alarms.extend(active.into_iter().map(|(key, state)| rule.alarm(*key, state.since, state.peak)));
        }
        alarms
    }
}

/// What happened to an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Raised,
    Ended,
    /// There were too many alarms.
    Refused,
}

impl Judged {
    fn threshold(&self, rule: &Rule, key: RawValue) -> u64 {
        let usual = rule.baseline.zip(self.means.get(&key));
        let usual = usual.map_or(0, |(baseline, mean)| mean.saturating_mul(baseline.factor.into()) / PART);
        rule.above.max(usual)
    }

    /// Moves the mean toward a value, by the share that a window has in the time of learning.
    fn learn(&mut self, key: RawValue, value: u64, (window_s, learned_s): (u32, u32)) {
        let value = value.saturating_mul(PART);
        let mean = self.means.entry(key).or_default();
        let step =
            |difference: u64| difference.saturating_mul(window_s.into()) / u64::from(learned_s.max(window_s));
        *mean = if value >= *mean { *mean + step(value - *mean) } else { *mean - step(*mean - value) };
        if *mean < PART {
            self.means.remove(&key);
        } else if self.means.len() > KEYS_MAX {
            let mut all: Vec<u64> = self.means.values().copied().collect();
            let (_, middle, _) = all.select_nth_unstable(KEYS_MAX / 2);
            let middle = *middle;
            self.means.retain(|_, mean| *mean > middle);
        }
    }

    /// Follows a value through a window that ends with this second.
    fn step(
        &mut self,
        rule: &Rule,
        (key, value, threshold): (RawValue, u64, u64),
        second: u64,
        active: usize,
    ) -> Option<Change> {
        let Some(state) = self.states.get_mut(&key) else {
            if value > threshold && self.states.len() < KEYS_MAX {
                let since = (second + 1).saturating_sub(u64::from(rule.window_s));
                self.states.insert(key, State { since, ..State::default() });
                return self.step(rule, (key, value, threshold), second, active);
            }
            return None;
        };
        state.peak = state.peak.max(value);
        if state.active {
            let ends = value < rule.below.min(state.threshold);
            state.seconds = if ends { state.seconds + rule.window_s } else { 0 };
            if state.seconds < rule.clear_s.max(1) {
                return None;
            }
            return Some(Change::Ended);
        }
        if value <= threshold {
            self.states.remove(&key);
            return None;
        }
        state.seconds = state.seconds.saturating_add(rule.window_s);
        if state.seconds < rule.for_s.max(1) {
            return None;
        }
        if active >= ALARMS_MAX {
            return Some(Change::Refused);
        }
        (state.active, state.seconds, state.threshold) = (true, 0, threshold);
        state.told = self.silent.get(&key).is_none_or(|until| *until <= second);
        Some(Change::Raised)
    }

    /// The event of a change, unless it is not told.
    fn event(
        &mut self,
        rule: &Rule,
        key: RawValue,
        value: u64,
        second: u64,
        change: Change,
    ) -> Option<AlarmEvent> {
        let state = match change {
            Change::Refused => return None,
            Change::Raised => *self.states.get(&key)?,
            Change::Ended => self.states.remove(&key)?,
        };
        // An end that was not told begins no silence: one that comes and goes is told again.
        if change == Change::Ended && state.told && rule.silence_s > 0 && self.silent.len() < KEYS_MAX {
            self.silent.insert(key, second + 1 + u64::from(rule.silence_s));
        }
        let alarm = rule.alarm(key, state.since, state.peak);
        let at_ns = (second + 1).saturating_mul(INTERVAL_NS);
        let event = if change == Change::Raised { RAISED } else { ENDED };
        let State { told, threshold, .. } = state;
        told.then(|| AlarmEvent { at: format_time(at_ns), event: event.to_owned(), value, threshold, alarm })
    }
}
