//! The only writer of a table: the routes, and the structure painted from them.

use super::address::blocks;
use super::trie::BinaryTrie;
use super::{Address, Lpm, LpmError, NextHopId, Prefix};
use std::sync::Arc;

/// The writer's half of a fast structure, driven by [`Writer`].
pub trait Table: Sized {
    /// The addresses the structure is for.
    type Address: Address;
    /// The readers' half.
    type Shared: Lpm<Self::Address>;

    /// The longest prefixes of which [`Self::refresh`] changes all or nothing and takes no longer than for a single
    /// longer route in it. Several changes in one are then painted together. `None` if there are none.
    const PIECE_BITS: Option<u8> = None;

    /// An empty table.
    fn create() -> Result<Self, LpmError>;

    /// The readers' half.
    fn shared(&self) -> &Arc<Self::Shared>;

    /// Makes the structure answer like `routes` for every address in `prefix`.
    fn refresh(
        &mut self,
        routes: &BinaryTrie<Self::Address>,
        prefix: Prefix<Self::Address>,
    ) -> Result<(), LpmError>;

    /// Bytes of the writer's bookkeeping beyond the readers' half.
    fn memory_bytes(&self) -> usize;
}

/// Owns a table's routes and changes the table while others read it.
pub struct Writer<T: Table> {
    routes: BinaryTrie<T::Address>,
    table: T,
}

impl<T: Table> Writer<T> {
    /// A writer of an empty table.
    pub fn new() -> Result<Self, LpmError> {
        Ok(Self { routes: BinaryTrie::new(), table: T::create()? })
    }

    /// A writer of a table with these routes; of two equal prefixes the later wins. Much faster than
    /// inserting them one by one.
    pub fn from_routes<P: Into<Prefix<T::Address>>>(
        routes: impl IntoIterator<Item = (P, NextHopId)>,
    ) -> Result<Self, LpmError> {
        let routes = BinaryTrie::from_routes(routes.into_iter().map(|(prefix, hop)| (prefix.into(), hop)))?;
        let mut table = T::create()?;
        table.refresh(&routes, Prefix::new(T::Address::from_u128(0), 0)?)?;
        Ok(Self { routes, table })
    }

    /// The table, for readers: clone the `Arc` for as many as there are.
    pub fn table(&self) -> &Arc<T::Shared> {
        self.table.shared()
    }

    /// The routes the table was painted from.
    pub fn routes(&self) -> &BinaryTrie<T::Address> {
        &self.routes
    }

    /// Sets a route and returns the one it replaces, if any. After an error the table is unchanged.
    pub fn insert(
        &mut self,
        prefix: impl Into<Prefix<T::Address>>,
        next_hop: NextHopId,
    ) -> Result<Option<NextHopId>, LpmError> {
        let prefix = prefix.into();
        let before = self.routes.insert(prefix, next_hop)?;
        if let Err(error) = self.table.refresh(&self.routes, prefix) {
            match before {
                Some(hop) => self.routes.insert(prefix, hop)?,
                None => self.routes.remove(prefix),
            };
            // The former contents fit: the pieces replaced so far are in limbo.
            self.table.refresh(&self.routes, prefix)?;
            return Err(error);
        }
        Ok(before)
    }

    /// Removes the route of exactly this prefix and returns it.
    pub fn withdraw(&mut self, prefix: impl Into<Prefix<T::Address>>) -> Result<Option<NextHopId>, LpmError> {
        let prefix = prefix.into();
        let Some(before) = self.routes.remove(prefix) else { return Ok(None) };
        if let Err(error) = self.table.refresh(&self.routes, prefix) {
            self.routes.insert(prefix, before)?;
            self.table.refresh(&self.routes, prefix)?;
            return Err(error);
        }
        Ok(Some(before))
    }

    /// Sets and removes routes; of two for a prefix the later counts. What follows each other in one piece of the table
    /// is painted once, so sorted changes cost least. Returns how many changes the table refused.
    pub fn apply(&mut self, changes: &[(Prefix<T::Address>, Option<NextHopId>)]) -> u64 {
        let piece = |prefix: Prefix<T::Address>| {
            T::PIECE_BITS.filter(|bits| prefix.length() >= *bits).map(|bits| blocks(prefix, bits).0)
        };
        let same =
            |(one, _): &(_, _), (next, _): &(_, _)| piece(*one).is_some_and(|of| piece(*next) == Some(of));
        changes.chunk_by(same).map(|part| self.apply_to_piece(part)).sum()
    }

