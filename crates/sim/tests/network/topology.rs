//! Reflectors, route servers and additional paths.

use std::collections::BTreeSet;

use crate::world::{World, address};
use crate::{check_counts, networks, router, with_seeds};
use thalweg_sim::LinkState;

/// The compared fields of a route: prefix, neighbor, AS_PATH, next hop, best.
type Row = (String, String, String, String, bool);

fn rows(world: &World, node: usize) -> BTreeSet<Row> {
    let routes = world.routes(node).into_iter().filter(|route| route.neighbor != "local");
    routes.map(|each| (each.prefix, each.neighbor, each.as_path, each.next_hop, each.best)).collect()
}

fn row(prefix: &str, neighbor: usize, as_path: &str, next_hop: usize, best: bool) -> Row {
    let text = |node| address(node).to_string();
    (prefix.to_owned(), text(neighbor), as_path.to_owned(), text(next_hop), best)
}

/// Router 0 reflects between its clients 1 and 2; router 3 is another AS behind router 1.
fn reflector(clients_meet: bool) -> (Vec<String>, Vec<(usize, usize)>) {
    let client = "route_reflector_client = true";
    let mut of_1 = vec![(0, 65_000, ""), (3, 65_100, "")];
    let mut of_2 = vec![(0, 65_000, "")];
    let mut links = vec![(0, 1), (0, 2), (1, 3)];
    if clients_meet {
        of_1.push((2, 65_000, ""));
        of_2.push((1, 65_000, ""));
        links.push((1, 2));
    }
    let configs = vec![
        router(0, 65_000, &[], "", &[(1, 65_000, client), (2, 65_000, client)]),
        router(1, 65_000, &["10.1.0.0/16".into()], "", &of_1),
        router(2, 65_000, &["10.2.0.0/16".into()], "", &of_2),
        router(3, 65_100, &["10.3.0.0/16".into()], "", &[(1, 65_000, "")]),
    ];
    (configs, links)
}

#[test]
fn a_reflector_passes_on_what_its_clients_say() {
    with_seeds(5, |seed| {
        let (configs, links) = reflector(false);
        let mut world = World::new(seed, &configs, &links);
        world.run_s(15);
        let of_1 = [row("10.2.0.0/16", 0, "", 2, true), row("10.3.0.0/16", 3, "65100", 3, true)];
        assert_eq!(rows(&world, 1), of_1.into(), "seed {seed}");
        let of_2 = [row("10.1.0.0/16", 0, "", 1, true), row("10.3.0.0/16", 0, "65100", 3, true)];
        assert_eq!(rows(&world, 2), of_2.into(), "seed {seed}");
        let of_3 = [row("10.1.0.0/16", 1, "65000", 1, true), row("10.2.0.0/16", 1, "65000", 1, true)];
        assert_eq!(rows(&world, 3), of_3.into(), "seed {seed}");
    });
}

/// Same as above, with a session between the clients. Their direct routes have no CLUSTER_LIST and are preferred;
/// internal neighbors do not pass them on. When that session ends, the reflected routes are used.
#[test]
fn a_triangle_with_a_reflector() {
    with_seeds(5, |seed| {
        let (configs, links) = reflector(true);
        let mut world = World::new(seed, &configs, &links);
        let of_2 = |direct: bool| {
            let mut rows = BTreeSet::from([
                row("10.1.0.0/16", 0, "", 1, !direct),
                row("10.3.0.0/16", 0, "65100", 3, !direct),
            ]);
            if direct {
                rows.insert(row("10.1.0.0/16", 1, "", 1, true));
                rows.insert(row("10.3.0.0/16", 1, "65100", 3, true));
            }
            rows
        };
        world.run_s(15);
        assert_eq!(rows(&world, 2), of_2(true), "seed {seed}");
        world.set_link(1, 2, LinkState::Down);
        world.run_s(15);
        assert_eq!(rows(&world, 2), of_2(false), "seed {seed}");
        world.set_link(1, 2, LinkState::Up);
        world.run_s(15);
        assert_eq!(rows(&world, 2), of_2(true), "seed {seed}");
    });
}

