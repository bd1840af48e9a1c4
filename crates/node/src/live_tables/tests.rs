use super::*;

use std::path::Path as FilePath;

use proptest::prelude::*;
use thalweg_dataplane::route::Adjacency;
use thalweg_wire::MacAddr;

use crate::live_tables::OtherWay;

/// Routes through one gateway, through two, and through a third that the default route also uses.
const CONFIG: &str = r#"
[ports.a]
interface = "a0"
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24"]
[ports.b]
interface = "b0"
mac = "02:00:00:00:00:02"
addresses = ["10.2.0.1/24"]
[[routes]]
prefix = "20.0.0.0/8"
via = "10.1.0.2"
[[routes]]
prefix = "30.0.0.0/8"
via = ["10.1.0.2", "10.2.0.2"]
[[routes]]
prefix = "40.0.0.0/8"
via = "10.2.0.3"
[[routes]]
prefix = "0.0.0.0/0"
via = "10.2.0.3"
"#;

/// Neighbors: port, address.
const NEIGHBORS: [(u16, [u8; 4]); 4] =
    [(0, [10, 1, 0, 2]), (1, [10, 2, 0, 2]), (1, [10, 2, 0, 3]), (0, [10, 1, 0, 77])];

fn tables() -> LiveTables {
    LiveTables::new(&RouterConfig::from_text("test.toml", CONFIG, FilePath::new(".")).unwrap()).unwrap()
}

fn neighbor(index: usize) -> (u16, IpAddr) {
    let (port, address) = NEIGHBORS[index];
    (port, address.into())
}

/// The path of a packet to the address.
fn meets(tables: &LiveTables, address: [u8; 4]) -> Vec<Adjacency> {
    let router = tables.router();
    let number = thalweg_dataplane::lpm::Lpm::lookup(&*router.fib4, u32::from_be_bytes(address));
    router.next_hops.load().paths(number).collect()
}

proptest! {
    /// Whatever happens to neighbors and ports, one by one or several at once, packets follow the present state.
    #[test]
    fn every_route_follows_its_neighbors(
        steps in prop::collection::vec(
            prop_oneof![
                4 => prop::collection::vec((0usize..4, prop::option::of(1u8..4)), 1..5).prop_map(Ok),
                1 => (0u16..2, any::<bool>()).prop_map(Err),
            ],
            1..12,
        ),
    ) {
        let mut tables = tables();
        let (mut macs, mut up) = ([None; 4], [true; 2]);
        for step in steps {
            match step {
                Ok(news) => {
                    let mac = |byte: u8| MacAddr([2, 0, 0, 0, 9, byte]);
                    let told: Vec<_> =
                        news.iter().map(|(index, byte)| (neighbor(*index), byte.map(mac))).collect();
                    prop_assert_eq!(tables.set_neighbors(&told), 0);
                    news.iter().for_each(|(index, byte)| macs[*index] = byte.map(mac));
                }
                Err((port, is_up)) => {
                    let before = tables.port(port).unwrap();
                    tables.set_port(port, PortLink { is_up, ..before });
                    up[usize::from(port)] = is_up;
                }
            }
            let to = |index: usize| {
                let (port, _) = NEIGHBORS[index];
                match (up[usize::from(port)], macs[index]) {
                    (false, _) => Adjacency::Drop(DropReason::TransmitFailed),
                    (true, None) => Adjacency::Glean { port },
                    (true, Some(destination_mac)) => {
                        let source_mac = tables.port(port).unwrap().mac;
                        Adjacency::Forward { port, destination_mac, source_mac, mtu_bytes: 1500 }
                    }
                }
            };
            prop_assert_eq!(meets(&tables, [20, 1, 1, 1]), [to(0)]);
            let both = [to(0), to(1)];
            let is_forward = |to: &&Adjacency| matches!(to, Adjacency::Forward { .. });
            let has_link = |to: &&Adjacency| !matches!(to, Adjacency::Drop(_));
            let mut expected: Vec<_> = both.iter().filter(is_forward).copied().collect();
            if expected.is_empty() {
                expected = both.iter().filter(has_link).copied().collect();
            }
            if expected.is_empty() {
                expected = both.to_vec();
            }
            prop_assert_eq!(meets(&tables, [30, 1, 1, 1]), expected);
            prop_assert_eq!(meets(&tables, [40, 1, 1, 1]), [to(2)]);
            prop_assert_eq!(meets(&tables, [99, 1, 1, 1]), [to(2)]);
            for (index, (port, address)) in NEIGHBORS.into_iter().enumerate() {
                // Of a network that is down only neighbors stay, and those go as soon as they are reported lost.
                let is_gone = !up[usize::from(port)] && macs[index].is_none();
                prop_assert_eq!(meets(&tables, address), [to(if is_gone { 2 } else { index })]);
            }
        }
    }
}

