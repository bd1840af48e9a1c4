//! The assignment of blocks of public ports to subscribers: the arithmetic, without state.
//!
//! A block is `2^bits` consecutive ports of one public address. Only blocks that lie entirely in the port range are
//! assigned; they are numbered address by address. Deterministic allocation (RFC 7422 section 2, sequential) gives
//! the n-th inside address of the configured networks the n-th block, so the configuration alone, without a log,
//! tells who had a port.

use super::config::{BlockAllocation, NatConfig, NatConfigError, NatGroup, SubscriberConfig};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Bits of a port within its block if there are no subscribers: a pair, so that parity can be preserved.
pub(crate) const PAIR_BITS: u32 = 1;

/// The blocks of one NAT.
#[derive(Clone, Debug)]
pub(crate) struct BlockPlan {
    /// The logarithm of the number of ports in a block.
    pub(crate) bits: u32,
    /// The first block assigned on every address; block `n` begins at port `n << bits`.
    pub(crate) first: u32,
    /// Blocks assigned on each address.
    pub(crate) per_address: u32,
    /// Inside networks in order, each with its first address, its size, and the addresses before it. `None`: any
    /// subscriber may get any block.
    networks: Option<Box<[Network]>>,
}

#[derive(Clone, Copy, Debug)]
struct Network {
    first: u32,
    addresses: u64,
    before: u64,
}

impl BlockPlan {
    /// The blocks of a validated configuration that has subscribers.
    pub(crate) fn new(config: &NatConfig, subscribers: &SubscriberConfig) -> Self {
        let bits = u32::from(subscribers.block_size).trailing_zeros();
        let (from, to) = (u32::from(*config.port_range.start()), u32::from(*config.port_range.end()));
        let first = from.div_ceil(1 << bits);
        let per_address = ((to + 1) >> bits).saturating_sub(first);
        let networks = match &subscribers.allocation {
            BlockAllocation::Dynamic => None,
            BlockAllocation::Deterministic(networks) => {
                // Those of each pool fill its public addresses one after another.
                let groups = config.groups.iter();
                let groups = groups.map(|group| (group.inside_v4().collect(), group.addresses.start));
                let of_pool = |(networks, address): (Vec<Ipv4Net>, usize)| {
                    let mut before = address as u64 * u64::from(per_address);
                    let network = |net: &Ipv4Net| {
                        let addresses = 1u64 << (32 - net.prefix_len());
                        let network = Network { first: net.network().into(), addresses, before };
                        before += addresses;
                        network
                    };
                    networks.iter().map(network).collect::<Vec<_>>()
                };
                Some(std::iter::once((networks.clone(), 0)).chain(groups).flat_map(of_pool).collect())
            }
        };
        Self { bits, first, per_address, networks }
    }

    /// Whether an address determines its block.
    pub(crate) fn is_deterministic(&self) -> bool {
        self.networks.is_some()
    }

    /// A subscriber's block: index of the public address, and block number on it. `None` for dynamic blocks, and
    /// for an address that is not a subscriber's.
    pub(crate) fn block_of(&self, subscriber: u32) -> Option<(usize, u32)> {
        let networks = self.networks.as_ref()?;
        let number = networks.iter().find_map(|net| {
            let offset = u64::from(subscriber.checked_sub(net.first)?);
            (offset < net.addresses).then_some(net.before + offset)
        })?;
        let per_address = u64::from(self.per_address.max(1));
        Some(((number / per_address) as usize, self.first + (number % per_address) as u32))
    }

    /// The subscriber whose block contains a port of the public address with this index.
    pub(crate) fn subscriber_of(&self, address: usize, port: u16) -> Option<u32> {
        let place = (u32::from(port) >> self.bits).checked_sub(self.first)?;
        if place >= self.per_address {
            return None;
        }
        let number = address as u64 * u64::from(self.per_address) + u64::from(place);
        let networks = self.networks.as_ref()?;
        let net = networks.iter().find(|net| (net.before..net.before + net.addresses).contains(&number))?;
        Some(net.first + (number - net.before) as u32)
    }

    /// The ports of a block.
    pub(crate) fn ports(&self, block: u32) -> RangeInclusive<u16> {
        let first = block << self.bits;
        first as u16..=(first + (1 << self.bits) - 1) as u16
    }

    /// The shard of a subscriber, before reduction to the number of shards: that of its deterministic block, else
    /// the low bits of the address, so that consecutive addresses spread evenly.
    #[inline]
    pub(crate) fn shard_of(&self, subscriber: u32) -> u32 {
        let spread = subscriber ^ subscriber >> 8 ^ subscriber >> 16;
        self.block_of(subscriber).map_or(spread, |(_, block)| block)
    }
}

