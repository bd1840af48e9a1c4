//! What flow caches have, for whoever asks the dataset that their records go to.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_flow::Meter;
use thalweg_store::live::Cache;

use crate::deliver::{Books, Completing};
use crate::outbox::Passage;
use thalweg_flow::FlowRecord;

/// How often it is looked whether records have come through.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Shows the meters that are at work.
pub type ShowMeters = Box<dyn Fn() -> Vec<Arc<Meter>> + Send + Sync>;

/// The caches of meters, and the way of their records to the store.
pub(crate) struct MeterCaches {
    pub(crate) meters: ShowMeters,
    pub(crate) books: Arc<Books>,
    pub(crate) passage: Arc<Passage>,
    /// Completes flows as it does records.
    pub(crate) completing: Completing,
}

impl Cache for MeterCaches {
    fn show(&self, take: &mut dyn FnMut(&[FlowRecord]) -> ControlFlow<()>) {
        let mut flows: Vec<FlowRecord> = Vec::new();
        for meter in (self.meters)() {
            for shard in 0..meter.shard_count() {
                let mut next = Some(0);
                while let Some(from) = next {
                    flows.clear();
                    next = meter.snapshot(shard, from, &mut |flow| flows.push(*flow));
                    self.completing.complete(&mut flows);
                    if take(&flows).is_break() {
                        return;
                    }
                }
            }
        }
    }

    fn settle(&self, patience: Duration) -> u64 {
        let (made, began) = (self.books.made(), Instant::now());
        loop {
            let missing = made.saturating_sub(self.passage.through());
            if missing == 0 || began.elapsed() >= patience {
                return missing;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
