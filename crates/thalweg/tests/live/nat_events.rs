//! NAT event records of a running router, read by our own decoder, by nfcapd with nfdump, and from the router's dataset.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use thalweg_ports::live::LiveClock;
use thalweg_wire::netflow::decode::{Decoder, FieldName, Source};
use thalweg_wire::netflow::element as ie;

use crate::site::{OFFICE, OUTSIDE, Router, Site, eventually, has};
use thalweg_testdata::{uninterrupted, with_room};

/// The protocol number.
const UDP: u64 = 17;
/// Sessions of the office.
const SESSIONS: usize = 12;
/// The limit of sessions per subscriber; blocks have 16 ports.
const PORTS_MAX: usize = 20;

fn config(logging: &str, collectors: [u16; 2], store: &str) -> String {
    let [ours, theirs] = collectors;
    format!(
        "[ports.lan]\ninterface = \"lan\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"af_packet\"\n\n\
         [ports.wan]\ninterface = \"wan\"\naddresses = [\"198.51.100.1/24\"]\ndriver = \"af_packet\"\n\n\
         [nat]\noutside = \"wan\"\ninside = [\"lan\"]\n\n\
         [nat.subscribers]\nblock_size = 16\nports_max = {PORTS_MAX}\n\n\
         [flows]\ncollectors = [\"ipfix://127.0.0.1:{ours}\", \"v9://127.0.0.1:{theirs}\"]\nnat_events = \"{logging}\"\n\
         store = \"{store}\"\n"
    )
}

