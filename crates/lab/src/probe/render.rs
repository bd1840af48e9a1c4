//! The experiment on the probe as tables, charts and a report.

use super::shape::{Configuration, PUBLISHED_IN};
use super::{CellResult, Input, Outcome, Part, Subject};
use crate::figures::{or_dash, range, times};
use crate::plot::{Axis, Bar, BarChart, LineChart, Point, Scale, Series};
use crate::report::{Origin, Report, filled};
use thalweg_text::Table;
use thalweg_text::units::{Unit, count};

fn mpps(value: f64) -> String {
    format!("{:.2}", value / 1e6)
}

fn ratio(value: Option<f64>) -> String {
    or_dash(value.map(times))
}

fn mb(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

fn of(outcome: &Outcome, part: Part) -> impl Iterator<Item = &CellResult> {
    outcome.cells.iter().filter(move |cell| cell.part == part)
}

/// The result for the same configuration and traffic with the other input.
fn from_file<'a>(outcome: &'a Outcome, cell: &CellResult) -> Option<&'a CellResult> {
    of(outcome, cell.part).find(|other| {
        other.from == Input::File
            && other.configuration == cell.configuration
            && other.traffic == cell.traffic
    })
}

/// All tables that have rows.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    filled([
        configurations(outcome),
        sflow(outcome),
        grain(outcome),
        traffic(outcome),
        flows(outcome),
        rivals(outcome),
    ])
}

fn configurations(outcome: &Outcome) -> Table {
    let usual = of(outcome, Part::Table).next().map_or("", |cell| &cell.traffic);
    let caption = format!(
        "Configurations, {usual}, median of {} rounds. file: with IPFIX to a collector. ffProbe: published, other hardware",
        outcome.runs
    );
    let file = |cell| from_file(outcome, cell);
    Table::of(caption, of(outcome, Part::Table).filter(|cell| cell.from == Input::Memory))
        .words("configuration", |cell| cell.configuration.clone())
        .number("threads", |cell| cell.threads.to_string())
        .number("Mpps", |cell| mpps(cell.packets_per_second.median))
        .number("range", |cell| range(&cell.packets_per_second, mpps))
        .number("x serial", |cell| ratio(cell.speed_up))
        .number("file", |cell| or_dash(file(cell).map(|file| mpps(file.packets_per_second.median))))
        .number("x serial", |cell| ratio(file(cell).and_then(|file| file.speed_up)))
        .number("MB", |cell| or_dash(file(cell).map(|file| mb(file.rss_peak_bytes))))
        .number("ffProbe", |cell| or_dash(cell.published.map(|published| times(published.mpps))))
        .number("x seq", |cell| ratio(cell.published_speed_up))
        .number("MB", |cell| or_dash(cell.published.map(|published| format!("{:.0}", published.memory_mb))))
        .table()
}

/// The configurations that sample, each with the one that it is compared with.
fn sflow(outcome: &Outcome) -> Table {
    let sampling = || of(outcome, Part::Table).filter(|cell| cell.samples.is_some());
    let plain = |cell: &CellResult| {
        let name = format!("{}@sflow:", cell.configuration);
        sampling().any(|other| other.configuration.starts_with(&name))
    };
    let cells = of(outcome, Part::Table)
        .filter(|cell| cell.from == Input::Memory && (cell.samples.is_some() || plain(cell)));
    // The fastest round has the shortest time.
    let ns = |per_cpu_second: f64| format!("{:.1}", 1e9 / per_cpu_second);
    let caption = format!(
        "Samples for sFlow, to a collector: processor time of all threads, median of {} rounds",
        outcome.runs
    );
    Table::of(caption, cells)
        .words("configuration", |cell| cell.configuration.clone())
        .number("samples", |cell| or_dash(cell.samples.map(count)))
        .number("CPU ns a packet", |cell| ns(cell.packets_per_cpu_second.median))
        .number("range", |cell| {
            let per_second = &cell.packets_per_cpu_second;
            format!("{}-{}", ns(per_second.max), ns(per_second.min))
        })
        .number("more", |cell| or_dash(cell.sflow_cpu_ns.map(|more| format!("{more:+.1}"))))
        .table()
}

