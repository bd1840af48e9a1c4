//! A simulated network as tables, charts and a report.

use thalweg_text::Table;
use thalweg_text::units::{Unit, bytes, count};

use super::{GraphFacts, sessions};
use crate::plot::{Axis, LineChart, Point, Scale, Series};
use crate::report::{Origin, Report};

/// The phases of a simulation.
pub fn phases(outcome: &sessions::Outcome) -> Table {
    let caption = format!(
        "{}: {} links, {} prefixes, {}",
        outcome.graph.source,
        count(outcome.graph.links as u64),
        count(outcome.prefixes as u64),
        outcome.policy
    );
    let quiet = |phase: &sessions::Phase| if phase.is_quiet { "" } else { " (not quiet)" };
    Table::of(caption, &outcome.phases)
        .words("phase", |phase| phase.name.clone())
        .number("events", |phase| count(phase.events as u64))
        .number("UPDATEs", |phase| count(phase.updates))
        .number("until quiet, s", |phase| format!("{:.2}{}", phase.virtual_s, quiet(phase)))
        .number("converged: 50 %", |phase| format!("{:.3} s", phase.converged_s[0]))
        .number("99 %", |phase| format!("{:.3} s", phase.converged_s[2]))
        .number("all", |phase| format!("{:.3} s", phase.converged_s[3]))
        .number("paths tried", |phase| format!("{:.2}", mean_changes(phase)))
        .number("CPU s", |phase| format!("{:.2}", phase.cpu_s))
        .number("UPDATEs/CPU s", |phase| count((phase.updates as f64 / phase.cpu_s.max(1e-9)) as u64))
        .table()
}

fn mean_changes(phase: &sessions::Phase) -> f64 {
    let sum: u64 = phase.changes.iter().map(|(changes, routes)| u64::from(*changes) * routes).sum();
    sum as f64 / phase.changed.max(1) as f64
}

/// The recorded ASes.
pub fn collected(outcome: &sessions::Outcome) -> Table {
    let runs = |(_, runs): &(_, u64)| *runs;
    Table::of("Recorded: the UPDATEs that these ASes received, and their tables", &outcome.collected)
        .number("AS", |each| each.asn.to_string())
        .number("neighbors", |each| each.neighbors.to_string())
        .number("UPDATEs", |each| count(each.updates))
        .number("mean run of one neighbor", |each| {
            format!("{:.2}", each.updates as f64 / each.runs.iter().map(runs).sum::<u64>().max(1) as f64)
        })
        .number("prefixes", |each| count(each.prefixes))
        .number("routes", |each| count(each.routes))
        .words("files", |each| format!("AS{0}-updates.mrt, AS{0}-rib.mrt, AS{0}-router.toml", each.asn))
        .table()
}

fn lines(title: &str, x: Axis, y: Axis, series: Vec<(String, Vec<(f64, f64)>)>) -> String {
    let measured = |(number, (name, points)): (usize, (String, Vec<(f64, f64)>))| {
        Series::measured(name, number, points.into_iter().map(|(x, y)| Point::at(x, y)))
    };
    let series = series.into_iter().enumerate().map(measured).collect();
    LineChart { title: title.to_owned(), x, y, series }.svg()
}

fn of_phases(
    outcome: &sessions::Outcome,
    points: impl Fn(&sessions::Phase) -> Vec<(f64, f64)>,
) -> Vec<(String, Vec<(f64, f64)>)> {
    outcome.phases.iter().map(|phase| (phase.name.clone(), points(phase))).collect()
}

fn degrees(graph: &GraphFacts) -> String {
    let mut left = graph.ases;
    let mut points = Vec::new();
    for (degree, ases) in &graph.degrees {
        points.push((*degree as f64, left as f64 / graph.ases as f64));
        left -= ases;
    }
    lines(
        "ASes by number of neighbors",
        Axis::new("neighbors, at least", Unit::Count, Scale::Log),
        Axis::new("share of ASes", Unit::Plain, Scale::Log),
        vec![("ASes".to_owned(), points)],
    )
}

