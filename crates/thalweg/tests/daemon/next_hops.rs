//! Next hops and the kernel's routes, in a namespace: BGP prefers the nearer next hop, and does not use an
//! unreachable one.

use std::path::Path;

use crate::namespace::{in_namespace, ip};
use crate::router::{Router, eventually, free_port, neighbor, speaker};

const NETWORK: &str = "203.0.113.0/24";
/// Its next hop lies in [`NETWORK`].
const BEHIND: &str = "203.0.112.0/24";
const OWN: &str = "198.51.100.0/24";

/// Routes of r2 have next hop 192.0.2.2, those of r3 192.0.3.3; r4 receives the best.
const POLICY: &str = r#"
[[policy.rules.by-2]]
match = { prefix = "203.0.112.0/24" }
set = { next_hop = "203.0.113.7" }
action = "accept"
[[policy.rules.by-2]]
set = { next_hop = "192.0.2.2" }
action = "accept"
[[policy.rules.by-3]]
set = { next_hop = "192.0.3.3" }
action = "accept"
"#;

/// The router under test and three neighbors on loopback.
struct Four {
    one: Router,
    four: Router,
    _others: [Router; 2],
}

impl Four {
    fn start(directory: &Path, keys: &str) -> Self {
        let port = free_port();
        let from = |other: u8| {
            let import = format!("import = \"by-{other}\"");
            neighbor(1, other, port).replacen("import = \"accept\"", &import, 1)
        };
        let (from_2, from_3, to_4) = (from(2), from(3), neighbor(1, 4, port));
        let own = format!("networks = [{OWN:?}]\n{keys}\n");
        let one = [&speaker(1, port), own.as_str(), &from_2, &from_3, &to_4, POLICY].concat();
        let one = Router::start(directory, "one", &one);
        let other = |number: u8, name: &str, networks: &[&str]| {
            let config =
                format!("{}networks = {networks:?}\n{}", speaker(number, port), neighbor(number, 1, port));
            Router::start(directory, name, &config)
        };
        let others = [other(2, "two", &[NETWORK, BEHIND]), other(3, "three", &[NETWORK])];
        Self { one, four: other(4, "four", &[]), _others: others }
    }

    /// Waits until r4 has the network through this AS, or (`None`) does not have it.
    #[track_caller]
    fn await_best(&self, what: &str, asn: Option<u32>) {
        let wanted = asn.map(|asn| format!("64501 {asn}"));
        eventually(what, || {
            let routes = self.four.json(&["bgp", "route", NETWORK, "--exact"]);
            let path = routes.first().map(|route| route["as_path"].as_str().unwrap_or_default().to_owned());
            (path == wanted).then_some(())
        });
    }

    /// The router's explanation of a neighbor's path.
    fn why(&self, prefix: &str, neighbor: &str) -> String {
        let paths = self.one.json(&["bgp", "route", prefix, "--exact", "--why"]);
        let path = paths.iter().find(|path| path["neighbor"] == neighbor).expect("the path is there");
        path["why"].as_str().expect("a reason").to_owned()
    }
}

/// Two links with one gateway each, and a route through each.
fn prepare() {
    for command in [
        "link add v0 type veth peer name v1",
        "link add w0 type veth peer name w1",
        "link set v0 up",
        "link set v1 up",
        "link set w0 up",
        "link set w1 up",
        "address add 198.18.0.1/24 dev v0",
        "address add 198.18.1.1/24 dev w0",
        "route add 192.0.2.0/24 via 198.18.0.2 metric 10",
        "route add 192.0.3.0/24 via 198.18.1.2 metric 20",
    ] {
        ip(command);
    }
}

/// Waits until the kernel has the network via `via`, or not at all (`None`). Returns at once if routes are not
/// installed.
#[track_caller]
fn await_kernel(installs: bool, via: Option<&str>) {
    if installs {
        eventually("the kernel follows", || {
            let routes = ip(&format!("route show {NETWORK} proto 116"));
            match via {
                Some(via) => routes.contains(&format!("via {via} ")),
                None => routes.is_empty(),
            }
            .then_some(())
        });
    }
}

fn best_routes_follow_the_kernel(keys: &str, installs: bool) {
    let directory = tempfile::tempdir().expect("a folder");
    prepare();
    let four = Four::start(directory.path(), keys);

    four.await_best("the nearer one at first", Some(64502));
    eventually("the other is known", || (four.one.json(&["bgp", "route", NETWORK]).len() == 2).then_some(()));
    assert_eq!(four.why(NETWORK, "r3"), "next hop farther away than r2 (cost 20, not 10)");
    await_kernel(installs, Some("198.18.0.2"));
    // A BGP route does not make another route's next hop reachable.
    assert_eq!(four.why(BEHIND, "r2"), "next hop 203.0.113.7 unreachable");
    four.four.await_route(OWN);

    // The nearer gateway did not answer the kernel's ARP requests. The kernel forgets that after a while, but only
    // an answer makes the gateway reachable again.
    ip("neighbor replace 198.18.0.2 dev v0 lladdr 02:00:00:00:00:02 nud reachable");
    ip("neighbor replace 198.18.0.2 dev v0 nud failed");
    four.await_best("its gateway is silent", Some(64503));
    assert_eq!(four.why(NETWORK, "r2"), "next hop 192.0.2.2 unreachable");
    await_kernel(installs, Some("198.18.1.2"));
    ip("neighbor replace 198.18.0.2 dev v0 lladdr 02:00:00:00:00:02 nud reachable");
    four.await_best("its gateway answers", Some(64502));
    await_kernel(installs, Some("198.18.0.2"));

    // For the kernel, another metric makes another route; the lowest metric counts.
    ip("route replace 192.0.3.0/24 via 198.18.1.2 metric 5");
    four.await_best("the other is nearer now", Some(64503));
    assert_eq!(four.why(NETWORK, "r2"), "next hop farther away than r3 (cost 10, not 5)");
    await_kernel(installs, Some("198.18.1.2"));
    ip("route del 192.0.3.0/24 metric 5");
    four.await_best("the first one is nearer again", Some(64502));

    ip("link set v0 down");
    four.await_best("the link is down", Some(64503));
    assert_eq!(four.why(NETWORK, "r2"), "next hop 192.0.2.2 unreachable");
    await_kernel(installs, Some("198.18.1.2"));
    ip("link set w0 down");
    four.await_best("both links are down", None);
    await_kernel(installs, None);
    assert!(four.one.json(&["bgp", "route", NETWORK]).iter().all(|path| path["best"] == false));
    four.four.await_route(OWN);

    // The kernel deleted the routes of links that went down.
    ip("link set w0 up");
    ip("route add 192.0.0.0/16 via 198.18.1.3");
    four.await_best("a shorter prefix reaches both next hops", Some(64502));
    assert_eq!(four.why(NETWORK, "r3"), "higher router identifier than r2");
    await_kernel(installs, Some("198.18.1.3"));
    ip("route add unreachable 192.0.2.2/32");
    four.await_best("an unreachable route covers the next hop", Some(64503));
}

#[test]
fn best_routes_follow_the_kernel_that_has_them() {
    in_namespace("next_hops::best_routes_follow_the_kernel_that_has_them", || {
        best_routes_follow_the_kernel("install = \"kernel\"", true);
    });
}

#[test]
fn best_routes_follow_the_kernel_that_is_only_asked() {
    in_namespace("next_hops::best_routes_follow_the_kernel_that_is_only_asked", || {
        best_routes_follow_the_kernel("install = \"none\"\nnext_hop_check = \"kernel\"", false);
    });
}
