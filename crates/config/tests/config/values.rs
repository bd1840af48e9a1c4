//! The result of an accepted configuration: names resolved, routes merged, defaults filled in.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use thalweg_config::{
    ConfigSource, Driver, LearnedAddress, NextHop, NextHopCheck, RouteTarget, RouterConfig, WebRight,
};
use thalweg_dataplane::gateway_check::CheckConfig;
use thalweg_dataplane::helpers::Helper;
use thalweg_dataplane::mss::SegmentLimit;
use thalweg_dataplane::nat::{
    BlockAllocation, Filtering, NatProtocol, NatRefusal, NatTimeouts, PortSelection, SubscriberConfig,
};
use thalweg_dataplane::police::{ColorAction, Marker};
use thalweg_dataplane::schedule::Service;
use thalweg_wire::MacAddr;

const PORTS: &str = r#"
[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/29", "2001:db8:1::2/64"]
trace_name = "eth3"
default_mac = "02:00:00:00:ff:01"
[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["192.168.1.1/24"]
mtu = 9000
"#;

fn accepted(text: &str, folder: &Path) -> RouterConfig {
    match RouterConfig::from_text("test.toml", &format!("{PORTS}{text}"), folder) {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

fn target<'c>(config: &'c RouterConfig, prefix: &str) -> &'c RouteTarget {
    let routing = &config.routing;
    let v4 = routing.v4.iter().map(|(net, target)| (net.to_string(), *target));
    let v6 = routing.v6.iter().map(|(net, target)| (net.to_string(), *target));
    let found: Vec<_> = v4.chain(v6).filter(|(net, _)| net == prefix).collect();
    assert_eq!(found.len(), 1, "{prefix}: {found:?}");
    &routing.targets[found[0].1 as usize]
}

fn via(port: u16, gateway: &str) -> RouteTarget {
    let gateway = Some(gateway.parse().expect("an address"));
    RouteTarget::Forward(vec![NextHop { port, gateway }])
}

#[test]
fn ports_keep_the_order_of_the_file() {
    let config = accepted("[ports.a]\nmac = \"02:00:00:00:00:03\"\n", Path::new(""));
    let names: Vec<&str> = config.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["wan", "lan", "a"]);
    assert_eq!(config.ports[0].trace_name, "eth3");
    assert_eq!(config.ports[1].trace_name, "lan");
    assert_eq!((config.ports[0].mtu, config.ports[1].mtu), (1500, 9000));
    assert_eq!(config.ports[1].mac, MacAddr([2, 0, 0, 0, 0, 2]));
    assert!(config.nat.is_none() && config.validate.martians && config.warnings.is_empty());
}

#[test]
fn the_control_socket_needs_no_bgp() {
    let socket = |text: &str| accepted(text, Path::new("/etc/thalweg")).control.socket;
    assert_eq!(socket(""), Path::new("/run/thalweg/thalweg.sock"));
    assert_eq!(socket("[control]\nsocket = \"a.sock\"\n"), Path::new("/etc/thalweg/a.sock"));
    assert_eq!(socket("[control]\nsocket = \"/tmp/b.sock\"\n"), Path::new("/tmp/b.sock"));
}

/// The sandbox of a router follows from it.
#[test]
fn every_path_of_the_file_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("more.routes", ""),
        ("sets.txt", "192.0.2.0/24\n"),
        ("prefixes.txt", "192.0.2.0/24\n"),
        ("seed.mrt", ""),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let text = "[control]\nread_socket = \"read/r.sock\"\ngroup = \"netops\"\n\
                [routing]\nfiles = [\"more.routes\"]\n[sets.a]\nfile = \"sets.txt\"\n\
                [web]\nsocket = \"web/w.sock\"\nlisten = \"127.0.0.1:8080\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
                [[web.token]]\nname = \"a\"\nfile = \"a.token\"\n[flows]\nstore = \"flows\"\n\
                collectors = [\"kafka://192.0.2.9/t?user=a&password_file=kafka.pw\", \
                \"clickhouse://192.0.2.9/t?password_file=/etc/ch.pw&user=a\", \"ipfix://192.0.2.9:4739\"]\n\
                archive = \"s3://flows/edge1?tls_ca=ca.pem&region=eu-1&credentials_file=../s3\"\n\
                feed = \"kafka+tls://192.0.2.9/f?user=a&password_file=feed.pw\"\ncollector_ca = \"ca.pem\"\n\
                [policy.prefix_sets.p]\nfiles = [\"prefixes.txt\"]\n\
                [bgp]\nas = 64500\nrouter_id = \"192.0.2.1\"\nimport = \"reject\"\nexport = \"reject\"\n\
                [bgp.seed]\nmrt = \"seed.mrt\"\n\
                [bgp.mrt]\ndump = \"mrt/%Y/rib.%m.mrt\"\nupdates = \"updates.%s.mrt\"\n";
    let config = accepted(text, folder.path());
    let within = |names: &[&str]| names.iter().map(|name| folder.path().join(name)).collect();
    let read = [
        "more.routes",
        "sets.txt",
        "a.pem",
        "a.key",
        "a.token",
        "prefixes.txt",
        "seed.mrt",
        "kafka.pw",
        "/etc/ch.pw",
        "ca.pem",
        "../s3",
        "feed.pw",
    ];
    assert_eq!(config.files.read, within(&read));
    // What opens a file gets the path that the sandbox got.
    let flows = config.flows.expect("a section");
    let at = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(
        flows.collectors,
        [
            format!("kafka://192.0.2.9/t?user=a&password_file={}", at("kafka.pw")),
            "clickhouse://192.0.2.9/t?password_file=/etc/ch.pw&user=a".to_owned(),
            "ipfix://192.0.2.9:4739".to_owned()
        ]
    );
    let archive =
        format!("s3://flows/edge1?tls_ca={}&region=eu-1&credentials_file={}", at("ca.pem"), at("../s3"));
    assert_eq!(flows.archive, Some(archive));
    assert_eq!(flows.feed, Some(format!("kafka+tls://192.0.2.9/f?user=a&password_file={}", at("feed.pw"))));
    let mut written: std::collections::BTreeSet<_> = within(&["read", "web", "flows", "mrt"]);
    written.extend([folder.path().to_owned(), "/run/thalweg".into()]);
    assert_eq!(config.files.written, written);
    assert_eq!((config.control.group.as_deref(), config.system.sandbox), (Some("netops"), true));
}

