//! The expected fate of a packet as far as its configuration determines it, computed slowly from lists.

use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::DropReason;
use thalweg_wire::ip_protocol;

use super::frames::{Arrival, DARK, FIRST_LAN, Header, WAN, inside, public};
use super::plan::{Deny, Kind, NatSetup, Setup};
use super::text::{SMALL_MTU, VOICE};

/// The port toward a destination, or the reason why there is none.
pub(super) fn route(setup: &Setup, destination: IpAddr) -> Result<u16, DropReason> {
    let outside = if setup.lost_gateway { Err(DropReason::NeighborUnresolved) } else { Ok(WAN) };
    match destination {
        IpAddr::V4(address) => match address.octets() {
            [10, 0, lan, host] if lan < setup.lans() => host_of(host, Ok(FIRST_LAN + u16::from(lan))),
            [10, 9, ..] => Err(DropReason::Blackhole),
            [10, 10, ..] => Err(DropReason::Unreachable),
            [10, 11, 0, host] => host_of(host, Err(DropReason::NeighborUnresolved)),
            [198, 51, 100, host] => host_of(host, outside),
            _ => outside,
        },
        IpAddr::V6(address) => match address.segments() {
            [0xfd00, 0, 0, lan, ..] if lan < setup.lans().into() => Ok(FIRST_LAN + lan),
            [0x2001, 0xdb8, ..] if !setup.small_mtu => outside,
            _ => Err(DropReason::NoRoute),
        },
    }
}

/// In each network one address is the router's, and the network and broadcast addresses are no host's.
fn host_of(host: u8, way: Result<u16, DropReason>) -> Result<u16, DropReason> {
    match host {
        0 | 255 => Err(DropReason::NotUnicast),
        1 => Err(DropReason::Local),
        _ => way,
    }
}

/// The port toward a source, including unresolved ones.
fn port_of_source(setup: &Setup, source: IpAddr) -> u16 {
    match (source, route(setup, source)) {
        (_, Ok(port)) => port,
        (IpAddr::V4(address), _) if address.octets()[..2] == [10, 11] => DARK,
        _ => WAN,
    }
}

/// The port by which a packet with this destination, TTL and length leaves, or why it does not.
pub(super) fn leaves(setup: &Setup, header: &Header) -> Result<u16, DropReason> {
    let port = route(setup, header.destination)?;
    let mtu = if port == WAN && setup.small_mtu { SMALL_MTU } else { 1500 };
    match (header.ttl, header.length) {
        (0 | 1, _) => Err(DropReason::TtlExpired),
        (_, length) if length > mtu => Err(DropReason::MtuExceeded),
        _ => Ok(port),
    }
}

/// The reason to drop a packet before any stateful stage.
pub(super) fn refused(setup: &Setup, arrival: &Arrival, header: &Header) -> Option<DropReason> {
    match arrival.kind {
        Kind::NotIp => return Some(DropReason::NotIp),
        Kind::Martian => return Some(DropReason::MartianSource),
        Kind::Multicast => return Some(DropReason::NotUnicast),
        _ => {}
    }
    if header.source == header.destination {
        return Some(DropReason::MartianSource);
    }
    if header.ttl == 0 {
        return Some(DropReason::TtlExpired);
    }
    if arrival.port_in == WAN {
        return None;
    }
    if setup.strict_sources && port_of_source(setup, header.source) != arrival.port_in {
        return Some(DropReason::ReversePath);
    }
    let is_denied = match setup.deny? {
        Deny::Udp => header.protocol == ip_protocol::UDP,
        Deny::Host(host) => header.source == IpAddr::V4(inside(host, setup.lans()).1),
    };
    is_denied.then_some(DropReason::AclDenied)
}

/// Whether a packet may exceed the rate of its class.
pub(super) fn may_be_policed(setup: &Setup, header: &Header) -> bool {
    setup.classes.is_some_and(|classes| classes.policed_bps.is_some() && !classes.remark)
        && header.dscp == VOICE
}

/// Whether a packet may be remarked for exceeding the rate of its class.
pub(super) fn may_be_remarked(setup: &Setup, header: &Header) -> bool {
    setup.classes.is_some_and(|classes| classes.policed_bps.is_some() && classes.remark)
        && header.dscp == VOICE
}

/// NAT's task for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    None,
    /// NAT translates the source to a public endpoint.
    Out,
    /// The destination is a public endpoint.
    In,
    Hairpin,
}

/// NAT's task for a packet that arrives at a port.
pub(super) fn role(setup: &Setup, port_in: u16, header: &Header) -> Role {
    let (Some(nat), IpAddr::V4(destination)) = (&setup.nat, header.destination) else { return Role::None };
    let is_ours = is_public(nat, destination);
    match port_in {
        WAN if is_ours => Role::In,
        WAN | DARK => Role::None,
        _ if is_ours => {
            let is_echo = header.protocol == ip_protocol::ICMP && header.ports.is_some();
            let is_bare = header.protocol == ip_protocol::GRE;
            if nat.no_hairpin || is_echo || is_bare { Role::None } else { Role::Hairpin }
        }
        _ => match destination.octets() {
            [10, 0, lan, _] if lan < setup.lans() => Role::None,
            _ => Role::Out,
        },
    }
}

pub(super) fn is_public(nat: &NatSetup, address: Ipv4Addr) -> bool {
    (0..nat.addresses).any(|at| public(at) == address)
}

/// Whether NAT may drop a packet for this reason.
pub(super) fn is_of_nat(nat: &NatSetup, header: &Header, reason: DropReason) -> bool {
    use DropReason::*;
    match reason {
        NatPortLimit => nat.block.is_some(),
        // A host never gets more than a part of the sessions without ports.
        NatHostLimit => header.protocol == ip_protocol::GRE || nat.block.is_none() && nat.host_limits.0 != 0,
        // Beside blocks the usual limit is in force: at least 100 new sessions per second.
        NatHostRate => nat.block.is_some() || nat.host_limits.1 != 0,
        FragmentWithoutFirst | NatNoMapping | NatPortsExhausted | NatTableFull | NatIcmp | NatPeerTaken
        | ReversePath => true,
        NatFiltered => true,
        _ => false,
    }
}
