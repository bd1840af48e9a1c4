//! A generated Internet after Elmokashfi, Kvalbein and Dovrolis, "On the Scalability of BGP: The Role of
//! Topology Growth", JSAC 2010, with the parameters of its baseline growth.
//!
//! Four kinds of ASes are added in turn: tier 1 (T, a clique), transit (M), content (CP) and customers (C).
//! An AS lives in one of five regions, some in two, and buys transit from T and M ASes of its regions,
//! preferring providers with many links. Then M ASes peer with each other, preferring those with many peers,
//! and CP ASes with M and CP ASes of their regions. networkx has the same generator; a test compares the
//! degrees.
//!
//! Node `i` has AS number `i + 1`, so T ASes have the lowest numbers. Each lies near the middle of its
//! (first) region, and latencies follow from the distances.

use super::graph::{AsGraph, GraphBuilder, GraphError, Place, Relation};
use crate::chance::Random;

const REGIONS: usize = 5;
/// The centers of the regions: North America, South America, Europe, Asia, Oceania.
const MIDDLES: [(f64, f64); REGIONS] =
    [(40.0, -90.0), (-20.0, -52.0), (49.0, 10.0), (28.0, 105.0), (-30.0, 148.0)];
/// The standard deviation of places around the center, in degrees.
const SPREAD: f64 = 7.0;
/// Weighted draws that are tried before the remaining options are weighed one by one.
const DRAWS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Transit,
    Content,
    Customer,
}

/// A graph of `ases` ASes (at least one).
pub fn internet(ases: usize, seed: u64) -> Result<AsGraph, GraphError> {
    let mut internet = Internet::new(ases, Random::of(seed, 0));
    internet.grow();
    internet.peer();
    let mut builder = GraphBuilder::new();
    let mut chance = Random::of(seed, 1);
    let places: Vec<Place> = internet.regions.iter().map(|mask| place(*mask, &mut chance)).collect();
    for (node, place) in places.iter().enumerate() {
        builder.node(node as u32 + 1, Some(*place));
    }
    for (a, b, relation) in internet.links {
        let latency_us = places[a as usize].latency_us(places[b as usize]);
        builder.link(a + 1, b + 1, relation, latency_us, 0);
    }
    builder.build()
}

/// A place near the center of the mask's first region; for a T AS, which is in all, near any center.
fn place(mask: u8, chance: &mut Random) -> Place {
    let any = chance.below(REGIONS);
    let region = if mask.count_ones() as usize == REGIONS { any } else { mask.trailing_zeros() as usize };
    let (latitude, longitude) = MIDDLES[region];
    Place::Earth((latitude + SPREAD * chance.normal()) as f32, (longitude + SPREAD * chance.normal()) as f32)
}

/// A set of M ASes, by their index after the T ASes.
type Transits = Vec<u64>;

struct Internet {
    chance: Random,
    tier1: usize,
    transits: usize,
    contents: usize,
    ases: usize,
    links: Vec<(u32, u32, Relation)>,
    /// The neighbors so far of each node that may peer.
    linked: Vec<Vec<u32>>,
    /// The regions of each node, as bits.
    regions: Vec<u8>,
    degree: Vec<u32>,
    /// By region, each M AS once for each of its links, so that a draw prefers by degree.
    tickets: [Vec<u32>; REGIONS],
    members: [Vec<u32>; REGIONS],
    /// The direct and indirect providers of each M AS that are M.
    above: Vec<Transits>,
    /// The M ASes, each once for each of its peerings.
    peer_tickets: Vec<u32>,
}

impl Internet {
    fn new(ases: usize, mut chance: Random) -> Self {
        let tier1 = ases.min((chance.share() * 2.0 + 4.0).round() as usize);
        let share = |part: f64| ((part * ases as f64).round() as usize).min(ases - tier1);
        let transits = share(0.15);
        let contents = share(0.05).min(ases - tier1 - transits);
        Self {
            chance,
            tier1,
            transits,
            contents,
            ases,
            links: Vec::new(),
            linked: vec![Vec::new(); tier1 + transits + contents],
            regions: vec![(1 << REGIONS) - 1; tier1],
            degree: vec![0; ases],
            tickets: Default::default(),
            members: Default::default(),
            above: Vec::with_capacity(transits),
            peer_tickets: Vec::new(),
        }
    }

