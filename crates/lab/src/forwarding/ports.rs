//! Routers with two, four and six ports and flows in both directions: figures 5 to 7 of the white paper (seed document
//! 002), in which ports 1 and 2, 3 and 4, 5 and 6 exchange frames.
//!
//! One thread sends by all ports in turn, a batch each, so that all have the same rate. The ceiling is what the same
//! thread sends over the same links ([`super::links`]) when nobody forwards. Before a router is measured, each port
//! must receive its peer's frames, and no others, as a router changes them.
//!
//! **Share of line rate** is arithmetic, because a virtual link has no rate. A port of 1 Gbit/s carries 10^9 / 8 /
//! (frame + 20) frames a second; preamble and gap are 20 bytes. The share is throughput by port over that, at most 1.

use super::ForwardingError;
use super::frame::{FrameMaker, FrameSize, PORT_ECHO, Stamp, fault_of};
use super::links::{Links, RouterPort};
use super::method::{self, SearchOptions, Trial};
use super::namespace::Counter;
use super::packet_socket::{BATCH, PacketReceiver, PacketSender};
use super::subject::{Label, Subject};
use super::tester::{Next, Offer, RECEIVE_WAIT, drain, send_all};
use crate::claims;
use crate::stats::{Summary, distinct, shuffle};
use crate::workload::frames::{Endpoint, ends_of};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg_base::XorShift64Star;

/// How many ports routers have.
pub const PORTS: [usize; 3] = [2, 4, 6];
/// Flows from each port.
const FLOWS: u16 = 16;
/// Preamble, start of frame and gap between frames, bytes.
const BETWEEN_FRAMES: usize = 20;
/// The trial by which a router shows that it forwards.
const VERIFY: (f64, f64) = (5_000.0, 0.04);

/// Sends by all ports, and counts what arrives.
struct Exchange<'a> {
    links: &'a Links,
    size: FrameSize,
    senders: Vec<(PacketSender, FrameMaker)>,
    counters: Vec<Counter>,
    stop: &'a AtomicBool,
}

impl<'a> Exchange<'a> {
    /// Counts what arrives at the testers or, with `is_alone`, at the namespace without a router.
    fn new(
        links: &'a Links,
        size: FrameSize,
        is_alone: bool,
        stop: &'a AtomicBool,
    ) -> Result<Self, ForwardingError> {
        let (mut senders, mut counters) = (Vec::new(), Vec::new());
        for (number, port) in links.ports.iter().enumerate() {
            let to = if is_alone { port.sink_mac } else { port.mac };
            let flows = flows(port, &links.ports[RouterPort::peer(number)]);
            let maker = FrameMaker::new(size, port.tester_mac, to, &flows);
            let mut sender = links.testers.inside(|| PacketSender::open(&port.tester, size.bytes()))?;
            (0..BATCH).for_each(|at| maker.lay_out(sender.frame_mut(at)));
            senders.push((sender, maker));
            counters.push(match is_alone {
                true => Counter::open(&links.router, &port.name)?,
                false => Counter::open(&links.testers, &port.tester)?,
            });
        }
        Ok(Self { links, size, senders, counters, stop })
    }

