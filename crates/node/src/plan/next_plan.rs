//! The next plan: what it takes over when the configuration changes.
//!
//! The plan of a new configuration is made while packets still pass through the old one; everything that can fail or
//! takes long happens then. When no chunk is on its way any more, the new plan takes over: sessions, public ports,
//! fragments, what policers have saved, and the time.
//!
//! NAT keeps its very table where all that it is made of is as before (`NatConfig::has_table_of`). Where it is not, the
//! sessions that have a place in the new table move there, and the others are counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_dataplane::nat::{NatConfig, NatMigration};
use thalweg_dataplane::route::Router;

use super::{Nat, RecordOutlet, RouterPlan};
use crate::BuildError;
use crate::build::{labeler, nat_keyed};
use thalweg_config::RouterConfig;

/// A plan that waits for the end of the one before it.
pub struct NextPlan {
    plan: RouterPlan,
    /// What NAT's table is told, where it stays.
    behavior: Option<NatConfig>,
    /// By class, the place it had before.
    places: Vec<Option<usize>>,
    /// Access lists that stay as they are: their place, and the place they had.
    lists: Vec<(usize, usize)>,
}

/// What became of what the plan before it remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// NAT's sessions, where its table was made anew.
    pub sessions: Option<NatMigration>,
}

impl RouterPlan {
    /// Prepares the plan of a configuration that is to follow the one that this plan was made from. `router` is the
    /// routing stage of both; `outlet` gets flow records. Allocates what is needed and changes nothing.
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
                let labeler = labeler(&new)?;
                behavior = Some(new);
                Some(Nat { labeler, stage: Arc::clone(&nat.stage) })
            }
            (Some(new), _, _) => Some(Nat::new(&new)?),
            (None, _, _) => None,
        };
        let mut plan = RouterPlan::with_nat(config, router, None, nat, self.hash_seed)?.for_workers(workers);
        if let (Some(flows), Some(outlet)) = (&config.flows, outlet) {
            let log_outlet = Arc::clone(&outlet);
            let metered = plan.with_flows(&flows.meter, self.hash_seed, outlet);
            plan = metered.map_err(|error| BuildError::Flows(error.to_string()))?;
            if let Some(logging) = flows.nat_events {
                plan = plan.with_nat_events(logging, log_outlet);
            }
        }
        let place = |name: &str| before.qos.classes.iter().position(|class| class.name == name);
        let places = config.qos.classes.iter().map(|class| place(&class.name)).collect();
        let same = |acl| before.acls.iter().position(|old| old == acl);
        let lists =
            config.acls.iter().enumerate().filter_map(|(place, acl)| Some((place, same(acl)?))).collect();
        Ok(NextPlan { plan, behavior, places, lists })
    }
}

impl NextPlan {
    /// Takes over from the plan before it, which no packet is with any more and none will be.
    pub fn migrate_state(self, before: &RouterPlan) -> (RouterPlan, Migrated) {
        let Self { mut plan, behavior, places, lists } = self;
        let mut taken = Migrated::default();
        plan.clock_ns.fetch_max(before.clock_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        {
            let (mut mine, mut theirs) = (plan.arrival.lock(), before.arrival.lock());
            mine.police.migrate_from(&theirs.police, &places);
            mine.fragments = std::mem::take(&mut theirs.fragments);
        }
        for (place, old) in lists {
            plan.rule_counts.lock().before.insert(place, before.rule_counts(old));
        }
        match (&plan.nat, &before.nat, behavior) {
            (Some(nat), _, Some(settings)) => nat.stage.set_behavior(&settings),
            (Some(nat), Some(old), None) => taken.sessions = Some(nat.stage.migrate_from(&old.stage)),
            (None, Some(_), _) => before.send_end_of_nat(),
            _ => {}
        }
        plan.check_sources_of_sessions();
        plan.migrate_flows(before);
        (plan, taken)
    }
}
