//! `thalweg show`, `reload`, `stop`, `neighbor`: questions and commands to a router that runs, over its control socket.

mod bgp;
mod flows;
mod forwarding;
mod nat;
mod packets;
mod status;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thalweg_node::control::{FibFilter, Line, Request, RouteFilter, StatusView};
use thalweg_text::{Table, TableStream};

use crate::cli::{
    ClearArgs, ClearThing, Format, NeighborArgs, NeighborCommand, ReloadArgs, ShowArgs, ShowThing, StopArgs,
};
use crate::tables::stream;
use crate::{Failure, print};

pub(crate) fn run(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    let request = match &args.thing {
        ShowThing::Neighbors => Request::Neighbors,
        ShowThing::Neighbor { neighbor } => Request::Neighbor { neighbor: neighbor.clone() },
        ShowThing::Routes(filter) => Request::Routes(RouteFilter {
            inside: filter.inside.clone(),
            neighbor: filter.neighbor.clone(),
            through_as: filter.through_as,
            origin_as: filter.origin_as,
            community: filter.community.clone(),
            family: filter.family.clone(),
            best: filter.best,
            limit: filter.limit,
        }),
        ShowThing::Route { destination, exact, why } => {
            Request::Route { destination: destination.clone(), exact: *exact, why: *why }
        }
        ShowThing::Rib => Request::Rib,
        ShowThing::UpdateGroups => Request::UpdateGroups,
        ShowThing::Memory => Request::Memory,
        ShowThing::Forwarding => Request::Forwarding,
        ShowThing::Fib { destination: Some(destination), .. } => {
            Request::Fib { destination: destination.clone() }
        }
        ShowThing::Fib { destination: None, inside, family, source, limit } => {
            Request::FibRoutes(FibFilter {
                inside: inside.clone(),
                family: family.clone(),
                source: source.clone(),
                limit: *limit,
            })
        }
        ShowThing::Version => return version(&args.socket, format),
        ShowThing::Status => Request::Status,
        ShowThing::Config => Request::Config,
        ShowThing::Acl => Request::AccessLists,
        ShowThing::Policers => Request::Policers,
        ShowThing::Functions => Request::Functions,
        ShowThing::Ports => Request::Ports,
        ShowThing::Counters => Request::Counters,
        ShowThing::FlowCache => Request::FlowCache,
        ShowThing::Arp => Request::Arp,
        ShowThing::Queues => Request::Queues,
        ShowThing::Nat(args) => nat::request(args),
    };
    match format {
        Format::Json => ask(&args.socket, &request, |item| print(&format!("{item}\n"))),
        Format::Human => {
            if let Some(mut rows) = Rows::of(&request) {
                ask(&args.socket, &request, |item| rows.push(item))?;
                return rows.finish();
            }
            // Tables need all their rows.
            let mut items = Vec::new();
            ask(&args.socket, &request, |item| {
                items.push(item);
                Ok(())
            })?;
            print(&render(&request, items)?)
        }
    }
}

/// This program's version, and that of the router: they may be different after an update.
fn version(socket: &Path, format: Format) -> Result<(), Failure> {
    let program = env!("CARGO_PKG_VERSION");
    let mut router = None;
    ask(socket, &Request::Status, |item| {
        router = Some(parse::<StatusView>(item)?.version);
        Ok(())
    })?;
    match format {
        Format::Json => print(&format!("{}\n", json!({ "program": program, "router": router }))),
        Format::Human => {
            let router = router.unwrap_or_default();
            let hint = if router == program { "" } else { "  (restart it to run this program's)" };
            print(&format!("program  thalweg {program}\nrouter   thalweg {router}{hint}\n"))
        }
    }
}

pub(crate) fn reload(args: &ReloadArgs, format: Format) -> Result<(), Failure> {
    let mut changes = 0;
    let request = if args.dry_run { Request::CompareConfig } else { Request::Reload };
    ask(&args.socket, &request, |item| {
        changes += 1;
        match (format, item) {
            (Format::Human, Value::String(text)) => print(&format!("{text}\n")),
            (_, item) => print(&format!("{}\n", json!({ "change": item }))),
        }
    })?;
    match (format, changes) {
        (Format::Human, 0) if args.dry_run => print("nothing would change\n"),
        (Format::Human, 0) => print("nothing changed\n"),
        _ => Ok(()),
    }
}

pub(crate) fn clear(args: &ClearArgs, format: Format) -> Result<(), Failure> {
    let ClearThing::Nat(which) = &args.thing;
    ask(&args.socket, &nat::clear_request(which), |item| match format {
        Format::Json => print(&format!("{item}\n")),
        Format::Human => print(&nat::cleared(parse(item)?)),
    })
}

/// How long a router may take to end: sessions are told, routes removed, records and files finished.
const STOP_MAX: Duration = Duration::from_secs(60);

