//! Packets inside tunnels. An inner packet counts if its addresses can be read; otherwise the tunnel's packet
//! counts.
//!
//! | tunnel | known by | source |
//! |---|---|---|
//! | IPv4 and IPv6 in either | protocols 4, 41 | RFC 2003, 4213, 2473 |
//! | GRE, with IP, Ethernet or MPLS; PPTP's with PPP | protocol 47 | RFC 2784, 2890, 7637, 2637 |
//! | MPLS in IP, in UDP | protocol 137, port 6635 | RFC 4023, 7510 |
//! | VXLAN | port 4789 | RFC 7348 |
//! | GENEVE | port 6081 | RFC 8926 |
//! | GTP-U | port 2152 | 3GPP TS 29.281 |
//! | Teredo | port 3544 | RFC 4380 |
//! | CAPWAP data, not encrypted | port 5247 | RFC 5415, 5416 |
//!
//! Ports are destination ports, except that responses of GTP-U, Teredo and CAPWAP come from theirs.
//!
//! Missing: ERSPAN, L2TP, encrypted tunnels.

use super::IpFacts;
use super::link::{self, Network, be16_at, be32_at, byte_at, ether_type_at};
use thalweg_base::{DropReason, PacketFlags};
use thalweg_wire::{EtherType, ip_protocol};

/// The most nested tunnels that are parsed.
pub const DEPTH_MAX: usize = 4;
/// The most Teredo headers before a packet; there are two kinds.
const TEREDO_HEADERS_MAX: usize = 2;

const GTP_U: u16 = 2152;
const TEREDO: u16 = 3544;
const VXLAN: u16 = 4789;
const CAPWAP_DATA: u16 = 5247;
const GENEVE: u16 = 6081;
const MPLS_IN_UDP: u16 = 6635;

/// Whether a UDP packet with these ports may be a tunnel packet.
#[inline(always)]
pub(super) fn is_tunnel(src_port: u16, dst_port: u16) -> bool {
    matches!(dst_port, GTP_U | TEREDO | VXLAN | CAPWAP_DATA | GENEVE | MPLS_IN_UDP)
        | matches!(src_port, GTP_U | TEREDO | CAPWAP_DATA)
}

/// The innermost packet that can be parsed.
pub(super) fn innermost(frame: &[u8], outer: IpFacts) -> IpFacts {
    let mut facts = outer;
    for _ in 0..DEPTH_MAX {
        match inner(frame, &facts) {
            Some(inner) => facts = inner,
            None => break,
        }
    }
    facts
}

fn inner(frame: &[u8], outer: &IpFacts) -> Option<IpFacts> {
    if outer.flags & PacketFlags::FRAGMENT != 0 {
        return None;
    }
    // Bytes behind the end of the packet are not in the tunnel.
    let frame = &frame[..frame.len().min(outer.end)];
    let network = match outer.protocol {
        ip_protocol::IPV4 | ip_protocol::IPV6 => link::by_version(frame, outer.l4),
        ip_protocol::GRE => gre(frame, outer.l4),
        ip_protocol::MPLS => link::mpls(frame, outer.l4),
        ip_protocol::UDP => in_udp(frame, outer.l4 + 8, outer.ports?),
        _ => return None,
    };
    IpFacts::read(frame, network.ok()?, outer.end).ok()
}

fn in_udp(frame: &[u8], at: usize, (src_port, dst_port): (u16, u16)) -> Result<Network, DropReason> {
    match (src_port, dst_port) {
        (_, VXLAN) => {
            // Flags, one of which says that there is a network identifier; the identifier; Ethernet.
            let flags = byte_at(frame, at)?;
            if flags & 0x08 == 0 { Err(DropReason::NotIp) } else { link::ethernet(frame, at + 8) }
        }
        (_, GENEVE) => {
            let options_len = usize::from(byte_at(frame, at)? & 0x3f) * 4;
            let ether_type = ether_type_at(frame, at + 2)?;
            behind(frame, at + 8 + options_len, ether_type)
        }
        (_, MPLS_IN_UDP) => link::mpls(frame, at),
        (_, GTP_U) | (GTP_U, _) => gtp(frame, at),
        (_, TEREDO) | (TEREDO, _) => teredo(frame, at),
        (_, CAPWAP_DATA) | (CAPWAP_DATA, _) => capwap(frame, at),
        _ => Err(DropReason::NotIp),
    }
}

fn behind(frame: &[u8], at: usize, ether_type: EtherType) -> Result<Network, DropReason> {
    match ether_type {
        EtherType::BRIDGED_ETHERNET => link::ethernet(frame, at),
        EtherType::PPP => link::ppp(frame, at),
        _ => link::behind_ether_type(frame, at, ether_type),
    }
}

fn gre(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    let (flags, ether_type) = (be16_at(frame, at)?, ether_type_at(frame, at + 2)?);
    let field = |bit: u16| if flags & bit != 0 { 4 } else { 0 };
    let header = match flags & 7 {
        // A checksum or source routes; key; sequence number. Source routes are obsolete (RFC 2784).
        0 if flags & 0x4000 == 0 => 4 + field(0x8000) + field(0x2000) + field(0x1000),
        // PPTP: always a key, then sequence and acknowledgment numbers. Without a sequence number there is no
        // payload.
        1 if flags & 0x1000 != 0 => 8 + field(0x1000) + field(0x0080),
        _ => return Err(DropReason::NotIp),
    };
    behind(frame, at + header, ether_type)
}

fn gtp(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    const G_PDU: u8 = 255;
    let [flags, message, ..] = be32_at(frame, at)?.to_be_bytes();
    // Version 1, GTP rather than GTP'.
    if flags >> 4 != 3 || message != G_PDU {
        return Err(DropReason::NotIp);
    }
    let mut payload = at + 8;
    if flags & 0x07 != 0 {
        // Any optional field brings all three: sequence number, N-PDU number, type of the first extension
        // header.
        payload += 4;
        let mut next = byte_at(frame, payload - 1)?;
        while next != 0 {
            let len = usize::from(byte_at(frame, payload)?) * 4;
            if len == 0 {
                return Err(DropReason::NotIp);
            }
            payload += len;
            next = byte_at(frame, payload - 1)?;
        }
    }
    link::by_version(frame, payload)
}

/// IPv6, possibly behind the server's origin indication and authentication headers.
fn teredo(frame: &[u8], mut at: usize) -> Result<Network, DropReason> {
    for _ in 0..TEREDO_HEADERS_MAX {
        match be16_at(frame, at)? {
            0x0000 => at += 8,
            0x0001 => at += 13 + usize::from(byte_at(frame, at + 2)?) + usize::from(byte_at(frame, at + 3)?),
            _ => break,
        }
    }
    match byte_at(frame, at)? >> 4 {
        6 => link::by_version(frame, at),
        _ => Err(DropReason::NotIp),
    }
}

/// A preamble that says whether the rest is encrypted; a header with its own length; an Ethernet or 802.11
/// frame.
fn capwap(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    let word = be32_at(frame, at)?;
    let (preamble, header_len) = (word >> 24, (word >> 19 & 0x1f) as usize * 4);
    let (native, is_fragment, is_keep_alive) = (word & 0x100 != 0, word & 0x80 != 0, word & 0x08 != 0);
    if preamble != 0 || is_fragment || is_keep_alive || header_len < 8 {
        return Err(DropReason::NotIp);
    }
    if native {
        link::ieee80211_of_capwap(frame, at + header_len)
    } else {
        link::ethernet(frame, at + header_len)
    }
}
