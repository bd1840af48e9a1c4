//! The socket to a collector that receives datagrams: opened as soon as this system has a way there, and opened
//! again when its source address has left this system. A collector's name is looked up whenever one is opened.
//!
//! A connected socket keeps the source address it got first, by which collectors know the exporter. Routes may come
//! and go meanwhile. Without that address the kernel refuses IPv4 datagrams, and sends IPv6 ones to which nobody can
//! answer; so the address is looked for, and nothing is concluded from failures to send.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use thalweg_base::uninterrupted;

use super::CollectorError;

/// The send buffer in bytes: with a full buffer the sender waits instead of losing datagrams.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// The shortest time between two looks, and so between two sockets.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for ICMP errors about the last datagrams.
const LAST_REFUSAL: Duration = Duration::from_millis(20);
/// How often a datagram is retried when it meets the error of an earlier one.
const TRIES: u32 = 4;

/// Looks up the collector's address, which may take seconds.
pub(super) type LookUp = Box<dyn Fn() -> Result<SocketAddr, CollectorError> + Send>;

/// See the module documentation.
pub(super) struct Way {
    look_up: LookUp,
    /// Or why there is none; `None` before the first look.
    socket: Result<UdpSocket, Option<String>>,
    /// `None` if nobody has looked yet.
    looked: Option<Instant>,
}

impl Way {
    pub(super) fn open(look_up: LookUp) -> Result<Self, CollectorError> {
        let socket = connected(look_up()?).map_err(Some);
        Ok(Self { look_up, socket, looked: Some(Instant::now()) })
    }

    /// To be opened by [`renew`](Self::renew), not by the caller, whom a resolver that does not answer would hold up.
    pub(super) fn open_later(look_up: LookUp) -> Self {
        Self { look_up, socket: Err(None), looked: None }
    }

    pub(super) fn socket(&self) -> Option<&UdpSocket> {
        self.socket.as_ref().ok()
    }

    /// Why there is no socket.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.socket.as_ref().err()?.as_deref()
    }

    /// Looks from time to time whether another socket is needed. If so, closes the one there is.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return false;
        }
        self.looked = Some(Instant::now());
        if self.socket().and_then(|socket| socket.local_addr().ok()).is_some_and(is_here) {
            return false;
        }
        if self.socket.is_ok() {
            self.socket = Err(Some("the source address has left this system".to_owned()));
        }
        true
    }

    /// Tries to get another socket; returns whether there is one.
    pub(super) fn renew(&mut self) -> bool {
        let remote = (self.look_up)().map_err(|error| error.to_string());
        self.socket = remote.and_then(connected).map_err(Some);
        self.socket.is_ok()
    }

    /// Sends bytes; fails without a socket. The kernel reports the error of an earlier datagram to the next call, which
    /// is then retried; the number is that of datagrams refused so.
    pub(super) fn send(&self, bytes: &[u8]) -> (io::Result<()>, u64) {
        let (mut result, mut refused) = (self.send_once(bytes), 0);
        for _ in 0..TRIES {
            match result.as_ref().map_err(io::Error::kind) {
                Err(io::ErrorKind::Interrupted) => {}
                Err(io::ErrorKind::ConnectionRefused) => refused += 1,
                _ => break,
            }
            result = self.send_once(bytes);
        }
        (result, refused)
    }

    /// Waits briefly for ICMP errors about the last datagrams; returns whether there was one.
    pub(super) fn hears_last_refusal(&self) -> bool {
        // Collectors send nothing, so anything received is an error. Without an error nothing is known, as
        // for every datagram.
        let Some(socket) = self.socket() else { return false };
        let set = socket.set_read_timeout(Some(LAST_REFUSAL));
        let heard = set.and_then(|()| uninterrupted(|| socket.recv(&mut [0])));
        heard.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    fn send_once(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.socket {
            Ok(socket) => socket.send(bytes).map(|_| ()),
            Err(why) => Err(io::Error::new(io::ErrorKind::NotConnected, why.clone().unwrap_or_default())),
        }
    }
}

/// Whether this system has an address. An answer that says neither is no reason to end a session.
fn is_here(source: SocketAddr) -> bool {
    // A link-local address keeps the interface that it is of.
    let mut any_port = source;
    any_port.set_port(0);
    let bound = UdpSocket::bind(any_port);
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

fn connected(remote: SocketAddr) -> Result<UdpSocket, String> {
    let connect = || {
        let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
        // The kernel may grant less; then the sender waits more often.
        let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
        socket.connect(&remote.into())?;
        Ok(socket.into())
    };
    connect().map_err(|error: io::Error| format!("this system has no way there: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_name_is_looked_up_until_it_is_known() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (remote, known) = (receiver.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let is_known = known.clone();
        let unknown = || CollectorError::Resolve { host: "collector.example.net".to_owned(), source: None };
        let look_up = move || is_known.load(Ordering::Relaxed).then_some(remote).ok_or_else(unknown);
        assert!(Way::open(Box::new(look_up.clone())).is_err());
        let mut way = Way::open_later(Box::new(look_up));
        assert_eq!((way.socket().is_some(), way.trouble()), (false, None), "nobody has looked");
        assert!(way.has_ended() && !way.renew());
        assert_eq!(way.trouble(), Some("collector's host `collector.example.net` has no address"));
        known.store(true, Ordering::Relaxed);
        assert!(way.renew() && way.send(b"x").0.is_ok());
        assert_eq!(receiver.recv(&mut [0; 9]).unwrap(), 1);
    }
}
