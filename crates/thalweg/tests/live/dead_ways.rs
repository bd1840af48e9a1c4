//! Links and gateways that die: packets take another path if there is one, and return.
//!
//! The office reaches 203.0.113.0/28 through the guest's or the outside's namespace; both have all of its
//! addresses.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Process, Router, Site, eventually, has};

/// The network behind both transits.
pub(crate) const BEYOND: &str = "203.0.113.0/28";

pub(crate) const PORTS: &str = "[ports.lan]\ninterface = \"lan\"\ndriver = \"af_packet\"\naddresses = [\"10.1.0.1/24\"]\n\n\
     [ports.guest]\ninterface = \"guest\"\ndriver = \"af_packet\"\naddresses = [\"10.2.0.1/24\"]\nmirror = true\n\n\
     [ports.wan]\ninterface = \"wan\"\ndriver = \"af_packet\"\naddresses = [\"198.51.100.1/24\"]\nmirror = true\n\n";

pub(crate) fn site() -> Option<Site> {
    let site = Site::new()?;
    for transit in [GUEST, OUTSIDE] {
        let namespace = site.namespace(transit);
        for host in 1..15 {
            site.ip(&namespace, &format!("addr add 203.0.113.{host}/32 dev lo"));
        }
    }
    back_to_office(&site, OUTSIDE);
    Some(site)
}

/// The kernel forgets its routes when a link goes down, so this adds them again.
pub(crate) fn back_to_office(site: &Site, transit: Host) {
    site.ip(&site.namespace(transit), &format!("route replace default via {}", transit.gateway_v4));
}

/// Whether every address beyond answers the office's first request.
pub(crate) fn all_answer(site: &Site) -> bool {
    (1..15).all(|host| site.pings(OFFICE, &format!("203.0.113.{host}")))
}

/// The next hops of a prefix.
pub(crate) fn ways(router: &Router<'_>, prefix: &str) -> Option<Vec<String>> {
    let view = router.show(&["fib", prefix])?.pop()?;
    let ways = view["next_hops"].as_array()?.iter();
    let mut ways: Vec<String> = ways.filter_map(|way| Some(way["neighbor"].as_str()?.to_owned())).collect();
    ways.sort();
    Some(ways)
}

pub(crate) fn goes_by(router: &Router<'_>, prefix: &str, expected: &[Host]) {
    let mut expected: Vec<&str> = expected.iter().map(|host| host.v4).collect();
    expected.sort_unstable();
    eventually(&format!("{prefix} goes by {expected:?}"), || {
        (ways(router, prefix)? == expected).then_some(())
    });
}

/// Takes the far end of a transit's veth up or down.
fn far_end(site: &Site, transit: Host, is_up: bool) {
    let state = if is_up { "up" } else { "down" };
    site.ip(&site.namespace(transit), &format!("link set eth0 {state}"));
    if is_up {
        back_to_office(site, transit);
    }
}

#[test]
fn equal_ways_are_left_when_they_die_and_used_when_they_are_back() {
    let Some(site) = site() else { return };
    // The third gateway does not exist, so it must not get a share.
    let via = format!("via = [\"{}\", \"{}\", \"10.2.0.77\"]", GUEST.v4, OUTSIDE.v4);
    let router =
        site.run_alone(&format!("{PORTS}[[routes]]\nprefix = \"{BEYOND}\"\n{via}\n"), &["--log", "debug"]);
    goes_by(&router, BEYOND, &[GUEST, OUTSIDE]);
    eventually("all addresses answer", || all_answer(&site).then_some(()));

    // The far end goes down, then our own.
    far_end(&site, GUEST, false);
    goes_by(&router, BEYOND, &[OUTSIDE]);
    assert!(all_answer(&site), "nothing leaves by the dead link");
    far_end(&site, GUEST, true);
    goes_by(&router, BEYOND, &[GUEST, OUTSIDE]);
    site.ip(&site.router(), "link set wan down");
    goes_by(&router, BEYOND, &[GUEST]);
    assert!(all_answer(&site), "nothing leaves by the port that is down");
    site.ip(&site.router(), "link set wan up");
    back_to_office(&site, OUTSIDE);
    goes_by(&router, BEYOND, &[GUEST, OUTSIDE]);
    eventually("all addresses answer again", || all_answer(&site).then_some(()));
    router.counters_add_up();
}

