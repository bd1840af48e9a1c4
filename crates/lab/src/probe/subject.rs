//! Runs the probes under test: this program, and a distribution's softflowd, nfpcapd and pmacctd.
//!
//! Each is a child process that reads one whole capture. The others are configured to have room for all flows, to
//! process every packet, and to lose none internally; other configurations are not measured.
//!
//! | who | records go to | its counts are read from |
//! |---|---|---|
//! | thalweg | nowhere, collector, CSV file, dataset | its summary, collector, the file, `thalweg flows` |
//! | softflowd | NetFlow 9 to a collector | the collector |
//! | nfpcapd | its own files | nfdump |
//! | pmacctd | CSV file | the file |

use super::child::{self, ChildError, Said, Used};
use super::collector::{Collected, Collector, Transport};
use super::samples::SampleCollector;
use super::shape::Configuration;
use super::traffic::{Capture, Totals};
use super::{Destination, Input, Subject};
use crate::forwarding::subject::has_program;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The longest run allowed.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// pmacctd sleeps this long before it opens a file; elapsed times exclude it.
const PMACCTD_PAUSE_S: f64 = 2.0;
/// The fewest nodes given to nfpcapd.
const NFPCAPD_NODES_MIN: u64 = 1_000_000;
/// The flow cache's default size.
const FLOWS_MAX_DEFAULT: u64 = 1 << 20;

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The child process did not end by itself.
    #[error(transparent)]
    Child(ChildError),
    /// A system call of this process failed.
    #[error("{what}: {source}")]
    System {
        /// What was to be done.
        what: &'static str,
        source: io::Error,
    },
    /// The child process failed.
    #[error("{}: {said}", .code.map_or("was ended by a signal".to_owned(), |code| format!("exited with {code}")))]
    Failed {
        /// `None` if a signal ended it.
        code: Option<i32>,
        /// The end of its output.
        said: String,
    },
    /// The child's output cannot be read.
    #[error("cannot read the output of {who}: {said}")]
    Answer { who: &'static str, said: String },
}

/// The results of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Elapsed time: of the whole child process; for input from memory, from the first packet to the delivery of
    /// the last record.
    pub elapsed_s: f64,
    /// Processor time over the same span.
    pub cpu_s: f64,
    pub rss_peak_bytes: u64,
    /// Memory of the flow cache at the end, if reported.
    pub cache_bytes: Option<u64>,
    /// Totals as the receiver of the records counted them.
    pub counted: Totals,
    /// Records made, if reported.
    pub sent: Option<u64>,
    /// Flows that were exported early for lack of room.
    pub evicted: u64,
    /// Whether the probe's own counters add up; `None` if it has none.
    pub conserved: Option<bool>,
    /// What the collector received, if there was one.
    pub collected: Option<Collected>,
    /// Samples of packets that a collector of sFlow received, if there was one.
    pub samples: Option<u64>,
}

/// What all runs share.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The `thalweg` program.
    pub program: &'a Path,
    pub cores: usize,
    pub stop: &'a AtomicBool,
    /// A folder for a run's files; empty before and after each run.
    pub folder: &'a Path,
}

/// The program that a subject needs and this machine lacks.
pub fn missing(subject: Subject) -> Option<&'static str> {
    let needs: &[(&str, &str)] = match subject {
        Subject::Thalweg => &[],
        Subject::Softflowd => &[("softflowd", "softflowd is not here (package softflowd)")],
        Subject::Nfpcapd => &[
            ("nfpcapd", "nfpcapd is not here (package nfdump)"),
            ("nfdump", "nfdump is not here (package nfdump)"),
        ],
        Subject::Pmacctd => &[("pmacctd", "pmacctd is not here (package pmacct)")],
    };
    needs.iter().find(|(program, _)| !has_program(program)).map(|(_, why)| *why)
}

