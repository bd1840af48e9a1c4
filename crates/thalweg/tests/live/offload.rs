//! Flows that the kernel forwards by the router's decisions. Neither end may notice.

use std::net::UdpSocket;
use std::time::Duration;

use crate::clients::iperf3;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually, has};
use thalweg_testdata::uninterrupted;

/// A configuration where every port may have flows in the kernel.
pub(crate) fn config(more: &str) -> String {
    config_by("af_xdp", more)
}

pub(crate) fn config_by(driver: &str, more: &str) -> String {
    let port = |host: Host| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\noffload = true\n{more}\n\
             addresses = [\"{1}/24\", \"{2}/64\"]\n\n",
            host.port, host.gateway_v4, host.gateway_v6
        )
    };
    let text: String = [OFFICE, GUEST, OUTSIDE].map(port).concat();
    text + "[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\naddresses = [\"198.51.100.1\"]\n"
}

pub(crate) fn offloaded(router: &Router<'_>) -> u64 {
    router.one("counters")["offloaded"].as_u64().expect("a number")
}

/// Sends `count` different datagrams to an echo server, each after the answer to the one before.
pub(crate) fn converse(client: &UdpSocket, server: &UdpSocket, to: &str, datagrams: u32) {
    let mut buffer = [0; 2048];
    for number in 0..datagrams {
        let sent = vec![number as u8; 1 + number as usize % 1400];
        client.send_to(&sent, to).expect("sending succeeds");
        let (length, sender) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
        assert_eq!(buffer[..length], sent);
        server.send_to(&buffer[..length], sender).expect("the reply is sent");
        let (length, _) = uninterrupted(|| client.recv_from(&mut buffer)).expect("the reply arrives");
        assert_eq!(buffer[..length], sent);
    }
}

pub(crate) fn socket(site: &Site, namespace: &str, address: &str) -> UdpSocket {
    let socket = site.within(namespace, || UdpSocket::bind(address).expect("a port"));
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    socket
}

#[test]
fn flows_in_the_kernel() {
    in_the_kernel("af_xdp", "", "af_xdp generic copy, offload");
}

/// Merged frames too: no host has its offloads off.
#[test]
fn flows_behind_packet_sockets() {
    in_the_kernel("af_packet", "", "af_packet, offload");
    in_the_kernel("af_packet", "queues = 2", "af_packet 2 queues, offload");
}

/// Programs here leave checksums to hardware unless `ethtool` turns that off; a translated packet then goes to the
/// router, except by AF_PACKET.
fn leaves_checksums(driver: &str, site: &Site) -> bool {
    if driver == "af_packet" {
        return false;
    }
    if has("ethtool") {
        for host in [OFFICE, GUEST, OUTSIDE] {
            site.said(&site.namespace(host), "ethtool", &["-K", "eth0", "tx", "off"]);
        }
    }
    !has("ethtool")
}

