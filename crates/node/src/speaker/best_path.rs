//! The best path to an address, for flow records.

use std::net::IpAddr;

use thalweg_base::Address;
use thalweg_bgp::rib::RibAddress;

use super::Speaker;

/// The best path of the longest matching prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestPathTo {
    /// The AS that announced the prefix; 0 if there is none or the AS_PATH ends in a set.
    pub origin_as: u32,
    /// The first AS of the AS_PATH; 0 if there is none or it begins with a set.
    pub neighbor_as: u32,
    pub prefix_length: u8,
    pub next_hop: IpAddr,
}

impl Speaker {
    /// The best path to an address. Asks every shard, which takes some microseconds.
    pub fn best_path_to(&self, address: IpAddr) -> Option<BestPathTo> {
        match address {
            IpAddr::V4(address) => self.best_path_in(u32::from(address)),
            IpAddr::V6(address) => self.best_path_in(u128::from(address)),
        }
    }

    fn best_path_in<A: RibAddress + Address>(&self, address: A) -> Option<BestPathTo> {
        let mut longest = None;
        for shard in &self.shards {
            let rib = shard.rib();
            let Some(route) = rib.longest_match(address) else { continue };
            let length = route.prefix.length();
            if longest.is_some_and(|(known, _)| known >= length) {
                continue;
            }
            if let Some(path) = route.best() {
                let (attrs, prefix_length) = (&path.attrs, length);
                let (origin_as, neighbor_as) = (attrs.origin_as, attrs.neighbor_as);
                let next_hop = attrs.next_hop().address();
                longest = Some((length, BestPathTo { origin_as, neighbor_as, prefix_length, next_hop }));
            }
        }
        longest.map(|(_, toward)| toward)
    }
}
