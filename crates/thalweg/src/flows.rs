//! `thalweg flows`: queries a dataset of flow records; prints tables, bars, CSV or JSON.

mod answerer;
mod lines;
mod plot;
mod writer;

use std::fmt::Write as _;
use std::io::Write;
use std::net::{IpAddr, ToSocketAddrs};

use serde_json::Value;
use thalweg_ports::live::wall_ns;
use thalweg_store::query::{Graph, Key, KeyValue, Metric, Query, Scanned, Series, Sums, Top};
use thalweg_store::{
    Filter, Recovery, Retention, Rolled, RollupSummary, Skipped, StoreError, Upkeep, Window, Writer,
    WriterOptions,
};
use thalweg_text::calendar::{SECOND_NS, format_time};
use thalweg_text::units::{Unit, count, counted, share};

use crate::cli::{
    FlowsAction, FlowsArgs, FlowsGraphArgs, FlowsListArgs, FlowsTopArgs, FlowsWhichArgs, Format, KeepArgs,
};
use crate::tables::{table, width};
use crate::{Failure, flows_import, print};
use answerer::{Answerer, Question};
use lines::Lines;
use writer::{follow, report_writing};

/// How far after the current time the window of `--last` ends.
const AHEAD_NS: u64 = 60 * SECOND_NS;
/// Characters of the longest bar, and of one on a narrow terminal.
const BAR: usize = 50;
const BAR_MIN: usize = 8;
/// Characters before a bar, and those of the mark behind one.
const BEFORE_BAR: usize = 40;
const INCOMPLETE: &str = " (incomplete step)";

pub(crate) fn run(args: &FlowsArgs, format: Format) -> Result<(), Failure> {
    match &args.action {
        FlowsAction::Top(top) => run_top(args, top, format),
        FlowsAction::List(list) => run_list(args, list, format),
        FlowsAction::Graph(graph) => run_graph(args, graph, format),
        FlowsAction::Stats => run_stats(args, format),
        FlowsAction::Import(_) | FlowsAction::Compact(_) if args.url.is_some() => {
            Err(Failure::Usage("--url only asks: `import` and `compact` need a folder".to_owned()))
        }
        FlowsAction::Import(import) => {
            writer::only_folders(args, "import")?;
            flows_import::run(args, import, format)
        }
        FlowsAction::Compact(compact) => run_compact(args, compact, format),
    }
}

fn failed(error: StoreError) -> Failure {
    match error {
        StoreError::Query(what) => Failure::Usage(what),
        other => Failure::Run(other.to_string()),
    }
}

fn query(which: &FlowsWhichArgs) -> Result<Query, Failure> {
    let text = which.filter.join(" ");
    let filter =
        Filter::parse_with(&text, &addresses).map_err(|error| Failure::Usage(error.shown_in(&text)))?;
    let window = match which.last {
        Some(span) => {
            let now = wall_ns();
            // Continuing flows have packets between now and the answer.
            Window { from_ns: now.saturating_sub(span), to_ns: now.saturating_add(AHEAD_NS) }
        }
        None => Window { from_ns: which.from.unwrap_or(0), to_ns: which.to.unwrap_or(u64::MAX) },
    };
    if window.from_ns >= window.to_ns {
        return Err(Failure::Usage("--from must be before --to".to_owned()));
    }
    let query = Query::new(window, filter);
    let threads = which.threads.map_or(query.threads, usize::from);
    Ok(Query { threads, raw: which.raw, ..query })
}