fn grain(outcome: &Outcome) -> Table {
    let over_none = |cell: &CellResult| {
        let is_base = |other: &&CellResult| other.configuration == cell.configuration && other.work == "none";
        let base = of(outcome, Part::Grain).find(is_base)?.speed_up?;
        Some(cell.speed_up? / base)
    };
    let caption = format!(
        "Synthetic work for each packet, from memory: median of {} rounds. x none: speed-up over that without work",
        outcome.runs
    );
    Table::of(caption, of(outcome, Part::Grain))
        .words("work", |cell| cell.work.clone())
        .words("configuration", |cell| cell.configuration.clone())
        .number("threads", |cell| cell.threads.to_string())
        .number("Mpps", |cell| mpps(cell.packets_per_second.median))
        .number("range", |cell| range(&cell.packets_per_second, mpps))
        .number("x serial", |cell| ratio(cell.speed_up))
        .number("x none", |cell| ratio(over_none(cell)))
        .table()
}

fn traffic(outcome: &Outcome) -> Table {
    let caption = format!(
        "Kinds of traffic, median of {} rounds. normal: the first kind. MB: from memory, with the packets",
        outcome.runs
    );
    Table::of(caption, of(outcome, Part::Traffic))
        .words("traffic", |cell| cell.traffic.clone())
        .words("configuration", |cell| cell.configuration.clone())
        .words("from", |cell| cell.from.to_string())
        .words("records to", |cell| cell.to.to_string())
        .number("Mpps", |cell| mpps(cell.packets_per_second.median))
        .number("range", |cell| range(&cell.packets_per_second, mpps))
        .number("x normal", |cell| ratio(cell.normal_ratio))
        .number("records", |cell| count(cell.records))
        .number("lost", |cell| count(cell.lost))
        .number("evicted", |cell| count(cell.evicted))
        .number("MB", |cell| mb(cell.rss_peak_bytes))
        .table()
}

fn flows(outcome: &Outcome) -> Table {
    let configuration = of(outcome, Part::Flows).next().map_or("", |cell| &cell.configuration);
    Table::of(
        format!("Live flows, {configuration}, evenly spread, from memory: median of {} rounds", outcome.runs),
        of(outcome, Part::Flows),
    )
    .number("flows", |cell| count(cell.flows))
    .number("Mpps", |cell| mpps(cell.packets_per_second.median))
    .number("range", |cell| range(&cell.packets_per_second, mpps))
    .number("ns a packet", |cell| format!("{:.1}", 1e9 / cell.packets_per_second.median))
    .table()
}

fn rivals(outcome: &Outcome) -> Table {
    let file = of(outcome, Part::Rivals).next();
    let what = file.map_or_else(String::new, |cell| {
        let [packets, bytes, flows] = [cell.packets, cell.bytes, cell.flows].map(count);
        format!("{packets} packets, {bytes} bytes, {flows} flows")
    });
    Table::of(
        format!("Probes on one file ({what}), median of {} rounds", outcome.runs),
        of(outcome, Part::Rivals),
    )
    .words("probe", name)
    .words("records to", |cell| cell.to.to_string())
    .number("Mpps", |cell| mpps(cell.packets_per_second.median))
    .number("per CPU s", |cell| mpps(cell.packets_per_cpu_second.median))
    .number("range", |cell| range(&cell.packets_per_cpu_second, mpps))
    .number("CPU s", |cell| times(cell.packets as f64 / cell.packets_per_cpu_second.median))
    .number("ours", |cell| ratio(cell.ours_ratio))
    .number("MB", |cell| mb(cell.rss_peak_bytes))
    .number("x ours", |cell| ratio(cell.memory_ratio))
    .words("totals", totals)
    .table()
}

fn name(cell: &CellResult) -> String {
    match cell.subject {
        Subject::Thalweg => format!("{} {}", cell.subject, cell.configuration),
        other => other.to_string(),
    }
}

/// The difference between the subject's totals and the file's.
fn totals(cell: &CellResult) -> String {
    if cell.equal {
        return "equal".to_owned();
    }
    let difference = &cell.difference;
    let parts = [("packets", difference.packets), ("bytes", difference.bytes), ("flows", difference.flows)];
    let said = parts.iter().filter(|(_, by)| *by != 0).map(|(what, by)| format!("{by:+} {what}"));
    said.collect::<Vec<_>>().join(", ")
}

