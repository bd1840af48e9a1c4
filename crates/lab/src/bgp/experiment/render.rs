//! The experiment as tables, plots and a report.

use super::super::functions::{HEADER_READ_SHARE, PAYLOAD_READ_SHARE};
use super::{CellResult, Outcome, Part, SERIAL};
use crate::plot::{Axis, Bar, BarChart, BarGroup, LineChart, Point, Scale, Series, SeriesKind};
use crate::report::{Origin, Report, columns};
use crate::stats::{Summary, distinct};
use thalweg_text::units::{Unit, count};
use thalweg_text::{Align, Table};

/// A function of the thesis's table 4.2.
struct Function {
    /// What a daemon calls it.
    key: &'static str,
    /// What it is called here.
    name: &'static str,
    /// The speed-up that the thesis reports for one thread per peer on twelve cores, to stand beside ours.
    thesis: f64,
}

const fn function(key: &'static str, name: &'static str, thesis: f64) -> Function {
    Function { key, name, thesis }
}

/// In the thesis's order; reading once as measured and once as a share. Whatever else a daemon counts follows by name.
const FUNCTIONS: [Function; 8] = [
    function("table_update", "table update", 10.4),
    function("payload_parse", "payload parse, with policy", 8.0),
    function("header_parse", "header parse", 11.6),
    function("payload_read", "payload read", 8.0),
    function(PAYLOAD_READ_SHARE, "payload read (share)", 8.0),
    function("header_read", "header read", 10.5),
    function(HEADER_READ_SHARE, "header read (share)", 10.5),
    function("housekeeping", "housekeeping", 9.4),
];

fn seconds(s: f64) -> String {
    Unit::Nanoseconds.format(s * 1e9)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

/// A table for each part that was measured.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    Part::ALL.into_iter().filter_map(|part| table_of(outcome, part)).collect()
}

fn table_of(outcome: &Outcome, part: Part) -> Option<Table> {
    let cells: Vec<&CellResult> = outcome.of(part).collect();
    match part {
        Part::Receive => (!outcome.receive.is_empty()).then(|| receive(outcome)),
        _ if cells.is_empty() => None,
        Part::Functions => functions(outcome, &cells),
        Part::Blocks => Some(blocks(outcome, &cells)),
        Part::SpeedUp => Some(times(outcome, &cells, "Speed-up by scheduling and threads", "load")),
        Part::Mixes => Some(times(outcome, &cells, "Time by traffic mix", "mix")),
        Part::Ways => Some(times(outcome, &cells, "Time by the client's way of sending", "way")),
        Part::Wu => Some(times(outcome, &cells, "The eight loads of Wu et al.", "load")),
    }
}

fn times(outcome: &Outcome, cells: &[&CellResult], what: &str, varied: &str) -> Table {
    let caption = format!("{what}; median of {} runs, spread: (largest - smallest) / median", outcome.runs);
    let mut table = Table::new(
        caption,
        columns(&format!(
            "<{varied} | <scheduling | threads | time | spread | UPDATEs/s | speed-up | CPU | memory"
        )),
    );
    for result in cells {
        table.push([
            result.cell.load.clone(),
            result.cell.scheduling.clone(),
            result.cell.threads.to_string(),
            seconds(result.elapsed_s.median),
            percent(result.elapsed_s.spread()),
            Unit::Count.format(result.updates_per_second()),
            or_dash(result.speed_up.map(|s| format!("{s:.2}"))),
            seconds(result.cpu_s.median),
            or_dash((result.rss_peak_bytes > 0).then(|| Unit::Bytes.format(result.rss_peak_bytes as f64))),
        ]);
    }
    table
}

/// Names of all functions counted: those of the thesis first.
fn function_names<'a>(cells: &[&'a CellResult]) -> Vec<(&'a str, &'a str)> {
    let mut names: Vec<(&str, &str)> = FUNCTIONS
        .iter()
        .filter(|known| cells.iter().any(|c| c.functions_ns.contains_key(known.key)))
        .map(|known| (known.key, known.name))
        .collect();
    for name in cells.iter().flat_map(|cell| cell.functions_ns.keys()) {
        if !names.iter().any(|(known, _)| known == name) {
            names.push((name, name));
        }
    }
    names
}

/// Time in a function per UPDATE of wall-clock work: summed over threads, then shared among them.
fn per_thread(cell: &CellResult, name: &str) -> Option<f64> {
    Some(cell.functions_ns.get(name)?.median / cell.cell.threads.max(1) as f64)
}

