//! Several receive queues, each with its own worker: flows stay in order in both directions through NAT, every
//! queue has its share, and the counters add up.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::uninterrupted;

const FLOWS: usize = 32;
/// Datagrams of each flow in each direction.
const DATAGRAMS: u64 = 400;
/// The limit of a flow's datagrams in flight: those of all flows fit into any ring, those to one server into its
/// socket.
const WINDOW: u64 = 8;
/// Flows per server.
const PER_SERVER: usize = 4;
/// Sizes of datagrams that are sent whole, and of those that the sender fragments.
const WHOLE: Range<usize> = 16..1216;
const CUT: Range<usize> = 1600..2800;
/// No datagram is this late; one that has not arrived by then is lost.
const LOST: Duration = Duration::from_secs(20);
/// The first server's port.
const PORT: u16 = 7000;

fn config(driver: &str, more: &str) -> String {
    let port = |host: Host| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\naddresses = [\"{1}/24\", \"{2}/64\"]\n{more}\n",
            host.port, host.gateway_v4, host.gateway_v6
        )
    };
    let ports = [port(OFFICE), port(GUEST), port(OUTSIDE)].concat();
    format!(
        "{ports}[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\naddresses = [\"198.51.100.1\"]\n"
    )
}

/// Veths with two queues at each end.
fn with_queues(site: &Site) {
    let here = site.router();
    for host in [OFFICE, GUEST, OUTSIDE] {
        let there = site.namespace(host);
        site.ip(&there, "link del eth0");
        let queues = "numtxqueues 2 numrxqueues 2";
        let veth = format!("link add eth0 {queues} type veth peer name {} {queues} netns {here}", host.port);
        site.ip(&there, &veth);
        site.ip(&there, &format!("addr add {}/24 dev eth0", host.v4));
        site.ip(&there, &format!("addr add {}/64 dev eth0 nodad", host.v6));
        site.ip(&there, "link set eth0 up");
        site.ip(&here, &format!("link set {} up", host.port));
        site.ip(&there, &format!("route replace default via {}", host.gateway_v4));
        site.ip(&there, &format!("-6 route replace default via {}", host.gateway_v6));
    }
}

/// A server that sends everything back, and checks that each flow's datagrams arrive in order.
fn answer(socket: &UdpSocket, stop: &AtomicBool) -> HashMap<SocketAddr, (u64, u64)> {
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let mut flows: HashMap<SocketAddr, (u64, u64)> = HashMap::new();
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Acquire) {
        let Ok((length, sender)) = uninterrupted(|| socket.recv_from(&mut buffer)) else { continue };
        let [flow, number] = numbers(&buffer);
        let (of, due) = flows.entry(sender).or_insert((flow, 0));
        assert_eq!((*of, *due), (flow, number), "in order, and a public endpoint for each flow: {sender}");
        *due += 1;
        socket.send_to(&buffer[..length], sender).expect("the reply is sent");
    }
    flows
}

fn numbers(datagram: &[u8]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_be_bytes(datagram[at..at + 8].try_into().expect("eight bytes")))
}

/// Receives what follows, which shows whether the missing datagram is late or lost.
fn rest(socket: &UdpSocket) -> Vec<[u64; 2]> {
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let mut buffer = [0; 4096];
    std::iter::from_fn(|| uninterrupted(|| socket.recv(&mut buffer)).ok().map(|_| numbers(&buffer))).collect()
}

/// Packets that the kernel dropped because a processor's backlog was full, on all processors and in all
/// namespaces.
pub(crate) fn dropped_by_kernel() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").expect("Linux");
    let dropped = text.lines().filter_map(|cpu| u64::from_str_radix(cpu.split_whitespace().nth(1)?, 16).ok());
    dropped.sum()
}

/// Sends numbered datagrams, a few at a time, and checks that all return in order.
fn converse(socket: &UdpSocket, to: (&str, u16), flow: u64, bytes: Range<usize>) {
    let bytes_of = |number: u64| bytes.start + (number as usize * 37 + flow as usize) % bytes.len();
    socket.set_read_timeout(Some(LOST)).expect("a timeout");
    let mut buffer = [0; 4096];
    // A fragmented datagram takes several times its bytes of a receiver's memory.
    let window = if bytes == CUT { WINDOW / 4 } else { WINDOW };
    let (mut sent, mut due) = (0, 0);
    let dropped = dropped_by_kernel();
    while due < DATAGRAMS {
        while sent < DATAGRAMS && sent - due < window {
            let mut datagram = vec![0; bytes_of(sent)];
            datagram[..8].copy_from_slice(&flow.to_be_bytes());
            datagram[8..16].copy_from_slice(&sent.to_be_bytes());
            // Not connected: each connected socket has its own counter for the identification of fragments, so
            // identifications could collide.
            socket.send_to(&datagram, to).expect("sending succeeds");
            sent += 1;
        }
        let length = uninterrupted(|| socket.recv(&mut buffer))
            .unwrap_or_else(|why| panic!("flow {flow}, {due} of {sent}: {why}"));
        let got = numbers(&buffer);
        assert!(
            got == [flow, due],
            "{got:?} instead of {:?} to {to:?}, then {:?}; the kernel dropped {} packets meanwhile",
            [flow, due],
            rest(socket),
            dropped_by_kernel() - dropped
        );
        assert_eq!(length, bytes_of(due));
        due += 1;
    }
}

