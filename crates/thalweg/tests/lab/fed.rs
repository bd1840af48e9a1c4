//! A daemon that is fed a trace: it has a simulated router's configuration, with the neighbors on loopback
//! addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_lab::bgp::client::{Client, ClientConfig, Speaker};
use thalweg_lab::bgp::message::{NextHops, Stream};
use thalweg_lab::bgp::replay::Replay;
use thalweg_wire::bgp::Family;

const WAIT: Duration = Duration::from_secs(60);

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon's learned routes, once they are as expected or after a time limit.
pub(crate) fn hear(
    configuration: &str,
    replay: &Replay,
    scheduling: &str,
    folder: &Path,
    is_right: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, thalweg_testdata::free_port()));
    let neighbors = neighbors(configuration);
    let text = configuration
        .replace("[bgp]\n", &format!("[bgp]\nscheduling = \"{scheduling}\"\n"))
        .replace("\"198.", "\"127.")
        .replace("listen = []", &format!("listen = [\"{listen}\"]\npassive = true"));
    let (file, socket) = (folder.join("daemon.toml"), folder.join("daemon.sock"));
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("run").arg(&file).arg("--socket").arg(&socket).stderr(Stdio::null()).stdout(Stdio::null());
    let _daemon = Daemon(command.spawn().expect("a daemon"));
    let client = connect(listen, own_as(configuration), &neighbors);
    let streams: Vec<Stream> = neighbors
        .iter()
        .map(|(address, _)| {
            let is_it = |peer: &thalweg_lab::bgp::replay::ReplayPeer| peer.address == *address;
            let hops = NextHops { v4: on_loopback(*address), v6: Ipv6Addr::LOCALHOST };
            let place = replay.peers.iter().position(is_it);
            place.map_or_else(Stream::default, |place| replay.stream(place, hops))
        })
        .collect();
    client.send_by_threads(&streams).expect("sent");
    let end = Instant::now() + WAIT;
    loop {
        let learned: Vec<Value> =
            shown(&socket).into_iter().filter(|view| view["neighbor"] != "local").collect();
        if is_right(&learned) || Instant::now() > end {
            return learned;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn connect(daemon: SocketAddr, daemon_as: u32, neighbors: &[(IpAddr, u32)]) -> Client {
    let speakers = neighbors.iter().map(|(address, as_number)| {
        let source = on_loopback(*address);
        Speaker { source: source.into(), as_number: *as_number, router_id: source }
    });
    let config = ClientConfig {
        daemon,
        daemon_as,
        speakers: speakers.collect(),
        monitored: false,
        families: vec![Family::Ipv4],
        hold_time_s: 90,
        connect_timeout: WAIT,
        pace: Duration::ZERO,
    };
    // The daemon may not listen yet.
    let end = Instant::now() + WAIT;
    loop {
        match Client::connect(&config) {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn on_loopback(address: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(address) = address else { panic!("{address}") };
    let [_, b, c, d] = address.octets();
    Ipv4Addr::new(127, b, c, d)
}

fn own_as(configuration: &str) -> u32 {
    number(configuration.lines().find(|line| line.starts_with("as = ")).expect("an AS"))
}

fn number(line: &str) -> u32 {
    line.trim_start_matches("as = ").parse().expect("a number")
}

fn neighbors(configuration: &str) -> Vec<(IpAddr, u32)> {
    let of = |block: &str| {
        let value = |key: &str| block.lines().find(|line| line.starts_with(key)).expect("a key").to_owned();
        let address = value("address = ").trim_start_matches("address = ").trim_matches('"').parse();
        (address.expect("an address"), number(&value("as = ")))
    };
    configuration.split("[[bgp.neighbor]]").skip(1).map(of).collect()
}

fn shown(socket: &Path) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["show", "bgp", "routes", "--format", "json", "--socket"]).arg(socket);
    let output = command.output().expect("the binary runs").stdout;
    let text = String::from_utf8(output).expect("text");
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}
