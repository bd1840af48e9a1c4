//! The latest failures of a thread, for `show`.

use std::collections::VecDeque;

/// How many are kept.
const KEPT: usize = 16;

/// The latest last.
#[derive(Default)]
pub(crate) struct Failures(VecDeque<String>);

impl Failures {
    /// Keeps one; whether it is another than the one before.
    pub(crate) fn push(&mut self, what: &str) -> bool {
        let is_news = self.0.back().is_none_or(|last| last != what);
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(what.to_owned());
        is_news
    }

    /// All that are kept.
    pub(crate) fn list(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}
