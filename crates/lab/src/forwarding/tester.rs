//! The tester: a generator on one side, a receiver on the other.
//!
//! **Sending.** One system call sends a batch of up to 64 frames. At a given rate the generator asks the clock how
//! many frames are due and sends them when they make a burst: as many as fall into 50 µs, at least one, at most a
//! batch. Frames that are late are sent at once; a trial ends when all are sent or when its time has passed, plus a
//! hundredth and 4 ms. Frames not sent by then were intended but not offered ([`Trial::loss`]).
//!
//! **Counting.** The tester reads the receiving interface's counter before and after. That costs nothing; a program
//! that received every frame would take half of the machine. Only test frames are on the wire. After the last frame
//! the tester waits until none has come for a while, as the RFC wants.
//!
//! **Timing.** If a trial asks for it, one frame in a power of two is *tagged*: it has a send call of its own, the
//! clock is read just before, and the receiver's filter passes only tagged frames. The kernel stamps them when they
//! arrive at the interface, and they are read when all are sent. So a latency includes the send call, both links and
//! the router, but no receiver, which would also take a core from the router. Both clocks are the machine's real-time clock; a frame that seems to arrive before it was sent is
//! counted and left out.
//!
//! **Cost.** The sum of three processor times: inside the send calls, where nearly the whole path over virtual
//! links runs, a router in the kernel included; of the router's own processes; and of the kernel's softirq threads.
//! Waiting for the next burst does not count. Bursts are whole batches in such trials, whatever the rate.

use super::ForwardingError;
use super::frame::{FrameMaker, FrameSize, Stamp, fault_of, stamp_of};
use super::latency::SAMPLES_MAX;
use super::method::Trial;
use super::namespace::{Counter, Namespace};
use super::packet_socket::{BATCH, PacketReceiver, PacketSender, Stamping};
use super::topology::{DIRECT_PORTS, ROUTER_MACS, SINK_MAC, TESTER_MACS, TESTER_PORTS, Topology};
use crate::cpu_time::{ran_ns, thread_cpu_s};
use crate::workload::frames::{Endpoint, ends_of};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg_wire::MacAddr;

/// Frames due within this time leave as one burst.
const BURST_S: f64 = 50e-6;
/// A trial may last longer by this share, and by one time slice of another program, which matters only to short
/// trials.
const OVERTIME: f64 = 0.01;
const OVERTIME_S: f64 = 0.004;
/// After this long without a frame, none will come.
const QUIET: Duration = Duration::from_millis(60);
/// The RFC waits two seconds for frames in flight; this is the limit here.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Frames that surely fit into a receiver's buffer before they are read.
pub const CAPTURE_MAX: u32 = 50_000;
/// How long a receiver sleeps between checks of its stop flag.
pub(super) const RECEIVE_WAIT: Duration = Duration::from_millis(10);

/// The path that frames take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Router,
    /// From tester to tester over one link.
    Direct,
    /// Through the router from tester-b's side to tester-a's, as replies go.
    Back,
}

/// Tagged frames per second; more would disturb the measurement.
const TAGS_PPS: f64 = 10_000.0;

/// The mask of [`Tester::tagged`] for a rate: as many tagged frames as do not disturb, and as fit into the buffer.
pub(crate) fn mask_for(rate_pps: f64, seconds: f64) -> u32 {
    let one_in = (rate_pps / TAGS_PPS).max(rate_pps * seconds / f64::from(CAPTURE_MAX));
    (one_in.ceil().clamp(1.0, 65_536.0) as u32).next_power_of_two() - 1
}

/// What a trial sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    rate_pps: f64,
    frames: u64,
    limit_s: f64,
    whole_batches: bool,
    sleeps: bool,
}

impl Offer {
    /// A steady rate for this many seconds.
    pub fn paced(rate_pps: f64, seconds: f64) -> Self {
        let frames = (rate_pps * seconds).round().max(1.0) as u64;
        let limit_s = seconds * (1.0 + OVERTIME) + OVERTIME_S;
        Self { rate_pps, frames, limit_s, whole_batches: false, sleeps: false }
    }

