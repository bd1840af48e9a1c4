//! A session under any order of events and any bytes. It never panics, writes only whole messages and none after
//! a NOTIFICATION, reports up and down alternately, and comes to rest: its actions and deadlines are bounded.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::policy::Policy;
use thalweg_bgp::route::{RouteBatchBuilder, SHARDS, WITHDRAWN};
use thalweg_bgp::session::config::{GracefulRestartConfig, MaxPrefixes, MaxPrefixesAction};
use thalweg_bgp::session::{Action, Connection, Importer, NeighborConfig, Session, State, StopReason};
use thalweg_wire::bgp::{
    Capabilities, Family, GracefulRestart, MessageKind, Open, RefreshKind, RestartFamily, begin_message,
    finish_message, frame, write_keepalive,
};

struct Driver {
    session: Session,
    import: Importer,
    out: RouteBatchBuilder,
    now: Millis,
    up: bool,
    /// By connection: whether a NOTIFICATION was sent.
    last_word: [bool; 2],
    held: [Vec<u8>; 2],
}

fn good_open(choice: u8) -> Vec<u8> {
    let families = Family::ALL.into_iter().filter(|family| choice >> family.index() & 1 != 0);
    let restart = families.clone().map(|f| RestartFamily { family: f.into(), forwarding: choice & 4 != 0 });
    let capabilities = Capabilities {
        families: families.map(Into::into).collect(),
        route_refresh: true,
        enhanced_refresh: true,
        extended_message: choice & 8 != 0,
        graceful_restart: (choice & 16 != 0).then(|| GracefulRestart {
            restarting: choice & 32 != 0,
            notification: choice & 64 != 0,
            time_s: 120,
            families: restart.collect(),
        }),
        ..Capabilities::default()
    };
    let mut out = Vec::new();
    Open::new(64_601, 90, Ipv4Addr::new(198, 18, 0, 2), capabilities).write(&mut out);
    out
}

impl Driver {
    fn new(choice: u8) -> Self {
        let remote = IpAddr::from([198, 18, 0, 2]);
        let mut config = NeighborConfig::new(remote, 64_601, 64_600, Ipv4Addr::new(198, 18, 0, choice & 3));
        config.capabilities.families = [true, true];
        config.capabilities.graceful_restart = (choice & 4 != 0).then(GracefulRestartConfig::default);
        config.passive = choice & 8 != 0;
        let action = match choice >> 4 & 3 {
            0 => MaxPrefixesAction::Warn,
            1 => MaxPrefixesAction::Stop,
            _ => MaxPrefixesAction::Restart { after_s: 7 },
        };
        config.max_prefixes[0] = Some(MaxPrefixes { limit: 100, warn_percent: 80, action });
        let mut import = Importer::new(Arc::new(Interner::new(1)));
        import.set_policy(Some(Arc::new(Policy::accept_all())));
        Self {
            session: Session::new(Arc::new(config), PeerId(1), u64::from(choice)),
            import,
            out: RouteBatchBuilder::default(),
            now: Millis(1000),
            up: false,
            last_word: [false; 2],
            held: Default::default(),
        }
    }

    fn connected(&mut self, conn: Connection) {
        // The old connection's output must be checked before it is replaced.
        self.after();
        self.last_word[conn as usize] = false;
        self.held[conn as usize].clear();
        let (local, remote) = (IpAddr::from([198, 18, 0, 1]), IpAddr::from([198, 18, 0, 2]));
        self.session.handle_connected(conn, local, remote, self.now);
    }

    fn bytes(&mut self, conn: Connection, bytes: &[u8]) {
        self.held[conn as usize].extend_from_slice(bytes);
        loop {
            self.after();
            let held = &self.held[conn as usize];
            let used = self.session.handle_bytes(conn, held, self.now, &mut self.import, &mut self.out);
            assert!(used <= held.len());
            if used == 0 && !self.session.has_actions() {
                break;
            }
            self.held[conn as usize].drain(..used);
        }
    }

