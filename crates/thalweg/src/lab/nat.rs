//! `thalweg lab nat`: measures NAT, or a stateful firewall, by RFC 9693, in memory and live.

use clap::Args;
use thalweg_lab::forwarding::method::SearchOptions;
use thalweg_lab::forwarding::subject::Subject;
use thalweg_lab::forwarding::subject::thalweg::{DRIVERS, Thalweg};
use thalweg_lab::forwarding::tester::CAPTURE_MAX;
use thalweg_lab::forwarding::{ForwardingError, is_root, namespace};
use thalweg_lab::nat::subject::{Nftables, configuration, firewall_configuration, rules_of};
use thalweg_lab::nat::{self, Options, Part, render};
use thalweg_lab::report::Origin;

use super::args::{LabRouterArgs, LabRunArgs, LabSubjectsArgs, RouterArg, VARY, or_usual};
use super::{command_line, failed, forwarding, measured, show_all};
use crate::Failure;
use crate::cli::Format;
use crate::signals::stop_on_signals;

/// The size of our router's table: more than all trials of a set-up search open, and as many as the pool has
/// ports.
const SESSIONS_MAX: u32 = 1 << 21;
const MEMORY_QUICK: [u32; 2] = [4_000, 100_000];
const LIVE_QUICK: [u32; 1] = [10_000];
const SET_UP_QUICK: u32 = 10_000;
const CAPACITY_QUICK: u32 = 40_000;
const FILL_QUICK: u32 = 1 << 16;
const TRIAL_S_QUICK: f64 = 0.1;
const WIDTH_QUICK: f64 = 0.05;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab nat --quick                                  under two minutes, to see that it works
  thalweg lab nat --only memory --sessions 10000000        needs no root
  thalweg lab nat --only set-up,established --subjects linux,thalweg --drivers af_xdp
  thalweg lab nat --firewall 10,10000                      the firewall with so many rules, beside nftables
Live parts run in their own network namespaces, which needs root, and remove them at the end.
Defaults: 3 rounds, trials of 0.5 s, run-to-completion; with --quick 1 round, 0.1 s.")]
pub(crate) struct LabNatArgs {
    /// Parts of the experiment; memory needs no interfaces, the others are live [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", help_heading = VARY)]
    pub(crate) only: Vec<Part>,
    /// A stateful firewall instead of NAT, once with each of these numbers of rules
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "RULES",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(thalweg_lab::stages::RULES_MAX)),
        help_heading = VARY
    )]
    pub(crate) firewall: Vec<u32>,
    /// Numbers of sessions in memory [default: 4000,100000,1000000,10000000; 4000,100000 with --quick]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(thalweg_lab::stages::SESSIONS_MAX)),
        help_heading = VARY
    )]
    pub(crate) sessions: Vec<u32>,
    /// Numbers of sessions for the live throughput search [default: 1000,10000,100000; 10000 with --quick]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=500_000),
        help_heading = VARY
    )]
    pub(crate) live_sessions: Vec<u32>,
    /// Sessions per live set-up or tear-down trial [default: 40000; 10000 with --quick]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(100..=i64::from(CAPTURE_MAX)),
        help_heading = VARY
    )]
    pub(crate) set_up_sessions: Option<u32>,
    /// Limit of concurrent sessions in the live capacity test [default: 300000; 40000 with --quick]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = VARY
    )]
    pub(crate) capacity_limit: Option<u32>,
    #[command(flatten)]
    pub(crate) subjects: LabSubjectsArgs,
    #[command(flatten)]
    pub(crate) router: LabRouterArgs,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabNatArgs, format: Format) -> Result<(), Failure> {
    let options = options(args);
    if options.is_live() && !is_root() {
        return Err(failed(nat::NatError::from(ForwardingError::NotRoot)));
    }
    let stop = stop_on_signals()?;
    let mut subjects = if options.is_live() { subjects(args)? } else { Vec::new() };
    if options.is_live() {
        namespace::sweep();
    }
    let outcome = measured(|steps| {
        nat::run(&mut subjects, &options, &stop, &mut |done, total, what| steps.of(done, total, what))
    })?;
    let input = format!(
        "64-byte frames; set-up trials of {} sessions, {} public addresses; seed {}",
        options.set_up_sessions,
        nat::subject::POOL,
        args.run.seed(1)
    );
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show_all(&report, &outcome, &render::tables(&outcome), &args.run.output("lab-nat"), format)
}

fn options(args: &LabNatArgs) -> Options {
    let (usual, quick) = (Options::default(), args.run.quick);
    let or = |given: &[u32], quickly: &[u32], usually: &[u32]| {
        or_usual(given, if quick { quickly } else { usually })
    };
    let few = |quickly: u32, usually: u32| if quick { quickly } else { usually };
    Options {
        parts: or_usual(&args.only, &Part::ALL),
        firewall_rules: args.firewall.clone(),
        memory_sessions: or(&args.sessions, &MEMORY_QUICK, &usual.memory_sessions),
        fill_room: few(FILL_QUICK, usual.fill_room),
        live_sessions: or(&args.live_sessions, &LIVE_QUICK, &usual.live_sessions),
        set_up_sessions: args.set_up_sessions.unwrap_or(few(SET_UP_QUICK, usual.set_up_sessions)),
        capacity_limit: args.capacity_limit.unwrap_or(few(CAPACITY_QUICK, usual.capacity_limit)),
        runs: args.run.runs(usual.runs, 1),
        trial_s: args.router.trial.unwrap_or(if quick { TRIAL_S_QUICK } else { usual.trial_s }),
        search: SearchOptions {
            width: if quick { WIDTH_QUICK } else { usual.search.width },
            ..SearchOptions::default()
        },
        seed: args.run.seed(1),
        ..usual
    }
}

fn subjects(args: &LabNatArgs) -> Result<Vec<Box<dyn Subject>>, Failure> {
    let program = forwarding::own_program()?;
    let folder = args.run.output("lab-nat");
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    // Without rules there is NAT.
    let rules = args.firewall.iter().copied().map(Some);
    let rules: Vec<Option<u32>> = if args.firewall.is_empty() { vec![None] } else { rules.collect() };
    for (subject, rules) in
        args.subjects.subjects.iter().flat_map(|subject| rules.iter().map(move |rules| (subject, *rules)))
    {
        match subject {
            RouterArg::Linux => subjects.push(Box::new(match rules {
                Some(rules) => Nftables::firewall(rules, &folder),
                None => Nftables::nat(&folder),
            })),
            RouterArg::Thalweg => {
                for (driver, model) in args.router.shapes(&DRIVERS, &["run-to-completion"])? {
                    let router = Thalweg::new(&program, driver, model, &folder);
                    subjects.push(Box::new(match rules {
                        Some(rules) => {
                            router.named(&rules_of(rules)).with(&firewall_configuration(rules, SESSIONS_MAX))
                        }
                        None => router.with(&configuration(SESSIONS_MAX)),
                    }));
                }
            }
        }
    }
    Ok(subjects)
}
