//! Faults without end, under traffic: after each, every packet is accounted for, and the memory stays what it was.
//!
//! The router has NAT, the firewall, both families, a virtual router on the office's link, and meters flows where the
//! kernel forwards none.
//!
//! A pass is all faults, in random order; the test makes one. `cargo xtask soak --minutes 30` goes on for that
//! long, on a release build, and prints what was lost with each fault and the memory after each pass.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_base::XorShift64Star;
use thalweg_wire::MacAddr;

use crate::firewall::RULE_AGAINST_7000;
use crate::flows;
use crate::hostile::frames::{self, VethPair};
use crate::offload::offloaded;
use crate::packets::build;
use crate::reload::steady::losses;
use crate::reload::{self, BEYOND, Settings, base, configurations};
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use crate::wire::Wire;
use thalweg_testdata::Stop;

/// The order of faults, and what is random in them.
const SEED: u64 = 20_261_126;
/// Datagrams a second of each host that sends some during a fault.
const RATE: u64 = 2_000;
/// Flows of a flood, and hostile frames at a time.
const FLOOD: u32 = 4_000;
/// Flows that floods choose from.
const FLOWS: u32 = 20_000;
const HOSTILE: usize = 800;
/// Frames while the process stands still: more than a ring holds.
const OVERFLOW: u32 = 12_000;
/// How much more memory the last passes may have than as many before, in percent, and how many passes a verdict needs.
const GROWTH_PERCENT: f64 = 3.0;
const PASSES_MIN: usize = 8;
const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0x66, 0x66]);

/// Who sends datagrams through every fault, and to whom. The firewall admits them: by its policy, and guests to the
/// office by a rule.
const STREAMS: [(Host, &str); 5] =
    [(OFFICE, BEYOND), (GUEST, BEYOND), (GUEST, OFFICE.v4), (OFFICE, OUTSIDE.v6), (GUEST, OFFICE.v6)];
/// What nobody has asked for: the firewall drops all of it.
const STRAY: (Host, &str) = (OUTSIDE, OFFICE.v6);

/// The table of connections is smaller than what a few floods leave in it.
const FIREWALL: &str = r#"
[firewall]
outside = "internet"
states_max = 16384

[firewall.zones]
office = "lan"
guests = "guest"
internet = "wan"

[[firewall.rules]]
name = "guests"
action = "permit"
from = "guests"
to = "office"
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// Another configuration, and the first one again.
    Reload,
    /// The far end's carrier goes, and returns.
    Cable,
    /// The router's own interface goes down, and up.
    Port,
    /// The interface is deleted and made again.
    Gone,
    /// The gateway has another MAC address.
    Moved,
    /// More flows than hosts have.
    Flood,
    /// Frames that no host should send.
    Hostile,
    /// The process stands still, and rings overflow.
    Stopped,
}

const FAULTS: [Fault; 8] = [
    Fault::Reload,
    Fault::Cable,
    Fault::Port,
    Fault::Gone,
    Fault::Moved,
    Fault::Flood,
    Fault::Hostile,
    Fault::Stopped,
];

struct Soak<'s> {
    site: &'s Site,
    router: Router<'s>,
    driver: &'s str,
    /// Receives flow records; offload and flow metering exclude each other.
    collector: Option<UdpSocket>,
    chance: XorShift64Star,
    /// The next configuration to reload, and the next of the hostile frames.
    next: usize,
    hostile: Vec<Vec<u8>>,
    /// By fault: how often, how many packets ports missed meanwhile, and how many were dropped.
    lost: BTreeMap<Fault, (u64, u64, u64)>,
}

impl<'s> Soak<'s> {
    fn new(site: &'s Site, driver: &'s str) -> Self {
        let bound = || UdpSocket::bind("127.0.0.1:0").expect("a collector");
        let meters = !driver.ends_with("+offload");
        let collector = meters.then(|| site.within(&site.router(), bound));
        let mut soak = Self {
            site,
            router: site.run(&config(driver, &base(), "", collector.as_ref()), &[]),
            driver,
            collector,
            chance: XorShift64Star::new(SEED),
            next: 0,
            hostile: Vec::new(),
            lost: BTreeMap::new(),
        };
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let to = site.mac_of(&site.router(), "guest");
        soak.hostile = frames::all(VethPair { from: STRANGER, to }, &corpus, SEED);
        soak.is_whole();
        soak
    }

