//! A tree of cuts over areas: which of them may hold a packet, found without testing the others.
//!
//! A *cut* takes some bits of one part of the packet as the number of a slot. A slot has the areas that may hold
//! packets with these bits, and is cut again while they are many. Areas that would be in more than two slots are not
//! copied into them: they are the *rest* of the cut, and are cut by themselves, by another part or by other bits
//! (Vamanan et al., SIGCOMM 2010). So a packet walks down one branch for each rest, mostly one to three.
//!
//! ```text
//!   destination, bits 8 to 21: slot 5 --> source port, bits 0 to 3: slot 2 --> areas 17, 230
//!     rest --> source, bits 0 to 11: slot 900 --> (none)
//!       rest --> areas 4, 9999
//! ```
//!
//! The asker tests the areas that are found, in all parts. So a cut may name too many areas but must not miss one,
//! and needs no borders: networks far apart share a slot if these bits of theirs are equal.
//!
//! # Bounds
//! A cut of `n` areas has at most `2 n` slots, and leaves at most seven eighths of them in a slot and three quarters in
//! the rest; both copies of an area together are bounded by four times the number of areas. Areas that no cut tells
//! apart because all overlap are tested one by one: a packet that none of them holds pays for each.

/// What is known of a packet, and can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Source,
    Destination,
    /// Source port, or ICMP type and code: no packet has both.
    FirstPort,
    DestinationPort,
    Protocol,
}

/// The number of [`Part`]s.
pub(super) const PARTS: usize = Part::ALL.len();

impl Part {
    pub(super) const ALL: [Part; 5] =
        [Part::Source, Part::Destination, Part::FirstPort, Part::DestinationPort, Part::Protocol];
}

/// The first and the last number.
pub(super) type Interval = (u128, u128);

/// An area's interval of every part, by [`Part`].
pub(super) type Bounds = [Interval; PARTS];

/// Areas that are tested one by one rather than cut.
const FEW: usize = 4;
/// The most bits of a cut.
const BITS_MAX: u32 = 15;
/// Marks a node that is a cut, and one that is a single area; others are places in `leaves`.
const CUT: u32 = 1 << 31;
const ONE: u32 = 1 << 30;
/// The leaf without areas.
const EMPTY: u32 = 0;
/// Ends a leaf. No area has this number.
const END: u32 = u32::MAX;

/// The slot of a number is `number >> shift & mask`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) part: Part,
    pub(super) shift: u32,
    pub(super) mask: u32,
}

impl Window {
    /// The slots of an interval, unless they are more than two.
    fn slots(&self, bounds: &Bounds) -> Option<[usize; 2]> {
        let (first, last) = bounds[self.part as usize];
        let (first, last) = (first >> self.shift, last >> self.shift);
        let slot = |number: u128| usize::try_from(number & u128::from(self.mask)).unwrap_or(0);
        (last - first < 2).then(|| [slot(first), slot(last)])
    }
}

#[derive(Clone, Debug)]
struct Cut {
    window: Window,
    /// The place of its first slot.
    slots: u32,
    /// The node of the areas that are in no slot.
    rest: u32,
    /// The first of all its areas.
    first: u32,
}

/// The tree.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: u32,
    cuts: Vec<Cut>,
    /// The slots of all cuts: nodes.
    slots: Vec<u32>,
    /// Areas in ascending order, leaf by leaf.
    leaves: Vec<u32>,
}

impl Tree {
    /// Takes all areas, and how many bits each part has.
    pub(super) fn new(areas: &[Bounds], bits: [u32; PARTS]) -> Self {
        let tree = Self { root: EMPTY, cuts: Vec::new(), slots: Vec::new(), leaves: vec![END] };
        let mut builder = Builder { tree, areas, bits, copies_left: 4 * areas.len(), counts: Vec::new() };
        let all: Vec<u32> = (0..END).zip(areas).map(|(area, _)| area).collect();
        let root = builder.node(&all);
        Self { root, ..builder.tree }
    }

    /// The first area that `holds` the packet, whose slots `slot` tells.
    #[inline(always)]
    pub(super) fn first(
        &self,
        slot: &impl Fn(&Window) -> usize,
        holds: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut best = END;
        self.search(self.root, slot, holds, &mut best);
        (best != END).then_some(best as usize)
    }

    fn search(
        &self,
        mut node: u32,
        slot: &impl Fn(&Window) -> usize,
        holds: &impl Fn(usize) -> bool,
        best: &mut u32,
    ) {
        while node & CUT != 0 {
            let cut = &self.cuts[(node ^ CUT) as usize];
            if cut.first >= *best {
                return;
            }
            let below = self.slots[cut.slots as usize + slot(&cut.window)];
            if below & CUT == 0 {
                self.test(below, holds, best);
            } else {
                self.search(below, slot, holds, best);
            }
            node = cut.rest;
        }
        self.test(node, holds, best);
    }