    /// The same from a sender that sleeps between frames instead of keeping a core busy, for rates that leave time to.
    pub fn sleeping(self) -> Self {
        Self { sleeps: true, ..self }
    }

    /// As many frames as possible for this many seconds.
    pub fn flood(seconds: f64) -> Self {
        Self {
            rate_pps: f64::INFINITY,
            frames: u64::MAX,
            limit_s: seconds,
            whole_batches: true,
            sleeps: false,
        }
    }

    /// This many frames, as fast as possible.
    pub fn burst(frames: u64) -> Self {
        // Enough for a router that slows the sender a hundredfold.
        let limit_s = 10.0 + frames as f64 / 10_000.0;
        Self { rate_pps: f64::INFINITY, frames, limit_s, whole_batches: true, sleeps: false }
    }

    /// The same in whole batches, measuring the processor time inside send calls.
    pub fn costed(self) -> Self {
        Self { whole_batches: true, ..self }
    }

    /// What to do after `sent` frames, `elapsed_s` after the first.
    pub(super) fn next(&self, sent: u64, elapsed_s: f64) -> Next {
        // A trial sends something, however long the kernel keeps this thread off the core.
        if sent >= self.frames || (elapsed_s >= self.limit_s && sent > 0) {
            return Next::End;
        }
        let burst = match self.rate_pps * BURST_S {
            _ if self.whole_batches => BATCH as u64,
            frames => frames.clamp(1.0, BATCH as f64) as u64,
        };
        let due = if self.rate_pps.is_finite() {
            self.frames.min((self.rate_pps * elapsed_s) as u64 + 1)
        } else {
            self.frames
        };
        let pending = due.saturating_sub(sent);
        if pending == 0 || (pending < burst && due < self.frames) { Next::Wait } else { Next::Send(pending) }
    }

    /// The time until the next frame is due.
    fn until_next(&self, sent: u64, elapsed: Duration) -> Duration {
        Duration::from_secs_f64(sent as f64 / self.rate_pps).saturating_sub(elapsed)
    }

    /// The frames that should have been sent: all that were, if as many as possible.
    pub(super) fn intended(&self, sent: u64) -> u64 {
        if self.frames == u64::MAX { sent } else { self.frames }
    }
}

/// The next action of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Send frames, of which so many are due.
    Send(u64),
    Wait,
    End,
}

/// The tagged frames of a trial.
#[derive(Clone, Debug, Default)]
pub struct Tagged {
    /// The latency of each frame, in nanoseconds.
    pub latencies_ns: Vec<u64>,
    /// Defective frames by defect.
    pub faults: BTreeMap<&'static str, u64>,
    /// Frames that seemed to arrive before they were sent, or were more than [`SAMPLES_MAX`].
    pub left_out: u64,
    /// Frames that arrived after a later one.
    pub out_of_order: u64,
}

/// A frame that was read after its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The frame's number in the trial, from 0.
    pub sequence: u32,
    pub source: Endpoint,
    pub destination: Endpoint,
    /// The frame's defect, if any.
    pub fault: Option<&'static str>,
}

/// Everything that trials on one path need, opened.
#[derive(Debug)]
pub struct Tester<'a> {
    way: Way,
    receiving: (&'a Namespace, &'static str),
    sender: PacketSender,
    maker: FrameMaker,
    counter: Counter,
    softirq: Vec<PathBuf>,
    stop: &'a AtomicBool,
    trial: u16,
    _stamping: Stamping,
}

/// What was sent, and its cost.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    frames: u64,
    refused: u64,
    elapsed_s: f64,
    cpu_s: f64,
}

