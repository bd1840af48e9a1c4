//! Errors of TCP sockets, with advice.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// The longest password that the kernel takes.
pub const KEY_LENGTH_MAX: usize = libc::TCP_MD5SIG_MAXKEYLEN;

/// Why a socket cannot be opened or used. Displays as a sentence with advice if there is any.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    #[error("cannot listen on {address}: {}", not_listening(*.address, .source))]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot connect from {address}: {}", in_words(.source, &[NO_ADDRESS]))]
    LocalAddress { address: IpAddr, source: io::Error },
    /// A connection attempt could not be started.
    #[error("cannot connect to {remote}: {}", in_words(.source, &[NO_ROUTE]))]
    Connect {
        /// The neighbor.
        remote: SocketAddr,
        source: io::Error,
    },
    /// The local address has another family than the neighbor's.
    #[error(
        "cannot connect from {local} to {}: one is IPv4 and the other IPv6; give a local address of the \
         neighbor's family",
        .remote.ip()
    )]
    FamiliesDiffer {
        /// The local address.
        local: IpAddr,
        remote: SocketAddr,
    },
    #[error("the kernel refused {what}: {source}")]
    Option {
        /// The purpose of the option.
        what: &'static str,
        source: io::Error,
    },
    /// An MD5 password is empty or longer than the kernel takes.
    #[error("an MD5 password has 1 to {KEY_LENGTH_MAX} bytes, this one has {bytes}")]
    KeyLength {
        /// How many bytes it has.
        bytes: usize,
    },
    #[error("{address}/{length}: the prefix is longer than the address")]
    PrefixLength { address: IpAddr, length: u8 },
    /// The kernel has no room for another password on this listener.
    #[error(
        "no room for the MD5 password of {neighbor}: raise net.core.optmem_max (about 160 bytes a password) \
         or give neighbors one password by prefix"
    )]
    TooManyKeys {
        /// The neighbor without a key.
        neighbor: IpAddr,
    },
    /// No descriptor is left for another connection; the connection waits in the kernel.
    #[error("no file descriptor is left for another connection: raise the limit (ulimit -n)")]
    NoDescriptor,
    /// Any other error of an open connection.
    #[error("{}", in_words(.source, &[TIMED_OUT, REFUSED]))]
    Connection {
        /// Why it ended.
        source: io::Error,
    },
}

const ADDRESS_IN_USE: (ErrorKind, &str) =
    (ErrorKind::AddrInUse, "another program listens there; stop it, or listen on another address or port");
const NO_ADDRESS: (ErrorKind, &str) = (ErrorKind::AddrNotAvailable, "no interface has this address");
const NO_ROUTE: (ErrorKind, &str) = (ErrorKind::NetworkUnreachable, "there is no route to it");
const REFUSED: (ErrorKind, &str) =
    (ErrorKind::ConnectionRefused, "refused: nobody listens there, or not to this address");
const TIMED_OUT: (ErrorKind, &str) = (
    ErrorKind::TimedOut,
    "timed out; where a password is configured, the neighbor's may differ or be missing",
);

/// The error in our words if `words` has its kind, otherwise in the system's.
fn in_words(error: &io::Error, words: &[(ErrorKind, &str)]) -> String {
    let ours = words.iter().find(|(kind, _)| *kind == error.kind());
    ours.map_or_else(|| error.to_string(), |(_, text)| (*text).to_owned())
}

fn not_listening(address: SocketAddr, error: &io::Error) -> String {
    match address.port() {
        port @ ..1024 if error.kind() == ErrorKind::PermissionDenied => {
            format!("port {port} needs root or CAP_NET_BIND_SERVICE, or choose a port above 1023")
        }
        _ => in_words(error, &[ADDRESS_IN_USE, NO_ADDRESS]),
    }
}

/// Adds an option's purpose to its error.
pub(super) fn option(what: &'static str) -> impl Fn(io::Error) -> TcpError {
    move |source| TcpError::Option { what, source }
}
