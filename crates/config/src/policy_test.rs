//! `[[policy.test]]`: routes and what rules must do with them. They are run whenever a configuration is read, so
//! that neither a start nor a reload takes rules that do something else.
//!
//! ```toml
//! [[policy.test]]
//! name = "customers get 200"
//! rules = "customers-in"               # or several, as in `import`
//! neighbor = "198.18.1.1"              # whose policy it is: address or name; default: some external one
//! source = "198.18.1.2"                # at export: who sent it; default: nobody
//! route = { prefix = "198.18.4.0/24", as_path = "64600 64601 {64602,64603}", communities = ["64500:1"] }
//! expect = { action = "accept", local_pref = 200, communities = ["64500:1", "64500:100"] }
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::{Attrs, AttrsBuilder, Interner, NextHop, SegmentKind, flag};
use thalweg_bgp::peer::{PeerId, PeerInfo};
use thalweg_bgp::policy::{ACCEPT, Community, Outcome, Policy, REJECT, RouteContext, Verdict};
use thalweg_bgp::session::config::{NeighborConfig, RemoteAs};
use thalweg_wire::bgp::{Origin, attribute};
use toml::de::DeValue;

use crate::diagnostic::ErrorKind;
use crate::policy::{COMMUNITY, Policies, community_value, unknown};
use crate::policy_rules::ORIGINS;
use crate::reader::{At, Item, Reader, Section};
use crate::values;

/// The neighbor of a test that names none (addresses and AS numbers for documentation).
const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LOCAL_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PEER_AS: u32 = 64_496;
const LOCAL_AS: u32 = 64_511;

/// Runs all tests; how many succeeded. Failures are errors of the configuration.
pub(crate) fn run(
    reader: &mut Reader,
    policies: &mut Policies<'_>,
    neighbors: &[Arc<NeighborConfig>],
) -> usize {
    let interner = Interner::new(0);
    let mut passed = 0;
    for item in std::mem::take(&mut policies.tests) {
        let Some(section) = reader.section(&item, "[[policy.test]]".to_owned()) else { continue };
        if test(reader, section, policies, neighbors, &interner).is_some() {
            passed += 1;
        }
    }
    passed
}

