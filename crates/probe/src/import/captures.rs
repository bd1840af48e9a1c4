//! Extracts messages from packets of a capture: datagrams, and streams over TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thalweg_base::{Chunk, Packet, PacketFlags};
use thalweg_flow::parse::{ParseOptions, parse, payload_of};
use thalweg_wire::ip_protocol;
use thalweg_wire::netflow::decode::{Fault, first_message_bytes, stream_message_bytes};
use thalweg_wire::sflow::is_sflow;

use super::streams::{Outcome, Segment, Streams, Way};

/// The content of a packet.
pub(super) enum Found<'a> {
    /// A complete message.
    Message { from: SocketAddr, is_stream: bool, bytes: &'a [u8] },
    /// An incomplete message, with the reason.
    Refused { from: SocketAddr, why: String },
    /// Something else, with its kind.
    PassedOver(&'static str),
}

pub(super) struct Captures {
    /// Only packets to this port.
    port: Option<u16>,
    streams: Streams,
}

impl Captures {
    pub(super) fn new(port: Option<u16>) -> Self {
        Self { port, streams: Streams::default() }
    }

    /// Calls `show` with the content of each packet of a chunk, its number in the input and its arrival time.
    pub(super) fn read(&mut self, chunk: &mut Chunk, mut show: impl FnMut(u64, u64, Found<'_>)) {
        let numbers = chunk.first_packet_number..;
        for (number, (packet, frame)) in numbers.zip(chunk.whole().0.frames()) {
            let arrival_ns = packet.arrival_ns;
            parse(packet, frame, &ParseOptions::default());
            self.read_packet(packet, frame, |found| show(number, arrival_ns, found));
        }
    }

    fn read_packet(&mut self, packet: &Packet, frame: &[u8], mut show: impl FnMut(Found<'_>)) {
        if let Some(reason) = packet.drop_reason() {
            return show(Found::PassedOver(reason.name()));
        }
        if packet.flags.has(PacketFlags::LATER_FRAGMENT) {
            return show(Found::PassedOver("later-fragment"));
        }
        let is_other = self.port.is_some_and(|port| port != packet.dst_port);
        let is_known = matches!(packet.protocol, ip_protocol::UDP | ip_protocol::TCP);
        let addresses = addresses(packet, frame).filter(|_| is_known && !is_other);
        let Some(way) = addresses else {
            return show(Found::PassedOver(if is_other { "other-port" } else { "not-udp-or-tcp" }));
        };
        match packet.protocol {
            ip_protocol::TCP => self.read_segment(way, packet, frame, show),
            _ => read_datagram(way.0, packet, frame, show),
        }
    }

    fn read_segment(&mut self, way: Way, packet: &Packet, frame: &[u8], mut show: impl FnMut(Found<'_>)) {
        let l4 = usize::from(packet.l4_offset);
        let Some(header) = frame.get(l4..l4 + 20) else { return show(Found::PassedOver("cut-by-capture")) };
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let header_bytes = usize::from(header[12] >> 4) * 4;
        let end = usize::from(packet.l3_offset) + packet.ip_len as usize;
        let bytes = end.saturating_sub(l4 + header_bytes);
        let segment = Segment { sequence, flags: header[13], payload: payload_of(frame, packet), bytes };
        let outcome = self.streams.take(way, &segment, |bytes| {
            show(Found::Message { from: way.0, is_stream: true, bytes });
        });
        match outcome {
            Outcome::Taken | Outcome::Ended => {}
            Outcome::NotMessages => show(Found::PassedOver("not-netflow")),
            Outcome::GivenUp => {
                let why = "a piece of the TCP stream is missing: what follows on this connection is left out";
                show(Found::Refused { from: way.0, why: why.to_owned() });
            }
        }
    }
}

fn read_datagram(from: SocketAddr, packet: &Packet, frame: &[u8], mut show: impl FnMut(Found<'_>)) {
    let bytes = payload_of(frame, packet);
    let versions = [[0, 5], [0, 9], [0, 10]];
    if bytes.first_chunk::<2>().is_none_or(|version| !versions.contains(version)) && !is_sflow(bytes) {
        return show(Found::PassedOver("not-netflow"));
    }
    let l4 = usize::from(packet.l4_offset);
    let says =
        frame.get(l4 + 4..l4 + 6).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])));
    if packet.flags.has(PacketFlags::FRAGMENT) {
        let why = "a fragment of a datagram: expected whole ones".to_owned();
        return show(Found::Refused { from, why });
    }
    match says.checked_sub(8) {
        Some(length) if length <= bytes.len() => {
            show(Found::Message { from, is_stream: false, bytes: &bytes[..length] });
        }
        _ => {
            let why = format!("the capture has {} of {} bytes of the datagram", bytes.len(), says.max(8) - 8);
            show(Found::Refused { from, why });
        }
    }
}

/// Source and destination of a packet with ports.
fn addresses(packet: &Packet, frame: &[u8]) -> Option<Way> {
    if !packet.flags.has(PacketFlags::HAS_PORTS) {
        return None;
    }
    let l3 = frame.get(usize::from(packet.l3_offset)..)?;
    let (src, dst): (IpAddr, IpAddr) = if packet.is_ipv6() {
        let of = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(*l3.get(at..)?.first_chunk::<16>()?)));
        (of(8)?, of(24)?)
    } else {
        let of = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*l3.get(at..)?.first_chunk::<4>()?)));
        (of(12)?, of(16)?)
    };
    Some(((src, packet.src_port).into(), (dst, packet.dst_port).into()))
}

/// The length of the first message in a file of messages, or `None` if it is the rest of the file. NetFlow 9
/// messages have no length: one ends where the next begins.
pub(super) fn message_bytes(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    match bytes.first_chunk::<4>() {
        None => Ok(None),
        Some([0, 5, high, low]) => Ok(Some(24 + 48 * usize::from(u16::from_be_bytes([*high, *low])))),
        Some([0, 9, ..]) => Ok(Some(first_message_bytes(bytes))),
        Some(_) => stream_message_bytes(bytes),
    }
}
