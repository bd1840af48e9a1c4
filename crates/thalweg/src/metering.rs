//! What `thalweg probe` and `thalweg flows import` have in common: where their summaries go, and the tables of those that got
//! records.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use thalweg_probe::{OutletSummary, ProbeError};
use thalweg_text::units::count;

use crate::tables::table;
use crate::{Failure, print};

/// Why the work failed. A reader of the records that has gone may have seen enough, if nobody else was to get them.
pub(crate) fn failure(error: ProbeError, has_one_output: bool) -> Failure {
    match error {
        ProbeError::Output { source, .. } if has_one_output && source.kind() == ErrorKind::BrokenPipe => {
            Failure::Output(source)
        }
        other => Failure::Probe(other),
    }
}

/// Prints a summary; on standard error if records go to standard output, whose reader wants nothing else.
pub(crate) fn print_summary<'a>(
    text: &str,
    mut lines_to: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    if lines_to.any(|path| path.as_os_str() == "-") {
        // Without standard error there is nobody to tell.
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    print(text)
}

/// The table of those that were given records.
pub(crate) fn outlets(text: &mut String, outlets: &[OutletSummary]) {
    if outlets.is_empty() {
        return;
    }
    let rows = outlets.iter().map(|outlet| {
        let lost: Vec<_> = outlet.lost.iter().map(|(why, n)| format!("{} {why}", count(*n))).collect();
        let lost = if lost.is_empty() { "0".to_owned() } else { lost.join(", ") };
        vec![outlet.to.clone(), count(outlet.records), count(outlet.packets), count(outlet.bytes), lost]
    });
    *text += &table(&["delivered to", "records", "packets", "bytes", "lost"], &[1, 2, 3], rows);
    text.push('\n');
}
