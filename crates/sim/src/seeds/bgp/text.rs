//! The names, prefixes and configurations of a plan's routers, as an operator would write them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use thalweg_base::IpPrefix;

use super::plan::{End, Features, Plan, Relationship};
use crate::policy::address;

/// The number of kinds of prefixes, which differ in their length.
pub(super) const KINDS: u8 = 4;

/// LOCAL_PREF of customers', peers' and providers' routes, which is also their mark.
pub(super) const CUSTOMER: u32 = 200;
const PEER: u32 = 100;
const PROVIDER: u32 = 50;

/// The time between attempts to connect, and the longest pause after an error.
pub(super) const CONNECT_RETRY_S: u64 = 3;
pub(super) const IDLE_HOLD_MAX_S: u64 = 8;
/// How long a restarting router waits for tables, and how long its routes are kept.
pub(super) const DEFERRAL_S: u64 = 10;
pub(super) const STALE_S: u64 = 20;
/// The longest time for which a flapping route is suppressed.
pub(super) const SUPPRESS_MAX_S: u64 = 12;

/// A router's number where it is a part of others.
pub(super) fn number(router: usize) -> u32 {
    router as u32
}

/// The AS of a router, as others see it.
pub(super) fn asn(plan: &Plan, router: usize) -> u32 {
    let first = if plan.features.large_as { 4_200_000_000 } else { 65_001 };
    first + number(plan.as_of(router))
}

/// The AS of a router as its own AS sees it: in a confederation its member AS.
pub(super) fn inner_asn(plan: &Plan, router: usize) -> u32 {
    match (plan.is_member(router), plan.features.large_as) {
        (true, true) => 4_200_001_000 + number(router),
        (true, false) => 64_800 + number(router),
        (false, _) => asn(plan, router),
    }
}

pub(super) fn ipv6_address(router: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, router as u16 + 1)
}

/// The name of a neighbor in a router's configuration.
pub(super) fn neighbor_name(router: usize, other: usize) -> String {
    format!("r{router}-r{other}")
}

/// The two routers of a neighbor's name.
pub(super) fn routers_of_name(name: &str) -> Option<(usize, usize)> {
    let (router, other) = name.split_once('-')?;
    let number = |text: &str| text.strip_prefix('r')?.parse().ok();
    Some((number(router)?, number(other)?))
}

/// Prefixes of a router.
pub(super) fn prefixes(plan: &Plan, router: usize) -> Vec<IpPrefix> {
    let mut all = Vec::new();
    let mut add = |network: usize, number: u16| {
        let kind = (number % u16::from(KINDS)) as u8;
        let address = Ipv4Addr::new(10, network as u8, number as u8, 0);
        all.push(IpPrefix::V4(Ipv4Net::new_assert(address, 24 + kind).into()));
        if plan.features.ipv6 {
            let address = Ipv6Addr::new(0x2001, 0xdb8, network as u16, number, 0, 0, 0, 0);
            all.push(IpPrefix::V6(Ipv6Net::new_assert(address, 64 + kind).into()));
        }
    };
    let own = plan.routers[router];
    (0..own.prefixes).for_each(|number| add(router, number));
    if own.anycast {
        add(255, 0);
    }
    all
}

/// The kind of a prefix.
pub(super) fn kind(prefix: IpPrefix) -> u8 {
    match prefix {
        IpPrefix::V4(prefix) => prefix.length() - 24,
        IpPrefix::V6(prefix) => prefix.length() - 64,
    }
}

/// The role of a link's other end, seen from a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    Customer,
    Peer,
    Provider,
}

impl Other {
    /// The role as the router at an end of a link sees it. A route server treats all neighbors alike.
    pub(super) fn at(plan: &Plan, link: usize, end: usize) -> Option<Self> {
        if plan.routers[plan.router_at(link, end)].route_server {
            return None;
        }
        Some(match (plan.links[link].is?, end) {
            (Relationship::Peer, _) => Self::Peer,
            (Relationship::Provider, 0) => Self::Customer,
            (Relationship::Provider, _) => Self::Provider,
        })
    }

