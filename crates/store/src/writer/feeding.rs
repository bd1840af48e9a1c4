//! The thread that sends records on as soon as they are on disk, those of writers that have ended too.

use std::cell::Cell;
use std::time::Instant;

use super::Shared;
use super::others::{Improper, Other};
use crate::error::StoreError;
use crate::feed::Feed;
use crate::upkeep::Upkeep;

impl Shared {
    /// The body of the feeding thread, which may wait for the feed's place for long.
    pub(super) fn feed(&self) {
        // Whether folders of others are due: to look at them takes reading all their footers, so not after each own file.
        let (seen, are_due) = (Cell::new(0), Cell::new(true));
        let longest = *self.options.retry.end();
        self.repeat(
            longest,
            |state| state.status.files_published > seen.get(),
            || {
                let published = self.state().status.files_published;
                let is_interval = seen.replace(published) == published;
                let with_others = are_due.get() || is_interval;
                let has_succeeded = self.feed_round(with_others).is_ok();
                are_due.set(with_others && !has_succeeded);
                has_succeeded
            },
        );
    }

    /// Sends what was not sent, by others too.
    pub(super) fn feed_once(&self) -> Result<Upkeep, StoreError> {
        self.feed_round(true)
    }

    fn feed_round(&self, with_others: bool) -> Result<Upkeep, StoreError> {
        let Some(feed) = self.options.feed.as_deref() else { return Ok(Upkeep::default()) };
        let mut done = Upkeep::default();
        let fed = self.changes.feed(feed, &mut self.session.lock(), &mut done);
        let fed = fed.and_then(|()| if with_others { self.feed_of_others(feed, &mut done) } else { Ok(()) });
        // Who ends has not failed.
        let fed = fed.or_else(|error| if self.changes.is_ending() { Ok(()) } else { Err(error) });
        self.state().status.upkeep.add(&done);
        self.note_fed(fed.as_ref().err());
        fed.map(|()| done)
    }

    /// Does the same for writers that have ended.
    fn feed_of_others(&self, feed: &dyn Feed, done: &mut Upkeep) -> Result<(), StoreError> {
        self.in_others(Improper::Left, |_, other| match other {
            Other::Ended(changes) => changes.feed(feed, &mut None, done),
            Other::Busy => Ok(()),
        })
    }

    pub(super) fn note_fed(&self, error: Option<&StoreError>) {
        let Some(feed) = &self.options.feed else { return };
        let mut state = self.state();
        state.status.feed_error = error.map(StoreError::to_string);
        state.status.feed_errors += u64::from(error.is_some());
        let told = state.feed_trouble.turn(error.is_some(), Instant::now());
        drop(state);
        self.tell_sending(told, ("sent", feed.name()), error);
    }
}
