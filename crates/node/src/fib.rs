//! From best routes to forwarding: the FIB outlet.
//!
//! ```text
//! Changes ──> Outlet ── prefix -> hop number ──> RouteInstaller: the data plane's FIB, or the kernel
//!               │                 hop number -> where it leads
//!               └── resolves next hops: connected networks and others' routes (Underlay), else other BGP routes
//! ```
//!
//! A prefix is installed with the *number* of its BGP next hop; the meaning of the number is set separately. When
//! the path to a next hop changes, one number changes, not the hundreds of thousands of prefixes that use it.
//!
//! # Backups
//!
//! With [`OutletConfig::backups`] a number stands for two next hops: that of the best path and that of the
//! second-best, if they differ. The installer knows both and uses the second while the first is dead. So a failed
//! link or gateway costs one write for each number, not one for each prefix, and does not wait for BGP to choose
//! again. Pairs take at most half of the numbers; a prefix beyond that has no backup.
//!
//! # Resolution
//!
//! The way to a next hop is a function of the best routes and of the [`Underlay`], not of the order in which they
//! came. For an address, in this order:
//!
//! 1. If the underlay's longest matching prefix is a connected network, the neighbor is there.
//! 2. Otherwise the longest match among the underlay's routes and the BGP routes decides (the underlay wins a tie).
//!    The BGP route's next hop, or the underlay's gateway (by the underlay alone), is the next address to resolve,
//!    at most [`DEPTH_MAX`] times. A BGP route whose next hop is the very address being resolved is skipped.
//! 3. If nothing matches, the route says unreachable, or the chain returns to an earlier address, the next hop is
//!    unresolved. Its prefixes stay out of the tables, so that shorter ones serve (RFC 4271 9.1.2.1), and return
//!    when it resolves.
//!
//! Which paths are eligible, and whose next hop is nearer, is up to the decision process; it asks
//! [`Underlay::next_hop_view`], the underlay without BGP.
//!
//! Each change of a BGP route or of the underlay marks the next hops whose addresses it covers and those that were
//! resolved through them; only these are resolved again.
//!
//! Routes that import marked with [`flag::DISCARD`] (the community BLACKHOLE where it is honored, or policy) lead
//! to a discard.
//!
//! # Cost
//!
//! A prefix takes 8 bytes (IPv6: 32) in a hash table that is 44 to 88 % full, besides the installer's memory.
//!
//! Missing: several paths of a prefix; IPv6 next hops that are only link-local (the session's interface is not
//! known here).

mod dataplane;
mod hops;
mod resolve;
mod saved;
mod table;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::attrs::flag;
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::route::{Change, Changes, Chosen, RouteAddress};

pub use dataplane::{AdjacencyOf, BaseRoutes, DEFAULTS, FibTables, PathSet, Place};
pub use hops::{Unresolved, Way};
pub use resolve::{DEPTH_MAX, Underlay, UnderlayRoute, UnderlayTarget};
pub use saved::{SavedError, SavedRoutes};
pub use table::HopNumber;

use hops::{Hops, Moved, Target};
use table::{PrefixTable, Tables};

/// The fixed settings of an outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutletConfig {
    /// Prefixes with a second path by another next hop have a backup. Changes must then carry second paths.
    pub backups: bool,
    /// The first hop number that the outlet may use; lower ones belong to base routes.
    pub first_hop: HopNumber,
    /// The last hop number. Routes with further next hops are not installed ([`OutletCounters::without_number`]).
    pub last_hop: HopNumber,
}

impl Default for OutletConfig {
    fn default() -> Self {
        let last_hop = thalweg_dataplane::route::NextHops::GROUPS_MAX as HopNumber;
        Self { backups: false, first_hop: 1, last_hop }
    }
}

/// An instruction for one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install<A> {
    pub prefix: Prefix<A>,
    /// The hop that the prefix now uses; `None` removes the prefix.
    pub hop: Option<HopNumber>,
}

/// A forwarding table that an outlet writes.
///
/// Calls come in batches: hops first, then prefixes, then [`Self::finish`]. Repeating the present state is no
/// change, and a prefix to be removed may be absent.
pub trait RouteInstaller {
    /// Whether [`Self::set_hop`] moves the prefixes installed with the number. If not, the outlet installs them
    /// again after it.
    fn moves_prefixes(&self) -> bool;

    /// Sets where a number leads, and its backup while that way is dead.
    fn set_hop(&mut self, hop: HopNumber, way: Way, backup: Option<Way>);

    /// Installs and removes IPv4 prefixes.
    fn install_v4(&mut self, items: &[Install<u32>]);

