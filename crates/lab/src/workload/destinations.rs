//! Addresses to look up, drawn from a prefix list.
//!
//! The published look-up workload ([`thalweg_dataplane::lpm::workload`]), endless and with a seed.
//!
//! - random: any address (IPv6: any in `2000::/3`).
//! - inside: a prefix of the list, each equally likely, then any address in it.
//! - zipf: of 65,536 inside addresses, the k-th with probability proportional to 1/k.
//!
//! The order of random draws is part of the definition: see the code.

use ipnet::{Ipv4Net, Ipv6Net};
use thalweg_base::XorShift64Star;
pub use thalweg_dataplane::lpm::workload::Kind;
use thalweg_dataplane::lpm::workload::{Workload, ZIPF_POOL, zipf_rank};

/// A prefix of either family.
pub trait Prefix: Copy + Into<thalweg_base::Prefix<Self::Address>> {
    type Address: Workload;

    /// A random address in this prefix. Every prefix costs the same number of draws, also one with a single
    /// address.
    fn within(&self, rng: &mut XorShift64Star) -> Self::Address {
        Self::Address::within((*self).into(), rng)
    }
}

impl Prefix for Ipv4Net {
    type Address = u32;
}

impl Prefix for Ipv6Net {
    type Address = u128;
}

/// An endless series of addresses.
#[derive(Clone, Debug)]
pub struct Destinations<'a, P: Prefix> {
    kind: Kind,
    prefixes: &'a [P],
    pool: Vec<P::Address>,
    rng: XorShift64Star,
}

impl<'a, P: Prefix> Destinations<'a, P> {
    /// Addresses of `kind`; with an empty list, all kinds are random. Seed 0 gives the published workload.
    pub fn new(kind: Kind, prefixes: &'a [P], seed: u64) -> Self {
        let kind = if prefixes.is_empty() { Kind::Random } else { kind };
        let mut made = Self { kind, prefixes, pool: Vec::new(), rng: XorShift64Star::new(seed) };
        if kind == Kind::Zipf {
            made.pool = (0..ZIPF_POOL).map(|_| made.inside()).collect();
        }
        made
    }

    /// The next address.
    pub fn next_address(&mut self) -> P::Address {
        match self.kind {
            Kind::Random => P::Address::random(&mut self.rng),
            Kind::Inside => self.inside(),
            Kind::Zipf => self.pool[zipf_rank(&mut self.rng)],
        }
    }

