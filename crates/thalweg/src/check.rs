//! `thalweg check`: the router that a configuration describes.

mod acl;
mod bgp;
mod egress;
mod interfaces;
mod rights;
mod web;

use std::fmt::Write;
use std::net::IpAddr;

use serde_json::{Value, json};
use thalweg_base::DropReason;
use thalweg_config::{
    Class, ConfigSource, DSCP_NAMES, PortConfig, PortIndex, RouteTarget, RouterConfig, RoutingConfig,
    WebConfig, ports_text,
};
use thalweg_dataplane::classify::Match;
use thalweg_dataplane::helpers::Helper;
use thalweg_dataplane::nat::{BlockAllocation, HostLimits, NatConfig, PortForward, SubscriberConfig};
use thalweg_dataplane::police::{ColorAction, Marker, PolicerConfig};
use thalweg_dataplane::schedule::Service;
use thalweg_text::units::{count, exact_bit_rate, exact_bytes};
use thalweg_wire::application;

use self::interfaces::Interfaces;
use crate::cli::{CheckArgs, Format};
use crate::tables::{remark, table};
use crate::{Failure, parsed, print};

/// The most routes listed individually; a larger table is only counted.
const ROUTES_SHOWN_MAX: usize = 40;

pub(crate) fn run(args: &CheckArgs, format: Format) -> Result<(), Failure> {
    let source = ConfigSource::read(&args.config).map_err(Failure::Config)?;
    if source.is_for_web_alone() {
        return web::check(&source, args, format);
    }
    let config = parsed(&source)?;
    if args.sandbox {
        return rights::try_sandbox(&config, args);
    }
    let interfaces = if args.offline { Interfaces::unknown(&config) } else { Interfaces::look(&config) };
    match format {
        Format::Human => {
            let name = args.config.display();
            let warnings = match config.warnings.len() {
                0 => String::new(),
                1 => ", 1 warning".to_owned(),
                n => format!(", {n} warnings"),
            };
            let text =
                format!("{name}: a valid configuration{warnings}\n\n{}", render(&config, &interfaces, args));
            print(&remark(text.trim_end_matches('\n')))
        }
        Format::Json => print(&format!("{:#}\n", to_json(&config, &interfaces))),
    }
}

/// The router as tables.
fn render(config: &RouterConfig, interfaces: &Interfaces, args: &CheckArgs) -> String {
    let mut text = String::new();
    if config.bgp.is_some() || config.ports.iter().any(|port| port.interface.is_some()) {
        let _ = writeln!(text, "`run` listens for `show` at {}\n", config.control.socket.display());
    }
    if let Some(web) = &config.web {
        let _ = writeln!(text, "`run` serves HTTP at {}\n", served_at(web));
    }
    rights::render(&mut text, config, args);
    if let Some(bgp) = &config.bgp {
        bgp::render(&mut text, bgp);
        // Without ports nothing is forwarded, and the remaining sections are empty.
        if config.ports.is_empty() {
            return text;
        }
    }
    ports(&mut text, config, interfaces);
    interfaces.render(&mut text, config);
    acl::render_ports(&mut text, config);
    neighbors(&mut text, config);
    routes(&mut text, config);
    acl::render_routing_rules(&mut text, config);
    if let Some(nat) = &config.nat {
        render_nat(&mut text, config, nat);
    }
    acl::render(&mut text, config);
    acl::render_firewall(&mut text, config);
    kernel(&mut text, config);
    classes(&mut text, config);
    egress::render(&mut text, config);
    let martians = if config.validate.martians { "are dropped" } else { "pass" };
    let _ = writeln!(
        text,
        "Packets with impossible addresses {martians} ({}, {}).",
        DropReason::MartianSource.name(),
        DropReason::MartianDestination.name()
    );
    text
}

/// Where the HTTP API is served.
fn served_at(web: &WebConfig) -> String {
    let addresses = web.listen.iter().map(ToString::to_string);
    let places = addresses.chain(web.socket.iter().map(|socket| socket.display().to_string()));
    let glasses = web.looking_glass.iter().map(|address| format!("{address} (looking glass)"));
    places.chain(glasses).collect::<Vec<_>>().join(", ")
}

