//! Imports flow records from captures, from files of messages (RFC 5655), or from exporters that send them
//! here.
//!
//! ```text
//! capture ──> datagrams, TCP segments ──┐
//! file of messages ─────────────────────┼──> messages ──> Importer ──> records ──> dataset, lines of JSON, CSV
//! sockets (thalweg_ports::exporters) ───┘                    └──> totals by exporter
//! ```
//!
//! One thread reads messages; sockets and the dataset have their own. Nothing from files is lost: reading
//! waits for the disk. So it does for sockets while the disk is only slow: messages stay in the sockets' buffers, and the
//! kernel counts those that find one full. A disk that fails is not waited for: then records that find the dataset's queue
//! full are lost and counted.
//!
//! **Conservation:** `records decoded = flow records + events + records without addresses`, and every outlet
//! took or counted each flow record and each event.

mod captures;
mod exporters;
mod names;
mod streams;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use thalweg_base::Name;
use thalweg_flow::FlowRecord;
use thalweg_ports::exporters::{Exporters as Sockets, Received, StreamEnd};
use thalweg_ports::live::LiveClock;
use thalweg_ports::snmp::InterfaceNames;
use thalweg_ports::{FileSource, ISSUES_KEPT, InputError, InputOptions, InputSpec, PortNames, decompressed};
use thalweg_store::{Notify, WriterOptions};
use thalweg_wire::netflow::decode::first_message_bytes;

use crate::deliver::{Completion, Kept, KeptOptions, Lines, Outlet, PATIENCE, Waiting, label};
use crate::enrich::{EnrichFiles, Enrichment};
use crate::notices::passing_on;
use crate::summary::{InputIssues, OutletSummary};
use crate::{KeepOptions, ProbeError, ProbeProgress, usage};
use captures::{Captures, Found, message_bytes};
pub use exporters::ExporterSummary;
use exporters::Exporters;
use names::Peer;
pub use names::{ExporterNames, NamesError};

/// How long one wait for sockets lasts.
const TURN: Duration = Duration::from_millis(100);
/// Records gathered before they are passed on: few enough to stay in the second-level cache until they are copied.
const BATCH_RECORDS: usize = 1024;
/// No message is this long.
const MESSAGE_BYTES_MAX: usize = 1 << 16;
/// The size of reads from a file of messages.
const PIECE_BYTES: u64 = 1 << 18;

/// A source of exported records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportSource {
    /// A capture, or a file of messages; `-` is standard input.
    File(PathBuf),
    /// Datagrams to this address.
    Udp(SocketAddr),
    /// Connections to this address.
    Tcp(SocketAddr),
}

/// A text is not a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceTextError {
    /// No address and port.
    #[error("{0:?}: expected an address of this machine and a port, such as 0.0.0.0:2055 or [::]:4739")]
    Address(String),
    /// Another scheme before `://`.
    #[error("\"{0}://\": expected udp://ADDRESS:PORT, tcp://ADDRESS:PORT, or a file")]
    Scheme(String),
}

impl FromStr for ImportSource {
    type Err = SourceTextError;

    fn from_str(text: &str) -> Result<Self, SourceTextError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(Self::File(text.into())) };
        let address = || rest.parse().map_err(|_| SourceTextError::Address(rest.to_owned()));
        match scheme {
            "udp" => address().map(Self::Udp),
            "tcp" => address().map(Self::Tcp),
            _ => Err(SourceTextError::Scheme(scheme.to_owned())),
        }
    }
}

/// How exporters are asked by SNMP, version 2c.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpOptions {
    pub community: String,
    pub port: u16,
}

