//! A compact list of records for passing them between cores: most records take one cache line instead of
//! five.
//!
//! A plain record is an IPv4 record of one direction with only the facts of its packets. A flood of new flows
//! consists of those, and then the cost of writing and reading records limits the packet rate. All other
//! records are stored whole. The list keeps its order.

use std::net::{IpAddr, Ipv4Addr};

use thalweg_flow::export::Amount;
use thalweg_flow::fields::unknown_record;
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};

/// A plain record.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Plain {
    bytes: u64,
    first_ns: u64,
    last_ns: u64,
    packets: u32,
    sampling_interval: u32,
    ingress: u32,
    egress: u32,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    src_port: u16,
    dst_port: u16,
    vlan: u16,
    protocol: u8,
    traffic_class: u8,
    tcp_flags: Option<u8>,
    ttl_min: Option<u8>,
    ttl_max: Option<u8>,
    application: u8,
    end_reason: Option<EndReason>,
}

const _: () = assert!(size_of::<Plain>() == 64);

impl Plain {
    /// The record in compact form, if it is plain.
    #[inline(always)]
    fn of(record: &FlowRecord) -> Option<Self> {
        let FlowKey { src: IpAddr::V4(src), dst: IpAddr::V4(dst), .. } = record.key else { return None };
        if !record.is_plain() {
            return None;
        }
        let FlowKey { src_port, dst_port, protocol, traffic_class, ingress, vlan, .. } = record.key;
        let Counters { packets, bytes, first_ns, last_ns, tcp_flags, ttl_min, ttl_max } = record.counters;
        let packets = u32::try_from(packets).ok()?;
        Some(Self {
            bytes,
            first_ns,
            last_ns,
            packets,
            sampling_interval: record.sampling_interval,
            src,
            dst,
            src_port,
            dst_port,
            ingress,
            egress: record.egress,
            vlan,
            protocol,
            traffic_class,
            tcp_flags,
            ttl_min,
            ttl_max,
            application: record.application,
            end_reason: record.end_reason,
        })
    }

    /// Makes an [unknown record](unknown_record) this one.
    #[inline(always)]
    fn write_to(&self, record: &mut FlowRecord) {
        record.key = FlowKey {
            src: IpAddr::V4(self.src),
            dst: IpAddr::V4(self.dst),
            src_port: self.src_port,
            dst_port: self.dst_port,
            protocol: self.protocol,
            traffic_class: self.traffic_class,
            ingress: self.ingress,
            vlan: self.vlan,
            mpls_label: None,
        };
        record.counters = Counters {
            packets: u64::from(self.packets),
            bytes: self.bytes,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            tcp_flags: self.tcp_flags,
            ttl_min: self.ttl_min,
            ttl_max: self.ttl_max,
        };
        record.end_reason = self.end_reason;
        record.application = self.application;
        record.egress = self.egress;
        record.sampling_interval = self.sampling_interval;
    }
}

/// A list of records.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    plain: Vec<Plain>,
    /// The others, each with its place among all.
    others: Vec<(u32, FlowRecord)>,
}

