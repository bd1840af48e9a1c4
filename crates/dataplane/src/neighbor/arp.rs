//! ARP messages in frames.

use super::frame::build;
use std::net::Ipv4Addr;
use thalweg_wire::arp::{ArpOperation, ArpRepr};
use thalweg_wire::ethernet::EthernetRepr;
use thalweg_wire::{EtherType, MacAddr};

/// The frame that carries a message.
pub(super) fn frame(message: &ArpRepr, destination: MacAddr, vlan: Option<u16>) -> Vec<u8> {
    let header = EthernetRepr { destination, source: message.sender_mac, ether_type: EtherType::ARP };
    build(header, vlan, &[&message.encode()])
}

/// A request for `target`, to all or to one neighbor.
pub(super) fn request(
    mac: MacAddr,
    sender: Ipv4Addr,
    target: Ipv4Addr,
    to: Option<MacAddr>,
    vlan: Option<u16>,
) -> Vec<u8> {
    let request = ArpRepr {
        operation: ArpOperation::Request,
        sender_mac: mac,
        sender,
        target_mac: to.unwrap_or(MacAddr::ZERO),
        target,
    };
    frame(&request, to.unwrap_or(MacAddr::BROADCAST), vlan)
}

/// An announcement of one of our addresses (RFC 5227 2.3: a request for one's own address).
pub(super) fn announcement(mac: MacAddr, address: Ipv4Addr, vlan: Option<u16>) -> Vec<u8> {
    request(mac, address, address, None, vlan)
}
