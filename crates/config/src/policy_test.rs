//! `[[policy.test]]`: routes and what rules must do with them. Tests run whenever a configuration is read, so
//! that neither a start nor a reload accepts rules that do something else.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::{Attrs, AttrsBuilder, Interner, NextHop, SegmentKind, flag};
use thalweg_bgp::peer::{PeerId, PeerInfo};
use thalweg_bgp::policy::{ACCEPT, Community, Outcome, Policy, REJECT, RouteContext, RuleLibrary, Verdict};
use thalweg_bgp::rpki::{Validator, Validity, Vrp, VrpList, VrpTable};
use thalweg_bgp::session::config::{NeighborConfig, RemoteAs};
use thalweg_wire::bgp::{Origin, attribute};
use toml::de::DeValue;

use crate::diagnostic::ErrorKind;
use crate::key::{Key, Sub, U32, Value, table};
use crate::policy_rules::ORIGINS;
use crate::policy_sets::{COMMUNITY, community_value, unknown};
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::values;

pub(crate) static TEST: Key<Sub> = Key::sections("test", &TABLE)
    .help("tests: routes and the expected result of the rules, checked whenever the file is read");
table! {
    static TABLE: "policy.test", "[[policy.test]]";

    static NAME: Key<()> = Key::raw("name", "a name").help("for messages");
    static RULES: Key<()> =
        Key::raw("rules", "a name or a list").required("\"customers-in\"").help("rule sets in order");
    static NEIGHBOR: Key<()> = Key::raw("neighbor", "an address or a name")
        .otherwise("some external neighbor")
        .help("neighbor whose policy is tested");
    static SOURCE: Key<()> = Key::raw("source", "an address or a name")
        .otherwise("nobody")
        .help("for export: neighbor that sent the route");
    static ROUTE: Key<Sub> =
        Key::section("route", &ROUTE_TABLE).required("{ prefix = \"192.0.2.0/24\" }").help("the route to test");
    static EXPECT: Key<Sub> =
        Key::section("expect", &EXPECT_TABLE).required("{ action = \"accept\" }").help("the expected result");
}

table! {
    static ROUTE_TABLE: "policy.test.route", "`route` of a test";

    static ROUTE_PREFIX: Key<IpPrefix> =
        Key::text("prefix", "a prefix", |text| text.parse().map_err(|_| "a prefix, such as \"192.0.2.0/24\""))
            .required("\"192.0.2.0/24\"")
            .help("the prefix");
    static ROUTE_AS_PATH: Key<Vec<u8>> =
        Key::by("as_path", "AS numbers", as_path).help("`\"64600 64601 {64602,64603}\"`");
    static ROUTE_NEXT_HOP: Key<IpAddr> =
        Key::text("next_hop", "an address", values::address).help("the next hop");
    static ROUTE_ORIGIN: Key<Origin> = Key::word("origin", &ORIGINS).help("ORIGIN");
    static ROUTE_MED: Key<u32> = Key::number("med", 0..=U32).help("MULTI_EXIT_DISC");
    static ROUTE_LOCAL_PREF: Key<u32> = Key::number("local_pref", 0..=U32).help("LOCAL_PREF");
    static ROUTE_OTC: Key<u32> = Key::number("otc", 0..=U32).help("ONLY_TO_CUSTOMER");
    static ROUTE_RPKI: Key<Validity> =
        Key::word("rpki", &Validity::NAMES).otherwise("`\"not-found\"`").help("what the RPKI says of its origin");
    static ROUTE_COMMUNITIES: Key<()> = Key::raw("communities", "a community or a list").help("its communities");
}

