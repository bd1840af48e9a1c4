//! Requests and answers about BGP.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ByFamily;

/// A request to a router with BGP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "bgp", rename_all = "kebab-case")]
pub enum BgpRequest {
    /// One item for each neighbor.
    Neighbors,
    /// One neighbor in full, by name or address.
    Neighbor {
        /// Name or address.
        neighbor: String,
    },
    /// One item for each route that passes the filter.
    Routes(RouteFilter),
    /// The routes of the most specific prefix that covers an address or prefix.
    Route {
        destination: String,
        /// Only this exact prefix.
        exact: bool,
        /// Say for each route why it is or is not the best.
        why: bool,
    },
    /// Numbers of prefixes, paths and attribute sets.
    Rib,
    /// The sources of VRPs, and how many routes have which validity.
    Rpki,
    /// The VRPs that cover a prefix.
    Vrps {
        prefix: String,
        /// Say what they make of this origin.
        #[serde(default)]
        origin_as: Option<u32>,
    },
    /// One item for each update group.
    UpdateGroups,
    /// Memory use.
    Memory,
    /// Time by function, if the router was started with profiling.
    Functions,
    /// Ask a neighbor for its routes again.
    Refresh {
        /// Name or address.
        neighbor: String,
    },
    /// Reset a neighbor's session.
    Reset {
        /// Name or address.
        neighbor: String,
        /// A message to the other end's operators (RFC 9003).
        text: String,
    },
    /// End a neighbor's session until it is started again.
    Shutdown {
        /// Name or address.
        neighbor: String,
        /// A message to the other end's operators (RFC 9003).
        text: String,
    },
    /// Start a session that was shut down.
    Start {
        /// Name or address.
        neighbor: String,
    },
}

impl BgpRequest {
    /// Whether it changes anything.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Refresh { .. } | Self::Reset { .. } | Self::Shutdown { .. } | Self::Start { .. } => true,
            Self::Neighbors
            | Self::Neighbor { .. }
            | Self::Routes(_)
            | Self::Route { .. }
            | Self::Rib
            | Self::Rpki
            | Self::Vrps { .. }
            | Self::UpdateGroups
            | Self::Memory
            | Self::Functions => false,
        }
    }
}

/// Selects routes. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteFilter {
    /// Only prefixes inside this one.
    pub inside: Option<String>,
    /// Only routes of this neighbor, given by name or address.
    pub neighbor: Option<String>,
    /// Only routes with this AS in the AS_PATH.
    pub through_as: Option<u32>,
    /// Only routes that this AS originated.
    pub origin_as: Option<u32>,
    /// Only routes with this community, as `64496:1` or `64496:1:2`.
    pub community: Option<String>,
    /// Only one family: `ipv4` or `ipv6`.
    pub family: Option<String>,
    /// Only best routes.
    pub best: bool,
    /// Instead of the RIB's routes, those that neighbors sent, before import policy. Only neighbors with
    /// `keep_rejected` have them.
    pub pre_policy: bool,
    /// The same, but only those that import rejects, with the reason.
    pub rejected: bool,
    /// Instead of the RIB's routes, what this neighbor (name or address) is sent of them, as
    /// [`super::SentRouteView`].
    pub advertised_to: Option<String>,
    /// The reverse: the RIB's best routes of others that export keeps from this neighbor (name or address).
    pub not_advertised_to: Option<String>,
    /// Only prefixes behind this one, in the order of an answer; only for the RIB's routes.
    pub after: Option<String>,
    /// At most this many.
    pub limit: Option<usize>,
}

impl RouteFilter {
    /// The neighbor whose export is asked about.
    pub fn export_to(&self) -> Option<&str> {
        self.advertised_to.as_deref().or(self.not_advertised_to.as_deref())
    }
}

