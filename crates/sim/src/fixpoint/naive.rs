//! The slow twin: every AS looks at what all its neighbors have until nothing changes any more.
#![cfg(test)]

use super::{Announcement, Class, Engine};
use crate::chance::Random;
use crate::topology::{AsGraph, GraphBuilder, Relation};

/// Class, path after the node itself, and whether the path has the leak.
type Route = (Class, Vec<usize>, bool);

fn fixpoint(graph: &AsGraph, announcement: &Announcement) -> Vec<Option<Route>> {
    // The leaker keeps what it had before the leak.
    let before = announcement.leaker.map(|leaker| {
        let without = Announcement { leaker: None, ..announcement.clone() };
        (leaker, fixpoint(graph, &without)[leaker].clone())
    });
    let is = |all: &[bool], node: usize| all.get(node).copied().unwrap_or(false);
    let mut routes: Vec<Option<Route>> = vec![None; graph.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for node in 0..graph.len() {
            if let Some((leaker, route)) = before.as_ref().filter(|(leaker, _)| *leaker == node) {
                changed |= routes[*leaker] != *route;
                routes[*leaker] = route.clone();
                continue;
            }
            let mut best: Option<Route> = None;
            if node == announcement.origin || Some(node) == announcement.hijacker {
                best = Some((Class::Own, Vec::new(), false));
            }
            for neighbor in graph.neighbors(node) {
                let from = neighbor.node as usize;
                let Some((class, path, was_leaked)) = &routes[from] else { continue };
                let to_all = *class <= Class::Customer;
                let is_leak =
                    !to_all && Some(from) == announcement.leaker && neighbor.relation != Relation::Provider;
                let allowed = to_all || neighbor.relation == Relation::Provider || is_leak;
                let path: Vec<usize> = [&[from], path.as_slice()].concat();
                let leaked = is_leak || *was_leaked || (Some(from) == announcement.leaker && !to_all);
                let wrong = path.last() == announcement.hijacker.as_ref()
                    && announcement.hijacker != Some(announcement.origin);
                let refused = path.contains(&node)
                    || (wrong && is(&announcement.validates_origin, node))
                    || (leaked && is(&announcement.validates_path, node));
                if !allowed || refused {
                    continue;
                }
                let class = match neighbor.relation {
                    Relation::Customer => Class::Customer,
                    Relation::Peer => Class::Peer,
                    Relation::Provider => Class::Provider,
                };
                let offered = (class, path, leaked);
                let key = |route: &Route| (route.0, route.1.len(), route.1.first().copied());
                if best.as_ref().is_none_or(|best| key(&offered) < key(best)) {
                    best = Some(offered);
                }
            }
            changed |= routes[node] != best;
            routes[node] = best;
        }
    }
    routes
}

/// A graph whose providers have lower numbers: no cycle.
fn graph(random: &mut Random) -> AsGraph {
    let nodes = 3 + random.below(12) as u32;
    let mut builder = GraphBuilder::default();
    for node in 2..=nodes {
        for _ in 0..1 + random.below(3) {
            let other = 1 + random.below(node as usize - 1) as u32;
            let relation = if random.below(3) == 0 { Relation::Peer } else { Relation::Provider };
            if !builder.is_linked(node, other) {
                builder.link(node, other, relation).unwrap();
            }
        }
    }
    builder.build().unwrap()
}

fn shares(random: &mut Random, nodes: usize, one_in: usize) -> Vec<bool> {
    (0..nodes).map(|_| random.below(one_in) == 0).collect()
}

#[test]
fn the_sweeps_find_what_the_slow_twin_finds() {
    let (mut leaks, mut hijacks) = (0, 0);
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let graph = graph(&mut random);
        let nodes = graph.len();
        let mut announcement = Announcement::of(random.below(nodes));
        match seed % 4 {
            0 => {}
            1 => announcement.hijacker = Some(random.below(nodes)),
            _ => announcement.leaker = Some(random.below(nodes)),
        }
        if announcement.hijacker == Some(announcement.origin) {
            announcement.hijacker = None;
        }
        if seed % 8 >= 4 {
            announcement.validates_origin = shares(&mut random, nodes, 3);
            announcement.validates_path = shares(&mut random, nodes, 3);
        }
        let wanted = fixpoint(&graph, &announcement);
        let mut engine = Engine::new(&graph);
        let routes = engine.routes(&announcement);
        for (node, wanted) in wanted.iter().enumerate() {
            let is =
                (routes.class(node) != Class::Unreached).then(|| (routes.class(node), routes.path(node)));
            let wanted = wanted.as_ref().map(|(class, path, _)| (*class, path.clone()));
            assert_eq!(is, wanted, "seed {seed}, node {node}, {announcement:?}");
            assert_eq!(routes.length(node), wanted.map(|(_, path)| path.len()), "seed {seed}, node {node}");
            hijacks += usize::from(routes.is_hijacked(node));
            leaks += usize::from(routes.is_leaked(node));
        }
    }
    assert!(leaks > 100 && hijacks > 1000, "{leaks} routes by leaks, {hijacks} hijacked");
}

#[test]
fn an_engine_is_used_again() {
    let graph = graph(&mut Random::new(3));
    let mut engine = Engine::new(&graph);
    for origin in (0..graph.len()).chain((0..graph.len()).rev()) {
        let wanted = fixpoint(&graph, &Announcement::of(origin));
        let routes = engine.routes(&Announcement::of(origin));
        assert_eq!(routes.reached(), wanted.iter().flatten().count());
    }
}
