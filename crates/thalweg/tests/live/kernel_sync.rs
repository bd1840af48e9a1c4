//! The forwarding table in sync with the kernel's: routes that programs put into the kernel, and the router's
//! own.

mod neighbors;

use std::fs;

use serde_json::Value;

use crate::site::{OFFICE, OUTSIDE, Router, Site, eventually, has};

const CONFIG: &str = r#"
[kernel]
routes = "both"
repair_s = 1

[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
mirror = true

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24", "2001:db8:9::1/64"]
mirror = "outside0"

[[routes]]
prefix = "192.0.2.0/25"
via = "198.51.100.2"

[[routes]]
prefix = "2001:db8:77::/48"
via = "2001:db8:9::2"
"#;

/// An address behind the host outside.
const BEHIND: &str = "203.0.113.129";

fn site() -> Option<Site> {
    let site = Site::new()?;
    let outside = site.namespace(OUTSIDE);
    for address in [BEHIND, "192.0.2.1"] {
        site.ip(&outside, &format!("addr add {address}/32 dev lo"));
    }
    site.ip(&outside, "route add default via 198.51.100.1");
    Some(site)
}

fn fib(router: &Router<'_>, destination: &str) -> Value {
    router.show(&["fib", destination]).expect("the router answers").pop().expect("an answer")
}

fn kernel_sync(router: &Router<'_>, what: &str) -> u64 {
    router.one("forwarding")["kernel_sync"][what].as_u64().unwrap_or_else(|| panic!("{what} is a number"))
}

/// The router's routes in the kernel.
fn exported(site: &Site) -> String {
    let of = |family: &str| site.said(&site.router(), "ip", &[family, "route", "show", "proto", "116"]);
    of("-4") + &of("-6")
}

fn has_routes_of_ours(site: &Site) {
    eventually("the kernel has the router's routes", || {
        let said = exported(site);
        (said.contains("192.0.2.0/25 via 198.51.100.2 dev outside0")
            && said.contains("2001:db8:77::/48 via 2001:db8:9::2 dev outside0"))
        .then_some(())
    });
}

#[test]
fn routes_that_come_and_go_are_followed() {
    let Some(site) = site() else { return };
    let system = site.router();
    // A route as left by a killed router.
    site.ip(&system, "route add blackhole 192.0.2.200/32 proto 116 metric 116");
    let router = site.run(CONFIG, &[]);
    has_routes_of_ours(&site);
    assert!(!exported(&site).contains("192.0.2.200"), "the predecessor's route is removed");
    assert_eq!(fib(&router, BEHIND)["action"], "no route");

    // Through a mirror, through a port's interface, and with a higher metric behind the first.
    site.ip(&system, "route add 203.0.113.128/25 via 198.51.100.2 dev outside0 metric 20");
    site.ip(&system, "route add blackhole 203.0.113.128/25 metric 30");
    eventually("packets go where the kernel says", || site.pings(OFFICE, BEHIND).then_some(()));
    let view = fib(&router, BEHIND);
    assert_eq!((&view["source"], &view["prefix"]), (&"kernel".into(), &"203.0.113.128/25".into()), "{view}");
    let way = &view["next_hops"][0];
    assert_eq!((&way["port"], &way["neighbor"]), (&"wan".into(), &"198.51.100.2".into()), "{view}");
    assert!(way["mac"].is_string() && way["state"].is_string(), "{view}");
    assert_eq!(fib(&router, "203.0.113.128/26")["prefix"], "203.0.113.128/25");
    assert_eq!(fib(&router, "203.0.113.0/24")["action"], "no route");
    site.ip(&system, "route del 203.0.113.128/25 metric 20");
    eventually("the second route is in force", || {
        (fib(&router, BEHIND)["action"] == "blackhole").then_some(())
    });
    site.ip(&system, "route del blackhole 203.0.113.128/25");
    eventually("no route is left", || (fib(&router, BEHIND)["action"] == "no route").then_some(()));

    // The router's own routes win over others' of the same prefix, and are never taken for others'.
    site.ip(&system, "route add blackhole 192.0.2.0/25 metric 5");
    site.ip(&system, "route add 203.0.113.0/24 via 198.51.100.2 dev outside0");
    eventually("one is imported, one is behind", || {
        (fib(&router, BEHIND)["source"] == "kernel" && kernel_sync(&router, "imported_behind") >= 1)
            .then_some(())
    });
    let own = fib(&router, "192.0.2.1");
    assert_eq!((&own["source"], &own["action"]), (&"configured".into(), &"forward".into()), "{own}");
    assert!(site.pings(OFFICE, "192.0.2.1"));
    site.ip(&system, "route del blackhole 192.0.2.0/25 metric 5");

    // Several next hops.
    site.ip(
        &system,
        "-6 route add 2001:db8:99::/48 nexthop via 2001:db8:9::2 dev outside0 nexthop via 2001:db8:1::2 dev tw-lan",
    );
    let ways = eventually("both next hops are used", || {
        let view = fib(&router, "2001:db8:99::1");
        (view["next_hops"].as_array().map(Vec::len) == Some(2)).then_some(view)
    });
    assert_eq!(ways["source"], "kernel", "{ways}");

    // The kernel deletes a route with its link and sends no notification.
    site.ip(&system, "link set outside0 down");
    eventually("the deletion is followed", || (fib(&router, BEHIND)["action"] == "no route").then_some(()));
    site.ip(&system, "link set outside0 up");
    site.ip(&system, "-6 addr replace 2001:db8:9::1/64 dev outside0");
    eventually("ours are back", || exported(&site).contains("192.0.2.0/25").then_some(()));
    assert_eq!(kernel_sync(&router, "import_drift"), 0, "{}", router.one("forwarding"));
}

/// Another program deletes the router's routes from the kernel and adds one: the router finds, repairs and counts
/// that.
#[test]
fn drift_is_mended_and_counted() {
    let Some(site) = site() else { return };
    let system = site.router();
    let mut router = site.run(CONFIG, &[]);
    has_routes_of_ours(&site);
    let before = kernel_sync(&router, "export_drift");
    site.ip(&system, "route del 192.0.2.0/25 proto 116");
    site.ip(&system, "route add blackhole 192.0.2.200/32 proto 116 metric 116");
    eventually("both changes are repaired", || {
        let said = exported(&site);
        (said.contains("192.0.2.0/25") && !said.contains("192.0.2.200")).then_some(())
    });
    eventually("the drift is counted", || (kernel_sync(&router, "export_drift") >= before + 2).then_some(()));
    // After a reload, the new configuration's routes replace the old ones.
    let other = CONFIG.replace("192.0.2.0/25", "192.0.2.0/26");
    router.reload(&other).expect("the reload succeeds");
    eventually("the kernel has the new route only", || {
        let said = exported(&site);
        (said.contains("192.0.2.0/26 via") && !said.contains("192.0.2.0/25")).then_some(())
    });
    // The successor of a killed router has the same routes.
    router.process.kill();
    drop(router);
    let mut router = site.run(CONFIG, &[]);
    has_routes_of_ours(&site);
    assert!(router.process.end(), "the router stops with success");
    assert_eq!(exported(&site), "", "nothing is left behind");
}

/// OSPF on a mirror: BIRD learns a network from a neighbor and puts it into the kernel, and packets follow.
#[test]
fn a_routing_daemon_on_a_mirror_fills_the_table() {
    let Some(site) = site() else { return };
    if !has("bird") {
        return;
    }
    let router = site.run(CONFIG, &[]);
    let bird = |name: &str, id: &str, interface: &str, rest: &str| {
        let text = format!(
            "router id {id};\nprotocol device {{ scan time 1; }}\n{rest}\n\
             protocol ospf v2 {{ ipv4 {{ import all; export where source = RTS_STATIC; }};\n\
             area 0 {{ interface \"{interface}\" {{ type ptp; hello 1; dead count 4; }}; }}; }}\n"
        );
        let file = site.file(&format!("{name}.conf"));
        fs::write(&file, text).expect("the folder is writable");
        [file, site.file(&format!("{name}.ctl"))].map(|path| path.display().to_string())
    };
    let into_kernel =
        "protocol kernel { ipv4 { export where source ~ [RTS_OSPF, RTS_OSPF_EXT1, RTS_OSPF_EXT2]; }; }";
    let [near, near_control] = bird("near", OUTSIDE.gateway_v4, "outside0", into_kernel);
    let network = "protocol static { ipv4; route 203.0.113.128/25 blackhole; }";
    let [far, far_control] = bird("far", OUTSIDE.v4, "eth0", network);
    let mut near_process = site.start(&site.router(), "bird", &["-f", "-c", &near, "-s", &near_control]);
    let mut far_process =
        site.start(&site.namespace(OUTSIDE), "bird", &["-f", "-c", &far, "-s", &far_control]);
    eventually("packets go where OSPF says", || site.pings(OFFICE, BEHIND).then_some(()));
    let view = fib(&router, BEHIND);
    assert_eq!((&view["source"], &view["port"]), (&"kernel".into(), &"wan".into()), "{view}");
    // The neighbor is gone, and its routes with it.
    far_process.kill();
    eventually("the route is gone", || (fib(&router, BEHIND)["action"] == "no route").then_some(()));
    // A daemon that says hello every second never lets the counters rest on a busy machine.
    near_process.kill();
    router.counters_add_up();
}

/// While the router is suspended, more routes change than the kernel queues notifications for. The router says
/// that notifications were lost, reads everything again, and ends with the kernel's routes.
#[test]
fn lost_news_are_made_up_for() {
    const ROUTES: u32 = 48 << 10;
    let Some(site) = site() else { return };
    let router = site.run(CONFIG, &[]);
    has_routes_of_ours(&site);
    let numbers = || ["overruns", "import_drift", "imported"].map(|what| kernel_sync(&router, what));
    let [overruns, drift, imported] = numbers();
    let prefix = |number: u32| format!("10.{}.{}.0/24", 64 + (number >> 8), number & 0xff);
    let batch = |name: &str, command: &str, numbers: std::ops::Range<u32>, rest: &str| {
        let lines: String = numbers.map(|n| format!("route {command} {}{rest}\n", prefix(n))).collect();
        fs::write(site.file(name), lines).expect("the folder is writable");
        site.said(&site.router(), "ip", &["-batch", &site.file(name).display().to_string()]);
    };
    router.process.signal("STOP");
    // Some of them are replaced, and the first are deleted again.
    batch("add", "add", 0..ROUTES, " via 198.51.100.2 dev outside0");
    batch("replace", "replace", 1000..20_000, " via 198.51.100.2 dev outside0");
    batch("del", "del", 0..1000, "");
    router.process.signal("CONT");
    let (last, gone) = (prefix(ROUTES - 1), prefix(7));
    eventually("the last added route is there", || (fib(&router, &last)["source"] == "kernel").then_some(()));
    eventually("the removed route is gone", || (fib(&router, &gone)["action"] == "no route").then_some(()));
    let expected = imported + u64::from(ROUTES) - 1000;
    eventually("the tables are equal", || (kernel_sync(&router, "imported") == expected).then_some(()));
    assert!(numbers()[0] > overruns, "{}", router.one("forwarding"));
    assert_eq!(numbers()[1], drift, "lost notifications do not count as drift");
    assert!(site.pings(OFFICE, OUTSIDE.v4));
    router.counters_add_up();
}
