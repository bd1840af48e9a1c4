//! Next hops by number, and where each leads.
//!
//! A number stands for a next hop and, for prefixes with a second path by another one, for the backup that takes
//! over when the first cannot be used (BGP PIC, draft-ietf-rtgwg-bgp-pic). Prefixes with the same pair share a
//! number, so the installer moves all of them with one write.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use thalweg_base::{Address, IpPrefix};

use super::OutletCounters;
use super::resolve::{DEPTH_MAX, Underlay, UnderlayTarget};
use super::table::{HopNumber, Tables};

/// The target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Address(IpAddr),
    Discard,
}

/// Where a resolved next hop leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// To a neighbor.
    Neighbor {
        /// The next hop itself, or the gateway toward it.
        address: IpAddr,
        /// The link, numbered as in the underlay.
        link: u32,
    },
    /// To a discard.
    Discard,
}

thalweg_base::words! {
    /// Why a next hop is unresolved.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Unresolved {
        NoRoute => "no route to it",
        OwnAddress => "it is an address of this router",
        Loop => "the routes to it lead back to it",
        /// The chain exceeds [`DEPTH_MAX`] routes.
        TooDeep => "too many routes in a row",
    }
}

/// A target and its backup next hop.
pub(super) type Pair = (Target, Option<IpAddr>);

#[derive(Debug)]
struct Hop {
    target: Target,
    /// The next hop of the second-best path.
    backup: Option<IpAddr>,
    /// Prefixes that use it.
    prefixes: u64,
    /// `None` before the first resolution.
    state: Option<Result<Way, Unresolved>>,
    /// The way to the backup, if it resolves and differs.
    backup_way: Option<Way>,
    /// The hops of the BGP routes through which the two were resolved.
    through: [Option<HopNumber>; 2],
    marked: bool,
}

fn addresses((target, backup): Pair) -> impl Iterator<Item = IpAddr> + use<> {
    let primary = match target {
        Target::Address(address) => Some(address),
        Target::Discard => None,
    };
    primary.into_iter().chain(backup)
}

/// The result of a round of resolution.
pub(super) struct Moved {
    /// Number of hops resolved in this round.
    pub(super) resolved: u64,
    /// Resolved hops that are new or lead elsewhere.
    pub(super) set: Vec<HopNumber>,
    /// Existing hops that lead elsewhere.
    pub(super) turned: HashSet<HopNumber>,
    /// Existing hops that became resolved or unresolved.
    pub(super) flipped: HashSet<HopNumber>,
    /// Whether each hop of this round was resolved before.
    pub(super) resolved_before: HashMap<HopNumber, bool>,
}

/// All next hops in use.
#[derive(Debug)]
pub(super) struct Hops {
    first: HopNumber,
    last: HopNumber,
    /// Indexed by number, from `first`.
    slots: Vec<Option<Hop>>,
    numbers: HashMap<Pair, HopNumber>,
    /// The numbers that have an address as next hop or backup.
    by_address: BTreeSet<(IpAddr, HopNumber)>,
    free: Vec<HopNumber>,
    marked: Vec<HopNumber>,
    /// Numbers whose last prefix went in this round; they become free once the installer has its instructions.
    unused: Vec<HopNumber>,
}

impl Hops {
    pub(super) fn new(first: HopNumber, last: HopNumber) -> Self {
        Self {
            first: first.max(1),
            last,
            slots: Vec::new(),
            numbers: HashMap::new(),
            by_address: BTreeSet::new(),
            free: Vec::new(),
            marked: Vec::new(),
            unused: Vec::new(),
        }
    }

    fn get(&self, number: HopNumber) -> Option<&Hop> {
        self.slots.get(usize::from(number.checked_sub(self.first)?))?.as_ref()
    }

    fn get_mut(&mut self, number: HopNumber) -> Option<&mut Hop> {
        self.slots.get_mut(usize::from(number.checked_sub(self.first)?))?.as_mut()
    }

    /// Takes the number for one more prefix with this target and backup; `None` if all are in use. Pairs take at
    /// most half of the numbers: beyond that a prefix loses its backup, but is still installed.
    pub(super) fn take(&mut self, target: Target, backup: Option<IpAddr>) -> Option<HopNumber> {
        let mut pair = (target, backup);
        if backup.is_some() && !self.numbers.contains_key(&pair) && !self.has_room_for_pairs() {
            pair.1 = None;
        }
        if let Some(number) = self.numbers.get(&pair).copied() {
            self.get_mut(number)?.prefixes += 1;
            return Some(number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u16::try_from(self.slots.len()).ok()?.checked_add(self.first)?;
                if number > self.last {
                    return None;
                }
                self.slots.push(None);
                number
            }
        };
        let (state, backup_way, through) = (None, None, [None; 2]);
        let hop = Hop { target, backup: pair.1, prefixes: 1, state, backup_way, through, marked: true };
        *self.slots.get_mut(usize::from(number - self.first))? = Some(hop);
        self.numbers.insert(pair, number);
        self.by_address.extend(addresses(pair).map(|address| (address, number)));
        self.marked.push(number);
        Some(number)
    }

