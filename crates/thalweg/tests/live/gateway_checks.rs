//! Health checks of gateways whose link stays up and who still answer ARP.
//!
//! The office reaches the world beyond through the guest's or the outside's namespace; both have its addresses.

use serde_json::Value;

use crate::dead_ways::{back_to_office, goes_by};
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Router, Site, eventually};

const BEYOND: [&str; 2] = ["203.0.113.1", "2001:db8:77::1"];

const PORTS: &str = "[ports.lan]\ninterface = \"lan\"\ndriver = \"af_packet\"\naddresses = [\"10.1.0.1/24\", \"2001:db8:1::1/64\"]\n\n\
     [ports.guest]\ninterface = \"guest\"\ndriver = \"af_packet\"\naddresses = [\"10.2.0.1/24\", \"2001:db8:2::1/64\"]\n\
     mirror = true\nurpf = \"strict\"\n\n\
     [ports.wan]\ninterface = \"wan\"\ndriver = \"af_packet\"\naddresses = [\"198.51.100.1/24\", \"2001:db8:9::1/64\"]\n\n";

fn site() -> Option<Site> {
    let site = Site::new()?;
    for transit in [GUEST, OUTSIDE] {
        let namespace = site.namespace(transit);
        site.ip(&namespace, &format!("addr add {}/32 dev lo", BEYOND[0]));
        site.ip(&namespace, &format!("addr add {}/128 dev lo nodad", BEYOND[1]));
        back_to_office(&site, transit);
    }
    Some(site)
}

/// Default routes of both families by the guest, and by the outside with a higher metric.
fn defaults(check: &str) -> String {
    let route = |prefix: &str, via: &str, more: &str| {
        format!("[[routes]]\nprefix = \"{prefix}\"\nvia = \"{via}\"\n{more}\n\n")
    };
    [
        route("0.0.0.0/0", GUEST.v4, &format!("metric = 10\n{check}")),
        route("0.0.0.0/0", OUTSIDE.v4, "metric = 20"),
        route("::/0", GUEST.v6, &format!("metric = 10\n{check}")),
        route("::/0", OUTSIDE.v6, "metric = 20"),
    ]
    .concat()
}

const CHECK: &str = "check = { every_ms = 100, fail = 3, pass = 2 }";

fn state_is(router: &Router<'_>, state: &str) -> Vec<Value> {
    eventually(&format!("the checks have {state}"), || {
        let checks = router.show(&["checks"])?;
        (checks.len() == 2 && checks.iter().all(|check| check["state"] == state)).then_some(checks)
    })
}

fn all_go_by(router: &Router<'_>, host: Host) {
    goes_by(router, "0.0.0.0/0", &[host]);
    eventually(&format!("IPv6 goes by {}", host.v6), || {
        let view = router.show(&["fib", "::/0"])?.pop()?;
        (view["next_hops"][0]["neighbor"] == host.v6).then_some(())
    });
}

/// Makes the guest ignore echo requests, or answer them again.
fn set_silent(site: &Site, is_silent: bool) {
    let silent = u8::from(is_silent);
    for key in ["net.ipv4.icmp_echo_ignore_all", "net.ipv6.icmp.echo_ignore_all"] {
        site.said(&site.namespace(GUEST), "sysctl", &["-q", "-w", &format!("{key}={silent}")]);
    }
}

