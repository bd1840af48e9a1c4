//! Solves a graph in three phases: up to providers, across to peers, down to customers.

use super::guard::{Checked, Guard, Leak, Open};
use super::state::{NONE, State};
use super::{Engine, Scenario};

thalweg_base::words! {
    /// The kind of neighbor that a route came from; a higher class is preferred.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Class {
        Provider => "provider",
        Peer => "peer",
        Customer => "customer",
        /// The AS originates the prefix.
        Own => "own",
    }
}

/// The route an AS uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub class: Class,
    /// The number of links to the origin.
    pub length: u32,
    /// The neighbor that told it; none at the origin.
    pub next: Option<usize>,
    pub origin: usize,
    /// Whether it went through the AS that leaks.
    pub leaked: bool,
}

/// Counts for a prefix, over all ASes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// The number of ASes with a route, including origins.
    pub reached: u32,
    /// The number of ASes by class: provider, peer, customer, own.
    pub by_class: [u32; 4],
    /// The number of ASes whose route ends at another origin than the first.
    pub hijacked: u32,
    /// The number of ASes whose route went through the leak.
    pub leaked: u32,
    /// The sum of the lengths of all routes.
    pub links: u64,
    /// The length of the longest route.
    pub longest: u32,
}

/// Solves scenarios of one graph, one after the other, and reuses its memory.
#[derive(Debug)]
pub struct Solver<'a> {
    engine: &'a Engine,
    state: State,
    /// Ranks with a customer's route or one of their own, by length.
    climbed: Vec<u32>,
    leak: Option<Leak>,
}

impl<'a> Solver<'a> {
    /// A solver without any routes yet.
    pub fn new(engine: &'a Engine) -> Self {
        Self { engine, state: State::new(engine.len()), climbed: Vec::new(), leak: None }
    }

    /// Finds the stable state.
    ///
    /// The leak never changes the leaker's own route: each AS on that route refuses the leak, because it
    /// finds itself in the path, and all other ASes keep a route at least as good as before. So the leaker is
    /// a second source, with a path already as long as its own.
    ///
    /// # Panics
    ///
    /// If a node is not in the graph, or there are more than 254 origins.
    pub fn solve(&mut self, scenario: &Scenario) {
        assert!(scenario.origins.len() < 255, "at most 254 origins");
        self.leak = None;
        let mut seeds: Vec<(u32, u32, u8)> = Vec::with_capacity(scenario.origins.len() + 1);
        for (number, origin) in scenario.origins.iter().enumerate() {
            let rank = self.engine.ranks[*origin];
            if seeds.iter().all(|seed| seed.1 != rank) {
                seeds.push((0, rank, number as u8));
            }
        }
        self.settle(scenario, &seeds);
        let Some(leaker) = scenario.leaker else { return };
        let Some(route) = self.route(leaker).filter(|route| route.class < Class::Customer) else { return };
        let path: Vec<u32> = self.path(leaker).iter().map(|node| self.engine.ranks[*node]).collect();
        let source = scenario.origins.len() as u8;
        self.leak = Some(Leak { source, origin: route.origin as u8, path });
        let rank = self.engine.ranks[leaker];
        let next = self.state.next[rank as usize];
        seeds.push((route.length, rank, source));
        self.settle(scenario, &seeds);
        self.state.classes[rank as usize] = route.class as u8;
        self.state.next[rank as usize] = next;
        self.state.sources[rank as usize] = route.origin as u8;
    }

    /// Spreads the routes of the seeds: the length of a seed's path, its rank and its source.
    fn settle(&mut self, scenario: &Scenario, seeds: &[(u32, u32, u8)]) {
        if seeds.len() < 2 {
            self.state.sources.fill(0);
            self.spread(seeds, &Open);
        } else {
            let leak = self.leak.take();
            self.spread(seeds, &Checked { engine: self.engine, scenario, leak: leak.as_ref() });
            self.leak = leak;
        }
    }

    fn spread<G: Guard>(&mut self, seeds: &[(u32, u32, u8)], guard: &G) {
        self.state.lengths.fill(NONE);
        self.climbed.clear();
        for (length, rank, source) in seeds {
            self.state.lengths[*rank as usize] = *length;
            self.state.classes[*rank as usize] = Class::Own as u8;
            self.state.sources[*rank as usize] = *source;
        }
        self.climb(seeds, guard);
        self.cross(guard);
        self.descend(guard);
    }

