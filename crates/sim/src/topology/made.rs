//! Graphs that are made: one like the Internet, and one that grows by preference.

use std::collections::BTreeSet;

use super::graph::{AsGraph, GraphBuilder, GraphError, Relation};
use crate::chance::Random;

/// AS numbers of made graphs begin after this.
const FIRST_ASN: u32 = 1;

/// A graph with the degrees and relationships of the Internet, after Elmokashfi, Kvalbein and Dovrolis, "On the scalability
/// of BGP: the role of topology growth" (JSAC 2010): a clique of tier-1 networks (T), mid-level providers (M), content
/// providers (CP) and customers (C), in five regions, each choosing providers that have many links already.
pub fn internet(ases: usize, seed: u64) -> Result<AsGraph, GraphError> {
    let mut random = Random::new(seed);
    let n = ases as f64;
    let tier1 = ases.min(4 + random.below(3));
    let middle = (0.15 * n).round() as usize;
    let content = (0.05 * n).round() as usize;
    let mut made = Internet { builder: GraphBuilder::default(), nodes: Vec::new(), random };
    for _ in 0..tier1.max(2) {
        made.add(Kind::Tier1, (1 << REGIONS) - 1);
    }
    for (a, b) in (0..made.nodes.len()).flat_map(|b| (0..b).map(move |a| (a, b))).collect::<Vec<_>>() {
        made.link(a, b, Relation::Peer)?;
    }
    let middle = middle.min(ases.saturating_sub(made.nodes.len()));
    for _ in 0..middle {
        made.grow(&Growth {
            kind: Kind::Middle,
            two_regions: 0.2,
            providers: 2.0 + 2.5 * n / 1e4,
            tier1: 0.375,
        })?;
    }
    let content = content.min(ases.saturating_sub(made.nodes.len()));
    for _ in 0..content {
        made.grow(&Growth {
            kind: Kind::Content,
            two_regions: 0.05,
            providers: 2.0 + 1.5 * n / 1e4,
            tier1: 0.375,
        })?;
    }
    while made.nodes.len() < ases {
        made.grow(&Growth {
            kind: Kind::Customer,
            two_regions: 0.0,
            providers: 1.0 + 5.0 * n / 1e5,
            tier1: 0.125,
        })?;
    }
    made.add_peers(Kind::Middle, Kind::Middle, 1.0 + 2.0 * n / 1e4)?;
    made.add_peers(Kind::Content, Kind::Middle, 0.2 + 2.0 * n / 1e4)?;
    made.add_peers(Kind::Content, Kind::Content, 0.05 + 2.0 * n / 1e5)?;
    made.builder.build()
}

const REGIONS: u32 = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tier1,
    Middle,
    Content,
    Customer,
}

struct Node {
    kind: Kind,
    /// A bit for each region.
    regions: u32,
    links: usize,
    peers: usize,
    providers: BTreeSet<usize>,
}

struct Growth {
    kind: Kind,
    two_regions: f64,
    /// On average.
    providers: f64,
    /// How likely a provider is a tier-1 network.
    tier1: f64,
}

struct Internet {
    builder: GraphBuilder,
    nodes: Vec<Node>,
    random: Random,
}

impl Internet {
    fn add(&mut self, kind: Kind, regions: u32) -> usize {
        self.nodes.push(Node { kind, regions, links: 0, peers: 0, providers: BTreeSet::new() });
        self.nodes.len() - 1
    }

    /// `b` is `relation` to `a`.
    fn link(&mut self, a: usize, b: usize, relation: Relation) -> Result<(), GraphError> {
        match relation {
            Relation::Peer => [a, b].into_iter().for_each(|node| self.nodes[node].peers += 1),
            Relation::Provider => drop(self.nodes[a].providers.insert(b)),
            Relation::Customer => return self.link(b, a, Relation::Provider),
        }
        [a, b].into_iter().for_each(|node| self.nodes[node].links += 1);
        self.builder.link(FIRST_ASN + a as u32, FIRST_ASN + b as u32, relation)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.share() < share
    }

