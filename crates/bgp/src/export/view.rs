//! The export view: what two neighbors must have in common to get the same bytes.

use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{Codec, Family};

use crate::attrs::NextHop;
use crate::peer::{PeerId, PeerKind, Role};
use crate::policy::Policy;
use crate::session::config::{PrivateAs, SendCommunities};

/// Everything that an exported route depends on besides the route. This is the key of an update group: neighbors
/// with equal views share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExportView {
    pub kind: PeerKind,
    /// Our AS number as they see it: the confederation's toward external neighbors, our member AS inside it.
    pub local_as: u32,
    /// Their AS, set only if [`Self::sender_loop_check`] or [`Self::as_override`] needs it.
    pub remote_as: Option<u32>,
    /// The neighbor, set only if the policy needs it ([`Policy::depends_on_neighbor`]): such a group has one
    /// member.
    pub neighbor: Option<PeerId>,
    /// For reflected routes (RFC 4456).
    pub cluster_id: Ipv4Addr,
    /// The negotiated encoding.
    pub codec: Codec,
    /// The families that they accept.
    pub families: [bool; 2],
    pub next_hop: NextHopRule,
    pub own_ipv4: Option<Ipv4Addr>,
    pub own_ipv6: Option<Ipv6Addr>,
    /// Our link-local address, sent after [`Self::own_ipv6`] to neighbors on the same link (RFC 2545).
    pub own_link_local: Option<Ipv6Addr>,
    pub policy: Arc<Policy>,
    /// Their role in the business relationship (RFC 9234).
    pub role: Option<Role>,
    /// Set if they are clients of our route server (RFC 7947).
    pub route_server: Option<RouteServerRules>,
    /// The number of paths of a prefix to send, by family, if the codec has path identifiers (RFC 7911). Without
    /// them, only the best is sent.
    pub add_path_depth: [u16; 2],
    /// The treatment of private AS numbers, toward external neighbors.
    pub private_as: PrivateAs,
    /// Replaces their AS in a path by ours.
    pub as_override: bool,
    /// Does not send routes with their AS in the path. Off by default: receivers check, and may want the route
    /// (allow-own-as).
    pub sender_loop_check: bool,
    /// The communities that are sent.
    pub send_communities: SendCommunities,
}

impl ExportView {
    /// Creates a plain view: accepts everything, four-octet AS numbers, both families, the next hop that is usual
    /// for the kind.
    pub fn new(kind: PeerKind, local_as: u32) -> Self {
        Self {
            kind,
            local_as,
            remote_as: None,
            neighbor: None,
            cluster_id: Ipv4Addr::UNSPECIFIED,
            codec: Codec { four_octet_as: true, ..Codec::default() },
            families: [true; 2],
            next_hop: if kind == PeerKind::External { NextHopRule::Own } else { NextHopRule::Keep },
            own_ipv4: None,
            own_ipv6: None,
            own_link_local: None,
            policy: Arc::new(Policy::accept_all()),
            role: None,
            route_server: None,
            add_path_depth: [1; 2],
            private_as: PrivateAs::Keep,
            as_override: false,
            sender_loop_check: false,
            send_communities: SendCommunities::default(),
        }
    }

    /// The longest message that the neighbors accept.
    pub fn message_length_max(&self) -> usize {
        if self.codec.extended_messages { 65_535 } else { 4096 }
    }

    /// Our own address as the next hop of a family's routes. IPv4 routes get an IPv6 next hop (RFC 8950) if the
    /// session has no IPv4 address and the neighbor supports it.
    pub fn own_next_hop(&self, family: Family) -> Option<NextHop> {
        let v6 = self.own_ipv6.map(|global| NextHop::V6 { global, link_local: self.own_link_local });
        match family {
            Family::Ipv4 => match self.own_ipv4 {
                Some(address) => Some(NextHop::V4(address)),
                None => v6.filter(|_| self.codec.extended_next_hop),
            },
            Family::Ipv6 => v6,
        }
    }

    /// How many ranks of a prefix the shards must report for this view ([`crate::route::Further`]).
    pub fn depth(&self, family: Family) -> usize {
        match (self.add_path(family), self.route_server) {
            (true, _) => usize::from(self.add_path_depth[family.index()]).max(1),
            (false, Some(rules)) => usize::from(rules.ranks).max(1),
            (false, None) => 1,
        }
    }

    /// Whether sent NLRI carry a path identifier.
    pub fn add_path(&self, family: Family) -> bool {
        self.codec.add_path_send[family.index()]
    }
}

/// Whose address is sent as the next hop. A next hop that the policy sets takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextHopRule {
    Own,
    /// Ours for routes from outside our AS, the route's own for reflected ones (`next_hop_self` toward internal
    /// neighbors).
    OwnUnlessInternal,
    /// The route's own, except ours for routes that originate here.
    Keep,
    /// The route's own if it lies in this prefix, which is also the neighbors' (third-party next hop, RFC 4271
    /// 5.1.3); otherwise ours.
    KeepWithin(IpPrefix),
}

/// How a route server treats its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteServerRules {
    /// The AS number in control communities. With `None`, communities control nothing and are passed on unchanged.
    pub control_as: Option<u32>,
    /// How many ranks are tried for a client that may not have the best path (path hiding, RFC 7947 2.3). With 1,
    /// it gets nothing then.
    pub ranks: u16,
}

impl Default for RouteServerRules {
    fn default() -> Self {
        Self { control_as: None, ranks: 4 }
    }
}

/// The bounds of an update group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportLimits {
    /// Bytes of encoded messages kept for members that have not read them. Beyond this, the oldest are dropped, and
    /// members that needed them catch up from the RIB. A full table of the Internet takes about 25 MB.
    pub log_bytes_max: usize,
    /// The most changed prefixes that wait to be encoded; beyond this they are encoded at once. 32,768 entries of
    /// 24 bytes stay in the second-level cache.
    pub pending_max: usize,
    /// The number of routes that a dump collects before it encodes them: the more, the more prefixes share a
    /// message. A collected IPv4 route takes 24 bytes, an IPv6 one 48.
    pub dump_routes_max: usize,
    /// Bytes of a dump kept for its slower readers. If the fastest has read everything and no more may be kept, the
    /// slowest are left out and get their own dump later. At least 256 KiB.
    pub dump_bytes_max: usize,
}

impl Default for ExportLimits {
    fn default() -> Self {
        Self {
            log_bytes_max: 16 << 20,
            pending_max: 32_768,
            dump_routes_max: 1 << 20,
            dump_bytes_max: 4 << 20,
        }
    }
}
