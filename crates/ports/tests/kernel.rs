//! Routes in the kernel's tables, in their own namespace, checked with `ip`.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::common::{in_namespace, ip};
use thalweg_base::{IpPrefix, Prefix};
use thalweg_ports::kernel::{
    KernelError, KernelEvent, KernelOptions, KernelRoute, KernelRoutes, Monitor, NetworkView, RepairReport,
    RouteChange, RouteTarget, Watch,
};
use thalweg_wire::MacAddr;

/// Makes a veth with addresses at one end; returns that end's index.
fn veth() -> u32 {
    ip("link add v0 type veth peer name v1");
    ip("link set v0 up");
    ip("link set v1 up");
    ip("address add 198.18.0.1/24 dev v0");
    ip("address add 2001:db8::1/64 dev v0 nodad");
    let view = NetworkView::read(116).unwrap();
    view.links.iter().find(|link| &*link.name == "v0").unwrap().index
}

fn open() -> KernelRoutes {
    KernelRoutes::open(KernelOptions::default()).unwrap()
}

fn via(address: &str) -> RouteTarget {
    RouteTarget::Gateway { address: address.parse().unwrap(), interface: None }
}

fn route(prefix: &str, target: RouteTarget) -> KernelRoute {
    KernelRoute { prefix: prefix.parse().unwrap(), target }
}

fn replace(prefix: &str, target: RouteTarget) -> RouteChange {
    RouteChange::Replace(route(prefix, target))
}

/// The prefix with this number, of 24 bits (IPv4) or 48 bits (IPv6).
fn numbered(number: u32, v6: bool) -> IpPrefix {
    if v6 {
        Prefix::new((0x2001_0db9_u128 << 96) + (u128::from(number) << 80), 48).unwrap().into()
    } else {
        Prefix::new(0x0a00_0000 + (number << 8), 24).unwrap().into()
    }
}

/// Our routes as the installer reads them from the kernel.
fn ours(kernel: &mut KernelRoutes) -> BTreeMap<IpPrefix, RouteTarget> {
    let mut routes = BTreeMap::new();
    let interrupted = kernel.read(|found| {
        assert!(routes.insert(found.prefix, found.target.unwrap()).is_none(), "{} twice", found.prefix);
    });
    assert!(!interrupted.unwrap());
    routes
}

#[test]
fn routes_come_and_go_as_ip_sees_them() {
    in_namespace("kernel::routes_come_and_go_as_ip_sees_them", || {
        let v0 = veth();
        let mut kernel = open();
        let wanted = [
            ("192.0.2.0/24", via("198.18.0.2"), "192.0.2.0/24 via 198.18.0.2 dev v0 proto 116 metric 116"),
            (
                "203.0.113.7/32",
                RouteTarget::Interface(v0),
                "203.0.113.7 dev v0 proto 116 scope link metric 116",
            ),
            ("0.0.0.0/0", via("198.18.0.3"), "default via 198.18.0.3 dev v0 proto 116 metric 116"),
            (
                "10.1.0.0/16",
                via("2001:db8::9"),
                "10.1.0.0/16 via inet6 2001:db8::9 dev v0 proto 116 metric 116",
            ),
            ("10.2.0.0/16", RouteTarget::Blackhole, "blackhole 10.2.0.0/16 proto 116 metric 116"),
            ("10.3.0.0/16", RouteTarget::Unreachable, "unreachable 10.3.0.0/16 proto 116 metric 116"),
            (
                "2001:db8:1::/48",
                via("2001:db8::2"),
                "2001:db8:1::/48 via 2001:db8::2 dev v0 proto 116 metric 116",
            ),
            (
                "2001:db8:2::/48",
                RouteTarget::Blackhole,
                "blackhole 2001:db8:2::/48 dev lo proto 116 metric 116",
            ),
            ("::/0", via("2001:db8::3"), "default via 2001:db8::3 dev v0 proto 116 metric 116"),
        ];
        let changes: Vec<_> = wanted.iter().map(|(prefix, target, _)| replace(prefix, *target)).collect();
        let report = kernel.apply(&changes).unwrap();
        assert_eq!((report.replaced, report.failed), (9, 0), "{report:?}");
        let seen = ip("route show") + &ip("-6 route show");
        for (_, _, line) in &wanted {
            assert!(seen.contains(line), "{line} is not in:\n{seen}");
        }
        let read = ours(&mut kernel);
        for (prefix, target, _) in &wanted {
            let prefix: IpPrefix = prefix.parse().unwrap();
            assert!(target.is_met_by(read[&prefix]), "{prefix}: {:?}", read[&prefix]);
        }
        assert_eq!(read.len(), wanted.len());

        // A route's target is replaced by one of another kind, in both directions and families.
        let changes = [
            replace("192.0.2.0/24", RouteTarget::Blackhole),
            replace("10.2.0.0/16", via("198.18.0.4")),
            replace("2001:db8:1::/48", RouteTarget::Unreachable),
            replace("2001:db8:2::/48", via("2001:db8::4")),
        ];
        assert_eq!(kernel.apply(&changes).unwrap().replaced, 4);
        let read = ours(&mut kernel);
        assert_eq!(read.len(), wanted.len());
        for change in changes {
            let RouteChange::Replace(route) = change else { unreachable!() };
            assert!(route.target.is_met_by(read[&route.prefix]), "{}", route.prefix);
        }

        let deletions: Vec<_> = read.keys().map(|prefix| RouteChange::Delete(*prefix)).collect();
        assert_eq!(kernel.apply(&deletions).unwrap().deleted, 9);
        let report = kernel.apply(&deletions).unwrap();
        assert_eq!((report.deleted, report.absent, report.failed), (0, 9, 0));
        assert!(ours(&mut kernel).is_empty());
    });
}

