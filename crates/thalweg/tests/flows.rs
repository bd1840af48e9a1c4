//! `thalweg flows` on a small dataset.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};
use thalweg_store::{Writer, WriterOptions};

/// 2026-11-22T05:00:00Z.
const START_NS: u64 = 1_795_323_600_000_000_000;

/// A hundred records, one per minute: ten clients query one resolver.
fn write(folder: &Path) {
    write_from(folder, START_NS);
}

fn write_from(folder: &Path, start_ns: u64) {
    let options = WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| START_NS) };
    let (writer, _) = Writer::open(folder, options).unwrap();
    for number in 0..100u64 {
        writer.append(&[record(number, start_ns + number * 60_000_000_000)]).unwrap();
    }
    writer.close().unwrap();
}

fn record(number: u64, last_ns: u64) -> FlowRecord {
    let key = FlowKey {
        src: std::net::Ipv4Addr::new(10, 0, 0, (number % 10) as u8).into(),
        dst: "192.0.2.53".parse().unwrap(),
        src_port: 1024 + number as u16,
        dst_port: if number.is_multiple_of(2) { 53 } else { 853 },
        protocol: 17,
        traffic_class: 0,
        ingress: 1,
        vlan: 0,
        mpls_label: None,
    };
    let counters =
        Counters { packets: 2, bytes: 100 + number, first_ns: last_ns, last_ns, ..Counters::default() };
    let mut record = FlowRecord::new(key, counters, EndReason::IdleTimeout);
    record.application = 8;
    record
}

fn flows(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["flows", "--data"]).arg(folder).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

/// A shell allows 1024 open files; the system allows more.
#[test]
fn more_files_are_asked_than_a_shell_lets_open() {
    let folder = tempfile::tempdir().unwrap();
    let options = WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| START_NS) };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    for hour in 0..60 {
        writer.append(&[record(hour, START_NS + hour * 3_600_000_000_000)]).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -S -n 40 && exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_thalweg"),
            "flows",
            "--data",
        ])
        .arg(folder.path())
        .args(["top", "src", "--format", "json"])
        .output()
        .unwrap();
    assert_eq!(json(&output)["total"]["flows"], 60);
}

