//! What each worker has done.
//!
//! The kernel reports processor time by thread; threads of the model are found by their names. They end when plans
//! are exchanged, so the time of ended threads is added up. The sinks of lanes count packets; without lanes workers
//! share chunks, and a packet belongs to no single worker.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_exec::ThreadReport;
use thalweg_node::control::WorkerView;

use crate::received::Received;

/// See the module.
pub(crate) struct Workers {
    /// Packets and chunks by lane, if each worker has a lane.
    done: Option<Vec<[AtomicU64; 2]>>,
    /// Processor time of ended threads, by role and number.
    ended: Mutex<BTreeMap<(&'static str, usize), Duration>>,
}

/// Roles of the models' threads. In a pipeline, the calibration thread processes the first packets to measure the
/// stages.
const ROLES: [&str; 3] = ["worker", "reader", "calibration"];

impl Workers {
    /// `lanes`: the number of lanes; `None` if workers share packets.
    pub(crate) fn new(lanes: Option<usize>) -> Self {
        let done = lanes.map(|lanes| (0..lanes).map(|_| Default::default()).collect());
        Self { done, ended: Mutex::default() }
    }

    pub(crate) fn add_chunk(&self, lane: usize, packets: u64) {
        if let Some([of_packets, of_chunks]) = self.done.as_ref().and_then(|done| done.get(lane)) {
            of_packets.fetch_add(packets, Ordering::Relaxed);
            of_chunks.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_ended(&self, threads: &[ThreadReport]) {
        let mut ended = self.ended.lock();
        for thread in threads.iter().filter(|thread| ROLES.contains(&thread.role)) {
            *ended.entry((thread.role, thread.index)).or_default() += thread.cpu;
        }
    }

    /// What each thread has done, by role and number.
    pub(crate) fn status(&self, received: &Received) -> Vec<WorkerView> {
        let mut cpu = self.ended.lock().clone();
        let mut placed = BTreeMap::new();
        for Running { role, index, used, scheduling, cores } in running() {
            *cpu.entry((role, index)).or_default() += used;
            placed.insert((role, index), (scheduling, cores));
        }
        let done = |role, index: usize| {
            let counters = self.done.as_ref().filter(|_| role == "worker")?.get(index)?;
            Some(counters.each_ref().map(|counter| counter.load(Ordering::Relaxed)))
        };
        cpu.into_iter()
            .map(|((role, index), cpu)| {
                let (scheduling, cores) = placed.remove(&(role, index)).unwrap_or_default();
                let (name, done) = (format!("{role}-{index}"), done(role, index));
                let (packets, chunks) = (done.map(|[packets, _]| packets), done.map(|[_, chunks]| chunks));
                let polled = packets.and_then(|_| received.polled(index));
                let cpu_ms = u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX);
                WorkerView { name, packets, chunks, polled, cpu_ms, scheduling, cores }
            })
            .collect()
    }
}

struct Running {
    role: &'static str,
    index: usize,
    used: Duration,
    scheduling: Option<String>,
    cores: Option<String>,
}

/// The model's threads that run now, except those that end while they are read.
fn running() -> Vec<Running> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let thread = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let (role, index) = role_of(name.trim_end())?;
        // Its fields: nanoseconds on a core, nanoseconds waiting for one, time slices.
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let used = times.split_whitespace().next()?.parse().ok()?;
        let scheduling = fs::read_to_string(task.path().join("stat")).ok().and_then(|stat| scheduling(&stat));
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cores = cores.map(|cores| cores.trim().to_owned());
        Some(Running { role, index, used: Duration::from_nanos(used), scheduling, cores })
    };
    tasks.flatten().filter_map(thread).collect()
}

/// The scheduling policy from a thread's line of `stat` (proc_pid_stat(5): fields 19 nice, 40 rt_priority, 41
/// policy).
fn scheduling(stat: &str) -> Option<String> {
    // The name, in parentheses, may contain blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    Some(match (field(41)?, field(40)?, field(19)?) {
        (1 | 2, priority, _) => format!("real-time {priority}"),
        (_, _, 0) => "normal".to_owned(),
        (_, _, nice) => format!("nice {nice}"),
    })
}