table! {
    static EXPECT_TABLE: "policy.test.expect", "`expect` of a test";

    static ACTION: Key<Verdict> = Key::word("action", &[(ACCEPT, Verdict::Accept), (REJECT, Verdict::Reject)])
        .required("\"accept\"")
        .help("expected action");
    static LOCAL_PREF: Key<u32> =
        Key::number("local_pref", 0..=U32).help("expected LOCAL_PREF of an accepted route");
    static MED: Key<()> = Key::raw("med", "0 to 4294967295, or `\"none\"`").help("MULTI_EXIT_DISC");
    static WEIGHT: Key<u32> = Key::number("weight", 0..=U32).help("the local weight");
    static PATH_LENGTH: Key<u32> = Key::number("path_length", 0..=U32).help("length of the AS path");
    static DISCARD: Key<bool> = Key::flag("discard").help("whether packets to the route are discarded");
    static ORIGIN: Key<Origin> = Key::word("origin", &ORIGINS).help("ORIGIN");
    static NEXT_HOP: Key<IpAddr> = Key::text("next_hop", "an address", values::address).help("the next hop");
    static AS_PATH: Key<Vec<u8>> = Key::by("as_path", "AS numbers", as_path).help("the AS path");
    static COMMUNITIES: Key<()> =
        Key::raw("communities", "a community or a list").help("all communities, in any order");
}

/// The default neighbor of a test (addresses and AS numbers for documentation).
const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LOCAL_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PEER_AS: u32 = 64_496;
const LOCAL_AS: u32 = 64_511;

