//! Neighbors: which MAC address on a port's link has an IP address. ARP (RFC 826, 1122 2.3.2, 1812 3.3.2, 5227) for
//! IPv4, Neighbor Discovery (RFC 4861) for IPv6, one table and one state machine for both.
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
//! **When are neighbors probed?** A resolved neighbor is a host route in the forwarding table, and the
//! fast path sends to it without telling this table; so "in use" is not known as RFC 4861 7.3.3 supposes.
//! The rule here: every neighbor is taken to be in use. One whose reachability nobody confirmed is asked, by unicast, when
//! it has been STALE for `stale_ns`, and let go if it does not answer; a wanted one (a gateway) is asked as soon as it is
//! not REACHABLE any more, and then again by broadcast. So one that is gone or has another MAC address is found out
//! after at most 1.5 `reachable_ns` + `stale_ns` + 3 s (a gateway: 1.5 `wanted_reachable_ns` + 3 s), as RFC 4861 has it for
//! neighbors with traffic, at the price of one small frame per neighbor in that time. A caller that knows better (counters of adjacencies, packets from the host) says
//! [`used`](NeighborTable::used), and the neighbor goes the way of RFC 4861: DELAY, PROBE. With `idle_ns` the caller
//! promises to do so always, and neighbors that were not used so long are let go unasked.
//!
//! **Who gets into the table?** Only who was asked for, or who asks for an address of ours (RFC 826's
//! merge flag); never who merely talks. Sender and answer must be of the port's networks. A MAC
//! address is one neighbor's and not ours. What is known changes at once when a neighbor says that its MAC
//! address did, but not twice within `change_lock_ns`: then it is probed instead, so that two that claim one
//! address cannot churn the forwarding table.
//!
//! **Bounds** (RFC 6583). Entries that wait for an answer have a budget of their own, per port and in
//! total, and so have multicast solicitations in time. A scan of a /64 therefore uses up only its port's
//! waiting places: no known neighbor goes for it, and hosts that themselves ask for the router still get
//! in. A full table lets go of the neighbor that has been STALE longest, but only for one that answered;
//! who introduces himself is turned away. Gateways and others that are *wanted* count in neither budget and
//! are asked for again for ever, with growing pauses. Packets wait three to a neighbor, the newest
//! three (RFC 4861 7.2.2), and all together within `queue_bytes_max`. Whatever is given to
//! [`resolve`](NeighborTable::resolve) comes out once: forwarded or unreachable.
//!
//! Time is an argument, nanoseconds; outputs are polled until there are none after each call. Chance (when
//! REACHABLE ends) comes from the configuration's seed.
//!
//! Missing: duplicate address detection for our own addresses and RFC 5227's probes (an address in use by
//! another is noticed, counted and defended, not given up); anycast, proxy ARP and proxy ND; secure ND
//! (RFC 3971); redirects and other routers' advertisements (this is a router); RFC 9131 (a router's cache filled from unsolicited
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

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeighborOutput<P = Vec<u8>> {
    /// Send a whole frame.
    Send {
        /// Out of this port.
        port: u16,
        /// Padded, tagged if the port is of a VLAN.
        frame: Vec<u8>,
    },
    /// A neighbor is known now: make it a host route.
    Resolved {
        /// The port it is on.
        port: u16,
        address: IpAddr,
        /// Its MAC address.
        mac: MacAddr,
    },
    /// A neighbor that was known has another MAC address.
    Changed {
        /// The port it is on.
        port: u16,
        address: IpAddr,
        /// Its MAC address from now on.
        mac: MacAddr,
    },
    /// A neighbor is known no longer: take its host route away.
    Lost {
        /// The port it was on.
        port: u16,
        address: IpAddr,
    },
    /// A wanted neighbor that is not known was asked for and did not answer.
    Silent {
        /// The port it should be on.
        port: u16,
        address: IpAddr,
    },
    /// A packet that waited goes to its next hop.
    Forward {
        /// Out of this port.
        port: u16,
        /// The next hop.
        address: IpAddr,
        /// The next hop's MAC address.
        mac: MacAddr,
        /// As it was handed in.
        packet: P,
    },
    /// A packet will not reach its next hop.
    Unreachable {
        /// The port it was to leave by.
        port: u16,
        /// The next hop.
        address: IpAddr,
        /// As it was handed in.
        packet: P,
        /// Tells whether its sender is to be told.
        why: Unreachable,
    },
}

