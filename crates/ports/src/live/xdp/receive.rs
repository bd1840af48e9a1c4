//! A receiving half: copies frames of some or all queues of an interface into chunks, and merges segments of TCP that
//! follow each other there, if the chunk takes them.
//!
//! The kernel does not make a socket readable when its interface disappears. So a thread that waits for the
//! descriptor should still call now and then; a call that finds no frame checks the interface, every ten
//! milliseconds at most.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_wire::checksum_offload;

use super::Shared;
use super::rings::{FillRing, ReceiveRing};
use super::socket::{AnyOf, XdpSocket};
use super::umem::{Frame, Umem};
use crate::live::merge::Merging;
use crate::live::passing::{Flow, LOOK_MAX, Passing, limit_of};
use crate::live::{PortRx, RxCounters};

/// How often an idle port checks whether its interface still exists.
const IDLE_CHECK_NS: u64 = 10_000_000;
/// How many frames ahead of the copied one are prefetched.
const PREFETCH_AHEAD: u32 = 4;
/// The bytes that tell flows apart: Ethernet with two tags, the longest IPv4 header, and ports.
const HEADERS: usize = 14 + 8 + 60 + 4;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: XdpSocket,
    pub(super) fill: FillRing,
    pub(super) receive: ReceiveRing,
    passing: Passing,
    /// The flow of the frame whose first pieces are the last that were looked at.
    in_pieces: Option<Flow>,
    /// The ring had more frames than the last chunk took.
    is_behind: bool,
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

    fn receive_passing(&mut self, port: u16, now_ns: u64, limit: usize, into: &mut ChunkBuilder) -> usize {
        let arrival = Arrival { port, now_ns, longest: self.shared.longest_received() };
        let Self { queues, shared, counters, .. } = self;
        let behind = queues.iter_mut().filter(|queue| queue.is_behind);
        behind.map(|queue| queue.pass(limit_of(limit), shared, &arrival, into, counters)).sum()
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

impl Arrival {
    /// Adds the frame that was copied to `place` to the chunk, or to the frame before. Returns whether it is another
    /// one.
    #[inline]
    fn name(
        &self,
        shared: &Shared,
        place: Range<usize>,
        merging: &mut Option<Merging>,
        into: &mut ChunkBuilder,
        counters: &mut RxCounters,
    ) -> bool {
        let (offset, bytes) = (place.start, place.len());
        if !shared.is_ours(&into.buffer_mut()[place.clone()]) {
            counters.foreign += 1;
            return false;
        }
        counters.frames += 1;
        counters.bytes += bytes as u64;
        let unfinished = shared.has_unfinished_checksums;
        if let Some(merging) = merging {
            if merging.take(into, place, unfinished) {
                return false;
            }
        } else if unfinished {
            checksum_offload::complete_frame(&mut into.buffer_mut()[place]);
        }
        into.push(offset, bytes, bytes as u32, self.now_ns, LinkType::Ethernet, self.port, 0);
        true
    }
}

impl Queue {
    pub(super) fn new(socket: XdpSocket, fill: FillRing, receive: ReceiveRing) -> Self {
        Self { socket, fill, receive, passing: Passing::default(), in_pieces: None, is_behind: false }
    }

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
            self.is_behind = false;
            self.wake();
            return 0;
        }
        let taken = self.take(umem, shared, arrival, limit, into, counters);
        self.is_behind = self.receive.available(1) > 0;
        self.receive.release();
        self.fill.submit();
        self.wake();
        taken
    }

    /// Copies frames that wait behind others, of flows that have none before them.
    fn pass(
        &mut self,
        limit: usize,
        shared: &Shared,
        arrival: &Arrival,
        into: &mut ChunkBuilder,
        counters: &mut RxCounters,
    ) -> usize {
        self.receive.available(u32::MAX);
        self.passing.begin();
        let mut taken = 0;
        let mut merging = into.takes_merged().then(Merging::default);
        for _ in 0..LOOK_MAX {
            let ahead = u32::try_from(self.passing.len()).unwrap_or(u32::MAX);
            let Some(piece) = self.receive.peek(ahead).filter(|_| taken < limit) else { break };
            let bytes = usize::try_from(piece.bytes).unwrap_or(usize::MAX);
            let mut headers = [0; HEADERS];
            let headers = &mut headers[..bytes.min(HEADERS)];
            let is_good = self.receive.copy_out(ahead, headers);
            let begun = self.in_pieces.take();
            let flow = begun.unwrap_or_else(|| Flow::of(headers));
            self.in_pieces = piece.more.then_some(flow);
            let offset = into.next_frame_offset();
            if !is_good
                || begun.is_some()
                || piece.more
                || bytes > arrival.longest
                || !self.passing.may_pass(flow)
            {
                self.passing.hold(flow);
                continue;
            }
            let Some(room) = into.buffer_mut().get_mut(offset..offset + bytes) else { break };
            if !self.receive.copy_out(ahead, room) {
                self.passing.hold(flow);
                continue;
            }
            self.passing.pass(flow);
            taken += usize::from(arrival.name(shared, offset..offset + bytes, &mut merging, into, counters));
        }
        if let Some(merging) = &mut merging {
            merging.end(into);
        }
        taken
    }

    /// Copies the frames that wait longest.
    fn take(
        &mut self,
        umem: &Umem,
        shared: &Shared,
        arrival: &Arrival,
        limit: usize,
        into: &mut ChunkBuilder,
        counters: &mut RxCounters,
    ) -> usize {
        let mut taken = 0;
        let mut merging = into.takes_merged().then(Merging::default);
        while taken < limit && into.len() < ChunkBuilder::PACKETS_MAX {
            while self.passing.next_has_passed() {
                if let Some(frame) = self.take_piece() {
                    let _ = self.fill.give(frame);
                }
            }
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
                let Some(frame) = self.take_piece() else {
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
            taken += usize::from(arrival.name(shared, offset..end, &mut merging, into, counters));
        }
        if let Some(merging) = &mut merging {
            merging.end(into);
        }
        taken
    }

    fn take_piece(&mut self) -> Option<Frame> {
        if self.passing.len() == 0 {
            // This piece was not looked at, so the next to look at begins a frame.
            self.in_pieces = None;
        }
        self.passing.leaves();
        self.receive.take()
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
