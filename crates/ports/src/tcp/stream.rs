//! A connection to a neighbor.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};
use thalweg_base::uninterrupted;

use super::error::{TcpError, option};
use super::md5::{self, Md5Key};
use super::options::{self, HopLimit};

/// The result of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Not possible now; an event says when to try again.
    WouldBlock,
    /// The neighbor has closed its direction (reads only).
    Closed,
}

/// A connection, possibly still being established. Read and written through `&self`.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    remote: SocketAddr,
}

/// Begins a connection from `local` (any address of the family if `None`) to `remote` without waiting:
/// register the stream for writing, and call [`Stream::connected`] when the event arrives. `key` is the
/// password, if there is one.
pub fn connect(
    local: Option<IpAddr>,
    remote: SocketAddr,
    hop_limit: HopLimit,
    key: Option<&Md5Key>,
) -> Result<Stream, TcpError> {
    let failed = |source| TcpError::Connect { remote, source };
    let socket =
        Socket::new(Domain::for_address(remote), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
            .map_err(failed)?;
    if remote.is_ipv6() {
        socket.set_only_v6(true).map_err(option("IPV6_V6ONLY"))?;
    }
    options::apply(&socket, remote.is_ipv6(), hop_limit)?;
    if let Some(key) = key {
        set_own_key(&socket, remote.ip(), Some(key))?;
    }
    if let Some(local) = local {
        if local.is_ipv6() != remote.is_ipv6() {
            return Err(TcpError::FamiliesDiffer { local, remote });
        }
        // The connection chooses the port, so that it need not be unique among all neighbors of the address.
        let level = libc::IPPROTO_IP;
        crate::socket_option::set_int(socket.as_fd(), level, libc::IP_BIND_ADDRESS_NO_PORT, 1)
            .map_err(option("IP_BIND_ADDRESS_NO_PORT"))?;
        let address = match (local, remote) {
            // A link-local address needs the neighbor's interface.
            (IpAddr::V6(local), SocketAddr::V6(remote)) if local.is_unicast_link_local() => {
                std::net::SocketAddrV6::new(local, 0, 0, remote.scope_id()).into()
            }
            _ => SocketAddr::new(local, 0),
        };
        socket.bind(&address.into()).map_err(|source| TcpError::LocalAddress { address: local, source })?;
    }
    match socket.connect(&remote.into()) {
        Ok(()) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {}
        Err(source) => return Err(failed(source)),
    }
    Ok(Stream { socket, remote })
}

impl Stream {
    pub(super) fn accepted(socket: Socket, remote: SocketAddr) -> Self {
        Self { socket, remote }
    }

    /// Whether the connection is established; `false` while unknown.
    pub fn connected(&self) -> Result<bool, TcpError> {
        if let Some(source) = self.socket.take_error().map_err(connection)? {
            return Err(TcpError::Connection { source });
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(source) => Err(TcpError::Connection { source }),
        }
    }

    /// Sets the options of the neighbor, once it is identified.
    pub fn apply(&self, hop_limit: HopLimit) -> Result<(), TcpError> {
        options::apply(&self.socket, self.remote.is_ipv6(), hop_limit)
    }

    /// Changes or (with `None`) removes the password of the connection. The neighbor must do the same within
    /// TCP's retransmission time.
    pub fn set_md5_key(&self, key: Option<&Md5Key>) -> Result<(), TcpError> {
        set_own_key(&self.socket, self.remote.ip(), key)
    }

    /// Reads available bytes, as far as they fit.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Progress, TcpError> {
        if buffer.is_empty() {
            return Ok(Progress::Bytes(0));
        }
        match progress(|| (&self.socket).read(buffer))? {
            Progress::Bytes(0) => Ok(Progress::Closed),
            other => Ok(other),
        }
    }

    /// Writes as much as the socket takes. Uses only the first [`SLICES_MAX`] slices.
    pub fn write_vectored(&self, slices: &[IoSlice<'_>]) -> Result<Progress, TcpError> {
        let slices = slices.get(..SLICES_MAX).unwrap_or(slices);
        progress(|| (&self.socket).write_vectored(slices))
    }

    /// Writes as much as the socket takes.
    pub fn write(&self, bytes: &[u8]) -> Result<Progress, TcpError> {
        progress(|| (&self.socket).write(bytes))
    }

    /// Ends the sending direction; data that was written is still delivered.
    pub fn shutdown_write(&self) -> Result<(), TcpError> {
        match self.socket.shutdown(Shutdown::Write) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(connection(error)),
            _ => Ok(()),
        }
    }

    /// Sends a reset instead of an orderly close when the stream is dropped, and frees unsent data at once.
    pub fn reset_on_drop(&self) -> Result<(), TcpError> {
        self.socket.set_linger(Some(std::time::Duration::ZERO)).map_err(option("SO_LINGER"))
    }

    /// Our address and port.
    pub fn local_address(&self) -> Result<SocketAddr, TcpError> {
        let address = self.socket.local_addr().map_err(connection)?;
        address.as_socket().ok_or_else(|| connection(io::ErrorKind::InvalidData.into()))
    }

    /// The neighbor's address and port.
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }
}

/// The most slices of one system call (`IOV_MAX`).
pub const SLICES_MAX: usize = 1024;

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_own_key(socket: &Socket, remote: IpAddr, key: Option<&Md5Key>) -> Result<(), TcpError> {
    md5::set_key(socket.as_fd(), remote, if remote.is_ipv6() { 128 } else { 32 }, key)
}

fn connection(source: io::Error) -> TcpError {
    TcpError::Connection { source }
}

#[inline]
fn progress(call: impl FnMut() -> io::Result<usize>) -> Result<Progress, TcpError> {
    match uninterrupted(call) {
        Ok(count) => Ok(Progress::Bytes(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::WouldBlock),
        Err(source) => Err(TcpError::Connection { source }),
    }
}
