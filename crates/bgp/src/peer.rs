//! Neighbors, as far as routes and decisions need to know them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_wire::bgp::PeerSide;

/// Milliseconds since the daemon (or the simulation) began. The driver of a core passes the time in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// This many seconds later.
    pub const fn plus_s(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// This much later.
    pub const fn plus(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }

    /// Milliseconds from `earlier` until now; 0 if it is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since the beginning.
    pub const fn seconds(self) -> u32 {
        (self.0 / 1000) as u32
    }
}

/// A neighbor's place in the daemon's tables. It is given away again only after all routes of the neighbor
/// are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u16);

impl PeerId {
    /// The source of routes that this router itself originates.
    pub const LOCAL: PeerId = PeerId(u16::MAX);

    /// Index into tables of neighbors.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.0)
    }
}

/// What a neighbor is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// In another AS.
    External,
    /// In another member AS of our confederation (RFC 5065).
    Confederation,
    /// In our AS.
    Internal,
    /// In our AS, and we reflect routes for it (RFC 4456).
    InternalClient,
}

impl PeerKind {
    /// Whether routes of it are in our AS already.
    pub const fn is_internal(self) -> bool {
        matches!(self, Self::Internal | Self::InternalClient)
    }

    /// What the rules of path attributes call it.
    #[inline]
    pub const fn side(self) -> PeerSide {
        match self {
            Self::External => PeerSide::External,
            Self::Confederation => PeerSide::Confederation,
            Self::Internal | Self::InternalClient => PeerSide::Internal,
        }
    }
}

/// Our part and the neighbor's in a business relationship (RFC 9234); the neighbor's, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// It sells us transit.
    Provider = 0,
    /// It is a route server, we are its client.
    RouteServer = 1,
    /// It is a client of our route server.
    RouteServerClient = 2,
    /// It buys transit from us.
    Customer = 3,
    /// It is a peer.
    Peer = 4,
}

/// What is known of a neighbor with a session. Never changes while routes of it are in the RIB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its place.
    pub id: PeerId,
    /// What the configuration calls it.
    pub name: Arc<str>,
    pub address: IpAddr,
    /// Our address toward it.
    pub local_address: IpAddr,
    pub remote_as: u32,
    /// Our AS toward it.
    pub local_as: u32,
    /// What it is to us.
    pub kind: PeerKind,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its role, if one is configured.
    pub role: Option<Role>,
    /// It is a client of the route server we are (RFC 7947).
    pub route_server_client: bool,
}

/// All neighbors with a session or with routes left. Read-mostly: replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct PeerTable {
    peers: Vec<Option<Arc<PeerInfo>>>,
}

impl PeerTable {
    /// What is known of a neighbor.
    #[inline]
    pub fn get(&self, id: PeerId) -> Option<&Arc<PeerInfo>> {
        self.peers.get(id.index())?.as_ref()
    }

    /// Adds a neighbor or replaces what is known of it.
    pub fn insert(&mut self, info: Arc<PeerInfo>) {
        let index = info.id.index();
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(info);
    }

    /// All of them, by place.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<PeerInfo>> {
        self.peers.iter().flatten()
    }
}
