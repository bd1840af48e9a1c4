//! Shapes of data records: which groups of fields a record has, how a template describes them, and how they
//! are encoded.
//!
//! A shape is a set of groups. Every shape has its fields in this order:
//!
//! | group | bytes | when |
//! |---|---|---|
//! | addresses | 8 or 32 | always; by family |
//! | ports, protocol, class, end reason, application | 11 | always |
//! | TCP flags, TTLs | 3 | unless none is known |
//! | ingress interface | 4 | known |
//! | egress interface | 4 | known |
//! | type and code of ICMP | 2 | the family's ICMP |
//! | bytes, packets | 16, or 8 if both and all further counters are below 2^32 | always |
//! | first, last | 16, or 8 by uptime | always |
//! | VLAN | 2 | there is a tag |
//! | MPLS | 3 | there is a label |
//! | origin AS of source and destination | 8 | one is known |
//! | next hop and BGP's, IPv4 | 8 | one is IPv4 |
//! | next hop and BGP's, IPv6 | 32 | one is IPv6 |
//! | VRF of arrival, and of departure | 4, 8 | one is known; the second, if it is |
//! | addresses and ports behind NAT | 12 or 36 | translated; by family |
//! | dropped bytes and packets, forwarding status | 17 or 9 | some were dropped |
//! | sampler; in IPFIX also its definition: packets taken, packets skipped | 1; 9 | packets were sampled |
//! | IPFIX only: names of server, of both hosts, in DNS (question, type, code, response), JA4 | 2, and 6 texts | one is known |
//! | way back (RFC 5103): bytes, packets, first, last, flags, TTLs | 35 or 27 | biflow |
//!
//! An unknown field of a group is zero: AS 0 (RFC 7607), the unspecified address, end reason 0. TCP flags of
//! other protocols are 0, as with all exporters; otherwise TCP and UDP flows would need separate templates.
//! The destination port of ICMP is 256 times the type plus the code, as usual in NetFlow.
//!
//! IANA has no elements for most names. Those of ntop are used ([`NTOP_ENTERPRISE`]), since collectors know them; texts
//! have a variable length. A record with names has wide counters, interfaces, a VLAN and AS numbers, known or not, so
//! that the numbers of templates suffice; and so one with VRFs has interfaces, TCP flags and TTLs.

use super::options::{Times, Version};
use crate::fields::{Field, Kind, NO_NUMBER};
use crate::record::{Counters, Details, FlowNames, FlowRecord, NO_AS, NO_INTERFACE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_base::{DropReason, Name};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6};
use thalweg_wire::netflow::element::*;

/// `applicationId` (RFC 6759, 4.1): our own numbers are "user defined".
const ENGINE_USER_DEFINED: u8 = 6;
/// From NTP's epoch (1900) to Unix's.
const NTP_OFFSET_S: u64 = 2_208_988_800;
const MILLISECOND_NS: u64 = 1_000_000;

/// The template number of the empty shape; options templates and NAT events have smaller numbers.
pub(super) const DATA_TEMPLATES: u16 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape(pub(super) u32);

impl Shape {
    const IPV6: u32 = 1;
    const WIDE: u32 = 1 << 1;
    /// NetFlow 9 only, which has no reverse direction.
    const UPTIME: u32 = 1 << 2;
    /// IPFIX only, which does not use uptime.
    const REVERSE: u32 = 1 << 2;
    const VLAN: u32 = 1 << 3;
    const MPLS: u32 = 1 << 4;
    const AS: u32 = 1 << 5;
    const HOP4: u32 = 1 << 6;
    const HOP6: u32 = 1 << 7;
    const DROPS: u32 = 1 << 8;
    const SAMPLER: u32 = 1 << 9;
    const ICMP: u32 = 1 << 10;
    const NO_HEADERS: u32 = 1 << 11;
    const NO_INGRESS: u32 = 1 << 12;
    const NO_EGRESS: u32 = 1 << 13;
    const NAT4: u32 = 1 << 14;
    const NAT6: u32 = 1 << 15;
    /// IPFIX only.
    const NAMES: u32 = 1 << 16;
    const VRFS: u32 = 1 << 17;
    /// Of shapes with VRFs.
    const NO_EGRESS_VRF: u32 = 1 << 18;
    /// What every shape with names has, and what none has.
    const WITH_NAMES: u32 = Self::NAMES | Self::WIDE | Self::VLAN | Self::AS;
    const NOT_WITH_NAMES: u32 = Self::NOT_WITH_VRFS | Self::ICMP;
    const NOT_WITH_VRFS: u32 = Self::NO_INGRESS | Self::NO_EGRESS | Self::NO_HEADERS;
    /// The bits that plain records may have: such records are encoded without further checks.
    const PLAIN: u32 = Self::IPV6 | Self::WIDE | Self::NO_INGRESS | Self::NO_EGRESS | Self::NO_HEADERS;

