//! The BGP part of `thalweg check`: neighbors and their policies.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_bgp::policy::Policy;
use thalweg_bgp::session::config::{NeighborConfig, RemoteAs};
use thalweg_config::BgpConfig;
use thalweg_text::units::count;

use super::join;
use crate::tables::table;

/// The most neighbors listed individually; more are counted.
const NEIGHBORS_SHOWN_MAX: usize = 60;

pub(super) fn render(text: &mut String, bgp: &BgpConfig) {
    let rows = facts(bgp).into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    *text += &table(&["BGP", ""], &[], rows);
    text.push('\n');
    let dynamic = bgp.groups.iter().filter_map(|group| group.dynamic.as_ref());
    let rows: Vec<Vec<String>> = dynamic
        .map(|range| {
            row(&format!("{} (at most {})", join(range.prefixes.iter()), range.max), &range.template)
        })
        .chain(
            bgp.neighbors.iter().take(NEIGHBORS_SHOWN_MAX).map(|neighbor| row(&called(neighbor), neighbor)),
        )
        .collect();
    *text += &table(&["neighbor", "AS", "group", "families", "import", "export"], &[], rows);
    if bgp.neighbors.len() > NEIGHBORS_SHOWN_MAX {
        let more = bgp.neighbors.len() - NEIGHBORS_SHOWN_MAX;
        let _ = writeln!(text, "and {} more neighbors", count(more as u64));
    }
    text.push('\n');
    if !bgp.library.sets.is_empty() {
        let rows = bgp.library.sets.iter().map(|(name, set)| {
            let names = std::slice::from_ref(name);
            let needs = Policy::compile(&bgp.library, names).map_or("", |policy| asked(&policy));
            vec![name.to_string(), set.rules.len().to_string(), needs.to_owned()]
        });
        *text += &table(&["rule set", "rules", "asked once for each"], &[1], rows);
    }
    let _ = writeln!(
        text,
        "Policies made of these: {}. Policy tests passed: {}.\n",
        count(bgp.policies.count() as u64),
        count(bgp.tests_passed as u64)
    );
}

/// How often a policy must be evaluated, by what its result depends on.
fn asked(policy: &Policy) -> &'static str {
    if policy.depends_on_prefix() { "prefix" } else { "attribute set" }
}

fn called(neighbor: &NeighborConfig) -> String {
    let address = neighbor.address.to_string();
    if *neighbor.name == *address { address } else { format!("{address} {}", neighbor.name) }
}

fn row(name: &str, neighbor: &NeighborConfig) -> Vec<String> {
    let rules = |rules: &Option<Vec<Arc<str>>>| match rules {
        Some(names) => names.join(", "),
        None if is_internal(neighbor) => "everything".to_owned(),
        None => "nothing".to_owned(),
    };
    vec![
        name.to_owned(),
        neighbor.remote_as.to_string().trim_start_matches("AS ").to_owned(),
        neighbor.group.as_deref().unwrap_or("").to_owned(),
        families(neighbor),
        rules(&neighbor.import.rules),
        rules(&neighbor.export.rules),
    ]
}

fn is_internal(neighbor: &NeighborConfig) -> bool {
    match neighbor.remote_as {
        RemoteAs::One(asn) => neighbor.kind(asn) != thalweg_bgp::peer::PeerKind::External,
        _ => false,
    }
}

fn families(neighbor: &NeighborConfig) -> String {
    let [v4, v6] = neighbor.capabilities.families;
    join([(v4, "ipv4"), (v6, "ipv6")].into_iter().filter(|(on, _)| *on).map(|(_, name)| name))
}

fn facts(bgp: &BgpConfig) -> Vec<(&'static str, String)> {
    let threads = bgp.threads.map_or_else(|| "one for each core".to_owned(), |threads| threads.to_string());
    let mut facts = vec![
        ("AS", bgp.local_as.to_string()),
        ("router id", bgp.router_id.to_string()),
        ("listens on", if bgp.listen.is_empty() { "nothing".to_owned() } else { join(bgp.listen.iter()) }),
        ("scheduling", format!("{}, threads: {threads}", bgp.scheduling)),
        ("best routes go to", bgp.install.name().to_owned()),
        ("next hops checked with", bgp.next_hop_check.in_words().to_owned()),
    ];
    if let Some(confederation) = &bgp.confederation {
        facts.push((
            "confederation",
            format!("{} of {}", confederation.id, join(confederation.members.iter())),
        ));
    }
    if !bgp.networks.is_empty() {
        facts.push(("originates", join(bgp.networks.iter())));
    }
    facts.extend(bgp.damping.as_ref().map(|_| ("damping", "on".to_owned())));
    facts.extend(bgp.mrt.dump.as_ref().map(|path| ("RIB dumps", path.display().to_string())));
    facts.extend(bgp.mrt.updates.as_ref().map(|path| ("updates", path.display().to_string())));
    facts.extend(bgp.seed_mrt.as_ref().map(|path| ("seeded from", path.display().to_string())));
    facts
}

pub(super) fn to_json(bgp: &BgpConfig) -> Value {
    let neighbor = |n: &NeighborConfig| {
        json!({
            "address": n.address.to_string(), "name": &*n.name, "as": n.remote_as.to_string(),
            "group": n.group.as_deref(), "families": families(n), "passive": n.passive, "enabled": n.enabled,
            "import": n.import.rules.as_ref().map(|names| names.join(", ")),
            "export": n.export.rules.as_ref().map(|names| names.join(", ")),
            "hold_time_s": n.timers.hold_time_s, "password": n.transport.password.is_some(),
        })
    };
    let groups: Vec<Value> = bgp
        .groups
        .iter()
        .map(|group| {
            let prefixes = group.dynamic.as_ref().map(|range| join(range.prefixes.iter()));
            json!({ "name": &*group.name, "dynamic": prefixes, "dynamic_max": group.dynamic.as_ref().map(|r| r.max) })
        })
        .collect();
    json!({
        "as": bgp.local_as,
        "router_id": bgp.router_id.to_string(),
        "listen": bgp.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "scheduling": bgp.scheduling.name(),
        "threads": bgp.threads,
        "install": bgp.install.name(),
        "next_hop_check": bgp.next_hop_check.name(),
        "networks": bgp.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "neighbors": bgp.neighbors.iter().map(|n| neighbor(n)).collect::<Vec<_>>(),
        "groups": groups,
        "rule_sets": bgp.library.sets.keys().map(|name| name.to_string()).collect::<Vec<_>>(),
        "tests_passed": bgp.tests_passed,
    })
}
