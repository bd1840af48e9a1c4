//! Two sessions under random faults, from seeds. Once the faults stop, both sessions come up, and each end has
//! exactly what the other announced.

use std::collections::BTreeSet;

use proptest::prelude::*;
use thalweg_bgp::session::config::GracefulRestartConfig;
use thalweg_bgp::session::{State, StopReason};
use thalweg_wire::bgp::{Family, write_end_of_rib};

use crate::net::{Net, announce, config, withdraw};

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Causes a random fault or other event.
fn fault(net: &mut Net, dice: &mut Dice) {
    let end = dice.roll(2) as usize;
    match dice.roll(14) {
        0 => net.cut(),
        1 => net.reachable = false,
        2 => net.reachable = true,
        3 => net.flowing[end] = false,
        4 => net.flowing[end] = true,
        5 => net.crash(end, true),
        6 => net.crash(end, false),
        7 => net.stop(end, StopReason::Reset { text: "by chance".into() }),
        8 => net.stop(end, StopReason::Shutdown { text: String::new() }),
        9 => net.slow_accept = !net.slow_accept,
        10 if net.ends[end].session.established().is_some() => {
            // Garbage, or the beginning of a message that never ends.
            let bytes: Vec<u8> = (0..dice.roll(40)).map(|_| dice.roll(256) as u8).collect();
            net.send(end, &bytes);
        }
        11 if net.ends[end].session.established().is_some() => {
            let third = dice.roll(200).to_string();
            let bytes = match dice.roll(3) {
                0 => withdraw(&[&format!("10.0.{third}.0/24")]),
                _ => announce(&[64_600 + end as u32], &[&format!("10.0.{third}.0/24")]),
            };
            net.send(end, &bytes);
        }
        12 => {
            net.ends[end].session.refresh(Family::Ipv4);
        }
        _ => net.ends[end].session.handle_start(net.now),
    }
    let scale = dice.roll(18);
    net.run_ms(dice.roll(1 << scale));
}

fn heal(net: &mut Net, minutes: u64) {
    (net.reachable, net.flowing, net.slow_accept) = (true, [true; 2], false);
    net.accept_waiting();
    for end in 0..2 {
        net.ends[end].session.handle_start(net.now);
    }
    net.run_ms(minutes * 60_000);
}

fn run(seed: u64, graceful: bool) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let configs = [0, 1].map(|end| {
        let mut config = config(end);
        config.capabilities.graceful_restart = graceful.then(GracefulRestartConfig::default);
        config.passive = end == 0 && seed.is_multiple_of(5);
        config
    });
    let [a, b] = configs;
    let mut net = Net::new(a, b, seed);
    let mut chunks = Dice(seed ^ 0x5555);
    net.chunk = Box::new(move || 1 + chunks.roll(60) as usize);
    net.start();
    for _ in 0..30 {
        fault(&mut net, &mut dice);
    }
    heal(&mut net, 12);
    let words = || net.ends[0].words() + "---\n" + &net.ends[1].words();
    prop_assert!(net.is_up(), "not up again:\n{}", words());

    // Both ends send their whole tables, as an export side does; exactly these must remain.
    for end in 0..2 {
        let mut bytes = Vec::new();
        let table: BTreeSet<String> = (0..dice.roll(5)).map(|n| format!("172.16.{}.0/24", n + 1)).collect();
        // Without a restart in between, the other end may still hold routes from before.
        let old = net.ends[1 - end].prefixes();
        old.iter().for_each(|prefix| bytes.extend(withdraw(&[prefix])));
        table.iter().for_each(|prefix| bytes.extend(announce(&[64_600 + end as u32], &[prefix])));
        write_end_of_rib(&mut bytes, Family::Ipv4);
        net.deliver(end, &bytes);
        prop_assert_eq!(net.ends[1 - end].prefixes(), table.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(net.ends[1 - end].session.stale_families(), [false; 2]);
    }
    prop_assert_eq!((net.state(0), net.state(1)), (State::Established, State::Established));
    net.run_ms(600_000);
    prop_assert!(net.is_up());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn sessions_are_up_again_after_any_faults(seed: u64, graceful: bool) {
        run(seed, graceful)?;
    }
}
