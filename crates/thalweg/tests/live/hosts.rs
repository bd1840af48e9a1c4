//! The router as a host among others: the system's programs on mirrors, broadcast on links, addresses and routes
//! that come and go, interfaces that do not exist yet.

use serde_json::Value;

use crate::dhcp;
use crate::packets::build;
use crate::site::{GUEST, OFFICE, OUTSIDE, Router, Site, eventually};
use crate::wire::Wire;
use thalweg_wire::MacAddr;

/// Ports with mirrors; all options of the kernel are defaults.
const MIRRORED: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24"]
mirror = true

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24"]
mirror = true

[[routes]]
prefix = "203.0.113.0/24"
via = "198.51.100.2"
"#;

fn port(router: &Router<'_>, name: &str) -> Value {
    let ports = router.show(&["ports"]).expect("the router answers");
    ports.into_iter().find(|port| port["name"] == name).expect("the port is there")
}

/// `mirror = true` is enough for the system to answer a host that is not on the link.
#[test]
fn who_is_beyond_a_link_is_answered() {
    let Some(site) = Site::new() else { return };
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, "addr add 203.0.113.9/32 dev lo");
    site.ip(&outside, "route add 10.1.0.0/24 via 198.51.100.1");
    let router = site.run(MIRRORED, &[]);
    let ping = |to: &str| {
        site.output(&outside, "ping", &["-c", "1", "-W", "1", "-I", "203.0.113.9", to]).status.success()
    };
    for to in [OUTSIDE.gateway_v4, OFFICE.gateway_v4] {
        eventually(to, || ping(to).then_some(()));
    }
    router.counters_add_up();
}

/// A gateway outside of the port's networks, as hosting providers have it.
#[test]
fn a_lone_address_with_a_gateway_on_the_link() {
    let Some(site) = Site::new() else { return };
    let outside = site.namespace(OUTSIDE);
    for arguments in
        ["addr flush dev eth0", "addr add 172.31.1.1/32 dev eth0", "route add 203.0.113.7/32 dev eth0"]
    {
        site.ip(&outside, arguments);
    }
    site.ip(&outside, "addr add 192.0.2.9/32 dev lo");
    site.ip(&outside, "route add 10.1.0.0/24 via 203.0.113.7 dev eth0 onlink");
    let config = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24"]

[ports.wan]
interface = "wan"
addresses = ["203.0.113.7/32"]
mirror = true

[[routes]]
prefix = "0.0.0.0/0"
via = "172.31.1.1"
port = "wan"
onlink = true
"#;
    let router = site.run_alone(config, &[]);
    eventually("a packet goes by the gateway and back", || site.pings(OFFICE, "192.0.2.9").then_some(()));
    // The system's programs use the same path, and other hosts on the link resolve the address although it is in
    // no network.
    eventually("the system reaches it", || {
        let arguments = ["-c", "1", "-W", "1", "-I", "203.0.113.7", "192.0.2.9"];
        site.output(&site.router(), "ping", &arguments).status.success().then_some(())
    });
    site.ip(&outside, "neigh flush dev eth0");
    site.ip(&outside, "addr add 172.31.1.77/32 dev eth0");
    eventually("another one there is answered", || {
        let arguments = ["-c", "1", "-W", "1", "-I", "172.31.1.77", "203.0.113.7"];
        site.output(&outside, "ping", &arguments).status.success().then_some(())
    });
    router.counters_add_up();
}

