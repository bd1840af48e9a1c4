//! Why a router does not start, or has failed.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thalweg_live::OpenError;
use thalweg_node::BuildError;
use thalweg_ports::kernel::KernelError;
use thalweg_ports::tcp::TcpError;
use thalweg_probe::ProbeError;

/// See the module.
#[derive(Debug)]
pub enum RunError {
    /// The configuration has neither BGP nor interfaces.
    NothingToRun(PathBuf),
    /// Another router answers at the control socket.
    SocketInUse(PathBuf),
    /// The control socket cannot be opened.
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The forwarding tables cannot be made.
    Tables(BuildError),
    /// A port cannot be opened.
    Ports(OpenError),
    /// The kernel does not say or take what it has to.
    Kernel(KernelError),
    /// BGP cannot listen.
    Listen(TcpError),
    /// Addresses that programs give mirrors cannot be followed.
    MirrorAddresses(String),
    /// The delivery of flow records cannot start.
    Flows(ProbeError),
    /// The delivery of flow records failed, and records with it.
    FlowDelivery(ProbeError),
    /// The router ran to its end, but flow records were lost: where, and what to do.
    FlowRecordsLost(Vec<String>),
    /// The packet threads ended by themselves.
    ForwardingEnded,
    /// The system refused something.
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

impl RunError {
    /// For `map_err`: what failed.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| RunError::System { what, error }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NothingToRun(config) => write!(
                f,
                "{} has neither [bgp] nor a port with an interface: there is nothing to run (files of packets go \
                 through `thalweg replay`)",
                config.display()
            ),
            RunError::SocketInUse(path) => write!(
                f,
                "a router answers at {} already: end it, or choose another --socket",
                path.display()
            ),
            RunError::Socket { path, error } => write!(
                f,
                "cannot listen on the control socket {}: {error}; choose another with --socket",
                path.display()
            ),
            RunError::Tables(error) => error.fmt(f),
            RunError::Ports(error) => error.fmt(f),
            RunError::Kernel(error) => error.fmt(f),
            RunError::Listen(error) => error.fmt(f),
            RunError::MirrorAddresses(why) => write!(f, "addresses of mirrors cannot be followed: {why}"),
            RunError::Flows(error) => write!(f, "[flows]: {error}"),
            RunError::FlowDelivery(error) => write!(f, "[flows]: flow records were lost: {error}"),
            RunError::FlowRecordsLost(what) => f.write_str(&what.join("\n")),
            RunError::ForwardingEnded => f.write_str("packets are not forwarded any more: see the log"),
            RunError::System { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<BuildError> for RunError {
    fn from(error: BuildError) -> Self {
        RunError::Tables(error)
    }
}

impl From<KernelError> for RunError {
    fn from(error: KernelError) -> Self {
        RunError::Kernel(error)
    }
}
