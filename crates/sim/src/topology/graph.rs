//! ASes and the links between them, in arrays.
//!
//! Nodes are numbered by ascending AS number, so the neighbor with the lowest AS number has the lowest index.
//! The neighbors of a node are contiguous: customers, then peers, then providers, each by ascending number.

use hashbrown::HashMap;

/// The latency of a link about which nothing is known.
pub const LATENCY_DEFAULT_US: u32 = 10_000;

thalweg_base::words! {
    /// The role of a neighbor, seen from an AS.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Relation {
        /// It pays for transit.
        Customer => "customer",
        /// Both exchange their own and their customers' routes.
        Peer => "peer",
        /// It sells transit.
        Provider => "provider",
    }
}

impl Relation {
    /// The same link seen from its other end.
    pub fn reversed(self) -> Self {
        match self {
            Self::Customer => Self::Provider,
            Self::Peer => Self::Peer,
            Self::Provider => Self::Customer,
        }
    }
}

/// The place of a node: on Earth, or on a plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Latitude and longitude in degrees.
    Earth(f32, f32),
    /// Kilometers.
    Plane(f32, f32),
}

impl Place {
    const EARTH_RADIUS_KM: f64 = 6371.0;
    /// The speed of light in fiber.
    const KM_PER_MS: f64 = 200.0;
    /// Cables are longer than the straight line.
    const DETOUR: f64 = 1.5;
    /// The latency of the equipment at both ends.
    const LEAST_US: f64 = 100.0;

    /// The kilometers between two places; none between a place on Earth and one on a plane.
    pub fn distance_km(self, other: Self) -> Option<f64> {
        match (self, other) {
            (Self::Earth(lat_a, lon_a), Self::Earth(lat_b, lon_b)) => {
                let [lat_a, lon_a, lat_b, lon_b] =
                    [lat_a, lon_a, lat_b, lon_b].map(|degrees| f64::from(degrees).to_radians());
                let half = |from: f64, to: f64| ((to - from) / 2.0).sin().powi(2);
                let chord = half(lat_a, lat_b) + lat_a.cos() * lat_b.cos() * half(lon_a, lon_b);
                Some(2.0 * Self::EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin())
            }
            (Self::Plane(xa, ya), Self::Plane(xb, yb)) => Some(f64::from(xa - xb).hypot(f64::from(ya - yb))),
            _ => None,
        }
    }

    /// The latency of a cable between two places.
    pub fn latency_us(self, other: Self) -> u32 {
        match self.distance_km(other) {
            Some(km) => (Self::LEAST_US + km * Self::DETOUR / Self::KM_PER_MS * 1000.0).round() as u32,
            None => LATENCY_DEFAULT_US,
        }
    }
}

/// An invalid graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A link from an AS to itself.
    #[error("line {line}: AS{asn} has a link to itself")]
    Loop {
        /// The line of the file, or zero without a file.
        line: usize,
        asn: u32,
    },
    /// Two lines disagree.
    #[error(
        "line {line}: AS{b} is a {} of AS{a}, but line {earlier_line} made it a {}",
        now.name(), earlier.name()
    )]
    Contradiction {
        a: u32,
        b: u32,
        /// The role of `b` by the later line.
        now: Relation,
        /// The later line.
        line: usize,
        /// The role of `b` by the earlier line.
        earlier: Relation,
        earlier_line: usize,
    },
    /// A circle of providers: each AS is a customer of the next, and the last one of the first.
    #[error("providers in a circle: {}", circle(.0))]
    ProviderCycle(Vec<u32>),
    /// More links than the arrays can number.
    #[error("more than 2^31 links")]
    TooLarge,
}

/// The ASes of a circle that an error names.
pub(super) const CIRCLE_SHOWN: usize = 12;

/// A circle in words, shortened in the middle.
fn circle(asns: &[u32]) -> String {
    let mut words: Vec<String> = asns.iter().take(CIRCLE_SHOWN).map(|asn| format!("AS{asn}")).collect();
    if asns.len() > CIRCLE_SHOWN {
        words.push(format!("({} more)", asns.len() - CIRCLE_SHOWN));
    }
    words.extend(asns.first().map(|asn| format!("AS{asn}")));
    words.join(" -> ")
}

