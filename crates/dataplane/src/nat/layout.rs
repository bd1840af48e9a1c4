//! Ownership: which shard a session belongs to, which ports a shard owns, which addresses are public.
//!
//! A shard owns, on every public address, the ports `p` with `(p >> b) & (S - 1)` equal to its number. If all hosts
//! share all ports, `b` is 1: pairs of an even and an odd port, so that RTP and RTCP share a shard and a port's
//! parity can be preserved within it (RFC 4787 REQ-4). If subscribers have blocks of `2^b` ports, a shard owns
//! whole blocks, and all sessions of their subscribers. So the destination port alone gives the shard of a packet
//! from outside, and a session's public port always comes from the shard that the packet from inside was labeled
//! with. Hence shards run independently.
//!
//! Everything here is fixed at construction and shared read-only.

use super::blocks::{BlockPlan, PAIR_BITS};
use super::config::{Nat64Config, NatConfig, NatProtocol, PortSelection, small};
use super::endpoint::{End, Inside, inside_key};
use std::hint::select_unpredictable;
use std::ops::{Range, RangeInclusive};
use thalweg_base::{Packet, mix64};

/// Ports of one parity, address and protocol over all shards.
const PORTS_PER_PARITY: usize = 32_768;

/// The fixed geometry of one NAT.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) shards: u16,
    shard_bits: u32,
    /// The logarithm of the number of consecutive ports in one shard.
    block_bits: u32,
    /// The blocks, if subscribers have them.
    pub(crate) blocks: Option<BlockPlan>,
    selection: PortSelection,
    seeds: [u64; 2],
    /// Public addresses as numbers.
    pub(crate) addresses: Box<[u32]>,
    address_index: FixedMap,
    forward_shard: FixedMap,
    /// If there are IPv6 hosts inside.
    pub(crate) nat64: Option<Nat64Config>,
    /// The VRF of the public addresses.
    pub(crate) vrf: u8,
    /// By port; empty if all of NAT is in the main table.
    vrfs: Box<[u8]>,
}

impl Layout {
    /// The geometry of a validated configuration.
    pub(crate) fn new(config: &NatConfig) -> Self {
        let addresses: Box<[u32]> = config.public_addresses.iter().map(|&a| u32::from(a)).collect();
        let address_index = FixedMap::new((0..).zip(&addresses).map(|(i, &a)| (u64::from(a), i)));
        let first = mix64(config.hash_seed ^ 0x9e37_79b9_7f4a_7c15);
        let blocks = config.subscribers.as_ref().map(|subscribers| BlockPlan::new(config, subscribers));
        let mut layout = Self {
            shards: config.shards,
            shard_bits: config.shards.trailing_zeros(),
            block_bits: blocks.as_ref().map_or(PAIR_BITS, |blocks| blocks.bits),
            blocks,
            selection: config.port_selection,
            seeds: [first, mix64(first.wrapping_add(0xd1b5_4a32_d192_ed03)) | 1],
            addresses,
            address_index,
            forward_shard: FixedMap::new(std::iter::empty()),
            nat64: config.nat64,
            vrf: config.vrf_of(config.outside_port),
            vrfs: config.vrfs.iter().map(|vrf| small(*vrf)).collect(),
        };
        layout.forward_shard = FixedMap::new(config.each_forward().map(|f| {
            let key = inside_key(f.protocol.number(), f.inside(), f.inside_port);
            (key, u32::from(layout.port_shard(f.public_port)))
        }));
        layout
    }

    /// The shard that owns a public port.
    #[inline(always)]
    pub(crate) fn port_shard(&self, port: u16) -> u16 {
        (port >> self.block_bits) & (self.shards - 1)
    }

    /// The shard that owns the session of an inside endpoint.
    #[inline(always)]
    pub(crate) fn session_shard(&self, protocol: NatProtocol, inside: Inside, port: u16) -> u16 {
        self.inside_shard(protocol.number(), inside, port)
    }

