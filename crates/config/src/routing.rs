//! `[routing]` and `[[routes]]`, and the complete table of routes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use ipnet::IpNet;
use thalweg_dataplane::acl::{AclSet, Action, Rule};
use thalweg_dataplane::gateway_check::CheckConfig;
use thalweg_dataplane::routing_rules::RoutingRule;

use crate::acl;
use crate::diagnostic::ErrorKind;
use crate::gateway_checks::{self, CHECK, GatewayChecks};
use crate::key::{Key, Sub, U32, table};
use crate::ports::{Ports, is_link_local};
use crate::reader::{At, Reader};
use crate::route_file::{self, RouteFileContext};
use crate::route_table::RouteTable;
use crate::section::Section;
use crate::types::{NextHop, PortIndex, RouteSources, RouteTarget, RoutingConfig, VrfIndex};
use crate::values;

pub(crate) static ROUTING: Key<Sub> = Key::section("routing", &ROUTING_TABLE)
    .help("route files, for tables too large for this file, and rules");
table! {
    static ROUTING_TABLE: "routing", "[routing]";

    static FILES: Key<()> = Key::raw("files", "a path or a list").help("route files, relative to this one");
    static DEFAULT_NEXT_HOPS: Key<()> = Key::raw("default_next_hops", "an address or a list").help(
        "next hops for lines with only a prefix: the i-th line of a family takes the i-th address of that family, beginning \
         again after the last",
    );
    static RULES: Key<Sub> = Key::sections("rules", &RULE_TABLE).help(
        "rules that are asked before the routes, in order; the first match decides: see [routing-rules.md](routing-rules.md)",
    );
}

pub(crate) static ROUTES: Key<Sub> = Key::sections("routes", &ROUTE_TABLE).help("static routes");
table! {
    static ROUTE_TABLE: "routes", "[[routes]]";

    static PREFIX: Key<IpNet> = Key::text("prefix", "a prefix", values::prefix)
        .required("\"0.0.0.0/0\"")
        .help("`\"0.0.0.0/0\"`, without bits set beyond its length");
    static ROUTE_VRF: Key<()> = Key::raw("vrf", "a VRF")
        .otherwise("`\"main\"`")
        .help("the [table](#vrfsname) that has the route; its packets may leave by ports of other VRFs, named by `port`");
    static VIA: Key<()> = Key::raw("via", "an address or a list of at most 64")
        .help("next hop, or several for ECMP by flow hash: `[\"203.0.113.1\", \"203.0.113.5\"]`");
    static PORT: Key<()> = Key::raw("port", "a port")
        .otherwise("where the next hop is connected")
        .help("port of the next hop; without `via`: an on-link route");
    static ONLINK: Key<bool> = Key::flag("onlink").default(false).help(
        "with `via` and `port`: the next hop is on the port's link though none of its networks holds it. For hosts of providers \
         that give an address as a /32: the router asks for the gateway by ARP all the same, and answers questions for its \
         own address there",
    );
    static ACTION: Key<bool> = Key::word("action", &[("blackhole", true), ("unreachable", false)])
        .help("instead of `via` and `port`: discard packets silently, or as unreachable");
    static METRIC: Key<u32> = Key::number("metric", 0..=U32).default(0).help(
        "of several routes to a prefix, the one with the lowest metric is used whose link is up and whose next hop answers",
    );
    row gateway_checks::CHECK;
}

