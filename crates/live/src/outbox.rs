//! Sends packets: each port's queue, if the port is shaped or has classes, and its driver's sending halves.
//!
//! Several threads send through a port: those that finish chunks, the one that serves queues by the clock, and the
//! host thread. Each holds the port's lock while it hands over frames. Without a queue, a frame goes to the driver
//! at once; with one, it is enqueued, and then all frames that may go are dequeued.
//!
//! If workers have lanes and the driver has a sending half for each, a lane sends through its own half, whose lock
//! is seldom contended, as long as the port has no queue. Frames of one lane stay in order; frames of different
//! lanes have no order.
//!
//! If a driver is full, it is flushed and tried again, [`TRIES`] times. A frame that still finds no room is dropped
//! as `transmit-failed`; a frame from a queue is held instead, and the queue waits behind it. No thread waits for a
//! driver.
//!
//! A frame that merges segments of a TCP flow is sent whole if the port has no queue and its driver can
//! ([`PortTx::push_merged`]), and cut otherwise. It counts as its segments.
//!
//! A VLAN sub-interface shares its parent's queue and driver; its frames get their tag before they are enqueued.

mod reload;

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use thalweg_base::DropReason;
use thalweg_dataplane::egress::{EgressQueue, Next, mark_frame_ce};
use thalweg_dataplane::vlan::{EgressTag, VlanTable};
use thalweg_ports::live::segment::{SegmentError, Segments, link_header_bytes};
use thalweg_ports::live::{NotTaken, PortTx, TxCounters};
use thalweg_wire::vlan::TAG_BYTES;

use crate::capture::Seen;
use crate::counters::Counters;

/// How often a frame is offered to a full driver.
const TRIES: usize = 64;

const FULL_WAIT_NS: u64 = 100_000;

/// Frames dequeued before the port's lock is released.
const BURST: usize = 64;

/// The room of all spare frames of a port, and that of a new one. An ordinary frame never needs more, so that spare
/// frames do not grow by and by.
const SPARE_BYTES_MAX: usize = 1024 * SPARE_BYTES;
const SPARE_BYTES: usize = 1600;

type Frame = Vec<u8>;

/// The outboxes by port number, shared by all threads that send. A reload replaces the list.
#[derive(Clone)]
pub(crate) struct Outboxes(Arc<ArcSwap<Vec<Outbox>>>);

impl Outboxes {
    pub(crate) fn new(outboxes: Vec<Outbox>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(outboxes)))
    }

    pub(crate) fn load(&self) -> Guard<Arc<Vec<Outbox>>> {
        self.0.load()
    }

    pub(crate) fn replace(&self, outboxes: Vec<Outbox>) {
        self.0.store(Arc::new(outboxes));
    }
}

/// What sends through one port; clones share queue and driver.
#[derive(Clone)]
pub(crate) struct Outbox {
    /// The port whose driver sends, which is the parent of a sub-interface.
    port: u16,
    /// The tag of a sub-interface's frames; `None` for the port itself.
    tag: Option<EgressTag>,
    /// Tells which sub-interface a tagged frame belongs to, for counters.
    vlans: Arc<VlanTable>,
    counters: Arc<Counters>,
    ways: Arc<Ways>,
}

/// A driver's sending halves, each behind its own lock.
struct Ways {
    /// The first lane's half, with the queue if there is one.
    main: Mutex<State>,
    others: Box<[Mutex<State>]>,
    /// Whether all lanes send through the first half: there is a queue, or that half still holds frames of a queue
    /// just removed.
    has_queue: AtomicBool,
    /// The number of halves that cannot send.
    down: AtomicUsize,
}

struct State {
    tx: Box<dyn PortTx>,
    queue: Option<EgressQueue<Frame>>,
    /// Whether the queue is removed once it is empty, because the configuration no longer has it.
    is_leaving: bool,
    /// A frame dequeued with its class, that the driver has not taken yet.
    held: Option<(u8, Frame)>,
    spare: Spare,
    is_down: bool,
    /// Whether a capture may want these frames; set whenever the lock is taken.
    is_watched: bool,
}

/// Frames that were sent, whose memory is used again.
#[derive(Default)]
struct Spare {
    frames: Vec<Frame>,
    /// The room of all of them.
    bytes: usize,
}

impl Spare {
    fn take(&mut self) -> Frame {
        let Some(frame) = self.frames.pop() else { return Frame::with_capacity(SPARE_BYTES) };
        self.bytes -= frame.capacity();
        frame
    }

