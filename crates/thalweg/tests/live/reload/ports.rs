//! Ports and VLANs come and go under load; traffic on other ports loses nothing.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::{BEYOND, PER_CONFIGURATION, Traffic};
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use crate::vlan::behind_a_switch;

const MIRROR: &str = "tw-guest";
/// A router with `lan` and `wan`, and `more`; `inside` lists further inside ports of NAT.
fn config(driver: &str, more: &str, inside: &str) -> String {
    let port = |host: Host| of_host(host, driver, "");
    format!(
        "{more}\n{}{}[nat]\noutside = \"wan\"\ninside = [\"lan\"{inside}]\naddresses = [\"198.51.100.1\"]\n\
         [[routes]]\nprefix = \"203.0.113.0/24\"\nvia = \"{}\"\n\n[kernel]\nroutes = \"both\"\n\
         [[qos.egress]]\nport = \"wan\"\nrate = \"200 Mbit/s\"\n",
        port(OFFICE).replace("addresses", "mirror = \"tw-lan\"\naddresses"),
        port(OUTSIDE),
        OUTSIDE.v4
    )
}

fn of_host(host: Host, driver: &str, more: &str) -> String {
    format!(
        "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\naddresses = [\"{1}/24\"]\n{more}\n",
        host.port, host.gateway_v4
    )
}

fn names(router: &Router<'_>) -> Vec<String> {
    let ports = router.show(&["ports"]).expect("the router answers");
    ports.iter().map(|port| port["name"].as_str().expect("a name").to_owned()).collect()
}

/// Inside addresses that have NAT sessions.
fn translated(router: &Router<'_>) -> Vec<String> {
    let sessions = router.show(&["nat"]).expect("the router answers");
    let inside = |session: &Value| session["inside"].as_str().map(str::to_owned);
    sessions.iter().map(|session| inside(session).expect("an address")).collect()
}

fn has_interface(site: &Site, name: &str) -> bool {
    site.output(&site.router(), "ip", &["link", "show", name]).status.success()
}

/// Checks that the guests' port works, with NAT, a queue and a mirror, and is shown.
fn guests_are_served(site: &Site, router: &Router<'_>) {
    eventually("guests reach the office", || site.pings(GUEST, OFFICE.v4).then_some(()));
    eventually("guests reach what is outside", || site.pings(GUEST, OUTSIDE.v4).then_some(()));
    let to_guests =
        || site.output(&site.router(), "ping", &["-c", "1", "-W", "1", GUEST.v4]).status.success();
    eventually("the system reaches guests by the mirror", || to_guests().then_some(()));
    assert!(has_interface(site, MIRROR));
    let traced = router.trace(&format!("guest ip {} -> {BEYOND} udp 7", GUEST.v4));
    assert_eq!(traced["outcome"], "sent", "{traced}");
    let queues = router.show(&["queues"]).expect("the router answers");
    assert!(queues.iter().any(|queue| queue["port"] == "guest" && queue["sent"] != 0), "{queues:?}");
    let by_guests = Traffic::among(site, &[(GUEST, OUTSIDE, OUTSIDE.v4)]);
    by_guests.passes(router, PER_CONFIGURATION);
    by_guests.end();
    assert!(translated(router).iter().any(|inside| inside.starts_with(GUEST.v4)));
}

