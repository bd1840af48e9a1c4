//! `[[policy.rules.NAME]]`: a rule set is the rules of that name, in the order of the file.
//!
//! ```toml
//! [[policy.rules.customers-in]]
//! name = "blackholes"                  # for logs; default none
//! match = { community = "blackhole", prefix_length = "32" }   # all of these; default: every route
//! unless = { prefix = "bogons" }       # and not all of these
//! set = { local_pref = 200, communities_add = ["no-export"] }
//! call = "sanity"                      # asks another rule set; if it decides, that is it
//! action = "accept"                    # or "reject", or "next": the next rule is asked
//!
//! [[policy.rules.customers-in]]
//! default = "reject"                   # alone and last: what becomes of routes that no rule decided
//! ```

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::{PeerKind, Role};
use thalweg_bgp::policy::{
    ACCEPT, Action, Amount, Between, Community, CommunityList, CommunitySet, Condition, NumberSet,
    PREPEND_MAX, PeerPattern, Policy, PolicyError, PrependAs, REJECT, RULES_MAX, Rule, RuleLibrary, RuleSet,
    Verdict,
};
use thalweg_wire::bgp::{Family, Origin};
use toml::de::DeValue;

use crate::diagnostic::ErrorKind;
use crate::policy::{COMMUNITY, Sets, check_name, community_value, unknown};
use crate::reader::{Item, Reader, Section, integer_of};
use crate::values;

/// What neighbor patterns can name.
#[derive(Default)]
pub(crate) struct Groups {
    /// Groups, each with the addresses and the ranges of its neighbors.
    pub(crate) groups: Vec<Group>,
    /// Addresses of all neighbors that are named one by one.
    pub(crate) addresses: Arc<[IpAddr]>,
    /// Names of neighbors.
    pub(crate) names: Vec<Arc<str>>,
}

/// A group as patterns see it.
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ranges: Vec<IpPrefix>,
}

pub(crate) const ORIGINS: [(&str, Origin); 3] =
    [("igp", Origin::Igp), ("egp", Origin::Egp), ("incomplete", Origin::Incomplete)];

pub(crate) const FAMILIES: [(&str, Family); 2] = [("ipv4", Family::Ipv4), ("ipv6", Family::Ipv6)];

/// What the neighbor is to us; "provider" sells us transit.
pub(crate) const ROLES: [(&str, Role); 5] = [
    ("provider", Role::Provider),
    ("customer", Role::Customer),
    ("peer", Role::Peer),
    ("route-server", Role::RouteServer),
    ("route-server-client", Role::RouteServerClient),
];

const KINDS: [(&str, PeerKind); 4] = [
    ("external", PeerKind::External),
    ("internal", PeerKind::Internal),
    ("client", PeerKind::InternalClient),
    ("confederation", PeerKind::Confederation),
];

/// Reads all rule sets. Calls are checked: they name a rule set, and none calls itself.
pub(crate) fn read(reader: &mut Reader, item: &Item<'_>, sets: &Sets, groups: &Groups) -> RuleLibrary {
    let mut library = RuleLibrary::default();
    let Some(section) = reader.section(item, "[policy.rules]".to_owned()) else { return library };
    let mut calls = Vec::new();
    for (span, item) in section.into_names() {
        let name: Arc<str> = item.key.into();
        check_name(reader, &name, &span);
        if [ACCEPT, REJECT].contains(&&*name) {
            let message = format!("`{name}` is built in");
            reader.error(ErrorKind::Duplicate, &span, message, "another name");
        }
        let mut set = RuleSet::default();
        let entries = reader.list(&item);
        if entries.len() > RULES_MAX {
            let expected = format!("at most {RULES_MAX}");
            reader.error(ErrorKind::TooMany, &span, "too many rules", expected);
            continue;
        }
        for entry in entries {
            let title = format!("[[policy.rules.{name}]]");
            let Some(mut section) = reader.section(&entry, title) else { continue };
            if set.default.is_some() {
                let message = "a rule after the default is never asked";
                reader.error(
                    ErrorKind::Conflict,
                    &section.span.clone(),
                    message,
                    "`default` in the last entry",
                );
            }
            if let Some(item) = section.take("default") {
                set.default = reader.word(&item, &[(ACCEPT, Verdict::Accept), (REJECT, Verdict::Reject)]);
                section.finish(reader);
                continue;
            }
            let called = section.take("call");
            let rule = read_rule(reader, section, called.as_ref(), sets, groups);
            calls.extend(called.map(|item| (name.clone(), item)));
            set.rules.push(rule);
        }
        library.sets.insert(name, set);
    }
    check_calls(reader, &library, &calls);
    library
}

