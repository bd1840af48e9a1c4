//! Counters of the meter, which balance.

use crate::record::{EndReason, FlowRecord};
use std::ops::{Add, AddAssign, SubAssign};
use thalweg_base::DropReason;

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub packets: u64,
    /// As [`Bytes`](crate::Bytes) says; the frame's bytes for a packet without an IP length.
    pub bytes: u64,
}

impl Amount {
    #[inline(always)]
    pub(crate) fn one(bytes: u32) -> Self {
        Self { packets: 1, bytes: u64::from(bytes) }
    }

    /// The amount in a record, both directions.
    #[inline(always)]
    pub fn of(record: &FlowRecord) -> Self {
        Self { packets: record.packets(), bytes: record.bytes() }
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Amount {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Amount {
    #[inline(always)]
    fn sub_assign(&mut self, other: Self) {
        self.packets -= other.packets;
        self.bytes -= other.bytes;
    }
}

/// What came of searching payloads for names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// Payloads that were looked at.
    pub looked_at: u64,
    /// Flows that got a name.
    pub found: u64,
    /// Flows whose message did not become whole: too long, a gap, no room.
    pub given_up: u64,
    /// Names of DNS responses that had to go early for lack of room.
    pub resolved_evicted: u64,
}

impl NameCounts {
    fn add(&mut self, other: &Self) {
        self.looked_at += other.looked_at;
        self.found += other.found;
        self.given_up += other.given_up;
        self.resolved_evicted += other.resolved_evicted;
    }
}

/// What a meter has seen and what became of it. At every moment `seen = exported + cached + unsampled + not
/// metered` ([`holds`](Self::holds)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterTotals {
    pub seen: Amount,
    /// Reported in records.
    pub exported: Amount,
    /// Counted in flows and not reported yet.
    pub cached: Amount,
    /// Skipped by sampling.
    pub unsampled: Amount,
    /// Packets in no flow, by code of the drop reason.
    pub(crate) not_metered: [Amount; DropReason::CODES],
    /// Records by end reason, in the order of [`EndReason::ALL`].
    pub(crate) records: [u64; EndReason::ALL.len()],
    pub flows_created: u64,
    pub flows_cached: u64,
    /// Flows evicted because the cache was full.
    pub evicted_cache_full: u64,
    /// Flows evicted because both their buckets were full.
    pub evicted_bucket_full: u64,
    /// Flows reported with their first packet and never cached, because of a flood.
    pub passed_by: u64,
    /// Flows that ended because the clock went back.
    pub flows_set_back: u64,
    /// Later fragments that got the ports of their first.
    pub fragments_matched: u64,
    /// Later fragments whose first fragment was not seen: they belong to flows without ports.
    pub fragments_unmatched: u64,
    /// First fragments evicted early for lack of room.
    pub fragments_evicted: u64,
    /// What came of searching payloads for names.
    pub names: NameCounts,
    pub memory_bytes: u64,
}

impl Default for MeterTotals {
    fn default() -> Self {
        Self {
            seen: Amount::default(),
            exported: Amount::default(),
            cached: Amount::default(),
            unsampled: Amount::default(),
            not_metered: [Amount::default(); DropReason::CODES],
            records: [0; EndReason::ALL.len()],
            flows_created: 0,
            flows_cached: 0,
            evicted_cache_full: 0,
            evicted_bucket_full: 0,
            passed_by: 0,
            flows_set_back: 0,
            fragments_matched: 0,
            fragments_unmatched: 0,
            fragments_evicted: 0,
            names: NameCounts::default(),
            memory_bytes: 0,
        }
    }
}

impl MeterTotals {
    /// Packets in no flow, by reason; reasons without packets are left out.
    pub fn not_metered(&self) -> impl Iterator<Item = (DropReason, Amount)> + '_ {
        DropReason::ALL
            .iter()
            .map(|reason| (*reason, self.not_metered[*reason as usize]))
            .filter(|(_, amount)| amount.packets > 0)
    }

    /// All packets in no flow.
    pub fn not_metered_sum(&self) -> Amount {
        self.not_metered.iter().fold(Amount::default(), |sum, amount| sum + *amount)
    }

    /// The number of records made for this reason.
    pub fn records(&self, reason: EndReason) -> u64 {
        self.records[reason as usize - 1]
    }

    /// The number of records made.
    pub fn records_sum(&self) -> u64 {
        self.records.iter().sum()
    }

    /// Flows reported early for lack of room.
    pub fn evicted(&self) -> u64 {
        self.evicted_cache_full + self.evicted_bucket_full + self.passed_by
    }

    /// Whether every packet and byte is accounted for.
    pub fn holds(&self) -> bool {
        self.seen == self.exported + self.cached + self.unsampled + self.not_metered_sum()
    }

    /// Adds the totals of another shard or meter.
    pub fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.exported += other.exported;
        self.cached += other.cached;
        self.unsampled += other.unsampled;
        for (sum, amount) in self.not_metered.iter_mut().zip(&other.not_metered) {
            *sum += *amount;
        }
        for (sum, records) in self.records.iter_mut().zip(&other.records) {
            *sum += records;
        }
        self.flows_created += other.flows_created;
        self.flows_cached += other.flows_cached;
        self.evicted_cache_full += other.evicted_cache_full;
        self.evicted_bucket_full += other.evicted_bucket_full;
        self.passed_by += other.passed_by;
        self.flows_set_back += other.flows_set_back;
        self.fragments_matched += other.fragments_matched;
        self.fragments_unmatched += other.fragments_unmatched;
        self.fragments_evicted += other.fragments_evicted;
        self.names.add(&other.names);
        self.memory_bytes += other.memory_bytes;
    }
}