/// The addresses of a host, by the system's resolver.
fn addresses(name: &str) -> Vec<IpAddr> {
    // The port has no meaning.
    let found = (name, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
    let mut addresses: Vec<IpAddr> = found.unwrap_or_default();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn run_top(args: &FlowsArgs, top_args: &FlowsTopArgs, format: Format) -> Result<(), Failure> {
    let (keys, by, which) = (&top_args.keys.0, top_args.by, &top_args.which);
    let answerer = Answerer::of(args)?;
    let (answer, writing) = answerer.top(&Question { which, keys, by, count: top_args.n as usize })?;
    match (format, which.csv) {
        (Format::Json, _) => print(&format!("{:#}\n", answer.to_json(keys, &writing)))?,
        (_, true) => print(&top_csv(&answer, keys))?,
        _ => print(&top_table(&answer, keys, by, numbers(which)))?,
    }
    report_writing(&writing);
    print_scanned(&answer.scanned, which.raw);
    if answer.total.flows == 0 {
        answerer.report_empty()?;
    }
    complete(&answer.scanned.skipped)
}

/// The format of counters: with `--human` three digits and a prefix from a thousand on.
fn numbers(which: &FlowsWhichArgs) -> fn(u64) -> String {
    match which.human {
        true => |number| if number < 1000 { number.to_string() } else { Unit::Count.format(number as f64) },
        false => count,
    }
}

/// A count with its noun: `1 record`, `1.25 M records`.
fn some(n: u64, what: &str, number: fn(u64) -> String) -> String {
    format!("{} {what}{}", number(n), if n == 1 { "" } else { "s" })
}

/// Sums in words.
fn sums_text(sums: Sums, number: fn(u64) -> String) -> String {
    let [packets, bytes, records] = [(sums.packets, "packet"), (sums.bytes, "byte"), (sums.flows, "record")]
        .map(|(n, what)| some(n, what, number));
    format!("{packets}, {bytes} in {records}")
}

/// How much of an answer is in no file yet.
fn live_line(live: Sums, scanned: &Scanned, number: fn(u64) -> String) -> String {
    if scanned.pending_records + scanned.cached_records == 0 {
        return String::new();
    }
    format!(
        "of which live: {} (looked at: {} waiting to be written, {} in the cache)\n",
        sums_text(live, number),
        some(scanned.pending_records, "record", number),
        some(scanned.cached_records, "flow", number)
    )
}

fn top_table(answer: &Top, keys: &[Key], by: Metric, number: fn(u64) -> String) -> String {
    let mut header: Vec<&str> = keys.iter().map(|key| key.name).collect();
    header.extend(["packets", "bytes", "flows", "share"]);
    let numbers: Vec<usize> = (keys.len()..header.len()).collect();
    let rows = answer.rows.iter().map(|row| {
        let mut cells: Vec<String> = row.key.iter().map(KeyValue::to_string).collect();
        cells.extend([row.sums.packets, row.sums.bytes, row.sums.flows].map(number));
        cells.push(share(row.sums.of(by), answer.total.of(by)));
        cells
    });
    let mut text = table(&header, &numbers, rows);
    let _ = writeln!(
        text,
        "in all: {}; {}",
        sums_text(answer.total, number),
        some(answer.keys, "different value", number)
    );
    text += &live_line(answer.live, &answer.scanned, number);
    if answer.rest.flows > 0 {
        let _ = writeln!(
            text,
            "too many different values: {} of ones that are not shown here, and rows may lack some",
            counted(answer.rest.flows, "record")
        );
    }
    text
}

fn top_csv(answer: &Top, keys: &[Key]) -> String {
    let mut header: Vec<&str> = keys.iter().map(|key| key.name).collect();
    header.extend(["packets", "bytes", "flows"]);
    let mut text = header.join(",") + "\n";
    for row in &answer.rows {
        for value in &row.key {
            let _ = write!(text, "{},", csv_value(value));
        }
        let _ = writeln!(text, "{},{},{}", row.sums.packets, row.sums.bytes, row.sums.flows);
    }
    text
}

fn csv_value(value: &KeyValue) -> String {
    if *value == KeyValue::Unknown { String::new() } else { value.to_string() }
}

/// Prints remarks about the answer to standard error.
fn print_scanned(scanned: &Scanned, raw: bool) {
    let mut err = std::io::stderr();
    if scanned.sampled {
        let what = match raw {
            true => "counters are of the sampled packets alone",
            false => "packets and bytes are multiplied by the sampling interval (--raw: as counted)",
        };
        let _ = writeln!(err, "note: some traffic was sampled; {what}");
    }
    if scanned.sampling_unknown > 0 {
        let records = count(scanned.sampling_unknown);
        let _ = writeln!(
            err,
            "warning: the sampling interval of {records} records is unknown: they count as if every packet was seen \
             (their exporter did not describe the sampler it names)"
        );
    }
    report_rolled(&scanned.rolled);
    report_skipped(&scanned.skipped);
}

/// Says which part of an answer is of sums.
fn report_rolled(rolled: &Rolled) {
    let mut err = std::io::stderr();
    let of = step_name(rolled.step_s);
    if rolled.hours_coarse > 0 {
        let hours = counted(rolled.hours_coarse, "hour");
        let _ = writeln!(
            err,
            "note: the records of {hours} are gone: there, times are those of sums by {of}, and the smallest values are \
             summed as 0.0.0.0, :: and unknown"
        );
    }
    if rolled.hours_missing > 0 {
        let hours = counted(rolled.hours_missing, "hour");
        let _ = writeln!(
            err,
            "warning: the records of {hours} are gone, and their sums do not have what is asked: the answer lacks them"
        );
    }
    if rolled.step_s > 0 {
        let _ = writeln!(err, "note: answered from {of} (--no-rollups: from records alone)");
    }
}

fn report_skipped(skipped: &Skipped) {
    let mut err = std::io::stderr();
    if skipped.count > 0 {
        let _ = writeln!(err, "warning: files skipped: {}", skipped.count);
    }
    for (path, what) in &skipped.named {
        let _ = writeln!(err, "  {}: {what}", path.display());
    }
}

/// Fails if files were skipped, whatever is wrong with them: the answer lacks their records.
fn complete(skipped: &Skipped) -> Result<(), Failure> {
    match skipped.count {
        0 => Ok(()),
        files => Err(Failure::Incomplete(vec![format!(
            "{} could not be read: the answer is of the others",
            counted(files, "file")
        )])),
    }
}

fn run_list(args: &FlowsArgs, list_args: &FlowsListArgs, format: Format) -> Result<(), Failure> {
    let lines = Lines::new(list_args, format);
    let (which, count) = (&list_args.which, list_args.n as usize);
    if list_args.follow {
        return follow(args, &query(which)?, lines);
    }
    let answerer = Answerer::of(args)?;
    let (records, scanned, writing) =
        answerer.list(&Question { which, keys: &[], by: Metric::Bytes, count })?;
    print(&lines.all(&records))?;
    report_writing(&writing);
    print_scanned(&scanned, which.raw);
    if records.is_empty() {
        answerer.report_empty()?;
    }
    complete(&scanned.skipped)
}

/// `FSRPAUEC`, with dots for flags that were not seen.
fn flags(seen: u8) -> String {
    let letters = "FSRPAUEC".chars().enumerate();
    letters.map(|(bit, letter)| if seen >> bit & 1 == 1 { letter } else { '.' }).collect()
}

fn run_graph(args: &FlowsArgs, graph_args: &FlowsGraphArgs, format: Format) -> Result<(), Failure> {
    let (by, which) = (graph_args.by, &graph_args.which);
    let keys: &[Key] = graph_args.key.as_ref().map_or(&[], |keys| &keys.0);
    let answerer = Answerer::of(args)?;
    let question = Question { which, keys, by, count: graph_args.n as usize };
    let (answer, below, writing) = answerer.graph(&question, graph_args.step, graph_args.both)?;
    if let Some(path) = &graph_args.svg {
        std::fs::write(path, plot::svg(&answer, below.as_ref(), by, graph_args.stacked))
            .map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))?;
    }
    match (format, which.csv) {
        (Format::Json, _) => print(&format!("{:#}\n", answer.to_json(keys, &writing)))?,
        (_, true) => print(&graph_csv(&answer, keys))?,
        _ if graph_args.svg.is_some() => {}
        _ => print(&graph_bars(&answer, by, numbers(which)))?,
    }
    report_writing(&writing);
    print_scanned(&answer.scanned, which.raw);
    if answer.total.flows == 0 {
        answerer.report_empty()?;
    }
    complete(&answer.scanned.skipped)
}