    fn link(&mut self, a: usize, b: usize, relation: Relation) {
        self.links.push((a as u32, b as u32, relation));
        for (end, other) in [(a, b), (b, a)] {
            self.degree[end] += 1;
            if let Some(linked) = self.linked.get_mut(end) {
                linked.push(other as u32);
            }
        }
    }

    fn is_transit(&self, node: usize) -> bool {
        (self.tier1..self.tier1 + self.transits).contains(&node)
    }

    fn grow(&mut self) {
        for a in 0..self.tier1 {
            for b in 0..a {
                self.link(a, b, Relation::Peer);
            }
        }
        let n = self.ases as f64;
        for node in self.tier1..self.ases {
            if node < self.tier1 + self.transits {
                self.add(node, Kind::Transit, 0.2, 2.0 + 2.5 * n / 1e4, 0.375);
            } else if node < self.tier1 + self.transits + self.contents {
                self.add(node, Kind::Content, 0.05, 2.0 + 1.5 * n / 1e4, 0.375);
            } else {
                self.add(node, Kind::Customer, 0.0, 1.0 + 5.0 * n / 1e5, 0.125);
            }
        }
    }

    /// Adds a node with its providers.
    fn add(&mut self, node: usize, kind: Kind, two_regions: f64, providers: f64, from_tier1: f64) {
        let mut mask = 1u8 << self.chance.below(REGIONS);
        if self.chance.happens(two_regions) {
            let other = self.chance.below(REGIONS - 1);
            let free = (0..REGIONS).filter(|region| mask >> region & 1 == 0).nth(other);
            mask |= free.map_or(0, |region| 1 << region);
        }
        self.regions.push(mask);
        let mut tier1: Vec<usize> = (0..self.tier1).collect();
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..self.around(1, providers) {
            let by_tier1 = !tier1.is_empty() && self.chance.happens(from_tier1);
            let transit = if by_tier1 { None } else { self.draw_transit(mask, &chosen) };
            let seller = match transit {
                Some(transit) => transit,
                None if tier1.is_empty() => break,
                None => {
                    let at = self.draw_tier1(&tier1);
                    tier1.swap_remove(at)
                }
            };
            chosen.push(seller);
            self.link(node, seller, Relation::Provider);
            self.give_tickets(seller);
        }
        if kind == Kind::Transit {
            let above = self.transits_above(&chosen);
            self.above.push(above);
            self.enter(node, mask);
            for _ in 0..self.degree[node] {
                self.give_tickets(node);
            }
        } else if kind == Kind::Content {
            self.enter(node, mask);
        }
    }

    fn enter(&mut self, node: usize, mask: u8) {
        for region in 0..REGIONS {
            if mask >> region & 1 == 1 {
                self.members[region].push(node as u32);
            }
        }
    }

    fn give_tickets(&mut self, node: usize) {
        if self.is_transit(node) {
            for region in 0..REGIONS {
                if self.regions[node] >> region & 1 == 1 {
                    self.tickets[region].push(node as u32);
                }
            }
        }
    }

    /// `providers` that are M ASes, and all M ASes above them.
    fn transits_above(&self, providers: &[usize]) -> Transits {
        let mut all = vec![0u64; self.transits.div_ceil(64)];
        for provider in providers.iter().filter(|provider| self.is_transit(**provider)) {
            let number = provider - self.tier1;
            all[number / 64] |= 1 << (number % 64);
            for (word, more) in all.iter_mut().zip(&self.above[number]) {
                *word |= more;
            }
        }
        all
    }

    /// A uniform random integer with the given minimum and about the given mean.
    fn around(&mut self, least: u32, mean: f64) -> usize {
        let most = 2.0 * mean - f64::from(least);
        let whole = (self.chance.share() * (most.floor() - f64::from(least)) + f64::from(least)).round();
        whole as usize + usize::from(self.chance.happens((most - most.floor()) / 2.0))
    }

    /// Draws a T AS by degree and returns its index in the list.
    fn draw_tier1(&mut self, options: &[usize]) -> usize {
        let total: u32 = options.iter().map(|node| self.degree[*node]).sum();
        let mut left = self.chance.below(total as usize) as u32;
        for (at, node) in options.iter().enumerate() {
            match left.checked_sub(self.degree[*node]) {
                Some(rest) => left = rest,
                None => return at,
            }
        }
        // A single T AS has no links yet.
        0
    }

