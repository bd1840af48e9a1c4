//! UDP: totals, sequence numbers, ICMP errors, several collectors.

use super::*;
use crate::common::{in_namespace, ip};
use crate::reader::{Reader, address, number};
use std::net::UdpSocket;
use thalweg_flow::export::{Fan, Spread, Statistics};
use thalweg_ports::collector::{Collector, CollectorAddress, CollectorError, CollectorOptions, Connection};
use thalweg_testdata::uninterrupted;
use thalweg_wire::netflow::element::{PACKET_DELTA_COUNT, SOURCE_IPV4_ADDRESS};

/// A socket, and its address as a collector.
fn socket(scheme: &str, host: &str) -> (UdpSocket, CollectorAddress) {
    let socket = UdpSocket::bind((host, 0)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let address = format!("{scheme}://{}", socket.local_addr().unwrap()).parse().unwrap();
    (socket, address)
}

/// All datagrams in a socket's buffer.
fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 65_536];
    let mut messages = Vec::new();
    while let Ok(bytes) = uninterrupted(|| socket.recv(&mut buffer)) {
        messages.push(buffer[..bytes].to_vec());
    }
    messages
}

#[test]
fn records_arrive_over_both_families() {
    for (scheme, host) in [("ipfix", "127.0.0.1"), ("v9", "127.0.0.1"), ("v5", "127.0.0.1"), ("ipfix", "::1")]
    {
        let Ok(_) = UdpSocket::bind((host, 0)) else {
            thalweg_testdata::skipped(&format!("no {host} here"));
            continue;
        };
        let (socket, address) = socket(scheme, host);
        let records: Vec<_> = (1..=1000).map(record).collect();
        let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
        for batch in records.chunks(70) {
            collector.send(batch.to_vec()).unwrap();
        }
        collector.set_statistics(Statistics::default());
        let report = collector.finish(TIMEOUT);
        let reader = Reader::of(&drain(&socket));
        let packets: u64 = reader.flows.iter().map(|flow| number(&flow[&(0, PACKET_DELTA_COUNT)])).sum();
        assert_eq!(reader.flows.len(), records.len(), "{scheme}");
        assert_eq!(packets, amount(&records).packets);
        assert_eq!(report.sent, amount(&records));
        assert_eq!(report.lost_in_all(), Amount::default());
        check_totals(&report);
    }
}

