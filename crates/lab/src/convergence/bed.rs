//! A network at rest in which one event happens at a time, and the effects of each.

use thalweg_sim::churn::Change;
use thalweg_sim::oscillation::Settled;
use thalweg_sim::policy::{Policy, Timers};
use thalweg_sim::prefixes::PrefixPlan;
use thalweg_sim::topology::{AsGraph, GraphBuilder, Relation};
use thalweg_sim::{Costs, NetworkOptions, Random, Scenario, SimError, Simulation};

use crate::network::NetworkError;

/// A network without UPDATEs for this long, beyond the MRAI, is at rest.
const QUIET_US: u64 = 5_000_000;
/// The interval between counts of UPDATEs when there may be too many: a clique can send millions in a second.
const LOOK_US: u64 = 50_000;
/// A network that is not at rest after this time never will be.
const LIMIT_US: u64 = 12 * 3_600_000_000;

/// The kind of network.
pub(super) struct Setup {
    pub(super) graph: AsGraph,
    pub(super) policy: Policy,
    pub(super) timers: Timers,
    /// Further lines of the configuration's `[bgp]`.
    pub(super) keys: String,
    pub(super) costs: Option<Costs>,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

impl Setup {
    /// Accepts everything; no hold time, no MRAI, no processing time.
    pub(super) fn of(graph: AsGraph, seed: u64) -> Self {
        Self {
            graph,
            policy: Policy::Everything,
            // Without KEEPALIVEs, hours of rest cost nothing.
            timers: Timers { hold_s: 0, ..Timers::default() },
            keys: String::new(),
            costs: None,
            threads: 1,
            seed,
        }
    }

    pub(super) fn mrai_s(mut self, mrai_s: u32) -> Self {
        self.timers.mrai_s = mrai_s;
        self
    }
}

/// The effects of an event.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// UPDATEs sent.
    pub(super) updates: u64,
    /// Seconds until the last UPDATE.
    pub(super) time_s: f64,
    /// For each router and prefix whose best path changed, seconds until its last change.
    pub(super) converged_s: Vec<f64>,
}

/// A network at rest.
pub(super) struct Bed {
    pub(super) simulation: Simulation,
    quiet_us: u64,
}

impl Bed {
    /// Brings up all sessions; nothing is announced yet.
    pub(super) fn new(setup: Setup) -> Result<Self, NetworkError> {
        let quiet_us = QUIET_US + 1_000_000 * u64::from(setup.timers.mrai_s);
        let scenario = Scenario {
            graph: setup.graph,
            policy: setup.policy,
            timers: setup.timers,
            keys: setup.keys,
            configurations: Default::default(),
            prefixes: PrefixPlan::Each(0),
            seed: setup.seed,
        };
        let options = NetworkOptions { threads: setup.threads, ..NetworkOptions::default() };
        let mut simulation = Simulation::new(scenario, options)?;
        simulation.start(|_, _| None)?;
        let mut bed = Self { simulation, quiet_us };
        bed.settle()?;
        bed.simulation.network.set_costs(setup.costs.as_ref());
        Ok(bed)
    }

    fn settle(&mut self) -> Result<u64, NetworkError> {
        match self.simulation.settle(self.quiet_us, LIMIT_US)? {
            Settled::Quiet(quiet) => Ok(quiet.last_update_us),
            Settled::Oscillating(cycle) => Err(NetworkError::Oscillating(cycle.to_string())),
            Settled::Restless(quiet) => Err(NetworkError::Restless(quiet.sessions_down)),
        }
    }

    /// Makes changes now and waits for rest.
    pub(super) fn happen(&mut self, changes: &[Change]) -> Result<Seen, NetworkError> {
        self.observe(|simulation| changes.iter().try_for_each(|change| simulation.apply(*change)))
    }

    /// Makes changes now and waits for rest, or until `updates_max` UPDATEs were sent; returns whether the
    /// network came to rest.
    pub(super) fn happen_within(
        &mut self,
        changes: &[Change],
        updates_max: u64,
    ) -> Result<(Seen, bool), NetworkError> {
        let (begun_us, updates) = self.forget();
        for change in changes {
            self.simulation.apply(*change)?;
        }
        loop {
            let network = &mut self.simulation.network;
            network.run_us(LOOK_US)?;
            let last_us = network.last_update_us();
            let is_silent = last_us.max(begun_us) + self.quiet_us <= network.now_us();
            let is_over = is_silent && network.sessions_down()? == 0;
            if is_over || network.traffic().updates - updates > updates_max {
                return Ok((self.seen(begun_us, updates, last_us), is_over));
            }
        }
    }

    /// Does something, waits for rest, and returns the effects.
    pub(super) fn observe(
        &mut self,
        act: impl FnOnce(&mut Simulation) -> Result<(), SimError>,
    ) -> Result<Seen, NetworkError> {
        let (begun_us, updates) = self.forget();
        act(&mut self.simulation)?;
        let last_us = self.settle()?;
        Ok(self.seen(begun_us, updates, last_us))
    }

    /// Does something, and returns its effects within a time.
    pub(super) fn observe_for(
        &mut self,
        us: u64,
        act: impl FnOnce(&mut Simulation) -> Result<(), SimError>,
    ) -> Result<Seen, NetworkError> {
        let (begun_us, updates) = self.forget();
        act(&mut self.simulation)?;
        self.simulation.network.run_us(us)?;
        let last_us = self.simulation.network.last_update_us();
        Ok(self.seen(begun_us, updates, last_us))
    }

    fn forget(&mut self) -> (u64, u64) {
        for node in 0..self.simulation.network.len() {
            self.simulation.watch(node).take();
        }
        (self.simulation.network.now_us(), self.simulation.network.traffic().updates)
    }

    fn seen(&self, begun_us: u64, updates: u64, last_us: u64) -> Seen {
        let since_s = |at_us: u64| at_us.saturating_sub(begun_us) as f64 / 1e6;
        let mut converged_s = Vec::new();
        for node in 0..self.simulation.network.len() {
            let watched = self.simulation.watch(node).take();
            converged_s.extend(watched.prefixes().map(|(_, seen)| since_s(seen.last_us)));
        }
        Seen {
            updates: self.simulation.network.traffic().updates - updates,
            time_s: since_s(last_us),
            converged_s,
        }
    }
}

/// A latency of 2 to 50 ms.
fn latency_us(random: &mut Random) -> u32 {
    2000 + random.below(48_000) as u32
}

/// ASes 1 to `size`, each linked to every other; `more` are further links to further ASes.
pub(super) fn clique(size: u32, more: &[(u32, u32)], seed: u64) -> Result<AsGraph, NetworkError> {
    let mut random = Random::of(seed, 0x0063_6c69);
    let mut builder = GraphBuilder::new();
    let pairs = (1..=size).flat_map(|a| (a + 1..=size).map(move |b| (a, b)));
    for (a, b) in pairs.chain(more.iter().copied()) {
        builder.link(a, b, Relation::Peer, latency_us(&mut random), 0);
    }
    Ok(builder.build()?)
}

/// The clique, and an AS linked to all its members that will announce a prefix; returns the latter's node.
pub(super) fn clique_with_origin(size: u32, seed: u64) -> Result<(AsGraph, usize), NetworkError> {
    let links: Vec<(u32, u32)> = (1..=size).map(|member| (member, size + 1)).collect();
    Ok((clique(size, &links, seed)?, size as usize))
}