/// The role and number in a thread's name.
fn role_of(name: &str) -> Option<(&'static str, usize)> {
    let (role, index) = name.split_once('-')?;
    Some((ROLES.into_iter().find(|known| *known == role)?, index.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_run_are_added_to_those_that_ended() {
        let (workers, received) = (Workers::new(Some(2)), Received::new(2));
        workers.add_chunk(1, 5);
        workers.add_chunk(1, 2);
        workers.add_chunk(7, 1);
        let ended = |index, role, seconds| ThreadReport {
            role,
            index,
            jobs: 1,
            busy: Duration::ZERO,
            in_source: Duration::ZERO,
            waited: Duration::ZERO,
            cpu: Duration::from_secs(seconds),
            waits: 0,
            parks: 0,
        };
        workers.add_ended(&[ended(11, "worker", 3), ended(10, "worker", 1), ended(0, "calibration", 9)]);
        workers.add_ended(&[ended(11, "worker", 4)]);
        // It runs for as long as the test has this, whichever way the test ends.
        let wanted = std::sync::Arc::new(());
        let watched = std::sync::Arc::downgrade(&wanted);
        let body = move || {
            while watched.strong_count() > 0 {
                std::hint::spin_loop();
            }
        };
        let thread = std::thread::Builder::new().name("worker-10".to_owned()).spawn(body).expect("a thread");
        // The kernel accounts for a running thread when its clock ticks.
        let asked_since = std::time::Instant::now();
        let status = loop {
            let status = workers.status(&received);
            if status.iter().any(|worker| worker.name == "worker-10" && worker.cpu_ms > 1_000) {
                break status;
            }
            assert!(asked_since.elapsed() < Duration::from_secs(60), "{status:?}");
            std::thread::sleep(Duration::from_millis(1));
        };
        let of = |name: &str| status.iter().find(|worker| worker.name == name).map(|worker| worker.cpu_ms);
        assert_eq!(of("worker-11"), Some(7_000), "{status:?}");
        assert_eq!(of("calibration-0"), Some(9_000), "{status:?}");
        assert_eq!(of("pool-0"), None);
        drop(wanted);
        thread.join().expect("it ends");
        workers.add_ended(&[ended(1, "worker", 1)]);
        received.set(1, std::iter::empty(), 3);
        let status = workers.status(&received);
        let second = status.iter().find(|worker| worker.name == "worker-1").expect("it has ended");
        assert_eq!((second.packets, second.chunks, second.polled), (Some(7), Some(2), Some(3)));
    }

    #[test]
    fn priorities_are_read_from_stat() {
        let stat = |nice: i32, real_time: u32, policy: u32| {
            let zeros = |count: usize| "0 ".repeat(count);
            // Fields 3 to 18, 20 to 39, 42 and on.
            format!("7 (a) b) S {}{nice} {}{real_time} {policy} {}", zeros(15), zeros(20), zeros(11))
        };
        assert_eq!(scheduling(&stat(0, 1, 2)).as_deref(), Some("real-time 1"));
        assert_eq!(scheduling(&stat(-10, 0, 0)).as_deref(), Some("nice -10"));
        assert_eq!(scheduling(&stat(0, 0, 0)).as_deref(), Some("normal"));
        assert_eq!(scheduling("7 (cut"), None);
        assert!(running().is_empty() || running().iter().all(|thread| thread.cores.is_some()));
    }

    #[test]
    fn names_of_other_threads_are_no_workers() {
        assert_eq!(role_of("worker-12"), Some(("worker", 12)));
        assert_eq!(role_of("reader-0"), Some(("reader", 0)));
        for name in ["worker", "worker-", "worker-x", "pool-1", "host", "shard-3"] {
            assert_eq!(role_of(name), None, "{name}");
        }
    }
}
