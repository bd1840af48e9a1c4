//! One reload changes everything: routes, NAT, an access list, and BGP's imports and exports. BIRD is the
//! neighbor, through a mirror; its session stays up, and no datagram is lost.

use std::fs;

use serde_json::Value;

use super::{BEYOND, PER_CONFIGURATION, Traffic};
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually, has};

const OTHER_GATEWAY: &str = "198.51.100.3";

/// The parts that differ between configurations.
#[derive(Clone, Copy)]
struct Settings {
    /// A prefix that BIRD announces and the router rejects.
    unwanted: &'static str,
    /// The next hop that import sets for the route to the server.
    next_hop: &'static str,
    /// Networks that the router announces to BIRD.
    networks: &'static str,
    routes: &'static str,
    nat: &'static str,
    list: &'static str,
}

const FIRST: Settings = Settings {
    unwanted: "198.18.1.0/24",
    next_hop: OUTSIDE.v4,
    networks: "\"10.1.0.0/24\"",
    routes: "",
    nat: "",
    list: "",
};

const SECOND: Settings = Settings {
    unwanted: "198.18.2.0/24",
    next_hop: OTHER_GATEWAY,
    networks: "\"10.1.0.0/24\", \"10.2.0.0/24\"",
    routes: "[[routes]]\nprefix = \"198.18.3.0/24\"\nvia = \"198.51.100.3\"\n",
    nat: "inbound_refresh = true\n[nat.timeouts]\nudp_s = 200\n",
    list: "acl_in = \"out\"\n",
};

fn config(driver: &str, settings: &Settings) -> String {
    let port = |host: Host, more: &str| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"{driver}\"\naddresses = [\"{1}/24\"]\n{more}\n",
            host.port, host.gateway_v4
        )
    };
    let Settings { unwanted, next_hop, networks, routes, nat, list } = settings;
    let ports = [port(OFFICE, list), port(GUEST, ""), port(OUTSIDE, "mirror = \"outside0\"\n")].concat();
    format!(
        r#"{ports}
[nat]
outside = "wan"
inside = ["lan", "guest"]
addresses = ["198.51.100.1"]
{nat}
{routes}
[[acl]]
name = "out"
default = "permit"

[[acl.rules]]
action = "deny"
destination = "192.0.2.0/24"

[bgp]
as = 65001
router_id = "198.51.100.1"
install = "fib"
networks = [{networks}]

[[bgp.neighbor]]
address = "198.51.100.2"
as = 65002
import = "from-outside"
export = "accept"

[policy.prefix_sets]
unwanted = ["{unwanted}"]
beyond = ["203.0.113.0/24"]

[[policy.rules.from-outside]]
match = {{ prefix = "unwanted" }}
action = "reject"

[[policy.rules.from-outside]]
match = {{ prefix = "beyond" }}
set = {{ next_hop = "{next_hop}" }}
action = "accept"

[[policy.rules.from-outside]]
default = "accept"
"#
    )
}

/// The arguments of BIRD at a host.
fn bird(site: &Site, host: Host) -> [String; 2] {
    let networks = ["203.0.113.0/24", "198.18.1.0/24", "198.18.2.0/24", "198.18.3.0/24"];
    let networks: String = networks.map(|network| format!("route {network} blackhole; ")).concat();
    let text = format!(
        "router id {0};\nprotocol device {{}}\nprotocol static {{ ipv4; {networks}}}\n\
         protocol bgp peer {{ local {0} as 65002; neighbor {1} as 65001; connect delay time 1;\n\
         ipv4 {{ import all; export all; }}; }}\n",
        host.v4, host.gateway_v4
    );
    let file = site.file(&format!("{}.conf", host.port));
    fs::write(&file, text).expect("the folder is writable");
    [file, site.file(&format!("{}.ctl", host.port))].map(|path| path.display().to_string())
}

fn fib(router: &Router<'_>, destination: &str) -> Value {
    router.show(&["fib", destination]).expect("the router answers").pop().expect("an answer")
}

