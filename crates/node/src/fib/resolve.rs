//! The underlay: connected networks and routes of the configuration or the kernel, with which next hops are
//! resolved.
//!
//! The same routes decide which paths are eligible and which next hop is nearer ([`Underlay::next_hop_view`]).
//! Decisions look at nothing else: if they looked at BGP's own choices, a route could make its own next hop
//! reachable or unreachable, and the RIB might never settle.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::rib::NextHopView;

/// How many routes a next hop may be resolved through. Real networks need two: a BGP route over an internal one.
pub const DEPTH_MAX: usize = 8;

/// The target of a route that is not BGP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnderlayTarget {
    /// Hosts on this link have the addresses.
    Connected {
        /// The number of a port, or of the kernel's interface.
        link: u32,
    },
    Gateway {
        address: IpAddr,
        /// The gateway's link; without it, the gateway is resolved like a next hop.
        link: Option<u32>,
    },
    /// This router's own addresses.
    Local,
    /// Packets are dropped on purpose.
    Discard,
    /// The route says that there is no way.
    Unreachable,
}

/// A route that is not BGP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderlayRoute {
    pub prefix: IpPrefix,
    pub target: UnderlayTarget,
    /// Its cost; 0 for connected networks.
    pub metric: u32,
}

/// Connected networks and routes that are not BGP's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Underlay {
    routes: BTreeMap<IpPrefix, (UnderlayTarget, u32)>,
    /// Lengths that occur, longest first, by family.
    lengths: [Vec<u8>; 2],
    fallback: Option<u32>,
}

impl Underlay {
    /// Makes an underlay of these routes at cost 0. The last route for a prefix counts.
    pub fn new(routes: impl IntoIterator<Item = (IpPrefix, UnderlayTarget)>) -> Self {
        let route = |(prefix, target)| UnderlayRoute { prefix, target, metric: 0 };
        Self::with_metrics(routes.into_iter().map(route))
    }

    /// Makes an underlay of these routes. The route with the lowest metric counts for a prefix, of equal ones the
    /// last.
    pub fn with_metrics(all: impl IntoIterator<Item = UnderlayRoute>) -> Self {
        let mut routes: BTreeMap<_, (UnderlayTarget, u32)> = BTreeMap::new();
        for UnderlayRoute { prefix, target, metric } in all {
            let kept = routes.entry(prefix).or_insert((target, metric));
            if metric <= kept.1 {
                *kept = (target, metric);
            }
        }
        let mut lengths = [Vec::new(), Vec::new()];
        for prefix in routes.keys() {
            lengths[usize::from(matches!(prefix, IpPrefix::V6(_)))].push(prefix.length());
        }
        for each in &mut lengths {
            each.sort_unstable_by(|a, b| b.cmp(a));
            each.dedup();
        }
        Self { routes, lengths, fallback: None }
    }

    /// An underlay in which every next hop is a neighbor on one link: for laboratories without interfaces.
    pub fn everything_on(link: u32) -> Self {
        Self { fallback: Some(link), ..Self::default() }
    }

    /// The link of next hops that no route covers.
    pub(super) fn fallback(&self) -> Option<u32> {
        self.fallback
    }

    /// Which next hops these routes reach, and at what cost: the longest match decides, if it leads to a neighbor
    /// or a discard. Gateways without a link are resolved in turn.
    pub fn next_hop_view(&self) -> NextHopView {
        let fallback = everywhere().map(|all| (all, Some(0))).filter(|_| self.fallback.is_some());
        let routes = self.routes.iter();
        let answers =
            routes.map(|(prefix, (target, metric))| (*prefix, self.leads(*target).then_some(*metric)));
        NextHopView::new(fallback.chain(answers))
    }

    /// Changes the targets of existing routes and keeps their costs.
    pub(super) fn lead(&mut self, moved: &[(IpPrefix, UnderlayTarget)]) {
        for (prefix, target) in moved {
            if let Some((known, _)) = self.routes.get_mut(prefix) {
                *known = *target;
            }
        }
    }

    /// A view in which everything is reachable at no cost, except what is known to be dead: the target of the
    /// longest match is not alive, or the address is a silent neighbor (link, address). The default view, which
    /// checks nothing, if nothing is dead.
    pub fn view_of_life(
        &self,
        is_alive: impl Fn(UnderlayTarget) -> bool,
        silent: impl IntoIterator<Item = (u32, IpAddr)>,
    ) -> NextHopView {
        let lives = |target: UnderlayTarget| self.follow(target).is_none_or(&is_alive).then_some(0);
        let mut answers: Vec<_> =
            self.routes.iter().map(|(prefix, (target, _))| (*prefix, lives(*target))).collect();
        let is_neighbor = |(link, address): &(u32, IpAddr)| {
            let near = self.longest(*address).map(|(_, target)| target);
            near == Some(UnderlayTarget::Connected { link: *link })
        };
        let hosts = silent.into_iter().filter(is_neighbor);
        answers.extend(hosts.map(|(_, address)| (IpPrefix::host(address), None)));
        if answers.iter().all(|(_, answer)| answer.is_some()) {
            return NextHopView::default();
        }
        NextHopView::new(everywhere().map(|all| (all, Some(0))).chain(answers))
    }

    /// The final target of a route: gateways without a link are resolved.
    fn follow(&self, mut target: UnderlayTarget) -> Option<UnderlayTarget> {
        for _ in 0..DEPTH_MAX {
            let UnderlayTarget::Gateway { address, link: None } = target else { return Some(target) };
            target = match self.longest(address)? {
                (_, UnderlayTarget::Connected { link }) => {
                    UnderlayTarget::Gateway { address, link: Some(link) }
                }
                (_, next) => next,
            };
        }
        None
    }

    /// Whether a target leads to a neighbor or to a discard.
    fn leads(&self, mut target: UnderlayTarget) -> bool {
        // An outlet counts the next hop itself as the first address.
        for _ in 1..=DEPTH_MAX {
            let gateway = match target {
                UnderlayTarget::Connected { .. }
                | UnderlayTarget::Gateway { link: Some(_), .. }
                | UnderlayTarget::Discard => return true,
                UnderlayTarget::Local | UnderlayTarget::Unreachable => return false,
                UnderlayTarget::Gateway { address, link: None } => address,
            };
            match self.longest(gateway) {
                Some((_, next)) => target = next,
                None => return self.fallback.is_some(),
            }
        }
        false
    }

    /// The length and target of the longest match.
    pub(super) fn longest(&self, address: IpAddr) -> Option<(u8, UnderlayTarget)> {
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        lengths.iter().find_map(|length| {
            let prefix = match address {
                IpAddr::V4(address) => Prefix::new(u32::from(address), *length).ok()?.into(),
                IpAddr::V6(address) => Prefix::new(u128::from(address), *length).ok()?.into(),
            };
            self.routes.get(&prefix).map(|(target, _)| (*length, *target))
        })
    }
}

/// The default prefixes of both families.
fn everywhere() -> impl Iterator<Item = IpPrefix> {
    let all = [Prefix::<u32>::new(0, 0).map(IpPrefix::V4), Prefix::<u128>::new(0, 0).map(IpPrefix::V6)];
    all.into_iter().flatten()
}
