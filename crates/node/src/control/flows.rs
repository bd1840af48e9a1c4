//! Answers about the flow meter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_flow::{Amount, EndReason, MeterTotals};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmountView {
    pub packets: u64,
    /// Bytes of IP packets; of what is not IP, of frames.
    pub bytes: u64,
}

impl From<Amount> for AmountView {
    fn from(amount: Amount) -> Self {
        Self { packets: amount.packets, bytes: amount.bytes }
    }
}

/// How a collector, or the folder of a dataset, that is given flow records does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOutletView {
    /// The collector's address, or the folder.
    pub to: String,
    /// Records that arrived, as far as is known: on disk, acknowledged, or taken by the network.
    pub records: u64,
    /// Records on their way: not on disk yet, not acknowledged.
    pub waiting: u64,
    /// Records that were lost, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Why it takes nothing at present.
    pub error: Option<String>,
}

/// The totals of the flow meter, as [`super::PacketRequest::FlowCache`] shows them: `seen = exported + cached + unsampled +
/// not_metered`, of packets and of bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowCacheView {
    /// Everything the meter was given.
    pub seen: AmountView,
    /// What records reported.
    pub exported: AmountView,
    /// What is counted in flows and not reported yet.
    pub cached: AmountView,
    /// What sampling passed over.
    pub unsampled: AmountView,
    /// What belongs to no flow, by reason.
    pub not_metered: BTreeMap<String, AmountView>,
    /// Whether the totals balance. They are read while packets pass, so they may be out by those that do.
    pub balances: bool,
    /// Flows in the cache.
    pub flows: u64,
    /// Flows that began.
    pub flows_created: u64,
    /// Flows that had to go because the cache, or their place in it, was full.
    pub flows_evicted: u64,
    /// Bytes of memory in use.
    pub memory_bytes: u64,
    /// Records by the reason why they were made.
    pub records: BTreeMap<String, u64>,
    /// Records that found the queue to collectors and store full.
    pub records_lost: u64,
    /// Packets in those.
    pub packets_lost: u64,
    /// Events of NAT handed over to the exporter.
    pub nat_events: u64,
    /// Events of NAT that found no room before that.
    pub nat_events_lost: u64,
    /// Times the wall clock was set since the start: records have its time, and are as long as was measured.
    pub clock_steps: u64,
    /// Collectors and store.
    pub outlets: Vec<FlowOutletView>,
}

impl FlowCacheView {
    /// The view of these totals.
    pub fn new(totals: &MeterTotals) -> Self {
        Self {
            seen: totals.seen.into(),
            exported: totals.exported.into(),
            cached: totals.cached.into(),
            unsampled: totals.unsampled.into(),
            not_metered: totals
                .not_metered()
                .map(|(reason, amount)| (reason.name().to_owned(), amount.into()))
                .collect(),
            balances: totals.holds(),
            flows: totals.flows_cached,
            flows_created: totals.flows_created,
            flows_evicted: totals.evicted(),
            memory_bytes: totals.memory_bytes,
            records: EndReason::ALL
                .iter()
                .map(|reason| (reason.name().to_owned(), totals.records(*reason)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            records_lost: 0,
            packets_lost: 0,
            nat_events: 0,
            nat_events_lost: 0,
            clock_steps: 0,
            outlets: Vec::new(),
        }
    }
}