#[test]
fn a_gateway_that_fails_its_check_is_left_until_it_passes() {
    let Some(site) = site() else { return };
    let config = format!("{PORTS}{}", defaults(CHECK));
    let router = site.run_alone(&config, &[]);
    let problems = || router.one("status")["problems"].to_string();
    state_is(&router, "passed");
    all_go_by(&router, GUEST);
    set_silent(&site, true);
    all_go_by(&router, OUTSIDE);
    for address in BEYOND {
        assert!(site.pings(OFFICE, address), "the second default has taken over");
    }
    let failed = state_is(&router, "failed");
    let neighbors = router.show(&["neighbors"]).expect("the router answers");
    let guest = neighbors.iter().find(|each| each["address"] == GUEST.v4).expect("the guest");
    assert!(guest["mac"].is_string(), "ARP alone would not have told: {guest}");
    assert!(problems().contains("fails its check: 10.2.0.2 does not answer"), "{}", problems());
    for check in &failed {
        assert_eq!(check["failures"], 1, "{check}");
    }
    // A reload that keeps the checks keeps what they know.
    router.reload(&config.replace("fail = 3", "fail = 4")).expect("the reload");
    state_is(&router, "failed");
    all_go_by(&router, OUTSIDE);
    set_silent(&site, false);
    state_is(&router, "passed");
    all_go_by(&router, GUEST);
    let log = site.log();
    assert_eq!(log.matches("the gateway fails its check").count(), 2, "once for each gateway: {log}");
    assert_eq!(log.matches("the gateway may be used again").count(), 2, "{log}");
    // Without checks the counters stand still.
    router.reload(&format!("{PORTS}{}", defaults(""))).expect("the reload");
    assert_eq!(router.show(&["checks"]), Some(Vec::new()));
    for address in BEYOND {
        eventually("the first default is in use", || site.pings(OFFICE, address).then_some(()));
    }
    router.counters_add_up();
}

/// A host behind the gateway goes and comes back. While it is gone, routes lead elsewhere, but its answers must
/// pass the strict reverse path check of the gateway's port; and NAT must not take them for a host's.
#[test]
fn a_host_behind_the_gateway_may_be_who_answers() {
    const TARGET: &str = "192.0.2.77";
    let Some(site) = site() else { return };
    let guest = site.namespace(GUEST);
    let far = |act: &str| site.ip(&guest, &format!("addr {act} {TARGET}/32 dev lo"));
    far("add");
    let check = format!("check = {{ ping = \"{TARGET}\", every_ms = 100, fail = 3, pass = 2 }}");
    let route = |via: Host, metric: u32, check: &str| {
        format!("[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"{}\"\nmetric = {metric}\n{check}\n\n", via.v4)
    };
    let nat = "[nat]\noutside = \"guest\"\ninside = \"lan\"\n\n";
    let router =
        site.run_alone(&format!("{PORTS}{nat}{}{}", route(GUEST, 1, &check), route(OUTSIDE, 2, "")), &[]);
    let is = |state: &str| {
        eventually(&format!("the check has {state}"), || {
            (router.show(&["checks"])?.pop()?["state"] == state).then_some(())
        });
    };
    is("passed");
    goes_by(&router, "0.0.0.0/0", &[GUEST]);
    far("del");
    is("failed");
    goes_by(&router, "0.0.0.0/0", &[OUTSIDE]);
    far("add");
    is("passed");
    goes_by(&router, "0.0.0.0/0", &[GUEST]);
    eventually("the office reaches it through NAT", || site.pings(OFFICE, TARGET).then_some(()));
    router.reload(&format!("{PORTS}{nat}{}", route(GUEST, 1, ""))).expect("the reload");
    router.counters_add_up();
}

/// A check that fails may be wrong: without another path, packets still go there.
#[test]
fn the_only_gateway_stays_in_use() {
    let Some(site) = site() else { return };
    let route =
        |check: &str| format!("[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"{}\"\n{check}\n", GUEST.v4);
    let check = "check = { ping = \"192.0.2.99\", every_ms = 100, fail = 2 }";
    let router = site.run_alone(&format!("{PORTS}{}", route(check)), &[]);
    eventually("the check has failed", || {
        (router.show(&["checks"])?.pop()?["state"] == "failed").then_some(())
    });
    assert!(site.pings(OFFICE, BEYOND[0]));
    router.reload(&format!("{PORTS}{}", route(""))).expect("the reload");
    router.counters_add_up();
}