/// Many more than the buffer has room for, to a collector that reads with pauses.
#[test]
fn a_collector_on_this_system_is_not_sent_more_than_it_has_room_for() {
    let (socket, address) = socket("ipfix", "127.0.0.1");
    let records: Vec<_> = (1..=50_000).map(record).collect();
    let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
    let reading = std::thread::spawn(move || {
        let (mut messages, mut buffer) = (Vec::new(), [0; 65_536]);
        socket.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
        while let Ok(bytes) = uninterrupted(|| socket.recv(&mut buffer)) {
            messages.push(buffer[..bytes].to_vec());
            if messages.len() % 50 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        messages
    });
    for batch in records.chunks(256) {
        collector.send(batch.to_vec()).unwrap();
    }
    let report = collector.finish(TIMEOUT);
    assert_eq!((report.sent, report.datagrams_dropped), (amount(&records), 0));
    assert_eq!(Reader::of(&reading.join().unwrap()).flows.len(), records.len());
}

/// What a collector that reads nothing has no room for is counted.
#[test]
fn what_a_full_buffer_drops_is_counted() {
    let (socket, address) = socket("ipfix", "127.0.0.1");
    let records: Vec<_> = (1..=20_000).map(record).collect();
    let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
    for batch in records.chunks(256) {
        collector.send(batch.to_vec()).unwrap();
    }
    let report = collector.finish(TIMEOUT);
    let (sent, messages) = (report.export.messages, drain(&socket));
    assert_eq!(sent, messages.len() as u64 + report.datagrams_dropped, "{report:?}");
    assert!(report.datagrams_dropped > 0);
}

/// Messages that the kernel cannot segment into datagrams are sent one by one, and none is lost.
#[test]
fn messages_longer_than_the_paths_mtu_arrive() {
    in_namespace("datagrams::messages_longer_than_the_paths_mtu_arrive", || {
        ip("link set lo mtu 1280");
        let (socket, address) = socket("ipfix", "127.0.0.1");
        let mut options = CollectorOptions::new(&address);
        let records: Vec<_> = (1..=1500).map(record).collect();
        options.export.message_bytes_max = 1400;
        let collector = Collector::open(&address, options.clone()).unwrap();
        records.chunks(400).for_each(|batch| collector.send(batch.to_vec()).unwrap());
        let report = collector.finish(TIMEOUT);
        assert_eq!((report.sent, report.lost_in_all()), (amount(&records), Amount::default()));
        let messages = drain(&socket);
        assert!(messages.iter().any(|message| message.len() > 1280), "the fragments were longer");
        assert_eq!(Reader::of(&messages).flows.len(), records.len());
        // Shorter messages are given to the kernel together, and arrive one by one.
        options.export.message_bytes_max = 1200;
        let collector = Collector::open(&address, options).unwrap();
        records.chunks(400).for_each(|batch| collector.send(batch.to_vec()).unwrap());
        assert_eq!(collector.finish(TIMEOUT).sent, amount(&records));
        let messages = drain(&socket);
        assert!(messages.iter().all(|message| message.len() <= 1200), "each is a datagram");
        assert_eq!(Reader::of(&messages).flows.len(), records.len());
    });
}

#[test]
fn what_version_5_cannot_carry_is_counted() {
    let (socket, address) = socket("v5", "127.0.0.1");
    let records = all_kinds(900);
    let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
    collector.send(records.clone()).unwrap();
    let report = collector.finish(TIMEOUT);
    assert_eq!(report.accepted, amount(&records));
    assert_eq!(report.unexportable_in_all().records, 200);
    check_totals(&report);
    assert_eq!(Reader::of(&drain(&socket)).flows.len() as u64, report.sent.records);
}

#[test]
fn nobody_there_is_told_by_icmp() {
    let (socket, address) = socket("v9", "127.0.0.78");
    drop(socket);
    let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
    for n in 1..=20 {
        collector.send((0..100).map(|m| record(100 * n + m)).collect()).unwrap();
    }
    let report = collector.finish(TIMEOUT);
    assert!(report.refused > 0, "{report:?}");
    check_totals(&report);
}

#[test]
fn several_collectors_have_sessions_of_their_own() {
    let records: Vec<_> = (1..=1200).map(record).collect();
    for spread in [Spread::Balance, Spread::Duplicate] {
        let mut fan = Fan::new(3, spread);
        let open = |n: u32| {
            let (socket, address) = socket("ipfix", "127.0.0.1");
            let mut options = CollectorOptions::new(&address);
            options.export.observation_domain = n + 1;
            (socket, Collector::open(&address, options).unwrap())
        };
        let sessions: Vec<_> = (0..3).map(open).collect();
        for batch in records.chunks(100) {
            fan.share(batch, |n, share| sessions[n].1.send(share.to_vec()).unwrap());
        }
        let mut numbers = Vec::new();
        for (n, (socket, collector)) in sessions.into_iter().enumerate() {
            check_totals(&collector.finish(TIMEOUT));
            let reader = Reader::of(&drain(&socket));
            assert_eq!(reader.domain, n as u32 + 1);
            numbers.extend(reader.flows.iter().map(|flow| number(&flow[&(0, PACKET_DELTA_COUNT)])));
        }
        numbers.sort_unstable();
        let copies = if spread == Spread::Balance { 1 } else { 3 };
        let expected: Vec<u64> = (1..=1200).flat_map(|n| std::iter::repeat_n(n, copies)).collect();
        assert_eq!(numbers, expected);
    }
}

#[test]
fn a_name_that_leads_nowhere_is_told() {
    let address: CollectorAddress = "ipfix://no-such-host.invalid".parse().unwrap();
    let error = Collector::open(&address, CollectorOptions::new(&address)).err().expect("refused");
    assert!(matches!(error, CollectorError::Resolve { .. }), "{error}");
    assert!(error.to_string().starts_with("collector's host `no-such-host.invalid`"), "{error}");
}

#[test]
fn a_router_waits_for_a_name() {
    let address: CollectorAddress = "ipfix://no-such-host.invalid".parse().unwrap();
    let options = CollectorOptions { waits_for_name: true, ..CollectorOptions::new(&address) };
    let collector = Collector::open(&address, options).expect("it opens");
    let records: Vec<_> = (1..=10).map(record).collect();
    collector.send(records.clone()).unwrap();
    let report = collector.finish(TIMEOUT);
    assert_eq!((report.lost_in_all(), report.sent), (amount(&records), Amount::default()));
    let Connection::Down(why) = &report.connection else { panic!("{:?}", report.connection) };
    assert!(why.starts_with("collector's host `no-such-host.invalid`"), "{why}");
}

/// The sets of an IPFIX message: their IDs and offsets.
fn sets(message: &[u8]) -> impl Iterator<Item = (u16, usize)> + '_ {
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let mut at = 16;
    std::iter::from_fn(move || {
        let set = (at < message.len()).then(|| (word(at), at))?;
        at += usize::from(word(at + 2));
        Some(set)
    })
}

