//! Table 5.1: the gain of a way to receive for the whole daemon, computed from the cost of an UPDATE and the cost
//! of receiving a message each way. The thesis's row is a limit too: it assumes stream accesses in one cycle.

use serde::Serialize;

use super::{CellResult, Outcome, Part};
use crate::bgp::receive::Strategy;
use crate::bgp::schedulings::AS_IN_A_TABLE;
use crate::stats::distinct;

/// The row that no hardware can exceed.
pub(super) const FOR_NOTHING: &str = "reading for nothing (no hardware can gain more)";

/// The gain of one change under one scheduling.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worth {
    /// What is received, and how.
    pub way: String,
    pub scheduling: String,
    /// For another way: how much slower the daemon would be, as a share of its present processor time. For free
    /// reading: how much faster, as a share of the remaining time.
    pub gain: f64,
}

/// All gains that follow from the measurements; none if a part is missing.
pub(super) fn worth(outcome: &Outcome) -> Vec<Worth> {
    let cpu_ns = |strategy| {
        let mut of_it = outcome.receive.iter().filter(|row| row.strategy == strategy);
        of_it.find(|row| row.load == AS_IN_A_TABLE).map(|row| row.cpu_ns.median)
    };
    let Some(two) = cpu_ns(Strategy::TwoReads) else { return Vec::new() };
    let cells: Vec<&CellResult> = outcome.of(Part::Functions).collect();
    let whole = |cell: &CellResult| cell.functions_ns.values().map(|ns| ns.median).sum::<f64>();
    let mut all = Vec::new();
    for scheduling in distinct(cells.iter().map(|cell| cell.cell.scheduling.as_str())) {
        let Some(cell) = cells.iter().find(|cell| cell.cell.scheduling == scheduling) else { continue };
        let mut push = |way: String, gain: f64| {
            all.push(Worth { way, scheduling: scheduling.to_owned(), gain });
        };
        for strategy in [Strategy::Buffered, Strategy::Uring] {
            if let Some(ns) = cpu_ns(strategy) {
                // The extra time of two reads, relative to the daemon's present time.
                push(format!("{strategy} for two reads a message"), (two - ns) / whole(cell));
            }
        }
        if let Some(shares) = cell.shares {
            push(FOR_NOTHING.to_owned(), shares.reads_ns / (whole(cell) - shares.reads_ns));
        }
    }
    all
}
