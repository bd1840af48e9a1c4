//! The dataset as other engines read it, one table: DuckDB, ClickHouse (chdb), pandas with pyarrow, Spark; and pyiceberg.

use super::*;
use thalweg_base::DropReason;
use thalweg_flow::Translation;

/// Engines that are small enough for a test to fetch, and their packages. An extension of DuckDB fits one version.
const FETCHED: [(&str, &[&str]); 2] = [
    ("duckdb", &["duckdb"]),
    (
        "duckdb_extension_iceberg",
        &["duckdb==1.5.5", "duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5"],
    ),
];

/// A Python that has this module, if there is one, or if one can be made. `THALWEG_PYTHON` names another one.
fn python_with(module: &str) -> Option<PathBuf> {
    let has = |python: &Path| {
        let asked =
            Command::new(python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
    if let Some(python) = named.into_iter().chain([PathBuf::from("python3")]).find(|python| has(python)) {
        return Some(python);
    }
    let venv = std::env::temp_dir().join(format!("thalweg-test-{module}"));
    let python = venv.join("bin/python");
    if let Some((_, packages)) = FETCHED.iter().find(|(name, _)| *name == module)
        && !has(&python)
    {
        let quiet = |command: &mut Command| {
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let _ = quiet(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            && quiet(Command::new(&python).args(["-m", "pip", "install", "-q"]).args(*packages));
    }
    has(&python).then_some(python)
}

/// Records of three hours with everything that engines are asked about.
fn some_of_everything() -> Vec<FlowRecord> {
    let mut all = records(0..5000);
    for (number, record) in (0..).zip(&mut all) {
        record.counters.last_ns += number % 3 * 60 * MINUTE_NS + number % 1000;
        record.counters.bytes += (1 << 40) * u64::from(number % 11 == 0);
        record.application = (number % 4 * 4) as u8;
        record.dst_as = if number % 5 == 0 { 0 } else { 4_200_000_000 };
        record.next_hop = (number % 2 == 0).then(|| "2001:db8::1".parse().unwrap());
        record.reverse =
            (number % 6 == 0).then_some(Counters { packets: 3, bytes: number, ..record.counters });
        record.translation = (number % 9 == 0).then(|| Translation {
            src: "203.0.113.9".parse().unwrap(),
            dst: record.key.dst,
            src_port: 40_000,
            dst_port: 443,
        });
        if number % 10 == 0 {
            record.drops.add(DropReason::NoRoute, 1, 60);
        }
    }
    all
}

/// What the questions of `engines.py` are to be answered with.
fn answers(all: &[FlowRecord]) -> [String; 6] {
    let counted = |test: &dyn Fn(&FlowRecord) -> bool| all.iter().filter(|record| test(record)).count();
    let summed = |value: &dyn Fn(&FlowRecord) -> u64| all.iter().map(value).sum::<u64>();
    let telnet = |r: &FlowRecord| r.key.src.to_string() == "10.0.0.7" && r.application == 12;
    let second_hour = counted(&|r| (60..120).contains(&((r.counters.last_ns - START_NS) / MINUTE_NS)));
    [
        format!(
            "{}|{}|{}|{}|{}|{}|{}|{}|{}",
            all.len(),
            summed(&|r| r.counters.packets),
            summed(&|r| r.counters.bytes),
            summed(&|r| r.reverse.map_or(0, |reverse| reverse.bytes)),
            summed(&|r| r.drops.packets()),
            counted(&|r| r.dst_as != 0),
            4_200_000_000u32,
            counted(&|r| r.next_hop.is_some()),
            counted(&|r| r.translation.is_some())
        ),
        format!("{}|{}", counted(&telnet), summed(&|r| if telnet(r) { r.counters.bytes } else { 0 })),
        counted(&|r| !r.drops.is_empty()).to_string(),
        second_hour.to_string(),
        second_hour.to_string(),
        format!(
            "{}|{}|{}|{}",
            all.iter().map(|r| r.counters.last_ns / 1000).min().unwrap(),
            all.iter().map(|r| r.counters.first_ns / 1000).max().unwrap(),
            summed(&|r| r.counters.last_ns % 1000),
            summed(&|r| r.counters.first_ns % 1000),
        ),
    ]
}

#[test]
fn engines_read_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    let all = some_of_everything();
    // Several files of an hour, and then one that replaced them.
    for part in all.chunks(2000) {
        writer.append(part).unwrap();
        writer.flush().unwrap();
    }
    assert_eq!(writer.compact().unwrap().files_made, 3);
    writer.close().unwrap();
    for engine in ["duckdb", "chdb", "pandas", "pyspark"] {
        let Some(python) = python_with(engine) else {
            eprintln!("SKIPPED engines_read_the_same, {engine}: no python3 has it, and it was not installed");
            continue;
        };
        assert_eq!(ask(&python, engine, folder.path()), answers(&all), "{engine}");
    }
}

/// Asks an engine the questions of `engines.py`.
fn ask(python: &Path, engine: &str, folder: &Path) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dataset/engines.py");
    let output = Command::new(python).arg(script).arg(engine).arg(folder).env("TZ", "UTC").output().unwrap();
    assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Asks an engine about an Iceberg table; `None` if it is missing.
fn ask_table(engine: &str, folder: &Path) -> Option<Vec<String>> {
    let module = if engine == "duckdb_iceberg" { "duckdb_extension_iceberg" } else { engine };
    let Some(python) = python_with(module) else {
        eprintln!("SKIPPED engines_read_the_table, {engine}: no python3 has it, and it was not installed");
        return None;
    };
    Some(ask(&python, engine, folder))
}

/// The Iceberg table: after each flush, joining and retention, and after its writer was killed.
#[test]
fn engines_read_the_table() {
    let folder = tempfile::tempdir().unwrap();
    // An hour is an hour old when it ended three hours after the start.
    let now_ns = || START_NS + 3 * 60 * MINUTE_NS;
    let options = WriterOptions { iceberg: true, now_ns, ..options() };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    let all = some_of_everything();
    for part in all.chunks(2000) {
        writer.append(part).unwrap();
        writer.flush().unwrap();
    }
    let check = |records: &[FlowRecord], planned: &str, snapshots: &str| {
        let mut expected = answers(records).to_vec();
        if let Some(answered) = ask_table("duckdb_iceberg", folder.path()) {
            assert_eq!(answered, expected);
        }
        expected.extend([planned.to_owned(), snapshots.to_owned()]);
        if let Some(answered) = ask_table("pyiceberg", folder.path()) {
            assert_eq!(answered, expected);
        }
    };
    check(&all, "9|3|0", "append|append|append");
    assert_eq!(writer.compact().unwrap().files_made, 3);
    check(&all, "3|1|0", "replace");
    let keep = Retention { age_max_s: Some(2 * 3600), ..Retention::default() };
    writer.retain(keep).unwrap();
    let later = |record: &&FlowRecord| record.counters.last_ns >= START_NS + 60 * MINUTE_NS;
    let all: Vec<FlowRecord> = all.iter().filter(later).cloned().collect();
    check(&all, "2|1|0", "delete");
    writer.close().unwrap();

    let folder = tempfile::tempdir().unwrap();
    writer_of_table(folder.path()).close().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_that_writes", "--exact", "--nocapture"])
        .env(CHILD, folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let synced = lines.by_ref().filter(|line| line.starts_with("synced ")).take(25).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(synced, 25);
    let total = |engine| {
        let answered = ask_table(engine, folder.path())?;
        let numbers: Vec<u64> = answered[0].split('|').map(|number| number.parse().unwrap()).collect();
        Some((numbers[0], numbers[2]))
    };
    let engines = ["duckdb_iceberg", "pyiceberg"];
    for left in engines.into_iter().filter_map(total) {
        assert_eq!(left, sum(left.0), "a hole, or a record twice");
        assert!(left.0 >= 2500, "{left:?}");
    }
    let writer = writer_of_table(folder.path());
    let all = totals(&writer.view(Window::ALL).unwrap());
    assert!(engines.into_iter().filter_map(total).all(|answered| answered == all));
}

fn writer_of_table(folder: &Path) -> Writer {
    Writer::open(folder, WriterOptions { iceberg: true, ..options() }).unwrap().0
}