/// `None` if it failed or could not be run; why is reported.
fn test(
    reader: &mut Reader,
    mut section: Section<'_>,
    policies: &Policies<'_>,
    neighbors: &[Arc<NeighborConfig>],
    interner: &Interner,
) -> Option<()> {
    let name =
        section.take("name").and_then(|item| reader.string(&item, "a name")).unwrap_or("without a name");
    let policy = section.require("rules", "\"customers-in\"").and_then(|item| rules(reader, &item, policies));
    let peer = section.take("neighbor").map(|item| neighbor(reader, &item, neighbors));
    let source = section.take("source").map(|item| neighbor(reader, &item, neighbors));
    let own = own(neighbors);
    let route = section.require("route", "{ prefix = \"192.0.2.0/24\" }").and_then(|item| {
        let section = reader.section(&item, "`route` of a test".to_owned())?;
        route(reader, section)
    });
    let expect = section.require("expect", "{ action = \"accept\" }").and_then(|item| {
        let section = reader.section(&item, "`expect` of a test".to_owned())?;
        expectation(reader, section)
    });
    section.finish(reader);
    let (peer, source) = (peer.unwrap_or(Some(own))?, source.map_or(Some(None), |source| source.map(Some))?);
    let (policy, (prefix, mut builder), expect) = (policy?, route?, expect?);
    let attrs = interner.intern(&mut builder);
    let context = RouteContext { prefix, peer: &peer, source: source.as_ref() };
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

fn rules(reader: &mut Reader, item: &Item<'_>, policies: &Policies<'_>) -> Option<Policy> {
    let mut names: Vec<Arc<str>> = Vec::new();
    let sets = &policies.library.sets;
    for entry in reader.filled_list(item) {
        let name = reader.string(&entry, "the name of a rule set")?;
        if !sets.contains_key(name) && ![ACCEPT, REJECT].contains(&name) {
            unknown(reader, &entry, name, "rule set", "[policy.rules]", sets.keys().map(|name| &**name));
            return None;
        }
        names.push(name.into());
    }
    // What else can be wrong is reported where rules call each other.
    Policy::compile(&policies.library, &names).ok()
}

/// Some external neighbor.
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

fn route(reader: &mut Reader, mut section: Section<'_>) -> Option<(IpPrefix, AttrsBuilder)> {
    let prefix = section.require("prefix", "\"192.0.2.0/24\"").and_then(|item| {
        reader.parse(&item, |text| text.parse::<IpPrefix>().map_err(|_| "a prefix, such as \"192.0.2.0/24\""))
    });
    let mut builder = AttrsBuilder::default();
    builder.next_hop = NextHop::V4(PEER_ADDRESS);
    let path = section.take("as_path").map(|item| as_path(reader, &item));
    let mut wide =
        builder.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &path.unwrap_or(Some(Vec::new()))?);
    if let Some(item) = section.take("next_hop") {
        builder.next_hop = match reader.parse(&item, values::address)?.value {
            IpAddr::V4(address) => NextHop::V4(address),
            IpAddr::V6(global) => NextHop::V6 { global, link_local: None },
        };
    }
    if let Some(item) = section.take("origin") {
        builder.origin = reader.word(&item, &ORIGINS)?;
    }
    let mut number = |key| {
        let item = section.take(key)?;
        Some(reader.integer(&item, 0..=u64::from(u32::MAX), "").map(|number| number as u32))
    };
    builder.med = number("med").transpose_or()?;
    builder.local_pref = number("local_pref").transpose_or()?;
    let otc = number("otc").transpose_or()?;
    if let Some(item) = section.take("communities") {
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
    Some((prefix?.value, builder))
}

/// "Not given" is fine, "given and wrong" is not.
trait TransposeOr<T> {
    fn transpose_or(self) -> Option<Option<T>>;
}

impl<T> TransposeOr<T> for Option<Option<T>> {
    fn transpose_or(self) -> Option<Option<T>> {
        match self {
            None => Some(None),
            Some(None) => None,
            Some(value) => Some(value),
        }
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

/// `64500 64501 {64502,64503} (65001 65002)` as it is on the wire.
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

/// What a test expects: values as text, compared with [`value_text`].
struct Expectation {
    verdict: At<Verdict>,
    values: Vec<(Range<usize>, &'static str, String)>,
}

fn expectation(reader: &mut Reader, mut section: Section<'_>) -> Option<Expectation> {
    let verdict = section.require("action", "\"accept\"").and_then(|item| {
        let value = reader.word(&item, &[(ACCEPT, Verdict::Accept), (REJECT, Verdict::Reject)])?;
        Some(At { value, span: item.span })
    });
    let mut values = Vec::new();
    for key in ["local_pref", "med", "weight", "path_length"] {
        let Some(item) = section.take(key) else { continue };
        let text = match item.value {
            DeValue::String(text) if text == "none" && key == "med" => Some("none".to_owned()),
            _ => reader.integer(&item, 0..=u64::from(u32::MAX), "").map(|number| number.to_string()),
        };
        values.extend(text.map(|text| (item.span, key, text)));
    }
    if let Some(item) = section.take("discard") {
        let text = reader.boolean(&item).map(|discard| discard.to_string());
        values.extend(text.map(|text| (item.span, "discard", text)));
    }
    if let Some(item) = section.take("origin") {
        let text = reader.word(&item, &ORIGINS).map(origin_text);
        values.extend(text.map(|text| (item.span, "origin", text.to_owned())));
    }
    if let Some(item) = section.take("next_hop") {
        let at = reader.parse(&item, values::address);
        values.extend(at.map(|at| (at.span, "next_hop", at.value.to_string())));
    }
    if let Some(item) = section.take("as_path") {
        let path = as_path(reader, &item);
        let text = path.map(|value| thalweg_bgp::attrs::AsPath::new(&value).to_string());
        values.extend(text.map(|text| (item.span, "as_path", quoted(&text))));
    }
    if let Some(item) = section.take("communities") {
        let entries = reader.list(&item);
        let list = entries.iter().filter_map(|entry| community_value(reader, entry, COMMUNITY)).collect();
        values.push((item.span, "communities", communities_text(list)));
    }
    section.finish(reader);
    Some(Expectation { verdict: verdict?, values })
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn origin_text(origin: Origin) -> &'static str {
    ORIGINS.iter().find(|(_, known)| *known == origin).map_or("", |(name, _)| name)
}

/// In any order: a route's communities have none.
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
