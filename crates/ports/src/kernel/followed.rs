//! Follows others' routes of the main table: reads them once, applies the kernel's notifications, and reads
//! everything again where these do not suffice.
//!
//! ```text
//!            read_all ──┐
//! RTM_NEWROUTE ─────────┼──> by prefix: paths by metric ──> ranked: the lowest metric first
//! RTM_DELROUTE ─────────┘                   └── which prefixes changed
//! ```
//!
//! The kernel sends no notification for IPv4 routes that it drops with a link or an address, and
//! notifications are lost if they arrive faster than they are read (`ENOBUFS`). In both cases [`Heard`] says
//! that everything must be read again. [`FollowedRoutes::read_all`] returns the prefixes that changed without
//! a notification, which the caller counts.
//!
//! Notifications that arrive during a full read are applied after it, in order. So the result is correct in
//! the end, but a prefix may be reported as changed back and forth.
//!
//! A prefix takes about 100 bytes. Missing: tables other than main; routes by type of service; all but the
//! first of several IPv4 routes with one prefix and metric (`ip route append`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use thalweg_base::IpPrefix;

use super::error::KernelError;
use super::message::MessageWriter;
use super::route::{self, FoundRoute, RouteTarget};
use super::socket::Netlink;

/// A call of [`FollowedRoutes::hear`] stops after this many messages.
const MESSAGES_PER_TURN: usize = 1 << 16;

/// What one call of [`FollowedRoutes::hear`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Notifications about routes.
    pub routes: u64,
    /// Links or addresses changed: the kernel may have dropped routes without notification.
    pub links: bool,
    /// Notifications were lost.
    pub overrun: bool,
    /// More notifications may be waiting.
    pub more: bool,
}

/// A route's metric and paths; each distinct set of paths has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    metric: u32,
    ways: u32,
}

/// The routes of a prefix, nearly always one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Routes {
    One(Route),
    Several(Box<[Route]>),
}

impl Routes {
    fn all(&self) -> &[Route] {
        match self {
            Self::One(route) => std::slice::from_ref(route),
            Self::Several(routes) => routes,
        }
    }

    fn of(mut routes: Vec<Route>) -> Option<Self> {
        routes.sort_by_key(|route| route.metric);
        match routes[..] {
            [] => None,
            [one] => Some(Self::One(one)),
            _ => Some(Self::Several(routes.into())),
        }
    }
}

/// The known routes, without a socket.
#[derive(Debug, Default)]
struct Known {
    routes: HashMap<IpPrefix, Routes>,
    /// Distinct sets of paths; there are few.
    ways: Vec<Vec<RouteTarget>>,
    numbers: HashMap<Vec<RouteTarget>, u32>,
}

impl Known {
    fn number(&mut self, ways: Vec<RouteTarget>) -> u32 {
        let next = self.ways.len() as u32;
        match self.numbers.entry(ways) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.ways.push(entry.key().clone());
                *entry.insert(next)
            }
        }
    }

    fn ranked(&self, prefix: IpPrefix) -> impl Iterator<Item = &[RouteTarget]> {
        let routes = self.routes.get(&prefix).map(Routes::all).unwrap_or_default();
        routes.iter().filter_map(|route| self.ways.get(route.ways as usize).map(Vec::as_slice))
    }

    /// Adds a route. One that `appends` to an IPv4 route with its metric is used only when that one is
    /// removed.
    fn set(&mut self, prefix: IpPrefix, metric: u32, ways: Vec<RouteTarget>, appends: bool) {
        let ways = self.number(ways);
        let route = Route { metric, ways };
        match self.routes.entry(prefix) {
            Entry::Vacant(entry) => {
                entry.insert(Routes::One(route));
            }
            Entry::Occupied(mut entry) => {
                let mut all = entry.get().all().to_vec();
                match all.iter_mut().find(|each| each.metric == metric) {
                    Some(_) if appends && matches!(prefix, IpPrefix::V4(_)) => {}
                    Some(same) => *same = route,
                    None => all.push(route),
                }
                if let Some(routes) = Routes::of(all) {
                    entry.insert(routes);
                }
            }
        }
    }

    /// Removes a route, or some of its paths.
    fn remove(&mut self, prefix: IpPrefix, metric: u32, gone: &[RouteTarget]) {
        let Some(routes) = self.routes.get(&prefix) else { return };
        let mut all = routes.all().to_vec();
        let Some(at) = all.iter().position(|each| each.metric == metric) else { return };
        let had = self.ways.get(all[at].ways as usize).cloned().unwrap_or_default();
        let left: Vec<_> = had.into_iter().filter(|way| !gone.contains(way)).collect();
        if gone.is_empty() || left.is_empty() {
            all.remove(at);
        } else {
            all[at].ways = self.number(left);
        }
        match Routes::of(all) {
            Some(routes) => self.routes.insert(prefix, routes),
            None => self.routes.remove(&prefix),
        };
    }
}

