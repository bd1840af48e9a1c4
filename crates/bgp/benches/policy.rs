//! The cost of policies: a typical set of five rules, prefix sets of 300,000 entries, AS-path patterns. `cargo
//! bench -p thalweg-bgp --bench policy --profile quick`

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use divan::{Bencher, black_box};
use thalweg_base::{IpPrefix, Prefix, mix64};
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner, SegmentKind};
use thalweg_bgp::peer::{PeerId, PeerInfo, PeerKind};
use thalweg_bgp::policy::*;
use thalweg_wire::bgp::attribute;

fn main() {
    divan::main();
}

fn entries(count: u64) -> Vec<PrefixEntry> {
    let prefix = |n: u64| {
        let (bits, length) = (mix64(n), 16 + (mix64(n ^ 77) % 9) as u8);
        IpPrefix::from(Prefix::new(bits as u32, length).expect("a length"))
    };
    (0..count).map(|n| PrefixEntry { max: 24, ..PrefixEntry::exact(prefix(n)) }).collect()
}

fn attrs() -> AttrRef {
    let mut builder = AttrsBuilder::default();
    let path = [3356u32, 1299, 6939, 64_600];
    let mut value = vec![SegmentKind::Sequence as u8, path.len() as u8];
    value.extend(path.iter().flat_map(|asn| asn.to_be_bytes()));
    builder.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &value).expect("enough room");
    builder
        .set_communities(&[3356 << 16 | 3, 3356 << 16 | 22, 3356 << 16 | 100, 3356 << 16 | 123])
        .expect("enough room");
    Interner::new(1).intern(&mut builder)
}

fn peer() -> PeerInfo {
    PeerInfo {
        id: PeerId(0),
        name: "a".into(),
        address: IpAddr::V4(Ipv4Addr::new(198, 18, 1, 1)),
        local_address: IpAddr::V4(Ipv4Addr::new(198, 18, 1, 2)),
        remote_as: 3356,
        local_as: 65_000,
        kind: PeerKind::External,
        router_id: Ipv4Addr::new(198, 18, 1, 1),
        role: None,
        route_server_client: false,
    }
}

/// Bogon prefixes, bogon ASes, prefixes that are too long, blackholes, a customer's path; then the default.
fn five_rules(set: Arc<PrefixSet>, actions: Vec<Action>) -> Policy {
    let numbers = NumberSet::new([0..=0, 23_456..=23_456, 64_496..=64_511, 4_200_000_000..=u32::MAX]);
    let blackhole = "blackhole".parse::<CommunityPattern>().expect("a name");
    let pattern = AsPathPattern::new("^64500(_64500)*$").expect("a pattern");
    let conditions = [
        Condition::Prefix(set),
        Condition::AnyAs(Arc::new(numbers)),
        Condition::PathLength(Between { first: 65, last: 65_535 }),
        Condition::CommunityAny(Arc::new(CommunitySet::new([blackhole]))),
        Condition::AsPath([pattern].into()),
    ];
    let rule =
        |condition| Rule { conditions: vec![condition], verdict: Some(Verdict::Reject), ..Rule::default() };
    let mut rules: Vec<Rule> = conditions.into_iter().map(rule).collect();
    rules.push(Rule { actions, verdict: Some(Verdict::Accept), ..Rule::default() });
    let set = RuleSet { rules, default: None };
    let library = RuleLibrary { sets: [("in".into(), set)].into() };
    Policy::compile(&library, &["in".into()]).expect("a policy")
}

fn bogons() -> Arc<PrefixSet> {
    let texts = [
        "0.0.0.0/8 le 32",
        "10.0.0.0/8 le 32",
        "127.0.0.0/8 le 32",
        "172.16.0.0/12 le 32",
        "192.168.0.0/16 le 32",
    ];
    Arc::new(PrefixSet::new(texts.iter().map(|text| text.parse().expect("an entry"))))
}

fn evaluate(bencher: Bencher<'_, '_>, actions: Vec<Action>) {
    let (policy, attrs, peer) = (five_rules(bogons(), actions), attrs(), peer());
    let mut edit = AttrsBuilder::default();
    let route = RouteContext {
        prefix: "8.8.8.0/24".parse().expect("a prefix"),
        peer: &peer,
        source: None,
        validator: None,
    };
    bencher.bench_local(|| policy.evaluate(black_box(&route), black_box(&attrs), &mut edit));
}

#[divan::bench]
fn five_rules_unchanged(bencher: Bencher<'_, '_>) {
    evaluate(bencher, Vec::new());
}

#[divan::bench]
fn five_rules_local_pref(bencher: Bencher<'_, '_>) {
    evaluate(bencher, vec![Action::LocalPref(Amount::Set(200))]);
}

#[divan::bench]
fn five_rules_community_added(bencher: Bencher<'_, '_>) {
    let list = Arc::new([Community::Standard(65_000 << 16 | 1)].into_iter().collect());
    evaluate(bencher, vec![Action::CommunitiesAdd(list)]);
}

#[divan::bench]
fn load_300k_prefixes(bencher: Bencher<'_, '_>) {
    let entries = entries(300_000);
    bencher.bench_local(|| PrefixSet::new(entries.iter().copied()));
}

/// 1,000 look-ups spread over the set, half of them found.
#[divan::bench]
fn match_1000_of_300k_prefixes(bencher: Bencher<'_, '_>) {
    let set = PrefixSet::new(entries(300_000));
    let mut at = 0u64;
    bencher.bench_local(|| {
        at += 1000;
        let wanted = (at..at + 1000).map(|n| {
            let bits = mix64(n % 300_000) as u32 ^ if n % 2 == 0 { 0 } else { 0x8000_0000 };
            IpPrefix::from(Prefix::new(bits, 24).expect("a length"))
        });
        wanted.filter(|prefix| set.contains(*prefix)).count()
    });
}

#[divan::bench(args = ["^64500_", "_64600$", "_1299_.*_64600$", "^(174|3356|1299)_.*_[64512-65534]$"])]
fn as_path(bencher: Bencher<'_, '_>, text: &str) {
    let (pattern, attrs) = (AsPathPattern::new(text).expect("a pattern"), attrs());
    bencher.bench_local(|| pattern.matches(black_box(&attrs).as_path()));
}