fn ports_come_and_go(driver: &str, arguments: &[&str]) {
    let Some(site) = Site::new() else { return };
    site.ip(&site.namespace(OUTSIDE), &format!("addr add {BEYOND}/32 dev lo"));
    let two = config(driver, "", "");
    let mut router = site.run(&two, arguments);
    eventually("the gateway answers", || site.pings(OFFICE, BEYOND).then_some(()));
    let traffic = Traffic::among(&site, &[(OFFICE, OUTSIDE, BEYOND), (OFFICE, OUTSIDE, BEYOND)]);
    traffic.passes(&router, PER_CONFIGURATION);
    let reload = |text: &str, what: &[&str]| {
        let said = router.reload(text).unwrap_or_else(|why| panic!("{what:?}: {why}"));
        println!("{said}");
        assert!(what.iter().all(|what| said.contains(what)), "{what:?}: {said}");
        traffic.passes(&router, PER_CONFIGURATION);
    };
    let mirrored = of_host(GUEST, driver, &format!("mirror = \"{MIRROR}\""));
    let shaped = "[[qos.egress]]\nport = \"guest\"\nrate = \"100 Mbit/s\"\n";
    let three = format!("{}{shaped}", config(driver, &mirrored, ", \"guest\""));
    for _ in 0..2 {
        let said = router.compare(&three).expect("the reload would succeed");
        assert!(said.starts_with("port guest: added\n") && said.contains("routes added"), "{said}");
        assert_eq!(names(&router), ["lan", "wan"], "nothing has changed");
        reload(&three, &["port guest: added", "paused "]);
        assert_eq!(names(&router), ["lan", "wan", "guest"], "new ports are appended");
        guests_are_served(&site, &router);
        reload(&two, &["port guest: removed", "paused ", " ended"]);
        assert_eq!(names(&router), ["lan", "wan"]);
        assert!(
            !translated(&router).iter().any(|inside| inside.starts_with(GUEST.v4)),
            "its sessions are over"
        );
        assert!(!site.pings(GUEST, OFFICE.v4), "the router forwards nothing");
        eventually("its mirror is gone", || (!has_interface(&site, MIRROR)).then_some(()));
        let neighbors = router.show(&["neighbors"]).expect("the router answers");
        assert!(neighbors.iter().all(|each| each["address"] != GUEST.v4), "{neighbors:?}");
    }

    // A refused reload changes nothing and leaves nothing open.
    let driven = two.replacen(driver, "tap", 1);
    let said = router.compare(&driven).expect_err("it would be refused");
    assert!(said.contains("`driver` of [ports.lan]"), "{said}");
    let refused = |text: &str, why: &[&str]| {
        let said = router.reload(text).expect_err("the request is refused");
        assert!(why.iter().all(|why| said.contains(why)) && said.contains("nothing was changed"), "{said}");
        assert_eq!(names(&router), ["lan", "wan"]);
        assert!(!site.pings(GUEST, OFFICE.v4));
        traffic.passes(&router, PER_CONFIGURATION);
    };
    // The mirror's name is taken by an existing interface; the router notices after it has opened the port.
    site.ip(&site.router(), "link add taken0 type veth peer name taken1");
    refused(&three.replace(MIRROR, "taken0"), &["taken0"]);
    let renamed = two.replace("[ports.lan]", "[ports.office]").replace("\"lan\"]", "\"office\"]");
    refused(&renamed, &["lan moves from port lan to port office"]);

    // An interface that does not exist yet.
    let late = "[ports.late]\ninterface = \"late0\"\naddresses = [\"10.9.0.1/24\"]\n";
    reload(&config(driver, late, ""), &["port late: added"]);
    site.ip(&site.router(), "link add late0 type veth peer name late1");
    site.ip(&site.router(), "link set late0 up");
    site.ip(&site.router(), "link set late1 up");
    let up =
        || router.show(&["ports"])?.into_iter().find(|port| port["name"] == "late" && port["up"] == true);
    eventually("the port works when its interface appears", up);
    reload(&config(driver, &late.replace("late0", "late1"), ""), &["port late: opened anew"]);
    let ports = router.show(&["ports"]).expect("the router answers");
    assert!(ports.iter().any(|port| port["name"] == "late" && port["interface"] == "late1"), "{ports:?}");
    reload(&two, &["port late: removed"]);

    let (_, seen) = traffic.end();
    for (client, addresses) in &seen {
        assert_eq!(addresses.len(), 1, "client {client} kept its public endpoint over all: {addresses:?}");
    }
    router.packets_add_up();
    assert!(router.process.end(), "the router stops with success");
}

#[test]
fn ports_by_af_packet() {
    ports_come_and_go("af_packet", &[]);
}

#[test]
fn ports_by_af_xdp() {
    ports_come_and_go("af_xdp", &[]);
}

#[test]
fn ports_with_a_worker_for_each_queue() {
    ports_come_and_go("af_packet", &["--workers", "2"]);
}

