//! A plain binary trie: one node per bit of a prefix, shared by prefixes with a common start.
//!
//! Its look-ups are slow (a dependent load per bit), but it is so simple that it is the oracle of every other
//! structure. It is the writer's memory of the routes as well: the fast structures store answers, not prefixes, and
//! when a route is withdrawn only the trie knows which shorter prefix takes over.
//!
//! Layout: two columns, 10 bytes a node: the two children (`u32` each, 0 = none; node 0 is an empty dummy, node 1
//! the root) and the next hop (0 = no prefix ends here). A node without children and next hop is unlinked at once
//! and its number reused. The full table takes 2.0 million nodes for 901,899 IPv4 prefixes and 0.67 million for
//! 160,147 IPv6 prefixes, 27 MB together.

use super::{Address, Lpm, LpmError, NEXT_HOP_MAX, NO_ROUTE, NextHopId, Prefix};
use std::marker::PhantomData;

/// Stands for "no node". Node 0 exists, without children and next hop.
pub(super) const NONE: u32 = 0;

const ROOT: u32 = 1;

/// Routes by prefix, one node per bit. See the module's text.
#[derive(Clone, Debug)]
pub struct BinaryTrie<A> {
    children: Vec<[u32; 2]>,
    next_hops: Vec<NextHopId>,
    unused: Vec<u32>,
    routes: usize,
    addresses: PhantomData<A>,
}

impl<A: Address> Default for BinaryTrie<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Address> BinaryTrie<A> {
    /// A trie without routes.
    pub fn new() -> Self {
        Self {
            children: vec![[NONE; 2]; 2],
            next_hops: vec![NO_ROUTE; 2],
            unused: Vec::new(),
            routes: 0,
            addresses: PhantomData,
        }
    }

    /// A trie with these routes; of two equal prefixes the later wins.
    pub fn from_routes(routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Result<Self, LpmError> {
        let mut trie = Self::new();
        for (prefix, next_hop) in routes {
            trie.insert(prefix, next_hop)?;
        }
        Ok(trie)
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// Number of nodes in use, the root included.
    pub fn nodes(&self) -> usize {
        self.children.len() - 1 - self.unused.len()
    }

    /// Sets the route of a prefix and returns the one it replaces, if any.
    pub fn insert(&mut self, prefix: Prefix<A>, next_hop: NextHopId) -> Result<Option<NextHopId>, LpmError> {
        if next_hop == NO_ROUTE || next_hop > NEXT_HOP_MAX {
            return Err(LpmError::NextHopOutOfRange { next_hop });
        }
        let mut node = ROOT;
        for index in 0..prefix.length() {
            let bit = prefix.address().bit(index);
            let child = self.children[node as usize][bit];
            node = if child == NONE { self.add_child(node, bit)? } else { child };
        }
        let before = std::mem::replace(&mut self.next_hops[node as usize], next_hop);
        self.routes += usize::from(before == NO_ROUTE);
        Ok((before != NO_ROUTE).then_some(before))
    }

    /// Removes the route of exactly this prefix and returns it.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        let mut path = [ROOT; 129];
        let mut node = ROOT;
        for index in 0..prefix.length() {
            node = self.children[node as usize][prefix.address().bit(index)];
            if node == NONE {
                return None;
            }
            path[usize::from(index) + 1] = node;
        }
        let before = std::mem::replace(&mut self.next_hops[node as usize], NO_ROUTE);
        if before == NO_ROUTE {
            return None;
        }
        self.routes -= 1;
        for index in (0..prefix.length()).rev() {
            let node = path[usize::from(index) + 1];
            if self.next_hops[node as usize] != NO_ROUTE || self.has_children(node) {
                break;
            }
            self.children[path[usize::from(index)] as usize][prefix.address().bit(index)] = NONE;
            self.unused.push(node);
        }
        Some(before)
    }

    /// The route of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        let mut node = ROOT;
        for index in 0..prefix.length() {
            node = self.children[node as usize][prefix.address().bit(index)];
            if node == NONE {
                return None;
            }
        }
        let next_hop = self.next_hops[node as usize];
        (next_hop != NO_ROUTE).then_some(next_hop)
    }

