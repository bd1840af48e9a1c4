//! Processor time and memory of a run, from the kernel.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads of this process, including those that ended.
pub(crate) fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The peak resident memory of this process, in bytes; 0 if the kernel does not say.
pub(crate) fn rss_peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_show() {
        let (cpu, rss) = (process_cpu(), rss_peak_bytes());
        assert!(rss > 1 << 20, "{rss}");
        let page = std::hint::black_box(vec![1_u8; 32 << 20]);
        assert!(rss_peak_bytes() >= rss);
        assert!(page.iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
        assert!(process_cpu() >= cpu);
    }
}
