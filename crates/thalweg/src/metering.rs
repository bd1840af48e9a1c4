//! Shared output of `thalweg probe` and `thalweg flows import`: where summaries go, and the table of
//! receivers.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use thalweg_probe::{OutletSummary, ProbeError};
use thalweg_text::units::count;

use crate::tables::{remark, table};
use crate::{Failure, print};

/// The failure for an error. A closed pipe is none if it was the only receiver: its reader may have seen
/// enough.
pub(crate) fn failure(error: ProbeError, has_one_output: bool) -> Failure {
    match error {
        ProbeError::Output { source, .. } if has_one_output && source.kind() == ErrorKind::BrokenPipe => {
            Failure::Output(source)
        }
        other => Failure::Probe(other),
    }
}

/// Prints a summary; to standard error if records go to standard output.
pub(crate) fn print_summary<'a>(
    text: &str,
    mut lines_to: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    if lines_to.any(|path| path.as_os_str() == "-") {
        // Without standard error, nobody can be told.
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    print(text)
}

/// A line about the counters of interfaces that a collector of sFlow got; empty if it got none and misses none.
fn counter_samples(to: &str, samples: u64, uncounted: u64) -> String {
    let interfaces = match uncounted {
        0 if samples == 0 => return String::new(),
        0 => String::new(),
        1 => "; 1 interface has no counters".to_owned(),
        several => format!("; {} interfaces have no counters", count(several)),
    };
    let plural = if samples == 1 { "" } else { "s" };
    remark(&format!("{to}: {} counter sample{plural}{interfaces}", count(samples)))
}

/// The table of receivers.
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
    for outlet in outlets {
        *text += &counter_samples(&outlet.to, outlet.counter_samples, outlet.interfaces_uncounted);
    }
    text.push('\n');
}
