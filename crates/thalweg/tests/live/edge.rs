//! What an edge router does for its customers, with real hosts: segment sizes, public addresses of one host, exceptions.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use socket2::SockRef;

use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::uninterrupted;

/// The largest segments that two hosts send each other: what the other announced, less the options in each segment.
fn segments(site: &Site, server: &str) -> [u32; 2] {
    let listener =
        site.within(&site.namespace(OUTSIDE), || TcpListener::bind(server)).expect("the server listens");
    let mut client =
        site.within(&site.namespace(OFFICE), || TcpStream::connect(server)).expect("the client connects");
    let (mut served, _) = listener.accept().expect("a connection");
    // It works: a large answer in many segments.
    client.write_all(b"question").expect("sent");
    served.read_exact(&mut [0; 8]).expect("the question");
    let answer: Vec<u8> = (0..200_000u32).map(|byte| byte as u8).collect();
    let expected = answer.clone();
    let sending = std::thread::spawn(move || served.write_all(&answer).map(|()| served));
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).expect("the answer");
    assert!(got == expected, "the answer is whole");
    let served = sending.join().expect("no panic").expect("sent");
    [&client, &served].map(|end| SockRef::from(end).tcp_mss().expect("a size"))
}

#[test]
fn hosts_learn_a_segment_size_that_fits() {
    const TIMESTAMPS: u32 = 12;
    for driver in ["driver = \"af_packet\"", "driver = \"af_xdp\"", "driver = \"af_xdp\"\noffload = true"] {
        let Some(site) = Site::new() else { return };
        let port = |host: Host, more: &str| {
            format!(
                "[ports.{0}]\ninterface = \"{0}\"\n{driver}\n{more}addresses = [\"{1}/24\", \"{2}/64\"]\n\n",
                host.port, host.gateway_v4, host.gateway_v6
            )
        };
        let config = |wan: &str| {
            port(OFFICE, "") + &port(OUTSIDE, wan) + "[nat]\noutside = \"wan\"\ninside = \"lan\"\n"
        };
        let mut router = site.run(&config("mss = 1000\n"), &[]);
        eventually("IPv6", || site.pings(OFFICE, OUTSIDE.v6).then_some(()));
        let ipv4 = format!("{}:7000", OUTSIDE.v4);
        let ipv6 = format!("[{}]:7000", OUTSIDE.v6);
        assert_eq!(segments(&site, &ipv4), [1000 - TIMESTAMPS; 2], "{driver}");
        assert_eq!(segments(&site, &ipv6), [980 - TIMESTAMPS; 2], "{driver}");
        let lowered = |name: &str| {
            let ports = router.show(&["ports"]).expect("the router answers");
            let port = ports.iter().find(|port| port["name"] == name).expect("the port");
            port["mss_lowered"].as_u64().expect("a number")
        };
        // Two connections, both ways; a SYN may have been repeated.
        let before = eventually("SYNs are counted", || Some(lowered("wan")).filter(|count| *count >= 4));
        assert_eq!(lowered("lan"), 0);
        // What the MTU has room for. The counters go on.
        router.reload(&config("mtu = 1400\nmss = \"mtu\"\n")).expect("the router takes it");
        assert_eq!(segments(&site, &ipv4.replace("7000", "7001")), [1360 - TIMESTAMPS; 2], "{driver}");
        eventually("the counter goes on", || (lowered("wan") >= before + 2).then_some(()));
        router.counters_add_up();
        assert!(router.process.end(), "the router stops with success");
    }
}

/// The office has a public address of its own, and so has a host that is not there. An exception leads to a private
/// address outside.
const ADDRESSES: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24"]

[ports.guest]
interface = "guest"
addresses = ["10.2.0.1/24"]

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24"]

[[routes]]
prefix = "10.9.0.0/24"
via = "198.51.100.2"

[[routes]]
prefix = "0.0.0.0/0"
via = "198.51.100.2"

[nat]
outside = "wan"
inside = ["lan", "guest"]

[[nat.one_to_one]]
inside = "10.1.0.2"
public = "198.51.100.10"

[[nat.one_to_one]]
inside = "10.1.0.77"
public = "198.51.100.77"

[[nat.exceptions]]
source = "10.0.0.0/8"
destination = "10.9.0.0/24"
"#;

const FIREWALL: &str = r#"
[firewall]
outside = "wan"

[firewall.zones]
wan = "wan"
inside = ["lan", "guest"]

[[firewall.rules]]
name = "ssh"
action = "permit"
from = "wan"
to = "inside"
destination = "10.1.0.2/32"
protocol = "udp"
destination_ports = 22
"#;

