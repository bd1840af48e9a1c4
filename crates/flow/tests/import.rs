//! Real exporters' messages as flow records: totals compared with pmacct, and the meanings of some vendors'
//! fields.

use std::path::Path;

use thalweg_flow::import::{Importer, SflowImporter};
use thalweg_flow::{Direction, EndReason, Event, FlowRecord, NO_INTERFACE};
use thalweg_wire::netflow::decode::Source;

/// All flows of one exporter's messages.
fn imported(importer: &mut Importer, messages: &[Vec<u8>]) -> Vec<FlowRecord> {
    let mut flows = Vec::new();
    for message in messages {
        importer.handle_message(Source::datagrams(1), message, 0, &mut flows).unwrap();
    }
    let counters = importer.counters();
    let accounted = counters.flow_records + counters.events + counters.without_addresses;
    assert_eq!(accounted, importer.decoder().counters().records, "every record is in the totals");
    assert_eq!(counters.flow_records + counters.events, flows.len() as u64);
    flows
}

fn captured(folder: &Path, name: &str) -> Vec<Vec<u8>> {
    let capture = std::fs::read(folder.join(name)).unwrap();
    thalweg_testdata::datagrams(&capture).into_iter().map(|datagram| datagram.payload).collect()
}

/// The sum of a member over the lines of pmacct's output.
fn pmacct_sum(text: &str, member: &str) -> u64 {
    let after = format!("\"{member}\": ");
    let number = |rest: &str| rest.split([',', '}']).next().unwrap().parse::<u64>().unwrap();
    text.lines().filter_map(|line| line.split_once(&after)).map(|(_, rest)| number(rest)).sum()
}

#[test]
fn totals_are_those_of_pmacct() {
    let Some(root) = thalweg_testdata::shared("flow-export/netgauze") else { return };
    let captures: [(&str, &[&str]); 4] = [
        ("100-IPFIXv10-CISCO", &["traffic-00.pcap"]),
        ("101-NFv9-CISCO-cust_primitives", &["traffic-00.pcap"]),
        ("104-IPFIXv10-IPv6-CISCO-sampling_option", &["traffic-00.pcap"]),
        ("110-IPFIXv10-NFv9-multiple-sources", &["traffic-00.pcap", "traffic-01.pcap", "traffic-02.pcap"]),
    ];
    for (folder, names) in captures {
        let folder = root.join(folder);
        let (mut packets, mut bytes) = (0, 0);
        for name in names {
            for flow in imported(&mut Importer::default(), &captured(&folder, name)) {
                // pmacct multiplies by the sampler's interval if it knows the sampler, as for 104.
                let factor = flow.scale();
                packets += flow.packets() * factor;
                bytes += flow.bytes() * factor;
            }
        }
        let theirs = std::fs::read_to_string(folder.join("pmacct-output-flow-00.json")).unwrap();
        assert!(packets > 0);
        let expected = (pmacct_sum(&theirs, "packets"), pmacct_sum(&theirs, "bytes"));
        assert_eq!((packets, bytes), expected, "{}", folder.display());
    }
}

#[test]
fn cisco_with_mpls_is_understood() {
    let Some(root) = thalweg_testdata::shared("flow-export/netgauze") else { return };
    let flows =
        imported(&mut Importer::default(), &captured(&root.join("100-IPFIXv10-CISCO"), "traffic-00.pcap"));
    assert_eq!(flows.len(), 12);
    let flow = &flows[0];
    // As read by pmacct and NetGauze.
    assert_eq!(
        (flow.key.src.to_string(), flow.key.dst.to_string()),
        ("10.231.65.56".into(), "10.192.12.213".into())
    );
    assert_eq!((flow.key.src_port, flow.key.dst_port, flow.key.protocol), (17_000, 17_000, 17));
    assert_eq!((flow.key.ingress, flow.egress, flow.key.traffic_class), (995, 841, 184), "as sent");
    assert_eq!(flow.key.mpls_label, Some(69));
    assert_eq!((flow.counters.packets, flow.counters.bytes), (2, 220));
    assert_eq!((flow.counters.ttl_min, flow.counters.ttl_max), (Some(254), Some(254)));
    assert_eq!(flow.counters.first_ns, 1_677_577_561_088_000_000);
    assert_eq!(flow.counters.last_ns, 1_677_577_572_352_000_000);
    assert_eq!(flow.next_hop, Some("138.187.10.46".parse().unwrap()));
    assert_eq!(
        (flow.bgp_next_hop, flow.src_as, flow.dst_as),
        (None, 0, 0),
        "0.0.0.0 and 4294967295 are none"
    );
    assert_eq!(flow.end_reason, Some(EndReason::ActiveTimeout));
}

