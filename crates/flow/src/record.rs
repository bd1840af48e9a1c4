//! Flow records: the one form in which a flow leaves the cache, is exported, stored, listed and imported.
//!
//! A record is a *delta*: what a flow did since it began or was last reported. The sum of a flow's records is
//! the flow. Bytes are those of IP packets by their length fields (IPFIX `octetDeltaCount`), unless the meter
//! is configured to count frames. Times are nanoseconds since the Unix epoch, by the packets' own clock.
//!
//! Unknown values are marked as such (`None`, [`NO_PORT`], [`NO_AS`]), never guessed.

use std::net::IpAddr;
use thalweg_base::{DropReason, NO_PORT, Name};
use thalweg_wire::MacAddr;
use thalweg_wire::ip_protocol::{ICMP, ICMPV6};

/// The autonomous system is unknown: no BGP route covers the address (RFC 7607 reserves 0 for this).
pub const NO_AS: u32 = 0;

/// The interface is unknown. Interface numbers begin at 1 (`InterfaceIndex` of RFC 2863).
pub const NO_INTERFACE: u32 = 0;

/// The record names a sampler that its exporter has not described, so the sampling interval is unknown.
pub const SAMPLING_UNKNOWN: u32 = 0;

/// Whether a protocol has type and code instead of ports.
#[inline(always)]
pub(crate) fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, ICMP | ICMPV6)
}

/// The fields that distinguish flows. Fields that the meter leaves out of its keys have the values for
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    pub src: IpAddr,
    /// Of the same family as `src`.
    pub dst: IpAddr,
    /// Source port of TCP, UDP, SCTP, DCCP and UDP-Lite, else 0.
    pub src_port: u16,
    /// Destination port of these protocols; for ICMP and ICMPv6 the type times 256 plus the code; else 0.
    pub dst_port: u16,
    /// Transport protocol: the last header of an IPv6 chain.
    pub protocol: u8,
    /// IPv4's type of service or IPv6's traffic class, all eight bits.
    pub traffic_class: u8,
    /// Number of the ingress interface, or [`NO_INTERFACE`]; in an imported record, the exporter's number. A
    /// meter knows only ports and numbers them from 1 ([`interface_of_port`]); a caller that knows the
    /// system's interfaces replaces these numbers.
    pub ingress: u32,
    /// VLAN identifier of the outermost tag; 0 for no tag or a priority tag.
    pub vlan: u16,
    /// Label at the top of the MPLS stack.
    pub mpls_label: Option<u32>,
}

/// The interface number that a meter gives to a port.
#[inline(always)]
pub fn interface_of_port(port: u16) -> u32 {
    if port == NO_PORT { NO_INTERFACE } else { u32::from(port) + 1 }
}

/// Type and code of ICMP or ICMPv6, which keys store as the destination port.
#[inline]
pub fn icmp_type_and_code(protocol: u8, dst_port: u16) -> Option<(u8, u8)> {
    let [icmp_type, code] = dst_port.to_be_bytes();
    is_icmp(protocol).then_some((icmp_type, code))
}

impl FlowKey {
    /// Type and code of ICMP or ICMPv6.
    #[inline]
    pub fn icmp(&self) -> Option<(u8, u8)> {
        icmp_type_and_code(self.protocol, self.dst_port)
    }

    /// The key of the reverse direction, with the same ingress interface.
    pub fn reversed(&self) -> Self {
        let (src, dst) = (self.dst, self.src);
        let has_ports = !is_icmp(self.protocol);
        let (src_port, dst_port) =
            if has_ports { (self.dst_port, self.src_port) } else { (self.src_port, self.dst_port) };
        Self { src, dst, src_port, dst_port, ..*self }
    }
}

/// Counters of one direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Including dropped packets.
    pub packets: u64,
    pub bytes: u64,
    /// Arrival of the first packet, in nanoseconds since the epoch.
    pub first_ns: u64,
    /// Arrival of the last packet.
    pub last_ns: u64,
    /// Union of all TCP flags (the low eight: CWR ECE URG ACK PSH RST SYN FIN). `None` for other protocols.
    pub tcp_flags: Option<u8>,
    /// Smallest TTL or hop limit.
    pub ttl_min: Option<u8>,
    /// Largest TTL or hop limit.
    pub ttl_max: Option<u8>,
}

