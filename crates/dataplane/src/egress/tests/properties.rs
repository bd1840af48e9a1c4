//! Properties that hold for any classes and any arrivals.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Classes of any kind, each with a name of its own.
fn classes(most: usize) -> impl Strategy<Value = Vec<EgressClass>> {
    let service = prop_oneof![(0u8..3).prop_map(Service::Strict), (1u16..20).prop_map(Service::Weight),];
    let rate = prop_oneof![3 => Just(None), 1 => (1_000_000u64..80_000_000).prop_map(Some)];
    let aqm = prop_oneof![
        Just(None),
        (0u32..3_000, 1u32..20, any::<bool>()).prop_map(|(target_us, interval_ms, ecn)| Some(Aqm {
            target_us,
            interval_ms,
            ecn
        })),
    ];
    let class = (service, rate, 0u32..4_000, 1u32..40, 1_500u32..40_000, aqm);
    proptest::collection::vec((class, 0u8..12), 1..most).prop_map(|classes| {
        let mut seen = Vec::new();
        let mut result = Vec::new();
        for ((service, rate_bps, burst_bytes, limit_packets, limit_bytes, aqm), name) in classes {
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            let name = name.to_string();
            result.push(EgressClass {
                name,
                service,
                rate_bps,
                burst_bytes,
                limit_packets,
                limit_bytes,
                aqm,
            });
        }
        result
    })
}