/// Follows routes; see the module documentation.
#[derive(Debug)]
pub struct FollowedRoutes {
    news: Netlink,
    own_protocol: u8,
    known: Known,
}

impl FollowedRoutes {
    /// Subscribes to notifications; nothing is known before [`Self::read_all`]. Routes of `own_protocol` are
    /// ignored.
    pub fn open(own_protocol: u8) -> Result<Self, KernelError> {
        let followed = Self::open_for_links(own_protocol)?;
        for group in [libc::RTNLGRP_IPV4_ROUTE, libc::RTNLGRP_IPV6_ROUTE] {
            followed.news.join(group)?;
        }
        Ok(followed)
    }

    /// [`Self::open`] with notifications about links and addresses only.
    pub fn open_for_links(own_protocol: u8) -> Result<Self, KernelError> {
        let news = Netlink::open()?;
        news.set_nonblocking()?;
        for group in [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR] {
            news.join(group)?;
        }
        Ok(Self { news, own_protocol, known: Known::default() })
    }

    /// Reads all routes and appends the prefixes that differ from what was known. Returns whether the tables
    /// changed meanwhile.
    pub fn read_all(&mut self, changed: &mut Vec<IpPrefix>) -> Result<bool, KernelError> {
        let mut now = Known::default();
        let mut interrupted = false;
        // A separate socket, because the one for notifications does not block.
        let mut netlink = Netlink::open()?;
        let mut writer = MessageWriter::default();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let sequence = netlink.sequences(1);
            writer.clear();
            route::write_dump(&mut writer, sequence, family, libc::RT_TABLE_MAIN.into(), 0);
            interrupted |= netlink.dump("its routes", &writer, sequence, |message| {
                if let Some((found, ways)) = self.of_others(route::parse_ways(&message)) {
                    // The first of several IPv4 routes with one metric is the one in use.
                    now.set(found.prefix, found.metric, ways, true);
                }
            })?;
        }
        let before = std::mem::replace(&mut self.known, now);
        let differs = |prefix: &&IpPrefix| !before.ranked(**prefix).eq(self.known.ranked(**prefix));
        changed.extend(self.known.routes.keys().filter(differs));
        changed.extend(before.routes.keys().filter(|prefix| !self.known.routes.contains_key(prefix)));
        Ok(interrupted)
    }

    /// Processes waiting notifications and appends the prefixes that they concern.
    pub fn hear(&mut self, changed: &mut Vec<IpPrefix>) -> Result<Heard, KernelError> {
        let mut heard = Heard::default();
        let mut messages = 0;
        while messages < MESSAGES_PER_TURN {
            let mut news = Vec::new();
            match self.news.events() {
                Ok(Some(events)) => {
                    for message in events {
                        messages += 1;
                        match message.kind {
                            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                                let appends = message.flags & libc::NLM_F_APPEND as u16 != 0;
                                news.push((message.kind, appends, route::parse_ways(&message)));
                            }
                            _ => heard.links = true,
                        }
                    }
                }
                Ok(None) => return Ok(heard),
                Err(KernelError::Overrun) => heard.overrun = true,
                Err(error) => return Err(error),
            }
            for (kind, appends, ways) in news {
                let Some((found, ways)) = self.of_others(ways) else { continue };
                heard.routes += 1;
                match kind {
                    libc::RTM_NEWROUTE => self.known.set(found.prefix, found.metric, ways, appends),
                    _ => self.known.remove(found.prefix, found.metric, &ways),
                }
                changed.push(found.prefix);
            }
        }
        heard.more = true;
        Ok(heard)
    }

    /// The paths of a prefix's routes, lowest metric first; each item has one path or several.
    pub fn ranked(&self, prefix: IpPrefix) -> impl Iterator<Item = &[RouteTarget]> {
        self.known.ranked(prefix)
    }

    /// All prefixes with a route.
    pub fn prefixes(&self) -> impl ExactSizeIterator<Item = IpPrefix> + '_ {
        self.known.routes.keys().copied()
    }

    /// The paths of a route that is another program's and in the main table.
    fn of_others(&self, ways: Vec<FoundRoute>) -> Option<(FoundRoute, Vec<RouteTarget>)> {
        let found = *ways.first()?;
        let is_others = found.protocol != self.own_protocol && found.table == u32::from(libc::RT_TABLE_MAIN);
        is_others.then(|| (found, ways.iter().filter_map(|way| way.target).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn gateway(number: u8) -> RouteTarget {
        RouteTarget::Gateway { address: [10, 0, 0, number].into(), interface: Some(3) }
    }

    proptest! {
        /// News leave what a plain map of all routes has.
        #[test]
        fn news_add_up(steps in prop::collection::vec((0u8..3, 0u32..3, prop::option::of(1u8..4)), 0..60)) {
            let prefixes: Vec<IpPrefix> =
                ["10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32"].map(|text| text.parse().unwrap()).into();
            let (mut known, mut plain) = (Known::default(), BTreeMap::new());
            for (prefix, metric, way) in steps {
                let place = (prefix, metric);
                match way {
                    Some(number) => {
                        known.set(prefixes[usize::from(prefix)], metric, vec![gateway(number)], false);
                        plain.insert(place, number);
                    }
                    None => {
                        let gone: Vec<_> = plain.remove(&place).into_iter().map(gateway).collect();
                        known.remove(prefixes[usize::from(prefix)], metric, &gone);
                    }
                }
                for (number, prefix) in (0..).zip(&prefixes) {
                    let best = plain.range((number, 0)..(number + 1, 0)).next().map(|(_, way)| gateway(*way));
                    prop_assert_eq!(known.ranked(*prefix).next(), best.as_ref().map(std::slice::from_ref));
                }
            }
        }
    }

    #[test]
    fn a_way_of_several_goes_alone() {
        let prefix: IpPrefix = "2001:db8::/32".parse().unwrap();
        let mut known = Known::default();
        known.set(prefix, 1024, vec![gateway(1), gateway(2)], false);
        known.set(prefix, 2048, vec![gateway(3)], false);
        known.remove(prefix, 1024, &[gateway(1)]);
        assert_eq!(known.ranked(prefix).next(), Some(&[gateway(2)][..]));
        known.remove(prefix, 1024, &[gateway(2)]);
        assert_eq!(known.ranked(prefix).next(), Some(&[gateway(3)][..]));
        known.remove(prefix, 2048, &[]);
        assert_eq!((known.ranked(prefix).next(), known.routes.len()), (None, 0));
    }

    #[test]
    fn an_ipv4_route_that_is_appended_stays_behind() {
        let prefix: IpPrefix = "10.0.0.0/8".parse().unwrap();
        let mut known = Known::default();
        known.set(prefix, 0, vec![gateway(1)], false);
        known.set(prefix, 0, vec![gateway(2)], true);
        assert_eq!(known.ranked(prefix).next(), Some(&[gateway(1)][..]));
    }
}
