//! Generates captures for the experiment from a seed, in a temporary folder.

use crate::workload::capture;
use crate::workload::flows::{Flows, Spread};
use crate::workload::frames::IP_BYTES;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The time that a capture spans at most. It is shorter than every probe's timeouts, so each flow is one record.
const SPAN_NS: u64 = 8_000_000_000;
const GAP_NS_MAX: u64 = 1_000;

/// Sums over a capture, or over records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
    /// Different flows; for records, their number.
    pub flows: u64,
}

/// A capture and its contents.
#[derive(Clone, Debug)]
pub struct Capture {
    /// How packets are spread over flows.
    pub spread: Spread,
    pub path: PathBuf,
    pub totals: Totals,
}

impl Capture {
    /// Writes a capture into a folder.
    pub fn make(spread: Spread, packets: u64, seed: u64, folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("{}.pcap", spread.to_string().replace(':', "-")));
        let mut flows = Flows::new(spread, seed);
        let gap_ns = (SPAN_NS / packets.max(1)).clamp(1, GAP_NS_MAX);
        capture::write(File::create(&path)?, &mut flows, packets, gap_ns)?;
        let totals = Totals { packets, bytes: packets * IP_BYTES as u64, flows: flows.flows_seen() };
        Ok(Self { spread, path, totals })
    }

    /// Whether it has more flows than a cache is made for.
    pub fn is_flood(&self) -> bool {
        self.spread == Spread::Unique
    }
}

/// A temporary folder that is removed with its contents when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates the folder, separate from others of this process and from those left by earlier processes.
    pub fn new() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let name = format!("thalweg-lab-probe-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_holds_what_it_says() {
        let scratch = Scratch::new().unwrap();
        let other = Scratch::new().unwrap();
        assert_ne!(scratch.path(), other.path());
        for spread in [Spread::Zipf(50), Spread::Unique] {
            let made = Capture::make(spread, 400, 5, scratch.path()).unwrap();
            let bytes = fs::read(&made.path).unwrap();
            assert_eq!(bytes.len(), 24 + 400 * 76);
            let keys = bytes[24..].chunks(76).map(|record| record[16 + 23..16 + 38].to_vec());
            let distinct: std::collections::HashSet<_> = keys.collect();
            assert_eq!(made.totals, Totals { packets: 400, bytes: 400 * 46, flows: distinct.len() as u64 });
            let again = Capture::make(spread, 400, 5, other.path()).unwrap();
            assert_eq!(fs::read(&again.path).unwrap(), bytes, "one seed, one file");
        }
        let path = scratch.path().to_path_buf();
        drop(scratch);
        assert!(!path.exists());
    }
}