/// A BGP neighbor, as [`BgpRequest::Neighbors`] and [`BgpRequest::Neighbor`] show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BgpNeighborView {
    pub name: String,
    pub address: IpAddr,
    /// Its AS as configured.
    #[serde(rename = "as")]
    pub remote_as: String,
    pub description: Option<String>,
    /// The session's state.
    pub state: String,
    /// Seconds since the session came up.
    pub uptime_s: Option<u64>,
    /// Seconds since it went down or, if it was never up, since the neighbor was first started; `None` while it is up, and
    /// for one that was never started.
    #[serde(default)]
    pub down_s: Option<u64>,
    /// Its routes in the RIB, both families together.
    pub accepted: u64,
    pub accepted_by_family: ByFamily<u64>,
    /// Routes kept as it sent them, with `keep_rejected`.
    #[serde(default)]
    pub kept_by_family: Option<ByFamily<u64>>,
    /// Those of them that import rejects; unknown if only a part of what it sent is there.
    #[serde(default)]
    pub rejected_by_family: Option<ByFamily<u64>>,
    /// Routes that it is sent, as of the last round of counting; unknown before the first.
    #[serde(default)]
    pub sent_by_family: Option<ByFamily<u64>>,
    pub updates_received: u64,
    pub messages_received: u64,
    #[serde(default)]
    pub received_by_type: MessagesView,
    pub messages_sent: u64,
    #[serde(default)]
    pub sent_by_type: MessagesView,
    pub bytes_sent: u64,
    /// Times the session went down.
    pub flaps: u64,
    /// Why it went down the last time.
    pub last_error: Option<String>,
    /// The negotiated families, capabilities and timers.
    pub negotiated: Option<NegotiatedView>,
    /// Counters without a column of their own.
    pub counters: serde_json::Value,
}

/// Messages by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagesView {
    pub open: u64,
    pub update: u64,
    pub notification: u64,
    pub keepalive: u64,
    pub route_refresh: u64,
}

/// The result of an OPEN exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NegotiatedView {
    /// Families whose routes are exchanged.
    pub families: Vec<String>,
    /// The neighbor's BGP identifier.
    pub router_id: String,
    pub hold_time_s: u16,
    pub four_octet_as: bool,
    /// Messages of more than 4096 bytes (RFC 8654).
    pub extended_messages: bool,
    /// Route refresh (RFC 2918).
    pub route_refresh: bool,
    /// Enhanced route refresh: its beginning and end are marked (RFC 7313).
    pub enhanced_refresh: bool,
    pub add_path_receive: ByFamily<bool>,
    pub add_path_send: ByFamily<bool>,
    pub graceful_restart: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteView {
    pub prefix: String,
    /// It is used and announced.
    pub best: bool,
    /// Its sender; `local` for this router's own.
    pub neighbor: String,
    pub next_hop: String,
    /// The AS_PATH in operators' notation.
    pub as_path: String,
    /// ORIGIN: `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: u32,
    /// Preference local to this router.
    pub weight: u32,
    /// Communities of all kinds, in operators' notation; of a rejected route also those that the policy added before
    /// it rejected the route.
    pub communities: Vec<String>,
    /// Packets that the route attracts are discarded.
    pub discard: bool,
    /// The path identifier that the neighbor gave (RFC 7911).
    pub path_id: u32,
    /// Seconds since the route arrived.
    pub age_s: u64,
    /// Kept over a restart and not confirmed yet.
    pub stale: bool,
    /// What the RPKI says of its origin: `valid`, `not-found` or `invalid`; only with RPKI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<String>,
    /// Why it is or is not the best.
    pub why: Option<String>,
    /// Why import rejects it: the name of a counter, such as `as_loop` or `policy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// The rule of policy that rejects it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What [`BgpRequest::Rib`] shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RibView {
    #[serde(default)]
    pub local_as: u32,
    /// The BGP identifier.
    #[serde(default)]
    pub router_id: String,
    /// Prefixes with at least one path.
    pub prefixes: ByFamily<u64>,
    pub paths: ByFamily<u64>,
    /// Routes kept as neighbors sent them (`keep_rejected`), and how many were not kept for lack of room.
    #[serde(default)]
    pub kept: ByFamily<u64>,
    #[serde(default)]
    pub kept_refused: u64,
    /// Distinct attribute sets.
    pub attribute_sets: u64,
    /// Connections refused because no neighbor is configured at their address.
    #[serde(alias = "strangers_refused")]
    pub unknown_refused: u64,
    pub shards: usize,
    /// The scheduling's name and its threads.
    pub scheduling: String,
    /// The progress of this router's restart, until it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartView>,
}

