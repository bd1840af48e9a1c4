//! Neighbors: the MAC addresses of IP addresses on a port's link. ARP (RFC 826, 1122 2.3.2, 1812 3.3.2, 5227) for
//! IPv4, Neighbor Discovery (RFC 4861) for IPv6, with one table and one state machine for both.
//!
//! ```text
//!             resolve, want                        answer
//!   (none) ----------------> INCOMPLETE --------------------------------> REACHABLE
//!     |  ^                    |      | told unasked                        |    ^
//!     |  | 3 unanswered       |      v                     reachable_ns    |    |
//!     |  +--------------------+    STALE <---------------------------------+    |
//!     |                            ^  |  | used                                 |
//!     | asked for our address      |  |  v                              answer  |
//!     +----------------------------+  |  DELAY --- delay_ns ---> PROBE ---------+
//!                                     |                          ^   |
//!                                     +------- stale_ns ---------+   | 3 unanswered
//!                                                                    v
//!                                                              (none): Lost
//! ```
//!
//! **When are neighbors probed?** A resolved neighbor is a host route in the forwarding table, and the fast path
//! uses it without informing this table; so "in use" is not known in the sense of RFC 4861 7.3.3. Instead, every
//! neighbor counts as in use. An unconfirmed one is probed by unicast after `stale_ns` in STALE, and removed if it
//! does not answer; a wanted one (a gateway) is probed as soon as it leaves REACHABLE, and then again by broadcast.
//! So a neighbor that is gone or has another MAC address is detected after at most 1.5 `reachable_ns`, `stale_ns`
//! and 3 s together (a gateway: 1.5 `wanted_reachable_ns` and 3 s), as in RFC 4861 for neighbors with traffic, at
//! the price of one small frame per neighbor in that time. A caller that knows about use (counters of adjacencies,
//! packets from the host) reports [`used`](NeighborTable::used), and the neighbor follows RFC 4861: DELAY, PROBE.
//! With `idle_ns` the caller promises to report every use, and neighbors unused for that long are removed without a
//! probe.
//!
//! **What gets into the table?** Only solicited neighbors, and those that ask for one of our addresses (RFC 826's
//! merge flag); never one that merely sends. Sender and answer must be in the port's networks. The MAC address must
//! be unicast and not ours. A neighbor that announces a new MAC address is updated at once, but not twice within
//! `change_lock_ns`: then it is probed instead, so that two hosts that claim one address cannot churn the
//! forwarding table.
//!
//! **Bounds** (RFC 6583). Unresolved entries have a budget of their own, per port and in total, and multicast
//! solicitations have a rate. A scan of a /64 therefore exhausts only its port's unresolved entries: it evicts no
//! known neighbor, and hosts that ask for the router still get in. A full table evicts the neighbor that has been
//! STALE longest, but only for one that answered a solicitation; others are refused. *Wanted* neighbors (gateways
//! and others) count in neither budget and are solicited for ever, with growing pauses. The newest three packets
//! wait for each neighbor (RFC 4861 7.2.2), and all together within `queue_bytes_max`. Every packet given to
//! [`resolve`](NeighborTable::resolve) comes out once: forwarded or unreachable.
//!
//! Time is an argument in nanoseconds; after each call the caller polls outputs until there are none. Randomness
//! (when REACHABLE ends) comes from the configuration's seed.
//!
//! Missing: duplicate address detection for our own addresses and RFC 5227's probes (a conflict is noticed, counted
//! and defended, but the address is not given up); anycast, proxy ARP and proxy ND; secure ND (RFC 3971); redirects
//! and other routers' advertisements (this is a router); RFC 9131 (a router's cache filled from unsolicited
//! advertisements).

mod arp;
mod config;
mod entry;
mod frame;
mod nd;
mod receive;
mod store;
mod table;

pub use config::{NeighborConfig, PortIdentity};
pub use entry::{NeighborState, NeighborView};
pub use table::NeighborTable;

