//! Test cases for any two daemons.

use std::net::IpAddr;

use crate::net::{End, Net, until};
use crate::router::{Family, Make, Router, Routes, Spec, networks};

/// Seconds for a session to come up. Daemons wait a few seconds after a refused connection.
const ESTABLISH_S: u64 = 20;
/// Seconds for routes to arrive.
const ROUTES_S: u64 = 15;

/// Two daemons, one at each end of a veth. `None` if one of them is not installed.
pub(crate) struct Pair<'a> {
    pub(crate) left: Box<dyn Router + 'a>,
    pub(crate) right: Box<dyn Router + 'a>,
}

/// Starts `left` and `right` after `change` has changed each configuration.
pub(crate) fn pair<'a>(
    net: &'a Net,
    left: Make,
    right: Make,
    change: impl Fn(Spec) -> Spec,
) -> Option<Pair<'a>> {
    // Starts the right one first, because most daemons wait seconds before they connect again.
    let right = right(net, change(Spec::new(End::Right)))?;
    let left = left(net, change(Spec::new(End::Left)))?;
    Some(Pair { left, right })
}

impl Pair<'_> {
    /// Waits until both daemons report that all sessions are up.
    #[track_caller]
    pub(crate) fn establish(&mut self, families: &[Family]) {
        for family in families {
            for router in [&mut self.left, &mut self.right] {
                let what = format!("{}: {family:?} session", router.name());
                until(&what, ESTABLISH_S, || {
                    router.check()?;
                    router.established(*family)
                });
            }
        }
    }
}

/// Compares the routes that a daemon has learned with the expected ones: these prefixes, with this path, and no
/// others.
pub(crate) fn compare(
    routes: &Routes,
    family: Family,
    expected: &[String],
    path: &[u32],
) -> Result<(), String> {
    let expected: Vec<&String> = expected.iter().filter(|n| family.has(n)).collect();
    let missing: Vec<&&String> = expected.iter().filter(|n| !routes.contains_key(**n)).collect();
    let surplus: Vec<&String> = routes.keys().filter(|n| !expected.contains(n)).collect();
    if !missing.is_empty() || !surplus.is_empty() {
        let some = |names: &[&String]| names.iter().take(3).map(|n| n.to_string()).collect::<Vec<_>>();
        return Err(format!(
            "of {}: {} missing {:?}, {} too many {:?}",
            expected.len(),
            missing.len(),
            some(&missing.iter().map(|n| **n).collect::<Vec<_>>()),
            surplus.len(),
            some(&surplus)
        ));
    }
    match routes.iter().find(|(_, paths)| paths.len() != 1 || paths[0].path != path) {
        Some((prefix, paths)) => Err(format!("{prefix} has {paths:?}, not path {path:?}")),
        None => Ok(()),
    }
}