table! {
    static RULE_TABLE: "routing.rules", "[[routing.rules]]";

    row acl::RULE_NAME;
    static FROM: Key<()> = Key::raw("from", "a port or a list")
        .otherwise("any; with VRFs those of `main`")
        .help("ports of arrival");
    row acl::SOURCE;
    row acl::DESTINATION;
    row acl::PROTOCOL;
    row acl::SOURCE_PORTS;
    row acl::DESTINATION_PORTS;
    row acl::DSCP;
    row acl::ICMP;
    row VIA;
    row PORT;
    row ONLINK;
    static FALLBACK: Key<bool> = Key::flag("fallback")
        .default(true)
        .help("when no next hop can be used: `true`: the routes decide; `false`: packets wait or are dropped");
    static RULE_ACTION: Key<Ending> = Key::word("action", &ENDINGS).help(
        "instead of `via`: `\"routes\"`: as the routes say, whatever rules follow; `\"blackhole\"`: discard silently; \
         `\"unreachable\"`: discard as unreachable",
    );
    static RULE_VRF: Key<()> = Key::raw("vrf", "a VRF").help("instead of `via`: as the routes of this VRF say");
}

/// Where a rule without a next hop leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Routes,
    Blackhole,
    Unreachable,
}

const ENDINGS: [(&str, Ending); 3] =
    [("routes", Ending::Routes), ("blackhole", Ending::Blackhole), ("unreachable", Ending::Unreachable)];

/// The name of the rule that stands before all others.
const CONNECTED: &str = "connected";

/// The most next hops of one ECMP route.
const ECMP_MAX: usize = 64;

/// Reads all routes, including files.
pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    folder: &Path,
) -> RoutingConfig {
    let mut table = RouteTable::of(&ports.vrfs.names);
    let mut sources = RouteSources::default();
    let mut rules = (Vec::new(), Vec::new());
    // The first routes of a prefix are the last to count.
    for leak in &ports.vrfs.leaks {
        leak.prefixes.iter().for_each(|net| table.push(leak.into, *net, RouteTarget::Table(leak.from)));
    }
    sources.leaked = table.len();
    if let Some(mut section) = root.section(reader, &ROUTING) {
        rules = read_rules(reader, &mut section, ports, &mut table);
        read_files(reader, section, ports, folder, &mut table);
    }
    sources.files = table.len() - sources.leaked;
    let checks = read_routes(reader, root, ports, &mut table);
    sources.configured = table.len() - sources.files - sources.leaked;
    for (port, net) in &ports.addresses {
        if !is_link_local(net.value.addr()) {
            let target = RouteTarget::Forward(vec![NextHop { port: *port, gateway: None }]);
            table.push(ports.vrf_of(*port), net.value.trunc(), target);
            sources.connected += 1;
        }
    }
    for (port, net) in &ports.addresses {
        table.push(ports.vrf_of(*port), IpNet::from(net.value.addr()), RouteTarget::Local(*port));
        sources.local += 1;
    }
    table.finish(checks, sources, rules)
}

/// Reads rules and their names. If there are any, one for what ports are connected to stands before them.
fn read_rules(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    table: &mut RouteTable,
) -> (Vec<RoutingRule>, Vec<String>) {
    let (mut rules, mut names) = (Vec::new(), Vec::new());
    for section in section.sections(reader, &RULES) {
        if rules.len() + 1 >= AclSet::RULES_MAX {
            let expected = format!("at most {}", AclSet::RULES_MAX - 1);
            reader.error(ErrorKind::TooMany, &section.span, "too many rules", expected);
            break;
        }
        if rules.is_empty() {
            rules = connected_rules(ports, table);
            names.resize(rules.len(), CONNECTED.to_owned());
        }
        let number = names.len();
        if let Some((rule, name)) = read_rule(reader, section, ports, table) {
            rules.push(rule);
            names.push(name.unwrap_or_else(|| number.to_string()));
        }
    }
    (rules, names)
}

/// The ports of a VRF, for a rule about packets that arrive there: none stands for all, if there is one table.
fn ports_of(ports: &Ports, vrf: VrfIndex) -> Vec<PortIndex> {
    let of_vrf = (0..).zip(&ports.configs).filter(|(_, config)| config.vrf == vrf && !config.is_vacant());
    if ports.vrfs.are_several() { of_vrf.map(|(port, _)| port).collect() } else { Vec::new() }
}

