//! Who answers a question: datasets on this machine, a router's console, or a table of ClickHouse. Answers have one form,
//! so that they print alike.

use std::io::Write;

use serde_json::Value;
use thalweg_flow::FlowRecord;
use thalweg_ports::ask::{AskError, WebServer};
use thalweg_ports::collector::ClickHouseAddress;
use thalweg_store::live::Writing;
use thalweg_store::query::clickhouse::Table;
use thalweg_store::query::received::{self, Object};
use thalweg_store::query::{Graph, Key, Lines, Metric, Query, Scanned, Top, graph, list, reversed, top};
use thalweg_store::{Filter, Needs, Step, StoreError, Summary, View, Window};
use thalweg_text::calendar::{SECOND_NS, format_time};
use thalweg_text::units::counted;

use super::{failed, query, writer};
use crate::Failure;
use crate::cli::{FlowsArgs, FlowsWhichArgs};

/// The variable with the console's token.
const TOKEN: &str = "THALWEG_TOKEN";

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) which: &'a FlowsWhichArgs,
    pub(super) keys: &'a [Key],
    pub(super) by: Metric,
    /// Rows, records or lines.
    pub(super) count: usize,
}

/// Who is asked.
pub(super) enum Answerer<'a> {
    Datasets(&'a FlowsArgs),
    Router(WebServer),
    ClickHouse { server: WebServer, table: String },
}

impl<'a> Answerer<'a> {
    pub(super) fn of(args: &'a FlowsArgs) -> Result<Self, Failure> {
        let Some(url) = &args.url else { return Ok(Self::Datasets(args)) };
        let wrong = |error: AskError| Failure::Usage(format!("--url: {error}"));
        let authorities = args.tls_ca.clone();
        if ClickHouseAddress::is_meant_by(url) {
            let address: ClickHouseAddress =
                url.parse().map_err(|error| wrong(AskError::ClickHouse(error)))?;
            let server = WebServer::clickhouse(&address, authorities).map_err(wrong)?;
            return Ok(Self::ClickHouse { server, table: address.table });
        }
        let token = token(args)?;
        Ok(Self::Router(WebServer::api(url, authorities, token.as_deref()).map_err(wrong)?))
    }

    pub(super) fn top(&self, question: &Question<'_>) -> Result<(Top, Vec<Writing>), Failure> {
        let Question { which, keys, by, count } = *question;
        let query = query(which)?;
        match self {
            Self::Datasets(args) => {
                let (query, view, writing) = records(args, question, query, Step::None)?;
                Ok((top(&view, &query, keys, by, count).map_err(failed)?, writing))
            }
            Self::Router(server) => {
                let answer = document(server, "top", &parameters(question))?;
                Top::from_json(keys, &answer).map_err(failed)
            }
            Self::ClickHouse { server, table } => {
                let ask = statements(server, which)?;
                let answer = Table { name: table, ask: &ask }.top(&query, keys, by, count);
                Ok((answer.map_err(failed)?, Vec::new()))
            }
        }
    }

    /// The graph and, if `both`, that of the other direction.
    pub(super) fn graph(
        &self,
        question: &Question<'_>,
        step_ns: Option<u64>,
        both: bool,
    ) -> Result<(Graph, Option<Graph>, Vec<Writing>), Failure> {
        let Question { which, keys, by, count } = *question;
        let (query, lines) = (query(which)?, Lines::Largest(count));
        match self {
            Self::Datasets(args) => {
                let (query, view, writing) = records(args, question, query, Step::Of(step_ns))?;
                let answer = graph(&view, &query, keys, by, lines, step_ns).map_err(failed)?;
                let below = both.then(|| reversed(&view, &query, keys, by, &answer));
                Ok((answer, below.transpose().map_err(failed)?, writing))
            }
            Self::Router(server) => {
                let mut parameters = parameters(question);
                parameters.extend(step_ns.map(|step| ("step", seconds(step))));
                parameters.extend(both.then(|| ("both", "1".to_owned())));
                let answer = document(server, "graph", &parameters)?;
                let below = answer.get("below").and_then(Value::as_object);
                let below = below.map(|below| Graph::from_json(keys, below)).transpose().map_err(failed)?;
                let (answer, writing) = Graph::from_json(keys, &answer).map_err(failed)?;
                Ok((answer, below.map(|(below, _)| below), writing))
            }
            Self::ClickHouse { server, table } => {
                let ask = statements(server, which)?;
                let table = Table { name: table, ask: &ask };
                let answer = table.graph(&query, keys, by, lines, step_ns).map_err(failed)?;
                let below = both.then(|| table.reversed(&query, keys, by, &answer));
                Ok((answer, below.transpose().map_err(failed)?, Vec::new()))
            }
        }
    }

    pub(super) fn list(
        &self,
        question: &Question<'_>,
    ) -> Result<(Vec<FlowRecord>, Scanned, Vec<Writing>), Failure> {
        let Question { which, count, .. } = *question;
        let query = query(which)?;
        let records = match self {
            Self::Datasets(args) => {
                let (query, view, writing) = records(args, question, query, Step::Records)?;
                let (records, scanned) = list(&view, &query, count).map_err(failed)?;
                return Ok((records, scanned, writing));
            }
            Self::Router(server) => {
                let answer = document(server, "list", &parameters(question))?;
                let items: Result<Vec<_>, StoreError> =
                    received::objects(&answer, "items").and_then(Iterator::collect);
                items.and_then(|items| received::records(items.into_iter()))
            }
            Self::ClickHouse { server, table } => {
                Table { name: table, ask: &statements(server, which)? }.list(&query, count)
            }
        };
        let records = records.map_err(failed)?;
        let scanned = Scanned::of_records(&records);
        Ok((records, scanned, Vec::new()))
    }

