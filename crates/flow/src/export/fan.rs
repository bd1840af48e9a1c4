//! Spreads records over several collectors: each record goes to one of them, by its flow, or to all.
//!
//! Each collector has its own session, source port and observation domain, so collectors that identify
//! exporters by either see complete sequences. All records of a flow, both directions, go to the same
//! collector.

use crate::record::FlowRecord;
use std::net::IpAddr;
use thalweg_base::{mix64, symmetric_flow_hash};

/// How records are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each record to one collector, by a hash of its flow.
    Balance,
    /// Each record to all collectors.
    Duplicate,
}

/// Spreads batches of records over collectors.
pub struct Fan {
    spread: Spread,
    shares: Vec<Vec<FlowRecord>>,
}

impl Fan {
    /// Makes a fan over this many collectors, at least one.
    pub fn new(collectors: usize, spread: Spread) -> Self {
        Self { spread, shares: vec![Vec::new(); collectors.max(1)] }
    }

    /// Calls `take` with each collector's number and its part of the batch, if not empty; records keep their
    /// order.
    pub fn share(&mut self, records: &[FlowRecord], mut take: impl FnMut(usize, &[FlowRecord])) {
        if records.is_empty() {
            return;
        }
        let collectors = self.shares.len();
        if self.spread == Spread::Duplicate || collectors == 1 {
            (0..collectors).for_each(|collector| take(collector, records));
            return;
        }
        for record in records {
            // Taking the high bits by multiplication needs no division and has negligible bias.
            let place = (u64::from(flow_hash(record)) * collectors as u64) >> 32;
            self.shares[place as usize].push(*record);
        }
        for (collector, share) in self.shares.iter_mut().enumerate() {
            if !share.is_empty() {
                take(collector, share);
                share.clear();
            }
        }
    }
}

/// A hash of a record's flow by addresses, ports and protocol: the same for both directions and in every
/// process.
pub fn flow_hash(record: &FlowRecord) -> u32 {
    let key = &record.key;
    let endpoint = |address: IpAddr, port: u16| match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()) << 16 | u64::from(port),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            mix64((bits >> 64) as u64 ^ mix64(bits as u64)) ^ u64::from(port)
        }
    };
    // ICMP's type and code are not ports: the reverse direction has others.
    let (src_port, dst_port) =
        if matches!(key.protocol, 1 | 58) { (0, 0) } else { (key.src_port, key.dst_port) };
    symmetric_flow_hash(endpoint(key.src, src_port), endpoint(key.dst, dst_port), key.protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Counters, EndReason, FlowKey};

    fn record(n: u32) -> FlowRecord {
        let key = FlowKey {
            src: IpAddr::V4((0x0a00_0000 + n % 1000).into()),
            dst: IpAddr::V4((0xc000_0200 + n % 7).into()),
            src_port: n as u16,
            dst_port: 443,
            protocol: if n.is_multiple_of(11) { 1 } else { 6 },
            traffic_class: 0,
            ingress: 0,
            vlan: 0,
            mpls_label: None,
        };
        FlowRecord::new(
            key,
            Counters { packets: u64::from(n), ..Counters::default() },
            EndReason::IdleTimeout,
        )
    }

    #[test]
    fn balanced_records_go_to_one_collector_with_their_way_back() {
        let records: Vec<_> = (0..10_000).map(record).collect();
        let back: Vec<_> =
            records.iter().map(|record| FlowRecord { key: record.key.reversed(), ..*record }).collect();
        let placed = |records: &[FlowRecord]| {
            let mut fan = Fan::new(3, Spread::Balance);
            let mut places = vec![Vec::new(); 3];
            for batch in records.chunks(100) {
                fan.share(batch, |collector, share| {
                    places[collector].extend(share.iter().map(|record| record.counters.packets));
                });
            }
            places
        };
        let places = placed(&records);
        assert_eq!(places, placed(&back));
        let mut all: Vec<_> = places.concat();
        all.sort_unstable();
        assert_eq!(all, (0..10_000).collect::<Vec<u64>>());
        assert!(places.iter().all(|place| (2500..4500).contains(&place.len())), "uneven");
    }

    #[test]
    fn duplicated_records_go_to_all() {
        let records: Vec<_> = (0..10).map(record).collect();
        let mut told = Vec::new();
        Fan::new(2, Spread::Duplicate)
            .share(&records, |collector, share| told.push((collector, share.len())));
        assert_eq!(told, [(0, 10), (1, 10)]);
    }
}
