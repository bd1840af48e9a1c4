//! AF_PACKET through veths, between two network namespaces made here; needs root, `ip` and `nft`.
//!
//! ```text
//! sender (thread) ── a0 ══ a1 ── this: receive, swap addresses, send ── b1 ══ b0 ── dropped at its ingress
//! ```
//!
//! `cargo bench -p thalweg-ports --bench live -- [FRAME_BYTES] [SECONDS] [RUNS] [GATHER_US]`. Three cases: `sink`
//! (frames are dropped at the ingress of a1, which shows the cost of sender and veth), `receive` (frames are
//! received at a1 and dropped), `forward` (the whole path). Per case: packets that arrived, CPU time of the
//! sender and of this thread in nanoseconds per sent packet, and CPU time of the whole machine, which includes
//! the kernel's threads.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::{LiveClock, LiveSource, PortTx, SourceOptions};
use thalweg_wire::MacAddr;

const SENDER: &str = "thalweg-bench-s";
const ROUTER: &str = "thalweg-bench-r";
const SINK: &str = "thalweg-bench-d";

fn run(program: &str, arguments: &str) {
    let status = Command::new(program).args(arguments.split_whitespace()).status().expect("the program runs");
    assert!(status.success(), "{program} {arguments}");
}

fn enter(namespace: &str) {
    let namespace = File::open(format!("/run/netns/{namespace}")).expect("the namespace exists");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("root has permission");
}

/// CPU time of this thread so far.
fn thread_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

/// The machine's CPU time so far, without idle time.
fn machine_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").expect("procfs");
    let ticks: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum();
    busy * 10_000_000
}

fn drops(namespace: &str, interface: &str, on: bool) {
    let rules = format!(
        "netns exec {namespace} nft add table netdev t; netns exec {namespace} nft add chain netdev t c {{ type filter hook ingress device {interface} priority 0; policy drop; }}"
    );
    if on {
        rules.split("; netns").enumerate().for_each(|(at, rule)| {
            run("ip", &if at == 0 { rule.to_owned() } else { format!("netns{rule}") });
        });
    } else {
        run("ip", &format!("netns exec {namespace} nft delete table netdev t"));
    }
}

/// Packets sent or received by a namespace's interface, by the kernel's counters.
fn arrived(namespace: &str, interface: &str) -> u64 {
    let output = Command::new("ip")
        .args([
            "netns",
            "exec",
            namespace,
            "cat",
            &format!("/sys/class/net/{interface}/statistics/rx_packets"),
        ])
        .output()
        .expect("ip runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
}

/// Sends as fast as possible; returns packets and CPU nanoseconds of the sender.
fn blast(frame: &[u8], seconds: f64, counter: &AtomicU64) -> (u64, u64) {
    let mut port = packet::open(&PacketOptions::new("a0")).expect("it was made");
    let (began, cpu) = (Instant::now(), thread_ns());
    while began.elapsed().as_secs_f64() < seconds {
        for _ in 0..64 {
            let _ = port.tx.push(frame);
        }
        let _ = port.tx.flush();
    }
    let sent = port.tx.counters().frames;
    counter.store(sent, Ordering::Relaxed);
    (sent, thread_ns() - cpu)
}

fn forward(
    source: &mut LiveSource,
    mut tx: Option<&mut dyn PortTx>,
    to: MacAddr,
    stop: &AtomicBool,
) -> (u64, u64) {
    let (mut received, mut chunks) = (0, 0);
    let mut frame = Vec::with_capacity(2048);
    while let (Ok(chunk), false) =
        (source.next_chunk(Duration::from_millis(20)), stop.load(Ordering::Relaxed))
    {
        let Some(chunk) = chunk else { continue };
        chunks += 1;
        received += chunk.packets().len() as u64;
        let Some(tx) = tx.as_deref_mut() else { continue };
        for at in 0..chunk.packets().len() {
            frame.clear();
            frame.extend_from_slice(chunk.frame(at));
            frame[..6].copy_from_slice(&to.0);
            let _ = tx.push(&frame);
        }
        let _ = tx.flush();
    }
    (received, chunks)
}

fn main() {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let bytes = numbers.first().map_or(60, |bytes| *bytes as usize);
    let seconds = numbers.get(1).copied().unwrap_or(2.0);
    let runs = numbers.get(2).map_or(3, |runs| *runs as usize);
    let mut options = SourceOptions::default();
    if let Some(gather) = numbers.get(3) {
        options.gather = Duration::from_micros(*gather as u64);
    }
    for namespace in [SENDER, ROUTER, SINK] {
        run("ip", &format!("netns add {namespace}"));
        run(
            "ip",
            &format!(
                "netns exec {namespace} sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
            ),
        );
    }
    run(
        "ip",
        &format!(
            "link add a0 netns {SENDER} address 02:00:00:00:00:01 type veth peer name a1 address 02:00:00:00:00:02 netns {ROUTER}"
        ),
    );
    run(
        "ip",
        &format!(
            "link add b1 netns {ROUTER} address 02:00:00:00:00:03 type veth peer name b0 address 02:00:00:00:00:04 netns {SINK}"
        ),
    );
    for (namespace, interface) in [(SENDER, "a0"), (ROUTER, "a1"), (ROUTER, "b1"), (SINK, "b0")] {
        run("ip", &format!("-n {namespace} link set {interface} up"));
    }
    drops(SINK, "b0", true);
    let mut frame = vec![0; bytes];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45,
        0,
        0,
        (bytes - 14) as u8,
        0,
        0,
        0,
        0,
        64,
        17,
        0,
        0,
        10,
        0,
        1,
        2,
        10,
        0,
        2,
        2,
    ]);
    for case in ["sink", "receive", "forward"] {
        for _ in 0..runs {
            measure(case, &frame, seconds, options);
        }
    }
    for namespace in [SENDER, ROUTER, SINK] {
        run("ip", &format!("netns delete {namespace}"));
    }
}

