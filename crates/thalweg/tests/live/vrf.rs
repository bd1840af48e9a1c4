//! Two hosts with one address, each in a VRF, and a third in the main table.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use serde_json::Value;
use thalweg_flow::FlowRecord;
use thalweg_testdata::{uninterrupted, with_room};

use crate::dead_ways::{BGP, Bird, SLOW, bird, neighbor};
use crate::flows::collected;
use crate::programs::a_file_is_fetched;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Site, eventually, has};

/// The office's and the guest's ports have the same address, and both hosts have the office's.
const PORTS: &str = "[ports.lan]\ninterface = \"lan\"\ndriver = \"af_packet\"\naddresses = \"10.1.0.1/24\"\nvrf = \"red\"\n\n\
     [ports.guest]\ninterface = \"guest\"\ndriver = \"af_packet\"\naddresses = \"10.1.0.1/24\"\nvrf = \"blue\"\n\n\
     [ports.wan]\ninterface = \"wan\"\ndriver = \"af_packet\"\naddresses = \"198.51.100.1/24\"\n\n\
     [vrfs.red]\n[vrfs.blue]\n\n";

/// What lets a VRF reach the outside, and be answered.
fn leaks(vrf: &str) -> String {
    format!(
        "[[vrfs.{vrf}.leaks]]\nfrom = \"main\"\nprefixes = \"198.51.100.0/24\"\n\n\
         [[vrfs.main.leaks]]\nfrom = \"{vrf}\"\nprefixes = \"10.1.0.0/24\"\n\n"
    )
}

fn site() -> Option<Site> {
    let site = Site::new()?;
    let guest = site.namespace(GUEST);
    site.ip(&guest, &format!("addr del {}/24 dev eth0", GUEST.v4));
    site.ip(&guest, &format!("addr add {}/24 dev eth0", OFFICE.v4));
    site.ip(&guest, &format!("route replace default via {}", OFFICE.gateway_v4));
    site.ip(&site.namespace(OUTSIDE), &format!("route add 10.1.0.0/24 via {}", OUTSIDE.gateway_v4));
    Some(site)
}

