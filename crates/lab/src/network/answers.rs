//! Tables and plots of an answer.

use super::fixpoint::{Answer, Deployed, Step, Totals};
use crate::figures::seconds;
use crate::plot::{Axis, Bar, BarChart, LineChart, Point, Scale, Series};
use crate::report::{Origin, Report};
use thalweg_sim::fixpoint::Class;
use thalweg_text::units::{Unit, count, share};
use thalweg_text::{Align, Table};

/// Points of a curve.
const POINTS: usize = 100;

/// Tables of the graph, and of the answers about it.
pub fn tables(answer: &Answer) -> Vec<Table> {
    let mut tables = vec![graph(answer)];
    if !answer.steps.is_empty() {
        tables.push(steps(answer));
    }
    tables.extend(answer.totals.as_ref().map(totals));
    tables
}

fn graph(answer: &Answer) -> Table {
    let graph = &answer.graph;
    let columns = ["ASes", "links", "peerings", "siblings", "most links", "read or made in", "ready in"];
    let most = graph.degrees.last().map_or(0, |(degree, _)| *degree);
    let mut table =
        Table::new(format!("The graph: {}", graph.source), columns.map(|name| (name, Align::Right)));
    let counts = [graph.ases, graph.links, graph.peerings, graph.siblings, most];
    let times = [seconds(graph.load_s), seconds(answer.prepare_s)];
    table.push(counts.map(|number| count(number as u64)).into_iter().chain(times));
    table
}

fn steps(answer: &Answer) -> Table {
    let told = |step: &Step, class: usize| count(u64::from(step.summary.by_class[class]));
    Table::of(
        "One prefix: ASes by the neighbor that told them, and those with the wrong route",
        &answer.steps,
    )
    .words("circumstances", |step| step.what.clone())
    .number("reached", |step| count(u64::from(step.summary.reached)))
    .number("provider", |step| told(step, 0))
    .number("peer", |step| told(step, 1))
    .number("customer", |step| told(step, 2))
    .number("hijacked", |step| count(u64::from(step.summary.hijacked)))
    .number("leaked", |step| count(u64::from(step.summary.leaked)))
    .number("mean length", |step| {
        Unit::Plain.format(step.summary.links as f64 / f64::from(step.summary.reached.max(1)))
    })
    .number("longest", |step| step.summary.longest.to_string())
    .number("found in", |step| seconds(step.seconds))
    .table()
}

fn totals(totals: &Totals) -> Table {
    let told = |totals: &Totals, class: usize| share(totals.by_class[class], totals.routes);
    Table::of("All origins, a prefix each", [totals])
        .number("origins", |totals| count(totals.origins as u64))
        .number("routes", |totals| count(totals.routes))
        .number("provider", |totals| told(totals, 0))
        .number("peer", |totals| told(totals, 1))
        .number("customer", |totals| told(totals, 2))
        .number("leaked", |totals| count(totals.leaked))
        .number("mean length", |totals| Unit::Plain.format(totals.links as f64 / totals.routes.max(1) as f64))
        .number("longest", |totals| totals.longest.to_string())
        .number("threads", |totals| totals.threads.to_string())
        .number("found in", |totals| seconds(totals.seconds))
        .number("an origin", |totals| seconds(totals.seconds / totals.origins.max(1) as f64))
        .table()
}

/// The report.
pub fn report(answer: &Answer, origin: Origin) -> Report {
    let mut report = Report::new("Routes of the whole Internet", lead(answer), origin);
    report.heading("Plots");
    if !answer.steps.is_empty() {
        report.plot(classes(answer).svg(), "ASes by the neighbor that told them the route they use.");
    }
    if !answer.curve.is_empty() {
        report.plot(
            curve(answer).svg(),
            "ASes that take the wrong route if so many check, drawn at random: median, and range of five draws.",
        );
    }
    if let Some(totals) = &answer.totals {
        report.plot(means(totals).svg(), "Share of origins to which routes are at most so long on average.");
    }
    report.heading("Tables");
    report.tables(tables(answer));
    report.heading("How to read this");
    report.notes([
        "Each AS prefers routes of customers to those of peers, and those to routes of providers; then the shortest; then \
         the neighbor with the lowest AS number. Peers and providers are told own and customers' routes only.",
        "A hijacker announces the same prefix. A leaker tells everybody the route that a peer or provider told it. ROV \
         drops routes of a wrong origin. ASPA drops paths that contradict what ASes publish about their providers.",
    ]);
    report
}

fn lead(answer: &Answer) -> String {
    let graph =
        format!("{} ASes, {} links.", count(answer.graph.ases as u64), count(answer.graph.links as u64));
    if let Some(totals) = &answer.totals {
        return format!(
            "{graph} {} routes to {} origins, found in {}.",
            count(totals.routes),
            count(totals.origins as u64),
            seconds(totals.seconds)
        );
    }
    let wrong = |step: &Step| {
        let wrong = step.summary.hijacked.max(step.summary.leaked);
        format!(" {}: {} of {} ASes with a route have the wrong one.", step.what, wrong, step.summary.reached)
    };
    let reached = answer.steps.first().map_or(0, |step| step.summary.reached);
    let attacks: String = answer.steps.iter().skip(1).map(wrong).collect();
    format!("{graph} The prefix reaches {} ASes.{attacks}", count(u64::from(reached)))
}

fn classes(answer: &Answer) -> BarChart {
    let bars = answer.steps.iter().flat_map(|step| {
        let told = Class::ALL[..3].iter().zip(step.summary.by_class);
        told.map(|(class, ases)| (step.what.clone(), class.name().to_owned(), Bar::at(f64::from(ases))))
    });
    BarChart::of("Who told it", Axis::new("ASes", Unit::Count, Scale::Linear), Vec::new(), bars)
}

fn curve(answer: &Answer) -> LineChart {
    let point = |deployed: &Deployed| {
        let at = |place: usize| f64::from(deployed.wrong.get(place).copied().unwrap_or(0));
        let last = deployed.wrong.len().saturating_sub(1);
        Point { x: deployed.share * 100.0, y: at(last / 2), range: Some((at(0), at(last))) }
    };
    LineChart {
        title: "What checks help".to_owned(),
        x: Axis::new("ASes that check, %", Unit::Plain, Scale::Linear),
        y: Axis::new("ASes with the wrong route", Unit::Count, Scale::Linear),
        series: vec![Series::measured("wrong route", 0, answer.curve.iter().map(point))],
    }
}

fn means(totals: &Totals) -> LineChart {
    let last = totals.means.len().saturating_sub(1);
    let point = |number: usize| {
        let mean = totals.means.get(number * last / POINTS).copied().unwrap_or(0.0);
        Point::at(mean, number as f64 * 100.0 / POINTS as f64)
    };
    LineChart {
        title: "Length of routes".to_owned(),
        x: Axis::new("mean length of the routes to an origin", Unit::Plain, Scale::Linear),
        y: Axis::new("origins, %", Unit::Plain, Scale::Linear),
        series: vec![Series::measured("origins", 0, (0..=POINTS).map(point))],
    }
}
