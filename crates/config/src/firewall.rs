//! `[firewall]`: zones, and which connections may begin between them.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use thalweg_bgp::session::config::{BGP_PORT, NeighborConfig};
use thalweg_dataplane::acl::{AclSet, Action, Facts, Fragment, Rule};
use thalweg_dataplane::firewall::{
    FirewallConfig as Firewall, PacketState, Policy, ROUTER, StateTimeouts, Zone, ZoneRule,
};
use thalweg_dataplane::helpers::{Helper, Helpers};
use thalweg_dataplane::nat::NatConfig;
use thalweg_dataplane::rate_limit::Rate;
use thalweg_wire::{ip_protocol, tcp};

use crate::acl;
use crate::bgp_types::BgpConfig;
use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::items::{helpers, parse_name};
use crate::key::{Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::FirewallConfig;

pub(crate) static FIREWALL: Key<Sub> = Key::section("firewall", &TABLE)
    .help("stateful firewall for IPv4 and IPv6: see [firewall.md](firewall.md)");
table! {
    static TABLE: "firewall", "[firewall]";

    row POLICY;
    row OUTSIDE;
    row ZONES;
    row STATES_MAX;
    row HALF_OPEN_MAX;
    row TCP_WINDOWS;
    row TCP_PICKUP;
    row HELPERS;
    row TIMEOUTS;
    row RULES;
}

static POLICY: Key<Policy> = Key::word("policy", &Policy::NAMES).default(Policy::OutgoingOnly).help(
    "connections that no rule decides about: `\"outgoing-only\"`: they pass within a zone and toward a zone outside; \
     `\"deny\"`: none pass; `\"permit\"`: all pass",
);
static OUTSIDE: Key<()> = Key::raw("outside", "a zone or a list")
    .otherwise("the zones of `[nat]` `outside`")
    .help("the zones that only answer; with `outgoing-only` there must be one");
static ZONES: Key<()> =
    Key::raw("zones", "a table").help("ports by zone: `lan = [\"eth1\", \"vlan20\"]`; a port has one zone");
static STATES_MAX: Key<u32> = Key::number("states_max", 1..=Firewall::STATES_MOST as u64)
    .default(262_144)
    .help("size of the table of connections, 92 bytes each");
static HALF_OPEN_MAX: Key<u32> = Key::number("half_open_max", 0..=1_000_000)
    .default(1024)
    .help("connections of one host (IPv6: of one /64) that nobody has answered, approximate; `0`: no limit");
static TCP_WINDOWS: Key<bool> = Key::flag("tcp_windows").default(false).help(
    "drop TCP segments outside of their window, and resets that do not name the expected number (RFC 5961)",
);
static TCP_PICKUP: Key<bool> = Key::flag("tcp_pickup")
    .default(true)
    .help("let a plain acknowledgment begin a connection, so that those from before a restart go on");
static HELPERS: Key<Vec<Helper>> = Key::by("helpers", "a word or a list", helpers).otherwise("none").help(
    "`\"ftp\"`, `\"sip\"`, `\"pptp\"`: let in what these announce, where NAT does not translate them; where it does, \
     `[nat]` `helpers` [do](nat.md#helpers)",
);
static TIMEOUTS: Key<Sub> = Key::section("timeouts", &TIMEOUTS_TABLE).help("idle timeouts of connections");
static RULES: Key<Sub> = Key::sections("rules", &RULE_TABLE).help("rules in order; the first match decides");

table! {
    static TIMEOUTS_TABLE: "firewall.timeouts", "[firewall.timeouts]";

    row UDP_S;
    row TCP_ESTABLISHED_S;
    row TCP_TRANSITORY_S;
    row TCP_ABORTED_S;
    row ICMP_S;
    row OTHER_S;
}

const TIMEOUT_S: RangeInclusive<u64> = 1..=7 * 24 * 3600;

static UDP_S: Key<u32> = Key::number("udp_s", TIMEOUT_S)
    .unit("seconds")
    .default(StateTimeouts::DEFAULT.udp_s)
    .help("UDP (RFC 6092 REC-14)");
static TCP_ESTABLISHED_S: Key<u32> = Key::number("tcp_established_s", TIMEOUT_S)
    .unit("seconds")
    .default(StateTimeouts::DEFAULT.tcp_established_s)
    .help("established TCP (RFC 6092 REC-35)");
static TCP_TRANSITORY_S: Key<u32> = Key::number("tcp_transitory_s", TIMEOUT_S)
    .unit("seconds")
    .default(StateTimeouts::DEFAULT.tcp_transitory_s)
    .help("TCP that opens or closes (RFC 6092 REC-35)");
static TCP_ABORTED_S: Key<u32> = Key::number("tcp_aborted_s", TIMEOUT_S)
    .unit("seconds")
    .default(StateTimeouts::DEFAULT.tcp_aborted_s)
    .help("TCP that was refused or reset beyond doubt; at most `tcp_transitory_s`");
static ICMP_S: Key<u32> =
    Key::number("icmp_s", TIMEOUT_S).unit("seconds").default(StateTimeouts::DEFAULT.icmp_s).help("ICMP echo");
static OTHER_S: Key<u32> = Key::number("other_s", TIMEOUT_S)
    .unit("seconds")
    .default(StateTimeouts::DEFAULT.other_s)
    .help("other protocols: GRE, ESP, SCTP");

table! {
    static RULE_TABLE: "firewall.rules", "[[firewall.rules]]";

    row acl::ACTION;
    row acl::RULE_NAME;
    row FROM;
    row TO;
    row STATE;
    row acl::SOURCE;
    row acl::DESTINATION;
    row acl::PROTOCOL;
    row acl::SOURCE_PORTS;
    row acl::DESTINATION_PORTS;
    row acl::DSCP;
    row acl::ICMP;
    row NEW_PER_SECOND;
    row NEW_BURST;
    row LOG;
}

static FROM: Key<()> = Key::raw("from", "a zone or a list")
    .otherwise("any but `router`")
    .help("zones of arrival; `\"router\"`: what programs of the router send");
static TO: Key<()> = Key::raw("to", "a zone or a list")
    .otherwise("any but `router`")
    .help("zones of departure; `\"router\"`: the router itself");
static STATE: Key<Vec<PacketState>> = Key::by("state", "a word or a list", |reader, item| {
    reader.all(item, |reader, entry| reader.word(entry, &PacketState::NAMES))
})
.otherwise("`\"new\"`")
.help(
    "what the packet is: `\"new\"`: begins a connection; `\"established\"`: belongs to one; `\"related\"`: an ICMP error \
     about one, or begins one that [another announced](nat.md#helpers); `\"invalid\"`: none of these",
);
static NEW_PER_SECOND: Key<u32> = Key::number("new_per_second", 1..=1_000_000_000)
    .otherwise("no limit")
    .help("with `permit`: connections that it permits a second, approximate; those above are dropped");
static NEW_BURST: Key<u32> = Key::number("new_burst", 1..=1_000_000_000)
    .otherwise("`new_per_second`")
    .help("connections that it permits at once after a pause");
static LOG: Key<bool> = Key::flag("log").otherwise("`false`").help(
    "log the packets that it decides about: at most a line a second, with the number of those left out",
);

/// Reads `[firewall]`; `None` if it is missing or unusable because of errors.
pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    nat: Option<&NatConfig>,
    bgp: Option<&BgpConfig>,
) -> Option<FirewallConfig> {
    let mut section = root.section(reader, &FIREWALL)?;
    let span = section.span.clone();
    let (zones, zone_names) = read_zones(reader, &mut section, ports);
    let mut firewall = Firewall {
        zones,
        outside: Vec::new(),
        policy: Policy::OutgoingOnly,
        rules: Vec::new(),
        states_max: 0,
        half_open_max: None,
        checks_windows: false,
        picks_up: true,
        timeouts: StateTimeouts::DEFAULT,
        helpers: Helpers::default(),
    };
    section.set(reader, &POLICY, &mut firewall.policy);
    section.set(reader, &STATES_MAX, &mut firewall.states_max);
    firewall.half_open_max = section.get(reader, &HALF_OPEN_MAX).filter(|limit| *limit > 0);
    section.set(reader, &TCP_WINDOWS, &mut firewall.checks_windows);
    section.set(reader, &TCP_PICKUP, &mut firewall.picks_up);
    firewall.helpers = section.get(reader, &HELPERS).unwrap_or_default().into_iter().collect();
    firewall.outside = match section.take(&OUTSIDE) {
        Some(item) => zones_of(reader, &item, &zone_names, None),
        None => {
            let ports = nat.into_iter().flat_map(NatConfig::outside_ports);
            let mut zones: Vec<Zone> =
                ports.map(|port| firewall.zone(port)).filter(|zone| *zone != 0).collect();
            zones.dedup();
            zones
        }
    };
    if firewall.policy == Policy::OutgoingOnly && firewall.outside.is_empty() && !section.has(OUTSIDE.name())
    {
        let message = "`outgoing-only` needs to know what is outside";
        reader.error(ErrorKind::MissingKey, &span, message, "`outside = \"wan\"`, a zone");
    }
    read_timeouts(reader, &mut section, &mut firewall.timeouts);
    let (mut rule_names, mut rule_spans) = (Vec::new(), Vec::new());
    for rule in section.sections(reader, &RULES) {
        if firewall.rules.len() >= AclSet::RULES_MAX {
            let expected = format!("at most {}", AclSet::RULES_MAX);
            reader.error(ErrorKind::TooMany, &rule.span, "too many rules", expected);
            break;
        }
        let (number, span) = (rule_names.len() + 1, rule.span.clone());
        if let Some((rule, name)) = read_rule(reader, rule, &zone_names) {
            firewall.rules.push(rule);
            rule_names.push(name.unwrap_or_else(|| number.to_string()));
            rule_spans.push(span);
        }
    }
    section.finish(reader);
    for neighbor in bgp.iter().flat_map(|bgp| &bgp.neighbors) {
        if let Some(rule) = denies_neighbor(&firewall, ports, neighbor) {
            let message = format!("this rule denies the BGP session with {}", neighbor.name);
            let expected =
                format!("a rule before it that permits TCP port {BGP_PORT} of {}", neighbor.address);
            reader.warning(ErrorKind::Conflict, &rule_spans[rule], message, expected);
        }
    }
    Some(FirewallConfig { firewall, zone_names, rule_names })
}

