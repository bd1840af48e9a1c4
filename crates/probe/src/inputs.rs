//! Opens the input of packets, with as many sources as the shape needs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use thalweg_base::BATCH_PACKETS;
use thalweg_ports::live::PortFacts;
use thalweg_ports::{ISSUES_KEPT, InputOptions, InputReport, InputSpec, PortNames};

use crate::interfaces::{Interfaces, PortInterface};
use crate::live::{self, Feed, Told, Until};
use crate::options::CHUNK_PACKETS;
use crate::source::{Captures, Reading, Seen};
use crate::summary::CaptureSummary;
use crate::{Deal, FileInput, Input, LiveInput, OptionsError, ProbeError, ProbeOptions, Shape};

/// Slabs in addition to those that models hold at once, so that the reader is not blocked.
const SLABS_SPARE: usize = 8;
/// The most memory of all slabs; very large chunks have fewer slabs.
const SLAB_BYTES_MAX: usize = 128 << 20;
/// The fewest slabs per pipeline: one waiting, one in use.
const SLABS_MIN: usize = 2;
/// At a given rate, chunks cover at most this fraction of a second.
const CHUNKS_PER_S: u64 = 100;

/// The opened input.
pub(crate) enum Opened {
    /// Files: one source for all pipelines, or one for each.
    Captures(Vec<Captures>),
    /// Interfaces: the feeds of each pipeline.
    Live { feeds: Vec<Vec<Feed>>, facts: Vec<PortFacts>, told: Arc<Told> },
}

/// The reports of all sources.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) report: InputReport,
    pub(crate) captured: Vec<CaptureSummary>,
}

/// The names of ports: those given to files, or the interfaces.
pub(crate) fn port_names(input: &Input) -> Vec<String> {
    let files = match input {
        Input::Live(live) => return live.interfaces.clone(),
        Input::Files(files) => files,
    };
    let mut names: Vec<String> = Vec::new();
    for input in &files.inputs {
        if let Some(port) = InputSpec::parse(&input.to_string_lossy()).port
            && !names.contains(&port)
        {
            names.push(port);
        }
    }
    names
}

/// The interfaces of the ports: those of the system with their numbers; for files, ports and interfaces of
/// captures, counted from 1.
pub(crate) fn interfaces(opened: &Opened, names: &[String]) -> Interfaces {
    let Opened::Live { facts, .. } = opened else { return Interfaces::counted(names.iter().cloned()) };
    let interface = |facts: &PortFacts| PortInterface { number: facts.index, name: facts.interface.clone() };
    Interfaces::new(facts.iter().map(interface).collect())
}

/// Opens the input. Errors name the file or interface.
pub(crate) fn open(
    options: &ProbeOptions,
    names: &[String],
    stop: &Arc<AtomicBool>,
    seen: &Arc<Seen>,
) -> Result<Opened, ProbeError> {
    match &options.input {
        Input::Files(files) => open_files(options, files, names, (stop, seen)).map(Opened::Captures),
        Input::Live(live) => open_live(options, live, (stop, seen)),
    }
}

/// Checks the options of the input.
pub(crate) fn check(options: &ProbeOptions) -> Result<(), OptionsError> {
    let files = match &options.input {
        Input::Live(live) if live.interfaces.is_empty() => {
            return Err(OptionsError::NoInterface);
        }
        Input::Live(live) => {
            let twice = (0..).zip(&live.interfaces).find(|(n, name)| live.interfaces[..*n].contains(name));
            return twice.map_or(Ok(()), |(_, name)| Err(OptionsError::InterfaceTwice(name.clone())));
        }
        Input::Files(files) => files,
    };
    let (inputs, pipelines) = (files.inputs.len(), options.shape.pipelines);
    if inputs == 0 {
        return Err(OptionsError::NoInput);
    }
    if files.deal == Deal::Files && inputs != pipelines {
        return Err(OptionsError::InputsForPipelines { inputs, pipelines });
    }
    let stdins = files.inputs.iter().filter(|input| is_stdin(input)).count();
    if stdins > 1 || (stdins == 1 && files.loops > 1) {
        return Err(OptionsError::StandardInputTwice);
    }
    Ok(())
}

