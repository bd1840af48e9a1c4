//! Read access to routes: what scans, look-ups and explanations return.

use std::fmt;

use thalweg_base::{Address, Prefix};

use super::decision::Step;
use super::paths::{Block, DAMPED, PathMeta, STALE, UNREACHABLE};
use crate::attrs::AttrRef;
use crate::peer::PeerId;
use crate::route::Chosen;

/// Where a scan continues. Entries keep their numbers, so a prefix that is present throughout is visited exactly
/// once, whatever happens between the calls; others are visited at most once each time they exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCursor {
    pub(super) next: u32,
}

impl ScanCursor {
    pub const START: Self = Self { next: 0 };
}

/// One path of a prefix.
#[derive(Clone, Copy, Debug)]
pub struct PathView<'a> {
    pub attrs: &'a AttrRef,
    pub peer: PeerId,
    pub path_id: u32,
    /// Its number within the prefix.
    pub local_id: u16,
    /// The time of arrival, in seconds since the beginning.
    pub received_s: u32,
    /// From 0 for the best; `None` if the path is not among those kept in order.
    pub rank: Option<usize>,
    /// Its neighbor is gone or is repeating its routes, and has not repeated this one.
    pub stale: bool,
    pub unreachable: bool,
    /// Flap damping suppresses it.
    pub damped: bool,
}

impl PathView<'_> {
    /// The form in which changes report it.
    pub fn chosen(&self) -> Chosen {
        Chosen { attrs: self.attrs.clone(), peer: self.peer, local_id: self.local_id }
    }

    /// Whether it may become the best path.
    pub fn is_eligible(&self) -> bool {
        !self.unreachable && !self.damped
    }
}

/// A prefix and its paths.
#[derive(Clone, Copy)]
pub struct ScannedRoute<'a, A> {
    pub prefix: Prefix<A>,
    /// The version of the last change.
    pub version: u32,
    pub(super) ranked: usize,
    pub(super) block: Block<'a>,
}

impl<'a, A: Address> ScannedRoute<'a, A> {
    /// The best path; `None` if all paths are unreachable or damped, or if the prefix is withdrawn and kept for a
    /// reader.
    #[inline]
    pub fn best(&self) -> Option<PathView<'a>> {
        self.ranked().next()
    }

    /// The paths that changes report, in order of rank: as many as the shard was told, if that many are eligible.
    #[inline]
    pub fn ranked(&self) -> impl ExactSizeIterator<Item = PathView<'a>> + use<'a, A> {
        self.rows(self.ranked)
    }

    /// All paths: first the ranked ones in order, then the others in no order.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = PathView<'a>> + use<'a, A> {
        self.rows(self.block.meta.len())
    }

    #[inline]
    fn rows(&self, count: usize) -> impl ExactSizeIterator<Item = PathView<'a>> + use<'a, A> {
        let ranked = self.ranked;
        let rows = self.block.meta[..count].iter().zip(&self.block.attrs[..count]);
        rows.enumerate().map(move |(at, (meta, attrs))| view(meta, attrs, (at < ranked).then_some(at)))
    }
}

impl<A: Address> fmt::Debug for ScannedRoute<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScannedRoute")
            .field("prefix", &self.prefix.to_string())
            .field("version", &self.version)
            .field("paths", &self.paths().collect::<Vec<_>>())
            .finish()
    }
}

#[inline]
fn view<'a>(meta: &PathMeta, attrs: &'a Option<AttrRef>, rank: Option<usize>) -> PathView<'a> {
    // Every row within the count has attributes; see `paths`.
    let Some(attrs) = attrs else { unreachable!("a path without attributes") };
    PathView {
        attrs,
        peer: meta.peer,
        path_id: meta.path_id,
        local_id: meta.local_id,
        received_s: meta.received_s(),
        rank,
        stale: meta.has_any(STALE),
        unreachable: meta.has_any(UNREACHABLE),
        damped: meta.has_any(DAMPED),
    }
}

/// The decision's verdict about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Best,
    /// It lost to another path of the prefix.
    LostAt {
        /// In this step.
        step: Step,
        winner: PeerId,
        winner_path_id: u32,
    },
    Unreachable,
    /// Nothing is selected yet: the router has restarted and waits for its neighbors' tables.
    Deferred,
    /// Flap damping suppresses it.
    Damped,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("best"),
            Self::LostAt { step, winner, winner_path_id: 0 } => write!(f, "{step} than {winner}"),
            Self::LostAt { step, winner, winner_path_id } => {
                write!(f, "{step} than path {winner_path_id} of {winner}")
            }
            Self::Unreachable => f.write_str("next hop unreachable"),
            Self::Deferred => f.write_str("selection is deferred until neighbors have sent their tables"),
            Self::Damped => f.write_str("suppressed by flap damping"),
        }
    }
}

/// A path and the verdict about it.
#[derive(Clone, Copy, Debug)]
pub struct Explained<'a> {
    pub path: PathView<'a>,
    pub verdict: Verdict,
    /// The cost to reach the next hop; `None` if it is unreachable.
    pub metric: Option<u32>,
}
