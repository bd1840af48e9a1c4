//! Unwanted connections get a NOTIFICATION before they are closed (RFC 4271 6.8, RFC 4486), and `show` counts what
//! was sent and refused.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use thalweg_base::{IpPrefix, uninterrupted};
use thalweg_config::RouterConfig;
use thalweg_exec::control_plane::{SchedulingKind, SchedulingOptions, schedule};
use thalweg_node::control::{BgpNeighborView, BgpRequest, RibView, RouteView};
use thalweg_node::speaker::{Speaker, SpeakerOptions};
use thalweg_wire::bgp::{MessageKind, Notification, cease, community, error, frame, write_attribute};

use crate::local::{self, Door, Ending, TIMEOUT, announce, ask, eventually, greeting, plain_attributes};

const SENDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const LISTENER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const STOPPED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 99);

/// Runs a speaker while `test` talks to it.
fn with_speaker(test: impl FnOnce(&Speaker, &mut Door, &mut Vec<UnixStream>)) {
    let text = format!(
        "[bgp]\nas = 64998\nrouter_id = \"198.18.0.1\"\nlisten = []\ninstall = \"none\"\nhold_time_s = 0\n\
         import = \"accept\"\nexport = \"accept\"\npassive = true\n\
         [[bgp.neighbor]]\naddress = \"{SENDER}\"\nas = 64512\nhonor_blackhole = true\n\
         [[bgp.neighbor]]\naddress = \"{LISTENER}\"\nas = 64513\n\
         [[bgp.neighbor]]\naddress = \"{STOPPED}\"\nas = 64514\nenabled = false\n\
         [[bgp.group]]\nname = \"many\"\nas = \"any\"\ndynamic = [\"127.1.0.0/16\"]\n"
    );
    let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
    let config = Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")).bgp.unwrap());
    let (network, mut door) = local::network();
    let options = SpeakerOptions::new(network, 1);
    let speaker = Speaker::new(config, options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        const HOW: SchedulingOptions = SchedulingOptions { kind: SchedulingKind::Sharded, threads: 2 };
        let scheduling = scope.spawn(|| schedule(&speaker, HOW, &stop));
        let mut ending = Ending(&stop, &speaker, Vec::new());
        test(&speaker, &mut door, &mut ending.2);
        drop(ending);
        scheduling.join().unwrap().unwrap();
    });
}

/// The messages of a connection until it ends.
fn all_of(mut stream: UnixStream) -> Vec<(MessageKind, Vec<u8>)> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let (mut done, mut messages) = (0, Vec::new());
    while let Some(message) = frame(&bytes[done..], 65_535).unwrap() {
        messages.push((message.kind, message.body.to_vec()));
        done += message.length;
    }
    messages
}

/// The connection receives exactly this, and is then closed.
fn refusal(stream: UnixStream) -> Option<Notification> {
    match &all_of(stream)[..] {
        [(MessageKind::Notification, body)] => Notification::parse(body),
        _ => None,
    }
}

fn view(speaker: &Speaker, neighbor: Ipv4Addr) -> BgpNeighborView {
    ask(speaker, &BgpRequest::Neighbor { neighbor: neighbor.to_string() }).pop().unwrap()
}

fn come_up(
    speaker: &Speaker,
    door: &mut Door,
    open: &mut Vec<UnixStream>,
    who: Ipv4Addr,
    asn: u32,
) -> UnixStream {
    let mut stream = door.connect(who);
    open.push(stream.try_clone().unwrap());
    stream.write_all(&greeting(asn, who)).unwrap();
    eventually("the session is up", || view(speaker, who).state == "Established");
    stream
}