    fn after(&mut self) {
        let batch = self.out.finish(PeerId(1), self.now.seconds());
        assert!(batch.is_empty() || self.up, "routes only while up");
        for shard in 0..SHARDS {
            let v4 = batch.v4.shard(shard).iter().map(|item| item.attrs);
            let v6 = batch.v6.shard(shard).iter().map(|item| item.attrs);
            assert!(v4.chain(v6).all(|attrs| attrs == WITHDRAWN || (attrs as usize) < batch.attrs.len()));
        }
        for conn in Connection::ALL {
            let mut bytes = Vec::new();
            self.session.poll_output(conn, &mut bytes);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                assert!(!self.last_word[conn as usize], "nothing follows a NOTIFICATION");
                let message = frame(rest, 4096).expect("well-framed").expect("a complete message");
                self.last_word[conn as usize] = message.kind == MessageKind::Notification;
                rest = &rest[message.length..];
            }
        }
        let mut count = 0;
        while let Some(action) = self.session.poll_action() {
            count += 1;
            assert!(count < 64, "too many actions for one event");
            match action {
                Action::Established(_) => assert!(!std::mem::replace(&mut self.up, true)),
                Action::Down { .. } => assert!(std::mem::replace(&mut self.up, false)),
                Action::Event(event) => assert!(!event.to_string().is_empty()),
                _ => {}
            }
        }
        assert_eq!(self.up, self.session.state() == State::Established);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, mut input)) = input.split_first() else { return };
    let mut driver = Driver::new(choice);
    driver.session.handle_start(driver.now);
    while let Some((&[event, value], rest)) = input.split_first_chunk::<2>() {
        input = rest;
        let conn = if value & 1 == 0 { Connection::Outgoing } else { Connection::Incoming };
        let family = Family::ALL[usize::from(value >> 1 & 1)];
        let now = driver.now;
        match event % 20 {
            0 => driver.session.handle_start(now),
            1 => driver.session.handle_stop(StopReason::Shutdown { text: "é".repeat(value.into()) }, now),
            2 => driver.session.handle_stop(StopReason::Reset { text: String::new() }, now),
            3 => driver.session.handle_stop(StopReason::OutOfResources, now),
            4 => driver.session.handle_stop(StopReason::Restarting, now),
            5 => driver.connected(conn),
            6 => driver.session.handle_connect_failed("refused", now),
            7 => driver.session.handle_disconnected(conn, now),
            8 => driver.bytes(conn, &good_open(value >> 1)),
            9 => {
                let mut bytes = Vec::new();
                write_keepalive(&mut bytes);
                driver.bytes(conn, &bytes);
            }
            10 => {
                // A message with any body.
                let (body, rest) = input.split_at(usize::from(value >> 1).min(input.len()));
                let kind = [MessageKind::Update, MessageKind::RouteRefresh, MessageKind::Notification];
                let mut bytes = Vec::new();
                let start = begin_message(&mut bytes, kind[usize::from(event) % 3]);
                bytes.extend_from_slice(body);
                finish_message(&mut bytes, start).unwrap();
                driver.bytes(conn, &bytes);
                input = rest;
            }
            11 => {
                let (bytes, rest) = input.split_at(usize::from(value >> 1).min(input.len()));
                driver.bytes(conn, bytes);
                input = rest;
            }
            12 => driver.now = now.plus(u64::from(value) * 500),
            13 => {
                if let Some(at) = driver.session.next_deadline() {
                    driver.now = at.max(now);
                    driver.session.handle_timer(driver.now);
                }
            }
            14 => driver.session.handle_timer(now),
            15 => driver.session.note_prefix_count(family, u32::from(value), now),
            16 => driver.session.note_pending_output(conn, value & 4 != 0, now),
            17 => driver.session.note_pending_input(conn, value & 4 != 0),
            18 => _ = driver.session.refresh(family),
            _ => _ = driver.session.mark_refresh(family, RefreshKind::Begin),
        }
        driver.after();
    }
    // All its timers expire in a bounded number of steps, or only its own schedule remains.
    for _ in 0..50 {
        let Some(at) = driver.session.next_deadline() else { break };
        driver.now = at.max(driver.now);
        driver.session.handle_timer(driver.now);
        driver.after();
    }
});
