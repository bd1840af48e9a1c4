//! Converts lines to packets and back.

use super::{Addresses, PortName, TraceLine};
use crate::application;
use crate::checksum;
use crate::ip_protocol;
use crate::ipv6::Extensions;

/// The room that [`TraceLine::write_packet`] needs; no packet is longer.
pub const PACKET_SLOT: usize = 64;

/// Bytes on the wire in addition to the IP packet: an Ethernet header.
pub const WIRE_OVERHEAD: usize = 14;

const TTL: u8 = 64;
/// The length of an IP packet that fills a minimal Ethernet frame of 60 bytes.
const IPV4_LEN: u16 = 46;
const IPV4_PAYLOAD: u16 = IPV4_LEN - 20;
/// Don't fragment, as an identification of zero requires (RFC 6864 4.1).
const IPV4_FLAGS: u16 = 0x4000;
const TCP_ACK: u16 = 0x5010;
const TCP_WINDOW: u16 = 0xffff;

impl TraceLine<'_> {
    /// Writes the packet of this line to the front of `out` and returns its length. The remaining bytes
    /// become zero.
    #[inline(always)]
    pub fn write_packet(&self, out: &mut [u8; PACKET_SLOT]) -> usize {
        match self.addresses {
            Addresses::V4 { source, destination } => self.write_ipv4(source, destination, out),
            Addresses::V6 { source, destination } => self.write_ipv6(source, destination, out),
        }
    }

    #[inline(always)]
    fn write_ipv4(&self, source: u32, destination: u32, out: &mut [u8; PACKET_SLOT]) -> usize {
        let addresses = (source >> 16) + (source & 0xffff) + (destination >> 16) + (destination & 0xffff);
        let protocol = u32::from(self.protocol);
        let header = 0x4500 + u32::from(IPV4_LEN) + u32::from(IPV4_FLAGS) + (u32::from(TTL) << 8) + protocol;
        let check = checksum::finish(header + addresses);
        let payload = self.transport(addresses + protocol + u32::from(IPV4_PAYLOAD), IPV4_PAYLOAD);
        // Whole words, so that a handful of wide stores writes the packet.
        let word = |a: u16, b: u16, c: u16, d: u16| {
            (u64::from(a) << 48 | u64::from(b) << 32 | u64::from(c) << 16 | u64::from(d)).to_be_bytes()
        };
        let halves = |x: u32| ((x >> 16) as u16, x as u16);
        let ((s1, s0), (d1, d0)) = (halves(source), halves(destination));
        let p = &payload;
        out[..8].copy_from_slice(&word(0x4500, IPV4_LEN, 0, IPV4_FLAGS));
        out[8..16].copy_from_slice(&word(u16::from(TTL) << 8 | u16::from(self.protocol), check, s1, s0));
        out[16..24].copy_from_slice(&word(d1, d0, p[0], p[1]));
        out[24..32].copy_from_slice(&word(p[2], p[3], p[4], p[5]));
        out[32..40].copy_from_slice(&word(p[6], p[7], p[8], p[9]));
        out[40..48].copy_from_slice(&[0; 8]);
        out[48..].copy_from_slice(&[0; PACKET_SLOT - 48]);
        usize::from(IPV4_LEN)
    }

    #[inline(never)]
    fn write_ipv6(&self, source: u128, destination: u128, out: &mut [u8; PACKET_SLOT]) -> usize {
        let payload_len: u16 = if self.protocol == ip_protocol::TCP { 20 } else { 8 };
        out.fill(0);
        out[0] = 0x60;
        out[4..6].copy_from_slice(&payload_len.to_be_bytes());
        out[6] = self.protocol;
        out[7] = TTL;
        out[8..24].copy_from_slice(&source.to_be_bytes());
        out[24..40].copy_from_slice(&destination.to_be_bytes());
        let addresses = checksum::sum(&out[8..40], 0);
        let pseudo = addresses + u32::from(self.protocol) + u32::from(payload_len);
        for (bytes, word) in
            out[40..60].as_chunks_mut::<2>().0.iter_mut().zip(self.transport(pseudo, payload_len))
        {
            *bytes = word.to_be_bytes();
        }
        40 + usize::from(payload_len)
    }

    /// The transport header in 16-bit words, the rest zero. `pseudo` is the sum of the pseudo header.
    #[inline(always)]
    fn transport(&self, pseudo: u32, payload_len: u16) -> [u16; 10] {
        let (sport, dport) = (self.source_port, self.destination_port);
        let ports = u32::from(sport) + u32::from(dport);
        match self.protocol {
            // Without branches between the two: a mix of them cannot be predicted.
            ip_protocol::UDP | ip_protocol::TCP => {
                let udp = if self.protocol == ip_protocol::UDP { u16::MAX } else { 0 };
                let (len, ack, window) = (payload_len & udp, TCP_ACK & !udp, TCP_WINDOW & !udp);
                let sum = pseudo + ports + u32::from(len) + u32::from(ack) + u32::from(window);
                let check = checksum::finish(sum);
                // RFC 768: zero would say "no checksum".
                let udp_check = if check == 0 { u16::MAX } else { check };
                [sport, dport, len, udp_check & udp, 0, 0, ack, window, check & !udp, 0]
            }
            ip_protocol::ICMP => [0x0800, checksum::finish(0x0800 + ports), sport, dport, 0, 0, 0, 0, 0, 0],
            ip_protocol::ICMPV6 => {
                [0x8000, checksum::finish(pseudo + 0x8000 + ports), sport, dport, 0, 0, 0, 0, 0, 0]
            }
            ip_protocol::SCTP => [sport, dport, 0, 0, 0, 0, 0, 0, 0, 0],
            _ => [0; 10],
        }
    }
}

