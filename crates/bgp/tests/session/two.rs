//! Two sessions and their effects on each other.

use std::net::Ipv4Addr;

use thalweg_bgp::peer::Role;
use thalweg_bgp::session::config::{
    AddPathConfig, GracefulRestartConfig, MaxPrefixes, MaxPrefixesAction, RemoteAs,
};
use thalweg_bgp::session::{Connection, Event, NeighborConfig, State, StopReason};
use thalweg_wire::bgp::{Family, MessageKind, Notification, RefreshKind, cease, error, write_end_of_rib};

use crate::net::{Net, announce, config, withdraw};

fn both(change: impl Fn(&mut NeighborConfig)) -> [NeighborConfig; 2] {
    [0, 1].map(|end| {
        let mut config = config(end);
        change(&mut config);
        config
    })
}

fn graceful() -> [NeighborConfig; 2] {
    both(|config| config.capabilities.graceful_restart = Some(GracefulRestartConfig::default()))
}

fn end_of_rib(family: Family) -> Vec<u8> {
    let mut out = Vec::new();
    write_end_of_rib(&mut out, family);
    out
}

#[test]
fn they_come_up_and_stay_up() {
    let mut net = Net::up();
    net.run_ms(3_600_000);
    assert!(net.is_up());
    for end in &net.ends {
        assert_eq!((end.ups, end.downs.len()), (1, 0), "{}", end.words());
        assert!(end.wrote.iter().filter(|kind| **kind == MessageKind::Keepalive).count() >= 120);
    }
    let agreed = net.ends[0].session.negotiated().unwrap();
    assert_eq!((agreed.remote_as, agreed.local_as), (64_601, 64_600));
    assert!(agreed.codec.four_octet_as && agreed.codec.extended_messages && agreed.enhanced_refresh);
    assert_eq!(agreed.families, [true, false]);
}

#[test]
fn one_side_passive() {
    for passive in 0..2 {
        let mut configs = [config(0), config(1)];
        configs[passive].passive = true;
        let [a, b] = configs;
        let net = Net::up_with(a, b);
        assert_eq!(net.ends[passive].session.established(), Some(Connection::Incoming));
    }
}

#[test]
fn both_passive_wait_for_ever() {
    let [a, b] = both(|config| config.passive = true);
    let mut net = Net::new(a, b, 1);
    net.start();
    net.run_ms(10_000_000);
    assert_eq!(net.state(0), State::Active);
}

#[test]
fn hold_timer_ends_a_silent_session() {
    let mut net = Net::up();
    net.flowing = [false, true];
    net.run_ms(80_000);
    assert_eq!(net.state(0), State::Established);
    net.run_ms(11_000);
    assert_ne!(net.state(0), State::Established);
    assert!(net.ends[0].words().contains("nothing heard for 90 s; sent Hold Timer Expired (4)"));
    assert!(net.ends[1].words().contains("received Hold Timer Expired (4)"));
    net.flowing = [true; 2];
    net.run_ms(60_000);
    assert!(net.is_up());
}

#[test]
fn input_that_waits_for_us_is_no_silence() {
    let mut net = Net::up();
    net.flowing = [false, true];
    for conn in Connection::ALL {
        net.ends[0].session.note_pending_input(conn, true);
    }
    net.run_ms(200_000);
    assert_eq!(net.state(0), State::Established);
    for conn in Connection::ALL {
        net.ends[0].session.note_pending_input(conn, false);
    }
    net.run_ms(20_000);
    assert_ne!(net.state(0), State::Established);
}

#[test]
fn a_neighbor_that_says_nothing_gets_a_long_hold_time() {
    let mut net = Net::new(config(0), config(1), 3);
    net.flowing = [false; 2];
    net.start();
    net.run_ms(239_000);
    assert_eq!(net.state(0), State::OpenSent);
    net.run_ms(2_000);
    assert!(net.ends[0].words().contains("ended in OpenSent: nothing heard for 240 s"));
}