fn ports(text: &mut String, config: &RouterConfig, interfaces: &Interfaces) {
    let others = |index: usize, port: &PortConfig| match (port.default_mac, &port.interface) {
        _ if interfaces.is_bare(index) => "sent to the far end".to_owned(),
        (Some(address), _) => format!("sent to {address}"),
        (None, Some(_)) => "asked for (ARP, ND)".to_owned(),
        (None, None) => "dropped".to_owned(),
    };
    let rows = config.ports.iter().enumerate().map(|(index, port)| {
        vec![
            port.name.clone(),
            port.trace_name.clone(),
            interfaces.mac_text(config, index),
            join(port.addresses.iter()),
            port.mtu.to_string(),
            others(index, port),
        ]
    });
    *text += &table(&["port", "in traces", "MAC", "addresses", "MTU", "other neighbors"], &[4], rows);
    text.push('\n');
}

/// How the router and programs of the system interact.
fn kernel(text: &mut String, config: &RouterConfig) {
    let mirrors = config.ports.iter().filter_map(|port| port.interface.as_ref()?.mirror.as_deref());
    let mirrors = join(mirrors);
    if !mirrors.is_empty() {
        let _ = writeln!(text, "The system is on the ports' links by {mirrors}.");
    }
    let sync = config.kernel;
    let what = match (sync.import, sync.export) {
        (true, true) => {
            "Routes of ports go into the kernel, and the kernel's routes by ports are taken from it."
        }
        (true, false) => "The kernel's routes by ports are taken from it.",
        (false, true) => "Routes of ports go into the kernel.",
        (false, false) if !mirrors.is_empty() => {
            "No routes go into the kernel ([kernel] routes): programs reach the networks of mirrors alone."
        }
        (false, false) => return,
    };
    let _ = writeln!(text, "{what}\n");
}

fn neighbors(text: &mut String, config: &RouterConfig) {
    if config.neighbors.is_empty() {
        return;
    }
    let rows = config
        .neighbors
        .iter()
        .map(|n| vec![port_name(config, n.port).to_owned(), n.address.to_string(), n.mac.to_string()]);
    *text += &table(&["port", "neighbor", "MAC"], &[], rows);
    text.push('\n');
}

fn routes(text: &mut String, config: &RouterConfig) {
    let routing = &config.routing;
    let [ipv4, ipv6] = route_counts(config);
    if ipv4 + ipv6 <= ROUTES_SHOWN_MAX {
        let mut rows = Vec::new();
        for (vrf, v4, v6) in routing.tables() {
            let all = v4.iter().map(|(net, target)| (net.to_string(), target));
            let all = all.chain(v6.iter().map(|(net, target)| (net.to_string(), target)));
            rows.extend(all.map(|(net, target)| {
                let leads = routing.target_of(*target).map(|target| target_text(config, target));
                vec![routing.vrf_name(vrf).to_owned(), net, leads.unwrap_or_default()]
            }));
        }
        *text += &match routing.vrfs.is_empty() {
            true => table(&["route", "leads"], &[], rows.into_iter().map(|row| row[1..].to_vec())),
            false => table(&["VRF", "route", "leads"], &[], rows),
        };
    }
    let s = routing.sources;
    let leaked = if s.leaked == 0 { String::new() } else { format!(", {} leaked", count(s.leaked as u64)) };
    let _ = writeln!(
        text,
        "{} IPv4 and {} IPv6 routes: {} local, {} connected, {} configured, {} from files{leaked}, {} of them replaced by others; \
         {} different targets\n",
        count(ipv4 as u64),
        count(ipv6 as u64),
        count(s.local as u64),
        count(s.connected as u64),
        count(s.configured as u64),
        count(s.files as u64),
        count(s.replaced as u64),
        count(routing.targets.len() as u64),
    );
}

/// The routes of all tables, by family.
fn route_counts(config: &RouterConfig) -> [usize; 2] {
    let tables = || config.routing.tables();
    [tables().map(|(_, v4, _)| v4.len()).sum(), tables().map(|(.., v6)| v6.len()).sum()]
}