#[test]
fn hosts_with_one_address_do_not_meet() {
    let Some(site) = site() else { return };
    let router = site.run_alone(&format!("{PORTS}{}", leaks("red")), &[]);
    for host in [OFFICE, GUEST] {
        eventually("the port's own address answers", || site.pings(host, OFFICE.gateway_v4).then_some(()));
    }
    eventually("the office reaches the outside", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    assert!(!site.pings(GUEST, OUTSIDE.v4), "blue leaks nothing");
    assert!(router.dropped("no-route") > 0);
    let said = site.output(&site.namespace(GUEST), "ping", &["-c", "1", "-W", "1", OUTSIDE.v4]).stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("From 10.1.0.1") && said.contains("Unreachable"), "blue's address says so: {said}");
    let vrfs = router.show(&["vrf"]).expect("the router answers");
    let shown: Vec<(Value, Value)> =
        vrfs.iter().map(|vrf| (vrf["name"].clone(), vrf["ports"][0].clone())).collect();
    let expected = [("main", "wan"), ("red", "lan"), ("blue", "guest")];
    assert_eq!(shown, expected.map(|(name, port)| (Value::from(name), Value::from(port))));
    let by = |vrf: &str| {
        let view = router.show(&["fib", OFFICE.v4, "--vrf", vrf])?.pop()?;
        Some((view["vrf"].clone(), view["port"].clone()))
    };
    assert_eq!(by("red"), Some(("red".into(), "lan".into())));
    assert_eq!(by("blue"), Some(("blue".into(), "guest".into())));
    assert_eq!(by("main"), Some(("red".into(), "lan".into())), "leaked");
    assert_eq!(by("green"), None);
    let leaked = router.show(&["routes", "--vrf", "red"]).expect("the router answers");
    assert!(
        leaked.iter().any(|route| route["leaks_from"] == "main" && route["action"] == "leak"),
        "{leaked:?}"
    );

    programs_cross_the_leak(&site);

    // With a firewall, and what answers the guest is chosen by a rule: both hosts reach the outside at the same time.
    let by_rule = "[[vrfs.blue.leaks]]\nfrom = \"main\"\nprefixes = \"198.51.100.0/24\"\n\n\
         [[routing.rules]]\nname = \"answers\"\nfrom = \"wan\"\nprotocol = \"tcp\"\nsource_ports = 8080\nvrf = \"blue\"\n\n\
         [firewall]\noutside = \"out\"\n[firewall.zones]\nin = [\"lan\", \"guest\"]\nout = \"wan\"\n";
    router.reload(&format!("{PORTS}{}{by_rule}", leaks("red"))).expect("the reload");
    eventually("the office reaches the outside through the firewall", || {
        site.pings(OFFICE, OUTSIDE.v4).then_some(())
    });
    a_file_is_fetched(&site, &site.namespace(GUEST));
    assert!(!site.pings(GUEST, OUTSIDE.v4), "the rule is about TCP");
    // Both hosts have one address.
    let connections = |vrf: &str| {
        let shown = router
            .show(&["firewall", "--vrf", vrf, "--destination", OUTSIDE.v4])
            .expect("the router answers");
        let of = |state: &Value| {
            [&state["protocol"], &state["source_vrf"], &state["destination_vrf"]].map(Value::to_string)
        };
        shown.iter().map(of).collect::<BTreeSet<_>>()
    };
    let [icmp, tcp, red, blue, main] =
        ["icmp", "tcp", "red", "blue", "main"].map(|word| format!("\"{word}\""));
    let expected = |protocol: &String, vrf: &String| [protocol.clone(), vrf.clone(), main.clone()];
    assert_eq!(connections("red"), BTreeSet::from([expected(&icmp, &red)]));
    assert!(connections("blue").contains(&expected(&tcp, &blue)), "{:?}", connections("blue"));
    assert!(connections("main").is_superset(&connections("blue")));
    let trace = router.trace(&format!("wan ip {} -> {} tcp 8080 -> 40000", OUTSIDE.v4, OFFICE.v4));
    let rule = trace["steps"].as_array().expect("steps").iter().find(|step| step["stage"] == "routing rule");
    assert_eq!(rule.expect("a rule")["verdict"], "as the routes of blue say", "{trace}");

    // The outside is the guest's now.
    router.reload(&format!("{PORTS}{}", leaks("blue"))).expect("the reload");
    eventually("the guest reaches the outside", || site.pings(GUEST, OUTSIDE.v4).then_some(()));
    assert!(!site.pings(OFFICE, OUTSIDE.v4));
    // The guest's port moves to the main table, and its VRF is gone.
    let text = PORTS.replace("vrf = \"blue\"\n", "").replace("[vrfs.blue]\n", "");
    router.reload(&text).expect("the reload");
    assert_eq!(router.show(&["vrf"]).expect("the router answers").len(), 2);
    eventually("its neighbors are there too", || site.pings(GUEST, OUTSIDE.v4).then_some(()));
    assert!(!site.pings(OFFICE, OUTSIDE.v4));
    assert!(site.pings(OFFICE, OFFICE.gateway_v4), "red is as before");
    router.counters_add_up();
}

/// BIRD speaks to the main table by a mirror; a host of a VRF reaches what it announces by a leak of everything.
#[test]
fn a_leak_reaches_what_bgp_learns() {
    const BEYOND: &str = "203.0.113.7";
    let Some(site) = site() else { return };
    if !has("bird") {
        return;
    }
    let transit = Bird { transit: OUTSIDE, asn: 65003, ..SLOW };
    site.ip(&site.namespace(OUTSIDE), &format!("addr add {BEYOND}/32 dev lo"));
    let everything = leaks("red").replace("prefixes = \"198.51.100.0/24\"", "prefixes = \"0.0.0.0/0\"");
    let ports = PORTS.replace("\"198.51.100.1/24\"\n", "\"198.51.100.1/24\"\nmirror = true\n");
    let router = site.run_alone(&format!("{ports}{everything}{BGP}{}", neighbor(&transit)), &[]);
    let mut speaker = bird(&site, &transit);
    eventually("what BGP learned is leaked", || site.pings(OFFICE, BEYOND).then_some(()));
    assert!(!site.pings(GUEST, BEYOND), "blue has no leak");
    let view = router.show(&["fib", BEYOND, "--vrf", "red"]).expect("the router answers");
    assert_eq!((&view[0]["vrf"], &view[0]["source"]), (&"main".into(), &"bgp".into()), "{view:?}");
    speaker.kill();
    eventually("what BGP withdrew is no longer leaked", || (!site.pings(OFFICE, BEYOND)).then_some(()));
    router.counters_add_up();
}