    /// A whole number from `least` on whose average is `mean`, each up to the largest as likely.
    fn number(&mut self, least: f64, mean: f64) -> usize {
        let most = 2.0 * mean - least;
        let (low, high) = (most.floor(), most.ceil());
        // The average of a range that ends at `low` is below, of one that ends at `high` above.
        let end = if high > low && self.chance(most - low) { high } else { low };
        (least + self.random.below((end - least) as usize + 1) as f64) as usize
    }

    fn region(&mut self) -> u32 {
        1 << self.random.below(REGIONS as usize)
    }

    /// A network with providers in its regions.
    fn grow(&mut self, growth: &Growth) -> Result<(), GraphError> {
        let mut regions = self.region();
        while self.chance(growth.two_regions) && regions.count_ones() < 2 {
            regions |= self.region();
        }
        let node = self.add(growth.kind, regions);
        let providers = self.number(1.0, growth.providers).max(1);
        let near = |each: &Node, kind| each.kind == kind && each.regions & regions != 0;
        let of = |all: &[Node], kind| -> Vec<usize> {
            (0..node).filter(|other| near(&all[*other], kind)).collect()
        };
        let (mut tier1, mut middle) = (of(&self.nodes, Kind::Tier1), of(&self.nodes, Kind::Middle));
        for _ in 0..providers {
            let from = if middle.is_empty() || (!tier1.is_empty() && self.chance(growth.tier1)) {
                &mut tier1
            } else {
                &mut middle
            };
            let weights = from.iter().map(|other| self.nodes[*other].links);
            let Some(at) = weighted(&mut self.random, weights) else { break };
            let provider = from.swap_remove(at);
            self.link(node, provider, Relation::Provider)?;
        }
        Ok(())
    }

    /// Peers for all of a kind, content providers' among those in the same regions: nobody peers with those it pays, or who pay it, at
    /// whatever distance.
    fn add_peers(&mut self, kind: Kind, with: Kind, mean: f64) -> Result<(), GraphError> {
        for node in (0..self.nodes.len()).filter(|node| self.nodes[*node].kind == kind).collect::<Vec<_>>() {
            let above = self.above(node);
            for _ in 0..self.number(0.0, mean) {
                let regions = self.nodes[node].regions;
                let candidates = (0..self.nodes.len()).filter(|other| {
                    let each = &self.nodes[*other];
                    each.kind == with
                        && *other != node
                        && each.regions & regions != 0
                        && !above.contains(other)
                });
                let linked = |other: &usize| {
                    self.builder.is_linked(FIRST_ASN + node as u32, FIRST_ASN + *other as u32)
                };
                let candidates =
                    candidates.filter(|other| !linked(other) && !self.above(*other).contains(&node));
                let candidates: Vec<usize> = candidates.collect();
                let weights = candidates.iter().map(|other| self.nodes[*other].peers + 1);
                let Some(at) = weighted(&mut self.random, weights) else { break };
                self.link(node, candidates[at], Relation::Peer)?;
            }
        }
        Ok(())
    }

    /// The providers of a node, theirs, and so on.
    fn above(&self, node: usize) -> BTreeSet<usize> {
        let mut above = BTreeSet::new();
        let mut open: Vec<usize> = self.nodes[node].providers.iter().copied().collect();
        while let Some(next) = open.pop() {
            if above.insert(next) {
                open.extend(&self.nodes[next].providers);
            }
        }
        above
    }
}

/// A place, each in proportion to its weight.
fn weighted(random: &mut Random, weights: impl Iterator<Item = usize> + Clone) -> Option<usize> {
    let total: usize = weights.clone().sum();
    let mut left = random.below(total);
    for (at, weight) in weights.enumerate() {
        if left < weight {
            return Some(at);
        }
        left -= weight;
    }
    None
}