fn is_stdin(input: &Path) -> bool {
    let text = input.to_string_lossy();
    text == "-" || (text.ends_with("=-") && !text.contains('/'))
}

fn open_files(
    options: &ProbeOptions,
    files: &FileInput,
    names: &[String],
    (stop, seen): (&Arc<AtomicBool>, &Arc<Seen>),
) -> Result<Vec<Captures>, ProbeError> {
    let shares: Vec<Vec<_>> = match files.deal {
        Deal::Hash => vec![files.inputs.clone()],
        Deal::Files => files.inputs.iter().map(|input| vec![input.clone()]).collect(),
    };
    let rate_pps = files.rate_pps.map(|rate| rate.div_ceil(shares.len() as u64).max(1));
    let pipelines = options.shape.pipelines.div_ceil(shares.len());
    let open = |inputs| {
        let reading = Reading {
            inputs,
            ports: match names {
                [] => PortNames::of_captures(),
                names => PortNames::new(names.iter().cloned()),
            },
            options: input_options(options, files, pipelines, rate_pps),
            loops: files.loops,
            rate_pps,
            by_second: !options.alarms.rules.is_empty(),
        };
        let open = if files.preload { Captures::load } else { Captures::open };
        open(reading, Arc::clone(stop), Arc::clone(seen)).map_err(ProbeError::Input)
    };
    shares.into_iter().map(open).collect()
}

/// The reader's options for a source of this many pipelines.
fn input_options(
    options: &ProbeOptions,
    files: &FileInput,
    pipelines: usize,
    rate_pps: Option<u64>,
) -> InputOptions {
    let Shape { model, workers, tokens, .. } = options.shape;
    let held = model.jobs_in_flight(workers, tokens);
    let longest = rate_pps.map_or(u64::MAX, |rate| (rate / CHUNKS_PER_S).max(1));
    let chunk_packets = options.chunk_packets.unwrap_or(CHUNK_PACKETS);
    let mut input = InputOptions {
        chunk_packets: chunk_packets.min(usize::try_from(longest).unwrap_or(usize::MAX)),
        strict: files.strict,
        ..InputOptions::default()
    };
    let affordable = (SLAB_BYTES_MAX / input.slab_bytes()).max(SLABS_MIN * pipelines + SLABS_MIN);
    input.slabs = (held * pipelines + SLABS_SPARE).min(affordable);
    input
}

fn open_live(
    options: &ProbeOptions,
    live: &LiveInput,
    (stop, seen): (&Arc<AtomicBool>, &Arc<Seen>),
) -> Result<Opened, ProbeError> {
    let Shape { pipelines, model, workers, .. } = options.shape;
    // Workers that carry packets through all stages have their own receive queue; others share those of their
    // pipeline.
    let lanes = if model.has_lanes() { workers } else { 1 };
    let until = Until {
        stop: Arc::clone(stop),
        at: live.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into())),
        packets: live.packets,
    };
    let chunk_packets = options.chunk_packets.unwrap_or(BATCH_PACKETS);
    let watched = live::open(live, pipelines * lanes, chunk_packets, (&until, seen))?;
    let (facts, told) = (watched.facts, watched.told);
    let mut all = watched.feeds.into_iter();
    let feeds = (0..pipelines).map(|_| all.by_ref().take(lanes).collect()).collect();
    Ok(Opened::Live { feeds, facts, told })
}

/// Returns the reports of the inputs, or the first error.
pub(crate) fn finish(captures: Vec<Captures>) -> Result<Read, ProbeError> {
    let mut all = InputReport::default();
    for capture in captures {
        let other = capture.finish()?;
        all.packets += other.packets;
        for (kind, count) in other.issues {
            *all.issues.entry(kind).or_default() += count;
        }
        other.useless.into_iter().for_each(|why| all.note_useless(why));
        other.cut.into_iter().for_each(|why| all.note_cut(why));
        let room = ISSUES_KEPT.saturating_sub(all.first_issues.len());
        all.first_issues.extend(other.first_issues.into_iter().take(room));
    }
    Ok(Read { report: all, captured: Vec::new() })
}
