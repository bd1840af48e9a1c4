//! Routes by neighbor, prefix and path identifier, each with a number for its attributes, which are stored once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::attrs::Attributes;
use thalweg_wire::bgp::{Family, attribute, write_attribute};
use thalweg_wire::mrt::{Action, AsSize, Content, Message, Peer, RibEntry, visit_changes};

use super::family_of;

/// The most routes of all neighbors together: some 2 GB.
pub(super) const ROUTES_MAX: usize = 32_000_000;

/// Neighbor, prefix, path identifier (0 if there is none).
type Key<A> = (u16, Prefix<A>, u32);

/// Routes with shared attributes; see the [module](self).
pub(super) struct Table {
    v4: HashMap<Key<u32>, u32>,
    v6: HashMap<Key<u128>, u32>,
    /// By neighbor and family.
    counts: Vec<[u64; 2]>,
    /// By neighbor.
    as_sizes: Vec<AsSize>,
    sets: HashMap<Arc<[u8]>, u32>,
    by_number: Vec<Arc<[u8]>>,
    buffer: Vec<u8>,
}

impl Table {
    pub(super) fn new(neighbors: usize) -> Self {
        Self {
            v4: HashMap::new(),
            v6: HashMap::new(),
            counts: vec![[0; 2]; neighbors],
            as_sizes: vec![AsSize::Four; neighbors],
            sets: HashMap::new(),
            by_number: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// The number of a neighbor's routes, by family.
    pub(super) fn counts(&self, at: usize) -> [u64; 2] {
        self.counts[at]
    }

    pub(super) fn is_full(&self) -> bool {
        self.v4.len() + self.v6.len() >= ROUTES_MAX
    }

    /// Adds a route of a table dump.
    pub(super) fn insert_entry(&mut self, at: usize, entry: &RibEntry<'_>) {
        let set = self.number(entry.attributes);
        self.insert(at, entry.prefix, entry.path_id, set);
    }

    /// Applies the announcements and withdrawals of a message. `news` gets the family of each new route.
    pub(super) fn handle_update(&mut self, at: usize, message: &Message<'_>, mut news: impl FnMut(Family)) {
        let Ok(Some(parts)) = message.update() else { return };
        self.as_sizes[at] = parts.as_size;
        // For the prefixes after the attributes, and for those inside MP_REACH_NLRI.
        let mut sets = [None; 2];
        // What is readable in a faulty message is used; import decides whether it counts.
        let _ = visit_changes(&Content::Message(*message), |change| match change.action {
            Action::Announce { prefix, path_id, path, .. } => {
                let within = path.mp_reach.and_then(|reach| reach.family).is_some_and(|(afi, _)| {
                    family_of(prefix) == if afi == 1 { Family::Ipv4 } else { Family::Ipv6 }
                });
                let next_hop = path.mp_reach.filter(|_| within).map(|reach| reach.next_hop);
                let set = &mut sets[usize::from(within)];
                let number = set.get_or_insert_with(|| self.number_of_message(parts.attributes(), next_hop));
                if self.insert(at, prefix, path_id, *number) {
                    news(family_of(prefix));
                }
            }
            Action::Withdraw { prefix, path_id } => self.withdraw(at, prefix, path_id),
            Action::Route { .. } | Action::State { .. } => {}
        });
    }

    /// A message's attributes in a table's form: without prefixes.
    fn number_of_message(&mut self, attributes: &[u8], next_hop: Option<&[u8]>) -> u32 {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        for each in Attributes::new(attributes) {
            match (each.code, next_hop) {
                (attribute::MP_UNREACH_NLRI, _) | (attribute::MP_REACH_NLRI, None) => {}
                (attribute::MP_REACH_NLRI, Some(next_hop)) => {
                    // The next hop's length takes one byte.
                    let length = u8::try_from(next_hop.len()).unwrap_or(u8::MAX);
                    let value = [&[length], next_hop].concat();
                    write_attribute(&mut buffer, attribute::FLAG_OPTIONAL, attribute::MP_REACH_NLRI, &value);
                }
                _ => buffer.extend_from_slice(each.whole),
            }
        }
        let number = self.number(&buffer);
        self.buffer = buffer;
        number
    }

    fn number(&mut self, attributes: &[u8]) -> u32 {
        if let Some(number) = self.sets.get(attributes) {
            return *number;
        }
        let set: Arc<[u8]> = attributes.into();
        let number = self.by_number.len() as u32;
        self.by_number.push(set.clone());
        self.sets.insert(set, number);
        number
    }

    /// Returns whether the route is new.
    fn insert(&mut self, at: usize, prefix: IpPrefix, path_id: Option<u32>, set: u32) -> bool {
        let (place, path_id) = (place_of(at), path_id.unwrap_or(0));
        let before = match prefix {
            IpPrefix::V4(prefix) => self.v4.insert((place, prefix, path_id), set),
            IpPrefix::V6(prefix) => self.v6.insert((place, prefix, path_id), set),
        };
        self.counts[at][family_of(prefix).index()] += u64::from(before.is_none());
        before.is_none()
    }

    fn withdraw(&mut self, at: usize, prefix: IpPrefix, path_id: Option<u32>) {
        let (place, path_id) = (place_of(at), path_id.unwrap_or(0));
        let before = match prefix {
            IpPrefix::V4(prefix) => self.v4.remove(&(place, prefix, path_id)),
            IpPrefix::V6(prefix) => self.v6.remove(&(place, prefix, path_id)),
        };
        self.counts[at][family_of(prefix).index()] -= u64::from(before.is_some());
    }

    /// Removes a neighbor's routes of one family, or all.
    pub(super) fn remove(&mut self, at: usize, family: Option<Family>) {
        let mut remove = |family: Family| {
            if std::mem::take(&mut self.counts[at][family.index()]) == 0 {
                return;
            }
            match family {
                Family::Ipv4 => self.v4.retain(|key, _| usize::from(key.0) != at),
                Family::Ipv6 => self.v6.retain(|key, _| usize::from(key.0) != at),
            }
        };
        match family {
            Some(family) => remove(family),
            None => Family::ALL.into_iter().for_each(remove),
        }
    }

    /// Visits and removes all routes; `peers` are the neighbors.
    pub(super) fn drain<E>(
        &mut self,
        peers: &[Peer],
        visit: &mut impl FnMut(&RibEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.counts.fill([0; 2]);
        self.sets = HashMap::new();
        let (v4, v6) = (std::mem::take(&mut self.v4), std::mem::take(&mut self.v6));
        self.visit(v4, IpPrefix::V4, peers, visit)?;
        self.visit(v6, IpPrefix::V6, peers, visit)
    }

    fn visit<A: Eq + Hash, E>(
        &self,
        routes: HashMap<Key<A>, u32>,
        prefix_of: fn(Prefix<A>) -> IpPrefix,
        peers: &[Peer],
        visit: &mut impl FnMut(&RibEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for ((place, prefix, path_id), set) in routes {
            let at = usize::from(place);
            let attributes = &self.by_number[set as usize];
            let route = (prefix_of(prefix), Some(path_id));
            visit(&RibEntry::new(peers[at], place, route, attributes, self.as_sizes[at]))?;
        }
        Ok(())
    }
}

/// A neighbor's number in keys. There are never more neighbors than numbers.
fn place_of(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}