fn target_text(config: &RouterConfig, target: &RouteTarget) -> String {
    match target {
        RouteTarget::Local(port) => format!("to the router itself ({})", port_name(config, *port)),
        RouteTarget::Blackhole => "blackhole".to_owned(),
        RouteTarget::Unreachable => "unreachable".to_owned(),
        RouteTarget::Routes => "the routes".to_owned(),
        RouteTarget::Table(vrf) => format!("the routes of {}", config.routing.vrf_name(*vrf)),
        RouteTarget::Ranked(tiers) => {
            let tiers: Vec<String> = tiers.iter().map(|tier| target_text(config, tier)).collect();
            tiers.join("; while that is dead, ")
        }
        RouteTarget::Forward(hops) => {
            let hops: Vec<String> = hops
                .iter()
                .map(|hop| match hop.gateway {
                    Some(gateway) => format!("via {gateway} on {}", port_name(config, hop.port)),
                    None => format!("on-link on {}", port_name(config, hop.port)),
                })
                .collect();
            hops.join(" or ")
        }
    }
}

fn render_nat(text: &mut String, config: &RouterConfig, nat: &NatConfig) {
    let rows = nat_facts(config, nat).into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    *text += &table(&["NAT", ""], &[], rows);
    text.push('\n');
}

fn host_limits(limits: HostLimits) -> String {
    let limit = |limit: Option<u32>, what: &str| {
        limit.map_or_else(|| format!("no limit of {what}"), |n| format!("at most {} {what}", count(n.into())))
    };
    [limit(limits.sessions_max, "sessions"), limit(limits.new_per_second, "new ones a second")].join(", ")
}

fn nat_facts(config: &RouterConfig, nat: &NatConfig) -> Vec<(&'static str, String)> {
    let t = nat.timeouts;
    let mut facts = vec![
        ("outside", join(nat.outside_ports().map(|port| port_name(config, port)))),
        ("inside", join(nat.inside_ports.iter().map(|port| port_name(config, *port)))),
        ("public addresses", join(nat.all_public_addresses())),
        ("public ports", format!("{} in {} shards", ports_text(&nat.port_range), nat.shards)),
        ("sessions", format!("at most {}", count(u64::from(nat.sessions_max)))),
        ("of one inside host", host_limits(nat.hosts)),
        ("port selection", nat.port_selection.name().to_owned()),
        ("filtering", nat.filtering.name().to_owned()),
        ("helpers", helpers(nat)),
        ("hairpin", if nat.hairpin { "yes" } else { "no" }.to_owned()),
        (
            "timeouts",
            format!(
                "UDP {} s, TCP {} s (transitory {} s, aborted {} s), ICMP {} s, others {} s",
                t.udp_s, t.tcp_established_s, t.tcp_transitory_s, t.tcp_aborted_s, t.icmp_s, t.bare_s
            ),
        ),
    ];
    facts.push(("refusal", nat.refusal.name().to_owned()));
    facts.extend(nat.nat64.iter().map(|nat64| ("IPv6 hosts inside", nat64.prefix.network().to_string())));
    facts.extend(nat.subscribers.iter().flat_map(subscriber_facts));
    for group in &nat.groups {
        facts.push(("group", format!("{}: {}", group.name, join(group.inside.iter().map(bare)))));
    }
    for [protocol, address, ports, to] in forwards(config, nat) {
        facts.push(("forward", format!("{protocol} {address} {ports} -> {to}")));
    }
    let pairs = nat.one_to_one.iter().map(|pair| format!("{} = {}", bare(&pair.public), bare(&pair.inside)));
    facts.extend(pairs.map(|pair| ("one to one", pair)));
    facts.extend(nat.exceptions.iter().map(|exception| {
        let sides = [&exception.sources, &exception.destinations].map(|nets| any_of(nets));
        ("not translated", sides.join(" -> "))
    }));
    facts
}

