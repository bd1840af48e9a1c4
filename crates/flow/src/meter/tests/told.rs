//! What is told of flows while they go on, beside a count packet by packet.

use super::*;
use crate::watch::{INTERVAL_NS, Watch};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Packets and bytes by interval and direction.
type Counts = BTreeMap<(u64, IpAddr, IpAddr, u16, u16, u8), (u64, u64)>;

#[derive(Debug, Default)]
struct Heard {
    counts: Counts,
    flows: u64,
}

/// A shard's watcher: what it took belongs to the interval that is closed next.
#[derive(Debug)]
struct Listener {
    taken: Vec<FlowRecord>,
    heard: Arc<Mutex<Heard>>,
}

impl Watch for Listener {
    fn take(&mut self, counted: &FlowRecord, is_first: bool) {
        self.taken.push(*counted);
        self.heard.lock().unwrap().flows += u64::from(is_first);
    }

    fn close(&mut self, interval: u64, next: u64) {
        assert!(next > interval);
        let mut heard = self.heard.lock().unwrap();
        for record in self.taken.drain(..) {
            let back = record.reverse.map(|counters| (record.key.reversed(), counters));
            for (key, counters) in std::iter::once((record.key, record.counters)).chain(back) {
                count(&mut heard.counts, interval, &key, (counters.packets, counters.bytes));
            }
        }
    }
}

fn count(counts: &mut Counts, interval: u64, key: &FlowKey, (packets, bytes): (u64, u64)) {
    if packets > 0 {
        let key = (interval, key.src, key.dst, key.src_port, key.dst_port, key.protocol);
        let sum = counts.entry(key).or_default();
        *sum = (sum.0 + packets, sum.1 + bytes);
    }
}

/// Flows end by every timeout, are evicted, passed by in a flood, and go on; all of an interval is told in it.
#[test]
fn what_is_told_of_an_interval_is_what_was_counted_in_it() {
    for (seed, biflow, fates, flows_max, hosts) in [
        (1, false, false, 10_000, 5),
        (2, true, true, 10_000, 5),
        (3, false, true, 80, 250),
        (4, true, false, 80, 250),
    ] {
        let options = MeterOptions {
            flows_max,
            biflow,
            fates,
            watched: true,
            idle_timeout_ns: 3 * SECOND_NS,
            active_timeout_ns: 5 * SECOND_NS,
            ..options()
        };
        let mut run = Run::new(&options, Grouping::Groups { count: 3, with_index: false });
        let heard = Arc::new(Mutex::new(Heard::default()));
        run.meter.watch(|| Some(Box::new(Listener { taken: Vec::new(), heard: Arc::clone(&heard) })));
        let mut source = Source::new(seed, hosts);
        let mut expected = Counts::new();
        let samples: Vec<Sample> =
            source.chunk(6_000).into_iter().map(|sample| Sample { drop: None, ..sample }).collect();
        for second in samples.chunk_by(|a, b| a.arrival_ns / INTERVAL_NS == b.arrival_ns / INTERVAL_NS) {
            for chunk in second.chunks(40) {
                run.observe(chunk);
            }
            for sample in second {
                let key = FlowKey {
                    src: sample.src,
                    dst: sample.dst,
                    src_port: sample.src_port,
                    dst_port: sample.dst_port,
                    protocol: sample.protocol,
                    traffic_class: 0,
                    ingress: 0,
                    vlan: 0,
                    mpls_label: None,
                };
                count(&mut expected, sample.arrival_ns / INTERVAL_NS, &key, (1, sample.bytes()));
            }
        }
        run.meter.end_watch();
        run.flush();
        let heard = heard.lock().unwrap();
        assert_eq!(heard.counts, expected, "seed {seed}");
        assert_eq!(heard.flows, run.meter.totals().flows_created, "seed {seed}");
    }
}
