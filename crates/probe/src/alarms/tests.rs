//! The judge alone, second by second. Alarms of whole captures are in `tests/alarms.rs`.

use super::tally::Tally;
use super::*;
use thalweg_flow::alarm::{AlarmRule, Baseline, ENDED, Measure, RAISED};
use thalweg_store::query::RawValue;

const START: u64 = 1_700_000_000;

fn rule() -> AlarmRule {
    AlarmRule {
        name: "many".to_owned(),
        key: "dst-port".to_owned(),
        filter: String::new(),
        measure: Measure::Packets,
        above: 100,
        below: 50,
        baseline: None,
        window_s: 1,
        for_s: 0,
        clear_s: 2,
        silence_s: 0,
        blackhole: None,
    }
}

fn told(judge: &[Rule], interval: u64, values: &[(u32, u64)]) -> Told {
    let mut tallies = watcher::tallies(judge, 64, 64);
    for tally in &mut tallies {
        let Tally::Heavy(heavy) = tally else { continue };
        values.iter().for_each(|(key, amount)| heavy.add(RawValue::Number(*key), *amount));
    }
    Told { interval, tallies }
}

/// Seconds with the packets of port 7, and what is told: the second's number and the event.
fn events_of(rule: AlarmRule, seconds: &[u64]) -> Vec<(u64, String)> {
    let rules = Rule::all(&[rule]).expect("a rule");
    let mut judge = Judge::new(Arc::clone(&rules));
    let mut events = Vec::new();
    for (second, packets) in (0..).zip(seconds) {
        if *packets > 0 {
            judge.take(told(&rules, START + second, &[(7, *packets)]));
        }
        judge.judge_until(START + second + 1);
        events.extend(judge.events.drain(..).map(|event| (second, event.event)));
    }
    events
}

fn said(events: &[(u64, &str)]) -> Vec<(u64, String)> {
    events.iter().map(|(second, event)| (*second, (*event).to_owned())).collect()
}

#[test]
fn an_alarm_has_a_duration_a_hysteresis_and_a_silence() {
    // Above for one second; between the thresholds; below for one and for two seconds.
    let packets = [10, 101, 60, 40, 60, 40, 0, 10];
    assert_eq!(events_of(rule(), &packets), said(&[(1, RAISED), (6, ENDED)]));
    let slow = AlarmRule { for_s: 3, ..rule() };
    assert_eq!(events_of(slow.clone(), &[200, 200, 10, 200, 200, 200, 200]), said(&[(5, RAISED)]));
    assert_eq!(events_of(slow, &[200, 200, 0, 200, 200]), said(&[]));
    // A window is judged at its end, by its mean.
    let wide = AlarmRule { window_s: 5, clear_s: 1, ..rule() };
    assert_eq!(events_of(wide, &[400, 0, 0, 0, 200, 200, 0, 0, 0, 0]), said(&[(4, RAISED), (9, ENDED)]));
    let silent = AlarmRule { clear_s: 1, silence_s: 3, ..rule() };
    let packets = [200, 0, 200, 0, 0, 0, 0, 200, 0];
    let expected = said(&[(0, RAISED), (1, ENDED), (7, RAISED), (8, ENDED)]);
    assert_eq!(events_of(silent, &packets), expected);
}

#[test]
fn what_is_usual_raises_the_threshold_and_an_attack_does_not_become_usual() {
    let baseline = Some(Baseline { factor: 3, window_s: 4 });
    let rule = AlarmRule { baseline, ..rule() };
    // 90 a second is below the threshold until it is usual; then 200 is not three times as much, but 400 is.
    let mut packets = vec![90; 30];
    packets.extend([200, 400, 400, 400, 400, 90, 40, 40, 40]);
    assert_eq!(events_of(rule.clone(), &packets), said(&[(31, RAISED), (37, ENDED)]));
    // Without a past, the threshold alone counts.
    assert_eq!(events_of(rule, &[200]), said(&[(0, RAISED)]));
}

#[test]
fn seconds_of_shards_add_up_in_any_order() {
    let rules = Rule::all(&[rule()]).expect("a rule");
    let shards: Vec<(u64, [(u32, u64); 2])> = vec![
        (0, [(1, 60), (2, 60)]),
        (0, [(1, 60), (3, 60)]),
        (1, [(1, 5), (3, 90)]),
        (1, [(2, 101), (3, 20)]),
    ];
    let judged = |order: &[usize]| {
        let mut judge = Judge::new(Arc::clone(&rules));
        for n in order {
            judge.take(told(&rules, START + shards[*n].0, &shards[*n].1));
        }
        judge.judge_until(u64::MAX);
        judge.events.drain(..).map(|event| event.to_string()).collect::<Vec<_>>()
    };
    let first = judged(&[0, 1, 2, 3]);
    assert_eq!(first.len(), 3, "{first:?}");
    assert!(
        first[0].ends_with("alarm many raised: dst-port 1: 120 packets-per-second, above 100"),
        "{first:?}"
    );
    assert!(first[0].starts_with("2023-11-14T22:13:21Z"), "{first:?}");
    assert_eq!(judged(&[3, 1, 2, 0]), first);
}

#[test]
fn alarms_are_bounded_and_late_seconds_are_counted() {
    let rules = Rule::all(&[rule()]).expect("a rule");
    let mut judge = Judge::new(Arc::clone(&rules));
    let mut tallies = watcher::tallies(&rules, 4096, 64);
    if let Tally::Heavy(heavy) = &mut tallies[0] {
        (0..1100).for_each(|port| heavy.add(RawValue::Number(port), 101));
    }
    judge.take(Told { interval: START, tallies });
    judge.judge_until(START + 1);
    assert_eq!((judge.events.len(), judge.by_rule[0].active, judge.counters.refused), (1000, 1000, 100));
    assert_eq!(judge.active().len(), 1000);
    judge.take(told(&rules, START - 1, &[(1, 500)]));
    assert_eq!(judge.counters.late, 1);
    // Long silence ends all; a clock that was set back goes on from there.
    judge.judge_until(START + 1_000_000);
    assert_eq!((judge.by_rule[0].active, judge.by_rule[0].ended), (0, 1000));
    judge.events.clear();
    judge.take(told(&rules, 1000, &[(1, 500)]));
    judge.judge_until(1001);
    assert_eq!(judge.events.len(), 1);
    assert!(judge.events[0].at.starts_with("1970-01-01T00:16:41"), "{}", judge.events[0]);
    // Seconds that a watcher never tells do not wait for ever.
    for second in 0..200 {
        judge.take(told(&rules, 2000 + second, &[(1, 10)]));
    }
    assert!(judge.counters.late > 100, "{:?}", judge.counters);
}

#[test]
fn rules_that_make_no_sense_are_told_by_name() {
    let wrong = |rules: &[AlarmRule]| Rule::all(rules).err().expect("an error").to_string();
    let key = wrong(&[AlarmRule { key: "color".to_owned(), ..rule() }]);
    assert!(
        key.starts_with("alarm `many`: `color` is not a key; expected `all` or one of src, dst"),
        "{key}"
    );
    let filter = wrong(&[AlarmRule { filter: "tcp and".to_owned(), ..rule() }]);
    assert!(filter.starts_with("alarm `many`: filter, column 8"), "{filter}");
    assert_eq!(wrong(&[rule(), rule()]), "two alarms are named `many`");
    let many: Vec<_> = (0..65).map(|n| AlarmRule { name: format!("a{n}"), ..rule() }).collect();
    assert_eq!(wrong(&many), "65 alarms: expected at most 64");
}
