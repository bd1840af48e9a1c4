//! The example of a border router with two transits as it is. Both transits are BIRD; a client behind the router talks to
//! a server that is reachable through both.
//!
//! ```text
//!   client ══ router ─┬─ t1 ══ transit-1 ─┐ cross
//!                     └─ t2 ══ transit-2 ─┘ and the server 8.8.8.8
//! ```

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clients::{example, iperf3, name_as_examples};
use crate::dead_ways::{Bird, SLOW, bird, bird_learned, established, goes_by};
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Process, Router, Site, eventually, has};
use thalweg_testdata::uninterrupted;

const CLIENT: Host = Host { v4: "192.0.2.10", gateway_v4: "192.0.2.1", ..OFFICE };
const TRANSITS: [Host; 2] = [
    Host { v4: "198.51.100.1", gateway_v4: "198.51.100.2", ..OUTSIDE },
    Host { v4: "203.0.113.1", gateway_v4: "203.0.113.2", ..GUEST },
];
/// The router's ports to them.
const PORTS: [&str; 2] = ["t1", "t2"];
const SERVER: &str = "8.8.8.8";
const NETWORK: &str = "8.8.8.0/24";
const OURS: &str = "192.0.2.0/24";

/// Each transit announces the server's network, one of its own, and what the router must not accept: nobody's addresses
/// and a part of the router's own network.
const BIRDS: [Bird<'static>; 2] = [
    Bird {
        transit: TRANSITS[0],
        asn: 64501,
        router_asn: 64500,
        prefixes: &[NETWORK, "9.1.0.0/16", "10.0.0.0/8", "192.0.2.128/25"],
        ..SLOW
    },
    Bird {
        transit: TRANSITS[1],
        asn: 64502,
        router_asn: 64500,
        prefixes: &[NETWORK, "9.2.0.0/16", "10.0.0.0/8", "192.0.2.128/25"],
        ..SLOW
    },
];

fn site() -> Option<Site> {
    let site = Site::new()?;
    name_as_examples(&site, [TRANSITS[0], TRANSITS[1], CLIENT]);
    let [client, one, two] = [CLIENT, TRANSITS[0], TRANSITS[1]].map(|host| site.namespace(host));
    for (namespace, own) in [(&client, "192.0.2.10/24"), (&one, "198.51.100.1/30"), (&two, "203.0.113.1/30")]
    {
        site.ip(namespace, "addr flush dev eth0 scope global");
        site.ip(namespace, &format!("addr add {own} dev eth0"));
    }
    site.ip(&client, &format!("route add default via {}", CLIENT.gateway_v4));
    site.ip(&one, &format!("link add cross type veth peer name cross netns {two}"));
    for (namespace, own) in [(&one, "100.64.0.1/30"), (&two, "100.64.0.2/30")] {
        site.ip(namespace, &format!("addr add {own} dev cross"));
        site.ip(namespace, "link set cross up");
    }
    site.said(&one, "sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"]);
    site.ip(&one, &format!("route add {NETWORK} via 100.64.0.2"));
    site.ip(&two, &format!("addr add {SERVER}/32 dev lo"));
    site.ip(&two, &format!("route add {OURS} via 100.64.0.1 metric 20"));
    for transit in TRANSITS {
        knows_ours(&site, transit);
    }
    Some(site)
}

/// A transit's own route to the router's network, which its kernel forgets when the link goes down.
fn knows_ours(site: &Site, transit: Host) {
    let route = format!("route replace {OURS} via {} metric 10", transit.gateway_v4);
    site.ip(&site.namespace(transit), &route);
}

/// One connection through all of it: curl fetches a file that grows as long as the test runs.
struct Stream {
    file: PathBuf,
    stop: Arc<AtomicBool>,
    server: JoinHandle<u64>,
    client: Process,
}

impl Stream {
    fn new(site: &Site) -> Self {
        let server = site.namespace(TRANSITS[1]);
        let listener = site.within(&server, || TcpListener::bind((SERVER, 8080))).expect("a port");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let server = thread::spawn(move || {
            let (mut stream, who) = listener.accept().expect("curl connects");
            assert_eq!(who.ip().to_string(), CLIENT.v4);
            uninterrupted(|| stream.read(&mut [0; 1024])).expect("a request");
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").expect("it is read");
            let mut sent = 0;
            // Slowly, so that what arrives was sent a moment ago and not before a fault.
            while !stopped.load(Ordering::Relaxed) {
                stream.write_all(&[b'x'; 10_000]).expect("it is read");
                sent += 10_000;
                thread::sleep(Duration::from_millis(20));
            }
            sent
        });
        let file = site.file("stream");
        let (path, url) = (file.display().to_string(), format!("http://{SERVER}:8080/"));
        let client = site.start(&site.namespace(CLIENT), "curl", &["-s", "-S", "-N", "-o", &path, &url]);
        Self { file, stop, server, client }
    }

