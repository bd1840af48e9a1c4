//! The only writer of a table: the routes, and the structure painted from them.

use super::trie::BinaryTrie;
use super::{Address, Lpm, LpmError, NextHopId, Prefix};
use std::sync::Arc;

/// The writer's half of a fast structure, driven by [`Writer`].
pub trait Table: Sized {
    /// The addresses the structure is for.
    type Address: Address;
    /// The readers' half.
    type Shared: Lpm<Self::Address>;

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
