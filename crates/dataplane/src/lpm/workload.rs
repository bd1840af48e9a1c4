//! Addresses for timing look-ups: three kinds, from a seeded generator.
//!
//! - *random*: anywhere in the address space (IPv6: in 2000::/3).
//! - *inside*: a uniformly drawn prefix of the table, and random host bits: nearly every look-up ends at a
//!   different place, which is the hardest on caches.
//! - *zipf*: 65,536 inside addresses, the k-th drawn about 1/k as often as the first, like real traffic.
//!
//! The generator is xorshift64*, restarted for each kind; the order of draws is part of the definition, so that
//! sums over the answers can be compared between programs.

use super::{Address, NextHopId, Prefix};
use ipnet::{Ipv4Net, Ipv6Net};
use thalweg_base::XorShift64Star;

/// Routes of both families.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// IPv4 routes in file order.
    pub v4: Vec<(Prefix<u32>, NextHopId)>,
    /// IPv6 routes in file order.
    pub v6: Vec<(Prefix<u128>, NextHopId)>,
    /// Lines that are neither a prefix nor blank nor a comment.
    pub bad_lines: usize,
}

impl Routes {
    /// Reads one prefix a line; the i-th of each family gets next hop `1 + i mod 254`.
    pub fn from_text(text: &str) -> Self {
        let mut routes = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Ok(net) = line.parse::<Ipv4Net>() {
                let hop = next_hop_of(routes.v4.len());
                routes.v4.push((net.into(), hop));
            } else if let Ok(net) = line.parse::<Ipv6Net>() {
                let hop = next_hop_of(routes.v6.len());
                routes.v6.push((net.into(), hop));
            } else {
                routes.bad_lines += 1;
            }
        }
        routes
    }
}

fn next_hop_of(index: usize) -> NextHopId {
    1 + (index % 254) as NextHopId
}

/// The sum of all answers and how many were not "no route".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Addresses with a route.
    pub hits: u64,
    /// Next hops added up.
    pub sum: u64,
}

/// Looks up all addresses in batches and adds up the answers.
pub fn look_up_all<A: Copy>(
    look_up: &dyn Fn(&[A], &mut [NextHopId]),
    addresses: &[A],
    batch: usize,
) -> Answers {
    let batch = batch.clamp(1, 256);
    let mut next_hops = [0; 256];
    let mut answers = Answers::default();
    for addresses in addresses.chunks(batch) {
        let next_hops = &mut next_hops[..addresses.len()];
        look_up(addresses, next_hops);
        // At most 256 answers below 2^15 fit the sum, and narrow sums are faster.
        let (mut sum, mut hits) = (0_u32, 0_u32);
        for &mut next_hop in next_hops {
            sum += u32::from(next_hop);
            hits += u32::from(next_hop != 0);
        }
        answers.sum += u64::from(sum);
        answers.hits += u64::from(hits);
    }
    answers
}

/// Addresses per kind in the published figures.
pub const ADDRESSES: usize = 4_194_304;

/// Addresses that zipf draws from.
pub const ZIPF_POOL: u32 = 65_536;

thalweg_base::words! {
    /// The distribution of addresses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// Anywhere.
        Random => "random",
        /// In a prefix of the table.
        Inside => "inside",
        /// A few addresses often, many seldom.
        Zipf => "zipf",
    }
}

/// Addresses for workloads.
pub trait Workload: Address {
    /// Any address, as the kind *random* draws it.
    fn random(rng: &mut XorShift64Star) -> Self;

    /// An address of a prefix with random host bits.
    fn within(prefix: Prefix<Self>, rng: &mut XorShift64Star) -> Self;

    /// `count` addresses of a kind; without prefixes, inside and zipf are random as well.
    fn addresses(kind: Kind, prefixes: &[Prefix<Self>], count: usize) -> Vec<Self> {
        let mut rng = XorShift64Star::new(XorShift64Star::DEFAULT_SEED);
        let inside = |rng: &mut XorShift64Star| match u32::try_from(prefixes.len()) {
            Ok(length) if length > 0 => Self::within(prefixes[rng.below(length) as usize], rng),
            _ => Self::random(rng),
        };
        match kind {
            Kind::Random => (0..count).map(|_| Self::random(&mut rng)).collect(),
            Kind::Inside => (0..count).map(|_| inside(&mut rng)).collect(),
            Kind::Zipf => {
                let pool: Vec<_> = (0..ZIPF_POOL).map(|_| inside(&mut rng)).collect();
                (0..count).map(|_| pool[zipf_rank(&mut rng)]).collect()
            }
        }
    }
}

/// An index into the pool, by Zipf with exponent 1: the inverse of the continuous approximation, rank = pool^u.
pub fn zipf_rank(rng: &mut XorShift64Star) -> usize {
    let unit = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let rank = f64::from(ZIPF_POOL).powf(unit) as usize;
    rank.clamp(1, ZIPF_POOL as usize) - 1
}

impl Workload for u32 {
    fn random(rng: &mut XorShift64Star) -> Self {
        (rng.next_u64() >> 32) as u32
    }

    fn within(prefix: Prefix<Self>, rng: &mut XorShift64Star) -> Self {
        let host = u32::MAX.checked_shr(u32::from(prefix.length())).unwrap_or(0);
        prefix.address() | Self::random(rng) & host
    }
}

fn two_words(rng: &mut XorShift64Star) -> u128 {
    let high = u128::from(rng.next_u64());
    high << 64 | u128::from(rng.next_u64())
}

impl Workload for u128 {
    fn random(rng: &mut XorShift64Star) -> Self {
        two_words(rng) & (u128::MAX >> 3) | 1 << 125
    }

    fn within(prefix: Prefix<Self>, rng: &mut XorShift64Star) -> Self {
        let host = u128::MAX.checked_shr(u32::from(prefix.length())).unwrap_or(0);
        prefix.address() | two_words(rng) & host
    }
}
