//! `thalweg show bgp`: its requests, and the answers in text.

use clap::Args;
use serde_json::Value;
use thalweg_node::control::{
    BgpNeighborView, BgpRequest, ByFamily, MemoryView, MessagesView, NegotiatedView, Request, RestartView,
    RibView, RouteFilter, RouteView, RpkiView, UpdateGroupView, ValidityView,
};
use thalweg_text::units::{age, bytes, count, counted};
use thalweg_text::{Align, Table};

use super::status::facts;
use super::{Does, Print, Question, Show};
use crate::client::{parse, parse_all};
use crate::received::{path_text, sent_route_columns, sent_route_row};
use crate::tables::{table, width};

pub(super) const SHOW: &[Show] = &[Show {
    name: "bgp",
    aliases: &[],
    help: "BGP: neighbors, routes, table sizes",
    does: Does::Has(BGP, EXAMPLES),
}];

const EXAMPLES: &str = "\
Examples:
  thalweg show bgp neighbors
  thalweg show bgp route 192.0.2.1 --why
  thalweg show bgp routes --neighbor transit-1 --origin-as 64496 --format json
  thalweg show bgp routes --neighbor transit-1 --received
  thalweg show bgp routes --received-from transit-1 --pre-policy
  thalweg show bgp routes --rejected --neighbor transit-1
  thalweg show bgp routes --advertised-to peer-3
  thalweg show bgp rpki 192.0.2.0/24 --origin-as 64496";

const BGP: &[Show] = &[
    Show::asks(
        "neighbors",
        "BGP neighbors, one per line",
        Request::Bgp(BgpRequest::Neighbors),
        Print::Page(|items| Ok(neighbors(&parse_all(items)?))),
    ),
    Show::reads::<NeighborArgs>(
        "neighbor",
        "Details of a neighbor: state, timers, capabilities, counters, last error",
    ),
    Show::reads::<RouteFilterArgs>("routes", "BGP routes, one per line"),
    Show::reads::<RouteArgs>("route", "BGP routes to one destination, in full"),
    Show::asks(
        "rib",
        "Numbers of prefixes, routes and attribute sets",
        Request::Bgp(BgpRequest::Rib),
        Print::Page(|items| Ok(parse_all(items)?.iter().map(rib).collect())),
    ),
    Show::reads::<RpkiArgs>(
        "rpki",
        "Route origin validation: sources of VRPs, routes by validity; the VRPs that cover a prefix",
    ),
    Show::asks(
        "update-groups",
        "Update groups: neighbors that receive the same UPDATEs",
        Request::Bgp(BgpRequest::UpdateGroups),
        Print::Page(|items| Ok(groups(&parse_all(items)?))),
    ),
    Show::asks(
        "memory",
        "Memory by use",
        Request::Bgp(BgpRequest::Memory),
        Print::Page(|items| Ok(parse_all(items)?.iter().map(memory).collect())),
    ),
    Show::asks(
        "functions",
        "Time by function, if the router was started with --profile-functions",
        Request::Bgp(BgpRequest::Functions),
        Print::Page(|items| Ok(items.into_iter().map(functions).collect())),
    ),
];

#[derive(Debug, Args)]
struct NeighborArgs {
    /// The neighbor's name or address
    neighbor: String,
}

impl From<NeighborArgs> for Question {
    fn from(NeighborArgs { neighbor: name }: NeighborArgs) -> Self {
        let print = Print::Page(|items| Ok(parse_all(items)?.iter().map(neighbor).collect()));
        (Request::Bgp(BgpRequest::Neighbor { neighbor: name }), print)
    }
}

#[derive(Debug, Args)]
struct RpkiArgs {
    /// Show the VRPs that cover this prefix
    prefix: Option<String>,
    /// Say whether they let this AS originate it
    #[arg(long, value_name = "AS", requires = "prefix")]
    origin_as: Option<u32>,
}

