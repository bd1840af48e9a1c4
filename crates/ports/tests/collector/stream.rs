//! TCP: what a collector receives that dies and returns, and what the counters say.

use super::*;
use crate::server::{Heard, Server};
use std::net::SocketAddr;
use thalweg_flow::export::RecordLoss;
use thalweg_ports::collector::{
    Carrier, Collector, CollectorAddress, CollectorOptions, Connection, SpoolOptions,
};

fn address_of(server: SocketAddr) -> CollectorAddress {
    format!("ipfix+tcp://{server}").parse().unwrap()
}

fn spooling(address: &CollectorAddress, folder: &std::path::Path, bytes_max: u64) -> CollectorOptions {
    CollectorOptions {
        spool: Some(SpoolOptions { folder: folder.to_owned(), bytes_max }),
        retry_max: Duration::from_millis(200),
        ..CollectorOptions::new(address)
    }
}

fn send(collector: &Collector, numbers: std::ops::RangeInclusive<u64>) {
    let records: Vec<_> = numbers.map(record).collect();
    for batch in records.chunks(100) {
        collector.send(batch.to_vec()).unwrap();
    }
}

fn heard_all(heard: &Heard, count: u64) -> bool {
    heard.lock().unwrap().len() as u64 >= count
}

#[test]
fn a_server_that_is_killed_and_restarted_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let heard = Heard::default();
    let server = Server::start("127.0.0.1:0".parse().unwrap(), None, &heard);
    let place = server.address;
    let address = address_of(place);
    let collector = Collector::open(&address, spooling(&address, folder.path(), 64 << 20)).unwrap();
    send(&collector, 1..=5000);
    wait_until("the first records", || heard_all(&heard, 5000));
    wait_until("their acknowledgement", || collector.report().in_flight.records == 0);
    server.kill();
    // The first of these may still be written to the connection; they are never acknowledged.
    send(&collector, 5001..=20_000);
    wait_until("the spool", || collector.report().spooled.records > 0);
    wait_until("the queue", || collector.report().accepted.records == 20_000);
    check_totals(&collector.report());
    let server = Server::start(place, None, &heard);
    send(&collector, 20_001..=25_000);
    wait_until("all records", || heard_all(&heard, 25_000));
    let report = collector.finish(TIMEOUT);
    server.kill();
    assert_eq!(*heard.lock().unwrap(), (1..=25_000).collect::<Vec<u64>>(), "in order, each once");
    assert_eq!(report.sent.records, 25_000);
    assert_eq!(report.lost_in_all(), Amount::default());
    assert_eq!(report.connects, 2, "{:?}", report.last_error);
    check_totals(&report);
}

#[test]
fn a_server_killed_in_the_middle_misses_only_what_it_did_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let heard = Heard::default();
    let server = Server::start("127.0.0.1:0".parse().unwrap(), None, &heard);
    let place = server.address;
    let address = address_of(place);
    let collector = Collector::open(&address, spooling(&address, folder.path(), 64 << 20)).unwrap();
    let sender = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&collector, 1..=200_000));
        wait_until("some records", || heard_all(&heard, 1000));
        server.kill();
        let server = Server::start(place, None, &heard);
        sending.join().unwrap();
        server
    });
    wait_until("all sent", || {
        let report = collector.report();
        report.sent.records == 200_000 && report.spooled.records == 0 && report.in_flight.records == 0
    });
    let report = collector.finish(TIMEOUT);
    check_totals(&report);
    wait_until("the last record", || heard.lock().unwrap().last() == Some(&200_000));
    sender.kill();
    let mut numbers = heard.lock().unwrap().clone();
    let heard_in_all = numbers.len() as u64;
    numbers.sort_unstable();
    numbers.dedup();
    // Acknowledged by the kernel but not read: at most what the kernel's largest receive buffer holds, at 54
    // bytes per record.
    let missing = 200_000 - numbers.len() as u64;
    assert!(missing <= (6 << 20) / 54, "{missing} records missing");
    assert!(
        heard_in_all - numbers.len() as u64 <= report.resent.records,
        "a record arrived twice, but is not counted as resent"
    );
    assert_eq!(report.lost_in_all(), Amount::default());
}

#[test]
fn what_the_spool_cannot_hold_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let heard = Heard::default();
    // A port without a listener.
    let server = Server::start("127.0.0.1:0".parse().unwrap(), None, &heard);
    let place = server.address;
    server.kill();
    let address = address_of(place);
    let collector = Collector::open(&address, spooling(&address, folder.path(), 100_000)).unwrap();
    send(&collector, 1..=10_000);
    wait_until("the queue", || collector.report().accepted.records == 10_000);
    let report = collector.report();
    check_totals(&report);
    assert!(
        matches!(report.connection, Connection::Down(_) | Connection::Unknown),
        "{:?}",
        report.connection
    );
    assert_eq!(report.lost[RecordLoss::SpoolFull as usize].records + report.spooled.records, 10_000);
    assert!(report.spooled.records > 500);
    let spooled = report.spooled.records;
    let server = Server::start(place, None, &heard);
    let report = collector.finish(TIMEOUT);
    server.kill();
    assert_eq!(report.sent.records, spooled);
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len() as u64, spooled);
    assert!(heard.is_sorted(), "in order");
}

#[test]
fn the_next_process_sends_what_one_left() {
    let folder = tempfile::tempdir().unwrap();
    let heard = Heard::default();
    let server = Server::start("127.0.0.1:0".parse().unwrap(), None, &heard);
    let place = server.address;
    server.kill();
    let address = address_of(place);
    let collector = Collector::open(&address, spooling(&address, folder.path(), 1 << 20)).unwrap();
    send(&collector, 1..=3000);
    let report = collector.finish(Duration::from_millis(300));
    check_totals(&report);
    assert_eq!(report.spooled.records, 3000);
    let server = Server::start(place, None, &heard);
    let collector = Collector::open(&address, spooling(&address, folder.path(), 1 << 20)).unwrap();
    send(&collector, 3001..=3100);
    let report = collector.finish(TIMEOUT);
    server.kill();
    assert_eq!(report.inherited.records, 3000);
    assert_eq!(report.sent.records, 3100);
    assert_eq!(*heard.lock().unwrap(), (1..=3100).collect::<Vec<u64>>());
    check_totals(&report);
}

#[test]
fn without_a_spool_a_collector_that_never_was_costs_counted_records() {
    let heard = Heard::default();
    let server = Server::start("127.0.0.1:0".parse().unwrap(), None, &heard);
    let address = address_of(server.address);
    server.kill();
    assert_eq!(address.carrier, Carrier::Tcp);
    let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
    send(&collector, 1..=1000);
    let report = collector.finish(Duration::from_millis(200));
    assert_eq!(report.accepted.records, 1000);
    assert_eq!(report.lost_in_all().records, 1000);
    assert!(report.refused >= 1);
    check_totals(&report);
}
