//! A timing wheel (Varghese and Lauck, SOSP 1987, scheme 6): a list of flows for each tick of about a quarter
//! second.
//!
//! A flow is in the list of the tick at which its deadline, as known on insertion, has surely passed. Packets
//! do not move it: when the tick comes and the deadline is now later, the flow is inserted again. So a flow
//! is visited about once per idle timeout, however many packets it has. Deadlines beyond the wheel's range
//! wait in the farthest list.
//!
//! Lists are doubly linked through the entries. Both ends point to the list itself (`LIST` and its number),
//! so removal needs no search for the list.

/// A tick is two to this power of nanoseconds: 0.27 s.
pub(crate) const TICK_SHIFT: u32 = 28;
/// The number of lists: 275 s.
const LISTS: u64 = 1024;
/// Distinguishes the number of a list from a slot.
pub(crate) const LIST: u32 = 1 << 30;

/// Links between entries: slots, or the list's number at its ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Links {
    pub(crate) next: u32,
    pub(crate) prev: u32,
}

/// Gives access to the links of a slot.
pub(crate) trait Linked {
    fn links(&mut self, slot: u32) -> &mut Links;
}

#[derive(Debug)]
struct List {
    first: u32,
    last: u32,
}

/// The timing wheel; see the module documentation.
#[derive(Debug)]
pub(crate) struct Wheel {
    lists: Box<[List]>,
    /// A bit for each list that is not empty.
    occupied: [u64; (LISTS / 64) as usize],
    /// The lists of this tick and earlier ones are empty.
    now: u64,
}

