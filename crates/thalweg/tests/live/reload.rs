//! Reloads under load, without losing a packet.
//!
//! Clients send numbered datagrams through the router and get each of them back: through NAT to a server on the
//! link, through a gateway to a server behind it, and between inside networks. A client has few datagrams in
//! flight, so no ring and no socket buffer can overflow, however slow the machine: if a datagram does not return,
//! the router lost it.

mod ports;
pub(crate) mod steady;
mod with_bgp;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::queues::dropped_by_kernel;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::uninterrupted;

/// The limit of a client's datagrams in flight.
const WINDOW: u64 = 16;
const PAUSE: Duration = Duration::from_millis(2);
/// No datagram is this late; one that has not arrived by then is lost.
const LOST: Duration = Duration::from_secs(20);
/// Datagrams that every client must exchange under each configuration.
const PER_CONFIGURATION: u64 = 200;

/// A server behind a gateway, and the gateway's two addresses.
pub(crate) const BEYOND: &str = "203.0.113.1";
const GATEWAYS: [&str; 2] = [OUTSIDE.v4, "198.51.100.3"];

/// The parts that differ between configurations.
#[derive(Clone)]
pub(crate) struct Settings {
    routes: String,
    nat: String,
    qos: String,
    lan: String,
    rest: String,
    gateway: &'static str,
}

/// CoDel would drop a packet after a worker has stood still for its interval, as on a busy machine.
const PLAIN_QUEUE: &str = "[qos.classes.queue]\naqm = \"none\"\n\n";
const EGRESS: &str = "[[qos.egress]]\nport = \"wan\"\nrate = \"200 Mbit/s\"\n";

pub(crate) fn base() -> Settings {
    Settings {
        routes: String::new(),
        nat: "addresses = [\"198.51.100.1\"]\n".to_owned(),
        qos: format!("[[qos.classes]]\nname = \"default\"\nweight = 1\n{PLAIN_QUEUE}{EGRESS}"),
        lan: String::new(),
        rest: String::new(),
        gateway: GATEWAYS[0],
    }
}

/// With a driver `...+offload` the kernel forwards known flows; there are no queues then, which would keep flows from it.
pub(crate) fn config(driver: &str, settings: &Settings) -> String {
    let (driver, offload) = match driver.strip_suffix("+offload") {
        Some(driver) => (driver, "offload = true\n"),
        None => (driver, ""),
    };
    let port = |host: Host, more: &str| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\naddresses = [\"{1}/24\", \"{2}/64\"]\n{offload}{more}\n",
            host.port, host.gateway_v4, host.gateway_v6
        )
    };
    let Settings { routes, nat, qos, lan, rest, gateway } = settings;
    let qos = if offload.is_empty() { qos.as_str() } else { "" };
    let ports = [port(OFFICE, lan), port(GUEST, ""), port(OUTSIDE, "")].concat();
    format!(
        "{ports}[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\n{nat}\n\
         [[routes]]\nprefix = \"203.0.113.0/24\"\nvia = \"{gateway}\"\n\n{routes}{qos}{rest}"
    )
}