/// Rules that leave packets for what the ports of each VRF are connected to to the routes.
fn connected_rules(ports: &Ports, table: &mut RouteTable) -> Vec<RoutingRule> {
    let mut rules = Vec::new();
    for vrf in (0..).take(ports.vrfs.names.len()) {
        let connected = ports.addresses_in(vrf).map(|(_, net)| net.value.trunc());
        let connected: Vec<IpNet> = connected.filter(|net| !is_link_local(net.addr())).collect();
        if !connected.is_empty() {
            let rule = Rule { destinations: connected, ..Rule::all(Action::Permit) };
            let target = table.target(RouteTarget::Routes);
            rules.push(RoutingRule { from: ports_of(ports, vrf), rule, target });
        }
    }
    rules
}

fn read_rule(
    reader: &mut Reader,
    mut section: Section<'_>,
    ports: &Ports,
    table: &mut RouteTable,
) -> Option<(RoutingRule, Option<String>)> {
    let name = section.get(reader, &acl::RULE_NAME);
    let from: Option<Vec<PortIndex>> = section.take(&FROM).map(|item| {
        let entries = reader.filled_list(&item);
        entries.iter().filter_map(|entry| ports.named(reader, entry)).collect()
    });
    let from = from.unwrap_or_else(|| ports_of(ports, 0));
    if ports.vrfs.are_several() && from.is_empty() {
        let message = "a rule about no port: none is in the main table";
        reader.error(ErrorKind::MissingKey, &section.span.clone(), message, "`from` with a port");
    }
    // Next hops are sought where the packets arrive.
    let vrf = from.first().map_or(0, |port| ports.vrf_of(*port));
    let mut rule = Rule::all(Action::Permit);
    acl::read_match(reader, &mut section, &mut rule);
    let action = section.read(reader, &RULE_ACTION).map(|action| match action.value {
        Ending::Routes => RouteTarget::Routes,
        Ending::Blackhole => RouteTarget::Blackhole,
        Ending::Unreachable => RouteTarget::Unreachable,
    });
    let chosen = section.take(&RULE_VRF).map(|item| {
        let chosen = ports.vrfs.named(reader, &item)?;
        Some(if ports.vrfs.are_several() { RouteTarget::Table(chosen) } else { RouteTarget::Routes })
    });
    if chosen.is_some() && action.is_some() {
        let message = "a rule has `action` or `vrf`, not both";
        reader.error(ErrorKind::Conflict, &section.span.clone(), message, "either of them alone");
    }
    let ending = chosen.or(action.map(Some));
    let target = read_way(reader, &mut section, ports, (None, vrf), ending);
    let falls_back = section.get(reader, &FALLBACK).unwrap_or(true);
    let span = section.span.clone();
    section.finish(reader);
    acl::check_rule(reader, &rule, &span);
    let target = match target? {
        RouteTarget::Forward(next_hops) => {
            check_next_hops(reader, &next_hops, &mut rule, &span);
            let way = RouteTarget::Forward(next_hops);
            if falls_back { RouteTarget::Ranked(vec![way, RouteTarget::Routes]) } else { way }
        }
        other => other,
    };
    let target = table.target(target);
    Some((RoutingRule { from, rule, target }, name))
}

/// A rule's next hops are gateways, and of the family of the packets that it matches.
fn check_next_hops(reader: &mut Reader, next_hops: &[NextHop], rule: &mut Rule, span: &Range<usize>) {
    let families = next_hops.iter().map(|hop| hop.gateway.map(|gateway| gateway.is_ipv6()));
    let mut families: Vec<Option<bool>> = families.collect();
    families.dedup();
    let [Some(is_ipv6)] = families[..] else {
        let message = "the next hops of a rule are gateways of one family";
        reader.error(ErrorKind::Conflict, span, message, "`via` with addresses of IPv4, or of IPv6");
        return;
    };
    let prefixes = || rule.sources.iter().chain(&rule.destinations);
    if let Some(other) = prefixes().find(|net| net.addr().is_ipv6() != is_ipv6) {
        let message = format!("prefix {other} is of another family than the next hop");
        reader.error(ErrorKind::Conflict, span, message, "a rule for each family");
    } else if prefixes().next().is_none() {
        let any = if is_ipv6 { IpAddr::from([0u8; 16]) } else { IpAddr::from([0u8; 4]) };
        rule.destinations.extend(IpNet::new(any, 0));
    }
}

