//! The IPv6 hosts of a shard, and the numbers that stand for them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Numbers look like the addresses of 240.0.0.0/4, which no host has (RFC 1112 4).
const FIRST_NUMBER: u32 = 0xf000_0000;
/// Numbers tried for a host whose home is taken.
const TRIES: u32 = 16;

/// Whether an inside address is the number of an IPv6 host.
#[inline(always)]
pub(crate) fn is_number(address: u32) -> bool {
    address >= FIRST_NUMBER
}

/// A host, and how many sessions and packets in work use its number.
#[derive(Clone, Copy, Debug)]
struct Host {
    address: u128,
    uses: u32,
}

/// The hosts with sessions; there are never more than sessions, but for one whose packet is in work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts6 {
    numbers: HashMap<u128, u32>,
    hosts: HashMap<u32, Host>,
}

impl Hosts6 {
    pub(crate) fn count(&self) -> u64 {
        self.hosts.len() as u64
    }

    /// The host of a number.
    pub(crate) fn address(&self, number: u32) -> Option<u128> {
        let host = is_number(number).then(|| self.hosts.get(&number))?;
        host.map(|host| host.address)
    }

    /// An inside address as it is on the wire.
    pub(crate) fn ip_of(&self, inside: u32) -> IpAddr {
        let ipv4 = || IpAddr::V4(Ipv4Addr::from(inside));
        self.address(inside).map_or_else(ipv4, |host| IpAddr::V6(Ipv6Addr::from(host)))
    }

    /// The number of a host that has sessions.
    pub(crate) fn number_of(&self, address: u128) -> Option<u32> {
        self.numbers.get(&address).copied()
    }

    /// The number of a host, for one use more: the one that it has, or a free one near its home. `None` if there is none.
    pub(crate) fn take(&mut self, home: u32, address: u128) -> Option<u32> {
        let number = self.number_of(address).or_else(|| {
            let mut near = (0..TRIES).map(|n| FIRST_NUMBER | home.wrapping_add(n));
            let number = near.find(|number| !self.hosts.contains_key(number))?;
            self.numbers.insert(address, number);
            self.hosts.insert(number, Host { address, uses: 0 });
            Some(number)
        })?;
        self.hold(number);
        Some(number)
    }

    /// One use more, if the inside address is a number.
    pub(crate) fn hold(&mut self, inside: u32) {
        if is_number(inside)
            && let Some(host) = self.hosts.get_mut(&inside)
        {
            host.uses += 1;
        }
    }

    /// One use less; with the last, the host is forgotten.
    pub(crate) fn release(&mut self, inside: u32) {
        if !is_number(inside) {
            return;
        }
        let Some(host) = self.hosts.get_mut(&inside) else { return };
        host.uses -= 1;
        if host.uses == 0 {
            let address = host.address;
            self.hosts.remove(&inside);
            self.numbers.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_one_home_have_numbers_of_their_own_until_their_last_use() {
        let mut hosts = Hosts6::default();
        let home = u32::MAX;
        let numbers: Vec<u32> = (0..16).map(|n| hosts.take(home, n).unwrap()).collect();
        assert!(numbers.iter().all(|number| is_number(*number)));
        assert_eq!(numbers.iter().collect::<std::collections::HashSet<_>>().len(), 16);
        assert_eq!(hosts.take(home, 16), None, "all numbers tried are taken");
        assert_eq!(hosts.take(home, 3), Some(numbers[3]), "a second use");
        hosts.release(numbers[3]);
        assert_eq!(hosts.address(numbers[3]), Some(3));
        hosts.release(numbers[3]);
        assert_eq!((hosts.address(numbers[3]), hosts.number_of(3), hosts.count()), (None, None, 15));
        assert_eq!(hosts.take(home, 16), Some(numbers[3]));
        assert_eq!(hosts.address(0x0a00_0001), None);
    }
}