impl From<RpkiArgs> for Question {
    fn from(RpkiArgs { prefix, origin_as }: RpkiArgs) -> Self {
        match prefix {
            None => {
                let print = Print::Page(|items| Ok(parse_all(items)?.iter().map(rpki).collect()));
                (Request::Bgp(BgpRequest::Rpki), print)
            }
            Some(prefix) => {
                let print = Print::Page(|items| Ok(parse_all(items)?.iter().map(validity).collect()));
                (Request::Bgp(BgpRequest::Vrps { prefix, origin_as }), print)
            }
        }
    }
}

#[derive(Debug, Args)]
struct RouteFilterArgs {
    /// Only this prefix and more specific ones
    #[arg(long, value_name = "PREFIX")]
    inside: Option<String>,
    /// Only routes from this neighbor, by name or address, as import left them
    #[arg(long, visible_alias = "received-from", value_name = "NEIGHBOR")]
    neighbor: Option<String>,
    /// Only routes with this AS in the AS path
    #[arg(long, value_name = "AS")]
    through_as: Option<u32>,
    /// Only routes that this AS originated
    #[arg(long, value_name = "AS")]
    origin_as: Option<u32>,
    /// Only routes with this community: 64496:1 or 64496:1:2
    #[arg(long, value_name = "COMMUNITY")]
    community: Option<String>,
    /// Only this address family
    #[arg(long, value_name = "FAMILY", value_parser = ["ipv4", "ipv6"])]
    family: Option<String>,
    /// Only best routes
    #[arg(long)]
    best: bool,
    /// Routes as neighbors sent them, before import policy: of those with `keep_rejected`
    #[arg(long, conflicts_with_all = ["best", "advertised_to", "received"])]
    pre_policy: bool,
    /// Routes that import rejects, as they were sent, and why: of neighbors with `keep_rejected`
    #[arg(long, conflicts_with_all = ["best", "advertised_to", "received", "pre_policy"])]
    rejected: bool,
    /// Routes as the neighbor sent them, before import: asks it to send them again (ROUTE-REFRESH)
    #[arg(long, requires = "neighbor", conflicts_with_all = ["best", "advertised_to"])]
    received: bool,
    /// Routes that this neighbor is sent, by its name or address, as export leaves them
    #[arg(long, value_name = "NEIGHBOR", conflicts_with = "best")]
    advertised_to: Option<String>,
    /// Best routes of others that export keeps from this neighbor, given by its name or address
    #[arg(long, value_name = "NEIGHBOR", conflicts_with_all = ["best", "advertised_to", "pre_policy", "rejected", "received"])]
    not_advertised_to: Option<String>,
    /// Only say how many there are
    #[arg(long, conflicts_with = "received")]
    count: bool,
    /// Print at most this many routes
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl From<RouteFilterArgs> for Question {
    fn from(args: RouteFilterArgs) -> Self {
        let RouteFilterArgs {
            inside, neighbor, through_as, origin_as, community, family, best, limit, ..
        } = args;
        let RouteFilterArgs { received, advertised_to, not_advertised_to, pre_policy, rejected, .. } = args;
        let print = match (received, &advertised_to) {
            (true, _) => Print::Received,
            (false, _) if args.count => Print::Count,
            (false, Some(_)) => Print::Rows(sent_route_columns, |item| Ok(sent_route_row(parse(item)?))),
            (false, None) if rejected => {
                Print::Rows(rejected_columns, |item| Ok(rejected_row(&parse(item)?)))
            }
            (false, None) => Print::Rows(route_columns, |item| Ok(route_row(parse(item)?))),
        };
        let filter = RouteFilter {
            inside,
            neighbor,
            through_as,
            origin_as,
            community,
            family,
            best,
            pre_policy,
            rejected,
            advertised_to,
            not_advertised_to,
            limit,
            ..RouteFilter::default()
        };
        (Request::Bgp(BgpRequest::Routes(filter)), print)
    }
}

#[derive(Debug, Args)]
struct RouteArgs {
    /// An address (its most specific prefix is shown) or a prefix
    destination: String,
    /// Only exactly this prefix, not a less specific one
    #[arg(long)]
    exact: bool,
    /// Say why each route is, or is not, the best
    #[arg(long)]
    why: bool,
}

impl From<RouteArgs> for Question {
    fn from(RouteArgs { destination, exact, why }: RouteArgs) -> Self {
        let print = Print::Page(|items| Ok(route(&parse_all(items)?)));
        (Request::Bgp(BgpRequest::Route { destination, exact, why }), print)
    }
}

/// Thousands of samples over time are only useful in JSON.
fn functions(mut times: Value) -> String {
    if let Some(progress) = times.get_mut("progress").and_then(Value::as_object_mut) {
        progress.remove("points");
    }
    format!("{times:#}\n")
}

fn neighbors(neighbors: &[BgpNeighborView]) -> String {
    neighbor_table(neighbors).render(width())
}

fn neighbor_table(neighbors: &[BgpNeighborView]) -> Table {
    Table::of("", neighbors)
        .words("Neighbor", |each| each.name.clone())
        .words("Address", |each| each.address.to_string())
        .number("AS", |each| each.remote_as.clone())
        .words("State", |each| each.state.clone())
        .words("Up", |each| each.uptime_s.map_or_else(String::new, age))
        .number("Routes", |each| count(each.accepted))
        .number("Rejected", |each| {
            each.rejected_by_family.map_or_else(String::new, |of| count(of.ipv4 + of.ipv6))
        })
        .number("Sent", |each| each.sent_by_family.map_or_else(String::new, |of| count(of.ipv4 + of.ipv6)))
        .number("UPDATEs in", |each| count(each.updates_received))
        .words("Last error", |each| each.last_error.clone().unwrap_or_default())
        .optional(&["Last error", "UPDATEs in", "Rejected", "Sent", "Address"])
        .table()
}

/// A neighbor with all details.
fn neighbor(view: &BgpNeighborView) -> String {
    let mut text = format!("{}, {}, AS {}\n", view.name, view.address, view.remote_as);
    let since = match (view.uptime_s, view.down_s) {
        (Some(seconds), _) => format!(", up for {}", age(seconds)),
        (None, Some(seconds)) => format!(", down for {}", age(seconds)),
        (None, None) => String::new(),
    };
    let mut rows = vec![("state", format!("{}{since}", view.state))];
    rows.extend(view.description.clone().map(|description| ("description", description)));
    rows.push(("went down", counted(view.flaps, "time")));
    rows.push(("last error", view.last_error.clone().unwrap_or_else(|| "none".to_owned())));
    let ByFamily { ipv4, ipv6 } = view.accepted_by_family;
    rows.push(("routes accepted", format!("{} IPv4, {} IPv6", count(ipv4), count(ipv6))));
    if let Some(ByFamily { ipv4, ipv6 }) = view.rejected_by_family {
        rows.push(("routes rejected", format!("{} IPv4, {} IPv6", count(ipv4), count(ipv6))));
    }
    if let Some(ByFamily { ipv4, ipv6 }) = view.kept_by_family {
        rows.push(("kept as sent", format!("{} IPv4, {} IPv6", count(ipv4), count(ipv6))));
    }
    if let Some(ByFamily { ipv4, ipv6 }) = view.sent_by_family {
        rows.push(("routes sent", format!("{} IPv4, {} IPv6", count(ipv4), count(ipv6))));
    }
    let (updates, messages) = (count(view.updates_received), count(view.messages_received));
    rows.push(("received", format!("{messages} messages, {updates} of them UPDATEs")));
    rows.push(("sent", format!("{} messages, {}", count(view.messages_sent), bytes(view.bytes_sent))));
    rows.push(("types received", by_type(view.received_by_type)));
    rows.push(("types sent", by_type(view.sent_by_type)));
    if let Some(negotiated) = &view.negotiated {
        rows.extend(agreed(negotiated));
    }
    text += &facts(&rows);
    text.push('\n');
    text += &table(&["Counter", "Value"], &[1], counters(&view.counters));
    text
}

fn by_type(messages: MessagesView) -> String {
    let MessagesView { open, update, notification, keepalive, route_refresh } = messages;
    let types = [
        (open, "OPEN"),
        (update, "UPDATE"),
        (notification, "NOTIFICATION"),
        (keepalive, "KEEPALIVE"),
        (route_refresh, "ROUTE-REFRESH"),
    ];
    types.map(|(number, name)| format!("{} {name}", count(number))).join(", ")
}

/// What both ends negotiated.
fn agreed(view: &NegotiatedView) -> Vec<(&'static str, String)> {
    let timers = match view.hold_time_s {
        0 => "none (hold time 0)".to_owned(),
        hold_time_s => format!("hold {hold_time_s} s, keepalive {} s", hold_time_s / 3),
    };
    let families = |of: ByFamily<bool>| match (of.ipv4, of.ipv6) {
        (true, true) => Some("IPv4 and IPv6"),
        (true, false) => Some("IPv4"),
        (false, true) => Some("IPv6"),
        (false, false) => None,
    };
    let named = [
        (view.four_octet_as, "four-byte AS numbers"),
        (view.extended_messages, "extended messages"),
        (view.route_refresh, "route refresh"),
        (view.enhanced_refresh, "enhanced route refresh"),
        (view.graceful_restart, "graceful restart"),
    ];
    let mut capabilities: Vec<String> =
        named.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.to_owned()).collect();
    capabilities.extend(families(view.add_path_receive).map(|of| format!("add-path from it ({of})")));
    capabilities.extend(families(view.add_path_send).map(|of| format!("add-path to it ({of})")));
    let none = || "none".to_owned();
    vec![
        ("its router ID", view.router_id.clone()),
        ("timers", timers),
        ("families", if view.families.is_empty() { none() } else { view.families.join(", ") }),
        ("capabilities", if capabilities.is_empty() { none() } else { capabilities.join(", ") }),
    ]
}

