//! Counters and times of one direction of a received record: several fields may give the same fact, and the most
//! precise one wins.

use thalweg_wire::ip_protocol;
use thalweg_wire::netflow::decode::{Field, Header};
use thalweg_wire::netflow::element::*;

use crate::Counters;

const NS_PER_US: u64 = 1_000;
pub(super) const NS_PER_MS: u64 = 1_000_000;

/// The best of several values for one fact: the highest rank wins, the first among equals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Best {
    rank: u8,
    pub(super) value: Option<u64>,
}

impl Best {
    #[inline]
    pub(super) fn offer(&mut self, rank: u8, value: Option<u64>) {
        if value.is_some() && (self.value.is_none() || rank > self.rank) {
            *self = Self { rank, value };
        }
    }
}

/// How precisely an element gives a time.
pub(super) mod time_rank {
    pub(in crate::import) const SECONDS: u8 = 1;
    pub(in crate::import) const UPTIME: u8 = 2;
    pub(in crate::import) const BEFORE_EXPORT: u8 = 3;
    pub(in crate::import) const MILLISECONDS: u8 = 4;
    pub(in crate::import) const MICROSECONDS: u8 = 5;
    pub(in crate::import) const NANOSECONDS: u8 = 6;
}

/// How well an element counts. Counts of sent traffic replace those of received traffic if there are none.
pub(super) mod count_rank {
    pub(in crate::import) const LAYER2: u8 = 1;
    pub(in crate::import) const POST: u8 = 2;
    pub(in crate::import) const TOTAL: u8 = 3;
    pub(in crate::import) const INITIATOR: u8 = 4;
    pub(in crate::import) const DELTA: u8 = 5;
}

/// What a record counts in one direction, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) packets: Best,
    pub(super) bytes: Best,
    pub(super) first_ns: Best,
    pub(super) last_ns: Best,
    first_uptime_ms: Option<u32>,
    last_uptime_ms: Option<u32>,
    duration_ns: Option<u64>,
    tcp_flags: Option<u8>,
    ttl_min: Option<u8>,
    ttl_max: Option<u8>,
}

impl Counted {
    /// Takes a field with counts, times or a summary of headers; returns whether it is one.
    #[inline(always)]
    pub(super) fn take(&mut self, id: u16, field: &Field<'_>, header: &Header) -> bool {
        let number = field.unsigned();
        match id {
            OCTET_DELTA_COUNT => self.bytes.offer(count_rank::DELTA, number),
            PACKET_DELTA_COUNT => self.packets.offer(count_rank::DELTA, number),
            INITIATOR_OCTETS => self.bytes.offer(count_rank::INITIATOR, number),
            INITIATOR_PACKETS => self.packets.offer(count_rank::INITIATOR, number),
            OCTET_TOTAL_COUNT => self.bytes.offer(count_rank::TOTAL, number),
            PACKET_TOTAL_COUNT => self.packets.offer(count_rank::TOTAL, number),
            POST_OCTET_DELTA_COUNT => self.bytes.offer(count_rank::POST, number),
            POST_PACKET_DELTA_COUNT => self.packets.offer(count_rank::POST, number),
            LAYER2_OCTET_DELTA_COUNT => self.bytes.offer(count_rank::LAYER2, number),
            TCP_CONTROL_BITS => {
                let seen = number.map(|flags| flags as u8); // exporters mean the low eight bits
                self.tcp_flags = seen.map(|flags| flags | self.tcp_flags.unwrap_or(0)).or(self.tcp_flags);
            }
            MINIMUM_TTL => self.ttl_min = ttl(number),
            MAXIMUM_TTL => self.ttl_max = ttl(number),
            IP_TTL => {
                let ttl = ttl(number);
                self.ttl_min = self.ttl_min.or(ttl);
                self.ttl_max = self.ttl_max.or(ttl);
            }
            FLOW_DURATION_MILLISECONDS => {
                self.duration_ns = self.duration_ns.or(number.map(|ms| ms.saturating_mul(NS_PER_MS)));
            }
            FLOW_DURATION_MICROSECONDS => self.duration_ns = number.map(|us| us.saturating_mul(NS_PER_US)),
            FLOW_START_SYS_UP_TIME => self.first_uptime_ms = number.and_then(|ms| u32::try_from(ms).ok()),
            FLOW_END_SYS_UP_TIME => self.last_uptime_ms = number.and_then(|ms| u32::try_from(ms).ok()),
            _ => return self.take_time(id, field, header),
        }
        true
    }

