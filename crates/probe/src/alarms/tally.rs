//! Sums by key in bounded memory, whose sums add up over shards and seconds.
//!
//! [`Heavy`] is the summary of Misra and Gries (1982), pruned in batches as Agarwal et al. ("Mergeable Summaries",
//! 2013) do: beyond twice its limit, the count at the limit's rank is subtracted from all, and what falls to 0 goes.
//! A count is too low by at most `missing`, never too high, and `missing <= total / limit`. So a rule never raises
//! an alarm that exact counts would not, and misses none that is above its threshold by more than `missing`.
//!
//! [`Fan`] has for each key the number of different things: exactly up to 64, by HyperLogLog (Flajolet et al. 2007)
//! with 512 registers from there on, with a standard error of 4.6 %.

use std::collections::HashMap;
use std::net::IpAddr;

use thalweg_base::mix64;
use thalweg_store::query::RawValue;

/// Registers of a HyperLogLog: 2^9.
const REGISTER_BITS: u32 = 9;
const REGISTERS: usize = 1 << REGISTER_BITS;
/// Different things that are kept one by one.
const SMALL_MAX: usize = 64;

/// Counts of the keys with most.
#[derive(Clone, Debug)]
pub(super) struct Heavy {
    counts: HashMap<RawValue, u64>,
    limit: usize,
    /// What any count may lack.
    missing: u64,
}

impl Heavy {
    pub(super) fn new(limit: usize) -> Self {
        Self { counts: HashMap::new(), limit, missing: 0 }
    }

    pub(super) fn add(&mut self, key: RawValue, amount: u64) {
        if amount == 0 {
            return;
        }
        let count = self.counts.entry(key).or_default();
        *count = count.saturating_add(amount);
        if self.counts.len() > 2 * self.limit {
            self.prune();
        }
    }

    fn prune(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        let (_, at_rank, _) = counts.select_nth_unstable_by(self.limit, |a, b| b.cmp(a));
        let less = *at_rank;
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(less);
            *count > 0
        });
        self.missing = self.missing.saturating_add(less);
    }

    fn merge(&mut self, other: Self) {
        self.missing = self.missing.saturating_add(other.missing);
        other.counts.into_iter().for_each(|(key, amount)| self.add(key, amount));
    }
}

/// The number of different hashes.
#[derive(Clone, Debug)]
enum Distinct {
    Small(Vec<u64>),
    Large(Box<[u8; REGISTERS]>),
}

impl Distinct {
    fn add(&mut self, hash: u64) {
        match self {
            Self::Small(hashes) if hashes.contains(&hash) => {}
            Self::Small(hashes) if hashes.len() < SMALL_MAX => hashes.push(hash),
            Self::Small(hashes) => {
                let mut registers = Box::new([0; REGISTERS]);
                hashes.iter().chain([&hash]).for_each(|hash| register(&mut registers, *hash));
                *self = Self::Large(registers);
            }
            Self::Large(registers) => register(registers, hash),
        }
    }

    fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (_, Self::Small(hashes)) => hashes.into_iter().for_each(|hash| self.add(hash)),
            (Self::Large(registers), Self::Large(others)) => {
                registers.iter_mut().zip(*others).for_each(|(ours, theirs)| *ours = theirs.max(*ours));
            }
            (Self::Small(_), large) => {
                let small = std::mem::replace(self, large);
                self.merge(small);
            }
        }
    }

    fn estimate(&self) -> u64 {
        let registers = match self {
            Self::Small(hashes) => return hashes.len() as u64,
            Self::Large(registers) => registers,
        };
        let count = REGISTERS as f64;
        let sum: f64 = registers.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let zeros = registers.iter().filter(|rank| **rank == 0).count();
        // Few things are told apart better by the registers that none of them has reached.
        let estimate =
            if raw <= 2.5 * count && zeros > 0 { count * (count / zeros as f64).ln() } else { raw };
        estimate.round() as u64
    }
}

fn register(registers: &mut [u8; REGISTERS], hash: u64) {
    let place = usize::try_from(hash >> (64 - REGISTER_BITS)).unwrap_or(0);
    // At most 56: a hash of zeros has no first one.
    let rank = ((hash << REGISTER_BITS) | 1 << (REGISTER_BITS - 1)).leading_zeros() + 1;
    registers[place] = registers[place].max(u8::try_from(rank).unwrap_or(u8::MAX));
}

/// Numbers of different things of the keys with most.
#[derive(Clone, Debug)]
pub(super) struct Fan {
    sets: HashMap<RawValue, Distinct>,
    limit: usize,
    missing: u64,
}

impl Fan {
    pub(super) fn new(limit: usize) -> Self {
        Self { sets: HashMap::new(), limit, missing: 0 }
    }

    pub(super) fn add(&mut self, key: RawValue, hash: u64) {
        self.sets.entry(key).or_insert_with(|| Distinct::Small(Vec::new())).add(hash);
        self.prune();
    }

    fn prune(&mut self) {
        if self.sets.len() <= 2 * self.limit {
            return;
        }
        let mut counts: Vec<u64> = self.sets.values().map(Distinct::estimate).collect();
        let (_, at_rank, _) = counts.select_nth_unstable_by(self.limit, |a, b| b.cmp(a));
        let least = *at_rank;
        self.sets.retain(|_, set| set.estimate() > least);
        self.missing = self.missing.saturating_add(least);
    }

