//! Why a request is not answered.

use serde::{Deserialize, Serialize};
use thalweg_base::{IpPrefix, PrefixTextError};

/// Why a router does not do what a client asks, in words for that client.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("no request `{0}` has these fields")]
    Fields(String),
    #[error("not a request: {0}")]
    NoRequest(serde_json::Error),
    #[error("this control socket is for reading: use the other one")]
    ReadOnly,
    #[error("a capture needs its own connection")]
    NeedsConnection,
    #[error("this router does not speak BGP: its configuration has no [bgp]")]
    NoBgp,
    #[error("this router asks no RPKI: its configuration has no [[bgp.rpki_source]]")]
    NoRpki,
    #[error("this router forwards no packets: no port has an interface")]
    NoPackets,
    #[error("this router translates nothing: its configuration has no [nat]")]
    NoNat,
    #[error("this router has no [firewall]")]
    NoFirewall,
    #[error("this router has no [flows]")]
    NoFlows,
    #[error("best routes go nowhere: [bgp] install is \"none\" (\"fib\" and \"kernel\" install them)")]
    NoForwarding,
    /// With the words of `ip route` that show them.
    #[error("best routes are in the kernel: use `ip route {0}`")]
    InKernel(String),
    #[error("the host thread does not answer")]
    HostSilent,
    #[error("no neighbor is called {0} or has that address; `thalweg show bgp neighbors` lists them")]
    UnknownNeighbor(String),
    #[error("the session with {0} is not up")]
    SessionDown(String),
    #[error("the session with {0} is not up: it is sent nothing")]
    SentNothing(String),
    #[error(
        "{0} has no routes before policy: its `keep_rejected` is not \"all\"; `show bgp routes --received` asks it for them"
    )]
    KeepsNothing(String),
    #[error("{0} does not offer route refresh; reset the session instead")]
    NoRouteRefresh(String),
    #[error("{text}: {error}")]
    Prefix { text: String, error: PrefixTextError },
    #[error("{text}: {error}, nor an address")]
    Destination { text: String, error: PrefixTextError },
    #[error("{0}: expected an address or a prefix")]
    NoDestination(String),
    #[error("no VRF is called {0}; `thalweg show vrf` lists them")]
    UnknownVrf(String),
    #[error("{0} has no route any more, so the list cannot go on behind it: begin again")]
    CursorGone(String),
    #[error("no family is called {0}; expected ipv4 or ipv6")]
    Family(String),
    #[error("`{0}` is no protocol: expected tcp, udp, icmp, gre, esp, ah, sctp or a number up to 255")]
    Protocol(String),
    #[error("no zone is called {0}")]
    Zone(String),
    #[error("{0} clients already look at what neighbors send; try again")]
    Observers(usize),
    #[error("more than {0} MB of messages waited: this client takes less than neighbors send")]
    SlowClient(usize),
    #[error("{0} clients are being served; try again")]
    TooManyClients(usize),
    #[error("the router was not started with --profile-functions")]
    NotProfiled,
    /// What was asked for failed for reasons of its own.
    #[error(transparent)]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// What kind of error it is, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The request cannot be understood.
    BadRequest,
    /// The router lacks the part that is asked: its configuration has none.
    Absent,
    NotFound,
    /// The request was understood, and cannot be done now.
    Refused,
    /// Too many clients ask for this.
    Busy,
}

impl AnswerError {
    /// The kind of this error.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::Fields(_)
            | Self::NoRequest(_)
            | Self::NeedsConnection
            | Self::Prefix { .. }
            | Self::Destination { .. }
            | Self::NoDestination(_)
            | Self::Family(_)
            | Self::Protocol(_)
            | Self::Zone(_) => RefusalKind::BadRequest,
            Self::NoBgp
            | Self::NoRpki
            | Self::NoPackets
            | Self::NoNat
            | Self::NoFirewall
            | Self::NoFlows
            | Self::NoForwarding
            | Self::InKernel(_)
            | Self::KeepsNothing(_)
            | Self::NotProfiled => RefusalKind::Absent,
            Self::UnknownNeighbor(_) | Self::UnknownVrf(_) => RefusalKind::NotFound,
            Self::ReadOnly
            | Self::HostSilent
            | Self::SessionDown(_)
            | Self::SentNothing(_)
            | Self::CursorGone(_)
            | Self::NoRouteRefresh(_)
            | Self::SlowClient(_)
            | Self::Failed(_) => RefusalKind::Refused,
            Self::TooManyClients(_) | Self::Observers(_) => RefusalKind::Busy,
        }
    }

    /// Reads a prefix.
    pub fn prefix(text: &str) -> Result<IpPrefix, Self> {
        text.parse().map_err(|error| Self::Prefix { text: text.to_owned(), error })
    }

    /// The request was understood, and this came of it.
    pub fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed(Box::new(error))
    }
}
