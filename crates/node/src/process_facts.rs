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
}

impl ProcessFacts {
    /// Reads `/proc/self/status`.
    pub fn read() -> Self {
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
