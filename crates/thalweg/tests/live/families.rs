//! IPv6 hosts that reach IPv4 hosts (NAT64), and prefixes that stand for each other (NPTv6), with the kernel's hosts.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use crate::clients::dig;
use crate::site::{Host, OFFICE, OUTSIDE, Site, eventually, has};
use thalweg_testdata::uninterrupted;

/// The outside host for IPv6 hosts.
const MAPPED: &str = "2001:db8:64::c633:6402";

fn config(driver: &str, wan: &str) -> String {
    format!(
        r#"
[ports.lan]
interface = "lan"
driver = "{driver}"
addresses = ["2001:db8:1::1/64"]

[ports.wan]
interface = "wan"
driver = "{driver}"
{wan}
addresses = ["198.51.100.1/24"]

[nat]
outside = "wan"
inside = "lan"
nat64 = "2001:db8:64::/96"
"#
    )
}

fn udp(site: &Site, host: Host, at: &str) -> UdpSocket {
    let socket = site.within(&site.namespace(host), || UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    socket
}

/// A datagram's sender and length.
fn received(socket: &UdpSocket) -> (SocketAddr, usize) {
    let mut buffer = vec![0; 8000];
    let (length, from) = uninterrupted(|| socket.recv_from(&mut buffer)).expect("a datagram");
    assert!(buffer[..length].iter().enumerate().all(|(at, byte)| *byte == at as u8), "it is whole");
    (from, length)
}

fn datagram(length: usize) -> Vec<u8> {
    (0..length).map(|at| at as u8).collect()
}

/// Both directions of a connection, in many segments.
fn exchange(site: &Site, port: u16) {
    let server = format!("{}:{port}", OUTSIDE.v4);
    let listener =
        site.within(&site.namespace(OUTSIDE), || TcpListener::bind(&server)).expect("the server listens");
    let mapped = format!("[{MAPPED}]:{port}");
    let client =
        site.within(&site.namespace(OFFICE), || TcpStream::connect(&mapped)).expect("the client connects");
    let (served, peer) = listener.accept().expect("a connection");
    assert_eq!(peer.ip().to_string(), "198.51.100.1");
    let bytes = datagram(300_000);
    for (mut from, mut to) in [(&client, &served), (&served, &client)] {
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&bytes).expect("sent"));
            let mut got = vec![0; bytes.len()];
            to.read_exact(&mut got).expect("received");
            assert!(got == bytes, "it is whole");
        });
    }
}

#[test]
fn an_ipv6_host_reaches_ipv4_hosts() {
    for driver in ["af_packet", "af_xdp"] {
        let Some(site) = Site::new() else { return };
        let mut router = site.run_alone(&config(driver, ""), &[]);
        eventually("NAT64", || site.pings(OFFICE, MAPPED).then_some(()));
        exchange(&site, 7000);
        let (server, client) = (udp(&site, OUTSIDE, "198.51.100.2:53"), udp(&site, OFFICE, "[::]:0"));
        let to: SocketAddr = format!("[{MAPPED}]:53").parse().expect("an address");
        // Whole datagrams, and fragments, of which those of IPv4 are too long for IPv6.
        for length in [0, 1, 1400, 4000] {
            client.send_to(&datagram(length), to).expect("sent");
            let (seen, got) = received(&server);
            assert_eq!((seen.ip().to_string(), got), ("198.51.100.1".to_owned(), length), "{driver}");
            server.send_to(&datagram(length), seen).expect("sent");
            assert_eq!(received(&client), (to, length), "{driver}");
        }
        // One that fits IPv4 alone, and may not be cut: the server learns the MTU of the path.
        client.send_to(&datagram(1), to).expect("sent");
        let (seen, _) = received(&server);
        client.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a timeout");
        eventually("the MTU is known", || {
            server.send_to(&datagram(1472), seen).expect("sent");
            uninterrupted(|| client.recv(&mut [0; 1500])).ok().filter(|length| *length == 1472)
        });
        let refused = udp(&site, OFFICE, "[::]:0");
        refused.connect(format!("[{MAPPED}]:9")).expect("connected");
        refused.send(b"question").expect("sent");
        let told = uninterrupted(|| refused.recv(&mut [0; 16])).expect_err("nobody listens");
        assert_eq!(told.kind(), ErrorKind::ConnectionRefused, "{driver}: {told}");
        let near = site.output(&site.namespace(OFFICE), "ping", &["-c", "1", "-W", "8", "-t", "1", MAPPED]);
        let text = String::from_utf8_lossy(&near.stdout).into_owned();
        assert!(text.contains("2001:db8:1::1") && text.contains("Time exceeded"), "{driver}: {text}");
        let sessions = router.show(&["nat", "--inside", OFFICE.v6]).expect("the router answers");
        assert!(sessions.len() >= 3, "{sessions:?}");
        // A narrower link outside: the client learns its MTU.
        router.reload(&config(driver, "mtu = 1400")).expect("the router takes it");
        exchange(&site, 7001);
        router.counters_add_up();
        assert!(router.process.end(), "the router stops with success");
    }
}

