//! The next plan: what it takes over when the configuration changes.
//!
//! The plan of a new configuration is made while packets still pass through the old one; all work that can fail or
//! takes long happens then. When no chunk is in the old plan any more, the new plan takes over sessions, public
//! ports, fragments, policers' buckets, and the time.
//!
//! NAT keeps its table if everything the table depends on is unchanged (`NatConfig::has_table_of`). Otherwise
//! sessions with a place in the new table move there, and the others are counted. The firewall keeps its table unless
//! its size changes; other rules are asked about the connections that earlier ones admitted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_dataplane::nat::{NatConfig, NatMigration};
use thalweg_dataplane::route::Router;

use super::{Firewall, Nat, RecordOutlet, RouterPlan, shards_with};
use crate::BuildError;
use crate::build::nat_keyed;
use thalweg_config::{FirewallConfig, RouterConfig};

/// A plan that is ready to succeed another.
pub struct NextPlan {
    plan: RouterPlan,
    /// NAT's new settings, if its table stays.
    behavior: Option<NatConfig>,
    firewall: Option<FirewallConfig>,
    /// The former index of each class.
    places: Vec<Option<usize>>,
    /// Whether routing rules are unchanged.
    keeps_rules: bool,
    /// Unchanged access lists: their index, and their former index.
    lists: Vec<(usize, usize)>,
}

/// What happened to the former plan's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// NAT's sessions, if its table was rebuilt.
    pub sessions: Option<NatMigration>,
    /// The firewall's connections that found no room in a smaller table.
    pub states_lost: u64,
}

impl RouterPlan {
    /// Prepares the plan of a configuration that will succeed this plan's. `router` is the routing stage of both;
    /// `outlet` gets flow records. Allocates what is needed and changes nothing.
    pub fn successor(
        &self,
        before: &RouterConfig,
        config: &RouterConfig,
        router: Router,
        workers: usize,
        outlet: Option<Arc<dyn RecordOutlet>>,
    ) -> Result<NextPlan, BuildError> {
        let mut behavior = None;
        let new = config.nat.as_ref().map(|nat| nat_keyed(nat, self.hash_seed));
        let nat = match (new, &before.nat, &self.nat) {
            (Some(new), Some(old), Some(nat)) if new.has_table_of(old) => {
                let nat = Nat::with_stage(&new, config, Arc::clone(&nat.stage))?;
                behavior = Some(new);
                Some(nat)
            }
            (Some(new), _, _) => Some(Nat::new(&new, config)?),
            (None, _, _) => None,
        };
        let shards = shards_with(nat.as_ref());
        let firewall = match (&config.firewall, &before.firewall, &self.firewall) {
            (Some(new), Some(old), Some(firewall)) => {
                Some(firewall.successor(old, new, shards, self.hash_seed).map_err(BuildError::Acl)?)
            }
            (Some(new), ..) => Some(Firewall::new(new, shards, self.hash_seed).map_err(BuildError::Acl)?),
            (None, ..) => None,
        };
        let parts = (nat, firewall);
        let mut plan =
            RouterPlan::with_tables(config, router, None, parts, self.hash_seed)?.for_workers(workers);
        if let (Some(flows), Some(outlet)) = (&config.flows, outlet) {
            let log_outlet = Arc::clone(&outlet);
            let metered = plan.with_flows(&flows.meter, self.hash_seed, outlet);
            plan = metered.map_err(|error| BuildError::Flows(error.to_string()))?;
            plan = plan.with_samples(flows.packet_sampling(), self.hash_seed);
            if let Some(logging) = flows.nat_events {
                plan = plan.with_nat_events(logging, log_outlet);
            }
        }
        let place = |name: &str| before.qos.classes.iter().position(|class| class.name == name);
        let places = config.qos.classes.iter().map(|class| place(&class.name)).collect();
        let same = |acl| before.acls.iter().position(|old| old == acl);
        let lists =
            config.acls.iter().enumerate().filter_map(|(place, acl)| Some((place, same(acl)?))).collect();
        let keeps_rules = before.routing.has_rules_of(&config.routing);
        Ok(NextPlan { plan, behavior, firewall: config.firewall.clone(), places, keeps_rules, lists })
    }
}

impl NextPlan {
    /// Tells the numbers that the configuration's targets have got.
    pub fn set_targets(&mut self, targets: Arc<[u16]>) {
        self.plan.router.targets = targets;
    }

    /// Takes over the former plan's state. No packet may be in that plan, and none may follow.
    pub fn migrate_state(self, before: &RouterPlan) -> (RouterPlan, Migrated) {
        let Self { mut plan, behavior, firewall, places, keeps_rules, lists } = self;
        let mut taken = Migrated::default();
        plan.clock_ns.fetch_max(before.clock_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        {
            let (mut mine, mut theirs) = (plan.arrival.lock(), before.arrival.lock());
            mine.police.migrate_from(&theirs.police, &places);
            mine.fragments = std::mem::take(&mut theirs.fragments);
        }
        plan.filters.mss.take_over(&before.filters.mss);
        for (place, old) in lists {
            plan.rule_counts.lock().before.insert(place, before.rule_counts(old));
        }
        match (&plan.nat, &before.nat, behavior) {
            (Some(nat), _, Some(settings)) => nat.stage.set_behavior(&settings),
            (Some(nat), Some(old), None) => taken.sessions = Some(nat.stage.migrate_from(&old.stage)),
            (None, Some(_), _) => before.send_end_of_nat(),
            _ => {}
        }
        if let (Some(new), Some(old), Some(config)) = (&mut plan.firewall, &before.firewall, &firewall) {
            taken.states_lost = new.take_over(config, old);
        }
        if keeps_rules {
            plan.way_rules.take_over(&before.way_rules);
        }
        plan.check_sources_of_sessions();
        plan.migrate_flows(before);
        (plan, taken)
    }
}
