//! Requests and answers about BGP.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ByFamily;

/// What can be asked of a router that speaks BGP.
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
        /// An address or a prefix.
        destination: String,
        /// Only this very prefix.
        exact: bool,
        /// Say of each route why it is or is not the best.
        why: bool,
    },
    /// How many prefixes, paths and attribute sets there are.
    Rib,
    /// One item for each update group.
    UpdateGroups,
    /// What memory is used for.
    Memory,
    /// Time spent by function, where the router was started to measure it.
    Functions,
    /// Ask a neighbor for its routes again.
    Refresh {
        /// Name or address.
        neighbor: String,
    },
    /// End a neighbor's session and begin anew.
    Reset {
        /// Name or address.
        neighbor: String,
        /// For people at the other end (RFC 9003).
        text: String,
    },
    /// End a neighbor's session until it is started again.
    Shutdown {
        /// Name or address.
        neighbor: String,
        /// For people at the other end (RFC 9003).
        text: String,
    },
    /// Start a session that was shut down.
    Start {
        /// Name or address.
        neighbor: String,
    },
}

/// Which routes to show. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteFilter {
    /// Only prefixes inside this one.
    pub inside: Option<String>,
    /// Only routes of this neighbor, by name or address.
    pub neighbor: Option<String>,
    /// Only routes whose AS_PATH has this AS.
    pub through_as: Option<u32>,
    /// Only routes that this AS announced first.
    pub origin_as: Option<u32>,
    /// Only routes with this community, as `64496:1` or `64496:1:2`.
    pub community: Option<String>,
    /// Only one family: `ipv4` or `ipv6`.
    pub family: Option<String>,
    /// Only best routes.
    pub best: bool,
    /// Not the routes that there are, but what of them this neighbor is sent, by name or address: as
    /// [`super::SentRouteView`].
    pub advertised_to: Option<String>,
    /// No more than this many.
    pub limit: Option<usize>,
}

/// A BGP neighbor, as [`BgpRequest::Neighbors`] and [`BgpRequest::Neighbor`] show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BgpNeighborView {
    /// What the configuration calls it.
    pub name: String,
    pub address: IpAddr,
    /// Its AS, as configured.
    #[serde(rename = "as")]
    pub remote_as: String,
    /// Free text.
    pub description: Option<String>,
    /// State of the session.
    pub state: String,
    /// Seconds since it came up.
    pub uptime_s: Option<u64>,
    /// Routes of it in the RIB, both families.
    pub accepted: u64,
    pub accepted_by_family: ByFamily<u64>,
    /// UPDATEs that came.
    pub updates_received: u64,
    /// Messages that came.
    pub messages_received: u64,
    /// Messages that went.
    pub messages_sent: u64,
    /// Bytes that went.
    pub bytes_sent: u64,
    /// How often the session went down.
    pub flaps: u64,
    /// Why it went down last.
    pub last_error: Option<String>,
    /// Families, capabilities and timers that were agreed on.
    pub negotiated: Option<NegotiatedView>,
    /// What does not fit a table.
    pub counters: serde_json::Value,
}

/// What two ends agreed on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NegotiatedView {
    /// Families whose routes are exchanged.
    pub families: Vec<String>,
    /// The neighbor's BGP identifier.
    pub router_id: String,
    pub hold_time_s: u16,
    /// Four-octet AS numbers.
    pub four_octet_as: bool,
    /// Messages of more than 4096 bytes.
    pub extended_messages: bool,
    /// Route refresh, and whether it is marked (RFC 7313).
    pub route_refresh: bool,
    /// Beginning and end of a refresh are marked.
    pub enhanced_refresh: bool,
    /// Additional paths come, by family.
    pub add_path_receive: ByFamily<bool>,
    /// Additional paths go, by family.
    pub add_path_send: ByFamily<bool>,
    /// Graceful restart was agreed on.
    pub graceful_restart: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteView {
    /// Where to.
    pub prefix: String,
    /// It is the one that is used and announced.
    pub best: bool,
    /// Who sent it; `local` for our own.
    pub neighbor: String,
    pub next_hop: String,
    /// AS_PATH as operators write it.
    pub as_path: String,
    /// ORIGIN: `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: u32,
    /// Preference local to this router.
    pub weight: u32,
    /// Communities, all kinds, as operators write them.
    pub communities: Vec<String>,
    /// This router discards what the route attracts.
    pub discard: bool,
    /// The neighbor's identifier of the path.
    pub path_id: u32,
    /// Seconds since it came.
    pub age_s: u64,
    /// Kept from before a restart, not yet announced again.
    pub stale: bool,
    /// Why it is or is not the best.
    pub why: Option<String>,
}

/// What [`BgpRequest::Rib`] shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RibView {
    /// Prefixes with at least one route, by family.
    pub prefixes: ByFamily<u64>,
    /// Routes, by family.
    pub paths: ByFamily<u64>,
    /// Different attribute sets.
    pub attribute_sets: u64,
    /// Connections refused because no neighbor is configured at their address.
    #[serde(alias = "strangers_refused")]
    pub unknown_refused: u64,
    /// How many shards they are cut into.
    pub shards: usize,
    /// Scheduling and threads.
    pub scheduling: String,
    /// How far the restart has come, while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartView>,
}

/// A graceful restart of this router that goes on (RFC 4724).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartView {
    /// Families in which routes are kept and none is selected yet.
    pub deferred: Vec<String>,
    /// Families in which routes are being selected.
    pub selecting: Vec<String>,
    /// Neighbors whose End-of-RIB is awaited.
    pub awaited: Vec<IpAddr>,
    /// Seconds until selection begins without them.
    #[serde(alias = "left_s")]
    pub remaining_s: u64,
}

/// An update group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateGroupView {
    /// Number of the group.
    pub group: usize,
    /// What its members have in common, in words.
    pub view: String,
    /// How many members it has.
    pub members: usize,
    /// Bytes encoded and not yet taken by all members.
    pub log_bytes: u64,
    /// The most that waited so.
    pub log_bytes_max: u64,
    /// Changes of prefixes that were looked at.
    pub changes: u64,
    /// UPDATEs encoded, each once for all members.
    pub messages: u64,
    /// How often a member fell behind and had to be sent the difference.
    pub lagging: u64,
}

/// What memory is used for, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryView {
    /// Tables of prefixes and paths.
    pub rib: u64,
    /// Attribute sets.
    pub attributes: u64,
    /// Encoded messages that members of update groups have still to take.
    pub update_groups: u64,
    /// Resident set of the process.
    pub resident: u64,
    /// Its greatest so far.
    pub resident_peak: u64,
}
