//! The way out: a queue where the port is shaped or has classes, and the driver's sending half.
//!
//! Several threads send by a port: those that finish chunks, the one that serves queues by the clock, and the host
//! thread. They take the port's lock for as long as handing over frames takes. A port without a queue hands every frame
//! to its driver at once; a port with one puts it in, and takes out what may go.
//!
//! Where workers have lanes, and the driver has a sending half for each of them, a lane sends by its own half, whose lock nobody
//! else wants, as long as the port has no queue. Frames of a lane stay in order; those of different lanes have none.
//!
//! A driver that is full is asked to send what it has and then tried again, [`TRIES`] times. A frame that still finds
//! no room is dropped as `transmit-failed` where there is no queue; where there is one, it is kept and the rest of the
//! queue waits behind it. Nobody waits for a driver.
//!
//! VLAN sub-interfaces have the way out of their parent, queue and all; their frames get a tag before they wait there.

mod reload;

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use thalweg_base::{DropReason, NO_PORT};
use thalweg_dataplane::egress::{EgressQueue, Next, mark_frame_ce};
use thalweg_dataplane::vlan::{EgressTag, VlanTable};
use thalweg_ports::live::{NotTaken, PortTx, TxCounters};
use thalweg_wire::vlan::TAG_BYTES;

use crate::capture::Seen;
use crate::counters::Counters;

/// How often a driver that is full is tried.
const TRIES: usize = 64;

/// How long a queue waits for a driver that is full.
const FULL_WAIT_NS: u64 = 100_000;

/// Frames taken out of a queue before others may have the port.
const BURST: usize = 64;

/// Buffers kept for frames that wait in queues.
const SPARE_MAX: usize = 1024;

/// A frame that waits.
type Frame = Vec<u8>;

/// The ways out of all ports, as everybody who sends has them. A reload puts another list in its place.
#[derive(Clone)]
pub(crate) struct Outboxes(Arc<ArcSwap<Vec<Outbox>>>);

impl Outboxes {
    /// These, by port.
    pub(crate) fn new(outboxes: Vec<Outbox>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(outboxes)))
    }

    /// As they are now.
    pub(crate) fn load(&self) -> Guard<Arc<Vec<Outbox>>> {
        self.0.load()
    }

    /// From now on these.
    pub(crate) fn replace(&self, outboxes: Vec<Outbox>) {
        self.0.store(Arc::new(outboxes));
    }
}

/// A port's way out.
#[derive(Clone)]
pub(crate) struct Outbox {
    /// Whose driver it is.
    port: u16,
    /// Of a sub-interface of that port: how its frames leave.
    tag: Option<EgressTag>,
    /// Whose frames are whose, by their tags.
    vlans: Arc<VlanTable>,
    counters: Arc<Counters>,
    ways: Arc<Ways>,
}

/// The driver's sending halves.
struct Ways {
    /// The first one's, which has the queue if there is one.
    main: Mutex<State>,
    /// Those of further lanes.
    others: Box<[Mutex<State>]>,
    /// Lanes send by the first: there is a queue, or the driver has not sent all that it held yet.
    has_queue: AtomicBool,
    /// How many halves cannot send.
    down: AtomicUsize,
}

struct State {
    tx: Box<dyn PortTx>,
    queue: Option<EgressQueue<Frame>>,
    /// The queue goes when it is empty: the configuration has none any more.
    is_leaving: bool,
    /// Taken out of the queue, and not taken by the driver yet, with its class.
    held: Option<(u8, Frame)>,
    spare: Vec<Frame>,
    is_down: bool,
    /// Somebody may want to capture what becomes of frames; looked at whenever the port is taken.
    is_watched: bool,
}

impl State {
    fn new(tx: Box<dyn PortTx>, queue: Option<EgressQueue<Frame>>) -> Self {
        let (is_leaving, is_down, is_watched) = (false, false, false);
        Self { tx, queue, is_leaving, held: None, spare: Vec::new(), is_down, is_watched }
    }
}

/// What a look at a queue showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// There is nothing.
    Empty,
    /// More may go now.
    More,
    /// Nothing may go before this time.
    Until(u64),
}

impl Rest {
    /// What the driver has taken and could not send yet goes out soon, also if no other frame follows. A driver that is down is
    /// looked at now and then only.
    fn with_pending(self, state: &State, now_ns: u64) -> Self {
        match self {
            Rest::Empty if state.tx.pending() > 0 && !state.is_down => Rest::Until(now_ns + FULL_WAIT_NS),
            other => other,
        }
    }
}