    fn merge(&mut self, other: Self) {
        self.missing = self.missing.saturating_add(other.missing);
        for (key, set) in other.sets {
            match self.sets.get_mut(&key) {
                Some(known) => known.merge(set),
                None => drop(self.sets.insert(key, set)),
            }
            self.prune();
        }
    }
}

/// What a rule sums up.
#[derive(Clone, Debug)]
pub(super) enum Tally {
    Heavy(Heavy),
    Fan(Fan),
}

impl Tally {
    /// Both must be of the same rule.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Heavy(ours), Self::Heavy(theirs)) => ours.merge(theirs),
            (Self::Fan(ours), Self::Fan(theirs)) => ours.merge(theirs),
            _ => debug_assert!(false, "tallies of different rules"),
        }
    }

    /// What was summed up; it begins anew.
    pub(super) fn take(&mut self) -> Self {
        let empty = match self {
            Self::Heavy(heavy) => Self::Heavy(Heavy::new(heavy.limit)),
            Self::Fan(fan) => Self::Fan(Fan::new(fan.limit)),
        };
        std::mem::replace(self, empty)
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Heavy(heavy) => heavy.counts.is_empty() && heavy.missing == 0,
            Self::Fan(fan) => fan.sets.is_empty() && fan.missing == 0,
        }
    }

    /// Sums by key.
    pub(super) fn sums(&self) -> HashMap<RawValue, u64> {
        match self {
            Self::Heavy(heavy) => heavy.counts.clone(),
            Self::Fan(fan) => fan.sets.iter().map(|(key, set)| (*key, set.estimate())).collect(),
        }
    }

    /// What any sum may lack, and that of a key which is not there.
    pub(super) fn missing(&self) -> u64 {
        match self {
            Self::Heavy(heavy) => heavy.missing,
            Self::Fan(fan) => fan.missing,
        }
    }
}

/// A hash of an address, and a port if that counts.
pub(super) fn hash_of(address: IpAddr, port: Option<u16>, seed: u64) -> u64 {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let halves = address.octets();
    let (halves, _) = halves.as_chunks::<8>();
    let start = seed ^ u64::from(port.unwrap_or(0)).rotate_left(48);
    halves.iter().fold(start, |hash, half| mix64(hash ^ u64::from_be_bytes(*half)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    fn key(number: u32) -> RawValue {
        RawValue::Number(number)
    }

    /// Sums of shards, with many small keys and a few large ones, beside exact sums.
    #[test]
    fn sums_lack_at_most_what_is_said_and_never_exceed() {
        for seed in 1..6 {
            let mut chance = XorShift64Star::new(seed);
            let mut exact: HashMap<RawValue, u64> = HashMap::new();
            let mut all = Heavy::new(100);
            let mut total = 0;
            for _shard in 0..4 {
                let mut heavy = Heavy::new(100);
                for _ in 0..20_000 {
                    let number = chance.below(30_000);
                    let number = if number.is_multiple_of(4) { number % 16 } else { number };
                    let amount = u64::from(1 + chance.below(9));
                    heavy.add(key(number), amount);
                    *exact.entry(key(number)).or_default() += amount;
                    total += amount;
                }
                assert!(heavy.counts.len() <= 200);
                all.merge(heavy);
            }
            assert!(all.missing > 0 && all.missing <= total / 100, "{} of {total}", all.missing);
            for (key, sum) in &exact {
                let said = all.counts.get(key).copied().unwrap_or(0);
                assert!(said <= *sum && *sum <= said + all.missing, "{key:?}: {said} for {sum}");
            }
            assert!([0, 4, 8, 12].iter().all(|n| all.counts.contains_key(&key(*n))));
        }
    }

    #[test]
    fn different_things_are_counted_within_the_error_of_the_method() {
        let mut fan = Fan::new(8);
        let hash = |n: u32| hash_of(std::net::Ipv4Addr::from(n).into(), Some(443), 7);
        for (number, different) in [(1, 64), (2, 65), (3, 500), (4, 5_000), (5, 100_000)] {
            let (mut one, mut other) = (Fan::new(8), Fan::new(8));
            for n in 0..different {
                // Twice each, and most of them in both shards.
                one.add(key(number), hash(n));
                one.add(key(number), hash(n));
                if n % 3 > 0 {
                    other.add(key(number), hash(n));
                }
            }
            fan.merge(other);
            fan.merge(one);
            let said = Tally::Fan(fan.clone()).sums()[&key(number)];
            let error = (said as f64 - f64::from(different)).abs() / f64::from(different);
            let allowed = if different <= 64 { 0.0 } else { 4.0 * 0.046 };
            assert!(error <= allowed, "{said} for {different}");
        }
        // Many small ones do not push out the large ones.
        for number in 100..1000 {
            fan.add(key(number), hash(number));
        }
        assert!(fan.sets.len() <= 16 && fan.missing >= 1);
        assert!([3, 4, 5].iter().all(|number| fan.sets.contains_key(&key(*number))));
    }
}