fn udp(site: &Site, host: Host, at: &str) -> UdpSocket {
    let socket = site.within(&site.namespace(host), || UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    socket
}

/// Who sent the datagram that comes next.
fn sender(socket: &UdpSocket) -> SocketAddr {
    uninterrupted(|| socket.recv_from(&mut [0; 16])).expect("a datagram").1
}

fn counter(router: &Router<'_>, name: &str) -> u64 {
    let counters = router.show(&["nat", "--counters"]).expect("the router answers");
    counters[0]["counters"][name].as_u64().expect("a counter")
}

#[test]
fn a_host_has_a_public_address_of_its_own() {
    let Some(site) = Site::new() else { return };
    site.ip(&site.namespace(OUTSIDE), "addr add 10.9.0.2/32 dev lo");
    site.ip(&site.namespace(OUTSIDE), "route add 10.1.0.0/24 via 198.51.100.1");
    let mut router = site.run(ADDRESSES, &[]);
    // Anybody reaches it, by a pair that the router answers ARP for; it is never seen with another address.
    assert!(site.pings(OUTSIDE, "198.51.100.10"));
    let (server, client) = (udp(&site, OFFICE, "10.1.0.2:22"), udp(&site, OUTSIDE, "198.51.100.2:0"));
    client.send_to(b"question", "198.51.100.10:22").expect("sent");
    server.send_to(b"answer", sender(&server)).expect("sent");
    assert_eq!(sender(&client), "198.51.100.10:22".parse().expect("an address"));
    server.send_to(b"question", client.local_addr().expect("an address")).expect("sent");
    assert_eq!(sender(&client), "198.51.100.10:22".parse().expect("an address"));
    // Nobody listens, or nobody is there: the host or the router says so, with the packet as the client knows it.
    let refused = udp(&site, OUTSIDE, "198.51.100.2:0");
    refused.connect("198.51.100.10:23").expect("connected");
    refused.send(b"question").expect("sent");
    let told = uninterrupted(|| refused.recv(&mut [0; 16])).expect_err("nobody listens");
    assert_eq!(told.kind(), ErrorKind::ConnectionRefused, "{told}");
    let output = site.output(&site.namespace(OUTSIDE), "ping", &["-c", "1", "-W", "8", "198.51.100.77"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("From 198.51.100.77") && text.contains("Destination Host Unreachable"), "{text}");
    // A guest, who shares the router's address, reaches it by the public one.
    let guest = udp(&site, GUEST, "10.2.0.2:0");
    guest.send_to(b"question", "198.51.100.10:22").expect("sent");
    let seen = sender(&server);
    assert_eq!(seen.ip().to_string(), "198.51.100.1");
    server.send_to(b"answer", seen).expect("sent");
    assert_eq!(sender(&guest), "198.51.100.10:22".parse().expect("an address"));
    assert!(site.pings(GUEST, "198.51.100.10"));
    // A large datagram, in fragments, and TCP.
    let large = vec![7; 4000];
    client.send_to(&large, "198.51.100.10:22").expect("sent");
    let mut buffer = vec![0; 8000];
    let (length, _) = uninterrupted(|| server.recv_from(&mut buffer)).expect("a datagram");
    assert_eq!(buffer[..length], large);
    assert_eq!(segments(&site, "198.51.100.2:7000"), [1448; 2]);
    // The exception.
    let branch = udp(&site, OUTSIDE, "10.9.0.2:7");
    server.send_to(b"question", "10.9.0.2:7").expect("sent");
    assert_eq!(sender(&branch), "10.1.0.2:22".parse().expect("an address"));
    branch.send_to(b"answer", "10.1.0.2:22").expect("sent");
    assert_eq!(sender(&server), "10.9.0.2:7".parse().expect("an address"));
    let sessions = router.show(&["nat", "--inside", "10.1.0.2"]).expect("the router answers");
    assert!(sessions.is_empty(), "{sessions:?}");
    assert!(counter(&router, "one_to_one_in") >= 6 && counter(&router, "one_to_one_out") >= 5);

    // With a firewall, only what it permits comes in, and a reload takes the address away.
    router.reload(&format!("{ADDRESSES}{FIREWALL}")).expect("the router takes it");
    assert!(!site.pings(OUTSIDE, "198.51.100.10") && site.pings(OFFICE, OUTSIDE.v4));
    client.send_to(b"question", "198.51.100.10:22").expect("sent");
    server.send_to(b"answer", sender(&server)).expect("sent");
    assert_eq!(sender(&client), "198.51.100.10:22".parse().expect("an address"));
    let at = ADDRESSES.find("[[nat.one_to_one]]").expect("a section");
    let end = ADDRESSES.find("[[nat.exceptions]]").expect("a section");
    router.reload(&format!("{}{}", &ADDRESSES[..at], &ADDRESSES[end..])).expect("the router takes it");
    server.send_to(b"question", client.local_addr().expect("an address")).expect("sent");
    assert_eq!(sender(&client).ip().to_string(), "198.51.100.1");
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}