    /// All faults once, each under traffic; every packet is accounted for after each. Returns the median of the memory
    /// after each: one that follows a reload soon still has tables of two configurations.
    fn pass(&mut self) -> f64 {
        let mut faults = FAULTS.to_vec();
        let mut memory = Vec::new();
        while !faults.is_empty() {
            let fault = faults.swap_remove(self.chance.below(faults.len() as u32) as usize);
            let before = losses(&self.router);
            let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            thread::scope(|scope| {
                for (from, to) in STREAMS.into_iter().chain([STRAY]) {
                    let socket = self.socket(from, to);
                    scope.spawn({
                        let (sent, stop) = (&sent, &stop);
                        move || send(&socket, to, sent, stop)
                    });
                }
                let _stop = Stop(&stop);
                eventually("datagrams are sent", || (sent.load(Ordering::Relaxed) > RATE / 10).then_some(()));
                self.happens(fault);
            });
            self.is_whole();
            self.router.counters_add_up();
            if self.collector.is_some() {
                flows::counters_add_up(&self.router);
            }
            let (missed, dropped) = losses(&self.router);
            let of_fault = self.lost.entry(fault).or_default();
            of_fault.0 += 1;
            of_fault.1 += missed - before.0;
            of_fault.2 += dropped - before.1;
            memory.push(self.memory_kib());
        }
        median(&memory)
    }

    fn socket(&self, from: Host, to: &str) -> UdpSocket {
        let own = if to.contains(':') { from.v6 } else { from.v4 };
        let bound = || UdpSocket::bind((own, 0)).expect("a socket");
        self.site.within(&self.site.namespace(from), bound)
    }

    fn happens(&mut self, fault: Fault) {
        let (here, outside) = (self.site.router(), self.site.namespace(OUTSIDE));
        let ip = |namespace: &str, arguments: &str| self.site.ip(namespace, arguments);
        match fault {
            Fault::Reload => {
                let all = configurations(self.site);
                self.next += 1;
                let (what, settings) = &all[self.next % all.len()];
                // Connections are asked about again each time, because the rules differ.
                for (settings, rule) in [(settings, RULE_AGAINST_7000), (&base(), "")] {
                    let text = config(self.driver, settings, rule, self.collector.as_ref());
                    self.router.reload(&text).unwrap_or_else(|why| panic!("{what}: {why}"));
                }
            }
            Fault::Cable => {
                ip(&outside, "link set eth0 down");
                self.is_down("wan");
                ip(&outside, "link set eth0 up");
                addresses(self.site);
            }
            Fault::Port => {
                ip(&here, "link set lan down");
                self.is_down("lan");
                ip(&here, "link set lan up");
            }
            Fault::Gone => {
                ip(&here, "link del wan");
                self.is_down("wan");
                self.site.veth(OUTSIDE);
                addresses(self.site);
            }
            Fault::Moved => {
                let last = self.chance.below(256);
                ip(&outside, "link set eth0 down");
                ip(&outside, &format!("link set eth0 address 02:00:00:00:88:{last:02x}"));
                ip(&outside, "link set eth0 up");
                addresses(self.site);
            }
            Fault::Flood => {
                let first = self.chance.below(16) * 1000;
                self.flood(first);
            }
            Fault::Hostile => {
                let first = self.next * HOSTILE % self.hostile.len();
                self.next += 1;
                let frames: Vec<_> = self.hostile.iter().cycle().skip(first).take(HOSTILE).cloned().collect();
                self.frames(GUEST, &frames);
                // Some claim the guest's own addresses. It takes the router up to 33 s to find that out by itself; a
                // guest that asks who the router is tells it at once.
                ip(&self.site.namespace(GUEST), "neigh flush dev eth0");
            }
            Fault::Stopped => {
                self.router.process.signal("STOP");
                let near = self.site.mac_of(&here, "lan");
                let frames: Vec<_> = (0..OVERFLOW).map(|n| flow(near, n % 100)).collect();
                self.frames(OFFICE, &frames);
                self.router.process.signal("CONT");
            }
        }
    }

    /// Sends a frame of each of so many flows from `first` on.
    fn flood(&self, first: u32) {
        let near = self.site.mac_of(&self.site.router(), "lan");
        let frames: Vec<_> = (first..first + FLOOD).map(|n| flow(near, n)).collect();
        self.frames(OFFICE, &frames);
    }

    /// Puts all flows into tables and caches, and has every configuration once. Else both would take passes, of which
    /// each has one more of them, and look like growth.
    fn fill(&mut self) {
        for first in (0..FLOWS).step_by(FLOOD as usize) {
            self.flood(first);
            self.router.counters_add_up();
        }
        for _ in configurations(self.site) {
            self.happens(Fault::Reload);
        }
    }

