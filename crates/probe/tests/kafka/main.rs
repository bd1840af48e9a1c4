//! Records sent to topics of a real broker, read by Kafka's own Java client and by `protoc`.

#[path = "../common/mod.rs"]
mod common;

mod broker;
mod protoc;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use broker::{Broker, Message};
use common::{Traffic, folder, options, run};
use thalweg_flow::export::{Amount, RecordLoss};
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};
use thalweg_ports::collector::{
    Collector, CollectorReport, Connection, KafkaOptions, SpoolOptions, TIMEOUT, TlsOptions,
};
use thalweg_probe::summary::SPOOLED;
use thalweg_probe::{
    ExportTargets, FileInput, Input, ModelKind, OutletSummary, ProbeOptions, Shape, Spool, probe,
};

/// The time limit for each awaited event.
const SOONER_OR_LATER: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOONER_OR_LATER, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn targets(address: String) -> ExportTargets {
    ExportTargets { addresses: vec![address], ..ExportTargets::default() }
}

fn outlet<'a>(outlets: &'a [OutletSummary], address: &str) -> &'a OutletSummary {
    outlets.iter().find(|outlet| outlet.to == address).expect("the summary has the outlet")
}

/// A topic's messages, in the order of their lines.
fn lines_in(messages: &[Message], topic: &str) -> Vec<String> {
    let of_topic = messages.iter().filter(|message| message.topic == topic);
    let text = |message: &Message| String::from_utf8(message.value.clone()).expect("text");
    let mut lines: Vec<String> = of_topic.map(text).collect();
    lines.sort_unstable();
    lines
}

fn lines_of(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("records were written");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn topics_have_what_lines_have_in_both_formats() {
    let Some(broker) = Broker::start("topics_have_what_lines_have_in_both_formats") else { return };
    let traffic = Traffic::mixed(20_000, 1_500, 1);
    let (_folder, capture, lines) = folder(&traffic);
    let named = format!("lan={}", capture.display());
    let kinds = [
        ("json", "format=json", false),
        ("protobuf", "format=protobuf&acks=1&compression=snappy&linger_ms=0", true),
        // With acks=0, messages before a new topic has a leader are lost silently, so this run creates the topic.
        ("plain", "acks=1&compression=none", false),
        ("plain", "acks=0&compression=none", true),
    ];
    let mut written: HashMap<&str, Vec<String>> = HashMap::new();
    for (topic, parameters, biflow) in kinds {
        let address = format!("{}?{parameters}", broker.address(topic));
        let input = Input::Files(FileInput::new(vec![named.clone().into()]));
        let mut options =
            ProbeOptions { input, export: targets(address.clone()), ..options(&capture, &lines) };
        options.meter.biflow = biflow;
        options.shape = Shape { model: ModelKind::Farm, ..Shape::default() };
        let summary = run(&options);
        let outlet = outlet(&summary.outlets, &address);
        assert_eq!((outlet.records, outlet.packets), (summary.records_exported, summary.packets_exported));
        assert_eq!((outlet.bytes, outlet.packets), (traffic.ip_bytes(), traffic.ip_packets()));
        assert!(outlet.lost.is_empty(), "{outlet:?}");
        written.entry(topic).or_default().extend(lines_of(&lines));
    }
    let messages = broker.read(&["json", "protobuf", "plain"]);
    for topic in ["json", "plain"] {
        let expected = written.get_mut(topic).expect("it was written");
        expected.sort_unstable();
        let read = lines_in(&messages, topic);
        assert!(read == *expected, "{topic}: {} messages of {} lines", read.len(), expected.len());
    }
    check_keys(messages.iter().filter(|message| message.topic == "json"));
    let of_protobuf = messages.iter().filter(|message| message.topic == "protobuf");
    let values: Vec<&[u8]> = of_protobuf.map(|message| &message.value[..]).collect();
    assert_eq!(values.len(), written["protobuf"].len());
    let Some(records) = protoc::decode(&values) else {
        println!("SKIPPED protobuf in topics_have_what_lines_have_in_both_formats: no protoc");
        return;
    };
    let text = |fields: &protoc::Fields| serde_json::to_string(fields).expect("plain data");
    let decoded: BTreeSet<String> = records.iter().map(text).collect();
    let of_line = |line: &String| text(&serde_json::from_str(line).expect("an object"));
    assert_eq!(decoded, written["protobuf"].iter().map(of_line).collect());
    assert_eq!(decoded.len(), values.len(), "no two records are the same");
}

/// A flow has one key and so one partition in both directions; flows spread over all partitions.
fn check_keys<'a>(messages: impl Iterator<Item = &'a Message>) {
    let mut of_flows = BTreeMap::new();
    let mut partitions = BTreeSet::new();
    for message in messages {
        let record: serde_json::Value = serde_json::from_slice(&message.value).expect("an object");
        let number = |name: &str| record[name].as_u64().expect("a number");
        let mut ends = [("src", "src_port"), ("dst", "dst_port")]
            .map(|(address, port)| (record[address].to_string(), number(port)));
        if number("protocol") == 1 {
            ends = ends.map(|(address, _)| (address, 0));
        }
        ends.sort_unstable();
        let place = (message.key.clone(), message.partition);
        let before = of_flows.insert((ends, number("protocol")), place.clone());
        assert!(before.is_none_or(|before| before == place), "{record}");
        partitions.insert(message.partition);
    }
    assert_eq!(partitions.len(), 3);
}