    pub(super) fn local_pref(self) -> u32 {
        match self {
            Self::Customer => CUSTOMER,
            Self::Peer => PEER,
            Self::Provider => PROVIDER,
        }
    }

    fn role(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Peer => "peer",
            Self::Provider => "provider",
        }
    }
}

/// The first half of communities that mark from whom a route was learned, and of those that mark where it
/// passed.
pub(super) const LEARNED: u32 = 64_512;
pub(super) const PASSED: u32 = 64_600;

/// The configuration of a router in the current plan. The sessions in `shut` stay down.
pub(super) fn configuration(plan: &Plan, router: usize) -> String {
    let features = &plan.features;
    let networks: Vec<String> = prefixes(plan, router).iter().map(IpPrefix::to_string).collect();
    let mut text = format!(
        "[bgp]\nas = {}\nrouter_id = \"{}\"\nlisten = []\ninstall = \"none\"\nnetworks = {networks:?}\n\
         hold_time_s = {}\nconnect_retry_s = {CONNECT_RETRY_S}\nidle_hold_max_s = {IDLE_HOLD_MAX_S}\n\
         selection_deferral_s = {DEFERRAL_S}\nnext_hop = [\"{}\", \"{}\"]\n",
        inner_asn(plan, router),
        address(router),
        features.hold_s,
        address(router),
        ipv6_address(router),
    );
    text += &shared(features);
    if plan.is_member(router) {
        let members = (0..plan.routers.len()).filter(|other| plan.within(*other) == plan.within(router));
        let members: Vec<u32> = members.map(|other| inner_asn(plan, other)).collect();
        let _ = writeln!(text, "confederation = {{ id = {}, members = {members:?} }}", asn(plan, router));
    }
    for (number, end, other) in plan.links_of(router) {
        let link = &plan.links[number];
        let relation = Other::at(plan, number, end);
        let is_internal = plan.is_internal(number);
        let export = if is_internal { INSIDE.to_owned() } else { export_name(relation, &link.ends[end]) };
        let _ = writeln!(
            text,
            "[[bgp.neighbor]]\nname = \"{}\"\naddress = \"{}\"\nas = {}\nimport = \"{}\"\nexport = \"{export}\"",
            neighbor_name(router, other),
            address(other),
            if is_internal { inner_asn(plan, other) } else { asn(plan, other) },
            import_name(relation),
        );
        if plan.routers[other].client_of == Some(router) {
            text += "route_reflector_client = true\n";
        } else if plan.routers[router].route_server {
            text += "route_server_client = true\n";
        } else if plan.routers[other].route_server {
            text += "first_as_check = false\n";
        } else if let Some(relation) = relation.filter(|_| features.roles) {
            let _ = writeln!(text, "role = \"{}\"", relation.role());
        }
    }
    let mut rules = BTreeMap::new();
    for (number, end, _) in plan.links_of(router) {
        let link = &plan.links[number];
        let (relation, end) = (Other::at(plan, number, end), &link.ends[end]);
        rules.insert(import_name(relation), import_rules(relation));
        match plan.is_internal(number) {
            true => rules.insert(INSIDE.to_owned(), rules_inside()),
            false => rules.insert(export_name(relation, end), export_rules(router, relation, end)),
        };
    }
    rules.into_values().for_each(|rules| text += &rules);
    text
}

/// What routers of one AS send each other.
const INSIDE: &str = "inside";

/// An AS's own prefixes are marked as its customers' are: it announces both to all.
fn rules_inside() -> String {
    format!(
        "[[policy.rules.{INSIDE}]]\nmatch = {{ source = \"local\" }}\n\
         set = {{ communities_add = [\"{LEARNED}:{CUSTOMER}\"] }}\naction = \"accept\"\n\
         [[policy.rules.{INSIDE}]]\naction = \"accept\"\n"
    )
}

