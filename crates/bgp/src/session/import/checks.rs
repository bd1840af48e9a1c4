//! Checks that reject a neighbor's routes whatever the policy says.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use thalweg_wire::bgp::{AsPath, NextHop, attribute};

use super::super::config::NeighborConfig;
use crate::attrs::AttrsBuilder;
use crate::peer::{PeerInfo, PeerKind, Role};

/// Why a route is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Our AS or our confederation is in the AS_PATH: the route was here before.
    AsLoop,
    /// We are its ORIGINATOR_ID, or our cluster is in its CLUSTER_LIST (RFC 4456).
    ReflectionLoop,
    /// The AS_PATH does not begin with the neighbor's AS.
    FirstAs,
    /// The AS_PATH has a set (RFC 9774).
    AsSet,
    /// The next hop is our own address.
    NextHop,
    /// The route was leaked: it violates the roles of a neighbor on its way (RFC 9234).
    RouteLeak,
    /// The neighbor is external and no policy is configured (RFC 8212).
    NoPolicy,
    Policy,
    /// The prefix is one that no network has (RFC 4271 6.3).
    Martian,
    /// The RPKI says that the origin may not announce the prefix (RFC 6811).
    RpkiInvalid,
}

impl Rejection {
    /// All rejections, in order of [`Self::index`], each with its name in counters and its text.
    const TABLE: [(Self, &'static str, &'static str); Self::COUNT] = [
        (Self::AsLoop, "as_loop", "own AS in the path"),
        (Self::ReflectionLoop, "reflection_loop", "reflected back to where it came from"),
        (Self::FirstAs, "first_as", "the path does not begin with the neighbor's AS (`first_as_check`)"),
        (Self::AsSet, "as_set", "AS_SET in the path (`as_set`)"),
        (Self::NextHop, "next_hop", "the next hop is this router"),
        (Self::RouteLeak, "route_leak", "route leak (RFC 9234)"),
        (Self::NoPolicy, "no_policy", "no import policy is configured (`import`)"),
        (Self::Policy, "policy", "import policy"),
        (Self::Martian, "martian", "no network has such a prefix (`martian_check`)"),
        (Self::RpkiInvalid, "rpki_invalid", "RPKI: no VRP lets its origin announce it (`rpki`)"),
    ];

    /// The number of rejections.
    pub const COUNT: usize = 10;

    /// All rejections, in order of [`Self::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.iter().map(|(rejection, ..)| *rejection)
    }

    /// The name in counters.
    pub const fn name(self) -> &'static str {
        Self::TABLE[self.index()].1
    }

    /// The index into arrays with a slot for each rejection.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::TABLE[self.index()].2)
    }
}

/// The checks of one neighbor.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    /// Our AS, and the confederation's or ours again.
    own_as: [u32; 2],
    allow_own_as: u8,
    reject_as_set: bool,
    pub(super) martians: bool,
    /// The AS that paths must begin with.
    first_as: Option<u32>,
    local_address: IpAddr,
    router_id: Ipv4Addr,
    cluster_id: Ipv4Addr,
    internal: bool,
    external: bool,
    role: Option<Role>,
    remote_as: u32,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            own_as: [0; 2],
            allow_own_as: 0,
            reject_as_set: false,
            martians: false,
            first_as: None,
            local_address: Ipv4Addr::UNSPECIFIED.into(),
            router_id: Ipv4Addr::UNSPECIFIED,
            cluster_id: Ipv4Addr::UNSPECIFIED,
            internal: false,
            external: false,
            role: None,
            remote_as: 0,
        }
    }
}