    #[inline(always)]
    fn has(self, group: u32) -> bool {
        self.0 & group != 0
    }

    #[inline(always)]
    fn tells_uptime(self, version: Version) -> bool {
        version != Version::Ipfix && self.has(Self::UPTIME)
    }

    fn has_reverse(self, version: Version) -> bool {
        version == Version::Ipfix && self.has(Self::REVERSE)
    }

    /// Other shapes do not have both kinds of translation. With names, so do the numbers, and the bits that are always
    /// the same tell of the translation. With VRFs, so do the numbers too, and the four bits that are 0 with names tell of
    /// the translation, ICMP, names and the VRF of departure.
    #[inline(always)]
    pub(super) fn template_id(self) -> u16 {
        let mut bits = self.0;
        if self.has(Self::NAMES) {
            let nat4 = if self.has(Self::NAT4) { Self::VLAN } else { 0 };
            let nat6 = if self.has(Self::NAT6) { Self::AS } else { 0 };
            bits = bits & !Self::WITH_NAMES | Self::NAT4 | Self::NAT6 | nat4 | nat6;
        }
        if self.has(Self::VRFS) {
            let kind = if self.has(Self::NAMES) { 7 } else { 1 + (bits >> 10 & 1) + 2 * (bits >> 14) };
            let kind = if self.has(Self::NO_EGRESS_VRF) { kind + 7 } else { kind };
            bits = bits & 0x3ff | kind << 10 | Self::NAT4 | Self::NAT6;
        }
        DATA_TEMPLATES + u16::try_from(bits & 0xffff).unwrap_or(0)
    }