fn import_name(relation: Option<Other>) -> String {
    format!("from-{}", relation.map_or("all", Other::role))
}

/// Neighbors that are sent the same routes have rules of the same name, and so share an update group.
fn export_name(relation: Option<Other>, end: &End) -> String {
    let End { prepend, med, mark, incomplete, reject, metric: _ } = end;
    let number = |value: Option<u32>| value.map_or("no".to_owned(), |value| value.to_string());
    let (med, reject) = (number(*med), number(reject.map(u32::from)));
    format!("to-{}-{prepend}-{med}-{mark}-{incomplete}-{reject}", relation.map_or("all", Other::role))
}

fn shared(features: &Features) -> String {
    let mut text = String::new();
    if features.ipv6 {
        text += "families = [\"ipv4\", \"ipv6\"]\n";
    }
    if features.paths >= 2 {
        let _ =
            writeln!(text, "add_path = {{ ipv4 = \"both\", ipv6 = \"both\", paths = {} }}", features.paths);
    }
    if features.short_messages {
        text += "extended_messages = false\n";
    }
    if features.no_refresh {
        text += "route_refresh = false\nenhanced_refresh = false\n";
    }
    if features.mrai_ms > 0 {
        let _ = writeln!(text, "mrai_ms = {}", features.mrai_ms);
    }
    if features.damping {
        let _ = writeln!(
            text,
            "damping = {{ suppress_threshold = 1200, half_life_s = 5, max_suppress_s = {SUPPRESS_MAX_S} }}"
        );
    }
    if features.graceful_restart {
        let _ = writeln!(text, "graceful_restart = {{ time_s = 10, stale_path_s = {STALE_S} }}");
    }
    text
}

fn import_rules(relation: Option<Other>) -> String {
    let set = relation.map_or(String::new(), |relation| {
        let pref = relation.local_pref();
        format!(
            "set = {{ local_pref = {pref}, communities_remove = [\"{LEARNED}:*\"], communities_add = [\"{LEARNED}:{pref}\"] }}\n"
        )
    });
    format!("[[policy.rules.{}]]\n{set}action = \"accept\"\n", import_name(relation))
}

fn export_rules(router: usize, relation: Option<Other>, end: &End) -> String {
    let (name, mut text) = (export_name(relation, end), String::new());
    let mut rule = |lines: &str| {
        let _ = write!(text, "[[policy.rules.{name}]]\n{lines}\n");
    };
    if let Some(kind) = end.reject {
        for (family, length) in [("ipv4", 24), ("ipv6", 64)] {
            let length = length + kind;
            rule(&format!(
                "match = {{ family = \"{family}\", prefix_length = {length} }}\naction = \"reject\""
            ));
        }
    }
    let mut set = vec![format!("communities_remove = [\"{LEARNED}:*\"]")];
    if end.prepend > 0 {
        set.push(format!("prepend = {}", end.prepend));
    }
    if let Some(med) = end.med {
        set.push(format!("med = {med}"));
    }
    if end.incomplete {
        set.push("origin = \"incomplete\"".to_owned());
    }
    if end.mark {
        set.push(format!("communities_add = [\"{PASSED}:{router}\"]"));
    }
    let set = set.join(", ");
    let only = match relation {
        None | Some(Other::Customer) => vec![String::new()],
        // Peers and providers receive only our own and our customers' routes.
        Some(_) => vec![
            "match = { source = \"local\" }\n".to_owned(),
            format!("match = {{ community = \"{LEARNED}:{CUSTOMER}\" }}\n"),
        ],
    };
    for condition in &only {
        rule(&format!("{condition}set = {{ {set} }}\naction = \"accept\""));
    }
    if only.len() > 1 {
        rule("default = \"reject\"");
    }
    text
}