    fn keep(&mut self, frame: Frame) {
        if self.bytes + frame.capacity() <= SPARE_BYTES_MAX {
            self.bytes += frame.capacity();
            self.frames.push(frame);
        }
    }
}

impl State {
    fn new(tx: Box<dyn PortTx>, queue: Option<EgressQueue<Frame>>) -> Self {
        let (is_leaving, is_down, is_watched) = (false, false, false);
        Self { tx, queue, is_leaving, held: None, spare: Spare::default(), is_down, is_watched }
    }
}

/// What remains to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Empty,
    More,
    Until(u64),
}

impl Rest {
    /// Frames that the driver took but has not sent must leave soon even if no other frame follows. A driver that
    /// is down is tried only at times.
    fn with_pending(self, state: &State, now_ns: u64) -> Self {
        match self {
            Rest::Empty if state.tx.pending() > 0 && !state.is_down => Rest::Until(now_ns + FULL_WAIT_NS),
            other => other,
        }
    }
}

impl Outbox {
    /// `tx` is the first lane's sending half, `others` are those of further lanes.
    pub(crate) fn new(
        port: u16,
        (tx, others): (Box<dyn PortTx>, Vec<Box<dyn PortTx>>),
        queue: Option<EgressQueue<Vec<u8>>>,
        vlans: VlanTable,
        counters: Arc<Counters>,
    ) -> Self {
        let has_queue = AtomicBool::new(queue.is_some());
        let main = Mutex::new(State::new(tx, queue));
        let others = others.into_iter().map(|tx| Mutex::new(State::new(tx, None))).collect();
        let ways = Arc::new(Ways { main, others, has_queue, down: AtomicUsize::new(0) });
        Self { port, tag: None, vlans: Arc::new(vlans), counters, ways }
    }

    /// A VLAN sub-interface of this port: frames get `tag`, and share queue and driver.
    pub(crate) fn sub_interface(&self, tag: EgressTag) -> Self {
        let (vlans, counters) = (self.vlans.clone(), self.counters.clone());
        Self { port: self.port, tag: Some(tag), vlans, counters, ways: self.ways.clone() }
    }

    /// Whether queue and driver are another port's, and are shown there.
    pub(crate) fn is_sub_interface(&self) -> bool {
        self.tag.is_some()
    }