fn helpers(nat: &NatConfig) -> String {
    let names: Vec<&str> =
        Helper::ALL.into_iter().filter(|one| nat.helpers.has(*one)).map(Helper::name).collect();
    match (names.join(", "), nat.nat64) {
        (none, _) if none.is_empty() => "none".to_owned(),
        (names, None) => names,
        (names, Some(_)) => format!("{names}; not for IPv6 hosts"),
    }
}

/// A network; an address without its length.
fn bare(net: &impl ToString) -> String {
    let text = net.to_string();
    text.strip_suffix("/32").unwrap_or(&text).to_owned()
}

/// The networks of an exception's side.
fn any_of(nets: &[impl ToString]) -> String {
    if nets.is_empty() { "any".to_owned() } else { join(nets.iter().map(bare)) }
}

fn subscriber_facts(subscribers: &SubscriberConfig) -> Vec<(&'static str, String)> {
    let size = subscribers.block_size;
    let blocks = match &subscribers.allocation {
        BlockAllocation::Dynamic => format!("of {size} ports, dynamic, held {} s", subscribers.hold_s),
        BlockAllocation::Deterministic(networks) => {
            format!("of {size} ports, in the order of {}", join(networks.iter()))
        }
    };
    let limits = format!(
        "{} ports of each protocol, {} sessions",
        count(subscribers.ports_max.into()),
        count(subscribers.sessions_max.into())
    );
    vec![("blocks of ports", blocks), ("each inside address", limits)]
}

fn forwards(config: &RouterConfig, nat: &NatConfig) -> Vec<[String; 4]> {
    let of_port = |outside: NatConfig| {
        let each = outside.forwards.iter();
        each.map(|each| forward(&config.routing, &outside, each)).collect::<Vec<_>>()
    };
    nat.outsides().flat_map(of_port).collect()
}

/// Protocol, public address, public ports, and destination, with its VRF if that is not the main table.
fn forward(routing: &RoutingConfig, nat: &NatConfig, forward: &PortForward) -> [String; 4] {
    let address = nat.public_addresses.get(forward.public_address).map(ToString::to_string);
    let vrf = if forward.vrf == 0 { String::new() } else { format!(" in {}", routing.vrf_name(forward.vrf)) };
    let to = format!("{}:{}{vrf}", forward.inside_address, forward.inside_port);
    [forward.protocol.name().to_owned(), address.unwrap_or_default(), ports_text(&forward.public_ports()), to]
}

fn classes(text: &mut String, config: &RouterConfig) {
    let rows = config.qos.classes.iter().enumerate().map(|(index, class)| {
        let is_default = index == usize::from(config.qos.default_class);
        vec![
            class.name.clone(),
            class.service.to_string(),
            class_matches(config, class, is_default),
            policer(class.policer, "\n"),
        ]
    });
    *text += &table(&["class", "served", "matches", "policer"], &[], rows);
    text.push('\n');
}

fn class_matches(config: &RouterConfig, class: &Class, is_default: bool) -> String {
    if is_default {
        return "everything else".to_owned();
    }
    let entries: Vec<String> = class.matches.iter().map(|entry| match_text(config, entry)).collect();
    entries.join("\n")
}

fn match_text(config: &RouterConfig, m: &Match) -> String {
    let mut parts = Vec::new();
    let mut part = |name: &str, values: String| {
        if !values.is_empty() {
            parts.push(format!("{name} {values}"));
        }
    };
    part("dscp", join(m.dscp.iter().map(|value| dscp(*value))));
    let application_name = |code: &u8| application::by_code(*code).map_or("?", |a| a.name);
    part("application", join(m.applications.iter().map(application_name)));
    part("protocol", join(m.protocols.iter().map(|number| ip_protocol(*number))));
    part("source port", join(m.source_ports.iter().map(ports_text)));
    part("destination port", join(m.destination_ports.iter().map(ports_text)));
    part("source", join(m.sources.iter()));
    part("destination", join(m.destinations.iter()));
    part("arriving on", join(m.ports_in.iter().map(|port| port_name(config, *port))));
    parts.join(" and ")
}

