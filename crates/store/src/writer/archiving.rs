//! The thread that archives complete hours and rollups, keeps the archive's table, and removes old hours there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::lock::Lock;
use super::others::{Improper, Other};
use super::{Shared, State};
use crate::archive::{self, Within, expiry};
use crate::dataset;
use crate::error::{StoreError, megabytes};
use crate::iceberg::archived::ArchivedTable;
use crate::upkeep::{Changes, Upkeep};

/// A round of the thread.
struct Round<'a> {
    within: Within<'a>,
    now_ns: u64,
    table: &'a mut ArchivedTable,
    done: Upkeep,
    /// Why the table lacks something.
    behind: Option<StoreError>,
}

impl Round<'_> {
    /// Archives what a writer's folder has.
    fn archive(&mut self, part: &str, changes: &Changes) -> Result<(), StoreError> {
        let (store, mut days) = (self.within.store.as_ref(), BTreeSet::new());
        let archived = changes.archive(store, self.now_ns, &mut self.done, &mut days);
        self.table.note(part, days);
        self.commit(part);
        archived.and_then(|()| changes.archive_rollups(store, &mut self.done))
    }

    /// Brings the table up to date with the objects of a writer's folder.
    fn commit(&mut self, part: &str) {
        if let Err(error) = self.table.commit(self.within, part, &[]) {
            self.behind.get_or_insert(error);
        }
    }
}

impl Shared {
    /// The body of the archiving thread, which may wait for a store for long. After a failure it tries again at growing
    /// intervals, the longest of which is that of upkeep.
    pub(super) fn archive(&self) {
        self.repeat(self.interval(), |_| false, || self.archive_once().is_ok());
    }

    /// Between two rounds of upkeep.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(self.options.upkeep_interval_s)
    }

    /// Does something at once, then at the intervals of upkeep or when it is due earlier, until the writer ends. After a failure
    /// it waits for a moment, and each time for twice as long, up to a longest time.
    pub(super) fn repeat(
        &self,
        longest: Duration,
        is_due: impl Fn(&State) -> bool,
        mut succeeds: impl FnMut() -> bool,
    ) {
        let first = (*self.options.retry.start()).min(longest);
        let mut retry = first;
        loop {
            let has_succeeded = succeeds();
            let pause = if has_succeeded { self.interval() } else { retry };
            retry = if has_succeeded { first } else { (retry * 2).min(longest) };
            let until = Instant::now() + pause;
            let mut state = self.state();
            while !state.closing && Instant::now() < until && !(has_succeeded && is_due(&state)) {
                self.work.wait_until(&mut state, until);
            }
            if state.closing {
                return;
            }
        }
    }

    /// Archives complete hours, of writers that have ended properly too, and removes old ones there.
    pub(super) fn archive_once(&self) -> Result<Upkeep, StoreError> {
        let Some(store) = &self.options.archive else { return Ok(Upkeep::default()) };
        let goes_on = || !self.changes.is_ending();
        let within = Within { store, goes_on: &goes_on };
        let mut table = self.archived.lock();
        let now_ns = (self.options.now_ns)();
        let mut round = Round { within, now_ns, table: &mut table, done: Upkeep::default(), behind: None };
        let archived = round.archive(dataset::writer_of(self.root()), &self.changes);
        let archived = archived.and_then(|()| self.archive_of_others(&mut round));
        let expired = self.expire(&mut round);
        let Round { done, behind, .. } = round;
        // Who ends has not failed.
        let expired = behind.map_or(Ok(()), Err).and(expired);
        let expired = expired.or_else(|error| if goes_on() { Err(error) } else { Ok(()) });
        self.state().status.upkeep.add(&done);
        self.note_archived(store.name(), archived.as_ref().err());
        if done.objects_expired > 0 {
            let (name, count, size) =
                (store.name(), done.objects_expired, megabytes(done.object_bytes_expired));
            self.options.notify.info(&format!("{name}: {count} files ({size}) were removed, by their age"));
        }
        if let Err(error) = &expired {
            self.note_upkeep_failure(error);
        }
        archived.and(expired).map(|()| done)
    }

    fn archive_of_others(&self, round: &mut Round<'_>) -> Result<(), StoreError> {
        self.in_others(Improper::Left, |folder, other| {
            let part = dataset::writer_of(folder);
            match other {
                Other::Ended(changes) => return round.archive(part, changes),
                Other::Busy => round.table.forget(part),
            }
            Ok(())
        })
    }

    /// Removes hours in the archive that are too old, of writers' folders where no other program writes: that one does as it
    /// was told. The table lets go of objects before they are removed.
    fn expire(&self, round: &mut Round<'_>) -> Result<(), StoreError> {
        let Some(limits) = expiry::Limits::new(round.now_ns, self.options.retention) else { return Ok(()) };
        for (part, days) in expiry::old_days(round.within, limits)? {
            let Some(lock) = self.hold(&part)? else { continue };
            let expired = expiry::old_objects(round.within, limits, &days).and_then(|old| {
                let of_table = old.iter().map(|(key, _)| key).filter(|key| archive::hour_of(key).is_some());
                let going: Vec<String> = of_table.cloned().collect();
                if !going.is_empty() {
                    round.table.commit(round.within, &part, &going)?;
                }
                expiry::remove(round.within, &old, &mut round.done)
            });
            if let Held::Lock(mut lock) = lock {
                lock.release(false)?;
            }
            expired?;
        }
        Ok(())
    }

    /// The right to remove objects of a writer's folder; `None` if another program has it.
    fn hold(&self, part: &str) -> Result<Option<Held>, StoreError> {
        let home = dataset::home(self.root());
        let number = part.strip_prefix(dataset::PART);
        if number.is_some_and(|number| number.parse::<u64>().is_err()) {
            return Ok(None);
        }
        let folder = if part.is_empty() { home.to_path_buf() } else { home.join(part) };
        if folder == self.root() || !folder.is_dir() {
            return Ok(Some(Held::Free));
        }
        match Lock::take(&folder) {
            Err(StoreError::Busy { .. }) => Ok(None),
            taken => Ok(Some(Held::Lock(taken?.0))),
        }
    }

    fn note_archived(&self, name: &str, error: Option<&StoreError>) {
        self.tell_damaged();
        let mut state = self.state();
        state.status.archive_error = error.map(StoreError::to_string);
        state.status.archive_errors += u64::from(error.is_some());
        let told = state.archive_trouble.turn(error.is_some(), Instant::now());
        drop(state);
        self.tell_sending(told, ("archived", name), error);
    }

    /// Tells, if that is due, why not everything is sent, or for how long that was so.
    pub(super) fn tell_sending(
        &self,
        due: Option<Duration>,
        (done, to): (&str, &str),
        error: Option<&StoreError>,
    ) {
        let Some(lasted) = due.map(|lasted| lasted.as_secs()) else { return };
        let (root, notify) = (self.changes.root.display(), &self.options.notify);
        match error {
            Some(error) => notify.warn(&format!(
                "not everything is {done}: {error}; files stay in {root}, and it is tried again"
            )),
            None => notify.info(&format!("{root} is {done} to {to} again, after {lasted} s")),
        }
    }
}

/// The right to remove a folder's objects.
enum Held {
    /// Nobody else has it: the folder is this writer's, or is no more.
    Free,
    Lock(Lock),
}
