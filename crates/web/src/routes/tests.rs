//! The table holds, and `openapi.json` says the same.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde::Serialize;
use serde_json::json;
use thalweg_node::control::*;
use thalweg_node::trace::{TraceStep, TraceView};

use super::*;
use crate::query::{Kind, read_body, read_query};

#[test]
fn every_row_is_found_by_its_own_path_and_no_other_row() {
    for row in ROWS {
        let path = row.path.replace("{name}", "r1").replace("{rest}", "10.0.0.0/8");
        let (found, _) = find(&row.method, &path).unwrap_or_else(|problem| panic!("{path}: {problem:?}"));
        assert!(std::ptr::eq(found, row), "{path} is {}", found.path);
    }
    let kind = |method, path| find(&method, path).err().map(|problem| problem.kind);
    assert_eq!(kind(Method::GET, "/api/v2/status"), Some(ProblemKind::NotFound));
    assert_eq!(kind(Method::PUT, "/api/v1/status"), Some(ProblemKind::WrongMethod));
}

#[test]
fn everything_that_acts_needs_the_right_to() {
    for row in ROWS {
        let is_session = row.path == "/api/v1/session";
        let reads = row.method == Method::GET || row.path == "/api/v1/trace" || is_session;
        assert!(reads || row.needs == Some(Operate), "{} {}", row.method, row.path);
    }
}

#[test]
fn a_capture_has_an_end() {
    let asked = |values: Value| {
        let Value::Object(values) = values else { panic!("an object") };
        capture(&Call { place: String::new(), values })
    };
    let Ok(Request::Capture(default)) = asked(json!({})) else { panic!("a capture") };
    assert_eq!((default.seconds, default.count), (Some(10), Some(CAPTURE_PACKETS_MAX)));
    for bad in [
        json!({ "seconds": 0 }),
        json!({ "seconds": 61 }),
        json!({ "count": 0 }),
        json!({ "count": 100_001 }),
    ] {
        assert!(asked(bad.clone()).is_err(), "{bad}");
    }
}

/// The methods and paths in the first column of a text's tables. A path without a slash before it is below that of the API,
/// and words in capitals stand for any part. `usual`: the method of paths that have none before them.
fn named(text: &str, usual: &str) -> BTreeSet<(String, String)> {
    let full = |span: &str| {
        let path = span.split('?').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/api/v1/{path}") };
        let is_variable = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
        let parts = path.split('/').map(|part| if is_variable(&part) { "{}" } else { part });
        parts.collect::<Vec<_>>().join("/")
    };
    let mut found = BTreeSet::new();
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    for cell in cells.filter(|cell| !cell.starts_with("path below")) {
        let pieces: Vec<&str> = cell.split('`').collect();
        for piece in pieces.chunks_exact(2) {
            let method = piece[0].trim_matches([',', ' ']);
            found.insert((if method.is_empty() { usual } else { method }.to_owned(), full(piece[1])));
        }
    }
    found
}

#[test]
fn the_page_about_the_api_has_the_rows_of_the_table() {
    let page = include_str!("../../../../docs/api.md");
    let (_, reads) = page.split_once("## What can be read").expect("what can be read");
    let (reads, does) = reads.split_once("## What can be done").expect("what can be done");
    let (does, _) = does.split_once("## Problems").expect("problems");
    let described: BTreeSet<_> = named(reads, "GET").into_iter().chain(named(does, "POST")).collect();
    let rows = ROWS.iter().map(|row| {
        let path = row.path.replace("{name}", "{}").replace("{rest}", "{}");
        (row.method.to_string(), path)
    });
    assert_eq!(described, rows.collect());
}

fn document() -> Value {
    serde_json::from_str(include_str!("../openapi.json")).expect("JSON")
}

/// A parameter's name and type.
type Shape = (String, String);

fn shape(param: &Param) -> Shape {
    let kind = match param.kind {
        Kind::Text => "string",
        Kind::Number => "integer",
        Kind::Flag => "boolean",
    };
    (param.name.to_owned(), kind.to_owned())
}

#[test]
fn the_document_has_the_rows_of_the_table() {
    let document = document();
    let mut described: BTreeMap<(String, String), (Value, BTreeSet<Shape>)> = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let in_query = parameters.filter(|parameter| parameter["in"] == "query");
            let mut shapes: BTreeSet<Shape> =
                in_query.map(|each| (text(&each["name"]), text(&each["schema"]["type"]))).collect();
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["properties"];
            let fields = body.as_object().into_iter().flatten();
            shapes.extend(fields.map(|(name, field)| (name.clone(), text(&field["type"]))));
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
            let right = operation["x-right"].clone();
            described.insert((method.to_ascii_uppercase(), path.clone()), (right, shapes));
        }
    }
    let rows = ROWS.iter().map(|row| {
        let right = row.needs.map_or(Value::Null, |right| right.name().into());
        let shapes = row.params.iter().map(shape).collect();
        ((row.method.to_string(), row.path.to_owned()), (right, shapes))
    });
    assert_eq!(described, rows.collect());
}

