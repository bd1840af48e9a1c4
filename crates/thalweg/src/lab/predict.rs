//! `thalweg lab predict`: predicts execution models on virtual cores.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;

use clap::Args;
use thalweg_lab::predict::{self, CostsFile, Options, Outcome};
use thalweg_lab::report::Origin;
use thalweg_lab::workload::generate::{self, Generated};
use thalweg_replay::{Prepared, ReplayOptions, Work};

use super::args::{LabRunArgs, LabWorkArgs, VARY};
use super::{command_line, failed, show_all};
use crate::cli::Format;
use crate::progress::Steps;
use crate::{Failure, load_config};

const CORES: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const CORES_QUICK: [usize; 5] = [1, 2, 4, 16, 64];
/// Packets of a recorded run, without and with synthetic work.
const PACKETS: [u64; 2] = [1_000_000, 20_000];
const PACKETS_QUICK: [u64; 2] = [100_000, 3_200];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab predict                                          measures this machine, then predicts
  thalweg lab predict --cores 2,24,64 --work queens:8
  thalweg lab predict --costs lab-predict/costs.json           the same prediction, without measuring
  thalweg lab predict --quick                                  a minute, to see that it works
Default of --runs: 5; 3 with --quick.")]
pub(crate) struct LabPredictArgs {
    /// Cores to predict for, 1 to 64 [default: 1,2,3,4,6,8,12,16,24,32,48,64; 1,2,4,16,64 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", value_parser = clap::value_parser!(u8).range(1..=64), help_heading = VARY)]
    pub(crate) cores: Vec<u8>,
    #[command(flatten)]
    pub(crate) work: LabWorkArgs,
    /// Predict from the costs.json of an earlier run, without measuring or validating
    #[arg(long, value_name = "FILE", conflicts_with = "work")]
    pub(crate) costs: Option<PathBuf>,
    /// Packets per chunk
    #[arg(long, value_name = "PACKETS", default_value = "1600")]
    pub(crate) chunk: NonZeroU16,
    /// Chunks in flight in the tokens model [default: 24, or as many as there are cores]
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

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
