//! Routers with two, four and six ports, and flows in both directions: figures 5 to 7 of the white paper (seed document
//! 002), where ports 1 and 2, 3 and 4, 5 and 6 exchange frames.
//!
//! ```text
//!   testers (one namespace)              router
//!   t0 ===================== p0  198.18.0.0/24
//!   t1 ===================== p1  198.18.1.0/24       198.19.I.0/24: behind the sink of port I, 198.18.I.3
//!   t2 ...                   p2 ...
//! ```
//!
//! One thread sends by all ports in turn, a batch each, so that all have the same rate. The testers have no addresses: a
//! frame is counted where it comes out of the router and is thrown away as another host's, as in [`super::topology`].
//! The ceiling is what the same thread sends over the same links when nobody forwards.
//!
//! **Share of line rate** is arithmetic: a virtual link has no rate. A port of 1 Gbit/s carries 10^9 / 8 / (frame + 20)
//! frames a second (preamble and gap are 20 bytes). Throughput by port over that is the share, at most 100 %.

use super::ForwardingError;
use super::frame::{FrameMaker, FrameSize, PORT_ECHO, Stamp};
use super::method::{self, Found, SearchOptions, Trial};
use super::namespace::{Counter, Namespace};
use super::packet_socket::{BATCH, PacketSender};
use super::subject::{Label, Subject};
use super::tester::send_all;
use super::topology::link;
use crate::stats::{Summary, distinct};
use crate::workload::frames::Endpoint;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg_wire::MacAddr;

/// How many ports routers have.
pub const PORTS: [usize; 3] = [2, 4, 6];
/// Most ports: each has a network of its own.
const PORTS_MAX: usize = 64;
/// Flows from each port.
const FLOWS: u16 = 16;
/// Preamble, start of frame and gap between frames, bytes.
const BETWEEN_FRAMES: usize = 20;
/// No frame for this long means that none will come.
const QUIET: Duration = Duration::from_millis(60);
/// Frames by which a router shows that it forwards.
const VERIFY_PPS: f64 = 5_000.0;
/// A trial may take this much longer than it should.
const OVERTIME_S: f64 = 0.004;

/// One port of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterPort {
    /// The router's interface.
    pub name: String,
    /// Its address, in a /24.
    pub address: Ipv4Addr,
    /// Next hop of the frames that leave here; nobody's address.
    pub sink: Ipv4Addr,
    pub sink_mac: MacAddr,
    /// The network behind the sink, a /24.
    pub network: Ipv4Addr,
}

impl RouterPort {
    fn new(index: usize) -> Self {
        let at = index as u8; // fewer than PORTS_MAX
        Self {
            name: format!("p{index}"),
            address: Ipv4Addr::new(198, 18, at, 1),
            sink: Ipv4Addr::new(198, 18, at, 3),
            sink_mac: mac(at, 3),
            network: Ipv4Addr::new(198, 19, at, 0),
        }
    }
}

fn mac(port: u8, host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 1, port, host])
}

/// Testers and a router with so many links between them.
#[derive(Debug)]
pub struct Links {
    testers: Namespace,
    /// Where the router is to be made.
    pub router: Namespace,
    /// Its ports.
    pub ports: Vec<RouterPort>,
}

impl Links {
    /// Makes them; `count` is even.
    pub fn new(count: usize, mtu: usize) -> Result<Self, ForwardingError> {
        let ports = (0..count.min(PORTS_MAX)).map(RouterPort::new).collect();
        let links = Self { testers: Namespace::new("t")?, router: Namespace::new("r")?, ports };
        for (index, port) in (0u8..).zip(&links.ports) {
            let tester = format!("t{index}");
            let ends = ((&links.testers, tester.as_str(), mac(index, 2)), (&links.router, port.name.as_str(), mac(index, 1)));
            link(ends.0, ends.1, mtu)?;
        }
        Ok(links)
    }
}

/// Sends by all ports, and counts what comes.
struct Exchange<'a> {
    senders: Vec<(PacketSender, FrameMaker)>,
    counters: Vec<Counter>,
    stop: &'a AtomicBool,
}

impl<'a> Exchange<'a> {
    /// Counts what comes to the testers, or with `is_alone` what comes to where a router might be.
    fn new(links: &Links, size: FrameSize, is_alone: bool, stop: &'a AtomicBool) -> Result<Self, ForwardingError> {
        let (mut senders, mut counters) = (Vec::new(), Vec::new());
        for (index, port) in (0u8..).zip(&links.ports) {
            let peer = RouterPort::new(usize::from(index) ^ 1);
            let to = if is_alone { port.sink_mac } else { mac(index, 1) };
            let maker = FrameMaker::new(size, mac(index, 2), to, &flows(index, &peer));
            let name = format!("t{index}");
            let mut sender = links.testers.inside(|| PacketSender::open(&name, size.bytes()))?;
            (0..BATCH).for_each(|at| maker.lay_out(sender.frame_mut(at)));
            senders.push((sender, maker));
            counters.push(match is_alone {
                true => Counter::open(&links.router, &port.name)?,
                false => Counter::open(&links.testers, &name)?,
            });
        }
        Ok(Self { senders, counters, stop })
    }

