//! Compares the prediction of `whatif` for a changed configuration with a router that reloads it: the same best
//! paths must change, and neighbors must receive the same additions, removals and changes. `whatif` has its
//! routes from a table, or from the router's neighbors, which are asked to send them again and notice nothing
//! else.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_bgp::session::Negotiated;
use thalweg_node::control::{BgpRequest, RouteFilter, RouteView, SentRouteView};
use thalweg_node::mrt::{write_session_messages, write_session_state};
use thalweg_node::received::{Known, Received};
use thalweg_node::speaker::SessionObserver;
use thalweg_node::whatif::{Exports, Options, Prefixes, Report, WhatIf};
use thalweg_sim::{Random, dump_table};
use thalweg_wire::bgp::{MessageKind, RefreshKind, RouteRefresh};
use thalweg_wire::mrt::{Content, Decoder, Timestamp, frame};

use crate::world::{World, address, config};
use crate::{networks, router, with_seeds};

const HUB: u32 = 65_000;

fn asn(node: usize) -> u32 {
    HUB + node as u32
}

/// Everything around the hub, which is router 0: the neighbors' announcements, and the relationship of each to
/// the hub.
struct Around {
    neighbors: usize,
    roles: Vec<&'static str>,
    configs: Vec<String>,
    /// A setting that a reload does not change.
    compares_med: bool,
    /// Whether a session marks the beginning and the end of a refresh, by neighbor.
    marks: Vec<bool>,
}

