use super::super::*;
use super::*;

use std::path::Path as FilePath;

use proptest::prelude::*;
use thalweg_dataplane::lpm::Lpm;
use thalweg_wire::MacAddr;

fn config(text: &str) -> RouterConfig {
    let ports = r#"
[ports.lan]
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
[ports.wan]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
[ports.red]
mac = "02:00:00:00:00:04"
addresses = ["198.51.100.1/24"]
vrf = "red"
[vrfs.red]
"#;
    match RouterConfig::from_text("test.toml", &format!("{ports}{text}"), FilePath::new("")) {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

/// The paths of the number that a packet to the address matches.
fn ends(tables: &LiveTables, address: IpAddr) -> Vec<Path> {
    ends_in(tables, 0, address)
}

fn ends_in(tables: &LiveTables, vrf: usize, address: IpAddr) -> Vec<Path> {
    let (fib4, fib6) = tables.fib().all().nth(vrf).expect("the table");
    let number = match address {
        IpAddr::V4(address) => fib4.lookup(u32::from(address)),
        IpAddr::V6(address) => fib6.lookup(u128::from(address)),
    };
    if let Some(other) = table_of(number) {
        // A leak: no port has such a number.
        return vec![Path::Local { port: u16::MAX - other }];
    }
    let number = tables.fib().plain(number);
    number.checked_sub(1).map_or_else(Vec::new, |index| tables.groups[usize::from(index)].paths().collect())
}

fn turn(tables: &mut LiveTables, before: &RouterConfig, after: &RouterConfig, slice: usize) {
    let mut change = tables.begin_routes(RouteDifference::between(before, after)).expect("numbers");
    while !tables.change_routes(&mut change, slice).expect("enough room") {}
    tables.finish_routes(change);
}

#[test]
fn only_what_differs_is_touched() {
    let before = config(
        "[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n\
         [[routes]]\nprefix = \"192.0.2.0/24\"\nvia = \"198.51.100.3\"\n",
    );
    let after = config(
        "[[routes]]\nprefix = \"192.0.2.0/24\"\nvia = \"198.51.100.4\"\n\
         [[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n\
         [[routes]]\nprefix = \"2001:db8:77::/48\"\naction = \"blackhole\"\n",
    );
    let difference = RouteDifference::between(&before, &after);
    assert_eq!(difference.counts(), RouteCounts { added: 1, changed: 1, removed: 0 });
    assert_eq!(
        RouteDifference::between(&after, &before).counts(),
        RouteCounts { added: 0, changed: 1, removed: 1 }
    );
    assert_eq!(RouteDifference::between(&after, &after.clone()).counts(), RouteCounts::default());
    let mut tables = LiveTables::new(&before).expect("tables");
    turn(&mut tables, &before, &after, 1);
    let via = |address: &str| Path::Neighbor { port: 1, address: address.parse().expect("an address") };
    assert_eq!(ends(&tables, "192.0.2.9".parse().expect("an address")), [via("198.51.100.4")]);
    assert_eq!(ends(&tables, "8.8.8.8".parse().expect("an address")), [via("198.51.100.2")]);
    assert_eq!(
        ends(&tables, "2001:db8:77::1".parse().expect("an address")),
        [Path::Drop(DropReason::Blackhole)]
    );
    let gateways: Vec<_> = tables.gateways().iter().map(|(_, address)| address.to_string()).collect();
    assert_eq!(gateways, ["198.51.100.2", "198.51.100.4"], "the old one is not wanted any more");
}

#[test]
fn neighbors_stay_and_configured_host_routes_come_and_go_around_them() {
    let plain = config("");
    let steered = config("[[routes]]\nprefix = \"198.51.100.7/32\"\nvia = \"10.1.0.9\"\n");
    let mut tables = LiveTables::new(&plain).expect("tables");
    let neighbor: IpAddr = "198.51.100.7".parse().expect("an address");
    let own = [Path::Neighbor { port: 1, address: neighbor }];
    let other = [Path::Neighbor { port: 0, address: "10.1.0.9".parse().expect("an address") }];
    assert!(tables.resolved(1, neighbor, MacAddr([2; 6])));
    assert_eq!(ends(&tables, neighbor), own);
    turn(&mut tables, &plain, &steered, 9);
    assert_eq!(ends(&tables, neighbor), other, "what is configured wins");
    tables.lost(1, neighbor);
    assert_eq!(ends(&tables, neighbor), other);
    assert!(tables.resolved(1, neighbor, MacAddr([2; 6])));
    turn(&mut tables, &steered, &plain, 9);
    assert_eq!(ends(&tables, neighbor), own);
    tables.lost(1, neighbor);
    assert_eq!(ends(&tables, neighbor), [Path::Glean { port: 1 }]);
    // A network's last address gets a route if a host really has it.
    let last: IpAddr = "198.51.100.255".parse().expect("an address");
    assert_eq!(ends(&tables, last), [Path::Drop(DropReason::NotUnicast)]);
    tables.resolved(1, last, MacAddr([3; 6]));
    assert_eq!(ends(&tables, last), [Path::Neighbor { port: 1, address: last }]);
    tables.lost(1, last);
    assert_eq!(ends(&tables, last), [Path::Drop(DropReason::NotUnicast)]);
}

#[test]
fn too_many_targets_change_nothing() {
    let many = |count: u32| {
        let routes = (0..count).map(|n| {
            let (high, low) = (n / 250, n % 250 + 2);
            format!("[[routes]]\nprefix = \"20.{}.{}.0/24\"\nvia = \"30.0.{high}.{low}\"\n", n >> 8, n & 255)
        });
        let port = "[ports.big]\nmac = \"02:00:00:00:00:03\"\naddresses = [\"30.0.255.1/16\"]\n";
        config(&format!("{port}{}", routes.collect::<String>()))
    };
    let before = many(1);
    let after = many(11_000);
    let mut tables = LiveTables::new(&before).expect("tables");
    let refused = tables.begin_routes(RouteDifference::between(&before, &after));
    assert!(matches!(refused, Err(BuildError::TooManyNextHops { .. })), "{refused:?}");
    assert_eq!(tables.gateways().len(), 1);
    // All numbers are available again.
    let some = many(2_000);
    turn(&mut tables, &before, &some, 100);
    assert_eq!(tables.gateways().len(), 2_000);
    turn(&mut tables, &some, &before, 100);
    turn(&mut tables, &before, &some, 100);
    assert_eq!(tables.gateways().len(), 2_000);
}

/// Network, length and target of a route, and whether it is of the VRF.
type Drawn = (u8, u8, u8, bool);

/// Routes of a generated configuration.
fn routes() -> impl Strategy<Value = Vec<Drawn>> {
    let length = prop::sample::select(vec![0u8, 8, 12, 16, 24, 30, 32]);
    prop::collection::vec((0u8..6, length, 0u8..6, any::<bool>()), 0..24)
}

fn text_of(routes: &[Drawn]) -> String {
    let mut seen = std::collections::HashSet::new();
    let (mut text, mut leaks) = (String::new(), String::new());
    for (net, length, target, is_red) in routes {
        let address = u32::from_be_bytes([20, *net << 4, *net, *net << 2]);
        let address =
            std::net::Ipv4Addr::from(address & u32::MAX.checked_shl(32 - u32::from(*length)).unwrap_or(0));
        if !seen.insert((address, *length, *is_red)) {
            continue;
        }
        let (vrf, other) = if *is_red { ("red", "main") } else { ("main", "red") };
        if *target == 5 {
            leaks +=
                &format!("[[vrfs.{vrf}.leaks]]\nfrom = \"{other}\"\nprefixes = \"{address}/{length}\"\n");
            continue;
        }
        text += &format!("[[routes]]\nprefix = \"{address}/{length}\"\nvrf = \"{vrf}\"\n");
        text += &match target {
            0 => "action = \"blackhole\"\n".to_owned(),
            1 => "action = \"unreachable\"\n".to_owned(),
            n => format!("via = \"198.51.100.{}\"\n", n + 7),
        };
    }
    text + &leaks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// From any configuration to any other and, through a change that is undone half way, on to a third: the
    /// answers always equal those of tables built from the configuration.
    #[test]
    fn tables_that_changed_answer_like_tables_that_were_made(
        a in routes(), b in routes(), c in routes(), slice in 1usize..9, stop in 0usize..30,
        neighbors in prop::collection::vec(0u8..6, 0..4),
    ) {
        let [first, second, third] = [&a, &b, &c].map(|routes| config(&text_of(routes)));
        let mut tables = LiveTables::new(&first).expect("tables");
        let mut reference = LiveTables::new(&third).expect("tables");
        for neighbor in neighbors {
            let address = IpAddr::from([198, 51, 100, neighbor + 8]);
            let port = 1 + u16::from(neighbor % 2);
            tables.resolved(port, address, MacAddr([2, 0, 0, 0, 0, neighbor]));
            reference.resolved(port, address, MacAddr([2, 0, 0, 0, 0, neighbor]));
        }
        turn(&mut tables, &first, &second, slice);
        let mut undone = tables.begin_routes(RouteDifference::between(&second, &first)).expect("numbers");
        while undone.done < stop && !tables.change_routes(&mut undone, 1).expect("enough room") {}
        while !tables.undo_routes(&mut undone, slice) {}
        let mut same = LiveTables::new(&second).expect("tables");
        agree(&mut tables, &mut same);
        turn(&mut tables, &second, &third, slice);
        agree(&mut tables, &mut reference);
    }
}

fn agree(tables: &mut LiveTables, reference: &mut LiveTables) {
    for vrf in 0..2 {
        for net in 0..7u8 {
            for low in [0, 1, 3, 255] {
                let address = IpAddr::from([20, net << 4, net, (net << 2) ^ low]);
                assert_eq!(
                    ends_in(tables, vrf, address),
                    ends_in(reference, vrf, address),
                    "{vrf} {address}"
                );
            }
        }
        for last in [1, 2, 8, 9, 10, 11, 255] {
            let address = IpAddr::from([198, 51, 100, last]);
            let (ours, theirs) = (ends_in(tables, vrf, address), ends_in(reference, vrf, address));
            let host = (vrf as VrfIndex, address);
            if reference.neighbor_hosts.contains_key(&host) == tables.neighbor_hosts.contains_key(&host) {
                assert_eq!(ours, theirs, "{vrf} {address}");
            }
        }
    }
    let neighbors: Vec<_> =
        tables.neighbor_hosts.keys().chain(reference.neighbor_hosts.keys()).copied().collect();
    let without = |gateways: Vec<(u16, IpAddr)>| {
        let is_other = |(port, address): &(u16, IpAddr)| !neighbors.contains(&(*port / 2, *address));
        gateways.into_iter().filter(is_other).collect::<Vec<_>>()
    };
    assert_eq!(without(tables.gateways()), without(reference.gateways()));
}

/// Neighbors of a port follow it to another table, and a table whose VRF is gone is empty.
#[test]
fn a_port_moves_to_another_table() {
    let text = |vrf: &str| {
        let port = "[ports.more]\nmac = \"02:00:00:00:00:05\"\naddresses = [\"10.9.0.1/24\"]\n";
        config(&format!("{port}vrf = \"{vrf}\"\n"))
    };
    let (main, red) = (text("main"), text("red"));
    let mut tables = LiveTables::new(&main).expect("tables");
    let host: IpAddr = [10, 9, 0, 7].into();
    let neighbor = vec![Path::Neighbor { port: 3, address: host }];
    tables.resolved(3, host, MacAddr([2; 6]));
    assert_eq!((ends_in(&tables, 0, host), ends_in(&tables, 1, host)), (neighbor.clone(), Vec::new()));
    turn(&mut tables, &main, &red, 9);
    let link = tables.port(3).expect("the port");
    tables.set_port(3, PortLink { vrf: 1, ..link });
    assert_eq!((ends_in(&tables, 0, host), ends_in(&tables, 1, host)), (Vec::new(), neighbor));
    let router = tables.router();
    assert_eq!([0, 1, 2, 3, 9].map(|port| router.vrf_of(port)), [0, 0, 1, 1, 0]);
    tables.lost(3, host);
    assert_eq!(ends_in(&tables, 1, host), [Path::Glean { port: 3 }]);
}