thalweg_base::words! {
    /// Why a packet does not reach its next hop.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unreachable {
        /// Nobody answers for the address: its sender is to be told (host or address unreachable).
        NoAnswer => "no-answer",
        /// The port is down or was never there: likewise.
        PortDown => "port-down",
        /// No address that a neighbor on this port may have: likewise.
        NotANeighbor => "not-a-neighbor",
        /// Newer packets for the same next hop took its place.
        Displaced => "displaced",
        /// Too many neighbors wait for an answer.
        TooManyUnresolved => "too-many-unresolved",
        /// Waiting packets fill `queue_bytes_max`.
        QueueFull => "queue-full",
    }
}

impl Unreachable {
    /// Place in arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether the sender is to be told by ICMP that the host is unreachable. What overload drops is not
    /// unreachable; its sender tries again.
    pub fn is_worth_an_error(self) -> bool {
        matches!(self, Self::NoAnswer | Self::PortDown | Self::NotANeighbor)
    }
}

thalweg_base::words! {
    /// Why a frame changed nothing and was not answered, or not wholly.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Ignored {
        /// The port is down or unknown.
        PortDown => "port-down",
        /// Not ARP over Ethernet for IPv4.
        NotArp => "not-arp",
        /// Not a message of Neighbor Discovery. For the caller to look at otherwise; not counted.
        NotNeighborDiscovery => "not-neighbor-discovery",
        /// Cut off, or its fields cannot be right together.
        Malformed => "malformed",
        /// Of another VLAN than the port.
        WrongVlan => "wrong-vlan",
        /// Hop limit is not 255: from beyond the link.
        HopLimit => "hop-limit",
        /// The ICMPv6 checksum is wrong.
        Checksum => "checksum",
        /// Router advertisements and redirects, which hosts listen to.
        NotForRouters => "not-for-routers",
        /// About others than us and those we know.
        NotForUs => "not-for-us",
        /// An answer to what was not asked.
        Unasked => "unasked",
        /// What this port sent itself came back.
        OwnFrame => "own-frame",
        /// A MAC address that no one neighbor has, or ours.
        InvalidMac => "invalid-mac",
        /// The sender's address is not of the port's networks.
        NotOnLink => "not-on-link",
        /// Another neighbor uses an address of ours, or one that is configured to be somebody else's.
        AddressConflict => "address-conflict",
        /// The MAC address of a neighbor changed twice too quickly; it is probed instead.
        ChangedTooOften => "changed-too-often",
        /// No room for another neighbor.
        TableFull => "table-full",
    }
}

impl Ignored {
    /// Place in arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What the table has seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborCounters {
    /// Frames that were understood.
    pub heard: u64,
    /// Frames that were not, by [`Ignored::index`].
    pub ignored: [u64; Ignored::ALL.len()],
    /// Questions for an address, to all.
    pub solicitations_sent: u64,
    /// Questions that had to wait for their rate.
    pub solicitations_delayed: u64,
    /// Questions to a known neighbor.
    pub probes_sent: u64,
    /// Answers to questions for our addresses.
    pub replies_sent: u64,
    /// Announcements of our addresses, defences included.
    pub announcements_sent: u64,
    pub router_advertisements_sent: u64,
    /// Neighbors that became known.
    pub resolved: u64,
    /// Neighbors whose MAC address changed.
    pub changed: u64,
    /// Neighbors that are known no longer.
    pub lost: u64,
    /// Of these, those that made room for another.
    pub evicted: u64,
    /// Packets that came to be resolved.
    pub packets_in: u64,
    /// Packets that went on.
    pub packets_forwarded: u64,
    /// Packets that did not, by [`Unreachable::index`].
    pub packets_unreachable: [u64; Unreachable::ALL.len()],
}

#[cfg(test)]
mod tests;
