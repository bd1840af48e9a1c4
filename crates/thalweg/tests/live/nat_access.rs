//! NAT beside the router's own programs, for misbehaving hosts, and for protocols without ports.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};

use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::uninterrupted;
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::testing;

const CONFIG: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24"]
mirror = true

[ports.guest]
interface = "guest"
addresses = ["10.2.0.1/24"]
acl_in = "guests"
mirror = true

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24"]
mirror = true

[[acl]]
name = "guests"
default = "permit"

[[acl.rules]]
name = "not-the-office"
action = "deny"
destination = ["10.1.0.0/24"]

[nat]
outside = "wan"
inside = ["lan", "guest"]
host_sessions_max = 640
host_sessions_per_second = 100000

[[nat.forwards]]
protocol = "tcp"
port = 8080
to = "10.1.0.2:80"
"#;

const TIMEOUT: Duration = Duration::from_secs(20);

fn counter(router: &Router<'_>, name: &str) -> u64 {
    let counters = router.show(&["nat", "--counters"]).expect("the router answers");
    counters[0]["counters"][name].as_u64().expect("a counter")
}

fn udp(site: &Site, namespace: &str, at: &str) -> UdpSocket {
    let socket = site.within(namespace, || UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    socket
}

fn hears(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 64];
    let (length, from) = uninterrupted(|| socket.recv_from(&mut buffer)).expect("a datagram");
    (buffer[..length].to_vec(), from)
}

/// Waits until the mirrors have their addresses, so that programs can use them.
fn mirrors_are_up(site: &Site) {
    for host in [OFFICE, OUTSIDE] {
        eventually("the system reaches its neighbors", || {
            site.output(&site.router(), "ping", &["-c", "1", "-W", "1", host.v4])
                .status
                .success()
                .then_some(())
        });
    }
}

/// A guest that sends from the port number of one of the router's services does not receive the service's
/// packets, and a program of the router receives its replies on a port number that a guest uses.
#[test]
fn programs_of_the_router_keep_their_ports() {
    let Some(site) = Site::new() else { return };
    let router = site.run(CONFIG, &[]);
    mirrors_are_up(&site);
    let server = udp(&site, &site.namespace(OUTSIDE), "198.51.100.2:7000");
    let guest = udp(&site, &site.namespace(OFFICE), "10.1.0.2:51820");
    guest.send_to(b"first", "198.51.100.2:7000").expect("sent");
    assert_eq!(
        hears(&server).1,
        "198.51.100.1:51820".parse().expect("an address"),
        "nobody has the port yet"
    );

    let service = udp(&site, &site.router(), "0.0.0.0:51820");
    eventually("the port is the router's", || (counter(&router, "router_displaced") == 1).then_some(()));
    guest.send_to(b"again", "198.51.100.2:7000").expect("sent");
    assert_ne!(hears(&server).1.port(), 51_820, "the guest has another address");
    server.send_to(b"for the service", "198.51.100.1:51820").expect("sent");
    assert_eq!(hears(&service).0, b"for the service");
    service.send_to(b"answer", "198.51.100.2:7000").expect("sent");
    assert_eq!(hears(&server), (b"answer".to_vec(), "198.51.100.1:51820".parse().expect("an address")));

    // The opposite: a guest uses the port number from which a program of the router sends.
    let other = udp(&site, &site.namespace(OUTSIDE), "198.51.100.2:7001");
    let guest = udp(&site, &site.namespace(OFFICE), "10.1.0.2:40000");
    guest.send_to(b"guest", "198.51.100.2:7000").expect("sent");
    let seen = hears(&server).1;
    assert_eq!(seen.port(), 40_000);
    let asking = udp(&site, &site.router(), "198.51.100.1:40000");
    asking.connect("198.51.100.2:7001").expect("connected");
    asking.send(b"question").expect("sent");
    assert_eq!(hears(&other).0, b"question");
    other.send_to(b"reply", "198.51.100.1:40000").expect("sent");
    assert_eq!(hears(&asking).0, b"reply");
    server.send_to(b"for the guest", seen).expect("sent");
    assert_eq!(hears(&guest).0, b"for the guest", "its session stays up");
    router.counters_add_up();
}

/// Runs a server in a namespace that answers each connection with the client's address.
fn serve(site: &Site, namespace: &str, at: &str) {
    let listener = site.within(namespace, || TcpListener::bind(at)).expect("a listener");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let peer = stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
            let _ = stream.write_all(peer.as_bytes());
        }
    });
}

