//! The actions of rules: changes to a route's attributes.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{AsPath, Family, SegmentKind, attribute};

use super::community::{Community, CommunitySet, CommunityViews};
use super::rules::{Action, PrependAs};
use super::{Changed, CommunityList, NextHopChoice, RouteContext};
use crate::attrs::{AttrsBuilder, AttrsError, LOCAL_PREF_DEFAULT, NextHop};
use crate::peer::PeerKind;

/// AS numbers for private use (RFC 6996).
pub(super) const PRIVATE_AS: [RangeInclusive<u32>; 2] = [64_512..=65_534, 4_200_000_000..=4_294_967_294];

/// Applies an action. Fails if the result does not fit into an attribute.
pub(super) fn apply(
    action: &Action,
    route: &RouteContext<'_>,
    edit: &mut AttrsBuilder,
    changed: &mut Changed,
) -> Result<(), AttrsError> {
    match action {
        Action::LocalPref(amount) => {
            edit.local_pref = Some(amount.apply(edit.local_pref.unwrap_or(LOCAL_PREF_DEFAULT)));
        }
        Action::Med(amount) => {
            edit.med = Some(amount.apply(edit.med.unwrap_or(0)));
            changed.med = true;
        }
        Action::MedRemove => {
            edit.med = None;
            changed.med = true;
        }
        Action::Weight(weight) => edit.weight = *weight,
        // A default route that discards would disconnect the router.
        Action::Discard(discard) => edit.discard = *discard && route.prefix.length() > 0,
        Action::Origin(origin) => edit.origin = *origin,
        Action::NextHop { v4, v6 } => {
            let address = match family(route.prefix) {
                Family::Ipv4 => v4.map(IpAddr::V4),
                Family::Ipv6 => v6.map(IpAddr::V6),
            };
            if let Some(address) = address {
                edit.next_hop = as_next_hop(address);
                changed.next_hop = NextHopChoice::Keep;
            }
        }
        Action::NextHopSelf => {
            set_own_family(route, route.peer.local_address, edit);
            changed.next_hop = NextHopChoice::Own;
        }
        Action::NextHopUnchanged => changed.next_hop = NextHopChoice::Keep,
        Action::NextHopPeer => {
            if set_own_family(route, route.peer.address, edit) {
                changed.next_hop = NextHopChoice::Keep;
            }
        }
        Action::Prepend { asn, count } => prepend(*asn, *count, route, edit)?,
        Action::RemovePrivateAs => rewrite_private(edit, None)?,
        Action::ReplacePrivateAs => rewrite_private(edit, Some(route.peer.local_as))?,
        Action::CommunitiesSet(list) => {
            edit.set_communities(&list.standard)?;
            edit.set_extended_communities(&list.extended)?;
            edit.set_large_communities(&list.large)?;
        }
        Action::CommunitiesAdd(list) => change_communities(edit, None, list)?,
        Action::CommunitiesRemove(set) => change_communities(edit, Some(set), &CommunityList::default())?,
        Action::CommunitiesReplace(set, list) => {
            if set.any(&CommunityViews::of(edit.attributes())) {
                change_communities(edit, Some(set), list)?;
            }
        }
    }
    Ok(())
}

fn as_next_hop(address: IpAddr) -> NextHop {
    match address {
        IpAddr::V4(address) => NextHop::V4(address),
        IpAddr::V6(global) => NextHop::V6 { global, link_local: None },
    }
}

/// Sets the next hop if the address is of the route's family.
fn set_own_family(route: &RouteContext<'_>, address: IpAddr, edit: &mut AttrsBuilder) -> bool {
    let fits = address.is_ipv4() == (family(route.prefix) == Family::Ipv4);
    if fits {
        edit.next_hop = as_next_hop(address);
    }
    fits
}

fn prepend(
    asn: PrependAs,
    count: u8,
    route: &RouteContext<'_>,
    edit: &mut AttrsBuilder,
) -> Result<(), AttrsError> {
    let kind = match route.peer.kind {
        PeerKind::Confederation => SegmentKind::ConfederationSequence,
        _ => SegmentKind::Sequence,
    };
    match asn {
        PrependAs::Given(asn) => edit.prepend(asn, usize::from(count), SegmentKind::Sequence),
        PrependAs::Own => edit.prepend(route.peer.local_as, usize::from(count), kind),
        PrependAs::Last => {
            let first = edit.as_path().segments().next().filter(|segment| !segment.kind.is_set());
            match first.and_then(|segment| segment.asns().next().map(|asn| (asn, segment.kind))) {
                Some((asn, kind)) => edit.prepend(asn, usize::from(count), kind),
                None => Ok(()),
            }
        }
    }
}

/// Removes private AS numbers from the path, or replaces them by `by`. Empty segments are removed.
fn rewrite_private(edit: &mut AttrsBuilder, by: Option<u32>) -> Result<(), AttrsError> {
    let private = |asn: u32| PRIVATE_AS.iter().any(|range| range.contains(&asn));
    let path = edit.as_path();
    if !path.segments().any(|segment| segment.asns().any(private)) {
        return Ok(());
    }
    let value = path_of(path, |asn| if private(asn) { by } else { Some(asn) });
    edit.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &value)
}

fn path_of(path: AsPath<'_>, keep: impl Fn(u32) -> Option<u32>) -> Vec<u8> {
    let mut value = Vec::with_capacity(path.value().len());
    for segment in path.segments() {
        let header = value.len();
        value.extend_from_slice(&[segment.kind as u8, 0]);
        for asn in segment.asns().filter_map(&keep) {
            value.extend_from_slice(&asn.to_be_bytes());
            // Cannot overflow: the segment had no more members, and its count is one byte.
            value[header + 1] += 1;
        }
        if value[header + 1] == 0 {
            value.truncate(header);
        }
    }
    value
}

/// Removes the communities in the set, then appends those of the list that are missing. Keeps the order.
fn change_communities(
    edit: &mut AttrsBuilder,
    remove: Option<&CommunitySet>,
    add: &CommunityList,
) -> Result<(), AttrsError> {
    let views = CommunityViews::of(edit.attributes());
    let stays = |each: &Community| remove.is_none_or(|set| !set.contains(*each));
    let mut list: CommunityList =
        views.standard().chain(views.extended()).chain(views.large()).filter(stays).collect();
    let before = (views.standard.len() / 4, views.extended.len() / 8, views.large.len() / 12);
    let kept = (list.standard.len(), list.extended.len(), list.large.len());
    add_missing(&mut list.standard, &add.standard);
    add_missing(&mut list.extended, &add.extended);
    add_missing(&mut list.large, &add.large);
    if kept.0 != before.0 || list.standard.len() != kept.0 {
        edit.set_communities(&list.standard)?;
    }
    if kept.1 != before.1 || list.extended.len() != kept.1 {
        edit.set_extended_communities(&list.extended)?;
    }
    if kept.2 != before.2 || list.large.len() != kept.2 {
        edit.set_large_communities(&list.large)?;
    }
    Ok(())
}

fn add_missing<T: Copy + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    for each in more {
        if !list.contains(each) {
            list.push(*each);
        }
    }
}

#[inline]
pub(super) fn family(prefix: IpPrefix) -> Family {
    match prefix {
        IpPrefix::V4(_) => Family::Ipv4,
        IpPrefix::V6(_) => Family::Ipv6,
    }
}