    /// Takes the port's lock.
    pub(crate) fn open(&self) -> Opened<'_> {
        Opened { outbox: self, state: self.lock(), put: 0 }
    }

    /// Takes the lock of a lane's half, or the port's if the port has a queue.
    pub(crate) fn open_lane(&self, lane: usize) -> Opened<'_> {
        let own = lane.checked_sub(1).and_then(|other| self.ways.others.get(other));
        let Some(own) = own else { return self.open() };
        if self.ways.has_queue.load(Ordering::Acquire) {
            let main = self.open();
            // The queue may have gone meanwhile; only a holder of the lock knows.
            if self.ways.has_queue.load(Ordering::Acquire) {
                return main;
            }
        }
        Opened { outbox: self, state: self.watch(own.lock()), put: 0 }
    }

    /// Hands the driver at most [`BURST`] frames of the queue. Returns what remains.
    pub(crate) fn serve(&self, now_ns: u64) -> Rest {
        if self.is_sub_interface() {
            return Rest::Empty;
        }
        let mut state = self.lock();
        let mut rest = self.take_out(&mut state, BURST, now_ns);
        state.leave_if_empty();
        self.flush(&mut state);
        rest = rest.with_pending(&state, now_ns);
        if state.queue.is_none() && state.tx.pending() == 0 {
            self.ways.has_queue.store(false, Ordering::Release);
        }
        drop(state);
        for other in &self.ways.others {
            // A lane that holds the lock is sending, and flushes the driver itself.
            if let Some(mut state) = other.try_lock()
                && (state.is_down || state.tx.pending() > 0)
            {
                self.flush(&mut state);
                rest = rest.with_pending(&state, now_ns);
            }
        }
        rest
    }

    /// Frames waiting in the queue; zero for a sub-interface.
    pub(crate) fn queued(&self) -> u64 {
        if self.is_sub_interface() {
            return 0;
        }
        let state = self.lock();
        state.queue.as_ref().map_or(0, |queue| queue.waiting()) + u64::from(state.held.is_some())
    }

    /// Calls `act` with the queue; `None` without a queue and for a sub-interface.
    pub(crate) fn with_queue<T>(&self, act: impl FnOnce(&mut EgressQueue<Vec<u8>>) -> T) -> Option<T> {
        if self.is_sub_interface() { None } else { self.lock().queue.as_mut().map(act) }
    }

    /// The driver's counters, summed over its halves.
    pub(crate) fn driver(&self) -> TxCounters {
        let halves = std::iter::once(&self.ways.main).chain(&self.ways.others);
        halves.map(|half| half.lock().tx.counters()).fold(TxCounters::default(), |sum, half| TxCounters {
            frames: sum.frames + half.frames,
            bytes: sum.bytes + half.bytes,
            failed: sum.failed + half.failed,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.watch(self.ways.main.lock())
    }

    fn watch<'s>(&self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.is_watched = self.counters.taps.watch_ends();
        state
    }

    fn take_out(&self, state: &mut State, frames_max: usize, now_ns: u64) -> Rest {
        let State { tx, queue: Some(queue), held, spare, is_watched, .. } = state else { return Rest::Empty };
        let is_watched = *is_watched;
        if let Some((class, frame)) = held.take() {
            match self.offer(&mut **tx, class, &frame, is_watched) {
                Offer::Full => {
                    *held = Some((class, frame));
                    return Rest::Until(now_ns + FULL_WAIT_NS);
                }
                Offer::Taken | Offer::Refused => spare.keep(frame),
            }
        }
        for _ in 0..frames_max {
            let mut mark = |frame: &mut Frame| mark_frame_ce(frame);
            let mut dropped = |frame: Frame, class, reason| {
                self.drop(reason, class, &frame, is_watched);
                spare.keep(frame);
            };
            match queue.dequeue(now_ns, &mut mark, &mut dropped) {
                Next::Empty => return Rest::Empty,
                Next::Wait { until_ns } => return Rest::Until(until_ns),
                Next::Packet { item, class, .. } => match self.offer(&mut **tx, class, &item, is_watched) {
                    Offer::Full => {
                        *held = Some((class, item));
                        return Rest::Until(now_ns + FULL_WAIT_NS);
                    }
                    Offer::Taken | Offer::Refused => spare.keep(item),
                },
            }
        }
        Rest::More
    }

    /// Offers a frame that merges segments. Returns whether the driver sends only single frames; if not, the frame
    /// was taken or dropped.
    fn offer_merged(&self, tx: &mut dyn PortTx, class: u8, merged: Merged<'_>, is_watched: bool) -> bool {
        let Merged { frame, segment_bytes } = merged;
        for _ in 0..TRIES {
            match tx.push_merged(frame, segment_bytes) {
                Ok(()) => {
                    let (packets, bytes) = merged.on_wire();
                    self.counters.port(self.sender_of(frame)).sent.add(packets, bytes);
                    if is_watched {
                        self.counters.taps.sent(&self.seen(class, frame));
                    }
                    return false;
                }
                Err(NotTaken::Full) => {
                    let _ = tx.flush();
                }
                Err(NotTaken::Merged) => return true,
                Err(NotTaken::TooLong | NotTaken::Down) => break,
            }
        }
        self.drop_merged(class, merged, is_watched);
        false
    }

    fn drop_merged(&self, class: u8, merged: Merged<'_>, is_watched: bool) {
        self.counters.add_dropped(DropReason::TransmitFailed, merged.on_wire().0);
        if is_watched {
            self.counters.taps.dropped(DropReason::TransmitFailed, &self.seen(class, merged.frame));
        }
    }

    fn hand_over(&self, tx: &mut dyn PortTx, class: u8, frame: &[u8], is_watched: bool) {
        if self.offer(tx, class, frame, is_watched) == Offer::Full {
            self.drop(DropReason::TransmitFailed, class, frame, is_watched);
        }
    }

    fn drop(&self, reason: DropReason, class: u8, frame: &[u8], is_watched: bool) {
        self.counters.add_dropped(reason, 1);
        if is_watched {
            self.counters.taps.dropped(reason, &self.seen(class, frame));
        }
    }

    fn seen<'f>(&self, class: u8, frame: &'f [u8]) -> Seen<'f> {
        let port_out = self.sender_of(frame);
        Seen::leaving(port_out, class, frame)
    }

    /// Offers a frame to the driver. A frame too long, or for a port that is down, is dropped.
    fn offer(&self, tx: &mut dyn PortTx, class: u8, frame: &[u8], is_watched: bool) -> Offer {
        for _ in 0..TRIES {
            match tx.push(frame) {
                Ok(()) => {
                    self.counters.port(self.sender_of(frame)).sent.add(1, frame.len() as u64);
                    if is_watched {
                        self.counters.taps.sent(&self.seen(class, frame));
                    }
                    return Offer::Taken;
                }
                Err(NotTaken::Full) => {
                    // The next attempt shows whether this made room.
                    let _ = tx.flush();
                }
                Err(NotTaken::TooLong | NotTaken::Down | NotTaken::Merged) => {
                    self.drop(DropReason::TransmitFailed, class, frame, is_watched);
                    return Offer::Refused;
                }
            }
        }
        Offer::Full
    }

    fn sender_of(&self, frame: &[u8]) -> u16 {
        match frame.get(12..16) {
            Some([0x81, 0x00, tag @ ..]) => {
                // Programs on a mirror may send any tag.
                let vlan = u16::from_be_bytes([tag[0], tag[1]]);
                self.vlans.port_behind(self.port, vlan).unwrap_or(self.port)
            }
            _ => self.port,
        }
    }

    fn flush(&self, state: &mut State) {
        let result = state.tx.flush();
        if result.is_err() == state.is_down {
            return;
        }
        state.is_down = result.is_err();
        // Reports the first half that fails, and the last that recovers.
        match result {
            Ok(()) if self.ways.down.fetch_sub(1, Ordering::AcqRel) == 1 => {
                tracing::info!(port = self.counters.name(self.port), "sends again");
            }
            Err(error) if self.ways.down.fetch_add(1, Ordering::AcqRel) == 0 => {
                tracing::warn!(port = self.counters.name(self.port), "cannot send: {error}");
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Taken,
    Refused,
    Full,
}

/// A frame that merges segments of a TCP flow, with up to `segment_bytes` of payload each.
#[derive(Clone, Copy)]
pub(crate) struct Merged<'f> {
    pub(crate) frame: &'f [u8],
    pub(crate) segment_bytes: u16,
}

impl Merged<'_> {
    fn segments(self) -> Result<Segments, SegmentError> {
        Segments::of_tcp(self.frame, link_header_bytes(self.frame), self.segment_bytes)
    }

    /// The packets that it is on a wire, and their bytes.
    fn on_wire(self) -> (u64, u64) {
        let segments = self.segments();
        segments.map_or((1, self.frame.len() as u64), |all| (all.left() as u64, all.wire_bytes() as u64))
    }
}