    /// Phase 1: from customers to providers, by length.
    fn climb<G: Guard>(&mut self, seeds: &[(u32, u32, u8)], guard: &G) {
        let mut waiting = seeds.to_vec();
        waiting.sort_unstable_by(|a, b| b.cmp(a));
        let mut done = 0;
        let mut length = 0;
        while done < self.climbed.len() || !waiting.is_empty() {
            if done == self.climbed.len() {
                length = waiting.last().map_or(length, |seed| seed.0);
            }
            while let Some((_, rank, _)) = waiting.pop_if(|seed| seed.0 == length) {
                self.climbed.push(rank);
            }
            let level = done..self.climbed.len();
            done = level.end;
            for at in level {
                let rank = self.climbed[at];
                for &provider in self.engine.providers.of(rank as usize) {
                    self.offer::<G, { Class::Customer as u8 }>(provider, rank, length + 1, guard);
                }
            }
            length += 1;
        }
    }

    /// Phase 2: from all ranks with a route of phase 1 to their peers.
    fn cross<G: Guard>(&mut self, guard: &G) {
        for at in 0..self.climbed.len() {
            let rank = self.climbed[at];
            let length = self.state.lengths[rank as usize] + 1;
            for &peer in self.engine.peers.of(rank as usize) {
                self.offer::<G, { Class::Peer as u8 }>(peer, rank, length, guard);
            }
        }
    }

    /// `to` takes the route of `from` if it has none, or a longer one of the same class, or an equally long
    /// one of a neighbor with a higher number.
    #[inline(always)]
    fn offer<G: Guard, const CLASS: u8>(&mut self, to: u32, from: u32, length: u32, guard: &G) {
        let (state, nodes) = (&mut self.state, &self.engine.nodes);
        let has = state.lengths[to as usize];
        let better = has == NONE
            || state.classes[to as usize] == CLASS
                && (length < has
                    || length == has && nodes[from as usize] < nodes[state.next[to as usize] as usize]);
        if !better || !guard.takes(state, to, from) {
            return;
        }
        if has == NONE && CLASS == Class::Customer as u8 {
            self.climbed.push(to);
        }
        state.lengths[to as usize] = length;
        state.classes[to as usize] = CLASS;
        state.next[to as usize] = from;
        if G::SOURCES {
            state.sources[to as usize] = state.sources[from as usize];
        }
    }

    /// Phase 3: all others take the best of their providers' routes; providers come first.
    fn descend<G: Guard>(&mut self, guard: &G) {
        let state = &mut self.state;
        for rank in 0..state.lengths.len() {
            if state.lengths[rank] != NONE {
                continue;
            }
            let (mut best, mut next) = (NONE, 0);
            // Ascending by AS number: the first of several shortest routes stays.
            for &provider in self.engine.providers.of(rank) {
                let length = state.lengths[provider as usize];
                if length < best && guard.takes(state, rank as u32, provider) {
                    (best, next) = (length, provider);
                }
            }
            if best != NONE {
                state.lengths[rank] = best + 1;
                state.next[rank] = next;
                state.classes[rank] = Class::Provider as u8;
                if G::SOURCES {
                    state.sources[rank] = state.sources[next as usize];
                }
            }
        }
    }

    /// The route of a node, if it has one.
    pub fn route(&self, node: usize) -> Option<Route> {
        let rank = self.engine.ranks[node] as usize;
        let state = &self.state;
        let class = Class::ALL[usize::from(state.classes[rank]).min(3)];
        let leak = self.leak.as_ref().filter(|leak| leak.source == state.sources[rank]);
        (state.lengths[rank] != NONE).then(|| Route {
            class,
            length: state.lengths[rank],
            next: (class != Class::Own).then(|| self.engine.nodes[state.next[rank] as usize] as usize),
            origin: usize::from(leak.map_or(state.sources[rank], |leak| leak.origin)),
            leaked: leak.is_some(),
        })
    }

    /// The nodes from this one to the origin, both included; empty without a route.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = self.route(node).map(|_| node);
        while let Some(node) = at {
            path.push(node);
            at = self.route(node).and_then(|route| route.next);
        }
        path
    }

    /// Counts over all ASes.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let state = &self.state;
        for (length, class) in state.lengths.iter().zip(&state.classes) {
            let has = u32::from(*length != NONE);
            let length = if *length == NONE { 0 } else { *length };
            summary.reached += has;
            summary.links += u64::from(length);
            summary.longest = summary.longest.max(length);
            for (number, count) in summary.by_class.iter_mut().enumerate() {
                *count += has & u32::from(usize::from(*class) == number);
            }
        }
        if state.sources.iter().any(|source| *source > 0) {
            for route in (0..self.engine.len()).filter_map(|node| self.route(node)) {
                summary.hijacked += u32::from(route.origin > 0);
                summary.leaked += u32::from(route.leaked);
            }
        }
        summary
    }
}
