//! `thalweg show`, `reload`, `stop`, `neighbor`: questions and commands to a router that runs, over its control socket.

mod flows;
mod nat;
mod packets;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_node::control::{
    FibView, ForwardingView, InStepView, KernelView, Line, MemoryView, NeighborView, NeighboursInStepView,
    Request, RestartView, RibView, RouteFilter, RouteView, UpdateGroupView,
};

use crate::cli::{Format, NeighborArgs, NeighborCommand, ReloadArgs, ShowArgs, ShowThing, StopArgs};
use crate::tables::{byte_size, count, table};
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
        ShowThing::Fib { destination } => Request::Fib { destination: destination.clone() },
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
            let mut items = Vec::new();
            // Tables need all rows; routes and sessions come in thousands and are printed as they come.
            let header = match &request {
                Request::Routes(_) => Some(ROUTE_COLUMNS),
                Request::NatSessions(_) => Some(nat::SESSION_COLUMNS),
                _ => None,
            };
            if let Some(header) = header {
                print(&format!("{header}\n"))?;
            }
            ask(&args.socket, &request, |item| {
                match request {
                    Request::Routes(_) => return print(&route_line(parse(item)?)),
                    Request::NatSessions(_) => return print(&nat::session_line(&parse(item)?)),
                    _ => {}
                }
                items.push(item);
                Ok(())
            })?;
            print(&render(&request, items)?)
        }
    }
}

pub(crate) fn reload(args: &ReloadArgs, format: Format) -> Result<(), Failure> {
    let mut changes = 0;
    ask(&args.socket, &Request::Reload, |item| {
        changes += 1;
        match (format, item) {
            (Format::Human, Value::String(text)) => print(&format!("{text}\n")),
            (_, item) => print(&format!("{item}\n")),
        }
    })?;
    match (format, changes) {
        (Format::Human, 0) => print("nothing changed\n"),
        _ => Ok(()),
    }
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

fn render(request: &Request, items: Vec<Value>) -> Result<String, Failure> {
    Ok(match request {
        Request::Neighbors => neighbors(&parse_all(items)?),
        Request::Neighbor { .. } => items.iter().map(|item| format!("{item:#}\n")).collect(),
        Request::Route { .. } => route(&parse_all(items)?),
        Request::Rib => parse_all::<RibView>(items)?.iter().map(rib).collect(),
        Request::UpdateGroups => groups(&parse_all(items)?),
        Request::Forwarding => parse_all::<ForwardingView>(items)?.iter().map(forwarding).collect(),
        Request::Fib { .. } => parse_all::<FibView>(items)?.iter().map(fib).collect(),
        Request::Memory => parse_all::<MemoryView>(items)?.iter().map(memory).collect(),
        Request::Ports => packets::ports(&parse_all(items)?),
        Request::Counters => parse_all(items)?.iter().map(packets::counters).collect(),
        Request::FlowCache => parse_all(items)?.iter().map(flows::cache).collect(),
        Request::Arp => packets::arp(&parse_all(items)?),
        Request::Queues => packets::queues(&parse_all(items)?),
        Request::NatBlocks(_) => nat::blocks(&parse_all(items)?),
        Request::NatCounters => parse_all(items)?.iter().map(nat::counters).collect(),
        Request::Routes(_) | Request::NatSessions(_) => String::new(),
        _ => items.iter().map(|item| format!("{item:#}\n")).collect(),
    })
}

fn neighbors(neighbors: &[NeighborView]) -> String {
    let rows = neighbors.iter().map(|each| {
        vec![
            each.name.clone(),
            each.address.to_string(),
            each.remote_as.clone(),
            each.state.clone(),
            each.uptime_s.map_or_else(String::new, uptime),
            count(each.accepted),
            count(each.updates_received),
            each.last_error.clone().unwrap_or_default(),
        ]
    });
    let header = ["Neighbour", "Address", "AS", "State", "Up", "Routes", "UPDATEs in", "Last error"];
    table(&header, &[5, 6], rows)
}

fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{:02}", seconds % 60),
        (0, _) => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
        _ => format!("{days}d {hours:02}h{minutes:02}"),
    }
}

const ROUTE_COLUMNS: &str = "   prefix             next hop         neighbour        pref  med   AS path";

