//! The experiment on NAT or the firewall as tables, charts and a report.

use super::{LiveResult, MemoryResult, Outcome, Part};
use crate::figures::{ns, or_dash, range, times};
use crate::plot::{Axis, Bar, BarChart, LineChart, Point, Scale, Series};
use crate::report::{Origin, Report, filled};
use crate::stats::distinct;
use thalweg_text::Table;
use thalweg_text::units::{Unit, count};

fn pps(value: f64) -> String {
    Unit::Count.format(value)
}

/// What was measured, and the name of its stage.
fn names(outcome: &Outcome) -> (&'static str, &'static str) {
    if outcome.stage == "firewall" { ("Firewall", "firewall's stage") } else { ("NAT", "NAT stage") }
}

/// All tables that have rows.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    filled([memory(outcome), live(outcome)])
}

fn memory(outcome: &Outcome) -> Table {
    let (what, stage) = names(outcome);
    Table::of(
        format!(
            "{what} in memory: the {stage} (and the whole router), one core, median of {} rounds",
            outcome.runs
        ),
        &outcome.memory,
    )
    .number("sessions", |result| count(result.sessions.into()))
    .number("rules", |result| or_dash(result.rules.map(|rules| count(rules.into()))))
    .number("set-up/s", |result| Unit::Count.format(result.set_up_per_second.median))
    .number("range", |result| range(&result.set_up_per_second, pps))
    .number("ns each", |result| ns(result.set_up_ns))
    .number("(all)", |result| ns(result.set_up_all_ns))
    .number("established", |result| ns(result.established_ns))
    .number("TSC cycles", |result| format!("{:.1}", result.established_tsc_cycles.median))
    .number("(all)", |result| ns(result.established_all_ns))
    .number("tear-down/s", |result| Unit::Count.format(result.tear_down_per_second.median))
    .number("bytes", |result| or_dash(result.bytes_per_session.map(|bytes| format!("{bytes:.0}"))))
    .table()
}

fn live(outcome: &Outcome) -> Table {
    let caption = format!(
        "{} live (RFC 9693): every session validated by a reply; median of {} rounds",
        names(outcome).0,
        outcome.runs
    );
    let of = |part| outcome.live.iter().filter(move |result| result.measure == part);
    Table::of(caption, Part::ALL.into_iter().flat_map(of))
        .words("figure", |result| result.measure.name().to_owned())
        .number("sessions", |result| {
            let sessions = count(result.sessions.into());
            if result.at_least { format!("at least {sessions}") } else { sessions }
        })
        .words("router", |result| result.label.to_string())
        .number("per second", |result| or_dash(result.per_second.map(|s| pps(s.median))))
        .number("range", |result| or_dash(result.per_second.map(|s| range(&s, pps))))
        .number("unvalidated", |result| or_dash(result.counted_per_second.map(pps)))
        .number("x native", |result| or_dash(result.native_ratio.map(times)))
        .table()
}

/// The findings in a few sentences.
pub fn lead(outcome: &Outcome) -> String {
    let mut text = String::new();
    let stage = names(outcome).1;
    if let Some(most) = outcome.memory.iter().max_by_key(|result| result.sessions) {
        text += &format!(
            "In memory, {} sessions were opened without loss at {} a second by the {stage}",
            count(most.sessions.into()),
            Unit::Count.format(most.set_up_per_second.median)
        );
        text += &most
            .bytes_per_session
            .map_or(". ".to_owned(), |bytes| format!(", and take {bytes:.0} bytes each. "));
    }
    if let Some(fewest) = outcome.memory.iter().min_by_key(|result| result.sessions) {
        text += &format!(
            "A packet of {} established sessions takes it {:.0} cycles. ",
            count(fewest.sessions.into()),
            fewest.established_tsc_cycles.median
        );
    }
    text += &costs_of_rules(outcome);
    if let Some(fill) = outcome.fill {
        text += &format!(
            "A table with room for {} held {} when more came, which all lived on, and refused the first when it held \
             {}. ",
            count(fill.room.into()),
            count(fill.held.into()),
            count(fill.before_first_refusal.into())
        );
    }
    let set_ups = outcome.live.iter().filter(|result| result.measure == Part::SetUp);
    let said: Vec<String> = set_ups
        .filter_map(|r| Some(format!("{} {}", r.label, Unit::Count.format(r.per_second?.median))))
        .collect();
    if !said.is_empty() {
        text += &format!("Live, valid sessions per second: {}. ", said.join(", "));
    }
    if !outcome.left_out.is_empty() {
        text += &format!("Left out: {}.", outcome.left_out.join("; "));
    }
    if text.is_empty() { "Measured as asked for.".to_owned() } else { text.trim_end().to_owned() }
}

