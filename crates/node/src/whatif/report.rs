//! The result of a comparison, as plain data.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use serde::Serialize;

use super::compare::{Exports, Kind, Prefixes};
use crate::control::RouteView;
use crate::received::Source;

/// A value for each of the two configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Both<T> {
    pub before: T,
    pub after: T,
}

/// Everything that a new configuration would change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The running router that the table comes from, if any.
    pub live: Option<Live>,
    /// The table, and which peer is which neighbor.
    pub table: Table,
    /// Neighbors that are added, removed or changed.
    pub neighbors: Vec<NeighborChange>,
    /// Changes that need a restart of the router; the report assumes they are in force.
    pub restart: Vec<String>,
    /// Neighbors whose session would not be up.
    pub down: Vec<Down>,
    /// Results of import by neighbor.
    pub imports: Vec<Import>,
    pub prefixes: Prefixes,
    /// Differences in what neighbors would be sent, except neighbors without any.
    pub exports: Vec<Export>,
    /// The sum over all neighbors.
    pub exports_total: Exports,
    pub traffic: Option<Traffic>,
    /// The effect of each requested failure.
    pub failures: Vec<Failure>,
    /// Some prefixes, before and after.
    pub examples: Vec<Example>,
}

/// A running router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Live {
    /// Its configuration file.
    pub config: PathBuf,
    /// Seconds since the configuration was applied.
    pub config_age_s: u64,
    /// Whether the file has changed since; `None` if it cannot be read.
    pub file_differs: Option<bool>,
    /// Its neighbors, and the source of their routes.
    pub neighbors: Vec<Source>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    pub routes: u64,
    /// Routes that no session would accept as they are.
    pub faulty: u64,
    /// Peers that are neighbors.
    pub mapped: Vec<MappedPeer>,
    /// Peers that are not; their routes are left out.
    pub unmapped: Vec<TablePeer>,
}

/// A peer of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TablePeer {
    pub address: IpAddr,
    pub asn: u32,
    pub router_id: Ipv4Addr,
    pub routes: u64,
}

/// A peer of the table and the neighbor that gets its routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappedPeer {
    #[serde(flatten)]
    pub peer: TablePeer,
    /// The neighbor's name under each configuration that has it.
    pub neighbor: Both<Option<String>>,
}

/// How a neighbor's configuration changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeighborChange {
    pub neighbor: String,
    pub change: Change,
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    Added,
    Removed,
    /// The session is reset.
    SessionRestarts,
    /// The import policy, or another setting of import.
    Import,
    /// The export policy, or another setting of export.
    Export,
    ImportAndExport,
    /// A setting that changes no routes.
    Settings,
}

/// A neighbor whose session would not be up under a configuration that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Down {
    pub neighbor: String,
    /// The reason under each configuration.
    pub why: Both<Option<String>>,
}

/// The result of a neighbor's import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Import {
    pub neighbor: String,
    /// Its routes in the table.
    pub routes: u64,
    pub accepted: Both<u64>,
    /// Routes of families that the session does not carry.
    pub other_family: Both<u64>,
    /// Rejected routes, by reason.
    pub rejected: BTreeMap<&'static str, Both<u64>>,
}

/// Differences in what a neighbor would be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Export {
    pub neighbor: String,
    #[serde(flatten)]
    pub routes: Exports,
}

/// Where traffic would go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that leave by another neighbor.
    pub moved: u64,
    /// Bytes with a route before and none after.
    pub lost: u64,
    /// Bytes by neighbor before and after, the largest first.
    pub moves: Vec<Move>,
}

/// Bytes that take another path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// The neighbor before; `None` without a route, `local` for our own networks.
    pub from: Option<String>,
    /// The neighbor after.
    pub to: Option<String>,
    pub bytes: u64,
}

/// The effect of a neighbor's failure, under each configuration that has it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub neighbor: String,
    pub counts: Both<Option<FailureCounts>>,
    /// Bytes by neighbor after the failure, under the new configuration, the largest first.
    pub moves: Vec<Move>,
}

/// The effect of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FailureCounts {
    /// Prefixes that lose their last path.
    pub lost: u64,
    /// Prefixes that move to another neighbor.
    pub moved: u64,
    /// Routes that become leaks.
    pub leaks: u64,
    /// Bytes that move to another neighbor.
    pub bytes_moved: u64,
    /// Bytes that lose their route.
    pub bytes_lost: u64,
}

/// A prefix, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Example {
    pub kind: Kind,
    pub prefix: String,
    /// Its paths, best first, each with why it is or is not the best.
    pub paths: Both<Vec<RouteView>>,
    /// Why paths are missing.
    pub notes: Vec<String>,
}