#[test]
fn a_file_of_its_own_suffices_for_the_web() {
    let read = |text: &str| ConfigSource::of_text("web.toml", text, Path::new("/etc/thalweg")).web();
    assert_eq!(read("[control]\nsocket = \"a.sock\"\n").expect("it is valid"), None);
    let text = "[web]\nlisten = \"127.0.0.1:8080\"\nhosts = \"Router.example.net\"\n\
                [[web.token]]\nname = \"a\"\nfile = \"a.token\"\nmay = \"operate\"\n[flows]\nstore = \"flows\"\n";
    let setup = read(text).expect("it is valid").expect("it has [web]");
    assert_eq!(setup.control_socket, Path::new("/run/thalweg/thalweg.sock"));
    assert_eq!(setup.store.as_deref(), Some(Path::new("/etc/thalweg/flows")));
    assert_eq!(setup.web.hosts, ["router.example.net"]);
    let is_for_web = |text: &str| ConfigSource::of_text("a.toml", text, Path::new("/")).is_for_web_alone();
    assert!(is_for_web(text) && is_for_web(&format!("[control]\nsocket = \"a.sock\"\n{text}")));
    for more in ["[ports.lan]\n", "[bgp]\n", "[wrong]\n", "wrong"] {
        assert!(!is_for_web(&format!("{text}{more}")), "{more}");
    }
    assert!(!is_for_web("[control]\nsocket = \"a.sock\"\n"));
    let token = &setup.web.tokens[0];
    assert_eq!((token.file.as_path(), token.may), (Path::new("/etc/thalweg/a.token"), WebRight::Operate));
    assert!(WebRight::LookingGlass < WebRight::Read && WebRight::Read < WebRight::Operate);
    assert!(read("[web]\n").is_err() && read("[web\n").is_err());
    let open = "[web]\nlisten = \"0.0.0.0:8443\"\n";
    let tls = "certificate = \"a.pem\"\nkey = \"a.key\"\n";
    let token = "[[web.token]]\nname = \"a\"\nfile = \"a.token\"\n";
    assert!(
        read(open).is_err()
            && read(&format!("{open}{tls}")).is_err()
            && read(&format!("{open}{token}")).is_err()
    );
    assert!(read(&format!("{open}{tls}{token}")).is_ok());
}

#[test]
fn checks_belong_to_next_hops() {
    let config = accepted(
        r#"
        [[routes]]
        prefix = "10.0.0.0/8"
        via = ["203.0.113.1", "203.0.113.3"]
        check = { every_ms = 250, fail = 5 }
        [[routes]]
        prefix = "10.1.0.0/16"
        via = "203.0.113.3"
        check = { every_ms = 250, fail = 5 }
        [[routes]]
        prefix = "2001:db8:9::/48"
        via = "2001:db8:1::9"
        check = { ping = "2001:db8:ffff::1" }
        "#,
        Path::new("."),
    );
    let check = |gateway: &str, target: &str| {
        let (gateway, target) = (gateway.parse().expect("an address"), target.parse().expect("an address"));
        CheckConfig { port: 0, gateway, target, every_ns: 1_000_000_000, fail: 3, pass: 3 }
    };
    let fast = |gateway: &str| CheckConfig { every_ns: 250_000_000, fail: 5, ..check(gateway, gateway) };
    let expected = [fast("203.0.113.1"), fast("203.0.113.3"), check("2001:db8:1::9", "2001:db8:ffff::1")];
    assert_eq!(config.routing.checks, expected);
}

