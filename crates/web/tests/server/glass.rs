//! The looking glass, read by structures as strict as those of Alice-LG.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::client::{self, connect, get, request, request_text};
use crate::router::{Fixture, PREFIXES};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "that they can be read is what is tested")]
struct Api {
    #[serde(rename = "Version")]
    version: String,
    result_from_cache: bool,
    cache_status: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Answer<T> {
    #[allow(dead_code, reason = "that it can be read is what is tested")]
    api: Api,
    ttl: String,
    cached_at: String,
    #[serde(flatten)]
    value: T,
}

#[derive(Deserialize)]
struct Status {
    status: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Counts {
    imported: Option<u64>,
    filtered: Option<u64>,
}

#[derive(Deserialize)]
struct Channel {
    routes: Counts,
    routes_count: Counts,
}

#[derive(Deserialize)]
struct Protocol {
    bird_protocol: String,
    state: String,
    state_changed: String,
    connection: String,
    description: String,
    neighbor_address: String,
    neighbor_as: u32,
    local_as: u32,
    last_error: String,
    channels: BTreeMap<String, Channel>,
    routes: Counts,
}

#[derive(Deserialize)]
struct Protocols {
    protocols: BTreeMap<String, Protocol>,
}

#[derive(Deserialize)]
struct Bgp {
    origin: String,
    as_path: Vec<String>,
    next_hop: String,
    local_pref: String,
    med: String,
    communities: Vec<[u32; 2]>,
    large_communities: Vec<[u32; 3]>,
    ext_communities: Vec<[String; 3]>,
}

#[derive(Deserialize)]
struct Route {
    network: String,
    gateway: String,
    interface: String,
    from_protocol: String,
    age: String,
    learnt_from: String,
    primary: bool,
    metric: u64,
    #[serde(rename = "type")]
    kind: Vec<String>,
    bgp: Bgp,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Routes {
    routes: Vec<Route>,
}

fn read<T: for<'de> Deserialize<'de>>(server: &Fixture, path: &str) -> T {
    let answer = get(server.glass(), path);
    assert!(answer.status == 200 && answer.is_whole, "{path}: {answer:?}");
    let read: Answer<T> =
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(
        (read.cached_at.as_str(), read.ttl.as_str()),
        ("2026-11-22T16:22:42Z", "2026-11-22T16:27:42Z")
    );
    read.value
}

#[test]
fn neighbors_are_as_readers_want_them() {
    let server = Fixture::open();
    let status: Status = read(&server, "/status");
    assert_eq!(status.status["router_id"], "192.0.2.1");
    assert_eq!(status.status["last_reboot"], "2026-11-22 15:22:42");
    let protocols: Protocols = read(&server, "/protocols/bgp");
    let first = &protocols.protocols["r1"];
    assert_eq!(
        (first.bird_protocol.as_str(), first.state.as_str(), first.neighbor_as, first.local_as),
        ("BGP", "UP", 64_497, 64_496)
    );
    assert_eq!((first.connection.as_str(), first.neighbor_address.as_str()), ("Established", "192.0.2.1"));
    assert_eq!((first.state_changed.as_str(), first.routes.imported), ("2026-11-22 15:22:06", Some(2)));
    assert_eq!((first.description.as_str(), first.last_error.as_str()), ("the <b>first</b>", ""));
    assert_eq!(first.routes.filtered, Some(1));
    let channel = &first.channels["ipv4"];
    assert_eq!((channel.routes.imported, channel.routes_count.imported), (Some(2), Some(2)));
    // One that is down has counts too, if empty ones.
    assert_eq!(
        (protocols.protocols["r2"].state.as_str(), protocols.protocols["r2"].routes.imported),
        ("DOWN", None)
    );
    // It is down since it went down, and not since the question.
    assert_eq!(protocols.protocols["r2"].state_changed, "2026-11-22 14:22:42");
    let short = get(server.glass(), "/protocols/short?uncached=true").json();
    assert_eq!(short["protocols"]["r1"]["state"], "up");
    assert_eq!(short["protocols"]["r2"]["since"], "2026-11-22 14:22:42");
}

#[test]
fn routes_are_as_readers_want_them() {
    let server = Fixture::open();
    let routes: Routes = read(&server, "/routes/protocol/r1");
    assert_eq!(routes.routes.len(), PREFIXES as usize);
    let first = &routes.routes[0];
    assert_eq!((first.network.as_str(), first.from_protocol.as_str()), ("10.0.0.0/24", "r1"));
    assert_eq!((first.gateway.as_str(), first.learnt_from.as_str()), ("192.0.2.1", "192.0.2.1"));
    assert_eq!((first.age.as_str(), first.primary, first.metric), ("2026-11-22 16:17:06", true, 100));
    assert_eq!(
        (first.kind.as_slice(), first.interface.as_str()),
        (["BGP".to_owned(), "univ".to_owned()].as_slice(), "")
    );
    let bgp = &first.bgp;
    assert_eq!(
        (bgp.origin.as_str(), bgp.as_path.as_slice()),
        ("IGP", ["64497".to_owned(), "64500".to_owned()].as_slice())
    );
    assert_eq!(
        (bgp.next_hop.as_str(), bgp.local_pref.as_str(), bgp.med.as_str()),
        ("192.0.2.9", "100", "10")
    );
    assert_eq!(
        (bgp.communities.as_slice(), bgp.large_communities.as_slice()),
        ([[64_497, 1]].as_slice(), [[64_497, 1, 2]].as_slice())
    );
    assert_eq!(bgp.ext_communities, [["rt".to_owned(), "64497".to_owned(), "5".to_owned()]]);
    let all: Routes = read(&server, "/routes/table/master4");
    assert_eq!(all.routes.len(), 2 * PREFIXES as usize);
    for nothing in
        ["/routes/protocol/unknown", "/routes/filtered/unknown", "/routes/filtered/r2", "/routes/noexport/r2"]
    {
        assert!(read::<Routes>(&server, nothing).routes.is_empty(), "{nothing}");
    }
    for rejected in ["/routes/filtered/r1", "/routes/table/master4/filtered"] {
        let routes: Routes = read(&server, rejected);
        let [route] = &routes.routes[..] else { panic!("{rejected}: {} routes", routes.routes.len()) };
        // Readers ask whether the gateway is that of the accepted ones.
        assert_eq!((route.network.as_str(), route.gateway.as_str()), ("10.0.7.0/24", "192.0.2.1"));
        assert_eq!(route.bgp.large_communities, [[64_496, 65_666, 3]]);
        assert_eq!(route.reason.as_deref(), Some("customers, rule 3 (bogons)"));
    }
    assert!(routes.routes.iter().all(|route| route.reason.is_none()));
    let kept_back: Routes = read(&server, "/routes/noexport/r1");
    let [route] = &kept_back.routes[..] else { panic!("{} routes", kept_back.routes.len()) };
    assert_eq!((route.network.as_str(), route.from_protocol.as_str()), ("10.0.8.0/24", "r2"));
    for prefix in ["/routes/prefix?prefix=10.0.5.0%2F24", "/route/net/10.0.5.0/24"] {
        assert_eq!(read::<Routes>(&server, prefix).routes[0].network, "10.0.5.0/24", "{prefix}");
    }
}

#[test]
fn neighbors_can_be_hidden_and_nothing_else_is_served() {
    let server = Fixture::with(|config| config.looking_glass_hidden = vec!["r2".to_owned()]);
    let protocols: Protocols = read(&server, "/protocols/bgp");
    assert!(protocols.protocols.keys().eq(["r1"]));
    let all: Routes = read(&server, "/routes/table/master4");
    assert!(
        all.routes.len() == PREFIXES as usize && all.routes.iter().all(|route| route.from_protocol == "r1")
    );
    assert!(read::<Routes>(&server, "/routes/protocol/r2").routes.is_empty());
    assert_eq!(get(server.glass(), "/api/v1/status").problem(), "not-found");
}

/// All of both forms.
const PATHS: [&str; 17] = [
    "/status",
    "/protocols/bgp",
    "/protocols/short",
    "/routes/protocol/r1",
    "/routes/table/master4",
    "/routes/table/master6",
    "/routes/table/master4/filtered",
    "/routes/table/master6/filtered",
    "/routes/prefix",
    "/route/net/10.0.5.0/24",
    "/routes/filtered/r1",
    "/routes/noexport/r1",
    "/summary",
    "/neighbors",
    "/rib",
    "/rib/in",
    "/rib/out",
];

#[test]
fn what_is_wrong_is_refused_and_counted() {
    let server = Fixture::open();
    for path in PATHS {
        for (kind, method, path, head) in [
            ("wrong-method", "POST", path.to_owned(), None),
            ("misdirected", "GET", path.to_owned(), Some("Host: evil.example")),
            ("bad-request", "GET", "/routes/protocol/%zz".to_owned(), None),
            ("bad-request", "GET", format!("/rib?as={path}"), None),
        ] {
            let answer = request(server.glass(), method, &path, head.as_slice(), "");
            assert_eq!(answer.problem(), kind, "{method} {path} {head:?}");
        }
        let mut stream = connect(server.glass());
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n").as_bytes()).expect("sending");
        stream.shutdown(Shutdown::Write).expect("closing");
        assert!(
            client::read(&mut BufReader::new(stream)).is_none_or(|answer| answer.status == 400),
            "{path}"
        );
    }
    assert_eq!(server.written.load(Ordering::Relaxed), 0, "the router was asked nothing");
    let all = PATHS.len() as u64;
    let problems = server.samples("thalweg_web_problems_total");
    assert_eq!(
        [problems["wrong-method"], problems["misdirected"], problems["bad-request"]],
        [all, all, 2 * all]
    );
}

#[test]
fn a_client_that_is_slow_is_cut() {
    let server = Fixture::open();
    let address = server.glass();
    for begun in ["", "GET /status HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut stream = connect(address);
        stream.write_all(begun.as_bytes()).expect("sending");
        let mut all = Vec::new();
        // The server may reset the connection.
        let _ = stream.read_to_end(&mut all);
        assert!(!String::from_utf8_lossy(&all).contains("HTTP/1.1 200"), "{begun}");
    }
    assert_eq!(server.sample("thalweg_web_connections_cut_total{reason=\"slow-head\"}"), 2);
}

/// Sixty at once, then twenty a second: a reader that asks for each of a hundred neighbors gets all of them.
#[test]
fn requests_beyond_a_clients_rate_wait_for_their_turn() {
    let server = Fixture::open();
    let address = server.glass();
    let mut stream = connect(address);
    let begun = Instant::now();
    for _ in 0..100 {
        let answer = client::ask(&mut stream, &format!("GET /status HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(1900), "after {:?}", begun.elapsed());
    assert_eq!(server.sample("thalweg_web_problems_total{kind=\"too-many\"}"), 0);
}

#[test]
fn lists_of_one_client_wait_for_their_turn() {
    let server = Fixture::open();
    let address = server.glass();
    let ask_for = |path: &str| {
        let mut stream = connect(address);
        stream.write_all(request_text(address, "GET", path, &[], "").as_bytes()).expect("sending");
        stream
    };
    let first = ask_for("/routes/table/master4");
    first.peek(&mut [0]).expect("it has begun");
    let asked = Instant::now();
    assert_eq!(get(address, "/rib?neighbor=r1").problem(), "too-many", "nobody reads the first");
    assert!(asked.elapsed() >= Duration::from_secs(10), "after {:?}", asked.elapsed());
    let second = ask_for("/route/net/10.0.5.0/24");
    for question in ["/status", "/protocols/bgp", "/neighbors"] {
        assert_eq!(get(address, question).status, 200, "{question} is no list");
    }
    drop(first);
    let answer = client::read(&mut BufReader::new(second)).expect("an answer");
    assert!(answer.status == 200 && answer.is_whole, "{answer:?}");
}