/// The source address that a server sees when a host connects; `None` if it cannot connect.
fn asks(site: &Site, from: Host, to: &str, timeout: Duration) -> Option<String> {
    let to: SocketAddr = to.parse().expect("an address");
    let mut stream = site.within(&site.namespace(from), || TcpStream::connect_timeout(&to, timeout)).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let mut seen = String::new();
    stream.read_to_string(&mut seen).ok()?;
    Some(seen)
}

/// Inside hosts reach the router's programs by its public address, and reach servers through port forwards only
/// if access lists permit it.
#[test]
fn the_public_address_from_inside() {
    let Some(site) = Site::new() else { return };
    let router = site.run(CONFIG, &[]);
    mirrors_are_up(&site);
    serve(&site, &site.router(), "198.51.100.1:2222");
    serve(&site, &site.namespace(OFFICE), "10.1.0.2:80");
    for (host, address) in [(OFFICE, "10.1.0.2:"), (GUEST, "10.2.0.2:")] {
        let seen = eventually("the router's service answers", || {
            asks(&site, host, "198.51.100.1:2222", Duration::from_secs(2))
        });
        assert!(seen.starts_with(address), "the router sees who asks: {seen}");
    }
    let seen = asks(&site, OFFICE, "198.51.100.1:8080", TIMEOUT).expect("the office has its own server");
    assert!(seen.starts_with("198.51.100.1:"), "RFC 4787 REQ-9: {seen}");
    let seen = asks(&site, OUTSIDE, "198.51.100.1:8080", TIMEOUT).expect("the forward works");
    assert!(seen.starts_with("198.51.100.2:"), "{seen}");
    // The same from a guest: its access list denies packets to the office.
    assert_eq!(asks(&site, GUEST, "198.51.100.1:8080", Duration::from_millis(1500)), None);
    let dropped = router.one("counters")["dropped"].clone();
    assert!(dropped["acl-denied"].as_u64() > Some(0), "{dropped}");
    router.counters_add_up();
}

/// An IPv4 packet; the kernel fills in the header's checksum and length.
fn raw(protocol: u8, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        identification: 1,
        ..Ipv4Repr::new(source.into(), destination.into(), protocol, payload.len())
    };
    testing::ipv4(header, payload)
}

fn syn(port: u16) -> Vec<u8> {
    let mut segment = vec![0; 20];
    segment[0..2].copy_from_slice(&port.to_be_bytes());
    segment[2..4].copy_from_slice(&80u16.to_be_bytes());
    (segment[12], segment[13]) = (0x50, 2);
    segment
}

/// A host floods SYNs from its own address and from forged ones. Other hosts keep their sessions, and the flood's
/// sessions can then be cleared.
#[test]
fn a_flood_leaves_others_their_nat_and_can_be_cleared() {
    let Some(site) = Site::new() else { return };
    let router = site.run(CONFIG, &[]);
    mirrors_are_up(&site);
    let flood = site
        .within(&site.namespace(OFFICE), || Socket::new(Domain::IPV4, Type::RAW, Some(255.into())))
        .expect("a raw socket");
    let to: SocketAddr = "198.51.100.77:0".parse().expect("an address");
    // To an unused address, so that nothing answers, not even with a RST.
    for port in 1024..=40_000u16 {
        let own = raw(6, [10, 1, 0, 2], [198, 51, 100, 77], &syn(port));
        let forged = raw(6, [10, 9, (port >> 8) as u8, port as u8], [198, 51, 100, 77], &syn(port));
        // A full socket buffer does not matter here.
        let _ = flood.send_to(&own, &to.into());
        let _ = flood.send_to(&forged, &to.into());
    }
    eventually("the flood meets its limit", || (counter(&router, "host_limit") > 0).then_some(()));
    assert!(counter(&router, "spoofed") > 0, "forged sources get no session");
    let sessions = counter(&router, "sessions_active");
    assert!((640..=1700).contains(&sessions), "about the limit of one host: {sessions}");

    let server = udp(&site, &site.namespace(OUTSIDE), "198.51.100.2:7000");
    let guests: Vec<UdpSocket> = (0..20).map(|_| udp(&site, &site.namespace(GUEST), "10.2.0.2:0")).collect();
    for guest in &guests {
        guest.send_to(b"there", "198.51.100.2:7000").expect("sent");
        let (_, seen) = hears(&server);
        server.send_to(b"back", seen).expect("sent");
        assert_eq!(hears(guest).0, b"back");
    }

    let clear = |arguments: &str| -> Value {
        let arguments = format!("clear nat {arguments} --socket {} --format json", router.socket());
        let words: Vec<&str> = arguments.split(' ').collect();
        let said = site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &words);
        serde_json::from_str::<Value>(&said).expect("JSON")["ended"].clone()
    };
    let one = guests[0].local_addr().expect("an address").port();
    let one = format!("--protocol udp --inside 10.2.0.2:{one} --remote 198.51.100.2:7000");
    assert_eq!((clear(&one), clear(&one)), (1.into(), 0.into()));
    assert!(clear("--inside 10.1.0.2").as_u64() >= Some(640));
    assert_eq!(clear("--all"), 19, "the guests' others");
    assert!(router.show(&["nat", "--protocol", "udp"]).expect("an answer").is_empty());
    router.counters_add_up();
}