    /// Draws an M AS of the regions by degree that is not among `chosen`.
    fn draw_transit(&mut self, mask: u8, chosen: &[usize]) -> Option<usize> {
        let regions: Vec<usize> = (0..REGIONS).filter(|region| mask >> region & 1 == 1).collect();
        let total: usize = regions.iter().map(|region| self.tickets[*region].len()).sum();
        // An AS in two of the regions has twice the tickets, so every second draw of it is rejected.
        let weight = |this: &Self, node: usize| (this.regions[node] & mask).count_ones() as usize;
        for _ in 0..if total == 0 { 0 } else { DRAWS_MAX } {
            let mut at = self.chance.below(total);
            let of_region = |region: &usize| match at.checked_sub(self.tickets[*region].len()) {
                Some(rest) => {
                    at = rest;
                    None
                }
                None => Some(self.tickets[*region][at] as usize),
            };
            let node = regions.iter().find_map(of_region)?;
            let twice = weight(self, node);
            if !chosen.contains(&node) && (twice == 1 || self.chance.below(twice) == 0) {
                return Some(node);
            }
        }
        // Few are left, so they are weighed one by one.
        let mut options: Vec<usize> =
            regions.iter().flat_map(|region| &self.members[*region]).map(|node| *node as usize).collect();
        options.sort_unstable();
        options.dedup();
        options.retain(|node| self.is_transit(*node) && !chosen.contains(node));
        let weights: Vec<u32> = options.iter().map(|node| self.degree[*node]).collect();
        self.weigh(&weights).map(|at| options[at])
    }

