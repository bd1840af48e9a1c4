//! Measures the speaker with neighbors in memory, so that the load uses none of its cores.
//!
//! A client process shares the machine's cores with the daemon, and so does the kernel's loopback, which copies on
//! the writer's core. Here the speaker runs in this process on a network without sockets. A neighbor is a prepared
//! stream that is copied when read, all at once or in the order of a traffic mix ([`super::feed`]). What the
//! speaker writes to a neighbor is discarded; what it writes to the monitor is kept with its time and read after
//! the clock has stopped. Meanwhile only the scheduling under test runs, limited to some cores, and one thread that
//! sleeps. Processor time is that of all other threads.
//!
//! Readiness is still the kernel's: each connection registers one end of a socket pair, and a byte written to the
//! other end makes it readable.

mod alone;

pub(crate) use alone::alone;

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use thalweg_base::IpPrefix;
use thalweg_bgp::session::NeighborConfig;
use thalweg_config::{ConfigErrors, RouterConfig};
use thalweg_exec::control_plane::{
    ControlCosts, ControlRecorder, SchedulingKind, SchedulingOptions, UnknownScheduling, schedule,
    schedule_with_common_poller,
};
use thalweg_exec::monotonic_time;
use thalweg_node::control::{AnswerError, BgpRequest, RouteFilter};
use thalweg_node::speaker::{ByteStream, Incoming, Network, Speaker, SpeakerOptions};
use thalweg_wire::bgp::Family;

use crate::bgp::bench::Run;
use crate::bgp::daemon::{Advertise, DAEMON_AS, MONITOR, configuration, route_of, usage_without};
use crate::bgp::feed::{Cast, Feed, window};
use crate::bgp::functions::FunctionTimes;
use crate::bgp::message::kind::UPDATE;
use crate::bgp::message::{Malformed, OpenFields, Stream, frame, keepalive, open};
use crate::bgp::monitor::Monitor;
use crate::bgp::order::{self, Arrival, Way, order};
use crate::bgp::scenario::{Phase, Scenario};
use crate::cores::Cores;

/// The address that the speaker believes it listens on.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 179);

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// When a speaker has read everything and the monitor has received nothing for this long, the speaker has announced
/// everything.
const QUIET: Duration = Duration::from_millis(200);

/// The longest message without negotiation.
const MESSAGE_MAX: usize = 4096;

pub(crate) struct Spec {
    pub(crate) scheduling: SchedulingKind,
    pub(crate) threads: usize,
    /// With `per-peer`: one poller for all sessions, as in the thesis's first version.
    pub(crate) common_poller: bool,
    pub(crate) cores: Cores,
    pub(crate) advertise: Advertise,
    /// The order in which messages may be read; `None`: all at once.
    pub(crate) way: Option<Way>,
    /// UPDATEs per timed block; 0 for none.
    pub(crate) block: usize,
    /// Seed of the order.
    pub(crate) seed: u64,
    pub(crate) timeout: Duration,
}

