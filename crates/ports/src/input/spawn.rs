//! Runs the reader on its own thread, behind a bounded queue.

use super::{FileSource, InputError, InputReport, Progress};
use crossbeam_channel::{Receiver, bounded};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use thalweg_base::Chunk;

/// The thread's result.
type Outcome = (InputReport, Result<(), InputError>);

/// The receiving end of a reader's queue. Iterate over it (or call [`recv`](Self::recv)) until the end, then
/// [`finish`](Self::finish) returns the result.
#[derive(Debug)]
pub struct ChunkReceiver {
    chunks: Receiver<Chunk>,
    thread: JoinHandle<Outcome>,
    progress: Arc<Progress>,
}

impl FileSource {
    /// Reads on a new thread into a queue of at most `queue_chunks` chunks. There must be enough slabs for
    /// these and the chunks that the receiver holds: with fewer the reader only waits, unless the receiver
    /// needs to hold more at once than exist.
    pub fn spawn(mut self, queue_chunks: usize) -> Result<ChunkReceiver, InputError> {
        let (sender, chunks) = bounded(queue_chunks.max(1));
        let progress = self.progress();
        let work = move || {
            loop {
                match self.next_chunk() {
                    Ok(Some(chunk)) => {
                        if sender.send(chunk).is_err() {
                            // The receiver is gone.
                            return (self.reporter.into_report(), Ok(()));
                        }
                    }
                    Ok(None) => return (self.reporter.into_report(), Ok(())),
                    Err(error) => return (self.reporter.into_report(), Err(error)),
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("input".into()).spawn(work).map_err(InputError::Thread)?;
        Ok(ChunkReceiver { chunks, thread, progress })
    }
}

impl ChunkReceiver {
    /// The next chunk; waits for it. `None` at the end or at an error.
    pub fn recv(&self) -> Option<Chunk> {
        self.chunks.recv().ok()
    }

    /// The queue itself, for selecting over several.
    pub fn queue(&self) -> &Receiver<Chunk> {
        &self.chunks
    }

    /// Shared counters of the progress.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Waits for the reader's end and returns its report, even if it ended with an error. An early call stops
    /// the reader at its next chunk. That may never come from a silent pipe, nor while the caller keeps the
    /// chunks of all slabs: drop them first.
    pub fn finish(self) -> (InputReport, Result<(), InputError>) {
        drop(self.chunks);
        self.thread.join().unwrap_or_else(|_| {
            let error = io::Error::other("panicked");
            (InputReport::default(), Err(InputError::Thread(error)))
        })
    }
}

impl Iterator for ChunkReceiver {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        self.recv()
    }
}