    /// The same by the protocol's number.
    #[inline(always)]
    pub(crate) fn inside_shard(&self, protocol: u8, inside: Inside, port: u16) -> u16 {
        let key = inside_key(protocol, inside, port);
        if let Some(shard) = self.forward_shard.get(key) {
            return shard as u16;
        }
        if let Some(blocks) = &self.blocks {
            return blocks.shard_of(inside.address) as u16 & (self.shards - 1);
        }
        match self.selection {
            PortSelection::Preserve => self.port_shard(port),
            PortSelection::Hash => self.hash(key) as u16 & (self.shards - 1),
        }
    }

    /// The shard that owns a peer's sessions of a protocol without ports.
    pub(crate) fn bare_shard(&self, protocol: u8, peer: u32) -> u16 {
        self.hash(1 << 57 | u64::from(protocol) << 32 | u64::from(peer)) as u16 & (self.shards - 1)
    }

    /// Whether the inside port alone determines the shard of every session.
    #[inline(always)]
    pub(crate) fn shard_is_port_shard(&self) -> bool {
        self.selection == PortSelection::Preserve
            && self.blocks.is_none()
            && self.forward_shard.slots.is_empty()
    }

    /// Whether a port forward leads to an inside endpoint.
    pub(crate) fn is_forwarded(&self, protocol: NatProtocol, inside: Inside, port: u16) -> bool {
        self.forward_shard.get(inside_key(protocol.number(), inside, port)).is_some()
    }

    /// Whether some port of NAT is in another VRF than the main one.
    #[inline(always)]
    pub(crate) fn knows_vrfs(&self) -> bool {
        !self.vrfs.is_empty()
    }

    /// Whether some port of NAT is in a VRF.
    pub(crate) fn has_vrf(&self, vrf: u8) -> bool {
        vrf == 0 || self.vrfs.contains(&vrf)
    }

    /// The VRF of a port.
    #[inline(always)]
    pub(crate) fn vrf_of(&self, port: u16) -> u8 {
        self.vrfs.get(usize::from(port)).copied().unwrap_or(0)
    }

    /// The inside host with an address behind the port where a packet arrived.
    #[inline(always)]
    pub(crate) fn inside_of(&self, packet: &Packet, address: u32) -> Inside {
        Inside { vrf: self.vrf_of(packet.port_in), address }
    }

    /// The VRF of the address that is translated at an end of a packet.
    pub(crate) fn vrf_at(&self, end: End, packet: &Packet) -> u8 {
        if end == End::Source { self.vrf_of(packet.port_in) } else { self.vrf }
    }

    /// Whether programs of the router may have a public address: they are in the main table.
    pub(crate) fn is_routers(&self, address: u32) -> bool {
        self.vrf == 0 && self.is_public(address)
    }

    /// Whether an address is public.
    #[inline(always)]
    pub(crate) fn is_public(&self, address: u32) -> bool {
        match self.addresses[..] {
            [only] => address == only,
            _ => self.public_index(address).is_some(),
        }
    }

    /// Index of a public address.
    #[inline(always)]
    pub(crate) fn public_index(&self, address: u32) -> Option<u32> {
        self.address_index.get(u64::from(address))
    }

    /// A keyed hash: one folded 64 by 64 bit multiplication with two secret words. The low bits select the shard,
    /// the upper half the slot in the shard's index, the rest the first port to try.
    #[inline(always)]
    pub(crate) fn hash(&self, key: u64) -> u64 {
        let product = u128::from(key ^ self.seeds[0]) * u128::from(self.seeds[1]);
        (product as u64) ^ ((product >> 64) as u64)
    }

    /// The public address of its pool that an inside host is paired with (RFC 4787 REQ-2).
    pub(crate) fn paired_address(&self, inside: u32, pool: &Range<usize>) -> usize {
        let spread = (self.hash(u64::from(inside)) >> 32) as usize;
        pool.start + ((spread * pool.len()) >> 32)
    }

    /// The addresses of a pool, the one first that an inside host is paired with.
    pub(crate) fn addresses_from(
        &self,
        inside: u32,
        pool: &Range<usize>,
    ) -> impl Iterator<Item = usize> + use<> {
        let paired = self.paired_address(inside, pool);
        (paired..pool.end).chain(pool.start..paired)
    }

