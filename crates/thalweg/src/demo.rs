//! `thalweg demo`: a router at work, to look at. It needs no rights, no network and no configuration.
//!
//! ```text
//! office.pcapng, again and again ──> ports (driver `capture`) ──> thalweg run ──> console, control socket
//! simulated neighbors ── BGP over loopback ──────────────────────────┘   └──> flow records in a temporary folder
//! ```
//!
//! The router is that of `thalweg run`; only what is around it is not real. The neighbors are the laboratory's.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use thalweg_base::{IpPrefix, Prefix};
use thalweg_exec::ModelKind;
use thalweg_lab::bgp::client::{Client, ClientConfig, ClientError, Speaker};
use thalweg_lab::bgp::daemon::free_address;
use thalweg_lab::bgp::message::Stream;
use thalweg_lab::bgp::table::{Neighbors, Packing, PathKind, Table};
use thalweg_lab::workload::prefixes;
use thalweg_wire::bgp::Family;

use crate::cli::{DemoArgs, LogFormat, RunArgs};
use crate::{Failure, Format, print, run};

const CONFIG: &str = include_str!("../../../examples/demo/router.toml");
const CAPTURE: &[u8] = include_bytes!("../../../examples/small-office/office.pcapng");

/// What the configuration says, and a run may have to replace.
const CAPTURE_PATH: &str = "../small-office/office.pcapng";
const WEB: &str = "127.0.0.1:8080";
const BGP: &str = "127.0.0.1:1790";

pub(crate) fn run(args: &DemoArgs, format: Format) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Run(format!("cannot prepare the demonstration: {error}"));
    let folder = tempfile::Builder::new().prefix("thalweg-demo-").tempdir().map_err(failed)?;
    let free = |wanted| free_address(wanted).map(SocketAddr::from).map_err(failed);
    let (web, bgp) = (free(Some(args.port))?, free(None)?);
    let config = prepare(&folder, web, bgp).map_err(failed)?;
    let url = format!("http://{web}/");
    let socket = folder.path().join("thalweg.sock");
    let text = match format {
        Format::Human => format!(
            "console   {url}\nask it    thalweg show status --socket {}\nCtrl-C ends it and removes all its files\n",
            socket.display()
        ),
        Format::Json => format!("{}\n", json!({ "console": url, "socket": socket })),
    };
    let url = args.open.then_some(url);
    let announce = move || announce(web, &socket, &text, url.as_deref());
    thread::Builder::new().name("announce".to_owned()).spawn(announce).map_err(failed)?;
    for neighbor in 0..NEIGHBORS.count {
        let name = format!("neighbor-{neighbor}");
        thread::Builder::new().name(name).spawn(move || speak(neighbor, bgp)).map_err(failed)?;
    }
    let ended = run::run(&RunArgs {
        config,
        scheduling: None,
        threads: None,
        model: ModelKind::RunToCompletion,
        workers: None,
        socket: None,
        log: "error".to_owned(),
        log_format: LogFormat::Text,
        restarting: false,
        profile_functions: false,
    });
    ended.and(folder.close().map_err(|error| Failure::Run(format!("cannot remove the folder: {error}"))))
}

/// Says where the console is as soon as it and the router answer, and opens it.
fn announce(web: SocketAddr, socket: &Path, text: &str, url: Option<&str>) {
    while UnixStream::connect(socket).is_err() || TcpStream::connect(web).is_err() {
        thread::sleep(LOOK_FOR_ROUTER);
    }
    if let Err(failure) = print(text) {
        let _ = writeln!(io::stderr(), "warning: {failure}");
    }
    if let Some(url) = url {
        open(url);
    }
}

/// Writes the router's files, and returns where its configuration is.
fn prepare(folder: &TempDir, web: SocketAddr, bgp: SocketAddr) -> io::Result<PathBuf> {
    let text = CONFIG
        .replace(CAPTURE_PATH, "office.pcapng")
        .replace(BGP, &bgp.to_string())
        .replace(WEB, &web.to_string());
    fs::write(folder.path().join("office.pcapng"), CAPTURE)?;
    let config = folder.path().join("router.toml");
    fs::write(&config, text)?;
    Ok(config)
}