    /// Whether some number has the address as next hop or backup.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.by_address.range((address, 0)..=(address, HopNumber::MAX)).next().is_some()
    }

    /// The targets and backups in use, and the index of each number among them.
    pub(super) fn pairs(&self) -> (Vec<Pair>, HashMap<HopNumber, u16>) {
        let used = (self.first..=self.last).zip(&self.slots).filter_map(|(number, hop)| {
            let hop = hop.as_ref()?;
            Some(((hop.target, hop.backup), number))
        });
        let (pairs, numbers): (Vec<_>, Vec<_>) = used.unzip();
        (pairs, numbers.into_iter().zip(0..).collect())
    }

    fn has_room_for_pairs(&self) -> bool {
        let all = usize::from(self.last.saturating_sub(self.first)) + 1;
        self.numbers.len() < all / 2
    }

    /// Gives up one prefix's use of the number.
    pub(super) fn release(&mut self, number: HopNumber) {
        if let Some(hop) = self.get_mut(number) {
            hop.prefixes -= 1;
            if hop.prefixes == 0 {
                self.unused.push(number);
            }
        }
    }

    /// Frees the numbers that no prefix uses any more.
    pub(super) fn free_unused(&mut self) {
        for number in std::mem::take(&mut self.unused) {
            // It may be in use again, or be listed twice.
            let Some(Hop { target, backup, prefixes: 0, .. }) = self.get(number) else { continue };
            let pair = (*target, *backup);
            self.numbers.remove(&pair);
            for address in addresses(pair) {
                self.by_address.remove(&(address, number));
            }
            if let Some(slot) = self.slots.get_mut(usize::from(number - self.first)) {
                *slot = None;
            }
            self.free.push(number);
        }
    }

    fn mark(&mut self, number: HopNumber) {
        if let Some(hop) = self.get_mut(number)
            && !hop.marked
        {
            hop.marked = true;
            self.marked.push(number);
        }
    }

    pub(super) fn mark_all(&mut self) {
        for number in (self.first..=self.last).take(self.slots.len()) {
            self.mark(number);
        }
    }

    /// Marks the hops whose address the prefix covers.
    #[inline]
    pub(super) fn mark_covered(&mut self, prefix: IpPrefix) {
        let (first, last) = ends(prefix);
        let all = (first, HopNumber::MIN)..=(last, HopNumber::MAX);
        if self.by_address.range(all.clone()).next().is_some() {
            let covered: Vec<_> = self.by_address.range(all).map(|(_, number)| *number).collect();
            for number in covered {
                self.mark(number);
            }
        }
    }

    /// Where a hop leads; `None` if it is unresolved.
    #[inline]
    pub(super) fn way(&self, number: HopNumber) -> Option<Way> {
        self.get(number)?.state?.ok()
    }

    /// Where a hop leads while its first way is dead; `None` without a backup.
    pub(super) fn backup(&self, number: HopNumber) -> Option<Way> {
        self.get(number)?.backup_way
    }

    pub(super) fn unresolved(&self) -> impl Iterator<Item = (IpAddr, Unresolved, u64)> + '_ {
        self.slots.iter().flatten().filter_map(|hop| match (hop.target, hop.state) {
            (Target::Address(address), Some(Err(why))) => Some((address, why, hop.prefixes)),
            _ => None,
        })
    }

    pub(super) fn count(&self, counters: &mut OutletCounters) {
        let (mut targets, mut unresolved) = (HashSet::new(), HashSet::new());
        for hop in self.slots.iter().flatten() {
            counters.hops += u64::from(targets.insert(hop.target));
            counters.protected_prefixes += if hop.backup_way.is_some() { hop.prefixes } else { 0 };
            match hop.state {
                Some(Ok(_)) if hop.target == Target::Discard => counters.discarding_prefixes += hop.prefixes,
                Some(Ok(_)) => {}
                _ => {
                    counters.unresolved_hops += u64::from(unresolved.insert(hop.target));
                    counters.unresolved_prefixes += hop.prefixes;
                }
            }
        }
    }

    /// Resolves the marked hops and those that were resolved through them.
    pub(super) fn resolve_marked(&mut self, tables: &Tables, underlay: &Underlay) -> Moved {
        let mut marked = self.with_dependents();
        marked.sort_unstable();
        let mut moved = Moved {
            resolved: marked.len() as u64,
            set: Vec::new(),
            turned: HashSet::new(),
            flipped: HashSet::new(),
            resolved_before: HashMap::new(),
        };
        for number in marked {
            let Some(hop) = self.get(number) else { continue };
            let (old, old_backup) = (hop.state, hop.backup_way);
            let (new, through) = self.resolve(hop.target, tables, underlay);
            let backup = hop.backup.map(|address| self.resolve(Target::Address(address), tables, underlay));
            let (backup, backup_through) = backup.unwrap_or((Err(Unresolved::NoRoute), None));
            let backup = backup.ok().filter(|way| new != Ok(*way));
            if let Some(hop) = self.get_mut(number) {
                (hop.state, hop.backup_way, hop.marked) = (Some(new), backup, false);
                hop.through = [through, backup_through];
            }
            moved.resolved_before.insert(number, matches!(old, Some(Ok(_))));
            if new.is_ok() && (old != Some(new) || old_backup != backup) {
                moved.set.push(number);
            }
            match old {
                Some(old) if old.is_ok() != new.is_ok() => _ = moved.flipped.insert(number),
                Some(Ok(_)) if old != Some(new) => _ = moved.turned.insert(number),
                _ => {}
            }
        }
        moved
    }

    fn with_dependents(&mut self) -> Vec<HopNumber> {
        loop {
            let dependents: Vec<_> = (self.first..=self.last)
                .zip(&self.slots)
                .filter_map(|(number, hop)| Some((number, hop.as_ref()?)))
                .filter(|(_, hop)| {
                    !hop.marked
                        && hop.through.iter().flatten().any(|through| {
                            // A hop that no longer exists was marked when its route went.
                            self.get(*through).is_none_or(|hop| hop.marked)
                        })
                })
                .map(|(number, _)| number)
                .collect();
            if dependents.is_empty() || self.marked.is_empty() {
                return std::mem::take(&mut self.marked);
            }
            for number in dependents {
                self.mark(number);
            }
        }
    }

    /// Where a target leads, and the hop of the first BGP route on the way.
    fn resolve(
        &self,
        target: Target,
        tables: &Tables,
        underlay: &Underlay,
    ) -> (Result<Way, Unresolved>, Option<HopNumber>) {
        let Target::Address(mut address) = target else { return (Ok(Way::Discard), None) };
        let mut through = None;
        let mut seen = [address; DEPTH_MAX];
        // The underlay's own routes resolve without BGP.
        let mut use_bgp = true;
        for depth in 0..DEPTH_MAX {
            if seen[..depth].contains(&address) {
                return (Err(Unresolved::Loop), through);
            }
            seen[depth] = address;
            let under = underlay.longest(address);
            let is_near = matches!(under, Some((_, UnderlayTarget::Connected { .. })));
            // A route whose next hop is the address itself says nothing about the way to it.
            let leads_on = |hop| self.get(hop).is_none_or(|hop| hop.target != Target::Address(address));
            let bgp = match address {
                IpAddr::V4(address) => tables.v4.longest(address.into(), leads_on),
                IpAddr::V6(address) => tables.v6.longest(address.into(), leads_on),
            };
            let bgp = bgp
                .filter(|_| use_bgp && !is_near)
                .filter(|(length, _)| under.is_none_or(|(best, _)| *length > best));
            match (bgp, under.map(|(_, target)| target)) {
                (Some((_, number)), _) => {
                    through = through.or(Some(number));
                    match self.get(number).map(|hop| hop.target) {
                        Some(Target::Address(next)) => address = next,
                        Some(Target::Discard) => return (Ok(Way::Discard), through),
                        None => return (Err(Unresolved::NoRoute), through),
                    }
                }
                (None, Some(UnderlayTarget::Connected { link })) => {
                    return (Ok(Way::Neighbor { address, link }), through);
                }
                (None, Some(UnderlayTarget::Gateway { address, link: Some(link) })) => {
                    return (Ok(Way::Neighbor { address, link }), through);
                }
                (None, Some(UnderlayTarget::Gateway { address: next, link: None })) => {
                    (address, use_bgp) = (next, false);
                }
                (None, Some(UnderlayTarget::Local)) => return (Err(Unresolved::OwnAddress), through),
                (None, Some(UnderlayTarget::Discard)) => return (Ok(Way::Discard), through),
                (None, Some(UnderlayTarget::Unreachable)) => return (Err(Unresolved::NoRoute), through),
                (None, None) => {
                    let way = underlay.fallback().map(|link| Way::Neighbor { address, link });
                    return (way.ok_or(Unresolved::NoRoute), through);
                }
            }
        }
        (Err(Unresolved::TooDeep), through)
    }
}

/// The first and the last address of a prefix.
fn ends(prefix: IpPrefix) -> (IpAddr, IpAddr) {
    fn last<A: Address>(address: A, length: u8) -> IpAddr {
        let host_bits = u32::from(A::BITS - length);
        A::from_u128(address.to_u128() | !u128::MAX.checked_shl(host_bits).unwrap_or(0)).to_ip()
    }
    let end = match prefix {
        IpPrefix::V4(prefix) => last(prefix.address(), prefix.length()),
        IpPrefix::V6(prefix) => last(prefix.address(), prefix.length()),
    };
    (prefix.address(), end)
}