/// The findings in a sentence or two.
pub fn lead(outcome: &sessions::Outcome) -> String {
    let Some(cold) = outcome.phases.first() else { return String::new() };
    let state = if outcome.phases.iter().all(|phase| phase.is_quiet) {
        "came to rest"
    } else {
        "did NOT come to rest"
    };
    format!(
        "{} routers with real sessions {state}: from a cold start after {} UPDATEs and {:.2} s of virtual time, in {:.1} s \
         of processor time with {} of memory at most. Digest {}.",
        count(outcome.graph.ases as u64),
        count(cold.updates),
        cold.virtual_s,
        cold.cpu_s,
        bytes(outcome.memory_bytes),
        outcome.digest
    )
}

/// The report.
pub fn report(outcome: &sessions::Outcome, origin: Origin) -> Report {
    let mut report = Report::new("A network of routers", lead(outcome), origin);
    report.table(phases(outcome));
    if !outcome.collected.is_empty() {
        report.table(collected(outcome));
    }
    let seconds = |label: &str| Axis::new(label, Unit::Plain, Scale::Linear);
    report.plot(
        lines(
            "Convergence",
            seconds("seconds after the event before"),
            seconds("share of best paths that changed"),
            of_phases(outcome, |phase| phase.convergence.clone()),
        ),
        "For each prefix at each router: from the last event to the last change of the best path.",
    );
    report.plot(
        lines(
            "Paths tried before the last one",
            Axis::new("changes of the best path", Unit::Count, Scale::Log),
            Axis::new("prefixes at routers", Unit::Count, Scale::Log),
            of_phases(outcome, |phase| {
                phase.changes.iter().map(|(changes, routes)| (f64::from(*changes), *routes as f64)).collect()
            }),
        ),
        "How often a best path changed: BGP explores paths before it finds the one that stays.",
    );
    for phase in &outcome.phases {
        report.heading(format!("Over time: {}", phase.name));
        report.plot(
            lines(
                "UPDATEs over time",
                seconds("seconds of virtual time"),
                Axis::new("UPDATEs a second, all routers", Unit::Count, Scale::Linear),
                vec![(phase.name.clone(), phase.updates_over_time.clone())],
            ),
            "Steps of 10 ms; where several share a point, the busiest.",
        );
        report.plot(
            lines(
                "Reachability over time",
                seconds("seconds of virtual time"),
                seconds("share of prefixes at routers with a best path"),
                vec![(phase.name.clone(), phase.reached_over_time.clone())],
            ),
            "A dip is a black hole: a router without any path to a prefix that it had.",
        );
    }
    report.heading("The graph");
    report.plot(degrees(&outcome.graph), "The share of ASes that have at least so many neighbors.");
    let runs = outcome.collected.iter().map(|each| {
        let points = each.runs.iter().map(|(length, runs)| (*length as f64, *runs as f64)).collect();
        (format!("AS {}", each.asn), points)
    });
    let runs: Vec<_> = runs.collect();
    if !runs.is_empty() {
        report.plot(
            lines(
                "Runs of UPDATEs from one neighbor",
                Axis::new("UPDATEs in a row", Unit::Count, Scale::Log),
                Axis::new("runs", Unit::Count, Scale::Log),
                runs,
            ),
            "Short runs are a good mix of neighbors: what a daemon with a thread for each can spread.",
        );
    }
    let time = outcome.processing.as_ref().map_or_else(
        || "Virtual time is made of the latencies of links; computing takes none.".to_owned(),
        |processing| {
            let [half, most] = [0.5, 0.99].map(|share| Unit::Nanoseconds.format(processing.at(share) as f64));
            format!(
                "Virtual time is made of the latencies of links and of computing: an UPDATE takes {half} in the median, {most} \
                 at 99 %, {} times what {} UPDATEs took on this machine. The table is in results.json.",
                processing.scale,
                count(processing.updates)
            )
        },
    );
    report.notes([time]);
    report
        .notes(outcome.phases.iter().filter_map(|phase| phase.oscillation.as_ref()).map(ToString::to_string));
    report.notes([
        "Every AS is one router that runs the daemon's own session, policy, table and export code and encodes every UPDATE.",
        "The digest follows from every byte with its time: the same command gives the same one, with any number of threads.",
    ]);
    report
}
