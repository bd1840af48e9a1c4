//! Answers about the router itself: version, uptime, problems, and the configuration in use.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ByFamily;

/// How many of something work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpDown {
    pub up: u64,
    /// Not up.
    pub down: u64,
}

/// How full NAT's table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatUse {
    /// Sessions now.
    pub sessions: u64,
    /// Sessions that there may be.
    pub sessions_max: u64,
}

/// How a router is, as [`super::Request::Status`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// The program's version.
    pub version: String,
    /// Number of the process.
    pub pid: u32,
    /// Seconds since it was started.
    pub uptime_s: u64,
    /// The configuration file.
    pub config: PathBuf,
    /// Seconds since that was last taken over.
    pub config_age_s: u64,
    /// What is wrong, a sentence each; empty if nothing is.
    pub problems: Vec<String>,
    /// BGP neighbors; `null` without `[bgp]`.
    pub bgp_neighbors: Option<UpDown>,
    /// Ports with an interface; `null` without any.
    pub ports: Option<UpDown>,
    /// NAT; `null` without `[nat]`.
    pub nat: Option<NatUse>,
    /// BGP's routes that are installed; `null` where they are installed nowhere.
    pub installed: Option<ByFamily<u64>>,
    /// Resident memory.
    pub memory_bytes: u64,
    /// The most there was of it.
    pub memory_peak_bytes: u64,
    pub threads: u64,
}

/// The configuration in force, as [`super::Request::Config`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigView {
    /// The file it was read from.
    pub path: PathBuf,
    /// Seconds since it was taken over.
    pub age_s: u64,
    /// The text, passwords masked.
    pub text: String,
    /// Whether the file has another text by now, which no reload has taken over; `null` if it cannot be read.
    #[serde(default)]
    pub file_differs: Option<bool>,
}

/// What live ports add to a status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketStatus {
    pub ports: UpDown,
    /// NAT's table.
    pub nat: Option<NatUse>,
    /// What is wrong.
    pub problems: Vec<String>,
}