/// A sequence of configurations. Each differs from the one before; the last equals the first.
pub(crate) fn configurations(site: &Site) -> Vec<(&'static str, Settings)> {
    let many: String = (0..600)
        .map(|n| {
            format!("[[routes]]\nprefix = \"20.{}.{}.0/24\"\nvia = \"{}\"\n", n / 256, n % 256, OUTSIDE.v4)
        })
        .collect();
    let classes = "[[qos.classes]]\nname = \"voice\"\nstrict = 0\nmatch = [{ dscp = \"ef\" }]\n\n\
                   [[qos.classes]]\nname = \"default\"\nweight = 1\n\
                   [qos.classes.policer]\nkind = \"trtcm\"\ncir = \"900 Mbit/s\"\ncbs = \"1 MiB\"\npir = \"1 Gbit/s\"\npbs = \"1 MiB\"\n";
    let acl = "[[acl]]\nname = \"out\"\ndefault = \"permit\"\n\n[[acl.rules]]\naction = \"deny\"\ndestination = \"192.0.2.0/24\"\n";
    let mac = site.said(&site.namespace(OUTSIDE), "cat", &["/sys/class/net/eth0/address"]);
    let neighbor =
        format!("[[neighbors]]\nport = \"wan\"\naddress = \"{}\"\nmac = \"{}\"\n", OUTSIDE.v4, mac.trim());
    let both = "addresses = [\"198.51.100.9\", \"198.51.100.1\"]\n".to_owned();
    vec![
        ("other gateway", Settings { gateway: GATEWAYS[1], ..base() }),
        ("more routes", Settings { routes: many, ..base() }),
        ("no queue", Settings { qos: String::new(), ..base() }),
        ("classes", Settings { qos: format!("{classes}{PLAIN_QUEUE}{EGRESS}"), ..base() }),
        ("access list", Settings { lan: "acl_in = \"out\"\n".to_owned(), rest: acl.to_owned(), ..base() }),
        ("source check", Settings { lan: "urpf = \"strict\"\n".to_owned(), ..base() }),
        ("public addresses", Settings { nat: both, ..base() }),
        (
            "public ports",
            Settings {
                nat: format!("{}ports = \"2000-65000\"\nsessions_max = 100000\n", base().nat),
                ..base()
            },
        ),
        (
            "sessions",
            Settings {
                nat: format!("{}inbound_refresh = true\n[nat.timeouts]\nudp_s = 200\n", base().nat),
                ..base()
            },
        ),
        ("mtu", Settings { lan: "mtu = 1400\n".to_owned(), ..base() }),
        ("neighbor", Settings { rest: neighbor, ..base() }),
        ("slower", Settings { qos: base().qos.replace("200", "100"), gateway: GATEWAYS[1], ..base() }),
        ("as it was", base()),
    ]
}

/// The source addresses that servers saw, by client number.
type Seen = Arc<Mutex<HashMap<u64, Vec<SocketAddr>>>>;

/// Servers and clients.
struct Traffic {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u64>>,
    servers: Vec<JoinHandle<()>>,
    /// Returned datagrams, by client.
    back: Arc<[AtomicU64]>,
    seen: Seen,
}

/// Client, server, and the server's address.
type Flow = (Host, Host, &'static str);

const FLOWS: [Flow; 5] = [
    (OFFICE, OUTSIDE, OUTSIDE.v4),
    (OFFICE, OUTSIDE, OUTSIDE.v4),
    (OFFICE, OUTSIDE, BEYOND),
    (GUEST, OUTSIDE, BEYOND),
    (GUEST, OFFICE, OFFICE.v4),
];

impl Traffic {
    fn start(site: &Site) -> Self {
        Self::among(site, &FLOWS)
    }

    fn among(site: &Site, flows: &[Flow]) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let seen = Seen::default();
        let back: Arc<[AtomicU64]> = flows.iter().map(|_| AtomicU64::new(0)).collect();
        let mut servers = Vec::new();
        let mut places: Vec<(Host, &str)> =
            flows.iter().map(|(_, host, address)| (*host, *address)).collect();
        places.sort_unstable_by_key(|(_, address)| *address);
        places.dedup();
        for (host, address) in places {
            let socket =
                site.within(&site.namespace(host), || UdpSocket::bind((address, 7)).expect("a port"));
            let (stop, seen) = (stop.clone(), seen.clone());
            servers.push(thread::spawn(move || answer(&socket, &stop, &seen)));
        }
        let clients = (0u64..).zip(flows).map(|(number, &(from, _, to))| {
            let socket =
                site.within(&site.namespace(from), || UdpSocket::bind(("0.0.0.0", 0)).expect("a port"));
            let (stop, back) = (stop.clone(), back.clone());
            thread::spawn(move || {
                socket.connect((to, 7)).expect("a route");
                converse(&socket, number, &stop, &back[number as usize])
            })
        });
        let clients = clients.collect();
        Self { stop, clients, servers, back, seen }
    }

    /// Waits until every client has received `more` further datagrams.
    fn passes(&self, router: &Router<'_>, more: u64) {
        let until: Vec<_> = self.back.iter().map(|back| back.load(Ordering::Acquire) + more).collect();
        eventually("datagrams pass", || {
            let has_lost = self.clients.iter().any(JoinHandle::is_finished);
            assert!(!has_lost, "a client has lost a datagram: {}", router.one("counters"));
            let passed =
                self.back.iter().zip(&until).all(|(back, until)| back.load(Ordering::Acquire) >= *until);
            passed.then_some(())
        });
    }

    /// Stops all clients and checks that every datagram returned. Returns their number, and the source addresses
    /// that servers saw.
    fn end(self) -> (u64, HashMap<u64, Vec<SocketAddr>>) {
        self.stop.store(true, Ordering::Release);
        let sent = self.clients.into_iter().map(|client| client.join().expect("it lost nothing")).sum();
        self.servers.into_iter().for_each(|server| server.join().expect("servers do not fail"));
        let seen = self.seen.lock().clone();
        (sent, seen)
    }
}

