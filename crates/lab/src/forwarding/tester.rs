//! The tester: a generator on one side, a receiver on the other.
//!
//! **Sending.** Frames leave in batches of up to 64 by one system call. At a given rate the generator asks the clock how
//! many frames are due and sends them when they make a burst: as many as fall into 50 µs, at least one, at most a
//! batch. Frames that are late are sent at once; a trial ends when all are sent or when its time, a hundredth and 4 ms
//! are over. What is not sent by then was intended and not offered ([`Trial::loss`]).
//!
//! **Counting.** The receiving interface's own counter, read before and after. It costs nothing, unlike a program that
//! receives every frame, which would take half of this machine. Nothing but test frames is on the wire.
//! After the last frame the tester waits until none has come for a while, as the RFC wants.
//!
//! **Timing.** Of a trial that asks for it, one frame in a power of two is *tagged*: it is sent by a call of its
//! own, the clock read just before, and the receiver's filter lets just those through. They are stamped by the
//! kernel when they arrive at the interface. So a latency holds the send call, both links and the router, and not
//! the receiver's own wake-up. Both clocks are the machine's real-time clock; a frame that seems to arrive
//! before it was sent is counted and left out.
//!
//! **Cost.** Processor time inside the send calls: on virtual links nearly the whole path, a kernel's router included,
//! runs in there. Waiting for the next burst is not counted. With it go the time of the router's own
//! processes and that of the kernel's softirq threads. Bursts are whole batches in such trials, whatever the rate.

use super::ForwardingError;
use super::frame::{FrameMaker, FrameSize, Stamp, fault_of, stamp_of};
use super::latency::SAMPLES_MAX;
use super::method::Trial;
use super::namespace::{Counter, Namespace};
use super::packet_socket::{BATCH, PacketReceiver, PacketSender};
use super::topology::{DIRECT_PORTS, ROUTER_MACS, SINK_MAC, TESTER_MACS, TESTER_PORTS, Topology};
use crate::cpu_time::thread_cpu_s;
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
/// A trial may take this much longer than it should: a share of it, and one time slice of somebody else's program, which
/// matters to short trials only.
const OVERTIME: f64 = 0.01;
const OVERTIME_S: f64 = 0.004;
/// No frame for this long means that none will come.
const QUIET: Duration = Duration::from_millis(60);
/// The RFC waits two seconds for what is still under way; so long at most do we.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Frames of a trial that are sure to fit into a receiver's buffer until they are read.
pub const CAPTURE_MAX: u32 = 50_000;
/// How long a receiver sleeps before it looks whether it is still wanted.
const RECEIVE_WAIT: Duration = Duration::from_millis(10);

/// Which way frames take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the router.
    Router,
    /// From tester to tester, over one link.
    Direct,
    /// Through the router from tester-b's side to tester-a's, as replies go.
    Back,
}

/// What a trial is to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    rate_pps: f64,
    frames: u64,
    limit_s: f64,
    whole_batches: bool,
}

impl Offer {
    /// A steady rate for some time.
    pub fn paced(rate_pps: f64, seconds: f64) -> Self {
        let frames = (rate_pps * seconds).round().max(1.0) as u64;
        Self { rate_pps, frames, limit_s: seconds * (1.0 + OVERTIME) + OVERTIME_S, whole_batches: false }
    }

    /// As fast as it goes for some time.
    pub fn flood(seconds: f64) -> Self {
        Self { rate_pps: f64::INFINITY, frames: u64::MAX, limit_s: seconds, whole_batches: true }
    }

    /// So many frames as fast as it goes.
    pub fn burst(frames: u64) -> Self {
        // Time enough for a router that holds the sender back a hundredfold.
        let limit_s = 10.0 + frames as f64 / 10_000.0;
        Self { rate_pps: f64::INFINITY, frames, limit_s, whole_batches: true }
    }

    /// The same in whole batches, with the processor time inside send calls measured.
    pub fn costed(self) -> Self {
        Self { whole_batches: true, ..self }
    }
}

/// What came of the tagged frames of a trial.
#[derive(Clone, Debug, Default)]
pub struct Tagged {
    /// How long each was under way, nanoseconds.
    pub latencies_ns: Vec<u64>,
    /// Frames that were not as they should be, by what was wrong.
    pub faults: BTreeMap<&'static str, u64>,
    /// Frames that seemed to arrive before they were sent, or beyond [`SAMPLES_MAX`].
    pub left_out: u64,
    /// Frames that came after a later one.
    pub out_of_order: u64,
}

/// A frame that was read after its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its number in the trial, from 0.
    pub sequence: u32,
    /// Where it says it is from.
    pub source: Endpoint,
    /// Where it goes.
    pub destination: Endpoint,
    /// What is wrong with it, if anything.
    pub fault: Option<&'static str>,
}

/// One way with everything open that trials on it need.
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
}

/// What was sent, and at what cost.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    frames: u64,
    refused: u64,
    elapsed_s: f64,
    cpu_s: f64,
}