#[test]
fn segment_routing_with_options_of_all_kinds() {
    let Some(root) = thalweg_testdata::shared("flow-export/netgauze") else { return };
    let mut importer = Importer::default();
    let flows = imported(&mut importer, &captured(&root.join("srv6"), "srv6.pcap"));
    let decoder = importer.decoder().counters();
    assert_eq!(decoder.records + decoder.options_records, 172, "as many as NetGauze has");
    assert_eq!(flows.len() as u64, decoder.records);
    // Times count from the start in an options record. One flow is sent before the first such record.
    assert_eq!(importer.counters().times_from_export, 1);
    let export_ns = 1_662_710_767 * 1_000_000_000; // of the first message
    for flow in &flows {
        assert!(flow.counters.last_ns.abs_diff(export_ns) < 600 * 1_000_000_000, "{flow:?}");
    }
    let names: Vec<_> = importer.interfaces().map(|(.., interface)| interface.name.text()).collect();
    assert!(names.contains(&"TenGigE0_0_0_0".into()), "{names:?}");
}

/// Sampling intervals and interfaces of captures from Akvorado's tests, as those expect them.
#[test]
fn rates_are_those_of_samplers_and_fields() {
    let Some(root) = thalweg_testdata::shared("flow-export/akvorado/netflow") else { return };
    let flows = |names: &[&str]| {
        let messages: Vec<Vec<u8>> =
            names.iter().flat_map(|name| captured(&root, &format!("{name}.pcap"))).collect();
        imported(&mut Importer::default(), &messages)
    };
    let seen = |flows: &[FlowRecord]| -> Vec<(u32, u32, u32)> {
        flows.iter().map(|flow| (flow.sampling_interval, flow.key.ingress, flow.egress)).collect()
    };
    let one = flows(&["options-template", "options-data", "template", "data"]);
    let rate = 30_000;
    assert_eq!(seen(&one), [(rate, 335, 450), (rate, 335, 452), (rate, 461, 306), (rate, 461, 451)]);
    let name = |part: &str| format!("multiplesamplingrates-{part}");
    let [options, options_data, template, data] =
        ["options-template", "options-data", "template", "data"].map(name);
    let two = flows(&[&options, &options_data, &template, &data]);
    assert_eq!(seen(&two)[..2], [(4_000, 97, 6), (2_000, 103, 6)]);
    assert!(two.iter().all(|flow| [2_000, 4_000].contains(&flow.sampling_interval)));
    // In the records themselves; the exporter's uptime goes back between these messages.
    let own = flows(&["samplingrate-template", "samplingrate-data"]);
    assert!(
        !own.is_empty() && own.iter().all(|flow| flow.sampling_interval == 2_048 && flow.key.ingress == 13)
    );
}

