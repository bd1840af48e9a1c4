//! Figure 5.1 by a cache model: misses over the size of a core's cache, from the addresses that the shipped code
//! accesses.
//!
//! ```text
//! valgrind --tool=lackey ── thalweg lab bgp --alone ──> every load and store, with marks between them
//!      marks: whose turn it is, and whether it reads or is at the table            │
//!                                   each scheduling's caches: one bank a core ─ Stack (LRU distances) ─> Curve
//! ```
//!
//! One thread plays all neighbors' turns in a realistic order (`in_memory::alone`), so addresses do not depend on
//! a scheduling. What a scheduling decides is *which core* has a turn: `serial` has one, `per-peer` one for each neighbor,
//! `dynamic` deals turns out. An access goes to the bank of its core. A store there makes copies elsewhere worthless, as
//! MOSI, which the thesis simulated, does.
//!
//! A bank is fully associative and replaces the least recently used line. So an access hits in every cache that has
//! more lines than were touched since the last access to its line: one pass over the addresses gives the misses of
//! *all* sizes (Mattson et al., "Evaluation techniques for storage hierarchies", 1970). So a curve depends on the
//! size of the cache alone.
//!
//! Missing: instructions (the thesis's level-1 caches were split), sets and ways, prefetching, time. The kernel's
//! accesses during reads and writes are not recorded.

mod record;
mod stack;

pub use record::{END, PAUSE, RecordError, Recorder, marks_address, turn_mark};
pub(crate) use record::{mark, record};

use serde::Serialize;
use stack::{CLASSES, Stack};
use std::collections::HashMap;

/// Bytes of a cache line, here and in the thesis.
pub const LINE: u64 = 64;
/// A cache is large enough if it misses at most this many times as often as an infinite one.
const SETTLED: f64 = 1.1;
/// Sizes shown, as powers of two of lines: 4 KiB to 16 MiB.
const SHOWN: std::ops::RangeInclusive<u32> = 6..=18;

/// What a turn does at an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Reading, decoding and policy.
    Reading,
    Table,
}

/// A load or store of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub address: u64,
    pub bytes: u64,
    pub stores: bool,
}

/// The turn that an access belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub neighbor: usize,
    /// The number of turns of all neighbors before it.
    pub number: usize,
    pub at: At,
}

/// Misses for one cache size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The size of one core's cache.
    pub bank_bytes: u64,
    pub misses_per_update: f64,
    /// The misses at the table among them.
    pub table_misses_per_update: f64,
}

/// A scheduling's misses by cache size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    pub scheduling: String,
    /// Cores, each with its own bank.
    pub cores: usize,
    pub accesses_per_update: f64,
    /// Memory touched by all cores; lines that several cores touch count once.
    pub touched_bytes: u64,
    pub points: Vec<Point>,
    /// Misses at any size: first accesses, and lines that another core has written.
    pub unavoidable_per_update: f64,
    /// The smallest bank with hardly more misses than that.
    pub settles_at_bytes: Option<u64>,
}

/// A line's state over all cores.
struct Line {
    /// Incremented by each store that invalidates copies.
    version: u32,
    /// The core with the only copy, if there is just one.
    sole: Option<usize>,
}

struct Banks {
    scheduling: &'static str,
    core_of: fn(Turn, usize) -> usize,
    stacks: Vec<Stack>,
    lines: HashMap<u64, Line>,
}

impl Banks {
    fn new(scheduling: &'static str, cores: usize, core_of: fn(Turn, usize) -> usize) -> Self {
        let stacks = (0..cores).map(|_| Stack::default()).collect();
        Self { scheduling, core_of, stacks, lines: HashMap::new() }
    }

    fn touch(&mut self, line: u64, stores: bool, turn: Turn) {
        let core = (self.core_of)(turn, self.stacks.len());
        let known = self.lines.entry(line).or_insert(Line { version: 0, sole: Some(core) });
        if known.sole != Some(core) {
            if stores {
                known.version += 1;
                known.sole = Some(core);
            } else {
                known.sole = None;
            }
        }
        // If a core that shares the line stores to it, its own copy stays valid: it only needs ownership.
        self.stacks[core].touch(line, known.version, stores, turn.at);
    }

    fn curve(&self, updates: u64) -> Curve {
        let each = |count: u64| count as f64 / updates.max(1) as f64;
        let sum = |of: &dyn Fn(&Stack) -> u64| self.stacks.iter().map(of).sum::<u64>();
        let misses = |class: u32| sum(&|stack| stack.misses(class, None));
        let unavoidable = sum(&Stack::unavoidable);
        let settled = (0..=CLASSES).find(|class| misses(*class) as f64 <= unavoidable as f64 * SETTLED);
        let points = SHOWN.map(|class| Point {
            bank_bytes: LINE << class,
            misses_per_update: each(misses(class)),
            table_misses_per_update: each(sum(&|stack| stack.misses(class, Some(At::Table)))),
        });
        Curve {
            scheduling: self.scheduling.to_owned(),
            cores: self.stacks.len(),
            accesses_per_update: each(sum(&Stack::accesses)),
            touched_bytes: self.lines.len() as u64 * LINE,
            points: points.collect(),
            unavoidable_per_update: each(unavoidable),
            settles_at_bytes: settled.map(|class| LINE << class),
        }
    }
}