/// A server resets an open connection through the system's own TCP. The RST is in the window, so the session
/// moves to its short timeout.
#[test]
fn a_connection_that_its_server_resets_is_over() {
    let Some(site) = Site::new() else { return };
    let router = site.run(CONFIG, &[]);
    let at = "198.51.100.2:7001";
    let listener = site.within(&site.namespace(OUTSIDE), || TcpListener::bind(at)).expect("a listener");
    let mut client = site.within(&site.namespace(OFFICE), || TcpStream::connect(at)).expect("a connection");
    let (mut server, _) = listener.accept().expect("it is taken");
    let state = || -> Option<String> {
        let sessions = router.show(&["nat", "--protocol", "tcp"])?;
        let own = sessions.iter().find(|session| session["state"] != "forward");
        Some(own?["state"].as_str()?.to_owned())
    };
    let mut buffer = [0; 8];
    server.write_all(b"request?").expect("sent");
    client.read_exact(&mut buffer).expect("data arrives");
    // With this segment the client acknowledges what it has read.
    client.write_all(b"request!").expect("sent");
    server.read_exact(&mut buffer).expect("data arrives");
    assert_eq!(state().as_deref(), Some("established"));
    SockRef::from(&server).set_linger(Some(Duration::ZERO)).expect("a socket option");
    drop(server);
    assert!(uninterrupted(|| client.read(&mut buffer)).is_err(), "the client has the RST");
    eventually("the session is aborted", || (state()? == "aborted").then_some(()));
}

/// GRE passes, translated by address; a second host to the same peer is refused with a drop reason.
#[test]
fn a_protocol_without_ports_passes() {
    let Some(site) = Site::new() else { return };
    let router = site.run(CONFIG, &[]);
    mirrors_are_up(&site);
    let gre = |namespace: &str| {
        let socket = site.within(namespace, || Socket::new(Domain::IPV4, Type::RAW, Some(47.into())));
        let socket = socket.expect("a raw socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket
    };
    let (mut server, mut office) = (gre(&site.namespace(OUTSIDE)), gre(&site.namespace(OFFICE)));
    let guest = gre(&site.namespace(GUEST));
    let to =
        |address: &str| socket2::SockAddr::from(format!("{address}:0").parse::<SocketAddr>().expect("one"));
    office.send_to(&[0, 0, 8, 0, 1], &to("198.51.100.2")).expect("sent");
    let mut buffer = [0; 64];
    let length = uninterrupted(|| server.read(&mut buffer)).expect("data arrives");
    assert_eq!((&buffer[12..16], &buffer[20..length]), (&[198, 51, 100, 1][..], &[0, 0, 8, 0, 1][..]));
    server.send_to(&[0, 0, 8, 0, 2], &to("198.51.100.1")).expect("sent");
    let length = uninterrupted(|| office.read(&mut buffer)).expect("the answer arrives");
    assert_eq!((&buffer[16..20], &buffer[20..length]), (&[10, 1, 0, 2][..], &[0, 0, 8, 0, 2][..]));
    guest.send_to(&[0, 0, 8, 0, 3], &to("198.51.100.2")).expect("sent");
    eventually("the second host is refused", || (counter(&router, "peer_taken") > 0).then_some(()));
    let shown = router.show(&["nat", "--protocol", "gre"]).expect("the router answers");
    assert_eq!((shown.len(), &shown[0]["inside"]), (1, &Value::from("10.1.0.2:0")));
    eventually("it is counted", || router.one("counters")["dropped"].get("nat-peer-taken").map(|_| ()));
    router.counters_add_up();
}
