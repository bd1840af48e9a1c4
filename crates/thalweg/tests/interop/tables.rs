//! Whole tables and several paths: the laboratory's neighbors announce them to one daemon, which passes them on
//! to the other.
//!
//! ```text
//! right namespace                 left namespace
//! laboratory ──announces──┐
//!                         ├──> daemon under test
//! other daemon <──────────┘
//! ```

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use thalweg_base::IpPrefix;
use thalweg_lab::bgp::client::{Client, ClientConfig, Speaker};
use thalweg_lab::bgp::replay::Replay;
use thalweg_lab::bgp::table::{Neighbors, Packing, PathKind, Table};
use thalweg_testdata::shared;
use thalweg_wire::bgp::Family as Afi;

use crate::net::{End, Net, until, until_done};
use crate::router::{Family, Make, Route, Router, Spec};
use crate::{bird, frr, gobgp, openbgpd, thalweg};

/// The address of the laboratory's first neighbor.
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 40);

pub(crate) fn connect(net: &Net, speakers: &[(Ipv4Addr, u32)]) -> Client {
    let config = ClientConfig {
        daemon: SocketAddr::new(End::Left.v4().into(), 179),
        daemon_as: 65001,
        speakers: speakers
            .iter()
            .map(|(address, number)| Speaker {
                source: (*address).into(),
                as_number: *number,
                router_id: *address,
            })
            .collect(),
        monitored: false,
        families: vec![Afi::Ipv4],
        hold_time_s: 90,
        connect_timeout: Duration::from_secs(15),
        pace: Duration::from_millis(5),
    };
    net.within(End::Right, || Client::connect(&config)).expect("the laboratory's neighbors come up")
}

/// Paths by prefix, and whether they contain sets.
type Paths = BTreeMap<String, (Vec<u32>, bool)>;

/// Waits until `router` has exactly these paths, each behind the AS of the daemon that announced them.
fn holds(router: &mut dyn Router, expected: &Paths, limit_s: u64) {
    let what = format!("{}: the whole table", router.name());
    let sorted = |path: &[u32]| {
        let mut path = path.to_vec();
        path.sort_unstable();
        path.dedup();
        path
    };
    until_done(&what, limit_s, || {
        let routes = router.check().and_then(|()| router.routes(Family::V4)).map_err(|why| (0, why))?;
        if routes.len() != expected.len() {
            return Err((routes.len(), format!("{} routes of {}", routes.len(), expected.len())));
        }
        let is_right = |prefix: &String, paths: &[Route]| match (paths, expected.get(prefix)) {
            ([Route { path, .. }], Some((numbers, has_sets))) => match path.split_first() {
                Some((65001, rest)) => rest == numbers || *has_sets && sorted(rest) == sorted(numbers),
                _ => false,
            },
            _ => false,
        };
        let mut wrong = routes.iter().filter(|(prefix, paths)| !is_right(prefix, paths));
        match wrong.next() {
            None => Ok(()),
            Some((prefix, paths)) => {
                let (count, right) = (1 + wrong.count(), expected.get(prefix));
                let done = expected.len() + routes.len() - count;
                Err((done, format!("{count} are wrong: {prefix} has {paths:?}, not {right:?}")))
            }
        }
    });
}

