//! Every event in every state: the tables below give the next state, and no other may follow.
//!
//! States are those of RFC 4271. `Idle` appears twice (stopped and resting); `OpenSent` and `OpenConfirm` are
//! those of our own connection. A row is a state, a column an event.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_bgp::attrs::Interner;
use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::route::RouteBatchBuilder;
use thalweg_bgp::session::config::GracefulRestartConfig;
use thalweg_bgp::session::{
    Action, Admission, Connection, Importer, NeighborConfig, Session, State, StopReason,
};
use thalweg_wire::bgp::{
    AfiSafi, Capabilities, Family, GracefulRestart, MessageKind, Notification, Open, RefreshKind,
    RestartFamily, RouteRefresh, cease, error, frame, open_error, write_end_of_rib, write_keepalive,
};

use crate::net::{address, config};

/// One session and its driver's state.
struct Lone {
    session: Session,
    import: Importer,
    out: RouteBatchBuilder,
    now: Millis,
}

fn open_message() -> Vec<u8> {
    open_with(None)
}

fn open_with(graceful_restart: Option<GracefulRestart>) -> Vec<u8> {
    let capabilities = Capabilities {
        families: vec![AfiSafi::from(Family::Ipv4)],
        route_refresh: true,
        enhanced_refresh: true,
        graceful_restart,
        ..Capabilities::default()
    };
    let mut out = Vec::new();
    Open::new(64_601, 90, Ipv4Addr::new(198, 18, 0, 2), capabilities).write(&mut out);
    out
}

fn keepalive() -> Vec<u8> {
    let mut out = Vec::new();
    write_keepalive(&mut out);
    out
}

fn notification(code: u8, subcode: u8) -> Vec<u8> {
    let mut out = Vec::new();
    Notification::new(code, subcode).write(&mut out);
    out
}

fn update() -> Vec<u8> {
    let mut out = Vec::new();
    write_end_of_rib(&mut out, Family::Ipv4);
    out
}

fn refresh() -> Vec<u8> {
    let mut out = Vec::new();
    RouteRefresh { family: Family::Ipv4.into(), kind: RefreshKind::Request }.write(&mut out);
    out
}

impl Lone {
    fn new() -> Self {
        Self::with(config(0))
    }

    fn with(config: NeighborConfig) -> Self {
        Self {
            session: Session::new(Arc::new(config), PeerId(1), 3),
            import: Importer::new(Arc::new(Interner::new(1))),
            out: RouteBatchBuilder::default(),
            now: Millis(1000),
        }
    }

    fn connected(&mut self, conn: Connection) -> Admission {
        let (local, remote): (IpAddr, IpAddr) = (address(0), address(1));
        self.session.handle_connected(conn, local, remote, self.now)
    }

    fn bytes(&mut self, conn: Connection, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.drain();
            let used = self.session.handle_bytes(conn, bytes, self.now, &mut self.import, &mut self.out);
            bytes = &bytes[used..];
        }
    }

    fn drain(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.poll_action()).collect()
    }

    /// A session in this state.
    fn reach(state: &str) -> Self {
        let mut lone = Self::new();
        if state == "Stopped" {
            return lone;
        }
        lone.session.handle_start(lone.now);
        match state {
            "Connect" => {}
            "Active" => lone.session.handle_connect_failed("connection refused", lone.now),
            _ => {
                lone.connected(Connection::Outgoing);
                let steps: &[Vec<u8>] = match state {
                    "OpenSent" => &[],
                    "OpenConfirm" => &[open_message()],
                    "Established" => &[open_message(), keepalive()],
                    "Resting" => &[notification(error::FSM, 0)],
                    _ => panic!("{state}?"),
                };
                steps.iter().for_each(|bytes| lone.bytes(Connection::Outgoing, bytes));
            }
        }
        assert_eq!(lone.name(), state);
        lone.drain();
        lone
    }

    fn name(&self) -> String {
        match (self.session.state(), self.session.is_stopped()) {
            (State::Idle, true) => "Stopped".into(),
            (State::Idle, false) => "Resting".into(),
            (state, _) => state.to_string(),
        }
    }

    fn event(&mut self, event: &str) {
        let (own, other) = (Connection::Outgoing, Connection::Incoming);
        match event {
            "start" => self.session.handle_start(self.now),
            "shutdown" => self.session.handle_stop(StopReason::Shutdown { text: "so".into() }, self.now),
            "reset" => self.session.handle_stop(StopReason::Reset { text: String::new() }, self.now),
            "no-room" => self.session.handle_stop(StopReason::OutOfResources, self.now),
            "tcp-out" => drop(self.connected(own)),
            "tcp-in" => drop(self.connected(other)),
            "tcp-fails" => self.session.handle_connect_failed("connection refused", self.now),
            "tcp-lost" => self.session.handle_disconnected(own, self.now),
            "link-down" => self.session.handle_link_down("link of port wan1 is down", self.now),
            "link-up" => self.session.handle_link_up(self.now),
            "tcp-in-lost" => self.session.handle_disconnected(other, self.now),
            "open" => self.bytes(own, &open_message()),
            "keepalive" => self.bytes(own, &keepalive()),
            "update" => self.bytes(own, &update()),
            "refresh" => self.bytes(own, &refresh()),
            "cease" => self.bytes(own, &notification(error::CEASE, cease::ADMINISTRATIVE_SHUTDOWN)),
            "collision" => self.bytes(own, &notification(error::CEASE, cease::CONNECTION_COLLISION)),
            "parameter" => self.bytes(own, &notification(error::OPEN, open_error::UNSUPPORTED_PARAMETER)),
            "garbage" => self.bytes(own, &[7; 64]),
            "silence" => {
                // Advances to the session's next deadline except KEEPALIVEs: the hold time or the large one.
                for _ in 0..100 {
                    let before = self.name();
                    let Some(at) = self.session.next_deadline() else { break };
                    self.now = at.max(self.now);
                    self.session.handle_timer(self.now);
                    if self.name() != before {
                        break;
                    }
                }
            }
            _ => panic!("{event}?"),
        }
    }
}

