//! What the rounds come to: medians with their ranges, shares of the ceiling, ratios to the native router.

use super::{Cell, CellRun, CostRun, Measured, Options, Part};
use crate::forwarding::latency::Percentiles;
use crate::forwarding::load::RouteTable;
use crate::forwarding::method::{BackToBack, LossPoint};
use crate::forwarding::ports::{self, PortsResult};
use crate::forwarding::subject::Label;
use crate::forwarding::subject::seen::Seen;
use crate::stats::{Summary, distinct};
use serde::Serialize;

/// A router this near to the ceiling was limited by the generator.
const AT_CEILING: f64 = 0.95;

/// The generator alone, at one frame size.
#[derive(Clone, Debug, Serialize)]
pub struct CeilingResult {
    /// Bytes of a frame, check sequence included.
    pub frame_bytes: usize,
    /// Frames per second over a direct link.
    pub packets_per_second: Summary,
    /// Processor time of each, nanoseconds.
    pub cpu_ns_per_packet: Summary,
    /// Latency over the direct link, medians of the rounds.
    pub latency: Option<Percentiles>,
}

/// Latency at one rate: each percentile is the median of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyResult {
    /// The rate as a share of throughput.
    pub share_of_throughput: f64,
    /// The rate, frames per second.
    pub packets_per_second: f64,
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// Smallest and largest median of a round, nanoseconds.
    pub p50_range_ns: (u64, u64),
}

/// Processor time per frame, nanoseconds, at nine tenths of throughput.
#[derive(Clone, Debug, Serialize)]
pub struct CostResult {
    /// The rate, frames per second.
    pub packets_per_second: f64,
    /// Of the whole path: inside the send calls, the router's processes, the kernel's softirq threads.
    pub cpu_ns_per_packet: Summary,
    /// Of the generator alone at that rate.
    pub alone_ns_per_packet: Summary,
    /// What the router and its link add: the first less the second.
    pub added_ns_per_packet: Summary,
    /// What is added inside the send calls alone.
    pub sender_added_ns_per_packet: Summary,
    /// `added_ns_per_packet` over the native router's; its own is 1.
    pub added_native_ratio: Option<f64>,
}

/// What a cell came to.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    #[serde(flatten)]
    pub label: Label,
    /// As on the command line.
    pub scenario: String,
    /// Whether with translation.
    pub nat: bool,
    /// Routes of the router.
    pub routes: usize,
    pub flows: usize,
    /// Bytes of a frame, check sequence included.
    pub frame_bytes: usize,
    /// Throughput, frames per second.
    pub packets_per_second: Summary,
    /// The largest share lost in a trial that passed.
    pub loss: f64,
    /// Median throughput over the median ceiling.
    pub ceiling_share: f64,
    /// Whether the generator was the limit.
    pub generator_limited: bool,
    /// Median throughput over the native router's.
    pub native_ratio: Option<f64>,
    /// Processor time of the whole path in the trial that measured cost, seconds; median.
    pub cpu_s: Option<f64>,
    /// Latency by rate.
    pub latency: Vec<LatencyResult>,
    /// The frame loss curve; each point the median of the rounds by loss.
    pub loss_curve: Vec<LossPoint>,
    /// The round whose mean burst is the median.
    pub back_to_back: Option<BackToBack>,
    /// Processor time.
    pub cost: Option<CostResult>,
}

/// What a program saw.
#[derive(Clone, Debug, Serialize)]
pub struct ApplicationResult {
    /// Through whom; nobody: the direct link.
    #[serde(flatten)]
    pub label: Option<Label>,
    /// Whether with translation.
    pub nat: bool,
    /// The MTU of both programs' interfaces.
    pub mtu: usize,
    pub message_bytes: usize,
    /// What half of the round-trip time is longer than over the direct link, nanoseconds, medians.
    pub added_ns: Option<f64>,
    /// Half of the round-trip time: the median of each round.
    pub half_round_trip_p50_ns: Summary,
    /// The 99th percentile of each round.
    pub half_round_trip_p99_ns: Summary,
    /// Throughput of a stream.
    pub bytes_per_second: Summary,
}

/// What could be seen of a router.
#[derive(Clone, Debug, Serialize)]
pub struct SeenResult {
    #[serde(flatten)]
    pub label: Label,
    #[serde(flatten)]
    pub seen: Seen,
}

/// What the experiment came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Rounds.
    pub runs: usize,
    /// How long a trial sends, seconds.
    pub trial_s: f64,
    /// The share of frames that may be lost.
    pub loss_max: f64,
    /// Parts that were measured.
    pub parts: Vec<Part>,
    /// The generator alone.
    pub ceilings: Vec<CeilingResult>,
    /// One object for each cell.
    pub cells: Vec<CellResult>,
    pub applications: Vec<ApplicationResult>,
    /// Routers with several ports.
    pub ports: Vec<PortsResult>,
    /// What could be seen of routers that are compared with a change.
    pub seen: Vec<SeenResult>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// Sums up; `None` if there is no cell and no application with a result.