fn graph_csv(answer: &Graph, keys: &[Key]) -> String {
    let mut header = vec!["time"];
    header.extend(keys.iter().map(|key| key.name));
    header.extend(["packets", "bytes", "flows"]);
    let mut text = header.join(",") + "\n";
    for series in &answer.series {
        let values: String = match &series.key {
            Some(values) => values.iter().map(|value| csv_value(value) + ",").collect(),
            None => "others,".repeat(keys.len()),
        };
        for ((time, _), sums) in answer.steps().zip(&series.steps) {
            let _ = writeln!(
                text,
                "{},{values}{},{},{}",
                format_time(time),
                sums.packets,
                sums.bytes,
                sums.flows
            );
        }
    }
    text
}

/// The unit of a rate, and the factor from the metric to it.
fn rate_of(by: Metric) -> (&'static str, f64) {
    match by {
        Metric::Bytes => ("bit/s", 8.0),
        Metric::Packets => ("packets/s", 1.0),
        Metric::Flows => ("records/s", 1.0),
    }
}

/// The label of a series.
fn title(series: &Series) -> String {
    match &series.key {
        Some(values) if values.is_empty() => "all".to_owned(),
        Some(values) => values.iter().map(KeyValue::to_string).collect::<Vec<_>>().join(", "),
        None => "others".to_owned(),
    }
}