fn config() -> impl Strategy<Value = EgressConfig> {
    let rate = prop_oneof![Just(None), (1_000_000u64..200_000_000).prop_map(Some)];
    (classes(8), rate, 0u32..20_000, 0u16..40, 1u8..=100, any::<u8>()).prop_map(
        |(classes, rate_bps, burst_bytes, overhead_bytes, strict_share_percent, default_class)| {
            let default_class = default_class % classes.len() as u8;
            EgressConfig {
                rate_bps,
                burst_bytes,
                overhead_bytes,
                strict_share_percent,
                default_class,
                classes,
            }
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue { class: u8, len: u32, gap_ns: u64 },
    Dequeue { gap_ns: u64 },
    DequeueAtItsTime,
    Reload(EgressConfig),
    Purge,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        30 => (0u8..9, 0u32..2_000, 0u64..100_000)
            .prop_map(|(class, len, gap_ns)| Step::Enqueue { class, len, gap_ns }),
        15 => (0u64..200_000).prop_map(|gap_ns| Step::Dequeue { gap_ns }),
        10 => Just(Step::DequeueAtItsTime),
        1 => config().prop_map(Step::Reload),
        1 => Just(Step::Purge),
    ];
    proptest::collection::vec(step, 1..300)
}

/// The expected contents of the queues, in a simple form.
struct Reference {
    /// (name, packets) in class order; a packet is its number, which is also its order of arrival.
    classes: Vec<(String, VecDeque<u64>)>,
    default_class: usize,
}

impl Reference {
    fn reload(&mut self, config: &EgressConfig) {
        let mut old = std::mem::take(&mut self.classes);
        self.default_class = usize::from(config.default_class);
        for class in &config.classes {
            let place = old.iter().position(|(name, _)| *name == class.name);
            let packets = place.map_or_else(VecDeque::new, |place| old.remove(place).1);
            self.classes.push((class.name.clone(), packets));
        }
        let heir = &mut self.classes[self.default_class].1;
        heir.extend(old.into_iter().flat_map(|(_, packets)| packets));
        heir.make_contiguous().sort_unstable();
    }

    fn take_first(&mut self, class: u8, number: u64) {
        assert_eq!(self.classes[usize::from(class)].1.pop_front(), Some(number), "class {class}");
    }
}

fn check(queue: &EgressQueue<u64>, reference: &Reference) {
    for (counters, (name, packets)) in queue.counters().zip(&reference.classes) {
        assert!(counters.is_conserved(), "{name}: {counters:?}");
        assert_eq!(counters.waiting_packets, packets.len() as u64, "{name}");
        assert!(counters.highest_packets >= counters.waiting_packets);
    }
}

/// Takes a packet, or returns how long to wait.
fn take(queue: &mut EgressQueue<u64>, reference: &mut Reference, now_ns: u64) -> Option<u64> {
    let mut gone = Vec::new();
    let next = queue.dequeue(now_ns, &mut |number| *number % 3 == 0, &mut |number, class, reason| {
        assert_eq!(reason, DropReason::QueueManaged);
        gone.push((class, number));
    });
    for (class, number) in gone {
        reference.take_first(class, number);
    }
    match next {
        Next::Packet { item, class, .. } => reference.take_first(class, item),
        Next::Wait { until_ns } => {
            assert!(until_ns > now_ns);
            return Some(until_ns);
        }
        Next::Empty => assert!(reference.classes.iter().all(|(_, packets)| packets.is_empty())),
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Each class is a queue in order, whatever else happens; each packet ends in one way; the counters agree at
    /// every moment; and all waiting packets leave in the end.
    #[test]
    fn every_packet_is_accounted_for_at_every_moment(first in config(), steps in steps()) {
        let mut reference = Reference { classes: Vec::new(), default_class: 0 };
        reference.reload(&first);
        let mut queue = EgressQueue::new(first);
        let (mut now_ns, mut number, mut until) = (0u64, 0u64, None);
        for step in steps {
            match step {
                Step::Enqueue { class, len, gap_ns } => {
                    now_ns += gap_ns + 1;
                    number += 1;
                    if queue.enqueue(class, number, len, now_ns).is_ok() {
                        let known = usize::from(class) < reference.classes.len();
                        let place = if known { usize::from(class) } else { reference.default_class };
                        reference.classes[place].1.push_back(number);
                    }
                }
                Step::Dequeue { gap_ns } => {
                    now_ns += gap_ns;
                    until = take(&mut queue, &mut reference, now_ns);
                }
                Step::DequeueAtItsTime => {
                    now_ns = now_ns.max(until.unwrap_or(0));
                    until = take(&mut queue, &mut reference, now_ns);
                }
                Step::Reload(config) => {
                    reference.reload(&config);
                    queue.set_config(config, now_ns);
                }
                Step::Purge => queue.purge(&mut |number, class| reference.take_first(class, number)),
            }
            check(&queue, &reference);
        }
        for _ in 0..100_000 {
            if queue.waiting() == 0 { break; }
            if let Some(until_ns) = take(&mut queue, &mut reference, now_ns) { now_ns = until_ns; }
        }
        prop_assert_eq!(queue.waiting(), 0);
        check(&queue, &reference);
    }

    /// Deficit round robin compared with the fluid ideal: the shares of always busy classes, per unit of weight,
    /// differ at every moment by less than a turn and a packet each.
    #[test]
    fn weights_are_shares_of_bytes(
        weights in proptest::collection::vec(1u16..40, 2..6),
        sizes in proptest::collection::vec(1u32..1_515, 1..50),
        overhead in 0u16..40,
    ) {
        let mut all: Vec<EgressClass> = weights.iter().map(|w| weighted(*w)).collect();
        for (number, class) in all.iter_mut().enumerate() { class.name = number.to_string(); }
        let mut queue = EgressQueue::new(EgressConfig { overhead_bytes: overhead, ..port(all) });
        let mut size = sizes.iter().copied().cycle();
        let mut put = |queue: &mut EgressQueue<u32>, class: usize| {
            let len = size.next().unwrap_or(1);
            queue.enqueue(class as u8, len, len, 0).is_ok()
        };
        for class in 0..weights.len() {
            prop_assert!(put(&mut queue, class) && put(&mut queue, class));
        }
        let mut served = vec![0f64; weights.len()];
        let least = f64::from(*weights.iter().min().unwrap_or(&1));
        for _ in 0..3_000 {
            let Next::Packet { item, class, .. } = next(&mut queue, 0) else { panic!("the queue is never empty") };
            let class = usize::from(class);
            served[class] += f64::from(item + u32::from(overhead));
            prop_assert!(put(&mut queue, class));
            for (i, wi) in weights.iter().enumerate() {
                for (j, wj) in weights.iter().enumerate() {
                    let (wi, wj) = (f64::from(*wi), f64::from(*wj));
                    let bound = 2_048.0 / least + 1_554.0 / wi + 1_554.0 / wj;
                    let apart = (served[i] / wi - served[j] / wj).abs();
                    prop_assert!(apart <= bound, "{apart} > {bound}: {served:?} of {weights:?}");
                }
            }
        }
    }

    /// A lower level never goes before a waiting higher one, except for the bound on strict classes. That bound
    /// holds: of what leaves while weighted packets wait, strict ones have no more than their share, a run and a
    /// packet.
    #[test]
    fn priority_holds_within_its_bound(
        share in 1u8..=100,
        arrivals in proptest::collection::vec((0u8..4, 40u32..1_515, 0usize..3), 1..1_500),
    ) {
        let mut config = port(vec![strict(0), strict(4), weighted(1), weighted(3)]);
        config.strict_share_percent = share;
        let mut queue = EgressQueue::new(config);
        let mut waiting = [0u32; 4];
        let (mut strict_bytes, mut weighted_bytes) = (0u64, 0u64);
        for (class, len, takes) in arrivals {
            if queue.enqueue(class, len, len, 0).is_ok() { waiting[usize::from(class)] += 1; }
            for _ in 0..takes {
                let Next::Packet { item, class, .. } = next(&mut queue, 0) else { break };
                let weighted_waits = waiting[2] + waiting[3] > 0;
                match class {
                    0 | 1 if weighted_waits => strict_bytes += u64::from(item),
                    2 | 3 => weighted_bytes += u64::from(item),
                    _ => {}
                }
                if class == 1 { prop_assert_eq!(waiting[0], 0); }
                if class >= 2 && share == 100 { prop_assert_eq!(waiting[0] + waiting[1], 0); }
                waiting[usize::from(class)] -= 1;
                let rest = 100 - u64::from(share);
                let may = u64::from(share) * weighted_bytes + (65_536 + 1_514) * rest;
                prop_assert!(strict_bytes * rest <= may);
            }
        }
    }

    /// A shaped port: never idle while it could send, never above its rate, and woken at the right time.
    #[test]
    fn shaping_is_exact(
        rate in 100_000u64..2_000_000_000, burst in 0u32..20_000, class_rate in proptest::option::of(100_000u64..2_000_000_000),
        overhead in 0u16..40, sizes in proptest::collection::vec((0u8..2, 1u32..1_515), 1..200),
    ) {
        let mut held = strict(0);
        (held.rate_bps, held.burst_bytes) = (class_rate, burst / 2);
        let mut config = port(vec![held, weighted(1)]);
        (config.rate_bps, config.burst_bytes, config.overhead_bytes) = (Some(rate), burst, overhead);
        let mut queue = EgressQueue::new(config);
        for (class, len) in &sizes { prop_assert!(queue.enqueue(*class, *len, *len, 0).is_ok()); }
        let mut now_ns = 0u64;
        let mut charged = [0u128; 2];
        let mut woken = false;
        loop {
            match next(&mut queue, now_ns) {
                Next::Packet { item, class, .. } => {
                    charged[usize::from(class)] += u128::from(item + u32::from(overhead));
                    woken = false;
                }
                Next::Wait { until_ns } => {
                    prop_assert!(until_ns > now_ns && !woken);
                    prop_assert_eq!(next(&mut queue, until_ns - 1), Next::Wait { until_ns });
                    // If no class is held by its own bucket, the time is the port's, to the nanosecond.
                    woken = class_rate.is_none();
                    now_ns = until_ns;
                }
                Next::Empty => break,
            }
            let limits = [(class_rate, burst / 2, charged[0]), (Some(rate), burst, charged[0] + charged[1])];
            for (rate, burst, charged) in limits {
                let Some(rate) = rate else { continue };
                let burst = u128::from(burst).max(u128::from(1_514 + overhead));
                let may = burst * 8_000_000_000 + u128::from(rate) * u128::from(now_ns);
                prop_assert!(charged * 8_000_000_000 <= may);
            }
        }
    }
}