fn functions(outcome: &Outcome, cells: &[&CellResult]) -> Option<Table> {
    let names = function_names(cells);
    let serial = cells.iter().find(|c| c.cell.scheduling == SERIAL)?;
    let others: Vec<&&CellResult> = cells.iter().filter(|c| c.cell.scheduling != SERIAL).collect();
    let titles: Vec<(String, String)> = others
        .iter()
        .map(|c| (format!("{} ({})", c.cell.scheduling, c.cell.threads), "speed-up".to_owned()))
        .collect();
    let mut columns = vec![("function", Align::Left), ("calls", Align::Right), (SERIAL, Align::Right)];
    for (title, speed_up) in &titles {
        columns.push((title, Align::Right));
        columns.push((speed_up, Align::Right));
    }
    columns.push(("thesis", Align::Right));
    let mut caption = format!(
        "Time per UPDATE by function, threads added up; speed-up: of the time divided by threads; calls per UPDATE, \
         serial; thesis: speed-up on 12 cores; median of {} runs",
        outcome.runs
    );
    if names.iter().any(|(key, _)| [HEADER_READ_SHARE, PAYLOAD_READ_SHARE].contains(key)) {
        caption +=
            "; share: one read brings headers and payloads of many messages, its time is shared out by bytes";
    }
    let mut table = Table::new(caption, columns);
    for (key, name) in names {
        let serial_ns = per_thread(serial, key);
        let mut row = vec![
            name.to_owned(),
            or_dash(serial.function_calls.get(key).map(|n| Unit::Plain.format(*n))),
            or_dash(serial_ns.map(|ns| Unit::Nanoseconds.format(ns))),
        ];
        for other in &others {
            let ns = other.functions_ns.get(key).map(|s| s.median);
            row.push(or_dash(ns.map(|ns| Unit::Nanoseconds.format(ns))));
            let ratio = serial_ns.zip(per_thread(other, key)).filter(|(_, ns)| *ns > 0.0);
            row.push(or_dash(ratio.map(|(serial, ns)| format!("{:.2}", serial / ns))));
        }
        let thesis = FUNCTIONS.iter().find(|known| known.key == key).map(|known| known.thesis);
        row.push(or_dash(thesis.map(|s| format!("{s:.1}"))));
        table.push(row);
    }
    Some(table)
}

fn blocks(outcome: &Outcome, cells: &[&CellResult]) -> Table {
    let caption = format!(
        "Time of every {} UPDATEs along the trace; drift: mean of the last quarter of blocks over that of the first",
        outcome.block_updates
    );
    let mut table = Table::new(caption, columns("<scheduling | threads | blocks | mean | largest | drift"));
    for cell in cells {
        let all = Summary::of(&cell.blocks_s);
        table.push([
            cell.cell.scheduling.clone(),
            cell.cell.threads.to_string(),
            cell.blocks_s.len().to_string(),
            seconds(mean(&cell.blocks_s)),
            or_dash(all.map(|s| seconds(s.max))),
            or_dash(drift(&cell.blocks_s).map(|d| format!("{d:.2}"))),
        ]);
    }
    table
}

fn mean(part: &[f64]) -> f64 {
    part.iter().sum::<f64>() / part.len().max(1) as f64
}

/// Mean of the last quarter over that of the first: medians of blocks are often zero, when a daemon hands
/// several on together.
fn drift(blocks: &[f64]) -> Option<f64> {
    let quarter = blocks.len() / 4;
    let (first, last) = (blocks.get(..quarter)?, blocks.get(blocks.len() - quarter..)?);
    (quarter > 0 && mean(first) > 0.0).then(|| mean(last) / mean(first))
}

fn receive(outcome: &Outcome) -> Table {
    let mut table = Table::new(
        format!("Ways to receive messages from TCP; median of {} runs", outcome.runs),
        columns("<UPDATEs | <way | messages | calls/message | CPU/message | spread | throughput"),
    );
    for row in &outcome.receive {
        table.push([
            row.load.clone(),
            row.strategy.to_string(),
            count(row.messages),
            Unit::Plain.format(row.calls_per_message),
            Unit::Nanoseconds.format(row.cpu_ns.median),
            percent(row.cpu_ns.spread()),
            format!("{}/s", Unit::Bytes.format(row.bytes_per_second.median)),
        ]);
    }
    table
}