    fn apply_to_piece(&mut self, changes: &[(Prefix<T::Address>, Option<NextHopId>)]) -> u64 {
        let whole = match (changes, T::PIECE_BITS) {
            ([(first, _), _, ..], Some(bits)) => Prefix::new(first.address(), bits).ok(),
            _ => None,
        };
        let Some(whole) = whole else { return self.apply_one_by_one(changes) };
        let mut before = Vec::with_capacity(changes.len());
        for &(prefix, next_hop) in changes {
            let was = match next_hop {
                Some(next_hop) => self.routes.insert(prefix, next_hop),
                None => Ok(self.routes.remove(prefix)),
            };
            before.push(was);
        }
        let refused = before.iter().filter(|was| was.is_err()).count() as u64;
        let is_same = |(was, (_, now)): (&Result<_, _>, &(_, _))| was.as_ref().is_ok_and(|was| was == now);
        if before.iter().zip(changes).all(is_same) || self.table.refresh(&self.routes, whole).is_ok() {
            return refused;
        }
        // No room for all of them: perhaps for some.
        for (was, (prefix, _)) in before.into_iter().zip(changes).rev() {
            match was {
                // It was in the trie a moment ago.
                Ok(Some(next_hop)) => drop(self.routes.insert(*prefix, next_hop)),
                Ok(None) => drop(self.routes.remove(*prefix)),
                Err(_) => {}
            }
        }
        self.apply_one_by_one(changes)
    }

    fn apply_one_by_one(&mut self, changes: &[(Prefix<T::Address>, Option<NextHopId>)]) -> u64 {
        let mut refused = 0;
        for &(prefix, next_hop) in changes {
            let done = match next_hop {
                Some(next_hop) if self.routes.get(prefix) == Some(next_hop) => Ok(None),
                Some(next_hop) => self.insert(prefix, next_hop),
                None => self.withdraw(prefix),
            };
            refused += u64::from(done.is_err());
        }
        refused
    }

    /// Bytes of the table, the routes and the bookkeeping together.
    pub fn memory_bytes(&self) -> usize {
        self.table.shared().memory_bytes() + self.table.memory_bytes() + self.routes.memory_bytes()
    }
}

/// Marks a run whose answer depends on bits below its slots; the rest is an index into `deep`.
pub(super) const DEEP: u32 = 1 << 31;

/// A range of slots below a trie node, as runs of equal answers.
///
/// A run is the number of its first slot and its value: a next hop, or [`DEEP`] and an index into `deep`. The first
/// run starts at slot 0; runs are in order; adjacent runs differ. A deep run is one slot.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) runs: Vec<(u32, u32)>,
    /// The trie's node of a deep slot, and what it inherits.
    pub(super) deep: Vec<(u32, NextHopId)>,
}

impl Runs {
    /// Paints the `2^levels` slots below a node, replacing the former runs.
    pub(super) fn paint<A: Address>(
        &mut self,
        routes: &BinaryTrie<A>,
        node: u32,
        inherited: NextHopId,
        levels: u8,
    ) {
        self.runs.clear();
        self.deep.clear();
        self.paint_below(routes, node, inherited, levels, 0);
    }

    /// The runs with their ends: `((first, one past last), value)`, for `count` slots in all.
    pub(super) fn spans(&self, count: u32) -> impl Iterator<Item = ((u32, u32), u32)> {
        let ends = self.runs.iter().skip(1).map(|&(start, _)| start).chain([count]);
        self.runs.iter().zip(ends).map(|(&(start, value), end)| ((start, end), value))
    }

    fn paint_below<A: Address>(
        &mut self,
        routes: &BinaryTrie<A>,
        node: u32,
        inherited: NextHopId,
        levels: u8,
        slot: u32,
    ) {
        let own = routes.next_hop_or(node, inherited);
        if !routes.has_children(node) {
            return self.push(slot, u32::from(own));
        }
        if levels == 0 {
            let index = self.deep.len() as u32;
            // Not the node's own hop: `next_hop_or` finds it again below.
            self.deep.push((node, inherited));
            return self.push(slot, DEEP | index);
        }
        for bit in 0..2 {
            let start = slot + ((bit as u32) << (levels - 1));
            self.paint_below(routes, routes.child(node, bit), own, levels - 1, start);
        }
    }

    fn push(&mut self, slot: u32, value: u32) {
        if self.runs.last().is_none_or(|&(_, last)| last != value) {
            self.runs.push((slot, value));
        }
    }
}
