//! Ethernet headers (IEEE 802.3), and where a frame's payload begins behind VLAN tags.

use crate::header::header;
use crate::vlan::{TAG_BYTES, VlanRepr, VlanView};
use crate::{EtherType, MacAddr, Malformed};

/// Bytes of a header without tags.
pub const HEADER_BYTES: usize = 14;
/// Bytes of both addresses, which precede the first EtherType.
pub const ADDRESS_BYTES: usize = 12;
/// The shortest frame without its check sequence; not every NIC pads.
pub const FRAME_BYTES_MIN: usize = 60;
/// The most tags that are parsed, as many as the router accepts.
const TAGS_MAX: usize = 2;

/// An Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct EthernetView<'a> {
    header: &'a [u8; HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// Views a frame from its first byte.
    #[inline]
    pub fn new(frame: &'a [u8]) -> Result<Self, Malformed> {
        let (header, payload) = frame.split_first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self { header, payload })
    }

    /// The bytes behind the type: a tag if there is one.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

header! {
    EthernetView,
    /// An Ethernet header to encode.
    EthernetRepr, HEADER_BYTES;
    /// Destination MAC address.
    destination: MacAddr = 0;
    /// Source MAC address.
    source: MacAddr = 6;
    /// The type of a tag if there is one.
    ether_type: EtherType = 12;
}

impl EthernetRepr {
    /// Encodes the header without a tag.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        self.fields()
    }

    /// Encodes the header with a tag for this VLAN, if given.
    pub fn encode_tagged(&self, vlan: Option<u16>) -> Vec<u8> {
        match vlan {
            None => self.encode().to_vec(),
            Some(control) => {
                let tag = VlanRepr { control, ether_type: self.ether_type };
                let outer = Self { ether_type: EtherType::VLAN, ..*self };
                [&outer.encode()[..], &tag.encode()].concat()
            }
        }
    }
}

/// The EtherType behind up to two VLAN tags, and the offset of its payload. `None` if there are more tags, or
/// the frame ends before.
#[inline]
pub fn payload_at(frame: &[u8]) -> Option<(EtherType, usize)> {
    let mut ether_type = EthernetView::new(frame).ok()?.ether_type();
    let mut at = HEADER_BYTES;
    for _ in 0..TAGS_MAX {
        if !ether_type.is_tag() {
            break;
        }
        ether_type = VlanView::new(frame.get(at..)?).ok()?.ether_type();
        at += TAG_BYTES;
    }
    (!ether_type.is_tag()).then_some((ether_type, at))
}

/// The EtherType behind up to two VLAN tags, and its payload.
#[inline]
pub fn payload_of(frame: &[u8]) -> Option<(EtherType, &[u8])> {
    let (ether_type, at) = payload_at(frame)?;
    Some((ether_type, frame.get(at..)?))
}

/// The IP packet of a frame with up to two VLAN tags, including any padding. `None` for another protocol or a
/// truncated frame.
pub fn ip_packet_of(frame: &[u8]) -> Option<&[u8]> {
    payload_of(frame).filter(|(ether_type, _)| ether_type.is_ip()).map(|(_, packet)| packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_are_looked_behind() {
        let frame = |tags: &[u8], ether_type: [u8; 2]| [&[7; 12], tags, &ether_type, &[0x45, 0]].concat();
        let (one, two) = ([0x81, 0, 0, 10], [0x88, 0xa8, 0, 1, 0x81, 0, 0, 10]);
        for tags in [&[][..], &one, &two] {
            for (ether_type, is_ip) in [([0x08, 0x00], true), ([0x86, 0xdd], true), ([0x08, 0x06], false)] {
                let frame = frame(tags, ether_type);
                let expected = EtherType::from_be_bytes(ether_type);
                assert_eq!(payload_of(&frame), Some((expected, &[0x45, 0][..])));
                assert_eq!(ip_packet_of(&frame).is_some(), is_ip);
                for end in 0..12 + tags.len() + 2 {
                    assert_eq!(payload_of(&frame[..end]), None, "cut at {end}");
                }
            }
        }
        assert_eq!(payload_of(&frame(&[one, one, one].concat(), [0x08, 0x00])), None, "too many tags");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(to: [u8; 6], from: [u8; 6], ether_type: u16, control: u16, payload: Vec<u8>) {
            let repr = EthernetRepr { destination: to.into(), source: from.into(), ether_type: EtherType(ether_type) };
            let frame = [&repr.encode()[..], &payload].concat();
            let view = EthernetView::new(&frame).unwrap();
            prop_assert_eq!(EthernetRepr::from(view), repr);
            prop_assert_eq!(view.payload(), &payload[..]);
            let tagged = [&repr.encode_tagged(Some(control))[..], &payload].concat();
            let view = EthernetView::new(&tagged).unwrap();
            prop_assert_eq!(view.ether_type(), EtherType::VLAN);
            let tag = VlanView::new(view.payload()).unwrap();
            prop_assert_eq!(VlanRepr::from(tag), VlanRepr { control, ether_type: EtherType(ether_type) });
            prop_assert_eq!(tag.payload(), &payload[..]);
        }

        #[test]
        fn what_is_read_is_written(frame in prop::collection::vec(any::<u8>(), 0..40)) {
            match EthernetView::new(&frame) {
                Ok(view) => prop_assert_eq!(&EthernetRepr::from(view).encode()[..], &frame[..HEADER_BYTES]),
                Err(why) => prop_assert!(why == Malformed::Truncated && frame.len() < HEADER_BYTES),
            }
            if let Ok(tag) = VlanView::new(&frame) {
                prop_assert_eq!(&VlanRepr::from(tag).encode()[..], &frame[..TAG_BYTES]);
            }
        }
    }
}
