//! Installs best routes in the kernel: translates the node's routes for the kernel's tables.
//!
//! If a next hop moves, all its prefixes are installed again. With next-hop objects the kernel would move them by
//! itself, and accept routes twice as fast (docs/kernel-routes.md); they are not used yet.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use thalweg_base::{Address, IpPrefix, Prefix};
use thalweg_node::fib::{
    HopNumber, Install, Outlet, RouteInstaller, Underlay, UnderlayRoute, UnderlayTarget, Way,
};
use thalweg_ports::kernel::{
    ApplyReport, KernelError, KernelRoute, KernelRoutes, NeighborKey, NetworkView, RepairReport, RouteChange,
    RouteTarget,
};

/// Installs an outlet's routes in one of the kernel's tables.
#[derive(Debug)]
pub(crate) struct KernelInstaller {
    kernel: KernelRoutes,
    targets: HashMap<HopNumber, RouteTarget>,
    changes: Vec<RouteChange>,
    report: ApplyReport,
    error: Option<KernelError>,
}

impl KernelInstaller {
    pub(crate) fn new(kernel: KernelRoutes) -> Self {
        let (targets, changes, report) = (HashMap::new(), Vec::new(), ApplyReport::default());
        Self { kernel, targets, changes, report, error: None }
    }

    /// The results of changes since the last call, and the error if the kernel could not be reached.
    /// [`Self::repair`] restores routes lost that way.
    pub(crate) fn take_report(&mut self) -> (ApplyReport, Option<KernelError>) {
        (std::mem::take(&mut self.report), self.error.take())
    }

    /// The number of our routes in the kernel.
    pub(crate) fn count(&mut self) -> Result<u64, KernelError> {
        let mut count = 0;
        self.kernel.read(|_| count += 1)?;
        Ok(count)
    }

    /// Removes a predecessor's routes.
    pub(crate) fn remove_stale(&mut self) -> Result<ApplyReport, KernelError> {
        self.kernel.remove_all()
    }

    /// Finds and repairs drift.
    pub(crate) fn repair(&mut self, outlet: &Outlet) -> Result<RepairReport, KernelError> {
        let desired = outlet.desired().map(|(prefix, way)| KernelRoute { prefix, target: target(way) });
        self.kernel.repair(desired)
    }

    fn collect<A: Address>(&mut self, items: &[Install<A>])
    where
        IpPrefix: From<Prefix<A>>,
    {
        for item in items {
            let prefix = IpPrefix::from(item.prefix);
            let target = item.hop.map(|hop| self.targets.get(&hop).copied());
            match target {
                Some(Some(target)) => self.changes.push(RouteChange::Replace(KernelRoute { prefix, target })),
                // This does not happen: the outlet sets a hop before it uses it.
                Some(None) => {}
                None => self.changes.push(RouteChange::Delete(prefix)),
            }
        }
    }
}

impl RouteInstaller for KernelInstaller {
    fn moves_prefixes(&self) -> bool {
        false
    }

    /// The kernel's routes have one path each, so a backup is used only as the next best path.
    fn set_hop(&mut self, hop: HopNumber, way: Way, _: Option<Way>) {
        self.targets.insert(hop, target(way));
    }

    fn install_v4(&mut self, items: &[Install<u32>]) {
        self.collect(items);
    }

    fn install_v6(&mut self, items: &[Install<u128>]) {
        self.collect(items);
    }

    fn finish(&mut self) {
        match self.kernel.apply(&self.changes) {
            Ok(report) => self.report.add(report),
            Err(error) => self.error = Some(error),
        }
        self.changes.clear();
    }
}

fn target(way: Way) -> RouteTarget {
    match way {
        Way::Neighbor { address, link } => RouteTarget::Gateway { address, interface: Some(link) },
        Way::Discard => RouteTarget::Blackhole,
    }
}

