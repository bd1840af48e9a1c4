//! The forwarding table and kernel sync, as tables.

use clap::Args;
use thalweg_config::MAIN_VRF;
use thalweg_node::control::{
    FibFilter, FibNextHop, FibRouteView, FibView, ForwardingView, KernelSyncView, KernelView,
    NeighborSyncView, Request, VrfView,
};
use thalweg_text::units::{bytes, count};
use thalweg_text::{Align, Table};

use super::{Does, Print, Question, Show};
use crate::client::{parse, parse_all};
use crate::tables::{remark, table, width};

pub(super) const SHOW: &[Show] = &[
    Show {
        name: "fib",
        aliases: &["routes", "route"],
        help: "Forwarding table: the route of one destination, or all routes",
        does: Does::reads::<FibArgs>(),
    },
    Show::asks(
        "vrf",
        "Tables of routes: their ports, and how many routes they have",
        Request::Vrfs,
        Print::Page(|items| Ok(vrfs(&parse_all(items)?))),
    ),
    Show::asks(
        "forwarding",
        "Installation of BGP's best routes in the forwarding table and the kernel",
        Request::Forwarding,
        Print::Page(|items| Ok(parse_all(items)?.iter().map(forwarding).collect())),
    ),
];

#[derive(Debug, Args)]
struct FibArgs {
    /// Show the route of this address or prefix
    #[arg(conflicts_with_all = ["inside", "family", "source", "limit"])]
    destination: Option<String>,
    /// The table of this VRF instead of the main one
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// Only this prefix and more specific ones
    #[arg(long, value_name = "PREFIX")]
    inside: Option<String>,
    /// Only this address family
    #[arg(long, value_name = "FAMILY", value_parser = ["ipv4", "ipv6"])]
    family: Option<String>,
    /// Only routes from this source
    #[arg(long, value_name = "SOURCE", value_parser = ["connected", "configured", "kernel", "bgp"])]
    source: Option<String>,
    /// Print at most this many routes
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl From<FibArgs> for Question {
    fn from(FibArgs { destination, vrf, inside, family, source, limit }: FibArgs) -> Self {
        match destination {
            Some(destination) => (
                Request::Fib { destination, vrf },
                Print::Page(|items| Ok(parse_all(items)?.iter().map(fib).collect())),
            ),
            None => (
                Request::FibRoutes(FibFilter { vrf, inside, family, source, limit, after: None }),
                Print::Rows(fib_columns, |item| Ok(fib_row(parse(item)?))),
            ),
        }
    }
}

fn forwarding(view: &ForwardingView) -> String {
    let mut rows = vec![
        ("IPv4 prefixes", count(view.prefixes.ipv4)),
        ("IPv6 prefixes", count(view.prefixes.ipv6)),
        ("Of a saved table, not repeated by BGP", count(view.saved_prefixes)),
        ("Not installed: next hop unresolved", count(view.unresolved_prefixes)),
        ("Not installed: no hop number left", count(view.without_number)),
        ("Discarding", count(view.discarding_prefixes)),
        ("Next hops", count(view.hops)),
        ("Changes of best routes", count(view.changes)),
        ("Installations and removals", count(view.installs)),
        ("Changes waiting", count(view.waiting)),
        ("Changes dropped, shards scanned again", format!("{}, {}", count(view.dropped), view.rescans)),
    ];
    rows.extend(view.table_bytes.map(|amount| ("Memory of the tables", bytes(amount))));
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
    if let Some(kernel_sync) = &view.kernel_sync {
        rows.extend(kernel_sync_rows(kernel_sync));
        rows.extend(kernel_sync.neighbors.iter().flat_map(neighbor_rows));
        failures = &kernel_sync.failures;
    }
    text += &table(&["What", "Now"], &[1], rows.into_iter().map(|(what, now)| vec![what.to_owned(), now]));
    let unresolved = view.unresolved.iter().map(|each| remark(&format!("unresolved: {each}")));
    text.extend(unresolved.chain(failures.iter().map(|each| remark(&format!("failed: {each}")))));
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
    let of =
        if view.vrf.is_empty() || view.vrf == MAIN_VRF { String::new() } else { format!(" of {}", view.vrf) };
    let by = view.prefix.as_ref().map_or_else(String::new, |prefix| format!(", by {prefix}{of}"));
    let source = view.source.as_ref().map_or_else(String::new, |source| format!(" ({source})"));
    let mut text = format!("{}: {}{to}{port}{by}{source}\n", view.destination, view.action);
    for way in view.next_hops.iter().filter(|way| !way.port.is_empty()) {
        let neighbor = way.neighbor.map_or_else(|| "the address itself".to_owned(), |each| each.to_string());
        let mac = way.mac.as_deref().unwrap_or("not resolved");
        let state = way.state.as_ref().map_or_else(String::new, |state| format!(", {state}"));
        text += &match view.action.as_str() {
            "local" => format!("  on port {}\n", way.port),
            _ => format!("  by port {} to {neighbor}, {mac}{state}\n", way.port),
        };
    }
    text
}

/// Routes in kernel sync.
fn kernel_sync_rows(view: &KernelSyncView) -> Vec<(&'static str, String)> {
    vec![
        ("Routes of others in the kernel", count(view.kernel_routes)),
        ("Imported, behind our own", format!("{}, {}", count(view.imported), count(view.imported_behind))),
        ("Changes without room", count(view.without_room)),
        (
            "Route notifications, times lost",
            format!("{}, {}", count(view.notifications), count(view.overruns)),
        ),
        (
            "Routes exported, not exported without a mirror",
            format!("{}, {}", count(view.exported), count(view.without_mirror)),
        ),
        ("Scans for drift", count(view.scans)),
        (
            "Drift of routes imported, exported",
            format!("{}, {}", count(view.import_drift), count(view.export_drift)),
        ),
        ("Last scan", view.last_scan.clone().unwrap_or_else(|| "none yet".to_owned())),
    ]
}

/// Neighbors in kernel sync.
fn neighbor_rows(view: &NeighborSyncView) -> Vec<(&'static str, String)> {
    let behind = [view.imported_behind, view.not_on_link, view.without_room].map(count).join(", ");
    vec![
        ("Neighbors imported", count(view.imported)),
        ("Not: configured, not on link, no room", behind),
        ("Neighbors in the kernel", count(view.exported)),
        (
            "Not: beyond the limit, set by others",
            format!("{}, {}", count(view.beyond_limit), count(view.left_alone)),
        ),
        (
            "Neighbor notifications, times lost",
            format!("{}, {}", count(view.notifications), count(view.overruns)),
        ),
        (
            "Drift of neighbors imported, exported",
            format!("{}, {}", count(view.import_drift), count(view.export_drift)),
        ),
    ]
}

fn vrfs(vrfs: &[VrfView]) -> String {
    Table::of("", vrfs)
        .words("VRF", |each| each.name.clone())
        .number("Number", |each| each.number.to_string())
        .words("Ports", |each| each.ports.join(", "))
        .number("IPv4 routes", |each| count(each.ipv4))
        .number("IPv6 routes", |each| count(each.ipv6))
        .table()
        .render(width())
}

/// The columns of the forwarding table's routes.
fn fib_columns() -> Table {
    let columns =
        [("Prefix", Align::Left), ("Source", Align::Left), ("Action", Align::Left), ("By", Align::Left)];
    Table::new("", columns)
}

fn fib_row(route: FibRouteView) -> Vec<String> {
    let way = |way: &FibNextHop| match way.neighbor {
        Some(neighbor) => format!("{neighbor} on {}", way.port),
        None => way.port.clone(),
    };
    let leak = route.leaks_from.iter().map(|vrf| format!("the routes of {vrf}"));
    let ways: Vec<String> = route.next_hops.iter().map(way).chain(leak).collect();
    vec![route.prefix, route.source, route.action, ways.join(", ")]
}