/// What more rules cost the whole router, for the largest number of sessions.
fn costs_of_rules(outcome: &Outcome) -> String {
    let most = outcome.memory.iter().map(|result| result.sessions).max();
    let here = || {
        outcome.memory.iter().filter(move |result| Some(result.sessions) == most && result.rules.is_some())
    };
    let (few, many) = (here().min_by_key(|result| result.rules), here().max_by_key(|result| result.rules));
    let Some((few, many)) = few.zip(many).filter(|(few, many)| few.rules < many.rules) else {
        return String::new();
    };
    let rules = |result: &MemoryResult| count(result.rules.unwrap_or(0).into());
    format!(
        "With {} rules instead of {} an established packet costs the whole router {:.2} times as much, and one that \
         begins a connection {:.2} times. ",
        rules(many),
        rules(few),
        many.established_all_ns / few.established_all_ns,
        many.set_up_all_ns / few.set_up_all_ns
    )
}

fn in_memory_chart(outcome: &Outcome) -> LineChart {
    let rate = outcome.clock.ticks_per_ns;
    let point =
        |sessions: u32, y: f64, range: (f64, f64)| Point { x: sessions.into(), y, range: Some(range) };
    let (what, stage) = names(outcome);
    let mut series = Vec::new();
    for rules in distinct(outcome.memory.iter().map(|result| result.rules)) {
        let here = || outcome.memory.iter().filter(move |result| result.rules == rules);
        let opened = here().map(|result| {
            let s = &result.set_up_per_second;
            point(result.sessions, result.set_up_ns, (1e9 / s.max, 1e9 / s.min))
        });
        let established = here().map(|result| {
            let s = &result.established_tsc_cycles;
            point(result.sessions, result.established_ns, (s.min / rate, s.max / rate))
        });
        let of = rules.map_or_else(String::new, |rules| format!(", {} rules", count(rules.into())));
        let color = series.len();
        series.push(Series::measured(format!("opens a session{of}"), color, opened));
        series.push(Series::measured(format!("established{of}"), color + 1, established));
    }
    LineChart {
        title: format!("{what} in memory: time per packet by number of sessions"),
        x: Axis::at_data("sessions", Unit::Count, Scale::Log),
        y: Axis::new(format!("{stage}, per packet"), Unit::Nanoseconds, Scale::Linear),
        series,
    }
}

/// Bars of one figure by router, grouped by number of sessions.
fn live_chart(outcome: &Outcome, part: Part, title: &str) -> BarChart {
    let mut here: Vec<&LiveResult> = outcome.live.iter().filter(|result| result.measure == part).collect();
    here.sort_by_key(|result| result.sessions);
    let bars = here.into_iter().filter_map(|result| {
        let sessions = format!("{} sessions", count(result.sessions.into()));
        Some((sessions, result.label.to_string(), Bar::of(&result.per_second?)))
    });
    let routers = distinct(outcome.live.iter().map(|result| result.label.to_string()));
    BarChart::of(title, Axis::new("per second", Unit::Count, Scale::Linear), routers, bars)
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let (what, stage) = names(outcome);
    let mut report = Report::new(what, lead(outcome), origin);
    if !outcome.memory.is_empty() {
        report.plot(
            in_memory_chart(outcome).svg(),
            format!("The {stage} alone, one core. Ranges: the fastest and the slowest round."),
        );
    }
    for (part, title) in [
        (Part::SetUp, "Set-up rate, live"),
        (Part::Established, "Throughput over established sessions, live"),
        (Part::TearDown, "Tear-down rate, live"),
    ] {
        if outcome.live.iter().any(|result| result.measure == part) {
            report.plot(live_chart(outcome, part, title).svg(), "Ranges: the slowest and the fastest round.");
        }
    }
    report.tables(tables(outcome));
    report.left_out(&outcome.left_out);
    report.heading("How to read this");
    let ceiling = outcome.ceiling_per_second.map_or_else(String::new, |s| {
        format!(" The generator alone sends {} frames a second.", Unit::Count.format(s.median))
    });
    report.notes([
        "In memory: every opening packet was translated (by a firewall: passed), no two sessions share a public \
         endpoint, and a reply to each came to where it belongs; else there would be no figure. Memory is the growth of \
         the process while the table is made, by the sessions there is room for."
            .to_owned(),
        format!(
            "Live: a set-up rate is one at which every session was valid in phase 2; \"unvalidated\" is the rate at which all \
             frames of phase 1 came through. Virtual links stand in for network cards.{ceiling}"
        ),
        "Tear-down: the kernel deletes all its connections by one command. Our router's `clear nat --all` is not timed; in \
         memory its sessions expire all at once."
            .to_owned(),
    ]);
    report
}
