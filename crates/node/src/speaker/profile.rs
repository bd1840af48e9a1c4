//! Time spent in each function, as the thesis's table 4.2 divides the work of an update. Off unless asked for:
//! two readings of the clock around each step are a good part of what a step costs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

/// The functions that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// Taking octets from the socket.
    Read,
    /// Framing, decoding, import policy and interning.
    Parse,
    /// Updating the shards and deciding.
    TableUpdate,
    /// Export: policy, packing, encoding.
    Export,
    /// Writing to sockets.
    Write,
    /// Timers, connections, chores.
    Housekeeping,
}

const FUNCTIONS: [(Function, &str); 6] = [
    (Function::Read, "read"),
    (Function::Parse, "parse"),
    (Function::TableUpdate, "table_update"),
    (Function::Export, "export"),
    (Function::Write, "write"),
    (Function::Housekeeping, "housekeeping"),
];

/// Sums over all threads.
#[derive(Default)]
pub(super) struct Profile {
    enabled: bool,
    sums: [(AtomicU64, AtomicU64); FUNCTIONS.len()],
}

impl Profile {
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled, ..Self::default() }
    }

    /// Does `work` and adds the time it took.
    #[inline]
    pub(super) fn time<T>(&self, function: Function, work: impl FnOnce() -> T) -> T {
        if !self.enabled {
            return work();
        }
        let start = Instant::now();
        let result = work();
        let (ns, calls) = &self.sums[function as usize];
        ns.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        calls.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// The sums; `None` if nothing was measured.
    pub(super) fn to_json(&self) -> Option<Value> {
        let entry = |(function, name): &(Function, &str)| {
            let (ns, calls) = &self.sums[*function as usize];
            let entry = json!({ "ns": ns.load(Ordering::Relaxed), "calls": calls.load(Ordering::Relaxed) });
            ((*name).to_owned(), entry)
        };
        self.enabled
            .then(|| json!({ "functions": FUNCTIONS.iter().map(entry).collect::<serde_json::Map<_, _>>() }))
    }
}
