//! Neighbors that send their routes again, each in its own way.

use std::net::Ipv4Addr;

use thalweg_wire::mrt::{
    AsSize, Decoder, Direction, Endpoint, MessageForm, PeerIndex, RibRecord, Timestamp, frame, write_message,
    write_peer_index_table, write_state_change,
};

use super::*;

/// A neighbor at 192.0.2.N of AS 64500 + N, with this many routes in the router.
fn neighbor(number: u8, accepted: u64, refresh: bool, marks: bool) -> BgpNeighborView {
    serde_json::from_value(serde_json::json!({
        "name": format!("n{number}"), "address": format!("192.0.2.{number}"), "as": (64_500 + u32::from(number)).to_string(),
        "state": "Established", "accepted": accepted, "accepted_by_family": { "ipv4": accepted, "ipv6": 0 },
        "updates_received": 0, "messages_received": 0, "messages_sent": 0, "bytes_sent": 0, "flaps": 0, "counters": {},
        "negotiated": {
            "families": ["ipv4"], "router_id": format!("192.0.2.{number}"), "hold_time_s": 90, "four_octet_as": true,
            "extended_messages": false, "route_refresh": refresh, "enhanced_refresh": marks,
            "add_path_receive": { "ipv4": false, "ipv6": false }, "add_path_send": { "ipv4": false, "ipv6": false },
            "graceful_restart": false
        }
    }))
    .expect("a neighbor")
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

fn ends(number: u8) -> [Endpoint; 2] {
    let peer = Endpoint { address: address(number), asn: 64_500 + u32::from(number) };
    [peer, Endpoint { address: address(254), asn: 64_500 }]
}

const TIME: Timestamp = Timestamp { seconds: 1, microseconds: 0 };

/// A message of a neighbor.
fn message(number: u8, kind: MessageKind, body: &[u8]) -> Vec<u8> {
    let mut whole = vec![0xff; 16];
    whole.extend_from_slice(&(19 + body.len() as u16).to_be_bytes());
    whole.push(kind as u8);
    whole.extend_from_slice(body);
    let [peer, local] = ends(number);
    let form = MessageForm { direction: Direction::Received, as_size: AsSize::Four, add_path: false };
    let mut record = Vec::new();
    write_message(&mut record, TIME, peer, local, form, &whole).expect("a message fits");
    record
}

fn attributes(number: u8, first: u8) -> Vec<u8> {
    vec![0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf4 + number, 0x40, 3, 4, 192, 0, 2, first]
}

/// Announces 10.P.0.0/16.
fn announce(number: u8, prefix: u8) -> Vec<u8> {
    let attributes = attributes(number, number);
    let mut body = vec![0, 0, 0, attributes.len() as u8];
    body.extend_from_slice(&attributes);
    body.extend_from_slice(&[16, 10, prefix]);
    message(number, MessageKind::Update, &body)
}

fn withdraw(number: u8, prefix: u8) -> Vec<u8> {
    message(number, MessageKind::Update, &[0, 3, 16, 10, prefix, 0, 0])
}

fn mark(number: u8, kind: RefreshKind) -> Vec<u8> {
    message(number, MessageKind::RouteRefresh, &[0, 1, kind as u8, 1])
}

fn give(received: &mut Received, now_ms: u64, records: &[Vec<u8>]) {
    let bytes = records.concat();
    let (mut decoder, mut rest) = (Decoder::new(), &bytes[..]);
    while let Some((record, length)) = frame(rest).expect("short records") {
        received.handle(&decoder.decode(&record).expect("good records"), now_ms);
        rest = &rest[length..];
    }
}

fn prefixes(received: &mut Received) -> Vec<String> {
    let mut found = Vec::new();
    let visit = |entry: &RibEntry<'_>| {
        found.push(format!("{} of {}", entry.prefix, entry.peer.address));
        Ok::<(), ()>(())
    };
    received.drain(visit).expect("no error");
    found.sort_unstable();
    found
}

#[test]
fn a_neighbor_that_marks_is_complete_at_its_mark() {
    let mut received = Received::new(&[neighbor(1, 2, true, true)]);
    assert_eq!(received.request(), ReceivedRequest { watch: vec![address(1)], after_import: vec![] });
    assert_eq!(received.next(0), Some(address(1)));
    assert_eq!(received.next(0), None);
    // The end of another client's refresh does not count, and neither do routes before the beginning.
    give(&mut received, 1, &[mark(1, RefreshKind::End), announce(1, 9)]);
    assert!(!received.is_complete(QUIET_MS + 2) && received.routes() == 1);
    give(&mut received, 2, &[mark(1, RefreshKind::Begin), announce(1, 1), announce(1, 2), announce(1, 3)]);
    give(&mut received, 2, &[withdraw(1, 2), withdraw(1, 7)]);
    assert!(!received.is_complete(QUIET_MS + 3));
    give(&mut received, 3, &[mark(1, RefreshKind::End)]);
    assert!(received.is_complete(3));
    // A later change belongs to the running router's normal operation.
    give(&mut received, 4, &[announce(1, 4)]);
    assert_eq!(received.sources()[0].known, Known::AsSent);
    assert_eq!(
        prefixes(&mut received),
        ["10.1.0.0/16 of 192.0.2.1", "10.3.0.0/16 of 192.0.2.1", "10.4.0.0/16 of 192.0.2.1"]
    );
}

