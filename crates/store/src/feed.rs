//! A feed: everything that is written to a dataset goes on to another place, a topic of Kafka for one, each record once.
//!
//! ```text
//! records --> files (synced) --> read in the order of their numbers --> batches, each taken whole with its position
//! ```
//!
//! The dataset is the journal. A file is sent when it has its name on disk, so what a killed program loses is in neither
//! place. The place takes a batch and its [`Position`] together or not at all, and is asked for the position first: a
//! batch of which nobody heard is not sent again. Where the feed is, is in `DIR/.feed` too, file by file, for a place that
//! forgets (`feed::state`).
//!
//! Joining makes files of what others had. Only files that were sent are joined while there is a feed, so a file that
//! replaces others is never sent; those from before the feed began are, since they have smaller numbers than its first.
//! Retention by age removes only what was sent; what must go for lack of room before is counted.
//!
//! Two places at once, and sending again what was sent, are not possible. `DIR/.feed` may be removed while nobody writes:
//! then the feed begins anew.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_flow::FlowRecord;
use thalweg_flow::fields::Field;

use crate::block::Block;
use crate::dataset::{self, file_id};
use crate::error::StoreError;
use crate::file::FlowFile;
use crate::upkeep::{Changes, Upkeep};

pub(crate) mod state;

use state::{Fed, STATE};

/// The most records of a batch; in tests, fewer than files have.
const BATCH_RECORDS: usize = if cfg!(test) { 16 } else { 32_768 };

/// A place that takes the records of datasets.
pub trait Feed: Send + Sync + fmt::Debug {
    /// Its address.
    fn name(&self) -> &str;

    /// What of it stays the same while its servers come and go.
    fn identity(&self) -> &str;

    /// Begins to send as this writer, a name that no other has; who still sends as the same one is shut out. `goes_on`
    /// ends it early, with an error.
    fn begin(&self, writer: &str, goes_on: &dyn Fn() -> bool) -> io::Result<Box<dyn FeedSession>>;
}

/// The right to send as a writer.
pub trait FeedSession: Send {
    /// How far the place has this writer's records.
    fn position(&self) -> Option<Position>;

    /// Sends records, which reach to a position. After an error nobody knows whether they arrived: the session is over.
    fn send(&mut self, records: &[FlowRecord], to: Position, goes_on: &dyn Fn() -> bool) -> io::Result<()>;
}

/// A place in what a writer has written: so many rows of the file with a number, and all files with smaller ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub file: u64,
    pub rows: u64,
}

/// Records on their way, and where they reach to.
struct Batch<'a> {
    session: &'a mut dyn FeedSession,
    name: &'a Path,
    records: Vec<FlowRecord>,
    at: Position,
}

impl Batch<'_> {
    /// Sends them if there are any.
    fn send(&mut self, changes: &Changes, done: &mut Upkeep) -> Result<(), StoreError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let sent = self.session.send(&self.records, self.at, &|| !changes.is_ending());
        sent.map_err(StoreError::io("send records to", self.name))?;
        done.records_fed += self.records.len() as u64;
        self.records.clear();
        Ok(())
    }
}

impl Changes {
    /// Sends what was not sent, and counts it.
    pub(crate) fn feed(
        &self,
        feed: &dyn Feed,
        session: &mut Option<Box<dyn FeedSession>>,
        done: &mut Upkeep,
    ) -> Result<(), StoreError> {
        let fed = self.fed_to(feed)?;
        let files = self.unfed(&fed)?;
        if files.is_empty() {
            return Ok(());
        }
        let name = Path::new(feed.name());
        let open = match session {
            Some(session) => session,
            None => {
                let begun = feed.begin(&fed.writer, &|| !self.is_ending());
                session.insert(begun.map_err(StoreError::io("send records to", name))?)
            }
        };
        let mut batch = Batch {
            at: open.position().unwrap_or_default(),
            session: open.as_mut(),
            name,
            records: Vec::new(),
        };
        let sent = self.send_files(fed, &files, &mut batch, done);
        if sent.is_err() {
            *session = None;
        }
        sent
    }

    fn send_files(
        &self,
        mut fed: Fed,
        files: &[(u64, PathBuf)],
        batch: &mut Batch<'_>,
        done: &mut Upkeep,
    ) -> Result<(), StoreError> {
        let mut complete = fed.sent;
        for (id, path) in files {
            if self.is_ending() {
                return Ok(());
            }
            let before = done.records_fed;
            // A file behind the position has arrived.
            if *id >= batch.at.file {
                self.read_file(*id, path, batch, done)?;
            }
            if done.records_fed > before {
                // What is on its way begins behind the last complete file.
                fed = self.note_sent(fed, complete)?;
            }
            complete = *id;
            done.files_fed += 1;
        }
        batch.send(self, done)?;
        self.note_sent(fed, complete).map(drop)
    }

