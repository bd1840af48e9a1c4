//! A connection to a collector: TCP, with or without TLS, and how much of the sent data is acknowledged.
//!
//! Connecting blocks and runs on its own thread; an established link never blocks longer than [`WRITE_WAIT`].

use super::address::Carrier;
use super::datagrams::resolve;
use super::tls::Tls;
use super::{CollectorAddress, CollectorError};
use crate::socket_option;
use rustls::ClientConnection;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thalweg_base::uninterrupted;

/// The longest time that a write waits for room.
const WRITE_WAIT: Duration = Duration::from_millis(50);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A collector that acknowledges nothing for this long is gone (RFC 5482).
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(30);
/// The send buffer in bytes; it roughly limits the data in flight.
const SEND_BUFFER_BYTES: usize = 512 << 10;
/// The offset of `tcpi_bytes_acked` in the kernel's `struct tcp_info` (linux/tcp.h, since 4.1).
const BYTES_ACKED_AT: usize = 120;

/// An established connection; see the module documentation.
pub(super) struct Link {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Bytes to write next, and how many of them were written.
    pending: Vec<u8>,
    pending_written: usize,
    /// Bytes that the kernel took, without the TLS handshake.
    written: u64,
    /// Bytes that the kernel reported as acknowledged before the first of them.
    acknowledged_before: u64,
}

impl Link {
    /// Connects, and performs the TLS handshake if configured. Blocks for at most a few seconds, plus name
    /// resolution.
    pub(super) fn connect(address: &CollectorAddress, tls: Option<&Tls>) -> Result<Self, CollectorError> {
        let remote = resolve(&address.host, address.port)?;
        let failed = |source| CollectorError::Socket { collector: address.to_string(), source };
        let socket = TcpStream::connect_timeout(&remote, CONNECT_WITHIN).map_err(failed)?;
        let tls = match (address.carrier, tls) {
            (Carrier::Tls, Some(tls)) => Some(Box::new(shake_hands(&socket, tls).map_err(failed)?)),
            _ => None,
        };
        let mut link =
            Self { socket, tls, pending: Vec::new(), pending_written: 0, written: 0, acknowledged_before: 0 };
        link.prepare().map_err(failed)?;
        Ok(link)
    }

    fn prepare(&mut self) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        // The kernel may grant less.
        let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
        socket.set_tcp_user_timeout(Some(ACKNOWLEDGE_WITHIN))?;
        socket.set_keepalive(true)?;
        self.socket.set_nodelay(true)?;
        self.socket.set_write_timeout(Some(WRITE_WAIT))?;
        // Data written so far (a SYN, TLS's last message) may still be in flight; wait for its
        // acknowledgment, so that only our data counts from here on.
        let deadline = Instant::now() + CONNECT_WITHIN;
        while self.unacknowledged()? > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.acknowledged_before = self.bytes_acknowledged()?;
        Ok(())
    }

    /// Queues a message for writing.
    pub(super) fn queue(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => self.pending.extend_from_slice(message),
            Some(tls) => {
                tls.set_buffer_limit(None);
                tls.writer().write_all(message)?;
            }
        }
        Ok(())
    }

    /// Writes queued data as far as possible without much waiting; returns whether all was written.
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        while self.has_pending() {
            let written = uninterrupted(|| match &mut self.tls {
                None => self.socket.write(&self.pending[self.pending_written..]),
                Some(tls) => tls.write_tls(&mut self.socket),
            });
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.written += bytes as u64;
                    self.pending_written += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.pending_written = 0;
        Ok(true)
    }

    pub(super) fn has_pending(&self) -> bool {
        match &self.tls {
            None => self.pending_written < self.pending.len(),
            Some(tls) => tls.wants_write(),
        }
    }

    /// Bytes written so far, in the count of [`acknowledged`](Self::acknowledged).
    pub(super) fn position(&self) -> u64 {
        self.written
    }

    /// Bytes that the collector's kernel has acknowledged.
    pub(super) fn acknowledged(&self) -> io::Result<u64> {
        Ok(self.bytes_acknowledged()?.saturating_sub(self.acknowledged_before))
    }

    /// Reads what the collector sends (only TLS records) without waiting; fails if it is gone.
    pub(super) fn check(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        let checked = self.read_all();
        self.socket.set_nonblocking(false)?;
        checked
    }

    fn read_all(&mut self) -> io::Result<()> {
        let closed = || io::Error::new(io::ErrorKind::ConnectionAborted, "closed by the collector");
        let mut bytes = [0; 2048];
        loop {
            let read = uninterrupted(|| match &mut self.tls {
                None => self.socket.read(&mut bytes),
                Some(tls) => tls.read_tls(&mut self.socket),
            });
            match read {
                Ok(0) => return Err(closed()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if let Some(tls) = &mut self.tls {
                let state = tls.process_new_packets().map_err(io::Error::other)?;
                if state.peer_has_closed() {
                    return Err(closed());
                }
                // Collectors have nothing to say; discard it.
                let _ = tls.reader().read(&mut bytes);
            }
        }
    }

    /// Closes the sending direction.
    pub(super) fn close(mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        // The collector may be gone already; everything that counts was acknowledged before.
        let _ = self.advance();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn bytes_acknowledged(&self) -> io::Result<u64> {
        let mut info = [0; 256];
        let bytes = socket_option::get(self.socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        match info[..bytes].get(BYTES_ACKED_AT..BYTES_ACKED_AT + 8).and_then(|field| field.try_into().ok()) {
            Some(field) => Ok(u64::from_ne_bytes(field)),
            None => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel does not count acknowledged bytes",
            )),
        }
    }

    /// Segments that were sent and are not acknowledged: `tcpi_unacked`.
    fn unacknowledged(&self) -> io::Result<u32> {
        let mut info = [0; 256];
        socket_option::get(self.socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        Ok(u32::from_ne_bytes([info[24], info[25], info[26], info[27]]))
    }
}

/// Performs the TLS handshake on a blocking socket.
pub(crate) fn shake_hands(socket: &TcpStream, tls: &Tls) -> io::Result<ClientConnection> {
    socket.set_read_timeout(Some(CONNECT_WITHIN))?;
    socket.set_write_timeout(Some(CONNECT_WITHIN))?;
    let mut connection =
        ClientConnection::new(tls.config.clone(), tls.server_name.clone()).map_err(io::Error::other)?;
    let mut stream = socket;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(connection)
}
