/// Defines the drop reasons. One row per reason gives its name in every output and its sentence in the help;
/// conservation sums over exactly these.
macro_rules! drop_reasons {
    ($($variant:ident = $code:literal, $name:literal, $meaning:literal;)*) => {
        /// Why a packet was dropped. `None` (code 0) is a packet that is still alive.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $meaning] $variant = $code,)*
        }

        impl DropReason {
            /// Every reason, in code order.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// The name used in tables and JSON.
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// One sentence that explains the reason to a user.
            pub fn meaning(self) -> &'static str {
                match self { $(DropReason::$variant => $meaning,)* }
            }
        }
    };
}

drop_reasons! {
    UnsupportedLink = 1, "unsupported-link", "The link type of the capture is not supported.";
    FrameTooShort = 2, "frame-too-short", "The frame ends inside its link-layer header.";
    NotIp = 3, "not-ip", "The frame carries neither IPv4 nor IPv6 (ARP, LLDP, ...): left to the host.";
    VlanDepth = 4, "vlan-depth", "Too many VLAN tags: the router parses two, the flow probe eight.";
    IpVersion = 5, "ip-version", "The IP version field does not match the link layer's protocol.";
    IpHeaderLength = 6, "ip-header-length", "The IP header is too short, or longer than the frame.";
    IpTotalLength = 7, "ip-total-length", "The IP length field is smaller than the header or larger than the frame.";
    IpChecksum = 8, "ip-checksum", "The IPv4 header checksum is wrong.";
    MartianSource = 9, "martian-source", "The source address is invalid: loopback, multicast, unspecified or broadcast.";
    MartianDestination = 10, "martian-destination", "The destination address can never be routed: loopback or unspecified.";
    NotUnicast = 11, "not-unicast", "Multicast or limited broadcast, which this router does not forward.";
    LinkLocal = 12, "link-local", "Link-local addresses are not forwarded off their link.";
    Ipv6Extension = 13, "ipv6-extension", "The IPv6 extension header chain is malformed or too long.";
    TransportTruncated = 14, "transport-truncated", "The TCP, UDP or ICMP header does not fit the packet.";
    TtlExpired = 15, "ttl-expired", "TTL or hop limit expired here.";
    Policed = 16, "policed", "The class's policer marked the packet red.";
    FragmentWithoutFirst = 17, "fragment-without-first", "A later fragment whose first fragment was not seen: its ports are unknown.";
    NatNoMapping = 18, "nat-no-mapping", "Arrived for a public address and port that no session or port forward owns.";
    NatPortsExhausted = 19, "nat-ports-exhausted", "Every public port of the session's shard is in use.";
    NatTableFull = 20, "nat-table-full", "The session table is full.";
    NatProtocol = 21, "nat-protocol", "A transport protocol that cannot be translated.";
    NatIcmp = 22, "nat-icmp", "An ICMP message that cannot be translated: malformed, of an unsupported type, or without a session.";
    NatFiltered = 23, "nat-filtered", "The session exists, but its filter does not admit this sender.";
    NoRoute = 24, "no-route", "No route to the destination.";
    Blackhole = 25, "blackhole", "The route is a blackhole.";
    Unreachable = 26, "unreachable", "The route is an unreachable route.";
    Local = 27, "local", "Addressed to the router itself; a replay has no host to deliver to.";
    NeighborUnresolved = 28, "neighbor-unresolved", "The MAC address of the next hop is unknown.";
    UnknownPort = 29, "unknown-port", "Arrived on a port that is not in the configuration.";
    MtuExceeded = 30, "mtu-exceeded", "Larger than the egress port's MTU.";
    AclDenied = 31, "acl-denied", "An access list denies the packet.";
    ReversePath = 32, "reverse-path", "The route to its source does not lead to its ingress port (RFC 3704).";
    QueueFull = 33, "queue-full", "The queue of its class at the egress port is full.";
    QueueManaged = 34, "queue-managed", "CoDel dropped it: the queue's delay stayed above its target.";
    TransmitFailed = 35, "transmit-failed", "The driver of the egress port is full, or the port is down or gone.";
    HostQueueFull = 36, "host-queue-full", "The queue to the host thread is full: too many packets for the router itself, or that need an ICMP error.";
    UnknownVlan = 37, "unknown-vlan", "No sub-interface of the port has this VLAN.";
    NatPortLimit = 38, "nat-port-limit", "Its subscriber has reached its limit of public ports.";
    NatHostLimit = 39, "nat-host-limit", "Its inside host has reached its limit of sessions.";
    NatHostRate = 40, "nat-host-rate", "Its inside host has reached its limit of new sessions per second.";
    NatPeerTaken = 41, "nat-peer-taken", "Its protocol has no ports, and another inside host uses it with the same peer.";
    LinkBroadcast = 42, "link-broadcast", "A unicast IP packet in a frame to a broadcast or multicast MAC address (RFC 1812 5.3.4).";
    FirewallInvalid = 43, "firewall-invalid", "Belongs to no connection that the firewall knows, and cannot begin one.";
    FirewallNotAsked = 44, "firewall-not-asked", "Begins a connection that the firewall's policy does not permit between these zones.";
    FirewallDenied = 45, "firewall-denied", "A rule of the firewall denies it.";
    FirewallLimit = 46, "firewall-limit", "Begins a connection above the limit of its rule, or of its host.";
    FirewallTableFull = 47, "firewall-table-full", "Begins a connection, and the firewall's table is full.";
    Nat64Address = 48, "nat64-address", "Its IPv4 address is none that NAT64 leads to: not global under the well-known prefix, or inside.";
    Nat64Packet = 49, "nat64-packet", "It has no form in the other family: fragmented ICMP, a UDP fragment without a checksum, a source route.";
    PrefixAddress = 50, "prefix-address", "Prefix translation has no address for its own (RFC 6296 3.7).";
}

impl DropReason {
    /// One more than the largest code: the size of a counter array indexed by code.
    pub const CODES: usize = 51;

    /// The reason with this code.
    pub fn from_code(code: u8) -> Option<DropReason> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_dense_and_names_unique() {
        let names: HashSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
        assert_eq!(DropReason::CODES, DropReason::ALL.len() + 1);
        for reason in DropReason::ALL {
            assert_eq!(DropReason::from_code(*reason as u8), Some(*reason));
        }
        assert_eq!(DropReason::from_code(0), None);
        assert_eq!(DropReason::from_code(200), None);
    }
}