const TABLE: &str = "
event        Stopped  Resting  Connect  Active   OpenSent OpenConfirm Established
start        Connect  Connect  Connect  Active   OpenSent OpenConfirm Established
shutdown     Stopped  Stopped  Stopped  Stopped  Stopped  Stopped     Stopped
reset        Stopped  Connect  Connect  Connect  Connect  Connect     Connect
no-room      Stopped  Resting  Resting  Resting  Resting  Resting     Resting
tcp-out      Stopped  Resting  OpenSent OpenSent OpenSent OpenSent    Established
tcp-in       Stopped  Resting  OpenSent OpenSent OpenSent OpenConfirm Established
tcp-fails    Stopped  Resting  Active   Active   OpenSent OpenConfirm Established
tcp-lost     Stopped  Resting  Connect  Active   Active   Active      Connect
tcp-in-lost  Stopped  Resting  Connect  Active   OpenSent OpenConfirm Established
link-down    Stopped  Resting  Connect  Active   Active   Active      Connect
link-up      Stopped  Resting  Connect  Connect  OpenSent OpenConfirm Established
open         Stopped  Resting  Connect  Active   OpenConfirm Resting  Resting
keepalive    Stopped  Resting  Connect  Active   Resting  Established Established
update       Stopped  Resting  Connect  Active   Resting  Resting     Established
refresh      Stopped  Resting  Connect  Active   Resting  Resting     Established
cease        Stopped  Resting  Connect  Active   Active   Active      Connect
collision    Stopped  Resting  Connect  Active   Active   Active      Connect
parameter    Stopped  Resting  Connect  Active   Connect  Connect     Resting
garbage      Stopped  Resting  Connect  Active   Resting  Resting     Resting
silence      Stopped  Connect  Connect  Connect  Active   Active      Connect
";

