//! Hostile packets, with every driver. The router continues, other hosts' packets pass, and at the end every
//! packet is accounted for.

pub(crate) mod frames;

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::packets::build;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use crate::wire::Wire;
use frames::VethPair;
use thalweg_testdata::{Stop, uninterrupted};
use thalweg_wire::MacAddr;

/// Frames sent before waiting until the router has seen them: fewer than fit into any driver's ring.
const BATCH: usize = 1000;
/// The source of hostile packets; another address than that of the guest on this veth.
const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0x66, 0x66]);
/// The seed of the random changes.
const SEED: u64 = 0x7468_616c_7765_6721;

fn config(driver: &str) -> String {
    let port = |host: Host| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\naddresses = [\"{1}/24\", \"{2}/64\"]\n\n",
            host.port, host.gateway_v4, host.gateway_v6
        )
    };
    let ports: String = [OFFICE, GUEST, OUTSIDE].map(port).concat();
    ports + "[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\naddresses = [\"198.51.100.1\"]\n"
}

/// A host whose packets must pass: it sends requests and receives answers until told to stop.
struct Conversation {
    stop: AtomicBool,
    rounds: AtomicU32,
}

impl Conversation {
    /// Runs `work` while the office talks to the outside; returns the number of answers.
    fn beside(site: &Site, work: impl FnOnce(&Conversation)) -> u32 {
        let server =
            site.within(&site.namespace(OUTSIDE), || UdpSocket::bind((OUTSIDE.v4, 7)).expect("a port"));
        let client =
            site.within(&site.namespace(OFFICE), || UdpSocket::bind((OFFICE.v4, 0)).expect("a port"));
        let quick = Some(Duration::from_millis(500));
        server.set_read_timeout(quick).expect("a timeout");
        client.set_read_timeout(quick).expect("a timeout");
        let talk = Conversation { stop: AtomicBool::new(false), rounds: AtomicU32::new(0) };
        std::thread::scope(|scope| {
            scope.spawn(|| talk.answer(&server));
            scope.spawn(|| talk.ask(&client));
            // Stops the others even if `work` panics.
            let stop = Stop(&talk.stop);
            talk.goes_on();
            work(&talk);
            talk.goes_on();
            drop(stop);
        });
        talk.rounds.into_inner()
    }

    fn answer(&self, socket: &UdpSocket) {
        let mut buffer = [0; 64];
        while !self.stop.load(Ordering::Relaxed) {
            if let Ok((length, from)) = uninterrupted(|| socket.recv_from(&mut buffer)) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        }
    }

    fn ask(&self, socket: &UdpSocket) {
        let mut buffer = [0; 64];
        let mut number = 0_u32;
        while !self.stop.load(Ordering::Relaxed) {
            // Sending can fail until the router is up.
            let _ = socket.send_to(&number.to_be_bytes(), (OUTSIDE.v4, 7));
            while let Ok((length, _)) = uninterrupted(|| socket.recv_from(&mut buffer)) {
                if buffer[..length] == number.to_be_bytes() {
                    number += 1;
                    self.rounds.store(number, Ordering::Relaxed);
                    break;
                }
            }
        }
    }

    /// Waits for three more answers.
    fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        eventually("others' packets pass", || {
            (self.rounds.load(Ordering::Relaxed) >= before + 3).then_some(())
        });
    }
}

/// Frames that reached the guests' port: received, missed, or addressed to others.
fn seen(router: &Router<'_>) -> u64 {
    let ports = router.show(&["ports"]).expect("the router answers");
    let guest = ports.iter().find(|port| port["name"] == "guest").expect("the port is there");
    ["received", "missed", "foreign"].iter().map(|field| guest[field].as_u64().expect("a number")).sum()
}

/// Sends everything in batches; returns the number of frames sent.
fn send(router: &mut Router<'_>, wire: &mut Wire, frames: &[Vec<u8>]) -> u64 {
    let mut sent = 0;
    for batch in frames.chunks(BATCH) {
        let before = seen(router);
        let went = wire.send(batch.iter().map(Vec::as_slice)) as u64;
        sent += went;
        // The kernel drops a frame with a truncated tag before any port sees it, so not all frames need to
        // arrive.
        let mut last = before;
        eventually("the port has seen the frames", || {
            assert!(!router.process.has_ended(), "the router ended");
            let (now, still) = (seen(router), last);
            last = now;
            (now >= before + went || now > before && now == still).then_some(())
        });
    }
    sent
}