    /// Waits until the router knows that a port is down.
    fn is_down(&self, name: &str) {
        eventually(&format!("{name} is down"), || {
            let ports = self.router.show(&["ports"])?;
            let port = ports.iter().find(|port| port["name"] == name)?;
            (port["up"] == false).then_some(())
        });
    }

    /// Sends frames from a host's interface, beside its system.
    fn frames(&self, host: Host, frames: &[Vec<u8>]) {
        let mut wire = Wire::beside(self.site, &self.site.namespace(host), "eth0", STRANGER);
        wire.send(frames.iter().map(Vec::as_slice));
    }

    /// Packets pass again, and transfers by TCP both ways.
    fn is_whole(&mut self) {
        assert!(!self.router.process.has_ended(), "the router ended");
        for (from, to) in STREAMS {
            eventually(&format!("{to} answers"), || self.site.pings(from, to).then_some(()));
        }
        let site = self.site;
        for server in [BEYOND, OUTSIDE.v6] {
            let listener = site.within(&site.namespace(OUTSIDE), || TcpListener::bind((server, 0)));
            let listener = listener.expect("a listener");
            let to = listener.local_addr().expect("an address");
            let connect = || TcpStream::connect(to).expect("the server answers");
            let mut client = site.within(&site.namespace(OFFICE), connect);
            let (mut served, _) = listener.accept().expect("a connection");
            moves(&mut client, &mut served);
            moves(&mut served, &mut client);
        }
    }

    /// The router's own memory, in KiB: what it has allocated, without what it shares with the kernel.
    fn memory_kib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.router.process.pid()));
        let status = status.expect("the router runs");
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("Linux says");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
    }
}

/// A configuration of the reloads, with what the soak has besides; `rule` is one more of the firewall's.
fn config(driver: &str, settings: &Settings, rule: &str, collector: Option<&UdpSocket>) -> String {
    let flows = collector.map(|collector| {
        let address = collector.local_addr().expect("an address");
        format!("\n[flows]\ncollectors = [\"ipfix://{address}\"]\nflows_max = 65536\n")
    });
    // The owner is Active as soon as its port is up. It advertises so seldom that counters can stand still.
    let vrrp = format!(
        "\n[[vrrp]]\nport = \"lan\"\nid = 51\naddresses = \"{}\"\npriority = 255\ninterval_ms = 10000\n",
        OFFICE.gateway_v4
    );
    let routed = reload::config(driver, settings);
    format!("{routed}{FIREWALL}{rule}{vrrp}{}", flows.unwrap_or_default())
}

/// Moves bytes from one end of a connection to the other.
fn moves(from: &mut TcpStream, to: &mut TcpStream) {
    let said: Vec<u8> = (0..300_000u32).map(|n| (n * 7 / 8) as u8).collect();
    let mut heard = vec![0; said.len()];
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&said).expect("sent"));
        to.read_exact(&mut heard).expect("it arrives");
    });
    assert!(said == heard, "what arrives is what was sent");
}

/// A frame of the `n`-th flow, of [`FLOWS`], from hosts that do not exist.
fn flow(near: MacAddr, n: u32) -> Vec<u8> {
    let (host, port) = (100 + n / 1000 % (FLOWS / 1000), 2000 + n % 1000);
    let line = format!("0 eth ip 10.1.0.{host} > 198.51.100.2 udp {port} > 9 data 30");
    [&near.0[..], &STRANGER.0, &build::line(&line).frame[12..]].concat()
}

