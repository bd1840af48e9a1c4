//! Graphs that grow one AS at a time, as in BRITE: Barabási and Albert, Waxman, and GLP of Bu and Towsley.
//!
//! ASes have random places on a square. Latencies follow from distances, and relationships from the numbers
//! of links (see `relate.rs`). AS numbers begin with 1, in order of growth.

use super::graph::{AsGraph, GraphError, Place};
use super::relate::{Bare, related};
use crate::chance::Random;

/// The side of the square in kilometers: about a continent.
const SIDE_KM: f64 = 4000.0;

/// The rule by which a graph grows. `links` is the number of links of a new AS (for GLP: of links that are
/// added at a time).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Growth {
    /// New links prefer ASes with many links: Barabási and Albert, "Emergence of Scaling in Random Networks",
    /// 1999.
    Preferential { links: usize },
    /// New links prefer near ASes, with probability `alpha * exp(-distance / (beta * diagonal))`: Waxman,
    /// "Routing of Multipoint Connections", 1988. BRITE's defaults are 0.15 and 0.2.
    Waxman {
        links: usize,
        /// Scales the probability of all links. It has no effect here, because every AS gets all its links.
        alpha: f64,
        /// The probability of long links relative to short ones.
        beta: f64,
    },
    /// As `Preferential`, but with probability `more` links are added among existing ASes, and the weight of
    /// an AS is its number of links less `beta`: Bu and Towsley, "On Distinguishing between Internet Power
    /// Law Topology Generators", 2002. BRITE's defaults are 0.45 and 0.64.
    Glp {
        links: usize,
        /// The probability of adding links without a new AS.
        more: f64,
        /// Below 1; a larger value favors ASes with many links.
        beta: f64,
    },
}

impl Growth {
    fn links(self) -> usize {
        match self {
            Self::Preferential { links } | Self::Waxman { links, .. } | Self::Glp { links, .. } => {
                links.max(1)
            }
        }
    }
}

/// Grows a graph of `ases` ASes.
pub fn grown(growth: Growth, ases: usize, seed: u64) -> Result<AsGraph, GraphError> {
    let mut chance = Random::of(seed, 0);
    let mut side = || (chance.share() * SIDE_KM) as f32;
    let places: Vec<Place> = (0..ases).map(|_| Place::Plane(side(), side())).collect();
    let mut growing =
        Growing { growth, places, chance: Random::of(seed, 1), neighbors: Vec::new(), tickets: Vec::new() };
    growing.grow(ases);
    let links: Vec<Bare> = growing
        .neighbors
        .iter()
        .enumerate()
        .flat_map(|(node, others)| others.iter().map(move |other| (*other, node as u32, None)))
        .filter(|(a, b, _)| a < b)
        .collect();
    related(&growing.places, &links).build()
}

struct Growing {
    growth: Growth,
    places: Vec<Place>,
    chance: Random,
    neighbors: Vec<Vec<u32>>,
    /// Each AS, once for each of its links.
    tickets: Vec<u32>,
}

impl Growing {
    fn link(&mut self, a: u32, b: u32) {
        self.neighbors[a as usize].push(b);
        self.neighbors[b as usize].push(a);
        self.tickets.extend([a, b]);
    }

    fn grow(&mut self, ases: usize) {
        // The graph begins as a line, so that every AS has a link.
        let links = self.growth.links();
        for node in 0..ases.min(links + 1) {
            self.neighbors.push(Vec::new());
            if node > 0 {
                self.link(node as u32 - 1, node as u32);
            }
        }
        while self.neighbors.len() < ases {
            match self.growth {
                Growth::Glp { more, .. } if self.chance.happens(more) => self.add_links(links),
                _ => self.add_node(links),
            }
        }
    }

    fn add_node(&mut self, links: usize) {
        let node = self.neighbors.len();
        let mut chosen: Vec<u32> = Vec::with_capacity(links);
        while chosen.len() < links.min(node) {
            let other = match self.growth {
                Growth::Waxman { alpha, beta, .. } => self.near(node, alpha, beta),
                _ => self.preferred(),
            };
            if !chosen.contains(&other) {
                chosen.push(other);
            }
        }
        self.neighbors.push(Vec::new());
        for other in chosen {
            self.link(node as u32, other);
        }
    }