    /// Whether its records have texts of variable length.
    #[inline(always)]
    pub(super) fn has_texts(self) -> bool {
        self.has(Self::NAMES)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TemplateField {
    pub(super) element: u16,
    /// [`VARIABLE`] for a text with its length in front.
    pub(super) bytes: u16,
    /// Whose element it is, [`REVERSE_ENTERPRISE`] for those of the reverse direction; 0 for IANA's.
    pub(super) enterprise: u32,
}

/// The length of fields of variable length in templates (RFC 7011, 7).
const VARIABLE: u16 = u16::MAX;

pub(super) const fn field(element: u16, bytes: u16) -> TemplateField {
    TemplateField { element, bytes, enterprise: 0 }
}

/// A template under construction.
struct Template {
    fields: Vec<TemplateField>,
    /// Bytes of a counter.
    counter: u16,
}

impl Template {
    /// Appends fields of records, by their elements for this family.
    fn put(&mut self, fields: &[Field], is_ipv6: bool) {
        for row in fields.iter().map(|field| field.row()) {
            let bytes = match row.kind {
                Kind::Address if is_ipv6 => 16,
                Kind::Address => 4,
                Kind::Wide => self.counter,
                Kind::Time => 8,
                Kind::Number(bits) => u16::from(bits / 8),
                Kind::Word(_) => 1,
                Kind::Mac => 6,
                Kind::Text => VARIABLE,
            };
            let element = if is_ipv6 { row.elements.last() } else { row.elements.first() };
            self.fields.extend(element.map(|element| field(*element, bytes)));
        }
    }

    /// Appends an element whose encoding differs from the field's.
    fn put_as(&mut self, element: u16, bytes: u16) {
        self.fields.push(field(element, bytes));
    }
}

/// What all records of a session share, and the start of uptimes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) version: Version,
    pub(super) times: Times,
    pub(super) reduced_sizes: bool,
    /// Milliseconds since the epoch.
    pub(super) start_ms: u64,
    /// The latest time that uptime can express in this message, in milliseconds since the epoch.
    pub(super) latest_ms: u64,
}

#[inline(always)]
pub(super) fn shape_of(record: &FlowRecord, rules: &Rules) -> Shape {
    let mut shape = 0;
    if record.key.src.is_ipv6() {
        shape |= Shape::IPV6;
    }
    let mut largest = record.counters.bytes | record.counters.packets;
    if rules.times == Times::Uptime && tells_by_uptime(&record.counters, rules) {
        shape |= Shape::UPTIME;
    }
    if record.key.vlan != 0 {
        shape |= Shape::VLAN;
    }
    if record.key.mpls_label.is_some() {
        shape |= Shape::MPLS;
    }
    if record.src_as | record.dst_as != NO_AS {
        shape |= Shape::AS;
    }
    for hop in [record.next_hop, record.bgp_next_hop].into_iter().flatten() {
        shape |= if hop.is_ipv6() { Shape::HOP6 } else { Shape::HOP4 };
    }
    if let Some(translation) = &record.translation {
        let is_ipv6 = translation.src.is_ipv6() || translation.dst.is_ipv6();
        shape |= if is_ipv6 { Shape::NAT6 } else { Shape::NAT4 };
    }
    if !record.drops.is_empty() {
        shape |= Shape::DROPS;
        largest |= record.drops.bytes | record.drops.packets();
    }
    if record.sampling_interval != 1 {
        shape |= Shape::SAMPLER;
    }
    if record.key.ingress == NO_INTERFACE {
        shape |= Shape::NO_INGRESS;
    }
    if record.egress == NO_INTERFACE {
        shape |= Shape::NO_EGRESS;
    }
    let Counters { tcp_flags, ttl_min, ttl_max, .. } = record.counters;
    if tcp_flags.is_none() && ttl_min.is_none() && ttl_max.is_none() {
        shape |= Shape::NO_HEADERS;
    }
    // An ICMP element belongs to one family; ICMP of the other family is in the port alone.
    let icmp = if record.key.src.is_ipv6() { ICMPV6 } else { ICMP };
    if record.key.protocol == icmp {
        shape |= Shape::ICMP;
    }
    if let Some(reverse) = &record.reverse
        && rules.version == Version::Ipfix
    {
        shape |= Shape::REVERSE;
        largest |= reverse.bytes | reverse.packets;
    }
    if !rules.reduced_sizes || largest >> 32 != 0 {
        shape |= Shape::WIDE;
    }
    let Details { ingress_vrf, egress_vrf, .. } = record.details;
    if ingress_vrf.or(egress_vrf).is_some() {
        shape = shape & !Shape::NOT_WITH_VRFS | Shape::VRFS;
        shape |= if egress_vrf.is_none() { Shape::NO_EGRESS_VRF } else { 0 };
    }
    if record.names != FlowNames::default() && rules.version == Version::Ipfix {
        shape = shape & !Shape::NOT_WITH_NAMES | Shape::WITH_NAMES;
    }
    Shape(shape)
}

#[inline(always)]
fn tells_by_uptime(counters: &Counters, rules: &Rules) -> bool {
    counters.first_ns / MILLISECOND_NS >= rules.start_ms
        && counters.last_ns / MILLISECOND_NS <= rules.latest_ms
}

pub(super) fn fields(shape: Shape, rules: &Rules) -> Vec<TemplateField> {
    let counter = if shape.has(Shape::WIDE) { 8 } else { 4 };
    let mut template = Template { fields: Vec::with_capacity(40), counter };
    let is_ipv6 = shape.has(Shape::IPV6);
    let headers = [Field::TcpFlags, Field::TtlMin, Field::TtlMax];
    template.put(&[Field::Src, Field::Dst, Field::SrcPort, Field::DstPort], is_ipv6);
    template.put(&[Field::Protocol, Field::TrafficClass, Field::EndReasonWord], is_ipv6);
    template.put_as(APPLICATION_ID, 4);
    if !shape.has(Shape::NO_HEADERS) {
        template.put(&headers, is_ipv6);
    }
    if !shape.has(Shape::NO_INGRESS) {
        template.put(&[Field::Ingress], is_ipv6);
    }
    if !shape.has(Shape::NO_EGRESS) {
        template.put(&[Field::Egress], is_ipv6);
    }
    template.put(&[Field::Bytes, Field::Packets], is_ipv6);
    let (first, last, time) = match rules.times {
        Times::Uptime if shape.tells_uptime(rules.version) => {
            (FLOW_START_SYS_UP_TIME, FLOW_END_SYS_UP_TIME, 4)
        }
        Times::Uptime | Times::Milliseconds => (FLOW_START_MILLISECONDS, FLOW_END_MILLISECONDS, 8),
        Times::Nanoseconds => (FLOW_START_NANOSECONDS, FLOW_END_NANOSECONDS, 8),
    };
    template.put_as(first, time);
    template.put_as(last, time);
    put_further(shape, rules.version, &mut template);
    if shape.has_reverse(rules.version) {
        let forward = template.fields.len();
        template.put(&[Field::Bytes, Field::Packets], is_ipv6);
        template.put_as(first, time);
        template.put_as(last, time);
        template.put(&headers, is_ipv6);
        template.fields[forward..].iter_mut().for_each(|field| field.enterprise = REVERSE_ENTERPRISE);
    }
    template.fields
}

/// Appends the optional groups.
fn put_further(shape: Shape, version: Version, template: &mut Template) {
    if shape.has(Shape::ICMP) {
        let of_family = if shape.has(Shape::IPV6) { ICMP_TYPE_CODE_IPV6 } else { ICMP_TYPE_CODE_IPV4 };
        template.put_as(of_family, 2);
    }
    if shape.has(Shape::VLAN) {
        template.put(&[Field::Vlan], false);
    }
    if shape.has(Shape::MPLS) {
        template.put_as(MPLS_TOP_LABEL_STACK_SECTION, 3);
    }
    if shape.has(Shape::AS) {
        template.put(&[Field::SrcAs, Field::DstAs], false);
    }
    for (group, is_ipv6) in [(Shape::HOP4, false), (Shape::HOP6, true)] {
        if shape.has(group) {
            template.put(&[Field::NextHop, Field::BgpNextHop], is_ipv6);
        }
    }
    if shape.has(Shape::VRFS) {
        template.put(&[Field::IngressVrf], false);
        if !shape.has(Shape::NO_EGRESS_VRF) {
            template.put(&[Field::EgressVrf], false);
        }
    }
    for (group, is_ipv6) in [(Shape::NAT4, false), (Shape::NAT6, true)] {
        if shape.has(group) {
            template.put(&[Field::NatSrc, Field::NatDst, Field::NatSrcPort, Field::NatDstPort], is_ipv6);
        }
    }
    if shape.has(Shape::DROPS) {
        template.put(&[Field::DroppedBytes, Field::DroppedPackets], false);
        template.put_as(FORWARDING_STATUS, 1);
    }
    if shape.has(Shape::SAMPLER) {
        match version {
            // Sent with each record, for collectors that start later and missed the sampler's description.
            Version::Ipfix => {
                template.put_as(SELECTOR_ID, 1);
                template.put_as(SAMPLING_PACKET_INTERVAL, 4);
                template.put_as(SAMPLING_PACKET_SPACE, 4);
            }
            _ => template.put_as(SAMPLER_ID, 1),
        }
    }
    if shape.has(Shape::NAMES) {
        let of_ntop = |element, bytes| TemplateField { element, bytes, enterprise: NTOP_ENTERPRISE };
        template.fields.extend(TEXTS.map(|(element, _)| of_ntop(element, VARIABLE)));
        template.fields.extend([of_ntop(NTOP_DNS_QUERY_TYPE, 1), of_ntop(NTOP_DNS_RET_CODE, 1)]);
    }
}

type TextOf = fn(&FlowRecord) -> Name;

/// The texts of a record with names, in order.
const TEXTS: [(u16, TextOf); 6] = [
    (NTOP_TLS_SERVER_NAME, |record| record.names.server),
    (NTOP_DNS_QUERY, |record| record.names.dns_question),
    (NTOP_DNS_RESPONSE, |record| record.names.dns_answers),
    (NTOP_JA4C_HASH, |record| record.names.ja4),
    // The name of one of the addresses, by which end is the server's.
    (NTOP_SRC_HOST_NAME, |record| if is_from_server(record) { record.names.resolved } else { Name::NONE }),
    (NTOP_DST_HOST_NAME, |record| if is_from_server(record) { Name::NONE } else { record.names.resolved }),
];

/// Whether the source has the server's port: servers have lower ones.
fn is_from_server(record: &FlowRecord) -> bool {
    record.key.src_port < record.key.dst_port
}

/// The bytes of a record with these fields, without its texts.
pub(super) fn record_bytes(fields: &[TemplateField]) -> usize {
    let fixed = fields.iter().filter(|field| field.bytes != VARIABLE);
    fixed.map(|field| usize::from(field.bytes)).sum()
}

/// The texts of a record, each with its length in front.
pub(super) fn texts(record: &FlowRecord) -> Vec<u8> {
    let mut texts = Vec::new();
    for (_, of) in TEXTS {
        let text = of(record).text();
        // A name has at most 127 bytes.
        texts.push(u8::try_from(text.len()).unwrap_or(0));
        texts.extend_from_slice(text.as_bytes());
    }
    texts
}

/// Encodes a record into `out`, which has exactly the bytes of its template and `texts`.
#[inline(always)]
pub(super) fn write(
    record: &FlowRecord,
    shape: Shape,
    (sampler, texts): (u8, &[u8]),
    rules: &Rules,
    out: &mut [u8],
) {
    let mut rest = Rest(out);
    rest.addresses(record.key.src, record.key.dst, shape.has(Shape::IPV6));
    let key = &record.key;
    let base = rest.take::<11>();
    base[0..2].copy_from_slice(&key.src_port.to_be_bytes());
    base[2..4].copy_from_slice(&key.dst_port.to_be_bytes());
    base[4] = key.protocol;
    base[5] = key.traffic_class;
    base[6] = record.end_reason.map_or(0, |reason| reason as u8);
    base[7..11].copy_from_slice(&application_id(record.application));
    if !shape.has(Shape::NO_HEADERS) {
        *rest.take() = headers(&record.counters);
    }
    if !shape.has(Shape::NO_INGRESS) {
        *rest.take() = key.ingress.to_be_bytes();
    }
    if !shape.has(Shape::NO_EGRESS) {
        *rest.take() = record.egress.to_be_bytes();
    }
    let wide = shape.has(Shape::WIDE);
    rest.pair(record.counters.bytes, record.counters.packets, wide);
    let uptime = shape.tells_uptime(rules.version);
    rest.times(&record.counters, uptime, rules);
    if shape.0 & !(Shape::PLAIN | if uptime { Shape::UPTIME } else { 0 }) != 0 {
        write_further(record, shape, (sampler, texts), rules, &mut rest);
    }
    debug_assert!(rest.0.is_empty(), "a record is as long as its template says");
}

/// Encodes the optional groups.
fn write_further(
    record: &FlowRecord,
    shape: Shape,
    (sampler, texts): (u8, &[u8]),
    rules: &Rules,
    rest: &mut Rest<'_>,
) {
    let wide = shape.has(Shape::WIDE);
    if shape.has(Shape::ICMP) {
        *rest.take() = record.key.dst_port.to_be_bytes();
    }
    if shape.has(Shape::VLAN) {
        *rest.take() = record.key.vlan.to_be_bytes();
    }
    if let Some(label) = record.key.mpls_label.filter(|_| shape.has(Shape::MPLS)) {
        // 20 bits of label; the traffic class and the bottom-of-stack bit are unknown.
        let [_, a, b, c] = (label << 4).to_be_bytes();
        *rest.take() = [a, b, c];
    }
    if shape.has(Shape::AS) {
        *rest.take() = record.src_as.to_be_bytes();
        *rest.take() = record.dst_as.to_be_bytes();
    }
    if shape.has(Shape::HOP4) {
        *rest.take() = ipv4_or_none(record.next_hop).octets();
        *rest.take() = ipv4_or_none(record.bgp_next_hop).octets();
    }
    if shape.has(Shape::HOP6) {
        *rest.take() = ipv6_or_none(record.next_hop).octets();
        *rest.take() = ipv6_or_none(record.bgp_next_hop).octets();
    }
    if shape.has(Shape::VRFS) {
        *rest.take() = record.details.ingress_vrf.unwrap_or(NO_NUMBER).to_be_bytes();
        if !shape.has(Shape::NO_EGRESS_VRF) {
            *rest.take() = record.details.egress_vrf.unwrap_or(NO_NUMBER).to_be_bytes();
        }
    }
    if let Some(translation) = &record.translation {
        rest.addresses(translation.src, translation.dst, shape.has(Shape::NAT6));
        *rest.take() = translation.src_port.to_be_bytes();
        *rest.take() = translation.dst_port.to_be_bytes();
    }
    if shape.has(Shape::DROPS) {
        rest.pair(record.drops.bytes, record.drops.packets(), wide);
        *rest.take() = [forwarding_status(record)];
    }
    if shape.has(Shape::SAMPLER) {
        *rest.take() = [sampler];
        if rules.version == Version::Ipfix {
            // None taken and none skipped means unknown.
            let taken = record.sampling_interval.min(1);
            *rest.take() = taken.to_be_bytes();
            *rest.take() = (record.sampling_interval - taken).to_be_bytes();
        }
    }
    if shape.has(Shape::NAMES) {
        rest.bytes(texts);
        let FlowNames { dns_type, dns_code, .. } = record.names;
        // The element has eight bits; a type with more is unknown.
        *rest.take() = [u8::try_from(dns_type).unwrap_or(0), dns_code.unwrap_or(0)];
    }
    if let Some(reverse) = record.reverse.as_ref().filter(|_| shape.has_reverse(rules.version)) {
        rest.pair(reverse.bytes, reverse.packets, wide);
        rest.times(reverse, false, rules);
        *rest.take() = headers(reverse);
    }
}

/// The part of a record that is not written yet.
struct Rest<'a>(&'a mut [u8]);

