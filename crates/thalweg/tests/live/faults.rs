//! Failures of links, neighbors and processes. The router recovers, and its counters still add up.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use thalweg_wire::MacAddr;

use crate::packets::build;
use crate::site::{Host, OFFICE, OUTSIDE, Router, Site, eventually};
use crate::wire::Wire;
use thalweg_testdata::uninterrupted;

fn config(driver: &str) -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\ndriver = \"{driver}\"\naddresses = [\"10.1.0.1/24\"]\n\n\
         [ports.wan]\ninterface = \"wan\"\ndriver = \"{driver}\"\naddresses = [\"198.51.100.1/24\"]\n"
    )
}

fn started(site: &Site) {
    // The kernel deletes this route when the link goes down.
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, "route add default via 198.51.100.1");
}

fn passes_again(site: &Site) {
    eventually("packets pass again", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
}

fn faults(driver: &str, arguments: &[&str]) {
    let Some(site) = Site::new() else { return };
    started(&site);
    let router: Router<'_> = site.run(&config(driver), arguments);
    let (here, outside, office) = (site.router(), site.namespace(OUTSIDE), site.namespace(OFFICE));

    // The port's interface goes down and comes back.
    site.ip(&here, "link set wan down");
    eventually("nothing passes", || (!site.pings(OFFICE, OUTSIDE.v4)).then_some(()));
    site.ip(&here, "link set wan up");
    passes_again(&site);

    // The neighbor gets another MAC address without announcing it.
    site.ip(&outside, "link set eth0 down");
    site.ip(&outside, "link set eth0 address 02:00:00:00:77:01");
    site.ip(&outside, "link set eth0 up");
    site.ip(&outside, "route replace default via 198.51.100.1");
    passes_again(&site);

    // A smaller MTU: for packets that may not be fragmented, the router sends ICMP errors, and senders adapt.
    site.ip(&here, "link set wan mtu 1280");
    eventually("the sender learns of the smaller MTU", || {
        let arguments = ["-c", "1", "-W", "1", "-M", "do", "-s", "1400", OUTSIDE.v4];
        let said = site.output(&office, "ping", &arguments);
        let said = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&said).contains("mtu = 1280").then_some(())
    });
    site.ip(&here, "link set wan mtu 1500");
    passes_again(&site);

    // The port gets another MAC address; neighbors learn it when they ask.
    site.ip(&here, "link set wan address 02:00:00:00:77:02");
    site.ip(&outside, "neigh flush all");
    passes_again(&site);

    // The veth's link goes down during a transfer, and up again.
    let moved = transfer_over_a_gap(&site, || {
        site.ip(&outside, "link set eth0 down");
        eventually("nothing passes", || (!site.pings(OFFICE, OUTSIDE.v4)).then_some(()));
        site.ip(&outside, "link set eth0 up");
        site.ip(&outside, "route replace default via 198.51.100.1");
    });
    assert_eq!(moved, TRANSFER_BYTES);

    // The interface disappears and returns under its name, twice.
    for round in 0..2 {
        site.ip(&here, "link del wan");
        eventually("nothing passes", || (!site.pings(OFFICE, OUTSIDE.v4)).then_some(()));
        eventually("it says that the interface is gone", || {
            let problems = router.one("status")["problems"].to_string();
            problems.contains("port wan is down: interface wan does not exist").then_some(())
        });
        site.veth(OUTSIDE);
        site.ip(&outside, "route replace default via 198.51.100.1");
        eventually(&format!("packets pass again, round {round}"), || {
            site.pings(OFFICE, OUTSIDE.v4).then_some(())
        });
    }

    // Suspended for longer than the router keeps asking for neighbors, with packets in flight.
    let office_ping = ["-c", "20", "-i", "0.2", "-W", "5", OUTSIDE.v4];
    let pinging = site.start(&office, "ping", &office_ping);
    router.process.signal("STOP");
    std::thread::sleep(Duration::from_secs(4));
    router.process.signal("CONT");
    passes_again(&site);
    drop(pinging);

    let counters = router.counters_add_up();
    assert_eq!(counters["queued"], 0, "{counters}");
}

