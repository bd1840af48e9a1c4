//! Neighbors that read slowly while routes and policies change: each ends with exactly the right table.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_bgp::export::ExportLimits;
use thalweg_node::control::BgpRequest;

use crate::world::{World, address};
use crate::{check_counts, flaps, networks, router, with_seeds};
use thalweg_sim::Random;

const PREFIXES: usize = 240;

/// Bytes per millisecond that each receiver reads, and the most bytes in flight to it.
const RECEIVERS: [(usize, usize); 4] = [(1 << 20, 64 << 10), (100, 2000), (20, 300), (8, 100)];

const FEEDER: usize = RECEIVERS.len() + 1;

/// The hub's policy for a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Everything,
    OnlyEven,
    Marked,
    Nothing,
}

impl Policy {
    const ALL: [Policy; 4] = [Self::Everything, Self::OnlyEven, Self::Marked, Self::Nothing];

    fn name(self) -> &'static str {
        match self {
            Self::Everything => "accept",
            Self::OnlyEven => "only-even",
            Self::Marked => "marked",
            Self::Nothing => "reject",
        }
    }
}

/// Everything that determines what receivers must get.
#[derive(Clone)]
struct Intent {
    announced: BTreeSet<usize>,
    /// The index of the community with which the feeder marks its routes.
    mark: usize,
    policies: [Policy; RECEIVERS.len()],
}

impl Intent {
    fn feeder(&self) -> String {
        let all = networks(FEEDER, PREFIXES);
        let own: Vec<String> = self.announced.iter().map(|index| all[*index].clone()).collect();
        let text = router(FEEDER, 65_100, &own, "", &[(0, 65_000, "export = \"out\"")]);
        let set = format!("{{ communities_add = [\"65100:{}\"] }}", self.mark);
        // Some prefixes are always marked differently, so that a change affects only part of the routes.
        format!(
            "{text}[policy.prefix_sets.fixed]\nentries = [\"10.{FEEDER}.1.0/24 le 32\"]\n\
             [[policy.rules.out]]\nmatch = {{ prefix = \"fixed\" }}\naction = \"accept\"\n\
             [[policy.rules.out]]\nset = {set}\naction = \"accept\"\n"
        )
    }

    fn hub(&self) -> String {
        let keys: Vec<String> =
            self.policies.iter().map(|policy| format!("export = \"{}\"", policy.name())).collect();
        let mut neighbors: Vec<_> = (0..RECEIVERS.len())
            .map(|index| (index + 1, 65_001 + index as u32, keys[index].as_str()))
            .collect();
        neighbors.push((FEEDER, 65_100, ""));
        let even: Vec<String> = networks(FEEDER, PREFIXES).into_iter().step_by(2).collect();
        let text = router(0, 65_000, &[], "", &neighbors);
        format!(
            "{text}[policy.prefix_sets.even]\nentries = {even:?}\n\
             [[policy.rules.only-even]]\nmatch = {{ prefix = \"even\" }}\naction = \"accept\"\n\
             [[policy.rules.only-even]]\ndefault = \"reject\"\n\
             [[policy.rules.marked]]\nset = {{ communities_add = [\"65000:7\"] }}\naction = \"accept\"\n"
        )
    }

    /// Prefixes and communities that a receiver must end with.
    fn expected(&self, receiver: usize) -> BTreeMap<String, Vec<String>> {
        let all = networks(FEEDER, PREFIXES);
        let policy = self.policies[receiver];
        let mut table = BTreeMap::new();
        for &index in &self.announced {
            let fixed = (64..128).contains(&index);
            let mut communities: Vec<String> =
                if fixed { Vec::new() } else { vec![format!("65100:{}", self.mark)] };
            match policy {
                Policy::Nothing => continue,
                Policy::OnlyEven if index % 2 == 1 => continue,
                Policy::Marked => communities.insert(0, "65000:7".to_owned()),
                Policy::Everything | Policy::OnlyEven => {}
            }
            table.insert(all[index].clone(), communities);
        }
        table
    }

    fn change(&mut self, random: &mut Random) {
        match random.below(6) {
            0 | 1 => {
                let (from, count) = (random.below(PREFIXES), random.below(80));
                (from..(from + count).min(PREFIXES)).for_each(|index| {
                    self.announced.insert(index);
                });
            }
            2 | 3 => {
                let (from, count) = (random.below(PREFIXES), random.below(120));
                self.announced.retain(|index| !(from..from + count).contains(index));
            }
            4 => self.mark = random.below(5),
            _ => self.policies[random.below(RECEIVERS.len())] = Policy::ALL[random.below(4)],
        }
    }
}

fn received(world: &World, receiver: usize) -> BTreeMap<String, Vec<String>> {
    let routes = world.routes(receiver + 1).into_iter();
    let rows = routes.map(|mut route| {
        assert!(!route.stale, "{route:?}");
        assert_eq!(route.as_path, "65000 65100");
        route.communities.sort_unstable();
        (route.prefix, route.communities)
    });
    rows.collect()
}

/// Makes changes faster than slow receivers read; returns how often a member fell behind.
fn churn(seed: u64, limits: ExportLimits) -> u64 {
    let mut intent = Intent {
        announced: (0..PREFIXES).collect(),
        mark: 0,
        policies: [Policy::Everything; RECEIVERS.len()],
    };
    let mut configs = vec![intent.hub()];
    configs.extend(
        (0..RECEIVERS.len())
            .map(|index| router(index + 1, 65_001 + index as u32, &[], "", &[(0, 65_000, "")])),
    );
    configs.push(intent.feeder());
    let links: Vec<_> = (1..=FEEDER).map(|node| (0, node)).collect();
    let mut world = World::with_limits(seed, &configs, &links, limits);
    for (index, (rate, capacity)) in RECEIVERS.into_iter().enumerate() {
        world.set_speed(0, index + 1, rate, capacity);
    }
    // Changes begin while the first tables are still being sent.
    world
        .run_until("sessions", 30, |world| world.neighbors(0).iter().all(|each| each.state == "Established"));
    let mut lagging = 0;
    for round in 0..3 {
        for _ in 0..40 {
            intent.change(&mut world.random);
            world.reload(FEEDER, &intent.feeder());
            world.reload(0, &intent.hub());
            if world.random.below(8) == 0 {
                let receiver = 1 + world.random.below(RECEIVERS.len());
                world.ask(receiver, &BgpRequest::Refresh { neighbor: address(0).to_string() });
            }
            let ms = world.random.below(200) as u64;
            world.run_ms(ms);
            lagging += world.update_groups(0).iter().map(|group| group.lagging).sum::<u64>();
        }
        world.run_s(30);
        for receiver in 0..RECEIVERS.len() {
            let (is, wanted) = (received(&world, receiver), intent.expected(receiver));
            let policy = intent.policies[receiver];
            assert_eq!(is, wanted, "seed {seed}, round {round}, receiver {receiver}, {policy:?}");
            check_counts(&world, receiver + 1);
        }
    }
    assert_eq!(flaps(&world, 0), [0; RECEIVERS.len() + 1], "seed {seed}: no session went down");
    lagging
}

#[test]
fn slow_readers_and_changing_policies_end_with_the_right_tables() {
    with_seeds(6, |seed| {
        churn(seed, ExportLimits::default());
    });
}

#[test]
fn readers_that_fall_behind_end_with_the_right_tables() {
    with_seeds(6, |seed| {
        let limits =
            ExportLimits { log_bytes_max: 1500, pending_max: 8, dump_routes_max: 32, dump_bytes_max: 500 };
        assert!(churn(100 + seed, limits) > 0, "seed {seed}: no member fell behind");
    });
}
