//! Routes through bytes and back.

use std::collections::BTreeMap;

use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner, NextHop};
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::route::{Change, Changes, Chosen, Further};

use super::super::{Install, OutletConfig, Underlay, UnderlayTarget, Way};
use super::*;
use crate::fib::HopNumber;

/// Attributes with a next hop.
fn attributes(next_hop: std::net::Ipv4Addr) -> AttrRef {
    let mut builder = AttrsBuilder::default();
    builder.next_hop = NextHop::V4(next_hop);
    Interner::new(7).intern(&mut builder)
}

/// The routes that it is told, by prefix.
#[derive(Default)]
struct Routes {
    hops: BTreeMap<HopNumber, (Way, Option<Way>)>,
    routes: BTreeMap<IpPrefix, (Way, Option<Way>)>,
    calls: usize,
}

impl Routes {
    fn install<A: Address>(&mut self, items: &[Install<A>])
    where
        IpPrefix: From<Prefix<A>>,
    {
        self.calls += items.len();
        for item in items {
            match item.hop {
                Some(hop) => self.routes.insert(item.prefix.into(), self.hops[&hop]),
                None => self.routes.remove(&item.prefix.into()),
            };
        }
    }
}

impl RouteInstaller for Routes {
    fn moves_prefixes(&self) -> bool {
        true
    }

    fn set_hop(&mut self, hop: HopNumber, way: Way, backup: Option<Way>) {
        self.hops.insert(hop, (way, backup));
    }

    fn install_v4(&mut self, items: &[Install<u32>]) {
        self.install(items);
    }

    fn install_v6(&mut self, items: &[Install<u128>]) {
        self.install(items);
    }

    fn finish(&mut self) {}
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two next hops and a discard; `prefixes` of each family.
fn some(prefixes: u32) -> SavedRoutes {
    let (first, second) = (address("10.0.1.2"), address("10.0.2.2"));
    let hops = vec![
        (Target::Address(first), Some(second)),
        (Target::Discard, None),
        (Target::Address(address("fe80::1")), None),
    ];
    let v4 = (0..prefixes).map(|n| (Prefix::new(0x1400_0000 + (n << 8), 24).expect("24"), (n % 2) as u16));
    let v6 = (0..prefixes)
        .map(|n| (Prefix::new((0x2001_0db8_u128 << 96) + (u128::from(n) << 64), 64).expect("64"), 2));
    SavedRoutes { hops, v4: v4.collect(), v6: v6.collect() }
}

fn links() -> Underlay {
    let on = |net: &str, link| (net.parse().expect("a prefix"), UnderlayTarget::Connected { link });
    Underlay::new([on("10.0.1.0/24", 1), on("10.0.2.0/24", 2)])
}

fn outlet(underlay: Underlay) -> Outlet {
    Outlet::new(OutletConfig { backups: true, ..OutletConfig::default() }, underlay)
}

#[test]
fn bytes_have_the_same_routes_and_no_bit_of_them_may_differ() {
    let saved = some(50);
    let bytes = saved.encode();
    assert_eq!(SavedRoutes::decode(&bytes), Ok(saved));
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        assert!(SavedRoutes::decode(&other).is_err(), "byte {at}");
        assert!(SavedRoutes::decode(&bytes[..at]).is_err(), "the first {at} bytes");
    }
}

/// Nothing is trusted because of its checksum: counts that no bytes follow, next hops that are not there.
#[test]
fn contents_that_are_no_routes_are_refused() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = some(3).encode();
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        change(&mut bytes);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        SavedRoutes::decode(&bytes)
    };
    assert_eq!(with(&|_| {}), Ok(some(3)));
    assert_eq!(with(&|bytes| bytes[8..12].fill(0xff)), Err(SavedError::Contents), "next hops");
    assert_eq!(with(&|bytes| bytes[12..16].fill(0xff)), Err(SavedError::Contents), "prefixes");
    assert_eq!(with(&|bytes| bytes.push(0)), Err(SavedError::Contents), "more at the end");
    assert_eq!(with(&|bytes| bytes[20] = 9), Err(SavedError::Contents), "a family");
    let first_hop = 20 + (5 + 5) + (1 + 1) + (17 + 1);
    assert_eq!(
        with(&|bytes| bytes[first_hop] = 3),
        Err(SavedError::Contents),
        "a next hop that is not there"
    );
}

#[test]
fn a_restored_outlet_has_the_routes_and_what_is_repeated_costs_nothing() {
    let saved = some(40_000);
    let (mut outlet, mut routes) = (outlet(links()), Routes::default());
    assert_eq!(saved.parts(), 20);
    (0..saved.parts()).for_each(|part| outlet.restore(&saved, part, &mut routes));
    // IPv6's next hop resolves nowhere.
    assert_eq!((routes.routes.len(), outlet.counters().unresolved_prefixes), (40_000, 40_000));
    let by = |last: u8, link| Way::Neighbor { address: [10, 0, last, 2].into(), link };
    let of = |prefix: &str| routes.routes[&prefix.parse().expect("a prefix")];
    assert_eq!(of("20.0.0.0/24"), (by(1, 1), Some(by(2, 2))));
    assert_eq!(of("20.0.1.0/24"), (Way::Discard, None));
    let mut again = outlet.saved();
    again.v4.sort_unstable_by_key(|(prefix, _)| prefix.address());
    again.v6.sort_unstable_by_key(|(prefix, _)| prefix.address());
    assert_eq!(again, saved);

    // A second time, as BGP repeats them: nothing is written.
    let calls = routes.calls;
    (0..saved.parts()).for_each(|part| outlet.restore(&saved, part, &mut routes));
    assert_eq!((routes.calls, outlet.counters().saved_prefixes), (calls, 80_000));
    let hops = [[10, 0, 1, 2], [10, 0, 2, 2]].map(|hop| attributes(hop.into()));
    let said = |last: u8, hop: Option<&AttrRef>| {
        let prefix = Prefix::new(0x1400_0000 + (u32::from(last) << 8), 24).expect("24");
        let new = hop.map(|attrs| Chosen { attrs: attrs.clone(), peer: PeerId(1), local_id: 1 });
        let second = new.clone().map(|chosen| Chosen { attrs: hops[1].clone(), ..chosen });
        let further = second.map(|second| Box::new(Further { old: Vec::new(), new: vec![second] }));
        Change { prefix, old: None, new, further }
    };
    // As it was; and then by another, and gone; and again, what does not count twice.
    let changes =
        vec![said(0, Some(&hops[0])), said(2, Some(&hops[1])), said(4, None), said(0, Some(&hops[0]))];
    outlet.handle_changes(&Changes { v4: changes, ..Changes::default() }, &mut routes);
    assert_eq!((routes.calls, outlet.counters().saved_prefixes), (calls + 2, 79_997));
    // What nobody repeats goes.
    outlet.retain(|prefix| prefix.address() < 0x1400_0a00, |_| false, &mut routes);
    assert_eq!((routes.routes.len(), outlet.counters().prefixes), (9, [9, 0]));
    assert_eq!(outlet.counters().saved_prefixes, 7);
}

#[test]
fn next_hops_that_are_not_there_any_more_take_no_packet() {
    let saved = some(10);
    let (mut outlet, mut routes) = (outlet(Underlay::default()), Routes::default());
    (0..saved.parts()).for_each(|part| outlet.restore(&saved, part, &mut routes));
    assert!(routes.routes.values().all(|way| *way == (Way::Discard, None)));
    assert_eq!(routes.routes.len(), 5);
}
