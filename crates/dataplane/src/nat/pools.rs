//! Pools of public addresses: which of them an inside host's sessions are on, and what the host may take. Asked when a
//! session is made; a packet of an existing session costs nothing here.
//!
//! Pool 0 is that of hosts in no group. Which pool a host has is no part of the table's geometry, so a reload changes
//! it in place: sessions stay where they are, and new ones go to the new pool.

use super::config::{NatConfig, NatGroup, small};
use ipnet::{IpNet, Ipv4Net};
use std::net::IpAddr;
use std::ops::Range;

/// The pools of one outside port.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    /// VRF, first and last inside address, and the pool; the first that has a host counts.
    networks: Box<[(u8, IpAddr, IpAddr, usize)]>,
    all: Box<[Pool]>,
}

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: Box<str>,
    /// Indexes of its public addresses.
    pub(crate) addresses: Range<usize>,
    /// Public ports of each protocol that a subscriber with blocks may have, its blocks, and its sessions.
    pub(crate) ports_max: u32,
    pub(crate) blocks_max: u32,
    pub(crate) sessions_max: u32,
}

impl Pools {
    /// Those of a validated configuration of one outside port.
    pub(crate) fn new(config: &NatConfig) -> Self {
        let rest = config.default_group();
        let all: Vec<Pool> = std::iter::once(&rest).chain(&config.groups).map(|g| pool(config, g)).collect();
        let each = config.groups.iter().zip(1..);
        let networks = each.flat_map(|(group, number)| {
            let vrf = small(group.vrf);
            group.inside.iter().map(move |net| (vrf, net.network(), net.broadcast(), number))
        });
        Self { networks: networks.collect(), all: all.into() }
    }

    /// The number of the pool of an inside host with this address in a VRF.
    pub(crate) fn number_of(&self, vrf: u8, inside: IpAddr) -> usize {
        let has = |of: u8, first, last| of == vrf && (first..=last).contains(&inside);
        let found = self.networks.iter().find(|(of, first, last, _)| has(*of, *first, *last));
        found.map_or(0, |(.., number)| *number)
    }

    /// The number of the pool that a public address is in.
    pub(crate) fn of_address(&self, index: usize) -> usize {
        self.all.iter().position(|pool| pool.addresses.contains(&index)).unwrap_or(0)
    }

    pub(crate) fn all(&self) -> &[Pool] {
        &self.all
    }
}

fn pool(config: &NatConfig, group: &NatGroup) -> Pool {
    let blocks_max = config.subscribers.as_ref().map_or(0, |s| s.blocks_max(group.ports_max));
    Pool {
        name: group.name.as_str().into(),
        addresses: group.addresses.clone(),
        ports_max: group.ports_max,
        blocks_max,
        sessions_max: group.limits.sessions_max.unwrap_or(u32::MAX),
    }
}

/// How much of a pool is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolInfo {
    /// `default`, or the group's.
    pub name: String,
    pub addresses: usize,
    /// Public ports of each protocol.
    pub ports: u64,
    /// Those in use by protocol, in the order of [`super::NatProtocol::ALL`].
    pub used: [u64; 3],
    /// Blocks of subscribers, and those in use.
    pub blocks: u64,
    pub blocks_used: u64,
    /// Packets dropped because the pool had no port left, or their host had all it may have.
    pub refused: u64,
}

impl PoolInfo {
    /// Adds another shard's part of the same pool.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ports += other.ports;
        self.used.iter_mut().zip(other.used).for_each(|(mine, theirs)| *mine += theirs);
        self.blocks += other.blocks;
        self.blocks_used += other.blocks_used;
        self.refused += other.refused;
    }
}

impl NatGroup {
    /// Its prefixes of IPv4.
    pub fn inside_v4(&self) -> impl Iterator<Item = Ipv4Net> + '_ {
        self.inside.iter().filter_map(|net| match net {
            IpNet::V4(net) => Some(*net),
            IpNet::V6(_) => None,
        })
    }
}

impl NatConfig {
    /// The group of all hosts that no other has.
    pub(crate) fn default_group(&self) -> NatGroup {
        let end = self.groups.iter().map(|group| group.addresses.start).min();
        let mut limits = self.hosts;
        if let Some(subscribers) = &self.subscribers {
            limits.sessions_max = Some(subscribers.sessions_max);
        }
        NatGroup {
            name: "default".to_owned(),
            inside: Vec::new(),
            vrf: 0,
            addresses: 0..end.unwrap_or(self.public_addresses.len()),
            outside: 0,
            limits,
            ports_max: self.subscribers.as_ref().map_or(0, |subscribers| subscribers.ports_max),
        }
    }
}
