//! The command line, defined once: parser, help and defaults come from these types.

mod bgp;
mod capture;
mod choices;
mod clear;
mod config;
mod flows;
mod flows_import;
mod forwarding;
mod keep;
mod lab;
mod lab_probe;
mod lpm;
mod nat;
mod network;
mod predict;
mod probe;
mod qos;
mod seeds;
mod show;
mod show_nat;
mod stages;
mod trace;
mod whatif;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use thalweg_exec::control::SchedulingKind;
use thalweg_lab::workload::generate::Generated;
use thalweg_replay::{FieldOrder, ModelKind, Output, ReplayOptions, Work};

use choices::{Choice, MODELS, SCHEDULINGS, one_of};

pub(crate) use bgp::LabBgpArgs;
pub(crate) use capture::CaptureArgs;
pub(crate) use clear::{ClearArgs, ClearNatArgs, ClearThing};
pub(crate) use config::{ConfigKeysArgs, ConfigThing};
pub(crate) use flows::{FlowsAction, FlowsArgs, FlowsGraphArgs, FlowsListArgs, FlowsTopArgs, FlowsWhichArgs};
pub(crate) use flows_import::FlowsImportArgs;
pub(crate) use forwarding::{LabForwardingArgs, SubjectArg};
pub(crate) use keep::KeepArgs;
use lab::LabRunArgs;
pub(crate) use lab::RouterArg;
pub(crate) use lab_probe::LabProbeArgs;
pub(crate) use lpm::LabLpmArgs;
pub(crate) use nat::LabNatArgs;
pub(crate) use network::{Grow, LabNetworkArgs, NetworkEngine};
pub(crate) use predict::LabPredictArgs;
pub(crate) use probe::ProbeArgs;
pub(crate) use qos::LabQosArgs;
pub(crate) use seeds::LabSeedsArgs;
pub(crate) use show::{BgpArgs, BgpCommand, SessionEndArgs, ShowArgs, ShowBgp, ShowThing};
pub(crate) use show_nat::NatArgs;
pub(crate) use stages::LabStagesArgs;
pub(crate) use trace::{TraceArgs, TraceThing};
pub(crate) use whatif::WhatIfArgs;

/// A software router, and the laboratory in which ways to use its cores are compared.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg",
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done, 1 failed, 2 bad usage or configuration.

