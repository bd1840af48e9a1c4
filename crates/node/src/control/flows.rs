//! Answers about the flow meter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_base::Name;
use thalweg_flow::alarm::AlarmReport;
use thalweg_flow::{Amount, EndReason, MeterTotals};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmountView {
    pub packets: u64,
    /// Bytes of IP packets; of other packets, bytes of frames.
    pub bytes: u64,
}

impl From<Amount> for AmountView {
    fn from(amount: Amount) -> Self {
        Self { packets: amount.packets, bytes: amount.bytes }
    }
}

/// A collector, a dataset's folder, or its archive, that receives flow records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOutletView {
    /// The collector's address, the folder, or the bucket.
    pub to: String,
    /// Records known to have arrived: on disk, acknowledged, or taken by the network.
    pub records: u64,
    /// Records on their way: neither on disk nor acknowledged.
    pub waiting: u64,
    /// Records lost, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Whether it is a collector of sFlow: its records are samples of packets.
    #[serde(default)]
    pub sflow: bool,
    /// Samples of interfaces' counters that a collector of sFlow got.
    #[serde(default)]
    pub counter_samples: u64,
    /// Ports whose interface had no counters for it when they were last read.
    #[serde(default)]
    pub interfaces_uncounted: u64,
    /// Datagrams answered by an ICMP error: nobody listens there.
    #[serde(default)]
    pub datagrams_refused: u64,
    /// Datagrams that the socket of a collector on this system had no room for.
    #[serde(default)]
    pub datagrams_dropped: u64,
    /// Why it accepts nothing at present.
    pub error: Option<String>,
}

/// The totals of the flow meter, as [`super::PacketRequest::FlowCache`] shows them: `seen = exported + cached +
/// unsampled + not_metered`, in packets and in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowCacheView {
    /// Everything that reached the meter.
    pub seen: AmountView,
    /// What records reported.
    pub exported: AmountView,
    /// What flows in the cache count and no record has reported yet.
    pub cached: AmountView,
    /// What sampling skipped.
    pub unsampled: AmountView,
    /// What belongs to no flow, by reason.
    pub not_metered: BTreeMap<String, AmountView>,
    /// Whether the totals balance. They are read while packets pass, so they may miss by those in transit.
    pub balances: bool,
    /// Flows in the cache.
    pub flows: u64,
    pub flows_created: u64,
    /// Flows evicted because the cache or their bucket was full.
    pub flows_evicted: u64,
    /// Flows in whose payloads names were found.
    pub flows_named: u64,
    /// Flows whose message did not become whole, so that some names may be missing.
    pub names_given_up: u64,
    /// Names that had to go for others.
    pub names_forgotten: u64,
    pub memory_bytes: u64,
    /// Records by the reason for which they were made.
    pub records: BTreeMap<String, u64>,
    /// Records lost because the queue to collectors and store was full.
    pub records_lost: u64,
    /// Packets in those records.
    pub packets_lost: u64,
    /// NAT events handed to the exporter.
    pub nat_events: u64,
    /// NAT events lost for want of room before that.
    pub nat_events_lost: u64,
    /// Times the wall clock was set since the start: records use its time, but keep their measured durations.
    pub clock_steps: u64,
    /// Collectors and datasets.
    pub outlets: Vec<FlowOutletView>,
    /// Active alarms, and the latest events.
    #[serde(default)]
    pub alarms: AlarmReport,
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
            flows_named: totals.names.found,
            names_given_up: totals.names.given_up,
            names_forgotten: totals.names.resolved_evicted + Name::forgotten(),
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
            alarms: AlarmReport::default(),
        }
    }
}