fn check_calls(reader: &mut Reader, library: &RuleLibrary, calls: &[(Arc<str>, Item<'_>)]) {
    let mut compiled = BTreeSet::new();
    for (caller, item) in calls {
        let DeValue::String(name) = item.value else { continue };
        if !library.sets.contains_key(&**name) && ![ACCEPT, REJECT].contains(&&**name) {
            let names = library.sets.keys().map(|name| &**name);
            unknown(reader, item, name, "rule set", "[policy.rules]", names);
            continue;
        }
        if !compiled.insert(caller) {
            continue;
        }
        let result = Policy::compile(library, std::slice::from_ref(caller));
        if let Err(error @ (PolicyError::Cycle { .. } | PolicyError::TooDeep { .. })) = result {
            let expected = "a rule set that does not lead back here";
            reader.error(ErrorKind::Conflict, &item.span, error.to_string(), expected);
            break;
        }
    }
}

fn read_rule(
    reader: &mut Reader,
    mut section: Section<'_>,
    called: Option<&Item<'_>>,
    sets: &Sets,
    groups: &Groups,
) -> Rule {
    let mut rule = Rule::default();
    if let Some(item) = section.take("name") {
        rule.name = reader.string(&item, "a name for logs").unwrap_or("").into();
    }
    for (key, list) in [("match", &mut rule.conditions), ("unless", &mut rule.unless)] {
        let Some(item) = section.take(key) else { continue };
        let Some(section) = reader.section(&item, format!("`{key}` of a rule")) else { continue };
        if section.is_empty() {
            let message = format!("`{key}` is empty");
            reader.error(ErrorKind::BadValue, &item.span, message, format!("a condition, or no `{key}`"));
        }
        *list = conditions(reader, section, sets, groups);
    }
    if let Some(item) = section.take("set")
        && let Some(section) = reader.section(&item, "`set` of a rule".to_owned())
    {
        rule.actions = actions(reader, section, sets);
    }
    rule.call = called.and_then(|item| reader.string(item, "the name of a rule set")).map(Into::into);
    let action = match called {
        Some(_) => section.take("action"),
        None => section.require("action", "\"accept\""),
    };
    let words = [(ACCEPT, Some(Verdict::Accept)), (REJECT, Some(Verdict::Reject)), ("next", None)];
    rule.verdict = action.and_then(|item| reader.word(&item, &words)).flatten();
    section.finish(reader);
    rule
}

fn conditions(reader: &mut Reader, mut section: Section<'_>, sets: &Sets, groups: &Groups) -> Vec<Condition> {
    let mut list = Vec::new();
    let mut add = |condition: Option<Condition>| list.extend(condition);
    // What costs least comes first, what costs most last.
    if let Some(item) = section.take("family") {
        add(reader.word(&item, &FAMILIES).map(Condition::Family));
    }
    if let Some(item) = section.take("origin") {
        let origins =
            reader.filled_list(&item).iter().filter_map(|entry| reader.word(entry, &ORIGINS)).collect();
        add(Some(Condition::Origin(origins)));
    }
    type Keyed<T> = (&'static str, fn(T) -> Condition);
    type Ranged = (&'static str, u32, fn(Between) -> Condition);
    let ranged: [Ranged; 6] = [
        ("prefix_length", 128, Condition::PrefixLength),
        ("path_length", 65_535, Condition::PathLength),
        ("med", u32::MAX, Condition::Med),
        ("local_pref", u32::MAX, Condition::LocalPref),
        ("weight", u32::MAX, Condition::Weight),
        ("community_count", 65_535, Condition::CommunityCount),
    ];
    for (key, max, condition) in ranged {
        if let Some(item) = section.take(key) {
            add(between(reader, &item, max).map(condition));
        }
    }
    let neighbors: [Keyed<Arc<[PeerPattern]>>; 2] =
        [("neighbor", Condition::Neighbor), ("source", Condition::Source)];
    for (key, condition) in neighbors {
        if let Some(item) = section.take(key) {
            add(peers(reader, &item, sets, groups).map(condition));
        }
    }
    let numbers: [Keyed<Arc<NumberSet>>; 3] = [
        ("origin_as", Condition::OriginAs),
        ("neighbor_as", Condition::NeighborAs),
        ("any_as", Condition::AnyAs),
    ];
    for (key, condition) in numbers {
        if let Some(item) = section.take(key) {
            add(sets.numbers(reader, &item).map(condition));
        }
    }
    if let Some(item) = section.take("otc") {
        add(match item.value {
            DeValue::Boolean(there) => Some(Condition::OnlyToCustomer(*there)),
            _ => sets.numbers(reader, &item).map(Condition::OnlyToCustomerAs),
        });
    }
    if let Some(item) = section.take("prefix") {
        add(sets.prefixes(reader, &item).map(Condition::Prefix));
    }
    if let Some(item) = section.take("next_hop") {
        add(sets.prefixes(reader, &item).map(Condition::NextHop));
    }
    let communities: [Keyed<Arc<CommunitySet>>; 3] = [
        ("community", Condition::CommunityAny),
        ("community_all", Condition::CommunityAll),
        ("community_none", Condition::CommunityNone),
    ];
    for (key, condition) in communities {
        if let Some(item) = section.take(key) {
            add(sets.communities(reader, &item).map(condition));
        }
    }
    if let Some(item) = section.take("as_path") {
        add(sets.paths(reader, &item).map(Condition::AsPath));
    }
    section.finish(reader);
    list
}

/// `24` or `"8-24"`
fn between(reader: &mut Reader, item: &Item<'_>, max: u32) -> Option<Between> {
    let expected = format!("a number up to {max} or a range, such as \"1-{}\"", max.min(24));
    if matches!(item.value, DeValue::Integer(_)) {
        let number = reader.integer(item, 0..=u64::from(max), "or a range")? as u32;
        return Some(Between { first: number, last: number });
    }
    let text = reader.string(item, &expected)?;
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number <= max);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Some(Between { first, last }),
        _ => {
            let message = format!("bad range `{text}` for `{}`", item.key);
            reader.error(ErrorKind::BadValue, &item.span, message, expected);
            None
        }
    }
}

/// Neighbors: addresses, AS numbers, `group:NAME`, `kind:external`, `role:customer`, `local`, names.
fn peers(reader: &mut Reader, item: &Item<'_>, sets: &Sets, groups: &Groups) -> Option<Arc<[PeerPattern]>> {
    let mut patterns = Vec::new();
    for entry in reader.filled_list(item) {
        let DeValue::String(text) = entry.value else {
            patterns.push(PeerPattern::As(sets.numbers(reader, &entry)?));
            continue;
        };
        let part = |value: &'static str| text.strip_prefix(value);
        if let Some(name) = part("group:") {
            let Some(group) = groups.groups.iter().find(|group| &*group.name == name) else {
                let names = groups.groups.iter().map(|group| &*group.name);
                unknown(reader, &entry, name, "group", "[[bgp.group]]", names);
                return None;
            };
            patterns.extend(group.addresses.iter().copied().map(PeerPattern::Address));
            let range =
                |prefix: &IpPrefix| PeerPattern::Range { prefix: *prefix, except: groups.addresses.clone() };
            patterns.extend(group.ranges.iter().map(range));
        } else if let Some(name) = part("role:") {
            patterns.push(PeerPattern::Role(word_in(reader, &entry, name, &ROLES)?));
        } else if let Some(name) = part("kind:") {
            patterns.push(PeerPattern::Kind(word_in(reader, &entry, name, &KINDS)?));
        } else if text == "local" {
            patterns.push(PeerPattern::Local);
        } else if let Ok(address) = text.parse() {
            patterns.push(PeerPattern::Address(address));
        } else if let Some(name) = groups.names.iter().find(|name| ***name == **text) {
            patterns.push(PeerPattern::Name(name.clone()));
        } else if text.starts_with(|c: char| c.is_ascii_digit()) {
            patterns.push(PeerPattern::As(sets.numbers(reader, &entry)?));
        } else {
            let names = groups.names.iter().map(|name| &**name);
            unknown(reader, &entry, text, "neighbor", "[[bgp.neighbor]]", names);
            return None;
        }
    }
    Some(patterns.into())
}

fn word_in<T: Clone>(reader: &mut Reader, item: &Item<'_>, word: &str, words: &[(&str, T)]) -> Option<T> {
    let value = DeValue::String(word.into());
    reader.word(&Item { key: item.key, value: &value, span: item.span.clone() }, words)
}

/// In the order in which they happen.
fn actions(reader: &mut Reader, mut section: Section<'_>, sets: &Sets) -> Vec<Action> {
    let mut list = Vec::new();
    if let Some(item) = section.take("remove_private_as") {
        list.extend(match item.value {
            DeValue::Boolean(true) => Some(Action::RemovePrivateAs),
            DeValue::String(text) if text == "replace" => Some(Action::ReplacePrivateAs),
            _ => reader.wrong_type(&item, "true or \"replace\""),
        });
    }
    if let Some(item) = section.take("prepend") {
        list.extend(prepend(reader, &item));
    }
    if let Some(item) = section.take("communities_set") {
        list.push(Action::CommunitiesSet(community_list(reader, &item)));
    }
    if let Some(item) = section.take("communities_remove") {
        list.extend(sets.communities(reader, &item).map(Action::CommunitiesRemove));
    }
    if let Some(item) = section.take("communities_replace")
        && let Some(section) = reader.section(&item, "`communities_replace`".to_owned())
    {
        for (span, to) in section.into_names() {
            let from = DeValue::String(to.key.into());
            let set = sets.communities(reader, &Item { key: to.key, value: &from, span });
            let to = community_list(reader, &to);
            list.extend(set.map(|set| Action::CommunitiesReplace(set, to)));
        }
    }
    if let Some(item) = section.take("communities_add") {
        list.push(Action::CommunitiesAdd(community_list(reader, &item)));
    }
    if let Some(item) = section.take("local_pref") {
        list.extend(amount(reader, &item).map(Action::LocalPref));
    }
    if let Some(item) = section.take("med") {
        match item.value {
            DeValue::String(text) if text == "remove" => list.push(Action::MedRemove),
            _ => list.extend(amount(reader, &item).map(Action::Med)),
        }
    }
    if let Some(item) = section.take("weight") {
        list.extend(reader.integer(&item, 0..=u64::from(u32::MAX), "").map(|n| Action::Weight(n as u32)));
    }
    if let Some(item) = section.take("discard") {
        list.extend(reader.boolean(&item).map(Action::Discard));
    }
    if let Some(item) = section.take("origin") {
        list.extend(reader.word(&item, &ORIGINS).map(Action::Origin));
    }
    if let Some(item) = section.take("next_hop") {
        list.extend(next_hop(reader, &item));
    }
    section.finish(reader);
    list
}

/// `100`, `"+10"` or `"-10"`
fn amount(reader: &mut Reader, item: &Item<'_>) -> Option<Amount> {
    let DeValue::String(text) = item.value else {
        return reader
            .integer(item, 0..=u64::from(u32::MAX), "or a change, such as \"+10\"")
            .map(|n| Amount::Set(n as u32));
    };
    let number = |text: &str| text.parse::<u32>().ok();
    let amount = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(more), _) => number(more).map(Amount::Add),
        (_, Some(less)) => number(less).map(Amount::Subtract),
        _ => None,
    };
    if amount.is_none() {
        let message = format!("bad value `{text}` for `{}`", item.key);
        let expected = match item.key {
            "med" => "a number, a change, such as \"+10\" or \"-10\", or \"remove\"",
            _ => "a number or a change, such as \"+10\" or \"-10\"",
        };
        reader.error(ErrorKind::BadValue, &item.span, message, expected);
    }
    amount
}