    fn trial(&mut self, offer: Offer) -> Result<Trial, ForwardingError> {
        let Self { senders, counters, stop, .. } = self;
        let mut received =
            || -> Result<u64, ForwardingError> { counters.iter_mut().map(Counter::received).sum() };
        let failed = |source| ForwardingError::System { what: "sending test frames".to_owned(), source };
        let before = received()?;
        let (mut sent, mut refused, mut turn, mut sequence) = (0u64, 0, 0, 0u32);
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let pending = match offer.next(sent, begin.elapsed().as_secs_f64()) {
                Next::Send(pending) => pending,
                Next::End => break,
                Next::Wait => {
                    std::hint::spin_loop();
                    continue;
                }
            };
            let ports = senders.len();
            let (sender, maker) = &mut senders[turn % ports];
            let count = usize::try_from(pending).map_or(BATCH, |pending| pending.min(BATCH));
            for at in 0..count {
                maker.write(sender.frame_mut(at), Stamp { sequence, trial: 0, sent_ns: 0 });
                sequence = sequence.wrapping_add(1);
            }
            refused += send_all(sender, count).map_err(failed)?;
            sent += count as u64;
            turn += 1;
        }
        let elapsed_s = begin.elapsed().as_secs_f64();
        let received = drain(before, sent, received)?;
        if stop.load(Ordering::Relaxed) {
            return Err(ForwardingError::Interrupted);
        }
        let intended = offer.intended(sent);
        Ok(Trial { intended, sent, refused, received, elapsed_s, ..Trial::default() })
    }

    /// A slow trial whose frames are looked at as they leave the router; also returns what is wrong with one.
    fn verify(&mut self) -> Result<(Trial, Option<&'static str>), ForwardingError> {
        let links = self.links;
        let open =
            |port: &RouterPort| links.testers.inside(|| PacketReceiver::open(&port.tester, 0, RECEIVE_WAIT));
        let mut receivers = links.ports.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let trial = self.trial(Offer::paced(VERIFY.0, VERIFY.1))?;
        let mut fault = None;
        for (receiver, port) in receivers.iter_mut().zip(&links.ports) {
            let failed =
                |source| ForwardingError::System { what: format!("receiving on {}", port.tester), source };
            while let Some(arrival) = receiver.receive().map_err(failed)? {
                let frame = receiver.frame(arrival);
                fault = fault.or_else(|| fault_at(frame, self.size, port));
            }
        }
        Ok((trial, fault))
    }
}

/// What is wrong with a frame that left the router by this port.
fn fault_at(frame: &[u8], size: FrameSize, port: &RouterPort) -> Option<&'static str> {
    let network = |address: u32| address & 0xffff_ff00;
    let is_here = |(_, to): (Endpoint, Endpoint)| network(to.address) == u32::from(port.network);
    match ends_of(frame) {
        Some(ends) if !is_here(ends) => Some("another port's frame"),
        _ => fault_of(frame, size),
    }
}

/// Flows from hosts on a port's network to hosts behind its peer's sink.
fn flows(port: &RouterPort, peer: &RouterPort) -> Vec<(Endpoint, Endpoint)> {
    let host = |network: Ipv4Addr, number: u16| u32::from(network) + u32::from(number);
    let flow = |number: u16| {
        let from = Endpoint { address: host(port.address, 9 + number), port: 1024 + number };
        (from, Endpoint { address: host(peer.network, 1 + number), port: PORT_ECHO })
    };
    (0..FLOWS).map(flow).collect()
}

/// One round of one router, or of the generator alone.
#[derive(Clone, Debug)]
pub struct PortsRun {
    /// `None`: the generator alone.
    label: Option<Label>,
    ports: usize,
    size: FrameSize,
    rate_pps: f64,
}

/// How trials are made.
#[derive(Clone, Copy, Debug)]
pub struct PortsOptions<'a> {
    pub ports: &'a [usize],
    pub frames: &'a [FrameSize],
    pub mtu: usize,
    pub trial_s: f64,
    pub search: SearchOptions,
    pub start_wait: Duration,
}

/// One round of all routers that take several ports, in shuffled order; those that fail are named in `left_out`.
pub fn round(
    subjects: &mut [Box<dyn Subject>],
    options: PortsOptions<'_>,
    rng: &mut XorShift64Star,
    stop: &AtomicBool,
    runs: &mut Vec<PortsRun>,
    left_out: &mut Vec<String>,
) -> Result<(), ForwardingError> {
    let mut order: Vec<usize> = (0..subjects.len()).collect();
    for &count in options.ports {
        let ceilings = ceilings(count, options, stop)?;
        for (&size, &rate_pps) in options.frames.iter().zip(&ceilings) {
            runs.push(PortsRun { label: None, ports: count, size, rate_pps });
        }
        shuffle(&mut order, rng);
        for &at in &order {
            let subject = subjects[at].as_mut();
            let links = Links::new(count, options.mtu)?;
            let Some(set_up) = subject.set_up_ports(&links, options.mtu) else { continue };
            let ran = set_up.and_then(|()| cells(&*subject, &links, options, &ceilings, stop, runs));
            // Before its interfaces are removed.
            subject.tear_down();
            match ran {
                Ok(()) => {}
                Err(ForwardingError::Interrupted) => return Err(ForwardingError::Interrupted),
                Err(error) => left_out.push(format!("{}, {count} ports: {error}", subject.label())),
            }
        }
    }
    Ok(())
}