thalweg_base::words! {
    /// Why a record was made: the values of IPFIX `flowEndReason` (136).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum EndReason {
        /// No packet arrived for the idle timeout.
        IdleTimeout = 1 => "idle-timeout",
        /// The flow goes on; it was reported after the active timeout.
        ActiveTimeout = 2 => "active-timeout",
        /// TCP ended the flow with FIN or RST.
        EndDetected = 3 => "end-detected",
        /// The meter stopped, or had to report everything.
        ForcedEnd = 4 => "forced-end",
        /// Another flow needed its place.
        LackOfResources = 5 => "lack-of-resources",
    }
}

impl EndReason {
    /// The reason with this IPFIX code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

thalweg_base::words! {
    /// What a record without packets tells: `natEvent` (RFC 8158) without its distinction of families, and
    /// `firewallEvent`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Event {
        NatSessionBegin = 1 => "nat-session-begin",
        NatSessionEnd = 2 => "nat-session-end",
        NatBindingBegin = 3 => "nat-binding-begin",
        NatBindingEnd = 4 => "nat-binding-end",
        NatAddressBegin = 5 => "nat-address-begin",
        NatAddressEnd = 6 => "nat-address-end",
        NatBlockBegin = 7 => "nat-block-begin",
        NatBlockEnd = 8 => "nat-block-end",
        NatAddressesExhausted = 9 => "nat-addresses-exhausted",
        NatPortsExhausted = 10 => "nat-ports-exhausted",
        NatQuotaExceeded = 11 => "nat-quota-exceeded",
        NatThreshold = 12 => "nat-threshold",
        FirewallCreated = 13 => "firewall-created",
        FirewallDeleted = 14 => "firewall-deleted",
        FirewallDenied = 15 => "firewall-denied",
        FirewallAlert = 16 => "firewall-alert",
        FirewallUpdated = 17 => "firewall-updated",
        /// The exporter did not say, or another one.
        Other = 18 => "other",
    }
}

impl Event {
    /// The event with this code in columns.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

thalweg_base::words! {
    /// On which side of an interface a flow was metered (`flowDirection`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Direction {
        Ingress = 1 => "ingress",
        Egress = 2 => "egress",
    }
}

impl Direction {
    /// The direction with this code in columns.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// What others' exporters send. Records of a router of ours have the prefixes' lengths and the VRFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Bits of the route that covers the source; the destination.
    pub src_prefix_length: Option<u8>,
    pub dst_prefix_length: Option<u8>,
    pub ingress_vrf: Option<u32>,
    pub egress_vrf: Option<u32>,
    pub direction: Option<Direction>,
    pub src_mac: Option<MacAddr>,
    pub dst_mac: Option<MacAddr>,
    /// The record counts no packets: it tells of this.
    pub event: Option<Event>,
    /// The last port of a block that NAT gave a host; the first is the translation's source port.
    pub nat_block_end: Option<u16>,
}

/// What the first payloads of a flow called things, for a meter that looks for names ([`NameOptions`]).
///
/// [`NameOptions`]: crate::NameOptions
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowNames {
    /// The server that a client asked for, in TLS, QUIC or HTTP.
    pub server: Name,
    /// Application protocols that a client offered, best first, with commas between.
    pub alpn: Name,
    /// The fingerprint of a client's hello.
    pub ja4: Name,
    /// What was asked for in DNS.
    pub dns_question: Name,
    /// Addresses and aliases in the response, in order, with commas between, as many as fit.
    pub dns_answers: Name,
    /// What an earlier DNS response called one of the addresses.
    pub resolved: Name,
    /// The type of the question, or 0.
    pub dns_type: u16,
    /// The code of the response.
    pub dns_code: Option<u8>,
}

/// The number of drop reasons that a record distinguishes.
const DROP_REASONS: usize = 3;

/// Dropped packets of a flow by reason. The fourth and further reasons are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    by_reason: [Option<(DropReason, u32)>; DROP_REASONS],
    others: u64,
    /// Bytes of all dropped packets.
    pub bytes: u64,
}

impl Drops {
    /// Adds `packets` dropped packets with `bytes` in total.
    pub fn add(&mut self, reason: DropReason, packets: u32, bytes: u64) {
        self.bytes += bytes;
        for place in &mut self.by_reason {
            match place {
                Some((known, count)) if *known == reason => {
                    *count = count.saturating_add(packets);
                    return;
                }
                None => {
                    *place = Some((reason, packets));
                    return;
                }
                Some(_) => {}
            }
        }
        self.others = self.others.saturating_add(packets.into());
    }

    /// Adds `packets` dropped packets with `bytes` in total, for an unknown reason.
    pub fn add_without_reason(&mut self, packets: u32, bytes: u64) {
        self.bytes += bytes;
        self.others = self.others.saturating_add(packets.into());
    }