#[test]
fn ports_in_a_pipeline() {
    ports_come_and_go("auto", &["--model", "pipeline", "--workers", "2"]);
}

/// VLANs appear, change their number and disappear, on a veth that others use meanwhile.
fn vlans_come_and_go(driver: &str) {
    let Some(site) = Site::new() else { return };
    let text = |guests: Option<u16>| {
        let of_guests = guests.map(|vlan| {
            format!(
                "[ports.\"guest.20\"]\nparent = \"uplink\"\nvlan = {vlan}\nmirror = \"{MIRROR}\"\naddresses = [\"10.2.0.1/24\"]\n"
            )
        });
        let inside = if guests.is_some() { ", \"guest.20\"" } else { "" };
        format!(
            "{}[ports.uplink]\ninterface = \"uplink\"\ndriver = \"{driver}\"\n\
             [ports.\"office.10\"]\nparent = \"uplink\"\nvlan = 10\naddresses = [\"10.1.0.1/24\"]\n{}\
             [nat]\noutside = \"wan\"\ninside = [\"office.10\"{inside}]\naddresses = [\"198.51.100.1\"]\n\
             [kernel]\nroutes = \"both\"\n[[qos.egress]]\nport = \"uplink\"\nrate = \"500 Mbit/s\"\n",
            of_guests.unwrap_or_default(),
            of_host(OUTSIDE, driver, "mirror = \"tw-wan\""),
        )
    };
    behind_a_switch(&site, |guests_vlan| {
        let mut router = site.run(&text(None), &[]);
        let traffic = Traffic::among(&site, &[(OFFICE, OUTSIDE, OUTSIDE.v4), (OFFICE, OUTSIDE, OUTSIDE.v4)]);
        traffic.passes(&router, PER_CONFIGURATION);
        let reload = |text: &str, what: &[&str]| {
            let said = router.reload(text).unwrap_or_else(|why| panic!("{what:?}: {why}"));
            println!("{said}");
            assert!(what.iter().all(|what| said.contains(what)), "{what:?}: {said}");
            traffic.passes(&router, PER_CONFIGURATION);
        };
        let works = || {
            eventually("the VLAN reaches out, through NAT", || site.pings(GUEST, OUTSIDE.v4).then_some(()));
            eventually("and the office", || site.pings(GUEST, OFFICE.v4).then_some(()));
        };
        assert!(!site.pings(GUEST, OFFICE.v4), "the router has no such VLAN");
        reload(&text(Some(20)), &["port guest.20: added"]);
        works();
        assert!(translated(&router).iter().any(|inside| inside.starts_with(GUEST.v4)));
        let to_vlan =
            || site.output(&site.router(), "ping", &["-c", "1", "-W", "1", GUEST.v4]).status.success();
        eventually("the system reaches it by the mirror", || to_vlan().then_some(()));

        guests_vlan.store(99, Ordering::Release);
        assert!(!site.pings(GUEST, OFFICE.v4), "the router has no such VLAN");
        reload(&text(Some(99)), &["port guest.20: opened anew"]);
        works();
        let ports = router.show(&["ports"]).expect("the router answers");
        let mode = ports.iter().find(|port| port["name"] == "guest.20").map(|port| port["mode"].to_string());
        assert!(mode.is_some_and(|mode| mode.contains("VLAN 99")), "{ports:?}");

        reload(&text(None), &["port guest.20: removed", " ended"]);
        assert!(!site.pings(GUEST, OFFICE.v4), "it is gone");
        eventually("its mirror is gone", || (!has_interface(&site, MIRROR)).then_some(()));
        assert!(!translated(&router).iter().any(|inside| inside.starts_with(GUEST.v4)));
        let (_, seen) = traffic.end();
        assert!(seen.values().all(|addresses| addresses.len() == 1), "{seen:?}");
        router.counters_add_up();
        assert!(router.process.end(), "the router stops with success");
    });
}

#[test]
fn vlans_by_af_packet() {
    vlans_come_and_go("af_packet");
}

#[test]
fn vlans_by_af_xdp() {
    vlans_come_and_go("af_xdp");
}