fn policer(policer: Option<PolicerConfig>, separator: &str) -> String {
    let Some(p) = policer else { return "none".to_owned() };
    let marker = match p.marker {
        Marker::TwoRate { cir_bps, cbs_bytes, pir_bps, pbs_bytes } => format!(
            "{} / {}{separator}peak {} / {}",
            exact_bit_rate(cir_bps),
            exact_bytes(cbs_bytes),
            exact_bit_rate(pir_bps),
            exact_bytes(pbs_bytes)
        ),
        Marker::SingleRate { cir_bps, cbs_bytes, ebs_bytes } => {
            format!("{} / {} + {}", exact_bit_rate(cir_bps), exact_bytes(cbs_bytes), exact_bytes(ebs_bytes))
        }
    };
    let mut parts = vec![marker];
    if p.color_aware {
        parts.push("color-aware".to_owned());
    }
    if let ColorAction::Remark(value) = p.yellow {
        parts.push(format!("yellow to {}", dscp(value)));
    }
    parts.push(match p.red {
        ColorAction::Remark(value) => format!("red to {}", dscp(value)),
        ColorAction::Drop | ColorAction::Pass => "red dropped".to_owned(),
    });
    parts.join(separator)
}

/// The best-known name of a DSCP; `default`, `be` and `cs0` are all 0.
fn dscp(value: u8) -> String {
    let name = DSCP_NAMES.iter().find(|(_, known)| *known == value).map(|(name, _)| (*name).to_owned());
    name.unwrap_or_else(|| value.to_string())
}

fn ip_protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        other => other.to_string(),
    }
}

fn port_name(config: &RouterConfig, port: PortIndex) -> &str {
    config.ports.get(usize::from(port)).map_or("?", |port| port.name.as_str())
}

fn join<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The router as one JSON object. A large route table is counted, not listed.
fn to_json(config: &RouterConfig, interfaces: &Interfaces) -> Value {
    let ports: Vec<Value> = config
        .ports
        .iter()
        .enumerate()
        .map(|(index, port)| {
            json!({
                "name": port.name, "interface": interfaces.json_of(config, index), "trace_name": port.trace_name, "mac": interfaces.mac_of(config, index).map(|mac| mac.to_string()), "mtu": port.mtu,
                "addresses": port.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "default_mac": port.default_mac.map(|mac| mac.to_string()),
                "parent": port.sub_interface.map(|s| port_name(config, s.parent)),
                "vlan": port.sub_interface.map(|s| s.vlan),
                "acl_in": acl::name(config, port.acl_in), "acl_out": acl::name(config, port.acl_out),
                "urpf": port.urpf.to_string(),
                "vrf": config.routing.vrf_name(port.vrf),
            })
        })
        .collect();
    let neighbors: Vec<Value> = config
        .neighbors
        .iter()
        .map(|n| json!({ "port": port_name(config, n.port), "address": IpAddr::to_string(&n.address), "mac": n.mac.to_string() }))
        .collect();
    let classes: Vec<Value> = config
        .qos
        .classes
        .iter()
        .enumerate()
        .map(|(index, class)| {
            let is_default = index == usize::from(config.qos.default_class);
            let (strict, weight) = match class.service {
                Service::Strict(level) => (Some(level), None),
                Service::Weight(weight) => (None, Some(weight)),
            };
            json!({
                "name": class.name, "strict": strict, "weight": weight, "default": is_default,
                "match": class.matches.iter().map(|m| match_text(config, m)).collect::<Vec<_>>(),
                "policer": class.policer.map(|p| policer(Some(p), ", ")),
            })
        })
        .collect();
    json!({
        "valid": true,
        "ports": ports,
        "neighbors": neighbors,
        "routes": {
            "ipv4": route_counts(config)[0],
            "ipv6": route_counts(config)[1],
            "targets": config.routing.targets.len(),
            "sources": config.routing.sources,
        },
        "nat": config.nat.as_ref().map(|nat| nat_json(config, nat)),
        "routing_rules": acl::routing_rules_to_json(config),
        "acl": acl::to_json(config),
        "firewall": acl::firewall_to_json(config),
        "classes": classes,
        "egress": egress::to_json(config),
        "validate": { "martians": config.validate.martians },
        "bgp": config.bgp.as_ref().map(bgp::to_json),
        "control_socket": config.control.socket,
        "read_socket": config.control.read_socket,
        "rights": rights::to_json(config),
        "web": config.web.as_ref().map(web_json),
        "workers": interfaces.workers_json(config),
        "kernel": { "import": config.kernel.import, "export": config.kernel.export },
        "warnings": config.warnings,
    })
}