#[test]
fn a_broker_that_is_killed_and_comes_back_has_every_record_once() {
    let Some(mut broker) = Broker::start("a_broker_that_is_killed_and_comes_back_has_every_record_once")
    else {
        return;
    };
    let traffic = Traffic::mixed(30_000, 3_000, 2);
    let (_folder, capture, lines) = folder(&traffic);
    let address = broker.address("flows");
    let mut input = FileInput::new(vec![capture.clone()]);
    (input.loops, input.rate_pps) = (u32::MAX, Some(3_000));
    let spool = tempfile::tempdir().expect("a folder");
    let export = ExportTargets {
        spool: Some(Spool { folder: spool.path().to_owned(), bytes_max: 256 << 20 }),
        ..targets(address.clone())
    };
    let mut options = ProbeOptions { input: Input::Files(input), export, ..options(&capture, &lines) };
    options.meter.idle_timeout_ns = 500_000_000;
    let stop = Arc::new(AtomicBool::new(false));
    let summary = std::thread::scope(|scope| {
        let probing = scope.spawn(|| probe(&options, &stop, &()));
        let written = || std::fs::metadata(&lines).map_or(0, |about| about.len());
        wait_until("records in the topic", || broker.bytes_in("flows") > 10_000);
        broker.kill();
        let before = written();
        wait_until("records meanwhile", || written() > before + 200_000);
        broker.launch();
        let before = broker.bytes_in("flows");
        wait_until("records in the topic again", || broker.bytes_in("flows") > before + 10_000);
        stop.store(true, Ordering::SeqCst);
        probing.join().expect("it does not panic").expect("the run succeeds")
    });
    assert!(summary.conserved);
    let outlet = outlet(&summary.outlets, &address);
    // On a slow machine, records that could not be sent within the time for stopping are spooled; the next
    // process sends them.
    let spooled = outlet.lost.get(SPOOLED).copied().unwrap_or(0);
    assert_eq!(outlet.records + spooled, summary.records_exported);
    assert_eq!(outlet.lost.values().sum::<u64>(), spooled, "{outlet:?}");
    let mut arrived = lines_in(&broker.read(&["flows"]), "flows");
    let written = lines_of(&lines);
    assert!(arrived.is_sorted_by(|one, next| one < next), "a record twice");
    assert!(arrived.len() as u64 >= outlet.records, "records lost");
    if spooled > 0 {
        arrived = the_rest(&broker, &options, &address, arrived.len() as u64, spooled);
    }
    assert_eq!(arrived.len(), written.len(), "records lost");
    assert!(arrived == written, "other records");
}

