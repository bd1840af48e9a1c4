//! What is in use of each pool.

use super::super::config::NatProtocol;
use super::super::endpoint::Inside;
use super::super::pools::PoolInfo;
use super::NatShard;
use std::ops::Range;

impl NatShard {
    /// The number of the pool that an inside host has.
    pub(super) fn pool_of(&self, inside: Inside) -> usize {
        self.pools.number_of(inside.vrf, self.address_of(inside.address))
    }

    /// The indexes of the public addresses that an inside host may get.
    pub(super) fn publics_of(&self, inside: Inside) -> Range<usize> {
        self.pools.all()[self.pool_of(inside)].addresses.clone()
    }

    /// This shard's part of each pool.
    pub(crate) fn pools(&self) -> Vec<PoolInfo> {
        let ports = self.ports_of_address();
        let each = self.pools.all().iter().zip(&self.refused);
        each.map(|(pool, refused)| {
            let mut info = PoolInfo {
                name: pool.name.to_string(),
                addresses: pool.addresses.len(),
                refused: *refused,
                ..PoolInfo::default()
            };
            pool.addresses.clone().for_each(|address| info.add(&self.use_of_address(address, ports)));
            info
        })
        .collect()
    }

    /// Public ports of each protocol that this shard has on every address.
    fn ports_of_address(&self) -> u64 {
        let of_parity = |parity| {
            let places = self.layout.bitmap_places(&self.port_range);
            let ports = places.map(move |place| self.layout.bitmap_port(self.shard, parity, place));
            ports.filter(|port| self.port_range.contains(port)).count() as u64
        };
        of_parity(0) + of_parity(1)
    }

    fn use_of_address(&self, address: usize, ports: u64) -> PoolInfo {
        let mut info = PoolInfo { ports, ..PoolInfo::default() };
        for (used, protocol) in info.used.iter_mut().zip(NatProtocol::ALL) {
            let free = [0, 1].map(|parity| self.ports.free_in(self.layout.bitmap(protocol, address, parity)));
            *used = ports.saturating_sub(u64::from(free[0] + free[1]));
        }
        if let Some(subscribers) = &self.subscribers {
            (info.blocks, info.blocks_used) = subscribers.in_use_on(&self.layout, address);
        }
        info
    }
}
