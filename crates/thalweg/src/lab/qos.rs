//! `thalweg lab qos`: calls and bulk through a shaped port that is offered more than it carries.

use std::num::NonZeroUsize;

use thalweg_lab::forwarding::{ForwardingError, is_root, namespace};
use thalweg_lab::qos::shaper::{Discipline, KernelShaper, Shaper, ThalwegShaper};
use thalweg_lab::qos::{self, Options, render};
use thalweg_lab::report::Origin;

use super::{command_line, failed, forwarding, show};
use crate::Failure;
use crate::cli::{Format, LabQosArgs, QosSubjectArg};
use crate::progress::Steps;
use crate::signals::stop_on_signals;

const TRIAL_S_QUICK: f64 = 1.0;
/// Packets a second of a call.
const CALL_PPS: f64 = 50.0;

pub(super) fn run(args: &LabQosArgs, format: Format) -> Result<(), Failure> {
    if !is_root() {
        return Err(failed(ForwardingError::NotRoot));
    }
    let usual = Options::default();
    let options = Options {
        rate_bits: f64::from(args.rate) * 1e6,
        overload: args.overload,
        voice_pps: f64::from(args.calls) * CALL_PPS,
        trial_s: args.trial.unwrap_or(if args.quick { TRIAL_S_QUICK } else { usual.trial_s }),
        runs: args.runs.map_or(if args.quick { 1 } else { usual.runs }, NonZeroUsize::get),
        seed: args.seed,
        ..usual
    };
    let stop = stop_on_signals()?;
    let mut shapers = shapers(args, &options)?;
    namespace::sweep();
    let mut steps: Option<Steps> = None;
    let outcome = qos::run(&mut shapers, &options, &stop, &mut |done, total, what| {
        steps.get_or_insert_with(|| Steps::on_terminal(Some(total))).at(done, what);
    });
    if let Some(steps) = steps {
        steps.finish();
    }
    let outcome = outcome.map_err(failed)?;
    let [voice_pps, bulk_pps] = options.offered_pps();
    let input = format!(
        "voice: {voice_pps:.0} packets of {} bytes a second; bulk: {bulk_pps:.0} of {}; seed {}",
        qos::VOICE_PACKET_BYTES,
        qos::BULK_PACKET_BYTES,
        args.seed
    );
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show(&report, &outcome, &render::table(&outcome), &args.output, format)
}

fn shapers(args: &LabQosArgs, options: &Options) -> Result<Vec<Box<dyn Shaper>>, Failure> {
    let program = forwarding::own_program()?;
    let mut shapers: Vec<Box<dyn Shaper>> = Vec::new();
    for subject in &args.subjects {
        match subject {
            QosSubjectArg::Linux => {
                for discipline in Discipline::ALL {
                    shapers.push(Box::new(KernelShaper::new(discipline, options)));
                }
            }
            QosSubjectArg::Thalweg => {
                for driver in &args.drivers {
                    for model in &args.models {
                        let shaper = ThalwegShaper::new(&program, driver, model, &args.output, options);
                        shapers.push(Box::new(shaper));
                    }
                }
            }
        }
    }
    Ok(shapers)
}