    fn inside(&mut self) -> P::Address {
        let count = u32::try_from(self.prefixes.len()).unwrap_or(u32::MAX);
        self.prefixes[self.rng.below(count) as usize].within(&mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn zipf_repeats_the_first_addresses_most() {
        let prefixes: Vec<Ipv4Net> = vec!["10.0.0.0/8".parse().unwrap()];
        let mut draws = Destinations::new(Kind::Zipf, &prefixes, 3);
        let pool = draws.pool.clone();
        let first = (0..10_000).filter(|_| draws.next_address() == pool[0]).count();
        // 1 in 16: 65536^u < 2 for u < 1/16. Five deviations are 121.
        assert!((504..746).contains(&first), "{first}");
    }

    #[test]
    fn an_empty_list_draws_from_anywhere() {
        let none: [Ipv4Net; 0] = [];
        let mut inside = Destinations::new(Kind::Inside, &none, 9);
        let mut random = Destinations::new(Kind::Random, &none, 9);
        assert_eq!(inside.next_address(), random.next_address());
    }

    proptest! {
        #[test]
        fn inside_is_inside(address: u32, len in 0u8..=32, v6: u128, len6 in 0u8..=128, seed: u64) {
            let net = [Ipv4Net::new(address.into(), len).unwrap()];
            let net6 = [Ipv6Net::new(v6.into(), len6).unwrap()];
            // One of Zipf's pools has 65,536 addresses, so a few cases say enough.
            let kinds: &[Kind] = if seed.is_multiple_of(16) { &[Kind::Inside, Kind::Zipf] } else { &[Kind::Inside] };
            for kind in kinds {
                let mut draws = Destinations::new(*kind, &net, seed);
                prop_assert!(net[0].contains(&std::net::Ipv4Addr::from(draws.next_address())));
                let mut draws = Destinations::new(*kind, &net6, seed);
                prop_assert!(net6[0].contains(&std::net::Ipv6Addr::from(draws.next_address())));
            }
            let mut draws = Destinations::new(Kind::Random, &net6, seed);
            prop_assert_eq!(draws.next_address() >> 125, 1);
        }
    }

    /// Compares with the published hits and sums of next hops for 4,194,304 addresses of each kind, by a separate
    /// oracle: prefixes become intervals, where longer ones replace parts of shorter ones, and addresses are sought
    /// in them.
    #[test]
    fn the_published_check_sums_on_the_full_table() {
        let Some((v4, v6)) = full_table() else { return };
        let expected_v4 = [(2_990_317, 392_270_661), (4_194_304, 534_826_313), (4_194_304, 513_653_646)];
        let expected_v6 = [(1_720, 188_271), (4_194_304, 534_722_191), (4_194_304, 493_757_951)];
        // IPv4 addresses are in the upper bits, like very short IPv6 ones.
        let wide: Vec<(u128, u8)> =
            v4.iter().map(|n| (u128::from(u32::from(n.network())) << 96, n.prefix_len())).collect();
        let steps_v4 = steps(&wide);
        let wide: Vec<(u128, u8)> = v6.iter().map(|n| (u128::from(n.network()), n.prefix_len())).collect();
        let steps_v6 = steps(&wide);
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            let mut draws = Destinations::new(kind, &v4, 0);
            let addresses = (0..1 << 22).map(|_| u128::from(draws.next_address()) << 96);
            assert_eq!(hits_and_sum(&steps_v4, addresses), expected_v4[i], "IPv4 {}", kind.name());
            let mut draws = Destinations::new(kind, &v6, 0);
            let addresses = (0..1 << 22).map(|_| draws.next_address());
            assert_eq!(hits_and_sum(&steps_v6, addresses), expected_v6[i], "IPv6 {}", kind.name());
        }
    }

    fn full_table() -> Option<(Vec<Ipv4Net>, Vec<Ipv6Net>)> {
        let path = thalweg_testdata::shared("prefixes/full-table-prefixes.txt.gz")?;
        let file = std::fs::File::open(&path).unwrap();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for line in BufReader::new(flate2::read::GzDecoder::new(file)).lines() {
            let line = line.unwrap();
            match line.trim().parse().unwrap() {
                ipnet::IpNet::V4(net) => v4.push(net),
                ipnet::IpNet::V6(net) => v6.push(net),
            }
        }
        Some((v4, v6))
    }

    /// The addresses at which the next hop changes, with the next hop from there on. The i-th prefix has next hop
    /// 1 + i mod 254.
    fn steps(prefixes: &[(u128, u8)]) -> Vec<(u128, u64)> {
        let mut sorted: Vec<(u128, u8, u64)> =
            prefixes.iter().zip(0u64..).map(|(&(start, len), i)| (start, len, 1 + i % 254)).collect();
        sorted.sort_unstable();
        let mut steps = vec![(0, 0)];
        let mut open: Vec<(u128, u64)> = Vec::new(); // last address and hop, the innermost on top
        let close = |open: &mut Vec<(u128, u64)>, steps: &mut Vec<(u128, u64)>, before: Option<u128>| {
            while let Some(&(last, _)) = open.last().filter(|(last, _)| before.is_none_or(|b| *last < b)) {
                open.pop();
                let outer = open.last().map_or(0, |o| o.1);
                steps.extend(last.checked_add(1).map(|next| (next, outer)));
            }
        };
        for (start, len, hop) in sorted {
            close(&mut open, &mut steps, Some(start));
            steps.push((start, hop));
            open.push((start | u128::MAX.checked_shr(len.into()).unwrap_or(0), hop));
        }
        close(&mut open, &mut steps, None);
        steps
    }

    /// Several millions of addresses: by their upper 16 bits the search is in a short part of the steps.
    fn hits_and_sum(steps: &[(u128, u64)], addresses: impl Iterator<Item = u128>) -> (u64, u64) {
        let mut parts = vec![0; (1 << 16) + 1];
        for (step, _) in steps {
            parts[(step >> 112) as usize + 1] += 1;
        }
        for at in 1..parts.len() {
            parts[at] += parts[at - 1];
        }
        let (mut hits, mut sum) = (0, 0);
        for address in addresses {
            let part = (address >> 112) as usize;
            let (mut low, mut high) = (parts[part], parts[part + 1]);
            while low < high {
                let middle = (low + high) / 2;
                if steps[middle].0 <= address { low = middle + 1 } else { high = middle }
            }
            // Of several changes at one address, the last one counts.
            let hop = steps[low - 1].1;
            hits += u64::from(hop != 0);
            sum += hop;
        }
        (hits, sum)
    }
}