impl NatConfig {
    /// The public address and ports that deterministic allocation gives an inside address; `None` if blocks are not
    /// deterministic or the address is not a subscriber's. The configuration must be valid.
    pub fn block_of(&self, inside: Ipv4Addr) -> Option<(Ipv4Addr, RangeInclusive<u16>)> {
        let plan = BlockPlan::new(self, self.subscribers.as_ref()?);
        let (address, block) = plan.block_of(inside.into())?;
        Some((*self.public_addresses.get(address)?, plan.ports(block)))
    }

    /// The inverse: the inside address that owns a public port.
    pub fn subscriber_of(&self, public: Ipv4Addr, port: u16) -> Option<Ipv4Addr> {
        let plan = BlockPlan::new(self, self.subscribers.as_ref()?);
        let address = self.public_addresses.iter().position(|a| *a == public)?;
        plan.subscriber_of(address, port).map(Ipv4Addr::from)
    }

    /// Checks subscribers' settings against ports, shards and addresses.
    pub(crate) fn validate_subscribers(&self) -> Result<(), NatConfigError> {
        let Some(subscribers) = &self.subscribers else { return Ok(()) };
        let size = subscribers.block_size;
        let sizes = SubscriberConfig::BLOCK_SIZE_MIN..=SubscriberConfig::BLOCK_SIZE_MAX;
        if !size.is_power_of_two() || !sizes.contains(&size) {
            return Err(NatConfigError::BlockSize(size));
        }
        if subscribers.ports_max == 0 || subscribers.sessions_max == 0 {
            return Err(NatConfigError::SubscriberLimit);
        }
        let plan = BlockPlan::new(self, subscribers);
        if plan.per_address < u32::from(self.shards) {
            return Err(NatConfigError::Blocks { blocks: plan.per_address, shards: self.shards });
        }
        if let BlockAllocation::Deterministic(networks) = &subscribers.allocation {
            let rest = (networks.clone(), self.default_group().addresses.len());
            let groups = self.groups.iter();
            let groups = groups.map(|group| (group.inside_v4().collect(), group.addresses.len()));
            for (networks, addresses) in std::iter::once(rest).chain(groups) {
                let wanted: u64 = networks.iter().map(|net| 1u64 << (32 - net.prefix_len())).sum();
                // Addresses may be learned later; then there will be at least one.
                let there = u64::from(plan.per_address) * addresses.max(1) as u64;
                if wanted == 0 || wanted > there {
                    return Err(NatConfigError::Subscribers { wanted, there });
                }
            }
            let groups = self.groups.iter().flat_map(NatGroup::inside_v4);
            let all: Vec<_> = networks.iter().copied().chain(groups).collect();
            for (i, net) in all.iter().enumerate() {
                if all[..i].iter().any(|other| other.contains(net) || net.contains(other)) {
                    return Err(NatConfigError::SubscriberTwice(*net));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::testing;

    #[test]
    fn every_subscriber_has_a_block_of_its_own_and_every_port_leads_back() {
        let networks = ["100.64.0.0/25", "10.0.0.0/28", "10.0.1.7/32"].map(|net| net.parse().unwrap());
        let subscribers = SubscriberConfig {
            allocation: BlockAllocation::Deterministic(networks.to_vec()),
            block_size: 512,
            ..SubscriberConfig::default()
        };
        let config = NatConfig {
            subscribers: Some(subscribers),
            port_range: 1000..=65535,
            shards: 8,
            ..testing::config(2)
        };
        config.validate().unwrap();
        let mut seen = std::collections::HashSet::new();
        for subscriber in networks
            .iter()
            .flat_map(|net: &ipnet::Ipv4Net| u32::from(net.network())..=u32::from(net.broadcast()))
        {
            let subscriber = Ipv4Addr::from(subscriber);
            let (public, ports) = config.block_of(subscriber).unwrap();
            assert!(*ports.start() >= 1024 && ports.len() == 512);
            for port in ports {
                assert!(seen.insert((public, port)));
                assert_eq!(config.subscriber_of(public, port), Some(subscriber));
            }
        }
        // 126 blocks an address: the second address has what the first cannot hold, and the rest is unassigned.
        assert_eq!(seen.len(), 145 * 512);
        assert_eq!(config.block_of([10, 0, 1, 8].into()), None);
        assert_eq!(config.subscriber_of(config.public_addresses[0], 1023), None);
        assert_eq!(config.subscriber_of(config.public_addresses[1], 65535), None);
    }
}
