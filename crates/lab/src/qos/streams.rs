//! Sends two streams at the same time, and receives every frame.
//!
//! One thread sends both. Frames that are due leave at once, each stamped just before sending; when none is due,
//! the thread sleeps for [`NAP`] to leave a core to the router. So a frame may be sent up to a nap late, but its
//! latency counts from its stamp. The receiver takes all frames, which the kernel stamps on arrival; the trial
//! number in a stamp gives the stream.

use super::{BULK_PACKET_BYTES, CLASS_PORTS, Options, VOICE_PACKET_BYTES};
use crate::forwarding::ForwardingError;
use crate::forwarding::frame::{FrameMaker, FrameSize, Stamp, stamp_of};
use crate::forwarding::latency::{Percentiles, SAMPLES_MAX};
use crate::forwarding::load::ONE_ROUTE;
use crate::forwarding::packet_socket::{BATCH, PacketReceiver, PacketSender};
use crate::forwarding::tester::{real_time_ns, send_all};
use crate::forwarding::topology::{ROUTER_MACS, TESTER_ADDRESSES, TESTER_MACS, TESTER_PORTS, Topology};
use crate::workload::frames::{Endpoint, ends_of};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The sender's pause when nothing is due.
const NAP: Duration = Duration::from_micros(60);
/// The most frames sent in one call.
const BURST: u64 = 16;
/// How long the receiver waits for a frame before it checks whether to stop.
const RECEIVE_WAIT: Duration = Duration::from_millis(20);
/// How long to receive after the sender has ended: frames from full queues count.
const DRAIN: Duration = Duration::from_millis(600);
/// Bytes of a frame besides its packet: header and check sequence.
const FRAME_BYTES: usize = 18;

/// The fate of a stream, counted from the end of the warm-up.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Frames sent.
    pub sent: u64,
    /// How many of these arrived while others were still being sent.
    pub received: u64,
    /// How many of all sent frames arrived, however late.
    pub came: u64,
    /// Latency; `None` if no frame arrived.
    pub latency: Option<Percentiles>,
}

impl Received {
    /// The share lost.
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { 1.0 - self.came.min(self.sent) as f64 / self.sent as f64 }
    }
}

/// A stream that is ready to be sent.
struct Stream {
    sender: PacketSender,
    maker: FrameMaker,
    rate_pps: f64,
    trial: u16,
    sent: u64,
}

impl Stream {
    fn open(topology: &Topology, class: usize, rate_pps: f64) -> Result<Self, ForwardingError> {
        let packet_bytes = [VOICE_PACKET_BYTES, BULK_PACKET_BYTES][class];
        let failed = |what: &str| ForwardingError::System {
            what: what.to_owned(),
            source: io::ErrorKind::InvalidInput.into(),
        };
        let size = FrameSize::new(packet_bytes + FRAME_BYTES)
            .map_err(|_| failed("the size of a stream's frames"))?;
        let from = Endpoint { address: TESTER_ADDRESSES[0].into(), port: 40_000 + class as u16 };
        let to = Endpoint { address: u32::from(ONE_ROUTE.0) + 1, port: CLASS_PORTS[class] };
        let maker = FrameMaker::new(size, TESTER_MACS[0], ROUTER_MACS[0], &[(from, to)]);
        let mut sender = topology.tester_a.inside(|| PacketSender::open(TESTER_PORTS[0], size.bytes()))?;
        (0..BATCH).for_each(|at| maker.lay_out(sender.frame_mut(at)));
        Ok(Self { sender, maker, rate_pps, trial: class as u16, sent: 0 })
    }

    /// Sends the frames that are due after this time; returns whether there were any.
    fn send_due(&mut self, elapsed_s: f64) -> io::Result<bool> {
        let due = ((self.rate_pps * elapsed_s) as u64).saturating_sub(self.sent).min(BURST) as usize;
        let sent_ns = real_time_ns();
        for at in 0..due {
            let sequence = (self.sent as u32).wrapping_add(at as u32);
            self.maker.write(self.sender.frame_mut(at), Stamp { sequence, trial: self.trial, sent_ns });
        }
        // What a full link refuses is lost.
        send_all(&mut self.sender, due)?;
        self.sent += due as u64;
        Ok(due > 0)
    }
}

/// Received frames of both streams.
#[derive(Debug, Default)]
struct Arrivals {
    /// When each frame was sent, and its latency, in nanoseconds.
    frames: [Vec<(u64, u64)>; 2],
}

fn receive(receiver: &mut PacketReceiver, done: &AtomicBool) -> io::Result<Arrivals> {
    let mut arrivals = Arrivals::default();
    loop {
        let is_done = done.load(Ordering::Relaxed);
        let Some(arrival) = receiver.receive()? else {
            if is_done {
                return Ok(arrivals);
            }
            continue;
        };
        let frame = receiver.frame(arrival);
        let (Some(stamp), Some((_, to))) = (stamp_of(frame), ends_of(frame)) else { continue };
        let class = usize::from(stamp.trial);
        if CLASS_PORTS.get(class) != Some(&to.port) {
            continue;
        }
        if let (Some(list), Some(ns)) =
            (arrivals.frames.get_mut(class), arrival.arrived_ns.checked_sub(stamp.sent_ns))
            && list.len() < SAMPLES_MAX
        {
            list.push((stamp.sent_ns, ns));
        }
    }
}