#[test]
fn a_neighbor_without_marks_is_complete_when_all_are_there_and_none_is_new() {
    let mut received = Received::new(&[neighbor(1, 2, true, false)]);
    assert_eq!(received.next(1000), Some(address(1)));
    give(&mut received, 1500, &[announce(1, 1)]);
    assert!(!received.is_complete(1500 + QUIET_MS), "the router has two");
    give(&mut received, 30_000, &[announce(1, 2)]);
    give(&mut received, 32_000, &[announce(1, 2)]);
    assert!(!received.is_complete(29_999 + QUIET_MS));
    assert!(received.is_complete(30_000 + QUIET_MS), "a route that changes is not new");
    assert_eq!(received.routes(), 2);
}

#[test]
fn who_does_not_send_all_is_named_and_left_out() {
    let names = |received: &Received| received.failures().join("\n");
    let mut received = Received::new(&[neighbor(1, 2, true, false), neighbor(2, 0, true, true)]);
    while received.next(0).is_some() {}
    give(&mut received, 0, &[announce(1, 1), announce(2, 1)]);
    assert!(!received.is_complete(STALLED_MS - 1));
    assert!(received.is_complete(STALLED_MS) && received.routes() == 0);
    let text = names(&received);
    assert!(
        text.contains("n1 are left out: it sent 1 ipv4 routes in 60 s, and the router has 2 of it"),
        "{text}"
    );
    assert!(
        text.contains("n2 are left out: it sent 1 ipv4 routes in 60 s and no end of the refresh"),
        "{text}"
    );
    assert_eq!(received.sources()[0].known, Known::Unknown);

    // A steady stream of new routes is not an end either.
    let mut received = Received::new(&[neighbor(1, 0, true, false)]);
    received.next(0);
    for at in 0..250 {
        give(&mut received, u64::from(at) * 4000, &[announce(1, at)]);
        if received.is_complete(u64::from(at) * 4000) {
            break;
        }
    }
    assert!(names(&received).contains("n1 are left out") && received.routes() == 0);
}

#[test]
fn a_session_that_ends_in_the_middle_is_named() {
    let mut received = Received::new(&[neighbor(1, 1, true, true), neighbor(2, 1, true, true)]);
    while received.next(0).is_some() {}
    give(
        &mut received,
        1,
        &[mark(2, RefreshKind::Begin), announce(2, 1), mark(2, RefreshKind::End), announce(1, 1)],
    );
    assert!(!received.is_complete(1));
    for number in [1, 2] {
        let [peer, local] = ends(number);
        let mut record = Vec::new();
        write_state_change(&mut record, TIME, peer, local, 6, 1).expect("one family");
        give(&mut received, 2, &[record]);
    }
    assert!(received.is_complete(2));
    assert_eq!(
        received.failures(),
        ["routes of n1 are left out: its session ended before it had sent all routes"]
    );
    let second = &received.sources()[1];
    assert_eq!((second.known, second.routes), (Known::AsSent, 1));
    assert_eq!(second.note.as_deref(), Some("its session has ended since"));
    assert_eq!(prefixes(&mut received), ["10.1.0.0/16 of 192.0.2.2"]);
}

#[test]
fn who_cannot_be_asked_has_the_routes_of_the_table() {
    let mut down = neighbor(3, 0, true, true);
    down.negotiated = None;
    let mut received = Received::new(&[neighbor(1, 1, false, false), neighbor(2, 1, true, true), down]);
    assert_eq!(
        received.request(),
        ReceivedRequest { watch: vec![address(1), address(2)], after_import: vec![address(1)] }
    );
    let peer = |number: u8| Peer {
        id: Ipv4Addr::new(192, 0, 2, number),
        address: address(number),
        asn: 64_500 + u32::from(number),
    };
    let index =
        PeerIndex { collector: Ipv4Addr::LOCALHOST, view: String::new(), peers: (0..3).map(peer).collect() };
    let mut table = Vec::new();
    write_peer_index_table(&mut table, 0, &index).expect("the peers fit");
    let prefix = "10.1.0.0/16".parse().expect("a prefix");
    let mut record = RibRecord::begin(&mut table, 0, 0, prefix, false);
    for number in [1, 2] {
        record.push(number.into(), 0, 0, &attributes(number, number)).expect("enough room");
    }
    record.finish();
    give(&mut received, 0, &[table]);
    assert_eq!(received.next(0), Some(address(2)));
    received.handle_refused(address(2), "it was not asked: no".to_owned());
    assert!(received.is_complete(0));
    let known: Vec<_> = received.sources().iter().map(|source| (source.known, source.routes)).collect();
    assert_eq!(known, [(Known::AfterImport, 1), (Known::Unknown, 0), (Known::Unknown, 0)]);
    assert_eq!(received.failures(), ["routes of n2 are left out: it was not asked: no"]);
    assert_eq!(prefixes(&mut received), ["10.1.0.0/16 of 192.0.2.1"]);
}

#[test]
fn no_more_than_some_are_asked_at_a_time() {
    let neighbors: Vec<_> = (1..=10).map(|number| neighbor(number, 0, true, true)).collect();
    let mut received = Received::new(&neighbors);
    let asked = std::iter::from_fn(|| received.next(0)).count();
    assert_eq!(asked, AT_ONCE);
    give(&mut received, 0, &[mark(2, RefreshKind::Begin), mark(2, RefreshKind::End)]);
    assert!(!received.is_complete(0));
    assert_eq!((received.next(0), received.next(0)), (Some(address(AT_ONCE as u8 + 1)), None));
}