fn web_json(web: &WebConfig) -> Value {
    json!({
        "socket": web.socket,
        "listen": web.listen,
        "tls": web.tls.is_some(),
        "hosts": web.hosts,
        "tokens": web.tokens.iter().map(|token| json!({ "name": token.name, "may": token.may.name() })).collect::<Vec<_>>(),
        "looking_glass": web.looking_glass,
    })
}

fn nat_json(config: &RouterConfig, nat: &NatConfig) -> Value {
    let forwards = forwards(config, nat).into_iter().map(|[protocol, address, ports, to]| {
        json!({ "protocol": protocol, "address": address, "ports": ports, "to": to })
    });
    let forwards: Vec<Value> = forwards.collect();
    json!({
        "outside": join(nat.outside_ports().map(|port| port_name(config, port))),
        "inside": nat.inside_ports.iter().map(|port| port_name(config, *port)).collect::<Vec<_>>(),
        "addresses": nat.all_public_addresses().map(|address| address.to_string()).collect::<Vec<_>>(),
        "ports": ports_text(&nat.port_range),
        "shards": nat.shards,
        "sessions_max": nat.sessions_max,
        "port_selection": nat.port_selection.name(),
        "filtering": nat.filtering.name(),
        "hairpin": nat.hairpin,
        "helpers": Helper::ALL.into_iter().filter(|one| nat.helpers.has(*one)).map(Helper::name).collect::<Vec<_>>(),
        "inbound_refresh": nat.inbound_refresh,
        "timeouts": {
            "udp_s": nat.timeouts.udp_s, "tcp_established_s": nat.timeouts.tcp_established_s,
            "tcp_transitory_s": nat.timeouts.tcp_transitory_s, "tcp_aborted_s": nat.timeouts.tcp_aborted_s,
            "icmp_s": nat.timeouts.icmp_s, "other_s": nat.timeouts.bare_s,
        },
        "host_sessions_max": nat.hosts.sessions_max,
        "host_sessions_per_second": nat.hosts.new_per_second,
        "drop_half_open": nat.hosts.drops_half_open,
        "forwards": forwards,
        "one_to_one": nat.one_to_one.iter().map(|pair| json!({ "inside": bare(&pair.inside), "public": bare(&pair.public) })).collect::<Vec<_>>(),
        "exceptions": nat.exceptions.iter().map(|exception| json!({
            "source": exception.sources.iter().map(bare).collect::<Vec<_>>(),
            "destination": exception.destinations.iter().map(bare).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "groups": nat.groups.iter().map(|group| json!({
            "name": group.name,
            "inside": group.inside.iter().map(bare).collect::<Vec<_>>(),
            "addresses": nat.outsides().nth(group.outside).map(|outside| outside.public_addresses[group.addresses.clone()].to_vec()),
            "ports_max": group.ports_max,
            "sessions_max": group.limits.sessions_max,
            "sessions_per_second": group.limits.new_per_second,
        })).collect::<Vec<_>>(),
        "refusal": nat.refusal.name(),
        "nat64": nat.nat64.map(|nat64| nat64.prefix.network().to_string()),
        "subscribers": nat.subscribers.as_ref().map(subscribers_json),
    })
}

fn subscribers_json(subscribers: &SubscriberConfig) -> Value {
    let inside = match &subscribers.allocation {
        BlockAllocation::Dynamic => None,
        BlockAllocation::Deterministic(networks) => {
            Some(networks.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
    };
    json!({
        "blocks": if inside.is_some() { "deterministic" } else { "dynamic" },
        "inside": inside,
        "block_size": subscribers.block_size,
        "ports_max": subscribers.ports_max,
        "sessions_max": subscribers.sessions_max,
        "hold_s": subscribers.hold_s,
    })
}
