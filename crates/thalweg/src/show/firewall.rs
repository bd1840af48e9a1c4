//! `thalweg show firewall`: connections, rules, sets and counters of a running router's firewall.

use clap::Args;
use thalweg_node::control::{
    FirewallCountersView, FirewallRuleView, FirewallSetView, FirewallStateFilter, FirewallStateView,
    PacketRequest, Request,
};
use thalweg_text::units::{age, bit_rate, count};
use thalweg_text::{Align, Table};

use super::nat::in_vrf;
use super::{Print, Question, Show};
use crate::cli::FirewallFilterArgs;
use crate::client::{parse, parse_all};
use crate::tables::{table, width};

pub(super) const SHOW: &[Show] =
    &[Show::reads::<FirewallArgs>("firewall", "Firewall connections, rules, sets or counters")];

#[derive(Debug, Args)]
struct FirewallArgs {
    #[command(flatten)]
    which: FirewallFilterArgs,
    /// Print at most this many lines
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show rules with their matches and rates instead of connections
    #[arg(long, conflicts_with_all = FirewallFilterArgs::NAMES, conflicts_with_all = ["limit", "sets", "counters"])]
    rules: bool,
    /// Show named sets, when they were read, and what the last reload changed
    #[arg(long, conflicts_with_all = FirewallFilterArgs::NAMES, conflicts_with_all = ["limit", "counters"])]
    sets: bool,
    /// Show the firewall's counters instead of connections
    #[arg(long, conflicts_with_all = FirewallFilterArgs::NAMES, conflicts_with = "limit")]
    counters: bool,
}

impl From<FirewallArgs> for Question {
    fn from(args: FirewallArgs) -> Self {
        let (request, print) = match &args {
            FirewallArgs { counters: true, .. } => (
                PacketRequest::FirewallCounters,
                Print::Page(|items| Ok(parse_all(items)?.iter().map(counters).collect())),
            ),
            FirewallArgs { rules: true, .. } => {
                (PacketRequest::FirewallRules, Print::Page(|items| Ok(rules(&parse_all(items)?))))
            }
            FirewallArgs { sets: true, .. } => {
                (PacketRequest::FirewallSets, Print::Page(|items| Ok(sets(&parse_all(items)?))))
            }
            _ => (
                PacketRequest::FirewallStates(FirewallStateFilter {
                    which: args.which.into(),
                    limit: args.limit,
                }),
                Print::Rows(state_columns, |item| Ok(state_row(&parse(item)?))),
            ),
        };
        (Request::Packets(request), print)
    }
}

/// The columns of connections.
fn state_columns() -> Table {
    let columns = [
        ("Protocol", Align::Left),
        ("Source", Align::Left),
        ("Destination", Align::Left),
        ("From", Align::Left),
        ("To", Align::Left),
        ("State", Align::Left),
        ("Rule", Align::Left),
        ("Age", Align::Right),
        ("Idle", Align::Right),
        ("Left", Align::Right),
    ];
    Table::new("", columns).optional(&["Left", "Idle", "Age", "Rule"])
}

fn state_row(state: &FirewallStateView) -> Vec<String> {
    let known = |name: &Option<String>| name.clone().unwrap_or_else(|| "?".to_owned());
    vec![
        state.protocol.clone(),
        in_vrf(state.source.to_string(), state.source_vrf.as_deref()),
        in_vrf(state.destination.to_string(), state.destination_vrf.as_deref()),
        known(&state.from),
        known(&state.to),
        state.state.clone(),
        known(&state.rule),
        age(state.age_s.into()),
        age(state.idle_s.into()),
        age(state.remaining_s.into()),
    ]
}

fn rules(rules: &[FirewallRuleView]) -> String {
    let zones = |zones: &[String]| if zones.is_empty() { "any".to_owned() } else { zones.join(", ") };
    let rate = |rate: Option<u64>, words: fn(u64) -> String| rate.map_or_else(|| "-".to_owned(), words);
    let bits = |per_second: u64| bit_rate(per_second as f64);
    Table::of("", rules)
        .words("Rule", |rule| rule.rule.clone())
        .words("Action", |rule| rule.action.clone())
        .words("From", |rule| zones(&rule.from))
        .words("To", |rule| zones(&rule.to))
        .words("State", |rule| rule.state.join(", "))
        .number("Packets", |rule| count(rule.packets))
        .number("Bytes", |rule| count(rule.bytes))
        .number("Packets/s", |rule| rate(rule.packets_per_s, count))
        .number("Rate", |rule| rate(rule.bits_per_s, bits))
        .table()
        .render(width())
}

fn sets(sets: &[FirewallSetView]) -> String {
    if sets.is_empty() {
        return "the configuration has no [sets]\n".to_owned();
    }
    Table::of("", sets)
        .words("Set", |set| set.set.clone())
        .number("Addresses", |set| count(set.addresses))
        .number("Ports", |set| count(set.ports))
        .number("Read before", |set| age(set.age_s))
        .number("Added", |set| count(set.added))
        .number("Removed", |set| count(set.removed))
        .words("File", |set| {
            set.file.as_ref().map_or_else(|| "-".to_owned(), |file| file.display().to_string())
        })
        .table()
        .render(width())
}

fn counters(view: &FirewallCountersView) -> String {
    let mut rows = vec![vec!["states at most".to_owned(), count(view.states_max)]];
    rows.extend(view.counters.iter().map(|(name, n)| vec![name.replace('_', " "), count(*n)]));
    table(&["Firewall", "Now"], &[1], rows)
}