impl Packed {
    pub(crate) fn with_capacity(records: usize) -> Self {
        Self { plain: Vec::with_capacity(records), others: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, record: &FlowRecord) {
        match Plain::of(record) {
            Some(plain) => self.plain.push(plain),
            None => self.others.push((self.len() as u32, *record)),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.others.len()
    }

    /// How many records have room without an allocation, at most.
    pub(crate) fn capacity(&self) -> usize {
        self.plain.capacity() + self.others.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn clear(&mut self) {
        self.plain.clear();
        self.others.clear();
    }

    /// Appends all records, in order. A record is hundreds of bytes long, so each is written where it stays.
    pub(crate) fn unpack(&self, records: &mut Vec<FlowRecord>) {
        records.reserve(self.len());
        let (unknown, mut plain, mut place) = (unknown_record(), self.plain.iter(), 0);
        let unpack = |plain: &mut dyn Iterator<Item = &Plain>, records: &mut Vec<FlowRecord>| {
            for packed in plain {
                records.push(unknown);
                records.last_mut().into_iter().for_each(|record| packed.write_to(record));
            }
        };
        for (at, other) in &self.others {
            unpack(&mut plain.by_ref().take((at - place) as usize), records);
            records.push(*other);
            place = at + 1;
        }
        unpack(&mut plain, records);
    }

    /// The packets and bytes in all records.
    pub(crate) fn amount(&self) -> Amount {
        let plain = self.plain.iter().map(|packed| Amount {
            records: 1,
            packets: packed.packets.into(),
            bytes: packed.bytes,
        });
        plain.chain(self.others.iter().map(|(_, record)| Amount::of(record))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::DropReason;
    use thalweg_flow::{Drops, Translation};

    fn plain(number: u16) -> FlowRecord {
        let key = FlowKey {
            src: IpAddr::from([192, 0, 2, number as u8]),
            dst: IpAddr::from([198, 51, 100, 2]),
            src_port: number,
            dst_port: 3,
            protocol: 17,
            traffic_class: 4,
            ingress: 5,
            vlan: 6,
            mpls_label: None,
        };
        let counters = Counters {
            packets: u64::from(u32::MAX),
            bytes: u64::MAX,
            first_ns: 7,
            last_ns: u64::MAX - 1,
            tcp_flags: Some(8),
            ttl_min: Some(9),
            ttl_max: None,
        };
        FlowRecord {
            application: 11,
            egress: 12,
            sampling_interval: 13,
            ..FlowRecord::new(key, counters, EndReason::EndDetected)
        }
    }

    /// One for each thing that makes a record other than plain.
    fn others() -> Vec<FlowRecord> {
        let plain = plain(1);
        let (v4, v6) = (IpAddr::from([203, 0, 113, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]));
        let mut drops = Drops::default();
        drops.add(DropReason::AclDenied, 1, 100);
        let mut without_reason = Drops::default();
        without_reason.add_without_reason(1, 100);
        let translation = Translation { src: v4, dst: v4, src_port: 1, dst_port: 2 };
        let many = Counters { packets: 1 << 32, ..plain.counters };
        vec![
            FlowRecord { key: FlowKey { src: v6, dst: v6, ..plain.key }, ..plain },
            FlowRecord { key: FlowKey { mpls_label: Some(0), ..plain.key }, ..plain },
            FlowRecord { counters: many, ..plain },
            FlowRecord { reverse: Some(Counters::default()), ..plain },
            FlowRecord { next_hop: Some(v4), ..plain },
            FlowRecord { src_as: 1, ..plain },
            FlowRecord { dst_as: 1, ..plain },
            FlowRecord { bgp_next_hop: Some(v6), ..plain },
            FlowRecord { translation: Some(translation), ..plain },
            FlowRecord { drops, ..plain },
            FlowRecord { drops: without_reason, ..plain },
        ]
    }

    #[test]
    fn what_is_put_in_comes_out_as_it_was() {
        let mut chance = thalweg_base::XorShift64Star::new(3);
        let others = others();
        let mut packed = Packed::with_capacity(4);
        for round in 0..200 {
            let records: Vec<FlowRecord> = (0..round)
                .map(|number| match chance.below(2 + round as u32 / 50) {
                    0 => others[chance.below(others.len() as u32) as usize],
                    _ => plain(number),
                })
                .collect();
            packed.clear();
            records.iter().for_each(|record| packed.push(record));
            assert_eq!(packed.len(), records.len());
            let mut unpacked = vec![plain(0)];
            packed.unpack(&mut unpacked);
            assert_eq!(unpacked.split_off(1), records, "behind what was there");
            assert_eq!(packed.amount(), Amount::of_all(&records));
        }
    }

    #[test]
    fn plain_records_are_kept_as_such_and_no_others() {
        let mut record = unknown_record();
        Plain::of(&plain(1)).expect("it is plain").write_to(&mut record);
        assert_eq!(record, plain(1));
        assert!(others().iter().all(|record| Plain::of(record).is_none()));
    }
}