/// The whole report. `lead` may say what was found.
pub fn report(outcome: &Outcome, lead: impl Into<String>, origin: Origin) -> Report {
    let mut report = Report::new("BGP schedulings compared", lead, origin);
    for part in Part::ALL {
        let Some(table) = table_of(outcome, part) else { continue };
        report.heading(heading(part));
        report.paragraph(explanation(part));
        for (svg, caption) in plots(outcome, part) {
            report.plot(svg, caption);
        }
        report.table(table);
    }
    report.heading("How to read this");
    report.notes(
        [
            "Every cell was run once to warm up and then in rounds, each with all cells in an order of its own, so \
             that a disturbance touches all cells alike. Two cells whose ranges overlap are not told apart.",
            "Each run starts a daemon of its own. Time runs until the monitor, a neighbor that only listens, holds \
             exactly the expected best route for every prefix: a scheduling that gave another answer would have no \
             number here.",
            "Neighbors connect over loopback, each from an address of its own. Only the monitor is announced to, as \
             in the thesis, which switched advertisements off.",
            "CPU is the daemon's processor time over all threads, as the kernel counts it: a scheduling can be faster \
             and cost more.",
        ]
        .into_iter()
        .map(str::to_owned)
        .chain(outcome.left_out.iter().map(|what| format!("Not measured: {what}"))),
    );
    report
}

fn heading(part: Part) -> &'static str {
    match part {
        Part::SpeedUp => "Speed-up by scheduling and threads",
        Part::Functions => "Time by function",
        Part::Mixes => "Traffic mixes",
        Part::Ways => "Ways of sending",
        Part::Blocks => "Along a long trace",
        Part::Wu => "Eight loads",
        Part::Receive => "Receiving",
    }
}

fn explanation(part: Part) -> &'static str {
    match part {
        Part::SpeedUp => {
            "The daemon is stopped once sessions are up, the load is written until the kernel's buffers are full, and \
             the clock starts when the daemon may go on: the sender's work is done before, so that the daemon has the \
             cores to itself. Compare with the thesis's figures 4.3 and 4.9."
        }
        Part::Functions => {
            "What one UPDATE costs where, as the daemon counts it itself; counting costs a little, so these runs are \
             not those of the other tables. Compare with table 4.2, whose unit is another: proportions can be compared, \
             cycles cannot. The thesis's daemon read each header and each payload by itself. This one reads many \
             messages at once: header read and payload read are that one read's time, shared out by bytes, and have one \
             speed-up. What two reads for each message cost stands under receiving. Framing is too short to be timed message by \
             message: header parse is the time to frame the same messages once more, all together, and is taken \
             off payload parse, which is all else that a session does with them: decoding, policy, interning. \
             Housekeeping is what a session's state is looked after for, before and after it reads, besides timers and \
             new connections. Export and writing, to the monitor only, have no line in the thesis."
        }
        Part::Mixes => {
            "How many neighbors send at a time: all of them in turns of one message (best), all in a realistic order \
             (mix1), four, two, one (worst). Compare with table 4.3 and figure 4.7."
        }
        Part::Ways => {
            "The same load in file order, in turns of N messages, and with a sending thread for each neighbor \
             (section 4.1.2)."
        }
        Part::Blocks => "Whether UPDATEs cost more when the table has grown. Compare with figure 4.8.",
        Part::Wu => {
            "Small: one prefix per UPDATE; large: 500. Longer paths change no best route, shorter ones change all. \
             Wu, Liao, Wolf, Gao: Benchmarking BGP Routers, IISWC 2007."
        }
        Part::Receive => {
            "The thesis asks for hardware that brings messages to the processor (chapter 5), since reading them takes \
             a quarter of its time. Here is what software does about it. Nothing but framing is done with what is \
             received, and time is the receiving thread's own."
        }
    }
}

/// Schedulings in the order they were first run; the place of one is its color in every plot.
fn schedulings(outcome: &Outcome) -> Vec<&str> {
    distinct(outcome.cells.iter().map(|cell| cell.cell.scheduling.as_str()))
}

fn plots(outcome: &Outcome, part: Part) -> Vec<(String, String)> {
    let range = "Error bars: fastest and slowest run.";
    match part {
        Part::SpeedUp => {
            vec![(speed_up(outcome).svg(), format!("Serial's median time over each cell's. {range}"))]
        }
        Part::Functions => vec![(
            by_function(outcome).svg(),
            "Time per UPDATE in each function, threads added up.".to_owned(),
        )],
        Part::Mixes | Part::Ways | Part::Wu => {
            vec![(by_load(outcome, part).svg(), format!("Time until converged, median. {range}"))]
        }
        Part::Blocks => vec![(
            along(outcome).svg(),
            "Time of each block, mean over sixteen neighboring ones, median of the runs.".to_owned(),
        )],
        Part::Receive => vec![(
            by_strategy(outcome).svg(),
            "Processor time of the receiving thread per message. Error bars: smallest and largest run."
                .to_owned(),
        )],
    }
}

