//! Waits for many sockets at once with `epoll`, through mio.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::Token;
use mio::unix::SourceFd;

use super::error::TcpError;

/// The most events of one poll; the next poll returns the others. With a thousand neighbors, a busy thread
/// checks its timers between rounds of this size.
pub const EVENTS_PER_POLL: usize = 256;

const WAKER: Token = Token(usize::MAX);

/// The events to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is something to read (or to accept).
    Read,
    /// The socket can take data, or is connected.
    Write,
    Both,
}

impl From<Interest> for mio::Interest {
    fn from(interest: Interest) -> Self {
        match interest {
            Interest::Read => mio::Interest::READABLE,
            Interest::Write => mio::Interest::WRITABLE,
            Interest::Both => mio::Interest::READABLE | mio::Interest::WRITABLE,
        }
    }
}

/// What happened to a socket since its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number that the socket was registered with.
    pub token: usize,
    /// There is something to read, possibly the end or an error.
    pub readable: bool,
    /// The socket can take data, is connected, or has failed.
    pub writable: bool,
    /// The neighbor has closed its direction, or the connection failed. No further event will say so, so read
    /// until the end. (Otherwise, a read that does not fill its buffer has read everything.)
    pub read_closed: bool,
}

/// Registers sockets with a poller, from any thread.
#[derive(Debug)]
pub struct Registrar(mio::Registry);

impl Registrar {
    /// Reports events of a socket under a number below `usize::MAX`. If the socket is already readable or
    /// writable, that is an event.
    pub fn register(&self, socket: &impl AsFd, token: usize, interest: Interest) -> Result<(), TcpError> {
        let fd = socket.as_fd().as_raw_fd();
        self.0.register(&mut SourceFd(&fd), Token(token), interest.into()).map_err(poll)
    }

    /// Changes the reported events, and reports those that already apply.
    pub fn reregister(&self, socket: &impl AsFd, token: usize, interest: Interest) -> Result<(), TcpError> {
        let fd = socket.as_fd().as_raw_fd();
        self.0.reregister(&mut SourceFd(&fd), Token(token), interest.into()).map_err(poll)
    }

    /// Stops reporting. (Dropping the socket does so too.)
    pub fn deregister(&self, socket: &impl AsFd) -> Result<(), TcpError> {
        let fd = socket.as_fd().as_raw_fd();
        self.0.deregister(&mut SourceFd(&fd)).map_err(poll)
    }
}

/// Ends a poll from another thread, or the next poll if none is running.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// Wakes the poller. Several calls before the poll count as one.
    pub fn wake(&self) -> Result<(), TcpError> {
        self.0.wake().map_err(poll)
    }
}

/// Waits for sockets; each thread has its own.
#[derive(Debug)]
pub struct Poller {
    poll: mio::Poll,
    registrar: Registrar,
    waker: Waker,
    events: mio::Events,
}

/// The events of a poll.
#[derive(Debug)]
pub struct Events<'a> {
    events: &'a mio::Events,
}

impl Events<'_> {
    /// The events of sockets.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.events.iter().filter(|event| event.token() != WAKER).map(|event| Event {
            token: event.token().0,
            readable: event.is_readable() || event.is_read_closed() || event.is_error(),
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            read_closed: event.is_read_closed() || event.is_error(),
        })
    }

    /// Whether a [`Waker`] ended the poll.
    pub fn woken(&self) -> bool {
        self.events.iter().any(|event| event.token() == WAKER)
    }
}

impl Poller {
    /// Makes a poller without sockets.
    pub fn new() -> Result<Self, TcpError> {
        let poll = mio::Poll::new().map_err(self::poll)?;
        let waker = Waker(Arc::new(mio::Waker::new(poll.registry(), WAKER).map_err(self::poll)?));
        let registrar = Registrar(poll.registry().try_clone().map_err(self::poll)?);
        Ok(Self { poll, registrar, waker, events: mio::Events::with_capacity(EVENTS_PER_POLL) })
    }

    /// Registers sockets with this poller.
    pub fn registrar(&self) -> &Registrar {
        &self.registrar
    }

    /// [`Self::registrar`] for another thread.
    pub fn clone_registrar(&self) -> Result<Registrar, TcpError> {
        self.registrar.0.try_clone().map(Registrar).map_err(poll)
    }

    /// Ends a poll from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits for events, at most for `timeout` (rounded up to milliseconds; `None` waits forever). A signal
    /// ends the wait early, without events.
    pub fn poll(&mut self, timeout: Option<Duration>) -> Result<Events<'_>, TcpError> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(source) => return Err(TcpError::Poll { source }),
        }
        Ok(Events { events: &self.events })
    }
}

fn poll(source: io::Error) -> TcpError {
    TcpError::Poll { source }
}
