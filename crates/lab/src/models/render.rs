//! The experiment on models as a table, as plots and as a report.

use super::{CellResult, Outcome, SERIAL, serial_of};
use crate::claims;
use crate::figures::{ns, or_dash, percent, seconds, times};
use crate::plot::{Axis, Bar, BarChart, LineChart, Point, Scale, Series};
use crate::report::{Origin, Report};
use crate::stats::distinct;
use thalweg_base::CHUNK_PACKETS_DEFAULT;
use thalweg_text::units::{Unit, count};
use thalweg_text::{Align, Table};

/// One row per cell.
pub fn table(outcome: &Outcome) -> Table {
    let caption = format!(
        "Median of {} runs of {}; spread: (largest - smallest) / median",
        outcome.runs,
        packets(&outcome.cells)
    );
    Table::of(caption, &outcome.cells)
        .words("work", |result| result.cell.work.clone())
        .number("chunk", |result| result.cell.chunk_packets.to_string())
        .words("model", |result| result.cell.model.clone())
        .number("workers", |result| result.cell.workers.to_string())
        .number("pps", |result| Unit::Count.format(result.packets_per_second.median))
        .number("spread", |result| percent(result.packets_per_second.spread()))
        .number("speed-up", |result| or_dash(result.speed_up.map(times)))
        .number("efficiency", |result| or_dash(result.efficiency.map(percent)))
        .number("elapsed", |result| seconds(result.elapsed_s.median))
        .number("CPU", |result| seconds(result.cpu_s.median))
        .number("CPU/pkt", |result| ns(result.cpu_ns_per_packet.median))
        .number("cores in use", |result| {
            or_dash(result.concurrency.as_ref().map(|in_use| times(in_use.mean)))
        })
        .number("p50", |result| ns(result.residence_p50_ns.median))
        .number("p99", |result| ns(result.residence_p99_ns.median))
        .optional(&["p99", "p50", "cores in use", "CPU/pkt", "CPU", "elapsed", "spread"])
        .table()
}

/// All tables: the cells, what the article's analyses show, and what it says.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    let more = hot_spots(outcome).into_iter().chain(coprocessor(outcome));
    [table(outcome), concurrency(outcome)]
        .into_iter()
        .chain(more)
        .chain(claims::judged("models", outcome))
        .collect()
}

/// How long how many cores were in use, of each model with its most workers.
fn concurrency(outcome: &Outcome) -> Table {
    let cells = || largest(outcome).filter_map(|cell| Some((cell, cell.concurrency.as_ref()?)));
    let most = cells().map(|(_, in_use)| in_use.time_shares.len()).max().unwrap_or(0);
    let titles: Vec<String> = (0..most).map(|cores| format!("{cores} in use")).collect();
    let mut columns = vec![("work", Align::Left), ("model", Align::Left), ("workers", Align::Right)];
    columns.extend([("mean", Align::Right), ("of workers", Align::Right)]);
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let caption = "Concurrency: cores in use on average, and shares of the time in which so many were (article: 20.5 of 24, \
                   all 24 most of the time)";
    let mut table = Table::new(caption, columns);
    for (result, in_use) in cells() {
        let mut row = vec![
            result.cell.work.clone(),
            result.cell.model.clone(),
            result.cell.workers.to_string(),
            times(in_use.mean),
            percent(in_use.share_of_workers),
        ];
        let share = |cores: usize| in_use.time_shares.get(cores).copied().unwrap_or(0.0);
        row.extend((0..most).map(|cores| percent(share(cores))));
        table.push(row);
    }
    table
}

/// Of each work and model, the cell with the most workers and the article's chunks, or the largest there are.
fn largest(outcome: &Outcome) -> impl Iterator<Item = &CellResult> {
    let cells = &outcome.cells;
    let chunks = distinct(cells.iter().map(|c| c.cell.chunk_packets));
    let usual = chunks.contains(&CHUNK_PACKETS_DEFAULT).then_some(CHUNK_PACKETS_DEFAULT);
    let chunk = usual.or(chunks.iter().copied().max()).unwrap_or(0);
    let of_chunk = move |cell: &&CellResult| cell.cell.chunk_packets == chunk;
    let is_largest = move |cell: &&CellResult| {
        let alike = |other: &&CellResult| {
            (&other.cell.model, &other.cell.work) == (&cell.cell.model, &cell.cell.work)
        };
        cells.iter().filter(alike).all(|other| other.cell.workers <= cell.cell.workers)
    };
    cells.iter().filter(of_chunk).filter(is_largest)
}

fn hot_spots(outcome: &Outcome) -> Option<Table> {
    if outcome.hot_spots.is_empty() {
        return None;
    }
    let caption =
        "Hot spots of a serial run: shares of all stages' time, synthetic work as a line of its own";
    let table = Table::of(caption, &outcome.hot_spots)
        .words("work", |spot| spot.work.clone())
        .words("stage", |spot| spot.stage.clone())
        .number("share", |spot| format!("{:.1} %", spot.share * 100.0))
        .number("ticks/packet", |spot| Unit::Plain.format(spot.ticks_per_packet));
    Some(table.table())
}

