//! Neighbor Discovery messages (RFC 4861 4): reading with all checks of 6.1.1, 7.1.1 and 7.1.2, and writing.

use super::frame::{ETHERTYPE_IPV6, Mac, build};
use super::{Ignored, PortIdentity};
use crate::ip_packet::{ipv6_at, ipv6_header, pseudo_sum};
use std::net::{IpAddr, Ipv6Addr};
use thalweg_wire::application::ip_protocol::ICMPV6;
use thalweg_wire::checksum::{finish, fold, sum};

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

const HOP_LIMIT: u8 = 255;
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const FROM_ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// A valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Solicitation {
        target: Ipv6Addr,
        source_mac: Option<Mac>,
    },
    Advertisement {
        target: Ipv6Addr,
        target_mac: Option<Mac>,
        router: bool,
        solicited: bool,
        overrides: bool,
    },
    RouterSolicitation {
        source_mac: Option<Mac>,
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
    /// Reads an IPv6 packet. `Err(NotNeighborDiscovery)` for packets that are something else.
    pub(super) fn parse(packet: &[u8]) -> Result<Self, Ignored> {
        let header: &[u8; 40] = packet.first_chunk().ok_or(Ignored::Malformed)?;
        if header[0] >> 4 != 6 || header[6] != ICMPV6 {
            return Err(Ignored::NotNeighborDiscovery);
        }
        let end = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let icmp = packet.get(40..end).ok_or(Ignored::Malformed)?;
        let [kind, code, _, _, _, ..] = *icmp else { return Err(Ignored::Malformed) };
        match kind {
            ROUTER_ADVERTISEMENT | REDIRECT => return Err(Ignored::NotForRouters),
            ROUTER_SOLICITATION | NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT => {}
            _ => return Err(Ignored::NotNeighborDiscovery),
        }
        let source = ipv6_at(header, 8).ok_or(Ignored::Malformed)?;
        let destination = ipv6_at(header, 24).ok_or(Ignored::Malformed)?;
        if header[7] != HOP_LIMIT {
            return Err(Ignored::HopLimit);
        }
        let pseudo = pseudo_sum(source.into(), destination.into(), ICMPV6, icmp.len());
        if fold(sum(icmp, pseudo)) != 0xffff {
            return Err(Ignored::Checksum);
        }
        if code != 0 || source.is_multicast() {
            return Err(Ignored::Malformed);
        }
        let message = match kind {
            ROUTER_SOLICITATION => router_solicitation(icmp, source, destination)?,
            NEIGHBOR_SOLICITATION => solicitation(icmp, source, destination)?,
            _ => advertisement(icmp, source, destination)?,
        };
        Ok(Self { source, destination, message })
    }
}

/// RFC 4861 6.1.1.
fn router_solicitation(icmp: &[u8], source: Ipv6Addr, to: Ipv6Addr) -> Result<Message, Ignored> {
    let source_mac = mac_option(icmp.get(8..).ok_or(Ignored::Malformed)?, SOURCE_LINK_LAYER)?;
    let nameless = source.is_unspecified() && source_mac.is_some();
    if nameless || (to.is_multicast() && to != ALL_ROUTERS) {
        return Err(Ignored::Malformed);
    }
    Ok(Message::RouterSolicitation { source_mac })
}

/// RFC 4861 7.1.1.
fn solicitation(icmp: &[u8], source: Ipv6Addr, to: Ipv6Addr) -> Result<Message, Ignored> {
    let target = ipv6_at(icmp, 8).ok_or(Ignored::Malformed)?;
    let source_mac = mac_option(icmp.get(24..).ok_or(Ignored::Malformed)?, SOURCE_LINK_LAYER)?;
    let nameless = source.is_unspecified() && (source_mac.is_some() || to != solicited_node(target));
    if target.is_multicast() || nameless {
        return Err(Ignored::Malformed);
    }
    Ok(Message::Solicitation { target, source_mac })
}

/// RFC 4861 7.1.2.
fn advertisement(icmp: &[u8], source: Ipv6Addr, to: Ipv6Addr) -> Result<Message, Ignored> {
    let target = ipv6_at(icmp, 8).ok_or(Ignored::Malformed)?;
    let target_mac = mac_option(icmp.get(24..).ok_or(Ignored::Malformed)?, TARGET_LINK_LAYER)?;
    let flags = icmp.get(4).copied().unwrap_or(0);
    let solicited = flags & SOLICITED != 0;
    if target.is_multicast() || source.is_unspecified() || (to.is_multicast() && solicited) {
        return Err(Ignored::Malformed);
    }
    Ok(Message::Advertisement {
        target,
        target_mac,
        router: flags & FROM_ROUTER != 0,
        solicited,
        overrides: flags & OVERRIDE != 0,
    })
}

