//! Notices to the operator of a dataset's writer: a problem is reported when it begins, once a minute while it lasts,
//! and when it ends.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a continuing problem is reported again.
const REPEAT_EVERY: Duration = Duration::from_secs(60);

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Normal operation, as configured.
    Info,
    /// The operator should look into it.
    Warning,
}

type Sink = dyn Fn(Severity, &str) + Send + Sync;

/// Where messages for the operator go; nowhere by default.
#[derive(Clone, Default)]
pub struct Notify(Option<Arc<Sink>>);

impl Notify {
    /// Calls `sink` with each message, from any thread. It must not block.
    pub fn new(sink: impl Fn(Severity, &str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Reports normal operation.
    pub fn info(&self, text: &str) {
        self.0.iter().for_each(|sink| sink(Severity::Info, text));
    }

    /// Reports a problem.
    pub fn warn(&self, text: &str) {
        self.0.iter().for_each(|sink| sink(Severity::Warning, text));
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notify").field(&self.0.is_some()).finish()
    }
}

/// A problem that comes and goes.
#[derive(Debug, Default)]
pub struct Trouble {
    since: Option<Instant>,
    told: Option<Instant>,
}

impl Trouble {
    /// Whether the problem lasts.
    pub fn lasts(&self) -> bool {
        self.since.is_some()
    }

    /// Notes that the problem exists now; returns whether to report it.
    pub fn note(&mut self, now: Instant) -> bool {
        self.since.get_or_insert(now);
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= REPEAT_EVERY);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }

    /// Ends the problem; returns how long it lasted if it was reported. A problem that comes and goes quickly
    /// is not reported every time.
    pub fn end(&mut self, now: Instant) -> Option<Duration> {
        let since = self.since.take()?;
        let was_told = self.told.is_some_and(|told| told >= since);
        was_told.then(|| now.saturating_duration_since(since))
    }

    /// [`Self::note`] or [`Self::end`], as the problem is there or not: a time if either is to be reported.
    pub(crate) fn turn(&mut self, is_there: bool, now: Instant) -> Option<Duration> {
        if is_there { self.note(now).then_some(Duration::ZERO) } else { self.end(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_at_once_and_then_once_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut trouble = Trouble::default();
        assert_eq!(trouble.end(at(0)), None);
        let told: Vec<u64> = (0..150).filter(|second| trouble.note(at(*second))).collect();
        assert_eq!(told, [0, 60, 120]);
        assert!(trouble.lasts());
        assert_eq!(trouble.end(at(150)), Some(Duration::from_secs(150)));
        assert!(!trouble.lasts() && !trouble.note(at(151)), "it came back too soon to be told again");
        assert_eq!(trouble.end(at(152)), None, "nobody heard of it");
        assert!(trouble.note(at(200)), "a minute after it was told last");
    }
}
