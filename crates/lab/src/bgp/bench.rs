//! Makes one measurement: starts a daemon and its neighbors, sends a load and takes the time.
//!
//! The clock runs from the first byte sent (if preloaded: from the moment the daemon continues) until the monitor
//! has every expected best route. All sessions are up before anything is sent.
//!
//! # Without advertisement
//! No output of the daemon could stop the clock, so the daemon records when its table had each UPDATE
//! ([`super::progress`]), and the last one's time counts. It is queried once it is idle, so that the query costs it
//! nothing; its table is read too, and must have every expected best route.
//!
//! # Preloaded
//! Sender and daemon share the machine's cores, and a scheduling that could use both cores does not get them while
//! the sender runs. So the daemon is stopped (SIGSTOP) when sessions are up, streams are written until the kernel's
//! socket buffers take no more, and then it goes on (SIGCONT). The load then comes from outside the daemon's budget
//! of cores, as far as it fits into the buffers; [`Run::preloaded_share`] says how far that was.

use super::client::{Client, ClientConfig, ClientError, Ended, Speaker};
use super::daemon::{Advertise, DAEMON_AS, Daemon, DaemonError, DaemonSpec, MONITOR};
use super::functions::{FunctionTime, FunctionTimes};
use super::monitor::Goal;
use super::order::{Arrival, Way, order};
use super::scenario::{Phase, Scenario};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thalweg_exec::monotonic_time;
use thalweg_wire::bgp::Family;

/// Kernel buffers count as full when nothing more was accepted for this long.
const FULL_AFTER: Duration = Duration::from_millis(150);

/// When the monitor has received nothing for this long, the daemon has announced everything.
const QUIET: Duration = Duration::from_millis(300);

/// A daemon that uses at most [`IDLE_CPU_S`] in this time is idle.
const IDLE_AFTER: Duration = Duration::from_millis(30);
/// Allows for timers and the clock's resolution.
const IDLE_CPU_S: f64 = 0.001;

/// How a load reaches the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// It is sent while the daemon works.
    Live(Way),
    /// As much as buffers hold is sent while the daemon is stopped, the rest while it works.
    Preloaded,
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct RunSpec {
    pub daemon: DaemonSpec,
    pub feed: Feed,
    /// The seed of the order of sending.
    pub seed: u64,
    /// The longest time for a phase.
    pub timeout: Duration,
}

/// The results of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// UPDATEs sent in the timed phase.
    pub updates: u64,
    /// Prefixes announced and withdrawn in it.
    pub prefixes: u64,
    /// Time until the monitor had what it should have, in seconds.
    pub elapsed_s: f64,
    /// The daemon's processor time, in seconds.
    pub cpu_s: f64,
    /// The daemon's peak memory.
    pub rss_peak_bytes: u64,
    /// The daemon's threads that served neighbors or shards.
    pub threads: usize,
    /// The share of the load's bytes in the kernel's buffers when the clock started.
    pub preloaded_share: f64,
    /// Prefixes announced and withdrawn to the monitor; more than there are is path hunting.
    pub told: u64,
    /// A hash of what the monitor had at the end.
    pub digest: u64,
    /// Time by function, if it was requested.
    pub functions: BTreeMap<String, FunctionTime>,
    /// The time of each block of UPDATEs in seconds, if the daemon reports it.
    pub blocks_s: Vec<f64>,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Daemon(DaemonError),
    /// A neighbor failed; with the end of the daemon's output.
    #[error("{}{}", .0, daemon_said(.1))]
    Client(ClientError, String),
    /// The monitor did not receive everything in time.
    #[error(
        "{scenario}: not converged in time: of {} prefixes {} are right, {} are there",
        .state.0,
        .state.1,
        .state.2
    )]
    NotConverged {
        scenario: String,
        /// Prefixes expected, correct, and present.
        state: (usize, usize, usize),
    },
    /// The daemon did not process everything in time.
    #[error("{scenario}: only {done} of {sent} UPDATEs were processed in time")]
    NotWorkedOff {
        scenario: String,
        /// UPDATEs.
        done: u64,
        sent: u64,
    },
    #[error("nothing to send")]
    Nothing,
}

fn daemon_said(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; the daemon said: {}", said.trim()) }
}

