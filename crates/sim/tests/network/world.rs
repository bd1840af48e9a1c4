//! The simulator for tests: every error fails the test, and time is in milliseconds.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use thalweg_bgp::export::ExportLimits;
use thalweg_bgp::rib::NextHopView;
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_node::control::{BgpNeighborView, BgpRequest, RouteFilter, RouteView, UpdateGroupView};
use thalweg_node::speaker::{Restart, Speaker};
use thalweg_sim::{Interleaving, Link, LinkState, Network, NetworkOptions, Random, Start};

pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) random: Random,
    configs: Vec<Arc<BgpConfig>>,
    seed: u64,
}

/// The address and identifier of a router.
pub(crate) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, (node / 250) as u8, (node % 250 + 1) as u8)
}

pub(crate) fn config(text: &str) -> Arc<BgpConfig> {
    match RouterConfig::from_text("router.toml", text, Path::new("")) {
        Ok(config) => Arc::new(config.bgp.expect("[bgp] in the configuration")),
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

impl World {
    /// Routers with these configurations and links, all running.
    pub(crate) fn new(seed: u64, configs: &[String], links: &[(usize, usize)]) -> Self {
        Self::with_limits(seed, configs, links, ExportLimits::default())
    }

    pub(crate) fn with_limits(
        seed: u64,
        configs: &[String],
        links: &[(usize, usize)],
        limits: ExportLimits,
    ) -> Self {
        let interleaving = Interleaving::Random;
        let options =
            NetworkOptions { seed, limits, interleaving, shares_attributes: false, ..Default::default() };
        Self::with_options(options, configs, links)
    }

    pub(crate) fn with_options(
        options: NetworkOptions,
        configs: &[String],
        links: &[(usize, usize)],
    ) -> Self {
        let mut network = Network::new(options).expect("a network");
        let mut random = Random::new(options.seed);
        for node in 0..configs.len() {
            network.add_router(address(node));
        }
        for &(a, b) in links {
            let latency_us = 1000 * (1 + random.below(20) as u64);
            network.set_link(a, b, Link { latency_us, ..Link::default() });
        }
        let configs: Vec<_> = configs.iter().map(|text| config(text)).collect();
        let mut world = Self { network, random, configs, seed: options.seed };
        (0..world.configs.len()).for_each(|node| world.start(node));
        world
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.network.now_us() / 1000
    }

    /// Starts a router without any memory.
    pub(crate) fn start(&mut self, node: usize) {
        self.start_with(node, None);
    }

    /// Starts a router with this knowledge of its predecessor.
    pub(crate) fn start_with(&mut self, node: usize, restart: Option<Restart>) {
        let start = Start { restart, ..Start::default() };
        self.network.start(node, self.configs[node].clone(), start).expect("a speaker");
    }

    /// Kills a router; its connections end.
    pub(crate) fn stop(&mut self, node: usize) {
        self.network.stop(node);
    }

    pub(crate) fn is_running(&self, node: usize) -> bool {
        self.network.is_running(node)
    }

    pub(crate) fn set_link(&mut self, a: usize, b: usize, state: LinkState) {
        self.network.set_link_state(a, b, state).expect("a link of the topology");
    }

    /// Sets bytes per millisecond, and the most bytes in flight.
    pub(crate) fn set_speed(&mut self, a: usize, b: usize, rate: usize, capacity: usize) {
        let link = self.network.link(a, b).expect("a link of the topology");
        self.network.set_link(a, b, Link { rate, capacity, ..link });
    }

    pub(crate) fn speaker(&self, node: usize) -> Arc<Speaker> {
        self.network.speaker(node).expect("a running router")
    }

    /// Reloads a running router with another configuration; returns its messages.
    pub(crate) fn reload(&mut self, node: usize, text: &str) -> Vec<String> {
        self.configs[node] = config(text);
        self.network.reload(node, self.configs[node].clone()).expect("a good configuration")
    }

    /// Sends a request to a running router; returns the first error.
    pub(crate) fn ask(&mut self, node: usize, request: &BgpRequest) {
        self.network.command(node, request).expect("a good request");
    }

    /// Tells a running router how next hops are reached; returns whether that is new.
    pub(crate) fn set_next_hops(&mut self, node: usize, view: NextHopView) -> bool {
        self.network.set_next_hops(node, view).expect("a running router")
    }

    /// All routes of a router.
    pub(crate) fn routes(&self, node: usize) -> Vec<RouteView> {
        self.items(node, &BgpRequest::Routes(RouteFilter::default()))
    }

    pub(crate) fn neighbors(&self, node: usize) -> Vec<BgpNeighborView> {
        self.items(node, &BgpRequest::Neighbors)
    }

    pub(crate) fn update_groups(&self, node: usize) -> Vec<UpdateGroupView> {
        self.items(node, &BgpRequest::UpdateGroups)
    }

    pub(crate) fn items<T: serde::de::DeserializeOwned>(&self, node: usize, request: &BgpRequest) -> Vec<T> {
        self.network.ask(node, request).expect("a good request")
    }

    /// Routes of a router as text, one per line, sorted: the sender of each, and whether it is best.
    pub(crate) fn table(&self, node: usize) -> Vec<String> {
        let line = |route: RouteView| {
            let best = if route.best { "*" } else { " " };
            let stale = if route.stale { " stale" } else { "" };
            let RouteView { prefix, neighbor, as_path, path_id, next_hop, .. } = route;
            format!("{best} {prefix} from {neighbor} id {path_id} [{as_path}] via {next_hop}{stale}")
        };
        let mut lines: Vec<String> = self.routes(node).into_iter().map(line).collect();
        lines.sort_unstable();
        lines
    }

    pub(crate) fn is_established(&self, node: usize, neighbor: usize) -> bool {
        let at = |each: &BgpNeighborView| each.address == std::net::IpAddr::V4(address(neighbor));
        self.neighbors(node).iter().any(|each| at(each) && each.state == "Established")
    }

    /// Runs for this time.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        let run = self.network.run_us(1000 * ms);
        run.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
    }

    pub(crate) fn run_s(&mut self, seconds: u64) {
        self.run_ms(seconds * 1000);
    }

    /// Runs until a condition holds; panics if it does not within the time.
    pub(crate) fn run_until(&mut self, what: &str, seconds: u64, is: impl Fn(&Self) -> bool) {
        let end_ms = self.now_ms() + seconds * 1000;
        while !is(self) {
            assert!(self.now_ms() < end_ms, "seed {}: not within {seconds} s: {what}", self.seed);
            self.run_ms(100);
        }
    }
}