/// Sends both streams and returns the fate of each.
pub(super) fn trial(
    topology: &Topology,
    options: &Options,
    stop: &AtomicBool,
) -> Result<[Received; 2], ForwardingError> {
    let [voice_pps, bulk_pps] = options.offered_pps();
    let mut streams = [Stream::open(topology, 0, voice_pps)?, Stream::open(topology, 1, bulk_pps)?];
    exchange(topology, &mut streams, (options.warm_up_s, options.trial_s), stop)
}

fn exchange(
    topology: &Topology,
    streams: &mut [Stream; 2],
    (warm_up_s, trial_s): (f64, f64),
    stop: &AtomicBool,
) -> Result<[Received; 2], ForwardingError> {
    let port = TESTER_PORTS[1];
    let mut receiver = topology.tester_b.inside(|| PacketReceiver::open(port, 0, RECEIVE_WAIT))?;
    let done = AtomicBool::new(false);
    let begin_ns = real_time_ns();
    let (sent, arrivals) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&mut receiver, &done));
        let sent = send(streams, warm_up_s, trial_s, stop);
        std::thread::sleep(DRAIN);
        done.store(true, Ordering::Relaxed);
        (sent, receiving.join().unwrap_or_else(|_| Err(io::Error::other("the receiver ended early"))))
    });
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| ForwardingError::System { what, source }
    };
    let before = sent.map_err(failed("sending the streams"))?;
    let arrivals = arrivals.map_err(failed("receiving the streams"))?;
    if stop.load(Ordering::Relaxed) {
        return Err(ForwardingError::Interrupted);
    }
    let counted = (begin_ns + (warm_up_s * 1e9) as u64, begin_ns + ((warm_up_s + trial_s) * 1e9) as u64);
    let of = |class: usize| count(&arrivals.frames[class], streams[class].sent - before[class], counted);
    Ok([of(0), of(1)])
}

/// Sends until the time is up; returns how many of each stream were sent in the warm-up.
fn send(streams: &mut [Stream; 2], warm_up_s: f64, trial_s: f64, stop: &AtomicBool) -> io::Result<[u64; 2]> {
    let begin = Instant::now();
    let mut before = [0; 2];
    loop {
        let elapsed_s = begin.elapsed().as_secs_f64();
        if elapsed_s >= warm_up_s + trial_s || stop.load(Ordering::Relaxed) {
            return Ok(before);
        }
        let mut any = false;
        for stream in streams.iter_mut() {
            any |= stream.send_due(elapsed_s)?;
        }
        if elapsed_s < warm_up_s {
            before = [streams[0].sent, streams[1].sent];
        }
        if !any {
            std::thread::sleep(NAP);
        }
    }
}

/// Counts the frames that were sent within the measured time.
fn count(frames: &[(u64, u64)], sent: u64, (from_ns, to_ns): (u64, u64)) -> Received {
    let within = |ns: u64| (from_ns..to_ns).contains(&ns);
    let arrived = frames.iter().filter(|(sent_ns, ns)| within(sent_ns + ns)).count() as u64;
    let latencies: Vec<u64> =
        frames.iter().filter(|(sent_ns, _)| within(*sent_ns)).map(|(_, ns)| *ns).collect();
    Received { sent, received: arrived, came: latencies.len() as u64, latency: Percentiles::of(latencies) }
}

/// Waits until both streams arrive at a low rate.
pub(super) fn wait_until_it_forwards(
    topology: &Topology,
    longest: Duration,
    stop: &AtomicBool,
) -> Result<(), ForwardingError> {
    let end = Instant::now() + longest;
    loop {
        let mut streams = [Stream::open(topology, 0, 500.0)?, Stream::open(topology, 1, 500.0)?];
        let classes = exchange(topology, &mut streams, (0.0, 0.05), stop)?;
        if classes.iter().all(|class| class.sent > 0 && class.came == class.sent) {
            return Ok(());
        }
        if Instant::now() > end {
            let of = |value: fn(&Received) -> u64| classes.iter().map(value).sum();
            let (sent, received) = (of(|class| class.sent), of(|class| class.came));
            return Err(ForwardingError::NotForwarding { sent, received, fault: None, said: String::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_belongs_to_the_time_that_counts_is_counted() {
        // Sent at, latency: before the start, across it, within, within but late, after.
        let frames = [(50, 10), (95, 10), (100, 5), (190, 30), (200, 1)];
        let received = count(&frames, 4, (100, 200));
        assert_eq!((received.sent, received.received, received.came), (4, 2, 2));
        assert_eq!(received.latency.map(|latency| (latency.min_ns, latency.max_ns)), Some((5, 30)));
        assert_eq!(received.loss(), 0.5);
        let nothing = count(&[], 0, (0, 1));
        assert_eq!((nothing.loss(), nothing.latency.is_none()), (0.0, true));
    }
}
