//! Requests and answers about the firewall.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Selects connections: those that match everything that is given. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirewallFilter {
    /// Only those that this host began.
    pub source: Option<IpAddr>,
    /// Only those from this port (or ICMP identifier).
    pub source_port: Option<u16>,
    /// Only those to this host.
    pub destination: Option<IpAddr>,
    /// Only those to this port.
    pub destination_port: Option<u16>,
    /// Only those of IPv4 that begin or end in this VRF.
    pub vrf: Option<String>,
    /// Only those from this zone.
    pub from: Option<String>,
    /// Only those to this zone.
    pub to: Option<String>,
    /// Only one family: `ipv4` or `ipv6`.
    pub family: Option<String>,
    /// Only one protocol: `tcp`, `udp`, `icmp`, `icmpv6`, `gre`, `esp`, `ah`, `sctp`, or its number.
    pub protocol: Option<String>,
}

/// Selects connections to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirewallStateFilter {
    #[serde(flatten)]
    pub which: FirewallFilter,
    /// At most this many.
    pub limit: Option<usize>,
}

/// The result of [`super::PacketRequest::FirewallClear`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirewallCleared {
    /// Number of connections ended.
    pub ended: u64,
}

/// A connection, as [`super::PacketRequest::FirewallStates`] shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirewallStateView {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or a protocol without ports: `gre`, `esp`, `ah`, `sctp` or its number.
    pub protocol: String,
    /// The end that began it; its port is the identifier of an ICMP echo, and 0 for protocols without ports.
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// The VRF of the source; `null` with IPv6, which one VRF at most routes where there is a firewall.
    pub source_vrf: Option<String>,
    /// The VRF of the destination, likewise.
    pub destination_vrf: Option<String>,
    /// The zone it came from; `null` until the present rules are asked about it.
    pub from: Option<String>,
    /// The zone it goes to, likewise.
    pub to: Option<String>,
    /// `established`, `syn-sent`, and so on; `open` and `answered` for other protocols than TCP.
    pub state: String,
    /// The rule that admitted it, or `policy`; `null` until the present rules are asked about it.
    pub rule: Option<String>,
    /// Seconds since it began.
    pub age_s: u32,
    /// Seconds since the last packet that refreshed it.
    pub idle_s: u32,
    /// Seconds until it ends without a refresh.
    pub remaining_s: u32,
}

/// A rule of the firewall, as [`super::PacketRequest::FirewallRules`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FirewallRuleView {
    /// The rule's name or number; `policy` for packets that no rule decides about.
    pub rule: String,
    pub action: String,
    /// The zones that packets come from; empty for any.
    pub from: Vec<String>,
    /// The zones that packets go to; empty for any.
    pub to: Vec<String>,
    /// What packets are: `new`, `established`, `related`, `invalid`.
    pub state: Vec<String>,
    /// Packets of the connections that it admitted, and packets that it refused.
    pub packets: u64,
    /// Their bytes, counted from the IP header.
    pub bytes: u64,
    /// Packets a second over the last seconds; none before the second sample.
    pub packets_per_s: Option<u64>,
    /// Bits a second, likewise.
    pub bits_per_s: Option<u64>,
}

/// A named set, as [`super::PacketRequest::FirewallSets`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FirewallSetView {
    pub set: String,
    /// Prefixes and addresses.
    pub addresses: u64,
    /// Ports and ranges of ports.
    pub ports: u64,
    /// The file that has some of them.
    pub file: Option<PathBuf>,
    /// Seconds since it was read.
    pub age_s: u64,
    /// Entries that the last reload added.
    pub added: u64,
    /// Entries that the last reload removed.
    pub removed: u64,
}

/// The firewall's counters, as [`super::PacketRequest::FirewallCounters`] shows them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FirewallCountersView {
    /// The most connections that fit.
    pub states_max: u64,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
}
