//! The dataset as other engines read it, one table: DuckDB, ClickHouse (chdb), pandas with pyarrow, Spark.

use super::*;
use thalweg_base::DropReason;
use thalweg_flow::Translation;

/// A Python that has this module, if there is one; for DuckDB one is made, the others are too large for a test to
/// fetch. `THALWEG_PYTHON` names another one.
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
    if !has(&python) && module == "duckdb" {
        let quiet = |command: &mut Command| {
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let _ = quiet(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            && quiet(Command::new(&python).args(["-m", "pip", "install", "-q", module]));
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
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dataset/engines.py");
    for engine in ["duckdb", "chdb", "pandas", "pyspark"] {
        let Some(python) = python_with(engine) else {
            eprintln!("SKIPPED engines_read_the_same, {engine}: no python3 has it, and it was not installed");
            continue;
        };
        let mut command = Command::new(python);
        let output = command.arg(&script).arg(engine).arg(folder.path()).env("TZ", "UTC").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {errors}");
        let answered = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answered.lines().collect::<Vec<_>>(), answers(&all), "{engine}: {errors}");
    }
}
