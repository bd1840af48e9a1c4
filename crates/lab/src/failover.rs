//! The experiment on failover: what is lost when something fails that has a substitute.
//!
//! A client sends datagrams at an even pace to destinations spread over a table that two transits reach (`site`).
//! Something fails, and the router must send by the other transit. Every router gets the same failures in the same run,
//! each in a network of its own. Counted are the packets that never arrive, and the longest silence of a destination
//! from its last packet before the failure on. The silence without a failure, over the same time, shows what the
//! machine adds.
//!
//! Two routers that share the client's gateway by VRRP are measured in a network of their own: the first dies. If they
//! translate and copy their state, connections that are lost are counted too (`connections`).
//!
//! Missing: IPv6.

mod connections;
pub mod render;
mod router;
mod site;
mod stateful;
mod stream;

pub use router::RouterKind;

use crate::forwarding::attempts::{Attempts, attempts};
use crate::forwarding::subject::has_program;
use crate::forwarding::{ForwardingError, wait};
use crate::stats::Summary;
use connections::{CONNECTIONS, Connections};
use router::Router;
use serde::Serialize;
use site::Site;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stream::{Stream, Tally};
use thalweg_base::XorShift64Star;

/// How long a router may take to learn the table and forward.
const START_WAIT: Duration = Duration::from_secs(300);
/// Between looks at the clock.
const TICK: Duration = Duration::from_millis(20);
/// Longer than a packet is on its way.
const DRAIN: Duration = Duration::from_millis(300);

thalweg_base::words! {
    /// What fails.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Failure {
        /// The far end of the link to the first transit goes down: the router loses its carrier.
        Link => "link",
        /// The router's own interface to the first transit goes down.
        Port => "port",
        /// The first transit takes no frame any more and answers nobody; its link stays up.
        Gateway => "gateway",
        /// The first transit gets another MAC address and tells nobody.
        Moved => "moved",
        /// The BGP daemon of the first transit dies; its kernel forwards on.
        Session => "session",
        /// The router's process is killed, and started again at once.
        Process => "process",
        /// The first of two routers dies: its links, then its process.
        Router => "router",
    }
}

impl Failure {
    /// Whether what failed can be mended, so that routes go back.
    fn is_mended(self) -> bool {
        matches!(self, Self::Link | Self::Gateway)
    }
}

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    pub routers: Vec<RouterKind>,
    pub failures: Vec<Failure>,
    /// Prefixes of the table.
    pub prefixes: u32,
    /// Datagrams a second, to all destinations together.
    pub rate: u32,
    /// How long to watch without a failure, and at least after one, in seconds.
    pub watch_s: f64,
    /// When a router counts as not recovering, in seconds.
    pub limit_s: f64,
    pub runs: usize,
    /// The seed of the order of runs.
    pub seed: u64,
    /// The router's program.
    pub program: PathBuf,
    /// The router's driver.
    pub driver: String,
    /// For configurations and logs.
    pub folder: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            routers: RouterKind::ALL.to_vec(),
            failures: Failure::ALL.to_vec(),
            prefixes: 200_000,
            rate: 10_000,
            watch_s: 2.0,
            limit_s: 120.0,
            runs: 5,
            seed: XorShift64Star::DEFAULT_SEED,
            program: PathBuf::new(),
            driver: "af_packet".to_owned(),
            folder: PathBuf::new(),
        }
    }
}

