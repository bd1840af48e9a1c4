//! Listens for connections from neighbors.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::error::{TcpError, option};
use super::md5::{self, Md5Key};
use super::options::{self, HopLimit};
use super::stream::Stream;

/// Connections that the kernel keeps until they are accepted: after a restart a thousand neighbors connect at
/// once. (The kernel limits it to `net.core.somaxconn`, 4096 by default; further connections retry after a
/// second.)
pub const BACKLOG: i32 = 1024;

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: SocketAddr,
    has_address: bool,
}

impl Listener {
    /// Listens on an address, which need not be one of this system's yet; for port 0 the system chooses one. The unspecified address includes all
    /// addresses of its family only. Answers have TTL 255, so that neighbors with GTSM accept them;
    /// [`Stream::apply`] sets the options of an accepted connection's neighbor.
    pub fn bind(address: SocketAddr) -> Result<Self, TcpError> {
        let failed = |source| TcpError::Listen { address, source };
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )
        .map_err(failed)?;
        if address.is_ipv6() {
            socket.set_only_v6(true).map_err(option("IPV6_V6ONLY"))?;
        }
        // A restarted daemon must be able to listen while connections of its predecessor are closing.
        socket.set_reuse_address(true).map_err(option("SO_REUSEADDR"))?;
        options::apply(&socket, address.is_ipv6(), HopLimit::Any)?;
        options::set_ttl(&socket, address.is_ipv6(), 255)?;
        let mut has_address = true;
        let mut bound = socket.bind(&address.into());
        if bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable) {
            match address {
                SocketAddr::V4(_) => socket.set_freebind_v4(true).map_err(option("IP_FREEBIND"))?,
                SocketAddr::V6(_) => socket.set_freebind_v6(true).map_err(option("IPV6_FREEBIND"))?,
            }
            has_address = false;
            bound = socket.bind(&address.into());
        }
        bound.map_err(failed)?;
        socket.listen(BACKLOG).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?.as_socket().unwrap_or(address);
        Ok(Self { socket, address: bound, has_address })
    }

    /// The address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether an interface had the address. If not, connections arrive once one has it.
    pub fn has_address(&self) -> bool {
        self.has_address
    }

    /// The next connection and its origin; `None` if there is none now. After an event, call it until then.
    /// After [`TcpError::NoDescriptor`] the connection still waits, without a further event.
    pub fn accept(&self) -> Result<Option<(Stream, SocketAddr)>, TcpError> {
        loop {
            let (socket, address) = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        return Err(TcpError::NoDescriptor);
                    }
                    // The neighbor left before we accepted; accept(2) lists the other errors as network
                    // errors of the connection, not of the listener.
                    Some(
                        libc::EINTR
                        | libc::ECONNABORTED
                        | libc::EPROTO
                        | libc::ENETDOWN
                        | libc::EHOSTDOWN
                        | libc::EHOSTUNREACH
                        | libc::ENETUNREACH
                        | libc::ENONET,
                    ) => continue,
                    _ => return Err(TcpError::Connection { source: error }),
                },
            };
            let ready = socket.set_nonblocking(true);
            if let (Ok(()), Some(address)) = (ready, address.as_socket()) {
                return Ok(Some((Stream::accepted(socket, address), address)));
            }
        }
    }

    /// Sets, replaces or (`None`) removes the password of a neighbor, or of all neighbors in a prefix of
    /// `length` bits; the longest match applies. It affects connections accepted from now on. The neighbor's
    /// family must be the listener's.
    pub fn set_md5_key(&self, neighbor: IpAddr, length: u8, key: Option<&Md5Key>) -> Result<(), TcpError> {
        if neighbor.is_ipv6() != self.address.is_ipv6() {
            let source = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(TcpError::Option { what: "an MD5 password of another address family", source });
        }
        md5::set_key(self.socket.as_fd(), neighbor, length, key)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
