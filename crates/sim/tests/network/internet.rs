//! Compares the router's decisions with the second engine, which shares no code with them: the same path for
//! every router and prefix, after a cold start, after failures, and with policies by communities and by roles.

use std::collections::BTreeMap;

use thalweg_sim::churn::Change;
use thalweg_sim::fixpoint::{Engine, Scenario as Question, Solver};
use thalweg_sim::policy::{Policy, Timers};
use thalweg_sim::prefixes::{PrefixPlan, prefix};
use thalweg_sim::topology::{AsGraph, GraphBuilder, Growth, grown, internet};
use thalweg_sim::{LinkState, NetworkOptions, Scenario, Simulation};

use thalweg_node::control::{BgpRequest, RouteFilter, RouteView};

/// Best paths by prefix: AS numbers after the router's own.
fn best(simulation: &Simulation, node: usize) -> BTreeMap<String, String> {
    let filter = BgpRequest::Routes(RouteFilter::default());
    let routes: Vec<RouteView> = simulation.network.ask(node, &filter).expect("routes");
    routes.into_iter().filter(|route| route.best).map(|route| (route.prefix, route.as_path)).collect()
}

/// Checks that every best path of every router is the one that `graph` computes.
fn check(simulation: &Simulation, graph: &AsGraph, what: &str) {
    let mut wanted = vec![BTreeMap::new(); graph.len()];
    let engine = Engine::new(graph).expect("no provider cycle");
    let mut solver = Solver::new(&engine);
    let full = &simulation.scenario().graph;
    for (number, owner) in simulation.owners().iter().enumerate() {
        let Some(origin) = graph.node(full.asn(*owner)) else { continue };
        solver.solve(&Question::announced_by(origin));
        for (node, wanted) in wanted.iter_mut().enumerate().filter(|(node, _)| solver.route(*node).is_some())
        {
            let path = solver.path(node);
            let path: Vec<String> = path[1..].iter().map(|hop| graph.asn(*hop).to_string()).collect();
            wanted.insert(prefix(number).to_string(), path.join(" "));
        }
    }
    for (node, wanted) in wanted.iter().enumerate() {
        let at = full.node(graph.asn(node)).expect("an AS of the whole graph");
        let is = best(simulation, at);
        let wrong = is.iter().find(|(prefix, path)| wanted.get(*prefix) != Some(path));
        assert_eq!(wrong, None, "{what}: at AS {}, of {} prefixes", graph.asn(node), wanted.len());
        assert_eq!(is.len(), wanted.len(), "{what}: prefixes at AS {}", graph.asn(node));
    }
}

fn scenario(graph: AsGraph, policy: Policy, seed: u64) -> Scenario {
    let timers = Timers { hold_s: 9, ..Timers::default() };
    Scenario {
        graph,
        policy,
        timers,
        keys: String::new(),
        configurations: Default::default(),
        prefixes: PrefixPlan::Each(2),
        seed,
    }
}

fn quiet(simulation: &mut Simulation) {
    let quiet = simulation.network.run_until_quiet(2_000_000, 120_000_000).expect("a run");
    assert!(quiet.is_quiet, "{quiet:?}");
}

/// The graph without a link.
fn without(graph: &AsGraph, link: (usize, usize)) -> AsGraph {
    let mut builder = GraphBuilder::new();
    for node in 0..graph.len() {
        for (other, relation, latency_us) in graph.links_of(node).filter(|(other, ..)| *other > node) {
            if (node, other) != link {
                builder.link(graph.asn(node), graph.asn(other), relation, latency_us, 0);
            }
        }
    }
    builder.build().expect("a part of a graph")
}

fn routers_agree_with_the_engine(graph: AsGraph, policy: Policy, seed: u64) {
    let what = format!("{policy:?}, seed {seed}");
    let mut simulation =
        Simulation::new(scenario(graph, policy, seed), NetworkOptions::default()).expect("a network");
    simulation.start(|_, _| None).expect("a start");
    quiet(&mut simulation);
    let graph = simulation.scenario().graph.clone();
    check(&simulation, &graph, &what);
    // An AS with several links loses its first.
    let node = (0..graph.len()).rev().find(|node| graph.degree(*node) > 1).expect("an AS with two neighbors");
    let neighbor = graph.links_of(node).next().expect("a neighbor").0;
    let (a, b) = (node.min(neighbor), node.max(neighbor));
    simulation.apply(Change::Link { a, b, state: LinkState::Down }).expect("a link");
    quiet(&mut simulation);
    check(&simulation, &without(&graph, (a, b)), &format!("{what}, without {a}-{b}"));
    simulation.apply(Change::Link { a, b, state: LinkState::Up }).expect("a link");
    quiet(&mut simulation);
    check(&simulation, &graph, &format!("{what}, with {a}-{b} again"));
}

#[test]
fn an_internet_ends_as_the_second_engine_says() {
    for seed in 1..=3 {
        routers_agree_with_the_engine(internet(50, seed).expect("a graph"), Policy::Relationships, seed);
    }
}

#[test]
fn roles_lead_to_the_same_routes() {
    routers_agree_with_the_engine(internet(40, 4).expect("a graph"), Policy::Roles, 4);
}

#[test]
fn a_grown_graph_ends_as_the_second_engine_says() {
    routers_agree_with_the_engine(
        grown(Growth::Preferential { links: 4 }, 40, 5).expect("a graph"),
        Policy::Relationships,
        5,
    );
}

/// Withdrawn prefixes leave nothing behind, and new ones reach every router.
#[test]
fn announcements_and_withdrawals_reach_all() {
    let graph = internet(30, 6).expect("a graph");
    let mut simulation =
        Simulation::new(scenario(graph.clone(), Policy::Relationships, 6), NetworkOptions::default())
            .expect("a network");
    simulation.start(|_, _| None).expect("a start");
    quiet(&mut simulation);
    let gone = prefix(0).to_string();
    simulation.apply(Change::Withdraw { node: 0, prefix: 0 }).expect("a prefix");
    quiet(&mut simulation);
    assert!((0..graph.len()).all(|node| !best(&simulation, node).contains_key(&gone)));
    simulation.apply(Change::Announce { node: 0, prefix: 0 }).expect("a prefix");
    let new = simulation.owners().len();
    simulation.apply(Change::Announce { node: 7, prefix: new }).expect("a prefix");
    quiet(&mut simulation);
    check(&simulation, &graph, "after all");
    let reached =
        (0..graph.len()).filter(|node| best(&simulation, *node).contains_key(&prefix(new).to_string()));
    assert_eq!(reached.count(), graph.len());
}
