//! pmacct's nfacctd reads a capture of what was exported.

use super::*;
use std::fs;

/// Runs nfacctd over these messages; the rows it printed, and what it logged.
pub(crate) fn collect(messages: &[Vec<u8>], aggregate: &str, more: &str) -> Option<(Vec<Row>, String)> {
    let nfacctd = program("nfacctd", "pmacct")?;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("in.pcap"), capture(messages, NOW_NS)).unwrap();
    let configuration = format!(
        "daemonize: false\nlogfile: {}\nplugins: print[a]\naggregate[a]: {aggregate}\nprint_output[a]: csv\n\
         print_output_file[a]: {}\nprint_refresh_time: 3600\npcap_savefile: {}\n{more}\n",
        path("log").display(),
        path("rows").display(),
        path("in.pcap").display(),
    );
    fs::write(path("configuration"), configuration).unwrap();
    let output = Command::new(nfacctd).arg("-f").arg(path("configuration")).output().expect("nfacctd runs");
    let log = format!(
        "{}{}{}",
        fs::read_to_string(path("log")).unwrap_or_default(),
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    let rows = fs::read_to_string(path("rows")).unwrap_or_else(|error| panic!("no rows: {error}\n{log}"));
    Some((rows_of(&rows), log))
}

pub(crate) type Row = std::collections::HashMap<String, String>;

fn rows_of(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
    lines.map(|line| names.iter().cloned().zip(line.split(',').map(str::to_owned)).collect()).collect()
}

pub(crate) fn sum(rows: &[Row], name: &str) -> u64 {
    rows.iter().map(|row| row[name].parse::<u64>().unwrap()).sum()
}

pub(crate) fn check_log(log: &str) {
    for word in ["WARN", "ERROR", "equence", "discarded", "unknown template"] {
        assert!(!log.contains(word), "{log}");
    }
}

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
        assert_eq!(sum(&rows, "BYTES"), expected.octets, "{version:?}");
        let count = |name: &str, value: &str| rows.iter().filter(|row| row[name] == value).count();
        assert_eq!(count("IN_IFACE", "2"), records.len(), "{version:?}: {:?}", rows[0]);
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