/// Why a speaker in this process was not measured.
#[derive(Debug, thiserror::Error)]
pub enum InMemoryError {
    #[error(transparent)]
    Scheduling(#[from] UnknownScheduling),
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    #[error("the configuration has no [bgp]")]
    NoBgp,
    #[error("the load has no phase")]
    NoPhase,
    #[error("{what}: {error}")]
    System { what: &'static str, error: io::Error },
    #[error("the scheduling panicked")]
    Panicked,
    #[error("sessions did not come up")]
    NotUp,
    #[error("neighbor {0} is not read")]
    NotRead(usize),
    #[error("only {done} of {sent} UPDATEs were processed in time")]
    NotProcessed { done: u64, sent: u64 },
    #[error("not converged: of {expected} prefixes {right} are right, {there} are there")]
    NotConverged { expected: usize, right: usize, there: usize },
    #[error("{table}: of {expected} best paths {right} are right, {there} are there")]
    WrongPaths { table: &'static str, expected: usize, right: usize, there: usize },
    #[error("the speaker wrote: {0}")]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Request(#[from] AnswerError),
    #[error("no answer about functions")]
    NoAnswer,
    #[error("the answer about functions: {0}")]
    Functions(serde_json::Error),
    #[error("no route: {0}")]
    NoRoute(serde_json::Value),
}

impl InMemoryError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    fn not_converged(monitor: &Monitor) -> Self {
        let (expected, right, there) = monitor.state();
        Self::NotConverged { expected, right, there }
    }
}

impl Spec {
    /// Whether the speaker counts times, and reports what it has processed.
    fn counts(&self) -> bool {
        self.block > 0 || self.advertise == Advertise::None
    }
}

/// A speaker with the neighbors of a world.
fn speaker_of(
    scenario: &Scenario,
    world: &Arc<World>,
    scheduling: SchedulingKind,
    advertise: Advertise,
    profile_functions: bool,
) -> Result<Speaker, InMemoryError> {
    let text = configuration(LOCAL, scenario, advertise);
    let config = RouterConfig::from_text("in-memory.toml", &text, Path::new(""))?;
    let bgp = config.bgp.map(Arc::new).ok_or(InMemoryError::NoBgp)?;
    let options = SpeakerOptions {
        scheduling: scheduling.to_string(),
        profile_functions,
        ..SpeakerOptions::new(MemoryNetwork { world: world.clone() }, 1)
    };
    Speaker::new(bgp, options).map_err(InMemoryError::system("neighbors"))
}

/// Runs all phases of a scenario; returns the results of the last one.
pub(crate) fn measure(spec: &Spec, scenario: &Scenario) -> Result<Run, InMemoryError> {
    let world = Arc::new(World::new(scenario).map_err(InMemoryError::system("socket pairs"))?);
    let speaker = speaker_of(scenario, &world, spec.scheduling, spec.advertise, spec.counts())?;
    let (speaker, stop) = (&speaker, &Arc::new(AtomicBool::new(false)));
    let options = SchedulingOptions { kind: spec.scheduling, threads: spec.threads };
    let scheduling = || match spec.common_poller {
        true => schedule_with_common_poller(speaker, stop),
        false => schedule(speaker, options, stop),
    };
    scheduled(spec, speaker, stop, scheduling, || {
        let end = come_up(spec, scenario, speaker)?;
        play(spec, scenario, (&world, speaker), end)
    })
}

/// Does something while a scheduling runs the speaker.
fn scheduled<R>(
    spec: &Spec,
    speaker: &Speaker,
    stop: &AtomicBool,
    scheduling: impl FnOnce() -> io::Result<()> + Send,
    work: impl FnOnce() -> Result<R, InMemoryError>,
) -> Result<R, InMemoryError> {
    thread::scope(|scope| {
        let routing = scope.spawn(|| spec.cores.run(scheduling).and_then(|ended| ended));
        let result = work();
        stop.store(true, Ordering::Release);
        speaker.wake();
        let ended = routing.join().map_err(|_| InMemoryError::Panicked)?;
        ended.map_err(InMemoryError::system("the scheduling"))?;
        result
    })
}

/// Runs a scenario under the serial scheduling, and records what its last phase costs.
pub(crate) fn record(spec: &Spec, scenario: &Scenario) -> Result<(Run, ControlCosts), InMemoryError> {
    let world = Arc::new(World::new(scenario).map_err(InMemoryError::system("socket pairs"))?);
    let speaker = speaker_of(scenario, &world, SchedulingKind::Serial, spec.advertise, spec.counts())?;
    let (recorder, stop) = (ControlRecorder::new(&speaker), Arc::new(AtomicBool::new(false)));
    let options = SchedulingOptions { kind: SchedulingKind::Serial, threads: 1 };
    let scheduling = || schedule(&recorder, options, &stop);
    let run = scheduled(spec, &speaker, &stop, scheduling, || {
        let end = come_up(spec, scenario, &speaker)?;
        recorder.start();
        play(spec, scenario, (&world, &speaker), end)
    })?;
    Ok((run, recorder.finish(spec.advertise == Advertise::None)))
}

/// Waits until all sessions are up; when the run must end.
fn come_up(spec: &Spec, scenario: &Scenario, speaker: &Speaker) -> Result<Instant, InMemoryError> {
    let end = Instant::now() + spec.timeout;
    while !all_up(speaker, scenario.neighbors.count + 1) {
        pause(end, || InMemoryError::NotUp)?;
    }
    Ok(end)
}

fn play(
    spec: &Spec,
    scenario: &Scenario,
    (world, speaker): (&World, &Speaker),
    end: Instant,
) -> Result<Run, InMemoryError> {
    let mut monitor = Monitor::new(DAEMON_AS);
    let mut last = Err(InMemoryError::NoPhase);
    for phase in &scenario.phases {
        let way = spec.way.unwrap_or(Way::ThreadPerPeer);
        let runs = order(&phase.streams, way, Arrival { file: &scenario.arrival, seed: spec.seed });
        last = Ok(run_phase(spec, (world, speaker), &mut monitor, (phase, &runs), end)?);
    }
    last
}

/// Releases the streams of a phase and waits until the speaker has processed them.
fn run_phase(
    spec: &Spec,
    (world, speaker): (&World, &Speaker),
    monitor: &mut Monitor,
    (phase, runs): (&Phase, &[order::Run]),
    end: Instant,
) -> Result<Run, InMemoryError> {
    monitor.expect(phase.expected.iter().copied(), phase.marks, phase.goal);
    world.lock_heard().clear();
    let times = || if spec.counts() { functions(speaker) } else { Ok(FunctionTimes::default()) };
    let before = times()?;
    let updates = phase.updates() as u64;
    let cpu_before = used_s();
    let begun = world.release(phase, runs, spec.way.is_some());
    let (elapsed, cpu_s) = match spec.advertise {
        Advertise::Monitor => {
            let cpu_s = told(world, monitor, begun.0, end)?;
            (monitor.reached().unwrap_or(begun.0).saturating_duration_since(begun.0), cpu_s)
        }
        Advertise::None => {
            let finished_ns = worked_off(world, speaker, (before.progress.updates, updates), end)?;
            let cpu_s = used_s();
            monitor.take_table(table(speaker)?, Instant::now());
            (Duration::from_nanos(finished_ns).saturating_sub(begun.1), cpu_s)
        }
    };
    if monitor.reached().is_none() {
        return Err(InMemoryError::not_converged(monitor));
    }
    let after = times()?;
    let begun_ns = u64::try_from(begun.1.as_nanos()).unwrap_or(u64::MAX);
    let blocks_s = after.progress.blocks_s(before.progress.updates, begun_ns, spec.block as u64);
    Ok(Run {
        updates,
        prefixes: phase.prefixes(),
        elapsed_s: elapsed.as_secs_f64(),
        cpu_s: cpu_s - cpu_before,
        rss_peak_bytes: 0,
        threads: speaker.threads(),
        preloaded_share: 1.0,
        told: monitor.heard().announced + monitor.heard().withdrawn,
        digest: monitor.digest(),
        functions: after.since(&before).by_function(),
        blocks_s,
    })
}

/// Processor time in seconds of all other threads of this process.
fn used_s() -> f64 {
    usage_without(Path::new("/proc/self"), Some(rustix::thread::gettid())).cpu_s
}

/// Waits until the monitor has received every expected route; returns the processor time used by then.
fn told(world: &World, monitor: &mut Monitor, begun: Instant, end: Instant) -> Result<f64, InMemoryError> {
    let mut listened_to = 0;
    loop {
        pause(end, || InMemoryError::not_converged(monitor))?;
        let heard = world.lock_heard();
        let told_at = heard.told_at.last().map_or(begun, |(at, _)| *at);
        if world.feed.is_read() && told_at.elapsed() > QUIET {
            let cpu_s = used_s();
            listened_to = heard.replay_to(monitor, listened_to)?;
            if monitor.reached().is_some() {
                return Ok(cpu_s);
            }
        }
    }
}

/// Waits until the speaker has processed `sent` UPDATEs besides the `before` earlier ones; returns when it had,
/// by the monotonic clock.
fn worked_off(
    world: &World,
    speaker: &Speaker,
    (before, sent): (u64, u64),
    end: Instant,
) -> Result<u64, InMemoryError> {
    let mut done = 0;
    loop {
        pause(end, || InMemoryError::NotProcessed { done, sent })?;
        if world.feed.is_read() {
            let progress = functions(speaker)?.progress;
            done = progress.updates.saturating_sub(before);
            if let Some(ns) = progress.finished_ns(before, sent) {
                return Ok(ns);
            }
        }
    }
}

fn functions(speaker: &Speaker) -> Result<FunctionTimes, InMemoryError> {
    let mut items = answer(speaker, &BgpRequest::Functions)?;
    let times = items.pop().ok_or(InMemoryError::NoAnswer)?;
    serde_json::from_value(times).map_err(InMemoryError::Functions)
}

/// The speaker's best routes.
fn table(speaker: &Speaker) -> Result<Vec<(IpPrefix, u64)>, InMemoryError> {
    let best = RouteFilter { best: true, ..RouteFilter::default() };
    let items = answer(speaker, &BgpRequest::Routes(best))?;
    items.into_iter().map(|view| route_of(&view).ok_or(InMemoryError::NoRoute(view))).collect()
}

fn answer(speaker: &Speaker, request: &BgpRequest) -> Result<Vec<serde_json::Value>, InMemoryError> {
    let mut items = Vec::new();
    let mut take = |item| {
        items.push(item);
        Ok(())
    };
    speaker.answer(request, &mut take).map_err(InMemoryError::system("an answer"))??;
    Ok(items)
}

fn pause(end: Instant, what: impl FnOnce() -> InMemoryError) -> Result<(), InMemoryError> {
    if Instant::now() > end {
        return Err(what());
    }
    thread::sleep(LOOK_EVERY);
    Ok(())
}

fn all_up(speaker: &Speaker, wanted: usize) -> bool {
    let up = |neighbor: &serde_json::Value| neighbor["state"] == "Established";
    answer(speaker, &BgpRequest::Neighbors)
        .is_ok_and(|all| all.iter().filter(|one| up(one)).count() == wanted)
}

/// All neighbors; the monitor is the last.
struct World {
    peers: Vec<Peer>,
    /// Stands for the listening socket; readable from the start.
    listening: UnixStream,
    _knocking: UnixStream,
    /// Neighbors that the speaker has not accepted yet.
    waiting: Mutex<VecDeque<usize>>,
    /// Their messages.
    feed: Feed,
    heard: Mutex<Heard>,
}

struct Peer {
    address: SocketAddr,
    /// The speaker's end, registered with its poller, and our end.
    ends: (UnixStream, UnixStream),
}

/// The bytes sent to the monitor, and the positions reached at each time.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    told_at: Vec<(Instant, usize)>,
}

impl World {
    fn new(scenario: &Scenario) -> io::Result<Self> {
        let neighbors = scenario.neighbors;
        let announcing = (0..neighbors.count).map(|n| (neighbors.address_of(n), scenario.as_of(n)));
        let all = announcing.chain([MONITOR]);
        let (peers, openings): (Vec<Peer>, Vec<Stream>) = all
            .map(|(address, number)| Ok((Peer::new(address)?, opening(address, number))))
            .collect::<io::Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        let waiting = Mutex::new((0..peers.len()).collect());
        let (listening, mut knocking) = UnixStream::pair()?;
        knocking.write_all(&[0])?;
        let world = Self {
            listening,
            _knocking: knocking,
            waiting,
            feed: Feed::new(peers.len()),
            peers,
            heard: Mutex::default(),
        };
        let runs = order(&openings, Way::ThreadPerPeer, Arrival { file: &[], seed: 0 });
        world.feed.load(Cast::new(openings, &runs), u64::MAX, |peer| world.peers[peer].announce_readable());
        Ok(world)
    }

