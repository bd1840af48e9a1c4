//! The kernel's figures about this process.

use std::collections::BTreeMap;

/// The kernel's figures about this process; zeros if they cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFacts {
    /// Resident memory, in bytes.
    pub resident: u64,
    /// The peak of resident memory, in bytes.
    pub resident_peak: u64,
    pub threads: u64,
    /// Processor time since the start, in milliseconds.
    pub cpu_ms: u64,
    pub open_files: u64,
}

impl ProcessFacts {
    /// Reads `/proc/self`.
    pub fn read() -> Self {
        const TICK_MS: u64 = 10;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).collect();
        let field = |name: &str| {
            let first = fields.get(name).and_then(|rest| rest.split_whitespace().next());
            first.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
        };
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name before the parenthesis may contain anything; user and system time are fields 14 and 15.
        let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: u64 = times.filter_map(|number| number.parse::<u64>().ok()).sum();
        Self {
            resident: field("VmRSS") * 1024,
            resident_peak: field("VmHWM") * 1024,
            threads: field("Threads"),
            cpu_ms: ticks * TICK_MS,
            open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        }
    }
}
