//! Everyday use of a network, through NAT and queues: ping, traceroute, files, datagrams, streams, calls.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::clients::iperf3;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Site, eventually, has};
use thalweg_testdata::uninterrupted;

/// A router with NAT for two inside networks and a shaped outside port.
pub(crate) fn config(driver: &str) -> String {
    let port = |host: Host| {
        let interface = match driver {
            // `net_pcap`: for `net_af_packet`, the kernel would reassemble fragments into packets that are too
            // long for it.
            "dpdk" => format!("device = \"net_pcap{},iface={},phy_mac=1\"", host.number(), host.port),
            _ => format!("interface = \"{}\"", host.port),
        };
        format!(
            "[ports.{0}]\n{interface}\ndriver = \"{driver}\"\naddresses = [\"{1}/24\", \"{2}/64\"]\n\n",
            host.port, host.gateway_v4, host.gateway_v6
        )
    };
    let mut text: String = [OFFICE, GUEST, OUTSIDE].map(port).concat();
    text += "[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\naddresses = [\"198.51.100.1\"]\n\n\
             [[qos.classes]]\nname = \"voice\"\nstrict = 0\n\
             match = [{ dscp = \"ef\" }, { protocol = \"udp\", destination_ports = \"6000\" }]\n\n\
             [[qos.classes]]\nname = \"default\"\nweight = 1\n\n\
             [[qos.egress]]\nport = \"wan\"\nrate = \"200 Mbit/s\"\n";
    text
}

pub(crate) fn everything_works(driver: &str, arguments: &[&str]) {
    let Some(site) = Site::new() else { return };
    if driver == "dpdk" && !site.finishes_checksums() {
        return;
    }
    let mut router = site.run(&config(driver), arguments);
    let (office, guest) = (site.namespace(OFFICE), site.namespace(GUEST));

    // Ping: through NAT, without NAT, to the router itself, to a missing host, to an address without a route.
    for to in [OUTSIDE.v4, OUTSIDE.v6, GUEST.v4, GUEST.v6, OFFICE.gateway_v4, OUTSIDE.gateway_v6] {
        eventually(to, || site.pings(OFFICE, to).then_some(()));
    }
    assert!(site.pings(GUEST, OUTSIDE.v4) && site.pings(OUTSIDE, OUTSIDE.gateway_v4));
    let unreachable = |to: &str| {
        let output = site.output(&office, "ping", &["-c", "1", "-W", "8", to]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(unreachable("10.2.0.77").contains("Destination Host Unreachable"), "the host does not answer");
    assert!(unreachable("192.0.2.1").contains("Destination Net Unreachable"), "there is no route");

    // A large packet that may be fragmented is; one that may not is answered with an ICMP error.
    site.ip(&site.namespace(GUEST), "link set eth0 mtu 1500");
    assert!(site.output(&office, "ping", &["-c", "1", "-W", "2", "-s", "4000", OUTSIDE.v4]).status.success());

    traceroutes(&site);
    a_file_is_fetched(&site, &office);
    datagrams_come_back(&site, &guest);
    if has("iperf3") {
        let (who, sent) = iperf3(&site, OFFICE, (OUTSIDE, OUTSIDE.v4), &["-n", "4M"]);
        assert!(who == OUTSIDE.gateway_v4 && sent >= 4_000_000, "{sent} from {who}");
    }
    let queues = router.show(&["queues"]).expect("the router answers");
    let default = queues.iter().find(|queue| queue["port"] == "wan" && queue["class"] == "default");
    let default = default.expect("the shaped port has queues");
    assert!(default["sent"].as_u64().is_some_and(|sent| sent > 500), "{default}");
    let counters = router.counters_add_up();
    assert_eq!(counters["queued"], 0, "{counters}");
    let ports = router.show(&["ports"]).expect("the router answers");
    // A busy machine may miss frames, but no received one may fail.
    assert!(ports.iter().all(|port| port["failed"] == 0), "{ports:?}");
    assert!(router.process.end(), "the router stops with success");
}

/// Every hop is visible: the router with its address on this side, then the host.
fn traceroutes(site: &Site) {
    if !has("traceroute") {
        return;
    }
    for (to, hops) in
        [(OUTSIDE.v4, [OFFICE.gateway_v4, OUTSIDE.v4]), (OUTSIDE.v6, [OFFICE.gateway_v6, OUTSIDE.v6])]
    {
        // Slowly, because ICMP errors to one host are rate-limited.
        let said = eventually("all hops answer", || {
            let arguments = ["-n", "-q", "1", "-w", "2", "-z", "200", to];
            let said = site.said(&site.namespace(OFFICE), "traceroute", &arguments);
            (!said.contains('*')).then_some(said)
        });
        let seen: Vec<&str> =
            said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(seen, hops, "{said}");
    }
}

/// Fetches a file over HTTP that is larger than any queue.
pub(crate) fn a_file_is_fetched(site: &Site, from: &str) {
    const BYTES: usize = 3 << 20;
    let listener =
        site.within(&site.namespace(OUTSIDE), || TcpListener::bind((OUTSIDE.v4, 8080)).expect("a port"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client connects");
        let mut request = [0; 1024];
        let read = uninterrupted(|| stream.read(&mut request)).expect("a request");
        assert!(request[..read].starts_with(b"GET /file "), "a request for the file");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it is read");
        stream.write_all(&vec![b'x'; BYTES]).expect("it is read");
    });
    let url = format!("http://{}:8080/file", OUTSIDE.v4);
    if has("curl") {
        let arguments =
            ["-s", "-S", "-m", "60", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", &url];
        assert_eq!(site.said(from, "curl", &arguments), format!("200 {BYTES}"));
    } else {
        site.within(from, || {
            let mut stream = TcpStream::connect((OUTSIDE.v4, 8080)).expect("a listener exists");
            stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").expect("it is read");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("an answer");
            assert!(all.len() > BYTES);
        });
    }
    server.join().expect("the server does not panic");
}

/// Datagrams to an echo server, which sees NAT's address instead of the sender's.
fn datagrams_come_back(site: &Site, from: &str) {
    let server = site.within(&site.namespace(OUTSIDE), || UdpSocket::bind((OUTSIDE.v4, 7)).expect("a port"));
    let client = site.within(from, || UdpSocket::bind(("0.0.0.0", 0)).expect("a port"));
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    }
    let mut buffer = [0; 2048];
    for number in 0..200u32 {
        let sent = vec![number as u8; 1 + number as usize * 7];
        client.send_to(&sent, (OUTSIDE.v4, 7)).expect("sending succeeds");
        let (length, sender) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
        assert_eq!((&buffer[..length], sender.ip().to_string().as_str()), (&sent[..], OUTSIDE.gateway_v4));
        server.send_to(&buffer[..length], sender).expect("the reply is sent");
        let (length, _) = uninterrupted(|| client.recv_from(&mut buffer)).expect("the reply arrives");
        assert_eq!(&buffer[..length], &sent[..]);
    }
}

#[test]
fn programs_by_af_packet() {
    everything_works("af_packet", &[]);
}

#[test]
fn programs_by_af_xdp() {
    everything_works("af_xdp", &[]);
}

#[test]
fn programs_in_a_pipeline() {
    everything_works("auto", &["--model", "pipeline", "--workers", "2"]);
}

#[test]
fn programs_on_a_farm() {
    everything_works("auto", &["--model", "farm", "--workers", "2"]);
}
