//! The experiment on forwarding as tables and as a report.
//!
//! The plots follow the white paper (seed document 002, figures 5 to 7): share of the ceiling by frame size, and
//! how many times the native router. Those of applications follow figures 4 and 5 of seed document 004.

mod plots;

use super::experiment::{CellResult, Outcome};
use super::subject::Label;
use crate::claims;
use crate::figures::{ns, or_dash, percent, range, times};
use crate::report::{Origin, Report, columns, filled};
use crate::stats::distinct;
use thalweg_text::Table;
use thalweg_text::units::{Unit, bytes, count};

/// Who is measured when there is no router between.
const DIRECT: &str = "direct link";

fn loss(share: f64) -> String {
    match share {
        0.0 => "0".to_owned(),
        share if share < 0.0001 => "<0.01 %".to_owned(),
        share => format!("{:.2} %", share * 100.0),
    }
}

fn who(label: Option<&Label>) -> String {
    label.map_or_else(|| DIRECT.to_owned(), Label::to_string)
}

/// What identifies a cell, in the order of the columns.
fn key(cell: &CellResult) -> [String; 3] {
    [cell.scenario.clone(), cell.frame_bytes.to_string(), cell.label.to_string()]
}

fn keyed(caption: impl Into<String>, headings: &str) -> Table {
    Table::new(caption, columns(&format!("<scenario | frame | <router | {headings}")))
}

/// All tables that have something in them.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    filled([
        ceilings(outcome),
        throughput(outcome),
        latency(outcome),
        loss_rates(outcome),
        back_to_back(outcome),
        cost(outcome),
        applications(outcome),
        several_ports(outcome),
        changes(outcome),
        shown(outcome),
    ])
    .into_iter()
    .chain(claims::judged("forwarding", outcome))
    .collect()
}

fn ceilings(outcome: &Outcome) -> Table {
    Table::of("Ceiling: the generator alone, over a direct link", &outcome.ceilings)
        .number("frame", |ceiling| ceiling.frame_bytes.to_string())
        .number("pps", |ceiling| Unit::Count.format(ceiling.packets_per_second.median))
        .number("spread", |ceiling| percent(ceiling.packets_per_second.spread()))
        .number("bit/s", |ceiling| {
            Unit::Count.format(ceiling.packets_per_second.median * ceiling.frame_bytes as f64 * 8.0)
        })
        .number("CPU/pkt", |ceiling| ns(ceiling.cpu_ns_per_packet.median))
        .number("p50", |ceiling| or_dash(ceiling.latency.map(|p| ns(p.p50_ns as f64))))
        .number("p99", |ceiling| or_dash(ceiling.latency.map(|p| ns(p.p99_ns as f64))))
        .table()
}

/// Throughput of every cell.
fn throughput(outcome: &Outcome) -> Table {
    let caption = format!(
        "Throughput (RFC 2544 26.1): fastest rate with a loss of at most {}, trials of {} s, median of {} runs",
        loss(outcome.loss_max),
        outcome.trial_s,
        outcome.runs
    );
    let mut table = keyed(caption, "pps | spread | of ceiling | x native | <limit");
    for cell in &outcome.cells {
        let rest = [
            Unit::Count.format(cell.packets_per_second.median),
            percent(cell.packets_per_second.spread()),
            percent(cell.ceiling_share),
            or_dash(cell.native_ratio.map(times)),
            if cell.generator_limited { "generator" } else { "router" }.to_owned(),
        ];
        table.push(key(cell).into_iter().chain(rest));
    }
    table
}

fn latency(outcome: &Outcome) -> Table {
    let mut table = keyed(
        "Latency (RFC 2544 26.2), the tester's own calls and links included: medians of the runs",
        "at | pps | p50 | p90 | p99 | p99.9 | max",
    );
    for cell in &outcome.cells {
        for at in &cell.latency {
            let p = &at.percentiles;
            let times = [p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.max_ns].map(|value| ns(value as f64));
            let rate = [percent(at.share_of_throughput), Unit::Count.format(at.packets_per_second)];
            table.push(key(cell).into_iter().chain(rate).chain(times));
        }
    }
    table
}

fn loss_rates(outcome: &Outcome) -> Table {
    let mut table = keyed(
        "Frame loss rate (RFC 2544 26.3) of what was intended, from the ceiling down; held back: could not be sent",
        "at | intended | through | lost | held back",
    );
    for cell in &outcome.cells {
        for point in &cell.loss_curve {
            let held = (1.0 - point.sent_pps / point.intended_pps.max(1.0)).clamp(0.0, 1.0);
            let rest = [
                percent(point.share),
                Unit::Count.format(point.intended_pps),
                Unit::Count.format(point.received_pps),
                loss(point.loss),
                // A hundredth is the time that a trial may take longer.
                if held > 0.01 { percent(held) } else { "–".to_owned() },
            ];
            table.push(key(cell).into_iter().chain(rest));
        }
    }
    table
}