/// A real full table, from `left` to `right`.
fn full_table(left: Make, right: Make, limit_s: u64) {
    let Some(path) = shared("mrt/rib.ris-rrc00.20000111.0032.td2.gz") else { return };
    let Some(net) = Net::new() else { return };
    let replay = Replay::read(&path, usize::MAX).expect("a table");
    let number = replay.peers[0].as_number;
    net.add_addresses(End::Right, std::iter::once(FIRST));
    let spec = |end| Spec { families: vec![Family::V4], ..Spec::new(end) };
    let Some(mut right) = right(&net, spec(End::Right)) else { return };
    let Some(mut left) = left(&net, Spec { others: vec![(FIRST, number)], ..spec(End::Left) }) else {
        return;
    };
    for router in [&mut left, &mut right] {
        until("the session", 20, || router.established(Family::V4));
    }
    let client = connect(&net, &[(FIRST, number)]);
    let hops = Neighbors { count: 1, address: FIRST, as_number: number }.hops_of(0);
    client.send_bytes(0, &replay.stream(0, hops).bytes).expect("the daemon reads");
    let expected: Paths =
        replay.paths(0).into_iter().map(|(prefix, path)| (prefix.to_string(), path)).collect();
    assert!(expected.len() > 70_000, "{} prefixes are no full table", expected.len());
    holds(&mut *right, &expected, limit_s);
    client.check().expect("the laboratory's session stays up");
    drop(client);
    until_done("all routes go with their neighbor", limit_s, || {
        let left = right.routes(Family::V4).map_err(|why| (0, why))?.len();
        if left == 0 {
            Ok(())
        } else {
            Err((expected.len() - left.min(expected.len()), format!("{left} are left")))
        }
    });
}

#[test]
fn a_full_table_to_bird() {
    full_table(thalweg::make, bird::make, 30);
}

#[test]
fn a_full_table_from_bird() {
    full_table(bird::make, thalweg::make, 30);
}

#[test]
fn a_full_table_to_frr() {
    full_table(thalweg::make, frr::make, 30);
}

#[test]
fn a_full_table_to_openbgpd() {
    full_table(thalweg::make, openbgpd::make, 30);
}

/// Three neighbors announce the same prefixes: `right` receives all three paths, and the rest remain when one
/// neighbor goes.
fn add_path(left: Make, right: Make) {
    let Some(net) = Net::new() else { return };
    let neighbors = Neighbors { count: 3, address: FIRST, as_number: 64_640 };
    let all: Vec<(Ipv4Addr, u32)> = (0..3).map(|n| (neighbors.address_of(n), neighbors.as_of(n))).collect();
    net.add_addresses(End::Right, all.iter().map(|(address, _)| *address));
    let spec = |end| Spec { families: vec![Family::V4], add_path: true, ..Spec::new(end) };
    let Some(mut right) = right(&net, spec(End::Right)) else { return };
    let Some(mut left) = left(&net, Spec { others: all.clone(), ..spec(End::Left) }) else { return };
    for router in [&mut left, &mut right] {
        until("the session", 20, || router.established(Family::V4));
    }
    let prefixes: Vec<IpPrefix> =
        (0..100).map(|i| format!("20.0.{i}.0/24").parse().expect("a prefix")).collect();
    let table = Table::of(prefixes, Packing::Real, neighbors, 3);
    let clients: Vec<Client> = all.iter().map(|speaker| connect(&net, &[*speaker])).collect();
    for (n, client) in clients.iter().enumerate() {
        let stream = table.announce(n, PathKind::OneBest, true);
        client.send_bytes(0, &stream.bytes).expect("the daemon reads");
    }
    let mut has = |paths: usize| {
        until(&format!("{paths} paths"), 15, || {
            let routes = right.routes(Family::V4)?;
            let mut numbers: Vec<usize> = routes.values().map(Vec::len).collect();
            numbers.dedup();
            match (routes.len(), &numbers[..]) {
                (100, [all]) if *all == paths => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    };
    has(3);
    let mut clients = clients;
    drop(clients.pop());
    has(2);
}

#[test]
fn several_paths_to_bird() {
    add_path(thalweg::make, bird::make);
}

#[test]
fn several_paths_to_frr() {
    add_path(thalweg::make, frr::make);
}

#[test]
fn several_paths_to_gobgp() {
    add_path(thalweg::make, gobgp::make);
}

/// Control: the same through established daemons.
#[test]
fn several_paths_and_a_full_table_between_rivals() {
    crate::control(|| {
        add_path(bird::make, frr::make);
        full_table(bird::make, frr::make, 30);
    });
}