    /// Installs and removes IPv6 prefixes.
    fn install_v6(&mut self, items: &[Install<u128>]);

    /// Ends the batch.
    fn finish(&mut self);
}

/// Counters of an outlet: first gauges of the present state, then counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutletCounters {
    /// IPv4 and IPv6 prefixes with a next hop, resolved or not.
    pub prefixes: [u64; 2],
    /// Of these, those that a predecessor saved and BGP has not repeated.
    pub saved_prefixes: u64,
    /// Prefixes that are not installed because their next hop is unresolved.
    pub unresolved_prefixes: u64,
    pub discarding_prefixes: u64,
    pub hops: u64,
    pub unresolved_hops: u64,
    /// Prefixes with a backup.
    pub protected_prefixes: u64,

    /// Changes of best routes received.
    pub changes: u64,
    /// Changes handed to the installer.
    pub installs: u64,
    /// Resolutions of next hops after a change.
    pub resolutions: u64,
    /// Routes that were not installed because all hop numbers were in use.
    pub without_number: u64,
}

/// A prefix whose route changed, before and after.
struct Touched<A> {
    prefix: Prefix<A>,
    before: Option<HopNumber>,
    now: Option<HopNumber>,
}

/// Changes of a batch that are installed together, while others wait for the tables: 11 ms at most for these, 26 to 33 ms
/// for 32,768, which take 630 to 810 ns of processor time a prefix instead of 760 to 950 (`cargo bench -p thalweg-node
/// --bench fib --profile quick`, 500,000 prefixes, the second of two rounds, two idle cores of an AMD EPYC guest).
pub const PIECE_CHANGES: usize = 1 << 12;

/// Changes of best routes by address, because a table writes neighboring prefixes together; those of one prefix are in
/// the order in which they came.
pub struct Batch<'c> {
    v4: Vec<&'c Change<u32>>,
    v6: Vec<&'c Change<u128>>,
}

/// Some changes of a batch: all of their prefixes.
#[derive(Clone, Copy)]
pub struct Piece<'b, 'c> {
    v4: &'b [&'c Change<u32>],
    v6: &'b [&'c Change<u128>],
}

impl<'c> Batch<'c> {
    /// The changes of these, which came in this order.
    pub fn of(all: impl IntoIterator<Item = &'c Changes>) -> Self {
        let mut batch = Self { v4: Vec::new(), v6: Vec::new() };
        for changes in all {
            batch.v4.extend(&changes.v4);
            batch.v6.extend(&changes.v6);
        }
        batch.v4.sort_by_key(|change| (change.prefix.address(), change.prefix.length()));
        batch.v6.sort_by_key(|change| (change.prefix.address(), change.prefix.length()));
        batch
    }

    /// Pieces of so many changes, or a few more.
    pub fn pieces(&self, changes: usize) -> impl Iterator<Item = Piece<'_, 'c>> {
        let v4 = Pieces { rest: &self.v4, changes }.map(|v4| Piece { v4, v6: &[] });
        v4.chain(Pieces { rest: &self.v6, changes }.map(|v6| Piece { v4: &[], v6 }))
    }
}

struct Pieces<'b, 'c, A> {
    rest: &'b [&'c Change<A>],
    changes: usize,
}

impl<'b, 'c, A: RouteAddress> Iterator for Pieces<'b, 'c, A> {
    type Item = &'b [&'c Change<A>];

    fn next(&mut self) -> Option<Self::Item> {
        let last = self.rest.get(..self.changes.max(1)).unwrap_or(self.rest).last()?.prefix;
        let is_of = |change: &&Change<A>| {
            (change.prefix.address(), change.prefix.length()) <= (last.address(), last.length())
        };
        let (piece, rest) = self.rest.split_at(self.rest.partition_point(is_of));
        self.rest = rest;
        Some(piece)
    }
}

/// Turns changes of best routes into instructions for an installer. It has one owner; see the module's text.
#[derive(Debug)]
pub struct Outlet {
    underlay: Underlay,
    tables: Tables,
    hops: Hops,
    backups: bool,
    counters: OutletCounters,
}

impl Outlet {
    /// An outlet without routes.
    pub fn new(config: OutletConfig, underlay: Underlay) -> Self {
        let hops = Hops::new(config.first_hop, config.last_hop);
        let (tables, counters) = (Tables::default(), OutletCounters::default());
        Self { underlay, tables, hops, backups: config.backups, counters }
    }

    /// Applies a shard's changes and installs the result.
    pub fn handle_changes(&mut self, changes: &Changes, installer: &mut dyn RouteInstaller) {
        self.handle_all([changes], installer);
    }

