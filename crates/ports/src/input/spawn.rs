//! The reader on a thread of its own, behind a bounded queue.

use super::{FileSource, InputError, InputReport, Progress};
use crossbeam_channel::{Receiver, bounded};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use thalweg_base::Chunk;

/// What the thread leaves behind.
type Outcome = (InputReport, Result<(), InputError>);

/// The receiving end of a reader's queue. Iterate over it (or call [`recv`](Self::recv)) until the end,
/// then ask [`finish`](Self::finish) how it went.
#[derive(Debug)]
pub struct ChunkReceiver {
    chunks: Receiver<Chunk>,
    thread: JoinHandle<Outcome>,
    progress: Arc<Progress>,
}

impl FileSource {
    /// Reads on a new thread into a queue of at most `queue_chunks` chunks. The slabs must suffice for
    /// those and the ones in the hands of the receiver: with fewer it merely waits, unless the receiver
    /// wants to hold more at once than there are.
    pub fn spawn(mut self, queue_chunks: usize) -> Result<ChunkReceiver, InputError> {
        let (sender, chunks) = bounded(queue_chunks.max(1));
        let progress = self.progress();
        let work = move || {
            loop {
                match self.next_chunk() {
                    Ok(Some(chunk)) => {
                        if sender.send(chunk).is_err() {
                            // Nobody is listening any more.
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
    /// The next chunk, waiting for it; `None` at the end or at an error.
    pub fn recv(&self) -> Option<Chunk> {
        self.chunks.recv().ok()
    }

    /// The queue itself, for those who select over several.
    pub fn queue(&self) -> &Receiver<Chunk> {
        &self.chunks
    }

    /// Shared counters of what has been read so far.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Waits for the reader's end and says what it saw, also if it ended with an error. Called early, it
    /// stops the reader at its next chunk, which for a silent pipe may never come, nor while the caller
    /// keeps all the slabs' chunks: drop them first.
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
