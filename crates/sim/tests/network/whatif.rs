//! What a changed configuration would do, as `whatif` says it, and what a router does that is really reloaded with it: the
//! same best paths change, and neighbors are sent the same more, less and otherwise.

use std::cell::Cell;
use std::collections::BTreeMap;

use thalweg_node::control::{BgpRequest, RouteView};
use thalweg_node::whatif::{Exports, Options, Prefixes, Report, WhatIf};
use thalweg_sim::{Random, dump_table};
use thalweg_wire::mrt::{Content, Decoder, frame};

use crate::world::{World, address, config};
use crate::{networks, router, with_seeds};

const HUB: u32 = 65_000;

fn asn(node: usize) -> u32 {
    HUB + node as u32
}

/// Everything but the hub, which is router 0: what neighbors announce, what they are to the hub and it to them.
struct Around {
    neighbors: usize,
    roles: Vec<&'static str>,
    configs: Vec<String>,
    /// A setting that a reload does not change.
    compares_med: bool,
}

impl Around {
    fn draw(random: &mut Random) -> Self {
        let neighbors = 3 + random.below(4);
        let mut roles = vec![""];
        let mut configs = vec![String::new()];
        let shared = networks(9, 24);
        for node in 1..=neighbors {
            let role = ["", "provider", "customer", "peer"][random.below(4)];
            let ours = match role {
                "provider" => "role = \"customer\"",
                "customer" => "role = \"provider\"",
                "peer" => "role = \"peer\"",
                _ => "",
            };
            let mut own = networks(node, 1 + random.below(4));
            own.extend(shared.iter().filter(|_| random.happens(0.4)).cloned());
            let set = [
                "med = 10",
                "med = 20",
                "communities_add = [\"65000:1\"]",
                "communities_add = [\"65000:2\", \"65000:3\"]",
                "prepend = 1",
                "origin = \"incomplete\"",
            ];
            let keys = format!("export = \"out\"\n{ours}");
            let mut text = router(node, asn(node), &own, "", &[(0, HUB, &keys)]);
            // Some prefixes are announced in one way, the others in another.
            for (from, to) in [(0, 12), (12, 64)] {
                let set = set[random.below(set.len())];
                let prefixes: Vec<&String> = shared.iter().skip(from).take(to - from).collect();
                text += &format!(
                    "[[policy.rules.out]]\nmatch = {{ prefix = {prefixes:?} }}\nset = {{ {set} }}\naction = \"accept\"\n"
                );
            }
            text += "[[policy.rules.out]]\naction = \"accept\"\n";
            roles.push(role);
            configs.push(text);
        }
        Self { neighbors, roles, configs, compares_med: random.happens(0.3) }
    }

    /// A hub that takes everything as it comes.
    fn open_hub(&self) -> String {
        let neighbors: Vec<_> = (1..=self.neighbors).map(|node| (node, asn(node), "")).collect();
        router(0, HUB, &[], "", &neighbors)
    }

    /// A hub with some policies.
    fn hub(&self, random: &mut Random) -> String {
        let shared = networks(9, 24);
        let mut keys = Vec::new();
        for node in 1..=self.neighbors {
            if random.happens(0.12) {
                continue;
            }
            let import = ["accept", "prefer", "avoid", "filter", "marked", "longer"][random.below(6)];
            let export = ["accept", "reject", "prepended", "some", "med", "without"][random.below(6)];
            let mut text = format!("import = \"{import}\"\nexport = \"{export}\"\n");
            match random.below(12) {
                0 => text += "enabled = false\n",
                1 => text += "max_prefixes = { ipv4 = 8 }\n",
                2 => text += "send_communities = false\n",
                _ => {}
            }
            if !self.roles[node].is_empty() {
                text += &format!("role = \"{}\"\n", self.roles[node]);
            }
            keys.push((node, asn(node), text));
        }
        let keys: Vec<_> = keys.iter().map(|(node, asn, text)| (*node, *asn, text.as_str())).collect();
        let own = networks(0, random.below(3));
        let med = if self.compares_med { "always_compare_med = true" } else { "" };
        let mut some: Vec<&String> = shared.iter().filter(|_| random.happens(0.5)).collect();
        some.push(&shared[0]);
        let text = router(0, HUB, &own, med, &keys);
        format!(
            "{text}[policy.prefix_sets.some]\nentries = {some:?}\n\
             [[policy.rules.prefer]]\nset = {{ local_pref = {} }}\naction = \"accept\"\n\
             [[policy.rules.avoid]]\nset = {{ local_pref = 50, med = \"remove\" }}\naction = \"accept\"\n\
             [[policy.rules.filter]]\nmatch = {{ prefix = \"some\" }}\naction = \"accept\"\n\
             [[policy.rules.filter]]\ndefault = \"reject\"\n\
             [[policy.rules.marked]]\nmatch = {{ community = \"65000:1\" }}\nset = {{ local_pref = 300 }}\naction = \"accept\"\n\
             [[policy.rules.marked]]\naction = \"accept\"\n\
             [[policy.rules.longer]]\nset = {{ prepend = {{ as = \"last\", count = 2 }} }}\naction = \"accept\"\n\
             [[policy.rules.prepended]]\nset = {{ prepend = {} }}\naction = \"accept\"\n\
             [[policy.rules.some]]\nmatch = {{ prefix = \"some\" }}\naction = \"accept\"\n\
             [[policy.rules.some]]\ndefault = \"reject\"\n\
             [[policy.rules.med]]\nset = {{ med = {}, communities_add = [\"65000:9\"] }}\naction = \"accept\"\n\
             [[policy.rules.without]]\nmatch = {{ source = \"local\" }}\naction = \"accept\"\n\
             [[policy.rules.without]]\nmatch = {{ community_none = \"65000:2\" }}\naction = \"accept\"\n\
             [[policy.rules.without]]\ndefault = \"reject\"\n",
            150 + 10 * random.below(3),
            1 + random.below(2),
            random.below(3),
        )
    }

