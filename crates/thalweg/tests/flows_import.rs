//! `thalweg flows import`: reads what other programs export.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::thalweg;
use serde_json::Value;
use thalweg_wire::testing;

const OFFICE: &str = "examples/small-office/office.pcapng";

/// An import that listens.
struct Listening {
    child: Child,
    port: u16,
}

impl Listening {
    fn start(scheme: &str, data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["flows", "--format", "json", "import", &format!("{scheme}://127.0.0.1:0"), "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A writer beside others says first where its records go.
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.starts_with("listening")).unwrap_or_default();
        let port = line.trim_end().rsplit(':').next().unwrap().parse();
        Self { child, port: port.unwrap_or_else(|_| panic!("where does it listen? {line}")) }
    }

    /// Stops it as a person would; returns its summary.
    fn end(&mut self) -> Value {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        serde_json::from_str(&said).unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn json(arguments: &[&str]) -> Value {
    let output = thalweg(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Answers from a dataset, without values that depend on its files.
fn top(data: &Path, keys: &str) -> Value {
    let data = data.display().to_string();
    let mut answer = json(&["flows", "--data", &data, "--format", "json", "top", keys, "-n", "1000"]);
    answer.as_object_mut().unwrap().remove("scanned");
    answer
}

#[test]
fn what_the_probe_exports_comes_in_as_what_it_stores() {
    let folder = tempfile::tempdir().unwrap();
    let stored = folder.path().join("stored");
    let store = stored.display().to_string();
    json(&["probe", OFFICE, "--format", "json", "--model", "serial", "--store", &store]);
    let expected = top(&stored, "src,dst,src-port,dst-port,proto");
    assert!(expected["total"]["flows"].as_u64() > Some(0));
    for (scheme, export) in [("udp", "ipfix"), ("tcp", "ipfix+tcp"), ("udp", "v9")] {
        let data = folder.path().join(export);
        let mut listening = Listening::start(scheme, &data);
        let url = format!("{export}://127.0.0.1:{}", listening.port);
        let probed = json(&["probe", OFFICE, "--format", "json", "--model", "serial", "--export", &url]);
        let summary = listening.end();
        for (ours, theirs) in
            [("records", "records_exported"), ("packets", "packets_exported"), ("bytes", "bytes_exported")]
        {
            assert_eq!(summary[ours], probed[theirs], "{export}: {summary}");
        }
        assert_eq!(summary["conserved"], true);
        assert_eq!(
            (&summary["refused"], &summary["sequence_gaps"]),
            (&Value::from(0), &Value::from(0)),
            "{summary}"
        );
        assert_eq!(summary["exporters"].as_array().unwrap().len(), 1);
        assert_eq!(top(&data, "src,dst,src-port,dst-port,proto"), expected, "{export}");
    }
}

/// Writes a capture of `flows` UDP flows with five packets each; returns the bytes of its IP packets.
fn write_capture(path: &Path, flows: u16) -> u64 {
    let mut bytes: Vec<u8> = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    let mut sum = 0;
    for n in 0..5 * flows {
        let payload = usize::from(20 + n % 100);
        let source = ([192, 0, 2, 1], 1024 + n % flows);
        let packet = testing::udp(source, ([198, 51, 100, 7], 53), &vec![0; payload]);
        sum += packet.len() as u64;
        let frame = testing::frame(&packet);
        for word in [1_700_000_000, u32::from(n), frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
    sum
}

/// Two imports and a probe write into one folder at the same time.
#[test]
fn several_programs_write_one_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("flows");
    let (mut over_udp, mut over_tcp) = (Listening::start("udp", &data), Listening::start("tcp", &data));
    let urls =
        [format!("ipfix://127.0.0.1:{}", over_udp.port), format!("ipfix+tcp://127.0.0.1:{}", over_tcp.port)];
    let store = data.display().to_string();
    let probe =
        ["probe", OFFICE, "--format", "json", "--model", "serial", "--exporter", "office", "--store", &store];
    let probed = json(&[&probe[..], &["--export", &urls[0], "--export", &urls[1]]].concat());
    let summaries = [over_udp.end(), over_tcp.end()];
    let mut names = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.any(|name| name == "writer-3"));
    let by_exporter = top(&data, "exporter");
    let records = |summary: &Value| summary["records"].as_u64().unwrap();
    let own = probed["outlets"][0]["records"].as_u64().unwrap();
    let theirs = summaries.iter().map(records).sum::<u64>();
    assert!(own > 0 && theirs == 2 * own, "{probed}");
    let rows = by_exporter["rows"].as_array().unwrap();
    let flows = |name: &str| {
        rows.iter().find(|row| row["exporter"] == name).map(|row| row["flows"].as_u64().unwrap())
    };
    assert_eq!((flows("office"), flows("127.0.0.1"), rows.len()), (Some(own), Some(theirs), 2));
    assert_eq!(by_exporter["total"]["flows"], 3 * own);
}

/// With softflowd as exporter, totals equal the capture's.
#[test]
fn softflowd_is_understood() {
    let output = Command::new("softflowd").arg("-h").output();
    if output.is_err() {
        thalweg_testdata::skipped("no softflowd");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("flows.pcap");
    let bytes = write_capture(&capture, 200);
    for version in ["5", "9", "10"] {
        let data = folder.path().join(version);
        let mut listening = Listening::start("udp", &data);
        let to = format!("127.0.0.1:{}", listening.port);
        let mut softflowd = Command::new("softflowd");
        let sent = softflowd.arg("-r").arg(&capture).args(["-n", &to, "-v", version, "-d"]).output().unwrap();
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        let summary = listening.end();
        assert_eq!(summary["conserved"], true);
        assert_eq!(summary["input_issues"]["total"], 0, "{summary}");
        assert_eq!(summary["packets"], 1000, "NetFlow {version}: {summary}");
        assert_eq!(
            (&summary["bytes"], &summary["records"]),
            (&bytes.into(), &200.into()),
            "NetFlow {version}"
        );
    }
}

/// With pmacctd as exporter, totals equal the capture's.
#[test]
fn pmacctd_is_understood() {
    if Command::new("pmacctd").arg("-V").output().is_err() {
        thalweg_testdata::skipped("no pmacctd");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("flows.pcap");
    let bytes = write_capture(&capture, 200);
    for version in ["5", "9", "10"] {
        let data = folder.path().join(version);
        let mut listening = Listening::start("udp", &data);
        let config = folder.path().join("pmacctd.conf");
        let text = format!(
            "pcap_savefile: {}\nplugins: nfprobe\nnfprobe_receiver: 127.0.0.1:{}\nnfprobe_version: {version}\n\
             aggregate: src_host, dst_host, src_port, dst_port, proto, tos\ndaemonize: false\n",
            capture.display(),
            listening.port
        );
        std::fs::write(&config, text).unwrap();
        let sent = Command::new("pmacctd").arg("-f").arg(&config).output().unwrap();
        // At the end its core process may find its plugin gone and exit with an error; only the records that it
        // sent count.
        let said = String::from_utf8_lossy(&sent.stderr);
        let summary = listening.end();
        assert_eq!(
            (&summary["conserved"], &summary["input_issues"]["total"]),
            (&true.into(), &0.into()),
            "{summary}"
        );
        assert_eq!(summary["packets"], 1000, "NetFlow {version}: {summary}\n{said}");
        assert_eq!(
            (&summary["bytes"], &summary["records"]),
            (&bytes.into(), &200.into()),
            "NetFlow {version}"
        );
    }
}

#[test]
fn the_summary_is_documented_and_mistakes_are_told() {
    let manual = include_str!("../../../docs/flow-import.md");
    let output = thalweg(&["flows", "--format", "json", "import", "--no-store", OFFICE]);
    assert_eq!(output.status.code(), Some(1), "nobody exports there");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("`thalweg probe` meters the packets themselves")
    );
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let object = summary.as_object().unwrap();
    assert!(object.keys().all(|name| manual.contains(&format!("`{name}`"))), "{:?}", object.keys());
    assert_eq!(summary["records"], 0, "nobody exports there");
    assert!(summary["passed_over"].as_object().unwrap().values().any(|n| n.as_u64() > Some(0)));
    let table = thalweg(&["flows", "import", "--no-store", OFFICE]);
    assert!(String::from_utf8(table.stdout).unwrap().contains("packets passed over"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let prose = file("prose.txt", b"dear collector, please find enclosed\n");
    let binary = file("binary", &(1..=255).cycle().take(5_000).collect::<Vec<u8>>());
    let empty = file("empty", b"");
    for (arguments, code, word) in [
        (&["import"][..], 2, "SOURCE"),
        (&["import", &prose, "--no-store"], 1, "prose.txt: it is neither a capture"),
        (&["import", &binary, "--no-store"], 1, "binary: it is neither a capture"),
        (&["import", &empty, "--no-store"], 1, "empty: it is empty"),
        (&["import", OFFICE, "--no-store", "--keep", "1d"], 2, "leave out --no-store"),
        (&["import", "udp://here", "--no-store"], 2, "0.0.0.0:2055"),
        (&["import", "sctp://1.2.3.4:5", "--no-store"], 2, "udp://ADDRESS:PORT"),
        (&["import", "-", "-", "--no-store"], 2, "only once"),
        (&["import", "no/such.pcap", "--no-store"], 1, "no/such.pcap"),
        (&["import", "udp://192.0.2.1:9", "--no-store"], 1, "udp://192.0.2.1:9"),
    ] {
        let output = thalweg(&[&["flows"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}