Examples:
  thalweg check examples/small-office/router.toml
  thalweg replay examples/small-office/office.pcapng -c examples/small-office/router.toml
  thalweg replay trace.txt -c router.toml --model tokens --tokens 24 --workers 2 --format json"
)]
pub(crate) struct Cli {
    /// How results are printed: tables for people, or JSON for machines
    ///
    /// In JSON an answer that is a list (of a running router: every answer) has one object a line, other results are one
    /// object.
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Human,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a configuration and print the router it describes
    ///
    /// Reports every mistake with file, line, column and what is expected there, and says of each port that has an interface
    /// which driver it gets on this machine, and why not a better one. Nothing is started.
    Check(CheckArgs),
    /// What a configuration may say
    #[command(subcommand)]
    Config(ConfigThing),
    /// Send captures and text traces through the router, as fast as it goes
    ///
    /// Reads pcap, pcapng and text traces (plain or .gz, .zst, .bz2), takes every packet through the
    /// configured stages and says what happened to each: forwarded, or dropped with a reason.
    Replay(ReplayArgs),
    /// Meter flows: packets in, flow records out
    ///
    /// Reads captures or interfaces, counts packets by flow and writes a record of each flow that ends, or goes on for longer
    /// than the active timeout, to files and collectors. At the end it says what became of every packet.
    Probe(Box<ProbeArgs>),
    /// Run the router in the foreground
    ///
    /// Forwards packets between the interfaces of its ports, opens sessions with its BGP neighbors, or both, until it is
    /// interrupted. SIGHUP reads the configuration again.
    Run(RunArgs),
    /// Ask a running router what it knows
    Show(ShowArgs),
    /// Say what the router does with a packet, stage by stage, and why
    Trace(TraceArgs),
    /// Capture packets of a running router as they pass a stage, are sent or are dropped
    ///
    /// Writes a pcapng file with a comment at each packet that says what became of it. Forwarding never waits for a capture;
    /// packets that find no room are counted, and marked in the file.
    Capture(CaptureArgs),
    /// Have a running router read its configuration again
    ///
    /// The file is checked first. If anything is wrong with it, or it cannot be applied while the router runs, nothing
    /// changes and the reason is printed. Otherwise only what differs is applied: ports and VLANs come and go, BGP sessions
    /// whose settings are the same stay up, NAT sessions and queued packets are kept. SIGHUP does the same.
    Reload(ReloadArgs),
    /// End what a running router remembers: NAT sessions
    Clear(ClearArgs),
    /// Stop a running router
    ///
    /// Neighbors are told that the sessions end, and BGP's routes are removed from the kernel, as with SIGTERM. With
    /// --keep-routes a graceful restart begins instead: the kernel keeps forwarding, and neighbors with graceful restart
    /// keep our routes until their restart time is over. Returns when the router has ended.
    Stop(StopArgs),
    /// Refresh, reset, shut down or start a BGP session of a running router
    Bgp(BgpArgs),
    /// Run an experiment and report it
    Lab(LabArgs),
    /// Ask a dataset of flow records: the largest talkers, records, traffic over time
    ///
    /// A dataset is a folder of Parquet files, which any engine reads as well. Questions are answered while it is written.
    Flows(FlowsArgs),
    /// Print what MRT files say: routing tables, BGP messages, states of sessions
    ///
    /// Reads TABLE_DUMP, TABLE_DUMP_V2, BGP4MP and what came before (plain or .gz, .bz2, .zst) and prints one
    /// line per route or change, as `bgpdump -m` does; with `--format json` one object per line.
    Mrt(MrtArgs),
    /// Say what another configuration, or a failure, would make of a routing table
    ///
    /// Takes a table of routes as neighbors sent them through the import, decision and export of both configurations and says
    /// which prefixes change their best path, what each neighbor would be sent, what would leak, and where traffic would go.
    /// Nothing is announced, and no router need run.
    Whatif(Box<WhatIfArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg mrt rib.20260222.1600.bz2                     one line per route
  thalweg mrt updates.*.gz --count                      records, changes, prefixes and peers
  curl -s https://... | thalweg mrt - --format json     one JSON object per route or change")]
pub(crate) struct MrtArgs {
    /// MRT files, in order; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Lines with seconds since the epoch and all fields: this is the default
    #[arg(short = 'm', conflicts_with_all = ["human_time", "count"])]
    pub(crate) machine: bool,
    /// Lines with date and time, that end with the origin
    #[arg(short = 'M', conflicts_with = "count")]
    pub(crate) human_time: bool,
    /// Count records, routes, changes, prefixes and peers instead of printing them
    #[arg(long)]
    pub(crate) count: bool,
    /// Say which records were skipped because they hold no routes
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Where a running router listens for `show` and its like, unless it is told otherwise.
pub(crate) const SOCKET_DEFAULT: &str = "/run/thalweg.sock";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg run router.toml
  thalweg run router.toml --scheduling serial --socket ./thalweg.sock")]
pub(crate) struct RunArgs {
    /// Configuration file
    pub(crate) config: PathBuf,
    /// How the work is spread over threads [default: the configuration's, or sharded]
    #[arg(long, value_parser = one_of(SCHEDULINGS))]
    pub(crate) scheduling: Option<SchedulingKind>,
    /// Threads of the dynamic and sharded schedulings [default: the configuration's, or one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// How packets are spread over cores, where ports have interfaces
    #[arg(long, value_parser = one_of(MODELS), default_value = "run-to-completion")]
    pub(crate) model: ModelKind,
    /// Threads that work on packets; run-to-completion's have receive queues of their own [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Socket for show, reload and neighbor [default: the configuration's, or /run/thalweg.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// What is logged: error, warn, info, debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
    /// How it is logged
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Take this start for a graceful restart, although no predecessor left a note beside the control socket
    #[arg(long)]
    pub(crate) restarting: bool,
    /// Measure the time spent in each function, for `show bgp functions`
    #[arg(long)]
    pub(crate) profile_functions: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg reload --dry-run      would it be taken, and what would change
  thalweg reload")]
pub(crate) struct ReloadArgs {
    /// The router's control socket
    #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
    /// Only say what would change (but for BGP), or why it would be refused
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg stop
  thalweg stop --keep-routes && thalweg run router.toml      no packet is lost where the kernel forwards")]
pub(crate) struct StopArgs {
    /// The router's control socket
    #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
    /// Leave routes in the kernel and with neighbors, for a router that is started soon
    #[arg(long, conflicts_with = "remove_routes")]
    pub(crate) keep_routes: bool,
    /// Remove routes, whatever `on_stop` in the configuration says
    #[arg(long)]
    pub(crate) remove_routes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  thalweg check examples/small-office/router.toml --format json")]
pub(crate) struct CheckArgs {
    /// Configuration file
    pub(crate) config: PathBuf,
    /// Do not look at the interfaces of this machine
    ///
    /// Without this each interface is opened as the router opens it, and closed again. Other programs keep their packets
    /// meanwhile, but some network cards lose their link for a moment when they get an XDP program.
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg replay office.pcapng -c router.toml                      what happens to every packet
  thalweg replay office.pcapng -c router.toml --output out         and a capture per port in out/
  thalweg replay wan=a.pcap lan=b.pcap.gz -c router.toml           where packets arrive
  ssh host tcpdump -w - | thalweg replay - -c router.toml          from standard input
  thalweg replay trace.txt -c router.toml --field-order src-first  traces with the source first
  thalweg replay trace.txt -c router.toml --model farm --readers 1 --workers 2 --work queens:8")]
pub(crate) struct ReplayArgs {
    /// Captures and text traces, in order; `-` is standard input
    ///
    /// `PORT=FILE` says which port its packets arrive on; else a trace's lines and a pcapng's interfaces do.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// How the stages are spread over cores
    #[arg(long, value_parser = one_of(MODELS), default_value = "run-to-completion", help_heading = "Execution")]
    pub(crate) model: ModelKind,
    /// Worker threads [default: one per core; 1 for serial]
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Reader threads of the farm model
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Execution")]
    pub(crate) readers: NonZeroUsize,
    /// Chunks in flight in the tokens model
    #[arg(long, value_name = "N", default_value = "24", help_heading = "Execution")]
    pub(crate) tokens: NonZeroUsize,
    /// Packets read and scheduled together, at most 65535
    #[arg(long, value_name = "PACKETS", default_value = "1600", help_heading = "Execution")]
    pub(crate) chunk: NonZeroUsize,
    /// Give packets out in the serial run's order
    #[arg(long, help_heading = "Execution")]
    pub(crate) ordered: bool,
    /// Pin workers to these cores: `0,1` or `0-3`
    #[arg(long, value_name = "CORES", value_parser = parse_cores, help_heading = "Execution")]
    pub(crate) pin: Option<Cores>,
    /// Synthetic work per packet and stage: `none` or `queens:N`
    #[arg(long, value_name = "WORK", default_value = "none", help_heading = "Measuring")]
    pub(crate) work: Work,
    /// Read all input into memory before the clock starts
    #[arg(long, help_heading = "Measuring")]
    pub(crate) preload: bool,
    /// Run the input through this many times
    #[arg(long = "loop", value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..), help_heading = "Measuring")]
    pub(crate) loops: u32,
    /// Take no more chunks once this many packets have been read
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          help_heading = "Measuring")]
    pub(crate) packets: Option<u64>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Measuring")]
    pub(crate) seed: u64,
    /// Folder to write what leaves to, or `none`
    #[arg(long, value_name = "DIR", default_value = "none", help_heading = "Input and output")]
    pub(crate) output: PathBuf,
    /// What to write there: a capture per egress port, or one text trace
    #[arg(long, value_enum, default_value_t = OutputFormat::Pcap, help_heading = "Input and output")]
    pub(crate) output_format: OutputFormat,
    /// Stop at the first bad line or damaged capture
    #[arg(long, help_heading = "Input and output")]
    pub(crate) strict: bool,
    /// Order of addresses and ports in text traces
    #[arg(long, value_parser = one_of(FIELD_ORDERS), default_value = "dst-first", help_heading = "Input and output")]
    pub(crate) field_order: FieldOrder,
}

impl ReplayArgs {
    /// The options as the node wants them, or what does not fit together.
    pub(crate) fn options(&self) -> Result<ReplayOptions, String> {
        let model = self.model;
        let workers = match (model, self.workers) {
            (ModelKind::Serial, None) => 1,
            (ModelKind::Serial, Some(n)) if n.get() > 1 => {
                return Err(format!("the serial model has one worker, not {n}: leave out --workers"));
            }
            (_, Some(n)) => n.get(),
            (_, None) => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        };
        if self.chunk.get() > usize::from(u16::MAX) {
            return Err(format!("--chunk {} is more than 65535 packets", self.chunk));
        }
        if self.inputs.iter().filter(|input| input.as_os_str() == "-").count() > 1 {
            return Err("standard input (`-`) can be read only once".to_owned());
        }
        let output = match self.output_format {
            _ if self.output.as_os_str() == "none" => Output::None,
            OutputFormat::Pcap => Output::Captures(self.output.clone()),
            OutputFormat::Trace => Output::Trace(self.output.clone()),
        };
        Ok(ReplayOptions {
            inputs: self.inputs.clone(),
            model,
            workers,
            readers: self.readers.get(),
            tokens: self.tokens.get(),
            chunk_packets: self.chunk.get(),
            ordered: self.ordered,
            work: self.work,
            output,
            preload: self.preload,
            strict: self.strict,
            field_order: self.field_order,
            pin_cores: self.pin.clone().map_or(Vec::new(), |cores| cores.0),
            loops: self.loops,
            packets_max: self.packets,
            seed: self.seed,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Pcap,
    Trace,
}

/// Which end of the flow a line of a text trace names first.
const FIELD_ORDERS: &[Choice<FieldOrder>] =
    &[("dst-first", "", FieldOrder::DestinationFirst), ("src-first", "", FieldOrder::SourceFirst)];

/// Core numbers, in the order workers take them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

/// `0,2,4-7`.
fn parse_cores(text: &str) -> Result<Cores, String> {
    const CORES_MAX: usize = 1024;
    let expected = || format!("expected core numbers below {CORES_MAX}, such as `0,1` or `0-3`");
    let number = |part: &str| part.parse::<usize>().ok().filter(|n| *n < CORES_MAX).ok_or_else(expected);
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(expected());
        }
        cores.extend(first..=last);
    }
    match cores.iter().enumerate().find(|(i, core)| cores[..*i].contains(core)) {
        Some((_, core)) => Err(format!("core {core} is named twice")),
        None => Ok(Cores(cores)),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each experiment prints tables and writes DIR/report.html, which needs nothing but a browser, and DIR/results.json; DIR is \
lab-NAME unless --output says otherwise. Figures mean something in a release build on an idle machine.

Examples:
  thalweg lab models --quick     under a minute, to see that it works
  thalweg lab models             minutes: every model, worker count, chunk size
  sudo thalweg lab nat --quick   with interfaces, in namespaces of its own")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Experiment {
    /// Compare the execution models on one input: throughput, speed-up, residence time
    Models(Box<LabModelsArgs>),
    /// Predict the execution models for cores that this machine does not have
    Predict(LabPredictArgs),
    /// Compare longest-prefix-match structures: look-ups, memory, building, updates while reading
    Lpm(LabLpmArgs),
    /// Compare the schedulings of the BGP daemon: speed-up, time by function, traffic mixes, receiving
    Bgp(LabBgpArgs),
    /// Measure routers between two testers in network namespaces, as RFC 2544 says: needs root
    Forwarding(Box<LabForwardingArgs>),
    /// Cycles per packet by stage, in memory: what is left of a router without its interfaces
    Stages(LabStagesArgs),
    /// Measure address translation in memory and live, as RFC 9693 says: needs root but for memory
    Nat(Box<LabNatArgs>),
    /// Measure calls under overload of a shaped port, against the kernel's disciplines: needs root
    Qos(LabQosArgs),
    /// Simulate networks of routers with real sessions, or find the routes of the whole Internet
    Network(Box<LabNetworkArgs>),
    /// Play networks that chance draws, with faults, and hold them to invariants
    Seeds(LabSeedsArgs),
    /// Measure the flow probe: ffProbe's table, many flows, floods, and other probes on the same file
    Probe(Box<LabProbeArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab models                                          the article's trace, made here
  thalweg lab models --generate flood -c router.toml          64-byte packets over your routes
  thalweg lab models trace.txt -c router.toml --workers 1,2 --work none,queens:8 --output report
  thalweg lab models --quick                                  under a minute, to see that it works
Rounds: 5; 3 with --quick.")]
pub(crate) struct LabModelsArgs {
    /// Captures and text traces that every run processes, over and over if they are short
    #[arg(value_name = "INPUT", requires = "config", conflicts_with = "generate")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Configuration file; with `--generate flood` its routes are flooded
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Make the input (and, without -c, the configuration) instead of reading it [default: trace]
    #[arg(long, value_enum, value_name = "WORKLOAD")]
    pub(crate) generate: Option<Generated>,
    /// Models to compare [default: all]
    #[arg(long, value_parser = one_of(MODELS), value_delimiter = ',', value_name = "MODELS", help_heading = "What to vary")]
    pub(crate) models: Vec<ModelKind>,
    /// Worker counts [default: 1 and each power of two up to the number of cores]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", help_heading = "What to vary")]
    pub(crate) workers: Vec<NonZeroUsize>,
    /// Chunk sizes in packets [default: 64,256,1600; 256,1600 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "SIZES", help_heading = "What to vary")]
    pub(crate) chunks: Vec<NonZeroUsize>,
    /// Synthetic work per packet and stage: `none`, `queens:N`
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "WORK",
        default_value = "none,queens:8",
        help_heading = "What to vary"
    )]
    pub(crate) work: Vec<Work>,
    /// Chunks in flight in the tokens model
    #[arg(long, value_name = "N", default_value = "24")]
    pub(crate) tokens: NonZeroUsize,
    /// Readers of the farm model
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) readers: NonZeroUsize,
    /// Packets of each run without synthetic work [default: 1000000; 200000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) packets: Option<u64>,
    /// Packets of each run with synthetic work [default: 20000; 3200 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) work_packets: Option<u64>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!(parse_cores("0,2-4"), Ok(Cores(vec![0, 2, 3, 4])));
        for bad in ["", "a", "3-1", "1,1", "0-99999", "1-"] {
            assert!(parse_cores(bad).is_err(), "{bad}");
        }
    }

    fn options(arguments: &str) -> Result<ReplayOptions, String> {
        let line = format!("thalweg replay {arguments}");
        let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Replay(args) => args.options(),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn defaults_agree_with_the_node() {
        let parsed = options("x -c c --model run-to-completion --workers 1").expect("valid");
        assert_eq!(parsed, ReplayOptions { inputs: vec![PathBuf::from("x")], ..Default::default() });
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let bad = [
            ("x -c c --model serial --workers 2", "one worker"),
            ("x -c c --chunk 65536", "65535"),
            ("- - -c c", "only once"),
            ("x -c c --work queens:99", "queens:N"),
            ("x -c c --workers 0", "--workers"),
            ("x -c c --loop 0", "--loop"),
            ("x", "--config"),
        ];
        for (arguments, word) in bad {
            let error = options(arguments).expect_err(arguments);
            assert!(error.contains(word), "{arguments}: {error}");
        }
        let trace = options("x -c c --output out --output-format trace").expect("valid");
        assert_eq!(trace.output, Output::Trace(PathBuf::from("out")));
    }
}
