//! NetFlow 5: a header of 24 bytes and up to 30 records of 48 bytes, IPv4 only, no templates.
//!
//! Facts without a field are left out: VLAN, MPLS, NAT, drops, TTLs, end reasons, applications, BGP's next
//! hop. AS numbers beyond 16 bits become AS_TRANS (RFC 6793); interface numbers beyond 16 bits become 0,
//! which is unknown. Counters beyond 32 bits are split over several records that add up. If a message cannot
//! express a record's times (an old capture exported today), the record gets a message whose own time is the
//! record's.

use super::message_buffer::MessageBuffer;
use super::options::{ExportOptions, SamplingMethod};
use super::shape::ipv4_or_none;
use super::{Amount, Unexportable, is_set_back};
use crate::record::FlowRecord;
use std::net::{IpAddr, Ipv4Addr};

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 48;
/// The most records in a message; collectors rely on the usual 1,464 bytes.
const RECORDS_MAX: u16 = 30;
const AS_TRANS: u16 = 23_456;
const MILLISECOND_NS: u64 = 1_000_000;
/// The start of uptimes is this long before a message.
const UPTIME_BEFORE_MS: u64 = 24 * 3600 * 1000;
const UPTIME_MAX_MS: u64 = 1 << 31;
/// The most records that one record's counters are split over.
const PARTS_MAX: u64 = 256;
/// The header has 14 bits for the interval.
const SAMPLING_INTERVAL_MAX: u32 = (1 << 14) - 1;

/// One session's encoder; see the module documentation.
pub(super) struct V5 {
    engine_id: u8,
    sampling: SamplingMethod,
    records_max: u16,
    /// Flows in closed messages.
    sequence: u32,
    now_ms: u64,
    /// The start of uptimes for current records.
    start_ms: u64,
    open: Open,
}

/// The header of the open message.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Open {
    records: u16,
    /// The message's time, in milliseconds since the epoch.
    time_ms: u64,
    /// The start of the message's uptimes.
    start_ms: u64,
    sampling_interval: u32,
}

impl V5 {
    pub(super) fn new(options: &ExportOptions) -> Self {
        let fit = (options.message_bytes_max - HEADER_BYTES) / RECORD_BYTES;
        Self {
            engine_id: options.observation_domain as u8,
            sampling: options.sampling,
            records_max: RECORDS_MAX.min(fit as u16),
            sequence: 0,
            now_ms: 0,
            start_ms: 0,
            open: Open { records: 0, time_ms: 0, start_ms: 0, sampling_interval: 1 },
        }
    }

    pub(super) fn begin_session(&mut self, now_ns: u64) {
        self.sequence = 0;
        self.advance(now_ns);
    }

    fn advance(&mut self, now_ns: u64) {
        let now_ms = now_ns / MILLISECOND_NS;
        if is_set_back(self.now_ms * MILLISECOND_NS, now_ns) {
            self.now_ms = now_ms;
            self.start_ms = self.start_ms.min(now_ms.saturating_sub(UPTIME_BEFORE_MS));
        }
        self.now_ms = self.now_ms.max(now_ms);
        if self.now_ms - self.start_ms > UPTIME_MAX_MS {
            self.start_ms = self.now_ms.saturating_sub(UPTIME_BEFORE_MS);
        }
    }

    pub(super) fn add(&mut self, records: &[FlowRecord], out: &mut MessageBuffer) {
        self.advance(out.now_ns);
        for record in records {
            out.totals.handled += Amount::of(record);
            let mut ways = 0;
            for way in record.both_ways() {
                ways += 1;
                match self.add_one(&way, out) {
                    Ok(parts) => out.totals.split += parts - 1,
                    Err(why) => out.totals.count_unexportable(why, &way),
                }
            }
            out.totals.split += ways - 1;
        }
    }