    fn world(&self, seed: u64, hub: &str) -> World {
        let mut configs = self.configs.clone();
        hub.clone_into(&mut configs[0]);
        let links: Vec<_> = (1..=self.neighbors).map(|node| (0, node)).collect();
        let mut world = World::new(seed, &configs, &links);
        world.run_s(20);
        world
    }
}

/// A route without what a table does not say: its age, and why it is not the best.
fn plain(route: &RouteView) -> String {
    let RouteView { as_path, origin, med, communities, next_hop, local_pref, .. } = route;
    format!("{as_path} {origin} {med:?} {communities:?} {next_hop} {local_pref}")
}

/// Best paths of the hub, and what each neighbor has of it.
struct Tables {
    best: BTreeMap<String, (String, String)>,
    sent: Vec<BTreeMap<String, String>>,
}

impl Tables {
    fn of(world: &World, neighbors: usize) -> Self {
        let best = world.routes(0).into_iter().filter(|route| route.best);
        let best =
            best.map(|route| (route.prefix.clone(), (route.neighbor.clone(), plain(&route)))).collect();
        let from_hub = |node: usize| {
            let hub = address(0).to_string();
            let routes = world.routes(node).into_iter().filter(|route| route.neighbor == hub);
            routes.map(|route| (route.prefix.clone(), plain(&route))).collect()
        };
        Self { best, sent: (1..=neighbors).map(from_hub).collect() }
    }

    fn prefixes(before: &Self, after: &Self) -> Prefixes {
        let mut prefixes = Prefixes {
            before: before.best.len() as u64,
            after: after.best.len() as u64,
            ..Prefixes::default()
        };
        prefixes.new = after.best.keys().filter(|prefix| !before.best.contains_key(*prefix)).count() as u64;
        for (prefix, was) in &before.best {
            match after.best.get(prefix) {
                None => prefixes.lost += 1,
                Some(is) if is.0 != was.0 => prefixes.moved += 1,
                Some(is) if is.1 != was.1 => prefixes.attributes += 1,
                Some(_) => {}
            }
        }
        prefixes
    }

    /// What neighbors are sent otherwise, by name; leaks are not seen from here.
    fn exports(before: &Self, after: &Self) -> BTreeMap<String, [u64; 3]> {
        let mut exports = BTreeMap::new();
        for (at, (was, is)) in before.sent.iter().zip(&after.sent).enumerate() {
            let more = is.keys().filter(|prefix| !was.contains_key(*prefix)).count() as u64;
            let less = was.keys().filter(|prefix| !is.contains_key(*prefix)).count() as u64;
            let differs =
                |(prefix, route): &(&String, &String)| is.get(*prefix).is_some_and(|is| is != *route);
            let changed = was.iter().filter(differs).count() as u64;
            if more + less + changed > 0 {
                exports.insert(address(at + 1).to_string(), [more, less, changed]);
            }
        }
        exports
    }
}

fn report(old: &str, new: &str, table: &[u8]) -> Report {
    let mut what_if = WhatIf::new(config(old), config(new), Options::default()).expect("two configurations");
    let mut decoder = Decoder::default();
    let mut rest = table;
    while let Ok(Some((record, length))) = frame(rest) {
        if let Ok(Content::Rib(rib)) = decoder.decode(&record) {
            rib.entries().filter(|entry| entry.peer.asn != HUB).for_each(|entry| what_if.push(&entry));
        }
        rest = &rest[length..];
    }
    what_if.converge().expect("a table").report()
}

#[test]
fn what_is_said_is_what_a_reload_does() {
    let seen = Cell::new([0_u64; 5]);
    with_seeds(100, |seed| {
        let random = &mut Random::new(seed);
        let around = Around::draw(random);
        let (old, new) = (around.hub(random), around.hub(random));
        let mut table = Vec::new();
        let open = around.world(seed, &around.open_hub());
        dump_table(&open.speaker(0), open.network.now_us(), &mut table).expect("a dump");

        let mut world = around.world(seed, &old);
        let before = Tables::of(&world, around.neighbors);
        world.reload(0, &new);
        let report = report(&old, &new, &table);
        // A session that ended at the old limit of prefixes is started by hand, whatever the new one is.
        let stays_down =
            |name: &str| report.down.iter().any(|down| down.neighbor == name && down.why.after.is_some());
        for neighbor in world.neighbors(0) {
            if neighbor.state == "Idle" && !stays_down(&neighbor.name) {
                world.ask(0, &BgpRequest::Start { neighbor: neighbor.name });
            }
        }
        world.run_s(30);
        let after = Tables::of(&world, around.neighbors);

        assert_eq!(
            report.prefixes,
            Tables::prefixes(&before, &after),
            "seed {seed}: best paths\n{old}\n{new}"
        );
        let of = |routes: &Exports| [routes.more, routes.less, routes.changed];
        let said = report.exports.iter().map(|export| (export.neighbor.clone(), of(&export.routes)));
        let said: BTreeMap<_, _> = said.filter(|(_, numbers)| *numbers != [0; 3]).collect();
        assert_eq!(said, Tables::exports(&before, &after), "seed {seed}: sent\n{old}\n{new}");
        let Prefixes { moved, lost, new, attributes, .. } = report.prefixes;
        let changes = [moved, lost, new, attributes, report.exports_total.changed];
        let sums = seen.get();
        seen.set(std::array::from_fn(|at| sums[at] + changes[at]));
    });
    assert!(seen.get().iter().all(|changes| *changes > 100), "there is something to say: {:?}", seen.get());
}
