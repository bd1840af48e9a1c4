//! Known answers first; then properties, and whole scenarios on virtual time.

mod properties;
mod scenarios;

use super::*;
use crate::schedule::Service;
use thalweg_base::DropReason;

const MS: u64 = 1_000_000;

fn class(name: &str, service: Service) -> EgressClass {
    EgressClass { name: name.to_owned(), service, aqm: None, ..EgressClass::default() }
}

fn strict(level: u8) -> EgressClass {
    class(&format!("strict {level}"), Service::Strict(level))
}

fn weighted(weight: u16) -> EgressClass {
    class(&format!("weight {weight}"), Service::Weight(weight))
}

fn port(classes: Vec<EgressClass>) -> EgressConfig {
    EgressConfig { classes, ..EgressConfig::default() }
}

/// The next packet of a queue in which nothing can be marked or managed.
fn next<T>(queue: &mut EgressQueue<T>, now_ns: u64) -> Next<T> {
    queue.dequeue(now_ns, &mut |_| false, &mut |_, _, _| panic!("nothing is to be dropped here"))
}

fn put(queue: &mut EgressQueue<u32>, class: u8, items: std::ops::Range<u32>) {
    for item in items {
        assert_eq!(queue.enqueue(class, item, 1000, 0), Ok(()));
    }
}

/// The packets that leave an unshaped port.
fn drain(queue: &mut EgressQueue<u32>) -> Vec<u32> {
    std::iter::from_fn(|| match next(queue, 0) {
        Next::Packet { item, .. } => Some(item),
        Next::Wait { .. } => panic!("an unshaped port never makes packets wait"),
        Next::Empty => None,
    })
    .collect()
}

#[test]
fn strict_levels_come_first_and_keep_their_order() {
    let mut queue = EgressQueue::new(port(vec![weighted(1), strict(1), strict(0)]));
    put(&mut queue, 0, 0..2);
    put(&mut queue, 1, 10..12);
    put(&mut queue, 2, 20..22);
    assert_eq!(drain(&mut queue), [20, 21, 10, 11, 0, 1]);
    assert!(matches!(next(&mut queue, 5), Next::Empty));
}

#[test]
fn what_arrives_later_with_priority_leaves_first() {
    let mut queue = EgressQueue::new(port(vec![strict(0), weighted(1)]));
    put(&mut queue, 1, 0..3);
    assert!(matches!(next(&mut queue, 0), Next::Packet { item: 0, class: 1, .. }));
    put(&mut queue, 0, 10..11);
    assert_eq!(drain(&mut queue), [10, 1, 2]);
}

#[test]
fn urgent_packets_go_before_every_class_at_the_ports_rate() {
    let mut queue = EgressQueue::new(EgressConfig {
        rate_bps: Some(8_000_000),
        burst_bytes: 1000,
        overhead_bytes: 0,
        ..port(vec![strict(0), weighted(1)])
    });
    put(&mut queue, 0, 0..2);
    put(&mut queue, 1, 10..12);
    assert_eq!(queue.enqueue_urgent(1, 20, 1000, 0), Ok(()));
    assert_eq!(queue.enqueue_urgent(9, 21, 1000, 0), Ok(()));
    let mut order = Vec::new();
    let mut now_ns = 0;
    loop {
        match next(&mut queue, now_ns) {
            Next::Packet { item, .. } => order.push((now_ns / MS, item)),
            Next::Wait { until_ns } => now_ns = until_ns,
            Next::Empty => break,
        }
    }
    assert_eq!(order, [(0, 20), (1, 21), (2, 0), (3, 1), (4, 10), (5, 11)]);
    let sent: Vec<_> = queue.counters().map(|counters| counters.sent).collect();
    assert_eq!(sent, [3, 3], "an unknown class is the default one");

    for item in 0..URGENT_MAX as u32 {
        assert_eq!(queue.enqueue_urgent(1, item, 100, now_ns), Ok(()));
    }
    assert_eq!(queue.enqueue_urgent(1, 99, 100, now_ns), Err((99, DropReason::QueueFull)));
    // Earlier urgent packets stay before the packets of their class.
    put(&mut queue, 1, 100..101);
    queue.set_config(port(vec![weighted(1)]), now_ns);
    let left: Vec<_> = drain(&mut queue);
    assert_eq!(left, (0..URGENT_MAX as u32).chain([100]).collect::<Vec<_>>());
    assert!(queue.counters().all(ClassCounters::is_conserved));
    assert_eq!(queue.enqueue_urgent(0, 1, 100, now_ns), Ok(()));
    let mut purged = Vec::new();
    queue.purge(&mut |item, class| purged.push((item, class)));
    assert_eq!((purged, queue.waiting()), (vec![(1, 0)], 0));
    assert!(queue.counters().all(ClassCounters::is_conserved));
}

