//! Records that the dataset's writer has not written to disk yet.

use std::io::Write;
use std::sync::Arc;

use thalweg_store::live::{Followed, Writing};
use thalweg_store::query::{Query, list};
use thalweg_store::{Dataset, View, Window};
use thalweg_text::calendar::format_time;
use thalweg_text::units::counted;

use super::{ListLines, failed};
use crate::cli::FlowsArgs;
use crate::{Failure, print};

/// The records of a window: those in files and, unless excluded, those that are not on disk yet.
pub(super) fn view(args: &FlowsArgs, window: Window) -> Result<(View, Writing), Failure> {
    let dataset = open(args)?;
    let view = match args.no_live {
        true => dataset.view(window).map(|view| (view, Writing::Nobody)),
        false => dataset.live_view(window),
    };
    view.map_err(failed)
}

/// The queried dataset, which must be one.
pub(super) fn open(args: &FlowsArgs) -> Result<Dataset, Failure> {
    let dataset = Dataset::open(&args.data).map_err(failed)?;
    match dataset.is_one().map_err(failed)? {
        true => Ok(dataset),
        false => Err(Failure::Run(format!(
            "{} is not a dataset of flow records: name its folder with --data; a router writes one with `store` in [flows], others \
             are `thalweg probe --store` and `thalweg flows import`",
            args.data.display()
        ))),
    }
}

/// After an empty answer, reports the time span of existing records to standard error.
pub(super) fn report_empty(args: &FlowsArgs) -> Result<(), Failure> {
    let (everything, _) = view(args, Window::ALL)?;
    let text = match everything.summary().span_ns {
        None => "note: no flows match: the dataset is empty".to_owned(),
        Some((from, to)) => {
            format!(
                "note: no flows match; the data begins at {} and ends at {}",
                format_time(from),
                format_time(to)
            )
        }
    };
    let _ = writeln!(std::io::stderr(), "{text}");
    Ok(())
}

/// Reports missing live records to standard error.
pub(super) fn report_writing(writing: &Writing) {
    let mut err = std::io::stderr();
    match writing {
        Writing::Nobody => {}
        Writing::Silent(why) => {
            let _ = writeln!(
                err,
                "warning: the writer of this dataset does not answer ({why}): this is what is on disk (--no-live does not ask)"
            );
        }
        Writing::Answered(facts) => {
            if facts.cache_left_out {
                let _ = writeln!(
                    err,
                    "warning: the writer's flow cache is left out: too many flows ended while it was read"
                );
            }
            if facts.cache_busy {
                let _ = writeln!(
                    err,
                    "warning: the writer's flow cache is left out: it is busy, most likely because its disk is full"
                );
            }
            if facts.on_the_way > 0 {
                let _ = writeln!(
                    err,
                    "note: not in this, because still on the way to the store: {}",
                    counted(facts.on_the_way, "record")
                );
            }
        }
    }
}

/// Prints records as they arrive, until the writer ends.
pub(super) fn follow(args: &FlowsArgs, query: &Query, lines: &ListLines) -> Result<(), Failure> {
    let dataset = open(args)?;
    let Some(mut follow) = dataset.follow().map_err(failed)? else {
        let what = format!("nobody writes {} now: there is nothing to follow", args.data.display());
        return Err(Failure::Run(what));
    };
    print(&lines.header())?;
    loop {
        let next =
            follow.wait().map_err(|error| Failure::Run(format!("the writer does not answer: {error}")))?;
        match next {
            Followed::Records(records) if records.is_empty() => {}
            Followed::Records(records) => {
                let count = records.len();
                let mut view = View::default();
                view.add_batch(Arc::from(records));
                let (chosen, _) = list(&view, query, count).map_err(failed)?;
                print(&lines.of(&chosen))?;
            }
            Followed::Missed(count) => {
                let missed = counted(count, "record");
                let _ = writeln!(std::io::stderr(), "note: missed because they came too fast: {missed}");
            }
            Followed::End => return Ok(()),
        }
    }
}
