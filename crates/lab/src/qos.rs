//! The experiment on overload: voice and bulk traffic through a shaped port that is offered more than it can send.
//!
//! tester-a sends two streams of UDP, each at a steady rate: *voice*, packets of 200 bytes like those of a hundred
//! calls, and *bulk*, full frames, together [`Options::overload`] times the port's rate. The router sends
//! [`Options::rate_bits`], voice first. tester-b receives every frame and measures throughput, loss and latency by
//! class. If a router reports how long packets waited in its queue, as Thalweg does, the results have that too.
//!
//! Thalweg is compared with Linux's queueing disciplines ([`shaper`]) on the kernel's forwarding, in the same run;
//! one of them is a single queue, which shows the effect of no priority.
//!
//! Rates count what a frame occupies on the line: its bytes, preamble, check sequence and gap (24 bytes beside what
//! the interface sees), on all sides alike.
//!
//! Missing: senders that slow down (TCP), more than two classes.

pub mod render;
pub mod shaper;
mod streams;

pub use streams::Received;

use crate::forwarding::ForwardingError;
use crate::forwarding::attempts::{Attempts, attempts};
use crate::forwarding::latency::Percentiles;
use crate::forwarding::subject::{Label, Task};
use crate::forwarding::topology::Topology;
use crate::stats::Summary;
use serde::Serialize;
use shaper::{QueueTimes, Shaper};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use thalweg_base::XorShift64Star;

pub const CLASSES: [&str; 2] = ["voice", "bulk"];
/// Bytes of a voice packet: 20 ms of G.711 with its headers.
pub const VOICE_PACKET_BYTES: usize = 200;
pub const BULK_PACKET_BYTES: usize = 1500;
/// The UDP port of each class, by which routers classify.
pub const CLASS_PORTS: [u16; 2] = [5004, 7];
/// Bytes that a frame occupies on the line besides those the interface sees.
pub const OVERHEAD_BYTES: usize = 24;
/// The Ethernet header, without the check sequence.
const HEADER_BYTES: usize = 14;
/// How long a router may take to start forwarding.
const START_WAIT: Duration = Duration::from_secs(20);

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port's rate, in bits per second.
    pub rate_bits: f64,
    /// The offered load, as a multiple of that rate.
    pub overload: f64,
    /// Voice packets per second; a call has 50.
    pub voice_pps: f64,
    /// How long a trial sends before it counts, in seconds, so that queues fill.
    pub warm_up_s: f64,
    /// How long a trial counts, in seconds.
    pub trial_s: f64,
    pub runs: usize,
    /// The seed of the order of runs.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rate_bits: 100e6,
            overload: 2.0,
            voice_pps: 5_000.0,
            warm_up_s: 1.0,
            trial_s: 4.0,
            runs: 3,
            seed: XorShift64Star::DEFAULT_SEED,
        }
    }
}

/// Bits that a packet occupies on the line.
pub fn line_bits(packet_bytes: usize) -> f64 {
    ((packet_bytes + HEADER_BYTES + OVERHEAD_BYTES) * 8) as f64
}

impl Options {
    /// Packets per second of each class.
    pub fn offered_pps(&self) -> [f64; 2] {
        let voice_bits = self.voice_pps * line_bits(VOICE_PACKET_BYTES);
        let bulk_bits = (self.overload * self.rate_bits - voice_bits).max(0.0);
        [self.voice_pps, bulk_bits / line_bits(BULK_PACKET_BYTES)]
    }

    /// Bits per second on the line that voice leaves to bulk.
    pub fn rest_bits(&self) -> f64 {
        (self.rate_bits - self.voice_pps * line_bits(VOICE_PACKET_BYTES)).max(0.0)
    }
}

/// One router's measurements in one round.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was sent and received, by class.
    pub classes: [Received; 2],
    /// Waiting times in the queue, by class, if the router reports them.
    pub queue: Option<[QueueTimes; 2]>,
}

