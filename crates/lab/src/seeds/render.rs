//! The results of a hunt as tables and a report.

use thalweg_sim::seeds::Moment;
use thalweg_text::Table;
use thalweg_text::units::{Unit, age, count};

use super::{Failure, Outcome};
use crate::plot::{Axis, Bar, BarChart, Scale, SpaceTime, Spot};
use crate::report::{Origin, Report, columns};
use crate::stats::Summary;

/// The most events in a diagram; earlier ones are left out.
const MOMENTS: usize = 120;

/// If fewer seeds than this met an event, another draw may miss it.
const SELDOM: u64 = 10;

/// The run as one row.
pub fn summary(outcome: &Outcome) -> Table {
    let headings = "seeds | twice | failed | threads | time | CPU s | ms a plan, median | largest | virtual time | UPDATEs | packets";
    let mut table = Table::new("Seeds", columns(headings));
    let ms = |of: fn(&Summary) -> f64| {
        outcome.seed_ms.as_ref().map_or("-".to_owned(), |times| format!("{:.1}", of(times)))
    };
    table.push([
        count(outcome.seeds),
        count(outcome.again),
        count(outcome.broken.values().sum()),
        outcome.threads.to_string(),
        age(outcome.elapsed_s.round() as u64),
        format!("{:.1}", outcome.cpu_s),
        ms(|times| times.median),
        ms(|times| times.max),
        age(outcome.virtual_s as u64),
        count(outcome.updates),
        count(outcome.packets),
    ]);
    table
}

/// The failures.
pub fn failures(outcome: &Outcome) -> Table {
    let headings = "seed | <invariant | routers or ports | events or packets | smallest: routers or ports | events or packets | <again";
    let mut table = Table::new("Seeds that broke an invariant", columns(headings));
    for failure in &outcome.failures {
        table.push([
            failure.seed.to_string(),
            failure.invariant.clone(),
            failure.drawn.0.to_string(),
            failure.drawn.1.to_string(),
            failure.shrunk.0.to_string(),
            failure.shrunk.1.to_string(),
            format!("thalweg lab seeds --side {} --seed {}", failure.side, failure.seed),
        ]);
    }
    table
}

fn coverage(outcome: &Outcome) -> Table {
    let mut table = Table::new("What seeds met", columns("<kind | <what | seeds"));
    for (name, seeds) in &outcome.coverage {
        let (kind, what) = name.split_once(": ").unwrap_or(("", name));
        table.push([kind.to_owned(), what.to_owned(), count(*seeds)]);
    }
    table
}

fn faults(outcome: &Outcome) -> String {
    let met =
        outcome.coverage.iter().filter_map(|(name, seeds)| Some((name.strip_prefix("fault: ")?, seeds)));
    let bars = met.map(|(name, seeds)| (name.to_owned(), "seeds".to_owned(), Bar::at(*seeds as f64)));
    let axis = Axis::new("seeds", Unit::Count, Scale::Linear);
    BarChart::of("Faults and changes", axis, Vec::new(), bars).svg()
}

/// The result in a sentence or two.
pub fn lead(outcome: &Outcome) -> String {
    let seldom = outcome.coverage.values().filter(|seeds| **seeds < SELDOM).count();
    let failed: u64 = outcome.broken.values().sum();
    let said = match failed {
        0 => "every invariant held in all of them".to_owned(),
        _ => {
            let each: Vec<String> =
                outcome.broken.iter().map(|(name, seeds)| format!("{name} ({seeds})")).collect();
            format!("{failed} broke an invariant: {}", each.join(", "))
        }
    };
    format!(
        "{} seeds from {}: {said}. They met {} different things, {seldom} of them fewer than {SELDOM} times.",
        count(outcome.seeds),
        outcome.first,
        outcome.coverage.len()
    )
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Seeds", lead(outcome), origin);
    report.table(summary(outcome));
    if !outcome.failures.is_empty() {
        report.heading("Failures");
        report.table(failures(outcome));
        outcome.failures.iter().for_each(|failure| show(&mut report, failure));
    }
    report.heading("Coverage");
    report.plot(faults(outcome), "Each seed counts once for each kind of fault or change it has.");
    report.table(coverage(outcome));
    report
}

fn show(report: &mut Report, failure: &Failure) {
    report.heading(format!("Seed {}", failure.seed));
    report.paragraph(failure.what.clone());
    let title = format!("seed {}, as small as it still fails", failure.seed);
    report.plot(
        diagram(&title, failure.shrunk.0, &failure.moments),
        "A line for each router, time going down; a row for each fault and each line of a log.",
    );
}

/// The last events of a trial with this many routers.
pub fn diagram(title: &str, routers: usize, moments: &[(u64, Moment)]) -> String {
    let each = |(at_us, moment): &(u64, Moment)| {
        let (spot, words) = match moment {
            Moment::Fault(fault) => (Spot::All, fault.to_string()),
            Moment::Mended => (Spot::Rest, "everything is mended".to_owned()),
            Moment::Packets(what) => (Spot::All, what.clone()),
            Moment::Checked => (Spot::Rest, "at rest, as it must be".to_owned()),
            Moment::Logged { router, other, text } => {
                let color = if text.starts_with("up: ") { 2 } else { 0 };
                (Spot::At(*router, *other, color), format!("{router}, of {other}: {text}"))
            }
        };
        (*at_us as f64 / 1e6, spot, words)
    };
    let moments = &moments[moments.len().saturating_sub(MOMENTS)..];
    SpaceTime { title: title.to_owned(), places: routers, moments: moments.iter().map(each).collect() }.svg()
}