impl Ground<'_> {
    /// Runs one of the other probes on a capture.
    pub fn rival(&self, subject: Subject, capture: &Capture) -> Result<Run, RunError> {
        let result = match subject {
            Subject::Softflowd => self.softflowd(capture),
            Subject::Nfpcapd => self.nfpcapd(capture),
            Subject::Pmacctd => self.pmacctd(capture),
            Subject::Thalweg => {
                self.thalweg(&Configuration::SERIAL, capture, Input::File, Destination::Nowhere)
            }
        };
        self.clear()?;
        result
    }

    /// Runs this program's probe on a capture.
    pub fn own(
        &self,
        configuration: &Configuration,
        capture: &Capture,
        from: Input,
        to: Destination,
    ) -> Result<Run, RunError> {
        let result = self.thalweg(configuration, capture, from, to);
        self.clear()?;
        result
    }

    fn thalweg(
        &self,
        configuration: &Configuration,
        capture: &Capture,
        from: Input,
        to: Destination,
    ) -> Result<Run, RunError> {
        let mut command = Command::new(self.program);
        command.arg("probe").arg(&capture.path).args(["--format", "json"]);
        command.args(configuration.arguments(self.cores));
        command.args(["--flows-max", &room(capture).max(FLOWS_MAX_DEFAULT).to_string()]);
        if from == Input::Memory {
            command.arg("--preload");
        }
        let collector = to.transport().map(Collector::start).transpose().map_err(system("cannot listen"))?;
        let (csv, dataset) = (self.folder.join("records.csv"), self.folder.join("dataset"));
        match to {
            Destination::Nowhere => {}
            Destination::Csv => drop(command.arg("--csv").arg(&csv)),
            Destination::Files => drop(command.arg("--store").arg(&dataset)),
            Destination::IpfixUdp | Destination::IpfixTcp | Destination::NetFlow9 => {
                let scheme = to.scheme();
                let at = collector.as_ref().map(Collector::address);
                command.args(at.iter().flat_map(|at| ["--export".to_owned(), format!("{scheme}://{at}")]));
            }
        }
        let of_samples = configuration.sflow().map(|_| SampleCollector::start()).transpose();
        let of_samples = of_samples.map_err(system("cannot listen"))?;
        let at = of_samples.as_ref().map(SampleCollector::address);
        command.args(at.iter().flat_map(|at| ["--export".to_owned(), format!("sflow://{at}")]));
        let said = Said::in_folder(self.folder);
        let used = child::run(command, &said, WAIT_MAX, self.stop);
        let collected = collector.map(Collector::finish).transpose().map_err(system("collecting"))?;
        let sampled = of_samples.map(SampleCollector::finish).transpose().map_err(system("collecting"))?;
        let used = ended_well(used, &said)?;
        if let Some(lost) = sampled.filter(|sampled| sampled.missing + sampled.faults > 0) {
            let said = format!("{} datagrams are missing, {} are faulty", lost.missing, lost.faults);
            return Err(RunError::Answer { who: "the probe's sFlow", said });
        }
        let summary = Summary::read(&said.output)?;
        let counted = match (to, collected) {
            (Destination::Csv, _) => sum_columns(&csv, "packets", "bytes")?,
            (Destination::Files, _) => self.ask_dataset(&dataset)?,
            (_, Some(collected)) => totals_of(&collected),
            (_, None) => summary.totals(),
        };
        let (elapsed_s, cpu_s) = match from {
            Input::Memory => (summary.elapsed_s, summary.cpu_s),
            Input::File => (used.wall_s, used.cpu_s),
        };
        Ok(Run {
            elapsed_s,
            cpu_s,
            rss_peak_bytes: summary.rss_peak_bytes,
            cache_bytes: Some(summary.cache_bytes),
            counted,
            sent: Some(summary.sent()),
            evicted: summary.flows_evicted,
            conserved: Some(summary.conserved && summary.packets_seen == capture.totals.packets),
            collected,
            samples: sampled.map(|sampled| sampled.samples),
        })
    }

    /// A dataset's totals, from `thalweg flows`.
    fn ask_dataset(&self, dataset: &Path) -> Result<Totals, RunError> {
        #[derive(Deserialize)]
        struct Answer {
            total: Totals,
        }
        let said = Said { output: self.folder.join("answer"), errors: self.folder.join("answer-errors") };
        let mut command = Command::new(self.program);
        command.args(["flows", "top", "proto", "--format", "json", "--data"]).arg(dataset);
        ended_well(child::run(command, &said, WAIT_MAX, self.stop), &said)?;
        read_json::<Answer>(&said.output, "thalweg flows").map(|answer| answer.total)
    }

    fn softflowd(&self, capture: &Capture) -> Result<Run, RunError> {
        let collector = Collector::start(Transport::Udp).map_err(system("cannot listen"))?;
        let mut command = Command::new("softflowd");
        // Timeouts by the packets' clock (-a), in the foreground (-d). No control socket, because it can wait for
        // that.
        command.arg("-r").arg(&capture.path).args(["-a", "-d", "-v", "9", "-c", "none"]);
        command.arg("-m").arg(room(capture).to_string()).arg("-n").arg(collector.address().to_string());
        command.arg("-p").arg(self.folder.join("pid"));
        let said = Said::in_folder(self.folder);
        let used = child::run(command, &said, WAIT_MAX, self.stop);
        let collected = collector.finish().map_err(system("collecting"))?;
        let used = ended_well(used, &said)?;
        // "Flows exported: 192935 (192935 records) in 11349 packets (0 failures)"
        let words = fs::read_to_string(&said.errors).map_err(system("reading what softflowd said"))?;
        let sent = words.lines().find_map(|line| {
            let (_, records) = line.split_once("Flows exported:")?.1.split_once('(')?;
            records.split_whitespace().next()?.parse().ok()
        });
        Ok(Run { sent, collected: Some(collected), ..Run::of_rival(&used, totals_of(&collected)) })
    }

    fn nfpcapd(&self, capture: &Capture) -> Result<Run, RunError> {
        let files = self.folder.join("nfcapd");
        fs::create_dir(&files).map_err(system("cannot make a folder"))?;
        let mut command = Command::new("nfpcapd");
        command.arg("-r").arg(&capture.path).arg("-w").arg(&files);
        command.arg("-B").arg(nfpcapd_nodes(capture).to_string());
        let said = Said::in_folder(self.folder);
        let used = ended_well(child::run(command, &said, WAIT_MAX, self.stop), &said)?;
        let answer = Said { output: self.folder.join("answer"), errors: self.folder.join("answer-errors") };
        let mut command = Command::new("nfdump");
        command.arg("-R").arg(&files).arg("-I");
        ended_well(child::run(command, &answer, WAIT_MAX, self.stop), &answer)?;
        let text = fs::read_to_string(&answer.output).map_err(system("reading what nfdump said"))?;
        let number = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok())
        };
        let (Some(packets), Some(bytes), Some(flows)) = (number("Packets"), number("Bytes"), number("Flows"))
        else {
            return Err(RunError::Answer { who: "nfdump", said: answer.last_words() });
        };
        Ok(Run::of_rival(&used, Totals { packets, bytes, flows }))
    }

    fn pmacctd(&self, capture: &Capture) -> Result<Run, RunError> {
        let (records, configuration) = (self.folder.join("records.csv"), self.folder.join("pmacctd.conf"));
        let text = pmacctd_configuration(capture, &records);
        fs::write(&configuration, text).map_err(system("cannot write a configuration"))?;
        let mut command = Command::new("pmacctd");
        command.arg("-f").arg(&configuration);
        let said = Said::in_folder(self.folder);
        let mut used = ended_well(child::run(command, &said, WAIT_MAX, self.stop), &said)?;
        used.wall_s = (used.wall_s - PMACCTD_PAUSE_S).max(0.0);
        Ok(Run::of_rival(&used, sum_columns(&records, "PACKETS", "BYTES")?))
    }

    /// Removes a run's files.
    fn clear(&self) -> Result<(), RunError> {
        let emptied = fs::remove_dir_all(self.folder).and_then(|()| fs::create_dir(self.folder));
        emptied.map_err(system("cannot empty a folder"))
    }
}