/// Both hosts with one address reach a server at once, under one public address; the server's answers find their VRF. A
/// forward leads to one of them. A reload ends the sessions of a port that moves, and no others.
#[test]
fn hosts_with_one_address_share_a_public_one() {
    let Some(site) = site() else { return };
    let leak =
        |vrf: &str| format!("[[vrfs.{vrf}.leaks]]\nfrom = \"main\"\nprefixes = \"198.51.100.0/24\"\n\n");
    let nat = "[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\n\n\
         [[nat.forwards]]\nprotocol = \"tcp\"\nport = 8081\nto = \"10.1.0.2:81\"\nvrf = \"blue\"\n";
    let nat = nat.replace("10.1.0.2", OFFICE.v4);
    let text = format!("{PORTS}{}{}{nat}", leak("red"), leak("blue"));
    let router = site.run_alone(&text, &[]);
    for host in [OFFICE, GUEST] {
        eventually("the outside answers", || site.pings(host, OUTSIDE.v4).then_some(()));
    }
    let listener = site.within(&site.namespace(OUTSIDE), || TcpListener::bind((OUTSIDE.v4, 7070)));
    let listener = listener.expect("a port");
    let from = |host: Host| {
        let stream = site.within(&site.namespace(host), || TcpStream::connect((OUTSIDE.v4, 7070)));
        (stream.expect("the server answers"), listener.accept().expect("it connects").0)
    };
    let pairs = [from(OFFICE), from(GUEST)];
    for (n, (client, server)) in (0u8..).zip(&pairs) {
        let mut got = [0];
        let (mut client, mut server) = (client, server);
        client.write_all(&[n]).expect("sent");
        uninterrupted(|| server.read(&mut got)).expect("it arrives");
        server.write_all(&got).expect("sent");
        uninterrupted(|| client.read(&mut got)).expect("it comes back");
        assert_eq!(got, [n]);
        assert_eq!(server.peer_addr().expect("an end").ip().to_string(), OUTSIDE.gateway_v4);
    }
    for host in [OFFICE, GUEST] {
        a_file_is_fetched(&site, &site.namespace(host));
    }
    let sessions = |arguments: &[&str]| {
        let all = [&["nat", "--protocol", "tcp", "--inside", OFFICE.v4], arguments].concat();
        let shown = router.show(&all)?;
        let is_there = |session: &&Value| session["remote"] == format!("{}:7070", OUTSIDE.v4);
        Some(shown.iter().filter(is_there).map(|session| session["vrf"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(sessions(&["--vrf", "red"]), Some(vec!["red".into()]));
    assert_eq!(sessions(&["--vrf", "blue"]), Some(vec!["blue".into()]));
    assert_eq!(sessions(&["--vrf", "main"]), Some(Vec::new()));
    assert_eq!(sessions(&["--vrf", "green"]), None, "there is none");
    assert!(router.said(&["nat"], 200).contains(" in red"));

    // From outside to the guest, by the forward, and what a trace says of it.
    let guest = site.within(&site.namespace(GUEST), || TcpListener::bind((OFFICE.v4, 81))).expect("a port");
    let outside = site.namespace(OUTSIDE);
    let asked = site.within(&outside, || TcpStream::connect((OUTSIDE.gateway_v4, 8081)));
    let asked = asked.expect("the guest answers");
    assert_eq!(guest.accept().expect("it connects").1.ip().to_string(), OUTSIDE.v4);
    drop(asked);
    let trace = router.trace(&format!("wan ip {} -> {} tcp 999 -> 8081", OUTSIDE.v4, OUTSIDE.gateway_v4));
    assert!(trace["summary"].as_str().is_some_and(|said| said.contains("guest")), "{trace}");

    // The guest's port moves to the main table: its sessions end, the office's go on.
    let moved = text.replace("vrf = \"blue\"\n\n[ports.wan]", "\n[ports.wan]");
    assert_ne!(moved, text);
    let said = router.reload(&moved).expect("the reload");
    assert_eq!(sessions(&["--vrf", "blue"]), Some(Vec::new()), "{said}");
    let [(office, server), _] = pairs;
    let (mut office, mut server) = (&office, &server);
    office.write_all(b"x").expect("sent");
    uninterrupted(|| server.read(&mut [0])).expect("the office's connection lives");
    eventually("the guest reaches the outside from its new table", || {
        site.pings(GUEST, OUTSIDE.v4).then_some(())
    });
    router.counters_add_up();
}

/// Both hosts send the same to the same: each has its record, in IPFIX, in NetFlow 9 and in the store, even if ports do
/// not tell flows apart.
#[test]
fn flow_records_say_whose_host_it_was() {
    let Some(site) = site() else { return };
    site.ip(&site.router(), "link set lo up");
    let bind =
        || with_room(site.within(&site.router(), || UdpSocket::bind("127.0.0.1:0")).expect("a collector"));
    let collectors = [bind(), bind()];
    let [ipfix, netflow] = collectors.each_ref().map(|one| one.local_addr().expect("an address").port());
    let store = site.file("flows").display().to_string();
    let leaks = ["red", "blue"]
        .map(|vrf| format!("[[vrfs.{vrf}.leaks]]\nfrom = \"main\"\nprefixes = \"198.51.100.0/24\"\n\n"));
    let text = format!(
        "{PORTS}{}[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\n\n[flows]\nstore = \"{store}\"\n\
         key = [\"ports\"]\ncollectors = [\"ipfix://127.0.0.1:{ipfix}\", \"v9://127.0.0.1:{netflow}\"]\n",
        leaks.concat()
    );
    let mut router = site.run_alone(&text, &[]);
    for host in [OFFICE, GUEST] {
        eventually("the outside answers", || site.pings(host, OUTSIDE.v4).then_some(()));
    }
    let server = site.within(&site.namespace(OUTSIDE), || UdpSocket::bind((OUTSIDE.v4, 7000)));
    let server = server.expect("a server");
    for (host, count) in [(OFFICE, 3), (GUEST, 5)] {
        let client = site.within(&site.namespace(host), || UdpSocket::bind((OFFICE.v4, 5555)));
        let client = client.expect("a client");
        for _ in 0..count {
            client.send_to(b"there", (OUTSIDE.v4, 7000)).expect("sent");
            uninterrupted(|| server.recv_from(&mut [0; 16])).expect("it arrives");
        }
    }
    assert!(router.process.end(), "the router stops with success");
    for collector in &collectors {
        let records = collected(collector);
        let ours = records.iter().filter(|record| record.key.dst_port == 7000);
        let row = |record: &FlowRecord| {
            let vrfs = [record.details.ingress_vrf, record.details.egress_vrf];
            (vrfs, record.key.src.to_string(), record.key.src_port, record.packets())
        };
        let mut rows: Vec<_> = ours.map(row).collect();
        rows.sort();
        let of = |vrf: u32, packets: u64| ([Some(vrf), Some(0)], OFFICE.v4.to_owned(), 5555, packets);
        assert_eq!(rows, [of(1, 3), of(2, 5)]);
    }
    let asked =
        ["flows", "--data", &store, "--format", "json", "top", "in-vrf", "dst port 7000 and not in-vrf 1"];
    let said = site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &asked);
    let answer: Value = serde_json::from_str(&said).expect("an answer as JSON");
    assert_eq!(
        (&answer["rows"][0]["in_vrf"], &answer["total"]["packets"]),
        (&2.into(), &5.into()),
        "{answer}"
    );
}

/// A file over HTTP, and a hop with the VRF's own address.
fn programs_cross_the_leak(site: &Site) {
    let office = site.namespace(OFFICE);
    a_file_is_fetched(site, &office);
    if has("traceroute") {
        let arguments = ["-n", "-q", "1", "-w", "2", "-z", "200", OUTSIDE.v4];
        let said = eventually("all hops answer", || {
            let said = site.said(&office, "traceroute", &arguments);
            (!said.contains('*')).then_some(said)
        });
        let seen: Vec<&str> =
            said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(seen, [OFFICE.gateway_v4, OUTSIDE.v4], "{said}");
    }
}
