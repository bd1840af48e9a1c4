//! The firewall as the plan uses it: the table of states, which reloads keep, and the rules, which they replace.

use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_config::FirewallConfig as Settings;
use thalweg_dataplane::acl::{AclCells, AclCounts, AclError, RuleCount};
use thalweg_dataplane::firewall::{FirewallCounters, FirewallRules};
use thalweg_exec::Locks;

use super::RouterPlan;

/// The firewall with shards that several threads share.
pub type FirewallStage = thalweg_dataplane::firewall::FirewallStage<Locks>;

/// The firewall as the plan uses it.
#[derive(Debug)]
pub struct Firewall {
    /// The states; threads that list them share them.
    pub stage: Arc<FirewallStage>,
    pub rules: FirewallRules,
    /// The counters of every worker so far.
    workers: Mutex<Vec<Arc<AclCells>>>,
    /// The counts of the plan before this one, if the rules are unchanged.
    before: Vec<RuleCount>,
}

impl Firewall {
    /// A firewall with a table of its own, all memory allocated. `shards` are the plan's.
    pub fn new(config: &Settings, shards: u16, secret: u64) -> Result<Self, AclError> {
        let stage = Arc::new(FirewallStage::new(&config.firewall, shards, secret));
        Self::with_stage(config, stage, 0)
    }

    fn with_stage(config: &Settings, stage: Arc<FirewallStage>, generation: u16) -> Result<Self, AclError> {
        let rules = FirewallRules::compile(&config.firewall, generation)?;
        Ok(Self { stage, rules, workers: Mutex::default(), before: Vec::new() })
    }

    /// The firewall of the next plan: with this one's table if that fits, and with another generation of rules if
    /// they differ.
    pub(crate) fn successor(
        &self,
        before: &Settings,
        config: &Settings,
        shards: u16,
        secret: u64,
    ) -> Result<Self, AclError> {
        let is_same = before.firewall.decides_like(&config.firewall);
        let generation = self.rules.generation().wrapping_add(u16::from(!is_same));
        if self.stage.fits(&config.firewall, shards) {
            return Self::with_stage(config, Arc::clone(&self.stage), generation);
        }
        let stage = Arc::new(FirewallStage::new(&config.firewall, shards, secret));
        Self::with_stage(config, stage, generation)
    }

    /// Takes over a former plan's states and counts. No packet may be in that plan. Returns how many connections found
    /// no room.
    pub(super) fn take_over(&mut self, config: &Settings, old: &Self) -> u64 {
        if old.rules.generation() == self.rules.generation() {
            self.before = old.rule_counts();
        }
        if Arc::ptr_eq(&self.stage, &old.stage) {
            self.stage.set_behavior(&config.firewall);
            return 0;
        }
        self.stage.migrate_from(&old.stage)
    }

    pub(super) fn counts_of_worker(&self) -> AclCounts {
        let counts = self.rules.counts();
        self.workers.lock().push(counts.shared());
        counts
    }

    /// Packets and bytes by rule, and last those that the policy decided about, since the rules last changed. May be
    /// called while packets pass.
    pub fn rule_counts(&self) -> Vec<RuleCount> {
        let mut all = self.rules.counts();
        self.workers.lock().iter().for_each(|cells| all.merge(cells));
        let mut counts = all.all();
        for (rule, before) in counts.iter_mut().zip(&self.before) {
            rule.packets += before.packets;
            rule.bytes += before.bytes;
        }
        counts
    }
}

impl RouterPlan {
    /// The firewall, if configured.
    pub fn firewall(&self) -> Option<&Firewall> {
        self.firewall.as_ref()
    }

    /// The firewall's counters, after connections that have expired by the packet clock were removed. Do not call it
    /// while a model runs.
    pub fn firewall_counters(&self) -> Option<FirewallCounters> {
        let firewall = self.firewall.as_ref()?;
        firewall.stage.advance(self.clock_ns.load(std::sync::atomic::Ordering::Relaxed));
        Some(firewall.stage.counters())
    }
}