impl<'a> TraceLine<'a> {
    /// The line that describes an IP packet; `None` if the bytes are not one. `application` is the packet's
    /// code; if it is 0, well-known ports and then the protocol decide.
    pub fn of_packet(port: PortName<'a>, ip: &[u8], application: u8) -> Option<Self> {
        let (addresses, protocol, payload) = match ip.first()? >> 4 {
            4 => ipv4_parts(ip)?,
            6 => ipv6_parts(ip)?,
            _ => return None,
        };
        let (source_port, destination_port) = flow_ports(protocol, payload).unwrap_or((0, 0));
        let application = application_of(application, protocol, source_port, destination_port);
        Some(Self { port, addresses, source_port, destination_port, protocol, application })
    }
}

/// Addresses, protocol, and the transport bytes if this packet has them (later fragments do not).
type Parts<'a> = (Addresses, u8, &'a [u8]);

fn ipv4_parts(ip: &[u8]) -> Option<Parts<'_>> {
    let header = ip.first_chunk::<20>()?;
    let header_len = usize::from(header[0] & 15) * 4;
    let fragment_offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let payload = if fragment_offset == 0 { ip.get(header_len..).unwrap_or(&[]) } else { &[] };
    Some((Addresses::V4 { source: number(12), destination: number(16) }, header[9], payload))
}

fn ipv6_parts(ip: &[u8]) -> Option<Parts<'_>> {
    let header = ip.first_chunk::<40>()?;
    let number = |from: usize| header[from..from + 16].iter().fold(0u128, |n, &b| n << 8 | u128::from(b));
    // A cut packet is used as far as possible: headers may extend beyond the end.
    let mut extensions = Extensions::new(ip, usize::MAX, header[6]);
    let mut is_later_fragment = false;
    // A line names an authentication header as the protocol, as for IPv4.
    while extensions.protocol() != ip_protocol::AUTHENTICATION
        && let Some(extension) = extensions.next()
    {
        is_later_fragment = extension.is_later_fragment();
    }
    let payload = if is_later_fragment { &[] } else { ip.get(extensions.at()..).unwrap_or(&[]) };
    let addresses = Addresses::V6 { source: number(8), destination: number(24) };
    Some((addresses, extensions.protocol(), payload))
}

/// Source and destination port, or identifier and sequence number of an echo.
fn flow_ports(protocol: u8, payload: &[u8]) -> Option<(u16, u16)> {
    let pair = |at: usize| {
        let bytes = payload.get(at..at + 4)?;
        Some((u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]])))
    };
    match (protocol, payload.first()) {
        (ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP, _) => pair(0),
        (ip_protocol::ICMP, Some(0 | 8)) | (ip_protocol::ICMPV6, Some(128 | 129)) => pair(4),
        _ => None,
    }
}

fn application_of(code: u8, protocol: u8, source_port: u16, destination_port: u16) -> u8 {
    if code != 0 && application::transport_of(code) == protocol {
        return code;
    }
    application::by_port(protocol, destination_port)
        .or_else(|| application::by_port(protocol, source_port))
        .or_else(|| application::by_ip_protocol(protocol))
        .map_or(0, |a| a.code)
}
