//! Draws a plan from a seed.
//!
//! Each seed leaves out random features, because one feature may hide faults of another.

use super::inside;
use super::plan::{End, Event, Fault, Features, LinkPlan, Plan, Relationship, RouterPlan};
use super::text::KINDS;
use crate::chance::Random;
use crate::link::Link;

/// Rates (bytes per millisecond) and capacities (bytes in flight) of links.
const SPEEDS: [(usize, usize); 5] =
    [(1 << 20, 64 << 10), (1 << 20, 64 << 10), (2000, 4096), (200, 400), (20, 100)];

impl Plan {
    /// The plan that a seed draws.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, 1);
        let random = &mut random;
        let features = features(random);
        let count = match random.below(100) {
            0..60 => 2 + random.below(4),
            60..90 => 5 + random.below(4),
            90..98 => 8 + random.below(5),
            _ => 12 + random.below(13),
        };
        let most = if count > 8 { 4 } else { 20 };
        let mut routers: Vec<RouterPlan> = (0..count).map(|_| router(random, most)).collect();
        let relationships = features.roles || random.happens(0.5);
        let links: Vec<LinkPlan> =
            shape(random, count).into_iter().map(|(a, b)| link(random, a, b, relationships)).collect();
        if random.happens(0.3) {
            split_as(random, &mut routers, &links);
        }
        let mut plan = Self { seed, features, routers, links, rounds: Vec::new() };
        for _ in 0..1 + random.below(2) {
            let events = (0..2 + random.below(14)).map(|_| event(random, &plan)).collect();
            plan.rounds.push(events);
        }
        if Random::of(seed, 5).happens(0.3) {
            draw_origins(&mut Random::of(seed, 6), &mut plan);
        }
        let random = &mut Random::of(seed, 3);
        plan.features.damping = random.happens(0.1);
        if random.happens(0.15) {
            make_route_server(random, &mut plan);
        }
        let random = &mut Random::of(seed, 4);
        if random.happens(0.2) {
            inside::draw(random, &mut plan);
        }
        plan
    }
}

/// Has some policies set ORIGIN.
fn draw_origins(random: &mut Random, plan: &mut Plan) {
    plan.links
        .iter_mut()
        .flat_map(|link| &mut link.ends)
        .for_each(|end| end.incomplete = random.happens(0.3));
    for event in plan.rounds.iter_mut().flatten() {
        if let Fault::Policy { now, .. } = &mut event.what {
            now.incomplete = random.happens(0.3);
        }
    }
}

/// Makes a router without further sites a route server; its clients see it as a peer.
fn make_route_server(random: &mut Random, plan: &mut Plan) {
    let at = random.below(plan.routers.len());
    if plan.routers.iter().any(|router| router.site_of == Some(at)) {
        return;
    }
    let server = RouterPlan { route_server: true, ..RouterPlan::default() };
    plan.routers[at] = server;
    let links: Vec<(usize, usize, usize)> = plan.links_of(at).collect();
    for (link, end, _) in &links {
        let link = &mut plan.links[*link];
        link.is = link.is.map(|_| Relationship::Peer);
        link.ends[*end] = End::default();
    }
    for event in plan.rounds.iter_mut().flatten() {
        match &mut event.what {
            Fault::Announce { router, now } if *router == at => *now = server,
            Fault::Policy { link, end, now } if links.iter().any(|own| (own.0, own.1) == (*link, *end)) => {
                *now = End::default();
            }
            _ => {}
        }
    }
}

fn features(random: &mut Random) -> Features {
    Features {
        ipv6: random.happens(0.4),
        paths: if random.happens(0.2) { 2 + random.below(3) as u8 } else { 0 },
        short_messages: random.happens(0.3),
        no_refresh: random.happens(0.3),
        graceful_restart: random.happens(0.4),
        roles: random.happens(0.25),
        mrai_ms: if random.happens(0.2) { [500, 5000][random.below(2)] } else { 0 },
        hold_s: [3, 9, 30][random.below(3)],
        short_logs: random.happens(0.3),
        interleaved: random.happens(0.6),
        large_as: random.happens(0.2),
        damping: false,
        confederation: false,
    }
}

fn router(random: &mut Random, most: usize) -> RouterPlan {
    RouterPlan { prefixes: random.below(most) as u16, anycast: random.happens(0.3), ..RouterPlan::default() }
}

