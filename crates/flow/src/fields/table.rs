//! The rows of the field table; see [`super`].

use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::{DropReason, Name};
use thalweg_wire::MacAddr;
use thalweg_wire::netflow::element as e;

use super::{ABSENT_WIDE, Access, Kind, NO_LABEL, NO_SMALL, NO_TRANSLATION, Row, Vocabulary};
use crate::community_id::community_id;
use crate::record::{
    Counters, Direction, EndReason, Event, FlowRecord, NO_AS, NO_INTERFACE, SAMPLING_UNKNOWN, Translation,
};

macro_rules! fields {
    (stored { $($stored:ident ($number:literal $name:literal, $($row:tt)*))* }
     derived { $($derived:ident ($other_number:literal $other_name:literal, $($other:tt)*))* }) => {
        /// A field of a flow record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = $name] $stored,)*
            $(#[doc = $other_name] $derived,)*
        }

        impl Field {
            /// All fields, in the order of lines.
            pub const ALL: &'static [Field] = &[$(Field::$stored,)* $(Field::$derived,)*];
            /// The fields that files store, in the order of columns.
            pub const STORED: &'static [Field] = &[$(Field::$stored,)*];
        }

        static ROWS: &[Row] = &[
            $(row!($number $name, $($row)*),)*
            $(row!($other_number $other_name, $($other)*),)*
        ];
    };
}

macro_rules! row {
    ($number:literal $name:literal, $kind:expr, $absent:expr, $elements:expr, $access:expr, $help:literal) => {
        Row {
            name: $name,
            number: $number,
            kind: $kind,
            absent: $absent,
            elements: &$elements,
            access: $access,
            help: $help,
        }
    };
}

/// A number that the record stores directly.
macro_rules! wide {
    ($($place:ident).+) => { Access::Wide(|r| r.$($place).+, |r, value| r.$($place).+ = value) };
}
macro_rules! number {
    ($($place:ident).+) => { Access::Number(|r| r.$($place).+.into(), |r, value| r.$($place).+ = value as _) };
}
/// Eight bits that may be unknown.
macro_rules! small {
    ($($place:ident).+) => { Access::Number(|r| small(r.$($place).+), |r, value| r.$($place).+ = u8::try_from(value).ok()) };
}
macro_rules! address {
    ($place:ident) => {
        Access::Address(|r| r.$place, |r, value| r.$place = Some(value))
    };
}
/// A number that may be unknown.
macro_rules! numbered {
    ($($place:ident).+) => {
        Access::Number(|r| r.$($place).+.unwrap_or(NO_NUMBER), |r, value| r.$($place).+ = Some(value))
    };
}
macro_rules! mac {
    ($($place:ident).+) => {
        Access::Wide(
            |r| r.$($place).+.map_or(ABSENT_WIDE, MacAddr::to_u64),
            |r, value| r.$($place).+ = Some(MacAddr::from_u64(value)),
        )
    };
}
macro_rules! name {
    ($($place:ident).+) => {
        Access::Number(|r| r.$($place).+.code(), |r, code| r.$($place).+ = Name::from_code(code))
    };
}
/// Counters of the reverse direction.
macro_rules! reverse {
    (wide $place:ident) => {
        Access::Wide(
            |r| r.reverse.as_ref().map_or(ABSENT_WIDE, |c| c.$place),
            |r, value| reverse(r).$place = value,
        )
    };
    (small $place:ident) => {
        Access::Number(
            |r| small(r.reverse.as_ref().and_then(|c| c.$place)),
            |r, value| reverse(r).$place = u8::try_from(value).ok(),
        )
    };
}
macro_rules! translated {
    (address $place:ident) => {
        Access::Address(|r| r.translation.map(|t| t.$place), |r, value| translation(r).$place = value)
    };
    (port $place:ident) => {
        Access::Number(
            |r| r.translation.map_or(NO_TRANSLATION, |t| t.$place.into()),
            |r, value| translation(r).$place = value as u16,
        )
    };
}
macro_rules! dropped {
    (reason $place:literal) => {
        Access::Number(
            |r| r.drops.by_reason().nth($place).map_or(0, |(reason, _)| reason as u32),
            |r, value| {
                if let Some(reason) = u8::try_from(value).ok().and_then(DropReason::from_code) {
                    r.drops.restore_reason($place, reason);
                }
            },
        )
    };
    (packets $place:literal) => {
        Access::Number(
            |r| r.drops.by_reason().nth($place).map_or(0, |(_, packets)| packets),
            |r, value| r.drops.restore_packets($place, value),
        )
    };
}
/// A derived value, which is never restored.
macro_rules! follows {
    (wide $get:expr) => {
        Access::Wide($get, |_, _| {})
    };
    (number $get:expr) => {
        Access::Number($get, |_, _| {})
    };
}