fn read_files(
    reader: &mut Reader,
    mut section: Section<'_>,
    ports: &Ports,
    folder: &Path,
    table: &mut RouteTable,
) {
    let files = section.take(&FILES);
    let mut context = RouteFileContext { ports, default_v4: Vec::new(), default_v6: Vec::new() };
    if let Some(item) = section.take(&DEFAULT_NEXT_HOPS) {
        for entry in reader.filled_list(&item) {
            let Some(at) = reader.parse(&entry, values::address) else { continue };
            match ports.next_hop(at.value, None, 0) {
                Ok(next_hop) => {
                    warn_without_mac(reader, ports, next_hop, &at.span);
                    let target = table.target(RouteTarget::Forward(vec![next_hop]));
                    let family =
                        if at.value.is_ipv4() { &mut context.default_v4 } else { &mut context.default_v6 };
                    family.push(target);
                }
                Err((message, expected)) => {
                    reader.error(ErrorKind::NotConnected, &at.span, message, expected);
                }
            }
        }
    }
    section.finish(reader);
    let Some(files) = files else { return };
    for entry in reader.list(&files) {
        let Some(name) = reader.string(&entry, "the path of a route file") else { continue };
        let path = folder.join(name);
        reader.files.read.insert(path.clone());
        for mut finding in route_file::load(&path, &context, table) {
            if finding.line == 0 {
                // The file itself is the problem: point at its name.
                let at = reader.error(ErrorKind::File, &entry.span, finding.message, "a readable route file");
                at.help = Some(format!("paths are relative to the configuration: {}", path.display()));
            } else {
                finding.file = path.display().to_string();
                reader.push(entry.span.start, finding);
            }
        }
    }
}

/// The routes of a prefix by metric, each with its place in the text.
type Ranks = BTreeMap<u32, (RouteTarget, Range<usize>)>;

/// Returns the health checks of next hops.
fn read_routes(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    table: &mut RouteTable,
) -> Vec<CheckConfig> {
    let mut checks = GatewayChecks::default();
    let mut all: BTreeMap<(VrfIndex, IpNet), Ranks> = BTreeMap::new();
    for mut section in root.sections(reader, &ROUTES) {
        let prefix = section.read(reader, &PREFIX);
        let vrf = section.take(&ROUTE_VRF).map_or(Some(0), |item| ports.vrfs.named(reader, &item));
        let within = (prefix.as_ref().map(|at| at.value), vrf.unwrap_or(0));
        let target = read_target(reader, &mut section, ports, within);
        let metric = match section.take(&METRIC) {
            Some(item) => METRIC.value(reader, &item),
            None => METRIC.default_value(reader),
        };
        if let Some(check) = section.section(reader, &CHECK) {
            checks.read(reader, check, target.as_ref(), ports);
        }
        section.finish(reader);
        let (Some(prefix), Some(vrf), Some(target), Some(metric)) = (prefix, vrf, target, metric) else {
            continue;
        };
        let routes = all.entry((vrf, prefix.value)).or_default();
        if let Some((_, first)) = routes.get(&metric) {
            let message = format!("prefix {} has two routes of metric {metric}", prefix.value);
            let expected = format!("each prefix once, or different metrics; see {}", reader.line(first));
            let finding = reader.error(ErrorKind::Duplicate, &prefix.span, message, expected);
            let help =
                "several next hops at a time: `via = [\"A\", \"B\"]`; one that stands by: a higher `metric`";
            finding.help = Some(help.to_owned());
            continue;
        }
        if let Some((port, net)) = ports.addresses_in(vrf).find(|(_, net)| net.value.trunc() == prefix.value)
        {
            let message = format!("prefix {} is connected to port {}", prefix.value, ports.name(*port));
            let expected = format!("a prefix that no port is connected to; see {}", reader.line(&net.span));
            reader.error(ErrorKind::Conflict, &prefix.span, message, expected);
        }
        check_prefix(reader, ports, &prefix, vrf);
        routes.insert(metric, (target, prefix.span));
    }
    for ((vrf, prefix), routes) in all {
        let mut targets: Vec<_> = routes.into_values().map(|(target, _)| target).collect();
        match targets.len() {
            1 => targets.drain(..).for_each(|target| table.push(vrf, prefix, target)),
            _ => table.push(vrf, prefix, RouteTarget::Ranked(targets)),
        }
    }
    checks.finish()
}