#[test]
fn questions_are_answered_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let ask = |arguments: &[&str]| flows(folder.path(), arguments);
    let answer =
        json(&ask(&["top", "src", "-n", "2", "--format", "json", "udp", "and", "dst", "port", "53"]));
    assert_eq!(answer["total"]["flows"], 50);
    assert_eq!(answer["keys"], 5);
    assert_eq!(answer["rows"][0]["src"], "10.0.0.8");
    assert_eq!(answer["rows"][0]["bytes"], (0..10).map(|n| 108 + 10 * n).sum::<u64>());
    let table = text(&ask(&["top", "src,dst-port", "--by", "packets"]));
    assert!(table.contains("192.0.2.53") || table.contains("10.0.0.0"), "{table}");
    assert!(
        table.contains("in all: 200 packets, 14,950 bytes in 100 records; 10 different values"),
        "{table}"
    );
    let csv = text(&ask(&["top", "app", "--csv", "--from", "2026-11-22T05:00", "--to", "2026-11-22T05:10"]));
    assert_eq!(csv, "app,packets,bytes,flows\ndns,20,1045,10\n");
    let list = text(&ask(&["list", "-n", "1", "--format", "json", "src 10.0.0.3"]));
    let record: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(record["flow_end"], "2026-11-22T06:33:00.000000000Z");
    assert_eq!((&record["application"], &record["vlan"]), (&Value::from("dns"), &Value::Null));
    let list = text(&ask(&["list", "bytes > 198"]));
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.contains("10.0.0.9:1123  192.0.2.53:853"), "{list}");
    let chosen = ["list", "--columns", "dst_port,src,vlan,flow_end", "bytes > 198"];
    let list = text(&ask(&chosen));
    assert!(list.starts_with("dst_port  src") && list.contains("     853  10.0.0.9     -"), "{list}");
    let list = text(&ask(&[&chosen[..], &["--csv"]].concat()));
    assert!(list.starts_with("dst_port,src,vlan,flow_end\n853,10.0.0.9,,2026-11-22T06:"), "{list}");
    let list = text(&ask(&[&chosen[..], &["--format", "json"]].concat()));
    assert!(list.starts_with("{\"dst_port\":853,\"src\":\"10.0.0.9\",\"flow_end\":"), "{list}");
    // `localhost` has no traffic here, but an address.
    assert!(text(&ask(&["list", "--csv", "host localhost"])).lines().count() == 1);
    // On a narrow terminal columns are left out, and the day is said once.
    let narrow = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["flows", "--data", folder.path().to_str().unwrap(), "list", "--from", "2026-11-22T06:00"])
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    let list = text(&narrow);
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    assert!(list.contains("2026-11-22") && list.contains("no room for: seconds, flags, name"), "{list}");
    assert!(list.contains("\n06:33:00  "), "{list}");
    let narrow = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["flows", "--data", folder.path().to_str().unwrap(), "graph"])
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    let graph = text(&narrow);
    assert!(graph.lines().all(|line| line.chars().count() <= 80) && graph.contains('█'), "{graph}");
    let graph = json(&ask(&["graph", "--step", "1h", "--key", "dst-port", "--format", "json"]));
    assert_eq!(graph["series"][0]["steps"].as_array().unwrap().len(), 2);
    assert_eq!(graph["series"][0]["steps"][0]["flows"], 30);
    let bars = text(&ask(&["graph", "--by", "flows", "--step", "1h"]));
    assert!(bars.contains("2026-11-22T05:00:00Z") && bars.contains('█'), "{bars}");
    let stats = json(&ask(&["stats", "--format", "json"]));
    assert_eq!((&stats["records"], &stats["partitions"]), (&Value::from(100), &Value::from(2)));
    let none = ask(&["top", "src", "--to", "2026-11-22T04:00", "--format", "json"]);
    assert_eq!(json(&none)["rows"], Value::Array(Vec::new()));
    // An empty answer says which times the data covers.
    for arguments in [
        &["top", "src", "--to", "2026-11-22T04:00"][..],
        &["list", "--from", "2026-11-23"],
        &["graph", "src 192.0.2.99"],
    ] {
        let output = ask(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let span = "the data begins at 2026-11-22T05:00:00Z and ends at 2026-11-22T06:39:00Z";
        assert!(output.status.success() && said.contains(span), "{arguments:?}: {said}");
    }
    // Counts below a thousand are whole numbers, and the singular is used for one.
    let one = text(&ask(&["top", "src", "--human", "src 10.0.0.3 and dst port 853 and bytes 193"]));
    assert!(one.contains("in all: 2 packets, 193 bytes in 1 record; 1 different value\n"), "{one}");
    assert!(!one.contains("1.00"), "{one}");
    // The data ends within the last hour.
    let bars = text(&ask(&["graph", "--step", "1h"]));
    let marked: Vec<&str> = bars.lines().filter(|line| line.ends_with("(incomplete step)")).collect();
    assert!(marked.len() == 1 && marked[0].contains("2026-11-22T06:00:00Z"), "{bars}");
    assert_eq!(graph["incomplete_steps"], serde_json::json!([1]));
    let whole = json(&ask(&[
        "graph",
        "--step",
        "30m",
        "--from",
        "2026-11-22T05:30",
        "--to",
        "2026-11-22T06:30",
        "--format",
        "json",
    ]));
    assert_eq!(whole["incomplete_steps"], serde_json::json!([]), "there are records before and after it");
}

#[test]
fn several_datasets_are_asked_as_one() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(one.path());
    write(two.path());
    let other = two.path().to_str().unwrap();
    let both = |arguments: &[&str]| flows(one.path(), &[&["--data", other], arguments].concat());
    assert_eq!(json(&both(&["top", "src", "--format", "json"]))["total"]["flows"], 200);
    assert_eq!(text(&both(&["list", "-n", "1000"])).lines().count(), 202);
    assert_eq!(json(&both(&["stats", "--format", "json"]))["records"], 200);
    let into_both = both(&["import", "nothing.pcap"]);
    let said = String::from_utf8_lossy(&into_both.stderr).into_owned();
    assert!(into_both.status.code() == Some(2) && said.contains("name one"), "{said}");
}

