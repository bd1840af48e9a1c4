//! The Iceberg table of a bucket, as engines of others read it.

use std::process::{Child, ChildStdin, ChildStdout};

use super::*;

/// Python with engines and moto, which answers line by line.
struct Engines {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// Where moto listens.
    port: u16,
}

/// What of the packages fits: extensions of DuckDB are for one version.
const PACKAGES: [&str; 7] = [
    "moto[server,s3]",
    "pyarrow",
    "pyiceberg",
    "duckdb==1.5.5",
    "duckdb-extension-iceberg==1.5.5",
    "duckdb-extension-avro==1.5.5",
    "duckdb-extension-httpfs==1.5.5",
];

impl Engines {
    /// `None` if there is no Python that has them.
    fn start() -> Option<Self> {
        let modules = "moto.server, boto3, pyarrow, pyiceberg, duckdb, duckdb_extension_httpfs, \
                       duckdb_extension_iceberg, duckdb_extension_avro";
        let Some(python) = python_with("thalweg-test-bucket", modules, &PACKAGES) else {
            thalweg_testdata::skipped("the table of a bucket: no Python with pyiceberg, DuckDB and moto");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flows_archive/tables.py");
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        Some(Self { input: child.stdin.take(), child, lines, port })
    }

    /// Records, bytes, and records of the second hour, as each engine reads them from a store at this port.
    fn ask(&mut self, port: u16, prefix: &str) -> (u64, u64, u64) {
        writeln!(self.input.as_mut().unwrap(), "{port} {prefix}").unwrap();
        let mut answers = ["pyiceberg", "duckdb"].map(|name| {
            let line = self.lines.next().expect("an engine failed: see above").unwrap();
            let numbers = line.strip_prefix(name).unwrap().split_whitespace();
            let numbers: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
            (numbers[0], numbers[1], numbers[2])
        });
        assert_eq!(answers[0], answers[1]);
        std::mem::take(&mut answers[0])
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The same of `thalweg flows`.
fn answer(url: &str) -> (u64, u64, u64) {
    let (records, bytes) = sums(&[url]);
    let second = ["--from", "2026-11-22T06:00", "--to", "2026-11-22T07:00", "--format", "json"];
    let asked = flows(&[&["top", "src", "--data", url], &second[..]].concat());
    let second: Value = serde_json::from_str(&text(&asked)).unwrap();
    (records, bytes, second["total"]["flows"].as_u64().unwrap())
}

#[test]
fn engines_read_the_table_of_a_bucket() {
    let Some(mut engines) = Engines::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    let url = format!("s3://flows/site/edge1?endpoint=http://127.0.0.1:{}", engines.port);
    let compact = |more: &[&str]| -> Value {
        let arguments = ["compact", "--data", here, "--archive", &url, "--format", "json"];
        serde_json::from_str(&text(&flows(&[&arguments[..], more].concat()))).unwrap()
    };
    write(folder.path(), 0);
    compact(&["--iceberg"]);
    let first = answer(&url);
    assert_eq!((first.0, first.2), (60, 20));
    assert_eq!(engines.ask(engines.port, "site/edge1"), first);
    // Late records of these hours; the table is kept without being asked for.
    write(folder.path(), 60);
    compact(&[]);
    let second = answer(&url);
    assert_eq!((second.0, second.2), (120, 40));
    assert_eq!(engines.ask(engines.port, "site/edge1"), second);
    // They are a second old soon.
    let files = 6;
    let mut removed = 0;
    while removed < files {
        removed += compact(&["--archive-keep", "1s"])["objects_expired"].as_u64().unwrap();
        let left = engines.ask(engines.port, "site/edge1");
        assert_eq!(left.0, (files - removed) * 20);
    }
    assert_eq!(removed, files);
}

/// The table's current document, if its hint names one.
fn document(server: &S3Server, prefix: &str) -> Option<Value> {
    let get = |name: &str| server.content(&format!("{prefix}/.iceberg/metadata/{name}"));
    let hint = String::from_utf8(get("version-hint.text")?).unwrap();
    Some(serde_json::from_slice(&get(&format!("v{hint}.metadata.json")).unwrap()).unwrap())
}

/// Records of the table's current snapshot.
fn in_table(server: &S3Server, prefix: &str) -> Option<u64> {
    let document = document(server, prefix)?;
    let snapshots = document["snapshots"].as_array().unwrap();
    let current = snapshots.iter().find(|one| one["snapshot-id"] == document["current-snapshot-id"]);
    Some(current.map_or(0, |one| one["summary"]["total-records"].as_str().unwrap().parse().unwrap()))
}

#[test]
fn a_writer_killed_at_any_request_leaves_a_table_that_engines_read() {
    let mut engines = Engines::start();
    // Three objects, the probe, a manifest, a list, a document, a hint.
    let requests = 9;
    for fault in [Fault::Hang, Fault::HangAfter] {
        for nth in 0..requests {
            let place = Place::new();
            let here = place.here();
            write(place.folder.path(), 0);
            if nth > 0 {
                place.server.fail("PUT", Fault::None, nth);
            }
            place.server.fail("PUT", fault, 1);
            kill_at_hang(&place, &["--iceberg"]);
            let port: u16 = place.url.rsplit_once(':').unwrap().1.parse().unwrap();
            let left = in_table(&place.server, "site/edge1");
            assert!(matches!(left, None | Some(60)), "{fault:?} {nth}: {left:?}");
            assert_eq!(left.is_some(), nth == requests - 1 && fault == Fault::HangAfter);
            if let (Some(engines), Some(_)) = (&mut engines, left) {
                assert_eq!(engines.ask(port, "site/edge1"), answer(&place.url), "{fault:?} {nth}");
            }
            // The next one mends it, with late records.
            write(place.folder.path(), 60);
            text(&place.compact(&["--iceberg"]));
            assert_eq!(in_table(&place.server, "site/edge1"), Some(120), "{fault:?} {nth}");
            assert_eq!((sums(&[&place.url]).0, sums(&[here]).0), (120, 120));
            // Engines take a second or two.
            if let Some(engines) = engines.as_mut().filter(|_| nth % 3 == 0) {
                assert_eq!(engines.ask(port, "site/edge1"), answer(&place.url), "{fault:?} {nth}");
            }
        }
    }
}

#[test]
fn two_writers_at_once_have_one_table() {
    let place = Place::new();
    let here = place.here();
    let file = place.folder.path().join("capture.pcap");
    std::fs::write(&file, capture()).unwrap();
    for round in 1..=3 {
        let imports = [(); 3].map(|()| {
            let arguments = ["import", file.to_str().unwrap(), "--data", here, "--archive", &place.url];
            let mut command = command(&[&arguments[..], &["--iceberg"]].concat());
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        });
        for import in imports {
            let output = import.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
        }
        assert_eq!(sums(&[&place.url]).0, round * 3);
        assert_eq!(in_table(&place.server, "site/edge1"), Some(round * 3));
    }
    // Another dataset in the bucket has a table of its own.
    let other = tempfile::tempdir().unwrap();
    let url = place.server.url("site/edge2");
    write(other.path(), 0);
    let there = other.path().to_str().unwrap();
    text(&flows(&["compact", "--data", there, "--archive", &url, "--iceberg"]));
    assert_eq!(in_table(&place.server, "site/edge2"), Some(60));
    assert_eq!(in_table(&place.server, "site/edge1"), Some(9));
}

#[test]
fn a_table_that_cannot_be_written_is_told_and_removes_nothing() {
    let place = Place::new();
    write(place.folder.path(), 0);
    text(&place.compact(&["--iceberg"]));
    let objects = place.server.objects().len();
    place.server.age(3 * 3600);
    place.server.fail("PUT", Fault::Status(403, "AccessDenied"), 99);
    let refused = place.compact(&["--archive-keep", "2h"]);
    assert_eq!(refused.status.code(), Some(1));
    let told = said(&refused);
    assert!(told.contains("site/edge1/.iceberg/metadata") && told.contains("s3:PutObject"), "{told}");
    assert_eq!((place.server.objects().len(), in_table(&place.server, "site/edge1")), (objects, Some(60)));
}

#[test]
fn a_time_for_the_bucket_that_is_shorter_than_that_of_the_folder_is_told() {
    let place = Place::new();
    write(place.folder.path(), 0);
    for (here, there, is_told) in
        [("9000d", "8000d", true), ("8000d", "8000d", false), ("30d", "8000d", false)]
    {
        let told = said(&place.compact(&["--keep", here, "--archive-keep", there]));
        assert_eq!(
            told.contains("--archive-keep removes records from the bucket before --keep"),
            is_told,
            "{told}"
        );
    }
}
