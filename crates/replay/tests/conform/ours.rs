//! Replays a case. Later packets depend on what left before, so each packet is replayed together with all before
//! it; at the end the whole case runs once under every model.

use super::case::{Case, Names, plain};
use super::{build, show};
use std::path::Path;
use thalweg_config::RouterConfig;
use thalweg_replay::{ModelKind, Output, ReplayOptions, replay};
use thalweg_wire::pcap::{FILE_HEADER_LEN, FileHeader, RECORD_HEADER_LEN, RecordHeader};

const MODELS: [(ModelKind, usize); 4] =
    [(ModelKind::RunToCompletion, 2), (ModelKind::Pipeline, 3), (ModelKind::Tokens, 2), (ModelKind::Farm, 3)];

/// Every packet that left, by port: the arrival of its cause in nanoseconds, and its text.
type Left = Vec<(u64, String)>;

/// Runs the case; the error says what differs.
pub(crate) fn run(case: &Case, base: &str) -> Result<(), String> {
    let text = format!("{base}\n{}\n", case.nat);
    let config = RouterConfig::from_text("router.toml", &text, Path::new(".")).map_err(|e| e.to_string())?;
    let mut names = Names::new();
    let mut sent = Vec::new();
    for step in &case.steps {
        sent.push(build::line(&step.line(&names)?));
        let time_ns = sent.last().map_or(0, |packet| packet.time_ns);
        let left = replayed(&config, &sent, ModelKind::Serial, 1)?;
        let here: Vec<String> =
            left.into_iter().filter(|(at_ns, _)| *at_ns == time_ns).map(|(_, line)| line).collect();
        step.judge(&here, &mut names)?;
    }
    let serial = replayed(&config, &sent, ModelKind::Serial, 1)?;
    for (model, workers) in MODELS {
        if replayed(&config, &sent, model, workers)? != serial {
            return Err(format!("{model} does not do the same"));
        }
    }
    Ok(())
}

fn replayed(
    config: &RouterConfig,
    sent: &[build::Built],
    model: ModelKind,
    workers: usize,
) -> Result<Left, String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let input = scratch.path().join("input.pcapng");
    std::fs::write(&input, build::pcapng(sent)).map_err(|e| e.to_string())?;
    let options = ReplayOptions {
        inputs: vec![input],
        model,
        workers,
        readers: 2,
        // Each packet has its own time.
        chunk_packets: 1,
        ordered: true,
        output: Output::Captures(scratch.path().join("out")),
        ..ReplayOptions::default()
    };
    let summary = replay(config, &options, &()).map_err(|e| e.to_string())?;
    assert!(summary.is_conserved(), "{summary:?}");
    let mut left = Vec::new();
    for port in &config.ports {
        left.extend(capture(&scratch.path().join(format!("out/{}.pcap", port.name)), &port.name));
    }
    Ok(left)
}

fn capture(path: &Path, port: &str) -> Left {
    let file = std::fs::read(path).expect("the router wrote it");
    let (header, mut rest) = file.split_first_chunk::<FILE_HEADER_LEN>().expect("a file header");
    let header = FileHeader::parse(header).expect("a file header");
    let mut left = Vec::new();
    while let Some((record, after)) = rest.split_first_chunk::<RECORD_HEADER_LEN>() {
        let record = RecordHeader::parse(&header, record).expect("a record header");
        let (frame, after) = after.split_at(record.captured_len as usize);
        left.push((record.arrival_ns(&header), plain(port, &show::frame(frame, false))));
        rest = after;
    }
    left
}
