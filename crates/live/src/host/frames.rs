//! Looking at packets that left the fast path. The stages have validated their headers as far as the reason says;
//! whatever is not there reads as nothing.

use crate::punt::Punt;

/// What a packet is, as far as the host cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Address resolution.
    Arp,
    /// Neighbor Discovery; an advertisement, or a question.
    NeighborDiscovery { is_answer: bool },
    /// Anything else.
    Other,
}

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];

/// What a packet is.
pub(super) fn kind_of(punt: &Punt) -> Kind {
    if ethertype(&punt.frame) == Some(ETHERTYPE_ARP) {
        return Kind::Arp;
    }
    let packet = punt.ip_packet();
    match (packet.first().map(|byte| byte >> 4), packet.get(6), packet.get(40)) {
        (Some(6), Some(58), Some(kind @ 133..=137)) => {
            Kind::NeighborDiscovery { is_answer: *kind == 136 || *kind == 134 }
        }
        _ => Kind::Other,
    }
}

/// The type behind any VLAN tags.
fn ethertype(frame: &[u8]) -> Option<[u8; 2]> {
    let mut at = 12;
    loop {
        let field: [u8; 2] = frame.get(at..at + 2)?.try_into().ok()?;
        if !matches!(field, [0x81, 0x00] | [0x88, 0xa8]) {
            return Some(field);
        }
        at += 4;
    }
}

/// Whether an ARP frame is an answer.
pub(super) fn is_arp_reply(frame: &[u8]) -> bool {
    frame.get(20..22) == Some(&[0, 2])
}
