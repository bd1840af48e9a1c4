//! A router and its tables between authentic datagrams of any content, as a broken peer might send them, turns of its
//! protocol, and changes of its role.
//!
//! What is sent is bounded, and the tables stay consistent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_base::OneThread;
use thalweg_dataplane::firewall::{FirewallConfig, FirewallRules, FirewallStage, Policy, StateTimeouts};
use thalweg_dataplane::helpers::Helpers;
use thalweg_dataplane::nat::{Cursor, NatConfig, NatStage, testing};
use thalweg_dataplane::standby::{Standby, StandbyRun, Tables};

const SHARDS: u16 = 4;
/// More than one turn may send.
const DATAGRAMS_MAX: usize = 300;

fn firewall() -> FirewallConfig {
    FirewallConfig {
        zones: vec![1, 2],
        outside: vec![2],
        policy: Policy::OutgoingOnly,
        rules: Vec::new(),
        states_max: 64,
        half_open_max: Some(8),
        checks_windows: true,
        picks_up: false,
        timeouts: StateTimeouts::DEFAULT,
        helpers: Helpers::default(),
    }
}

/// As many sessions and states are shown as are counted.
fn check(nat: &NatStage, firewall: &FirewallStage<OneThread>, now_ns: u64) {
    nat.advance(now_ns);
    firewall.advance(now_ns);
    let (mut sessions, mut next) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = next {
        next = nat.sessions(from, now_ns, |_| true, &mut sessions);
    }
    assert_eq!(sessions.len() as u64, nat.counters().sessions_active);
    let (mut states, mut next) = (Vec::new(), Some((0, 0)));
    while let Some(from) = next {
        next = firewall.states(from, now_ns, |_| true, &mut states);
    }
    assert_eq!(states.len() as u64, firewall.counters().states_active);
}

fuzz_target!(|input: &[u8]| {
    let config = NatConfig { sessions_max: 64, shards: SHARDS, ..testing::config(2) };
    let nat: NatStage = NatStage::new(&config).expect("a valid configuration");
    let stage: FirewallStage<OneThread> = FirewallStage::new(&firewall(), SHARDS, 7);
    let rules = FirewallRules::compile(&firewall(), 0).expect("rules").with_vrfs(vec![1, 0]);
    let (sessions, states) = (nat.copies(), stage.copies(&rules, true));
    let mut now_ns = 1_000_000_000_000;
    let mut standby = Standby::new(StandbyRun { number: 1, secret: 3 }, now_ns);
    let mut sequence = 0u64;
    let mut rest = input;
    while let [what, length, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        if what & 7 == 1 {
            now_ns += u64::from(*length) * 100_000_000;
        }
        let tables = Tables { sessions: Some(&sessions), states: Some(&states), now_ns };
        match what & 7 {
            0 => standby.set_active(what & 8 != 0, now_ns),
            1 => standby.handle_timer(&tables),
            2 => standby.handle(body, &tables),
            _ => {
                sequence += 1;
                let mut datagram = b"TWS1".to_vec();
                [2, 1, sequence].iter().for_each(|number: &u64| datagram.extend(number.to_be_bytes()));
                datagram.extend(body);
                standby.handle(&datagram, &tables);
            }
        }
        let sent = std::iter::from_fn(|| standby.poll_output()).count();
        assert!(sent <= DATAGRAMS_MAX, "{sent} datagrams");
        check(&nat, &stage, now_ns);
    }
});
