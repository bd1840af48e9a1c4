//! Commands and queries of a running router, in one enum for all clients.
//!
//! Over the control socket each request is one line of JSON. The answer has a line for each item and a last line
//! that says how it ended. Queries read the tables a slice at a time and hold the lock of one shard for well below
//! a millisecond, so reading three million routes never holds up routing. An answer is therefore exact for each
//! prefix, but not a snapshot of one moment.

mod bgp;
mod capture;
mod client;
mod error;
mod firewall;
mod flows;
mod forwarding;
mod nat;
mod packets;
mod received;
mod sent_route;
mod status;

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use bgp::{
    BgpNeighborView, BgpRequest, MemoryView, MessagesView, NegotiatedView, RestartView, RibView, RouteFilter,
    RouteView, RpkiSourceView, RpkiView, UpdateGroupView, ValidityView, VrpView,
};
pub use capture::{CaptureBegun, CaptureRequest, CaptureSummary};
pub use client::{Client, ClientError};
pub use error::{AnswerError, RefusalKind};
pub use firewall::{
    FirewallCleared, FirewallCountersView, FirewallFilter, FirewallRuleView, FirewallSetView,
    FirewallStateFilter, FirewallStateView,
};
pub use flows::{AmountView, FlowCacheView, FlowOutletView};
pub use forwarding::{
    FibNextHop, FibRouteView, FibView, ForwardingView, KernelSyncView, KernelView, NeighborSyncView, VrfView,
};
pub use nat::{
    NatBlockView, NatClear, NatCleared, NatCountersView, NatPoolView, NatSessionFilter, NatSessionView,
};
pub use packets::{
    AclRuleView, CountersView, GatewayCheckView, NeighborView, PacketRequest, PolicerView, PortRates,
    PortView, QueueRates, QueueView, ReceiveQueueView, SojournView, StandbyView, VirtualRouterView,
    WorkerView,
};
pub use received::{ReceivedItem, ReceivedRequest};
pub use sent_route::SentRouteView;
pub(crate) use sent_route::communities;
pub use status::{ConfigView, NatUse, PacketStatus, StatusView, UpDown};

/// A request to a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    Bgp(BgpRequest),
    /// The forwarding table's state and counters.
    Forwarding,
    /// The fate of a packet to an address, by the main table or that of a VRF.
    Fib {
        destination: String,
        #[serde(default)]
        vrf: Option<String>,
    },
    /// One item for each route of the forwarding table that passes the filter.
    FibRoutes(FibFilter),
    /// The tables of routes.
    Vrfs,
    /// Version, age, problems, what is up and down, memory.
    Status,
    /// The configuration in force.
    Config,
    /// Packets as they pass, as blocks of a pcapng file: see `control/capture.rs`.
    Capture(CaptureRequest),
    /// Routes as neighbors send them, as MRT records: see `control/received.rs`.
    Received(ReceivedRequest),
    /// Read the configuration file again and apply the difference.
    Reload,
    /// Read the configuration file again and report the difference, and whether it could be applied.
    CompareConfig,
    /// Stop the router.
    Stop {
        /// Whether routes stay in the kernel and with neighbors; `None`: as configured.
        keep_routes: Option<bool>,
    },
    #[serde(untagged)]
    Packets(PacketRequest),
}

impl Request {
    /// Whether it may change anything, or shows what packets contain.
    pub fn needs_operator(&self) -> bool {
        match self {
            Self::Reload | Self::Stop { .. } | Self::Capture(_) => true,
            Self::Forwarding
            | Self::Fib { .. }
            | Self::FibRoutes(_)
            | Self::Vrfs
            | Self::Status
            | Self::Config
            | Self::Received(_)
            | Self::CompareConfig => false,
            Self::Bgp(request) => request.changes(),
            Self::Packets(request) => request.changes(),
        }
    }

    /// Parses a line of the control socket. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, AnswerError> {
        let error = match serde_json::from_str(text) {
            Ok(request) => return Ok(request),
            Err(error) => error,
        };
        let name = serde_json::from_str::<Value>(text).ok();
        match name.as_ref().and_then(|value| value.get("request")?.as_str()) {
            Some(name) => Err(AnswerError::Fields(name.to_owned())),
            None => Err(AnswerError::NoRequest(error)),
        }
    }
}

/// Receives the items of an answer. An error means that the client is gone.
pub type Emit<'e> = &'e mut dyn FnMut(Value) -> io::Result<()>;

/// The end of an answer: the outer error is the client's connection, the inner one the question's.
pub type Answer = io::Result<Result<(), AnswerError>>;

/// Emits views, or passes on the error.
pub fn emit_all<V: Serialize>(
    views: Result<impl IntoIterator<Item = V>, AnswerError>,
    emit: Emit<'_>,
) -> Answer {
    match views {
        Ok(views) => views.into_iter().try_for_each(|view| emit(to_json(&view))).map(Ok),
        Err(why) => Ok(Err(why)),
    }
}

/// A view as JSON. Views are plain data, so this cannot fail.
pub fn to_json(view: &impl Serialize) -> Value {
    serde_json::to_value(view).unwrap_or(Value::Null)
}

/// Selects routes of the forwarding table. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FibFilter {
    /// The table of this VRF; without it the main one.
    pub vrf: Option<String>,
    /// Only prefixes inside this one.
    pub inside: Option<String>,
    /// Only one family: `ipv4` or `ipv6`.
    pub family: Option<String>,
    /// Only routes of this source: `connected`, `configured`, `kernel` or `bgp`.
    pub source: Option<String>,
    /// Only prefixes behind this one, in the order of an answer.
    pub after: Option<String>,
    /// At most this many.
    pub limit: Option<usize>,
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// An item; its shape follows from the request.
    Item(serde_json::Value),
    /// The end of a complete answer.
    Done {
        /// Number of items.
        items: usize,
    },
    /// The request failed.
    Error { kind: RefusalKind, text: String },
}

impl Line {
    /// The line that says why a request is not answered.
    pub fn error(why: &AnswerError) -> Self {
        Self::Error { kind: why.kind(), text: why.to_string() }
    }
}

/// A value for each address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByFamily<T> {
    pub ipv4: T,
    pub ipv6: T,
}

impl<T> From<[T; 2]> for ByFamily<T> {
    fn from([ipv4, ipv6]: [T; 2]) -> Self {
        Self { ipv4, ipv6 }
    }
}