pub fn sum_up(measured: &Measured, options: &Options, table: &RouteTable) -> Option<Outcome> {
    let ceilings = ceilings(measured);
    let mut cells: Vec<CellResult> = measured
        .cells
        .iter()
        .filter_map(|(cell, runs)| sum_up_cell(cell, runs, &ceilings, table.prefixes.len() + 1))
        .collect();
    compare(&mut cells);
    let applications = applications(measured);
    let ports = ports::sum_up(&measured.ports);
    let anybody = !cells.is_empty()
        || applications.iter().any(|a| a.label.is_some())
        || ports.iter().any(|result| result.label.is_some());
    let mut seen: Vec<SeenResult> =
        measured.seen.iter().cloned().map(|(label, seen)| SeenResult { label, seen }).collect();
    seen.sort_by_key(|result| result.label.to_string());
    anybody.then(|| Outcome {
        runs: options.runs,
        trial_s: options.trial_s,
        loss_max: options.search.loss_max,
        parts: options.parts.clone(),
        ceilings,
        cells,
        applications,
        ports,
        seen,
        left_out: measured.left_out.clone(),
    })
}

fn summary<T>(items: &[T], value: impl Fn(&T) -> Option<f64>) -> Option<Summary> {
    Summary::of(&items.iter().filter_map(value).collect::<Vec<_>>())
}

fn ceilings(measured: &Measured) -> Vec<CeilingResult> {
    let mut sizes: Vec<_> = measured.ceilings.iter().map(|run| run.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of_size = |size| {
        let runs: Vec<_> = measured.ceilings.iter().filter(|run| run.size == size).collect();
        let latency: Vec<Percentiles> = runs.iter().filter_map(|run| run.latency).collect();
        Some(CeilingResult {
            frame_bytes: size.wire_bytes(),
            packets_per_second: summary(&runs, |run| Some(run.pps))?,
            cpu_ns_per_packet: summary(&runs, |run| Some(run.cpu_ns))?,
            latency: Percentiles::median_of(&latency),
        })
    };
    sizes.into_iter().filter_map(of_size).collect()
}

fn sum_up_cell(
    cell: &Cell,
    runs: &[CellRun],
    ceilings: &[CeilingResult],
    full_table_routes: usize,
) -> Option<CellResult> {
    let packets_per_second = summary(runs, |run| Some(run.throughput.rate_pps))?;
    let frame_bytes = cell.size.wire_bytes();
    let ceiling = ceilings.iter().find(|ceiling| ceiling.frame_bytes == frame_bytes)?;
    let ceiling_share = packets_per_second.median / ceiling.packets_per_second.median;
    let costs: Vec<CostRun> = runs.iter().filter_map(|run| run.cost).collect();
    let path_cpu_s =
        |cost: &CostRun| Some(cost.path.sender_cpu_s + cost.path.subject_cpu_s + cost.path.softirq_cpu_s);
    Some(CellResult {
        label: cell.label.clone(),
        scenario: cell.scenario.to_string(),
        nat: cell.scenario.nat,
        routes: if cell.scenario.full_table { full_table_routes } else { 1 },
        flows: cell.scenario.flows,
        frame_bytes,
        packets_per_second,
        loss: runs.iter().map(|run| run.throughput.loss).fold(0.0, f64::max),
        ceiling_share,
        generator_limited: ceiling_share >= AT_CEILING,
        native_ratio: None,
        cpu_s: summary(&costs, path_cpu_s).map(|summary| summary.median),
        latency: latencies(runs),
        loss_curve: loss_curve(runs),
        back_to_back: back_to_back(runs),
        cost: sum_up_cost(&costs),
    })
}

fn latencies(runs: &[CellRun]) -> Vec<LatencyResult> {
    let Some(first) = runs.first() else { return Vec::new() };
    let of_share = |(at, (share, _)): (usize, &(f64, super::LatencyRun))| {
        let rounds: Vec<_> = runs.iter().filter_map(|run| run.latency.get(at)).collect();
        let percentiles: Vec<Percentiles> = rounds.iter().filter_map(|(_, run)| run.percentiles).collect();
        let medians = || percentiles.iter().map(|p| p.p50_ns);
        Some(LatencyResult {
            share_of_throughput: *share,
            packets_per_second: summary(&rounds, |(_, run)| Some(run.rate_pps))?.median,
            percentiles: Percentiles::median_of(&percentiles)?,
            p50_range_ns: (medians().min()?, medians().max()?),
        })
    };
    first.latency.iter().enumerate().filter_map(of_share).collect()
}

/// At each rate the round whose loss is the median; rates that not all rounds reached are those of fewer.
fn loss_curve(runs: &[CellRun]) -> Vec<LossPoint> {
    let mut all: Vec<LossPoint> = runs.iter().flat_map(|run| run.loss.iter().copied()).collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.loss.total_cmp(&b.loss)));
    all.chunk_by(|a, b| a.share == b.share)
        .filter_map(|points| points.get(points.len() / 2))
        .copied()
        .collect()
}

