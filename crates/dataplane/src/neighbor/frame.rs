//! Ethernet around ARP and Neighbor Discovery: with one VLAN tag or none (IEEE 802.3, 802.1Q).

/// A MAC address.
pub type Mac = [u8; 6];

pub(super) const BROADCAST: Mac = [0xff; 6];
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// Shortest frame without its check sequence; not every card pads.
const FRAME_BYTES_MIN: usize = 60;

/// A frame taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) destination: Mac,
    pub(super) source: Mac,
    /// The VLAN of its tag; `None` without a tag or with a tag that carries only a priority.
    pub(super) vlan: Option<u16>,
    pub(super) ethertype: u16,
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// `None` if the frame ends inside its header.
    pub(super) fn parse(frame: &'a [u8]) -> Option<Self> {
        let (macs, rest) = frame.split_first_chunk::<12>()?;
        let (destination, source) = (macs.first_chunk()?, macs.last_chunk()?);
        let (ethertype, rest) = word(rest)?;
        let (vlan, ethertype, payload) = if ethertype == ETHERTYPE_VLAN {
            let (tag, rest) = word(rest)?;
            let (ethertype, payload) = word(rest)?;
            (Some(tag & 0x0fff).filter(|&vlan| vlan != 0), ethertype, payload)
        } else {
            (None, ethertype, rest)
        };
        Some(Self { destination: *destination, source: *source, vlan, ethertype, payload })
    }
}

/// A whole frame, padded.
pub(super) fn build(to: Mac, from: Mac, vlan: Option<u16>, ethertype: u16, payload: &[&[u8]]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&from);
    if let Some(vlan) = vlan {
        frame.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
        frame.extend_from_slice(&(vlan & 0x0fff).to_be_bytes());
    }
    frame.extend_from_slice(&ethertype.to_be_bytes());
    for part in payload {
        frame.extend_from_slice(part);
    }
    if frame.len() < FRAME_BYTES_MIN {
        frame.resize(FRAME_BYTES_MIN, 0);
    }
    frame
}

/// A MAC address that one neighbor may have: neither a group's nor nobody's.
pub(super) fn is_unicast_mac(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

fn word(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*word), rest))
}
