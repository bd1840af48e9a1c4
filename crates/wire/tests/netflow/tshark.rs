//! Routers' captures compared with tshark, if it is installed.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value as Json;
use thalweg_wire::netflow::decode::{Decoder, FieldName, Source, TemplateKind};
use thalweg_wire::netflow::element::*;

/// Elements in the templates of these captures, with tshark's names.
const FIELDS: [(u16, &str); 8] = [
    (OCTET_DELTA_COUNT, "cflow.octets"),
    (PACKET_DELTA_COUNT, "cflow.packets"),
    (SOURCE_IPV4_ADDRESS, "cflow.srcaddr"),
    (DESTINATION_IPV4_ADDRESS, "cflow.dstaddr"),
    (SOURCE_TRANSPORT_PORT, "cflow.srcport"),
    (DESTINATION_TRANSPORT_PORT, "cflow.dstport"),
    (INGRESS_INTERFACE, "cflow.inputint"),
    (PROTOCOL_IDENTIFIER, "cflow.protocol"),
];

type Flow = BTreeMap<&'static str, String>;

/// All objects called "Flow N" anywhere in tshark's output, in order.
fn flows_in(json: &Json, flows: &mut Vec<Flow>) {
    match json {
        Json::Object(members) => {
            for (name, member) in members {
                if name.starts_with("Flow ") && member.is_object() {
                    let of = |(_, known): &(u16, &'static str)| {
                        Some((*known, member.get(*known)?.as_str()?.to_owned()))
                    };
                    flows.push(FIELDS.iter().filter_map(of).collect());
                } else {
                    flows_in(member, flows);
                }
            }
        }
        Json::Array(members) => members.iter().for_each(|member| flows_in(member, flows)),
        _ => {}
    }
}

#[test]
fn flows_are_those_of_tshark() {
    let Some(root) = thalweg_testdata::shared("flow-export/netgauze") else { return };
    for capture in ["100-IPFIXv10-CISCO/traffic-00.pcap", "101-NFv9-CISCO-cust_primitives/traffic-00.pcap"] {
        let path = root.join(capture);
        let asked = Command::new("tshark")
            .arg("-r")
            .arg(&path)
            .args(["-d", "udp.port==9991,cflow", "-T", "json", "-J", "cflow"])
            .output();
        let Ok(asked) = asked else { return thalweg_testdata::skipped("tshark is not installed") };
        let json: Json = serde_json::from_slice(&asked.stdout).unwrap();
        let mut theirs = Vec::new();
        flows_in(&json, &mut theirs);

        let mut decoder = Decoder::default();
        let mut ours: Vec<Flow> = Vec::new();
        for datagram in thalweg_testdata::datagrams(&std::fs::read(&path).unwrap()) {
            let source = Source::datagrams(u64::from(datagram.source.port()));
            let handled = decoder.handle_message(source, &datagram.payload, 0, |record| {
                assert_eq!(record.template.kind, TemplateKind::Data);
                let of = |field: thalweg_wire::netflow::decode::Field<'_>| {
                    let (_, name) = FIELDS.iter().find(|(id, _)| field.name == FieldName::Element(*id))?;
                    let is_address = name.ends_with("addr");
                    let text =
                        if is_address { field.address()?.to_string() } else { field.unsigned()?.to_string() };
                    Some((*name, text))
                };
                ours.push(record.fields().filter_map(of).collect());
            });
            handled.unwrap();
        }
        // tshark reads the capture twice, so it decodes data before its template in place; here it waits.
        ours.sort();
        theirs.sort();
        assert!(ours.len() >= 12, "{capture}: {} flows", ours.len());
        assert_eq!(ours, theirs, "{capture}");
    }
}