#[test]
fn hold_time_zero_means_no_timers() {
    let [a, b] = both(|config| config.timers.hold_time_s = 0);
    let mut net = Net::up_with(a, b);
    net.flowing = [false; 2];
    let wrote = net.ends[0].wrote.len();
    net.run_ms(100_000_000);
    assert!(net.is_up());
    assert_eq!(net.ends[0].wrote.len(), wrote);
}

#[test]
fn the_higher_identifier_keeps_its_connection() {
    for higher in 0..2 {
        let mut configs = [config(0), config(1)];
        configs[higher].router_id = Ipv4Addr::new(203, 0, 113, 9);
        let [a, b] = configs;
        let mut net = Net::new(a, b, 5);
        net.slow_accept = true;
        net.start();
        net.accept_waiting();
        net.slow_accept = false;
        net.settle();
        net.run_ms(30_000);
        assert!(net.is_up(), "{}---\n{}", net.ends[0].words(), net.ends[1].words());
        assert_eq!(net.ends[higher].session.established(), Some(Connection::Outgoing));
        assert_eq!(net.ends[1 - higher].session.established(), Some(Connection::Incoming));
        assert_eq!(net.ends[0].ups, 1);
        let collisions: u64 = net.ends.iter().map(|end| end.session.counters().collisions).sum();
        assert!(collisions > 0);
    }
}

#[test]
fn equal_identifiers_are_fine_between_ases_and_the_higher_as_wins() {
    let [a, b] = both(|config| config.router_id = Ipv4Addr::new(9, 9, 9, 9));
    let mut net = Net::new(a, b, 5);
    net.slow_accept = true;
    net.start();
    net.accept_waiting();
    net.slow_accept = false;
    net.run_ms(30_000);
    assert!(net.is_up());
    assert_eq!(net.ends[1].session.established(), Some(Connection::Outgoing), "AS 64601 is higher");
}

#[test]
fn equal_identifiers_inside_an_as_are_refused() {
    let [mut a, mut b] = both(|config| config.router_id = Ipv4Addr::new(9, 9, 9, 9));
    (a.remote_as, b.remote_as, b.local_as) = (RemoteAs::One(64_600), RemoteAs::One(64_600), 64_600);
    let mut net = Net::new(a, b, 5);
    net.start();
    net.run_ms(5_000);
    assert!(!net.is_up());
    assert!(net.ends[0].words().contains("Bad BGP Identifier (3)"), "{}", net.ends[0].words());
}

#[test]
fn the_wrong_as_is_refused_and_rest_grows() {
    let (mut a, b) = (config(0), config(1));
    a.remote_as = RemoteAs::One(1);
    let mut net = Net::new(a, b, 5);
    net.start();
    net.run_ms(600_000);
    let words = net.ends[0].words();
    assert!(
        words.contains("the neighbor has AS 64601, expected AS 1; sent OPEN Message Error (2), Bad Peer AS")
    );
    let refusals = net.ends[0].log.iter().filter(|event| event.to_string().contains("Bad Peer AS")).count();
    assert!((5..40).contains(&refusals), "{refusals} in ten minutes");
}

#[test]
fn dynamic_neighbors_bring_their_as() {
    let (mut a, b) = (config(0), config(1));
    a.remote_as = RemoteAs::AnyOf(vec![(64_512, 65_534)]);
    a.passive = true;
    let net = Net::up_with(a.clone(), b.clone());
    assert_eq!(net.ends[0].session.negotiated().unwrap().remote_as, 64_601);
    a.remote_as = RemoteAs::AnyOf(vec![(1, 10)]);
    let mut net = Net::new(a, b, 5);
    net.start();
    net.run_ms(10_000);
    assert!(!net.is_up());
}