fn measure(case: &str, frame: &[u8], seconds: f64, options: SourceOptions) {
    if case == "sink" {
        drops(ROUTER, "a1", true);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let counter = Arc::new(AtomicU64::new(0));
    let (before_a, before_b) = (arrived(ROUTER, "a1"), arrived(SINK, "b0"));
    let machine = machine_ns();
    let began = Instant::now();
    let mine = (case != "sink").then(|| {
        let stop = Arc::clone(&stop);
        let with_tx = case == "forward";
        std::thread::spawn(move || {
            enter(ROUTER);
            let a1 = packet::open(&PacketOptions::new("a1")).expect("it was made");
            let mut b1 = packet::open(&PacketOptions::new("b1")).expect("it was made");
            let halves = a1.rx.into_iter().map(|half| (0, half)).collect();
            let mut source = LiveSource::new(halves, options, LiveClock::start()).expect("a counter");
            let cpu = thread_ns();
            let tx = with_tx.then_some(&mut *b1.tx as &mut dyn PortTx);
            let (received, chunks) = forward(&mut source, tx, MacAddr([2, 0, 0, 0, 0, 4]), &stop);
            let missed = source.counters().map(|(_, counters)| counters.missed).sum::<u64>();
            (received, chunks, missed, b1.tx.counters(), thread_ns() - cpu)
        })
    });
    std::thread::sleep(Duration::from_millis(100));
    let content = frame.to_vec();
    let sender = {
        let counter = Arc::clone(&counter);
        std::thread::spawn(move || {
            enter(SENDER);
            blast(&content, seconds, &counter)
        })
    };
    let (sent, sender_ns) = sender.join().expect("the sender ends");
    std::thread::sleep(Duration::from_millis(50));
    stop.store(true, Ordering::Relaxed);
    let mine = mine.map(|thread| thread.join().expect("the receiver ends"));
    let wall = began.elapsed();
    let machine = machine_ns() - machine;
    let per = |ns: u64| ns as f64 / sent as f64;
    let (a, b) = (arrived(ROUTER, "a1") - before_a, arrived(SINK, "b0") - before_b);
    let (received, chunks, missed, tx, mine_ns) = mine.unwrap_or_default();
    println!(
        "{case:8} sent {:.3} Mpps, at a1 {:.3}, received {:.3} (missed {missed}, {:.0} a chunk), at b0 {:.3} (failed {}); \
         ns per packet sent: sender {:.0}, here {:.0}, machine {:.0} ({:.1} s)",
        sent as f64 / seconds / 1e6,
        a as f64 / seconds / 1e6,
        received as f64 / seconds / 1e6,
        received as f64 / (chunks as f64).max(1.0),
        b as f64 / seconds / 1e6,
        tx.failed,
        per(sender_ns),
        per(mine_ns),
        per(machine),
        wall.as_secs_f64(),
    );
    if case == "sink" {
        drops(ROUTER, "a1", false);
    }
}
