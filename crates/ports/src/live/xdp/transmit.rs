//! The sending half: copies frames into the region and sends them by the interface's first queue.
//!
//! A pushed frame lies in the transmit ring until a flush calls the kernel. Then one of three things happens. The
//! interface takes the frame. Or it refuses the frame (its own queue is full, it has no carrier), which ends the
//! call with `EBUSY` and counts as failed. Or the call ends before this frame (too much is in flight, the interface
//! is down), and the frame stays in the ring. A later flush sends what stays, even if the interface was down in
//! between.
//!
//! Frames that merge segments do not fit a ring. If the kernel copies frames from the ring anyway, such a frame leaves
//! by a packet socket instead, whole, once the ring is empty, so that no frame overtakes another. With zero-copy the
//! card may still hold frames of the ring, so the caller cuts.

use std::io;
use std::sync::Arc;

use socket2::Socket;

use super::Shared;
use super::interface::State;
use super::rings::{CompletionRing, TransmitRing};
use super::socket::XdpSocket;
use super::umem::{Frame, Umem};
use crate::live::packet::transmit::{attach, send_whole};
use crate::live::segment::Opening;
use crate::live::{NotTaken, PortTx, TxCounters};

/// The most calls in one flush. One call sends a whole ring, or up to the first refused frame; a kernel before 6.17
/// sends 32 frames a call.
const CALLS_MAX: u32 = 128;
/// The shortest Ethernet frame: its header.
const SHORTEST: usize = 14;

#[derive(Debug)]
pub(super) struct Sender {
    socket: XdpSocket,
    transmit: TransmitRing,
    completion: CompletionRing,
    umem: Arc<Umem>,
    /// Frames of the region that are not in use.
    free: Vec<Frame>,
    shared: Arc<Shared>,
    state: State,
    /// Sends merged frames, if it could be opened.
    whole: Option<Socket>,
    counters: TxCounters,
    /// Bytes of an Ethernet frame of which the kernel has processed some pieces.
    partial_bytes: u64,
    /// Bytes of the last Ethernet frame that the kernel has processed.
    last_bytes: u64,
}

impl Sender {
    pub(super) fn new(
        socket: XdpSocket,
        transmit: TransmitRing,
        completion: CompletionRing,
        umem: Arc<Umem>,
        free: Vec<Frame>,
        shared: Arc<Shared>,
        copies: bool,
    ) -> Self {
        let index = shared.interface.index;
        // Without it frames are cut.
        let whole = copies.then(|| attach("af_xdp", index, true).ok()).flatten();
        Self {
            whole,
            socket,
            transmit,
            completion,
            umem,
            free,
            shared,
            state: State::Up,
            counters: TxCounters::default(),
            partial_bytes: 0,
            last_bytes: 0,
        }
    }

    /// Counts the frames that the kernel has processed as sent, and takes back those that it has finished with.
    fn reclaim(&mut self) {
        let (counters, partial, last) = (&mut self.counters, &mut self.partial_bytes, &mut self.last_bytes);
        self.transmit.reclaim(|bytes, more| {
            *partial += u64::from(bytes);
            if !more {
                *last = std::mem::take(partial);
                counters.frames += 1;
                counters.bytes += *last;
            }
        });
        self.completion.take_all(&mut self.free);
    }

    /// Corrects the counters: the last frame counted as sent was not.
    fn last_was_refused(&mut self) {
        self.counters.frames = self.counters.frames.saturating_sub(1);
        self.counters.bytes = self.counters.bytes.saturating_sub(self.last_bytes);
        self.counters.failed += 1;
        self.last_bytes = 0;
    }

    /// Notes that the interface is down or gone, so that every push fails until it is back. Returns the error to
    /// report.
    fn cannot(&mut self, state: State) -> io::Error {
        if state == State::Gone && self.state != State::Gone {
            // Those frames lie in a ring that is never read again. Frames of several pieces count by the piece.
            self.counters.failed += u64::from(self.transmit.pending());
        }
        self.state = state;
        io::Error::from_raw_os_error(if state == State::Gone { libc::ENODEV } else { libc::ENETDOWN })
    }
}

impl PortTx for Sender {
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken> {
        if self.state != State::Up {
            return Err(NotTaken::Down);
        }
        let piece = self.umem.frame_bytes() as usize;
        if frame.len() < SHORTEST || frame.len() > self.shared.longest_sent() {
            return Err(NotTaken::TooLong);
        }
        let pieces = frame.len().div_ceil(piece);
        if self.free.len() < pieces || (self.transmit.room() as usize) < pieces {
            self.reclaim();
            if self.free.len() < pieces || (self.transmit.room() as usize) < pieces {
                return Err(NotTaken::Full);
            }
        }
        let mut rest = frame;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(piece));
            let Some(mut to) = self.free.pop() else { break };
            self.umem.copy_in(&mut to, now);
            if let Err(unused) = self.transmit.give(to, now.len() as u32, !later.is_empty()) {
                self.free.push(unused);
            }
            rest = later;
        }
        Ok(())
    }

    fn push_merged(&mut self, frame: &[u8], segment_bytes: u16) -> Result<(), NotTaken> {
        if self.state != State::Up {
            return Err(NotTaken::Down);
        }
        let opening = Opening::new(frame, segment_bytes).map_err(|_| NotTaken::Merged)?;
        if opening.longest() > self.shared.longest() {
            return Err(NotTaken::TooLong);
        }
        if self.whole.is_none() {
            return Err(NotTaken::Merged);
        }
        if self.flush().is_err() {
            return Err(NotTaken::Down);
        }
        if self.transmit.pending() > 0 {
            return Err(NotTaken::Full);
        }
        let Self { whole: Some(whole), counters, .. } = self else { return Err(NotTaken::Merged) };
        let sent = send_whole(whole, frame, &opening, counters);
        if sent == Err(NotTaken::Down) {
            // The next flush looks whether it is down or gone.
            self.cannot(State::Down);
        }
        sent
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.state == State::Gone {
            return Err(self.cannot(State::Gone));
        }
        if self.state == State::Down {
            match self.shared.interface.state() {
                State::Up => self.state = State::Up,
                not_up => return Err(self.cannot(not_up)),
            }
        }
        self.transmit.submit();
        self.reclaim();
        for _ in 0..CALLS_MAX {
            if self.transmit.pending() == 0 || !self.transmit.needs_wakeup() {
                return Ok(());
            }
            let before = self.transmit.pending();
            let result = self.socket.kick_transmit();
            self.reclaim();
            let Err(error) = result else { continue };
            match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    self.last_was_refused();
                    let state = self.shared.interface.state();
                    if state != State::Up {
                        return Err(self.cannot(state));
                    }
                }
                Some(libc::ENETDOWN) => return Err(self.cannot(State::Down)),
                Some(libc::ENXIO | libc::ENODEV) => return Err(self.cannot(State::Gone)),
                // The call stopped at its own bound, and continues when repeated, or at another limit: memory,
                // frames in flight.
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                    if self.transmit.pending() == before {
                        return Ok(());
                    }
                }
                _ => return Err(error),
            }
        }
        Ok(())
    }

    fn counters(&mut self) -> TxCounters {
        self.reclaim();
        self.counters
    }
}