/// Sends datagrams at an even pace until told to stop. Some get lost, as the network says.
fn send(socket: &UdpSocket, to: &str, sent: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..RATE / 500 {
            let _ = socket.send_to(&[0x5a; 64], (to, 9));
            sent.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The outside's further addresses, and what an interface of IPv6 forgets when it goes down.
fn addresses(site: &Site) {
    let Host { v6, gateway_v6, .. } = OUTSIDE;
    let of_v6 = format!("{v6}/64 nodad");
    for address in ["198.51.100.3/24", "198.51.100.4/24", &of_v6] {
        site.ip(&site.namespace(OUTSIDE), &format!("addr replace {address} dev eth0"));
    }
    site.ip(&site.namespace(OUTSIDE), &format!("-6 route replace default via {gateway_v6}"));
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// How much more the last values are than as many before, in percent, by their medians, and how many these are: whole
/// rounds of configurations if there are two, because each has its own memory; else a third of the values.
fn growth(values: &[f64], round: usize) -> (f64, usize) {
    let third = (values.len() / 3).max(1);
    let part = if values.len() < 2 * round { third } else { (third / round).max(1) * round };
    let mut parts = values.rchunks(part).map(median);
    let last = parts.next().unwrap_or(0.0);
    let before = parts.next().unwrap_or(last);
    ((last / before - 1.0) * 100.0, part)
}

/// Goes on for so long, for one pass at least; prints what it saw.
fn soak(driver: &str, lasts: Duration) {
    let Some(site) = Site::new() else { return };
    site.ip(&site.namespace(OUTSIDE), &format!("addr add {BEYOND}/32 dev lo"));
    addresses(&site);
    let mut soak = Soak::new(&site, driver);
    if !lasts.is_zero() {
        soak.fill();
    }
    let (begun, mut memory) = (Instant::now(), Vec::new());
    while memory.is_empty() || begun.elapsed() < lasts {
        memory.push(soak.pass());
        let (passes, kib) = (memory.len(), memory.last().copied().unwrap_or(0.0));
        println!("SOAK {driver}: pass {passes} at {:?}: {kib:.0} KiB", begun.elapsed());
    }
    for (fault, (times, missed, dropped)) in &soak.lost {
        println!(
            "SOAK {driver}: {fault:?} {times} times, {missed} missed by ports, {dropped} dropped by reason, 0 unaccounted"
        );
    }
    assert!(soak.lost.get(&Fault::Stopped).is_some_and(|(_, missed, _)| *missed > 0), "a ring overflows");
    if driver.ends_with("+offload") {
        let offloaded = offloaded(&soak.router);
        println!("SOAK {driver}: {offloaded} packets were forwarded by the kernel");
        assert!(offloaded > 0, "the kernel forwards flows");
    }
    let strays = soak.router.dropped("firewall-not-asked");
    println!("SOAK {driver}: {strays} packets that nobody had asked for were dropped");
    assert!(strays > 0, "the firewall drops what nobody has asked for");
    // A pass takes two steps through the configurations. Their number is odd, so as many passes have each of them.
    let (growth, part) = growth(&memory, configurations(&site).len());
    println!(
        "SOAK {driver}: memory in the last {part} of {} passes over {part} before: {growth:+.2} %",
        memory.len()
    );
    if memory.len() >= PASSES_MIN {
        assert!(growth < GROWTH_PERCENT, "memory grows: {memory:?}");
    }
    assert!(soak.router.process.end(), "the router stops with success");
    if let Some(collector) = &soak.collector {
        assert!(!flows::collected(collector).is_empty(), "the collector gets records");
    }
}

#[test]
fn faults_without_end_leave_nothing_behind() {
    let minutes = std::env::var("THALWEG_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse::<f64>().ok());
    match minutes {
        None => soak("af_packet", Duration::ZERO),
        Some(minutes) => {
            let drivers = ["af_packet", "af_packet+offload", "af_xdp"];
            for driver in drivers {
                soak(driver, Duration::from_secs_f64(minutes * 60.0 / drivers.len() as f64));
            }
        }
    }
}

#[test]
fn growth_is_not_that_of_single_values() {
    let (ten, part) = growth(&[1.0, 1.0, 1.0, 10.0, 10.0, 14.0, 10.0, 11.0, 19.0], 13);
    assert!((ten - 10.0).abs() < 1e-9 && part == 3, "{ten}");
    assert_eq!((growth(&[4.0; 9], 13), growth(&[4.0], 13)), ((0.0, 3), (0.0, 1)));
    assert!(growth(&[5.0, 4.0, 4.5], 13).0 > 0.0);
}

/// With configurations that take 1, 2 and 3.
#[test]
fn growth_is_that_of_whole_rounds() {
    let rounds = |passes: usize, leak: f64| -> Vec<f64> {
        (0..passes).map(|pass| [1.0, 2.0, 3.0][pass % 3] + pass as f64 * leak).collect()
    };
    for passes in [6, 7, 8, 13, 20] {
        let (growth, part) = growth(&rounds(passes, 0.0), 3);
        assert!(growth == 0.0 && part % 3 == 0, "{passes}: {growth}, {part}");
    }
    assert!((growth(&rounds(8, 0.1), 3).0 - 100.0 * 0.3 / 2.4).abs() < 1e-9);
}