/// A resolver with DNS64 beside the host asks the outside's name server through NAT64, and the host goes where it says.
#[test]
fn a_name_of_an_ipv4_host_leads_through_dns64() {
    if !["unbound", "dnsmasq", "dig", "curl"].iter().all(|program| has(program)) {
        return;
    }
    let Some(site) = Site::new() else { return };
    let mut router = site.run_alone(&config("af_packet", ""), &[]);
    let (office, outside) = (site.namespace(OFFICE), site.namespace(OUTSIDE));
    let names = ["--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--pid-file"];
    let v4 = format!("--host-record=www.example,{}", OUTSIDE.v4);
    let v6 = format!("--host-record=six.example,{}", OFFICE.v6);
    let told = ["--local=/example/", &v4, &v6];
    let mut server = site.start(&outside, "dnsmasq", &[&names[..], &told].concat());
    let file = site.file("unbound.conf");
    let text = format!(
        "server:\n  interface: ::1\n  access-control: ::1/128 allow\n  module-config: \"dns64 iterator\"\n  \
         dns64-prefix: 2001:db8:64::/96\n  chroot: \"\"\n  username: \"\"\n  directory: \"{}\"\n  pidfile: \"\"\n  \
         use-syslog: no\n  do-daemonize: no\n  do-ip4: no\n\
         remote-control:\n  control-enable: no\nforward-zone:\n  name: \".\"\n  forward-addr: {MAPPED}\n",
        file.parent().expect("a folder").display()
    );
    std::fs::write(&file, text).expect("a file");
    let mut resolver = site.start(&office, "unbound", &["-d", "-c", &file.display().to_string()]);
    let ask = |name: &str| dig(&site, &office, "::1", "AAAA", name)?.parse::<Ipv6Addr>().ok();
    let address = eventually("the resolver answers", || ask("www.example"));
    assert_eq!(address.to_string(), MAPPED);
    let own = ask("six.example").map(|own| own.to_string());
    assert_eq!(own.as_deref(), Some(OFFICE.v6), "it has one of its own");
    let listener = site.within(&outside, || TcpListener::bind((OUTSIDE.v4, 80))).expect("the server listens");
    let page = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a connection");
        let asked = uninterrupted(|| client.read(&mut [0; 1000])).expect("a request");
        client.write_all(b"HTTP/1.0 200 OK\r\n\r\nby name\n").expect("answered");
        asked
    });
    let at = format!("www.example:80:[{address}]");
    let got =
        site.said(&office, "curl", &["-sS", "--max-time", "20", "--resolve", &at, "http://www.example/"]);
    assert_eq!(got, "by name\n");
    assert!(page.join().expect("the server ends") > 0);
    router.counters_add_up();
    resolver.kill();
    server.kill();
    assert!(router.process.end(), "the router stops with success");
}

/// The outside knows the office's network by another prefix, which is routed to the router.
const PREFIXES: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["2001:db8:1::1/64"]

[ports.wan]
interface = "wan"
addresses = ["2001:db8:9::1/64"]

[[prefix_translation]]
inside = "2001:db8:1::/64"
outside = "2001:db8:77::/64"
port = "wan"
"#;

#[test]
fn one_prefix_stands_for_another() {
    let Some(site) = Site::new() else { return };
    let mut router = site.run_alone(PREFIXES, &[]);
    eventually("NPTv6", || site.pings(OFFICE, OUTSIDE.v6).then_some(()));
    let (server, client) =
        (udp(&site, OUTSIDE, "[2001:db8:9::2]:53"), udp(&site, OFFICE, "[2001:db8:1::2]:0"));
    let to = server.local_addr().expect("an address");
    let mut seen = None;
    for length in [1, 1452, 4000] {
        client.send_to(&datagram(length), to).expect("sent");
        let (from, got) = received(&server);
        let IpAddr::V6(address) = from.ip() else { panic!("{from}") };
        assert_eq!((&address.segments()[..4], got), (&[0x2001, 0xdb8, 0x77, 0][..], length));
        assert_eq!(from.port(), client.local_addr().expect("an address").port());
        server.send_to(&datagram(length), from).expect("sent");
        assert_eq!(received(&client), (to, length));
        seen = Some(address);
    }
    let address: Ipv6Addr = seen.expect("it was seen");
    // From outside, and to nobody.
    assert!(site.pings(OUTSIDE, &address.to_string()));
    let refused = udp(&site, OUTSIDE, "[2001:db8:9::2]:0");
    refused.connect((address, 9)).expect("connected");
    refused.send(b"question").expect("sent");
    let told = uninterrupted(|| refused.recv(&mut [0; 16])).expect_err("nobody listens");
    assert_eq!(told.kind(), ErrorKind::ConnectionRefused, "{told}");
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}