/// What to import, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Files are read in order, then sockets.
    pub sources: Vec<ImportSource>,
    /// Names of exporters.
    pub names: ExporterNames,
    /// Exporters that send to sockets are asked for names of their interfaces.
    pub snmp: Option<SnmpOptions>,
    /// From captures, read only packets to this port.
    pub port: Option<u16>,
    /// How long to listen; `None` until stopped.
    pub seconds: Option<u32>,
    /// The folder of a dataset to add records to.
    pub store: Option<PathBuf>,
    /// A file for JSON lines; `-` is standard output.
    pub json: Option<PathBuf>,
    /// A file for comma-separated values; `-` is standard output.
    pub csv: Option<PathBuf>,
    pub keep: KeepOptions,
    /// What records learn about their addresses.
    pub enrich: EnrichFiles,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportSummary {
    /// Received messages, including refused ones.
    pub messages: u64,
    /// Messages that could not be read at all.
    pub refused: u64,
    /// Flow records.
    pub records: u64,
    /// Packets in them, not multiplied by sampling.
    pub packets: u64,
    /// Bytes in them, not multiplied by sampling.
    pub bytes: u64,
    /// Flow records of sampled packets.
    pub records_sampled: u64,
    /// Flow records whose sampler was not described; their counters are not multiplied.
    pub samplers_unknown: u64,
    /// Records of events, which are stored too but are no flows.
    pub events: u64,
    /// Records without an IP address.
    pub without_addresses: u64,
    /// Samples of sFlow that are counters of interfaces, or of kinds that are not read.
    pub counter_samples: u64,
    pub other_samples: u64,
    /// Data sets whose template never arrived.
    pub sets_without_template: u64,
    /// Gaps in sequence numbers.
    pub sequence_gaps: u64,
    /// Datagrams that found the buffer of a socket full, or that the kernel dropped there for another reason.
    pub datagrams_dropped: u64,
    /// Names of exporters and interfaces left out because there were too many.
    pub names_refused: u64,
    /// Packets of captures without messages, by kind.
    pub passed_over: BTreeMap<String, u64>,
    /// Whether every record is accounted for.
    pub conserved: bool,
    /// Wall-clock time.
    pub elapsed_s: f64,
    /// `records / elapsed_s`.
    pub records_per_second: f64,
    /// The peak resident memory of the process.
    pub rss_peak_bytes: u64,
    /// By exporter, in the order of first appearance.
    pub exporters: Vec<ExporterSummary>,
    pub outlets: Vec<OutletSummary>,
    pub input_issues: InputIssues,
    /// Files without records, each with what was found instead.
    pub files_without_records: Vec<String>,
}

/// Reads all sources and passes on their records. Ends early but cleanly when `stop` is set.
///
/// # Errors
/// A source cannot be opened, or an outlet cannot be written. Unreadable parts of a source are in the
/// summary.
pub fn import(
    options: &ImportOptions,
    stop: &Arc<AtomicBool>,
    progress: &dyn ProbeProgress,
) -> Result<ImportSummary, ProbeError> {
    passing_on(progress, |notify| import_with_notices(options, stop, progress, notify))
}

fn import_with_notices(
    options: &ImportOptions,
    stop: &Arc<AtomicBool>,
    progress: &dyn ProbeProgress,
    notify: Notify,
) -> Result<ImportSummary, ProbeError> {
    let started = Instant::now();
    let listens = |source: &ImportSource| !matches!(source, ImportSource::File(_));
    let waits = !options.sources.iter().any(listens);
    let complete: Option<Completion> = match options.enrich.is_empty() {
        true => None,
        false => Some(Box::new(Enrichment::start(&options.enrich, &notify)?.completion())),
    };
    let snmp = options.snmp.clone().filter(|_| !waits);
    let snmp = snmp.map(|snmp| InterfaceNames::start(snmp.community, snmp.port)).transpose();
    let snmp =
        snmp.map_err(|error| ProbeError::Input(InputError::Open { input: "snmp".to_owned(), error }))?;
    let mut work = Work {
        stop,
        progress,
        exporters: Exporters::new(options.names.clone(), snmp),
        complete,
        captures: Captures::new(options.port),
        outlets: outlets(options, waits.then_some(stop), notify)?,
        records: Vec::new(),
        passed_over: BTreeMap::new(),
        issues: InputIssues::default(),
        messages: 0,
        datagrams_dropped: 0,
        without_records: Vec::new(),
        clock: LiveClock::start(),
    };
    let mut sockets = open_sockets(options, progress)?;
    for source in &options.sources {
        if let ImportSource::File(path) = source {
            work.read_source(path)?;
        }
    }
    if !waits {
        let until = options.seconds.map(|seconds| started + Duration::from_secs(seconds.into()));
        work.listen(&mut sockets, until)?;
    }
    drop(sockets);
    work.finish(started)
}

fn outlets(
    options: &ImportOptions,
    waits_until: Option<&Arc<AtomicBool>>,
    notify: Notify,
) -> Result<Vec<Box<dyn Outlet>>, ProbeError> {
    let mut outlets = Lines::outlets(&options.json, &options.csv, false)?;
    if let Some(folder) = &options.store {
        let slow = Waiting::WhileWritten(PATIENCE);
        let waiting = waits_until.map_or(slow, |stop| Waiting::Until(Arc::clone(stop)));
        let kept = KeptOptions {
            writing: WriterOptions { notify, ..options.keep.writer(false)? },
            waiting,
            cache: None,
        };
        outlets.push(Box::new(Kept::open(folder, kept)?));
    }
    Ok(outlets)
}

