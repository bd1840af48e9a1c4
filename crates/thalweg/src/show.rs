//! `thalweg show`, `bgp`, `reload`, `stop`: questions and commands to a router that runs, over its control socket.

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
use thalweg_node::control::{BgpRequest, FibFilter, Line, Request, StatusView};
use thalweg_text::TableStream;

use crate::cli::{
    BgpArgs, BgpCommand, ClearArgs, ClearThing, Format, ReloadArgs, SessionEndArgs, ShowArgs, ShowThing,
    StopArgs,
};
use crate::tables::stream;
use crate::{Failure, print};

pub(crate) fn run(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    let request = match &args.thing {
        ShowThing::Version => return version(&args.socket, format),
        ShowThing::Status => Request::Status,
        ShowThing::Config => Request::Config,
        ShowThing::Ports => Request::Ports,
        ShowThing::Neighbors => Request::Neighbors,
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
        ShowThing::Forwarding => Request::Forwarding,
        ShowThing::Bgp(args) => Request::Bgp(bgp::request(&args.thing)),
        ShowThing::Counters => Request::Counters,
        ShowThing::Acl => Request::AccessLists,
        ShowThing::Policers => Request::Policers,
        ShowThing::Queues => Request::Queues,
        ShowThing::FlowCache => Request::FlowCache,
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

pub(crate) fn bgp_command(args: BgpArgs) -> Result<(), Failure> {
    let request = match args.command {
        BgpCommand::Refresh { neighbor } => BgpRequest::Refresh { neighbor },
        BgpCommand::Reset(SessionEndArgs { neighbor, text }) => BgpRequest::Reset { neighbor, text },
        BgpCommand::Shutdown(SessionEndArgs { neighbor, text }) => BgpRequest::Shutdown { neighbor, text },
        BgpCommand::Start { neighbor } => BgpRequest::Start { neighbor },
    };
    ask(&args.socket, &Request::Bgp(request), |_| Ok(()))
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
    stream: TableStream,
    request: Request,
}

impl Rows {
    /// For requests whose answers are long; nothing for the others.
    fn of(request: &Request) -> Option<Self> {
        let columns = match request {
            Request::Bgp(BgpRequest::Routes(_)) => bgp::route_columns(),
            Request::FibRoutes(_) => forwarding::fib_columns(),
            Request::NatSessions(_) => nat::session_columns(),
            _ => return None,
        };
        Some(Self { stream: stream(columns), request: request.clone() })
    }

    fn push(&mut self, item: Value) -> Result<(), Failure> {
        let row = match &self.request {
            Request::NatSessions(_) => nat::session_row(&parse(item)?),
            Request::FibRoutes(_) => forwarding::fib_row(parse(item)?),
            _ => bgp::route_row(parse(item)?),
        };
        print(&self.stream.push(row))
    }

    fn finish(self) -> Result<(), Failure> {
        print(&self.stream.finish())
    }
}

fn render(request: &Request, items: Vec<Value>) -> Result<String, Failure> {
    Ok(match request {
        Request::Bgp(request) => bgp::answer(request, items)?,
        Request::Forwarding => parse_all(items)?.iter().map(forwarding::forwarding).collect(),
        Request::Fib { .. } => parse_all(items)?.iter().map(forwarding::fib).collect(),
        Request::Status => parse_all(items)?.iter().map(status::status).collect(),
        Request::Config => parse_all(items)?.iter().map(status::config).collect(),
        Request::Ports => packets::ports(&parse_all(items)?),
        Request::Counters => parse_all(items)?.iter().map(packets::counters).collect(),
        Request::FlowCache => parse_all(items)?.iter().map(flows::cache).collect(),
        Request::Neighbors => packets::neighbors(&parse_all(items)?),
        Request::Queues => packets::queues(&parse_all(items)?),
        Request::AccessLists => packets::access_lists(&parse_all(items)?),
        Request::Policers => packets::policers(&parse_all(items)?),
        Request::NatBlocks(_) => nat::blocks(&parse_all(items)?),
        Request::NatCounters => parse_all(items)?.iter().map(nat::counters).collect(),
        _ => items.iter().map(|item| format!("{item:#}\n")).collect(),
    })
}
