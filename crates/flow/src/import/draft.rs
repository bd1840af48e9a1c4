//! Builds a flow record from received fields: it takes them in any order, then decides what they mean
//! together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_base::{DropReason, LinkType, Name};
use thalweg_wire::netflow::decode::{Field, FieldName, Header, SessionKey, Version};
use thalweg_wire::netflow::element::*;
use thalweg_wire::{MacAddr, application, ip_protocol};

use super::Counters as ImportCounters;
use super::context::{Context, Sampler, Sampling};
use super::counted::{Best, Counted, NS_PER_MS, count_rank, time_rank};
use super::section::flow_of;
use crate::fields::NO_NUMBER;
use crate::{
    Counters, Details, Direction, Drops, EndReason, Event, FlowKey, FlowNames, FlowRecord, NO_AS,
    NO_INTERFACE, SAMPLING_UNKNOWN, Translation,
};

/// Cisco's numbers in NetFlow 9 for what IPFIX has as 225 to 228 (ASA before 8.4(5)).
const CISCO_XLATE_SRC_ADDRESS: u16 = 40_001;
const CISCO_XLATE_DST_ADDRESS: u16 = 40_002;
const CISCO_XLATE_SRC_PORT: u16 = 40_003;
const CISCO_XLATE_DST_PORT: u16 = 40_004;
/// Of Application Visibility and Control, with the clients' and servers' sides of connections.
const CISCO_SERVER_BYTES: u16 = 41_105;
const CISCO_CLIENT_BYTES: u16 = 41_106;
const CISCO_CLIENT_IPV4_ADDRESS: u16 = 45_004;
const CISCO_SERVER_IPV4_ADDRESS: u16 = 45_005;
const CISCO_CLIENT_IPV6_ADDRESS: u16 = 45_006;
const CISCO_SERVER_IPV6_ADDRESS: u16 = 45_007;
const CISCO_CLIENT_PORT: u16 = 45_008;
const CISCO_SERVER_PORT: u16 = 45_009;
/// In IPFIX they are elements of Cisco's own, without this bit.
const CISCO_ENTERPRISE: u32 = 9;
const CISCO_BIT: u16 = 1 << 15;

/// Reserved AS number (RFC 7300); some exporters send it for unknown.
const LAST_AS: u64 = 0xffff_ffff;

