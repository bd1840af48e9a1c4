//! Alarms of captures: beside exact counts in maps, the same under every model, and of real attacks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::common::{options, run, write};
use thalweg_base::XorShift64Star;
use thalweg_flow::alarm::{AlarmEvent, AlarmReport, AlarmRule, Measure};
use thalweg_probe::{AlarmOptions, ModelKind, ProbeOptions, Shape};
use thalweg_wire::tcp::{ACK, SYN};
use thalweg_wire::testing;

const SECOND_NS: u64 = 1_000_000_000;
const START_S: u64 = 1_700_000_000;

#[derive(Clone, Copy, Debug)]
struct Sent {
    at_ns: u64,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    ports: (u16, u16),
    /// TCP with these flags, or UDP.
    flags: Option<u8>,
    payload: usize,
}

impl Sent {
    fn frame(&self) -> (u64, Vec<u8>) {
        let (from, to) = ((IpAddr::V4(self.src), self.ports.0), (IpAddr::V4(self.dst), self.ports.1));
        let payload = vec![0; self.payload];
        let packet = match self.flags {
            Some(flags) => testing::tcp(from, to, flags, &payload),
            None => testing::udp(from, to, &payload),
        };
        (self.at_ns, testing::frame(&packet))
    }

    fn bits(&self) -> u64 {
        8 * (20 + if self.flags.is_some() { 20 } else { 8 } + self.payload as u64)
    }
}

fn rule(name: &str, key: &str, filter: &str, measure: Measure, above: u64) -> AlarmRule {
    AlarmRule {
        name: name.to_owned(),
        key: key.to_owned(),
        filter: filter.to_owned(),
        measure,
        above,
        below: above / 2,
        baseline: None,
        window_s: 1,
        for_s: 0,
        clear_s: 2,
        silence_s: 0,
        blackhole: None,
    }
}

/// What a flow did in a second.
#[derive(Clone, Debug, Default)]
struct Seen {
    packets: u64,
    bits: u64,
    flags: u8,
    is_first: bool,
}

type Flow = (Ipv4Addr, Ipv4Addr, (u16, u16), bool);

/// A rule and its slow reference.
struct Reference {
    rule: AlarmRule,
    filter: fn(&Flow, &Seen) -> bool,
    key: fn(&Flow) -> Ipv4Addr,
}

fn references() -> Vec<Reference> {
    let src: fn(&Flow) -> Ipv4Addr = |flow| flow.0;
    let dst: fn(&Flow) -> Ipv4Addr = |flow| flow.1;
    let scan = "tcp and flags S and not flags A";
    vec![
        Reference {
            rule: AlarmRule { for_s: 2, ..rule("syn-flood", "dst", "tcp", Measure::HalfOpen, 500) },
            filter: |flow, _| flow.3,
            key: dst,
        },
        Reference {
            rule: rule("amplification", "dst", "udp and src port 53", Measure::Bits, 2_000_000),
            filter: |flow, _| !flow.3 && flow.2.0 == 53,
            key: dst,
        },
        Reference {
            rule: AlarmRule {
                window_s: 5,
                clear_s: 5,
                ..rule("port-scan", "src", scan, Measure::Ports, 200)
            },
            filter: |flow, seen| flow.3 && seen.flags & SYN != 0 && seen.flags & ACK == 0,
            key: src,
        },
        Reference { rule: rule("flows", "src", "", Measure::Flows, 40), filter: |_, _| true, key: src },
        Reference { rule: rule("packets", "dst", "", Measure::Packets, 900), filter: |_, _| true, key: dst },
        Reference { rule: rule("sources", "dst", "", Measure::Sources, 400), filter: |_, _| true, key: dst },
    ]
}

