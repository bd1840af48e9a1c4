//! Streams during reloads: how much was sent, how much arrived, and where the rest is.
//!
//! A stream that waits until what it has sent has arrived, so that no ring can overflow, loses nothing, at any number of
//! reloads. `THALWEG_RELOAD_PACKETS=2000000` sends that many in each of ten rounds.
//!
//! The stream at a steady rate does not wait, so rings may overflow on a busy machine; the ports count that. The test
//! demands that every packet is accounted for. It prints how many packets were lost and how long none was received, for
//! `docs/reload.md`. `THALWEG_RELOAD_RATE=100000` measures all drivers and models at that many packets per
//! second, with a full Internet table.

use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{BEYOND, GATEWAYS, Settings, base, config, configurations};
use crate::site::{OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::{Stop, uninterrupted, with_room};

/// Packets per second by default.
const RATE: u64 = 5_000;
/// One burst per millisecond.
const TICK: Duration = Duration::from_millis(1);
/// The longest delay that a sender catches up with.
const LATE: Duration = Duration::from_millis(10);
/// Prefixes of the generated table.
const MADE_UP: u32 = 30_000;

/// The most packets of a stream on their way: fewer than the kernel's queue of a core holds.
const ON_THEIR_WAY: u64 = 512;
/// Reloads in a round at least.
const RELOADS: usize = 3;
/// Rounds, and packets in each; of a measurement ten rounds.
const ROUNDS: (usize, u64) = (2, 20_000);
const ROUNDS_MEASURED: usize = 10;
/// No packet is this late; one that has not arrived by then is lost.
const LOST: Duration = Duration::from_secs(20);

/// The effect of one reload on a stream.
#[derive(Debug)]
struct Measured {
    sent: u64,
    received: u64,
    /// Frames missed by ports, and packets dropped with a reason.
    missed: u64,
    dropped: u64,
    said: String,
}

/// Datagrams from the office to the server behind the gateway.
struct Stream<'s> {
    site: &'s Site,
    rate: u64,
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    receiver: Option<thread::JoinHandle<()>>,
}