/// Sends back every datagram.
fn answer(socket: &UdpSocket, stop: &AtomicBool, seen: &Seen) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Acquire) || socket.peek_from(&mut buffer).is_ok() {
        let Ok((length, sender)) = uninterrupted(|| socket.recv_from(&mut buffer)) else { continue };
        let client = u64::from_be_bytes(buffer[..8].try_into().expect("eight bytes"));
        let mut seen = seen.lock();
        let of_client = seen.entry(client).or_default();
        if !of_client.contains(&sender) {
            of_client.push(sender);
        }
        drop(seen);
        socket.send_to(&buffer[..length], sender).expect("the reply is sent");
    }
}

/// Sends numbered datagrams and receives each exactly once; returns their number.
fn converse(socket: &UdpSocket, client: u64, stop: &AtomicBool, back: &AtomicU64) -> u64 {
    socket.set_read_timeout(Some(LOST)).expect("a timeout");
    let mut buffer = [0; 2048];
    let (mut sent, mut waiting) = (0u64, Vec::new());
    let dropped = dropped_by_kernel();
    loop {
        while waiting.len() < WINDOW as usize && !stop.load(Ordering::Acquire) {
            // Sizes up to a thousand bytes.
            let mut datagram = vec![0; 16 + (sent as usize * 37) % 984];
            datagram[..8].copy_from_slice(&client.to_be_bytes());
            datagram[8..16].copy_from_slice(&sent.to_be_bytes());
            socket.send(&datagram).expect("sending succeeds");
            waiting.push(sent);
            sent += 1;
        }
        if waiting.is_empty() {
            return sent;
        }
        while !waiting.is_empty() {
            let Ok(length) = uninterrupted(|| socket.recv(&mut buffer)) else {
                let dropped = dropped_by_kernel() - dropped;
                panic!(
                    "client {client}: of {sent} datagrams these are lost: {waiting:?}; the kernel dropped {dropped}"
                );
            };
            let number = u64::from_be_bytes(buffer[8..16].try_into().expect("eight bytes"));
            assert_eq!(length, 16 + (number as usize * 37) % 984);
            let place = waiting.iter().position(|waiting| *waiting == number);
            waiting.swap_remove(place.expect("a datagram returned twice or was never sent"));
            back.fetch_add(1, Ordering::AcqRel);
        }
        thread::sleep(PAUSE);
    }
}