impl<'a> Tester<'a> {
    /// Sends frames of one size over these flows. Trials end early, with an error, once `stop` is set.
    pub fn new(
        topology: &'a Topology,
        way: Way,
        size: FrameSize,
        flows: &[(Endpoint, Endpoint)],
        stop: &'a AtomicBool,
    ) -> Result<Self, ForwardingError> {
        let (a, b) = (&topology.tester_a, &topology.tester_b);
        let (sending, receiving, from, to): (
            (&Namespace, &str),
            (&Namespace, &'static str),
            MacAddr,
            MacAddr,
        ) = match way {
            Way::Router => ((a, TESTER_PORTS[0]), (b, TESTER_PORTS[1]), TESTER_MACS[0], ROUTER_MACS[0]),
            Way::Direct => ((a, DIRECT_PORTS[0]), (b, DIRECT_PORTS[1]), TESTER_MACS[0], SINK_MAC),
            Way::Back => ((b, TESTER_PORTS[1]), (a, TESTER_PORTS[0]), TESTER_MACS[1], ROUTER_MACS[1]),
        };
        let maker = FrameMaker::new(size, from, to, flows);
        let mut sender = sending.0.inside(|| PacketSender::open(sending.1, size.bytes()))?;
        (0..BATCH).for_each(|at| maker.lay_out(sender.frame_mut(at)));
        let counter = Counter::open(receiving.0, receiving.1)?;
        let stamping = receiving.0.inside(|| Stamping::begin(receiving.1))?;
        let softirq = softirq_threads();
        Ok(Self { way, receiving, sender, maker, counter, softirq, stop, trial: 0, _stamping: stamping })
    }

    /// Runs a trial. `subject_cpu_s` returns the processor time of the router's processes so far.
    pub fn trial(&mut self, offer: Offer, subject_cpu_s: &dyn Fn() -> f64) -> Result<Trial, ForwardingError> {
        self.run(offer, None, subject_cpu_s)
    }

    /// Runs a trial in which one frame of `mask` + 1, a power of two, is timed and checked. Like those of
    /// [`captured`](Self::captured) they are read afterwards: a thread that woke for them would take a core from the
    /// router.
    pub fn tagged(
        &mut self,
        offer: Offer,
        mask: u32,
        subject_cpu_s: &dyn Fn() -> f64,
    ) -> Result<(Trial, Tagged), ForwardingError> {
        let (namespace, port) = self.receiving;
        let mut receiver = namespace.inside(|| PacketReceiver::open(port, mask, RECEIVE_WAIT))?;
        let sent = self.run(offer, Some(mask), subject_cpu_s)?;
        let failed = |source| ForwardingError::System { what: format!("receiving on {port}"), source };
        Ok((sent, self.read_tagged(&mut receiver).map_err(failed)?))
    }

    /// Reads the tagged frames that wait in the socket's buffer.
    fn read_tagged(&self, receiver: &mut PacketReceiver) -> io::Result<Tagged> {
        let (mut tagged, mut last) = (Tagged::default(), None);
        while let Some(arrival) = receiver.receive()? {
            let frame = receiver.frame(arrival);
            let Some(stamp) = stamp_of(frame).filter(|stamp| stamp.trial == self.trial) else { continue };
            if let Some(fault) = fault_of(frame, self.maker.size()).filter(|_| self.way != Way::Direct) {
                *tagged.faults.entry(fault).or_default() += 1;
            }
            tagged.out_of_order += u64::from(last.is_some_and(|last| stamp.sequence < last));
            last = Some(stamp.sequence);
            match arrival.arrived_ns.checked_sub(stamp.sent_ns) {
                Some(ns) if tagged.latencies_ns.len() < SAMPLES_MAX => tagged.latencies_ns.push(ns),
                _ => tagged.left_out += 1,
            }
        }
        Ok(tagged)
    }

    /// Runs a trial after which every received frame is read: its sequence number and its endpoints as they
    /// arrived. The frames wait in the socket's buffer until all are sent, so reading does not disturb the trial;
    /// frames beyond [`CAPTURE_MAX`] may be lost there.
    pub fn captured(&mut self, offer: Offer) -> Result<(Trial, Vec<Captured>), ForwardingError> {
        let (namespace, port) = self.receiving;
        let mut receiver = namespace.inside(|| PacketReceiver::open(port, 0, RECEIVE_WAIT))?;
        let trial = self.run(offer, None, &|| 0.0)?;
        let failed = |source| ForwardingError::System { what: format!("receiving on {port}"), source };
        let mut captured = Vec::with_capacity(trial.received as usize);
        while let Some(arrival) = receiver.receive().map_err(failed)? {
            let frame = receiver.frame(arrival);
            let stamp = stamp_of(frame).filter(|stamp| stamp.trial == self.trial);
            if let (Some(stamp), Some((source, destination))) = (stamp, ends_of(frame)) {
                let fault = fault_of(frame, self.maker.size());
                captured.push(Captured { sequence: stamp.sequence, source, destination, fault });
            }
        }
        Ok((trial, captured))
    }

    fn run(
        &mut self,
        offer: Offer,
        mask: Option<u32>,
        subject_cpu_s: &dyn Fn() -> f64,
    ) -> Result<Trial, ForwardingError> {
        self.trial = self.trial.wrapping_add(1);
        let before = self.counter.received()?;
        let (subject_before, softirq_before) = (subject_cpu_s(), self.softirq_cpu_s());
        let sent = self
            .send(offer, mask)
            .map_err(|source| ForwardingError::System { what: "sending test frames".to_owned(), source })?;
        let received = drain(before, sent.frames, || self.counter.received())?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(ForwardingError::Interrupted);
        }
        Ok(Trial {
            intended: offer.intended(sent.frames),
            sent: sent.frames,
            refused: sent.refused,
            received,
            elapsed_s: sent.elapsed_s,
            sender_cpu_s: sent.cpu_s,
            subject_cpu_s: (subject_cpu_s() - subject_before).max(0.0),
            softirq_cpu_s: (self.softirq_cpu_s() - softirq_before).max(0.0),
        })
    }