impl<'a> Rest<'a> {
    /// The next bytes. `out` has the length of the shape, so they exist.
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> &'a mut [u8; N] {
        let (taken, rest) =
            std::mem::take(&mut self.0).split_first_chunk_mut().expect("a record has the bytes of its shape");
        self.0 = rest;
        taken
    }

    /// Writes bytes, which `out` has room for.
    fn bytes(&mut self, bytes: &[u8]) {
        let (taken, rest) = std::mem::take(&mut self.0)
            .split_at_mut_checked(bytes.len())
            .expect("a record has room for its texts");
        taken.copy_from_slice(bytes);
        self.0 = rest;
    }

    #[inline(always)]
    fn addresses(&mut self, src: IpAddr, dst: IpAddr, ipv6: bool) {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) if !ipv6 => {
                let out = self.take::<8>();
                out[0..4].copy_from_slice(&src.octets());
                out[4..8].copy_from_slice(&dst.octets());
            }
            _ if ipv6 => {
                let out = self.take::<32>();
                out[0..16].copy_from_slice(&mapped(src).octets());
                out[16..32].copy_from_slice(&mapped(dst).octets());
            }
            // A key has addresses of one family; anything else is encoded as unknown.
            _ => *self.take() = [0; 8],
        }
    }

    #[inline(always)]
    fn pair(&mut self, a: u64, b: u64, wide: bool) {
        if wide {
            let out = self.take::<16>();
            out[0..8].copy_from_slice(&a.to_be_bytes());
            out[8..16].copy_from_slice(&b.to_be_bytes());
        } else {
            let out = self.take::<8>();
            out[0..4].copy_from_slice(&(a as u32).to_be_bytes());
            out[4..8].copy_from_slice(&(b as u32).to_be_bytes());
        }
    }

    #[inline(always)]
    fn times(&mut self, counters: &Counters, uptime: bool, rules: &Rules) {
        let (first_ms, last_ms) = (counters.first_ns / MILLISECOND_NS, counters.last_ns / MILLISECOND_NS);
        if uptime {
            self.pair(first_ms.wrapping_sub(rules.start_ms), last_ms.wrapping_sub(rules.start_ms), false);
        } else if rules.times == Times::Nanoseconds {
            self.pair(ntp_time(counters.first_ns), ntp_time(counters.last_ns), true);
        } else {
            self.pair(first_ms, last_ms, true);
        }
    }
}

