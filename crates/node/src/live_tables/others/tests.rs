use super::*;

use proptest::prelude::*;

use crate::fib::{Install, RouteInstaller, Way};
use thalweg_base::Prefix;
use thalweg_config::RouterConfig;
use thalweg_dataplane::lpm::Lpm;
use thalweg_dataplane::route::Adjacency;
use thalweg_wire::MacAddr;

const CONFIG: &str = r#"
[ports.a]
interface = "a0"
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24"]
[[routes]]
prefix = "20.0.0.0/8"
via = "10.1.0.9"
"#;

/// Positions of routes: behind a configured one, alone, as default route, at a neighbor's address.
const PREFIXES: [&str; 4] = ["20.0.0.0/8", "30.0.0.0/8", "0.0.0.0/0", "10.1.0.5/32"];
const ADDRESSES: [[u8; 4]; 4] = [[20, 1, 1, 1], [30, 1, 1, 1], [99, 1, 1, 1], [10, 1, 0, 5]];

#[derive(Clone, Debug)]
enum Step {
    Others(Vec<(usize, Option<Vec<OtherWay>>)>),
    Bgp(usize, bool),
    Neighbor(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let way = prop_oneof![
        (1u8..4).prop_map(|n| OtherWay::Gateway { port: 0, address: [10, 1, 0, 200 + n].into() }),
        Just(OtherWay::Connected { port: 0 }),
        Just(OtherWay::Blackhole),
        Just(OtherWay::Unreachable),
    ];
    let change = (0usize..4, prop::option::of(prop::collection::vec(way, 1..3)));
    prop_oneof![
        3 => prop::collection::vec(change, 1..5).prop_map(Step::Others),
        1 => (0usize..3, any::<bool>()).prop_map(|(prefix, there)| Step::Bgp(prefix, there)),
        1 => any::<bool>().prop_map(Step::Neighbor),
    ]
}

proptest! {
    /// Configured routes and neighbors precede others', and these BGP's, in whatever order they come and go.
    #[test]
    fn the_nearest_source_counts(steps in prop::collection::vec(step(), 1..24)) {
        let config = RouterConfig::from_text("test.toml", CONFIG, std::path::Path::new(".")).unwrap();
        let mut tables = LiveTables::new(&config).unwrap();
        let hop = tables.first_hop();
        let neighbor: IpAddr = [10, 1, 0, 5].into();
        tables.set_hop(hop, Way::Discard, None);
        let (mut others, mut bgp, mut resolved) = (vec![None; 4], [false; 4], false);
        for step in steps {
            match step {
                Step::Others(changes) => {
                    let changed: Vec<(IpPrefix, _)> =
                        changes.iter().map(|(at, ways)| (PREFIXES[*at].parse().unwrap(), ways.clone().map(|ways| vec![ways]))).collect();
                    prop_assert_eq!(tables.set_others(&changed), 0);
                    changes.into_iter().for_each(|(at, ways)| others[at] = ways);
                }
                Step::Bgp(at, there) => {
                    let IpPrefix::V4(prefix) = PREFIXES[at].parse::<IpPrefix>().unwrap() else { unreachable!() };
                    let prefix: Prefix<u32> = prefix;
                    tables.install_v4(&[Install { prefix, hop: there.then_some(hop) }]);
                    tables.finish();
                    bgp[at] = there;
                }
                Step::Neighbor(there) => {
                    match there {
                        true => drop(tables.resolved(0, neighbor, MacAddr([2, 0, 0, 0, 9, 5]))),
                        false => tables.lost(0, neighbor),
                    }
                    resolved = there;
                }
            }
            let router = tables.router();
            let hops = router.next_hops.load();
            for (at, address) in ADDRESSES.into_iter().enumerate() {
                let paths: Vec<_> = hops.paths(router.fib4.lookup(u32::from_be_bytes(address))).collect();
                let glean = Adjacency::Glean { port: 0 };
                let way = |way: &OtherWay| match way {
                    OtherWay::Gateway { .. } | OtherWay::Connected { .. } => glean,
                    OtherWay::Blackhole => Adjacency::Drop(DropReason::Blackhole),
                    OtherWay::Unreachable => Adjacency::Drop(DropReason::Unreachable),
                };
                if at == 3 && resolved {
                    let is_forward = matches!(paths[..], [Adjacency::Forward { .. }]);
                    prop_assert!(is_forward, "{:?}", paths);
                    continue;
                }
                // Addresses without a route of their own follow the default route, or the network of the port.
                let by = |at: usize| match (&others[at], bgp[at]) {
                    // The gateways here are unknown, so routes that need none precede them.
                    (Some(ways), _) => {
                        let needs_none = |way: &&OtherWay| !matches!(way, OtherWay::Gateway { .. });
                        let usable: Vec<_> = ways.iter().filter(needs_none).map(way).collect();
                        Some(if usable.is_empty() { ways.iter().map(way).collect() } else { usable })
                    }
                    (None, true) => Some(vec![Adjacency::Drop(DropReason::Blackhole)]),
                    (None, false) => None,
                };
                let expected = match at {
                    0 => vec![glean],
                    3 => by(3).unwrap_or(vec![glean]),
                    at => by(at).or_else(|| by(2)).unwrap_or(vec![Adjacency::Drop(DropReason::NoRoute)]),
                };
                prop_assert_eq!(&paths, &expected, "{:?}", address);
            }
            prop_assert_eq!(tables.others().0, others.iter().flatten().count());
        }
        // Unused numbers are given back.
        let all: Vec<_> = PREFIXES.iter().map(|prefix| (prefix.parse().unwrap(), None)).collect();
        tables.set_others(&all);
        prop_assert_eq!(tables.others(), (0, 0));
        prop_assert_eq!(tables.gateways(), [(0, [10, 1, 0, 9].into())]);
    }
}