fn back_to_back(outcome: &Outcome) -> Table {
    let mut table = keyed(
        "Back-to-back (RFC 9004): longest burst at the ceiling without loss, and the time the buffers hold",
        "mean frames | smallest | largest | implied | corrected",
    );
    for cell in &outcome.cells {
        let Some(burst) = &cell.back_to_back else { continue };
        let edge = |edge: Option<&u64>| count(edge.copied().unwrap_or(0));
        let rest = if burst.no_limit {
            let none = "–".to_owned();
            [
                format!("no limit to {}", count(burst.longest_frames)),
                none.clone(),
                none.clone(),
                none.clone(),
                none,
            ]
        } else {
            [
                count(burst.mean_frames as u64),
                edge(burst.bursts.iter().min()),
                edge(burst.bursts.iter().max()),
                ns(burst.implied_buffer_s * 1e9),
                ns(burst.corrected_buffer_s * 1e9),
            ]
        };
        table.push(key(cell).into_iter().chain(rest));
    }
    table
}

fn cost(outcome: &Outcome) -> Table {
    let mut table = keyed(
        "Processor time per frame at 90 % of throughput: the whole path, and what the router adds to the generator",
        "pps | path | alone | added | spread | of it sender | x native",
    );
    for cell in &outcome.cells {
        let Some(cost) = &cell.cost else { continue };
        let rest = [
            Unit::Count.format(cost.packets_per_second),
            ns(cost.cpu_ns_per_packet.median),
            ns(cost.alone_ns_per_packet.median),
            ns(cost.added_ns_per_packet.median),
            percent(cost.added_ns_per_packet.spread()),
            ns(cost.sender_added_ns_per_packet.median),
            or_dash(cost.added_native_ratio.map(times)),
        ];
        table.push(key(cell).into_iter().chain(rest));
    }
    table
}

fn applications(outcome: &Outcome) -> Table {
    Table::of(
        "Applications over TCP: half of the round-trip time, and throughput of a stream, by message size",
        &outcome.applications,
    )
    .words("router", |result| who(result.label.as_ref()))
    .words("nat", |result| if result.nat { "yes" } else { "no" }.to_owned())
    .number("MTU", |result| result.mtu.to_string())
    .number("message", |result| count(result.message_bytes as u64))
    .number("half p50", |result| ns(result.half_round_trip_p50_ns.median))
    .number("added", |result| or_dash(result.added_ns.as_ref().map(|added| ns(added.median))))
    .number("half p99", |result| ns(result.half_round_trip_p99_ns.median))
    .number("stream B/s", |result| Unit::Bytes.format(result.bytes_per_second.median))
    .number("spread", |result| percent(result.bytes_per_second.spread()))
    .table()
}

fn several_ports(outcome: &Outcome) -> Table {
    let caption = "Several ports, flows in both directions: throughput of all together, and as a share of what as many \
                   ports carry (arithmetic: virtual links have no rate)";
    let line = |share: f64| format!("{:.1} %", share * 100.0);
    let who = |label: Option<&Label>| label.map_or_else(|| "generator alone".to_owned(), Label::to_string);
    Table::of(caption, &outcome.ports)
        .number("ports", |result| result.ports.to_string())
        .number("frame", |result| result.frame_bytes.to_string())
        .words("router", |result| who(result.label.as_ref()))
        .number("pps", |result| Unit::Count.format(result.packets_per_second.median))
        .number("spread", |result| percent(result.packets_per_second.spread()))
        .number("of ceiling", |result| or_dash(result.ceiling_share.map(percent)))
        .number("of 1 Gbit/s", |result| line(result.share_of_1g))
        .number("of 10 Gbit/s", |result| line(result.share_of_10g))
        .number("x native", |result| or_dash(result.native_ratio.map(times)))
        .number("paper, DPDK", |result| or_dash(result.paper.map(|percent| format!("{percent} %"))))
        .table()
}

