//! The experiment's tables, with the thesis's numbers beside ours if there are any.

use super::super::worth::FOR_NOTHING;
use super::super::{CellResult, Outcome, Part, SERIAL, Shares, Worth};
use crate::bgp::functions::{HEADER_READ_SHARE, PAYLOAD_READ_SHARE};
use crate::bgp::locks::Locked;
use crate::bgp::schedulings::{OWN_POLLER, PER_PEER};
use crate::claims;
use crate::figures;
use crate::figures::{ns, or_dash, percent, seconds};
use crate::stats::distinct;
use std::collections::BTreeMap;
use thalweg_text::units::{Unit, count};
use thalweg_text::{Align, Table};

/// The functions of the thesis's table 4.2, in its order: the daemon's name for each, the name shown here, and
/// the thesis's line. Reading appears twice, as measured and as a share. Other functions of a daemon follow by
/// name.
const FUNCTIONS: [(&str, &str, &str); 8] = [
    ("table_update", "table update", "table_update"),
    ("payload_parse", "payload parse, with policy", "payload_parse"),
    ("header_parse", "header parse", "header_parse"),
    ("payload_read", "payload read", "payload_read"),
    (PAYLOAD_READ_SHARE, "payload read (share)", "payload_read"),
    ("header_read", "header read", "header_read"),
    (HEADER_READ_SHARE, "header read (share)", "header_read"),
    ("housekeeping", "housekeeping", "housekeeping"),
];

/// The tables of a part; none if it was not measured.
pub(super) fn tables(outcome: &Outcome, part: Part) -> Vec<Table> {
    let cells: Vec<&CellResult> = outcome.of(part).collect();
    match part {
        Part::Receive if outcome.receive.is_empty() => Vec::new(),
        Part::Receive => std::iter::once(receive(outcome)).chain(worth(outcome)).collect(),
        Part::Caches if outcome.caches.is_empty() => Vec::new(),
        Part::Caches => vec![caches(outcome)],
        _ if cells.is_empty() => Vec::new(),
        Part::Functions => functions(outcome, &cells).into_iter().chain(shares(&cells)).collect(),
        Part::OneCore => overheads(outcome, &cells).into_iter().collect(),
        Part::Blocks => vec![blocks(outcome, &cells)],
        Part::SpeedUp => vec![speed_ups(outcome, &cells)],
        Part::Mixes => vec![mixes(outcome, &cells)],
        Part::Ways => vec![times(outcome, &cells, "Time by the client's way of sending", "way")],
        Part::Ablations => vec![ablations(outcome, &cells)],
        Part::Wu => vec![eight_loads(outcome, &cells)],
    }
}

fn caption(outcome: &Outcome, what: &str) -> String {
    format!("{what}; median of {} runs, spread: (largest - smallest) / median", outcome.runs)
}

fn speed_ups(outcome: &Outcome, cells: &[&CellResult]) -> Table {
    let thesis = claims::series("003/fig-4.3");
    let published = |cell: &CellResult| {
        let value = *thesis.get(&cell.cell.cores.to_string())?.first()?;
        let sign = if cell.cell.cores == 1 { '<' } else { '>' };
        (cell.cell.scheduling == PER_PEER).then(|| format!("{sign} {value:.1}"))
    };
    let what = "Speed-up over serial on one core, by cores and threads for each; threads as counted";
    Table::of(caption(outcome, what), cells.iter().copied())
        .words("load", |result| result.cell.load.clone())
        .words("scheduling", |result| result.cell.scheduling.clone())
        .number("cores", |result| result.cell.cores.to_string())
        .number("per core", |result| or_dash(result.cell.threads_per_core.map(|threads| threads.to_string())))
        .number("threads", |result| result.threads.to_string())
        .number("time", time)
        .number("spread", spread)
        .number("speed-up", speed_up)
        .number("thesis", |result| or_dash(published(result)))
        .number("CPU", cpu)
        .number("cores in use", |result| format!("{:.2}", result.cpu_s.median / result.elapsed_s.median))
        .number("memory", memory)
        .optional(&["memory", "spread", "per core"])
        .table()
}

