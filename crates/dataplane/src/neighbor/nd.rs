//! Neighbor Discovery messages in packets and frames: parsing with all checks of RFC 4861 6.1.1, 7.1.1 and 7.1.2,
//! and writing.

use super::frame::build;
use super::{Ignored, PortIdentity};
use std::net::{IpAddr, Ipv6Addr};
use thalweg_wire::checksum::pseudo_sum;
use thalweg_wire::ethernet::EthernetRepr;
use thalweg_wire::icmp::IcmpView;
use thalweg_wire::ip_protocol::ICMPV6;
use thalweg_wire::ipv6::{Ipv6Repr, Ipv6View};
use thalweg_wire::ndp::{
    ALL_NODES, ALL_ROUTERS, AdvertisedPrefix, FROM_ROUTER, NEIGHBOR_ADVERTISEMENT, NEIGHBOR_SOLICITATION,
    NdpRepr, NdpView, OVERRIDE, REDIRECT, ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION, SOLICITED, group_mac,
    solicited_node,
};
use thalweg_wire::{EtherType, MacAddr, Malformed};

const HOP_LIMIT: u8 = 255;

/// A valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Solicitation {
        target: Ipv6Addr,
        source_mac: Option<MacAddr>,
    },
    Advertisement {
        target: Ipv6Addr,
        target_mac: Option<MacAddr>,
        router: bool,
        solicited: bool,
        overrides: bool,
    },
    RouterSolicitation {
        source_mac: Option<MacAddr>,
    },
}

/// A valid message and the addresses of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    pub(super) message: Message,
}

impl Received {
    /// Parses an IPv6 packet. `Err(NotNeighborDiscovery)` for other packets.
    pub(super) fn parse(packet: &[u8]) -> Result<Self, Ignored> {
        let view = match Ipv6View::new(packet) {
            Ok(view) if view.next_header() == ICMPV6 => view,
            Err(Malformed::Truncated) => return Err(Ignored::Malformed),
            _ => return Err(Ignored::NotNeighborDiscovery),
        };
        let icmp = IcmpView::new(view.payload()).map_err(|_| Ignored::Malformed)?;
        if !view.is_whole() {
            return Err(Ignored::Malformed);
        }
        match icmp.kind() {
            ROUTER_ADVERTISEMENT | REDIRECT => return Err(Ignored::NotForRouters),
            ROUTER_SOLICITATION | NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT => {}
            _ => return Err(Ignored::NotNeighborDiscovery),
        }
        if view.hop_limit() != HOP_LIMIT {
            return Err(Ignored::HopLimit);
        }
        let (source, destination) = (view.source(), view.destination());
        let pseudo = pseudo_sum(source.into(), destination.into(), ICMPV6, view.payload().len());
        if !icmp.checksum_holds(pseudo) {
            return Err(Ignored::Checksum);
        }
        if icmp.code() != 0 || source.is_multicast() {
            return Err(Ignored::Malformed);
        }
        let ndp = NdpView::new(view.payload()).map_err(|_| Ignored::Malformed)?;
        let message = message_of(&ndp, source, destination).ok_or(Ignored::Malformed)?;
        Ok(Self { source, destination, message })
    }
}

/// The message, if its addresses are consistent: RFC 4861 6.1.1, 7.1.1, 7.1.2.
fn message_of(ndp: &NdpView<'_>, source: Ipv6Addr, to: Ipv6Addr) -> Option<Message> {
    let source_mac = ndp.source_mac();
    let is_nameless = source.is_unspecified();
    let Some(target) = ndp.target() else {
        let may_be = !(is_nameless && source_mac.is_some()) && (!to.is_multicast() || to == ALL_ROUTERS);
        return may_be.then_some(Message::RouterSolicitation { source_mac });
    };
    let message = if ndp.kind() == NEIGHBOR_SOLICITATION {
        if is_nameless && (source_mac.is_some() || to != solicited_node(target)) {
            return None;
        }
        Message::Solicitation { target, source_mac }
    } else {
        let solicited = ndp.flags() & SOLICITED != 0;
        if is_nameless || (to.is_multicast() && solicited) {
            return None;
        }
        Message::Advertisement {
            target,
            target_mac: ndp.target_mac(),
            router: ndp.flags() & FROM_ROUTER != 0,
            solicited,
            overrides: ndp.flags() & OVERRIDE != 0,
        }
    };
    (!target.is_multicast()).then_some(message)
}

/// A solicitation for `target`, to its solicited-node group or to the neighbor that should have it.
pub(super) fn solicitation_frame(
    port: &PortIdentity,
    source: Ipv6Addr,
    target: Ipv6Addr,
    to: Option<MacAddr>,
) -> Vec<u8> {
    let group = solicited_node(target);
    let (destination, mac) = to.map_or((group, group_mac(group)), |mac| (target, mac));
    let message = NdpRepr::NeighborSolicitation { target, source_mac: port.mac_of(source.into()) };
    frame(port, (source, destination), mac, &message)
}

/// An advertisement of `target`, one of the port's addresses.
pub(super) fn advertisement_frame(
    port: &PortIdentity,
    target: Ipv6Addr,
    destination: Ipv6Addr,
    to: MacAddr,
    solicited: bool,
) -> Vec<u8> {
    let flags = FROM_ROUTER | OVERRIDE | if solicited { SOLICITED } else { 0 };
    let message = NdpRepr::NeighborAdvertisement { flags, target, target_mac: port.mac_of(target.into()) };
    frame(port, (target, destination), to, &message)
}

/// An advertisement to all nodes that a router is here, which networks are on the link, and that hosts may
/// configure addresses in those of 64 bits (RFC 4861 4.2, 4.6.2; RFC 4862 5.5.3).
pub(super) fn router_advertisement_frame(port: &PortIdentity, source: Ipv6Addr, lifetime_s: u16) -> Vec<u8> {
    let mut prefixes: Vec<AdvertisedPrefix> = Vec::new();
    for &(address, length) in &port.addresses {
        let IpAddr::V6(address) = address else { continue };
        let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
        let prefix = AdvertisedPrefix {
            prefix: Ipv6Addr::from(u128::from(address) & mask),
            length,
            is_autonomous: length == 64,
            valid_s: 2_592_000,
            preferred_s: 604_800,
        };
        let advertised = !address.is_unicast_link_local() && length > 0 && length < 128;
        if advertised && !prefixes.contains(&prefix) && prefixes.len() < PREFIXES_MAX {
            prefixes.push(prefix);
        }
    }
    let message = NdpRepr::RouterAdvertisement {
        hop_limit: 64,
        lifetime_s,
        source_mac: port.mac,
        mtu_bytes: port.mtu_bytes,
        prefixes,
    };
    frame(port, (source, ALL_NODES), group_mac(ALL_NODES), &message)
}

/// The prefixes that fit an advertisement on the smallest link: (1280 - 40 - 16 - 16) / 32.
const PREFIXES_MAX: usize = 37;

/// A frame around a message.
fn frame(
    port: &PortIdentity,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    to: MacAddr,
    message: &NdpRepr,
) -> Vec<u8> {
    let message = message.encode(source, destination);
    let ip = Ipv6Repr { hop_limit: HOP_LIMIT, ..Ipv6Repr::new(source, destination, ICMPV6, message.len()) };
    let header =
        EthernetRepr { destination: to, source: port.mac_of(source.into()), ether_type: EtherType::IPV6 };
    build(header, port.vlan, &[&ip.encode(), &message])
}
