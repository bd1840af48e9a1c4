//! What a router is and how it does: version, age, what is wrong, and the configuration in force.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::ByFamily;
use thalweg_config::{RouterConfig, masked};

/// How many of something work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpDown {
    /// Up.
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
    pub neighbors: Option<UpDown>,
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
    /// Threads.
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
}

/// What live ports add to a status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketStatus {
    /// Ports.
    pub ports: UpDown,
    /// NAT's table.
    pub nat: Option<NatUse>,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// The router as a process: when it began, and with what.
#[derive(Debug)]
pub struct Identity {
    version: &'static str,
    path: PathBuf,
    begun: Instant,
    config: Mutex<InForce>,
}

#[derive(Debug)]
struct InForce {
    text: Arc<str>,
    since: Instant,
    /// Why the file was not taken over when it was last read.
    refused: Option<String>,
}

impl Identity {
    /// A router that begins now, with this file.
    pub fn new(version: &'static str, path: PathBuf, config: &RouterConfig) -> Self {
        let begun = Instant::now();
        let in_force = InForce { text: config.text.clone(), since: begun, refused: None };
        Self { version, path, begun, config: Mutex::new(in_force) }
    }

    /// The file was read again: it is in force, or why not.
    pub fn reloaded(&self, config: Result<&RouterConfig, &str>) {
        let mut in_force = self.lock();
        match config {
            Ok(config) => {
                *in_force = InForce { text: config.text.clone(), since: Instant::now(), refused: None };
            }
            Err(why) => in_force.refused = Some(why.to_owned()),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> ConfigView {
        let in_force = self.lock();
        let (path, age_s) = (self.path.clone(), in_force.since.elapsed().as_secs());
        ConfigView { path, age_s, text: masked(&in_force.text) }
    }

    /// A status that knows of the process alone.
    pub(super) fn status(&self) -> StatusView {
        let process = ProcessFacts::read();
        let in_force = self.lock();
        let refused = in_force.refused.as_ref().map(|why| {
            let first = why.lines().next().unwrap_or_default();
            format!("the configuration file was not taken over when it was last read: {first}")
        });
        StatusView {
            version: self.version.to_owned(),
            pid: std::process::id(),
            uptime_s: self.begun.elapsed().as_secs(),
            config: self.path.clone(),
            config_age_s: in_force.since.elapsed().as_secs(),
            problems: refused.into_iter().collect(),
            memory_bytes: process.resident,
            memory_peak_bytes: process.resident_peak,
            threads: process.threads,
            ..StatusView::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the kernel says of this process; zeros where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessFacts {
    pub(crate) resident: u64,
    pub(crate) resident_peak: u64,
    pub(crate) threads: u64,
}

impl ProcessFacts {
    pub(crate) fn read() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).collect();
        let field = |name: &str| {
            let first = fields.get(name).and_then(|rest| rest.split_whitespace().next());
            first.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
        };
        Self {
            resident: field("VmRSS") * 1024,
            resident_peak: field("VmHWM") * 1024,
            threads: field("Threads"),
        }
    }
}