/// An outbox whose lock is held; [`close`](Self::close) flushes the driver.
pub(crate) struct Opened<'o> {
    outbox: &'o Outbox,
    state: MutexGuard<'o, State>,
    put: usize,
}

impl Opened<'_> {
    /// Sends an Ethernet frame or enqueues it in its class; a frame that finds no room is dropped and counted.
    pub(crate) fn send(&mut self, class: u8, frame: &[u8], now_ns: u64) {
        self.send_as(false, class, frame, now_ns);
    }

    /// Sends a frame that merges segments of a TCP flow: whole if the port has no queue and its driver can, otherwise
    /// segment by segment. A queue serves single packets, as they would arrive on a wire.
    pub(crate) fn send_merged(&mut self, class: u8, merged: Merged<'_>, now_ns: u64) {
        let State { tx, queue, spare, is_watched, .. } = &mut *self.state;
        let (outbox, is_watched) = (self.outbox, *is_watched);
        let mut buffer = spare.take();
        if queue.is_none() {
            let is_cut = match outbox.tag {
                None => outbox.offer_merged(&mut **tx, class, merged, is_watched),
                Some(tag) => {
                    buffer.clear();
                    buffer.resize(merged.frame.len() + TAG_BYTES, 0);
                    match tag.write(merged.frame, &mut buffer) {
                        Some(_) => {
                            let merged = Merged { frame: &buffer, ..merged };
                            outbox.offer_merged(&mut **tx, class, merged, is_watched)
                        }
                        // The segments are refused one by one.
                        None => true,
                    }
                }
            };
            if !is_cut {
                return spare.keep(buffer);
            }
        }
        match merged.segments() {
            Ok(mut segments) => {
                while let Some(bytes) = segments.next_bytes() {
                    buffer.resize(bytes, 0);
                    segments.write_next(merged.frame, &mut buffer);
                    self.send(class, &buffer, now_ns);
                }
            }
            Err(_) => outbox.drop_merged(class, merged, is_watched),
        }
        self.state.spare.keep(buffer);
    }

    /// Sends a frame of the router's own, ahead of the queue if it is urgent ([`is_urgent`]).
    pub(crate) fn send_own(&mut self, class: u8, frame: &[u8], now_ns: u64) {
        self.send_as(is_urgent(frame), class, frame, now_ns);
    }

    fn send_as(&mut self, is_urgent: bool, class: u8, frame: &[u8], now_ns: u64) {
        let State { tx, queue, spare, is_watched, .. } = &mut *self.state;
        let is_watched = *is_watched;
        if let (None, None) = (&queue, self.outbox.tag) {
            return self.outbox.hand_over(&mut **tx, class, frame, is_watched);
        }
        let mut waiting = spare.take();
        waiting.clear();
        match self.outbox.tag {
            None => waiting.extend_from_slice(frame),
            Some(tag) => {
                waiting.resize(frame.len() + TAG_BYTES, 0);
                if tag.write(frame, &mut waiting).is_none() {
                    self.outbox.drop(DropReason::TransmitFailed, class, frame, is_watched);
                    return spare.keep(waiting);
                }
            }
        }
        let Some(queue) = queue else {
            self.outbox.hand_over(&mut **tx, class, &waiting, is_watched);
            return spare.keep(waiting);
        };
        let length = waiting.len() as u32;
        let done = match is_urgent {
            true => queue.enqueue_urgent(class, waiting, length, now_ns),
            false => queue.enqueue(class, waiting, length, now_ns),
        };
        match done {
            Ok(()) => self.put += 1,
            Err((frame, reason)) => {
                self.outbox.drop(reason, class, &frame, is_watched);
                spare.keep(frame);
            }
        }
    }

    /// Flushes the driver, and leaves what remains to `queue_clock`.
    pub(crate) fn close(self, now_ns: u64, queue_clock: &QueueClock) {
        if self.finish(now_ns) != Rest::Empty {
            queue_clock.wake();
        }
    }

    fn finish(mut self, now_ns: u64) -> Rest {
        // More frames than were enqueued, so that a queue that may send at once drains through all its senders and
        // does not depend on the server's turn on a busy machine.
        let rest = match self.put {
            0 => Rest::Empty,
            put => self.outbox.take_out(&mut self.state, put + BURST, now_ns),
        };
        self.state.leave_if_empty();
        self.outbox.flush(&mut self.state);
        rest.with_pending(&self.state, now_ns)
    }
}

