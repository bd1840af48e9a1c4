//! The result of a comparison, as plain data.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use serde::Serialize;

use super::compare::{Exports, Kind, Prefixes};
use crate::control::RouteView;
use crate::received::Source;

/// Of each of the two configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Both<T> {
    /// Of the old one.
    pub before: T,
    /// Of the new one.
    pub after: T,
}

/// Everything a new configuration would change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The running router that the table is of, if it is of one.
    pub live: Option<Live>,
    /// The table, and whose routes are whose.
    pub table: Table,
    /// Neighbors that are added, removed or configured otherwise.
    pub neighbors: Vec<NeighborChange>,
    /// What takes a restart of the router; this report has it in force.
    pub restart: Vec<String>,
    /// Neighbors whose session would not be up.
    pub down: Vec<Down>,
    /// What becomes of neighbors' routes on their way in.
    pub imports: Vec<Import>,
    /// Best paths.
    pub prefixes: Prefixes,
    /// What neighbors would be sent otherwise; those that are sent the same are left out.
    pub exports: Vec<Export>,
    /// What would be sent otherwise in all.
    pub exports_total: Exports,
    /// Where traffic would go.
    pub traffic: Option<Traffic>,
    /// What each failure would change, where failures were asked for.
    pub failures: Vec<Failure>,
    /// Some prefixes, before and after.
    pub examples: Vec<Example>,
}

/// A running router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Live {
    /// The file of its configuration.
    pub config: PathBuf,
    /// Seconds since that was taken over.
    pub config_age_s: u64,
    /// Whether the file has another text by now; `None` if it cannot be read.
    pub file_differs: Option<bool>,
    /// Its neighbors, and how their routes are known.
    pub neighbors: Vec<Source>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Routes in it.
    pub routes: u64,
    /// Those among them that no session would accept as they are.
    pub faulty: u64,
    /// Peers that are neighbors.
    pub mapped: Vec<MappedPeer>,
    /// Peers that are none: their routes are left out.
    pub unmapped: Vec<TablePeer>,
}

/// A peer of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TablePeer {
    pub address: IpAddr,
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    pub routes: u64,
}

/// A peer of the table and the neighbor that has its routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappedPeer {
    #[serde(flatten)]
    pub peer: TablePeer,
    /// The neighbor's name under each configuration that has it.
    pub neighbor: Both<Option<String>>,
}

/// What is configured otherwise of a neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeighborChange {
    /// Its name.
    pub neighbor: String,
    pub change: Change,
}

/// What is configured otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its session begins anew.
    SessionRestarts,
    /// Its import policy, or how its routes are treated.
    Import,
    /// Its export policy, or how what it is sent is made.
    Export,
    /// Both.
    ImportAndExport,
    /// Something that changes no routes.
    Settings,
}

/// A neighbor whose session would not be up under a configuration that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Down {
    /// Its name.
    pub neighbor: String,
    /// Why, where it would not be.
    pub why: Both<Option<String>>,
}

/// What became of a neighbor's routes on their way in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Import {
    /// Its name.
    pub neighbor: String,
    /// Its routes in the table.
    pub routes: u64,
    pub accepted: Both<u64>,
    /// Of families that are not exchanged with it.
    pub other_family: Both<u64>,
    /// Rejected, by reason.
    pub rejected: BTreeMap<&'static str, Both<u64>>,
}

/// What a neighbor would be sent otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Export {
    /// Its name.
    pub neighbor: String,
    #[serde(flatten)]
    pub routes: Exports,
}

/// Where traffic would go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Bytes that were looked at.
    pub bytes: u64,
    /// Those that leave by another neighbor.
    pub moved: u64,
    /// Those that have a route before and none after.
    pub lost: u64,
    /// From which neighbor to which, the largest first.
    pub moves: Vec<Move>,
}

/// Bytes that take another way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// The neighbor before; `None` without a route, `local` for networks of our own.
    pub from: Option<String>,
    /// The neighbor after.
    pub to: Option<String>,
    pub bytes: u64,
}

/// What the failure of a neighbor changes, under each configuration that has it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its name.
    pub neighbor: String,
    pub counts: Both<Option<FailureCounts>>,
    /// Bytes by neighbor after the failure, under the new configuration, the largest first.
    pub moves: Vec<Move>,
}

/// What a failure changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FailureCounts {
    /// Prefixes without any path.
    pub lost: u64,
    /// Prefixes by another neighbor.
    pub moved: u64,
    /// Routes that become leaks.
    pub leaks: u64,
    /// Bytes that move to another neighbor.
    pub bytes_moved: u64,
    /// Bytes that have no route any more.
    pub bytes_lost: u64,
}

/// A prefix, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Example {
    /// What became of it.
    pub kind: Kind,
    pub prefix: String,
    /// Its paths, the best first, each with why it is or is not the best.
    pub paths: Both<Vec<RouteView>>,
    /// Why paths are missing.
    pub notes: Vec<String>,
}
