//! A change of attributes that are not sent causes no UPDATE (RFC 4271 9.2).

use std::net::Ipv4Addr;

use thalweg_wire::bgp::{Family, Origin, SegmentKind};

use super::*;
use crate::attrs::{AttrRef, AttrsBuilder, Interner, NextHop};
use crate::session::config::SendCommunities;

const PREFIXES: usize = 20;

/// The attributes of one path, edited.
fn attrs(edit: impl FnOnce(&mut AttrsBuilder)) -> AttrRef {
    let mut builder = AttrsBuilder::default();
    builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 50));
    builder.prepend(70_000, 1, SegmentKind::Sequence).unwrap();
    edit(&mut builder);
    Interner::new(1).intern(&mut builder)
}

/// The routes that each of four members receives when these attributes replace plain ones.
fn sent_again(view: &ExportView, new: &AttrRef) -> usize {
    let mut world = World::new(std::slice::from_ref(view), ExportLimits::default(), 7);
    world.join_all();
    let prefixes = || 0..PREFIXES as u32;
    world.announce(5, Family::Ipv4, prefixes(), &attrs(|_| {}));
    world.settle(&mut XorShift64Star::new(1));
    assert_eq!(world.check().routes, 4 * PREFIXES);
    world.received = 0;
    world.announce(5, Family::Ipv4, prefixes(), new);
    world.settle(&mut XorShift64Star::new(1));
    world.check();
    assert_eq!(world.received % 4, 0, "all members alike");
    world.received / 4
}

#[test]
fn med_and_local_pref_are_no_news_outside_the_as() {
    let changes =
        [attrs(|to| to.med = Some(9)), attrs(|to| to.local_pref = Some(7)), attrs(|to| to.weight = 3)];
    // The short cut, and the path for several ranks.
    let codec = Codec { four_octet_as: true, add_path_send: [true; 2], ..Codec::default() };
    let ranked = ExportView { codec, add_path_depth: [3; 2], ..external() };
    for new in &changes {
        assert_eq!((sent_again(&external(), new), sent_again(&ranked, new)), (0, 0), "{new:?}");
    }
    let communities = SendCommunities { standard: false, ..SendCommunities::default() };
    let without = ExportView { send_communities: communities, ..external() };
    assert_eq!(sent_again(&without, &attrs(|to| to.set_communities(&[1]).unwrap())), 0);
}

#[test]
fn what_is_sent_is_news() {
    let internal = ExportView { kind: PeerKind::InternalClient, next_hop: NextHopRule::Keep, ..external() };
    for new in [attrs(|to| to.med = Some(9)), attrs(|to| to.local_pref = Some(7))] {
        assert_eq!(sent_again(&internal, &new), PREFIXES, "{new:?}");
    }
    let third_party =
        ExportView { next_hop: NextHopRule::KeepWithin("192.0.2.0/25".parse().unwrap()), ..external() };
    let moved = attrs(|to| to.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 51)));
    assert_eq!((sent_again(&third_party, &moved), sent_again(&external(), &moved)), (PREFIXES, 0));
    for new in [
        attrs(|to| to.origin = Origin::Egp),
        attrs(|to| to.prepend(1, 1, SegmentKind::Sequence).unwrap()),
        attrs(|to| to.set_communities(&[1]).unwrap()),
    ] {
        assert_eq!(sent_again(&external(), &new), PREFIXES, "{new:?}");
    }
}

/// A community that is not sent may still withhold the route from members: they receive a withdrawal.
#[test]
fn a_route_that_may_not_go_out_any_more_is_withdrawn() {
    let communities = SendCommunities { standard: false, ..SendCommunities::default() };
    let view = ExportView { send_communities: communities, ..external() };
    let no_export = attrs(|to| to.set_communities(&[thalweg_wire::bgp::community::NO_EXPORT]).unwrap());
    assert_eq!(sent_again(&view, &no_export), PREFIXES);
}
