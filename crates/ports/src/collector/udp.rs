//! The socket to a collector that receives datagrams: opened as soon as this system has a way there, and opened
//! again when its source address has left this system.
//!
//! A connected socket keeps the source address it got first, by which collectors know the exporter. Routes may come
//! and go meanwhile. Without that address the kernel refuses IPv4 datagrams, and sends IPv6 ones to which nobody can
//! answer; so the address is looked for, and nothing is concluded from failures to send.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use thalweg_base::uninterrupted;

/// The send buffer in bytes: with a full buffer the sender waits instead of losing datagrams.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// The shortest time between two looks, and so between two sockets.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for ICMP errors about the last datagrams.
const LAST_REFUSAL: Duration = Duration::from_millis(20);
/// How often a datagram is retried when it meets the error of an earlier one.
const TRIES: u32 = 4;

/// See the module documentation.
pub(super) struct Way {
    remote: SocketAddr,
    /// Or why there is none.
    socket: Result<UdpSocket, String>,
    looked: Instant,
}

impl Way {
    pub(super) fn open(remote: SocketAddr) -> Self {
        Self { remote, socket: connected(remote), looked: Instant::now() }
    }

    pub(super) fn socket(&self) -> Option<&UdpSocket> {
        self.socket.as_ref().ok()
    }

    /// Why there is no socket.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.socket.as_ref().err().map(String::as_str)
    }

    /// Looks from time to time whether another socket is needed. If so, closes the one there is.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        if self.socket().and_then(|socket| socket.local_addr().ok()).is_some_and(is_here) {
            return false;
        }
        if self.socket.is_ok() {
            self.socket = Err("the source address has left this system".to_owned());
        }
        true
    }

    /// Tries to get another socket; returns whether there is one.
    pub(super) fn renew(&mut self) -> bool {
        self.socket = connected(self.remote);
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
            Err(why) => Err(io::Error::new(io::ErrorKind::NotConnected, why.clone())),
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
