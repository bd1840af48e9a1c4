//! Compares evaluation with a slow and plain interpreter: conditions as loops over their definition, changes on a
//! route of a few vectors.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use thalweg_base::Prefix;
use thalweg_wire::bgp::{Origin, attribute};

use super::*;
use crate::attrs::{Interner, NextHop, SegmentKind};
use crate::peer::{PeerId, PeerKind};

/// The interpreter's route.
#[derive(Clone, Debug, PartialEq)]
struct Route {
    prefix: Prefix<u32>,
    path: Vec<u32>,
    communities: Vec<u32>,
    local_pref: Option<u32>,
    med: Option<u32>,
    origin: Origin,
}

/// A condition as defined.
#[derive(Clone, Debug)]
enum Written {
    Prefix(Vec<PrefixEntry>),
    OriginAs(Vec<u32>),
    NeighborAs(Vec<u32>),
    AnyAs(Vec<u32>),
    Any(Vec<u32>),
    All(Vec<u32>),
    None(Vec<u32>),
    PathLength(u32, u32),
    LocalPref(u32, u32),
    Med(u32, u32),
    Origin(Origin),
    BeginsWith(u32),
}

#[derive(Clone, Debug)]
enum Change {
    LocalPref(Amount),
    Med(Amount),
    MedRemove,
    Prepend(u32, u8),
    RemovePrivate,
    Add(u32),
    Remove(u32),
}

#[derive(Clone, Debug)]
struct WrittenRule {
    conditions: Vec<Written>,
    unless: Vec<Written>,
    changes: Vec<Change>,
    call: Option<usize>,
    verdict: Option<Verdict>,
}

type WrittenSets = Vec<(Vec<WrittenRule>, Option<Verdict>)>;

impl Written {
    fn holds(&self, route: &Route) -> bool {
        match self {
            Self::Prefix(entries) => entries.iter().any(|entry| entry.contains(route.prefix.into())),
            Self::OriginAs(list) => route.path.last().is_some_and(|asn| list.contains(asn)),
            Self::NeighborAs(list) => route.path.first().is_some_and(|asn| list.contains(asn)),
            Self::AnyAs(list) => route.path.iter().any(|asn| list.contains(asn)),
            Self::Any(list) => route.communities.iter().any(|c| list.contains(c)),
            Self::All(list) => list.iter().all(|c| route.communities.contains(c)),
            Self::None(list) => !route.communities.iter().any(|c| list.contains(c)),
            Self::PathLength(a, b) => (*a..=*b).contains(&(route.path.len() as u32)),
            Self::LocalPref(a, b) => (*a..=*b).contains(&route.local_pref.unwrap_or(100)),
            Self::Med(a, b) => route.med.is_some_and(|med| (*a..=*b).contains(&med)),
            Self::Origin(origin) => route.origin == *origin,
            Self::BeginsWith(asn) => route.path.first() == Some(asn),
        }
    }

    fn condition(&self) -> Condition {
        let numbers = |list: &[u32]| Arc::new(NumberSet::new(list.iter().map(|n| *n..=*n)));
        let communities = |list: &[u32]| {
            let patterns = list.iter().map(|c| format!("{}:{}", c >> 16, c & 0xffff).parse().unwrap());
            Arc::new(CommunitySet::new(patterns))
        };
        let between = |first: u32, last: u32| Between { first, last };
        match self {
            Self::Prefix(entries) => Condition::Prefix(Arc::new(PrefixSet::new(entries.iter().copied()))),
            Self::OriginAs(list) => Condition::OriginAs(numbers(list)),
            Self::NeighborAs(list) => Condition::NeighborAs(numbers(list)),
            Self::AnyAs(list) => Condition::AnyAs(numbers(list)),
            Self::Any(list) => Condition::CommunityAny(communities(list)),
            Self::All(list) => Condition::CommunityAll(communities(list)),
            Self::None(list) => Condition::CommunityNone(communities(list)),
            Self::PathLength(a, b) => Condition::PathLength(between(*a, *b)),
            Self::LocalPref(a, b) => Condition::LocalPref(between(*a, *b)),
            Self::Med(a, b) => Condition::Med(between(*a, *b)),
            Self::Origin(origin) => Condition::Origin(vec![*origin]),
            Self::BeginsWith(asn) => {
                Condition::AsPath([AsPathPattern::new(&format!("^{asn}_")).unwrap()].into())
            }
        }
    }
}