#[test]
fn refusals_are_mapped_to_their_prefixes() {
    in_namespace("kernel::refusals_are_mapped_to_their_prefixes", || {
        veth();
        let mut kernel = open();
        let bad = |number: u32| number % 3 == 1;
        let changes: Vec<_> = (0..5000)
            .map(|number| {
                let v6 = number % 2 == 0;
                let target = match (bad(number), v6) {
                    (false, false) => via("198.18.0.2"),
                    (false, true) => via("2001:db8::2"),
                    (true, false) => via("192.0.2.99"),
                    (true, true) => via("2001:db8:ffff::99"),
                };
                RouteChange::Replace(KernelRoute { prefix: numbered(number, v6), target })
            })
            .collect();
        let report = kernel.apply(&changes).unwrap();
        assert_eq!((report.replaced, report.failed), (3333, 1667));
        let expected: Vec<_> =
            (0..5000).filter(|n| bad(*n)).map(|n| numbered(n, n % 2 == 0)).take(16).collect();
        assert_eq!(report.failures.iter().map(|failure| failure.prefix).collect::<Vec<_>>(), expected);
        // The kernel gives a reason in words for IPv4, and only a number for IPv6.
        let words = report.failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(words.contains("Nexthop has invalid gateway"), "{words}");
        let read = ours(&mut kernel);
        assert_eq!(read.len(), 3333);
        assert!((0..5000).all(|n| read.contains_key(&numbered(n, n % 2 == 0)) != bad(n)));
    });
}

