//! Measures the time spent in each function, divided as in the thesis's table 4.2. Off by default: two clock
//! readings around each step are a good part of what a step costs.
//!
//! Times are processor time of the working thread, so waiting for a lock or for a core adds nothing. Reading that
//! clock is a system call; the reading for an empty step is measured once and subtracted from each step.
//!
//! Two lines of that table have no step of their own here:
//!
//! - **Reading headers and payloads.** One read brings many whole messages and is measured as one function. The
//!   bytes of headers and of payloads are counted beside it, so that the time can be divided by them.
//! - **Parsing headers.** A session frames each message just before it decodes it, in less time than a clock
//!   reading takes. When profiling, the consumed bytes are framed again between two readings; that time is
//!   subtracted from the session's and counted as parsing of headers. The first pass has brought the bytes into the
//!   cache, where a read has just left them too.
//!
//! No time is counted twice. Not counted are waiting, queues between threads, and reads that brought nothing.
//!
//! Beside the times, [`Progress`] records when UPDATEs were processed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_exec::{monotonic_time, thread_cpu_time};
use thalweg_wire::bgp::{HEADER_LENGTH, MessageKind, frame};

use super::progress::{Pending, Progress};

/// How often an empty step is measured; the median is used.
const EMPTY_STEPS: usize = 101;

/// The functions that are measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// Reading the socket: headers and payloads together. One call per read.
    Read,
    /// Framing: marker, length, type. One call per message.
    HeaderParse,
    /// Decoding, import policy and interning. One call per message.
    PayloadParse,
    /// Updating the shards and deciding.
    TableUpdate,
    /// Export: policy, packing, encoding.
    Export,
    /// Writing to sockets.
    Write,
    /// Timers, new connections, and a session's upkeep before and after it reads.
    Housekeeping,
}

const FUNCTIONS: [(Function, &str); 7] = [
    (Function::Read, "read"),
    (Function::HeaderParse, "header_parse"),
    (Function::PayloadParse, "payload_parse"),
    (Function::TableUpdate, "table_update"),
    (Function::Export, "export"),
    (Function::Write, "write"),
    (Function::Housekeeping, "housekeeping"),
];

/// Sums over all threads.
#[derive(Default)]
pub(super) struct Profile {
    enabled: bool,
    /// What the clock shows for an empty step.
    empty_ns: u64,
    progress: Progress,
    sums: [(AtomicU64, AtomicU64); FUNCTIONS.len()],
    header_bytes: AtomicU64,
    payload_bytes: AtomicU64,
}

impl Profile {
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled, empty_ns: if enabled { empty_ns() } else { 0 }, ..Self::default() }
    }

    /// Runs `work` and adds the time it took.
    #[inline]
    pub(super) fn time<T>(&self, function: Function, work: impl FnOnce() -> T) -> T {
        if !self.enabled {
            return work();
        }
        let start = thread_cpu_time();
        let result = work();
        self.add(function, self.since(start), 1);
        result
    }

    /// Has a session process messages at the start of `bytes`; `work` returns the number of bytes it consumed.
    /// Returns that number and how many UPDATEs were among them: zero if profiling is off.
    #[inline]
    pub(super) fn time_messages(&self, bytes: &[u8], work: impl FnOnce() -> usize) -> (usize, u32) {
        if !self.enabled {
            return (work(), 0);
        }
        let start = thread_cpu_time();
        let used = work();
        let whole_ns = self.since(start);
        let start = thread_cpu_time();
        let Counted { messages, updates, bytes: total } = count_messages(bytes.get(..used).unwrap_or(bytes));
        let framing_ns = self.since(start);
        self.add(Function::HeaderParse, framing_ns, messages);
        self.add(Function::PayloadParse, whole_ns.saturating_sub(framing_ns), messages);
        let headers = messages * HEADER_LENGTH as u64;
        self.header_bytes.fetch_add(headers, Ordering::Relaxed);
        self.payload_bytes.fetch_add(total - headers, Ordering::Relaxed);
        (used, updates)
    }

    /// Notes that a shard has applied a batch.
    pub(super) fn reached_shard(&self, pending: &Pending) {
        if self.enabled {
            self.worked_off(pending.reached_shard());
        }
    }

    /// Adds to the count of processed UPDATEs.
    pub(super) fn worked_off(&self, updates: u32) {
        if updates > 0 {
            self.progress.add(updates, nanoseconds(monotonic_time()));
        }
    }

    /// Processor time of this thread since `start`, less what measuring adds.
    fn since(&self, start: Duration) -> u64 {
        nanoseconds(thread_cpu_time().saturating_sub(start)).saturating_sub(self.empty_ns)
    }

    fn add(&self, function: Function, ns: u64, calls: u64) {
        let (ns_sum, calls_sum) = &self.sums[function as usize];
        ns_sum.fetch_add(ns, Ordering::Relaxed);
        calls_sum.fetch_add(calls, Ordering::Relaxed);
    }

    /// The sums; `None` if profiling is off.
    pub(super) fn to_json(&self) -> Option<Value> {
        let entry = |(function, name): &(Function, &str)| {
            let (ns, calls) = &self.sums[*function as usize];
            let entry = json!({ "ns": ns.load(Ordering::Relaxed), "calls": calls.load(Ordering::Relaxed) });
            ((*name).to_owned(), entry)
        };
        self.enabled.then(|| {
            json!({
                "functions": FUNCTIONS.iter().map(entry).collect::<serde_json::Map<_, _>>(),
                "bytes": {
                    "headers": self.header_bytes.load(Ordering::Relaxed),
                    "payloads": self.payload_bytes.load(Ordering::Relaxed),
                },
                "progress": self.progress.to_json(),
            })
        })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn empty_ns() -> u64 {
    let mut steps: Vec<Duration> = (0..EMPTY_STEPS)
        .map(|_| {
            let start = thread_cpu_time();
            thread_cpu_time().saturating_sub(start)
        })
        .collect();
    steps.sort_unstable();
    steps.get(EMPTY_STEPS / 2).copied().map_or(0, nanoseconds)
}

/// Counts of a run of messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    messages: u64,
    updates: u32,
    bytes: u64,
}

