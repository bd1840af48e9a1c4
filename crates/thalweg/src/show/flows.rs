//! The flow meter's counters, as tables.

use thalweg_flow::alarm::{AlarmReport, WebhookCounters};
use thalweg_node::control::{AmountView, FlowCacheView, FlowOutletView, PacketRequest, Request};
use thalweg_text::units::{bytes, count, counted};

use super::{Print, Show};
use crate::client::parse_all;
use crate::tables::{remark, table};

pub(super) const SHOW: &[Show] = &[
    Show::asks(
        "flow-cache",
        "Flow meter: packets seen, exported, cached and not metered",
        Request::Packets(PacketRequest::FlowCache),
        Print::Page(|items| Ok(parse_all(items)?.iter().map(cache).collect())),
    ),
    Show::asks(
        "alarms",
        "Alarms about flows: active ones, the latest events, what each rule raised",
        Request::Packets(PacketRequest::FlowCache),
        Print::Page(|items| {
            Ok(parse_all(items)?.iter().map(|view: &FlowCacheView| alarms(&view.alarms)).collect())
        }),
    ),
];

fn alarms(report: &AlarmReport) -> String {
    let rules = report.rules.iter().map(|rule| {
        vec![rule.rule.clone(), count(rule.active as u64), count(rule.raised), count(rule.ended)]
    });
    let mut text = table(&["Alarm", "Active", "Raised", "Ended"], &[1, 2, 3], rules);
    text += &alarm_events(report);
    if !report.blackholes.is_empty() {
        let routes = report.blackholes.iter();
        let rows = routes.map(|route| vec![route.prefix.clone(), route.rule.clone(), route.until.clone()]);
        text += &table(&["Blackhole", "Alarm", "Until"], &[], rows);
    }
    text
}

/// Events of alarms, and what was missed.
pub(crate) fn alarm_events(report: &AlarmReport) -> String {
    let mut text = String::new();
    if report.events.is_empty() {
        text += "no alarms\n";
    } else {
        let rows = report.events.iter().map(|event| {
            let alarm = &event.alarm;
            let of = format!("{} {}", alarm.key, alarm.of);
            let measured = format!("{} {}", count(alarm.peak), alarm.measure);
            vec![event.at.clone(), event.event.clone(), alarm.rule.clone(), of, measured]
        });
        text += &table(&["At", "Event", "Alarm", "Of", "At most so far"], &[], rows);
    }
    if let Some(posted) = &report.webhook {
        let WebhookCounters { accepted, given_up, dropped, error } = posted;
        text += &format!(
            "posted: {}, given up: {}, dropped: {}\n",
            count(*accepted),
            count(*given_up),
            count(*dropped)
        );
        text.extend(error.iter().map(|error| remark(&format!("webhook: {error}"))));
    }
    let missed = report.counters;
    for (number, what) in [
        (missed.refused, "windows were above a threshold while too many alarms were active"),
        (
            missed.uncertain,
            "windows may have been above a threshold: there were too many values for exact sums",
        ),
        (missed.late + missed.lost, "seconds of a shard came too late or were lost"),
        (missed.blackholes_refused, "alarms were about hosts that could not become blackholes"),
    ] {
        if number > 0 {
            text += &remark(&format!("{} {what}", count(number)));
        }
    }
    text
}

/// Receivers of records, then collectors of samples, then what is wrong with them.
fn outlets(all: &[FlowOutletView]) -> String {
    let lost = |outlet: &FlowOutletView| {
        let lost: Vec<String> =
            outlet.lost.iter().map(|(reason, records)| format!("{} {reason}", count(*records))).collect();
        if lost.is_empty() { "0".to_owned() } else { lost.join(", ") }
    };
    let (of_samples, of_records): (Vec<_>, Vec<_>) = all.iter().partition(|outlet| outlet.sflow);
    let mut text = String::new();
    if !of_records.is_empty() {
        let rows = of_records.into_iter().map(|outlet| {
            vec![outlet.to.clone(), count(outlet.records), count(outlet.waiting), lost(outlet)]
        });
        text += &table(&["Records to", "Delivered", "Waiting", "Lost"], &[1, 2], rows);
    }
    if !of_samples.is_empty() {
        let rows = of_samples.into_iter().map(|outlet| {
            let numbers = [outlet.records, outlet.counter_samples, outlet.interfaces_uncounted].map(count);
            std::iter::once(outlet.to.clone()).chain(numbers).chain([lost(outlet)]).collect()
        });
        let header = ["Samples to", "Of packets", "Of counters", "Ports not counted", "Lost"];
        text += &table(&header, &[1, 2, 3], rows);
    }
    for outlet in all {
        let datagrams = [(outlet.datagrams_refused, "refused"), (outlet.datagrams_dropped, "dropped")];
        for (number, what) in datagrams.into_iter().filter(|(number, _)| *number > 0) {
            text += &remark(&format!("{}: {} {what}", outlet.to, counted(number, "datagram")));
        }
        if let Some(error) = &outlet.error {
            text += &remark(&format!("{}: {error}", outlet.to));
        }
    }
    text
}

fn cache(view: &FlowCacheView) -> String {
    let row =
        |name: &str, amount: AmountView| vec![name.to_owned(), count(amount.packets), bytes(amount.bytes)];
    let mut rows = vec![
        row("seen", view.seen),
        row("exported", view.exported),
        row("cached", view.cached),
        row("unsampled", view.unsampled),
    ];
    rows.extend(
        view.not_metered.iter().map(|(reason, amount)| row(&format!("not metered: {reason}"), *amount)),
    );
    let mut text = table(&["Packets that were", "Packets", "Bytes"], &[1, 2], rows);
    let mut rows = vec![
        vec!["flows in the cache".to_owned(), count(view.flows)],
        vec!["flows created".to_owned(), count(view.flows_created)],
        vec!["flows evicted".to_owned(), count(view.flows_evicted)],
    ];
    if view.flows_named + view.names_given_up > 0 {
        rows.push(vec!["flows with names".to_owned(), count(view.flows_named)]);
        rows.push(vec![
            "messages with names that did not become whole".to_owned(),
            count(view.names_given_up),
        ]);
        rows.push(vec!["names that had to go for others".to_owned(), count(view.names_forgotten)]);
    }
    rows.extend(view.records.iter().map(|(reason, n)| vec![format!("records: {reason}"), count(*n)]));
    rows.push(vec!["records lost before export".to_owned(), count(view.records_lost)]);
    if view.nat_events + view.nat_events_lost > 0 {
        rows.push(vec!["events of NAT".to_owned(), count(view.nat_events)]);
        rows.push(vec!["events of NAT lost before export".to_owned(), count(view.nat_events_lost)]);
    }
    if view.clock_steps > 0 {
        rows.push(vec!["wall clock steps".to_owned(), count(view.clock_steps)]);
    }
    text += &table(&["Flow cache", ""], &[1], rows);
    text += &outlets(&view.outlets);
    text += &format!("memory: {}\n", bytes(view.memory_bytes));
    if !view.balances {
        text += &remark("packets were passing while this was counted: the sums are out by those");
    }
    text
}