    /// Adds links among existing ASes; drawing a linked pair adds nothing.
    fn add_links(&mut self, links: usize) {
        for _ in 0..links {
            let (a, b) = (self.preferred(), self.preferred());
            if a != b && !self.neighbors[a as usize].contains(&b) {
                self.link(a, b);
            }
        }
    }

    /// Draws an AS by its number of links, for GLP less `beta`.
    fn preferred(&mut self) -> u32 {
        loop {
            let node = self.tickets[self.chance.below(self.tickets.len())];
            let degree = self.neighbors[node as usize].len() as f64;
            match self.growth {
                // A negative beta raises all weights, most of all for ASes with one link: by the factor 1 -
                // beta.
                Growth::Glp { beta, .. } => {
                    let most = 1.0 - beta.min(0.0);
                    if self.chance.happens((degree - beta) / degree / most) {
                        return node;
                    }
                }
                _ => return node,
            }
        }
    }

    /// Draws an AS before `node` by its distance.
    fn near(&mut self, node: usize, alpha: f64, beta: f64) -> u32 {
        let reach = beta * SIDE_KM * std::f64::consts::SQRT_2;
        loop {
            let other = self.chance.below(node);
            let km = self.places[node].distance_km(self.places[other]).unwrap_or(0.0);
            if self.chance.happens(alpha * (-km / reach).exp()) {
                return other as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixpoint::{Engine, Scenario, Solver};

    fn check(growth: Growth, ases: usize) -> AsGraph {
        let graph = grown(growth, ases, 5).unwrap();
        assert_eq!(graph, grown(growth, ases, 5).unwrap());
        assert_eq!(graph.len(), ases);
        let engine = Engine::new(&graph).expect("no circle of providers");
        let mut solver = Solver::new(&engine);
        for origin in [0, ases / 2, ases - 1] {
            solver.solve(&Scenario::announced_by(origin));
            assert_eq!(solver.summary().reached as usize, ases, "{growth:?}: everybody is reached");
        }
        graph
    }

    fn degrees(graph: &AsGraph) -> Vec<usize> {
        let mut degrees: Vec<usize> = (0..graph.len()).map(|node| graph.degree(node)).collect();
        degrees.sort_unstable();
        degrees
    }

    #[test]
    fn preference_makes_few_great_ases() {
        let graph = check(Growth::Preferential { links: 6 }, 1000);
        let degrees = degrees(&graph);
        let mean = 2.0 * graph.links() as f64 / 1000.0;
        assert!((11.9..12.5).contains(&mean), "{mean}");
        assert!(degrees[0] >= 1 && degrees[500] <= 9 && degrees[999] > 80, "{degrees:?}");
    }

    #[test]
    fn waxman_links_the_near() {
        let graph = check(Growth::Waxman { links: 2, alpha: 0.15, beta: 0.2 }, 600);
        assert!(degrees(&graph)[599] < 40);
        let links = (0..600).flat_map(|node| graph.links_of(node)).map(|(_, _, us)| f64::from(us));
        let mean = links.sum::<f64>() / (2 * graph.links()) as f64;
        // The mean distance of two random places in a square is 0.52 sides, 15.6 ms.
        assert!(mean < 12_000.0, "{mean}");
    }

    #[test]
    fn glp_makes_greater_ones() {
        let greatest = |growth| *degrees(&check(growth, 1500)).last().unwrap();
        let glp = greatest(Growth::Glp { links: 1, more: 0.45, beta: 0.64 });
        assert!(glp > greatest(Growth::Preferential { links: 1 }), "{glp}");
        check(Growth::Glp { links: 2, more: 0.2, beta: -1.0 }, 300);
    }

    #[test]
    fn small_graphs_exist() {
        for ases in 0..12 {
            assert_eq!(grown(Growth::Preferential { links: 3 }, ases, 1).unwrap().len(), ases);
        }
    }
}
