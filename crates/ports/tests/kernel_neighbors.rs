//! The kernel's neighbor tables, in their own namespace, checked with `ip`; and recovery of those who follow the
//! kernel's tables after lost notifications.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::common::{in_namespace, ip};
use thalweg_base::{IpPrefix, Prefix};
use thalweg_ports::kernel::{
    FollowedRoutes, KernelNeighbors, KernelOptions, KernelRoute, KernelRoutes, NeighborChange, NeighborNews,
    NetworkView, RouteChange, RouteTarget,
};
use thalweg_wire::MacAddr;

const OURS: u8 = 116;

/// Two veths with addresses on the first; returns the interface index of one end of each.
fn veths() -> (u32, u32) {
    for (one, other) in [("v0", "v1"), ("w0", "w1")] {
        ip(&format!("link add {one} type veth peer name {other}"));
        ip(&format!("link set {one} up"));
        ip(&format!("link set {other} up"));
    }
    ip("address add 198.18.0.1/24 dev v0");
    ip("address add 2001:db8::1/64 dev v0 nodad");
    let view = NetworkView::read(OURS).unwrap();
    let index = |name: &str| view.links.iter().find(|link| &*link.name == name).unwrap().index;
    (index("v0"), index("w0"))
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The neighbors on an interface as `ip` shows them, one per line.
fn shown(interface: &str) -> String {
    ip(&format!("-d neigh show dev {interface} nud all"))
}

/// Repeats a question until its answer is yes.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn watched(interface: u32) -> KernelNeighbors {
    let mut neighbors = KernelNeighbors::open(OURS).unwrap();
    neighbors.watch([interface]);
    neighbors.read().unwrap();
    neighbors
}

#[test]
fn ours_come_and_go_as_ip_sees_them() {
    in_namespace("kernel_neighbors::ours_come_and_go_as_ip_sees_them", || {
        let (v0, _) = veths();
        let mut neighbors = watched(v0);
        let (one, two) = ((v0, address("198.18.0.5")), (v0, address("2001:db8::5")));
        let report =
            neighbors.apply(&[NeighborChange::Set(one, mac(5)), NeighborChange::Set(two, mac(6))]).unwrap();
        assert_eq!((report.set, report.failed), (2, 0), "{report:?}");
        let seen = shown("v0");
        for line in [
            "198.18.0.5 lladdr 02:00:00:00:00:05 extern_learn NOARP proto 116",
            "2001:db8::5 lladdr 02:00:00:00:00:06 extern_learn NOARP proto 116",
        ] {
            assert!(seen.contains(line), "{line} is not in:\n{seen}");
        }
        // Our own changes are not reported, and reading the table finds the same.
        assert_eq!(neighbors.hear().unwrap(), NeighborNews::default());
        assert_eq!(neighbors.read().unwrap(), [0, 0]);
        assert_eq!(neighbors.ours(), &BTreeMap::from([(one, mac(5)), (two, mac(6))]));
        assert!(neighbors.others().is_empty());

        // One neighbor changes its MAC address, two are removed, and one has an interface that no longer exists.
        let report = neighbors
            .apply(&[
                NeighborChange::Set(one, mac(7)),
                NeighborChange::Remove(two),
                NeighborChange::Remove(two),
                NeighborChange::Remove((9999, one.1)),
                NeighborChange::Set((9999, one.1), mac(1)),
            ])
            .unwrap();
        assert_eq!((report.set, report.removed, report.failed), (1, 3, 1), "{report:?}");
        assert!(report.failures[0].contains("198.18.0.5"), "{report:?}");
        let seen = shown("v0");
        assert!(seen.contains("198.18.0.5 lladdr 02:00:00:00:00:07"), "{seen}");
        assert!(!seen.contains("2001:db8::5"), "{seen}");
        assert_eq!(neighbors.hear().unwrap(), NeighborNews::default());
        assert_eq!(neighbors.read().unwrap(), [0, 0]);

        // A successor finds the remaining entries.
        assert_eq!(watched(v0).ours(), &BTreeMap::from([(one, mac(7))]));
    });
}