/// NAT events, sections of packets, interfaces below bundles, and ICMP, in captures from Akvorado's tests, as tshark
/// reads them.
#[test]
fn what_is_no_usual_flow_is_kept() {
    let Some(root) = thalweg_testdata::shared("flow-export/akvorado/netflow") else { return };
    let flows = |names: &[&str]| {
        let messages: Vec<Vec<u8>> =
            names.iter().flat_map(|name| captured(&root, &format!("{name}.pcap"))).collect();
        imported(&mut Importer::default(), &messages)
    };
    let nat = flows(&["nat"]);
    let ended: Vec<bool> = nat.iter().map(|flow| flow.details.event == Some(Event::NatSessionEnd)).collect();
    assert_eq!(ended, [false, false, false, true, false, false, false, false, false]);
    let begun = nat.iter().filter(|flow| flow.details.event == Some(Event::NatSessionBegin)).count();
    assert_eq!((begun, nat[8].key.dst.to_string().as_str(), nat[8].key.src_port), (8, "200.25.20.50", 123));
    let outside = nat[8].translation.map(|outside| (outside.src.to_string(), outside.src_port));
    assert_eq!(outside, Some(("10.143.52.29".to_owned(), 640)));
    assert_eq!((nat[0].details.ingress_vrf, nat[0].counters.last_ns), (Some(0), 1_749_049_740_450_000_000));

    let sections = flows(&["datalink-template", "datalink-data"]);
    let packet = &sections[0];
    assert_eq!(
        (packet.key.src.to_string(), packet.key.dst.to_string()),
        ("51.51.51.51".into(), "52.52.52.52".into())
    );
    assert_eq!((packet.key.src_port, packet.key.dst_port, packet.key.protocol), (55_501, 11_777, 17));
    assert_eq!(
        (packet.key.ingress, packet.key.vlan, packet.counters.packets, packet.counters.bytes),
        (582, 231, 1, 96)
    );
    assert_eq!(packet.details.direction, Some(Direction::Ingress));
    assert_eq!(flows(&["juniper-cpid-template", "juniper-cpid-data"]).len(), 1);

    let bundle = flows(&["physicalinterfaces"]);
    assert!(bundle.iter().all(|flow| flow.key.ingress == 1_342_177_291 && flow.sampling_interval == 1_000));
    assert!(bundle.iter().all(|flow| flow.details.src_mac.is_some() && flow.details.dst_mac.is_some()));

    let pings = flows(&["icmp-template", "icmp-data"]);
    let types: Vec<_> = pings.iter().map(|flow| flow.key.icmp()).collect();
    assert_eq!(types, [Some((128, 0)), Some((129, 0)), Some((8, 0)), Some((0, 0))]);
}

/// sFlow of captures from Akvorado's tests, as those and tshark read it.
#[test]
fn samples_of_sflow_are_flows_of_one_packet() {
    let Some(root) = thalweg_testdata::shared("flow-export/akvorado/sflow") else { return };
    let flows = |name: &str| {
        let (mut importer, mut flows) = (SflowImporter::default(), Vec::new());
        for datagram in captured(&root, &format!("{name}.pcap")) {
            let (header, fault) = importer.handle_datagram(1, &datagram, 7, &mut flows).unwrap();
            assert_eq!(fault, None);
            let counters = importer.counters();
            let read = counters.flow_records + counters.without_addresses;
            assert_eq!(read + counters.counter_samples + counters.other_samples, u64::from(header.samples));
        }
        flows
    };
    let seen = |flows: &[FlowRecord]| -> Vec<(u32, u32, u32)> {
        flows.iter().map(|flow| (flow.sampling_interval, flow.key.ingress, flow.egress)).collect()
    };
    let rate = 1024;
    let five = flows("data-1140");
    let ways = [(27, 28), (49_001, 25), (27, 28), (28, 49_001), (27, 28)];
    assert_eq!(seen(&five), ways.map(|(ingress, egress)| (rate, ingress, egress)));
    assert_eq!(five[0].key.src.to_string(), "2a0c:8880:2:0:185:21:130:38");
    assert_eq!((five[0].key.src_port, five[0].key.dst_port, five[0].key.vlan), (46_026, 22, 100));
    assert_eq!((five[0].counters.packets, five[0].counters.last_ns), (1, 7));
    assert!(five[0].details.src_mac.is_some());
    assert_eq!(seen(&flows("data-multiple-interfaces")), [(rate, 27, NO_INTERFACE)]);
    let expanded = flows("data-sflow-expanded-sample");
    assert_eq!(seen(&expanded), [(1000, 29_001, 1_285_816_721)]);
    assert_eq!((expanded[0].src_as, expanded[0].key.dst_port), (203_476, 52_237));
    assert_eq!(seen(&flows("data-sflow-ipv4-data")), [(256, NO_INTERFACE, 182)]);
    assert_eq!(seen(&flows("data-sflow-raw-ipv4")), [(1, NO_INTERFACE, 2); 2]);
    let ping = flows("data-icmpv4");
    assert_eq!((ping[0].key.src.to_string(), ping[0].key.icmp()), ("203.0.113.4".to_owned(), Some((8, 0))));
}

