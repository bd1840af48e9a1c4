//! Names in the records of real captures: the same in any shape, and those that tshark finds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use thalweg_flow::{MeterOptions, NameOptions};
use thalweg_probe::{ModelKind, ProbeOptions, Shape};

use crate::common::{options, records, run};

const ALL: NameOptions = NameOptions { tls: true, quic: true, http: true, dns: true, ja4: true };

fn with_names(capture: &Path, lines: &Path) -> ProbeOptions {
    let mut options = options(capture, lines);
    // Flows are whole, so that each has one record.
    let never = u64::MAX / 4;
    options.meter = MeterOptions {
        names: ALL,
        community_id: true,
        idle_timeout_ns: never,
        active_timeout_ns: never,
        end_linger_ns: never,
        ..MeterOptions::default()
    };
    options
}

fn office() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/small-office/office.pcapng")
}

#[test]
fn names_are_the_same_under_every_shape() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("records.json");
    let mut options = with_names(&office(), &lines);
    options.chunk_packets = Some(100);
    let summary = run(&options);
    let expected = records(&lines);
    let names = summary.names.expect("they were asked for");
    assert!(names.flows > 20 && names.resolved_evicted == 0 && names.forgotten == 0, "{names:?}");
    for field in ["server_name", "dns_question", "dns_answers", "dns_type", "dns_code", "resolved_name"] {
        assert!(expected.iter().any(|record| !record[field].is_null()), "{field}");
    }
    // A web server's address was asked for before, by the client of the flow.
    let web = |record: &&Value| record["server_name"] == "upload.wikimedia.org";
    let found: BTreeSet<&str> =
        expected.iter().filter(web).filter_map(|record| record["resolved_name"].as_str()).collect();
    assert_eq!(found, BTreeSet::from(["upload.wikimedia.org"]));
    for (model, workers, readers) in [
        (ModelKind::Serial, 1, 1),
        (ModelKind::RunToCompletion, 1, 1),
        (ModelKind::RunToCompletion, 3, 1),
        (ModelKind::Pipeline, 3, 1),
        (ModelKind::Tokens, 2, 1),
        (ModelKind::Farm, 2, 2),
        (ModelKind::Chain, 3, 1),
    ] {
        options.shape = Shape { model, workers, readers, ..Shape::default() };
        let summary = run(&options);
        assert!(records(&lines) == expected, "{model} with {workers}");
        assert_eq!(summary.names, Some(names), "{model} with {workers}");
    }
    options.meter.names = NameOptions::default();
    assert_eq!(run(&options).names, None);
    let fields = ["server_name", "dns_question", "resolved_name"];
    assert!(records(&lines).iter().all(|record| fields.iter().all(|field| record[*field].is_null())));
}

/// Addresses, ports and protocol of one direction.
type Ends = (String, String, u64, u64, u64);

/// What tshark finds in one direction of a flow.
#[derive(Default)]
struct Found {
    servers: BTreeSet<String>,
    questions: BTreeSet<String>,
    community_ids: BTreeSet<String>,
}