    /// What stands for an IPv6 host where an inside address decides a shard.
    pub(crate) fn home_of(&self, host: u128) -> u32 {
        let bytes = host.to_be_bytes();
        let halves = bytes.as_chunks::<8>().0.iter();
        let hash = halves.fold(0, |hash, half| self.hash(hash ^ u64::from_be_bytes(*half)));
        u32::try_from(hash >> 32).unwrap_or(0)
    }

    pub(crate) fn shards(&self) -> u32 {
        1 << self.shard_bits
    }

    /// The number of ports in a bitmap: those of one protocol, address and parity that one shard owns.
    pub(crate) fn bitmap_ports(&self) -> usize {
        PORTS_PER_PARITY >> self.shard_bits
    }

    /// The number of bitmaps in a shard.
    pub(crate) fn bitmaps(&self) -> usize {
        NatProtocol::ALL.len() * self.addresses.len() * 2
    }

    /// The bitmap of a port.
    #[inline(always)]
    pub(crate) fn bitmap(&self, protocol: NatProtocol, address: usize, parity: u16) -> usize {
        (protocol as usize * self.addresses.len() + address) * 2 + usize::from(parity)
    }

    /// The index of a port in its bitmap: the shard's blocks one after another, half of each.
    #[inline(always)]
    pub(crate) fn bitmap_place(&self, port: u16) -> usize {
        let (port, half_bits) = (usize::from(port), self.block_bits - 1);
        port >> (self.shard_bits + self.block_bits) << half_bits | (port >> 1) & ((1 << half_bits) - 1)
    }

    /// The port at an index of a bitmap.
    pub(crate) fn bitmap_port(&self, shard: u16, parity: u16, place: usize) -> u16 {
        let half_bits = self.block_bits - 1;
        let block = (place >> half_bits << self.shard_bits) | usize::from(shard);
        let within = (place & ((1 << half_bits) - 1)) << 1;
        (block << self.block_bits | within) as u16 | parity
    }

    /// The indexes of a range of ports in the bitmaps of any shard, rounded to whole blocks.
    pub(crate) fn bitmap_places(&self, ports: &RangeInclusive<u16>) -> RangeInclusive<usize> {
        let half_bits = self.block_bits - 1;
        let row = |port: u16| usize::from(port) >> (self.shard_bits + self.block_bits);
        row(*ports.start()) << half_bits..=row(*ports.end()) << half_bits | ((1 << half_bits) - 1)
    }

    /// The index of a port's block among its shard's blocks of one address.
    pub(crate) fn bitmap_block(&self, port: u16) -> usize {
        usize::from(port) >> (self.shard_bits + self.block_bits)
    }

    /// The bitmap indexes of a shard's block.
    pub(crate) fn block_places(&self, block: usize) -> Range<usize> {
        block << (self.block_bits - 1)..(block + 1) << (self.block_bits - 1)
    }

    /// Blocks that a shard owns on each address, including those that are not assignable.
    pub(crate) fn bitmap_blocks(&self) -> usize {
        1 << (16 - self.shard_bits - self.block_bits)
    }

    /// The number of a shard's block among all blocks of an address.
    pub(crate) fn block_number(&self, shard: u16, block: usize) -> u32 {
        (block << self.shard_bits) as u32 | u32::from(shard)
    }

    /// Whether a session gets its inside port if that is free.
    pub(crate) fn preserves_ports(&self) -> bool {
        self.selection == PortSelection::Preserve
    }
}

/// An immutable map: open addressing, a quarter full. A look-up reads as many places as the worst key needs, nearly
/// always one or two, and branches on nothing: addresses that are in the map and others come mixed.
#[derive(Debug)]
struct FixedMap {
    /// Key and value; [`NO_KEY`] marks an empty place.
    slots: Box<[(u64, u32)]>,
    shift: u32,
    /// Places that hold a key's entry if there is one: its home and those behind it.
    reach: usize,
}

/// Neither an address nor an endpoint.
const NO_KEY: u64 = u64::MAX;