/// A view of each schema.
fn views() -> BTreeMap<&'static str, Value> {
    let neighbor = json!({
        "name": "", "address": "192.0.2.1", "as": "", "description": null, "state": "", "uptime_s": null, "accepted": 0,
        "accepted_by_family": { "ipv4": 0, "ipv6": 0 }, "updates_received": 0, "messages_received": 0, "messages_sent": 0,
        "bytes_sent": 0, "flaps": 0, "last_error": null, "negotiated": null, "counters": {}
    });
    let neighbor: BgpNeighborView = serde_json::from_value(neighbor).expect("a neighbor");
    let negotiated = NegotiatedView {
        families: Vec::new(),
        router_id: String::new(),
        hold_time_s: 0,
        four_octet_as: false,
        extended_messages: false,
        route_refresh: false,
        enhanced_refresh: false,
        add_path_receive: ByFamily::default(),
        add_path_send: ByFamily::default(),
        graceful_restart: false,
    };
    let group = UpdateGroupView {
        group: 0,
        view: String::new(),
        members: 0,
        log_bytes: 0,
        log_bytes_max: 0,
        changes: 0,
        messages: 0,
        lagging: 0,
    };
    let route = RouteView {
        prefix: String::new(),
        best: false,
        neighbor: String::new(),
        next_hop: String::new(),
        as_path: String::new(),
        origin: String::new(),
        med: None,
        local_pref: 0,
        weight: 0,
        communities: Vec::new(),
        discard: false,
        path_id: 0,
        age_s: 0,
        stale: false,
        validity: Some(String::new()),
        why: None,
        rejected: Some(String::new()),
        rule: Some(String::new()),
    };
    let fib = FibView {
        destination: String::new(),
        vrf: String::new(),
        prefix: None,
        action: String::new(),
        hop: 0,
        neighbor: None,
        port: None,
        source: None,
        next_hops: Vec::new(),
    };
    let nowhere = std::net::Ipv4Addr::UNSPECIFIED;
    let endpoint = std::net::SocketAddrV4::new(nowhere, 0);
    let session = NatSessionView {
        protocol: String::new(),
        inside: endpoint.into(),
        vrf: String::new(),
        public: endpoint,
        remote: None,
        state: String::new(),
        idle_s: 0,
        remaining_s: None,
        packets_out: 0,
        packets_in: 0,
    };
    let block = NatBlockView {
        inside: nowhere.into(),
        vrf: String::new(),
        public: nowhere,
        first: 0,
        last: 0,
        tcp: 0,
        udp: 0,
        icmp: 0,
    };
    let step = TraceStep { stage: String::new(), verdict: String::new(), why: String::new() };
    let trace = TraceView {
        packet: String::new(),
        steps: Vec::new(),
        outcome: String::new(),
        reason: None,
        summary: String::new(),
    };
    let errors = thalweg_config::RouterConfig::from_text("a", "x = 1", std::path::Path::new("/"));
    let finding = errors.expect_err("an unknown key").diagnostics.swap_remove(0);
    let rib = RibView { restart: Some(RestartView::default()), ..RibView::default() };
    let mut views = default_views();
    views.extend([
        ("BgpNeighborView", to_json(&neighbor)),
        ("Diagnostic", to_json(&finding)),
        ("FibView", to_json(&fib)),
        ("FirewallStateView", to_json(&connection())),
        ("NatBlockView", to_json(&block)),
        ("NatSessionView", to_json(&session)),
        ("NegotiatedView", to_json(&negotiated)),
        ("RibView", to_json(&rib)),
        ("RouteView", to_json(&route)),
        ("TraceStep", to_json(&step)),
        ("TraceView", to_json(&trace)),
        ("UpdateGroupView", to_json(&group)),
    ]);
    views
}

/// A connection of the firewall.
fn connection() -> FirewallStateView {
    let endpoint = ([0, 0, 0, 0], 0).into();
    FirewallStateView {
        family: String::new(),
        protocol: String::new(),
        source: endpoint,
        destination: endpoint,
        source_vrf: None,
        destination_vrf: None,
        from: None,
        to: None,
        state: String::new(),
        rule: None,
        age_s: 0,
        idle_s: 0,
        remaining_s: 0,
    }
}