    /// Encodes a record of one direction; returns the number of parts.
    fn add_one(&mut self, record: &FlowRecord, out: &mut MessageBuffer) -> Result<u64, Unexportable> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (record.key.src, record.key.dst) else {
            return Err(Unexportable::Ipv6);
        };
        let (bytes, packets) = (record.counters.bytes, record.counters.packets);
        let parts = bytes.div_ceil(u64::from(u32::MAX)).max(packets.div_ceil(u64::from(u32::MAX))).max(1);
        if parts > PARTS_MAX {
            return Err(Unexportable::Counter);
        }
        let wanted = self.wanted(record)?;
        for part in 0..parts {
            self.make_room(wanted, out);
            // The parts are as equal as possible, each within 32 bits.
            let share = |total: u64| total / parts + u64::from(part < total % parts);
            let amount = Amount { records: 1, packets: share(packets), bytes: share(bytes) };
            write(record, src, dst, &amount, self.open.start_ms, out.take(RECORD_BYTES));
            self.open.records += 1;
            out.counts += amount;
            out.totals.exported += amount;
        }
        Ok(parts)
    }

    /// The message header that this record needs: with the present time if possible.
    fn wanted(&self, record: &FlowRecord) -> Result<Open, Unexportable> {
        let sampling_interval = record.sampling_interval.max(1);
        if sampling_interval > SAMPLING_INTERVAL_MAX {
            return Err(Unexportable::Sampling);
        }
        let (first_ms, last_ms) =
            (record.counters.first_ns / MILLISECOND_NS, record.counters.last_ns / MILLISECOND_NS);
        let tells = |open: &Open| first_ms >= open.start_ms && last_ms <= open.time_ms;
        let same = Open { sampling_interval, ..self.open };
        let present = Open { time_ms: self.now_ms, start_ms: self.start_ms, sampling_interval, records: 0 };
        if tells(&present) {
            return Ok(present);
        }
        if self.open.records > 0 && tells(&same) {
            return Ok(same);
        }
        if last_ms.saturating_sub(first_ms) > u64::from(u32::MAX) {
            return Err(Unexportable::Duration);
        }
        // Slightly later, so that the next records fit into the same message.
        let time_ms = last_ms + 1000;
        let start_ms = time_ms.saturating_sub(UPTIME_BEFORE_MS).min(first_ms);
        Ok(Open { time_ms, start_ms, sampling_interval, records: 0 })
    }

    fn make_room(&mut self, wanted: Open, out: &mut MessageBuffer) {
        let open = Open { records: 0, ..self.open };
        // Time goes on: a later message time expresses the same uptimes.
        let fits = open.start_ms == wanted.start_ms && open.sampling_interval == wanted.sampling_interval;
        if out.is_open() && fits && self.open.records < self.records_max {
            self.open.time_ms = self.open.time_ms.max(wanted.time_ms);
            return;
        }
        self.close(out);
        self.open = Open { records: 0, ..wanted };
        out.open(HEADER_BYTES, 1);
    }

    pub(super) fn close(&mut self, out: &mut MessageBuffer) {
        if !out.is_open() {
            return;
        }
        let open = self.open;
        let mut header = [0; HEADER_BYTES];
        header[0..2].copy_from_slice(&5u16.to_be_bytes());
        header[2..4].copy_from_slice(&open.records.to_be_bytes());
        header[4..8].copy_from_slice(&(open.time_ms.wrapping_sub(open.start_ms) as u32).to_be_bytes());
        header[8..12].copy_from_slice(&((open.time_ms / 1000) as u32).to_be_bytes());
        let residual_ns = open.time_ms % 1000 * MILLISECOND_NS;
        header[12..16].copy_from_slice(&(residual_ns as u32).to_be_bytes());
        header[16..20].copy_from_slice(&self.sequence.to_be_bytes());
        header[21] = self.engine_id;
        if open.sampling_interval != 1 {
            let mode: u16 = match self.sampling {
                SamplingMethod::Systematic => 1,
                SamplingMethod::Random => 2,
            };
            let sampling = mode << 14 | open.sampling_interval as u16;
            header[22..24].copy_from_slice(&sampling.to_be_bytes());
        }
        out.patch(0, &header);
        self.sequence = self.sequence.wrapping_add(u32::from(open.records));
        self.open.records = 0;
        out.totals.messages += 1;
        out.totals.message_bytes += out.close() as u64;
    }
}

fn write(record: &FlowRecord, src: Ipv4Addr, dst: Ipv4Addr, amount: &Amount, start_ms: u64, out: &mut [u8]) {
    let key = &record.key;
    let uptime = |ns: u64| ((ns / MILLISECOND_NS).wrapping_sub(start_ms) as u32).to_be_bytes();
    out[0..4].copy_from_slice(&src.octets());
    out[4..8].copy_from_slice(&dst.octets());
    out[8..12].copy_from_slice(&ipv4_or_none(record.next_hop).octets());
    out[12..14].copy_from_slice(&interface16(key.ingress));
    out[14..16].copy_from_slice(&interface16(record.egress));
    out[16..20].copy_from_slice(&(amount.packets as u32).to_be_bytes());
    out[20..24].copy_from_slice(&(amount.bytes as u32).to_be_bytes());
    out[24..28].copy_from_slice(&uptime(record.counters.first_ns));
    out[28..32].copy_from_slice(&uptime(record.counters.last_ns));
    out[32..34].copy_from_slice(&key.src_port.to_be_bytes());
    out[34..36].copy_from_slice(&key.dst_port.to_be_bytes());
    out[36] = 0;
    out[37] = record.counters.tcp_flags.unwrap_or(0);
    out[38] = key.protocol;
    out[39] = key.traffic_class;
    out[40..42].copy_from_slice(&as16(record.src_as));
    out[42..44].copy_from_slice(&as16(record.dst_as));
    // Prefix lengths are unknown; two bytes are padding.
    out[44..48].fill(0);
}

/// Interfaces have 16 bits; larger numbers are sent as unknown.
fn interface16(number: u32) -> [u8; 2] {
    u16::try_from(number).unwrap_or(0).to_be_bytes()
}

fn as16(number: u32) -> [u8; 2] {
    u16::try_from(number).unwrap_or(AS_TRANS).to_be_bytes()
}
