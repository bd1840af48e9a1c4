//! Routing rules as the plan uses them, and the counters of all rules that are in no access list.

use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_base::Batch;
use thalweg_config::RouterConfig;
use thalweg_dataplane::acl::{AclCells, AclCounts, AclError, RuleCount};
use thalweg_dataplane::routing_rules::RoutingRules;

use super::{RouterPlan, Scratch};

/// The routing rules with their counters.
#[derive(Debug, Default)]
pub struct WayRules {
    rules: RoutingRules,
    tally: RuleTally,
}

/// What rules have counted.
#[derive(Debug, Default)]
pub(super) struct RuleTally {
    /// The counters of every worker so far.
    workers: Mutex<Vec<Arc<AclCells>>>,
    /// The counts of the plan before this one, if the rules are unchanged.
    before: Vec<RuleCount>,
}

impl RuleTally {
    /// Includes a worker's counters, and returns them.
    pub(super) fn with(&self, counts: AclCounts) -> AclCounts {
        self.workers.lock().push(counts.shared());
        counts
    }

    /// Goes on with the counts of these rules in a former plan.
    pub(super) fn go_on_from(&mut self, before: Vec<RuleCount>) {
        self.before = before;
    }

    /// All counts, added to counters of these rules. May be called while packets pass.
    pub(super) fn sum(&self, mut all: AclCounts) -> Vec<RuleCount> {
        self.workers.lock().iter().for_each(|cells| all.merge(cells));
        let mut counts = all.all();
        for (rule, before) in counts.iter_mut().zip(&self.before) {
            rule.packets += before.packets;
            rule.bytes += before.bytes;
        }
        counts
    }
}

/// A rule of the firewall or of routing, and what it matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedRule {
    /// `[firewall]` or `[routing]`.
    pub list: &'static str,
    pub rule: String,
    pub action: &'static str,
    pub count: RuleCount,
}

impl WayRules {
    /// The rules of a configuration.
    pub(crate) fn of(config: &RouterConfig) -> Result<Self, AclError> {
        let ports = u16::try_from(config.ports.len()).unwrap_or(u16::MAX);
        Ok(Self { rules: RoutingRules::compile(&config.routing.rules, ports)?, ..Self::default() })
    }

    /// Whether there is no rule.
    #[inline(always)]
    pub(super) fn are_none(&self) -> bool {
        self.rules.are_none()
    }

    pub(super) fn counts_of_worker(&self) -> AclCounts {
        self.tally.with(self.rules.counts())
    }

    /// Goes on with the counts of these rules in a former plan.
    pub(super) fn take_over(&mut self, old: &Self) {
        self.tally.go_on_from(old.counts());
    }

    /// Packets and bytes by rule, since the rules last changed.
    fn counts(&self) -> Vec<RuleCount> {
        self.tally.sum(self.rules.counts())
    }
}

impl RouterPlan {
    /// Matches of each access-list rule in force, summed over all workers.
    pub fn acl_counts<'a>(&self, scratches: impl Iterator<Item = &'a Scratch>) -> AclCounts {
        let mut all = AclCounts::new(&self.filters.acls);
        scratches.for_each(|s| all.merge(&s.acl.shared()));
        all
    }

    /// Matches of a list's rules and, last, of its default, since the list was last changed. May be called while
    /// packets pass.
    pub fn rule_counts(&self, list: usize) -> Vec<RuleCount> {
        let filters = &self.filters;
        let mut all = AclCounts::new(&filters.acls);
        let counts = self.rule_counts.lock();
        counts.workers.iter().for_each(|cells| all.merge(cells));
        let mut rules = filters.acls.counts_of(list, &all);
        for (rule, before) in rules.iter_mut().zip(counts.before.get(&list).into_iter().flatten()) {
            rule.packets += before.packets;
            rule.bytes += before.bytes;
        }
        rules
    }

    /// Chooses the ways of packets that a routing rule matches.
    pub(super) fn choose_ways(&self, batch: &mut Batch<'_>, counts: &AclCounts) {
        self.way_rules.rules.process(&self.router, batch, counts);
    }

    /// The place of the routing rule that matches the only packet of a batch, which is sent its way.
    pub(super) fn trace_rule(&self, batch: &mut Batch<'_>) -> Option<usize> {
        let counts = self.way_rules.rules.counts();
        self.choose_ways(batch, &counts);
        counts.all().iter().position(|count| count.packets > 0)
    }

    /// What the rules of routing and of the firewall have matched, and what the firewall's policy has decided about.
    pub fn counted_rules(&self, config: &RouterConfig) -> Vec<CountedRule> {
        let routing = config.routing.rule_names.iter().zip(self.way_rules.counts());
        let mut counted: Vec<CountedRule> = routing
            .map(|(name, count)| CountedRule {
                list: "[routing]",
                rule: name.clone(),
                action: "choose",
                count,
            })
            .collect();
        if let (Some(config), Some(firewall)) = (&config.firewall, self.firewall()) {
            counted.extend((0u16..).zip(firewall.rule_counts()).map(|(rule, count)| {
                let action = config.firewall.rules.get(usize::from(rule)).map(|rule| rule.rule.action.name());
                let action = action.unwrap_or(config.firewall.policy.name());
                CountedRule { list: "[firewall]", rule: config.rule_name(rule).to_owned(), action, count }
            }));
        }
        counted
    }
}
