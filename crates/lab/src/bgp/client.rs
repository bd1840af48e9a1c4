//! Neighbors of a daemon: real TCP sessions, each from an address of its own, that send pre-built messages
//! and receive UPDATEs.
//!
//! ```text
//! connect ──> for each neighbor: socket from its address, OPEN ──> read OPEN, send KEEPALIVE ──> read KEEPALIVE
//!                                                                            │ all of them
//!        reader thread (one, mio) <─────────────────────────────────────────┘
//!        frames everything that comes, shows the monitor's UPDATEs to the monitor, drops the others,
//!        sends KEEPALIVEs where nothing else is being sent
//! send ──> one thread that walks an order of runs, or a thread for each neighbor
//! ```
//!
//! One thread opens the sessions in two passes: connect and OPEN for all, then the rest for each. So a
//! thousand sessions take as long as the daemon takes. Refused and broken connections are retried until the
//! timeout, because a daemon may not listen yet or may still have an earlier session.
//!
//! Sockets do not block. A sender whose socket is full waits for that socket, as a blocking client would: in
//! file order a neighbor from which the daemon does not read delays the others, and that is part of what is
//! measured. All writes to a socket are under its lock and in whole runs, so a KEEPALIVE never lands inside
//! an UPDATE.
//!
//! Bounds: one read buffer for all sessions, at most a message kept for each; a sender waits at most
//! [`SEND_WAIT`] for a daemon that does not read, then the run fails.

use super::message::{self, HEADER_LEN, MESSAGE_MAX, Malformed, OpenFields, Stream, kind};
use super::monitor::Monitor;
use super::order::Run;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::{Condvar, Mutex, MutexGuard};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_base::uninterrupted;
use thalweg_wire::bgp::Family;

/// How long a sender waits for a daemon that does not read.
pub const SEND_WAIT: Duration = Duration::from_secs(60);
/// The timeout of one attempt to connect.
const CONNECT_WAIT: Duration = Duration::from_secs(3);
/// Bytes of one read.
const READ_BUFFER: usize = 256 << 10;
/// The most bytes of one write.
const WRITE_MAX: usize = 128 << 10;
/// The interval at which the reader checks for due KEEPALIVEs.
const TICK: Duration = Duration::from_millis(250);
const WAKE: Token = Token(usize::MAX);

/// A neighbor.
#[derive(Clone, Debug)]
pub struct Speaker {
    /// The address it connects from.
    pub source: IpAddr,
    pub as_number: u32,
    pub router_id: Ipv4Addr,
}

/// The daemon and the neighbors to connect to it.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The address where the daemon listens.
    pub daemon: SocketAddr,
    pub daemon_as: u32,
    /// The neighbors that announce; then, if `monitored`, the one that only receives.
    pub speakers: Vec<Speaker>,
    /// The last speaker is the monitor.
    pub monitored: bool,
    /// The families of every session.
    pub families: Vec<Family>,
    /// The hold time that every session proposes.
    pub hold_time_s: u16,
    /// The time within which all sessions must be established.
    pub connect_timeout: Duration,
    /// The pause between two connection attempts, for daemons with a short listen queue.
    pub pace: Duration,
}

/// The reasons for which a client cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not all sessions were established in time.
    #[error("{up} of {of} sessions came up in time; last: {last}")]
    NotEstablished {
        up: usize,
        of: usize,
        /// The error of the last failed attempt.
        last: String,
    },
    /// An established session ended.
    #[error("session {session} went down: {why}")]
    Down { session: usize, why: Ended },
    /// The daemon did not read for [`SEND_WAIT`].
    #[error("the daemon has not read from session {session} for {} s", SEND_WAIT.as_secs())]
    NotReading { session: usize },
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}