#[test]
fn a_route_with_a_higher_metric_stands_by() {
    let Some(site) = site() else { return };
    let route = |via: Host, metric: u32| {
        format!("[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"{}\"\nmetric = {metric}\n\n", via.v4)
    };
    let last = "[[routes]]\nprefix = \"0.0.0.0/0\"\naction = \"unreachable\"\nmetric = 4294967295\n";
    // The order of routes in the file does not matter.
    let config = format!("{PORTS}{}{}{last}", route(OUTSIDE, 20), route(GUEST, 10));
    let router = site.run_alone(&config, &[]);
    goes_by(&router, "0.0.0.0/0", &[GUEST]);
    eventually("all addresses answer", || all_answer(&site).then_some(()));
    far_end(&site, GUEST, false);
    goes_by(&router, "0.0.0.0/0", &[OUTSIDE]);
    assert!(all_answer(&site), "the second default has taken over");
    far_end(&site, OUTSIDE, false);
    eventually("the last resort answers", || {
        let arguments = ["-c", "1", "-W", "2", "203.0.113.1"];
        let said = site.output(&site.namespace(OFFICE), "ping", &arguments).stdout;
        String::from_utf8_lossy(&said).contains("Destination Host Unreachable").then_some(())
    });
    far_end(&site, OUTSIDE, true);
    goes_by(&router, "0.0.0.0/0", &[OUTSIDE]);
    far_end(&site, GUEST, true);
    goes_by(&router, "0.0.0.0/0", &[GUEST]);
    eventually("all addresses answer again", || all_answer(&site).then_some(()));

    // The gateway is silent although its link is up: the router probes it, declares it dead, and finds it again
    // later.
    let guest = site.namespace(GUEST);
    site.ip(&guest, "link set eth0 arp off");
    let begun = Instant::now();
    while ways(&router, "0.0.0.0/0").as_deref() != Some(&[OUTSIDE.v4.to_owned()][..]) {
        assert!(begun.elapsed() < Duration::from_secs(120), "the silent gateway is declared dead");
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("a silent gateway was left after {:.1} s", begun.elapsed().as_secs_f64());
    assert!(all_answer(&site), "the second default has taken over");
    site.ip(&guest, "link set eth0 arp on");
    goes_by(&router, "0.0.0.0/0", &[GUEST]);
    router.counters_add_up();
}

#[test]
fn routes_of_the_kernel_stand_by_by_metric() {
    let Some(site) = site() else { return };
    let router = site.run_alone(&format!("{PORTS}[kernel]\nroutes = \"import\"\n"), &[]);
    let here = site.router();
    for (transit, metric) in [(GUEST, 10), (OUTSIDE, 20)] {
        let route =
            format!("route add {BEYOND} via {} dev {} onlink metric {metric}", transit.v4, transit.port);
        site.ip(&here, &route);
    }
    goes_by(&router, BEYOND, &[GUEST]);
    eventually("all addresses answer", || all_answer(&site).then_some(()));
    far_end(&site, GUEST, false);
    goes_by(&router, BEYOND, &[OUTSIDE]);
    assert!(all_answer(&site), "the second route has taken over");
    far_end(&site, GUEST, true);
    goes_by(&router, BEYOND, &[GUEST]);
}

/// BIRD in a transit's namespace.
pub(crate) struct Bird<'t> {
    pub(crate) transit: Host,
    pub(crate) asn: u32,
    /// The router's AS.
    pub(crate) router_asn: u32,
    pub(crate) hold_time_s: u32,
    /// The networks that it announces.
    pub(crate) prefixes: &'t [&'t str],
    /// The first statements of its export filter.
    pub(crate) filter: &'t str,
}

/// A session whose hold timer would take four minutes to end it.
pub(crate) const SLOW: Bird<'static> =
    Bird { transit: GUEST, asn: 65002, router_asn: 65001, hold_time_s: 240, prefixes: &[BEYOND], filter: "" };

pub(crate) fn bird(site: &Site, bird: &Bird<'_>) -> Process {
    let Bird { transit, asn, router_asn, hold_time_s, prefixes, filter } = *bird;
    let routes: String = prefixes.iter().map(|prefix| format!("route {prefix} blackhole; ")).collect();
    let text = format!(
        "router id {0};\nprotocol device {{}}\nprotocol static {{ ipv4; {routes}}}\n\
         protocol bgp peer {{ local {0} as {asn}; neighbor {1} as {router_asn}; connect delay time 1; connect retry time 1;\n\
         error wait time 1,1; hold time {hold_time_s}; ipv4 {{ import all; export filter {{ {filter} accept; }}; }}; }}\n",
        transit.v4, transit.gateway_v4
    );
    let file = site.file(&format!("{}.conf", transit.port));
    fs::write(&file, text).expect("the folder is writable");
    let [file, control] = [file, bird_control(site, transit)].map(|path| path.display().to_string());
    site.start(&site.namespace(transit), "bird", &["-f", "-c", &file, "-s", &control])
}