#[test]
fn routes_of_all_sources_are_merged_by_precedence() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("first.txt"),
        "10.0.0.0/8 203.0.113.1 wan\n10.1.0.0/16 blackhole\n192.168.1.0/24 blackhole\r\n10.2.0.0/16 - lan # on-link\n",
    )
    .expect("writing");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(b"10.1.0.0/16 203.0.113.3 -\n11.0.0.0/8\n12.0.0.0/8\n13.0.0.0/8\n2001:db8:2::/48\n")
        .expect("gzip");
    std::fs::write(folder.path().join("second"), gz.finish().expect("gzip")).expect("writing");
    let config = accepted(
        r#"
        [routing]
        files = ["first.txt", "second"]
        default_next_hops = ["203.0.113.4", "2001:db8:1::9", "203.0.113.5"]
        [[routes]]
        prefix = "10.0.0.0/8"
        via = ["203.0.113.1", "203.0.113.3"]
        [[routes]]
        prefix = "10.9.0.0/16"
        action = "unreachable"
        [[routes]]
        prefix = "fd00::/8"
        via = "fe80::1"
        port = "lan"
        "#,
        folder.path(),
    );
    let gateway = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
    let ecmp = vec![
        NextHop { port: 0, gateway: gateway("203.0.113.1") },
        NextHop { port: 0, gateway: gateway("203.0.113.3") },
    ];
    assert_eq!(target(&config, "10.0.0.0/8"), &RouteTarget::Forward(ecmp));
    assert_eq!(target(&config, "10.1.0.0/16"), &via(0, "203.0.113.3"));
    assert_eq!(
        target(&config, "10.2.0.0/16"),
        &RouteTarget::Forward(vec![NextHop { port: 1, gateway: None }])
    );
    assert_eq!(target(&config, "10.9.0.0/16"), &RouteTarget::Unreachable);
    assert_eq!(target(&config, "11.0.0.0/8"), &via(0, "203.0.113.4"));
    assert_eq!(target(&config, "12.0.0.0/8"), &via(0, "203.0.113.5"));
    assert_eq!(target(&config, "13.0.0.0/8"), &via(0, "203.0.113.4"));
    assert_eq!(target(&config, "2001:db8:2::/48"), &via(0, "2001:db8:1::9"));
    assert_eq!(target(&config, "fd00::/8"), &via(1, "fe80::1"));
    let on_link = RouteTarget::Forward(vec![NextHop { port: 1, gateway: None }]);
    assert_eq!(target(&config, "192.168.1.0/24"), &on_link, "connected beats a route file");
    assert_eq!(target(&config, "192.168.1.1/32"), &RouteTarget::Local(1));
    assert_eq!(target(&config, "2001:db8:1::2/128"), &RouteTarget::Local(0));
    let sources = config.routing.sources;
    assert_eq!((sources.files, sources.configured, sources.connected, sources.local), (9, 3, 3, 3));
    assert_eq!(sources.replaced, 3);
    assert_eq!(config.routing.v4.len() + config.routing.v6.len(), 15);
    assert!(config.routing.v4.windows(2).all(|w| w[0].0 < w[1].0), "sorted by prefix");
    assert!(!config.routing.targets.contains(&RouteTarget::Blackhole), "unused targets are gone");
}

#[test]
fn nat_defaults_and_forwards() {
    let nat = accepted("[nat]\noutside = \"wan\"\ninside = \"lan\"\n", Path::new("")).nat.expect("nat");
    assert_eq!(nat.public_addresses, [Ipv4Addr::new(203, 0, 113, 2)]);
    assert_eq!(nat.port_range, 1024..=65535);
    assert_eq!((nat.shards, nat.sessions_max, nat.hairpin), (64, 65_536, true));
    assert_eq!(nat.port_selection, PortSelection::Preserve);
    assert_eq!(nat.filtering, Filtering::EndpointIndependent);
    assert!(!nat.inbound_refresh);
    assert_eq!(nat.timeouts, NatTimeouts::default());
    let nat = accepted(
        r#"
        [nat]
        outside = "wan"
        inside = ["lan"]
        ports = "2000-2003"
        filtering = "address-dependent"
        [nat.timeouts]
        tcp_established_s = 8000
        [[nat.forwards]]
        protocol = "udp"
        port = "8080-8081"
        to = "192.168.1.10:80"
        "#,
        Path::new(""),
    )
    .nat
    .expect("nat");
    assert_eq!(nat.shards, 2, "two ports a shard at least");
    assert_eq!(nat.filtering, Filtering::AddressDependent);
    assert_eq!(nat.timeouts.tcp_established_s, 8000);
    assert_eq!(nat.forwards[0].protocol, NatProtocol::Udp);
    assert_eq!(nat.forwards[0].public_ports(), 8080..=8081);
    assert_eq!(nat.public_addresses[nat.forwards[0].public_address], Ipv4Addr::new(203, 0, 113, 2));
}

