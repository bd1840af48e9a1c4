//! `thalweg whatif`: how another configuration or a failure would change routing.

mod live;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_config::{BgpConfig, ConfigSource};
use thalweg_node::whatif::{
    Both, Change, Converged, Example, Failure as NeighborFailure, Move, Options, Report, WhatIf, WhatIfError,
};
use thalweg_ports::live::wall_ns;
use thalweg_store::query::{KeyValue, Metric, Query, top};
use thalweg_store::{Dataset, Filter, Window};
use thalweg_text::calendar::SECOND_NS;
use thalweg_text::units::{bytes, count, counted, share};
use thalweg_wire::mrt::Content;

use crate::cli::{Format, WhatIfArgs};
use crate::mrt::{Errors, read};
use crate::progress::Steps;
use crate::tables::{remark, table};
use crate::{Failure, parsed, print};

/// Progress is shown after this many routes.
const PROGRESS_ROUTES: u64 = 20_000;
/// The most traffic shifts that are shown, largest first.
const MOVES_SHOWN: usize = 12;

pub(crate) fn run(args: &WhatIfArgs, format: Format) -> Result<(), Failure> {
    let conditions = args.fail_on.as_ref().map_or(&[][..], |conditions| &conditions.0);
    for condition in conditions {
        let needs = condition.needs();
        if needs.flows && args.flows.is_none() {
            return Err(Failure::Usage(format!(
                "--fail-on {condition}: needs --flows, the dataset of flow records"
            )));
        }
        if needs.failures && args.fail.is_none() {
            return Err(Failure::Usage(format!("--fail-on {condition}: needs --fail, a neighbor or `each`")));
        }
    }
    let [old, new] = configs(args)?;
    if new.is_none() && args.fail.is_none() {
        let what =
            if args.live { "no configuration: add one" } else { "only one configuration: add a second one" };
        return Err(Failure::Usage(format!("{what}, --fail NEIGHBOR or --fail each")));
    }
    let (report, mut wrong) = match old {
        Some(old) => of_table(args, old, new)?,
        None => live::report(args, new)?,
    };
    match format {
        Format::Json => {
            let json =
                serde_json::to_string_pretty(&report).map_err(|error| Failure::Run(error.to_string()))?;
            print(&format!("{json}\n"))?;
        }
        Format::Human => print(&text(&report, new.is_some()))?,
    }
    let held = conditions.iter().filter_map(|condition| condition.check(&report));
    wrong.splice(0..0, held.map(|held| format!("--fail-on: {held}")));
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Incomplete(wrong)) }
}

/// The old configuration, if it is a file, and the new one, if there is one.
fn configs(args: &WhatIfArgs) -> Result<[Option<&Path>; 2], Failure> {
    let paths: Vec<&Path> = args.configs.iter().map(PathBuf::as_path).collect();
    match (args.live, &paths[..]) {
        (true, [old, new]) => Err(Failure::Usage(format!(
            "{} and {}: with --live the router has the old configuration, so give the new one only",
            old.display(),
            new.display()
        ))),
        (true, [new]) => Ok([None, Some(*new)]),
        (false, [old, new]) => Ok([Some(*old), Some(*new)]),
        (false, [old]) => Ok([Some(*old), None]),
        (_, _) => Ok([None, None]),
    }
}

/// The BGP part of a configuration.
fn bgp_of(source: &ConfigSource) -> Result<Arc<BgpConfig>, Failure> {
    let config = parsed(source)?;
    let none = || Failure::Usage(format!("{}: has no [bgp] section", source.file()));
    config.bgp.map(Arc::new).ok_or_else(none)
}

fn options(args: &WhatIfArgs) -> Options {
    Options { map: args.map.clone(), roles: args.role.clone(), failing: args.failing(), why: args.why }
}

/// The report for a table in files, and the errors of these files.
fn of_table(args: &WhatIfArgs, old: &Path, new: Option<&Path>) -> Result<(Report, Vec<String>), Failure> {
    let bgp = |path: &Path| bgp_of(&ConfigSource::read(path).map_err(Failure::Config)?);
    let old = bgp(old)?;
    let new = new.map_or_else(|| Ok(old.clone()), bgp)?;
    let mut what_if = WhatIf::new(old, new, options(args)).map_err(refused)?;
    let (mut errors, mut routes) = (Errors::default(), 0_u64);
    let steps = Steps::on_terminal();
    for path in &args.table {
        read(path, &mut errors, |item| {
            if let Content::Rib(rib) = &item.content {
                for entry in rib.entries() {
                    what_if.push(&entry);
                    routes += 1;
                    if routes % PROGRESS_ROUTES == 0 {
                        steps.at(routes as usize, &format!("{} routes", count(routes)));
                    }
                }
            }
            Ok(Ok(()))
        })?;
    }
    let report = decided(what_if, args, &steps)?;
    let damaged = || format!("the table is damaged: {}", counted(errors.count, "error"));
    Ok((report, (errors.count > 0).then(damaged).into_iter().collect()))
}

