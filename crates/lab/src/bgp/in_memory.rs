//! A load from outside the budget of cores: neighbors that are bytes in memory.
//!
//! A client process shares the machine's cores with the daemon, and so does the kernel's loopback, which copies on
//! whatever core the writer is. Here the speaker runs in this process on a network without sockets. A neighbor is a
//! prepared stream that is copied out when it is read; what is written to a neighbor is thrown away, what is written
//! to the monitor is kept with the time at which it was written and looked at when the clock has stopped. All that
//! runs meanwhile is the scheduling under test, and one thread that sleeps.
//!
//! Readiness is real all the same: each connection is registered with one end of a socket pair, on whose other
//! end a byte is written when there is something to read.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use thalweg_bgp::export::ExportLimits;
use thalweg_bgp::session::NeighborConfig;
use thalweg_config::RouterConfig;
use thalweg_exec::control::{SchedulingKind, SchedulingOptions, schedule};
use thalweg_node::control::BgpRequest;
use thalweg_node::speaker::{ByteStream, Incoming, Network, Speaker, SpeakerOptions};
use thalweg_wire::bgp::Family;

use crate::bgp::bench::Run;
use crate::bgp::daemon::{DAEMON_AS, MONITOR, configuration, usage};
use crate::bgp::message::kind::UPDATE;
use crate::bgp::message::{OpenFields, Stream, frame, keepalive, open};
use crate::bgp::monitor::Monitor;
use crate::bgp::scenario::{Phase, Scenario};

/// Where the speaker would listen.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 179);

/// How long to sleep between two checks for what is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A speaker that has read everything and tells the monitor nothing for this long has told it everything.
const QUIET: Duration = Duration::from_millis(200);

/// The longest message that nobody negotiated to be longer.
const MESSAGE_MAX: usize = 4096;

/// How one cell is run.
pub(crate) struct Spec {
    pub(crate) scheduling: SchedulingKind,
    pub(crate) threads: usize,
    pub(crate) timeout: Duration,
}

/// Runs all phases of a scenario; what the last one came to.
pub(crate) fn measure(spec: &Spec, scenario: &Scenario) -> Result<Run, String> {
    let world = Arc::new(World::new(scenario).map_err(|error| format!("socket pairs: {error}"))?);
    let text = configuration(LOCAL, scenario);
    let config =
        RouterConfig::from_text("in-memory.toml", &text, Path::new("")).map_err(|e| e.to_string())?;
    let bgp = config.bgp.map(Arc::new).ok_or("the configuration has no [bgp]")?;
    let options = SpeakerOptions {
        network: Box::new(MemoryNetwork { world: world.clone() }),
        readers: Vec::new(),
        observer: None,
        seed: 1,
        limits: ExportLimits::default(),
        scheduling: spec.scheduling.to_string(),
        profile_functions: false,
        interner: None,
        restart: None,
    };
    let speaker = Speaker::new(bgp, options).map_err(|error| format!("neighbors: {error}"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let options = SchedulingOptions { kind: spec.scheduling, threads: spec.threads };
    thread::scope(|scope| {
        let routing = scope.spawn(|| schedule(&speaker, options, &stop));
        let result = phases(spec, scenario, &world, &speaker);
        stop.store(true, Ordering::Release);
        speaker.wake();
        let ended = routing.join().map_err(|_| "the scheduling panicked".to_owned())?;
        ended.map_err(|error| format!("the scheduling: {error}"))?;
        result
    })
}

fn phases(spec: &Spec, scenario: &Scenario, world: &World, speaker: &Speaker) -> Result<Run, String> {
    let end = Instant::now() + spec.timeout;
    while !all_up(speaker, scenario.neighbors.count + 1) {
        pause(end, || "sessions did not come up".to_owned())?;
    }
    let mut monitor = Monitor::new(DAEMON_AS);
    let mut last = Err("the load has no phase".to_owned());
    for phase in &scenario.phases {
        last = Ok(run_phase(world, &mut monitor, phase, end)?);
    }
    last
}

/// Lets the streams of a phase go, and waits until the speaker has told the monitor all that comes of them.
fn run_phase(world: &World, monitor: &mut Monitor, phase: &Phase, end: Instant) -> Result<Run, String> {
    monitor.expect(phase.expected.iter().copied(), phase.marks, phase.goal);
    world.lock_heard().clear();
    let me = Path::new("/proc/self");
    let cpu_before = usage(me).cpu_s;
    let begun = world.release(phase);
    let mut listened_to = 0;
    let reached = loop {
        pause(end, || {
            let (expected, right, there) = monitor.state();
            format!("not converged: of {expected} prefixes {right} are right, {there} are there")
        })?;
        let heard = world.lock_heard();
        let told_at = heard.told_at.last().map_or(begun, |(at, _)| *at);
        if world.unread.load(Ordering::Acquire) == 0 && told_at.elapsed() > QUIET {
            listened_to = heard.replay_to(monitor, listened_to)?;
            if let Some(reached) = monitor.reached() {
                break reached;
            }
        }
    };
    let cpu_s = usage(me).cpu_s - cpu_before;
    Ok(Run {
        updates: phase.updates() as u64,
        prefixes: phase.prefixes(),
        elapsed_s: reached.saturating_duration_since(begun).as_secs_f64(),
        cpu_s,
        rss_peak_bytes: 0,
        preloaded_share: 1.0,
        told: monitor.heard().announced + monitor.heard().withdrawn,
        digest: monitor.digest(),
        functions: BTreeMap::new(),
        blocks_s: Vec::new(),
    })
}

fn pause(end: Instant, what: impl FnOnce() -> String) -> Result<(), String> {
    if Instant::now() > end {
        return Err(what());
    }
    thread::sleep(LOOK_EVERY);
    Ok(())
}

fn all_up(speaker: &Speaker, wanted: usize) -> bool {
    let mut up = 0;
    let mut count = |neighbor: serde_json::Value| {
        up += usize::from(neighbor["state"] == "Established");
        Ok(())
    };
    matches!(speaker.answer(&BgpRequest::Neighbors, &mut count), Ok(Ok(()))) && up == wanted
}

/// All neighbors, the monitor last.
struct World {
    peers: Vec<Peer>,
    /// Stands for the listening socket: readable from the beginning.
    listening: UnixStream,
    _knocking: UnixStream,
    /// Those that were not taken in yet.
    waiting: Mutex<VecDeque<usize>>,
    /// Bytes that were released and not read yet.
    unread: AtomicUsize,
    heard: Mutex<Heard>,
}

struct Peer {
    address: SocketAddr,
    /// What it says, one after the other.
    said: Mutex<Said>,
    /// The speaker's end, registered with its poller, and ours.
    ends: (UnixStream, UnixStream),
}

#[derive(Default)]
struct Said {
    bytes: Arc<Vec<u8>>,
    next: usize,
}

/// What the monitor was sent, and up to where it had come when.
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
        let peers: Vec<Peer> =
            all.map(|(address, number)| Peer::new(address, number)).collect::<Result<_, _>>()?;
        let waiting = Mutex::new((0..peers.len()).collect());
        let (listening, mut knocking) = UnixStream::pair()?;
        knocking.write_all(&[0])?;
        Ok(Self {
            peers,
            listening,
            _knocking: knocking,
            waiting,
            unread: AtomicUsize::new(0),
            heard: Mutex::default(),
        })
    }

    fn lock_heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock()
    }

    /// Makes all streams of a phase readable at once; when.
    fn release(&self, phase: &Phase) -> Instant {
        let bytes = |stream: &Stream| Arc::new(stream.bytes.clone());
        let streams: Vec<_> = phase.streams.iter().map(bytes).collect();
        self.unread.store(streams.iter().map(|bytes| bytes.len()).sum(), Ordering::Release);
        let begun = Instant::now();
        for (peer, bytes) in self.peers.iter().zip(streams) {
            *peer.said.lock() = Said { bytes, next: 0 };
            peer.announce_readable();
        }
        begun
    }
}

