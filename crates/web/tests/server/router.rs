//! A control socket with fixed answers, and a server beside it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use thalweg_config::{WebConfig, WebRight, WebToken};
use thalweg_node::control::{
    AnswerError, BgpRequest, CountersView, Line, PacketRequest, PortView, Request, RibView, RouteFilter,
    StatusView, to_json,
};
use thalweg_web::{Web, WebOptions};

use crate::client::ask;

/// 2026-11-22T16:22:42Z.
pub(crate) const NOW_NS: u64 = 1_795_364_562_000_000_000;
/// Prefixes of the table; each has two paths.
pub(crate) const PREFIXES: u32 = 60_000;

pub(crate) const READ: &str = "reading-token-0123";
pub(crate) const OPERATE: &str = "operating-token-0123";
pub(crate) const GLASS: &str = "looking-glass-token-0123";

/// A server and its router.
pub(crate) struct Fixture {
    pub(crate) web: Web,
    pub(crate) folder: TempDir,
    /// Items that the router has written.
    pub(crate) written: Arc<AtomicUsize>,
}

impl Fixture {
    /// A server on loopback without tokens.
    pub(crate) fn open() -> Self {
        Self::with(|_| {})
    }

    /// A server with a token for each right.
    pub(crate) fn with_tokens() -> Self {
        Self::with(|config| {
            let all = [
                ("read", READ, WebRight::Read),
                ("operate", OPERATE, WebRight::Operate),
                ("glass", GLASS, WebRight::LookingGlass),
            ];
            config.tokens = all.map(|(name, secret, may)| token(config, name, secret, may)).into();
        })
    }

    pub(crate) fn with(change: impl FnOnce(&mut WebConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let router = folder.path().join("router.sock");
        let written = serve(&router);
        let mut config = WebConfig {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            socket: Some(folder.path().join("web.sock")),
            hosts: vec!["router.example.net".to_owned()],
            looking_glass: vec!["127.0.0.1:0".parse().expect("an address")],
            ..WebConfig::default()
        };
        change(&mut config);
        let options = WebOptions { router, store: None, version: "0.0.0", wall_ns: || NOW_NS };
        Self { web: Web::start(&config, options).expect("the server starts"), folder, written }
    }

    /// The address of the API.
    pub(crate) fn address(&self) -> SocketAddr {
        self.web.addresses()[0]
    }

    pub(crate) fn glass(&self) -> SocketAddr {
        self.web.addresses()[1]
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("web.sock")
    }

    fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("the socket");
        ask(&mut stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").text()
    }

    /// A sample of `/metrics`.
    pub(crate) fn sample(&self, name: &str) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{name} is not in\n{text}"))
    }

    /// See [`samples_of`].
    pub(crate) fn samples(&self, family: &str) -> BTreeMap<String, u64> {
        samples_of(&self.metrics(), family)
    }
}

/// The samples that are not 0 in a family with one label, by its value.
pub(crate) fn samples_of(metrics: &str, family: &str) -> BTreeMap<String, u64> {
    let labeled = metrics.lines().filter_map(|line| line.strip_prefix(family)?.strip_prefix('{'));
    let sample = |rest: &str| {
        let (label, number) = rest.split_once("\"} ").expect("a label and a number");
        let (_, value) = label.split_once("=\"").expect("a label");
        (value.to_owned(), number.parse().expect("a number"))
    };
    labeled.map(sample).filter(|(_, number)| *number > 0).collect()
}

/// Token files must exist before the server starts.
fn token(config: &WebConfig, name: &str, secret: &str, may: WebRight) -> WebToken {
    let folder = config.socket.as_deref().and_then(Path::parent).expect("a folder");
    let file = folder.join(format!("{name}.token"));
    std::fs::write(&file, secret).expect("writing");
    WebToken { name: name.to_owned(), file, may }
}

/// Serves the control socket; returns the number of items written so far.
fn serve(path: &Path) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(path).expect("the control socket");
    let written = Arc::<AtomicUsize>::default();
    let counter = written.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counter = counter.clone();
            // An error means that the client has gone.
            thread::spawn(move || drop(talk(&stream, &counter)));
        }
    });
    written
}

fn talk(stream: &UnixStream, written: &AtomicUsize) -> std::io::Result<()> {
    let mut writer = std::io::BufWriter::new(stream);
    for line in BufReader::new(stream).lines() {
        let request = Request::parse(&line?).expect("the server sends requests");
        let mut items = 0;
        let answered = answer(&request, &mut |item| {
            items += 1;
            written.fetch_add(1, Ordering::Relaxed);
            writeln!(writer, "{}", to_json(&Line::Item(item)))
        })?;
        let end = answered.map_or_else(|error| Line::error(&error), |()| Line::Done { items });
        writeln!(writer, "{}", to_json(&end))?;
        writer.flush()?;
    }
    Ok(())
}

type Emit<'e> = &'e mut dyn FnMut(Value) -> std::io::Result<()>;