#[test]
fn drift_is_found_counted_and_mended() {
    in_namespace("kernel::drift_is_found_counted_and_mended", || {
        veth();
        let mut kernel = open();
        let desired: Vec<_> = (0..3000)
            .map(|number| {
                let v6 = number % 3 == 0;
                let target = via(if v6 { "2001:db8::2" } else { "198.18.0.2" });
                KernelRoute { prefix: numbered(number, v6), target }
            })
            .collect();
        let report = kernel.repair(desired.iter().copied()).unwrap();
        assert_eq!(
            (report.missing, report.extra, report.changed, report.failed),
            (3000, 0, 0, 0),
            "{report}"
        );
        let clean = RepairReport { good: 3000, ..RepairReport::default() };
        assert_eq!(kernel.repair(desired.iter().copied()).unwrap(), clean);

        // Changes by hand: two routes deleted, two changed, three added, one of them with another metric; and one
        // of another program, which must be left alone.
        ip("route del 10.0.1.0/24 proto 116 metric 116");
        ip("-6 route del 2001:db9:3::/48 proto 116 metric 116");
        ip("route change 10.0.2.0/24 via 198.18.0.77 proto 116 metric 116");
        ip("route replace blackhole 10.0.4.0/24 proto 116 metric 116");
        ip("route add 10.200.0.0/16 via 198.18.0.2 proto 116 metric 116");
        ip("route add 10.0.5.0/24 via 198.18.0.2 proto 116 metric 7");
        ip("-6 route add 2001:db8:ffff::/48 via 2001:db8::2 proto 116 metric 116");
        ip("route add 10.201.0.0/16 via 198.18.0.2 proto static metric 116");
        let report = kernel.repair(desired.iter().rev().copied()).unwrap();
        assert_eq!(
            report,
            RepairReport { good: 2996, missing: 2, changed: 2, extra: 3, ..RepairReport::default() },
            "{report}"
        );
        assert_eq!(kernel.repair(desired.iter().copied()).unwrap(), clean);
        assert!(ip("route show 10.201.0.0/16").contains("proto static"));

        // A link that goes down removes its IPv4 routes; until it is up they cannot be repaired.
        ip("link set v0 down");
        let report = kernel.repair(desired.iter().copied()).unwrap();
        assert!(report.missing >= 2000 && report.failed == report.missing, "{report}");
        assert!(!report.failures.is_empty());
        ip("link set v0 up");
        ip("address replace 2001:db8::1/64 dev v0 nodad");
        let report = kernel.repair(desired.iter().copied()).unwrap();
        assert!(report.missing >= 2000 && report.failed == 0, "{report} {:?}", report.failures);
        assert_eq!(kernel.repair(desired).unwrap(), clean);
    });
}

/// Any set of routes can be repaired into any other, and the counts are the differences of the sets.
#[test]
fn repair_makes_any_set_of_any_other() {
    in_namespace("kernel::repair_makes_any_set_of_any_other", || {
        veth();
        let mut kernel = open();
        let mut random = thalweg_base::XorShift64Star::new(7);
        let mut have: BTreeMap<IpPrefix, RouteTarget> = BTreeMap::new();
        for round in 0..30 {
            let mut want = BTreeMap::new();
            for _ in 0..random.below(400) {
                let number = random.below(300);
                let v6 = random.below(2) == 0;
                let target = match random.below(4) {
                    0 => RouteTarget::Blackhole,
                    n if v6 => via(&format!("2001:db8::{}", n + 1)),
                    n => via(&format!("198.18.0.{}", n + 1)),
                };
                want.insert(numbered(number, v6), target);
            }
            let report = kernel
                .repair(want.iter().map(|(prefix, target)| KernelRoute { prefix: *prefix, target: *target }))
                .unwrap();
            let count = |test: &dyn Fn(Option<&RouteTarget>, Option<&RouteTarget>) -> bool| {
                let all: std::collections::BTreeSet<_> = have.keys().chain(want.keys()).collect();
                all.into_iter().filter(|prefix| test(have.get(prefix), want.get(prefix))).count() as u64
            };
            let expected = RepairReport {
                good: count(&|have, want| have.is_some() && have == want),
                missing: count(&|have, want| have.is_none() && want.is_some()),
                extra: count(&|have, want| have.is_some() && want.is_none()),
                changed: count(&|have, want| have.is_some() && want.is_some() && have != want),
                ..RepairReport::default()
            };
            assert_eq!(report, expected, "round {round}");
            let read = ours(&mut kernel);
            assert_eq!(read.len(), want.len());
            assert!(want.iter().all(|(prefix, target)| target.is_met_by(read[prefix])));
            have = want;
        }
    });
}

