//! What a meter tells of flows while they go on.

use std::fmt;

use crate::record::FlowRecord;

/// How often flows are told: a second of the packets' clock.
pub const INTERVAL_NS: u64 = 1_000_000_000;

/// Receives what the flows of a shard count.
pub trait Watch: fmt::Debug + Send {
    /// Takes what a flow has counted since it was last told, in the counters of a record; `is_first` says that
    /// nothing was told of the flow before.
    fn take(&mut self, counted: &FlowRecord, is_first: bool);

    /// Everything was told of this interval, by its number since the epoch; `next` is the next one with packets.
    /// It is an earlier one if the clock was set back.
    fn close(&mut self, interval: u64, next: u64);
}