fn back_to_back(runs: &[CellRun]) -> Option<BackToBack> {
    let mut all: Vec<&BackToBack> = runs.iter().filter_map(|run| run.back_to_back.as_ref()).collect();
    all.sort_by(|a, b| a.mean_frames.total_cmp(&b.mean_frames));
    all.get(all.len() / 2).map(|median| (*median).clone())
}

fn sum_up_cost(costs: &[CostRun]) -> Option<CostResult> {
    let rate =
        |cost: &CostRun| (cost.path.elapsed_s > 0.0).then(|| cost.path.sent as f64 / cost.path.elapsed_s);
    Some(CostResult {
        packets_per_second: summary(costs, rate)?.median,
        cpu_ns_per_packet: summary(costs, |cost| cost.path.cpu_ns())?,
        alone_ns_per_packet: summary(costs, |cost| cost.alone.cpu_ns())?,
        added_ns_per_packet: summary(costs, |cost| Some(cost.path.cpu_ns()? - cost.alone.cpu_ns()?))?,
        sender_added_ns_per_packet: summary(costs, |cost| {
            Some(cost.path.sender_cpu_ns()? - cost.alone.sender_cpu_ns()?)
        })?,
        added_native_ratio: None,
    })
}

/// Fills in what is known only beside the native router's cell with the same task.
fn compare(cells: &mut [CellResult]) {
    for at in 0..cells.len() {
        let (scenario, frame_bytes) = (cells[at].scenario.clone(), cells[at].frame_bytes);
        let native = cells
            .iter()
            .find(|c| c.label.is_native() && c.scenario == scenario && c.frame_bytes == frame_bytes);
        let Some(native) = native else { continue };
        let positive = |value: f64| (value > 0.0).then_some(value);
        let throughput = positive(native.packets_per_second.median);
        let added = native.cost.as_ref().and_then(|cost| positive(cost.added_ns_per_packet.median));
        let cell = &mut cells[at];
        cell.native_ratio = throughput.map(|native| cell.packets_per_second.median / native);
        if let Some(cost) = &mut cell.cost {
            cost.added_native_ratio = added.map(|native| cost.added_ns_per_packet.median / native);
        }
    }
}

fn applications(measured: &Measured) -> Vec<ApplicationResult> {
    let mut keys =
        distinct(measured.applications.iter().map(|(label, nat, e)| (label, *nat, e.mtu, e.message_bytes)));
    // Rounds are shuffled; the direct link comes first, then routers by name.
    keys.sort_by_key(|(label, nat, mtu, bytes)| {
        (label.as_ref().map(Label::to_string), *nat, std::cmp::Reverse(*mtu), *bytes)
    });
    let runs_of = |label: &Option<Label>, nat: bool, mtu: usize, bytes: usize| -> Vec<&super::Exchange> {
        let key = (label, nat, mtu, bytes);
        let is_of = |(l, n, e): &&(_, _, super::Exchange)| (l, *n, e.mtu, e.message_bytes) == key;
        measured.applications.iter().filter(is_of).map(|(_, _, exchange)| exchange).collect()
    };
    let half = |e: &&super::Exchange| Some(e.half_round_trip.p50_ns as f64);
    let result = |(label, nat, mtu, message_bytes): (&Option<Label>, bool, usize, usize)| {
        let runs = runs_of(label, nat, mtu, message_bytes);
        let direct = summary(&runs_of(&None, false, mtu, message_bytes), half).filter(|_| label.is_some());
        Some(ApplicationResult {
            label: label.clone(),
            nat,
            mtu,
            message_bytes,
            added_ns: direct.and_then(|direct| Some(summary(&runs, half)?.median - direct.median)),
            half_round_trip_p50_ns: summary(&runs, half)?,
            half_round_trip_p99_ns: summary(&runs, |e| Some(e.half_round_trip.p99_ns as f64))?,
            bytes_per_second: summary(&runs, |e| Some(e.bytes_per_second))?,
        })
    };
    keys.into_iter().filter_map(result).collect()
}