fn socket(site: &Site, host: crate::site::Host, at: &str) -> UdpSocket {
    let socket = site.within(&site.namespace(host), || UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

/// A data record of a NAT event: its numbers and addresses by information element.
#[derive(Clone, Debug)]
struct Event {
    code: u64,
    numbers: BTreeMap<u16, u64>,
    addresses: BTreeMap<u16, IpAddr>,
}

impl Event {
    /// The public endpoint with its protocol, because ICMP identifiers and UDP ports are separate.
    fn public(&self) -> (u64, SocketAddr) {
        let port = self.numbers[&ie::POST_NAPT_SOURCE_TRANSPORT_PORT] as u16;
        (
            self.numbers[&ie::PROTOCOL_IDENTIFIER],
            (self.addresses[&ie::POST_NAT_SOURCE_IPV4_ADDRESS], port).into(),
        )
    }
}

/// All events that have arrived.
fn events(socket: &UdpSocket) -> Vec<Event> {
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    let mut message = vec![0; 65_536];
    while let Ok((length, _)) = uninterrupted(|| socket.recv_from(&mut message)) {
        let report = decoder.handle_message(Source::datagrams(1), &message[..length], 0, |record| {
            let mut event = Event { code: 0, numbers: BTreeMap::new(), addresses: BTreeMap::new() };
            for field in record.fields() {
                let FieldName::Element(id) = field.name else { continue };
                // A field of four bytes may be a number or an address.
                event.addresses.extend(field.address().map(|address| (id, address)));
                event.numbers.extend(field.unsigned().map(|number| (id, number)));
            }
            event.code = event.numbers.get(&ie::NAT_EVENT).copied().unwrap_or(0);
            events.push(event);
        });
        assert_eq!(report.expect("a message").faults, 0);
    }
    assert_eq!(decoder.counters().sequence.gaps, 0);
    assert_eq!(decoder.waiting(), (0, 0));
    events.retain(|event| event.code > 0);
    events
}

/// The events of the dataset that match.
fn kept(store: &str, filter: &str) -> Vec<Value> {
    let arguments = ["flows", "--data", store, "list", "--format", "json", "-n", "1000", filter];
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg")).args(arguments).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// What an event of the dataset is, and about whom.
fn told_of(event: &Value) -> (String, String) {
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    (text("event"), text("src"))
}

/// A counter of NAT.
fn counter(router: &Router<'_>, name: &str) -> u64 {
    let view = router.show(&["nat", "--counters"]).expect("it answers").pop().expect("one");
    view["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} in {view}"))
}

/// nfcapd in the router's namespace; nfdump reads its files.
struct Nfcapd<'a> {
    site: &'a Site,
    process: crate::site::Process,
    port: u16,
    data: String,
}

impl<'a> Nfcapd<'a> {
    fn start(site: &'a Site, port: u16) -> Self {
        let data = site.file("nfcapd").display().to_string();
        fs::create_dir(&data).expect("a folder");
        let port_text = port.to_string();
        let arguments = ["-b", "127.0.0.1", "-p", &port_text, "-t", "3600", "-w", &data];
        let process = site.start(&site.router(), "nfcapd", &arguments);
        let nfcapd = Self { site, process, port, data };
        eventually("nfcapd listens", || (!nfcapd.sockets().is_empty()).then_some(()));
        nfcapd
    }

    /// nfcapd's line in the kernel's list of sockets.
    fn sockets(&self) -> String {
        let list = self.site.said(&self.site.router(), "cat", &["/proc/net/udp"]);
        let ours = format!(":{:04X} ", self.port);
        list.lines().find(|line| line.contains(&ours)).unwrap_or_default().to_owned()
    }

    fn end(mut self) -> String {
        eventually("nfcapd has read all", || {
            let line = self.sockets();
            line.split_whitespace().nth(4).filter(|queues| queues.ends_with(":00000000")).map(|_| ())
        });
        // nfcapd forgets a signal that arrives just before it reads its socket, so the signal is repeated.
        eventually("nfcapd ends", || {
            self.process.signal("TERM");
            self.process.has_ended().then_some(())
        });
        self.site.said(&self.site.router(), "nfdump", &["-R", &self.data, "-o", "raw"])
    }
}

/// Events with this code in nfdump's output; version 1.7.1 has no names for them.
fn by_nfdump(text: &str, code: u64) -> usize {
    let code = format!("{code}:");
    let is_one = |line: &&str| line.split_whitespace().take(4).eq(["nat", "event", "=", &code]);
    text.lines().filter(is_one).count()
}

#[test]
fn collectors_are_told_who_had_which_port_and_when() {
    for logging in ["sessions", "bindings", "blocks"] {
        let Some(site) = Site::new() else { return };
        if !has("nfcapd") || !has("nfdump") {
            return;
        }
        let bind = || UdpSocket::bind("127.0.0.1:0");
        let ours = with_room(site.within(&site.router(), bind).expect("a collector"));
        let port_of = |socket: &UdpSocket| socket.local_addr().expect("an address").port();
        let theirs = port_of(&site.within(&site.router(), bind).expect("a port"));
        let nfcapd = Nfcapd::start(&site, theirs);
        let began_ms = LiveClock::start().now_ns() / 1_000_000;
        let store = site.file("flows").display().to_string();
        let mut router = site.run(&config(logging, [port_of(&ours), theirs], &store), &[]);
        // The pings that waited for the router to start have sessions too.
        let pings = counter(&router, "sessions_created") as usize;
        let server = socket(&site, OUTSIDE, "198.51.100.2:7000");
        let mut publics = BTreeSet::new();
        let mut clients = Vec::new();
        for n in 0..PORTS_MAX + 5 {
            let client = socket(&site, OFFICE, "10.1.0.2:0");
            client.send_to(b"there", "198.51.100.2:7000").expect("sent");
            if n < SESSIONS || (logging == "blocks" && n < PORTS_MAX) {
                let (_, seen) = uninterrupted(|| server.recv_from(&mut [0; 16])).expect("data arrives");
                publics.insert((UDP, seen));
            } else if logging != "blocks" {
                break;
            }
            clients.push(client);
        }
        // The datagram sent last may not have arrived yet.
        let made = eventually("all sessions are there", || {
            let made = counter(&router, "sessions_created") as usize;
            (made == pings + if logging == "blocks" { PORTS_MAX } else { SESSIONS + 1 }).then_some(made)
        });
        let told = eventually("the events are on their way", || {
            let view = router.one("flow-cache");
            let told = view["nat_events"].as_u64().filter(|told| *told > 0)?;
            (told == counter(&router, "events")).then_some(told as usize)
        });
        if logging == "blocks" {
            // Two blocks, and one event for a subscriber at its limit.
            assert_eq!(told, 3);
        } else {
            assert_eq!(told, made);
        }
        assert_eq!(counter(&router, "events_dropped"), 0);
        assert!(router.process.end(), "the router stops with success");
        let ended_ms = LiveClock::start().now_ns() / 1_000_000;

        let events = events(&ours);
        let office: IpAddr = "10.1.0.2".parse().expect("an address");
        for event in &events {
            let time_ms = event.numbers[&ie::OBSERVATION_TIME_MILLISECONDS];
            assert!((began_ms..=ended_ms).contains(&time_ms), "{event:?}");
            assert_eq!(event.addresses[&ie::SOURCE_IPV4_ADDRESS], office, "{event:?}");
        }
        // The dataset has them too, and tells of each public port whose it was.
        assert_eq!(kept(&store, "event any").len(), events.len());
        assert_eq!(kept(&store, "not event any").len(), kept(&store, "any").len(), "flows alone");
        let what = match logging {
            "sessions" => "nat-session",
            "bindings" => "nat-binding",
            _ => "nat-block",
        };
        for (_, seen) in &publics {
            let filter = format!("event any and nat-src {} and nat-src-port {}", seen.ip(), seen.port());
            let told: BTreeSet<_> = kept(&store, &filter).iter().map(told_of).collect();
            let expected = ["begin", "end"].map(|end| (format!("{what}-{end}"), office.to_string()));
            assert_eq!(told, expected.into());
        }
        let of = |code| events.iter().filter(|event| event.code == code).collect::<Vec<_>>();
        let text = nfcapd.end();
        match logging {
            "blocks" => {
                let range = |event: &Event| {
                    (event.numbers[&ie::PORT_RANGE_START], event.numbers[&ie::PORT_RANGE_END])
                };
                let given: BTreeSet<_> = of(16).into_iter().map(range).collect();
                let back: BTreeSet<_> = of(17).into_iter().map(range).collect();
                assert_eq!((given.len(), &given), (2, &back));
                let is_in = |(_, seen): &(u64, SocketAddr)| {
                    given.iter().any(|(first, last)| (*first..=*last).contains(&u64::from(seen.port())))
                };
                assert!(publics.iter().all(is_in), "{publics:?} {given:?}");
                let [limit] = of(13)[..] else { panic!("{events:?}") };
                assert_eq!(limit.numbers[&ie::MAX_ENTRIES_PER_USER], PORTS_MAX as u64);
                assert_eq!(events.len(), 5, "{events:?}");
                assert_eq!(by_nfdump(&text, 16), 2, "{text}");
            }
            _ => {
                let (begin, end) = if logging == "sessions" { (4, 5) } else { (8, 9) };
                let begun: BTreeSet<_> = of(begin).into_iter().map(Event::public).collect();
                let over: BTreeSet<_> = of(end).into_iter().map(Event::public).collect();
                assert_eq!((begun.len(), &begun), (made, &over), "{events:?}");
                assert!(publics.is_subset(&begun), "{publics:?} {begun:?}");
                assert_eq!(events.len(), 2 * made);
                for event in of(begin) {
                    let remote = event.addresses.get(&ie::DESTINATION_IPV4_ADDRESS);
                    let expected = (logging == "sessions").then(|| IpAddr::from([198, 51, 100, 2]));
                    assert_eq!(remote.copied(), expected);
                }
                assert_eq!(by_nfdump(&text, begin), made, "{text}");
            }
        }
    }
}
