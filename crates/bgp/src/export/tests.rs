//! A group against its definition: real shards change at random; members read at random speeds, fall behind,
//! join, leave and request a refresh; at the end each has exactly what the final RIB requires.

mod attributes;
mod limits;
mod unchanged;
use std::sync::Arc;

use thalweg_base::XorShift64Star;
use thalweg_wire::bgp::Codec;

use super::*;
use crate::peer::{PeerKind, Role};
use testing::{Seen, World, external, route_server, tight};

fn run_all(view: &ExportView, seeds: std::ops::Range<u64>, limits: ExportLimits) -> Seen {
    let mut seen = Seen::default();
    for seed in seeds {
        let mut world = World::new(std::slice::from_ref(view), limits, seed);
        let mut rng = XorShift64Star::new(seed + 1);
        for _ in 0..600 {
            world.step(&mut rng);
        }
        world.settle(&mut rng);
        seen.add(&world.check());
    }
    seen
}

#[test]
fn external_members_hold_what_the_rib_says() {
    let seen = run_all(&external(), 0..25, tight());
    assert!(seen.routes > 100 && seen.lagged > 10, "{seen:?}");
    run_all(&external(), 100..115, ExportLimits::default());
}

#[test]
fn internal_members_hold_what_the_rib_says() {
    let view = ExportView { kind: PeerKind::Internal, next_hop: NextHopRule::Own, ..external() };
    assert!(run_all(&view, 0..15, tight()).routes > 100);
    let view = ExportView { kind: PeerKind::InternalClient, ..view };
    assert!(run_all(&view, 20..35, tight()).routes > 100);
}

/// Third-party next hops: those on the members' network stay, and no member receives a route with its own address
/// as next hop.
#[test]
fn members_on_a_common_network_hold_what_the_rib_says() {
    let net = "192.0.2.0/25".parse().unwrap();
    let view = ExportView { next_hop: NextHopRule::KeepWithin(net), ..external() };
    let seen = run_all(&view, 0..15, tight());
    assert!(seen.routes > 100, "{seen:?}");
    let view = ExportView { policy: Arc::new(testing::by_prefix()), ..view };
    assert!(run_all(&view, 20..30, tight()).routes > 50);
    let view = ExportView { kind: PeerKind::InternalClient, next_hop: NextHopRule::Keep, ..external() };
    assert!(run_all(&view, 40..50, tight()).routes > 50);
}

#[test]
fn members_in_the_confederation_hold_what_the_rib_says() {
    let view = ExportView { kind: PeerKind::Confederation, ..external() };
    assert!(run_all(&view, 0..10, tight()).routes > 50);
}

#[test]
fn a_role_keeps_routes_of_customers_only() {
    let view = ExportView { role: Some(Role::Peer), ..external() };
    assert!(run_all(&view, 0..10, tight()).routes > 50);
}

#[test]
fn route_server_clients_get_the_next_path_they_may_have() {
    let view = ExportView { route_server: Some(route_server()), ..external() };
    let seen = run_all(&view, 0..25, tight());
    assert!(seen.routes > 100, "{seen:?}");
    run_all(&view, 100..110, ExportLimits::default());
}

#[test]
fn add_path_members_hold_all_ranks() {
    let codec = Codec { four_octet_as: true, add_path_send: [true; 2], ..Codec::default() };
    let view = ExportView { codec, add_path_depth: [3; 2], ..external() };
    assert!(run_all(&view, 0..20, tight()).routes > 100);
    run_all(&view, 100..110, ExportLimits::default());
}

/// A group with another view takes over all members several times while everything else continues.
#[test]
fn a_replaced_view_leaves_what_the_new_one_says() {
    let views = [
        external(),
        ExportView { role: Some(Role::Provider), ..external() },
        ExportView { policy: Arc::new(crate::policy::Policy::reject_all()), ..external() },
        ExportView { next_hop: NextHopRule::Keep, ..external() },
    ];
    for seed in 0..20u64 {
        let mut world = World::new(&views[..1], tight(), seed);
        let mut rng = XorShift64Star::new(seed + 1);
        for step in 0..600usize {
            if step % 150 == 149 {
                world.replace_view(views[(step / 150 + seed as usize) % views.len()].clone());
            }
            world.step(&mut rng);
        }
        world.settle(&mut rng);
        world.check();
    }
}

