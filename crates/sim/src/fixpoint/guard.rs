//! Decides which received routes an AS drops: wrong origins, leaks that it can prove, and paths that contain
//! itself.

use super::state::State;
use super::{Engine, Scenario};

/// A rule for dropping routes. The solver is compiled for each kind, so that the usual case, in which no AS
/// drops a route, costs nothing.
pub(super) trait Guard {
    /// Whether the source of a route matters.
    const SOURCES: bool;

    /// Whether `rank` accepts the route that `from` has.
    fn takes(&self, state: &State, rank: u32, from: u32) -> bool;
}

/// Every AS accepts every route.
pub(super) struct Open;

impl Guard for Open {
    const SOURCES: bool = false;

    #[inline(always)]
    fn takes(&self, _: &State, _: u32, _: u32) -> bool {
        true
    }
}

/// The route of the leaking AS.
#[derive(Clone, Debug)]
pub(super) struct Leak {
    /// The leak's number in [`State::sources`].
    pub(super) source: u8,
    /// The number of the origin of the leaker's own route.
    pub(super) origin: u8,
    /// All ASes from the leaker to the origin, by rank.
    pub(super) path: Vec<u32>,
}

/// Several origins, a leak, and ASes that check.
pub(super) struct Checked<'a> {
    pub(super) engine: &'a Engine,
    pub(super) scenario: &'a Scenario,
    pub(super) leak: Option<&'a Leak>,
}

impl Guard for Checked<'_> {
    const SOURCES: bool = true;

    fn takes(&self, state: &State, rank: u32, from: u32) -> bool {
        let node = self.engine.nodes[rank as usize] as usize;
        let source = state.sources[from as usize];
        let leak = self.leak.filter(|leak| leak.source == source);
        let origin = leak.map_or(source, |leak| leak.origin);
        if origin > 0 && self.scenario.rov.has(node) {
            return false;
        }
        match leak {
            // The path contains its own AS number.
            Some(leak) if leak.path.contains(&rank) => false,
            Some(leak) => !self.scenario.aspa.has(node) || self.is_plausible(leak, state, rank, from),
            None => true,
        }
    }
}

impl Checked<'_> {
    /// The check of draft-ietf-sidrops-aspa-verification: a path climbs from customers to providers, and then
    /// descends. Only an AS's statement about its own providers counts, and only if it makes one.
    fn is_plausible(&self, leak: &Leak, state: &State, rank: u32, from: u32) -> bool {
        let mut path = vec![from];
        let mut at = from;
        while at != leak.path[0] {
            at = state.next[at as usize];
            path.push(at);
        }
        path.extend_from_slice(&leak.path[1..]);
        path.reverse();
        let denies = |low: u32, high: u32| {
            let says = self.scenario.aspa.has(self.engine.nodes[low as usize] as usize);
            says && !self.engine.is_provider(low, high)
        };
        let length = path.len();
        let up = path.windows(2).position(|hop| denies(hop[0], hop[1])).map_or(length, |at| at + 1);
        if !self.engine.is_provider(rank, from) {
            return up == length;
        }
        let down = path.windows(2).rev().position(|hop| denies(hop[1], hop[0])).map_or(length, |at| at + 1);
        up + down >= length
    }
}
