//! Where a serial run spends its time: the bottom-up view of the article's analysis, the synthetic work as a line of its
//! own.
//!
//! The stages are driven as the serial model drives them, with the time stamp counter read between them, over the packets
//! of a run. A share is of all stages' ticks.

use serde::Serialize;
use thalweg_base::Chunk;
use thalweg_exec::Plan;
use thalweg_node::plan::RouterPlan;

use crate::stages::measure::walk;

/// All stages with synthetic work, by the beginning of their names.
const WORK: &str = "work-";

/// What one stage takes of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotSpot {
    /// The synthetic work of the run, as on the command line.
    pub work: String,
    pub stage: String,
    /// Its share of the time.
    pub share: f64,
    /// Ticks of the time stamp counter for each packet.
    pub ticks_per_packet: f64,
}

/// Drives all chunks through the router's stages. `reading_ticks` is what reading the counter takes.
pub(super) fn measure(work: &str, plan: &RouterPlan, chunks: Vec<Chunk>, reading_ticks: f64) -> Vec<HotSpot> {
    let mut scratch = plan.scratch();
    let names: Vec<&str> = plan.stages().iter().map(|stage| stage.name.as_str()).collect();
    let mut spent = vec![0; names.len()];
    let mut packets = 0;
    for mut chunk in chunks {
        packets += chunk.packets().len();
        walk(plan, &mut scratch, &mut chunk, reading_ticks, &mut spent);
    }
    sum_up(work, &names, &spent, packets)
}

/// The largest first.
fn sum_up(work: &str, names: &[&str], spent: &[u64], packets: usize) -> Vec<HotSpot> {
    let all = spent.iter().sum::<u64>().max(1) as f64;
    let mut spots: Vec<HotSpot> = Vec::new();
    for (name, ticks) in names.iter().zip(spent) {
        let stage = if name.starts_with(WORK) { "synthetic work" } else { name };
        let (share, each) = (*ticks as f64 / all, *ticks as f64 / packets.max(1) as f64);
        match spots.iter_mut().find(|spot| spot.stage == stage) {
            Some(spot) => {
                spot.share += share;
                spot.ticks_per_packet += each;
            }
            None => spots.push(HotSpot {
                work: work.to_owned(),
                stage: stage.to_owned(),
                share,
                ticks_per_packet: each,
            }),
        }
    }
    spots.sort_by(|a, b| b.share.total_cmp(&a.share));
    spots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_work_is_one_line_and_shares_add_up() {
        let names = ["ingress", "work-bandwidth", "nat", "work-nat", "route"];
        let spots = sum_up("queens:8", &names, &[100, 400, 100, 300, 100], 10);
        let lines: Vec<(&str, f64)> = spots.iter().map(|s| (s.stage.as_str(), s.ticks_per_packet)).collect();
        assert_eq!(lines, [("synthetic work", 70.0), ("ingress", 10.0), ("nat", 10.0), ("route", 10.0)]);
        assert!((spots.iter().map(|spot| spot.share).sum::<f64>() - 1.0).abs() < 1e-12);
        // Planted slowness in a stage moves its line.
        let slower = sum_up("none", &names, &[100, 400, 1100, 300, 100], 10);
        assert_eq!((slower[0].stage.as_str(), slower[0].share), ("nat", 0.55));
        assert!(sum_up("none", &[], &[], 0).is_empty());
    }
}