#[test]
fn shutdown_tells_why_and_start_brings_it_back() {
    let mut net = Net::up();
    net.deliver(0, &announce(&[64_600], &["192.0.2.0/24"]));
    net.stop(0, StopReason::Shutdown { text: "maintenance until 6".into() });
    assert_eq!(net.state(0), State::Idle);
    assert!(net.ends[1].words().contains("Administrative Shutdown (2): \"maintenance until 6\""));
    assert!(net.ends[1].routes.is_empty());
    net.run_ms(600_000);
    assert!(net.ends[0].session.is_stopped());
    net.ends[0].session.handle_start(net.now);
    net.run_ms(200_000);
    assert!(net.is_up());
}

#[test]
fn it_is_known_since_when_a_session_is_up_or_down() {
    let mut net = Net::new(config(0), config(1), 7);
    let times = |net: &Net| (net.ends[0].session.up_ms(net.now), net.ends[0].session.down_ms(net.now));
    assert_eq!(times(&net), (None, None), "it was never started");
    net.reachable = false;
    net.start();
    net.run_ms(60_000);
    assert_eq!(times(&net), (None, Some(60_000)), "attempts that fail are no change");
    net.reachable = true;
    while !net.is_up() {
        net.run_ms(1);
    }
    net.run_ms(60_000);
    assert!(matches!(times(&net), (Some(60_000..=60_001), None)), "{:?}", times(&net));
    net.stop(0, StopReason::Shutdown { text: String::new() });
    net.run_ms(60_000);
    assert_eq!(times(&net), (None, Some(60_000)));
    net.reachable = false;
    net.ends[0].session.handle_start(net.now);
    net.run_ms(60_000);
    assert_eq!(
        times(&net),
        (None, Some(120_000)),
        "it is down since it ended, not since it was started again"
    );
}

#[test]
fn reset_comes_back_by_itself() {
    let mut net = Net::up();
    net.stop(1, StopReason::Reset { text: String::new() });
    net.run_ms(60_000);
    assert!(net.is_up());
    assert_eq!(net.ends[1].ups, 2);
    assert!(net.ends[0].words().contains("Administrative Reset (4)"));
}

#[test]
fn max_prefixes_restart_after_a_rest() {
    let (mut a, b) = (config(0), config(1));
    a.max_prefixes[0] =
        Some(MaxPrefixes { limit: 2, warn_percent: 100, action: MaxPrefixesAction::Restart { after_s: 60 } });
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16", "10.2.0.0/16"]));
    net.ends[0].session.note_prefix_count(Family::Ipv4, 2, net.now);
    net.settle();
    assert!(net.is_up());
    assert!(net.ends[0].words().contains("2 ipv4 prefixes, the limit is 2"));
    net.ends[0].session.note_prefix_count(Family::Ipv4, 3, net.now);
    net.settle();
    assert!(!net.is_up() && net.ends[0].routes.is_empty());
    let told = "received Cease (6), Maximum Number of Prefixes Reached (1): 00010100000002";
    assert!(net.ends[1].words().contains(told), "{}", net.ends[1].words());
    net.run_ms(59_000);
    assert!(!net.is_up());
    net.run_ms(120_000);
    assert!(net.is_up());
}

#[test]
fn max_prefixes_stop_and_warn() {
    for (action, stays) in [(MaxPrefixesAction::Stop, false), (MaxPrefixesAction::Warn, true)] {
        let (mut a, b) = (config(0), config(1));
        a.max_prefixes[0] = Some(MaxPrefixes { limit: 10, warn_percent: 80, action });
        let mut net = Net::up_with(a, b);
        for count in [1, 7, 8, 9, 10, 11, 12] {
            net.ends[0].session.note_prefix_count(Family::Ipv4, count, net.now);
        }
        net.run_ms(1_000_000);
        assert_eq!(net.is_up(), stays);
        assert_eq!(net.ends[0].session.is_stopped(), !stays);
        let warnings = net.ends[0].words().matches("ipv4 prefixes").count();
        assert_eq!(warnings, 2, "near, and then above or the end: {}", net.ends[0].words());
    }
}