/// A router's result for one failure.
#[derive(Clone, Debug, Serialize)]
pub struct FailoverResult {
    pub router: RouterKind,
    pub failure: Failure,
    /// The longest silence of a destination, in milliseconds.
    pub gap_ms: Summary,
    /// Packets lost.
    pub lost: Summary,
    /// Packets lost when what failed is mended.
    pub lost_back: Option<Summary>,
    /// Of [`Outcome::connections`], those that did not survive; only of routers that copy their state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_lost: Option<Summary>,
    /// The longest silence without a failure, in milliseconds.
    pub quiet_ms: Summary,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    pub prefixes: u32,
    pub rate: u32,
    /// TCP connections through routers that copy their state.
    pub connections: usize,
    /// One entry per router and failure.
    pub cells: Vec<FailoverResult>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// What one failure came to in one round.
#[derive(Clone, Copy, Debug)]
struct Run {
    gap: Duration,
    lost: u64,
    lost_back: Option<u64>,
    connections_lost: Option<usize>,
    quiet: Duration,
}

/// Measures all routers. Calls `step` with the number of steps done, their total and the next one. A router that does
/// not recover from a failure is left out of it from then on.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    step: &mut dyn FnMut(usize, usize, &str),
) -> Result<Outcome, ForwardingError> {
    let pairs =
        options.routers.iter().flat_map(|router| options.failures.iter().map(|each| (*router, *each)));
    let cells: Vec<(RouterKind, Failure)> =
        pairs.filter(|(router, failure)| router.meets(*failure)).collect();
    let names: Vec<String> = cells.iter().map(|(router, failure)| format!("{router}, {failure}")).collect();
    let once = |at: usize| once(cells[at].0, cells[at].1, options, stop);
    let Attempts { runs, left_out } = attempts((options.runs, options.seed), &names, step, once)?;
    let results = cells.iter().zip(&runs).filter_map(|(cell, runs)| sum_up(*cell, runs)).collect::<Vec<_>>();
    if results.is_empty() {
        return Err(ForwardingError::Nothing(left_out));
    }
    let Options { runs, prefixes, rate, .. } = *options;
    Ok(Outcome { runs, prefixes, rate, connections: CONNECTIONS, cells: results, left_out })
}

/// Measures one failure once, in a network of its own.
fn once(
    kind: RouterKind,
    failure: Failure,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Run, ForwardingError> {
    if let Some((program, package)) = kind.needs().iter().find(|(program, _)| !has_program(program)) {
        let said = format!("{program} is not here (package {package})");
        return Err(ForwardingError::Command { command: kind.to_string(), said });
    }
    let mut site = Site::new(kind.shape(), options)?;
    let mut router = Router::start(kind, &mut site, options)?;
    wait_until(stop, START_WAIT, || router.is_ready(&site), || (router.lacks(&site), router.said()))?;
    let (stream, tally) = (Stream::new(&site, options.rate)?, Tally::default());
    let connections = kind.has_state().then(|| Connections::open(&site)).transpose()?;
    if let Some(lost @ 1..) = connections.as_ref().map(Connections::lost) {
        let said = format!("{lost} of {CONNECTIONS} connections do not work; {}", router.said());
        return Err(ForwardingError::Command { command: kind.to_string(), said });
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let [first, second] = &stream.receivers;
        for receiver in [first, second] {
            scope.spawn(|| tally.receive(receiver, &done));
        }
        scope.spawn(|| stream.send(&done));
        let result = watch(failure, (&mut router, &mut site), (&stream, &tally), options, stop);
        done.store(true, Ordering::Relaxed);
        Ok(Run { connections_lost: connections.as_ref().map(Connections::lost), ..result? })
    })
}

/// Watches before, during and after the failure.
fn watch(
    failure: Failure,
    (router, site): (&mut Router, &mut Site),
    (stream, tally): (&Stream, &Tally),
    options: &Options,
    stop: &AtomicBool,
) -> Result<Run, ForwardingError> {
    let (watch, limit) = (Duration::from_secs_f64(options.watch_s), Duration::from_secs_f64(options.limit_s));
    let lacks = || "it does not forward".to_owned();
    wait_until(stop, START_WAIT, || tally.all_flow(), || (lacks(), router.said()))?;
    wait(watch, stop)?;
    tally.mark(stream.sent());
    wait(watch, stop)?;
    let quiet = tally.longest_gap();
    tally.mark(stream.sent());
    match failure {
        Failure::Process => router.restart(site, options)?,
        Failure::Router => {
            // First the links: a program that outlives its parent, as keepalived's part for VRRP does, says goodbye.
            site.fail(failure)?;
            router.kill();
        }
        _ => site.fail(failure)?,
    }
    wait(watch, stop)?;
    wait_until(stop, limit, || tally.all_flow(), || (lacks(), router.said()))?;
    let gap = tally.longest_gap();
    let lost = lost(stream, tally, stop)?;
    if !failure.is_mended() {
        return Ok(Run { gap, lost, lost_back: None, connections_lost: None, quiet });
    }
    tally.mark(stream.sent());
    site.mend(failure)?;
    wait(watch * 2, stop)?;
    let lost_back = Some(self::lost(stream, tally, stop)?);
    Ok(Run { gap, lost, lost_back, connections_lost: None, quiet })
}

