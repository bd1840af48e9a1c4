//! The automaton of a pattern: a bit for each live position.
//!
//! ```text
//! tree ──Thompson──> nodes: Consume | Split | OnlyAtStart | OnlyAtEnd | Found
//!      ──closure───> for each place: places that may follow, whether the pattern is found, or is at the end
//! ```
//!
//! Construction eliminates empty steps. It follows them three times, for the beginning, the middle and the end of a
//! path, because `^` and `$` hold only at the ends. Numbers are looked up in the pattern's classes: sorted starts
//! of intervals, each with the positions that accept its numbers.

use thalweg_wire::bgp::AsPath;

use super::parse::Tree;
use crate::policy::NumberSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Bits<WORDS> {
    const NONE: Self = Self([0; WORDS]);

    #[inline]
    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    #[inline]
    fn or(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    #[inline]
    fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, mask) in both.0.iter_mut().zip(&other.0) {
            *word &= mask;
        }
        both
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    #[inline]
    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    #[inline]
    fn each(&self, mut visit: impl FnMut(usize)) {
        for (index, word) in self.0.iter().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                visit(index * 64 + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }
}

/// The result of following empty steps.
#[derive(Clone, Copy, Debug)]
struct Reached<const WORDS: usize> {
    places: Bits<WORDS>,
    found: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Automaton<const WORDS: usize> {
    /// The starts of number intervals; the first is 0.
    starts: Vec<u32>,
    /// By interval: the positions that accept its numbers.
    accepting: Vec<Bits<WORDS>>,
    /// By position: those that may follow.
    follow: Vec<Bits<WORDS>>,
    /// The positions after which the pattern matches.
    found: Bits<WORDS>,
    /// The positions after which it matches if the path ends there.
    found_at_end: Bits<WORDS>,
    /// Where a match can begin at the start of the path.
    at_start: Reached<WORDS>,
    /// Where a match can begin after the start.
    in_middle: Bits<WORDS>,
    /// The pattern matches an empty path.
    empty_path: bool,
    empty_at_end: bool,
}

impl<const WORDS: usize> Automaton<WORDS> {
    pub(super) fn new(tree: &Tree) -> Self {
        let mut nodes = Nodes { nodes: vec![Node::Found], sets: Vec::new() };
        let first = nodes.add(tree, 0);
        let places = nodes.sets.len();
        let mut next_of = vec![0; places];
        for node in &nodes.nodes {
            if let Node::Consume { place, next } = node {
                next_of[*place] = *next;
            }
        }
        let mut automaton = Self {
            starts: vec![0],
            accepting: Vec::new(),
            follow: Vec::with_capacity(places),
            found: Bits::NONE,
            found_at_end: Bits::NONE,
            at_start: nodes.closure(first, true, false),
            in_middle: nodes.closure(first, false, false).places,
            empty_path: nodes.closure::<WORDS>(first, true, true).found,
            empty_at_end: nodes.closure::<WORDS>(first, false, true).found,
        };
        for (place, next) in next_of.into_iter().enumerate() {
            let reached = nodes.closure(next, false, false);
            automaton.follow.push(reached.places);
            if reached.found {
                automaton.found.set(place);
            }
            if nodes.closure::<WORDS>(next, false, true).found {
                automaton.found_at_end.set(place);
            }
        }
        automaton.classify(&nodes.sets);
        automaton
    }

    fn classify(&mut self, sets: &[NumberSet]) {
        for (first, last) in sets.iter().flat_map(|set| set.ranges()) {
            self.starts.push(*first);
            self.starts.extend(last.checked_add(1));
        }
        self.starts.sort_unstable();
        self.starts.dedup();
        for start in &self.starts {
            let mut accepting = Bits::NONE;
            for (place, set) in sets.iter().enumerate() {
                if set.contains(*start) {
                    accepting.set(place);
                }
            }
            self.accepting.push(accepting);
        }
    }

    pub(super) fn matches(&self, path: AsPath<'_>) -> bool {
        if self.at_start.found {
            return true;
        }
        let mut live = self.at_start.places;
        let mut last = None;
        for segment in path.segments() {
            let mut asns = segment.asns();
            if segment.kind.is_set() {
                let Some(first) = asns.next() else { continue };
                let mut accepting = *self.accepting(first);
                asns.for_each(|asn| accepting.or(self.accepting(asn)));
                last = Some(live.and(&accepting));
                if self.step(last, &mut live) {
                    return true;
                }
                continue;
            }
            for asn in asns {
                if live.is_empty() {
                    // No match can begin here or later.
                    return self.empty_at_end;
                }
                last = Some(live.and(self.accepting(asn)));
                if self.step(last, &mut live) {
                    return true;
                }
            }
        }
        match last {
            None => self.empty_path,
            Some(taken) => self.empty_at_end || taken.meets(&self.found_at_end),
        }
    }

    /// Continues from the positions that consumed a number; returns whether the pattern matches.
    #[inline]
    fn step(&self, taken: Option<Bits<WORDS>>, live: &mut Bits<WORDS>) -> bool {
        let Some(taken) = taken else { return false };
        if taken.meets(&self.found) {
            return true;
        }
        *live = self.in_middle;
        taken.each(|place| live.or(&self.follow[place]));
        false
    }

    #[inline]
    fn accepting(&self, asn: u32) -> &Bits<WORDS> {
        // The first start is 0, so one always precedes.
        let interval = self.starts.partition_point(|start| *start <= asn) - 1;
        &self.accepting[interval]
    }
}

#[derive(Clone, Debug)]
enum Node {
    Found,
    Consume { place: usize, next: usize },
    Split(usize, usize),
    OnlyAtStart(usize),
    OnlyAtEnd(usize),
}

struct Nodes {
    nodes: Vec<Node>,
    /// By position: the numbers that it accepts.
    sets: Vec<NumberSet>,
}

impl Nodes {
    fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Adds the nodes of a tree that continues at `next`; returns its first node.
    fn add(&mut self, tree: &Tree, next: usize) -> usize {
        match tree {
            Tree::Nothing => next,
            Tree::Number(numbers) => {
                self.sets.push(numbers.clone());
                let place = self.sets.len() - 1;
                self.push(Node::Consume { place, next })
            }
            Tree::Start => self.push(Node::OnlyAtStart(next)),
            Tree::End => self.push(Node::OnlyAtEnd(next)),
            Tree::Row(parts) => parts.iter().rev().fold(next, |next, part| self.add(part, next)),
            Tree::Choice(branches) => {
                let mut branches = branches.iter();
                let first = branches.next().map_or(next, |branch| self.add(branch, next));
                branches.fold(first, |before, branch| {
                    let other = self.add(branch, next);
                    self.push(Node::Split(before, other))
                })
            }
            Tree::Repeat { what, optional, many } => {
                let again = self.push(Node::Split(next, next));
                let inner = self.add(what, if *many { again } else { next });
                self.nodes[again] = Node::Split(inner, next);
                if *optional { again } else { inner }
            }
        }
    }

    /// All nodes that empty steps reach from a node.
    fn closure<const WORDS: usize>(&self, from: usize, start: bool, end: bool) -> Reached<WORDS> {
        let mut reached = Reached { places: Bits::NONE, found: false };
        let mut seen = vec![false; self.nodes.len()];
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            match self.nodes[at] {
                Node::Found => reached.found = true,
                Node::Consume { place, .. } => reached.places.set(place),
                Node::Split(a, b) => open.extend([a, b]),
                Node::OnlyAtStart(next) => open.extend(start.then_some(next)),
                Node::OnlyAtEnd(next) => open.extend(end.then_some(next)),
            }
        }
        reached
    }
}