/// Rules stand behind the one about connected networks, and lead to targets that routes may share.
#[test]
fn routing_rules() {
    let text = "[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n\
                [[routing.rules]]\nname = \"a\"\nfrom = [\"lan\"]\nvia = \"203.0.113.3\"\n\
                [[routing.rules]]\nsource = \"192.168.1.0/25\"\nvia = \"203.0.113.1\"\nfallback = false\n\
                [[routing.rules]]\nvia = \"2001:db8:1::1\"\n\
                [[routing.rules]]\ndscp = \"ef\"\naction = \"routes\"\n";
    let routing = accepted(text, Path::new("")).routing;
    assert_eq!(routing.rule_names, ["connected", "a", "2", "3", "4"]);
    let nets = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    let targets: Vec<_> = routing.rules.iter().map(|rule| &routing.targets[rule.target as usize]).collect();
    let fallen = |way: RouteTarget| RouteTarget::Ranked(vec![way, RouteTarget::Routes]);
    let expected = [
        RouteTarget::Routes,
        fallen(via(0, "203.0.113.3")),
        via(0, "203.0.113.1"),
        fallen(via(0, "2001:db8:1::1")),
        RouteTarget::Routes,
    ];
    assert!(targets.iter().copied().eq(&expected), "{targets:?}");
    assert_eq!(targets[2], target(&accepted(text, Path::new("")), "0.0.0.0/0"), "one target for both");
    let [connected, first, second, third, _] = &routing.rules[..] else { panic!("{:?}", routing.rules) };
    assert_eq!(nets(&connected.rule.destinations), ["203.0.113.0/29", "2001:db8:1::/64", "192.168.1.0/24"]);
    assert_eq!((nets(&first.rule.destinations), &first.from[..]), (vec!["0.0.0.0/0".to_owned()], &[1][..]));
    assert!(second.rule.destinations.is_empty(), "its source says the family");
    assert_eq!(nets(&third.rule.destinations), ["::/0"]);
    let same = accepted(
        &format!("[[routes]]\nprefix = \"10.0.0.0/8\"\naction = \"blackhole\"\n{text}"),
        Path::new(""),
    );
    assert!(same.routing.has_rules_of(&routing), "targets have other numbers now");
    let other = accepted(&text.replace("203.0.113.3", "203.0.113.4"), Path::new(""));
    assert!(!other.routing.has_rules_of(&routing));
    assert!(accepted("[routing]\n", Path::new("")).routing.rules.is_empty());
}

/// Two providers: each outside port has its own addresses and forwards, and a way for their answers.
#[test]
fn nat_with_several_outside_ports() {
    let text = |more: &str| {
        let port = |name: &str, n: u8, net: &str| {
            format!(
                "[ports.{name}]\nmac = \"02:00:00:00:00:0{n}\"\naddresses = [\"{net}\"]\ndefault_mac = \"02:00:00:00:ff:0{n}\"\n"
            )
        };
        let route = |via: &str, metric: u32| {
            format!("[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"{via}\"\nmetric = {metric}\n")
        };
        [
            port("isp1", 1, "203.0.113.2/30"),
            port("isp2", 2, "192.0.2.2/29"),
            port("lan", 3, "192.168.1.1/24"),
            route("203.0.113.1", 1),
            route("192.0.2.1", 2),
            format!("[nat]\noutside = [\"isp1\", \"isp2\"]\ninside = \"lan\"\n{more}"),
        ]
        .concat()
    };
    let accepted = |more: &str| {
        RouterConfig::from_text("test.toml", &text(more), Path::new(""))
            .unwrap_or_else(|errors| panic!("{errors}"))
    };
    let ip = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
    let plain = accepted("").nat.expect("nat");
    assert_eq!((plain.outside_port, plain.others.len(), plain.others[0].port), (0, 1, 1));
    assert_eq!(plain.all_public_addresses().collect::<Vec<_>>(), [ip("203.0.113.2"), ip("192.0.2.2")]);
    let config = accepted(
        "pools = { isp2 = [\"192.0.2.2\", \"192.0.2.3\"] }\n\
         [[nat.forwards]]\nprotocol = \"tcp\"\nport = 80\naddress = \"192.0.2.3\"\nto = \"192.168.1.9:80\"\n\
         [[nat.forwards]]\nprotocol = \"tcp\"\nport = 80\nto = \"192.168.1.9:81\"\n",
    );
    let nat = config.nat.as_ref().expect("nat");
    assert_eq!((nat.forwards[0].inside_port, nat.forwards[0].public_address), (81, 0));
    let other = &nat.others[0];
    assert_eq!(other.public_addresses, [ip("192.0.2.2"), ip("192.0.2.3")]);
    assert_eq!((other.forwards[0].inside_port, other.forwards[0].public_address), (80, 1));
    assert_eq!(nat.validate(), Ok(()));
    let ways =
        config.routing.outsides.iter().map(|(port, way)| (*port, &config.routing.targets[*way as usize]));
    let expected = [(0, via(0, "203.0.113.1")), (1, via(1, "192.0.2.1"))];
    assert!(ways.eq(expected.iter().map(|(port, way)| (*port, way))));
}

