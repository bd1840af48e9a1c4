//! Far more packets than the router can forward: everything that keeps the router in its network continues.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::dead_ways::{BGP, Bird, SLOW, back_to_office, bird, established, neighbor};
use crate::site::{OFFICE, OUTSIDE, Site, eventually, has};
use thalweg_testdata::Stop;

/// More than two hold times.
const LASTS: Duration = Duration::from_secs(20);

const SENDERS: usize = 2;

/// Real-time workers, the default. The egress rate is a small part of what two cores send, because the forwarding
/// rate of a busy machine is unknown.
const PORTS: &str = "[ports.lan]\ninterface = \"lan\"\ndriver = \"af_packet\"\naddresses = [\"10.1.0.1/24\"]\n\n\
     [ports.wan]\ninterface = \"wan\"\ndriver = \"af_packet\"\naddresses = [\"198.51.100.1/24\"]\nmirror = true\n\n\
     [workers]\npriority = \"realtime\"\n\n[[qos.egress]]\nport = \"wan\"\nrate = \"1 Mbit/s\"\n\n";

#[test]
fn a_session_with_a_short_hold_time_stays_up() {
    let Some(site) = Site::alone() else { return };
    if !has("bird") {
        return;
    }
    let peer = Bird { transit: OUTSIDE, asn: 65003, hold_time_s: 9, ..SLOW };
    back_to_office(&site, OUTSIDE);
    let router = site.run_alone(&format!("{PORTS}{BGP}{}", neighbor(&peer)), &[]);
    let _bird = bird(&site, &peer);
    eventually("the session is up", || (established(&router)? == [OUTSIDE.v4]).then_some(()));
    eventually("the router forwards", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    let view = || router.show(&["bgp", "neighbor", OUTSIDE.v4]).and_then(|mut views| views.pop());
    let before = view().expect("it answers");
    assert_eq!(before["negotiated"]["hold_time_s"], 9, "{before}");

    let sockets: Vec<UdpSocket> = (0..SENDERS)
        .map(|_| {
            let socket =
                site.within(&site.namespace(OFFICE), || UdpSocket::bind((OFFICE.v4, 0)).expect("a port"));
            socket.connect((OUTSIDE.v4, 9)).expect("an address");
            socket
        })
        .collect();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        for socket in &sockets {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // The port is closed, so the kernel reports an error for some sends.
                    sent.fetch_add(u64::from(socket.send(&[0; 18]).is_ok()), Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        let begun = Instant::now();
        while begun.elapsed() < LASTS {
            let asked = Instant::now();
            let status = router.show(&["status"]).expect("it answers during the flood").pop();
            slowest = slowest.max(asked.elapsed());
            assert_eq!(status.expect("an answer")["bgp_neighbors"]["up"], 1);
            thread::sleep(Duration::from_millis(500));
        }
    });
    let counters = router.counters_add_up();
    let (sent, forwarded) = (sent.into_inner(), counters["sent"].as_u64().expect("a number"));
    println!("{sent} packets in {LASTS:?}, {forwarded} forwarded; `show status` took {slowest:?} at most");
    assert!(forwarded > 1000 && sent > 4 * forwarded, "{sent} were no flood: {forwarded} were forwarded");
    let after = view().expect("it answers");
    assert_eq!((&after["state"], &after["flaps"]), (&"Established".into(), &before["flaps"]), "{after}");
    let up = |view: &serde_json::Value| view["uptime_s"].as_u64().expect("seconds");
    assert!(up(&after) >= up(&before) + LASTS.as_secs(), "the same session: {before} {after}");
}
