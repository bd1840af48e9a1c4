//! For tests: collectors of other projects, a store of S3, threads that stop, and the location of real data (captures, tables, messages) that is
//! too large for the repository.
//!
//! The data is in `data/` of the folder that `THALWEG_SHARED` names, else of `../shared` beside the repository. A
//! test without its data says so in a way that the test runner does not capture, and is skipped; `.ci/run` lists
//! those lines.

pub mod collectors;
mod datagrams;
pub mod s3_server;
pub mod threads;

use std::io::{self, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use datagrams::{Datagram, datagrams};
use thalweg_base::free_port_candidates;
pub use thalweg_base::uninterrupted;

/// The path of a file or folder of test data, if it exists. `path` is relative to the data's root.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("THALWEG_SHARED").map_or_else(beside, PathBuf::from);
    find(&root, path).map_err(|why| skipped(&why.to_string())).ok()
}

fn find(root: &Path, path: &str) -> io::Result<PathBuf> {
    let path = root.join("data").join(path);
    let missing = |error| io::Error::other(format!("{}: {error}; set THALWEG_SHARED", path.display()));
    std::fs::canonicalize(&path).map_err(missing)
}

/// Reports a skipped comparison with the reason, bypassing the test runner's capture.
pub fn skipped(why: &str) {
    // Nothing can be done if even this fails.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Tells threads to stop, also after a panic: the test then fails instead of waiting for them for ever.
pub struct Stop<'s>(pub &'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A port of loopback that nobody uses, for TCP and UDP.
pub fn free_port() -> u16 {
    let is_free = |port: &u16| {
        let at = ("127.0.0.1", *port);
        TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    free_port_candidates().find(is_free).expect("a port is free")
}

/// Enlarges a socket's receive buffer, so that it keeps datagrams while a busy machine delays the reader. Only
/// root has the right to; for others the socket stays unchanged.
pub fn with_room(socket: UdpSocket) -> UdpSocket {
    const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
    match rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES) {
        Ok(()) | Err(rustix::io::Errno::PERM) => socket,
        Err(error) => panic!("a receive buffer: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn what_is_not_there_is_named() {
        let why = super::find(Path::new("no/such"), "pcap").expect_err("nothing is there").to_string();
        assert!(why.starts_with("no/such/data/pcap: ") && why.ends_with("; set THALWEG_SHARED"), "{why}");
    }
}