/// A graceful restart of this router in progress (RFC 4724).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartView {
    /// Families that keep routes and have not begun to select.
    pub deferred: Vec<String>,
    /// Families in which routes are being selected.
    pub selecting: Vec<String>,
    /// Neighbors whose End-of-RIB is awaited.
    pub awaited: Vec<IpAddr>,
    /// Seconds until selection begins without them.
    #[serde(alias = "left_s")]
    pub remaining_s: u64,
}

/// What [`BgpRequest::Rpki`] shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpkiView {
    /// In order of preference.
    pub sources: Vec<RpkiSourceView>,
    /// The VRPs in force.
    pub vrps: ByFamily<u64>,
    /// Their memory.
    pub bytes: u64,
    /// Paths in the RIB by validity, counted once a minute and after a change.
    pub valid_paths: ByFamily<u64>,
    pub not_found_paths: ByFamily<u64>,
    pub invalid_paths: ByFamily<u64>,
    /// Routes judged again because their validity changed.
    pub revalidated: u64,
}

/// A source of VRPs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpkiSourceView {
    /// A cache's address and port, or a file's path.
    pub source: String,
    /// `cache` or `file`.
    pub kind: String,
    /// Its VRPs are in force: it is the first that has some.
    pub used: bool,
    /// Of a cache: `down`, `connecting`, `asking`, `receiving` or `synced`. Of a file: `loaded` or `unreadable`.
    pub state: String,
    /// The version of RTR.
    pub version: Option<u8>,
    /// The cache's session ID, and the serial number of what it has sent.
    pub session: Option<u16>,
    pub serial: Option<u32>,
    pub vrps: ByFamily<u64>,
    /// Seconds since its VRPs were complete or confirmed; `None` without any.
    pub age_s: Option<u64>,
    /// Seconds until they are not used any more.
    pub expires_in_s: Option<u64>,
    pub refresh_s: Option<u32>,
    pub retry_s: Option<u32>,
    pub expire_s: Option<u32>,
    pub last_error: Option<String>,
    /// Counters without a field of their own.
    pub counters: serde_json::Value,
}

/// The VRPs that cover a prefix, as [`BgpRequest::Vrps`] shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidityView {
    pub prefix: String,
    /// The origin that was asked about, and what they make of it: `valid`, `not-found` or `invalid`.
    pub origin_as: Option<u32>,
    pub validity: Option<String>,
    /// The most specific first.
    pub vrps: Vec<VrpView>,
}

/// A validated ROA payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrpView {
    pub prefix: String,
    /// The longest prefix that the AS may originate.
    pub max_length: u8,
    /// 0: nobody may.
    #[serde(rename = "as")]
    pub asn: u32,
    /// Whether it makes the origin that was asked about valid.
    pub matches: Option<bool>,
}

/// An update group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateGroupView {
    pub group: usize,
    /// What its members have in common, in words.
    pub view: String,
    pub members: usize,
    /// Encoded bytes that some member has not taken yet.
    pub log_bytes: u64,
    /// The peak of `log_bytes`.
    pub log_bytes_max: u64,
    /// Changes of prefixes evaluated.
    pub changes: u64,
    /// UPDATEs encoded, each once for all members.
    pub messages: u64,
    /// Times a member fell behind and had to be sent the difference.
    pub lagging: u64,
}

/// Memory use in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryView {
    /// Tables of prefixes and paths.
    pub rib: u64,
    /// Tables of routes as neighbors sent them (`keep_rejected`).
    #[serde(default)]
    pub received: u64,
    /// Attribute sets.
    pub attributes: u64,
    /// Encoded messages that members of update groups have not taken yet.
    pub update_groups: u64,
    /// Resident set of the process.
    pub resident: u64,
    /// The most that was ever resident.
    pub resident_peak: u64,
}