impl<'a> Tester<'a> {
    /// Frames of a size over the flows. Trials end early, with an error, once `stop` is set.
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
        Ok(Self { way, receiving, sender, maker, counter, softirq: softirq_threads(), stop, trial: 0 })
    }

    /// One trial. `subject_cpu_s` says how much processor time the router's processes have used so far.
    pub fn trial(&mut self, offer: Offer, subject_cpu_s: &dyn Fn() -> f64) -> Result<Trial, ForwardingError> {
        self.run(offer, None, subject_cpu_s)
    }

    /// One trial in which one frame of `mask` + 1, a power of two, is timed and looked at.
    pub fn tagged(
        &mut self,
        offer: Offer,
        mask: u32,
        subject_cpu_s: &dyn Fn() -> f64,
    ) -> Result<(Trial, Tagged), ForwardingError> {
        let (namespace, port) = self.receiving;
        let mut receiver = namespace.inside(|| PacketReceiver::open(port, mask, RECEIVE_WAIT))?;
        let (trial, size, routed) = (self.trial.wrapping_add(1), self.maker.size(), self.way != Way::Direct);
        let done = AtomicBool::new(false);
        let (sent, tagged) = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&mut receiver, trial, size, routed, &done));
            let sent = self.run(offer, Some(mask), subject_cpu_s);
            done.store(true, Ordering::Relaxed);
            let tagged =
                receiving.join().unwrap_or_else(|_| Err(io::Error::other("the receiver ended early")));
            (sent, tagged)
        });
        let failed = |source| ForwardingError::System { what: format!("receiving on {port}"), source };
        Ok((sent?, tagged.map_err(failed)?))
    }

    /// One trial after which every frame that came is read: its sequence number, and its ends as they arrived. The
    /// frames wait in the socket's buffer until the last is sent, so that nobody's reading disturbs the trial; what that
    /// buffer has no room for ([`CAPTURE_MAX`]) is not seen.
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
        let received = self.drain(before, sent.frames)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(ForwardingError::Interrupted);
        }
        Ok(Trial {
            intended: if offer.frames == u64::MAX { sent.frames } else { offer.frames },
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
        let burst = match offer.rate_pps * BURST_S {
            _ if offer.whole_batches => BATCH as u64,
            frames => frames.clamp(1.0, BATCH as f64) as u64,
        };
        let mut sent = Sent::default();
        let begin = Instant::now();
        let begin_cpu_s = thread_cpu_s();
        let mut inside_s = 0.0;
        self.maker.restart();
        loop {
            let elapsed_s = begin.elapsed().as_secs_f64();
            // A trial sends something, however long the system keeps this thread from running.
            let is_late = elapsed_s >= offer.limit_s && sent.frames > 0;
            if sent.frames >= offer.frames || is_late || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let due = if offer.rate_pps.is_finite() {
                offer.frames.min((offer.rate_pps * elapsed_s) as u64 + 1)
            } else {
                offer.frames
            };
            let pending = due.saturating_sub(sent.frames);
            if pending == 0 || (pending < burst && due < offer.frames) {
                std::hint::spin_loop();
                continue;
            }
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

    /// Waits for what is still under way; how many frames have come since `before`.
    fn drain(&mut self, before: u64, sent: u64) -> Result<u64, ForwardingError> {
        let begin = Instant::now();
        let (mut last, mut last_at) = (self.counter.received()?, begin);
        while last.saturating_sub(before) < sent && last_at.elapsed() < QUIET && begin.elapsed() < DRAIN_MAX {
            std::thread::sleep(Duration::from_millis(2));
            let now = self.counter.received()?;
            if now != last {
                (last, last_at) = (now, Instant::now());
            }
        }
        Ok(last.saturating_sub(before))
    }

    fn softirq_cpu_s(&self) -> f64 {
        let ran_ns =
            |path: &PathBuf| fs::read_to_string(path).ok()?.split_whitespace().next()?.parse::<u64>().ok();
        self.softirq.iter().filter_map(ran_ns).sum::<u64>() as f64 / 1e9
    }
}

/// Frames of the next batch: a tagged frame goes alone, and others stop before it.
fn batch_of(pending: u64, sequence: u32, mask: Option<u32>) -> usize {
    let most = pending.min(BATCH as u64) as usize;
    match mask {
        None => most,
        Some(mask) if sequence & mask == 0 => 1,
        Some(mask) => most.min((mask - (sequence & mask)) as usize + 1),
    }
}

/// Sends a batch to its last frame; gives how many the interface refused. Those are sent and lost: there was no room
/// for them on the link.
pub(super) fn send_all(sender: &mut PacketSender, count: usize) -> io::Result<u64> {
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

/// No room in the socket's or the link's queue.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

fn receive(
    receiver: &mut PacketReceiver,
    trial: u16,
    size: FrameSize,
    routed: bool,
    done: &AtomicBool,
) -> io::Result<Tagged> {
    let mut tagged = Tagged::default();
    let mut last = None;
    loop {
        // Asked before receiving: what came until then is still read.
        let is_done = done.load(Ordering::Relaxed);
        let Some(arrival) = receiver.receive()? else {
            if is_done {
                return Ok(tagged);
            }
            continue;
        };
        let frame = receiver.frame(arrival);
        let Some(stamp) = stamp_of(frame).filter(|stamp| stamp.trial == trial) else { continue };
        if let Some(fault) = fault_of(frame, size).filter(|_| routed) {
            *tagged.faults.entry(fault).or_default() += 1;
        }
        tagged.out_of_order += u64::from(last.is_some_and(|last| stamp.sequence < last));
        last = Some(stamp.sequence);
        match arrival.arrived_ns.checked_sub(stamp.sent_ns) {
            Some(ns) if tagged.latencies_ns.len() < SAMPLES_MAX => tagged.latencies_ns.push(ns),
            _ => tagged.left_out += 1,
        }
    }
}

/// Where the kernel's softirq threads say how long they ran.
fn softirq_threads() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_softirq = |process: &PathBuf| {
        fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    processes.filter(is_softirq).map(|process| process.join("schedstat")).collect()
}

fn real_time_ns() -> u64 {
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
        assert_eq!(batch_of(1000, 3, None), BATCH);
    }
}
