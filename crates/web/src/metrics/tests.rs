//! The metrics are what Prometheus takes, and what our dashboard and alerts ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use thalweg_flow::alarm::{AlarmReport, AlarmRuleCounters};
use thalweg_flow::export::{RecordLoss, Unexportable};
use thalweg_node::control::{
    FlowOutletView, KernelView, NatPoolView, NatUse, RpkiSourceView, SojournView, WorkerView,
};

use super::*;

/// Where Debian's package of Prometheus may be unpacked.
const PROMTOOL: [&str; 2] = ["/usr/bin/promtool", "/opt/prometheus/usr/bin/promtool"];

fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboards")
}

/// Views with something in all of them.
fn views() -> Views {
    let name = |name: &str| name.to_owned();
    let neighbor: BgpNeighborView = serde_json::from_value(json!({
        "name": "r1", "address": "192.0.2.1", "as": "64497", "description": "a \"quoted\" \\ name\nin two lines", "state": "Established",
        "uptime_s": 5, "accepted": 2, "accepted_by_family": { "ipv4": 2, "ipv6": 0 }, "kept_by_family": { "ipv4": 3, "ipv6": 0 },
        "rejected_by_family": { "ipv4": 1, "ipv6": 0 }, "updates_received": 3,
        "messages_received": 4, "messages_sent": 5, "sent_by_family": { "ipv4": 1, "ipv6": 0 }, "bytes_sent": 6, "flaps": 0, "last_error": null, "negotiated": null,
        "counters": { "rejected": { "first_as": 1 } }
    }))
    .expect("a neighbor");
    let sojourn = SojournView { within: (1..=19).collect(), packets: 20, sum_us: 1_234.5 };
    let nat = NatUse { sessions: 1, sessions_max: 2 };
    Views {
        status: Some(StatusView { version: name("0.1.0"), nat: Some(nat), ..StatusView::default() }),
        counters: Some(CountersView {
            dropped: [(name("no-route"), 7)].into(),
            workers: vec![WorkerView { name: name("worker 0"), cpu_ms: 1_500, ..WorkerView::default() }],
            ..CountersView::default()
        }),
        ports: Some(vec![PortView { name: name("lan"), up: true, ..PortView::default() }]),
        checks: Some(vec![GatewayCheckView {
            port: name("wan"),
            gateway: name("192.0.2.1"),
            ..GatewayCheckView::default()
        }]),
        virtual_routers: Some(vec![VirtualRouterView {
            port: name("lan"),
            id: 1,
            ..VirtualRouterView::default()
        }]),
        standby: Some(StandbyView {
            state: name("covered"),
            counters: [(name("forged"), 3)].into(),
            ..StandbyView::default()
        }),
        queues: Some(vec![QueueView {
            port: name("lan"),
            class: name("voice"),
            sojourn,
            ..QueueView::default()
        }]),
        policers: Some(vec![PolicerView { class: name("voice"), ..PolicerView::default() }]),
        acls: Some(vec![AclRuleView { list: name("in"), rule: name("1"), ..AclRuleView::default() }]),
        nat: Some(NatCountersView {
            pools: vec![NatPoolView { name: name("default"), ..NatPoolView::default() }],
            ..NatCountersView::default()
        }),
        firewall: Some(FirewallCountersView::default()),
        flows: Some(FlowCacheView {
            outlets: vec![
                FlowOutletView {
                    to: name("192.0.2.9:4739"),
                    records: 50,
                    lost: [(name("spool-full"), 5), (name("ipv6"), 6)].into(),
                    datagrams_refused: 2,
                    ..FlowOutletView::default()
                },
                FlowOutletView {
                    to: name("sflow://192.0.2.9:6343"),
                    records: 90,
                    sflow: true,
                    counter_samples: 7,
                    lost: [(name("send-failed"), 4)].into(),
                    interfaces_uncounted: 1,
                    datagrams_dropped: 3,
                    ..FlowOutletView::default()
                },
            ],
            records_lost: 8,
            packets_lost: 80,
            nat_events: 12,
            nat_events_lost: 3,
            alarms: AlarmReport {
                rules: vec![AlarmRuleCounters { rule: name("flood"), active: 1, raised: 2, ended: 1 }],
                ..AlarmReport::default()
            },
            ..FlowCacheView::default()
        }),
        forwarding: Some(ForwardingView { kernel: Some(KernelView::default()), ..ForwardingView::default() }),
        neighbors: Some(vec![neighbor]),
        rib: Some(RibView::default()),
        rpki: Some(RpkiView {
            sources: vec![RpkiSourceView {
                source: name("192.0.2.53:323"),
                counters: json!({ "connects": 1 }),
                ..RpkiSourceView::default()
            }],
            ..RpkiView::default()
        }),
        memory: Some(MemoryView::default()),
    }
}

