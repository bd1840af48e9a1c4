//! `thalweg lab seeds`: checks invariants of random networks and routers with faults.

mod args;

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use thalweg_lab::report::{Origin, Report};
use thalweg_lab::seeds::{Options, hunt, render, replay};
use thalweg_sim::seeds::{Case, Moment, Side, Verdict};
use thalweg_text::units::{count, counted};

pub(super) use args::{LabSeedsArgs, SeedSide};

use super::{command_line, failed, show_all};
use crate::cli::Format;
use crate::progress::Steps;
use crate::{Failure, print};

/// The most plans that are tried to shrink a failing one.
const TRIES: usize = 3000;

pub(super) fn run(args: &LabSeedsArgs, format: Format) -> Result<(), Failure> {
    match (&args.scenario, args.seed) {
        (Some(path), _) => {
            let text =
                fs::read_to_string(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
            let case =
                Case::from_text(&text).map_err(|error| failed(format!("{}: {error}", path.display())))?;
            let name =
                path.file_stem().map_or("scenario".to_owned(), |name| name.to_string_lossy().into_owned());
            one(&case, &name, args, format)
        }
        (None, Some(seed)) => match sides(args.side.unwrap_or(SeedSide::Bgp))[..] {
            [side] => one(&Case::draw(side, seed), &seed.to_string(), args, format),
            _ => Err(Failure::Usage(
                "one seed runs on one side: choose --side bgp or --side packets".to_owned(),
            )),
        },
        (None, None) => many(args, format),
    }
}

fn sides(side: SeedSide) -> Vec<Side> {
    match side {
        SeedSide::Bgp => vec![Side::Bgp],
        SeedSide::Packets => vec![Side::Packets],
        SeedSide::Both => vec![Side::Bgp, Side::Packets],
    }
}

/// Runs one plan and prints all events.
fn one(case: &Case, name: &str, args: &LabSeedsArgs, format: Format) -> Result<(), Failure> {
    let shrunk = if args.shrink { case.shrink(TRIES) } else { None };
    if args.shrink && shrunk.is_none() {
        return Err(Failure::Run(format!("{name} breaks no invariant, so there is nothing to shrink")));
    }
    let case = shrunk.as_ref().map_or(case, |shrunk| &shrunk.plan);
    let (verdict, moments) = replay(case);
    let what = match &verdict {
        Verdict::Held => "every invariant held".to_owned(),
        Verdict::Broken(violation) => violation.to_string(),
    };
    let origin = Origin::here(command_line(), format!("{} routers or ports", case.places()));
    let mut report = Report::new(format!("Seed {name}"), what.clone(), origin);
    report.plot(
        render::diagram(name, case.places(), &moments),
        "A line for each router, time going down; a row for each fault and each line of a log.",
    );
    report.heading("Scenario");
    report.notes(case.to_text().lines().filter(|line| !line.is_empty()));
    let page = report.write(&args.output, case).map_err(failed)?;
    match format {
        Format::Json => print(&report.json(case).map_err(failed)?)?,
        Format::Human => {
            let mut text = String::new();
            for (at_us, moment) in &moments {
                text += &format!("{:>10.3} s  {}\n", *at_us as f64 / 1e6, words(moment));
            }
            print(&format!("{text}\n{}\n{what}\n\nwrote {}\n", case.to_text(), page.display()))?;
        }
    }
    match verdict {
        Verdict::Held => Ok(()),
        Verdict::Broken(violation) => {
            keep(args.keep.as_deref(), name, &format!("# {violation}\n{}", case.to_text()))?;
            Err(Failure::Run(format!("{name}: {}", violation.invariant)))
        }
    }
}

fn words(moment: &Moment) -> String {
    match moment {
        Moment::Fault(fault) => format!("-- {fault}"),
        Moment::Packets(what) => what.clone(),
        Moment::Mended => "-- everything is mended".to_owned(),
        Moment::Checked => "-- at rest, as it must be".to_owned(),
        Moment::Logged { router, other, text } => format!("router {router}, of {other}: {text}"),
    }
}

/// Writes a scenario file, if a folder is given.
fn keep(folder: Option<&Path>, name: &str, text: &str) -> Result<(), Failure> {
    let Some(folder) = folder else { return Ok(()) };
    let path = folder.join(format!("{name}.toml"));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
    written.map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn many(args: &LabSeedsArgs, format: Format) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().ok();
    let options = Options {
        first: args.first,
        count: args.count.get(),
        sides: sides(args.side.unwrap_or(SeedSide::Both)),
        time: args.hours.map(|hours| Duration::from_secs_f64(hours * 3600.0)),
        threads: args.threads.or(cores).map_or(1, NonZeroUsize::get),
        failures: args.failures.get(),
        tries: TRIES,
    };
    let steps = Steps::on_terminal();
    let outcome = hunt(&options, &|done, failures| {
        steps.of(
            done as usize,
            options.count as usize,
            &format!("{} done, {} failed", count(done), count(failures as u64)),
        );
    });
    steps.finish();
    for failure in &outcome.failures {
        keep(args.keep.as_deref(), &format!("{}-{}", failure.side, failure.seed), &failure.scenario)?;
    }
    let input = format!("{} from {}", counted(outcome.seeds, "seed"), outcome.first);
    let report = render::report(&outcome, Origin::here(command_line(), input));
    let mut tables = vec![render::summary(&outcome)];
    if !outcome.failures.is_empty() {
        tables.push(render::failures(&outcome));
    }
    show_all(&report, &outcome, &tables, &args.output, format)?;
    match outcome.failures.len() {
        0 => Ok(()),
        broken => Err(Failure::Run(format!("{} broke an invariant", counted(broken as u64, "seed")))),
    }
}
