//! A server that accepts, refuses, hangs up after it has read, or is not there: what arrives, and what is counted.

use super::*;
use crate::collector::{Collector, CollectorReport};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use thalweg_flow::{Counters, EndReason, FlowKey};

const ACCEPTS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const REFUSES: &str = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nCode: 60. DB::Exception: Table default.t doesn't exist.\n";
/// Closes without an answer.
const HANGS_UP: &str = "";

fn record(number: u64) -> FlowRecord {
    let address = [10, 0, 0, 1].into();
    let key = FlowKey {
        src: address,
        dst: address,
        src_port: 1,
        dst_port: 2,
        protocol: 17,
        traffic_class: 0,
        ingress: 0,
        vlan: 0,
        mpls_label: None,
    };
    FlowRecord::new(
        key,
        Counters { packets: number, bytes: 1, ..Counters::default() },
        EndReason::IdleTimeout,
    )
}

fn records(numbers: std::ops::Range<u64>) -> Vec<FlowRecord> {
    numbers.map(record).collect()
}

/// The head of a request, and the numbers of the records in its body.
type Posted = (String, Vec<u64>);

fn read_request(stream: &mut TcpStream) -> Option<Posted> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            let body = &bytes[end + 4..];
            if body.len() == length.parse::<usize>().unwrap() {
                return Some((
                    head,
                    body.as_chunks().0.iter().map(|eight| u64::from_le_bytes(*eight)).collect(),
                ));
            }
        }
        match stream.read(&mut piece).unwrap() {
            0 => return None,
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// Gives these answers, one for each connection.
fn server(answers: Vec<&'static str>) -> (u16, JoinHandle<Vec<Posted>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        let answer = |answer: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            request
        };
        answers.into_iter().map(answer).collect()
    };
    (port, std::thread::spawn(serve))
}

fn open(port: u16, query: &str, spool: Option<SpoolOptions>) -> Collector {
    let address = format!("clickhouse://127.0.0.1:{port}/t{query}").parse().unwrap();
    let encode: Encode =
        Box::new(|record: &FlowRecord, row: &mut Vec<u8>| row.extend(record.counters.packets.to_le_bytes()));
    let options = ClickHouseOptions::new(vec!["packets", "bytes"], encode);
    let options = ClickHouseOptions { spool, retry_max: Duration::from_millis(100), ..options };
    Collector::open_clickhouse(&address, options).unwrap()
}

fn balances(report: &CollectorReport) {
    let fates =
        [report.sent, report.in_flight, report.spooled, report.lost_in_all(), report.unexportable_in_all()];
    assert_eq!(report.accepted, fates.into_iter().sum(), "{report:?}");
}

/// A refused block and one without an answer come again as they were; the second may be there twice, and counts.
#[test]
fn a_block_is_repeated_as_it_was() {
    let (port, server) = server(vec![REFUSES, HANGS_UP, ACCEPTS, ACCEPTS]);
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let collector = open(port, &format!("?user=u&wait_ms=0&password_file={}", password.display()), None);
    collector.send(records(0..10)).unwrap();
    while collector.report().sent.records < 10 {
        std::thread::yield_now();
    }
    collector.send(records(10..30)).unwrap();
    let report = collector.finish(Duration::from_secs(30));
    let requests = server.join().unwrap();
    let bodies: Vec<Vec<u64>> = requests.iter().map(|(_, body)| body.clone()).collect();
    let first: Vec<u64> = (0..10).collect();
    assert_eq!(bodies, [first.clone(), first.clone(), first, (10..30).collect()]);
    let head = &requests[0].0;
    let query = "INSERT%20INTO%20t%20%28packets%2Cbytes%29%20FORMAT%20RowBinary";
    assert!(head.starts_with(&format!("POST /?wait_end_of_query=1&query={query} HTTP/1.1\r\n")), "{head}");
    assert!(head.contains("\r\nX-ClickHouse-User: u\r\nX-ClickHouse-Key: secret\r\n"), "{head}");
    assert_eq!((report.sent.records, report.resent.records, report.refused), (30, 10, 2));
    balances(&report);
    let why = report.last_error.unwrap();
    assert!(why.starts_with("no answer to an insert"), "{why}");
}

/// Without a server everything goes to the spool, which the next process sends first, in order.
#[test]
fn what_a_server_missed_comes_from_the_spool() {
    let folder = tempfile::tempdir().unwrap();
    let spool = || Some(SpoolOptions { folder: folder.path().join("spool"), bytes_max: 64 << 20 });
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let collector = open(port, "?wait_ms=0", spool());
    for part in 0..100 {
        collector.send(records(part * 50..part * 50 + 50)).unwrap();
    }
    let report = collector.finish(Duration::from_millis(200));
    assert_eq!((report.spooled.records, report.sent.records), (5000, 0));
    assert!(matches!(report.connection, Connection::Down(_)), "{:?}", report.connection);
    balances(&report);
    let (port, server) = server(vec![ACCEPTS, ACCEPTS]);
    let collector = open(port, "?wait_ms=0", spool());
    while collector.report().sent.records < 5000 {
        std::thread::yield_now();
    }
    collector.send(records(5000..5001)).unwrap();
    let report = collector.finish(Duration::from_secs(30));
    let sent: Vec<u64> = server.join().unwrap().into_iter().flat_map(|(_, body)| body).collect();
    assert_eq!(sent, (0..5001).collect::<Vec<_>>());
    assert_eq!((report.inherited.records, report.sent.records, report.resent.records), (5000, 5001, 0));
    balances(&report);
}

/// Without a spool what is left at the end is lost, and NAT events have no column: all of it counts.
#[test]
fn what_is_lost_is_counted() {
    let (port, server) = server(vec![REFUSES]);
    let collector = open(port, "?wait_ms=0", None);
    collector.send(records(0..7)).unwrap();
    server.join().unwrap();
    let report = collector.finish(Duration::from_millis(50));
    assert_eq!((report.lost[RecordLoss::Ended as usize].records, report.sent.records), (7, 0));
    balances(&report);
    assert!(report.refused > 0);
}
