//! Commands and queries of a running router: one enum for all clients.
//!
//! Over the control socket each request is one line of JSON; the answer is a line for each item and a last one
//! that says how it ended. Queries read the tables a slice at a time, under the lock of one shard for well below
//! a millisecond, so that a look at three million routes never holds up routing; an answer is therefore exact
//! for each prefix and not a picture of one moment for all.

mod bgp;
mod capture;
mod error;
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
    BgpNeighborView, BgpRequest, MemoryView, NegotiatedView, RestartView, RibView, RouteFilter, RouteView,
    UpdateGroupView,
};
pub use capture::{CaptureBegun, CaptureRequest, CaptureSummary};
pub use error::AnswerError;
pub use flows::{AmountView, FlowCacheView, FlowOutletView};
pub use forwarding::{
    FibNextHop, FibRouteView, FibView, ForwardingView, KernelSyncView, KernelView, NeighborSyncView,
};
pub use nat::{NatBlockView, NatClear, NatCleared, NatCountersView, NatSessionFilter, NatSessionView};
pub use packets::{
    AclRuleView, CountersView, NeighborView, PacketRequest, PolicerView, PortRates, PortView, QueueRates,
    QueueView, ReceiveQueueView, WorkerView,
};
pub use received::{ReceivedItem, ReceivedRequest};
pub use sent_route::SentRouteView;
pub(crate) use sent_route::communities;
pub use status::{ConfigView, NatUse, PacketStatus, StatusView, UpDown};

/// What can be asked of a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    Bgp(BgpRequest),
    /// Where best routes go, and how well that works.
    Forwarding,
    /// What would become of a packet to an address.
    Fib {
        /// The address.
        destination: String,
    },
    /// One item for each route of the forwarding table that passes the filter.
    FibRoutes(FibFilter),
    /// Version, age, what is wrong, what is up and down, memory.
    Status,
    /// The configuration in force.
    Config,
    /// Packets as they pass, as blocks of a pcapng file: see `control/capture.rs`.
    Capture(CaptureRequest),
    /// Routes as neighbors send them, as records of MRT: see `control/received.rs`.
    Received(ReceivedRequest),
    /// Read the configuration again and apply what differs.
    Reload,
    /// Read the configuration again and say what differs, and whether it could be applied.
    CompareConfig,
    /// Stop the router.
    Stop {
        /// Whether routes stay in the kernel and with neighbors; `None`: what the configuration says.
        keep_routes: Option<bool>,
    },
    /// Of packets, NAT and flows.
    #[serde(untagged)]
    Packets(PacketRequest),
}

impl Request {
    /// Reads a line of the control socket. An error says what is wrong with it.
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

/// Where the items of an answer go. An error means that nobody listens any more.
pub type Emit<'e> = &'e mut dyn FnMut(Value) -> io::Result<()>;

/// How an answer ended: outside an error of the listener, inside one of the question.
pub type Answer = io::Result<Result<(), AnswerError>>;

/// Hands out views.
pub fn emit_all<V: Serialize>(
    views: Result<impl IntoIterator<Item = V>, AnswerError>,
    emit: Emit<'_>,
) -> Answer {
    match views {
        Ok(views) => views.into_iter().try_for_each(|view| emit(to_json(&view))).map(Ok),
        Err(why) => Ok(Err(why)),
    }
}

/// A view as JSON. Views are plain data: they always have that form.
pub fn to_json(view: &impl Serialize) -> Value {
    serde_json::to_value(view).unwrap_or(Value::Null)
}

/// Which routes of the forwarding table to show. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FibFilter {
    /// Only prefixes inside this one.
    pub inside: Option<String>,
    /// Only one family: `ipv4` or `ipv6`.
    pub family: Option<String>,
    /// Only routes from here: `connected`, `configured`, `kernel` or `bgp`.
    pub source: Option<String>,
    /// No more than this many.
    pub limit: Option<usize>,
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// A piece of the answer; its shape follows from the request.
    Item(serde_json::Value),
    /// That was all.
    Done {
        /// How many items there were.
        items: usize,
    },
    /// It could not be done.
    Error(String),
}

/// Something of each address family.
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
