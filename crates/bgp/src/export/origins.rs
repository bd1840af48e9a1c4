//! What the encoding of a route depends on besides its attributes: its source, and the decisions of policy.

use std::net::Ipv4Addr;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::Family;

use super::view::{ExportView, NextHopRule};
use crate::attrs::{Attrs, NextHop};
use crate::peer::PeerKind;
use crate::policy::{Changed, NextHopChoice};

/// The source of a route and policy's decisions, as far as the encoding depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origins {
    /// The kind of the neighbor that sent it; `None` if the route originates here or the neighbor is gone.
    pub(super) kind: Option<PeerKind>,
    pub(super) router_id: Ipv4Addr,
    /// Decisions of policy that are not in the attributes.
    pub(super) changed: Marks,
    /// How often a route server prepends the first AS of the path.
    pub(super) prepend: u8,
}

/// [`Changed`] in a small and comparable form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Marks {
    pub(super) next_hop_keep: bool,
    pub(super) next_hop_own: bool,
    pub(super) med: bool,
}

impl From<Changed> for Marks {
    fn from(changed: Changed) -> Self {
        Self {
            next_hop_keep: changed.next_hop == NextHopChoice::Keep,
            next_hop_own: changed.next_hop == NextHopChoice::Own,
            med: changed.med,
        }
    }
}

impl Origins {
    pub(super) fn is_internal(self) -> bool {
        self.kind.is_some_and(PeerKind::is_internal)
    }
}

/// The next hop to send.
pub(super) fn next_hop(
    view: &ExportView,
    family: Family,
    attrs: &Attrs,
    origins: Origins,
) -> Option<NextHop> {
    let own = || view.own_next_hop(family);
    let kept = attrs.next_hop();
    if kept.address().is_unspecified() || origins.changed.next_hop_own {
        return own();
    }
    let keep = origins.changed.next_hop_keep
        || match view.next_hop {
            NextHopRule::Own => false,
            NextHopRule::OwnUnlessInternal => origins.is_internal(),
            NextHopRule::Keep => true,
            NextHopRule::KeepWithin(IpPrefix::V4(net)) => {
                matches!(kept, NextHop::V4(address) if net.contains(address.into()))
            }
            NextHopRule::KeepWithin(IpPrefix::V6(net)) => {
                matches!(kept, NextHop::V6 { global, .. } if net.contains(global.into()))
            }
        };
    if !keep {
        return own();
    }
    match (family, kept) {
        (Family::Ipv4, NextHop::V4(_)) => Some(kept),
        (Family::Ipv4, NextHop::V6 { .. }) if !view.codec.extended_next_hop => None,
        (Family::Ipv6, NextHop::V4(_)) => None,
        (_, NextHop::V6 { global, link_local }) => {
            // A link-local address is valid on one link only: between clients of a route server.
            let link_local = link_local.filter(|_| view.route_server.is_some());
            Some(NextHop::V6 { global, link_local })
        }
    }
}

/// Whether large communities with this function are addressed to the route server alone.
pub(super) fn is_control_function(function: u32) -> bool {
    matches!(function, 0 | 1 | 101..=103)
}