fn in_the_kernel(driver: &str, more: &str, mode: &str) {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config_by(driver, more), &[]);
    let (office, guest, outside) = (site.namespace(OFFICE), site.namespace(GUEST), site.namespace(OUTSIDE));
    for (from, to) in [(OFFICE, OUTSIDE.v4), (GUEST, OUTSIDE.v4), (GUEST, OFFICE.v4)] {
        eventually(to, || site.pings(from, to).then_some(()));
    }
    let ports = router.show(&["ports"]).expect("the router answers");
    assert!(ports.iter().all(|port| port["mode"] == mode), "{ports:?}");

    // Nothing is translated between two inside networks.
    let (client, server) = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &office, "10.1.0.2:7"));
    converse(&client, &server, "10.1.0.2:7", 500);
    let without_nat = offloaded(&router);
    assert!(without_nat > 600, "{without_nat} of 1000 packets were forwarded by the kernel");

    let (client, server) = (socket(&site, &guest, "[::]:0"), socket(&site, &office, "[2001:db8:1::2]:7"));
    converse(&client, &server, "[2001:db8:1::2]:7", 500);
    let before = without_nat;
    let without_nat = offloaded(&router);
    assert!(without_nat - before > 600, "{} of 1000 packets of IPv6", without_nat - before);

    // Through NAT.
    let go_up = leaves_checksums(driver, &site);
    let (client, server) = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &outside, "198.51.100.2:7"));
    converse(&client, &server, "198.51.100.2:7", 500);
    if !go_up {
        let with_nat = offloaded(&router) - without_nat;
        assert!(with_nat > 600, "{with_nat} of 1000 translated packets were forwarded by the kernel");
    }

    // A neighbor changes its MAC address while a flow to it is in the kernel.
    for change in ["down", "address 02:00:00:00:be:ef", "up"] {
        site.ip(&outside, &format!("link set eth0 {change}"));
    }
    eventually("the neighbor is found again", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    converse(&client, &server, "198.51.100.2:7", 100);

    if has("iperf3") {
        let before = offloaded(&router);
        let (_, sent) = iperf3(&site, OFFICE, (OUTSIDE, OUTSIDE.v4), &["-n", "20M"]);
        assert!(sent >= 20_000_000, "{sent}");
        // Counted as on the wire, merged or not.
        let forwarded = offloaded(&router) - before;
        assert!(go_up || forwarded > 10_000, "{forwarded} packets");
    }
    let counters = router.counters_add_up();
    assert!(counters["offloaded"].as_u64() < counters["received"].as_u64(), "{counters}");
    assert!(router.process.end(), "the router stops with success");
}

#[test]
fn flows_in_drivers() {
    let Some(site) = Site::new() else { return };
    if !has("ethtool") {
        return;
    }
    let (office, guest, outside) = (site.namespace(OFFICE), site.namespace(GUEST), site.namespace(OUTSIDE));
    // A veth accepts redirected packets only if its other end has GRO on. TX checksum offload is off, because
    // nothing there would complete checksums.
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
    // When a driver no longer accepts redirected packets, the router stops redirecting to it, and no packet is
    // lost.
    site.said(&office, "ethtool", &["-K", "eth0", "gro", "off"]);
    std::thread::sleep(Duration::from_millis(1500));
    let (client, server) = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &office, "10.1.0.2:7"));
    let before = offloaded(&router);
    converse(&client, &server, "10.1.0.2:7", 100);
    let way_back = offloaded(&router) - before;
    assert!(way_back <= 100, "{way_back} packets: those to the office went up");
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// After a reload, flows in the kernel follow the new configuration at once: another path, an access list,
/// another public address.
#[test]
fn flows_in_the_kernel_follow_a_reload() {
    follow_a_reload("af_xdp");
}

#[test]
fn flows_behind_packet_sockets_follow_a_reload() {
    follow_a_reload("af_packet");
}