/// A default route is distinguished from other routes to the same place, whatever its source.
#[test]
fn default_routes_have_numbers_of_their_own() {
    let mut tables = tables();
    let leads = |tables: &LiveTables, address: [u8; 4], through_default: bool| {
        let router = tables.router();
        let number = thalweg_dataplane::lpm::Lpm::lookup(&*router.fib4, u32::from_be_bytes(address));
        router.next_hops.load().leads_out(number, through_default)
    };
    assert!(leads(&tables, [40, 1, 1, 1], false) && leads(&tables, [99, 1, 1, 1], true));
    assert!(!leads(&tables, [99, 1, 1, 1], false), "it is reached by the default route only");
    assert_eq!(
        tables.next_of(u32::from(number(&tables, [99, 1, 1, 1])), 0, [99, 1, 1, 1].into()),
        Some(neighbor(2))
    );
    assert_eq!(
        tables.fib().lookup([99, 1, 1, 1].into()).1.map(|prefix| prefix.to_string()).as_deref(),
        Some("0.0.0.0/0")
    );

    // The configured one goes; BGP's, which it had hidden, has the same next hop as another of BGP's.
    let everything: IpPrefix = "0.0.0.0/0".parse().unwrap();
    let prefix = |text: &str| match text.parse().unwrap() {
        IpPrefix::V4(prefix) => prefix,
        IpPrefix::V6(_) => unreachable!(),
    };
    let hop = tables.first_hop();
    tables.set_hop(hop, Way::Neighbor { address: [10, 1, 0, 2].into(), link: 0 }, None);
    tables.install_v4(&[
        Install { prefix: prefix("0.0.0.0/0"), hop: Some(hop) },
        Install { prefix: prefix("50.0.0.0/8"), hop: Some(hop) },
    ]);
    tables.finish();
    assert_eq!(meets(&tables, [99, 1, 1, 1]), [Adjacency::Glean { port: 1 }]);
    tables.tables.set_base_route(everything, None);
    tables.resolved(0, [10, 1, 0, 2].into(), MacAddr([2, 0, 0, 0, 9, 9]));
    for address in [[99, 1, 1, 1], [50, 1, 1, 1]] {
        assert!(matches!(meets(&tables, address)[..], [Adjacency::Forward { port: 0, .. }]));
        assert_eq!(tables.fib().lookup(address.into()).0, hop);
    }
    assert!(leads(&tables, [50, 1, 1, 1], false) && !leads(&tables, [99, 1, 1, 1], false));
    tables.install_v4(&[Install { prefix: prefix("0.0.0.0/0"), hop: None }]);
    tables.finish();
    assert_eq!(meets(&tables, [99, 1, 1, 1]), [Adjacency::Drop(DropReason::NoRoute)]);
    assert!(!leads(&tables, [99, 1, 1, 1], true) && leads(&tables, [50, 1, 1, 1], true));
}

fn number(tables: &LiveTables, address: [u8; 4]) -> NextHopId {
    thalweg_dataplane::lpm::Lpm::lookup(&*tables.router().fib4, u32::from_be_bytes(address))
}

/// Only gateways of routes are listed. Removed neighbors leave nothing behind.
#[test]
fn only_gateways_are_wanted() {
    let mut tables = tables();
    let expected = vec![neighbor(0), neighbor(1), neighbor(2)];
    for round in 0..3u8 {
        for host in 10..200 {
            assert!(tables.resolved(0, [10, 1, 0, host].into(), MacAddr([2, 0, 0, 0, round, host])));
        }
        assert_eq!(tables.gateways(), expected);
        let groups = tables.groups.len();
        for host in 10..200 {
            tables.lost(0, [10, 1, 0, host].into());
        }
        assert_eq!((tables.gateways(), tables.groups.len()), (expected.clone(), groups));
    }
}