#[test]
fn routes_survive_a_graceful_restart() {
    let [a, b] = graceful();
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16", "10.2.0.0/16"]));
    net.cut();
    assert_eq!(net.ends[0].downs, [[true, false]]);
    assert!(net.ends[0].routes.values().all(|route| route.stale));
    assert_eq!(net.ends[0].prefixes().len(), 2);
    net.run_ms(20_000);
    assert!(net.is_up());
    assert_eq!(net.ends[0].prefixes().len(), 2, "kept until End-of-RIB");
    net.deliver(1, &announce(&[64_601], &["10.2.0.0/16"]));
    net.deliver(1, &end_of_rib(Family::Ipv4));
    assert_eq!(net.ends[0].prefixes(), ["10.2.0.0/16"]);
    assert_eq!(net.ends[0].ends_of_rib, [Family::Ipv4]);
    net.run_ms(1_000_000);
    assert_eq!(net.ends[0].prefixes(), ["10.2.0.0/16"]);
}

#[test]
fn stale_routes_end_without_end_of_rib() {
    let [a, b] = graceful();
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16", "10.2.0.0/16"]));
    net.cut();
    net.run_ms(20_000);
    net.deliver(1, &announce(&[64_601], &["10.2.0.0/16"]));
    net.run_ms(400_000);
    assert_eq!(net.ends[0].prefixes(), ["10.2.0.0/16"]);
    assert!(net.ends[0].words().contains("no End-of-RIB within the stale path time"));
}

#[test]
fn a_neighbor_that_does_not_return_loses_its_routes() {
    let [a, b] = graceful();
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    net.reachable = false;
    net.cut();
    net.run_ms(119_000);
    assert_eq!(net.ends[0].prefixes().len(), 1);
    net.run_ms(2_000);
    assert_eq!(net.ends[0].prefixes().len(), 0);
    assert_eq!(net.ends[0].session.stale_families(), [false; 2]);
}

#[test]
fn a_restarted_neighbor_that_lost_its_forwarding_state_loses_its_routes() {
    let [a, b] = graceful();
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    net.crash(1, true);
    net.settle();
    assert_eq!(net.ends[0].prefixes().len(), 1);
    // After a cold start, the router claims neither a restart nor preserved forwarding.
    net.ends[1].session.handle_start(net.now);
    net.run_ms(20_000);
    assert!(net.is_up());
    assert_eq!(net.ends[0].prefixes().len(), 0);
    assert!(net.ends[0].words().contains("did not keep its forwarding state"));
    let restart = net.ends[0].session.negotiated().unwrap().graceful_restart.unwrap();
    assert!(!restart.restarting);
}

/// The neighbor's forwarding stops with it, so its routes go with the session; it still keeps ours.
#[test]
fn a_neighbor_whose_forwarding_ends_with_it_is_not_waited_for() {
    let [a, mut b] = graceful();
    b.capabilities.graceful_restart.as_mut().unwrap().forwarding_preserved = false;
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    net.deliver(0, &announce(&[64_600], &["10.2.0.0/16"]));
    net.cut();
    assert_eq!((net.ends[0].downs[0], net.ends[1].downs[0]), ([false; 2], [true, false]));
    assert!(net.ends[0].routes.is_empty() && net.ends[1].prefixes().len() == 1);
}

#[test]
fn a_neighbor_that_restarts_unnoticed_replaces_its_connection() {
    let [a, b] = graceful();
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    net.crash(1, false);
    net.ends[1].session.set_restarting(true);
    net.ends[1].session.handle_start(net.now);
    net.run_ms(5_000);
    assert!(net.is_up(), "{}---\n{}", net.ends[0].words(), net.ends[1].words());
    assert!(net.ends[0].words().contains("it restarted"));
    assert_eq!(net.ends[0].prefixes().len(), 1, "kept: it went on forwarding");
}