const TIME: Kind = Kind::Time;
const WIDE: Kind = Kind::Wide;
const N8: Kind = Kind::Number(8);
const N16: Kind = Kind::Number(16);
const N32: Kind = Kind::Number(32);
const ADDRESS: Kind = Kind::Address;
const APPLICATION: Kind = Kind::Word(Vocabulary::Application);
const END_REASON: Kind = Kind::Word(Vocabulary::EndReason);
const DROP_REASON: Kind = Kind::Word(Vocabulary::DropReason);
const NAME: Kind = Kind::Word(Vocabulary::Name);
const PASSING_NAME: Kind = Kind::Word(Vocabulary::PassingName);
const NO_EIGHT_BITS: Option<u64> = Some(NO_SMALL as u64);
const NO_PORT: Option<u64> = Some(NO_TRANSLATION as u64);
const NO_WIDE: Option<u64> = Some(ABSENT_WIDE);
const IN: Option<u64> = Some(NO_INTERFACE as u64);
const AS: Option<u64> = Some(NO_AS as u64);
/// No number: an observation domain or VRF with the highest counts as one that was not said.
pub(crate) const NO_NUMBER: u32 = u32::MAX;

fields! {
    stored {
        FlowEnd (2 "flow_end", TIME, None, [], wide!(counters.last_ns), "arrival of the last packet")
        FlowStart (1 "flow_start", TIME, None, [], wide!(counters.first_ns), "arrival of the first packet")
        Src (3 "src", ADDRESS, None, [e::SOURCE_IPV4_ADDRESS, e::SOURCE_IPV6_ADDRESS],
            Access::Address(|r| Some(r.key.src), |r, value| r.key.src = value), "source address")
        Dst (4 "dst", ADDRESS, None, [e::DESTINATION_IPV4_ADDRESS, e::DESTINATION_IPV6_ADDRESS],
            Access::Address(|r| Some(r.key.dst), |r, value| r.key.dst = value), "destination address")
        SrcPort (5 "src_port", N16, None, [e::SOURCE_TRANSPORT_PORT], number!(key.src_port),
            "source port of TCP, UDP, SCTP, DCCP, UDP-Lite; else 0")
        DstPort (6 "dst_port", N16, None, [e::DESTINATION_TRANSPORT_PORT], number!(key.dst_port),
            "destination port of those; of ICMP the type times 256 plus the code; else 0")
        Protocol (7 "protocol", N8, None, [e::PROTOCOL_IDENTIFIER], number!(key.protocol),
            "number of the transport protocol, the last of an IPv6 header chain")
        Packets (13 "packets", WIDE, None, [e::PACKET_DELTA_COUNT], wide!(counters.packets), "packets, as counted")
        Bytes (14 "bytes", WIDE, None, [e::OCTET_DELTA_COUNT], wide!(counters.bytes),
            "bytes of IP packets, or of frames if the meter counts frames; as counted")
        TcpFlags (15 "tcp_flags", N8, NO_EIGHT_BITS, [e::TCP_CONTROL_BITS], small!(counters.tcp_flags),
            "union of all TCP flags (CWR ECE URG ACK PSH RST SYN FIN), of TCP only")
        TrafficClass (8 "traffic_class", N8, None, [e::IP_CLASS_OF_SERVICE], number!(key.traffic_class),
            "type of service or traffic class, all eight bits")
        TtlMin (16 "ttl_min", N8, NO_EIGHT_BITS, [e::MINIMUM_TTL], small!(counters.ttl_min), "smallest TTL or hop limit")
        TtlMax (17 "ttl_max", N8, NO_EIGHT_BITS, [e::MAXIMUM_TTL], small!(counters.ttl_max), "largest TTL or hop limit")
        EndReasonWord (25 "end_reason", END_REASON, Some(0), [e::FLOW_END_REASON],
            Access::Number(
                |r| r.end_reason.map_or(0, |reason| reason as u32),
                |r, value| r.end_reason = u8::try_from(value).ok().and_then(EndReason::from_code),
            ),
            "idle-timeout, active-timeout, end-detected, forced-end, lack-of-resources")
        App (26 "application", APPLICATION, Some(0), [e::APPLICATION_ID], number!(application), "name of the application")
        Ingress (42 "ingress", N32, IN, [e::INGRESS_INTERFACE], number!(key.ingress), "number of the interface it came in by")
        Egress (43 "egress", N32, IN, [e::EGRESS_INTERFACE], number!(egress), "number of the interface it left by")
        Vlan (11 "vlan", N16, Some(0), [e::VLAN_ID], number!(key.vlan), "identifier of the outermost VLAN tag")
        MplsLabel (12 "mpls_label", N32, Some(NO_LABEL as u64), [e::MPLS_TOP_LABEL_STACK_SECTION],
            Access::Number(|r| r.key.mpls_label.unwrap_or(NO_LABEL), |r, value| r.key.mpls_label = Some(value)),
            "label at the top of the MPLS stack")
        SrcAs (28 "src_as", N32, AS, [e::BGP_SOURCE_AS_NUMBER], number!(src_as), "origin AS of the source address")
        DstAs (29 "dst_as", N32, AS, [e::BGP_DESTINATION_AS_NUMBER], number!(dst_as), "origin AS of the destination address")
        NextHop (27 "next_hop", ADDRESS, Some(0), [e::IP_NEXT_HOP_IPV4_ADDRESS, e::IP_NEXT_HOP_IPV6_ADDRESS],
            address!(next_hop), "next hop of the route it took")
        BgpNextHop (30 "bgp_next_hop", ADDRESS, Some(0), [e::BGP_NEXT_HOP_IPV4_ADDRESS, e::BGP_NEXT_HOP_IPV6_ADDRESS],
            address!(bgp_next_hop), "BGP's next hop of that route")
        NatSrc (31 "nat_src", ADDRESS, Some(0), [e::POST_NAT_SOURCE_IPV4_ADDRESS, e::POST_NAT_SOURCE_IPV6_ADDRESS],
            translated!(address src), "source address behind NAT")
        NatDst (32 "nat_dst", ADDRESS, Some(0),
            [e::POST_NAT_DESTINATION_IPV4_ADDRESS, e::POST_NAT_DESTINATION_IPV6_ADDRESS],
            translated!(address dst), "destination address behind NAT")
        NatSrcPort (33 "nat_src_port", N16, NO_PORT, [e::POST_NAPT_SOURCE_TRANSPORT_PORT],
            translated!(port src_port), "source port behind NAT")
        NatDstPort (34 "nat_dst_port", N16, NO_PORT, [e::POST_NAPT_DESTINATION_TRANSPORT_PORT],
            translated!(port dst_port), "destination port behind NAT")
        ReversePackets (18 "reverse_packets", WIDE, NO_WIDE, [], reverse!(wide packets),
            "packets of the opposite direction, if biflows are metered (RFC 5103)")
        ReverseBytes (19 "reverse_bytes", WIDE, NO_WIDE, [], reverse!(wide bytes), "bytes of the opposite direction")
        ReverseStart (20 "reverse_start", TIME, NO_WIDE, [], reverse!(wide first_ns),
            "arrival of the first packet of the opposite direction")
        ReverseEnd (21 "reverse_end", TIME, NO_WIDE, [], reverse!(wide last_ns),
            "arrival of the last packet of the opposite direction")
        ReverseTcpFlags (22 "reverse_tcp_flags", N8, NO_EIGHT_BITS, [], reverse!(small tcp_flags),
            "union of all TCP flags of the opposite direction")
        ReverseTtlMin (23 "reverse_ttl_min", N8, NO_EIGHT_BITS, [], reverse!(small ttl_min),
            "smallest TTL of the opposite direction")
        ReverseTtlMax (24 "reverse_ttl_max", N8, NO_EIGHT_BITS, [], reverse!(small ttl_max),
            "largest TTL of the opposite direction")
        DroppedBytes (36 "dropped_bytes", WIDE, None, [e::DROPPED_OCTET_DELTA_COUNT], wide!(drops.bytes),
            "bytes of the packets that the router dropped")
        DroppedPackets (35 "dropped_packets", WIDE, None, [e::DROPPED_PACKET_DELTA_COUNT],
            Access::Wide(|r| r.drops.packets(), |r, value| r.drops.restore_total(value)),
            "packets among the counted ones that the router dropped")
        DropReason1 (44 "drop_reason_1", DROP_REASON, Some(0), [], dropped!(reason 0), "first reason of dropping")
        DropPackets1 (45 "drop_packets_1", N32, Some(0), [], dropped!(packets 0), "packets dropped for it")
        DropReason2 (46 "drop_reason_2", DROP_REASON, Some(0), [], dropped!(reason 1), "second reason")
        DropPackets2 (47 "drop_packets_2", N32, Some(0), [], dropped!(packets 1), "packets dropped for it")
        DropReason3 (48 "drop_reason_3", DROP_REASON, Some(0), [], dropped!(reason 2), "third reason")
        DropPackets3 (49 "drop_packets_3", N32, Some(0), [], dropped!(packets 2),
            "packets dropped for it; what is left of dropped_packets has other reasons")
        SamplingInterval (37 "sampling_interval", N32, Some(SAMPLING_UNKNOWN as u64), [], number!(sampling_interval),
            "sampling interval: one packet in N was metered; 1 is all")
        IcmpType (38 "icmp_type", N8, NO_EIGHT_BITS, [],
            follows!(number |r| small(r.key.icmp().map(|(icmp_type, _)| icmp_type))), "type of ICMP or ICMPv6")
        IcmpCode (39 "icmp_code", N8, NO_EIGHT_BITS, [],
            follows!(number |r| small(r.key.icmp().map(|(_, code)| code))), "code of ICMP or ICMPv6")
        ExporterName (50 "exporter", NAME, Some(0), [], name!(exporter.name),
            "who metered it: the exporter's name by configuration, else its address")
        ExporterAddress (51 "exporter_address", ADDRESS, Some(0), [],
            Access::Address(|r| r.exporter.address, |r, value| r.exporter.address = Some(value)),
            "address that the exporter sent from; a meter of this program has none")
        ExporterDomain (52 "exporter_domain", N32, Some(NO_NUMBER as u64), [], numbered!(exporter.domain),
            "its observation domain (IPFIX), source identifier (NetFlow 9) or engine (NetFlow 5)")
        IngressName (9 "ingress_name", NAME, Some(0), [], name!(ingress_name.name),
            "name of the ingress interface when the record was made")
        EgressName (10 "egress_name", NAME, Some(0), [], name!(egress_name.name), "name of the egress interface")
        IngressDescription (53 "ingress_description", NAME, Some(0), [], name!(ingress_name.description),
            "description of the ingress interface, for people")
        EgressDescription (54 "egress_description", NAME, Some(0), [], name!(egress_name.description),
            "description of the egress interface")
        SrcPrefixLength (55 "src_prefix_length", N8, NO_EIGHT_BITS, [], small!(details.src_prefix_length),
            "bits of the route's prefix that covers the source")
        DstPrefixLength (56 "dst_prefix_length", N8, NO_EIGHT_BITS, [], small!(details.dst_prefix_length),
            "bits of the route's prefix that covers the destination")
        IngressVrf (57 "ingress_vrf", N32, Some(NO_NUMBER as u64), [e::INGRESS_VRFID], numbered!(details.ingress_vrf),
            "number of the VRF it came in by")
        EgressVrf (58 "egress_vrf", N32, Some(NO_NUMBER as u64), [e::EGRESS_VRFID], numbered!(details.egress_vrf),
            "number of the VRF it left by")
        DirectionWord (59 "direction", Kind::Word(Vocabulary::Direction), Some(0), [],
            Access::Number(
                |r| r.details.direction.map_or(0, |way| way as u32),
                |r, code| r.details.direction = u8::try_from(code).ok().and_then(Direction::from_code),
            ),
            "ingress, egress: where it was metered")
        SrcMac (60 "src_mac", Kind::Mac, NO_WIDE, [], mac!(details.src_mac), "source MAC address")
        DstMac (61 "dst_mac", Kind::Mac, NO_WIDE, [], mac!(details.dst_mac), "destination MAC address")
        EventWord (62 "event", Kind::Word(Vocabulary::Event), Some(0), [],
            Access::Number(
                |r| r.details.event.map_or(0, |event| event as u32),
                |r, code| r.details.event = u8::try_from(code).ok().and_then(Event::from_code),
            ),
            "what a record without packets tells, of NAT or a firewall")
        NatBlockEnd (63 "nat_block_end", N16, NO_PORT, [],
            Access::Number(
                |r| r.details.nat_block_end.map_or(NO_TRANSLATION, u32::from),
                |r, port| r.details.nat_block_end = u16::try_from(port).ok(),
            ),
            "last port of a block that NAT gave a host; nat_src_port is its first")
        ServerName (80 "server_name", PASSING_NAME, Some(0), [], name!(names.server),
            "name of the server that the client asked for, in TLS, QUIC or HTTP")
        Alpn (81 "alpn", PASSING_NAME, Some(0), [], name!(names.alpn),
            "application protocols that the client offered in TLS or QUIC, best first, with commas between")
        DnsQuestion (82 "dns_question", PASSING_NAME, Some(0), [], name!(names.dns_question), "name that was asked for in DNS")
        DnsType (83 "dns_type", N16, Some(0), [], number!(names.dns_type), "type of that question: 1 A, 28 AAAA, 65 HTTPS")
        DnsCode (84 "dns_code", N8, NO_EIGHT_BITS, [], small!(names.dns_code), "code of the response: 0 no error, 3 no such name")
        DnsAnswers (85 "dns_answers", PASSING_NAME, Some(0), [], name!(names.dns_answers),
            "addresses and aliases in the response, in order, with commas between, as many as fit into 127 bytes")
        ResolvedName (86 "resolved_name", PASSING_NAME, Some(0), [], name!(names.resolved),
            "name that an earlier DNS response gave for one of the addresses, to the client if it was seen")
        Ja4 (87 "ja4", PASSING_NAME, Some(0), [], name!(names.ja4), "JA4 fingerprint of the client's hello in TLS or QUIC")
        NextAs (90 "next_as", N32, AS, [], number!(next_as), "AS that packets go to next, on BGP's path to the destination")
        SrcCountry (91 "src_country", NAME, Some(0), [], name!(src_place.country),
            "country of the source, as a database of the user's says")
        DstCountry (92 "dst_country", NAME, Some(0), [], name!(dst_place.country), "country of the destination")
        SrcNet (93 "src_net", NAME, Some(0), [], name!(src_place.network),
            "name of the network that the source is in, from a list of the user's")
        DstNet (94 "dst_net", NAME, Some(0), [], name!(dst_place.network),
            "name of the network that the destination is in")
    }
    derived {
        ScaledPackets (40 "scaled_packets", WIDE, None, [], follows!(wide |r| r.packets().saturating_mul(r.scale())),
            "packets of both directions, times the sampling interval where that is known")
        ScaledBytes (41 "scaled_bytes", WIDE, None, [], follows!(wide |r| r.bytes().saturating_mul(r.scale())),
            "bytes likewise")
        CommunityId (88 "community_id", Kind::Text, Some(0), [], Access::Text(|r| community_id(&r.key)),
            "community ID, version 1, seed 0: what other programs call the flow; only if asked for")
    }
}

impl Field {
    /// The row of this field.
    pub fn row(self) -> &'static Row {
        &ROWS[self.index()]
    }

    /// The position of this field in lines and files.
    pub fn index(self) -> usize {
        self as usize
    }
}

fn small(value: Option<u8>) -> u32 {
    value.map_or(NO_SMALL, u32::from)
}

/// The reverse direction; a new one is all unknown.
fn reverse(record: &mut FlowRecord) -> &mut Counters {
    record.reverse.get_or_insert(Counters {
        packets: ABSENT_WIDE,
        bytes: ABSENT_WIDE,
        first_ns: ABSENT_WIDE,
        last_ns: ABSENT_WIDE,
        ..Counters::default()
    })
}

fn translation(record: &mut FlowRecord) -> &mut Translation {
    let none = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    record.translation.get_or_insert(Translation { src: none, dst: none, src_port: 0, dst_port: 0 })
}
