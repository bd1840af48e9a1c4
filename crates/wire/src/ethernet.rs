//! Where the IP packet is in an Ethernet frame, for whoever looks at frames one by one. The fast path has its own eyes.

/// Bytes of both addresses.
const ADDRESSES: usize = 12;
/// Tags that are looked behind, as many as the router takes.
const TAGS_MAX: usize = 2;

/// The IP packet of an Ethernet frame with up to two VLAN tags, and whatever pads the frame behind it. `None` for another
/// protocol or a frame that ends before.
pub fn ip_packet_of(frame: &[u8]) -> Option<&[u8]> {
    match payload_of(frame)? {
        ([0x08, 0x00] | [0x86, 0xdd], payload) => Some(payload),
        _ => None,
    }
}

/// The type field behind up to two VLAN tags, and what follows it.
pub fn payload_of(frame: &[u8]) -> Option<([u8; 2], &[u8])> {
    let mut rest = frame.get(ADDRESSES..)?;
    for _ in 0..=TAGS_MAX {
        let (ether_type, behind) = rest.split_first_chunk::<2>()?;
        match ether_type {
            [0x81, 0x00] | [0x88, 0xa8] => rest = behind.get(2..)?,
            other => return Some((*other, behind)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_looked_behind() {
        let frame = |tags: &[u8], ether_type: [u8; 2]| [&[7; 12], tags, &ether_type, &[0x45, 0]].concat();
        let (one, two) = ([0x81, 0, 0, 10], [0x88, 0xa8, 0, 1, 0x81, 0, 0, 10]);
        for tags in [&[][..], &one, &two] {
            for (ether_type, is_ip) in [([0x08, 0x00], true), ([0x86, 0xdd], true), ([0x08, 0x06], false)] {
                let frame = frame(tags, ether_type);
                assert_eq!(payload_of(&frame), Some((ether_type, &[0x45, 0][..])));
                assert_eq!(ip_packet_of(&frame).is_some(), is_ip);
                for end in 0..12 + tags.len() + 2 {
                    assert_eq!(payload_of(&frame[..end]), None, "cut at {end}");
                }
            }
        }
        assert_eq!(payload_of(&frame(&[one, one, one].concat(), [0x08, 0x00])), None, "too many tags");
    }
}