#[inline(always)]
pub(super) fn application_id(code: u8) -> [u8; 4] {
    [ENGINE_USER_DEFINED, 0, 0, code]
}

/// TCP flags and TTLs; an unknown one is 0.
#[inline(always)]
fn headers(counters: &Counters) -> [u8; 3] {
    [counters.tcp_flags, counters.ttl_min, counters.ttl_max].map(Option::unwrap_or_default)
}

/// An IPv4 address as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2), where both families share a field.
#[inline(always)]
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

pub(super) fn ipv4_or_none(address: Option<IpAddr>) -> Ipv4Addr {
    match address {
        Some(IpAddr::V4(v4)) => v4,
        _ => Ipv4Addr::UNSPECIFIED,
    }
}

fn ipv6_or_none(address: Option<IpAddr>) -> Ipv6Addr {
    match address {
        Some(IpAddr::V6(v6)) => v6,
        _ => Ipv6Addr::UNSPECIFIED,
    }
}

/// Nanoseconds since 1970 as NTP time: 32 bits of seconds since 1900 (modulo 2^32, RFC 7011, 6.1.10) and 32
/// bits of fraction. The fraction is rounded up, so that readers that truncate and readers that round both
/// recover the nanosecond.
#[inline(always)]
pub(super) fn ntp_time(ns: u64) -> u64 {
    const SECOND_NS: u64 = 1_000_000_000;
    let seconds = ns / SECOND_NS + NTP_OFFSET_S;
    let fraction = ((ns % SECOND_NS) << 32).div_ceil(SECOND_NS);
    seconds << 32 | fraction
}

