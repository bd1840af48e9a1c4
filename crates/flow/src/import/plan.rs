//! How the records of a template become drafts.
//!
//! Where each field is, is found out once for a template whose fields have lengths of their own. Each of the elements that
//! most exporters send is then taken by code made for it alone, without asking what it is; the others follow in the
//! template's order.

use std::ops::Range;

use thalweg_wire::netflow::decode::{Field, FieldName, Header, Record, Template};
use thalweg_wire::netflow::element::*;

use super::draft::{Draft, Taker};

macro_rules! usual {
    ($($taker:ident $id:ident)*) => {
        /// The elements with code of their own, in the order in which they are taken.
        const USUAL: [u16; [$($id),*].len()] = [$($id),*];

        #[inline]
        fn take_usual<'a>(
            draft: &mut Draft<'a>,
            places: &[Range<usize>; USUAL.len()],
            record: &'a [u8],
            header: &Header,
        ) {
            let mut places = places.iter();
            $(
                if let Some(place) = places.next()
                    && !place.is_empty()
                    && let Some(bytes) = record.get(place.clone())
                {
                    let field = Field { name: FieldName::Element($id), is_scope: false, bytes };
                    draft.take_with(Taker::$taker, $id, &field, header);
                }
            )*
        }
    };
}

usual! {
    Header SOURCE_IPV4_ADDRESS
    Header DESTINATION_IPV4_ADDRESS
    Header SOURCE_IPV6_ADDRESS
    Header DESTINATION_IPV6_ADDRESS
    Header SOURCE_TRANSPORT_PORT
    Header DESTINATION_TRANSPORT_PORT
    Header PROTOCOL_IDENTIFIER
    Header IP_CLASS_OF_SERVICE
    Counted PACKET_DELTA_COUNT
    Counted OCTET_DELTA_COUNT
    Counted TCP_CONTROL_BITS
    Counted FLOW_START_SYS_UP_TIME
    Counted FLOW_END_SYS_UP_TIME
    Counted FLOW_START_MILLISECONDS
    Counted FLOW_END_MILLISECONDS
    Way INGRESS_INTERFACE
    Way EGRESS_INTERFACE
    Way IP_NEXT_HOP_IPV4_ADDRESS
    Way BGP_SOURCE_AS_NUMBER
    Way BGP_DESTINATION_AS_NUMBER
    Detail SOURCE_IPV4_PREFIX_LENGTH
    Detail DESTINATION_IPV4_PREFIX_LENGTH
    Rest FLOW_END_REASON
}

/// Where the fields of a template are.
struct Plan {
    /// Empty for an element that the template lacks.
    usual: [Range<usize>; USUAL.len()],
    others: Vec<(FieldName, Range<usize>)>,
}

impl Plan {
    /// `None` for a template whose fields vary in length.
    fn new(template: &Template) -> Option<Self> {
        let mut plan = Self { usual: std::array::from_fn(|_| 0..0), others: Vec::new() };
        for (field, place) in template.fields.iter().zip(template.places()?) {
            let usual = USUAL.iter().position(|id| field.name == FieldName::Element(*id));
            let is_first = !plan.others.iter().any(|(name, _)| *name == field.name);
            match usual.map(|number| &mut plan.usual[number]) {
                Some(usual) if usual.start == usual.end && place.start < place.end && is_first => {
                    *usual = place;
                }
                _ => plan.others.push((field.name, place)),
            }
        }
        Some(plan)
    }
}

/// Gives a draft all fields of a record; returns how many it has no place for.
pub(super) fn take<'a>(draft: &mut Draft<'a>, record: &Record<'a>) -> u64 {
    let known = record.template.memo.get_or_make(|| Plan::new(record.template));
    let Some(Some(plan)) = known else { return take_each(draft, record) };
    take_usual(draft, &plan.usual, record.bytes(), record.header);
    let mut ignored = 0;
    for (name, place) in &plan.others {
        let Some(bytes) = record.bytes().get(place.clone()) else { continue };
        let field = Field { name: *name, is_scope: false, bytes };
        ignored += u64::from(!draft.take(&field, record.header));
    }
    ignored
}

fn take_each<'a>(draft: &mut Draft<'a>, record: &Record<'a>) -> u64 {
    record.fields().map(|field| u64::from(!draft.take(&field, record.header))).sum()
}

#[cfg(test)]
mod tests {
    use super::super::{Context, Counters};
    use super::*;
    use thalweg_base::XorShift64Star;
    use thalweg_wire::netflow::decode::{Decoder, SessionKey, Source};

    /// Elements that need others of their template, or have no place.
    const OTHERS: [u16; 8] = [
        MAXIMUM_TTL,
        MINIMUM_TTL,
        FLOW_DURATION_MILLISECONDS,
        VLAN_ID,
        SAMPLING_INTERVAL,
        POST_NAT_SOURCE_IPV4_ADDRESS,
        PADDING_OCTETS,
        499,
    ];

    /// Templates of any elements in any order, some twice, some of other lengths: each record is what its fields say one
    /// after the other.
    #[test]
    fn a_record_by_its_plan_is_that_of_its_fields() {
        let mut chance = XorShift64Star::new(71);
        let all: Vec<u16> = USUAL.into_iter().chain(OTHERS).collect();
        let (mut records, mut ignored) = (0, 0);
        for round in 0..500u16 {
            let mut fields: Vec<(u16, u16)> = Vec::new();
            for _ in 0..1 + chance.below(30) {
                let id = all[chance.below(all.len() as u32) as usize];
                fields.push((id, [1, 2, 4, 4, 4, 8, 16, 0][chance.below(8) as usize]));
            }
            let length: u16 = fields.iter().map(|field| field.1).sum();
            if length == 0 || fields.iter().filter(|field| field.1 == 0).count() > 4 {
                continue;
            }
            let data: Vec<u8> = (0..3 * length).map(|_| chance.next_u64() as u8 & 0x7f).collect();
            let template =
                [256, fields.len() as u16].into_iter().chain(fields.iter().flat_map(|f| [f.0, f.1]));
            let template: Vec<u8> = template.flat_map(u16::to_be_bytes).collect();
            let set = |id: u16, body: &[u8]| {
                let head = [id, 4 + body.len() as u16];
                [&head.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>(), body].concat()
            };
            let header = [9, 4, 0, 7, 0x6500, 0, 0, round, 0, 0].into_iter().flat_map(u16::to_be_bytes);
            let message = [header.collect(), set(0, &template), set(256, &data)].concat();
            let mut decoder = Decoder::default();
            let source = Source::datagrams(1);
            let report = decoder.handle_message(source, &message, 0, |record| {
                let made = |has_plan: bool| {
                    let (mut draft, mut flows, mut counters) =
                        (Draft::default(), Vec::new(), Counters::default());
                    let ignored = match has_plan {
                        true => take(&mut draft, record),
                        false => take_each(&mut draft, record),
                    };
                    let Header { version, domain, .. } = *record.header;
                    let session = SessionKey { exporter: 1, version, domain };
                    draft.finish(record.header, session, &Context::default(), &mut counters, &mut flows);
                    (ignored, flows, counters)
                };
                let by_plan = made(true);
                assert_eq!(by_plan, made(false), "{fields:?}");
                (records, ignored) = (records + 1, ignored + by_plan.0);
            });
            assert_eq!(report.map(|report| report.records), Ok(3), "{fields:?}");
        }
        assert!(records > 1000 && ignored > 100, "{records} {ignored}");
    }
}
