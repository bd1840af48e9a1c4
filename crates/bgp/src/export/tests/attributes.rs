//! Known answers: the attributes of a route as sent to each kind of neighbor.

use std::net::Ipv4Addr;

use thalweg_wire::bgp::{ATTRIBUTES, Codec, Export, Family, LengthRule, SegmentKind, attribute};

use super::super::attributes::{Block, attributes};
use super::super::origins::{Marks, Origins};
use super::super::*;
use super::external;
use crate::attrs::{AttrRef, AttrsBuilder, Interner, NextHop};
use crate::peer::{PeerKind, Role};
use crate::session::config::PrivateAs;

fn route(edit: impl FnOnce(&mut AttrsBuilder)) -> AttrRef {
    let mut builder = AttrsBuilder::default();
    (builder.med, builder.local_pref) = (Some(9), Some(200));
    builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 7));
    builder.prepend(64_600, 1, SegmentKind::Sequence).unwrap();
    edit(&mut builder);
    Interner::new(1).intern(&mut builder)
}

fn from(kind: PeerKind) -> Origins {
    Origins { kind: Some(kind), router_id: Ipv4Addr::new(10, 0, 0, 9), changed: Marks::default(), prepend: 0 }
}

/// The attributes in hexadecimal, separated by blanks.
fn sent(view: &ExportView, origins: Origins, attrs: &AttrRef) -> String {
    let mut block = Block::default();
    attributes(view, Family::Ipv4, attrs, origins, &mut block);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts: Vec<String> =
        thalweg_wire::bgp::Attributes::new(&block.bytes).map(|each| hex(each.whole)).collect();
    parts.join(" ")
}

const EXTERNAL: PeerKind = PeerKind::External;

#[test]
fn an_external_neighbor_sees_our_as_and_address_and_no_med() {
    assert_eq!(
        sent(&external(), from(EXTERNAL), &route(|_| {})),
        "40010100 40020a02020000fde80000fc58 400304c0000264"
    );
}