#[test]
fn classes_of_one_level_take_turns() {
    let mut queue = EgressQueue::new(port(vec![strict(3), strict(3)]));
    put(&mut queue, 0, 0..4);
    put(&mut queue, 1, 10..14);
    // Turns of 2048 bytes: two packets of 1000.
    assert_eq!(drain(&mut queue), [0, 1, 10, 11, 2, 3, 12, 13]);
}

#[test]
fn a_flood_of_priority_leaves_the_others_their_tenth() {
    let mut queue = EgressQueue::new(port(vec![strict(0), weighted(1)]));
    let mut sent = [0u64; 2];
    for item in 0..20_000 {
        let _ = queue.enqueue(0, item, 1000, 0);
        let _ = queue.enqueue(1, item, 1000, 0);
        if let Next::Packet { class, .. } = next(&mut queue, 0) {
            sent[usize::from(class)] += 1;
        }
    }
    // 64 strict KiB more than the share, at first.
    assert!((1_990..=2_000).contains(&sent[1]), "{sent:?}");
    // Without waiting weighted packets there is no bound.
    queue.purge(&mut |_, _| {});
    put(&mut queue, 0, 0..900);
    assert_eq!(drain(&mut queue).len(), 900);
    assert!(queue.counters().all(ClassCounters::is_conserved));
}

#[test]
fn priority_saves_no_more_than_a_run() {
    let mut queue = EgressQueue::new(port(vec![strict(0), weighted(1)]));
    // Many weighted packets earn strict ones only a limited credit.
    for item in 0..2_000 {
        put(&mut queue, 1, item..item + 1);
        assert!(matches!(next(&mut queue, 0), Next::Packet { class: 1, .. }));
    }
    put(&mut queue, 1, 0..10);
    put(&mut queue, 0, 0..200);
    let run = (0..200).take_while(|_| matches!(next(&mut queue, 0), Next::Packet { class: 0, .. })).count();
    // 65,536 bytes, and the packet that exceeds them.
    assert_eq!(run, 66);
}

#[test]
fn turns_are_in_proportion_to_weights_and_no_longer() {
    // 100 to 300 is 1 to 3: turns of 2048 and 6144 bytes; the rest of one counts in the next.
    let mut queue = EgressQueue::new(port(vec![weighted(100), weighted(300)]));
    put(&mut queue, 0, 0..5);
    put(&mut queue, 1, 10..24);
    let order = drain(&mut queue);
    assert_eq!(order[..16], [0, 1, 10, 11, 12, 13, 14, 15, 2, 3, 16, 17, 18, 19, 20, 21]);
}

#[test]
fn a_turn_is_long_enough_for_the_largest_packet() {
    let mut queue = EgressQueue::new(port(vec![weighted(1), class("other", weighted(1).service)]));
    for item in 0..3 {
        assert_eq!(queue.enqueue(0, item, 9000, 0), Ok(()));
    }
    put(&mut queue, 1, 10..30);
    let order = drain(&mut queue);
    assert_eq!(order[..11], [0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 1]);
}

#[test]
fn a_class_that_ran_empty_has_no_turn_left_over() {
    let mut queue = EgressQueue::new(port(vec![weighted(1), class("other", weighted(1).service)]));
    for item in 0..100 {
        put(&mut queue, 0, item..item + 1);
        assert!(matches!(next(&mut queue, 0), Next::Packet { class: 0, .. }));
    }
    put(&mut queue, 0, 0..10);
    put(&mut queue, 1, 20..30);
    assert_eq!(drain(&mut queue)[..4], [0, 1, 20, 21]);
}

