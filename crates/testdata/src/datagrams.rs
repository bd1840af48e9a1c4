//! Extracts UDP datagrams from a capture, for tests of sent messages. Reads only this form: little-endian pcap,
//! Ethernet without tags, IPv4 and IPv6 without extension headers, no fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A datagram and its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source address and port.
    pub source: SocketAddr,
    pub payload: Vec<u8>,
}

/// All datagrams of a capture, in order.
///
/// # Panics
/// If the capture has another form.
pub fn datagrams(capture: &[u8]) -> Vec<Datagram> {
    assert!(capture.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]), "a capture of little endian and microseconds");
    let mut rest = &capture[24..];
    let mut datagrams = Vec::new();
    while let Some(bytes) = rest.get(8..12) {
        let bytes = u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize;
        datagrams.push(datagram(&rest[16..16 + bytes]));
        rest = &rest[16 + bytes..];
    }
    datagrams
}

fn datagram(frame: &[u8]) -> Datagram {
    let (address, udp): (IpAddr, &[u8]) = match (frame[12], frame[13]) {
        (0x08, 0x00) => {
            let packet = &frame[14..];
            assert_eq!(packet[9], 17, "UDP");
            let source: [u8; 4] = packet[12..16].try_into().expect("four bytes");
            (Ipv4Addr::from(source).into(), &packet[usize::from(packet[0] & 15) * 4..])
        }
        (0x86, 0xdd) => {
            let packet = &frame[14..];
            assert_eq!(packet[6], 17, "UDP");
            let source: [u8; 16] = packet[8..24].try_into().expect("sixteen bytes");
            (Ipv6Addr::from(source).into(), &packet[40..])
        }
        other => panic!("Ethernet type {other:02x?}"),
    };
    let short = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    Datagram { source: (address, short(0)).into(), payload: udp[8..usize::from(short(4))].to_vec() }
}
