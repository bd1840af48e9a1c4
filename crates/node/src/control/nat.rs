//! Answers about NAT.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

/// Which sessions to show. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NatSessionFilter {
    /// Only those of this inside host.
    pub inside: Option<Ipv4Addr>,
    /// Only those on this public address.
    pub public: Option<Ipv4Addr>,
    /// Only those on this public port (or ICMP identifier).
    pub port: Option<u16>,
    /// Only one protocol: `tcp`, `udp`, `icmp`, `gre`, `esp`, `ah`, `sctp`, or its number.
    pub protocol: Option<String>,
    /// No more than this many.
    pub limit: Option<usize>,
}

/// Which sessions to end. All of what is given must be so of a session; port forwards stay in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NatClear {
    /// Those of this inside host.
    pub inside: Option<Ipv4Addr>,
    /// Those of this inside port (or ICMP identifier).
    pub inside_port: Option<u16>,
    /// Those on this public address.
    pub public: Option<Ipv4Addr>,
    /// Those on this public port (or ICMP identifier).
    pub port: Option<u16>,
    /// Those whose first packet went to this address.
    pub remote: Option<Ipv4Addr>,
    /// And to this port.
    pub remote_port: Option<u16>,
    /// Those of one protocol: a name, or its number.
    pub protocol: Option<String>,
}

/// How many sessions [`super::PacketRequest::NatClear`] ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatCleared {
    /// Sessions.
    pub ended: u64,
}

/// A session, as [`super::PacketRequest::NatSessions`] shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NatSessionView {
    /// `tcp`, `udp`, `icmp`, or a protocol without ports: `gre`, `esp`, `ah`, `sctp` or its number.
    pub protocol: String,
    /// The inside endpoint; the port is the identifier of ICMP echo, and 0 where the protocol has no ports.
    pub inside: SocketAddrV4,
    /// The public endpoint.
    pub public: SocketAddrV4,
    /// Destination of the first packet; not kept with address-dependent filtering, nor for port forwards.
    pub remote: Option<SocketAddrV4>,
    /// `established`, `syn-sent`, and so on; `open` for UDP and ICMP.
    pub state: String,
    /// Seconds since it was refreshed.
    pub idle_s: u32,
    /// Seconds until it ends if nothing refreshes it; none for port forwards.
    pub remaining_s: Option<u32>,
    /// Packets from inside, modulo 2^32.
    pub packets_out: u32,
    /// Packets from outside, modulo 2^32.
    pub packets_in: u32,
}

/// A block of public ports, as [`super::PacketRequest::NatBlocks`] shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NatBlockView {
    /// Whose it is.
    pub inside: Ipv4Addr,
    /// The public address.
    pub public: Ipv4Addr,
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
    /// Sessions of TCP in it.
    pub tcp: u16,
    pub udp: u16,
    /// Of ICMP echo.
    pub icmp: u16,
}

/// What NAT has done, as [`super::PacketRequest::NatCounters`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NatCountersView {
    /// Sessions that there may be.
    pub sessions_max: u64,
    /// By name.
    pub counters: BTreeMap<String, u64>,
}