    fn received(&mut self) -> Result<u64, ForwardingError> {
        self.counters.iter_mut().map(Counter::received).sum()
    }

    /// Sends at a rate of all ports together, for some time; as fast as it goes with an infinite one.
    fn trial(&mut self, rate_pps: f64, seconds: f64) -> Result<Trial, ForwardingError> {
        let before = self.received()?;
        let frames = if rate_pps.is_finite() { (rate_pps * seconds).round().max(1.0) as u64 } else { u64::MAX };
        let limit_s = if rate_pps.is_finite() { seconds * 1.01 + OVERTIME_S } else { seconds };
        let failed = |source| ForwardingError::System { what: "sending test frames".to_owned(), source };
        let (mut sent, mut refused, mut turn) = (0u64, 0, 0);
        let begin = Instant::now();
        loop {
            let elapsed_s = begin.elapsed().as_secs_f64();
            if sent >= frames || (elapsed_s >= limit_s && sent > 0) {
                break;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(ForwardingError::Interrupted);
            }
            let due = if rate_pps.is_finite() { frames.min((rate_pps * elapsed_s) as u64 + 1) } else { frames };
            let count = due.saturating_sub(sent).min(BATCH as u64) as usize;
            if count == 0 {
                std::hint::spin_loop();
                continue;
            }
            let ports = self.senders.len();
            let (sender, maker) = &mut self.senders[turn % ports];
            for at in 0..count {
                maker.write(sender.frame_mut(at), Stamp { sequence: (sent as u32).wrapping_add(at as u32), trial: 0, sent_ns: 0 });
            }
            refused += send_all(sender, count).map_err(failed)?;
            sent += count as u64;
            turn += 1;
        }
        let elapsed_s = begin.elapsed().as_secs_f64();
        let received = self.drain(before, sent)?;
        let intended = if frames == u64::MAX { sent } else { frames };
        Ok(Trial { intended, sent, refused, received, elapsed_s, ..Trial::default() })
    }

    /// Waits for what is still under way; how many frames have come since `before`.
    fn drain(&mut self, before: u64, sent: u64) -> Result<u64, ForwardingError> {
        let (mut last, mut last_at) = (self.received()?, Instant::now());
        while last.saturating_sub(before) < sent && last_at.elapsed() < QUIET {
            std::thread::sleep(Duration::from_millis(2));
            let now = self.received()?;
            if now != last {
                (last, last_at) = (now, Instant::now());
            }
        }
        Ok(last.saturating_sub(before))
    }
}

/// Flows from hosts on a port's network to hosts behind its peer's sink.
fn flows(port: u8, peer: &RouterPort) -> Vec<(Endpoint, Endpoint)> {
    let host = |network: Ipv4Addr, number: u16| u32::from(network) + u32::from(number);
    let source = Ipv4Addr::new(198, 18, port, 0);
    let flow = |number: u16| {
        let from = Endpoint { address: host(source, 10 + number), port: 1024 + number };
        (from, Endpoint { address: host(peer.network, 1 + number), port: PORT_ECHO })
    };
    (0..FLOWS).map(flow).collect()
}

/// One round of one router, or of the generator alone.
#[derive(Clone, Debug)]
pub struct PortsRun {
    /// Who; nobody: the generator alone.
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

/// One round of all routers that can have so many ports; those that fail are named in `left_out`.
pub fn round(
    subjects: &mut [Box<dyn Subject>],
    options: PortsOptions<'_>,
    stop: &AtomicBool,
    runs: &mut Vec<PortsRun>,
    left_out: &mut Vec<String>,
) -> Result<(), ForwardingError> {
    for &count in options.ports {
        let mut ceilings = Vec::new();
        for &size in options.frames {
            let links = Links::new(count, options.mtu)?;
            let mut alone = Exchange::new(&links, size, true, stop)?;
            alone.trial(f64::INFINITY, options.trial_s / 10.0)?;
            let pps = alone.trial(f64::INFINITY, options.trial_s)?.received_pps();
            if pps <= 0.0 {
                return Err(ForwardingError::NoGenerator);
            }
            runs.push(PortsRun { label: None, ports: count, size, rate_pps: pps });
            ceilings.push(pps);
        }
        for subject in subjects.iter_mut() {
            let links = Links::new(count, options.mtu)?;
            let name = format!("{}, {count} ports", subject.label());
            let ran = match subject.set_up_ports(&links, options.mtu) {
                None => continue,
                Some(made) => made.and_then(|()| cells(subject.as_ref(), &links, options, &ceilings, stop, runs)),
            };
            subject.tear_down();
            match ran {
                Err(ForwardingError::Interrupted) => return Err(ForwardingError::Interrupted),
                Err(error) => left_out.push(format!("{name}: {error}")),
                Ok(()) => {}
            }
        }
    }
    Ok(())
}

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
            let trial = exchange.trial(VERIFY_PPS, 0.04)?;
            if trial.received * 100 >= trial.sent * 99 && trial.received <= trial.sent {
                break;
            }
            if Instant::now() > end {
                let (sent, received, said) = (trial.sent, trial.received, subject.said());
                return Err(ForwardingError::NotForwarding { sent, received, fault: None, said });
            }
        }
        let found: Found =
            method::throughput(*ceiling, &options.search, |rate| exchange.trial(rate, options.trial_s))?;
        let label = Some(subject.label().clone());
        runs.push(PortsRun { label, ports: links.ports.len(), size, rate_pps: found.rate_pps });
    }
    Ok(())
}

