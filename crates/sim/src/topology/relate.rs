//! Derives provider and peer relationships from the numbers of links, where a graph does not state them.
//!
//! Of two linked ASes, the one with more links sells transit to the other; if they are alike (a ratio below
//! 1.5), they are peers. An AS whose links would all be to peers and customers buys from its greatest
//! neighbor instead, if that one is greater than itself. Greater means more links, or equally many and a
//! lower number. Sellers are always greater, so there is no circle. The greatest AS of a neighborhood finds
//! no seller there: it gets one more link, to the greatest AS of all, and buys from it. So every AS has a
//! route to every other.

use super::graph::{GraphBuilder, Place, Relation};

/// With a lower ratio of links, two ASes are peers.
const ALIKE: f64 = 1.5;

/// A link without a relationship; `None` for a latency that follows from the places.
pub(super) type Bare = (u32, u32, Option<u32>);

/// The builder of a graph of ASes at these places. AS number `i + 1` is at place `i`, and links name indices
/// of places.
pub(super) fn related(places: &[Place], links: &[Bare]) -> GraphBuilder {
    let mut neighbors: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    for (a, b, _) in links {
        neighbors[*a as usize].push(*b as usize);
        neighbors[*b as usize].push(*a as usize);
    }
    for neighbors in &mut neighbors {
        neighbors.sort_unstable();
        neighbors.dedup();
    }
    let degree = |node: usize| neighbors[node].len();
    let rank = |node: &usize| (std::cmp::Reverse(degree(*node)), *node);
    let alike = |a: usize, b: usize| {
        let (low, high) = (degree(a).min(degree(b)), degree(a).max(degree(b)));
        (high as f64) < ALIKE * low as f64
    };
    // The AS that each node buys from although the two are alike.
    let seller: Vec<Option<usize>> = (0..places.len())
        .map(|node| {
            let greatest = neighbors[node].iter().copied().min_by_key(rank)?;
            (rank(&greatest) < rank(&node)).then_some(greatest)
        })
        .collect();
    let greatest = (0..places.len()).min_by_key(rank);
    let mut builder = GraphBuilder::new();
    for (node, place) in places.iter().enumerate() {
        builder.node(node as u32 + 1, Some(*place));
    }
    let mut link = |low: usize, high: usize, relation, latency: Option<u32>| {
        let latency_us = latency.unwrap_or_else(|| places[low].latency_us(places[high]));
        builder.link(low as u32 + 1, high as u32 + 1, relation, latency_us, 0);
    };
    for &(a, b, latency) in links {
        let (a, b) = (a as usize, b as usize);
        let (low, high) = if rank(&a) < rank(&b) { (b, a) } else { (a, b) };
        let sells = !alike(a, b)
            || has_no_other_seller(low, &neighbors[low], alike, rank) && seller[low] == Some(high);
        link(low, high, if sells { Relation::Provider } else { Relation::Peer }, latency);
    }
    for top in (0..places.len()).filter(|node| seller[*node].is_none()) {
        if let Some(greatest) = greatest.filter(|greatest| *greatest != top) {
            link(top, greatest, Relation::Provider, None);
        }
    }
    builder
}

/// Whether all greater neighbors of the node are alike.
fn has_no_other_seller<R: Ord>(
    node: usize,
    neighbors: &[usize],
    alike: impl Fn(usize, usize) -> bool,
    rank: impl Fn(&usize) -> R,
) -> bool {
    neighbors.iter().all(|other| alike(node, *other) || rank(other) > rank(&node))
}