/// A thousand prefixes with one attribute set need only a few messages, none too long; ten members share them.
#[test]
fn prefixes_with_equal_attributes_share_messages() {
    let mut world = World::new(&[external()], ExportLimits::default(), 7);
    world.join_all();
    world.announce_many(3, 1_000);
    let messages = world.groups[0].counters().messages;
    assert!(messages <= 2, "{messages} messages");
    world.settle(&mut XorShift64Star::new(1));
    assert!(world.check().routes >= 1_000);
}

/// A policy with prefix conditions: each prefix is evaluated separately, and some get other attributes.
#[test]
fn a_policy_may_look_at_prefixes() {
    let view = ExportView { policy: Arc::new(testing::by_prefix()), ..external() };
    assert!(run_all(&view, 0..15, tight()).routes > 50);
    let view = ExportView { route_server: Some(route_server()), ..view };
    assert!(run_all(&view, 20..30, tight()).routes > 50);
}

/// Members move between groups at any time, in the middle of messages and of dumps.
#[test]
fn members_that_move_hold_what_their_new_group_says() {
    let codec = Codec { four_octet_as: true, add_path_send: [true; 2], ..Codec::default() };
    let add_path = ExportView { codec, add_path_depth: [3; 2], ..external() };
    let by_prefix = Arc::new(testing::by_prefix());
    let pairs = [
        [external(), ExportView { policy: by_prefix.clone(), ..external() }],
        [ExportView { role: Some(Role::Peer), ..external() }, external()],
        [ExportView { route_server: Some(route_server()), ..external() }, external()],
        [add_path.clone(), ExportView { policy: by_prefix, ..add_path }],
    ];
    for (number, views) in pairs.iter().enumerate() {
        for seed in 0..12u64 {
            let mut world = World::new(views, tight(), seed);
            let mut rng = XorShift64Star::new(seed * 4 + number as u64 + 1);
            (0..600).for_each(|_| world.step(&mut rng));
            world.settle(&mut rng);
            world.check();
        }
    }
}

/// A moving member does not receive routes that it already has, or that neither view lets out.
#[test]
fn only_differences_go_to_members_that_move() {
    let policy = Arc::new(testing::by_prefix());
    let views = [external(), ExportView { policy, ..external() }, external()];
    let mut world = World::new(&views, ExportLimits::default(), 7);
    world.join_all();
    world.announce_many(5, 30);
    world.settle(&mut XorShift64Star::new(1));
    for (to, news) in [(1, 22), (2, 22), (0, 0)] {
        world.received = 0;
        (0..4).for_each(|who| world.move_member(who, to));
        world.settle(&mut XorShift64Star::new(1));
        world.check();
        // Prefixes 0 to 15 change their MED, 24 to 29 come and go, for four members.
        assert_eq!(world.received, 4 * news);
    }
    // If neither view lets anything out, nothing is sent.
    let nothing =
        |role| ExportView { policy: Arc::new(crate::policy::Policy::reject_all()), role, ..external() };
    let mut world = World::new(&[nothing(None), nothing(Some(Role::Peer))], ExportLimits::default(), 7);
    world.join_all();
    world.announce_many(5, 30);
    world.settle(&mut XorShift64Star::new(1));
    (0..4).for_each(|who| world.move_member(who, 1));
    world.settle(&mut XorShift64Star::new(1));
    assert_eq!(world.received, 0);
}

/// The fuzzer's test, with random recipes: views, moves and replaced views of all kinds.
#[test]
fn any_recipe_ends_right() {
    let mut rng = XorShift64Star::new(11);
    for length in 0..150 {
        let recipe: Vec<u8> = (0..length * 10).map(|_| rng.below(256) as u8).collect();
        testing::fuzz_one(&recipe);
    }
}