/// Frames per second of the generator alone, for each frame size.
fn ceilings(count: usize, options: PortsOptions<'_>, stop: &AtomicBool) -> Result<Vec<f64>, ForwardingError> {
    let links = Links::new(count, options.mtu)?;
    let ceiling = |size: &FrameSize| {
        let mut alone = Exchange::new(&links, *size, true, stop)?;
        // The first frames pay for pages and caches.
        alone.trial(Offer::flood(options.trial_s / 10.0))?;
        let pps = alone.trial(Offer::flood(options.trial_s))?.received_pps();
        if pps > 0.0 { Ok(pps) } else { Err(ForwardingError::NoGenerator) }
    };
    options.frames.iter().map(ceiling).collect()
}

/// Measures a router with each frame size.
fn cells(
    subject: &dyn Subject,
    links: &Links,
    options: PortsOptions<'_>,
    ceilings: &[f64],
    stop: &AtomicBool,
    runs: &mut Vec<PortsRun>,
) -> Result<(), ForwardingError> {
    for (&size, ceiling) in options.frames.iter().zip(ceilings) {
        let mut exchange = Exchange::new(links, size, false, stop)?;
        let end = Instant::now() + options.start_wait;
        loop {
            let (trial, fault) = exchange.verify()?;
            if fault.is_none() && trial.received * 100 >= trial.sent * 99 {
                break;
            }
            if Instant::now() > end {
                let (sent, received, said) = (trial.sent, trial.received, subject.said());
                return Err(ForwardingError::NotForwarding { sent, received, fault, said });
            }
        }
        let found = method::throughput(*ceiling, &options.search, |rate| {
            exchange.trial(Offer::paced(rate, options.trial_s))
        })?;
        let label = Some(subject.label().clone());
        runs.push(PortsRun { label, ports: links.ports.len(), size, rate_pps: found.rate_pps });
    }
    Ok(())
}

/// The results of a router with so many ports.
#[derive(Clone, Debug, Serialize)]
pub struct PortsResult {
    /// `None`: the generator alone.
    #[serde(flatten)]
    pub label: Option<Label>,
    pub ports: usize,
    /// Includes the check sequence.
    pub frame_bytes: usize,
    /// Throughput of all ports together, in both directions.
    pub packets_per_second: Summary,
    /// Throughput over what as many ports of 1 Gbit/s carry, at most 1: arithmetic.
    pub share_of_1g: f64,
    /// The same of ports of 10 Gbit/s.
    pub share_of_10g: f64,
    /// Median throughput over the generator's alone.
    pub ceiling_share: Option<f64>,
    /// Median throughput over the native router's.
    pub native_ratio: Option<f64>,
    /// The white paper's share of line rate with as many ports, in per cent.
    pub paper: Option<f64>,
}

/// Frames per second that a port of `bits_per_second` carries.
pub fn line_pps(bits_per_second: f64, frame_bytes: usize) -> f64 {
    bits_per_second / 8.0 / (frame_bytes + BETWEEN_FRAMES) as f64
}

/// The white paper's DPDK router on two threads of a Xeon E5-2648L: frames of this length, or its next shorter ones.
fn paper(ports: usize, frame_bytes: usize) -> Option<f64> {
    let rows = claims::series("002/line-rate").iter().filter_map(|(key, values)| {
        let (of, frame) = key.split_once('/')?;
        (of.parse() == Ok(ports)).then_some((frame.parse::<usize>().ok()?, *values.first()?))
    });
    rows.filter(|(frame, _)| *frame <= frame_bytes).max_by_key(|(frame, _)| *frame).map(|(_, share)| share)
}