/// A link as given to the builder.
#[derive(Clone, Copy, Debug)]
struct Link {
    a: u32,
    b: u32,
    /// The role of `b`, seen from `a`.
    relation: Relation,
    latency_us: u32,
    /// Its line, for errors.
    line: u32,
}

/// Collects the nodes and links of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    links: Vec<Link>,
    places: Vec<(u32, Place)>,
    nodes: Vec<u32>,
}

impl GraphBuilder {
    /// A builder without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an AS, with or without links.
    pub fn node(&mut self, asn: u32, place: Option<Place>) {
        self.nodes.push(asn);
        self.places.extend(place.map(|place| (asn, place)));
    }

    /// Adds a link: `relation` is the role of `b`, seen from `a`. `line` is zero without a file.
    pub fn link(&mut self, a: u32, b: u32, relation: Relation, latency_us: u32, line: usize) {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        self.links.push(Link { a, b, relation, latency_us, line });
    }

    /// The line of a link between two ASes.
    pub(super) fn line_between(&self, a: u32, b: u32) -> Option<usize> {
        let is_it = |link: &&Link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a);
        self.links.iter().find(is_it).and_then(|link| usize::try_from(link.line).ok())
    }

    /// Builds the graph. A repeated link counts once.
    pub fn build(self) -> Result<AsGraph, GraphError> {
        if self.links.len() >= 1 << 31 {
            return Err(GraphError::TooLarge);
        }
        if let Some(link) = self.links.iter().find(|link| link.a == link.b) {
            return Err(GraphError::Loop { line: link.line as usize, asn: link.a });
        }
        let (asns, index) = self.numbering();
        let ends = |link: &Link| (index[&link.a], index[&link.b]);
        let mut first = vec![0u32; asns.len() + 1];
        for link in &self.links {
            let (a, b) = ends(link);
            first[a as usize + 1] += 1;
            first[b as usize + 1] += 1;
        }
        for node in 0..asns.len() {
            first[node + 1] += first[node];
        }
        // The neighbor is in the upper half and the link in the lower, so sorting brings repeated links
        // together.
        let mut entries = vec![0u64; 2 * self.links.len()];
        let mut free = first.clone();
        for (number, link) in self.links.iter().enumerate() {
            let (a, b) = ends(link);
            for (from, to) in [(a, b), (b, a)] {
                entries[free[from as usize] as usize] = u64::from(to) << 32 | number as u64;
                free[from as usize] += 1;
            }
        }
        drop(free);
        let mut graph = self.arrays(asns, &first, &mut entries)?;
        if !self.places.is_empty() {
            graph.places = vec![None; graph.asns.len()];
            for (asn, place) in &self.places {
                graph.places[index[asn] as usize] = Some(*place);
            }
        }
        Ok(graph)
    }

    /// All AS numbers in ascending order, and the index of each.
    fn numbering(&self) -> (Vec<u32>, HashMap<u32, u32>) {
        let mut index = HashMap::with_capacity(self.nodes.len().max(self.links.len() / 8));
        let ends = self.links.iter().flat_map(|link| [link.a, link.b]);
        for asn in self.nodes.iter().copied().chain(ends) {
            index.insert(asn, 0);
        }
        let mut asns: Vec<u32> = index.keys().copied().collect();
        asns.sort_unstable();
        for (number, asn) in asns.iter().enumerate() {
            index.insert(*asn, number as u32);
        }
        (asns, index)
    }

    /// The arrays of the graph, from each node's entries.
    fn arrays(&self, asns: Vec<u32>, first: &[u32], entries: &mut [u64]) -> Result<AsGraph, GraphError> {
        let mut graph = AsGraph {
            offsets: Vec::with_capacity(3 * asns.len() + 1),
            neighbors: Vec::with_capacity(entries.len()),
            latencies_us: Vec::with_capacity(entries.len()),
            places: Vec::new(),
            asns,
        };
        graph.offsets.push(0);
        for node in 0..graph.asns.len() {
            let own = &mut entries[first[node] as usize..first[node + 1] as usize];
            own.sort_unstable();
            for relation in Relation::ALL {
                let mut before = None;
                for entry in own.iter() {
                    let (neighbor, link) = ((entry >> 32) as u32, &self.links[*entry as u32 as usize]);
                    let is = self.relation(link, graph.asns[node]);
                    if is == relation && before != Some(neighbor) {
                        graph.neighbors.push(neighbor);
                        graph.latencies_us.push(link.latency_us);
                        before = Some(neighbor);
                    }
                }
                graph.offsets.push(graph.neighbors.len() as u32);
            }
            self.no_contradiction(graph.asns[node], own)?;
        }
        Ok(graph)
    }

    /// The role of the other end of a link, seen from `asn`.
    fn relation(&self, link: &Link, asn: u32) -> Relation {
        if link.a == asn { link.relation } else { link.relation.reversed() }
    }

    /// Checks that a node's sorted entries give each neighbor only one role.
    fn no_contradiction(&self, asn: u32, own: &[u64]) -> Result<(), GraphError> {
        for pair in own.windows(2) {
            let [earlier, link] = [pair[0], pair[1]].map(|entry| &self.links[entry as u32 as usize]);
            let (before, now) = (self.relation(earlier, asn), self.relation(link, asn));
            if pair[0] >> 32 == pair[1] >> 32 && before != now {
                return Err(GraphError::Contradiction {
                    a: asn,
                    b: if link.a == asn { link.b } else { link.a },
                    now,
                    line: link.line as usize,
                    earlier: before,
                    earlier_line: earlier.line as usize,
                });
            }
        }
        Ok(())
    }
}

