//! sFlow samples as flow records: a sampled packet is a flow of one packet, and the sampling rate comes with it.
//!
//! sFlow has no times; those of records are the datagram's arrival.

use thalweg_base::{Aged, LinkType};
use thalweg_wire::MacAddr;
use thalweg_wire::ip_protocol;
use thalweg_wire::sflow::{self, Datagram, FlowSample, Interface, IpFields, Sample, SflowFault};

use super::section::flow_of;
use crate::{Counters, FlowKey, FlowRecord, NO_INTERFACE, SAMPLING_UNKNOWN};

/// The most sub-agents whose sequence numbers are remembered.
const SESSIONS_MAX: usize = 16_384;
/// `header_protocol` of frames that are read.
const ETHERNET: u32 = 1;
const IPV4: u32 = 11;
const IPV6: u32 = 12;

/// Counters of sFlow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SflowCounters {
    pub datagrams: u64,
    pub flow_records: u64,
    /// Sampled packets that are not IP, or of a link layer that is not read.
    pub without_addresses: u64,
    /// Samples of interfaces' counters, which are no flows.
    pub counter_samples: u64,
    /// Samples of vendors, or of kinds that are not read.
    pub other_samples: u64,
    /// Times that datagrams were missing, and how many.
    pub gaps: u64,
    pub datagrams_missing: u64,
}

/// Converts datagrams to flow records.
pub struct SflowImporter {
    /// The next sequence number of each exporter's sub-agents.
    sessions: Aged<(u64, u32), u32>,
    counters: SflowCounters,
}

impl Default for SflowImporter {
    fn default() -> Self {
        Self { sessions: Aged::new(SESSIONS_MAX, usize::MAX), counters: SflowCounters::default() }
    }
}

impl SflowImporter {
    /// Reads a datagram of this exporter and appends its flow records.
    ///
    /// # Errors
    /// As [`sflow::read`].
    pub fn handle_datagram(
        &mut self,
        exporter: u64,
        bytes: &[u8],
        received_ns: u64,
        flows: &mut Vec<FlowRecord>,
    ) -> Result<(Datagram, Option<SflowFault>), SflowFault> {
        let counters = &mut self.counters;
        let read = sflow::read(bytes, |_, sample| match sample {
            Sample::Flow(sample) => match record(sample, received_ns) {
                Some(record) => {
                    counters.flow_records += 1;
                    flows.push(record);
                }
                None => counters.without_addresses += 1,
            },
            Sample::Counters(_) => counters.counter_samples += 1,
            Sample::Other => counters.other_samples += 1,
        })?;
        counters.datagrams += 1;
        self.observe((exporter, read.0.sub_agent), read.0.sequence);
        Ok(read)
    }

    /// What came so far.
    pub fn counters(&self) -> &SflowCounters {
        &self.counters
    }

    /// Compares a datagram's number with the expected one. One that is far from it is that of a restart.
    fn observe(&mut self, session: (u64, u32), sequence: u32) {
        const RESTART: u32 = 1 << 16;
        let next = sequence.wrapping_add(1);
        let Some(expected) = self.sessions.renew(&session) else {
            self.sessions.insert(session, next, 0);
            return;
        };
        let ahead = sequence.wrapping_sub(*expected);
        if (1..RESTART).contains(&ahead) {
            self.counters.gaps += 1;
            self.counters.datagrams_missing += u64::from(ahead);
        } else if ahead >= u32::MAX - RESTART {
            // Late, and counted as missing before.
            self.counters.datagrams_missing = self.counters.datagrams_missing.saturating_sub(1);
            return;
        }
        *expected = next;
    }
}

/// The record of a sampled packet, if it is IP.
fn record(sample: &FlowSample<'_>, at_ns: u64) -> Option<FlowRecord> {
    let seen = sample.header.and_then(|header| {
        let link = match header.protocol {
            ETHERNET => LinkType::Ethernet,
            IPV4 | IPV6 => LinkType::RawIp,
            _ => return None,
        };
        let mut record = flow_of(link, header.start, header.bytes, at_ns).ok()?;
        if let (LinkType::Ethernet, Some(&[a, b, c, d, e, f, g, h, i, j, k, l])) =
            (link, header.start.first_chunk())
        {
            record.details.dst_mac = Some(MacAddr([a, b, c, d, e, f]));
            record.details.src_mac = Some(MacAddr([g, h, i, j, k, l]));
        }
        Some(record)
    });
    let mut record = seen.or_else(|| sample.ip.map(|ip| of_fields(&ip, at_ns)))?;
    let number = |interface| match interface {
        Interface::Number(number) => number,
        _ => NO_INTERFACE,
    };
    (record.key.ingress, record.egress) = (number(sample.input), number(sample.output));
    if matches!(sample.output, Interface::Dropped(_)) {
        record.drops.add_without_reason(1, record.counters.bytes);
    }
    if let Some(vlan) = sample.vlan.filter(|_| record.key.vlan == 0) {
        record.key.vlan = u16::try_from(vlan & 0x0fff).unwrap_or(0);
    }
    let prefix_length = |bits: u32| u8::try_from(bits).ok().filter(|bits| *bits <= 128);
    if let Some(router) = sample.router {
        record.next_hop = Some(router.next_hop).filter(|hop| !hop.is_unspecified());
        record.details.src_prefix_length = prefix_length(router.src_prefix_length);
        record.details.dst_prefix_length = prefix_length(router.dst_prefix_length);
    }
    if let Some(gateway) = sample.gateway {
        record.bgp_next_hop = Some(gateway.next_hop).filter(|hop| !hop.is_unspecified());
        (record.src_as, record.dst_as) = (gateway.src_as, gateway.dst_as.unwrap_or(0));
    }
    record.sampling_interval = if sample.rate == 0 { SAMPLING_UNKNOWN } else { sample.rate };
    Some(record)
}

fn of_fields(ip: &IpFields, at_ns: u64) -> FlowRecord {
    let small = |number: u32| u8::try_from(number).unwrap_or(0);
    let protocol = small(ip.protocol);
    let port =
        |number: u32| u16::try_from(number).ok().filter(|_| ip_protocol::has_ports(protocol)).unwrap_or(0);
    let key = FlowKey {
        src: ip.src,
        dst: ip.dst,
        src_port: port(ip.src_port),
        dst_port: port(ip.dst_port),
        protocol,
        traffic_class: small(ip.traffic_class),
        ingress: NO_INTERFACE,
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets: 1,
        bytes: ip.bytes.into(),
        first_ns: at_ns,
        last_ns: at_ns,
        tcp_flags: (protocol == ip_protocol::TCP).then_some(small(ip.tcp_flags)),
        ttl_min: None,
        ttl_max: None,
    };
    FlowRecord::new(key, counters, None)
}