    fn length(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    fn goes_on(&mut self) {
        let before = self.length();
        eventually("the connection goes on", || {
            assert!(!self.client.has_ended(), "curl has ended");
            (self.length() > before + 200_000).then_some(())
        });
    }

    fn ends_whole(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.server.join().expect("the server does not panic");
        eventually("curl ends", || self.client.has_ended().then_some(()));
        assert_eq!(fs::metadata(&self.file).expect("the file").len(), sent);
    }
}

/// The packets that the router has sent by its ports to the transits.
fn sent(router: &Router<'_>) -> [u64; 2] {
    let ports = router.show(&["ports"]).expect("the router answers");
    PORTS.map(|name| {
        let port = ports.iter().find(|port| port["name"] == name).expect("the port");
        port["sent"].as_u64().expect("a number")
    })
}

/// The server's network is behind this transit, and a stream to the server leaves by it.
fn all_goes_by(site: &Site, router: &Router<'_>, transit: usize) {
    goes_by(router, NETWORK, &[TRANSITS[transit]]);
    let before = sent(router);
    let (who, bytes) = iperf3(site, CLIENT, (TRANSITS[1], SERVER), &["-n", "4M"]);
    assert!(who == CLIENT.v4 && bytes >= 4_000_000, "{bytes} from {who}");
    let by = eventually(&format!("the stream is counted at {}", PORTS[transit]), || {
        let now = sent(router);
        let by = [0, 1].map(|port| now[port] - before[port]);
        (by[transit] > 500).then_some(by)
    });
    assert!(by[1 - transit] < 100, "nothing but BGP leaves by the other transit: {by:?}");
}

/// What the policy lets in, and what each transit gets.
fn policy_holds(site: &Site, router: &Router<'_>) {
    for (prefix, transit) in [("9.1.0.0/16", 0), ("9.2.0.0/16", 1)] {
        goes_by(router, prefix, &[TRANSITS[transit]]);
    }
    let view = |address: &str| router.show(&["fib", address])?.pop();
    assert_eq!(
        view("10.9.9.9").expect("an answer")["action"],
        "no route",
        "nobody's addresses are not accepted"
    );
    eventually("nobody has a part of our network", || (view("192.0.2.200")?["prefix"] == OURS).then_some(()));
    for transit in TRANSITS {
        let learned = eventually("a transit gets the router's network", || {
            bird_learned(site, transit).filter(|said| said.contains(OURS))
        });
        assert_eq!(learned.matches("AS64500").count(), 1, "and no other: {learned}");
    }
}

#[test]
fn the_example_border_router_survives_either_transit() {
    let Some(site) = site() else { return };
    if !["bird", "birdc", "curl", "iperf3"].iter().all(|program| has(program)) {
        return;
    }
    let mut router = site.run_alone(&example("live-transit", "router.toml"), &[]);
    let [mut first, _second] = [bird(&site, &BIRDS[0]), bird(&site, &BIRDS[1])];
    let both_up = || (established(&router)?.len() == 2).then_some(());
    eventually("both sessions are up", both_up);
    policy_holds(&site, &router);
    eventually("the server answers", || site.pings(CLIENT, SERVER).then_some(()));
    let mut stream = Stream::new(&site);
    all_goes_by(&site, &router, 0);
    stream.goes_on();

    // The first transit's BIRD dies, and comes back.
    first.kill();
    all_goes_by(&site, &router, 1);
    stream.goes_on();
    let _first = bird(&site, &BIRDS[0]);
    eventually("both sessions are up again", both_up);
    all_goes_by(&site, &router, 0);
    stream.goes_on();

    // Each transit's link goes down, and comes up again. What the server answers comes by the other one too.
    for transit in [0, 1] {
        let link = |state: &str| {
            site.ip(&site.namespace(TRANSITS[transit]), &format!("link set eth0 {state}"));
        };
        link("down");
        all_goes_by(&site, &router, 1 - transit);
        stream.goes_on();
        eventually("its session is down", || {
            (established(&router)? == [TRANSITS[1 - transit].v4]).then_some(())
        });
        link("up");
        knows_ours(&site, TRANSITS[transit]);
        eventually("both sessions are up again", both_up);
        all_goes_by(&site, &router, 0);
        stream.goes_on();
    }
    policy_holds(&site, &router);
    stream.ends_whole();
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}