fn text(is_open: bool) -> String {
    let mut text = Exposition::new(is_open);
    views().write(&mut text, "0.1.0");
    Counters::default().write(&mut text);
    text.finish()
}

/// The names of all samples.
fn names() -> BTreeSet<String> {
    let text = text(false);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_reason_is_a_series_from_the_start() {
    let text = text(false);
    for reason in thalweg_base::DropReason::ALL {
        let number = if reason.name() == "no-route" { 7 } else { 0 };
        assert!(
            text.contains(&format!(
                "thalweg_dropped_packets_total{{reason=\"{}\"}} {number}\n",
                reason.name()
            ))
        );
    }
    for reason in thalweg_flow::EndReason::ALL {
        assert!(text.contains(&format!("thalweg_flow_records_total{{reason=\"{}\"}} 0\n", reason.name())));
    }
    let to = "192.0.2.9:4739";
    for reason in RecordLoss::ALL.map(RecordLoss::name) {
        let number = if reason == "spool-full" { 5 } else { 0 };
        assert!(text.contains(&format!(
            "thalweg_flow_outlet_lost_records_total{{to=\"{to}\",reason=\"{reason}\"}} {number}\n"
        )));
    }
    for reason in Unexportable::ALL.map(Unexportable::name) {
        let number = if reason == "ipv6" { 6 } else { 0 };
        assert!(text.contains(&format!(
            "thalweg_flow_outlet_unexportable_records_total{{to=\"{to}\",reason=\"{reason}\"}} {number}\n"
        )));
    }
    assert!(
        text.contains("thalweg_egress_sojourn_seconds_bucket{port=\"lan\",class=\"voice\",le=\"1e-6\"} 1\n")
    );
    assert!(
        text.contains("thalweg_egress_sojourn_seconds_bucket{port=\"lan\",class=\"voice\",le=\"+Inf\"} 20\n")
    );
    assert!(text.contains("thalweg_worker_cpu_seconds_total{worker=\"worker 0\"} 1.5\n"));
    assert!(text.contains("description=\"a \\\"quoted\\\" \\\\ name\\nin two lines\"} 1\n"));
}

/// Samples are no flow records: those of a collector of sFlow have series of their own.
#[test]
fn a_collector_of_sflow_has_its_own_series() {
    let text = text(false);
    let value = |name: &str, more: &str| {
        let start = format!("thalweg_{name}{{to=\"sflow://192.0.2.9:6343\"{more}}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok())
    };
    assert_eq!(value("sflow_packet_samples_total", ""), Some(90));
    assert_eq!(value("sflow_interface_samples_total", ""), Some(7));
    assert_eq!(value("sflow_uncounted_interfaces", ""), Some(1));
    assert_eq!(value("flow_refused_datagrams_total", ""), Some(0));
    assert_eq!(value("flow_dropped_datagrams_total", ""), Some(3));
    let lost = [("sample-queue", 0), ("send-failed", 4), ("no-header", 0)];
    for (reason, number) in lost {
        assert_eq!(value("sflow_lost_samples_total", &format!(",reason=\"{reason}\"")), Some(number));
    }
    assert_eq!(value("flow_delivered_records_total", ""), None);
    let is_of_records = text.lines().any(|line| {
        line.starts_with("thalweg_flow_outlet_lost_records_total{to=\"sflow:")
            || line.starts_with("thalweg_flow_outlet_unexportable_records_total{to=\"sflow:")
    });
    assert!(!is_of_records, "{text}");
    assert!(text.contains("thalweg_flow_delivered_records_total{to=\"192.0.2.9:4739\"} 50\n"));
    assert!(text.contains("thalweg_flow_refused_datagrams_total{to=\"192.0.2.9:4739\"} 2\n"));
}

/// A router loses flow records and NAT events in the queue for export, and each of its own.
#[test]
fn what_found_no_room_for_export_is_counted() {
    let text = text(false);
    for (name, number) in
        [("flow_lost_records", 8), ("flow_lost_packets", 80), ("nat_events", 12), ("nat_events_lost", 3)]
    {
        assert!(text.contains(&format!("thalweg_{name}_total {number}\n")), "{name}");
    }
    let mut without_nat = Exposition::new(false);
    Views { nat: None, ..views() }.write(&mut without_nat, "0.1.0");
    assert!(!without_nat.finish().contains("thalweg_nat_events"), "there is no NAT to tell of");
}

/// A router without NAT, BGP and flows has none of their series; what is absent is not 0.
#[test]
fn what_a_router_lacks_has_no_series() {
    let mut text = Exposition::new(false);
    Views { status: Some(StatusView::default()), ..Views::default() }.write(&mut text, "0.1.0");
    let text = text.finish();
    assert!(text.contains("thalweg_uptime_seconds 0\n"));
    assert!(!text.contains("nat") && !text.contains("bgp") && !text.contains("flow"), "{text}");
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_that_exist() {
    let names = names();
    let mut seen = 0;
    for file in ["thalweg.json", "alerts.yml", "alerts_test.yml"] {
        let text = std::fs::read_to_string(dashboards().join(file)).expect(file);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("thalweg_")) {
            assert!(names.contains(word), "{file}: there is no {word}");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} names");
}

/// The labels of each metric that exists; `le` is one.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let (text, mut exported) = (text(false), BTreeMap::new());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(begun) = line.strip_prefix("# TYPE thalweg_") {
            family = begun.split(' ').next().expect("a name").to_owned();
            let before = exported.insert(family.clone(), BTreeSet::new());
            assert_eq!(before, None, "{family} is one family");
        }
        let Some(sample) = line.strip_prefix("thalweg_") else { continue };
        let labels = exported.get_mut(&family).expect("the type comes first");
        // No value of a label in these samples has such a sequence.
        let words = sample.split("=\"").map(|piece| piece.rsplit(['{', ',']).next().unwrap_or_default());
        let count = sample.matches("=\"").count();
        labels.extend(words.take(count).map(str::to_owned));
    }
    exported
}