/// The link-layer address option of a kind, if there is one. Every option must have a length that is not
/// zero and fits; unknown ones are passed over (4.6).
fn mac_option(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, Ignored> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        let length = usize::from(units) * 8;
        if length == 0 || length > options.len() {
            return Err(Ignored::Malformed);
        }
        let (option, rest) = options.split_at(length);
        if kind == wanted && units == 1 && found.is_none() {
            found = option.last_chunk().copied();
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(Ignored::Malformed) }
}

/// The group in which whoever has an address listens for solicitations (RFC 4291 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c))
}

/// The MAC address of a multicast group (RFC 2464 7).
pub(super) fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// Asks for `target`: its group, or the neighbor that is thought to have it.
pub(super) fn solicitation_frame(
    port: &PortIdentity,
    source: Ipv6Addr,
    target: Ipv6Addr,
    to: Option<Mac>,
) -> Vec<u8> {
    let group = solicited_node(target);
    let (destination, mac) = to.map_or((group, group_mac(group)), |mac| (target, mac));
    let mut body = vec![0; 4];
    body.extend_from_slice(&target.octets());
    body.extend_from_slice(&mac_option_bytes(SOURCE_LINK_LAYER, port.mac));
    frame(port, (source, destination), mac, NEIGHBOR_SOLICITATION, &body)
}

/// Says that `target`, an address of the port, is here.
pub(super) fn advertisement_frame(
    port: &PortIdentity,
    target: Ipv6Addr,
    destination: Ipv6Addr,
    to: Mac,
    solicited: bool,
) -> Vec<u8> {
    let mut body = vec![FROM_ROUTER | OVERRIDE | if solicited { SOLICITED } else { 0 }, 0, 0, 0];
    body.extend_from_slice(&target.octets());
    body.extend_from_slice(&mac_option_bytes(TARGET_LINK_LAYER, port.mac));
    frame(port, (target, destination), to, NEIGHBOR_ADVERTISEMENT, &body)
}

/// Says that a router is here, which networks are on the link, and that hosts may make addresses of those
/// of 64 bits (RFC 4861 4.2, 4.6.2; RFC 4862 5.5.3). To all nodes.
pub(super) fn router_advertisement_frame(port: &PortIdentity, source: Ipv6Addr, lifetime_s: u16) -> Vec<u8> {
    const HOPS: u8 = 64;
    const VALID_S: u32 = 2_592_000;
    const PREFERRED_S: u32 = 604_800;
    const ON_LINK: u8 = 0x80;
    const AUTONOMOUS: u8 = 0x40;
    let [high, low] = lifetime_s.to_be_bytes();
    let mut body = vec![HOPS, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&mac_option_bytes(SOURCE_LINK_LAYER, port.mac));
    body.extend_from_slice(&[MTU, 1, 0, 0]);
    body.extend_from_slice(&port.mtu_bytes.to_be_bytes());
    let mut prefixes: Vec<(Ipv6Addr, u8)> = Vec::new();
    for &(address, length) in &port.addresses {
        let IpAddr::V6(address) = address else { continue };
        let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
        let prefix = (Ipv6Addr::from(u128::from(address) & mask), length);
        let advertised = !address.is_unicast_link_local() && length > 0 && length < 128;
        if advertised && !prefixes.contains(&prefix) && prefixes.len() < PREFIXES_MAX {
            prefixes.push(prefix);
        }
    }
    for (prefix, length) in prefixes {
        let flags = if length == 64 { ON_LINK | AUTONOMOUS } else { ON_LINK };
        body.extend_from_slice(&[PREFIX_INFORMATION, 4, length, flags]);
        body.extend_from_slice(&VALID_S.to_be_bytes());
        body.extend_from_slice(&PREFERRED_S.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&prefix.octets());
    }
    frame(port, (source, ALL_NODES), group_mac(ALL_NODES), ROUTER_ADVERTISEMENT, &body)
}

/// So many prefixes fit an advertisement on the smallest link: (1280 - 40 - 16 - 16) / 32.
const PREFIXES_MAX: usize = 37;

fn mac_option_bytes(kind: u8, mac: Mac) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [kind, 1, a, b, c, d, e, f]
}

/// A frame around an ICMPv6 message of `kind`, code 0.
fn frame(
    port: &PortIdentity,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    to: Mac,
    kind: u8,
    body: &[u8],
) -> Vec<u8> {
    let length = 4 + body.len();
    let header = ipv6_header(source, destination, ICMPV6, HOP_LIMIT, length);
    let pseudo = pseudo_sum(source.into(), destination.into(), ICMPV6, length);
    let mut head = [kind, 0, 0, 0];
    let checksum = finish(sum(body, sum(&head, pseudo)));
    head[2..].copy_from_slice(&checksum.to_be_bytes());
    build(to, port.mac, port.vlan, ETHERTYPE_IPV6, &[&header, &head, body])
}
