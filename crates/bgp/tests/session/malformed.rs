//! What a neighbor loses that breaks the rules: its session, with the right NOTIFICATION, or only its routes.

use thalweg_bgp::session::{Cause, DownReason, Event, State};
use thalweg_wire::bgp::{MessageKind, Notification, begin_message, finish_message, write_attribute};

use crate::net::{Net, announce, announce_with};

fn message(kind: MessageKind, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_message(&mut out, kind);
    out.extend_from_slice(body);
    finish_message(&mut out, start).expect("the message fits");
    out
}

fn raw(length: u16, kind: u8) -> Vec<u8> {
    [&[0xff; 16][..], &length.to_be_bytes(), &[kind]].concat()
}

/// The NOTIFICATION that ended the session of end 0.
fn told(net: &Net) -> Option<Notification> {
    net.ends[0].log.iter().find_map(|event| match event {
        Event::Down { reason: DownReason::Sent { notification, .. }, .. } => Some(notification.clone()),
        _ => None,
    })
}

/// A session with a route; then good routes and the malformed bytes in one read.
fn after(bad: &[u8]) -> Net {
    let mut net = Net::up();
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    assert_eq!(net.ends[0].prefixes(), ["10.1.0.0/16"]);
    let bytes =
        [&announce(&[64_601], &["10.2.0.0/16"]), bad, &announce(&[64_601], &["10.3.0.0/16"])].concat();
    net.deliver(1, &bytes);
    net
}

#[test]
fn each_class_has_its_notification_and_leaves_no_route() {
    let cases: &[(&str, Vec<u8>, (u8, u8))] = &[
        ("marker", [&[0; 16][..], &[0, 19, 4]].concat(), (1, 1)),
        ("length below the header", raw(18, 4), (1, 2)),
        ("length above what is agreed", raw(19, 1), (1, 2)),
        ("KEEPALIVE with a body", raw(20, 4), (1, 2)),
        ("UPDATE of 22 bytes", raw(22, 2), (1, 2)),
        ("type 6", raw(19, 6), (1, 3)),
        ("type 0", raw(19, 0), (1, 3)),
        ("OPEN when up", message(MessageKind::Open, &[4, 0, 1, 0, 90, 1, 1, 1, 1, 0]), (5, 3)),
        ("withdrawn beyond the end", message(MessageKind::Update, &[0, 9, 0, 0]), (3, 1)),
        ("attributes beyond the end", message(MessageKind::Update, &[0, 0, 0, 9]), (3, 1)),
        ("prefix of 33 bits", message(MessageKind::Update, &[0, 1, 33, 0, 0]), (3, 10)),
        (
            "unknown well-known",
            announce_with(&[64_601], &["10.9.0.0/16"], |out| {
                write_attribute(out, 0x40, 77, &[1]);
            }),
            (3, 2),
        ),
        (
            "MP_REACH without a next hop",
            announce_with(&[64_601], &["10.9.0.0/16"], |out| {
                write_attribute(out, 0x80, 14, &[0, 2, 1, 0, 0]);
            }),
            (3, 9),
        ),
        ("refresh mark with a tail", message(MessageKind::RouteRefresh, &[0, 1, 1, 1, 9]), (7, 1)),
        ("refresh of 3 bytes", message(MessageKind::RouteRefresh, &[0, 1, 0]), (1, 2)),
    ];
    for (name, bytes, (code, subcode)) in cases {
        let net = after(bytes);
        let notification = told(&net).unwrap_or_else(|| panic!("{name}: {}", net.ends[0].words()));
        assert_eq!((notification.code, notification.subcode), (*code, *subcode), "{name}: {notification}");
        assert!(net.ends[0].routes.is_empty(), "{name}");
        assert_eq!(net.ends[0].downs, [[false; 2]], "{name}");
        assert!(net.ends[1].words().contains(&format!("received {notification}")), "{name}");
    }
}

#[test]
fn after_a_bad_message_the_session_comes_back() {
    let mut net = after(&raw(19, 9));
    net.run_ms(60_000);
    assert!(net.is_up());
    net.deliver(1, &announce(&[64_601], &["10.4.0.0/16"]));
    assert_eq!(net.ends[0].prefixes(), ["10.4.0.0/16"]);
}