/// A second process sends what the first one left; returns the topic's records, each once. Records that had
/// arrived without acknowledgment are sent twice.
fn the_rest(
    broker: &Broker,
    options: &ProbeOptions,
    address: &str,
    arrived: u64,
    spooled: u64,
) -> Vec<String> {
    let (_folder, capture, lines) = folder(&Traffic::default());
    let input = Input::Files(FileInput::new(vec![capture]));
    let summary = run(&ProbeOptions { input, json: Some(lines), ..options.clone() });
    assert_eq!(outlet(&summary.outlets, address).records, spooled, "{summary:?}");
    let mut all = lines_in(&broker.read(&["flows"]), "flows");
    assert_eq!(all.len() as u64, arrived + spooled);
    all.dedup();
    all
}

/// A record with `number` packets.
fn record(number: u64) -> FlowRecord {
    let key = FlowKey {
        src: IpAddr::from([10, 0, (number >> 8) as u8, number as u8]),
        dst: IpAddr::from([192, 0, 2, 1]),
        src_port: 1024,
        dst_port: 53,
        protocol: 17,
        traffic_class: 0,
        ingress: 0,
        vlan: 0,
        mpls_label: None,
    };
    FlowRecord::new(
        key,
        Counters { packets: number, bytes: 2 * number, ..Counters::default() },
        EndReason::IdleTimeout,
    )
}

/// The record whose message exceeds any broker's limit.
const TOO_LONG: u64 = 100_005;

/// A collector whose messages are the records' numbers.
fn collector(address: &str, spool: Option<&Path>) -> Collector {
    secure_collector(address, spool, TlsOptions::default())
}

fn secure_collector(address: &str, spool: Option<&Path>, tls: TlsOptions) -> Collector {
    let encode = |record: &FlowRecord, message: &mut Vec<u8>| {
        message.extend(record.counters.packets.to_string().bytes());
        if record.counters.packets == TOO_LONG {
            message.resize(2 << 20, b' ');
        }
    };
    let spool = spool.map(|folder| SpoolOptions { folder: folder.to_owned(), bytes_max: 64 << 20 });
    let options = KafkaOptions { spool, tls, ..KafkaOptions::new(Box::new(encode)) };
    Collector::open_kafka(&address.parse().expect("an address"), options).expect("it opens")
}

/// `accepted = sent + in flight + spooled + lost`
fn check_totals(report: &CollectorReport) {
    let mut sum = Amount::default();
    for part in
        [report.sent, report.in_flight, report.spooled, report.lost_in_all(), report.unexportable_in_all()]
    {
        sum += part;
    }
    assert_eq!(sum, report.accepted, "{report:?}");
}

#[test]
fn what_waits_on_disk_is_sent_by_the_next_process() {
    let Some(mut broker) = Broker::prepare("what_waits_on_disk_is_sent_by_the_next_process") else { return };
    let spool = tempfile::tempdir().expect("a folder");
    let address = broker.address("spooled");
    // More than fits into the client's buffer.
    let all = 100_000;
    let first = collector(&address, Some(spool.path()));
    for from in (0..all).step_by(1000) {
        first.send((from..from + 1000).map(record).collect()).expect("it is taken");
    }
    let report = first.finish(Duration::from_millis(500));
    check_totals(&report);
    assert_eq!((report.sent.records, report.spooled.records), (0, all), "{report:?}");
    broker.launch();
    let second = collector(&address, Some(spool.path()));
    second.send((all..all + 10).map(record).collect()).expect("it is taken");
    let report = second.finish(SOONER_OR_LATER);
    check_totals(&report);
    assert_eq!((report.inherited.records, report.sent.records), (all, all + 9), "{report:?}");
    assert_eq!(report.lost[RecordLoss::MessageRefused as usize].records, 1, "the long one");
    let messages = broker.read(&["spooled"]);
    let number = |message: &Message| -> u64 {
        std::str::from_utf8(&message.value).expect("text").parse().expect("a number")
    };
    let mut numbers: Vec<u64> = messages.iter().map(number).collect();
    for partition in 0..3 {
        let of_it: Vec<u64> =
            messages.iter().filter(|message| message.partition == partition).map(number).collect();
        assert!(of_it.is_sorted(), "partition {partition} is out of order");
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..all + 10).filter(|number| *number != TOO_LONG).collect::<Vec<_>>());
}

