//! Makes the summary from the counters of all workers.

use crate::summary::{
    AclRuleSummary, ClassSummary, Colors, InputIssue, InputIssues, Latency, Named, NatSummary, PortSummary,
    ReplaySummary,
};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use thalweg_base::DropReason;
use thalweg_config::{AclConfig, RouterConfig};
use thalweg_dataplane::account::{ClassCounts, PortCounts};
use thalweg_node::plan::{RouterPlan, Scratch};
use thalweg_ports::{InputReport, Issue, Place};

/// The part of the summary that follows from packets.
pub(crate) fn summary(config: &RouterConfig, plan: &RouterPlan, scratches: &[Scratch]) -> ReplaySummary {
    let account = &plan.merged_account(scratches.iter());
    let mut residence = None::<Histogram<u64>>;
    for class in &account.classes {
        match &mut residence {
            None => residence = Some(class.residence_ns.clone()),
            // Both have the same bounds, so adding cannot fail.
            Some(all) => drop(all.add(&class.residence_ns)),
        }
    }
    let dropped = DropReason::ALL.iter().map(|r| (r.name().to_string(), account.dropped[*r as usize]));
    let colors = plan.color_counts();
    let names = config.ports.iter().map(|p| p.name.as_str()).chain([UNKNOWN]);
    ReplaySummary {
        packets_in: account.packets_in,
        bytes_in: account.ports.iter().map(|p| p.bytes_in).sum(),
        packets_out: account.packets_out,
        bytes_out: account.ports.iter().map(|p| p.bytes_out).sum(),
        dropped: dropped.filter(|(_, n)| *n > 0).collect(),
        latency: residence.as_ref().map(latency).unwrap_or_default(),
        ports: names
            .zip(&account.ports)
            .filter(|(name, counts)| *name != UNKNOWN || counts.packets_in > 0)
            .map(|(name, counts)| (name.to_string(), port(counts)))
            .collect(),
        classes: (config.qos.classes.iter().zip(&account.classes).zip(colors))
            .map(|((class, counts), colors)| {
                let colors = colors.map(|c| Colors { green: c.green, yellow: c.yellow, red: c.red });
                (class.name.clone(), class_summary(counts, colors))
            })
            .collect(),
        acls: acls(config, plan, scratches),
        nat: nat(plan),
        ..ReplaySummary::default()
    }
}

/// The name for packets of no configured port; no port can have it.
const UNKNOWN: &str = "(unknown)";
/// The name for packets that matched no rule of an access list.
const DEFAULT: &str = "default";

fn port(counts: &PortCounts) -> PortSummary {
    PortSummary {
        packets_in: counts.packets_in,
        bytes_in: counts.bytes_in,
        packets_out: counts.packets_out,
        bytes_out: counts.bytes_out,
        dropped: counts.dropped,
    }
}

fn class_summary(counts: &ClassCounts, colors: Option<Colors>) -> ClassSummary {
    ClassSummary {
        packets: counts.packets,
        bytes: counts.bytes,
        dropped: counts.dropped,
        colors,
        latency: latency(&counts.residence_ns),
    }
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    if histogram.is_empty() {
        return Latency::default();
    }
    Latency {
        latency_ns_p50: histogram.value_at_quantile(0.5),
        latency_ns_p99: histogram.value_at_quantile(0.99),
        latency_ns_max: histogram.max(),
    }
}

fn acls(config: &RouterConfig, plan: &RouterPlan, scratches: &[Scratch]) -> Named<Vec<AclRuleSummary>> {
    let counts = plan.acl_counts(scratches.iter());
    let filters = plan.filters();
    let rules = |(place, acl): (usize, &AclConfig)| {
        let names = acl.rule_names.iter().map(String::as_str).chain([DEFAULT]);
        let actions = acl.list.rules.iter().map(|rule| rule.action).chain([acl.list.default]);
        let counted = filters.acls.counts_of(place, &counts);
        let rows = names.zip(actions).zip(counted).map(|((name, action), count)| AclRuleSummary {
            rule: name.to_string(),
            action: action.name().to_string(),
            packets: count.packets,
            bytes: count.bytes,
        });
        (acl.name.clone(), rows.collect::<Vec<_>>())
    };
    let mut lists: Vec<_> = config.acls.iter().enumerate().map(rules).collect();
    for counted in plan.counted_rules(config) {
        let row = AclRuleSummary {
            rule: counted.rule,
            action: counted.action.to_owned(),
            packets: counted.count.packets,
            bytes: counted.count.bytes,
        };
        match lists.last_mut().filter(|(list, _)| list == counted.list) {
            Some((_, rows)) => rows.push(row),
            None => lists.push((counted.list.to_owned(), vec![row])),
        }
    }
    Named(lists)
}

fn nat(plan: &RouterPlan) -> Option<NatSummary> {
    let counters = plan.nat_counters()?;
    Some(NatSummary {
        sessions: counters.sessions_active,
        sessions_created: counters.sessions_created,
        sessions_expired: counters.sessions_expired,
        translated_out: counters.translated_out,
        translated_in: counters.translated_in,
        hairpinned: counters.hairpins,
    })
}

pub(crate) fn input_issues(report: &InputReport) -> InputIssues {
    InputIssues {
        total: report.issue_count(),
        by_kind: report.issues.iter().map(|(k, n)| ((*k).to_string(), *n)).collect::<BTreeMap<_, _>>(),
        first: report.first_issues.iter().map(input_issue).collect(),
        useless: report.useless.clone(),
        cut: report.cut.clone(),
    }
}

/// One issue, for a summary or an error.
pub(crate) fn input_issue(issue: &Issue) -> InputIssue {
    let place = match issue.place {
        Place::Line { line, column } => format!("line {line}, column {column}"),
        Place::Byte { offset, packet: Some(packet) } => format!("byte {offset}, packet {packet}"),
        Place::Byte { offset, packet: None } => format!("byte {offset}"),
    };
    InputIssue {
        file: issue.input.to_string(),
        place,
        kind: issue.reason.to_string(),
        message: issue.message.clone(),
    }
}
