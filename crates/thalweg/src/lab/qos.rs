//! `thalweg lab qos`: measures calls and bulk traffic on an overloaded shaped port.

use clap::Args;
use thalweg_lab::forwarding::{ForwardingError, is_root, namespace};
use thalweg_lab::qos::shaper::{Discipline, KernelShaper, Shaper, ThalwegShaper};
use thalweg_lab::qos::{self, Options, render};
use thalweg_lab::report::Origin;

use super::args::{LabRouterArgs, LabRunArgs, LabSubjectsArgs, RouterArg, number};
use super::{command_line, failed, forwarding, measured, show};
use crate::Failure;
use crate::cli::Format;
use crate::signals::stop_on_signals;

const TRIAL_S_QUICK: f64 = 1.0;
/// Packets per second of a call.
const CALL_PPS: f64 = 50.0;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab qos --quick                                  under two minutes, to see that it works
  thalweg lab qos --rate 20 --overload 4 --runs 10
It runs in its own network namespaces, which needs root, and removes them at the end.
Defaults: 3 rounds, trials of 4 s, run-to-completion; with --quick 1 round, 1 s.")]
pub(crate) struct LabQosArgs {
    #[command(flatten)]
    pub(crate) subjects: LabSubjectsArgs,
    /// Rate of the port, in Mbit/s
    #[arg(long, value_name = "MBIT", default_value = "100", value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub(crate) rate: u32,
    /// Offered load, as a multiple of the rate
    #[arg(long, value_name = "TIMES", default_value = "2", value_parser = number(0.1..=10.0))]
    pub(crate) overload: f64,
    /// Number of calls, each of 50 packets per second with 200 bytes
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) calls: u16,
    #[command(flatten)]
    pub(crate) router: LabRouterArgs,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabQosArgs, format: Format) -> Result<(), Failure> {
    if !is_root() {
        return Err(failed(ForwardingError::NotRoot));
    }
    let usual = Options::default();
    let options = Options {
        rate_bits: f64::from(args.rate) * 1e6,
        overload: args.overload,
        voice_pps: f64::from(args.calls) * CALL_PPS,
        trial_s: args.router.trial.unwrap_or(if args.run.quick { TRIAL_S_QUICK } else { usual.trial_s }),
        runs: args.run.runs(usual.runs, 1),
        seed: args.run.seed(1),
        ..usual
    };
    let stop = stop_on_signals()?;
    let mut shapers = shapers(args, &options)?;
    namespace::sweep();
    let outcome = measured(|steps| {
        qos::run(&mut shapers, &options, &stop, &mut |done, total, what| steps.of(done, total, what))
    })?;
    let [voice_pps, bulk_pps] = options.offered_pps();
    let input = format!(
        "voice: {voice_pps:.0} packets of {} bytes a second; bulk: {bulk_pps:.0} of {}; seed {}",
        qos::VOICE_PACKET_BYTES,
        qos::BULK_PACKET_BYTES,
        args.run.seed(1)
    );
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show(&report, &outcome, &render::table(&outcome), &args.run.output("lab-qos"), format)
}

/// Queues do not see packets that offload forwards.
const DRIVERS: [&str; 2] = ["af_packet", "af_xdp"];

fn shapers(args: &LabQosArgs, options: &Options) -> Result<Vec<Box<dyn Shaper>>, Failure> {
    let program = forwarding::own_program()?;
    let mut shapers: Vec<Box<dyn Shaper>> = Vec::new();
    for subject in &args.subjects.subjects {
        match subject {
            RouterArg::Linux => {
                for discipline in Discipline::ALL {
                    shapers.push(Box::new(KernelShaper::new(discipline, options)));
                }
            }
            RouterArg::Thalweg => {
                for (driver, model) in args.router.shapes(&DRIVERS, &["run-to-completion"])? {
                    let shaper =
                        ThalwegShaper::new(&program, driver, model, &args.run.output("lab-qos"), options);
                    shapers.push(Box::new(shaper));
                }
            }
        }
    }
    Ok(shapers)
}