/// The groups of elements that a flow record has a place for, each with a function that takes them.
#[derive(Clone, Copy)]
pub(super) enum Taker {
    Header,
    Counted,
    Way,
    Detail,
    Rest,
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
pub(super) struct Draft<'a> {
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
    physical: (Option<u32>, Option<u32>),
    details: Details,
    event: Option<Event>,
    port_block: (Option<u16>, Option<u16>),
    /// The beginning of a packet.
    section: Option<(LinkType, &'a [u8])>,
    section_of_bytes: Option<u32>,
    vlan: u16,
    mpls_label: Option<u32>,
    forward: Counted,
    reverse: Counted,
    event_ns: Best,
    start_ms: Option<u64>,
    next_hop: Option<IpAddr>,
    bgp_next_hop: Option<IpAddr>,
    src_as: u32,
    dst_as: u32,
    post: (Option<IpAddr>, Option<IpAddr>),
    post_ports: (Option<u16>, Option<u16>),
    dropped: (Option<u64>, Option<u64>),
    names: FlowNames,
    forwarding_status: Option<u64>,
    end_reason: Option<EndReason>,
    application_id: Option<(u64, u8)>,
    application_code: u8,
    sampling: Sampling,
    sampler: Option<u64>,
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

impl<'a> Draft<'a> {
    /// Takes a field; returns whether a flow record has a place for it.
    pub(super) fn take(&mut self, field: &Field<'a>, header: &Header) -> bool {
        match field.name {
            FieldName::Element(id) => self.take_element(id, field, header),
            FieldName::Enterprise { enterprise: CISCO_ENTERPRISE, id } => {
                self.take_element(id | CISCO_BIT, field, header)
            }
            FieldName::Enterprise { enterprise: NTOP_ENTERPRISE, id } => self.take_name(id, field),
            FieldName::Reverse(id) => self.reverse.take(id, field, header),
            FieldName::Enterprise { .. } | FieldName::Scope(_) => false,
        }
    }

    #[inline]
    fn take_element(&mut self, id: u16, field: &Field<'a>, header: &Header) -> bool {
        use Taker::*;
        [Header, Counted, Way, Detail, Rest].into_iter().any(|taker| self.take_with(taker, id, field, header))
    }

    /// Takes an element if it is of this group. For a known element, little is left of this.
    #[inline(always)]
    pub(super) fn take_with(&mut self, taker: Taker, id: u16, field: &Field<'a>, header: &Header) -> bool {
        match taker {
            Taker::Header => self.take_header(id, field),
            Taker::Counted => self.forward.take(id, field, header),
            Taker::Way => self.take_way(id, field),
            Taker::Detail => self.take_detail(id, field),
            Taker::Rest => self.take_rest(id, field, header),
        }
    }

    /// Takes a field of packet headers.
    #[inline(always)]
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
            UDP_SOURCE_PORT | TCP_SOURCE_PORT | CISCO_CLIENT_PORT => {
                self.src_port = self.src_port.or(short())
            }
            UDP_DESTINATION_PORT | TCP_DESTINATION_PORT | CISCO_SERVER_PORT => {
                self.dst_port = self.dst_port.or(short());
            }
            CISCO_CLIENT_IPV4_ADDRESS => self.v4.src = self.v4.src.or(ipv4(field)),
            CISCO_SERVER_IPV4_ADDRESS => self.v4.dst = self.v4.dst.or(ipv4(field)),
            CISCO_CLIENT_IPV6_ADDRESS => self.v6.src = self.v6.src.or(ipv6(field)),
            CISCO_SERVER_IPV6_ADDRESS => self.v6.dst = self.v6.dst.or(ipv6(field)),
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
    #[inline(always)]
    fn take_way(&mut self, id: u16, field: &Field<'_>) -> bool {
        let number = field.unsigned();
        let short = || number.and_then(|number| u16::try_from(number).ok());
        let long = || number.and_then(|number| u32::try_from(number).ok());
        match id {
            INGRESS_INTERFACE => self.ingress = long().unwrap_or(NO_INTERFACE),
            EGRESS_INTERFACE => self.egress = long().unwrap_or(NO_INTERFACE),
            INGRESS_PHYSICAL_INTERFACE => self.physical.0 = long(),
            EGRESS_PHYSICAL_INTERFACE => self.physical.1 = long(),
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

    /// Takes a field that few exporters send.
    #[inline(always)]
    fn take_detail(&mut self, id: u16, field: &Field<'a>) -> bool {
        let number = field.unsigned();
        let (byte, short) =
            (number.and_then(|n| u8::try_from(n).ok()), number.and_then(|n| u16::try_from(n).ok()));
        let long = number.and_then(|n| u32::try_from(n).ok());
        let details = &mut self.details;
        match id {
            // Templates for both families have both elements; the one that does not apply is 0.
            SOURCE_IPV4_PREFIX_LENGTH | SOURCE_IPV6_PREFIX_LENGTH => {
                details.src_prefix_length = details.src_prefix_length.max(byte);
            }
            DESTINATION_IPV4_PREFIX_LENGTH | DESTINATION_IPV6_PREFIX_LENGTH => {
                details.dst_prefix_length = details.dst_prefix_length.max(byte);
            }
            INGRESS_VRFID => details.ingress_vrf = long.filter(|vrf| *vrf != NO_NUMBER),
            EGRESS_VRFID => details.egress_vrf = long.filter(|vrf| *vrf != NO_NUMBER),
            FLOW_DIRECTION => {
                details.direction = match number {
                    Some(0) => Some(Direction::Ingress),
                    Some(1) => Some(Direction::Egress),
                    _ => None,
                }
            }
            SOURCE_MAC_ADDRESS => details.src_mac = mac(field),
            DESTINATION_MAC_ADDRESS => details.dst_mac = mac(field),
            NAT_EVENT => self.event = number.map(nat_event).or(self.event),
            FIREWALL_EVENT => self.event = self.event.or(number.map(firewall_event)),
            PORT_RANGE_START => self.port_block.0 = short,
            PORT_RANGE_END => details.nat_block_end = short,
            PORT_RANGE_NUM_PORTS => self.port_block.1 = short,
            // Blocks whose ports do not follow each other have a beginning and a number alone.
            PORT_RANGE_STEP_SIZE | SECTION_EXPORTED_OCTETS => {}
            IP_HEADER_PACKET_SECTION => self.section = Some((LinkType::RawIp, field.bytes)),
            DATA_LINK_FRAME_SECTION => self.section = Some((LinkType::Ethernet, field.bytes)),
            DATA_LINK_FRAME_SIZE | IP_TOTAL_LENGTH => self.section_of_bytes = long,
            _ => return false,
        }
        true
    }

    /// Takes an element of nProbe's. An empty text is none.
    fn take_name(&mut self, id: u16, field: &Field<'_>) -> bool {
        let name = || Name::passing(&field.text());
        let first = |known: Name| if known == Name::NONE { name() } else { known };
        let names = &mut self.names;
        match id {
            NTOP_TLS_SERVER_NAME | NTOP_HTTP_HOST => names.server = first(names.server),
            NTOP_DNS_QUERY => names.dns_question = name(),
            NTOP_DNS_QUERY_TYPE => {
                names.dns_type = field.unsigned().and_then(|kind| u16::try_from(kind).ok()).unwrap_or(0);
            }
            NTOP_DNS_RET_CODE => names.dns_code = field.unsigned().and_then(|code| u8::try_from(code).ok()),
            NTOP_DNS_RESPONSE => names.dns_answers = name(),
            NTOP_SRC_HOST_NAME | NTOP_DST_HOST_NAME => names.resolved = first(names.resolved),
            NTOP_JA4C_HASH => names.ja4 = name(),
            _ => return false,
        }
        true
    }

    #[inline(always)]
    fn take_rest(&mut self, id: u16, field: &Field<'_>, header: &Header) -> bool {
        let number = field.unsigned();
        match id {
            RESPONDER_OCTETS | CISCO_SERVER_BYTES => self.reverse.bytes.offer(count_rank::INITIATOR, number),
            CISCO_CLIENT_BYTES => self.forward.bytes.offer(count_rank::INITIATOR, number),
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

    /// Appends the record of a flow or an event; of a flow without addresses there is none.
    pub(super) fn finish(
        mut self,
        header: &Header,
        session: SessionKey,
        context: &Context,
        counters: &mut ImportCounters,
        flows: &mut Vec<FlowRecord>,
    ) {
        let is_counted = self.forward.counts() || self.reverse.counts();
        let packet = self.packet(header);
        let addresses = self.addresses();
        let is_event = !is_counted && packet.is_none() && (self.section.is_none() || addresses.is_some());
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let own = addresses.or(is_event.then_some((nobody, nobody)));
        self.ingress = self.physical.0.filter(|_| self.ingress == NO_INTERFACE).unwrap_or(self.ingress);
        self.egress = self.physical.1.filter(|_| self.egress == NO_INTERFACE).unwrap_or(self.egress);
        let key = match (own, packet) {
            (Some(addresses), _) => self.key(addresses),
            (None, Some(packet)) => {
                let vlan = if self.vlan == 0 { packet.key.vlan } else { self.vlan };
                FlowKey { ingress: self.ingress, vlan, ..packet.key }
            }
            (None, None) => {
                counters.without_addresses += 1;
                return;
            }
        };
        let (forward, reverse) = match packet.filter(|_| !is_counted) {
            Some(packet) => (packet.counters, None),
            None => self.directions(header, session, context, counters),
        };
        let sampling_interval = self.sampling(header, session, context, counters);
        match is_event {
            true => counters.events += 1,
            false => {
                counters.flow_records += 1;
                counters.without_end_reason += u64::from(self.end_reason.is_none());
            }
        }
        self.details.event = is_event.then(|| self.event.unwrap_or(Event::Other));
        self.name_block();
        flows.push(FlowRecord {
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
            details: self.details,
            names: self.names(),
            sampling_interval,
            ..FlowRecord::new(key, forward, self.end_reason)
        });
    }

    /// The flow of the packet that the record contains the beginning of.
    fn packet(&self, header: &Header) -> Option<FlowRecord> {
        let (link, section) = self.section?;
        let bytes = self.section_of_bytes.unwrap_or(0).max(u32::try_from(section.len()).ok()?);
        flow_of(link, section, bytes, self.event_ns.value.unwrap_or(header.export_ns)).ok()
    }

    fn key(&self, (src, dst): (IpAddr, IpAddr)) -> FlowKey {
        let (src_port, dst_port) = self.ports();
        FlowKey {
            src,
            dst,
            src_port,
            dst_port,
            protocol: self.protocol,
            traffic_class: self.traffic_class.unwrap_or(0),
            ingress: self.ingress,
            vlan: self.vlan,
            mpls_label: self.mpls_label,
        }
    }

    /// The response code is sent with every record, 0 if unknown; only that of a response is one.
    fn names(&self) -> FlowNames {
        let answered = self.names.dns_answers != Name::NONE || self.names.dns_code != Some(0);
        FlowNames { dns_code: self.names.dns_code.filter(|_| answered), ..self.names }
    }

    /// A block of ports: its first is the translated source port, its last a detail.
    fn name_block(&mut self) {
        let (Some(first), count) = self.port_block else { return };
        let last = count.and_then(|count| first.checked_add(count.checked_sub(1)?));
        self.details.nat_block_end = self.details.nat_block_end.or(last);
        self.post_ports.0 = self.post_ports.0.or(Some(first));
    }

    fn sampling(
        &self,
        header: &Header,
        session: SessionKey,
        context: &Context,
        counters: &mut ImportCounters,
    ) -> u32 {
        match self.sampling_interval(header, session, context) {
            Some(interval) => interval,
            // Cisco sends sampler 0 for none.
            None if self.sampler.is_none_or(|id| id == 0) => 1,
            None => {
                counters.samplers_unknown += 1;
                SAMPLING_UNKNOWN
            }
        }
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
            let is_egress = self.details.direction == Some(Direction::Egress);
            let at = if is_egress { self.egress } else { self.ingress };
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

/// A MAC address, unless it is all zeros.
fn mac(field: &Field<'_>) -> Option<MacAddr> {
    <[u8; 6]>::try_from(field.bytes).ok().map(MacAddr).filter(|address| *address != MacAddr::ZERO)
}

/// RFC 8158, 8.1: those of NAT44 and NAT64 alike.
fn nat_event(code: u64) -> Event {
    match code {
        1 | 4 | 6 => Event::NatSessionBegin,
        2 | 5 | 7 => Event::NatSessionEnd,
        3 => Event::NatAddressesExhausted,
        8 | 10 => Event::NatBindingBegin,
        9 | 11 => Event::NatBindingEnd,
        12 => Event::NatPortsExhausted,
        13 => Event::NatQuotaExceeded,
        14 => Event::NatAddressBegin,
        15 => Event::NatAddressEnd,
        16 => Event::NatBlockBegin,
        17 => Event::NatBlockEnd,
        18 => Event::NatThreshold,
        _ => Event::Other,
    }
}

/// IANA's values of `firewallEvent`.
fn firewall_event(code: u64) -> Event {
    match code {
        1 => Event::FirewallCreated,
        2 => Event::FirewallDeleted,
        3 => Event::FirewallDenied,
        4 => Event::FirewallAlert,
        5 => Event::FirewallUpdated,
        _ => Event::Other,
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