    fn lock_heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock()
    }

    /// Gives all neighbors their messages of a phase in this order: readable one after another, or all at once.
    /// Returns when that began, by two clocks.
    fn release(&self, phase: &Phase, runs: &[order::Run], in_turn: bool) -> (Instant, Duration) {
        let mut streams = phase.streams.clone();
        let bytes = streams.iter().map(|stream| stream.bytes.len()).sum();
        let window = if in_turn { window(bytes, streams.len()) } else { u64::MAX };
        // The monitor sends nothing.
        streams.resize_with(self.peers.len(), Stream::default);
        let cast = Cast::new(streams, runs);
        let begun = (Instant::now(), monotonic_time());
        self.feed.load(cast, window, |peer| self.peers[peer].announce_readable());
        begun
    }
}

impl Peer {
    fn new(address: Ipv4Addr) -> io::Result<Self> {
        let ends = UnixStream::pair()?;
        ends.0.set_nonblocking(true)?;
        ends.1.set_nonblocking(true)?;
        Ok(Self { address: SocketAddr::new(address.into(), 40_000), ends })
    }

    fn announce_readable(&self) {
        // At most one byte is in the socket: a reader that finds no data removes it first.
        let _ = (&self.ends.1).write(&[0]);
    }

    fn take_announcement(&self) {
        let _ = (&self.ends.0).read(&mut [0; 16]);
    }
}

