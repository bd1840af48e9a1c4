//! The command line, defined once: parser, help and defaults come from these types.

mod bgp_command;
mod capture;
mod choices;
mod clear;
mod config;
mod enrich;
mod flows;
mod flows_import;
mod init;
mod keep;
mod probe;
mod top;
mod trace;
mod whatif;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueEnum};
use thalweg_daemon::COMMIT;
use thalweg_exec::control_plane::SchedulingKind;
use thalweg_replay::{FieldOrder, ModelKind, Output, ReplayOptions, Work};

use crate::client::SocketArgs;
use crate::show::ShowArgs;

pub(crate) use crate::Format;
pub(crate) use choices::{Choice, MODELS, SCHEDULINGS, one_of};

pub(crate) use bgp_command::{BgpArgs, BgpCommand, SessionEndArgs};
pub(crate) use capture::CaptureArgs;
pub(crate) use clear::{ClearArgs, ClearCommand, ClearNatArgs, FirewallFilterArgs, endpoint};
pub(crate) use config::{ConfigCommand, ConfigKeysArgs};
pub(crate) use flows::{FlowsAction, FlowsArgs, FlowsGraphArgs, FlowsListArgs, FlowsTopArgs, FlowsWhichArgs};
pub(crate) use flows_import::FlowsImportArgs;
pub(crate) use init::{InitArgs, InitKind, PagesArgs};
pub(crate) use keep::KeepArgs;
pub(crate) use probe::ProbeArgs;
pub(crate) use top::TopArgs;
pub(crate) use trace::{TraceArgs, TraceCommand};
pub(crate) use whatif::WhatIfArgs;

/// A software router, flow probe and BGP daemon, with a laboratory that compares execution models.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg",
    version = VERSION.as_str(),
    max_term_width = 100,
    infer_subcommands = true,
    after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.

Examples:
  thalweg check router.toml                        check a configuration
  thalweg replay office.pcapng -c router.toml      what the router does with a capture
  sudo thalweg run router.toml                     run it
  thalweg show status                              ask it"
)]
pub(crate) struct Cli {
    /// Print tables for people, or JSON for programs (a list is one object per line)
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a configuration and print the router it describes
    ///
    /// Reports every mistake with its file, line and column and what is expected there. For each port with an
    /// interface, it names the driver that this machine supports, and why not a better one. Nothing is started.
    Check(CheckArgs),
    /// List the keys of a configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a configuration for the interfaces of this machine, with the meaning of each key
    Init(InitArgs),
    /// Send captures and text traces through the router, as fast as possible
    ///
    /// Reads pcap, pcapng and text traces (plain or .gz, .zst, .bz2), runs every packet through the configured stages
    /// and counts the result: forwarded, or dropped with a reason.
    Replay(ReplayArgs),
    /// Meter flows: read packets, export flow records
    ///
    /// Reads captures or interfaces, counts packets by flow and sends flow records to files and collectors. A record is
    /// written when its flow ends, and after each active timeout. The summary accounts for every packet.
    Probe(Box<ProbeArgs>),
    /// Run the router in the foreground
    ///
    /// Forwards packets between interfaces, runs BGP, or both, until interrupted. SIGHUP reloads the configuration.
    Run(RunArgs),
    /// Run a router that needs no rights, network or configuration, to look at
    ///
    /// Plays a capture of a small office again and again, with simulated BGP neighbors, and serves the console until
    /// Ctrl-C. All commands that ask a router work with the --socket that it prints.
    Demo(DemoArgs),
    /// Show the state of a running router
    Show(ShowArgs),
    /// Follow the state of a running router in the terminal: traffic, drops, neighbors, what is wrong
    ///
    /// Draws again every second, until Ctrl-C. In a pipe it prints once.
    Top(TopArgs),
    /// Show what the router would do with a packet, stage by stage, and why
    Trace(TraceArgs),
    /// Capture packets in a running router: as received, behind a stage, as sent or when dropped
    ///
    /// Writes a pcapng file; a comment on each packet says what happened to it. A capture never slows forwarding:
    /// packets that it has no room for are counted, and the file marks the gap.
    Capture(CaptureArgs),
    /// Reload the configuration of a running router
    ///
    /// The file is checked first. If it has an error, or needs a restart, nothing changes and the reason is printed.
    /// Otherwise only the differences are applied: ports and VLANs are added and removed, BGP sessions with the same
    /// settings stay up, NAT sessions and queued packets are kept. SIGHUP does the same.
    Reload(ReloadArgs),
    /// Clear NAT sessions, or connections of the firewall, of a running router
    Clear(ClearArgs),
    /// Stop a running router
    ///
    /// Closes the BGP sessions and removes BGP's routes from the kernel, as SIGTERM does. With --keep-routes it starts
    /// a graceful restart instead: the kernel keeps forwarding, and neighbors with graceful restart keep our routes
    /// until the restart time expires. Returns when the router has exited.
    Stop(StopArgs),
    /// Refresh, reset, shut down or start a BGP session of a running router
    Bgp(BgpArgs),
    /// Run an experiment and write a report
    Lab(crate::lab::LabArgs),
    /// Query a dataset of flow records: top talkers, records, traffic over time
    ///
    /// A dataset is a folder of Parquet files, which other programs can read too. It can be queried while it is
    /// written.
    Flows(Box<FlowsArgs>),
    /// Print MRT files: routing tables, BGP messages, session state changes
    ///
    /// Reads TABLE_DUMP, TABLE_DUMP_V2, BGP4MP and the older types (plain or .gz, .bz2, .zst) and prints one line per
    /// route or change, as `bgpdump -m` does; with `--format json`, one object per line.
    Mrt(MrtArgs),
    /// Predict how a new configuration or a failure changes routing, before you apply it
    ///
    /// Runs a table of received routes through import, best-path selection and export under both configurations.
    /// Reports the prefixes whose best path changes, what each neighbor would receive, what would leak, and where
    /// traffic would move. Nothing is announced; no running router is needed.
    Whatif(Box<WhatIfArgs>),
    /// Serve the HTTP API of a running router from a process of its own
    ///
    /// Takes the section web of a configuration, which may be a file of its own. This process needs no right but that to open the
    /// router's control socket. A router whose own configuration has this section serves the API by itself.
    Web(WebArgs),
    /// Write manual pages and completions for shells, for packages
    #[command(hide = true)]
    Pages(PagesArgs),
}

