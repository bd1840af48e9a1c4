//! Parts of a record that most records lack. Who makes columns of many records looks once at what they have, and need not
//! ask each of them for every field of a part that none has. A field that belongs to no part is always asked for.

use super::Field;
use crate::record::{Details, FlowNames, FlowRecord, InterfaceName, Place};

/// Which parts some records have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

const REVERSE: u8 = 1;
const TRANSLATION: u8 = 1 << 1;
const DROPS: u8 = 1 << 2;
const PLACES: u8 = 1 << 3;
const INTERFACE_NAMES: u8 = 1 << 4;
const DETAILS: u8 = 1 << 5;
const NAMES: u8 = 1 << 6;

impl Parts {
    /// The parts that a record has.
    #[inline]
    pub fn of(record: &FlowRecord) -> Self {
        // Many exporters send lengths of prefixes, and nothing else of these.
        let Details { src_prefix_length, dst_prefix_length, .. } = record.details;
        let lengths = Details { src_prefix_length, dst_prefix_length, ..Details::default() };
        let places = [record.src_place, record.dst_place];
        let interfaces = [record.ingress_name, record.egress_name];
        let has = |is_there: bool, part: u8| if is_there { part } else { 0 };
        Self(
            has(record.reverse.is_some(), REVERSE)
                | has(record.translation.is_some(), TRANSLATION)
                | has(!record.drops.is_empty(), DROPS)
                | has(places != [Place::default(); 2], PLACES)
                | has(interfaces != [InterfaceName::default(); 2], INTERFACE_NAMES)
                | has(record.details != lengths, DETAILS)
                | has(record.names != FlowNames::default(), NAMES),
        )
    }

    /// The parts that one of many records has.
    pub fn of_all<'a>(records: impl IntoIterator<Item = &'a FlowRecord>) -> Self {
        Self(records.into_iter().fold(0, |parts, record| parts | Self::of(record).0))
    }

    /// Whether a record with these parts may have a value of this field.
    pub fn may_have(self, field: Field) -> bool {
        part_of(field) & !self.0 == 0
    }
}

/// The part that a field belongs to; 0 for one that every record may have.
fn part_of(field: Field) -> u8 {
    use Field::*;
    match field {
        ReversePackets | ReverseBytes | ReverseStart | ReverseEnd | ReverseTcpFlags | ReverseTtlMin
        | ReverseTtlMax => REVERSE,
        NatSrc | NatDst | NatSrcPort | NatDstPort => TRANSLATION,
        DropReason1 | DropPackets1 | DropReason2 | DropPackets2 | DropReason3 | DropPackets3 => DROPS,
        SrcCountry | DstCountry | SrcNet | DstNet => PLACES,
        IngressName | EgressName | IngressDescription | EgressDescription => INTERFACE_NAMES,
        IngressVrf | EgressVrf | DirectionWord | SrcMac | DstMac | EventWord | NatBlockEnd => DETAILS,
        ServerName | Alpn | DnsQuestion | DnsType | DnsCode | DnsAnswers | ResolvedName | Ja4 => NAMES,
        _ => 0,
    }
}