impl<'s> Stream<'s> {
    fn new(site: &'s Site, rate: u64) -> Self {
        let socket = with_room(
            site.within(&site.namespace(OUTSIDE), || UdpSocket::bind((BEYOND, 9)).expect("a port")),
        );
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let (received, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, ends) = (received.clone(), stop.clone());
        let receiver = thread::spawn(move || {
            let mut buffer = [0; 64];
            while !ends.load(Ordering::Acquire) {
                if uninterrupted(|| socket.recv(&mut buffer)).is_ok() {
                    count.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        Self { site, rate, received, stop, receiver: Some(receiver) }
    }

    fn sender(&self) -> UdpSocket {
        let bound = || {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a port");
            socket.connect((BEYOND, 9)).expect("a route");
            socket
        };
        self.site.within(&self.site.namespace(OFFICE), bound)
    }

    /// Sends while `work` runs, and a little before and after; returns what arrived.
    fn over(&self, router: &Router<'_>, work: impl FnOnce() -> String + Send) -> Measured {
        let before = self.received.load(Ordering::Acquire);
        let (missed_before, dropped_before) = losses(router);
        let socket = self.sender();
        let ends = AtomicBool::new(false);
        let (sent, said) = thread::scope(|scope| {
            let sender = scope.spawn(|| send(&socket, self.rate, &ends));
            let end = Stop(&ends);
            thread::sleep(Duration::from_millis(300));
            let said = work();
            thread::sleep(Duration::from_millis(300));
            drop(end);
            (sender.join().expect("it sends"), said)
        });
        // The neighbors are resolved, so the first packets do not wait, and the last arrive soon.
        let (received, missed, dropped) = eventually("every packet is accounted for", || {
            let received = self.received.load(Ordering::Acquire) - before;
            let (missed, dropped) = losses(router);
            let (missed, dropped) = (missed - missed_before, dropped - dropped_before);
            (received + missed + dropped >= sent).then_some((received, missed, dropped))
        });
        Measured { sent, received, missed, dropped, said }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(receiver) = self.receiver.take() {
            // The thread does nothing that could fail.
            let _ = receiver.join();
        }
    }
}

/// Sends `packets`, and more until `is_over`, never too many ahead of what is `received`; returns how many were sent, and
/// how many of them were lost.
fn without_loss(socket: &UdpSocket, received: &AtomicU64, packets: u64, is_over: &AtomicBool) -> (u64, u64) {
    let before = received.load(Ordering::Acquire);
    let mut sent = 0u64;
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let now = received.load(Ordering::Acquire) - before;
        let ends = sent >= packets && is_over.load(Ordering::Acquire);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if ends && now >= sent || since.elapsed() > LOST {
            return (sent, sent.saturating_sub(now));
        }
        if ends || sent - now >= ON_THEIR_WAY {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        socket.send(&sent.to_be_bytes()).expect("sending succeeds");
        sent += 1;
    }
}

/// Sends one burst per tick. A late sender catches up with at most [`LATE`], so a slow machine lowers the load.
fn send(socket: &UdpSocket, rate: u64, ends: &AtomicBool) -> u64 {
    let mut last = Instant::now();
    let (mut sent, mut owed_us) = (0u64, 0u64);
    while !ends.load(Ordering::Acquire) {
        owed_us += last.elapsed().min(LATE).as_micros() as u64 * rate;
        last = Instant::now();
        for _ in 0..owed_us / 1_000_000 {
            socket.send(&sent.to_be_bytes()).expect("sending succeeds");
            sent += 1;
        }
        owed_us %= 1_000_000;
        thread::sleep(TICK);
    }
    sent
}

/// Frames missed by ports, and packets dropped with a reason.
pub(crate) fn losses(router: &Router<'_>) -> (u64, u64) {
    let ports = router.show(&["ports"]).expect("the router answers");
    let count = |port: &Value| port["missed"].as_u64().unwrap_or_default();
    let dropped = router.one("counters")["dropped"].as_object().cloned().unwrap_or_default();
    (ports.iter().map(count).sum(), dropped.values().filter_map(Value::as_u64).sum())
}

/// Writes a table: the Internet's if this run measures and the file is there, otherwise a generated one. Returns
/// its number of prefixes.
fn table(site: &Site, measures: bool) -> u64 {
    let real = thalweg_testdata::shared("prefixes/full-table-prefixes.txt.gz").filter(|_| measures);
    let file: PathBuf = site.file("table.txt");
    match real {
        Some(real) => {
            let text = std::process::Command::new("zcat").arg(real).output().expect("zcat runs").stdout;
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            fs::write(file, text).expect("the folder is writable");
            lines as u64
        }
        None => {
            let mut text = String::new();
            for n in 0..MADE_UP {
                let _ = writeln!(text, "{}.{}.{}.0/24", 20 + (n >> 16), n >> 8 & 255, n & 255);
            }
            fs::write(file, text).expect("the folder is writable");
            MADE_UP.into()
        }
    }
}

/// Settings with the table's routes through one gateway or the other.
fn with_table(gateway: &str) -> Settings {
    let hops = format!("default_next_hops = [\"{gateway}\", \"{}\"]", "2001:db8:9::2");
    Settings { rest: format!("[routing]\nfiles = [\"table.txt\"]\n{hops}\n"), ..base() }
}

/// Reloads one configuration after the other while a stream flows, and loses nothing.
fn rounds(driver: &str, (rounds, packets): (usize, u64)) {
    let Some(site) = Site::alone().map(prepared) else { return };
    let router = site.run(&config(driver, &base()), &[]);
    eventually("the server answers", || site.pings(OFFICE, BEYOND).then_some(()));
    let stream = Stream::new(&site, 0);
    let all = configurations(&site);
    let mut next = all.iter().cycle();
    for round in 1..=rounds {
        let (is_over, socket, received) = (AtomicBool::new(false), stream.sender(), &*stream.received);
        thread::scope(|scope| {
            let sending = scope.spawn(|| without_loss(&socket, received, packets, &is_over));
            let mut reloads = 0;
            while reloads < RELOADS || stream.received.load(Ordering::Acquire) < round as u64 * packets {
                if sending.is_finished() {
                    break;
                }
                let Some((what, settings)) = next.next() else { break };
                router.reload(&config(driver, settings)).unwrap_or_else(|why| panic!("{what}: {why}"));
                reloads += 1;
            }
            is_over.store(true, Ordering::Release);
            let (sent, lost) = sending.join().expect("it sends");
            println!("RELOADS {driver}: round {round}: {sent} packets, {reloads} reloads, {lost} lost");
            assert_eq!(lost, 0, "{}", router.one("counters"));
        });
    }
    router.counters_add_up();
}

#[test]
fn a_stream_that_overflows_nothing_loses_nothing() {
    let packets = std::env::var("THALWEG_RELOAD_PACKETS").ok().and_then(|packets| packets.parse().ok());
    let all = packets.map_or(ROUNDS, |packets| (ROUNDS_MEASURED, packets));
    for driver in ["af_packet", "af_xdp"] {
        rounds(driver, all);
    }
}

/// The site with a server behind a gateway.
fn prepared(site: Site) -> Site {
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, &format!("addr add {BEYOND}/32 dev lo"));
    site.ip(&outside, "addr add 198.51.100.3/24 dev eth0");
    site
}

fn measure(driver: &str, arguments: &[&str], rate: u64, measures: bool) {
    let Some(site) = Site::new().map(prepared) else { return };
    let config = |settings: &Settings| config(driver, settings);
    let router = site.run(&config(&base()), arguments);
    eventually("the server answers", || site.pings(OFFICE, BEYOND).then_some(()));
    let stream = Stream::new(&site, rate);
    let name = [&[driver], arguments].concat().join(" ");
    let show = |what: &str, measured: &Measured| {
        let Measured { sent, received, missed, dropped, said } = measured;
        let last = said.lines().last().unwrap_or_default();
        let counts = format!("sent {sent}, received {received}, missed {missed}, dropped {dropped}");
        println!("MEASURED {name}: {what}: {counts}; {last}");
        // Missed and dropped packets may include others than the stream's, such as hosts' neighbor requests.
        assert!(received <= sent && sent - received <= missed + dropped, "{name}, {what}: {measured:?}");
    };
    let nothing = stream.over(&router, || "no reload".to_owned());
    show("nothing", &nothing);
    for (what, settings) in configurations(&site) {
        let measured =
            stream.over(&router, || router.reload(&config(&settings)).expect("the reload succeeds"));
        show(what, &measured);
    }
    let prefixes = table(&site, measures);
    for (what, settings) in [
        ("a full table comes", with_table(GATEWAYS[0])),
        ("it is replaced", with_table(GATEWAYS[1])),
        ("it goes", base()),
    ] {
        let begun = Instant::now();
        let measured =
            stream.over(&router, || router.reload(&config(&settings)).expect("the reload succeeds"));
        show(&format!("{what} ({prefixes} prefixes, {:.1} s)", begun.elapsed().as_secs_f64()), &measured);
    }
}

#[test]
fn every_packet_of_a_steady_stream_is_accounted_for() {
    let rate = std::env::var("THALWEG_RELOAD_RATE").ok().and_then(|rate| rate.parse().ok());
    let Some(rate) = rate else { return measure("auto", &[], RATE, false) };
    measure("af_packet", &[], rate, true);
    measure("af_xdp", &[], rate, true);
    measure("auto", &["--model", "pipeline", "--workers", "2"], rate, true);
    measure("auto", &["--model", "farm", "--workers", "2"], rate, true);
}
