//! A receiving half: copies frames of some or all queues of an interface into chunks, and merges segments of TCP that
//! follow each other there, if the chunk takes them.
//!
//! The kernel does not make a socket readable when its interface disappears. So a thread that waits for the
//! descriptor should still call now and then; a call that finds no frame checks the interface, every ten
//! milliseconds at most.

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_wire::checksum_offload;

use super::Shared;
use super::rings::{FillRing, ReceiveRing};
use super::socket::{AnyOf, XdpSocket};
use super::umem::{Frame, Umem};
use crate::live::merge::Merging;
use crate::live::{PortRx, RxCounters};

/// How often an idle port checks whether its interface still exists.
const IDLE_CHECK_NS: u64 = 10_000_000;
/// How many frames ahead of the copied one are prefetched.
const PREFETCH_AHEAD: u32 = 4;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: XdpSocket,
    pub(super) fill: FillRing,
    pub(super) receive: ReceiveRing,
}

#[derive(Debug)]
pub(super) struct Receiver {
    queues: Vec<Queue>,
    /// The queue to ask first; the others follow.
    first: usize,
    umem: Arc<Umem>,
    /// Readable when one of several queues has frames; unused with a single queue.
    any: Option<AnyOf>,
    shared: Arc<Shared>,
    counters: RxCounters,
    checked_ns: u64,
    is_gone: bool,
}

impl Receiver {
    pub(super) fn new(queues: Vec<Queue>, umem: Arc<Umem>, shared: Arc<Shared>) -> io::Result<Self> {
        let any = match queues.as_slice() {
            [_] => None,
            several => Some(AnyOf::new(several.iter().map(|queue| queue.socket.as_fd()))?),
        };
        Ok(Self {
            queues,
            first: 0,
            umem,
            any,
            shared,
            counters: RxCounters::default(),
            checked_ns: 0,
            is_gone: false,
        })
    }

    /// Fails if the interface is gone, which it asks the kernel now and then.
    fn check(&mut self, now_ns: u64) -> io::Result<()> {
        if !self.is_gone && now_ns.abs_diff(self.checked_ns) >= IDLE_CHECK_NS {
            self.checked_ns = now_ns;
            for queue in &self.queues {
                self.is_gone |= queue.socket.take_error()?.is_some();
            }
        }
        if self.is_gone { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(()) }
    }
}

impl PortRx for Receiver {
    fn receive(
        &mut self,
        port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        let mut taken = 0;
        let arrival = Arrival { port, now_ns, longest: self.shared.longest_received() };
        for i in 0..self.queues.len() {
            let queue = (self.first + i) % self.queues.len();
            let wanted = limit - taken;
            let counters = &mut self.counters;
            taken += self.queues[queue].receive(&self.umem, &self.shared, &arrival, wanted, into, counters);
        }
        self.first = (self.first + 1) % self.queues.len().max(1);
        if taken == 0 {
            self.check(now_ns)?;
        }
        Ok(taken)
    }

    fn fd(&self) -> RawFd {
        match (&self.any, self.queues.first()) {
            (Some(any), _) => any.descriptor(),
            (None, Some(queue)) => queue.socket.descriptor(),
            (None, None) => -1,
        }
    }

    fn counters(&mut self) -> RxCounters {
        self.shared.refresh();
        let statistics = self.queues.iter().filter_map(|queue| queue.socket.statistics().ok());
        // A frame lost because the fill ring was empty is counted as dropped, so that counter is not added.
        let missed: u64 = statistics.map(|counted| counted.rx_dropped + counted.rx_ring_full).sum();
        // The kernel's counts vanish with the interface.
        self.counters.missed = self.counters.missed.max(missed);
        self.counters
    }
}

/// The common data of all frames of one call.
struct Arrival {
    port: u16,
    now_ns: u64,
    longest: usize,
}

impl Queue {
    /// Gives the kernel frames to receive into.
    pub(super) fn fill(&mut self, frames: impl Iterator<Item = Frame>) {
        for frame in frames {
            // There are no more frames than the ring has room for.
            let _ = self.fill.give(frame);
        }
        self.fill.submit();
    }

    /// Copies the frames that are there, at most `limit` and as many as fit the chunk.
    fn receive(
        &mut self,
        umem: &Umem,
        shared: &Shared,
        arrival: &Arrival,
        limit: usize,
        into: &mut ChunkBuilder,
        counters: &mut RxCounters,
    ) -> usize {
        let wanted = u32::try_from(limit).unwrap_or(u32::MAX);
        if wanted == 0 || self.receive.available(wanted) == 0 {
            self.wake();
            return 0;
        }
        let mut taken = 0;
        let mut merging = into.takes_merged().then(Merging::default);
        while taken < limit && into.len() < ChunkBuilder::PACKETS_MAX {
            let Some((pieces, bytes)) = self.next_frame() else {
                // Frames that are merged do not count, so there may be more than were wanted.
                if merging.is_some() && self.receive.peek(0).is_none() && self.receive.available(1) > 0 {
                    continue;
                }
                break;
            };
            if let Some(ahead) = self.receive.peek(PREFETCH_AHEAD) {
                umem.prefetch(ahead.address);
            }
            let offset = into.next_frame_offset();
            let room = into.buffer_mut().len().saturating_sub(offset);
            if bytes > room && !into.is_empty() {
                break;
            }
            // A frame that is too long for any chunk or for the MTU is taken from the ring all the same.
            let mut good = bytes <= room && bytes <= arrival.longest;
            let mut end = offset;
            for _ in 0..pieces {
                let Some(piece) = self.receive.peek(0) else { break };
                let Some(frame) = self.receive.take() else {
                    good = false;
                    continue;
                };
                if good {
                    let to = end + piece.bytes as usize;
                    good = umem.copy_out(&frame, piece.address, &mut into.buffer_mut()[end..to]);
                    end = to;
                }
                let _ = self.fill.give(frame);
            }
            if !good {
                counters.refused += 1;
                continue;
            }
            if !shared.is_ours(&into.buffer_mut()[offset..end]) {
                counters.foreign += 1;
                continue;
            }
            counters.frames += 1;
            counters.bytes += bytes as u64;
            let unfinished = shared.has_unfinished_checksums;
            if let Some(merging) = &mut merging {
                if merging.take(into, offset..end, unfinished) {
                    continue;
                }
            } else if unfinished {
                checksum_offload::complete_frame(&mut into.buffer_mut()[offset..end]);
            }
            into.push(offset, bytes, bytes as u32, arrival.now_ns, LinkType::Ethernet, arrival.port, 0);
            taken += 1;
        }
        if let Some(merging) = &mut merging {
            merging.end(into);
        }
        self.receive.release();
        self.fill.submit();
        self.wake();
        taken
    }

    /// The number of pieces and the length of the next Ethernet frame; `None` if it has not arrived completely.
    #[inline]
    fn next_frame(&self) -> Option<(u32, usize)> {
        let (mut pieces, mut bytes) = (0, 0);
        loop {
            let piece = self.receive.peek(pieces)?;
            pieces += 1;
            bytes += piece.bytes as usize;
            if !piece.more {
                return Some((pieces, bytes));
            }
        }
    }

    fn wake(&self) {
        if self.fill.needs_wakeup() {
            self.socket.kick_receive();
        }
    }
}