/// The findings in a few sentences.
pub fn lead(outcome: &Outcome) -> String {
    let mut text = String::new();
    let serial = Configuration::SERIAL.to_string();
    let in_memory = |cell: &&CellResult| cell.from == Input::Memory;
    if let Some(cell) = of(outcome, Part::Table).filter(in_memory).find(|cell| cell.configuration == serial) {
        text += &format!(
            "One thread meters {} million packets a second from memory",
            mpps(cell.packets_per_second.median)
        );
        let best = of(outcome, Part::Table).filter(in_memory);
        let best = best.max_by(|a, b| a.packets_per_second.median.total_cmp(&b.packets_per_second.median));
        text += &best.filter(|best| best.configuration != serial).map_or(". ".to_owned(), |best| {
            format!(", {} {}. ", best.configuration, mpps(best.packets_per_second.median))
        });
    }
    let ours: Vec<String> = of(outcome, Part::Rivals)
        .filter_map(|cell| Some(format!("{:.1} times those of {}", cell.ours_ratio?, cell.subject)))
        .collect();
    if !ours.is_empty() {
        text += &format!("Packets per second of processor time: {}. ", ours.join(", "));
    }
    text += &counted(outcome);
    text += &same(outcome);
    if !outcome.left_out.is_empty() {
        text += &format!("Left out: {}.", outcome.left_out.join("; "));
    }
    text.trim_end().to_owned()
}

/// Whether this program's totals are those of the files.
fn counted(outcome: &Outcome) -> String {
    let ours = || outcome.cells.iter().filter(|cell| cell.subject == Subject::Thalweg);
    let cells = ours().count();
    let broken: Vec<String> = ours()
        .filter(|cell| !cell.conserved || !(cell.equal || cell.lost > 0))
        .map(|cell| format!("{} {} ({})", cell.configuration, cell.traffic, totals(cell)))
        .collect();
    let losing = ours().filter(|cell| cell.lost > 0).count();
    match (cells, broken.as_slice()) {
        (0, _) => String::new(),
        (_, []) if losing == 0 => {
            format!("Packets, bytes and flows of all {cells} cells are exactly those of the files. ")
        }
        (_, []) => format!(
            "The counters of all {cells} cells add up; in {losing} of them datagrams were lost on their way to the collector, and \
             counted. "
        ),
        (_, broken) => format!("NOT EQUAL to the file: {}. ", broken.join("; ")),
    }
}

/// Whether all configurations made the same records.
fn same(outcome: &Outcome) -> String {
    let cells: usize = outcome.same_records.iter().map(|same| same.cells).sum();
    let differing: Vec<&str> = outcome
        .same_records
        .iter()
        .filter(|same| same.different > 1)
        .map(|same| same.traffic.as_str())
        .collect();
    match (cells, differing.as_slice()) {
        (0, _) => String::new(),
        (_, []) => {
            format!("All {cells} cells whose records came to the collector whole gave the same records. ")
        }
        (_, differing) => format!("Records DIFFER between configurations: {}. ", differing.join(", ")),
    }
}

/// Bars by configuration, from memory and from a file; ffProbe's figure is the mark.
fn speed_chart(outcome: &Outcome) -> BarChart {
    let series = ["from memory", "from a file, IPFIX to a collector"].map(str::to_owned);
    let cells = of(outcome, Part::Table).filter(|cell| cell.from == Input::Memory);
    let bars = cells.flat_map(|cell| {
        let published = cell.published.map(|published| published.mpps * 1e6);
        let memory = Bar::of(&cell.packets_per_second).marked(published);
        let file = from_file(outcome, cell).map(|file| Bar::of(&file.packets_per_second));
        let bars = series.iter().cloned().zip(std::iter::once(memory).chain(file));
        bars.map(|(name, bar)| (cell.configuration.clone(), name, bar)).collect::<Vec<_>>()
    });
    let axis = Axis::new("packets per second", Unit::Count, Scale::Linear);
    let chart = BarChart::of("Packets per second by configuration", axis, series.to_vec(), bars);
    chart.marked("ffProbe, 2011, other hardware")
}