    /// Tests the areas of a leaf, as far as they come before the best so far.
    #[inline(always)]
    fn test(&self, leaf: u32, holds: &impl Fn(usize) -> bool, best: &mut u32) {
        if leaf & ONE != 0 {
            let area = leaf ^ ONE;
            if area < *best && holds(area as usize) {
                *best = area;
            }
            return;
        }
        for &area in &self.leaves[leaf as usize..] {
            if area >= *best {
                return;
            }
            if holds(area as usize) {
                *best = area;
                return;
            }
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.cuts.len() * size_of::<Cut>() + (self.slots.len() + self.leaves.len()) * 4
    }
}

/// State needed only while a tree is built.
struct Builder<'a> {
    tree: Tree,
    areas: &'a [Bounds],
    bits: [u32; PARTS],
    /// How many areas may yet be in a second slot.
    copies_left: usize,
    /// The areas in each slot of a cut that is considered.
    counts: Vec<u32>,
}

impl Builder<'_> {
    /// The node of these areas, in ascending order.
    fn node(&mut self, members: &[u32]) -> u32 {
        let Some(window) = (members.len() > FEW).then(|| self.best_window(members)).flatten() else {
            return self.leaf(members);
        };
        let mut lists = vec![Vec::new(); window.mask as usize + 1];
        let mut rest = Vec::new();
        for &member in members {
            match self.slots(&window, member) {
                Some([first, last]) => {
                    lists[first].push(member);
                    if last != first {
                        lists[last].push(member);
                        self.copies_left = self.copies_left.saturating_sub(1);
                    }
                }
                None => rest.push(member),
            }
        }
        let (place, slots) = (self.tree.cuts.len(), self.tree.slots.len());
        self.tree.slots.resize(slots + lists.len(), EMPTY);
        self.tree.cuts.push(Cut { window, slots: number(slots), rest: EMPTY, first: members[0] });
        for (slot, list) in lists.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            self.tree.slots[slots + slot] = self.node(list);
        }
        self.tree.cuts[place].rest = self.node(&rest);
        number(place) | CUT
    }

    fn leaf(&mut self, members: &[u32]) -> u32 {
        match members {
            [] => return EMPTY,
            [area] => return area | ONE,
            _ => {}
        }
        let place = number(self.tree.leaves.len());
        self.tree.leaves.extend(members.iter().chain([&END]));
        place
    }

    fn slots(&self, window: &Window, member: u32) -> Option<[usize; 2]> {
        let slots = window.slots(&self.areas[member as usize])?;
        (slots[0] == slots[1] || self.copies_left > 0).then_some(slots)
    }

    /// The window that leaves the fewest areas to a packet; `None` if no window is worth a cut. Bits below the size of
    /// the smallest areas tell nothing apart, so windows begin at sizes that areas have.
    fn best_window(&mut self, members: &[u32]) -> Option<Window> {
        let mut best = None;
        let mut fewest = members.len() * 3 / 4 + 1;
        let wanted = (members.len().ilog2() + 1).min(BITS_MAX);
        for part in Part::ALL {
            let width = self.bits[part as usize];
            let mut sizes = [false; 129]; // widths of u128, 0 too
            for &member in members {
                let (first, last) = self.areas[member as usize][part as usize];
                sizes[(u128::BITS - (last - first).leading_zeros()) as usize] = true;
            }
            for shift in (0..width).filter(|shift| sizes[*shift as usize]) {
                let window = Window { part, shift, mask: (1 << wanted.min(width - shift)) - 1 };
                if let Some(left) = self.left(members, &window).filter(|left| *left < fewest) {
                    (best, fewest) = (Some(window), left);
                }
            }
        }
        best
    }

    /// How many areas a cut leaves to a packet that some area in a slot is about; `None` if nearly all are in one slot.
    fn left(&mut self, members: &[u32], window: &Window) -> Option<usize> {
        let mut counts = std::mem::take(&mut self.counts);
        counts.clear();
        counts.resize(window.mask as usize + 1, 0);
        let (mut all, mut squares, mut rest) = (0, 0, 0);
        for &member in members {
            let Some([first, last]) = self.slots(window, member) else {
                rest += 1;
                continue;
            };
            for slot in [Some(first), (last != first).then_some(last)].into_iter().flatten() {
                squares += 2 * counts[slot] as usize + 1;
                all += 1;
                counts[slot] += 1;
            }
        }
        let largest = counts.iter().max().map_or(0, |count| *count as usize);
        self.counts = counts;
        (all > 0 && largest * 8 <= members.len() * 7).then(|| squares / all + rest)
    }
}

