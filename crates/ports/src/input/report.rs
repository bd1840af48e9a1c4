//! Reports what was read and what was wrong with it.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Issues kept in full; all are counted.
pub const ISSUES_KEPT: usize = 10;

/// The position of an issue in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A line and a column of a text trace, both from 1.
    Line {
        line: u64,
        /// In bytes.
        column: usize,
    },
    /// A byte of a capture.
    Byte {
        /// Offset in the uncompressed stream, from 0.
        offset: u64,
        /// The packet of this input that begins there, from 1, if one does.
        packet: Option<u64>,
    },
}

/// An issue in an input. Displays as one line: `trace.txt:17:23: expected ...` or `x.pcap: byte 1234, packet
/// 17: expected ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    pub input: Arc<str>,
    pub place: Place,
    /// Short name that counts such issues.
    pub reason: &'static str,
    /// What was expected.
    pub message: String,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Line { line, column } => write!(f, "{}:{line}:{column}: {}", self.input, self.message),
            Place::Byte { offset, packet: None } => {
                write!(f, "{}: byte {offset}: {}", self.input, self.message)
            }
            Place::Byte { offset, packet: Some(packet) } => {
                write!(f, "{}: byte {offset}, packet {packet}: {}", self.input, self.message)
            }
        }
    }
}

/// The totals of all input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputReport {
    /// Inputs begun.
    pub files: u64,
    /// Lines of text traces, including blank ones and comments.
    pub lines: u64,
    /// Records or blocks of captures, including those without a packet.
    pub records: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Bytes after decompression.
    pub bytes: u64,
    /// The count of each kind of issue.
    pub issues: BTreeMap<&'static str, u64>,
    /// The first [`ISSUES_KEPT`] issues.
    pub first_issues: Vec<Issue>,
    /// Useless inputs with the reason: they are empty, or have an error and gave no packet. A valid capture
    /// without packets does not count.
    pub useless: Vec<String>,
    /// Inputs that gave packets and whose rest could not be read, each with the place and the reason: captures that are
    /// cut short, and damaged ones.
    pub cut: Vec<String>,
}

impl InputReport {
    /// Adds a useless input once.
    pub fn note_useless(&mut self, why: String) {
        if !self.useless.contains(&why) {
            self.useless.push(why);
        }
    }

    /// Adds an input that could not be read to its end once.
    pub fn note_cut(&mut self, why: String) {
        if !self.cut.contains(&why) {
            self.cut.push(why);
        }
    }

    /// The number of all issues.
    pub fn issue_count(&self) -> u64 {
        self.issues.values().sum()
    }
}

/// Why input cannot be opened or read further.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{input}: {error}")]
    Open {
        input: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// `port=PATH` with a port that is not configured.
    #[error("{port}={input}: expected the name of a configured port, found \"{port}\"")]
    NoSuchPort { input: String, port: String },
    /// The first issue, with `strict`.
    #[error("{0}")]
    Strict(Issue),
    /// It was to be read into memory.
    #[error(
        "the whole input does not fit into memory, which has {left_mib} MiB left: read it without `--preload`, \
         or less of it"
    )]
    LargerThanMemory { left_mib: u64 },
}

/// The progress of reading, for other threads.
#[derive(Debug)]
pub struct Progress {
    bytes_read: AtomicU64,
    packets: AtomicU64,
    bytes_total: Option<u64>,
}

impl Progress {
    /// Bytes read from files, before decompression.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Bytes of all files, before decompression; `None` if one is a pipe.
    pub fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }

    /// Packets delivered.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub(super) fn add_bytes(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// An input that was begun.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    number: usize,
    name: Arc<str>,
}

/// Collects the report while files are read. Clones share it: what threads find in lines may come in any order.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    progress: Arc<Progress>,
    strict: bool,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    /// Without first issues, useless inputs and those cut short.
    report: InputReport,
    /// The first issues with their inputs, in order.
    first: Vec<(usize, Issue)>,
    inputs: Vec<FoundIn>,
}

/// What was found in an input that was begun.
#[derive(Debug, Default)]
struct FoundIn {
    has_packets: bool,
    /// The reader is done with it.
    is_over: bool,
    empty: Option<Arc<str>>,
    first_issue: Option<Issue>,
    /// What ended the reading.
    last_issue: Option<Issue>,
}

