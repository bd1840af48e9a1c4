//! Compares routers that have a change with the unchanged one, round by round.

use super::{Cell, CellRun, Shown};
use crate::forwarding::subject::Label;
use crate::stats::Summary;
use serde::Serialize;

/// What one change brings, in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeResult {
    #[serde(flatten)]
    pub label: Label,
    pub scenario: String,
    /// Includes the check sequence.
    pub frame_bytes: usize,
    /// Throughput over the unchanged router's in the same round.
    pub throughput_ratio: Summary,
    /// Processor time of the whole path, by frame, over the unchanged router's in the same round.
    pub cpu_ratio: Option<Summary>,
    /// Whether the router shows the change; `None` if that could not be read.
    pub took_effect: Option<bool>,
}

/// Compares each changed router with the unchanged one. A router that is left out never returns, so the n-th runs of both
/// are of one round.
pub(super) fn compare(cells: &[(Cell, Vec<CellRun>)], shown: &[Shown]) -> Vec<ChangeResult> {
    let ratios = |changed: &[CellRun], usual: &[CellRun], value: &dyn Fn(&CellRun) -> Option<f64>| {
        let both = changed.iter().zip(usual).filter_map(|(a, b)| Some((value(a)?, value(b)?)));
        Summary::of(&both.filter(|(_, usual)| *usual > 0.0).map(|(a, b)| a / b).collect::<Vec<_>>())
    };
    let result = |(cell, changed): &(Cell, Vec<CellRun>)| {
        let usual = Cell { label: cell.label.unchanged(), ..cell.clone() };
        let (_, usual) = cells.iter().find(|(other, _)| *other == usual)?;
        let of_it = shown.iter().find(|shown| shown.label == cell.label);
        Some(ChangeResult {
            label: cell.label.clone(),
            scenario: cell.scenario.to_string(),
            frame_bytes: cell.size.wire_bytes(),
            throughput_ratio: ratios(changed, usual, &|run| Some(run.throughput.rate_pps))?,
            cpu_ratio: ratios(changed, usual, &|run| run.cost?.path.cpu_ns()),
            took_effect: of_it.and_then(|shown| shown.took_effect),
        })
    };
    cells.iter().filter(|(cell, _)| !cell.label.change.is_empty()).filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::experiment::tests::cell_run;
    use crate::forwarding::frame::FrameSize;
    use crate::forwarding::subject::seen::Seen;

    #[test]
    fn a_change_is_compared_round_by_round() {
        let cell = |change: &str, frame_bytes| Cell {
            label: Label { change: change.to_owned(), ..Label::new("thalweg", "af_packet", "farm") },
            scenario: "one:1".parse().unwrap(),
            size: FrameSize::new(frame_bytes).unwrap(),
        };
        // The machine slows down from round to round; the change halves throughput all the same.
        let usual = [8e5, 4e5, 2e5].map(|pps| cell_run(pps, 100.0, 900.0)).to_vec();
        let slow = [4e5, 2e5].map(|pps| cell_run(pps, 100.0, 2900.0)).to_vec();
        let cells = [
            (cell("batches of 1", 64), slow),
            (cell("", 64), usual.clone()),
            (cell("", 128), usual.clone()),
            (cell("no copy", 128), Vec::new()),
        ];
        let seen =
            |took_effect| Shown { label: cells[0].0.label.clone(), seen: Seen::default(), took_effect };
        let results = compare(&cells, &[seen(Some(true))]);
        assert_eq!(results.len(), 1, "neither the unchanged nor one without runs: {results:?}");
        let ratio = &results[0].throughput_ratio;
        assert_eq!((ratio.min, ratio.max, ratio.count), (0.5, 0.5, 2));
        assert!((results[0].cpu_ratio.as_ref().unwrap().median - 2.0).abs() < 1e-9, "{results:?}");
        assert_eq!(results[0].took_effect, Some(true));
        assert_eq!(compare(&cells, &[seen(None)])[0].took_effect, None);
        // A faster changed router moves the figure, and nothing else does.
        let faster = [(cells[0].0.clone(), usual.clone()), (cell("", 64), usual)];
        assert_eq!(compare(&faster, &[])[0].throughput_ratio.median, 1.0);
    }
}