fn graph_bars(answer: &Graph, by: Metric, number: fn(u64) -> String) -> String {
    let (name, unit) = rate_of(by);
    let seconds = answer.step_ns as f64 / SECOND_NS as f64;
    let steps = answer.series.iter().flat_map(|series| series.steps.iter());
    let most = steps.map(|sums| sums.of(by)).max().unwrap_or(0).max(1);
    let room = width().map_or(BAR, |width| width.saturating_sub(BEFORE_BAR + INCOMPLETE.len()));
    let longest = room.clamp(BAR_MIN, BAR) as u128;
    let mut text = String::new();
    for series in &answer.series {
        let _ = writeln!(text, "{}: {name}, steps of {seconds} s", title(series));
        for ((time, is_whole), sums) in answer.steps().zip(&series.steps) {
            let value = sums.of(by);
            // In half characters, rounded up, so that any traffic is visible.
            let halves = (u128::from(value) * longest * 2).div_ceil(u128::from(most)) as usize;
            let bar = "█".repeat(halves / 2) + if halves % 2 == 1 { "▌" } else { "" };
            let rate = (value as f64 * unit / seconds).round() as u64;
            let mark = if is_whole { "" } else { INCOMPLETE };
            let line = format!("  {:<20} {:>16} {bar}{mark}", format_time(time), number(rate));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text += &live_line(answer.live, &answer.scanned, number);
    text
}

fn run_stats(args: &FlowsArgs, format: Format) -> Result<(), Failure> {
    let answerer = Answerer::of(args)?;
    let (summary, writing) = answerer.summary()?;
    // A table has no files.
    let is_known = |name: &str| !answerer.is_table() || ["records", "from", "to"].contains(&name);
    if format == Format::Json {
        report_writing(&writing);
        let mut value = summary.to_json();
        value.as_object_mut().into_iter().for_each(|value| value.retain(|name, _| is_known(name)));
        print(&format!("{value:#}\n"))?;
        report_skipped(&summary.skipped);
        return complete(&summary.skipped);
    }
    let span = summary.span_ns.map(|(from, to)| [format_time(from), format_time(to)]);
    let per_record = match summary.records {
        0 => "-".to_owned(),
        records => format!("{:.1}", summary.bytes as f64 / records as f64),
    };
    let rows = [
        ("hours", count(summary.partitions)),
        ("files", count(summary.files)),
        ("row groups", count(summary.row_groups)),
        ("records", count(summary.records)),
        ("bytes", count(summary.bytes)),
        ("bytes per record", per_record),
        ("records waiting to be written", count(summary.pending_records)),
        ("flows in the writer's cache", count(summary.cached_records)),
        ("from", span.as_ref().map_or("-".to_owned(), |span| span[0].clone())),
        ("to", span.as_ref().map_or("-".to_owned(), |span| span[1].clone())),
        ("files skipped", count(summary.skipped.count)),
    ];
    let rows = rows.into_iter().filter(|(name, _)| is_known(name));
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
    let rows = rows.chain(summary.rollups.iter().flat_map(rollup_rows));
    print(&table(&["dataset", &args.place()], &[1], rows))?;
    report_writing(&writing);
    report_skipped(&summary.skipped);
    complete(&summary.skipped)
}

/// What `stats` says of sums.
fn rollup_rows(rollup: &RollupSummary) -> [Vec<String>; 4] {
    let what = format!("sums by {}", step_name(rollup.step_s));
    let values =
        [("files", count(rollup.files)), ("rows", count(rollup.rows)), ("bytes", count(rollup.bytes))];
    let [files, rows, bytes] = values.map(|(name, value)| vec![format!("{what}: {name}"), value]);
    [files, rows, bytes, vec![format!("{what}: from"), format_time(rollup.span_ns.0)]]
}

/// What the steps of sums are called.
fn step_name(step_s: u64) -> &'static str {
    if step_s == 3600 { "hours" } else { "minutes" }
}

fn run_compact(args: &FlowsArgs, keep: &KeepArgs, format: Format) -> Result<(), Failure> {
    writer::only_folders(args, "compact")?;
    keep.tell();
    let keep = keep.options(args.feed_tls());
    let writing = keep.writer(false).map_err(|error| Failure::Usage(error.to_string()))?;
    let (mut done, mut skipped, mut damaged) = (Upkeep::default(), Skipped::default(), Skipped::default());
    let policy = keep.retention;
    // What is to go here goes behind that.
    let Retention { archive_age_max_s, rollups, .. } = policy;
    let retention = Retention { archive_age_max_s, rollups, ..Retention::default() };
    // A writer would create the folder; here a missing folder is an error.
    for part in writer::open(args)?.parts().map_err(failed)? {
        let options = WriterOptions { upkeep_interval_s: 0, retention, ..writing.clone() };
        let (writer, recovery) = Writer::open(&part, options).map_err(|error| match error {
            StoreError::Busy { .. } => Failure::Run(format!(
                "{error}: it merges small files itself, so nothing was done. Tell it what to keep: keep and keep_bytes in \
                 [flows] of a router, --keep and --keep-bytes of `thalweg probe` and `thalweg flows import`"
            )),
            other => failed(other),
        })?;
        report_recovery(&recovery);
        skipped.join(recovery.skipped);
        let fed = writer.feed();
        let archived = writer.archive();
        let kept = writer.retain(policy).and_then(|_| writer.compact());
        kept.and_then(|_| writer.roll_up(policy.rollups)).map_err(failed)?;
        // Rollups are of files as they were sent, so they are made and sent afterwards.
        let sends = archived.is_ok() && writer.status().upkeep.rollups_made > 0;
        let archived = if sends { writer.archive() } else { archived };
        let status = writer.close().map_err(failed)?;
        done.add(&status.upkeep);
        damaged.join(status.marks_damaged);
        archived.and(fed).map_err(failed)?;
    }
    report_damaged(&damaged);
    match format {
        Format::Json => {
            let marks = ("marks_damaged", damaged.count);
            let rows = done.rows().chain([marks]).map(|(name, count)| (name.to_owned(), Value::from(count)));
            print(&format!("{:#}\n", Value::Object(rows.collect())))?;
        }
        Format::Human => print(&format!(
            "joined {} with {} to {}; removed {} with {}, {}; rollups made: {}{}{}\n",
            counted(done.files_joined, "file"),
            counted(done.records_joined, "record"),
            count(done.files_made),
            counted(done.files_expired, "file"),
            counted(done.records_expired, "record"),
            counted(done.bytes_expired, "byte"),
            count(done.rollups_made),
            match keep.archive {
                Some(_) => {
                    format!(
                        "; archived {} with {} and {}, {}; removed there {}",
                        counted(done.files_archived, "file"),
                        counted(done.records_archived, "record"),
                        counted(done.rollups_archived, "rollup"),
                        counted(done.bytes_archived, "byte"),
                        counted(done.objects_expired, "file")
                    )
                }
                None => String::new(),
            },
            match keep.feed {
                Some(_) => {
                    format!(
                        "; sent {} with {}",
                        counted(done.files_fed, "file"),
                        counted(done.records_fed, "record")
                    )
                }
                None => String::new(),
            }
        ))?,
    }
    complete(&skipped)
}

/// Names marks of an archive that were damaged.
fn report_damaged(damaged: &Skipped) {
    for (path, what) in &damaged.named {
        let _ = writeln!(std::io::stderr(), "warning: {}: {what}", path.display());
    }
}

/// Reports what an interrupted writer left to standard error.
fn report_recovery(recovery: &Recovery) {
    let mut err = std::io::stderr();
    if let Some(who) = &recovery.unclean {
        let _ = writeln!(
            err,
            "warning: the last writer did not end properly ({who}): records it had not yet written are lost"
        );
    }
    if recovery.torn_removed > 0 {
        let _ = writeln!(err, "warning: unfinished files removed: {}", recovery.torn_removed);
    }
    if recovery.replaced_removed > 0 {
        let _ =
            writeln!(err, "note: files removed that had already been joined: {}", recovery.replaced_removed);
    }
    report_skipped(&recovery.skipped);
}