#[test]
fn segment_sizes() {
    let limit = |text: &str| {
        let port = format!("[ports.a]\nmac = \"02:00:00:00:00:03\"\n{text}\n");
        accepted(&port, Path::new("")).ports[2].mss
    };
    assert_eq!(limit(""), None);
    assert_eq!(limit("mss = 1452"), Some(SegmentLimit::Bytes(1452)));
    assert_eq!(limit("mss = \"mtu\""), Some(SegmentLimit::Mtu));
}

#[test]
fn nat_pairs_and_exceptions() {
    let nat = accepted(
        "[ports.isp2]\nmac = \"02:00:00:00:00:03\"\naddresses = [\"192.0.2.2/29\"]\n\
         [[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n\
         [sets.branches]\naddresses = [\"10.64.0.0/12\", \"2001:db8::/32\"]\n\
         [nat]\noutside = [\"wan\", \"isp2\"]\ninside = \"lan\"\n\
         [[nat.one_to_one]]\ninside = \"192.168.1.10\"\npublic = \"203.0.113.3\"\n\
         [[nat.one_to_one]]\ninside = \"192.168.1.11\"\npublic = \"192.0.2.3\"\n\
         [[nat.one_to_one]]\ninside = \"192.168.1.64/28\"\npublic = \"198.51.100.16/28\"\noutside = \"isp2\"\n\
         [[nat.exceptions]]\nsource = \"192.168.1.0/24\"\ndestination = [\"10.9.0.0/16\", \"@branches\"]\n\
         [[nat.exceptions]]\ndestination = \"2001:db8::/32\"\n",
        Path::new(""),
    )
    .nat
    .expect("nat");
    let pairs: Vec<_> = nat
        .one_to_one
        .iter()
        .map(|pair| (pair.inside.to_string(), pair.public.to_string(), pair.outside))
        .collect();
    let expected = [
        ("192.168.1.10/32", "203.0.113.3/32", 0),
        ("192.168.1.11/32", "192.0.2.3/32", 1),
        ("192.168.1.64/28", "198.51.100.16/28", 1),
    ];
    assert_eq!(
        pairs,
        expected.map(|(inside, public, outside)| (inside.to_owned(), public.to_owned(), outside))
    );
    let texts = |nets: &[ipnet::Ipv4Net]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    let [first, second] = &nat.exceptions[..] else { panic!("{:?}", nat.exceptions) };
    assert_eq!(texts(&first.sources), ["192.168.1.0/24"]);
    assert_eq!(texts(&first.destinations), ["10.9.0.0/16", "10.64.0.0/12"]);
    assert!(second.sources.is_empty());
    assert_eq!(texts(&second.destinations), ["0.0.0.0/32"], "no IPv4 destination is none, not all");
}

#[test]
fn prefixes_of_nat64_and_of_networks() {
    let config = accepted(
        "[nat]\noutside = \"wan\"\ninside = \"lan\"\nnat64 = \"2001:db8:64::/48\"\n\
         [[prefix_translation]]\ninside = \"fd00:1::/48\"\noutside = \"2001:db8:77::/48\"\nport = \"wan\"\n",
        Path::new(""),
    );
    let nat64 = config.nat.as_ref().and_then(|nat| nat.nat64).expect("nat64");
    assert_eq!((nat64.prefix.network().to_string(), nat64.mtu_bytes), ("2001:db8:64::/48".to_owned(), 9000));
    let [pair] = &config.prefix_pairs[..] else { panic!("{:?}", config.prefix_pairs) };
    let port = &config.ports[usize::from(pair.port)].name;
    let shown = (pair.inside.to_string(), pair.outside.to_string(), port.as_str());
    assert_eq!(shown, ("fd00:1::/48".to_owned(), "2001:db8:77::/48".to_owned(), "wan"));
}

#[test]
fn nat_subscribers() {
    let with = |more: &str| {
        let text = format!("[nat]\noutside = \"wan\"\ninside = \"lan\"\n{more}");
        accepted(&text, Path::new("")).nat.expect("nat")
    };
    let plain = with("");
    assert_eq!((plain.subscribers, plain.refusal), (None, NatRefusal::HostUnreachable));
    let dynamic = with("refusal = \"silent\"\n[nat.subscribers]\n");
    assert_eq!(
        (dynamic.subscribers, dynamic.refusal),
        (Some(SubscriberConfig::default()), NatRefusal::Silent)
    );
    assert_eq!(dynamic.shards, 8, "126 blocks: eight and more for each shard");
    let deterministic = with(
        "[nat.subscribers]\nblocks = \"deterministic\"\ninside = [\"192.168.1.0/26\", \"10.0.0.4/31\"]\nblock_size = 256\n",
    );
    let networks = ["192.168.1.0/26", "10.0.0.4/31"].map(|net| net.parse().expect("a prefix")).to_vec();
    let expected = SubscriberConfig {
        allocation: BlockAllocation::Deterministic(networks),
        block_size: 256,
        ports_max: 256,
        sessions_max: 768,
        hold_s: 120,
    };
    assert_eq!((deterministic.subscribers, deterministic.shards), (Some(expected), 64));
}