#[test]
fn what_a_predecessor_left_is_removed_and_nothing_else() {
    in_namespace("kernel::what_a_predecessor_left_is_removed_and_nothing_else", || {
        veth();
        ip("route add 10.1.0.0/16 via 198.18.0.2 proto 116 metric 116");
        ip("route add 10.1.0.0/16 via 198.18.0.3 proto 116 metric 200");
        ip("-6 route add 2001:db8:1::/48 via 2001:db8::2 proto 116 metric 5");
        ip("route add 10.2.0.0/16 via 198.18.0.2 proto 186 metric 116");
        ip("route add 10.3.0.0/16 via 198.18.0.2 proto 116 table 77");
        let mut kernel = open();
        let report = kernel.remove_all().unwrap();
        assert_eq!((report.deleted, report.failed), (3, 0), "{report:?}");
        assert!(ours(&mut kernel).is_empty());
        assert!(ip("route show 10.2.0.0/16").contains("proto bgp"));

        // Another table, with a number that does not fit into a byte; the table need not exist.
        let options = KernelOptions { table: 1077, ..KernelOptions::default() };
        let mut elsewhere = KernelRoutes::open(options).unwrap();
        assert!(ours(&mut elsewhere).is_empty());
        elsewhere.apply(&[replace("10.4.0.0/16", via("198.18.0.2"))]).unwrap();
        elsewhere.apply(&[replace("2001:db8:4::/48", via("2001:db8::2"))]).unwrap();
        assert!(ip("route show table 1077").contains("10.4.0.0/16 via 198.18.0.2"));
        assert_eq!(ours(&mut elsewhere).len(), 2);
        assert!(ours(&mut kernel).is_empty(), "the other table is separate");
        assert_eq!(elsewhere.remove_all().unwrap().deleted, 2);
        assert!(ip("route show table 77").contains("10.3.0.0/16"));
    });
}

#[test]
fn the_view_says_what_next_hops_resolve_to() {
    in_namespace("kernel::the_view_says_what_next_hops_resolve_to", || {
        let v0 = veth();
        ip("link add w0 type veth peer name w1");
        ip("address add 198.18.9.1/24 dev w0");
        ip("address add 198.18.5.1 peer 198.18.5.2/32 dev v0");
        ip("route add 10.9.0.0/16 via 198.18.0.9");
        ip("nexthop add id 77 via 198.18.0.8 dev v0");
        ip("route add 10.10.0.0/16 nhid 77 metric 30");
        ip("route add 10.11.0.0/16 nexthop via 198.18.0.6 nexthop via 198.18.0.7");
        ip("route add 10.12.0.0/16 dev v0 metric 40");
        ip("neighbor add 198.18.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent");
        open().apply(&[replace("10.8.0.0/16", via("198.18.0.2"))]).unwrap();
        let view = NetworkView::read(116).unwrap();
        let link = view.link(v0).unwrap();
        assert!(link.is_up && link.mtu_bytes == 1500 && link.mac.is_some(), "{link:?}");
        for (address, own) in
            [("198.18.0.1", true), ("198.18.5.1", true), ("198.18.5.2", false), ("2001:db8::1", true)]
        {
            assert_eq!(view.is_own(address.parse().unwrap()), own, "{address}");
        }
        let connected: Vec<_> = view.connected().map(|(prefix, _)| prefix.to_string()).collect();
        for network in ["198.18.0.0/24", "198.18.5.2/32", "2001:db8::/64"] {
            assert!(connected.contains(&network.to_owned()), "{network} not in {connected:?}");
        }
        assert!(!connected.contains(&"198.18.9.0/24".to_owned()), "w0 is down");
        let others: Vec<_> = view.routes.iter().map(|route| route.prefix.to_string()).collect();
        assert!(others.contains(&"10.9.0.0/16".to_owned()) && !others.contains(&"10.8.0.0/16".to_owned()));
        let ways = |prefix: &str| -> Vec<_> {
            let routes = view.routes.iter().filter(|route| route.prefix.to_string() == prefix);
            routes.map(|route| (route.target.unwrap(), NetworkView::cost(route))).collect()
        };
        let gateway = |host| RouteTarget::Gateway { address: [198, 18, 0, host].into(), interface: Some(v0) };
        assert_eq!(ways("10.10.0.0/16"), [(gateway(8), 30)], "what an object stands for");
        assert_eq!(ways("10.11.0.0/16"), [(gateway(6), 0), (gateway(7), 0)], "several paths");
        assert_eq!(ways("10.12.0.0/16"), [(RouteTarget::Interface(v0), 40)]);
        assert_eq!(ways("2001:db8::/64"), [(RouteTarget::Interface(v0), 0)], "connected, metric 256");
        let neighbor = view.neighbors.iter().find(|n| n.address == IpAddr::from([198, 18, 0, 2])).unwrap();
        assert_eq!((neighbor.interface, neighbor.mac), (v0, Some(MacAddr([2, 0, 0, 0, 0, 2]))));
    });
}