/// A route server appears neither in AS_PATH nor as next hop, and gives each client the best route that is not
/// the client's own.
#[test]
fn a_route_server_is_transparent() {
    let asn = |client: usize| 65_000 + client as u32;
    let shared = "10.99.0.0/24";
    let configs = |sharing: &[usize]| -> Vec<String> {
        let server = "route_server_client = true";
        let clients: Vec<_> = (1..=5).map(|client| (client, asn(client), server)).collect();
        let mut configs = vec![router(0, 65_000, &[], "", &clients)];
        for client in 1..=5 {
            let mut own = networks(client, 3);
            own.extend(sharing.contains(&client).then(|| shared.to_owned()));
            configs.push(router(client, asn(client), &own, "", &[(0, 65_000, "first_as_check = false")]));
        }
        configs
    };
    let expected = |client: usize, sharing: &[usize]| {
        let mut rows = BTreeSet::new();
        for other in (1..=5).filter(|other| *other != client) {
            for prefix in networks(other, 3) {
                rows.insert(row(&prefix, 0, &asn(other).to_string(), other, true));
            }
        }
        if let Some(&other) = sharing.iter().find(|other| **other != client) {
            let best = !sharing.contains(&client);
            rows.insert(row(shared, 0, &asn(other).to_string(), other, best));
        }
        rows
    };
    with_seeds(5, |seed| {
        let links: Vec<_> = (1..=5).map(|client| (0, client)).collect();
        let mut world = World::new(seed, &configs(&[1, 2, 4]), &links);
        world.run_s(15);
        // Each prefix's announcers come and go; the one with the lowest identifier is best.
        for sharing in [&[1, 2, 4][..], &[2, 4], &[4], &[4, 5], &[1, 4, 5], &[], &[3], &[2, 3]] {
            for client in 1..=5 {
                world.reload(client, &configs(sharing)[client]);
            }
            world.run_s(3);
            for client in 1..=5 {
                assert_eq!(
                    rows(&world, client),
                    expected(client, sharing),
                    "seed {seed}, {client}, {sharing:?}"
                );
                check_counts(&world, client);
            }
        }
    });
}

/// A neighbor that wants several paths receives them, and each disappears with its source.
#[test]
fn additional_paths() {
    with_seeds(5, |seed| {
        let sources: Vec<usize> = (2..7).collect();
        let asn = |node: usize| 65_000 + node as u32;
        let both = "add_path = { ipv4 = \"send\", paths = 3 }";
        let mut neighbors = vec![(1, asn(1), both)];
        neighbors.extend(sources.iter().map(|source| (*source, asn(*source), "")));
        let mut configs = vec![
            router(0, 65_100, &[], "", &neighbors),
            router(1, asn(1), &[], "", &[(0, 65_100, "add_path = { ipv4 = \"receive\" }")]),
        ];
        let shared = networks(50, 40);
        configs.extend(sources.iter().map(|node| router(*node, asn(*node), &shared, "", &[(0, 65_100, "")])));
        let links: Vec<_> = (1..7).map(|node| (0, node)).collect();
        let mut world = World::new(seed, &configs, &links);
        let mut up: BTreeSet<usize> = sources.iter().copied().collect();
        for round in 0..8 {
            if round > 0 {
                let node = 2 + world.random.below(5);
                match up.remove(&node) {
                    true => world.stop(node),
                    false => {
                        up.insert(node);
                        world.start(node);
                    }
                }
            }
            world.run_s(25);
            let routes = world.routes(1);
            for prefix in &shared {
                let mut paths: Vec<_> = routes.iter().filter(|route| route.prefix == *prefix).collect();
                paths.sort_by_key(|route| route.as_path.clone());
                let wanted: Vec<String> =
                    up.iter().take(3).map(|node| format!("65100 {}", asn(*node))).collect();
                let is: Vec<&str> = paths.iter().map(|route| route.as_path.as_str()).collect();
                assert_eq!(is, wanted, "seed {seed}, round {round}, {prefix}");
                let ids: BTreeSet<u32> = paths.iter().map(|route| route.path_id).collect();
                assert_eq!(ids.len(), paths.len(), "seed {seed}: identifiers differ");
            }
            assert_eq!(routes.len(), shared.len() * up.len().min(3), "seed {seed}, round {round}");
            check_counts(&world, 1);
        }
    });
}
