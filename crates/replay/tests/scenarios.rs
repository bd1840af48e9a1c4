//! Scenarios: one folder each under `scenarios/`, replayed under every model.
//!
//! | file | what it is |
//! |---|---|
//! | `router.toml` | the configuration |
//! | `trace.txt` or `packets.txt` | the input: a text trace, or packets in the words of `scenario/build.rs`, which become a pcapng file; lines with `#` say what each is for |
//! | `options` | if there: `strict`, `chunk N`, `cut N` (so many bytes of the capture are missing at its end) |
//! | `expected.txt` | per port the packets that left, in order; then the counters |
//!
//! `THALWEG_BLESS=1 cargo test -p thalweg-replay --test main scenarios` rewrites the expectations from the serial
//! run; read the difference before you commit it.

use crate::{build, show};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use thalweg_config::RouterConfig;
use thalweg_replay::{ModelKind, Output, ReplayOptions, ReplaySummary, replay};
use thalweg_wire::pcap::{FILE_HEADER_LEN, FileHeader, RECORD_HEADER_LEN, RecordHeader};

const RUNS: [(ModelKind, usize); 6] = [
    (ModelKind::Serial, 1),
    (ModelKind::RunToCompletion, 2),
    (ModelKind::RunToCompletion, 3),
    (ModelKind::Pipeline, 3),
    (ModelKind::Tokens, 2),
    (ModelKind::Farm, 3),
];

/// What the `options` file says.
#[derive(Default)]
struct CaseOptions {
    strict: bool,
    chunk: Option<usize>,
    cut: usize,
}

impl CaseOptions {
    fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("options")).unwrap_or_default();
        let mut options = Self::default();
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|w| w.parse().ok()).expect("a number");
            match word {
                "strict" => options.strict = true,
                "chunk" => options.chunk = Some(number()),
                "cut" => options.cut = number(),
                other => panic!("{}: no option `{other}`", folder.display()),
            }
        }
        options
    }
}

/// The input as a file: the trace itself, or a capture built into `scratch`.
fn input(folder: &Path, scratch: &Path, options: &CaseOptions) -> PathBuf {
    let trace = folder.join("trace.txt");
    if trace.is_file() {
        return trace;
    }
    let text = std::fs::read_to_string(folder.join("packets.txt")).expect("trace.txt or packets.txt");
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty());
    let packets: Vec<build::Built> = lines.map(build::line).collect();
    let mut file = build::pcapng(&packets);
    file.truncate(file.len() - options.cut);
    let path = scratch.join("input.pcapng");
    std::fs::write(&path, file).expect("a scratch file");
    path
}

/// The packets of a capture that the router wrote, one per line.
fn capture(path: &Path) -> Vec<String> {
    let file = std::fs::read(path).expect("the router wrote it");
    let (header, mut rest) = file.split_first_chunk::<FILE_HEADER_LEN>().expect("a file header");
    let header = FileHeader::parse(header).expect("a file header");
    let mut lines = Vec::new();
    while let Some((record, after)) = rest.split_first_chunk::<RECORD_HEADER_LEN>() {
        let record = RecordHeader::parse(&header, record).expect("a record header");
        let (frame, after) = after.split_at(record.captured_len as usize);
        let shown = show::frame(frame, record.captured_len < record.wire_len);
        lines.push(format!("  {:.6} {shown}", record.arrival_ns(&header) as f64 / 1e9));
        rest = after;
    }
    lines
}