    fn send(&mut self, offer: Offer, mask: Option<u32>) -> io::Result<Sent> {
        let mut sent = Sent::default();
        let begin = Instant::now();
        let begin_cpu_s = thread_cpu_s();
        let mut inside_s = 0.0;
        self.maker.restart();
        while !self.stop.load(Ordering::Relaxed) {
            let pending = match offer.next(sent.frames, begin.elapsed().as_secs_f64()) {
                Next::Send(pending) => pending,
                Next::End => break,
                Next::Wait => {
                    match offer.sleeps {
                        true => std::thread::sleep(offer.until_next(sent.frames, begin.elapsed())),
                        false => std::hint::spin_loop(),
                    }
                    continue;
                }
            };
            let count = batch_of(pending, sent.frames as u32, mask);
            let sent_ns = real_time_ns();
            for at in 0..count {
                let sequence = (sent.frames as u32).wrapping_add(at as u32);
                let stamp = Stamp { sequence, trial: self.trial, sent_ns };
                self.maker.write(self.sender.frame_mut(at), stamp);
            }
            let before_s = if offer.whole_batches { thread_cpu_s() } else { 0.0 };
            sent.refused += send_all(&mut self.sender, count)?;
            if offer.whole_batches {
                inside_s += thread_cpu_s() - before_s;
            }
            sent.frames += count as u64;
        }
        sent.elapsed_s = begin.elapsed().as_secs_f64();
        sent.cpu_s = if offer.whole_batches { inside_s } else { thread_cpu_s() - begin_cpu_s };
        Ok(sent)
    }

    fn softirq_cpu_s(&self) -> f64 {
        self.softirq.iter().filter_map(|thread| ran_ns(thread)).sum::<u64>() as f64 / 1e9
    }
}