/// The state of the hub's neighbors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sessions {
    /// Some are missing, disabled or above their limit.
    Any,
    /// All are up.
    Up,
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
            // Half of the prefixes are announced one way, the others another way.
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
        let marks = (0..=neighbors).map(|_| random.happens(0.5)).collect();
        Self { neighbors, roles, configs, compares_med: random.happens(0.3), marks }
    }

    /// A hub that accepts everything unchanged.
    fn open_hub(&self) -> String {
        let neighbors: Vec<_> = (1..=self.neighbors).map(|node| (node, asn(node), "")).collect();
        router(0, HUB, &[], "", &neighbors)
    }

    /// A hub with random policies.
    fn hub(&self, random: &mut Random, sessions: Sessions) -> String {
        let shared = networks(9, 24);
        let mut keys = Vec::new();
        for node in 1..=self.neighbors {
            let any = sessions == Sessions::Any;
            if random.happens(0.12) && any {
                continue;
            }
            let import = ["accept", "prefer", "avoid", "filter", "marked", "longer"][random.below(6)];
            let export = ["accept", "reject", "prepended", "some", "med", "without"][random.below(6)];
            let mut text = format!("import = \"{import}\"\nexport = \"{export}\"\n");
            match random.below(12) {
                0 if any => text += "enabled = false\n",
                1 if any => text += "max_prefixes = { ipv4 = 8 }\n",
                2 => text += "send_communities = false\n",
                _ => {}
            }
            if !self.marks[node] {
                text += "enhanced_refresh = false\n";
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

/// A route without the parts that a table does not contain: its age, and why it is not the best.
fn plain(route: &RouteView) -> String {
    let RouteView { as_path, origin, med, communities, next_hop, local_pref, .. } = route;
    format!("{as_path} {origin} {med:?} {communities:?} {next_hop} {local_pref}")
}

/// The hub's best paths, and the routes that each neighbor has from it.
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

    /// What neighbors receive differently, by name. Leaks are not visible here.
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

/// Reads MRT records one after another.
fn read(mut bytes: &[u8], decoder: &mut Decoder, mut take: impl FnMut(&Content<'_>)) {
    while let Ok(Some((record, length))) = frame(bytes) {
        take(&decoder.decode(&record).expect("good records"));
        bytes = &bytes[length..];
    }
}

fn what_if(old: &str, new: &str) -> WhatIf {
    WhatIf::new(config(old), config(new), Options::default()).expect("two configurations")
}

/// Reloads the hub and compares the changes with the prediction; returns the number of changes.
fn check(around: &Around, world: &mut World, old: &str, new: &str, report: &Report, seed: u64) -> [u64; 5] {
    let before = Tables::of(world, around.neighbors);
    world.reload(0, new);
    // A session that ended at the old limit of prefixes must be started by hand, whatever the new limit is.
    let stays_down =
        |name: &str| report.down.iter().any(|down| down.neighbor == name && down.why.after.is_some());
    for neighbor in world.neighbors(0) {
        if neighbor.state == "Idle" && !stays_down(&neighbor.name) {
            world.ask(0, &BgpRequest::Start { neighbor: neighbor.name });
        }
    }
    world.run_s(30);
    let after = Tables::of(world, around.neighbors);

    assert_eq!(report.prefixes, Tables::prefixes(&before, &after), "seed {seed}: best paths\n{old}\n{new}");
    let of = |routes: &Exports| [routes.more, routes.less, routes.changed];
    let said = report.exports.iter().map(|export| (export.neighbor.clone(), of(&export.routes)));
    let said: BTreeMap<_, _> = said.filter(|(_, numbers)| *numbers != [0; 3]).collect();
    assert_eq!(said, Tables::exports(&before, &after), "seed {seed}: sent\n{old}\n{new}");
    let Prefixes { moved, lost, new, attributes, .. } = report.prefixes;
    [moved, lost, new, attributes, report.exports_total.changed]
}

/// Runs a test with two hubs and many seeds. Fails if nothing ever changed, because such a test would prove
/// nothing.
fn with_hubs(count: u64, sessions: Sessions, test: impl Fn(u64, &Around, &str, &str) -> [u64; 5]) {
    let seen = Cell::new([0_u64; 5]);
    with_seeds(count, |seed| {
        let random = &mut Random::new(seed);
        let around = Around::draw(random);
        let (old, new) = (around.hub(random, sessions), around.hub(random, sessions));
        let changes = test(seed, &around, &old, &new);
        let sums = seen.get();
        seen.set(std::array::from_fn(|at| sums[at] + changes[at]));
    });
    assert!(seen.get().iter().all(|changes| *changes > count), "there is something to say: {:?}", seen.get());
}

#[test]
fn what_is_said_is_what_a_reload_does() {
    with_hubs(100, Sessions::Any, |seed, around, old, new| {
        let mut table = Vec::new();
        let open = around.world(seed, &around.open_hub());
        dump_table(&open.speaker(0), open.network.now_us(), &mut table).expect("a dump");
        let mut what_if = what_if(old, new);
        read(&table, &mut Decoder::new(), |content| {
            if let Content::Rib(rib) = content {
                rib.entries().filter(|entry| entry.peer.asn != HUB).for_each(|entry| what_if.push(&entry));
            }
        });
        let report = what_if.converge().expect("a table").report();
        check(around, &mut around.world(seed, old), old, new, &report, seed)
    });
}

const EVERYTHING: [MessageKind; 5] = [
    MessageKind::Open,
    MessageKind::Update,
    MessageKind::Notification,
    MessageKind::Keepalive,
    MessageKind::RouteRefresh,
];

/// Copies what a router receives.
#[derive(Default)]
struct Ear(Mutex<Vec<u8>>);

impl Ear {
    fn of(world: &World, node: usize) -> Arc<Self> {
        let ear = Arc::new(Self::default());
        world.speaker(node).observe(ear.clone()).expect("no other observer");
        ear
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock())
    }
}

impl SessionObserver for Ear {
    fn received(&self, session: &Arc<Negotiated>, messages: &[u8]) {
        let time = Timestamp { seconds: 0, microseconds: 0 };
        write_session_messages(&mut self.0.lock(), time, session, messages, &EVERYTHING);
    }

    fn state_changed(&self, session: &Arc<Negotiated>, is_up: bool) {
        write_session_state(&mut self.0.lock(), Timestamp { seconds: 0, microseconds: 0 }, session, is_up);
    }
}

/// Makes a router ask its neighbors for their routes, and collects them.
fn gather(world: &mut World) -> Received {
    let mut received = Received::new(&world.neighbors(0));
    let ear = Ear::of(world, 0);
    let mut decoder = Decoder::new();
    let mut table = Vec::new();
    dump_table(&world.speaker(0), world.network.now_us(), &mut table).expect("a dump");
    read(&table, &mut decoder, |content| received.handle(content, world.now_ms()));
    while !received.is_complete(world.now_ms()) {
        while let Some(neighbor) = received.next(world.now_ms()) {
            world.ask(0, &BgpRequest::Refresh { neighbor: neighbor.to_string() });
        }
        world.run_ms(50);
        read(&ear.take(), &mut decoder, |content| received.handle(content, world.now_ms()));
    }
    let ear: Arc<dyn SessionObserver> = ear;
    world.speaker(0).stop_observing(&ear);
    received
}

#[test]
fn a_running_router_says_the_same_of_itself_and_asks_for_nothing_but_routes() {
    with_hubs(30, Sessions::Up, |seed, around, old, new| {
        let mut world = around.world(seed, old);
        let tables = |world: &World| (0..=around.neighbors).map(|node| world.table(node)).collect::<Vec<_>>();
        let before = tables(&world);
        let ears: Vec<_> = (1..=around.neighbors).map(|node| Ear::of(&world, node)).collect();
        let mut received = gather(&mut world);
        for ear in ears {
            let mut asked = 0;
            read(&ear.take(), &mut Decoder::new(), |content| match content {
                Content::Message(message) if message.message_type == MessageKind::RouteRefresh as u8 => {
                    let refresh = RouteRefresh::parse(message.body()).expect("a good message");
                    assert_eq!(refresh.map(|refresh| refresh.kind), Some(RefreshKind::Request));
                    asked += 1;
                }
                Content::Message(message) => {
                    assert_eq!(message.message_type, MessageKind::Keepalive as u8, "seed {seed}");
                }
                other => panic!("seed {seed}: {other:?}"),
            });
            assert_eq!(asked, 1, "seed {seed}");
        }
        assert_eq!(tables(&world), before, "seed {seed}: no router has another table");

        assert_eq!(received.failures(), Vec::<String>::new(), "seed {seed}");
        let mut what_if = what_if(old, new);
        let pushed = received.drain(|entry| {
            what_if.push(entry);
            Ok::<(), ()>(())
        });
        pushed.expect("no error");
        let report = what_if.converge().expect("a table").report();
        check(around, &mut world, old, new, &report, seed)
    });
}

#[test]
fn without_route_refresh_routes_are_as_import_left_them() {
    let own = networks(1, 3);
    let neighbor = router(1, asn(1), &own, "", &[(0, HUB, "")]);
    let hub = router(0, HUB, &[], "", &[(1, asn(1), "route_refresh = false\nimport = \"first\"")]);
    let hub = format!(
        "{hub}[[policy.rules.first]]\nmatch = {{ prefix = {:?} }}\nset = {{ communities_add = [\"65000:7\"] }}\n\
         action = \"accept\"\n[[policy.rules.first]]\ndefault = \"reject\"\n",
        &own[..1]
    );
    let mut world = World::new(1, &[hub, neighbor], &[(0, 1)]);
    world.run_s(20);
    let ear = Ear::of(&world, 1);
    let mut received = gather(&mut world);
    let sources = received.sources();
    assert_eq!((sources[0].known, sources[0].routes), (Known::AfterImport, 1));
    let mut routes = Vec::new();
    let visited = received.drain(|entry| {
        routes.push(SentRouteView::new(entry.prefix, 0, &entry.path(), ""));
        Ok::<(), ()>(())
    });
    visited.expect("no error");
    assert_eq!((&routes[0].prefix, &routes[0].communities[..]), (&own[0], &["65000:7".to_owned()][..]));
    assert_eq!(ear.take(), Vec::<u8>::new(), "no neighbor is asked to send routes");
}

/// `show bgp ... advertised` of the router equals what the neighbor has received, and what is not advertised are the
/// best routes of others beside it.
#[test]
fn what_is_advertised_is_what_arrives() {
    let (routes, kept_back) = (Cell::new(0), Cell::new(0));
    with_seeds(20, |seed| {
        let random = &mut Random::new(seed);
        let around = Around::draw(random);
        let world = around.world(seed, &around.hub(random, Sessions::Any));
        let best = RouteFilter { best: true, ..RouteFilter::default() };
        let best: Vec<RouteView> = world.items(0, &BgpRequest::Routes(best));
        let sent = Tables::of(&world, around.neighbors).sent;
        let up: Vec<_> = world.neighbors(0).into_iter().filter(|each| each.state == "Established").collect();
        for (node, has) in (1..=around.neighbors).zip(sent) {
            let name = address(node).to_string();
            if !up.iter().any(|each| each.name == name) {
                continue;
            }
            let filter = RouteFilter { not_advertised_to: Some(name.clone()), ..RouteFilter::default() };
            let not_said: Vec<RouteView> = world.items(0, &BgpRequest::Routes(filter));
            let mut expected = best.clone();
            expected.retain(|route| route.neighbor != name && !has.contains_key(&route.prefix));
            assert_eq!(not_said, expected, "seed {seed}: not to router {node}");
            kept_back.set(kept_back.get() + not_said.len());
            let filter = RouteFilter { advertised_to: Some(name), ..RouteFilter::default() };
            let said: Vec<SentRouteView> = world.items(0, &BgpRequest::Routes(filter));
            let plain = |view: SentRouteView| {
                let SentRouteView { as_path, origin, med, communities, next_hop, .. } = view;
                (view.prefix, format!("{as_path} {origin} {med:?} {communities:?} {next_hop} 100"))
            };
            let said: BTreeMap<_, _> = said.into_iter().map(plain).collect();
            assert_eq!(said, has, "seed {seed}: to router {node}");
            routes.set(routes.get() + said.len());
        }
    });
    let said = (routes.get(), kept_back.get());
    assert!(said.0 > 200 && said.1 > 200, "there is something to say: {said:?}");
}