/// Frames messages as a session does.
fn count_messages(bytes: &[u8]) -> Counted {
    let (mut counted, mut done) = (Counted::default(), 0);
    // The longest possible length: a message longer than this session allows has ended it already.
    while let Ok(Some(message)) = frame(bytes.get(done..).unwrap_or(&[]), usize::from(u16::MAX)) {
        counted.messages += 1;
        counted.updates += u32::from(message.kind == MessageKind::Update);
        done += message.length;
    }
    counted.bytes = done as u64;
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::bgp::write_keepalive;

    fn calls(profile: &Profile, function: &str) -> Option<u64> {
        profile.to_json()?["functions"][function]["calls"].as_u64()
    }

    #[test]
    fn messages_that_were_worked_off_are_counted() {
        let mut bytes = Vec::new();
        (0..5).for_each(|_| write_keepalive(&mut bytes));
        bytes.extend_from_slice(&[0xff; 16]);
        bytes.extend_from_slice(&[0, 23, 2, 0, 0, 0, 0]);
        let profile = Profile::new(true);
        // All but the first.
        assert_eq!(profile.time_messages(&bytes[19..], || 4 * 19 + 23), (4 * 19 + 23, 1));
        for function in ["header_parse", "payload_parse"] {
            assert_eq!(calls(&profile, function), Some(5));
        }
        let counted = &profile.to_json().unwrap()["bytes"];
        assert_eq!((counted["headers"].as_u64(), counted["payloads"].as_u64()), (Some(5 * 19), Some(4)));
        // Part of a message, nothing, and what is no message.
        profile.time_messages(&bytes, || 0);
        profile.time_messages(&bytes, || 18);
        profile.time_messages(&[0; 100], || 100);
        assert_eq!(calls(&profile, "header_parse"), Some(5));
    }

    /// A step that sleeps takes no processor time; one that works takes as much as the thread did.
    #[test]
    fn waiting_is_no_time() {
        let profile = Profile::new(true);
        let ns = |function: &str| profile.to_json().unwrap()["functions"][function]["ns"].as_u64().unwrap();
        let (held, freed) = std::sync::mpsc::channel::<()>();
        let before = thread_cpu_time();
        let other = std::thread::spawn(move || {
            // As long as it takes this thread to use ten milliseconds of processor time.
            let start = thread_cpu_time();
            while thread_cpu_time() - start < Duration::from_millis(10) {
                std::hint::black_box(count_messages(&[0xff; 64]));
            }
            drop(held);
        });
        profile.time(Function::Write, || freed.recv().unwrap_err());
        other.join().unwrap();
        let waited = nanoseconds(thread_cpu_time() - before);
        assert!(ns("write") <= waited, "not more than this thread used: {} of {waited}", ns("write"));
        let (start, mut work) = (thread_cpu_time(), 0);
        profile.time(Function::Read, || {
            while thread_cpu_time() - start < Duration::from_millis(10) {
                work += count_messages(&[0xff; 64]).messages;
            }
        });
        assert!(ns("read") + profile.empty_ns >= 9_000_000, "{} and {work}", ns("read"));
    }

    #[test]
    fn what_is_not_asked_for_is_not_measured() {
        let profile = Profile::new(false);
        assert_eq!(profile.time(Function::Read, || 3), 3);
        assert_eq!(profile.time_messages(&[], || 4), (4, 0));
        assert_eq!(profile.to_json(), None);
        let profile = Profile::new(true);
        assert_eq!(profile.time(Function::Read, || 3), 3);
        assert_eq!((calls(&profile, "read"), calls(&profile, "write")), (Some(1), Some(0)));
    }
}
