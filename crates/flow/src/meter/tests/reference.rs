//! The meter's rules in their plainest form. Uses descriptions of packets, not their bytes.

use super::*;
use std::collections::BTreeMap;

/// A tick of the wheel: an expired flow is reported when the clock is in a later tick.
fn is_over(deadline_ns: u64, clock_ns: u64) -> bool {
    const TICK_NS: u64 = 1 << 28;
    deadline_ns / TICK_NS < clock_ns / TICK_NS
}

#[derive(Clone, Debug)]
struct Flow {
    /// The key of its first packet.
    key: FlowKey,
    /// First direction, opposite direction.
    halves: [Option<Counters>; 2],
    /// Times of the last packets of both directions, including reported ones.
    lasts_ns: [u64; 2],
    fins: [bool; 2],
    ended: bool,
    drops: crate::Drops,
    egress: u32,
}

pub(super) struct Reference {
    options: MeterOptions,
    clock_ns: u64,
    pub(super) set_back: u64,
    flows: BTreeMap<FlowKey, Flow>,
    pub(super) records: Vec<FlowRecord>,
}

impl Flow {
    fn new(key: FlowKey) -> Self {
        let (drops, egress) = (crate::Drops::default(), crate::NO_INTERFACE);
        Self { key, halves: [None; 2], lasts_ns: [0; 2], fins: [false; 2], ended: false, drops, egress }
    }

    fn last_ns(&self) -> u64 {
        self.lasts_ns[0].max(self.lasts_ns[1])
    }

    /// Whether the clock has gone back since its last packet.
    fn is_ahead_of(&self, time_ns: u64, options: &MeterOptions) -> bool {
        time_ns + options.active_timeout_ns <= self.last_ns()
    }

    fn quiet_ns(&self, options: &MeterOptions) -> u64 {
        self.last_ns() + if self.ended { options.end_linger_ns } else { options.idle_timeout_ns }
    }

    fn report_ns(&self, options: &MeterOptions) -> Option<u64> {
        let first = self.halves.iter().flatten().map(|half| half.first_ns).min()?;
        Some(first + options.active_timeout_ns)
    }

    fn record(&self, reason: EndReason) -> Option<FlowRecord> {
        let nothing = |other: Counters| Counters {
            first_ns: other.first_ns,
            last_ns: other.first_ns,
            ..Counters::default()
        };
        let counters = match self.halves {
            [None, None] => return None,
            [Some(forward), _] => forward,
            [None, Some(reverse)] => nothing(reverse),
        };
        let mut record = FlowRecord::new(self.key, counters, reason);
        record.reverse = self.halves[1];
        record.drops = self.drops;
        record.egress = self.egress;
        Some(record)
    }

    fn report(&mut self, reason: EndReason, records: &mut Vec<FlowRecord>) {
        records.extend(self.record(reason));
        self.halves = [None; 2];
        self.drops = Default::default();
    }
}

impl Reference {
    pub(super) fn new(options: &MeterOptions) -> Self {
        let (flows, records) = (BTreeMap::new(), Vec::new());
        Self { options: options.clone(), clock_ns: 0, set_back: 0, flows, records }
    }

    fn key(&self, sample: &Sample) -> FlowKey {
        let fields = self.options.key;
        FlowKey {
            src: sample.src,
            dst: sample.dst,
            src_port: if fields.ports { sample.src_port } else { 0 },
            dst_port: if fields.ports { sample.dst_port } else { 0 },
            protocol: sample.protocol,
            traffic_class: if fields.traffic_class { sample.traffic_class } else { 0 },
            ingress: if fields.ingress {
                crate::interface_of_port(sample.ingress)
            } else {
                crate::NO_INTERFACE
            },
            vlan: if fields.vlan { sample.vlan } else { 0 },
            mpls_label: if fields.mpls { sample.label } else { None },
        }
    }

    /// The fields that distinguish flows.
    fn identity(&self, key: FlowKey) -> FlowKey {
        if !self.options.biflow {
            return key;
        }
        let key = FlowKey { traffic_class: 0, ingress: 0, ..key };
        key.min(key.reversed())
    }

    pub(super) fn observe(&mut self, samples: &[Sample], clock_ns: u64) {
        self.advance(clock_ns);
        for sample in samples {
            let unreadable = [DropReason::NotIp, DropReason::TransportTruncated];
            if !sample.drop.is_some_and(|reason| unreadable.contains(&reason)) {
                self.count(sample);
            }
        }
    }