fn changes(outcome: &Outcome) -> Table {
    let caption = "What each change brings: over the unchanged router in the same round, median and range of the rounds";
    let effect = |took_effect: Option<bool>| match took_effect {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "not known",
    };
    Table::of(caption, &outcome.changes)
        .words("scenario", |result| result.scenario.clone())
        .number("frame", |result| result.frame_bytes.to_string())
        .words("router", |result| result.label.unchanged().to_string())
        .words("change", |result| result.label.change.clone())
        .words("took effect", |result| effect(result.took_effect).to_owned())
        .number("throughput", |result| times(result.throughput_ratio.median))
        .number("range", |result| range(&result.throughput_ratio, times))
        .number("CPU/pkt", |result| or_dash(result.cpu_ratio.as_ref().map(|ratio| times(ratio.median))))
        .number("range", |result| or_dash(result.cpu_ratio.as_ref().map(|ratio| range(ratio, times))))
        .table()
}

/// What shows whether changes took effect; empty without changes.
fn shown(outcome: &Outcome) -> Table {
    let has_changes = outcome.shown.iter().any(|shown| !shown.label.change.is_empty());
    Table::of("What routers showed while they ran", outcome.shown.iter().filter(|_| has_changes))
        .words("router", |shown| shown.label.to_string())
        .number("packets/chunk", |shown| or_dash(shown.seen.packets_per_chunk.map(|n| format!("{n:.1}"))))
        .number("polls that found", |shown| or_dash(shown.seen.polled.map(count)))
        .number("sleeps/packet", |shown| or_dash(shown.seen.sleeps_per_packet.map(|n| format!("{n:.3}"))))
        .number("huge pages", |shown| match shown.seen.huge_pages_allowed {
            Some(false) => "off".to_owned(),
            _ => or_dash(shown.seen.huge_pages_bytes.map(bytes)),
        })
        .words("cores", |shown| or_dash(shown.seen.cores.clone()))
        .words("mode", |shown| or_dash(shown.seen.mode.clone()))
        .table()
}

/// What was found, in a few sentences: the native router and the best other, at the smallest frame of each scenario.
pub fn lead(outcome: &Outcome) -> String {
    let mut text = String::new();
    for scenario in scenarios(outcome) {
        let here = || outcome.cells.iter().filter(|cell| cell.scenario == scenario);
        let Some(smallest) = here().map(|cell| cell.frame_bytes).min() else { continue };
        let here = || here().filter(|cell| cell.frame_bytes == smallest);
        let mpps = |cell: &CellResult| format!("{:.2} Mpps", cell.packets_per_second.median / 1e6);
        let native = here().find(|cell| cell.label.is_native());
        let best = here()
            .filter(|cell| !cell.label.is_native())
            .max_by(|a, b| a.packets_per_second.median.total_cmp(&b.packets_per_second.median));
        let said = |cell: &CellResult| {
            let added = cell.cost.as_ref().map(|cost| ns(cost.added_ns_per_packet.median));
            let added = added.map_or(String::new(), |added| format!(", {added} added per frame"));
            format!("{} {}{added}", cell.label, mpps(cell))
        };
        let both: Vec<String> = native.iter().chain(best.iter()).map(|cell| said(cell)).collect();
        if !both.is_empty() {
            text += &format!("{scenario}, {smallest} bytes: {}. ", both.join("; "));
        }
    }
    if let Some(ceiling) = outcome.ceilings.first() {
        text += &format!(
            "The generator alone: {:.2} Mpps at {} bytes.",
            ceiling.packets_per_second.median / 1e6,
            ceiling.frame_bytes
        );
    }
    if text.is_empty() { "Measured as asked for.".to_owned() } else { text.trim_end().to_owned() }
}

fn scenarios(outcome: &Outcome) -> Vec<&str> {
    distinct(outcome.cells.iter().map(|cell| cell.scenario.as_str()))
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Forwarding", lead(outcome), origin);
    report.heading("Plots");
    for (svg, caption) in plots::plots(outcome) {
        report.plot(svg, caption);
    }
    report.heading("All measurements");
    report.tables(tables(outcome));
    report.left_out(&outcome.left_out);
    report.heading("How to read this");
    report.notes([
        "Virtual links stand in for network cards: they have no rate of their own, and their work, like that of the \
         kernel's router, is done in the sender's time. Compare routers with each other and with the ceiling; nothing \
         here says what a network card would carry.",
        "Frame sizes are those of the wire, check sequence included.",
        "Loss is counted against what was intended. A router that holds the sender back loses what could not be sent in \
         time.",
        "Limit \"generator\": the router came to 95 % of what the generator can send at all; it may be faster.",
        "Path is processor time inside the send calls, of the router's processes and of the kernel's softirq threads, \
         for each frame that came through. A router that looks for frames without rest is charged for that too.",
        "Scenarios: one:N and full:N have one route or the whole table and N flows; nat:N translates N flows to one \
         address.",
        "Two results whose ranges overlap are not told apart by these measurements.",
    ]);
    report
}