/// An ordinary network, and three attacks on it.
fn attacks() -> Vec<Sent> {
    let mut chance = XorShift64Star::new(18);
    let mut sent = Vec::new();
    let host = |net: u8, n: u32| Ipv4Addr::new(10, net, (n >> 8) as u8, n as u8);
    for second in 0..15 {
        let at = |chance: &mut XorShift64Star, within_ms: u32| {
            (START_S + second) * SECOND_NS + u64::from(chance.below(within_ms)) * 1_000_000
        };
        for n in 0..80 {
            let (client, server) = (host(1, n), host(2, n % 7));
            let begun_ns = at(&mut chance, 900);
            let ports = (20_000 + n as u16, 443);
            let flags = if second == u64::from(n % 5) { SYN } else { ACK };
            if second >= u64::from(n % 5) {
                let one =
                    Sent { at_ns: begun_ns, src: client, dst: server, ports, flags: Some(flags), payload: 0 };
                let answer = Sent {
                    at_ns: begun_ns + 1_000_000,
                    src: server,
                    dst: client,
                    ports: (443, ports.0),
                    flags: Some(flags | ACK),
                    payload: 600,
                };
                let more = Sent { at_ns: begun_ns + 2_000_000, flags: Some(ACK), payload: 100, ..one };
                sent.extend([one, answer, more]);
            }
            let ports = (30_000 + (second as u16) * 100 + n as u16, 53);
            let query = Sent {
                at_ns: at(&mut chance, 900),
                src: client,
                dst: host(3, 1),
                ports,
                flags: None,
                payload: 40,
            };
            let answer = Sent {
                at_ns: query.at_ns + 500_000,
                src: query.dst,
                dst: client,
                ports: (53, ports.0),
                payload: 200,
                ..query
            };
            sent.extend([query, answer]);
        }
        if (3..8).contains(&second) {
            for _ in 0..1500 {
                let src = Ipv4Addr::from(0xc000_0000 | chance.below(1 << 24));
                let ports = (chance.below(60_000) as u16, 80);
                let at_ns = at(&mut chance, 1000);
                sent.push(Sent { at_ns, src, dst: host(2, 1), ports, flags: Some(SYN), payload: 0 });
            }
        }
        if (4..9).contains(&second) {
            for n in 0..300 {
                let (src, at_ns) = (host(9, n % 50), at(&mut chance, 1000));
                sent.push(Sent {
                    at_ns,
                    src,
                    dst: host(1, 7),
                    ports: (53, 4444),
                    flags: None,
                    payload: 1200,
                });
            }
        }
        if (2..7).contains(&second) {
            for n in 0..130u16 {
                let (ports, at_ns) = ((55_555, 1 + second as u16 * 200 + n), at(&mut chance, 1000));
                let dst = host(2, u32::from(n % 3));
                sent.push(Sent { at_ns, src: host(8, 1), dst, ports, flags: Some(SYN), payload: 0 });
            }
        }
    }
    sent.sort_by_key(|one| one.at_ns);
    sent
}

/// Event: time, rule, kind, value of the key, and the measured value of rates.
type Event = (String, String, String, String, u64);

fn events(report: &AlarmReport) -> Vec<Event> {
    let event = |event: &AlarmEvent| {
        let is_distinct = ["ports", "sources"].contains(&event.alarm.measure.as_str());
        let value = if is_distinct { 0 } else { event.value };
        (event.at.clone(), event.alarm.rule.clone(), event.event.clone(), event.alarm.of.clone(), value)
    };
    report.events.iter().map(event).collect()
}

