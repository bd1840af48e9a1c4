//! Why a router does not start, has failed, or refuses another configuration.

use std::io;
use std::path::PathBuf;

use thalweg_config::ConfigErrors;
use thalweg_live::{OpenError, ReloadError};
use thalweg_node::BuildError;
use thalweg_node::speaker::BgpReloadError;
use thalweg_ports::kernel::KernelError;
use thalweg_ports::tcp::TcpError;
use thalweg_probe::ProbeError;

use crate::priority::UnusableCore;
use crate::rights::RightsError;

/// Why a router does not start, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "{0} has neither [bgp] nor a port with an interface: there is nothing to run (files of packets go \
         through `thalweg replay`)"
    )]
    NothingToRun(PathBuf),
    #[error("a router already answers at {0}: stop it, or choose another --socket")]
    SocketInUse(PathBuf),
    #[error(
        "{path} belongs to another user, and may be the control socket of a router: stop that one, or choose another \
         --socket"
    )]
    SocketOfAnother { path: PathBuf },
    #[error("{path} is no socket, so it is not replaced by the control socket: choose another --socket")]
    NoSocket { path: PathBuf },
    #[error(
        "cannot listen on the control socket {path}: {error}; its folder must exist and belong to the router's user, or \
         choose another with --socket"
    )]
    Socket { path: PathBuf, error: io::Error },
    #[error("cannot give {path} to the group {group}: {error}; the router's user must be in it")]
    SocketGroup { path: PathBuf, group: String, error: io::Error },
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(transparent)]
    Tables(#[from] BuildError),
    #[error(transparent)]
    Cores(#[from] UnusableCore),
    #[error(transparent)]
    Ports(OpenError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// BGP cannot listen on an address.
    #[error(transparent)]
    Listen(TcpError),
    /// Addresses of mirrors cannot be followed.
    #[error("cannot follow the addresses of mirrors: {0}")]
    MirrorAddresses(#[from] MirrorError),
    /// The delivery of flow records cannot start.
    #[error("[flows]: {0}")]
    Flows(ProbeError),
    /// The delivery of flow records failed and lost records.
    #[error("[flows]: flow records were lost: {0}")]
    FlowDelivery(ProbeError),
    /// The router ran to its end, but flow records were lost: where, and what to do.
    #[error("{}", .0.join("\n"))]
    FlowRecordsLost(Vec<String>),
    /// The packet threads ended by themselves.
    #[error("the router stopped forwarding packets: see the log")]
    ForwardingEnded,
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What it was for.
        what: &'static str,
        error: io::Error,
    },
}

impl RunError {
    /// Makes an error for `map_err`; `what` says what the call was for.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| RunError::System { what, error }
    }
}

/// Why mirrors cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum MirrorError {
    /// The kernel's notifications of addresses are unavailable.
    Kernel(#[from] KernelError),
    /// There is no socket or thread for it.
    System(#[from] io::Error),
}

/// Why another configuration is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigurationError {
    #[error("{}", .0.without_severity())]
    Invalid(ConfigErrors),
    #[error(
        "{}\nthe router reads files only in folders that its configuration named when it started: a file elsewhere \
         needs a restart",
        .0.without_severity()
    )]
    Outside(ConfigErrors),
    /// An address of a mirror makes the configuration in force invalid.
    #[error(transparent)]
    Address(ConfigErrors),
    #[error("the configuration has no [bgp] section any more")]
    BgpGone,
    #[error("[bgp] is new, which needs a restart; nothing was changed")]
    BgpNew,
    #[error("ports have interfaces now, which needs a restart; nothing was changed")]
    Interfaces,
    #[error(transparent)]
    Bgp(#[from] BgpReloadError),
    #[error(transparent)]
    Packets(#[from] ReloadError),
}
