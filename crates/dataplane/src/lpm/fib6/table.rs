//! The writer's half of [`Fib6`]: paints slots and trees from the routes.

use super::*;
use crate::lpm::address::blocks;
use crate::lpm::arena::Pool;
use crate::lpm::trie::BinaryTrie;
use crate::lpm::writer::{DEEP, Runs, Table};
use crate::lpm::{Address, Prefix};
use std::collections::HashMap;
use std::sync::Arc;

const MIDDLE_SLOTS: u32 = 1 << MIDDLE_BITS;
/// First bit below the middle blocks.
const TREES_FROM: u8 = ROOT_BITS + MIDDLE_BITS;
/// Bits a tree answers for.
const TREE_BITS: u8 = 16;

/// What the writer must know of a tree to change or free it.
#[derive(Default)]
struct Tree {
    lines: u32,
    /// The words of slot lines in use, with the deeper tree each half leads to.
    children: Vec<Child>,
}

#[derive(Clone, Copy)]
struct Child {
    word: usize,
    shift: u32,
    slot: u32,
}

/// The writer's half of [`Fib6`].
pub struct Fib6Table {
    fib: Arc<Fib6>,
    blocks: Pool,
    lines: Pool,
    /// By number of the first line.
    trees: HashMap<u32, Tree>,
    slots: Runs,
}

impl Fib6Table {
    /// Refreshes the part of a prefix of at most 20 bits, or the root slot of a longer one.
    fn refresh_root(&mut self, routes: &BinaryTrie<u128>, prefix: Prefix<u128>) -> Result<(), LpmError> {
        let depth = prefix.length().min(ROOT_BITS);
        let (first, last) = blocks(prefix, ROOT_BITS);
        let (node, inherited) = routes.descend(prefix.address(), depth);
        let mut slots = Runs::default();
        slots.paint(routes, node, inherited, ROOT_BITS - depth);
        for ((start, end), value) in slots.spans((last - first + 1) as u32) {
            if value & DEEP == 0 {
                for index in first + start as usize..first + end as usize {
                    self.set_root(index, value);
                }
                continue;
            }
            let deep = slots.deep[(value & !DEEP) as usize];
            let index = first + start as usize;
            let old = self.fib.root.at(index).load(Ordering::Relaxed);
            if old & CHILD != 0 {
                // A longer prefix changes only its own part of the block.
                let part = if prefix.length() > ROOT_BITS { prefix } else { whole_root_slot(index)? };
                self.refresh_middle(routes, old & !CHILD, part)?;
            } else {
                self.new_block(routes, index, deep)?;
            }
        }
        Ok(())
    }

    fn set_root(&mut self, index: usize, slot: u32) {
        let word = self.fib.root.at(index);
        let old = word.load(Ordering::Relaxed);
        if old == slot {
            return;
        }
        word.store(slot, Ordering::Release);
        if old & CHILD != 0 {
            self.release_block(old & !CHILD);
        }
    }

    /// Paints a middle block that readers do not reach yet, and points the root to it.
    fn new_block(
        &mut self,
        routes: &BinaryTrie<u128>,
        index: usize,
        (node, inherited): (u32, NextHopId),
    ) -> Result<(), LpmError> {
        let block = self.blocks.allocate(1, &self.fib.generation)?;
        self.fib.middle_touched.set(self.blocks.top() * MIDDLE_SLOTS as usize * 4);
        for slot in 0..MIDDLE_SLOTS {
            self.middle_word(block, slot).store(0, Ordering::Relaxed);
        }
        let mut slots = Runs::default();
        slots.paint(routes, node, inherited, MIDDLE_BITS);
        match self.fill_middle(routes, block, 0, MIDDLE_SLOTS, &slots, None) {
            Ok(()) => {
                self.set_root(index, CHILD | block);
                Ok(())
            }
            Err(error) => {
                self.release_block(block);
                Err(error)
            }
        }
    }

    /// Makes a block answer like the routes within `prefix`, which lies in the block's root slot.
    fn refresh_middle(
        &mut self,
        routes: &BinaryTrie<u128>,
        block: u32,
        prefix: Prefix<u128>,
    ) -> Result<(), LpmError> {
        let depth = prefix.length().min(TREES_FROM);
        let (first, last) = blocks(prefix, TREES_FROM);
        let (node, inherited) = routes.descend(prefix.address(), depth);
        let mut slots = std::mem::take(&mut self.slots);
        slots.paint(routes, node, inherited, TREES_FROM - depth);
        let first_slot = first as u32 & (MIDDLE_SLOTS - 1);
        let count = (last - first + 1) as u32;
        let narrow = (prefix.length() > TREES_FROM).then_some(prefix);
        let result = self.fill_middle(routes, block, first_slot, count, &slots, narrow);
        self.slots = slots;
        result
    }