fn time(result: &CellResult) -> String {
    seconds(result.elapsed_s.median)
}

fn spread(result: &CellResult) -> String {
    percent(result.elapsed_s.spread())
}

fn speed_up(result: &CellResult) -> String {
    or_dash(result.speed_up.map(figures::times))
}

fn cpu(result: &CellResult) -> String {
    seconds(result.cpu_s.median)
}

fn memory(result: &CellResult) -> String {
    or_dash((result.rss_peak_bytes > 0).then(|| Unit::Bytes.format(result.rss_peak_bytes as f64)))
}

fn times(outcome: &Outcome, cells: &[&CellResult], what: &str, varied: &str) -> Table {
    Table::of(caption(outcome, what), cells.iter().copied())
        .words(varied, |result| result.cell.load.clone())
        .words("scheduling", |result| result.cell.scheduling.clone())
        .number("threads", |result| result.threads.to_string())
        .number("time", time)
        .number("spread", spread)
        .number("UPDATEs/s", |result| Unit::Count.format(result.updates_per_second()))
        .number("speed-up", speed_up)
        .number("CPU", cpu)
        .number("memory", memory)
        .table()
}

fn scheduled<'a>(cells: &'a [&'a CellResult], scheduling: &'a str) -> impl Iterator<Item = &'a CellResult> {
    cells.iter().copied().filter(move |cell| cell.cell.scheduling == scheduling)
}

fn mixes(outcome: &Outcome, cells: &[&CellResult]) -> Table {
    let what = "Time by traffic mix, over that of the best one; serial, which one thread is, says what the feed adds";
    let schedulings = distinct(cells.iter().map(|cell| &cell.cell.scheduling));
    let over_best = |result: &CellResult| {
        let best = scheduled(cells, &result.cell.scheduling).find(|cell| cell.cell.load == "best")?;
        Some(format!("{:.2}", result.elapsed_s.median / best.elapsed_s.median))
    };
    Table::of(
        caption(outcome, what),
        schedulings.into_iter().flat_map(|scheduling| scheduled(cells, scheduling)),
    )
    .words("scheduling", |result| result.cell.scheduling.clone())
    .number("threads", |result| result.threads.to_string())
    .words("mix", |result| result.cell.load.clone())
    .number("time", time)
    .number("spread", spread)
    .number("over best", |result| or_dash(over_best(result)))
    .number("CPU", cpu)
    .number("UPDATEs/s", |result| Unit::Count.format(result.updates_per_second()))
    .table()
}

fn eight_loads(outcome: &Outcome, cells: &[&CellResult]) -> Table {
    let what = "The eight loads of Wu et al. in prefixes per second, which they call transactions; theirs, of 2007, beside";
    let published = claims::series("003/table-2.1");
    let theirs = |result: &CellResult, machine: usize| {
        let number = result.cell.load.split(':').next().unwrap_or_default();
        or_dash(published.get(number).and_then(|rates| rates.get(machine)).map(|rate| format!("{rate:.1}")))
    };
    let table = Table::of(caption(outcome, what), cells.iter().copied())
        .words("load", |result| result.cell.load.clone())
        .words("scheduling", |result| result.cell.scheduling.clone())
        .number("threads", |result| result.threads.to_string())
        .number("time", time)
        .number("spread", spread)
        .number("prefixes/s", |result| Unit::Count.format(result.prefixes_per_second));
    let machines = ["Pentium III", "Xeon", "IXP2400", "Cisco 3620"].into_iter().enumerate();
    machines
        .fold(table, |table, (place, name)| table.number(name, |result| theirs(result, place)))
        .number("memory", memory)
        .optional(&["memory", "spread"])
        .table()
}