/// The files of a dataset.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found: Vec<std::path::PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry)),
            false if entry.extension().is_some_and(|end| end == "parquet") => found.push(entry),
            false => {}
        }
    }
    found.sort();
    found
}

/// What is in the other files is the answer, and the exit code says that it is not all.
#[test]
fn a_file_that_cannot_be_read_is_named_and_makes_the_exit_code_1() {
    type Spoil = fn(&Path);
    let cut: Spoil = |file| {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    };
    let garble: Spoil = |file| {
        let mut bytes = std::fs::read(file).unwrap();
        // All but the footer, whose length precedes the last four bytes.
        let end = bytes.len() - 8;
        let footer = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
        bytes[4..end - footer].fill(0xa5);
        std::fs::write(file, bytes).unwrap();
    };
    let of_another_version: Spoil = |file| {
        std::fs::write(file, include_bytes!("../../store/src/file/testdata/version-2.parquet")).unwrap();
    };
    for spoil in [cut, garble, of_another_version] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let all = files(folder.path());
        assert_eq!(all.len(), 2, "one for each hour");
        spoil(&all[0]);
        for question in [
            &["top", "proto"][..],
            &["top", "proto", "--format", "json"],
            &["list"],
            &["graph"],
            &["graph", "--csv"],
        ] {
            let output = flows(folder.path(), question);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{question:?}: {error}");
            assert!(error.contains(all[0].to_str().unwrap()), "{question:?}: {error}");
            assert!(error.contains("1 file could not be read"), "{question:?}: {error}");
            assert!(!output.stdout.is_empty(), "{question:?}");
        }
        let top = flows(folder.path(), &["top", "proto", "--format", "json"]);
        let top: Value = serde_json::from_slice(&top.stdout).unwrap();
        assert_eq!(top["total"]["flows"], 40, "those of the second hour");
        // Others need no row to find out: only files whose footer is damaged.
        if spoil as usize != garble as usize {
            for question in [&["stats"][..], &["stats", "--format", "json"], &["compact"]] {
                let output = flows(folder.path(), question);
                assert_eq!(output.status.code(), Some(1), "{question:?}");
                assert!(String::from_utf8_lossy(&output.stderr).contains(all[0].to_str().unwrap()));
            }
        }
    }
}