fn route_line(route: RouteView) -> String {
    let mark = match (route.best, route.stale) {
        (true, false) => "* ",
        (true, true) => "*S",
        (false, true) => " S",
        (false, false) => "  ",
    };
    let origin = route
        .origin
        .chars()
        .next()
        .map_or('?', |c| if c == 'i' && route.origin == "incomplete" { '?' } else { c });
    format!(
        "{mark} {:<18} {:<16} {:<16} {:<5} {:<5} {} {origin}\n",
        route.prefix,
        route.next_hop,
        route.neighbor,
        route.local_pref,
        route.med.map_or_else(String::new, |med| med.to_string()),
        route.as_path,
    )
}

/// A route in full.
fn route(routes: &[RouteView]) -> String {
    if routes.is_empty() {
        return "no route\n".to_owned();
    }
    let mut text = String::new();
    for route in routes {
        let best = if route.best { ", best" } else { "" };
        let stale = if route.stale { ", stale" } else { "" };
        text += &format!("{} from {}{best}{stale}\n", route.prefix, route.neighbor);
        text +=
            &format!("    next hop {}, AS path {}, origin {}\n", route.next_hop, route.as_path, route.origin);
        let med = route.med.map_or_else(String::new, |med| format!(", MED {med}"));
        text += &format!("    local preference {}{med}, {} s old\n", route.local_pref, route.age_s);
        if !route.communities.is_empty() {
            text += &format!("    communities {}\n", route.communities.join(" "));
        }
        if let Some(why) = &route.why {
            text += &format!("    {why}\n");
        }
    }
    text
}

fn rib(view: &RibView) -> String {
    let rows = ["IPv4", "IPv6"].iter().enumerate().map(|(family, name)| {
        vec![(*name).to_owned(), count(view.prefixes[family]), count(view.paths[family])]
    });
    let attributes = count(view.attribute_sets);
    let restart = view.restart.as_ref().map(restart).unwrap_or_default();
    format!(
        "{}{attributes} attribute sets in {} shards, scheduling {}\n{restart}",
        table(&["Family", "Prefixes", "Routes"], &[1, 2], rows),
        view.shards,
        view.scheduling
    )
}

fn restart(view: &RestartView) -> String {
    let RestartView { deferred, selecting, awaited, left_s } = view;
    let mut text = String::new();
    if !deferred.is_empty() {
        let awaited: Vec<String> = awaited.iter().map(ToString::to_string).collect();
        text = format!(
            "restart: no {} routes are selected before End-of-RIB from {}, {left_s} s at most\n",
            deferred.join(" and "),
            awaited.join(", ")
        );
    }
    if !selecting.is_empty() {
        text += &format!("restart: {} routes are being selected\n", selecting.join(" and "));
    }
    text
}

fn groups(groups: &[UpdateGroupView]) -> String {
    let rows = groups.iter().map(|group| {
        vec![
            group.group.to_string(),
            group.members.to_string(),
            byte_size(group.log_bytes),
            count(group.messages),
            count(group.lagging),
            group.view.clone(),
        ]
    });
    table(
        &["Group", "Members", "Waiting", "UPDATEs", "Fell behind", "What its members share"],
        &[0, 1, 2, 3, 4],
        rows,
    )
}

fn memory(view: &MemoryView) -> String {
    let rows = [
        ("Prefixes and routes", view.rib),
        ("Attribute sets", view.attributes),
        ("Encoded, not yet taken", view.update_groups),
        ("Resident in all", view.resident),
        ("Resident at most", view.resident_peak),
    ];
    table(&["What", "Memory"], &[1], rows.map(|(what, octets)| vec![what.to_owned(), byte_size(octets)]))
}