/// Waits until a daemon has learned exactly these routes from a daemon in AS `from`.
#[track_caller]
pub(crate) fn learns(router: &mut dyn Router, family: Family, expected: &[String], from: u32) {
    let what = format!("{}: {family:?} routes", router.name());
    until(&what, ROUTES_S, || {
        router.check()?;
        compare(&router.routes(family)?, family, expected, &[from])
    });
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Session establishment, tables in both directions, next hops, withdrawal, refresh, and the loss of a neighbor.
pub(crate) fn exchange(left: Make, right: Make, count: usize, families: &[Family]) {
    let Some(net) = Net::new() else { return };
    let mine = |spec: &Spec| networks(if spec.end == End::Left { 1 } else { 2 }, count);
    let (of_left, of_right) = (networks(1, count), networks(2, count));
    let change = |mut spec: Spec| {
        let networks = mine(&spec);
        spec.families = families.to_vec();
        spec.originating(&networks)
    };
    let Some(mut pair) = pair(&net, left, right, change) else { return };
    pair.establish(families);
    for family in families {
        learns(&mut *pair.left, *family, &of_right, 65002);
        learns(&mut *pair.right, *family, &of_left, 65001);
        let by = [pair.left.name(), pair.right.name()].map(|name| name.starts_with("Thalweg"));
        for (router, end, by_us) in [(&mut pair.left, End::Right, by[1]), (&mut pair.right, End::Left, by[0])]
        {
            let routes = router.routes(*family).expect("an answer");
            // A daemon may send only a link-local address, as BIRD does before it has seen its interface's global
            // one.
            let is_right = |next_hop: Option<IpAddr>| {
                next_hop == Some(family.address(end)) || (!by_us && next_hop.is_some_and(is_link_local))
            };
            let wrong = routes.iter().find(|(_, paths)| !is_right(paths[0].next_hop));
            assert!(wrong.is_none(), "{}: next hop of {wrong:?}", router.name());
        }
    }
    // Each end withdraws half of its prefixes and announces them again.
    let half = |all: &[String]| all.iter().step_by(2).cloned().collect::<Vec<_>>();
    let rest = |all: &[String]| all.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>();
    pair.left.withdraw(&half(&of_left));
    pair.right.withdraw(&half(&of_right));
    for family in families {
        learns(&mut *pair.left, *family, &rest(&of_right), 65002);
        learns(&mut *pair.right, *family, &rest(&of_left), 65001);
    }
    pair.left.announce(&half(&of_left));
    pair.right.announce(&half(&of_right));
    for family in families {
        learns(&mut *pair.left, *family, &of_right, 65002);
        learns(&mut *pair.right, *family, &of_left, 65001);
    }
    // A refresh changes nothing and ends no session.
    for family in families {
        if pair.right.can_be_asked() {
            pair.left.refresh(*family);
        }
        if pair.left.can_be_asked() {
            pair.right.refresh(*family);
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    for family in families {
        learns(&mut *pair.left, *family, &of_right, 65002);
        learns(&mut *pair.right, *family, &of_left, 65001);
    }
    pair.establish(families);
    // The neighbor is killed, and later shut down. Both times its routes go, and return when it starts again.
    for orderly in [false, true] {
        if orderly {
            pair.right.stop()
        } else {
            pair.right.kill()
        }
        for family in families {
            learns(&mut *pair.left, *family, &[], 65002);
        }
        pair.right.start();
        pair.establish(families);
        for family in families {
            learns(&mut *pair.left, *family, &of_right, 65002);
            learns(&mut *pair.right, *family, &of_left, 65001);
        }
    }
}

/// Sessions with the same password come up, sessions with different ones do not (RFC 2385).
pub(crate) fn password(left: Make, right: Make, families: &[Family]) {
    let Some(net) = Net::new() else { return };
    let with = |password: &'static str| {
        move |mut spec: Spec| {
            spec.families = families.to_vec();
            spec.password = Some(password.to_owned());
            spec
        }
    };
    let Some(mut pair) = pair(&net, left, right, with("a-thalweg")) else { return };
    pair.establish(families);
    drop(pair);
    let Some(mut right) = right(&net, with("a-thalweg")(Spec::new(End::Right))) else { return };
    let Some(mut left) = left(&net, with("another")(Spec::new(End::Left))) else { return };
    std::thread::sleep(std::time::Duration::from_secs(3));
    for family in families {
        assert!(left.established(*family).is_err(), "{}: {family:?}: different passwords", left.name());
        assert!(right.established(*family).is_err(), "{}: {family:?}: different passwords", right.name());
    }
}

/// `right` dies and restarts. Meanwhile `left` keeps its routes; then it removes those that were not announced
/// again (RFC 4724).
pub(crate) fn graceful_restart(left: Make, right: Make, family: Family) {
    let Some(net) = Net::new() else { return };
    let (of_left, of_right) = (networks(1, 20), networks(2, 20));
    let change = |mut spec: Spec| {
        spec.families = vec![family];
        spec.graceful_restart = true;
        let networks = if spec.end == End::Left { of_left.clone() } else { of_right.clone() };
        spec.originating(&networks)
    };
    let Some(mut pair) = pair(&net, left, right, change) else { return };
    pair.establish(&[family]);
    learns(&mut *pair.left, family, &of_right, 65002);
    learns(&mut *pair.right, family, &of_left, 65001);
    // The End-of-RIB ends the initial exchange; before it, no graceful restart is possible.
    std::thread::sleep(std::time::Duration::from_secs(1));
    pair.right.kill();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(pair.left.established(family).is_err(), "{}: the session is down", pair.left.name());
    let kept = pair.left.routes(family).expect("an answer");
    compare(&kept, family, &of_right, &[65002]).unwrap_or_else(|e| panic!("{}: kept: {e}", pair.left.name()));
    pair.right.start();
    let mut least = usize::MAX;
    until("the session comes back", ESTABLISH_S, || {
        least = least.min(pair.left.routes(family)?.len());
        pair.left.established(family)
    });
    learns(&mut *pair.left, family, &of_right, 65002);
    learns(&mut *pair.right, family, &of_left, 65001);
    assert_eq!(least, of_right.iter().filter(|n| family.has(n)).count(), "no route was ever missing");
}