    /// Stores painted slots into a block. `narrow`: only this prefix, longer than 32 bits, changed.
    fn fill_middle(
        &mut self,
        routes: &BinaryTrie<u128>,
        block: u32,
        first: u32,
        count: u32,
        slots: &Runs,
        narrow: Option<Prefix<u128>>,
    ) -> Result<(), LpmError> {
        for ((start, end), value) in slots.spans(count) {
            for slot in first + start..first + end {
                let old = self.middle_word(block, slot).load(Ordering::Relaxed);
                let new = if value & DEEP == 0 {
                    value
                } else {
                    let deep = slots.deep[(value & !DEEP) as usize];
                    self.refresh_tree(routes, old, deep, TREES_FROM, narrow)?
                };
                if new != old {
                    self.middle_word(block, slot).store(new, Ordering::Release);
                    self.release_slot(old);
                }
            }
        }
        Ok(())
    }

    /// The tree below a trie node at bit `from`: a new one, or `old` if the change fits into one of its deeper
    /// trees.
    fn refresh_tree(
        &mut self,
        routes: &BinaryTrie<u128>,
        old: u32,
        (node, inherited): (u32, NextHopId),
        from: u8,
        narrow: Option<Prefix<u128>>,
    ) -> Result<u32, LpmError> {
        let below = from + TREE_BITS;
        if let Some(prefix) = narrow
            && prefix.length() > below
            && old & CHILD != 0
        {
            let (node, inherited) = routes.descend(prefix.address(), below);
            if routes.has_children(node)
                && let Some(child) = self.child_at(old, prefix.address(), from)
            {
                let new = self.refresh_tree(routes, child.slot, (node, inherited), below, narrow)?;
                if new != child.slot {
                    self.replace_child(old, child, new);
                    self.release_slot(child.slot);
                }
                return Ok(old);
            }
        }
        self.new_tree(routes, node, inherited)
    }

    /// The deeper tree in which a look-up of `address` continues.
    fn child_at(&self, slot: u32, address: u128, from: u8) -> Option<Child> {
        let x = (address >> (128 - from - TREE_BITS)) as u16;
        let mut at = slot;
        while height_of(at) != 0 {
            at = self.fib.split::<Portable>(at, x);
        }
        let marker = self.fib.bottom::<Portable>(at, x);
        if marker & DEEPER == 0 {
            return None;
        }
        let k = usize::from(marker & 15);
        let word = (at & LINE) as usize * 8 + 8 + k / 2;
        let shift = (k % 2 * 32) as u32;
        let tree = self.trees.get(&(slot & LINE))?;
        tree.children.iter().find(|child| child.word == word && child.shift == shift).copied()
    }

    fn replace_child(&mut self, slot: u32, child: Child, new: u32) {
        self.store_half(child.word, child.shift, new);
        let children = self.trees.get_mut(&(slot & LINE)).map(|tree| &mut tree.children);
        for known in children.into_iter().flatten() {
            if known.word == child.word && known.shift == child.shift {
                known.slot = new;
            }
        }
    }

    fn store_half(&self, word: usize, shift: u32, slot: u32) {
        let word = self.fib.lines.at(word);
        let kept = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(kept | u64::from(slot) << shift, Ordering::Release);
    }

    /// Writes a tree, and those below it, to memory that readers do not reach.
    fn new_tree(
        &mut self,
        routes: &BinaryTrie<u128>,
        node: u32,
        inherited: NextHopId,
    ) -> Result<u32, LpmError> {
        let mut slots = Runs::default();
        slots.paint(routes, node, inherited, TREE_BITS);
        let mut deeper = Vec::with_capacity(slots.deep.len());
        for &(node, inherited) in &slots.deep {
            match self.new_tree(routes, node, inherited) {
                Ok(slot) => deeper.push(slot),
                Err(error) => {
                    deeper.iter().for_each(|&slot| self.release_slot(slot));
                    return Err(error);
                }
            }
        }
        self.write_tree(&slots.runs, &deeper).inspect_err(|_| {
            deeper.iter().for_each(|&slot| self.release_slot(slot));
        })
    }

    fn write_tree(&mut self, runs: &[(u32, u32)], deeper: &[u32]) -> Result<u32, LpmError> {
        let wide = !deeper.is_empty();
        let height = (0..3).find(|&height| runs.len() <= runs_at(height)).unwrap_or(3);
        let lines = lines_needed(height, wide, runs.len());
        let first = self.lines.allocate(size_class(lines), &self.fib.generation)?;
        self.fib.lines_touched.set(self.lines.top() * 64);
        let mut tree = Tree { lines: size_class(lines), children: Vec::new() };
        self.write_subtree(first, height, runs, deeper, &mut tree);
        self.trees.insert(first, tree);
        Ok(CHILD | height << HEIGHT_SHIFT | if wide { WIDE } else { 0 } | first)
    }

