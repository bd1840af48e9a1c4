//! `[[policy.rules.NAME]]`: a rule set is the rules of that name, in the order of the file.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::{PeerKind, Role};
use thalweg_bgp::policy::{
    ACCEPT, Action, Amount, Between, Community, CommunityList, CommunitySet, Condition, NumberSet,
    PREPEND_MAX, PeerPattern, Policy, PolicyError, PrefixSet, PrependAs, REJECT, RULES_MAX, Rule,
    RuleLibrary, RuleSet, Verdict,
};
use thalweg_bgp::rpki::Validity;
use thalweg_wire::bgp::{Family, Origin};
use toml::de::DeValue;

use crate::diagnostic::ErrorKind;
use crate::key::{Key, Sub, U32, table};
use crate::policy_sets::{COMMUNITY, Sets, check_name, community_value, unknown};
use crate::reader::{Item, Reader, integer_of};
use crate::section::Section;
use crate::values;

pub(crate) static RULES: Key<Sub> =
    Key::named_sections("rules", &RULE_TABLE).help("`[[policy.rules.NAME]]`: the rules of a set in order");
table! {
    static RULE_TABLE: "policy.rules.NAME", "[[policy.rules.NAME]]";

    static NAME: Key<()> = Key::raw("name", "a name").help("for logs");
    static MATCH: Key<Sub> = Key::section("match", &CONDITION_TABLE)
        .otherwise("every route")
        .help("all of these conditions: see [policy](policy.md#conditions)");
    static UNLESS: Key<Sub> = Key::section("unless", &CONDITION_TABLE).help("and not all of these");
    static SET: Key<Sub> = Key::section("set", &CHANGE_TABLE).help("changes: see [policy](policy.md#changes)");
    static CALL: Key<()> =
        Key::raw("call", "a name").help("another rule set to evaluate; if it decides, its decision holds");
    static ACTION: Key<Option<Verdict>> =
        Key::word("action", &[(ACCEPT, Some(Verdict::Accept)), (REJECT, Some(Verdict::Reject)), ("next", None)])
            .otherwise("required without `call`")
            .example("\"accept\"")
            .help("action for routes that match; `\"next\"`: the next rule is asked");
    static DEFAULT: Key<Verdict> = Key::word("default", &[(ACCEPT, Verdict::Accept), (REJECT, Verdict::Reject)])
        .otherwise("the caller goes on")
        .help("only in the last entry: action for routes that no rule decided");
}

table! {
    static CONDITION_TABLE: "policy.rules.NAME.match", "`match` or `unless` of a rule";

    static FAMILY: Key<Family> = Key::word("family", &FAMILIES).help("whose routes: `\"ipv4\"` or `\"ipv6\"`");
    static ORIGIN: Key<Vec<Origin>> = Key::by("origin", "a word or a list", |reader, item| {
        reader.all(item, |reader, entry| reader.word(entry, &ORIGINS))
    })
    .help("`\"igp\"`, `\"egp\"` or `\"incomplete\"`");
    static PREFIX_LENGTH: Key<Between> =
        Key::by("prefix_length", RANGE, |reader, item| between(reader, item, 128)).help("length of the prefix");
    static PATH_LENGTH: Key<Between> =
        Key::by("path_length", RANGE, |reader, item| between(reader, item, 65_535)).help("length of the AS path");
    static MED: Key<Between> =
        Key::by("med", RANGE, |reader, item| between(reader, item, u32::MAX)).help("MULTI_EXIT_DISC");
    static LOCAL_PREF: Key<Between> =
        Key::by("local_pref", RANGE, |reader, item| between(reader, item, u32::MAX)).help("LOCAL_PREF");
    static WEIGHT: Key<Between> =
        Key::by("weight", RANGE, |reader, item| between(reader, item, u32::MAX)).help("the local weight");
    static COMMUNITY_COUNT: Key<Between> =
        Key::by("community_count", RANGE, |reader, item| between(reader, item, 65_535))
            .help("number of communities");
    static NEIGHBOR: Key<()> = Key::raw("neighbor", "a pattern or a list").help("neighbor whose policy applies");
    static SOURCE: Key<()> = Key::raw("source", "a pattern or a list").help("neighbor that sent the route");
    static ORIGIN_AS: Key<()> = Key::raw("origin_as", NUMBERS).help("the last AS of the path");
    static NEIGHBOR_AS: Key<()> = Key::raw("neighbor_as", NUMBERS).help("the first AS of the path");
    static ANY_AS: Key<()> = Key::raw("any_as", NUMBERS).help("any AS of the path");
    static OTC: Key<()> = Key::raw("otc", "true, false, or an AS set, a number, a range or a list")
        .help("ONLY_TO_CUSTOMER (RFC 9234): whether it is there, or which AS it names");
    static PREFIX: Key<()> = Key::raw("prefix", "a prefix set, an entry or a list").help("the prefix");
    static NEXT_HOP: Key<()> = Key::raw("next_hop", "a prefix set, an entry or a list").help("the next hop");
    static COMMUNITY_ANY: Key<()> = Key::raw("community", COMMUNITIES).help("at least one of these");
    static COMMUNITY_ALL: Key<()> = Key::raw("community_all", COMMUNITIES).help("all of these");
    static COMMUNITY_NONE: Key<()> = Key::raw("community_none", COMMUNITIES).help("none of these");
    static RPKI: Key<Vec<Validity>> = Key::by("rpki", "a word or a list", |reader, item| {
        reader.all(item, |reader, entry| reader.word(entry, &Validity::NAMES))
    })
    .help("at import, what the RPKI says of the origin: `\"valid\"`, `\"not-found\"` or `\"invalid\"`");
    static AS_PATH: Key<()> = Key::raw("as_path", "an AS-path set, a pattern or a list").help("the AS path");
}

