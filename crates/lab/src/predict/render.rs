//! Predictions as tables, plots and a report.

use super::{BgpOutcome, Curve, Outcome, Predicted, Validation};
use crate::figures::{or_dash, range, times};
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
    let mut tables = vec![
        validation("Held out", &outcome.validation),
        curves("Predicted", &outcome.points, &outcome.curves),
        article(outcome),
    ];
    if let Some(bgp) = &outcome.bgp {
        tables.push(validation("BGP, held out", &bgp.validation));
        tables.push(curves("BGP, predicted", &bgp.points, &bgp.curves));
        tables.push(thesis(bgp));
    }
    filled(tables)
}

fn validation(title: &str, cells: &[Validation]) -> Table {
    Table::of(
        format!("{title}: speed-up over serial, predicted and measured (median, slowest to fastest run)"),
        cells,
    )
    .words("work", |cell| cell.work.clone())
    .words("model", |cell| cell.model.clone())
    .number("workers", |cell| cell.workers.to_string())
    .number("predicted", |cell| times(cell.predicted))
    .number("measured", |cell| times(cell.measured.median))
    .words("range", |cell| range(&cell.measured, times))
    .number("error", |cell| signed_percent(cell.error))
    .table()
}

fn curves(title: &str, points: &[Predicted], curves: &[Curve]) -> Table {
    let law = |point: &Predicted, of: fn(&Curve) -> super::Fit| {
        let curve = curves.iter().find(|c| c.work == point.work && c.model == point.model);
        or_dash(curve.map(|curve| times(of(curve).speed_up(point.cores as f64))))
    };
    Table::of(
        format!(
            "{title} on virtual cores: validated only where the table of what was held out has the same cell"
        ),
        points,
    )
    .words("work", |point| point.work.clone())
    .words("model", |point| point.model.clone())
    .number("cores", |point| point.cores.to_string())
    .number("per second", |point| Unit::Count.format(point.per_second))
    .number("speed-up", |point| times(point.speed_up))
    .number("Amdahl", |point| law(point, |curve| curve.amdahl))
    .number("USL", |point| law(point, |curve| curve.usl))
    .words("saturated on", |point| or_dash(point.saturated_on.clone()))
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

fn thesis(bgp: &BgpOutcome) -> Table {
    Table::of("Schedulings beside the thesis on parallel BGP", &bgp.thesis)
        .words("scheduling", |row| row.scheduling.clone())
        .number("cores", |row| row.cores.to_string())
        .number("thesis, at least", |row| format!("{:.1}", row.found))
        .number("predicted", |row| format!("{:.1}", row.predicted))
        .table()
}

fn plot(points: &[Predicted], validation: &[Validation], work: &str) -> LineChart {
    let points: Vec<_> = points.iter().filter(|point| point.work == work).collect();
    let mut series = Vec::new();
    for (color, model) in distinct(points.iter().map(|point| point.model.clone())).into_iter().enumerate() {
        let of_model = points.iter().filter(|point| point.model == model);
        let places = of_model.map(|point| Point::at(point.cores as f64, point.speed_up));
        let predicted = Series::measured(format!("{model}, predicted"), color, places);
        series.push(Series { kind: SeriesKind::Predicted(color), ..predicted });
        let cells = validation.iter().filter(|cell| cell.work == work && cell.model == model);
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
    let of_bgp = outcome.bgp.iter().flat_map(|bgp| &bgp.validation);
    let mut errors: Vec<f64> = outcome.validation.iter().chain(of_bgp).map(|cell| cell.error.abs()).collect();
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
            plot(&outcome.points, &outcome.validation, &work).svg(),
            "Dashed: predicted on virtual cores, not validated. Error bars: slowest and fastest measured run. Of the \
             farm's cores one has the reader; its measured runs have a reader besides their workers.",
        );
    }
    if let Some(bgp) = &outcome.bgp {
        report.plot(
            plot(&bgp.points, &bgp.validation, super::bgp::WORK).svg(),
            "Dashed: schedulings of the BGP daemon predicted on virtual cores, not validated. Error bars: slowest and \
             fastest measured run. A thread for each core, with per-peer one for each neighbor.",
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
        "A BGP speaker is recorded call by call. Its schedulings wait for shards and for the export queue as they do on real \
         threads; locks of sessions and of the attribute table, and fetching another core's cache lines, are missing."
            .to_owned(),
        "Contention is measured with two copies of the serial run and extended in a straight line: a guess beyond two cores."
            .to_owned(),
    ]);
    report
}
