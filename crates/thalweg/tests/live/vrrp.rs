//! A virtual router that this router and keepalived share, on a link with the office.
//!
//! ```text
//!   office ─ br0 ─┬─ eth0 ══ lan   router   wan ══ outside
//!                 └─ peer ══ eth9  guest (keepalived)
//! ```

use std::fs;

use crate::dead_ways::back_to_office;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Process, Router, Site, eventually, has};

/// keepalived's own address, and the shared ones.
const KEEPALIVED: &str = "10.1.0.3";
const SHARED: [&str; 2] = ["10.1.0.9", "fe80::9"];
/// VRID 51.
const MACS: [&str; 2] = ["00:00:5e:00:01:33", "00:00:5e:00:02:33"];

/// Puts an interface of the guest on the link between a host and the router.
pub(crate) fn share_link(site: &Site, host: Host, name: &str) {
    let (namespace, guest) = (site.namespace(host), site.namespace(GUEST));
    for arguments in [
        "link add br0 type bridge forward_delay 0 mcast_snooping 0",
        "addr flush dev eth0",
        "link set eth0 master br0",
        "link set br0 up",
        &format!("addr add {}/24 dev br0", host.v4),
        &format!("addr add {}/64 dev br0 nodad", host.v6),
    ] {
        site.ip(&namespace, arguments);
    }
    site.ip(&guest, &format!("link add {name} type veth peer name peer netns {namespace}"));
    site.ip(&namespace, "link set peer master br0 up");
    site.ip(&guest, &format!("link set {name} up"));
}

fn site() -> Option<Site> {
    let site = Site::new()?;
    share_link(&site, OFFICE, "eth9");
    site.ip(&site.namespace(GUEST), &format!("addr add {KEEPALIVED}/24 dev eth9"));
    site.ip(&site.namespace(OFFICE), &format!("route replace default via {}", SHARED[0]));
    back_to_office(&site, OUTSIDE);
    Some(site)
}

/// `more` is a line of both virtual routers.
fn run<'s>(site: &'s Site, priority: u8, more: &str) -> Router<'s> {
    let ports = "[ports.lan]\ninterface = \"lan\"\ndriver = \"af_packet\"\naddresses = [\"10.1.0.1/24\", \"2001:db8:1::1/64\"]\n\n\
         [ports.wan]\ninterface = \"wan\"\ndriver = \"af_packet\"\naddresses = [\"198.51.100.1/24\"]\n\n";
    let shared = SHARED.map(|address| {
        format!(
            "[[vrrp]]\nport = \"lan\"\nid = 51\naddresses = \"{address}\"\npriority = {priority}\n\
             interval_ms = 200\naccept = true\n{more}\n\n"
        )
    });
    site.run_alone(&format!("{ports}{}", shared.concat()), &[])
}

/// A virtual router of keepalived: the options are of its configuration file.
pub(crate) struct Instance<'t> {
    pub(crate) id: u8,
    pub(crate) priority: u8,
    pub(crate) interval_s: &'t str,
    pub(crate) address: &'t str,
    pub(crate) options: &'t str,
}

