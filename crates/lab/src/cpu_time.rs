//! Processor time of the calling thread, of the whole process, and of another thread or process.

use std::fs;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

pub(crate) fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub(crate) fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Nanoseconds on a core of a thread, or of a process's first one, given its folder in `/proc`.
pub(crate) fn ran_ns(task: &Path) -> Option<u64> {
    fs::read_to_string(task.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}
