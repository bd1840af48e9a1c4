//! From best routes to forwarding: the FIB outlet.
//!
//! ```text
//! Changes ──> Outlet ── prefix -> hop number ──> RouteInstaller: the data plane's FIB, or the kernel
//!               │                 hop number -> where it leads
//!               └── resolves next hops: connected networks and others' routes (Underlay), else other BGP routes
//! ```
//!
//! A prefix is installed with the *number* of its BGP next hop; what the number means is said separately. When the
//! way to a next hop changes, one number changes, not the hundreds of thousands of prefixes that use it.
//!
//! # Backups
//!
//! With [`OutletConfig::backups`] a number stands for two next hops: that of the best path and that of the second-best,
//! where it is another one. The installer is told both ways and sends by the second while the first is dead. So a
//! link or a gateway that fails costs one write for each number, not one for each prefix, and does not wait for BGP to
//! choose again. Pairs take at most half of the numbers there are; a prefix beyond that has no backup.
//!
//! # Resolution
//!
//! Where a next hop leads is a function of the best routes and of the [`Underlay`], not of the order in which they
//! came. For an address, in this order:
//!
//! 1. The underlay's longest prefix that has it is a connected network: the neighbor is there.
//! 2. Of the underlay's routes and the BGP routes, the longest prefix has it (the underlay's of two equal
//!    ones). The BGP route's next hop, or the underlay's gateway (by the underlay alone), is the next address to
//!    resolve; at most [`DEPTH_MAX`] times. A BGP route that leads to the very address it would resolve is passed
//!    over.
//! 3. Nothing has it, a route says that it cannot be reached, or the chain comes back to where it was: the next hop is
//!    unresolved. Its prefixes stay out of the tables, so that shorter ones serve (RFC 4271 9.1.2.1), and come back
//!    when it resolves.
//!
//! Which paths may be the best at all, and whose next hop is nearer, is the decision's affair; it asks
//! [`Underlay::next_hop_view`], the underlay without BGP.
//!
//! Each change of a BGP route or of the underlay marks the next hops whose addresses it covers, and those that
//! were resolved through them; only these are resolved again.
//!
//! Routes that import marked so ([`flag::DISCARD`]: the community BLACKHOLE where it is honored, or policy) lead to a
//! discard.
//!
//! # Cost
//!
//! A prefix takes 8 bytes (IPv6: 32) in a hash table that is 44 to 88 % full, besides what the installer keeps.
//!
//! Missing: several paths of a prefix; IPv6 next hops that are only link-local (the session's interface is not
//! known here).

mod dataplane;
mod hops;
mod resolve;
mod table;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::attrs::flag;
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::route::{Change, Changes, Chosen, RouteAddress};

pub use dataplane::{AdjacencyOf, BaseRoutes, DEFAULTS, FibTables, PathSet};
pub use hops::{Unresolved, Way};
pub use resolve::{DEPTH_MAX, Underlay, UnderlayRoute, UnderlayTarget};
pub use table::HopNumber;

use hops::{Hops, Moved, Target};
use table::{PrefixTable, Tables};

/// What an outlet is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutletConfig {
    /// A prefix with a second path by another next hop stands by to go there. Changes must carry second paths.
    pub backups: bool,
    /// The first hop number to give away; lower ones belong to others.
    pub first_hop: HopNumber,
    /// The last hop number there is. Routes with further next hops are not installed
    /// ([`OutletCounters::without_number`]).
    pub last_hop: HopNumber,
}

impl Default for OutletConfig {
    fn default() -> Self {
        let last_hop = thalweg_dataplane::lpm::NEXT_HOP_MAX;
        Self { backups: false, first_hop: 1, last_hop }
    }
}

/// What is to be installed for a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install<A> {
    pub prefix: Prefix<A>,
    /// The hop it leads to from now on; `None` takes the prefix out.
    pub hop: Option<HopNumber>,
}

/// Where routes go.
///
/// Calls come in batches: hops first, then prefixes, then [`Self::finish`]. Saying again what is the case already is
/// no change, and a prefix to be taken out may not be there.
pub trait RouteInstaller {
    /// Whether [`Self::set_hop`] moves the prefixes that are installed with the number. If not, they are installed
    /// again after it.
    fn moves_prefixes(&self) -> bool;

    /// Says what a number means from now on, and which way it leads while that one is dead, if there is another.
    fn set_hop(&mut self, hop: HopNumber, way: Way, backup: Option<Way>);

    /// Installs and takes out IPv4 prefixes.
    fn install_v4(&mut self, items: &[Install<u32>]);

    /// Installs and takes out IPv6 prefixes.
    fn install_v6(&mut self, items: &[Install<u128>]);

    /// The batch is complete.
    fn finish(&mut self);
}

