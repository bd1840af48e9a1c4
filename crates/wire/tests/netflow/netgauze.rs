//! Routers' captures, compared record by record with NetGauze's decoding.
//!
//! NetGauze replaces some values by names ("UDP", "activetimeout"); those that occur are below. Everything else
//! is compared unchanged.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value as Json;
use thalweg_wire::netflow::decode::{Decoder, Field, FieldName, Source};

use super::value::Value;

const CAPTURES: [(&str, &str); 7] = [
    ("100-IPFIXv10-CISCO", "traffic-00"),
    ("101-NFv9-CISCO-cust_primitives", "traffic-00"),
    ("104-IPFIXv10-IPv6-CISCO-sampling_option", "traffic-00"),
    ("110-IPFIXv10-NFv9-multiple-sources", "traffic-00"),
    ("110-IPFIXv10-NFv9-multiple-sources", "traffic-01"),
    ("110-IPFIXv10-NFv9-multiple-sources", "traffic-02"),
    ("srv6", "srv6"),
];

/// NetGauze's names for numbers.
const NAMES: [(&str, &str, u64); 13] = [
    ("protocolIdentifier", "\"ICMP\"", 1),
    ("protocolIdentifier", "\"IPv4\"", 4),
    ("protocolIdentifier", "\"TCP\"", 6),
    ("protocolIdentifier", "\"UDP\"", 17),
    ("protocolIdentifier", "\"IPv6\"", 41),
    ("protocolIdentifier", "\"IPv6ICMP\"", 58),
    ("protocolIdentifier", "\"VRRP\"", 112),
    ("flowEndReason", "\"activetimeout\"", 2),
    ("flowDirection", "\"ingress\"", 0),
    ("flowDirection", "{\"Unassigned\":255}", 255),
    ("mplsTopLabelType", "\"Unknown\"", 0),
    ("mplsTopLabelType", "\"LDP\"", 5),
    ("selectorAlgorithm", "\"RandomnoutofNSampling\"", 3),
];

/// Domain and sequence number of a message; its records, each with its fields in order.
type Records<T> = BTreeMap<(u64, u64), Vec<Vec<T>>>;

fn expected(text: &str) -> Records<(String, Json)> {
    let mut records = Records::new();
    for line in text.lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        let message = line.get("IPFIX").or(line.get("NetFlowV9")).unwrap();
        let domain = message.get("observation_domain_id").or(message.get("source_id")).unwrap();
        let key = (domain.as_u64().unwrap(), message["sequence_number"].as_u64().unwrap());
        for set in message["sets"].as_array().unwrap() {
            let Some(data) = set.get("Data") else { continue };
            for record in data["records"].as_array().unwrap() {
                let fields =
                    ["scope_fields", "fields"].iter().flat_map(|part| record[*part].as_array().unwrap());
                let named = |field: &Json| {
                    let (name, value) = field.as_object().unwrap().iter().next().unwrap();
                    (name.clone(), value.clone())
                };
                records.entry(key).or_default().push(fields.map(named).collect());
            }
        }
    }
    records
}

