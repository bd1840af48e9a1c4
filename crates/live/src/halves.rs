//! Passes receiving halves from a reload to the thread that receives.
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_ports::live::{LiveSource, PortRx};

use crate::lanes::QueueRx;

/// A change to a source's halves.
#[derive(Default)]
pub(crate) struct HalvesChange {
    /// Ports whose halves the source releases.
    pub(crate) gone: Vec<u16>,
    pub(crate) new: Vec<QueueRx>,
    /// The longest frame of any port, in bytes.
    pub(crate) frame_bytes_max: usize,
}

/// Where a change waits for its source, and released halves wait to be closed by the reload: closing takes longer
/// than packets may wait.
#[derive(Clone, Default)]
pub(crate) struct HalvesSlot(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    change: Option<HalvesChange>,
    back: Vec<Box<dyn PortRx>>,
}

impl HalvesSlot {
    /// Leaves a change for the source.
    pub(crate) fn put(&self, change: HalvesChange) {
        self.0.lock().change = Some(change);
    }

    /// Called by the source: applies a waiting change, also to `queues`, the port and number of each queue.
    pub(crate) fn apply(&self, source: &mut LiveSource, queues: &mut Vec<(u16, u16)>) {
        let mut slot = self.0.lock();
        let Some(HalvesChange { gone, new, frame_bytes_max }) = slot.change.take() else { return };
        queues.retain(|(port, _)| !gone.contains(port));
        queues.extend(new.iter().map(|half| (half.port, half.queue)));
        let new = new.into_iter().map(|half| (half.port, half.rx)).collect();
        let mut back = source.exchange(&gone, new, frame_bytes_max);
        slot.back.append(&mut back);
    }

    /// Waits until the source has applied the change, and closes released halves. Returns whether it was in time.
    pub(crate) fn wait_until_taken(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        loop {
            let (is_taken, back) = {
                let mut slot = self.0.lock();
                (slot.change.is_none(), std::mem::take(&mut slot.back))
            };
            drop(back);
            if is_taken || Instant::now() >= until {
                return is_taken;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}