/// Flows from inside to servers at an address, all at once; both ends check their order.
fn flows_pass(site: &Site, router: &Router<'_>, server_at: &str, bytes: Range<usize>) {
    for host in [OFFICE, GUEST] {
        // Resolve neighbors first, because few packets may wait for an unresolved one.
        eventually("neighbors are resolved", || site.pings(host, server_at).then_some(()));
    }
    let bind = |host: Host, at: (&str, u16)| {
        site.within(&site.namespace(host), || UdpSocket::bind(at).expect("a port"))
    };
    let ports = PORT..PORT + (FLOWS / PER_SERVER) as u16;
    let servers: Vec<UdpSocket> = ports.map(|port| bind(OUTSIDE, (server_at, port))).collect();
    let any = if server_at.contains(':') { "::" } else { "0.0.0.0" };
    // Two hosts behind one public address sometimes use the same identification for fragments, so only one host
    // sends them.
    let host_of = |flow| if flow % 2 == 0 || bytes == CUT { OFFICE } else { GUEST };
    let clients: Vec<UdpSocket> = (0..FLOWS).map(|flow| bind(host_of(flow), (any, 0))).collect();
    let stop = AtomicBool::new(false);
    let flows: Vec<_> = thread::scope(|scope| {
        let servers: Vec<_> = servers.iter().map(|server| scope.spawn(|| answer(server, &stop))).collect();
        let client = |(flow, client): (u64, UdpSocket)| {
            let bytes = bytes.clone();
            scope.spawn(move || {
                let port = PORT + (flow as usize / PER_SERVER) as u16;
                converse(&client, (server_at, port), flow, bytes);
            })
        };
        let clients: Vec<_> = (0..).zip(clients).map(client).collect();
        let clients: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Release);
        let servers: Vec<_> = servers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let flows = servers.into_iter().flat_map(|server| server.expect("everything came in order"));
        let flows = flows.collect();
        // Shows where a missing datagram was lost.
        let told = || (router.one("counters"), router.show(&["ports"]));
        assert!(clients.iter().all(Result::is_ok), "a client had not all back: {:?}", told());
        flows
    });
    assert_eq!(flows.len(), FLOWS);
    assert!(flows.iter().all(|(_, (_, passed))| *passed == DATAGRAMS));
}

fn of_queues(port: &Value) -> Vec<u64> {
    let queues = port["queues"].as_array().expect("a list").iter();
    queues.map(|queue| queue["received"].as_u64().expect("a number")).collect()
}

/// Checks that each queue of each port received its share, and each worker its packets.
fn queues_had_their_shares(router: &Router<'_>, queues: usize, workers: usize) {
    let counters = router.counters_add_up();
    for port in router.show(&["ports"]).expect("the router answers") {
        let by_queue = of_queues(&port);
        assert_eq!(by_queue.len(), queues, "{port}");
        // With many queues, one may have no flow.
        let had_some = by_queue.iter().filter(|received| **received >= DATAGRAMS).count();
        assert!(had_some >= 2, "{port}");
    }
    let threads = counters["workers"].as_array().expect("a list");
    assert_eq!(threads.len(), workers, "{counters}");
    let packets: Vec<u64> =
        threads.iter().map(|it| it["packets"].as_u64().expect("a counter of this worker")).collect();
    assert!(packets.iter().all(|packets| *packets >= DATAGRAMS), "{counters}");
    let received = counters["received"].as_u64().expect("a number");
    let own = counters["own"].as_u64().expect("a number");
    let all: u64 = packets.iter().sum();
    assert!((received - own..=received).contains(&all), "{counters}");
}

/// Linux gives a datagram up when more than 64 other fragments of its sender arrive between its own
/// (`ipfrag_max_dist`). All flows here have one sender, and two workers that take turns on a busy machine can be that
/// far apart.
fn hosts_wait_for_fragments(site: &Site) {
    for host in [OFFICE, GUEST, OUTSIDE] {
        site.said(&site.namespace(host), "sysctl", &["-q", "-w", "net.ipv4.ipfrag_max_dist=0"]);
    }
}

fn a_worker_for_each(site: &Site, driver: &str) {
    hosts_wait_for_fragments(site);
    let mut router = site.run(&config(driver, ""), &["--workers", "2"]);
    flows_pass(site, &router, OUTSIDE.v4, WHOLE);
    flows_pass(site, &router, OUTSIDE.v4, CUT);
    flows_pass(site, &router, OUTSIDE.v6, WHOLE);
    queues_had_their_shares(&router, 2, 2);
    assert!(router.process.end(), "the router stops with success");
}

