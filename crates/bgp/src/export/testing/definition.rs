//! The definition of export, written as the RFCs have it and without regard to cost: who may have a route, and what
//! it looks like then.

use super::*;

/// What a member holds of a route that it may have.
pub(super) fn held(view: &ExportView, prefix: IpPrefix, attrs: &Attrs, member_as: u32) -> Held {
    let prepended = match (view.kind, view.route_server) {
        (PeerKind::External, Some(_)) => {
            let count = |each: [u32; 3]| match each {
                [65_000, function @ 101..=103, target] if target == member_as => function as usize - 100,
                _ => 0,
            };
            attrs.large_communities().map(count).max().unwrap_or(0)
        }
        (PeerKind::External | PeerKind::Confederation, _) => 1,
        _ => 0,
    };
    let sent: usize = attrs.as_path().segments().map(|segment| segment.asns().len()).sum();
    let ours = (view.policy.depends_on_prefix() && number_of(prefix) < 16).then_some(7);
    let med = ours.or(attrs.med().filter(|_| view.kind != PeerKind::External));
    Held { origin: attrs.origin_as, path_asns: sent + prepended, med }
}

/// The definition of export, written as the RFCs have it and without regard to cost.
pub(super) fn may_have(
    view: &ExportView,
    peers: &PeerTable,
    family: Family,
    prefix: IpPrefix,
    path: &Chosen,
    member: PeerId,
) -> bool {
    let has = |bit| path.attrs.has(bit);
    let source = peers.get(path.peer).unwrap();
    if path.peer == member || *view.policy == Policy::reject_all() {
        return false;
    }
    let room = if view.codec.extended_messages { 65_450 } else { 4_000 };
    if path.attrs.encoded().len() > room {
        return false;
    }
    if view.policy.depends_on_prefix() && (24..32).contains(&number_of(prefix)) {
        return false;
    }
    if view.route_server.is_none() {
        let outside = view.kind == PeerKind::External;
        let other_member_as = view.kind == PeerKind::Confederation;
        if has(flag::NO_ADVERTISE)
            || (has(flag::NO_EXPORT) && outside)
            || (has(flag::NO_EXPORT_SUBCONFED) && (outside || other_member_as))
        {
            return false;
        }
    } else if !control_allows(&path.attrs, peers.get(member).unwrap().remote_as) {
        return false;
    }
    if has(flag::ONLY_TO_CUSTOMER)
        && matches!(view.role, Some(Role::Provider | Role::Peer | Role::RouteServer))
    {
        return false;
    }
    if source.kind == PeerKind::Internal && view.kind == PeerKind::Internal {
        return false;
    }
    let kept = match (view.next_hop, path.attrs.next_hop()) {
        (NextHopRule::Own, _) => false,
        (NextHopRule::OwnUnlessInternal, _) => source.kind.is_internal(),
        (NextHopRule::Keep, _) => true,
        (NextHopRule::KeepWithin(IpPrefix::V4(net)), NextHop::V4(address)) => net.contains(address.into()),
        (NextHopRule::KeepWithin(_), _) => false,
    };
    if kept && path.attrs.next_hop().address() == peers.get(member).unwrap().address {
        return false;
    }
    let keeps_v6 = matches!(path.attrs.next_hop(), NextHop::V6 { .. }) && view.next_hop == NextHopRule::Keep;
    family == Family::Ipv6 || !keeps_v6
}

fn control_allows(attrs: &Attrs, asn: u32) -> bool {
    let standard: Vec<u32> = attrs.communities().collect();
    let large: Vec<[u32; 3]> = attrs.large_communities().collect();
    if standard.contains(&asn) || standard.contains(&65_000) && !standard.contains(&(65_000 << 16 | asn)) {
        return false;
    }
    let only =
        standard.iter().any(|each| each >> 16 == 65_000) || large.iter().any(|each| each[..2] == [65_000, 1]);
    !only || standard.contains(&(65_000 << 16 | asn)) || large.contains(&[65_000, 1, asn])
}
