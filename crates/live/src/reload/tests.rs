use super::*;

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

#[test]
fn what_ports_were_opened_with_stays() {
    let before = config(PORTS, "");
    let other = |from: &str, to: &str| {
        let after = config(&PORTS.replace(from, to), "");
        same_ports(&before, &after).map_err(|error| error.to_string())
    };
    let refused = [
        ("\"eth1\"", "\"eth9\"", "`interface` of [ports.lan]"),
        ("\"af_packet\"", "\"af_xdp\"", "`driver` of [ports.lan]"),
        ("mirror = true", "mirror = \"other\"", "`mirror` of [ports.lan]"),
        ("mirror = true", "mac = \"02:00:00:00:00:09\"\nmirror = true", "`mac` of [ports.lan]"),
        ("vlan = 7", "vlan = 8", "`vlan` of [ports.wan.7]"),
        ("[ports.lan]", "[ports.office]", "[ports] (which there are"),
    ];
    for (from, to, key) in refused {
        let why = other(from, to).expect_err(to);
        assert!(why.contains(key) && why.contains("needs a restart; nothing was changed"), "{why}");
    }
    let taken = [
        ("10.1.0.1/24", "10.1.0.1/16"),
        ("mirror = true", "mirror = true\nmtu = 1400\nurpf = \"strict\"\nrouter_advertisements = true"),
        ("mirror = true", "default_mac = \"02:00:00:00:00:09\"\nmirror = true"),
    ];
    for (from, to) in taken {
        assert_eq!(other(from, to), Ok(()), "{to}");
    }
}

#[test]
fn what_is_different_is_said() {
    let nat = "[nat]\noutside = \"wan\"\ninside = [\"lan\"]\naddresses = [\"198.51.100.1\"]\n";
    let plain = config(PORTS, "");
    let said = |before: &RouterConfig, ports: &str, rest: &str| differences(before, &config(ports, rest));
    assert_eq!(said(&plain, PORTS, ""), Vec::<String>::new());
    // Inside ports of NAT have a check of sources of their own.
    assert_eq!(said(&plain, PORTS, nat), ["port lan: settings changed", "NAT starts"]);
    let translating = config(PORTS, nat);
    assert_eq!(said(&translating, PORTS, ""), ["port lan: settings changed", "NAT ends"]);
    assert_eq!(said(&translating, PORTS, &format!("{nat}hairpin = false\n")), ["NAT: settings changed"]);
    let everything = "[validate]\nmartians = false\n[[acl]]\nname = \"a\"\n[[qos.egress]]\nport = \"wan\"\nrate = \"1 Gbit/s\"\n\
                      [[neighbours]]\nport = \"lan\"\naddress = \"10.1.0.9\"\nmac = \"02:00:00:00:00:09\"\n";
    assert_eq!(
        said(&plain, &PORTS.replace("10.1.0.1/24", "10.1.0.1/16"), everything),
        [
            "port lan: settings changed",
            "access lists changed",
            "classes and queues changed",
            "[validate] changed",
            "[[neighbours]] changed"
        ]
    );
}

#[test]
fn the_host_is_told_what_concerns_it() {
    let station = |address: &str, mac: u8| {
        format!("[[neighbours]]\nport = \"lan\"\naddress = \"{address}\"\nmac = \"02:00:00:00:00:0{mac}\"\n")
    };
    let before = config(
        PORTS,
        &format!("{}{}{}", station("10.1.0.7", 1), station("10.1.0.8", 2), station("10.1.0.9", 3)),
    );
    let ports = PORTS.replace("10.1.0.1/24", "10.1.0.1/25");
    let nat = "[nat]\noutside = \"wan\"\ninside = [\"lan\"]\naddresses = [\"198.51.100.1\"]\n";
    let after = config(&ports, &format!("{}{}{nat}", station("10.1.0.7", 1), station("10.1.0.8", 5)));
    let change = host_change(&before, &after);
    let changed: Vec<_> =
        change.ports.iter().map(|change| (change.port, change.addresses[0].to_string())).collect();
    assert_eq!(changed, [(0, "10.1.0.1/25".to_owned())]);
    let address = |last: u8| IpAddr::from([10, 1, 0, last]);
    assert_eq!(change.forgotten, [(0, address(9))]);
    assert_eq!(change.stations, [(0, address(8), [2, 0, 0, 0, 0, 5])]);
    assert_eq!(change.outside, Some(1));

    // An address that NAT gives out from now on is answered for.
    let pool = nat.replace("198.51.100.1", "198.51.100.77");
    let change = host_change(&after, &config(&ports, &pool));
    let translated: Vec<_> =
        change.ports.into_iter().map(|change| (change.port, change.translated)).collect();
    assert_eq!(translated, [(1, vec!["198.51.100.77".parse().unwrap()])]);
}

#[test]
fn a_reload_is_summed_up_in_one_line() {
    use thalweg_dataplane::nat::Inherited;
    let routes = RouteCounts { set: 1, removed: 1 };
    let swapped = Swapped { pause: Duration::from_micros(3_900), ..Swapped::default() };
    let none = TakenOver::default();
    assert_eq!(
        in_words(routes, Some(1826), &none, swapped),
        "1 route added or changed, 1 removed; 1,826 NAT sessions kept; paused 3.90 ms"
    );
    assert_eq!(in_words(RouteCounts::default(), None, &none, swapped), "paused 3.90 ms");
    let taken = TakenOver { sessions: Some(Inherited { kept: 5, displaced: 2 }) };
    assert_eq!(
        in_words(RouteCounts::default(), Some(5), &taken, swapped),
        "5 NAT sessions kept, 2 ended; paused 3.90 ms"
    );
}
