//! `thalweg flows rollup`: sums the records of a dataset's hours into another.

use std::io::Write;

use serde_json::json;
use thalweg_ports::live::wall_ns;
use thalweg_store::{RolledUp, RollupOptions, roll_up};
use thalweg_text::units::counted;

use super::{complete, failed, report_skipped, writer};
use crate::cli::{FlowsArgs, FlowsRollupArgs, Format};
use crate::{Failure, print};

pub(super) fn run(args: &FlowsArgs, rollup: &FlowsRollupArgs, format: Format) -> Result<(), Failure> {
    writer::only_folders(args, "rollup")?;
    let options = RollupOptions {
        step_s: rollup.step,
        hosts: !rollup.without_hosts,
        rows_max: usize::try_from(rollup.rows).unwrap_or(usize::MAX),
        until_ns: wall_ns(),
    };
    let done = roll_up(&writer::open(args)?, &rollup.into, options).map_err(failed)?;
    print(&match format {
        Format::Json => format!("{:#}\n", to_json(&done)),
        Format::Human => to_text(&done),
    })?;
    let mut err = std::io::stderr();
    if done.hours_kept > 0 {
        let hours = counted(done.hours_kept, "hour");
        let _ = writeln!(err, "note: {hours} with fewer records than before: the rollup stays as it is");
    }
    if done.records_in_rest > 0 {
        let records = counted(done.records_in_rest, "record");
        let _ = writeln!(
            err,
            "note: {records} of the smallest sums are kept without addresses and ASes (--rows)"
        );
    }
    report_skipped(&done.skipped);
    complete(&done.skipped)
}

fn to_text(done: &RolledUp) -> String {
    format!(
        "summed {} of {} to {}; unchanged: {}\n",
        counted(done.records, "record"),
        counted(done.hours_made, "hour"),
        counted(done.rows, "row"),
        counted(done.hours_unchanged, "hour")
    )
}

fn to_json(done: &RolledUp) -> serde_json::Value {
    json!({
        "hours_made": done.hours_made,
        "hours_unchanged": done.hours_unchanged,
        "hours_kept": done.hours_kept,
        "hours_incomplete": done.hours_incomplete,
        "records": done.records,
        "rows": done.rows,
        "records_in_rest": done.records_in_rest,
        "skipped": done.skipped.to_json(),
    })
}
