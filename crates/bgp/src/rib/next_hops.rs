//! Which next hops are reachable, and at what cost: RFC 4271 sections 9.1.2.1 (resolvability) and 9.1.2.2 e
//! (metric).
//!
//! A [`NextHopView`] answers for *every* address, so a new next hop needs no request to another component. It is
//! made from routes and the answer of each (`Some(metric)`, or `None`: leads nowhere). The longest prefix that
//! contains an address decides; an address in no prefix is unreachable. The maker of the view has resolved
//! gateways: a route's answer does not depend on the address.
//!
//! # Layout and cost
//!
//! Prefixes nest, so n of them cut the addresses of a family into at most 2n + 1 ranges. The view stores each
//! range's first address and answer, in order, and merges adjacent ranges with the same answer. A look-up is a
//! binary search: a dozen steps for some thousands of routes, all in cache since next hops are few. A view is
//! immutable. Shards share it, and get another one when the network changes.
//!
//! This router's own routes have the next hop `0.0.0.0` or `::`; it costs nothing.

use std::fmt;
use std::net::IpAddr;

use thalweg_base::{Address, IpPrefix, Prefix};

use crate::attrs::Attrs;

/// Next hops and their costs. The default view checks nothing: every next hop is reachable at no cost.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NextHopView {
    answers: Option<Box<Answers>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Answers {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// Ranges by their first address; the first range begins at 0.
#[derive(Clone, PartialEq, Eq)]
struct Ranges<A> {
    starts: Vec<A>,
    metrics: Vec<Option<u32>>,
}

impl NextHopView {
    /// Makes a view in which the longest prefix decides, and of equal prefixes the later one. `None` leads nowhere,
    /// as do addresses in no prefix.
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

    /// Whether the view checks next hops; the default one does not.
    pub fn is_checked(&self) -> bool {
        self.answers.is_some()
    }

    /// The metric, if the next hop is reachable.
    #[inline]
    pub fn metric(&self, attrs: &Attrs) -> Option<u32> {
        match &self.answers {
            None => Some(0),
            Some(answers) => answers.metric_to(attrs.next_hop().address()),
        }
    }

    /// The metric of an address, if it is reachable.
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
        // By address, then length: a prefix comes before all that it contains. A stable sort keeps the later of
        // equal ones later.
        routes.sort_by_key(|(prefix, _)| *prefix);
        let mut ranges = Self { starts: Vec::new(), metrics: Vec::new() };
        ranges.begin(A::from_u128(0), None);
        // The prefixes that contain the current address, shortest first: their last address and answer.
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

    /// Sets the answer from this address on, which is not before the last one that was set.
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
                let covering = routes.iter().filter(|(prefix, _)| prefix.contains(address));
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
