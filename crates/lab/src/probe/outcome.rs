//! Summarizes runs: medians with ranges, comparisons, and whether all subjects counted the same.

use super::shape::{Configuration, PUBLISHED_IN, PUBLISHED_SERIAL, Published};
use super::subject::Run;
use super::traffic::{Capture, Totals};
use super::{Cell, Destination, Input, Part, ProbeLabError, Subject};
use crate::stats::Summary;
use crate::workload::flows::Spread;
use serde::Serialize;

/// A subject's totals minus those of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub packets: i64,
    pub bytes: i64,
    /// Records minus flows.
    pub flows: i64,
}

impl Difference {
    fn of(counted: Totals, file: Totals) -> Self {
        let less = |a: u64, b: u64| a.wrapping_sub(b) as i64;
        Self {
            packets: less(counted.packets, file.packets),
            bytes: less(counted.bytes, file.bytes),
            flows: less(counted.flows, file.flows),
        }
    }

    /// Whether the totals are equal.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn size(&self) -> u64 {
        self.packets.unsigned_abs().max(self.flows.unsigned_abs())
    }
}

/// One cell over all rounds. Ratios are ratios of medians.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellResult {
    pub part: Part,
    pub subject: Subject,
    /// How the work was spread; empty for other probes.
    pub configuration: String,
    pub work: String,
    /// The execution model of each pipeline; empty for other probes.
    pub model: &'static str,
    pub pipelines: usize,
    /// Readers of each pipeline.
    pub readers: usize,
    /// Workers of each pipeline.
    pub workers: usize,
    /// Threads that parse or count, in all; 0 for other probes.
    pub threads: usize,
    pub traffic: String,
    pub from: Input,
    pub to: Destination,
    /// Packets of the capture.
    pub packets: u64,
    /// The median of packets sampled for sFlow.
    pub samples: Option<u64>,
    /// Bytes of the capture's IP packets.
    pub bytes: u64,
    pub flows: u64,
    pub packets_per_second: Summary,
    pub packets_per_cpu_second: Summary,
    /// The median of peak memory. With input from memory, it includes the packets.
    pub rss_peak_bytes: u64,
    /// Memory of the flow cache at the end, after all flows were reported, if the subject reports it.
    pub cache_bytes: Option<u64>,
    /// The median of records received.
    pub records: u64,
    /// Records made but not received: the maximum of all rounds.
    pub lost: u64,
    /// Records, or NetFlow 9 messages, missing by sequence numbers: the maximum of all rounds.
    pub missing: u64,
    /// The median of flows exported early for lack of room.
    pub evicted: u64,
    /// Whether the probe's own counters added up in every round; for probes without, whether totals are equal.
    pub conserved: bool,
    /// Whether packets, bytes and flows were those of the capture in every round.
    pub equal: bool,
    /// The difference in the worst round.
    pub difference: Difference,
    /// A hash of the collector's records, if it was the same in all rounds.
    pub fingerprint: Option<String>,
    /// Packets per second over those of `serial` under the same conditions.
    pub speed_up: Option<f64>,
    /// Packets per second over those with the first kind of traffic under the same conditions.
    pub normal_ratio: Option<f64>,
    /// This program's packets per second of processor time over the subject's, with the same kind of destination.
    pub ours_ratio: Option<f64>,
    /// The subject's memory over this program's.
    pub memory_ratio: Option<f64>,
    /// Processor time of a packet over that of the configuration without samples for sFlow: nanoseconds more.
    pub sflow_cpu_ns: Option<f64>,
    /// What was published of ffProbe in this shape.
    pub published: Option<Published>,
    /// ffProbe's packets per second over its sequential ones.
    pub published_speed_up: Option<f64>,
}

/// Whether all subjects made the same records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SameRecords {
    pub traffic: String,
    /// Cells whose records all reached the collector.
    pub cells: usize,
    /// Different sets of records among them; should be one.
    pub different: usize,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    /// The source of `published`.
    pub published_in: &'static str,
    pub cells: Vec<CellResult>,
    /// One entry per kind of traffic.
    pub same_records: Vec<SameRecords>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// Fails if there is no run at all.
pub(super) fn sum_up(
    cells: &[Cell],
    runs: &[Vec<Run>],
    captures: &[Capture],
    rounds: usize,
    left_out: Vec<String>,
) -> Result<Outcome, ProbeLabError> {
    let mut results = Vec::new();
    let mut measured = Vec::new();
    for (cell, runs) in cells.iter().zip(runs) {
        let capture = captures.iter().find(|capture| capture.spread == cell.traffic);
        if let Some(result) = capture.and_then(|capture| result(cell, runs, capture)) {
            results.push(result);
            measured.push(*cell);
        }
    }
    if results.is_empty() {
        return Err(ProbeLabError::Nothing(left_out));
    }
    if let Some(usual) = cells.first() {
        compare(&measured, usual.traffic, &mut results);
    }
    let same_records = same_records(&measured, &results);
    Ok(Outcome { runs: rounds, published_in: PUBLISHED_IN, cells: results, same_records, left_out })
}

