//! Parts of a record that many records have in common: most lack a translation, and an exporter's name, sampling interval
//! or next hop is that of the record before. Who makes columns looks once at what differs, and asks a single record
//! for a field of any other part. A field that belongs to no part is always asked for.

use super::Field;
use crate::record::{Details, FlowRecord};

/// The parts in which some records differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differing(u32);

const REVERSE: u32 = 1;
const TRANSLATION: u32 = 1 << 1;
const DROPS: u32 = 1 << 2;
const PLACES: u32 = 1 << 3;
const INTERFACE_NAMES: u32 = 1 << 4;
const DETAILS: u32 = 1 << 5;
const PREFIX_LENGTHS: u32 = 1 << 6;
const NAMES: u32 = 1 << 7;
const EXPORTER: u32 = 1 << 8;
const NEXT_HOP: u32 = 1 << 9;
const BGP_NEXT_HOP: u32 = 1 << 10;
const SRC_AS: u32 = 1 << 11;
const DST_AS: u32 = 1 << 12;
const NEXT_AS: u32 = 1 << 13;
const SAMPLING: u32 = 1 << 14;
const END_REASON: u32 = 1 << 15;
const APPLICATION: u32 = 1 << 16;
const INGRESS: u32 = 1 << 17;
const EGRESS: u32 = 1 << 18;
const TTL: u32 = 1 << 19;
const TCP_FLAGS: u32 = 1 << 20;
const PROTOCOL: u32 = 1 << 21;
const TRAFFIC_CLASS: u32 = 1 << 22;
const VLAN: u32 = 1 << 23;
const MPLS: u32 = 1 << 24;
const ICMP: u32 = 1 << 25;

impl Differing {
    /// The parts in which two records differ.
    #[inline]
    fn of(one: &FlowRecord, other: &FlowRecord) -> u32 {
        let (key, same_key) = (&one.key, &other.key);
        let (ours, theirs) = (&one.counters, &other.counters);
        // Many exporters send lengths of prefixes, which vary, and nothing else of these.
        let lengths = |details: &Details| (details.src_prefix_length, details.dst_prefix_length);
        let (src_prefix_length, dst_prefix_length) = lengths(&one.details);
        let details = Details { src_prefix_length, dst_prefix_length, ..other.details };
        let interfaces = |record: &FlowRecord| (record.ingress_name, record.egress_name);
        let places = |record: &FlowRecord| (record.src_place, record.dst_place);
        let part = |differs: bool, part: u32| if differs { part } else { 0 };
        part(one.reverse != other.reverse, REVERSE)
            | part(one.translation != other.translation, TRANSLATION)
            | part(one.drops != other.drops, DROPS)
            | part(places(one) != places(other), PLACES)
            | part(interfaces(one) != interfaces(other), INTERFACE_NAMES)
            | part(one.details != details, DETAILS)
            | part(lengths(&one.details) != lengths(&other.details), PREFIX_LENGTHS)
            | part(one.names != other.names, NAMES)
            | part(one.exporter != other.exporter, EXPORTER)
            | part(one.next_hop != other.next_hop, NEXT_HOP)
            | part(one.bgp_next_hop != other.bgp_next_hop, BGP_NEXT_HOP)
            | part(one.src_as != other.src_as, SRC_AS)
            | part(one.dst_as != other.dst_as, DST_AS)
            | part(one.next_as != other.next_as, NEXT_AS)
            | part(one.sampling_interval != other.sampling_interval, SAMPLING)
            | part(one.end_reason != other.end_reason, END_REASON)
            | part(one.application != other.application, APPLICATION)
            | part(key.ingress != same_key.ingress, INGRESS)
            | part(one.egress != other.egress, EGRESS)
            | part((ours.ttl_min, ours.ttl_max) != (theirs.ttl_min, theirs.ttl_max), TTL)
            | part(ours.tcp_flags != theirs.tcp_flags, TCP_FLAGS)
            | part(key.protocol != same_key.protocol, PROTOCOL)
            | part(key.traffic_class != same_key.traffic_class, TRAFFIC_CLASS)
            | part(key.vlan != same_key.vlan, VLAN)
            | part(key.mpls_label != same_key.mpls_label, MPLS)
            | part(key.icmp() != same_key.icmp(), ICMP)
    }

    /// The parts in which one of these records differs from the first.
    pub fn among<'a>(records: impl IntoIterator<Item = &'a FlowRecord>) -> Self {
        let mut records = records.into_iter();
        let Some(first) = records.next() else { return Self::default() };
        Self(records.fold(0, |parts, record| parts | Self::of(first, record)))
    }

    /// Whether records that differ in these parts may have different values of this field.
    pub fn has(self, field: Field) -> bool {
        part_of(field).is_none_or(|part| part & self.0 != 0)
    }
}

/// The part that a field belongs to; `None` for one that nearly every record has a value of its own of.
fn part_of(field: Field) -> Option<u32> {
    use Field::*;
    Some(match field {
        ReversePackets | ReverseBytes | ReverseStart | ReverseEnd | ReverseTcpFlags | ReverseTtlMin
        | ReverseTtlMax => REVERSE,
        NatSrc | NatDst | NatSrcPort | NatDstPort => TRANSLATION,
        DroppedBytes | DroppedPackets | DropReason1 | DropPackets1 | DropReason2 | DropPackets2
        | DropReason3 | DropPackets3 => DROPS,
        SrcCountry | DstCountry | SrcNet | DstNet => PLACES,
        IngressName | EgressName | IngressDescription | EgressDescription => INTERFACE_NAMES,
        IngressVrf | EgressVrf | DirectionWord | SrcMac | DstMac | EventWord | NatBlockEnd => DETAILS,
        SrcPrefixLength | DstPrefixLength => PREFIX_LENGTHS,
        ServerName | Alpn | DnsQuestion | DnsType | DnsCode | DnsAnswers | ResolvedName | Ja4 => NAMES,
        ExporterName | ExporterAddress | ExporterDomain => EXPORTER,
        NextHop => NEXT_HOP,
        BgpNextHop => BGP_NEXT_HOP,
        SrcAs => SRC_AS,
        DstAs => DST_AS,
        NextAs => NEXT_AS,
        SamplingInterval => SAMPLING,
        EndReasonWord => END_REASON,
        App => APPLICATION,
        Ingress => INGRESS,
        Egress => EGRESS,
        TtlMin | TtlMax => TTL,
        TcpFlags => TCP_FLAGS,
        Protocol => PROTOCOL,
        TrafficClass => TRAFFIC_CLASS,
        Vlan => VLAN,
        MplsLabel => MPLS,
        IcmpType | IcmpCode => ICMP,
        _ => return None,
    })
}