#[test]
fn without_graceful_restart_a_second_connection_waits_for_the_hold_timer() {
    let mut net = Net::up();
    net.crash(1, false);
    net.ends[1].session.handle_start(net.now);
    net.run_ms(60_000);
    assert!(!net.is_up());
    assert!(net.ends[0].words().contains("connection refused: the session is up already"));
    net.run_ms(120_000);
    assert!(net.is_up());
}

#[test]
fn notifications_are_graceful_only_where_agreed_and_never_for_a_shutdown() {
    // With RFC 8538 on both sides, a reset keeps routes, and a shutdown becomes a hard reset.
    let [a, b] = graceful();
    let mut net = Net::up_with(a.clone(), b.clone());
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    net.stop(1, StopReason::Reset { text: String::new() });
    assert_eq!((net.ends[0].downs[0], net.ends[1].downs[0]), ([true, false], [true, false]));
    net.run_ms(60_000);
    net.stop(1, StopReason::Shutdown { text: "bye".into() });
    assert_eq!((net.ends[0].downs[1], net.ends[1].downs[1]), ([false; 2], [false; 2]));
    assert!(net.ends[0].words().contains("Hard Reset (9): Cease (6), Administrative Shutdown (2): \"bye\""));
    assert!(net.ends[0].routes.is_empty());
    // With it on one side only, a reset loses the routes.
    let mut a = a;
    a.capabilities.graceful_restart.as_mut().unwrap().notification = false;
    let mut net = Net::up_with(a, b);
    net.stop(1, StopReason::Reset { text: String::new() });
    assert_eq!(net.ends[0].downs[0], [false; 2]);
}

#[test]
fn a_restarting_daemon_says_nothing() {
    let [a, b] = graceful();
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    net.stop(1, StopReason::Restarting);
    assert_eq!(net.ends[0].downs, [[true, false]]);
    assert!(net.ends[0].words().contains("connection lost"));
    assert!(!net.ends[1].wrote.contains(&MessageKind::Notification));
}

#[test]
fn a_second_failure_before_end_of_rib_costs_the_old_stale_routes() {
    let [a, b] = graceful();
    let mut net = Net::up_with(a, b);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16", "10.2.0.0/16"]));
    net.cut();
    net.run_ms(20_000);
    net.deliver(1, &announce(&[64_601], &["10.2.0.0/16"]));
    net.cut();
    assert_eq!(net.ends[0].prefixes(), ["10.2.0.0/16"]);
}

#[test]
fn a_neighbor_that_does_not_read_is_dropped() {
    let [a, b] = both(|config| config.timers.send_hold_s = Some(100));
    let mut net = Net::up_with(a, b);
    let conn = net.ends[0].session.established().unwrap();
    net.ends[0].session.note_pending_output(conn, true, net.now);
    net.run_ms(90_000);
    net.ends[0].session.handle_written(conn, net.now);
    net.run_ms(90_000);
    assert!(net.is_up(), "the neighbor read something in between");
    net.ends[0].session.note_pending_output(conn, false, net.now);
    net.run_ms(500_000);
    assert!(net.is_up(), "nothing waits");
    net.ends[0].session.note_pending_output(conn, true, net.now);
    net.run_ms(101_000);
    assert!(
        net.ends[0].words().contains("the neighbor read nothing for 100 s; sent Send Hold Timer Expired")
    );
}

#[test]
fn roles_have_to_fit() {
    let up = |a: Option<Role>, b: Option<Role>, strict: bool| {
        let (mut first, mut second) = (config(0), config(1));
        (first.role, second.role, first.role_strict) = (a, b, strict);
        let mut net = Net::new(first, second, 5);
        net.start();
        net.run_ms(5_000);
        (net.is_up(), net.ends[0].words() + &net.ends[1].words())
    };
    for (a, b) in [
        (Role::Provider, Role::Customer),
        (Role::Customer, Role::Provider),
        (Role::Peer, Role::Peer),
        (Role::RouteServer, Role::RouteServerClient),
    ] {
        assert!(up(Some(a), Some(b), true).0);
    }
    let (is_up, words) = up(Some(Role::Provider), Some(Role::Peer), false);
    assert!(!is_up && words.contains("Role Mismatch (11)"), "{words}");
    assert!(up(Some(Role::Provider), None, false).0);
    assert!(!up(Some(Role::Provider), None, true).0);
    assert!(up(None, Some(Role::Provider), false).0);
}