#[test]
fn what_others_set_for_good_is_followed() {
    in_namespace("kernel_neighbors::what_others_set_for_good_is_followed", || {
        let (v0, w0) = veths();
        ip("neigh add 198.18.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent");
        let mut neighbors = watched(v0);
        let place = |text: &str| (v0, address(text));
        let mut expected = BTreeMap::from([(place("198.18.0.9"), mac(9))]);
        assert_eq!(neighbors.others(), &expected);

        let mut follow = |what: &str, expected: &BTreeMap<_, _>, others: u64, ours: u64| {
            for line in what.split(", ") {
                ip(&format!("neigh {line}"));
            }
            let heard = neighbors.hear().unwrap();
            assert_eq!((heard.others, heard.ours, heard.overrun), (others, ours, false), "{what}");
            assert_eq!(neighbors.others(), expected, "{what}");
            assert_eq!(neighbors.read().unwrap(), [0, 0], "{what}: a reader finds the same");
        };
        expected.insert(place("2001:db8::7"), mac(7));
        follow("add 2001:db8::7 lladdr 02:00:00:00:00:07 dev v0 nud noarp", &expected, 1, 0);
        expected.insert(place("198.18.0.9"), mac(8));
        follow("replace 198.18.0.9 lladdr 02:00:00:00:00:08 dev v0 nud permanent", &expected, 1, 0);
        // Ignored: entries that are learned, in resolution, proxies, on another interface, or the kernel's own
        // for multicast.
        follow(
            "add 198.18.0.20 lladdr 02:00:00:00:00:20 dev v0 nud reachable, \
             add 198.18.0.21 lladdr 02:00:00:00:00:21 dev v0 nud stale, \
             add proxy 198.18.0.22 dev v0, \
             add 198.18.0.23 lladdr 02:00:00:00:00:23 dev w0 nud permanent, \
             add 198.18.0.24 lladdr ff:ff:ff:ff:ff:ff dev v0 nud noarp",
            &expected,
            0,
            0,
        );
        // Our entry, and then one that another program has changed.
        let ours = "replace 198.18.0.5 lladdr 02:00:00:00:00:05 dev v0 nud noarp extern_learn protocol 116";
        follow(ours, &expected, 0, 1);
        expected.insert(place("198.18.0.5"), mac(6));
        follow("replace 198.18.0.5 lladdr 02:00:00:00:00:06 dev v0 nud permanent", &expected, 1, 1);
        // One entry is no longer permanent, one is deleted.
        expected.remove(&place("198.18.0.9"));
        follow("change 198.18.0.9 lladdr 02:00:00:00:00:08 dev v0 nud stale", &expected, 1, 0);
        expected.remove(&place("198.18.0.5"));
        expected.remove(&place("2001:db8::7"));
        follow("del 198.18.0.5 dev v0, del 2001:db8::7 dev v0", &expected, 2, 0);

        // Another interface is watched as well.
        neighbors.watch([v0, w0]);
        assert_eq!(neighbors.read().unwrap(), [1, 0]);
        assert_eq!(neighbors.others(), &BTreeMap::from([((w0, address("198.18.0.23")), mac(0x23))]));
    });
}

#[test]
fn a_link_that_goes_takes_its_neighbors_along() {
    in_namespace("kernel_neighbors::a_link_that_goes_takes_its_neighbors_along", || {
        let (v0, _) = veths();
        let mut neighbors = watched(v0);
        let ours = (v0, address("198.18.0.5"));
        ip("neigh add 198.18.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent");
        neighbors.apply(&[NeighborChange::Set(ours, mac(5))]).unwrap();
        // Loss of carrier removes our entries and keeps permanent ones; a link that is set down loses all.
        ip("link set v1 down");
        eventually("ours is gone", || !shown("v0").contains("198.18.0.5"));
        let heard = neighbors.hear().unwrap();
        assert_eq!((heard.others, heard.ours), (1, 1), "{heard:?}");
        assert_eq!((neighbors.others().len(), neighbors.ours().len()), (1, 0));
        ip("link set v0 down");
        eventually("all are gone", || !shown("v0").contains("198.18.0.9"));
        assert_eq!(neighbors.hear().unwrap().others, 1);
        assert!(neighbors.others().is_empty());
        assert_eq!(neighbors.read().unwrap(), [0, 0]);
    });
}

/// The kernel's garbage collection spares our entries, and they do not count toward its limit for others.
#[test]
fn ours_are_outside_the_kernels_limit() {
    in_namespace("kernel_neighbors::ours_are_outside_the_kernels_limit", || {
        let (v0, _) = veths();
        let mut neighbors = watched(v0);
        let many: Vec<_> = (0..3000u32)
            .map(|number| {
                NeighborChange::Set((v0, IpAddr::from((0xc612_0100 + number).to_be_bytes())), mac(5))
            })
            .collect();
        let report = neighbors.apply(&many).unwrap();
        assert_eq!((report.set, report.failed), (3000, 0), "{:?}", report.failures);
        assert_eq!(neighbors.read().unwrap(), [0, 0]);
        assert_eq!(neighbors.ours().len(), 3000);
        ip("neigh add 198.18.0.9 lladdr 02:00:00:00:00:09 dev v0 nud stale");
        assert!(shown("v0").contains("198.18.0.9 lladdr"));
    });
}

