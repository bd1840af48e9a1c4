//! The router as a process: its version, its age, the configuration in force.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use thalweg_config::{ConfigSource, RouterConfig, masked};
use thalweg_node::ProcessFacts;
use thalweg_node::control::{ConfigView, StatusView};

/// What this was built from. A package says it; cargo alone does not know it.
pub const COMMIT: &str = match option_env!("THALWEG_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The start of the process and the configuration in force.
#[derive(Debug)]
pub(crate) struct Identity {
    version: &'static str,
    path: PathBuf,
    begun: Instant,
    config: Mutex<InForce>,
}

#[derive(Debug)]
struct InForce {
    text: Arc<str>,
    since: Instant,
    /// Why the last reload failed.
    refused: Option<String>,
}

impl Identity {
    /// A router that starts now with this file.
    pub(crate) fn new(version: &'static str, path: PathBuf, config: &RouterConfig) -> Self {
        let begun = Instant::now();
        let in_force = InForce { text: config.text.clone(), since: begun, refused: None };
        Self { version, path, begun, config: Mutex::new(in_force) }
    }

    /// Notes a reload: the configuration now in force, or why it was refused.
    pub(crate) fn reloaded(&self, config: Result<&RouterConfig, &str>) {
        let mut in_force = self.config.lock();
        match config {
            Ok(config) => {
                *in_force = InForce { text: config.text.clone(), since: Instant::now(), refused: None };
            }
            Err(why) => in_force.refused = Some(why.to_owned()),
        }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> ConfigView {
        let in_force = self.config.lock();
        let on_disk = ConfigSource::read(&self.path).ok();
        ConfigView {
            // Absolute, because the client may be in another folder.
            path: std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()),
            age_s: in_force.since.elapsed().as_secs(),
            text: masked(&in_force.text),
            file_differs: on_disk.map(|source| source.text() != &*in_force.text),
        }
    }

    /// A status with the process's own figures only.
    pub(crate) fn status(&self) -> StatusView {
        let process = ProcessFacts::read();
        let in_force = self.config.lock();
        let refused = in_force.refused.as_ref().map(|why| {
            let first = why.lines().next().unwrap_or_default();
            format!("the last reload of the configuration file failed: {first}")
        });
        StatusView {
            version: self.version.to_owned(),
            commit: COMMIT.to_owned(),
            pid: std::process::id(),
            uptime_s: self.begun.elapsed().as_secs(),
            config: self.path.clone(),
            config_age_s: in_force.since.elapsed().as_secs(),
            reload_refused: in_force.refused.clone(),
            problems: refused.into_iter().collect(),
            memory_bytes: process.resident,
            memory_peak_bytes: process.resident_peak,
            threads: process.threads,
            cpu_ms: process.cpu_ms,
            open_files: process.open_files,
            ..StatusView::default()
        }
    }
}
