//! The meter: packets in, flow records out.

pub(crate) mod options;
pub(crate) mod totals;

use crate::record::{EndReason, FlowRecord};
use options::{MeterError, MeterOptions};
use std::ops::Range;
use thalweg_base::{Chunk, Packet};
use totals::MeterTotals;

/// Takes records one after another.
pub type RecordSink<'a> = dyn FnMut(&FlowRecord) + 'a;

/// A flow meter: shards of a flow cache, and the table of fragments before them.
///
/// All methods take `&self`: shards are behind locks that are never waited for, as an execution model runs a group of
/// shards in one place at a time.
#[derive(Debug)]
pub struct Meter {
    options: MeterOptions,
}

#[allow(unused_variables)]
impl Meter {
    /// A meter; memory is reserved in full and taken as flows come.
    pub fn new(options: &MeterOptions) -> Result<Self, MeterError> {
        options.validate()?;
        Ok(Self { options: options.clone() })
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> usize {
        usize::from(self.options.shards)
    }

    /// The group that owns a shard when `group_count` groups share the shards: for the index of a chunk's packets.
    pub fn group_of(&self, shard: u16, group_count: usize) -> u16 {
        unimplemented!()
    }

    /// Sets the packet's `flow_hash` and `shard`, dropped ones too. Both directions of a flow get the same. Needs what
    /// parsing says of the packet; later fragments get theirs again from [`Self::resolve_fragments`].
    pub fn label(&self, packet: &mut Packet, frame: &[u8]) {
        unimplemented!()
    }

    /// Gives later fragments the ports of their first and labels them. Wants chunks in sequence (scope `Ordered`);
    /// nothing to do for a chunk without fragments.
    pub fn resolve_fragments(&self, chunk: &mut Chunk) {
        unimplemented!()
    }

    /// Counts the packets of `groups` out of `group_count` and gives `out` the records of flows that are over or due by
    /// the chunk's clock. Wants chunks in sequence to each group (scope `PerShard`).
    ///
    /// Follows the chunk's shard index if that was built for `group_count` groups and not all of them are asked for, else
    /// walks the chunk and skips the packets of others.
    pub fn observe(
        &self,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
        out: &mut RecordSink<'_>,
    ) {
        unimplemented!()
    }

    /// Reports what is over or due in a shard by this clock: for shards that see no packets.
    pub fn advance(&self, shard: usize, clock_ns: u64, out: &mut RecordSink<'_>) {
        unimplemented!()
    }

    /// Reports everything in a shard and empties it.
    pub fn flush(&self, shard: usize, reason: EndReason, out: &mut RecordSink<'_>) {
        unimplemented!()
    }

    /// The books of all shards together. They balance whenever no shard is being worked on.
    pub fn totals(&self) -> MeterTotals {
        unimplemented!()
    }

    /// Shows what is in a shard's cache and not reported yet: a slice from place `from` on. Where the next slice begins,
    /// if there is one. The shard is locked for some tens of microseconds.
    pub fn snapshot(&self, shard: usize, from: usize, out: &mut RecordSink<'_>) -> Option<usize> {
        unimplemented!()
    }
}
