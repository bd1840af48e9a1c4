//! The cost of encoding a record, and of reading it back (`import`).
//!
//!     cargo bench -p thalweg-flow --bench export --profile quick
//!
//! Batches of 256 records are encoded and their messages polled, as in the probe's export thread. `mixed`
//! alternates between IPv4 and IPv6, which is the worst case for sets; `route` has AS numbers and next hops.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use std::net::IpAddr;
use thalweg_flow::export::{ExportOptions, Exporter, Transport, Version};
use thalweg_flow::import::Importer;
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};
use thalweg_wire::netflow::decode::Source;

const BATCH: u32 = 256;
const NOW_NS: u64 = 1_700_000_000_000_000_000;

fn main() {
    divan::main();
}

fn ipv4(n: u32) -> FlowRecord {
    let key = FlowKey {
        src: IpAddr::from((0x0a00_0000 + n * 77).to_be_bytes()),
        dst: IpAddr::from((0xc000_0200 + n).to_be_bytes()),
        src_port: n as u16,
        dst_port: 443,
        protocol: 6,
        traffic_class: 0,
        ingress: 1,
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets: u64::from(n) + 1,
        bytes: u64::from(n) * 900 + 64,
        first_ns: NOW_NS - 10_000_000_000,
        last_ns: NOW_NS - 1_000_000,
        tcp_flags: Some(0x1b),
        ttl_min: Some(60),
        ttl_max: Some(64),
    };
    FlowRecord::new(key, counters, EndReason::IdleTimeout)
}

fn ipv6(n: u32) -> FlowRecord {
    let record = ipv4(n);
    let address = |n: u32| IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(n)).to_be_bytes());
    FlowRecord { key: FlowKey { src: address(n), dst: address(n * 31), ..record.key }, ..record }
}

fn biflow(n: u32) -> FlowRecord {
    let record = ipv4(n);
    FlowRecord { reverse: Some(record.counters), ..record }
}

fn mixed(n: u32) -> FlowRecord {
    if n % 4 < 2 { ipv4(n) } else { ipv6(n) }
}

fn route(n: u32) -> FlowRecord {
    let hop = Some(IpAddr::from([192, 0, 2, 1]));
    FlowRecord { src_as: 64_500, dst_as: 64_501, next_hop: hop, bgp_next_hop: hop, egress: 2, ..ipv4(n) }
}

fn encode(bencher: Bencher, version: Version, record: fn(u32) -> FlowRecord) {
    let records: Vec<FlowRecord> = (0..BATCH).map(record).collect();
    let mut exporter =
        Exporter::new(&ExportOptions::new(version, Transport::Datagram)).expect("these options go together");
    exporter.handle_connected(NOW_NS);
    let mut message = Vec::new();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        exporter.handle_records(black_box(&records), NOW_NS);
        while exporter.poll_message(&mut message).is_some() {
            black_box(&message);
        }
    });
}

#[divan::bench(args = ["ipv4", "ipv6", "mixed", "route", "biflow"])]
fn ipfix(bencher: Bencher, what: &str) {
    encode(bencher, Version::Ipfix, maker(what));
}

#[divan::bench(args = ["ipv4", "ipv6", "mixed", "route", "biflow"])]
fn netflow9(bencher: Bencher, what: &str) {
    encode(bencher, Version::NetFlow9, maker(what));
}

#[divan::bench]
fn netflow5(bencher: Bencher) {
    encode(bencher, Version::NetFlow5, ipv4);
}

/// By datagrams of NetFlow 9, templates included.
#[divan::bench(args = ["ipv4", "ipv6", "mixed", "route", "biflow"])]
fn import(bencher: Bencher, what: &str) {
    let records: Vec<FlowRecord> = (0..BATCH).map(maker(what)).collect();
    let options = ExportOptions::new(Version::NetFlow9, Transport::Datagram);
    let mut exporter = Exporter::new(&options).expect("these options go together");
    exporter.handle_connected(NOW_NS);
    exporter.handle_records(&records, NOW_NS);
    let mut messages = Vec::new();
    let mut message = Vec::new();
    while exporter.poll_message(&mut message).is_some() {
        messages.push(message.clone());
    }
    let mut importer = Importer::default();
    let mut flows = Vec::new();
    let mut read = || {
        flows.clear();
        for message in &messages {
            let source = Source { exporter: 1, is_stream: false };
            let report = importer.handle_message(source, message, NOW_NS, &mut flows);
            black_box(report.expect("messages of our own are whole"));
        }
        flows.len()
    };
    // The last records stay in an unfinished message.
    let count = read();
    assert!(count > BATCH as usize / 2);
    bencher.counter(ItemsCount::new(count)).bench_local(read);
}

fn maker(what: &str) -> fn(u32) -> FlowRecord {
    match what {
        "ipv4" => ipv4,
        "ipv6" => ipv6,
        "mixed" => mixed,
        "route" => route,
        _ => biflow,
    }
}