    /// All dropped packets.
    pub fn packets(&self) -> u64 {
        self.by_reason().map(|(_, count)| u64::from(count)).sum::<u64>() + self.others
    }

    /// The reasons that are distinguished, in order of occurrence, with their packets.
    pub fn by_reason(&self) -> impl Iterator<Item = (DropReason, u32)> + '_ {
        self.by_reason.iter().flatten().copied()
    }

    /// Restores the total of dropped packets, before any reason is restored.
    pub(crate) fn restore_total(&mut self, packets: u64) {
        self.others = packets;
    }

    /// Restores a reason; its packets follow. Reasons are restored in order.
    pub(crate) fn restore_reason(&mut self, place: usize, reason: DropReason) {
        self.by_reason[place] = Some((reason, 0));
    }

    /// Restores the packets of a reason.
    pub(crate) fn restore_packets(&mut self, place: usize, packets: u32) {
        if let Some((_, count)) = &mut self.by_reason[place] {
            *count = packets;
            self.others = self.others.saturating_sub(packets.into());
        }
    }

    /// Packets dropped for further or unknown reasons.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Whether no packet was dropped.
    pub fn is_empty(&self) -> bool {
        self.by_reason[0].is_none() && self.others == 0
    }
}

/// Addresses and ports of a flow after NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub src_port: u16,
    pub dst_port: u16,
}

/// Who metered a flow. A meter's records get it when they leave the process that metered them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExporterId {
    /// Where its messages came from; `None` for a meter of this program.
    pub address: Option<IpAddr>,
    /// Observation domain (IPFIX), source identifier (NetFlow 9) or engine (NetFlow 5).
    pub domain: Option<u32>,
    /// From configuration, else its address.
    pub name: Name,
}

/// What an interface is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceName {
    pub name: Name,
    pub description: Name,
}

/// What files of the user's say about an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Two letters of ISO 3166-1.
    pub country: Name,
    pub network: Name,
}

/// A flow, or a part of its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRecord {
    pub key: FlowKey,
    pub counters: Counters,
    /// Counters of the reverse direction in a biflow (RFC 5103). The key is that of the direction whose
    /// packet came first.
    pub reverse: Option<Counters>,
    /// `None` if the exporter did not say.
    pub end_reason: Option<EndReason>,
    /// Application code (names: `thalweg_wire::application`); 0 is unknown.
    pub application: u8,
    /// Number of the egress interface, or [`NO_INTERFACE`]; as [`FlowKey::ingress`].
    pub egress: u32,
    /// Next hop of the route that was used.
    pub next_hop: Option<IpAddr>,
    /// Origin AS of the source address, or [`NO_AS`].
    pub src_as: u32,
    /// Origin AS of the destination address, or [`NO_AS`].
    pub dst_as: u32,
    /// The AS that packets go to next, or [`NO_AS`].
    pub next_as: u32,
    /// BGP's next hop toward the destination.
    pub bgp_next_hop: Option<IpAddr>,
    pub src_place: Place,
    pub dst_place: Place,
    pub translation: Option<Translation>,
    /// Counted packets that the router dropped.
    pub drops: Drops,
    pub exporter: ExporterId,
    /// Of the ingress interface, when the record was made; of the egress interface.
    pub ingress_name: InterfaceName,
    pub egress_name: InterfaceName,
    pub details: Details,
    pub names: FlowNames,
    /// One packet in this many was sampled; 1 is all, [`SAMPLING_UNKNOWN`] is unknown. Counters are not
    /// multiplied by it; see [`Self::scale`].
    pub sampling_interval: u32,
}

impl FlowRecord {
    /// Makes a record with key and counters; everything else is unknown.
    pub fn new(key: FlowKey, counters: Counters, end_reason: impl Into<Option<EndReason>>) -> Self {
        Self {
            key,
            counters,
            reverse: None,
            end_reason: end_reason.into(),
            application: 0,
            egress: NO_INTERFACE,
            next_hop: None,
            src_as: NO_AS,
            dst_as: NO_AS,
            next_as: NO_AS,
            bgp_next_hop: None,
            src_place: Place::default(),
            dst_place: Place::default(),
            translation: None,
            drops: Drops::default(),
            exporter: ExporterId::default(),
            ingress_name: InterfaceName::default(),
            egress_name: InterfaceName::default(),
            details: Details::default(),
            names: FlowNames::default(),
            sampling_interval: 1,
        }
    }

