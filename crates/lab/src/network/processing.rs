//! The cost of an UPDATE on this machine, which gives processing a virtual time.

use serde::Serialize;
use thalweg_sim::policy::{Policy, Timers};
use thalweg_sim::prefixes::PrefixPlan;
use thalweg_sim::topology::internet;
use thalweg_sim::{Costs, NetworkOptions, Scenario, Simulation, Timed};

use super::NetworkError;

/// The size of the network whose cold start is timed: large enough for a few tens of thousands of UPDATEs.
const ASES: usize = 80;
/// Entries of the table of costs.
const ENTRIES: usize = 256;
const QUIET_US: u64 = 5_000_000;
const LIMIT_US: u64 = 600_000_000;

/// The table of costs, and how it was made.
#[derive(Clone, Debug, Serialize)]
pub struct Processing {
    /// The factor by which measured times are multiplied.
    pub scale: f64,
    /// Timed UPDATEs.
    pub updates: u64,
    /// Costs in nanoseconds, equally likely, ascending.
    pub costs_ns: Vec<u64>,
}

impl Processing {
    /// Measures the cold start of a small network in this process.
    pub fn measure(scale: f64) -> Result<Self, NetworkError> {
        let scenario = Scenario {
            graph: internet(ASES, 1)?,
            policy: Policy::Relationships,
            timers: Timers::default(),
            keys: String::new(),
            configurations: Default::default(),
            prefixes: PrefixPlan::Each(2),
            seed: 1,
        };
        let mut simulation = Simulation::new(scenario, NetworkOptions::default())?;
        simulation.network.start_stopwatch();
        simulation.start(|_, _| None)?;
        simulation.network.run_until_quiet(QUIET_US, LIMIT_US)?;
        Ok(Self::of(simulation.network.take_timed(), scale))
    }

    fn of(timed: Vec<Timed>, scale: f64) -> Self {
        let updates = timed.iter().map(|(updates, _)| updates).sum();
        let mut each: Vec<(f64, u64)> = timed
            .into_iter()
            .map(|(updates, took)| (took.as_nanos() as f64 / updates.max(1) as f64, updates))
            .collect();
        each.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut costs_ns = Vec::with_capacity(ENTRIES);
        let mut passed = 0;
        for (ns, of) in each {
            passed += of;
            while (costs_ns.len() as u64) < passed * ENTRIES as u64 / u64::max(updates, 1) {
                costs_ns.push((ns * scale) as u64);
            }
        }
        Self { scale, updates, costs_ns }
    }

    /// The costs in the simulator's form.
    pub fn costs(&self) -> Costs {
        self.costs_ns.as_slice().into()
    }

    /// The quantile of the cost at this share, in nanoseconds.
    pub fn at(&self, share: f64) -> u64 {
        let place = (self.costs_ns.len().saturating_sub(1) as f64 * share) as usize;
        self.costs_ns.get(place).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_table_weighs_moments_by_their_updates() {
        let timed = vec![(3, Duration::from_nanos(3000)), (1, Duration::from_nanos(5000))];
        let table = Processing::of(timed, 2.0);
        assert_eq!((table.updates, table.costs_ns.len()), (4, ENTRIES));
        assert_eq!(table.costs_ns.iter().filter(|ns| **ns == 2000).count(), ENTRIES * 3 / 4);
        assert_eq!((table.at(0.5), table.at(1.0)), (2000, 10_000));
        assert!(Processing::of(Vec::new(), 1.0).costs_ns.is_empty());
    }

    #[test]
    fn a_cold_start_is_timed() {
        let table = Processing::measure(1.0).unwrap();
        assert!(table.updates > 1000 && table.at(0.5) > 0, "{table:?}");
    }
}