#[test]
fn communities_that_are_not_for_other_ases_stay_inside() {
    let (target, valid) = (0x0002_fde8_0000_0001, 0x4300_0000_0000_0000);
    let internal = ExportView { kind: PeerKind::Internal, next_hop: NextHopRule::Keep, ..external() };
    let with = |list: &[u64]| route(|builder| builder.set_extended_communities(list).unwrap());
    let end = |view: &ExportView, list: &[u64]| {
        let sent = sent(view, from(EXTERNAL), &with(list));
        sent.split(" c010").nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(end(&internal, &[target, valid]), "100002fde8000000014300000000000000");
    assert_eq!(end(&external(), &[target, valid]), "080002fde800000001");
    assert_eq!(end(&external(), &[valid]), "");
    assert_eq!(end(&external(), &[target]), "080002fde800000001");
}

#[test]
fn an_internal_neighbor_sees_everything() {
    let view = ExportView { kind: PeerKind::Internal, next_hop: NextHopRule::Keep, ..external() };
    assert_eq!(
        sent(&view, from(EXTERNAL), &route(|_| {})),
        "40010100 40020602010000fc58 400304c0000207 80040400000009 400504000000c8"
    );
}

#[test]
fn a_reflected_route_names_its_originator_and_clusters() {
    let cluster_id = Ipv4Addr::new(1, 1, 1, 1);
    let view = ExportView { kind: PeerKind::Internal, next_hop: NextHopRule::Keep, cluster_id, ..external() };
    let plain = route(|builder| builder.set_communities(&[1]).unwrap());
    let client = from(PeerKind::InternalClient);
    assert!(sent(&view, client, &plain).ends_with("c0080400000001 8009040a000009 800a0401010101"));
    let reflected = route(|builder| {
        builder.set(0x80, 9, &[10, 0, 0, 1]).unwrap();
        builder.set(0x80, 10, &[2, 2, 2, 2]).unwrap();
    });
    assert!(sent(&view, client, &reflected).ends_with("8009040a000001 800a080101010102020202"));
    // Outside the AS it is removed.
    assert!(sent(&external(), client, &reflected).ends_with("400304c0000264"));
}

#[test]
fn confederation_segments_come_and_go() {
    let inside = ExportView { kind: PeerKind::Confederation, local_as: 65_001, ..external() };
    let answer = sent(&inside, from(EXTERNAL), &route(|_| {}));
    assert!(answer.contains("40020c03010000fde902010000fc58"), "{answer}");
    let member = route(|builder| builder.prepend(65_002, 1, SegmentKind::ConfederationSequence).unwrap());
    let answer = sent(&external(), from(PeerKind::Confederation), &member);
    assert!(answer.contains("40020a02020000fde80000fc58"), "{answer}");
    // So they are behind an AS that a policy prepended.
    let prepended = route(|builder| {
        builder.prepend(65_002, 1, SegmentKind::ConfederationSequence).unwrap();
        builder.prepend(65_000, 1, SegmentKind::Sequence).unwrap();
    });
    let answer = sent(&external(), from(PeerKind::Confederation), &prepended);
    assert!(answer.contains("40021002020000fde80000fde802010000fc58"), "{answer}");
}

#[test]
fn two_bytes_come_with_what_they_cannot_say() {
    let view = ExportView { codec: Codec::default(), ..external() };
    let attrs = route(|builder| {
        builder.prepend(70_000, 1, SegmentKind::Sequence).unwrap();
        builder.set(0xc0, 7, &[0, 1, 0x11, 0x70, 10, 0, 0, 1]).unwrap();
    });
    assert_eq!(
        sent(&view, from(EXTERNAL), &attrs),
        "40010100 4002080203fde85ba0fc58 400304c0000264 c007065ba00a000001 \
         c0110e02030000fde8000111700000fc58 c01208000111700a000001"
    );
}

#[test]
fn unknown_attributes_go_on_with_partial_or_not_at_all() {
    let attrs = route(|builder| {
        builder.set(0xc0, 99, &[1]).unwrap();
        builder.set(0x80, 100, &[1]).unwrap();
    });
    assert!(sent(&external(), from(EXTERNAL), &attrs).ends_with("400304c0000264 e0630101"));
}

#[test]
fn a_customer_is_told_that_routes_are_for_customers() {
    let view = ExportView { role: Some(Role::Customer), ..external() };
    assert!(sent(&view, from(EXTERNAL), &route(|_| {})).ends_with("c023040000fde8"));
    let marked = route(|builder| builder.set(0xc0, 35, &[0, 0, 0, 7]).unwrap());
    assert!(sent(&view, from(EXTERNAL), &marked).ends_with("400304c0000264 c0230400000007"));
}

#[test]
fn a_route_server_leaves_path_next_hop_and_med_and_takes_its_communities_out() {
    let rules = RouteServerRules { control_as: Some(65_000), ..RouteServerRules::default() };
    let view = ExportView { route_server: Some(rules), next_hop: NextHopRule::Keep, ..external() };
    let attrs = route(|builder| {
        builder.set_communities(&[64_601, 65_000 << 16 | 5, 0x0007_0007]).unwrap();
        builder.set_large_communities(&[[65_000, 1, 3], [65_000, 7, 3], [65_000, 103, 3]]).unwrap();
    });
    assert_eq!(
        sent(&view, from(EXTERNAL), &attrs),
        "40010100 40020602010000fc58 400304c0000207 80040400000009 c0080400070007 c0200c0000fde80000000700000003"
    );
}

#[test]
fn private_numbers_go_and_the_neighbors_own_is_overridden() {
    let private = route(|builder| builder.prepend(4_200_000_001, 2, SegmentKind::Sequence).unwrap());
    let view = ExportView { private_as: PrivateAs::Remove, ..external() };
    // 64600 is a private AS number too.
    assert!(sent(&view, from(EXTERNAL), &private).contains("40020602010000fde8"));
    let view = ExportView { as_override: true, remote_as: Some(64_600), ..external() };
    assert!(sent(&view, from(EXTERNAL), &route(|_| {})).contains("40020a02020000fde80000fde8"));
}

#[test]
fn neighbors_are_sent_what_the_table_of_attributes_says() {
    let stored = ATTRIBUTES.iter().filter(|row| row.recognized && row.code > attribute::LOCAL_PREF);
    for row in stored {
        let length = match row.length {
            LengthRule::Exactly(length) | LengthRule::Multiple(length) | LengthRule::AtLeast(length) => {
                length
            }
            LengthRule::Aggregator => 8,
            LengthRule::Any => 1,
        };
        let value = vec![1; length.into()];
        let attrs = route(|builder| builder.set(row.flags, row.code, &value).unwrap());
        for kind in [PeerKind::External, PeerKind::Confederation, PeerKind::Internal] {
            let view = ExportView { kind, ..external() };
            let text = format!("{:02x}{:02x}{length:02x}{}", row.flags, row.code, "01".repeat(length.into()));
            let is_sent = sent(&view, from(EXTERNAL), &attrs).contains(&text);
            assert_eq!(is_sent, row.export_to(kind.side()) != Export::Drop, "{} to {kind:?}", row.name);
        }
    }
}
