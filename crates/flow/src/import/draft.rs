//! Builds a flow record from received fields: it takes them in any order, then decides what they mean
//! together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_base::DropReason;
use thalweg_wire::netflow::decode::{Field, FieldName, Header, SessionKey, Version};
use thalweg_wire::netflow::element::*;
use thalweg_wire::{application, ip_protocol};

use super::Counters as ImportCounters;
use super::context::{Context, Sampler, Sampling};
use crate::{
    Counters, Drops, EndReason, FlowKey, FlowRecord, NO_AS, NO_INTERFACE, SAMPLING_UNKNOWN, Translation,
};

const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;

/// Cisco's numbers in NetFlow 9 for what IPFIX has as 225 to 228 (ASA before 8.4(5)).
const CISCO_XLATE_SRC_ADDRESS: u16 = 40_001;
const CISCO_XLATE_DST_ADDRESS: u16 = 40_002;
const CISCO_XLATE_SRC_PORT: u16 = 40_003;
const CISCO_XLATE_DST_PORT: u16 = 40_004;

/// Reserved AS number (RFC 7300); some exporters send it for unknown.
const LAST_AS: u64 = 0xffff_ffff;

/// The best of several values for one fact: the highest rank wins, the first among equals.
#[derive(Clone, Copy, Debug, Default)]
struct Best {
    rank: u8,
    value: Option<u64>,
}

impl Best {
    #[inline]
    fn offer(&mut self, rank: u8, value: Option<u64>) {
        if value.is_some() && (self.value.is_none() || rank > self.rank) {
            *self = Self { rank, value };
        }
    }
}

/// How precisely an element gives a time.
mod time_rank {
    pub(super) const SECONDS: u8 = 1;
    pub(super) const UPTIME: u8 = 2;
    pub(super) const BEFORE_EXPORT: u8 = 3;
    pub(super) const MILLISECONDS: u8 = 4;
    pub(super) const MICROSECONDS: u8 = 5;
    pub(super) const NANOSECONDS: u8 = 6;
}

/// How well an element counts. Counts of sent traffic replace those of received traffic if there are none.
mod count_rank {
    pub(super) const LAYER2: u8 = 1;
    pub(super) const POST: u8 = 2;
    pub(super) const TOTAL: u8 = 3;
    pub(super) const INITIATOR: u8 = 4;
    pub(super) const DELTA: u8 = 5;
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    packets: Best,
    bytes: Best,
    first_ns: Best,
    last_ns: Best,
    first_uptime_ms: Option<u32>,
    last_uptime_ms: Option<u32>,
    duration_ns: Option<u64>,
    tcp_flags: Option<u8>,
    ttl_min: Option<u8>,
    ttl_max: Option<u8>,
}

