//! What the flow records must say at the end: packets and bytes of each flow, counted one by one on arrival.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thalweg_flow::{FlowKey, FlowRecord};
use thalweg_wire::ip_protocol;

use super::frames::{Arrival, Header};
use super::judge::{Broken, Fate};
use super::plan::{Kind, Plan, Setup};

/// Addresses, protocol and ports.
type Flow = (IpAddr, IpAddr, u8, u16, u16);

/// A simple count of packets by flow. It continues over reloads as long as there is a meter.
#[derive(Default)]
pub(super) struct Slow {
    flows: BTreeMap<Flow, (u64, u64)>,
    /// The number of all packets that arrived.
    seen: u64,
    dropped: u64,
    /// Not all packets are counted by flow, because some are sampled or damaged.
    is_partial: bool,
    without_ports: bool,
}

impl Slow {
    pub(super) fn new(plan: &Plan) -> Self {
        let some_without = |setup: &Setup| setup.flows.is_some_and(|flows| flows.without_ports);
        let samples = |setup: &Setup| setup.flows.is_some_and(|flows| flows.sample > 1);
        Self {
            // A later fragment has ports only if its first was seen in time, so the comparison ignores ports.
            without_ports: plan.has_fragments() || plan.routers.iter().any(some_without),
            is_partial: plan.routers.iter().any(samples),
            ..Self::default()
        }
    }

    fn flow(&self, key: &FlowKey) -> Flow {
        let ports = if self.without_ports { (0, 0) } else { (key.src_port, key.dst_port) };
        (key.src, key.dst, key.protocol, ports.0, ports.1)
    }

    /// Counts a packet that a meter sees.
    pub(super) fn count(&mut self, arrival: &Arrival, fate: &Fate) {
        self.seen += 1;
        if !arrival.is_whole {
            self.is_partial |= arrival.kind != Kind::NotIp;
            return;
        }
        let Some(header) = Header::of(arrival.l3()) else { return };
        let is_unread = matches!(arrival.kind, Kind::Martian | Kind::Multicast) || header.ttl == 0;
        if is_unread || header.source == header.destination {
            return;
        }
        let ports = match (header.protocol, header.icmp, header.ports) {
            _ if self.without_ports => (0, 0),
            (ip_protocol::ICMP, Some((kind, code)), _) => (0, u16::from_be_bytes([kind, code])),
            (.., ports) => ports.unwrap_or_default(),
        };
        let flow = (header.source, header.destination, header.protocol, ports.0, ports.1);
        let counted = self.flows.entry(flow).or_default();
        (counted.0, counted.1) = (counted.0 + 1, counted.1 + header.length as u64);
        self.dropped += u64::from(fate.is_err());
    }

    /// Starts for a new meter; the counts of the previous one are in records.
    pub(super) fn begins_anew(&mut self) {
        self.seen = 0;
    }

    /// The packets that arrived at the current meter.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Compares the counts with all records, after everything was reported.
    pub(super) fn compare(&self, records: &[FlowRecord]) -> Result<(), Broken> {
        if self.is_partial {
            return Ok(());
        }
        let mut flows: BTreeMap<Flow, (u64, u64)> = BTreeMap::new();
        for record in records {
            let back = record.reverse.map(|counters| (self.flow(&record.key.reversed()), counters));
            for (flow, counters) in
                [Some((self.flow(&record.key), record.counters)), back].into_iter().flatten()
            {
                if counters.packets > 0 {
                    let counted = flows.entry(flow).or_default();
                    (counted.0, counted.1) = (counted.0 + counters.packets, counted.1 + counters.bytes);
                }
            }
        }
        for flow in flows.keys().chain(self.flows.keys()) {
            if flows.get(flow) != self.flows.get(flow) {
                let text = format!(
                    "{flow:?}: {:?} packets and bytes in records, {:?} arrived",
                    flows.get(flow),
                    self.flows.get(flow)
                );
                return Err(("records say what arrived", text));
            }
        }
        let dropped: u64 = records.iter().map(|record| record.drops.packets()).sum();
        match dropped == self.dropped {
            true => Ok(()),
            false => {
                Err(("records say what was dropped", format!("{dropped} packets, and {} were", self.dropped)))
            }
        }
    }
}
