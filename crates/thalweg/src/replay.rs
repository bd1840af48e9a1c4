//! `thalweg replay`: sends packets through the router and reports what happened to them.

use crate::cli::{Format, ReplayArgs};
use crate::progress::Bar;
use crate::{Failure, load_config, print, summary};

pub(crate) fn run(args: &ReplayArgs, format: Format) -> Result<(), Failure> {
    let options = args.options().map_err(Failure::Usage)?;
    let config = load_config(&args.config)?;
    let bar = Bar::on_terminal();
    let result = thalweg_replay::replay(&config, &options, &bar);
    bar.finish();
    let outcome = result.map_err(Failure::Replay)?;
    match format {
        Format::Human => print(&summary::render(&outcome))?,
        Format::Json => print(&summary::to_json(&outcome))?,
    }
    if !outcome.is_conserved() {
        return Err(Failure::Conservation(Box::new(outcome)));
    }
    let wrong: Vec<String> = [outcome.input_issues.useless, outcome.input_issues.cut].concat();
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Incomplete(wrong)) }
}