const TRANSFER_BYTES: usize = 40 << 20;

/// Transfers bytes from the office to the outside by TCP and runs `gap` in the middle; returns the bytes that
/// arrived.
fn transfer_over_a_gap(site: &Site, gap: impl FnOnce()) -> usize {
    let listener =
        site.within(&site.namespace(OUTSIDE), || TcpListener::bind((OUTSIDE.v4, 9000)).expect("a port"));
    let mut client = site.within(&site.namespace(OFFICE), || {
        TcpStream::connect((OUTSIDE.v4, 9000)).expect("a listener exists")
    });
    let (server, _) = listener.accept().expect("a client connects");
    client.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    server.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    std::thread::scope(|scope| {
        // The reader reports how much arrived.
        scope.spawn(move || client.write_all(&vec![0x5a; TRANSFER_BYTES]));
        let (mut server, mut buffer) = (server, vec![0; 64 << 10]);
        let mut moved = uninterrupted(|| server.read(&mut buffer)).expect("it begins");
        gap();
        while let Ok(bytes @ 1..) = uninterrupted(|| server.read(&mut buffer)) {
            moved += bytes;
        }
        moved
    })
}

/// The longest time for a connection to notice that its path is back: TCP retries less and less often.
const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn faults_by_af_packet() {
    faults("af_packet", &[]);
}

#[test]
fn by_sockets_of_af_packet_with_a_worker_each() {
    faults("af_packet", &["--workers", "2"]);
}

#[test]
fn faults_by_af_xdp() {
    faults("af_xdp", &[]);
}