fn hostile(driver: &str, arguments: &[&str]) {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config(driver), arguments);
    let near = site.mac_of(&site.router(), "guest");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let frames = frames::all(VethPair { from: STRANGER, to: near }, &corpus, SEED);
    assert!(frames.len() > 10_000, "{}", frames.len());
    let mut wire = Wire::open(&site, &site.namespace(GUEST), "eth0", STRANGER);
    let (mut sent, before) = (0, seen(&router));
    let rounds = Conversation::beside(&site, |talk| {
        for part in frames.chunks(2000) {
            sent += send(&mut router, &mut wire, part);
            talk.goes_on();
        }
    });
    // No interface sends a frame shorter than a header; all others were sent.
    assert!(sent as usize >= frames.len() - 100, "{sent} of {} frames went", frames.len());
    let came = seen(&router) - before;
    assert!(came + 400 >= sent, "of {sent} frames the port saw {came}");
    assert!(rounds > 20, "{rounds}");
    let counters = router.counters_add_up();
    let dropped = counters["dropped"].as_object().expect("reasons").len();
    // The packets are bad in many ways, so stages of every kind drop some.
    assert!(dropped >= 15, "{counters}");
    drop(wire);
    eventually("the guest is reachable", || site.pings(GUEST, OFFICE.v4).then_some(()));
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

#[test]
fn hostile_packets_by_af_packet() {
    hostile("af_packet", &[]);
}

#[test]
fn hostile_packets_by_af_xdp() {
    hostile("af_xdp", &[]);
}

#[test]
fn hostile_packets_in_a_pipeline() {
    hostile("auto", &["--model", "pipeline", "--workers", "2"]);
}

/// A scan of a /64 (RFC 6583): known neighbors stay resolved and reachable without delay, a neighbor that
/// announces itself is accepted, and the number of waiting packets is bounded.
#[test]
fn a_scan_of_many_addresses() {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config("auto"), &[]);
    let guest = site.namespace(GUEST);
    eventually("the guest is resolved", || site.pings(OFFICE, GUEST.v6).then_some(()));
    let near = site.mac_of(&site.router(), "lan");
    let mut wire = Wire::beside(&site, &site.namespace(OFFICE), "eth0", STRANGER);
    let mut rounds = 0;
    let scan = |from: u32| -> Vec<Vec<u8>> {
        let line = |i: u32| {
            format!("0 eth ip 2001:db8:1::66 > 2001:db8:2::{:x}:{:x} udp 1 > 2", 1 + (i >> 16), i & 0xffff)
        };
        (from..from + 2000)
            .map(|i| [near.as_ref(), STRANGER.as_ref(), &build::line(&line(i)).frame[12..]].concat())
            .collect()
    };
    for part in 0..10 {
        let frames = scan(part * 2000);
        for batch in frames.chunks(512) {
            wire.send(batch.iter().map(Vec::as_slice));
        }
        // In the middle of the scan, the first packet to the known neighbor is answered.
        rounds += u32::from(site.pings(OFFICE, GUEST.v6));
        if part == 5 {
            site.ip(&guest, "addr add 2001:db8:2::77/64 dev eth0 nodad");
            let arguments = ["-c", "1", "-W", "1", "-I", "2001:db8:2::77", OFFICE.v6];
            eventually("a neighbor that announces itself is accepted", || {
                site.output(&guest, "ping", &arguments).status.success().then_some(())
            });
        }
        let neighbors = router.show(&["neighbors"]).expect("the router answers");
        let of_guest = |known: bool| {
            neighbors.iter().filter(|one| one["port"] == "guest" && one["mac"].is_string() == known).count()
        };
        assert!(of_guest(false) <= 128, "{} wait", of_guest(false));
        let known = neighbors.iter().any(|one| one["address"] == GUEST.v6 && one["mac"].is_string());
        assert!(known, "the guest is forgotten: {neighbors:?}");
    }
    assert_eq!(rounds, 10, "the known neighbor is reached");
    assert!(!router.process.has_ended(), "the router ended");
    eventually("no packet waits for a neighbor", || {
        (router.one("counters")["waiting_for_neighbor"] == 0).then_some(())
    });
    router.counters_add_up();
}
