//! `thalweg lab probe`: measures ffProbe's table, kinds of traffic, and other probes on the same file.

use clap::Args;
use thalweg_lab::probe::shape::Configuration;
use thalweg_lab::probe::{self, FLOWS, Options, Part, Subject, render};
use thalweg_lab::report::Origin;
use thalweg_lab::workload::flows::Spread;
use thalweg_replay::Work;

use super::args::{LabRunArgs, VARY, or_usual};
use super::{command_line, forwarding, measured, show_all};
use crate::Failure;
use crate::cli::Format;
use crate::signals::stop_on_signals;

const PACKETS: u64 = 5_000_000;
const PACKETS_QUICK: u64 = 1_000_000;
const RUNS: usize = 5;
const FLOWS_QUICK: [u32; 2] = [1_000, 100_000];

#[derive(Debug, Args)]
#[command(after_help = "\
Configurations: serial, 1R+2W (readers, workers), 2x(1R+1W) (two pipelines), 2xserial, run-to-completion:2, pipeline:2, tokens:2; \
append @pinned (threads pinned to cores), @small (no huge pages), @names (search payloads for names), @sflow:N (samples, \
one packet in N) or @queens:N (work per packet).
Traffic: zipf:FLOWS, uniform:FLOWS, unique (a flow per packet).

Examples:
  thalweg lab probe --quick                                 under two minutes, to see that it works
  thalweg lab probe --only table                            ffProbe's table
  thalweg lab probe --only rivals --runs 3                  softflowd, nfpcapd, pmacctd on the same file
  thalweg lab probe --only table --configurations serial,4R+8W,8x(1R+1W)@pinned --packets 20000000
It needs no root, sends to 127.0.0.1 only and removes its captures (76 bytes per packet, in the system's folder for temporary \
files). As root, its collector has a larger receive buffer and loses less.
Default of --runs: 5; 1 with --quick.")]
pub(crate) struct LabProbeArgs {
    /// Parts of the experiment [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", help_heading = VARY)]
    pub(crate) only: Vec<Part>,
    /// Probes to measure; those that are not installed are skipped and named
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SUBJECTS",
        default_value = "thalweg,softflowd,nfpcapd,pmacctd",
        help_heading = VARY
    )]
    pub(crate) subjects: Vec<Subject>,
    /// Configurations of thalweg, see below [default: ffProbe's table, the other models, pinned, small pages]
    #[arg(long, value_delimiter = ',', value_name = "SHAPES", help_heading = VARY)]
    pub(crate) configurations: Vec<Configuration>,
    /// Kinds of traffic, see below; the first is used for the table and the rivals
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KINDS",
        default_value = "zipf:200000,uniform:1000000,unique",
        help_heading = VARY
    )]
    pub(crate) traffic: Vec<Spread>,
    /// Synthetic work per packet of the part `grain`: `none`, `queens:N`, `queens:4-8`
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "WORK",
        default_value = "none,queens:4,queens:6",
        help_heading = VARY
    )]
    pub(crate) work: Vec<Work>,
    /// Numbers of live flows [default: 1000,10000,100000,1000000; 1000,100000 with --quick]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(thalweg_lab::workload::flows::FLOWS_MAX)),
        help_heading = VARY
    )]
    pub(crate) flows: Vec<u32>,
    /// Packets per capture [default: 5000000; 1000000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) packets: Option<u64>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabProbeArgs, format: Format) -> Result<(), Failure> {
    let options = options(args)?;
    let stop = stop_on_signals()?;
    let outcome =
        measured(|steps| probe::run(&options, &stop, &mut |done, total, what| steps.of(done, total, what)))?;
    let kinds: Vec<String> = options.traffic.iter().map(ToString::to_string).collect();
    let input = format!(
        "captures of {} packets of 64 bytes each, made: {}; seed {}",
        options.packets,
        kinds.join(", "),
        options.seed
    );
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show_all(&report, &outcome, &render::tables(&outcome), &args.run.output("lab-probe"), format)
}

fn options(args: &LabProbeArgs) -> Result<Options, Failure> {
    let or = |usual: Vec<Configuration>| or_usual(&args.configurations, &usual);
    let flows: &[u32] = if args.run.quick { &FLOWS_QUICK } else { &FLOWS };
    Ok(Options {
        parts: or_usual(&args.only, &Part::ALL),
        subjects: args.subjects.clone(),
        configurations: or(Configuration::table()),
        traffic_configurations: or(Configuration::few()),
        grain_configurations: or(Configuration::grained()),
        work: args.work.iter().map(|work| work.boards()).collect(),
        traffic: args.traffic.clone(),
        flows: or_usual(&args.flows, flows),
        packets: args.packets.unwrap_or(if args.run.quick { PACKETS_QUICK } else { PACKETS }),
        runs: args.run.runs(RUNS, 1),
        seed: args.run.seed(1),
        program: forwarding::own_program()?,
    })
}
