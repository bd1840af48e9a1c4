//! Requests and answers about NAT.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

/// Selects sessions. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NatSessionFilter {
    /// Only those of this inside host.
    pub inside: Option<IpAddr>,
    /// Only those of inside hosts in this VRF.
    pub vrf: Option<String>,
    /// Only those on this public address.
    pub public: Option<Ipv4Addr>,
    /// Only those on this public port (or ICMP identifier).
    pub port: Option<u16>,
    /// Only one protocol: `tcp`, `udp`, `icmp`, `gre`, `esp`, `ah`, `sctp`, or its number.
    pub protocol: Option<String>,
    /// At most this many.
    pub limit: Option<usize>,
}

/// Selects sessions to end. A session must match everything that is given; port forwards stay in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NatClear {
    /// Only sessions of this inside host.
    pub inside: Option<IpAddr>,
    /// Only sessions of this inside port (or ICMP identifier).
    pub inside_port: Option<u16>,
    /// Only sessions of inside hosts in this VRF.
    pub vrf: Option<String>,
    /// Only sessions on this public address.
    pub public: Option<Ipv4Addr>,
    /// Only sessions on this public port (or ICMP identifier).
    pub port: Option<u16>,
    /// Only sessions whose first packet went to this address.
    pub remote: Option<Ipv4Addr>,
    /// Only sessions whose first packet went to this port.
    pub remote_port: Option<u16>,
    /// Only sessions of one protocol: a name, or its number.
    pub protocol: Option<String>,
}

/// The result of [`super::PacketRequest::NatClear`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatCleared {
    /// Number of sessions ended.
    pub ended: u64,
}

/// A session, as [`super::PacketRequest::NatSessions`] shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NatSessionView {
    /// `tcp`, `udp`, `icmp`, or a protocol without ports: `gre`, `esp`, `ah`, `sctp` or its number.
    pub protocol: String,
    /// The inside endpoint; its port is the identifier of ICMP echo, the number of a call of PPTP, and 0 for other
    /// protocols without ports.
    pub inside: SocketAddr,
    /// The VRF of the inside host.
    #[serde(default)]
    pub vrf: String,
    pub public: SocketAddrV4,
    /// Destination of the first packet; kept with endpoint-independent filtering, and not for port forwards.
    pub remote: Option<SocketAddrV4>,
    /// `established`, `syn-sent`, and so on; `open` for UDP and ICMP.
    pub state: String,
    /// Seconds since the last packet that refreshed it.
    pub idle_s: u32,
    /// Seconds until it ends without a refresh; none for port forwards.
    pub remaining_s: Option<u32>,
    /// Packets from inside, modulo 2^32.
    pub packets_out: u32,
    /// Packets from outside, modulo 2^32.
    pub packets_in: u32,
}

/// A block of public ports, as [`super::PacketRequest::NatBlocks`] shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NatBlockView {
    /// The subscriber.
    pub inside: IpAddr,
    #[serde(default)]
    pub vrf: String,
    pub public: Ipv4Addr,
    pub first: u16,
    pub last: u16,
    /// TCP sessions in the block.
    pub tcp: u16,
    pub udp: u16,
    /// ICMP echo sessions.
    pub icmp: u16,
}

/// NAT's counters, as [`super::PacketRequest::NatCounters`] shows them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NatCountersView {
    /// The most sessions that fit.
    pub sessions_max: u64,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Pools of public addresses: that of all hosts, and those of groups.
    #[serde(default)]
    pub pools: Vec<NatPoolView>,
}

/// A pool of public addresses, and how much of it is in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NatPoolView {
    /// `default`, or the group's.
    pub name: String,
    pub addresses: u64,
    /// Public ports of each protocol.
    pub ports: u64,
    /// Those in use by TCP.
    pub tcp: u64,
    pub udp: u64,
    /// ICMP echo identifiers in use.
    pub icmp: u64,
    /// Blocks of subscribers' ports; 0 if subscribers have none.
    pub blocks: u64,
    pub blocks_used: u64,
    /// Sessions refused, because the pool had no port left or their host had all it may have.
    pub refused: u64,
}