/// A neighbor's first messages.
fn opening(address: Ipv4Addr, as_number: u32) -> Stream {
    let mut stream = Stream::default();
    let families = vec![Family::Ipv4];
    open(&mut stream.bytes, &OpenFields { as_number, hold_time_s: 240, router_id: address, families });
    stream.ends.push(stream.bytes.len());
    keepalive(&mut stream.bytes);
    stream.ends.push(stream.bytes.len());
    stream
}

impl Heard {
    fn clear(&mut self) {
        self.bytes.clear();
        self.told_at.clear();
    }

    /// Passes whole messages from `start` on to the monitor; returns the position reached.
    fn replay_to(&self, monitor: &mut Monitor, start: usize) -> Result<usize, Malformed> {
        let mut rest = self.bytes.get(start..).unwrap_or_default();
        let mut at = self.told_at.iter();
        let mut now = at.next();
        while !rest.is_empty() {
            let Some((kind, body, length)) = frame(rest, MESSAGE_MAX)? else { break };
            let end = self.bytes.len() - rest.len() + length;
            // A message arrives with its last byte.
            while let Some((_, up_to)) = now
                && *up_to < end
            {
                now = at.next();
            }
            let heard_at = now.map_or_else(Instant::now, |(at, _)| *at);
            if kind == UPDATE {
                monitor.handle_update(body, heard_at)?;
            }
            rest = &rest[length..];
        }
        Ok(self.bytes.len() - rest.len())
    }
}

