//! Keeps two routers from using one interface.
//!
//! AF_PACKET gives an interface's frames to any number of programs; two routers on it would forward each packet
//! twice. So a router listens on an abstract Unix socket named after each interface. The kernel keeps such names
//! per network namespace and frees them when the process ends, in whatever way; it also knows the holder's process.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;

/// Why an interface cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The kernel refuses the socket.
    #[error("{interface}: cannot lock this interface for the router: {source}")]
    Refused {
        /// Its name.
        interface: String,
        source: io::Error,
    },
    /// Another port of this router holds it.
    #[error("{interface}: another port uses this interface; each port needs its own")]
    OwnPort {
        /// Its name.
        interface: String,
    },
    /// Another router holds it.
    #[error("{interface}: {holder} uses this interface; stop it, or choose another interface")]
    Router {
        interface: String,
        /// The holder's process.
        holder: String,
    },
}

/// Holds an interface for this router until it is dropped.
#[derive(Debug)]
pub(crate) struct InterfaceLock {
    _listener: UnixListener,
}

impl InterfaceLock {
    /// Claims an interface; the error names its holder.
    pub(crate) fn take(interface: &str) -> Result<Self, ClaimError> {
        let name = || interface.to_owned();
        let address =
            address(interface).map_err(|source| ClaimError::Refused { interface: name(), source })?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Self { _listener: listener }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(holder(name(), &address)),
            Err(source) => Err(ClaimError::Refused { interface: name(), source }),
        }
    }

    /// Checks that an interface could be claimed.
    pub(crate) fn look(interface: &str) -> Result<(), ClaimError> {
        Self::take(interface).map(drop)
    }
}

fn address(interface: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("thalweg/interface/{interface}"))
}

fn holder(interface: String, address: &SocketAddr) -> ClaimError {
    // Credentials are those of the process when it began to listen.
    let found = UnixStream::connect_addr(address).ok().and_then(|stream| socket_peercred(&stream).ok());
    match found.map(|found| found.pid) {
        Some(own) if own == rustix::process::getpid() => ClaimError::OwnPort { interface },
        Some(pid) => ClaimError::Router { interface, holder: format!("another router (process {pid})") },
        None => ClaimError::Router { interface, holder: "another router".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_others_hear_who() {
        let name = format!("test{}", std::process::id());
        let first = InterfaceLock::take(&name).expect("nobody has it");
        let said = InterfaceLock::take(&name).expect_err("it is taken").to_string();
        assert!(said.contains("another port uses this interface"), "{said}");
        assert!(InterfaceLock::look(&format!("{name}x")).is_ok());
        drop(first);
        assert!(InterfaceLock::look(&name).is_ok() && InterfaceLock::take(&name).is_ok());
    }
}