/// Counters by name; a counter with several parts has a row for each.
fn counters(value: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = name.replace('_', " ");
        match value {
            Value::Object(parts) => rows.extend(
                parts
                    .iter()
                    .map(|(part, value)| vec![format!("{name}: {}", part.replace('_', " ")), number(value)]),
            ),
            value => rows.push(vec![name, number(value)]),
        }
    }
    rows
}

fn number(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.as_u64().map_or_else(|| value.to_string(), count),
    }
}

/// The columns of routes: `*` is the best, `S` is stale.
fn route_columns() -> Table {
    let columns = [
        ("", Align::Left),
        ("Prefix", Align::Left),
        ("Next hop", Align::Left),
        ("Neighbor", Align::Left),
        ("Pref", Align::Right),
        ("MED", Align::Right),
        ("AS path", Align::Left),
    ];
    Table::new("", columns).optional(&["MED", "Neighbor", "Pref"])
}

fn route_row(route: RouteView) -> Vec<String> {
    let mark = match (route.best, route.stale) {
        (true, false) => "*",
        (true, true) => "*S",
        (false, true) => " S",
        (false, false) => "",
    };
    vec![
        mark.to_owned(),
        route.prefix,
        route.next_hop,
        route.neighbor,
        count(route.local_pref.into()),
        route.med.map_or_else(String::new, |med| count(med.into())),
        path_text(&route.as_path, &route.origin),
    ]
}