/// Packets lost since the mark. The stream pauses for it, so that none is on its way.
fn lost(stream: &Stream, tally: &Tally, stop: &AtomicBool) -> Result<u64, ForwardingError> {
    stream.set_paused(true);
    wait(DRAIN, stop)?;
    let lost = tally.lost(stream.sent());
    stream.set_paused(false);
    // Silences begin anew.
    wait(DRAIN, stop)?;
    Ok(lost)
}

/// Waits until the condition is met; `late` says what is missing, and what the router said.
fn wait_until(
    stop: &AtomicBool,
    limit: Duration,
    mut condition: impl FnMut() -> bool,
    late: impl FnOnce() -> (String, String),
) -> Result<(), ForwardingError> {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() > end {
            let (what, said) = late();
            return Err(ForwardingError::Late { what, after: limit, said });
        }
        wait(TICK, stop)?;
    }
    Ok(())
}

fn sum_up((router, failure): (RouterKind, Failure), runs: &[Run]) -> Option<FailoverResult> {
    let of =
        |value: &dyn Fn(&Run) -> Option<f64>| Summary::of(&runs.iter().filter_map(value).collect::<Vec<_>>());
    let ms = |time: Duration| Some(time.as_secs_f64() * 1e3);
    Some(FailoverResult {
        router,
        failure,
        gap_ms: of(&|run| ms(run.gap))?,
        lost: of(&|run| Some(run.lost as f64))?,
        lost_back: of(&|run| run.lost_back.map(|lost| lost as f64)),
        connections_lost: of(&|run| run.connections_lost.map(|lost| lost as f64)),
        quiet_ms: of(&|run| ms(run.quiet))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_medians() {
        let run = |gap, lost, lost_back: Option<u64>| {
            let ms = Duration::from_millis;
            let connections_lost = lost_back.map(|_| 0);
            Run { gap: ms(gap), lost, lost_back, connections_lost, quiet: ms(1) }
        };
        let runs = [run(30, 300, Some(0)), run(10, 100, Some(2)), run(20, 250, None)];
        let cell = sum_up((RouterKind::Bird, Failure::Link), &runs).unwrap();
        assert_eq!((cell.gap_ms.median, cell.lost.median, cell.quiet_ms.max), (20.0, 250.0, 1.0));
        assert_eq!(cell.lost_back.map(|lost| (lost.count, lost.max)), Some((2, 2.0)));
        assert_eq!(cell.connections_lost.map(|lost| (lost.count, lost.max)), Some((2, 0.0)));
        assert!(sum_up((RouterKind::Bird, Failure::Link), &[]).is_none(), "a cell that was left out");
        let outcome = Outcome {
            runs: 3,
            prefixes: 1,
            rate: 1,
            connections: 1,
            cells: vec![cell],
            left_out: vec!["nobody".to_owned()],
        };
        assert_eq!(render::table(&outcome).rows().len(), 1);
        assert!(render::lead(&outcome).starts_with("The link"), "{}", render::lead(&outcome));
        let nothing = Outcome { cells: Vec::new(), ..outcome };
        assert_eq!(render::lead(&nothing), "Measured as asked for.");
    }

    #[test]
    fn every_failure_has_a_router_that_meets_it() {
        for failure in Failure::ALL {
            assert!(RouterKind::ALL.iter().any(|router| router.meets(failure)), "{failure}");
        }
    }
}