    /// Applies changes in this order, and installs the result of all at once.
    pub fn handle_all<'c>(
        &mut self,
        all: impl IntoIterator<Item = &'c Changes>,
        installer: &mut dyn RouteInstaller,
    ) {
        let batch = Batch::of(all);
        self.handle_piece(Piece { v4: &batch.v4, v6: &batch.v6 }, installer);
    }

    /// Applies the changes of a piece, and installs the result.
    pub fn handle_piece(&mut self, piece: Piece<'_, '_>, installer: &mut dyn RouteInstaller) {
        let (v4, v6) = (self.take_in(piece.v4), self.take_in(piece.v6));
        self.install(&in_order(v4), &in_order(v6), installer);
    }

    /// Replaces the underlay and installs the result.
    pub fn set_underlay(&mut self, underlay: Underlay, installer: &mut dyn RouteInstaller) {
        self.underlay = underlay;
        self.hops.mark_all();
        self.install(&[], &[], installer);
    }

    /// Changes the targets of underlay routes and installs the result.
    pub fn move_underlay(
        &mut self,
        moved: &[(IpPrefix, UnderlayTarget)],
        installer: &mut dyn RouteInstaller,
    ) {
        self.underlay.lead(moved);
        self.hops.mark_all();
        self.install(&[], &[], installer);
    }

    /// The underlay in force.
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Removes all prefixes that `keep` refuses: after a scan of all routes, those that it did not find.
    pub fn retain(
        &mut self,
        keep_v4: impl Fn(Prefix<u32>) -> bool,
        keep_v6: impl Fn(Prefix<u128>) -> bool,
        installer: &mut dyn RouteInstaller,
    ) {
        fn gone<A: RouteAddress>(table: &PrefixTable<A>, keep: impl Fn(Prefix<A>) -> bool) -> Vec<Change<A>> {
            let gone = table.iter().map(|(prefix, _)| prefix).filter(|prefix| !keep(*prefix));
            gone.map(|prefix| Change { prefix, old: None, new: None, further: None }).collect()
        }
        let v4 = gone(&self.tables.v4, keep_v4);
        let v6 = gone(&self.tables.v6, keep_v6);
        if !(v4.is_empty() && v6.is_empty()) {
            self.handle_changes(&Changes { v4, v6, ..Changes::default() }, installer);
        }
    }

    /// Whether an address is the next hop of a route, or a backup.
    pub fn is_next_hop(&self, address: IpAddr) -> bool {
        self.hops.has(address)
    }

    /// Where a hop leads; `None` if it is unresolved or unused.
    pub fn way(&self, hop: HopNumber) -> Option<Way> {
        self.hops.way(hop)
    }

    /// The desired contents of the table: every prefix whose next hop is resolved, with its way.
    pub fn desired(&self) -> impl Iterator<Item = (IpPrefix, Way)> + '_ {
        let way = |hop| self.hops.way(hop);
        let v4 = self.tables.v4.iter().filter_map(move |(prefix, hop)| Some((prefix.into(), way(hop)?)));
        let v6 = self.tables.v6.iter().filter_map(move |(prefix, hop)| Some((prefix.into(), way(hop)?)));
        v4.chain(v6)
    }

    /// Unresolved next hops, why, and how many prefixes wait for them.
    pub fn unresolved(&self) -> impl Iterator<Item = (IpAddr, Unresolved, u64)> + '_ {
        self.hops.unresolved()
    }

    /// The counters now.
    pub fn counters(&self) -> OutletCounters {
        let mut counters = self.counters;
        counters.prefixes = [self.tables.v4.len() as u64, self.tables.v6.len() as u64];
        counters.saved_prefixes = (self.tables.v4.saved() + self.tables.v6.saved()) as u64;
        self.hops.count(&mut counters);
        counters
    }

    /// Updates the table of prefixes and marks the next hops whose resolution may change.
    fn take_in<A: RouteAddress>(&mut self, changes: &[&Change<A>]) -> Vec<Touched<A>>
    where
        Tables: table::Both<A>,
        IpPrefix: From<Prefix<A>>,
    {
        let mut touched = Vec::with_capacity(changes.len());
        // Consecutive changes often have the same attributes.
        let mut recent: Option<(usize, Option<Target>)> = None;
        for change in changes {
            self.counters.changes += 1;
            let target = change.new.as_ref().and_then(|chosen| match recent {
                Some((id, target)) if id == chosen.attrs.id() && chosen.peer != PeerId::LOCAL => target,
                _ => {
                    let target = target_of(chosen);
                    if chosen.peer != PeerId::LOCAL {
                        recent = Some((chosen.attrs.id(), target));
                    }
                    target
                }
            });
            let leads_on = self.backups && matches!(target, Some(Target::Address(_)));
            let backup = if leads_on { backup_of(change) } else { None };
            let now = target.and_then(|target| {
                let number = self.hops.take(target, backup);
                self.counters.without_number += u64::from(number.is_none());
                number
            });
            let table: &mut PrefixTable<A> = table::Both::of_mut(&mut self.tables);
            let before = table.set(change.prefix, now);
            if let Some(before) = before {
                self.hops.release(before);
            }
            if before != now {
                self.hops.mark_covered(change.prefix.into());
                touched.push(Touched { prefix: change.prefix, before, now });
            }
        }
        touched
    }

    fn install(&mut self, v4: &[Touched<u32>], v6: &[Touched<u128>], installer: &mut dyn RouteInstaller) {
        let moved = self.hops.resolve_marked(&self.tables, &self.underlay);
        self.counters.resolutions += moved.resolved;
        for hop in &moved.set {
            if let Some(way) = self.hops.way(*hop) {
                installer.set_hop(*hop, way, self.hops.backup(*hop));
            }
        }
        let again = |hop: HopNumber| {
            moved.flipped.contains(&hop) || !installer.moves_prefixes() && moved.turned.contains(&hop)
        };
        let scan = moved.flipped.iter().chain(&moved.turned).any(|hop| again(*hop));
        let (mut items4, mut items6) = (Vec::new(), Vec::new());
        if scan {
            items4.extend(self.again(&self.tables.v4, &again));
            items6.extend(self.again(&self.tables.v6, &again));
        }
        items4.extend(v4.iter().filter_map(|touched| self.item(touched, &moved)));
        items6.extend(v6.iter().filter_map(|touched| self.item(touched, &moved)));
        self.counters.installs += (items4.len() + items6.len()) as u64;
        if !items4.is_empty() {
            installer.install_v4(&items4);
        }
        if !items6.is_empty() {
            installer.install_v6(&items6);
        }
        installer.finish();
        self.hops.free_unused();
    }

    /// All prefixes with one of these hops.
    fn again<'a, A: RouteAddress>(
        &'a self,
        table: &'a PrefixTable<A>,
        wanted: &'a impl Fn(HopNumber) -> bool,
    ) -> impl Iterator<Item = Install<A>> + 'a {
        table.iter().filter(|(_, hop)| wanted(*hop)).map(|(prefix, hop)| {
            let hop = self.hops.way(hop).map(|_| hop);
            Install { prefix, hop }
        })
    }

    /// The instruction for a touched prefix; none if it was not installed and is not to be.
    fn item<A: RouteAddress>(&self, touched: &Touched<A>, moved: &Moved) -> Option<Install<A>> {
        let hop = touched.now.filter(|hop| self.hops.way(*hop).is_some());
        let was_resolved = |hop: HopNumber| {
            moved.resolved_before.get(&hop).copied().unwrap_or_else(|| self.hops.way(hop).is_some())
        };
        let installed = touched.before.is_some_and(was_resolved);
        (hop.is_some() || installed).then_some(Install { prefix: touched.prefix, hop })
    }
}