fn result(cell: &Cell, runs: &[Run], capture: &Capture) -> Option<CellResult> {
    let file = capture.totals;
    let rate = |seconds: &dyn Fn(&Run) -> f64| {
        Summary::of(&runs.iter().map(|run| file.packets as f64 / seconds(run)).collect::<Vec<_>>())
    };
    let median = |value: &dyn Fn(&Run) -> u64| {
        Summary::of(&runs.iter().map(|run| value(run) as f64).collect::<Vec<_>>()).map(|s| s.median as u64)
    };
    let missing = |run: &Run| run.collected.map_or(0, |collected| collected.missing);
    let lost = |run: &Run| run.sent.map_or(0, |sent| sent.saturating_sub(run.counted.flows));
    let difference = runs
        .iter()
        .map(|run| Difference::of(run.counted, file))
        .max_by_key(|difference| (!difference.is_none(), difference.size()))?;
    let conserved = |run: &Run| run.conserved.unwrap_or(Difference::of(run.counted, file).is_none());
    let configuration = cell.configuration;
    let published = configuration.filter(|_| cell.part == Part::Table).and_then(|c| c.published());
    Some(CellResult {
        part: cell.part,
        subject: cell.subject,
        configuration: configuration.map(|c| c.with_work(None).to_string()).unwrap_or_default(),
        work: configuration.and_then(|c| c.work()).map_or("none".to_owned(), |work| format!("queens:{work}")),
        model: configuration.map_or("", |c| c.model()),
        pipelines: configuration.map_or(0, |c| c.pipelines()),
        readers: configuration.map_or(0, |c| c.readers()),
        workers: configuration.map_or(0, |c| c.workers()),
        threads: configuration.map_or(0, |c| c.threads()),
        traffic: cell.traffic.to_string(),
        from: cell.from,
        to: cell.to,
        packets: file.packets,
        samples: configuration.and_then(|c| c.sflow()).and_then(|_| median(&|run| run.samples.unwrap_or(0))),
        bytes: file.bytes,
        flows: file.flows,
        packets_per_second: rate(&|run| run.elapsed_s)?,
        packets_per_cpu_second: rate(&|run| run.cpu_s)?,
        rss_peak_bytes: median(&|run| run.rss_peak_bytes)?,
        cache_bytes: runs.iter().filter_map(|run| run.cache_bytes).max(),
        records: median(&|run| run.counted.flows)?,
        lost: runs.iter().map(lost).max()?,
        missing: runs.iter().map(missing).max()?,
        evicted: median(&|run| run.evicted)?,
        conserved: runs.iter().all(conserved),
        equal: difference.is_none(),
        difference,
        fingerprint: fingerprint(cell, runs),
        speed_up: None,
        normal_ratio: None,
        ours_ratio: None,
        memory_ratio: None,
        sflow_cpu_ns: None,
        published,
        published_speed_up: published.map(|published| published.mpps / PUBLISHED_SERIAL.mpps),
    })
}

/// The common hash of all rounds' records, if all of them arrived. If flows were evicted there is none: which
/// flows, depends on shards and so on the configuration.
fn fingerprint(cell: &Cell, runs: &[Run]) -> Option<String> {
    if !cell.to.is_ipfix() || runs.iter().any(|run| run.evicted > 0 || run.sent != Some(run.counted.flows)) {
        return None;
    }
    let mut prints = runs.iter().map(|run| run.collected.map(|collected| collected.fingerprint));
    let first = prints.next()??;
    prints.all(|print| print == Some(first)).then(|| format!("{first:016x}"))
}

/// Fills in ratios between cells.
fn compare(cells: &[Cell], usual: Spread, results: &mut [CellResult]) {
    let find = |wanted: Cell| cells.iter().position(|cell| *cell == wanted);
    for (at, cell) in cells.iter().enumerate() {
        let rate = |at: usize| results[at].packets_per_second.median;
        let work = cell.configuration.and_then(|configuration| configuration.work());
        let serial = find(Cell { configuration: Some(Configuration::SERIAL.with_work(work)), ..*cell });
        let speed_up =
            serial.filter(|_| cell.subject == Subject::Thalweg).map(|serial| rate(at) / rate(serial));
        let normal = find(Cell { traffic: usual, ..*cell }).filter(|_| cell.part == Part::Traffic);
        let normal_ratio = normal.map(|normal| rate(at) / rate(normal));
        let ours = cells.iter().position(|ours| {
            let same = (ours.part, ours.traffic, ours.from, ours.to)
                == (cell.part, cell.traffic, cell.from, cell.to);
            same && ours.subject == Subject::Thalweg
        });
        let ours = ours.filter(|_| cell.subject != Subject::Thalweg);
        let per_cpu = |at: usize| results[at].packets_per_cpu_second.median;
        let memory = |at: usize| results[at].rss_peak_bytes as f64;
        let sflow = cell.configuration.filter(|configuration| configuration.sflow().is_some());
        let plain = sflow.map(|configuration| Some(configuration.without_sflow()));
        let plain = plain.and_then(|configuration| find(Cell { configuration, ..*cell }));
        let cpu_ns = |at: usize| 1e9 / per_cpu(at);
        let sflow_cpu_ns = plain.map(|plain| cpu_ns(at) - cpu_ns(plain));
        let ours_ratio = ours.map(|ours| per_cpu(ours) / per_cpu(at));
        let memory_ratio = ours.map(|ours| memory(at) / memory(ours));
        let result = &mut results[at];
        (result.speed_up, result.normal_ratio) = (speed_up, normal_ratio);
        (result.ours_ratio, result.memory_ratio) = (ours_ratio, memory_ratio);
        result.sflow_cpu_ns = sflow_cpu_ns;
    }
}

fn same_records(cells: &[Cell], results: &[CellResult]) -> Vec<SameRecords> {
    let comparable = |at: usize| results[at].fingerprint.as_ref();
    super::spreads(cells)
        .into_iter()
        .filter_map(|spread| {
            let here = cells.iter().enumerate().filter(|(_, cell)| cell.traffic == spread);
            let mut prints: Vec<&String> = here.filter_map(|(at, _)| comparable(at)).collect();
            let cells = prints.len();
            prints.sort_unstable();
            prints.dedup();
            let different = prints.len();
            (cells > 0).then(|| SameRecords { traffic: spread.to_string(), cells, different })
        })
        .collect()
}
