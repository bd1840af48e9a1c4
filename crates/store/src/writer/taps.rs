//! Who listens in while records come in: questions that are being answered (`crate::live`), and people who follow.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_flow::FlowRecord;

use super::Shared;
use crate::dataset::{self, Window};
use crate::error::StoreError;
use crate::live::Note;

/// Somebody who listens in.
pub(super) struct Tap {
    number: u64,
    what: What,
    /// Records that are kept of what comes in, or of which notes are.
    room: usize,
    /// Records for which there was no room.
    missed: u64,
}

/// What is kept for him.
enum What {
    Notes(Vec<Note>),
    Records(VecDeque<Arc<[FlowRecord]>>),
}

impl Tap {
    /// Takes what comes in.
    pub(super) fn hear(&mut self, batch: &Arc<[FlowRecord]>) {
        if batch.len() > self.room {
            self.missed += batch.len() as u64;
            return;
        }
        self.room -= batch.len();
        match &mut self.what {
            What::Notes(notes) => notes.extend(batch.iter().map(Note::of)),
            What::Records(batches) => batches.push_back(Arc::clone(batch)),
        }
    }
}

/// A tap, for as long as it is held.
pub(crate) struct Tapped {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Tapped {
    fn drop(&mut self) {
        self.shared.state().taps.retain(|tap| tap.number != self.number);
    }
}

/// What a writer has at a moment.
pub(crate) struct Moment {
    /// Names of all files of a window, relative to the dataset.
    pub(crate) files: Vec<String>,
    /// What is in none of them yet.
    pub(crate) pending: Vec<Arc<[FlowRecord]>>,
    /// Notes of what has come in since the tap was made.
    pub(crate) notes: Vec<Note>,
    /// Whether there was room for all of them.
    pub(crate) notes_whole: bool,
}

impl Shared {
    /// Keeps notes of so many records that come in from now on.
    pub(crate) fn tap_notes(self: &Arc<Self>, max: usize) -> Tapped {
        self.tap(What::Notes(Vec::new()), max)
    }

    /// Keeps so many records that come in from now on.
    pub(crate) fn tap_records(self: &Arc<Self>, max: usize) -> Tapped {
        self.tap(What::Records(VecDeque::new()), max)
    }

    fn tap(self: &Arc<Self>, what: What, room: usize) -> Tapped {
        let mut state = self.state();
        let number = state.next_tap;
        state.next_tap += 1;
        state.taps.push(Tap { number, what, room, missed: 0 });
        drop(state);
        Tapped { shared: Arc::clone(self), number }
    }

    /// What came in since the last time, and how many records found no room.
    pub(crate) fn drain(&self, tapped: &Tapped) -> (Vec<Arc<[FlowRecord]>>, u64) {
        let mut state = self.state();
        let Some(tap) = state.taps.iter_mut().find(|tap| tap.number == tapped.number) else {
            return (Vec::new(), 0);
        };
        let batches: Vec<_> = match &mut tap.what {
            What::Records(batches) => batches.drain(..).collect(),
            What::Notes(_) => Vec::new(),
        };
        tap.room += batches.iter().map(|batch| batch.len()).sum::<usize>();
        (batches, std::mem::take(&mut tap.missed))
    }

    /// What there is now: no file changes its name while this looks. Takes the notes of a tap.
    pub(crate) fn moment(&self, window: Window, tapped: &Tapped) -> Result<Moment, StoreError> {
        let root = &self.changes.root;
        let _names = self.changes.publish.lock();
        let files = dataset::list(root, window)?;
        let files = files.iter().filter_map(|path| path.strip_prefix(root).ok()?.to_str().map(str::to_owned));
        let files = files.collect();
        let mut state = self.state();
        let pending = state.pending.iter().cloned().collect();
        let (mut notes, mut notes_whole) = (Vec::new(), false);
        if let Some(tap) = state.taps.iter_mut().find(|tap| tap.number == tapped.number)
            && let What::Notes(kept) = &mut tap.what
        {
            (notes, notes_whole) = (std::mem::take(kept), tap.missed == 0);
        }
        Ok(Moment { files, pending, notes, notes_whole })
    }
}