/// By TLS, as a user that proves itself in each of three ways; and not without the right password or authority.
#[test]
fn brokers_are_known_by_certificate_and_users_by_password() {
    let test = "brokers_are_known_by_certificate_and_users_by_password";
    let Some(broker) = Broker::start(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let written = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("there is room");
        path
    };
    let (right, wrong) = (written("right", broker::USER.1), written("wrong", "another"));
    let tls = |authorities: &Path| TlsOptions {
        authorities: Some(authorities.to_owned()),
        ..TlsOptions::default()
    };
    let certificate = broker.certificate();
    for (mechanism, from) in [("plain", 1), ("scram-sha-256", 1001), ("scram-sha-512", 2001)] {
        let address = broker.secure_address("secure", &right, mechanism);
        let collector = secure_collector(&address, None, tls(&certificate));
        collector.send((from..from + 1000).map(record).collect()).expect("it is taken");
        let report = collector.finish(SOONER_OR_LATER);
        check_totals(&report);
        assert_eq!(report.sent.records, 1000, "{mechanism}: {report:?}");
    }
    // Debian's authorities have not signed the broker's certificate.
    let others = Path::new("/etc/ssl/certs/ca-certificates.crt");
    let others = if others.exists() { others.to_owned() } else { written("none.pem", "") };
    for (password, authorities, part) in
        [(&wrong, &certificate, "uthentication"), (&right, &others, "certificate")]
    {
        let address = broker.secure_address("secure", password, "scram-sha-512");
        let collector = secure_collector(&address, None, tls(authorities));
        collector.send(vec![record(9999)]).expect("it is taken");
        let why = || match collector.report().connection {
            Connection::Down(why) => why,
            _ => String::new(),
        };
        wait_until(part, || why().contains(part));
        let report = collector.finish(Duration::from_millis(100));
        check_totals(&report);
        assert_eq!((report.sent.records, report.lost_in_all().records), (0, 1), "{report:?}");
    }
    let messages = broker.read(&["secure"]);
    let number =
        |message: &Message| String::from_utf8_lossy(&message.value).parse::<u64>().expect("a number");
    let mut numbers: Vec<u64> = messages.iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..3001).collect::<Vec<_>>(), "each once");
}

#[test]
fn without_a_broker_and_a_spool_records_are_counted() {
    // The port is bound, but does not listen.
    let held = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("kafka://{}/flows", held.local_addr().expect("it has one"));
    let collector = collector(&address, None);
    let (mut given, mut number) = (0, 10);
    let begun = Instant::now();
    while collector.report().lost[RecordLoss::CollectorDown as usize].records == 0 {
        assert!(begun.elapsed() < SOONER_OR_LATER);
        let batch: Vec<FlowRecord> = (number..number + 500).map(record).collect();
        if collector.try_send(batch).is_ok() {
            (given, number) = (given + 500, number + 500);
        }
        check_bound(&collector.report());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(begun.elapsed() >= TIMEOUT);
    let report = collector.finish(Duration::from_millis(100));
    check_totals(&report);
    assert_eq!((report.accepted.records, report.sent.records, report.in_flight.records), (given, 0, 0));
    let lost = [RecordLoss::CollectorDown, RecordLoss::Ended].map(|loss| report.lost[loss as usize].records);
    assert_eq!(lost.iter().sum::<u64>(), given, "{report:?}");
    assert!(lost[1] <= (1 << 16) + 500, "no more than the buffer had");
}

fn check_bound(report: &CollectorReport) {
    assert!(report.in_flight.records <= (1 << 16) + 500, "{report:?}");
}
