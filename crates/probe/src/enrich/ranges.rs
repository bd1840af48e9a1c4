//! Longest-prefix match in a table that never changes: the space of addresses is cut into ranges of one answer
//! each, and a look-up is a binary search. The router's tables (`thalweg_dataplane::lpm`) are faster and can be
//! changed, but have only 15 bits for an answer.

use std::net::IpAddr;

use thalweg_base::{Address, IpPrefix, Prefix};

/// Answers by prefix, of both families.
#[derive(Debug)]
pub(super) struct Table<V> {
    v4: Ranges<u32, V>,
    v6: Ranges<u128, V>,
    prefixes: usize,
}

impl<V: Copy + PartialEq> Table<V> {
    /// Of equal prefixes the first counts.
    pub(super) fn new(routes: impl IntoIterator<Item = (IpPrefix, V)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, value) in routes {
            match prefix {
                IpPrefix::V4(prefix) => v4.push((prefix, value)),
                IpPrefix::V6(prefix) => v6.push((prefix, value)),
            }
        }
        let (v4, of_v4) = Ranges::new(v4);
        let (v6, of_v6) = Ranges::new(v6);
        Self { v4, v6, prefixes: of_v4 + of_v6 }
    }

    /// The value of the longest prefix that contains the address.
    pub(super) fn get(&self, address: IpAddr) -> Option<V> {
        match address {
            IpAddr::V4(address) => self.v4.get(address.into()),
            IpAddr::V6(address) => self.v6.get(address.into()),
        }
    }

    /// The number of different prefixes.
    pub(super) fn prefixes(&self) -> usize {
        self.prefixes
    }
}

/// Each range begins at its place of `starts` and ends before the next; addresses before the first have no value.
#[derive(Debug)]
struct Ranges<A, V> {
    starts: Vec<A>,
    values: Vec<Option<V>>,
}

impl<A: Address, V: Copy + PartialEq> Ranges<A, V> {
    /// The table, and the number of different prefixes.
    fn new(mut routes: Vec<(Prefix<A>, V)>) -> (Self, usize) {
        // By address, then length: a prefix comes after all that cover it.
        routes.sort_by_key(|(prefix, _)| *prefix);
        routes.dedup_by_key(|(prefix, _)| *prefix);
        let mut ranges = Self { starts: Vec::new(), values: Vec::new() };
        let mut covering: Vec<(Prefix<A>, V)> = Vec::new();
        for (prefix, value) in &routes {
            while let Some((ended, _)) = covering.pop_if(|(outer, _)| !outer.covers(*prefix)) {
                ranges.resume_after(ended, &covering);
            }
            ranges.begin(prefix.address(), Some(*value));
            covering.push((*prefix, *value));
        }
        while let Some((ended, _)) = covering.pop() {
            ranges.resume_after(ended, &covering);
        }
        (ranges, routes.len())
    }

    /// Behind a prefix, the innermost one around it continues.
    fn resume_after(&mut self, ended: Prefix<A>, covering: &[(Prefix<A>, V)]) {
        let host_bits = u32::from(A::BITS - ended.length());
        let last = ended.address().to_u128() | u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
        if last != A::from_u128(u128::MAX).to_u128() {
            self.begin(A::from_u128(last + 1), covering.last().map(|(_, value)| *value));
        }
    }

    fn begin(&mut self, start: A, value: Option<V>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last().copied().flatten() != value {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    fn get(&self, address: A) -> Option<V> {
        let behind = self.starts.partition_point(|start| *start <= address);
        *self.values.get(behind.checked_sub(1)?)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    /// Small tables of long and short prefixes, at both ends of the space too; every boundary is asked for.
    #[test]
    fn answers_are_those_of_a_linear_scan() {
        let mut chance = XorShift64Star::new(18);
        for _ in 0..300 {
            let mut routes: Vec<(IpPrefix, u32)> = Vec::new();
            for value in 0..chance.below(12) {
                let bits = u128::from(chance.next_u64()) << 64 | u128::from(chance.next_u64());
                // Few different beginnings, so that prefixes lie in each other.
                let beginning =
                    bits & [0, u128::MAX, 0xc000_0000 << 96, 0x0a01 << 112][chance.below(4) as usize];
                let prefix = match chance.below(2) {
                    0 => Prefix::new((beginning >> 96) as u32, chance.below(33) as u8).map(IpPrefix::V4),
                    _ => Prefix::new(beginning, chance.below(129) as u8).map(IpPrefix::V6),
                };
                routes.push((prefix.expect("a length of its family"), value % 3));
            }
            let table = Table::new(routes.iter().copied());
            let scan = |address: IpAddr| {
                let covering = routes.iter().rev().filter(|(prefix, _)| prefix.contains(address));
                covering.max_by_key(|(prefix, _)| prefix.length()).map(|(_, value)| *value)
            };
            let neighborhood = |prefix: &IpPrefix| -> Vec<IpAddr> {
                match prefix.address() {
                    IpAddr::V4(first) => {
                        let first = u32::from(first);
                        let after =
                            first.wrapping_add(u32::MAX.checked_shr(prefix.length().into()).unwrap_or(0));
                        let all = [first.wrapping_sub(1), first, after, after.wrapping_add(1)];
                        all.map(|at| IpAddr::V4(at.into())).to_vec()
                    }
                    IpAddr::V6(first) => {
                        let first = u128::from(first);
                        let after =
                            first.wrapping_add(u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0));
                        let all = [first.wrapping_sub(1), first, after, after.wrapping_add(1)];
                        all.map(|at| IpAddr::V6(at.into())).to_vec()
                    }
                }
            };
            for address in routes.iter().flat_map(|(prefix, _)| neighborhood(prefix)) {
                assert_eq!(table.get(address), scan(address), "{address} in {routes:?}");
            }
        }
    }
}
