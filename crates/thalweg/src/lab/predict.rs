//! `thalweg lab predict`: predicts execution models and schedulings of BGP on virtual cores.

use std::net::Ipv4Addr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_lab::bgp::table::Neighbors;
use thalweg_lab::predict::{self, CostsFile, Load, Options, Outcome};
use thalweg_lab::report::Origin;
use thalweg_lab::workload::generate::{self, Generated};
use thalweg_replay::{Prepared, ReplayOptions, Work};

use super::args::{LabRunArgs, LabWorkArgs, VARY, or_usual};
use super::{command_line, failed, show_all};
use crate::cli::Format;
use crate::progress::Steps;
use crate::{Failure, load_config};

const CORES: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const CORES_QUICK: [usize; 5] = [1, 2, 4, 16, 64];
/// Packets of a recorded run, without and with synthetic work.
const PACKETS: [u64; 2] = [1_000_000, 20_000];
const PACKETS_QUICK: [u64; 2] = [100_000, 3_200];

/// Neighbors and prefixes of the load of BGP.
const BGP: [usize; 2] = [24, 20_000];
const BGP_QUICK: [usize; 2] = [8, 1_000];

/// What to predict.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The execution models, packet by packet
    Models,
    /// The schedulings of the BGP daemon
    Bgp,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab predict                                          measures this machine, then predicts
  thalweg lab predict --cores 2,24,64 --work queens:8 --only models
  thalweg lab predict --only bgp                               schedulings of the BGP daemon
  thalweg lab predict --costs lab-predict/costs.json           the same prediction, without measuring
  thalweg lab predict --quick                                  a minute, to see that it works
Default of --runs: 5; 3 with --quick.")]
pub(crate) struct LabPredictArgs {
    /// Cores to predict for, 1 to 64 [default: 1,2,3,4,6,8,12,16,24,32,48,64; 1,2,4,16,64 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", value_parser = clap::value_parser!(u8).range(1..=64), help_heading = VARY)]
    pub(crate) cores: Vec<u8>,
    /// What to predict
    #[arg(long, value_delimiter = ',', value_name = "SUBJECTS", default_value = "models,bgp", help_heading = VARY)]
    pub(crate) only: Vec<Subject>,
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
    let cores: Vec<usize> = args.cores.iter().map(|cores| usize::from(*cores)).collect();
    let options = Options {
        cores: or_usual(&cores, if args.run.quick { &CORES_QUICK } else { &CORES }),
        tokens: args.tokens.map(NonZeroUsize::get),
        runs: args.run.runs(5, 3),
        seed: args.run.seed(1),
    };
    let steps = Steps::on_terminal();
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
    let mut progress = |what: &str| steps.at(0, what);
    progress("measuring hand-over");
    let machine = thalweg_exec::measure_machine();
    let mut file = CostsFile { input: String::new(), machine, works: Vec::new(), bgp: None };
    let load = args.only.contains(&Subject::Bgp).then(|| bgp_load(args.run.quick));
    if let Some(load) = load {
        let bgp = predict::calibrate_bgp(load, options, &mut progress).map_err(failed)?;
        file.input = format!("BGP: {}", bgp.load);
        file.bgp = Some(bgp);
    }
    let mut outcome = if args.only.contains(&Subject::Models) {
        with_models(args, options, &mut file, &mut progress)?
    } else {
        predicted(args, options, &file, &mut progress)?
    };
    if let Some(load) = load {
        predict::validate_bgp(&mut outcome, &file, load, options, &mut progress).map_err(failed)?;
    }
    Ok((outcome, file.input))
}

fn bgp_load(quick: bool) -> Load {
    let [count, prefixes] = if quick { BGP_QUICK } else { BGP };
    let neighbors = Neighbors { count, address: Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 };
    Load { neighbors, prefixes }
}

/// Writes the costs, and predicts from them.
fn predicted(
    args: &LabPredictArgs,
    options: &Options,
    file: &CostsFile,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    let folder = args.run.output("lab-predict");
    std::fs::create_dir_all(&folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    file.write(&folder.join("costs.json")).map_err(failed)?;
    predict::predict(file, options, progress).map_err(failed)
}

/// Records a replay, predicts, and measures the models beside.
fn with_models(
    args: &LabPredictArgs,
    options: &Options,
    file: &mut CostsFile,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    let packets = if args.run.quick { PACKETS_QUICK } else { PACKETS };
    let folder = args.run.output("lab-predict");
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
    file.works = predict::calibrate(&prepared, &runs, options, progress).map_err(Failure::Replay)?;
    let inputs = [made.description, std::mem::take(&mut file.input)];
    file.input = inputs.into_iter().filter(|input| !input.is_empty()).collect::<Vec<_>>().join("; ");
    let mut outcome = predicted(args, options, file, progress)?;
    predict::validate(&mut outcome, file, &prepared, &runs, options, progress).map_err(failed)?;
    Ok(outcome)
}
