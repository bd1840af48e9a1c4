//! A bug that panics while a session's messages are processed ends that session and nothing else, under each
//! scheduling and its real threads.
//!
//! The bug is a [`SessionObserver`] that panics at one neighbor's messages: it is called after they were decoded
//! and before their routes are passed on. Or it is a connection that panics.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use thalweg_base::Prefix;
use thalweg_bgp::session::Negotiated;
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_exec::control_plane::{SchedulingKind, SchedulingOptions, schedule};
use thalweg_node::control::{BgpNeighborView, BgpRequest, RouteFilter, RouteView};
use thalweg_node::speaker::{SessionObserver, Speaker, SpeakerOptions};
use thalweg_wire::bgp::{MessageKind, frame};

use crate::local::{self, Door, Ending, LocalNetwork, announce, ask, eventually, greeting, plain_attributes};

/// How many panics the neighbor causes before the bug is disarmed.
const FALLS: usize = 3;

/// Panics at each UPDATE of the last neighbor while it is armed.
#[derive(Default)]
struct Stumbling {
    armed: AtomicBool,
    falls: AtomicUsize,
    ups: AtomicUsize,
    downs: AtomicUsize,
}

impl SessionObserver for Stumbling {
    fn received(&self, session: &Arc<Negotiated>, messages: &[u8]) {
        let message = frame(messages, 4096).unwrap().expect("whole messages");
        let is_it = session.remote_address == IpAddr::V4(address(NEIGHBORS - 1));
        if is_it && message.kind == MessageKind::Update && self.armed.load(Ordering::Acquire) {
            self.falls.fetch_add(1, Ordering::AcqRel);
            panic!("a panic that the test has planted");
        }
    }

    fn state_changed(&self, session: &Arc<Negotiated>, is_up: bool) {
        if session.remote_address == IpAddr::V4(address(NEIGHBORS - 1)) {
            let count = if is_up { &self.ups } else { &self.downs };
            count.fetch_add(1, Ordering::AcqRel);
        }
    }
}

const NEIGHBORS: usize = 4;

fn address(neighbor: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 2 + neighbor as u8)
}

fn asn(neighbor: usize) -> u32 {
    64_512 + neighbor as u32
}

/// `more` goes to `[bgp]`.
fn config(more: &str) -> Arc<BgpConfig> {
    let mut text =
        "[bgp]\nas = 64998\nrouter_id = \"198.18.0.1\"\nlisten = []\ninstall = \"none\"\nhold_time_s = 0\n\
                    import = \"accept\"\nexport = \"accept\"\npassive = true\n"
            .to_owned();
    text += more;
    for neighbor in 0..NEIGHBORS {
        let (address, asn) = (address(neighbor), asn(neighbor));
        text += &format!("[[bgp.neighbor]]\naddress = \"{address}\"\nas = {asn}\n");
    }
    let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
    Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")).bgp.unwrap())
}

/// Comes up and reads, so that the speaker's writes do not block; reports when the connection is closed.
fn come_up(door: &mut Door, neighbor: usize) -> (UnixStream, thread::JoinHandle<()>) {
    let mut stream = door.connect(address(neighbor));
    // Fails if the speaker has already closed the connection.
    let _ = stream.write_all(&greeting(asn(neighbor), address(neighbor)));
    let mut reading = stream.try_clone().unwrap();
    let reader = thread::spawn(move || while matches!(reading.read(&mut [0; 4096]), Ok(1..)) {});
    (stream, reader)
}

/// An UPDATE with prefixes of a neighbor's own.
fn update(neighbor: usize, prefixes: std::ops::Range<u32>) -> Vec<u8> {
    let own = 0x0a00_0000 + ((neighbor as u32) << 16);
    let prefixes: Vec<_> = prefixes.map(|n| Prefix::new(own + (n << 8), 24).unwrap()).collect();
    let mut message = Vec::new();
    announce(&mut message, plain_attributes(&[asn(neighbor)], [192, 0, 2, 1]), &prefixes);
    message
}

/// Prefixes in the table, by the neighbor they are from.
fn routes_of(speaker: &Speaker, neighbor: usize) -> BTreeSet<String> {
    let filter = RouteFilter { neighbor: Some(address(neighbor).to_string()), ..RouteFilter::default() };
    ask::<RouteView>(speaker, &BgpRequest::Routes(filter)).into_iter().map(|route| route.prefix).collect()
}

fn view(speaker: &Speaker, neighbor: usize) -> BgpNeighborView {
    ask(speaker, &BgpRequest::Neighbor { neighbor: address(neighbor).to_string() }).pop().unwrap()
}

/// The other neighbors have what they had, and never went down.
fn check_others(speaker: &Speaker, routes: usize) {
    for neighbor in 0..NEIGHBORS - 1 {
        let view = view(speaker, neighbor);
        assert_eq!((view.state.as_str(), view.flaps), ("Established", 0), "neighbor {neighbor}");
        assert_eq!(routes_of(speaker, neighbor).len(), routes, "neighbor {neighbor}");
    }
}

