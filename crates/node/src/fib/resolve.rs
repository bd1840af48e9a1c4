//! What next hops are resolved with besides BGP: connected networks and routes of the configuration or the kernel.
//!
//! The same routes say which paths may be chosen at all and which next hop is nearer
//! ([`Underlay::next_hop_view`]). Decisions look at nothing else. If they looked at what BGP chose, a route could make
//! its own next hop reachable or take its reachability away, and no end of that.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::rib::NextHopView;

/// How often a next hop may be resolved by another route. Real networks need two: a BGP route over an internal one.
pub const DEPTH_MAX: usize = 8;

/// What becomes of packets for a route that is not BGP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnderlayTarget {
    /// Neighbors on this link have the addresses.
    Connected {
        /// The number of a port, or of the kernel's interface.
        link: u32,
    },
    /// A neighbor passes them on.
    Gateway {
        /// The neighbor.
        address: IpAddr,
        /// The link it is on; if not given, it is resolved like a next hop.
        link: Option<u32>,
    },
    /// The addresses are this router's own.
    Local,
    /// They are dropped, as somebody wanted.
    Discard,
    /// There is no way to them, says the route.
    Unreachable,
}

/// A route that is not BGP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderlayRoute {
    /// Where to.
    pub prefix: IpPrefix,
    pub target: UnderlayTarget,
    /// What that costs; 0 for connected networks.
    pub metric: u32,
}

/// Connected networks and routes that are not BGP's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Underlay {
    /// Targets and metrics.
    routes: BTreeMap<IpPrefix, (UnderlayTarget, u32)>,
    /// Lengths that occur, longest first, by family.
    lengths: [Vec<u8>; 2],
    fallback: Option<u32>,
}

impl Underlay {
    /// An underlay of these routes, which cost nothing; of two for a prefix the later counts.
    pub fn new(routes: impl IntoIterator<Item = (IpPrefix, UnderlayTarget)>) -> Self {
        let route = |(prefix, target)| UnderlayRoute { prefix, target, metric: 0 };
        Self::with_metrics(routes.into_iter().map(route))
    }

    /// An underlay of these routes; of several for a prefix that of the lowest metric counts, of equal ones the later.
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

    /// Where next hops are that nothing else has.
    pub(super) fn fallback(&self) -> Option<u32> {
        self.fallback
    }

    /// Which next hops these routes reach, and at what cost: that of the route with the longest prefix, if it leads
    /// somewhere. Gateways that are not said to be on a link are followed.
    pub fn next_hop_view(&self) -> NextHopView {
        let fallback = everywhere().map(|all| (all, Some(0))).filter(|_| self.fallback.is_some());
        let routes = self.routes.iter();
        let answers =
            routes.map(|(prefix, (target, metric))| (*prefix, self.leads(*target).then_some(*metric)));
        NextHopView::new(fallback.chain(answers))
    }

    /// Has routes that are here lead elsewhere, at the cost they have.
    pub(super) fn lead(&mut self, moved: &[(IpPrefix, UnderlayTarget)]) {
        for (prefix, target) in moved {
            if let Some((known, _)) = self.routes.get_mut(prefix) {
                *known = *target;
            }
        }
    }

    /// A view in which everything is reached at no cost, but for what is known to be dead: what the longest prefix leads to
    /// is not alive, or the address is that of a silent neighbor (link, address). The one that is not asked, if all is
    /// well.
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

    /// Where a route leads in the end: a gateway that is not said to be on a link is followed.
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

    /// Whether a target leads to a neighbor or, on purpose, nowhere.
    fn leads(&self, mut target: UnderlayTarget) -> bool {
        // As an outlet counts: the next hop itself is the first address.
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

    /// The longest prefix that has the address: its length and target.
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

/// The whole of both families.
fn everywhere() -> impl Iterator<Item = IpPrefix> {
    let all = [Prefix::<u32>::new(0, 0).map(IpPrefix::V4), Prefix::<u128>::new(0, 0).map(IpPrefix::V6)];
    all.into_iter().flatten()
}