use std::net::IpAddr;
use thalweg_wire::MacAddr;

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeighborOutput<P = Vec<u8>> {
    /// Send a complete frame.
    Send {
        /// The egress port.
        port: u16,
        /// Padded, and tagged if the port is a VLAN's.
        frame: Vec<u8>,
    },
    /// A neighbor was resolved: install a host route.
    Resolved {
        /// The neighbor's port.
        port: u16,
        address: IpAddr,
        mac: MacAddr,
    },
    /// A known neighbor has another MAC address.
    Changed {
        /// The neighbor's port.
        port: u16,
        address: IpAddr,
        /// The new MAC address.
        mac: MacAddr,
    },
    /// A neighbor is no longer known: remove its host route.
    Lost {
        /// The neighbor's port.
        port: u16,
        address: IpAddr,
    },
    /// A wanted neighbor was solicited and did not answer.
    Silent {
        /// The neighbor's port.
        port: u16,
        address: IpAddr,
    },
    /// A waiting packet goes to its next hop.
    Forward {
        /// The egress port.
        port: u16,
        /// The next hop.
        address: IpAddr,
        /// The next hop's MAC address.
        mac: MacAddr,
        /// The packet as handed in.
        packet: P,
    },
    /// A packet will not reach its next hop.
    Unreachable {
        /// The egress port.
        port: u16,
        /// The next hop.
        address: IpAddr,
        /// The packet as handed in.
        packet: P,
        /// Decides whether its sender is informed.
        why: Unreachable,
    },
}

thalweg_base::words! {
    /// Why a packet does not reach its next hop.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unreachable {
        /// Nobody answers for the address: its sender is informed (host or address unreachable).
        NoAnswer => "no-answer",
        /// The port is down or does not exist: likewise.
        PortDown => "port-down",
        /// No neighbor on this port may have the address: likewise.
        NotANeighbor => "not-a-neighbor",
        /// Newer packets for the same next hop displaced it.
        Displaced => "displaced",
        /// Too many neighbors are unresolved.
        TooManyUnresolved => "too-many-unresolved",
        /// Waiting packets fill `queue_bytes_max`.
        QueueFull => "queue-full",
    }
}

impl Unreachable {
    /// Index in arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether ICMP informs the sender that the host is unreachable. Packets dropped by overload do not count:
    /// their sender tries again.
    pub fn is_worth_an_error(self) -> bool {
        matches!(self, Self::NoAnswer | Self::PortDown | Self::NotANeighbor)
    }
}

thalweg_base::words! {
    /// Why a frame changed nothing and was not answered, at least in part.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Ignored {
        /// The port is down or unknown.
        PortDown => "port-down",
        /// Not ARP over Ethernet for IPv4.
        NotArp => "not-arp",
        /// Not a message of Neighbor Discovery, so the caller may use it otherwise; not counted.
        NotNeighborDiscovery => "not-neighbor-discovery",
        /// Truncated or inconsistent.
        Malformed => "malformed",
        /// Of another VLAN than the port's.
        WrongVlan => "wrong-vlan",
        /// The hop limit is not 255, so it comes from beyond the link.
        HopLimit => "hop-limit",
        /// The ICMPv6 checksum is wrong.
        Checksum => "checksum",
        /// A router advertisement or redirect, which is for hosts.
        NotForRouters => "not-for-routers",
        /// About neither our addresses nor known neighbors.
        NotForUs => "not-for-us",
        /// An unsolicited answer.
        Unasked => "unasked",
        /// A frame that this port sent itself.
        OwnFrame => "own-frame",
        /// A MAC address that is not unicast, or is ours.
        InvalidMac => "invalid-mac",
        /// The sender's address is not in the port's networks.
        NotOnLink => "not-on-link",
        /// Another neighbor uses one of our addresses, or one configured as another neighbor's.
        AddressConflict => "address-conflict",
        /// A neighbor's MAC address changed twice too quickly; it is probed instead.
        ChangedTooOften => "changed-too-often",
        /// There is no room for another neighbor.
        TableFull => "table-full",
    }
}

impl Ignored {
    /// Index in arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Counters of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborCounters {
    /// Frames that were processed.
    pub heard: u64,
    /// Frames that were ignored, by [`Ignored::index`].
    pub ignored: [u64; Ignored::ALL.len()],
    /// Solicitations to all.
    pub solicitations_sent: u64,
    /// Solicitations delayed by their rate.
    pub solicitations_delayed: u64,
    /// Solicitations to a known neighbor.
    pub probes_sent: u64,
    /// Answers to solicitations for our addresses.
    pub replies_sent: u64,
    /// Announcements of our addresses, defenses included.
    pub announcements_sent: u64,
    pub router_advertisements_sent: u64,
    pub resolved: u64,
    /// Neighbors whose MAC address changed.
    pub changed: u64,
    /// Neighbors that are no longer known.
    pub lost: u64,
    /// Lost neighbors that were evicted to make room.
    pub evicted: u64,
    /// Packets handed in.
    pub packets_in: u64,
    pub packets_forwarded: u64,
    /// Packets that were not forwarded, by [`Unreachable::index`].
    pub packets_unreachable: [u64; Unreachable::ALL.len()],
}

#[cfg(test)]
mod tests;