    /// Whether the record has one direction, and only facts of its packets and interfaces. Most records are
    /// plain and are packed on their way.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        // Every field is named, so that a new one is considered here.
        let Self {
            key: FlowKey { mpls_label, .. },
            counters: _,
            reverse,
            end_reason: _,
            application: _,
            egress: _,
            next_hop,
            src_as,
            dst_as,
            next_as,
            bgp_next_hop,
            src_place,
            dst_place,
            translation,
            drops,
            exporter,
            ingress_name,
            egress_name,
            details,
            names: of_payload,
            sampling_interval: _,
        } = self;
        let has_route = next_hop.is_some() || bgp_next_hop.is_some() || src_as | dst_as | next_as != NO_AS;
        let has_place = [src_place, dst_place] != [&Place::default(); 2];
        let has_more = mpls_label.is_some() || reverse.is_some() || translation.is_some();
        let ExporterId { address, domain, name } = exporter;
        let names =
            [*name, ingress_name.name, ingress_name.description, egress_name.name, egress_name.description];
        let is_named = address.is_some() || domain.is_some() || names != [Name::NONE; 5];
        let has_details = *details != Details::default() || *of_payload != FlowNames::default();
        !has_route && !has_place && !has_more && !is_named && !has_details && drops.is_empty()
    }

    /// The factor that estimates all traffic from the counters: the sampling interval, or 1 if that is
    /// unknown.
    pub fn scale(&self) -> u64 {
        u64::from(self.sampling_interval.max(1))
    }

    /// Packets of both directions, modulo 2^64: received records may claim any number.
    pub fn packets(&self) -> u64 {
        self.counters.packets.wrapping_add(self.reverse.map_or(0, |reverse| reverse.packets))
    }

    /// Bytes of both directions, modulo 2^64.
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.wrapping_add(self.reverse.map_or(0, |reverse| reverse.bytes))
    }

    /// The directions of a biflow as records of their own, the first one first. Routes are known for that only.
    pub fn both_ways(&self) -> impl Iterator<Item = Self> + use<> {
        let forward = Self { reverse: None, ..*self };
        let backward = self.reverse.map(|counters| Self {
            src_as: self.dst_as,
            dst_as: self.src_as,
            src_place: self.dst_place,
            dst_place: self.src_place,
            application: self.application,
            egress: NO_INTERFACE,
            sampling_interval: self.sampling_interval,
            // Ways of two VRFs are no biflow.
            details: Details { ingress_vrf: self.details.ingress_vrf, ..Details::default() },
            ..Self::new(self.key.reversed(), counters, self.end_reason)
        });
        std::iter::once(forward).chain(backward)
    }

    /// Shifts its times, to correct a clock that is ahead or behind; the duration stays.
    pub fn shift_times(&mut self, shift_ns: i64) {
        for counters in [Some(&mut self.counters), self.reverse.as_mut()].into_iter().flatten() {
            counters.first_ns = counters.first_ns.saturating_add_signed(shift_ns);
            counters.last_ns = counters.last_ns.saturating_add_signed(shift_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_reasons_have_the_codes_of_ipfix() {
        for reason in EndReason::ALL {
            assert_eq!(EndReason::from_code(reason as u8), Some(reason));
        }
        assert_eq!(EndReason::from_code(0), None);
        assert_eq!(EndReason::from_code(6), None);
    }

    #[test]
    fn drops_add_up_whatever_the_reasons() {
        let mut drops = Drops::default();
        assert!(drops.is_empty());
        for (times, reason) in DropReason::ALL.iter().take(5).enumerate() {
            drops.add(*reason, times as u32 + 1, 100);
            drops.add(*reason, 1, 50);
        }
        assert_eq!(drops.packets(), (1 + 2 + 3 + 4 + 5) + 5);
        assert_eq!(drops.by_reason().count(), DROP_REASONS);
        assert_eq!(drops.others(), 4 + 1 + 5 + 1);
        assert_eq!(drops.bytes, 5 * 150);
        let mut drops = Drops::default();
        drops.add_without_reason(3, 300);
        assert_eq!((drops.packets(), drops.bytes, drops.is_empty()), (3, 300, false));
    }

    #[test]
    fn reversing_twice_is_the_key_again() {
        let key = FlowKey {
            src: "10.0.0.1".parse().unwrap(),
            dst: "10.0.0.2".parse().unwrap(),
            src_port: 1000,
            dst_port: 53,
            protocol: 17,
            traffic_class: 0,
            ingress: 1,
            vlan: 7,
            mpls_label: None,
        };
        assert_eq!(key.reversed().src_port, 53);
        assert_eq!(key.reversed().reversed(), key);
        let ping = FlowKey { protocol: 1, src_port: 0, dst_port: 8 << 8, ..key };
        assert_eq!(ping.reversed().dst_port, 8 << 8);
    }
}
