//! `thalweg trace packet`: what every stage would do with a described packet, and why.
//!
//! A small grammar reads the description into a [`PacketSpec`]. The packet made from it passes the stages of a plan
//! without changing their state ([`RouterPlan::trace`]), and [`explain`] puts their decisions into words.
//! [`Surroundings`] knows what stages do not (prefixes, neighbors, queues): a running router, or the tables of a
//! configuration file.

mod explain;
mod grammar;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use explain::explain;
pub use grammar::{PacketSpec, Part};

pub use crate::words::SpecError;

use crate::live_tables::PortLink;
#[cfg(doc)]
use crate::plan::RouterPlan;
use thalweg_config::{PortIndex, VrfIndex};
use thalweg_wire::MacAddr;

/// The decision of one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    pub stage: String,
    /// `pass`, `drop`, or another decision.
    pub verdict: String,
    pub why: String,
}

/// The fate of a packet, as [`crate::control::PacketRequest::TracePacket`] shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceView {
    /// The packet, with all defaults filled in.
    pub packet: String,
    /// The stages up to the one that drops it.
    pub steps: Vec<TraceStep>,
    pub outcome: String,
    /// The reason if it is not sent.
    pub reason: Option<String>,
    /// The final outcome, in words.
    pub summary: String,
}

/// A neighbor's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextNeighbor {
    /// `reachable`, `stale`, ..., `static`.
    pub state: String,
    pub mac: Option<MacAddr>,
}

/// Answers what stages do not know.
pub trait Surroundings {
    /// The longest matching prefix of an address in a table, or in one from which its route leaks.
    fn prefix(&self, vrf: VrfIndex, destination: IpAddr) -> Option<String>;

    /// The neighbor that gets a packet which matched this number.
    fn next_of(&self, number: u32, flow_hash: u32, destination: IpAddr) -> Option<(PortIndex, IpAddr)>;

    /// The link of a port.
    fn link(&self, port: PortIndex) -> Option<PortLink>;

    /// The entry of a neighbor.
    fn neighbor(&self, port: PortIndex, address: IpAddr) -> Option<NextNeighbor>;

    /// Packets in a class's queue at a port; `None` if unknown.
    fn waiting(&self, port: PortIndex, class: u8) -> Option<u64>;
}
