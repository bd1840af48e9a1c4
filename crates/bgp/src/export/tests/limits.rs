//! Limits: longest messages, attributes that are too long, slow readers of dumps, memory of idle groups.

use thalweg_wire::bgp::Family;

use super::super::encode::BLOCK_BYTES;
use super::*;

fn extended() -> ExportView {
    let codec = Codec { four_octet_as: true, extended_messages: true, ..Codec::default() };
    ExportView { codec, ..external() }
}

fn joined(view: &ExportView) -> World {
    let mut world = World::new(std::slice::from_ref(view), ExportLimits::default(), 7);
    world.join_all();
    world.settle(&mut XorShift64Star::new(1));
    world
}

/// Both families, with maximum lengths of 4096 and 65,535 bytes. A /24 takes four bytes, a /48 seven.
#[test]
fn messages_are_as_long_as_they_may_be() {
    for (view, family, messages) in [
        (external(), Family::Ipv4, 5),
        (external(), Family::Ipv6, 9),
        (extended(), Family::Ipv4, 1),
        (extended(), Family::Ipv6, 1),
    ] {
        let mut world = joined(&view);
        world.announce(5, family, 0..5_000, &World::set(70_000, 1));
        assert_eq!(world.groups[0].counters().messages, messages, "{family:?}");
        world.settle(&mut XorShift64Star::new(1));
        assert_eq!(world.check().routes, 4 * 5_000);
        // The same for withdrawals: these attributes fit into no message.
        world.announce(5, family, 0..5_000, &World::set(70_000, 16_380));
        world.settle(&mut XorShift64Star::new(1));
        assert_eq!(world.check().routes, 0);
        assert!(world.groups[0].counters().messages <= 2 * messages);
    }
    let mut world = joined(&extended());
    world.announce(5, Family::Ipv4, 0..40_000, &World::set(70_000, 1));
    world.settle(&mut XorShift64Star::new(1));
    assert_eq!((world.check().routes, world.groups[0].counters().messages), (4 * 40_000, 4));
}

/// A route whose attributes became too long is withdrawn and counted; it is announced again when they fit.
#[test]
fn attributes_that_do_not_fit_are_withdrawn_and_counted() {
    for family in Family::ALL {
        let mut world = joined(&external());
        for (communities, routes, too_long) in [(1, 40, 0), (990, 40, 0), (1_100, 0, 10), (2, 40, 10)] {
            world.announce(5, family, 0..10, &World::set(70_000, communities));
            world.settle(&mut XorShift64Star::new(1));
            assert_eq!(world.check().routes, routes, "{communities} communities");
            assert_eq!(world.groups[0].counters().too_long, too_long);
        }
    }
    let mut world = joined(&extended());
    world.announce(5, Family::Ipv6, 0..10, &World::set(70_000, 1_100));
    world.settle(&mut XorShift64Star::new(1));
    assert_eq!((world.check().routes, world.groups[0].counters().too_long), (40, 0));
}

#[test]
fn random_routes_in_extended_messages() {
    assert!(run_all(&extended(), 0..10, tight()).routes > 50);
    assert!(run_all(&extended(), 10..15, ExportLimits::default()).routes > 50);
}

/// The dump continues without a member that does not read, and keeps a bounded amount for it.
#[test]
fn a_slow_reader_is_left_out_of_a_dump() {
    for dump_bytes_max in [1, 300_000] {
        let limits = ExportLimits { dump_bytes_max, dump_routes_max: 30_000, ..ExportLimits::default() };
        let mut world = World::new(&[external()], limits, 7);
        for part in 0..5 {
            let numbers = part * 12_000..(part + 1) * 12_000;
            world.announce(5, Family::Ipv4, numbers.clone(), &World::set(70_000 + part, 20));
            world.announce(5, Family::Ipv6, numbers, &World::set(71_000 + part, 20));
        }
        let (held_max, needs) = world.dump_past_a_slow_reader();
        assert_eq!(needs, Some(DumpKind::Initial));
        assert!(held_max <= dump_bytes_max.max(4 * BLOCK_BYTES), "{held_max}");
        world.settle(&mut XorShift64Star::new(1));
        assert_eq!(world.check().routes, 2 * 120_000);
    }
}

/// After much work, a little work frees nearly all memory.
#[test]
fn an_idle_group_holds_little() {
    let mut world = joined(&external());
    world.announce(5, Family::Ipv4, 0..30_000, &World::set(70_000, 1));
    world.announce(5, Family::Ipv4, 0..3, &World::set(70_001, 1));
    assert_eq!(world.groups[0].encoder.held(), 0);
    assert!(world.groups[0].queues.v4.capacity() < 100, "{}", world.groups[0].queues.v4.capacity());
}
