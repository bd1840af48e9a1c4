//! The latest failures of a thread, for `show`.

use std::collections::VecDeque;

/// Failures kept.
const KEPT: usize = 16;

/// The latest is last.
#[derive(Default)]
pub(crate) struct Failures(VecDeque<String>);

impl Failures {
    /// Adds a failure; returns whether it differs from the previous one.
    pub(crate) fn push(&mut self, what: &str) -> bool {
        let is_news = self.0.back().is_none_or(|last| last != what);
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(what.to_owned());
        is_news
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}