/// Counters of an outlet. The first group counts what is, the second what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutletCounters {
    /// IPv4 and IPv6 prefixes with a next hop, resolved or not.
    pub prefixes: [u64; 2],
    /// Prefixes that are not installed because their next hop is unresolved.
    pub unresolved_prefixes: u64,
    /// Prefixes that discard.
    pub discarding_prefixes: u64,
    /// Next hops in use.
    pub hops: u64,
    /// Next hops in use that are unresolved.
    pub unresolved_hops: u64,
    /// Prefixes with a next hop that stands by.
    pub protected_prefixes: u64,

    /// Changes of best routes seen.
    pub changes: u64,
    /// Changes handed to the installer.
    pub installs: u64,
    /// Times a next hop was resolved anew because of a change.
    pub resolutions: u64,
    /// Routes that were not installed because all hop numbers were in use.
    pub without_number: u64,
}

/// A prefix whose route changed, as it was and is.
struct Touched<A> {
    prefix: Prefix<A>,
    before: Option<HopNumber>,
    now: Option<HopNumber>,
}

/// Keeps forwarding in line with the best routes. One owner; see the module's text.
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

    /// Takes in what a shard changed and installs what follows from it.
    pub fn handle_changes(&mut self, changes: &Changes, installer: &mut dyn RouteInstaller) {
        let v4 = self.take_in(&changes.v4);
        let v6 = self.take_in(&changes.v6);
        self.install(&v4, &v6, installer);
    }

    /// Replaces what next hops are resolved with and installs what follows from it.
    pub fn set_underlay(&mut self, underlay: Underlay, installer: &mut dyn RouteInstaller) {
        self.underlay = underlay;
        self.hops.mark_all();
        self.install(&[], &[], installer);
    }

    /// Has routes that next hops are resolved with lead elsewhere, and installs what follows from it.
    pub fn move_underlay(
        &mut self,
        moved: &[(IpPrefix, UnderlayTarget)],
        installer: &mut dyn RouteInstaller,
    ) {
        self.underlay.lead(moved);
        self.hops.mark_all();
        self.install(&[], &[], installer);
    }

    /// What next hops are resolved with.
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Takes out the prefixes that are not to be kept: after a look at all routes there are, those that went
    /// unseen.
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

    /// Whether an address is the next hop of a route, or stands by for one.
    pub fn is_next_hop(&self, address: IpAddr) -> bool {
        self.hops.has(address)
    }

    /// Where a hop leads; `None` if it is unresolved or not in use.
    pub fn way(&self, hop: HopNumber) -> Option<Way> {
        self.hops.way(hop)
    }

    /// What should be installed now: every prefix whose next hop is resolved, and the way it leads.
    pub fn desired(&self) -> impl Iterator<Item = (IpPrefix, Way)> + '_ {
        let way = |hop| self.hops.way(hop);
        let v4 = self.tables.v4.iter().filter_map(move |(prefix, hop)| Some((prefix.into(), way(hop)?)));
        let v6 = self.tables.v6.iter().filter_map(move |(prefix, hop)| Some((prefix.into(), way(hop)?)));
        v4.chain(v6)
    }

    /// Next hops that are unresolved, why, and how many prefixes wait for them.
    pub fn unresolved(&self) -> impl Iterator<Item = (IpAddr, Unresolved, u64)> + '_ {
        self.hops.unresolved()
    }

    /// The counters now.
    pub fn counters(&self) -> OutletCounters {
        let mut counters = self.counters;
        counters.prefixes = [self.tables.v4.len() as u64, self.tables.v6.len() as u64];
        self.hops.count(&mut counters);
        counters
    }

    /// Brings the table of prefixes up to date and marks the next hops that may resolve otherwise now.
    fn take_in<A: RouteAddress>(&mut self, changes: &[Change<A>]) -> Vec<Touched<A>>
    where
        Tables: table::Both<A>,
        IpPrefix: From<Prefix<A>>,
    {
        let mut touched = Vec::with_capacity(changes.len());
        // Neighboring changes often have the same attributes.
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

    /// What a touched prefix needs; nothing if it was not installed and is not to be.
    fn item<A: RouteAddress>(&self, touched: &Touched<A>, moved: &Moved) -> Option<Install<A>> {
        let hop = touched.now.filter(|hop| self.hops.way(*hop).is_some());
        let was_resolved = |hop: HopNumber| {
            moved.resolved_before.get(&hop).copied().unwrap_or_else(|| self.hops.way(hop).is_some())
        };
        let installed = touched.before.is_some_and(was_resolved);
        (hop.is_some() || installed).then_some(Install { prefix: touched.prefix, hop })
    }
}

/// What a route leads to; `None` for our own routes, which others installed.
fn target_of(chosen: &Chosen) -> Option<Target> {
    if chosen.peer == PeerId::LOCAL {
        return None;
    }
    if chosen.attrs.has(flag::DISCARD) {
        return Some(Target::Discard);
    }
    Some(Target::Address(chosen.attrs.next_hop().address()))
}

/// The next hop that stands by for the best path's: that of the next path that has another one.
fn backup_of<A>(change: &Change<A>) -> Option<IpAddr> {
    let first = change.new.as_ref()?.attrs.next_hop().address();
    let others = change.further.as_ref()?.new.iter();
    let mut others = others.filter_map(|path| match target_of(path)? {
        Target::Address(address) => Some(address),
        Target::Discard => None,
    });
    others.find(|address| *address != first)
}
