use super::*;
use thalweg_wire::MacAddr;

use std::path::Path;

fn config(ports: &str, rest: &str) -> RouterConfig {
    let text = format!("{ports}{rest}");
    match RouterConfig::from_text("test.toml", &text, Path::new("")) {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

const PORTS: &str = r#"
[ports.lan]
interface = "eth1"
driver = "af_packet"
addresses = ["10.1.0.1/24"]
mirror = true
[ports.wan]
interface = "eth0"
addresses = ["198.51.100.1/24"]
[ports."wan.7"]
parent = "wan"
vlan = 7
addresses = ["198.51.101.1/24"]
"#;

/// The configuration as read by a router that was started with [`PORTS`].
fn next(ports: &str) -> RouterConfig {
    let names = ["lan", "wan", "wan.7"].map(str::to_owned).to_vec();
    let places = thalweg_config::Places { ports: names, ..Default::default() };
    let source = thalweg_config::ConfigSource::of_text("router.toml", ports, Path::new(""));
    source.config_in_places(&[], &places).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn what_ports_were_opened_with_stays() {
    let before = next(PORTS);
    let other = |from: &str, to: &str| {
        let difference = PortDifference::between(&before, &next(&PORTS.replace(from, to)));
        difference.map_err(|error| error.to_string())
    };
    let restart = "needs a restart; nothing was changed";
    let refused = [
        ("\"af_packet\"", "\"af_xdp\"", "`driver` of [ports.lan]", restart),
        ("mirror = true", "mac = \"02:00:00:00:00:09\"\nmirror = true", "`mac` of [ports.lan]", restart),
        (
            "[ports.lan]",
            "[ports.office]",
            "interface eth1 moves from port lan to port office",
            "with the next",
        ),
        (
            "[ports.wan]",
            "[ports.new]\ninterface = \"eth7\"\noffload = true\n[ports.wan]",
            "`offload = true` of [ports.new]",
            "only a restart",
        ),
    ];
    for (from, to, key, what) in refused {
        let why = other(from, to).expect_err(to);
        assert!(why.contains(key) && why.contains(what), "{why}");
    }
    let taken = [
        ("10.1.0.1/24", "10.1.0.1/16"),
        ("mirror = true", "mirror = true\nmtu = 1400\nurpf = \"strict\"\nrouter_advertisements = true"),
        ("mirror = true", "default_mac = \"02:00:00:00:00:09\"\nmirror = true"),
    ];
    for (from, to) in taken {
        assert_eq!(other(from, to), Ok(PortDifference::default()), "{to}");
    }
}

#[test]
fn ports_come_and_go_and_others_keep_their_numbers() {
    let before = next(PORTS);
    let numbers = |config: &RouterConfig| {
        let ports = config.ports.iter().map(|port| port.name.clone());
        ports.collect::<Vec<_>>()
    };
    assert_eq!(numbers(&before), ["lan", "wan", "wan.7"]);
    let said = |after: &RouterConfig| {
        let difference = PortDifference::between(&before, after).expect("it can be done");
        let words = difference.in_words(&before, after).join(", ");
        (difference.gone, difference.new, words)
    };
    let without = |name: &str| {
        let from = PORTS.find(&format!("[ports.{name}]")).expect("it is there");
        let to = PORTS[from + 1..].find("[ports.").map_or(PORTS.len(), |to| from + 1 + to);
        format!("{}{}", &PORTS[..from], &PORTS[to..])
    };
    let lan_gone = next(&without("lan"));
    assert_eq!(numbers(&lan_gone), ["", "wan", "wan.7"]);
    assert!(lan_gone.ports[0].is_vacant());
    assert_eq!(said(&lan_gone), (vec![0], vec![], "port lan: removed".to_owned()));
    let vlan_gone = next(&without("\"wan.7\""));
    assert_eq!(said(&vlan_gone), (vec![2], vec![], "port wan.7: removed".to_owned()));
    // New ports are appended, wherever the file has them.
    let more = "[ports.aaa]\ninterface = \"eth5\"\n[ports.\"wan.8\"]\nparent = \"wan\"\nvlan = 8\n";
    let more = next(&format!("{more}{PORTS}"));
    assert_eq!(numbers(&more), ["lan", "wan", "wan.7", "aaa", "wan.8"]);
    assert_eq!(more.ports[4].sub_interface.map(|sub| sub.parent), Some(1));
    assert_eq!(said(&more), (vec![], vec![3, 4], "port aaa: added, port wan.8: added".to_owned()));
    // Another VLAN or interface makes another port with the same number; its sub-interfaces change with it.
    let other = next(&PORTS.replace("vlan = 7", "vlan = 8"));
    assert_eq!(said(&other), (vec![2], vec![2], "port wan.7: opened anew".to_owned()));
    let moved = next(&PORTS.replace("\"eth0\"", "\"eth9\""));
    assert_eq!(said(&moved).0, [1, 2]);
    // A port that returns gets its number back.
    let back = PortDifference::between(&lan_gone, &before).expect("it can be done");
    assert_eq!((back.gone, back.new), (vec![], vec![0]));
}

#[test]
fn what_is_different_is_said() {
    let nat = "[nat]\noutside = \"wan\"\ninside = [\"lan\"]\naddresses = [\"198.51.100.1\"]\n";
    let plain = config(PORTS, "");
    let said =
        |before: &RouterConfig, ports: &str, rest: &str| differences(before, &config(ports, rest), &[]);
    assert_eq!(said(&plain, PORTS, ""), Vec::<String>::new());
    // NAT's inside ports have a source check of their own.
    assert_eq!(said(&plain, PORTS, nat), ["port lan: settings changed", "NAT starts"]);
    let translating = config(PORTS, nat);
    assert_eq!(said(&translating, PORTS, ""), ["port lan: settings changed", "NAT ends"]);
    assert_eq!(said(&translating, PORTS, &format!("{nat}hairpin = false\n")), ["NAT: settings changed"]);
    let everything = "[validate]\nmartians = false\n[[acl]]\nname = \"a\"\n[[qos.egress]]\nport = \"wan\"\nrate = \"1 Gbit/s\"\n\
                      [[neighbors]]\nport = \"lan\"\naddress = \"10.1.0.9\"\nmac = \"02:00:00:00:00:09\"\n";
    assert_eq!(
        said(&plain, &PORTS.replace("10.1.0.1/24", "10.1.0.1/16"), everything),
        [
            "port lan: settings changed",
            "access lists changed",
            "classes and queues changed",
            "[validate] changed",
            "[[neighbors]] changed"
        ]
    );
}

#[test]
fn the_host_is_told_what_concerns_it() {
    let neighbor = |address: &str, mac: u8| {
        format!("[[neighbors]]\nport = \"lan\"\naddress = \"{address}\"\nmac = \"02:00:00:00:00:0{mac}\"\n")
    };
    let before = config(
        PORTS,
        &format!("{}{}{}", neighbor("10.1.0.7", 1), neighbor("10.1.0.8", 2), neighbor("10.1.0.9", 3)),
    );
    let ports = PORTS.replace("10.1.0.1/24", "10.1.0.1/25");
    let nat = "[nat]\noutside = \"wan\"\ninside = [\"lan\"]\naddresses = [\"198.51.100.1\"]\n";
    let after = config(&ports, &format!("{}{}{nat}", neighbor("10.1.0.7", 1), neighbor("10.1.0.8", 5)));
    let change = host_change(&before, &after);
    let changed: Vec<_> =
        change.ports.iter().map(|change| (change.port, change.addresses[0].to_string())).collect();
    assert_eq!(changed, [(0, "10.1.0.1/25".to_owned())]);
    let address = |last: u8| IpAddr::from([10, 1, 0, last]);
    assert_eq!(change.forgotten, [(0, address(9))]);
    assert_eq!(change.static_neighbors, [(0, address(8), MacAddr([2, 0, 0, 0, 0, 5]))]);
    assert_eq!(change.nat_ports, Some(NatPorts { outside: 1, inside: 0 }));

    // The router answers ARP for an address that NAT uses from now on.
    let pool = nat.replace("198.51.100.1", "198.51.100.77");
    let change = host_change(&after, &config(&ports, &pool));
    let translated: Vec<_> =
        change.ports.into_iter().map(|change| (change.port, change.translated)).collect();
    assert_eq!(translated, [(1, vec!["198.51.100.77/32".parse().unwrap()])]);
}

#[test]
fn a_reload_is_summed_up_in_one_line() {
    use thalweg_dataplane::nat::NatMigration;
    let routes = RouteCounts { added: 1, changed: 0, removed: 1 };
    let swapped = Swapped { pause: Duration::from_micros(3_900), ..Swapped::default() };
    let none = Migrated::default();
    assert_eq!(
        in_words(routes, Some(1826), &none, 0, swapped),
        "1 route added, 1 removed; 1,826 NAT sessions kept; paused 3.90 ms"
    );
    let routes = RouteCounts { added: 0, changed: 2, removed: 1000 };
    assert_eq!(in_words(routes, None, &none, 0, swapped), "2 routes changed, 1,000 removed; paused 3.90 ms");
    assert_eq!(in_words(RouteCounts::default(), None, &none, 0, swapped), "paused 3.90 ms");
    let taken = Migrated { sessions: Some(NatMigration { kept: 5, displaced: 2 }), states_lost: 0 };
    assert_eq!(
        in_words(RouteCounts::default(), Some(5), &taken, 1, swapped),
        "5 NAT sessions kept, 3 ended; paused 3.90 ms"
    );
}
