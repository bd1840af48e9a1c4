//! Another queue for a port that sends, and the end of one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_dataplane::egress::{EgressClass, EgressConfig, EgressQueue};
use thalweg_dataplane::vlan::VlanTable;
use thalweg_ports::live::{NotTaken, PortTx, TxCounters};

use super::{BURST, Outbox, Rest, State};
use crate::counters::Counters;

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

impl Outbox {
    /// The way out of a number that has no port: nothing leaves by it.
    pub(crate) fn vacant(port: u16, counters: &Arc<Counters>) -> Self {
        Self::new(port, (Box::new(Gone), Vec::new()), None, VlanTable::default(), counters.clone())
    }

    /// The same way out, where other sub-interfaces share it.
    pub(crate) fn with_vlans(&self, vlans: &Arc<VlanTable>) -> Self {
        Self { vlans: vlans.clone(), ..self.clone() }
    }

    /// The port is gone: what waits in its queue is dropped and counted, and so is what somebody still has for it. The
    /// driver's halves, to be closed.
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

/// The driver of a port that is gone.
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
