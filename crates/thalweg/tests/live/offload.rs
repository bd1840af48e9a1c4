//! Flows that the kernel forwards after the router has decided about them: nobody at either end may notice.

use std::net::UdpSocket;
use std::time::Duration;

use serde_json::Value;

use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually, has};

fn config(more: &str) -> String {
    let port = |host: Host| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"af_xdp\"\noffload = true\n{more}\n\
             addresses = [\"{1}/24\", \"{2}/64\"]\n\n",
            host.port, host.gateway_v4, host.gateway_v6
        )
    };
    let text: String = [OFFICE, GUEST, OUTSIDE].map(port).concat();
    text + "[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\naddresses = [\"198.51.100.1\"]\n"
}

fn offloaded(router: &Router<'_>) -> u64 {
    router.one("counters")["offloaded"].as_u64().expect("a number")
}

/// Datagrams to an echo server and back, one after the other, each another.
fn converse(client: &UdpSocket, server: &UdpSocket, to: &str, datagrams: u32) {
    let mut buffer = [0; 2048];
    for number in 0..datagrams {
        let sent = vec![number as u8; 1 + number as usize % 1400];
        client.send_to(&sent, to).expect("it goes");
        let (length, sender) = server.recv_from(&mut buffer).expect("it comes");
        assert_eq!(buffer[..length], sent);
        server.send_to(&buffer[..length], sender).expect("it goes back");
        let (length, _) = client.recv_from(&mut buffer).expect("it comes back");
        assert_eq!(buffer[..length], sent);
    }
}

fn socket(site: &Site, namespace: &str, address: &str) -> UdpSocket {
    let socket = site.within(namespace, || UdpSocket::bind(address).expect("a port"));
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    socket
}

#[test]
fn flows_in_the_kernel() {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config(""), &[]);
    let (office, guest, outside) = (site.namespace(OFFICE), site.namespace(GUEST), site.namespace(OUTSIDE));
    for (from, to) in [(OFFICE, OUTSIDE.v4), (GUEST, OUTSIDE.v4), (GUEST, OFFICE.v4)] {
        eventually(to, || site.pings(from, to).then_some(()));
    }
    let ports = router.show(&["ports"]).expect("the router answers");
    assert!(ports.iter().all(|port| port["mode"] == "af_xdp generic copy, offload"), "{ports:?}");

    // Between two inside networks nothing is translated.
    let (client, server) = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &office, "10.1.0.2:7"));
    converse(&client, &server, "10.1.0.2:7", 500);
    let without_nat = offloaded(&router);
    assert!(without_nat > 600, "{without_nat} of 1000 packets were forwarded by the kernel");

    let (client, server) = (socket(&site, &guest, "[::]:0"), socket(&site, &office, "[2001:db8:1::2]:7"));
    converse(&client, &server, "[2001:db8:1::2]:7", 500);
    let before = without_nat;
    let without_nat = offloaded(&router);
    assert!(without_nat - before > 600, "{} of 1000 packets of IPv6", without_nat - before);

    // Through NAT. Local senders leave checksums unfinished unless they are told not to; those go up.
    let has_ethtool = has("ethtool");
    if has_ethtool {
        for namespace in [&office, &guest, &outside] {
            site.said(namespace, "ethtool", &["-K", "eth0", "tx", "off"]);
        }
    }
    let (client, server) = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &outside, "198.51.100.2:7"));
    converse(&client, &server, "198.51.100.2:7", 500);
    if has_ethtool {
        let with_nat = offloaded(&router) - without_nat;
        assert!(with_nat > 600, "{with_nat} of 1000 translated packets were forwarded by the kernel");
    }

    // A neighbour gets another address while a flow to it is in the kernel.
    for change in ["down", "address 02:00:00:00:be:ef", "up"] {
        site.ip(&outside, &format!("link set eth0 {change}"));
    }
    eventually("the neighbour is found again", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    converse(&client, &server, "198.51.100.2:7", 100);

    if has("iperf3") {
        let _server = site.start(&outside, "iperf3", &["-s", "-1"]);
        let sent = eventually("iperf3 listens", || {
            let output = site.output(&office, "iperf3", &["-c", OUTSIDE.v4, "-n", "20M", "-J"]);
            let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            json["end"]["sum_sent"]["bytes"].as_u64()
        });
        assert!(sent >= 20_000_000, "{sent}");
    }
    let counters = router.counters_add_up();
    assert!(counters["offloaded"].as_u64() < counters["received"].as_u64(), "{counters}");
    assert!(router.process.end(), "it ends when asked to");
}

#[test]
fn flows_in_drivers() {
    let Some(site) = Site::new() else { return };
    if !has("ethtool") {
        return;
    }
    let (office, guest, outside) = (site.namespace(OFFICE), site.namespace(GUEST), site.namespace(OUTSIDE));
    // A veth takes what is redirected to it if its other end merges segments; nobody there finishes checksums.
    for namespace in [&office, &guest, &outside] {
        site.said(namespace, "ethtool", &["-K", "eth0", "tx", "off", "gro", "on"]);
    }
    let mut router = site.run(&config("xdp_mode = \"native\""), &[]);
    for (from, to) in [(OFFICE, OUTSIDE.v4), (GUEST, OUTSIDE.v4), (GUEST, OFFICE.v4)] {
        eventually(to, || site.pings(from, to).then_some(()));
    }
    let ports = router.show(&["ports"]).expect("the router answers");
    assert!(ports.iter().all(|port| port["mode"] == "af_xdp native copy, offload"), "{ports:?}");
    let mut before = 0;
    for (server_in, bound, to) in [
        (&office, "10.1.0.2:7", "10.1.0.2:7"),
        (&office, "[2001:db8:1::2]:7", "[2001:db8:1::2]:7"),
        (&outside, "198.51.100.2:7", "198.51.100.2:7"),
    ] {
        let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let (client, server) = (socket(&site, &guest, any), socket(&site, server_in, bound));
        converse(&client, &server, to, 500);
        let forwarded = offloaded(&router);
        assert!(forwarded - before > 600, "{} of 1000 packets to {to}", forwarded - before);
        before = forwarded;
    }
    // A driver that takes nothing any more gets nothing any more, and nobody loses a thing.
    site.said(&office, "ethtool", &["-K", "eth0", "gro", "off"]);
    std::thread::sleep(Duration::from_millis(1500));
    let (client, server) = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &office, "10.1.0.2:7"));
    let before = offloaded(&router);
    converse(&client, &server, "10.1.0.2:7", 100);
    let way_back = offloaded(&router) - before;
    assert!(way_back <= 100, "{way_back} packets: those to the office went up");
    router.counters_add_up();
    assert!(router.process.end(), "it ends when asked to");
}
