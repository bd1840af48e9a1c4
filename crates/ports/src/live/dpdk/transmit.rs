//! The sending half of a DPDK port.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::device::Shared;
use super::shim::{BURST, Sender};
use crate::live::{NotTaken, PortTx, TxCounters, segment};

/// Frames pushed and not yet taken by the device. More would only wait outside the router's own queues, which could
/// order them.
const PENDING_FRAMES_MAX: usize = 8 * BURST;

/// How often a device that takes no frames is asked whether it has a link.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct DpdkTx {
    shared: Arc<Shared>,
    sender: Sender,
    /// The length of each pending frame.
    lengths: VecDeque<u32>,
    is_down: bool,
    looked: Option<Instant>,
    /// Frames that the device took; it counts itself which of them it did not send.
    taken: TxCounters,
}

impl DpdkTx {
    pub(super) fn new(shared: Arc<Shared>, sender: Sender) -> Self {
        let lengths = VecDeque::with_capacity(PENDING_FRAMES_MAX);
        Self { shared, sender, lengths, is_down: false, looked: None, taken: TxCounters::default() }
    }

    /// Offers pending frames until the device takes no more.
    fn send(&mut self) {
        while self.sender.len() > 0 {
            let taken = self.sender.transmit();
            self.taken.frames += taken as u64;
            self.taken.bytes += self.lengths.drain(..taken).map(u64::from).sum::<u64>();
            if taken == 0 {
                return;
            }
            self.looked = None;
        }
    }

    /// Whether it is time to ask the device about its link.
    fn is_to_look(&mut self) -> bool {
        let now = Instant::now();
        let is_to = self.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK_EVERY);
        if is_to {
            self.looked = Some(now);
        }
        is_to
    }

    fn lose_pending(&mut self) {
        self.taken.failed += self.sender.len() as u64;
        self.sender.forget();
        self.lengths.clear();
    }
}

impl PortTx for DpdkTx {
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken> {
        if self.is_down {
            return Err(NotTaken::Down);
        }
        if frame.len() > self.shared.mtu() + segment::link_header_bytes(frame) {
            return Err(NotTaken::TooLong);
        }
        if self.sender.len() >= BURST {
            // The frames are still in the cache.
            self.send();
        }
        if self.sender.len() >= PENDING_FRAMES_MAX || !self.sender.push(frame) {
            return Err(NotTaken::Full);
        }
        self.lengths.push_back(frame.len() as u32);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_down {
            if !self.is_to_look() {
                return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
            }
            self.shared.passes()?;
            self.is_down = false;
        }
        self.send();
        if self.sender.len() > 0
            && self.is_to_look()
            && let Err(error) = self.shared.passes()
        {
            self.lose_pending();
            self.is_down = true;
            return Err(error);
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.sender.len()
    }

    fn counters(&mut self) -> TxCounters {
        sent(self.taken, self.shared.device.counters().unsent)
    }
}

/// What was sent of the frames that the device took. The device does not say how long those are that it did not
/// send, so the mean length counts.
fn sent(taken: TxCounters, unsent: u64) -> TxCounters {
    let unsent = unsent.min(taken.frames);
    let frames = taken.frames - unsent;
    let bytes = u128::from(taken.bytes) * u128::from(frames) / u128::from(taken.frames.max(1));
    TxCounters { frames, bytes: bytes as u64, failed: taken.failed + unsent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_were_not_sent_have_no_bytes() {
        let taken = TxCounters { frames: 10, bytes: 6_000, failed: 3 };
        assert_eq!(sent(taken, 0), taken);
        assert_eq!(sent(taken, 4), TxCounters { frames: 6, bytes: 3_600, failed: 7 });
        assert_eq!(sent(taken, 11), TxCounters { frames: 0, bytes: 0, failed: 13 });
        let none = TxCounters::default();
        assert_eq!(sent(none, 1), none);
    }
}