/// DHCP in both directions: a server on a mirror serves hosts behind the router, and the router gets its outside
/// address by DHCP. NAT's port blocks, which depend on that address, wait for it.
#[test]
fn dhcp_on_mirrors() {
    let Some(site) = Site::new() else { return };
    if !dhcp::is_here() {
        return;
    }
    let (system, office, outside) = (site.router(), site.namespace(OFFICE), site.namespace(OUTSIDE));
    site.ip(&outside, "addr add 192.0.2.9/32 dev lo");
    site.ip(&office, "addr flush dev eth0");
    let config = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24"]
mirror = true

[ports.wan]
interface = "wan"
mirror = true

[nat]
outside = "wan"
inside = ["lan"]

[nat.subscribers]
blocks = "deterministic"
inside = ["10.1.0.0/26"]
"#;
    let router = site.run_alone(config, &[]);
    let serve = |namespace: &str, interface: &str, range: &str| {
        let [interface, range] = [format!("--interface={interface}"), format!("--dhcp-range={range},2m")];
        dhcp::serve(&site, namespace, &["--port=0", &interface, &range])
    };
    let _inside_server = serve(&system, "tw-lan", "10.1.0.50,10.1.0.60");
    let _outside_server = serve(&outside, "eth0", "198.51.100.50,198.51.100.60");

    // The router's address brings the default route and NAT's public address.
    let _routers = dhcp::ask(&site, &system, "tw-wan");
    eventually("the port has an address and a default route", || {
        let route = router.show(&["fib", "192.0.2.9"])?.pop()?.to_string();
        (route.contains("198.51.100.2") && route.contains("wan")).then_some(())
    });
    // A host gets an address from the server on the mirror: its request is from 0.0.0.0 to the broadcast address.
    let _hosts = dhcp::ask(&site, &office, "eth0");
    eventually("the host has an address", || {
        let own = site.said(&office, "ip", &["-4", "addr", "show", "dev", "eth0"]);
        (own.contains("inet 10.1.0.5") || own.contains("inet 10.1.0.60")).then_some(())
    });
    eventually("NAT has the address", || site.pings(OFFICE, "192.0.2.9").then_some(()));
    assert_eq!(router.dropped("martian-source"), 0);

    // Without its address the router has no default route, and NAT no address to translate to.
    dhcp::release(&site, &system, "tw-wan");
    eventually("the default route is gone", || {
        let route = router.show(&["fib", "192.0.2.9"])?.pop()?;
        (route["action"] == "no route").then_some(())
    });
    for line in ["took over", "is gone from the mirror"] {
        eventually("the log says it", || site.log().contains(line).then_some(()));
    }
    router.counters_add_up();
}

/// Broadcast packets are never forwarded and never translated, with any validation.
#[test]
fn what_is_for_all_stays_on_its_link() {
    let Some(site) = Site::new() else { return };
    let stray = MacAddr([2, 0, 0, 0, 0, 9]);
    for (driver, checks) in
        [("af_packet", ""), ("af_xdp", ""), ("af_packet", "[validate]\nmartians = false\n")]
    {
        let ports = [OFFICE, OUTSIDE].map(|host| {
            format!(
                "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\naddresses = [\"{1}/24\"]\nmirror = true\n",
                host.port, host.gateway_v4
            )
        });
        let nat = "[nat]\noutside = \"wan\"\ninside = [\"lan\"]\n\
                   [[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n";
        let router = site.run(&[&ports.concat(), nat, checks].concat(), &[]);
        let mut office = Wire::beside(&site, &site.namespace(OFFICE), "eth0", stray);
        let far = site.mac_of(&site.namespace(OUTSIDE), "eth0");
        let mut outside = Wire::beside(&site, &site.namespace(OUTSIDE), "eth0", far);
        let near = site.mac_of(&site.router(), "lan");
        let mut mirror = Wire::beside(&site, &site.router(), "tw-lan", near);
        let frame = |to: MacAddr, packet: &str| {
            [to.as_ref(), stray.as_ref(), &build::line(packet).frame[12..]].concat()
        };
        let all = MacAddr::BROADCAST;
        let group = MacAddr([1, 0, 0x5e, 0, 0, 5]);
        let before = router.dropped("link-broadcast");
        // A DHCP server's offer to the router, in a broadcast frame as some servers send it.
        let mut offer = frame(all, "0 eth ip 10.1.0.9 > 10.1.0.77 udp 67 > 68 data 240");
        let message = &mut offer[14 + 28..];
        (message[0], message[2]) = (2, 6);
        message[28..34].copy_from_slice(&near.0);
        let for_all = [
            offer,
            frame(all, "0 eth ip 0.0.0.0 > 255.255.255.255 udp 68 > 67 data 21"),
            frame(all, "0 eth ip 10.1.0.9 > 255.255.255.255 udp 4001 > 9 data 22"),
            frame(all, "0 eth ip 10.1.0.9 > 10.1.0.255 udp 4002 > 9 data 23"),
            frame(near, "0 eth ip 10.1.0.9 > 198.51.100.255 udp 4003 > 9 data 24"),
            frame(group, "0 eth ip 10.1.0.9 > 224.0.0.5 proto 89 data 25"),
        ];
        let to_one = [
            frame(all, "0 eth ip 10.1.0.9 > 192.0.2.9 udp 4004 > 9 data 31"),
            frame(group, "0 eth ip 10.1.0.9 > 198.51.100.2 udp 4005 > 9 data 32"),
        ];
        let last = frame(near, "0 eth ip 10.1.0.9 > 192.0.2.9 udp 4006 > 9 data 99");
        office.send(for_all.iter().chain(&to_one).chain([&last]).map(Vec::as_slice));
        eventually("unicast packets in broadcast frames are dropped with a reason", || {
            (router.dropped("link-broadcast") == before + 2).then_some(())
        });
        // The last frame is forwarded. It has come out, so all earlier ones have been handled, and none of them
        // came out.
        let ours =
            |frame: &[u8]| frame.get(12..14) == Some(&[8, 0]) && matches!(frame.get(23), Some(17 | 89));
        let sizes = |frames: Vec<Vec<u8>>| frames.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(outside.receive(1, ours)), [14 + 28 + 99], "{driver} {checks}");
        let heard = sizes(mirror.receive(for_all.len(), ours));
        assert_eq!(heard, for_all.each_ref().map(Vec::len), "{driver} {checks}");
        assert_eq!(router.dropped("martian-source"), 0);
        router.counters_add_up();
    }
}