#[test]
fn a_worker_for_each_socket_of_af_packet() {
    let Some(site) = Site::alone() else { return };
    a_worker_for_each(&site, "af_packet");
}

#[test]
fn a_worker_for_each_queue_of_af_xdp() {
    let Some(site) = Site::alone() else { return };
    with_queues(&site);
    a_worker_for_each(&site, "af_xdp");
}

/// More queues than workers, and more workers than queues.
#[test]
fn queues_are_dealt_out_to_workers() {
    let Some(site) = Site::alone() else { return };
    for (queues, workers, lanes) in [(4, 1, 1), (3, 2, 2), (2, 3, 2)] {
        let more = format!("queues = {queues}\n");
        let arguments = ["--workers", &workers.to_string()];
        let mut router = site.run(&config("af_packet", &more), &arguments);
        flows_pass(&site, &router, OUTSIDE.v4, WHOLE);
        queues_had_their_shares(&router, queues, lanes);
        let refused =
            router.reload(&config("af_packet", "queues = 7\n")).expect_err("the request is refused");
        assert!(refused.contains("`queues` of [ports.lan]"), "{refused}");
        assert!(router.process.end(), "the router stops with success");
    }
}

/// A core that this process may use.
fn a_core() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let cores =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("it has cores");
    cores.trim().split(['-', ',']).next().expect("one").parse().expect("a number")
}

/// The output of a program's command that reads a configuration, run in the router's namespace.
fn of_configuration(site: &Site, command: &str, text: &str, arguments: &[&str]) -> Output {
    let file = site.file("asked.toml");
    std::fs::write(&file, text).expect("the folder is writable");
    let file = file.display().to_string();
    let arguments = [&[command, file.as_str()], arguments].concat();
    site.output(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &arguments)
}

/// The configuration assigns each queue to a worker, and each worker to a core.
#[test]
fn the_configuration_gives_queues_to_workers_and_workers_to_cores() {
    let Some(site) = Site::alone() else { return };
    let core = a_core();
    let workers =
        format!("[workers]\npriority = \"normal\"\ncores = [{core}]\nbusy_poll_us = 50\nbatch_packets = 2\n");
    let text = config("af_packet", "queue_workers = [1, 0]\n") + &workers;
    let checked = of_configuration(&site, "check", &text, &["--format", "json"]);
    let checked: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let worker = |at: usize| &checked["workers"]["each"][at];
    assert_eq!((&checked["workers"]["count"], &worker(0)["core"]), (&2.into(), &core.into()), "{checked}");
    let queues = |at: usize, queue: usize| {
        Value::from_iter(
            ["lan", "guest", "wan"].map(|port| serde_json::json!({ "port": port, "queue": queue })),
        ) == worker(at)["queues"]
    };
    assert!(queues(0, 1) && queues(1, 0), "{checked}");

    let mut router = site.run(&text, &[]);
    flows_pass(&site, &router, OUTSIDE.v4, WHOLE);
    queues_had_their_shares(&router, 2, 2);
    let (counters, ports) = router.packets_add_up();
    let of_queue = |queue: usize| ports.iter().map(|port| of_queues(port)[queue]).sum::<u64>();
    let workers = counters["workers"].as_array().expect("a list");
    let packets = |at: usize| workers[at]["packets"].as_u64().expect("a counter of this worker");
    assert_eq!(packets(1), of_queue(0), "{counters} {ports:?}");
    assert!(packets(0) >= of_queue(1), "its own, and what the router made: {counters} {ports:?}");
    assert!(workers.iter().all(|worker| worker["cores"].as_str() == Some(&core.to_string())), "{counters}");
    let chunks = |at: usize| workers[at]["chunks"].as_u64().expect("a counter of this worker");
    assert!((0..2).all(|at| packets(at) <= chunks(at) * 2), "at most two in a chunk: {counters}");

    let other = text.replace("queue_workers = [1, 0]", "queue_workers = [0, 1]");
    let refused = router.reload(&other).expect_err("only a start can");
    assert!(refused.contains("`queue_workers` of [ports.lan]"), "{refused}");
    let said = router.reload(&text.replace("busy_poll_us = 50", "busy_poll_us = 60")).expect("it is taken");
    assert!(said.contains("[workers] changed: it takes effect with a restart"), "{said}");
    assert!(router.process.end(), "the router stops with success");

    for (text, arguments, why) in [
        (text.clone(), &["--workers", "1"][..], "run with --workers 2 or more"),
        (text.clone(), &["--model", "pipeline"], "run with --model run-to-completion"),
        (
            text.replace(&format!("cores = [{core}]"), "cores = [1023]"),
            &[],
            "no thread can be bound to core 1023",
        ),
    ] {
        let output = of_configuration(&site, "run", &text, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
}