const RANGE: &str = "a number or a range";
const NUMBERS: &str = "an AS set, a number, a range or a list";
const COMMUNITIES: &str = "a community set, a community, a pattern or a list";

table! {
    static CHANGE_TABLE: "policy.rules.NAME.set", "`set` of a rule";

    static REMOVE_PRIVATE_AS: Key<()> = Key::raw("remove_private_as", "true, or `\"replace\"`")
        .help("remove private AS numbers from the path, or replace them with ours");
    static PREPEND: Key<()> =
        Key::raw("prepend", "a number, or a table").keys(&PREPEND_TABLE).help("prepend AS numbers to the path");
    static COMMUNITIES_SET: Key<Arc<CommunityList>> =
        Key::by("communities_set", "a list", communities).help("replace all communities with these");
    static COMMUNITIES_REMOVE: Key<()> =
        Key::raw("communities_remove", COMMUNITIES).help("remove these communities");
    static COMMUNITIES_REPLACE: Key<()> =
        Key::raw("communities_replace", "a table of lists by pattern").help("replace communities that match");
    static COMMUNITIES_ADD: Key<Arc<CommunityList>> =
        Key::by("communities_add", "a list", communities).help("add these communities");
    static SET_LOCAL_PREF: Key<Amount> =
        Key::by("local_pref", "a number, or a change such as `\"+10\"`", amount).help("LOCAL_PREF");
    static SET_MED: Key<()> =
        Key::raw("med", "a number, a change such as `\"+10\"`, or `\"remove\"`").help("MULTI_EXIT_DISC");
    static SET_WEIGHT: Key<u32> = Key::number("weight", 0..=U32).help("the local weight");
    static DISCARD: Key<bool> = Key::flag("discard").help("discard packets to the route");
    static SET_ORIGIN: Key<Origin> = Key::word("origin", &ORIGINS).help("ORIGIN");
    static SET_NEXT_HOP: Key<Action> =
        Key::by("next_hop", "`\"self\"`, `\"unchanged\"`, `\"peer\"`, or an address or a list", next_hop)
            .help("the next hop");
}

table! {
    static PREPEND_TABLE: "policy.rules.NAME.set.prepend", "`prepend`";

    static PREPEND_AS: Key<()> =
        Key::raw("as", "an AS number, `\"own\"` or `\"last\"`").otherwise("`\"own\"`").help("which AS");
    static COUNT: Key<u8> =
        Key::number("count", 1..=PREPEND_MAX as u64).unit("times").default(1).help("how often");
}

/// What neighbor patterns can name.
#[derive(Default)]
pub(crate) struct Groups {
    /// Each with the addresses and ranges of its neighbors.
    pub(crate) groups: Vec<Group>,
    /// Addresses of all neighbors that are listed individually.
    pub(crate) addresses: Arc<[IpAddr]>,
    /// Names of neighbors.
    pub(crate) names: Vec<Arc<str>>,
}

/// A group for patterns.
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ranges: Vec<IpPrefix>,
}

pub(crate) const ORIGINS: [(&str, Origin); 3] =
    [("igp", Origin::Igp), ("egp", Origin::Egp), ("incomplete", Origin::Incomplete)];

pub(crate) const FAMILIES: [(&str, Family); 2] = [("ipv4", Family::Ipv4), ("ipv6", Family::Ipv6)];

