//! Runs one cell once: verifies the router, then measures part by part.

use super::{Cell, Options, Part};
use crate::forwarding::ForwardingError;
use crate::forwarding::frame::FrameSize;
use crate::forwarding::latency::Percentiles;
use crate::forwarding::load::{Scenario, flows};
use crate::forwarding::method::{self, BackToBack, Found, LossPoint, Trial};
use crate::forwarding::subject::Subject;
use crate::forwarding::tester::{Offer, Tagged, Tester, Way, mask_for};
use crate::forwarding::topology::Topology;
use crate::workload::frames::Endpoint;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The trial by which a router shows that it forwards: frames per second, and seconds.
const VERIFY_PPS: f64 = 10_000.0;
const VERIFY_S: f64 = 0.04;
/// The rate at which every flow is sent once before measuring.
const WARM_UP_PPS: f64 = 50_000.0;
/// Processor time is measured at this share of throughput, where nothing is lost and queues are short.
pub(super) const COST_SHARE: f64 = 0.9;
/// Waiting time between two attempts to get a frame through.
const RETRY_WAIT: Duration = Duration::from_millis(50);

/// Latency at one rate.
#[derive(Clone, Copy, Debug)]
pub struct LatencyRun {
    pub rate_pps: f64,
    pub trial: Trial,
    /// Of the timed frames; `None` without any.
    pub percentiles: Option<Percentiles>,
}

/// Processor time at one rate, with and without the router.
#[derive(Clone, Copy, Debug)]
pub struct CostRun {
    /// Through the router.
    pub path: Trial,
    /// The generator alone, over the direct link.
    pub alone: Trial,
}

/// The measurements of one run of a cell.
#[derive(Clone, Debug)]
pub struct CellRun {
    /// The generator's ceiling in this round, frames per second.
    pub ceiling_pps: f64,
    pub throughput: Found,
    /// Latency at each share of throughput.
    pub latency: Vec<(f64, LatencyRun)>,
    pub loss: Vec<LossPoint>,
    /// `None` if throughput is the ceiling.
    pub back_to_back: Option<BackToBack>,
    pub cost: Option<CostRun>,
}

pub(super) struct Bench<'a> {
    pub(super) topology: &'a Topology,
    pub(super) options: &'a Options,
    pub(super) stop: &'a AtomicBool,
}

impl Bench<'_> {
    pub(super) fn run(
        &self,
        cell: &Cell,
        ceiling_pps: f64,
        flows: &[(Endpoint, Endpoint)],
        subject: &dyn Subject,
    ) -> Result<CellRun, ForwardingError> {
        let options = self.options;
        let cpu_s = || subject.cpu_s();
        let mut tester = Tester::new(self.topology, Way::Router, cell.size, flows, self.stop)?;
        verify(&mut tester, flows.len(), options.start_wait, subject)?;
        let throughput = method::throughput(ceiling_pps, &options.search, |rate| {
            tester.trial(Offer::paced(rate, options.trial_s), &cpu_s)
        })?;
        let mut run = CellRun {
            ceiling_pps,
            throughput,
            latency: Vec::new(),
            loss: Vec::new(),
            back_to_back: None,
            cost: None,
        };
        if options.has(Part::Latency) {
            for &share in &options.latency_shares {
                let rate = (share * throughput.rate_pps).max(1.0);
                run.latency.push((share, latency(&mut tester, rate, options.trial_s, &cpu_s)?));
            }
        }
        if options.has(Part::Loss) {
            run.loss = method::loss_curve(ceiling_pps, options.search.loss_max, |rate| {
                tester.trial(Offer::paced(rate, options.trial_s), &cpu_s)
            })?;
        }
        if options.has(Part::BackToBack) && throughput.failed_pps.is_some() {
            let rate = throughput.rate_pps;
            run.back_to_back = Some(method::back_to_back(ceiling_pps, rate, &options.bursts, |frames| {
                tester.trial(Offer::burst(frames), &cpu_s)
            })?);
        }
        if options.has(Part::Cost) && throughput.rate_pps > 0.0 {
            let offer = Offer::paced(throughput.rate_pps * COST_SHARE, options.trial_s).costed();
            let mut direct = Tester::new(self.topology, Way::Direct, cell.size, flows, self.stop)?;
            let alone = direct.trial(offer, &|| 0.0)?;
            run.cost = Some(CostRun { path: tester.trial(offer, &cpu_s)?, alone });
        }
        Ok(run)
    }

    /// The same for who is to carry nothing but applications.
    pub(super) fn wait_until_it_forwards(
        &self,
        scenario: &Scenario,
        subject: &dyn Subject,
    ) -> Result<(), ForwardingError> {
        let Some(size) = FrameSize::new(128).ok() else { return Ok(()) };
        let flows = flows(&Scenario { flows: 1, ..*scenario }, &[], self.options.seed);
        let mut tester = Tester::new(self.topology, Way::Router, size, &flows, self.stop)?;
        verify(&mut tester, 1, self.options.start_wait, subject)
    }
}

/// Waits until every frame of a slow trial arrives and is correct; then sends every flow once.
pub(crate) fn verify(
    tester: &mut Tester<'_>,
    flows: usize,
    start_wait: Duration,
    subject: &dyn Subject,
) -> Result<(), ForwardingError> {
    let end = Instant::now() + start_wait;
    loop {
        let offer = Offer::paced(VERIFY_PPS, VERIFY_S);
        let (trial, tagged) = tester.tagged(offer, 0, &|| 0.0)?;
        if is_right(&trial, &tagged) {
            break;
        }
        if Instant::now() > end {
            return Err(ForwardingError::NotForwarding {
                sent: trial.sent,
                received: trial.received,
                fault: tagged.faults.keys().next().copied(),
                said: subject.said(),
            });
        }
        std::thread::sleep(RETRY_WAIT);
    }
    let offer = Offer::paced(WARM_UP_PPS, flows as f64 / WARM_UP_PPS);
    tester.trial(offer, &|| 0.0).map(drop)
}

/// The machine may lose a frame; none may be wrong.
fn is_right(trial: &Trial, tagged: &Tagged) -> bool {
    let looked_at = tagged.latencies_ns.len() as u64 + tagged.left_out;
    tagged.faults.is_empty() && trial.received * 100 >= trial.sent * 99 && looked_at * 100 >= trial.sent * 99
}

pub(super) fn latency(
    tester: &mut Tester<'_>,
    rate_pps: f64,
    seconds: f64,
    cpu_s: &dyn Fn() -> f64,
) -> Result<LatencyRun, ForwardingError> {
    let mask = mask_for(rate_pps, seconds);
    let (trial, tagged) = tester.tagged(Offer::paced(rate_pps, seconds), mask, cpu_s)?;
    Ok(LatencyRun { rate_pps, trial, percentiles: Percentiles::of(tagged.latencies_ns) })
}
