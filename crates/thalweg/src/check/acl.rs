//! `thalweg check`: sub-interfaces, source checks, access lists and the firewall.

use serde_json::{Value, json};
use thalweg_config::{FirewallConfig, RouterConfig};
use thalweg_dataplane::acl::{Fragment, Rule, TcpFlags};
use thalweg_dataplane::firewall::{PacketState, Zone};
use thalweg_dataplane::reverse_path::ReversePathMode;
use thalweg_text::units::count;

use super::{dscp, ip_protocol, join, port_name, target_text};
use crate::tables::table;

/// The most rules of a list that are shown; a longer list is cut.
const RULES_SHOWN_MAX: usize = 100;

/// Sub-interfaces, and filters of ports, if there are any.
pub(super) fn render_ports(text: &mut String, config: &RouterConfig) {
    let is_plain = |port: &thalweg_config::PortConfig| {
        let filters = port.acl_in.is_some() || port.acl_out.is_some() || port.urpf != ReversePathMode::Off;
        !filters && port.sub_interface.is_none()
    };
    let rows: Vec<Vec<String>> = config
        .ports
        .iter()
        .filter(|port| !is_plain(port))
        .map(|port| {
            let vlan = port.sub_interface.map(|s| format!("{} of {}", s.vlan, port_name(config, s.parent)));
            let list = |place| name(config, place).unwrap_or("-").to_owned();
            vec![
                port.name.clone(),
                vlan.unwrap_or_else(|| "-".to_owned()),
                port.urpf.to_string(),
                list(port.acl_in),
                list(port.acl_out),
            ]
        })
        .collect();
    if !rows.is_empty() {
        *text += &table(&["port", "VLAN", "source check", "list in", "list out"], &[], rows);
        text.push('\n');
    }
}

pub(super) fn render(text: &mut String, config: &RouterConfig) {
    for acl in &config.acls {
        let rules = acl.rule_names.iter().zip(&acl.list.rules).take(RULES_SHOWN_MAX);
        let mut rows: Vec<Vec<String>> = rules
            .map(|(name, rule)| vec![name.clone(), rule.action.name().to_owned(), rule_text(rule, "\n")])
            .collect();
        if let Some(more) = acl.list.rules.len().checked_sub(RULES_SHOWN_MAX + 1) {
            rows.push(vec![
                "...".to_owned(),
                String::new(),
                format!("{} more rules", count(more as u64 + 1)),
            ]);
        }
        rows.push(vec![
            "default".to_owned(),
            acl.list.default.name().to_owned(),
            "everything else".to_owned(),
        ]);
        let title = format!("access list {}", acl.name);
        *text += &table(&[&title, "action", "packets"], &[], rows);
        text.push('\n');
    }
}

/// The routing rules, if there are any.
pub(super) fn render_routing_rules(text: &mut String, config: &RouterConfig) {
    let mut rows: Vec<Vec<String>> = routing_rules(config, "\n").take(RULES_SHOWN_MAX).collect();
    if rows.is_empty() {
        return;
    }
    if let Some(more) = config.routing.rules.len().checked_sub(RULES_SHOWN_MAX + 1) {
        let cut = format!("{} more rules", count(more as u64 + 1));
        rows.push(["...", "", &cut, ""].map(str::to_owned).to_vec());
    }
    *text += &table(&["routing rule", "from", "packets", "way"], &[], rows);
    text.push('\n');
}

/// Name, ports of arrival, packets and way of each routing rule.
fn routing_rules<'c>(config: &'c RouterConfig, separator: &'c str) -> impl Iterator<Item = Vec<String>> + 'c {
    let routing = &config.routing;
    routing.rule_names.iter().zip(&routing.rules).map(move |(name, rule)| {
        let from = match rule.from.is_empty() {
            true => "any".to_owned(),
            false => join(rule.from.iter().map(|port| port_name(config, *port))),
        };
        let target = routing.target_of(rule.target);
        let way = target.map(|target| target_text(config, target)).unwrap_or_default();
        vec![name.clone(), from, rule_text(&rule.rule, separator), way]
    })
}

/// The routing rules as JSON.
pub(super) fn routing_rules_to_json(config: &RouterConfig) -> Value {
    let rules = routing_rules(config, " and ").map(|mut row| {
        let mut cell = |at: usize| std::mem::take(&mut row[at]);
        json!({ "name": cell(0), "from": cell(1), "match": cell(2), "way": cell(3) })
    });
    rules.collect()
}

