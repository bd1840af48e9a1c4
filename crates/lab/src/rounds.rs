//! The order in which cells are measured.
//!
//! On a shared machine the minute of a measurement matters as much as its subject. So each round measures all cells
//! once, in an order of its own, and a disturbance touches all cells alike.

use thalweg_base::XorShift64Star;

use crate::stats::shuffle;

/// How often, and in which order.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Measured rounds.
    pub runs: usize,
    /// Rounds before them that do not count.
    pub warm_ups: usize,
    /// Decides the order within each round.
    pub seed: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { runs: 5, warm_ups: 1, seed: XorShift64Star::DEFAULT_SEED }
    }
}

impl RunOptions {
    /// How many turns there are for so many cells.
    pub fn total(&self, cells: usize) -> usize {
        cells * (self.runs + self.warm_ups)
    }

    /// Gives each of `cells` cells its turn in each round.
    pub(crate) fn rounds<E>(
        &self,
        cells: usize,
        mut turn: impl FnMut(Turn) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rng = XorShift64Star::new(self.seed);
        let mut order: Vec<usize> = (0..cells).collect();
        let total = self.total(cells);
        for round in 0..self.warm_ups + self.runs {
            shuffle(&mut order, &mut rng);
            for (nth, &at) in order.iter().enumerate() {
                let counts = round >= self.warm_ups;
                turn(Turn { at, counts, done: round * cells + nth, total })?;
            }
        }
        Ok(())
    }
}

/// A cell's turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The cell.
    pub(crate) at: usize,
    /// Whether the round is no warm-up.
    pub(crate) counts: bool,
    /// Turns before this one.
    pub(crate) done: usize,
    pub(crate) total: usize,
}
