//! Neighbors in sync: those that people set in the kernel, and the router's own on its mirrors.

use std::net::UdpSocket;

use serde_json::Value;

use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};

const CONFIG: &str = r#"
[kernel]
neighbors = "both"
repair_s = 1

[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
mirror = true

[ports.guest]
interface = "guest"
addresses = ["10.2.0.1/24", "2001:db8:2::1/64"]
mirror = true

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24", "2001:db8:9::1/64"]
mirror = "outside0"

[[neighbors]]
port = "wan"
address = "198.51.100.200"
mac = "02:00:00:00:02:00"
"#;

/// The router's entries on one interface.
fn ours(site: &Site, interface: &str) -> String {
    let all = site.said(&site.router(), "ip", &["-d", "neigh", "show", "dev", interface, "nud", "all"]);
    let ours = all.lines().filter(|line| line.contains("extern_learn") && line.contains("proto 116"));
    ours.map(|line| format!("{line}\n")).collect()
}

fn mac_text(site: &Site, host: Host) -> String {
    site.mac_of(&site.namespace(host), "eth0").to_string()
}

fn has(site: &Site, interface: &str, address: &str, mac: &str) {
    let line = format!("{address} lladdr {mac} extern_learn NOARP proto 116");
    eventually(&format!("{interface} has {line}"), || ours(site, interface).contains(&line).then_some(()));
}

fn has_not(site: &Site, interface: &str, address: &str) {
    eventually(&format!("{interface} has no {address}"), || {
        (!ours(site, interface).contains(address)).then_some(())
    });
}

fn number(router: &Router<'_>, what: &str) -> u64 {
    let view = router.one("forwarding");
    view["kernel_sync"]["neighbors"][what].as_u64().unwrap_or_else(|| panic!("{what} is a number: {view}"))
}

/// The router's entry for an address.
fn neighbor(router: &Router<'_>, port: &str, address: &str) -> Option<Value> {
    let all = router.show(&["neighbors"]).expect("the router answers");
    all.into_iter().find(|each| each["port"] == port && each["address"] == address)
}

fn source(router: &Router<'_>, port: &str, address: &str) -> Option<String> {
    neighbor(router, port, address)?["source"].as_str().map(str::to_owned)
}

fn is_from(router: &Router<'_>, port: &str, address: &str, from: &str) {
    eventually(&format!("{address} is from {from}"), || {
        (source(router, port, address).as_deref() == Some(from)).then_some(())
    });
}

#[test]
fn what_the_router_has_resolved_is_on_its_mirrors() {
    let Some(site) = super::site() else { return };
    let (system, office) = (site.router(), site.namespace(OFFICE));
    let mut router = site.run(CONFIG, &[]);
    has(&site, "tw-lan", OFFICE.v4, &mac_text(&site, OFFICE));
    has(&site, "outside0", OUTSIDE.v4, &mac_text(&site, OUTSIDE));
    has(&site, "outside0", "198.51.100.200", "02:00:00:00:02:00");
    assert!(site.pings(OFFICE, OUTSIDE.v6));
    has(&site, "tw-lan", OFFICE.v6, &mac_text(&site, OFFICE));
    assert_eq!(source(&router, "lan", OFFICE.v4).as_deref(), Some("learned"));
    assert_eq!(source(&router, "wan", "198.51.100.200").as_deref(), Some("configured"));
    // The system uses the entry without asking: the answer to a question of its own would not change the entry.
    for address in [OFFICE.v4, OFFICE.v6] {
        let arguments = ["-c", "1", "-W", "5", "-I", "tw-lan", address];
        assert!(site.output(&system, "ping", &arguments).status.success(), "the system reaches {address}");
        has(&site, "tw-lan", address, &mac_text(&site, OFFICE));
    }
    // The router does not take its own entries for others'.
    assert_eq!((number(&router, "imported"), number(&router, "import_drift")), (0, 0));

    // One neighbor changes its MAC address, another disappears.
    site.ip(&office, "link set eth0 down");
    has_not(&site, "tw-lan", OFFICE.v4);
    site.ip(&office, "link set eth0 address 02:00:00:00:77:01");
    site.ip(&office, "link set eth0 up");
    site.ip(&office, "route replace default via 10.1.0.1");
    eventually("packets pass again", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    has(&site, "tw-lan", OFFICE.v4, "02:00:00:00:77:01");

    // Another program deletes one of the router's entries, and adds one that looks like it. What the router mends
    // together with news of its own is not counted, so this may take several attempts.
    let before = number(&router, "export_drift");
    let made_up = "lladdr 02:00:00:00:00:99 dev outside0 nud noarp extern_learn protocol 116";
    eventually("drift is counted", || {
        site.ip(&system, "neigh del 198.51.100.2 dev outside0");
        site.ip(&system, &format!("neigh add 198.51.100.99 {made_up}"));
        has(&site, "outside0", OUTSIDE.v4, &mac_text(&site, OUTSIDE));
        has_not(&site, "outside0", "198.51.100.99");
        (number(&router, "export_drift") >= before + 2).then_some(())
    });
    assert_eq!(number(&router, "import_drift"), 0);
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
    let left = site.said(&system, "ip", &["-d", "neigh", "show", "nud", "all"]);
    assert!(!left.contains("proto 116"), "{left}");
}

#[test]
fn what_people_set_in_the_kernel_is_the_routers_neighbor() {
    let Some(site) = super::site() else { return };
    let system = site.router();
    let router = site.run(CONFIG, &[]);
    let nobody = "02:00:00:00:0b:ad";
    let arp = |command: &str| site.ip(&system, &format!("neigh {command}"));

    // On a mirror and on a port's interface; a link-local address too.
    arp(&format!("add 198.51.100.77 lladdr {nobody} dev outside0 nud permanent"));
    arp(&format!("add 198.51.100.78 lladdr {nobody} dev wan nud noarp"));
    arp(&format!("add fe80::77 lladdr {nobody} dev tw-lan nud permanent"));
    for (port, address) in [("wan", "198.51.100.77"), ("wan", "198.51.100.78"), ("lan", "fe80::77")] {
        is_from(&router, port, address, "kernel");
        let found = neighbor(&router, port, address).expect("it is there");
        assert_eq!((&found["mac"], &found["state"]), (&nobody.into(), &"static".into()), "{found}");
    }
    let view = router.show(&["fib", "198.51.100.77"]).expect("an answer").pop().expect("an answer");
    assert_eq!(
        (&view["action"], &view["next_hops"][0]["mac"]),
        (&"forward".into(), &nobody.into()),
        "{view}"
    );
    // The router does not copy an entry from a mirror to the same mirror; it copies one from the port's
    // interface.
    has(&site, "outside0", "198.51.100.78", nobody);
    assert!(!ours(&site, "outside0").contains("198.51.100.77"));
    assert!(number(&router, "left_alone") >= 2);

    // An address outside of the port's networks, an address from the configuration, and an entry that the kernel
    // has learned.
    arp(&format!("add 203.0.113.77 lladdr {nobody} dev outside0 nud permanent"));
    arp(&format!("replace 198.51.100.200 lladdr {nobody} dev outside0 nud permanent"));
    arp(&format!("add 198.51.100.79 lladdr {nobody} dev wan nud stale"));
    eventually("they are counted", || {
        ((number(&router, "not_on_link"), number(&router, "imported_behind")) == (1, 1)).then_some(())
    });
    assert_eq!(number(&router, "imported"), 3);
    assert_eq!(source(&router, "wan", "198.51.100.200").as_deref(), Some("configured"));
    assert_eq!(neighbor(&router, "wan", "198.51.100.79"), None);
    assert_eq!(neighbor(&router, "wan", "203.0.113.77"), None);

    // Packets follow a person's entry. Once it is deleted, the router asks the neighbor itself.
    arp(&format!("replace 198.51.100.2 lladdr {nobody} dev outside0 nud permanent"));
    is_from(&router, "wan", OUTSIDE.v4, "kernel");
    assert!(
        !site.pings(OFFICE, OUTSIDE.v4),
        "packets must follow the static entry, to an address that does not exist"
    );
    arp("del 198.51.100.2 dev outside0");
    eventually("the neighbor itself was asked", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    assert_eq!(source(&router, "wan", OUTSIDE.v4).as_deref(), Some("learned"));
    arp("del 198.51.100.77 dev outside0");
    eventually("the unanswered neighbor is removed", || {
        neighbor(&router, "wan", "198.51.100.77").is_none_or(|found| found["mac"].is_null()).then_some(())
    });

    // After a reload, an entry of the old configuration comes from the kernel, and one that was not on link is.
    let configured =
        "\n[[neighbors]]\nport = \"wan\"\naddress = \"198.51.100.200\"\nmac = \"02:00:00:00:02:00\"\n";
    let other =
        CONFIG.replace(configured, "").replace("198.51.100.1/24", "198.51.100.1/24\", \"203.0.113.1/24");
    assert_ne!(other.len(), CONFIG.len());
    router.reload(&other).expect("the reload succeeds");
    is_from(&router, "wan", "198.51.100.200", "kernel");
    is_from(&router, "wan", "203.0.113.77", "kernel");
    eventually("the counters change", || {
        let counts = ["imported", "imported_behind", "not_on_link"].map(|what| number(&router, what));
        (counts == [4, 0, 0]).then_some(())
    });
    assert_eq!(number(&router, "import_drift"), 0, "{}", router.one("forwarding"));
    router.counters_add_up();
}

/// A scan of a /64, and of all addresses of an IPv4 network, adds nothing to the kernel's table.
#[test]
fn a_scan_leaves_the_kernels_table_as_it_is() {
    let Some(site) = super::site() else { return };
    let router = site.run(CONFIG, &[]);
    assert!(site.pings(OFFICE, GUEST.v6) && site.pings(OFFICE, GUEST.v4));
    has(&site, "tw-guest", GUEST.v4, &mac_text(&site, GUEST));
    has(&site, "tw-guest", GUEST.v6, &mac_text(&site, GUEST));
    // Ignores the guest's own link-local address, which may appear at any time.
    let known = || {
        let all = ours(&site, "tw-guest");
        all.lines()
            .filter(|line| !line.starts_with("fe80:"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let before = known();
    let (v4, v6) = site.within(&site.namespace(OFFICE), || {
        (UdpSocket::bind("0.0.0.0:0").expect("a port"), UdpSocket::bind("[::]:0").expect("a port"))
    });
    for host in 0..3000u32 {
        // The hosts do not exist; the socket may report that.
        let _ = v6.send_to(b"?", format!("[2001:db8:2::1:{host:x}]:9"));
        let _ = v4.send_to(b"?", format!("10.2.0.{}:9", 3 + host % 250));
    }
    eventually("the router has asked for some", || {
        let all = router.show(&["neighbors"]).expect("the router answers");
        all.iter().any(|each| each["port"] == "guest" && each["mac"].is_null()).then_some(())
    });
    assert_eq!(known(), before);
    let entries = site.said(&site.router(), "ip", &["neigh", "show", "dev", "tw-guest", "nud", "all"]);
    assert!(entries.lines().count() < 30, "the kernel did not resolve them either: {entries}");
    router.counters_add_up();
}
