//! A neighbor that announces one prefix too many is stopped at once, in every session and under every scheduling,
//! although it sends nothing more: the shard that applied the routes informs the session.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use thalweg_base::Prefix;
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_exec::control_plane::{SchedulingKind, SchedulingOptions, schedule};
use thalweg_node::control::{BgpNeighborView, BgpRequest};
use thalweg_node::speaker::{Speaker, SpeakerOptions};
use thalweg_wire::bgp::{MessageKind, Notification, cease, error, frame};

use crate::local::{self, Ending, announce, ask, eventually, greeting, plain_attributes};
use thalweg_testdata::uninterrupted;

const SESSIONS: u8 = 25;
const LIMIT: u32 = 64;

fn config() -> Arc<BgpConfig> {
    let text = format!(
        "[bgp]\nas = 64998\nrouter_id = \"198.18.0.1\"\nlisten = []\ninstall = \"none\"\nhold_time_s = 0\n\
         max_prefixes = {{ ipv4 = {LIMIT} }}\n\
         [[bgp.group]]\nname = \"all\"\nas = \"any\"\ndynamic = [\"127.0.0.0/16\"]\nimport = \"accept\"\n"
    );
    let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
    Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")).bgp.unwrap())
}

fn address(session: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 2 + session)
}

fn asn(session: u8) -> u32 {
    64_512 + u32::from(session)
}

/// A session's whole input: OPEN, KEEPALIVE and this many prefixes, a few to a message.
fn table(session: u8, prefixes: u32) -> Vec<u8> {
    let mut bytes = greeting(asn(session), address(session));
    let own = 0x0a00_0000 + (u32::from(session) << 16);
    let prefixes: Vec<_> = (0..prefixes).map(|n| Prefix::new(own + (n << 8), 24).unwrap()).collect();
    for some in prefixes.chunks(13) {
        announce(&mut bytes, plain_attributes(&[asn(session)], [192, 0, 2, 1]), some);
    }
    bytes
}

/// The NOTIFICATION that ends the connection.
fn last_words(mut stream: UnixStream) -> Option<Notification> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = uninterrupted(|| stream.read(&mut buffer)) {
        bytes.extend_from_slice(&buffer[..read]);
    }
    let (mut done, mut last) = (0, None);
    while let Some(message) = frame(&bytes[done..], 65_535).unwrap() {
        if message.kind == MessageKind::Notification {
            last = Notification::parse(message.body);
        }
        done += message.length;
    }
    last
}

fn run(kind: SchedulingKind, threads: usize) {
    let (network, mut door) = local::network();
    let options = SpeakerOptions::new(network, 1);
    let speaker = Speaker::new(config(), options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let scheduling = scope.spawn(|| schedule(&speaker, SchedulingOptions { kind, threads }, &stop));
        let mut ending = Ending(&stop, &speaker, Vec::new());
        // One of them stays within its limit.
        let within = SESSIONS;
        let mut stream = door.connect(address(within));
        ending.2.push(stream.try_clone().unwrap());
        stream.write_all(&table(within, LIMIT)).unwrap();
        let mut hearing = Vec::new();
        for session in 0..SESSIONS {
            let mut stream = door.connect(address(session));
            ending.2.push(stream.try_clone().unwrap());
            hearing.push(scope.spawn(move || {
                // A session that is stopped early enough does not receive all of it.
                let _ = stream.write_all(&table(session, LIMIT + 1 + u32::from(session)));
                last_words(stream)
            }));
        }
        eventually(&format!("{kind}: every session above its limit is over"), || {
            hearing.iter().all(thread::ScopedJoinHandle::is_finished)
        });
        let limit = LIMIT.to_be_bytes();
        let data = [&[0, 1, 1][..], &limit].concat();
        for (session, hearing) in hearing.into_iter().enumerate() {
            let wanted = Notification::with_data(error::CEASE, cease::MAXIMUM_PREFIXES, &data);
            assert_eq!(hearing.join().unwrap(), Some(wanted), "{kind}, session {session}");
        }
        let neighbor = address(within).to_string();
        let view = || ask::<BgpNeighborView>(&speaker, &BgpRequest::Neighbor { neighbor: neighbor.clone() });
        eventually("the one at its limit has its routes", || {
            view().iter().any(|view| view.accepted == u64::from(LIMIT))
        });
        let view = view().pop().unwrap();
        assert_eq!((view.state.as_str(), view.flaps), ("Established", 0), "{kind}");
        assert_eq!(view.counters["prefix_limit_exceeded"], 0, "{kind}");
        drop(ending);
        scheduling.join().unwrap().unwrap();
    });
}

#[test]
fn a_neighbor_above_its_limit_is_stopped_at_once() {
    for kind in SchedulingKind::ALL {
        for threads in if kind == SchedulingKind::Serial { 1..=1 } else { 2..=5 } {
            run(kind, threads);
        }
    }
}
