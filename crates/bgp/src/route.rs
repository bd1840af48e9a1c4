//! The data that moves between the parts of BGP: decoded routes, and the changes they caused.
//!
//! ```text
//! session ──RouteBatch──> every shard it touches ──Changes──> every update group, the FIB, MRT writers
//! ```
//!
//! A [`RouteBatch`] holds the routes of one read from one neighbor, split by shard, so that shards on several cores
//! can work on it at the same time without copying it. [`Changes`] are the differences that batches made in one
//! shard. Within a shard, changes come in order of version, and a `Changes` has at most one for each prefix.

use std::ops::Range;
use std::sync::Arc;

use thalweg_base::{Address, IpPrefix, Prefix, mix64};
use thalweg_wire::bgp::Family;

use crate::attrs::{AttrRef, AttrsBuilder};
use crate::peer::PeerId;

/// The number of shards, whatever the number of cores. A power of two.
pub const SHARDS: usize = 16;

/// The shard that owns a prefix.
#[inline]
pub fn shard_of<A: Address>(prefix: Prefix<A>) -> usize {
    (prefix_hash(prefix) >> 32) as usize % SHARDS
}

/// The hash of a prefix. Bits 32 to 35 select the shard.
#[inline]
pub fn prefix_hash<A: Address>(prefix: Prefix<A>) -> u64 {
    let address = prefix.address().to_u128();
    let folded = (address >> 64) as u64 ^ (address as u64).rotate_left(8) ^ u64::from(prefix.length());
    if A::BITS == 32 {
        mix64(folded)
    } else {
        mix64(mix64((address >> 64) as u64).wrapping_add(address as u64) ^ u64::from(prefix.length()))
    }
}

/// The value of [`RouteItem::attrs`] that withdraws the route.
pub const WITHDRAWN: u32 = u32::MAX;

/// One announced or withdrawn route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteItem<A> {
    pub prefix: Prefix<A>,
    /// The neighbor's identifier of the path (RFC 7911); 0 without add-path.
    pub path_id: u32,
    /// Index into the batch's attribute sets, or [`WITHDRAWN`].
    pub attrs: u32,
}

/// Items by shard; within a shard, in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct ByShard<A> {
    items: Vec<RouteItem<A>>,
    ends: [u32; SHARDS],
}

impl<A: Address> ByShard<A> {
    /// The items of one shard.
    #[inline]
    pub fn shard(&self, shard: usize) -> &[RouteItem<A>] {
        self.shards(shard..shard + 1)
    }

    /// The items of some consecutive shards, at least one.
    #[inline]
    pub fn shards(&self, shards: Range<usize>) -> &[RouteItem<A>] {
        let start = if shards.start == 0 { 0 } else { self.ends[shards.start - 1] };
        &self.items[start as usize..self.ends[shards.end - 1] as usize]
    }

    /// The number of items in all shards.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no shard has an item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Sorts items by shard, keeping the order within a shard.
    fn from_arrivals(arrivals: &[RouteItem<A>]) -> Self {
        let mut ends = [0u32; SHARDS];
        for item in arrivals {
            ends[shard_of(item.prefix)] += 1;
        }
        let mut starts = [0u32; SHARDS];
        let mut sum = 0;
        for (end, start) in ends.iter_mut().zip(&mut starts) {
            *start = sum;
            sum += *end;
            *end = sum;
        }
        let Some(first) = arrivals.first() else { return Self { items: Vec::new(), ends } };
        let mut items = vec![*first; arrivals.len()];
        for item in arrivals {
            let at = &mut starts[shard_of(item.prefix)];
            items[*at as usize] = *item;
            *at += 1;
        }
        Self { items, ends }
    }
}

/// Routes that one neighbor sent, after import policy, split by shard.
#[derive(Clone, Debug)]
pub struct RouteBatch {
    pub peer: PeerId,
    /// The time of arrival, in seconds since the beginning.
    pub received_s: u32,
    /// The attribute sets that items refer to.
    pub attrs: Vec<AttrRef>,
    pub v4: ByShard<u32>,
    pub v6: ByShard<u128>,
    /// The same routes before import policy, if the neighbor's are kept.
    pub received: Option<Box<RouteBatch>>,
}

impl RouteBatch {
    /// Whether the batch has items for the shard.
    pub fn touches(&self, shard: usize) -> bool {
        Family::ALL.iter().any(|family| self.has(*family, shard..shard + 1))
    }

    /// Whether the batch has items of the family for some consecutive shards.
    pub fn has(&self, family: Family, shards: Range<usize>) -> bool {
        match family {
            Family::Ipv4 => !self.v4.shards(shards).is_empty(),
            Family::Ipv6 => !self.v6.shards(shards).is_empty(),
        }
    }

    /// The number of announced and withdrawn routes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether the batch has no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that decoding reuses.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) builder: AttrsBuilder,
    /// An AS_PATH in its four-octet form.
    pub(crate) path: Vec<u8>,
}

/// Routes on their way into a batch.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Arrivals {
    attrs: Vec<AttrRef>,
    v4: Vec<RouteItem<u32>>,
    v6: Vec<RouteItem<u128>>,
}

impl Arrivals {
    #[inline]
    fn push_attrs(&mut self, attrs: AttrRef) -> u32 {
        if self.attrs.last() != Some(&attrs) {
            self.attrs.push(attrs);
        }
        self.attrs.len() as u32 - 1
    }

    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    fn clear(&mut self) {
        self.attrs.clear();
        self.v4.clear();
        self.v6.clear();
    }

