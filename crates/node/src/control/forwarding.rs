//! Answers about the forwarding table, the kernel's table, and kernel sync.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ByFamily;

/// Where best routes go, and how well that works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardingView {
    /// `fib` or `kernel`.
    pub install: String,
    /// Prefixes with a next hop, by family.
    pub prefixes: ByFamily<u64>,
    /// Prefixes that are not installed because their next hop is unresolved.
    pub unresolved_prefixes: u64,
    /// Prefixes that discard.
    pub discarding_prefixes: u64,
    /// Prefixes with a path by another next hop that stands by.
    #[serde(default)]
    pub protected_prefixes: u64,
    /// Next hops in use.
    pub hops: u64,
    /// Changes of best routes seen.
    pub changes: u64,
    /// Installations and removals that followed.
    pub installs: u64,
    /// Times a next hop was resolved anew.
    pub resolutions: u64,
    /// Routes not installed because all hop numbers were in use.
    pub without_number: u64,
    /// Changes that wait.
    pub waiting: u64,
    /// Changes that were dropped because too many waited.
    pub dropped: u64,
    /// Shards that were looked at as a whole for it.
    pub rescans: u64,
    /// Next hops that are unresolved, and why; the first few.
    pub unresolved: Vec<String>,
    /// The kernel's side, where routes go there.
    pub kernel: Option<KernelView>,
    /// Bytes of the forwarding tables, where they are ours.
    pub table_bytes: Option<u64>,
    /// How they are kept in step with the kernel's, where they are.
    #[serde(default)]
    pub kernel_sync: Option<KernelSyncView>,
}

/// How the forwarding table and the kernel's are kept in step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelSyncView {
    /// Routes of others in the kernel's main table.
    pub kernel_routes: u64,
    /// Of these, those that lead to ports and are in the forwarding table, or behind its own of the same prefix.
    pub imported: u64,
    /// Of these, those that routes of the configuration or neighbors stand before.
    pub imported_behind: u64,
    /// Times a route found no room.
    pub without_room: u64,
    /// Changes of routes that the kernel announced.
    #[serde(alias = "news")]
    pub notifications: u64,
    /// Times the kernel had to be read anew because news were lost.
    pub overruns: u64,
    /// Times all routes were read.
    pub reads: u64,
    /// Imported routes that a look for drift found to be different from what the news had said.
    pub import_drift: u64,
    /// The router's routes that are in the kernel.
    pub exported: u64,
    /// Routes that have no mirror to go by, and are not there.
    pub without_mirror: u64,
    /// Routes in the kernel that a look for drift found missing, extra or changed, and mended.
    pub export_drift: u64,
    /// Scans for drift.
    pub scans: u64,
    /// What the last one found of exported routes.
    pub last_scan: Option<String>,
    /// Neighbors, where they are kept in step too.
    #[serde(default)]
    pub neighbors: Option<NeighborSyncView>,
    /// The latest errors and refusals, newest last.
    pub failures: Vec<String>,
}

/// How neighbors and the kernel's are kept in step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeighborSyncView {
    /// Neighbors of the router because somebody set them in the kernel for good.
    pub imported: u64,
    /// Others' that are not, because the configuration names their addresses.
    pub imported_behind: u64,
    /// Others' that are not, because no network of the port holds their addresses.
    pub not_on_link: u64,
    /// Others' that are not, because there are too many.
    pub without_room: u64,
    /// Imported ones that a look for drift found to be different from what the news had said.
    pub import_drift: u64,
    /// Neighbors of the router that are in the kernel.
    pub exported: u64,
    /// Neighbors that are not, because a mirror has as many as it may have.
    pub beyond_limit: u64,
    /// Neighbors that are not, because somebody else has set them there.
    pub left_alone: u64,
    /// The router's neighbors in the kernel that were missing, extra or changed although the router's own were what
    /// they had been, and were mended.
    pub export_drift: u64,
    /// Changes of neighbors that the kernel announced.
    #[serde(alias = "news")]
    pub notifications: u64,
    /// Times news were lost.
    pub overruns: u64,
    /// Times all neighbors were read.
    pub reads: u64,
}

/// What became of routes in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelView {
    /// The kernel's table.
    pub table: u32,
    /// The protocol number that marks our routes.
    pub protocol: u8,
    /// Routes installed or replaced.
    pub replaced: u64,
    /// Routes removed.
    pub deleted: u64,
    /// Changes the kernel refused.
    pub failed: u64,
    /// The latest refusals and errors, newest last.
    pub failures: Vec<String>,
    /// Scans for drift.
    pub repairs: u64,
    /// Routes they put back, removed or corrected.
    pub repaired: u64,
    /// What the last one found.
    pub last_repair: Option<String>,
    /// Times the kernel's networks were read for the resolution of next hops.
    pub network_reads: u64,
}

/// What would become of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FibView {
    /// Where it would go.
    pub destination: String,
    /// The prefix that decides it.
    pub prefix: Option<String>,
    /// `forward`, `discard` or `no route`.
    pub action: String,
    /// The next hop's number in the table.
    pub hop: u16,
    /// The neighbor it would be given to.
    pub neighbor: Option<IpAddr>,
    /// The port it would leave by, where the configuration has ports.
    pub port: Option<String>,
    /// Where the route comes from: `connected`, `configured`, `kernel` or `bgp`.
    #[serde(default)]
    pub source: Option<String>,
    /// All next hops of the route; a flow takes one of them.
    #[serde(default)]
    #[serde(alias = "ways")]
    pub next_hops: Vec<FibNextHop>,
}

/// One way of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FibNextHop {
    pub port: String,
    /// The neighbor on it.
    pub neighbor: Option<IpAddr>,
    /// The neighbor's MAC address, if it is known.
    pub mac: Option<String>,
    /// `reachable`, `stale` and so on, where the router knows neighbors.
    pub state: Option<String>,
}

/// A route of the forwarding table, as [`super::Request::FibRoutes`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FibRouteView {
    /// Where to.
    pub prefix: String,
    /// `forward`, `local`, `blackhole`, ...
    pub action: String,
    /// Where the route comes from: `connected`, `configured`, `kernel` or `bgp`.
    pub source: String,
    /// All next hops of the route; a flow takes one of them.
    #[serde(alias = "ways")]
    pub next_hops: Vec<FibNextHop>,
}