#[test]
fn events_come_as_things_happen() {
    in_namespace("kernel::events_come_as_things_happen", || {
        let v0 = veth();
        let watch = Watch { links: true, addresses: true, neighbors: true, routes: true };
        let mut monitor = Monitor::open(watch).unwrap();
        let mut quiet = Monitor::open(Watch::default()).unwrap();
        let mut expect = |what: &str, test: &dyn Fn(&KernelEvent) -> bool| {
            let begun = Instant::now();
            loop {
                match monitor.poll_event().unwrap() {
                    Some(event) if test(&event) => return,
                    Some(_) => {}
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
                assert!(begun.elapsed() < Duration::from_secs(20), "no event: {what}");
            }
        };
        let prefix: IpPrefix = "10.1.0.0/16".parse().unwrap();
        ip("route add 10.1.0.0/16 via 198.18.0.2");
        expect("route", &|e| matches!(e, KernelEvent::Route(route) if route.prefix == prefix));
        ip("route del 10.1.0.0/16");
        expect("route gone", &|e| matches!(e, KernelEvent::RouteGone(route) if route.prefix == prefix));
        ip("address add 198.18.7.1/24 dev v0");
        let own: IpAddr = [198, 18, 7, 1].into();
        expect("address", &|e| matches!(e, KernelEvent::Address(a) if a.address == own && a.interface == v0));
        ip("address del 198.18.7.1/24 dev v0");
        expect("address gone", &|e| matches!(e, KernelEvent::AddressGone(a) if a.address == own));
        ip("neighbor add 198.18.0.2 lladdr 02:00:00:00:00:02 dev v0");
        let mac = Some(MacAddr([2, 0, 0, 0, 0, 2]));
        expect("neighbor", &|e| matches!(e, KernelEvent::Neighbor(n) if n.mac == mac));
        ip("neighbor del 198.18.0.2 dev v0");
        expect(
            "neighbor gone",
            &|e| matches!(e, KernelEvent::Neighbor(n) | KernelEvent::NeighborGone(n) if n.mac.is_none()),
        );
        ip("link set v1 down");
        expect(
            "carrier gone",
            &|e| matches!(e, KernelEvent::Link(link) if link.index == v0 && !link.is_up && link.carrier_changes > 0),
        );
        ip("link del v0");
        expect("link gone", &|e| *e == KernelEvent::LinkGone(v0));
        assert_eq!(quiet.poll_event().unwrap(), None);
    });
}

#[test]
fn events_that_do_not_fit_are_reported_as_lost() {
    in_namespace("kernel::events_that_do_not_fit_are_reported_as_lost", || {
        veth();
        let mut monitor = Monitor::open(Watch { routes: true, ..Watch::default() }).unwrap();
        let mut kernel = open();
        let overrun = |monitor: &mut Monitor| {
            while let Some(event) = monitor.poll_event().unwrap() {
                if event == KernelEvent::Overrun {
                    return true;
                }
            }
            false
        };
        let blackhole = RouteTarget::Blackhole;
        let add: Vec<_> = (0..60_000)
            .map(|n| RouteChange::Replace(KernelRoute { prefix: numbered(n, false), target: blackhole }))
            .collect();
        assert_eq!(kernel.apply(&add).unwrap().replaced, 60_000);
        assert!(overrun(&mut monitor));
        // The monitor continues.
        while monitor.poll_event().unwrap().is_some() {}
        kernel.apply(&[RouteChange::Delete(numbered(0, false))]).unwrap();
        assert!(matches!(monitor.poll_event().unwrap(), Some(KernelEvent::RouteGone(_))));
    });
}

#[test]
fn without_the_right_the_error_says_so() {
    const NAME: &str = "kernel::without_the_right_the_error_says_so";
    const WITHOUT: &str = "THALWEG_TEST_WITHOUT_RIGHT";
    if std::env::var_os(WITHOUT).is_some() {
        let mut kernel = open();
        kernel.read(|_| {}).expect("reading needs no right");
        let error =
            kernel.apply(&[replace("10.0.0.0/8", RouteTarget::Blackhole)]).expect_err("no permission");
        assert!(matches!(error, KernelError::NotPermitted), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"));
        return;
    }
    in_namespace(NAME, || {
        let output = std::process::Command::new("setpriv")
            .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(WITHOUT, "1")
            .output();
        match output {
            Err(error) => thalweg_testdata::skipped(&format!("{NAME}: setpriv: {error}")),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && said.contains("1 passed"), "{said}");
            }
        }
    });
}