fn read_target(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    within: (Option<IpNet>, VrfIndex),
) -> Option<RouteTarget> {
    let action = section.take(&ACTION).map(|item| {
        let is_silent = ACTION.value(reader, &item);
        is_silent.map(|is_silent| if is_silent { RouteTarget::Blackhole } else { RouteTarget::Unreachable })
    });
    read_way(reader, section, ports, within, action)
}

/// Reads `via`, `port` and `onlink`, for the packets of a prefix in a VRF. The `action` stands in place of them, if there
/// is one; it is `None` if it was wrong.
fn read_way(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    within: (Option<IpNet>, VrfIndex),
    action: Option<Option<RouteTarget>>,
) -> Option<RouteTarget> {
    let via = section.take(&VIA);
    let port = section.take(&PORT);
    let onlink = section.take(&ONLINK);
    let is_onlink = onlink.as_ref().and_then(|item| ONLINK.value(reader, item)).unwrap_or(false);
    if let Some(onlink) = onlink.filter(|_| is_onlink && (via.is_none() || port.is_none())) {
        let message = "`onlink` says that a next hop is on a port's link, and one of the two is missing";
        reader.error(ErrorKind::MissingKey, &onlink.span, message, "`via` and `port` beside it");
        return None;
    }
    if let Some(action) = action {
        if let Some(other) = via.as_ref().or(port.as_ref()) {
            let message = format!("a route has `action` or `{}`, not both", other.key);
            reader.error(ErrorKind::Conflict, &other.span, message, "either of them alone");
        }
        return action;
    }
    let port = match port {
        Some(item) => Some(ports.named(reader, &item)?),
        None => None,
    };
    match (via, port) {
        (None, Some(port)) => Some(RouteTarget::Forward(vec![NextHop { port, gateway: None }])),
        (None, None) => {
            let span = section.span.clone();
            let expected = "`via`, `port` or `action`";
            reader.error(ErrorKind::MissingKey, &span, format!("{} leads nowhere", section.title), expected);
            None
        }
        (Some(via), port) => {
            let entries = reader.filled_list(&via);
            if entries.len() > ECMP_MAX {
                let expected = format!("at most {ECMP_MAX}");
                reader.error(ErrorKind::TooMany, &via.span, "too many next hops", expected);
                return None;
            }
            let mut next_hops: Vec<NextHop> = Vec::new();
            for entry in &entries {
                let gateway = reader.parse(entry, values::address)?;
                let next_hop = check_gateway(reader, ports, &gateway, (port, is_onlink), within)?;
                if next_hops.contains(&next_hop) {
                    let message = format!("next hop {} is given twice", gateway.value);
                    reader.error(ErrorKind::Duplicate, &gateway.span, message, "each next hop once");
                }
                next_hops.push(next_hop);
            }
            if next_hops.is_empty() { None } else { Some(RouteTarget::Forward(next_hops)) }
        }
    }
}