fn coprocessor(outcome: &Outcome) -> Option<Table> {
    let caption =
        "A coprocessor that all units share: each packet asks it once, and it serves one request at a time";
    let table = Table::of(caption, &outcome.coprocessor)
        .number("service", |result| ns(result.service_ns as f64))
        .words("work", |result| result.cell.work.clone())
        .words("model", |result| result.cell.model.clone())
        .number("workers", |result| result.cell.workers.to_string())
        .number("pps", |result| Unit::Count.format(result.packets_per_second.median))
        .number("spread", |result| percent(result.packets_per_second.spread()))
        .number("speed-up", |result| or_dash(result.speed_up.map(times)))
        .number("waits", |result| ns(result.wait_ns.median))
        .number("unit busy", |result| percent(result.busy_share.median))
        .table();
    (!outcome.coprocessor.is_empty()).then_some(table)
}

/// Packets of a run, for each work: a run takes whole chunks, so their size has a say.
fn packets(cells: &[CellResult]) -> String {
    let works = distinct(cells.iter().map(|c| c.cell.work.clone()));
    let of = |work: &String| {
        let all = || cells.iter().filter(|r| r.cell.work == *work).map(|r| r.packets);
        let (least, most) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
        let range = if least == most { count(least) } else { format!("{} to {}", count(least), count(most)) };
        if works.len() == 1 {
            range
        } else {
            if work == "none" { range } else { format!("{range} with {work}") }
        }
    };
    works.iter().map(of).collect::<Vec<_>>().join(", ") + " packets"
}

/// Plots with a caption each: per work setting, speed-up by workers, throughput by chunk size (if there are
/// several) and residence time by model.
pub fn plots(outcome: &Outcome) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    let cells = &outcome.cells;
    let chunks = distinct(cells.iter().map(|c| c.cell.chunk_packets));
    let Some(chunk) = chunks.iter().find(|c| **c == CHUNK_PACKETS_DEFAULT).or(chunks.first()).copied() else {
        return plots;
    };
    for work in distinct(cells.iter().map(|c| c.cell.work.clone())) {
        let here: Vec<&CellResult> = cells.iter().filter(|r| r.cell.work == work).collect();
        let with = if work == "none" { "no synthetic work".to_owned() } else { format!("work {work}") };
        let at_chunk = |r: &&&CellResult| r.cell.chunk_packets == chunk;
        if let Some(chart) =
            speed_up(cells, &here.iter().filter(at_chunk).copied().collect::<Vec<_>>(), &with)
        {
            plots.push((
                chart.svg(),
                format!(
                    "Median packets per second over those of the serial model, chunks of {chunk}. Error bars: \
                     slowest and fastest run."
                ),
            ));
        }
        if chunks.len() > 1 {
            plots.push((
                throughput(cells, &here, &with).svg(),
                "Median packets per second of each model with its largest number of workers. Error bars: slowest \
                 and fastest run."
                    .to_owned(),
            ));
        }
        plots.push((
            latency(cells, &here.iter().filter(at_chunk).copied().collect::<Vec<_>>(), &with).svg(),
            format!(
                "How long a packet is in the router, from the model's taking on its chunk to the sink; chunks of \
                 {chunk}, median of the runs. Logarithmic axis: compare where bars end, not how long they are."
            ),
        ));
    }
    plots
}

/// The whole report. `lead` may say what was found.
pub fn report(outcome: &Outcome, lead: impl Into<String>, origin: Origin) -> Report {
    let mut report = Report::new("Execution models compared", lead, origin);
    report.heading("Plots");
    for (svg, caption) in plots(outcome) {
        report.plot(svg, caption);
    }
    for line in &outcome.time_lines {
        let caption = format!(
            "{} with {} workers, chunks of {}, work {}: a chunk meets {:.1} units on average. Recorded from a run; the \
             number on a bar is its chunk's.",
            line.model, line.workers, line.chunk_packets, line.work, line.units_per_chunk
        );
        report.plot(line.drawing().svg(), caption);
    }
    report.heading("All cells, and what the article's analyses show");
    tables(outcome).into_iter().for_each(|table| report.table(table));
    report.heading("How to read this");
    report.notes([
        "Every cell was run once to warm up and then in rounds, each with all cells in an order of its own, \
         so that a disturbance touches all cells alike."
            .to_owned(),
        "Two cells whose ranges overlap are not told apart by these measurements.".to_owned(),
        "Cores in use are processor time over elapsed time, looked at every two milliseconds while a model runs.".to_owned(),
        "CPU/pkt is processor time of all threads of the model: a model can be faster and cost more.".to_owned(),
        "Runs with the same chunk size and work took the same packets and gave the same answer: as many packets \
         forwarded, and dropped for each reason, in total, by port and by class."
            .to_owned(),
    ]);
    report
}