/// Whether the network depends on a frame: ARP, Neighbor Discovery, and packets marked as network control (CS6 and
/// CS7, RFC 4594 3.1), which routing daemons send.
fn is_urgent(frame: &[u8]) -> bool {
    const NETWORK_CONTROL: u8 = 6;
    match frame.get(12..) {
        Some([0x08, 0x06, ..]) => true,
        Some([0x08, 0x00, _, tos, ..]) => tos >> 5 >= NETWORK_CONTROL,
        Some([0x86, 0xdd, first, second, rest @ ..]) => {
            let is_discovery = rest.get(4) == Some(&58) && matches!(rest.get(38), Some(133..=137));
            (first << 4 | second >> 4) >> 5 >= NETWORK_CONTROL || is_discovery
        }
        _ => false,
    }
}

/// Serves queues whose frames must wait for their time, on a thread of its own.
#[derive(Default)]
pub(crate) struct QueueClock {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl QueueClock {
    /// Wakes the thread: a frame may be due earlier than it computed.
    pub(crate) fn wake(&self) {
        *self.is_woken.lock() = true;
        self.woken.notify_one();
    }

    /// Serves all queues until `stop` returns true.
    pub(crate) fn run(&self, outboxes: &Outboxes, now_ns: impl Fn() -> u64, mut stop: impl FnMut() -> bool) {
        while !stop() {
            let now = now_ns();
            let mut until: Option<u64> = None;
            for outbox in outboxes.load().iter() {
                match outbox.serve(now) {
                    Rest::Empty => {}
                    Rest::More => until = Some(now),
                    Rest::Until(at) => until = Some(until.map_or(at, |until| until.min(at))),
                }
            }
            let wait = until.map_or(IDLE, |at| Duration::from_nanos(at.saturating_sub(now)).min(IDLE));
            self.sleep(wait);
        }
    }

    fn sleep(&self, wait: Duration) {
        let mut is_woken = self.is_woken.lock();
        if !*is_woken && !wait.is_zero() {
            self.woken.wait_for(&mut is_woken, wait);
        }
        *is_woken = false;
    }
}

const IDLE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
