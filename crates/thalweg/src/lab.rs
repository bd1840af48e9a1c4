//! `thalweg lab`: experiments. Their arguments are settled here; the laboratory itself is a crate of its own.

use crate::cli::{Experiment, Format, LabArgs};
use crate::{Failure, load_config};

pub(crate) fn run(args: &LabArgs, _format: Format) -> Result<(), Failure> {
    match &args.experiment {
        Experiment::Models(args) => {
            load_config(&args.config)?;
            Err(Failure::NotBuilt("the laboratory for execution models"))
        }
        Experiment::Lpm(_) => Err(Failure::NotBuilt("the laboratory for longest-prefix match")),
    }
}