const ROUTER_AS: u32 = 64_500;
/// Their next hops are on the port wan; their addresses are 127.0.1.1 and following.
const NEIGHBORS: Neighbors =
    Neighbors { count: 5, address: Ipv4Addr::new(203, 0, 113, 4), as_number: 64_601 };
/// The neighbor that comes and goes.
const UNSTEADY: usize = 4;
const SEED: u64 = 1;
const UP_FOR: Duration = Duration::from_secs(45);
const DOWN_FOR: Duration = Duration::from_secs(15);
const CONNECT_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);
const LOOK_FOR_ROUTER: Duration = Duration::from_millis(20);

/// Networks of the capture's hosts, in the tables of the transits.
const HOSTS: [&str; 8] = [
    "74.125.0.0/16",
    "141.142.0.0/16",
    "173.192.0.0/15",
    "178.200.0.0/14",
    "192.150.184.0/22",
    "200.68.120.0/24",
    "208.80.152.0/22",
    "212.242.32.0/19",
];

/// Networks that the customer has no right to.
const BOGONS: [&str; 2] = ["10.20.0.0/16", "192.168.77.0/24"];

/// Is a neighbor of the router for as long as this process lives.
fn speak(neighbor: usize, router: SocketAddr) {
    let Some(stream) = tables().into_iter().nth(neighbor) else { return };
    loop {
        // Without a session, perhaps because somebody has shut it down, it tries again for ever.
        if let Ok(client) = connect(neighbor, router) {
            let begun = Instant::now();
            let mut is_up = client.send_bytes(0, &stream.bytes).is_ok();
            while is_up && (neighbor != UNSTEADY || begun.elapsed() < UP_FOR) {
                thread::sleep(LOOK);
                is_up = client.check().is_ok();
            }
        }
        thread::sleep(if neighbor == UNSTEADY { DOWN_FOR } else { LOOK });
    }
}

fn connect(neighbor: usize, router: SocketAddr) -> Result<Client, ClientError> {
    let address = Neighbors { address: Ipv4Addr::new(127, 0, 1, 1), ..NEIGHBORS }.address_of(neighbor);
    let source = IpAddr::V4(address);
    Client::connect(&ClientConfig {
        daemon: router,
        daemon_as: ROUTER_AS,
        speakers: vec![Speaker { source, as_number: NEIGHBORS.as_of(neighbor), router_id: address }],
        monitored: false,
        families: vec![Family::Ipv4],
        hold_time_s: 90,
        connect_timeout: CONNECT_MAX,
        pace: Duration::ZERO,
    })
}

/// What each neighbor announces: both transits the same prefixes, the others some of these and their own.
fn tables() -> [Stream; 5] {
    let parsed = |texts: &'static [&str]| texts.iter().filter_map(|text| text.parse().ok());
    let made: Vec<IpPrefix> =
        prefixes::v4(3000, SEED).into_iter().map(|net| Prefix::<u32>::from(net).into()).collect();
    let table = |prefixes: Vec<IpPrefix>, seed| Table::of(prefixes, Packing::Real, NEIGHBORS, seed);
    let all = table(parsed(&HOSTS).chain(made.iter().copied()).collect(), SEED);
    let of_customer = made.iter().copied().take(60).chain(parsed(&BOGONS));
    let some = [
        table(made[200..1000].to_vec(), SEED + 1),
        table(of_customer.collect(), SEED + 2),
        table(made[1000..1400].to_vec(), SEED + 3),
    ];
    let [peer, customer, exchange] = [(&some[0], 2), (&some[1], 3), (&some[2], 4)]
        .map(|(table, neighbor)| table.announce(neighbor, PathKind::OneBest, true));
    let [one, two] = [0, 1].map(|neighbor| all.announce(neighbor, PathKind::OneBest, true));
    [one, two, peer, customer, exchange]
}

/// Opens the console in a browser, if the desktop has one.
fn open(url: &str) {
    let browser = Command::new("xdg-open").arg(url).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = browser {
        let _ = writeln!(io::stderr(), "warning: no browser opens ({error}): visit {url}");
    }
}
