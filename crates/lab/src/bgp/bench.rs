//! One measurement: a daemon, its neighbors, a load, and the clock.
//!
//! The clock runs from the first byte that is sent (or, preloaded, from the moment at which the daemon may go on)
//! until the monitor holds every expected best route. Sessions come up before, and nobody sends while they do.
//!
//! # Preloaded
//! Sender and daemon share the machine's cores, and a scheduling that could use both cores does not get them while
//! the sender runs. So the daemon is stopped (SIGSTOP) when sessions are up, streams are written until the
//! kernel's socket buffers take no more, and then it goes on (SIGCONT). The load then comes from outside the daemon's
//! budget of cores, as far as it fits into the buffers; [`Run::preloaded_share`] says how far that was.

use super::client::{Client, ClientConfig, ClientError, Speaker};
use super::daemon::{DAEMON_AS, Daemon, DaemonError, DaemonSpec, MONITOR};
use super::functions::{FunctionTime, FunctionTimes};
use super::monitor::Goal;
use super::order::{Arrival, Way, order};
use super::scenario::{Phase, Scenario};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thalweg_wire::bgp::Family;

/// Kernel buffers are taken to be full when nothing more went in for this long.
const FULL_AFTER: Duration = Duration::from_millis(150);

/// A daemon that tells the monitor nothing for this long has told it everything.
const QUIET: Duration = Duration::from_millis(300);

/// How a load gets to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// While it works.
    Live(Way),
    /// Before it may go on, as far as buffers go; the rest while it works.
    Preloaded,
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The daemon.
    pub daemon: DaemonSpec,
    /// How the load gets there.
    pub feed: Feed,
    /// Seed of the order of sending.
    pub seed: u64,
    /// A phase may take this long.
    pub timeout: Duration,
}

/// What one measurement came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// UPDATEs sent in the timed phase.
    pub updates: u64,
    /// Prefixes announced and withdrawn in it.
    pub prefixes: u64,
    /// Until the monitor held what it should, seconds.
    pub elapsed_s: f64,
    /// Processor time of the daemon, seconds.
    pub cpu_s: f64,
    /// Largest memory of the daemon, bytes.
    pub rss_peak_bytes: u64,
    /// Share of the load's bytes that were in the kernel's buffers when the clock started.
    pub preloaded_share: f64,
    /// Prefixes the monitor was told, announced and withdrawn: more than there are is path hunting.
    pub told: u64,
    /// What the monitor held in the end, as a number.
    pub digest: u64,
    /// Time by function, if that was asked for.
    pub functions: BTreeMap<String, FunctionTime>,
    /// If there are marks: from one block's last mark to the next one's, seconds.
    pub blocks_s: Vec<f64>,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The daemon.
    #[error(transparent)]
    Daemon(DaemonError),
    /// The neighbors; with what the daemon said last.
    #[error("{}{}", .0, daemon_said(.1))]
    Client(ClientError, String),
    /// The monitor was not told what it should in time.
    #[error(
        "{scenario}: not converged in time: of {} prefixes {} are right, {} are there",
        .state.0,
        .state.1,
        .state.2
    )]
    NotConverged {
        /// Of what.
        scenario: String,
        /// Prefixes expected, right, and there.
        state: (usize, usize, usize),
    },
    /// There is nothing to send.
    #[error("there is nothing to send")]
    Nothing,
}

fn daemon_said(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; the daemon said: {}", said.trim()) }
}

/// Measures one load on one daemon, started for it.
pub fn measure(spec: &RunSpec, scenario: &Scenario) -> Result<Run, BenchError> {
    let daemon = Daemon::start(&spec.daemon, scenario).map_err(BenchError::Daemon)?;
    let client = Client::connect(&client_config(&daemon, scenario))
        .map_err(|error| BenchError::Client(error, daemon.said()))?;
    let (timed, before) = scenario.phases.split_last().ok_or(BenchError::Nothing)?;
    for phase in before {
        let live = RunSpec { feed: Feed::Live(Way::ThreadPerPeer), ..spec.clone() };
        run_phase(&live, &daemon, &client, scenario, phase)?;
    }
    run_phase(spec, &daemon, &client, scenario, timed)
}

fn client_config(daemon: &Daemon, scenario: &Scenario) -> ClientConfig {
    let neighbors = scenario.neighbors;
    let speaker = |(source, as_number): (std::net::Ipv4Addr, u32)| Speaker {
        source: source.into(),
        as_number,
        router_id: source,
    };
    let announcing = (0..neighbors.count).map(|n| (neighbors.address_of(n), scenario.as_of(n)));
    ClientConfig {
        daemon: daemon.address(),
        daemon_as: DAEMON_AS,
        speakers: announcing.chain([MONITOR]).map(speaker).collect(),
        monitored: true,
        families: vec![Family::Ipv4],
        hold_time_s: 240,
        connect_timeout: Duration::from_secs(15),
        pace: Duration::ZERO,
    }
}

