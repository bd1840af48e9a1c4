//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The longest key the kernel takes.
pub const KEY_LENGTH_MAX: usize = libc::TCP_MD5SIG_MAXKEYLEN;

/// Why a socket cannot be had or used. Displays as a sentence that says what to do where something can be done.
#[derive(Debug)]
pub enum TcpError {
    /// Listening on an address failed.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The local address of a connection cannot be used.
    LocalAddress {
        /// The address.
        address: IpAddr,
        /// Why.
        source: io::Error,
    },
    /// A connection could not even be begun.
    Connect {
        /// The neighbor.
        remote: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The local address is of another family than the neighbor's.
    FamiliesDiffer {
        /// The local address.
        local: IpAddr,
        /// The neighbor.
        remote: SocketAddr,
    },
    /// An option was refused.
    Option {
        /// What the option is for.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// An MD5 key is empty or longer than the kernel takes.
    KeyLength {
        /// How many bytes it has.
        bytes: usize,
    },
    /// A prefix of neighbors is longer than their addresses.
    PrefixLength {
        /// The address.
        address: IpAddr,
        /// The length.
        length: u8,
    },
    /// The kernel has no room for another key on this listener.
    TooManyKeys {
        /// Whose key it was.
        neighbor: IpAddr,
    },
    /// No descriptor is left for another connection; the connection waits in the kernel.
    NoDescriptor,
    /// Anything else on an open connection.
    Connection {
        /// Why it ended.
        source: io::Error,
    },
    /// The poller failed.
    Poll {
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for TcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => {
                write!(f, "cannot listen on {address}: ")?;
                match source.kind() {
                    io::ErrorKind::PermissionDenied if address.port() < 1024 => write!(
                        f,
                        "port {} needs root or CAP_NET_BIND_SERVICE, or choose a port above 1023",
                        address.port()
                    ),
                    io::ErrorKind::AddrInUse => write!(
                        f,
                        "another program listens there; stop it, or listen on another address or port"
                    ),
                    io::ErrorKind::AddrNotAvailable => write!(f, "no interface has this address"),
                    _ => write!(f, "{source}"),
                }
            }
            Self::LocalAddress { address, source } => match source.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    write!(f, "cannot connect from {address}: no interface has this address")
                }
                _ => write!(f, "cannot connect from {address}: {source}"),
            },
            Self::Connect { remote, source } => match source.kind() {
                io::ErrorKind::NetworkUnreachable => {
                    write!(f, "cannot connect to {remote}: there is no route to it")
                }
                _ => write!(f, "cannot connect to {remote}: {source}"),
            },
            Self::FamiliesDiffer { local, remote } => write!(
                f,
                "cannot connect from {local} to {}: one is IPv4 and the other IPv6; give a local address of the \
                 neighbor's family",
                remote.ip()
            ),
            Self::Option { what, source } => write!(f, "the kernel refused {what}: {source}"),
            Self::KeyLength { bytes } => {
                write!(f, "an MD5 password has 1 to {KEY_LENGTH_MAX} bytes, this one has {bytes}")
            }
            Self::PrefixLength { address, length } => {
                write!(f, "{address}/{length}: the prefix is longer than the address")
            }
            Self::TooManyKeys { neighbor } => write!(
                f,
                "no room for the MD5 password of {neighbor}: raise net.core.optmem_max (about 160 bytes a \
                 password) or give neighbors one password by prefix"
            ),
            Self::NoDescriptor => {
                write!(f, "no file descriptor is left for another connection: raise the limit (ulimit -n)")
            }
            Self::Connection { source } => match source.kind() {
                io::ErrorKind::TimedOut => write!(
                    f,
                    "timed out; where a password is configured, the neighbor's may differ or be missing"
                ),
                io::ErrorKind::ConnectionRefused => {
                    write!(f, "refused: nobody listens there, or not to this address")
                }
                _ => write!(f, "{source}"),
            },
            Self::Poll { source } => write!(f, "cannot wait for sockets: {source}"),
        }
    }
}

impl std::error::Error for TcpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. }
            | Self::LocalAddress { source, .. }
            | Self::Connect { source, .. }
            | Self::Option { source, .. }
            | Self::Connection { source }
            | Self::Poll { source } => Some(source),
            _ => None,
        }
    }
}

/// Names what an option was for.
pub(super) fn option(what: &'static str) -> impl Fn(io::Error) -> TcpError {
    move |source| TcpError::Option { what, source }
}