/// A router's results for one class.
#[derive(Clone, Debug, Serialize)]
pub struct QosResult {
    #[serde(flatten)]
    pub label: Label,
    pub class: String,
    pub offered_pps: f64,
    /// Bits per second received, as on the line.
    pub line_bits_per_second: Summary,
    /// Bits per second of IP packets received.
    pub goodput_bits_per_second: Summary,
    /// The share lost.
    pub loss: Summary,
    /// Latency from the send call to the receiver's interface: medians of the rounds.
    pub latency: Option<Percentiles>,
    /// The 99th percentile of latency in each round, in nanoseconds.
    pub latency_p99_ns: Option<Summary>,
    /// Waiting times by the queue's own counters: medians of the rounds, in microseconds.
    pub sojourn: Option<QueueTimes>,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    pub trial_s: f64,
    /// In bits per second.
    pub rate_bits: f64,
    /// As a multiple of the rate.
    pub overload: f64,
    /// What voice leaves to bulk, in bits per second.
    pub rest_bits: f64,
    /// One entry per router and class.
    pub cells: Vec<QosResult>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// Measures all routers. Calls `step` with the number of steps done, their total and the next one. A router that
/// cannot be set up or does not forward is left out from then on.
pub fn run(
    shapers: &mut [Box<dyn Shaper>],
    options: &Options,
    stop: &AtomicBool,
    step: &mut dyn FnMut(usize, usize, &str),
) -> Result<Outcome, ForwardingError> {
    let labels: Vec<Label> = shapers.iter_mut().map(|shaper| shaper.subject().label().clone()).collect();
    let names: Vec<String> = labels.iter().map(Label::to_string).collect();
    let once = |at: usize| once(shapers[at].as_mut(), options, stop);
    let Attempts { runs, left_out } = attempts((options.runs, options.seed), &names, step, once)?;
    let cells: Vec<QosResult> =
        labels.iter().zip(&runs).flat_map(|(label, runs)| sum_up(label, runs, options)).collect();
    if cells.is_empty() {
        return Err(ForwardingError::Nothing(left_out));
    }
    Ok(Outcome {
        runs: options.runs,
        trial_s: options.trial_s,
        rate_bits: options.rate_bits,
        overload: options.overload,
        rest_bits: options.rest_bits(),
        cells,
        left_out,
    })
}

/// Measures one router once, in a topology of its own.
fn once(shaper: &mut dyn Shaper, options: &Options, stop: &AtomicBool) -> Result<Run, ForwardingError> {
    let task = Task { nat: false, table: &[], mtu: BULK_PACKET_BYTES };
    if let Some(why) = shaper.subject().refuses(&task) {
        return Err(ForwardingError::Command { command: shaper.subject().label().to_string(), said: why });
    }
    let topology = Topology::new(BULK_PACKET_BYTES)?;
    let ran = shaper
        .subject()
        .set_up(&topology, &task)
        .and_then(|()| streams::wait_until_it_forwards(&topology, START_WAIT, stop))
        .map_err(|error| match error {
            ForwardingError::NotForwarding { sent, received, fault, .. } => {
                ForwardingError::NotForwarding { sent, received, fault, said: shaper.subject().said() }
            }
            other => other,
        })
        .and_then(|()| streams::trial(&topology, options, stop))
        .and_then(|classes| Ok(Run { classes, queue: shaper.queue_times()? }));
    shaper.subject().tear_down();
    ran
}

/// A result per class; none without a run.
fn sum_up(label: &Label, runs: &[Run], options: &Options) -> Vec<QosResult> {
    let of_class = |class: usize| {
        let packet_bytes = [VOICE_PACKET_BYTES, BULK_PACKET_BYTES][class];
        let summary = |value: &dyn Fn(&Received) -> f64| {
            Summary::of(&runs.iter().map(|run| value(&run.classes[class])).collect::<Vec<_>>())
        };
        let pps = |received: &Received| received.received as f64 / options.trial_s;
        let latencies: Vec<Percentiles> = runs.iter().filter_map(|run| run.classes[class].latency).collect();
        let p99: Vec<f64> = latencies.iter().map(|latency| latency.p99_ns as f64).collect();
        let queues: Vec<QueueTimes> =
            runs.iter().filter_map(|run| run.queue.map(|queue| queue[class])).collect();
        Some(QosResult {
            label: label.clone(),
            class: CLASSES[class].to_owned(),
            offered_pps: options.offered_pps()[class],
            line_bits_per_second: summary(&|r| pps(r) * line_bits(packet_bytes))?,
            goodput_bits_per_second: summary(&|r| pps(r) * (packet_bytes * 8) as f64)?,
            loss: summary(&|r| r.loss())?,
            latency: Percentiles::median_of(&latencies),
            latency_p99_ns: Summary::of(&p99),
            sojourn: QueueTimes::median_of(&queues),
        })
    };
    (0..CLASSES.len()).filter_map(of_class).collect()
}

#[cfg(test)]
mod tests;