    #[inline(always)]
    fn take_time(&mut self, id: u16, field: &Field<'_>, header: &Header) -> bool {
        use time_rank::*;
        let (rank, place) = match id {
            FLOW_START_SECONDS => (SECONDS, &mut self.first_ns),
            FLOW_START_MILLISECONDS => (MILLISECONDS, &mut self.first_ns),
            FLOW_START_MICROSECONDS => (MICROSECONDS, &mut self.first_ns),
            FLOW_START_NANOSECONDS => (NANOSECONDS, &mut self.first_ns),
            FLOW_END_SECONDS => (SECONDS, &mut self.last_ns),
            FLOW_END_MILLISECONDS => (MILLISECONDS, &mut self.last_ns),
            FLOW_END_MICROSECONDS => (MICROSECONDS, &mut self.last_ns),
            FLOW_END_NANOSECONDS => (NANOSECONDS, &mut self.last_ns),
            FLOW_START_DELTA_MICROSECONDS | FLOW_END_DELTA_MICROSECONDS => {
                let before_ns = field.unsigned().map(|us| us.saturating_mul(NS_PER_US));
                let time_ns = before_ns.map(|before_ns| header.export_ns.saturating_sub(before_ns));
                let is_start = id == FLOW_START_DELTA_MICROSECONDS;
                let place = if is_start { &mut self.first_ns } else { &mut self.last_ns };
                place.offer(BEFORE_EXPORT, time_ns);
                return true;
            }
            _ => return false,
        };
        // An empty field is 0, and no flow has that time.
        place.offer(rank, field.time_ns(header).filter(|_| field.bytes.iter().any(|byte| *byte != 0)));
        true
    }

    pub(super) fn counts(&self) -> bool {
        self.packets.value.is_some() || self.bytes.value.is_some()
    }

    /// Resolves times that count from the exporter's start, by a header that says when that was.
    pub(super) fn offer_uptime(&mut self, header: &Header) {
        let time = |uptime_ms: Option<u32>| uptime_ms.and_then(|ms| header.uptime_to_ns(ms));
        self.first_ns.offer(time_rank::UPTIME, time(self.first_uptime_ms));
        self.last_ns.offer(time_rank::UPTIME, time(self.last_uptime_ms));
    }

    /// First and last time, from what is known.
    pub(super) fn times(&self, event_ns: Option<u64>) -> Option<(u64, u64)> {
        let duration_ns = self.duration_ns.unwrap_or(0);
        match (self.first_ns.value, self.last_ns.value) {
            (Some(first), Some(last)) => Some((first, last.max(first))),
            (Some(first), None) if self.duration_ns.is_some() => {
                Some((first, first.saturating_add(duration_ns)))
            }
            (Some(first), None) => Some((first, event_ns.map_or(first, |event| event.max(first)))),
            (None, last) => {
                let last = last.or(event_ns)?;
                Some((last.saturating_sub(duration_ns), last))
            }
        }
    }

    /// The duration by the exporter's uptime, when its start is unknown.
    pub(super) fn uptime_duration_ns(&self) -> u64 {
        let duration_ms =
            self.last_uptime_ms.zip(self.first_uptime_ms).map(|(last, first)| last.wrapping_sub(first));
        u64::from(duration_ms.unwrap_or(0)) * NS_PER_MS
    }

    pub(super) fn counters(&self, first_ns: u64, last_ns: u64, protocol: u8) -> Counters {
        Counters {
            packets: self.packets.value.unwrap_or(0),
            bytes: self.bytes.value.unwrap_or(0),
            first_ns,
            last_ns,
            tcp_flags: self.tcp_flags.filter(|_| protocol == ip_protocol::TCP),
            ttl_min: self.ttl_min.or(self.ttl_max),
            ttl_max: self.ttl_max.or(self.ttl_min),
        }
    }
}

/// A TTL or hop limit. No packet on the wire has 0; exporters send it for unknown.
fn ttl(number: Option<u64>) -> Option<u8> {
    number.and_then(|ttl| u8::try_from(ttl).ok()).filter(|ttl| *ttl != 0)
}
