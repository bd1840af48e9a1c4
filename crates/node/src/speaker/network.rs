//! The network as a speaker sees it: byte streams to neighbors. Real sockets implement it in the binary, simulated
//! links in tests.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};

use thalweg_base::IpPrefix;
use thalweg_bgp::session::NeighborConfig;
use thalweg_exec::control_plane::{Registry, Token};

/// A connection to a neighbor. Never blocks: where it would, it says [`io::ErrorKind::WouldBlock`], and
/// readiness comes through the registry.
pub trait ByteStream: Send {
    /// Reads what is there; 0 is the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes the slices in order, as far as they are taken.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Says that nothing more will be written; what was written is still delivered, and reading goes on.
    fn shut_down_write(&mut self) -> io::Result<()>;

    /// Whether a connection that was begun stands: `None` while nobody knows.
    fn connected(&mut self) -> Option<io::Result<()>>;

    /// The two ends, ours first.
    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)>;

    /// Sets what the neighbor's configuration says about its socket.
    fn apply(&mut self, neighbor: &NeighborConfig) -> io::Result<()>;

    /// Makes the registry tell of readiness under this token.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;
}

/// A connection that a neighbor opened.
pub struct Incoming {
    /// The connection.
    pub stream: Box<dyn ByteStream>,
    /// The neighbor's end.
    pub remote: SocketAddr,
}

/// Where connections come from.
pub trait Network: Send + Sync {
    /// Registers what listens.
    fn register_listeners(&self, registry: &Registry, token: Token) -> io::Result<()>;

    /// The next connection that waits.
    fn accept(&self) -> io::Result<Option<Incoming>>;

    /// Begins to connect to a neighbor.
    fn connect(&self, neighbor: &NeighborConfig) -> io::Result<Box<dyn ByteStream>>;

    /// A neighbor is or is no longer expected: listening sockets have the password that its configuration says,
    /// or none, whatever they had for its address before. With an error they have what they had.
    fn expect(&self, neighbor: &NeighborConfig, expected: bool) -> io::Result<()>;

    /// The network of an interface with our address `local` that has `remote` in it too.
    fn shared_network(&self, _local: IpAddr, _remote: IpAddr) -> Option<IpPrefix> {
        None
    }

    /// Segments dropped because of their TCP MD5 signature, ever: wrong, missing, unexpected. `None`: nobody counts.
    fn signature_faults(&self) -> Option<[u64; 3]> {
        None
    }
}