#[test]
fn a_share_of_a_hundred_is_no_bound() {
    let mut config = port(vec![strict(0), weighted(1)]);
    config.strict_share_percent = 100;
    let mut queue = EgressQueue::new(config);
    for item in 0..5_000 {
        assert_eq!(queue.enqueue(0, item, 1000, 0), Ok(()));
        let _ = queue.enqueue(1, item, 1000, 0);
        assert!(matches!(next(&mut queue, 0), Next::Packet { class: 0, .. }));
    }
}

#[test]
fn a_full_queue_hands_the_packet_back() {
    let mut limited = weighted(1);
    limited.limit_packets = 2;
    limited.limit_bytes = 2_500;
    let mut queue = EgressQueue::new(port(vec![limited]));
    assert_eq!(queue.enqueue(0, 'a', 1000, 0), Ok(()));
    assert_eq!(queue.enqueue(0, 'b', 1501, 0), Err(('b', DropReason::QueueFull)));
    assert_eq!(queue.enqueue(0, 'c', 1500, 0), Ok(()));
    assert_eq!(queue.enqueue(0, 'd', 0, 0), Err(('d', DropReason::QueueFull)));
    let counters = queue.counters().next().expect("one class");
    assert_eq!((counters.enqueued, counters.dropped_full, counters.waiting_packets), (4, 2, 2));
    assert_eq!((counters.highest_packets, counters.highest_bytes), (2, 2_500));
    assert!(counters.is_conserved());
}

#[test]
fn an_unknown_class_is_the_default_one() {
    let mut config = port(vec![strict(0), weighted(1)]);
    config.default_class = 1;
    let mut queue = EgressQueue::new(config);
    assert_eq!(queue.enqueue(77, 5, 100, 0), Ok(()));
    assert!(matches!(next(&mut queue, 0), Next::Packet { item: 5, class: 1, .. }));
}

#[test]
fn a_shaped_port_tells_the_first_nanosecond_at_which_something_may_leave() {
    let mut config = port(vec![strict(0), weighted(1)]);
    // 1 byte a microsecond; each packet of 976 takes 1000 on the line.
    (config.rate_bps, config.burst_bytes, config.overhead_bytes) = (Some(8_000_000), 1_000, 24);
    let mut queue = EgressQueue::new(config);
    for item in 0..3 {
        assert_eq!(queue.enqueue(1, item, 976, 0), Ok(()));
    }
    assert!(matches!(next(&mut queue, 0), Next::Packet { item: 0, sojourn_ns: 0, .. }));
    assert_eq!(next(&mut queue, 0), Next::Wait { until_ns: MS });
    assert_eq!(next(&mut queue, MS - 1), Next::Wait { until_ns: MS });
    assert_eq!(next(&mut queue, MS), Next::Packet { item: 1, class: 1, sojourn_ns: MS });
    // A small packet with priority need not wait as long as the large one that was next.
    assert_eq!(next(&mut queue, MS), Next::Wait { until_ns: 2 * MS });
    assert_eq!(queue.enqueue(0, 9, 76, MS), Ok(()));
    assert_eq!(next(&mut queue, MS), Next::Wait { until_ns: MS + MS / 10 });
    assert_eq!(next(&mut queue, MS + MS / 10), Next::Packet { item: 9, class: 0, sojourn_ns: MS / 10 });
    assert_eq!(next(&mut queue, 2 * MS), Next::Wait { until_ns: 2 * MS + MS / 10 });
    let bytes: Vec<u64> = queue.counters().map(|counters| counters.bytes).collect();
    assert_eq!(bytes, [76, 2 * 976]);
}

#[test]
fn a_class_that_is_held_gives_its_place_to_others() {
    let mut held = strict(0);
    (held.rate_bps, held.burst_bytes) = (Some(8_000_000), 1_000);
    let mut queue = EgressQueue::new(port(vec![held, weighted(1)]));
    put(&mut queue, 0, 0..3);
    put(&mut queue, 1, 10..12);
    assert!(matches!(next(&mut queue, 0), Next::Packet { item: 0, .. }));
    assert!(matches!(next(&mut queue, 0), Next::Packet { item: 10, .. }));
    assert!(matches!(next(&mut queue, MS), Next::Packet { item: 1, .. }));
    assert!(matches!(next(&mut queue, MS), Next::Packet { item: 11, .. }));
    assert_eq!(next(&mut queue, MS), Next::Wait { until_ns: 2 * MS });
    assert!(matches!(next(&mut queue, 2 * MS), Next::Packet { item: 2, .. }));
    assert!(matches!(next(&mut queue, 2 * MS), Next::Empty));
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut config = port(vec![weighted(1)]);
    (config.rate_bps, config.burst_bytes) = (Some(8_000_000), 1_000);
    let mut queue = EgressQueue::new(config);
    assert_eq!(queue.enqueue(0, 1, 1000, 50 * MS), Ok(()));
    assert_eq!(queue.enqueue(0, 2, 1000, 3), Ok(()));
    assert!(matches!(next(&mut queue, 7), Next::Packet { item: 1, sojourn_ns: 0, .. }));
    assert_eq!(next(&mut queue, 0), Next::Wait { until_ns: 51 * MS });
}