#[test]
fn a_collector_that_is_restarted_reads_after_an_interval() {
    // An address of its own, so no other test takes the port in between.
    let (first, place) = socket("ipfix", "127.0.0.77");
    let local = first.local_addr().unwrap();
    let mut options = CollectorOptions::new(&place);
    options.export.template_interval_ns = SECOND_NS;
    let collector = Collector::open(&place, options).unwrap();
    collector.send((1..=100).map(record).collect()).unwrap();
    wait_until("the first messages", || collector.report().sent.records > 0);
    drop(first);
    // A process that another test starts holds a copy of the first socket until it executes its program.
    let mut second = None;
    wait_until("the port is free", || {
        second = UdpSocket::bind(local).ok();
        second.is_some()
    });
    let second = second.unwrap();
    let mut messages: Vec<Vec<u8>> = Vec::new();
    // Records before the templates cannot be read; after them, all can.
    let has_templates = |message: &Vec<u8>| sets(message).any(|(id, _)| id == 2);
    wait_until("templates and a record behind them", || {
        collector.send(vec![record(7)]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        messages.extend(drain(&second));
        let from = messages.iter().position(has_templates).unwrap_or(messages.len());
        messages[from..].iter().skip(1).any(|message| sets(message).any(|(id, _)| id >= 1024))
    });
    messages.drain(..messages.iter().position(has_templates).unwrap());
    let mut reader = Reader::default();
    // Records that precede the templates in the first message are not read.
    let (_, at) = sets(&messages[0]).find(|(id, _)| *id == 2).unwrap();
    messages[0].drain(16..at);
    let length = messages[0].len() as u16;
    messages[0][2..4].copy_from_slice(&length.to_be_bytes());
    reader.lose_messages();
    reader.read(&messages[0]);
    reader.lose_messages();
    messages[1..].iter().for_each(|message| reader.read(message));
    assert!(!reader.flows.is_empty());
    assert!(reader.flows.iter().all(|flow| address(&flow[&(0, SOURCE_IPV4_ADDRESS)]) == record(7).key.src));
    check_totals(&collector.finish(TIMEOUT));
}

/// Sends records until a session is read from its first message on, and checks that it counts from zero and that no
/// template is missing. Returns where it came from.
fn first_of_session(collector: &Collector, socket: &UdpSocket) -> IpAddr {
    let mut buffer = [0; 65_536];
    let (mut messages, mut source) = (Vec::new(), None);
    socket.set_nonblocking(true).unwrap();
    wait_until("a session with records", || {
        collector.send(vec![record(7); 100]).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        while let Ok((bytes, from)) = uninterrupted(|| socket.recv_from(&mut buffer)) {
            source.get_or_insert(from.ip());
            messages.push(buffer[..bytes].to_vec());
        }
        !messages.is_empty() && !Reader::of(&messages).flows.is_empty()
    });
    assert_eq!(messages[0][8..12], [0; 4], "a new session counts from zero");
    source.unwrap()
}

/// As when a router starts before its routes are there.
#[test]
fn export_begins_when_there_is_a_route() {
    in_namespace("datagrams::export_begins_when_there_is_a_route", || {
        let address: CollectorAddress = "ipfix://192.0.2.9:4739".parse().unwrap();
        let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
        let Connection::Down(why) = collector.report().connection else {
            panic!("{:?}", collector.report());
        };
        assert!(why.contains("Network is unreachable"), "{why}");
        let lost: Vec<_> = (1..=100).map(record).collect();
        collector.send(lost.clone()).unwrap();
        wait_until("losses are counted", || collector.report().lost_in_all() == amount(&lost));
        ip("addr add 192.0.2.9/32 dev lo");
        let socket = UdpSocket::bind("192.0.2.9:4739").unwrap();
        first_of_session(&collector, &socket);
        wait_until("it is told", || collector.report().connection == Connection::Unknown);
        check_totals(&collector.finish(TIMEOUT));
    });
}

/// The address that a socket has as its source may be taken from this system.
#[test]
fn another_source_address_begins_another_session() {
    in_namespace("datagrams::another_source_address_begins_another_session", || {
        let has_source = |source: &str| {
            ip(&format!("addr add {source}/32 dev lo"));
            ip(&format!("route replace local 192.0.2.9 dev lo table local src {source}"));
        };
        ip("addr add 192.0.2.9/32 dev lo");
        has_source("10.0.0.1");
        let socket = UdpSocket::bind("192.0.2.9:0").unwrap();
        let address = format!("ipfix://{}", socket.local_addr().unwrap()).parse().unwrap();
        let collector = Collector::open(&address, CollectorOptions::new(&address)).unwrap();
        assert_eq!(first_of_session(&collector, &socket), IpAddr::from([10, 0, 0, 1]));
        ip("addr del 10.0.0.1/32 dev lo");
        wait_until("losses are counted", || {
            collector.send(vec![record(7)]).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            collector.report().lost_in_all().records > 0
        });
        drain(&socket);
        has_source("10.0.0.2");
        assert_eq!(first_of_session(&collector, &socket), IpAddr::from([10, 0, 0, 2]));
        check_totals(&collector.finish(TIMEOUT));
    });
}
