//! pmacct's nfacctd reads a capture of exported messages.

use super::*;
use thalweg_testdata::collectors::pmacct::{check_log, collect, sum};

pub(crate) const KEYS: &str = "src_host,dst_host,src_port,dst_port,proto,tos,vlan,src_as,dst_as,in_iface,out_iface,peer_dst_ip,\
                    post_nat_src_host,post_nat_src_port,mpls_label_top,timestamp_start";

#[test]
fn totals_are_equal() {
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        let told = |record: &&FlowRecord| {
            record.sampling_interval == 1
                && record.reverse.is_none()
                && (version != Version::NetFlow5 || record.key.src.is_ipv4())
        };
        let records: Vec<_> = all_kinds(900).iter().filter(told).copied().collect();
        let messages = messages(&datagram_options(version), &records, NOW_NS);
        let Some((rows, log)) = collect(&messages, KEYS, "") else { return };
        check_log(&log);
        let expected = amount(&records);
        assert_eq!(rows.len() as u64, expected.records, "{version:?}\n{log}");
        assert_eq!(sum(&rows, "PACKETS"), expected.packets, "{version:?}");
        assert_eq!(sum(&rows, "BYTES"), expected.bytes, "{version:?}");
        let count = |name: &str, value: &str| rows.iter().filter(|row| row[name] == value).count();
        assert_eq!(count("IN_IFACE", "1"), records.len(), "{version:?}: {:?}", rows[0]);
        if version != Version::NetFlow5 {
            assert_eq!(count("VLAN", "100"), 100, "{version:?}: {:?}", rows[0]);
            assert_eq!(count("DST_AS", "4200000000"), 100, "{version:?}");
            assert_eq!(count("POST_NAT_SRC_IP", "203.0.113.7"), 100, "{version:?}");
            assert_eq!(count("PEER_DST_IP", "198.51.100.2"), 100, "{version:?}");
        }
    }
}

#[test]
fn sampled_records_are_multiplied() {
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        let records: Vec<_> = (1..=300).map(|n| FlowRecord { sampling_interval: 100, ..record(n) }).collect();
        let messages = messages(&datagram_options(version), &records, NOW_NS);
        let Some((rows, log)) = collect(&messages, KEYS, "nfacctd_renormalize: true") else { return };
        check_log(&log);
        assert_eq!(sum(&rows, "PACKETS"), 100 * amount(&records).packets, "{version:?}\n{log}");
    }
}

#[test]
fn nat_events_are_read() {
    for version in [Version::NetFlow9, Version::Ipfix] {
        let mut exporter = Exporter::new(&datagram_options(version)).unwrap();
        exporter.handle_connected(NOW_NS);
        exporter.handle_nat_events(&nfdump::nat_sessions(), NOW_NS);
        exporter.handle_end(NOW_NS);
        let keys = "src_host,src_port,post_nat_src_host,post_nat_src_port,nat_event,dst_host,dst_port,proto";
        let Some((rows, log)) = collect(&polled(&mut exporter), keys, "") else { return };
        check_log(&log);
        assert_eq!(rows.len(), 200, "{version:?}\n{log}");
        assert!(rows.iter().all(|row| row["POST_NAT_SRC_IP"] == "198.51.100.1"), "{:?}", rows[0]);
    }
}