/// ASes and their links. The head of the file gives the order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AsGraph {
    asns: Vec<u32>,
    /// Where the customers, peers and providers of each node begin, and a last entry for the end.
    offsets: Vec<u32>,
    neighbors: Vec<u32>,
    latencies_us: Vec<u32>,
    /// Empty if no place is known.
    places: Vec<Option<Place>>,
}

impl AsGraph {
    /// The number of ASes.
    pub fn len(&self) -> usize {
        self.asns.len()
    }

    /// Whether there is no AS.
    pub fn is_empty(&self) -> bool {
        self.asns.is_empty()
    }

    /// The number of links.
    pub fn links(&self) -> usize {
        self.neighbors.len() / 2
    }

    /// The AS number of a node.
    pub fn asn(&self, node: usize) -> u32 {
        self.asns[node]
    }

    /// The node of an AS number.
    pub fn node(&self, asn: u32) -> Option<usize> {
        self.asns.binary_search(&asn).ok()
    }

    /// The place of a node, if known.
    pub fn place(&self, node: usize) -> Option<Place> {
        self.places.get(node).copied().flatten()
    }

    /// The number of links of a node.
    pub fn degree(&self, node: usize) -> usize {
        (self.offsets[3 * node + 3] - self.offsets[3 * node]) as usize
    }

    fn range(&self, node: usize, relation: Relation) -> std::ops::Range<usize> {
        let at = 3 * node + relation as usize;
        self.offsets[at] as usize..self.offsets[at + 1] as usize
    }

    /// The customers, peers or providers of a node, ascending.
    pub fn neighbors(&self, node: usize, relation: Relation) -> &[u32] {
        &self.neighbors[self.range(node, relation)]
    }