/// What exact counts say: every flow, every second, in maps.
fn expected(sent: &[Sent]) -> Vec<Event> {
    let mut flags: BTreeMap<Flow, u8> = BTreeMap::new();
    let mut seconds: BTreeMap<u64, BTreeMap<Flow, Seen>> = BTreeMap::new();
    for one in sent {
        let flow = (one.src, one.dst, one.ports, one.flags.is_some());
        let seen = seconds.entry(one.at_ns / SECOND_NS).or_default().entry(flow).or_default();
        seen.is_first |= !flags.contains_key(&flow);
        let all = flags.entry(flow).or_default();
        *all |= one.flags.unwrap_or(0);
        (seen.packets, seen.bits, seen.flags) = (seen.packets + 1, seen.bits + one.bits(), *all);
    }
    let (first, last) = (*seconds.keys().next().expect("traffic"), *seconds.keys().last().expect("traffic"));
    let mut events = Vec::new();
    for (number, reference) in references().iter().enumerate() {
        let rule = &reference.rule;
        let window_s = u64::from(rule.window_s);
        // Seconds above the threshold, whether it is active, seconds below.
        let mut states: BTreeMap<Ipv4Addr, (u64, bool, u64)> = BTreeMap::new();
        let mut rates: BTreeMap<Ipv4Addr, u64> = BTreeMap::new();
        let mut sets: BTreeMap<Ipv4Addr, BTreeSet<(Ipv4Addr, u16)>> = BTreeMap::new();
        for second in first..=last {
            for (flow, seen) in seconds.get(&second).into_iter().flatten() {
                if !(reference.filter)(flow, seen) {
                    continue;
                }
                let key = (reference.key)(flow);
                match rule.measure {
                    Measure::Ports => drop(sets.entry(key).or_default().insert((flow.1, flow.2.1))),
                    Measure::Sources => drop(sets.entry(key).or_default().insert((flow.0, 0))),
                    Measure::Packets => *rates.entry(key).or_default() += seen.packets,
                    Measure::Bits => *rates.entry(key).or_default() += seen.bits,
                    Measure::Flows => *rates.entry(key).or_default() += u64::from(seen.is_first),
                    _ => *rates.entry(key).or_default() += u64::from(seen.is_first && seen.flags == SYN),
                }
            }
            if !(second + 1).is_multiple_of(window_s) && second != last {
                continue;
            }
            let sizes = sets.iter().map(|(key, set)| (*key, set.len() as u64));
            let mut values: BTreeMap<Ipv4Addr, u64> =
                rates.iter().map(|(key, sum)| (*key, sum / window_s)).chain(sizes).collect();
            states.keys().for_each(|key| _ = values.entry(*key).or_default());
            for (key, value) in values {
                let state = states.entry(key).or_default();
                let event = if state.1 {
                    state.2 = if value < rule.below { state.2 + window_s } else { 0 };
                    (state.2 >= u64::from(rule.clear_s)).then_some("ended")
                } else {
                    state.0 = if value > rule.above { state.0 + window_s } else { 0 };
                    (state.0 > 0 && state.0 >= u64::from(rule.for_s)).then_some("raised")
                };
                let Some(event) = event else { continue };
                *state = (0, event == "raised", 0);
                let told = if rule.measure.is_distinct() { 0 } else { value };
                let place = (second, number, key);
                events.push((place, (rule.name.clone(), event.to_owned(), key.to_string(), told)));
            }
            (rates, sets) = Default::default();
        }
    }
    events.sort();
    let at = |second: u64| thalweg_text::calendar::format_time((second + 1) * SECOND_NS);
    events
        .into_iter()
        .map(|((second, ..), (rule, event, of, value))| (at(second), rule, event, of, value))
        .collect()
}

fn with_alarms(capture: &Path, rules: Vec<AlarmRule>) -> ProbeOptions {
    let alarms = AlarmOptions { rules, webhook: None };
    ProbeOptions { alarms, json: None, ..options(capture, Path::new("")) }
}

#[test]
fn attacks_are_told_as_exact_counts_tell_them_under_every_model() {
    let sent = attacks();
    let expected = expected(&sent);
    for name in ["syn-flood", "amplification", "port-scan", "flows", "packets", "sources"] {
        for kind in ["raised", "ended"] {
            assert!(
                expected.iter().any(|event| event.1 == name && event.2 == kind),
                "{name} {kind}: {expected:?}"
            );
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("attacks.pcap");
    let frames: Vec<_> = sent.iter().map(Sent::frame).collect();
    write(&capture, frames.iter());
    let rules = || references().into_iter().map(|one| one.rule).collect();
    for (model, workers, pipelines) in [
        (ModelKind::Serial, 1, 1),
        (ModelKind::RunToCompletion, 3, 1),
        (ModelKind::Farm, 2, 1),
        (ModelKind::Tokens, 2, 1),
        (ModelKind::Farm, 1, 3),
    ] {
        let mut options = with_alarms(&capture, rules());
        options.shape = Shape { model, workers, pipelines, ..Shape::default() };
        let report = run(&options).alarms.expect("rules");
        assert_eq!(events(&report), expected, "{model}, {pipelines} pipelines");
        assert_eq!((report.counters.late, report.counters.lost, report.counters.uncertain), (0, 0, 0));
        let ended: u64 = report.rules.iter().map(|rule| rule.ended).sum();
        assert_eq!(report.active.len() as u64, report.raised() - ended);
        assert_eq!(report.active(), report.active.len());
    }
}

/// A cache that is far too small reports most flows at once; the counts stay the same but for flows, which begin again.
#[test]
fn a_full_cache_hides_no_packet() {
    let sent = attacks();
    let is_of_packets = |event: &Event| ["amplification", "packets"].contains(&event.1.as_str());
    let expected: Vec<_> = expected(&sent).into_iter().filter(is_of_packets).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("attacks.pcap");
    let frames: Vec<_> = sent.iter().map(Sent::frame).collect();
    write(&capture, frames.iter());
    let mut options = with_alarms(&capture, references().into_iter().map(|one| one.rule).collect());
    options.meter.flows_max = 1024;
    let report = run(&options).alarms.expect("rules");
    let found: Vec<_> = events(&report).into_iter().filter(is_of_packets).collect();
    assert_eq!(found, expected);
}