impl Change {
    fn apply(&self, route: &mut Route) {
        match self {
            Self::LocalPref(amount) => route.local_pref = Some(amount.apply(route.local_pref.unwrap_or(100))),
            Self::Med(amount) => route.med = Some(amount.apply(route.med.unwrap_or(0))),
            Self::MedRemove => route.med = None,
            Self::Prepend(asn, count) => {
                route.path.splice(0..0, std::iter::repeat_n(*asn, usize::from(*count)));
            }
            Self::RemovePrivate => route.path.retain(|asn| !(64_512..=65_534).contains(asn)),
            Self::Add(c) if route.communities.contains(c) => {}
            Self::Add(c) => route.communities.push(*c),
            Self::Remove(c) => route.communities.retain(|each| each != c),
        }
    }

    fn action(&self) -> Action {
        let list = |c: u32| Arc::new([Community::Standard(c)].into_iter().collect::<CommunityList>());
        let set = |c: u32| {
            let pattern = CommunityPattern::Standard([(c >> 16, c >> 16), (c & 0xffff, c & 0xffff)]);
            Arc::new(CommunitySet::new([pattern]))
        };
        match self {
            Self::LocalPref(amount) => Action::LocalPref(*amount),
            Self::Med(amount) => Action::Med(*amount),
            Self::MedRemove => Action::MedRemove,
            Self::Prepend(asn, count) => Action::Prepend { asn: PrependAs::Given(*asn), count: *count },
            Self::RemovePrivate => Action::RemovePrivateAs,
            Self::Add(c) => Action::CommunitiesAdd(list(*c)),
            Self::Remove(c) => Action::CommunitiesRemove(set(*c)),
        }
    }
}

fn interpret(sets: &WrittenSets, set: usize, route: &mut Route) -> Option<Verdict> {
    for rule in &sets[set].0 {
        let all = |list: &[Written], route: &Route| list.iter().all(|each| each.holds(route));
        if !all(&rule.conditions, route) || !rule.unless.is_empty() && all(&rule.unless, route) {
            continue;
        }
        rule.changes.iter().for_each(|change| change.apply(route));
        if let Some(verdict) = rule.call.and_then(|called| interpret(sets, called, route)) {
            return Some(verdict);
        }
        if rule.verdict.is_some() {
            return rule.verdict;
        }
    }
    sets[set].1
}

fn library(sets: &WrittenSets) -> RuleLibrary {
    let name = |index: usize| Arc::from(format!("set{index}"));
    let rule = |rule: &WrittenRule| Rule {
        name: "".into(),
        conditions: rule.conditions.iter().map(Written::condition).collect(),
        unless: rule.unless.iter().map(Written::condition).collect(),
        actions: rule.changes.iter().map(Change::action).collect(),
        call: rule.call.map(name),
        verdict: rule.verdict,
    };
    let set = |(rules, default): &(Vec<WrittenRule>, _)| RuleSet {
        rules: rules.iter().map(rule).collect(),
        default: *default,
    };
    RuleLibrary { sets: sets.iter().enumerate().map(|(index, each)| (name(index), set(each))).collect() }
}

