//! Which next hops can be reached, and at what cost: RFC 4271 sections 9.1.2.1 (resolvability) and 9.1.2.2 e (metric).
//!
//! A [`NextHopView`] answers for *every* address, so a next hop that nobody has heard of needs no question to
//! anybody. It is made of routes and what is true of each (`Some(metric)`, or `None`: leads nowhere); the longest
//! prefix that has an address decides, and what no prefix has cannot be reached. Its maker has resolved
//! gateways already: the answer of a route does not depend on the address that is asked for.
//!
//! # Layout and cost
//!
//! Prefixes nest, so they cut the addresses of a family into at most twice as many ranges and one. Kept are each
//! range's first address and answer, in order, neighboring ranges with one answer as one. A look-up is a binary
//! search: no hashing, and a dozen steps for some thousands of routes, all of them in cache since next hops are few. A
//! view never changes. Shards share it, and are given another one when the network has changed.
//!
//! The address `0.0.0.0` or `::` is what this router's own routes have as next hop; it costs nothing.

use std::fmt;
use std::net::IpAddr;

use thalweg_base::{Address, IpPrefix, Prefix};

use crate::attrs::Attrs;

/// Next hops and what it costs to reach them. The default one is not asked: everything is reached at no cost.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NextHopView {
    answers: Option<Box<Answers>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Answers {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// Ranges of addresses, by their first; the first begins at 0.
#[derive(Clone, PartialEq, Eq)]
struct Ranges<A> {
    starts: Vec<A>,
    metrics: Vec<Option<u32>>,
}

impl NextHopView {
    /// A view in which the longest prefix decides; of two equal ones the later. `None` leads nowhere, as do addresses
    /// that no prefix has.
    pub fn new(routes: impl IntoIterator<Item = (IpPrefix, Option<u32>)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, metric) in routes {
            match prefix {
                IpPrefix::V4(prefix) => v4.push((prefix, metric)),
                IpPrefix::V6(prefix) => v6.push((prefix, metric)),
            }
        }
        Self { answers: Some(Box::new(Answers { v4: Ranges::new(v4), v6: Ranges::new(v6) })) }
    }

    /// Whether it says anything: the default one does not.
    pub fn is_checked(&self) -> bool {
        self.answers.is_some()
    }

    /// The metric, if the next hop can be reached.
    #[inline]
    pub fn metric(&self, attrs: &Attrs) -> Option<u32> {
        match &self.answers {
            None => Some(0),
            Some(answers) => answers.metric_to(attrs.next_hop().address()),
        }
    }

    /// The metric of an address, if it can be reached.
    pub fn metric_to(&self, address: IpAddr) -> Option<u32> {
        self.answers.as_ref().map_or(Some(0), |answers| answers.metric_to(address))
    }
}

impl fmt::Debug for NextHopView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.answers.as_ref().map(|answers| [answers.v4.starts.len(), answers.v6.starts.len()]);
        f.debug_struct("NextHopView").field("ranges", &ranges).finish()
    }
}

impl Answers {
    fn metric_to(&self, address: IpAddr) -> Option<u32> {
        match address {
            address if address.is_unspecified() => Some(0),
            IpAddr::V4(address) => self.v4.metric_to(address.into()),
            IpAddr::V6(address) => self.v6.metric_to(address.into()),
        }
    }
}

impl<A: Address> Ranges<A> {
    fn new(mut routes: Vec<(Prefix<A>, Option<u32>)>) -> Self {
        // By address, then length: a prefix stands before all that lie in it. Stable, so that the later comes later.
        routes.sort_by_key(|(prefix, _)| *prefix);
        let mut ranges = Self { starts: Vec::new(), metrics: Vec::new() };
        ranges.begin(A::from_u128(0), None);
        // The prefixes that the address we are at lies in, the shortest first: their last address and answer.
        let mut open: Vec<(A, Option<u32>)> = Vec::new();
        for (prefix, metric) in routes {
            while let Some((last, _)) = open.last().copied().filter(|(last, _)| *last < prefix.address()) {
                open.pop();
                ranges.begin_after(last, open.last().and_then(|(_, metric)| *metric));
            }
            ranges.begin(prefix.address(), metric);
            open.push((last_of(prefix), metric));
        }
        while let Some((last, _)) = open.pop() {
            ranges.begin_after(last, open.last().and_then(|(_, metric)| *metric));
        }
        ranges.starts.shrink_to_fit();
        ranges.metrics.shrink_to_fit();
        ranges
    }

