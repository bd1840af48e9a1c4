//! Sessions with collectors: our own servers that die and return, and other people's programs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;
mod datagrams;
mod midsession;
mod nfdump;
mod pmacct;
#[path = "../../../flow/tests/export/reader.rs"]
mod reader;
mod server;
mod stream;
mod tls;
mod tshark;

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;
use thalweg_base::DropReason;
use thalweg_flow::export::{Amount, ExportOptions, Exporter, Transport, Version};
use thalweg_flow::{Counters, Drops, EndReason, FlowKey, FlowRecord, Translation};
use thalweg_ports::collector::CollectorReport;
use thalweg_testdata::collectors::{CAPTURED_NS, TIMEOUT, program, run, wait_until};

const NOW_NS: u64 = CAPTURED_NS;
const SECOND_NS: u64 = 1_000_000_000;

/// A record with `n` packets, which identify it.
fn record(n: u64) -> FlowRecord {
    let key = FlowKey {
        src: IpAddr::from((0x0a00_0000 + n as u32).to_be_bytes()),
        dst: IpAddr::from([192, 0, 2, (n % 250) as u8 + 1]),
        src_port: 1024 + (n % 60_000) as u16,
        dst_port: 443,
        protocol: if n.is_multiple_of(3) { 17 } else { 6 },
        traffic_class: 0x28,
        ingress: 1,
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets: n,
        bytes: 100 * n,
        first_ns: NOW_NS - (10 + n % 50) * SECOND_NS,
        last_ns: NOW_NS - (n % 10) * SECOND_NS,
        tcp_flags: (!n.is_multiple_of(3)).then_some(0x1b),
        ttl_min: Some(60),
        ttl_max: Some(64),
    };
    FlowRecord { egress: 2, application: 5, ..FlowRecord::new(key, counters, EndReason::IdleTimeout) }
}

/// Records of every kind that an exporter knows.
fn all_kinds(count: u64) -> Vec<FlowRecord> {
    let six = |n: u64, net: u128| IpAddr::from((net << 96 | u128::from(n)).to_be_bytes());
    let of_kind = |n: u64| {
        let plain = record(n + 1);
        match n % 9 {
            0 => FlowRecord {
                key: FlowKey { src: six(n, 0x2001_0db8), dst: six(1, 0x2001_0db9), ..plain.key },
                ..plain
            },
            1 => FlowRecord {
                key: FlowKey { vlan: 100, mpls_label: Some(16_000 + n as u32), ..plain.key },
                ..plain
            },
            2 => FlowRecord {
                src_as: 64_500,
                dst_as: 4_200_000_000,
                next_hop: Some(IpAddr::from([198, 51, 100, 1])),
                bgp_next_hop: Some(IpAddr::from([198, 51, 100, 2])),
                ..plain
            },
            3 => FlowRecord {
                key: FlowKey { src: six(n, 0x2001_0db8), dst: six(2, 0x2001_0db9), ..plain.key },
                next_hop: Some("fe80::1".parse().unwrap()),
                src_as: 64_500,
                dst_as: 64_501,
                ..plain
            },
            4 => FlowRecord {
                translation: Some(Translation {
                    src: IpAddr::from([203, 0, 113, 7]),
                    dst: plain.key.dst,
                    src_port: 2000,
                    dst_port: plain.key.dst_port,
                }),
                ..plain
            },
            5 => {
                let mut drops = Drops::default();
                drops.add(DropReason::AclDenied, plain.counters.packets as u32, plain.counters.bytes);
                FlowRecord { drops, ..plain }
            }
            6 => FlowRecord { sampling_interval: 100, ..plain },
            7 => FlowRecord {
                key: FlowKey { protocol: 1, src_port: 0, dst_port: 8 << 8, ..plain.key },
                ..plain
            },
            _ => FlowRecord { reverse: Some(Counters { tcp_flags: Some(0x12), ..plain.counters }), ..plain },
        }
    };
    (0..count).map(of_kind).collect()
}

fn amount(records: &[FlowRecord]) -> Amount {
    let mut amount = Amount::default();
    records.iter().for_each(|record| amount += Amount::of(record));
    amount
}

/// Checks a stream's report; nothing may have been split.
fn check_totals(report: &CollectorReport) {
    let mut out = report.sent;
    for amount in [report.in_flight, report.spooled, report.lost_in_all(), report.unexportable_in_all()] {
        out += amount;
    }
    out.records -= report.export.split;
    assert_eq!(report.accepted, out, "{report:?}");
}

/// The messages of a session over datagrams.
fn messages(options: &ExportOptions, records: &[FlowRecord], now_ns: u64) -> Vec<Vec<u8>> {
    let mut exporter = Exporter::new(options).unwrap();
    exporter.handle_connected(now_ns);
    exporter.handle_records(records, now_ns);
    exporter.handle_end(now_ns);
    polled(&mut exporter)
}

fn polled(exporter: &mut Exporter) -> Vec<Vec<u8>> {
    let (mut messages, mut message) = (Vec::new(), Vec::new());
    while exporter.poll_message(&mut message).is_some() {
        messages.push(message.clone());
    }
    messages
}

fn datagram_options(version: Version) -> ExportOptions {
    ExportOptions { observation_domain: 7, ..ExportOptions::new(version, Transport::Datagram) }
}