/// The columns of rejected routes.
fn rejected_columns() -> Table {
    let columns = [
        ("Prefix", Align::Left),
        ("Neighbor", Align::Left),
        ("Rejected by", Align::Left),
        ("AS path", Align::Left),
    ];
    Table::new("", columns)
}

fn rejected_row(route: &RouteView) -> Vec<String> {
    let by = route.rule.as_ref().or(route.why.as_ref()).cloned().unwrap_or_default();
    vec![route.prefix.clone(), route.neighbor.clone(), by, path_text(&route.as_path, &route.origin)]
}

/// Routes with all details.
fn route(routes: &[RouteView]) -> String {
    if routes.is_empty() {
        return "no route\n".to_owned();
    }
    let mut text = String::new();
    for route in routes {
        let best = if route.best { ", best" } else { "" };
        let stale = if route.stale { ", stale" } else { "" };
        text += &format!("{} from {}{best}{stale}\n", route.prefix, route.neighbor);
        let path = if route.as_path.is_empty() { "empty" } else { &route.as_path };
        text += &format!("    next hop {}, AS path {path}, origin {}\n", route.next_hop, route.origin);
        let med = route.med.map_or_else(String::new, |med| format!(", MED {med}"));
        text += &format!("    local preference {}{med}, {} old\n", route.local_pref, age(route.age_s));
        if route.discard {
            text += "    packets to it are discarded\n";
        }
        if !route.communities.is_empty() {
            text += &format!("    communities {}\n", route.communities.join(" "));
        }
        if let Some(validity) = &route.validity {
            text += &format!("    RPKI: {validity}\n");
        }
        if let Some(why) = &route.why {
            text += &format!("    {why}\n");
        }
    }
    text
}