impl Run {
    fn of_rival(used: &Used, counted: Totals) -> Self {
        Self {
            elapsed_s: used.wall_s,
            cpu_s: used.cpu_s,
            rss_peak_bytes: used.rss_peak_bytes,
            cache_bytes: None,
            counted,
            sent: None,
            evicted: 0,
            conserved: None,
            collected: None,
            samples: None,
        }
    }
}

/// Cache size: all flows and a quarter more, since caches are split. For a flood, the default.
fn room(capture: &Capture) -> u64 {
    if capture.is_flood() { FLOWS_MAX_DEFAULT } else { capture.totals.flows * 5 / 4 + 1024 }
}

/// nfpcapd takes a node for each packet before it is added to a flow. With few spare nodes it reports flows early,
/// again and again.
fn nfpcapd_nodes(capture: &Capture) -> u64 {
    (4 * room(capture)).max(NFPCAPD_NODES_MIN)
}

/// Pipe and buffers between its processes are large enough for every packet.
fn pmacctd_configuration(capture: &Capture, records: &Path) -> String {
    format!(
        "pcap_savefile: {}\naggregate: src_host,dst_host,src_port,dst_port,proto\nplugins: print\nprint_output: csv\n\
         print_output_file: {}\nprint_refresh_time: 600\nprint_cache_entries: {}\nplugin_pipe_size: 104857600\n\
         plugin_buffer_size: 1048576\ndaemonize: false\n",
        capture.path.display(),
        records.display(),
        room(capture)
    )
}

fn totals_of(collected: &Collected) -> Totals {
    Totals { packets: collected.packets, bytes: collected.bytes, flows: collected.records }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::System { what, source }
}

