//! Other programs that want the cores: threads of ordinary priority that compute.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often they begin anew.
const PERIOD: Duration = Duration::from_millis(100);

/// Works while one thread for each core wants this share of it.
pub(super) fn beside_others<R>(share: f64, work: impl FnOnce() -> R) -> R {
    if share <= 0.0 {
        return work();
    }
    let done = AtomicBool::new(false);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| compute(PERIOD.mul_f64(share.min(1.0)), &done));
        }
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn compute(busy: Duration, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let begin = Instant::now();
        while begin.elapsed() < busy {
            std::hint::spin_loop();
        }
        thread::sleep(PERIOD - busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_time::process_cpu_s;

    #[test]
    fn others_use_the_cores_until_the_work_ends() {
        let before_s = process_cpu_s();
        let mut said = false;
        // As long as it takes them to use a hundredth of a second.
        let used_s = beside_others(1.0, || {
            loop {
                said = true;
                let used_s = process_cpu_s() - before_s;
                if used_s > 0.01 {
                    break used_s;
                }
                thread::yield_now();
            }
        });
        assert!(said && used_s > 0.01);
        assert_eq!(beside_others(0.0, || 7), 7);
    }
}