/// The control socket of a transit's BIRD.
fn bird_control(site: &Site, transit: Host) -> PathBuf {
    site.file(&format!("{}.ctl", transit.port))
}

/// What a transit's BIRD has learned from the router.
pub(crate) fn bird_learned(site: &Site, transit: Host) -> Option<String> {
    let control = bird_control(site, transit).display().to_string();
    let arguments = ["-s", &control, "show", "route", "protocol", "peer"];
    let output = site.output(&site.namespace(transit), "birdc", &arguments);
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The router's configuration for a BGP neighbor, including the part that all share.
pub(crate) fn neighbor(bird: &Bird<'_>) -> String {
    let Bird { transit, asn, hold_time_s, .. } = bird;
    format!(
        "[[bgp.neighbor]]\nname = \"{}\"\naddress = \"{}\"\nas = {asn}\nhold_time_s = {hold_time_s}\n\
         import = \"accept\"\nexport = \"reject\"\n\n",
        transit.port, transit.v4
    )
}

pub(crate) const BGP: &str = "[bgp]\nas = 65001\nrouter_id = \"198.51.100.1\"\ninstall = \"fib\"\n\n";

pub(crate) fn established(router: &Router<'_>) -> Option<Vec<String>> {
    let neighbors = router.show(&["bgp", "neighbors"])?;
    let up = neighbors.iter().filter(|each| each["state"] == "Established");
    Some(up.filter_map(|each| Some(each["address"].as_str()?.to_owned())).collect())
}

#[test]
fn a_link_that_goes_down_ends_its_sessions_and_bgp_goes_another_way() {
    let Some(site) = site() else { return };
    if !has("bird") {
        return;
    }
    // The guest's AS path is shorter.
    let other = Bird { transit: OUTSIDE, asn: 65003, filter: "bgp_path.prepend(65003);", ..SLOW };
    let router = site.run_alone(&format!("{PORTS}{BGP}{}{}", neighbor(&SLOW), neighbor(&other)), &[]);
    let _guest = bird(&site, &SLOW);
    let _outside = bird(&site, &other);
    let both_up = || (established(&router)?.len() == 2).then_some(());
    eventually("both sessions are up", both_up);
    goes_by(&router, BEYOND, &[GUEST]);
    let protected = || router.one("forwarding")["protected_prefixes"].as_u64();
    eventually("a second next hop stands by", || (protected()? == 1).then_some(()));
    eventually("all addresses answer", || all_answer(&site).then_some(()));

    far_end(&site, GUEST, false);
    goes_by(&router, BEYOND, &[OUTSIDE]);
    assert!(all_answer(&site), "the other transit has taken over");
    eventually("the session is down", || (established(&router)? == [OUTSIDE.v4]).then_some(()));
    assert!(site.log().contains("link of port guest is down"), "{}", site.log());

    far_end(&site, GUEST, true);
    eventually("both sessions are up again", both_up);
    goes_by(&router, BEYOND, &[GUEST]);
    eventually("all addresses answer again", || all_answer(&site).then_some(()));
}

/// The network of a port that is down does not count as reachable: BGP's route takes over, until the port is up
/// again.
#[test]
fn the_network_of_a_port_that_is_down_is_reached_another_way() {
    const NETWORK: &str = "198.51.100.0/24";
    let Some(site) = site() else { return };
    if !has("bird") {
        return;
    }
    let other = Bird { prefixes: &[NETWORK], ..SLOW };
    let router = site.run_alone(&format!("{PORTS}{BGP}{}", neighbor(&other)), &[]);
    let _guest = bird(&site, &other);
    site.ip(&site.namespace(GUEST), "addr add 198.51.100.77/32 dev lo");
    let source = || router.show(&["fib", NETWORK])?.pop()?["source"].as_str().map(str::to_owned);
    let from = |source_is: &str| {
        eventually(&format!("{NETWORK} is {source_is}"), || (source()? == source_is).then_some(()));
    };
    let learned = || router.show(&["bgp", "route", NETWORK, "--exact"])?.pop().map(drop);
    eventually("the other path is learned", learned);
    from("connected");
    far_end(&site, OUTSIDE, false);
    from("bgp");
    goes_by(&router, NETWORK, &[GUEST]);
    eventually("a host of the network answers", || site.pings(OFFICE, "198.51.100.77").then_some(()));
    far_end(&site, OUTSIDE, true);
    from("connected");
    eventually("the hosts on the port answer", || site.pings(OFFICE, OUTSIDE.v4).then_some(()));
    router.counters_add_up();
}