    fn write_subtree(&self, line: u32, height: u32, runs: &[(u32, u32)], deeper: &[u32], tree: &mut Tree) {
        if height == 0 {
            return self.write_bottom(line, runs, deeper, tree);
        }
        let mut keys = [u16::MAX; FAN_OUT];
        let distance = distance(height, !deeper.is_empty());
        for (part, at) in runs.chunks(runs_at(height - 1)).zip(0..) {
            if at > 0 {
                keys[at - 1] = (part[0].0 - 1) as u16;
            }
            self.write_subtree(line + 1 + at as u32 * distance, height - 1, part, deeper, tree);
        }
        self.write_line(line, &keys);
    }

    fn write_bottom(&self, line: u32, runs: &[(u32, u32)], deeper: &[u32], tree: &mut Tree) {
        let mut halves = [u16::MAX; 2 * BOTTOM_RUNS];
        let mut following = [0_u16; 2 * BOTTOM_RUNS];
        let mut markers = 0_u16;
        for (at, &(start, value)) in runs.iter().enumerate() {
            if at > 0 {
                halves[at - 1] = (start - 1) as u16;
            }
            halves[BOTTOM_RUNS + at] = value as u16;
            if value & DEEP != 0 {
                halves[BOTTOM_RUNS + at] = DEEPER | markers;
                let slot = deeper[(value & !DEEP) as usize];
                let k = usize::from(markers);
                following[2 * k] = slot as u16;
                following[2 * k + 1] = (slot >> 16) as u16;
                let word = line as usize * 8 + 8 + k / 2;
                tree.children.push(Child { word, shift: (k % 2 * 32) as u32, slot });
                markers += 1;
            }
        }
        self.write_line(line, &halves);
        if !deeper.is_empty() {
            self.write_line(line + 1, &following);
        }
    }

    fn write_line(&self, line: u32, halves: &[u16; 32]) {
        for (part, at) in halves.as_chunks::<4>().0.iter().zip(line as usize * 8..) {
            let word = part.iter().rev().fold(0, |word, &half| word << 16 | u64::from(half));
            self.fib.lines.at(at).store(word, Ordering::Relaxed);
        }
    }

    fn middle_word(&self, block: u32, slot: u32) -> &AtomicU32 {
        self.fib.middle.at((block as usize) << MIDDLE_BITS | slot as usize)
    }

    /// Releases a middle block that the root no longer names, and its trees.
    fn release_block(&mut self, block: u32) {
        for slot in 0..MIDDLE_SLOTS {
            let slot = self.middle_word(block, slot).load(Ordering::Relaxed);
            self.release_slot(slot);
        }
        self.blocks.release(block, 1, &self.fib.generation);
    }

    /// Releases the tree of an unreachable slot, and those below it; a next hop needs nothing.
    fn release_slot(&mut self, slot: u32) {
        if slot & CHILD == 0 {
            return;
        }
        if let Some(tree) = self.trees.remove(&(slot & LINE)) {
            self.lines.release(slot & LINE, tree.lines, &self.fib.generation);
            for child in tree.children {
                self.release_slot(child.slot);
            }
        }
    }
}

fn whole_root_slot(index: usize) -> Result<Prefix<u128>, LpmError> {
    Ok(Prefix::new(u128::from_u128(index as u128) << (128 - ROOT_BITS), ROOT_BITS)?)
}

/// The most runs of a tree of this height.
fn runs_at(height: u32) -> usize {
    BOTTOM_RUNS * FAN_OUT.pow(height)
}

/// The entry of [`DISTANCE`].
fn distance(height: u32, wide: bool) -> u32 {
    DISTANCE[(height << 1 | u32::from(wide)) as usize]
}

/// Lines from a tree's first to its last in use.
fn lines_needed(height: u32, wide: bool, runs: usize) -> u32 {
    if height == 0 {
        return 1 + u32::from(wide);
    }
    let per_child = runs_at(height - 1);
    let last = (runs - 1) / per_child;
    let distance = distance(height, wide);
    1 + last as u32 * distance + lines_needed(height - 1, wide, runs - last * per_child)
}

/// Sizes above 32 lines are rounded up to a sixteenth, so that pieces can be reused.
fn size_class(lines: u32) -> u32 {
    let step = (lines.next_power_of_two() / 32).max(1);
    lines.next_multiple_of(step)
}

impl Table for Fib6Table {
    type Address = u128;
    type Shared = Fib6;

    fn create() -> Result<Self, LpmError> {
        Ok(Self {
            fib: Arc::new(Fib6::new()?),
            blocks: Pool::new("middle blocks (/20s with longer prefixes)", 1 << (MIDDLE_LOG2 - 12), 0),
            lines: Pool::new("tree lines", 1 << (LINES_LOG2 - 3), 0),
            trees: HashMap::new(),
            slots: Runs::default(),
        })
    }

    fn shared(&self) -> &Arc<Fib6> {
        &self.fib
    }

    fn refresh(&mut self, routes: &BinaryTrie<u128>, prefix: Prefix<u128>) -> Result<(), LpmError> {
        self.refresh_root(routes, prefix)
    }

    fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes()
            + self.lines.memory_bytes()
            + self.trees.capacity() * (size_of::<u32>() + size_of::<Tree>() + 1)
    }
}