/// The words in code of a cell.
fn words_of(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[test]
fn the_page_about_metrics_has_each_with_its_labels() {
    let docs = dashboards().join("../docs");
    let page = std::fs::read_to_string(docs.join("metrics.md")).expect("the page");
    let (_, table) = page.split_once("| metrics | labels | meaning |\n|---|---|---|\n").expect("the table");
    let mut written = BTreeMap::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let [_, metrics, labels, ..] = row.split('|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        for metric in words_of(metrics) {
            let before = written.insert(metric, words_of(labels).collect::<BTreeSet<_>>());
            assert_eq!(before, None, "twice: {row}");
        }
    }
    let exported = exported();
    for (metric, labels) in &exported {
        assert_eq!(written.get(metric), Some(labels), "{metric} on the page, and as it is");
    }
    let gone: Vec<&String> = written.keys().filter(|metric| !exported.contains_key(*metric)).collect();
    assert!(gone.is_empty(), "they do not exist: {gone:?}");
}

#[test]
fn other_pages_name_metrics_that_exist() {
    let (names, mut seen) = (names(), 0);
    for page in std::fs::read_dir(dashboards().join("../docs")).expect("the pages") {
        let page = page.expect("a page").path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).expect("a page");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        // Crates have names of two words.
        let metrics = words.filter(|word| word.starts_with("thalweg_") && word.matches('_').count() > 1);
        for metric in metrics {
            assert!(names.contains(metric), "{}: there is no {metric}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen} names");
}

#[test]
fn the_dashboard_is_json_with_a_query_in_each_panel() {
    let text = std::fs::read_to_string(dashboards().join("thalweg.json")).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let with_query = panels.iter().filter(|panel| panel["type"] != "row");
    assert!(with_query.clone().count() >= 15);
    for panel in with_query {
        assert!(panel["targets"][0]["expr"].is_string() && panel["title"].is_string(), "{panel}");
    }
}

fn promtool() -> Option<&'static str> {
    let found = PROMTOOL.into_iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        eprintln!("SKIPPED: no promtool (Debian's package prometheus) at any of {PROMTOOL:?}");
    }
    found
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let Some(promtool) = promtool() else { return };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    child.stdin.take().expect("a pipe").write_all(text(false).as_bytes()).expect("writing");
    let output = child.wait_with_output().expect("it ends");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn alerts_do_what_their_tests_say() {
    let Some(promtool) = promtool() else { return };
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let output =
            Command::new(promtool).args(arguments).current_dir(dashboards()).output().expect("promtool runs");
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}