fn load(builder: &mut AttrsBuilder, route: &Route) {
    builder.clear();
    (builder.local_pref, builder.med, builder.origin) = (route.local_pref, route.med, route.origin);
    let mut path = Vec::new();
    if !route.path.is_empty() {
        path.extend_from_slice(&[SegmentKind::Sequence as u8, route.path.len() as u8]);
        path.extend(route.path.iter().flat_map(|asn| asn.to_be_bytes()));
    }
    builder.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &path).unwrap();
    builder.set_communities(&route.communities).unwrap();
}

fn peer() -> PeerInfo {
    PeerInfo {
        id: PeerId(0),
        name: "a".into(),
        address: IpAddr::V4(Ipv4Addr::new(198, 18, 1, 1)),
        local_address: IpAddr::V4(Ipv4Addr::new(198, 18, 1, 2)),
        remote_as: 64_600,
        local_as: 65_000,
        kind: PeerKind::External,
        router_id: Ipv4Addr::new(198, 18, 1, 1),
        role: None,
        route_server_client: false,
    }
}

fn asn() -> impl Strategy<Value = u32> + Clone {
    prop::sample::select(vec![1u32, 2, 3, 64_600, 65_001])
}

fn community() -> impl Strategy<Value = u32> + Clone {
    (1u32..3, 1u32..4).prop_map(|(high, low)| high << 16 | low)
}

fn prefix() -> impl Strategy<Value = Prefix<u32>> {
    (0u32..8, 22u8..=25).prop_map(|(third, length)| Prefix::new(0xc612_0000 | third << 8, length).unwrap())
}

fn span() -> impl Strategy<Value = (u32, u32)> {
    (0u32..150, 0u32..100).prop_map(|(first, more)| (first, first + more))
}