#[test]
fn sums_answer_when_records_are_gone_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    // 2001-09-09T01:00:00Z: by every clock, these hours have ended.
    write_from(folder.path(), 999_997_200_000_000_000);
    let ask = |arguments: &[&str]| {
        let output = flows(folder.path(), &[arguments, &["--format", "json"]].concat());
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        (json(&output), notes)
    };
    let (of_records, _) = ask(&["top", "src", "-n", "3", "udp"]);
    let years = ["--keep-minutes", "90000d", "--keep-hours", "90000d"];
    let made = json(&flows(folder.path(), &[&["compact", "--format", "json"], &years[..]].concat()));
    assert_eq!((&made["rollups_made"], &made["records_expired"]), (&Value::from(4), &Value::from(0)));
    let (of_sums, notes) = ask(&["top", "src", "-n", "3", "udp"]);
    for part in ["rows", "total", "keys"] {
        assert_eq!(of_sums[part], of_records[part]);
    }
    assert_eq!(of_sums["scanned"]["rollup_step_s"], 3600);
    assert!(notes.contains("note: answered from hours (--no-rollups: from records alone)"), "{notes}");
    let (asked, notes) = ask(&["top", "src", "--no-rollups", "udp"]);
    assert_eq!((asked["scanned"]["rollup_step_s"].as_u64(), notes.as_str()), (Some(0), ""));
    let (by_minute, notes) = ask(&["graph", "--step", "1m"]);
    assert_eq!(by_minute["scanned"]["rollup_step_s"], 60);
    assert!(notes.contains("answered from minutes"), "{notes}");
    let removed =
        json(&flows(folder.path(), &[&["compact", "--keep", "1d", "--format", "json"], &years[..]].concat()));
    assert_eq!((&removed["rollups_made"], &removed["records_expired"]), (&Value::from(0), &Value::from(100)));
    let (of_sums, _) = ask(&["top", "src", "-n", "3", "udp"]);
    assert_eq!(of_sums["rows"], of_records["rows"]);
    let (stats, _) = ask(&["stats"]);
    let steps =
        stats["rollups"].as_array().unwrap().iter().map(|rollup| (&rollup["step_s"], &rollup["files"]));
    assert_eq!(
        steps.collect::<Vec<_>>(),
        [(&Value::from(60), &Value::from(2)), (&Value::from(3600), &Value::from(2))]
    );
    assert!(text(&flows(folder.path(), &["stats"])).contains("sums by hours: files"));
    let (fine, notes) = ask(&["graph", "--step", "10s"]);
    assert_eq!(
        (&fine["scanned"]["hours_coarse"], &fine["total"]["flows"]),
        (&Value::from(2), &Value::from(100))
    );
    assert!(notes.contains("note: the records of 2 hours are gone"), "{notes}");
    let (ports, notes) = ask(&["top", "dst-port"]);
    assert_eq!(
        (&ports["scanned"]["hours_missing"], &ports["total"]["flows"]),
        (&Value::from(2), &Value::from(0))
    );
    assert!(notes.contains("their sums do not have what is asked: the answer lacks them"), "{notes}");
    let listed = flows(folder.path(), &["list"]);
    let said = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert!(said.contains("their sums do not have what is asked"), "{said}");
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let wrong = |arguments: &[&str], part: &str| {
        let output = flows(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(part), "{arguments:?}: {said}");
    };
    wrong(&["top", "source"], "`source` is not a key; expected one of src, dst");
    wrong(&["list", "udp", "and", "prot", "17"], "filter, column 9: expected a test");
    wrong(&["list", "--columns", "src,size"], "`size` is not a field; expected some of");
    wrong(&["list", "port 53,fax"], "expected a port up to 65535, or a service");
    wrong(&["list", "--last", "1"], "expected a time with a unit");
    wrong(&["list", "--from", "yesterday"], "expected a time in UTC");
    wrong(
        &["graph", "--step", "1s", "--from", "2026-11-23", "--to", "2026-11-22"],
        "--from must be before --to",
    );
    let nowhere = folder.path().join("nowhere");
    let output = flows(&nowhere, &["stats"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot open the dataset"));
    // A folder without flow records is an error.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("notes.txt"), "").unwrap();
    for arguments in [&["top", "src"][..], &["stats"], &["compact"], &["list", "--follow"]] {
        let output = flows(other.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains("is not a dataset of flow records"),
            "{said}"
        );
    }
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1, "nothing was created there");
}

#[test]
fn small_files_are_joined_and_old_hours_removed() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        write(folder.path());
    }
    let done = json(&flows(folder.path(), &["compact", "--format", "json"]));
    assert_eq!((&done["files_joined"], &done["files_made"]), (&Value::from(6), &Value::from(2)));
    let stats = json(&flows(folder.path(), &["stats", "--format", "json"]));
    assert_eq!((&stats["records"], &stats["files"]), (&Value::from(300), &Value::from(2)));
    let done = json(&flows(folder.path(), &["compact", "--keep-bytes", "1", "--format", "json"]));
    assert_eq!(done["records_expired"], 180);
    let (writer, _) = Writer::open(folder.path(), WriterOptions::new(|| START_NS)).unwrap();
    let output = flows(folder.path(), &["compact"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("another process writes this dataset") && said.contains("keep_bytes in [flows]"),
        "{said}"
    );
    writer.close().unwrap();
}

