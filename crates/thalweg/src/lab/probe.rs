//! `thalweg lab probe`: ffProbe's table, kinds of traffic, and other probes on the same file.

use thalweg_lab::probe::shape::Configuration;
use thalweg_lab::probe::{self, FLOWS, Options, Part, render};
use thalweg_lab::report::Origin;

use super::{command_line, failed, forwarding, show_all};
use crate::Failure;
use crate::cli::{Format, LabProbeArgs};
use crate::progress::Steps;
use crate::signals::stop_on_signals;

const PACKETS: u64 = 5_000_000;
const PACKETS_QUICK: u64 = 1_000_000;
const RUNS: usize = 5;
const FLOWS_QUICK: [u32; 2] = [1_000, 100_000];

pub(super) fn run(args: &LabProbeArgs, format: Format) -> Result<(), Failure> {
    let options = options(args)?;
    let stop = stop_on_signals()?;
    let mut steps: Option<Steps> = None;
    let outcome = probe::run(&options, &stop, &mut |done, total, what| {
        steps.get_or_insert_with(|| Steps::on_terminal(Some(total))).at(done, what);
    });
    if let Some(steps) = steps {
        steps.finish();
    }
    let outcome = outcome.map_err(failed)?;
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
    let given = &args.configurations;
    let or = |usual: Vec<Configuration>| if given.is_empty() { usual } else { given.clone() };
    let usual_flows = if args.run.quick { FLOWS_QUICK.to_vec() } else { FLOWS.to_vec() };
    Ok(Options {
        parts: match args.only.as_slice() {
            [] => Part::ALL.to_vec(),
            parts => parts.to_vec(),
        },
        subjects: args.subjects.clone(),
        configurations: or(Configuration::table()),
        traffic_configurations: or(Configuration::few()),
        traffic: args.traffic.clone(),
        flows: if args.flows.is_empty() { usual_flows } else { args.flows.clone() },
        packets: args.packets.unwrap_or(if args.run.quick { PACKETS_QUICK } else { PACKETS }),
        runs: args.run.runs(RUNS, 1),
        seed: args.run.seed(1),
        program: forwarding::own_program()?,
    })
}