#[test]
fn a_connection_that_is_not_wanted_hears_why() {
    with_speaker(|speaker, door, open| {
        let rejected = Some(Notification::new(error::CEASE, cease::CONNECTION_REJECTED));
        for _ in 0..100 {
            assert_eq!(refusal(door.connect(STRANGER)), rejected);
        }
        assert_eq!(refusal(door.connect(STOPPED)), rejected);
        assert_eq!(ask::<RibView>(speaker, &BgpRequest::Rib)[0].unknown_refused, 100);
        // A second connection replaces one that has not got further than OPEN.
        let collision = Some(Notification::new(error::CEASE, cease::CONNECTION_COLLISION));
        let first = door.connect(LISTENER);
        open.push(first.try_clone().unwrap());
        let second = door.connect(LISTENER);
        open.push(second.try_clone().unwrap());
        eventually("the first gave way to the second", || view(speaker, LISTENER).state == "OpenSent");
        let last = all_of(first).pop().unwrap();
        assert_eq!((last.0, Notification::parse(&last.1)), (MessageKind::Notification, collision));
        assert_eq!(view(speaker, LISTENER).flaps, 0);
    });
}

/// RFC 7999 end to end, and `messages_sent` with the UPDATEs in it.
#[test]
fn a_neighbor_is_shown_with_what_it_sent_and_got() {
    with_speaker(|speaker, door, open| {
        let _listener = come_up(speaker, door, open, LISTENER, 64_513);
        let mut sender = come_up(speaker, door, open, SENDER, 64_512);
        let before = view(speaker, LISTENER).messages_sent;
        let prefix = |text: &str| match text.parse() {
            Ok(IpPrefix::V4(prefix)) => prefix,
            other => panic!("{text}: {other:?}"),
        };
        let mut bytes = Vec::new();
        let tagged = |out: &mut Vec<u8>| {
            plain_attributes(&[64_512], [192, 0, 2, 1])(out);
            write_attribute(out, 0xc0, 8, &community::BLACKHOLE.to_be_bytes());
        };
        announce(&mut bytes, tagged, &[prefix("0.0.0.0/0"), prefix("1.1.1.0/24"), prefix("10.1.0.7/32")]);
        announce(&mut bytes, plain_attributes(&[64_512], [192, 0, 2, 1]), &[prefix("127.0.0.0/8")]);
        announce(&mut bytes, plain_attributes(&[1, 64_512], [192, 0, 2, 1]), &[prefix("10.3.0.0/16")]);
        sender.write_all(&bytes).unwrap();
        eventually("everything was looked at", || {
            view(speaker, SENDER).counters["rejected"]["first_as"] == 1
        });
        let counters = view(speaker, SENDER).counters;
        assert_eq!(counters["rejected"]["martian"], 1, "{counters}");
        assert_eq!(counters["announced_rejected"], 2, "{counters}");
        assert_eq!(
            (&counters["blackholes_honored"], &counters["blackholes_ignored"]),
            (&1.into(), &2.into())
        );
        for (destination, discards) in [("0.0.0.0/0", false), ("1.1.1.0/24", false), ("10.1.0.7/32", true)] {
            let request = BgpRequest::Route { destination: destination.to_owned(), exact: true, why: false };
            eventually("the route is there", || ask::<RouteView>(speaker, &request).len() == 1);
            assert_eq!(ask::<RouteView>(speaker, &request)[0].discard, discards, "{destination}");
        }
        eventually("UPDATEs to the listener are counted", || view(speaker, LISTENER).messages_sent > before);
    });
}

/// Dynamic neighbors come and go while the timers of others run and somebody looks at them: no connection ends up in the
/// slot of a neighbor that is gone, and each hears an OPEN at once.
#[test]
fn every_dynamic_neighbor_is_answered() {
    with_speaker(|speaker, door, open| {
        for round in 0..60 {
            let streams: Vec<UnixStream> =
                (0..50).map(|host| door.connect(Ipv4Addr::new(127, 1, 0, host))).collect();
            open.extend(streams.iter().map(|stream| stream.try_clone().unwrap()));
            for (host, mut stream) in streams.into_iter().enumerate() {
                speaker.neighbors();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                let read = uninterrupted(|| stream.read(&mut [0; 64]));
                assert!(matches!(read, Ok(1..)), "round {round}, neighbor {host}: {read:?}");
            }
            for stream in open.drain(..) {
                stream.shutdown(Shutdown::Both).unwrap();
            }
        }
    });
}