/// Waits until both sides have the routes that the configuration asks for.
fn tables_are(site: &Site, router: &Router<'_>, control: &str, settings: &Settings) {
    let is_second = settings.unwanted == SECOND.unwanted;
    let leads = |destination: &str| {
        let view = fib(router, destination);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&view["source"]), text(&view["neighbor"]), text(&view["action"]))
    };
    let is_from_bgp = |gateway: &str| ("bgp".to_owned(), gateway.to_owned(), "forward".to_owned());
    let [refused, taken] = match is_second {
        true => ["198.18.2.1", "198.18.1.1"],
        false => ["198.18.1.1", "198.18.2.1"],
    };
    let own = match is_second {
        true => ("configured".to_owned(), OTHER_GATEWAY.to_owned(), "forward".to_owned()),
        false => is_from_bgp(OUTSIDE.v4),
    };
    eventually("the forwarding table is as configured", || {
        let now = (leads(refused).2, leads(taken), leads(BEYOND), leads("198.18.3.1"));
        let wanted =
            ("no route".to_owned(), is_from_bgp(OUTSIDE.v4), is_from_bgp(settings.next_hop), own.clone());
        (now == wanted).then_some(())
    });
    eventually("the neighbor has what is announced", || {
        let said =
            site.output(&site.router(), "birdc", &["-s", control, "show", "route", "protocol", "peer"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        (said.contains("10.1.0.0/24") && said.contains("10.2.0.0/24") == is_second).then_some(())
    });
}

fn at_once(driver: &str) {
    let Some(site) = Site::new() else { return };
    if !has("bird") {
        return;
    }
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, &format!("addr add {BEYOND}/32 dev lo"));
    site.ip(&outside, &format!("addr add {OTHER_GATEWAY}/24 dev eth0"));
    let mut router = site.run(&config(driver, &FIRST), &[]);
    let [file, control] = bird(&site, OUTSIDE);
    let mut neighbor = site.start(&outside, "bird", &["-f", "-c", &file, "-s", &control]);
    tables_are(&site, &router, &control, &FIRST);
    eventually("the server beyond answers", || site.pings(OFFICE, BEYOND).then_some(()));
    eventually("guests are reachable", || site.pings(GUEST, OFFICE.v4).then_some(()));
    let session = || {
        let one = router.show(&["bgp", "neighbors"]).expect("the router answers").pop().expect("a neighbor");
        let number = |key: &str| one[key].as_u64().unwrap_or_else(|| panic!("{key}: {one}"));
        (one["state"].as_str().map(str::to_owned), number("flaps"), number("uptime_s"))
    };
    let (state, flaps, mut uptime_s) = session();
    assert_eq!((state.as_deref(), flaps), (Some("Established"), 0));
    let lost_at_first = super::lost(&router.one("counters"));
    let traffic = Traffic::start(&site);
    traffic.passes(&router, PER_CONFIGURATION);
    for settings in [SECOND, FIRST, SECOND, FIRST] {
        let said = router.reload(&config(driver, &settings)).expect("the reload succeeds");
        assert!(said.contains("paused ") && said.contains("network"), "{said}");
        traffic.passes(&router, PER_CONFIGURATION);
        tables_are(&site, &router, &control, &settings);
        traffic.passes(&router, PER_CONFIGURATION);
        let (state, flaps, now_s) = session();
        assert_eq!((state.as_deref(), flaps), (Some("Established"), 0), "the session stays up");
        assert!(now_s >= uptime_s, "{now_s} s, before {uptime_s} s");
        uptime_s = now_s;
    }

    // If BGP refuses a reload, no part of it takes effect: an unknown policy first, then a configuration without
    // BGP.
    let before = router.one("counters")["dropped"].clone();
    let wrong = config(driver, &SECOND).replace("import = \"from-outside\"", "import = \"nobody\"");
    assert!(router.reload(&wrong).expect_err("there are no such rules").contains("nobody"));
    let without = config(driver, &SECOND);
    let without = without.split("[bgp]").next().expect("a first part");
    assert!(router.reload(without).expect_err("BGP needs a restart").contains("[bgp]"));
    tables_are(&site, &router, &control, &FIRST);
    traffic.passes(&router, PER_CONFIGURATION);
    assert_eq!(router.one("counters")["dropped"], before);

    let (sent, seen) = traffic.end();
    assert!(sent > 5 * 9 * PER_CONFIGURATION, "{sent}");
    for (client, addresses) in &seen {
        assert_eq!(addresses.len(), 1, "client {client} kept its public endpoint over all: {addresses:?}");
    }
    let counters = router.counters_add_up();
    assert_eq!(super::lost(&counters), lost_at_first, "{counters}");
    assert!(neighbor.end() && router.process.end(), "the daemons stop with success");
}

#[test]
fn with_bgp_by_af_packet() {
    at_once("af_packet");
}

#[test]
fn with_bgp_by_af_xdp() {
    at_once("af_xdp");
}

/// A port with a BGP neighbor comes and goes: the session starts and ends with it, and the session on another
/// port stays up.
#[test]
fn a_port_with_a_neighbor_comes_and_goes() {
    let Some(site) = Site::new() else { return };
    if !has("bird") {
        return;
    }
    let port = |host: Host| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"af_packet\"\nmirror = true\naddresses = [\"{1}/24\"]\n",
            host.port, host.gateway_v4
        )
    };
    let neighbor = |host: Host| {
        format!(
            "[[bgp.neighbor]]\naddress = \"{}\"\nas = 65002\nimport = \"accept\"\nexport = \"accept\"\n",
            host.v4
        )
    };
    let bgp = "[bgp]\nas = 65001\nrouter_id = \"198.51.100.1\"\ninstall = \"fib\"\n";
    let two = [port(OFFICE), port(OUTSIDE), bgp.to_owned(), neighbor(OUTSIDE)].concat();
    let three = format!("{}{two}{}", port(GUEST), neighbor(GUEST));
    let mut router = site.run_alone(&two, &[]);
    let mut birds = Vec::new();
    for host in [OUTSIDE, GUEST] {
        let [file, control] = bird(&site, host);
        birds.push(site.start(&site.namespace(host), "bird", &["-f", "-c", &file, "-s", &control]));
    }
    let session = |host: Host| {
        let all = router.show(&["bgp", "neighbors"])?;
        let one = all.into_iter().find(|each| each["address"] == host.v4)?;
        Some((one["state"].as_str()?.to_owned(), one["flaps"].as_u64()?))
    };
    let is_up = |host: Host| session(host).filter(|(state, _)| state == "Established");
    eventually("the first session comes", || is_up(OUTSIDE));
    for flaps in 1..=2 {
        assert!(router.reload(&three).expect("the reload succeeds").contains("port guest: added"));
        eventually("the session on the new port comes", || is_up(GUEST));
        // The neighbor stays configured; its session ends with the port, long before the hold time.
        let without = format!("{two}{}", neighbor(GUEST));
        assert!(router.reload(&without).expect("the reload succeeds").contains("port guest: removed"));
        eventually("it ends with the port", || session(GUEST).filter(|(_, ended)| *ended == flaps));
        assert!(is_up(GUEST).is_none());
        assert_eq!(is_up(OUTSIDE), Some(("Established".to_owned(), 0)), "the other goes on");
    }
    assert!(birds.iter_mut().all(|bird| bird.end()) && router.process.end(), "the daemons stop with success");
}
