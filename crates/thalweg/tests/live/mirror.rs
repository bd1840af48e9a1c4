//! Mirrors: the system's programs on the router's ports.

use std::fs;

use crate::site::{OFFICE, OUTSIDE, Site, eventually, has};

const CONFIG: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
mirror = true

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24", "2001:db8:9::1/64"]
mirror = "outside0"
"#;

/// The system and neighbors reach each other through mirrors; a mirror has its port's addresses and link state.
#[test]
fn the_system_is_on_the_ports() {
    let Some(site) = Site::new() else { return };
    site.ip(&site.namespace(OUTSIDE), "route add default via 198.51.100.1");
    let router = site.run(CONFIG, &[]);
    let system = site.router();
    for to in [OFFICE.v4, OUTSIDE.v4, OFFICE.v6, OUTSIDE.v6] {
        eventually(to, || {
            site.output(&system, "ping", &["-c", "1", "-W", "1", to]).status.success().then_some(())
        });
    }
    for to in [OFFICE.gateway_v4, OUTSIDE.gateway_v4, OFFICE.gateway_v6] {
        eventually(to, || site.pings(OFFICE, to).then_some(()));
    }
    let mac = |interface: &str| site.said(&system, "cat", &[&format!("/sys/class/net/{interface}/address")]);
    assert_eq!(mac("outside0"), mac("wan"), "a mirror has its port's MAC address");
    assert_eq!(mac("tw-lan"), mac("lan"));

    // The veth's link goes down: the mirror's follows, and goes up with it.
    let has_carrier = |wanted: &str| {
        let said = site.output(&system, "cat", &["/sys/class/net/outside0/carrier"]);
        (String::from_utf8_lossy(&said.stdout).trim() == wanted).then_some(())
    };
    eventually("the mirror has a carrier", || has_carrier("1"));
    site.ip(&site.namespace(OUTSIDE), "link set eth0 down");
    eventually("the mirror has no carrier", || has_carrier("0"));
    site.ip(&site.namespace(OUTSIDE), "link set eth0 up");
    eventually("the mirror has a carrier again", || has_carrier("1"));
    site.ip(&site.namespace(OUTSIDE), "route replace default via 198.51.100.1");
    eventually("packets pass again", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    router.counters_add_up();
}

/// BIRD on the mirror has a session with BIRD outside; each learns the other's networks.
#[test]
fn a_routing_daemon_speaks_by_a_mirror() {
    let Some(site) = Site::new() else { return };
    if !has("bird") {
        return;
    }
    site.ip(&site.namespace(OUTSIDE), "route add default via 198.51.100.1");
    let _router = site.run(CONFIG, &[]);
    let bird = |name: &str, own: (&str, u32), neighbor: (&str, u32), network: &str| {
        let text = format!(
            "router id {0};\nprotocol device {{}}\nprotocol static {{ ipv4; route {network} blackhole; }}\n\
             protocol bgp peer {{ local {0} as {1}; neighbor {2} as {3}; ipv4 {{ import all; export all; }}; }}\n",
            own.0, own.1, neighbor.0, neighbor.1
        );
        let file = site.file(&format!("{name}.conf"));
        fs::write(&file, text).expect("the folder is writable");
        [file, site.file(&format!("{name}.ctl"))].map(|path| path.display().to_string())
    };
    let (ours, theirs) = ((OUTSIDE.gateway_v4, 65_001), (OUTSIDE.v4, 65_002));
    let [near, near_control] = bird("near", ours, theirs, "203.0.113.0/25");
    let [far, far_control] = bird("far", theirs, ours, "203.0.113.128/25");
    let _near = site.start(&site.router(), "bird", &["-f", "-c", &near, "-s", &near_control]);
    let _far = site.start(&site.namespace(OUTSIDE), "bird", &["-f", "-c", &far, "-s", &far_control]);
    for (control, network) in [(&near_control, "203.0.113.128/25"), (&far_control, "203.0.113.0/25")] {
        eventually("the route is learned", || {
            let said = site.output(&site.router(), "birdc", &["-s", control, "show", "route", network]);
            String::from_utf8_lossy(&said.stdout).contains("[peer").then_some(())
        });
    }
}