    /// At most `most` routes after `after`, in order of address and length, so that a table can be listed in slices
    /// while it changes.
    pub fn after(&self, after: Option<Prefix<A>>, most: usize) -> Vec<(Prefix<A>, NextHopId)> {
        let after = after.map(|prefix| (prefix.address().to_u128(), prefix.length()));
        let mut found = Vec::new();
        // Nodes still to visit, with the prefix of each; the next in order is the last.
        let mut waiting = vec![(ROOT, 0u128, 0u8)];
        while let Some((node, address, length)) = waiting.pop().filter(|_| found.len() < most) {
            let next_hop = self.next_hops[node as usize];
            let is_behind = after.is_none_or(|after| (address, length) > after);
            if next_hop != NO_ROUTE && is_behind {
                found
                    .extend(Prefix::new(A::from_u128(address), length).ok().map(|prefix| (prefix, next_hop)));
            }
            if length == A::BITS {
                continue;
            }
            let below = A::BITS - length - 1;
            for bit in [1, 0] {
                let child = self.children[node as usize][bit as usize];
                let first = address | (bit as u128) << below;
                let last = first | ((1u128 << below) - 1);
                if child != NONE && after.is_none_or(|(after, _)| last >= after) {
                    waiting.push((child, first, length + 1));
                }
            }
        }
        found
    }

    /// Walks the first `length` bits of `address`. Returns the node there, or the empty node, and the next hop of
    /// the longest prefix that ends *before* that node: the answer if the node has none.
    pub(super) fn descend(&self, address: A, length: u8) -> (u32, NextHopId) {
        let (node, inherited, _) = self.descend_or_gap(address, length);
        (node, inherited)
    }

    /// The same, and the number of bits walked. If the node is the empty one, all addresses that begin with these
    /// bits have the same answer.
    pub(super) fn descend_or_gap(&self, address: A, length: u8) -> (u32, NextHopId, u8) {
        let mut node = ROOT;
        let mut inherited = NO_ROUTE;
        for index in 0..length {
            inherited = self.next_hop_or(node, inherited);
            node = self.children[node as usize][address.bit(index)];
            if node == NONE {
                return (NONE, inherited, index + 1);
            }
        }
        (node, inherited, length)
    }

    /// The next hop of a node, or `inherited` if no prefix ends there.
    #[inline]
    pub(super) fn next_hop_or(&self, node: u32, inherited: NextHopId) -> NextHopId {
        match self.next_hops[node as usize] {
            NO_ROUTE => inherited,
            own => own,
        }
    }

    #[inline]
    pub(super) fn child(&self, node: u32, bit: usize) -> u32 {
        self.children[node as usize][bit]
    }

    #[inline]
    pub(super) fn has_children(&self, node: u32) -> bool {
        self.children[node as usize] != [NONE; 2]
    }

    fn add_child(&mut self, parent: u32, bit: usize) -> Result<u32, LpmError> {
        let node = match self.unused.pop() {
            Some(node) => {
                self.children[node as usize] = [NONE; 2];
                self.next_hops[node as usize] = NO_ROUTE;
                node
            }
            None => {
                let Ok(node) = u32::try_from(self.children.len()) else {
                    return Err(LpmError::Full { part: "trie nodes", capacity: u32::MAX as usize });
                };
                if self.children.len() == self.children.capacity() {
                    // An eighth more instead of twice as much: the table is large and seldom grows.
                    let more = (self.children.len() / 8).max(1024);
                    self.children.reserve_exact(more);
                    self.next_hops.reserve_exact(more);
                }
                self.children.push([NONE; 2]);
                self.next_hops.push(NO_ROUTE);
                node
            }
        };
        self.children[parent as usize][bit] = node;
        Ok(node)
    }
}

impl<A: Address> Lpm<A> for BinaryTrie<A> {
    fn lookup(&self, address: A) -> NextHopId {
        let mut node = ROOT;
        let mut best = self.next_hops[ROOT as usize];
        for index in 0..A::BITS {
            node = self.children[node as usize][address.bit(index)];
            if node == NONE {
                break;
            }
            best = self.next_hop_or(node, best);
        }
        best
    }

    fn memory_bytes(&self) -> usize {
        self.children.capacity() * size_of::<[u32; 2]>()
            + self.next_hops.capacity() * size_of::<NextHopId>()
            + self.unused.capacity() * size_of::<u32>()
    }
}
