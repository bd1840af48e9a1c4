//! ARP messages (RFC 826) for IPv4 over Ethernet.

use super::frame::{BROADCAST, ETHERTYPE_ARP, Mac, build};
use std::net::Ipv4Addr;

const ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// Request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Request,
    Reply,
}

/// An ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arp {
    pub(super) operation: Operation,
    pub(super) sender_mac: Mac,
    pub(super) sender: Ipv4Addr,
    pub(super) target_mac: Mac,
    pub(super) target: Ipv4Addr,
}

impl Arp {
    /// `None` if it is cut off, of other sorts of address, or asks for something else.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let (sorts, rest) = payload.split_first_chunk::<6>()?;
        let (operation, rest) = rest.split_first_chunk::<2>()?;
        let (sender_mac, rest) = rest.split_first_chunk()?;
        let (sender, rest) = rest.split_first_chunk::<4>()?;
        let (target_mac, rest) = rest.split_first_chunk()?;
        let (target, _) = rest.split_first_chunk::<4>()?;
        if *sorts != ETHERNET_IPV4 {
            return None;
        }
        let operation = match operation {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return None,
        };
        Some(Self {
            operation,
            sender_mac: *sender_mac,
            sender: (*sender).into(),
            target_mac: *target_mac,
            target: (*target).into(),
        })
    }

    /// The frame that carries it.
    pub(super) fn frame(&self, to: Mac, vlan: Option<u16>) -> Vec<u8> {
        let operation = [0, if self.operation == Operation::Request { 1 } else { 2 }];
        let parts: [&[u8]; 6] = [
            &ETHERNET_IPV4,
            &operation,
            &self.sender_mac,
            &self.sender.octets(),
            &self.target_mac,
            &self.target.octets(),
        ];
        build(to, self.sender_mac, vlan, ETHERTYPE_ARP, &parts)
    }

    /// Asks for `target`, all or one neighbor.
    pub(super) fn request(
        mac: Mac,
        sender: Ipv4Addr,
        target: Ipv4Addr,
        to: Option<Mac>,
        vlan: Option<u16>,
    ) -> Vec<u8> {
        let request = Self {
            operation: Operation::Request,
            sender_mac: mac,
            sender,
            target_mac: to.unwrap_or([0; 6]),
            target,
        };
        request.frame(to.unwrap_or(BROADCAST), vlan)
    }

    /// Tells all neighbors who has an address (RFC 5227 2.3: a request for oneself).
    pub(super) fn announcement(mac: Mac, address: Ipv4Addr, vlan: Option<u16>) -> Vec<u8> {
        Self::request(mac, address, address, None, vlan)
    }
}