fn flood(from: u32, count: u32) -> Vec<RouteChange> {
    let prefix = |number: u32| IpPrefix::from(Prefix::new(0x0a00_0000 + (number << 8), 24).unwrap());
    let route = |number| KernelRoute { prefix: prefix(number), target: RouteTarget::Blackhole };
    (from..from + count).map(|number| RouteChange::Replace(route(number))).collect()
}

/// An overflow of notifications is reported; reading everything again restores the kernel's state, and later
/// notifications arrive.
#[test]
fn routes_are_read_again_where_news_were_lost() {
    in_namespace("kernel_neighbors::routes_are_read_again_where_news_were_lost", || {
        veths();
        let mut followed = FollowedRoutes::open(OURS).unwrap();
        followed.read_all(&mut Vec::new()).unwrap();
        let options = KernelOptions { protocol: 77, ..KernelOptions::default() };
        let mut kernel = KernelRoutes::open(options).unwrap();
        assert_eq!(kernel.apply(&flood(0, 60_000)).unwrap().replaced, 60_000);
        // Notifications of some of these were lost too.
        let gone: Vec<_> = flood(0, 1000).iter().map(|change| RouteChange::Delete(change.prefix())).collect();
        assert_eq!(kernel.apply(&gone).unwrap().deleted, 1000);

        let (mut changed, mut overruns) = (Vec::new(), 0);
        loop {
            let heard = followed.hear(&mut changed).unwrap();
            overruns += u64::from(heard.overrun);
            if !heard.more {
                break;
            }
        }
        assert!(overruns > 0, "60,000 routes fit");
        let in_kernel = ip("route show proto 77").lines().count();
        assert_eq!(in_kernel, 59_000);
        let known =
            |followed: &FollowedRoutes| followed.prefixes().collect::<std::collections::BTreeSet<_>>();
        let before = known(&followed);
        let mut mended = Vec::new();
        followed.read_all(&mut mended).unwrap();
        let after = known(&followed);
        let expected: Vec<_> = flood(1000, 59_000).iter().map(RouteChange::prefix).collect();
        assert!(expected.iter().all(|prefix| after.contains(prefix)));
        assert!(gone.iter().all(|change| !after.contains(&change.prefix())));
        // The caller gets each prefix that changed, and no other.
        let different: std::collections::BTreeSet<_> = before.symmetric_difference(&after).copied().collect();
        assert!(!different.is_empty());
        assert_eq!(mended.into_iter().collect::<std::collections::BTreeSet<_>>(), different);

        // Notifications continue.
        let heard = followed.hear(&mut changed).unwrap();
        assert_eq!((heard.routes, heard.overrun), (0, false), "{heard:?}");
        kernel.apply(&[gone[0]]).unwrap();
        kernel.apply(&flood(0, 1)).unwrap();
        changed.clear();
        assert_eq!(followed.hear(&mut changed).unwrap().routes, 1);
        assert_eq!(changed, [gone[0].prefix()]);
    });
}

/// The same for neighbors.
#[test]
fn neighbors_are_read_again_where_news_were_lost() {
    in_namespace("kernel_neighbors::neighbors_are_read_again_where_news_were_lost", || {
        let (v0, w0) = veths();
        let mut neighbors = watched(v0);
        // On another interface, which is not watched; its notifications fill the socket all the same.
        let mut others = KernelNeighbors::open(9).unwrap();
        others.watch([w0]);
        let many = |set: bool| -> Vec<_> {
            let place = |number: u32| (w0, IpAddr::from((0x0a00_0000 + number).to_be_bytes()));
            let change = |number| match set {
                true => NeighborChange::Set(place(number), mac(5)),
                false => NeighborChange::Remove(place(number)),
            };
            (0..10_000).map(change).collect()
        };
        for _ in 0..4 {
            others.apply(&many(true)).unwrap();
            others.apply(&many(false)).unwrap();
        }
        ip("neigh add 198.18.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent");
        let mut overrun = false;
        loop {
            let heard = neighbors.hear().unwrap();
            overrun |= heard.overrun;
            assert_eq!(heard.others, 0, "the last notification was lost");
            if !heard.more {
                break;
            }
        }
        assert!(overrun, "80,000 changes fit");
        assert!(neighbors.others().is_empty());
        assert_eq!(neighbors.read().unwrap(), [1, 0]);
        assert_eq!(neighbors.others(), &BTreeMap::from([((v0, address("198.18.0.9")), mac(9))]));
        ip("neigh del 198.18.0.9 dev v0");
        assert_eq!(neighbors.hear().unwrap().others, 1, "the monitor still receives notifications");
    });
}
