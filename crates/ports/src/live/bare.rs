//! Interfaces without a link layer: WireGuard, GRE, IPIP, PPP and other tunnels of the kernel, and TUN devices.
//!
//! ```text
//! packet ──a header in front──> Ethernet frame: chunk, stages ──the header off──> packet
//! ```
//!
//! Stages know Ethernet frames only, so the driver puts a header in front of each packet that arrives, and takes it
//! off each packet that leaves. Nobody on such a link has a MAC address: the port and the far end are given one each,
//! which no wire ever sees. Nobody is asked for one either, because all that leaves goes to the far end.

use thalweg_wire::ethernet::{EthernetRepr, HEADER_BYTES as ETHERNET};
use thalweg_wire::{EtherType, MacAddr, ipv6};

use super::segment::{ETHERNET_OFFSET, OFFLOAD_BYTES, move_offsets};

/// The far end's MAC address.
pub(super) const FAR_END: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);

/// `ARPHRD_*` numbers whose interfaces carry IP packets: PPP, IPIP, IPv6 tunnels, SIT, GRE, GRE over IPv6, modems, and
/// those without a number of their own, such as WireGuard and TUN.
const TYPES: [u16; 8] = [
    libc::ARPHRD_PPP,
    libc::ARPHRD_TUNNEL,
    libc::ARPHRD_TUNNEL6,
    libc::ARPHRD_SIT,
    libc::ARPHRD_IPGRE,
    IP6_GRE,
    RAW_IP,
    libc::ARPHRD_NONE,
];
// linux/if_arp.h
const RAW_IP: u16 = 519;
const IP6_GRE: u16 = 823;

/// Whether interfaces of this hardware type carry IP packets without a link-layer header.
pub(super) fn is_bare(hardware: u16) -> bool {
    TYPES.contains(&hardware)
}

/// The port's own MAC address, by the interface's number: two ends on one machine differ, and with them their
/// link-local addresses.
pub(super) fn own_mac(index: u32) -> MacAddr {
    let [a, b, c, d] = index.to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

/// Makes a frame of the packet of `bytes` bytes that lies, behind its offload header, [`ETHERNET`] bytes into `buffer`.
/// The frame's offload header comes first. Returns the length of both; 0 if it is no IP packet.
pub(super) fn dress(buffer: &mut [u8], bytes: usize, to: MacAddr) -> usize {
    let Some((opening, packet)) = buffer.split_at_mut_checked(OFFLOAD_BYTES + ETHERNET) else { return 0 };
    let version = packet.get(..bytes).and_then(|packet| packet.first()).map(|byte| byte >> 4);
    let Some(4 | 6) = version else { return 0 };
    opening.copy_within(ETHERNET.., 0);
    let header = EthernetRepr { destination: to, source: FAR_END, ether_type: EtherType::of_packet(packet) };
    opening[OFFLOAD_BYTES..].copy_from_slice(&header.encode());
    move_offsets(opening, ETHERNET_OFFSET);
    opening.len() + bytes
}

/// The packet in a frame, without the padding behind it; `None` for ARP, tags and whatever else the far end could not
/// understand.
pub(super) fn undress(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(ETHERNET..)?;
    let number = |at: usize| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let bytes = match EtherType(u16::from_be_bytes([frame[12], frame[13]])) {
        EtherType::IPV4 => number(2)?,
        EtherType::IPV6 => number(4)? + ipv6::HEADER_BYTES,
        _ => return None,
    };
    packet.get(..bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::segment::Offload;

    /// A packet as the kernel hands it over, in a buffer with room for a header.
    fn buffer(packet: &[u8], start: u16) -> Vec<u8> {
        let mut offload = [0; OFFLOAD_BYTES];
        offload[0] = 1;
        offload[6..8].copy_from_slice(&start.to_ne_bytes());
        offload[8..10].copy_from_slice(&16u16.to_ne_bytes());
        [&[0; ETHERNET], &offload[..], packet].concat()
    }

    #[test]
    fn a_packet_becomes_a_frame_and_a_packet_again() {
        let own = own_mac(7);
        assert!(own.is_unicast() && own != FAR_END && FAR_END.is_unicast());
        for (version, ether_type) in [(4u8, EtherType::IPV4), (6, EtherType::IPV6)] {
            let mut packet = [0; 48];
            packet[0] = version << 4 | 5;
            packet[if version == 4 { 3 } else { 5 }] = if version == 4 { 48 } else { 8 };
            let mut buffer = buffer(&packet, 20);
            assert_eq!(dress(&mut buffer, packet.len(), own), buffer.len());
            let (offload, frame) = buffer.split_first_chunk().unwrap();
            assert_eq!(Offload::parse(offload).unwrap().checksum, Some((34, 16)));
            assert_eq!(&frame[12..14], &ether_type.0.to_be_bytes());
            assert_eq!((&frame[..6], &frame[6..12]), (&own.0[..], &FAR_END.0[..]));
            assert_eq!(undress(frame), Some(&packet[..]));
            assert_eq!(undress(&[frame, &[0; 6]].concat()), Some(&packet[..]), "padding stays here");
            assert_eq!(undress(&frame[..frame.len() - 1]), None, "a packet that is cut off");
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        for packet in [&[][..], &[0x35, 1], &[0xff; 20]] {
            assert_eq!(dress(&mut buffer(packet, 0), packet.len(), own_mac(1)), 0, "{packet:?}");
        }
        for bytes in 0..OFFLOAD_BYTES + ETHERNET {
            assert_eq!(dress(&mut vec![0x45; bytes], bytes, own_mac(1)), 0);
        }
        let frame = |ether_type: [u8; 2]| [&[2; 12], &ether_type[..], &[0; 28]].concat();
        assert_eq!(undress(&frame([0x08, 0x06])), None, "ARP");
        assert_eq!(undress(&frame([0x81, 0x00])), None, "a tag");
        assert_eq!(undress(&[2; 13]), None);
    }

    #[test]
    fn hardware_types_are_told_apart() {
        assert!([libc::ARPHRD_NONE, libc::ARPHRD_PPP, libc::ARPHRD_IPGRE].into_iter().all(is_bare));
        assert!(![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK, libc::ARPHRD_CAN].into_iter().any(is_bare));
    }
}