fn rpki(view: &RpkiView) -> String {
    let mut sources = Table::of("", &view.sources)
        .words("", |each| if each.used { "*" } else { "" }.to_owned())
        .words("Source", |each| each.source.clone())
        .words("State", |each| each.state.clone())
        .number("Session", |each| each.session.map_or_else(String::new, |session| session.to_string()))
        .number("Serial", |each| each.serial.map_or_else(String::new, |serial| serial.to_string()))
        .number("IPv4 VRPs", |each| count(each.vrps.ipv4))
        .number("IPv6 VRPs", |each| count(each.vrps.ipv6))
        .words("Age", |each| each.age_s.map_or_else(String::new, age))
        .words("Last error", |each| each.last_error.clone().unwrap_or_default())
        .optional(&["Last error", "Session", "Serial"])
        .table()
        .render(width());
    let rows = [
        ("VRPs", view.vrps),
        ("valid routes", view.valid_paths),
        ("not-found routes", view.not_found_paths),
        ("invalid routes", view.invalid_paths),
    ];
    let rows = rows.map(|(name, of)| vec![name.to_owned(), count(of.ipv4), count(of.ipv6)]);
    sources.push('\n');
    sources += &table(&["", "IPv4", "IPv6"], &[1, 2], rows);
    sources += &format!(
        "{} of VRPs; {} judged again because of their changes\n",
        bytes(view.bytes),
        counted(view.revalidated, "route")
    );
    sources
}

fn validity(view: &ValidityView) -> String {
    let mut text = match (&view.validity, view.origin_as) {
        (Some(validity), Some(origin)) => format!("{} of AS {origin} is {validity}\n", view.prefix),
        _ => String::new(),
    };
    if view.vrps.is_empty() {
        return text + &format!("no VRP covers {}\n", view.prefix);
    }
    let rows = view.vrps.iter().map(|vrp| {
        let mark = if vrp.matches == Some(true) { "*" } else { "" };
        vec![mark.to_owned(), vrp.prefix.clone(), vrp.max_length.to_string(), vrp.asn.to_string()]
    });
    text += &table(&["", "VRP", "Max length", "AS"], &[2, 3], rows);
    text
}

fn rib(view: &RibView) -> String {
    let (prefixes, paths) = (view.prefixes, view.paths);
    let families = [("IPv4", prefixes.ipv4, paths.ipv4), ("IPv6", prefixes.ipv6, paths.ipv6)];
    let rows = families.map(|(name, prefixes, paths)| vec![name.to_owned(), count(prefixes), count(paths)]);
    let attributes = count(view.attribute_sets);
    let strangers = match view.unknown_refused {
        0 => String::new(),
        refused => format!("{} connections from unknown addresses refused\n", count(refused)),
    };
    let unkept = match view.kept_refused {
        0 => String::new(),
        refused => format!("{} not kept as sent, for lack of room\n", counted(refused, "route")),
    };
    let restart = view.restart.as_ref().map(restart).unwrap_or_default();
    format!(
        "{}{attributes} attribute sets in {} shards, scheduling {}\n{strangers}{unkept}{restart}",
        table(&["Family", "Prefixes", "Routes"], &[1, 2], rows),
        view.shards,
        view.scheduling
    )
}

