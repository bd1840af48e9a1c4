//! States at a standby: those of the active router, for the rules of this one.

use super::*;
use crate::standby::Tables;
use crate::standby::testing::stand_by;
use std::collections::BTreeSet;

const CLIENTS: [&str; 2] = ["10.0.0.2:1000", "[2001:db8:1::2]:1000"];
const SERVERS: [&str; 2] = ["198.51.100.9:443", "[2001:db8:9::9]:443"];

/// What is the same on both routers.
pub(super) fn states(site: &Site) -> BTreeSet<String> {
    let (mut all, mut next) = (Vec::new(), Some((0, 0)));
    while let Some(from) = next {
        next = site.stage.states(from, site.now_ns, |_| true, &mut all);
    }
    let same = |state: StateInfo| {
        format!(
            "{} {:?} {:?} {:?} {:?} {}",
            state.protocol, state.origin, state.other, state.zones, state.phase, state.rule
        )
    };
    all.into_iter().map(same).collect()
}

/// Has the second site stand by until it has everything; whether the rules of both count as the same.
pub(super) fn copy(active: &mut Site, standby: &mut Site, are_same: bool) {
    let now_ns = {
        let [from, to] = [&*active, &*standby].map(|site| site.stage.copies(&site.rules, are_same));
        let of = |states| Tables { sessions: None, states: Some(states), now_ns: active.now_ns };
        stand_by([of(&from), of(&to)])
    };
    (active.now_ns, standby.now_ns) = (now_ns, now_ns);
}

/// Connections of both families in several phases.
fn connect(site: &mut Site) {
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        assert!(site.passes(tcp(client, server, SYN, [100, 0])));
        assert!(site.passes(tcp(server, client, SYN_ACK, [500, 101])));
        assert!(site.passes(tcp(client, server, ACK, [101, 501])));
        assert!(site.passes(udp(client, server)));
    }
    assert!(site.passes(tcp("10.0.0.3:7", SERVERS[0], SYN, [1, 0])));
    assert!(site.passes(echo("10.0.0.2", "198.51.100.9", true, 5)));
    assert!(site.passes(echo("198.51.100.9", "10.0.0.2", false, 5)));
}

#[test]
fn a_standby_lets_connections_go_on_wherever_their_windows_are() {
    let config = FirewallConfig { checks_windows: true, picks_up: false, ..config() };
    let [mut active, mut standby] = [0, 1].map(|_| Site::new(&config));
    connect(&mut active);
    copy(&mut active, &mut standby, true);
    assert_eq!(states(&active), states(&standby));
    assert_eq!(standby.stage.counters().states_created, 0);
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        // Far beyond the windows that the active router has seen.
        assert!(standby.passes(tcp(server, client, ACK, [9_000_000, 8_000_000])));
        assert!(standby.passes(tcp(client, server, ACK, [8_000_000, 9_000_100])));
        assert!(standby.passes(udp(server, client)));
        // Nobody else is let in.
        let stranger = server.replace("443", "444");
        assert_eq!(standby.one(tcp(&stranger, client, ACK, [1, 1])), Some(DropReason::FirewallInvalid));
    }
    assert!(standby.passes(echo("198.51.100.9", "10.0.0.2", false, 5)));
    assert!(standby.passes(tcp(SERVERS[0], "10.0.0.3:7", SYN_ACK, [1, 2])));
    assert!(active.passes(tcp(CLIENTS[0], SERVERS[0], RST, [101, 501])));
    copy(&mut active, &mut standby, true);
    assert_eq!(states(&active), states(&standby));
}

#[test]
fn copied_states_are_judged_by_the_standbys_rules_if_those_differ() {
    let [mut active, mut same, mut standby] = [0, 1, 2].map(|_| Site::new(&config()));
    connect(&mut active);
    let other = FirewallConfig { rules: vec![rule(Action::Deny, &[LAN], &[WAN])], ..config() };
    same.reload(&other);
    standby.reload(&other);
    let [client, server] = [CLIENTS[0], SERVERS[0]];
    copy(&mut active, &mut same, true);
    assert!(same.passes(tcp(client, server, ACK, [101, 501])), "the rules count as the same");
    copy(&mut active, &mut standby, false);
    assert!(standby.passes(tcp(server, client, ACK, [501, 101])));
    assert_eq!(standby.one(tcp(client, server, ACK, [101, 501])), Some(DropReason::FirewallDenied));
    assert_eq!(standby.one(tcp(server, client, ACK, [501, 101])), Some(DropReason::FirewallNotAsked));
}

/// Half-open connections count against their host at the standby too, and no longer once they are answered.
#[test]
fn half_open_connections_count() {
    let config = FirewallConfig { half_open_max: Some(4), ..config() };
    let [mut active, mut standby] = [0, 1].map(|_| Site::new(&config));
    let open = |site: &mut Site, from: u16| {
        let ports = from..from + 40;
        let client = |port: u16| format!("10.0.0.2:{port}");
        ports.filter(|port| site.passes(tcp(&client(*port), SERVERS[0], SYN, [1, 0]))).collect::<Vec<_>>()
    };
    let opened = open(&mut active, 1000);
    copy(&mut active, &mut standby, true);
    assert_eq!(open(&mut standby, 2000), Vec::<u16>::new());
    for port in &opened {
        let client = format!("10.0.0.2:{port}");
        assert!(active.passes(tcp(SERVERS[0], &client, SYN_ACK, [5, 2])));
    }
    copy(&mut active, &mut standby, true);
    assert_eq!(states(&active), states(&standby));
    assert!(!open(&mut standby, 2000).is_empty());
}
