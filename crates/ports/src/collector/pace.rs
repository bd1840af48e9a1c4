//! Sends a collector on this system no more than its buffer has room for.
//!
//! A file is read faster than any collector reads records. Beyond this system nobody tells how full the collector's
//! buffer is; here the kernel does, for 3 µs a question, and a question is asked for each group of messages.

use crate::kernel::{PeerBuffer, PeerSocket};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// What the kernel charges to a buffer for a message of ours at most: twice the longest one, and its own records.
const CHARGED_BYTES: u32 = 2 * 1_500 + 1_024;
/// What a buffer has unless its program asks for more.
const USUAL_BYTES: u32 = 212_992;
/// How long a pause is, less than it takes a collector to read half of the usual buffer.
const PAUSE: Duration = Duration::from_micros(100);
/// A collector that has read nothing for so long is not waited for until it reads again.
const STALLED: Duration = Duration::from_secs(1);

/// See the module documentation.
pub(super) struct Pace {
    peer: PeerSocket,
    /// At the latest look.
    buffer: PeerBuffer,
    dropped: u64,
    /// It did not read while it was waited for.
    is_stalled: bool,
}

impl Pace {
    /// `None` if the collector is elsewhere, or the kernel does not tell.
    pub(super) fn of(socket: &UdpSocket) -> Option<Self> {
        let mut peer = PeerSocket::find(socket.local_addr().ok()?, socket.peer_addr().ok()?)?;
        let usual = PeerBuffer { taken: 0, limit: USUAL_BYTES, dropped: 0 };
        let buffer = peer.read().ok()?.unwrap_or(usual);
        Some(Self { peer, buffer, dropped: 0, is_stalled: false })
    }

    /// The most messages to send together: half of the buffer, so that the collector reads one half meanwhile.
    pub(super) fn messages_max(&self) -> usize {
        usize::try_from(self.buffer.limit / 2 / CHARGED_BYTES).map_or(1, |messages| messages.max(1))
    }

    /// Datagrams that found no room, since the first look; those of other senders to the same socket too.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Looks how full the buffer is. A collector that is gone, or was started again, has an empty one.
    pub(super) fn look(&mut self) {
        let found = self.peer.read().ok().flatten();
        let now = found.unwrap_or(PeerBuffer { taken: 0, dropped: 0, ..self.buffer });
        // Fewer than before: another socket.
        let more = now.dropped.checked_sub(self.buffer.dropped).unwrap_or(now.dropped);
        self.dropped += u64::from(more);
        self.buffer = now;
    }

    /// Waits until so many messages have room, or the collector has stalled.
    pub(super) fn wait(&mut self, messages: usize) {
        let needed = CHARGED_BYTES.saturating_mul(u32::try_from(messages).unwrap_or(u32::MAX));
        let (mut least, mut since) = (u32::MAX, Instant::now());
        loop {
            self.look();
            let has_room =
                self.buffer.taken == 0 || self.buffer.taken.saturating_add(needed) <= self.buffer.limit;
            if has_room {
                self.is_stalled = false;
            }
            if has_room || self.is_stalled {
                return;
            }
            if self.buffer.taken < least {
                (least, since) = (self.buffer.taken, Instant::now());
            }
            self.is_stalled = since.elapsed() >= STALLED;
            std::thread::sleep(PAUSE);
        }
    }
}
