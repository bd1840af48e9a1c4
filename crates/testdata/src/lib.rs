//! For tests: collectors of other projects, and the location of real data (captures, tables, messages) that is
//! too large for the repository.
//!
//! The data is in `data/` of the folder that `THALWEG_SHARED` names, else of `../shared` beside the repository. A
//! test without its data says so in a way that the test runner does not capture, and is skipped; `.ci/run` lists
//! those lines.

pub mod collectors;
mod datagrams;

use std::io::{self, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

pub use datagrams::{Datagram, datagrams};

/// The path of a file or folder of test data, if it exists. `path` is relative to the data's root.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("THALWEG_SHARED").map_or_else(beside, PathBuf::from);
    find(&root, path).map_err(|why| skipped(&why)).ok()
}

fn find(root: &Path, path: &str) -> Result<PathBuf, String> {
    let path = root.join("data").join(path);
    let missing = |error| format!("{}: {error}; set THALWEG_SHARED", path.display());
    std::fs::canonicalize(&path).map_err(missing)
}

/// Reports a skipped comparison with the reason, bypassing the test runner's capture.
pub fn skipped(why: &str) {
    // Nothing can be done if even this fails.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
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

/// Repeats a call that a signal interrupted. The kernel interrupts every read of a socket with a timeout when the
/// process is stopped and continued, whatever its signal handlers say.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    #[test]
    fn what_a_signal_ended_is_done_again() {
        let mut results = [Ok(7), Err(io::ErrorKind::Interrupted), Err(io::ErrorKind::Interrupted)].to_vec();
        let result = super::uninterrupted(|| {
            results.pop().expect("no call more than it takes").map_err(io::Error::from)
        });
        assert_eq!(result.expect("the third call succeeds"), 7);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let why = super::find(Path::new("no/such"), "pcap").expect_err("nothing is there");
        assert!(why.starts_with("no/such/data/pcap: ") && why.ends_with("; set THALWEG_SHARED"), "{why}");
    }
}