/// `forwardingStatus` (RFC 7270, 4.12) of a flow with dropped packets.
fn forwarding_status(record: &FlowRecord) -> u8 {
    const FORWARDED_UNKNOWN: u8 = 64;
    const DROPPED_UNKNOWN: u8 = 128;
    if record.drops.packets() < record.counters.packets {
        return FORWARDED_UNKNOWN;
    }
    match record.drops.by_reason().next().map(|(reason, _)| reason) {
        Some(DropReason::AclDenied | DropReason::FirewallDenied | DropReason::FirewallNotAsked) => 129,
        Some(DropReason::NoRoute | DropReason::Unreachable) => 131,
        Some(DropReason::NeighborUnresolved) => 132,
        Some(DropReason::MtuExceeded) => 133,
        Some(DropReason::IpChecksum) => 134,
        Some(DropReason::IpTotalLength) => 135,
        Some(DropReason::IpHeaderLength) => 136,
        Some(DropReason::TtlExpired) => 137,
        Some(DropReason::Policed) => 138,
        Some(DropReason::QueueManaged) => 139,
        Some(DropReason::ReversePath) => 140,
        Some(DropReason::Local) => 141,
        Some(DropReason::TransmitFailed) => 142,
        _ => DROPPED_UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FlowKey, Translation};
    use std::collections::BTreeSet;

    /// All shapes: the two highest bits of those without names and VRFs are never set together.
    fn shapes(rules: &Rules) -> impl Iterator<Item = Shape> {
        let with_names = rules.version == Version::Ipfix;
        let named = |shape: u32| Shape(shape & !Shape::NOT_WITH_NAMES | Shape::WITH_NAMES);
        let named = (0..3 << 14)
            .filter(move |shape| with_names && named(*shape).0 == *shape | Shape::NAMES)
            .map(named);
        (0..3 << 14).map(Shape).chain(named).flat_map(|shape| {
            let has_no_vrfs = shape.0 & Shape::NOT_WITH_VRFS != 0;
            let vrfs = [0, Shape::VRFS, Shape::VRFS | Shape::NO_EGRESS_VRF];
            vrfs.into_iter().take(if has_no_vrfs { 1 } else { 3 }).map(move |vrfs| Shape(shape.0 | vrfs))
        })
    }

    /// The session of a version and unit of time.
    fn rules(version: Version, times: Times) -> Rules {
        Rules { version, times, reduced_sizes: true, start_ms: 0, latest_ms: u64::MAX }
    }

    #[test]
    fn a_template_says_what_is_written() {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let key = FlowKey {
            src: address,
            dst: address,
            src_port: 1,
            dst_port: 2,
            protocol: 6,
            traffic_class: 0,
            ingress: 1,
            vlan: 1,
            mpls_label: Some(16),
        };
        let mut record = FlowRecord::new(key, Counters::default(), None);
        record.reverse = Some(record.counters);
        record.names.server = Name::passing(&"a".repeat(Name::BYTES_MAX));
        let translation = Translation { src: address, dst: address, src_port: 3, dst_port: 4 };
        for rules in [
            rules(Version::NetFlow9, Times::Uptime),
            rules(Version::Ipfix, Times::Milliseconds),
            rules(Version::Ipfix, Times::Nanoseconds),
        ] {
            let mut templates = BTreeSet::new();
            for shape in shapes(&rules) {
                record.translation = shape.has(Shape::NAT4 | Shape::NAT6).then_some(translation);
                let texts = if shape.has_texts() { texts(&record) } else { Vec::new() };
                let mut out = vec![0; record_bytes(&fields(shape, &rules)) + texts.len()];
                // It panics unless the record fills the bytes.
                write(&record, shape, (1, &texts), &rules, &mut out);
                assert!(templates.insert(shape.template_id()), "{shape:?}");
            }
            assert!(templates.first() >= Some(&DATA_TEMPLATES), "none wrapped around");
        }
    }

    #[test]
    fn the_longest_record_fits_the_shortest_message() {
        let rules = rules(Version::Ipfix, Times::Milliseconds);
        let text_bytes = TEXTS.len() * (1 + Name::BYTES_MAX);
        let lengths = shapes(&rules).map(|shape| {
            let texts = if shape.has_texts() { text_bytes } else { 0 };
            record_bytes(&fields(shape, &rules)) + texts
        });
        let longest = lengths.max().expect("there are shapes");
        assert!(longest + 20 + 4 + 4 <= super::super::MESSAGE_BYTES_MIN, "{longest}");
    }

    #[test]
    fn ntp_times_are_read_back_by_cutting_and_by_rounding() {
        for ns in [
            0,
            1,
            999_999_999,
            1_700_000_000_123_456_789,
            1_700_000_000_000_000_003,
            2_085_978_496_999_999_999,
        ] {
            let time = ntp_time(ns);
            let seconds =
                u64::from((time >> 32) as u32).wrapping_sub(NTP_OFFSET_S & 0xffff_ffff) & 0xffff_ffff;
            let fraction = u128::from(time as u32) * 1_000_000_000;
            let cut = (fraction >> 32) as u64;
            let rounded = ((fraction + (1 << 31)) >> 32) as u64;
            assert_eq!((seconds * 1_000_000_000 + cut, seconds * 1_000_000_000 + rounded), (ns, ns));
        }
    }
}
