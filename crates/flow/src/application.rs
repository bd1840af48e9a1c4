//! Which application a flow belongs to: by its ports, or by how its payload begins.
//!
//! Ports are a convention, the first bytes of a protocol are the protocol. So where both are asked and do not agree, the
//! payload is right; ports say what is left. Codes and names are those of [`thalweg_wire::application`].
//!
//! What is asked, a [`Labeling`] says. Payloads are asked for where packets are parsed ([`look`]), packet by packet, and the
//! flow's entry in the cache takes the first answer of its first packets. That is enough for every protocol known here: each
//! says what it is with its first message in either direction. Ports are asked when a record is delivered ([`by_ports`]). A
//! packet's payload is [`payload_of`].
//!
//! What is asked of a payload is chosen so that random bytes fail: a magic number, a word, or several fields that must fit
//! each other and the length. RTP has least of that: one random datagram in 500 looks like it. A look reads a few bytes, and
//! neither allocates nor loops over the payload, but for the names in TLS and HTTP ([`server_name`]).
//!
//! Sources: TLS RFC 8446 and 6066, DTLS RFC 6347, 9146 and 9147, QUIC RFC 9000 and 9369, DNS RFC 1035, HTTP RFC 9112, SIP RFC 3261, RTSP RFC
//! 7826, MGCP RFC 3435, STUN RFC 8489, RTP RFC 3550, SSH RFC 4253, BitTorrent BEP 3 and 5, NTP RFC 5905, DHCP RFC 2131, SMB
//! MS-SMB2, RDP MS-RDPBCGR, DNSCrypt version 2, WireGuard's paper 5.4, OpenVPN (`openvpn.rs`), MQTT 3.1.1 3.1, BGP RFC 4271.
//!
//! Missing: names inside QUIC (its first packet is encrypted, if with a key that all know), what is in TLS, applications that
//! are known by their addresses.

mod name;
mod openvpn;
mod tcp;
mod udp;

pub use name::server_name;

use crate::parse::payload_of;
use thalweg_base::{Packet, PacketFlags};
use thalweg_wire::application::{by_any_port, by_ip_protocol};
use thalweg_wire::ip_protocol;

/// Packets with payload of one direction that are worth looking at.
pub const PAYLOADS_MAX: usize = 2;

/// How flows come by the name of their application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labeling {
    /// By their ports.
    #[default]
    Ports,
    /// By how payloads begin; by ports where those say nothing.
    Payload,
    /// Not at all.
    None,
}

impl Labeling {
    /// What there is to choose from, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("ports", Self::Ports), ("payload", Self::Payload), ("none", Self::None)];
}

/// Replaces the noted application by the one that a parsed packet's payload shows.
#[inline]
pub fn look(packet: &mut Packet, frame: &[u8]) {
    let payload = payload_of(frame, packet);
    if let Some(code) = by_payload(packet.protocol, packet.src_port, packet.dst_port, payload) {
        packet.application = code;
    }
}

/// The application of a packet with this payload: what the payload says, else what the ports say, else none.
pub fn classify(packet: &Packet, payload: &[u8]) -> Option<u8> {
    let known_ports = packet.flags.has(PacketFlags::HAS_PORTS);
    if !known_ports {
        return by_ports(packet.protocol, 0, 0);
    }
    let (src_port, dst_port) = (packet.src_port, packet.dst_port);
    by_payload(packet.protocol, src_port, dst_port, payload)
        .or_else(|| by_ports(packet.protocol, src_port, dst_port))
}

/// The application of a flow with these ports; of protocols without ports, the protocol's own name. The smaller port is asked
/// first, so both directions have the same answer: clients take high ports at random, some of which are known.
pub fn by_ports(protocol: u8, src_port: u16, dst_port: u16) -> Option<u8> {
    if !ip_protocol::has_ports(protocol) {
        return by_ip_protocol(protocol).map(|row| row.code);
    }
    let (low, high) = (src_port.min(dst_port), src_port.max(dst_port));
    by_any_port(protocol, low).or_else(|| by_any_port(protocol, high)).map(|row| row.code)
}

/// The application that a payload shows by how it begins. Ports only help where that says too little.
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

/// The ports of a packet.
#[derive(Clone, Copy)]
struct Ports {
    src: u16,
    dst: u16,
}

impl Ports {
    /// Whether one of them is this.
    fn have(self, port: u16) -> bool {
        self.src == port || self.dst == port
    }
}

/// Marks the first bytes of these.
const fn first_bytes(starts: &[&[u8]], mut is_first: [bool; 256]) -> [bool; 256] {
    let mut at = 0;
    while at < starts.len() {
        is_first[starts[at][0] as usize] = true;
        at += 1;
    }
    is_first
}

/// Marks the first bytes of what names an application by its beginning alone.
const fn first_bytes_of(starts: &[(&[u8], u8)], mut is_first: [bool; 256]) -> [bool; 256] {
    let mut at = 0;
    while at < starts.len() {
        is_first = first_bytes(&[starts[at].0], is_first);
        at += 1;
    }
    is_first
}

/// The application that is named by the beginning alone.
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
