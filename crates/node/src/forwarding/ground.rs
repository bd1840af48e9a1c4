//! What link and neighbor failures mean for routes: which path of a route is in use, and which next hops BGP may
//! choose.
//!
//! Packets do not wait for this: the tables leave dead paths by themselves ([`crate::live_tables`]). This is the
//! slower half: BGP's next hops resolve through the path in use, the kernel gets it too, and the decision process
//! learns which next hops are dead, so that the RIB chooses other paths and informs neighbors.

use std::collections::HashMap;

use thalweg_base::{IpPrefix, Prefix};

use crate::fib::{Underlay, UnderlayTarget};
use crate::live_tables::LiveTables;
use thalweg_config::{NextHop, RouteTarget, RouterConfig};

/// The link of next hops in a configuration without ports.
const NO_LINK: u32 = 0;

/// Configured routes with more than one path, and those of them that do not use the first.
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    routes: Vec<(IpPrefix, Vec<UnderlayTarget>)>,
    others: HashMap<IpPrefix, UnderlayTarget>,
}

impl Alternatives {
    pub(super) fn new(routes: Vec<(IpPrefix, Vec<UnderlayTarget>)>) -> Self {
        Self { routes, others: HashMap::new() }
    }

    /// Chooses again; returns the routes whose path changed.
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

    /// The present target of a route whose configured target is given.
    pub(super) fn now(&self, (prefix, target): (IpPrefix, UnderlayTarget)) -> (IpPrefix, UnderlayTarget) {
        (prefix, self.others.get(&prefix).copied().unwrap_or(target))
    }
}

/// The routes of a configuration that have several paths, preferred ones first.
pub(super) fn alternatives_of(config: &RouterConfig) -> Vec<(IpPrefix, Vec<UnderlayTarget>)> {
    let routes = routes_with(config, |target| {
        let ways: Vec<_> = target.tiers().iter().flat_map(underlay_targets).collect();
        (ways.len() > 1).then_some(ways)
    });
    routes.collect()
}

/// Each path of a target, which may not be ranked.
pub(super) fn underlay_targets(target: &RouteTarget) -> Vec<UnderlayTarget> {
    let way = |way: &NextHop| match way.gateway {
        Some(address) => UnderlayTarget::Gateway { address, link: Some(way.port.into()) },
        None => UnderlayTarget::Connected { link: way.port.into() },
    };
    match target {
        RouteTarget::Local(_) => vec![UnderlayTarget::Local],
        RouteTarget::Forward(ways) => ways.iter().map(way).collect(),
        RouteTarget::Blackhole => vec![UnderlayTarget::Discard],
        // What leaks is no way of the main table: BGP's next hops are not sought there, and the kernel has no such port.
        RouteTarget::Unreachable | RouteTarget::Table(_) => vec![UnderlayTarget::Unreachable],
        RouteTarget::Ranked(_) | RouteTarget::Routes => Vec::new(),
    }
}

/// Whether a path is not known to be dead.
pub(super) fn is_alive(tables: &LiveTables, target: UnderlayTarget) -> bool {
    let lives = |link: u32, neighbor| u16::try_from(link).is_ok_and(|port| !tables.is_dead(port, neighbor));
    match target {
        UnderlayTarget::Connected { link } => lives(link, None),
        UnderlayTarget::Gateway { address, link: Some(link) } => lives(link, Some(address)),
        UnderlayTarget::Gateway { link: None, .. } | UnderlayTarget::Local => true,
        UnderlayTarget::Discard | UnderlayTarget::Unreachable => true,
    }
}

/// The underlay of a configuration: the networks of its ports and its routes. Without ports, every next hop is a
/// neighbor.
pub(super) fn underlay_of(config: &RouterConfig) -> Underlay {
    if config.ports.is_empty() {
        return Underlay::everything_on(NO_LINK);
    }
    Underlay::new(routes_of(config))
}

/// The routes of a configuration. Of several paths it gives the first preferred one, because a BGP next hop has
/// one.
pub(super) fn routes_of(config: &RouterConfig) -> impl Iterator<Item = (IpPrefix, UnderlayTarget)> + '_ {
    routes_with(config, |target| underlay_targets(target.preferred()).into_iter().next())
}

/// The prefixes of a configuration, each with what `make` makes of its target, if anything.
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
    // There are many prefixes and few targets.
    let made: Vec<Option<T>> = config.routing.targets.iter().map(make).collect();
    v4.chain(v6).filter_map(move |(prefix, index)| Some((prefix, made.get(index as usize)?.clone()?)))
}