/// Touched prefixes by address, each once: what it was before the first change, and is after the last.
fn in_order<A: RouteAddress>(mut touched: Vec<Touched<A>>) -> Vec<Touched<A>> {
    touched.sort_by_key(|each| (each.prefix.address(), each.prefix.length()));
    touched.dedup_by(|later, first| {
        let is_same = later.prefix == first.prefix;
        if is_same {
            first.now = later.now;
        }
        is_same
    });
    touched.retain(|each| each.before != each.now);
    touched
}

/// The target of a route; `None` for routes of this router, which others install.
fn target_of(chosen: &Chosen) -> Option<Target> {
    if chosen.peer == PeerId::LOCAL {
        return None;
    }
    if chosen.attrs.has(flag::DISCARD) {
        return Some(Target::Discard);
    }
    Some(Target::Address(chosen.attrs.next_hop().address()))
}

/// The backup of the best path's next hop: the next hop of the next path that has another one.
fn backup_of<A>(change: &Change<A>) -> Option<IpAddr> {
    let first = change.new.as_ref()?.attrs.next_hop().address();
    let others = change.further.as_ref()?.new.iter();
    let mut others = others.filter_map(|path| match target_of(path)? {
        Target::Address(address) => Some(address),
        Target::Discard => None,
    });
    others.find(|address| *address != first)
}