fn nothing_is_lost(driver: &str, arguments: &[&str]) {
    let Some(site) = Site::new() else { return };
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, &format!("addr add {BEYOND}/32 dev lo"));
    for more in ["198.51.100.3/24", "198.51.100.4/24"] {
        site.ip(&outside, &format!("addr add {more} dev eth0"));
    }
    let mut router = site.run(&config(driver, &base()), arguments);
    eventually("the gateway answers", || site.pings(OFFICE, BEYOND).then_some(()));
    eventually("guests are reachable", || site.pings(GUEST, OFFICE.v4).then_some(()));
    let lost_at_first = lost(&router.one("counters"));
    let traffic = Traffic::start(&site);
    traffic.passes(&router, PER_CONFIGURATION);
    for (what, settings) in configurations(&site) {
        let said = router.reload(&config(driver, &settings)).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(said.contains("paused "), "{what}: {said}");
        println!("{what}: {said}");
        traffic.passes(&router, PER_CONFIGURATION);
    }

    // A refused reload changes nothing.
    let refused = |text: &str| router.reload(text).expect_err("the request is refused");
    let good = config(driver, &base());
    assert!(refused("[ports.lan\n").contains("router.toml:1"), "no TOML");
    let of_guest = format!("interface = \"guest\"\ndriver = \"{driver}\"");
    let driven = refused(&good.replace(&of_guest, "interface = \"guest\"\ndriver = \"tap\""));
    assert!(driven.contains("`driver` of [ports.guest]") && driven.contains("needs a restart"), "{driven}");
    traffic.passes(&router, PER_CONFIGURATION);
    assert_eq!(router.reload(&good).as_deref(), Ok("nothing changed\n"));

    // `trace packet` changes no counter.
    let before = router.one("counters");
    let view = router.trace(&format!("lan ip {} -> {BEYOND} udp 7777 -> 9", OFFICE.v4));
    assert_eq!(view["outcome"], "sent", "{view}");
    let step =
        |stage: &str| view["steps"].as_array().and_then(|steps| steps.iter().find(|s| s["stage"] == stage));
    let why = |stage: &str| step(stage).and_then(|step| step["why"].as_str()).unwrap_or_default().to_owned();
    assert!(why("nat").contains("new session") && why("nat").contains("198.51.100.1:7777"), "{view}");
    assert!(why("route").contains(&format!("203.0.113.0/24, via {} on wan", GATEWAYS[0])), "{view}");
    assert!(why("queue").contains("200 Mbit/s"), "{view}");
    assert_eq!(router.one("counters")["dropped"], before["dropped"]);

    let (sent, seen) = traffic.end();
    assert!(sent > 5 * 14 * PER_CONFIGURATION, "{sent}");
    for (client, addresses) in &seen {
        assert_eq!(addresses.len(), 1, "client {client} kept its public endpoint over all: {addresses:?}");
    }
    let counters = router.counters_add_up();
    assert_eq!(counters["queued"], 0, "{counters}");
    assert_eq!(lost(&counters), lost_at_first, "{counters}");
    assert!(router.process.end(), "the router stops with success");
}

/// Packets dropped for reasons that a reload could cause.
fn lost(counters: &Value) -> Vec<(String, Value)> {
    let reasons = [
        "transmit-failed",
        "queue-full",
        "queue-managed",
        "nat-table-full",
        "policed",
        "neighbor-unresolved",
    ];
    let dropped = counters["dropped"].as_object().expect("reasons").clone().into_iter();
    dropped.filter(|(reason, _)| reasons.contains(&reason.as_str())).collect()
}

#[test]
fn reloads_by_af_packet() {
    nothing_is_lost("af_packet", &[]);
}

#[test]
fn reloads_by_af_xdp() {
    nothing_is_lost("af_xdp", &[]);
}

#[test]
fn reloads_with_a_worker_for_each_queue() {
    nothing_is_lost("af_packet", &["--workers", "2"]);
}

#[test]
fn reloads_in_a_pipeline() {
    nothing_is_lost("auto", &["--model", "pipeline", "--workers", "2"]);
}

#[test]
fn reloads_on_a_farm() {
    nothing_is_lost("auto", &["--model", "farm", "--workers", "2"]);
}
