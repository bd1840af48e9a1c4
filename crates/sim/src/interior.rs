//! Several routers of one AS: IBGP sessions, and an IGP whose costs decide between exits.
//!
//! The network is one of the Topology Zoo. Some of its routers are exits: each has a session with a
//! neighbor's router, and all neighbors announce the same prefixes at the same length. So a router should use
//! the exit that is nearest by the IGP. The IGP itself is not simulated: each router's view of next hops
//! follows at once from the links that are up. The latency of a session is that of the path between its
//! routers.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::rib::NextHopView;
use thalweg_config::RouterConfig;
use thalweg_node::control::{BgpRequest, RouteFilter, RouteView};

use crate::chance::Random;
use crate::error::SimError;
use crate::link::{Link, LinkState};
use crate::network::{Network, NetworkOptions, Start};
use crate::policy::address;
use crate::prefixes::prefix;
use crate::topology::ZooNetwork;
use crate::watch::Watch;

const AS: u32 = 64_500;
const NEIGHBOR_AS: u32 = 64_600;
/// The number of route reflectors, in the middle of the network.
const REFLECTORS: usize = 2;
/// The microseconds in one unit of the Zoo's IGP metric.
const METRIC_US: u64 = 10;

thalweg_base::words! {
    /// The layout of the sessions inside the AS.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Ibgp {
        /// Each router has a session with each other one.
        Mesh => "mesh",
        /// Each router has a session with two route reflectors.
        Reflectors => "reflectors",
    }
}

/// The routers of an AS and those of its neighbors.
pub struct Interior {
    /// First the AS's own routers, in file order, then the neighbors'.
    pub network: Network,
    /// The watches of all routers, in the same order.
    pub watches: Vec<Watch>,
    zoo: ZooNetwork,
    ibgp: Ibgp,
    /// The routers of the file that belong to the AS.
    routers: Vec<usize>,
    reflectors: Vec<usize>,
    /// Routers with a neighbor, in the order of the neighbors, which come right after the AS's own routers.
    exits: Vec<usize>,
    prefixes: usize,
}

/// Counts of the exits that routers use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exits {
    /// The pairs of a router and a prefix with a best path.
    pub routes: usize,
    /// The pairs that use the nearest reachable exit.
    pub nearest: usize,
    /// The extra distance of all other pairs, summed, in microseconds.
    pub detour_us: u64,
}

impl Interior {
    /// A network with `exits` exits; no router is running yet.
    pub fn new(
        zoo: ZooNetwork,
        ibgp: Ibgp,
        exits: usize,
        prefixes: usize,
        options: NetworkOptions,
    ) -> Result<Self, SimError> {
        let routers: Vec<usize> =
            (0..zoo.routers.len()).filter(|router| zoo.routers[*router].internal).collect();
        let place = |router: usize| routers.binary_search(&router).ok();
        let reflectors = zoo.middles(REFLECTORS).into_iter().filter_map(place).collect();
        let mut chosen: Vec<usize> = (0..routers.len()).collect();
        Random::of(options.seed, 0x6578_6974).shuffle(&mut chosen);
        chosen.truncate(exits);
        chosen.sort_unstable();
        let mut network = Network::new(options)?;
        for node in 0..routers.len() + chosen.len() {
            network.add_router(address(node));
        }
        let watches = (0..network.len()).map(|node| Watch::new(network.clock(node))).collect();
        let mut made = Self { network, watches, zoo, ibgp, routers, reflectors, exits: chosen, prefixes };
        for (place, exit) in made.exits.clone().into_iter().enumerate() {
            made.network.set_link(exit, made.routers.len() + place, Link::default());
        }
        made.apply_metrics()?;
        Ok(made)
    }

    /// The number of routers of the AS.
    pub fn routers(&self) -> usize {
        self.routers.len()
    }

    /// The names of the exits.
    pub fn exits(&self) -> Vec<&str> {
        self.exits.iter().map(|exit| self.zoo.routers[self.routers[*exit]].label.as_str()).collect()
    }

    /// The sessions inside the AS, each once.
    pub fn sessions(&self) -> Vec<(usize, usize)> {
        let reflects = |router: &usize| self.reflectors.contains(router);
        let pairs = (0..self.routers.len()).flat_map(|a| (a + 1..self.routers.len()).map(move |b| (a, b)));
        pairs.filter(|(a, b)| self.ibgp == Ibgp::Mesh || reflects(a) || reflects(b)).collect()
    }

    /// Starts all routers at once.
    pub fn start(&mut self) -> Result<(), SimError> {
        let metrics = self.metrics();
        for node in 0..self.network.len() {
            let refused = |reason: String| SimError::Refused { router: node, reason };
            let config = RouterConfig::from_text("router.toml", &self.configuration(node), Path::new(""));
            let config = config.map_err(|errors| refused(errors.to_string()))?;
            let config = config.bgp.ok_or_else(|| refused("no [bgp]".to_owned()))?;
            let watch = self.watches[node].clone();
            let start = Start { watch: vec![Box::new(watch)], ..Start::default() };
            self.network.start(node, Arc::new(config), start)?;
        }
        self.tell_metrics(&metrics)
    }