#[test]
fn a_new_configuration_finds_its_classes_by_name() {
    let mut queue = EgressQueue::new(port(vec![strict(0), weighted(1), weighted(2)]));
    for (now_ns, (class, item)) in (0..).zip([(1, 10), (2, 20), (1, 11), (2, 21), (0, 0)]) {
        assert_eq!(queue.enqueue(class, item, 1000, now_ns), Ok(()));
    }
    // `weight 1` is gone; its packets go to the default class, `weight 2`, by time of arrival.
    let mut config = port(vec![weighted(2), strict(0)]);
    config.classes[0].limit_packets = 1;
    queue.set_config(config, 100);
    assert_eq!(queue.waiting(), 5);
    assert_eq!(queue.enqueue(0, 99, 1000, 100), Err((99, DropReason::QueueFull)));
    assert_eq!(drain(&mut queue), [0, 10, 20, 11, 21]);
    let counters: Vec<(u64, u64, u64)> =
        queue.counters().map(|c| (c.enqueued, c.sent, c.dropped_full)).collect();
    assert_eq!(counters, [(5, 4, 1), (1, 1, 0)]);
}

#[test]
fn purging_is_booked() {
    let mut queue = EgressQueue::new(port(vec![strict(0), weighted(1)]));
    put(&mut queue, 0, 0..2);
    put(&mut queue, 1, 10..13);
    let mut taken = Vec::new();
    queue.purge(&mut |item, class| taken.push((item, class)));
    assert_eq!(taken, [(0, 0), (1, 0), (10, 1), (11, 1), (12, 1)]);
    assert!(matches!(next(&mut queue, 0), Next::Empty));
    assert!(queue.counters().all(|c| c.is_conserved() && c.purged > 0 && c.waiting_bytes == 0));
    put(&mut queue, 1, 20..21);
    assert_eq!(drain(&mut queue), [20]);
}

#[test]
fn signals_are_marks_where_the_packet_can_carry_them_and_drops_elsewhere() {
    let mut config = port(vec![weighted(1)]);
    config.classes[0].aqm = Some(Aqm::default());
    (config.rate_bps, config.burst_bytes) = (Some(8_000_000), 1_000);
    let mut queue = EgressQueue::new(config);
    let (mut marked, mut dropped) = (Vec::new(), Vec::new());
    // A packet leaves every millisecond; 50 wait from the start and one arrives for each that leaves. Even ones are
    // ECN-capable.
    let mut item = 0u64;
    let mut now_ns = 0;
    while now_ns < 400 * MS {
        while queue.waiting() < 50 {
            assert_eq!(queue.enqueue(0, item, 1000, now_ns), Ok(()));
            item += 1;
        }
        let mut mark = |item: &mut u64| {
            let understands = item.is_multiple_of(2);
            if understands {
                marked.push(*item);
            }
            understands
        };
        let mut drop = |item: u64, class: u8, reason: DropReason| {
            assert_eq!((class, reason), (0, DropReason::QueueManaged));
            dropped.push(item);
        };
        if let Next::Wait { until_ns } = queue.dequeue(now_ns, &mut mark, &mut drop) {
            now_ns = until_ns;
        }
    }
    let counters = queue.counters().next().expect("one class");
    assert_eq!((counters.marked, counters.dropped_managed), (marked.len() as u64, dropped.len() as u64));
    assert!(marked.len() + dropped.len() >= 5 && !marked.is_empty() && !dropped.is_empty());
    assert!(dropped.iter().all(|item| item % 2 == 1));
    assert!(counters.is_conserved());
}