/// Names of all counted functions: those of the thesis first.
pub(super) fn function_names<'a>(cells: &[&'a CellResult]) -> Vec<(&'a str, &'a str)> {
    let mut names: Vec<(&str, &str)> = FUNCTIONS
        .iter()
        .filter(|(key, ..)| cells.iter().any(|c| c.functions_ns.contains_key(*key)))
        .map(|(key, name, _)| (*key, *name))
        .collect();
    for name in cells.iter().flat_map(|cell| cell.functions_ns.keys()) {
        if !names.iter().any(|(known, _)| known == name) {
            names.push((name, name));
        }
    }
    names
}

/// The thesis's number at this place of its table 4.2, for a daemon's function.
fn thesis(key: &str, place: usize) -> Option<f64> {
    let (.., line) = FUNCTIONS.iter().find(|(known, ..)| *known == key)?;
    claims::series("003/table-4.2").get(*line)?.get(place).copied()
}

/// The columns of a table by function, with two columns for each parallel scheduling.
fn function_table(
    outcome: &Outcome,
    what: &str,
    others: &[&&CellResult],
    second: &str,
    last: &[&str],
) -> Table {
    let titles: Vec<(String, String)> = others
        .iter()
        .map(|c| (format!("{} ({})", c.cell.scheduling, c.threads), second.to_owned()))
        .collect();
    let mut columns = vec![("function", Align::Left), ("calls", Align::Right), (SERIAL, Align::Right)];
    for (title, second) in &titles {
        columns.push((title, Align::Right));
        columns.push((second, Align::Right));
    }
    columns.extend(last.iter().map(|title| (*title, Align::Right)));
    let what = format!(
        "{what}; calls per UPDATE, serial; share: one read brings headers and payloads of many messages, its time is \
         shared out by bytes; median of {} runs",
        outcome.runs
    );
    Table::new(what, columns)
}

fn function_rows(
    table: &mut Table,
    cells: &[&CellResult],
    serial: &CellResult,
    others: &[&&CellResult],
    second: impl Fn(&CellResult, &str) -> Option<String>,
    last: impl Fn(&str) -> Vec<Option<String>>,
) {
    for (key, name) in function_names(cells) {
        let mut row = vec![
            name.to_owned(),
            or_dash(serial.function_calls.get(key).map(|n| Unit::Plain.format(*n))),
            or_dash(serial.functions_ns.get(key).map(|time| ns(time.median))),
        ];
        for other in others {
            let ns = other.functions_ns.get(key).map(|s| ns(s.median));
            row.push(or_dash(ns));
            row.push(or_dash(second(other, key)));
        }
        row.extend(last(key).into_iter().map(or_dash));
        table.push(row);
    }
}

fn functions(outcome: &Outcome, cells: &[&CellResult]) -> Option<Table> {
    let serial = cells.iter().find(|c| c.cell.scheduling == SERIAL)?;
    let others: Vec<&&CellResult> = cells.iter().filter(|c| c.cell.scheduling != SERIAL).collect();
    let what = "Processor time per UPDATE by function, threads added up; speed-up: of the time divided by the threads \
                that can work at a time; thesis: cycles, and speed-up, of 12 threads on 16 cores";
    let last = ["cycles (thesis)", "PBTS (thesis)", "speed-up (thesis)"];
    let mut table = function_table(outcome, what, &others, "speed-up", &last);
    function_rows(
        &mut table,
        cells,
        serial,
        &others,
        |other, key| other.function_speed_ups.get(key).copied().map(figures::times),
        |key| (0..3).map(|place| thesis(key, place).map(|value| format!("{value:.1}"))).collect(),
    );
    Some(table)
}

/// The cost of a parallel scheduling on one core, relative to serial.
fn overheads(outcome: &Outcome, cells: &[&CellResult]) -> Option<Table> {
    let serial = cells.iter().find(|c| c.cell.scheduling == SERIAL)?;
    let others: Vec<&&CellResult> = cells.iter().filter(|c| c.cell.scheduling != SERIAL).collect();
    let what = "Processor time per UPDATE by function on one core, threads added up; over serial: what threads, their \
                locks and their turns add";
    let mut table = function_table(outcome, what, &others, "over serial", &[]);
    let over = |other: &CellResult, key: &str| {
        let serial = serial.functions_ns.get(key)?.median;
        let other = other.functions_ns.get(key)?.median;
        (serial > 0.0).then(|| format!("{:+.0} %", (other / serial - 1.0) * 100.0))
    };
    function_rows(&mut table, cells, serial, &others, over, |_| Vec::new());
    Some(table)
}