/// The neighbor's role toward us; a "provider" sells us transit.
pub const ROLES: [(&str, Role); 5] = [
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

/// Reads all rule sets and checks calls: they must name a rule set, and none may call itself.
pub(crate) fn read(reader: &mut Reader, item: &Item<'_>, sets: &Sets, groups: &Groups) -> RuleLibrary {
    let mut library = RuleLibrary::default();
    let Some(names) = reader.names(item) else { return library };
    let mut calls = Vec::new();
    for (span, item) in names {
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
            let Some(mut section) = reader.section_called(&entry, &RULE_TABLE, title) else { continue };
            if set.default.is_some() {
                let message = "a rule after the default is never asked";
                reader.error(
                    ErrorKind::Conflict,
                    &section.span.clone(),
                    message,
                    "`default` in the last entry",
                );
            }
            if let Some(item) = section.take(&DEFAULT) {
                set.default = DEFAULT.value(reader, &item);
                section.finish(reader);
                continue;
            }
            let called = section.take(&CALL);
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
    if let Some(item) = section.take(&NAME) {
        rule.name = reader.string(&item, "a name for logs").unwrap_or("").into();
    }
    for (key, list) in [(&MATCH, &mut rule.conditions), (&UNLESS, &mut rule.unless)] {
        let Some(item) = section.take(key) else { continue };
        let key = key.name();
        let title = format!("`{key}` of a rule");
        let Some(section) = reader.section_called(&item, &CONDITION_TABLE, title) else { continue };
        if section.is_empty() {
            let message = format!("`{key}` is empty");
            reader.error(ErrorKind::BadValue, &item.span, message, format!("a condition, or no `{key}`"));
        }
        *list = conditions(reader, section, sets, groups);
    }
    if let Some(item) = section.take(&SET)
        && let Some(section) = reader.section(&item, &CHANGE_TABLE)
    {
        rule.actions = actions(reader, section, sets);
    }
    rule.call = called.and_then(|item| reader.string(item, "the name of a rule set")).map(Into::into);
    let action = match called {
        Some(_) => section.take(&ACTION),
        None => section.require(&ACTION),
    };
    rule.verdict = action.and_then(|item| ACTION.value(reader, &item)).flatten();
    section.finish(reader);
    rule
}

fn conditions(reader: &mut Reader, mut section: Section<'_>, sets: &Sets, groups: &Groups) -> Vec<Condition> {
    let mut list = Vec::new();
    let mut add = |condition: Option<Condition>| list.extend(condition);
    // Cheap conditions come first, expensive ones last.
    add(section.get(reader, &FAMILY).map(Condition::Family));
    add(section.get(reader, &ORIGIN).map(|origins| Condition::Origin(origins.into_iter().collect())));
    type Keyed<V, T> = (&'static Key<V>, fn(T) -> Condition);
    let ranged: [Keyed<Between, Between>; 6] = [
        (&PREFIX_LENGTH, Condition::PrefixLength),
        (&PATH_LENGTH, Condition::PathLength),
        (&MED, Condition::Med),
        (&LOCAL_PREF, Condition::LocalPref),
        (&WEIGHT, Condition::Weight),
        (&COMMUNITY_COUNT, Condition::CommunityCount),
    ];
    for (key, condition) in ranged {
        add(section.get(reader, key).map(condition));
    }
    let neighbors: [Keyed<(), Arc<[PeerPattern]>>; 2] =
        [(&NEIGHBOR, Condition::Neighbor), (&SOURCE, Condition::Source)];
    for (key, condition) in neighbors {
        let item = section.take(key);
        add(item.and_then(|item| peers(reader, &item, sets, groups)).map(condition));
    }
    let numbers: [Keyed<(), Arc<NumberSet>>; 3] = [
        (&ORIGIN_AS, Condition::OriginAs),
        (&NEIGHBOR_AS, Condition::NeighborAs),
        (&ANY_AS, Condition::AnyAs),
    ];
    for (key, condition) in numbers {
        add(section.take(key).and_then(|item| sets.numbers(reader, &item)).map(condition));
    }
    if let Some(item) = section.take(&OTC) {
        add(match item.value {
            DeValue::Boolean(there) => Some(Condition::OnlyToCustomer(*there)),
            _ => sets.numbers(reader, &item).map(Condition::OnlyToCustomerAs),
        });
    }
    let prefixes: [Keyed<(), Arc<PrefixSet>>; 2] =
        [(&PREFIX, Condition::Prefix), (&NEXT_HOP, Condition::NextHop)];
    for (key, condition) in prefixes {
        add(section.take(key).and_then(|item| sets.prefixes(reader, &item)).map(condition));
    }
    let communities: [Keyed<(), Arc<CommunitySet>>; 3] = [
        (&COMMUNITY_ANY, Condition::CommunityAny),
        (&COMMUNITY_ALL, Condition::CommunityAll),
        (&COMMUNITY_NONE, Condition::CommunityNone),
    ];
    for (key, condition) in communities {
        add(section.take(key).and_then(|item| sets.communities(reader, &item)).map(condition));
    }
    add(section.get(reader, &RPKI).map(Condition::Validity));
    add(section.take(&AS_PATH).and_then(|item| sets.paths(reader, &item)).map(Condition::AsPath));
    section.finish(reader);
    list
}

/// `24` or `"8-24"`
fn between(reader: &mut Reader, item: &Item<'_>, max: u32) -> Option<Between> {
    let expected = format!("a number up to {max} or a range, such as \"1-{}\"", max.min(24));
    if matches!(item.value, DeValue::Integer(_)) {
        let number: u32 = reader.integer(item, 0..=u64::from(max), "or a range")?;
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

/// In order of execution.
fn actions(reader: &mut Reader, mut section: Section<'_>, sets: &Sets) -> Vec<Action> {
    let mut list = Vec::new();
    if let Some(item) = section.take(&REMOVE_PRIVATE_AS) {
        list.extend(match item.value {
            DeValue::Boolean(true) => Some(Action::RemovePrivateAs),
            DeValue::String(text) if text == "replace" => Some(Action::ReplacePrivateAs),
            _ => reader.wrong_type(&item, "true or \"replace\""),
        });
    }
    if let Some(item) = section.take(&PREPEND) {
        list.extend(prepend(reader, &item));
    }
    list.extend(section.get(reader, &COMMUNITIES_SET).map(Action::CommunitiesSet));
    if let Some(item) = section.take(&COMMUNITIES_REMOVE) {
        list.extend(sets.communities(reader, &item).map(Action::CommunitiesRemove));
    }
    let replaced = section.take(&COMMUNITIES_REPLACE).and_then(|item| reader.names(&item));
    for (span, to) in replaced.unwrap_or_default() {
        let from = DeValue::String(to.key.into());
        let set = sets.communities(reader, &Item { key: to.key, value: &from, span });
        let to = community_list(reader, &to);
        list.extend(set.map(|set| Action::CommunitiesReplace(set, to)));
    }
    list.extend(section.get(reader, &COMMUNITIES_ADD).map(Action::CommunitiesAdd));
    list.extend(section.get(reader, &SET_LOCAL_PREF).map(Action::LocalPref));
    if let Some(item) = section.take(&SET_MED) {
        match item.value {
            DeValue::String(text) if text == "remove" => list.push(Action::MedRemove),
            _ => list.extend(amount(reader, &item).map(Action::Med)),
        }
    }
    list.extend(section.get(reader, &SET_WEIGHT).map(Action::Weight));
    list.extend(section.get(reader, &DISCARD).map(Action::Discard));
    list.extend(section.get(reader, &SET_ORIGIN).map(Action::Origin));
    list.extend(section.get(reader, &SET_NEXT_HOP));
    section.finish(reader);
    list
}

/// `100`, `"+10"` or `"-10"`
fn amount(reader: &mut Reader, item: &Item<'_>) -> Option<Amount> {
    let DeValue::String(text) = item.value else {
        return reader
            .integer(item, 0..=u64::from(u32::MAX), "or a change, such as \"+10\"")
            .map(Amount::Set);
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

/// `3`: our AS three times; or `{ as = 64500, count = 2 }`
fn prepend(reader: &mut Reader, item: &Item<'_>) -> Option<Action> {
    if integer_of(item.value).is_some() {
        let count = COUNT.value(reader, item)?;
        return Some(Action::Prepend { asn: PrependAs::Own, count });
    }
    let mut section = reader.section(item, &PREPEND_TABLE)?;
    let count = match section.take(&COUNT) {
        Some(item) => COUNT.value(reader, &item),
        None => COUNT.default_value(reader),
    };
    let asn = match section.take(&PREPEND_AS) {
        None => Some(PrependAs::Own),
        Some(item) if matches!(item.value, DeValue::String(_)) => {
            reader.word(&item, &[("own", PrependAs::Own), ("last", PrependAs::Last)])
        }
        Some(item) => {
            reader.integer(&item, 1..=u64::from(u32::MAX), "or \"own\" or \"last\"").map(PrependAs::Given)
        }
    };
    section.finish(reader);
    Some(Action::Prepend { asn: asn?, count: count? })
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

fn communities(reader: &mut Reader, item: &Item<'_>) -> Option<Arc<CommunityList>> {
    Some(community_list(reader, item))
}

/// Communities without patterns.
pub(crate) fn community_list(reader: &mut Reader, item: &Item<'_>) -> Arc<CommunityList> {
    let entries = reader.list(item);
    Arc::new(
        entries.iter().filter_map(|entry| community_value::<Community>(reader, entry, COMMUNITY)).collect(),
    )
}