/// Turns two routers with a common neighbor into sites of one AS, so that MED is compared.
fn split_as(random: &mut Random, routers: &mut [RouterPlan], links: &[LinkPlan]) {
    let are_linked = |a: usize, b: usize| links.iter().any(|link| (link.a, link.b) == (a.min(b), a.max(b)));
    let pairs: Vec<(usize, usize)> = (0..routers.len())
        .flat_map(|a| (a + 1..routers.len()).map(move |b| (a, b)))
        .filter(|(a, b)| {
            !are_linked(*a, *b) && (0..routers.len()).any(|at| are_linked(at, *a) && are_linked(at, *b))
        })
        .collect();
    if let Some((a, b)) = pairs.get(random.below(pairs.len())) {
        routers[*b].site_of = Some(*a);
    }
}

/// The links of a connected graph.
fn shape(random: &mut Random, count: usize) -> Vec<(usize, usize)> {
    let line = || (1..count).map(|node| (node - 1, node)).collect::<Vec<_>>();
    let clique =
        || (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect::<Vec<(usize, usize)>>();
    match random.below(6) {
        0 => line(),
        1 if count > 2 => [line(), vec![(0, count - 1)]].concat(),
        2 if count <= 6 => clique(),
        3 => (1..count).map(|node| (0, node)).collect(),
        _ => tree_and_more(random, count),
    }
}

fn tree_and_more(random: &mut Random, count: usize) -> Vec<(usize, usize)> {
    let mut links: Vec<(usize, usize)> = (1..count).map(|node| (random.below(node), node)).collect();
    for _ in 0..random.below(count) {
        let (a, b) = (random.below(count), random.below(count));
        let pair = (a.min(b), a.max(b));
        if a != b && !links.contains(&pair) {
            links.push(pair);
        }
    }
    links
}

fn link(random: &mut Random, a: usize, b: usize, relationships: bool) -> LinkPlan {
    // A router never buys from one with a higher number, so there is no circle of providers.
    let is = match relationships {
        true if random.happens(0.7) => Some(Relationship::Provider),
        true => Some(Relationship::Peer),
        false => None,
    };
    let latency_us = match random.below(4) {
        0 => 1 + random.below(200),
        1 => 1000 * (1 + random.below(200)),
        _ => 1000 * (1 + random.below(20)),
    };
    let normal = Link::default();
    let (rate, capacity) =
        if random.happens(0.2) { SPEEDS[random.below(SPEEDS.len())] } else { (normal.rate, normal.capacity) };
    // With little capacity, a long link would carry a few bytes per second.
    let latency_us = if capacity < normal.capacity { latency_us.min(20_000) } else { latency_us };
    LinkPlan { a, b, is, latency_us: latency_us as u64, rate, capacity, ends: [end(random), end(random)] }
}

fn end(random: &mut Random) -> End {
    End {
        prepend: if random.happens(0.2) { 1 + random.below(3) as u8 } else { 0 },
        med: random.happens(0.2).then(|| random.below(100) as u32),
        mark: random.happens(0.2),
        incomplete: false,
        reject: random.happens(0.15).then(|| random.below(KINDS.into()) as u8),
        metric: if random.happens(0.2) { random.below(3) as u32 } else { 0 },
    }
}

fn event(random: &mut Random, plan: &Plan) -> Event {
    let router = random.below(plan.routers.len());
    let link = random.below(plan.links.len());
    let end = random.below(2);
    let (rate, capacity) = SPEEDS[random.below(SPEEDS.len())];
    let what = match random.below(21) {
        0..3 => Fault::Down(link),
        3 | 4 => Fault::Silent(link),
        5..8 => Fault::Up(link),
        8 => Fault::Speed { link, rate, capacity },
        9 => Fault::Stop(router),
        10 | 11 => Fault::Start(router),
        12 => Fault::Restart(router),
        13 => Fault::Reset { link, end },
        14 => Fault::Shutdown { link, end },
        15 => Fault::Refresh { link, end },
        16 => {
            let site_of = plan.routers[router].site_of;
            Fault::Announce { router, now: RouterPlan { site_of, ..self::router(random, 20) } }
        }
        17 => Fault::Policy { link, end, now: self::end(random) },
        18 => Fault::NoWay { link, end },
        19 => Fault::Garbage { link, end, bytes: 1 + random.below(60) as u8 },
        _ => Fault::Ways(router),
    };
    let after_ms = match random.below(4) {
        0 => random.below(20),
        1 => random.below(12_000),
        _ => random.below(1500),
    };
    Event { after_ms: after_ms as u32, what }
}
