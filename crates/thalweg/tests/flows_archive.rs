//! A dataset whose hours go to a bucket of S3, and questions to it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};
use thalweg_ports::live::wall_ns;
use thalweg_store::{Writer, WriterOptions};
use thalweg_testdata::s3_server::{ACCESS_KEY, Fault, S3Server, SECRET_KEY};

mod table;

/// 2026-11-22T05:00:00Z, and a second.
const START_NS: u64 = 1_795_323_600_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Some records of three hours, in two files each; returns how many.
fn write(folder: &Path, first: u64) -> u64 {
    let options = WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| START_NS) };
    let (writer, _) = Writer::open(folder, options).unwrap();
    for number in first..first + 60 {
        let key = FlowKey {
            src: std::net::Ipv4Addr::new(10, 0, 0, (number % 10) as u8).into(),
            dst: "192.0.2.53".parse().unwrap(),
            src_port: 1024 + number as u16,
            dst_port: if number % 2 == 0 { 53 } else { 853 },
            protocol: 17,
            traffic_class: 0,
            ingress: 1,
            vlan: 0,
            mpls_label: None,
        };
        let last_ns = START_NS + (number % 3) * 3600 * SECOND_NS + number * SECOND_NS;
        let counters =
            Counters { packets: 2, bytes: 100 + number, first_ns: last_ns, last_ns, ..Counters::default() };
        writer.append(&[FlowRecord::new(key, counters, EndReason::IdleTimeout)]).unwrap();
        if number % 30 == 29 {
            writer.flush().unwrap();
        }
    }
    writer.close().unwrap();
    60
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("flows").args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    command
}

