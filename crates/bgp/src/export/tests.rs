//! A group against its definition: real shards are changed at random, members read at random speeds, fall behind,
//! come, go and ask again; at the end each holds exactly what the final RIB says it should.

mod attributes;
mod world;

use std::net::Ipv4Addr;
use std::sync::Arc;

use thalweg_base::XorShift64Star;
use thalweg_wire::bgp::Codec;

use super::*;
use crate::peer::{PeerKind, Role};
use world::World;

fn external() -> ExportView {
    ExportView {
        own_ipv4: Some(Ipv4Addr::new(192, 0, 2, 100)),
        own_ipv6: Some("2001:db8::100".parse().unwrap()),
        ..ExportView::new(PeerKind::External, 65_000)
    }
}

fn run_all(view: &ExportView, seeds: std::ops::Range<u64>, limits: ExportLimits) -> world::Seen {
    let mut seen = world::Seen::default();
    for seed in seeds {
        let mut world = World::new(view.clone(), limits, seed);
        let mut rng = XorShift64Star::new(seed + 1);
        for _ in 0..600 {
            world.step(&mut rng);
        }
        world.settle(&mut rng);
        seen.add(&world.check());
    }
    seen
}

/// Everything overflows all the time: members lag, dumps are cut, queues are encoded early.
fn tight() -> ExportLimits {
    ExportLimits { log_bytes_max: 3_000, pending_max: 7, dump_routes_max: 9, dump_bytes_max: 1 }
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
    let rules = RouteServerRules { control_as: Some(65_000), ranks: 3, ..RouteServerRules::default() };
    let view = ExportView { route_server: Some(rules), ..external() };
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

/// The view is replaced in the middle, more than once, while everything goes on.
#[test]
fn a_replaced_view_leaves_what_the_new_one_says() {
    let views = [
        external(),
        ExportView { role: Some(Role::Provider), ..external() },
        ExportView { policy: Arc::new(crate::policy::Policy::reject_all()), ..external() },
        ExportView { next_hop: NextHopRule::Keep, ..external() },
    ];
    for seed in 0..20u64 {
        let mut world = World::new(views[0].clone(), tight(), seed);
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

/// A thousand prefixes with one attribute set are a handful of messages, none longer than allowed; ten members
/// share them.
#[test]
fn prefixes_with_equal_attributes_share_messages() {
    let mut world = World::new(external(), ExportLimits::default(), 7);
    world.join_all();
    world.announce_many(3, 1_000);
    let messages = world.group.counters().messages;
    assert!(messages <= 2, "{messages} messages");
    world.settle(&mut XorShift64Star::new(1));
    assert!(world.check().routes >= 1_000);
}