/// Computes best paths, once all routes are loaded.
fn decided(what_if: WhatIf, args: &WhatIfArgs, steps: &Steps) -> Result<Report, Failure> {
    steps.at(0, "deciding");
    let converged = what_if.converge().map_err(refused);
    let report = converged.and_then(|converged| with_traffic(converged, args)).map(Converged::report);
    steps.finish();
    report
}

fn refused(error: WhatIfError) -> Failure {
    match error {
        WhatIfError::UnknownNeighbor { .. } => Failure::Usage(error.to_string()),
        WhatIfError::NoRoutes | WhatIfError::NothingMapped { .. } => Failure::Run(error.to_string()),
    }
}

/// Adds the traffic of each destination from the dataset.
fn with_traffic(mut converged: Converged, args: &WhatIfArgs) -> Result<Converged, Failure> {
    let Some(folder) = &args.flows else { return Ok(converged) };
    let failed = |error: thalweg_store::StoreError| Failure::Run(error.to_string());
    let dataset = Dataset::open(folder).map_err(failed)?;
    if !dataset.is_one().map_err(failed)? {
        return Err(Failure::Run(format!("--flows: {} is not a dataset of flow records", folder.display())));
    }
    let from_ns = args.last.map_or(0, |span_s| wall_ns().saturating_sub(span_s.saturating_mul(SECOND_NS)));
    let window = Window { from_ns, to_ns: u64::MAX };
    let (view, _) = dataset.live_view(window).map_err(failed)?;
    let everything = Filter::parse("").map_err(|error| Failure::Run(error.to_string()))?;
    let destination = "dst".parse().map_err(|error| Failure::Run(format!("{error}")))?;
    let query = Query::new(window, everything);
    let sums = top(&view, &query, &[destination], Metric::Bytes, usize::MAX).map_err(failed)?;
    converged.with_traffic();
    for row in sums.rows {
        if let [KeyValue::Address(address)] = row.key[..] {
            converged.add_traffic(address, row.sums.bytes);
        }
    }
    Ok(converged)
}

fn text(report: &Report, two: bool) -> String {
    let mut text = live::text(report);
    text += &about_the_table(report);
    if two {
        text += &neighbors(report);
        text += &prefixes(report);
        text += &imports(report);
        text += &exports(report);
    }
    text += &traffic(report, two);
    text += &failures(report, two);
    for example in &report.examples {
        text += &explained(example);
    }
    text
}

fn line(name: &str, what: &str) -> String {
    remark(&format!("{name:<11} {what}"))
}

fn about_the_table(report: &Report) -> String {
    let table = &report.table;
    let peers = table.mapped.len() + table.unmapped.len();
    let mut text =
        line("table", &format!("{} of {}", counted(table.routes, "route"), counted(peers as u64, "peer")));
    if table.faulty > 0 {
        text += &line(
            "",
            &format!("{} that no session would accept as they are", counted(table.faulty, "route")),
        );
    }
    for peer in &table.unmapped {
        let routes = counted(peer.routes, "route");
        let what = format!("left out: {routes} of {} (AS {}), which is no neighbor", peer.address, peer.asn);
        text += &line("", &format!("{what}; if it is one: --map {}=NEIGHBOR", peer.address));
    }
    text
}

fn neighbors(report: &Report) -> String {
    let change = |change: Change| match change {
        Change::Added => "is added",
        Change::Removed => "is removed",
        Change::SessionRestarts => "begins a new session",
        Change::Import => "has another import policy",
        Change::Export => "has another export policy",
        Change::ImportAndExport => "has other policies",
        Change::Settings => "has other settings, its routes stay",
    };
    let mut text = String::new();
    for (at, each) in report.neighbors.iter().enumerate() {
        text += &line(
            if at == 0 { "neighbors" } else { "" },
            &format!("{} {}", each.neighbor, change(each.change)),
        );
    }
    if report.neighbors.is_empty() {
        text += &line("neighbors", "are the same");
    }
    for what in &report.restart {
        text += &line("restart", what);
    }
    for down in &report.down {
        let Both { before, after } = &down.why;
        for (when, why) in [("before", before), ("after", after)] {
            if let Some(why) = why {
                text += &line("down", &format!("{when}, {} is not up: {why}", down.neighbor));
            }
        }
    }
    text
}