fn flows(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Records and bytes in these places.
fn sums(places: &[&str]) -> (u64, u64) {
    let mut arguments = vec!["top", "src", "--format", "json"];
    places.iter().for_each(|place| arguments.extend(["--data", place]));
    let answer: Value = serde_json::from_str(&text(&flows(&arguments))).unwrap();
    assert_eq!(answer["scanned"]["skipped"]["count"], 0);
    (answer["total"]["flows"].as_u64().unwrap(), answer["total"]["bytes"].as_u64().unwrap())
}

/// A folder, and a bucket for its hours.
struct Place {
    folder: tempfile::TempDir,
    server: S3Server,
    url: String,
}

impl Place {
    fn new() -> Self {
        let server = S3Server::start(wall_ns).unwrap();
        let url = server.url("site/edge1");
        Self { folder: tempfile::tempdir().unwrap(), server, url }
    }

    fn here(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    fn compact(&self, more: &[&str]) -> Output {
        let arguments = ["compact", "--data", self.here(), "--archive", &self.url, "--format", "json"];
        flows(&[&arguments[..], more].concat())
    }

    fn archived(&self) -> u64 {
        let done: Value = serde_json::from_str(&text(&self.compact(&[]))).unwrap();
        done["files_archived"].as_u64().unwrap()
    }
}

#[test]
fn a_bucket_answers_as_the_folder_did() {
    let place = Place::new();
    let here = place.here();
    write(place.folder.path(), 0);
    let questions: [&[&str]; 5] = [
        &["top", "src,dst-port", "--by", "packets", "--from", "2026-11-22T06:00"],
        &["top", "dst-port", "src 10.0.0.3 or src 10.0.0.4"],
        &["list", "--format", "json", "bytes > 120"],
        &["graph", "--key", "dst-port", "--step", "1h", "--csv"],
        &["top", "src", "--dedup"],
    ];
    let ask = |places: &[&str]| {
        let places: Vec<&str> = places.iter().flat_map(|place| ["--data", place]).collect();
        questions.map(|question| text(&flows(&[question, &places].concat())))
    };
    let expected = ask(&[here]);
    assert_eq!(place.archived(), 3);
    let names: Vec<String> = place.server.objects().into_iter().map(|(key, _)| key).collect();
    assert!(names.iter().all(|name| name.starts_with("site/edge1/date=2026-11-22/hour=")), "{names:?}");
    assert_eq!(ask(&[&place.url]), expected);
    assert_eq!(ask(&[here, &place.url]), expected);
    // Only what is there may go.
    write(place.folder.path(), 60);
    place.server.set_down(true);
    let failed = place.compact(&["--keep", "1h"]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(said(&failed).contains("does not answer"), "{}", said(&failed));
    place.server.set_down(false);
    assert_eq!(sums(&[here]).0, 60, "three files are archived and gone");
    assert_eq!(sums(&[here, &place.url]), (120, (0..120).map(|n| 100 + n).sum()));
    text(&place.compact(&["--keep", "1h"]));
    assert_eq!(sums(&[here]).0, 0);
    assert_eq!(sums(&[here, &place.url]), (120, (0..120).map(|n| 100 + n).sum()));
    let stats = text(&flows(&["stats", "--data", &place.url]));
    assert!(stats.contains("site/edge1") && stats.contains("120"), "{stats}");
}

#[test]
fn sums_are_in_the_bucket_too_and_answer_there() {
    let place = Place::new();
    write(place.folder.path(), 0);
    let done: Value = serde_json::from_str(&text(&place.compact(&["--keep-hours", "9999d"]))).unwrap();
    assert_eq!((&done["files_archived"], &done["rollups_archived"]), (&3.into(), &3.into()));
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&text(&flows(&[arguments, &["--format", "json"]].concat()))).unwrap()
    };
    let there = ["top", "src", "--data", &place.url];
    let answer = json(&there);
    assert_eq!(answer["scanned"]["rollup_step_s"], 3600, "{answer}");
    let records = json(&[&there[..], &["--no-rollups"]].concat());
    assert_eq!(records["scanned"]["rollup_step_s"], 0, "{records}");
    assert_eq!((&answer["rows"], &answer["total"]), (&records["rows"], &records["total"]));
    let stats = |place: &str| json(&["stats", "--data", place])["rollups"].clone();
    assert_eq!(stats(&place.url), stats(place.here()));
    // All records go there, and the folder is lost.
    place.server.age(3 * 3600);
    assert_eq!(place.compact(&["--keep-hours", "9999d", "--archive-keep", "2h"]).status.code(), Some(0));
    let keys = place.server.objects();
    assert!(keys.iter().all(|(key, _)| key.contains("/.rollups/hour/")) && keys.len() == 3, "{keys:?}");
    std::fs::remove_dir_all(place.folder.path()).unwrap();
    let answer = json(&there);
    assert_eq!((&answer["rows"], &answer["total"]), (&records["rows"], &records["total"]));
}

#[test]
fn requests_are_as_few_as_the_documentation_says() {
    let place = Place::new();
    let mut seen = 0;
    // Lists, reads, writes, and looks at what was written.
    let mut since = || {
        let requests = place.server.requests().split_off(seen);
        seen += requests.len();
        let of = |begin: &str| requests.iter().filter(|line| line.starts_with(begin)).count();
        let (lists, gets) = (of("GET /flows/?"), of("GET "));
        (lists, gets - lists, of("PUT "), of("HEAD "))
    };
    let sends = |more: &[&str]| {
        text(&place.compact(&[&["--keep-hours", "9999d"], more].concat()));
    };
    let asks = |more: &[&str]| {
        text(&flows(&[&["top", "src,dst-port", "--data", &place.url], more].concat()));
    };
    write(place.folder.path(), 0);
    sends(&[]);
    assert_eq!(since(), (1, 0, 6, 6), "three hours, and their sums");
    sends(&[]);
    assert_eq!(since(), (1, 0, 0, 0), "nothing is new");
    sends(&["--archive-keep", "9999d"]);
    assert_eq!(since(), (4, 0, 0, 0), "nothing is old");
    asks(&[]);
    assert_eq!(since(), (6, 6, 0, 0), "sums have no ports: footers of both, and the records");
    asks(&["--no-rollups"]);
    assert_eq!(since(), (3, 3, 0, 0));
    text(&flows(&["top", "src", "--data", &place.url]));
    assert_eq!(since(), (6, 3, 0, 0), "sums alone");
    text(&flows(&[
        "top",
        "src",
        "--data",
        &place.url,
        "--from",
        "2026-11-22T06:00",
        "--to",
        "2026-11-22T07:00",
    ]));
    assert_eq!(since(), (6, 1, 0, 0), "an hour");
}

#[test]
fn old_hours_are_removed_there_and_damaged_marks_are_told_once() {
    let place = Place::new();
    let here = place.here();
    write(place.folder.path(), 0);
    let compact = |more: &[&str]| -> (Value, String) {
        let output = place.compact(more);
        (serde_json::from_str(&text(&output)).unwrap(), said(&output))
    };
    let (done, _) = compact(&["--archive-keep", "1h"]);
    assert_eq!((&done["files_archived"], &done["records_archived"]), (&3.into(), &60.into()));
    assert_eq!(done["objects_expired"], 0, "they were sent just now");
    place.server.overwrite("site/edge1/date=2026-11-22/hour=5/note", b"of somebody else");
    place.server.overwrite("site/edge10/date=2026-11-22/hour=5/flows-1-2-3.parquet", b"of another dataset");
    place.server.age(3 * 3600);
    assert_eq!(compact(&["--archive-keep", "9999d"]).0["objects_expired"], 0);
    assert_eq!(place.server.objects().len(), 5);
    place.server.fail("DELETE", Fault::Status(403, "AccessDenied"), 1);
    let refused = place.compact(&["--archive-keep", "2h"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("s3:DeleteObject"), "{}", said(&refused));
    let (done, _) = compact(&["--archive-keep", "2h"]);
    assert_eq!(done["objects_expired"], 3);
    assert!(done["object_bytes_expired"].as_u64() > Some(1000), "{done}");
    assert_eq!(place.server.objects().len(), 2);
    assert_eq!(sums(&[here]).0, 60, "the folder has its own limit");
    let refused = flows(&["compact", "--data", here, "--archive-keep", "2h"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    // Nobody knows of one of the hours what is there.
    let marks = place.folder.path().join("date=2026-11-22/hour=6/.archive");
    std::fs::write(&marks, b"archived").unwrap();
    let (done, told) = compact(&["--keep", "1h"]);
    assert_eq!((&done["marks_damaged"], &done["files_archived"]), (&1.into(), &1.into()));
    assert_eq!(told.matches(marks.to_str().unwrap()).count(), 1, "{told}");
    assert_eq!((compact(&[]).0["marks_damaged"].clone(), sums(&[here]).0), (0.into(), 0));
}

/// Archives with these options, and kills that when a request hangs.
fn kill_at_hang(place: &Place, options: &[&str]) {
    let arguments = ["compact", "--data", place.here(), "--archive", &place.url];
    let mut child = command(&[&arguments[..], options].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !place.server.hangs() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_writer_may_be_killed_at_any_step() {
    for (method, fault) in
        [("PUT", Fault::Hang), ("PUT", Fault::HangAfter), ("HEAD", Fault::Hang), ("HEAD", Fault::HangAfter)]
    {
        for nth in 0..2 {
            let place = Place::new();
            let here = place.here();
            write(place.folder.path(), 0);
            // The archive has the first file when the second is on its way.
            if nth > 0 {
                place.server.fail(method, Fault::None, nth);
            }
            place.server.fail(method, fault, 1);
            kill_at_hang(&place, &[]);
            let all = (60, (0..60).map(|n| 100 + n).sum());
            assert_eq!(sums(&[here]), all, "{method} {fault:?} {nth}");
            // Late records come before the archive is tried again.
            write(place.folder.path(), 60);
            text(&flows(&["compact", "--data", here]));
            let all = (120, (0..120).map(|n| 100 + n).sum());
            assert_eq!(sums(&[here]), all, "{method} {fault:?} {nth}");
            place.archived();
            assert_eq!(place.archived(), 0);
            assert_eq!(sums(&[&place.url]), all, "{method} {fault:?} {nth}");
            assert_eq!(sums(&[here, &place.url]), all, "{method} {fault:?} {nth}");
        }
    }
}

#[test]
fn what_cannot_be_asked_or_sent_is_told() {
    let place = Place::new();
    let (here, url) = (place.here(), place.url.as_str());
    write(place.folder.path(), 0);
    let empty = flows(&["top", "src", "--data", url]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(said(&empty).contains("site/edge1 has no flow records"), "{}", said(&empty));
    text(&place.compact(&[]));
    let wrong_key =
        command(&["top", "src", "--data", url]).env("AWS_SECRET_ACCESS_KEY", "x").output().unwrap();
    assert!(said(&wrong_key).contains("AWS_SECRET_ACCESS_KEY"), "{}", said(&wrong_key));
    let no_key = command(&["top", "src", "--data", url]).env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
    assert!(said(&no_key).contains("no credentials for S3"), "{}", said(&no_key));
    assert_ne!(no_key.status.code(), Some(0));
    let elsewhere = url.replace("s3://flows", "s3://floes");
    for arguments in [
        ["top", "src", "--data", elsewhere.as_str()].as_slice(),
        &["compact", "--data", here, "--archive", &elsewhere],
    ] {
        // What is archived already is not sent again.
        write(place.folder.path(), 60);
        let failed = flows(arguments);
        assert!(said(&failed).contains("no such bucket"), "{}", said(&failed));
        assert_eq!(failed.status.code(), Some(1));
    }
    for (arguments, word) in [
        (["compact", "--data", url].as_slice(), "--archive"),
        (&["import", "x.pcap", "--data", url], "--archive"),
        (&["compact", "--data", here, "--archive", "s3:/x"], "s3://BUCKET/PREFIX"),
    ] {
        let refused = flows(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(said(&refused).contains(word), "{}", said(&refused));
    }
    // A damaged object is skipped, named, and told by the exit code.
    let (key, _) = place.server.objects().remove(0);
    place.server.overwrite(&key, b"PAR1 and nothing else");
    let damaged = flows(&["top", "src", "--data", url]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(said(&damaged).contains(&format!("s3://flows/{key}")), "{}", said(&damaged));
}

/// A store of others in a thread of Python, and another engine that reads it: prints the port, and after a line the sums.
const MOTO: &str = r#"
import sys, boto3
from moto.server import ThreadedMotoServer
from pyarrow import dataset, fs, compute
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
keys = dict(aws_access_key_id="test-key", aws_secret_access_key="test/secret+key", region_name="us-east-1")
boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys).create_bucket(Bucket="flows")
print(port, flush=True)
sys.stdin.readline()
bucket = fs.S3FileSystem(access_key="test-key", secret_key="test/secret+key", region="us-east-1",
                         scheme="http", endpoint_override=f"127.0.0.1:{port}")
table = dataset.dataset("flows/site/edge1", filesystem=bucket, format="parquet", partitioning="hive").to_table()
print(table.num_rows, compute.sum(table["bytes"]).as_py(), flush=True)
sys.stdin.readline()
"#;

/// A Python with these modules: the one that `THALWEG_PYTHON` names, the system's, or one that is made, with these packages.
fn python_with(name: &str, modules: &str, packages: &[&str]) -> Option<PathBuf> {
    let quiet = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let has = |python: &Path| quiet(Command::new(python).args(["-c", &format!("import {modules}")]));
    let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
    if let Some(python) = named.into_iter().chain([PathBuf::from("python3")]).find(|python| has(python)) {
        return Some(python);
    }
    let venv = std::env::temp_dir().join(name);
    let python = venv.join("bin/python");
    if !has(&python) {
        let _ = quiet(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            && quiet(Command::new(&python).args(["-m", "pip", "install", "-q"]).args(packages));
    }
    has(&python).then_some(python)
}

#[test]
fn a_store_of_others_takes_and_gives_the_same() {
    let packages = ["moto[server,s3]", "pyarrow"];
    let Some(python) = python_with("thalweg-test-moto", "moto.server, boto3, pyarrow", &packages) else {
        return thalweg_testdata::skipped(
            "an archive in moto: no Python with moto and pyarrow (THALWEG_PYTHON)",
        );
    };
    let mut child = Command::new(python)
        .args(["-c", MOTO])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.next().unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    let url = format!("s3://flows/site/edge1?endpoint=http://127.0.0.1:{port}");
    write(folder.path(), 0);
    for _ in 0..2 {
        text(&flows(&["compact", "--data", here, "--archive", &url]));
        write(folder.path(), 60);
    }
    let elsewhere = url.replace("s3://flows", "s3://floes");
    let refused = said(&flows(&["top", "src", "--data", &elsewhere]));
    assert!(refused.contains("no such bucket"), "{refused}");
    text(&flows(&["compact", "--data", here, "--archive", &url]));
    let all = sums(&[here]);
    assert_eq!(all.0, 180);
    assert_eq!((sums(&[&url]), sums(&[here, &url])), (all, all));
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), format!("{} {}", all.0, all.1));
    let stats = || -> Value {
        serde_json::from_str(&text(&flows(&["stats", "--data", &url, "--format", "json"]))).unwrap()
    };
    let keeping = |time: &str| {
        let arguments =
            ["compact", "--data", here, "--archive", &url, "--archive-keep", time, "--format", "json"];
        let done: Value = serde_json::from_str(&text(&flows(&arguments))).unwrap();
        done["objects_expired"].as_u64().unwrap()
    };
    let files = stats()["files"].as_u64().unwrap();
    assert_eq!(keeping("9999d"), 0);
    // They are a second old soon.
    let mut removed = 0;
    while removed < files {
        removed += keeping("1s");
    }
    assert_eq!(removed, files);
    drop(input);
    child.wait().unwrap();
}

/// A capture of a datagram of NetFlow 5 with a record of 2026-11-22T05:00:00.
fn capture() -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend([0, 5, 0, 1]);
    payload.extend(100_000_u32.to_be_bytes());
    payload.extend(u32::try_from(START_NS / SECOND_NS).unwrap().to_be_bytes());
    payload.extend([0; 12]);
    payload.extend([10, 0, 0, 1, 192, 0, 2, 53, 0, 0, 0, 0, 0, 1, 0, 2]);
    payload.extend([5_u32, 500, 99_000, 100_000].map(u32::to_be_bytes).concat());
    payload.extend([4, 0, 0, 53, 0, 0, 17, 0, 0, 0, 0, 0, 24, 24, 0, 0]);
    let mut frame = [&[0; 12][..], &[8, 0]].concat();
    let udp = u16::try_from(8 + payload.len()).unwrap();
    frame.extend(
        [&[0x45, 0][..], &(20 + udp).to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]]
            .concat(),
    );
    frame.extend([&[0x13, 0x88, 0x08, 0x07][..], &udp.to_be_bytes(), &[0, 0]].concat());
    frame.extend(payload);
    let length = u32::try_from(frame.len()).unwrap();
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    file.extend(
        [u32::try_from(START_NS / SECOND_NS).unwrap(), 0, length, length].map(u32::to_le_bytes).concat(),
    );
    file.extend(frame);
    file
}

#[test]
fn an_import_sends_at_its_end_or_says_why_not() {
    let place = Place::new();
    let here = place.here();
    let file = place.folder.path().join("capture.pcap");
    std::fs::write(&file, capture()).unwrap();
    let import = || flows(&["import", file.to_str().unwrap(), "--data", here, "--archive", &place.url]);
    place.server.set_down(true);
    let failed = import();
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(said(&failed).contains("not everything is archived"), "{}", said(&failed));
    assert_eq!(sums(&[here]), (1, 500), "the file stays");
    place.server.set_down(false);
    text(&import());
    assert_eq!(sums(&[&place.url]), (2, 1000));
    assert_eq!(sums(&[here, &place.url]), (2, 1000));
}
