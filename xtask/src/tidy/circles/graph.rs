//! Finds strongly connected components of a graph by Tarjan's algorithm.

use super::ModulePath;
use std::collections::{BTreeMap, BTreeSet};

/// The modules that each module uses.
pub(super) type Graph = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// Each circle's modules, sorted.
pub(super) fn circles(graph: &Graph) -> Vec<Vec<ModulePath>> {
    let mut search = Search { graph, numbers: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for module in graph.keys() {
        if !search.numbers.contains_key(module) {
            search.visit(module);
        }
    }
    search.found.sort();
    search.found
}

struct Search<'g> {
    graph: &'g Graph,
    /// The order in which modules were first visited.
    numbers: BTreeMap<&'g ModulePath, usize>,
    stack: Vec<&'g ModulePath>,
    found: Vec<Vec<ModulePath>>,
}

impl<'g> Search<'g> {
    /// The smallest number on the stack that can be reached from here.
    fn visit(&mut self, module: &'g ModulePath) -> usize {
        let number = self.numbers.len();
        self.numbers.insert(module, number);
        self.stack.push(module);
        let mut lowest = number;
        for used in self.graph.get(module).into_iter().flatten() {
            let reached = match self.numbers.get(used) {
                None => self.visit(used),
                Some(number) if self.stack.contains(&used) => *number,
                Some(_) => continue,
            };
            lowest = lowest.min(reached);
        }
        if lowest == number {
            let place = self.stack.iter().position(|each| *each == module).unwrap_or(0);
            let mut part: Vec<ModulePath> = self.stack.split_off(place).into_iter().cloned().collect();
            if part.len() > 1 {
                part.sort();
                self.found.push(part);
            }
        }
        lowest
    }
}