fn memory_chart(outcome: &Outcome) -> BarChart {
    let cells = of(outcome, Part::Table).filter(|cell| cell.from == Input::File);
    let bars = cells.map(|cell| {
        let published = cell.published.map(|published| published.memory_mb * 1e6);
        let name = "from a file, IPFIX to a collector".to_owned();
        (cell.configuration.clone(), name, Bar::at(cell.rss_peak_bytes as f64).marked(published))
    });
    let axis = Axis::new("largest resident memory", Unit::Bytes, Scale::Linear);
    BarChart::of("Memory by configuration", axis, Vec::new(), bars).marked("ffProbe, 2011, other hardware")
}

/// Bars by kind of traffic and way, with a color for each configuration.
fn traffic_chart(outcome: &Outcome) -> BarChart {
    let bars = of(outcome, Part::Traffic).map(|cell| {
        let way = format!("{}, {} to {}", cell.traffic, cell.from, cell.to);
        (way, cell.configuration.clone(), Bar::of(&cell.packets_per_second))
    });
    let axis = Axis::new("packets per second", Unit::Count, Scale::Linear);
    BarChart::of("Packets per second by kind of traffic", axis, Vec::new(), bars)
}

fn flows_chart(outcome: &Outcome) -> LineChart {
    let points =
        of(outcome, Part::Flows).map(|cell| Point::of(cell.flows as f64, &cell.packets_per_second, 1.0));
    let name = of(outcome, Part::Flows).next().map_or_else(String::new, |cell| cell.configuration.clone());
    LineChart {
        title: "Packets per second by live flows".to_owned(),
        x: Axis::at_data("live flows, evenly spread", Unit::Count, Scale::Log),
        y: Axis::new("packets per second", Unit::Count, Scale::Linear),
        series: vec![Series::measured(name, 0, points)],
    }
}

fn rivals_chart(outcome: &Outcome) -> BarChart {
    let series = ["this program", "others"].map(str::to_owned);
    let bars = of(outcome, Part::Rivals).map(|cell| {
        let whose = &series[usize::from(cell.subject != Subject::Thalweg)];
        let bar = Bar::of(&cell.packets_per_cpu_second);
        (format!("{}, to {}", name(cell), cell.to), whose.clone(), bar)
    });
    let axis = Axis::new("packets per second of processor time", Unit::Count, Scale::Linear);
    let title = "Packets per second of processor time, one file";
    BarChart::of(title, axis, series.to_vec(), bars)
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("The flow probe", lead(outcome), origin);
    let has = |part| of(outcome, part).next().is_some();
    if has(Part::Table) {
        report.plot(
            speed_chart(outcome).svg(),
            "Diamonds are ffProbe's published figures. They are of other hardware and of live capture: compare how they grow from \
             one configuration to the next.",
        );
        report.plot(memory_chart(outcome).svg(), "Of a process that reads the file, meters, and exports.");
    }
    if has(Part::Traffic) {
        report.plot(traffic_chart(outcome).svg(), "Ranges: the slowest and the fastest round.");
    }
    if has(Part::Flows) {
        report.plot(flows_chart(outcome).svg(), "One thread's caches hold fewer flows than there are.");
    }
    if has(Part::Rivals) {
        report.plot(rivals_chart(outcome).svg(), "Whole processes, reading and writing included.");
    }
    report.tables(tables(outcome));
    report.left_out(&outcome.left_out);
    report.heading("How to read this");
    report.notes(notes());
    report
}

fn notes() -> [String; 5] {
    [
        "Threads are those that parse or count, as in ffProbe's table. A thread that reads the file, one that deals its packets out to \
         several pipelines, and one that delivers records are beside them: with few cores they compete."
            .to_owned(),
        "From memory: from the first packet to the last record, which includes that all flows are reported at the end. From a file: the \
         whole process. Memory from memory holds the packets too."
            .to_owned(),
        "Totals are those of the receiver of the records: the collector here, the text file, nfdump, thalweg flows; where records \
         go nowhere, the probe's own."
            .to_owned(),
        "Probes on one file: whole processes. \"Ours\" is this program's packets per second of processor time over that probe's; its \
         memory is given as a multiple of ours; both with records to the same kind of place. Rivals were told to have room for all \
         flows and look at every packet. pmacctd's time on the clock is without the two seconds that it sleeps first. Memory of several \
         processes is summed; pages they share count in each."
            .to_owned(),
        format!("ffProbe's figures: {PUBLISHED_IN}."),
    ]
}
