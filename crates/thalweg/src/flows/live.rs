//! What whoever writes the dataset adds to answers.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_store::live::{Followed, LiveFacts, Writing};
use thalweg_store::query::{Query, Sums, list};
use thalweg_store::{Dataset, View, Window};

use super::{ListLines, failed, total_json};
use crate::cli::FlowsArgs;
use crate::{Failure, print};

/// The records of a window: those in files and, unless they are not wanted, those that are not on disk yet.
pub(super) fn view(args: &FlowsArgs, window: Window) -> Result<(View, Writing), Failure> {
    let dataset = Dataset::open(&args.data).map_err(failed)?;
    let view = match args.no_live {
        true => dataset.view(window).map(|view| (view, Writing::Nobody)),
        false => dataset.live_view(window),
    };
    view.map_err(failed)
}

/// Says on standard error what is missing of what is not on disk yet.
pub(super) fn tell_writing(writing: &Writing) {
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
            if facts.on_the_way > 0 {
                let _ = writeln!(
                    err,
                    "note: {} records were on their way to the store, and are in none of this",
                    facts.on_the_way
                );
            }
        }
    }
}

/// How much of an answer is not on disk yet, and what the writer said.
pub(super) fn live_json(live: Sums, writing: &Writing) -> Value {
    let mut value = total_json(live);
    let (name, facts, why) = match writing {
        Writing::Nobody => ("nobody", LiveFacts::default(), None),
        Writing::Silent(why) => ("silent", LiveFacts::default(), Some(why)),
        Writing::Answered(facts) => ("answered", *facts, None),
    };
    value["writer"] = json!(name);
    if let Some(why) = why {
        value["reason"] = json!(why);
    }
    value["cache_left_out"] = json!(facts.cache_left_out);
    value["records_on_the_way"] = json!(facts.on_the_way);
    value
}

/// Prints records as they come in, until the writer ends.
pub(super) fn follow(args: &FlowsArgs, query: &Query, lines: &ListLines) -> Result<(), Failure> {
    let dataset = Dataset::open(&args.data).map_err(failed)?;
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
                let _ = writeln!(std::io::stderr(), "note: {count} records came too fast, and are not shown");
            }
            Followed::End => return Ok(()),
        }
    }
}
