//! Best routes in the kernel's table, tested in a network namespace.

use crate::namespace::{in_namespace, ip};
use crate::router::{Router, eventually, free_port, speaker};
use crate::tables::{Route, table};

/// A router with routes via 198.18.0.9, which is on a connected network, and via 192.0.2.99, which is unreachable
/// at first.
fn config(more: &str) -> String {
    format!(
        "{}install = \"kernel\"\n{more}\n[bgp.kernel]\nrepair_s = 1\n[bgp.seed]\nmrt = \"seed.mrt\"\n",
        speaker(1, free_port())
    )
}

fn prepare(directory: &std::path::Path) {
    for command in [
        "link add v0 type veth peer name v1",
        "link set v0 up",
        "link set v1 up",
        "address add 198.18.0.1/24 dev v0",
        "route add 20.99.0.0/16 via 198.18.0.7 proto 116 metric 116",
    ] {
        ip(command);
    }
    let near = (0..20u8).map(|n| Route::v4(&format!("20.0.{n}.0/24"), "198.18.0.9", &[64510, 64511]));
    let far = (0..10u8).map(|n| Route::v4(&format!("20.1.{n}.0/24"), "192.0.2.99", &[64510, 64512]));
    let table = table(&near.chain(far).collect::<Vec<_>>());
    std::fs::write(directory.join("seed.mrt"), table).expect("the directory is writable");
}

fn ours() -> String {
    ip("route show proto 116")
}

fn await_ours(what: &str, count: usize) -> String {
    eventually(what, || Some(ours()).filter(|routes| routes.lines().count() == count))
}

#[test]
fn routes_are_installed_resolved_repaired_and_removed() {
    in_namespace("kernel::routes_are_installed_resolved_repaired_and_removed", || {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        // Routes with an unreachable next hop are selected, but not installed.
        let router = Router::start(directory.path(), "one", &config("next_hop_check = \"off\""));
        // The route left by the predecessor is gone, and no unreachable route is there.
        let routes = await_ours("what can be resolved is installed", 20);
        assert!(
            routes.contains("20.0.19.0/24 via 198.18.0.9 dev v0") && !routes.contains("20.99"),
            "{routes}"
        );
        let view = eventually("the status follows", || {
            Some(router.one(&["forwarding"])).filter(|view| view["kernel"]["replaced"] == 20)
        });
        assert_eq!((&view["install"], &view["unresolved_prefixes"]), (&"kernel".into(), &10.into()));
        let text = router.text("show", &["forwarding"]);
        assert!(text.contains("unresolved: 192.0.2.99: no route to it (10 prefixes)"), "{text}");
        assert!(router.error("show", &["fib", "20.0.1.1"]).contains("ip route get 20.0.1.1"));

        // The next hop becomes reachable, then moves to another gateway.
        ip("route add 192.0.2.0/24 via 198.18.0.2");
        assert!(await_ours("the other routes are installed", 30).contains("20.1.3.0/24 via 198.18.0.2"));
        ip("route change 192.0.2.0/24 via 198.18.0.3");
        eventually("routes follow the next hop", || {
            (ours().lines().filter(|line| line.contains("via 198.18.0.3")).count() == 10).then_some(())
        });

        // Another program changes our routes.
        ip("route del 20.0.7.0/24");
        ip("route add 20.77.0.0/16 via 198.18.0.9 proto 116 metric 116");
        eventually("drift is repaired", || {
            let routes = ours();
            (routes.contains("20.0.7.0/24") && !routes.contains("20.77")).then_some(())
        });
        eventually("the drift is counted", || {
            (router.one(&["forwarding"])["kernel"]["repaired"].as_u64()? >= 2).then_some(())
        });

        // The link goes down, so no next hop is reachable.
        ip("link set v0 down");
        await_ours("all routes are removed", 0);
        ip("link set v0 up");
        await_ours("the routes come back", 20);

        let (status, log) = router.stop();
        assert!(status.success(), "{log}");
        assert_eq!(ours(), "", "{log}");
    });
}

/// A router starts with a restart, not cold, if its predecessor left a note, or if the predecessor's routes are
/// in the kernel and a neighbor may have kept ours.
#[test]
fn routes_stay_over_a_graceful_restart() {
    in_namespace("kernel::routes_stay_over_a_graceful_restart", || {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        // No neighbor connects, so nothing is selected and nothing removed before the timer expires.
        let graceful = config("graceful_restart = true\nselection_deferral_s = 3")
            + "[[bgp.neighbor]]\naddress = \"198.18.0.2\"\nas = 64502\n";
        let router = Router::start(directory.path(), "one", &graceful);
        let view = router.one(&["bgp", "rib"]);
        assert_eq!(view["restart"]["awaited"][0], "198.18.0.2", "{view}");
        assert!(ours().contains("20.99.0.0/16") && ours().lines().count() == 1, "{}", ours());
        let why = router.text("show", &["bgp", "route", "20.0.1.0/24", "--exact", "--why"]);
        assert!(why.contains("selection is deferred"), "{why}");
        assert!(router.text("show", &["bgp", "rib"]).contains("before End-of-RIB from 198.18.0.2"));
        await_ours("stale routes go when routes are selected", 20);
        eventually("the restart is over", || {
            router.one(&["bgp", "rib"]).get("restart").is_none().then_some(())
        });
        router.text("stop", &["--keep-routes"]);
        let (status, log) = router.stop();
        assert!(status.success() && log.contains("leaving our routes for the next process"), "{log}");
        assert_eq!(ours().lines().count(), 20);

        // The configuration can keep routes too, and the command line overrides it.
        let graceful = graceful.replace("install =", "on_stop = \"keep-routes\"\ninstall =");
        let router = Router::start(directory.path(), "one", &graceful);
        let (status, log) = router.stop();
        assert!(status.success() && log.contains("leaving our routes for the next process"), "{log}");
        assert_eq!(ours().lines().count(), 20);
        let router = Router::start(directory.path(), "one", &graceful);
        router.text("stop", &["--remove-routes"]);
        let (status, log) = router.stop();
        assert!(status.success() && log.contains("removed our routes"), "{log}");
        assert_eq!(ours().lines().count(), 0);
    });
}
