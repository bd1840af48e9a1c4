//! Waiting for many sockets at once: `epoll`, by mio.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::Token;
use mio::unix::SourceFd;

use super::error::TcpError;

/// Events one poll brings at most; further ones come with the next. With a thousand neighbors a busy thread
/// makes rounds of this size, between which it looks at its timers.
pub const EVENTS_PER_POLL: usize = 256;

const WAKER: Token = Token(usize::MAX);

/// What to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// That there is something to read (or to accept).
    Read,
    /// That the socket takes more, or is connected.
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

/// What happened to a socket since the last event of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number the socket was registered with.
    pub token: usize,
    /// There is something to read, be it the end or an error.
    pub readable: bool,
    /// It takes more, or is connected, or has failed.
    pub writable: bool,
    /// The neighbor has closed its direction, or the connection failed: no further event will say so, hence read
    /// until the end. (Without this, a read that does not fill its buffer has read what there is.)
    pub read_closed: bool,
}

/// Registers sockets with a poller, from any thread.
#[derive(Debug)]
pub struct Registrar(mio::Registry);

impl Registrar {
    /// Reports events of a socket under a number below `usize::MAX`. If the socket is readable or writable
    /// already, that is an event.
    pub fn register(&self, socket: &impl AsFd, token: usize, interest: Interest) -> Result<(), TcpError> {
        let fd = socket.as_fd().as_raw_fd();
        self.0.register(&mut SourceFd(&fd), Token(token), interest.into()).map_err(poll)
    }

    /// Changes what is reported, and reports anew what is the case already.
    pub fn reregister(&self, socket: &impl AsFd, token: usize, interest: Interest) -> Result<(), TcpError> {
        let fd = socket.as_fd().as_raw_fd();
        self.0.reregister(&mut SourceFd(&fd), Token(token), interest.into()).map_err(poll)
    }

    /// Reports nothing more. (Dropping the socket does so too.)
    pub fn deregister(&self, socket: &impl AsFd) -> Result<(), TcpError> {
        let fd = socket.as_fd().as_raw_fd();
        self.0.deregister(&mut SourceFd(&fd)).map_err(poll)
    }
}

/// Ends a poll from another thread; the next one, if none is going on.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// Does so. Many calls before the poll are as one.
    pub fn wake(&self) -> Result<(), TcpError> {
        self.0.wake().map_err(poll)
    }
}

/// Waits for sockets; one per thread.
#[derive(Debug)]
pub struct Poller {
    poll: mio::Poll,
    registrar: Registrar,
    waker: Waker,
    events: mio::Events,
}

/// What a poll brought.
#[derive(Debug)]
pub struct Events<'a> {
    events: &'a mio::Events,
}

impl Events<'_> {
    /// The sockets' events.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.events.iter().filter(|event| event.token() != WAKER).map(|event| Event {
            token: event.token().0,
            readable: event.is_readable() || event.is_read_closed() || event.is_error(),
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            read_closed: event.is_read_closed() || event.is_error(),
        })
    }

    /// Whether a [`Waker`] was used.
    pub fn woken(&self) -> bool {
        self.events.iter().any(|event| event.token() == WAKER)
    }
}

impl Poller {
    /// A poller without sockets.
    pub fn new() -> Result<Self, TcpError> {
        let poll = mio::Poll::new().map_err(self::poll)?;
        let waker = Waker(Arc::new(mio::Waker::new(poll.registry(), WAKER).map_err(self::poll)?));
        let registrar = Registrar(poll.registry().try_clone().map_err(self::poll)?);
        Ok(Self { poll, registrar, waker, events: mio::Events::with_capacity(EVENTS_PER_POLL) })
    }

    /// Where sockets are registered.
    pub fn registrar(&self) -> &Registrar {
        &self.registrar
    }

    /// The same for another thread.
    pub fn clone_registrar(&self) -> Result<Registrar, TcpError> {
        self.registrar.0.try_clone().map(Registrar).map_err(poll)
    }

    /// What ends a poll from elsewhere.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits for events, at most for `timeout` (rounded up to milliseconds; `None` waits without end). A signal
    /// ends it early, without events.
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
