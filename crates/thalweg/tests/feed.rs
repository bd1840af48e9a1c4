//! A dataset that is sent to a topic of Kafka, while the program that sends and the broker are killed.

#[path = "../../probe/tests/kafka/broker.rs"]
#[allow(dead_code, reason = "the probe's own tests use more of it")]
mod broker;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use broker::Broker;
use serde_json::Value;
use thalweg_flow::fields::Field;
use thalweg_flow::lines::LineFormat;
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};
use thalweg_store::query::{Query, list};
use thalweg_store::{Dataset, Filter, Window, Writer, WriterOptions};

use thalweg_text::calendar::HOUR_NS;

/// 2026-11-22T05:00:00Z.
const START_NS: u64 = 1_795_323_600_000_000_000;
const ROUNDS: u64 = 4;
const RECORDS: u64 = 36_000;
const SOONER_OR_LATER: Duration = Duration::from_secs(120);
/// How long a command waits for a broker that does not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes records of an hour, in two files.
fn write(folder: &Path, hour: u64) {
    let options = WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| START_NS) };
    let (writer, _) = Writer::open(folder, options).unwrap();
    let record = |number: u64| {
        let key = FlowKey {
            src: Ipv4Addr::from(0x0a00_0000 | number as u32).into(),
            dst: "192.0.2.53".parse().unwrap(),
            src_port: 1024 + hour as u16,
            dst_port: 53,
            protocol: 17,
            traffic_class: 0,
            ingress: 1,
            vlan: 0,
            mpls_label: None,
        };
        let last_ns = START_NS + hour * HOUR_NS + number;
        let counters =
            Counters { packets: 2, bytes: 100 + number, first_ns: last_ns, last_ns, ..Counters::default() };
        FlowRecord::new(key, counters, EndReason::IdleTimeout)
    };
    for from in [0, RECORDS / 2] {
        let some: Vec<FlowRecord> = (from..from + RECORDS / 2).map(record).collect();
        writer.append(&some).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOONER_OR_LATER, "waited for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How often each message is in the topic, or each record in the dataset; by a hash, because they are many.
type Counts = HashMap<u64, u32>;

fn count(counts: &mut Counts, message: &[u8]) {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    *counts.entry(hasher.finish()).or_default() += 1;
}

fn in_topic(broker: &Broker, topic: &str) -> Counts {
    let mut counts = Counts::new();
    broker.read_each(&[topic], |message| count(&mut counts, &message.value));
    counts
}

fn in_dataset(folder: &Path) -> Counts {
    let mut counts = Counts::new();
    let dataset = Dataset::open(folder).unwrap();
    let summary = dataset.view(Window::ALL).unwrap().summary();
    let (from_ns, to_ns) = summary.span_ns.unwrap();
    let mut line = Vec::new();
    // An hour at a time: listing sorts everything.
    for hour in from_ns / HOUR_NS..=to_ns / HOUR_NS {
        let window = Window { from_ns: hour * HOUR_NS, to_ns: (hour + 1) * HOUR_NS };
        let view = dataset.view(window).unwrap();
        let rows = view.summary().records as usize;
        for record in &list(&view, &Query::new(window, Filter::default()), rows).unwrap().0 {
            line.clear();
            LineFormat::Json.write(record, Field::of_lines(false), &mut line);
            line.pop();
            count(&mut counts, &line);
        }
    }
    assert_eq!(u64::from(counts.values().sum::<u32>()), summary.records);
    counts
}

#[test]
fn whatever_is_killed_the_topic_has_each_record_of_the_dataset_once() {
    let test = "whatever_is_killed_the_topic_has_each_record_of_the_dataset_once";
    let Some(mut broker) = Broker::start(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().to_str().unwrap();
    let feed = broker.address("flows");
    let compact = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["flows", "compact", "--data", dataset, "--format", "json"]).args(arguments);
        command
    };
    let mut killed = 0;
    for round in 0..ROUNDS {
        write(folder.path(), round);
        let before = broker.bytes_in("flows");
        let mut child = compact(&["--feed", &feed]).stdout(Stdio::null()).spawn().unwrap();
        // Within the first transaction, between two, and within the last one, as it comes.
        let enough = before + [1, 100_000, 400_000, 800_000][round as usize];
        wait_until("messages", || broker.bytes_in("flows") >= enough || child.try_wait().unwrap().is_some());
        if round == 1 {
            broker.kill();
            std::thread::sleep(Duration::from_millis(500));
        }
        // As a power failure would, in the middle of whatever it does.
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        if round == 1 {
            broker.launch();
        }
    }
    assert!(killed > 0, "all were faster than this test");
    let sent = || -> Value {
        let output = compact(&["--feed", &feed]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // The command waits for a broker that is away, but not for long; if it has given up, the next one sends the rest.
    broker.kill();
    write(folder.path(), ROUNDS);
    let begun = Instant::now();
    let mut child = compact(&["--feed", &feed]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    broker.launch();
    let away = begun.elapsed();
    if !child.wait().unwrap().success() {
        // Only a machine under load starts a broker so slowly.
        assert!(away > PATIENCE / 2 && begun.elapsed() >= PATIENCE, "it gave up after {:?}", begun.elapsed());
        sent();
    }
    assert_eq!(sent()["records_fed"], 0, "nothing is left");
    let (topic, dataset) = (in_topic(&broker, "flows"), in_dataset(folder.path()));
    assert_eq!(dataset.len() as u64, (ROUNDS + 1) * RECORDS);
    let more = topic.iter().filter(|(hash, times)| dataset.get(hash) < Some(times)).count();
    let less = dataset.iter().filter(|(hash, times)| topic.get(hash) < Some(times)).count();
    assert_eq!((more, less), (0, 0), "messages that are there too often, and too seldom");
}

#[test]
fn brokers_with_tls_are_known_by_the_authorities_of_the_command() {
    let test = "brokers_with_tls_are_known_by_the_authorities_of_the_command";
    let Some(broker) = Broker::start(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let [dataset, password] = ["dataset", "password"].map(|name| folder.path().join(name));
    std::fs::write(&password, broker::USER.1).unwrap();
    write(&dataset, 0);
    let feed = broker.secure_address("flows", &password, "scram-sha-512");
    let compact = |authorities: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["flows", "compact", "--data"]).arg(&dataset).args(["--feed", &feed]);
        for path in authorities {
            command.arg("--tls-ca").arg(path);
        }
        command.output().unwrap()
    };
    let refused = compact(&[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--tls-ca"), "{said}");
    let sent = compact(&[&broker.certificate()]);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    assert!(in_topic(&broker, "flows") == in_dataset(&dataset));
}