    /// Whether records are rows of a table, and in no files.
    pub(super) fn is_table(&self) -> bool {
        matches!(self, Self::ClickHouse { .. })
    }

    /// All that there is.
    pub(super) fn summary(&self) -> Result<(Summary, Vec<Writing>), Failure> {
        let summary = match self {
            Self::Datasets(args) => {
                let all = Query::new(Window::ALL, Filter::default());
                let needs = Needs { query: &all, keys: &[], step: Step::Records, live: true, rollups: false };
                let (view, writing) = writer::view(args, &needs)?;
                let mut summary = view.summary();
                writer::open(args)?.add_rollups(&mut summary).map_err(failed)?;
                return Ok((summary, writing));
            }
            Self::Router(server) => Summary::from_json(&document(server, "stats", &[])?),
            Self::ClickHouse { server, table } => {
                Table { name: table, ask: &|statement| rows(server, statement) }.summary()
            }
        };
        Ok((summary.map_err(failed)?, Vec::new()))
    }

    /// After an empty answer, reports the time span of existing records to standard error.
    pub(super) fn report_empty(&self) -> Result<(), Failure> {
        let summary = self.summary()?.0;
        let sums = summary.rollups.iter().map(|rollup| rollup.span_ns);
        let span_ns = summary.span_ns.into_iter().chain(sums);
        let text = match span_ns.reduce(|all, span| (all.0.min(span.0), all.1.max(span.1))) {
            None => "note: no flows match: the dataset is empty".to_owned(),
            Some((from, to)) => format!(
                "note: no flows match; the data begins at {} and ends at {}",
                format_time(from),
                format_time(to)
            ),
        };
        let _ = writeln!(std::io::stderr(), "{text}");
        Ok(())
    }
}

/// The records of a query, and the query as it is asked of them.
fn records(
    args: &FlowsArgs,
    question: &Question<'_>,
    query: Query,
    step: Step,
) -> Result<(Query, View, Vec<Writing>), Failure> {
    let which = question.which;
    // Sums do not tell flows apart.
    let step = if which.dedup { Step::Records } else { step };
    let rollups = !which.no_rollups;
    let threads = which.threads.map_or_else(|| writer::threads(args, query.threads), usize::from);
    let query = Query { threads, ..query };
    let needs = Needs { query: &query, keys: question.keys, step, live: true, rollups };
    let (view, writing) = writer::view(args, &needs)?;
    if !which.dedup {
        return Ok((query, view, writing));
    }
    let query = query.deduplicated(&view).map_err(failed)?;
    let missed = query.dedup.as_ref().map_or(0, |dedup| dedup.missed);
    if missed > 0 {
        let missed = counted(missed, "record");
        let _ = writeln!(
            std::io::stderr(),
            "warning: too many different flows: {missed} may count more than once"
        );
    }
    Ok((query, view, writing))
}

fn token(args: &FlowsArgs) -> Result<Option<String>, Failure> {
    let Some(path) = &args.token_file else { return Ok(std::env::var(TOKEN).ok()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("--token-file {}: {error}", path.display())))?;
    Ok(Some(text.lines().next().unwrap_or_default().trim().to_owned()))
}

/// A question as the API takes it.
fn parameters(question: &Question<'_>) -> Vec<(&'static str, String)> {
    let Question { which, keys, by, count } = question;
    let mut parameters = vec![("filter", which.filter.join(" ")), ("n", count.to_string())];
    if !keys.is_empty() {
        parameters.push(("key", keys.iter().map(|key| key.name).collect::<Vec<_>>().join(",")));
    }
    // A list has no order to choose.
    match by {
        Metric::Bytes => {}
        Metric::Packets => parameters.push(("by", "packets".to_owned())),
        Metric::Flows => parameters.push(("by", "flows".to_owned())),
    }
    parameters.extend(which.last.map(|span| ("last", seconds(span))));
    parameters.extend(which.from.map(|time| ("from", format_time(time))));
    parameters.extend(which.to.map(|time| ("to", format_time(time))));
    let flags = [("raw", which.raw), ("dedup", which.dedup), ("no_rollups", which.no_rollups)];
    parameters
        .extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (name, "1".to_owned())));
    parameters
}

fn seconds(span_ns: u64) -> String {
    format!("{}s", span_ns / SECOND_NS)
}

/// What a router's API says about stored flows.
fn document(server: &WebServer, what: &str, parameters: &[(&str, String)]) -> Result<Object, Failure> {
    let answer = server.get(&format!("/api/v1/flows/{what}"), parameters).map_err(|error| match &error {
        AskError::Refused { text, .. } => match received::document(text.as_bytes()) {
            Ok(problem) => {
                let detail = problem.get("detail").and_then(Value::as_str).unwrap_or(text);
                Failure::Run(format!("the router refuses: {detail}"))
            }
            Err(_) => Failure::Run(error.to_string()),
        },
        _ => Failure::Run(error.to_string()),
    })?;
    received::document(&answer).map_err(failed)
}

/// Asks ClickHouse, which cannot do everything.
fn statements<'a>(
    server: &'a WebServer,
    which: &FlowsWhichArgs,
) -> Result<impl Fn(&str) -> Result<Vec<u8>, StoreError> + 'a, Failure> {
    if which.dedup {
        let what =
            "--dedup is not for ClickHouse: ask a dataset or a router, or choose an `exporter` in the filter";
        return Err(Failure::Usage(what.to_owned()));
    }
    Ok(|statement: &str| rows(server, statement))
}

/// The rows of a statement.
fn rows(server: &WebServer, statement: &str) -> Result<Vec<u8>, StoreError> {
    let answer = server.post(&format!("{statement} FORMAT JSONEachRow"));
    answer.map_err(|error| StoreError::Asked(error.to_string()))
}
