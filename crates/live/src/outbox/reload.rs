//! Another queue for a port that sends.

use std::sync::atomic::Ordering;

use thalweg_dataplane::egress::{EgressClass, EgressConfig, EgressQueue};

use super::{Outbox, State};

/// Frames that may wait in a queue that is about to go, while the driver is full.
const LEAVING_PACKETS_MAX: u32 = 4096;

impl Outbox {
    /// Gives the port another queue, or none. What waits stays in order and is sent: where there is to be no queue, the old
    /// one sends as fast as the driver takes it, and goes when it is empty. The server of queues is to be rung.
    pub(crate) fn set_queue(&self, config: Option<EgressConfig>, now_ns: u64) {
        if self.is_sub_interface() {
            // It shares its parent's.
            return;
        }
        let mut state = self.lock();
        state.is_leaving = config.is_none();
        match (&mut state.queue, config) {
            (Some(queue), Some(config)) => queue.set_config(config, now_ns),
            (Some(queue), None) => queue.set_config(leaving(), now_ns),
            (queue @ None, Some(config)) => *queue = Some(EgressQueue::new(config)),
            (None, None) => {}
        }
        if state.queue.is_some() {
            self.ways.has_queue.store(true, Ordering::Release);
        }
        state.leave_if_empty();
    }
}

impl State {
    /// Lets the queue go, if it is to and nothing is left.
    pub(super) fn leave_if_empty(&mut self) {
        let is_empty = || self.queue.as_ref().is_none_or(|queue| queue.waiting() == 0);
        if self.is_leaving && self.held.is_none() && is_empty() {
            (self.queue, self.is_leaving) = (None, false);
        }
    }
}

/// One class, first in, first out, at the driver's pace.
fn leaving() -> EgressConfig {
    let class = EgressClass {
        limit_packets: LEAVING_PACKETS_MAX,
        limit_bytes: u32::MAX,
        aqm: None,
        ..EgressClass::default()
    };
    EgressConfig { classes: vec![class], ..EgressConfig::default() }
}