/// The views that have defaults.
fn default_views() -> BTreeMap<&'static str, Value> {
    fn view<V: Serialize + Default>() -> Value {
        to_json(&V::default())
    }
    BTreeMap::from([
        ("AclRuleView", view::<AclRuleView>()),
        ("AmountView", view::<AmountView>()),
        ("ConfigView", view::<ConfigView>()),
        ("CountersView", view::<CountersView>()),
        ("FibNextHop", view::<FibNextHop>()),
        ("FibRouteView", view::<FibRouteView>()),
        ("VrfView", view::<VrfView>()),
        ("FirewallCleared", view::<FirewallCleared>()),
        ("FirewallCountersView", view::<FirewallCountersView>()),
        ("FirewallRuleView", view::<FirewallRuleView>()),
        ("FirewallSetView", view::<FirewallSetView>()),
        ("FlowCacheView", view::<FlowCacheView>()),
        ("FlowOutletView", view::<FlowOutletView>()),
        ("ForwardingView", view::<ForwardingView>()),
        ("GatewayCheckView", view::<GatewayCheckView>()),
        ("KernelSyncView", view::<KernelSyncView>()),
        ("KernelView", view::<KernelView>()),
        ("MemoryView", view::<MemoryView>()),
        ("MessagesView", view::<MessagesView>()),
        ("NatCleared", view::<NatCleared>()),
        ("NatCountersView", view::<NatCountersView>()),
        ("NatPoolView", view::<NatPoolView>()),
        ("NatUse", view::<NatUse>()),
        ("NeighborSyncView", view::<NeighborSyncView>()),
        ("NeighborView", view::<NeighborView>()),
        ("PolicerView", view::<PolicerView>()),
        ("PortRates", view::<PortRates>()),
        ("PortView", view::<PortView>()),
        ("QueueRates", view::<QueueRates>()),
        ("QueueView", view::<QueueView>()),
        ("ReceiveQueueView", view::<ReceiveQueueView>()),
        ("RestartView", view::<RestartView>()),
        ("RpkiSourceView", view::<RpkiSourceView>()),
        ("RpkiView", view::<RpkiView>()),
        ("SentRouteView", view::<SentRouteView>()),
        ("SojournView", view::<SojournView>()),
        ("StandbyView", view::<StandbyView>()),
        ("StatusView", view::<StatusView>()),
        ("UpDown", view::<UpDown>()),
        ("ValidityView", view::<ValidityView>()),
        ("VirtualRouterView", view::<VirtualRouterView>()),
        ("VrpView", view::<VrpView>()),
        ("WorkerView", view::<WorkerView>()),
    ])
}

#[test]
fn the_document_has_the_fields_of_the_views() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let views = views();
    let known: BTreeSet<&str> =
        schemas.keys().map(String::as_str).filter(|name| *name != "Problem").collect();
    assert_eq!(known, views.keys().copied().collect());
    for (name, view) in views {
        let described: BTreeSet<&String> =
            schemas[name]["properties"].as_object().expect("properties").keys().collect();
        let fields: BTreeSet<&String> = view.as_object().expect("an object").keys().collect();
        assert_eq!(described, fields, "{name}");
        for (field, value) in view.as_object().expect("an object") {
            assert!(fits(&schemas[name]["properties"][field], value), "{name}.{field}: {value}");
        }
    }
}

/// Whether a value is of one of the types of a schema, as far as it says.
fn fits(schema: &Value, value: &Value) -> bool {
    let is = |kind: &Value| match kind.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    let any = schema["anyOf"].as_array().or(schema["allOf"].as_array());
    match (&schema["type"], any) {
        (Value::Array(kinds), _) => kinds.iter().any(is),
        (kind @ Value::String(_), _) => is(kind),
        (_, Some(schemas)) => schemas.iter().any(|schema| fits(schema, value)),
        _ => schema["$ref"].is_string() && value.is_object(),
    }
}

/// Every reference leads to a schema.
#[test]
fn no_reference_leads_nowhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 30);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("in this document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// Reads a request as the server does, up to the question for the router.
fn understood(method: &Method, path: &str, query: &str, body: &[u8]) -> Result<(), Problem> {
    let (row, place) = find(method, path)?;
    let values = match row.method == Method::POST {
        true => read_body(body, row.params)?,
        false => read_query(query, row.params)?,
    };
    let call = Call { place, values };
    match row.does {
        Does::One(ask) | Does::List(ask) | Does::Paged(ask) | Does::Done(ask) => ask(&call).map(drop),
        Does::Part(ask, _) | Does::Named(ask, _) => ask(&call).map(drop),
        Does::Own(Own::Capture) => capture(&call).map(drop),
        Does::Own(_) => Ok(()),
    }
}

proptest! {
    /// Requests that are nearly right: a path and parameters of the table, and any values.
    #[test]
    fn no_request_panics(
        row in 0..ROWS.len(),
        other in 0..ROWS.len(),
        place in "\\PC{0,12}",
        values in proptest::collection::vec("[0-9]{1,20}|[a-z0-9.:/%+&=-]{0,12}|\\PC{0,8}", 8),
    ) {
        let (row, params) = (&ROWS[row], ROWS[other].params);
        let path = row.path.replace("{name}", &place).replace("{rest}", &place);
        let pairs = row.params.iter().chain(params).zip(&values).map(|(param, value)| format!("{}={value}", param.name));
        let fields = row.params.iter().zip(&values).map(|(param, value)| match value.parse::<u64>() {
            Ok(number) => (param.name.to_owned(), number.into()),
            Err(_) => (param.name.to_owned(), Value::from(value.clone())),
        });
        let body = Value::Object(fields.collect()).to_string();
        let query = pairs.collect::<Vec<_>>().join("&");
        let _ = understood(&row.method, &path, &query, body.as_bytes());
        let _ = understood(&Method::GET, &place, &query, place.as_bytes());
    }
}
