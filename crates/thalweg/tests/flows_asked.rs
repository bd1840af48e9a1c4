//! One question, three answerers: a dataset, a router's console, ClickHouse (chdb). The answers are equal.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use thalweg_base::{DropReason, Name};
use thalweg_config::{WebConfig, WebRight, WebToken};
use thalweg_flow::{Counters, Direction, EndReason, Event, FlowKey, FlowRecord, Translation};
use thalweg_store::{Writer, WriterOptions};
use thalweg_web::{Web, WebOptions};

use crate::support::root;

/// 2026-11-22T05:00:00Z.
const START_NS: u64 = 1_795_323_600_000_000_000;
const TOKEN: &str = "reading-token-0123";
const RECORDS: u64 = 1200;

/// Records of two hours that differ in all that questions are about.
fn records() -> Vec<FlowRecord> {
    (0..RECORDS).map(record).collect()
}

fn record(n: u64) -> FlowRecord {
    let v6 = n.is_multiple_of(7);
    let address = |host: u64| match v6 {
        true => format!("2001:db8::{host:x}").parse().unwrap(),
        false => format!("10.0.{}.{}", host / 200, host % 200).parse().unwrap(),
    };
    let key = FlowKey {
        src: address(n % 23),
        // Some talk to themselves.
        dst: address(n % 19),
        src_port: 1000 + (n % 300) as u16,
        dst_port: [53, 443, 443, 22, 1000][n as usize % 5],
        protocol: [6, 17, 1][n as usize % 3],
        traffic_class: (n % 4) as u8 * 8,
        ingress: (n % 4) as u32,
        vlan: (n % 3) as u16 * 10,
        mpls_label: n.is_multiple_of(5).then_some(n as u32),
    };
    // Files know the first and last end to the microsecond, rounded outward.
    let below = if n == RECORDS - 1 { 999 } else { n % 1000 };
    let last_ns = START_NS + n * 6_000_000_000 + below;
    let counters = Counters {
        packets: 1 + n % 9,
        bytes: 40 + n * 7919 % 5000,
        first_ns: last_ns - n % 4 * 700_000_000,
        last_ns,
        tcp_flags: n.is_multiple_of(3).then_some([2, 0x12, 0x1b][n as usize / 3 % 3]),
        ..Counters::default()
    };
    let ends = [None, Some(EndReason::IdleTimeout), Some(EndReason::ActiveTimeout)];
    let mut record = FlowRecord::new(key, counters, ends[n as usize % 3]);
    record.application = [0, 8, 12][n as usize % 3];
    record.egress = (n % 3) as u32;
    (record.src_as, record.dst_as) = ((n % 4) as u32 * 64_500, (n % 5) as u32 * 64_501);
    record.sampling_interval = [1, 1, 100, 0][n as usize % 4];
    record.next_hop = n.is_multiple_of(2).then(|| "192.0.2.1".parse().unwrap());
    record.reverse = n.is_multiple_of(6).then_some(Counters { packets: 3, bytes: n, ..counters });
    if n.is_multiple_of(10) {
        record.drops.add(DropReason::NoRoute, 1, 60);
    }
    if n.is_multiple_of(9) {
        let src = "203.0.113.9".parse().unwrap();
        record.translation = Some(Translation { src, dst: record.key.dst, src_port: 40_000, dst_port: 443 });
    }
    record.exporter.name = Name::of(["edge1", "edge2", "core's \\one"][n as usize % 3]);
    record.exporter.domain = n.is_multiple_of(2).then_some(n as u32 % 4);
    record.ingress_name.name = Name::of(["xe-0/0", "", "eth1"][n as usize % 3]);
    record.src_place.country = Name::of(["DE", "", "FR"][n as usize % 3]);
    record.dst_place.country = Name::of(["", "DE"][n as usize % 2]);
    record.details.direction = [None, Some(Direction::Ingress), Some(Direction::Egress)][n as usize % 3];
    if n.is_multiple_of(4) {
        record.names.server = Name::passing(&format!("www{}.example.org", n % 8));
    }
    if n.is_multiple_of(50) {
        record.details.event = Some(Event::NatSessionBegin);
    }
    record
}