/// `3`: our AS three times; `{ as = 64500, count = 2 }`
fn prepend(reader: &mut Reader, item: &Item<'_>) -> Option<Action> {
    let counts = 1..=u64::from(PREPEND_MAX);
    if integer_of(item.value).is_some() {
        let count = reader.integer(item, counts, "times")? as u8;
        return Some(Action::Prepend { asn: PrependAs::Own, count });
    }
    let mut section = reader.section(item, "`prepend`".to_owned())?;
    let count = match section.take("count") {
        Some(item) => reader.integer(&item, counts, "times"),
        None => Some(1),
    };
    let asn = match section.take("as") {
        None => Some(PrependAs::Own),
        Some(item) if matches!(item.value, DeValue::String(_)) => {
            reader.word(&item, &[("own", PrependAs::Own), ("last", PrependAs::Last)])
        }
        Some(item) => reader
            .integer(&item, 1..=u64::from(u32::MAX), "or \"own\" or \"last\"")
            .map(|n| PrependAs::Given(n as u32)),
    };
    section.finish(reader);
    Some(Action::Prepend { asn: asn?, count: count? as u8 })
}

fn next_hop(reader: &mut Reader, item: &Item<'_>) -> Option<Action> {
    if let DeValue::String(text) = item.value {
        match &**text {
            "self" => return Some(Action::NextHopSelf),
            "unchanged" => return Some(Action::NextHopUnchanged),
            "peer" => return Some(Action::NextHopPeer),
            _ => {}
        }
    }
    let (mut v4, mut v6) = (None, None);
    for entry in reader.filled_list(item) {
        let at = reader.parse(&entry, |text| {
            values::address(text).map_err(|_| "\"self\", \"unchanged\", \"peer\" or an address")
        })?;
        let twice = match at.value {
            IpAddr::V4(address) => v4.replace(address).is_some(),
            IpAddr::V6(address) => v6.replace(address).is_some(),
        };
        if twice {
            let expected = "at most one IPv4 and one IPv6 address";
            reader.error(ErrorKind::Duplicate, &at.span, "two next hops of one family", expected);
        }
    }
    Some(Action::NextHop { v4, v6 })
}

/// Communities, none of them a pattern.
pub(crate) fn community_list(reader: &mut Reader, item: &Item<'_>) -> Arc<CommunityList> {
    let entries = reader.list(item);
    Arc::new(
        entries.iter().filter_map(|entry| community_value::<Community>(reader, entry, COMMUNITY)).collect(),
    )
}
