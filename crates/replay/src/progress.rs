//! Reports the progress of a run from a second thread.

use crate::ReplayProgress;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use thalweg_ports::Progress;

/// How often progress is reported.
const INTERVAL: Duration = Duration::from_millis(200);

/// Runs `work`, while a second thread reports the reader's counters.
pub(crate) fn watched<R>(counters: &Progress, listener: &dyn ReplayProgress, work: impl FnOnce() -> R) -> R {
    thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(INTERVAL) {
                let fraction = counters
                    .bytes_total()
                    .filter(|total| *total > 0)
                    .map(|total| counters.bytes_read() as f64 / total as f64);
                listener.advanced(counters.packets(), fraction);
            }
        });
        let result = work();
        drop(done);
        result
    })
}
