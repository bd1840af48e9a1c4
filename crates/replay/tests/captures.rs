//! Real captures through the example router, under every model: no panic, every packet accounted for,
//! and the same files out, byte for byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thalweg_config::RouterConfig;
use thalweg_replay::{ModelKind, Output, Prepared, ReplayOptions, ReplaySummary, replay};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn captures() -> Vec<PathBuf> {
    let mut found = vec![
        root().join("examples/small-office/office.pcapng"),
        root().join("examples/small-office/trace.txt"),
    ];
    let mut folders: Vec<PathBuf> = thalweg_testdata::shared("pcap").into_iter().collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("a folder entry").path();
            let name = path.to_string_lossy();
            if path.is_dir() {
                folders.push(path);
            } else if name.contains(".pcap") && !name.ends_with(".out") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The parts of a run's result that must not depend on the model.
#[derive(PartialEq, Debug)]
struct Answer {
    counts: String,
    files: BTreeMap<String, Vec<u8>>,
}

fn answer(router: &Prepared, input: &Path, model: ModelKind, workers: usize) -> (ReplaySummary, Answer) {
    answer_of(router, input, model, workers, false)
}

fn answer_of(
    router: &Prepared,
    input: &Path,
    model: ModelKind,
    workers: usize,
    preload: bool,
) -> (ReplaySummary, Answer) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let options = ReplayOptions {
        inputs: vec![input.to_path_buf()],
        model,
        workers,
        readers: 2,
        tokens: 5,
        // Small chunks, so that even short captures have several in flight.
        chunk_packets: 50,
        ordered: true,
        output: Output::Captures(folder.path().to_path_buf()),
        preload,
        ..ReplayOptions::default()
    };
    let summary = router.replay(&options, &()).unwrap_or_else(|e| panic!("{} {model}: {e}", input.display()));
    assert!(summary.is_conserved(), "{} {model}: {summary:?}", input.display());
    let mut files = BTreeMap::new();
    for path in &summary.outputs {
        let name = Path::new(path).file_name().expect("a file name").to_string_lossy().into_owned();
        files.insert(name, std::fs::read(path).expect("the router wrote it"));
    }
    let classes: Vec<_> = summary
        .classes
        .iter()
        .map(|(n, c)| (n.to_string(), c.packets, c.bytes, c.dropped, c.colors))
        .collect();
    let counts = format!(
        "{} in {} out, {:?}, {:?}, {classes:?}, {:?}, {:?}",
        summary.packets_in,
        summary.packets_out,
        summary.dropped,
        summary.ports,
        summary.nat,
        summary.input_issues,
    );
    (summary, Answer { counts, files })
}

#[test]
fn every_capture_is_accounted_for_and_every_model_agrees() {
    let config = RouterConfig::load(&root().join("examples/small-office/router.toml"))
        .unwrap_or_else(|e| panic!("{e}"));
    let router = Prepared::new(&config).expect("a router");
    let mut packets_in = 0;
    let mut packets_out = 0;
    let inputs = captures();
    for input in &inputs {
        let (summary, serial) = answer(&router, input, ModelKind::Serial, 1);
        packets_in += summary.packets_in;
        packets_out += summary.packets_out;
        for (model, workers) in [
            (ModelKind::RunToCompletion, 2),
            (ModelKind::Pipeline, 3),
            (ModelKind::Tokens, 2),
            (ModelKind::Farm, 3),
        ] {
            let (_, other) = answer(&router, input, model, workers);
            assert_eq!(other.counts, serial.counts, "{} {model}", input.display());
            assert!(other.files == serial.files, "{} {model}: the files differ", input.display());
        }
    }
    assert!(packets_in > 900 && packets_out * 2 > 900, "the examples alone have more");
}

/// The thread that has a chunk parses its lines. Neither bad lines nor chunks of nothing else may change an answer.
#[test]
fn every_model_reads_a_trace_with_bad_lines_alike() {
    let small = root().join("examples/small-office");
    let config = RouterConfig::load(&small.join("router.toml")).expect("a configuration");
    let router = Prepared::new(&config).expect("tables");
    let trace = std::fs::read_to_string(small.join("trace.txt")).expect("a trace");
    let mut text = String::new();
    for (number, line) in trace.lines().enumerate() {
        let extra = match number {
            // More than two chunks of 50.
            90 => "wan 1.2.3.4 5.6.7.8 1 2 nothing\n".repeat(130),
            n if n % 7 == 0 => format!("# {n}\n\nwan 1.2.3.{n} 5.6.7.800 1 2 dns\n"),
            _ => String::new(),
        };
        text = [&text, &extra, line, "\n"].concat();
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let input = folder.path().join("bad.txt");
    std::fs::write(&input, text).expect("writing");
    let (summary, loaded) = answer_of(&router, &input, ModelKind::Serial, 1, true);
    let first = &summary.input_issues.first;
    assert!(summary.input_issues.total > 170 && first.len() == 10 && first[0].place.starts_with("line 3,"));
    assert_eq!(summary.packets_in, 385);
    for model in ModelKind::ALL {
        let (_, streamed) = answer(&router, &input, model, 2);
        assert_eq!(streamed.counts, loaded.counts, "{model}");
        assert!(streamed.files == loaded.files, "{model}: the files differ");
    }
}

/// Replays share tables but not packet memory: the tenth replay gives what the first gave. An input of one chunk
/// ends while the pipeline still measures its stages, on one thread.
#[test]
fn a_short_input_says_who_ran_it() {
    let small = root().join("examples/small-office");
    let config = RouterConfig::load(&small.join("router.toml")).expect("a configuration");
    let router = Prepared::new(&config).expect("tables");
    let folder = tempfile::tempdir().expect("a scratch folder");
    let input = folder.path().join("short.txt");
    let trace = std::fs::read_to_string(small.join("trace.txt")).expect("a trace");
    std::fs::write(&input, trace.lines().take(9).collect::<Vec<_>>().join("\n")).expect("writing");
    for (model, workers) in [(ModelKind::Serial, 1), (ModelKind::Pipeline, 1), (ModelKind::Tokens, 2)] {
        let (summary, _) = answer(&router, &input, model, 2);
        assert_eq!((summary.workers, summary.packets_in > 0), (workers, true), "{model:?}: {summary:?}");
    }
}

#[test]
fn replays_of_one_router_do_not_know_of_each_other() {
    let config = RouterConfig::load(&root().join("examples/small-office/router.toml")).expect("valid");
    let options = ReplayOptions {
        inputs: vec![root().join("examples/small-office/trace.txt")],
        preload: true,
        ..ReplayOptions::default()
    };
    let prepared = Prepared::new(&config).expect("a router");
    let counts = |summary: &ReplaySummary| (summary.dropped.clone(), summary.nat, summary.bytes_out);
    let alone = counts(&replay(&config, &options, &()).expect("a replay"));
    for model in ModelKind::ALL {
        let options = ReplayOptions {
            model,
            workers: if model == ModelKind::Serial { 1 } else { 2 },
            ..options.clone()
        };
        let summary = prepared.replay(&options, &()).expect("a replay");
        assert_eq!(counts(&summary), alone, "{model}");
        assert_eq!(summary.packets_in, 385);
    }
}
