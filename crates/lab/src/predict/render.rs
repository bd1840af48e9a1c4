//! Predictions as tables, plots and a report.

use super::{Outcome, Predicted};
use crate::plot::{Axis, LineChart, Point, Scale, Series, SeriesKind};
use crate::report::{Origin, Report, filled};
use crate::stats::distinct;
use thalweg_text::Table;
use thalweg_text::units::Unit;

fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// The validation, the curves, and the comparisons.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    filled([validation(outcome), curves(outcome), article(outcome)])
}

fn validation(outcome: &Outcome) -> Table {
    Table::of(
        "Held out: speed-up over serial, predicted and measured (median, slowest to fastest run)",
        &outcome.validation,
    )
    .words("work", |cell| cell.work.clone())
    .words("model", |cell| cell.model.clone())
    .number("workers", |cell| cell.workers.to_string())
    .number("predicted", |cell| format!("{:.2}", cell.predicted))
    .number("measured", |cell| format!("{:.2}", cell.measured.median))
    .words("range", |cell| format!("{:.2} to {:.2}", cell.measured.min, cell.measured.max))
    .number("error", |cell| signed_percent(cell.error))
    .table()
}

fn curves(outcome: &Outcome) -> Table {
    let law = |point: &Predicted, of: fn(&super::Curve) -> super::Fit| {
        let curve = outcome.curves.iter().find(|c| c.work == point.work && c.model == point.model);
        curve.map_or_else(|| "–".to_owned(), |curve| format!("{:.2}", of(curve).speed_up(point.cores as f64)))
    };
    Table::of(
        "Predicted on virtual cores: not validated, but where the table of what was held out has the same cell",
        &outcome.points,
    )
    .words("work", |point| point.work.clone())
    .words("model", |point| point.model.clone())
    .number("cores", |point| point.cores.to_string())
    .number("pps", |point| Unit::Count.format(point.packets_per_second))
    .number("speed-up", |point| format!("{:.2}", point.speed_up))
    .number("Amdahl", |point| law(point, |curve| curve.amdahl))
    .number("USL", |point| law(point, |curve| curve.usl))
    .words("saturated on", |point| point.saturated_on.clone().unwrap_or_else(|| "–".to_owned()))
    .table()
}

fn article(outcome: &Outcome) -> Table {
    Table::of(
        "Tokens beside the article on a parallel router emulator: as many packets, cores and tokens",
        &outcome.article,
    )
    .words("work", |row| row.work.clone())
    .number("cores", |row| row.cores.to_string())
    .number("article", |row| format!("{:.1}", row.found))
    .number("predicted", |row| format!("{:.1}", row.predicted))
    .table()
}

fn plot(outcome: &Outcome, work: &str) -> LineChart {
    let points: Vec<_> = outcome.points.iter().filter(|point| point.work == work).collect();
    let mut series = Vec::new();
    for (color, model) in distinct(points.iter().map(|point| point.model.clone())).into_iter().enumerate() {
        let of_model = points.iter().filter(|point| point.model == model);
        let places = of_model.map(|point| Point { x: point.cores as f64, y: point.speed_up, range: None });
        let predicted = Series::measured(format!("{model}, predicted"), color, places);
        series.push(Series { kind: SeriesKind::Predicted(color), ..predicted });
        let cells = outcome.validation.iter().filter(|cell| cell.work == work && cell.model == model);
        let cells = cells.map(|cell| Point::of(cell.workers as f64, &cell.measured, 1.0));
        let measured = Series::measured(format!("{model}, measured"), color, cells);
        series.extend((!measured.points.is_empty()).then_some(measured));
    }
    series.push(Series::ideal(&series));
    LineChart {
        title: format!("Speed-up by cores, work {work}"),
        x: Axis::at_data("cores", Unit::Plain, Scale::Log),
        y: Axis::new("times the serial model", Unit::Plain, Scale::Log),
        series,
    }
}

/// How well the validation runs are predicted: the median and the largest error.
fn lead(outcome: &Outcome) -> String {
    let mut errors: Vec<f64> = outcome.validation.iter().map(|cell| cell.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    match errors.as_slice() {
        [] => "Nothing was measured beside these predictions: they are not validated.".to_owned(),
        [.., worst] => format!(
            "Of {} cells that were held out, half are predicted within {:.1} % and all within {:.1} %. Beyond the \
             cores of this machine nothing is validated.",
            errors.len(),
            errors[errors.len() / 2] * 100.0,
            worst * 100.0
        ),
    }
}

/// The whole report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Execution models predicted", lead(outcome), origin);
    report.heading("Plots");
    for work in distinct(outcome.points.iter().map(|point| point.work.clone())) {
        report.plot(
            plot(outcome, &work).svg(),
            "Dashed: predicted on virtual cores, not validated. Error bars: slowest and fastest measured run. Of the \
             farm's cores one has the reader; its measured runs have a reader besides their workers.",
        );
    }
    report.heading("Tables");
    report.tables(tables(outcome));
    report.heading("How to read this");
    let hand_over = &outcome.machine.hand_over;
    report.notes([
        "The models as shipped run on virtual cores: one thread at a time, the one with the smallest clock. Stages spend what \
         they took in a serial run instead of working."
            .to_owned(),
        format!(
            "Handing over, measured between two cores: a hop {} ns, spinning {} ns before sleeping, a wake-up {} ns for \
             the waker and {} ns more until the sleeper runs, fetching a packet {} ns.",
            hand_over.hop_ns,
            hand_over.spin_ns,
            hand_over.wake_ns,
            hand_over.wake_latency_ns,
            outcome.machine.move_ps_per_packet / 1000
        ),
        "Contention is measured with two copies of the serial run and extended in a straight line: a guess beyond two cores."
            .to_owned(),
    ]);
    report
}