impl Checks {
    pub(super) fn new(config: &NeighborConfig, peer: &PeerInfo) -> Self {
        let external = peer.kind == PeerKind::External;
        // The paths of a route server do not begin with its AS (RFC 7947).
        let route_server = peer.role == Some(Role::RouteServer);
        let first_as_check = config.import.first_as_check && external && !route_server;
        Self {
            own_as: [config.local_as, config.confederation.as_ref().map_or(config.local_as, |each| each.id)],
            allow_own_as: config.import.allow_own_as,
            reject_as_set: config.import.reject_as_set,
            martians: config.import.martian_check,
            first_as: first_as_check.then_some(peer.remote_as),
            local_address: peer.local_address,
            router_id: config.router_id,
            cluster_id: config.cluster_id(),
            internal: peer.kind.is_internal(),
            external,
            role: peer.role.filter(|_| external),
            remote_as: peer.remote_as,
        }
    }

    /// Checks the AS_PATH, whose AS numbers have four bytes.
    #[inline]
    pub(super) fn path(&self, path: &[u8]) -> Result<(), Rejection> {
        let (mut own, mut set, mut first) = (0, false, None);
        for segment in AsPath::new(path).segments() {
            set |= segment.kind.is_set();
            if first.is_none() {
                first = Some(if segment.kind.is_set() { 0 } else { segment.asns().next().unwrap_or(0) });
            }
            own += segment.asns().filter(|asn| self.own_as.contains(asn)).count();
        }
        if own > usize::from(self.allow_own_as) {
            return Err(Rejection::AsLoop);
        }
        if self.first_as.is_some() && self.first_as != first {
            return Err(Rejection::FirstAs);
        }
        if set && self.reject_as_set {
            return Err(Rejection::AsSet);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn next_hop(&self, next_hop: NextHop) -> Result<(), Rejection> {
        match next_hop.address() == self.local_address {
            true => Err(Rejection::NextHop),
            false => Ok(()),
        }
    }

    /// Checks the other attributes. If the route may only go to customers from here on, adds ONLY_TO_CUSTOMER.
    #[inline]
    pub(super) fn attributes(&self, builder: &mut AttrsBuilder) -> Result<(), Rejection> {
        if self.internal {
            let own = |code: u8, id: Ipv4Addr| {
                builder.get(code).is_some_and(|value| value.as_chunks::<4>().0.contains(&id.octets()))
            };
            if own(attribute::ORIGINATOR_ID, self.router_id) || own(attribute::CLUSTER_LIST, self.cluster_id)
            {
                return Err(Rejection::ReflectionLoop);
            }
        }
        if self.external {
            forget_validity(builder);
        }
        match self.role {
            Some(role) => self.only_to_customer(role, builder),
            None => Ok(()),
        }
    }

    /// The ingress procedure of RFC 9234 section 5.
    fn only_to_customer(&self, role: Role, builder: &mut AttrsBuilder) -> Result<(), Rejection> {
        let mark = builder.get(attribute::ONLY_TO_CUSTOMER).and_then(|value| value.first_chunk::<4>());
        match (role, mark.map(|four| u32::from_be_bytes(*four))) {
            (Role::Customer | Role::RouteServerClient, Some(_)) => Err(Rejection::RouteLeak),
            (Role::Peer, Some(asn)) if asn != self.remote_as => Err(Rejection::RouteLeak),
            (Role::Provider | Role::Peer | Role::RouteServer, None) => {
                let flags = attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE;
                // Fails only for long values.
                let _ = builder.set(flags, attribute::ONLY_TO_CUSTOMER, &self.remote_as.to_be_bytes());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// RFC 8097 section 2: what another AS says of validity is not heard.
fn forget_validity(builder: &mut AttrsBuilder) {
    let is_validity = |community: &[u8; 8]| community[..2] == [0x43, 0x00];
    let list = builder.get(attribute::EXTENDED_COMMUNITIES).map_or(&[][..], |value| value.as_chunks::<8>().0);
    if list.iter().any(is_validity) {
        let kept: Vec<u64> =
            list.iter().filter(|each| !is_validity(each)).map(|each| u64::from_be_bytes(*each)).collect();
        // Fails only for a longer list.
        let _ = builder.set_extended_communities(&kept);
    }
}