fn read(root: &Path, names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| std::fs::read(root.join(format!("{name}.dat"))).unwrap()).collect()
}

#[test]
fn vendors_mean_what_they_mean() {
    let Some(root) = thalweg_testdata::shared("flow-export/datagrams") else { return };
    let flows = |names: &[&str]| {
        let mut importer = Importer::default();
        let flows = imported(&mut importer, &read(&root, names));
        (importer, flows)
    };

    // NetFlow 5: the sampler is in the header.
    let (_, juniper) = flows(&["netflow5_test_juniper_mx80"]);
    assert!(juniper.iter().all(|flow| flow.sampling_interval == 1_000));
    assert_eq!(
        (juniper[0].src_as, juniper[0].dst_as, juniper[0].counters.tcp_flags),
        (64_497, 64_496, Some(16))
    );
    assert_eq!((juniper[0].key.ingress, juniper[0].egress), (542, 536));
    // Sent at 190,649,064 ms of uptime, seen at 190,632,000.
    assert_eq!(juniper[0].counters.last_ns, 1_469_109_172_000_000_000 - 17_064_000_000);

    // ASA: events of creation have no counters, those of teardown have bytes each way.
    let (asa, mut ended) = flows(&[
        "netflow9_test_cisco_asa_2_tpl_26x",
        "netflow9_test_cisco_asa_2_tpl_27x",
        "netflow9_test_cisco_asa_2_data",
    ]);
    assert_eq!(ended.len(), 19);
    ended.retain(|flow| flow.details.event.is_none());
    assert_eq!((ended.len() as u64, ended.is_empty()), (asa.counters().flow_records, false));
    assert!(ended.iter().all(|flow| flow.counters.packets == 0), "it does not count packets");
    assert!(ended.iter().any(|flow| flow.reverse.is_some_and(|reverse| reverse.bytes > 0)));

    // Reduced sizes, times by uptime.
    let (_, ipt) = flows(&["netflow9_test_iptnetflow_reduced_size_encoding_tpldata260"]);
    assert_eq!((ipt.len(), ipt[0].counters.bytes, ipt[0].key.src_port), (12, 156, 27_622));
    assert_eq!(ipt[0].next_hop, Some("193.151.192.17".parse().unwrap()));
    assert_eq!(ipt[0].counters.last_ns - ipt[0].counters.first_ns, 8_996_000_000);

    // Two families, an interface number of 0.
    let (_, softflowd) = flows(&["netflow9_test_softflowd_tpl_data"]);
    assert_eq!(softflowd.iter().filter(|flow| flow.key.src.is_ipv6()).count(), 1);
    assert!(softflowd.iter().all(|flow| flow.key.ingress == NO_INTERFACE && flow.egress == NO_INTERFACE));

    // Names of interfaces from options.
    let (asr9k, _) = flows(&["netflow9_test_cisco_asr9k_opttpl256", "netflow9_test_cisco_asr9k_data256"]);
    let names: Vec<_> =
        asr9k.interfaces().map(|(_, number, interface)| (number, interface.description.text())).collect();
    assert!(names.contains(&(0x4a, "TenGigE0_0_1_0".into())), "{names:?}");

    // YAF: totals of the whole flow, times in milliseconds, both directions.
    let (_, yaf) = flows(&[
        "ipfix_test_yaf_tpls_option_tpl",
        "ipfix_test_yaf_tpl45841",
        "ipfix_test_yaf_data45841",
        "ipfix_test_yaf_data45873",
    ]);
    assert_eq!(yaf.len(), 2);
    assert!(yaf.iter().all(|flow| flow.counters.packets > 0), "{yaf:?}");
}