/// Figure 4.4: shares of serial's time, as measured here, as in the figure, and as computed from table 4.2's
/// cycles.
fn shares(cells: &[&CellResult]) -> Option<Table> {
    let serial = cells.iter().find(|c| c.cell.scheduling == SERIAL)?.shares?;
    let cycles: BTreeMap<String, f64> = claims::series("003/table-4.2")
        .iter()
        .filter_map(|(name, values)| Some((name.clone(), *values.first()?)))
        .collect();
    let cycles = Shares::of(&cycles)?;
    let figure = claims::series("003/fig-4.4");
    let rows = [
        ("parsing and table", "parse_and_table", serial.parse_and_table, cycles.parse_and_table),
        ("reading from TCP", "reads", serial.reads, cycles.reads),
        ("housekeeping", "housekeeping", serial.housekeeping, cycles.housekeeping),
    ];
    let published = |key| figure.get(key)?.first().map(|value| format!("{value:.0} %"));
    let caption = "Shares of serial's time on an UPDATE, as in the thesis's figure 4.4; its own table 4.2 adds up to others";
    let table = Table::of(caption, rows)
        .words("part", |(name, ..)| name.to_owned())
        .number("here", |(_, _, here, _)| percent(here))
        .number("figure 4.4", |(_, key, ..)| or_dash(published(key)))
        .number("table 4.2", |(.., of_cycles)| percent(of_cycles));
    Some(table.table())
}

fn blocks(outcome: &Outcome, cells: &[&CellResult]) -> Table {
    let what = format!(
        "Time of every {} UPDATEs along the trace; drift: mean of the last quarter of blocks over that of the first; \
         over 1x: mean over that with a quarter of the prefixes",
        outcome.block_updates
    );
    let base = |cell: &CellResult| {
        let is_base = |other: &&&CellResult| {
            other.cell.scheduling == cell.cell.scheduling && other.prefixes * 2 < cell.prefixes
        };
        cells.iter().find(is_base).and_then(|base| base.blocks.as_ref())
    };
    let rows = cells.iter().filter_map(|cell| Some((*cell, cell.blocks.as_ref()?)));
    Table::of(caption(outcome, &what), rows)
        .words("trace", |(cell, _)| cell.cell.load.clone())
        .words("scheduling", |(cell, _)| cell.cell.scheduling.clone())
        .number("threads", |(cell, _)| cell.threads.to_string())
        .number("blocks", |(_, blocks)| blocks.median_s.len().to_string())
        .number("mean", |(_, blocks)| seconds(blocks.mean_s))
        .number("largest", |(_, blocks)| seconds(blocks.largest_s))
        .number("drift", |(_, blocks)| or_dash(blocks.drift.map(|drift| format!("{drift:.2}"))))
        .number("over 1x", |(cell, blocks)| {
            or_dash(base(cell).map(|base| format!("{:.2}", blocks.mean_s / base.mean_s)))
        })
        .table()
}

fn receive(outcome: &Outcome) -> Table {
    Table::of(format!("Ways to receive messages from TCP; median of {} runs", outcome.runs), &outcome.receive)
        .words("UPDATEs", |row| row.load.clone())
        .words("way", |row| row.strategy.to_string())
        .number("messages", |row| count(row.messages))
        .number("calls/message", |row| Unit::Plain.format(row.calls_per_message))
        .number("CPU/message", |row| ns(row.cpu_ns.median))
        .number("spread", |row| percent(row.cpu_ns.spread()))
        .number("throughput", |row| format!("{}/s", Unit::Bytes.format(row.bytes_per_second.median)))
        .table()
}

