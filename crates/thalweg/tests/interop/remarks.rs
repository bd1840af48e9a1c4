//! The log's lines about sessions that do not come up, over real sockets; and the NOTIFICATION that a neighbor
//! must receive when a session ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_ports::tcp::{HopLimit, Md5Key, connect};
use thalweg_testdata::Stop;
use thalweg_wire::bgp::{
    Capabilities, MessageKind, Notification, Open, cease, error, frame, write_keepalive,
};

use crate::net::{End, Net, until};
use crate::router::{Family, Router, Spec};
use crate::thalweg::Thalweg;

const LEFT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 179);

/// A router whose only neighbor, if any, is at the other end.
fn start<'a>(net: &'a Net, families: &[Family], change: impl FnOnce(&mut Spec)) -> Thalweg<'a> {
    let mut spec = Spec { families: families.to_vec(), ..Spec::new(End::Left) };
    change(&mut spec);
    Thalweg::start_in(net, spec)
}

fn lines(thalweg: &Thalweg<'_>, has: &str) -> Vec<String> {
    thalweg.log().lines().filter(|line| line.contains(has)).map(str::to_owned).collect()
}

/// The number of events that a log line stands for.
fn count(line: &str) -> u64 {
    let number = line.split("count=").nth(1).and_then(|rest| rest.split(' ').next());
    number.map_or(1, |number| number.trim().parse().expect("a number"))
}

/// The kernel silently drops segments with a wrong signature; only its counters show them.
#[test]
fn a_password_that_differs_is_said() {
    let Some(net) = Net::new() else { return };
    let with_password = |spec: &mut Spec| (spec.password, spec.passive) = (Some("right".to_owned()), true);
    let thalweg = start(&net, &[Family::V4], with_password);
    let key = Md5Key::new(b"wrong").expect("a key");
    let trying = net.within(End::Right, || connect(None, LEFT, HopLimit::Any, Some(&key)));
    let trying = trying.expect("it begins");
    until("the router says that passwords differ", 30, || {
        match lines(&thalweg, "because of their MD5 signature").len() {
            0 => Err(format!("not yet; connected: {:?}", trying.connected())),
            _ => Ok(()),
        }
    });
    let said = lines(&thalweg, "because of their MD5 signature");
    assert!(said.len() == 1 && said[0].contains(&End::Right.v4().to_string()), "{said:#?}");
    assert!(!said[0].contains(": 0 with a wrong one"), "{said:#?}");
}

/// One line immediately, and no second one within a minute, however often the router tries.
#[test]
fn a_connection_that_cannot_be_made_is_said() {
    let Some(net) = Net::new() else { return };
    let thalweg = start(&net, &[Family::V4], |_| {});
    until("the router has tried three times", 60, || {
        let attempts = thalweg.counter(End::Right.v4().into(), "connect_failures")?;
        if attempts >= 3 { Ok(()) } else { Err(format!("{attempts} attempts")) }
    });
    let said = lines(&thalweg, "no connection: ");
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].contains("refused: nobody listens there") && said[0].contains("next attempt in"),
        "{said:#?}"
    );
}

/// At most one line per second, and every connection is in some line's count.
#[test]
fn strangers_do_not_fill_the_log() {
    const CONNECTIONS: u64 = 2000;
    let Some(net) = Net::new() else { return };
    let thalweg = start(&net, &[], |_| {});
    let begun = Instant::now();
    net.within(End::Right, || {
        for _ in 0..CONNECTIONS {
            TcpStream::connect(LEFT).expect("the router listens");
        }
    });
    until("all of them are in the log", 30, || {
        let told: u64 = lines(&thalweg, "refused").iter().map(|line| count(line)).sum();
        if told == CONNECTIONS { Ok(()) } else { Err(format!("{told} of {CONNECTIONS}")) }
    });
    let (said, seconds) = (lines(&thalweg, "refused"), begun.elapsed().as_secs());
    assert!(said.len() as u64 <= seconds + 2, "{} lines in {seconds} s: {said:#?}", said.len());
    assert!(said[0].contains("no neighbor is configured at this address"), "{said:#?}");
}