impl Outbox {
    /// A port's way out, with a queue or without: the driver's sending half, and those for lanes from the second on.
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

    /// The way out of a sub-interface of this port: the same, with a tag.
    pub(crate) fn sub_interface(&self, tag: EgressTag) -> Self {
        let (vlans, counters) = (self.vlans.clone(), self.counters.clone());
        Self { port: self.port, tag: Some(tag), vlans, counters, ways: self.ways.clone() }
    }

    /// Whether it is another port's way out. It has neither queue nor driver to show then.
    pub(crate) fn is_sub_interface(&self) -> bool {
        self.tag.is_some()
    }

    /// Takes the port for a while.
    pub(crate) fn open(&self) -> Opened<'_> {
        Opened { outbox: self, state: self.lock(), put: 0 }
    }

    /// Takes a lane's way out for a while.
    pub(crate) fn open_lane(&self, lane: usize) -> Opened<'_> {
        let own = lane.checked_sub(1).and_then(|other| self.ways.others.get(other));
        let Some(own) = own else { return self.open() };
        if self.ways.has_queue.load(Ordering::Acquire) {
            let main = self.open();
            // The holder of the lock reports that it has none any more.
            if self.ways.has_queue.load(Ordering::Acquire) {
                return main;
            }
        }
        Opened { outbox: self, state: self.watch(own.lock()), put: 0 }
    }

    /// Hands the driver what may go; what is left.
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
            // Nobody waits here for a lane that is sending: it makes the driver send itself.
            if let Some(mut state) = other.try_lock()
                && (state.is_down || state.tx.pending() > 0)
            {
                self.flush(&mut state);
                rest = rest.with_pending(&state, now_ns);
            }
        }
        rest
    }

    /// Frames that wait in the queue.
    pub(crate) fn queued(&self) -> u64 {
        if self.is_sub_interface() {
            return 0;
        }
        let state = self.lock();
        state.queue.as_ref().map_or(0, |queue| queue.waiting()) + u64::from(state.held.is_some())
    }

    /// Does something with the queue, if there is one.
    pub(crate) fn with_queue<T>(&self, act: impl FnOnce(&mut EgressQueue<Vec<u8>>) -> T) -> Option<T> {
        if self.is_sub_interface() { None } else { self.lock().queue.as_mut().map(act) }
    }

    /// What the driver has counted.
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

    /// Looks whether somebody may want to capture what leaves by a half that was just taken.
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
                Offer::Taken | Offer::Refused => keep(spare, frame),
            }
        }
        for _ in 0..frames_max {
            let mut mark = |frame: &mut Frame| mark_frame_ce(frame);
            let mut dropped = |frame: Frame, class, reason| {
                self.drop(reason, class, &frame, is_watched);
                keep(spare, frame);
            };
            match queue.dequeue(now_ns, &mut mark, &mut dropped) {
                Next::Empty => return Rest::Empty,
                Next::Wait { until_ns } => return Rest::Until(until_ns),
                Next::Packet { item, class, .. } => match self.offer(&mut **tx, class, &item, is_watched) {
                    Offer::Full => {
                        *held = Some((class, item));
                        return Rest::Until(now_ns + FULL_WAIT_NS);
                    }
                    Offer::Taken | Offer::Refused => keep(spare, item),
                },
            }
        }
        Rest::More
    }

    /// Gives the driver a frame, or drops it.
    fn hand_over(&self, tx: &mut dyn PortTx, class: u8, frame: &[u8], is_watched: bool) {
        if self.offer(tx, class, frame, is_watched) == Offer::Full {
            self.drop(DropReason::TransmitFailed, class, frame, is_watched);
        }
    }

    /// Counts a frame that does not leave.
    fn drop(&self, reason: DropReason, class: u8, frame: &[u8], is_watched: bool) {
        self.counters.add_dropped(reason, 1);
        if is_watched {
            self.counters.taps.dropped(reason, &self.seen(class, frame));
        }
    }

    /// A frame for captures.
    fn seen<'f>(&self, class: u8, frame: &'f [u8]) -> Seen<'f> {
        let port_out = self.sender_of(frame);
        Seen { frame, is_ip: false, is_leaving: true, port_in: NO_PORT, port_out, class }
    }

    /// Offers the driver a frame. One that will never be taken is dropped.
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
                    // Whether it worked shows when the frame is tried again.
                    let _ = tx.flush();
                }
                Err(NotTaken::TooLong | NotTaken::Down) => {
                    self.drop(DropReason::TransmitFailed, class, frame, is_watched);
                    return Offer::Refused;
                }
            }
        }
        Offer::Full
    }

    /// The port or sub-interface that a frame leaves by.
    fn sender_of(&self, frame: &[u8]) -> u16 {
        match frame.get(12..16) {
            Some([0x81, 0x00, tag @ ..]) => {
                // A program at a mirror may have put in any tag.
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
        // Of several halves the first that fails says so, and the last that is back.
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

/// What became of a frame that a driver was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Taken,
    Refused,
    Full,
}

/// A port that somebody sends by.
pub(crate) struct Opened<'o> {
    outbox: &'o Outbox,
    state: MutexGuard<'o, State>,
    /// Frames put into the queue.
    put: usize,
}

impl Opened<'_> {
    /// Sends an Ethernet frame, or puts it into the queue of its class, or drops and counts it.
    pub(crate) fn send(&mut self, class: u8, frame: &[u8], now_ns: u64) {
        self.send_as(false, class, frame, now_ns);
    }

    /// Sends a frame of the router's own: before all that waits if the network needs it ([`is_urgent`]).
    pub(crate) fn send_own(&mut self, class: u8, frame: &[u8], now_ns: u64) {
        self.send_as(is_urgent(frame), class, frame, now_ns);
    }

    fn send_as(&mut self, is_urgent: bool, class: u8, frame: &[u8], now_ns: u64) {
        let State { tx, queue, spare, is_watched, .. } = &mut *self.state;
        let is_watched = *is_watched;
        if let (None, None) = (&queue, self.outbox.tag) {
            return self.outbox.hand_over(&mut **tx, class, frame, is_watched);
        }
        let mut waiting = spare.pop().unwrap_or_default();
        waiting.clear();
        match self.outbox.tag {
            None => waiting.extend_from_slice(frame),
            Some(tag) => {
                waiting.resize(frame.len() + TAG_BYTES, 0);
                if tag.write(frame, &mut waiting).is_none() {
                    self.outbox.drop(DropReason::TransmitFailed, class, frame, is_watched);
                    return keep(spare, waiting);
                }
            }
        }
        let Some(queue) = queue else {
            self.outbox.hand_over(&mut **tx, class, &waiting, is_watched);
            return keep(spare, waiting);
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
                keep(spare, frame);
            }
        }
    }

    /// Makes the driver send. What is left is for the server of queues.
    pub(crate) fn close(self, now_ns: u64, server: &QueueClock) {
        if self.finish(now_ns) != Rest::Empty {
            server.ring();
        }
    }

    /// Makes the driver send. Whether the queue has to be served later, and when.
    fn finish(mut self, now_ns: u64) -> Rest {
        // More than was put in: a queue whose frames may all go at once gets shorter by everybody who sends, and does not
        // depend on its server to get a turn on a busy machine.
        let rest = match self.put {
            0 => Rest::Empty,
            put => self.outbox.take_out(&mut self.state, put + BURST, now_ns),
        };
        self.state.leave_if_empty();
        self.outbox.flush(&mut self.state);
        rest.with_pending(&self.state, now_ns)
    }
}

/// Whether a network falls apart without a frame: ARP, Neighbor Discovery, and what a program marked as network control (CS6 and CS7,
/// RFC 4594 3.1), as routing daemons do.
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

fn keep(spare: &mut Vec<Frame>, frame: Frame) {
    if spare.len() < SPARE_MAX {
        spare.push(frame);
    }
}

/// Serves queues by the clock: a thread of its own.
pub(crate) struct QueueClock {
    bell: Mutex<bool>,
    rung: parking_lot::Condvar,
}

impl Default for QueueClock {
    fn default() -> Self {
        Self { bell: Mutex::new(false), rung: parking_lot::Condvar::new() }
    }
}

impl QueueClock {
    /// Something may have to be sent earlier than was thought.
    pub(crate) fn ring(&self) {
        *self.bell.lock() = true;
        self.rung.notify_one();
    }

    /// Serves until `stop` says so.
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
        let mut bell = self.bell.lock();
        if !*bell && !wait.is_zero() {
            self.rung.wait_for(&mut bell, wait);
        }
        *bell = false;
    }
}

/// How long the server sleeps where nothing waits.
const IDLE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
