//! Classifies punted packets. The stages have validated their headers only as far as the drop reason tells; a
//! missing byte matches nothing.

use crate::punt::Punt;
use thalweg_wire::arp::{ArpOperation, ArpView};
use thalweg_wire::ethernet::payload_of;
use thalweg_wire::ipv6::Ipv6View;
use thalweg_wire::{EtherType, ip_protocol, ndp};

/// What a punted packet is to the host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request or a reply of ARP.
    Arp,
    /// Neighbor Discovery: an advertisement is an answer.
    NeighborDiscovery { is_answer: bool },
    /// Anything else.
    Other,
}

pub(super) fn kind_of(punt: &Punt) -> Kind {
    if payload_of(&punt.frame).is_some_and(|(ether_type, _)| ether_type == EtherType::ARP) {
        return Kind::Arp;
    }
    let packet = punt.ip_packet();
    match Ipv6View::new(packet) {
        Ok(view) if view.next_header() == ip_protocol::ICMPV6 => match view.payload().first() {
            Some(&(ndp::NEIGHBOR_ADVERTISEMENT | ndp::ROUTER_ADVERTISEMENT)) => {
                Kind::NeighborDiscovery { is_answer: true }
            }
            Some(&(ndp::NEIGHBOR_SOLICITATION | ndp::ROUTER_SOLICITATION | ndp::REDIRECT)) => {
                Kind::NeighborDiscovery { is_answer: false }
            }
            _ => Kind::Other,
        },
        _ => Kind::Other,
    }
}

pub(super) fn is_arp_reply(frame: &[u8]) -> bool {
    let message = payload_of(frame).and_then(|(_, payload)| ArpView::new(payload).ok());
    message.is_some_and(|message| message.operation() == ArpOperation::Reply)
}