/// Ticks that have passed and are not handled yet.
#[derive(Debug)]
pub(crate) struct Due {
    next: u64,
    end: u64,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        let list = |number| List { first: LIST | number, last: LIST | number };
        Self { lists: (0..LISTS as u32).map(list).collect(), occupied: [0; (LISTS / 64) as usize], now: 0 }
    }

    pub(crate) fn at(tick: u64) -> Self {
        Self { now: tick, ..Self::new() }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lists) + size_of::<Self>()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::at(self.now);
    }

    /// The tick at which a deadline has surely passed.
    #[inline(always)]
    pub(crate) fn tick_after(deadline_ns: u64) -> u64 {
        (deadline_ns >> TICK_SHIFT) + 1
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Inserts a slot that is in no list.
    #[inline(always)]
    pub(crate) fn push(&mut self, slot: u32, deadline_ns: u64, entries: &mut impl Linked) {
        let tick = Self::tick_after(deadline_ns).clamp(self.now + 1, self.now + LISTS - 1);
        let number = tick % LISTS;
        let end = LIST | number as u32;
        let list = &mut self.lists[number as usize];
        let last = list.last;
        list.last = slot;
        if last & LIST != 0 {
            list.first = slot;
            self.occupied[(number / 64) as usize] |= 1 << (number % 64);
        } else {
            entries.links(last).next = slot;
        }
        *entries.links(slot) = Links { next: end, prev: last };
    }

    #[inline(always)]
    pub(crate) fn unlink(&mut self, slot: u32, entries: &mut impl Linked) {
        let Links { next, prev } = *entries.links(slot);
        if prev & LIST == 0 {
            entries.links(prev).next = next;
        } else {
            let number = prev & !LIST;
            self.lists[number as usize].first = next;
            if next & LIST != 0 {
                self.occupied[number as usize / 64] &= !(1 << (number % 64));
            }
        }
        if next & LIST == 0 {
            entries.links(next).prev = prev;
        } else {
            self.lists[(next & !LIST) as usize].last = prev;
        }
    }

    /// The oldest slot in the first list that is not empty.
    pub(crate) fn earliest(&self) -> Option<u32> {
        let start = (self.now + 1) % LISTS;
        let words = self.occupied.len();
        let first_word = (start / 64) as usize;
        // The word of the start comes twice: first its bits after the start, at the end those before.
        (0..=words).find_map(|n| {
            let at = (first_word + n) % words;
            let after_start = u64::MAX << (start % 64);
            let mask = match n {
                0 => after_start,
                n if n == words => !after_start,
                _ => u64::MAX,
            };
            let word = self.occupied[at] & mask;
            (word != 0).then(|| self.lists[at * 64 + word.trailing_zeros() as usize].first)
        })
    }

    /// Advances to a tick. The caller must take all due lists with [`Self::detach`] before anything else.
    pub(crate) fn turn_to(&mut self, tick: u64) -> Due {
        let before = self.now;
        self.now = tick.max(before);
        Due { next: before + 1, end: self.now.min(before + LISTS) }
    }

    /// Detaches the next due list and returns its first slot. The caller follows `next` until it is no slot,
    /// and frees or inserts each of them.
    pub(crate) fn detach(&mut self, due: &mut Due) -> Option<u32> {
        while due.next <= due.end {
            let number = due.next % LISTS;
            due.next += 1;
            let bit = 1 << (number % 64);
            let word = &mut self.occupied[(number / 64) as usize];
            if *word & bit != 0 {
                *word &= !bit;
                let end = LIST | number as u32;
                let list =
                    std::mem::replace(&mut self.lists[number as usize], List { first: end, last: end });
                return Some(list.first);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    struct Entries(Vec<Links>);

    impl Linked for Entries {
        fn links(&mut self, slot: u32) -> &mut Links {
            &mut self.0[slot as usize]
        }
    }

    fn deadline(tick: u64) -> u64 {
        (tick - 1) << TICK_SHIFT
    }

    /// The slots whose deadline `tick` has passed, in the order found.
    fn over(wheel: &mut Wheel, entries: &mut Entries, tick: u64) -> Vec<u32> {
        let mut due = wheel.turn_to(tick);
        let mut found = Vec::new();
        while let Some(mut slot) = wheel.detach(&mut due) {
            while slot & LIST == 0 {
                found.push(slot);
                slot = entries.links(slot).next;
            }
        }
        found
    }

    #[test]
    fn what_is_over_is_found_in_order_whatever_was_taken_down_meanwhile() {
        let mut rng = XorShift64Star::new(5);
        for round in 0..200 {
            let mut wheel = Wheel::new();
            let base = u64::from(rng.below(1 << 20)) + 1;
            wheel.turn_to(base);
            let count = 1 + rng.below(60);
            let mut entries = Entries(vec![Links { next: 0, prev: 0 }; count as usize]);
            let mut expected = Vec::new();
            for slot in 0..count {
                let tick = base + 1 + u64::from(rng.below(if round % 2 == 0 { 12 } else { 1000 }));
                wheel.push(slot, deadline(tick), &mut entries);
                expected.push((tick, slot));
            }
            for _ in 0..rng.below(count) {
                let at = rng.below(expected.len() as u32) as usize;
                wheel.unlink(expected.remove(at).1, &mut entries);
            }
            expected.sort_by_key(|(tick, _)| *tick);
            assert_eq!(wheel.earliest(), expected.first().map(|(_, slot)| *slot));
            let until = base + u64::from(rng.below(1100));
            let (now, later): (Vec<_>, Vec<_>) = expected.into_iter().partition(|(tick, _)| *tick <= until);
            let slots = |list: Vec<(u64, u32)>| list.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>();
            assert_eq!(over(&mut wheel, &mut entries, until), slots(now));
            assert_eq!(over(&mut wheel, &mut entries, until + 1100), slots(later));
            assert_eq!(wheel.earliest(), None);
        }
    }

    #[test]
    fn deadlines_beyond_the_wheel_or_in_the_past_hang_at_its_ends() {
        let mut wheel = Wheel::new();
        let mut entries = Entries(vec![Links { next: 0, prev: 0 }; 2]);
        wheel.turn_to(5000);
        wheel.push(0, u64::MAX, &mut entries);
        wheel.push(1, 0, &mut entries);
        assert_eq!(over(&mut wheel, &mut entries, 5001), [1]);
        assert_eq!(over(&mut wheel, &mut entries, 5000 + LISTS - 2), Vec::<u32>::new());
        assert_eq!(over(&mut wheel, &mut entries, 5000 + LISTS - 1), [0]);
        assert_eq!(over(&mut wheel, &mut entries, 10), Vec::<u32>::new(), "time does not go back");
    }
}