    /// From this address on, which is not before the last one that was begun, this is the answer.
    fn begin(&mut self, start: A, metric: Option<u32>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.metrics.pop();
        }
        if self.metrics.last() != Some(&metric) {
            self.starts.push(start);
            self.metrics.push(metric);
        }
    }

    fn begin_after(&mut self, last: A, metric: Option<u32>) {
        let all_ones = u128::MAX >> (128 - u32::from(A::BITS));
        if last.to_u128() != all_ones {
            self.begin(A::from_u128(last.to_u128() + 1), metric);
        }
    }

    #[inline]
    fn metric_to(&self, address: A) -> Option<u32> {
        let after = self.starts.partition_point(|start| *start <= address);
        self.metrics.get(after.checked_sub(1)?).copied().flatten()
    }
}

fn last_of<A: Address>(prefix: Prefix<A>) -> A {
    let host_bits = u32::from(A::BITS - prefix.length());
    A::from_u128(prefix.address().to_u128() | !u128::MAX.checked_shl(host_bits).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Addresses at both ends and in the middle of a family, so that prefixes nest, touch and reach the last address.
    fn address(v6: bool, region: u8, low: u8) -> IpAddr {
        let low = u128::from(low % 32);
        let at = |bits: u32| match region % 3 {
            0 => low,
            1 => (1 << (bits - 1)) - 16 + low,
            _ => (u128::MAX >> (128 - bits)) - low,
        };
        match v6 {
            true => Ipv6Addr::from(at(128)).into(),
            false => Ipv4Addr::from(at(32) as u32).into(),
        }
    }

    fn prefix(address: IpAddr, host_bits: u8) -> IpPrefix {
        match address {
            IpAddr::V4(address) => Prefix::new(u32::from(address), 32 - host_bits % 33).unwrap().into(),
            IpAddr::V6(address) => Prefix::new(u128::from(address), 128 - host_bits % 129).unwrap().into(),
        }
    }

    fn covers(prefix: IpPrefix, address: IpAddr) -> bool {
        match (prefix, address) {
            (IpPrefix::V4(prefix), IpAddr::V4(address)) => prefix.contains(address.into()),
            (IpPrefix::V6(prefix), IpAddr::V6(address)) => prefix.contains(address.into()),
            _ => false,
        }
    }

    proptest! {
        /// Against a look at every route.
        #[test]
        fn the_longest_prefix_decides(
            routes in prop::collection::vec(
                (any::<(bool, u8, u8)>(), prop_oneof![0u8..8, any::<u8>()], prop::option::of(0u32..4)), 0..40,
            ),
            asked in prop::collection::vec(any::<(bool, u8, u8)>(), 1..60),
        ) {
            let routes: Vec<_> = routes
                .into_iter()
                .map(|((v6, region, low), host_bits, metric)| (prefix(address(v6, region, low), host_bits), metric))
                .collect();
            let view = NextHopView::new(routes.iter().copied());
            for (v6, region, low) in asked {
                let address = address(v6, region, low);
                let covering = routes.iter().filter(|(prefix, _)| covers(*prefix, address));
                let found = covering.max_by_key(|(prefix, _)| prefix.length()).and_then(|(_, metric)| *metric);
                let expected = if address.is_unspecified() { Some(0) } else { found };
                prop_assert_eq!(view.metric_to(address), expected, "{}", address);
            }
            let answers = view.answers.as_deref().unwrap();
            prop_assert!(answers.v4.starts.len() + answers.v6.starts.len() <= 2 * routes.len() + 2);
            prop_assert!(answers.v4.starts.is_sorted() && answers.v6.starts.is_sorted());
        }
    }

    #[test]
    fn a_view_that_is_not_asked_reaches_everything() {
        let view = NextHopView::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!((view.metric_to(address), view.is_checked()), (Some(0), false));
        let empty = NextHopView::new([]);
        assert_eq!((empty.metric_to(address), empty.is_checked()), (None, true));
        assert_eq!(empty.metric_to(Ipv6Addr::UNSPECIFIED.into()), Some(0));
        let all = NextHopView::new([("0.0.0.0/0".parse().unwrap(), Some(7))]);
        assert_eq!(all.metric_to(address), Some(7));
        assert_eq!(all.metric_to([255; 4].into()), Some(7));
    }
}