impl FoundIn {
    /// Why it is useless, if it is.
    fn why(&self) -> Option<String> {
        let issue = self.first_issue.as_ref().map(|issue| {
            format!(
                "{issue}; there is no packet in it: expected a capture (pcap, pcapng) or a text trace (docs/formats.md)"
            )
        });
        let why = self.empty.as_ref().map(|input| format!("{input}: it is empty")).or(issue);
        why.filter(|_| self.is_over && !self.has_packets)
    }

    /// Why its rest could not be read, if some of it could.
    fn cut(&self) -> Option<String> {
        let issue = self.last_issue.as_ref().filter(|_| self.has_packets)?;
        Some(format!("{issue}; what is before that was used"))
    }
}

impl Reporter {
    pub(super) fn new(strict: bool, bytes_total: Option<u64>) -> Self {
        let progress = Progress { bytes_read: AtomicU64::new(0), packets: AtomicU64::new(0), bytes_total };
        Self { progress: Arc::new(progress), strict, found: Arc::default() }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The report so far.
    pub(super) fn report(&self) -> InputReport {
        let found = self.found.lock();
        let mut report = found.report.clone();
        report.first_issues = found.first.iter().map(|(_, issue)| issue.clone()).collect();
        found.inputs.iter().filter_map(FoundIn::why).for_each(|why| report.note_useless(why));
        found.inputs.iter().filter_map(FoundIn::cut).for_each(|why| report.note_cut(why));
        report
    }

    pub(super) fn start_file(&self, name: Arc<str>) -> Begun {
        let mut found = self.found.lock();
        found.report.files += 1;
        found.inputs.push(FoundIn::default());
        Begun { number: found.inputs.len() - 1, name }
    }

    pub(super) fn found_empty(&self, input: &Begun) {
        if let Some(found) = self.found.lock().inputs.get_mut(input.number) {
            found.empty = Some(Arc::clone(&input.name));
        }
    }

    /// Ends the last input.
    pub(super) fn end_file(&self) {
        if let Some(found) = self.found.lock().inputs.last_mut() {
            found.is_over = true;
        }
    }

    /// Counts what was taken from the last input.
    pub(super) fn add(&self, lines: u64, records: u64, bytes: u64) {
        let report = &mut self.found.lock().report;
        report.lines += lines;
        report.records += records;
        report.bytes += bytes;
    }

    pub(super) fn add_packets(&self, input: &Begun, packets: usize) {
        self.progress.packets.fetch_add(packets as u64, Ordering::Relaxed);
        let mut found = self.found.lock();
        found.report.packets += packets as u64;
        if let Some(found) = found.inputs.get_mut(input.number) {
            found.has_packets |= packets > 0;
        }
    }

    /// Whether reading stops at the first issue.
    pub(super) fn is_strict(&self) -> bool {
        self.strict
    }

    /// The issue that ends reading, if there is one.
    pub(super) fn fatal(&self) -> Option<Issue> {
        if !self.strict {
            return None;
        }
        self.found.lock().first.first().map(|(_, issue)| issue.clone())
    }

    #[cold]
    pub(super) fn bad_line(
        &self,
        input: &Begun,
        (line, column): (u64, usize),
        reason: &'static str,
        what: &dyn fmt::Display,
    ) {
        self.issue(input, Place::Line { line, column }, reason, what);
    }

    /// Damage to a capture, behind which nothing is read.
    #[cold]
    pub(super) fn damage(
        &self,
        input: &Begun,
        offset: u64,
        packet: Option<u64>,
        reason: &'static str,
        what: &dyn fmt::Display,
    ) {
        let place = Place::Byte { offset, packet };
        self.issue(input, place, reason, what);
        if let Some(own) = self.found.lock().inputs.get_mut(input.number) {
            let input = Arc::clone(&input.name);
            own.last_issue = Some(Issue { input, place, reason, message: what.to_string() });
        }
    }

    fn issue(&self, input: &Begun, place: Place, reason: &'static str, what: &dyn fmt::Display) {
        let found = &mut *self.found.lock();
        *found.report.issues.entry(reason).or_default() += 1;
        let Some(own) = found.inputs.get_mut(input.number) else { return };
        let at = found.first.partition_point(|(its, issue)| (*its, issue.place) <= (input.number, place));
        let is_first = own.first_issue.as_ref().is_none_or(|first| place < first.place);
        if at >= ISSUES_KEPT && !is_first {
            return;
        }
        let issue = Issue { input: Arc::clone(&input.name), place, reason, message: what.to_string() };
        if is_first {
            own.first_issue = Some(issue.clone());
        }
        found.first.insert(at, (input.number, issue));
        found.first.truncate(ISSUES_KEPT);
    }
}