fn speaker(config: Arc<BgpConfig>, network: LocalNetwork, tap: &Arc<Stumbling>) -> Speaker {
    let options = SpeakerOptions { observer: Some(tap.clone()), ..SpeakerOptions::new(network, 1) };
    Speaker::new(config, options).unwrap()
}

fn one_stumbles(kind: SchedulingKind, threads: usize) {
    let (network, mut door) = local::network();
    let tap = Arc::new(Stumbling::default());
    let speaker = speaker(config(""), network, &tap);
    let stop = Arc::new(AtomicBool::new(false));
    let last = NEIGHBORS - 1;
    thread::scope(|scope| {
        let scheduling = scope.spawn(|| schedule(&speaker, SchedulingOptions { kind, threads }, &stop));
        let mut ending = Ending(&stop, &speaker, Vec::new());
        for neighbor in 0..NEIGHBORS {
            let (mut stream, _) = come_up(&mut door, neighbor);
            stream.write_all(&update(neighbor, 0..20)).unwrap();
            ending.2.push(stream);
        }
        for neighbor in 0..NEIGHBORS {
            eventually("routes of everybody", || routes_of(&speaker, neighbor).len() == 20);
        }

        tap.armed.store(true, Ordering::Release);
        for fall in 1..=FALLS {
            // First an old session, with routes; then new ones, at their first UPDATE.
            let (mut stream, reader) = match fall {
                1 => (ending.2[last].try_clone().unwrap(), thread::spawn(|| {})),
                _ => come_up(&mut door, last),
            };
            stream.write_all(&update(last, 10..30)).unwrap();
            eventually("a panic", || tap.falls.load(Ordering::Acquire) == fall);
            // The speaker closes the connection: the neighbor reads what was sent, and then the end.
            reader.join().unwrap();
            while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
            eventually("its routes to go", || routes_of(&speaker, last).is_empty());
            eventually("the count of its routes", || view(&speaker, last).accepted == 0);
            assert_ne!(view(&speaker, last).state, "Established");
            assert_eq!(tap.downs.load(Ordering::Acquire), fall, "each end of a session is told");
            check_others(&speaker, 20 + fall - 1);
            // Established sessions are still served.
            for neighbor in 0..last {
                let next = 20 + fall as u32 - 1;
                ending.2[neighbor].write_all(&update(neighbor, next..next + 1)).unwrap();
                eventually("new routes", || routes_of(&speaker, neighbor).len() == 20 + fall);
            }
        }

        tap.armed.store(false, Ordering::Release);
        let (mut stream, _) = come_up(&mut door, last);
        stream.write_all(&update(last, 10..30)).unwrap();
        ending.2.push(stream);
        eventually("the neighbor to be back", || routes_of(&speaker, last).len() == 20);
        assert_eq!(view(&speaker, last).state, "Established");
        assert_eq!(tap.ups.load(Ordering::Acquire), 1 + FALLS);
        assert_eq!(tap.falls.load(Ordering::Acquire), FALLS);
        check_others(&speaker, 20 + FALLS);
        drop(ending);
        scheduling.join().unwrap().unwrap();
    });
}

#[test]
fn serial() {
    one_stumbles(SchedulingKind::Serial, 1);
}

#[test]
fn per_peer() {
    one_stumbles(SchedulingKind::PerPeer, 1);
}

#[test]
fn dynamic() {
    one_stumbles(SchedulingKind::Dynamic, 3);
}

#[test]
fn sharded() {
    one_stumbles(SchedulingKind::Sharded, 3);
}

/// A neighbor that restarts gracefully, and whose new session panics before it is up: its stale routes must not
/// stay for ever.
#[test]
fn routes_kept_over_a_restart_go_too() {
    let (network, mut door) = local::network();
    let speaker = speaker(config("graceful_restart = true\n"), network, &Arc::default());
    let stop = Arc::new(AtomicBool::new(false));
    let options = SchedulingOptions { kind: SchedulingKind::Serial, threads: 1 };
    let stale = |speaker: &Speaker| {
        let routes = ask::<RouteView>(speaker, &BgpRequest::Routes(RouteFilter::default()));
        (routes.len(), routes.iter().filter(|route| route.stale).count())
    };
    thread::scope(|scope| {
        let scheduling = scope.spawn(|| schedule(&speaker, options, &stop));
        let mut ending = Ending(&stop, &speaker, Vec::new());
        for breaks in [true, false] {
            let (mut stream, reader) = come_up(&mut door, 0);
            stream.write_all(&update(0, 0..20)).unwrap();
            eventually("its routes", || stale(&speaker) == (20, 0));
            stream.shutdown(std::net::Shutdown::Both).unwrap();
            reader.join().unwrap();
            eventually("its routes to be kept", || stale(&speaker) == (20, 20));
            door.breaks = breaks;
            let (stream, reader) = come_up(&mut door, 0);
            door.breaks = false;
            ending.2.push(stream);
            if breaks {
                reader.join().unwrap();
                eventually("its routes to go", || stale(&speaker) == (0, 0));
            }
        }
        eventually("the neighbor to be back", || view(&speaker, 0).state == "Established");
        assert_eq!(stale(&speaker), (20, 20), "a restart without a panic keeps them");
        drop(ending);
        scheduling.join().unwrap().unwrap();
    });
}