fn run_phase(
    spec: &RunSpec,
    daemon: &Daemon,
    client: &Client,
    scenario: &Scenario,
    phase: &Phase,
) -> Result<Run, BenchError> {
    let failed = |error| BenchError::Client(error, daemon.said());
    client.monitor().expect(phase.expected.iter().copied(), phase.marks, phase.goal);
    let functions_before = functions(spec, daemon)?;
    let cpu_before = daemon.usage().cpu_s;
    if phase.updates() == 0 {
        return Err(BenchError::Nothing);
    }
    let (begun, share) = feed(spec, daemon, client, scenario, phase)?;
    let Some(reached) = client.wait(spec.timeout).map_err(failed)? else {
        let state = client.monitor().state();
        return Err(BenchError::NotConverged { scenario: scenario.name.clone(), state });
    };
    let reached = if matches!(phase.goal, Goal::MarksAlone(_)) { quiet(client, reached) } else { reached };
    let usage = daemon.usage();
    let functions = functions(spec, daemon)?.since(&functions_before).by_function();
    let monitor = client.monitor();
    Ok(Run {
        updates: phase.updates() as u64,
        prefixes: phase.prefixes(),
        elapsed_s: reached.saturating_duration_since(begun).as_secs_f64(),
        cpu_s: usage.cpu_s - cpu_before,
        rss_peak_bytes: usage.rss_peak_bytes,
        preloaded_share: share,
        told: monitor.heard().announced + monitor.heard().withdrawn,
        functions,
        digest: monitor.digest(),
        blocks_s: blocks(begun, monitor.marks(), phase.streams.len()),
    })
}

/// Waits until the monitor has been told nothing for a while; gives when it was told something last.
fn quiet(client: &Client, reached: Instant) -> Instant {
    loop {
        let last = client.monitor().last_update().unwrap_or(reached).max(reached);
        if last.elapsed() > QUIET {
            return last;
        }
        std::thread::sleep(QUIET / 4);
    }
}

fn functions(spec: &RunSpec, daemon: &Daemon) -> Result<FunctionTimes, BenchError> {
    match spec.daemon.profile {
        true => daemon.functions().map_err(BenchError::Daemon),
        false => Ok(FunctionTimes::default()),
    }
}

/// Sends; gives when the clock started, and the share of the load that was in buffers by then.
fn feed(
    spec: &RunSpec,
    daemon: &Daemon,
    client: &Client,
    scenario: &Scenario,
    phase: &Phase,
) -> Result<(Instant, f64), BenchError> {
    let bytes: usize = phase.streams.iter().map(|stream| stream.bytes.len()).sum();
    let failed = |error| BenchError::Client(error, daemon.said());
    match spec.feed {
        Feed::Live(way) => {
            let runs = order(&phase.streams, way, Arrival { file: &scenario.arrival, seed: spec.seed });
            let begun = Instant::now();
            match way {
                Way::ThreadPerPeer => client.send_by_threads(&phase.streams),
                _ => client.send(&phase.streams, &runs),
            }
            .map_err(failed)?;
            Ok((begun, 0.0))
        }
        Feed::Preloaded => {
            let sent = || -> u64 {
                let of = |n| client.counters(n).map_or(0, |c| c.sent_bytes.load(Ordering::Relaxed));
                (0..client.sessions()).map(of).sum()
            };
            let before = sent();
            daemon.pause().map_err(BenchError::Daemon)?;
            std::thread::scope(|scope| {
                let sender = scope.spawn(|| client.send_by_threads(&phase.streams));
                let (mut last, mut since) = (sent(), Instant::now());
                while !sender.is_finished() && since.elapsed() < FULL_AFTER {
                    std::thread::sleep(Duration::from_millis(5));
                    let now = sent();
                    if now != last {
                        (last, since) = (now, Instant::now());
                    }
                }
                let begun = Instant::now();
                daemon.resume().map_err(BenchError::Daemon)?;
                let result = sender.join().unwrap_or_else(|_| {
                    Err(ClientError::Down { session: 0, why: "the sender panicked".into() })
                });
                result.map_err(failed)?;
                Ok((begun, (last - before) as f64 / bytes as f64))
            })
        }
    }
}

/// When each block of a trace was over, as differences: the last of its neighbors' marks counts.
fn blocks(begun: Instant, marks: &[Option<Instant>], neighbors: usize) -> Vec<f64> {
    let mut last = begun;
    marks
        .chunks(neighbors.max(1))
        .map_while(|block| block.iter().copied().collect::<Option<Vec<_>>>()?.into_iter().max())
        .map(|at| {
            // Blocks of a parallel daemon may end out of order: one that ended before its predecessor took nothing.
            let took = at.saturating_duration_since(last).as_secs_f64();
            last = last.max(at);
            took
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_with_their_last_mark() {
        let begun = Instant::now();
        let at = |ms| Some(begun + Duration::from_millis(ms));
        let took = blocks(begun, &[at(10), at(30), at(50), at(40), at(45), at(20), at(90), None], 2);
        let ms: Vec<u64> = took.iter().map(|s| (s * 1000.0).round() as u64).collect();
        assert_eq!(ms, [30, 20, 0], "the fourth block is not over");
    }
}