/// A graph in which each AS links to `each` of those before it, in proportion to the links these have (Barabási and Albert).
/// The one with more links is the provider; ASes whose numbers of links are alike are peers.
pub fn preferential(ases: usize, each: usize, seed: u64) -> Result<AsGraph, GraphError> {
    /// Two ASes are peers below this ratio of their degrees.
    const ALIKE: f64 = 1.5;
    let mut random = Random::new(seed);
    let (mut links, mut ends) = (Vec::new(), vec![0]);
    for node in 1..ases {
        let mut chosen = BTreeSet::new();
        while chosen.len() < each.clamp(1, node) {
            chosen.insert(ends[random.below(ends.len())]);
        }
        for other in chosen {
            links.push((other, node));
            ends.extend([other, node]);
        }
    }
    let mut degrees = vec![0_usize; ases];
    links.iter().for_each(|(a, b)| [*a, *b].into_iter().for_each(|node| degrees[node] += 1));
    let mut builder = GraphBuilder::default();
    for (a, b) in links {
        let (low, high) = (degrees[a].min(degrees[b]) as f64, degrees[a].max(degrees[b]) as f64);
        let relation = if high / low < ALIKE {
            Relation::Peer
        } else if degrees[a] > degrees[b] {
            Relation::Customer
        } else {
            Relation::Provider
        };
        builder.link(FIRST_ASN + a as u32, FIRST_ASN + b as u32, relation)?;
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(graph: &AsGraph, is: impl Fn(usize) -> bool) -> f64 {
        (0..graph.len()).filter(|node| is(*node)).count() as f64 / graph.len() as f64
    }

    /// The ranges are those of networkx 3.6.1, `random_internet_as_graph(2000)`, seeds 1 to 10, widened by a tenth.
    #[test]
    fn a_made_internet_has_the_degrees_of_the_model() {
        let is_about = |what: &str, value: f64, low: f64, high: f64| {
            assert!((0.9 * low..=1.1 * high).contains(&value), "{what}: {value}, not {low} to {high}");
        };
        for seed in 1..=10 {
            let graph = internet(2000, seed).unwrap();
            assert_eq!(graph.len(), 2000);
            let mut degrees: Vec<usize> = (0..2000).map(|node| graph.degree(node)).collect();
            degrees.sort_unstable();
            is_about("mean degree", 2.0 * graph.links() as f64 / 2000.0, 3.207, 3.265);
            is_about("one neighbor", share(&graph, |node| graph.degree(node) == 1), 0.7175, 0.726);
            let leaves = share(&graph, |node| graph.those(node, Relation::Customer).is_empty());
            is_about("no customers", leaves, 0.8625, 0.8735);
            let peers: usize = (0..2000).map(|node| graph.those(node, Relation::Peer).len()).sum();
            is_about("links between peers", peers as f64 / 2.0, 466.0, 518.0);
            for (at, low, high) in [(0.75, 2, 2), (0.9, 7, 7), (0.95, 11, 13), (0.99, 31, 37)] {
                let degree = degrees[(2000.0 * at) as usize];
                // Degrees are whole numbers: one more or less is not much.
                is_about(&format!("degree at {at}"), degree as f64, f64::from(low - 1), f64::from(high + 1));
            }
        }
    }

    #[test]
    fn preferential_graphs_have_the_degree_that_is_asked() {
        let graph = preferential(1000, 6, 1).unwrap();
        let mean = 2.0 * graph.links() as f64 / 1000.0;
        assert!((11.8..=12.0).contains(&mean), "{mean}");
        assert!((0..1000).map(|node| graph.degree(node)).max().unwrap() > 80);
        assert!(share(&graph, |node| graph.degree(node) < 6) < 0.01);
        assert_eq!(preferential(2, 6, 1).unwrap().links(), 1);
    }

    #[test]
    fn the_same_seed_makes_the_same_graph() {
        let text = |graph: AsGraph| {
            (0..graph.len())
                .map(|node| format!("{:?}", graph.neighbors(node).collect::<Vec<_>>()))
                .collect::<String>()
        };
        assert_eq!(text(internet(300, 5).unwrap()), text(internet(300, 5).unwrap()));
        assert_ne!(text(internet(300, 5).unwrap()), text(internet(300, 6).unwrap()));
        for ases in [2, 3, 5, 10, 40] {
            let graph = internet(ases, 1).unwrap();
            assert!(graph.len() >= ases && graph.len() <= ases.max(6), "{ases}: {}", graph.len());
        }
    }
}