/// keepalived at the guest's eth9, which `share_link` makes.
pub(crate) fn keepalived(site: &Site, instances: &[Instance<'_>]) -> Process {
    let instance = |(number, instance): (usize, &Instance<'_>)| {
        let Instance { id, priority, interval_s, address, options } = instance;
        format!(
            "vrrp_instance number{number} {{\n  state BACKUP\n  interface eth9\n  virtual_router_id {id}\n  \
             priority {priority}\n  advert_int {interval_s}\n  version 3\n  {options}\n  \
             virtual_ipaddress {{\n    {address}\n  }}\n}}\n"
        )
    };
    let text: String = instances.iter().enumerate().map(instance).collect();
    let text = format!("global_defs {{\n  vrrp_version 3\n}}\n{text}");
    let [file, pid, vrrp] = ["keepalived.conf", "keepalived.pid", "vrrp.pid"].map(|name| site.file(name));
    fs::write(&file, text).expect("the folder is writable");
    let [file, pid, vrrp] = [file, pid, vrrp].map(|path| path.display().to_string());
    let arguments = ["-n", "-l", "-P", "-f", &file, "-p", &pid, "-r", &vrrp];
    site.start(&site.namespace(GUEST), "keepalived", &arguments)
}

/// keepalived with another priority.
fn both_by_keepalived(site: &Site, priority: u8) -> Process {
    let [four, six] = [format!("{}/24", SHARED[0]), format!("{}/64", SHARED[1])];
    let four = Instance { id: 51, priority, interval_s: "0.2", address: &four, options: "" };
    keepalived(site, &[Instance { address: &six, options: "native_ipv6", ..four }, four])
}

/// The states of the virtual routers, IPv4's first.
fn are(router: &Router<'_>, state: &str) {
    eventually(&format!("both are {state}"), || {
        let all = router.show(&["vrrp"])?;
        (all.len() == 2 && all.iter().all(|each| each["state"] == state)).then_some(())
    });
}

/// Whether the office knows the shared IPv4 address by this MAC address.
fn office_knows(site: &Site, mac: &str) -> bool {
    let known = site.said(&site.namespace(OFFICE), "ip", &["neighbor", "show", SHARED[0]]);
    known.contains(mac)
}

/// Whether keepalived has a shared address.
pub(crate) fn keepalived_has(site: &Site, address: &str) -> bool {
    site.said(&site.namespace(GUEST), "ip", &["address", "show", "dev", "eth9"]).contains(address)
}

/// keepalived leaves an address to the router for ten advertisements, after three of which it would take it.
pub(crate) fn stays_a_backup(site: &Site, router: &Router<'_>, address: &str) {
    let sent = || router.show(&["vrrp"]).expect("the router answers")[0]["sent"].as_u64().expect("a number");
    let before = sent();
    eventually("ten advertisements are sent", || (sent() >= before + 10).then_some(()));
    assert!(!keepalived_has(site, address), "{}", site.log());
    assert!(!site.log().contains("Entering MASTER STATE"), "{}", site.log());
}

/// keepalived drops what has RFC 9568's checksum, which covers no pseudo header with IPv4.
const AS_KEEPALIVED: &str = "pseudo_header = true";

#[test]
fn keepalived_is_followed_while_it_is_better_and_replaced_when_it_is_gone() {
    let Some(site) = site() else { return };
    if !has("keepalived") {
        return;
    }
    let guest = site.namespace(GUEST);
    let router = run(&site, 100, AS_KEEPALIVED);
    are(&router, "active");
    eventually("the office reaches the outside by the virtual router", || {
        site.pings(OFFICE, OUTSIDE.v4).then_some(())
    });
    assert!(office_knows(&site, MACS[0]) && site.pings(OFFICE, SHARED[0]));
    let other = both_by_keepalived(&site, 150);
    are(&router, "backup");
    let view = router.show(&["vrrp"]).expect("the router answers");
    assert_eq!(
        (&view[0]["active"], &view[0]["active_priority"]),
        (&KEEPALIVED.into(), &150.into()),
        "{view:?}"
    );
    eventually("the office knows keepalived", || {
        (site.pings(OFFICE, SHARED[0]) && !office_knows(&site, MACS[0])).then_some(())
    });
    site.ip(&guest, "link set eth9 down");
    are(&router, "active");
    eventually("the office is back at the virtual router", || {
        (site.pings(OFFICE, OUTSIDE.v4) && office_knows(&site, MACS[0])).then_some(())
    });
    site.ip(&guest, "link set eth9 up");
    are(&router, "backup");
    other.signal("TERM");
    are(&router, "active");
    router.process.signal("TERM");
}

/// keepalived's checksum is accepted by a router that sends RFC 9568's.
#[test]
fn a_pseudo_header_in_the_checksum_is_accepted() {
    let Some(site) = site() else { return };
    if !has("keepalived") {
        return;
    }
    let _other = both_by_keepalived(&site, 150);
    let router = run(&site, 100, "");
    eventually("it is followed", || {
        let all = router.show(&["vrrp"])?;
        all.iter().all(|each| each["state"] == "backup" && each["active_priority"] == 150).then_some(())
    });
}

#[test]
fn keepalived_takes_over_from_a_router_that_stops() {
    let Some(site) = site() else { return };
    if !has("keepalived") {
        return;
    }
    let mut router = run(&site, 200, AS_KEEPALIVED);
    are(&router, "active");
    let _other = both_by_keepalived(&site, 50);
    eventually("it is running", || site.log().contains("Entering BACKUP STATE").then_some(()));
    stays_a_backup(&site, &router, SHARED[0]);
    router.process.signal("TERM");
    eventually("it takes over", || keepalived_has(&site, SHARED[0]).then_some(()));
    assert!(router.process.end(), "{}", site.log());
}