/// Models in the order they were first run; the place of one is its color in every plot.
fn all_models(cells: &[CellResult]) -> Vec<&str> {
    distinct(cells.iter().map(|cell| cell.cell.model.as_str()))
}

/// `None` if there is nothing but the serial model, or no serial model.
fn speed_up(all: &[CellResult], here: &[&CellResult], with: &str) -> Option<LineChart> {
    let parallel = here.iter().filter(|result| result.cell.model != SERIAL);
    let points = parallel.filter_map(|result| {
        let serial = serial_of(all, &result.cell)?.packets_per_second.median;
        let point = Point::of(result.cell.workers as f64, &result.packets_per_second, 1.0 / serial);
        Some((result.cell.model.clone(), point))
    });
    let mut series = Series::each(all_models(all), points);
    if series.is_empty() {
        return None;
    }
    series.push(Series::ideal(&series));
    Some(LineChart {
        title: format!("Speed-up by workers, {with}"),
        x: Axis::at_data("workers", Unit::Plain, Scale::Linear),
        y: Axis::new("times the serial model", Unit::Plain, Scale::Linear),
        series,
    })
}

fn throughput(all: &[CellResult], here: &[&CellResult], with: &str) -> LineChart {
    let mut series = Vec::new();
    for (color, model) in all_models(all).into_iter().enumerate() {
        let of_model = || here.iter().filter(|r| r.cell.model == model);
        let workers = of_model().map(|r| r.cell.workers).max().unwrap_or(1);
        let points = of_model()
            .filter(|r| r.cell.workers == workers)
            .map(|r| Point::of(r.cell.chunk_packets as f64, &r.packets_per_second, 1.0));
        let name = if model == SERIAL { model.to_owned() } else { format!("{model} ({workers})") };
        series.push(Series::measured(name, color, points));
    }
    LineChart {
        title: format!("Throughput by chunk size, {with}"),
        x: Axis::at_data("packets per chunk", Unit::Plain, Scale::Log),
        y: Axis::new("packets per second", Unit::Count, Scale::Linear),
        series,
    }
}

fn latency(all: &[CellResult], here: &[&CellResult], with: &str) -> BarChart {
    let mut workers: Vec<usize> = here.iter().map(|r| r.cell.workers).collect();
    workers.sort_unstable();
    workers.dedup();
    let name = |w: usize| if w == 1 { "1 worker".to_owned() } else { format!("{w} workers") };
    let of_model = |model| here.iter().filter(move |result| result.cell.model == model);
    let bars = all_models(all).into_iter().flat_map(of_model).map(|result| {
        let bar = Bar::of(&result.residence_p50_ns).marked(Some(result.residence_p99_ns.median));
        (result.cell.model.clone(), name(result.cell.workers), bar)
    });
    let title = format!("Residence time of a packet: median and 99th percentile, {with}");
    let axis = Axis::new("residence time", Unit::Nanoseconds, Scale::Log);
    let names = workers.iter().map(|workers| name(*workers)).collect();
    BarChart { ordered: true, ..BarChart::of(title, axis, names, bars).marked("99th percentile") }
}

/// What was found: each work setting's best speed-up.
pub fn lead(outcome: &Outcome) -> String {
    let mut text = String::from("The same packets under every execution model, with the same answer.");
    let works = distinct(outcome.cells.iter().map(|result| result.cell.work.as_str()));
    for work in works {
        let parallel = outcome.cells.iter().filter(|r| r.cell.work == work && r.cell.model != SERIAL);
        let best = parallel.max_by(|a, b| a.speed_up.unwrap_or(0.0).total_cmp(&b.speed_up.unwrap_or(0.0)));
        let Some((best, speed_up)) = best.and_then(|best| Some((best, best.speed_up?))) else { continue };
        let with = if work == "none" { "Without synthetic work".to_owned() } else { format!("With {work}") };
        let workers = if best.cell.workers == 1 { "worker" } else { "workers" };
        text += &format!(
            " {with}, {} with {} {workers} and chunks of {} came to {speed_up:.2} times serial.",
            best.cell.model, best.cell.workers, best.cell.chunk_packets
        );
    }
    text + &disturbance(outcome)
}

/// Runs of one cell differ by this much of their median, in half of the cells, when the machine has other things
/// to do.
const SPREAD_DISTURBED: f64 = 0.25;

/// A warning if the numbers are not worth much.
fn disturbance(outcome: &Outcome) -> String {
    let mut spreads: Vec<f64> = outcome.cells.iter().map(|r| r.packets_per_second.spread()).collect();
    spreads.sort_by(f64::total_cmp);
    match spreads.get(spreads.len() / 2) {
        Some(&spread) if spread > SPREAD_DISTURBED => format!(
            " But the machine was disturbed: in half of the cells, runs differ by {:.0} % of their median or \
             more. Measure again when it is quiet.",
            spread * 100.0
        ),
        _ => String::new(),
    }
}