fn answer(request: &Request, emit: Emit<'_>) -> std::io::Result<Result<(), AnswerError>> {
    let one = match request {
        Request::Status => {
            to_json(&StatusView { version: "0.0.0".to_owned(), uptime_s: 3_600, ..StatusView::default() })
        }
        Request::Reload => json!("port lan: added"),
        Request::CompareConfig => return Ok(Err(AnswerError::HostSilent)),
        Request::Fib { destination, .. } => json!({ "destination": destination, "action": "no route" }),
        Request::Packets(PacketRequest::Ports) => {
            for name in ["lan", "wan"] {
                emit(to_json(&PortView { name: name.to_owned(), received: 7, ..PortView::default() }))?;
            }
            return Ok(Ok(()));
        }
        Request::Packets(PacketRequest::Counters) => to_json(&CountersView::default()),
        Request::Packets(PacketRequest::Queues | PacketRequest::Policers | PacketRequest::AccessLists) => {
            return Ok(Ok(()));
        }
        Request::Packets(PacketRequest::FirewallCounters) => return Ok(Err(AnswerError::NoFirewall)),
        Request::Packets(PacketRequest::FlowCache) => return Ok(Err(AnswerError::NoFlows)),
        Request::Packets(PacketRequest::TracePacket { packet }) => json!({ "packet": packet, "steps": [] }),
        Request::Packets(PacketRequest::NatClear(_)) => json!({ "ended": 3 }),
        Request::Packets(_) => return Ok(Err(AnswerError::NoNat)),
        Request::Forwarding => return Ok(Err(AnswerError::NoForwarding)),
        Request::Bgp(BgpRequest::Neighbors) => {
            emit(neighbor("r1"))?;
            return emit(neighbor("r2")).map(Ok);
        }
        Request::Bgp(BgpRequest::Neighbor { neighbor: name } | BgpRequest::Refresh { neighbor: name })
            if name != "r1" =>
        {
            return Ok(Err(AnswerError::UnknownNeighbor(name.clone())));
        }
        Request::Bgp(BgpRequest::Neighbor { neighbor: name }) => neighbor(name),
        Request::Bgp(BgpRequest::Rib) => {
            to_json(&RibView { local_as: 64_496, router_id: "192.0.2.1".to_owned(), ..RibView::default() })
        }
        Request::Bgp(BgpRequest::Memory) => return Ok(Err(AnswerError::NoBgp)),
        Request::Bgp(BgpRequest::Routes(filter)) if filter.rejected => {
            assert!(filter.neighbor.as_deref().is_none_or(|name| name == "r1"), "only r1 keeps routes");
            let mut rejected = route(7, "r1");
            rejected["rejected"] = "policy".into();
            rejected["rule"] = "customers, rule 3 (bogons)".into();
            rejected["communities"] = json!(["64496:65666:3"]);
            rejected
        }
        Request::Bgp(BgpRequest::Routes(RouteFilter { not_advertised_to: Some(name), .. })) => {
            assert_eq!(name, "r1", "only r1 is up");
            route(8, "r2")
        }
        Request::Bgp(BgpRequest::Routes(RouteFilter { advertised_to: Some(name), .. })) => {
            let mut sent = route(1, name);
            // One that is sent has less, and preferences only within an AS.
            for missing in ["best", "weight", "discard", "age_s", "stale", "why"] {
                sent.as_object_mut().expect("an object").remove(missing);
            }
            sent["local_pref"] = Value::Null;
            sent
        }
        Request::Bgp(BgpRequest::Routes(filter)) => {
            let neighbor = filter.neighbor.as_deref();
            let first = filter.after.as_deref().map_or(0, |after| number(after) + 1);
            let inside = filter.inside.as_deref().map(number);
            for (number, name) in (first..PREFIXES).flat_map(|number| [(number, "r1"), (number, "r2")]) {
                let is_inside = inside.is_none_or(|wanted| wanted == number);
                if is_inside && neighbor.is_none_or(|wanted| wanted == name) {
                    emit(route(number, name))?;
                }
            }
            return Ok(Ok(()));
        }
        Request::Bgp(BgpRequest::Route { .. }) => route(5, "r1"),
        _ => return Ok(Ok(())),
    };
    emit(one).map(Ok)
}

/// The prefix with this number.
pub(crate) fn prefix(number: u32) -> String {
    format!("10.{}.{}.0/24", number / 256, number % 256)
}

fn number(prefix: &str) -> u32 {
    let parts: Vec<u32> = prefix.split('.').filter_map(|part| part.parse().ok()).collect();
    parts[1] * 256 + parts[2]
}

fn route(number: u32, neighbor: &str) -> Value {
    json!({
        "prefix": prefix(number), "best": neighbor == "r1", "neighbor": neighbor, "next_hop": "192.0.2.9", "as_path": "64497 64500",
        "origin": "igp", "med": 10, "local_pref": 100, "weight": 0,
        "communities": ["64497:1", "64497:1:2", "ext:0002fbf100000005"],
        "discard": false, "path_id": 0, "age_s": 336, "stale": false, "why": null
    })
}

fn neighbor(name: &str) -> Value {
    json!({
        "name": name, "address": if name == "r1" { "192.0.2.1" } else { "192.0.2.2" }, "as": "64497", "description": "the <b>first</b>",
        "state": if name == "r1" { "Established" } else { "Idle" }, "uptime_s": if name == "r1" { Some(3_636) } else { None },
        "down_s": if name == "r1" { None } else { Some(7_200) },
        "accepted": 2, "accepted_by_family": { "ipv4": 2, "ipv6": 0 },
        "kept_by_family": if name == "r1" { json!({ "ipv4": 3, "ipv6": 0 }) } else { Value::Null },
        "rejected_by_family": if name == "r1" { json!({ "ipv4": 1, "ipv6": 0 }) } else { Value::Null },
        "updates_received": 3, "messages_received": 4,
        "messages_sent": 5, "bytes_sent": 6, "flaps": if name == "r1" { 0 } else { 1 }, "last_error": null, "negotiated": null,
        "counters": { "rejected": { "first_as": 1 } }
    })
}
