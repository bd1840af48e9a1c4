use super::*;
use crate::icmp::{echo_reply, echo_request};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SOURCE: &str = "192.0.2.1";

fn config(target: &str, fail: u8, pass: u8) -> CheckConfig {
    let gateway = "192.0.2.2".parse().unwrap();
    CheckConfig { port: 3, gateway, target: target.parse().unwrap(), every_ns: 100 * MS, fail, pass }
}

fn checks(configs: &[CheckConfig]) -> GatewayChecks {
    let mut checks = GatewayChecks::new(7);
    checks.set(configs, 0);
    checks
}

fn outputs(checks: &mut GatewayChecks) -> Vec<CheckOutput> {
    std::iter::from_fn(|| checks.poll_output()).collect()
}

/// The reply of a host to the request in the outputs.
fn answer(outputs: &[CheckOutput]) -> Vec<u8> {
    let sent = outputs.iter().find_map(|output| match output {
        CheckOutput::Send { check, echo } => Some((check.target, *echo)),
        CheckOutput::Changed { .. } => None,
    });
    let (target, echo) = sent.expect("a request");
    let source = if target.is_ipv4() { SOURCE } else { "2001:db8::1" };
    let request = echo_request(source.parse().unwrap(), target, echo).expect("one family");
    echo_reply(&request).expect("a host answers it")
}

fn news(outputs: &[CheckOutput]) -> Option<bool> {
    outputs.iter().find_map(|output| match output {
        CheckOutput::Changed { has_failed, .. } => Some(*has_failed),
        CheckOutput::Send { .. } => None,
    })
}

proptest! {
    /// Answered or not, in any pattern: the state is what the pattern says, and every change is told once.
    #[test]
    fn the_state_follows_the_answers(
        fail in 1u8..5, pass in 1u8..5, v6: bool, pattern in prop::collection::vec(any::<bool>(), 1..60),
    ) {
        let config = config(if v6 { "2001:db8::9" } else { "198.51.100.9" }, fail, pass);
        let mut checks = checks(&[config]);
        let (mut has_failed, mut told) = (false, false);
        for (step, is_answered) in pattern.iter().enumerate() {
            let now_ns = step as u64 * config.every_ns;
            prop_assert_eq!(checks.next_deadline(), Some(now_ns));
            checks.handle_timer(now_ns - now_ns.min(1));
            prop_assert!(step == 0 || outputs(&mut checks).is_empty(), "not before its time");
            checks.handle_timer(now_ns);
            let sent = outputs(&mut checks);
            told = news(&sent).unwrap_or(told);
            // The reference looks at the whole past each time.
            let run = |of: bool| pattern[..step].iter().rev().take_while(|each| **each == of).count();
            has_failed = match has_failed {
                false => run(false) >= usize::from(fail),
                true => run(true) < usize::from(pass),
            };
            prop_assert_eq!(told, has_failed);
            if *is_answered {
                let reply = answer(&sent);
                prop_assert!(checks.handle_packet(&reply, now_ns + 5 * MS));
                prop_assert!(checks.handle_packet(&reply, now_ns + 6 * MS), "a copy is taken, and counts for nothing");
                let after = outputs(&mut checks);
                told = news(&after).unwrap_or(told);
                prop_assert_eq!(told, has_failed && 1 + run(true) < usize::from(pass), "an answer counts at once");
                prop_assert_eq!(checks.view().next().unwrap().rtt_ns, Some(5 * MS));
            }
        }
        let view = checks.view().next().unwrap();
        prop_assert_eq!(view.requests, pattern.len() as u64);
        prop_assert_eq!(view.answers, pattern.iter().filter(|each| **each).count() as u64);
        prop_assert_eq!(view.state == CheckState::Failed, told);
    }

    #[test]
    fn nothing_else_is_an_answer(packet in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..80, bit in 0u8..8) {
        let mut checks = checks(&[config("198.51.100.9", 1, 1)]);
        checks.handle_timer(0);
        prop_assert!(!checks.handle_packet(&packet, 1));
        let mut reply = answer(&outputs(&mut checks));
        let length = reply.len();
        reply[at % length] ^= 1 << bit;
        prop_assert!(!checks.handle_packet(&reply, 1));
    }
}

#[test]
fn an_answer_from_elsewhere_or_too_late_does_not_count() {
    let mut checks = checks(&[config("198.51.100.9", 2, 1)]);
    checks.handle_timer(0);
    let first = answer(&outputs(&mut checks));
    checks.handle_timer(100 * MS);
    assert!(!checks.handle_packet(&first, 101 * MS), "the next request is under way");
    let sent = outputs(&mut checks);
    let CheckOutput::Send { echo, .. } = sent[0] else { panic!("{sent:?}") };
    let (source, stranger) = (SOURCE.parse().unwrap(), "203.0.113.7".parse().unwrap());
    let forged = echo_reply(&echo_request(source, stranger, echo).unwrap()).unwrap();
    assert!(!checks.handle_packet(&forged, 102 * MS));
    checks.handle_timer(200 * MS);
    assert_eq!(news(&outputs(&mut checks)), Some(true));
}

#[test]
fn a_new_configuration_keeps_what_is_known() {
    let old = config("198.51.100.9", 1, 3);
    let mut checks = checks(&[old, config("198.51.100.10", 1, 1)]);
    checks.handle_timer(0);
    checks.handle_timer(100 * MS);
    assert_eq!(checks.view().map(|view| view.state).collect::<Vec<_>>(), [CheckState::Failed; 2]);
    outputs(&mut checks);
    // The second goes: its gateway is usable again. The first needs one answer less.
    let new = CheckConfig { pass: 1, every_ns: 50 * MS, ..old };
    checks.set(&[new], 110 * MS);
    assert_eq!(news(&outputs(&mut checks)), Some(false));
    assert_eq!(checks.next_deadline(), Some(160 * MS));
    assert_eq!(checks.view().next().unwrap().state, CheckState::Failed);
    checks.handle_timer(160 * MS);
    let reply = answer(&outputs(&mut checks));
    checks.handle_packet(&reply, 161 * MS);
    assert_eq!(news(&outputs(&mut checks)), Some(false));
    checks.set(&[], 170 * MS);
    assert_eq!((checks.next_deadline(), checks.poll_output()), (None, None));
}