impl Direction {
    /// Takes a field with counts, times or a summary of headers; returns whether it is one.
    #[inline]
    fn take(&mut self, id: u16, field: &Field<'_>, header: &Header) -> bool {
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

    fn counts(&self) -> bool {
        self.packets.value.is_some() || self.bytes.value.is_some()
    }

    /// Resolves times that count from the exporter's start, by a header that says when that was.
    fn offer_uptime(&mut self, header: &Header) {
        let time = |uptime_ms: Option<u32>| uptime_ms.and_then(|ms| header.uptime_to_ns(ms));
        self.first_ns.offer(time_rank::UPTIME, time(self.first_uptime_ms));
        self.last_ns.offer(time_rank::UPTIME, time(self.last_uptime_ms));
    }

    /// First and last time, from what is known.
    fn times(&self, event_ns: Option<u64>) -> Option<(u64, u64)> {
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
    fn uptime_duration_ns(&self) -> u64 {
        let duration_ms =
            self.last_uptime_ms.zip(self.first_uptime_ms).map(|(last, first)| last.wrapping_sub(first));
        u64::from(duration_ms.unwrap_or(0)) * NS_PER_MS
    }

    fn counters(&self, first_ns: u64, last_ns: u64, protocol: u8) -> Counters {
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

#[derive(Clone, Copy, Debug)]
struct Pair<A> {
    src: Option<A>,
    dst: Option<A>,
}

impl<A> Default for Pair<A> {
    fn default() -> Self {
        Self { src: None, dst: None }
    }
}

impl<A: Copy + PartialEq + Into<IpAddr>> Pair<A> {
    fn is_known(&self) -> bool {
        self.src.is_some() || self.dst.is_some()
    }

    /// Whether one of the addresses is not all zeros.
    fn says_something(&self, nothing: A) -> bool {
        [self.src, self.dst].into_iter().flatten().any(|address| address != nothing)
    }

    fn or(&self, nothing: A) -> (IpAddr, IpAddr) {
        (self.src.unwrap_or(nothing).into(), self.dst.unwrap_or(nothing).into())
    }
}

/// The fields received so far.
#[derive(Default)]
pub(super) struct Draft {
    v4: Pair<Ipv4Addr>,
    v6: Pair<Ipv6Addr>,
    ip_version: Option<u64>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    icmp_type_code: Option<u16>,
    icmp_type: Option<u8>,
    icmp_code: Option<u8>,
    protocol: u8,
    traffic_class: Option<u8>,
    ingress: u32,
    egress: u32,
    metered_at_egress: bool,
    vlan: u16,
    mpls_label: Option<u32>,
    forward: Direction,
    reverse: Direction,
    event_ns: Best,
    start_ms: Option<u64>,
    next_hop: Option<IpAddr>,
    bgp_next_hop: Option<IpAddr>,
    src_as: u32,
    dst_as: u32,
    post: (Option<IpAddr>, Option<IpAddr>),
    post_ports: (Option<u16>, Option<u16>),
    dropped: (Option<u64>, Option<u64>),
    forwarding_status: Option<u64>,
    end_reason: Option<EndReason>,
    application_id: Option<(u64, u8)>,
    application_code: u8,
    sampling: Sampling,
    sampler: Option<u64>,
}

/// A TTL or hop limit. No packet on the wire has 0; exporters send it for unknown.
fn ttl(number: Option<u64>) -> Option<u8> {
    number.and_then(|ttl| u8::try_from(ttl).ok()).filter(|ttl| *ttl != 0)
}

/// An address, unless it is all zeros.
fn address(field: &Field<'_>) -> Option<IpAddr> {
    field.address().filter(|address| !address.is_unspecified())
}

fn ipv4(field: &Field<'_>) -> Option<Ipv4Addr> {
    match field.address()? {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn ipv6(field: &Field<'_>) -> Option<Ipv6Addr> {
    match field.address()? {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// An AS number; [`NO_AS`] for reserved ones.
fn autonomous_system(number: Option<u64>) -> u32 {
    number.filter(|number| *number < LAST_AS).map_or(NO_AS, |number| number as u32)
}

impl Draft {
    /// Takes a field; returns whether a flow record has a place for it.
    pub(super) fn take(&mut self, field: &Field<'_>, header: &Header) -> bool {
        match field.name {
            FieldName::Element(id) => {
                self.take_header(id, field)
                    || self.forward.take(id, field, header)
                    || self.take_way(id, field)
                    || self.take_rest(id, field, header)
            }
            FieldName::Reverse(id) => self.reverse.take(id, field, header),
            FieldName::Enterprise { .. } | FieldName::Scope(_) => false,
        }
    }

    /// Takes a field of packet headers.
    #[inline]
    fn take_header(&mut self, id: u16, field: &Field<'_>) -> bool {
        let number = field.unsigned();
        let short = || number.and_then(|number| u16::try_from(number).ok());
        let byte = || number.and_then(|number| u8::try_from(number).ok());
        match id {
            SOURCE_IPV4_ADDRESS => self.v4.src = ipv4(field),
            DESTINATION_IPV4_ADDRESS => self.v4.dst = ipv4(field),
            SOURCE_IPV6_ADDRESS => self.v6.src = ipv6(field),
            DESTINATION_IPV6_ADDRESS => self.v6.dst = ipv6(field),
            SOURCE_TRANSPORT_PORT => self.src_port = short(),
            DESTINATION_TRANSPORT_PORT => self.dst_port = short(),
            UDP_SOURCE_PORT | TCP_SOURCE_PORT => self.src_port = self.src_port.or(short()),
            UDP_DESTINATION_PORT | TCP_DESTINATION_PORT => self.dst_port = self.dst_port.or(short()),
            PROTOCOL_IDENTIFIER => self.protocol = byte().unwrap_or(0),
            IP_CLASS_OF_SERVICE => self.traffic_class = byte(),
            IP_DIFF_SERV_CODE_POINT => {
                let traffic_class = byte().filter(|dscp| *dscp < 64).map(|dscp| dscp << 2);
                self.traffic_class = self.traffic_class.or(traffic_class);
            }
            ICMP_TYPE_CODE_IPV4 | ICMP_TYPE_CODE_IPV6 => {
                // Templates for both families have both elements; the one that does not apply is 0.
                self.icmp_type_code = short().filter(|code| *code != 0).or(self.icmp_type_code);
            }
            ICMP_TYPE_IPV4 | ICMP_TYPE_IPV6 => self.icmp_type = byte().filter(|t| *t != 0).or(self.icmp_type),
            ICMP_CODE_IPV4 | ICMP_CODE_IPV6 => self.icmp_code = byte().filter(|c| *c != 0).or(self.icmp_code),
            VLAN_ID | DOT1Q_VLAN_ID if self.vlan == 0 => self.vlan = short().unwrap_or(0) & 0x0fff,
            VLAN_ID | DOT1Q_VLAN_ID => {}
            MPLS_TOP_LABEL_STACK_SECTION => self.mpls_label = mpls_label(field.bytes),
            IP_VERSION => self.ip_version = number,
            PADDING_OCTETS => {}
            _ => return false,
        }
        true
    }

    /// Takes a field about the path through the router and its treatment there.
    fn take_way(&mut self, id: u16, field: &Field<'_>) -> bool {
        let number = field.unsigned();
        let short = || number.and_then(|number| u16::try_from(number).ok());
        let long = || number.and_then(|number| u32::try_from(number).ok());
        match id {
            INGRESS_INTERFACE => self.ingress = long().unwrap_or(NO_INTERFACE),
            FLOW_DIRECTION => self.metered_at_egress = number == Some(1),
            EGRESS_INTERFACE => self.egress = long().unwrap_or(NO_INTERFACE),
            IP_NEXT_HOP_IPV4_ADDRESS | IP_NEXT_HOP_IPV6_ADDRESS => {
                self.next_hop = self.next_hop.or(address(field))
            }
            BGP_NEXT_HOP_IPV4_ADDRESS | BGP_NEXT_HOP_IPV6_ADDRESS => {
                self.bgp_next_hop = self.bgp_next_hop.or(address(field));
            }
            BGP_SOURCE_AS_NUMBER => self.src_as = autonomous_system(number),
            BGP_DESTINATION_AS_NUMBER => self.dst_as = autonomous_system(number),
            POST_NAT_SOURCE_IPV4_ADDRESS | POST_NAT_SOURCE_IPV6_ADDRESS | CISCO_XLATE_SRC_ADDRESS => {
                self.post.0 = self.post.0.or(address(field));
            }
            POST_NAT_DESTINATION_IPV4_ADDRESS
            | POST_NAT_DESTINATION_IPV6_ADDRESS
            | CISCO_XLATE_DST_ADDRESS => {
                self.post.1 = self.post.1.or(address(field));
            }
            POST_NAPT_SOURCE_TRANSPORT_PORT | CISCO_XLATE_SRC_PORT => self.post_ports.0 = short(),
            POST_NAPT_DESTINATION_TRANSPORT_PORT | CISCO_XLATE_DST_PORT => self.post_ports.1 = short(),
            DROPPED_OCTET_DELTA_COUNT => self.dropped.1 = number,
            DROPPED_PACKET_DELTA_COUNT => self.dropped.0 = number,
            FORWARDING_STATUS => self.forwarding_status = number,
            _ => return false,
        }
        true
    }

    fn take_rest(&mut self, id: u16, field: &Field<'_>, header: &Header) -> bool {
        let number = field.unsigned();
        match id {
            RESPONDER_OCTETS => self.reverse.bytes.offer(count_rank::INITIATOR, number),
            RESPONDER_PACKETS => self.reverse.packets.offer(count_rank::INITIATOR, number),
            FLOW_END_REASON => {
                self.end_reason =
                    number.and_then(|code| u8::try_from(code).ok()).and_then(EndReason::from_code);
            }
            APPLICATION_ID => {
                let engine = field.bytes.first().copied().unwrap_or(0);
                self.application_id = number.map(|id| (id, engine));
            }
            APPLICATION_NAME => {
                let named = application::by_name(&field.text());
                self.application_code = named.map_or(self.application_code, |application| application.code);
            }
            SAMPLER_ID | SELECTOR_ID => self.sampler = number.or(self.sampler),
            SYSTEM_INIT_TIME_MILLISECONDS => self.start_ms = number,
            OBSERVATION_TIME_SECONDS => self.event_ns.offer(time_rank::SECONDS, field.time_ns(header)),
            OBSERVATION_TIME_MILLISECONDS => {
                self.event_ns.offer(time_rank::MILLISECONDS, field.time_ns(header))
            }
            OBSERVATION_TIME_MICROSECONDS => {
                self.event_ns.offer(time_rank::MICROSECONDS, field.time_ns(header))
            }
            OBSERVATION_TIME_NANOSECONDS => {
                self.event_ns.offer(time_rank::NANOSECONDS, field.time_ns(header))
            }
            _ => return self.sampling.take(id, field),
        }
        true
    }

    /// Makes the record, if the fields describe a flow.
    pub(super) fn finish(
        mut self,
        header: &Header,
        session: SessionKey,
        context: &Context,
        counters: &mut ImportCounters,
    ) -> Option<FlowRecord> {
        if !self.forward.counts() && !self.reverse.counts() {
            counters.events += 1;
            return None;
        }
        let Some((src, dst)) = self.addresses() else {
            counters.without_addresses += 1;
            return None;
        };
        let (src_port, dst_port) = self.ports();
        let key = FlowKey {
            src,
            dst,
            src_port,
            dst_port,
            protocol: self.protocol,
            traffic_class: self.traffic_class.unwrap_or(0),
            ingress: self.ingress,
            vlan: self.vlan,
            mpls_label: self.mpls_label,
        };
        let (forward, reverse) = self.directions(header, session, context, counters);
        counters.without_end_reason += u64::from(self.end_reason.is_none());
        let described = self.sampling_interval(header, session, context);
        let sampling_interval = match described {
            Some(interval) => interval,
            // Cisco sends sampler 0 for none.
            None if self.sampler.is_none_or(|id| id == 0) => 1,
            None => {
                counters.samplers_unknown += 1;
                SAMPLING_UNKNOWN
            }
        };
        counters.flow_records += 1;
        Some(FlowRecord {
            reverse,
            application: self.application(&key, session, context),
            egress: self.egress,
            ingress_name: context.interface(session, self.ingress),
            egress_name: context.interface(session, self.egress),
            next_hop: self.next_hop,
            src_as: self.src_as,
            dst_as: self.dst_as,
            bgp_next_hop: self.bgp_next_hop,
            translation: self.translation(&key),
            drops: self.drops(&forward),
            sampling_interval,
            ..FlowRecord::new(key, forward, self.end_reason)
        })
    }

    /// Templates for both families have addresses of both. The IP version decides; without it, the ones that
    /// are not zeros.
    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let v4 = || self.v4.is_known().then(|| self.v4.or(Ipv4Addr::UNSPECIFIED));
        let v6 = || self.v6.is_known().then(|| self.v6.or(Ipv6Addr::UNSPECIFIED));
        let is_v6 = match self.ip_version {
            Some(6) => true,
            Some(4) => false,
            _ => {
                !self.v4.says_something(Ipv4Addr::UNSPECIFIED)
                    && self.v6.says_something(Ipv6Addr::UNSPECIFIED)
            }
        };
        if is_v6 { v6().or_else(v4) } else { v4().or_else(v6) }
    }

    fn ports(&self) -> (u16, u16) {
        let (src, dst) = (self.src_port.unwrap_or(0), self.dst_port.unwrap_or(0));
        if !matches!(self.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6) {
            return (src, dst);
        }
        // NetFlow 5 puts type and code into the destination port; we do so for all.
        let parts = self
            .icmp_type
            .or(self.icmp_code)
            .map(|_| u16::from(self.icmp_type.unwrap_or(0)) << 8 | u16::from(self.icmp_code.unwrap_or(0)));
        (0, self.icmp_type_code.or(parts).unwrap_or(dst))
    }

    fn directions(
        &mut self,
        header: &Header,
        session: SessionKey,
        context: &Context,
        counters: &mut ImportCounters,
    ) -> (Counters, Option<Counters>) {
        let start_ms = self.start_ms.or_else(|| context.start_ms(session)).filter(|start_ms| *start_ms != 0);
        let header_with_uptime = match (header.version, start_ms) {
            // Truncated on purpose: the header's field would wrap as well.
            (Version::Ipfix, Some(start_ms)) => {
                let uptime_ms = (header.export_ns / NS_PER_MS).wrapping_sub(start_ms) as u32;
                Header { uptime_ms: Some(uptime_ms), ..*header }
            }
            _ => *header,
        };
        self.forward.offer_uptime(&header_with_uptime);
        self.reverse.offer_uptime(&header_with_uptime);
        let (first_ns, last_ns) = self.forward.times(self.event_ns.value).unwrap_or_else(|| {
            counters.times_from_export += 1;
            let duration_ns = self.forward.uptime_duration_ns();
            (header.export_ns.saturating_sub(duration_ns), header.export_ns)
        });
        let forward = self.forward.counters(first_ns, last_ns, self.protocol);
        // Without packets or bytes there is no opposite direction, even if the template has its fields.
        let came_back =
            [self.reverse.packets.value, self.reverse.bytes.value].iter().flatten().any(|n| *n != 0);
        let reverse = came_back.then(|| {
            let (first_ns, last_ns) = self.reverse.times(None).unwrap_or((first_ns, last_ns));
            self.reverse.counters(first_ns, last_ns, self.protocol)
        });
        (forward, reverse)
    }

    fn sampling_interval(&self, header: &Header, session: SessionKey, context: &Context) -> Option<u32> {
        let own = self.sampling.one_in().or(header.sampling_interval.map(u32::from));
        let described = || {
            let at = if self.metered_at_egress { self.egress } else { self.ingress };
            let around = [Sampler::Interface(at), Sampler::Domain];
            match self.sampler {
                Some(id) => context.sampling(session, &[Sampler::Id(id), around[0], around[1]]),
                None => context.sampling(session, &around),
            }
        };
        own.or_else(described)
    }

    /// The application by name, by the exporter's table, or by the engines with public numbers (RFC 6759,
    /// 4.1).
    fn application(&self, key: &FlowKey, session: SessionKey, context: &Context) -> u8 {
        const ENGINE_IANA_L3: u8 = 1;
        const ENGINE_IANA_L4: u8 = 3;
        if self.application_code != 0 {
            return self.application_code;
        }
        let Some((id, engine)) = self.application_id else { return 0 };
        let selector = id & 0xffff;
        context.application(session, id).unwrap_or_else(|| {
            let known = match engine {
                ENGINE_IANA_L3 => u8::try_from(selector).ok().and_then(application::by_ip_protocol),
                ENGINE_IANA_L4 => application::by_port(key.protocol, selector as u16),
                _ => None,
            };
            known.map_or(0, |application| application.code)
        })
    }

    /// The translation, if it changes anything. Fields that are zero do not apply.
    fn translation(&self, key: &FlowKey) -> Option<Translation> {
        let port = |port: Option<u16>, before: u16| port.filter(|port| *port != 0).unwrap_or(before);
        let translation = Translation {
            src: self.post.0.map_or(key.src, |address| address.to_canonical()),
            dst: self.post.1.map_or(key.dst, |address| address.to_canonical()),
            src_port: port(self.post_ports.0, key.src_port),
            dst_port: port(self.post_ports.1, key.dst_port),
        };
        let same = Translation { src: key.src, dst: key.dst, src_port: key.src_port, dst_port: key.dst_port };
        (translation != same).then_some(translation)
    }

    /// Dropped packets: the counted ones, or all if the flow's status says that it was dropped.
    fn drops(&self, forward: &Counters) -> Drops {
        // In four bytes (the length that RFC 7270 gives) the status is the last byte; some exporters use the
        // first.
        let status = self
            .forwarding_status
            .map_or(0, |status| if status & 0xff == 0 { (status >> 24) as u8 } else { status as u8 });
        let is_dropped = status >> 6 == 2;
        let (packets, bytes) = match self.dropped {
            (None, None) if is_dropped => (forward.packets, forward.bytes),
            (packets, bytes) => (packets.unwrap_or(0), bytes.unwrap_or(0)),
        };
        let mut drops = Drops::default();
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        match drop_reason(status) {
            _ if packets == 0 && bytes == 0 => {}
            Some(reason) => drops.add(reason, packets, bytes),
            None => drops.add_without_reason(packets, bytes),
        }
        drops
    }
}

/// The label at the top of the stack; a section of zeros means an empty stack.
fn mpls_label(section: &[u8]) -> Option<u32> {
    let [a, b, c] = *section.first_chunk::<3>()?;
    let section = u32::from_be_bytes([0, a, b, c]);
    (section != 0).then_some(section >> 4)
}

/// Maps reasons of `forwardingStatus` (RFC 7270, 4.12) to ours.
fn drop_reason(status: u8) -> Option<DropReason> {
    Some(match status {
        129 | 130 => DropReason::AclDenied,
        131 => DropReason::NoRoute,
        132 => DropReason::NeighborUnresolved,
        133 => DropReason::MtuExceeded,
        134 => DropReason::IpChecksum,
        135 => DropReason::IpTotalLength,
        136 => DropReason::IpHeaderLength,
        137 => DropReason::TtlExpired,
        138 => DropReason::Policed,
        139 => DropReason::QueueManaged,
        140 => DropReason::ReversePath,
        141 => DropReason::Local,
        142 => DropReason::TransmitFailed,
        _ => return None,
    })
}