/// Why a session ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Ended {
    #[error("closed by the daemon")]
    Closed,
    #[error("sent {0}")]
    Malformed(#[from] Malformed),
    #[error("NOTIFICATION {code}/{subcode}")]
    Notification { code: u8, subcode: u8 },
    /// Its socket failed; several threads learn of it.
    #[error("{0}")]
    Socket(Arc<io::Error>),
    #[error("cannot watch its socket: {0}")]
    Watching(Arc<io::Error>),
    #[error("its thread panicked")]
    Panicked,
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> ClientError {
    move |source| ClientError::System { what, source }
}

/// Counters of one session.
#[derive(Debug, Default)]
pub struct SessionCounters {
    /// Received UPDATEs.
    pub updates: AtomicU64,
    /// Received bytes.
    pub bytes: AtomicU64,
    /// Received messages of other types.
    pub others: AtomicU64,
    /// Bytes given to the kernel.
    pub sent_bytes: AtomicU64,
}

#[derive(Debug)]
struct Session {
    stream: TcpStream,
    /// Held while a run is being written.
    writing: Mutex<()>,
    counters: SessionCounters,
}

#[derive(Debug)]
struct Shared {
    sessions: Vec<Session>,
    monitor: Mutex<Monitor>,
    heard: Condvar,
    /// The first session that ended, and why.
    down: Mutex<Option<(usize, Ended)>>,
    stop: AtomicBool,
    hold_time: Duration,
    monitored: bool,
}

/// All neighbors, connected.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
    waker: Waker,
    established_in: Duration,
}

impl Client {
    /// Connects all neighbors and waits until all sessions are established.
    pub fn connect(config: &ClientConfig) -> Result<Client, ClientError> {
        let begun = Instant::now();
        let opened = open_all(config, begun + config.connect_timeout)?;
        let established_in = begun.elapsed();
        let (mut sessions, mut carried) = (Vec::new(), Vec::new());
        let hold_time = opened.iter().map(|opened| opened.hold_time).min().unwrap_or_default();
        for Opened { stream, rest, .. } in opened {
            sessions.push(Session { stream, writing: Mutex::new(()), counters: SessionCounters::default() });
            carried.push(rest);
        }
        let poll = Poll::new().map_err(system("cannot make a poll"))?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(system("cannot make a waker"))?;
        let shared = Arc::new(Shared {
            sessions,
            monitor: Mutex::new(Monitor::new(config.daemon_as)),
            heard: Condvar::new(),
            down: Mutex::new(None),
            stop: AtomicBool::new(false),
            hold_time,
            monitored: config.monitored,
        });
        let reader = Reader { shared: Arc::clone(&shared), poll, carried, buffer: vec![0; READ_BUFFER] };
        let reader = std::thread::Builder::new()
            .name("lab-reader".to_owned())
            .spawn(move || reader.run())
            .map_err(system("cannot start a thread"))?;
        Ok(Client { shared, reader: Some(reader), waker, established_in })
    }

    /// The time from the first attempt to connect until the last session was established.
    pub fn established_in(&self) -> Duration {
        self.established_in
    }

