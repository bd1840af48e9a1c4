//! The wall clock jumps, as when a person sets it or NTP first reaches a server. No state of the router may
//! expire early or live longer because of it. Timestamps for others have the new time.
//!
//! Only the router's process sees the jump: `libfaketime`, between it and the C library, reads an offset from a
//! file. The monotonic clock does not change, as with a real jump.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use thalweg_flow::FlowRecord;
use thalweg_flow::import::Importer;
use thalweg_wire::netflow::decode::Source;

use crate::site::{Host, OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::{uninterrupted, with_room};

const CONFIG: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24", "2001:db8:9::1/64"]

[nat]
outside = "wan"
inside = ["lan"]

[flows]
active_timeout_s = 1
idle_timeout_s = 1
"#;

/// The configuration's default for a session without packets.
const UDP_SESSION_S: u64 = 300;
/// Far enough apart that no offset can be mistaken for another one.
const JUMPS_HOURS: [i64; 5] = [5, -7, 26, -1, 0];

/// Debian's path of the library for programs with threads.
fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    if found.is_none() {
        thalweg_testdata::skipped(
            "libfaketime (package faketime) is not installed: no clock was made to jump",
        );
    }
    found
}

/// Seconds since the epoch of a time in a log.
fn seconds(stamp: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| stamp.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // Days from civil: years begin in March, so that the leap day comes last.
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Seconds since the epoch, by a clock that does not jump.
fn true_time(site: &Site) -> i64 {
    site.said(&site.router(), "date", &["+%s"]).trim().parse().expect("seconds")
}

/// The offset of the router's wall clock in whole hours, from the timestamps in its log.
fn hours_off(site: &Site, router: &Router<'_>) -> Option<i64> {
    let before = site.log().lines().count();
    router.reload("[ports.lan\n").expect_err("invalid TOML");
    let log = site.log();
    let line = log.lines().skip(before).find(|line| line.contains("not valid"))?;
    let off = seconds(line)? - true_time(site);
    Some((off + off.signum() * 1800) / 3600)
}

fn socket(site: &Site, host: Host, at: &str) -> UdpSocket {
    let socket = site.within(&site.namespace(host), || UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

/// Sends a datagram of a session and waits for the answer; returns the source address that the server saw.
fn there_and_back(from: &UdpSocket, server: &UdpSocket) -> String {
    from.send_to(b"there", "198.51.100.2:7000").expect("sent");
    let mut buffer = [0; 16];
    let (_, seen) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
    server.send_to(b"back", seen).expect("sent");
    uninterrupted(|| from.recv(&mut buffer)).expect("the answer arrives");
    seen.to_string()
}

/// What a collector has received.
#[derive(Default)]
struct Records {
    importer: Importer,
    all: Vec<FlowRecord>,
}

impl Records {
    fn hear(&mut self, collector: &UdpSocket) {
        collector.set_nonblocking(true).expect("a socket");
        let (mut message, source) = (vec![0; 65_536], Source { exporter: 1, is_stream: false });
        while let Ok((length, _)) = uninterrupted(|| collector.recv_from(&mut message)) {
            let heard = self.importer.handle_message(source, &message[..length], 0, &mut self.all);
            assert_eq!(heard.expect("a message of IPFIX").faults, 0);
        }
    }

    /// The offsets of flow ends from the true time, in whole hours.
    fn ends_hours_off(&self, now_s: i64) -> BTreeSet<i64> {
        let ends = self.all.iter().map(|record| (record.counters.last_ns / 1_000_000_000) as i64 - now_s);
        ends.map(|off| (off + off.signum() * 1800) / 3600).collect()
    }
}

fn sessions(router: &Router<'_>) -> Vec<Value> {
    router.show(&["nat", "--protocol", "udp"]).expect("the router answers")
}

#[test]
fn the_wall_clock_jumps() {
    let Some(library) = library() else { return };
    let Some(site) = Site::new() else { return };
    let file = site.file("clock");
    let jump = |hours: i64| fs::write(&file, format!("{hours:+}h\n")).expect("the folder is writable");
    jump(0);
    let environment = [
        format!("LD_PRELOAD={}", library.display()),
        format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        "FAKETIME_NO_CACHE=1".to_owned(),
        "TZ=UTC".to_owned(),
    ];
    let collector =
        with_room(site.within(&site.router(), || UdpSocket::bind("127.0.0.1:0")).expect("a collector"));
    let port = collector.local_addr().expect("an address").port();
    let config = format!("{CONFIG}collectors = [\"ipfix://127.0.0.1:{port}\"]\n");
    let mut router = site.run_within(&config, &[], &environment);
    eventually("the router forwards", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    assert!(site.pings(OFFICE, OUTSIDE.v6));
    assert_eq!(hours_off(&site, &router), Some(0));

    let server = socket(&site, OUTSIDE, "198.51.100.2:7000");
    let (busy, silent) = (socket(&site, OFFICE, "10.1.0.2:0"), socket(&site, OFFICE, "10.1.0.2:0"));
    // No session is idle for longer than since now.
    let begun = std::time::Instant::now();
    let (seen_of_busy, seen_of_silent) = (there_and_back(&busy, &server), there_and_back(&silent, &server));
    let listener =
        site.within(&site.namespace(OUTSIDE), || TcpListener::bind("198.51.100.2:7001").expect("a port"));
    let mut client = site
        .within(&site.namespace(OFFICE), || TcpStream::connect("198.51.100.2:7001").expect("it connects"));
    let (mut stream, _) = listener.accept().expect("a client connects");
    for socket in [&client, &stream] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    }
    let mut records = Records::default();

    for (jumps, hours) in (1..).zip(JUMPS_HOURS) {
        jump(hours);
        eventually("the router's clock has jumped", || {
            (hours_off(&site, &router) == Some(hours)).then_some(())
        });
        // Old sessions continue with the same translation, and new ones are created.
        assert_eq!(there_and_back(&busy, &server), seen_of_busy, "{hours} hours");
        client.write_all(b"there").expect("sending succeeds");
        stream.read_exact(&mut [0; 5]).expect("data arrives");
        stream.write_all(b"back").expect("sending succeeds");
        client.read_exact(&mut [0; 4]).expect("the reply arrives");
        let new = socket(&site, OFFICE, "10.1.0.2:0");
        there_and_back(&new, &server);
        assert!(site.pings(OFFICE, OUTSIDE.v6), "{hours} hours");

        // Records have the new time, and the measured duration.
        eventually("the flow meter has seen it", || {
            (router.one("flow-cache")["clock_steps"].as_u64() >= Some(jumps)).then_some(())
        });
        eventually("a record comes with the new time", || {
            there_and_back(&busy, &server);
            records.hear(&collector);
            records.ends_hours_off(true_time(&site)).contains(&hours).then_some(())
        });

        // The silent session and all others have aged by the time that really passed.
        let all = sessions(&router);
        let most_s = begun.elapsed().as_secs() + 1;
        for session in &all {
            let number = |key: &str| session[key].as_u64().expect("a number");
            assert!(number("idle_s") <= most_s, "{hours} hours: {session}");
            assert_eq!(number("idle_s") + number("remaining_s"), UDP_SESSION_S, "{hours} hours: {session}");
        }
        let public = |seen: &String| all.iter().any(|session| session["public"] == **seen);
        assert!(public(&seen_of_silent) && public(&seen_of_busy), "{hours} hours: {all:?}");
        // Neighbors stay resolved.
        let neighbors = router.show(&["neighbors"]).expect("the router answers");
        for address in [OFFICE.v4, OUTSIDE.v4, OFFICE.v6, OUTSIDE.v6] {
            let known = neighbors.iter().any(|one| one["address"] == address && one["mac"].is_string());
            assert!(known, "{hours} hours: {address}: {neighbors:?}");
        }
    }
    assert_eq!(there_and_back(&silent, &server), seen_of_silent);
    let longest = records.all.iter().map(|record| record.counters.last_ns - record.counters.first_ns).max();
    assert!(longest.is_some_and(|ns| ns <= 1_000_000_000), "{longest:?} ns, longer than the active timeout");
    assert!(site.log().contains("the wall clock was set forward by"), "{}", site.log());
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}