fn ended_well(used: Result<Used, ChildError>, said: &Said) -> Result<Used, RunError> {
    let used = used.map_err(RunError::Child)?;
    if used.exit_code == Some(0) {
        return Ok(used);
    }
    Err(RunError::Failed { code: used.exit_code, said: said.last_words() })
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &PathBuf, who: &'static str) -> Result<T, RunError> {
    let text = fs::read_to_string(path).map_err(system("reading an answer"))?;
    serde_json::from_str(&text)
        .map_err(|error| RunError::Answer { who, said: format!("{error}: {}", text.trim()) })
}

/// Counts a CSV file's lines, and sums two of its columns.
fn sum_columns(path: &Path, packets: &str, bytes: &str) -> Result<Totals, RunError> {
    let bad = |said: String| RunError::Answer { who: "a file of records", said };
    let mut lines = BufReader::new(File::open(path).map_err(system("reading records"))?).lines();
    let header = lines.next().transpose().map_err(system("reading records"))?.unwrap_or_default();
    let place = |name: &str| {
        let found = header.split(',').position(|column| column == name);
        found.ok_or_else(|| bad(format!("no column {name} in {header:?}")))
    };
    let (packets, bytes) = (place(packets)?, place(bytes)?);
    let mut totals = Totals::default();
    for line in lines {
        let line = line.map_err(system("reading records"))?;
        let number = |place| line.split(',').nth(place).and_then(|field| field.parse::<u64>().ok());
        let (Some(packets), Some(bytes)) = (number(packets), number(bytes)) else {
            return Err(bad(line));
        };
        totals.packets += packets;
        totals.bytes += bytes;
        totals.flows += 1;
    }
    Ok(totals)
}

/// The parts of `thalweg probe --format json` that are needed.
#[derive(Debug, Deserialize)]
struct Summary {
    packets_seen: u64,
    packets_exported: u64,
    bytes_exported: u64,
    records_exported: u64,
    flows_evicted: u64,
    conserved: bool,
    elapsed_s: f64,
    cpu_s: f64,
    rss_peak_bytes: u64,
    cache_bytes: u64,
    outlets: Vec<Outlet>,
}

#[derive(Debug, Deserialize)]
struct Outlet {
    to: String,
    records: u64,
    lost: BTreeMap<String, u64>,
}

impl Summary {
    fn read(path: &PathBuf) -> Result<Self, RunError> {
        read_json(path, "thalweg probe")
    }

    /// The probe's own counts: without an outlet there are no others.
    fn totals(&self) -> Totals {
        Totals { packets: self.packets_exported, bytes: self.bytes_exported, flows: self.records_exported }
    }

    /// Records made for the outlet, including those it lost. Samples for sFlow are no records.
    fn sent(&self) -> u64 {
        let made = |outlet: &Outlet| outlet.records + outlet.lost.values().sum::<u64>();
        let outlet = self.outlets.iter().find(|outlet| !outlet.to.starts_with("sflow://"));
        outlet.map_or(self.records_exported, made).max(self.records_exported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_summed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        fs::write(&path, "SRC_IP,PACKETS,BYTES\n10.0.0.1,2,92\n10.0.0.2,3,138\n").unwrap();
        let totals = sum_columns(&path, "PACKETS", "BYTES").unwrap();
        assert_eq!(totals, Totals { packets: 5, bytes: 230, flows: 2 });
        let no_column = sum_columns(&path, "packets", "BYTES").unwrap_err().to_string();
        assert!(no_column.contains("no column packets"), "{no_column}");
        fs::write(&path, "PACKETS,BYTES\n1,x\n").unwrap();
        assert!(sum_columns(&path, "PACKETS", "BYTES").is_err());
        assert!(sum_columns(&folder.path().join("none"), "a", "b").is_err());
    }

    #[test]
    fn records_that_the_outlet_lost_were_made() {
        let text = r#"{"packets_seen":9,"packets_exported":8,"bytes_exported":80,"records_exported":5,"flows_evicted":0,
            "conserved":true,"elapsed_s":0.1,"cpu_s":0.2,"rss_peak_bytes":3,"cache_bytes":4,"model":"serial",
            "outlets":[{"to":"sflow://y","records":99,"lost":{}},{"to":"ipfix://x","records":4,"packets":8,"bytes":80,"lost":{"refused":2}}]}"#;
        let summary: Summary = serde_json::from_str(text).unwrap();
        assert_eq!(summary.sent(), 6);
        assert_eq!(summary.totals(), Totals { packets: 8, bytes: 80, flows: 5 });
    }
}