    /// The number of sessions, including the monitor's.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.len()
    }

    /// What a session has received and sent.
    pub fn counters(&self, session: usize) -> Option<&SessionCounters> {
        self.shared.sessions.get(session).map(|session| &session.counters)
    }

    /// The monitor, locked: the reader waits until the lock is released.
    pub fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.shared.monitor.lock()
    }

    /// Returns an error if a session ended.
    pub fn check(&self) -> Result<(), ClientError> {
        match self.shared.down.lock().as_ref() {
            None => Ok(()),
            Some((session, why)) => Err(ClientError::Down { session: *session, why: why.clone() }),
        }
    }

    /// Sends `streams`, one for each speaker from the first on, in the order of `runs`. Returns the time at
    /// which the kernel had taken the last byte.
    pub fn send(&self, streams: &[Stream], runs: &[Run]) -> Result<Instant, ClientError> {
        let mut writer = Writer::new(&self.shared)?;
        let mut sent = vec![0; streams.len()];
        for run in runs {
            let (Some(stream), Some(first)) = (streams.get(run.peer), sent.get_mut(run.peer)) else {
                continue;
            };
            let bytes = messages(stream, *first, run.messages);
            *first += run.messages;
            writer.write(run.peer, bytes)?;
        }
        Ok(Instant::now())
    }

    /// Sends `streams` with a thread for each.
    pub fn send_by_threads(&self, streams: &[Stream]) -> Result<Instant, ClientError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = streams
                .iter()
                .enumerate()
                .filter(|(_, stream)| !stream.bytes.is_empty())
                .map(|(peer, stream)| {
                    scope.spawn(move || Writer::new(&self.shared)?.write(peer, &stream.bytes))
                })
                .collect();
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            for (session, result) in results.into_iter().enumerate() {
                result.map_err(|_| ClientError::Down { session, why: Ended::Panicked })??;
            }
            Ok(Instant::now())
        })
    }

    /// Sends any bytes on one session.
    pub fn send_bytes(&self, session: usize, bytes: &[u8]) -> Result<(), ClientError> {
        Writer::new(&self.shared)?.write(session, bytes)
    }

    /// Waits until the monitor reaches its goal and returns the time at which it did; `None` after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Instant>, ClientError> {
        let end = Instant::now() + timeout;
        let mut monitor = self.monitor();
        loop {
            if let Some(reached) = monitor.reached() {
                return Ok(Some(reached));
            }
            self.check()?;
            let now = Instant::now();
            if now >= end {
                return Ok(None);
            }
            // The reader wakes this thread; the tick serves to notice sessions that ended.
            let tick = TICK.min(end - now);
            self.shared.heard.wait_for(&mut monitor, tick);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = self.waker.wake();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// The bytes of `count` messages from `first` on.
fn messages(stream: &Stream, first: usize, count: usize) -> &[u8] {
    let start = if first == 0 { 0 } else { stream.ends.get(first - 1).copied().unwrap_or(usize::MAX) };
    let end = (first + count).checked_sub(1).and_then(|last| stream.ends.get(last)).copied();
    stream.bytes.get(start..end.unwrap_or(start)).unwrap_or(&[])
}

/// An established session.
struct Opened {
    stream: TcpStream,
    /// The bytes received after the last message of the handshake.
    rest: Vec<u8>,
    /// The smaller of both proposals (RFC 4271 4.2).
    hold_time: Duration,
}

fn open_all(config: &ClientConfig, deadline: Instant) -> Result<Vec<Opened>, ClientError> {
    let mut opened: Vec<Option<Opened>> = config.speakers.iter().map(|_| None).collect();
    let mut last = String::from("no attempt");
    loop {
        let mut connected = Vec::new();
        for (at, speaker) in config.speakers.iter().enumerate() {
            if opened[at].is_some() {
                continue;
            }
            match begin(config, speaker) {
                Ok(stream) => connected.push((at, stream)),
                Err(error) => {
                    last = format!("{} to {}: {error}", speaker.source, config.daemon);
                    // A receiver that left for this one is gone for the next one, too.
                    if error.kind() == io::ErrorKind::ConnectionRefused {
                        break;
                    }
                }
            }
            if !config.pace.is_zero() {
                std::thread::sleep(config.pace);
            }
        }
        for (at, stream) in connected {
            match establish(stream, config.hold_time_s) {
                Ok(session) => opened[at] = Some(session),
                Err(error) => last = format!("{}: {error}", config.speakers[at].source),
            }
        }
        if opened.iter().all(Option::is_some) {
            return Ok(opened.into_iter().flatten().collect());
        }
        if Instant::now() >= deadline {
            let up = opened.iter().flatten().count();
            return Err(ClientError::NotEstablished { up, of: opened.len(), last });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn begin(config: &ClientConfig, speaker: &Speaker) -> io::Result<TcpStream> {
    let domain = if speaker.source.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SockAddr::from(SocketAddr::new(speaker.source, 0)))?;
    socket.connect_timeout(&SockAddr::from(config.daemon), CONNECT_WAIT)?;
    let mut stream = TcpStream::from(socket);
    let mut bytes = Vec::new();
    message::open(
        &mut bytes,
        &OpenFields {
            as_number: speaker.as_number,
            hold_time_s: config.hold_time_s,
            router_id: speaker.router_id,
            families: config.families.clone(),
        },
    );
    stream.set_nonblocking(false)?;
    stream.write_all(&bytes)?;
    Ok(stream)
}

/// Reads OPEN and KEEPALIVE, and answers the OPEN.
fn establish(mut stream: TcpStream, mut hold_time_s: u16) -> io::Result<Opened> {
    stream.set_read_timeout(Some(CONNECT_WAIT))?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; MESSAGE_MAX]);
    let mut open = false;
    loop {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        while let Some((kind, body, length)) =
            message::frame(&bytes, MESSAGE_MAX).map_err(|e| wrong(e.to_string()))?
        {
            match kind {
                kind::OPEN if !open => {
                    open = true;
                    // Skips version and AS, and takes the hold time.
                    let theirs = body.get(3..5).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
                    hold_time_s = hold_time_s.min(theirs);
                    let mut answer = Vec::new();
                    message::keepalive(&mut answer);
                    stream.write_all(&answer)?;
                }
                kind::KEEPALIVE if open => {
                    stream.set_read_timeout(None)?;
                    stream.set_nonblocking(true)?;
                    let hold_time = Duration::from_secs(u64::from(hold_time_s));
                    return Ok(Opened { stream, rest: bytes[length..].to_vec(), hold_time });
                }
                kind::NOTIFICATION => return Err(wrong(notification(body).to_string())),
                other => return Err(wrong(format!("message of type {other} while opening"))),
            }
            bytes.drain(..length);
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

fn notification(body: &[u8]) -> Ended {
    let code = |at: usize| body.get(at).copied().unwrap_or(0);
    Ended::Notification { code: code(0), subcode: code(1) }
}

/// Writes to sessions, and waits where a socket is full.
struct Writer<'a> {
    shared: &'a Shared,
    poll: Poll,
    events: Events,
    /// The sessions registered with this writer's poll.
    registered: Vec<bool>,
}

impl<'a> Writer<'a> {
    fn new(shared: &'a Shared) -> Result<Self, ClientError> {
        let poll = Poll::new().map_err(system("cannot make a poll"))?;
        Ok(Writer {
            shared,
            poll,
            events: Events::with_capacity(64),
            registered: vec![false; shared.sessions.len()],
        })
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), ClientError> {
        let Some(session) = self.shared.sessions.get(at) else { return Ok(()) };
        let _whole = session.writing.lock();
        let mut rest = bytes;
        let mut waited = Duration::ZERO;
        while !rest.is_empty() {
            match uninterrupted(|| (&session.stream).write(&rest[..rest.len().min(WRITE_MAX)])) {
                Ok(0) => return Err(ClientError::Down { session: at, why: Ended::Closed }),
                Ok(written) => {
                    rest = &rest[written..];
                    session.counters.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
                    waited = Duration::ZERO;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    waited += self.wait(at, session)?;
                    if waited > SEND_WAIT {
                        return Err(ClientError::NotReading { session: at });
                    }
                }
                Err(error) => {
                    // The daemon's last message explains more than the broken pipe does.
                    let why = self.shared.down.lock().as_ref().map(|(_, why)| why.clone());
                    let why = why.unwrap_or_else(|| Ended::Socket(Arc::new(error)));
                    return Err(ClientError::Down { session: at, why });
                }
            }
        }
        Ok(())
    }

    /// Waits until the session may be writable again, or for a tick. Returns how long it waited.
    fn wait(&mut self, at: usize, session: &Session) -> Result<Duration, ClientError> {
        let begun = Instant::now();
        if !self.registered[at] {
            let fd = session.stream.as_raw_fd();
            let registry = self.poll.registry();
            registry
                .register(&mut SourceFd(&fd), Token(at), Interest::WRITABLE)
                .map_err(system("cannot watch a socket"))?;
            self.registered[at] = true;
        }
        // Edges of other sessions may wake this thread or be lost, so each write is tried before it waits.
        match self.poll.poll(&mut self.events, Some(TICK)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(system("cannot poll")(error)),
            _ => Ok(begun.elapsed()),
        }
    }
}

/// The thread that reads from all sessions.
struct Reader {
    shared: Arc<Shared>,
    poll: Poll,
    /// For each session, the received part of an incomplete message.
    carried: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Reader {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        for (at, session) in shared.sessions.iter().enumerate() {
            let fd = session.stream.as_raw_fd();
            let watched = self.poll.registry().register(&mut SourceFd(&fd), Token(at), Interest::READABLE);
            if let Err(error) = watched {
                return lost(&shared, at, Ended::Watching(Arc::new(error)));
            }
            // The bytes received during the handshake come before those received since.
            let early = std::mem::take(&mut self.carried[at]);
            if let Err(why) = self.handle_bytes(at, &early).and_then(|()| self.handle_readable(at)) {
                lost(&shared, at, why);
            }
        }
        let mut events = Events::with_capacity(1024);
        let mut next_keepalive = Instant::now();
        while !shared.stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return lost(&shared, 0, Ended::Watching(Arc::new(error)));
                }
                _ => {}
            }
            for at in events.iter().map(|event| event.token()).filter(|token| *token != WAKE) {
                if let Err(why) = self.handle_readable(at.0) {
                    let fd = shared.sessions[at.0].stream.as_raw_fd();
                    let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
                    lost(&shared, at.0, why);
                }
            }
            let now = Instant::now();
            if now >= next_keepalive && !shared.hold_time.is_zero() {
                next_keepalive = now + shared.hold_time / 4;
                shared.sessions.iter().for_each(keepalive);
            }
        }
    }

    /// Reads until nothing is left.
    fn handle_readable(&mut self, at: usize) -> Result<(), Ended> {
        let shared = Arc::clone(&self.shared);
        let Some(session) = shared.sessions.get(at) else { return Ok(()) };
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = loop {
            match uninterrupted(|| (&session.stream).read(&mut buffer)) {
                Ok(0) => break Err(Ended::Closed),
                Ok(read) => {
                    if let Err(why) = self.handle_bytes(at, &buffer[..read]) {
                        break Err(why);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(Ended::Socket(Arc::new(error))),
            }
        };
        self.buffer = buffer;
        result
    }

    fn handle_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), Ended> {
        let session = &self.shared.sessions[at];
        session.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut carried = std::mem::take(&mut self.carried[at]);
        let mut rest = bytes;
        // Completes the message that has begun, then goes on without copying.
        while !carried.is_empty() && !rest.is_empty() {
            let wanted = match carried.get(16..HEADER_LEN) {
                None => HEADER_LEN,
                Some(header) => usize::from(u16::from_be_bytes([header[0], header[1]])).max(HEADER_LEN),
            };
            let (now, later) = rest.split_at(rest.len().min(wanted.saturating_sub(carried.len())));
            carried.extend_from_slice(now);
            rest = later;
            if carried.len() >= HEADER_LEN && self.take(at, &carried)? > 0 {
                carried.clear();
            }
        }
        if carried.is_empty() {
            let taken = self.take(at, rest)?;
            carried.extend_from_slice(&rest[taken..]);
        }
        self.carried[at] = carried;
        Ok(())
    }

    /// Handles all complete messages and returns how many bytes they were.
    fn take(&self, at: usize, bytes: &[u8]) -> Result<usize, Ended> {
        let session = &self.shared.sessions[at];
        let is_monitor = self.shared.monitored && at + 1 == self.shared.sessions.len();
        let mut monitor = is_monitor.then(|| self.shared.monitor.lock());
        let now = Instant::now();
        let (mut taken, mut updates, mut others) = (0, 0, 0);
        while let Some((kind, body, length)) = message::frame(&bytes[taken..], MESSAGE_MAX)? {
            match (kind, &mut monitor) {
                (kind::UPDATE, Some(monitor)) => {
                    updates += 1;
                    monitor.handle_update(body, now)?;
                }
                (kind::UPDATE, None) => updates += 1,
                (kind::NOTIFICATION, _) => return Err(notification(body)),
                _ => others += 1,
            }
            taken += length;
        }
        session.counters.updates.fetch_add(updates, Ordering::Relaxed);
        session.counters.others.fetch_add(others, Ordering::Relaxed);
        if monitor.is_some_and(|monitor| updates > 0 && monitor.reached().is_some()) {
            self.shared.heard.notify_all();
        }
        Ok(taken)
    }
}

/// Sends a KEEPALIVE unless the session is being written to, because then it needs none.
fn keepalive(session: &Session) {
    if let Some(_whole) = session.writing.try_lock() {
        let mut bytes = Vec::new();
        message::keepalive(&mut bytes);
        // The kernel takes all 19 bytes or none, unless the daemon has stopped reading; then its hold timer
        // rightly expires.
        let _ = (&session.stream).write(&bytes);
    }
}

fn lost(shared: &Shared, session: usize, why: Ended) {
    if shared.stop.load(Ordering::Acquire) {
        return;
    }
    shared.down.lock().get_or_insert((session, why));
    shared.heard.notify_all();
}

#[cfg(test)]
mod tests;