    fn finish(&mut self, peer: PeerId, received_s: u32) -> RouteBatch {
        let batch = RouteBatch {
            peer,
            received_s,
            attrs: std::mem::take(&mut self.attrs),
            v4: ByShard::from_arrivals(&self.v4),
            v6: ByShard::from_arrivals(&self.v6),
            received: None,
        };
        self.v4.clear();
        self.v6.clear();
        batch
    }
}

/// Collects the routes that a session decodes. A worker has one for all of its sessions.
#[derive(Debug, Default)]
pub struct RouteBatchBuilder {
    pub(crate) scratch: Scratch,
    routes: Arrivals,
    /// Before import policy, of neighbors whose routes are kept.
    received: Arrivals,
}

impl RouteBatchBuilder {
    /// Adds an attribute set for the items that follow; returns its index.
    pub fn push_attrs(&mut self, attrs: AttrRef) -> u32 {
        self.routes.push_attrs(attrs)
    }

    /// Adds a route; `attrs` is an index from [`Self::push_attrs`], or [`WITHDRAWN`].
    #[inline]
    pub fn push<A: RouteAddress>(&mut self, prefix: Prefix<A>, path_id: u32, attrs: u32) {
        A::arrivals(&mut self.routes).push(RouteItem { prefix, path_id, attrs });
    }

    /// [`Self::push`] for an IPv4 route.
    #[inline]
    pub fn push_v4(&mut self, prefix: Prefix<u32>, path_id: u32, attrs: u32) {
        self.push(prefix, path_id, attrs);
    }

    /// [`Self::push`] for an IPv6 route.
    #[inline]
    pub fn push_v6(&mut self, prefix: Prefix<u128>, path_id: u32, attrs: u32) {
        self.push(prefix, path_id, attrs);
    }

    /// [`Self::push_attrs`] for routes before import policy.
    pub fn push_received_attrs(&mut self, attrs: AttrRef) -> u32 {
        self.received.push_attrs(attrs)
    }

    /// Adds a route as it was before import policy. The same route is pushed after it too.
    #[inline]
    pub fn push_received<A: RouteAddress>(&mut self, prefix: Prefix<A>, path_id: u32, attrs: u32) {
        A::arrivals(&mut self.received).push(RouteItem { prefix, path_id, attrs });
    }

    /// The number of routes collected so far.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether no routes were collected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the collected routes.
    pub fn clear(&mut self) {
        self.routes.clear();
        self.received.clear();
    }

    /// Returns the collected routes split by shard, and empties the builder, which keeps its memory.
    pub fn finish(&mut self, peer: PeerId, received_s: u32) -> RouteBatch {
        let mut batch = self.routes.finish(peer, received_s);
        if self.received.len() > 0 {
            batch.received = Some(Box::new(self.received.finish(peer, received_s)));
        }
        batch
    }
}

/// A selected path, now or before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// After import policy.
    pub attrs: AttrRef,
    pub peer: PeerId,
    /// Its number within the prefix, from 1; constant as long as the path exists.
    pub local_id: u16,
}

/// Ranks from the second on, if a group wants more than the best path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Further {
    pub old: Vec<Chosen>,
    pub new: Vec<Chosen>,
}

/// The change of one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<A> {
    pub prefix: Prefix<A>,
    /// The best path before, if any.
    pub old: Option<Chosen>,
    /// The best path now, if any.
    pub new: Option<Chosen>,
    /// The paths after the best, as many as the shard was told to report.
    pub further: Option<Box<Further>>,
}

/// The changes of one shard.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub shard: usize,
    /// The version of the first change, by family; the following ones count up.
    pub first_version: [u32; 2],
    /// The shard's versions after the last change, by family.
    pub last_version: [u32; 2],
    /// IPv4 prefixes, each at most once, in order of version.
    pub v4: Vec<Change<u32>>,
    /// IPv6 prefixes, likewise.
    pub v6: Vec<Change<u128>>,
}

impl Changes {
    /// Whether there are no changes in either family.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// Gives code that is generic over the family access to that family's items and changes.
pub trait RouteAddress: Address {
    const FAMILY: Family;

    fn to_ip_prefix(prefix: Prefix<Self>) -> IpPrefix;

    fn items(batch: &RouteBatch) -> &ByShard<Self>;

    fn changes(changes: &Changes) -> &Vec<Change<Self>>;

    fn changes_mut(changes: &mut Changes) -> &mut Vec<Change<Self>>;

    #[doc(hidden)]
    fn arrivals(arrivals: &mut Arrivals) -> &mut Vec<RouteItem<Self>>;
}

macro_rules! route_address {
    ($address:ty, $family:expr, $field:ident) => {
        impl RouteAddress for $address {
            const FAMILY: Family = $family;

            #[inline]
            fn to_ip_prefix(prefix: Prefix<Self>) -> IpPrefix {
                prefix.into()
            }

            #[inline]
            fn items(batch: &RouteBatch) -> &ByShard<Self> {
                &batch.$field
            }

            #[inline]
            fn changes(changes: &Changes) -> &Vec<Change<Self>> {
                &changes.$field
            }

            #[inline]
            fn changes_mut(changes: &mut Changes) -> &mut Vec<Change<Self>> {
                &mut changes.$field
            }

            #[inline]
            fn arrivals(arrivals: &mut Arrivals) -> &mut Vec<RouteItem<$address>> {
                &mut arrivals.$field
            }
        }
    };
}

route_address!(u32, Family::Ipv4, v4);
route_address!(u128, Family::Ipv6, v6);

/// [`Changes`] on their way from a shard to several readers.
pub type SharedChanges = Arc<Changes>;
