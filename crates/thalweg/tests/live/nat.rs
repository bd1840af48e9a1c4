//! NAT between real hosts: the shown sessions, and the error that a host gets when it is refused a session.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use serde_json::Value;

use crate::site::{OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::uninterrupted;
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::testing;

const PORTS_MAX: usize = 20;

fn config() -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"af_packet\"\n\n\
         [ports.wan]\ninterface = \"wan\"\naddresses = [\"198.51.100.1/24\"]\ndriver = \"af_packet\"\n\n\
         [nat]\noutside = \"wan\"\ninside = [\"lan\"]\nrefusal = \"prohibited\"\n\n\
         [nat.subscribers]\nblock_size = 16\nports_max = {PORTS_MAX}\n"
    )
}

fn shown(router: &Router<'_>, arguments: &[&str]) -> Vec<Value> {
    let all = [&["nat"][..], arguments].concat();
    router.show(&all).unwrap_or_else(|| panic!("the router answers {arguments:?}"))
}

fn socket(site: &Site, host: crate::site::Host, at: &str) -> UdpSocket {
    let socket = site.within(&site.namespace(host), || UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

/// Sends a datagram of a session and waits for the answer; returns the source address that the server saw.
fn there_and_back(from: &UdpSocket, server: &UdpSocket) -> String {
    from.send(b"there").expect("sent");
    let mut buffer = [0; 16];
    let (_, seen) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
    server.send_to(b"back", seen).expect("sent");
    let n = uninterrupted(|| from.recv(&mut buffer)).expect("the answer arrives");
    assert_eq!(&buffer[..n], b"back");
    seen.to_string()
}

/// Addresses of the outside network that only NAT has: the router must answer ARP and ND for them.
#[test]
fn a_pool_on_the_outside_network_is_answered_for() {
    let Some(site) = Site::new() else { return };
    let pool = "refusal = \"prohibited\"\naddresses = [\"198.51.100.77\"]";
    let mut router = site.run(&config().replace("refusal = \"prohibited\"", pool), &[]);
    let server = socket(&site, OUTSIDE, "198.51.100.2:7000");
    let client = socket(&site, OFFICE, "10.1.0.2:0");
    client.connect("198.51.100.2:7000").expect("connected");
    let seen = there_and_back(&client, &server);
    assert!(seen.starts_with("198.51.100.77:"), "{seen}");
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// A fragment of a UDP datagram from the office to the server: `length` bytes from `at`.
fn piece(datagram: &[u8], at: usize, length: usize) -> Vec<u8> {
    let more = at + length < datagram.len();
    let field = (at / 8) as u16 | u16::from(more) << 13;
    let header = Ipv4Repr {
        identification: 0x1234,
        flags_and_offset: field,
        ..Ipv4Repr::new([10, 1, 0, 2].into(), [198, 51, 100, 2].into(), 17, length)
    };
    testing::ipv4(header, &datagram[at..at + length])
}

/// RFC 4787, REQ-14a: fragments that arrive before the one with the ports get through. If that one never comes,
/// they are dropped.
#[test]
fn fragments_out_of_order_get_through() {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config(), &[]);
    let server = socket(&site, OUTSIDE, "198.51.100.2:7000");
    let raw = site.within(&site.namespace(OFFICE), || {
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(255.into()))
    });
    let (raw, to) =
        (raw.expect("a raw socket"), "198.51.100.2:0".parse::<std::net::SocketAddr>().expect("one"));
    // Ports 5000 to 7000, no checksum, 64 bytes of data.
    let mut datagram = vec![0x13, 0x88, 0x1b, 0x58, 0, 72, 0, 0];
    datagram.extend(0..64);
    for (at, length) in [(48, 24), (24, 24), (0, 24)] {
        raw.send_to(&piece(&datagram, at, length), &to.into()).expect("sent");
        std::thread::sleep(Duration::from_millis(15));
    }
    let mut buffer = [0; 128];
    let (length, seen) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
    assert_eq!(&buffer[..length], &datagram[8..]);
    assert!(seen.to_string().starts_with("198.51.100.1:"), "{seen}");

    let mut lonely = piece(&datagram, 24, 24);
    lonely[5] += 1;
    raw.send_to(&lonely, &to.into()).expect("sent");
    eventually("the fragment without a first one is dropped", || {
        let counters = router.one("counters");
        (counters["dropped"]["fragment-without-first"] == 1).then_some(())
    });
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

#[test]
fn sessions_are_shown_and_a_host_at_its_limit_is_told() {
    let Some(site) = Site::new() else { return };
    let router = site.run(&config(), &[]);
    let server = socket(&site, OUTSIDE, "198.51.100.2:7000");
    let mut sockets = Vec::new();
    for _ in 0..PORTS_MAX {
        let socket = socket(&site, OFFICE, "10.1.0.2:0");
        socket.connect("198.51.100.2:7000").expect("connected");
        let seen = there_and_back(&socket, &server);
        sockets.push((socket, seen));
    }

    // One session more than the limit is refused with an ICMP error; the existing ones continue.
    let refused = socket(&site, OFFICE, "10.1.0.2:0");
    refused.connect("198.51.100.2:7000").expect("connected");
    refused.send(b"there").expect("sent");
    let told = uninterrupted(|| refused.recv(&mut [0; 16])).expect_err("nothing comes back");
    assert_eq!(told.kind(), ErrorKind::HostUnreachable, "{told}");
    for (socket, seen) in &sockets {
        assert_eq!(there_and_back(socket, &server), *seen);
    }

    let sessions = shown(&router, &["--inside", "10.1.0.2", "--protocol", "udp"]);
    assert_eq!(sessions.len(), PORTS_MAX);
    for session in &sessions {
        assert_eq!((&session["packets_out"], &session["packets_in"]), (&Value::from(2), &Value::from(2)));
        assert_eq!((&session["remote"], &session["state"]), (&"198.51.100.2:7000".into(), &"open".into()));
        let left_s = session["remaining_s"].as_u64().expect("it ends");
        assert!(left_s + session["idle_s"].as_u64().expect("a number") == 300, "{session}");
        let (socket, seen) =
            sockets.iter().find(|(_, seen)| session["public"] == **seen).expect("it is one of ours");
        assert_eq!(session["inside"], socket.local_addr().expect("an address").to_string());
        let alone = shown(&router, &["--outside", seen, "--protocol", "udp"]);
        assert_eq!(alone.len(), 1, "{seen}");
    }
    assert_eq!(shown(&router, &["--limit", "7"]).len(), 7);
    assert!(shown(&router, &["--inside", "10.1.0.3"]).is_empty());

    let blocks = shown(&router, &["--blocks"]);
    let of_udp: u64 = blocks.iter().filter_map(|block| block["udp"].as_u64()).sum();
    assert_eq!((blocks.len(), of_udp), (2, PORTS_MAX as u64), "{blocks:?}");

    let counters = &shown(&router, &["--counters"])[0];
    let counter = |name: &str| counters["counters"][name].as_u64().expect("a counter");
    assert!(counter("port_limit") >= 1 && counter("subscribers_active") == 1, "{counters}");
    let of_all = router.counters_add_up();
    assert_eq!(of_all["queued"], 0, "{of_all}");
    eventually("the refusal is counted", || {
        let counters = router.one("counters");
        counters["dropped"].get("nat-port-limit").map(|_| ())
    });
}