#[test]
fn every_event_in_every_state() {
    let mut rows = TABLE.trim().lines().map(|line| line.split_whitespace());
    let states: Vec<&str> = rows.next().unwrap().skip(1).collect();
    let mut wrong = Vec::new();
    for mut row in rows {
        let event = row.next().unwrap();
        let expected: Vec<&str> = row.collect();
        assert_eq!(expected.len(), states.len(), "{event}");
        for (state, expected) in states.iter().zip(expected) {
            let mut lone = Lone::reach(state);
            lone.event(event);
            let got = lone.name();
            if got != expected {
                wrong.push(format!("{state} + {event}: {got}, expected {expected}"));
            }
            check_actions(&lone.drain(), state, &got);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Up and down are reported exactly when they happen, and each loss has one event with its reason.
fn check_actions(actions: &[Action], before: &str, after: &str) {
    let downs = actions.iter().filter(|action| matches!(action, Action::Down { .. })).count();
    let expected = usize::from(before == "Established" && after != "Established");
    assert_eq!(downs, expected, "{before} to {after}: {actions:?}");
}

#[test]
fn all_pairs_of_events_end_somewhere() {
    let events: Vec<&str> =
        TABLE.trim().lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    for first in &events {
        for second in &events {
            for state in ["Stopped", "Resting", "Connect", "Active", "OpenSent", "OpenConfirm", "Established"]
            {
                let mut lone = Lone::reach(state);
                lone.event(first);
                lone.drain();
                lone.event(second);
                // The event "silence" is up to a hundred expired timers.
                assert!(lone.drain().len() < 300, "{state} {first} {second}");
                // Unless it was stopped, the session has a timer or a connection in progress.
                let waits = lone.session.next_deadline().is_some();
                assert!(waits || lone.session.is_stopped(), "{state} {first} {second}: {}", lone.name());
            }
        }
    }
}

/// However often a link flaps, the router connects at once when it is up again, with a reason in the log. A pause
/// after a protocol error continues.
#[test]
fn a_neighbor_is_sought_at_once_when_its_link_is_back() {
    let mut lone = Lone::reach("Established");
    for _ in 0..5 {
        lone.session.handle_link_down("link of port wan1 is down", lone.now);
        let told = lone.drain().into_iter().any(|action| match action {
            Action::Down { reason, .. } => reason.to_string() == "link of port wan1 is down",
            _ => false,
        });
        assert!(told);
        lone.session.handle_link_up(lone.now);
        let actions = lone.drain();
        assert_eq!(lone.name(), "Connect", "{actions:?}");
        assert!(matches!(actions.last(), Some(Action::Connect)), "{actions:?}");
        lone.event("tcp-out");
        lone.event("open");
        lone.event("keepalive");
        assert_eq!(lone.name(), "Established");
        lone.drain();
    }
    lone.event("garbage");
    lone.event("link-down");
    lone.event("link-up");
    assert_eq!(lone.name(), "Resting");
}

/// Kinds of the messages queued on a connection.
fn sent(lone: &mut Lone, conn: Connection) -> Vec<MessageKind> {
    let mut bytes = Vec::new();
    lone.session.poll_output(conn, &mut bytes);
    let mut kinds = Vec::new();
    let mut rest = &bytes[..];
    while let Some(message) = frame(rest, 65_535).expect("well-framed") {
        kinds.push(message.kind);
        rest = &rest[message.length..];
    }
    kinds
}

/// A neighbor's session comes up as soon as it receives our KEEPALIVE. So a connection that will be closed in
/// favor of the one opened by the neighbor, whose identifier is higher, gets none.
#[test]
fn a_connection_that_gives_way_was_never_answered() {
    use MessageKind::{Keepalive, Notification as Ceased, Open as Opened};
    let (own, other) = (Connection::Outgoing, Connection::Incoming);
    let mut lone = Lone::reach("OpenSent");
    lone.event("tcp-in");
    lone.event("open");
    assert_eq!(sent(&mut lone, own), [Opened]);
    lone.bytes(other, &open_message());
    assert_eq!(sent(&mut lone, own), [Ceased]);
    assert_eq!(sent(&mut lone, other), [Opened, Keepalive]);
    lone.bytes(other, &keepalive());
    assert_eq!((lone.name(), lone.session.established()), ("Established".into(), Some(other)));

    // The neighbor's own connection fails: ours is then answered, at once or after a while, and carries the
    // session.
    for is_lost in [true, false] {
        let mut lone = Lone::reach("OpenSent");
        lone.event("tcp-in");
        lone.event("open");
        lone.event("keepalive");
        assert_eq!((lone.name(), sent(&mut lone, own)), ("OpenConfirm".into(), vec![Opened]));
        if is_lost {
            lone.event("tcp-in-lost");
        } else {
            for _ in 0..2 {
                assert_eq!(lone.name(), "OpenConfirm");
                lone.now = lone.session.next_deadline().expect("a timer is running");
                lone.session.handle_timer(lone.now);
            }
        }
        assert_eq!(lone.session.established(), Some(own), "{is_lost}");
        assert_eq!(sent(&mut lone, own), [Keepalive]);
    }
}

/// A neighbor that still believes in the session of our predecessor accepts and closes. It is asked again after a moment,
/// and then less and less often.
#[test]
fn a_refused_connection_is_tried_again_soon_and_then_less_often() {
    let mut lone = Lone::new();
    lone.event("start");
    for longest_ms in [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
        ["tcp-out", "tcp-lost"].into_iter().for_each(|event| lone.event(event));
        lone.drain();
        let next = lone.session.next_deadline().expect("a timer is running");
        let wait_ms = next.since(lone.now);
        assert!((longest_ms * 3 / 4..=longest_ms).contains(&wait_ms), "{wait_ms} of {longest_ms} ms");
        lone.now = next;
        lone.session.handle_timer(lone.now);
        assert!(lone.drain().contains(&Action::Connect));
    }
}

/// The neighbor's connection may be dead before it says anything: ours is opened beside it and carries the
/// session.
#[test]
fn a_connection_that_says_nothing_keeps_nobody_from_connecting() {
    let mut lone = Lone::reach("Active");
    lone.event("tcp-in");
    assert_eq!(lone.name(), "OpenSent");
    lone.drain();
    let begun = lone.now;
    lone.now = lone.session.next_deadline().expect("a timer is running");
    lone.session.handle_timer(lone.now);
    assert!(lone.now.since(begun) <= 30_000, "{} ms", lone.now.since(begun));
    assert!(lone.drain().contains(&Action::Connect));
    ["tcp-out", "open", "keepalive"].into_iter().for_each(|event| lone.event(event));
    for _ in 0..3 {
        lone.now = lone.session.next_deadline().expect("a timer is running");
        lone.session.handle_timer(lone.now);
    }
    assert_eq!(lone.session.established(), Some(Connection::Outgoing));
    assert!(lone.now.since(begun) <= 60_000, "{} ms", lone.now.since(begun));

    // If an OPEN has come on it, we wait for it.
    let mut lone = Lone::reach("Active");
    lone.event("tcp-in");
    lone.bytes(Connection::Incoming, &open_message());
    lone.drain();
    lone.now = lone.now.plus_s(31);
    lone.session.handle_timer(lone.now);
    assert!(!lone.drain().contains(&Action::Connect));
}

/// The neighbor restarts: its new connection comes while the old one still seems up, and stays silent.
#[test]
fn a_silent_connection_beside_a_session_that_ends_keeps_nobody_from_connecting() {
    for end in ["tcp-lost", "cease", "garbage"] {
        let mut graceful = config(0);
        graceful.capabilities.graceful_restart = Some(GracefulRestartConfig::default());
        let mut lone = Lone::with(graceful);
        ["start", "tcp-out"].into_iter().for_each(|event| lone.event(event));
        let family = RestartFamily { family: Family::Ipv4.into(), forwarding: true };
        let restart = GracefulRestart { time_s: 120, families: vec![family], ..GracefulRestart::default() };
        lone.bytes(Connection::Outgoing, &open_with(Some(restart)));
        ["keepalive", "tcp-in"].into_iter().for_each(|event| lone.event(event));
        assert_eq!(lone.name(), "Established");
        lone.event(end);
        lone.drain();
        let begun = lone.now;
        lone.now = lone.session.next_deadline().expect("a timer is running");
        lone.session.handle_timer(lone.now);
        assert!(lone.now.since(begun) <= 30_000, "{end}: {} ms", lone.now.since(begun));
        assert!(lone.drain().contains(&Action::Connect), "{end}");
    }
}

/// Our connection was answered before the neighbor's came: only the neighbor knows which of them carries its
/// session.
#[test]
fn the_neighbor_closes_one_of_two_connections_that_it_may_be_up_on() {
    use MessageKind::{Keepalive, Notification as Ceased, Open as Opened};
    let (own, other) = (Connection::Outgoing, Connection::Incoming);
    let both = || {
        let mut lone = Lone::reach("OpenConfirm");
        assert_eq!(sent(&mut lone, own), [Opened, Keepalive]);
        lone.event("tcp-in");
        lone.bytes(other, &open_message());
        assert_eq!((sent(&mut lone, own), sent(&mut lone, other)), (vec![], vec![Opened]));
        lone
    };
    // Its session is on ours.
    let mut lone = both();
    lone.event("keepalive");
    assert_eq!(lone.session.established(), None);
    lone.event("update");
    assert_eq!((lone.session.established(), sent(&mut lone, other)), (Some(own), vec![Ceased]));
    let mut lone = both();
    lone.event("keepalive");
    lone.bytes(other, &notification(error::CEASE, cease::CONNECTION_COLLISION));
    assert_eq!(lone.session.established(), Some(own));
    // It closes ours.
    let mut lone = both();
    lone.event("collision");
    assert_eq!(sent(&mut lone, other), [Keepalive]);
    lone.bytes(other, &keepalive());
    assert_eq!(lone.session.established(), Some(other));
    // It closes neither.
    let mut lone = both();
    lone.bytes(other, &keepalive());
    lone.now = lone.session.next_deadline().expect("a timer is running");
    lone.session.handle_timer(lone.now);
    assert_eq!((sent(&mut lone, own), sent(&mut lone, other)), (vec![Ceased], vec![Keepalive]));
    assert_eq!(lone.session.established(), Some(other));
}
