//! The table of routes while sections and files are read.

use std::collections::HashMap;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use thalweg_dataplane::gateway_check::CheckConfig;
use thalweg_dataplane::routing_rules::RoutingRule;

use crate::types::{RouteSources, RouteTarget, RoutingConfig, TargetIndex, VrfConfig, VrfIndex};

/// The most routes in all files: eight times the Internet's table of 2026, and 200 MB of memory.
pub(crate) const ROUTES_MAX: usize = 1 << 23;

/// The table under construction: routes in order of precedence, the best last.
#[derive(Default)]
pub(crate) struct RouteTable {
    pub(crate) v4: Vec<(Ipv4Net, TargetIndex)>,
    pub(crate) v6: Vec<(Ipv6Net, TargetIndex)>,
    vrfs: Vec<VrfConfig>,
    targets: Vec<RouteTarget>,
    index: HashMap<RouteTarget, TargetIndex>,
}

impl RouteTable {
    /// A table for each of these VRFs, the main one first.
    pub(crate) fn of(vrfs: &[String]) -> Self {
        let others = vrfs.iter().skip(1).map(|name| VrfConfig { name: name.clone(), ..VrfConfig::default() });
        Self { vrfs: others.collect(), ..Self::default() }
    }

    /// The index of a target; equal targets share one.
    pub(crate) fn target(&mut self, target: RouteTarget) -> TargetIndex {
        if let Some(index) = self.index.get(&target) {
            return *index;
        }
        let index = self.targets.len() as TargetIndex;
        self.targets.push(target.clone());
        self.index.insert(target, index);
        index
    }

    pub(crate) fn push(&mut self, vrf: VrfIndex, prefix: IpNet, target: RouteTarget) {
        let target = self.target(target);
        let other = usize::from(vrf).checked_sub(1).and_then(|place| self.vrfs.get_mut(place));
        let (v4, v6) = match other {
            Some(other) => (&mut other.v4, &mut other.v6),
            None => (&mut self.v4, &mut self.v6),
        };
        match prefix {
            IpNet::V4(net) => v4.push((net, target)),
            IpNet::V6(net) => v6.push((net, target)),
        }
    }

    /// The routes of all tables.
    pub(crate) fn len(&self) -> usize {
        let of_vrfs = self.vrfs.iter().map(|vrf| vrf.v4.len() + vrf.v6.len());
        self.v4.len() + self.v6.len() + of_vrfs.sum::<usize>()
    }

    /// Sorts, keeps the last of equal prefixes, and drops targets that are no longer used.
    pub(crate) fn finish(
        mut self,
        checks: Vec<CheckConfig>,
        mut sources: RouteSources,
        (mut rules, rule_names): (Vec<RoutingRule>, Vec<String>),
    ) -> RoutingConfig {
        let before = self.len();
        let of_vrfs = self.vrfs.iter_mut().map(|vrf| (&mut vrf.v4, &mut vrf.v6));
        for (v4, v6) in std::iter::once((&mut self.v4, &mut self.v6)).chain(of_vrfs) {
            keep_last(v4, |net| (u32::from(net.addr()), net.prefix_len()));
            keep_last(v6, |net| (u128::from(net.addr()), net.prefix_len()));
        }
        sources.replaced = before - self.len();
        let mut renumbered: Vec<Option<TargetIndex>> = vec![None; self.targets.len()];
        let mut targets = Vec::new();
        let of_vrfs = self.vrfs.iter_mut().map(|vrf| (&mut vrf.v4, &mut vrf.v6));
        let all = std::iter::once((&mut self.v4, &mut self.v6)).chain(of_vrfs);
        let all = all.flat_map(|(v4, v6)| v4.iter_mut().map(|(_, t)| t).chain(v6.iter_mut().map(|(_, t)| t)));
        for target in all.chain(rules.iter_mut().map(|rule| &mut rule.target)) {
            let old = *target as usize;
            *target = *renumbered[old].get_or_insert_with(|| {
                targets.push(self.targets[old].clone());
                (targets.len() - 1) as TargetIndex
            });
        }
        RoutingConfig {
            v4: self.v4,
            v6: self.v6,
            vrfs: self.vrfs,
            targets,
            outsides: Vec::new(),
            rules,
            rule_names,
            checks,
            sources,
        }
    }
}

/// Stable, so the last of equals is the one pushed last.
fn keep_last<N: Copy, K: Ord>(routes: &mut Vec<(N, TargetIndex)>, key: impl Fn(&N) -> K) {
    routes.sort_by_key(|(net, _)| key(net));
    routes.reverse();
    routes.dedup_by_key(|(net, _)| key(net));
    routes.reverse();
}
