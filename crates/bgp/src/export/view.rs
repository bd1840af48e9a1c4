//! What makes two neighbors get the same bytes.

use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{Codec, Family};

use crate::attrs::NextHop;
use crate::peer::{PeerId, PeerKind, Role};
use crate::policy::Policy;
use crate::session::config::{PrivateAs, SendCommunities};

/// Everything that an exported route depends on besides the route. Neighbors with equal views share an update
/// group: this is its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExportView {
    /// What the neighbors are to us.
    pub kind: PeerKind,
    /// Our AS number toward them: the confederation's toward external neighbors, our member AS inside it.
    pub local_as: u32,
    /// Their AS, only where [`Self::sender_loop_check`] or [`Self::as_override`] looks at it.
    pub remote_as: Option<u32>,
    /// Who they are, only where the policy asks ([`Policy::depends_on_neighbor`]): such a group has one member.
    pub neighbor: Option<PeerId>,
    /// Our cluster, for reflected routes (RFC 4456).
    pub cluster_id: Ipv4Addr,
    /// What was agreed on about encoding.
    pub codec: Codec,
    /// Which families they take.
    pub families: [bool; 2],
    /// Whose address goes out as the next hop.
    pub next_hop: NextHopRule,
    /// Our IPv4 address as a next hop.
    pub own_ipv4: Option<Ipv4Addr>,
    /// Our IPv6 address as a next hop.
    pub own_ipv6: Option<Ipv6Addr>,
    /// Our link-local address, sent after [`Self::own_ipv6`] to neighbors on the same link (RFC 2545).
    pub own_link_local: Option<Ipv6Addr>,
    /// The export policy.
    pub policy: Arc<Policy>,
    /// What the neighbors are as a business (RFC 9234).
    pub role: Option<Role>,
    /// They are clients of the route server that we are (RFC 7947).
    pub route_server: Option<RouteServerRules>,
    /// How many paths of a prefix go out, by family, where the codec has path identifiers (RFC 7911). Without
    /// them it is the best one.
    pub add_path_depth: [u16; 2],
    /// What becomes of private AS numbers, toward external neighbors.
    pub private_as: PrivateAs,
    /// Their AS in a path is replaced by ours.
    pub as_override: bool,
    /// Routes that have their AS in the path are not sent at all. Off by default: receivers check, and the route
    /// may be wanted (allow-own-as).
    pub sender_loop_check: bool,
    /// Which communities go out.
    pub send_communities: SendCommunities,
}

impl ExportView {
    /// A plain view: accepts everything, four-octet AS numbers, both families, next hop by the kind's habit.
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

    /// The longest message the neighbors take.
    pub fn message_length_max(&self) -> usize {
        if self.codec.extended_messages { 65_535 } else { 4096 }
    }

    /// Our own address as the next hop of routes of a family. IPv4 routes have an IPv6 one (RFC 8950) where the
    /// session has no IPv4 address and the neighbor agreed.
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

    /// How many ranks of a prefix the shards have to report for this view ([`crate::route::Further`]).
    pub fn depth(&self, family: Family) -> usize {
        match (self.add_path(family), self.route_server) {
            (true, _) => usize::from(self.add_path_depth[family.index()]).max(1),
            (false, Some(rules)) => usize::from(rules.ranks).max(1),
            (false, None) => 1,
        }
    }

    /// Whether NLRI that go out carry a path identifier.
    pub fn add_path(&self, family: Family) -> bool {
        self.codec.add_path_send[family.index()]
    }
}

/// Whose address goes out as the next hop. A policy that sets one has the last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextHopRule {
    /// Ours.
    Own,
    /// Ours for routes that come from outside our AS, the route's own for reflected ones (`next_hop_self` toward
    /// internal neighbors).
    OwnUnlessInternal,
    /// The route's own; ours for routes that originate here.
    Keep,
    /// The route's own if it lies in this prefix, which the neighbors are on too (third-party next hop, RFC 4271
    /// 5.1.3); otherwise ours.
    KeepWithin(IpPrefix),
}

/// How a route server treats its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteServerRules {
    /// The AS number in control communities; `None`: communities control nothing and pass untouched.
    pub control_as: Option<u32>,
    /// How many ranks are tried for a client that may not have the best path (path hiding, RFC 7947 2.3); 1: it
    /// gets nothing then.
    pub ranks: u16,
    /// NO_EXPORT and its kin are obeyed. Off by default: RFC 7947 2.2.4 wants them passed on.
    pub well_known_communities: bool,
}

impl Default for RouteServerRules {
    fn default() -> Self {
        Self { control_as: None, ranks: 4, well_known_communities: false }
    }
}

/// Bounds of an update group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportLimits {
    /// Bytes of encoded messages kept for members that have not read them. When more are there, the oldest go,
    /// and members that needed them catch up from the RIB. A full table of the Internet takes about 25 MB.
    pub log_bytes_max: usize,
    /// Prefixes changed and not yet encoded; more are encoded at once. 32,768 entries of 24 bytes stay in the
    /// second-level cache.
    pub pending_max: usize,
    /// Routes that a dump collects before it encodes them: the more, the more prefixes share a message. A
    /// collected IPv4 route takes 24 bytes, an IPv6 one 48.
    pub dump_routes_max: usize,
    /// Bytes of a dump kept for the slower of its readers. When the fastest has read everything and no more may
    /// be kept, the slowest are left behind and get a dump of their own later. 256 KiB at least.
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