#[test]
fn errors_that_cost_only_their_routes() {
    type More = fn(&mut Vec<u8>);
    let cases: &[(&str, More)] = &[
        ("communities of 3 bytes", |out| write_attribute(out, 0xc0, 8, &[1, 2, 3])),
        ("MED of 2 bytes", |out| write_attribute(out, 0x80, 4, &[1, 2])),
        ("large communities of 11 bytes", |out| write_attribute(out, 0xc0, 32, &[0; 11])),
        ("MED as well-known", |out| write_attribute(out, 0x40, 4, &[0; 4])),
        ("attribute beyond the field", |out| out.extend([0xc0, 8, 200, 1])),
    ];
    for (name, more) in cases {
        // The message announces 10.1/16 again, with the error: the earlier route must go.
        let net = after(&announce_with(&[64_601], &["10.1.0.0/16", "10.9.0.0/16"], more));
        assert!(net.is_up(), "{name}: {}", net.ends[0].words());
        assert_eq!(net.ends[0].prefixes(), ["10.2.0.0/16", "10.3.0.0/16"], "{name}");
        assert_eq!(net.ends[0].session.counters().treated_as_withdraw, 1, "{name}");
        assert_eq!(net.ends[0].import.counters().treated_as_withdraw, 2, "{name}");
        assert!(net.ends[0].words().contains("its routes are withdrawn"), "{name}");
    }
}

#[test]
fn errors_that_cost_only_an_attribute() {
    let net = after(&announce_with(&[64_601], &["10.9.0.0/16"], |out| {
        // LOCAL_PREF from outside (RFC 7606 7.5), and a bad AGGREGATOR (7.7).
        write_attribute(out, 0x40, 5, &[0, 0, 0, 1]);
        write_attribute(out, 0xc0, 7, &[1]);
    }));
    assert!(net.is_up());
    assert_eq!(net.ends[0].prefixes().len(), 4);
    assert_eq!(net.ends[0].session.counters().attributes_discarded, 2);
}

#[test]
fn a_stream_of_bad_updates_is_told_seldom() {
    let bad = announce_with(&[64_601], &["10.9.0.0/16"], |out| write_attribute(out, 0xc0, 8, &[1]));
    let mut net = Net::up();
    for _ in 0..1000 {
        net.deliver(1, &bad);
    }
    net.run_ms(11_000);
    net.deliver(1, &bad);
    let events: Vec<_> =
        net.ends[0].log.iter().filter(|event| matches!(event, Event::BadUpdate { .. })).collect();
    assert_eq!(events.len(), 2);
    assert!(matches!(events[1], Event::BadUpdate { count: 1000, .. }), "{:?}", events[1]);
}

#[test]
fn messages_before_their_time_are_state_machine_errors() {
    for (bytes, subcode, state) in [
        (message(MessageKind::Keepalive, &[]), 1, State::OpenSent),
        (message(MessageKind::Update, &[0, 0, 0, 0]), 1, State::OpenSent),
    ] {
        let mut net = Net::new(crate::net::config(0), crate::net::config(1), 1);
        net.flowing = [false; 2];
        net.start();
        assert_eq!(net.state(0), state);
        net.inject(0, &bytes);
        let failed = net.ends[0].log.iter().find_map(|event| match event {
            Event::AttemptFailed { reason: DownReason::Sent { notification, cause }, .. } => {
                Some((notification.clone(), cause.clone()))
            }
            _ => None,
        });
        let (notification, cause) = failed.unwrap();
        assert_eq!((notification.code, notification.subcode), (5, subcode));
        assert!(matches!(cause, Cause::Unexpected { state: got, .. } if got == state));
    }
}

/// The log names the message or attribute, with its bytes and the consequence.
#[test]
fn a_malformed_message_is_told_with_its_bytes() {
    let bad_med = announce_with(&[64_601], &["10.9.0.0/16"], |out| write_attribute(out, 0x80, 4, &[1, 2, 3]));
    let words = after(&bad_med).ends[0].words();
    assert!(
        words.contains("its routes are withdrawn (treat-as-withdraw, RFC 7606): 800403010203"),
        "{words}"
    );
    let twice = announce_with(&[64_601], &["10.9.0.0/16"], |out| write_attribute(out, 0x40, 6, &[7]));
    let words = after(&twice).ends[0].words();
    assert!(words.contains("left out (attribute discard, RFC 7606): 40060107"), "{words}");
    let words = after(&message(MessageKind::Update, &[0, 1, 33, 0, 0])).ends[0].words();
    assert!(
        words.contains("malformed UPDATE of 5 bytes: 0001210000; sent UPDATE Message Error (3)"),
        "{words}"
    );
    let words = after(&raw(18, 4)).ends[0].words();
    let header = format!("malformed message header of 19 bytes: {}001204", "ff".repeat(16));
    assert!(words.contains(&header), "{words}");
    let long = announce_with(&[64_601], &["10.9.0.0/16"], |out| write_attribute(out, 0x40, 77, &[0xaa; 255]));
    let words = after(&long).ends[0].words();
    assert!(words.contains("malformed UPDATE of ") && words.contains("..."), "{words}");
    assert!(words.lines().all(|line| line.len() < 500), "{words}");
}