fn prefixes(report: &Report) -> String {
    let prefixes = &report.prefixes;
    let numbers = format!(
        "{} before, {} after: {} by another neighbor, {} with other attributes, {} lost, {} new",
        count(prefixes.before),
        count(prefixes.after),
        count(prefixes.moved),
        count(prefixes.attributes),
        count(prefixes.lost),
        count(prefixes.new)
    );
    line("prefixes", &numbers)
}

/// Neighbors for which the number of accepted routes changes.
fn imports(report: &Report) -> String {
    let differs = report.imports.iter().filter(|import| {
        import.accepted.before != import.accepted.after
            || import.rejected.values().any(|both| both.before != both.after)
    });
    let rows = differs.map(|import| {
        let reasons = import.rejected.iter().filter(|(_, both)| both.before != both.after);
        let reason = |(name, both): (&&str, &Both<u64>)| {
            format!("{}: {} -> {}", name.replace('_', " "), count(both.before), count(both.after))
        };
        vec![
            import.neighbor.clone(),
            count(import.routes),
            count(import.accepted.before),
            count(import.accepted.after),
            reasons.map(reason).collect::<Vec<_>>().join(", "),
        ]
    });
    titled(&["from", "routes", "accepted", "after", "rejected"], &[1, 2, 3], rows.collect())
}

fn exports(report: &Report) -> String {
    let rows = report.exports.iter().map(|export| {
        let routes = &export.routes;
        let numbers = [routes.more, routes.less, routes.changed, routes.leaks, routes.leaks_ended];
        std::iter::once(export.neighbor.clone()).chain(numbers.map(count)).collect()
    });
    let header = ["to", "more", "less", "other attributes", "new leaks", "leaks that end"];
    titled(&header, &[1, 2, 3, 4, 5], rows.collect())
}

/// A table after an empty line, if it has rows.
fn titled(header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{}", table(header, numbers, rows)) }
}

fn traffic(report: &Report, two: bool) -> String {
    let Some(traffic) = &report.traffic else { return String::new() };
    let mut text = line("traffic", &bytes(traffic.bytes));
    if two {
        let part = |number: u64| format!("{} ({})", bytes(number), share(number, traffic.bytes));
        text +=
            &line("", &format!("{} by another neighbor, {} lost", part(traffic.moved), part(traffic.lost)));
        text += &titled(&["from", "to", "bytes"], &[2], moves(&traffic.moves));
    }
    text
}

fn moves(moves: &[Move]) -> Vec<Vec<String>> {
    let name = |neighbor: &Option<String>| neighbor.clone().unwrap_or_else(|| "no route".to_owned());
    let shown = moves.iter().take(MOVES_SHOWN);
    shown.map(|each| vec![name(&each.from), name(&each.to), bytes(each.bytes)]).collect()
}

fn failures(report: &Report, two: bool) -> String {
    let has_traffic = report.traffic.is_some();
    let mut header = vec!["if it fails", "under", "prefixes lost", "by another neighbor", "new leaks"];
    if has_traffic {
        header.extend(["bytes moved", "bytes lost"]);
    }
    let mut rows = Vec::new();
    for NeighborFailure { neighbor, counts, .. } in &report.failures {
        for (under, counts) in [("the old", counts.before), ("the new", counts.after)] {
            if !two && under == "the old" {
                continue;
            }
            let mut row = vec![neighbor.clone(), if two { under } else { "this" }.to_owned()];
            match counts {
                None => row.extend(["not up", "-", "-"].map(str::to_owned)),
                Some(counts) => {
                    row.extend([counts.lost, counts.moved, counts.leaks].map(count));
                    if has_traffic {
                        row.extend([counts.bytes_moved, counts.bytes_lost].map(bytes));
                    }
                }
            }
            row.resize(header.len(), "-".to_owned());
            rows.push(row);
        }
    }
    let numbers: Vec<usize> = (2..header.len()).collect();
    titled(&header, &numbers, rows)
}

fn explained(example: &Example) -> String {
    let mut text =
        format!("\n{} ({})\n", example.prefix, serde_json::json!(example.kind).as_str().unwrap_or_default());
    let Both { before, after } = &example.paths;
    for (when, paths) in [("before", before), ("after", after)] {
        if paths.is_empty() {
            let _ = writeln!(text, "  {when:<6}   no path");
        }
        for path in paths {
            let (mark, why) = if path.best { ("*", "") } else { (" ", path.why.as_deref().unwrap_or("")) };
            let _ = writeln!(text, "  {when:<6} {mark} by {}  [{}]  {why}", path.neighbor, path.as_path);
        }
    }
    for note in &example.notes {
        let _ = writeln!(text, "  {note}");
    }
    text
}
