//! Derives smaller plans from one that fails.

use super::plan::{End, Features, Plan};
use crate::seeds::shrink::{Step, changed, parts};

/// In order: steps that remove most come first.
pub(in crate::seeds) const STEPS: [Step<Plan>; 8] = [
    without_rounds,
    without_events,
    without_routers,
    without_links,
    without_features,
    with_fewer_prefixes,
    with_plain_links,
    with_sooner_events,
];

fn without_rounds(plan: &Plan) -> Vec<Plan> {
    (0..plan.rounds.len()).map(|round| changed(plan, |plan| drop(plan.rounds.remove(round)))).collect()
}

/// Omits a half of a round's events, a quarter, and so on down to one.
fn without_events(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (round, events) in plan.rounds.iter().enumerate() {
        let gone = parts(events.len());
        plans.extend(gone.map(|gone| changed(plan, |plan| drop(plan.rounds[round].drain(gone)))));
    }
    plans
}

/// Omits a router with its links and events.
fn without_routers(plan: &Plan) -> Vec<Plan> {
    (0..plan.routers.len())
        .rev()
        .filter(|_| plan.routers.len() > 1)
        .map(|router| {
            let gone: Vec<usize> = plan.links_of(router).map(|(link, ..)| link).collect();
            let mut plan = gone.iter().rev().fold(plan.clone(), |plan, link| plan.without_link(*link));
            plan.routers.remove(router);
            let moved = |at: usize| if at > router { at - 1 } else { at };
            for link in &mut plan.links {
                (link.a, link.b) = (moved(link.a), moved(link.b));
            }
            for own in &mut plan.routers {
                for other in [&mut own.site_of, &mut own.inside, &mut own.client_of] {
                    *other = other.filter(|other| *other != router).map(moved);
                }
            }
            plan.move_events(|of| (of != router).then(|| moved(of)), Some);
            plan
        })
        .collect()
}

fn without_links(plan: &Plan) -> Vec<Plan> {
    (0..plan.links.len()).map(|link| plan.without_link(link)).collect()
}

fn without_features(plan: &Plan) -> Vec<Plan> {
    let changes: [fn(&mut Features); 12] = [
        |features| features.ipv6 = false,
        |features| features.paths = 0,
        |features| features.short_messages = false,
        |features| features.no_refresh = false,
        |features| features.graceful_restart = false,
        |features| features.roles = false,
        |features| features.mrai_ms = 0,
        |features| features.short_logs = false,
        |features| features.interleaved = false,
        |features| features.large_as = false,
        |features| features.damping = false,
        |features| features.confederation = false,
    ];
    let plans = changes.into_iter().map(|change| changed(plan, |plan| change(&mut plan.features)));
    plans.filter(|smaller| smaller.features != plan.features).collect()
}

fn with_fewer_prefixes(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (router, own) in plan.routers.iter().enumerate() {
        let mut counts = vec![0, own.prefixes / 2, own.prefixes.saturating_sub(1)];
        counts.dedup();
        for prefixes in counts.into_iter().filter(|count| *count < own.prefixes) {
            plans.push(changed(plan, |plan| plan.routers[router].prefixes = prefixes));
        }
        if own.anycast {
            plans.push(changed(plan, |plan| plan.routers[router].anycast = false));
        }
        if own.site_of.is_some() {
            plans.push(changed(plan, |plan| plan.routers[router].site_of = None));
        }
        if own.client_of.is_some() {
            plans.push(changed(plan, |plan| plan.routers[router].client_of = None));
        }
        if own.inside.is_some() {
            plans.push(changed(plan, |plan| {
                (plan.routers[router].inside, plan.routers[router].client_of) = (None, None);
            }));
        }
        if own.route_server {
            plans.push(changed(plan, |plan| plan.routers[router].route_server = false));
        }
    }
    plans
}

/// Removes policies from links and gives them the usual latency and speed.
fn with_plain_links(plan: &Plan) -> Vec<Plan> {
    let usual = crate::link::Link::default();
    let mut plans = Vec::new();
    for (number, link) in plan.links.iter().enumerate() {
        for end in 0..2 {
            if link.ends[end] != End::default() {
                plans.push(changed(plan, |plan| plan.links[number].ends[end] = End::default()));
            }
        }
        if (link.rate, link.capacity) != (usual.rate, usual.capacity) {
            plans.push(changed(plan, |plan| {
                (plan.links[number].rate, plan.links[number].capacity) = (usual.rate, usual.capacity);
            }));
        }
        if link.latency_us != 1000 {
            plans.push(changed(plan, |plan| plan.links[number].latency_us = 1000));
        }
        if link.is.is_some() {
            plans.push(changed(plan, |plan| plan.links[number].is = None));
        }
    }
    plans
}

fn with_sooner_events(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (round, events) in plan.rounds.iter().enumerate() {
        for (at, event) in events.iter().enumerate().filter(|(_, event)| event.after_ms > 0) {
            for after_ms in [0, event.after_ms / 10 * 5] {
                if after_ms < event.after_ms {
                    plans.push(changed(plan, |plan| plan.rounds[round][at].after_ms = after_ms));
                }
            }
        }
    }
    plans
}