pub(crate) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let keep_routes = (args.keep_routes || args.remove_routes).then_some(args.keep_routes);
    ask(&args.socket, &Request::Stop { keep_routes }, |_| Ok(()))?;
    let end = Instant::now() + STOP_MAX;
    // The socket is the last that it takes away.
    while UnixStream::connect(&args.socket).is_ok() {
        if Instant::now() >= end {
            return Err(Failure::Control(format!(
                "the router has not ended within {} s; its log says what it waits for",
                STOP_MAX.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

pub(crate) fn neighbor(args: &NeighborArgs) -> Result<(), Failure> {
    let neighbor = args.neighbor.clone();
    let request = match &args.command {
        NeighborCommand::Refresh => Request::Refresh { neighbor },
        NeighborCommand::Reset { text } => {
            Request::Reset { neighbor, text: text.clone().unwrap_or_default() }
        }
        NeighborCommand::Shutdown { text } => {
            Request::Shutdown { neighbor, text: text.clone().unwrap_or_default() }
        }
        NeighborCommand::Start => Request::Start { neighbor },
    };
    ask(&args.socket, &request, |_| Ok(()))
}

/// Sends a request and hands out the items of the answer.
pub(crate) fn ask(
    socket: &Path,
    request: &Request,
    mut item: impl FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stream = connect(socket, request)?;
    for line in BufReader::new(stream).lines() {
        let line = serde_json::from_str(&line.map_err(|error| lost(socket, error))?)
            .map_err(|error| Failure::Control(format!("the router's answer is not understood: {error}")))?;
        match line {
            Line::Item(value) => item(value)?,
            Line::Done { .. } => return Ok(()),
            Line::Error(error) => return Err(Failure::Control(error)),
        }
    }
    Err(Failure::Control("the router ended in the middle of its answer".to_owned()))
}

/// Connects to a router and asks it something.
pub(crate) fn connect(socket: &Path, request: &Request) -> Result<UnixStream, Failure> {
    let mut stream = UnixStream::connect(socket).map_err(|error| lost(socket, error))?;
    let text = serde_json::to_string(request).map_err(|error| Failure::Control(error.to_string()))?;
    stream.write_all(format!("{text}\n").as_bytes()).map_err(|error| lost(socket, error))?;
    Ok(stream)
}

/// Why a router cannot be reached.
pub(crate) fn lost(socket: &Path, error: std::io::Error) -> Failure {
    let name = socket.display();
    Failure::Control(match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            format!("no router answers at {name}: is `thalweg run` running, with this --socket?")
        }
        std::io::ErrorKind::PermissionDenied => format!("{name} may not be opened: try as root"),
        _ => format!("{name}: {error}"),
    })
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(item: Value) -> Result<T, Failure> {
    serde_json::from_value(item)
        .map_err(|error| Failure::Control(format!("the router's answer is not understood: {error}")))
}

fn parse_all<T: serde::de::DeserializeOwned>(items: Vec<Value>) -> Result<Vec<T>, Failure> {
    items.into_iter().map(parse).collect()
}

/// Rows that are printed as they come: there may be millions.
struct Rows {
    stream: Option<TableStream>,
    request: Request,
}

impl Rows {
    /// For requests whose answers are long; nothing for the others.
    fn of(request: &Request) -> Option<Self> {
        let columns = match request {
            // Without BGP the router answers with its forwarding table: the first row says so.
            Request::Routes(_) => None,
            Request::FibRoutes(_) => Some(forwarding::fib_columns()),
            Request::NatSessions(_) => Some(nat::session_columns()),
            _ => return None,
        };
        Some(Self { stream: columns.map(stream), request: request.clone() })
    }

    fn push(&mut self, item: Value) -> Result<(), Failure> {
        let is_fib = matches!(self.request, Request::FibRoutes(_)) || item.get("as_path").is_none();
        let (columns, row): (fn() -> Table, _) = match &self.request {
            Request::NatSessions(_) => (nat::session_columns, nat::session_row(&parse(item)?)),
            _ if is_fib => (forwarding::fib_columns, forwarding::fib_row(parse(item)?)),
            _ => (bgp::route_columns, bgp::route_row(parse(item)?)),
        };
        print(&self.stream.get_or_insert_with(|| stream(columns())).push(row))
    }

    fn finish(self) -> Result<(), Failure> {
        match self.stream {
            Some(stream) => print(&stream.finish()),
            None => print("no routes\n"),
        }
    }
}

fn render(request: &Request, items: Vec<Value>) -> Result<String, Failure> {
    Ok(match request {
        Request::Neighbors => bgp::neighbors(&parse_all(items)?),
        Request::Neighbor { .. } => parse_all(items)?.iter().map(bgp::neighbor).collect(),
        Request::Route { .. } if items.first().is_some_and(|item| item.get("as_path").is_none()) => {
            parse_all(items)?.iter().map(forwarding::fib).collect()
        }
        Request::Route { .. } => bgp::route(&parse_all(items)?),
        Request::Rib => parse_all(items)?.iter().map(bgp::rib).collect(),
        Request::UpdateGroups => bgp::groups(&parse_all(items)?),
        Request::Forwarding => parse_all(items)?.iter().map(forwarding::forwarding).collect(),
        Request::Fib { .. } => parse_all(items)?.iter().map(forwarding::fib).collect(),
        Request::Memory => parse_all(items)?.iter().map(bgp::memory).collect(),
        Request::Status => parse_all(items)?.iter().map(status::status).collect(),
        Request::Config => parse_all(items)?.iter().map(status::config).collect(),
        Request::Ports => packets::ports(&parse_all(items)?),
        Request::Counters => parse_all(items)?.iter().map(packets::counters).collect(),
        Request::FlowCache => parse_all(items)?.iter().map(flows::cache).collect(),
        Request::Arp => packets::arp(&parse_all(items)?),
        Request::Queues => packets::queues(&parse_all(items)?),
        Request::AccessLists => packets::access_lists(&parse_all(items)?),
        Request::Policers => packets::policers(&parse_all(items)?),
        Request::NatBlocks(_) => nat::blocks(&parse_all(items)?),
        Request::NatCounters => parse_all(items)?.iter().map(nat::counters).collect(),
        _ => items.iter().map(|item| format!("{item:#}\n")).collect(),
    })
}
