//! Summarizes the rounds: medians with ranges, shares of the ceiling, ratios to the native router.

use super::changed::{self, ChangeResult};
use super::{Cell, CellRun, CostRun, Measured, Options, Part, Shown};
use crate::forwarding::latency::Percentiles;
use crate::forwarding::load::RouteTable;
use crate::forwarding::method::{BackToBack, LossPoint};
use crate::forwarding::ports::{self, PortsResult};
use crate::forwarding::subject::Label;
use crate::stats::{Summary, distinct};
use serde::Serialize;

/// From this share of the ceiling on, the generator was the limit.
const AT_CEILING: f64 = 0.95;

/// The generator alone, at one frame size.
#[derive(Clone, Debug, Serialize)]
pub struct CeilingResult {
    /// Includes the check sequence.
    pub frame_bytes: usize,
    /// Frames per second over a direct link.
    pub packets_per_second: Summary,
    pub cpu_ns_per_packet: Summary,
    /// Latency over the direct link: medians of the rounds.
    pub latency: Option<Percentiles>,
}

/// Latency at one rate: each percentile is the median of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyResult {
    pub share_of_throughput: f64,
    pub packets_per_second: f64,
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// The smallest and the largest median of a round, in nanoseconds.
    pub p50_range_ns: (u64, u64),
}

/// Processor time per frame in nanoseconds, at nine tenths of throughput.
#[derive(Clone, Debug, Serialize)]
pub struct CostResult {
    pub packets_per_second: f64,
    /// The whole path: inside the send calls, the router's processes, the kernel's softirq threads.
    pub cpu_ns_per_packet: Summary,
    /// The generator alone at that rate.
    pub alone_ns_per_packet: Summary,
    /// The difference: what the router and its link add.
    pub added_ns_per_packet: Summary,
    /// What they add inside the send calls.
    pub sender_added_ns_per_packet: Summary,
    /// `added_ns_per_packet` over the native router's, whose ratio is 1.
    pub added_native_ratio: Option<f64>,
}

/// A cell's results.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    #[serde(flatten)]
    pub label: Label,
    pub scenario: String,
    /// Whether the router translates.
    pub nat: bool,
    /// Routes in the router's table.
    pub routes: usize,
    pub flows: usize,
    /// Includes the check sequence.
    pub frame_bytes: usize,
    /// Throughput.
    pub packets_per_second: Summary,
    /// The largest share lost in a trial that passed.
    pub loss: f64,
    /// Median throughput over the median ceiling.
    pub ceiling_share: f64,
    pub generator_limited: bool,
    /// Median throughput over the native router's.
    pub native_ratio: Option<f64>,
    /// Processor time of the whole path in the trial that measured cost, in seconds; median.
    pub cpu_s: Option<f64>,
    pub latency: Vec<LatencyResult>,
    /// The frame loss curve; each point is the round with the median loss.
    pub loss_curve: Vec<LossPoint>,
    /// The round with the median of the mean bursts.
    pub back_to_back: Option<BackToBack>,
    pub cost: Option<CostResult>,
}

/// An application's results.
#[derive(Clone, Debug, Serialize)]
pub struct ApplicationResult {
    /// The router; `None`: the direct link.
    #[serde(flatten)]
    pub label: Option<Label>,
    /// Whether the router translates.
    pub nat: bool,
    /// The MTU of both programs' interfaces.
    pub mtu: usize,
    pub message_bytes: usize,
    /// Half of the round-trip time less that over the direct link in the same round.
    pub added_ns: Option<Summary>,
    /// Half of the round-trip time: the median of each round.
    pub half_round_trip_p50_ns: Summary,
    /// The 99th percentile of each round.
    pub half_round_trip_p99_ns: Summary,
    pub bytes_per_second: Summary,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    /// In seconds.
    pub trial_s: f64,
    /// The share of frames that may be lost.
    pub loss_max: f64,
    pub parts: Vec<Part>,
    pub ceilings: Vec<CeilingResult>,
    pub cells: Vec<CellResult>,
    pub applications: Vec<ApplicationResult>,
    /// Routers with several ports.
    pub ports: Vec<PortsResult>,
    /// Routers with a change beside the unchanged one.
    pub changes: Vec<ChangeResult>,
    /// What routers showed while they ran.
    pub shown: Vec<Shown>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// Summarizes the measurements; `None` if no cell and no application has a result.
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
    let mut shown = measured.shown.clone();
    shown.sort_by_key(|shown| shown.label.to_string());
    anybody.then(|| Outcome {
        runs: options.runs,
        trial_s: options.trial_s,
        loss_max: options.search.loss_max,
        parts: options.parts.clone(),
        ceilings,
        cells,
        applications,
        ports,
        changes: changed::compare(&measured.cells, &measured.shown),
        shown,
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

/// At each rate, the round with the median loss. If not all rounds reached a rate, the median of those that did.
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

/// Fills in ratios to the native router's cell with the same task.
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
    let half = |e: &&super::Exchange| e.half_round_trip.p50_ns as f64;
    let result = |(label, nat, mtu, message_bytes): (&Option<Label>, bool, usize, usize)| {
        let runs = runs_of(label, nat, mtu, message_bytes);
        // Every round measures the direct link, and a router that is left out never returns.
        let direct = runs_of(&None, false, mtu, message_bytes);
        let added: Vec<f64> =
            runs.iter().zip(&direct).map(|(run, direct)| half(run) - half(direct)).collect();
        Some(ApplicationResult {
            label: label.clone(),
            nat,
            mtu,
            message_bytes,
            added_ns: Summary::of(&added).filter(|_| label.is_some()),
            half_round_trip_p50_ns: summary(&runs, |e| Some(half(e)))?,
            half_round_trip_p99_ns: summary(&runs, |e| Some(e.half_round_trip.p99_ns as f64))?,
            bytes_per_second: summary(&runs, |e| Some(e.bytes_per_second))?,
        })
    };
    keys.into_iter().filter_map(result).collect()
}