/// Datagrams from office to outside, one each millisecond.
struct Stream {
    receiver: UdpSocket,
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Stream {
    fn start(site: &Site) -> Self {
        let bind = |host: Host, port: u16| {
            let bound = || UdpSocket::bind((host.v4, port)).expect("the port is free");
            site.within(&site.namespace(host), bound)
        };
        let (sender, receiver) = (bind(OFFICE, 0), bind(OUTSIDE, 9000));
        receiver.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a time");
        let (sent, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (number, ends) = (sent.clone(), stop.clone());
        thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let number = number.fetch_add(1, Ordering::Relaxed);
                // One that cannot be sent is lost, too.
                let _ = sender.send_to(&number.to_be_bytes(), (OUTSIDE.v4, 9000));
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { receiver, sent, stop }
    }

    /// Receives until one arrives that is sent from now on; returns the numbers of all.
    fn until_now(&self) -> Vec<u64> {
        let (now, mut arrived) = (self.sent.load(Ordering::Relaxed), Vec::new());
        while arrived.last() < Some(&now) {
            let mut buffer = [0; 8];
            let length = uninterrupted(|| self.receiver.recv(&mut buffer)).expect("datagrams arrive");
            assert_eq!(length, buffer.len());
            arrived.push(u64::from_be_bytes(buffer));
        }
        arrived
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A killed router leaves nothing behind that disturbs the next one. What a stream loses meanwhile is printed.
#[test]
fn killed_and_started_again() {
    let Some(site) = Site::new() else { return };
    for driver in ["af_xdp", "af_packet", "af_xdp"] {
        started(&site);
        let mut router = site.run(&config(driver), &[]);
        let stream = Stream::start(&site);
        let mut arrived = stream.until_now();
        router.process.kill();
        drop(router);
        let mut router = site.run_alone(&config(driver), &[]);
        arrived.extend(stream.until_now());
        let steps = arrived.windows(2).map(|two| two[1].checked_sub(two[0]).expect("they arrive in order"));
        let longest = steps.max().expect("some arrived");
        println!("{driver}: of a datagram each millisecond, killing and starting cost {}", longest - 1);
        assert!(longest > 1, "nobody forwards between two routers");
        drop(stream);
        router.counters_add_up();
        router.process.kill();
        drop(router);
        site.ip(&site.namespace(OUTSIDE), "route del default");
        eventually("nothing passes", || (!site.pings(OFFICE, OUTSIDE.v4)).then_some(()));
    }
}

/// Sends more than any ring holds while the router is suspended. The driver counts the packets that did not fit
/// as missed, the counters are right for the rest, and later packets pass as before.
fn overflow(driver: &str) {
    const FRAMES: u64 = 20_000;
    let Some(site) = Site::new() else { return };
    started(&site);
    let router = site.run(&config(driver), &[]);
    let ports = |field: &str| -> u64 {
        let ports = router.show(&["ports"]).expect("the router answers");
        let lan = ports.iter().find(|port| port["name"] == "lan").expect("the port is there");
        lan[field].as_u64().expect("a number")
    };
    let near = site.mac_of(&site.router(), "lan");
    let packet = build::line("0 eth ip 10.1.0.9 > 198.51.100.2 udp 4000 > 9 data 100").frame;
    let frame = [&near.0[..], &[2, 0, 0, 0, 0, 9], &packet[12..]].concat();
    let mut wire = Wire::beside(&site, &site.namespace(OFFICE), "eth0", MacAddr([2, 0, 0, 0, 0, 9]));
    let before = (ports("received"), ports("missed"));
    router.process.signal("STOP");
    let sent = wire.send((0..FRAMES).map(|_| &frame[..])) as u64;
    router.process.signal("CONT");
    let counters = router.counters_add_up();
    let (came, missed) = (ports("received") - before.0, ports("missed") - before.1);
    assert!(came >= 64, "the frames in the ring arrive: {came}");
    assert!(came < sent, "the ring is smaller than what was sent: {came} of {sent}");
    assert!(missed > 0, "{sent} were sent, {came} came, none was missed: {counters}");
    passes_again(&site);
    router.counters_add_up();
}

#[test]
fn a_ring_overflows_by_af_packet() {
    overflow("af_packet");
}

#[test]
fn memory_for_frames_runs_out_by_af_xdp() {
    overflow("af_xdp");
}

/// While the router is suspended, as many frames arrive as rings hold for 50 ms at 60,000 per second: none is
/// lost.
fn nothing_overflows(driver: &str) {
    const FRAMES: usize = 3000;
    /// A veth's own queue has 256 entries.
    const AT_ONCE: usize = 64;
    let Some(site) = Site::new() else { return };
    started(&site);
    let router = site.run(&config(driver), &[]);
    let near = site.mac_of(&site.router(), "lan");
    let packet = build::line("0 eth ip 10.1.0.9 > 198.51.100.2 udp 4000 > 9 data 100").frame;
    let frame = [&near.0[..], &[2, 0, 0, 0, 0, 9], &packet[12..]].concat();
    let mut wire = Wire::beside(&site, &site.namespace(OFFICE), "eth0", MacAddr([2, 0, 0, 0, 0, 9]));
    let numbers = || {
        let ports = router.show(&["ports"]).expect("the router answers");
        let lan = ports.iter().find(|port| port["name"] == "lan").expect("the port is there");
        ["received", "missed"].map(|field| lan[field].as_u64().expect("a number"))
    };
    let lost_in_veth = || -> u64 {
        let office = site.namespace(OFFICE);
        let said = site.said(&office, "cat", &["/sys/class/net/eth0/statistics/tx_dropped"]);
        said.trim().parse().expect("a number")
    };
    let (before, lost_before) = (numbers(), lost_in_veth());
    router.process.signal("STOP");
    let mut sent = 0;
    for _ in 0..FRAMES.div_ceil(AT_ONCE) {
        sent += wire.send((0..AT_ONCE).map(|_| &frame[..]));
        std::thread::sleep(Duration::from_millis(1));
    }
    router.process.signal("CONT");
    router.counters_add_up();
    let (after, lost) = (numbers(), lost_in_veth() - lost_before);
    assert!(sent >= FRAMES, "{sent}");
    assert_eq!(after[1] - before[1], 0, "frames were missed");
    assert!(
        after[0] - before[0] + lost >= sent as u64,
        "{sent} sent, {before:?}, {after:?}, {lost} in the veth"
    );
}

#[test]
fn rings_hold_what_comes_for_a_while_by_af_packet() {
    nothing_overflows("af_packet");
}

#[test]
fn rings_hold_what_comes_for_a_while_by_af_xdp() {
    nothing_overflows("af_xdp");
}