/// The underlay from the kernel's view: links are its interfaces. Routes through links that are down or through
/// silent gateways do not lead anywhere, and silent addresses are unreachable.
pub(crate) fn underlay(view: &NetworkView, silent: &BTreeSet<NeighborKey>) -> Underlay {
    let is_up = |index: u32| view.link(index).is_some_and(|link| link.is_up);
    let others = view.routes.iter().filter_map(|route| {
        let target = match route.target? {
            RouteTarget::Interface(link) => is_up(link).then_some(UnderlayTarget::Connected { link }),
            RouteTarget::Gateway { interface: Some(link), .. } if !is_up(link) => None,
            RouteTarget::Gateway { interface: Some(link), address } if silent.contains(&(link, address)) => {
                None
            }
            RouteTarget::Gateway { address, interface } => {
                Some(UnderlayTarget::Gateway { address, link: interface })
            }
            RouteTarget::Blackhole => Some(UnderlayTarget::Discard),
            RouteTarget::Unreachable => Some(UnderlayTarget::Unreachable),
            RouteTarget::Object(_) => None,
        };
        Some(UnderlayRoute { prefix: route.prefix, target: target?, metric: NetworkView::cost(route) })
    });
    let own = view.addresses.iter().map(|own| {
        let prefix = IpPrefix::host(own.address);
        UnderlayRoute { prefix, target: UnderlayTarget::Local, metric: 0 }
    });
    // The same link-local address may belong to another host on another link.
    let is_wide =
        |address: &IpAddr| !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let silent = silent.iter().filter(|(_, address)| is_wide(address)).map(|(_, address)| {
        let (prefix, target) = (IpPrefix::host(*address), UnderlayTarget::Unreachable);
        UnderlayRoute { prefix, target, metric: 0 }
    });
    Underlay::with_metrics(others.chain(own).chain(silent))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::test_namespace::{in_namespace, ip};
    use thalweg_bgp::attrs::{AttrsBuilder, Interner, NextHop};
    use thalweg_bgp::peer::PeerId;
    use thalweg_bgp::route::{Change, Changes, Chosen};
    use thalweg_node::fib::OutletConfig;
    use thalweg_ports::kernel::KernelOptions;

    /// Best routes `20.0.n.0/24`, all by one next hop.
    fn changes(next_hop: [u8; 4], count: u32) -> Changes {
        let mut builder = AttrsBuilder::default();
        builder.next_hop = NextHop::V4(next_hop.into());
        let attrs = Interner::new(7).intern(&mut builder);
        let change = |n: u32| Change {
            prefix: Prefix::new(0x1400_0000 + (n << 8), 24).expect("24 is a length"),
            old: None,
            new: Some(Chosen { attrs: attrs.clone(), peer: PeerId(1), local_id: 1 }),
            further: None,
        };
        Changes { v4: (0..count).map(change).collect(), ..Changes::default() }
    }

    #[test]
    fn best_routes_reach_the_kernel_and_follow_their_next_hop() {
        in_namespace(
            "kernel_installer::tests::best_routes_reach_the_kernel_and_follow_their_next_hop",
            || {
                for command in [
                    "link add v0 type veth peer name v1",
                    "link set v0 up",
                    "link set v1 up",
                    "address add 198.18.0.1/24 dev v0",
                    "route add 20.0.0.0/16 via 198.18.0.9 proto 116 metric 116",
                ] {
                    ip(command);
                }
                let now = || underlay(&NetworkView::read(116).unwrap(), &BTreeSet::new());
                let kernel = KernelRoutes::open(KernelOptions::default()).unwrap();
                let mut installer = KernelInstaller::new(kernel);
                assert_eq!(installer.remove_stale().unwrap().deleted, 1);
                let mut outlet = Outlet::new(OutletConfig::default(), now());

                // Through a router behind a gateway to which there is no route at first.
                outlet.handle_changes(&changes([192, 0, 2, 1], 300), &mut installer);
                assert_eq!(installer.take_report().0.replaced, 0);
                ip("route add 192.0.2.0/24 via 198.18.0.2");
                outlet.set_underlay(now(), &mut installer);
                assert_eq!(installer.take_report().0.replaced, 300);
                assert!(ip("route show 20.0.7.0/24").contains("via 198.18.0.2 dev v0 proto 116"));
                ip("route change 192.0.2.0/24 via 198.18.0.3");
                outlet.set_underlay(now(), &mut installer);
                assert!(ip("route show 20.0.7.0/24").contains("via 198.18.0.3"));

                ip("route del 20.0.7.0/24");
                let report = installer.repair(&outlet).unwrap();
                assert_eq!((report.good, report.missing, report.failed), (299, 1, 0), "{report}");

                // The next hop becomes our own address: all routes are removed.
                outlet.handle_changes(&changes([198, 18, 0, 1], 300), &mut installer);
                let (report, error) = installer.take_report();
                assert!(report.deleted == 300 && error.is_none(), "{report:?} {error:?}");
                assert!(installer.repair(&outlet).unwrap().is_clean());
            },
        );
    }
}