impl Peer {
    /// A neighbor that says who it is, and nothing more for the time being.
    fn new(address: Ipv4Addr, as_number: u32) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let families = vec![Family::Ipv4];
        open(&mut bytes, &OpenFields { as_number, hold_time_s: 240, router_id: address, families });
        keepalive(&mut bytes);
        let ends = UnixStream::pair()?;
        ends.1.set_nonblocking(true)?;
        let peer = Self {
            address: SocketAddr::new(address.into(), 40_000),
            said: Mutex::new(Said { bytes: Arc::new(bytes), next: 0 }),
            ends,
        };
        peer.announce_readable();
        Ok(peer)
    }

    fn announce_readable(&self) {
        // One byte a phase fits into any socket's buffer.
        let _ = (&self.ends.1).write(&[0]);
    }
}

impl Heard {
    fn clear(&mut self) {
        self.bytes.clear();
        self.told_at.clear();
    }

    /// Lets the monitor hear what was written from `start` on, whole messages; up to where it has heard then.
    fn replay_to(&self, monitor: &mut Monitor, start: usize) -> Result<usize, String> {
        let mut rest = self.bytes.get(start..).unwrap_or_default();
        let mut at = self.told_at.iter();
        let mut now = at.next();
        while !rest.is_empty() {
            let framed = frame(rest, MESSAGE_MAX).map_err(|error| format!("the speaker wrote: {error}"))?;
            let Some((kind, body, length)) = framed else { break };
            let end = self.bytes.len() - rest.len() + length;
            // A message is heard when its last byte is.
            while let Some((_, up_to)) = now
                && *up_to < end
            {
                now = at.next();
            }
            let heard_at = now.map_or_else(Instant::now, |(at, _)| *at);
            if kind == UPDATE {
                monitor.handle_update(body, heard_at).map_err(|error| format!("an UPDATE: {error}"))?;
            }
            rest = &rest[length..];
        }
        Ok(self.bytes.len() - rest.len())
    }
}

/// Connections that neighbors have opened already.
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
        let mut said = self.peer().said.lock();
        let rest = &said.bytes[said.next..];
        let length = rest.len().min(buffer.len());
        if length == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        buffer[..length].copy_from_slice(&rest[..length]);
        said.next += length;
        drop(said);
        // What sessions begin with is not counted as released.
        let less = |unread: usize| Some(unread.saturating_sub(length));
        let _ = self.world.unread.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        Ok(length)
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