    fn advance(&mut self, clock_ns: u64) {
        let (options, records, set_back) = (&self.options, &mut self.records, &mut self.set_back);
        let goes_back = is_over(clock_ns + options.active_timeout_ns, self.clock_ns);
        if !goes_back && !is_over(self.clock_ns, clock_ns) {
            return;
        }
        self.clock_ns = clock_ns;
        self.flows.retain(|_, flow| {
            if goes_back && flow.is_ahead_of(clock_ns, options) {
                flow.report(EndReason::ForcedEnd, records);
                *set_back += 1;
                return false;
            }
            let quiet_ns = flow.quiet_ns(options);
            let report_ns = flow.report_ns(options).filter(|report_ns| *report_ns <= quiet_ns);
            if report_ns.is_some_and(|report_ns| is_over(report_ns, clock_ns)) {
                flow.report(EndReason::ActiveTimeout, records);
            }
            if is_over(quiet_ns, clock_ns) {
                flow.report(reason(flow), records);
                return false;
            }
            true
        });
    }

    fn count(&mut self, sample: &Sample) {
        let key = self.key(sample);
        let identity = self.identity(key);
        let flow = self.flows.entry(identity).or_insert_with(|| Flow::new(key));
        let (at_ns, flags) = (sample.arrival_ns, if sample.protocol == 6 { sample.tcp_flags } else { 0 });
        let is_new = flow.last_ns() == 0;
        if flow.is_ahead_of(at_ns, &self.options) {
            flow.report(EndReason::ForcedEnd, &mut self.records);
            self.set_back += 1;
            *flow = Flow::new(key);
        }
        let is_new = is_new || flow.last_ns() == 0;
        let begins = flow.ended && flags & 0x16 == 2;
        let quiet_ns = flow.quiet_ns(&self.options);
        if flow.report_ns(&self.options).is_some_and(|report_ns| report_ns <= quiet_ns && report_ns <= at_ns)
        {
            flow.report(EndReason::ActiveTimeout, &mut self.records);
        }
        if !is_new && (quiet_ns <= at_ns || begins) {
            flow.report(reason(flow), &mut self.records);
            *flow = Flow::new(key);
        }
        let reverse = usize::from(self.options.biflow && is_reverse(&key, &flow.key));
        let bytes = match self.options.count {
            Bytes::Ip => sample.bytes(),
            Bytes::Frame => testing::chunk(0, 0, &[*sample]).packets()[0].wire_len.into(),
        };
        let fresh = Counters { first_ns: at_ns, ..Counters::default() };
        let half = flow.halves[reverse].get_or_insert(fresh);
        half.packets += 1;
        half.bytes += bytes;
        half.first_ns = half.first_ns.min(at_ns);
        half.last_ns = half.last_ns.max(at_ns);
        if sample.protocol == 6 {
            half.tcp_flags = Some(half.tcp_flags.unwrap_or(0) | flags);
        }
        half.ttl_min = half.ttl_min.map_or(Some(sample.ttl), |ttl| Some(ttl.min(sample.ttl)));
        half.ttl_max = half.ttl_max.max(Some(sample.ttl));
        flow.lasts_ns[reverse] = flow.halves[reverse].map_or(0, |half| half.last_ns);
        if self.options.fates {
            match sample.drop {
                Some(reason) => flow.drops.add(reason, 1, bytes),
                None => flow.egress = crate::NO_INTERFACE,
            }
        }
        flow.fins[reverse] |= flags & 1 != 0;
        let both = flow.fins[0] && (flow.fins[1] || !self.options.biflow);
        flow.ended |= flags & 4 != 0 || both;
    }

    pub(super) fn flush(&mut self) {
        for flow in self.flows.values_mut() {
            flow.report(EndReason::ForcedEnd, &mut self.records);
        }
        self.flows.clear();
    }

    pub(super) fn cached(&self) -> Vec<FlowRecord> {
        self.flows.values().filter_map(|flow| flow.record(EndReason::ActiveTimeout)).collect()
    }
}

fn reason(flow: &Flow) -> EndReason {
    if flow.ended { EndReason::EndDetected } else { EndReason::IdleTimeout }
}

/// Whether a packet with this key goes against the flow's first direction. One from an endpoint to itself does
/// not.
fn is_reverse(key: &FlowKey, first: &FlowKey) -> bool {
    (key.src, key.src_port, key.dst) != (first.src, first.src_port, first.dst)
}
