//! The best MRAI: with too short a one, routers are busy with obsolete paths; with too long a one, they wait for
//! nothing.

use thalweg_sim::{Costs, Random};

use super::cliques::withdrawal;
use super::{Claim, Curves, Findings, Options, Part, median};
use crate::network::NetworkError;

const SOURCE: &str = "Griffin, Premore 2001";

pub(super) fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let (size, intervals_s, seeds): (u32, &[u32], u64) =
        if options.quick { (5, &[0, 5, 30], 1) } else { (8, &[0, 1, 2, 3, 5, 8, 12, 20, 30, 45], 5) };
    let about = format!(
        "A withdrawal in a clique of {size}; medians of {seeds} draws. An UPDATE costs a router nothing, or 0.01 to 1 s as \
         the paper assumes."
    );
    let mut findings = Findings::new(Part::Mrai, about, &["s", "UPDATEs"]);
    let mut lines = Vec::new();
    for (name, costs) in [("no cost", None), ("0.01 to 1 s an UPDATE", Some(of_the_paper(options.seed)))] {
        let mut points = Vec::new();
        for &mrai_s in intervals_s {
            progress(&format!("MRAI {mrai_s} s, {name}"));
            let (mut times, mut updates) = (Vec::new(), Vec::new());
            for seed in 0..seeds {
                let seen = withdrawal(size, mrai_s, costs.as_ref(), options.seed + seed)?;
                times.push(seen.time_s);
                updates.push(seen.updates as f64);
            }
            let time_s = median(&mut times);
            findings.row(format!("MRAI {mrai_s} s, {name}"), [time_s, median(&mut updates)]);
            points.push((f64::from(mrai_s), time_s));
        }
        lines.push((name.to_owned(), points));
    }
    findings.claims = claims(&lines[0].1, &lines[1].1);
    findings.curves.push(Curves {
        title: "The best interval",
        caption: "Until the last UPDATE. What an UPDATE costs decides where the best interval is.",
        x: "MRAI, s",
        y: "seconds",
        log_y: true,
        lines,
    });
    Ok(findings)
}

/// Costs between 0.01 and 1 s, uniformly distributed, as in the paper.
fn of_the_paper(seed: u64) -> Costs {
    let mut random = Random::of(seed, 0x6d72_6169);
    (0..1024).map(|_| 10_000_000 + random.below(990_000_000) as u64).collect::<Vec<u64>>().into()
}

/// The x of the smallest y.
fn best(points: &[(f64, f64)]) -> f64 {
    points.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0.0, |point| point.0)
}

fn claims(free: &[(f64, f64)], costly: &[(f64, f64)]) -> Vec<Claim> {
    let ends =
        |points: &[(f64, f64)]| (points.first().map_or(0.0, |p| p.0), points.last().map_or(0.0, |p| p.0));
    let (best_costly, best_free) = (best(costly), best(free));
    let (first, last) = ends(costly);
    vec![
        Claim::new(
            SOURCE,
            "There is an interval at which convergence is fastest, and it is neither 0 nor 30 s",
            format!("{best_costly:.0} s"),
            best_costly > first && best_costly < last,
        ),
        Claim::new(
            SOURCE,
            "It follows from the cost of an UPDATE: without one, no interval is best",
            format!("{best_free:.0} s"),
            best_free == 0.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Processing costs add to the time, but only where there is something to process.
    #[test]
    fn what_an_update_costs_is_in_the_time() {
        let costs: Costs = Arc::from([200_000_000_u64]);
        let free = withdrawal(4, 0, None, 1).unwrap().time_s;
        let costly = withdrawal(4, 0, Some(&costs), 1).unwrap().time_s;
        assert!(free < 0.5 && costly > free + 0.4, "{free} {costly}");
        let again = withdrawal(4, 0, Some(&costs), 1).unwrap();
        assert_eq!(again.time_s, costly, "the same table, the same run");
    }

    #[test]
    fn the_best_is_the_lowest_point() {
        assert_eq!(best(&[(0.0, 9.0), (5.0, 3.0), (30.0, 40.0)]), 5.0);
        let verdicts = |free: &[(f64, f64)], costly: &[(f64, f64)]| {
            claims(free, costly).iter().map(|claim| claim.verdict.to_string()).collect::<Vec<_>>()
        };
        let (rising, valley) = ([(0.0, 1.0), (5.0, 3.0)], [(0.0, 9.0), (5.0, 3.0), (30.0, 40.0)]);
        assert_eq!(verdicts(&rising, &valley), ["reproduced", "reproduced"]);
        assert_eq!(verdicts(&valley, &rising), ["differs", "differs"]);
    }
}
