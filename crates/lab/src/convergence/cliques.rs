//! A withdrawal in a clique: every member knows the prefix from its owner and from all other members, and tries
//! longer and longer paths that no longer exist.

use thalweg_sim::Costs;
use thalweg_sim::churn::Change;

use super::bed::{Bed, Seen, Setup, clique_with_origin};
use super::{Claim, Curves, Findings, Options, Part, median};
use crate::network::NetworkError;

const SOURCE: &str = "Labovitz, Ahuja, Bose, Jahanian 2000";
const INTERVALS_S: [u32; 3] = [0, 5, 30];
/// Without an MRAI, the number of UPDATEs multiplies with each member. A run with more than this is stopped, and
/// larger cliques are skipped.
const UPDATES_MAX: u64 = 2_000_000;

/// One size and MRAI.
struct Cell {
    size: u32,
    mrai_s: u32,
    updates: f64,
    time_s: f64,
    /// Some runs were stopped, so the numbers are lower bounds.
    is_cut: bool,
}

pub(super) fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let (sizes, seeds) = if options.quick { (3..=5, 1) } else { (3..=12, 5) };
    let mut cells = Vec::new();
    for mrai_s in INTERVALS_S {
        for size in sizes.clone() {
            progress(&format!("a clique of {size}, MRAI {mrai_s} s"));
            let (mut all, mut is_cut) = (Vec::new(), false);
            for seed in 0..seeds {
                let (mut bed, withdraw) = at_rest(size, mrai_s, None, options.seed + seed)?;
                let (seen, is_over) = bed.happen_within(&[withdraw], UPDATES_MAX)?;
                all.push(seen);
                is_cut |= !is_over;
            }
            let of = |value: fn(&Seen) -> f64| median(&mut all.iter().map(value).collect::<Vec<f64>>());
            let (updates, time_s) = (of(|seen| seen.updates as f64), of(|seen| seen.time_s));
            cells.push(Cell { size, mrai_s, updates, time_s, is_cut });
            if is_cut {
                break;
            }
        }
    }
    Ok(findings(&cells, seeds))
}

/// Withdraws a prefix that a clique knows, with these processing times of UPDATEs.
pub(super) fn withdrawal(
    size: u32,
    mrai_s: u32,
    costs: Option<&Costs>,
    seed: u64,
) -> Result<Seen, NetworkError> {
    let (mut bed, withdraw) = at_rest(size, mrai_s, costs, seed)?;
    bed.happen(&[withdraw])
}

/// A clique at rest that knows a prefix, and the change that withdraws the prefix.
fn at_rest(size: u32, mrai_s: u32, costs: Option<&Costs>, seed: u64) -> Result<(Bed, Change), NetworkError> {
    let (graph, origin) = clique_with_origin(size, seed)?;
    let mut bed = Bed::new(Setup { costs: costs.cloned(), ..Setup::of(graph, seed).mrai_s(mrai_s) })?;
    bed.happen(&[Change::Announce { node: origin, prefix: 0 }])?;
    Ok((bed, Change::Withdraw { node: origin, prefix: 0 }))
}

fn findings(cells: &[Cell], seeds: u64) -> Findings {
    let about = format!(
        "A prefix of an AS that is linked to all members of a clique is withdrawn; medians of {seeds} draws of latencies."
    );
    let mut findings =
        Findings::new(Part::Cliques, about, &["UPDATEs", "s", "(n-3) MRAI, s", "(n-1) MRAI, s"]);
    for cell in cells {
        let rounds = |less: u32| f64::from(cell.size.saturating_sub(less) * cell.mrai_s);
        let cut = if cell.is_cut { ", stopped: at least" } else { "" };
        findings.row(
            format!("n = {}, MRAI {} s{cut}", cell.size, cell.mrai_s),
            [cell.updates, cell.time_s, rounds(3), rounds(1)],
        );
    }
    let of = |mrai_s: u32| cells.iter().filter(move |cell| cell.mrai_s == mrai_s);
    let line = |value: fn(&Cell) -> f64| {
        INTERVALS_S
            .map(|mrai_s| {
                let points = of(mrai_s).map(|cell| (f64::from(cell.size), value(cell))).collect();
                (format!("MRAI {mrai_s} s"), points)
            })
            .to_vec()
    };
    findings.curves = vec![
        Curves {
            title: "A withdrawal in a clique: time",
            caption: "Until the last UPDATE. With an interval, each round of longer paths takes one.",
            x: "members",
            y: "seconds",
            log_y: true,
            lines: line(|cell| cell.time_s),
        },
        Curves {
            title: "A withdrawal in a clique: UPDATEs",
            caption: "Without an interval every path that any member tries is told to all.",
            x: "members",
            y: "UPDATEs",
            log_y: true,
            lines: line(|cell| cell.updates),
        },
    ];
    findings.claims = claims(cells);
    findings
}