#[test]
fn records_are_those_of_netgauze() {
    let Some(root) = thalweg_testdata::shared("flow-export/netgauze") else { return };
    let mut compared = 0;
    for (folder, name) in CAPTURES {
        let folder = root.join(folder);
        let expected = expected(&std::fs::read_to_string(folder.join(format!("{name}-flow.json"))).unwrap());
        let capture = std::fs::read(folder.join(format!("{name}.pcap"))).unwrap();
        let mut decoder = Decoder::default();
        let mut ours: Records<()> = Records::new();
        for datagram in thalweg_testdata::datagrams(&capture) {
            let source = Source::datagrams(u64::from(datagram.source.port()));
            let handled = decoder.handle_message(source, &datagram.payload, 0, |record| {
                let key = (u64::from(record.header.domain), u64::from(record.header.sequence));
                let so_far = ours.entry(key).or_default();
                let theirs = expected.get(&key).and_then(|records| records.get(so_far.len()));
                let theirs =
                    theirs.unwrap_or_else(|| panic!("{name}: {key:?}: a record that NetGauze has not"));
                assert_eq!(record.fields().count(), theirs.len(), "{name}: {key:?}: fields");
                for (field, (element, value)) in record.fields().zip(theirs) {
                    assert_eq!(field.name.element().unwrap().name, element, "{name}: {key:?}");
                    assert!(
                        is_same(&field, &Value::of(&field, record.header), element, value),
                        "{name}: {key:?}: {element} is {field:?}, NetGauze says {value}"
                    );
                    compared += 1;
                }
                so_far.push(Vec::new());
            });
            assert_eq!(handled.unwrap().first_fault, None, "{name}");
        }
        for (key, theirs) in &expected {
            assert_eq!(ours.get(key).map_or(0, Vec::len), theirs.len(), "{name}: {key:?}: records");
        }
        assert_eq!(decoder.waiting(), (0, 0), "{name}");
    }
    assert!(compared > 7_900, "{compared} fields compared");
}

fn is_same(field: &Field<'_>, ours: &Value<'_>, element: &str, theirs: &Json) -> bool {
    let text = theirs.to_string();
    let number = field.unsigned();
    if let Some((.., value)) = NAMES.iter().find(|(name, known, _)| *name == element && *known == text) {
        return number == Some(*value);
    }
    match (ours, theirs) {
        // Flag by flag.
        (Value::Unsigned(flags), Json::Object(bits)) if element == "tcpControlBits" => {
            let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
            bits.len() == 8 && (0..8).all(|bit| bits[names[bit]].as_bool() == Some(flags >> bit & 1 == 1))
        }
        // Two bits of status, six of reason: in the lowest byte.
        (Value::Unsigned(status), Json::Object(_)) if element == "forwardingStatus" => match text.as_str() {
            "{\"Consumed\":\"Forus\"}" => *status & 0xff == 0xc3,
            "{\"Forwarded\":\"Unknown\"}" => *status & 0xff == 0x40,
            _ => false,
        },
        (Value::Unsigned(ours), Json::Number(theirs)) => theirs.as_u64() == Some(*ours),
        (Value::Address(ours), Json::String(theirs)) => theirs.parse::<IpAddr>().ok() == Some(*ours),
        (Value::Text(ours), Json::String(theirs)) => ours == theirs,
        (Value::TimeNs(ours), Json::String(theirs)) => rfc3339_ns(theirs) == Some(*ours),
        (Value::Bytes(ours), Json::Array(theirs)) => {
            let theirs: Vec<u64> = theirs.iter().filter_map(Json::as_u64).collect();
            theirs == ours.iter().map(|byte| u64::from(*byte)).collect::<Vec<_>>()
        }
        // Elements that the registry defines as bytes and NetGauze as numbers.
        (Value::Bytes(_), Json::Number(theirs)) => theirs.as_u64() == number,
        _ => field.name == FieldName::Element(0),
    }
}

/// `2023-02-28T09:46:01.088Z` in nanoseconds since the epoch, years from 1970 on.
fn rfc3339_ns(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut days = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum::<u64>() + day - 1;
    let february = 28 + u64::from(is_leap(year));
    days += [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][..month as usize - 1].iter().sum::<u64>();
    let seconds = days * 86_400 + part(11, 13)? * 3_600 + part(14, 16)? * 60 + part(17, 19)?;
    let fraction = text.get(19..)?.trim_matches(['.', 'Z']);
    let fraction_ns = format!("{fraction:0<9}").parse::<u64>().ok()?;
    Some(seconds * 1_000_000_000 + fraction_ns)
}

#[test]
fn times_are_read_as_they_are_written() {
    assert_eq!(rfc3339_ns("1970-01-01T00:00:00Z"), Some(0));
    assert_eq!(rfc3339_ns("2023-02-28T09:46:01.088Z"), Some(1_677_577_561_088_000_000));
}