/// Table 5.1, with the thesis's hardware assist.
fn worth(outcome: &Outcome) -> Option<Table> {
    let schedulings = distinct(outcome.worth.iter().map(|worth| worth.scheduling.as_str()));
    if schedulings.is_empty() {
        return None;
    }
    let mut columns = vec![("what is received how", Align::Left)];
    columns.extend(schedulings.iter().map(|name| (*name, Align::Right)));
    columns.extend([("thesis, PBTS", Align::Right), ("thesis, DTS", Align::Right)]);
    let what = "What a way to receive gains for the whole daemon's processor time, computed from the time by function and the \
                ways to receive; the thesis's hardware assist beside (table 5.1)";
    let mut table = Table::new(what, columns);
    let thesis = claims::series("003/table-5.1");
    for way in distinct(outcome.worth.iter().map(|worth| worth.way.as_str())) {
        let gain = |scheduling: &&str| {
            let is_it = |worth: &&Worth| worth.way == way && worth.scheduling == **scheduling;
            or_dash(outcome.worth.iter().find(is_it).map(|worth| format!("{:+.1} %", worth.gain * 100.0)))
        };
        let theirs = [0, 1].map(|place| {
            let gain = thesis.get("overall").and_then(|gains| gains.get(place));
            or_dash(gain.filter(|_| way == FOR_NOTHING).map(|gain| format!("{gain:.2} %")))
        });
        table.push(std::iter::once(way.to_owned()).chain(schedulings.iter().map(gain)).chain(theirs));
    }
    Some(table)
}

/// Section 3.3: the effect of PBTS's poller and locks.
fn ablations(outcome: &Outcome, cells: &[&CellResult]) -> Table {
    let base = |cell: &CellResult| if cell.updates_are_read() { OWN_POLLER } else { Locked::Shards.name() };
    let over = |result: &CellResult| {
        let base = cells.iter().find(|other| other.cell.load == base(result))?;
        Some(format!("{:.2}", result.elapsed_s.median / base.elapsed_s.median))
    };
    let what = "A thread per neighbor: the whole speaker by where it polls, and the table alone by where it has locks; over: \
                over that with a poller for each thread, and over the trie with a lock per shard";
    Table::of(caption(outcome, what), cells.iter().copied())
        .words("what", |result| result.cell.load.clone())
        .number("cores", |result| result.cell.cores.to_string())
        .number("threads", |result| result.threads.to_string())
        .number("time", time)
        .number("spread", spread)
        .number("over", |result| or_dash(over(result)))
        .number("CPU", cpu)
        .number("prefixes/s", |result| Unit::Count.format(result.prefixes_per_second))
        .table()
}

/// Figure 5.1: misses for each size of a core's cache.
fn caches(outcome: &Outcome) -> Table {
    let size = |bytes: u64| match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mebi => format!("{mebi} MiB"),
    };
    let what = "Misses per UPDATE by the size of each core's cache (data; LRU; other cores' stores make copies worthless)";
    let mut table = Table::of(what, &outcome.caches)
        .words("scheduling", |curve| curve.scheduling.clone())
        .number("cores", |curve| curve.cores.to_string())
        .number("accesses", |curve| Unit::Plain.format(curve.accesses_per_update))
        .number("touched", |curve| Unit::Bytes.format(curve.touched_bytes as f64));
    // Every other size; the plot has all.
    let sizes: Vec<u64> = outcome
        .caches
        .first()
        .into_iter()
        .flat_map(|curve| curve.points.iter().step_by(2).map(|p| p.bank_bytes))
        .collect();
    for bytes in sizes {
        table = table.number(&size(bytes), |curve| {
            let point = curve.points.iter().find(|point| point.bank_bytes == bytes);
            or_dash(point.map(|point| Unit::Plain.format(point.misses_per_update)))
        });
    }
    table
        .number("endless", |curve| Unit::Plain.format(curve.unavoidable_per_update))
        .number("settles at", |curve| or_dash(curve.settles_at_bytes.map(size)))
        .table()
}
