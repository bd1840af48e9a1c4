//! Findings as tables, plots and a report.

use thalweg_text::units::{Unit, count};
use thalweg_text::{Align, Table};

use super::{Curves, Findings};
use crate::claims::Verdict;
use crate::plot::{Axis, LineChart, Point, Scale, Series};
use crate::report::{Origin, Report};

fn number(value: f64) -> String {
    match value {
        value if value >= 1000.0 => count(value.round() as u64),
        value if value.fract() == 0.0 => format!("{value}"),
        value => Unit::Plain.format(value),
    }
}

/// All claims in one table.
fn claims(all: &[Findings]) -> Table {
    Table::of(
        "Paper and here",
        all.iter().flat_map(|part| part.claims.iter().map(|claim| (part.part, claim))),
    )
    .words("part", |(part, _)| part.to_string())
    .words("paper", |(_, claim)| format!("{} ({})", claim.paper, claim.source))
    .words("here", |(_, claim)| claim.here.clone())
    .words("verdict", |(_, claim)| claim.verdict.to_string())
    .table()
}

fn measured(findings: &Findings) -> Table {
    let columns = findings.columns.iter().map(|name| (*name, Align::Right));
    let mut table = Table::new(findings.part.name(), std::iter::once(("", Align::Left)).chain(columns));
    for row in &findings.rows {
        table.push(std::iter::once(row.what.clone()).chain(row.values.iter().map(|value| number(*value))));
    }
    table
}

/// The measurements, then the claims.
pub fn tables(all: &[Findings]) -> Vec<Table> {
    all.iter().map(measured).chain([claims(all)]).collect()
}

fn plot(curves: &Curves) -> String {
    let lines = curves.lines.iter();
    let points =
        lines.flat_map(|(name, points)| points.iter().map(|(x, y)| (name.clone(), Point::at(*x, *y))));
    LineChart {
        title: curves.title.to_owned(),
        x: Axis::new(curves.x, Unit::Plain, Scale::Linear),
        y: Axis::new(curves.y, Unit::Plain, if curves.log_y { Scale::Log } else { Scale::Linear }),
        series: Series::each(curves.lines.iter().map(|(name, _)| name), points),
    }
    .svg()
}

/// The report.
pub fn report(all: &[Findings], origin: Origin) -> Report {
    let verdicts = || all.iter().flat_map(|findings| &findings.claims);
    let reproduced = verdicts().filter(|claim| claim.verdict == Verdict::Reproduced).count();
    let lead = format!("{reproduced} of {} published statements were found again.", verdicts().count());
    let mut report = Report::new("How BGP converges", lead, origin);
    report.table(claims(all));
    for findings in all {
        report.heading(findings.part.name());
        report.paragraph(&findings.about);
        for curves in &findings.curves {
            report.plot(plot(curves), curves.caption);
        }
        report.table(measured(findings));
        if !findings.remarks.is_empty() {
            report.notes(&findings.remarks);
        }
    }
    report.heading("How to read this");
    report.notes([
        "Routers run the shipped session, policy, table and export code. Time is virtual: latencies, intervals and, where it \
         says so, what an UPDATE costs.",
        "A verdict follows from the numbers by a rule in the code; shapes and order are compared, never absolute times.",
    ]);
    report
}