/// Runs all tests; returns how many passed. Failures are errors of the configuration.
pub(crate) fn run(
    reader: &mut Reader,
    library: &RuleLibrary,
    tests: &[Item<'_>],
    neighbors: &[Arc<NeighborConfig>],
) -> usize {
    let interner = Interner::new(0);
    let mut passed = 0;
    for item in tests {
        let Some(section) = reader.section(item, &TABLE) else { continue };
        if test(reader, section, library, neighbors, &interner).is_some() {
            passed += 1;
        }
    }
    passed
}

/// `None` if the test failed or could not be run; the reason is reported.
fn test(
    reader: &mut Reader,
    mut section: Section<'_>,
    library: &RuleLibrary,
    neighbors: &[Arc<NeighborConfig>],
    interner: &Interner,
) -> Option<()> {
    let name =
        section.take(&NAME).and_then(|item| reader.string(&item, "a name")).unwrap_or("without a name");
    let policy = section.take(&RULES).and_then(|item| rules(reader, &item, library));
    let peer = section.take(&NEIGHBOR).map(|item| neighbor(reader, &item, neighbors));
    let source = section.take(&SOURCE).map(|item| neighbor(reader, &item, neighbors));
    let own = own(neighbors);
    let route = section.section(reader, &ROUTE).and_then(|section| route(reader, section));
    let expect = section.section(reader, &EXPECT).and_then(|section| expectation(reader, section));
    section.finish(reader);
    let (peer, source) = (peer.unwrap_or(Some(own))?, source.map_or(Some(None), |source| source.map(Some))?);
    let (policy, (prefix, validity, mut builder), expect) = (policy?, route?, expect?);
    let attrs = interner.intern(&mut builder);
    let vrps = vrps(prefix, validity, &attrs);
    let validator = Some(Validator::new(&vrps, LOCAL_AS));
    let context = RouteContext { prefix, peer: &peer, source: source.as_ref(), validator };
    let outcome = policy.evaluate(&context, &attrs, &mut builder);
    let after = match outcome {
        Outcome::AcceptChanged(_) => interner.intern(&mut builder),
        Outcome::Accept | Outcome::Reject { .. } => attrs,
    };
    let mut good = true;
    let mut fail = |span: &Range<usize>, what: String, expected: String| {
        good = false;
        reader.error(ErrorKind::TestFailed, span, format!("policy test `{name}` failed: {what}"), expected);
    };
    match (outcome, expect.verdict.value) {
        (Outcome::Reject { rule }, Verdict::Accept) => {
            fail(
                &expect.verdict.span,
                format!("the route is rejected: {}", policy.describe(rule)),
                ACCEPT.into(),
            );
        }
        (Outcome::Accept | Outcome::AcceptChanged(_), Verdict::Reject) => {
            fail(&expect.verdict.span, "the route is accepted".to_owned(), REJECT.to_owned());
        }
        (Outcome::Reject { .. }, Verdict::Reject) => {}
        (Outcome::Accept | Outcome::AcceptChanged(_), Verdict::Accept) => {
            for (span, key, wanted) in expect.values {
                let found = value_text(key, &after);
                if found != wanted {
                    fail(&span, format!("{key} is {found}"), wanted);
                }
            }
        }
    }
    good.then_some(())
}

fn rules(reader: &mut Reader, item: &Item<'_>, library: &RuleLibrary) -> Option<Policy> {
    let mut names: Vec<Arc<str>> = Vec::new();
    let sets = &library.sets;
    for entry in reader.filled_list(item) {
        let name = reader.string(&entry, "the name of a rule set")?;
        if !sets.contains_key(name) && ![ACCEPT, REJECT].contains(&name) {
            unknown(reader, &entry, name, "rule set", "[policy.rules]", sets.keys().map(|name| &**name));
            return None;
        }
        names.push(name.into());
    }
    // Other errors are reported where rules call each other.
    Policy::compile(library, &names).ok()
}

/// A default external neighbor.
fn own(neighbors: &[Arc<NeighborConfig>]) -> PeerInfo {
    let local_as = neighbors.first().map_or(LOCAL_AS, |neighbor| neighbor.local_as);
    let router_id = neighbors.first().map_or(LOCAL_ADDRESS, |neighbor| neighbor.router_id);
    let mut config = NeighborConfig::new(PEER_ADDRESS.into(), PEER_AS, local_as, router_id);
    config.name = "test".into();
    info(&config)
}

fn info(config: &NeighborConfig) -> PeerInfo {
    let remote_as = match &config.remote_as {
        RemoteAs::One(asn) => *asn,
        RemoteAs::AnyOf(ranges) => ranges.first().map_or(PEER_AS, |range| range.0),
        RemoteAs::Any => PEER_AS,
    };
    let kind = config.kind(remote_as);
    PeerInfo {
        id: PeerId(0),
        name: config.name.clone(),
        address: config.address,
        local_address: config.transport.local_address.unwrap_or(LOCAL_ADDRESS.into()),
        remote_as,
        local_as: config.shown_as(kind),
        kind,
        router_id: PEER_ADDRESS,
        role: config.role,
        route_server_client: config.export.route_server_client,
    }
}

fn neighbor(reader: &mut Reader, item: &Item<'_>, neighbors: &[Arc<NeighborConfig>]) -> Option<PeerInfo> {
    let text = reader.string(item, "the address or the name of a neighbor")?;
    let address = text.parse::<IpAddr>().ok();
    let found = neighbors.iter().find(|n| &*n.name == text || Some(n.address) == address);
    if found.is_none() {
        let names = neighbors.iter().map(|neighbor| &*neighbor.name);
        unknown(reader, item, text, "neighbor", "[[bgp.neighbor]]", names);
    }
    found.map(|config| info(config))
}

/// VRPs by which the route has this validity.
fn vrps(prefix: IpPrefix, validity: Validity, attrs: &Attrs) -> VrpTable {
    let asn = match validity {
        Validity::NotFound => return VrpTable::default(),
        Validity::Invalid => 0,
        Validity::Valid if attrs.path_length == 0 => LOCAL_AS,
        Validity::Valid => attrs.origin_as,
    };
    VrpList::from_iter([Vrp { prefix, max_length: prefix.length(), asn }]).into_table()
}

fn route(reader: &mut Reader, mut section: Section<'_>) -> Option<(IpPrefix, Validity, AttrsBuilder)> {
    let prefix = section.get(reader, &ROUTE_PREFIX);
    let mut builder = AttrsBuilder::default();
    builder.next_hop = NextHop::V4(PEER_ADDRESS);
    let path = given(reader, &mut section, &ROUTE_AS_PATH)?.unwrap_or_default();
    let mut wide = builder.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &path);
    builder.next_hop = match given(reader, &mut section, &ROUTE_NEXT_HOP)? {
        Some(IpAddr::V6(global)) => NextHop::V6 { global, link_local: None },
        Some(IpAddr::V4(address)) => NextHop::V4(address),
        None => builder.next_hop,
    };
    builder.origin = given(reader, &mut section, &ROUTE_ORIGIN)?.unwrap_or(builder.origin);
    builder.med = given(reader, &mut section, &ROUTE_MED)?;
    builder.local_pref = given(reader, &mut section, &ROUTE_LOCAL_PREF)?;
    let otc = given(reader, &mut section, &ROUTE_OTC)?;
    let validity = section.get(reader, &ROUTE_RPKI).unwrap_or(Validity::NotFound);
    if let Some(item) = section.take(&ROUTE_COMMUNITIES) {
        wide = wide.and(set_communities(reader, &item, &mut builder));
    }
    if let Some(asn) = otc {
        let flags = attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE;
        wide = wide.and(builder.set(flags, attribute::ONLY_TO_CUSTOMER, &asn.to_be_bytes()));
    }
    let span = section.span.clone();
    section.finish(reader);
    if let Err(error) = wide {
        reader.error(ErrorKind::TooMany, &span, error.to_string(), "a shorter attribute");
        return None;
    }
    Some((prefix?, validity, builder))
}

