//! When a daemon had processed how many UPDATEs, by its own report (`show bgp functions`). It is the clock for
//! measurements without advertisement, which produce no output to time, and for the blocks of figure 4.8.
//!
//! The daemon notes a point for each batch once its whole table has it. For a block that ends inside a batch, the
//! time is interpolated: a batch is a few hundred UPDATEs, processed one after another.

use serde::Deserialize;

/// The progress of processing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// UPDATEs so far.
    pub updates: u64,
    /// Monotonic nanoseconds, and UPDATEs processed by then.
    pub points: Vec<(u64, u64)>,
}

impl Progress {
    /// When the `count` UPDATEs after the first `before` were processed; `None` if they are not.
    pub fn finished_ns(&self, before: u64, count: u64) -> Option<u64> {
        self.points.iter().find(|(_, updates)| *updates >= before + count).map(|(ns, _)| *ns)
    }

    /// Seconds for each block of `block` UPDATEs after the first `before`; the first block begins at `begun_ns`.
    /// An incomplete last block is left out.
    pub fn blocks_s(&self, before: u64, begun_ns: u64, block: u64) -> Vec<f64> {
        let mut blocks = Vec::new();
        let (mut at, mut done) = (begun_ns as f64, 0u64);
        let mut began = at;
        for (ns, updates) in self.points.iter().filter(|(_, updates)| *updates > before) {
            // Threads may add points in another order than that of their times.
            let (ns, updates) = ((*ns as f64).max(at), updates - before);
            while block > 0 && (blocks.len() as u64 + 1) * block <= updates {
                let end = (blocks.len() as u64 + 1) * block;
                let part = (end - done) as f64 / (updates - done) as f64;
                let ended = at + (ns - at) * part;
                blocks.push((ended - began) / 1e9);
                began = ended;
            }
            (at, done) = (ns, updates);
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(points: &[(u64, u64)]) -> Progress {
        Progress { updates: points.last().map_or(0, |point| point.1), points: points.to_vec() }
    }

    #[test]
    fn blocks_are_cut_out_of_batches() {
        let second = 1_000_000_000;
        // Two UPDATEs at the start of the session, then a batch of 1000 in ten seconds, one of 250 in five, one
        // of 250 in one.
        let progress = made(&[(second, 2), (20 * second, 1002), (25 * second, 1252), (26 * second, 1502)]);
        let blocks = progress.blocks_s(2, 10 * second, 500);
        assert_eq!(blocks, [5.0, 5.0, 6.0]);
        assert_eq!(progress.finished_ns(2, 1500), Some(26 * second));
        assert_eq!(progress.finished_ns(2, 1501), None);
        assert_eq!(progress.blocks_s(2, 10 * second, 0), [0.0; 0]);
        assert_eq!(made(&[]).blocks_s(0, 0, 500), [0.0; 0]);
    }

    #[test]
    fn blocks_add_up_to_the_whole() {
        let points: Vec<(u64, u64)> = (1..=40).map(|at| (1000 + at * at * 10, at * 77)).collect();
        let progress = made(&points);
        let blocks = progress.blocks_s(0, 1000, 77);
        let sum: f64 = blocks.iter().sum();
        assert_eq!(blocks.len(), 40);
        assert!((sum - 16_000e-9).abs() < 1e-12, "{sum}");
    }

    /// A part of the trace that takes twice as long shows in its own block only.
    #[test]
    fn a_slow_part_is_seen_where_it_is() {
        let mut points = Vec::new();
        let mut ns = 0;
        for batch in 1..=100u64 {
            ns += if (41..=60).contains(&batch) { 2_000 } else { 1_000 };
            points.push((ns, batch * 250));
        }
        let blocks = made(&points).blocks_s(0, 0, 500);
        for (at, block) in blocks.iter().enumerate() {
            let expected = if (20..30).contains(&at) { 4e-6 } else { 2e-6 };
            assert!((block - expected).abs() < 1e-12, "block {at}: {block}");
        }
    }
}
