//! Listeners to new records: live queries (`crate::live`), and `flows list --follow`.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_flow::FlowRecord;

use super::Shared;
use crate::dataset::{self, Window};
use crate::error::StoreError;
use crate::live::Note;

/// Receives new records or notes of them.
pub(super) struct Listener {
    number: u64,
    what: What,
    /// The most records or notes that are kept.
    room: usize,
    /// Records for which there was no room.
    missed: u64,
}

/// What is kept for the listener.
enum What {
    Notes(Vec<Note>),
    Records(VecDeque<Arc<[FlowRecord]>>),
}

impl Listener {
    pub(super) fn take(&mut self, batch: &Arc<[FlowRecord]>) {
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

/// A registered listener; dropping it ends the registration.
pub(crate) struct Listening {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.shared.state().listeners.retain(|listener| listener.number != self.number);
    }
}

/// The state of a writer at one moment.
pub(crate) struct Moment {
    /// Names of all files of a window, relative to the dataset.
    pub(crate) files: Vec<String>,
    /// Records that are in no file yet.
    pub(crate) pending: Vec<Arc<[FlowRecord]>>,
    /// Notes of records that arrived since the listener was registered.
    pub(crate) notes: Vec<Note>,
    /// Whether there was room for all notes.
    pub(crate) notes_whole: bool,
}

impl Shared {
    /// Registers a listener that keeps at most this many notes.
    pub(crate) fn listen_for_notes(self: &Arc<Self>, max: usize) -> Listening {
        self.listen(What::Notes(Vec::new()), max)
    }

    /// Registers a listener that keeps at most this many records.
    pub(crate) fn listen_for_records(self: &Arc<Self>, max: usize) -> Listening {
        self.listen(What::Records(VecDeque::new()), max)
    }

    fn listen(self: &Arc<Self>, what: What, room: usize) -> Listening {
        let mut state = self.state();
        let number = state.next_tap;
        state.next_tap += 1;
        state.listeners.push(Listener { number, what, room, missed: 0 });
        drop(state);
        Listening { shared: Arc::clone(self), number }
    }

    /// The records since the last call, and the number of those for which there was no room.
    pub(crate) fn drain(&self, listening: &Listening) -> (Vec<Arc<[FlowRecord]>>, u64) {
        let mut state = self.state();
        let Some(listener) = state.listeners.iter_mut().find(|listener| listener.number == listening.number)
        else {
            return (Vec::new(), 0);
        };
        let batches: Vec<_> = match &mut listener.what {
            What::Records(batches) => batches.drain(..).collect(),
            What::Notes(_) => Vec::new(),
        };
        listener.room += batches.iter().map(|batch| batch.len()).sum::<usize>();
        (batches, std::mem::take(&mut listener.missed))
    }

    /// The current state; no file changes its name meanwhile. Takes the notes of a listener.
    pub(crate) fn moment(&self, window: Window, listening: &Listening) -> Result<Moment, StoreError> {
        let root = &self.changes.root;
        let _names = self.changes.publish.lock();
        let files = dataset::list(root, window)?;
        let files = files.iter().filter_map(|path| path.strip_prefix(root).ok()?.to_str().map(str::to_owned));
        let files = files.collect();
        let mut state = self.state();
        let pending = state.pending.iter().cloned().collect();
        let (mut notes, mut notes_whole) = (Vec::new(), false);
        if let Some(listener) =
            state.listeners.iter_mut().find(|listener| listener.number == listening.number)
            && let What::Notes(kept) = &mut listener.what
        {
            (notes, notes_whole) = (std::mem::take(kept), listener.missed == 0);
        }
        Ok(Moment { files, pending, notes, notes_whole })
    }
}