/// UPDATEs for all simple paths in a clique: each member tries each of its paths once and announces it to all
/// neighbors.
fn updates_max(size: u32) -> f64 {
    let others = size - 1;
    let paths: f64 =
        (0..=others).map(|length| (0..length).map(|at| f64::from(others - at)).product::<f64>()).sum();
    f64::from(size) * f64::from(size) * (paths + 1.0)
}

fn claims(cells: &[Cell]) -> Vec<Claim> {
    let with_interval: Vec<&Cell> = cells.iter().filter(|cell| cell.mrai_s > 0).collect();
    let rounds = |cell: &&Cell| cell.time_s / f64::from(cell.mrai_s);
    let within = with_interval.iter().all(|cell| {
        let least = f64::from(cell.size) - 3.0;
        (least..=f64::from(cell.size)).contains(&(rounds(cell) + 0.01))
    });
    let (first, last) = (with_interval.first(), with_interval.last());
    let text = |cell: Option<&&Cell>| {
        cell.map_or(String::new(), |cell| format!("{:.1} rounds with n = {}", rounds(cell), cell.size))
    };
    let at_once: Vec<&Cell> = cells.iter().filter(|cell| cell.mrai_s == 0 && !cell.is_cut).collect();
    let below = cells.iter().all(|cell| cell.updates <= updates_max(cell.size));
    let growth: Vec<f64> = at_once.windows(2).map(|pair| pair[1].updates / pair[0].updates).collect();
    let square = |pair: &[&Cell]| (f64::from(pair[1].size) / f64::from(pair[0].size)).powi(2);
    let is_steep = at_once.windows(2).zip(&growth).all(|(pair, growth)| *growth > square(pair));
    let fewer = with_interval.iter().filter(|cell| cell.mrai_s == 30).all(|cell| {
        at_once.iter().all(|other| other.size != cell.size || other.size < 5 || other.updates > cell.updates)
    });
    vec![
        Claim::new(
            SOURCE,
            "With an interval a withdrawal takes at least n-3 of them; a path has at most n hops, so n bound it",
            format!("{}, {}", text(first), text(last)),
            within,
        ),
        Claim::new(
            SOURCE,
            "Without an interval members try up to (n-1)! paths: UPDATEs grow faster than the square of n, within that bound",
            format!(
                "times {} for each further member; all below the bound",
                growth.iter().map(|times| format!("{times:.1}")).collect::<Vec<_>>().join(", ")
            ),
            below && is_steep && !growth.is_empty(),
        ),
        Claim::new(
            SOURCE,
            "The interval saves UPDATEs in cliques of five and more and costs time",
            "compared at each size".to_owned(),
            fewer
                && with_interval.iter().all(|cell| {
                    at_once
                        .iter()
                        .all(|other| other.size != cell.size || other.time_s < cell.time_s || cell.size == 3)
                }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time grows with the MRAI and with the size; without an MRAI it depends on latencies alone.
    #[test]
    fn time_grows_with_size_and_interval_and_without_one_with_neither() {
        let time = |size, mrai_s| withdrawal(size, mrai_s, None, 1).unwrap().time_s;
        let (small, large) = (time(4, 5), time(6, 5));
        assert!(large > small + 5.0, "{small} {large}");
        let slow = time(6, 20);
        assert!((3.0..5.0).contains(&(slow / large)), "four times the interval: {large} {slow}");
        assert!(time(4, 0) < 1.0 && time(6, 0) < 2.0);
    }

    #[test]
    fn bounds_are_those_of_small_cliques() {
        // In a clique of three, a member has the direct path, two paths through one other member and two through
        // both.
        assert_eq!(updates_max(3), 9.0 * 6.0);
    }
}