fn check_gateway(
    reader: &mut Reader,
    ports: &Ports,
    At { value: gateway, span }: &At<IpAddr>,
    (port, is_onlink): (Option<PortIndex>, bool),
    (prefix, vrf): (Option<IpNet>, VrfIndex),
) -> Option<NextHop> {
    let gateway = *gateway;
    let vrf = port.map_or(vrf, |port| ports.vrf_of(port));
    if let Some(prefix) = prefix
        && prefix.addr().is_ipv4() != gateway.is_ipv4()
    {
        let family = if prefix.addr().is_ipv4() { "IPv4" } else { "IPv6" };
        let message = format!("next hop {gateway} is of another family than prefix {prefix}");
        reader.error(ErrorKind::Conflict, span, message, format!("an {family} address"));
        return None;
    }
    if let Some(why) = ports.nobodys(gateway, vrf) {
        reader.error(ErrorKind::BadValue, span, format!("next hop {why}"), "the address of a router there");
        return None;
    }
    let found = match port.filter(|_| is_onlink) {
        Some(port) => ports.next_hop_on_link(gateway, port),
        None => ports.next_hop(gateway, port, vrf),
    };
    match found {
        Ok(next_hop) => {
            warn_without_mac(reader, ports, next_hop, span);
            Some(next_hop)
        }
        Err((message, expected)) => {
            let finding = reader.error(ErrorKind::NotConnected, span, message, expected);
            let is_nowhere = !is_link_local(gateway) && ports.connected(gateway, vrf).is_none();
            if !is_onlink && is_nowhere && ports.check_neighbor(gateway, vrf).is_ok() {
                finding.help = Some(ON_LINK.to_owned());
            }
            None
        }
    }
}

/// For gateways of hosting providers.
const ON_LINK: &str = "a gateway on the link of a port that has no network with it (an address of /32): add `port` and \
                       `onlink = true`";

/// Prefixes whose addresses forwarded packets never have: a route to them is never used.
fn never_routed(prefix: IpNet) -> Option<&'static str> {
    match prefix {
        IpNet::V4(net) if net.prefix_len() == 0 => None,
        IpNet::V4(net) => match net.network().octets()[0] {
            0 => Some("this network (0.0.0.0/8)"),
            127 => Some("loopback"),
            224..=239 => Some("multicast"),
            240.. => Some("reserved"),
            _ => None,
        },
        IpNet::V6(net) if net.prefix_len() >= 8 && net.network().is_multicast() => Some("multicast"),
        IpNet::V6(net) if net.prefix_len() == 128 && net.network().is_loopback() => Some("loopback"),
        IpNet::V6(net) if net.prefix_len() >= 10 && net.network().is_unicast_link_local() => {
            Some("link-local")
        }
        IpNet::V6(_) => None,
    }
}

/// Reports why a route is useless.
fn check_prefix(reader: &mut Reader, ports: &Ports, prefix: &At<IpNet>, vrf: VrfIndex) {
    let owner = Some(prefix.value).filter(|net| net.prefix_len() == net.max_prefix_len());
    if let Some(port) = owner.and_then(|net| ports.owner(net.addr(), vrf)) {
        let message = format!("{} is the router's own address on port {}", prefix.value, ports.name(port));
        reader.error(ErrorKind::Conflict, &prefix.span, message, "a prefix that is not the router itself");
    }
    if let Some(what) = never_routed(prefix.value) {
        let message = format!("a route to {} is never used: its addresses are {what}", prefix.value);
        reader.error(ErrorKind::BadValue, &prefix.span, message, "a prefix of unicast addresses");
    }
}

/// Without live resolution, only the configuration can provide a neighbor's MAC address.
fn warn_without_mac(reader: &mut Reader, ports: &Ports, next_hop: NextHop, span: &Range<usize>) {
    if let (Some(gateway), false) = (next_hop.gateway, ports.has_mac(next_hop)) {
        let message = format!("packets to next hop {gateway} will be dropped: its MAC address is not known");
        let port = ports.name(next_hop.port);
        let expected = format!("a neighbor in [[neighbors]], or a default_mac for port {port}");
        reader.warning(ErrorKind::NotConnected, span, message, expected);
    }
}