fn written() -> impl Strategy<Value = Written> {
    let entry = (prefix(), 0u8..3, 0u8..4).prop_map(|(prefix, ge, more)| {
        let min = prefix.length() + ge;
        PrefixEntry { prefix: prefix.into(), min, max: min + more }
    });
    prop_oneof![
        prop::collection::vec(entry, 1..4).prop_map(Written::Prefix),
        prop::collection::vec(asn(), 1..3).prop_map(Written::OriginAs),
        prop::collection::vec(asn(), 1..3).prop_map(Written::NeighborAs),
        prop::collection::vec(asn(), 1..3).prop_map(Written::AnyAs),
        prop::collection::vec(community(), 1..3).prop_map(Written::Any),
        prop::collection::vec(community(), 1..3).prop_map(Written::All),
        prop::collection::vec(community(), 1..3).prop_map(Written::None),
        (0u32..4, 0u32..4).prop_map(|(first, more)| Written::PathLength(first, first + more)),
        span().prop_map(|(a, b)| Written::LocalPref(a, b)),
        span().prop_map(|(a, b)| Written::Med(a, b)),
        prop::sample::select(vec![Origin::Igp, Origin::Incomplete]).prop_map(Written::Origin),
        asn().prop_map(Written::BeginsWith),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let amount = || {
        prop_oneof![
            (0u32..200).prop_map(Amount::Set),
            (0u32..200).prop_map(Amount::Add),
            (0u32..200).prop_map(Amount::Subtract),
        ]
    };
    prop_oneof![
        amount().prop_map(Change::LocalPref),
        amount().prop_map(Change::Med),
        Just(Change::MedRemove),
        (asn(), 1u8..4).prop_map(|(asn, count)| Change::Prepend(asn, count)),
        Just(Change::RemovePrivate),
        community().prop_map(Change::Add),
        community().prop_map(Change::Remove),
    ]
}

fn verdict() -> impl Strategy<Value = Option<Verdict>> {
    prop::sample::select(vec![Some(Verdict::Accept), Some(Verdict::Reject), None, None])
}

/// Three rule sets; each calls only later ones.
fn sets() -> impl Strategy<Value = WrittenSets> {
    let rule = (
        prop::collection::vec(written(), 0..3),
        prop::collection::vec(written(), 0..2),
        prop::collection::vec(change(), 0..3),
        prop::option::of(1usize..3),
        verdict(),
    );
    let rule = rule.prop_map(|(conditions, unless, changes, call, verdict)| WrittenRule {
        conditions,
        unless,
        changes,
        call,
        verdict,
    });
    prop::collection::vec((prop::collection::vec(rule, 0..5), verdict()), 3).prop_map(
        |mut sets: WrittenSets| {
            for (index, (rules, _)) in sets.iter_mut().enumerate() {
                rules.iter_mut().for_each(|rule| rule.call = rule.call.map(|c| c + index).filter(|c| *c < 3));
            }
            sets
        },
    )
}

fn route() -> impl Strategy<Value = Route> {
    let number = || prop::option::of(0u32..250);
    let origin = prop::sample::select(vec![Origin::Igp, Origin::Egp, Origin::Incomplete]);
    let lists = (prop::collection::vec(asn(), 0..5), prop::collection::btree_set(community(), 0..4));
    (prefix(), lists, number(), number(), origin).prop_map(
        |(prefix, (path, communities), local_pref, med, origin)| Route {
            prefix,
            path,
            communities: communities.into_iter().collect(),
            local_pref,
            med,
            origin,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn policies_do_what_the_interpreter_does(
        sets in sets(),
        chain in prop::collection::vec(0usize..3, 1..3),
        routes in prop::collection::vec(route(), 1..8),
    ) {
        let names: Vec<Arc<str>> = chain.iter().map(|set| format!("set{set}").into()).collect();
        let policy = Policy::compile(&library(&sets), &names).unwrap();
        let (interner, peer) = (Interner::new(1), peer());
        let mut builder = AttrsBuilder::default();
        let mut expected_builder = AttrsBuilder::default();
        let mut in_place = AttrsBuilder::default();
        for route in routes {
            load(&mut builder, &route);
            let attrs = interner.intern(&mut builder);
            let context = RouteContext { prefix: route.prefix.into(), peer: &peer, source: None, validator: None };
            load(&mut in_place, &route);
            let outcome = policy.evaluate(&context, &attrs, &mut builder);
            prop_assert_eq!(policy.evaluate_in_place(&context, &mut in_place), outcome);
            let mut expected = route.clone();
            let verdict = chain.iter().find_map(|set| interpret(&sets, *set, &mut expected));
            match outcome {
                Outcome::Reject { .. } => prop_assert_ne!(verdict, Some(Verdict::Accept)),
                Outcome::Accept => {
                    prop_assert_eq!(verdict, Some(Verdict::Accept));
                    prop_assert_eq!(&expected, &route);
                    prop_assert!(interner.intern(&mut in_place) == attrs);
                }
                Outcome::AcceptChanged(_) => {
                    prop_assert_eq!(verdict, Some(Verdict::Accept));
                    load(&mut expected_builder, &expected);
                    let (found, wanted) = (interner.intern(&mut builder), interner.intern(&mut expected_builder));
                    prop_assert!(found == wanted, "{found:?} instead of {wanted:?}");
                    let found = interner.intern(&mut in_place);
                    prop_assert!(found == wanted, "{found:?} in place instead of {wanted:?}");
                }
            }
        }
    }
}

fn one(rule: Rule) -> RuleLibrary {
    RuleLibrary { sets: [("a".into(), RuleSet { rules: vec![rule], default: None })].into() }
}

#[test]
fn next_hops_say_how_they_came_about() {
    let peer = peer();
    let interner = Interner::new(1);
    let mut builder = AttrsBuilder::default();
    let attrs = interner.intern(&mut builder);
    let v4 = "192.0.2.0/24".parse().unwrap();
    let v6 = "2001:db8::/32".parse().unwrap();
    let given = Action::NextHop { v4: Some(Ipv4Addr::new(192, 0, 2, 9)), v6: None };
    for (action, prefix, choice, next_hop) in [
        (given.clone(), v4, NextHopChoice::Keep, [192, 0, 2, 9]),
        (given, v6, NextHopChoice::Usual, [0, 0, 0, 0]),
        (Action::NextHopSelf, v4, NextHopChoice::Own, [198, 18, 1, 2]),
        (Action::NextHopSelf, v6, NextHopChoice::Own, [0, 0, 0, 0]),
        (Action::NextHopUnchanged, v4, NextHopChoice::Keep, [0, 0, 0, 0]),
        (Action::NextHopPeer, v4, NextHopChoice::Keep, [198, 18, 1, 1]),
    ] {
        let rule = Rule { actions: vec![action.clone()], verdict: Some(Verdict::Accept), ..Rule::default() };
        let policy = Policy::compile(&one(rule), &["a".into()]).unwrap();
        let outcome = policy.evaluate(
            &RouteContext { prefix, peer: &peer, source: None, validator: None },
            &attrs,
            &mut builder,
        );
        assert_eq!(outcome, Outcome::AcceptChanged(Changed { next_hop: choice, med: false }), "{action:?}");
        assert_eq!(builder.next_hop, NextHop::V4(next_hop.into()), "{action:?}");
    }
}

#[test]
fn policies_know_what_they_depend_on() {
    let prefix = Condition::PrefixLength(Between { first: 8, last: 24 });
    let neighbor = Condition::Neighbor([PeerPattern::Local].into());
    let source = Condition::Source([PeerPattern::Local].into());
    for (condition, expected) in
        [(prefix, [true, false, false]), (neighbor, [false, true, false]), (source, [false, false, true])]
    {
        let rule = Rule { unless: vec![condition], verdict: Some(Verdict::Accept), ..Rule::default() };
        let p = Policy::compile(&one(rule), &["a".into()]).unwrap();
        assert_eq!([p.depends_on_prefix(), p.depends_on_neighbor(), p.depends_on_source()], expected);
    }
}

#[test]
fn rule_sets_that_make_no_policy() {
    let calls = |name: &str| one(Rule { call: Some(name.into()), ..Rule::default() });
    assert_eq!(Policy::compile(&calls("b"), &["a".into()]), Err(PolicyError::Unknown { name: "b".into() }));
    assert_eq!(
        Policy::compile(&calls("a"), &["a".into()]),
        Err(PolicyError::Cycle { names: vec!["a".into(), "a".into()] })
    );
    let deep = (0..20).map(|n| {
        let rule = Rule { call: Some(format!("{}", n + 1).into()), ..Rule::default() };
        (Arc::from(n.to_string()), RuleSet { rules: vec![rule], default: None })
    });
    let library = RuleLibrary { sets: deep.collect() };
    assert_eq!(Policy::compile(&library, &["0".into()]), Err(PolicyError::TooDeep { name: "16".into() }));
}

#[test]
fn decisions_are_said_in_words() {
    let rule = |name: &str| Rule { name: name.into(), verdict: Some(Verdict::Reject), ..Rule::default() };
    let said = |library: &RuleLibrary| {
        let policy = Policy::compile(library, &["a".into()]).unwrap();
        let (peer, mut builder) = (peer(), AttrsBuilder::default());
        let attrs = Interner::new(1).intern(&mut builder);
        let route = RouteContext {
            prefix: "192.0.2.0/24".parse().unwrap(),
            peer: &peer,
            source: None,
            validator: None,
        };
        match policy.evaluate(&route, &attrs, &mut builder) {
            Outcome::Reject { rule } => policy.describe(rule),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(said(&one(rule("bogons"))), "a, rule 1 (bogons)");
    assert_eq!(said(&one(rule(""))), "a, rule 1");
    assert_eq!(said(&one(Rule::default())), "no rule decided");
    let set = RuleSet { rules: Vec::new(), default: Some(Verdict::Reject) };
    assert_eq!(said(&RuleLibrary { sets: [("a".into(), set)].into() }), "default of a");
}
