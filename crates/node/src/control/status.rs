//! Answers about the router itself: version, uptime, problems, and the configuration in force.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ByFamily;

/// How many things of a kind work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpDown {
    pub up: u64,
    pub down: u64,
}

/// The use of NAT's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatUse {
    pub sessions: u64,
    /// The most sessions that fit.
    pub sessions_max: u64,
}

/// A router's status, as [`super::Request::Status`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    pub version: String,
    /// What it was built from; `unknown` unless a package says it.
    #[serde(default)]
    pub commit: String,
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// The configuration file.
    pub config: PathBuf,
    /// Seconds since the configuration was last applied.
    pub config_age_s: u64,
    /// Why the last reload was refused; `null` if it was applied.
    #[serde(default)]
    pub reload_refused: Option<String>,
    /// One sentence for each problem; empty if all is well.
    pub problems: Vec<String>,
    /// BGP neighbors; `null` without `[bgp]`.
    pub bgp_neighbors: Option<UpDown>,
    /// Ports with an interface; `null` without any.
    pub ports: Option<UpDown>,
    /// NAT; `null` without `[nat]`.
    pub nat: Option<NatUse>,
    /// Installed BGP routes; `null` if they are installed nowhere.
    pub installed: Option<ByFamily<u64>>,
    /// Resident memory.
    pub memory_bytes: u64,
    /// The most that was ever resident.
    pub memory_peak_bytes: u64,
    pub threads: u64,
    /// Processor time since the start.
    #[serde(default)]
    pub cpu_ms: u64,
    /// Open file descriptors.
    #[serde(default)]
    pub open_files: u64,
}

/// The configuration in force, as [`super::Request::Config`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigView {
    /// The file it was read from.
    pub path: PathBuf,
    /// Seconds since it was applied.
    pub age_s: u64,
    /// The text, with passwords masked.
    pub text: String,
    /// Whether the file has changed since, without a reload; `null` if it cannot be read.
    #[serde(default)]
    pub file_differs: Option<bool>,
}

/// What live ports add to a status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketStatus {
    pub ports: UpDown,
    pub nat: Option<NatUse>,
    /// One sentence for each problem.
    pub problems: Vec<String>,
}
