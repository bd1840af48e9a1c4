//! What routes and decisions need to know about neighbors.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_wire::bgp::PeerSide;

/// Milliseconds since the daemon or the simulation began. The driver passes the time in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Adds seconds.
    pub const fn plus_s(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Adds milliseconds.
    pub const fn plus(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }

    /// Milliseconds since `earlier`; 0 if that is in the future.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since the beginning.
    pub const fn seconds(self) -> u32 {
        (self.0 / 1000) as u32
    }
}

/// A neighbor's index in the daemon's tables. It is reused only after all routes of the neighbor are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u16);

impl PeerId {
    /// The source of routes that this router originates.
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

/// The kind of a neighbor, which decides how routes are exchanged with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// In another AS.
    External,
    /// In another member AS of our confederation (RFC 5065).
    Confederation,
    /// In our AS.
    Internal,
    /// In our AS, and a client of our route reflection (RFC 4456).
    InternalClient,
}

impl PeerKind {
    /// Whether the neighbor is in our AS.
    pub const fn is_internal(self) -> bool {
        matches!(self, Self::Internal | Self::InternalClient)
    }

    /// The term that the table of path attributes uses.
    #[inline]
    pub const fn side(self) -> PeerSide {
        match self {
            Self::External => PeerSide::External,
            Self::Confederation => PeerSide::Confederation,
            Self::Internal | Self::InternalClient => PeerSide::Internal,
        }
    }
}

/// A neighbor's role in the business relationship with us (RFC 9234).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// The neighbor sells us transit.
    Provider = 0,
    /// The neighbor is a route server, and we are its client.
    RouteServer = 1,
    /// The neighbor is a client of our route server.
    RouteServerClient = 2,
    /// The neighbor buys transit from us.
    Customer = 3,
    Peer = 4,
}

/// A neighbor with a session. Constant while the RIB has routes from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    pub id: PeerId,
    /// The configured name.
    pub name: Arc<str>,
    pub address: IpAddr,
    /// Our address in the session.
    pub local_address: IpAddr,
    pub remote_as: u32,
    /// Our AS as the neighbor sees it.
    pub local_as: u32,
    pub kind: PeerKind,
    pub router_id: Ipv4Addr,
    pub role: Option<Role>,
    /// The neighbor is a client of our route server (RFC 7947).
    pub route_server_client: bool,
}

/// All neighbors with a session or remaining routes. Seldom changes, and is then replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct PeerTable {
    peers: Vec<Option<Arc<PeerInfo>>>,
}

impl PeerTable {
    /// The neighbor with this index.
    #[inline]
    pub fn get(&self, id: PeerId) -> Option<&Arc<PeerInfo>> {
        self.peers.get(id.index())?.as_ref()
    }

    /// Adds or replaces a neighbor.
    pub fn insert(&mut self, info: Arc<PeerInfo>) {
        let index = info.id.index();
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(info);
    }

    /// All neighbors in order of index.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<PeerInfo>> {
        self.peers.iter().flatten()
    }
}
