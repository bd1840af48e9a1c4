//! One flap behind a clique: because of path exploration, an AS behind one of its members sees many flaps.

use thalweg_sim::churn::Change;

use super::bed::{Bed, Setup, clique};
use super::{Claim, Curves, Findings, Options, Part};
use crate::network::NetworkError;

const MAO: &str = "Mao, Govindan, Varghese, Katz 2002";
const RFC: &str = "RFC 7196 section 6";
/// A longer time without the prefix is suppression, not convergence.
const CUT_OFF_S: f64 = 300.0;
/// How long the prefix is withdrawn.
const GONE_US: u64 = 180_000_000;
const TWO_HOURS_US: u64 = 7_200_000_000;

/// The sets of parameters, with names.
const PARAMETERS: [(&str, &str); 3] = [
    ("no damping", ""),
    (
        "old",
        "damping = { suppress_threshold = 2000, penalty_max = 12000, reuse_threshold = 750, half_life_s = 900, \
         max_suppress_s = 3600 }\n",
    ),
    ("RFC 7196", "damping = { suppress_threshold = 6000, penalty_max = 50000 }\n"),
];

pub(super) fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let sizes = if options.quick { 5..=5 } else { 3..=10 };
    let about = "An AS behind one member of a clique withdraws its prefix once and announces it again three minutes later, MRAI \
                 30 s. Behind each other member is an AS that has no other path. Old: suppressed above a penalty of 2000.";
    let mut findings =
        Findings::new(Part::Damping, about, &["cut off for over 5 min, %", "longest, min", "UPDATEs"]);
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut longest = [0.0_f64; 3];
    for (place, (name, keys)) in PARAMETERS.into_iter().enumerate() {
        let mut points = Vec::new();
        for size in sizes.clone() {
            progress(&format!("one flap behind a clique of {size}, {name}"));
            let flap = flap(size, keys, options.seed)?;
            longest[place] = longest[place].max(flap.longest_s);
            findings.row(
                format!("n = {size}, {name}"),
                [flap.cut_off * 100.0, flap.longest_s / 60.0, flap.updates],
            );
            points.push((f64::from(size), flap.longest_s / 60.0));
        }
        lines.push((name.to_owned(), points));
    }
    findings.curves.push(Curves {
        title: "One flap",
        caption: "From the announcement until the last AS behind the clique has its path again.",
        x: "members of the clique",
        y: "minutes",
        log_y: false,
        lines,
    });
    let minutes = |place: usize| longest[place] / 60.0;
    findings.claims = vec![
        Claim::new(
            MAO,
            "With usual parameters a single flap can cut a network off for up to an hour",
            format!("for up to {:.0} min, without damping {:.1}", minutes(1), minutes(0)),
            (CUT_OFF_S..=3600.0 + CUT_OFF_S).contains(&longest[1]) && longest[0] < CUT_OFF_S,
        ),
        Claim::new(
            RFC,
            "A threshold of 6000 does not punish a prefix for being well connected",
            format!("back after {:.1} min at most", minutes(2)),
            longest[2] < CUT_OFF_S,
        ),
    ];
    Ok(findings)
}

struct Flap {
    /// The share of the ASes behind the clique that had no path for longer than [`CUT_OFF_S`].
    cut_off: f64,
    longest_s: f64,
    updates: f64,
}

/// ASes 1 to n are the clique, n + 1 owns the prefix, and the others are behind the members.
fn flap(size: u32, keys: &str, seed: u64) -> Result<Flap, NetworkError> {
    let behind = (1..=size).map(|member| (member, size + member));
    let graph = clique(size, &behind.collect::<Vec<_>>(), seed)?;
    let origin = size as usize;
    let mut bed = Bed::new(Setup { keys: keys.to_owned(), ..Setup::of(graph, seed).mrai_s(30) })?;
    bed.happen(&[Change::Announce { node: origin, prefix: 0 }])?;
    let gone = bed
        .observe_for(GONE_US, |simulation| simulation.apply(Change::Withdraw { node: origin, prefix: 0 }))?;
    let back = bed.observe_for(TWO_HOURS_US, |simulation| {
        simulation.apply(Change::Announce { node: origin, prefix: 0 })
    })?;
    let late = back.converged_s.iter().filter(|time| **time > CUT_OFF_S).count();
    Ok(Flap {
        cut_off: late as f64 / f64::from(size - 1),
        longest_s: back.converged_s.iter().copied().fold(0.0, f64::max),
        updates: (gone.updates + back.updates) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Damping cuts off ASes, and its threshold decides.
    #[test]
    fn a_flap_is_punished_by_old_parameters_alone() {
        let longest = |place: usize| flap(6, PARAMETERS[place].1, 1).unwrap().longest_s;
        let [none, old, new] = [0, 1, 2].map(longest);
        assert!(none < CUT_OFF_S && new < CUT_OFF_S, "{none} {new}");
        assert!((600.0..4000.0).contains(&old), "{old}");
    }
}