/// Waits for frames in flight; returns how many have arrived since there were `before`, as `received` counts.
pub(super) fn drain(
    before: u64,
    sent: u64,
    mut received: impl FnMut() -> Result<u64, ForwardingError>,
) -> Result<u64, ForwardingError> {
    let begin = Instant::now();
    let (mut last, mut last_at) = (received()?, begin);
    while last.saturating_sub(before) < sent && last_at.elapsed() < QUIET && begin.elapsed() < DRAIN_MAX {
        std::thread::sleep(Duration::from_millis(2));
        let now = received()?;
        if now != last {
            (last, last_at) = (now, Instant::now());
        }
    }
    Ok(last.saturating_sub(before))
}

/// The next batch's size: a tagged frame goes alone, and the batch before it ends there.
fn batch_of(pending: u64, sequence: u32, mask: Option<u32>) -> usize {
    let most = pending.min(BATCH as u64) as usize;
    match mask {
        None => most,
        Some(mask) if sequence & mask == 0 => 1,
        Some(mask) => most.min((mask - (sequence & mask)) as usize + 1),
    }
}

/// Sends a whole batch; returns how many frames the interface refused. They count as sent and lost: the link had no
/// room for them.
pub(crate) fn send_all(sender: &mut PacketSender, count: usize) -> io::Result<u64> {
    let (mut first, mut refused) = (0, 0);
    while first < count {
        match sender.send(first, count) {
            Ok(sent) => first += sent.max(1),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_full(&error) => {
                refused += 1;
                first += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// The folders of the kernel's softirq threads.
fn softirq_threads() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_softirq = |process: &PathBuf| {
        fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    processes.filter(is_softirq).collect()
}

pub(crate) fn real_time_ns() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tagged_frames_go_alone_and_none_is_left_out(
            total in 1u64..2000, start: u32, bits in 0u32..11, pending_max in 1u64..200,
        ) {
            let mask = (1u32 << bits) - 1;
            let (mut sent, mut alone) = (0u64, 0);
            while sent < total {
                let sequence = start.wrapping_add(sent as u32);
                let count = batch_of((total - sent).min(pending_max), sequence, Some(mask));
                prop_assert!((1..=BATCH).contains(&count));
                let tags = (0..count as u32).filter(|i| sequence.wrapping_add(*i) & mask == 0).count();
                prop_assert!(tags == 0 || count == 1, "{count} frames with {tags} tags");
                alone += tags;
                sent += count as u64;
            }
            prop_assert_eq!(sent, total);
            let expected = (0..total).filter(|i| start.wrapping_add(*i as u32) & mask == 0).count();
            prop_assert_eq!(alone, expected);
        }
    }

    #[test]
    fn offers() {
        assert_eq!(Offer::paced(1000.0, 0.5).frames, 500);
        assert_eq!(Offer::paced(0.1, 0.5).frames, 1, "a trial has a frame at least");
        let slow = Offer::paced(1000.0, 0.5);
        assert_eq!(
            [slow.next(0, 0.0), slow.next(1, 0.0), slow.next(1, 0.1)],
            [Next::Send(1), Next::Wait, Next::Send(100)]
        );
        assert_eq!(
            [slow.next(500, 0.1), slow.next(1, 0.6), slow.next(0, 0.6)],
            [Next::End, Next::End, Next::Send(500)]
        );
        let fast = Offer::paced(1e6, 0.5);
        assert_eq!(
            [fast.next(0, 1e-5), fast.next(0, 1e-4)],
            [Next::Wait, Next::Send(101)],
            "a burst is 50 frames"
        );
        assert_eq!((slow.intended(7), Offer::flood(1.0).intended(7)), (500, 7));
        assert_eq!(batch_of(1000, 3, None), BATCH);
        let ms = Duration::from_millis;
        assert_eq!([ms(1), ms(5)].map(|elapsed| slow.until_next(3, elapsed)), [ms(2), Duration::ZERO]);
        assert_eq!([(500.0, 1.0), (1e6, 1.0), (500.0, 200.0)].map(|(r, s)| mask_for(r, s)), [0, 127, 1]);
    }
}
