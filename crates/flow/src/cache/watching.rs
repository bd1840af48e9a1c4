//! Tells a watcher what flows count while they go on, without a cost per packet.
//!
//! The cache keeps what it has told of each flow. When the packets' clock enters another interval, a walk over the
//! flows tells what each has counted since, and a flow that is reported tells the rest first. So the sum of what is
//! told of an interval is what was counted in it, if no chunk has packets of two intervals.

use super::Shard;
use super::arena::Family;
use crate::key::Key;
use crate::record::{EndReason, FlowRecord};
use crate::watch::{INTERVAL_NS, Watch};

/// A step back of more intervals means that the clock was set.
const BACK_MAX: u64 = 10;

#[derive(Debug)]
pub(super) struct Watching {
    watch: Box<dyn Watch>,
    /// The number of the interval that is not told yet; `None` before the first.
    interval: Option<u64>,
}

impl Shard {
    /// Begins to tell, or ends it: then the present interval is told first.
    pub(crate) fn set_watch(&mut self, watch: Option<Box<dyn Watch>>) {
        if let Some(Watching { mut watch, interval: Some(interval) }) = self.watching.take() {
            self.tell_flows::<3>(watch.as_mut());
            self.tell_flows::<6>(watch.as_mut());
            watch.close(interval, u64::MAX);
        }
        self.watching = watch.map(|watch| Watching { watch, interval: None });
    }

    /// Tells the interval that has ended by this clock.
    #[inline]
    pub(super) fn watch_clock(&mut self, clock_ns: u64) {
        let now = clock_ns / INTERVAL_NS;
        if self.watching.as_ref().is_some_and(|watching| watching.interval != Some(now)) {
            self.enter_interval(now);
        }
    }

    #[cold]
    fn enter_interval(&mut self, now: u64) {
        let Some(mut watching) = self.watching.take() else { return };
        // Clocks of several receive queues differ a little.
        let goes_on = |interval: u64| now > interval || now.saturating_add(BACK_MAX) < interval;
        match watching.interval {
            Some(interval) if goes_on(interval) => {
                self.tell_flows::<3>(watching.watch.as_mut());
                self.tell_flows::<6>(watching.watch.as_mut());
                watching.watch.close(interval, now);
                watching.interval = Some(now);
            }
            Some(_) => {}
            None => watching.interval = Some(now),
        }
        self.watching = Some(watching);
    }

    fn tell_flows<const WORDS: usize>(&mut self, watch: &mut dyn Watch)
    where
        Key<WORDS>: Family,
    {
        for at in 0..Key::<WORDS>::arena(&self.arenas).len() {
            let arena = Key::<WORDS>::arena(&self.arenas);
            if !arena.is_live(at) || !arena.has_untold(at) {
                continue;
            }
            let Some(record) = self.record::<WORDS>(at, EndReason::ActiveTimeout) else { continue };
            if let Some((rest, is_first)) = Key::<WORDS>::arena_mut(&mut self.arenas).tell(at, &record) {
                watch.take(&rest, is_first);
            }
        }
    }

    /// Tells the rest of what a flow has counted, before it is reported.
    pub(super) fn tell_rest<const WORDS: usize>(&mut self, at: usize, record: &FlowRecord)
    where
        Key<WORDS>: Family,
    {
        let Some(watching) = &mut self.watching else { return };
        let arena = Key::<WORDS>::arena_mut(&mut self.arenas);
        if arena.has_untold(at)
            && let Some((rest, is_first)) = arena.tell(at, record)
        {
            watching.watch.take(&rest, is_first);
        }
    }

    /// Tells a flow that never enters the cache.
    pub(super) fn tell_whole(&mut self, record: &FlowRecord) {
        if let Some(watching) = &mut self.watching {
            watching.watch.take(record, true);
        }
    }
}