/// What a router with so many ports came to.
#[derive(Clone, Debug, Serialize)]
pub struct PortsResult {
    /// Who; nobody: the generator alone.
    #[serde(flatten)]
    pub label: Option<Label>,
    pub ports: usize,
    /// Bytes of a frame, check sequence included.
    pub frame_bytes: usize,
    /// Throughput of all ports together, both directions, frames per second.
    pub packets_per_second: Summary,
    /// Over what ports of 1 Gbit/s carry, at most 1: arithmetic.
    pub share_of_1g: f64,
    /// Of ports of 10 Gbit/s.
    pub share_of_10g: f64,
    /// Over the native router's.
    pub native_ratio: Option<f64>,
    /// What the white paper measured with as many ports, in words.
    pub paper: Option<&'static str>,
}

/// Frames per second that a port of `bits_per_second` carries.
pub fn line_pps(bits_per_second: f64, frame_bytes: usize) -> f64 {
    bits_per_second / 8.0 / (frame_bytes + BETWEEN_FRAMES) as f64
}

/// The white paper's DPDK router on two threads of a Xeon E5-2648L; two ports of 10 Gbit/s, four of 1, and all six.
fn paper(ports: usize, frame_bytes: usize) -> Option<&'static str> {
    match (ports, frame_bytes) {
        (4, _) => Some("100 % of 4 x 1G (kernel: 1 Mpps at 64)"),
        (2, 64) => Some("more than ten times the kernel on 2 x 10G"),
        (6, 64) => Some("75.3 % of 24 Gbit/s (27 Mpps)"),
        (6, 128) => Some("92.3 % of 24 Gbit/s"),
        (6, 256..) => Some("99 % of 24 Gbit/s"),
        _ => None,
    }
}

/// Medians of all rounds, by ports and frame size, the generator first.
pub fn sum_up(runs: &[PortsRun]) -> Vec<PortsResult> {
    let keys = distinct(runs.iter().map(|run| (run.ports, run.size, run.label.as_ref())));
    let median = |key: (usize, FrameSize, Option<&Label>)| {
        let rates = runs.iter().filter(|run| (run.ports, run.size, run.label.as_ref()) == key);
        Summary::of(&rates.map(|run| run.rate_pps).collect::<Vec<_>>())
    };
    let result = |key: (usize, FrameSize, Option<&Label>)| {
        let (ports, size, label) = key;
        let packets_per_second = median(key)?;
        let (pps, frame_bytes) = (packets_per_second.median, size.wire_bytes());
        let share = |bits| (pps / (line_pps(bits, frame_bytes) * ports as f64)).min(1.0);
        let native = keys.iter().find(|(p, s, who)| (*p, *s) == (ports, size) && who.is_some_and(Label::is_native));
        let native = native.and_then(|key| median(*key)).filter(|native| native.median > 0.0);
        Some(PortsResult {
            label: label.cloned(),
            ports,
            frame_bytes,
            share_of_1g: share(1e9),
            share_of_10g: share(1e10),
            native_ratio: native.filter(|_| label.is_some()).map(|native| pps / native.median),
            paper: label.and(paper(ports, frame_bytes)),
            packets_per_second,
        })
    };
    let mut results: Vec<PortsResult> = keys.iter().filter_map(|key| result(*key)).collect();
    results.sort_by_key(|result| (result.ports, result.frame_bytes, result.label.is_some()));
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
        assert!(results[0].label.is_none() && results[0].native_ratio.is_none() && results[0].paper.is_none());
        assert!(results[0].share_of_1g <= 1.0);
        let ours = results.iter().find(|result| result.native_ratio == Some(2.0)).expect("twice the kernel");
        assert!((ours.share_of_1g - 0.5).abs() < 1e-9 && (ours.share_of_10g - 0.05).abs() < 1e-9);
    }

    #[test]
    fn neighbors_exchange_frames() {
        for index in 0..6 {
            let peer = RouterPort::new(index ^ 1);
            for (from, to) in flows(index as u8, &peer) {
                assert_eq!(Ipv4Addr::from(from.address).octets()[..3], [198, 18, index as u8]);
                assert_eq!(Ipv4Addr::from(to.address).octets()[..3], peer.network.octets()[..3]);
            }
        }
    }
}
