//! The lines of one bank in the order of their last use, and the depth at which accesses find them.
//!
//! A line has the *place* of its last access; a Fenwick tree counts the occupied places, so the number of lines
//! used since then is the difference of two sums. When places run out, lines are renumbered in their order.

use super::At;
use std::collections::HashMap;

/// Distances are classified by their number of binary digits, up to 2^32 lines.
pub(super) const CLASSES: u32 = 32;
/// The class of accesses without a valid copy.
const NO_COPY: usize = CLASSES as usize + 1;
const FIRST_PLACES: usize = 1 << 12;

#[derive(Default)]
pub(super) struct Stack {
    lines: HashMap<u64, Standing>,
    tree: Vec<u32>,
    next: usize,
    /// Accesses by class of distance, when reading and at the table; the last class has no valid copy.
    found: [Vec<u64>; 2],
}

#[derive(Clone, Copy)]
struct Standing {
    place: usize,
    version: u32,
}

impl Stack {
    /// Accesses a line that has this version. A store to a valid copy keeps the copy valid.
    pub(super) fn touch(&mut self, line: u64, version: u32, stores: bool, at: At) {
        if self.next == self.tree.len() {
            self.make_room();
        }
        let place = self.next;
        self.next += 1;
        let before = self.lines.insert(line, Standing { place, version });
        let is_good =
            |before: &Standing| before.version == version || (stores && before.version + 1 == version);
        let class = match before.as_ref().filter(|before| is_good(before)) {
            Some(before) => {
                let since = self.lines.len() - self.taken_up_to(before.place);
                // Distance 0 is class 0; 1 is 1; 2 and 3 are 2.
                (usize::BITS - since.leading_zeros()).min(CLASSES) as usize
            }
            None => NO_COPY,
        };
        if let Some(before) = before {
            self.add(before.place, false);
        }
        self.add(place, true);
        let found = &mut self.found[usize::from(at == At::Table)];
        found.resize(NO_COPY + 1, 0);
        found[class] += 1;
    }

    /// Misses in a cache of 2^`class` lines.
    pub(super) fn misses(&self, class: u32, at: Option<At>) -> u64 {
        let of = |found: &Vec<u64>| found.iter().skip(class as usize + 1).sum::<u64>();
        match at {
            None => self.found.iter().map(of).sum(),
            Some(at) => of(&self.found[usize::from(at == At::Table)]),
        }
    }

    pub(super) fn accesses(&self) -> u64 {
        self.found.iter().flatten().sum()
    }

    pub(super) fn unavoidable(&self) -> u64 {
        self.found.iter().map(|found| found.get(NO_COPY).copied().unwrap_or_default()).sum()
    }

    fn add(&mut self, place: usize, taken: bool) {
        let mut at = place + 1;
        while at <= self.tree.len() {
            self.tree[at - 1] = self.tree[at - 1].wrapping_add_signed(if taken { 1 } else { -1 });
            at += at & at.wrapping_neg();
        }
    }

    /// The number of lines at this place or before it.
    fn taken_up_to(&self, place: usize) -> usize {
        let (mut at, mut sum) = (place + 1, 0);
        while at > 0 {
            sum += self.tree[at - 1] as usize;
            at &= at - 1;
        }
        sum
    }

    fn make_room(&mut self) {
        let mut standing: Vec<&mut Standing> = self.lines.values_mut().collect();
        standing.sort_unstable_by_key(|standing| standing.place);
        standing.iter_mut().zip(0..).for_each(|(standing, place)| standing.place = place);
        self.next = self.lines.len();
        self.tree = vec![0; (2 * self.next).max(FIRST_PLACES)];
        (0..self.next).for_each(|place| self.add(place, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    /// Compares with a plain list, for every size of cache, over more accesses than there are places.
    #[test]
    fn distances_are_those_of_a_list() {
        let mut rng = XorShift64Star::new(5);
        let (mut stack, mut list) = (Stack::default(), Vec::<u64>::new());
        let mut misses = [0; 13];
        for access in 0..30_000 {
            // Some lines are accessed far more often than others.
            let most = 1 + rng.below(if access < 15_000 { 300 } else { 3000 });
            let line = u64::from(rng.below(most));
            let depth = list.iter().rev().position(|known| *known == line);
            for (class, misses) in (0..).zip(&mut misses) {
                *misses += u64::from(depth.is_none_or(|depth| depth >= 1 << class));
            }
            list.retain(|known| *known != line);
            list.push(line);
            stack.touch(line, 0, false, At::Reading);
        }
        let found: Vec<u64> = (0..13).map(|class| stack.misses(class, None)).collect();
        assert_eq!(found, misses);
        assert_eq!((stack.accesses(), stack.unavoidable()), (30_000, list.len() as u64));
        assert_eq!((stack.misses(3, Some(At::Reading)), stack.misses(3, Some(At::Table))), (misses[3], 0));
    }

    #[test]
    fn a_worthless_copy_is_a_miss_and_ones_own_store_is_none() {
        let mut stack = Stack::default();
        for (version, stores, unavoidable) in
            [(0, false, 1), (0, true, 1), (1, true, 1), (3, false, 2), (3, false, 2)]
        {
            stack.touch(9, version, stores, At::Table);
            assert_eq!(stack.unavoidable(), unavoidable, "version {version}");
        }
    }
}
