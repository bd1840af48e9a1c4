//! Flow records are written to a full disk: a small tmpfs in its own mount namespace.
//!
//! Needs root. Cases that do not are tested beside the writer (`crates/store/src/writer/tests.rs`).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const OFFICE: &str = "examples/small-office/office.pcapng";
/// Somewhat more than the writer's limit of pending records.
const RECORDS: u32 = 600_000;
/// The test has failed if it takes longer.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The longest time from a signal to the end on a busy machine; shorter than the waits for a collector or a disk,
/// so the program cannot have waited for one.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(25);
/// More repetitions than a probe can finish.
const FOR_EVER: &str = "1000000000";

/// Whether this process may mount file systems.
fn can_mount() -> bool {
    let tried = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        thalweg_testdata::skipped("no right to mount a tmpfs in a namespace: not root");
    }
    can
}

/// A command that sees a tmpfs of 64 MB at `folder`, with 100 kB free.
fn on_full_disk(folder: &Path, arguments: &[&str]) -> Command {
    let script = "set -e; mount -t tmpfs -o size=64m none \"$0\"; head -c 66900000 /dev/zero > \"$0\"/filler; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(folder);
    command.arg(env!("CARGO_BIN_EXE_thalweg")).args(arguments).current_dir(ROOT);
    command
}

/// Writes NetFlow 5 messages with `records` records in all.
fn netflow(path: &Path, records: u32) {
    let mut bytes: Vec<u8> = Vec::new();
    for message in 0..records / 30 {
        let header = [5 << 16 | 30, 1_000_000, 1_795_323_600, 0, message * 30, 0];
        bytes.extend(header.iter().flat_map(|word: &u32| word.to_be_bytes()));
        for record in 0..30 {
            let number = message * 30 + record;
            let (src, dst) = (0x0a00_0000 + number % 200_000, 0xc000_0201);
            let words =
                [src, dst, 0, 1 << 16 | 2, 3, 180, 900_000, 900_000 + number % 1000, number << 16 | 53];
            bytes.extend(words.iter().flat_map(|word: &u32| word.to_be_bytes()));
            bytes.extend([0, 0, 17, 0, 0, 0, 0, 0, 24, 24, 0, 0]);
        }
    }
    fs::write(path, bytes).unwrap();
}

/// A writer on a full disk.
struct Writer {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    folder: PathBuf,
}

impl Writer {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = on_full_disk(folder, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, folder: folder.to_owned() }
    }

    /// Reads the next line of its log, which must contain `words`.
    fn says(&mut self, words: &str) -> String {
        let mut line = String::new();
        assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended without saying: {words}");
        assert!(line.contains(words), "{line}");
        line
    }

    /// The path of a file inside its namespace.
    fn inside(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(self.folder.strip_prefix("/").unwrap()).join(name)
    }

    fn asked(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.child.id().to_string()]);
        command.arg(env!("CARGO_BIN_EXE_thalweg")).args(["flows", "--data"]).arg(self.folder.join("flows"));
        command.args(arguments).output().unwrap()
    }

    /// Waits until records are pending; the writer must answer queries meanwhile.
    fn waits(&self) {
        let began = Instant::now();
        loop {
            let answer = self.asked(&["stats", "--format", "json"]);
            let stats = serde_json::from_slice::<Value>(&answer.stdout).unwrap_or_default();
            if stats["pending_records"].as_u64() >= Some(1) {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "{stats} {}", String::from_utf8_lossy(&answer.stderr));
        }
    }

    /// Tells it to stop, which must not be a success; returns its summary.
    fn ends_as_told(self) -> Value {
        let began = Instant::now();
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let (code, printed, said) = self.end();
        let took = began.elapsed();
        eprintln!("from the signal to the end: {took:?}");
        assert!(took < SIGNAL_TIMEOUT, "{took:?}");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("not-written") && said.contains("keep_free"), "{said}");
        serde_json::from_str(&printed).unwrap()
    }

    /// Waits for its end; returns its exit code, standard output and the rest of its log.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut printed, mut said) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), printed, said)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Names of incomplete or unexpected files.
fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "tmp") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn a_probe_whose_disk_is_full_says_so_and_what_it_lost() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows").display().to_string();
    let arguments = ["probe", OFFICE, "--format", "json", "--store", &store];
    let output = on_full_disk(folder.path(), &arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no flow records are written") && said.contains("keep_free"), "{said}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost = &summary["outlets"][0]["lost"]["not-written"];
    assert!(lost.as_u64() > Some(0) && summary["outlets"][0]["records"] == 0, "{summary}");
    assert_eq!((&summary["conserved"], &summary["records_exported"]), (&true.into(), &0.into()), "{summary}");
    assert!(summary["dropped"]["undelivered"].as_u64() > Some(0), "{summary}");
}

#[test]
fn an_import_waits_for_room_answers_meanwhile_and_ends_when_it_is_told_to() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    let records = source.path().join("records.nf5");
    netflow(&records, RECORDS);
    let records = records.display().to_string();
    for goes_on in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("flows").display().to_string();
        let mut arguments = vec!["flows", "--format", "json", "import", &records, "--data", &store];
        // Without a reserve the disk fills to the last byte, and the file being written breaks off. With one, the
        // reserve stays free.
        let why = if goes_on { "No space left on device" } else { "keep_free" };
        if goes_on {
            arguments.extend(["--keep-free", "0"]);
        }
        let mut writer = Writer::start(folder.path(), &arguments);
        let line = writer.says("no flow records are written");
        assert!(line.contains(why), "{line}");
        assert_eq!(leftovers(&writer.inside("flows")), Vec::<PathBuf>::new());
        writer.waits();
        if goes_on {
            fs::remove_file(writer.inside("filler")).unwrap();
            writer.says("are written to");
            let (code, printed, said) = writer.end();
            assert_eq!(code, Some(0), "{said}");
            let summary: Value = serde_json::from_str(&printed).unwrap();
            assert_eq!(summary["outlets"][0]["records"], RECORDS, "{summary}");
        } else {
            let summary = writer.ends_as_told();
            let outlet = &summary["outlets"][0];
            let lost: u64 = outlet["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
            assert_eq!((&outlet["records"], &summary["conserved"]), (&0.into(), &true.into()), "{summary}");
            assert_eq!(summary["records"], lost, "{summary}");
        }
    }
}

#[test]
fn a_probe_that_waits_for_room_ends_when_it_is_told_to() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("flows").display().to_string();
    let arguments = ["probe", OFFICE, "--loop", FOR_EVER, "--format", "json", "--store", &store];
    let mut writer = Writer::start(folder.path(), &arguments);
    writer.says("no flow records are written");
    writer.waits();
    let summary = writer.ends_as_told();
    assert_eq!(summary["conserved"], true, "{summary}");
    assert!(summary["outlets"][0]["lost"]["not-written"].as_u64() > Some(0), "{summary}");
}

/// The collector is down, and the disk has no room for the spool: lost records are reported at once, and stopping
/// does not wait.
#[test]
fn a_spool_without_room_loses_records_by_name() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool").display().to_string();
    let url = "ipfix+tcp://127.0.0.1:1";
    let arguments =
        ["probe", OFFICE, "--loop", FOR_EVER, "--format", "json", "--export", url, "--spool", &spool];
    let mut writer = Writer::start(folder.path(), &arguments);
    let line = writer.says("flow records are lost on the way to");
    assert!(line.contains("spool-failed") && line.contains("No space left on device"), "{line}");
    // Attempts on a full disk leave no files beyond those already spooled.
    let files = || fs::read_dir(writer.inside("spool/0")).unwrap().count();
    assert!(files() <= 2, "the lock and one file: {}", files());
    let began = Instant::now();
    let pid = writer.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let (code, printed, said) = writer.end();
    assert!(began.elapsed() < SIGNAL_TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("spool-failed") && said.contains("No space left on device"), "{said}");
    let summary: Value = serde_json::from_str(&printed).unwrap();
    let outlet = &summary["outlets"][0];
    let lost: u64 = outlet["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let made: u64 =
        summary["records_by_reason"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!((summary["conserved"].as_bool(), lost), (Some(true), made), "{summary}");
}
