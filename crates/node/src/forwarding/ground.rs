//! What link and neighbor failures mean for routes: which way of a route counts, and which next hops BGP may choose.
//!
//! Packets do not wait for any of this: the tables leave dead ways by themselves ([`crate::live_tables`]). Here the slower half
//! follows: next hops of BGP resolve through the path that is in use, the kernel is told of it, and decisions learn which next
//! hops are dead, so that the RIB chooses other paths and tells neighbors.

use std::collections::HashMap;

use thalweg_base::{IpPrefix, Prefix};

use crate::fib::{Underlay, UnderlayTarget};
use crate::live_tables::LiveTables;
use thalweg_config::{NextHop, RouteTarget, RouterConfig};

/// The link of next hops where a configuration has no ports.
const NO_LINK: u32 = 0;

/// Configured routes that have more than one way, and those of them that go another than the first.
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    routes: Vec<(IpPrefix, Vec<UnderlayTarget>)>,
    others: HashMap<IpPrefix, UnderlayTarget>,
}

impl Alternatives {
    /// Of these routes.
    pub(super) fn new(routes: Vec<(IpPrefix, Vec<UnderlayTarget>)>) -> Self {
        Self { routes, others: HashMap::new() }
    }

    /// Chooses again; routes that lead elsewhere than before.
    pub(super) fn choose(&mut self, tables: &LiveTables) -> Vec<(IpPrefix, UnderlayTarget)> {
        let mut moved = Vec::new();
        for (prefix, ways) in &self.routes {
            let Some(first) = ways.first().copied() else { continue };
            let alive = ways.iter().copied().find(|way| is_alive(tables, *way));
            let now = alive.unwrap_or(first);
            let before = match now == first {
                true => self.others.remove(prefix),
                false => self.others.insert(*prefix, now),
            };
            if before.unwrap_or(first) != now {
                moved.push((*prefix, now));
            }
        }
        moved
    }

    /// Where a route leads now that the configuration has lead there.
    pub(super) fn now(&self, (prefix, target): (IpPrefix, UnderlayTarget)) -> (IpPrefix, UnderlayTarget) {
        (prefix, self.others.get(&prefix).copied().unwrap_or(target))
    }
}

/// The routes of a configuration that have several ways, preferred ones first.
pub(super) fn alternatives_of(config: &RouterConfig) -> Vec<(IpPrefix, Vec<UnderlayTarget>)> {
    let routes = routes_with(config, |target| {
        let ways: Vec<_> = target.tiers().iter().flat_map(underlay_targets).collect();
        (ways.len() > 1).then_some(ways)
    });
    routes.collect()
}

/// Each way of a target that is not ranked.
pub(super) fn underlay_targets(target: &RouteTarget) -> Vec<UnderlayTarget> {
    let way = |way: &NextHop| match way.gateway {
        Some(address) => UnderlayTarget::Gateway { address, link: Some(way.port.into()) },
        None => UnderlayTarget::Connected { link: way.port.into() },
    };
    match target {
        RouteTarget::Local(_) => vec![UnderlayTarget::Local],
        RouteTarget::Forward(ways) => ways.iter().map(way).collect(),
        RouteTarget::Blackhole => vec![UnderlayTarget::Discard],
        RouteTarget::Unreachable => vec![UnderlayTarget::Unreachable],
        RouteTarget::Ranked(_) => Vec::new(),
    }
}

/// Whether a way is not known to be dead.
pub(super) fn is_alive(tables: &LiveTables, target: UnderlayTarget) -> bool {
    let lives = |link: u32, neighbor| u16::try_from(link).is_ok_and(|port| !tables.is_dead(port, neighbor));
    match target {
        UnderlayTarget::Connected { link } => lives(link, None),
        UnderlayTarget::Gateway { address, link: Some(link) } => lives(link, Some(address)),
        UnderlayTarget::Gateway { link: None, .. } | UnderlayTarget::Local => true,
        UnderlayTarget::Discard | UnderlayTarget::Unreachable => true,
    }
}

/// What next hops resolve with: the ports' networks and configured routes, or, where there are no ports, nothing:
/// every next hop is a neighbor then.
pub(super) fn underlay_of(config: &RouterConfig) -> Underlay {
    if config.ports.is_empty() {
        return Underlay::everything_on(NO_LINK);
    }
    Underlay::new(routes_of(config))
}

/// The routes of a configuration; of several ways the preferred and first, because a BGP next hop has one.
pub(super) fn routes_of(config: &RouterConfig) -> impl Iterator<Item = (IpPrefix, UnderlayTarget)> + '_ {
    routes_with(config, |target| underlay_targets(target.preferred()).into_iter().next())
}

/// The prefixes of a configuration with what is made of their targets, where something is.
fn routes_with<'c, T: Clone + 'c>(
    config: &'c RouterConfig,
    make: impl Fn(&RouteTarget) -> Option<T>,
) -> impl Iterator<Item = (IpPrefix, T)> + 'c {
    let v4 = config.routing.v4.iter().filter_map(|(net, target)| {
        let prefix = Prefix::new(u32::from(net.network()), net.prefix_len()).ok()?;
        Some((IpPrefix::from(prefix), *target))
    });
    let v6 = config.routing.v6.iter().filter_map(|(net, target)| {
        let prefix = Prefix::new(u128::from(net.network()), net.prefix_len()).ok()?;
        Some((IpPrefix::from(prefix), *target))
    });
    // Prefixes are many, targets few.
    let made: Vec<Option<T>> = config.routing.targets.iter().map(make).collect();
    v4.chain(v6).filter_map(move |(prefix, index)| Some((prefix, made.get(index as usize)?.clone()?)))
}