#[test]
fn nat_groups_and_helpers() {
    let with = |more: &str| {
        format!(
            "[sets.few]\naddresses = [\"192.168.1.64/28\"]\n[nat]\noutside = \"wan\"\ninside = \"lan\"\n{more}"
        )
    };
    let text = with(
        "helpers = [\"ftp\", \"pptp\"]\n[[nat.groups]]\nname = \"a\"\ninside = [\"@few\", \"192.168.1.9/32\"]\n\
         addresses = [\"198.51.100.77\", \"198.51.100.78\"]\nsessions_max = 7\n\
         [[nat.groups]]\nname = \"b\"\ninside = \"192.168.1.0/24\"\naddresses = \"198.51.100.79\"\n",
    );
    let nat = accepted(&text, Path::new("")).nat.expect("nat");
    assert_eq!(Helper::ALL.map(|helper| nat.helpers.has(helper)), [true, false, true]);
    let [a, b] = &nat.groups[..] else { panic!("{:?}", nat.groups) };
    let own = nat.public_addresses.len() - 3;
    assert_eq!((a.name.as_str(), a.inside.len(), a.addresses.clone()), ("a", 2, own..own + 2));
    assert_eq!((a.limits.sessions_max, a.limits.new_per_second), (Some(7), nat.hosts.new_per_second));
    assert_eq!((b.addresses.clone(), b.limits), (own + 2..own + 3, nat.hosts));
    assert_eq!(nat.validate(), Ok(()));
}

#[test]
fn classes_keep_their_order_and_default_is_always_there() {
    let config = accepted("", Path::new(""));
    assert_eq!(config.qos.classes.len(), 1);
    assert_eq!(config.qos.classes[0].service, Service::Weight(1));
    let config = accepted(
        r#"
        [[qos.classes]]
        name = "voice"
        strict = 0
        match = [
            { dscp = ["ef", 44], application = "rtp" },
            { protocol = ["udp", 132], destination_ports = ["10000-20000", 5060], source = "10.0.0.0/8", port_in = "lan" },
        ]
        [qos.classes.policer]
        kind = "trtcm"
        cir = "2 Mbit/s"
        cbs = "64 KiB"
        pir = 4000000
        pbs = "128 kB"
        color_aware = true
        yellow_dscp = "af12"
        red = "remark"
        red_dscp = 14
        [[qos.classes]]
        name = "default"
        weight = 7
        [[qos.classes]]
        name = "bulk"
        match = [{ destination = "2001:db8::/32" }]
        [qos.classes.policer]
        kind = "srtcm"
        cir = "1 Gbit/s"
        cbs = "1 MiB"
        ebs = 0
        "#,
        Path::new(""),
    );
    let names: Vec<&str> = config.qos.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["voice", "default", "bulk"]);
    assert_eq!(config.qos.default_class, 1);
    let voice = &config.qos.classes[0];
    assert_eq!(voice.service, Service::Strict(0));
    assert_eq!(voice.matches[0].dscp, [46, 44]);
    assert_eq!(voice.matches[0].applications, [1]);
    assert_eq!(voice.matches[1].protocols, [17, 132]);
    assert_eq!(voice.matches[1].destination_ports[1], 5060..=5060);
    assert_eq!(voice.matches[1].ports_in, [1]);
    let policer = voice.policer.expect("a policer");
    let marker =
        Marker::TwoRate { cir_bps: 2_000_000, cbs_bytes: 65_536, pir_bps: 4_000_000, pbs_bytes: 128_000 };
    assert_eq!(policer.marker, marker);
    assert_eq!((policer.color_aware, policer.yellow), (true, ColorAction::Remark(12)));
    assert_eq!(policer.red, ColorAction::Remark(14));
    let bulk = config.qos.classes[2].policer.expect("a policer");
    let marker = Marker::SingleRate { cir_bps: 1_000_000_000, cbs_bytes: 1 << 20, ebs_bytes: 0 };
    assert_eq!((bulk.marker, bulk.red), (marker, ColorAction::Drop));
}

#[test]
fn the_full_table_loads() {
    let Some(path) = thalweg_testdata::shared("prefixes/full-table-prefixes.txt.gz") else { return };
    let config = accepted(
        &format!(
            "[routing]\nfiles = [{:?}]\ndefault_next_hops = [\"203.0.113.1\", \"203.0.113.3\", \"2001:db8:1::9\"]\n",
            path.display().to_string()
        ),
        Path::new(""),
    );
    assert_eq!(config.routing.sources.files, 1_062_046);
    assert!(config.routing.v4.len() > 890_000 && config.routing.v6.len() > 150_000);
}

