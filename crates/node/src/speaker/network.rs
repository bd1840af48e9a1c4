//! The network as a speaker sees it: byte streams to neighbors. The binary implements it with sockets, tests and
//! the simulator with virtual links.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};

use thalweg_base::IpPrefix;
use thalweg_bgp::session::NeighborConfig;
use thalweg_exec::control_plane::{Registry, Token};

/// A connection to a neighbor. It never blocks: it returns [`io::ErrorKind::WouldBlock`] instead, and the registry
/// reports readiness.
pub trait ByteStream: Send {
    /// Reads available bytes; 0 means end of stream.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Whether a read of fewer bytes than it could take has left nothing, so that readiness is reported again for what
    /// follows. Not so for a socket: behind the bytes there may be the end of the stream.
    fn short_read_is_last(&self) -> bool {
        false
    }

    /// Writes the slices in order, as many bytes as the socket takes.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Shuts down our direction; bytes already written are still delivered, and reading continues.
    fn shut_down_write(&mut self) -> io::Result<()>;

    /// The result of a pending connect; `None` while it is unknown.
    fn connected(&mut self) -> Option<io::Result<()>>;

    /// The addresses of both ends, ours first.
    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)>;

    /// Applies the socket options of the neighbor's configuration.
    fn apply(&mut self, neighbor: &NeighborConfig) -> io::Result<()>;

    /// Has the registry report readiness under this token.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;
}

/// A connection that a neighbor opened.
pub struct Incoming {
    pub stream: Box<dyn ByteStream>,
    /// The remote address.
    pub remote: SocketAddr,
}

/// The source of connections.
pub trait Network: Send + Sync {
    /// Registers the listening sockets.
    fn register_listeners(&self, registry: &Registry, token: Token) -> io::Result<()>;

    /// The next waiting connection.
    fn accept(&self) -> io::Result<Option<Incoming>>;

    /// Begins to connect to a neighbor.
    fn connect(&self, neighbor: &NeighborConfig) -> io::Result<Box<dyn ByteStream>>;

    /// Says that a neighbor is expected, or no longer: listening sockets get the password of its configuration, or
    /// none, in place of what they had for its address. After an error nothing has changed.
    fn expect(&self, neighbor: &NeighborConfig, expected: bool) -> io::Result<()>;

    /// The network of the interface with our address `local`, if `remote` is in it too.
    fn shared_network(&self, _local: IpAddr, _remote: IpAddr) -> Option<IpPrefix> {
        None
    }

    /// Segments dropped so far because of their TCP MD5 signature: wrong, missing, unexpected. `None` if there is
    /// no such counter.
    fn signature_faults(&self) -> Option<[u64; 3]> {
        None
    }
}