fn follow_a_reload(driver: &str) {
    let Some(site) = Site::new() else { return };
    let (office, guest, outside) = (site.namespace(OFFICE), site.namespace(GUEST), site.namespace(OUTSIDE));
    site.ip(&outside, "addr add 198.51.100.3/24 dev eth0");
    site.ip(&outside, "addr add 203.0.113.1/32 dev lo");
    let route = |via: &str| format!("\n[[routes]]\nprefix = \"203.0.113.0/24\"\nvia = \"{via}\"\n");
    let first = config_by(driver, "") + &route(OUTSIDE.v4);
    let mut router = site.run(&first, &[]);
    eventually("guests are reachable", || site.pings(GUEST, OFFICE.v4).then_some(()));
    eventually("the server is there", || site.pings(GUEST, "203.0.113.1").then_some(()));
    let translated = !leaves_checksums(driver, &site);
    let inside = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &office, "10.1.0.2:7"));
    let beyond = (socket(&site, &guest, "0.0.0.0:0"), socket(&site, &outside, "203.0.113.1:7"));
    let is_in_the_kernel = |(client, server): &(UdpSocket, UdpSocket), to: &str| {
        eventually("the flow is in the kernel", || {
            let before = offloaded(&router);
            converse(client, server, to, 20);
            (offloaded(&router) >= before + 30).then_some(())
        });
    };
    let all_pass = || {
        is_in_the_kernel(&inside, "10.1.0.2:7");
        match translated {
            true => is_in_the_kernel(&beyond, "203.0.113.1:7"),
            false => converse(&beyond.0, &beyond.1, "203.0.113.1:7", 20),
        }
    };
    all_pass();

    // An access list that denies a flow in the kernel: not one more of its packets passes.
    let list = "\n[[acl]]\nname = \"closed\"\ndefault = \"permit\"\n\n[[acl.rules]]\naction = \"deny\"\n\
                destination = \"10.1.0.2/32\"\nprotocol = \"udp\"\n";
    let port = "interface = \"guest\"\n";
    let closed = first.replace(port, &format!("{port}acl_in = \"closed\"\n")) + list;
    router.reload(&closed).expect("the reload succeeds");
    for _ in 0..50 {
        inside.0.send_to(b"no", "10.1.0.2:7").expect("sending succeeds");
    }
    eventually("they are denied", || {
        let counters = router.one("counters");
        let denied = counters["dropped"]["acl-denied"].as_u64()?;
        (denied >= 50).then_some(())
    });
    inside.1.set_nonblocking(true).expect("it is a socket");
    assert!(uninterrupted(|| inside.1.recv_from(&mut [0; 16])).is_err(), "one has come through");
    inside.1.set_nonblocking(false).expect("it is a socket");
    // Other flows continue, and a port with an access list has no flows in the kernel.
    let before = offloaded(&router);
    converse(&beyond.0, &beyond.1, "203.0.113.1:7", 50);
    let from_guest = offloaded(&router) - before;
    assert!(from_guest <= 50, "only answers may be forwarded by the kernel: {from_guest}");
    router.reload(&first).expect("the reload succeeds");
    all_pass();

    // Another gateway: another address of the same host, recognized by its own MAC address.
    site.ip(&outside, "link add other link eth0 type macvlan mode bridge");
    site.ip(&outside, "link set other up");
    site.ip(&outside, "addr del 198.51.100.3/24 dev eth0");
    site.ip(&outside, "addr add 198.51.100.3/24 dev other");
    let came = || -> u64 {
        let text = site.said(&outside, "cat", &["/sys/class/net/other/statistics/rx_packets"]);
        text.trim().parse().expect("a number")
    };
    for sysctl in ["all", "eth0", "other"] {
        site.said(&outside, "sysctl", &["-q", &format!("net.ipv4.conf.{sysctl}.arp_ignore=1")]);
        site.said(&outside, "sysctl", &["-q", &format!("net.ipv4.conf.{sysctl}.rp_filter=0")]);
    }
    let moved = config_by(driver, "") + &route("198.51.100.3");
    router.reload(&moved).expect("the reload succeeds");
    eventually("the other gateway is resolved", || {
        let neighbors = router.show(&["neighbors"])?;
        let found = neighbors.iter().find(|one| one["address"] == "198.51.100.3")?;
        found["mac"].is_string().then_some(())
    });
    let before = came();
    converse(&beyond.0, &beyond.1, "203.0.113.1:7", 100);
    assert!(came() >= before + 100, "packets go by the other gateway: {} of 100", came() - before);
    all_pass();

    // Another public address: the server sees it from the first packet on.
    site.ip(&outside, "route add 192.0.2.9/32 via 198.51.100.1");
    let nat = "addresses = [\"198.51.100.1\"]";
    let other = moved.replace(nat, "addresses = [\"192.0.2.9\"]");
    assert_ne!(other, moved);
    router.reload(&other).expect("the reload succeeds");
    for number in 0..20u8 {
        beyond.0.send_to(&[number], "203.0.113.1:7").expect("sending succeeds");
        let (_, sender) = uninterrupted(|| beyond.1.recv_from(&mut [0; 16])).expect("data arrives");
        assert_eq!(sender.ip().to_string(), "192.0.2.9");
        beyond.1.send_to(&[number], sender).expect("the reply is sent");
        uninterrupted(|| beyond.0.recv_from(&mut [0; 16])).expect("the reply arrives");
    }
    all_pass();
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}
