//! Builds a network from a graph and applies events to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_node::control::BgpRequest;

use crate::churn::{Change, Event};
use crate::error::SimError;
use crate::link::Link;
use crate::network::{Network, NetworkOptions, Start};
use crate::oscillation::{Settled, settle};
use crate::policy::{self, Policy, Timers, address};
use crate::prefixes::{PrefixPlan, prefix};
use crate::record::Recorder;
use crate::topology::AsGraph;
use crate::watch::Watch;

/// A network as data. The same scenario always gives the same network.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub graph: AsGraph,
    pub policy: Policy,
    /// The timers of all sessions.
    pub timers: Timers,
    /// Further lines of each router's `[bgp]`.
    pub keys: String,
    /// Replacement configurations by node: a file name, for errors, and the text. Their `networks` are those
    /// of `prefixes`.
    pub configurations: BTreeMap<usize, (String, String)>,
    pub prefixes: PrefixPlan,
    /// Determines everything random.
    pub seed: u64,
}

/// A network that runs a scenario.
pub struct Simulation {
    scenario: Scenario,
    /// The routers, by node of the graph.
    pub network: Network,
    /// The AS of each prefix, by number.
    owners: Vec<usize>,
    /// The prefixes that each AS announces now.
    announced: Vec<BTreeSet<IpPrefix>>,
    configs: Vec<Arc<BgpConfig>>,
    watches: Vec<Watch>,
}

impl Simulation {
    /// Builds the network; no router is running yet.
    pub fn new(scenario: Scenario, mut options: NetworkOptions) -> Result<Self, SimError> {
        options.seed = scenario.seed;
        let mut network = Network::new(options)?;
        let graph = &scenario.graph;
        let counts = scenario.prefixes.counts(graph.len(), scenario.seed);
        let owners: Vec<usize> =
            counts.iter().enumerate().flat_map(|(node, count)| std::iter::repeat_n(node, *count)).collect();
        let mut announced = vec![BTreeSet::new(); graph.len()];
        for (number, node) in owners.iter().enumerate() {
            announced[*node].insert(prefix(number));
        }
        let mut configs = Vec::with_capacity(graph.len());
        let (mut libraries, mut policies) = (Vec::new(), Vec::new());
        for (node, networks) in announced.iter().enumerate() {
            network.add_router(address(node));
            let mut config = Self::config(&scenario, node, networks)?;
            share(&mut libraries, &mut config.library);
            share(&mut policies, &mut config.policies);
            configs.push(Arc::new(config));
        }
        for node in 0..graph.len() {
            for (other, _, latency_us) in graph.links_of(node).filter(|(other, ..)| *other > node) {
                network.set_link(node, other, Link { latency_us: latency_us.into(), ..Link::default() });
            }
        }
        let watches = (0..graph.len()).map(|node| Watch::new(network.clock(node))).collect();
        Ok(Self { scenario, network, owners, announced, configs, watches })
    }

    fn config(
        scenario: &Scenario,
        node: usize,
        networks: &BTreeSet<IpPrefix>,
    ) -> Result<BgpConfig, SimError> {
        let refused = |reason: String| SimError::Refused { router: node, reason };
        let own = scenario.configurations.get(&node);
        let text = own.map_or_else(|| Self::text_of(scenario, node, networks), |(_, text)| text.clone());
        let name = own.map_or("router.toml", |(name, _)| name);
        let config = RouterConfig::from_text(name, &text, Path::new(""));
        let config = config.map_err(|errors| refused(errors.to_string()))?;
        let mut config = config.bgp.ok_or_else(|| refused(format!("{name} has no [bgp]")))?;
        let asn = scenario.graph.asn(node);
        if config.local_as != asn {
            return Err(refused(format!("{name} is of AS {}, not of AS {asn}", config.local_as)));
        }
        config.networks = networks.iter().copied().collect();
        Ok(config)
    }

    fn text_of(scenario: &Scenario, node: usize, networks: &BTreeSet<IpPrefix>) -> String {
        let networks: Vec<IpPrefix> = networks.iter().copied().collect();
        policy::router(&scenario.graph, node, &networks, scenario.policy, scenario.timers, &scenario.keys)
    }

    /// The configuration of a router, as text.
    pub fn config_text(&self, node: usize) -> String {
        match self.scenario.configurations.get(&node) {
            Some((_, text)) => text.clone(),
            None => Self::text_of(&self.scenario, node, &self.announced[node]),
        }
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The AS of each prefix, by number.
    pub fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// The watch on a router's best paths.
    pub fn watch(&self, node: usize) -> &Watch {
        &self.watches[node]
    }

    /// Runs until the network is quiet or is found to oscillate.
    pub fn settle(&mut self, quiet_us: u64, limit_us: u64) -> Result<Settled, SimError> {
        settle(&mut self.network, &self.watches, quiet_us, limit_us)
    }

    /// Starts all routers at once. `recorder` may return one for a router.
    pub fn start(
        &mut self,
        mut recorder: impl FnMut(usize, &Network) -> Option<Arc<Recorder>>,
    ) -> Result<(), SimError> {
        for node in 0..self.scenario.graph.len() {
            let observer = recorder(node, &self.network).map(|recorder| recorder as _);
            let watch: Vec<Box<dyn thalweg_node::speaker::RouteReader>> =
                vec![Box::new(self.watches[node].clone())];
            self.network.start(
                node,
                self.configs[node].clone(),
                Start { observer, watch, ..Start::default() },
            )?;
        }
        Ok(())
    }

    /// Applies the events, each at its time from now on. `at` is called before each event.
    pub fn play(&mut self, events: &[Event], mut at: impl FnMut(usize)) -> Result<(), SimError> {
        let begun_us = self.network.now_us();
        for (number, (after_us, change)) in events.iter().enumerate() {
            at(number);
            self.network.run_until_us(begun_us + after_us)?;
            self.apply(*change)?;
        }
        Ok(())
    }

    /// Gives a prefix to an AS, which announces it from its next change or configuration on.
    pub fn own(&mut self, node: usize, number: usize) {
        if number >= self.owners.len() {
            self.owners.resize(number + 1, node);
        }
        self.announced[node].insert(prefix(number));
    }

    /// Applies a change now.
    pub fn apply(&mut self, change: Change) -> Result<(), SimError> {
        match change {
            Change::Announce { node, prefix: number } => {
                self.own(node, number);
                self.reannounce(node)
            }
            Change::Withdraw { node, prefix: number } => {
                self.announced[node].remove(&prefix(number));
                self.reannounce(node)
            }
            Change::Link { a, b, state } => self.network.set_link_state(a, b, state),
            Change::Reset { node, neighbor } => {
                let request =
                    BgpRequest::Reset { neighbor: address(neighbor).to_string(), text: String::new() };
                self.network.command(node, &request)
            }
        }
    }

    /// Reloads the AS with the prefixes that it announces now.
    fn reannounce(&mut self, node: usize) -> Result<(), SimError> {
        let mut config = BgpConfig::clone(&self.configs[node]);
        config.networks = self.announced[node].iter().copied().collect();
        self.configs[node] = Arc::new(config);
        self.network.reload(node, self.configs[node].clone()).map(drop)
    }
}

/// Replaces a value by an equal one that another router has. Rules follow from a few relationships, so a thousand routers
/// have a handful of policies, which stay in the caches of the processor.
fn share<T: PartialEq>(known: &mut Vec<Arc<T>>, value: &mut Arc<T>) {
    match known.iter().find(|each| **each == *value) {
        Some(equal) => *value = equal.clone(),
        None => known.push(value.clone()),
    }
}