/// The place of the rule that denies a connection between the router and a BGP neighbor on a link of it.
fn denies_neighbor(firewall: &Firewall, ports: &Ports, neighbor: &NeighborConfig) -> Option<usize> {
    let nets = (0..)
        .zip(&ports.configs)
        .flat_map(|(port, config)| config.addresses.iter().map(move |net| (port, *net)));
    let (port, net) = nets.into_iter().find(|(_, net)| net.contains(&neighbor.address))?;
    let zone = firewall.zone(port);
    let denies = |(from, source): (Zone, IpAddr), (to, destination): (Zone, IpAddr), to_port: u16| {
        let facts = Facts {
            source,
            destination,
            protocol: ip_protocol::TCP,
            ports: Some((u16::MAX, to_port)),
            icmp: None,
            tcp_flags: Some(tcp::SYN),
            dscp: 0,
            fragment: Fragment::Whole,
        };
        let is_it = |rule: &ZoneRule| rule.is_about(PacketState::New, from, to) && rule.rule.holds(&facts);
        let rule = firewall.rules.iter().position(is_it)?;
        (firewall.rules[rule].rule.action != Action::Permit).then_some(rule)
    };
    let (theirs, ours) = ((zone, neighbor.address), (ROUTER, net.addr()));
    let outgoing = || denies(ours, theirs, neighbor.transport.port).filter(|_| !neighbor.passive);
    denies(theirs, ours, BGP_PORT).or_else(outgoing)
}