    /// All neighbors of a node, each with its role and the latency of the link in microseconds.
    pub fn links_of(&self, node: usize) -> impl Iterator<Item = (usize, Relation, u32)> + '_ {
        Relation::ALL.into_iter().flat_map(move |relation| {
            self.range(node, relation)
                .map(move |at| (self.neighbors[at] as usize, relation, self.latencies_us[at]))
        })
    }

    /// The role of `neighbor`, seen from `node`, if there is a link.
    pub fn relation(&self, node: usize, neighbor: usize) -> Option<Relation> {
        let has =
            |relation: &Relation| self.neighbors(node, *relation).binary_search(&(neighbor as u32)).is_ok();
        Relation::ALL.into_iter().find(has)
    }

    /// The nodes in an order in which each comes after all its providers; or a circle of providers, by AS
    /// numbers.
    pub fn providers_first(&self) -> Result<Vec<u32>, GraphError> {
        let count = |node| self.neighbors(node, Relation::Provider).len() as u32;
        let mut waits: Vec<u32> = (0..self.len()).map(count).collect();
        let mut order: Vec<u32> = (0..self.len() as u32).filter(|node| waits[*node as usize] == 0).collect();
        let mut at = 0;
        while let Some(&node) = order.get(at) {
            at += 1;
            for &customer in self.neighbors(node as usize, Relation::Customer) {
                waits[customer as usize] -= 1;
                if waits[customer as usize] == 0 {
                    order.push(customer);
                }
            }
        }
        if order.len() == self.len() { Ok(order) } else { Err(GraphError::ProviderCycle(self.cycle(&waits))) }
    }

    /// Finds a circle among the nodes that wait for a provider: each of them has one that waits too.
    fn cycle(&self, waits: &[u32]) -> Vec<u32> {
        let waiting = |node: &u32| waits[*node as usize] > 0;
        let mut seen = vec![usize::MAX; self.len()];
        let mut path = Vec::new();
        let mut at = (0..self.len() as u32).find(waiting);
        while let Some(node) = at {
            if seen[node as usize] != usize::MAX {
                path.drain(..seen[node as usize]);
                break;
            }
            seen[node as usize] = path.len();
            path.push(node);
            at = self.neighbors(node as usize, Relation::Provider).iter().copied().find(waiting);
        }
        path.into_iter().map(|node| self.asns[node as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(links: &[(u32, u32, Relation)]) -> Result<AsGraph, GraphError> {
        let mut builder = GraphBuilder::new();
        for (line, (a, b, relation)) in links.iter().enumerate() {
            builder.link(*a, *b, *relation, 5, line + 1);
        }
        builder.build()
    }

    #[test]
    fn neighbors_lie_by_relation_and_number() {
        use Relation::{Customer, Peer, Provider};
        let graph = graph(&[
            (20, 10, Provider),
            (20, 40, Peer),
            (20, 30, Peer),
            (20, 50, Customer),
            (50, 20, Provider),
        ])
        .unwrap();
        let node = graph.node(20).unwrap();
        let named = |relation| -> Vec<u32> {
            graph.neighbors(node, relation).iter().map(|n| graph.asn(*n as usize)).collect()
        };
        assert_eq!([named(Customer), named(Peer), named(Provider)], [vec![50], vec![30, 40], vec![10]]);
        assert_eq!((graph.len(), graph.links(), graph.degree(node)), (5, 4, 4));
        assert_eq!(graph.relation(graph.node(10).unwrap(), node), Some(Customer));
        assert_eq!(graph.relation(0, graph.node(40).unwrap()), None);
        assert_eq!(graph.links_of(node).map(|(_, _, latency)| latency).collect::<Vec<_>>(), [5; 4]);
    }

    #[test]
    fn contradictions_loops_and_circles_are_named() {
        use Relation::{Customer, Peer};
        let error = graph(&[(1, 2, Customer), (2, 1, Peer)]).unwrap_err();
        assert_eq!(error.to_string(), "line 2: AS2 is a peer of AS1, but line 1 made it a customer");
        let error = graph(&[(1, 2, Peer), (3, 3, Peer)]).unwrap_err();
        assert_eq!(error.to_string(), "line 2: AS3 has a link to itself");
        let circle = graph(&[
            (1, 2, Customer),
            (2, 3, Customer),
            (3, 4, Customer),
            (4, 2, Customer),
            (4, 5, Customer),
        ])
        .unwrap();
        let error = circle.providers_first().unwrap_err();
        assert_eq!(error.to_string(), "providers in a circle: AS2 -> AS4 -> AS3 -> AS2");
    }

    #[test]
    fn providers_come_first() {
        use Relation::Customer;
        let graph = graph(&[(9, 1, Customer), (9, 2, Customer), (2, 1, Customer)]).unwrap();
        let order: Vec<u32> =
            graph.providers_first().unwrap().into_iter().map(|node| graph.asn(node as usize)).collect();
        assert_eq!(order, [9, 2, 1]);
    }

    #[test]
    fn latency_follows_distance() {
        // Amsterdam and New York are 5,860 km apart.
        let km = Place::Earth(52.37, 4.9).distance_km(Place::Earth(40.71, -74.0)).unwrap();
        assert!((5800.0..5920.0).contains(&km), "{km}");
        assert_eq!(Place::Plane(0.0, 0.0).latency_us(Place::Plane(3.0, 4.0)), 138);
        assert_eq!(Place::Plane(0.0, 0.0).distance_km(Place::Earth(0.0, 0.0)), None);
    }
}