/// Connections that neighbors have already opened.
struct MemoryNetwork {
    world: Arc<World>,
}

impl Network for MemoryNetwork {
    fn register_listeners(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.world.listening.as_raw_fd()), token, Interest::READABLE)
    }

    fn accept(&self) -> io::Result<Option<Incoming>> {
        let Some(index) = self.world.waiting.lock().pop_front() else { return Ok(None) };
        let remote = self.world.peers[index].address;
        Ok(Some(Incoming { stream: Box::new(MemoryStream { world: self.world.clone(), index }), remote }))
    }

    fn connect(&self, _: &NeighborConfig) -> io::Result<Box<dyn ByteStream>> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    fn expect(&self, _: &NeighborConfig, _: bool) -> io::Result<()> {
        Ok(())
    }
}

struct MemoryStream {
    world: Arc<World>,
    index: usize,
}

impl MemoryStream {
    fn peer(&self) -> &Peer {
        &self.world.peers[self.index]
    }

    fn is_monitor(&self) -> bool {
        self.index + 1 == self.world.peers.len()
    }
}

impl ByteStream for MemoryStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wake = |peer: usize| self.world.peers[peer].announce_readable();
        let read = self.world.feed.take(self.index, buffer, || self.peer().take_announcement(), wake);
        read.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_monitor() {
            let mut heard = self.world.lock_heard();
            slices.iter().for_each(|slice| heard.bytes.extend_from_slice(slice));
            let up_to = heard.bytes.len();
            heard.told_at.push((Instant::now(), up_to));
        }
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn shut_down_write(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        Some(Ok(()))
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((LOCAL, self.peer().address))
    }

    fn apply(&mut self, _: &NeighborConfig) -> io::Result<()> {
        Ok(())
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&self.peer().ends.0.as_raw_fd()), token, interest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::order::Mix;
    use crate::bgp::table::{Neighbors, Packing};

    const NEIGHBORS: Neighbors =
        Neighbors { count: 5, address: Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 };

    fn spec(scheduling: SchedulingKind, advertise: Advertise, way: Option<Way>) -> Spec {
        let cores = Cores::here().unwrap();
        let block = if way.is_some() { 50 } else { 0 };
        let timeout = Duration::from_secs(60);
        Spec { scheduling, threads: 3, common_poller: false, cores, advertise, way, block, seed: 3, timeout }
    }

    /// With and without a monitor, and in any order of messages: every scheduling ends with the same routes,
    /// processes all UPDATEs, and uses the expected number of threads.
    #[test]
    fn every_way_to_measure_ends_with_the_same_routes() {
        let scenario = Scenario::overlap(700, Packing::Real, NEIGHBORS, 3);
        let mut digests = Vec::new();
        for (scheduling, threads) in [
            (SchedulingKind::Serial, 1),
            (SchedulingKind::PerPeer, 7),
            (SchedulingKind::Dynamic, 4),
            (SchedulingKind::Sharded, 3),
        ] {
            for advertise in [Advertise::None, Advertise::Monitor] {
                for way in [None, Some(Mix::Best.way()), Some(Mix::Worst.way())] {
                    let run = measure(&spec(scheduling, advertise, way), &scenario).unwrap();
                    assert_eq!((run.threads, run.prefixes), (threads, 3500), "{scheduling}: {run:?}");
                    assert_eq!(run.told > 0, advertise == Advertise::Monitor, "{run:?}");
                    assert_eq!(run.blocks_s.len() as u64, if way.is_some() { run.updates / 50 } else { 0 });
                    let blocks: f64 = run.blocks_s.iter().sum();
                    assert!(
                        blocks <= run.elapsed_s || advertise == Advertise::Monitor,
                        "{blocks} of {run:?}"
                    );
                    digests.push(run.digest);
                }
            }
        }
        // The thesis's first PBTS polls for all neighbors in its master: same routes, same number of threads.
        for way in [None, Some(Mix::Best.way()), Some(Mix::Worst.way())] {
            let spec = Spec { common_poller: true, ..spec(SchedulingKind::PerPeer, Advertise::Monitor, way) };
            let run = measure(&spec, &scenario).unwrap();
            assert_eq!((run.threads, run.prefixes), (7, 3500), "{run:?}");
            digests.push(run.digest);
        }
        digests.dedup();
        assert_eq!(digests.len(), 1);
    }

    /// All eight loads without advertisement, including those with two phases.
    #[test]
    fn every_load_ends_without_advertisement() {
        for number in 1..=8 {
            let scenario = Scenario::wu(number, 300, NEIGHBORS, 5);
            let run = measure(&spec(SchedulingKind::Serial, Advertise::None, None), &scenario).unwrap();
            assert_eq!((run.updates, run.told), (scenario.timed().unwrap().updates() as u64, 0), "{number}");
            assert!(run.elapsed_s > 0.0, "{number}");
        }
    }

    #[test]
    fn what_is_expected_and_does_not_come_is_an_error() {
        let mut scenario = Scenario::overlap(50, Packing::Real, NEIGHBORS, 3);
        scenario.phases[0].expected[7].1 ^= 2;
        for advertise in [Advertise::None, Advertise::Monitor] {
            let short =
                Spec { timeout: Duration::from_secs(1), ..spec(SchedulingKind::Serial, advertise, None) };
            let error = measure(&short, &scenario).unwrap_err().to_string();
            assert!(error.contains("of 50 prefixes 49 are right"), "{error}");
        }
    }
}