/// The zone of each port, and the names of zones from 1 on.
fn read_zones(reader: &mut Reader, section: &mut Section<'_>, ports: &Ports) -> (Vec<Zone>, Vec<String>) {
    let (mut zones, mut names) = (vec![0; ports.configs.len()], Vec::new());
    let Some(item) = section.take(&ZONES) else { return (zones, names) };
    for (span, item) in reader.names(&item).unwrap_or_default() {
        if let Err(expected) = parse_name(item.key) {
            reader.error(ErrorKind::BadValue, &span, format!("bad name `{}`", item.key), expected);
        } else if item.key == FirewallConfig::ROUTER_NAME {
            let message = "the zone `router` is the router itself: it has no ports";
            reader.error(ErrorKind::BadValue, &span, message, "another name");
        }
        if names.len() + 1 >= Firewall::ZONES_MAX {
            let expected = format!("at most {}", Firewall::ZONES_MAX - 1);
            reader.error(ErrorKind::TooMany, &span, "too many zones", expected);
            break;
        }
        names.push(item.key.to_owned());
        let zone = names.len() as Zone;
        for entry in reader.list(&item) {
            let Some(port) = ports.named(reader, &entry) else { continue };
            let place = &mut zones[usize::from(port)];
            if let Some(other) = usize::from(*place).checked_sub(1) {
                let message = format!("port {} is in the zone `{}` already", ports.name(port), names[other]);
                reader.error(ErrorKind::Duplicate, &entry.span, message, "each port in one zone");
            } else {
                *place = zone;
            }
        }
    }
    (zones, names)
}