/// `thalweg flows` with these arguments, of an answerer.
fn ask(answerer: &[&str], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .arg("flows")
        .args(answerer)
        .args(arguments)
        .env("THALWEG_TOKEN", TOKEN)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A console beside the dataset.
fn console(folder: &Path) -> Web {
    let file = folder.join("read.token");
    std::fs::write(&file, TOKEN).unwrap();
    let config = WebConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        tokens: vec![WebToken { name: "read".to_owned(), file, may: WebRight::Read }],
        ..WebConfig::default()
    };
    let options = WebOptions {
        router: folder.join("no-router.sock"),
        store: Some(folder.join("flows")),
        version: "0.0.0",
        wall_ns: || START_NS,
    };
    Web::start(&config, options).unwrap()
}

/// The engine of ClickHouse with these records.
struct Engine {
    child: Child,
    port: u16,
}

impl Engine {
    /// `None` if no Python has it. The second Python is made by the tests of the store.
    fn start(folder: &Path, lines: &[u8]) -> Option<Self> {
        let made = std::env::temp_dir().join("thalweg-test-chdb/bin/python");
        let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
        let has = |python: &PathBuf| {
            let asked = Command::new(python).args(["-c", "import chdb"]).output();
            asked.is_ok_and(|output| output.status.success())
        };
        let python = named.into_iter().chain([PathBuf::from("python3"), made]).find(has)?;
        let records = folder.join("records.json");
        std::fs::write(&records, lines).unwrap();
        let mut child = Command::new(python)
            .arg(root().join("crates/thalweg/tests/flows_asked/clickhouse.py"))
            .arg(root().join("contrib/clickhouse/flows.sql"))
            .arg(records)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let port = port.trim().parse();
        Some(Self { child, port: port.expect("the engine has taken the records") })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every kind of test, key and form; SQL must say each as the store does.
const QUESTIONS: &[&str] = &[
    "top src",
    "top dst --by packets -n 3",
    "top host -n 100",
    "top host,port --by flows",
    "top src,dst,dst-port -n 50 --csv",
    "top as --raw",
    "top country,proto",
    "top app --by packets",
    "top end,direction --csv",
    "top drop",
    "top vlan,tos dropped > 0",
    "top mpls -n 5",
    "top next-hop,ingress",
    "top nat-src,nat-src-port nat",
    "top exporter --csv",
    "top domain,in-if",
    "top server-name -n 20",
    "top event event any",
    "top src event nat-session-begin",
    "top src src net 10.0.0.0/30",
    "top src not net 2001:db8::/126 and ipv6",
    "top src net ::/0",
    "top dst-port dst port 53,443 or dst-port 22",
    "top src not as 64500",
    "top src as 0",
    "top proto not vlan 0-15",
    "top src in 0",
    "top src app dns,unknown",
    "top src not app dns",
    "top src packets > 300",
    "top src bytes 1k-3k --raw",
    "top src duration >= 1s",
    "top src flags SA",
    "top src not flags S",
    "top src exporter edge*",
    "top src exporter core's",
    "top src in-if xe-0/0",
    "top src country DE",
    "top src not src-country DE",
    "top src name *.example.org",
    "top src not name www4.example.org",
    "top src direction egress or end any",
    "top src sampling 100",
    "top src not nat",
    "top src not any",
    "top src --from 2026-11-22T05:30 --to 2026-11-22T06:10:00.5",
    "top src --to 2026-11-22T04:00",
    "list -n 20 --csv",
    "list -n 7 --csv tcp",
    "list -n 3 --format json",
    "list -n 9 --columns flow_end,src,src_port,packets,server_name,drop_reason_1 packets < 9",
    "list -n 9 --raw udp",
    "graph --step 10m --csv",
    "graph --step 10m --key src -n 3 --csv",
    "graph --step 7m --key host --by packets -n 2 --csv ipv4",
    "graph --key app,exporter -n 2 --from 2026-11-22T05:30 --to 2026-11-22T06:10",
    "graph --by flows",
    "graph --key dst-port --csv src 192.0.2.99",
];

#[test]
fn a_dataset_a_console_and_clickhouse_answer_alike() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().join("flows");
    let options = WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| START_NS) };
    let (writer, _) = Writer::open(&dataset, options).unwrap();
    writer.append(&records()).unwrap();
    writer.close().unwrap();
    let local = ["--data", dataset.to_str().unwrap()];
    let web = console(folder.path());
    let url = format!("http://{}", web.addresses()[0]);
    let mut others = vec![("the console", url.clone())];
    let lines = ask(
        &local,
        &["list", "--format", "json", "-n", "100000", "event", "any", "or", "not", "event", "any"],
    );
    assert_eq!(lines.stdout.split(|byte| *byte == b'\n').count() as u64, RECORDS + 1);
    let password = folder.path().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let engine = Engine::start(folder.path(), &lines.stdout);
    match &engine {
        Some(engine) => others.push((
            "ClickHouse",
            format!(
                "clickhouse://127.0.0.1:{}/flows?user=reader&password_file={}",
                engine.port,
                password.display()
            ),
        )),
        None => {
            println!("SKIPPED ClickHouse in flows_asked: no python3 with chdb (THALWEG_PYTHON names one)")
        }
    }
    for question in QUESTIONS {
        let arguments: Vec<&str> = question.split(' ').collect();
        let ours = ask(&local, &arguments);
        assert!(ours.status.success(), "{question}: {}", said(&ours));
        for (name, url) in &others {
            let theirs = ask(&["--url", url], &arguments);
            let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(theirs.status.success(), "{name}, {question}: {}", said(&theirs));
            assert_eq!(text(&theirs), text(&ours), "{name}, {question}");
            // How many records are of sampled traffic is not known of those behind a list.
            if !question.starts_with("list") {
                assert_eq!(said(&theirs), said(&ours), "{name}, {question}");
            }
        }
    }
    // Pictures, with the other direction.
    let drawn = |answerer: &[&str], name: &str| {
        let file = folder.path().join(name);
        let path = file.to_str().unwrap();
        let both =
            ["graph", "--key", "src", "--step", "10m", "--both", "--svg", path, "src", "net", "10.0.0.0/8"];
        let output = ask(answerer, &both);
        assert!(output.status.success(), "{}", said(&output));
        std::fs::read_to_string(&file).unwrap()
    };
    let ours = drawn(&local, "local.svg");
    for (name, url) in &others {
        assert_eq!(drawn(&["--url", url], "theirs.svg"), ours, "{name}");
    }
    // A console can count flows once, and knows its dataset.
    for arguments in [&["top", "src", "--dedup"][..], &["stats", "--format", "json"]] {
        assert_eq!(ask(&["--url", &url], arguments).stdout, ask(&local, arguments).stdout, "{arguments:?}");
    }
    // What cannot be asked is refused in words.
    let refused = |answerer: &[&str], arguments: &[&str], part: &str| {
        let output = ask(answerer, arguments);
        assert!(!output.status.success() && said(&output).contains(part), "{arguments:?}: {}", said(&output));
    };
    let console = ["--url", url.as_str()];
    refused(&console, &["top", "src", "-n", "1001"], "the router refuses: n: expected 1 to 1000");
    refused(&console, &["list", "--follow"], "--follow reads a dataset's folder");
    refused(&console, &["compact"], "need a folder");
    refused(&console, &["top", "src", "--token-file", password.to_str().unwrap()], "the router refuses:");
    refused(&["--url", "ftp://x"], &["stats"], "expected http://HOST/PATH");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    refused(&["--url", &format!("http://{nobody}")], &["stats"], "does not answer");
    if let [_, (_, clickhouse)] = &others[..] {
        let stats = ask(&["--url", clickhouse], &["stats", "--format", "json"]);
        let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
        let expected = serde_json::json!({
            "records": RECORDS, "from": "2026-11-22T05:00:00Z", "to": "2026-11-22T06:59:54.000000999Z"
        });
        assert_eq!(stats, expected);
        refused(&["--url", clickhouse], &["top", "src", "--dedup"], "--dedup is not for ClickHouse");
        let (stranger, _) = clickhouse.split_once('?').unwrap();
        refused(&["--url", stranger], &["top", "src"], "403 Forbidden: Authentication failed");
        let elsewhere = clickhouse.replace("/flows?", "/nowhere?");
        refused(&["--url", &elsewhere], &["top", "src"], "nowhere");
    }
}