/// The flows of a capture by tshark. Packets with several IP headers are left out.
fn by_tshark(capture: &Path) -> BTreeMap<Ends, Found> {
    let fields = [
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "tcp.srcport",
        "udp.srcport",
        "tcp.dstport",
        "udp.dstport",
        "tls.handshake.extensions_server_name",
        "http.host",
        "dns.qry.name",
        "communityid",
        "ip.proto",
        "ipv6.nxt",
    ];
    let output = Command::new("tshark")
        .args([
            "--enable-protocol",
            "communityid",
            "-T",
            "fields",
            "-E",
            "occurrence=a",
            "-E",
            "aggregator=|",
        ])
        .args(fields.iter().flat_map(|field| ["-e", *field]))
        .arg("-r")
        .arg(capture)
        .output()
        .expect("tshark");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut flows: BTreeMap<Ends, Found> = BTreeMap::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [src, dst, src6, dst6, ports @ .., servers, hosts, questions, id, protocol, next] = &columns[..]
        else {
            continue;
        };
        let one =
            |four: &str, six: &str| Some([four, six].concat()).filter(|_| four.is_empty() != six.is_empty());
        let (Some(src), Some(dst)) = (one(src, src6), one(dst, dst6)) else { continue };
        if [&src, &dst].iter().any(|address| address.contains('|')) {
            continue;
        }
        let [tcp_src, udp_src, tcp_dst, udp_dst] = ports else { continue };
        let port = |tcp: &str, udp: &str| [tcp, udp].concat().parse().unwrap_or(0);
        let protocol = [*protocol, *next].concat().parse().unwrap_or(0);
        let flow =
            flows.entry((src, dst, port(tcp_src, udp_src), port(tcp_dst, udp_dst), protocol)).or_default();
        let names = |list: &str| list.split('|').map(str::to_lowercase).collect::<Vec<_>>();
        let host = |name: String| name.rsplit_once(':').map_or(name.clone(), |(host, _)| host.to_owned());
        flow.servers.extend(names(servers).into_iter().chain(names(hosts).into_iter().map(host)));
        flow.questions.extend(names(questions));
        flow.community_ids.extend(id.split('|').map(str::to_owned));
        for set in [&mut flow.servers, &mut flow.questions, &mut flow.community_ids] {
            set.remove("");
        }
    }
    flows
}

/// Captures without damaged packets, in which tshark and others guess differently.
fn captures() -> Vec<PathBuf> {
    let mut all = vec![office()];
    if let Some(folder) = thalweg_testdata::shared("pcap/ndpi") {
        let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
        all.extend(files.filter(|path| {
            let name = path.to_string_lossy();
            !name.ends_with(".out") && !name.contains("fuzz")
        }));
    }
    all.sort();
    all
}

/// Flows whose names are tshark's; those with other names, with none of tshark's, and with names where tshark has none.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    same: u64,
    other: u64,
    missing: u64,
    more: u64,
}

impl Outcome {
    fn count(&mut self, ours: &Value, theirs: &BTreeSet<String>, what: &dyn std::fmt::Display) {
        let place = match (ours.as_str(), theirs.is_empty()) {
            (Some(ours), false) if theirs.contains(ours) => {
                self.same += 1;
                return;
            }
            (Some(_), false) => &mut self.other,
            (Some(_), true) => &mut self.more,
            (None, false) => &mut self.missing,
            (None, true) => return,
        };
        *place += 1;
        println!("{what}: {ours} here, {theirs:?} by tshark");
    }
}

#[test]
fn names_are_those_that_tshark_finds() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return thalweg_testdata::skipped("no tshark to compare names with");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("records.json");
    let (mut servers, mut questions, mut ids) = (Outcome::default(), Outcome::default(), Outcome::default());
    let captures = captures();
    for capture in &captures {
        let theirs = by_tshark(capture);
        run(&with_names(capture, &lines));
        for record in records(&lines) {
            let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
            let number = |name: &str| record[name].as_u64().unwrap_or_default();
            let protocol = number("protocol");
            let ports =
                if [6, 17].contains(&protocol) { [number("src_port"), number("dst_port")] } else { [0, 0] };
            let ends = (text("src"), text("dst"), ports[0], ports[1], protocol);
            let Some(found) = theirs.get(&ends) else { continue };
            let what = format!("{} {ends:?}", capture.display());
            servers.count(&record["server_name"], &found.servers, &what);
            questions.count(&record["dns_question"], &found.questions, &what);
            ids.count(&record["community_id"], &found.community_ids, &what);
        }
    }
    println!(
        "{} captures: servers {servers:?}, questions {questions:?}, community IDs {ids:?}",
        captures.len()
    );
    let of = |same, missing| Outcome { same, missing, ..Outcome::default() };
    if captures.len() > 1 {
        // tshark also reads SSDP's hosts and questions for DNSCrypt's certificates on other ports.
        assert_eq!(servers, of(1124, 27));
        assert_eq!(questions, of(465, 454));
        assert_eq!(ids, of(5474, 0));
    } else {
        assert_eq!((servers.other, questions.other, ids.other), (0, 0, 0));
        assert!(servers.same > 0 && questions.same > 0 && ids.same > 0);
    }
}