#[test]
fn families_and_paths_are_agreed_on() {
    let (mut a, mut b) = (config(0), config(1));
    a.capabilities.families = [true, true];
    b.capabilities.families = [false, true];
    a.capabilities.add_path[1] = AddPathConfig { receive: true, send_paths: 4 };
    b.capabilities.add_path[1] = AddPathConfig { receive: true, send_paths: 0 };
    let net = Net::up_with(a, b);
    let agreed = net.ends[0].session.negotiated().unwrap();
    assert_eq!(agreed.families, [false, true]);
    assert_eq!(agreed.codec.add_path_send, [false, true]);
    assert_eq!(agreed.codec.add_path_receive, [false, false]);
    assert_eq!(agreed.send_paths, [0, 4]);

    let (mut a, mut b) = (config(0), config(1));
    a.capabilities.families = [true, false];
    b.capabilities.families = [false, true];
    let mut net = Net::new(a, b, 5);
    net.start();
    net.run_ms(5_000);
    assert!(!net.is_up());
    assert!((net.ends[0].words() + &net.ends[1].words()).contains("Unsupported Capability (7)"));
}

#[test]
fn refresh_and_its_marks() {
    let mut net = Net::up();
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16", "10.2.0.0/16"]));
    assert!(net.ends[0].session.refresh(Family::Ipv4));
    assert!(!net.ends[0].session.refresh(Family::Ipv6));
    net.settle();
    assert_eq!(net.ends[1].resends, [Family::Ipv4]);
    assert!(net.ends[1].session.mark_refresh(Family::Ipv4, RefreshKind::Begin));
    net.settle();
    assert!(net.ends[0].routes.values().all(|route| route.stale));
    net.deliver(1, &announce(&[64_601], &["10.2.0.0/16"]));
    assert!(net.ends[1].session.mark_refresh(Family::Ipv4, RefreshKind::End));
    net.settle();
    assert_eq!(net.ends[0].prefixes(), ["10.2.0.0/16"]);
    // An end without a beginning has no effect.
    net.ends[1].session.mark_refresh(Family::Ipv4, RefreshKind::End);
    net.settle();
    assert_eq!(net.ends[0].session.counters().refresh_ignored, 1);
    // A beginning without an end times out.
    net.ends[1].session.mark_refresh(Family::Ipv4, RefreshKind::Begin);
    net.settle();
    net.run_ms(601_000);
    assert!(net.ends[0].routes.is_empty());
}

#[test]
fn marks_and_routes_of_one_read_keep_their_order() {
    let mut net = Net::up();
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    let mark = |subtype: u8| [&[0xff; 16][..], &[0, 23, 5, 0, 1, subtype, 1]].concat();
    let all = [
        announce(&[64_601], &["10.3.0.0/16"]),
        mark(1),
        announce(&[64_601], &["10.2.0.0/16"]),
        mark(2),
        withdraw(&["10.2.0.0/16"]),
        announce(&[64_601], &["10.4.0.0/16"]),
    ];
    net.deliver(1, &all.concat());
    assert_eq!(net.ends[0].prefixes(), ["10.4.0.0/16"]);
}

