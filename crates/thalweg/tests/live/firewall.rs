//! The firewall between real hosts of both families: what passes unasked, what reloads keep, and flows in the kernel.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::offload;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};
use thalweg_testdata::uninterrupted;

const FIREWALL: &str = r#"
[firewall]
outside = "internet"

[firewall.zones]
office = "lan"
guests = "guest"
internet = "wan"

[[firewall.rules]]
name = "web"
action = "permit"
from = "internet"
to = "office"
protocol = "tcp"
destination_ports = 8443
log = true
"#;

pub(crate) const RULE_AGAINST_7000: &str = r#"
[[firewall.rules]]
name = "no-7000"
action = "deny"
protocol = ["tcp", "udp"]
destination_ports = 7000
"#;

fn config() -> String {
    let port = |host: Host| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\ndriver = \"af_packet\"\naddresses = [\"{1}/24\", \"{2}/64\"]\n\n",
            host.port, host.gateway_v4, host.gateway_v6
        )
    };
    let nat = "[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\naddresses = [\"198.51.100.1\"]\n";
    format!("{}{nat}{FIREWALL}", [OFFICE, GUEST, OUTSIDE].map(port).concat())
}

/// Waits until the router has dropped this many more packets for a reason than before.
fn drops(router: &Router<'_>, reason: &str, before: u64) {
    eventually(reason, || (router.dropped(reason) > before).then_some(()));
}

fn there_and_back(client: &UdpSocket, server: &UdpSocket, to: &str) {
    let mut buffer = [0; 32];
    client.send_to(b"there", to).expect("sent");
    let (_, from) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
    server.send_to(b"back", from).expect("sent");
    let (length, _) = uninterrupted(|| client.recv_from(&mut buffer)).expect("the answer arrives");
    assert_eq!(&buffer[..length], b"back", "nothing else arrived before");
}

fn connects(site: &Site, from: Host, to: &str) -> Option<TcpStream> {
    let to: SocketAddr = to.parse().expect("an address");
    let timeout = Duration::from_secs(10);
    site.within(&site.namespace(from), || TcpStream::connect_timeout(&to, timeout)).ok()
}

#[test]
fn nothing_from_outside_reaches_a_host_that_did_not_ask() {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config(), &[]);
    for to in [OUTSIDE.v4, OUTSIDE.v6] {
        eventually(to, || site.pings(OFFICE, to).then_some(()));
    }
    // UDP of both families: a stray datagram is dropped, an answer arrives.
    for (host, server) in [("10.1.0.2", "198.51.100.2"), ("[2001:db8:1::2]", "[2001:db8:9::2]")] {
        let inside = offload::socket(&site, &site.namespace(OFFICE), &format!("{host}:5000"));
        let outside = offload::socket(&site, &site.namespace(OUTSIDE), &format!("{server}:7000"));
        if host.starts_with('[') {
            let before = router.dropped("firewall-not-asked");
            outside.send_to(b"stray", format!("{host}:5000")).expect("sent");
            drops(&router, "firewall-not-asked", before);
        }
        there_and_back(&inside, &outside, &format!("{server}:7000"));
        // Another port of the same server has not been asked. NAT's session would admit it.
        let other = offload::socket(&site, &site.namespace(OUTSIDE), &format!("{server}:7001"));
        let before = router.dropped("firewall-not-asked");
        let to = if host.starts_with('[') { "[2001:db8:1::2]:5000" } else { "198.51.100.1:5000" };
        other.send_to(b"stray", to).expect("sent");
        drops(&router, "firewall-not-asked", before);
        there_and_back(&inside, &outside, &format!("{server}:7000"));
    }
    // A host whose MAC address the router does not know yet: the packet does not wait for it.
    let before = router.dropped("firewall-not-asked");
    let outside = offload::socket(&site, &site.namespace(OUTSIDE), "[2001:db8:9::2]:7002");
    outside.send_to(b"stray", "[2001:db8:2::2]:5000").expect("sent");
    drops(&router, "firewall-not-asked", before);
    // Between inside zones too.
    let before = router.dropped("firewall-not-asked");
    let guest = offload::socket(&site, &site.namespace(GUEST), "10.2.0.2:5000");
    guest.send_to(b"stray", "10.1.0.2:5000").expect("sent");
    drops(&router, "firewall-not-asked", before);
    // The router's errors come back: an expired TTL is no connection.
    for to in [OUTSIDE.v4, OUTSIDE.v6] {
        eventually("the first hop answers", || {
            let output = site.output(&site.namespace(OFFICE), "ping", &["-c", "1", "-W", "1", "-t", "1", to]);
            String::from_utf8_lossy(&output.stdout).to_lowercase().contains("exceeded").then_some(())
        });
    }
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