    /// The `router.toml` of a router.
    pub fn configuration(&self, node: usize) -> String {
        let own = self.routers.len();
        let exit = node.checked_sub(own);
        let networks: Vec<String> =
            (0..exit.map_or(0, |_| self.prefixes)).map(|number| prefix(number).to_string()).collect();
        let asn = exit.map_or(AS, |place| NEIGHBOR_AS + place as u32);
        let mut text = format!(
            "[bgp]\nas = {asn}\nrouter_id = \"{}\"\nlisten = []\ninstall = \"none\"\nnetworks = {networks:?}\nimport = \"accept\"\nexport = \"accept\"\n",
            address(node)
        );
        let mut neighbor = |other: usize, asn: u32, keys: &str| {
            let _ = write!(text, "[[bgp.neighbor]]\naddress = \"{}\"\nas = {asn}\n{keys}", address(other));
        };
        if let Some(place) = exit {
            neighbor(self.exits[place], AS, "");
            return text;
        }
        let reflects = self.ibgp == Ibgp::Reflectors && self.reflectors.contains(&node);
        for (a, b) in self.sessions().into_iter().filter(|(a, b)| *a == node || *b == node) {
            let other = a + b - node;
            let is_client = reflects && !self.reflectors.contains(&other);
            neighbor(
                other,
                AS,
                if is_client {
                    "next_hop_self = true\nroute_reflector_client = true\n"
                } else {
                    "next_hop_self = true\n"
                },
            );
        }
        if let Some(place) = self.exits.iter().position(|exit| *exit == node) {
            neighbor(own + place, NEIGHBOR_AS + place as u32, "");
        }
        text
    }

    /// Changes the state of the link between an exit and its neighbor.
    pub fn set_exit(&mut self, place: usize, state: LinkState) -> Result<(), SimError> {
        self.network.set_link_state(self.exits[place], self.routers.len() + place, state)
    }

    /// Removes the cables between the routers of one link. If the remaining links do not join all routers, it
    /// changes nothing and returns false.
    pub fn fail_cable(&mut self, link: usize) -> Result<bool, SimError> {
        let removed = self.zoo.links.remove(link);
        if self.metrics().iter().flatten().any(Option::is_none) {
            self.zoo.links.insert(link, removed);
            return Ok(false);
        }
        self.apply_metrics()?;
        Ok(true)
    }

    /// The links between routers, those of exits first, because their metrics matter to most routers.
    pub fn cables(&self) -> Vec<usize> {
        let exits: Vec<usize> = self.exits.iter().map(|exit| self.routers[*exit]).collect();
        let mut cables: Vec<usize> = (0..self.zoo.links.len()).collect();
        let is_far = |cable: &usize| {
            let link = &self.zoo.links[*cable];
            !exits.contains(&link.a) && !exits.contains(&link.b)
        };
        cables.sort_by_key(is_far);
        cables
    }

    /// The metric from each router to each other one.
    fn metrics(&self) -> Vec<Vec<Option<u32>>> {
        let of = |router: &usize| {
            let all = self.zoo.metrics_from(*router);
            self.routers.iter().map(|other| all[*other]).collect()
        };
        self.routers.iter().map(of).collect()
    }

    /// Updates the latencies of sessions and the views of next hops from the cables.
    fn apply_metrics(&mut self) -> Result<(), SimError> {
        let metrics = self.metrics();
        for (a, b) in self.sessions() {
            // Without a path there is no session.
            let state = if metrics[a][b].is_some() { LinkState::Up } else { LinkState::Down };
            let latency_us = u64::from(metrics[a][b].unwrap_or(1)) * METRIC_US;
            self.network.set_link(a, b, Link { state, latency_us, ..Link::default() });
        }
        if self.network.is_running(0) { self.tell_metrics(&metrics) } else { Ok(()) }
    }

    fn tell_metrics(&mut self, metrics: &[Vec<Option<u32>>]) -> Result<(), SimError> {
        let host = |node: usize| IpPrefix::V4(ipnet::Ipv4Net::from(address(node)).into());
        for (node, to) in metrics.iter().enumerate() {
            let inside = to.iter().enumerate().map(|(other, metric)| (host(other), *metric));
            let outside = self.exits.iter().position(|exit| *exit == node);
            let outside = outside.map(|place| (host(self.routers.len() + place), Some(0)));
            let view = NextHopView::new(inside.chain(outside).collect::<Vec<_>>());
            self.network.set_next_hops(node, view)?;
        }
        Ok(())
    }

    /// Compares the exits in use with the nearest ones whose neighbor is up.
    pub fn used(&self) -> Result<Exits, SimError> {
        let metrics = self.metrics();
        let mut used = Exits::default();
        for (node, to) in metrics.iter().enumerate() {
            let is_up = |place: usize| {
                let link = self.network.link(self.exits[place], self.routers.len() + place);
                link.is_ok_and(|link| link.state == LinkState::Up)
            };
            let there = (0..self.exits.len()).filter(|place| is_up(*place));
            let Some(nearest) = there.filter_map(|place| to[self.exits[place]]).min() else { continue };
            let routes: Vec<RouteView> =
                self.network.ask(node, &BgpRequest::Routes(RouteFilter::default()))?;
            for route in routes.iter().filter(|route| route.best) {
                let hop = |exit: &usize| address(*exit).to_string() == route.next_hop;
                // The next hop of an exit's own neighbor is at the exit itself.
                let metric = self.exits.iter().find(|exit| hop(exit)).map_or(Some(0), |exit| to[*exit]);
                let detour = metric.unwrap_or(u32::MAX).saturating_sub(nearest);
                used.routes += 1;
                used.nearest += usize::from(detour == 0);
                used.detour_us += u64::from(detour) * METRIC_US;
            }
        }
        Ok(used)
    }
}