#[test]
fn a_neighbor_without_capabilities_gets_an_open_without() {
    let (mut a, mut b) = (config(0), config(1));
    // The simulated neighbor stops at our first OPEN.
    a.passive = true;
    b.local_as = 64_601;
    let mut net = Net::new(a, b, 5);
    net.flowing = [false; 2];
    net.start();
    assert_eq!(net.state(0), State::OpenSent);
    let mut refusal = Vec::new();
    Notification::new(error::OPEN, 4).write(&mut refusal);
    let mut out = thalweg_bgp::route::RouteBatchBuilder::default();
    let end = &mut net.ends[0];
    end.session.handle_bytes(Connection::Incoming, &refusal, net.now, &mut end.import, &mut out);
    net.settle();
    assert!(net.ends[0].words().contains("does not understand capabilities; trying without"));
    net.flowing = [true; 2];
    net.run_ms(60_000);
    assert!(net.is_up(), "{}---\n{}", net.ends[0].words(), net.ends[1].words());
    let agreed = net.ends[0].session.negotiated().unwrap();
    assert!(!agreed.codec.four_octet_as && !agreed.route_refresh && agreed.families == [true, false]);
    let open = &net.ends[1].session.negotiated().unwrap().remote_open;
    assert_eq!(open.capabilities, Default::default());
}

#[test]
fn a_session_whose_connection_flaps_is_never_refused() {
    // One end only waits, so only the other's timeout counts.
    let (a, mut b) = (config(0), config(1));
    b.passive = true;
    let mut net = Net::up_with(a, b);
    for round in 0..20 {
        net.cut();
        net.run_ms(31_000);
        assert!(net.is_up(), "round {round}: within the longest time between two attempts");
    }
    // A connection is accepted at once, however often that happens.
    let mut net = Net::up();
    for round in 0..20 {
        net.cut();
        net.settle();
        for end in &net.ends {
            assert_ne!(end.session.state(), State::Idle, "round {round}: {}", end.words());
        }
        net.run_ms(31_000);
        assert!(net.is_up(), "round {round}");
    }
    for end in &net.ends {
        assert!(!end.words().contains("idle for") && !end.words().contains("rests"), "{}", end.words());
    }
}

#[test]
fn only_protocol_errors_make_a_session_rest_longer_and_longer() {
    let rests = |notification: Notification| -> Vec<u64> {
        let mut net = Net::up();
        for _ in 0..12 {
            let mut bytes = Vec::new();
            notification.write(&mut bytes);
            net.deliver(1, &bytes);
            // The session is up for less time than it needs to count as stable.
            let seconds = (0..200).find(|_| {
                net.run_ms(1_000);
                net.is_up()
            });
            assert!(seconds.is_some(), "{}", net.ends[0].words());
        }
        let rest = |event: &Event| match event {
            Event::Resting { rest_ms, .. } => Some(*rest_ms),
            _ => None,
        };
        net.ends[0].log.iter().filter_map(rest).collect()
    };
    for code in [error::CEASE, error::HOLD_TIMER] {
        assert_eq!(rests(Notification::new(code, 0)), []);
    }
    let rests = rests(Notification::new(error::UPDATE, 1));
    assert_eq!(rests.len(), 12);
    assert!(rests[0] <= 1_000 && rests[3] > rests[0] * 4, "{rests:?}");
    assert!(rests[8..].iter().all(|rest| (90_000..=120_000).contains(rest)), "{rests:?}");
}

#[test]
fn unreachable_neighbors_are_tried_less_and_less_often() {
    let mut net = Net::new(config(0), config(1), 11);
    net.reachable = false;
    net.start();
    net.run_ms(10_000);
    let soon = net.ends[0].session.counters().connect_attempts;
    assert!((5..=8).contains(&soon), "{soon}");
    net.run_ms(600_000);
    let later = net.ends[0].session.counters().connect_attempts;
    assert!((20..=40).contains(&later), "{later}");
    net.reachable = true;
    net.run_ms(40_000);
    assert!(net.is_up());
}

#[test]
fn a_collision_notification_ends_even_a_session_that_is_up() {
    let mut net = Net::up();
    let mut bytes = Vec::new();
    Notification::new(error::CEASE, cease::CONNECTION_COLLISION).write(&mut bytes);
    net.deliver(1, &bytes);
    net.run_ms(100_000);
    assert!(net.is_up());
    assert_eq!(net.ends[0].ups, 2);
}