#[test]
fn next_hops_are_checked_where_routes_are_used() {
    let check = |keys: &str| {
        let text = format!("[bgp]\nas = 65000\nrouter_id = \"198.18.0.1\"\n{keys}");
        accepted(&text, Path::new("")).bgp.expect("[bgp]").next_hop_check
    };
    for (keys, expected) in [
        ("", NextHopCheck::Off),
        ("install = \"none\"", NextHopCheck::Off),
        ("install = \"fib\"", NextHopCheck::Off),
        ("install = \"kernel\"", NextHopCheck::Kernel),
        ("install = \"kernel\"\nnext_hop_check = \"auto\"", NextHopCheck::Kernel),
        ("install = \"kernel\"\nnext_hop_check = \"off\"", NextHopCheck::Off),
        ("install = \"none\"\nnext_hop_check = \"kernel\"", NextHopCheck::Kernel),
    ] {
        assert_eq!(check(keys), expected, "{keys}");
    }
}

#[test]
fn a_device_of_dpdks_stands_for_an_interface_or_a_card() {
    let text = r#"
        [ports.lan]
        driver = "dpdk"
        device = "net_af_packet0,iface=eth0,framecnt=4096"
        [ports.wan]
        driver = "dpdk"
        device = "3b:00.1"
        [ports.made]
        driver = "dpdk"
        device = "net_tap0,iface=dtap0"
        [ports.none]
        device = "net_null0"
        driver = "dpdk"
        [ports.plain]
        interface = "eth7"
        [dpdk]
        eal = ["--no-huge"]
        mbufs = 8192
    "#;
    let config = RouterConfig::from_text("test.toml", text, Path::new(".")).expect("it is valid");
    let interface = |port: usize| config.ports[port].interface.as_ref().expect("it has one");
    let of = |port| (interface(port).name.as_str(), interface(port).in_system(), interface(port).exclusive());
    assert_eq!(of(0), ("net_af_packet0", Some("eth0"), Some("eth0")));
    assert_eq!(of(1), ("0000:3b:00.1", None, Some("0000:3b:00.1")));
    // The interface that this creates is the system's end.
    assert_eq!(of(2), ("net_tap0", None, None));
    assert_eq!(of(3), ("net_null0", None, None));
    assert_eq!(of(4), ("eth7", Some("eth7"), Some("eth7")));
    assert_eq!(interface(0).device.as_deref(), Some("net_af_packet0,iface=eth0,framecnt=4096"));
    assert_eq!((interface(3).driver, interface(4).device.as_deref()), (Driver::Dpdk, None));
    assert_eq!((config.dpdk.eal.as_slice(), config.dpdk.mbufs), (&["--no-huge".to_owned()][..], 8192));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let text = "[ports.lan]\ninterface = \"eth0\"\n[dpdk]\n";
    let config = RouterConfig::from_text("test.toml", text, Path::new(".")).expect("it is valid");
    assert_eq!(config.dpdk.mbufs, 4096);
    assert!(config.warnings[0].message.contains("no port is driven by DPDK"), "{:?}", config.warnings);
}

/// It takes no interface from the system, so nobody else's is locked or watched.
#[test]
fn a_capture_stands_for_an_interface() {
    let text = r#"
        [ports.lan]
        driver = "capture"
        capture = "office.pcapng"
        interface = "eth0"
        mac = "02:00:00:00:00:01"
        [ports.wan]
        driver = "capture"
        capture = "/tmp/office.pcapng"
        capture_rate = 7
        interface = "eth1"
        mac = "02:00:00:00:00:02"
    "#;
    let config = RouterConfig::from_text("test.toml", text, Path::new("/etc")).expect("it is valid");
    let interface = |port: usize| config.ports[port].interface.as_ref().expect("it has one");
    let played =
        |port| interface(port).capture.as_ref().map(|it| (it.path.to_str().expect("a path"), it.rate));
    assert_eq!((interface(0).name.as_str(), played(0)), ("eth0", Some(("/etc/office.pcapng", 100))));
    assert_eq!((interface(1).name.as_str(), played(1)), ("eth1", Some(("/tmp/office.pcapng", 7))));
    assert_eq!((interface(0).in_system(), interface(0).exclusive()), (None, None));
    assert!(!interface(0).own_mac && !interface(0).driver.takes_interface());
}

