//! `thalweg trace packet`: what every stage would do with a packet that somebody describes, and why.
//!
//! [`PacketSpec`] is the description, read by a small grammar; the packet made from it goes through the stages of a plan
//! without a trace ([`RouterPlan::trace`]); [`explain`] puts what they decided into words. What the stages do not know
//! (prefixes, neighbors, queues) is asked of [`Surroundings`]: a router that runs, or the tables of a file.

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
use thalweg_config::PortIndex;
use thalweg_wire::MacAddr;

/// What one stage would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    pub stage: String,
    /// `pass`, `drop`, or what else it decides.
    pub verdict: String,
    pub why: String,
}

/// What a router would do with a packet, as [`crate::control::PacketRequest::TracePacket`] shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceView {
    /// The packet, with everything that was not said.
    pub packet: String,
    /// Stage by stage, up to the one that drops it.
    pub steps: Vec<TraceStep>,
    /// `sent`, `dropped`, `waits` or `host`.
    pub outcome: String,
    /// The reason, where it is not sent.
    pub reason: Option<String>,
    /// What becomes of it in the end.
    pub summary: String,
}

/// A neighbor, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextNeighbor {
    /// `reachable`, `stale`, ..., `static`.
    pub state: String,
    /// Its MAC address.
    pub mac: Option<MacAddr>,
}

/// What is around the stages.
pub trait Surroundings {
    /// The prefix by which packets to the address find their way.
    fn prefix(&self, destination: IpAddr) -> Option<String>;

    /// Which neighbor a packet goes to that met this number.
    fn next_of(&self, number: u32, flow_hash: u32, destination: IpAddr) -> Option<(PortIndex, IpAddr)>;

    /// What is known of a port.
    fn link(&self, port: PortIndex) -> Option<PortLink>;

    /// What is known of a neighbor.
    fn neighbor(&self, port: PortIndex, address: IpAddr) -> Option<NextNeighbor>;

    /// Packets that wait in a class's queue at a port; `None` where that is not known.
    fn waiting(&self, port: PortIndex, class: u8) -> Option<u64>;
}