/// Summarizes all rounds, by ports and frame size, the generator first.
pub fn sum_up(runs: &[PortsRun]) -> Vec<PortsResult> {
    let keys = distinct(runs.iter().map(|run| (run.ports, run.size, run.label.as_ref())));
    let summary = |key: (usize, FrameSize, Option<&Label>)| {
        let here = runs.iter().filter(|run| (run.ports, run.size, run.label.as_ref()) == key);
        Summary::of(&here.map(|run| run.rate_pps).collect::<Vec<_>>())
    };
    let result = |&(ports, size, label): &(usize, FrameSize, Option<&Label>)| {
        let packets_per_second = summary((ports, size, label))?;
        let (pps, frame_bytes) = (packets_per_second.median, size.wire_bytes());
        let line_share = |bits| (pps / (line_pps(bits, frame_bytes) * ports as f64)).min(1.0);
        let over = |other: Option<&Label>| {
            let base = summary((ports, size, other)).filter(|base| base.median > 0.0 && label.is_some());
            base.map(|base| pps / base.median)
        };
        let native = keys.iter().filter_map(|(.., label)| *label).find(|label| label.is_native());
        Some(PortsResult {
            label: label.cloned(),
            ports,
            frame_bytes,
            share_of_1g: line_share(1e9),
            share_of_10g: line_share(1e10),
            ceiling_share: over(None),
            native_ratio: native.and_then(|native| over(Some(native))),
            paper: label.and_then(|_| paper(ports, frame_bytes)),
            packets_per_second,
        })
    };
    let mut results: Vec<PortsResult> = keys.iter().filter_map(result).collect();
    results.sort_by_key(|result| {
        (result.ports, result.frame_bytes, result.label.as_ref().map(Label::to_string))
    });
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(label: Option<Label>, ports: usize, rate_pps: f64) -> PortsRun {
        PortsRun { label, ports, size: FrameSize::new(64).unwrap(), rate_pps }
    }

    #[test]
    fn shares_of_line_rate_are_arithmetic() {
        assert_eq!((line_pps(1e9, 64).round(), line_pps(1e10, 1518).round()), (1_488_095.0, 812_744.0));
        let (kernel, ours) = (Label::new("linux", "kernel", ""), Label::new("thalweg", "af_xdp", "serial"));
        let line = 2.0 * line_pps(1e9, 64);
        let runs = [
            run(Some(ours.clone()), 2, line / 2.0),
            run(Some(kernel), 2, line / 4.0),
            run(None, 2, line * 2.0),
            run(Some(ours), 2, line / 2.0),
        ];
        let results = sum_up(&runs);
        assert_eq!(results.len(), 3);
        let alone = &results[0];
        assert!(alone.label.is_none() && alone.native_ratio.or(alone.ceiling_share).is_none());
        assert!(alone.paper.is_none() && alone.share_of_1g == 1.0, "more than the line carries: {alone:?}");
        let ours = results.iter().find(|result| result.native_ratio == Some(2.0)).expect("twice the kernel");
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        near(ours.share_of_1g, 0.5);
        near(ours.share_of_10g, 0.05);
        near(ours.ceiling_share.unwrap(), 0.25);
        assert_eq!(
            [(2, 64), (4, 1024), (6, 64), (6, 200), (6, 1518)].map(|(ports, frame)| paper(ports, frame)),
            [None, Some(100.0), Some(75.3), Some(92.3), Some(99.0)]
        );
        // Other ports are other cells.
        let more = sum_up(&[&runs[..], &[run(None, 4, 1.0)]].concat());
        assert_eq!(more.iter().map(|result| result.ports).collect::<Vec<_>>(), [2, 2, 2, 4]);
    }

    #[test]
    fn a_frame_at_the_wrong_port_is_a_fault() {
        let size = FrameSize::new(64).unwrap();
        let [first, second] = [0, 1].map(RouterPort::new);
        let mut maker = FrameMaker::new(size, first.tester_mac, first.mac, &flows(&first, &second));
        let mut frame = vec![0; size.bytes()];
        maker.lay_out(&mut frame);
        maker.write(&mut frame, Stamp { sequence: 0, trial: 0, sent_ns: 0 });
        assert_eq!(fault_at(&frame, size, &first), Some("another port's frame"));
        assert_eq!(fault_at(&frame, size, &second), Some("time to live not lowered by one"));
    }
}