fn speed_up(outcome: &Outcome) -> LineChart {
    let serial = outcome.of(Part::SpeedUp).find(|c| c.cell.scheduling == SERIAL);
    let mut series = Vec::new();
    for (color, scheduling) in schedulings(outcome).into_iter().enumerate() {
        let of = outcome.of(Part::SpeedUp).filter(|c| c.cell.scheduling == scheduling);
        let points = of.filter_map(|c| {
            let serial = serial?.elapsed_s.median;
            let range = Some((serial / c.elapsed_s.max, serial / c.elapsed_s.min));
            Some(Point { x: c.cell.threads as f64, y: serial / c.elapsed_s.median, range })
        });
        series.push(Series::measured(scheduling, color, points));
    }
    series.push(Series::ideal(&series));
    LineChart {
        title: "Speed-up by threads".to_owned(),
        x: Axis::at_data("threads", Unit::Plain, Scale::Linear),
        y: Axis::new("times serial", Unit::Plain, Scale::Linear),
        series,
    }
}

fn by_load(outcome: &Outcome, part: Part) -> BarChart {
    let names = schedulings(outcome);
    let loads = distinct(outcome.of(part).map(|cell| cell.cell.load.as_str()));
    let groups = loads.into_iter().map(|load| BarGroup {
        label: load.to_owned(),
        bars: outcome
            .of(part)
            .filter(|c| c.cell.load == load)
            .map(|c| Bar {
                series: names.iter().position(|n| *n == c.cell.scheduling).unwrap_or(0),
                value: c.elapsed_s.median * 1e9,
                range: Some((c.elapsed_s.min * 1e9, c.elapsed_s.max * 1e9)),
                mark: None,
            })
            .collect(),
    });
    let series = names.iter().map(|n| (*n).to_owned()).collect();
    let axis = Axis::new("time until converged", Unit::Nanoseconds, Scale::Linear);
    BarChart::new(heading(part), axis, series, groups.collect())
}

fn by_function(outcome: &Outcome) -> BarChart {
    let cells: Vec<&CellResult> = outcome.of(Part::Functions).collect();
    let names = schedulings(outcome);
    let groups = function_names(&cells).into_iter().map(|(key, name)| BarGroup {
        label: name.to_owned(),
        bars: cells
            .iter()
            .filter_map(|c| {
                let ns = c.functions_ns.get(key)?;
                let series = names.iter().position(|n| *n == c.cell.scheduling).unwrap_or(0);
                Some(Bar::of(series, ns))
            })
            .collect(),
    });
    let series = names.iter().map(|n| (*n).to_owned()).collect();
    let axis = Axis::new("time per UPDATE", Unit::Nanoseconds, Scale::Linear);
    BarChart::new("Time per UPDATE by function", axis, series, groups.collect())
}

/// Blocks that one point of the plot stands for: single ones come in lumps.
const SMOOTHED: usize = 16;

fn along(outcome: &Outcome) -> LineChart {
    let names = schedulings(outcome);
    let series = outcome.of(Part::Blocks).map(|cell| Series {
        name: format!("{} ({})", cell.cell.scheduling, cell.cell.threads),
        kind: SeriesKind::Measured(names.iter().position(|n| *n == cell.cell.scheduling).unwrap_or(0)),
        points: cell
            .blocks_s
            .chunks(SMOOTHED)
            .enumerate()
            .map(|(at, part)| Point {
                x: ((at * SMOOTHED + part.len() / 2) * outcome.block_updates) as f64,
                y: part.iter().sum::<f64>() / part.len() as f64 * 1e9,
                range: None,
            })
            .collect(),
    });
    LineChart {
        title: format!("Time of {} UPDATEs along the trace", outcome.block_updates),
        x: Axis::new("UPDATEs so far", Unit::Count, Scale::Linear),
        y: Axis::new("time of a block", Unit::Nanoseconds, Scale::Linear),
        series: series.collect(),
    }
}

fn by_strategy(outcome: &Outcome) -> BarChart {
    let loads = distinct(outcome.receive.iter().map(|row| row.load.as_str()));
    let names = distinct(outcome.receive.iter().map(|row| row.strategy.to_string()));
    let groups: Vec<BarGroup> = loads
        .into_iter()
        .map(|load| BarGroup {
            label: load.to_owned(),
            bars: outcome
                .receive
                .iter()
                .filter(|row| row.load == load)
                .map(|row| {
                    let series = names.iter().position(|n| *n == row.strategy.to_string()).unwrap_or(0);
                    Bar::of(series, &row.cpu_ns)
                })
                .collect(),
        })
        .collect();
    let axis = Axis::new("CPU per message", Unit::Nanoseconds, Scale::Linear);
    BarChart::new("Receiving a message", axis, names, groups)
}