impl FixedMap {
    fn new(entries: impl Iterator<Item = (u64, u32)>) -> Self {
        let entries: Vec<_> = entries.collect();
        if entries.is_empty() {
            return Self { slots: Box::new([]), shift: 0, reach: 0 };
        }
        let capacity = (entries.len() * 4).next_power_of_two();
        let slots = vec![(NO_KEY, 0); capacity].into_boxed_slice();
        let mut map = Self { slots, shift: 64 - capacity.trailing_zeros(), reach: 0 };
        for (key, value) in entries {
            let home = map.home(key);
            let places = (0..capacity).map(|step| (home + step) & (capacity - 1));
            let free = places.enumerate().find(|&(_, at)| map.slots[at].0 == NO_KEY);
            let Some((step, at)) = free else { unreachable!("four places for each entry") };
            map.slots[at] = (key, value);
            map.reach = map.reach.max(step + 1);
        }
        map
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u32> {
        let (mut found, mut is_there) = (0, false);
        for step in (0..self.reach).rev() {
            let (other, value) = self.slots[(self.home(key) + step) & (self.slots.len() - 1)];
            found = select_unpredictable(other == key, value, found);
            is_there |= other == key;
        }
        is_there.then_some(found)
    }
}

/// The shards of group `group` if `groups` groups share `shards` shards.
pub fn group_shards(group: usize, groups: usize, shards: usize) -> std::ops::Range<usize> {
    let groups = groups.max(1);
    group.min(groups) * shards / groups..(group + 1).min(groups) * shards / groups
}

/// The group that owns a shard: the inverse of [`group_shards`]. `shards` is a power of two, which saves a division for
/// each packet.
#[inline]
pub fn shard_group(shard: usize, groups: usize, shards: usize) -> usize {
    ((shard + 1) * groups.max(1) - 1) >> shards.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::SubscriberConfig;

    #[test]
    fn groups_partition_the_shards() {
        for shards in [1usize, 2, 16, 64, 256] {
            for groups in 1..=9 {
                let mut next = 0;
                for group in 0..groups {
                    let owned = group_shards(group, groups, shards);
                    assert_eq!(owned.start, next);
                    next = owned.end;
                    for shard in owned {
                        assert_eq!(shard_group(shard, groups, shards), group);
                    }
                }
                assert_eq!(next, shards);
            }
        }
    }

    #[test]
    fn every_port_has_one_place() {
        for (shards, block_size) in [(1u16, 0), (4, 0), (256, 0), (1, 16), (4, 512), (64, 64), (2, 16_384)] {
            let subscribers = SubscriberConfig { block_size, ..SubscriberConfig::default() };
            let config = NatConfig {
                shards,
                subscribers: (block_size > 0).then_some(subscribers),
                public_addresses: vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
                ..NatConfig::default()
            };
            let layout = Layout::new(&config);
            let mut seen = std::collections::HashSet::new();
            for port in 0..=u16::MAX {
                let bitmap = layout.bitmap(NatProtocol::Icmp, 1, port & 1);
                assert!(bitmap < layout.bitmaps() && layout.bitmap_place(port) < layout.bitmap_ports());
                assert!(seen.insert((layout.port_shard(port), bitmap, layout.bitmap_place(port))));
                let back = layout.bitmap_port(layout.port_shard(port), port & 1, layout.bitmap_place(port));
                assert_eq!(back, port);
                assert!(layout.bitmap_places(&(port..=port)).contains(&layout.bitmap_place(port)));
                let block = layout.bitmap_block(port);
                assert!(block < layout.bitmap_blocks());
                assert!(layout.block_places(block).contains(&layout.bitmap_place(port)));
            }
        }
    }

    #[test]
    fn fixed_map_finds_what_was_put_in_and_nothing_else() {
        let map = FixedMap::new((0..200u32).map(|i| (u64::from(i) << 24, i)));
        for i in 0..200u32 {
            assert_eq!(map.get(u64::from(i) << 24), Some(i));
            assert_eq!(map.get((u64::from(i) << 24) + 1), None);
        }
        assert_eq!(FixedMap::new(std::iter::empty()).get(0), None);
    }
}