/// The caches of all schedulings.
pub struct Caches {
    banks: Vec<Banks>,
}

impl Caches {
    /// Schedulings that use several cores get one core per neighbor.
    pub fn new(neighbors: usize) -> Self {
        let neighbors = neighbors.max(1);
        Self {
            banks: vec![
                Banks::new("serial", 1, |_, _| 0),
                Banks::new("per-peer", neighbors, |turn, cores| turn.neighbor % cores),
                Banks::new("dynamic", neighbors, |turn, cores| turn.number % cores),
            ],
        }
    }

    /// Accesses all lines that an access covers.
    pub fn access(&mut self, turn: Turn, access: Access) {
        let last = access.address + access.bytes.max(1) - 1;
        for line in access.address / LINE..=last / LINE {
            self.banks.iter_mut().for_each(|banks| banks.touch(line, access.stores, turn));
        }
    }

    /// The curves, per UPDATE.
    pub fn curves(&self, updates: u64) -> Vec<Curve> {
        self.banks.iter().map(|banks| banks.curve(updates)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READING: At = At::Reading;

    fn load(line: u64) -> Access {
        Access { address: line * LINE + 8, bytes: 8, stores: false }
    }

    fn store(line: u64) -> Access {
        Access { stores: true, ..load(line) }
    }

    /// Four neighbors that each walk over their own lines, and over lines that all share; `rounds` times.
    fn walked(own: u64, common: u64, rounds: u64) -> Vec<Curve> {
        let mut caches = Caches::new(4);
        for number in 0..4 * rounds {
            let neighbor = usize::try_from(number % 4).unwrap();
            let turn = Turn { neighbor, number: usize::try_from(number).unwrap(), at: At::Table };
            let first = 1_000_000 * (1 + number % 4);
            (first..first + own).chain(0..common).for_each(|line| caches.access(turn, load(line)));
        }
        caches.curves(rounds)
    }

    fn settles(curves: &[Curve], scheduling: &str) -> u64 {
        curves.iter().find(|curve| curve.scheduling == scheduling).unwrap().settles_at_bytes.unwrap()
    }

    /// The knee of the curve is where the working set fits: that of all neighbors in one cache, or that of one
    /// neighbor in its own.
    #[test]
    fn a_curve_settles_where_the_working_set_fits() {
        let curves = walked(1000, 20, 12);
        assert_eq!((settles(&curves, "serial"), settles(&curves, "per-peer")), (4096 * LINE, 1024 * LINE));
        // Turns dealt to four cores in rotation give each neighbor its own core, too.
        assert_eq!(settles(&curves, "dynamic"), 1024 * LINE);
        let larger = walked(4000, 20, 12);
        assert_eq!((settles(&larger, "serial"), settles(&larger, "per-peer")), (16384 * LINE, 4096 * LINE));
    }

    /// Repeating the same walk does not enlarge the working set; only the first rounds miss.
    #[test]
    fn a_longer_walk_moves_nothing() {
        let (short, long) = (walked(1000, 20, 12), walked(1000, 20, 40));
        for (short, long) in short.iter().zip(&long) {
            assert_eq!(short.settles_at_bytes, long.settles_at_bytes, "{}", short.scheduling);
            assert_eq!(short.touched_bytes, long.touched_bytes);
            assert!((short.accesses_per_update - long.accesses_per_update).abs() < 1e-9);
        }
        for curve in &long {
            assert!(
                curve.points.windows(2).all(|pair| pair[0].misses_per_update >= pair[1].misses_per_update)
            );
            let smallest = curve.points[0].misses_per_update;
            assert!((smallest - curve.accesses_per_update).abs() < 1e-9, "a walk is longer than 4 KiB");
        }
    }

    /// A line that two cores write alternately is a miss for both in a cache of any size; a line that they only
    /// read is not.
    #[test]
    fn what_others_write_is_missed_however_large_the_cache() {
        let misses = |access: fn(u64) -> Access| {
            let mut caches = Caches::new(2);
            for number in 0..1000 {
                caches.access(Turn { neighbor: number % 2, number, at: READING }, access(7));
            }
            let curves = caches.curves(1000);
            [0, 1].map(|at| curves[at].unavoidable_per_update)
        };
        assert_eq!(misses(load), [0.001, 0.002]);
        assert_eq!(misses(store), [0.001, 1.0]);
    }

    #[test]
    fn misses_at_the_table_are_those_of_the_table() {
        let mut caches = Caches::new(2);
        for line in 0..300 {
            let at = if line < 100 { At::Table } else { READING };
            caches.access(Turn { neighbor: 0, number: 0, at }, load(line));
        }
        let point = caches.curves(1)[0].points[0];
        assert_eq!((point.misses_per_update, point.table_misses_per_update), (300.0, 100.0));
        // An access that crosses from one line to the next.
        caches.access(
            Turn { neighbor: 0, number: 0, at: READING },
            Access { address: 1_000_060, bytes: 8, stores: true },
        );
        assert_eq!(caches.curves(1)[0].points[0].misses_per_update, 302.0);
    }
}