/// A connection that arrives without a free descriptor is accepted when one is free, although no event announces
/// that. The log does not fill meanwhile.
#[test]
fn connections_that_cannot_be_accepted_are_accepted_later() {
    const CONNECTIONS: usize = 50;
    let Some(net) = Net::new() else { return };
    let thalweg = start(&net, &[], |_| {});
    let begun = Instant::now();
    thalweg.limit_files(true);
    let connect = || TcpStream::connect(LEFT).expect("the kernel listens");
    let streams: Vec<_> = net.within(End::Right, || (0..CONNECTIONS).map(|_| connect()).collect());
    let failed = || lines(&thalweg, "cannot accept connections");
    until("it is said twice", 30, || match failed().len() {
        0 | 1 => Err(thalweg.log()),
        _ => Ok(()),
    });
    thalweg.limit_files(false);
    until("the connections are accepted, and refused as unknown neighbors", 30, || {
        let told: u64 = lines(&thalweg, "no neighbor is configured").iter().map(|line| count(line)).sum();
        if told == CONNECTIONS as u64 { Ok(()) } else { Err(format!("{told} of {CONNECTIONS}")) }
    });
    let (said, seconds) = (failed(), begun.elapsed().as_secs());
    assert!(said.len() as u64 <= seconds + 2, "{} lines in {seconds} s: {said:#?}", said.len());
    drop(streams);
}

/// The session stops while the neighbor is writing. The neighbor must be able to read the NOTIFICATION before a
/// reset arrives.
#[test]
fn a_neighbor_that_still_sends_hears_why() {
    let Some(net) = Net::new() else { return };
    let mut thalweg = start(&net, &[Family::V4], |spec| spec.passive = true);
    let mut stream = net.within(End::Right, || TcpStream::connect(LEFT)).expect("the router listens");
    let families = vec![thalweg_wire::bgp::Family::Ipv4.into()];
    let mut hello = Vec::new();
    let capabilities = Capabilities { families, ..Capabilities::default() };
    Open::new(65_002, 90, End::Right.v4(), capabilities).write(&mut hello);
    write_keepalive(&mut hello);
    stream.write_all(&hello).expect("it is taken");
    until("the session", 20, || thalweg.established(Family::V4));

    let mut keepalives = Vec::new();
    (0..1000).for_each(|_| write_keepalive(&mut keepalives));
    let is_over = AtomicBool::new(false);
    let mut writer = stream.try_clone().expect("a descriptor");
    writer.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            // A write that times out may end within a message; the next one continues there.
            let mut at = 0;
            while !is_over.load(Ordering::Acquire) {
                match writer.write(&keepalives[at..]) {
                    Ok(bytes) => at = (at + bytes) % keepalives.len(),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        let over = Stop(&is_over);
        thalweg.neighbor(End::Right.v4().into(), "shutdown");
        // A neighbor that reads late still finds the NOTIFICATION.
        std::thread::sleep(Duration::from_millis(300));
        let mut heard = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let read = stream.read_to_end(&mut heard);
        drop(over);
        assert!(read.is_ok(), "the end comes without a reset: {read:?}");
        let written = writing.join().expect("it ends");
        assert!(written.is_ok(), "the neighbor's write meets no reset: {written:?}");
        let (mut done, mut last) = (0, None);
        while let Some(message) = frame(&heard[done..], 4096).expect("messages") {
            last = Some((message.kind, message.body.to_vec()));
            done += message.length;
        }
        let (kind, body) = last.expect("a message");
        let expected = Notification::new(error::CEASE, cease::ADMINISTRATIVE_SHUTDOWN);
        assert_eq!(kind, MessageKind::Notification);
        let notification = Notification::parse(&body).expect("a NOTIFICATION");
        assert_eq!((notification.code, notification.subcode), (expected.code, expected.subcode));
    });
    let _ = thalweg.check();
}
