//! Records that the dataset's writer has not written to disk yet.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use thalweg_ports::s3::S3Address;
use thalweg_probe::open_archive;
use thalweg_store::live::{Followed, Writing};
use thalweg_store::query::{Query, list};
use thalweg_store::{Dataset, Needs, View};
use thalweg_text::units::counted;

use super::failed;
use super::lines::Lines;
use crate::cli::FlowsArgs;
use crate::{Failure, print};

/// Threads that wait for the answers of an archive.
const ARCHIVE_THREADS: usize = 16;

/// The threads of a question: more than there are cores if they wait for an archive.
pub(super) fn threads(args: &FlowsArgs, threads: usize) -> usize {
    let waits = args.data.iter().any(|data| archive(data).is_some());
    if waits { threads.max(ARCHIVE_THREADS) } else { threads }
}

/// What answers a question: records in files, sums of them and, unless excluded, records that are not on disk yet.
pub(super) fn view(args: &FlowsArgs, needs: &Needs<'_>) -> Result<(View, Vec<Writing>), Failure> {
    open(args)?.view_for(&Needs { live: !args.no_live, ..*needs }).map_err(failed)
}

/// The queried datasets, which must be some, as one.
pub(super) fn open(args: &FlowsArgs) -> Result<Dataset, Failure> {
    let open = |folder: &PathBuf| {
        if let Some(url) = archive(folder) {
            return archived(url);
        }
        let dataset = Dataset::open(folder).map_err(failed)?;
        match dataset.is_one().map_err(failed)? {
            true => Ok(dataset),
            false => Err(Failure::Run(format!(
                "{} is not a dataset of flow records: name its folder with --data; a router writes one with `store` in [flows], \
                 others are `thalweg probe --store` and `thalweg flows import`",
                folder.display()
            ))),
        }
    };
    let mut datasets = args.data.iter().map(open);
    let mut all =
        datasets.next().unwrap_or_else(|| Err(Failure::Usage("--data names no folder".to_owned())))?;
    datasets.try_for_each(|dataset| dataset.map(|dataset| all.add(dataset)))?;
    Ok(all)
}

/// An archive in place of a folder.
fn archive(data: &Path) -> Option<&str> {
    data.to_str().filter(|text| S3Address::is_meant_by(text))
}

/// For what changes a dataset: that needs folders.
pub(super) fn only_folders(args: &FlowsArgs, what: &str) -> Result<(), Failure> {
    match args.data.iter().find_map(|data| archive(data)) {
        None => Ok(()),
        Some(url) => Err(Failure::Usage(format!(
            "{url} is only asked: `{what}` needs the folder of a dataset, and sends to an archive with --archive"
        ))),
    }
}

fn archived(url: &str) -> Result<Dataset, Failure> {
    let store = open_archive(url).map_err(|error| Failure::Usage(format!("--data: {error}")))?;
    let name = store.name().to_owned();
    let dataset = Dataset::of_archive(store);
    match dataset.is_one().map_err(failed)? {
        true => Ok(dataset),
        false => Err(Failure::Run(format!(
            "{name} has no flow records: a router sends them there with `archive` in [flows], others with --archive of \
             `thalweg probe`, `thalweg flows import` and `thalweg flows compact`"
        ))),
    }
}

/// Reports missing live records to standard error.
pub(super) fn report_writing(writing: &[Writing]) {
    writing.iter().for_each(report_writer);
}

fn report_writer(writing: &Writing) {
    let mut err = std::io::stderr();
    match writing {
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

/// Prints records as they arrive, until all writers have ended.
pub(super) fn follow(args: &FlowsArgs, query: &Query, mut lines: Lines) -> Result<(), Failure> {
    if args.url.is_some() {
        return Err(Failure::Usage(
            "--follow reads a dataset's folder: run it where the records are written".to_owned(),
        ));
    }
    let follows = open(args)?.follow().map_err(failed)?;
    if follows.is_empty() {
        let what = format!("nobody writes {} now: there is nothing to follow", args.folders());
        return Err(Failure::Run(what));
    }
    print(&lines.begin())?;
    let (sender, events) = sync_channel(1);
    for mut follow in follows {
        let sender = sender.clone();
        // A thread without a receiver ends with the next event, or with the process.
        std::thread::spawn(move || {
            loop {
                let event = follow.wait();
                let is_last = matches!(event, Ok(Followed::End) | Err(_));
                if sender.send(event).is_err() || is_last {
                    return;
                }
            }
        });
    }
    drop(sender);
    for next in events {
        match next.map_err(|error| Failure::Run(format!("the writer does not answer: {error}")))? {
            Followed::Records(records) if records.is_empty() => {}
            Followed::Records(records) => {
                let count = records.len();
                let mut view = View::default();
                view.add_batch(Arc::from(records));
                let (chosen, _) = list(&view, query, count).map_err(failed)?;
                print(&lines.more(&chosen))?;
            }
            Followed::Missed(count) => {
                let missed = counted(count, "record");
                let _ = writeln!(std::io::stderr(), "note: missed because they came too fast: {missed}");
            }
            Followed::End => {}
        }
    }
    Ok(())
}