fn restart(view: &RestartView) -> String {
    let RestartView { deferred, selecting, awaited, remaining_s } = view;
    let mut text = String::new();
    if !deferred.is_empty() {
        let awaited: Vec<String> = awaited.iter().map(ToString::to_string).collect();
        text = format!(
            "restart: no {} routes are selected before End-of-RIB from {}, {remaining_s} s at most\n",
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
    Table::of("", groups)
        .number("Group", |group| group.group.to_string())
        .number("Members", |group| group.members.to_string())
        .number("Waiting", |group| bytes(group.log_bytes))
        .number("UPDATEs", |group| count(group.messages))
        .number("Fell behind", |group| count(group.lagging))
        .words("What its members share", |group| group.view.clone())
        .table()
        .render(width())
}

fn memory(view: &MemoryView) -> String {
    let rows = [
        ("Prefixes and routes", view.rib),
        ("Routes as sent", view.received),
        ("Attribute sets", view.attributes),
        ("Encoded, not yet taken", view.update_groups),
        ("Resident in all", view.resident),
        ("Resident at most", view.resident_peak),
    ];
    table(&["What", "Memory"], &[1], rows.map(|(what, amount)| vec![what.to_owned(), bytes(amount)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_for_programs() {
        let progress = serde_json::json!({ "updates": 77, "points": [[123_456, 77]] });
        let text = functions(serde_json::json!({ "functions": {}, "progress": progress }));
        assert!(text.contains("77") && !text.contains("123456"), "{text}");
    }

    fn view() -> BgpNeighborView {
        serde_json::from_value(serde_json::json!({
            "name": "transit-1", "address": "2001:db8:1234:5678:9abc:def0:1234:5678", "as": "4200000001",
            "description": "the first", "state": "Established", "uptime_s": 273_600, "accepted": 1_062_046,
            "accepted_by_family": { "ipv4": 901_899, "ipv6": 160_147 }, "updates_received": 12_345_678,
            "messages_received": 12_350_000, "messages_sent": 9_120, "bytes_sent": 1_234_567, "flaps": 1,
            "last_error": "hold timer expired",
            "negotiated": {
                "families": ["IPv4", "IPv6"], "router_id": "192.0.2.1", "hold_time_s": 90, "four_octet_as": true,
                "extended_messages": false, "route_refresh": true, "enhanced_refresh": false,
                "add_path_receive": { "ipv4": true, "ipv6": false }, "add_path_send": { "ipv4": false, "ipv6": false },
                "graceful_restart": true
            },
            "counters": { "withdrawn": 2_800_899, "announced_rejected": { "first_as": 577_703 } }
        }))
        .expect("a neighbor")
    }

    #[test]
    fn neighbors_fit_every_terminal_with_all_their_digits() {
        for width in [60, 80, 100, 200] {
            let text = neighbor_table(&[view()]).render(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for whole in ["transit-1", "4200000001", "Established", "1,062,046", "3d 4h"] {
                assert!(text.contains(whole), "{width}: {whole} is not in\n{text}");
            }
        }
    }

    #[test]
    fn a_neighbor_is_a_page_and_not_json() {
        let down = BgpNeighborView { uptime_s: None, down_s: Some(90), state: "Active".to_owned(), ..view() };
        assert!(neighbor(&down).contains("Active, down for 1m 30s\n"), "{}", neighbor(&down));
        let page = neighbor(&view());
        let expected = [
            "state            Established, up for 3d 4h\n",
            "description      the first\n",
            "went down        1 time\n",
            "last error       hold timer expired\n",
            "routes accepted  901,899 IPv4, 160,147 IPv6\n",
            "timers           hold 90 s, keepalive 30 s\n",
            "capabilities     four-byte AS numbers, route refresh, graceful restart, add-path from it (IPv4)\n",
            "announced rejected: first as    577,703\n",
            "withdrawn                     2,800,899\n",
        ];
        for line in expected {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        assert!(!page.contains('{') && !page.contains('"'), "{page}");
    }
}