/// An optional value: a missing one is valid, a malformed one is not.
fn given<T: Value>(
    reader: &mut Reader,
    section: &mut Section<'_>,
    key: &'static Key<T>,
) -> Option<Option<T>> {
    match section.take(key) {
        Some(item) => key.value(reader, &item).map(Some),
        None => Some(None),
    }
}

fn set_communities(
    reader: &mut Reader,
    item: &Item<'_>,
    builder: &mut AttrsBuilder,
) -> Result<(), thalweg_bgp::attrs::AttrsError> {
    let (mut standard, mut extended, mut large) = (Vec::new(), Vec::new(), Vec::new());
    for entry in reader.list(item) {
        match community_value(reader, &entry, COMMUNITY) {
            Some(Community::Standard(c)) => standard.push(c),
            Some(Community::Extended(c)) => extended.push(c),
            Some(Community::Large(c)) => large.push(c),
            None => {}
        }
    }
    builder.set_communities(&standard)?;
    builder.set_extended_communities(&extended)?;
    builder.set_large_communities(&large)
}

/// `64500 64501 {64502,64503} (65001 65002)` in wire format.
fn as_path(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<u8>> {
    const EXPECTED: &str = "AS numbers, such as \"64500 64501 {64502,64503}\"";
    let text = reader.string(item, EXPECTED)?;
    let mut value = Vec::new();
    let mut kind = SegmentKind::Sequence;
    let mut header = None;
    let spaced = ["{", "}", "(", ")", "[", "]"]
        .iter()
        .fold(text.replace(',', " "), |text, bracket| text.replace(bracket, &format!(" {bracket} ")));
    for word in spaced.split_whitespace() {
        let turn = match word {
            "{" => Some(SegmentKind::Set),
            "(" => Some(SegmentKind::ConfederationSequence),
            "[" => Some(SegmentKind::ConfederationSet),
            "}" | ")" | "]" => Some(SegmentKind::Sequence),
            _ => None,
        };
        if let Some(turn) = turn {
            (kind, header) = (turn, None);
            continue;
        }
        let Ok(asn) = word.parse::<u32>() else {
            let message = format!("`{word}` in an AS path");
            reader.error(ErrorKind::BadValue, &item.span, message, EXPECTED);
            return None;
        };
        let at = *header.get_or_insert_with(|| {
            value.extend_from_slice(&[kind as u8, 0]);
            value.len() - 1
        });
        value.extend_from_slice(&asn.to_be_bytes());
        value[at] += 1;
        if value[at] == u8::MAX {
            header = None;
        }
    }
    Some(value)
}

/// What a test expects: values as text, which are compared with [`value_text`].
struct Expectation {
    verdict: At<Verdict>,
    values: Vec<(Range<usize>, &'static str, String)>,
}

fn expectation(reader: &mut Reader, mut section: Section<'_>) -> Option<Expectation> {
    let verdict = section.read(reader, &ACTION);
    let mut values = Vec::new();
    let mut add = |key: &'static str, text: Option<At<String>>| {
        values.extend(text.map(|text| (text.span, key, text.value)));
    };
    add("local_pref", text_of(reader, &mut section, &LOCAL_PREF, u32::to_string));
    if let Some(item) = section.take(&MED) {
        let text = match item.value {
            DeValue::String(text) if text == "none" => Some("none".to_owned()),
            _ => reader.integer(&item, 0..=U32, "").map(|number: u64| number.to_string()),
        };
        add("med", text.map(|value| At { value, span: item.span }));
    }
    add("weight", text_of(reader, &mut section, &WEIGHT, u32::to_string));
    add("path_length", text_of(reader, &mut section, &PATH_LENGTH, u32::to_string));
    add("discard", text_of(reader, &mut section, &DISCARD, bool::to_string));
    add("origin", text_of(reader, &mut section, &ORIGIN, |origin| origin_text(*origin).to_owned()));
    add("next_hop", text_of(reader, &mut section, &NEXT_HOP, IpAddr::to_string));
    let path_text = |value: &Vec<u8>| quoted(&thalweg_bgp::attrs::AsPath::new(value).to_string());
    add("as_path", text_of(reader, &mut section, &AS_PATH, path_text));
    if let Some(item) = section.take(&COMMUNITIES) {
        let entries = reader.list(&item);
        let list = entries.iter().filter_map(|entry| community_value(reader, entry, COMMUNITY)).collect();
        add("communities", Some(At { value: communities_text(list), span: item.span }));
    }
    section.finish(reader);
    Some(Expectation { verdict: verdict?, values })
}

/// An expected value as text.
fn text_of<T: Value>(
    reader: &mut Reader,
    section: &mut Section<'_>,
    key: &'static Key<T>,
    text: impl FnOnce(&T) -> String,
) -> Option<At<String>> {
    let At { value, span } = section.read(reader, key)?;
    Some(At { value: text(&value), span })
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn origin_text(origin: Origin) -> &'static str {
    ORIGINS.iter().find(|(_, known)| *known == origin).map_or("", |(name, _)| name)
}

/// Communities of a route have no order.
fn communities_text(mut list: Vec<Community>) -> String {
    list.sort_unstable();
    list.dedup();
    let texts: Vec<String> = list.iter().map(|each| quoted(&each.to_string())).collect();
    format!("[{}]", texts.join(", "))
}

fn value_text(key: &str, attrs: &Attrs) -> String {
    match key {
        "local_pref" => attrs.local_pref.to_string(),
        "med" => attrs.med().map_or_else(|| "none".to_owned(), |med| med.to_string()),
        "weight" => attrs.weight.to_string(),
        "discard" => attrs.has(flag::DISCARD).to_string(),
        "path_length" => attrs.path_length.to_string(),
        "origin" => origin_text(attrs.origin).to_owned(),
        "next_hop" => attrs.next_hop().to_string(),
        "as_path" => quoted(&attrs.as_path().to_string()),
        _ => {
            let standard = attrs.communities().map(Community::Standard);
            let extended = attrs.extended_communities().map(Community::Extended);
            communities_text(
                standard.chain(extended).chain(attrs.large_communities().map(Community::Large)).collect(),
            )
        }
    }
}