/// Answers include records that a running writer has not written yet, and say so.
#[test]
fn what_is_not_on_disk_is_in_answers() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let options = WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| START_NS) };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    let server = writer.serve(None).unwrap();
    let key = FlowKey {
        src: "10.0.0.77".parse().unwrap(),
        dst: "192.0.2.53".parse().unwrap(),
        src_port: 5,
        dst_port: 53,
        protocol: 17,
        traffic_class: 0,
        ingress: 1,
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets: 1_000_000,
        bytes: 1_250_000_000,
        first_ns: START_NS,
        last_ns: START_NS + 1,
        ..Counters::default()
    };
    writer.append(&[FlowRecord::new(key, counters, EndReason::IdleTimeout)]).unwrap();
    let ask = |arguments: &[&str]| flows(folder.path(), arguments);
    let answer = json(&ask(&["top", "src", "-n", "1", "--format", "json"]));
    assert_eq!((&answer["rows"][0]["src"], &answer["total"]["flows"]), (&"10.0.0.77".into(), &101.into()));
    assert_eq!((&answer["live"]["writer"], &answer["live"]["flows"]), (&"answered".into(), &1.into()));
    let table = text(&ask(&["top", "src", "--human"]));
    assert!(table.contains("1.25 G") && table.contains("1.00 M"), "{table}");
    assert!(
        table.contains("of which live: 1.00 M packets, 1.25 G bytes in 1 record (looked at: 1 record waiting to be written, 0 flows"),
        "{table}"
    );
    let without = json(&ask(&["--no-live", "top", "src", "--format", "json"]));
    assert_eq!((&without["total"]["flows"], &without["live"]["writer"]), (&100.into(), &"nobody".into()));
    let list = text(&ask(&["list", "src 10.0.0.77"]));
    assert!(list.contains("10.0.0.77:5  192.0.2.53:53"), "{list}");
    let stats = json(&ask(&["stats", "--format", "json"]));
    assert_eq!((&stats["records"], &stats["pending_records"]), (&100.into(), &1.into()));
    let svg = folder.path().join("graph.svg");
    let graph = text(&ask(&["graph", "--key", "src", "--step", "10m", "--svg", svg.to_str().unwrap()]));
    assert!(graph.is_empty(), "{graph}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg xmlns") && drawn.contains("10.0.0.77") && drawn.contains("bit/s"));
    let both =
        ["graph", "--key", "src", "--step", "10m", "--stacked", "--both", "--svg", svg.to_str().unwrap()];
    text(&ask(&[&both[..], &["src", "net", "10.0.0.0/8"]].concat()));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("class=\"area s0\"") && drawn.contains("below: the other direction"), "{drawn}");
    let one_way = ask(&["graph", "--both", "--svg", svg.to_str().unwrap(), "tcp"]);
    assert_eq!(one_way.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&one_way.stderr).contains("the other direction is the same"));
    // A socket left by a killed writer causes a notice, and the answer comes from the files alone.
    drop(server);
    drop(std::os::unix::net::UnixListener::bind(folder.path().join(".live.sock")).unwrap());
    let output = ask(&["top", "src", "--format", "json"]);
    assert_eq!(json(&output)["total"]["flows"], 100);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the writer of this dataset does not answer") && said.contains("killed"), "{said}");
}

#[test]
fn records_are_followed_as_they_come_in() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let nobody = {
        write(folder.path());
        flows(folder.path(), &["list", "--follow"])
    };
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("there is nothing to follow"));
    let (writer, _) = Writer::open(folder.path(), WriterOptions::new(|| START_NS)).unwrap();
    let (beside, _) = Writer::open_beside(folder.path(), WriterOptions::new(|| START_NS)).unwrap();
    let servers = [writer.serve(None).unwrap(), beside.serve(None).unwrap()];
    let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["flows", "--data", folder.path().to_str().unwrap(), "list", "--follow", "dst port 53"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The header appears when the writer has begun to send records.
    let header = lines.next().unwrap().unwrap();
    assert!(header.starts_with("end "), "{header}");
    assert!(lines.next().unwrap().unwrap().starts_with("───"));
    let record = |dst_port: u16| {
        let key = FlowKey {
            src: "10.0.0.1".parse().unwrap(),
            dst: "192.0.2.53".parse().unwrap(),
            src_port: 9,
            dst_port,
            protocol: 17,
            traffic_class: 0,
            ingress: 1,
            vlan: 0,
            mpls_label: None,
        };
        FlowRecord::new(
            key,
            Counters { packets: 1, bytes: 60, ..Counters::default() },
            EndReason::IdleTimeout,
        )
    };
    writer.append(&[record(80), record(53)]).unwrap();
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("10.0.0.1:9             192.0.2.53:53 "), "{line}");
    let mut other = record(53);
    other.key.src_port = 10;
    beside.append(&[other]).unwrap();
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("10.0.0.1:10            192.0.2.53:53 "), "{line}");
    drop(servers);
    writer.close().unwrap();
    beside.close().unwrap();
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success(), "it ends with the writers");
}
