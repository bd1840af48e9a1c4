//! Gives queries of a dataset access to the flows in the caches.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::Meter;
use thalweg_store::live::Cache;

use crate::deliver::Completing;
use crate::record_queue::Passage;
use thalweg_flow::FlowRecord;

/// How often to check whether records have arrived, or whether a shard is free.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long to wait for a shard. Workers hold it for milliseconds, but indefinitely while packets of a file
/// wait for a full disk; queries must not wait with them.
const SHARD_WITHIN: Duration = Duration::from_millis(500);

/// Returns the meters in use.
pub type ShowMeters = Box<dyn Fn() -> Vec<Arc<Meter>> + Send + Sync>;

/// The caches of meters, and the path of their records to the store.
pub(crate) struct MeterCaches {
    pub(crate) meters: ShowMeters,
    pub(crate) passage: Arc<Passage>,
    /// Completes flows as it does records.
    pub(crate) completing: Completing,
}

impl MeterCaches {
    /// The number of records that the meters have made; `None` if a shard stays in use.
    fn made(&self) -> Option<u64> {
        let records = |meter: &Arc<Meter>| wait_for(|| meter.try_records());
        (self.meters)().iter().map(records).sum()
    }
}

impl Cache for MeterCaches {
    fn show(&self, take: &mut dyn FnMut(&[FlowRecord]) -> ControlFlow<()>) -> bool {
        let mut flows: Vec<FlowRecord> = Vec::new();
        for meter in (self.meters)() {
            for shard in 0..meter.shard_count() {
                let mut next = Some(0);
                while let Some(from) = next {
                    flows.clear();
                    let shown =
                        wait_for(|| meter.try_snapshot(shard, from, &mut |flow| flows.push(*flow)).ok());
                    let Some(then) = shown else { return false };
                    next = then;
                    self.completing.complete(&mut flows);
                    if take(&flows).is_break() {
                        return true;
                    }
                }
            }
        }
        true
    }

    fn settle(&self, timeout: Duration) -> Option<u64> {
        let (made, began) = (self.made()?, Instant::now());
        loop {
            let missing = made.saturating_sub(self.passage.through());
            if missing == 0 || began.elapsed() >= timeout {
                return Some(missing);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Calls `ask` until it answers, but no longer than [`SHARD_WITHIN`].
fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || began.elapsed() >= SHARD_WITHIN {
            return answer;
        }
        thread::sleep(LOOK_EVERY);
    }
}
