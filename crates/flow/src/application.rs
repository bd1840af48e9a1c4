//! Identifies the application of a flow by its ports or by the beginning of its payload.
//!
//! Ports are a convention; the first bytes of a protocol are the protocol. So if both are used and disagree,
//! the payload wins, and ports decide the rest. Codes and names are those of [`thalweg_wire::application`].
//!
//! [`Labeling`] selects the method. The parser examines payloads packet by packet ([`look`]), and the flow's
//! cache entry takes the first answer from its first packets. This is enough for every protocol here: each
//! identifies itself with its first message in either direction. Ports are examined when a record is
//! delivered ([`by_ports`]). [`payload_of`] gives a packet's payload.
//!
//! The tests of a payload are chosen so that random bytes fail: a magic number, a word, or several fields
//! that must agree with each other and the length. RTP has the least of this: one random datagram in 500
//! looks like it. A test reads a few bytes; it neither allocates nor loops over the payload. Names in payloads are
//! the meter's affair ([`NameOptions`](crate::NameOptions)).
//!
//! Sources: TLS RFC 8446 and 6066, DTLS RFC 6347, 9146 and 9147, QUIC RFC 9000 and 9369, DNS RFC 1035, HTTP
//! RFC 9112, SIP RFC 3261, RTSP RFC 7826, MGCP RFC 3435, STUN RFC 8489, RTP RFC 3550, SSH RFC 4253,
//! BitTorrent BEP 3 and 5, NTP RFC 5905, DHCP RFC 2131, SMB MS-SMB2, RDP MS-RDPBCGR, DNSCrypt version 2,
//! WireGuard's paper 5.4, OpenVPN (`openvpn.rs`), MQTT 3.1.1 3.1, BGP RFC 4271.
//!
//! Missing: applications inside TLS, applications known by their addresses.

mod openvpn;
mod tcp;
mod udp;

use crate::parse::payload_of;
use thalweg_base::{Packet, PacketFlags};
use thalweg_wire::application::{by_any_port, by_ip_protocol};
use thalweg_wire::ip_protocol;

/// How many packets with payload are worth examining in each direction.
pub const PAYLOADS_MAX: usize = 2;

/// How flows get their application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labeling {
    /// By their ports.
    #[default]
    Ports,
    /// By payload; by ports if the payload says nothing.
    Payload,
    None,
}

impl Labeling {
    /// All choices with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("ports", Self::Ports), ("payload", Self::Payload), ("none", Self::None)];
}

/// Replaces the packet's application by the one that its payload shows, if it shows any.
#[inline]
pub fn look(packet: &mut Packet, frame: &[u8]) {
    let payload = payload_of(frame, packet);
    if let Some(code) = by_payload(packet.protocol, packet.src_port, packet.dst_port, payload) {
        packet.application = code;
    }
}

/// The application of a packet by its payload, otherwise by its ports.
pub fn classify(packet: &Packet, payload: &[u8]) -> Option<u8> {
    let known_ports = packet.flags.has(PacketFlags::HAS_PORTS);
    if !known_ports {
        return by_ports(packet.protocol, 0, 0);
    }
    let (src_port, dst_port) = (packet.src_port, packet.dst_port);
    by_payload(packet.protocol, src_port, dst_port, payload)
        .or_else(|| by_ports(packet.protocol, src_port, dst_port))
}

/// The application of a flow by its ports; for a protocol without ports, the protocol's own name. The smaller
/// port is tried first, so both directions have the same answer: clients use random high ports, some of which
/// are well known.
pub fn by_ports(protocol: u8, src_port: u16, dst_port: u16) -> Option<u8> {
    if !ip_protocol::has_ports(protocol) {
        return by_ip_protocol(protocol).map(|row| row.code);
    }
    let (low, high) = (src_port.min(dst_port), src_port.max(dst_port));
    by_any_port(protocol, low).or_else(|| by_any_port(protocol, high)).map(|row| row.code)
}

/// The application that the beginning of a payload shows. Ports only help where the payload says too little.
#[inline]
pub fn by_payload(protocol: u8, src_port: u16, dst_port: u16, payload: &[u8]) -> Option<u8> {
    if payload.is_empty() {
        return None;
    }
    let ports = Ports { src: src_port, dst: dst_port };
    match protocol {
        ip_protocol::TCP => tcp::application_of(payload, ports),
        ip_protocol::UDP => udp::application_of(payload, ports),
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct Ports {
    src: u16,
    dst: u16,
}

impl Ports {
    /// Whether one of the ports is `port`.
    fn have(self, port: u16) -> bool {
        self.src == port || self.dst == port
    }
}

const fn first_bytes(starts: &[&[u8]], mut is_first: [bool; 256]) -> [bool; 256] {
    let mut at = 0;
    while at < starts.len() {
        is_first[starts[at][0] as usize] = true;
        at += 1;
    }
    is_first
}

const fn first_bytes_of(starts: &[(&[u8], u8)], mut is_first: [bool; 256]) -> [bool; 256] {
    let mut at = 0;
    while at < starts.len() {
        is_first = first_bytes(&[starts[at].0], is_first);
        at += 1;
    }
    is_first
}

fn by_start(starts: &[(&[u8], u8)], payload: &[u8]) -> Option<u8> {
    starts.iter().find(|(start, _)| payload.starts_with(start)).map(|(_, code)| *code)
}

fn be16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn be32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;