/// Places fit: a table has at most [`super::table::AREAS_MAX`] areas.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(END)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    const BITS: [u32; PARTS] = [32, 128, 18, 18, 8];

    /// A point in an area or near it.
    type Point = [u128; PARTS];

    /// The first area that holds a point, and how many were tested.
    fn first(tree: &Tree, areas: &[Bounds], point: &Point) -> (Option<usize>, usize) {
        let tested = Cell::new(0);
        let slot = |window: &Window| {
            usize::try_from(point[window.part as usize] >> window.shift & u128::from(window.mask)).unwrap()
        };
        let holds = |area: usize| {
            tested.set(tested.get() + 1);
            is_in(&areas[area], point)
        };
        (tree.first(&slot, &holds), tested.get())
    }

    fn is_in(area: &Bounds, point: &Point) -> bool {
        area.iter().zip(point).all(|((first, last), number)| (first..=last).contains(&number))
    }

    /// An interval of a part: all of it, a piece of the size of a network, or any.
    fn interval(bits: u32) -> impl Strategy<Value = Interval> {
        let last = u128::MAX >> (128 - bits);
        let any = move || any::<u128>().prop_map(move |n| n & last);
        // Numbers at both ends of the range, so that areas are close to each other.
        let low = move || (0u128..600).prop_map(move |n| n.min(last));
        let close = move || prop_oneof![low(), low().prop_map(move |n| last - n), any()];
        prop_oneof![
            2 => Just((0, u128::MAX)),
            3 => (close(), 0..bits).prop_map(move |(n, size)| {
                let hosts = (1u128 << size) - 1;
                (n & !hosts, n | hosts)
            }),
            1 => (close(), close()).prop_map(|(a, b)| (a.min(b), a.max(b))),
        ]
    }

    fn area() -> impl Strategy<Value = Bounds> {
        BITS.map(interval)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_tree_finds_the_first_area(
            kinds in prop::collection::vec(area(), 1..40),
            order in prop::collection::vec((any::<prop::sample::Index>(), 0..PARTS, 0u128..3000), 1..700),
            points in prop::collection::vec((any::<prop::sample::Index>(), any::<[bool; PARTS]>(), 0u128..3), 200),
        ) {
            // Areas of few kinds that differ in one part, so that some are many and overlap.
            let areas: Vec<Bounds> = order.iter().map(|(kind, part, n)| {
                let mut area = kinds[kind.index(kinds.len())];
                let last = u128::MAX >> (128 - BITS[*part]);
                area[*part] = ((n * 5).min(last), (n * 5 + n % 7).min(last));
                area
            }).collect();
            let tree = Tree::new(&areas, BITS);
            for (area, ends, beyond) in &points {
                let near = areas[area.index(areas.len())];
                let mut point = [0; PARTS];
                for (number, (((first, last), is_last), bits)) in
                    point.iter_mut().zip(near.into_iter().zip(ends).zip(BITS))
                {
                    let most = u128::MAX >> (128 - bits);
                    let last = last.min(most);
                    *number = match is_last {
                        true => last + (most - last).min(*beyond),
                        false => first.saturating_sub(*beyond),
                    };
                }
                let plainly = areas.iter().position(|area| is_in(area, &point));
                prop_assert_eq!(first(&tree, &areas, &point).0, plainly);
            }
            prop_assert!(tree.leaves.len() <= 10 * areas.len() + 1, "{} entries", tree.leaves.len());
        }
    }

    #[test]
    fn ten_thousand_areas_are_few_tests() {
        fn network(part: usize, n: u128) -> Bounds {
            let mut area = [(0, u128::MAX); PARTS];
            area[part] = (n << 8, n << 8 | 255);
            area
        }
        fn pair(n: u128) -> Bounds {
            let mut area = network(0, n / 100);
            (area[1], area[3]) = ((n % 100, n % 100), (443, 443));
            area
        }
        // Networks of one side, of either side, and pairs of networks and hosts; and an area for everything last.
        let kinds: [fn(u128) -> Bounds; 3] = [|n| network(1, n), |n| network((n % 2) as usize, n), pair];
        for kind in kinds {
            let areas: Vec<Bounds> = (0..9_999).map(kind).chain([[(0, u128::MAX); PARTS]]).collect();
            let tree = Tree::new(&areas, BITS);
            for n in (0..10_000usize).step_by(7) {
                let point = areas[n].map(|interval| interval.0);
                let (found, tested) = first(&tree, &areas, &point);
                assert!(found.is_some_and(|found| is_in(&areas[found], &point)), "{n}");
                assert!(tested <= 12, "{n}: {tested} tests");
            }
            assert!(tree.memory_bytes() < 400_000, "{}", tree.memory_bytes());
        }
    }
}
