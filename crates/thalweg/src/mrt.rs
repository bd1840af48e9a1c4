//! `thalweg mrt`: prints MRT files as lines or JSON, or counts their content.
//!
//! Output continues after damaged input: errors go to standard error, at most [`ERRORS_SHOWN`] lines of them,
//! and the exit code reports them. The largest record bounds the memory, except for `--count`, which stores
//! every prefix and peer it has seen.

use crate::cli::{Format, MrtArgs};
use crate::{Failure, print};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use thalweg_base::IpPrefix;
use thalweg_ports::{MrtError, MrtItem, MrtProblem, MrtReader};
use thalweg_wire::mrt::{Action, Content, Endpoint, Fault, Lines, RecordType, Style, visit_changes};

/// The most errors shown individually; the rest is counted.
const ERRORS_SHOWN: u64 = 100;
/// The approximate size of writes.
const OUTPUT_BYTES: usize = 256 * 1024;

pub(crate) fn run(args: &MrtArgs, format: Format) -> Result<(), Failure> {
    let mut errors = Errors::default();
    let mut counted = Counted::default();
    let mut out = Vec::with_capacity(2 * OUTPUT_BYTES);
    let style = match format {
        Format::Json => Style::Json,
        Format::Human if args.human_time => Style::Human,
        Format::Human => Style::Unix,
    };
    for path in &args.files {
        read(path, &mut errors, |item| {
            counted.record(item);
            if args.count {
                return Ok(counted.changes(&item.content));
            }
            let mut lines = Lines::new(&item.record, &item.content, style);
            let mut written = Ok(());
            // Within the record too: one UPDATE can become gigabytes of lines.
            let result = visit_changes(&item.content, |change| {
                if written.is_ok() {
                    lines.push(&mut out, change);
                    if out.len() >= OUTPUT_BYTES {
                        written = flush(&mut out);
                    }
                }
            });
            written.map(|()| result)
        })?;
    }
    flush(&mut out)?;
    if args.count {
        print(&if format == Format::Json { counted.to_json(&errors) } else { counted.to_text(&errors) })?;
    }
    if args.verbose {
        counted.report_skipped();
    }
    match errors.count {
        0 => Ok(()),
        count => Err(Failure::Damaged { errors: count, not_shown: count.saturating_sub(ERRORS_SHOWN) }),
    }
}

fn flush(out: &mut Vec<u8>) -> Result<(), Failure> {
    let result = std::io::stdout().lock().write_all(out).map_err(Failure::Output);
    out.clear();
    result
}

/// Calls `take` with every record of a file; it returns the record's error, if any.
pub(crate) fn read(
    path: &Path,
    errors: &mut Errors,
    mut take: impl FnMut(&MrtItem<'_>) -> Result<Result<(), Fault>, Failure>,
) -> Result<(), Failure> {
    let mut reader = match MrtReader::open(path) {
        Ok(reader) => reader,
        Err(error) => {
            errors.report(&error);
            return Ok(());
        }
    };
    let mut is_empty = true;
    while let Some(result) = reader.next() {
        is_empty = false;
        match result {
            Ok(item) => {
                let (record, offset, kind) = (item.number, item.offset, item.record.kind);
                if let Err(fault) = take(&item)? {
                    let problem = MrtProblem::Record(kind, fault);
                    errors.report(&MrtError { file: reader.name().to_owned(), record, offset, problem });
                }
            }
            Err(error) => errors.report(&error),
        }
    }
    if is_empty {
        errors.count += 1;
        let _ = writeln!(std::io::stderr(), "error: {}: it is empty: expected records of MRT", reader.name());
    }
    Ok(())
}

/// Errors of the input; each is printed to standard error when it is found.
#[derive(Default)]
pub(crate) struct Errors {
    pub(crate) count: u64,
    /// Torn records among them, and bytes skipped after these.
    torn: u64,
    skipped_bytes: u64,
}

impl Errors {
    fn report(&mut self, error: &MrtError) {
        self.count += 1;
        if let MrtProblem::Torn { skipped } = error.problem {
            self.torn += 1;
            self.skipped_bytes += skipped;
        }
        if self.count <= ERRORS_SHOWN {
            let _ = writeln!(std::io::stderr(), "error: {error}");
        }
    }
}

/// The results of `--count`.
#[derive(Default)]
struct Counted {
    records: BTreeMap<RecordType, u64>,
    skipped: BTreeMap<RecordType, u64>,
    routes: u64,
    announcements: u64,
    withdrawals: u64,
    states: u64,
    prefixes: HashSet<IpPrefix>,
    latest: Option<IpPrefix>,
    peers: BTreeSet<Endpoint>,
}

impl Counted {
    fn record(&mut self, item: &MrtItem<'_>) {
        *self.records.entry(item.record.kind).or_default() += 1;
        if matches!(item.content, Content::Skipped) {
            *self.skipped.entry(item.record.kind).or_default() += 1;
        }
    }

    fn changes(&mut self, content: &Content<'_>) -> Result<(), Fault> {
        visit_changes(content, |change| {
            let prefix = match change.action {
                Action::Route { entry, .. } => {
                    self.routes += 1;
                    Some(entry.prefix)
                }
                Action::Announce { prefix, .. } => {
                    self.announcements += 1;
                    Some(prefix)
                }
                Action::Withdraw { prefix, .. } => {
                    self.withdrawals += 1;
                    Some(prefix)
                }
                Action::State { .. } => {
                    self.states += 1;
                    None
                }
            };
            self.peers.insert(change.peer);
            // Routes of a table are grouped by prefix.
            if let Some(prefix) = prefix.filter(|_| prefix != self.latest) {
                self.prefixes.insert(prefix);
                self.latest = Some(prefix);
            }
        })
    }

    fn rows(&self, errors: &Errors) -> [(&'static str, u64); 10] {
        let v4 = self.prefixes.iter().filter(|prefix| matches!(prefix, IpPrefix::V4(_))).count();
        [
            ("routes", self.routes),
            ("announcements", self.announcements),
            ("withdrawals", self.withdrawals),
            ("state_changes", self.states),
            ("ipv4_prefixes", v4 as u64),
            ("ipv6_prefixes", (self.prefixes.len() - v4) as u64),
            ("peers", self.peers.len() as u64),
            ("errors", errors.count),
            ("torn_records", errors.torn),
            ("skipped_bytes", errors.skipped_bytes),
        ]
    }

    fn to_text(&self, errors: &Errors) -> String {
        let mut text = String::new();
        for (kind, count) in &self.records {
            let _ = writeln!(text, "{count:>12}  records {kind}");
        }
        for (name, count) in self.rows(errors) {
            let _ = writeln!(text, "{count:>12}  {}", name.replace('_', " "));
        }
        text
    }

    fn to_json(&self, errors: &Errors) -> String {
        let records: serde_json::Map<_, _> =
            self.records.iter().map(|(kind, count)| (kind.to_string(), json!(count))).collect();
        let mut summary = serde_json::Map::new();
        summary.insert("records".to_owned(), records.into());
        for (name, count) in self.rows(errors) {
            summary.insert(name.to_owned(), json!(count));
        }
        format!("{:#}\n", serde_json::Value::Object(summary))
    }

    fn report_skipped(&self) {
        for (kind, count) in &self.skipped {
            let _ = writeln!(std::io::stderr(), "skipped: {count} records {kind}");
        }
    }
}