/// A BGP neighbor that cannot be reached because its port has no mirror: the log says so at once, and how to
/// change it.
#[test]
fn a_neighbor_on_a_port_without_a_mirror_is_said() {
    let Some(site) = Site::new() else { return };
    let config = MIRRORED
        .replace("addresses = [\"198.51.100.1/24\"]\nmirror = true", "addresses = [\"198.51.100.1/24\"]")
        + "[bgp]\nas = 65001\nrouter_id = \"198.51.100.1\"\n\
           [[bgp.neighbor]]\naddress = \"198.51.100.2\"\nas = 65002\nimport = \"accept\"\nexport = \"accept\"\n";
    let _router = site.run_alone(&config, &[]);
    let log = site.log();
    assert!(
        log.contains("neighbor 198.51.100.2 is on port wan, which has no mirror: no session will come up"),
        "{log}"
    );
    assert!(log.contains("`mirror = true` in [ports.wan]"), "{log}");
}

/// The router waits for a missing interface; the other ports work meanwhile.
fn waits_for_an_interface(driver: &str) {
    let Some(site) = Site::new() else { return };
    let system = site.router();
    site.ip(&system, "link del guest");
    let config: String = [OFFICE, OUTSIDE, GUEST]
        .map(|host| {
            format!(
                "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\naddresses = [\"{1}/24\"]\nmirror = true\n",
                host.port, host.gateway_v4
            )
        })
        .concat();
    site.ip(&site.namespace(OUTSIDE), "route add default via 198.51.100.1");
    let router = site.run(&config, &[]);
    assert_eq!(port(&router, "guest")["mode"], "waits for its interface");
    let log = site.log();
    assert!(log.contains("interface guest does not exist yet; the port comes up when it appears"), "{log}");
    for _ in 0..2 {
        site.veth(GUEST);
        site.ip(&site.namespace(GUEST), "route replace default via 10.2.0.1");
        eventually("the port works", || site.pings(GUEST, OUTSIDE.v4).then_some(()));
        assert_ne!(port(&router, "guest")["mode"], "waits for its interface");
        let mac = site.mac_of(&system, "guest");
        eventually("its mirror is like it", || (site.mac_of(&system, "tw-guest") == mac).then_some(()));
        eventually("the router itself answers", || site.pings(GUEST, GUEST.gateway_v4).then_some(()));
        site.ip(&system, "link del guest");
        eventually("the other ports still work", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    }
}

#[test]
fn an_interface_is_waited_for_by_af_packet() {
    waits_for_an_interface("af_packet");
}

#[test]
fn an_interface_is_waited_for_by_the_best_driver() {
    waits_for_an_interface("auto");
}