/// The firewall's zones and rules.
pub(super) fn render_firewall(text: &mut String, config: &RouterConfig) {
    let Some(FirewallConfig { firewall, rule_names, .. }) = &config.firewall else { return };
    let settings = config.firewall.as_ref();
    let name = |zone: Zone| settings.map_or("-", |settings| settings.zone_name(zone));
    let zones = (0..=firewall.zones.iter().copied().max().unwrap_or(0)).map(|zone| {
        let ports = config.ports.iter().zip(&firewall.zones).filter(|(_, of_port)| **of_port == zone);
        let side = if firewall.outside.contains(&zone) { "outside" } else { "inside" };
        vec![name(zone).to_owned(), side.to_owned(), join(ports.map(|(port, _)| &port.name))]
    });
    *text += &table(&["zone", "side", "ports"], &[], zones);
    text.push('\n');
    let of = |zones: &[Zone]| match zones.is_empty() {
        true => "any".to_owned(),
        false => join(zones.iter().map(|zone| name(*zone))),
    };
    let rules = rule_names.iter().zip(&firewall.rules).take(RULES_SHOWN_MAX);
    let mut rows: Vec<Vec<String>> = rules
        .map(|(name, rule)| {
            let states = match rule.states.is_empty() {
                true => PacketState::New.name().to_owned(),
                false => join(rule.states.iter()),
            };
            let action = rule.rule.action.name().to_owned();
            vec![name.clone(), action, of(&rule.from), of(&rule.to), states, rule_text(&rule.rule, "\n")]
        })
        .collect();
    if let Some(more) = firewall.rules.len().checked_sub(RULES_SHOWN_MAX + 1) {
        let cut = format!("{} more rules", count(more as u64 + 1));
        rows.push(["...", "", "", "", "", &cut].map(str::to_owned).to_vec());
    }
    let rest = ["policy", firewall.policy.name(), "any", "any", "new", "everything else"];
    rows.push(rest.map(str::to_owned).to_vec());
    *text += &table(&["firewall", "action", "from", "to", "state", "packets"], &[], rows);
    text.push('\n');
}

/// The firewall as JSON.
pub(super) fn firewall_to_json(config: &RouterConfig) -> Value {
    let Some(settings) = &config.firewall else { return Value::Null };
    let names = |zones: &[Zone]| zones.iter().map(|zone| settings.zone_name(*zone)).collect::<Vec<_>>();
    let firewall = &settings.firewall;
    let ports = config.ports.iter().zip(&firewall.zones);
    let zones: serde_json::Map<String, Value> =
        ports.map(|(port, zone)| (port.name.clone(), settings.zone_name(*zone).into())).collect();
    let rules = settings.rule_names.iter().zip(&firewall.rules).map(|(name, rule)| {
        json!({
            "name": name, "action": rule.rule.action.name(), "from": names(&rule.from), "to": names(&rule.to),
            "state": rule.states.iter().map(|state| state.name()).collect::<Vec<_>>(),
            "match": rule_text(&rule.rule, " and "),
        })
    });
    json!({
        "policy": firewall.policy.name(), "outside": names(&firewall.outside), "zones": zones,
        "rules": rules.collect::<Vec<_>>(),
    })
}

/// The name of the list at an index.
pub(super) fn name(config: &RouterConfig, place: Option<u16>) -> Option<&str> {
    config.acls.get(usize::from(place?)).map(|acl| acl.name.as_str())
}

fn rule_text(rule: &Rule, separator: &str) -> String {
    let mut parts = Vec::new();
    let mut part = |name: &str, values: String| {
        if !values.is_empty() {
            parts.push(format!("{name} {values}"));
        }
    };
    let ports = |ranges: &[std::ops::RangeInclusive<u16>]| {
        join(ranges.iter().map(|range| match range.start() == range.end() {
            true => range.start().to_string(),
            false => format!("{}-{}", range.start(), range.end()),
        }))
    };
    part("source", join(rule.sources.iter()));
    part("destination", join(rule.destinations.iter()));
    part("protocol", join(rule.protocols.iter().map(|number| ip_protocol(*number))));
    part("source port", ports(&rule.source_ports));
    part("destination port", ports(&rule.destination_ports));
    part("dscp", join(rule.dscp.iter().map(|value| dscp(*value))));
    part("tcp flags", rule.tcp_flags.iter().map(flags).collect::<Vec<_>>().join(" or "));
    part(
        "icmp type",
        join(rule.icmp.iter().map(|icmp| match icmp.code {
            Some(code) => format!("{}/{code}", icmp.kind),
            None => icmp.kind.to_string(),
        })),
    );
    part(
        "fragment",
        join(rule.fragments.iter().map(|fragment| match fragment {
            Fragment::Whole => "none",
            Fragment::First => "first",
            Fragment::Later => "later",
        })),
    );
    if parts.is_empty() { "all".to_owned() } else { parts.join(separator) }
}

fn flags(flags: &TcpFlags) -> String {
    let bits = ["fin", "syn", "rst", "psh", "ack", "urg"].iter().enumerate();
    let named = bits.filter(|(bit, _)| flags.mask >> bit & 1 == 1).map(|(bit, name)| {
        let not = if flags.value >> bit & 1 == 1 { "" } else { "!" };
        format!("{not}{name}")
    });
    named.collect::<Vec<_>>().join(",")
}

/// The lists as JSON.
pub(super) fn to_json(config: &RouterConfig) -> Value {
    let list = |acl: &thalweg_config::AclConfig| {
        let rules = acl.rule_names.iter().zip(&acl.list.rules).map(|(name, rule)| {
            json!({ "name": name, "action": rule.action.name(), "match": rule_text(rule, " and ") })
        });
        json!({
            "name": acl.name, "default": acl.list.default.name(), "rules": rules.collect::<Vec<_>>(),
        })
    };
    config.acls.iter().map(list).collect()
}