/// A route of a lower metric serves while one of its paths is usable, then the next; backups are solicited.
#[test]
fn metrics_decide_among_what_is_usable() {
    let text = CONFIG.replace("[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"10.2.0.3\"\n", "")
        + "[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"10.2.0.3\"\nmetric = 20\n\
           [[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"10.1.0.2\"\nmetric = 10\n\
           [[routes]]\nprefix = \"0.0.0.0/0\"\naction = \"blackhole\"\nmetric = 30\n";
    let config = RouterConfig::from_text("test.toml", &text, FilePath::new(".")).unwrap();
    let mut tables = LiveTables::new(&config).unwrap();
    let by = |tables: &LiveTables| match meets(tables, [99, 1, 1, 1])[..] {
        [Adjacency::Forward { port, .. }] => Some(port),
        [Adjacency::Drop(DropReason::Blackhole)] => None,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(tables.gateways(), [neighbor(0), neighbor(1), neighbor(2)]);
    assert_eq!(by(&tables), None, "nobody is known");
    let mac = MacAddr([2, 0, 0, 0, 9, 9]);
    tables.set_neighbors(&[(neighbor(0), Some(mac)), (neighbor(2), Some(mac))]);
    assert_eq!(by(&tables), Some(0));
    let before = tables.life_changes();
    tables.set_neighbors(&[(neighbor(0), None)]);
    assert_eq!((by(&tables), tables.silent()), (Some(1), vec![neighbor(0)]));
    assert!(tables.life_changes() > before && tables.is_dead(0, Some(neighbor(0).1)));
    assert!(!tables.is_dead(1, Some([10, 2, 0, 77].into())), "it was not asked for");
    let up = tables.port(1).unwrap();
    tables.set_port(1, PortLink { is_up: false, ..up });
    assert_eq!(by(&tables), None);
    assert!(tables.is_dead(1, Some(neighbor(2).1)));
    tables.set_port(1, up);
    assert_eq!(by(&tables), Some(1), "its neighbor is still known to the tables");
    tables.set_neighbors(&[(neighbor(0), Some(mac))]);
    assert_eq!((by(&tables), tables.silent()), (Some(0), vec![]));
    // A host that is not a gateway changes nothing.
    tables.resolved(0, neighbor(3).1, mac);
    tables.lost(0, neighbor(3).1);
    assert_eq!(tables.silent(), []);
}

/// While a port is down, its network and the unused addresses in it follow another route, if there is one.
#[test]
fn the_network_of_a_port_that_is_down_is_left_to_others() {
    let mut tables = tables();
    let (hop, mac) = (tables.first_hop(), MacAddr([2, 0, 0, 0, 9, 3]));
    tables.resolved(1, neighbor(2).1, mac);
    tables.set_hop(hop, Way::Neighbor { address: neighbor(2).1, link: 1 }, None);
    let network = Prefix::new(u32::from_be_bytes([10, 1, 0, 0]), 24).unwrap();
    tables.install_v4(&[Install { prefix: network, hop: Some(hop) }]);
    tables.finish();
    let glean = [Adjacency::Glean { port: 0 }];
    let source_mac = tables.port(1).unwrap().mac;
    let other = [Adjacency::Forward { port: 1, destination_mac: mac, source_mac, mtu_bytes: 1500 }];
    let own = [Adjacency::Local { port: 0 }];
    let (up, hosts) = (tables.port(0).unwrap(), [[10, 1, 0, 9], [10, 1, 0, 0], [10, 1, 0, 255]]);
    for round in 0..2 {
        assert_eq!(meets(&tables, hosts[0]), glean, "{round}");
        assert_eq!(meets(&tables, hosts[2]), [Adjacency::Drop(DropReason::NotUnicast)]);
        tables.set_port(0, PortLink { is_up: false, ..up });
        for host in hosts {
            assert_eq!(meets(&tables, host), other, "{host:?}");
        }
        assert_eq!(meets(&tables, [10, 1, 0, 1]), own, "its own address stays");
        assert_eq!(tables.source_of(number(&tables, hosts[0])), "bgp");
        tables.set_port(0, up);
    }

    // Another program's route comes before BGP's, unless it is the shadow of the network itself.
    let shadow = |port| Some(vec![vec![OtherWay::Connected { port }]]);
    tables.set_port(0, PortLink { is_up: false, ..up });
    assert_eq!(tables.set_others(&[(network.into(), shadow(0))]), 0);
    assert_eq!(meets(&tables, hosts[0]), other);
    assert_eq!(tables.set_others(&[(network.into(), shadow(1))]), 0);
    assert_eq!(meets(&tables, hosts[0]), [Adjacency::Glean { port: 1 }]);
    assert_eq!(tables.others(), (1, 1));
    tables.set_port(0, up);
    assert_eq!(meets(&tables, hosts[0]), glean);
    tables.set_port(0, PortLink { is_up: false, ..up });
    assert_eq!(meets(&tables, hosts[0]), [Adjacency::Glean { port: 1 }]);
    assert_eq!(tables.set_others(&[(network.into(), None)]), 0);
    assert_eq!((meets(&tables, hosts[0]), tables.others()), (other.to_vec(), (0, 0)));
    tables.install_v4(&[Install { prefix: network, hop: None }]);
    tables.finish();
    assert_eq!(meets(&tables, hosts[0]), other, "by the default route");
    tables.set_port(0, up);
    assert_eq!(meets(&tables, hosts[0]), glean);
}

/// A packet refused by a group's member waits for that member's neighbor, not for a dead one.
#[test]
fn the_next_of_a_group_is_one_in_use() {
    let mut tables = tables();
    tables.resolved(1, neighbor(1).1, MacAddr([2, 0, 0, 0, 9, 1]));
    let number = u32::from(number(&tables, [30, 1, 1, 1]));
    for hash in [0, u32::MAX / 3, u32::MAX] {
        assert_eq!(tables.next_of(number, hash, [30, 1, 1, 1].into()), Some(neighbor(1)));
    }
    // A source behind the dead path still belongs to the route.
    let hops = tables.router().next_hops.load();
    assert!(hops.leads_out_of(number as u16, 0) && hops.leads_out_of(number as u16, 1));
}

/// BGP avoids paths through a silent gateway, so no number leads there; it is still solicited, or it would stay
/// dead for ever.
#[test]
fn a_silent_gateway_is_asked_for_until_it_answers() {
    let mut tables = tables();
    let (hop, address) = (tables.first_hop(), IpAddr::from([10, 1, 0, 55]));
    tables.set_hop(hop, Way::Neighbor { address, link: 0 }, None);
    tables.finish();
    tables.lost(0, address);
    tables.set_hop(hop, Way::Neighbor { address: [10, 1, 0, 2].into(), link: 0 }, None);
    tables.finish();
    assert!(tables.is_dead(0, Some(address)) && tables.gateways().contains(&(0, address)));
    let before = tables.port(0).unwrap();
    tables.set_port(0, PortLink { mtu: 1280, ..before });
    assert!(tables.is_dead(0, Some(address)), "another MTU says nothing of it");
    tables.resolved(0, address, MacAddr([2, 0, 0, 0, 9, 55]));
    assert!(!tables.is_dead(0, Some(address)) && !tables.gateways().contains(&(0, address)));
}

/// Whatever leaves by a port without a link layer goes to the far end, known neighbors or not.
#[test]
fn a_port_without_a_link_layer_has_one_neighbor() {
    let mut tables = tables();
    let before = tables.port(0).unwrap();
    let far_end = MacAddr([2, 0, 0, 0, 0, 0]);
    tables.set_port(0, PortLink { far_end: Some(far_end), mtu: 1420, ..before });
    let to_it =
        [Adjacency::Forward { port: 0, destination_mac: far_end, source_mac: before.mac, mtu_bytes: 1420 }];
    let addresses = [[20, 1, 1, 1], [10, 1, 0, 2], [10, 1, 0, 99], [30, 1, 1, 1]];
    for address in addresses {
        assert_eq!(meets(&tables, address), to_it, "{address:?}");
    }
    tables.resolved(0, [10, 1, 0, 2].into(), MacAddr([2, 0, 0, 0, 9, 9]));
    assert_eq!(meets(&tables, [10, 1, 0, 2]), to_it, "nobody else is there");
    tables.lost(0, [10, 1, 0, 2].into());
    assert!(!tables.is_dead(0, Some([10, 1, 0, 2].into())));
    tables.set_port(0, PortLink { is_up: false, far_end: Some(far_end), ..before });
    assert_eq!(meets(&tables, [20, 1, 1, 1]), [Adjacency::Drop(DropReason::TransmitFailed)]);
    tables.set_port(0, before);
    assert_eq!(meets(&tables, [20, 1, 1, 1]), [Adjacency::Glean { port: 0 }]);
}

/// A gateway that fails its health check is left for any path that works: of the same tier, of a later one, of a pair
/// of BGP's next hops. Without one, packets still go there.
#[test]
fn a_gateway_that_fails_its_check_is_the_last_resort() {
    let ranked = "[[routes]]\nprefix = \"50.0.0.0/8\"\nvia = \"10.1.0.2\"\nmetric = 1\n\
                  [[routes]]\nprefix = \"50.0.0.0/8\"\nvia = \"10.2.0.2\"\nmetric = 2\n";
    let text = format!("{CONFIG}{ranked}");
    let config = RouterConfig::from_text("test.toml", &text, FilePath::new(".")).unwrap();
    let mut tables = LiveTables::new(&config).unwrap();
    let mac = MacAddr([2, 0, 0, 0, 9, 9]);
    tables.set_neighbors(&[0, 1, 2].map(|index| (neighbor(index), Some(mac))));
    let (hop, to) = (tables.first_hop(), |index: usize| {
        let (port, address) = neighbor(index);
        Way::Neighbor { address, link: port.into() }
    });
    tables.set_hop(hop, to(0), Some(to(2)));
    let network = Prefix::new(u32::from_be_bytes([60, 0, 0, 0]), 8).unwrap();
    tables.install_v4(&[Install { prefix: network, hop: Some(hop) }]);
    tables.finish();
    let ports = |tables: &LiveTables, first: u8| -> Vec<u16> {
        let port = |path: Adjacency| match path {
            Adjacency::Forward { port, .. } => port,
            other => panic!("{first}: {other:?}"),
        };
        meets(tables, [first, 1, 1, 1]).into_iter().map(port).collect()
    };
    let all = |tables: &LiveTables| [20, 30, 50, 60].map(|first| ports(tables, first));
    let before = all(&tables);
    assert_eq!(before, [vec![0], vec![0, 1], vec![0], vec![0]]);
    let life = tables.life_changes();
    tables.set_check(neighbor(0), true);
    assert_eq!(all(&tables), [vec![0], vec![1], vec![1], vec![1]], "its own route has no other path");
    assert!(tables.life_changes() > life && tables.is_dead(0, Some(neighbor(0).1)));
    assert_eq!(tables.silent(), [neighbor(0)]);
    // Answers to the check arrive from the gateway that no packet takes.
    let hops = tables.router().next_hops.load();
    for first in [30, 50] {
        assert!(hops.leads_out_of(number(&tables, [first, 1, 1, 1]), 0), "{first}");
    }
    // The others die: better a gateway that fails its check than none.
    for index in [1, 2] {
        tables.set_neighbors(&[(neighbor(index), None)]);
    }
    assert_eq!([20, 60].map(|first| ports(&tables, first)), [vec![0], vec![0]]);
    tables.set_neighbors(&[1, 2].map(|index| (neighbor(index), Some(mac))));
    let life = tables.life_changes();
    tables.set_check(neighbor(0), true);
    assert_eq!(tables.life_changes(), life, "nothing new");
    tables.set_check(neighbor(0), false);
    assert_eq!(all(&tables), before);
    assert!(!tables.is_dead(0, Some(neighbor(0).1)));
}