    /// Draws an index by weight; uniformly if all weights are zero.
    fn weigh(&mut self, weights: &[u32]) -> Option<usize> {
        let total: u32 = weights.iter().sum();
        if total == 0 {
            return (!weights.is_empty()).then(|| self.chance.below(weights.len()));
        }
        let mut left = self.chance.below(total as usize) as u32;
        weights.iter().position(|weight| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
    }

    fn peer(&mut self) {
        let n = self.ases as f64;
        let transits = self.tier1..self.tier1 + self.transits;
        let contents = transits.end..transits.end + self.contents;
        for node in transits {
            for _ in 0..self.around(0, 1.0 + 2.0 * n / 1e4) {
                if let Some(peer) = self.draw_peer(node) {
                    self.link(node, peer, Relation::Peer);
                    self.peer_tickets.extend([node as u32, peer as u32]);
                }
            }
        }
        for (with_transits, mean) in [(true, 0.2 + 2.0 * n / 1e4), (false, 0.05 + 2.0 * n / 1e5)] {
            for node in contents.clone() {
                let mut options = self.same_region(node, with_transits);
                for _ in 0..self.around(0, mean) {
                    if options.is_empty() {
                        break;
                    }
                    let peer = options.swap_remove(self.chance.below(options.len()));
                    self.link(node, peer, Relation::Peer);
                }
            }
        }
    }

    /// Whether the two are not linked and neither is a direct or indirect provider of the other.
    fn may_peer(&self, a: usize, b: usize) -> bool {
        let above = |low: usize, high: usize| {
            let number = high - self.tier1;
            self.above[low - self.tier1][number / 64] >> (number % 64) & 1 == 1
        };
        a != b && !above(a, b) && !above(b, a) && !self.linked[a].contains(&(b as u32))
    }

    /// Draws an M AS that `node` may peer with, by its number of peers.
    fn draw_peer(&mut self, node: usize) -> Option<usize> {
        for _ in 0..if self.peer_tickets.is_empty() { 0 } else { DRAWS_MAX } {
            let peer = self.peer_tickets[self.chance.below(self.peer_tickets.len())] as usize;
            if self.may_peer(node, peer) {
                return Some(peer);
            }
        }
        let transits = self.tier1..self.tier1 + self.transits;
        let options: Vec<usize> = transits.filter(|peer| self.may_peer(node, *peer)).collect();
        let mut peers = vec![0; self.transits];
        for ticket in &self.peer_tickets {
            peers[*ticket as usize - self.tier1] += 1;
        }
        let weights: Vec<u32> = options.iter().map(|option| peers[option - self.tier1]).collect();
        self.weigh(&weights).map(|at| options[at])
    }

    /// The M or CP ASes of its regions that a CP AS may peer with.
    fn same_region(&self, node: usize, transits: bool) -> Vec<usize> {
        let mask = self.regions[node];
        let providers: Vec<usize> = self.linked[node].iter().map(|other| *other as usize).collect();
        let above = self.transits_above(&providers);
        let is_above = |other: usize| {
            let number = other - self.tier1;
            self.is_transit(other) && above[number / 64] >> (number % 64) & 1 == 1
        };
        let regions = (0..REGIONS).filter(|region| mask >> region & 1 == 1);
        let mut options: Vec<usize> = regions
            .flat_map(|region| &self.members[region])
            .map(|other| *other as usize)
            .filter(|other| self.is_transit(*other) == transits && *other != node && !is_above(*other))
            .filter(|other| !self.linked[node].contains(&(*other as u32)))
            .collect();
        options.sort_unstable();
        options.dedup();
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_gives_the_same_graph_and_each_as_reaches_tier_1() {
        let graph = internet(500, 7).unwrap();
        assert_eq!(graph, internet(500, 7).unwrap());
        assert_ne!(graph, internet(500, 8).unwrap());
        let order = graph.providers_first().unwrap();
        let mut fed: HashSet<u32> = HashSet::new();
        for node in order {
            let providers = graph.neighbors(node as usize, Relation::Provider);
            let of_tier1 = providers.is_empty() && node < 6;
            assert!(of_tier1 || providers.iter().any(|provider| fed.contains(provider)), "node {node}");
            fed.insert(node);
            for (other, _, latency_us) in graph.links_of(node as usize) {
                let places = [node as usize, other].map(|node| graph.place(node).unwrap());
                assert_eq!(latency_us, places[0].latency_us(places[1]));
            }
        }
    }

    #[test]
    fn small_graphs_exist() {
        for ases in 1..30 {
            assert_eq!(internet(ases, 1).unwrap().len(), ases);
        }
    }

    /// From networkx 3.6.1, `random_internet_as_graph(n, seed)`, 20 seeds for 1000 ASes and 6 for 3000. The
    /// tuple has the number of ASes, the number of seeds, and mean and deviation of each figure: links,
    /// peerings, and the degree at 50, 75, 90, 95, 99 and 100 percent.
    type Drawn = (usize, u64, [(f64, f64); 8]);
    const NETWORKX: [Drawn; 2] = [
        (
            1000,
            20,
            [
                (1489.8, 19.3),
                (213.2, 12.6),
                (1.0, 0.0),
                (1.0, 0.0),
                (6.5, 0.5),
                (12.0, 0.7),
                (36.7, 4.4),
                (94.0, 14.4),
            ],
        ),
        (
            3000,
            6,
            [
                (5224.7, 48.3),
                (862.7, 25.2),
                (1.0, 0.0),
                (2.0, 0.0),
                (7.8, 0.4),
                (13.3, 0.5),
                (33.7, 2.0),
                (266.7, 59.5),
            ],
        ),
    ];

    fn measures(ases: usize, seed: u64) -> [f64; 8] {
        let graph = internet(ases, seed).unwrap();
        let mut degrees: Vec<usize> = (0..ases).map(|node| graph.degree(node)).collect();
        degrees.sort_unstable();
        let peerings: usize = (0..ases).map(|node| graph.neighbors(node, Relation::Peer).len()).sum();
        let at = |part: f64| degrees[((part * ases as f64) as usize).min(ases - 1)] as f64;
        let quantiles = [0.5, 0.75, 0.9, 0.95, 0.99, 1.0].map(at);
        let [a, b, c, d, e, f] = quantiles;
        [graph.links() as f64, peerings as f64 / 2.0, a, b, c, d, e, f]
    }

    /// The means of equally many graphs differ by no more than chance allows (three standard errors of the
    /// difference).
    #[test]
    fn degrees_are_those_of_networkx() {
        for (ases, seeds, wanted) in NETWORKX {
            let all: Vec<[f64; 8]> = (1..=seeds).map(|seed| measures(ases, seed)).collect();
            for (at, (mean, deviation)) in wanted.into_iter().enumerate() {
                let ours = all.iter().map(|row| row[at]).sum::<f64>() / seeds as f64;
                let allowed = 3.0 * deviation * (2.0 / seeds as f64).sqrt() + 0.1;
                assert!((ours - mean).abs() <= allowed, "{ases} ASes, column {at}: {ours}, not {mean}");
            }
        }
    }
}
