//! What operators ask a router on live interfaces: is it healthy, which rule matched, what are the rates, which
//! routes are there.

use serde_json::Value;

use crate::site::{GUEST, OFFICE, OUTSIDE, Site, eventually};

/// An access list whose first rule counts pings, and a policer for all packets.
const CONFIG: &str = r#"
[ports.lan]
interface = "lan"
addresses = ["10.1.0.1/24"]
acl_in = "from-lan"

[ports.guest]
interface = "guest"
addresses = ["10.2.0.1/24"]

[ports.wan]
interface = "wan"
addresses = ["198.51.100.1/24"]

[[routes]]
prefix = "203.0.113.0/24"
via = "198.51.100.2"

[[routes]]
prefix = "192.0.2.0/24"
action = "blackhole"

[nat]
outside = "wan"
inside = ["lan", "guest"]

[[acl]]
name = "from-lan"
default = "permit"
[[acl.rules]]
name = "pings"
action = "permit"
protocol = "icmp"

[[qos.classes]]
name = "default"
[qos.classes.policer]
kind = "srtcm"
cir = "100 Mbit/s"
cbs = 1000000
ebs = 0

[[qos.egress]]
port = "wan"
rate = "500 Mbit/s"
"#;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_router_without_bgp_answers_every_question() {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(CONFIG, &[]);
    let many = ["-c", "20", "-i", "0.01", OUTSIDE.v4];
    site.said(&site.namespace(OFFICE), "ping", &many);

    // The rule that matched, and the policer.
    let rules = router.show(&["acl"]).expect("it answers");
    let rule = |name: &str| rules.iter().find(|rule| rule["rule"] == name).expect("it is there");
    assert!(number(&rule("pings")["packets"]) >= 20, "{rules:?}");
    assert_eq!(rule("pings")["ports_in"], serde_json::json!(["lan"]));
    assert_eq!(number(&rule("default")["packets"]), 0, "{rules:?}");
    let policer = router.one("policers");
    assert_eq!((&policer["class"], &policer["red"]), (&"default".into(), &0.into()));
    assert!(number(&policer["green"]) >= 40, "{policer}");

    // Rates appear once counters have been read twice.
    eventually("the port has a rate", || {
        site.said(&site.namespace(OFFICE), "ping", &many);
        let ports = router.show(&["ports"])?;
        let rates = ports.iter().find(|port| port["name"] == "lan")?.get("rates")?.clone();
        (rates["packets_received_per_s"].as_u64()? > 0 && rates["bits_sent_per_s"].as_u64()? > 0)
            .then_some(())
    });
    eventually("the queue has a rate", || {
        site.said(&site.namespace(OFFICE), "ping", &many);
        router
            .show(&["queues"])?
            .iter()
            .find(|queue| number(&queue["rates"]["packets_per_s"]) > 0)
            .map(|_| ())
    });

    // A list that a reload does not change keeps its counters.
    let before = number(&router.show(&["acl"]).expect("it answers")[0]["packets"]);
    let said =
        router.reload(&CONFIG.replace("203.0.113.0/24", "203.0.113.0/25")).expect("the reload succeeds");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("1 route added, 1 removed; "), "{said}");
    assert!(last.contains(" kept; paused ") && last.ends_with('s'), "{said}");
    assert!(number(&router.show(&["acl"]).expect("it answers")[0]["packets"]) >= before);

    // Routes without BGP, by both command names.
    let routes = router.show(&["fib"]).expect("it answers");
    let source = |prefix: &str| {
        let route =
            routes.iter().find(|route| route["prefix"] == prefix).unwrap_or_else(|| panic!("{prefix}"));
        (
            route["source"].as_str().unwrap_or_default().to_owned(),
            route["action"].as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(source("10.1.0.0/24"), ("connected".to_owned(), "forward".to_owned()));
    assert_eq!(source("203.0.113.0/25"), ("configured".to_owned(), "forward".to_owned()));
    assert_eq!(source("192.0.2.0/24").0, "configured");
    assert_eq!(router.show(&["routes"]).expect("it answers"), routes);
    assert_eq!(router.show(&["fib", "--source", "configured"]).expect("it answers").len(), 2);
    assert_eq!(
        router.show(&["fib", "--inside", "10.1.0.0/16", "--limit", "1"]).expect("it answers").len(),
        1
    );
    assert!(router.show(&["bgp", "routes", "--neighbor", "x"]).is_none(), "there are no neighbors");

    // A port that is down is reported as the problem.
    let status = router.one("status");
    assert_eq!(
        (&status["ports"]["up"], &status["problems"]),
        (&3.into(), &serde_json::json!([])),
        "{status}"
    );
    assert!(number(&status["nat"]["sessions_max"]) > 0 && number(&status["memory_bytes"]) > 0, "{status}");
    site.ip(&site.namespace(GUEST), "link set eth0 down");
    eventually("it says that the port is down", || {
        let status = router.one("status");
        let problem = status["problems"].as_array()?.first()?.as_str()?.to_owned();
        (status["ports"]["down"] == 1 && problem.contains("port guest is down: interface guest has no link"))
            .then_some(())
    });
    assert_eq!(router.one("version")["router"], env!("CARGO_PKG_VERSION"));
    assert!(router.one("config")["text"].as_str().is_some_and(|text| text.contains("203.0.113.0/25")));

    // Output for people, on terminals of any width.
    let questions =
        ["ports", "counters", "queues", "acl", "policers", "arp", "nat", "fib", "routes", "forwarding"];
    for width in [60, 80, 100, 200] {
        for question in questions {
            let text = router.said(&[question], width);
            let long = text.lines().find(|line| line.chars().count() > width);
            assert!(!text.is_empty() && long.is_none(), "{question} at {width}: {long:?}\n{text}");
        }
    }
    assert!(router.said(&["status"], 80).contains("\nwrong:\n  port guest is down"));
    assert!(router.process.end(), "the router stops with success");
}