fn forwarding(view: &ForwardingView) -> String {
    let mut rows = vec![
        ("IPv4 prefixes", count(view.prefixes[0])),
        ("IPv6 prefixes", count(view.prefixes[1])),
        ("Not installed: next hop unresolved", count(view.unresolved_prefixes)),
        ("Not installed: no hop number left", count(view.without_number)),
        ("Discarding", count(view.discarding_prefixes)),
        ("Next hops", count(view.hops)),
        ("Changes of best routes", count(view.changes)),
        ("Installations and removals", count(view.installs)),
        ("Changes waiting", count(view.waiting)),
        ("Changes dropped, shards looked at again", format!("{}, {}", count(view.dropped), view.rescans)),
    ];
    rows.extend(view.table_bytes.map(|octets| ("Memory of the tables", byte_size(octets))));
    let mut text = format!(
        "Best routes go into the {}\n",
        match view.install.as_str() {
            "fib" => "forwarding table",
            other => other,
        }
    );
    let mut failures = &Vec::new();
    if let Some(kernel) = &view.kernel {
        rows.extend(kernel_rows(kernel));
        failures = &kernel.failures;
    }
    if let Some(in_step) = &view.in_step {
        rows.extend(in_step_rows(in_step));
        rows.extend(in_step.neighbours.iter().flat_map(neighbour_rows));
        failures = &in_step.failures;
    }
    text += &table(&["What", "Now"], &[1], rows.into_iter().map(|(what, now)| vec![what.to_owned(), now]));
    let unresolved = view.unresolved.iter().map(|each| format!("unresolved: {each}\n"));
    text.extend(unresolved.chain(failures.iter().map(|each| format!("failed: {each}\n"))));
    text
}

fn kernel_rows(view: &KernelView) -> Vec<(&'static str, String)> {
    vec![
        ("Kernel's table, protocol", format!("{}, {}", view.table, view.protocol)),
        ("Installed or replaced", count(view.replaced)),
        ("Removed", count(view.deleted)),
        ("Refused by the kernel", count(view.failed)),
        ("Scans for drift, routes mended", format!("{}, {}", count(view.repairs), count(view.repaired))),
        ("Last scan", view.last_repair.clone().unwrap_or_default()),
    ]
}

fn fib(view: &FibView) -> String {
    let to = view.neighbor.map_or_else(String::new, |neighbor| format!(" to {neighbor}"));
    let port = view.port.as_ref().map_or_else(String::new, |port| format!(" on {port}"));
    let by = view.prefix.as_ref().map_or_else(String::new, |prefix| format!(", by {prefix}"));
    let source = view.source.as_ref().map_or_else(String::new, |source| format!(" ({source})"));
    let mut text = format!("{}: {}{to}{port}{by}{source}\n", view.destination, view.action);
    for way in view.ways.iter().filter(|way| !way.port.is_empty()) {
        let neighbor =
            way.neighbor.map_or_else(|| "whoever has the address".to_owned(), |each| each.to_string());
        let mac = way.mac.as_deref().unwrap_or("not resolved");
        let state = way.state.as_ref().map_or_else(String::new, |state| format!(", {state}"));
        text += &match view.action.as_str() {
            "local" => format!("  on port {}\n", way.port),
            _ => format!("  by port {} to {neighbor}, {mac}{state}\n", way.port),
        };
    }
    text
}

/// How the forwarding table and the kernel's are kept in step.
fn in_step_rows(view: &InStepView) -> Vec<(&'static str, String)> {
    vec![
        ("Others' routes in the kernel", count(view.kernel_routes)),
        ("Imported, behind our own", format!("{}, {}", count(view.imported), count(view.imported_behind))),
        ("Changes without room", count(view.without_room)),
        ("News of routes, times lost", format!("{}, {}", count(view.news), count(view.overruns))),
        (
            "Routes in the kernel, not for want of a mirror",
            format!("{}, {}", count(view.exported), count(view.without_mirror)),
        ),
        ("Looks for drift", count(view.scans)),
        ("Found imported, exported", format!("{}, {}", count(view.import_drift), count(view.export_drift))),
        ("Last look", view.last_scan.clone().unwrap_or_default()),
    ]
}

/// The same of neighbours.
fn neighbour_rows(view: &NeighboursInStepView) -> Vec<(&'static str, String)> {
    let behind = [view.imported_behind, view.not_on_link, view.without_room].map(count).join(", ");
    vec![
        ("Neighbours imported", count(view.imported)),
        ("Not: configured, not on link, no room", behind),
        ("Neighbours in the kernel", count(view.exported)),
        (
            "Not: beyond the limit, set by others",
            format!("{}, {}", count(view.beyond_limit), count(view.left_alone)),
        ),
        ("News of neighbours, times lost", format!("{}, {}", count(view.news), count(view.overruns))),
        (
            "Drift of neighbours imported, exported",
            format!("{}, {}", count(view.import_drift), count(view.export_drift)),
        ),
    ]
}