#[test]
fn rules_open_ports_and_reloads_keep_connections() {
    let Some(site) = Site::new() else { return };
    let mut router = site.run(&config(), &[]);
    eventually("IPv6", || site.pings(OFFICE, OUTSIDE.v6).then_some(()));
    let listen = |host: Host, at: &str| {
        site.within(&site.namespace(host), || TcpListener::bind(at)).expect("a listener")
    };
    let server = listen(OFFICE, "[2001:db8:1::2]:8443");
    let opened = connects(&site, OUTSIDE, "[2001:db8:1::2]:8443").expect("the rule permits it");
    let (mut accepted, _) = server.accept().expect("a client");
    (&opened).write_all(b"hello").expect("sent");
    let mut buffer = [0; 5];
    accepted.read_exact(&mut buffer).expect("data arrives");

    let outside = listen(OUTSIDE, "198.51.100.2:7000");
    let mut client = connects(&site, OFFICE, "198.51.100.2:7000").expect("outgoing");
    let (mut from_inside, _) = outside.accept().expect("a client");
    let mut exchange = |word: &[u8; 5]| {
        client.write_all(word).expect("sent");
        let mut buffer = [0; 5];
        from_inside.read_exact(&mut buffer).expect("data arrives");
        assert_eq!(&buffer, word);
        from_inside.write_all(word).expect("sent");
        client.read_exact(&mut buffer).expect("the answer arrives");
    };
    exchange(b"first");
    let acl = router.show(&["acl"]).expect("the router answers");
    let web =
        acl.iter().find(|rule| rule["list"] == "[firewall]" && rule["rule"] == "web").expect("the rule");
    assert!(web["packets"].as_u64().is_some_and(|packets| packets >= 3), "{web}");
    let traced = router.trace("wan ip 2001:db8:9::2 -> 2001:db8:1::2 tcp 9 -> 22");
    assert_eq!(
        (&traced["outcome"], &traced["reason"]),
        (&"dropped".into(), &"firewall-not-asked".into()),
        "{traced}"
    );
    eventually("the rule's line is in the log", || {
        site.log().contains("firewall: rule web permit").then_some(())
    });

    // Other rules, about something else.
    let other = config().replace("8443", "9443");
    router.reload(&other).expect("a reload");
    exchange(b"again");
    // The connection of the rule that is gone ends with the next packet of who began it.
    let before = router.dropped("firewall-not-asked");
    (&opened).write_all(b"more!").expect("sent");
    drops(&router, "firewall-not-asked", before);

    router.reload(&format!("{}{RULE_AGAINST_7000}", config())).expect("a reload");
    client.write_all(b"third").expect("sent");
    drops(&router, "firewall-denied", 0);
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

#[test]
fn flows_in_the_kernel_are_those_that_the_firewall_admits() {
    admitted_flows_in_the_kernel("af_xdp");
}

#[test]
fn flows_behind_packet_sockets_are_those_that_the_firewall_admits() {
    admitted_flows_in_the_kernel("af_packet");
}

/// The kernel forwards what the firewall has admitted, and nothing else.
fn admitted_flows_in_the_kernel(driver: &str) {
    let Some(site) = Site::new() else { return };
    let config = format!("{}{FIREWALL}", offload::config_by(driver, ""));
    let mut router = site.run(&config, &[]);
    eventually("IPv6", || site.pings(OFFICE, OUTSIDE.v6).then_some(()));
    let inside = offload::socket(&site, &site.namespace(OFFICE), "[2001:db8:1::2]:5000");
    let outside = offload::socket(&site, &site.namespace(OUTSIDE), "[2001:db8:9::2]:7000");
    offload::converse(&inside, &outside, "[2001:db8:9::2]:7000", 500);
    let in_kernel = offload::offloaded(&router);
    assert!(in_kernel > 600, "{in_kernel} of 1000 packets were forwarded by the kernel");
    let stray = offload::socket(&site, &site.namespace(OUTSIDE), "[2001:db8:9::2]:7001");
    let before = router.dropped("firewall-not-asked");
    for _ in 0..50 {
        stray.send_to(b"stray", "[2001:db8:1::2]:5000").expect("sent");
    }
    eventually("all strays are dropped", || {
        (router.dropped("firewall-not-asked") >= before + 50).then_some(())
    });
    // Rules that a reload brings are asked about flows in the kernel too.
    router.reload(&format!("{config}{RULE_AGAINST_7000}")).expect("a reload");
    for _ in 0..50 {
        inside.send_to(b"denied", "[2001:db8:9::2]:7000").expect("sent");
    }
    eventually("all are denied", || (router.dropped("firewall-denied") >= 50).then_some(()));
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// A host thread that resolves neighbors, cuts packets and answers what is too large must not send on, or answer, what
/// the list of the egress port denies.
#[test]
fn an_outgoing_list_judges_packets_that_wait_or_are_too_large() {
    let Some(site) = Site::new() else { return };
    let list = r#"
[[acl]]
name = "to-office"
default = "permit"

[[acl.rules]]
action = "deny"
protocol = "udp"
destination_ports = 7000
"#;
    let port = |host: Host, more: &str| {
        format!(
            "[ports.{0}]\ninterface = \"{0}\"\naddresses = [\"{1}/24\"]\n{more}\n",
            host.port, host.gateway_v4
        )
    };
    let config = port(OFFICE, "mtu = 1280\nacl_out = \"to-office\"\n") + &port(GUEST, "") + list;
    let mut router = site.run_alone(&config, &[]);
    eventually("the office", || site.pings(GUEST, OFFICE.v4).then_some(()));
    let guest = offload::socket(&site, &site.namespace(GUEST), "10.2.0.2:7002");
    let is_known = |router: &Router<'_>, address: &str| {
        router
            .show(&["arp"])
            .expect("the router answers")
            .iter()
            .any(|neighbor| neighbor["address"] == address)
    };
    // More than 1280 bytes, which the sender forbids to cut.
    let answered = || router.one("counters")["icmp_errors"].as_u64().unwrap_or(0);
    let (before, large) = (answered(), [0; 1400]);
    guest.send_to(&large, "10.1.0.2:7000").expect("sent");
    drops(&router, "acl-denied", 0);
    assert_eq!(router.dropped("mtu-exceeded"), 0, "it was judged first");
    guest.send_to(&large, "10.1.0.2:7001").expect("sent");
    drops(&router, "mtu-exceeded", 0);
    eventually("its sender learns the MTU", || (answered() > before).then_some(()));
    // Nobody has 10.1.0.77: the router does not even ask for it.
    guest.send_to(b"denied", "10.1.0.77:7000").expect("sent");
    drops(&router, "acl-denied", 1);
    assert!(!is_known(&router, "10.1.0.77"), "the router asks for a host that nobody may reach");
    guest.send_to(b"permitted", "10.1.0.78:7001").expect("sent");
    eventually("the router asks for the other host", || is_known(&router, "10.1.0.78").then_some(()));
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// Rules for the router itself: a service that only the office may use, and answers to what the router's own programs
/// began.
#[test]
fn the_router_has_rules_of_its_own() {
    let Some(site) = Site::new() else { return };
    let rules = r#"
[[firewall.rules]]
name = "closed"
action = "deny"
from = "internet"
to = "router"

[[firewall.rules]]
name = "no-discard"
action = "deny"
from = "router"
protocol = "udp"
destination_ports = 9
"#;
    let mirrored = config().replace("driver = \"af_packet\"\n", "mirror = true\n");
    let mut router = site.run(&format!("{mirrored}{rules}"), &[]);
    // Pings of the router's own, whose replies belong to what it has sent.
    for host in [OFFICE, OUTSIDE] {
        for address in [host.v4, host.v6] {
            eventually("the system reaches its neighbors", || {
                let ping = site.output(&site.router(), "ping", &["-c", "1", "-W", "1", address]);
                ping.status.success().then_some(())
            });
        }
    }
    let service = site.within(&site.router(), || TcpListener::bind("0.0.0.0:2222")).expect("a listener");
    let from_office = connects(&site, OFFICE, "10.1.0.1:2222").expect("the office may");
    let (mut served, _) = service.accept().expect("a client");
    (&from_office).write_all(b"hello").expect("sent");
    let mut buffer = [0; 5];
    served.read_exact(&mut buffer).expect("data arrives");
    let before = router.dropped("firewall-denied");
    let stranger = offload::socket(&site, &site.namespace(OUTSIDE), "198.51.100.2:7000");
    stranger.send_to(b"stray", "198.51.100.1:2222").expect("sent");
    drops(&router, "firewall-denied", before);

    // A program of the router asks, and gets its answer; nobody else does.
    let resolver = offload::socket(&site, &site.router(), "198.51.100.1:5353");
    let server = offload::socket(&site, &site.namespace(OUTSIDE), "198.51.100.2:53");
    there_and_back(&resolver, &server, "198.51.100.2:53");
    let before = router.dropped("firewall-denied");
    stranger.send_to(b"stray", "198.51.100.1:5353").expect("sent");
    drops(&router, "firewall-denied", before);
    there_and_back(&resolver, &server, "198.51.100.2:53");

    // What the router may not send does not leave.
    let before = router.dropped("firewall-denied");
    resolver.send_to(b"discarded", "198.51.100.2:9").expect("sent");
    drops(&router, "firewall-denied", before);

    let states = router.show(&["firewall", "--from", "router"]).expect("the router answers");
    let asked = states.iter().find(|state| state["destination"] == "198.51.100.2:53").expect("the question");
    assert_eq!((&asked["to"], &asked["state"]), (&"internet".into(), &"answered".into()), "{asked}");
    let traced = router.trace("wan ip 198.51.100.2 -> 198.51.100.1 tcp 9 -> 2222");
    assert_eq!(
        (&traced["outcome"], &traced["reason"]),
        (&"dropped".into(), &"firewall-denied".into()),
        "{traced}"
    );
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// What `show firewall` and `clear firewall` say of connections that hosts have.
#[test]
fn connections_are_shown_and_cleared() {
    let Some(site) = Site::new() else { return };
    let sets = "\n[sets.bad]\naddresses = [\"192.0.2.0/24\"]\n";
    let mut router = site.run(&format!("{}{sets}", config()), &[]);
    eventually("IPv6", || site.pings(OFFICE, OUTSIDE.v6).then_some(()));
    for (host, server) in [("10.1.0.2", "198.51.100.2"), ("[2001:db8:1::2]", "[2001:db8:9::2]")] {
        let inside = offload::socket(&site, &site.namespace(OFFICE), &format!("{host}:5000"));
        let outside = offload::socket(&site, &site.namespace(OUTSIDE), &format!("{server}:7000"));
        there_and_back(&inside, &outside, &format!("{server}:7000"));
    }
    let shown = |filter: &[&str]| {
        router.show(&[&["firewall", "--protocol", "udp"], filter].concat()).expect("the router answers")
    };
    let both = shown(&["--destination", "198.51.100.2:7000"]);
    let [state] = &both[..] else { panic!("{both:?}") };
    for (field, value) in [
        ("family", "ipv4"),
        ("source", "10.1.0.2:5000"),
        ("from", "office"),
        ("to", "internet"),
        ("state", "answered"),
        ("rule", "policy"),
    ] {
        assert_eq!(state[field], value, "{field}: {state}");
    }
    assert_eq!(shown(&["--family", "ipv6", "--from", "office"]).len(), 1);
    assert_eq!(shown(&["--source", "[2001:db8:1::2]:5000"]).len(), 1);
    assert!(shown(&["--to", "guests"]).is_empty());
    assert_eq!(shown(&["--limit", "1"]).len(), 1);
    assert!(router.show(&["firewall", "--to", "nowhere"]).is_none(), "there is no such zone");

    let counters = |router: &Router<'_>, name: &str| {
        router.show(&["firewall", "--counters"]).expect("the router answers")[0]["counters"][name].as_u64()
    };
    assert!(counters(&router, "states_active") >= Some(2));
    let rules = router.show(&["firewall", "--rules"]).expect("the router answers");
    let policy = rules.last().expect("the policy");
    assert_eq!((&policy["rule"], &policy["action"]), (&"policy".into(), &"outgoing-only".into()));
    assert!(policy["packets"].as_u64() >= Some(4), "{policy}");
    eventually("rules have rates", || {
        let rules = router.show(&["firewall", "--rules"])?;
        rules.iter().all(|rule| rule["packets_per_s"].is_u64()).then_some(())
    });

    let socket = router.socket();
    let clear = ["clear", "firewall", "--socket", socket, "--family", "ipv6", "--protocol", "udp"];
    let said = site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &clear);
    assert_eq!(said, "1 connection ended\n");
    assert!(shown(&["--family", "ipv6"]).is_empty());
    assert_eq!(counters(&router, "states_cleared"), Some(1));
    let before = router.dropped("firewall-not-asked");
    let outside = offload::socket(&site, &site.namespace(OUTSIDE), "[2001:db8:9::2]:7000");
    outside.send_to(b"late", "[2001:db8:1::2]:5000").expect("sent");
    drops(&router, "firewall-not-asked", before);

    let more = sets.replace("\"192.0.2.0/24\"", "\"192.0.2.0/25\", \"203.0.113.0/24\"");
    router.reload(&format!("{}{more}", config())).expect("a reload");
    let sets = router.show(&["firewall", "--sets"]).expect("the router answers");
    let [set] = &sets[..] else { panic!("{sets:?}") };
    let numbers = ["addresses", "ports", "added", "removed"].map(|field| set[field].as_u64());
    assert_eq!(numbers, [2, 0, 2, 1].map(Some), "{set}");
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// A set in a file is read again by a reload, and what differs is told.
#[test]
fn a_set_in_a_file_is_reloaded_by_difference() {
    let Some(site) = Site::new() else { return };
    let lists =
        |addresses: &str| fs::write(site.file("blocked.txt"), addresses).expect("the folder is writable");
    lists("# who is blocked\n192.0.2.0/24\n198.51.100.2\n");
    let rule = "\n[[firewall.rules]]\nname = \"blocked\"\naction = \"deny\"\ndestination = \"@blocked\"\n";
    let config = format!("{}{rule}\n[sets.blocked]\nfile = \"blocked.txt\"\n", config());
    let mut router = site.run_alone(&config, &[]);
    let numbers = || {
        let sets = router.show(&["firewall", "--sets"]).expect("the router answers");
        let [set] = &sets[..] else { panic!("{sets:?}") };
        ["addresses", "added", "removed"].map(|field| set[field].as_u64().expect("a number"))
    };
    let inside = offload::socket(&site, &site.namespace(OFFICE), "10.1.0.2:5000");
    let outside = offload::socket(&site, &site.namespace(OUTSIDE), "198.51.100.2:7000");
    eventually("the file's addresses are denied", || {
        inside.send_to(b"denied", "198.51.100.2:7000").expect("sent");
        (router.dropped("firewall-denied") > 0).then_some(())
    });
    assert_eq!(numbers()[0], 2);

    lists("192.0.2.0/24\n203.0.113.0/24\n203.0.114.7\n");
    router.reload(&config).expect("a reload");
    assert_eq!(numbers(), [3, 2, 1], "two came, one went");
    eventually("the outside answers", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    there_and_back(&inside, &outside, "198.51.100.2:7000");

    lists("192.0.2.0/24\n203.0.113.0/24\n203.0.114.7\n198.51.100.0/24\n");
    router.reload(&config).expect("a reload");
    assert_eq!(numbers(), [4, 1, 0]);
    let before = router.dropped("firewall-denied");
    inside.send_to(b"denied", "198.51.100.2:7000").expect("sent");
    drops(&router, "firewall-denied", before);
    router.counters_add_up();
    assert!(router.process.end(), "the router stops with success");
}

/// A rule's lines in the log are a second apart. Together with what a shard had no room for, they count all packets.
#[test]
fn a_rule_that_logs_writes_a_line_a_second() {
    let Some(site) = Site::new() else { return };
    let rule = RULE_AGAINST_7000.replace("action", "log = true\naction");
    let mut router = site.run(&format!("{}{rule}", config()), &[]);
    let inside = offload::socket(&site, &site.namespace(OFFICE), "10.1.0.2:5000");
    let begun = Instant::now();
    let mut sent = 0;
    let mut denied = || {
        inside.send_to(b"denied", "198.51.100.2:7000").expect("sent");
        sent += 1;
        sent
    };
    while begun.elapsed() < Duration::from_secs(4) {
        denied();
        thread::sleep(Duration::from_millis(5));
    }
    let lines = || -> Vec<u64> {
        let log = site.log();
        let lines = log.lines().filter(|line| line.contains("firewall: rule no-7000 deny"));
        let packets = |line: &str| line.split("packets=").nth(1)?.split_whitespace().next()?.parse().ok();
        lines.map(|line| packets(line).expect("a line says how many packets")).collect()
    };
    let lost = || {
        let view = router.show(&["firewall", "--counters"]).expect("the router answers");
        view[0]["counters"]["events_lost"].as_u64().expect("a number")
    };
    assert!(lost() > 0, "more came than a shard keeps");
    // What waits since the last line is told with the next packet.
    eventually("the lines count all packets", || {
        let all = denied();
        thread::sleep(Duration::from_millis(2500));
        (lines().iter().sum::<u64>() + lost() == all).then_some(())
    });
    let (lines, seconds) = (lines(), begun.elapsed().as_secs_f64());
    assert!(lines.len() >= 3 && lines.len() as f64 <= seconds + 1.0, "{lines:?} in {seconds:.1} s");
    assert!(router.process.end(), "the router stops with success");
}