    /// Adds a file's records to those on their way, but for those that have arrived; sends them whenever they are many.
    fn read_file(
        &self,
        id: u64,
        path: &Path,
        batch: &mut Batch<'_>,
        done: &mut Upkeep,
    ) -> Result<(), StoreError> {
        let mut skip = if batch.at.file == id { batch.at.rows } else { 0 };
        let file = match FlowFile::open(path) {
            // It had to make room, which is counted, or readers say that it is damaged.
            Err(error) if error.is_unreadable() => return Ok(()),
            opened => opened?,
        };
        // What is there is to be here, whatever happens to this machine.
        path.parent().map_or(Ok(()), dataset::sync_folder)?;
        let mut rows = 0;
        for (number, group) in file.row_groups.iter().enumerate() {
            let skipped = skip.min(group.rows as u64);
            skip -= skipped;
            rows += skipped;
            let first = usize::try_from(skipped).unwrap_or(group.rows);
            if first == group.rows {
                continue;
            }
            let mut block = Block::new(group.rows);
            file.load(number, Field::STORED, &mut block)?;
            for row in first..group.rows {
                if batch.records.len() == BATCH_RECORDS {
                    batch.send(self, done)?;
                }
                batch.records.push(block.record(row)?);
                rows += 1;
                batch.at = Position { file: id, rows };
            }
        }
        Ok(())
    }

    /// Writes down that the records of files up to this number were sent.
    fn note_sent(&self, fed: Fed, complete: u64) -> Result<Fed, StoreError> {
        let fed = Fed { sent: complete.max(fed.sent), ..fed };
        fed.save(&self.root)?;
        *self.fed.lock() = Ok(Some(fed.clone()));
        Ok(fed)
    }

    /// Where the feed is; begins one if there is none.
    pub(crate) fn fed_to(&self, feed: &dyn Feed) -> Result<Fed, StoreError> {
        let mut known = self.fed.lock();
        let unreadable = |what: String| StoreError::Unreadable { path: self.root.join(STATE), what };
        match &*known {
            Err(what) => Err(unreadable(what.clone())),
            Ok(Some(fed)) if fed.to != feed.identity() => Err(unreadable(format!(
                "records of this folder go to {}, and what was sent there is not sent to {} again: remove this file to send \
                 everything there",
                fed.to,
                feed.identity()
            ))),
            Ok(Some(fed)) => Ok(fed.clone()),
            Ok(None) => {
                let fed = Fed::begin(&self.root, feed.identity(), self.id())?;
                *known = Ok(Some(fed.clone()));
                Ok(fed)
            }
        }
    }

    /// Files that were not sent, in the order of their numbers.
    fn unfed(&self, fed: &Fed) -> Result<Vec<(u64, PathBuf)>, StoreError> {
        // Those of one write get their names together.
        let files = {
            let _names = self.publish.lock();
            dataset::list(&self.root, dataset::Window::ALL)?
        };
        let mut unsent = Vec::new();
        for path in files {
            match fed.lacks(&path) {
                Ok(Some(id)) => unsent.push((id, path)),
                Ok(None) => {}
                // It is gone, or damaged as readers say.
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        unsent.sort_unstable();
        Ok(unsent)
    }

    /// Whether a file may be joined with others, as far as a feed is concerned.
    pub(crate) fn may_join(&self, file: &FlowFile) -> bool {
        let replaces = || Ok::<_, Infallible>(!file.replaces.is_empty());
        match &*self.fed.lock() {
            Ok(None) => true,
            Ok(Some(fed)) => file_id(&file.path).is_some_and(|id| fed.has(id, replaces) == Ok(true)),
            Err(_) => false,
        }
    }

    /// Whether the feed, if there is one, does not need a file any more.
    pub(crate) fn is_fed(&self, path: &Path) -> bool {
        let lacks = |fed: &Fed| !matches!(fed.lacks(path), Ok(None));
        !self.feeds || dataset::is_rollup(path) || matches!(&*self.fed.lock(), Ok(Some(fed)) if !lacks(fed))
    }
}

#[cfg(test)]
mod tests;