/// Version, commit and optional parts of this build.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [(cfg!(feature = "dpdk"), "dpdk"), (cfg!(feature = "kafka"), "kafka")];
    let features: Vec<&str> = features.iter().filter_map(|(is_in, name)| is_in.then_some(*name)).collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    format!("{} (commit {COMMIT}, features: {features})", env!("CARGO_PKG_VERSION"))
});

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  thalweg web web.toml --socket /run/thalweg/thalweg.sock")]
pub(crate) struct WebArgs {
    /// Configuration file
    pub(crate) config: PathBuf,
    /// Control socket of the router [default: the configuration's, or /run/thalweg/thalweg.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Folder of the dataset of flow records [default: the configuration's `store` in [flows]]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
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
    /// Print times as seconds since the epoch, and all fields (the default)
    #[arg(short = 'm', conflicts_with_all = ["human_time", "count"])]
    pub(crate) machine: bool,
    /// Print date and time, and end each line with the origin
    #[arg(short = 'M', conflicts_with = "count")]
    pub(crate) human_time: bool,
    /// Print only the numbers of records, routes, changes, prefixes and peers
    #[arg(long)]
    pub(crate) count: bool,
    /// Also list the records that were skipped because they hold no routes
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg run router.toml
  thalweg run router.toml --model run-to-completion --workers 4
  thalweg run router.toml --scheduling serial --socket ./thalweg.sock --log debug")]
pub(crate) struct RunArgs {
    /// Configuration file
    pub(crate) config: PathBuf,
    /// Scheduling of BGP over threads [default: the configuration's, or sharded]
    #[arg(long, value_parser = one_of(SCHEDULINGS))]
    pub(crate) scheduling: Option<SchedulingKind>,
    /// BGP threads of the dynamic and sharded schedulings [default: the configuration's, or one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Execution model: how packets are spread over cores
    #[arg(long, value_parser = one_of(MODELS), default_value = "run-to-completion")]
    pub(crate) model: ModelKind,
    /// Threads that forward packets; in run-to-completion each has its own receive queues
    /// [default: the configuration's, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Control socket to listen on, for `show`, `reload` and the like [default: the configuration's, or
    /// /run/thalweg/thalweg.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Lowest level to log: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
    /// Format of log lines
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Start as after a graceful restart, even if no `stop --keep-routes` came before
    #[arg(long)]
    pub(crate) restarting: bool,
    /// Measure the time spent in each BGP function, for `show bgp functions`
    #[arg(long)]
    pub(crate) profile_functions: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  thalweg demo --open")]
pub(crate) struct DemoArgs {
    /// TCP port of the console; another one if it is taken
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,
    /// Open the console in a browser
    #[arg(long)]
    pub(crate) open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg reload --dry-run      print what would change
  thalweg reload")]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) router: SocketArgs,
    /// Print what would change (except in BGP), or why the reload would be refused, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg stop
  thalweg stop --keep-routes && thalweg run router.toml      restart without loss if the kernel forwards")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) router: SocketArgs,
    /// Keep routes in the kernel and at neighbors, for a router that starts again soon
    #[arg(long, conflicts_with = "remove_routes")]
    pub(crate) keep_routes: bool,
    /// Remove routes, even if `on_stop` in the configuration keeps them
    #[arg(long)]
    pub(crate) remove_routes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  thalweg check examples/small-office/router.toml --format json")]
pub(crate) struct CheckArgs {
    /// Configuration file
    pub(crate) config: PathBuf,
    /// Do not probe the interfaces of this machine
    ///
    /// Without this option, each interface is opened as the router would open it, and closed again. Other programs keep
    /// receiving their packets, but some network cards lose link for a moment when an XDP program is attached.
    #[arg(long)]
    pub(crate) offline: bool,
    /// Only try whether the sandbox of `run` holds on this machine
    ///
    /// This process becomes what `run` would be, then tries what that must not be able to do, call by call. Exit code 1
    /// says that something was allowed.
    #[arg(long, conflicts_with = "offline")]
    pub(crate) sandbox: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg replay office.pcapng -c router.toml                      forwarded and dropped packets
  thalweg replay office.pcapng -c router.toml --output out         with a capture per port in out/
  thalweg replay wan=a.pcap lan=b.pcap.gz -c router.toml           with the ports they arrive on
  ssh host tcpdump -w - | thalweg replay - -c router.toml          from standard input
  thalweg replay trace.txt -c router.toml --field-order src-first  a trace with the source first
  thalweg replay trace.txt -c router.toml --model farm --readers 1 --workers 2 --work queens:8")]
pub(crate) struct ReplayArgs {
    /// Captures and text traces, in order; `-` is standard input
    ///
    /// `PORT=FILE` sets the port that the file's packets arrive on. Otherwise a trace's lines and a pcapng's interfaces
    /// name it.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Execution model: how packets are spread over cores
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
    /// Send packets in the order of the serial model
    #[arg(long, help_heading = "Execution")]
    pub(crate) ordered: bool,
    /// Pin workers to these cores: `0,1` or `0-3`
    #[arg(long, value_name = "CORES", value_parser = parse_cores, help_heading = "Execution")]
    pub(crate) pin: Option<Cores>,
    /// Synthetic work per packet and stage: `none`; `queens:N`; `queens:4-10`, random per packet; `queens:6/8/6/10`, by
    /// stage
    #[arg(long, value_name = "WORK", default_value = "none", help_heading = "Measuring")]
    pub(crate) work: Work,
    /// Read all input into memory before timing starts
    #[arg(long, help_heading = "Measuring")]
    pub(crate) preload: bool,
    /// Process the input this many times
    #[arg(long = "loop", value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..), help_heading = "Measuring")]
    pub(crate) loops: u32,
    /// Stop reading after about this many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          help_heading = "Measuring")]
    pub(crate) packets: Option<u64>,
    /// Seed for everything random
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Measuring")]
    pub(crate) seed: u64,
    /// Folder for forwarded packets, or `none`
    #[arg(long, value_name = "DIR", default_value = "none", help_heading = "Input and output")]
    pub(crate) output: PathBuf,
    /// Format of --output: a capture per egress port, or one text trace
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
    /// The options for the node, or why the arguments contradict each other.
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

/// Which end of the flow comes first in a line of a text trace.
const FIELD_ORDERS: &[Choice<FieldOrder>] =
    &[("dst-first", "", FieldOrder::DestinationFirst), ("src-first", "", FieldOrder::SourceFirst)];

/// Core numbers, in the order of workers.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A browser knows only the web server's files, so the console has a list of its own.
    #[test]
    fn the_console_lists_all_experiments() {
        let page = include_str!("../../web/assets/pages/laboratory.js");
        let (_, list) = page.split_once("const EXPERIMENTS = [\n").expect("the list");
        let (list, _) = list.split_once("];").expect("its end");
        let command = Cli::command();
        let lab = command.find_subcommand("lab").expect("the laboratory");
        let rows = lab.get_subcommands().map(|each| {
            let about = each.get_about().expect("a line of help");
            format!("  [\"{}\", \"{about}\"],\n", each.get_name())
        });
        assert_eq!(list, rows.collect::<String>());
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
    fn a_probe_takes_the_model_that_its_input_is_fastest_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let [small, large] = [("small", (32 << 20) - 1), ("large", 32 << 20)].map(|(name, bytes)| {
            let path = folder.path().join(name);
            // A hole: nothing is written.
            std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
            path
        });
        let shape = |arguments: String| {
            let line = format!("thalweg probe {arguments}");
            let cli = Cli::try_parse_from(line.split_whitespace()).expect("valid");
            let Command::Probe(args) = cli.command else { panic!("another command") };
            let shape = args.options().expect("valid").shape;
            (shape.model, shape.workers)
        };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let several = if cores > 1 { (ModelKind::Tokens, cores) } else { (ModelKind::Serial, 1) };
        let (small, large) = (small.display(), large.display());
        assert_eq!(shape(format!("{small}")), (ModelKind::Serial, 1));
        assert_eq!(shape(format!("{large}")), several);
        assert_eq!(shape("-".to_owned()), several, "nobody knows how long a pipe is");
        assert_eq!(shape(format!("{small} {small}")), several, "together they are large");
        assert_eq!(shape(format!("{small} --loop 2")), several);
        assert_eq!(shape(format!("{small} --workers 3")), (ModelKind::Tokens, 3));
        assert_eq!(shape(format!("{large} --workers 1")), (ModelKind::Serial, 1));
        assert_eq!(shape(format!("{large} --readers 1")), (ModelKind::Farm, 1));
        assert_eq!(shape("--interface eth0 --workers 2".to_owned()), (ModelKind::RunToCompletion, 2));
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
            ("x -c c --work queens:99", "from 1 to 16"),
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