/// A hosting provider's single address without a network, and a gateway that is still on the link.
#[test]
fn a_gateway_beyond_a_lone_address() {
    let text = r#"
        [ports.wan]
        interface = "eth0"
        addresses = ["198.51.100.7/32"]
        [[routes]]
        prefix = "0.0.0.0/0"
        via = "203.0.113.1"
        port = "wan"
        onlink = true
    "#;
    let config = RouterConfig::from_text("test.toml", text, Path::new(".")).expect("it is valid");
    assert_eq!(target(&config, "0.0.0.0/0"), &via(0, "203.0.113.1"));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

/// Routes are synchronized by default if a port has a mirror.
#[test]
fn with_a_mirror_routes_are_synchronized_by_default() {
    let sync = |more: &str, kernel: &str| {
        let text =
            format!("[ports.lan]\ninterface = \"eth1\"\naddresses = [\"10.1.0.1/24\"]\n{more}\n{kernel}\n");
        let config = RouterConfig::from_text("test.toml", &text, Path::new(".")).expect("it is valid");
        (config.kernel.import, config.kernel.export)
    };
    assert_eq!(sync("", ""), (false, false));
    assert_eq!(sync("mirror = true", ""), (true, true));
    assert_eq!(sync("mirror = true", "[kernel]\nneighbors = \"both\""), (true, true));
    assert_eq!(sync("mirror = true", "[kernel]\nroutes = \"off\""), (false, false));
    assert_eq!(
        sync("mirror = true", "[bgp]\nas = 1\nrouter_id = \"10.1.0.1\"\ninstall = \"kernel\""),
        (false, false)
    );
}

/// An address that a program adds to a mirror counts as configured, and is checked in the same way.
#[test]
fn addresses_of_mirrors_are_the_ports() {
    let text = r#"
        [ports.lan]
        interface = "eth1"
        addresses = ["10.1.0.1/24"]
        [ports.wan]
        interface = "eth0"
        mirror = true
        [nat]
        outside = "wan"
        inside = ["lan"]
        [[nat.forwards]]
        protocol = "tcp"
        port = 80
        to = "10.1.0.9:80"
    "#;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("router.toml");
    std::fs::write(&file, text).expect("it is writable");
    let source = ConfigSource::read(&file).expect("it is there");
    let learned = |address: &str, length| {
        LearnedAddress::new("wan", address.parse().expect("an address"), length).expect("a length")
    };
    let nat = |config: &RouterConfig| config.nat.clone().expect("there is NAT");
    let before = source.config(&[]).expect("it is valid");
    assert!(nat(&before).public_addresses.is_empty() && nat(&before).forwards.is_empty());
    assert_eq!(before.warnings.len(), 1, "{:?}", before.warnings);
    let after = source.config(&[learned("198.51.100.9", 24)]).expect("it is valid");
    let own: Ipv4Addr = "198.51.100.9".parse().expect("an address");
    assert_eq!((nat(&after).public_addresses, nat(&after).forwards.len()), (vec![own], 1));
    assert_eq!((after.ports[1].addresses.len(), after.ports[1].learned.len()), (1, 1));
    assert_eq!(target(&after, "198.51.100.9/32"), &RouteTarget::Local(1));
    assert_eq!(
        target(&after, "198.51.100.0/24"),
        &RouteTarget::Forward(vec![NextHop { port: 1, gateway: None }])
    );
    let errors = source.config(&[learned("10.1.0.77", 24)]).expect_err("lan has that network").to_string();
    assert!(errors.contains("10.1.0.0/24 is connected to two ports"), "{errors}");
}

#[test]
fn a_sub_interface_is_on_its_parents_interface() {
    let text = r#"
        [ports.trunk]
        interface = "eth0"
        driver = "af_packet"
        mirror = "host0"
        router_advertisements = true
        [ports.office]
        parent = "trunk"
        vlan = 10
        mirror = true
        [ports.plain]
        parent = "trunk"
        vlan = 20
    "#;
    let config = RouterConfig::from_text("test.toml", text, Path::new(".")).expect("it is valid");
    let interface = |name: &str| {
        let port = config.ports.iter().find(|port| port.name == name).expect("the port");
        let interface = port.interface.as_ref().expect("an interface");
        (
            interface.name.as_str(),
            interface.driver,
            interface.mirror.as_deref(),
            interface.router_advertisements,
        )
    };
    assert_eq!(interface("trunk"), ("eth0", Driver::AfPacket, Some("host0"), true));
    assert_eq!(interface("office"), ("eth0", Driver::AfPacket, Some("tw-office"), false));
    assert_eq!(interface("plain"), ("eth0", Driver::AfPacket, None, false));
}

/// Spellings of the previous version are still read.
#[test]
fn former_spellings_are_read() {
    let text = |neighbors: &str, color_aware: &str| {
        format!(
            "[[{neighbors}]]\nport = \"lan\"\naddress = \"192.168.1.7\"\n\
             mac = \"02:00:00:00:00:07\"\n[[qos.classes]]\nname = \"voice\"\nmatch = [{{ dscp = [\"ef\"] }}]\n\
             policer = {{ kind = \"srtcm\", cir = \"1 Mbit/s\", cbs = \"64 KiB\", ebs = \"64 KiB\", {color_aware} = true }}\n"
        )
    };
    let folder = std::env::temp_dir();
    let now = accepted(&text("neighbors", "color_aware"), &folder);
    let before = accepted(&text("neighbours", "colour_aware"), &folder);
    assert_eq!((now.neighbors.len(), &now.neighbors, &now.qos), (1, &before.neighbors, &before.qos));
}
