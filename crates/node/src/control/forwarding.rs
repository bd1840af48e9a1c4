//! Answers about the forwarding table, the kernel's table, and kernel sync.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ByFamily;

/// The state of the forwarding table and its counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardingView {
    /// `fib` or `kernel`.
    pub install: String,
    /// Prefixes with a next hop, by family.
    pub prefixes: ByFamily<u64>,
    /// Of these, those of the table that a process before this one saved, which BGP has not repeated yet.
    #[serde(default)]
    pub saved_prefixes: u64,
    /// Prefixes out of the table because their next hop is unresolved.
    pub unresolved_prefixes: u64,
    /// Prefixes whose packets are discarded.
    pub discarding_prefixes: u64,
    /// Prefixes with a backup next hop.
    #[serde(default)]
    pub protected_prefixes: u64,
    /// Next hops in use.
    pub hops: u64,
    /// Changes of best routes received.
    pub changes: u64,
    /// The installations and removals that followed.
    pub installs: u64,
    /// Times a next hop was resolved again.
    pub resolutions: u64,
    /// Routes not installed because all hop numbers were in use.
    pub without_number: u64,
    /// Changes that wait.
    pub waiting: u64,
    /// Changes dropped because too many waited.
    pub dropped: u64,
    /// Rescans of shards that followed drops.
    pub rescans: u64,
    /// Some unresolved next hops, and why.
    pub unresolved: Vec<String>,
    /// The kernel's side, if routes go there.
    pub kernel: Option<KernelView>,
    /// Bytes of the forwarding tables, if they are ours.
    pub table_bytes: Option<u64>,
    /// The kernel sync, if it is on.
    #[serde(default)]
    pub kernel_sync: Option<KernelSyncView>,
}

/// Counters of the kernel sync.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelSyncView {
    /// Routes of others in the kernel's main table.
    pub kernel_routes: u64,
    /// Of these, those that lead to ports and are in the forwarding table, or behind its own route for the prefix.
    pub imported: u64,
    /// Of these, those behind a configured route or a neighbor's.
    pub imported_behind: u64,
    /// Times a route found no room.
    pub without_room: u64,
    /// Changes of routes that the kernel announced.
    #[serde(alias = "news")]
    pub notifications: u64,
    /// Times the kernel had to be read again because notifications were lost.
    pub overruns: u64,
    /// Times all routes were read.
    pub reads: u64,
    /// Imported routes that a scan found different from the notifications.
    pub import_drift: u64,
    /// Routes of the router in the kernel.
    pub exported: u64,
    /// Routes left out because their port has no mirror.
    pub without_mirror: u64,
    /// Routes in the kernel that a scan found missing, extra or changed, and repaired.
    pub export_drift: u64,
    /// Scans for drift.
    pub scans: u64,
    /// What the last scan found of exported routes.
    pub last_scan: Option<String>,
    /// Neighbors, if they are synced too.
    #[serde(default)]
    pub neighbors: Option<NeighborSyncView>,
    /// The latest errors and refusals, newest last.
    pub failures: Vec<String>,
}

/// Counters of the sync of neighbors with the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeighborSyncView {
    /// Neighbors that another program set permanently in the kernel.
    pub imported: u64,
    /// Permanent neighbors left out because the configuration names their addresses.
    pub imported_behind: u64,
    /// Permanent neighbors left out because no network of the port contains their addresses.
    pub not_on_link: u64,
    /// Permanent neighbors left out because there are too many.
    pub without_room: u64,
    /// Imported neighbors that a scan found different from the notifications.
    pub import_drift: u64,
    /// Neighbors of the router in the kernel.
    pub exported: u64,
    /// Neighbors left out because their mirror has reached its limit.
    pub beyond_limit: u64,
    /// Neighbors left out because another program set them there.
    pub left_alone: u64,
    /// The router's neighbors in the kernel that a scan found missing, extra or changed, though the router's own
    /// had not changed, and repaired.
    pub export_drift: u64,
    /// Changes of neighbors that the kernel announced.
    #[serde(alias = "news")]
    pub notifications: u64,
    /// Times notifications were lost.
    pub overruns: u64,
    /// Times all neighbors were read.
    pub reads: u64,
}

/// Counters of the routes in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelView {
    /// The kernel's table number.
    pub table: u32,
    /// The protocol number that marks our routes.
    pub protocol: u8,
    /// Routes installed or replaced.
    pub replaced: u64,
    /// Routes removed.
    pub deleted: u64,
    /// Changes that the kernel refused.
    pub failed: u64,
    /// The latest refusals and errors, newest last.
    pub failures: Vec<String>,
    /// Scans for drift.
    pub repairs: u64,
    /// Routes that scans restored, removed or corrected.
    pub repaired: u64,
    /// What the last scan found.
    pub last_repair: Option<String>,
    /// Times the kernel's networks were read to resolve next hops.
    pub network_reads: u64,
}

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FibView {
    /// The address or prefix in question.
    pub destination: String,
    /// The VRF whose route it is: another than that of the question if its routes leak.
    #[serde(default)]
    pub vrf: String,
    /// The matching prefix.
    pub prefix: Option<String>,
    /// `forward`, `discard` or `no route`.
    pub action: String,
    /// The next hop's number in the table.
    pub hop: u16,
    /// The neighbor that gets the packet.
    pub neighbor: Option<IpAddr>,
    /// The egress port, if the configuration has ports.
    pub port: Option<String>,
    /// The route's source: `connected`, `configured`, `kernel` or `bgp`.
    #[serde(default)]
    pub source: Option<String>,
    /// All next hops of the route; a flow uses one of them.
    #[serde(default)]
    #[serde(alias = "ways")]
    pub next_hops: Vec<FibNextHop>,
}

/// One path of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FibNextHop {
    pub port: String,
    pub neighbor: Option<IpAddr>,
    /// The neighbor's MAC address, if known.
    pub mac: Option<String>,
    /// `reachable`, `stale` and so on, if the router tracks neighbors.
    pub state: Option<String>,
}

/// A route of the forwarding table, as [`super::Request::FibRoutes`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FibRouteView {
    /// The VRF whose route it is.
    #[serde(default)]
    pub vrf: String,
    pub prefix: String,
    /// `forward`, `local`, `blackhole`, `leak`, ...
    pub action: String,
    /// The VRF in whose table packets are looked up, if the route leaks.
    #[serde(default)]
    pub leaks_from: Option<String>,
    /// The route's source: `connected`, `configured`, `kernel` or `bgp`.
    pub source: String,
    /// All next hops of the route; a flow uses one of them.
    #[serde(alias = "ways")]
    pub next_hops: Vec<FibNextHop>,
}

/// A table of routes, as [`super::Request::Vrfs`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfView {
    pub name: String,
    /// Its number in flow records; 0 is the main table.
    pub number: u16,
    /// The ports where packets arrive that are looked up in it.
    pub ports: Vec<String>,
    /// Routes of IPv4, neighbors included.
    pub ipv4: u64,
    pub ipv6: u64,
}