fn counters(text: &mut String, summary: &ReplaySummary, config: &RouterConfig) -> std::fmt::Result {
    writeln!(text, "in {} out {}", summary.packets_in, summary.packets_out)?;
    for (reason, count) in &summary.dropped {
        writeln!(text, "dropped {reason} {count}")?;
    }
    for (name, p) in summary.ports.iter() {
        writeln!(
            text,
            "port {name} in {} ({} bytes) out {} ({} bytes) dropped {}",
            p.packets_in, p.bytes_in, p.packets_out, p.bytes_out, p.dropped
        )?;
    }
    for (name, c) in summary.classes.iter().filter(|_| config.qos.classes.len() > 1) {
        write!(text, "class {name} packets {} bytes {} dropped {}", c.packets, c.bytes, c.dropped)?;
        match c.colors {
            Some(c) => writeln!(text, " green {} yellow {} red {}", c.green, c.yellow, c.red)?,
            None => writeln!(text)?,
        }
    }
    for (name, rules) in summary.acls.iter() {
        for r in rules {
            writeln!(text, "acl {name} {} {} packets {} bytes {}", r.rule, r.action, r.packets, r.bytes)?;
        }
    }
    if let Some(n) = &summary.nat {
        writeln!(
            text,
            "nat sessions {} created {} expired {} out {} in {} hairpin {}",
            n.sessions,
            n.sessions_created,
            n.sessions_expired,
            n.translated_out,
            n.translated_in,
            n.hairpinned
        )?;
    }
    for (kind, count) in &summary.input_issues.by_kind {
        writeln!(text, "input {kind} {count}")?;
    }
    for issue in &summary.input_issues.first {
        writeln!(text, "  {}: {}", issue.place, issue.message)?;
    }
    Ok(())
}

fn run(folder: &Path, config: &RouterConfig, model: ModelKind, workers: usize) -> String {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let case = CaseOptions::read(folder);
    let defaults = ReplayOptions::default();
    let options = ReplayOptions {
        inputs: vec![input(folder, scratch.path(), &case)],
        model,
        workers,
        readers: 2,
        tokens: 4,
        chunk_packets: case.chunk.unwrap_or(defaults.chunk_packets),
        ordered: true,
        strict: case.strict,
        output: Output::Captures(scratch.path().join("out")),
        ..defaults
    };
    let summary = match replay(config, &options, &()) {
        Ok(summary) => summary,
        Err(error) => {
            let mut text = format!("error: {error}\n");
            for folder in [folder, scratch.path()] {
                text = text.replace(&format!("{}/", folder.display()), "");
            }
            return text;
        }
    };
    assert!(summary.is_conserved(), "{}: {summary:?}", folder.display());
    let mut text = String::new();
    for port in &config.ports {
        let lines = capture(&scratch.path().join(format!("out/{}.pcap", port.name)));
        if !lines.is_empty() {
            text.push_str(&format!("{}:\n{}\n", port.name, lines.join("\n")));
        }
    }
    counters(&mut text, &summary, config).expect("writing to a string cannot fail");
    text
}

fn check(folder: &Path) -> Result<(), String> {
    let config = RouterConfig::load(&folder.join("router.toml")).map_err(|e| e.to_string())?;
    let expected = folder.join("expected.txt");
    if std::env::var_os("THALWEG_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&expected, run(folder, &config, ModelKind::Serial, 1)).map_err(|e| e.to_string())?;
    }
    let expected = std::fs::read_to_string(&expected).map_err(|e| format!("{}: {e}", expected.display()))?;
    for (model, workers) in RUNS {
        let actual = run(folder, &config, model, workers);
        if actual != expected {
            let at = actual.lines().zip(expected.lines()).position(|(a, b)| a != b);
            let line = at.unwrap_or(actual.lines().count().min(expected.lines().count()));
            return Err(format!(
                "{}, {model} with {workers} workers, line {}:\n  expected {:?}\n  found    {:?}",
                folder.display(),
                line + 1,
                expected.lines().nth(line),
                actual.lines().nth(line),
            ));
        }
    }
    Ok(())
}

#[test]
fn every_scenario_comes_out_as_expected_under_every_model() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(&root).expect("the scenarios");
    let mut folders: Vec<PathBuf> =
        entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    assert!(folders.len() >= 10, "where are the scenarios?");
    let failures: Vec<String> = folders.iter().filter_map(|folder| check(folder).err()).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}
