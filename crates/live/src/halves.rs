//! Receiving halves that come and go, on their way from a reload to the thread that receives.
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_ports::live::{LiveSource, PortRx};

use crate::lanes::QueueRx;

/// What a source has to do differently.
#[derive(Default)]
pub(crate) struct HalvesChange {
    /// Ports whose halves it gives back.
    pub(crate) gone: Vec<u16>,
    /// Halves that it has from now on.
    pub(crate) new: Vec<QueueRx>,
    /// The longest frame of any port.
    pub(crate) frame_bytes_max: usize,
}

/// Where a change waits for its source, and what the source gave back waits to be closed: that takes longer than packets
/// may have to wait.
#[derive(Clone, Default)]
pub(crate) struct HalvesSlot(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    change: Option<HalvesChange>,
    back: Vec<Box<dyn PortRx>>,
}

impl HalvesSlot {
    /// Leaves a change.
    pub(crate) fn put(&self, change: HalvesChange) {
        self.0.lock().change = Some(change);
    }

    /// For who receives: takes a change over, if there is one. `queues` are port and number of the source's queues.
    pub(crate) fn apply(&self, source: &mut LiveSource, queues: &mut Vec<(u16, u16)>) {
        let mut slot = self.0.lock();
        let Some(HalvesChange { gone, new, frame_bytes_max }) = slot.change.take() else { return };
        queues.retain(|(port, _)| !gone.contains(port));
        queues.extend(new.iter().map(|half| (half.port, half.queue)));
        let new = new.into_iter().map(|half| (half.port, half.rx)).collect();
        let mut back = source.exchange(&gone, new, frame_bytes_max);
        slot.back.append(&mut back);
    }

    /// Waits until the change is taken over, and closes what was given back; whether it was in time.
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
