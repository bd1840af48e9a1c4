//! Replaces and removes queues and ports while packets are sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_dataplane::egress::{EgressClass, EgressConfig, EgressQueue};
use thalweg_dataplane::vlan::VlanTable;
use thalweg_ports::live::{NotTaken, PortTx, TxCounters};

use super::{BURST, Outbox, Rest, State};
use crate::counters::Counters;

/// Limit of a queue about to be removed, while the driver is full.
const LEAVING_PACKETS_MAX: u32 = 4096;

impl Outbox {
    /// Replaces the port's queue. Waiting frames stay in order and are sent: if there is to be no queue, the old
    /// one sends as fast as the driver accepts, and is removed once empty. Ring the
    /// [`QueueClock`](super::QueueClock) afterwards.
    pub(crate) fn set_queue(&self, config: Option<EgressConfig>, now_ns: u64) {
        if self.is_sub_interface() {
            // It shares its parent's queue.
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

impl Outbox {
    /// The outbox of a number without a port; frames are dropped.
    pub(crate) fn vacant(port: u16, counters: &Arc<Counters>) -> Self {
        Self::new(port, (Box::new(Gone), Vec::new()), None, VlanTable::default(), counters.clone())
    }

    /// The same outbox with another table of sub-interfaces.
    pub(crate) fn with_vlans(&self, vlans: &Arc<VlanTable>) -> Self {
        Self { vlans: vlans.clone(), ..self.clone() }
    }

    /// Closes a removed port: drops and counts waiting frames, and those that other threads still send. Returns the
    /// driver's halves, which the caller closes.
    pub(crate) fn shut(&self, now_ns: u64) -> Vec<Box<dyn PortTx>> {
        let mut state = self.lock();
        let mut halves = vec![std::mem::replace(&mut state.tx, Box::new(Gone))];
        if let Some(queue) = &mut state.queue {
            queue.set_config(leaving(), now_ns);
        }
        state.is_leaving = true;
        while self.take_out(&mut state, BURST, now_ns) == Rest::More {}
        state.leave_if_empty();
        drop(state);
        let others = self.ways.others.iter();
        halves.extend(others.map(|half| std::mem::replace(&mut half.lock().tx, Box::new(Gone))));
        halves
    }
}

/// The driver of a removed port: refuses every frame.
struct Gone;

impl PortTx for Gone {
    fn push(&mut self, _: &[u8]) -> Result<(), NotTaken> {
        Err(NotTaken::Down)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn counters(&mut self) -> TxCounters {
        TxCounters::default()
    }
}

impl State {
    /// Removes a queue that is to be removed, once nothing waits.
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