/// Starts a daemon and measures one load on it. `say` gets sentences about what the daemon has in its way.
pub fn measure(spec: &RunSpec, scenario: &Scenario, say: &mut dyn FnMut(&str)) -> Result<Run, BenchError> {
    let daemon = Daemon::start(&spec.daemon, scenario, say).map_err(BenchError::Daemon)?;
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
        daemon: daemon.address().into(),
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
    let elapsed = match spec.daemon.advertise {
        Advertise::Monitor => {
            let reached = client.wait(spec.timeout).map_err(failed)?.unwrap_or(begun.at);
            let marked = matches!(phase.goal, Goal::MarksAlone(_)) && client.monitor().reached().is_some();
            let reached = if marked { quiet(client, reached) } else { reached };
            reached.saturating_duration_since(begun.at)
        }
        Advertise::None => {
            let before = functions_before.progress.updates;
            let finished = worked_off(spec, daemon, client, scenario, (before, phase.updates() as u64))?;
            let table = daemon.table().map_err(BenchError::Daemon)?;
            client.monitor().take_table(table, Instant::now());
            finished.saturating_sub(begun.monotonic)
        }
    };
    let usage = daemon.usage();
    let functions = functions(spec, daemon)?.since(&functions_before).by_function();
    let monitor = client.monitor();
    if monitor.reached().is_none() {
        let state = monitor.state();
        return Err(BenchError::NotConverged { scenario: scenario.name.clone(), state });
    }
    Ok(Run {
        updates: phase.updates() as u64,
        prefixes: phase.prefixes(),
        elapsed_s: elapsed.as_secs_f64(),
        cpu_s: usage.cpu_s - cpu_before,
        rss_peak_bytes: usage.rss_peak_bytes,
        threads: daemon.threads(),
        preloaded_share: share,
        told: monitor.heard().announced + monitor.heard().withdrawn,
        functions,
        digest: monitor.digest(),
        blocks_s: Vec::new(),
    })
}

/// Waits until the daemon has processed `sent` UPDATEs besides the `before` earlier ones; returns when it had, by
/// the monotonic clock.
fn worked_off(
    spec: &RunSpec,
    daemon: &Daemon,
    client: &Client,
    scenario: &Scenario,
    (before, sent): (u64, u64),
) -> Result<Duration, BenchError> {
    let end = Instant::now() + spec.timeout;
    let mut used = daemon.usage().cpu_s;
    loop {
        std::thread::sleep(IDLE_AFTER);
        let now = daemon.usage().cpu_s;
        let is_idle = now - std::mem::replace(&mut used, now) <= IDLE_CPU_S;
        if !is_idle && Instant::now() < end {
            continue;
        }
        client.check().map_err(|error| BenchError::Client(error, daemon.said()))?;
        let progress = daemon.functions().map_err(BenchError::Daemon)?.progress;
        if let Some(ns) = progress.finished_ns(before, sent) {
            return Ok(Duration::from_nanos(ns));
        }
        if Instant::now() >= end {
            let done = progress.updates.saturating_sub(before);
            return Err(BenchError::NotWorkedOff { scenario: scenario.name.clone(), done, sent });
        }
    }
}

/// Waits until the monitor has received nothing for a while; returns when it last received something.
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
    match spec.daemon.counts() {
        true => daemon.functions().map_err(BenchError::Daemon),
        false => Ok(FunctionTimes::default()),
    }
}

/// One moment by two clocks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    monotonic: Duration,
}

impl Moment {
    fn now() -> Self {
        Self { at: Instant::now(), monotonic: monotonic_time() }
    }
}

/// Sends the load; returns when the clock started, and the share of the load that was in buffers by then.
fn feed(
    spec: &RunSpec,
    daemon: &Daemon,
    client: &Client,
    scenario: &Scenario,
    phase: &Phase,
) -> Result<(Moment, f64), BenchError> {
    let bytes: usize = phase.streams.iter().map(|stream| stream.bytes.len()).sum();
    let failed = |error| BenchError::Client(error, daemon.said());
    match spec.feed {
        Feed::Live(way) => {
            let runs = order(&phase.streams, way, Arrival { file: &scenario.arrival, seed: spec.seed });
            let begun = Moment::now();
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
                let begun = Moment::now();
                daemon.resume().map_err(BenchError::Daemon)?;
                let result =
                    sender.join().unwrap_or(Err(ClientError::Down { session: 0, why: Ended::Panicked }));
                result.map_err(failed)?;
                Ok((begun, (last - before) as f64 / bytes as f64))
            })
        }
    }
}