fn open_sockets(options: &ImportOptions, progress: &dyn ProbeProgress) -> Result<Sockets, ProbeError> {
    let mut sockets = Sockets::default();
    for source in &options.sources {
        let (address, scheme, bound) = match source {
            ImportSource::File(_) => continue,
            ImportSource::Udp(address) => (address, "udp", sockets.listen_udp(*address)),
            ImportSource::Tcp(address) => (address, "tcp", sockets.listen_tcp(*address)),
        };
        let failed =
            |error| ProbeError::Input(InputError::Open { input: format!("{scheme}://{address}"), error });
        progress.notice(&format!("listening on {scheme}://{}", bound.map_err(failed)?));
    }
    Ok(sockets)
}

struct Work<'a> {
    stop: &'a AtomicBool,
    progress: &'a dyn ProbeProgress,
    exporters: Exporters,
    complete: Option<Completion>,
    captures: Captures,
    outlets: Vec<Box<dyn Outlet>>,
    /// Not passed on yet.
    records: Vec<FlowRecord>,
    passed_over: BTreeMap<String, u64>,
    issues: InputIssues,
    messages: u64,
    datagrams_dropped: u64,
    without_records: Vec<String>,
    clock: LiveClock,
}

impl Work<'_> {
    /// Reads a file. A file without records is noted, with what was found in it.
    fn read_source(&mut self, path: &Path) -> Result<(), ProbeError> {
        let (found, messages, issues) = (self.exporters.found(), self.messages, self.issues.total);
        let passed_over: u64 = self.passed_over.values().sum();
        self.read_file(path)?;
        if self.exporters.found() > found || self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let packets = self.passed_over.values().sum::<u64>() - passed_over;
        let why = if self.messages > messages {
            "messages came, but no flow record could be read: the exporter's templates may be missing (capture for longer: \
             exporters repeat them every few minutes)"
                .to_owned()
        } else if packets > 0 {
            format!(
                "none of its {packets} packets carries NetFlow, IPFIX or sFlow (`thalweg probe` meters the packets themselves)"
            )
        } else if self.issues.total > issues {
            "it is neither a capture (pcap, pcapng) nor a file of NetFlow or IPFIX messages".to_owned()
        } else {
            "it is empty".to_owned()
        };
        self.without_records.push(format!("{}: {why}", path.display()));
        Ok(())
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ProbeError> {
        let name = path.display().to_string();
        if path.as_os_str() != "-" {
            let failed = |error| ProbeError::Input(InputError::Open { input: name.clone(), error });
            let (_, mut bytes) = File::open(path).and_then(decompressed).map_err(failed)?;
            let mut head = [0; 2];
            let mut filled = 0;
            while filled < head.len() {
                match bytes.read(&mut head[filled..]).map_err(failed)? {
                    0 => break,
                    more => filled += more,
                }
            }
            if matches!(head, [0, 5 | 9 | 10]) && filled == head.len() {
                let whole = head.chain(bytes);
                return self.read_messages(&name, whole);
            }
        }
        self.read_capture(path)
    }

    fn read_capture(&mut self, path: &Path) -> Result<(), ProbeError> {
        let spec = if path.as_os_str() == "-" { InputSpec::parse("-") } else { InputSpec::path(path) };
        let name = spec.name().to_owned();
        let source = FileSource::open(
            vec![spec],
            PortNames::new(std::iter::empty::<String>()),
            &InputOptions::default(),
        );
        let mut source = source.map_err(ProbeError::Input)?;
        let mut captures = std::mem::replace(&mut self.captures, Captures::new(None));
        while !self.stop.load(Ordering::Relaxed)
            && let Some(mut chunk) = source.next_chunk().map_err(ProbeError::Input)?
        {
            let mut handed_on = Ok(());
            captures.read(&mut chunk, |number, arrival_ns, found| match found {
                Found::Message { from, is_stream, bytes } => {
                    let place = || format!("{name}: packet {number}, from {from}");
                    match is_stream {
                        true => self.read_message(Peer::Socket(from), true, bytes, arrival_ns, place),
                        false => self.read_datagram(Peer::Socket(from), bytes, arrival_ns, place),
                    }
                    if self.records.len() >= BATCH_RECORDS && handed_on.is_ok() {
                        handed_on = self.hand_on();
                    }
                }
                Found::Refused { from, why } => {
                    self.exporters.refuse(&from.to_string());
                    self.messages += 1;
                    self.issue("message", format!("{name}: packet {number}, from {from}: {why}"));
                }
                Found::PassedOver(what) => match self.passed_over.get_mut(what) {
                    Some(count) => *count += 1,
                    None => drop(self.passed_over.insert(what.to_owned(), 1)),
                },
            });
            handed_on?;
            self.hand_on()?;
            self.progress.advanced(self.messages, None);
        }
        self.captures = captures;
        let report = source.report();
        for (reason, count) in &report.issues {
            *self.issues.by_kind.entry((*reason).to_owned()).or_default() += count;
            self.issues.total += count;
        }
        let room = ISSUES_KEPT.saturating_sub(self.issues.first.len());
        self.issues.first.extend(report.first_issues.iter().take(room).map(ToString::to_string));
        self.issues.cut.extend(report.cut);
        Ok(())
    }

    /// Reads a file of consecutive messages. An invalid message ends it, because the next one cannot be
    /// found.
    fn read_messages(&mut self, name: &str, mut file: impl Read) -> Result<(), ProbeError> {
        let failed = |error| ProbeError::Input(InputError::Open { input: name.to_owned(), error });
        let mut bytes: Vec<u8> = Vec::new();
        // The start of the next message, in `bytes` and in the file.
        let (mut at, mut position) = (0, 0u64);
        let (mut number, mut is_whole) = (0u64, false);
        while !self.stop.load(Ordering::Relaxed) {
            if !is_whole && bytes.len() - at < MESSAGE_BYTES_MAX {
                bytes.drain(..at);
                at = 0;
                let read = (&mut file).take(PIECE_BYTES).read_to_end(&mut bytes);
                is_whole = read.map_err(failed)? < PIECE_BYTES as usize;
            }
            let rest = &bytes[at..];
            if rest.is_empty() {
                break;
            }
            let length = match message_bytes(rest) {
                Ok(length) => {
                    if length.is_some_and(|length| length > rest.len()) {
                        let what = format!("{name}: byte {position}: the file ends within a message");
                        self.issues.cut.push(what);
                    }
                    length.unwrap_or(rest.len()).min(rest.len())
                }
                Err(why) => {
                    let what = format!("{name}: byte {position}, behind message {number}: {why}");
                    self.issues.cut.push(what.clone());
                    self.issue("message", what);
                    break;
                }
            };
            number += 1;
            let now_ns = self.clock.now_ns();
            let place = || format!("{name}: message {number}, byte {position}");
            // As from a stream: nothing is lost in a file.
            self.read_message(Peer::File(name), true, &rest[..length], now_ns, place);
            (at, position) = (at + length, position + length as u64);
            self.hand_on()?;
            self.progress.advanced(self.messages, None);
        }
        Ok(())
    }

    /// Receives from exporters until there is a reason to end.
    fn listen(&mut self, sockets: &mut Sockets, until: Option<Instant>) -> Result<(), ProbeError> {
        let mut ticked = Instant::now();
        while !self.stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
            if let Some(received) = sockets.next(TURN) {
                self.receive(received)?;
            }
            let is_due = ticked.elapsed() >= TURN;
            if is_due || self.records.len() >= BATCH_RECORDS {
                self.hand_on()?;
            }
            if is_due {
                ticked = Instant::now();
                self.outlets.iter_mut().try_for_each(|outlet| outlet.tick())?;
                self.progress.advanced(self.messages, None);
            }
        }
        for received in sockets.rest() {
            self.receive(received)?;
            if self.records.len() >= BATCH_RECORDS {
                self.hand_on()?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, received: Received) -> Result<(), ProbeError> {
        match received {
            Received::Message { from, is_stream, bytes } => {
                let now_ns = self.clock.now_ns();
                let (peer, place) = (Peer::Socket(from), || format!("from {from}"));
                match is_stream {
                    true => self.read_message(peer, true, &bytes, now_ns, place),
                    false => self.read_datagram(peer, &bytes, now_ns, place),
                }
            }
            Received::Closed { from, why } => self.closed(from, why),
            Received::Dropped(datagrams) => self.datagrams_dropped += datagrams,
            Received::Refused(from) => {
                self.issue("connection", format!("from {from}: refused, there are enough connections"));
            }
            Received::Failed(error) => {
                let input = "what exporters send".to_owned();
                return Err(ProbeError::Input(InputError::Open { input, error }));
            }
        }
        Ok(())
    }

    fn closed(&mut self, from: SocketAddr, why: Option<StreamEnd>) {
        self.exporters.forget(&from.to_string());
        let why = match why {
            None => return,
            Some(StreamEnd::NoMessage(fault)) => format!("no message of IPFIX: {fault}"),
            Some(StreamEnd::Cut(bytes)) => format!("the connection ended {bytes} bytes into a message"),
            Some(StreamEnd::Error(error)) => error.to_string(),
        };
        self.issue("connection", format!("from {from}: {why}"));
    }

    /// Reads a datagram: one message, or several that the exporter's kernel had yet to segment.
    fn read_datagram(&mut self, peer: Peer<'_>, bytes: &[u8], received_ns: u64, place: impl Fn() -> String) {
        let mut rest = bytes;
        loop {
            let (message, behind) = rest.split_at(first_message_bytes(rest));
            self.read_message(peer, false, message, received_ns, &place);
            if behind.is_empty() {
                return;
            }
            rest = behind;
        }
    }

    fn read_message(
        &mut self,
        peer: Peer<'_>,
        is_stream: bool,
        bytes: &[u8],
        received_ns: u64,
        place: impl Fn() -> String,
    ) {
        self.messages += 1;
        let first = self.records.len();
        let read = self.exporters.read(peer, is_stream, bytes, received_ns, &mut self.records);
        self.records[first..].iter_mut().for_each(label);
        if let Some(fault) = read.unwrap_or_else(Some) {
            self.issue("message", format!("{}: {fault}", place()));
        }
    }

    fn issue(&mut self, kind: &str, text: String) {
        self.issues.total += 1;
        *self.issues.by_kind.entry(kind.to_owned()).or_default() += 1;
        if self.issues.first.len() < ISSUES_KEPT {
            self.issues.first.push(text);
        }
    }

    fn hand_on(&mut self) -> Result<(), ProbeError> {
        if !self.records.is_empty() {
            if let Some(complete) = &mut self.complete {
                self.records.iter_mut().for_each(complete);
            }
            self.outlets.iter_mut().try_for_each(|outlet| outlet.take(&self.records))?;
            self.records.clear();
        }
        Ok(())
    }

    fn finish(mut self, started: Instant) -> Result<ImportSummary, ProbeError> {
        self.hand_on()?;
        let hurried = self.stop.load(Ordering::Relaxed);
        let mut outlets = Vec::new();
        for outlet in self.outlets {
            outlets.extend(outlet.finish(hurried)?.summaries);
        }
        let balance = self.exporters.balance();
        let exporters = self.exporters.into_summaries();
        let sum = |of: fn(&ExporterSummary) -> u64| exporters.iter().map(of).sum::<u64>();
        let records = sum(|exporter| exporter.records);
        let all = records + sum(|exporter| exporter.events);
        let told = |outlet: &OutletSummary| outlet.records + outlet.lost.values().sum::<u64>() == all;
        let elapsed_s = started.elapsed().as_secs_f64();
        Ok(ImportSummary {
            messages: self.messages,
            refused: sum(|exporter| exporter.refused),
            records,
            packets: sum(|exporter| exporter.packets),
            bytes: sum(|exporter| exporter.bytes),
            records_sampled: sum(|exporter| exporter.records_sampled),
            samplers_unknown: sum(|exporter| exporter.samplers_unknown),
            events: sum(|exporter| exporter.events),
            without_addresses: sum(|exporter| exporter.without_addresses),
            counter_samples: sum(|exporter| exporter.counter_samples),
            other_samples: sum(|exporter| exporter.other_samples),
            sets_without_template: sum(|exporter| exporter.sets_without_template),
            sequence_gaps: sum(|exporter| exporter.sequence_gaps),
            datagrams_dropped: self.datagrams_dropped,
            names_refused: Name::refused(),
            passed_over: self.passed_over,
            conserved: balance && outlets.iter().all(told),
            elapsed_s,
            records_per_second: records as f64 / elapsed_s.max(1e-9),
            rss_peak_bytes: usage::rss_peak_bytes(),
            exporters,
            outlets,
            input_issues: self.issues,
            files_without_records: self.without_records,
        })
    }
}
