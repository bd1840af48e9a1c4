//! The addresses that look-ups are timed with: three kinds, from a seeded generator.
//!
//! - *random*: anywhere in the address space (IPv6: in 2000::/3).
//! - *inside*: a prefix of the table drawn evenly, and random host bits: nearly every look-up ends at a
//!   different place, which is the hardest on caches.
//! - *zipf*: 65,536 inside addresses, the k-th drawn about 1/k as often as the first: real traffic.
//!
//! The generator is xorshift64*, started anew for each kind; the order of draws is part of the
//! definition, so that sums over the answers can be compared between programs.

use crate::lpm::{Address, Prefix};
use std::fmt;
use thalweg_base::XorShift64Star;

/// Addresses per kind in the published figures.
pub const ADDRESSES: usize = 4_194_304;

/// Addresses that zipf draws from.
const ZIPF_POOL: u32 = 65_536;

/// Which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anywhere.
    Random,
    /// In a prefix of the table.
    Inside,
    /// A few addresses often, many seldom.
    Zipf,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Random, Kind::Inside, Kind::Zipf];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Random => "random",
            Kind::Inside => "inside",
            Kind::Zipf => "zipf",
        })
    }
}

/// Addresses that a workload can be made of.
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

/// Zipf with exponent 1: the inverse of the continuous approximation, rank = pool^u.
fn zipf_rank(rng: &mut XorShift64Star) -> usize {
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
