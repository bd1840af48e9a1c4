//! `thalweg lab predict`: execution models on virtual cores.

use std::num::NonZeroUsize;

use thalweg_lab::predict::{self, CostsFile, Options, Outcome};
use thalweg_lab::report::Origin;
use thalweg_lab::workload::generate::{self, Generated};
use thalweg_replay::{Prepared, ReplayOptions, Work};

use super::{command_line, failed, show_all};
use crate::cli::{Format, LabPredictArgs};
use crate::progress::Steps;
use crate::{Failure, load_config};

const CORES: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const CORES_QUICK: [usize; 5] = [1, 2, 4, 16, 64];
/// Packets of a recorded run: without synthetic work and with.
const PACKETS: [u64; 2] = [1_000_000, 20_000];
const PACKETS_QUICK: [u64; 2] = [100_000, 3_200];

pub(super) fn run(args: &LabPredictArgs, format: Format) -> Result<(), Failure> {
    let folder = args.run.output("lab-predict");
    let options = Options {
        cores: match args.cores.as_slice() {
            [] if args.run.quick => CORES_QUICK.to_vec(),
            [] => CORES.to_vec(),
            given => given.iter().map(|cores| usize::from(*cores)).collect(),
        },
        tokens: args.tokens.map(NonZeroUsize::get),
        runs: args.run.runs(5, 3),
        seed: args.run.seed(1),
    };
    let steps = Steps::on_terminal(None);
    let (outcome, input) = match &args.costs {
        Some(path) => {
            let file = CostsFile::read(path).map_err(failed)?;
            let input = format!("costs of {}: {}", path.display(), file.input);
            let outcome = predict::predict(&file, &options, &mut |what| steps.at(0, what)).map_err(failed)?;
            (outcome, input)
        }
        None => measured(args, &options, &steps)?,
    };
    steps.finish();
    let origin = Origin::here(command_line(), input);
    let report = predict::report(&outcome, origin);
    show_all(&report, &outcome, &predict::tables(&outcome), &folder, format)
}

fn measured(args: &LabPredictArgs, options: &Options, steps: &Steps) -> Result<(Outcome, String), Failure> {
    let folder = args.run.output("lab-predict");
    let packets = if args.run.quick { PACKETS_QUICK } else { PACKETS };
    let made = generate::generate(Generated::Trace, packets[0], options.seed, &folder).map_err(failed)?;
    let config = load_config(&made.config.unwrap_or_default())?;
    let prepared = Prepared::new(&config).map_err(Failure::Replay)?;
    let base = ReplayOptions {
        inputs: vec![made.input],
        chunk_packets: usize::from(args.chunk.get()),
        preload: true,
        ..ReplayOptions::default()
    };
    let runs: Vec<ReplayOptions> = args
        .work
        .iter()
        .map(|work| ReplayOptions {
            work: *work,
            packets_max: Some(packets[usize::from(*work != Work::None)]),
            ..base.clone()
        })
        .collect();
    let mut progress = |what: &str| steps.at(0, what);
    let file = predict::calibrate(&prepared, &runs, &made.description, options, &mut progress)
        .map_err(Failure::Replay)?;
    file.write(&folder.join("costs.json")).map_err(failed)?;
    let mut outcome = predict::predict(&file, options, &mut progress).map_err(failed)?;
    predict::validate(&mut outcome, &file, &prepared, &runs, options, &mut progress).map_err(failed)?;
    Ok((outcome, made.description))
}