/// Zones by their names, one of which may be that of the router itself.
fn zones_of(reader: &mut Reader, item: &Item<'_>, names: &[String], router: Option<&str>) -> Vec<Zone> {
    let mut zones = Vec::new();
    for entry in reader.filled_list(item) {
        let known = || names.iter().map(String::as_str).chain(router);
        let expected =
            if names.is_empty() { "a zone of [firewall.zones]".to_owned() } else { one_of(known()) };
        let Some(name) = reader.string(&entry, &expected) else { continue };
        match known().position(|known| known == name) {
            Some(place) if place == names.len() => zones.push(ROUTER),
            Some(place) => zones.push(place as Zone + 1),
            None => {
                let message = format!("no zone is named `{name}`");
                let finding = reader.error(ErrorKind::UnknownName, &entry.span, message, expected);
                finding.help = nearest(name, known()).map(|name| format!("did you mean `{name}`?"));
            }
        }
    }
    zones
}

fn read_timeouts(reader: &mut Reader, section: &mut Section<'_>, timeouts: &mut StateTimeouts) {
    let mut section = section.section_or_empty(reader, &TIMEOUTS);
    section.set(reader, &UDP_S, &mut timeouts.udp_s);
    section.set(reader, &TCP_ESTABLISHED_S, &mut timeouts.tcp_established_s);
    section.set(reader, &TCP_TRANSITORY_S, &mut timeouts.tcp_transitory_s);
    section.set(reader, &TCP_ABORTED_S, &mut timeouts.tcp_aborted_s);
    section.set(reader, &ICMP_S, &mut timeouts.icmp_s);
    section.set(reader, &OTHER_S, &mut timeouts.other_s);
    section.finish(reader);
}

fn read_rule(
    reader: &mut Reader,
    mut section: Section<'_>,
    zone_names: &[String],
) -> Option<(ZoneRule, Option<String>)> {
    let action = section.read(reader, &acl::ACTION).map(|at| at.value);
    let name = section.get(reader, &acl::RULE_NAME);
    let zones = |reader: &mut Reader, key: &'static Key<()>, section: &mut Section<'_>| {
        let router = Some(FirewallConfig::ROUTER_NAME);
        section.take(key).map(|item| zones_of(reader, &item, zone_names, router)).unwrap_or_default()
    };
    let mut rule = ZoneRule {
        from: zones(reader, &FROM, &mut section),
        to: zones(reader, &TO, &mut section),
        rule: Rule::all(action.unwrap_or(Action::Deny)),
        states: Vec::new(),
        limit: None,
        logs: false,
    };
    section.set(reader, &STATE, &mut rule.states);
    acl::read_match(reader, &mut section, &mut rule.rule);
    section.set(reader, &LOG, &mut rule.logs);
    let per_second = section.read(reader, &NEW_PER_SECOND);
    let burst = section.read(reader, &NEW_BURST);
    match (per_second, burst) {
        (Some(At { value, span }), _) if action.is_some_and(|action| action != Action::Permit) => {
            let message = format!("a limit of {value} a second for connections that are not permitted");
            reader.error(ErrorKind::Conflict, &span, message, "`action = \"permit\"`, or no limit");
        }
        (Some(rate), burst) => {
            let burst = burst.map_or(rate.value, |burst| burst.value);
            rule.limit = Some(Rate::per_second(rate.value, burst));
        }
        (None, Some(burst)) => {
            let message = "`new_burst` without `new_per_second` limits nothing";
            reader.error(ErrorKind::Conflict, &burst.span, message, "`new_per_second` too");
        }
        (None, None) => {}
    }
    let span = section.span.clone();
    section.finish(reader);
    acl::check_rule(reader, &rule.rule, &span);
    action?;
    Some((rule, name))
}
